"""A real SGLang server for measurements: started from a model profile, given other weights, stopped for sure.

The server runs in a process group of its own, which is ended as a whole, also on Ctrl-C.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "filter_plugins"))

from launch import launch_args  # noqa: E402 - the suite's own rendering of launch options

START_S = 300.0


class BenchError(Exception):
    """The measurement cannot go on; the message is for people."""


@dataclass(frozen=True)
class Launch:
    """How a server is started. `served` is the folder that holds its weights under the model's name."""

    python: Path
    port: int
    name: str
    options: Mapping[str, Any]
    environment: Mapping[str, str]
    served: Path
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def command(self) -> list[str]:
        # A relative path: after a change of weights SGLang 0.5.9 serves under the path that it was given.
        own = {"model_path": self.name, "served_model_name": self.name, "host": "127.0.0.1"}
        arguments = launch_args({**self.options, **own, "port": self.port})
        return [str(self.python), "-m", "sglang.launch_server", *arguments]


class Engine:
    """One running server."""

    def __init__(self, launch: Launch, process: subprocess.Popen[bytes]) -> None:
        self.launch = launch
        self.process = process

    @property
    def url(self) -> str:
        return self.launch.url

    def load(self, weights: Path) -> None:
        """Put other weights of the same shape into the running server. Raises BenchError."""
        point_at(self.launch.served / self.launch.name, weights)
        body = {"model_path": self.launch.name, "flush_cache": True}
        try:
            status, text = ask(f"{self.url}/update_weights_from_disk", body, 120.0)
        except OSError as error:
            raise BenchError(f"the server did not take the weights {weights}: {error}") from None
        if status != 200 or not json.loads(text).get("success"):
            raise BenchError(f"the server did not take the weights {weights}: HTTP {status}: {text[:300]}")

    def lives(self) -> bool:
        """Whether it runs and answers its health page."""
        try:
            return self.process.poll() is None and ask(f"{self.url}/health", None, 30.0)[0] == 200
        except OSError:
            return False

    def version(self) -> str:
        """What it says it is."""
        _status, text = ask(f"{self.url}/server_info", None, 30.0)
        return f"sglang {json.loads(text).get('version', 'of unknown version')}"

    def stop(self) -> None:
        """End the whole process group and wait for it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def running(launch: Launch, weights: Path) -> Iterator[Engine]:
    """A server that is ready, with these weights; it is stopped in any case. Raises BenchError."""
    if not launch.python.exists():
        raise BenchError(
            f"{launch.python} does not exist: --engine-python names the Python of a venv with SGLang"
        )
    refuse_busy(launch.port)
    launch.served.mkdir(parents=True, exist_ok=True)
    point_at(launch.served / launch.name, weights)
    with launch.log.open("wb") as log:
        process = subprocess.Popen(
            launch.command,
            cwd=launch.served,
            env={**os.environ, **launch.environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    engine = Engine(launch, process)
    try:
        _wait(engine)
        yield engine
    finally:
        engine.stop()


def _wait(engine: Engine) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if engine.process.poll() is not None:
            raise BenchError(
                f"the server ended with status {engine.process.returncode}: see {engine.launch.log}"
            )
        if engine.lives():
            return
        time.sleep(0.5)
    raise BenchError(f"the server is not ready after {START_S:g} s: see {engine.launch.log}")


def ask(url: str, body: Mapping[str, Any] | None, seconds: float) -> tuple[int, str]:
    """The status and text of a reply, GET without a body. Raises OSError without one."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=seconds) as reply:
            return reply.status, reply.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode("utf-8", "replace")


def refuse_busy(port: int) -> None:
    """Raise BenchError if something listens on the port."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError as error:
            raise BenchError(f"port {port}: {error.strerror}; name a free one with --port") from None


def point_at(link: Path, folder: Path) -> None:
    """Make a link to a folder, in place of an older one."""
    if not (folder / "config.json").is_file():
        raise BenchError(f"{folder} is no checkpoint: it has no config.json")
    trial = link.with_name(f".{link.name}.new")
    trial.unlink(missing_ok=True)
    trial.symlink_to(folder.resolve(), target_is_directory=True)
    trial.replace(link)


def sglang_version(python: Path) -> str:
    """The version of SGLang in a venv. Raises BenchError."""
    if not python.exists():
        raise BenchError(f"{python} does not exist: --engine-python names the Python of a venv with SGLang")
    code = "import importlib.metadata; print(importlib.metadata.version('sglang'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"{python} has no SGLang: bench/README.md says how to get a venv with it")
    return done.stdout.strip()


def default_python() -> Path:
    """The Python of the venv that a deployment made on this machine, else the one that runs this."""
    deployed = Path("/opt/sglang/current/venv/bin/python")
    return deployed if deployed.exists() else Path(shutil.which("python3") or sys.executable)
