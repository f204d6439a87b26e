"""The probes template and protocol against the stand-in: each fault of an API is found by its rule."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import llm_stand_in as replies
import pytest
import yaml
from jsonschema import Draft202012Validator
from llm_gate import protocol_data, template_data
from llm_gate.asking import Ask, Reply
from llm_gate.chat import Answer, Timing, ToolCall, read_answer, read_stream
from llm_gate.client import Event, Stream
from llm_gate.errors import Malformed, UsageError
from llm_gate.gate import make_settings, plan_lines, run_gate
from llm_gate.hints import HINTS
from llm_gate.model_profile import read_model_profile
from llm_gate.probes.template import Lengths, judge_relations
from llm_gate.profiles import PROFILES
from llm_gate.protocol_data import read_protocol
from llm_gate.reply_rules import came_in_one_lump, judge_texts
from llm_gate.template_data import read_template
from llm_stand_in import StandIn
from talker import NUMBERS, Spoken, count_prompt

SCHEMA = json.loads(
    (Path(__file__).parents[3] / "module_utils" / "llm_gate" / "report.schema.json").read_text(
        encoding="utf-8"
    )
)
PROBES = ("smoke", "template", "protocol")
WEATHER = protocol_data.read_protocol({}, "protocol").tools
assert WEATHER is not None


@pytest.fixture(autouse=True)
def these_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run these probes alone."""
    monkeypatch.setitem(PROFILES, "full", PROBES)


@pytest.fixture
def profile(profile: dict[str, Any]) -> dict[str, Any]:
    profile["gate"]["facts"] = profile["gate"]["facts"][:3]
    profile["gate"]["deadline_s"] = 30
    return profile


def gate(stand_in: StandIn, profile: dict[str, Any]) -> dict[str, Any]:
    document = run_gate(make_settings(url=stand_in.url, model_profile=profile, profile="full"))
    Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(document, allow_nan=False)))
    return document


def bad(document: dict[str, Any], probe: str) -> set[tuple[str, str, str]]:
    """Check, verdict and rule of what did not pass in a probe."""
    (found,) = [entry for entry in document["probes"] if entry["id"] == probe]
    return {
        (entry["check"], entry["verdict"], entry["rule"])
        for entry in found["evidence"]
        if entry["verdict"] not in ("pass", "skipped")
    }


def reason(document: dict[str, Any], probe: str) -> str:
    (entry,) = [entry for entry in document["coverage"] if entry["id"] == probe]
    return str(entry["reason"])


def test_a_sound_server_passes(stand_in: StandIn, profile: dict[str, Any]) -> None:
    document = gate(stand_in, profile)
    assert document["verdict"] == "pass", bad(document, "template") | bad(document, "protocol")
    assert [probe["id"] for probe in document["probes"]] == list(PROBES)
    assert reason(document, "template").startswith("chats not tested: the model profile has no golden chats")
    assert reason(document, "protocol") == ""
    outcome = document["probes"][2]["measured"]["names"]
    assert outcome == {"unknown_model": "answered", "two_answers": "answered"}


def test_the_plan_is_kept_to(stand_in: StandIn, profile: dict[str, Any]) -> None:
    """Not more requests and tokens than planned, for each probe."""
    golden(stand_in, profile)
    lines = plan_lines(make_settings(url=stand_in.url, model_profile=profile, profile="full"))
    document = gate(stand_in, profile)
    for probe in document["probes"][1:]:
        (line,) = [line for line in lines if line.startswith(f"  {probe['id']}:")]
        requests, _prompt, completion, _seconds = map(int, re.findall(r"\d+", line))
        # All but the second looks at what may be chance, a lump four times and a lost call three times;
        # and one look whether the server lives.
        assert requests - 7 <= probe["requests"] - 1 <= requests
        assert 0 < probe["tokens"]["completion"] <= completion
    asked = [request.body for request in stand_in.requests if request.method == "POST"]
    assert {body.get("temperature", 0) for body in asked} == {0}


