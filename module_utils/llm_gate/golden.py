"""Measures what a baseline holds: logprobs of fixed tokens, and greedy texts."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event, Thread

from .baseline import DIGITS, Segment, Text
from .copying import SCORED, copy_prompt
from .golden_texts import TEXTS
from .model_profile import ModelProfile
from .probe import Context
from .probe_data import MOST_SCORED, Copy
from .scoring import Scorer, fresh_key

TEXT_TOKENS = 256
# The order of the words to copy: any, as long as it stays.
SEED = 20260307
FACTS = 4
STORY_TOKENS = 64
# Longer contexts are the long_copy probe's; here they would cost more time than all else.
MOST_COPIED = 8192
# Tokens of each request that keeps a server busy beside the measurement.
COMPANY_TOKENS = 64


@dataclass(frozen=True)
class Script:
    """Tokens to score from `first` on."""

    name: str
    kind: str
    ids: tuple[int, ...]
    first: int


def scripts(context: Context) -> list[Script]:
    """What a baseline of this model scores. Raises NotTested where nothing can be scored."""
    scorer, data = context.scorer(), context.profile.probes
    made = [
        Script(name, "text", tuple(scorer.tokenize(text)[:TEXT_TOKENS]), 1) for name, text in TEXTS.items()
    ]
    made += [_after(scorer, f"anchor_{anchor.name}", anchor.prefix, anchor.text) for anchor in data.anchors]
    if data.counting is not None:
        counting = data.counting
        made.append(_after(scorer, "counting", counting.prefix, counting.up_to(counting.to)))
    if data.copy is not None:
        for length in context.fitting(copy_lengths(data.copy)):
            ids, first = copy_prompt(scorer, data.copy, length, random.Random(SEED))
            if first is not None:
                made.append(Script(f"copy_{length}", "copy", tuple(ids), max(first, len(ids) - SCORED)))
    return [script for script in made if len(script.ids) > script.first]


def copy_lengths(copy: Copy | None) -> tuple[int, ...]:
    """The lengths of the copying task that a baseline holds."""
    return tuple(length for length in copy.lengths if length <= MOST_COPIED) if copy else ()


def _after(scorer: Scorer, name: str, prefix: str, text: str) -> Script:
    """As much of a text after its prefix as one request may score; the first token of all has no logprob."""
    head = scorer.tokenize(prefix) if prefix else []
    first = max(1, len(head))
    ids = [*head, *scorer.tokenize(text, goes_on=bool(head))]
    return Script(name, "text", tuple(ids[: first + MOST_SCORED]), first)


def score(scorer: Scorer, script: Script) -> Segment:
    """A script with its logprobs, computed anew where the server keeps caches apart."""
    scored = scorer.score(script.ids, script.first, fresh_key())
    return Segment(
        script.name,
        script.kind,
        script.ids,
        script.first,
        tuple(round(value, DIGITS) for value in scored.logprobs),
        tuple(scored.likeliest),
        tuple(round(value, DIGITS) for value in scored.gaps),
    )


def score_again(scorer: Scorer, segments: Sequence[Segment]) -> list[Segment]:
    """The same tokens as a baseline's."""
    return [score(scorer, Script(one.name, one.kind, one.ids, one.first)) for one in segments]


def prompts(profile: ModelProfile) -> list[Text]:
    """What a baseline of this model asks, not answered yet: some facts, and the beginning of a story."""
    story = profile.smoke.throughput
    asked = [Text(fact.prompt, fact.max_tokens, "") for fact in profile.facts[:FACTS]]
    return [*asked, Text(story.prompt, min(STORY_TOKENS, story.max_tokens), "")]


def answer(context: Context, asked: Sequence[Text]) -> list[Text]:
    """The greedy answers, thinking off."""
    chat, off = context.chat(), context.profile.thinking_off
    return [replace(text, text=chat.ask(text.prompt, text.max_tokens, off).content or "") for text in asked]


@contextmanager
def company(context: Context, others: int) -> Iterator[None]:
    """Keep so many other requests under way. Raises what one of them raised, once the block is done."""
    scorer = context.scorer()
    beginnings = [scorer.tokenize(text) for text in context.profile.probes.continuations]
    done = Event()
    failures: list[Exception] = []

    def keep_asking(number: int) -> None:
        turn = number
        while not done.is_set() and not failures:
            try:
                ids = [*scorer.nonce(), *beginnings[turn % len(beginnings)]]
                scorer.generate(ids, COMPANY_TOKENS - turn % 16)
            except Exception as error:
                failures.append(error)
            turn += 1

    threads = [Thread(target=keep_asking, args=(number,), daemon=True) for number in range(others)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
