#!/usr/bin/python
"""Ansible module: keep a release whatever retention says."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_pin
short_description: Pin a release, or let it go
description:
  - A pinned release is never pruned. The pin is a file in the release's folder.
options:
  root:
    description: Folder that holds the releases.
    type: path
    default: /opt/sglang
  release:
    description: The release meant.
    type: str
    required: true
  pinned:
    description: Whether it is to be kept.
    type: bool
    default: true
attributes:
  check_mode:
    support: full
    description: Says whether the pin would change.
  diff_mode:
    support: full
    description: Shows the pin.
author: Smokestack
"""

EXAMPLES = r"""
- name: Keep the release of the last audit
  release_pin:
    release: cpu-demo.tiny-qwen3.4f2a91c07e
"""

RETURN = r"""
pinned:
  description: Whether the release is pinned afterwards.
  type: bool
  returned: success
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.releases import ReleaseError, Store

ARGUMENTS = {
    "root": {"type": "path", "default": "/opt/sglang"},
    "release": {"type": "str", "required": True},
    "pinned": {"type": "bool", "default": True},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    release, pinned = module.params["release"], module.params["pinned"]
    store = Store(Path(module.params["root"]), dry=module.check_mode)
    try:
        changed = store.pin(release, pinned)
    except (ReleaseError, OSError) as error:
        module.fail_json(msg=str(error))
    before = pinned != changed
    module.exit_json(
        changed=changed,
        pinned=pinned,
        diff={"before": f"{release} pinned: {before}\n", "after": f"{release} pinned: {pinned}\n"},
    )


if __name__ == "__main__":
    main()
