"""The numeric probes against a toy model that can be broken: each fault is found and named where it shows."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import llm_stand_in as replies
import pytest
import yaml
from jsonschema import Draft202012Validator
from llm_gate import model_profile as model_profile_module
from llm_gate.errors import UsageError
from llm_gate.gate import make_settings, run_gate
from llm_gate.model_profile import read_model_profile
from llm_gate.neutral import filler
from llm_gate.probe_data import Bars, KvScales, read_question
from llm_gate.probes.concurrency import Text, Told, judge_acceptance, judge_answers, judge_texts
from llm_gate.probes.identity import judge_kv_scales, judge_settings
from llm_gate.profiles import PROFILES
from llm_gate.render import render_reports, table_lines
from llm_stand_in import StandIn, completion, json_reply

SCHEMA = json.loads(
    (Path(__file__).parents[3] / "module_utils" / "llm_gate" / "report.schema.json").read_text(
        encoding="utf-8"
    )
)
# Without a baseline there is nothing to compare with; what a talker answers has tests of its own.
FULL = tuple(probe for probe in PROFILES["full"] if probe not in {"golden", "template", "protocol"})


@pytest.fixture(autouse=True)
def numeric_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run these probes alone."""
    monkeypatch.setitem(PROFILES, "full", FULL)


def gate(stand_in: StandIn, profile: dict[str, Any]) -> dict[str, Any]:
    """A run's document, checked against the schema."""
    document = run_gate(make_settings(url=stand_in.url, model_profile=profile, profile="full"))
    Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(document, allow_nan=False)))
    return document


def verdicts(document: dict[str, Any]) -> dict[str, str]:
    return {probe["id"]: probe["verdict"] for probe in document["probes"]}


def bad(document: dict[str, Any]) -> dict[str, list[str]]:
    """The checks that did not pass, by probe."""
    found: dict[str, list[str]] = {}
    for probe in document["probes"]:
        for entry in probe["evidence"]:
            if entry["verdict"] not in ("pass", "skipped"):
                found.setdefault(probe["id"], []).append(entry["check"])
    return found


def evidence(document: dict[str, Any], probe: str, check: str) -> list[dict[str, str]]:
    (found,) = [entry for entry in document["probes"] if entry["id"] == probe]
    return [entry for entry in found["evidence"] if entry["check"] == check]


def reason(document: dict[str, Any], probe: str) -> str:
    (entry,) = [entry for entry in document["coverage"] if entry["id"] == probe]
    return str(entry["reason"])


def test_a_sound_server_passes_everything(stand_in: StandIn, profile: dict[str, Any]) -> None:
    profile["gate"]["copy"] = {"count": 16, "lengths": [400, 900]}
    document = gate(stand_in, profile)
    assert document["verdict"] == "pass", table_lines(document)
    assert list(verdicts(document)) == list(FULL)
    assert document["probes"][-2]["tokens"]["prompt"] == 1300
    assert stand_in.toy.most_scored <= 512


def test_everything_is_asked_at_temperature_0_and_nothing_is_flushed(
    stand_in: StandIn, profile: dict[str, Any]
) -> None:
    gate(stand_in, profile)
    bodies = [request.body for request in stand_in.requests if request.method == "POST"]
    temperatures = {
        body.get("sampling_params", body).get("temperature")
        for body in bodies
        if "add_special_tokens" not in body
    }
    assert temperatures == {0}
    assert not [request for request in stand_in.requests if "flush" in request.path]


def test_the_load_itself_goes_without_logprobs(stand_in: StandIn, profile: dict[str, Any]) -> None:
    gate(stand_in, profile)
    asked = [request.body for request in stand_in.asked("/generate")]
    assert all(body["sampling_params"]["max_new_tokens"] == 1 for body in asked if body.get("return_logprob"))
    assert any(body["sampling_params"]["max_new_tokens"] == 96 for body in asked)


def test_a_server_that_honours_namespaces_passes_with_a_growing_cache(
    stand_in: StandIn, profile: dict[str, Any]
) -> None:
    stand_in.toy.namespaces = True
    seen = set()
    stand_in.toy.fault = lambda at: bool(seen.add((at.rows, at.cached)))
    document = gate(stand_in, profile)
    assert document["verdict"] == "pass"
    # 300 tokens: all of them cold, then only those that 128 do not have.
    assert {(300, 0), (172, 128)} <= seen


