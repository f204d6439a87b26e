"""The newest ansible-core that is supported reads the playbooks as the oldest one does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from integration.harness import REPO, Node, Playbooks

NEWEST = "2.21."


def newer_python() -> str | None:
    """A Python that the newest ansible-core runs on."""
    names = ("python3.12", "python3.13", "python3.14")
    installed = [
        str(path) for path in Path.home().glob(".pyenv/versions/*/bin/python3.??") if path.name in names
    ]
    for name in [*names, *installed]:
        test = [name, "-c", "import sys; print(sys.executable)"]
        try:
            return subprocess.run(test, check=True, capture_output=True, text=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            continue
    return None


@pytest.fixture(scope="module")
def newest_core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the newest ansible-core."""
    python = newer_python()
    if not python:
        pytest.skip(f"ansible-core {NEWEST} needs Python 3.12 or newer, which this machine does not have")
    venv = tmp_path_factory.mktemp("newest") / "venv"
    uv = [str(Path(sys.executable).with_name("uv"))]
    subprocess.run([*uv, "venv", "--quiet", "--python", python, str(venv)], check=True)
    locked = ["--require-hashes", "--requirements", str(REPO / "requirements.txt")]
    subprocess.run(
        [*uv, "pip", "install", "--quiet", *locked, "--python", str(venv / "bin/python")], check=True
    )
    return venv / "bin"


@pytest.mark.full
def test_check_mode_on_the_newest_core_finds_nothing_to_do(
    newest_core: Path, deployed: Node, playbooks: Playbooks
) -> None:
    version = subprocess.run(
        [newest_core / "ansible", "--version"], check=True, capture_output=True, text=True
    )
    assert f"[core {NEWEST}" in version.stdout
    release = deployed.linked("current")
    run = playbooks.run("site.yml", "--check", environment={"PATH": f"{newest_core}:{os.environ['PATH']}"})
    assert run.rc == 0, run.failures
    assert run.changed == {}
    assert deployed.linked("current") == release
