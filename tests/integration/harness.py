"""What the integration tests stand on: one host of the lab, and runs of the playbooks against it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ansible_runner  # type: ignore[import-untyped]

REPO = Path(__file__).resolve().parents[2]
LAB = os.environ.get("SMOKESTACK_TEST_LAB") or "test"  # another name, to run the tests twice at once
DEMO = REPO / "inventory/demo"
GOOD_MODEL = REPO / "tests/data/tiny-qwen3"
BREAK_MODEL = REPO / "tests/data/tiny_model/break_model.py"
LAB_TOOL = REPO / "tests/lab/lab.py"
ROOT = "/opt/sglang"
MODEL = "tiny-qwen3"
URL = "http://127.0.0.1:30000"
# All that a deployment may leave on a node, and the lists of its users and of what systemd starts.
WATCHED = ("/opt", "/etc/systemd", "/etc/passwd", "/etc/group", "/var/lib/sglang", "/run/smokestack")


def lab(*arguments: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the lab's tool for the tests' own lab. Raises CalledProcessError."""
    command = [sys.executable, str(LAB_TOOL), "--lab", LAB, *arguments]
    return subprocess.run(command, check=check, capture_output=True, text=True, **options)


def break_model(out: Path, variant: str) -> Path:
    """A checkpoint with one known fault; its bytes are the same every time."""
    subprocess.run([sys.executable, str(BREAK_MODEL), str(GOOD_MODEL), str(out), variant], check=True)
    return out


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.2)


# ---------------------------------------------------------------- the node


@dataclass(frozen=True)
class Node:
    """A lab host, looked at from outside: not by ssh and not by Ansible."""

    name: str

    def _status(self) -> list[str]:
        hosts = (line.split("\t") for line in lab("status").stdout.splitlines())
        return next(host for host in hosts if host[0] == self.name)

    @property
    def address(self) -> str:
        """Where it is for this machine."""
        return self._status()[1]

    @property
    def is_up(self) -> bool:
        return self._status()[2] == "up"

    def run(self, *command: str, check: bool = True, **options: Any) -> str:
        """Stdout of a command that is run as root. Raises CalledProcessError."""
        return lab("exec", self.name, "--", *command, check=check, **options).stdout

    def listing(self, *folders: str, depth: int = 99) -> dict[str, str]:
        """Path to kind, size, time, mode, owner and link of everything below the folders that exist."""
        format_ = "%p\\t%y %s %T@ %m %u %l\\n"
        find = ["find", *(folders or WATCHED), "-maxdepth", str(depth), "-printf", format_]
        script = f"{shlex.join(find)} 2>/dev/null; true"
        lines = self.run("sh", "-c", script).splitlines()
        return dict(line.split("\t", 1) for line in lines)

    def read_json(self, path: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.run("cat", path))
        return document

    def exists(self, path: str) -> bool:
        return self.run("sh", "-c", f"test -e {shlex.quote(path)} && echo yes; true") == "yes\n"

    def linked(self, name: str) -> str | None:
        """The release that `current` or `previous` names."""
        target = self.run("sh", "-c", f"readlink {ROOT}/{name}; true").strip()
        return target.rpartition("/")[2] or None

    def unit(self) -> dict[str, str]:
        """What systemd says about the server."""
        wanted = "ActiveState,SubState,MainPID,NRestarts,AssertResult,UnitFileState,User"
        lines = self.run("systemctl", "show", "sglang.service", "--property", wanted).splitlines()
        return dict(line.split("=", 1) for line in lines)

    def pid(self) -> str:
        """The server's process, which must run."""
        unit = self.unit()
        assert unit["ActiveState"] == "active", unit
        return unit["MainPID"]

    def health(self) -> str:
        """The status code of the health route."""
        return self.run(
            "curl",
            "--silent",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code}",
            f"{URL}/health",
            check=False,
        )

    def wait_until_healthy(self) -> None:
        wait_for(lambda: self.health() == "200", "a green health route", seconds=120)

    def post(self, route: str, document: Mapping[str, Any]) -> dict[str, Any]:
        header = "Content-Type: application/json"
        answer = self.run("curl", "--silent", "--header", header, "--data", json.dumps(document), URL + route)
        decoded: dict[str, Any] = json.loads(answer)
        return decoded

    def answer(self) -> str:
        """What the model says when it is told to say OK."""
        question = {
            "model": MODEL,
            "messages": [{"role": "user", "content": "Reply with exactly OK"}],
            "max_tokens": 16,
            "temperature": 0,
            "chat_template_kwargs": {"enable_thinking": False},
        }
        choice = self.post("/v1/chat/completions", question)["choices"][0]
        text: str = choice["message"]["content"]
        return text

    def load_weights(self, folder: str) -> None:
        """Change the weights of the running server.

        SGLang serves its model under the name of the folder from then on. So that nothing but the weights
        changes, the folder is a link with the model's name in the server's own folder.
        """
        self.run("ln", "-sfn", folder, f"/var/lib/sglang/{MODEL}")
        answer = self.post("/update_weights_from_disk", {"model_path": MODEL})
        self.run("rm", f"/var/lib/sglang/{MODEL}")
        assert answer["success"] is True, answer

    def lease_seconds(self) -> float:
        """Seconds that the lease is still held for."""
        now = float(self.run("cut", "-d ", "-f1", "/proc/uptime"))
        return float(self.read_json("/run/smokestack/lease.json")["expires"]) - now

    def end_lease(self) -> None:
        """Let the lease's time be over, if there is one: the last step of a killed run may give it back."""
        lease = "/run/smokestack/lease.json"
        self.run("sh", "-c", f"""sed -i 's/"expires": [0-9.]*/"expires": 0/' {lease} || test ! -e {lease}""")

    def power_cut(self) -> None:
        lab("kill", self.name)

    def boot(self) -> None:
        lab("up", self.name)


