#!/usr/bin/python
"""Ansible module: which releases a node has, and what is known of them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_list
short_description: List the releases of a node
description:
  - Reads the manifests, the verdicts and the links below O(root). Changes nothing.
options:
  root:
    description: Folder that holds the releases.
    type: path
    default: /opt/sglang
  measure:
    description: Whether to measure what they take on disk, which reads every file's status.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: Read-only.
  diff_mode:
    support: none
    description: Read-only.
author: Smokestack
"""

EXAMPLES = r"""
- name: List the releases
  release_list:
    measure: true
"""

RETURN = r"""
releases:
  description:
    - For each release V(name), V(made), V(stack), V(profile), V(model), V(lock_id), V(locked) (whether the
      stack had a lock of the catalogue; null where an old manifest does not say), V(venv), V(current),
      V(previous), V(trial), V(running), V(pinned), V(proved), V(verdict), V(summary), V(finished),
      V(not_serving) and V(safe) (whether retention leaves it alone), the newest first.
    - With O(measure) also V(venv_bytes) and V(model_bytes), which several releases may share.
  type: list
  elements: dict
  returned: always
disk:
  description:
    - V(bytes) that everything below O(root) takes, V(free) on that file system, and V(unused_models), which
      no release names (name to bytes).
  type: dict
  returned: with O(measure)
"""

import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.disk import disk_bytes
from ansible.module_utils.releases import Store

ARGUMENTS = {
    "root": {"type": "path", "default": "/opt/sglang"},
    "measure": {"type": "bool", "default": False},
}


def nearest(folder: Path) -> Path:
    """The folder itself, or the nearest parent that exists."""
    while not folder.exists():
        folder = folder.parent
    return folder


def measured(root: Path, releases: list[dict]) -> dict:
    """Add to each release what its environment and its model take; returns what all takes together."""
    sizes: dict[Path, int] = {}

    def size(folder: Path) -> int:
        if folder not in sizes:
            sizes[folder] = disk_bytes(folder)
        return sizes[folder]

    for release in releases:
        release["venv_bytes"] = size(root / "venvs" / release["venv"]) if release["venv"] else 0
        release["model_bytes"] = size(root / "models" / release["model"]) if release["model"] else 0
    used = {release["model"] for release in releases}
    models = (root / "models").glob("[!.]*")
    return {
        "bytes": disk_bytes(root),
        "free": shutil.disk_usage(nearest(root)).free,
        "unused_models": {path.name: size(path) for path in sorted(models) if path.name not in used},
    }


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    root = Path(module.params["root"])
    store = Store(root)
    releases = [store.describe(name) for name in store.names()]
    releases.sort(key=lambda release: (release["made"] or "", release["name"]), reverse=True)
    disk = {"disk": measured(root, releases)} if module.params["measure"] else {}
    module.exit_json(changed=False, releases=releases, **disk)


if __name__ == "__main__":
    main()
