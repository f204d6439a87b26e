"""One run at a time changes a node; a run that died blocks others for a while only."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import node_lease
import pytest
from ansible.module_utils.durable import read_json

ROOT = Path(__file__).parents[2]
Lease = Callable[..., dict[str, Any]]


class Clock:
    """Seconds since boot, as a test sets them."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self, _clock: int) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(node_lease.time, "clock_gettime", clock)
    return clock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "lease.json"


@pytest.fixture
def lease(run_module: Lease, path: Path, clock: Clock) -> Lease:
    """Ask for the lease as a run; the holder is named after the run."""

    def ask(run: str, **arguments: Any) -> dict[str, Any]:
        return run_module(node_lease, path=str(path), run=run, holder=f"{run}@controller", **arguments)

    return ask


def test_a_free_node_is_held(lease: Lease, path: Path) -> None:
    result = lease("one", ttl=30)
    assert (result["changed"], result["holder"]) == (False, "one@controller")
    assert read_json(path) == {"run": "one", "holder": "one@controller", "expires": 1030.0}


def test_another_run_is_refused_and_told_who_holds_it_and_for_how_long(lease: Lease, clock: Clock) -> None:
    lease("one", ttl=60)
    clock.now += 15
    result = lease("two")
    assert result["failed"]
    assert "by one@controller (run one)" in result["msg"]
    assert "free in 45 s" in result["msg"]


def test_a_refusal_leaves_the_lease(lease: Lease, path: Path) -> None:
    lease("one")
    before = path.read_text()
    lease("two")
    lease("two", state="free")
    assert path.read_text() == before


def test_the_same_run_renews(lease: Lease, clock: Clock) -> None:
    for _ in range(3):
        assert not lease("one", ttl=60).get("failed")
        clock.now += 50
    assert lease("two")["failed"]


def test_an_expired_lease_is_taken_over(lease: Lease, clock: Clock) -> None:
    lease("one", ttl=60)
    clock.now += 60
    assert lease("two")["holder"] == "two@controller"
    assert lease("one")["failed"]


def test_a_lease_that_was_given_back_is_free(lease: Lease, path: Path) -> None:
    lease("one")
    assert lease("one", state="free")["holder"] is None
    assert not path.exists()
    assert lease("two")["holder"] == "two@controller"


def test_giving_back_what_another_run_holds_says_who_holds_it(lease: Lease) -> None:
    lease("one")
    assert lease("two", state="free")["holder"] == "one@controller"


def test_giving_back_a_free_node_is_fine(lease: Lease) -> None:
    assert lease("one", state="free")["holder"] is None


def test_reading_never_takes_and_never_refuses(lease: Lease, path: Path) -> None:
    assert lease("one", state="read")["holder"] is None
    assert not path.parent.exists()
    lease("one")
    assert lease("two", state="read")["holder"] == "one@controller"
    assert lease("one", state="read")["holder"] is None


@pytest.mark.parametrize("state", ["held", "free"])
def test_check_mode_changes_nothing(lease: Lease, path: Path, state: str) -> None:
    lease("one", state=state, check=True)
    assert not path.parent.exists()
    lease("one")
    before = path.read_text()
    lease("one", state=state, check=True)
    assert path.read_text() == before


def test_check_mode_is_refused_as_well(lease: Lease) -> None:
    lease("one")
    assert lease("two", check=True)["failed"]
    assert not lease("one", check=True).get("failed")


@pytest.mark.parametrize("content", ["", "{", "\0"], ids=["empty", "torn", "zeros"])
def test_a_torn_lease_is_no_lease(lease: Lease, path: Path, content: str) -> None:
    path.parent.mkdir()
    path.write_text(content)
    assert lease("one")["holder"] == "one@controller"


# Imports first, then waits to be let go, so that all processes ask in the same instant.
ASK = """
import sys
import ansible.module_utils
from ansible.module_utils.testing import patch_module_args
ansible.module_utils.__path__.append(sys.argv[1])
import node_lease
print("ready", flush=True)
sys.stdin.readline()
with patch_module_args({"path": sys.argv[2], "run": sys.argv[3], "holder": sys.argv[3]}):
    node_lease.main()
"""


def test_of_several_runs_in_the_same_instant_one_gets_the_node(path: Path) -> None:
    start = functools.partial(
        subprocess.Popen, cwd=ROOT / "library", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    processes = [
        start([sys.executable, "-c", ASK, ROOT / "module_utils", path, f"run{number}"]) for number in range(4)
    ]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 4
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    results = [json.loads(process.communicate(timeout=30)[0]) for process in processes]
    winners = [result["holder"] for result in results if not result.get("failed")]
    assert len(winners) == 1
    assert read_json(path)["run"] == winners[0]
    assert all(winners[0] in result["msg"] for result in results if result.get("failed"))