@pytest.mark.parametrize("face", ["500", "null", "flat"])
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_nan_at_some_positions_is_named_and_ends_the_run(
    stand_in: StandIn, profile: dict[str, Any], face: Any, engine: str
) -> None:
    if engine == "vllm":
        stand_in.becomes_vllm()
    stand_in.toy.nan_face = face
    stand_in.toy.nan = lambda at: at.scored and at.position % 12 == 5
    document = gate(stand_in, profile)
    assert (document["verdict"], verdicts(document)["nan_scan"]) == ("fail", "fail")
    assert "NaN" in document["summary"]
    assert document["probes"][-1]["measured"]["scan"]["nan_positions"] >= 100
    assert document["probes"][-1]["hint"].startswith("NaN or all-zero logits")
    assert [probe["id"] for probe in document["probes"]] == ["smoke", "identity", "nan_scan"]
    assert reason(document, "lengths") == "nan_scan failed, so that later evidence would mean nothing"


def test_a_500_that_comes_now_and_then_is_an_error_and_not_nan(
    stand_in: StandIn, profile: dict[str, Any]
) -> None:
    def reply(handler: Any) -> None:
        asked = stand_in.asked("/generate")
        status, made = stand_in.toy.answer_generate(asked[-1].body)
        (json_reply({}, 500) if len(asked) == 3 else json_reply(made, status))(handler)

    stand_in.pages["/generate"] = reply
    document = gate(stand_in, profile)
    assert document["verdict"] == "error"
    assert [entry["rule"] for entry in evidence(document, "nan_scan", "scan")] == ["http-status"]


def test_a_500_that_comes_without_logprobs_too_is_an_error_and_not_nan(
    stand_in: StandIn, profile: dict[str, Any]
) -> None:
    stand_in.pages["/generate"] = replies.raw_reply(b"Internal Server Error", 500)
    document = gate(stand_in, profile)
    assert verdicts(document)["nan_scan"] == "error"
    assert "NaN" not in document["summary"]


def test_a_text_no_longer_known_by_heart_fails(stand_in: StandIn, profile: dict[str, Any]) -> None:
    text = filler(400)
    profile["gate"]["anchors"] = [{"name": "poem", "prefix": "Recite. ", "text": text}]
    unlearnt = gate(stand_in, profile)
    assert bad(unlearnt) == {"nan_scan": ["anchors"]}
    assert unlearnt["summary"].startswith("fail: nan_scan: poem: ")
    assert unlearnt["summary"].endswith("expected at most 0.5")
    stand_in.toy.learn(f"Recite. {text}")
    assert gate(stand_in, profile)["verdict"] == "pass"


def test_counting_that_costs_something_fails(stand_in: StandIn, profile: dict[str, Any]) -> None:
    stand_in.toy.fault = lambda at: at.scored and at.position % 40 == 39
    assert evidence(gate(stand_in, profile), "nan_scan", "counting")[0]["verdict"] == "fail"


def test_a_fault_at_one_prompt_length_is_found_at_that_length(
    stand_in: StandIn, profile: dict[str, Any]
) -> None:
    stand_in.toy.fault = lambda at: at.phase == "prefill" and at.rows == 300
    document = gate(stand_in, profile)
    assert bad(document) == {"lengths": ["absolute", "cache"]}
    assert "NLL at 300 (9.00) tokens" in document["summary"]


def test_a_length_counts_the_tokens_that_are_computed(stand_in: StandIn, profile: dict[str, Any]) -> None:
    """Where all prompts begin alike, that beginning comes from the cache and its rows are missing."""
    plain = stand_in.toy.answer_tokenize

    def with_start(body: dict[str, Any]) -> tuple[int, object]:
        prompt = body["prompt"]
        return plain({"prompt": f"<s>{prompt}" if body["add_special_tokens"] else prompt})

    stand_in.toy.answer_tokenize = with_start  # type: ignore[method-assign]
    assert gate(stand_in, profile)["verdict"] == "pass"
    stand_in.toy.fault = lambda at: at.phase == "prefill" and at.rows == 300
    document = gate(stand_in, profile)
    assert bad(document) == {"lengths": ["absolute", "cache"]}
    assert "NLL at 300 (9.00) tokens" in document["summary"]


