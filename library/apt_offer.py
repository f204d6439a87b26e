#!/usr/bin/python
"""Ansible module: whether a repository of the host offers a package."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_offer
short_description: Ask APT for a package's installed version and for the one it would install
description:
  - Reads APT's lists as they are on the disk. Changes nothing and reaches no network.
options:
  name:
    description: The package.
    type: str
    required: true
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
- name: See who offers the toolkit
  apt_offer:
    name: cuda-toolkit-12-9
"""

RETURN = r"""
installed:
  description: The installed version, null when it is not installed.
  type: str
  returned: always
candidate:
  description: The version that would be installed, null when no repository offers the package.
  type: str
  returned: always
"""

import re

from ansible.module_utils.basic import AnsibleModule


def version_of(key: str, policy: str) -> str | None:
    """A version in what `apt-cache policy` prints; it is silent about an unknown package."""
    match = re.search(rf"^  {key}: (\S+)$", policy, re.MULTILINE)
    return match[1] if match and match[1] != "(none)" else None


def main() -> None:
    module = AnsibleModule(
        argument_spec={"name": {"type": "str", "required": True}}, supports_check_mode=True
    )
    apt = module.get_bin_path("apt-cache", required=True)
    _status, policy, _err = module.run_command(
        [apt, "policy", module.params["name"]], environ_update={"LC_ALL": "C"}, check_rc=True
    )
    module.exit_json(
        changed=False, installed=version_of("Installed", policy), candidate=version_of("Candidate", policy)
    )


if __name__ == "__main__":
    main()
