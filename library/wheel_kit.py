#!/usr/bin/python
"""Ansible module: carry a stack's wheels between wheelhouses in one archive."""

from __future__ import annotations

DOCUMENTATION = r"""
module: wheel_kit
short_description: Pack the wheels of a lock into an offline kit, or unpack one
description:
  - A kit is one tar archive. Its first member is V(manifest.json), which names the lock and every other
    member with SHA-256 and size; then come the stack's file and its lock, and the wheels.
  - A kernel wheel that was built for the stack is a member like any other, with the file beside it that
    declares it to M(kernel_wheel_kept).
  - Packing verifies each wheel first and renames the finished archive into place. Unpacking takes only what
    the manifest names, and a wheel enters the wheelhouse only when it is whole and its hash is right.
options:
  state:
    description: Whether the kit is to be there (V(packed)) or its wheels (V(unpacked)).
    type: str
    choices: [packed, unpacked]
    required: true
  kit:
    description: The archive.
    type: path
    required: true
  path:
    description: The wheelhouse.
    type: path
    required: true
  stacks:
    description: Folder of the stacks and their locks. A kit is unpacked only when its lock is the one here.
    type: path
    required: true
  lock:
    description: File name of the lock to pack.
    type: str
  stack:
    description: File name of the stack to pack.
    type: str
  wheels:
    description: Wheel file name to SHA-256, as in the lock to pack, and of a built kernel both of its files.
    type: dict
    default: {}
attributes:
  check_mode:
    support: full
    description: Says whether the kit would be written, or which wheels would come.
  diff_mode:
    support: none
    description: Wheels have no useful difference.
author: Smokestack
"""

EXAMPLES = r"""
- name: Bring the wheels of a kit into the wheelhouse
  wheel_kit:
    state: unpacked
    kit: /media/usb/cpu-demo.kit.tar
    path: /var/cache/smokestack/wheelhouse
    stacks: catalog/stacks
"""

RETURN = r"""
wheels:
  description: Names of the wheels that were packed, or that were not in the wheelhouse before.
  type: list
  elements: str
  returned: always
lock:
  description: File name of the kit's lock.
  type: str
  returned: always
kernels:
  description: The C(file), C(fingerprint) and C(stack) of each built kernel wheel of the kit, once it is in
    the wheelhouse.
  type: list
  elements: dict
  returned: always
bytes:
  description: Size of the archive.
  type: int
  returned: when the archive is there
"""

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.durable import read_json, sync_folder
from ansible.module_utils.hashed_files import BLOCK, sha256_of, unverified
from ansible.module_utils.kept_kernels import ENDING
from ansible.module_utils.progress import mib
from ansible.module_utils.wheels import SPARE, locked

FORMAT = 1
MANIFEST = "manifest.json"


class KitError(Exception):
    """A kit cannot be packed or unpacked; the message says why and what to do."""


def need_room(folder: Path, size: int) -> None:
    """Refuse a folder whose disk has not `size` bytes, and some to spare."""
    free = shutil.disk_usage(folder).free
    if size + SPARE > free:
        raise KitError(
            f"{folder} has {mib(free)} free; the kit needs {mib(size)} and {mib(SPARE)} to spare: make room"
        )


def manifest_of(house: Path, stacks: Path, stack: str, lock: str, wheels: dict[str, str]) -> dict[str, Any]:
    """What a kit of these wheels says about itself: members by path, each with SHA-256 and size."""
    files = {f"stack/{name}": stacks / name for name in (stack, lock)}
    files |= {f"wheels/{name}": house / name for name in sorted(wheels)}
    members = {
        name: {"sha256": wheels.get(path.name) or sha256_of(path), "size": path.stat().st_size}
        for name, path in files.items()
    }
    return {"format": FORMAT, "lock": lock, "members": members}


