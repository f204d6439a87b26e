"""A play on this machine, as the tests of roles run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def run_play(
    folder: Path, play: str, variables: Mapping[str, Any], *options: str
) -> subprocess.CompletedProcess[str]:
    """Run a play's text from `folder`, where it and its variables are written.

    Ansible is that beside this interpreter, with the project's settings; modules run with this interpreter.
    """
    (folder / "play.yml").write_text(play)
    (folder / "variables.json").write_text(json.dumps(variables))
    argv = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,"]
    argv += ["-e", f"@{folder}/variables.json", "-e", f"ansible_python_interpreter={sys.executable}"]
    plain = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "COLUMNS": "999"}
    return subprocess.run(
        [*argv, *options, f"{folder}/play.yml"],
        env=os.environ | plain,
        capture_output=True,
        text=True,
        check=False,
    )