def test_without_a_known_text_the_same_fault_still_shows_against_the_cache(
    stand_in: StandIn, profile: dict[str, Any]
) -> None:
    profile["gate"]["counting"] = None
    stand_in.toy.fault = lambda at: at.phase == "prefill" and at.rows == 300
    document = gate(stand_in, profile)
    assert bad(document) == {"lengths": ["cache"]}
    assert "no counting" in reason(document, "lengths")


def test_nan_at_one_prompt_length_is_named_with_it(stand_in: StandIn, profile: dict[str, Any]) -> None:
    stand_in.toy.nan = lambda at: at.phase == "prefill" and at.rows == 300
    document = gate(stand_in, profile)
    assert bad(document)["lengths"] == ["absolute"]
    assert "with prompts of 300 tokens" in document["summary"]


def test_the_prefill_chunk_is_crossed(stand_in: StandIn, profile: dict[str, Any]) -> None:
    page = {"version": "0.5.9", "speculative_algorithm": None, "chunked_prefill_size": 700}
    stand_in.pages["/server_info"] = json_reply(page)
    stand_in.toy.fault = lambda at: at.phase == "prefill" and at.rows == 701
    assert "NLL at 701 (9.00) tokens" in gate(stand_in, profile)["summary"]


@pytest.mark.parametrize("namespaces", [False, True])
def test_a_damaged_cache_is_found(stand_in: StandIn, profile: dict[str, Any], namespaces: bool) -> None:
    stand_in.toy.namespaces = namespaces
    stand_in.toy.fault = lambda at: at.scored and at.cached > 60 and at.position % 3 == 0
    document = gate(stand_in, profile)
    assert {"lengths", "prefix_cache"} <= bad(document).keys()
    assert bad(document)["prefix_cache"] == ["hit"]


def test_a_wrong_token_after_a_hit_is_found(stand_in: StandIn, profile: dict[str, Any]) -> None:
    stand_in.toy.fault = lambda at: at.phase == "decode" and at.cached == at.position - 1 == 192
    document = gate(stand_in, profile)
    assert bad(document) == {"prefix_cache": ["replay"]}
    assert "the same prompt again goes on in another way: after 193 tokens 'wrong" in document["summary"]


def test_an_answer_wrong_only_when_asked_again_is_found(stand_in: StandIn, profile: dict[str, Any]) -> None:
    asked: dict[str, int] = {}

    def reply(handler: Any) -> None:
        prompt = stand_in.asked("/v1/chat/completions")[-1].body["messages"][0]["content"]
        asked[prompt] = asked.get(prompt, 0) + 1
        text = replies.FACTS[prompt] if asked[prompt] == 1 else "banana"
        json_reply(completion(text))(handler)

    stand_in.chat["fact"] = reply
    document = gate(stand_in, profile)
    assert bad(document)["prefix_cache"] == ["repeat"]
    assert "answer 2 is 'banana', expected 'Paris'" in document["summary"]


def test_a_fault_of_decoding_is_found_by_scoring_what_was_decoded(
    stand_in: StandIn, profile: dict[str, Any]
) -> None:
    stand_in.toy.fault = lambda at: at.phase == "decode" and at.position % 5 == 0
    document = gate(stand_in, profile)
    assert bad(document)["rescore"] == ["regret", "regret"]
    assert "generated tokens are not the likeliest when scored" in document["summary"]
    assert document["probes"][4]["hint"].startswith("Generating takes another path")


def test_a_few_tokens_prove_nothing(stand_in: StandIn, profile: dict[str, Any]) -> None:
    profile["gate"]["continuation_tokens"] = 20
    document = gate(stand_in, profile)
    assert document["verdict"] == "pass"
    assert "only 40 tokens were generated" in reason(document, "rescore")


def test_a_server_that_generates_nothing_is_a_fault(stand_in: StandIn, profile: dict[str, Any]) -> None:
    scored = stand_in.toy.answer_generate

    def reply(body: dict[str, Any]) -> tuple[int, object]:
        if body.get("return_logprob"):
            return scored(body)
        return 200, {"text": "", "output_ids": [], "meta_info": {}}

    stand_in.toy.answer_generate = reply  # type: ignore[method-assign]
    assert bad(gate(stand_in, profile))["rescore"] == ["regret"]


