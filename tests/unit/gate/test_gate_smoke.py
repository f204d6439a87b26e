"""The smoke probe against the stand-in: whatever it says, a run ends in the right verdict with its reason."""

from __future__ import annotations

import json
import time
from dataclasses import astuple
from pathlib import Path
from typing import Any

import llm_stand_in as replies
import pytest
from jsonschema import Draft202012Validator
from llm_gate.chat import Timing, read_stream
from llm_gate.client import Event, Stream
from llm_gate.gate import make_settings, run_gate
from llm_stand_in import STORY, Request, StandIn, completion, json_reply, story_events, stream_reply

pytestmark = pytest.mark.usefixtures("smoke_only")
SCHEMA = json.loads(
    (Path(__file__).parents[3] / "module_utils" / "llm_gate" / "report.schema.json").read_text(
        encoding="utf-8"
    )
)


def gate(stand_in: StandIn, profile: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """A run's document, checked against the schema and against what JSON can hold."""
    document = run_gate(make_settings(url=stand_in.url, model_profile=profile, **settings))
    Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(document, allow_nan=False)))
    return document


def verdicts(document: dict[str, Any]) -> dict[str, str]:
    """The gravest word about each check."""
    order = ["skipped", "pass", "warn", "error", "fail"]
    words: dict[str, str] = {}
    for entry in document["probes"][0]["evidence"]:
        words[entry["check"]] = max(words.get(entry["check"], "skipped"), entry["verdict"], key=order.index)
    return words


def rules(document: dict[str, Any], check: str) -> list[str]:
    return [entry["rule"] for entry in document["probes"][0]["evidence"] if entry["check"] == check]


def marks(count: int = 64) -> replies.Reply:
    return json_reply(completion("!" * count, finish_reason="length", completion_tokens=count))


def test_a_right_server_passes(stand_in: StandIn, profile: dict[str, Any]) -> None:
    document = gate(stand_in, profile)
    assert document["verdict"] == "pass"
    assert set(verdicts(document).values()) == {"pass"}
    assert document["summary"].startswith("pass: 5 checks passed; throughput: 300 tokens at ")
    assert document["target"]["engine"] == "sglang"
    assert document["target"]["engine_version"] == "0.5.9"
    assert document["identity"]["model_path"] == "/models/tiny"
    assert document["probes"][0]["tokens"] == {"prompt": 71, "completion": 335}
    assert document["probes"][0]["requests"] == len(stand_in.requests)


def test_every_question_is_asked_at_temperature_0(stand_in: StandIn, profile: dict[str, Any]) -> None:
    stand_in.chat["answer"] = marks()
    gate(stand_in, profile)
    bodies = [request.body for request in stand_in.asked("/v1/chat/completions")]
    assert len(bodies) == 4
    assert all(body["temperature"] == 0 and body["model"] == "tiny-qwen3" for body in bodies)


def test_thinking_is_switched_by_the_profile(stand_in: StandIn, profile: dict[str, Any]) -> None:
    gate(stand_in, profile)
    switches = [request.body["chat_template_kwargs"] for request in stand_in.asked("/v1/chat/completions")]
    assert [switch["enable_thinking"] for switch in switches] == [False, False, True, False]


def test_the_figures_are_given_in_seconds_and_tokens(stand_in: StandIn, profile: dict[str, Any]) -> None:
    stand_in.chat["throughput"] = stream_reply(story_events(tokens=300, pieces=10), pause=0.02)
    measured = gate(stand_in, profile)["probes"][0]["measured"]["throughput"]
    assert measured["itl_s"] >= 9 * 0.02 / 299
    assert measured["tokens_per_second"] == pytest.approx(1 / measured["itl_s"], rel=0.01)
    assert measured["longest_gap_s"] >= 0.02
    assert 0 < measured["ttft_s"] < measured["duration_s"]