def test_a_model_without_these_features_is_asked_nothing_of_them(
    stand_in: StandIn, profile: dict[str, Any]
) -> None:
    off = dict.fromkeys(("tools", "stream", "stop", "limit", "completion", "answers"))
    profile["gate"]["protocol"] = {**off, "schemas": [], "conversations": []}
    profile["gate"]["thinking"] = None
    document = gate(stand_in, profile)
    assert document["verdict"] == "pass"
    assert reason(document, "protocol") == (
        "tools not tested: the model profile says that the model has no tools; "
        "schema not tested: the model profile says that there is no structured output; "
        "stream not tested: the model profile has no question for it; "
        "answers not tested: the model profile switches it off; "
        "mixed not tested: the model profile says that there is no structured output; "
        "stop not tested: the model profile has no question for it; "
        "limit not tested: the model profile has no question for it; "
        "roles not tested: the model profile has no conversations; "
        "completion not tested: the model profile has no text for it"
    )
    assert not any("tools" in request.body for request in stand_in.requests)


# --- faults of the API ----------------------------------------------------------------------------

Found = set[tuple[str, str, str]]


def asks_for_tools(body: dict[str, Any]) -> bool:
    return bool(body.get("tools")) and body["messages"][-1]["role"] == "user"


def is_streamed(body: dict[str, Any]) -> bool:
    return bool(body.get("stream"))


def everywhere(rule: str, *but: str) -> Found:
    checks = {"thinking", "tools", "schema", "stream", "answers", "stop", "limit", "roles", "completion"}
    return {(check, "fail", rule) for check in checks - set(but)}


def always(change: Callable[[Spoken], None]) -> Callable[[dict[str, Any], Spoken], None]:
    return lambda body, spoken: change(spoken)


def when(
    applies: Callable[[dict[str, Any]], bool], **changes: Any
) -> Callable[[dict[str, Any], Spoken], None]:
    """Other values for the answers to some requests; a function of the answer gives the value."""

    def spoil(body: dict[str, Any], spoken: Spoken) -> None:
        if applies(body):
            for name, value in changes.items():
                setattr(spoken, name, value(spoken) if callable(value) else value)

    return spoil


def of_protocol(applies: Callable[[dict[str, Any]], bool]) -> Callable[[dict[str, Any]], bool]:
    """Only requests that the smoke probe does not send: streamed ones and those of later checks."""
    return lambda body: applies(body) and (is_streamed(body) or len(body.get("messages", "12")) > 1)


CALL_TEXT = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def calls(arguments: str, name: str = "get_weather") -> list[dict[str, str]]:
    return [{"name": name, "arguments": arguments}]


