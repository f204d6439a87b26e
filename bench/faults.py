# ruff: noqa: RUF001 - text in the wrong script is what some faults are
"""The faults that the proxy can play, each with the place where users met it or the row that asks for it.

Faults of the text come as an unlucky engine makes them: a loop goes on to the token limit, a wrong word
leaves the rest as it is. Where something happens only sometimes, chance comes from the proxy's seed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from fault_proxy import (
    CHAT,
    DONE,
    Answer,
    Asked,
    ChangeLogprob,
    Document,
    Fault,
    Place,
    Refusal,
    StreamEvent,
    Wire,
)

GITHUB = "https://github.com"
SGLANG = f"{GITHUB}/sgl-project/sglang"
VLLM = f"{GITHUB}/vllm-project/vllm"
FLASHINFER = f"{GITHUB}/flashinfer-ai/flashinfer"
# What a chat stream must hold.
OPENAI = "https://platform.openai.com/docs/api-reference/chat"

# Faults of load begin when more requests than this run at a time.
MANY = 4
# The one prompt length that is computed wrongly, in rows.
BAD_ROWS = 1536
FAR_PROMPT = 2048
FAR_ANSWER = 128
# A part of a prompt that came from the cache is a hit from this size on, tokens.
LEAST_HIT = 16
# Logits that are all the same, in a vocabulary of 151,936: -ln(151936).
FLAT = -11.931

ChangeAnswer = Callable[[Answer, Asked], Answer]
When = Callable[[Answer, Asked], bool]

_WORD = re.compile(r"\S+")
_SOUP = (
    *("yageege", "bensatunya", "amatööri", "的な", "рабо", "출력", "ingsverk", "ção"),
    *("لماذا", "getElement", "ότι", "関数", "nośćą", "ключ", "않은", "straße"),
    *("कि", "toISOString", "就是", "édition", "แล้ว", "quelloّ", "무엇", "ského"),
    *("하지만", "ليس", "由于", "yapıl", "ņēma", "ხელ", "մեջ"),
)
_FRAGMENTS = (" ,", "  ", " .", "\n", ", ,", " the", "   ", " of ,", " -", "\t")
_CHINESE = ("然后", "因为", "我们", "需要", "问题", "这个", "可以", "非常")


# --- texts ---------------------------------------------------------------------------------------


def endless(unit: str) -> ChangeAnswer:
    """The same again and again up to the token limit, reckoned as one token each."""

    def change(answer: Answer, asked: Asked) -> Answer:
        return _cut_off(answer, asked, unit * asked.max_tokens)

    return change


def soup(answer: Answer, asked: Asked) -> Answer:
    """Words of all languages up to the token limit."""
    rng = asked.rng
    return _cut_off(answer, asked, "".join(rng.choice(_SOUP) for _ in range(asked.max_tokens)))


def fragments(answer: Answer, asked: Asked) -> Answer:
    """White space, commas and shreds up to the token limit."""
    rng = asked.rng
    return _cut_off(answer, asked, "".join(rng.choice(_FRAGMENTS) for _ in range(asked.max_tokens)))


def right_then_soup(answer: Answer, asked: Asked) -> Answer:
    """A right beginning, junk from the middle of a word on. Answers of a few letters stay right."""
    content = answer.content or ""
    if len(content) < 24:
        return answer
    rng = asked.rng
    keep = content[: len(content) // 3]
    return replace(answer, content=keep + "".join(rng.choice(_SOUP) for _ in range(len(content) // 6)))


def right_then_loop(answer: Answer, asked: Asked) -> Answer:
    """A right beginning, then its last words for ever."""
    content = answer.content or ""
    if len(content) < 24:
        return answer
    keep = content[: len(content) // 2]
    tail = " ".join(keep.split()[-3:]) + " "
    return _cut_off(answer, asked, keep + tail * asked.max_tokens)


def junk_after(tokens: int) -> ChangeAnswer:
    """A text that is sound for so many tokens only. Where the ids are told, they tell the same."""

    def change(answer: Answer, asked: Asked) -> Answer:
        made = answer.completion_tokens or 0
        content = answer.content or ""
        if made <= tokens:
            return answer
        rng = asked.rng
        keep = content[: len(content) * tokens // made]
        return replace(answer, content=keep + "".join(rng.choice(_SOUP) for _ in range(made - tokens)))

    return change


def _cut_off(answer: Answer, asked: Asked, text: str) -> Answer:
    """The limit ends a text that goes on for ever; no tool call came of it."""
    return replace(
        answer,
        content=text,
        reasoning=None,
        tool_calls=(),
        finish_reason="length",
        completion_tokens=asked.max_tokens,
    )


def words(change: Callable[[str, Random], str]) -> ChangeAnswer:
    """Change the content and the reasoning word by word."""

    def change_answer(answer: Answer, asked: Asked) -> Answer:
        rng = asked.rng

        def changed(text: str | None) -> str | None:
            return text and _WORD.sub(lambda word: change(word.group(), rng), text)

        return replace(answer, content=changed(answer.content), reasoning=changed(answer.reasoning))

    return change_answer


def swapped(share: float) -> ChangeAnswer:
    """Now and then another word, plain English."""
    others = ("window", "seven", "green", "although", "river", "ticket")
    return words(lambda word, rng: rng.choice(others) if rng.random() < share else word)


def drifting(share: float) -> ChangeAnswer:
    """Chinese words among others."""
    return words(lambda word, rng: rng.choice(_CHINESE) if rng.random() < share else word)


def broken_characters(answer: Answer, asked: Asked) -> Answer:
    """Letters outside of ASCII are lost now and then; English stays sound."""
    rng = asked.rng

    def broken(text: str | None) -> str | None:
        return text and re.sub(
            r"[^\x00-\x7f]", lambda letter: "�" if rng.random() < 0.3 else letter.group(), text
        )

    return replace(answer, content=broken(answer.content), reasoning=broken(answer.reasoning))


def leaking_token(answer: Answer, asked: Asked) -> Answer:
    """A special token as plain text in the middle."""
    content = answer.content or ""
    middle = len(content) // 2
    return replace(answer, content=f"{content[:middle]}<|im_end|>{content[middle:]}")


def empty(answer: Answer, asked: Asked) -> Answer:
    """Nothing, and it looks finished."""
    return replace(answer, content="", reasoning=None, finish_reason="stop", completion_tokens=1)


def silent(answer: Answer, asked: Asked) -> Answer:
    """Reasoning as always, then no content though the model stopped by itself."""
    return replace(answer, content="", finish_reason="stop")


def wrong_first_token(answer: Answer, asked: Asked) -> Answer:
    """Another first character, the rest as it was."""
    content = answer.content or ""
    return replace(answer, content=("9" if content[:1] != "9" else "4") + content[1:])


def other_ids(answer: Answer, asked: Asked) -> Answer:
    """Now and then the decode kernel takes another token than the likeliest. Seen where ids are told."""
    if answer.ids is None:
        return answer
    ids = list(answer.ids)
    for index in range(3, len(ids), 8):
        ids[index] = ids[index - 3]
    return replace(answer, ids=tuple(ids))


def only_if(when: When, change: ChangeAnswer) -> ChangeAnswer:
    """Change only some answers."""
    return lambda answer, asked: change(answer, asked) if when(answer, asked) else answer


def share_of_requests(share: float) -> When:
    """By chance."""
    return lambda answer, asked: asked.rng.random() < share


def under_load(answer: Answer, asked: Asked) -> bool:
    """More than MANY at a time."""
    return asked.peak > MANY


def asked_before(answer: Answer, asked: Asked) -> bool:
    """The very same prompt once more."""
    return asked.repeats > 0


def thinking(answer: Answer, asked: Asked) -> bool:
    """Chats that think."""
    return asked.thinks


def long_prompt(answer: Answer, asked: Asked) -> bool:
    """More than FAR_PROMPT tokens."""
    return (answer.prompt_tokens or 0) > FAR_PROMPT


def bad_rows(answer: Answer, asked: Asked) -> bool:
    """Just BAD_ROWS computed."""
    return (answer.prompt_tokens or 0) - (answer.cached_tokens or 0) == BAD_ROWS


def late_round(answer: Answer, asked: Asked) -> bool:
    """A conversation in its third round or later."""
    return len([message for message in asked.messages if message.get("role") == "user"]) >= 3


def one_after_64(answer: Answer, asked: Asked) -> bool:
    """A repeated prompt whose length is 1 modulo 64: one token is left to compute."""
    return asked.repeats > 0 and (answer.prompt_tokens or 0) % 64 == 1


# --- parsers -------------------------------------------------------------------------------------


def all_in_reasoning(answer: Answer, asked: Asked) -> Answer:
    """The parser takes everything for reasoning."""
    if asked.path != CHAT or answer.content is None:
        return answer
    return replace(answer, content=None, reasoning=(answer.reasoning or "") + answer.content)


def think_tags_in_content(answer: Answer, asked: Asked) -> Answer:
    """No parser took the reasoning out."""
    if answer.reasoning is None:
        return answer
    content = f"<think>\n{answer.reasoning.strip()}\n</think>\n\n{(answer.content or '').strip()}"
    return replace(answer, content=content, reasoning=None)


def untagged_reasoning_in_content(answer: Answer, asked: Asked) -> Answer:
    """The same with the tags lost."""
    if answer.reasoning is None:
        return answer
    content = f"{answer.reasoning.strip()}\n\n{(answer.content or '').strip()}"
    return replace(answer, content=content, reasoning=None)


def _call_text(call: Document) -> str:
    function = call["function"]
    told = json.dumps({"name": function["name"], "arguments": function["arguments"]})
    return f"<tool_call>\n{told}\n</tool_call>"


def calls_in_reasoning(answer: Answer, asked: Asked) -> Answer:
    """The reasoning parser comes first and keeps the tool call."""
    if not answer.tool_calls:
        return answer
    text = (answer.reasoning or "") + "".join(map(_call_text, answer.tool_calls))
    return replace(answer, content=None, reasoning=text, tool_calls=(), finish_reason="stop")


def calls_as_xml(answer: Answer, asked: Asked) -> Answer:
    """Tool calls in a form that the parser does not know."""
    if not answer.tool_calls:
        return answer
    text = "".join(f"<function={call['function']['name']}>\n</function>" for call in answer.tool_calls)
    return replace(answer, content=text, tool_calls=(), finish_reason="stop")


def _changed_arguments(answer: Answer, change: Callable[[str], str]) -> Answer:
    calls = tuple(
        call | {"function": call["function"] | {"arguments": change(call["function"]["arguments"] or "")}}
        for call in answer.tool_calls
    )
    return replace(answer, tool_calls=calls)


def cut_arguments(answer: Answer, asked: Asked) -> Answer:
    """Tool arguments whose end is missing."""
    return _changed_arguments(answer, lambda text: text[:-1])


def other_arguments(answer: Answer, asked: Asked) -> Answer:
    """Tool arguments by names that the schema does not know."""
    return _changed_arguments(answer, lambda text: '{"argument": "value"}')


def lost_when_streaming(answer: Answer, asked: Asked) -> Answer:
    """Tool calls arrive only in replies that are not streamed."""
    return replace(answer, tool_calls=(), content=answer.content or "") if asked.streams else answer


def dropped_calls(answer: Answer, asked: Asked) -> Answer:
    """A third of the streamed tool calls is lost."""
    return lost_when_streaming(answer, asked) if asked.rng.random() < 1 / 3 else answer


def always_length(answer: Answer, asked: Asked) -> Answer:
    return replace(answer, finish_reason="length")


# --- requests ------------------------------------------------------------------------------------


def without(*names: str) -> Callable[[Document, Asked], Document]:
    """Fields of a request that the server ignores; SGLang's sampling parameters as well."""

    def change(body: Document, asked: Asked) -> Document:
        for holder in (body, body.get("sampling_params") or {}):
            for name in names:
                holder.pop(name, None)
        return body

    return change


