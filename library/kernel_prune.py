#!/usr/bin/python
"""Ansible module: take away what older kernel builds left on the builder."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_prune
short_description: Remove older kernel wheels, and what older builds left
description:
  - Of the kernel wheels that were built for O(stack) the newest O(keep) stay, and that of O(fingerprint). A
    node keeps the wheels of its releases itself, so a rollback needs none of these.
  - Of sources, environments of builds and what unfinished builds compiled, the newest O(keep) of each stay,
    and those in O(using); of logs those of the wheels that stay, and the newest O(keep) others.
  - Nothing is removed while a build works there.
options:
  path:
    description: Folder of all builds on this host.
    type: path
    required: true
  house:
    description: The wheelhouse.
    type: path
    required: true
  stack:
    description: The stack whose older wheels go.
    type: str
    required: true
  fingerprint:
    description: The wheel that stays whatever its age.
    type: str
    required: true
  using:
    description: Folders that stay whatever their age.
    type: list
    elements: path
    default: []
  keep:
    description: How many of each kind stay, at least one.
    type: int
    default: 3
attributes:
  check_mode:
    support: full
    description: Says what would go.
  diff_mode:
    support: none
    description: RV(removed) names what goes.
author: Smokestack
"""

EXAMPLES = r"""
- name: Keep the three newest kernels
  kernel_prune:
    path: /var/cache/smokestack/kernel
    house: /var/cache/smokestack/wheelhouse
    stack: nightly-2026-03-07
    fingerprint: 0f3b8ac41d22
"""

RETURN = r"""
removed:
  description: Paths that went.
  type: list
  elements: str
  returned: success
busy:
  description: The build that works there, for which nothing was removed; null where none does.
  type: str
  returned: success
"""

import shutil
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.builder import BuildError, alone
from ansible.module_utils.kept_kernels import drop, records
from ansible.module_utils.wheels import locked

ARGUMENTS = {
    "path": {"type": "path", "required": True},
    "house": {"type": "path", "required": True},
    "stack": {"type": "str", "required": True},
    "fingerprint": {"type": "str", "required": True},
    "using": {"type": "list", "elements": "path", "default": []},
    "keep": {"type": "int", "default": 3},
}
KINDS = ("sources", "venvs", "builds")


def old_wheels(house: Path, wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """What is kept beside the wheels of the stack that go."""
    of_stack = [record for record in records(house) if record["stack"] == wanted["stack"]]
    return [item for item in of_stack[: -wanted["keep"]] if item["fingerprint"] != wanted["fingerprint"]]


def older(paths: list[Path], keep: int, stay: set[Path]) -> list[Path]:
    """All but the `keep` that were changed last, and but those that stay."""
    by_age = sorted(paths, key=lambda path: path.lstat().st_mtime_ns)
    return [path for path in by_age[:-keep] if path not in stay]


def old_paths(folder: Path, house: Path, wanted: dict[str, Any], gone: list[dict[str, Any]]) -> list[Path]:
    """What earlier builds left and goes. `gone` are the wheels that go."""
    stay = {Path(path) for path in wanted["using"]}
    left = []
    for kind in KINDS:
        there = [path for path in folder.glob(f"{kind}/*") if path.is_dir() and not path.name.startswith(".")]
        left += older(there, wanted["keep"], stay)
    logs = {Path(str(record["build"]["log"])) for record in records(house) if record not in gone}
    return left + older(
        [path for path in folder.glob("logs/*.log") if path not in logs], wanted["keep"], stay
    )


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    wanted = module.params
    folder, house = Path(wanted["path"]), Path(wanted["house"])
    if wanted["keep"] < 1:
        module.fail_json(msg=f"keep must be at least 1, not {wanted['keep']}")
    removed: list[str] = []
    try:
        with alone(folder, "", "the removal of older builds"), locked(house):
            gone = old_wheels(house, wanted)
            left = old_paths(folder, house, wanted, gone)
            removed = [f"{house}/{record['file']}" for record in gone] + [str(path) for path in left]
            if not module.check_mode:
                remove(house, gone, left)
    except BuildError as error:
        module.exit_json(changed=False, removed=[], busy=str(error))
    except OSError as error:
        module.fail_json(msg=f"what older builds left was not removed whole: {error}; run again")
    module.exit_json(changed=bool(removed), removed=removed, busy=None)


def remove(house: Path, gone: list[dict[str, Any]], left: list[Path]) -> None:
    """Take wheels and paths away; a folder is renamed first, so that none is found half-removed."""
    for record in gone:
        drop(house, record)
    for path in left:
        if path.is_dir():
            doomed = path.with_name(f".{path.name}.removed")
            shutil.rmtree(doomed, ignore_errors=True)
            path.rename(doomed)
            shutil.rmtree(doomed)
        else:
            path.unlink()


if __name__ == "__main__":
    main()