FAULTS: dict[str, tuple[Callable[[dict[str, Any], Spoken], None], Found]] = {
    "think-tags-in-content": (
        when(
            lambda body: is_streamed(body) and "17*19" in str(body.get("messages")),
            content=lambda spoken: (
                f"<think>\n{spoken.reasoning}</think>\n{spoken.content}"
                if spoken.reasoning
                else spoken.content
            ),
            reasoning=None,
        ),
        {("thinking", "fail", "think-tag"), ("thinking", "fail", "no-reasoning")},
    ),
    "answer-in-reasoning-only": (
        when(
            lambda body: is_streamed(body) and "prompt" not in body and not body.get("tools"),
            reasoning=lambda spoken: spoken.content,
            content=None,
        ),
        everywhere("no-content", "tools", "completion", "limit")
        | {("stream", "fail", "stream-differs")}
        | {("thinking", "fail", "no-content")},
    ),
    "reasoning-not-off": (
        when(
            lambda body: is_streamed(body) and "17*19" in str(body.get("messages")),
            reasoning=lambda spoken: spoken.reasoning or "17*19 is 323.",
        ),
        {("thinking", "warn", "thinking-not-off")},
    ),
    "call-in-reasoning": (
        when(
            asks_for_tools,
            calls=[],
            content=None,
            reasoning=f"I need the weather. {CALL_TEXT}",
            finish_reason="stop",
        ),
        {("tools", "fail", rule) for rule in ("tool-text", "no-tool-call", "no-content", "finish-reason")},
    ),
    "call-in-content": (
        when(asks_for_tools, calls=[], content=CALL_TEXT, finish_reason="stop"),
        {("tools", "fail", rule) for rule in ("tool-text", "no-tool-call", "finish-reason")},
    ),
    "call-in-content-too": (
        when(asks_for_tools, content='{"name": "get_weather", "arguments": {"city": "Paris"}}'),
        {("tools", "fail", "tool-text")},
    ),
    "calls-lost-when-streaming": (
        when(lambda body: asks_for_tools(body) and is_streamed(body), calls=[], finish_reason="stop"),
        {
            ("tools", "fail", rule)
            for rule in ("no-tool-call", "empty-at-stop", "no-content", "finish-reason")
        },
    ),
    "arguments-not-json": (
        when(asks_for_tools, calls=calls("<city>Paris</city>")),
        {("tools", "fail", "tool-arguments")},
    ),
    "arguments-break-the-schema": (
        when(asks_for_tools, calls=calls('{"town": "Paris"}')),
        {("tools", "fail", "tool-arguments")},
    ),
    "arguments-of-another-value": (
        when(asks_for_tools, calls=calls('{"city": "Tokyo"}')),
        {("tools", "fail", "tool-arguments")},
    ),
    "wrong-tool-name": (
        when(asks_for_tools, calls=calls('{"city": "Paris"}', "get_wether")),
        {("tools", "fail", "tool-name")},
    ),
    "call-finishes-as-stop": (
        when(asks_for_tools, finish_reason="stop"),
        {("tools", "fail", "finish-reason")},
    ),
    "tool-result-ignored": (
        when(lambda body: bool(body.get("tools")) and not asks_for_tools(body), content="I cannot tell."),
        {("tools", "fail", "answer")},
    ),
    "schema-ignored": (
        when(lambda body: "response_format" in body, content="Paris is a large city on the river Seine."),
        {("schema", "fail", "schema")},
    ),
    "schema-with-another-enum": (
        when(
            lambda body: "response_format" in body, content='{"city": "paris", "millions": 2, "sights": []}'
        ),
        {("schema", "fail", "schema")},
    ),
    "empty-at-stop": (
        when(lambda body: "response_format" in body, content=None),
        {("schema", "fail", "empty-at-stop")},
    ),
    "no-done": (
        when(of_protocol(lambda body: "story" not in str(body)), done=False),
        everywhere("no-done"),
    ),
    "no-usage": (when(is_streamed, usage=False), everywhere("no-usage")),
    "no-finish-reason": (
        when(is_streamed, finish_reason=None),
        everywhere("no-finish") | {("stream", "fail", "stream-differs")},
    ),
    "always-stop": (
        when(lambda body: True, finish_reason="stop"),
        {("tools", "fail", "finish-reason"), ("limit", "fail", "finish-reason")},
    ),
    "always-length": (
        when(is_streamed, finish_reason="length"),
        everywhere("end-token", "completion", "limit", "tools", "thinking")
        | {
            ("tools", "fail", "end-token"),
            ("thinking", "fail", "end-token"),
            ("stream", "fail", "stream-differs"),
        },
    ),
    "one-lump": (when(is_streamed, lump=True), {("stream", "warn", "lump")}),
    "other-text-when-streaming": (
        when(
            lambda body: (
                is_streamed(body)
                and "Count" in str(body.get("messages"))
                and body["max_tokens"] > 5
                and not body.get("stop")
            ),
            content=NUMBERS.replace("7", "8"),
        ),
        {("stream", "fail", "stream-differs")},
    ),
    "other-counts-when-streaming": (
        when(is_streamed, prompt_tokens=lambda spoken: spoken.prompt_tokens + 1),
        everywhere("usage-differs"),
    ),
    "special-tokens": (
        when(
            of_protocol(lambda body: bool(body.get("messages"))),
            content=lambda spoken: f"{spoken.content}<|im_end|>" if spoken.content else None,
        ),
        everywhere("special-token", "completion", "tools")
        | {
            ("tools", "fail", "special-token"),
            ("schema", "fail", "schema"),
            ("stream", "fail", "stream-differs"),
        },
    ),
    "end-mark": (
        when(lambda body: len(body.get("messages", "")) > 1, content=lambda spoken: f"{spoken.content}</s>"),
        {("roles", "fail", "special-token"), ("tools", "fail", "special-token")},
    ),
    "stop-ignored": (
        when(lambda body: bool(body.get("stop")), content=NUMBERS),
        {("stop", "fail", "stop")},
    ),
    "stop-too-early": (
        when(lambda body: bool(body.get("stop")), content="1, 2,"),
        {("stop", "fail", "answer")},
    ),
    "max-tokens-ignored": (
        when(
            lambda body: body["max_tokens"] == 5, content=NUMBERS, completion_tokens=60, finish_reason="stop"
        ),
        {("limit", "fail", "max-tokens"), ("limit", "fail", "finish-reason")},
    ),
    "developer-refused": (
        when(lambda body: any(one["role"] == "developer" for one in body.get("messages", [])), status=400),
        {("roles", "warn", "developer-role")},
    ),
    "tools-refused": (when(asks_for_tools, status=400), {("tools", "fail", "refused")}),
    "tools-break-the-server": (when(asks_for_tools, status=500), {("tools", "error", "http-status")}),
    "roles-forgotten": (
        when(
            lambda body: len(body.get("messages", "")) > 1 and not body.get("tools"), content="I do not know."
        ),
        {("roles", "fail", "answer")},
    ),
    "a-word-swapped": (
        when(
            lambda body: is_streamed(body) and "capital of Japan" in str(body.get("messages")),
            content="Kyoto",
        ),
        {("answers", "fail", "answer")},
    ),
    "correct-start-then-junk": (
        when(
            lambda body: is_streamed(body) and "capital of Japan" in str(body.get("messages")),
            content="Tokyo" + " a" * 60,
        ),
        {("answers", "fail", "loop")},
    ),
    "raw-completion-wrong": (
        when(lambda body: "prompt" in body, content=" Lyon."),
        {("completion", "fail", "answer")},
    ),
    "one-answer-for-two": (
        when(lambda body: body.get("n") == 2, choices=1),
        {("names", "warn", "odd-request")},
    ),
    "unknown-model-breaks-it": (
        when(lambda body: body["model"] == "no-such-model", status=500),
        {("names", "warn", "odd-request")},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_its_rule(stand_in: StandIn, profile: dict[str, Any], fault: str) -> None:
    stand_in.spoil, expected = FAULTS[fault]
    document = gate(stand_in, profile)
    assert bad(document, "protocol") == expected
    blocks = any(verdict == "fail" for _check, verdict, _rule in expected)
    assert (document["verdict"] == "fail") is blocks
    assert document["probes"][2]["hint"] or not blocks


def test_a_sound_refusal_of_odd_requests_passes(stand_in: StandIn, profile: dict[str, Any]) -> None:
    stand_in.spoil = when(lambda body: body["model"] == "no-such-model" or body.get("n") == 2, status=404)
    document = gate(stand_in, profile)
    assert document["verdict"] == "pass"
    assert document["probes"][2]["measured"]["names"] == {
        "unknown_model": "refused",
        "two_answers": "refused",
    }


def test_a_server_without_raw_completions_is_not_blamed(stand_in: StandIn, profile: dict[str, Any]) -> None:
    stand_in.pages["/v1/completions"] = replies.json_reply({"detail": "Not Found"}, 404)
    document = gate(stand_in, profile)
    assert document["verdict"] == "pass"
    assert reason(document, "protocol") == "completion not tested: the server has no /v1/completions"


def test_a_hang_is_an_error_of_its_check(stand_in: StandIn, profile: dict[str, Any]) -> None:
    profile["gate"]["request_timeout_s"] = 0.5
    profile["gate"]["protocol"] = {
        **dict.fromkeys(("tools", "stream", "stop", "limit", "answers")),
        "schemas": [],
    }
    stand_in.pages["/v1/completions"] = replies.headers_then_silence
    document = gate(stand_in, profile)
    assert bad(document, "protocol") == {("completion", "error", "timeout")}


def test_an_exact_answer_is_wanted_where_the_profile_says_so(
    stand_in: StandIn, profile: dict[str, Any]
) -> None:
    stand_in.spoil = when(
        lambda body: is_streamed(body) and "capital of Japan" in str(body.get("messages")),
        content="It is Tokyo.",
    )
    assert bad(gate(stand_in, profile), "protocol") == set()
    profile["gate"]["protocol"] = {"answers": {"exact": True}}
    assert bad(gate(stand_in, profile), "protocol") == {("answers", "fail", "answer")}


def test_the_same_fault_is_told_once_with_its_number(stand_in: StandIn, profile: dict[str, Any]) -> None:
    stand_in.spoil = when(lambda body: "response_format" in body, content="no")
    document = gate(stand_in, profile)
    (entry,) = [entry for entry in document["probes"][2]["evidence"] if entry["check"] == "schema"]
    assert entry["text"].endswith("'no' (4 times in 4 replies)")
    assert document["probes"][2]["measured"]["schema"] == {"replies": 4, "sound": 0}


def test_a_grammar_that_reaches_other_requests_is_found(stand_in: StandIn, profile: dict[str, Any]) -> None:
    shaped: list[bool] = []

    def leak(body: dict[str, Any], spoken: Spoken) -> None:
        if "response_format" in body:
            shaped.append(True)
        elif len(shaped) > 4 and spoken.content == "Tokyo":
            spoken.content = 'T":"":"":"'

    stand_in.spoil = leak
    assert bad(gate(stand_in, profile), "protocol") == {("mixed", "fail", "mixed")}
    shaped.clear()
    profile["gate"]["protocol"] = {"mixed": False}
    document = gate(stand_in, profile)
    assert document["verdict"] == "pass"
    assert reason(document, "protocol") == "mixed not tested: the model profile switches it off"


def test_side_by_side_means_nothing_where_apart_is_wrong(stand_in: StandIn, profile: dict[str, Any]) -> None:
    stand_in.spoil = when(lambda body: "response_format" in body, content="no")
    document = gate(stand_in, profile)
    assert reason(document, "protocol") == (
        "mixed not tested: side by side means nothing while schema did not pass"
    )


@pytest.mark.parametrize(
    ("times", "expected"), [(1, ("warn", "lost-call")), (99, ("fail", "tool-arguments"))]
)
def test_one_stream_that_loses_a_call_is_asked_again(
    stand_in: StandIn, profile: dict[str, Any], times: int, expected: tuple[str, str]
) -> None:
    seen: list[bool] = []

    def lose(body: dict[str, Any], spoken: Spoken) -> None:
        if asks_for_tools(body) and is_streamed(body) and spoken.reasoning and len(seen) < times:
            seen.append(True)
            spoken.calls = calls("")

    stand_in.spoil = lose
    document = gate(stand_in, profile)
    assert bad(document, "protocol") == {("tools", *expected)}
    assert len(seen) == min(times, 4)


# --- the template ---------------------------------------------------------------------------------

CHATS: list[dict[str, Any]] = [
    {"name": "plain", "messages": [{"role": "user", "content": "Hello there"}]},
    {
        "name": "system",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
        "thinking": True,
    },
    {"name": "tools", "messages": [{"role": "user", "content": "Hi"}], "tools": list(WEATHER.tools)},
]


def counted(chat: dict[str, Any]) -> dict[str, Any]:
    body = {"messages": chat["messages"], "tools": chat.get("tools")}
    if chat.get("thinking"):
        body["chat_template_kwargs"] = {"enable_thinking": True}
    return {**chat, "prompt_tokens": count_prompt(body)}


GOLDEN: dict[str, Any] = {
    "chats": [counted(chat) for chat in CHATS],
    "tokenize": [{"text": "red boat", "ids": [1, 2]}],
}


def golden(stand_in: StandIn, profile: dict[str, Any]) -> dict[str, Any]:
    """A profile whose golden chats and texts are those of the stand-in."""
    section = deepcopy(GOLDEN)
    section["tokenize"][0]["ids"] = stand_in.toy.tokenize("red boat")
    profile["gate"]["template"] = section
    return section


def test_golden_chats_pass_with_a_token_each(stand_in: StandIn, profile: dict[str, Any]) -> None:
    golden(stand_in, profile)["chats"][2]["prompt_tokens"] = [5, GOLDEN["chats"][2]["prompt_tokens"]]
    document = gate(stand_in, profile)
    assert bad(document, "template") == set()
    assert reason(document, "template") == ""
    assert document["probes"][1]["tokens"]["completion"] == len(CHATS) + 5
    assert document["probes"][1]["limits"]["chats"]["tools"] == f"5 or {GOLDEN['chats'][2]['prompt_tokens']}"


def test_a_dropped_system_prompt_shows_in_the_counts(stand_in: StandIn, profile: dict[str, Any]) -> None:
    def drop(body: dict[str, Any], spoken: Spoken) -> None:
        kept = [one for one in body.get("messages", []) if one["role"] != "system"]
        if kept:
            spoken.prompt_tokens = count_prompt({**body, "messages": kept})

    stand_in.spoil = drop
    known = gate(stand_in, {"gate": {**profile["gate"], "template": GOLDEN}})
    assert ("chats", "fail", "prompt-tokens") in bad(known, "template")
    # Without golden chats the relations still show it.
    document = gate(stand_in, profile)
    assert bad(document, "template") == {("relations", "fail", "prompt-relations")}
    assert "a system message (600 characters more)" in document["summary"]


def test_another_tokenizer_is_named(stand_in: StandIn, profile: dict[str, Any]) -> None:
    golden(stand_in, profile)["tokenize"][0]["ids"] = [7, 8, 9]
    assert bad(gate(stand_in, profile), "template") == {("tokenize", "fail", "tokenizer")}


def test_without_a_tokenizer_page_the_rest_is_tested(stand_in: StandIn, profile: dict[str, Any]) -> None:
    golden(stand_in, profile)
    stand_in.pages["/tokenize"] = replies.json_reply({"detail": "Not Found"}, 404)
    document = gate(stand_in, profile)
    assert bad(document, "template") == set()
    assert reason(document, "template") == (
        "tokenize not tested: the server does not offer /tokenize (HTTP 404); "
        "how far the prompt grows not tested: the server does not offer /tokenize (HTTP 404)"
    )


def test_a_reply_without_counts_cannot_be_judged(stand_in: StandIn, profile: dict[str, Any]) -> None:
    stand_in.spoil = when(lambda body: body["max_tokens"] == 1, usage=False)
    assert bad(gate(stand_in, profile), "template") == {("relations", "error", "no-usage")}


def test_a_golden_chat_whose_role_is_refused_fails(stand_in: StandIn, profile: dict[str, Any]) -> None:
    chat = {"name": "developer", "messages": [{"role": "developer", "content": "Be brief."}]}
    golden(stand_in, profile)["chats"].append({**chat, "prompt_tokens": 9})
    stand_in.spoil = FAULTS["developer-refused"][0]
    document = gate(stand_in, profile)
    assert bad(document, "template") == {("chats", "fail", "developer-role")}
    assert "developer refused, though the checkpoint's template takes the role" in document["summary"]


COUNTS = {"question": 20, "again": 20, "longer": 150, "system": 160, "turns": 300}


@pytest.mark.parametrize(
    ("counts", "lengths", "broken"),
    [
        ({}, Lengths(10, 138), []),
        ({}, Lengths(), []),
        ({"again": 21}, Lengths(), ["the same chat has 20 prompt tokens, then 21"]),
        (
            {"longer": 20},
            Lengths(),
            ["a longer question (600 characters more): 20 prompt tokens, expected more"],
        ),
        ({"turns": 18}, Lengths(), ["earlier turns (600 characters more): 18 prompt tokens, expected more"]),
        (
            {"longer": 100},
            Lengths(10, 140),
            ["a question longer by 130 tokens makes the prompt longer by 80"],
        ),
        (
            {"longer": 155},
            Lengths(10, 140),
            ["a question longer by 130 tokens makes the prompt longer by 135"],
        ),
    ],
)
def test_relations_of_any_template(counts: dict[str, int], lengths: Lengths, broken: list[str]) -> None:
    found = judge_relations(COUNTS | counts, lengths)
    assert len(found) == len(broken)
    assert all(text.startswith(start) for text, start in zip(found, broken, strict=True))


# --- reading --------------------------------------------------------------------------------------


def test_the_documented_values_are_the_defaults() -> None:
    documented = yaml.safe_load(str(protocol_data.__doc__).split("```yaml\n")[1].split("```")[0])["protocol"]
    assert read_protocol(documented, "p") == read_protocol({}, "p")
    text = str(template_data.__doc__).split("```yaml\n")[1].split("```")[0]
    assert read_template(yaml.safe_load(text)["template"], "t").chats[0].prompt_tokens == (21,)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown-key": ({"protocol": {"tool": None}}, "unknown key gate.protocol.tool"),
    "role": (
        {"template": {"chats": [{"name": "a", "messages": [{"role": "me"}], "prompt_tokens": 1}]}},
        r"gate.template.chats\[0\].messages\[0\].role must be one of system, developer, user",
    ),
    "no-count": (
        {"template": {"chats": [{"name": "a", "messages": [{"role": "user", "content": "x"}]}]}},
        r"gate.template.chats\[0\].prompt_tokens is missing",
    ),
    "two-of-one-name": (
        {"template": {"chats": [GOLDEN["chats"][0], GOLDEN["chats"][0]]}},
        "gate.template.chats has two chats of one name",
    ),
    "ids": ({"template": {"tokenize": [{"text": "a", "ids": [-1]}]}}, "must be a token id, not -1"),
    "keyword": (
        {"protocol": {"schemas": [{"prompt": "x", "schema": {"type": "string", "pattern": "a"}}]}},
        r"unknown key gate.protocol.schemas\[0\].schema.pattern",
    ),
    "type": (
        {"protocol": {"schemas": [{"prompt": "x", "schema": {"type": "text"}}]}},
        r"gate.protocol.schemas\[0\].schema.type must be one of object, array",
    ),
    "expect-breaks-the-schema": (
        {"protocol": {"schemas": [{"prompt": "x", "schema": {"type": "integer"}, "expect": "1"}]}},
        r"expect does not keep to gate.protocol.schemas\[0\].schema: it is \"1\", not of type integer",
    ),
    "call-of-no-tool": (
        {"protocol": {"tools": {"tools": list(WEATHER.tools), "prompt": "x", "call": {"name": "y"}}}},
        "gate.protocol.tools.call.name is 'y', which is none of gate.protocol.tools.tools",
    ),
    "result-without-answer": (
        {
            "protocol": {
                "tools": {
                    "tools": list(WEATHER.tools),
                    "prompt": "x",
                    "call": {"name": "get_weather"},
                    "result": "18",
                }
            }
        },
        "gate.protocol.tools.result and gate.protocol.tools.expect go together",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_profile_is_refused_with_its_path(profile: dict[str, Any], wrong: str) -> None:
    section, message = WRONG[wrong]
    profile["gate"] |= section
    with pytest.raises(UsageError, match=message):
        read_model_profile(profile)


def test_every_rule_of_a_reply_has_a_hint() -> None:
    source = "".join(
        (Path(template_data.__file__).parent / name).read_text(encoding="utf-8")
        for name in ("reply_rules.py", "probes/protocol.py", "probes/template.py")
    )
    used = set(re.findall(r'(?:fail\(|Found\("\w+", |say\("(?:warn|fail|error)", )"([\w-]+)"', source))
    assert len(used) > 20
    assert used <= HINTS.keys()


# --- tool calls and raw completions in replies ----------------------------------------------------


def stream_of(*choices: dict[str, Any]) -> Stream:
    return Stream(
        0.0, [Event(float(at), {"choices": [choice]}) for at, choice in enumerate(choices, 1)], True
    )


def part(index: Any, **fields: Any) -> dict[str, Any]:
    name_and_arguments = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return {"delta": {"tool_calls": [{"index": index, "function": name_and_arguments, **fields}]}}


def test_streamed_calls_are_put_together() -> None:
    answer, timing = read_stream(
        stream_of(
            part(0, id="a", name="f", arguments=""),
            part(0, id=None, name=None, arguments='{"x"'),
            part(1, id="b", name="g", arguments="{}"),
            part(0, arguments=": 1}"),
            {"delta": {"tool_calls": None}, "finish_reason": "tool_calls"},
        )
    )
    assert answer.tool_calls == (ToolCall("a", "f", '{"x": 1}'), ToolCall("b", "g", "{}"))
    assert timing.ttft_s == 1.0


@pytest.mark.parametrize(
    "choice",
    [
        part("0", name="f"),
        {"delta": {"tool_calls": {}}},
        {"delta": {"tool_calls": ["f"]}},
        {"delta": {"tool_calls": [{"index": 0, "function": None}]}},
        part(0, name=1),
    ],
)
def test_a_malformed_call_is_refused(choice: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match=r"tool|name|index"):
        read_stream(stream_of(choice))


def test_a_raw_completion_is_an_answer_too() -> None:
    assert read_answer({"choices": [{"text": " Paris", "finish_reason": "stop"}]}) == Answer(
        " Paris", None, "stop"
    )


@pytest.mark.parametrize(
    ("tokens", "speed", "lump"),
    [(40, None, True), (40, 100_000.0, True), (40, 900.0, False), (8, None, False), (None, None, False)],
)
def test_a_lump_is_faster_than_any_decoding(tokens: int | None, speed: float | None, lump: bool) -> None:
    answer = Answer("x", None, "stop", 5, tokens)
    reply = Reply(Ask("x", "x", 64, {}, streamed=True), answer, timing=Timing(0.1, None, None, speed))
    assert came_in_one_lump(reply) is lump


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("<function=get_weather>\n<parameter=city>Paris", "tool-text"),
        ('[TOOL_CALLS][{"name": "f"}]', "tool-text"),
        ("<\uff5ctool\u2581calls\u2581begin\uff5c>", "tool-text"),
        ("It is called </s>", "special-token"),
        ("<think>hm", "think-tag"),
    ],
)
def test_markup_in_the_content(text: str, rule: str) -> None:
    assert rule in {found.rule for found in judge_texts(Answer(text, None, "stop"))}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("I answer with a <tool_call> block, as the system prompt wants.", False),
        ('I need <tool_call>\n{"name": "f"}', True),
        ("Then <function=f>\n<parameter=x>", True),
    ],
)
def test_reasoning_may_speak_of_markup_but_not_call(text: str, found: bool) -> None:
    assert bool(list(judge_texts(Answer("ok", text, "stop")))) is found