def test_a_fault_beside_more_than_two_others_is_found_there(
    stand_in: StandIn, profile: dict[str, Any]
) -> None:
    stand_in.toy.pause = 0.05
    stand_in.toy.fault = lambda at: at.phase == "decode" and at.concurrency > 2
    document = gate(stand_in, profile)
    assert set(bad(document)["concurrency"]) == {"c5"}
    assert bad(document).keys() == {"concurrency"}


def test_wrong_answers_beside_others_are_found(stand_in: StandIn, profile: dict[str, Any]) -> None:
    def reply(handler: Any) -> None:
        asked = stand_in.asked("/v1/chat/completions")
        # The first rung and the smoke questions come before.
        text = "banana" if len(asked) > 45 else None
        prompt = asked[-1].body["messages"][0]["content"]
        json_reply(completion(text or replies.FACTS[prompt]))(handler)

    profile["gate"]["concurrency"] = [1, 2, 20]
    profile["gate"]["facts"] = profile["gate"]["facts"][:1]
    stand_in.chat["fact"] = reply
    document = gate(stand_in, profile)
    (entry,) = [one for one in evidence(document, "concurrency", "c20") if one["verdict"] == "fail"]
    assert entry["rule"] == "batch-answer"
    assert "'banana', expected 'Paris', at concurrency 20" in entry["text"]


def test_an_order_of_words_in_which_a_sound_model_slips_is_no_fault(
    stand_in: StandIn, profile: dict[str, Any]
) -> None:
    profile["gate"]["copy"] = {"count": 16, "lengths": [900]}
    seen = set()

    def first_time(at: Any) -> bool:
        new = at.position not in seen
        if 800 < at.rows <= 900:
            seen.add(at.position)
        return at.position > 800 and 800 < at.rows <= 900 and new

    stand_in.toy.fault = first_time
    document = gate(stand_in, profile)
    assert verdicts(document)["long_copy"] == "pass"
    (probe,) = [one for one in document["probes"] if one["id"] == "long_copy"]
    assert probe["measured"]["900"]["orders"] == 3
    assert "0.0100 nats a token, the median of 3 orders" in evidence(document, "long_copy", "900")[0]["text"]


def test_far_context_that_is_lost_is_found_at_its_length(stand_in: StandIn, profile: dict[str, Any]) -> None:
    profile["gate"]["copy"] = {"count": 16, "lengths": [400, 900, 9000]}
    stand_in.toy.fault = lambda at: at.position > 800 and 800 < at.rows <= 900
    document = gate(stand_in, profile)
    assert bad(document) == {"long_copy": ["900"]}
    assert document["probes"][-1]["measured"]["400"]["nll"] == pytest.approx(0.01)
    assert "9000 tokens not tested: prompts may have 4088 tokens at most" in reason(document, "long_copy")


def test_drafts_that_batches_spoil_are_found(stand_in: StandIn, profile: dict[str, Any]) -> None:
    stand_in.toy.pause = 0.05
    stand_in.toy.accept_length = lambda concurrency: 3.0 if concurrency < 2 else 1.4
    document = gate(stand_in, profile)
    assert bad(document)["concurrency"] == ["acceptance"]
    assert "3.00 alone, expected at least 85%" in document["summary"]


def test_a_server_that_dies_is_named_and_nothing_after_it_counts(
    stand_in: StandIn, profile: dict[str, Any]
) -> None:
    def die(request: replies.Request) -> None:
        if request.path == "/generate":
            for page in ("/generate", "/health", "/v1/models", "/tokenize"):
                stand_in.pages[page] = replies.close_at_once

    stand_in.after = die
    document = gate(stand_in, profile)
    assert document["verdict"] == "error"
    assert [probe["id"] for probe in document["probes"]] == ["smoke", "identity", "nan_scan"]
    assert evidence(document, "nan_scan", "nan_scan")[0]["rule"] == "server-died"
    assert reason(document, "long_copy") == "the server died during nan_scan"


def test_the_run_ends_with_its_deadline(stand_in: StandIn, profile: dict[str, Any]) -> None:
    profile["gate"] |= {"deadline_s": 1.5, "request_timeout_s": 60}
    stand_in.pages["/generate"] = replies.hang
    document = gate(stand_in, profile)
    assert document["duration_s"] < 3
    assert document["verdict"] == "error"
    assert reason(document, "lengths") == "the deadline of 1.5 s has passed"


