"""The prompt of a copying task: a list of words, filler up to a length, the list again."""

from __future__ import annotations

import random

from .probe_data import Copy
from .scoring import Scorer

SCORED = 128
# Which word comes first cannot be known from "the same list again" with certainty; after two it can.
UNJUDGED_WORDS = 2


def copy_prompt(
    scorer: Scorer, copy: Copy, length: int, chooser: random.Random | None = None
) -> tuple[list[int], int | None]:
    """A prompt of just so many tokens and where the judged words begin; None if the length is too small.

    `chooser` puts the words in order; without one the order is new each time.
    """
    words = (chooser or random.SystemRandom()).sample(copy.words, copy.count)
    listed = copy.separator.join(words)
    unjudged = copy.separator.join(words[:UNJUDGED_WORDS])
    head = scorer.tokenize(copy.head + listed + copy.after)
    repeat = scorer.tokenize(copy.repeat + listed, goes_on=True)
    start = len(scorer.tokenize(copy.repeat + unjudged, goes_on=True))
    space = length - len(head) - len(repeat)
    if space < 0 or start >= len(repeat):
        return [], None
    return [*head, *_filler(scorer, copy, space), *repeat], length - len(repeat) + start


def _filler(scorer: Scorer, copy: Copy, tokens: int) -> list[int]:
    if copy.filler is None:
        return scorer.filler(tokens)
    once = scorer.tokenize(copy.filler, goes_on=True)
    return (once * (tokens // len(once) + 1))[:tokens]
