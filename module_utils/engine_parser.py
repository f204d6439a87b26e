"""SGLang's own parser of launch arguments, read without starting anything.

A program as well: `engine_arguments` hands its text to the interpreter of an environment that has SGLang. A
module cannot import SGLang itself: in a module's process ansible-core 2.19 replaces `sys.intern` by an object
that torch 2.13 takes for no function, and its import fails.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from typing import Any, NoReturn


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


def main(arguments: list[str]) -> int:
    """Print what was asked for as JSON, as the last line; return 1 with the parser's sentence on stderr."""
    server_args = importlib.import_module("sglang.srt.server_args").ServerArgs
    # A dataclass in 0.5.9, a msgspec struct in 0.5.23.
    fields = getattr(server_args, "__dataclass_fields__", None) or server_args.__struct_fields__
    parser = Parser()
    server_args.add_cli_args(parser)
    try:
        asked = given(parser, arguments, set(fields))
    except (ValueError, argparse.ArgumentError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(asked))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