def read_manifest(archive: tarfile.TarFile, kit: Path) -> dict[str, Any]:
    """The manifest of an open archive. Raises KitError where it has none that this version reads."""
    first = archive.next()
    stream = archive.extractfile(first) if first and first.isfile() and first.name == MANIFEST else None
    if stream is None:
        raise KitError(f"{kit} is not a kit: it does not begin with {MANIFEST}")
    manifest: dict[str, Any] = json.load(stream)
    if manifest.get("format") != FORMAT:
        raise KitError(
            f"{kit} is a kit of format {manifest.get('format')}, this Smokestack reads format {FORMAT}: "
            "pack it again with the same version"
        )
    for name in wheels_in(manifest):
        if Path(name).name != name:
            raise KitError(f"{kit} is not a kit: its manifest names {name!r}, which is no file name")
    return manifest


def known_manifest(kit: Path) -> dict[str, Any] | None:
    """The manifest of a kit that is there, None where there is none or it is torn."""
    try:
        with tarfile.open(kit, "r:") as archive:
            return read_manifest(archive, kit)
    except (OSError, ValueError, KitError, tarfile.TarError):
        return None


def pack(kit: Path, house: Path, stacks: Path, manifest: dict[str, Any]) -> None:
    """Write the archive beside its place and rename it there."""
    need_room(kit.parent, sum(member["size"] for member in manifest["members"].values()))
    text = json.dumps(manifest, indent=2, sort_keys=True).encode()
    with tempfile.NamedTemporaryFile(dir=kit.parent, prefix=f".{kit.name}.", delete=False) as stream:
        beside = Path(stream.name)
        try:
            with tarfile.open(fileobj=stream, mode="w:", format=tarfile.PAX_FORMAT) as archive:
                add(archive, MANIFEST, len(text), io.BytesIO(text))
                for name, member in manifest["members"].items():
                    folder = house if name.startswith("wheels/") else stacks
                    with (folder / Path(name).name).open("rb") as source:
                        add(archive, name, member["size"], source)
            stream.flush()
            os.fsync(stream.fileno())
            beside.chmod(0o644)
            beside.replace(kit)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    sync_folder(kit.parent)


def add(archive: tarfile.TarFile, name: str, size: int, source: IO[bytes]) -> None:
    """Add a member without owner and time, so that equal content makes an equal archive."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    archive.addfile(member, source)


def check_lock(manifest: dict[str, Any], kit: Path, stacks: Path) -> None:
    """Refuse a kit of another lock than the catalogue's: only what that one names is ever installed."""
    lock = manifest["lock"]
    mine = stacks / Path(lock).name
    show = f"see the kit's with: tar --extract --to-stdout --file {kit} stack/{lock}"
    if not mine.is_file():
        raise KitError(f"{kit} is of the lock {lock}, which {stacks} does not have; {show}")
    if sha256_of(mine) != manifest["members"][f"stack/{lock}"]["sha256"]:
        raise KitError(f"{kit} is of another {lock} than {mine}: bring both to the same commit; {show}")


def wheels_in(manifest: dict[str, Any]) -> dict[str, str]:
    """Wheel file name to SHA-256 of a manifest."""
    return {
        name.removeprefix("wheels/"): member["sha256"]
        for name, member in manifest["members"].items()
        if name.startswith("wheels/")
    }


def unpack(kit: Path, house: Path, missing: set[str]) -> None:
    """Bring the missing wheels of a kit in. Raises KitError; what is whole by then stays."""
    with tarfile.open(kit, "r:") as archive, tempfile.TemporaryDirectory(dir=house, prefix=".kit.") as name:
        members = read_manifest(archive, kit)["members"]
        need_room(house, sum(members[f"wheels/{wheel}"]["size"] for wheel in missing))
        left = set(missing)
        for member in archive:
            wheel = member.name.removeprefix("wheels/")
            if wheel not in left:
                continue
            source = archive.extractfile(member)
            if source is None or copy(source, Path(name) / "wheel") != members[member.name]["sha256"]:
                raise KitError(
                    f"{kit}: {wheel} in it is not the one that its manifest names: copy the kit again"
                )
            (Path(name) / "wheel").chmod(0o644)
            (Path(name) / "wheel").replace(house / wheel)
            left.discard(wheel)
    if left:
        raise KitError(f"{kit} lacks {', '.join(sorted(left))}: copy the kit again")