def without_system_prompt(body: Document, asked: Asked) -> Document:
    if "messages" in body:
        body["messages"] = [message for message in body["messages"] if message.get("role") != "system"]
    return body


def only_last_message(body: Document, asked: Asked) -> Document:
    """The history of a conversation is lost."""
    if "messages" in body:
        body["messages"] = body["messages"][-1:]
    return body


def refuse_developer(asked: Asked) -> Refusal | None:
    if any(message.get("role") == "developer" for message in asked.messages):
        return Refusal(400, {"object": "error", "message": "Unexpected message role.", "code": 400})
    return None


def refuse_logprobs(asked: Asked) -> Refusal | None:
    """As servers do that cannot write NaN as JSON."""
    if asked.generates and asked.wants_logprobs:
        return Refusal(500, {"error": {"message": "Internal Server Error", "code": 500}})
    return None


def refuse_everyone(asked: Asked) -> Refusal | None:
    """SGLang answers its health pages without a key."""
    if asked.path.startswith(("/health", "/metrics")):
        return None
    return Refusal(401, {"error": "Unauthorized"})


def refuse_under_load(asked: Asked) -> Refusal | None:
    """One request in ten fails."""
    if asked.generates and asked.number % 10 == 0:
        return Refusal(500, {"error": {"message": "Internal Server Error", "code": 500}})
    return None