def timed(*pieces: tuple[float, str, int | None]) -> Timing:
    """The timing of a stream of (time, text, tokens so far) that was sent at 10 s and had 101 tokens."""
    usage = {"choices": [], "usage": {"completion_tokens": 101}}
    events = []
    for at, text, tokens in pieces:
        data: dict[str, object] = {"choices": [{"delta": {"content": text}}]}
        events.append(Event(at, data | ({"usage": {"completion_tokens": tokens}} if tokens else {})))
    return read_stream(Stream(10.0, [*events, Event(99.0, usage)], done=True))[1]


@pytest.mark.parametrize(
    ("pieces", "timing"),
    [
        pytest.param(
            [(10.5, "a", None), (11.5, "b", None), (14.5, "c", None)],
            (0.5, 0.04, 3.0, 25.0),
            id="one-token-first",
        ),
        pytest.param(
            [(10.5, "a", 61), (11.5, "b", 70), (12.5, "c", 101)], (0.5, 0.05, 1.0, 20.0), id="several-first"
        ),
        pytest.param(
            [(10.2, "", None), (10.5, "a", None), (12.5, "b", None)], (0.5, 0.02, 2.0, 50.0), id="role-piece"
        ),
        pytest.param([(10.5, "a", None)], (0.5, None, None, None), id="one-piece"),
        pytest.param([], (None, None, None, None), id="no-text"),
    ],
)
def test_decode_speed_leaves_the_first_piece_out(
    pieces: list[tuple[float, str, int | None]], timing: tuple[float | None, ...]
) -> None:
    assert astuple(timed(*pieces)) == pytest.approx(timing)


@pytest.mark.parametrize(
    ("logprobs", "cause"),
    [
        pytest.param(
            replies.raw_reply(b"Internal Server Error", 500), "HTTP 500 when asked with logprobs", id="500"
        ),
        pytest.param(
            replies.json_reply({"message": "Out of range float values are not JSON compliant"}, 400),
            "HTTP 400 when asked with logprobs",
            id="400-of-the-encoder",
        ),
        pytest.param(
            json_reply(completion("!!", logprobs={"content": [{"logprob": None}, {"logprob": None}]})),
            "2 of 2 logprobs are null",
            id="null",
        ),
        pytest.param(
            replies.raw_reply(
                json.dumps(completion("!", logprobs={"content": [{"logprob": float("nan")}]})).encode()
            ),
            "1 of 1 logprobs are null",
            id="nan",
        ),
        pytest.param(
            json_reply(
                completion(
                    "!",
                    logprobs={"content": [{"logprob": -11.93, "top_logprobs": [{"logprob": -11.93}] * 5}]},
                )
            ),
            "all at -11.93 at 1 of 1 positions",
            id="flat",
        ),
        pytest.param(
            json_reply(completion("!", logprobs={"content": [{"logprob": 0.7}]})),
            "0.7 is above 0",
            id="above-0",
        ),
    ],
)
def test_nan_is_named(
    stand_in: StandIn, profile: dict[str, Any], logprobs: replies.Reply, cause: str
) -> None:
    stand_in.chat |= {"answer": marks(), "arithmetic": marks(), "thinking": marks(), "logprobs": logprobs}
    document = gate(stand_in, profile)
    assert document["verdict"] == "fail"
    assert document["summary"].startswith('fail: smoke: "Reply with exactly OK" answered \'!!!!!!!!')
    assert "(64 characters)" in document["summary"]
    assert document["summary"].endswith(": NaN logits")
    named = [entry["text"] for entry in document["probes"][0]["evidence"] if entry["rule"] == "nan-logits"]
    assert cause in named[0]
    assert "--moe-runner-backend" in document["probes"][0]["hint"]
    assert verdicts(document)["throughput"] == "skipped"
    assert "throughput" not in document["probes"][0]["measured"]