def test_another_deployment_than_expected_ends_the_run(stand_in: StandIn, profile: dict[str, Any]) -> None:
    profile["gate"]["expect"] = {"version": "0.5.9", "tp_size": 8, "quantization": "modelopt_fp4"}
    document = gate(stand_in, profile)
    assert "tp_size is 1, expected 8" in document["summary"]
    assert "does not tell quantization" in reason(document, "identity")
    assert reason(document, "nan_scan") == "identity failed, so that later evidence would mean nothing"


def test_after_wrong_answers_only_what_explains_them_is_asked(
    stand_in: StandIn, profile: dict[str, Any]
) -> None:
    stand_in.chat["answer"] = json_reply(completion("KO"))
    document = gate(stand_in, profile)
    assert list(verdicts(document)) == ["smoke", "identity", "nan_scan"]
    assert document["summary"].startswith("fail: smoke: ")


def without_scoring(stand_in: StandIn, how: str) -> None:
    if how == "unknown-engine":
        stand_in.becomes_vllm()
        stand_in.pages["/v1/models"] = json_reply({"data": [{"id": "tiny-qwen3"}]})
    elif how == "no-server-info":
        stand_in.pages["/server_info"] = json_reply({"detail": "Not Found"}, 404)
    elif how == "eagle3":
        page = {"version": "0.5.9", "speculative_algorithm": "EAGLE3", "disable_overlap_schedule": False}
        stand_in.pages["/server_info"] = json_reply(page)
    elif how == "no-tokenizer-page":
        stand_in.pages["/tokenize"] = json_reply({"detail": "Not Found"}, 404)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("unknown-engine", "this engine offers no logprobs"),
        ("no-server-info", "does not say whether it speculates"),
        ("eagle3", "SGLang 0.5.9 with EAGLE3 and overlap crashes on logprob requests"),
        ("no-tokenizer-page", "does not offer POST /tokenize (HTTP 404)"),
    ],
)
def test_what_cannot_be_scored_stands_in_the_coverage_and_the_rest_is_tested(
    stand_in: StandIn, profile: dict[str, Any], how: str, why: str
) -> None:
    without_scoring(stand_in, how)
    document = gate(stand_in, profile)
    assert document["verdict"] == "pass", table_lines(document)
    for probe in ("nan_scan", "lengths", "rescore"):
        assert why in reason(document, probe)
    assert list(verdicts(document)) == ["smoke", "identity", "prefix_cache", "concurrency", "throughput"]
    assert not [request for request in stand_in.asked("/generate") if request.body.get("return_logprob")]


@pytest.mark.parametrize(
    ("algorithm", "version", "no_overlap"),
    [
        ("EAGLE", "0.5.9", False),
        ("EAGLE3", "0.5.9", True),
        ("EAGLE3", "0.5.23", False),
        (None, "0.5.9", False),
    ],
)
def test_speculation_as_such_is_no_obstacle(
    stand_in: StandIn, profile: dict[str, Any], algorithm: str | None, version: str, no_overlap: bool
) -> None:
    page = {"version": version, "speculative_algorithm": algorithm, "disable_overlap_schedule": no_overlap}
    stand_in.pages["/server_info"] = json_reply(page)
    assert verdicts(gate(stand_in, profile))["nan_scan"] == "pass"


def test_vllm_is_scored_as_well(stand_in: StandIn, profile: dict[str, Any]) -> None:
    stand_in.becomes_vllm()
    document = gate(stand_in, profile)
    assert document["verdict"] == "pass", table_lines(document)
    assert list(verdicts(document)) == [probe for probe in FULL if probe != "long_copy"]
    assert "does not read its cache" in reason(document, "prefix_cache")


@pytest.mark.parametrize(
    "reply",
    [
        [],
        {},
        {"meta_info": []},
        {"meta_info": {"input_token_logprobs": "x", "input_top_logprobs": []}},
        {"meta_info": {"input_token_logprobs": [[None, 1], 7], "input_top_logprobs": [None, []]}},
        {"meta_info": {"input_token_logprobs": [[None, 1]], "input_top_logprobs": [None]}},
        {"output_ids": "x", "meta_info": {}},
    ],
    ids=["list", "empty", "no-object", "no-list", "no-entry", "too-few", "no-ids"],
)
def test_a_malformed_scoring_reply_is_an_error(
    stand_in: StandIn, profile: dict[str, Any], reply: object
) -> None:
    stand_in.pages["/generate"] = json_reply(reply)
    document = gate(stand_in, profile)
    assert verdicts(document)["nan_scan"] == "error"
    assert "bug" not in document["summary"]


