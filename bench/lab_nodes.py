"""Lab hosts for measurements of a deployment: SSH to them, playbooks against them, a static server."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import ansible_runner  # type: ignore[import-untyped]
import yaml
from engine import ROOT, BenchError

LAB_TOOL = ROOT / "tests" / "lab" / "lab.py"
COMMAND_S = 1800.0


@dataclass(frozen=True)
class Node:
    """A host of the lab, reached by SSH alone, as any node is."""

    name: str
    address: str
    ssh: tuple[str, ...]

    def command(self, script: str) -> list[str]:
        """The command line that runs a script of sh as root on the node; it ends at the first error."""
        return [*self.ssh, self.address, shlex.join(["sudo", "sh", "-ec", script])]

    def run(self, script: str, text: str = "") -> str:
        """Stdout of a script. Raises BenchError."""
        return call(self.command(script), text)

    def received(self) -> int:
        """Bytes that came over its cable since it was started."""
        return int(self.run("cat /sys/class/net/eth0/statistics/rx_bytes"))


def call(command: Sequence[str], text: str = "") -> str:
    """Stdout of a command that gets this text. Raises BenchError with the end of what it said."""
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise BenchError(f"{shown(command)} ran for more than {COMMAND_S:.0f} s") from None
    if done.returncode != 0:
        raise BenchError(
            f"{shown(command)} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}"
        )
    return done.stdout


def shown(command: Any) -> str:
    """A command line for an error: its program, and how its last argument begins."""
    return f"`{command[0]} ... {command[-1][:200]}`"


def on_all(nodes: Sequence[Node], script: str, text: str = "") -> float:
    """Run a script on all nodes at once; seconds until the last one is done. Raises BenchError."""
    return at_once([node.command(script) for node in nodes], text)


def at_once(commands: Sequence[Sequence[str]], text: str = "") -> float:
    """Run commands at once; seconds until the last one is done. Raises BenchError. None outlives it."""
    began = time.monotonic()
    with ExitStack() as stack:
        jobs = [stack.enter_context(_job(command, text)) for command in commands]
        for process, told in jobs:
            try:
                process.wait(COMMAND_S - (time.monotonic() - began))
            except subprocess.TimeoutExpired:
                raise BenchError(f"{shown(process.args)} ran for more than {COMMAND_S:.0f} s") from None
            if process.returncode != 0:
                told.seek(0)
                raise BenchError(
                    f"{shown(process.args)} ended with {process.returncode}: {told.read().strip()[-500:]}"
                )
        return time.monotonic() - began


@contextmanager
def _job(command: Sequence[str], text: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A command that gets this text, and the file of what it says; it is killed if it is still there."""
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as told:
        given.write(text)
        given.seek(0)
        process = subprocess.Popen(command, stdin=given, stdout=told, stderr=told, text=True)
        try:
            yield process, told
        finally:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class Lab:
    """Hosts that are up. `gateway` is this machine's address for them."""

    nodes: tuple[Node, ...]
    inventory: Path
    gateway: str


@contextmanager
def lab_hosts(name: str, count: int) -> Iterator[Lab]:
    """So many new hosts, gone at the end. Raises BenchError where the lab is in use or cannot be run."""

    def tool(*arguments: str) -> str:
        return call([sys.executable, str(LAB_TOOL), "--lab", name, *arguments])

    tool("check")
    if any(line.endswith("up") for line in _status(name)):
        raise BenchError(f"the lab {name} has running hosts: choose another --lab, or take it down first")
    try:
        tool("build")
        inventory = Path(tool("up", *(f"node{number}" for number in range(1, count + 1))).strip())
        group = yaml.safe_load(inventory.read_text(encoding="utf-8"))["sglang_nodes"]
        shared = group["vars"]
        ssh = ("ssh", "-o", "BatchMode=yes", *shlex.split(shared["ansible_ssh_common_args"]))
        ssh += ("-i", shared["ansible_ssh_private_key_file"], "-l", shared["ansible_user"])
        nodes = tuple(Node(host, facts["ansible_host"], ssh) for host, facts in group["hosts"].items())
        yield Lab(nodes, inventory, nodes[0].address.rpartition(".")[0] + ".1")
    except BaseException:
        with suppress(BenchError):  # what went wrong is what is told
            tool("clean")
        raise
    tool("clean")