@pytest.mark.parametrize(
    "logprobs",
    [
        pytest.param(json_reply(completion("OK", logprobs=None)), id="none-given"),
        pytest.param(json_reply({"detail": "logprobs are not supported"}, 400), id="refused"),
        pytest.param(json_reply(completion("OK", logprobs={"content": "!!"})), id="wrong-type"),
        pytest.param(
            json_reply(
                completion(
                    "a",
                    logprobs={
                        "content": [
                            {"logprob": -0.1, "top_logprobs": [{"logprob": x} for x in (-0.1, -3, -9)]}
                        ]
                    },
                )
            ),
            id="healthy",
        ),
    ],
)
def test_a_loop_with_sound_logprobs_is_not_called_nan(
    stand_in: StandIn, profile: dict[str, Any], logprobs: replies.Reply
) -> None:
    stand_in.chat |= {"answer": marks(), "logprobs": logprobs}
    document = gate(stand_in, profile)
    assert document["verdict"] == "fail"
    assert "nan-logits" not in rules(document, "answer")


@pytest.mark.parametrize(
    "server_info",
    [
        pytest.param(json_reply({"speculative_algorithm": "EAGLE3"}), id="speculative"),
        pytest.param(replies.raw_reply(b"", 404), id="unknown-on-sglang"),
    ],
)
def test_logprobs_are_never_asked_of_a_speculative_server(
    stand_in: StandIn, profile: dict[str, Any], server_info: replies.Reply
) -> None:
    stand_in.pages["/server_info"] = server_info
    stand_in.chat["answer"] = marks()
    document = gate(stand_in, profile)
    assert document["verdict"] == "fail"
    assert "nan-look" in rules(document, "answer")
    assert not any(request.body.get("logprobs") for request in stand_in.requests)


WRONG_ANSWERS = {
    "other-text": ("answer", completion("Certainly! OK"), "fail", "answer"),
    "excited": ("answer", completion("OK!!!"), "fail", "answer"),
    "nothing": ("answer", completion(None), "fail", "no-content"),
    "blank": ("answer", completion(" \n"), "fail", "no-content"),
    "blank-with-tokens": ("answer", completion("", completion_tokens=16), "fail", "S2-blank"),
    "answer-in-reasoning": ("answer", completion(None, reasoning="OK"), "fail", "no-content"),
    "no-end-token": ("answer", completion("OK", finish_reason="length"), "warn", "end-token"),
    "thinking-although-off": (
        "answer",
        completion("OK", reasoning="He wants OK."),
        "warn",
        "thinking-not-off",
    ),
    "control-token": ("answer", completion("OK<|im_end|>"), "fail", "special-token"),
    "wrong-number": ("arithmetic", completion("17*19 = 333"), "fail", "answer"),
    "longer-number": ("arithmetic", completion("3232323"), "fail", "answer"),
    "thousands": ("arithmetic", completion("1,323"), "fail", "answer"),
    "decimal": ("arithmetic", completion("323.5"), "fail", "answer"),
    "negative": ("arithmetic", completion("-323"), "fail", "answer"),
    "no-reasoning": ("thinking", completion("323"), "fail", "no-reasoning"),
    "leaked-tags": ("thinking", completion("<think>17*20-17</think>323"), "fail", "think-tag"),
    "leaked-closing-tag": ("thinking", completion("</think>323", reasoning="17*20-17"), "fail", "think-tag"),
    "wrong-after-thinking": ("thinking", completion("332", reasoning="17*20-17"), "fail", "answer"),
    "no-answer-after-thinking": ("thinking", completion(None, reasoning="It is 323."), "fail", "no-content"),
    "cut-before-the-value": (
        "thinking",
        completion(None, reasoning="17 times 20 is", finish_reason="length"),
        "fail",
        "no-content",
    ),
    "cut-after-the-value": (
        "thinking",
        completion(None, reasoning="17*20 is 340, minus 17 is 323. So", finish_reason="length"),
        "warn",
        "no-content",
    ),
    "looping-thoughts": (
        "thinking",
        completion(None, reasoning="323 is it. Wait, " * 40, finish_reason="length"),
        "fail",
        "S3-token-loop",
    ),
    "garbage-thoughts": ("thinking", completion("323", reasoning="!" * 400), "fail", "whole-loop"),
}


