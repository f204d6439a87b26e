"""Verdicts: a launch is judged by the catalogue, what was not seen is not good, what is shipped is right."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from plan import profile_launch
from rendered import rendered_commands
from run_play import run_play
from sglang_parser import FOLDER, ask_parser
from stacks import schema_problems, stack_lines
from verdicts import (
    VERSIONS,
    candidates,
    finding_lines,
    flat,
    gpu_facts,
    holds,
    in_ranges,
    judge_launch,
    option_texts,
    sample_values,
    strict_gate,
    verdict_facts,
    verdict_problems,
    verdict_table,
)

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "catalog/backends.yml").read_text()
SHIPPED: dict[str, Any] = yaml.safe_load(TEXT)
ENTRIES: list[dict[str, Any]] = SHIPPED["verdicts"]
OPTIONS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
each_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["id"])

SMALL = """---
gpus:
  RTX 1: {gpu: sm_120, link: pcie}
aliases:
  tp_size: [tensor_parallel_size]
verdicts:
  - id: runner-fast
    verdict: bad
    effect: garbage
    when: {options: {runner: fast}, gpu: sm_120, sglang: "<0.5.10"}
    reason: it has no kernel there
    instead: [{options: {runner: safe}}]
    evidence: founding
    sources: [https://example.org/fast]
  - id: runner-fast-later
    verdict: good
    when: {options: {runner: fast}, gpu: sm_120, sglang: ">=0.5.23"}
    reason: it has one now
    evidence: merged
    sources: [https://example.org/now]
  - id: depth
    verdict: unknown
    effect: crash
    when: {options: {depth: {above: 3}}}
    reason: one says so, one says no
    evidence: reported
    disagree: {good: [https://example.org/g], bad: [https://example.org/b]}
"""
DATA: dict[str, Any] = yaml.safe_load(SMALL)
FACTS = {"gpu": "sm_120", "sglang": "0.5.9"}


def problems(text: str) -> list[str]:
    """What the plan says of a file: the schema first, then what it cannot see."""
    where = "catalog/backends.yml"
    found = schema_problems(text, where, "backends.schema.json")
    return found or verdict_problems(yaml.safe_load(text), stack_lines(text))


def levels(findings: list[dict[str, str]]) -> dict[str, str]:
    return {found["id"]: found["level"] for found in findings}


# --- conditions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "value", "right"),
    [
        pytest.param("auto", "auto", True, id="equal"),
        pytest.param("NEXTN", "nextn", True, id="another case"),
        pytest.param("auto", None, False, id="left out is no value"),
        pytest.param(None, None, True, id="left out"),
        pytest.param(None, "auto", False, id="set is not left out"),
        pytest.param(["auto", None], None, True, id="one of a list"),
        pytest.param(True, "true", True, id="a bare flag"),
        pytest.param(8, "8", True, id="a number"),
        pytest.param({"above": 3}, "4", True, id="above"),
        pytest.param({"above": 3}, "3", False, id="the bound is not above"),
        pytest.param({"above": 3}, None, False, id="left out is above nothing"),
        pytest.param({"above": 3}, "many", False, id="no number is above nothing"),
        pytest.param({"not": ["bf16"]}, None, True, id="left out is not bf16"),
        pytest.param({"not": [None]}, "x", True, id="set"),
        pytest.param({"not": [None]}, None, False, id="not set"),
        pytest.param({"has": "segments:true"}, "a:1,segments:True", True, id="part of a value"),
        pytest.param({"has": "segments"}, None, False, id="part of nothing"),
    ],
)
def test_a_setting_keeps_to_a_condition(condition: Any, value: str | None, right: bool) -> None:
    assert holds(condition, value) is right


@pytest.mark.parametrize(
    ("ranges", "version", "right"),
    [
        ("<0.6.7", "0.6.5", True),
        ("<0.6.7", "0.6.7.post2", False),
        (["<0.6.8", ">=0.6.11"], "0.6.12", True),
        (["<0.6.8", ">=0.6.11"], "0.6.9", False),
        (">=9.13", "9.19.1.2", True),
        (">=0.6.16,<0.6.18", "0.6.16.post4", True),
        (">=0.5.10", "0.5.9+cu130", False),
        ("<1", "none", False),
        ("<1", "main", None),
    ],
)
def test_versions_are_compared_as_versions(ranges: Any, version: str, right: bool | None) -> None:
    assert in_ranges(ranges, version) is right


@pytest.mark.parametrize(
    ("launch", "texts"),
    [
        ({"tp_size": 8}, {"tp_size": "8"}),
        ({"tensor_parallel_size": 8}, {"tp_size": "8"}),
        ({"tp": 8}, {"tp_size": "8"}),
        ({"tensor_par": 8}, {"tp_size": "8"}),
        ({"runn": "fast"}, {"runner": "fast"}),
        ({"other": [1, 2]}, {"other": "1 2"}),
        ({"other": True, "off": False, "none": None}, {"other": "true"}),
    ],
)
def test_another_spelling_of_an_option_is_the_same_option(
    launch: dict[str, Any], texts: dict[str, str]
) -> None:
    assert option_texts(launch, DATA) == texts


# --- judging -------------------------------------------------------------------------------------


def test_bad_is_refused_with_what_happens_why_and_the_nearest_good_choice() -> None:
    (found,) = judge_launch({"runner": "fast"}, FACTS, DATA)
    assert (found["level"], found["id"], found["verdict"]) == ("refuse", "runner-fast", "bad")
    assert found["text"] == (
        "runner fast: bad, it starts, is healthy, and answers garbage. it has no kernel there (runner-fast; "
        "https://example.org/fast). Take runner: safe instead, or answer for it with "
        "backend_overrides: {runner-fast: WHY}"
    )


def test_time_moves_the_truth() -> None:
    told = {
        version: levels(judge_launch({"runner": "fast"}, FACTS | {"sglang": version}, DATA))
        for version in ("0.5.9", "0.5.16", "0.5.23")
    }
    assert told == {
        "0.5.9": {"runner-fast": "refuse"},
        "0.5.16": {},
        "0.5.23": {"runner-fast-later": "good"},
    }


def test_disagreeing_sources_are_both_named_and_only_warn() -> None:
    (found,) = judge_launch({"depth": 5}, {}, DATA)
    assert (found["level"], found["verdict"]) == ("warn", "unknown")
    assert "the sources disagree" in found["text"]
    assert "https://example.org/g https://example.org/b" in found["text"]
    assert strict_gate([found])


def test_what_was_not_seen_is_neither_good_nor_passed_over() -> None:
    (found,) = judge_launch({"runner": "fast"}, {"gpu": "sm_120"}, DATA)
    assert (found["level"], found["id"]) == ("warn", "runner-fast")
    assert "not judged, since not seen: sglang" in found["text"]
    (found,) = judge_launch({"runner": "fast"}, {"sglang": "0.5.9"}, DATA)
    assert "not seen: gpu" in found["text"]
    assert judge_launch({"runner": "fast"}, {"sglang": "0.5.23"}, DATA) == []


def test_a_version_that_cannot_be_compared_was_not_seen() -> None:
    (found,) = judge_launch({"runner": "fast"}, FACTS | {"sglang": "main"}, DATA)
    assert "not seen: sglang" in found["text"]


def test_a_cpu_is_known_from_the_launch() -> None:
    assert judge_launch({"runner": "fast", "device": "cpu"}, FACTS, DATA) == []


def test_the_launch_is_not_changed() -> None:
    launch, facts, data = {"runner": "fast", "tp": 8}, dict(FACTS), copy.deepcopy(DATA)
    judge_launch(launch, facts, data, environment={"A": 1}, overrides={"runner-fast": "me"})
    assert (launch, facts, data) == ({"runner": "fast", "tp": 8}, FACTS, DATA)


def test_the_worst_comes_first() -> None:
    launch = {"runner": "fast", "depth": 5}
    told = judge_launch(launch, FACTS, DATA, overrides={"nothing": "x"})
    assert [found["level"] for found in told] == ["refuse", "refuse", "warn"]
    assert strict_gate(told)
    assert not strict_gate([])


def test_a_choice_that_is_bad_here_is_not_named_as_good() -> None:
    data = copy.deepcopy(DATA)
    data["verdicts"][0]["instead"] = [{"options": {"runner": "slow"}}, {"options": {"runner": "safe"}}]
    slow = data["verdicts"][0] | {"id": "slow", "when": {"options": {"runner": "slow"}, "gpu": "sm_120"}}
    data["verdicts"].append(slow)
    (found,) = judge_launch({"runner": "fast"}, FACTS, data)
    assert "Take runner: safe instead" in found["text"]
    (other,) = judge_launch({"runner": "slow"}, FACTS, data)
    assert "Take runner: safe instead" in other["text"]
    data["verdicts"][0]["instead"] = data["verdicts"][0]["instead"][:1]
    (found,) = judge_launch({"runner": "fast"}, FACTS, data)
    assert "Instead: runner: slow, which is bad as well with what else this launch has" in found["text"]


# --- overrides -----------------------------------------------------------------------------------


def test_an_override_is_shown_and_makes_the_gate_strict() -> None:
    told = judge_launch(
        {"runner": "fast"}, FACTS, DATA, overrides={"runner-fast": "the platform team: patched kernel"}
    )
    assert levels(told) == {"runner-fast": "override"}
    assert told[0]["text"].endswith("Overridden: the platform team: patched kernel")
    assert "backend_overrides" not in told[0]["text"]
    assert strict_gate(told)
    lines = finding_lines(told)
    assert lines[0].startswith("OVERRIDDEN: runner fast: bad,")
    assert lines[1].startswith("the gate is strict")
    assert finding_lines(told, strict=False) == lines[:1]


def test_an_override_lets_its_own_entry_pass_and_no_other() -> None:
    data = copy.deepcopy(DATA)
    data["verdicts"].append(data["verdicts"][0] | {"id": "twin"})
    told = judge_launch({"runner": "fast"}, FACTS, data, overrides={"twin": "the platform team"})
    assert levels(told) == {"runner-fast": "refuse", "twin": "override"}


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (
            {"runner-fats": "x"},
            "runner-fats: no such entry in catalog/backends.yml; did you mean 'runner-fast'?",
        ),
        ({"xyz": "x"}, "xyz: no such entry in catalog/backends.yml"),
        ({"depth": "x"}, "depth: the entry does not hold of this launch; take the override out"),
        ({"runner-fast": ""}, "runner-fast: say who answers for it and why, in words, not ''"),
        ({"runner-fast": True}, "runner-fast: say who answers for it and why, in words, not True"),
        (["runner-fast"], "must be a mapping of entry to reason, not list"),
    ],
)
def test_an_override_that_overrides_nothing_is_refused(overrides: Any, problem: str) -> None:
    told = judge_launch({"runner": "fast"}, FACTS, DATA, overrides=overrides)
    refused = [found["text"] for found in told if found["level"] == "refuse"]
    assert any(problem in text for text in refused)
    assert "override" not in levels(told).values()


def test_an_override_that_an_upgrade_made_pointless_is_refused() -> None:
    newer = FACTS | {"sglang": "0.5.23"}
    told = judge_launch({"runner": "fast"}, newer, DATA, overrides={"runner-fast": "the platform team"})
    assert "does not hold of this launch" in told[0]["text"]
    told = judge_launch({"runner": "fast"}, newer, DATA, overrides={"runner-fast-later": "the platform team"})
    assert "says good, so there is nothing to override" in told[0]["text"]


def test_what_was_not_seen_can_be_answered_for() -> None:
    told = judge_launch({"runner": "fast"}, {}, DATA, overrides={"runner-fast": "the platform team"})
    assert levels(told) == {"runner-fast": "override"}


# --- what is wrong in the file -------------------------------------------------------------------


def test_the_small_file_is_right() -> None:
    assert problems(SMALL) == []


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        pytest.param(
            "    effect: garbage\n",
            "    efect: garbage\n",
            "9: verdicts[0]: unknown key 'efect'; did you mean 'effect'?",
            id="unknown key",
        ),
        pytest.param(
            "effect: garbage", "effect: sad", "9: verdicts[0].effect: must be what happens:", id="effect"
        ),
        pytest.param(
            "verdict: bad", "verdict: awful", "8: verdicts[0].verdict: must be good, bad or", id="verdict"
        ),
        pytest.param(
            "    reason: it has no kernel there\n",
            "",
            "7: verdicts[0]: reason is missing: what goes",
            id="no reason",
        ),
        pytest.param(
            "[https://example.org/fast]", "[x]", "14: verdicts[0].sources[0]: must be", id="no address"
        ),
        pytest.param(
            "when: {options", "when: {option", "10: verdicts[0].when: unknown key 'option'", id="when"
        ),
        pytest.param(
            "{above: 3}", "{over: 3}", "24: verdicts[2].when.options.depth: must be a value", id="condition"
        ),
        pytest.param(
            "gpu: sm_120, link", "gpu: 120, link", "3: gpus.RTX 1.gpu: must be", id="no architecture"
        ),
        pytest.param(
            "    effect: garbage\n",
            "",
            "7: runner-fast: effect is missing: what happens (crash,",
            id="no effect",
        ),
        pytest.param(
            "    instead: [{options: {runner: safe}}]\n",
            "",
            "7: runner-fast: instead is missing",
            id="no choice",
        ),
        pytest.param(
            "    verdict: good\n",
            "    verdict: good\n    effect: slow\n",
            "17: runner-fast-later: a good entry has no effect; take it out",
            id="a good entry with an effect",
        ),
        pytest.param(
            "    sources: [https://example.org/now]\n",
            "",
            "15: runner-fast-later: name sources, or disagree",
            id="no sources",
        ),
        pytest.param(
            "verdict: unknown",
            "verdict: bad\n    instead: [{options: {depth: 3}}]",
            "28: depth: sources that disagree make the verdict unknown, not bad",
            id="bad though sources disagree",
        ),
        pytest.param(
            'sglang: "<0.5.10"',
            'sglang: "0.5.9"',
            "10: runner-fast: sglang '0.5.9' is no range of versions",
            id="no range",
        ),
        pytest.param(
            'sglang: "<0.5.10"', 'sglang: "~=0.5"', "no range of versions", id="a range that is not plain"
        ),
        pytest.param(
            'sglang: "<0.5.10"',
            'sglang: ">=0.6,<0.5.10"',
            "10: runner-fast: sglang '>=0.6,<0.5.10' holds no version",
            id="impossible range",
        ),
        pytest.param(
            "id: depth",
            "id: runner-fast",
            "21: runner-fast: there is an entry of that id already, number 1",
            id="an id twice",
        ),
        pytest.param(
            '">=0.5.23"}',
            '">=0.5.9"}',
            "15: runner-fast-later says good of launches of which runner-fast says bad; set their versions",
            id="overlapping entries that contradict",
        ),
        pytest.param(
            "{runner: safe}",
            "{runner: fast}",
            "12: runner-fast: instead runner: fast is bad: see runner-fast",
            id="a choice that is bad",
        ),
        pytest.param(
            "{options: {runner: safe}}",
            "{versions: {sglang: '<0.5.9'}}",
            "12: runner-fast: instead sglang <0.5.9 is bad: see runner-fast",
            id="versions that are bad",
        ),
        pytest.param(
            "depth: {above: 3}",
            "tensor_parallel_size: {above: 3}",
            "24: depth: tensor_parallel_size is SGLang's other name; write tp_size",
            id="an entry about an alias",
        ),
        pytest.param(
            "tp_size: [tensor_parallel_size]",
            "tp_size: [tensor_parallel_size]\n  pp_size: [tensor_parallel_size]",
            "6: aliases: tensor_parallel_size stands for two options",
            id="an alias of two",
        ),
    ],
)
def test_what_is_wrong_in_the_file_is_said_in_one_line_with_its_place(
    old: str, new: str, wanted: str
) -> None:
    assert old in SMALL
    told = problems(SMALL.replace(old, new, 1))
    assert any(wanted in line for line in told), told
    assert all(re.match(r"catalog/backends\.yml:\d+: ", line) and "\n" not in line for line in told)


@pytest.mark.parametrize(
    ("one", "other", "contradict"),
    [
        ({"options": {"a": "x"}}, {"options": {"a": "x"}}, True),
        ({"options": {"a": "x"}}, {"options": {"a": ["y", None]}}, False),
        ({"options": {"a": {"above": 2}}}, {"options": {"a": {"above": 5}}}, True),
        ({"options": {"a": {"not": ["x"]}}}, {"options": {"a": "x"}}, False),
        ({"options": {"a": "x"}, "gpu": "sm_120"}, {"options": {"a": "x"}, "gpu": "sm_100"}, False),
        ({"options": {"a": "x"}, "sglang": "<0.5.10"}, {"options": {"a": "x"}, "sglang": ">=0.5.10"}, False),
        ({"options": {"a": "x"}, "sglang": "<=0.5.10"}, {"options": {"a": "x"}, "sglang": ">=0.5.10"}, True),
        ({"options": {"a": "x"}, "cudnn": "<9"}, {"options": {"a": "x"}, "sglang": ">=0.5.10"}, True),
        ({"gpu": "sm_120"}, {"options": {"a": "x"}}, True),
        ({"options": {"a": "x", "b": 1}}, {"options": {"a": "x"}}, False),
    ],
    ids=range(10),
)
def test_a_bad_and_a_good_entry_contradict_where_both_can_hold(
    one: Any, other: Any, contradict: bool
) -> None:
    data = copy.deepcopy(DATA)
    bad, good, _depth = data["verdicts"]
    bad["when"], good["when"] = one, other
    bad["instead"] = [{"text": "none"}]
    data["verdicts"] = [bad, good]
    told = verdict_problems(data, {})
    assert (len(told) == 1 and "says good of launches of which" in told[0]) is contradict, told


def test_a_file_that_is_no_yaml_is_one_line() -> None:
    (told,) = problems(SMALL + "  - [\n")
    assert told.startswith("catalog/backends.yml:")


# --- facts ---------------------------------------------------------------------------------------

STACK: dict[str, Any] = {
    "sglang": {"version": "0.5.9"},
    "flashinfer": {"version": "0.6.3"},
    "kernel": {"wheel": {"name": "sgl-kernel", "version": "0.3.21"}},
}
LOCK = {
    "wheels": [
        {"name": "sglang", "version": "0.5.9"},
        {"name": "flashinfer_python", "version": "0.6.5"},
        {"name": "nvidia-cudnn-cu12", "version": "9.10.2.21"},
        {"name": "sgl-kernel", "version": "0.3.21"},
    ]
}


def test_before_a_lock_is_read_the_stack_names_the_versions() -> None:
    facts = verdict_facts(STACK, DATA)
    assert [facts[name] for name in VERSIONS] == ["0.5.9", "0.6.3", "0.3.21", None]
    commit = STACK | {"sglang": {"commit": "51e5dc845"}}
    assert verdict_facts(commit, DATA)["sglang"] is None


def test_a_lock_says_which_versions_there_are_and_what_is_not_there() -> None:
    facts = verdict_facts(STACK, DATA, lock=LOCK)
    assert [facts[name] for name in VERSIONS] == ["0.5.9", "0.6.5", "0.3.21", "9.10.2.21"]
    bare = {"sglang": {"version": "0.5.9"}, "kernel": {"stand_in": "x"}}
    facts = verdict_facts(bare, DATA, lock={"wheels": LOCK["wheels"][:1]})
    assert [facts[name] for name in VERSIONS] == ["0.5.9", "none", "none", "none"]


def test_an_empty_lock_says_nothing() -> None:
    assert verdict_facts(STACK, DATA, lock={"wheels": []})["cudnn"] is None


@pytest.mark.parametrize(
    ("gpus", "facts"),
    [
        ([{"name": "NVIDIA RTX 1 X", "compute_capability": "12.0"}], {"gpu": "sm_120", "link": "pcie"}),
        ([{"name": "RTX 1"}], {"gpu": "sm_120", "link": "pcie"}),
        ([{"name": "New", "compute_capability": "9.0"}], {"gpu": "sm_90", "link": None}),
        ([{"name": "New"}], {"gpu": None, "link": None}),
        ([{"name": "RTX 1"}, {"name": "New", "compute_capability": "9.0"}], {"gpu": None, "link": None}),
        ([], {"gpu": None, "link": None}),
    ],
    ids=["both", "by name", "by capability", "unknown", "mixed", "none"],
)
def test_gpus_are_known_by_capability_and_name(gpus: list[dict[str, str]], facts: dict[str, Any]) -> None:
    assert gpu_facts(gpus, DATA["gpus"]) == facts


def test_a_node_wins_over_what_the_profile_is_made_for() -> None:
    profile = {"hardware": {"gpu": "RTX 1", "count": 8}}
    before = verdict_facts(STACK, DATA, profile=profile)
    assert (before["gpu"], before["gpu_count"], before["link"]) == ("sm_120", "8", "pcie")
    node = {"gpus": [{"name": "New", "compute_capability": "9.0"}]}
    after = verdict_facts(STACK, DATA, profile=profile, node=node)
    assert (after["gpu"], after["gpu_count"], after["link"]) == ("sm_90", "1", None)


def checkpoint(**quantization: Any) -> dict[str, Any]:
    return {
        "quantization": {"method": None, "algorithm": None, "kv_cache": None} | quantization,
        "architecture": {"name": "Qwen3_5MoeForConditionalGeneration", "experts": 512},
        "kv_scales": {"state": "none"},
    }


@pytest.mark.parametrize(
    ("quantization", "method", "cache"),
    [
        ({"method": "modelopt", "algorithm": "NVFP4", "kv_cache": "fp8_e4m3"}, "modelopt_fp4", "fp8"),
        ({"method": "modelopt", "algorithm": "FP8"}, "modelopt_fp8", "model"),
        ({"method": "modelopt", "algorithm": "MIXED_PRECISION"}, "modelopt_mixed", "model"),
        ({"method": "compressed-tensors"}, "compressed-tensors", "model"),
        ({}, "none", "model"),
    ],
)
def test_a_checkpoint_says_how_it_is_quantised(quantization: Any, method: str, cache: str) -> None:
    facts = verdict_facts(STACK, DATA, checkpoint=checkpoint(**quantization))
    assert (facts["quantization"], facts["kv_cache"], facts["kv_scales"]) == (method, cache, "none")
    assert (facts["model"], facts["experts"]) == ("Qwen3_5MoeForConditionalGeneration", 512)


def test_a_model_is_dense_where_its_configuration_was_seen_and_names_no_experts() -> None:
    seen = checkpoint()
    seen["architecture"]["experts"] = None
    assert verdict_facts(STACK, DATA, checkpoint=seen)["experts"] == 0
    profile = {"architecture": {"name": "X"}}
    assert verdict_facts(STACK, DATA, profile=profile)["experts"] is None


def test_what_a_profile_claims_of_scales_is_no_fact() -> None:
    profile = {"kv_cache": {"scales": "all"}, "architecture": {"name": "X", "experts": 4}}
    facts = verdict_facts(STACK, DATA, profile=profile)
    assert (facts["kv_scales"], facts["quantization"], facts["model"], facts["experts"]) == (
        None,
        None,
        "X",
        4,
    )


# --- what is shipped -----------------------------------------------------------------------------


def sample(condition: Any) -> str | None:
    """A setting that keeps to a condition; one that is set, where the condition lets it be."""
    kept = [value for value in sample_values(condition) if holds(condition, value)]
    return next((value for value in reversed(kept) if value is not None), None)


def made_from(entry: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A launch, its environment and facts, of which an entry holds."""
    made: dict[str, dict[str, Any]] = {"options": {}, "environment": {}, "fact": {}}
    for (kind, name), condition in flat(entry).items():
        if kind == "fact" and name in VERSIONS:
            value = next(version for version in candidates(condition) if in_ranges(condition, version))
        else:
            value = sample(condition)
        made[kind][name] = value
    return made["options"], made["environment"], made["fact"]


def test_the_shipped_file_is_right() -> None:
    assert problems(TEXT) == []


@each_entry
def test_every_entry_can_hold_and_says_its_verdict(entry: dict[str, Any]) -> None:
    launch, environment, facts = made_from(entry)
    told = judge_launch(launch, facts, SHIPPED, environment=environment)
    (found,) = (found for found in told if found["id"] == entry["id"])
    assert found["level"] == {"good": "good", "bad": "refuse", "unknown": "warn"}[entry["verdict"]]
    assert "not judged" not in found["text"]
    assert "\n" not in found["text"]


@each_entry
def test_every_fact_of_an_entry_counts(entry: dict[str, Any]) -> None:
    launch, environment, facts = made_from(entry)
    if launch.get("quantization"):
        facts.pop("quantization", None)
    for name in facts:
        unseen = {key: value for key, value in facts.items() if key != name}
        told = judge_launch(launch, unseen, SHIPPED, environment=environment)
        found = [found for found in told if found["id"] == entry["id"]]
        if entry["verdict"] == "good":
            assert found == [], name
        else:
            assert [(each["level"], f"not seen: {name}" in each["text"]) for each in found] == [
                ("warn", True)
            ]
        other = judge_launch(
            launch,
            facts | {name: "none" if name in VERSIONS else "another"},
            SHIPPED,
            environment=environment,
        )
        assert entry["id"] not in levels(other), name


@each_entry
def test_every_setting_of_an_entry_counts(entry: dict[str, Any]) -> None:
    launch, environment, facts = made_from(entry)
    for kind, settings in (("options", launch), ("environment", environment)):
        for name in settings:
            condition = flat(entry)[kind, name]
            other = next(value for value in sample_values(condition) if not holds(condition, value))
            changed = {"options": dict(launch), "environment": dict(environment)}
            changed[kind][name] = other
            told = judge_launch(changed["options"], facts, SHIPPED, environment=changed["environment"])
            assert entry["id"] not in levels(told), name


@each_entry
def test_every_source_is_an_address(entry: dict[str, Any]) -> None:
    disagree = entry.get("disagree", {"good": [], "bad": []})
    sources = [*entry.get("sources", []), *disagree["good"], *disagree["bad"]]
    assert sources
    assert [url for url in sources if not re.fullmatch(r"https://[\w.-]+/[\w./-]+", url)] == []


@pytest.mark.parametrize("stack", ["cpu-demo", "cpu-demo-0.5.23"])
@pytest.mark.parametrize("model", ["tiny-qwen3", "tiny-qwen3-nan"])
def test_nothing_is_found_in_the_demo(stack: str, model: str) -> None:
    made = yaml.safe_load((ROOT / f"catalog/stacks/{stack}.yml").read_text())
    profile = yaml.safe_load((ROOT / f"catalog/models/{model}.yml").read_text())
    facts = verdict_facts(made, SHIPPED, profile=profile, node={"gpus": None})
    launch = profile_launch(profile, made)
    assert judge_launch(launch, facts, SHIPPED, environment=profile["environment"]) == []


# --- the founding deployment ---------------------------------------------------------------------

FOUNDING = {
    "tp_size": 8,
    "quantization": "modelopt_fp4",
    "moe_runner_backend": "flashinfer_cutlass",
    "fp4_gemm_backend": "flashinfer_cudnn",
    "kv_cache_dtype": "bf16",
    "attention_backend": "triton",
}
MARCH = {
    "gpu": "sm_120",
    "gpu_count": "8",
    "link": "pcie",
    "sglang": "0.5.9",
    "flashinfer": "0.6.5",
    "kernel": "0.3.21",
    "cudnn": "9.19.1.2",
    "quantization": "modelopt_fp4",
    "model": "Qwen3_5MoeForConditionalGeneration",
    "experts": 512,
    "kv_scales": "none",
    "kv_cache": "fp8",
}
SEPTEMBER = MARCH | {"sglang": "0.5.23", "flashinfer": "0.7.2", "kernel": "0.4.10"}
ENVIRONMENT = {"SGLANG_ENABLE_JIT_DEEPGEMM": "0", "MAX_JOBS": "8"}


def refused(launch: dict[str, Any], facts: dict[str, Any]) -> set[str]:
    told = judge_launch(launch, facts, SHIPPED, environment=ENVIRONMENT)
    return {found["id"] for found in told if found["level"] == "refuse"}


def test_what_served_right_is_known_good_and_needs_no_strict_gate() -> None:
    told = judge_launch(FOUNDING, MARCH, SHIPPED, environment=ENVIRONMENT)
    assert levels(told) == {
        "moe-cutlass-cudnn-founding": "good",
        "fp4-cudnn-sm120": "good",
        "kv-bf16": "good",
        "deepgemm-off-sm120": "good",
        "attention-triton-sm120": "good",
    }


@pytest.mark.parametrize(
    ("change", "entry"),
    [
        ({"moe_runner_backend": "flashinfer_trtllm"}, "moe-trtllm-sm120"),
        ({"moe_runner_backend": "flashinfer_cutedsl"}, "moe-cutedsl-sm120-0.5.9"),
        ({"moe_runner_backend": "auto"}, "moe-auto-sm120-0.5.9"),
        ({"moe_runner_backend": None}, "moe-auto-sm120-0.5.9"),
        ({"fp4_gemm_backend": "flashinfer_trtllm"}, "fp4-trtllm-sm120"),
        ({"fp4_gemm_backend": "flashinfer_cutlass"}, "fp4-cutlass-race-sm120"),
        ({"fp4_gemm_backend": None}, "fp4-default-sm120-0.5.9"),
        ({"kv_cache_dtype": "auto"}, "kv-auto-fp8-no-scales"),
        ({"kv_cache_dtype": None}, "kv-auto-fp8-no-scales"),
        ({"kv_cache_dtype": "fp8_e4m3"}, "kv-fp8-no-scales"),
        ({"ep_size": 8}, "ep-pcie-sm120"),
        ({"expert_parallel_size": 8}, "ep-pcie-sm120"),
    ],
    ids=str,
)
def test_what_the_founding_deployment_and_its_peers_learned_is_refused(
    change: dict[str, Any], entry: str
) -> None:
    assert refused(FOUNDING | change, MARCH) == {entry}


def test_the_automatic_choice_was_garbage_and_is_good_now() -> None:
    automatic = FOUNDING | {"moe_runner_backend": None, "fp4_gemm_backend": None}
    assert refused(automatic, MARCH) == {"moe-auto-sm120-0.5.9", "fp4-default-sm120-0.5.9"}
    told = judge_launch(automatic, SEPTEMBER, SHIPPED)
    assert levels(told) == {
        "moe-auto-sm120-0.5.23": "good",
        "fp4-auto-sm120-0.5.23": "good",
        "kv-bf16": "good",
        "attention-triton-sm120": "good",
    }


@pytest.mark.parametrize(
    ("flashinfer", "cudnn", "level"),
    [
        ("0.6.5", "9.19.1.2", {"fp4-cudnn-sm120": "good"}),
        ("0.6.5", "9.10.2.21", {"fp4-cudnn-old": "refuse"}),
        ("0.6.8.post1", "9.21.0", {"fp4-cudnn-override-sm120": "refuse"}),
        ("0.6.8.post1", "9.19.1.2", {}),
        ("0.6.11", "9.21.0", {"fp4-cudnn-sm120": "good"}),
    ],
)
def test_the_safe_backend_was_itself_wrong_for_a_while(
    flashinfer: str, cudnn: str, level: dict[str, str]
) -> None:
    launch = {"fp4_gemm_backend": "flashinfer_cudnn", "kv_cache_dtype": "nothing"}
    facts = MARCH | {"flashinfer": flashinfer, "cudnn": cudnn}
    told = levels(judge_launch(launch, facts, SHIPPED, environment=ENVIRONMENT))
    assert {name: each for name, each in told.items() if name.startswith("fp4-cudnn")} == level


def test_the_nearest_good_choice_is_good_with_the_versions_that_there_are() -> None:
    launch = FOUNDING | {"fp4_gemm_backend": "flashinfer_trtllm"}
    (found, *_) = judge_launch(launch, MARCH, SHIPPED, environment=ENVIRONMENT)
    assert "Take fp4_gemm_backend: flashinfer_cudnn instead" in found["text"]
    (found, *_) = judge_launch(launch, SEPTEMBER | {"cudnn": "9.10.2"}, SHIPPED)
    assert "Take fp4_gemm_backend: flashinfer_cutlass instead" in found["text"]


def test_speculation_needs_its_variable_on_one_version_and_must_not_have_it_on_another() -> None:
    launch = FOUNDING | {"speculative_algo": "NEXTN", "disable_radix_cache": True, "disable_cuda_graph": True}

    def told(facts: dict[str, Any], **environment: str) -> set[str]:
        findings = judge_launch(launch, facts, SHIPPED, environment=ENVIRONMENT | environment)
        return {found["id"] for found in findings if found["level"] == "refuse"}

    assert told(MARCH) == {"spec-v1-nextn"}
    assert told(MARCH, SGLANG_ENABLE_SPEC_V2="0") == {"spec-v1-nextn"}
    assert told(MARCH, SGLANG_ENABLE_SPEC_V2="True") == set()
    assert told(SEPTEMBER, SGLANG_ENABLE_SPEC_V2="True") == {"dead-spec-v2"}
    assert told(SEPTEMBER) == set()


# --- flags, by SGLang's own parser ---------------------------------------------------------------


def unreal(settings: dict[str, Any], options: dict[str, Any]) -> list[tuple[str, Any]]:
    """The options, and their values, that a parser does not take; null takes an option away."""
    found = []
    for name, condition in settings.items():
        values = [value for value in sample_values(condition)[2:] if holds(condition, value)]
        named = [] if isinstance(condition, dict) else [value for value in values if value != "True"]
        if name not in options:
            if condition is not None:
                found.append((name, (named or [sample(condition)])[0]))
        elif options[name]:
            found += [(name, value) for value in named if value not in options[name]]
    return found


def about_versions() -> list[Any]:
    """Each entry with each version that it is about."""
    return [
        pytest.param(entry, version, id=f"{entry['id']} {version}")
        for entry in ENTRIES
        for version in OPTIONS
        if in_ranges(entry["when"].get("sglang", ">0"), version)
    ]


@pytest.mark.parametrize(("entry", "version"), about_versions())
def test_every_flag_and_value_is_one_that_the_version_has(entry: dict[str, Any], version: str) -> None:
    """What a version's parser does not take, the catalogue itself must say that it refuses."""
    _launch, _environment, facts = made_from(entry)
    effects = {each["id"]: each.get("effect") for each in ENTRIES}
    for name, value in unreal(entry["when"].get("options", {}), OPTIONS[version]):
        setting = True if str(value).lower() == "true" else value
        told = judge_launch({name: setting}, facts | {"sglang": version}, SHIPPED)
        assert "refused" in {effects[each["id"]] for each in told if each["level"] == "refuse"}, (name, value)
    for choice in entry.get("instead", []):
        wanted = {name: value for name, value in choice.get("options", {}).items() if value is not None}
        assert unreal(wanted, OPTIONS[version]) == []


@pytest.mark.parametrize("version", OPTIONS)
def test_an_alias_is_another_name_that_some_version_has(version: str) -> None:
    for option, others in SHIPPED["aliases"].items():
        assert option in OPTIONS[version]
        assert [alias for alias in others if not any(alias in options for options in OPTIONS.values())] == []


@pytest.mark.parametrize("version", OPTIONS)
def test_no_option_of_sglang_is_taken_for_the_beginning_of_a_judged_one(version: str) -> None:
    judged = {option for entry in ENTRIES for option in entry["when"].get("options", {})}
    for name in OPTIONS[version]:
        told = option_texts({name: "x"}, SHIPPED)
        main = {alias: option for option, others in SHIPPED["aliases"].items() for alias in others}
        assert list(told) == [main.get(name, name)], f"{name} is not among {sorted(judged)}"


@pytest.mark.parametrize(
    ("profile", "version"),
    [(profile, version) for version in OPTIONS for profile in rendered_commands(version)],
)
def test_a_profile_renders_only_options_and_values_that_the_version_has(profile: str, version: str) -> None:
    known, option = OPTIONS[version], ""
    for word in rendered_commands(version)[profile]:
        if word.startswith("--"):
            option = word.removeprefix("--").replace("-", "_")
            assert option in known
        elif known[option]:
            assert word in known[option]


@pytest.mark.full
def test_the_options_are_those_of_sglangs_own_parser() -> None:
    pythons = [python for python in os.environ.get("SMOKESTACK_SGLANG", "").split(":") if python]
    if not pythons:
        pytest.skip("SMOKESTACK_SGLANG names no Python that has SGLang (two are parted by a colon)")
    for python in pythons:
        version, options = ask_parser(python)
        if version not in OPTIONS:
            pytest.skip(f"{python} has SGLang {version}; known are {', '.join(OPTIONS)}")
        assert options == OPTIONS[version]


# --- the table, and the plan ---------------------------------------------------------------------


def test_the_table_has_every_entry_in_a_row_of_its_own() -> None:
    head, _rule, *rows = verdict_table(SHIPPED).splitlines()
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [entry["id"] for entry in ENTRIES]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in (head, *rows)} == {7}


PLAY = """---
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {name: plan}
    - ansible.builtin.copy:
        content: "{{ {'verdicts': plan.verdicts, 'strict': plan.strict} | to_json }}"
        dest: FOLDER/plan.json
        mode: "0644"
      check_mode: false
"""
STAND_IN = """#!/usr/bin/python
# A stand-in for the module host_facts: a node with eight GPUs.
from ansible.module_utils.basic import AnsibleModule
GPU = {"name": "NVIDIA RTX PRO 6000 Blackwell", "memory_gib": 95.6, "compute_capability": "12.0"}
FACTS = {"distribution": "debian", "version": "12", "abi": "cp311", "platform": "linux_x86_64"}
FACTS |= {"systemd": True, "gpus": [GPU] * 8}
AnsibleModule(argument_spec={}, supports_check_mode=True).exit_json(changed=False, facts=FACTS)
"""


class Planner:
    """The role plan on this machine, in check mode, with a stand-in for the module that looks at the node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "library").mkdir()
        (folder / "library/host_facts.py").write_text(STAND_IN)
        shutil.copytree(ROOT / "catalog", folder / "catalog")
        profile = folder / "catalog/models/tiny-qwen3.yml"
        profile.write_text(
            profile.read_text().replace("\n  device: cpu\n", "\n  quantization: modelopt_fp4\n")
        )

    def __call__(self, **variables: Any) -> tuple[str, dict[str, Any]]:
        """What Ansible printed, and the plan's verdicts where there is a plan."""
        names = {"stack": "cpu-demo", "model_profile": "tiny-qwen3", "plan_catalog": f"{self.folder}/catalog"}
        play = PLAY.replace("FOLDER", str(self.folder))
        done = run_play(self.folder, play, names | variables, "--check")
        made = self.folder / "plan.json"
        assert made.is_file() == (done.returncode == 0), done.stdout + done.stderr
        return done.stdout, json.loads(made.read_text()) if made.is_file() else {}


@pytest.fixture
def planner(tmp_path: Path) -> Planner:
    return Planner(tmp_path)


SETTINGS = {"moe_runner_backend": "flashinfer_cutlass", "kv_cache_dtype": "bf16", "ep": 2}
VARIABLES = {"SGLANG_ENABLE_JIT_DEEPGEMM": "0"}


def test_the_plan_refuses_before_it_looks_at_a_node_what_is_bad_on_any(planner: Planner) -> None:
    said, plan = planner(sglang_server_environment={"SGLANG_DISABLE_DEEP_GEMM": "1"})
    assert "dead-disable-deep-gemm" in said
    assert "Look at the node" not in said
    assert plan == {}


def test_the_plan_refuses_what_is_bad_on_this_node(planner: Planner) -> None:
    said, plan = planner(sglang_server_options=SETTINGS, sglang_server_environment=VARIABLES)
    assert "Look at the node" in said
    assert "ep-pcie-sm120" in said
    assert plan == {}


def test_the_plan_shows_an_override_and_asks_for_a_strict_gate(planner: Planner) -> None:
    said, plan = planner(
        sglang_server_options=SETTINGS,
        sglang_server_environment=VARIABLES,
        backend_overrides={"ep-pcie-sm120": "the platform team: we have switches"},
    )
    assert levels(plan["verdicts"]) == {
        "ep-pcie-sm120": "override",
        "kv-bf16": "good",
        "deepgemm-off-sm120": "good",
    }
    assert plan["strict"] is True
    assert "OVERRIDDEN: ep_size 2" in said


def test_a_file_that_is_wrong_is_refused_by_the_plan_with_its_line(planner: Planner) -> None:
    file = planner.folder / "catalog/backends.yml"
    file.write_text(TEXT.replace("verdict: bad", "verdict: awful", 1))
    said, _plan = planner()
    assert re.search(r"catalog/backends\.yml:\d+: verdicts\[0\]\.verdict: must be good, bad or unknown", said)


PROFILES = sorted(path.stem for path in (ROOT / "catalog/models").glob("*.yml"))
STACKS = [path.stem for path in (ROOT / "catalog/stacks").glob("*.yml")]


@pytest.mark.parametrize("name", PROFILES)
def test_no_profile_that_is_shipped_is_refused_on_a_stack_that_it_is_for(name: str) -> None:
    profile = yaml.safe_load((ROOT / f"catalog/models/{name}.yml").read_text())
    judged = 0
    for stack_name in STACKS:
        stack = yaml.safe_load((ROOT / f"catalog/stacks/{stack_name}.yml").read_text())
        version = stack["sglang"].get("version")
        if not version or version not in SpecifierSet(profile.get("sglang", "")):
            continue
        facts = verdict_facts(stack, SHIPPED, profile=profile)
        launch, environment = profile_launch(profile, stack), profile.get("environment", {})
        findings = judge_launch(launch, facts, SHIPPED, environment=environment)
        assert [one["text"] for one in findings if one["level"] == "refuse"] == [], stack_name
        judged += 1
    assert judged
