"""The chat side of the stand-in: answers, calls tools, keeps to schemas, stops, streams, and can be spoilt.

It knows the questions of `defaults.GATE` and of the default protocol cases, and a secret word or a name that
a conversation tells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from llm_gate.defaults import GATE

FACTS: dict[str, str] = {fact["prompt"]: fact["expect"] for fact in GATE["facts"]}  # type: ignore[attr-defined]
NUMBERS = ", ".join(map(str, range(1, 21)))
PARIS = {"city": "Paris", "millions": 2, "sights": ["Louvre", "Eiffel Tower", "Notre-Dame"]}
KNOWN: dict[str, str] = {
    **FACTS,
    "Reply with exactly OK": "OK",
    "What is 17*19?": "17*19 = 323.",
    "Count from 1 to 20, separated by commas. Give only the numbers.": NUMBERS,
    "The capital of France is": " Paris, the city of light.",
    "And of Italy? Answer in one word.": "Rome",
}
_TOKEN = re.compile(r"\d+| ?[A-Za-z]+|\s+|[^\w\s]|\w")
_TOLD = re.compile(r"(?:The secret word|My name) is (\w+)\.")


@dataclass
class Spoken:
    """One answer on its way out; a fault may change any of it."""

    content: str | None
    reasoning: str | None = None
    calls: list[dict[str, str]] = field(default_factory=list)
    finish_reason: str | None = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usage: bool = True
    done: bool = True
    lump: bool = False
    choices: int = 1
    status: int = 200


Spoil = Callable[[dict[str, Any], Spoken], None]


def tokens_of(text: str) -> list[str]:
    return _TOKEN.findall(text)


def count_prompt(body: dict[str, Any]) -> int:
    """Tokens of the prompt that a simple template makes: every message, the tools, the thinking switch."""
    if "prompt" in body:
        return len(tokens_of(body["prompt"]))
    told = sum(4 + len(tokens_of(str(message["content"]))) for message in body["messages"])
    calls = len(tokens_of(json.dumps([message.get("tool_calls", []) for message in body["messages"]])))
    tools = len(tokens_of(json.dumps(body["tools"]))) if body.get("tools") else 0
    return told + calls + tools + (0 if _thinks(body) else 4) + 3


def speak(body: dict[str, Any]) -> Spoken:
    """The answer of a sound server."""
    spoken = _answer(body)
    said = [spoken.reasoning or "", spoken.content or "", *(call["arguments"] for call in spoken.calls)]
    made = sum(len(tokens_of(text)) for text in said) + 1
    for stop in body.get("stop") or []:
        if spoken.content and stop in spoken.content:
            spoken.content = spoken.content[: spoken.content.index(stop)]
    if made > body["max_tokens"]:
        left = body["max_tokens"]
        spoken.reasoning = _cut(spoken.reasoning, left) if spoken.reasoning else None
        left -= len(tokens_of(spoken.reasoning or ""))
        spoken.content = _cut(spoken.content or "", left) or None
        made, spoken.calls, spoken.finish_reason = body["max_tokens"], [], "length"
    spoken.prompt_tokens, spoken.completion_tokens = count_prompt(body), made
    spoken.choices = body.get("n", 1)
    return spoken


def _answer(body: dict[str, Any]) -> Spoken:
    messages = body.get("messages") or [{"role": "user", "content": body["prompt"]}]
    question = messages[-1]["content"]
    reasoning = "17*20 is 340, minus 17 is 323.\n" if _thinks(body) else None
    if messages[-1]["role"] == "tool":
        return Spoken("It is 18 degrees in Paris.", reasoning)
    if body.get("tools") and "weather" in question:
        call = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
        return Spoken(None, reasoning, [call], "tool_calls")
    if "response_format" in body:
        return Spoken(json.dumps(PARIS if "JSON" in question else {"answer": "Paris"}), reasoning)
    told = _TOLD.findall(" ".join(str(message["content"]) for message in messages))
    return Spoken(KNOWN.get(question) or (told[-1] if told else "I do not know."), reasoning)


def _thinks(body: dict[str, Any]) -> bool:
    return bool(body.get("chat_template_kwargs", {}).get("enable_thinking"))


def _cut(text: str, tokens: int) -> str:
    return "".join(tokens_of(text)[:tokens])


def document(spoken: Spoken, raw: bool) -> dict[str, Any]:
    """The answer in one piece."""
    choices = []
    for index in range(spoken.choices):
        choice: dict[str, Any] = {"index": index, "finish_reason": spoken.finish_reason}
        if raw:
            choice["text"] = spoken.content or ""
        else:
            calls = [_call(number, call) for number, call in enumerate(spoken.calls)] or None
            choice["message"] = {
                "role": "assistant",
                "content": spoken.content,
                "reasoning_content": spoken.reasoning,
                "tool_calls": calls,
            }
        choices.append(choice)
    return {"choices": choices, **({"usage": _usage(spoken)} if spoken.usage else {})}


def events(spoken: Spoken, raw: bool, usage: bool) -> list[object]:
    """The answer as a stream's events, a token each."""
    deltas: list[dict[str, Any]] = [{"reasoning_content": part} for part in tokens_of(spoken.reasoning or "")]
    deltas += [{"content": part} for part in tokens_of(spoken.content or "")]
    for number, call in enumerate(spoken.calls):
        begun = _call(number, {**call, "arguments": ""})
        deltas.append({"tool_calls": [begun]})
        for part in tokens_of(call["arguments"]):
            deltas.append({"tool_calls": [{"index": number, "function": {"arguments": part}}]})
    made: list[object] = (
        [] if raw else [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}]
    )
    for delta in deltas:
        part = {"text": delta["content"]} if raw else {"delta": delta}
        made.append({"choices": [{"index": 0, **part, "finish_reason": None}]})
    last = {"text": ""} if raw else {"delta": {}}
    made.append({"choices": [{"index": 0, **last, "finish_reason": spoken.finish_reason}]})
    if usage and spoken.usage:
        made.append({"choices": [], "usage": _usage(spoken)})
    return made


def _call(number: int, call: dict[str, str]) -> dict[str, Any]:
    return {"index": number, "id": f"call_{number}", "type": "function", "function": dict(call)}


def _usage(spoken: Spoken) -> dict[str, int]:
    return {"prompt_tokens": spoken.prompt_tokens, "completion_tokens": spoken.completion_tokens}