@pytest.mark.parametrize("case", WRONG_ANSWERS.values(), ids=WRONG_ANSWERS.keys())
def test_a_wrong_answer_is_judged(
    stand_in: StandIn, profile: dict[str, Any], case: tuple[str, dict[str, Any], str, str]
) -> None:
    check, reply, verdict, rule = case
    stand_in.chat[check] = json_reply(reply)
    document = gate(stand_in, profile)
    assert document["verdict"] == verdict
    assert verdicts(document)[check] == verdict
    assert rule in rules(document, check)
    others = {"model_info", "answer", "arithmetic", "thinking"} - {check}
    assert {verdicts(document)[other] for other in others} == {"pass"}


RIGHT_ANSWERS = {
    "stop": ("answer", completion("OK.")),
    "white-space": ("answer", completion("\n\nOK\n")),
    "sentence": ("arithmetic", completion("17 * 19 equals **323**.")),
    "latex": ("arithmetic", completion(r"\boxed{323}")),
    "reasoning-as-vllm-names-it": (
        "thinking",
        completion("323", reasoning="17*20-17", reasoning_field="reasoning"),
    ),
    "no-usage": ("answer", {key: value for key, value in completion("OK").items() if key != "usage"}),
    "null-usage": ("answer", completion("OK") | {"usage": None}),
}


@pytest.mark.parametrize(("check", "reply"), RIGHT_ANSWERS.values(), ids=RIGHT_ANSWERS.keys())
def test_a_right_answer_in_other_words_passes(
    stand_in: StandIn, profile: dict[str, Any], check: str, reply: dict[str, Any]
) -> None:
    stand_in.chat[check] = json_reply(reply)
    assert gate(stand_in, profile)["verdict"] == "pass"


STREAMS = {
    "no-done": (stream_reply(story_events(), done=False, pause=0.001), "warn", "no-done"),
    "cut": (stream_reply(story_events(finish_reason=None), done=False, pause=0.001), "error", "dropped"),
    "no-usage": (stream_reply(story_events(tokens=None), pause=0.001), "error", "no-usage"),
    "too-short": (stream_reply(story_events(STORY[:400], tokens=90), pause=0.001), "fail", "min-tokens"),
    "marks": (
        stream_reply(story_events("!" * 512, tokens=512, finish_reason="length")),
        "fail",
        "whole-loop",
    ),
    "drift": (
        stream_reply(
            story_events(STORY.replace("grey sea", "灰色的大海与风").replace("red boat", "红色小船在港口"))
        ),
        "fail",
        "prose-script-drift",
    ),
    "empty": (stream_reply(story_events("", tokens=512, finish_reason="length")), "fail", "S2-blank"),
    "one-piece": (stream_reply(story_events(pieces=1)), "warn", "no-speed"),
    "error-inside": (stream_reply([{"error": {"message": "out of memory"}}]), "error", "malformed"),
    "delta-of-the-wrong-type": (stream_reply([{"choices": [{"delta": "text"}]}]), "error", "malformed"),
    "choice-of-the-wrong-type": (stream_reply([{"choices": ["text"]}]), "error", "malformed"),
    "usage-of-the-wrong-type": (stream_reply([{"choices": [], "usage": [1]}]), "error", "malformed"),
    "not-a-stream": (json_reply(completion("a story")), "error", "malformed"),
}


@pytest.mark.parametrize(("reply", "verdict", "rule"), STREAMS.values(), ids=STREAMS.keys())
def test_a_bad_stream_is_judged(
    stand_in: StandIn, profile: dict[str, Any], reply: replies.Reply, verdict: str, rule: str
) -> None:
    stand_in.chat["throughput"] = reply
    document = gate(stand_in, profile)
    assert document["verdict"] == verdict
    assert rule in rules(document, "throughput")
    if verdict != "warn":
        assert "tokens_per_second" not in document["probes"][0]["measured"].get("throughput", {})


