#!/usr/bin/python
"""Ansible module: bring wheels into the wheelhouse, by hash."""

from __future__ import annotations

DOCUMENTATION = r"""
module: wheel_fetch
short_description: Download wheels by SHA-256 into the wheelhouse
description:
  - Runs C(pip download --no-deps --require-hashes), several at a time. A wheel enters the wheelhouse under
    its name only when it is whole and its hash is right, so an interrupted run goes on where it stopped.
options:
  path:
    description: The wheelhouse.
    type: path
    required: true
  wheels:
    description: The lock's wheels, each with the keys name, version, file, sha256, size and index (null for
      PyPI).
    type: list
    elements: dict
    required: true
  indexes:
    description: Index name to URL.
    type: dict
    default: {}
  abi:
    description: The Python ABI of the node, such as V(cp311).
    type: str
    required: true
  platform:
    description: The node's platform, such as V(linux_x86_64).
    type: str
    required: true
  places:
    description: Where the stack pins a package, for what is said when a version is gone. Package to V(where)
      and V(line), as the filter P(stack_places#filter) gives them.
    type: dict
    default: {}
  progress_file:
    description: Where to write progress.
    type: path
attributes:
  check_mode:
    support: full
    description: Downloads nothing.
  diff_mode:
    support: none
    description: Wheels have no useful difference.
author: Smokestack
"""

EXAMPLES = r"""
- name: Download the missing wheels
  wheel_fetch:
    path: /var/cache/smokestack/wheelhouse
    wheels: "{{ lock.wheels }}"
    abi: cp311
    platform: linux_x86_64
"""

RETURN = r"""
fetched:
  description: Names of the wheels that were downloaded.
  type: list
  elements: str
  returned: always
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hashed_files import unverified
from ansible.module_utils.progress import Progress
from ansible.module_utils.wheels import FetchError, Source, fetch, locked

ARGUMENTS = {
    "path": {"type": "path", "required": True},
    "wheels": {"type": "list", "elements": "dict", "required": True},
    "indexes": {"type": "dict", "default": {}},
    "abi": {"type": "str", "required": True},
    "platform": {"type": "str", "required": True},
    "places": {"type": "dict", "default": {}},
    "progress_file": {"type": "path"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    house = Path(module.params["path"])
    wanted = {item["file"]: item["sha256"] for item in module.params["wheels"]}
    if module.check_mode:
        missing = unverified(house, wanted, remember=False)
        module.exit_json(changed=bool(missing), fetched=[])
    house.mkdir(parents=True, exist_ok=True)
    with locked(house):
        wrong = unverified(house, wanted)
        missing = [item for item in module.params["wheels"] if item["file"] in wrong]
        if missing:
            try:
                source = Source(*(module.params[key] for key in ("indexes", "abi", "platform", "places")))
                fetch(house, missing, source, Progress(module.params["progress_file"]))
            except (FetchError, OSError) as error:
                module.fail_json(msg=f"{error}. What was downloaded whole is kept; run again to go on")
            unverified(house, wanted)
    module.exit_json(changed=bool(missing), fetched=[item["file"] for item in missing])


if __name__ == "__main__":
    main()
