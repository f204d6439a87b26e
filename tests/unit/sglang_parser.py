"""What SGLang's own parser takes, asked of an SGLang that is installed: its options, and whole command lines.

As a program, it writes tests/data/sglang_options: python tests/unit/sglang_parser.py PYTHON...
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPO = Path(__file__).parents[2]
FOLDER = REPO / "tests" / "data" / "sglang_options"
PROGRAM = """
import argparse, json, sys, sglang
from sglang.srt.server_args import ServerArgs

class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise ValueError(message)

parser = Parser()
ServerArgs.add_cli_args(parser)
options = {
    name: sorted(map(str, action.choices)) if action.choices else None
    for action in parser._actions for name in action.option_strings if name.startswith("--")
}
refused = {}
for name, words in json.loads(sys.argv[1]).items():
    try:
        parser.parse_args(words)
    except ValueError as error:
        refused[name] = str(error)
print(json.dumps({"version": sglang.__version__, "options": options, "refused": refused}))
"""


def question(python: str, commands: Mapping[str, list[str]]) -> list[str]:
    """The command that asks the SGLang of an interpreter; `commands` are command lines by name."""
    return [python, "-B", "-c", PROGRAM, json.dumps(commands)]


def read_answer(text: str) -> dict[str, Any]:
    """{version, options, refused}: options by their names with underscores, why a command line is refused."""
    told: dict[str, Any] = json.loads(text.splitlines()[-1])
    names = {name.removeprefix("--").replace("-", "_"): values for name, values in told["options"].items()}
    return told | {"options": names}


def ask_parser(python: str) -> tuple[str, dict[str, Any]]:
    """The version of SGLang that an interpreter has, and its options: name with underscores to its values."""
    done = subprocess.run(question(python, {}), capture_output=True, text=True, check=True, timeout=300)
    told = read_answer(done.stdout)
    return told["version"], told["options"]


def main() -> None:
    for python in sys.argv[1:]:
        version, options = ask_parser(python)
        lines = [f"{json.dumps(name)}: {json.dumps(values)}" for name, values in sorted(options.items())]
        (FOLDER / f"{version}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