@pytest.mark.parametrize(("bar", "verdict"), [(1, "pass"), (1e7, "fail"), (None, "pass")])
def test_the_speed_bar_is_the_profiles(
    stand_in: StandIn, profile: dict[str, Any], bar: float | None, verdict: str
) -> None:
    profile["gate"]["smoke"]["throughput"]["min_tokens_per_second"] = bar
    document = gate(stand_in, profile)
    assert document["verdict"] == verdict
    assert document["probes"][0]["measured"]["throughput"]["tokens_per_second"] > 1


def test_an_unknown_speed_cannot_meet_a_bar(stand_in: StandIn, profile: dict[str, Any]) -> None:
    profile["gate"]["smoke"]["throughput"]["min_tokens_per_second"] = 10
    stand_in.chat["throughput"] = stream_reply(story_events(pieces=1))
    assert gate(stand_in, profile)["verdict"] == "error"


def test_a_model_without_thinking_mode_is_not_asked_to_think(
    stand_in: StandIn, profile: dict[str, Any]
) -> None:
    profile["gate"]["thinking"] = None
    notes: list[tuple[int, int, str]] = []
    settings = make_settings(url=stand_in.url, model_profile=profile)
    document: dict[str, Any] = run_gate(settings, lambda *note: notes.append(note))
    assert document["verdict"] == "pass"
    assert verdicts(document)["thinking"] == "skipped"
    assert "no thinking mode" in document["coverage"][0]["reason"]
    assert not any("chat_template_kwargs" in request.body for request in stand_in.requests)
    assert notes[-1] == (5, 5, "throughput: pass")


MALFORMED = {
    "null": None,
    "list": [],
    "text": "OK",
    "number": 17,
    "no-choices": {},
    "error-with-200": {"error": {"message": "no such model"}},
    "choices-null": {"choices": None},
    "choices-empty": {"choices": []},
    "choices-of-text": {"choices": ["OK"]},
    "choices-object": {"choices": {"0": {}}},
    "no-message": {"choices": [{}]},
    "message-text": {"choices": [{"message": "OK"}]},
    "content-number": completion(323),
    "content-parts": completion([{"type": "text", "text": "OK"}]),
    "reasoning-object": completion("OK", reasoning={"text": "x"}),
    "finish-reason-object": completion("OK", finish_reason={"type": "stop"}),
    "usage-list": completion("OK") | {"usage": [12, 3]},
    "tokens-text": completion("OK", completion_tokens="3"),
    "tokens-negative": completion("OK", completion_tokens=-1),
    "tokens-boolean": completion("OK", completion_tokens=True),
    "tokens-fraction": completion("OK", completion_tokens=2.5),
    "tokens-huge": completion("OK", completion_tokens=10**400),
}


