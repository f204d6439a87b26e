"""What a node has against what its plan needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

GIB = 1 << 30
UNIT = "sglang.service"
UNPACKED = 4.0
"""Disk that an installation takes per byte of wheels: the wheel on the node (1), its unpacked files (about
2.5 times a wheel's size, as measured with torch's and SGLang's wheels; uv's cache shares them by hard links)
and compiled bytecode."""
OLD_TAGS = {"manylinux1_": (2, 5), "manylinux2010_": (2, 12), "manylinux2014_": (2, 17)}


def finding(level: str, check: str, text: str) -> dict[str, str]:
    return {"level": level, "check": check, "text": text}


def needed_glibc(wheels: list[Mapping[str, Any]]) -> tuple[int, int]:
    """The newest glibc that some wheel's platform tag asks for, (0, 0) where none asks.

    A wheel with several tags asks for the lowest.
    """
    newest = (0, 0)
    for wheel in wheels:
        tags = [
            (int(major), int(minor)) for major, minor in re.findall(r"manylinux_(\d+)_(\d+)_", wheel["file"])
        ]
        tags += [needs for tag, needs in OLD_TAGS.items() if tag in wheel["file"]]
        if tags:
            newest = max(newest, min(tags))
    return newest


def disk_bytes(plan: Mapping[str, Any]) -> float:
    """Disk that the deployment will take: wheels and weights that are not there yet, the environment and the
    CUDA toolkit (2.7 times its wheels, as measured with CUDA 13.0.88's compiler; reckoned as an environment).
    """
    moved = plan["transfer"]
    environment = 0 if moved["environment"] else plan["download_bytes"] * (UNPACKED - 1)
    toolkit = moved.get("toolkit", {"bytes": 0})["bytes"] * (UNPACKED - 1)
    return float(moved["wheels"]["bytes"] + moved["model"]["bytes"] + environment + toolkit)


def preflight_findings(
    facts: Mapping[str, Any], plan: Mapping[str, Any], spare_disk_gib: float
) -> list[dict[str, str]]:
    """Findings {level: ok or refuse, check, text}, one a check."""
    findings = []
    wanted_disk = disk_bytes(plan) / GIB + float(spare_disk_gib)
    have_disk = facts["disk_free_gib"]
    level = "ok" if have_disk >= wanted_disk else "refuse"
    need = f"what is to come needs {wanted_disk:.1f} GiB, {float(spare_disk_gib):g} of them to spare"
    remedy = "" if level == "ok" else ". Free some: releases.yml -e release_prune=true -e release_keep=1"
    findings.append(finding(level, "disk", f"{have_disk:.1f} GiB free at {plan['root']}; {need}{remedy}"))

    wanted_memory = float(plan["profile"].get("needs", {}).get("memory_gib", 0))
    level = "ok" if facts["memory_gib"] >= wanted_memory else "refuse"
    findings.append(
        finding(
            level,
            "memory",
            f"{facts['memory_gib']:.1f} GiB of memory; the profile needs {wanted_memory:g} GiB",
        )
    )

    fit = plan.get("fit", {"problems": [], "lines": []})
    findings += [finding("refuse", "model", text) for text in fit["problems"]]
    findings += [finding("ok", "model", text) for text in fit["lines"] if text not in fit["problems"]]

    glibc = needed_glibc(plan["lock"]["wheels"])
    have_glibc = tuple(int(part) for part in facts["glibc"].split(".")[:2]) if facts["glibc"] else (0, 0)
    level = "ok" if have_glibc >= glibc else "refuse"
    findings.append(finding(level, "glibc", f"glibc {facts['glibc']}; the wheels need {glibc[0]}.{glibc[1]}"))

    holder = facts["port_holder"]
    if holder is None or holder["unit"] == UNIT:
        findings.append(finding("ok", "port", "the port is free or held by our unit"))
    else:
        who = f"{holder['name'] or 'an unknown process'} (PID {holder['pid']}, unit {holder['unit']})"
        findings.append(
            finding(
                "refuse",
                "port",
                f"the port is taken by {who}: stop it, or set sglang_server_port to another one",
            )
        )
    return findings


def stop_command(server: Mapping[str, Any]) -> str:
    """How an operator stops what `server_name` names, so that it does not come back."""
    if "image" in server:
        engine, name = server["engine"], server["name"]
        return f"{engine} update --restart=no {name} && {engine} stop {name}"
    if "path" in server:
        return f"systemctl disable --now {server['name']}"
    if server["unit"] and server["unit"].endswith(".service") and not server["unit"].startswith("user@"):
        return f"systemctl disable --now {server['unit']}"
    return f"kill {server['pid']}"


def foreign_findings(
    foreign: Mapping[str, Any], port: int | str, others_ok: bool = False
) -> list[dict[str, str]]:
    """What somebody else set up, a finding each; `foreign` are the facts of `foreign_servers`.

    What a deployment would write over is always refused, and so is a container on its port. A server beside
    it is refused unless `others_ok`, since it takes the GPUs' memory.
    """
    findings = []
    unit = foreign["unit"]
    if unit and not unit["ours"]:
        text = f"{unit['path']} is not Smokestack's and would be written over: systemctl disable --now {UNIT}"
        findings.append(finding("refuse", "foreign unit", f"{text}, then move the file away"))
    if foreign["root_others"]:
        names = ", ".join(foreign["root_others"][:5])
        text = f"the folder of the deployment holds what is not Smokestack's: {names}; move it away"
        findings.append(finding("refuse", "foreign folder", text))
    if foreign["user_home"]:
        text = f"the user sglang is another one (home {foreign['user_home']}) and would be changed; rename it"
        findings.append(finding("refuse", "foreign user", text))

    boxes = [box for box in foreign["containers"] if box["running"] or box["restart"] != "no"]
    taken = [box for box in boxes if int(port) in box["ports"]]
    for box in taken:
        text = f"port {port} belongs to {container_name(box)}; stop it: {stop_command(box)}"
        findings.append(finding("refuse", "foreign server", text))
    beside = [(container_name(box), box) for box in boxes if box["sglang"] and box not in taken]
    known = {box["id"] for box in boxes}
    named = {unit["name"] for unit in foreign["units"]} | {UNIT}
    beside += [
        (f"unit {unit['name']} ({'active' if unit['active'] else 'enabled'}, {unit['path']})", unit)
        for unit in foreign["units"]
        if unit["active"] or unit["enabled"]
    ]
    beside += [
        (process_name(process), process)
        for process in foreign["processes"]
        if process["container"] not in known and process["unit"] not in named
    ]
    for name, server in beside:
        text = f"another SGLang server is here: {name}"
        if others_ok:
            findings.append(finding("ok", "foreign server", text))
        else:
            text += (
                f"; stop it when its time has come: {stop_command(server)}. To prepare beside it: "
                "--tags release,model --skip-tags preflight; to keep both: -e preflight_others_ok=true"
            )
            findings.append(finding("refuse", "foreign server", text))
    for engine, said in foreign["silent"].items():
        findings.append(finding("ok", "containers", f"{engine} is installed and did not answer: {said}"))
    return findings


def container_name(box: Mapping[str, Any]) -> str:
    """A container for an operator."""
    state = "running" if box["running"] else f"stopped, restart policy {box['restart']}"
    return f"{box['engine']} container {box['name']} (image {box['image']}, {state})"


def process_name(process: Mapping[str, Any]) -> str:
    """A process for an operator."""
    if process["container"]:
        return f"PID {process['pid']} in {process['engine']} container {process['container'][:12]}"
    return f"PID {process['pid']} in {process['unit'] or 'no unit'}: {process['command']}"


class FilterModule:
    """Filters of the preflight."""

    def filters(self) -> dict[str, Any]:
        return {"preflight_findings": preflight_findings, "foreign_findings": foreign_findings}
