"""A release that does not answer rightly does not stay: the node goes back to what was proved."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from integration.harness import ROOT, Node, Playbooks, Run, wait_for

NAN = {"model_profile": "tiny-qwen3-nan"}
MISSPELT = {"sglang_server_options": {"attention_backend": "nonsense"}}
CRASH = {"sglang_server_options": {"tokenizer_path": "/nonexistent"}}


def links(node: Node) -> tuple[str | None, str | None]:
    return node.linked("current"), node.linked("previous")


def serves_proved(node: Node) -> bool:
    """Whether what is current was proved, runs and answers."""
    running = node.run("readlink", "/run/sglang/release").strip().rpartition("/")[2]
    return (
        running == node.linked("current") and node.exists(f"{ROOT}/current/proved") and node.answer() == "OK"
    )


@dataclass(frozen=True)
class Trial:
    run: Run
    other: Run
    """A second run that was begun in the midst of it."""
    before: tuple[str | None, str | None]
    seen: list[tuple[str | None, str]]
    """What was current, and the status of its health route, whenever a server had started."""


@pytest.fixture(scope="module")
def nan_trial(upgraded: Node, playbooks: Playbooks, nan_model: object) -> Trial:
    before = links(upgraded)
    seen = []

    def watch(result: dict[str, object]) -> None:
        if result.get("phase") == "ready":
            seen.append((upgraded.linked("current"), upgraded.health()))

    # With a tag, since a run that selects tasks must undo a failed trial as well.
    trial = playbooks.start("site.yml", "--tags sglang_server", variables=NAN, on_result=watch)
    wait_for(lambda: trial.done() or upgraded.exists(f"{ROOT}/trial.json"), "a trial", seconds=300)
    other = playbooks.run("site.yml")
    return Trial(trial.result(), other, before, seen)


def test_a_model_with_a_nan_is_caught_by_its_answers_while_its_health_is_green(nan_trial: Trial) -> None:
    release, health = nan_trial.seen[0]
    assert health == "200"
    assert release and "tiny-qwen3-nan" in release
    assert nan_trial.run.rc != 0
    assert "fail: smoke:" in nan_trial.run.failure
    assert "!!!" in nan_trial.run.failure


def test_the_node_is_back_on_the_release_that_was_proved(nan_trial: Trial, upgraded: Node) -> None:
    assert links(upgraded) == nan_trial.before
    assert serves_proved(upgraded)
    assert f"release {nan_trial.before[0]} serves again and passed its gate" in nan_trial.run.failure


def test_a_run_during_another_one_is_refused_and_told_whose_that_is(nan_trial: Trial) -> None:
    assert nan_trial.other.rc != 0
    assert "this node is being changed by" in nan_trial.other.failure
    assert nan_trial.other.changed == {}


def test_a_release_that_failed_is_not_tried_again(
    nan_trial: Trial, upgraded: Node, playbooks: Playbooks
) -> None:
    pid = upgraded.pid()
    run = playbooks.run("site.yml", variables=NAN)
    assert run.rc != 0
    assert "retry_failed" in run.failure
    assert "fail: smoke:" in run.failure
    assert links(upgraded) == nan_trial.before
    assert upgraded.pid() == pid


def test_an_option_that_the_engine_does_not_take_is_refused_before_anything_is_touched(
    upgraded: Node, playbooks: Playbooks
) -> None:
    pid, before = upgraded.pid(), links(upgraded)
    run = playbooks.run("site.yml", variables=MISSPELT)
    assert run.rc != 0
    assert "invalid choice: 'nonsense'" in run.failure
    assert "What serves was not touched" in run.failure
    assert (upgraded.pid(), links(upgraded)) == (pid, before)


@pytest.mark.full
def test_a_server_that_ends_at_its_start_is_reported_with_its_last_words_and_left(
    upgraded: Node, playbooks: Playbooks
) -> None:
    before = links(upgraded)
    run = playbooks.run("site.yml", variables=CRASH)
    assert run.rc != 0
    phases = [result["phase"] for action, result in run.results() if action == "engine_start"]
    given_up = next(phase for phase in phases if phase != "starting")
    assert given_up in ("looping", "failed"), "else its time was up, or it answered"
    assert "/nonexistent" in run.failure
    assert f"release {before[0]} serves again and passed its gate" in run.failure
    assert links(upgraded) == before
    assert serves_proved(upgraded)


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.full)])
def test_a_rollback_swaps_the_releases_and_gates_the_one_that_serves_then(
    times: int, upgraded: Node, playbooks: Playbooks
) -> None:
    current, previous = links(upgraded)
    run = playbooks.run("rollback.yml")
    assert run.rc == 0, run.failures
    assert "llm_gate" in run.actions
    assert links(upgraded) == (previous, current)
    assert serves_proved(upgraded)