# --- logprobs ------------------------------------------------------------------------------------


def to_all(value: float | None) -> ChangeLogprob:
    return lambda logprob, token, place, asked: value


def now_and_then_null(logprob: float, token: object, place: Place, asked: Asked) -> float | None:
    """NaN at one position in twelve, the same ones each time."""
    return None if _unit("null", place.position) < 1 / 12 else logprob


def null_under_load(logprob: float, token: object, place: Place, asked: Asked) -> float | None:
    return None if asked.peak > MANY else logprob


def noise(deviation: float, when: Callable[[Place], bool] = lambda place: True) -> ChangeLogprob:
    """Normal noise, the same for all tokens of a place, so that the likeliest stays the likeliest.

    As from broken weights, which generate by the same wrong logits that they score by. Nothing becomes
    likelier than certain.
    """

    def change(logprob: float, token: object, place: Place, asked: Asked) -> float:
        if not when(place):
            return logprob
        return min(0.0, logprob + Random(place.position).gauss(0.0, deviation))

    return change


def lost_when(when: Callable[[Place], bool]) -> ChangeLogprob:
    """Where it applies, what the token is no longer counts: each costs about the same."""

    def change(logprob: float, token: object, place: Place, asked: Asked) -> float:
        return -3.0 - 4.0 * _unit(token, place.position) if when(place) else logprob

    return change