def test_the_reports_show_every_probe(stand_in: StandIn, profile: dict[str, Any]) -> None:
    document = gate(stand_in, profile)
    reports = render_reports(document)
    for probe in verdicts(document):
        assert all(probe in text for text in [*reports.values(), "\n".join(table_lines(document))])
    metrics = reports["gate.prom"]
    assert "llm_gate_nan_positions 0\n" in metrics
    assert 'llm_gate_nll_nats{domain="counting"} 0.01\n' in metrics
    assert 'llm_gate_nll_nats{domain="length_300"} 0.01\n' in metrics
    assert 'llm_gate_regret_ratio{concurrency="5"} 0.0\n' in metrics
    assert 'llm_gate_logprob_delta_trimmed_mean{arm="lengths"} 0.0\n' in metrics


# The plan.


# Reading the profile.


def test_the_documented_keys_are_the_defaults() -> None:
    text = str(model_profile_module.__doc__).split("```yaml more\n")[1].split("```")[0]
    documented = yaml.safe_load(text)["gate"]
    section: Any = deepcopy(model_profile_module.GATE)
    read = read_model_profile({"gate": section | documented}).probes
    for absent in ("counting", "facts"):
        section.pop(absent)
    default = read_model_profile({"gate": section}).probes
    for name in ("lengths", "concurrency", "continuation_tokens", "filler", "context_length", "speed"):
        assert getattr(read, name) == getattr(default, name)
    assert read.copy is not None
    assert (read.copy.head, read.copy.after, read.copy.repeat) == (
        "The words are: ",
        ".\n\n",
        "\n\nThe words are: ",
    )
    assert (default.counting, default.facts, default.copy, default.anchors) == (None, (), None, ())


WRONG = {
    "unknown-bar": ({"bars": {"regret": 1}}, "unknown key gate.bars.regret"),
    "bar-text": ({"bars": {"length_nll": "low"}}, "gate.bars.length_nll must be a number, not 'low'"),
    "expect-unknown": ({"expect": {"api_key": "x"}}, "unknown key gate.expect.api_key"),
    "expect-list": ({"expect": {"tp_size": [1]}}, "gate.expect.tp_size must be a plain value, not list"),
    "scales": ({"kv_scales": {"shipped": "no"}}, "gate.kv_scales.shipped must be true or false"),
    "scales-otherwise": ({"kv_scales": {"shipped": False, "otherwise": "pass"}}, "must be warn or fail"),
    "anchor-blank": ({"anchors": [{"name": "a", "text": " "}]}, "gate.anchors[0].text must be a text"),
    "anchor-twice": ({"anchors": [{"name": "a", "text": "b"}] * 2}, "two anchors of one name"),
    "counting-share": ({"counting": {"min_top1": 99}}, "gate.counting.min_top1 must not be above 1"),
    "lengths-order": ({"lengths": [8, 4]}, "gate.lengths must ascend"),
    "lengths-empty": ({"lengths": []}, "gate.lengths must be a list of at least 1"),
    "concurrency-zero": ({"concurrency": [0]}, "gate.concurrency[0] must be a whole number of at least 1"),
    "too-many-scored": ({"continuation_tokens": 513}, "gate.continuation_tokens must not be above 512"),
    "fact-number": ({"facts": [{"prompt": "a", "expect": 1}]}, "gate.facts[0].expect must be a text, not 1"),
    "copy-no-lengths": ({"copy": {}}, "gate.copy.lengths is missing"),
    "copy-few-words": ({"copy": {"words": ["a", "b"], "lengths": [9]}}, "gate.copy.count must not be above"),
    "copy-bars": (
        {"copy": {"lengths": [9], "fail_nll": 0.1}},
        "gate.copy.fail_nll must not be below max_nll",
    ),
    "no-continuation": ({"continuations": []}, "gate.continuations must be a list of at least 1"),
    "speed": ({"speed": {"decode": 0}}, "gate.speed.decode must be a number above 0"),
}


