"""Before each start the unit looks whether the server's port and GPUs are free."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "roles/sglang_server/files/before_start.py"


@pytest.fixture
def port() -> int:
    """A port that is free."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
def impatient(tmp_path: Path) -> Path:
    """The program, which gives what was killed no time to leave."""
    program = tmp_path / "before_start.py"
    text = PROGRAM.read_text()
    assert "LEAVE = 15.0" in text
    program.write_text(
        text.replace("LEAVE = 15.0", "LEAVE = 0.0").replace("DRIVER_TIMEOUT = 30.0", "DRIVER_TIMEOUT = 0.5")
    )
    return program


def look(
    program: Path, port: int, *options: str, smi: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run it with a stand-in for nvidia-smi, a shell script; without one there is none."""
    folder = program.parent / "bin"
    folder.mkdir(exist_ok=True)
    if smi is not None:
        (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{smi}\n")
        (folder / "nvidia-smi").chmod(0o755)
    path = f"{folder}:/usr/bin:/bin" if smi is not None else str(folder)
    argv = [sys.executable, str(program), "--port", str(port), *options]
    return subprocess.run(
        argv, env={**os.environ, "PATH": path, **environment}, capture_output=True, text=True, check=False
    )


def test_a_free_port_is_no_reason_to_wait(port: int) -> None:
    assert look(PROGRAM, port).returncode == 0


def test_a_port_that_another_process_has_is_named(impatient: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        done = look(impatient, taken)
    assert done.returncode == 1
    assert done.stderr.startswith(f"not started: port {taken} is taken by another process")


def test_a_port_on_all_addresses_is_taken_as_well(impatient: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        assert look(impatient, listener.getsockname()[1]).returncode == 1


@pytest.mark.parametrize(
    ("smi", "words"),
    [
        pytest.param(
            "echo '4242, /usr/bin/python3, 90210'; echo '4343, a, b, 512'",
            ["PID 4242 (/usr/bin/python3) 90210 MiB", "PID 4343 (a, b) 512 MiB"],
            id="memory held",
        ),
        pytest.param("echo 'No devices were found'; exit 6", ["does not answer: No devices"], id="no GPU"),
        pytest.param("exit 9", ["nvidia-smi ended with 9"], id="fails without a word"),
        pytest.param("sleep 5", ["did not answer nvidia-smi within"], id="hangs"),
        pytest.param(None, ["there is no nvidia-smi"], id="no nvidia-smi"),
    ],
)
def test_gpus_that_cannot_be_used_are_told(
    impatient: Path, port: int, smi: str | None, words: list[str]
) -> None:
    done = look(impatient, port, "--gpus", smi=smi)
    assert done.returncode == 1
    assert [word for word in words if word not in done.stderr] == []


def test_free_gpus_are_no_reason_to_wait(impatient: Path, port: int) -> None:
    assert look(impatient, port, "--gpus", smi="exit 0").returncode == 0


def test_only_the_servers_own_gpus_are_looked_at(impatient: Path, port: int) -> None:
    smi = """case "$*" in *--id=2,3*) ;; *) echo '1, other, 5' ;; esac"""
    assert look(impatient, port, "--gpus", smi=smi, CUDA_VISIBLE_DEVICES="2,3").returncode == 0
    assert look(impatient, port, "--gpus", smi=smi, CUDA_VISIBLE_DEVICES="").returncode == 1


def test_what_was_just_killed_is_given_time_to_leave(impatient: Path, port: int) -> None:
    patient = impatient.with_name("patient.py")
    patient.write_text(PROGRAM.read_text())
    smi = f"test -e {impatient.parent}/gone || {{ touch {impatient.parent}/gone; echo '7, old, 9'; }}"
    assert look(patient, port, "--gpus", smi=smi).returncode == 0
