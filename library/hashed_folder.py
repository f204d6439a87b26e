#!/usr/bin/python
"""Ansible module: check a folder's files by hash, and give it its final name once all are there."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hashed_folder
short_description: Check files by SHA-256 and seal a folder
description:
  - Says which of the named files are missing or differ, so that only those are sent.
  - With O(seal_as) the folder gets its final name in one step once every file is right; half of it is never
    seen there.
options:
  path:
    description: Folder that holds the files. It need not exist.
    type: path
    required: true
  files:
    description: File name to SHA-256.
    type: dict
    required: true
  seal_as:
    description: Final folder. When it exists and its files are right, there is nothing to do and RV(missing)
      is empty.
    type: path
  complete:
    description: Fail when a file is missing or differs, instead of listing it.
    type: bool
    default: false
  progress_file:
    description: Where to write progress.
    type: path
attributes:
  check_mode:
    support: full
    description: Says which files are missing; reports a change when there are any.
  diff_mode:
    support: none
    description: Large files have no useful difference.
author: Smokestack
"""

EXAMPLES = r"""
- name: Ask which wheels are missing
  hashed_folder:
    path: /opt/sglang/wheelhouse
    files:
      uv-0.9.5-py3-none-manylinux_2_28_x86_64.whl: 3c1d...
"""

RETURN = r"""
missing:
  description: Names of the files that are missing or differ, sorted.
  type: list
  elements: str
  returned: always
reasons:
  description: Name to what is wrong with it.
  type: dict
  returned: always
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.durable import sync_folder
from ansible.module_utils.hashed_files import unverified
from ansible.module_utils.progress import Progress

ARGUMENTS = {
    "path": {"type": "path", "required": True},
    "files": {"type": "dict", "required": True},
    "seal_as": {"type": "path"},
    "complete": {"type": "bool", "default": False},
    "progress_file": {"type": "path"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    folder, files = Path(module.params["path"]), module.params["files"]
    final = Path(module.params["seal_as"]) if module.params["seal_as"] else None
    remember = not module.check_mode
    progress = Progress(None if module.check_mode else module.params["progress_file"])

    def watch(number: int, name: str) -> None:
        progress.say(number, len(files), f"file {number + 1} of {len(files)}: hashing {name}")

    if final and final.is_dir():
        wrong = unverified(final, files, remember)
        if wrong:
            name, reason = min(wrong.items())
            module.fail_json(
                msg=f"{final / name}: {reason}. A sealed folder is never mended in place: "
                f"remove {final} and run again"
            )
        module.exit_json(changed=False, missing=[], reasons={})
    wrong = unverified(folder, files, remember, watch)
    if wrong and module.params["complete"]:
        name, reason = min(wrong.items())
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        module.fail_json(
            msg=f"{folder / name}: {reason}{more}. Nothing was installed from it; run again to send it anew"
        )
    if final and not wrong and not module.check_mode:
        folder.rename(final)
        sync_folder(final.parent)
    sealed = final is not None and not wrong
    module.exit_json(
        changed=sealed or (module.check_mode and bool(wrong)), missing=sorted(wrong), reasons=wrong
    )


if __name__ == "__main__":
    main()
