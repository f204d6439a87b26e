"""Servers on a host that somebody else set up: recognised by their argument lists, units and containers."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

CONTAINER = re.compile(r"(?:(docker|libpod|cri-containerd|crio)-|/docker/)([0-9a-f]{64})")
ENGINES = {"libpod": "podman", "cri-containerd": "containerd", "crio": "cri-o"}
PROJECT = "sglang"


def is_image(word: str) -> bool:
    """Whether a word names a container image of SGLang, such as `lmsysorg/sglang:v0.5.9`."""
    if "/" not in word or word[0] in "/-.":
        return False
    repository = re.split(r"[:@]", word.rpartition("/")[2])[0]
    return repository == PROJECT or repository.startswith(f"{PROJECT}-")


def is_server(words: Sequence[str]) -> bool:
    """Whether an argument list starts SGLang's server.

    Its forms are `python -m sglang.launch_server`, `python .../sglang/launch_server.py` and `sglang serve`.
    """
    for word, following in itertools.pairwise([*words, ""]):
        path = Path(word)
        if word == "-m" and following == f"{PROJECT}.launch_server":
            return True
        if path.name == "launch_server.py" and path.parent.name == PROJECT:
            return True
        if path.name == PROJECT and following == "serve":
            return True
    return False


def owner_of(cgroup: str) -> dict[str, Any]:
    """The unit and the container of a process, from /proc/PID/cgroup; null where it is in none."""
    lines = [line.split(":", 2) for line in cgroup.splitlines() if line.count(":") >= 2]
    paths = [path for _number, kind, path in lines if kind in ("", "name=systemd")]
    path = max(paths, key=len, default="")
    inside = CONTAINER.search(path)
    units = [part for part in path.split("/") if part.endswith((".service", ".scope"))]
    return {
        "unit": units[-1] if units else None,
        "engine": ENGINES.get(inside[1], inside[1] or "docker") if inside else None,
        "container": inside[2] if inside else None,
    }


def server_processes(proc: Path = Path("/proc")) -> Iterator[dict[str, Any]]:
    """The processes that are SGLang servers: {pid, command, unit, engine, container}."""
    for process in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            if is_server(words):
                owner = owner_of((process / "cgroup").read_text())
                yield {"pid": int(process.name), "command": shlex.join(words)[:200], **owner}
        except OSError:  # it ended while it was looked at
            continue


def commands_of(unit: str) -> list[list[str]]:
    """The command lines of ExecStart= in the text of a unit file."""
    joined = re.sub(r"\\\n", " ", unit)
    commands = []
    for line in joined.splitlines():
        key, _equals, value = line.partition("=")
        if key.strip() == "ExecStart" and value.strip():
            try:
                commands.append(shlex.split(value.strip().lstrip("-@:+!")))
            except ValueError:  # quoted as only systemd understands it
                commands.append(value.split())
    return commands


def runs_server(unit: str) -> bool:
    """Whether the text of a unit file starts SGLang's server, directly or in a container."""
    return any(is_server(words) or any(map(is_image, words)) for words in commands_of(unit))


def container_of(engine: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """What matters of a container, from what `docker inspect` or `podman inspect` says of it."""
    config, host = document.get("Config") or {}, document.get("HostConfig") or {}
    entry = config.get("Entrypoint") or []
    words = [*(shlex.split(entry) if isinstance(entry, str) else entry), *(config.get("Cmd") or [])]
    image = document.get("ImageName") or config.get("Image") or ""
    bindings = [
        binding for bound in (host.get("PortBindings") or {}).values() for binding in bound or () if binding
    ]
    return {
        "engine": engine,
        "id": document.get("Id", ""),
        "name": document.get("Name", "").lstrip("/"),
        "image": image,
        "running": bool((document.get("State") or {}).get("Running")),
        "restart": (host.get("RestartPolicy") or {}).get("Name") or "no",
        "ports": sorted({int(binding["HostPort"]) for binding in bindings if binding.get("HostPort")}),
        "sglang": is_image(f"local/{image}") or is_server(words),
    }