def copy(source: IO[bytes], target: Path) -> str:
    """Copy a stream to a file; returns its SHA-256."""
    digest = hashlib.sha256()
    with target.open("wb") as stream:
        while block := source.read(BLOCK):
            digest.update(block)
            stream.write(block)
    return digest.hexdigest()


def packed(module: AnsibleModule, kit: Path, house: Path, stacks: Path) -> dict[str, Any]:
    """Make the kit be there; returns the module's result."""
    if not kit.parent.is_dir():
        raise KitError(f"the folder {kit.parent} is not there: make it, or mount the disk that it is on")
    wheels, lock = module.params["wheels"], module.params["lock"]
    wrong = unverified(house, wheels, remember=not module.check_mode)
    if wrong and not module.check_mode:
        name, reason = next(iter(wrong.items()))
        raise KitError(f"{len(wrong)} wheels of the lock are not in {house}, such as {name} ({reason})")
    manifest = None if wrong else manifest_of(house, stacks, module.params["stack"], lock, wheels)
    changed = manifest is None or known_manifest(kit) != manifest
    if changed and manifest and not module.check_mode:
        pack(kit, house, stacks, manifest)
    kernels = kernels_in(house, wheels)
    return {"changed": changed, "wheels": sorted(wheels), "lock": lock, "kernels": kernels}


def unpacked(module: AnsibleModule, kit: Path, house: Path, stacks: Path) -> dict[str, Any]:
    """Make the kit's wheels be in the wheelhouse; returns the module's result."""
    if not kit.is_file():
        raise KitError(f"{kit} is not there: name the kit that kit.yml packed")
    with tarfile.open(kit, "r:") as archive:
        manifest = read_manifest(archive, kit)
    check_lock(manifest, kit, stacks)
    wheels = wheels_in(manifest)
    missing = set(unverified(house, wheels, remember=not module.check_mode))
    if missing and not module.check_mode:
        unpack(kit, house, missing)
        unverified(house, wheels)
    kernels = kernels_in(house, wheels)
    return {"changed": bool(missing), "wheels": sorted(missing), "lock": manifest["lock"], "kernels": kernels}


def kernels_in(house: Path, names: Iterable[str]) -> list[dict[str, Any]]:
    """Of these files, the built kernel wheels that the wheelhouse has."""
    there = [read_json(house / name) for name in sorted(names) if name.endswith(ENDING)]
    return [{key: record[key] for key in ("file", "fingerprint", "stack")} for record in there if record]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["packed", "unpacked"], "required": True},
            "kit": {"type": "path", "required": True},
            "path": {"type": "path", "required": True},
            "stacks": {"type": "path", "required": True},
            "lock": {"type": "str"},
            "stack": {"type": "str"},
            "wheels": {"type": "dict", "default": {}},
        },
        required_if=[("state", "packed", ["lock", "stack"])],
        supports_check_mode=True,
    )
    kit, house, stacks = (Path(module.params[key]) for key in ("kit", "path", "stacks"))
    work = packed if module.params["state"] == "packed" else unpacked
    try:
        if module.check_mode:
            result = work(module, kit, house, stacks)
        else:
            house.mkdir(parents=True, exist_ok=True)
            with locked(house):
                result = work(module, kit, house, stacks)
    except KitError as error:
        module.fail_json(msg=str(error))
    except (OSError, ValueError, KeyError, tarfile.TarError) as error:
        module.fail_json(
            msg=f"{kit} cannot be read or written whole: {error}. What is whole is kept; run again"
        )
    size = {"bytes": kit.stat().st_size} if kit.is_file() else {}
    module.exit_json(**result, **size)


if __name__ == "__main__":
    main()