@pytest.mark.parametrize("reply", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_answer_is_an_error(stand_in: StandIn, profile: dict[str, Any], reply: object) -> None:
    stand_in.chat["thinking"] = json_reply(reply)
    document = gate(stand_in, profile)
    assert document["verdict"] == "error"
    assert rules(document, "thinking") == ["malformed"]


@pytest.mark.parametrize("path", ["/model_info", "/v1/models", "/server_info"])
@pytest.mark.parametrize(
    "reply", [None, [], "text", 17, {"data": None}, {"data": [1]}, {"data": [{"id": 7}]}], ids=repr
)
def test_a_malformed_page_ends_in_a_verdict(
    stand_in: StandIn, profile: dict[str, Any], path: str, reply: object
) -> None:
    stand_in.pages[path] = json_reply(reply)
    document = gate(stand_in, profile)
    if path == "/v1/models" or not isinstance(reply, dict):
        assert document["verdict"] == "error"
        assert rules(document, "model_info") == ["malformed"]
    else:
        assert document["verdict"] == "pass"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        pytest.param(replies.raw_reply(b"", 401), "HTTP 401", id="401"),
        pytest.param(replies.raw_reply(b"", 404), "HTTP 404", id="404"),
        pytest.param(replies.raw_reply(b"", 500), "HTTP 500", id="500"),
        pytest.param(replies.raw_reply(b"<html>It works</html>"), "not JSON", id="html"),
        pytest.param(replies.hang, "no reply", id="hang"),
        pytest.param(replies.headers_then_silence, "then nothing", id="headers-then-silence"),
        pytest.param(replies.dripping_body, "unfinished", id="drip"),
        pytest.param(replies.endless_stream, "unfinished", id="endless-stream"),
        pytest.param(replies.drop, "broke", id="dropped"),
    ],
)
def test_a_server_that_always_misbehaves_is_an_error_in_time(
    stand_in: StandIn, profile: dict[str, Any], reply: replies.Reply, words: str
) -> None:
    stand_in.pages = dict.fromkeys([*stand_in.pages, "/v1/chat/completions", "/get_model_info"], reply)
    profile["gate"] |= {"deadline_s": 0.5, "request_timeout_s": 0.3}
    began = time.monotonic()
    document = gate(stand_in, profile)
    assert time.monotonic() - began < 3
    assert document["verdict"] == "error"
    assert words in document["summary"]
    assert not document["coverage"][0]["tested"]


@pytest.mark.parametrize("check", ["answer", "thinking", "throughput"])
def test_a_check_that_hangs_is_an_error_and_the_others_still_count(
    stand_in: StandIn, profile: dict[str, Any], check: str
) -> None:
    profile["gate"]["request_timeout_s"] = 0.3
    stand_in.chat[check] = replies.hang
    document = gate(stand_in, profile)
    assert document["verdict"] == "error"
    assert rules(document, check) == ["timeout"]
    assert verdicts(document)["arithmetic"] == "pass"


def test_the_deadline_ends_the_run(stand_in: StandIn, profile: dict[str, Any]) -> None:
    stand_in.chat["answer"] = replies.hang
    began = time.monotonic()
    document = gate(stand_in, profile, deadline_s=0.4)
    assert time.monotonic() - began < 3
    assert document["verdict"] == "error"
    assert "the run's deadline" in document["summary"]
    assert verdicts(document)["arithmetic"] == "skipped"


def test_a_fault_found_before_the_deadline_stays_a_fault(stand_in: StandIn, profile: dict[str, Any]) -> None:
    stand_in.chat |= {"answer": json_reply(completion("KO")), "arithmetic": replies.hang}
    assert gate(stand_in, profile, deadline_s=0.4)["verdict"] == "fail"


def test_a_server_that_dies_is_reported_at_its_check(stand_in: StandIn, profile: dict[str, Any]) -> None:
    def die(request: Request) -> None:
        if "17*19" in str(request.body):
            stand_in.pages = dict.fromkeys([*stand_in.pages, "/v1/chat/completions"], replies.close_at_once)

    stand_in.after = die
    document = gate(stand_in, profile)
    assert document["verdict"] == "error"
    assert document["summary"].startswith("error: smoke: the server died during arithmetic: ")
    assert verdicts(document) == {
        "model_info": "pass",
        "answer": "pass",
        "arithmetic": "error",
        "thinking": "skipped",
        "throughput": "skipped",
    }


def test_a_sick_health_page_counts_as_death(stand_in: StandIn, profile: dict[str, Any]) -> None:
    stand_in.pages["/health"] = replies.raw_reply(b"", 503)
    assert "GET /health: HTTP 503" in gate(stand_in, profile)["summary"]


def test_a_server_without_a_health_page_is_alive(stand_in: StandIn, profile: dict[str, Any]) -> None:
    del stand_in.pages["/health"]
    assert gate(stand_in, profile)["verdict"] == "pass"


