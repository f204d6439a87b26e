"""Chat completions: builds the requests and reads the replies, trusting nothing about their shape."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock

from .client import Client, Event, Stream
from .errors import Malformed
from .text import excerpt

PATH = "/v1/chat/completions"
RAW_PATH = "/v1/completions"
# What a profile's extra request fields may not replace. Above temperature 0, NaN logits kill SGLang 0.5.9.
RESERVED_FIELDS = frozenset(
    {"model", "messages", "temperature", "max_tokens", "stream", "stream_options", "logprobs"}
)


# What is asked: a question, or a whole conversation as the API takes it.
Prompt = str | Sequence[Mapping[str, object]]


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool as it came; `arguments` should be JSON."""

    id: str | None
    name: str | None
    arguments: str


@dataclass(frozen=True)
class Answer:
    """One complete answer. Token counts are None where the server did not say."""

    content: str | None
    reasoning: str | None
    finish_reason: str | None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True)
class Timing:
    """When a streamed answer arrived, in seconds.

    `ttft_s` is the time to first token, from sending to the first text. `itl_s` is the mean time between
    later tokens, `tokens_per_second` the decode speed; both leave out the tokens of the first piece, whose
    time is prefill. None where it cannot be told.
    """

    ttft_s: float | None
    itl_s: float | None
    longest_gap_s: float | None
    tokens_per_second: float | None


@dataclass
class Tokens:
    """Tokens spent so far, as the server counts them. Threads may add to it."""

    prompt: int = 0
    completion: int = 0
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def add(self, prompt: int | None, completion: int | None) -> None:
        """Count what a request cost, where the server said."""
        with self._lock:
            self.prompt += prompt or 0
            self.completion += completion or 0


class Chat:
    """Asks one model, always at temperature 0. What it spends is added to `tokens`."""

    path = PATH

    def __init__(self, client: Client, model: str, tokens: Tokens) -> None:
        self.client = client
        self.model = model
        self.tokens = tokens

    def ask(self, prompt: Prompt, max_tokens: int, extra: Mapping[str, object]) -> Answer:
        """One answer, not streamed. Raises RequestFailed."""
        answer = read_answer(self.client.post(self.path, self._body(prompt, max_tokens, extra)))
        self._count(answer)
        return answer

    def stream(
        self, prompt: Prompt, max_tokens: int, extra: Mapping[str, object], running_usage: bool = True
    ) -> tuple[Answer, Timing, bool]:
        """One streamed answer, its timing, and whether `[DONE]` ended it. Raises RequestFailed.

        `running_usage` asks for token counts with every piece, for exact timing, and not at the end only.
        """
        body = self._body(prompt, max_tokens, extra)
        options: dict[str, object] = {"include_usage": True}
        if running_usage:
            options["continuous_usage_stats"] = True
        stream = self.client.stream(self.path, {**body, "stream": True, "stream_options": options})
        answer, timing = read_stream(stream)
        self._count(answer)
        return answer, timing, stream.done

    def logprobs(
        self, prompt: str, max_tokens: int, extra: Mapping[str, object]
    ) -> list[Mapping[str, object]]:
        """The logprob entry of each token of an answer, [] if the server gives none. Raises RequestFailed."""
        body = self._body(prompt, max_tokens, extra)
        reply = self.client.post(self.path, {**body, "logprobs": True, "top_logprobs": 5})
        self._count(read_answer(reply))
        logprobs = _choice(reply).get("logprobs")
        entries = logprobs.get("content") if isinstance(logprobs, dict) else None
        return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []

    def _body(self, prompt: Prompt, max_tokens: int, extra: Mapping[str, object]) -> dict[str, object]:
        return {
            **extra,
            "model": self.model,
            **self._asked(prompt),
            "temperature": 0,
            "max_tokens": max_tokens,
        }

    def _asked(self, prompt: Prompt) -> dict[str, object]:
        return {"messages": messages_of(prompt)}

    def _count(self, answer: Answer) -> None:
        self.tokens.add(answer.prompt_tokens, answer.completion_tokens)


class RawCompletions(Chat):
    """The same for texts to go on with, which no chat template wraps."""

    path = RAW_PATH

    def _asked(self, prompt: Prompt) -> dict[str, object]:
        return {"prompt": prompt}