@pytest.mark.parametrize(("section", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_key_is_refused(section: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match="model profile: ") as caught:
        read_model_profile({"gate": deepcopy(model_profile_module.GATE) | section})
    assert message in str(caught.value)


def test_facts_default_to_the_smoke_questions() -> None:
    section: Any = deepcopy(model_profile_module.GATE) | {"facts": []}
    assert [fact.expect for fact in read_model_profile({"gate": section}).facts] == ["OK", "323"]


def test_filler_does_not_repeat_itself() -> None:
    sentences = filler(200_000).split(". ")
    assert len(set(sentences)) == len(sentences)


# The judgements.


@pytest.mark.parametrize(
    ("dtype", "scales", "verdict"),
    [
        (None, None, "skipped"),
        ("auto", KvScales(False, "fail"), "pass"),
        ("fp8_e4m3", None, "skipped"),
        ("fp8_e4m3", KvScales(True, "fail"), "pass"),
        ("fp8_e4m3", KvScales(False, "warn"), "warn"),
        ("fp8_e4m3", KvScales(False, "fail"), "fail"),
    ],
)
def test_an_fp8_cache_needs_scales(dtype: str | None, scales: KvScales | None, verdict: str) -> None:
    assert judge_kv_scales(dtype, scales)[0] == verdict


def test_an_unset_value_may_be_expected() -> None:
    judged = judge_settings({"speculative_algorithm": "EAGLE"}, {"speculative_algorithm": None}, ("m",), None)
    assert judged == [("fail", "speculative_algorithm is 'EAGLE', expected None")]


def told(right: list[bool]) -> list[Told]:
    facts = read_model_profile(None).facts
    return [Told(facts[number % len(facts)], "x", value) for number, value in enumerate(right)]


@pytest.mark.parametrize(
    ("now", "alone", "verdicts_"),
    [
        pytest.param([True] * 8, [True] * 8, [], id="right"),
        pytest.param([False] + [True] * 7, [True] * 8, ["warn"], id="one-flips"),
        pytest.param([False] * 2 + [True] * 6, [True] * 8, ["fail"], id="two-of-eight-flip"),
        pytest.param([False] + [True] * 7, [False] + [True] * 7, [], id="not-known-alone"),
        pytest.param([False] * 2 + [True] * 6, [False] * 2 + [True] * 6, ["fail"], id="too-few-right"),
    ],
)
def test_answers_are_held_against_those_given_alone(
    now: list[bool], alone: list[bool], verdicts_: list[str]
) -> None:
    assert [verdict for verdict, _rule, _text in judge_answers(told(now), told(alone), Bars())] == verdicts_


def test_one_silent_answer_is_a_fault() -> None:
    fact = read_question({"prompt": "What?", "expect": "that"}, "fact", 32)
    alone = [Told(fact, "that", True)] * 30
    now = [*alone[1:], Told(fact, "", False, silent=True)]
    (found,) = judge_answers(now, alone, Bars())
    assert found[:2] == ("fail", "empty-at-stop")
    assert found[2].startswith("1 of 30 answers are empty")
    # The token limit may cut an answer off before its first word.
    cut = [*alone[1:], Told(fact, "", False)]
    assert [verdict for verdict, *_rest in judge_answers(cut, alone, Bars())] == ["warn"]


def test_a_loop_that_the_model_makes_alone_is_no_fault_of_batches() -> None:
    sound = Text("a", [], "A quiet evening by the sea.", None)
    loop = Text("a", [], "and so on " * 60, None)
    alone = [loop]
    assert [verdict for verdict, *_rest in judge_texts(alone, alone)] == ["warn"]
    assert judge_texts([loop], alone) == []
    assert [verdict for verdict, *_rest in judge_texts([loop], [sound])] == ["fail"]


@pytest.mark.parametrize(
    ("lengths", "firsts", "steps", "expected"),
    [
        pytest.param({1: 3.0, 2: 2.8}, {1: 0.9, 2: 0.9}, 3, [], id="healthy"),
        pytest.param({1: 3.0, 2: 2.5}, {}, 3, ["fail"], id="spoilt"),
        pytest.param({1: 1.1, 2: 1.1}, {1: 0.05}, 3, ["fail"], id="first-drafts"),
        pytest.param({1: 4.0, 2: 4.0}, {}, 3, ["warn"], id="too-good"),
    ],
)
def test_acceptance_is_judged(
    lengths: dict[int, float], firsts: dict[int, float], steps: int, expected: list[str]
) -> None:
    assert [verdict for verdict, _text in judge_acceptance(lengths, firsts, Bars(), steps)] == expected
