#!/usr/bin/python
"""Ansible module: let SGLang's own parser read launch arguments."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_arguments
short_description: Read launch arguments as the installed SGLang reads them
description:
  - Starts nothing. Fails with the parser's own sentence when this SGLang does not take an argument, for an
    option that it has not, or a value that is none of its choices.
  - Runs with the interpreter of an environment that has SGLang.
options:
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
    arguments: [--model-path, /opt/sglang/models/tiny, --tp, "2"]
  vars:
    ansible_python_interpreter: /opt/sglang/current/venv/bin/python
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

import argparse
import importlib
from typing import Any, NoReturn

from ansible.module_utils.basic import AnsibleModule


class Parser(argparse.ArgumentParser):
    """Raises what is wrong, instead of printing the whole usage and ending."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def names_of(action: argparse.Action) -> list[str]:
    """What an option may be called by the server: its destination first, then its spellings."""
    return [action.dest, *(option.lstrip("-").replace("-", "_") for option in action.option_strings)]


def given(parser: argparse.ArgumentParser, arguments: list[str], fields: set[str]) -> dict[str, Any]:
    """The options among `arguments` by the field of the server's arguments that each one sets.

    An option that is no field of them (an old spelling, a file of options) is not among the result.
    """
    for action in parser._actions:  # there is no public list
        action.default = argparse.SUPPRESS  # so that only what was asked for is left
    values = vars(parser.parse_args(arguments))
    asked = {}
    for action in parser._actions:
        field = next((name for name in names_of(action) if name in fields), None)
        if action.dest in values and field:
            asked[field] = values[action.dest]
    return asked


def main() -> None:
    module = AnsibleModule(
        argument_spec={"arguments": {"type": "list", "elements": "str", "required": True}},
        supports_check_mode=True,
    )
    try:
        server_args = importlib.import_module("sglang.srt.server_args").ServerArgs
    except ImportError as error:
        module.fail_json(msg=f"this interpreter has no SGLang that can be imported: {error}")
    # A dataclass in 0.5.9, a msgspec struct in 0.5.23.
    fields = getattr(server_args, "__dataclass_fields__", None) or server_args.__struct_fields__
    parser = Parser()
    server_args.add_cli_args(parser)
    try:
        asked = given(parser, module.params["arguments"], set(fields))
    except (ValueError, argparse.ArgumentError) as error:
        module.fail_json(msg=f"this SGLang does not take the launch arguments: {error}")
    module.exit_json(changed=False, asked=asked)


if __name__ == "__main__":
    main()