def messages_of(prompt: Prompt) -> list[Mapping[str, object]]:
    """The conversation that a prompt is: a question is the user's only message."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)


def read_answer(reply: object) -> Answer:
    """The answer in a completion. Raises Malformed."""
    choice = _choice(reply)
    message = _part(choice, "message")
    assert isinstance(reply, dict)
    prompt_tokens, completion_tokens = _usage(reply)
    return Answer(
        _text(message, "content"),
        _reasoning(message),
        _text(choice, "finish_reason"),
        prompt_tokens,
        completion_tokens,
        tuple(_tool_call(entry) for entry in _tool_entries(message)),
    )


def read_stream(stream: Stream) -> tuple[Answer, Timing]:
    """The answer that a stream's pieces add up to, and its timing. Raises Malformed."""
    contents: list[str] = []
    reasonings: list[str] = []
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    text_events: list[Event] = []
    calls: dict[int, list[ToolCall]] = {}
    for event in stream.events:
        if event.data.get("error"):
            raise Malformed(f"the stream reports an error: {excerpt(str(event.data['error']))!r}")
        if event.data.get("usage") is not None:
            prompt_tokens, completion_tokens = _usage(event.data)
        # The last event holds the usage and no choice.
        if not event.data.get("choices"):
            continue
        choice = _choice(event.data)
        delta = _part(choice, "delta")
        content, reasoning = _text(delta, "content") or "", _reasoning(delta) or ""
        contents.append(content)
        reasonings.append(reasoning)
        entries = _tool_entries(delta)
        for entry in entries:
            calls.setdefault(_index(entry), []).append(_tool_call(entry))
        if content or reasoning or entries:
            text_events.append(event)
        finish_reason = _text(choice, "finish_reason") or finish_reason
    answer = Answer(
        "".join(contents) or None,
        "".join(reasonings) or None,
        finish_reason,
        prompt_tokens,
        completion_tokens,
        tuple(_joined(calls[index]) for index in sorted(calls)),
    )
    return answer, _timing(stream.sent, text_events, completion_tokens)


def _timing(sent: float, events: list[Event], completion_tokens: int | None) -> Timing:
    """The first piece's tokens are known if the server counts as it goes; otherwise it is taken as one."""
    if not events:
        return Timing(None, None, None, None)
    first, last = events[0], events[-1]
    # Speculative decoding sends several tokens in one piece, so pieces are never counted as tokens.
    first_tokens = (_usage(first.data)[1] or 1) if isinstance(first.data.get("usage"), dict) else 1
    spread = last.at - first.at
    later_tokens = (completion_tokens or 0) - first_tokens
    if spread <= 0 or later_tokens <= 0:
        return Timing(first.at - sent, None, None, None)
    gap = max(two.at - one.at for one, two in pairwise(events))
    return Timing(first.at - sent, spread / later_tokens, gap, later_tokens / spread)


def _choice(reply: object) -> dict[str, object]:
    choices = reply.get("choices") if isinstance(reply, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise Malformed(f"the reply holds no choice: {excerpt(str(reply))!r}")
    return choices[0]


def _part(choice: dict[str, object], name: str) -> dict[str, object]:
    """What a choice holds under a name; that of a raw completion has its text without one."""
    part = {"content": choice["text"]} if "text" in choice else choice.get(name)
    if not isinstance(part, dict):
        raise Malformed(f"choices[0].{name} is no object")
    return part


def _reasoning(message: dict[str, object]) -> str | None:
    """SGLang calls the field `reasoning_content`, vLLM `reasoning`."""
    return _text(message, "reasoning_content") or _text(message, "reasoning")


def _tool_entries(message: dict[str, object]) -> list[dict[str, object]]:
    entries = message.get("tool_calls")
    if entries is None:
        return []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise Malformed(f"tool_calls is {excerpt(str(entries), 40)!r}, not a list of calls")
    return entries


def _tool_call(entry: dict[str, object]) -> ToolCall:
    """A call, or the part of one that a piece of a stream holds."""
    function = entry.get("function")
    if not isinstance(function, dict):
        raise Malformed(f"function of a tool call is {excerpt(str(function), 40)!r}, not an object")
    return ToolCall(_text(entry, "id"), _text(function, "name"), _text(function, "arguments") or "")


def _index(entry: dict[str, object]) -> int:
    """Which call a streamed part belongs to."""
    index = entry.get("index")
    if isinstance(index, bool) or not isinstance(index, int):
        raise Malformed(f"index of a streamed tool call is {excerpt(str(index), 40)!r}, not a number")
    return index


def _joined(parts: Sequence[ToolCall]) -> ToolCall:
    """The call that streamed parts add up to: id and name come once, the arguments in pieces."""
    return ToolCall(
        next((part.id for part in parts if part.id), None),
        next((part.name for part in parts if part.name), None),
        "".join(part.arguments for part in parts),
    )


def _text(holder: dict[str, object], name: str) -> str | None:
    value = holder.get(name)
    if value is not None and not isinstance(value, str):
        raise Malformed(f"{name} is {excerpt(str(value), 40)!r}, not a text")
    return value


def _usage(reply: dict[str, object]) -> tuple[int | None, int | None]:
    usage = reply.get("usage")
    if usage is None:
        return None, None
    if not isinstance(usage, dict):
        raise Malformed(f"usage is {excerpt(str(usage), 40)!r}, not an object")
    return _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")


def _count(usage: dict[str, object], name: str) -> int | None:
    value = usage.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1_000_000_000:
        raise Malformed(f"usage.{name} is {excerpt(str(value), 40)!r}, not a count")
    return value


def read_logprob(value: object) -> float:
    """A logprob as a finite number, NaN for all else (null is how most servers write NaN)."""
    # Whole numbers in JSON have no end, and comparing does not overflow.
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) <= sys.float_info.max else math.nan  # type: ignore[arg-type]