def test_a_500_on_one_question_is_an_error(stand_in: StandIn, profile: dict[str, Any]) -> None:
    stand_in.chat["answer"] = replies.raw_reply(b"Internal Server Error", 500)
    document = gate(stand_in, profile)
    assert document["verdict"] == "error"
    assert verdicts(document)["thinking"] == "pass"


@pytest.mark.parametrize(
    ("model", "served_name", "verdict"),
    [
        (None, None, "pass"),
        ("tiny-qwen3", "other", "pass"),
        (None, "other", "fail"),
        ("other", "tiny-qwen3", "fail"),
    ],
)
def test_the_served_name_must_be_the_wanted_one(
    stand_in: StandIn, profile: dict[str, Any], model: str | None, served_name: str | None, verdict: str
) -> None:
    profile["served_name"] = served_name
    document = gate(stand_in, profile, model=model)
    assert document["verdict"] == verdict
    if verdict == "fail":
        assert "expected the model 'other', the server serves 'tiny-qwen3'" in document["summary"]
        assert stand_in.asked("/v1/chat/completions") == []


@pytest.mark.parametrize(
    ("owner", "engine"), [("vllm", "vllm"), ("Qwen", None), (None, None)], ids=["vllm", "other", "silent"]
)
def test_a_server_without_sglangs_pages_can_pass(
    stand_in: StandIn, profile: dict[str, Any], owner: str | None, engine: str | None
) -> None:
    del stand_in.pages["/model_info"], stand_in.pages["/server_info"]
    entry = {"id": "tiny-qwen3", "root": "/models/tiny", "owned_by": owner}
    stand_in.pages["/v1/models"] = json_reply({"data": [entry]})
    document = gate(stand_in, profile)
    assert document["verdict"] == "pass"
    assert document["target"]["engine"] == engine
    assert document["identity"]["model_path"] == "/models/tiny"


def test_the_deprecated_pages_are_read_where_there_are_no_new_ones(
    stand_in: StandIn, profile: dict[str, Any]
) -> None:
    for name in ("model_info", "server_info"):
        stand_in.pages[f"/get_{name}"] = stand_in.pages.pop(f"/{name}")
    document = gate(stand_in, profile)
    assert (document["target"]["engine"], document["target"]["engine_version"]) == ("sglang", "0.5.9")


def test_keys_never_reach_the_document(stand_in: StandIn, profile: dict[str, Any]) -> None:
    key = "sk-not-for-any-eyes"
    stand_in.chat["answer"] = json_reply(completion(f"your key is {key}"))
    stand_in.pages["/model_info"] = json_reply({"model_path": f"/models/{key}"})
    text = json.dumps(gate(stand_in, profile, api_key=key))
    assert key not in text
    assert "secret-of-the-server" not in text
    assert "your key is ***" in text


def test_what_a_server_says_is_made_safe_to_print(stand_in: StandIn, profile: dict[str, Any]) -> None:
    stand_in.chat["answer"] = json_reply(completion("\x1b[31mred\x00 \ud800"))
    stand_in.pages["/server_info"] = replies.raw_reply(b'{"version": "0.5.9\\u0007", "context_length": NaN}')
    document = gate(stand_in, profile)
    assert document["verdict"] == "fail"
    assert document["identity"]["settings"]["context_length"] is None
    assert json.dumps(document, ensure_ascii=False).isprintable()


def test_a_bug_in_a_probe_is_an_error_that_keeps_the_findings(
    stand_in: StandIn, profile: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object) -> None:
        raise KeyError("no such thing")

    monkeypatch.setattr("llm_gate.probes.smoke.judge_thinking", broken)
    document = gate(stand_in, profile)
    assert document["verdict"] == "error"
    assert "KeyError" in document["summary"]
    assert verdicts(document)["answer"] == "pass"
