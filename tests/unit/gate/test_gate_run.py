"""How a run goes: probes beside one another, warnings asked again, NaN forgotten, the load budget kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from llm_gate import gate as gate_module
from llm_gate.errors import UsageError
from llm_gate.gate import ask_again, in_groups, make_settings, run_gate
from llm_gate.model_profile import read_model_profile
from llm_gate.probe import Context, Probe, Step
from llm_gate.probes import PROBES
from llm_gate.profiles import PROFILES
from llm_gate.results import Evidence, Notes, Verdict
from llm_gate.verdict import doubted, judge_run
from llm_stand_in import StandIn, completion, json_reply, raw_reply
from test_gate_rules import result

Run = Callable[[Context, Notes], None]


def probe(name: str, run: Run, beside: bool = False) -> Probe:
    return Probe(name, name, "test", lambda profile: [Step(name, "", 1, 0)], run, (), beside)


def says(*words: str) -> Run:
    """A probe's work: one word after the other, the last one again and again."""
    left = list(words)

    def run(context: Context, notes: Notes) -> None:
        word = left.pop(0) if len(left) > 1 else left[0]
        notes.evidence.append(Evidence("check", word, "rule", f"it says {word}"))  # type: ignore[arg-type]

    return run


@pytest.fixture
def with_probes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make a run ask for smoke and these probes."""

    def use(*probes: Probe) -> None:
        for one in probes:
            monkeypatch.setitem(PROBES, one.id, one)
        monkeypatch.setitem(PROFILES, "quick", ("smoke", *(one.id for one in probes)))

    return use


def run(stand_in: StandIn, model_profile: dict[str, Any], **settings: Any) -> Any:
    return run_gate(make_settings(url=stand_in.url, model_profile=model_profile, **settings))


def verdicts(document: Any) -> dict[str, str]:
    return {probe["id"]: probe["verdict"] for probe in document["probes"]}


# --- beside one another ---------------------------------------------------------------------------


def test_probes_in_a_row_that_disturb_nobody_make_a_group() -> None:
    nothing = says("pass")
    row = [probe(name, nothing, name in "bcfg") for name in "abcdefg"]
    assert [[one.id for one in group] for group in in_groups(row)] == [
        ["a"],
        ["b", "c"],
        ["d"],
        ["e"],
        ["f", "g"],
    ]


def test_a_group_runs_at_the_same_time_and_counts_apart(
    stand_in: StandIn, profile: dict[str, Any], with_probes: Callable[..., None]
) -> None:
    meeting = threading.Barrier(2, timeout=2)

    def meet(context: Context, notes: Notes, looks: int) -> None:
        meeting.wait()
        for _ in range(looks):
            context.client.get("/v1/models")
        meeting.wait()
        notes.evidence.append(Evidence("meet", "pass", "meet", "met"))

    with_probes(
        probe("template", lambda context, notes: meet(context, notes, 1), beside=True),
        probe("protocol", lambda context, notes: meet(context, notes, 3), beside=True),
    )
    document = run(stand_in, profile)
    assert verdicts(document) == {"smoke": "pass", "template": "pass", "protocol": "pass"}
    # One look at the end of each belongs to it.
    assert [one["requests"] for one in document["probes"][1:]] == [2, 4]


# --- two warnings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ({"lengths": "warn"}, []),
        ({"lengths": "warn", "golden": "warn"}, ["lengths", "golden"]),
        ({"lengths": "warn", "protocol": "warn", "throughput": "warn"}, []),
        ({"lengths": "warn", "golden": "error"}, []),
    ],
    ids=["one", "two", "interface-and-speed-aside", "another-verdict"],
)
def test_two_warnings_about_the_answers_are_in_doubt(
    verdicts: dict[str, Verdict], expected: list[str]
) -> None:
    assert [one.id for one in doubted(result(name, word) for name, word in verdicts.items())] == expected


@pytest.mark.parametrize(
    ("second", "summary"),
    [
        (
            "warn",
            "fail: 2 warnings that came back when asked again: lengths: it says warn; golden: it says warn",
        ),
        ("pass", "warn: lengths: it says warn"),
        ("fail", "fail: golden: it says fail"),
    ],
    ids=["both-came-back", "one-did-not", "worse"],
)
def test_two_warnings_are_asked_once_more(
    stand_in: StandIn, profile: dict[str, Any], with_probes: Callable[..., None], second: str, summary: str
) -> None:
    with_probes(probe("lengths", says("warn")), probe("golden", says("warn", second)))
    document = run(stand_in, profile)
    assert document["summary"] == summary
    assert document["verdict"] == summary.split(":", maxsplit=1)[0]
    assert [one["runs"] for one in document["probes"]] == [1, 2, 2]
    assert document["probes"][2]["measured"]["first run"] == {"warned": "it says warn"}


def test_one_warning_is_not_asked_again(
    stand_in: StandIn, profile: dict[str, Any], with_probes: Callable[..., None]
) -> None:
    with_probes(probe("lengths", says("warn")), probe("golden", says("pass")))
    document = run(stand_in, profile)
    assert document["verdict"] == "warn"
    assert [one["runs"] for one in document["probes"]] == [1, 1, 1]


def test_warnings_not_asked_again_do_not_fail_a_run() -> None:
    results = [result("lengths", "warn"), result("golden", "warn")]
    assert judge_run(["lengths", "golden"], results, []) == "warn"
    assert ask_again([result("smoke", "pass")], context=None) == [result("smoke", "pass")]  # type: ignore[arg-type]


# --- NaN in the cache -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "status", "cache"),
    [
        (True, 200, "flushed"),
        (True, 400, "not flushed: POST /flush_cache: HTTP 400"),
        (
            False,
            200,
            "kept, since nobody allowed to flush it: it may hold NaN until it is flushed or restarted",
        ),
    ],
)
def test_the_cache_is_flushed_after_nan_if_that_is_allowed(
    stand_in: StandIn, profile: dict[str, Any], allowed: bool, status: int, cache: str
) -> None:
    stand_in.chat["answer"] = json_reply(completion("!" * 64))
    stand_in.chat["logprobs"] = json_reply(completion("!", logprobs=None), 500)
    stand_in.pages["/flush_cache"] = raw_reply(b"Cache flushed.\n", status)
    document = run(stand_in, profile, flush_after_nan=allowed)
    assert document["probes"][0]["measured"]["smoke"]["cache"] == cache
    assert len(stand_in.asked("/flush_cache")) == int(allowed)


def test_a_sound_server_keeps_its_cache(stand_in: StandIn, profile: dict[str, Any]) -> None:
    assert run(stand_in, profile, flush_after_nan=True)["verdict"] == "pass"
    assert stand_in.asked("/flush_cache") == []


def test_health_is_asked_once_where_all_goes_well(stand_in: StandIn, profile: dict[str, Any]) -> None:
    run(stand_in, profile)
    assert len(stand_in.asked("/health")) == 1


# --- the load budget ------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "allowed"), [(None, (1, 2, 5)), (5, (1, 2, 5)), (4, (1, 2)), (1, (1,))])
def test_a_load_budget_limits_concurrency(
    profile: dict[str, Any], most: int | None, allowed: tuple[int, ...]
) -> None:
    settings = make_settings(url="http://node", model_profile=profile, most_concurrency=most)
    assert settings.model_profile.allowed((1, 2, 5)) == allowed
    assert settings.model_profile.allowed((8,)) == ((1,) if most else (8,))


def test_what_the_budget_leaves_out_is_said(stand_in: StandIn, profile: dict[str, Any]) -> None:
    document = run(stand_in, profile, profile="full", most_concurrency=2)
    assert document["verdict"] == "pass"
    reasons = {entry["id"]: entry["reason"] for entry in document["coverage"]}
    assert (
        "concurrency 3 to 5 not tested: the load budget allows 2 requests at a time" in reasons["concurrency"]
    )


def test_a_plan_above_the_budget_is_refused(profile: dict[str, Any]) -> None:
    with pytest.raises(
        UsageError, match=r"profile full may cost [0-9]+ tokens, the load budget is 1000: choose"
    ):
        make_settings(url="http://node", profile="full", model_profile=profile, most_tokens=1000)
    with pytest.raises(UsageError, match="most_concurrency must be a whole number of at least 1 and"):
        make_settings(url="http://node", most_concurrency=0)


def test_the_budget_is_no_part_of_a_profile(profile: dict[str, Any]) -> None:
    assert read_model_profile(profile).most_concurrency is None
    assert gate_module.count_checks(make_settings(url="http://node", model_profile=profile)) > 0
