"""A long job on a host is followed until it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import job_progress
import pytest
from ansible.module_utils.durable import write_json

Follow = Callable[..., dict[str, Any]]
RUNNING = {"started": 1, "finished": 0, "ansible_job_id": "j1.1"}


@pytest.fixture
def follow(run_module: Follow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Follow:
    """Ask where the job `j1` is, which says so in the file `progress`."""
    monkeypatch.setenv("ANSIBLE_ASYNC_DIR", str(tmp_path))
    monkeypatch.setattr(job_progress, "STEP", 0.01)
    monkeypatch.setattr(job_progress, "is_alive", lambda job: True)

    def ask(wait: float = 0) -> dict[str, Any]:
        return run_module(job_progress, job="j1", file=str(tmp_path / "progress"), wait=wait)

    return ask


@pytest.mark.parametrize(
    ("state", "ended"),
    [
        pytest.param(RUNNING, False, id="running"),
        pytest.param(RUNNING | {"finished": False}, False, id="running, as newer versions say it"),
        pytest.param(RUNNING | {"finished": 1, "changed": True}, True, id="ended"),
        pytest.param({"failed": True, "msg": "no"}, True, id="a result without the job's name"),
        pytest.param(None, False, id="a file that is just being written"),
    ],
)
def test_a_job_has_ended_when_its_file_says_so(
    follow: Follow, tmp_path: Path, state: dict[str, Any] | None, ended: bool
) -> None:
    if state is None:
        (tmp_path / "j1").write_text('{"started"')
    else:
        write_json(tmp_path / "j1", state)
    result = follow()
    assert (result["changed"], result["ended"], result["note"]) == (False, ended, "starting")


def test_a_job_that_nobody_knows_has_ended(follow: Follow) -> None:
    assert follow(wait=30)["ended"]


def test_the_note_is_the_jobs_last(follow: Follow, tmp_path: Path) -> None:
    write_json(tmp_path / "j1", RUNNING)
    write_json(tmp_path / "progress", {"note": "3 of 4 MiB", "done": 3})
    assert follow()["note"] == "3 of 4 MiB"


def test_a_running_job_is_waited_for_no_longer_than_asked(follow: Follow, tmp_path: Path) -> None:
    write_json(tmp_path / "j1", RUNNING)
    began = time.monotonic()
    assert not follow(wait=0.1)["ended"]
    assert time.monotonic() - began >= 0.1


def test_the_end_of_a_job_is_noticed_at_once(follow: Follow, tmp_path: Path) -> None:
    write_json(tmp_path / "j1", RUNNING)
    threading.Timer(0.05, write_json, (tmp_path / "j1", RUNNING | {"finished": 1})).start()
    began = time.monotonic()
    assert follow(wait=30)["ended"]
    assert time.monotonic() - began < 20


def test_a_job_that_was_killed_is_not_followed_for_ever(
    follow: Follow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_json(tmp_path / "j1", RUNNING)
    monkeypatch.setattr(job_progress, "is_alive", lambda job: False)
    result = follow()
    assert result["failed"] and "was killed before it ended" in result["msg"]


@pytest.mark.parametrize(
    ("words", "alive"),
    [
        pytest.param([b"python3", b"/tmp/async_wrapper.py", b"j7", b"60"], True, id="its wrapper"),
        pytest.param([b"python3", b"/tmp/async_wrapper.py", b"j8", b"60"], False, id="another job's wrapper"),
        pytest.param([b"grep", b"j7"], False, id="something else that names it"),
    ],
)
def test_a_job_lives_while_its_wrapper_does(tmp_path: Path, words: list[bytes], alive: bool) -> None:
    (tmp_path / "42").mkdir()
    (tmp_path / "42/cmdline").write_bytes(b"\0".join(words))
    assert job_progress.is_alive("j7.4711", tmp_path) is alive
