#!/usr/bin/python
"""Ansible module: remove paths, and the folders that are empty then."""

from __future__ import annotations

DOCUMENTATION = r"""
module: path_removal
short_description: Remove paths, and the folders that hold nothing else
description:
  - Removes O(paths) whole, then those of O(folders) in which nothing is left. What else lies in a folder
    stays and is named.
options:
  paths:
    description: Files, links or folders to remove. A link is removed, not what it names.
    type: list
    elements: path
    required: true
  folders:
    description: Folders to remove when nothing is left in them, the inner ones first.
    type: list
    elements: path
    default: []
attributes:
  check_mode:
    support: full
    description: Says what would go.
  diff_mode:
    support: full
    description: Lists what goes.
author: Smokestack
"""

EXAMPLES = r"""
- name: Take the releases off
  path_removal:
    paths: [/opt/sglang/releases, /opt/sglang/current]
    folders: [/opt/sglang]
"""

RETURN = r"""
removed:
  description: What went.
  type: list
  elements: str
  returned: success
left:
  description: What stays in O(folders).
  type: list
  elements: str
  returned: success
"""

import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

ARGUMENTS = {
    "paths": {"type": "list", "elements": "path", "required": True},
    "folders": {"type": "list", "elements": "path", "default": []},
}


def there(path: Path) -> bool:
    return path.is_symlink() or path.exists()


def leaving(paths: list[Path], folders: list[Path]) -> tuple[list[Path], list[Path]]:
    """What goes, in its order, and what stays in the folders."""
    going = [path for path in paths if there(path)]
    left = []
    for folder in folders:
        if folder.is_dir() and not folder.is_symlink():
            stays = sorted(path for path in folder.iterdir() if path not in going)
            left += stays
            if not stays:
                going.append(folder)
    return going, left


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    paths, folders = ([Path(path) for path in module.params[name]] for name in ("paths", "folders"))
    going, left = leaving(paths, folders)
    if not module.check_mode:
        try:
            for path in going:
                remove(path)
        except OSError as error:
            module.fail_json(msg=f"{error.filename} was not removed: {error.strerror}. Run again to go on")
    module.exit_json(
        changed=bool(going),
        removed=[str(path) for path in going],
        left=[str(path) for path in left],
        diff={"before": "".join(f"{path}\n" for path in going), "after": ""},
    )


if __name__ == "__main__":
    main()
