"""Ctrl-C of the detection bench: no server is left, what is known is kept, and the next run goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import detection
import pytest
from engine import BenchError, refuse_busy
from test_detection import free_port, is_running

# Stands in for SGLang: it has a child, as SGLang has, and writes down both. It answers its health pages only.
STAND_IN = """
import subprocess, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

notes, starts = Path({notes!r}), {starts}
child = subprocess.Popen(["sleep", "300"])
(notes / "pids.new").write_text(f"{{__import__('os').getpid()}} {{child.pid}}")
(notes / "pids.new").rename(notes / "pids")

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if not self.path.startswith("/health"):
            (notes / "asked").touch()
            time.sleep(300)
        self.send_response(200)
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *arguments):
        pass

if not starts:
    time.sleep(300)
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


class StandIn:
    """A venv's Python that knows SGLang's version and serves the stand-in, and the bench's command for it."""

    def __init__(self, folder: Path, starts: bool) -> None:
        self.folder = folder
        script, self.python = folder / "stand_in.py", folder / "python"
        script.write_text(STAND_IN.format(notes=str(folder), starts=starts))
        serve = f'exec "{sys.executable}" "{script}" "$@"'
        self.python.write_text(f'#!/bin/sh\nif [ "$1" = -c ]; then echo 0.5.9; else {serve}; fi\n')
        self.python.chmod(0o755)
        self.results = folder / "results.jsonl"

    def bench(self, *more: str) -> subprocess.Popen[str]:
        """The bench, measuring one row."""
        port = str(two_free_ports())
        # A shell started in the background ignores Ctrl-C, and so would all its children.
        command = [
            "env",
            "--default-signal=INT",
            sys.executable,
            detection.__file__,
            "--engine-python",
            self.python,
            "--rows",
            "sound",
        ]
        command += ["--work", self.folder / "work", "--results", self.results, "--port", port]
        return subprocess.Popen([*command, *more], stderr=subprocess.PIPE, text=True, start_new_session=True)

    def pids(self) -> list[int]:
        """The last started server and its child."""
        return [int(pid) for pid in (self.folder / "pids").read_text().split()]


def to_all(process: subprocess.Popen[str]) -> None:
    """Ctrl-C, as a terminal sends it: the gate gets it as well."""
    os.killpg(process.pid, signal.SIGINT)


def to_it(process: subprocess.Popen[str]) -> None:
    """A kill, which the bench alone gets."""
    process.send_signal(signal.SIGTERM)


def wait_until(true: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    """Wait for something while a process runs."""
    end = time.monotonic() + 60
    while not true():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


def two_free_ports() -> int:
    """The first of two, for the server and the proxy."""
    while True:
        port = free_port()
        with suppress(BenchError):
            refuse_busy(port + 1)
            return port


@pytest.mark.parametrize("stop", [to_all, to_it])
@pytest.mark.parametrize("starts", [True, False], ids=["in mid-row", "in mid-start"])
def test_nothing_is_left_and_the_next_run_goes_on(
    tmp_path: Path, starts: bool, stop: Callable[[subprocess.Popen[str]], None]
) -> None:
    stand_in = StandIn(tmp_path, starts)
    with stand_in.bench() as process:
        wait_until((tmp_path / ("asked" if starts else "pids")).exists, process)
        stop(process)
        _out, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert told.endswith("detection: stopped; the same command goes on from here\n")
    wait_until(lambda: not any(map(is_running, stand_in.pids())))

    cells = stand_in.results.read_text().splitlines() if starts else []
    assert [json.loads(line)["column"] for line in cells] == ["/health", "/health_generate"][: len(cells)]
    assert bool(cells) == starts

    again = StandIn(tmp_path, starts=True)
    (tmp_path / "pids").unlink()
    with again.bench("--only", "/health", "--only", "/health_generate") as process:
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert len(stand_in.results.read_text().splitlines()) == 2
    assert (tmp_path / "pids").exists() != starts, "no server is started where nothing is missing"
