#!/usr/bin/python
"""Ansible module: let SGLang's own parser read launch arguments."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_arguments
short_description: Read launch arguments as the installed SGLang reads them
description:
  - Starts nothing. Fails with the parser's own sentence when this SGLang does not take an argument, for an
    option that it has not, or a value that is none of its choices.
options:
  python:
    description: The interpreter of an environment that has SGLang.
    type: path
    required: true
  arguments:
    description: The arguments of C(sglang.launch_server).
    type: list
    elements: str
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
- name: Parse the launch arguments
  engine_arguments:
    python: /opt/sglang/current/venv/bin/python
    arguments: [--model-path, /opt/sglang/models/tiny, --tp, "2"]
"""

RETURN = r"""
asked:
  description:
    - The arguments that were given, by the names that the server itself calls them by (C(tp_size) for
      C(--tp)), with the values that it reads them as. M(engine_live) compares them with those of a running
      server.
  type: dict
  returned: success
"""

import inspect
import json

from ansible.module_utils import engine_parser
from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "arguments": {"type": "list", "elements": "str", "required": True},
            "python": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    python = module.params["python"]
    program = inspect.getsource(engine_parser)
    rc, out, said = module.run_command([python, "-B", "-", *module.params["arguments"]], data=program)
    if rc != 0:
        reason = (said.strip().splitlines() or [f"{python} ended with {rc}"])[-1]
        module.fail_json(msg=f"this SGLang does not take the launch arguments: {reason}")
    module.exit_json(changed=False, asked=json.loads(out.splitlines()[-1]))


if __name__ == "__main__":
    main()
