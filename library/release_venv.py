#!/usr/bin/python
"""Ansible module: make a virtual environment from local wheels, once and for all."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_venv
short_description: Make an immutable virtual environment from wheels, by hash
description:
  - Installs exactly the given wheels with uv, offline, and proves that the named modules can be imported.
  - An environment is complete when its V(smokestack.json) is there; that file is written last. What a killed
    run left without it is thrown away and made anew. A complete environment is never changed.
options:
  path:
    description: Folder of the environment.
    type: path
    required: true
  wheelhouse:
    description: Folder that holds the wheels.
    type: path
    required: true
  wheels:
    description: Wheel file name to SHA-256; the environment holds these and nothing else, uv's own wheel
      excepted.
    type: dict
    required: true
  python:
    description: The interpreter to build on.
    type: path
    default: /usr/bin/python3
  cache:
    description: uv's cache. On the file system of O(path) a second environment is made of hard links, its
      bytecode to that of the environments beside it.
    type: path
    required: true
  imports:
    description: Modules that must import in the new environment.
    type: list
    elements: str
    default: []
  environment:
    description: Environment variables for the imports.
    type: dict
    default: {}
  progress_file:
    description: Where to write progress.
    type: path
attributes:
  check_mode:
    support: full
    description: Says whether the environment would be made.
  diff_mode:
    support: none
    description: The manifest of the release lists the packages.
author: Smokestack
"""

EXAMPLES = r"""
- name: Make the environment
  release_venv:
    path: /opt/sglang/venvs/0f3b8a
    wheelhouse: /opt/sglang/wheelhouse
    wheels: "{{ wheels }}"
    cache: /opt/sglang/cache/uv
    imports: [torch]
"""

RETURN = r"""
packages:
  description: Distribution name to version, as installed.
  type: dict
  returned: when the environment exists
seconds:
  description: How long installing and proving took.
  type: float
  returned: when it was made
"""

import fcntl
import os
import shutil
import subprocess
import time
import zipfile
from collections import Counter
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.durable import read_json, sync_folder, write_json
from ansible.module_utils.progress import Progress

MANIFEST = "smokestack.json"
LAST_LINES = 15
LEAST_FREE = 64 << 20
# Many wheels hold files that Python cannot compile (templates, another version's syntax): left as they are.
COMPILE = "import compileall, sys; compileall.compile_dir(sys.argv[1], quiet=2, workers=0)"

ARGUMENTS = {
    "path": {"type": "path", "required": True},
    "wheelhouse": {"type": "path", "required": True},
    "wheels": {"type": "dict", "required": True},
    "python": {"type": "path", "default": "/usr/bin/python3"},
    "cache": {"type": "path", "required": True},
    "imports": {"type": "list", "elements": "str", "default": []},
    "environment": {"type": "dict", "default": {}},
    "progress_file": {"type": "path"},
}


class VenvError(Exception):
    """The environment cannot be made; the message says why."""


def name_and_version(wheel: str) -> tuple[str, str]:
    """Distribution name and version from a wheel's file name."""
    name, version = wheel.split("-")[:2]
    return name, version


def installed(wheels: dict[str, str]) -> list[tuple[str, str]]:
    """Name and version of every wheel but uv's own."""
    return [name_and_version(wheel) for wheel in wheels if name_and_version(wheel)[0] != "uv"]


def requirements(wheels: dict[str, str], wheelhouse: Path) -> str:
    """A requirements file with one hash a line for every wheel but uv's own.

    Where the wheelhouse has several wheels of a version (torch-2.13.0 beside torch-2.13.0+cpu, or two builds
    of a kernel), the wanted one is named by its file: uv takes the one that it ranks highest, and then
    refuses it for its hash.
    """
    there = Counter(public_version(path.name) for path in wheelhouse.glob("*.whl"))
    lines = []
    for wheel in sorted(wheels):
        name, version = name_and_version(wheel)
        if name != "uv":
            several = there[public_version(wheel)] > 1
            what = f"{name} @ {(wheelhouse / wheel).absolute().as_uri()}" if several else f"{name}=={version}"
            lines.append(f"{what} --hash=sha256:{wheels[wheel]}")
    return "\n".join(lines) + "\n"


def public_version(wheel: str) -> tuple[str, str]:
    """Name and version of a wheel, without the local part of the version."""
    name, version = name_and_version(wheel)
    return name, version.partition("+")[0]


def unpack_uv(wheel: Path, folder: Path) -> Path:
    """Take the uv binary out of its wheel; returns its path."""
    with zipfile.ZipFile(wheel) as archive:
        member = next((name for name in archive.namelist() if name.endswith(".data/scripts/uv")), None)
        if member is None:
            raise VenvError(f"{wheel}: no uv binary in it")
        folder.mkdir(parents=True, exist_ok=True)
        binary = folder / "uv"
        with archive.open(member) as source, binary.open("wb") as target:
            shutil.copyfileobj(source, target)
    binary.chmod(0o755)
    return binary


