#!/usr/bin/python
"""Ansible module: build a wheel from a folder of the project, once per content."""

from __future__ import annotations

DOCUMENTATION = r"""
module: local_wheel
short_description: Build a small pure-Python wheel of the project
description:
  - Builds the wheel of a source folder with the build backend that the controller already has, offline.
  - A sidecar beside the wheel names the source's hash, so that an unchanged source is not built again.
options:
  source:
    description: Folder with a pyproject.toml.
    type: path
    required: true
  path:
    description: The wheelhouse.
    type: path
    required: true
attributes:
  check_mode:
    support: full
    description: Builds in a temporary folder to learn the hash, and leaves nothing.
  diff_mode:
    support: none
    description: A wheel has no useful difference.
author: Smokestack
"""

EXAMPLES = r"""
- name: Build the CPU stand-in
  local_wheel:
    source: packaging/cpu_stand_in
    path: /var/cache/smokestack/wheelhouse
"""

RETURN = r"""
file:
  description: The wheel's file name.
  type: str
  returned: always
sha256:
  description: Its SHA-256.
  type: str
  returned: always
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.durable import read_json, write_json
from ansible.module_utils.hashed_files import sha256_of

LAST_LINES = 15


def source_files(source: Path) -> list[Path]:
    """The files that go into the wheel; caches are not among them."""
    return sorted(path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def tree_sha256(source: Path) -> str:
    """One hash over names and contents."""
    digest = hashlib.sha256()
    for path in source_files(source):
        digest.update(f"{path.relative_to(source)} {sha256_of(path)}\n".encode())
    return digest.hexdigest()


def build(source: Path, folder: Path) -> Path:
    """Build the wheel of a copy of `source` (build tools write beside it) into `folder`."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "source"
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        argv = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        argv += ["--no-index", "--no-cache-dir", "--disable-pip-version-check"]
        argv += ["--wheel-dir", str(folder), str(copy)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join(done.stderr.splitlines()[-LAST_LINES:])
        raise RuntimeError(f"the wheel of {source} was not built:\n{tail}")
    return next(folder.glob("*.whl"))


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "source": {"type": "path", "required": True},
            "path": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    source, house = Path(module.params["source"]), Path(module.params["path"])
    if not (source / "pyproject.toml").is_file():
        module.fail_json(msg=f"{source}: no pyproject.toml in it, so it is not a source of a wheel")
    tree = tree_sha256(source)
    sidecar = house / f"{source.name}.source.json"
    known = read_json(sidecar)
    if (
        known
        and known["source"] == tree
        and (house / known["file"]).is_file()
        and sha256_of(house / known["file"]) == known["sha256"]
    ):
        module.exit_json(changed=False, file=known["file"], sha256=known["sha256"])
    try:
        with tempfile.TemporaryDirectory() as name:
            wheel = build(source, Path(name))
            result = {"file": wheel.name, "sha256": sha256_of(wheel)}
            if not module.check_mode:
                house.mkdir(parents=True, exist_ok=True)
                shutil.copy(wheel, house / f".{wheel.name}")
                (house / f".{wheel.name}").replace(house / wheel.name)
                write_json(sidecar, {"source": tree, **result})
    except RuntimeError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=True, **result)


if __name__ == "__main__":
    main()
