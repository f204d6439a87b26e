"""Asks many things side by side, each with its reply or with why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from .chat import Answer, Chat, Prompt, Timing
from .errors import RequestFailed


@dataclass(frozen=True)
class Ask:
    """One request."""

    label: str
    prompt: Prompt
    max_tokens: int
    extra: Mapping[str, object]
    streamed: bool = False


@dataclass(frozen=True)
class Reply:
    """What came: an answer, or the error that came instead. `timing` and `done` are a streamed one's."""

    ask: Ask
    answer: Answer | None
    error: RequestFailed | None = None
    timing: Timing | None = None
    done: bool = True


def ask_all(chat: Chat, asks: Sequence[Ask], concurrency: int) -> list[Reply]:
    """Every reply, in the order of the questions, so many requests at a time. Raises for no server."""
    with ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(partial(_ask, chat), asks))


def _ask(chat: Chat, ask: Ask) -> Reply:
    try:
        if not ask.streamed:
            return Reply(ask, chat.ask(ask.prompt, ask.max_tokens, ask.extra))
        # As most clients ask, so that the token counts can only come at the end.
        answer, timing, done = chat.stream(ask.prompt, ask.max_tokens, ask.extra, running_usage=False)
        return Reply(ask, answer, timing=timing, done=done)
    except RequestFailed as error:
        return Reply(ask, None, error)
