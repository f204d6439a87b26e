#!/usr/bin/python
"""Ansible module: what wheels ask for, read from their own metadata."""

from __future__ import annotations

DOCUMENTATION = r"""
module: wheel_needs
short_description: Read what wheels ask for
description:
  - Reads the C(Requires-Dist) lines from the metadata inside wheels. Nothing is installed or changed.
options:
  path:
    description: The wheelhouse.
    type: path
    required: true
  files:
    description: Wheel file names. One that is not in the wheelhouse is left out of the answer.
    type: list
    elements: str
    required: true
attributes:
  check_mode:
    support: full
    description: Only reads.
  diff_mode:
    support: none
    description: Nothing is changed.
author: Smokestack
"""

EXAMPLES = r"""
- name: Read what SGLang asks for
  wheel_needs:
    path: /var/cache/smokestack/wheelhouse
    files: [sglang-0.5.9-py3-none-any.whl]
"""

RETURN = r"""
needs:
  description: Normalised package name to its C(Requires-Dist) lines, those of extras left out.
  type: dict
  returned: always
"""

import re
import zipfile
from email.parser import HeaderParser
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule


def wheel_needs(wheel: Path) -> tuple[str, list[str]]:
    """A wheel's package name and its Requires-Dist lines, those of extras left out. Raises ValueError."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next(
                name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)
            )
            metadata = HeaderParser().parsestr(archive.read(member).decode())
    except (StopIteration, zipfile.BadZipFile) as error:
        raise ValueError(f"{wheel} is not a whole wheel: no METADATA can be read from it") from error
    lines = [line for line in metadata.get_all("Requires-Dist", []) if not re.search(r"\bextra\s*==", line)]
    return re.sub(r"[-_.]+", "-", metadata["Name"]).lower(), lines


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "files": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    house = Path(module.params["path"])
    try:
        needs = dict(wheel_needs(house / name) for name in module.params["files"] if (house / name).is_file())
    except ValueError as error:
        module.fail_json(msg=f"{error}; remove the file and run again")
    module.exit_json(changed=False, needs=needs)


if __name__ == "__main__":
    main()