def run(argv: list[str], environment: dict[str, str], log: Path, watch) -> None:
    """Run to the end, calling `watch` a few times a second; VenvError with the last lines when it fails."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            argv, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
        while process.poll() is None:
            watch()
            time.sleep(0.3)
    if process.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:])
        free = shutil.disk_usage(log.parent).free
        if free < LEAST_FREE:  # then the log may have had no room for the reason either
            tail = f"{tail}\nNo space left on device: {free >> 20} MiB free at {log.parent}"
        raise VenvError(f"{' '.join(argv[:3])} ended with {process.returncode} (log: {log}):\n{tail}")


def make(wanted: dict, progress: Progress) -> dict:
    """Build the environment at its final path and prove the imports; returns its manifest."""
    path, wheelhouse = Path(wanted["path"]), Path(wanted["wheelhouse"])
    wheels = wanted["wheels"]
    started = time.monotonic()
    if path.exists():
        shutil.rmtree(path)  # what a killed run left
    path.mkdir(parents=True)
    uv_wheel = next((name for name in wheels if name_and_version(name)[0] == "uv"), None)
    if uv_wheel is None:
        raise VenvError("uv is not among the wheels: the lock must hold it")
    uv = unpack_uv(wheelhouse / uv_wheel, path / "uv")
    log = path / "install.log"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(path / "uv")}
    environment |= {"UV_CACHE_DIR": wanted["cache"], "UV_NO_CONFIG": "1"}
    create = [str(uv), "venv", "--quiet", "--allow-existing", "--python", wanted["python"], str(path)]
    run(create, environment, log, lambda: None)
    (path / "requirements.txt").write_text(requirements(wheels, wheelhouse))
    site = next((path / "lib").glob("python3*/site-packages"))
    total = len(wheels) - 1

    def count() -> None:
        done = sum(1 for _ in site.glob("*.dist-info"))
        progress.say(done, total, f"{done} of {total} packages installed")

    install = [str(uv), "pip", "install", "--quiet", "--offline", "--no-index", "--no-deps"]
    install += ["--require-hashes"]
    install += ["--link-mode", "hardlink" if same_disk(path, Path(wanted["cache"])) else "copy"]
    install += ["--find-links", str(wheelhouse), "--python", str(path / "bin/python")]
    run([*install, "--requirements", str(path / "requirements.txt")], environment, log, count)
    shutil.rmtree(path / "uv")
    progress.say(total, total, f"{total} packages installed, compiling their bytecode")
    share_bytecode(
        site, [other.parent / site.relative_to(path) for other in path.parent.glob(f"*/{MANIFEST}")]
    )
    run([str(path / "bin/python"), "-c", COMPILE, str(site)], environment, log, lambda: None)
    if wanted["imports"]:
        progress.say(total, total, f"{total} packages installed, importing {', '.join(wanted['imports'])}")
        statement = "; ".join(f"import {name}" for name in wanted["imports"])
        environment |= {"HOME": "/nonexistent"} | {
            key: str(value) for key, value in wanted["environment"].items()
        }
        run([str(path / "bin/python"), "-B", "-c", statement], environment, log, lambda: None)
    manifest = {
        "packages": dict(sorted(installed(wheels))),
        "wheels": wheels,
        "imports": wanted["imports"],
        "python": os.path.realpath(wanted["python"]),
        "seconds": round(time.monotonic() - started, 1),
    }
    os.sync()  # thousands of files: one sync before the file that declares them whole
    write_json(path / MANIFEST, manifest)
    sync_folder(path.parent)
    return manifest


def share_bytecode(site: Path, others: list[Path]) -> None:
    """Link the bytecode that other environments have of the very files that this one has.

    Hard links to uv's cache make the same source the same inode, so nothing else needs comparing. The folders
    are site-packages of one Python version; those that are not there share nothing.
    """
    for other in others:
        for cache in other.rglob("__pycache__"):
            ours = site / cache.parent.relative_to(other)
            for bytecode in cache.glob("*.pyc"):
                module = bytecode.stem.rpartition(".")[0] + ".py"  # module.cpython-311.pyc
                source, twin = ours / module, cache.parent / module
                if source.is_file() and twin.is_file() and source.samefile(twin):
                    shared = ours / "__pycache__" / bytecode.name
                    shared.parent.mkdir(exist_ok=True)
                    if not shared.exists():
                        shared.hardlink_to(bytecode)


def same_disk(one: Path, other: Path) -> bool:
    """Whether hard links between the two folders are possible."""
    other.mkdir(parents=True, exist_ok=True)
    return one.stat().st_dev == other.stat().st_dev


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    path = Path(module.params["path"])
    manifest = read_json(path / MANIFEST)
    if manifest is not None:
        module.exit_json(changed=False, packages=manifest["packages"])
    if module.check_mode:
        module.exit_json(changed=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # an orphan of a killed run may still be installing
        manifest = read_json(path / MANIFEST)
        if manifest is None:
            try:
                manifest = make(module.params, Progress(module.params["progress_file"]))
            except (VenvError, OSError) as error:
                module.fail_json(
                    msg=f"the environment {path} was not made: {error}. The node serves what it served before"
                )
    module.exit_json(changed=True, packages=manifest["packages"], seconds=manifest["seconds"])


if __name__ == "__main__":
    main()
