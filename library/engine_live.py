#!/usr/bin/python
"""Ansible module: does a running server have the arguments that it was asked to run with?"""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_live
short_description: Compare a running SGLang's arguments with those that were asked for
description:
  - Reads C(/server_info), where a server tells its arguments as it resolved them, and fails when one is not
    as asked. A backend that was replaced at start, or a unit that starts something else, shows here.
  - Only the arguments in O(asked) are returned or shown; C(/server_info) holds keys as well.
options:
  url:
    description: Base URL of the server.
    type: str
    required: true
  asked:
    description: Field to value, as M(engine_arguments) returns them.
    type: dict
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
- name: Compare what runs with what was asked for
  engine_live:
    url: http://127.0.0.1:30000
    asked: {attention_backend: triton, tp_size: 2}
"""

RETURN = r"""
differences:
  description: What is not as asked, each with C(name), C(asked) and C(live).
  type: list
  elements: dict
  returned: success or failure
unseen:
  description: Names that the server tells nothing of.
  type: list
  elements: str
  returned: success or failure
"""

import http.client
import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.loopback import ask_directly

TIMEOUT = 30.0  # the scheduler answers it between two steps


def read_info(url: str) -> dict[str, Any]:
    """What `/server_info` tells. Raises OSError or ValueError in a sentence."""
    try:
        with ask_directly(f"{url}/server_info", TIMEOUT) as reply:
            info = json.load(reply)
    except http.client.HTTPException as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
    if not isinstance(info, dict):
        raise ValueError(f"wanted a JSON object, got {type(info).__name__}")
    return info


def compare(asked: dict[str, Any], live: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """What differs, as {name, asked, live}, and the names that `live` has not."""
    differences = [
        {"name": name, "asked": value, "live": live[name]}
        for name, value in sorted(asked.items())
        if name in live and live[name] != value
    ]
    return differences, sorted(asked.keys() - live.keys())


def main() -> None:
    module = AnsibleModule(
        argument_spec={"url": {"type": "str", "required": True}, "asked": {"type": "dict", "required": True}},
        supports_check_mode=True,
    )
    url, asked = module.params["url"], module.params["asked"]
    try:
        live = read_info(url)
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"{url}/server_info could not be read: {error}", differences=[], unseen=[])
    differences, unseen = compare(asked, live)
    if differences:
        told = "; ".join("{name} is {live!r}, asked was {asked!r}".format(**one) for one in differences)
        module.fail_json(
            msg=f"the server does not run with the arguments of its release: {told}",
            differences=differences,
            unseen=unseen,
        )
    module.exit_json(changed=False, differences=[], unseen=unseen)


if __name__ == "__main__":
    main()
