#!/usr/bin/python
"""Ansible module: lay NVIDIA's CUDA wheels out as one CUDA_HOME."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_home
short_description: Lay CUDA wheels out as one toolkit folder, by hash
description:
  - Unpacks the C(nvidia) folders of the wheels into one folder with V(bin), V(include), V(lib), V(lib64) and
    V(nvvm), as NVIDIA's own installer does, and refuses wheels that do not make a whole compiler.
  - The folder is made beside its place, flushed to disk and renamed, so it is never seen half-made; what an
    interrupted run left is thrown away. A folder whose files are all there with their hashes is not touched,
    one that has lost or changed a file is made anew.
options:
  path:
    description: The toolkit's folder.
    type: path
    required: true
  wheelhouse:
    description: Folder that holds the wheels.
    type: path
    required: true
  wheels:
    description: Wheel file name to SHA-256.
    type: dict
    required: true
attributes:
  check_mode:
    support: full
    description: Says whether the toolkit would be laid out; the wheels need not be there yet.
  diff_mode:
    support: full
    description: Lists the wheels, and what is wrong in a folder that is made anew.
author: Smokestack
"""

EXAMPLES = r"""
- name: Lay the toolkit out
  cuda_home:
    path: /opt/sglang/toolkits/13.0-5f1c90a2b7de
    wheelhouse: /opt/sglang/wheelhouse
    wheels: "{{ plan.toolkit.wheels | wheel_hashes }}"
"""

RETURN = r"""
path:
  description: The toolkit's folder.
  type: str
  returned: success
reasons:
  description: File to what was wrong with it; empty when the toolkit was there and right.
  type: dict
  returned: success
bytes:
  description: Bytes that the toolkit takes.
  type: int
  returned: when it is there
"""

import fcntl
import hashlib
import os
import re
import shutil
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.durable import read_json, sync_folder, write_json
from ansible.module_utils.hashed_files import BLOCK, sha256_of, unverified

MANIFEST = "smokestack.json"
# What compiles and links a program, and the package that brings it (as of CUDA 13.0.88).
PARTS = {
    "bin/nvcc": "nvidia-cuda-nvcc",
    "bin/ptxas": "nvidia-cuda-nvcc",
    "nvvm/bin/cicc": "nvidia-nvvm",
    "include/crt/host_config.h": "nvidia-cuda-crt",
    "include/cuda_runtime.h": "nvidia-cuda-runtime",
    "lib/libcudart_static.a": "nvidia-cuda-runtime",
    "include/cccl/cuda/std/utility": "nvidia-cuda-cccl",
}

ARGUMENTS = {
    "path": {"type": "path", "required": True},
    "wheelhouse": {"type": "path", "required": True},
    "wheels": {"type": "dict", "required": True},
}


class ToolkitError(Exception):
    """The toolkit cannot be laid out; the message says which wheel is at fault and what to do."""


def place_of(member: str) -> str | None:
    """Where a wheel's file goes below the CUDA_HOME, None for what describes the wheel itself.

    CUDA's wheels hold `nvidia/cu13/bin/nvcc`. Raises ToolkitError for anything else.
    """
    path = PurePosixPath(member)
    if path.is_absolute() or ".." in path.parts:
        raise ToolkitError(f"it holds {member!r}, a path that leaves the folder")
    if path.parts[0].endswith(".dist-info") or path.name == "__init__.py":
        return None
    if path.parts[0] != "nvidia" or len(path.parts) < 3:
        raise ToolkitError(f"it holds {member!r}, which is no part of a CUDA toolkit (nvidia/NAME/...)")
    return str(PurePosixPath(*path.parts[2:]))


def unpack(wheel: Path, folder: Path, files: dict[str, str]) -> None:
    """Unpack one wheel into the folder and add its files' SHA-256 to `files`. Raises ToolkitError."""
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            place = None if info.is_dir() else place_of(info.filename)
            if place is None:
                continue
            target = folder / place
            known = files.get(place)
            if known is None:
                target.parent.mkdir(parents=True, exist_ok=True)
            digest = hashlib.sha256()
            with (
                archive.open(info) as source,
                (target if known is None else Path(os.devnull)).open("wb") as out,
            ):
                while block := source.read(BLOCK):
                    digest.update(block)
                    out.write(block)
            if known not in (None, digest.hexdigest()):
                raise ToolkitError(f"its {place} is another one than that of a wheel before it")
            files[place] = digest.hexdigest()
            target.chmod(0o755 if info.external_attr >> 16 & 0o111 else 0o644)


