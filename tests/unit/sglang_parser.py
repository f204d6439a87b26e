"""The options that SGLang's own parser takes, asked of an SGLang that is installed.

As a program, it writes tests/data/sglang_options: python tests/unit/sglang_parser.py PYTHON...
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "data" / "sglang_options"
PROGRAM = """
import argparse, json, sglang
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
options = {
    name: sorted(map(str, action.choices)) if action.choices else None
    for action in parser._actions for name in action.option_strings if name.startswith("--")
}
print(json.dumps({"version": sglang.__version__, "options": options}))
"""


def ask_parser(python: str) -> tuple[str, dict[str, Any]]:
    """The version of SGLang that an interpreter has, and its options: name with underscores to its values."""
    done = subprocess.run(
        [python, "-B", "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=300
    )
    told = json.loads(done.stdout.splitlines()[-1])
    options = {name.removeprefix("--").replace("-", "_"): values for name, values in told["options"].items()}
    return told["version"], options


def main() -> None:
    for python in sys.argv[1:]:
        version, options = ask_parser(python)
        lines = [f"{json.dumps(name)}: {json.dumps(values)}" for name, values in sorted(options.items())]
        (FOLDER / f"{version}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
