"""The releases of a node in words, and which one a node can go back to."""

from __future__ import annotations

from typing import Any

import pytest
from listing import outage_text, release_lines, rollback_problems, undo_text, uninstall_lines

RELEASE = {
    "name": "demo.tiny.1",
    "made": "2026-01-02T03:04:05+00:00",
    "stack": "demo",
    "locked": True,
    "profile": "tiny",
    "model": "tiny-abc",
    "current": True,
    "previous": False,
    "trial": False,
    "running": True,
    "pinned": True,
    "verdict": "pass",
    "finished": "2026-01-02T03:05:00Z",
    "not_serving": {"until_ready_s": 10.0, "until_verdict_s": 12.4},
    "venv_bytes": 3 << 30,
    "model_bytes": 5 << 20,
}
DISK = {"bytes": 4 << 30, "free": 9 << 30, "unused_models": {"tiny-old": 1 << 20}}


def test_a_release_is_told_with_its_state_verdict_and_size() -> None:
    assert release_lines([RELEASE], DISK) == [
        "demo.tiny.1 (current, running, pinned); pass at 2026-01-02T03:05:00Z, not serving for 12 s; "
        "stack demo, model tiny-abc; made 2026-01-02T03:04:05+00:00; environment 3.00 GiB, model 5.0 MiB",
        "disk: 4.00 GiB in all, shared files counted once; 9.00 GiB free",
        "model tiny-old is used by no release: 1.0 MiB",
    ]


@pytest.mark.parametrize(
    ("release", "words"),
    [
        pytest.param({"verdict": None}, "; not gated; ", id="never gated"),
        pytest.param({"verdict": "fail", "not_serving": None}, "; fail at 2026", id="failed"),
        pytest.param({"current": False, "running": False, "pinned": False}, "(kept); ", id="an old one"),
        pytest.param({"locked": False}, "; stack demo (NOT LOCKED when it was made), model", id="unlocked"),
        pytest.param({"locked": None}, "; stack demo, model", id="of an older version"),
        pytest.param({"trial": True}, "(current, trial, running, pinned); ", id="on trial"),
    ],
)
def test_a_release_in_another_state_is_told_so(release: dict[str, Any], words: str) -> None:
    assert words in release_lines([RELEASE | release], DISK)[0]


def test_a_node_without_releases_is_told_so() -> None:
    assert release_lines([], DISK | {"unused_models": {}})[0] == "no release"


@pytest.mark.parametrize(
    ("not_serving", "text"),
    [
        (
            {"until_ready_s": 9.96, "until_verdict_s": 31.2},
            "not serving: 10.0 s until /health said 200, 31.2 s until the gate's verdict",
        ),
        (
            {"until_ready_s": None, "until_verdict_s": 31.2},
            "not serving: its health route did not answer again, 31.2 s until the gate's verdict",
        ),
        (None, "nothing was serving before, so no time without service was measured"),
    ],
    ids=["measured", "never ready", "first deployment"],
)
def test_the_time_without_service_is_told(not_serving: Any, text: str) -> None:
    assert outage_text(not_serving) == text


@pytest.mark.parametrize(
    ("current", "words"),
    [
        (
            "new",
            "the node could not go back: new is still current, but not proved, since the task 'Go back' ",
        ),
        ("old", "release old is current again, but does not serve, since the task 'Go back' "),
        (None, "no release is current, since the task 'Go back' "),
    ],
)
def test_a_failed_way_back_is_told_as_it_is(current: str | None, words: str) -> None:
    told = undo_text(current, "new", "Go back", "No space left on device")
    assert told == words + "failed: No space left on device. sglang.service is stopped"


RELEASES = [RELEASE, RELEASE | {"name": "demo.tiny.2"}]
FACTS = {"current": "demo.tiny.1", "previous": "demo.tiny.2"}


@pytest.mark.parametrize(
    ("wanted", "facts"),
    [
        pytest.param("", FACTS, id="the previous one"),
        pytest.param("demo.tiny.2", FACTS | {"previous": None}, id="one by name"),
    ],
)
def test_a_node_can_go_back(wanted: str, facts: dict[str, Any]) -> None:
    assert rollback_problems(wanted, RELEASES, facts, "node1") == []


def test_an_unknown_release_is_refused_with_those_that_there_are() -> None:
    [problem] = rollback_problems("demo.tiny.3", RELEASES, FACTS, "node1")
    assert problem.startswith("node1 has no release 'demo.tiny.3'; it has: demo.tiny.1, demo.tiny.2; did you")
    assert rollback_problems("x", [], FACTS, "n") == [
        "n has no release 'x'; it has: none. Nothing was changed"
    ]


def test_a_node_without_a_previous_release_is_told_which_others_there_are() -> None:
    [problem] = rollback_problems("", RELEASES, FACTS | {"previous": None}, "node1")
    assert "node1 has no previous release to go back to (current: demo.tiny.1)" in problem
    assert problem.endswith("Name one with -e release=NAME: demo.tiny.2")
    [problem] = rollback_problems("", [], {"current": None, "previous": None}, "node1")
    assert problem.endswith("(current: none); nothing was changed")


@pytest.mark.parametrize(("check", "word"), [(True, "would be removed"), (False, "removed")])
def test_check_mode_does_not_say_that_something_is_gone(check: bool, word: str) -> None:
    ours = {"unit": None, "user_home": None}
    lines = uninstall_lines(ours, ["/opt/sglang/current"], ["/opt/sglang/models"], "/opt/sglang", check)
    assert lines == [
        f"{word}: /opt/sglang/current",
        "left: /opt/sglang/models (weights; remove them with -e uninstall_weights=true)",
    ]