def wanted_links(files: dict[str, str]) -> dict[str, str]:
    """The links that a toolkit has and wheels cannot carry: lib64, and libNAME.so for the linker."""
    links = {"lib64": "lib"}
    for name in sorted(files, key=len, reverse=True):  # of libx.so.13 and libx.so.13.0.96 the shorter stays
        library = re.fullmatch(r"lib/(lib\w+\.so)\.[\d.]+", name)
        if library and f"lib/{library[1]}" not in files:
            links[f"lib/{library[1]}"] = PurePosixPath(name).name
    return links


def faults(path: Path, wheels: dict[str, str], remember: bool) -> dict[str, str]:
    """What is wrong in a toolkit's folder, file to reason; empty when it is there and right."""
    manifest = read_json(path / MANIFEST)
    if manifest is None:
        return {MANIFEST: "missing"}
    if manifest["wheels"] != wheels:
        return {MANIFEST: "names other wheels"}
    wrong = {
        name: f"a link to {target} is missing"
        for name, target in manifest["links"].items()
        if not (path / name).is_symlink() or str((path / name).readlink()) != target
    }
    return wrong | unverified(path, manifest["files"], remember)


def make(wanted: dict[str, Any], path: Path) -> None:
    """Lay the wheels out beside the folder's place, then give the folder its name."""
    staging, gone = path.with_name(f".{path.name}"), path.with_name(f".gone.{path.name}")
    for left in (staging, gone):  # by a run that was killed
        shutil.rmtree(left, ignore_errors=True)
    staging.mkdir()
    files: dict[str, str] = {}
    for name, sha256 in sorted(wanted["wheels"].items()):
        wheel = Path(wanted["wheelhouse"]) / name
        if not wheel.is_file():
            raise ToolkitError(f"{wheel} is missing; run again to send it")
        if sha256_of(wheel) != sha256:
            raise ToolkitError(f"{wheel}: its SHA-256 is not the lock's; remove the file and run again")
        try:
            unpack(wheel, staging, files)
        except (ToolkitError, zipfile.BadZipFile) as error:
            raise ToolkitError(f"{wheel}: {error}") from error
    lacking = [f"{part} (of {package})" for part, package in PARTS.items() if part not in files]
    if lacking:
        raise ToolkitError(
            f"the wheels hold no {', no '.join(lacking)}: name what is missing under cuda_toolkit.wheels "
            "and lock the stack again"
        )
    links = wanted_links(files)
    for name, target in links.items():
        (staging / name).symlink_to(target)
    size = sum((staging / name).stat().st_size for name in files)
    for folder in (
        staging,
        *(found for found in staging.rglob("*") if found.is_dir() and not found.is_symlink()),
    ):
        folder.chmod(0o755)
    torn = unverified(staging, files)  # its memory spares later runs the hashing
    if torn:
        raise ToolkitError(f"{staging}: {min(torn)} was not written as it is in its wheel; run again")
    os.sync()  # thousands of files: one sync before the file that declares them whole
    manifest = {"wheels": wanted["wheels"], "files": files, "links": links, "bytes": size}
    write_json(staging / MANIFEST, manifest)
    if path.exists():
        path.rename(gone)
    staging.rename(path)
    sync_folder(path.parent)
    shutil.rmtree(gone, ignore_errors=True)


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    wanted, check = module.params, module.check_mode
    path = Path(wanted["path"])
    wrong = faults(path, wanted["wheels"], remember=not check)
    there = path.is_dir()
    if wrong and not check:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with (path.parent / f".{path.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # an orphan of a killed run may still be at it
                if faults(path, wanted["wheels"], remember=True):
                    make(wanted, path)
        except (ToolkitError, OSError) as error:
            module.fail_json(msg=f"the CUDA toolkit {path} was not laid out: {error}")
    module.exit_json(
        changed=bool(wrong),
        path=str(path),
        reasons=wrong,
        bytes=(read_json(path / MANIFEST) or {}).get("bytes"),
        diff={
            "before_header": str(path),
            "after_header": str(path),
            "before": described(wanted["wheels"], wrong) if there else "",
            "after": described(wanted["wheels"], {}),
        },
    )


def described(wheels: dict[str, str], wrong: dict[str, str]) -> str:
    """The text of a toolkit for a diff."""
    lines = [f"{name} sha256:{sha256}" for name, sha256 in sorted(wheels.items())]
    return "".join(f"{line}\n" for line in lines + [f"{name}: {reason}" for name, reason in wrong.items()])


if __name__ == "__main__":
    main()
