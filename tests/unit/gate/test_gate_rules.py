"""The pure parts of the gate: verdicts, coverage, and reading a model profile."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import pytest
import yaml
from llm_gate import model_profile as model_profile_module
from llm_gate.defaults import GATE
from llm_gate.errors import UsageError
from llm_gate.gate import count_checks, cover, make_settings, plan_lines
from llm_gate.model_profile import read_model_profile
from llm_gate.nan import judge_logprobs
from llm_gate.probes import PROBES
from llm_gate.probes.smoke import holds_word, is_exactly
from llm_gate.profiles import PROBE_IDS, PROFILES
from llm_gate.results import CheckVerdict, Coverage, Evidence, Notes, ProbeResult, Verdict
from llm_gate.verdict import judge_probe, judge_run, unaccounted, worst


def result(name: str, verdict: Verdict, *evidence: Evidence) -> ProbeResult:
    return ProbeResult(name, name, "correctness", verdict, 0.1, 1, 2, 3, Notes(list(evidence)))


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], "error"),
        (["pass"], "pass"),
        (["pass", "warn"], "warn"),
        (["warn", "error", "pass"], "error"),
        (["error", "fail"], "fail"),
    ],
    ids=["nothing", "pass", "warn", "error", "a-proved-fault-wins"],
)
def test_the_worst_verdict_counts(verdicts: list[Verdict], expected: Verdict) -> None:
    assert worst(verdicts) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["pass", "skipped"], "pass"), (["skipped"], "error"), (["skipped", "error", "pass"], "error")],
    ids=["skipped-is-neutral", "only-skipped", "error"],
)
def test_skipped_checks_count_neither_way(words: list[CheckVerdict], expected: Verdict) -> None:
    assert judge_probe(Evidence("check", word, "rule", "text") for word in words) == expected


def test_an_asked_probe_must_run_or_be_explained() -> None:
    ran = [result("smoke", "pass")]
    explained = Coverage("soak", False, "no time")
    assert judge_run(["smoke", "soak"], ran, []) == "error"
    assert judge_run(["smoke", "soak"], ran, [Coverage("soak", False, "")]) == "error"
    assert judge_run(["smoke", "soak"], ran, [explained]) == "pass"
    assert unaccounted(["smoke", "soak"], {"smoke"}, []) == ["soak"]


def test_every_probe_id_is_covered_once_with_a_reason_if_untested() -> None:
    coverage = cover(("smoke",), [result("smoke", "pass", Evidence("answer", "pass", "answer", "right"))])
    assert [entry.id for entry in coverage] == list(PROBE_IDS)
    assert coverage[0] == Coverage("smoke", True, "")
    assert all(entry.reason for entry in coverage if not entry.tested)


def test_an_asked_probe_that_did_not_run_gets_no_excuse() -> None:
    assert cover(("smoke",), [])[0] == Coverage("smoke", False, "")


@pytest.mark.parametrize("profile", PROFILES)
def test_a_run_profile_asks_only_for_probes_that_exist(profile: str) -> None:
    assert set(PROFILES[profile]) <= PROBES.keys() <= set(PROBE_IDS)


def test_the_plan_names_every_check_and_its_cost() -> None:
    settings = make_settings(url="http://node:30000")
    lines = plan_lines(settings)
    # A heading, the checks, a budget for each probe, and one for all.
    assert len(lines) == 2 + count_checks(settings) + len(PROFILES["quick"])
    assert "deadline 300 s" in lines[0]
    assert "at most   80 tokens" in lines[3]
    assert lines[6] == (
        "  smoke: at most 18 requests, 0 prompt tokens and 1168 completion tokens, about 19 s"
    )
    assert re.fullmatch(
        r"at most \d+ requests, \d+ prompt tokens and \d+ completion tokens, about \d+ s", lines[-1]
    )


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("OK", True),
        (" OK\n", True),
        ("OK.", True),
        ("OK!", True),
        ("OK!!", False),
        ("ok", False),
        ("OK OK", False),
    ],
)
def test_the_answer_must_be_the_text_itself(text: str, matches: bool) -> None:
    assert is_exactly(text, "OK") is matches


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("323", True),
        ("It is 323.", True),
        ("323, as said", True),
        ("=323", True),
        ("**323**", True),
        ("3232323", False),
        ("1323", False),
        ("323.5", False),
        ("0.323", False),
        ("323,000", False),
        ("x323y", False),
    ],
)
def test_a_value_must_stand_alone(text: str, matches: bool) -> None:
    assert holds_word(text, "323") is matches


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        pytest.param([], False, id="none"),
        pytest.param([{"logprob": -0.01}, {"logprob": 0.0}], False, id="healthy"),
        pytest.param([{"logprob": -0.01}, {}], True, id="missing"),
        pytest.param([{"logprob": "NaN"}], True, id="text"),
        pytest.param(
            [{"logprob": -7.6, "top_logprobs": [{"logprob": -7.6}] * 2}], False, id="too-few-to-call-flat"
        ),
        pytest.param([{"logprob": -7.6, "top_logprobs": [{"logprob": -7.6}] * 3}], True, id="flat"),
    ],
)
def test_logprobs_show_nan(entries: list[dict[str, object]], found: bool) -> None:
    assert (judge_logprobs(entries) is not None) is found


def test_the_documented_profile_is_valid() -> None:
    text = str(model_profile_module.__doc__).split("```yaml\n")[1].split("```")[0]
    profile = read_model_profile(yaml.safe_load(text))
    assert profile.served_name == "tiny-qwen3"
    assert profile.smoke.answer.max_tokens == 16
    assert profile.smoke.throughput.min_tokens_per_second is None


@pytest.mark.parametrize(("on", "off"), [("on", "off"), (True, False), ("true", "false"), ("True", "False")])
def test_a_switch_may_arrive_as_yaml_or_ansible_reads_it(on: object, off: object) -> None:
    section: Any = deepcopy(GATE) | {"thinking": {on: {"reasoning_effort": "high"}, off: {}}}
    profile = read_model_profile({"gate": section})
    assert (profile.thinking_on, profile.thinking_off) == ({"reasoning_effort": "high"}, {})


def test_the_defaults_are_valid() -> None:
    assert read_model_profile(None).deadline_s == 300


def test_keys_of_others_at_the_top_are_left_alone() -> None:
    assert (
        read_model_profile({"gate": GATE, "checkpoint": {"repo": "x"}, "served_name": None}).served_name
        is None
    )


def test_a_model_without_thinking_needs_no_thinking_question() -> None:
    section: Any = deepcopy(GATE) | {"thinking": None}
    assert read_model_profile({"gate": section}).smoke.thinking is None
    del section["smoke"]["thinking"]
    profile = read_model_profile({"gate": section})
    assert (profile.thinking, profile.thinking_on, profile.thinking_off) == (None, {}, {})


WRONG_PROFILES = {
    "list": ("", [], "must be a mapping, not list"),
    "no-gate": ("gate", None, "gate is missing"),
    "gate-list": ("gate", [], "gate must be a mapping"),
    "served-name": ("served_name", 7, "served_name must be a text"),
    "deadline-text": ("gate.deadline_s", "120", "gate.deadline_s must be a number above 0"),
    "deadline-zero": ("gate.deadline_s", 0, "gate.deadline_s must be a number above 0"),
    "timeout-infinite": ("gate.request_timeout_s", float("inf"), "gate.request_timeout_s must be a number"),
    "timeout-boolean": ("gate.request_timeout_s", True, "gate.request_timeout_s must be a number"),
    "unknown-key": ("gate.deadlines", 1, "unknown key gate.deadlines"),
    "unknown-check": ("gate.smoke.aritmetic", {}, "unknown key gate.smoke.aritmetic"),
    "unknown-field": ("gate.smoke.answer.temperature", 1, "unknown key gate.smoke.answer.temperature"),
    "no-smoke": ("gate.smoke", None, "gate.smoke is missing"),
    "no-answer": ("gate.smoke.answer", None, "gate.smoke.answer is missing"),
    "blank-prompt": ("gate.smoke.answer.prompt", " ", "gate.smoke.answer.prompt must be a text"),
    "expect-number": (
        "gate.smoke.arithmetic.expect",
        323,
        "gate.smoke.arithmetic.expect must be a text, not 323",
    ),
    "tokens-fraction": (
        "gate.smoke.thinking.max_tokens",
        1.5,
        "gate.smoke.thinking.max_tokens must be a whole number",
    ),
    "min-above-max": (
        "gate.smoke.throughput.min_tokens",
        513,
        "gate.smoke.throughput.min_tokens must not be above",
    ),
    "bar-zero": (
        "gate.smoke.throughput.min_tokens_per_second",
        0,
        "min_tokens_per_second must be a number above 0",
    ),
    "thinking-text": ("gate.thinking", "on", "gate.thinking must be a mapping"),
    "thinking-half": ("gate.thinking", {"on": {}}, "gate.thinking.off is missing"),
    "thinking-null-fields": (
        "gate.thinking.on",
        None,
        "gate.thinking.on must be a mapping of request fields",
    ),
    "temperature": (
        "gate.thinking.on.temperature",
        1,
        "gate.thinking.on.temperature is the gate's own to set",
    ),
    "thinking-question-null": ("gate.smoke.thinking", None, "gate.smoke.thinking is missing"),
}


@pytest.mark.parametrize(("path", "value", "message"), WRONG_PROFILES.values(), ids=WRONG_PROFILES.keys())
def test_a_wrong_profile_is_refused_by_key(path: str, value: object, message: str) -> None:
    document: Any = {"served_name": "tiny-qwen3", "gate": deepcopy(GATE)}
    *parents, last = path.split(".") if path else [""]
    target = document
    for parent in parents:
        target = target[parent]
    target[last] = value
    with pytest.raises(UsageError, match="model profile: ") as caught:
        read_model_profile(document if path else value)
    assert message in str(caught.value)


@pytest.mark.parametrize("key", ["thinking", "smoke"])
def test_a_missing_key_is_named(key: str) -> None:
    section = {name: value for name, value in GATE.items() if name != key}
    with pytest.raises(UsageError, match=f"gate.{key} is missing"):
        read_model_profile({"gate": section})


def test_a_thorough_run_takes_what_full_says() -> None:
    document = {"gate": deepcopy(GATE) | {"lengths": [1, 8], "full": {"lengths": [1, 8, 64]}}}
    assert read_model_profile(document).probes.lengths == (1, 8)
    assert read_model_profile(document, thorough=True).probes.lengths == (1, 8, 64)
    url = "http://node"
    for run_profile, lengths in {"quick": (1, 8), "full": (1, 8, 64), "soak": (1, 8, 64)}.items():
        settings = make_settings(url=url, model_profile=document, profile=run_profile)
        assert settings.model_profile.probes.lengths == lengths


@pytest.mark.parametrize(
    ("full", "message"),
    [
        ([], "gate.full must be a mapping, not list"),
        ({"lenghts": [1]}, "unknown key gate.lenghts"),
        ({"full": {}}, "unknown key gate.full"),
    ],
)
def test_a_quick_run_checks_what_full_says(full: object, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        read_model_profile({"gate": deepcopy(GATE) | {"full": full}})