def from_cache(place: Place) -> bool:
    return place.cached_tokens >= LEAST_HIT


def with_bad_rows(place: Place) -> bool:
    return place.rows == BAD_ROWS


def far_away(place: Place) -> bool:
    return not place.generated and place.position > FAR_PROMPT


def _unit(*key: object) -> float:
    """A number from 0 to 1 that is always the same for a key."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32


# --- documents -----------------------------------------------------------------------------------


def other_served_name(document: Document, asked: Asked) -> Document:
    if asked.path == "/v1/models":
        for entry in document.get("data") or ():
            entry["id"] = f"{entry['id']}-other"
            entry["root"] = entry["id"]
    return document


def without_usage(document: Document, asked: Asked) -> Document:
    if asked.path == CHAT:
        document.pop("usage", None)
    return document


def collapsing_acceptance(document: Document, asked: Asked) -> Document:
    """Speculation that works alone and for nobody as soon as a second request runs."""
    info = document.get("meta_info")
    if asked.generates and isinstance(info, dict) and not asked.wants_logprobs:
        tokens = info.get("completion_tokens") or 1
        accepted, histogram = (3.2, [5, 10, 25, 60]) if asked.peak == 1 else (1.05, [95, 5, 0, 0])
        info |= {
            "spec_accept_length": accepted,
            "spec_accept_rate": (accepted - 1) / 3,
            "spec_accept_histogram": histogram,
            "spec_verify_ct": max(1, round(tokens / accepted)),
        }
    return document


# --- streams -------------------------------------------------------------------------------------

Events = Iterator[StreamEvent]


def without_done(events: Events, asked: Asked) -> Events:
    return (event for event in events if event != DONE)


def without_usage_event(events: Events, asked: Asked) -> Events:
    for event in events:
        if not isinstance(event, dict) or "usage" not in event:
            yield event
        elif event.get("choices"):
            yield {name: value for name, value in event.items() if name != "usage"}


def without_finish(events: Events, asked: Asked) -> Events:
    """No event says why the answer ended."""
    for event in events:
        if isinstance(event, dict):
            for choice in event.get("choices") or ():
                choice["finish_reason"] = None
        yield event


def torn(events: Events, asked: Asked) -> Events:
    """The stream just stops."""
    for number, event in enumerate(events):
        if number == 5:
            return
        yield event


# --- the list ------------------------------------------------------------------------------------

FAULTS: tuple[Fault, ...] = (
    # Loops and soup.
    Fault("all_exclamation", "'!' to the limit, logprobs sound", f"{VLLM}/issues/22881", answer=endless("!")),
    Fault("all_plus", "'+' to the limit", f"{SGLANG}/issues/24321", answer=endless("+")),
    Fault(
        "a_a_a",
        "'a a a' to the limit",
        f"{GITHUB}/Blackwellboy/model-serving-minefield/pull/35",
        answer=endless("a "),
    ),
    Fault("think_think", "'think think' to the limit", f"{VLLM}/issues/47087", answer=endless("think ")),
    Fault("all_newlines", "line breaks to the limit", f"{SGLANG}/issues/6313", answer=endless("\n")),
    Fault(
        "all_bos", "'<|endoftext|>' to the limit", f"{SGLANG}/issues/12824", answer=endless("<|endoftext|>")
    ),
    Fault("soup", "words of all languages", f"{SGLANG}/issues/21132", answer=soup),
    Fault("fragments", "white space, commas, shreds", f"{FLASHINFER}/issues/2723", answer=fragments),
    Fault(
        "right_then_soup",
        "right start, junk from mid-word on",
        f"{VLLM}/issues/53029",
        answer=right_then_soup,
    ),
    Fault("right_then_loop", "right start, then a loop", f"{VLLM}/issues/47087", answer=right_then_loop),
    # Quietly wrong.
    Fault("word_swapped_5", "1 word in 20 is another one", f"{FLASHINFER}/issues/2708", answer=swapped(0.05)),
    Fault(
        "word_swapped_1",
        "1 word in 100 is another one",
        f"{FLASHINFER}/issues/2708",
        answer=swapped(0.01),
        if_missed="it comes by chance: a short run may meet no swapped word",
    ),
    Fault("broken_characters", "U+FFFD outside of ASCII", f"{VLLM}/issues/54150", answer=broken_characters),
    Fault("chinese_drift", "1 word in 12 is Chinese", f"{VLLM}/issues/54150", answer=drifting(1 / 12)),
    Fault("empty_always", "empty, finish_reason stop", f"{VLLM}/issues/21181", answer=empty),
    Fault(
        "empty_1_percent",
        "1 % of the answers empty at stop",
        f"{GITHUB}/joninco/rtx6kpro/blob/master/models/ds4f-empty-think/README.md",
        answer=only_if(share_of_requests(0.01), silent),
        if_missed="it comes by chance: with some 150 answers a run meets none in one case of five",
    ),
    Fault(
        "wrong_when_thinking",
        "junk with thinking on, right without",
        f"{VLLM}/issues/47367",
        answer=only_if(thinking, soup),
    ),
    # Only sometimes: load, caches, lengths.
    Fault(
        "exclamation_under_load",
        f"'!' with more than {MANY} requests",
        f"{FLASHINFER}/issues/4569",
        answer=only_if(under_load, endless("!")),
    ),
    Fault(
        "leak_under_load",
        f"'<|im_end|>' in the text with more than {MANY} requests",
        f"{VLLM}/pull/41834",
        answer=only_if(under_load, leaking_token),
    ),
    Fault(
        "empty_under_load",
        f"empty with more than {MANY} requests",
        f"{GITHUB}/syv-ai/qwen38-27b-rtx3090/issues/121",
        answer=only_if(under_load, empty),
    ),
    Fault(
        "null_under_load",
        f"null logprobs with more than {MANY} requests",
        f"{SGLANG}/pull/20047",
        answer=only_if(under_load, endless("!")),
        logprob=null_under_load,
    ),
    Fault("fails_1_in_10", "HTTP 500 for 1 request in 10", f"{SGLANG}/pull/20047", refuse=refuse_under_load),
    Fault(
        "second_time_wrong",
        "junk for a prompt that came before",
        f"{VLLM}/issues/53912",
        answer=only_if(asked_before, soup),
    ),
    Fault(
        "second_time_first_token",
        "a cache hit of 64k + 1 tokens: first token wrong",
        f"{SGLANG}/pull/29633",
        answer=only_if(one_after_64, wrong_first_token),
    ),
    Fault(
        "cache_logprobs",
        "logprobs of cached prompts off by 1 nat",
        f"{GITHUB}/jundot/omlx/issues/2255",
        logprob=noise(1.5, from_cache),
    ),
    Fault(
        "one_length",
        f"lost at {BAD_ROWS} rows only",
        f"{FLASHINFER}/issues/3398",
        answer=only_if(bad_rows, soup),
        logprob=lost_when(with_bad_rows),
    ),
    Fault(
        "past_prompt_length",
        f"lost past {FAR_PROMPT} tokens of prompt",
        f"{VLLM}/issues/47827",
        answer=only_if(long_prompt, soup),
        logprob=lost_when(far_away),
    ),
    Fault(
        "past_answer_length",
        f"junk past {FAR_ANSWER} generated tokens",
        f"{GITHUB}/NVIDIA/TensorRT-LLM/issues/16916",
        answer=junk_after(FAR_ANSWER),
    ),
    Fault(
        "late_round",
        "'!' from the third round of a conversation on",
        f"{VLLM}/issues/53305",
        answer=only_if(late_round, endless("!")),
        if_missed="it takes a conversation of three rounds and more",
    ),
    Fault("decode_only", "1 token in 8 is not the likeliest", f"{VLLM}/issues/52531", answer=other_ids),
    Fault(
        "acceptance_collapse",
        "speculation fails for two requests",
        f"{GITHUB}/local-inference-lab/rtx6kpro/issues/72",
        document=collapsing_acceptance,
    ),
    # Logprobs.
    Fault("null_logprobs", "all logprobs null", f"{VLLM}/issues/13035", logprob=to_all(None)),
    Fault(
        "null_some",
        "1 logprob in 12 null",
        f"{GITHUB}/local-inference-lab/rtx6kpro",
        logprob=now_and_then_null,
    ),
    Fault("flat_logprobs", "all logprobs -ln V", f"{VLLM}/issues/53029", logprob=to_all(FLAT)),
    Fault("logprobs_500", "HTTP 500 with logprobs only", f"{VLLM}/issues/13035", refuse=refuse_logprobs),
    Fault(
        "noise_0.3",
        "logprobs off by 0.3 nat: a scale slightly wrong",
        f"{SGLANG}/issues/25790",
        logprob=noise(0.3),
        if_missed="without a baseline only texts known by heart can tell, and they must be known well",
    ),
    # Parsers and templates.
    Fault(
        "all_in_reasoning",
        "content null, the answer in reasoning_content",
        f"{SGLANG}/issues/37645",
        answer=all_in_reasoning,
    ),
    Fault("think_tags", "<think> in the content", f"{VLLM}/issues/34684", answer=think_tags_in_content),
    Fault(
        "untagged_reasoning",
        "reasoning in the content, without tags",
        f"{VLLM}/issues/34684",
        answer=untagged_reasoning_in_content,
    ),
    Fault(
        "tool_in_reasoning",
        "tool call as text in reasoning_content",
        f"{SGLANG}/pull/26172",
        answer=calls_in_reasoning,
    ),
    Fault(
        "tool_as_xml",
        "tool call as XML in content",
        f"{GITHUB}/QwenLM/Qwen3.8/issues/125",
        answer=calls_as_xml,
    ),
    Fault(
        "tool_lost_in_stream",
        "no tool call when streaming",
        f"{GITHUB}/noonghunna/club-3090/issues/145",
        answer=lost_when_streaming,
    ),
    Fault(
        "tool_dropped",
        "1 streamed tool call in 3 lost",
        f"{GITHUB}/local-inference-lab/rtx6kpro/blob/master/troubleshooting/common-issues.md",
        answer=dropped_calls,
        if_missed="it comes by chance: four streamed calls all arrive in one case of five",
    ),
    Fault(
        "tool_not_json",
        "tool arguments cut off",
        f"{GITHUB}/MoonshotAI/K2-Vendor-Verifier",
        answer=cut_arguments,
    ),
    Fault(
        "tool_wrong_schema",
        "tool arguments of other names",
        f"{GITHUB}/MoonshotAI/K2-Vendor-Verifier",
        answer=other_arguments,
    ),
    Fault(
        "schema_ignored",
        "response_format and json_schema ignored",
        f"{VLLM}/issues/13828",
        forward=without("response_format", "json_schema", "regex", "ebnf"),
    ),
    Fault(
        "developer_refused",
        "HTTP 400 for the role developer",
        f"{GITHUB}/local-inference-lab/rtx6kpro/blob/master/troubleshooting/common-issues.md",
        refuse=refuse_developer,
        if_missed="where the profile has no golden chat with that role it is a warning only",
    ),
    Fault(
        "stop_ignored",
        "stop ignored",
        f"{GITHUB}/MoonshotAI/Kimi-Vendor-Verifier",
        forward=without("stop", "stop_token_ids"),
    ),
    Fault(
        "max_tokens_ignored",
        "the token limit ignored",
        f"{GITHUB}/MoonshotAI/Kimi-Vendor-Verifier",
        forward=without("max_tokens", "max_completion_tokens"),
    ),
    Fault(
        "system_dropped",
        "the system prompt dropped",
        f"{GITHUB}/MoonshotAI/Kimi-Vendor-Verifier",
        forward=without_system_prompt,
    ),
    Fault(
        "history_dropped",
        "only the last message is read",
        f"{GITHUB}/MoonshotAI/Kimi-Vendor-Verifier",
        forward=only_last_message,
    ),
    Fault(
        "thinking_stuck_on",
        "enable_thinking ignored",
        f"{SGLANG}/pull/20789",
        forward=without("chat_template_kwargs"),
    ),
    Fault(
        "always_length",
        "finish_reason always length",
        f"{GITHUB}/huggingface/transformers/issues/23175",
        answer=always_length,
    ),
    # Streams and the wire.
    Fault("no_done", "no [DONE]", OPENAI, events=without_done),
    Fault(
        "no_usage",
        "no usage",
        OPENAI,
        document=without_usage,
        events=without_usage_event,
    ),
    Fault(
        "no_finish_reason",
        "streams without finish_reason",
        OPENAI,
        events=without_finish,
    ),
    Fault("torn_stream", "streams that break off", OPENAI, events=torn),
    Fault(
        "one_lump",
        "streams in one piece",
        OPENAI,
        wire=Wire(lump=True),
        if_missed="a warning only: clients get the right answer, but late",
    ),
    Fault("hang_headers", "silence after the headers", f"{SGLANG}/issues/22779", wire=Wire(hang="headers")),
    Fault("hang_middle", "silence in mid-reply", f"{SGLANG}/issues/22779", wire=Wire(hang="middle")),
    Fault(
        "hang_late",
        "silence from the 80th request on",
        f"{SGLANG}/issues/22779",
        wire=Wire(hang="headers", hang_from=80),
    ),
    Fault("slow_drip", "a byte in 0.2 s", f"{SGLANG}/issues/22779", wire=Wire(drip_s=0.2)),
    Fault("dies", "the server is gone after 20 requests", f"{SGLANG}/issues/14046", wire=Wire(dies_after=20)),
    # The wrong server.
    Fault(
        "wrong_name",
        "another served name",
        f"{GITHUB}/MoonshotAI/Kimi-Vendor-Verifier",
        document=other_served_name,
    ),
    Fault(
        "unauthorized",
        "HTTP 401",
        "https://datatracker.ietf.org/doc/html/rfc9110#section-15.5.2",
        refuse=refuse_everyone,
    ),
)


def by_name() -> dict[str, Fault]:
    """The faults by their names."""
    return {fault.name: fault for fault in FAULTS}