def _status(name: str) -> list[str]:
    command = [sys.executable, str(LAB_TOOL), "--lab", name, "status"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


# --- playbooks -----------------------------------------------------------------------------------

Events = Sequence[Mapping[str, Any]]


def play(
    lab: Lab,
    playbook: str,
    nodes: Sequence[Node],
    folder: Path,
    variables: Mapping[str, Any],
    *,
    options: str = "",
) -> Events:
    """Run a playbook of the project against these nodes; its events. Raises BenchError if it fails."""
    private = folder / f"run-{time.monotonic_ns()}"
    (private / "project").mkdir(parents=True)
    limit = ",".join(node.name for node in nodes)
    runner = ansible_runner.run(
        private_data_dir=str(private),
        project_dir=str(private / "project"),
        playbook=str(ROOT / playbook),
        inventory=str(lab.inventory),
        cmdline=f"--limit {limit} {options}",
        extravars={"gate_reports": str(folder / "reports"), **variables},
        envvars={
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder / "ssh"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        quiet=True,
    )
    events = list(runner.events)
    if runner.rc != 0:
        failed = [
            event for event in events if event["event"] in ("runner_on_failed", "runner_on_unreachable")
        ]
        why = failed[-1]["event_data"]["res"].get("msg") if failed else f"it ended with {runner.rc}"
        raise BenchError(f"{playbook} failed on {limit}: {why}")
    return events


def seconds_between(events: Events, first: str, last: str = "", roles: Iterable[str] = ()) -> float:
    """Seconds from the start of the first task of these roles named `first` to the start of a later one.

    That is the first one named `last` or, without it, the first one of none of the roles. Raises BenchError
    where there is none.
    """
    roles = set(roles)
    began = None
    for event in events:
        if event["event"] not in ("playbook_on_task_start", "playbook_on_stats"):
            continue
        task, role = event["event_data"].get("task"), event["event_data"].get("role")
        now = datetime.fromisoformat(event["created"]).timestamp()
        if began is None:
            began = now if task == first and role in roles else None
        elif task == last if last else role not in roles:
            return now - began
    what = "no task of this name ran" if began is None else f"no task followed it ({last or 'another role'})"
    raise BenchError(f"the time of {first!r} cannot be told: {what}")


# --- a static server -----------------------------------------------------------------------------

NGINX = """
user {user}; worker_processes auto; daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off; sendfile on; tcp_nopush on; default_type application/octet-stream;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{ listen {address}:{port}; root {root}; autoindex on; }}
}}
"""


@contextmanager
def served(nginx: Path, root: Path, address: str, port: int, folder: Path) -> Iterator[str]:
    """nginx that serves a folder, read-only, at this address alone; its URL. Raises BenchError."""
    folder.mkdir(parents=True, exist_ok=True)
    user = root.owner()
    text = NGINX.format(user=user, folder=folder, address=address, port=port, root=root)
    config = folder / "nginx.conf"
    config.write_text(text, encoding="utf-8")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([nginx, "-p", folder, "-c", config], stdout=log, stderr=log)
    url = f"http://{address}:{port}/"
    try:
        deadline = time.monotonic() + 10
        while subprocess.run(
            ["curl", "--silent", "--fail", "--output", "/dev/null", url], check=False
        ).returncode:
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"nginx does not serve {url}: {(folder / 'log').read_text()[-500:]}")
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def read_verdict(node: Node) -> dict[str, Any]:
    """The last verdict of what serves."""
    verdict: dict[str, Any] = json.loads(node.run("cat /opt/sglang/current/verdict.json"))
    return verdict