def inventory_of(folder: Path, *hosts: str) -> Path:
    """The demo's inventory with these hosts of the lab in the place of its one."""
    folder.mkdir()
    (folder / "group_vars").symlink_to(DEMO / "group_vars")
    lines = (f'    {host}: {{ansible_host: "{{{{ lab_hosts.{host}.ansible_host }}}}"}}\n' for host in hosts)
    (folder / "hosts.yml").write_text("sglang_nodes:\n  hosts:\n" + "".join(lines))
    return folder


def difference(
    before: Mapping[str, str], after: Mapping[str, str], volatile: str = "/run/"
) -> dict[str, Any]:
    """Path to what it was and what it is, where two listings do not agree. `volatile` is not looked at."""
    paths = sorted(
        path for path in before.keys() | after.keys() if not (volatile and path.startswith(volatile))
    )
    return {
        path: (before.get(path), after.get(path)) for path in paths if before.get(path) != after.get(path)
    }


# ---------------------------------------------------------------- the playbooks


@dataclass(frozen=True)
class Run:
    """A run of a playbook that is over."""

    rc: int
    stats: Mapping[str, Mapping[str, int]]
    events: Sequence[Mapping[str, Any]]
    stdout: str
    """Only for what ends before there are events."""

    @property
    def changed(self) -> dict[str, int]:
        """Host to number of changes."""
        return dict(self.stats.get("changed", {}))

    def results(self, kind: str = "runner_on_ok") -> Iterator[tuple[str, dict[str, Any]]]:
        """Action and result of every event of a kind."""
        for event in self.events:
            if event["event"] == kind:
                yield event["event_data"]["task_action"], event["event_data"]["res"]

    @property
    def failures(self) -> list[str]:
        """Messages of the failed tasks in their order; the last one is what the run ended with."""
        return [str(result.get("msg")) for _action, result in self.results("runner_on_failed")]

    @property
    def failure(self) -> str:
        assert self.failures, f"no task failed; the run ended with {self.rc}"
        return self.failures[-1]

    @property
    def actions(self) -> set[str]:
        """What was done, whatever came of it."""
        return {
            event["event_data"]["task_action"]
            for event in self.events
            if event["event"] == "playbook_on_task_start"
        }

    @property
    def messages(self) -> list[Any]:
        """What the run told its operator."""
        return [result.get("msg") for action, result in self.results() if action == "ansible.builtin.debug"]

    @property
    def told(self) -> list[str]:
        """Every line of the messages."""
        return [
            str(line)
            for message in self.messages
            for line in (message if isinstance(message, list) else [message])
        ]


Variables = Mapping[str, Any]


class Playbooks:
    """Runs the project's playbooks as a user does, from a folder that is not the project's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._pool = ThreadPoolExecutor()
        self._over = False
        self._sockets = folder / "ssh"
        self.reports = folder / "reports"

    def run(
        self, playbook: str | Path, options: str = "", variables: Variables | None = None, **more: Any
    ) -> Run:
        """Run a playbook to its end; see `start`."""
        return self.start(playbook, options, variables, **more).result()

    def start(
        self, playbook: str | Path, options: str = "", variables: Variables | None = None, **more: Any
    ) -> Future[Run]:
        """Run a playbook in the background, with these options of ansible-playbook.

        inventory: that of the demo unless given; None leaves it to ansible.cfg.
        cwd: the folder to run in.
        environment: more variables, or other values.
        on_result: called with the result of every task that succeeded.
        kill_when: asked again and again; once it says yes, the run gets SIGKILL.
        """
        self._count += 1
        return self._pool.submit(
            self._play, self._folder / f"run{self._count}", playbook, options, variables, **more
        )

    def _play(
        self,
        private: Path,
        playbook: str | Path,
        options: str,
        variables: Variables | None,
        *,
        inventory: Path | None = DEMO,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        on_result: Callable[[dict[str, Any]], None] | None = None,
        kill_when: Callable[[], bool] | None = None,
    ) -> Run:
        (private / "project").mkdir(parents=True)

        def handle(event: Mapping[str, Any]) -> bool:
            if on_result and event["event"] == "runner_on_ok":
                on_result(event["event_data"]["res"])
            return True

        killed = False

        def kill() -> bool:  # asked once more after it said yes
            nonlocal killed
            killed = killed or self._over or bool(kill_when and kill_when())
            return killed

        runner = ansible_runner.run(
            private_data_dir=str(private),
            project_dir=str(cwd or private / "project"),
            playbook=str(REPO / playbook),
            inventory=[str(inventory)] if inventory else None,
            cmdline=options or None,
            extravars={"gate_reports": str(self.reports), **(variables or {})},
            envvars=self._environment() | dict(environment or {}),
            settings={"pexpect_timeout": 0.2},
            event_handler=handle,
            cancel_callback=kill,
            quiet=True,
        )
        return Run(
            rc=runner.rc,
            stats=runner.stats or {},
            events=list(runner.events),
            stdout=runner.stdout.read(),
        )

    def close(self) -> None:
        """End what runs, and the connections to the node that ssh keeps open."""
        self._over = True
        self._pool.shutdown()
        for socket in self._sockets.glob("*"):
            subprocess.run(
                ["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "node"], check=False, capture_output=True
            )

    def _environment(self) -> dict[str, str]:
        return {
            "ANSIBLE_CONFIG": str(REPO / "ansible.cfg"),
            "ANSIBLE_LOCAL_TEMP": str(self._folder / "tmp"),  # a run that is killed leaves its files
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self._sockets),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SMOKESTACK_LAB": LAB,
        }
