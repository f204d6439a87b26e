"""A starting server is followed until it answers, fails or loops."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import engine_start
import pytest
from ansible.module_utils.basic import AnsibleModule
from engine_start import answers, describe, judge, properties, seconds_of

ACTIVE = {"ActiveState": "active", "NRestarts": "0", "InvocationID": "abc", "Result": "success"}


def test_properties_are_read_with_their_equal_signs() -> None:
    text = "ActiveState=active\nEnvironment=A=1 B=2\n\nResult=\n"
    assert properties(text) == {"ActiveState": "active", "Environment": "A=1 B=2", "Result": ""}


@pytest.mark.parametrize(
    ("state", "healthy", "phase"),
    [
        pytest.param({}, True, "ready", id="answers"),
        pytest.param({}, False, "starting", id="does not answer yet"),
        pytest.param({"ActiveState": "activating"}, False, "starting", id="between two attempts"),
        pytest.param({"ActiveState": "activating"}, True, "starting", id="something else answers"),
        pytest.param({"ActiveState": "failed"}, False, "failed", id="failed"),
        pytest.param({"ActiveState": "failed"}, True, "failed", id="failed while something else answers"),
        pytest.param({"ActiveState": "inactive"}, False, "failed", id="stopped"),
        pytest.param({"ActiveState": "inactive"}, True, "failed", id="stopped while something else answers"),
        pytest.param({"NRestarts": "1"}, False, "starting", id="restarted as often as allowed"),
        pytest.param({"NRestarts": "2"}, False, "looping", id="restarted too often"),
        pytest.param(
            {"ActiveState": "activating", "NRestarts": "2"}, False, "looping", id="about to restart"
        ),
        pytest.param({"NRestarts": "2"}, True, "ready", id="answers, restarted long ago"),
        pytest.param({"NRestarts": ""}, False, "starting", id="no count"),
    ],
)
def test_a_unit_is_judged_by_its_state_and_its_health(
    state: dict[str, str], healthy: bool, phase: str
) -> None:
    assert judge(ACTIVE | state, healthy, restarts=1) == phase


def test_a_unit_that_systemd_says_nothing_about_is_starting() -> None:
    assert judge({}, healthy=False, restarts=1) == "starting"


@pytest.mark.parametrize(
    ("phase", "log", "words"),
    [
        ("ready", [], ["x.service answers", "12 s"]),
        (
            "starting",
            ["[2026-03-07 10:00:00] Capture cuda graph begin", "  warnings.warn("],
            ["12 s: [2026-03-07 10:00:00] Capture"],
        ),
        ("starting", [], ["12 s: loading"]),
        ("looping", ["x"], ["x.service", "3 times", "exit status 9"]),
        ("failed", ["x"], ["x.service is failed", "exit-code", "exit status 9"]),
    ],
)
def test_the_note_is_a_sentence_for_an_operator(phase: str, log: list[str], words: list[str]) -> None:
    state = {"ActiveState": "failed", "Result": "exit-code", "NRestarts": "3", "ExecMainStatus": "9"}
    note = describe(phase, "x.service", state, 12.3, log)
    assert [word for word in words if word not in note] == []


# --- the health route ----------------------------------------------------------------------------


class Server(ThreadingHTTPServer):
    """Answers its health route with the next of its statuses, the last one again and again."""

    daemon_threads = True
    statuses: list[int]
    paths: list[str]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        statuses = self.server.statuses
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.statuses, server.paths = [200], []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_port}"


@pytest.mark.parametrize(
    ("status", "healthy"), [(200, True), (503, False), (500, False), (404, False), (204, False)]
)
def test_only_200_is_healthy(server: Server, status: int, healthy: bool) -> None:
    server.statuses = [status]
    assert answers(f"{url(server)}/health") is healthy


def test_a_closed_port_is_not_healthy(server: Server) -> None:
    address = url(server)
    server.server_close()
    assert answers(f"{address}/health") is False


def test_a_proxy_of_the_environment_is_not_asked(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    assert answers(f"{url(server)}/health") is True


# --- the module ----------------------------------------------------------------------------------


class Host:
    """Stands in for systemctl and journalctl."""

    def __init__(self) -> None:
        self.state = ACTIVE | {"ExecMainStatus": "0", "ExecMainStartTimestampMonotonic": "1000000"}
        self.log = "loading\n\n  \n[2026-03-07 10:00:00] listening\n"
        self.commands: list[list[str]] = []

    def run_command(self, argv: list[str], check_rc: bool = False) -> tuple[int, str, str]:
        self.commands.append(argv)
        if argv[0] == "systemctl":
            return 0, "".join(f"{key}={value}\n" for key, value in self.state.items()), ""
        return 0, self.log, ""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host()
    monkeypatch.setattr(AnsibleModule, "run_command", host.run_command)
    monkeypatch.setattr(engine_start, "STEP", 0.01)
    monkeypatch.setattr(engine_start, "port_holder", lambda port: {"unit": "sglang.service"})
    return host


@pytest.fixture
def watch(
    run_module: Callable[..., dict[str, Any]], host: Host, server: Server
) -> Callable[..., dict[str, Any]]:
    def run(**arguments: Any) -> dict[str, Any]:
        return run_module(engine_start, **({"url": url(server), "wait": 0} | arguments))

    return run


def test_a_server_that_answers_is_ready_at_once(watch: Callable[..., dict[str, Any]], server: Server) -> None:
    result = watch(wait=30, health="/healthz")
    assert (result["changed"], result["phase"], result["log"]) == (
        False,
        "ready",
        ["loading", "[2026-03-07 10:00:00] listening"],
    )
    assert server.paths == ["/healthz"]
    assert result["seconds"] > 0


def test_a_server_of_somebody_else_is_not_ours(
    watch: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_start, "port_holder", lambda port: {"unit": "manual.service"})
    assert watch()["phase"] == "starting"


def test_a_server_is_waited_for(watch: Callable[..., dict[str, Any]], server: Server) -> None:
    server.statuses = [503, 503, 200]
    assert watch(wait=30)["phase"] == "ready"
    assert len(server.paths) == 3


def test_after_the_wait_the_last_log_line_is_the_note(
    watch: Callable[..., dict[str, Any]], server: Server
) -> None:
    server.statuses = [503]
    result = watch(wait=0.05)
    assert result["phase"] == "starting"
    assert result["note"].endswith("] listening")


@pytest.mark.parametrize(
    ("state", "phase"),
    [({"ActiveState": "failed"}, "failed"), ({"NRestarts": "4"}, "looping")],
    ids=["failed", "looping"],
)
def test_a_server_that_does_not_start_is_not_waited_for(
    watch: Callable[..., dict[str, Any]], host: Host, server: Server, state: dict[str, str], phase: str
) -> None:
    server.statuses = [503]
    host.state |= state
    assert watch(wait=600)["phase"] == phase


def test_the_log_is_of_this_start_unless_it_failed(
    watch: Callable[..., dict[str, Any]], host: Host, server: Server
) -> None:
    watch(lines=7)
    assert host.commands[-1][-1] == "_SYSTEMD_INVOCATION_ID=abc"
    assert host.commands[-1][3:5] == ["--lines", "7"]
    host.state["ActiveState"] = "failed"
    watch()
    assert host.commands[-1][-1] == "cat"


@pytest.mark.parametrize(
    ("timestamp", "seconds"), [("12500000", 12.5), ("0", None), ("", None), (None, None)]
)
def test_the_time_of_the_last_stop_is_in_seconds(timestamp: str | None, seconds: float | None) -> None:
    assert seconds_of(timestamp) == seconds


def test_a_look_says_when_it_was_on_the_clock_of_the_stop(
    watch: Callable[..., dict[str, Any]], host: Host
) -> None:
    host.state["ActiveExitTimestampMonotonic"] = str(int(time.monotonic() * 1e6))
    result = watch()
    assert 0 <= result["clock"] - result["stopped_at"] < 60


def test_a_unit_that_never_ran_has_no_age(watch: Callable[..., dict[str, Any]], host: Host) -> None:
    host.state |= {"ActiveState": "inactive", "ExecMainStartTimestampMonotonic": "0"}
    assert watch()["seconds"] == 0
