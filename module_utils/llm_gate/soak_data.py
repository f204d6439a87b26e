"""What a soak asks, as a model profile has it."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import UsageError
from .probe_data import Question, read_question
from .section import Section, each, positive_integer, positive_number


@dataclass(frozen=True)
class SoakBars:
    """Shares of all answers.

    Healthy servers leave no answer empty; one with a think block that never closed did so in 0.3 to 0.8 % of
    cold concurrent requests
    (https://github.com/joninco/rtx6kpro/blob/master/models/ds4f-empty-think/README.md).
    """

    wrong: float = 0.15
    empty: float = 0.0
    unfinished: float = 0.5


@dataclass(frozen=True)
class Soak:
    """How much is asked: `requests` long answers with short ones between, so many at a time, for `seconds`.

    `tasks` have one right result each, at the end of a long answer. `turns` is the length of the chat that
    grows.
    """

    tasks: tuple[Question, ...]
    requests: int
    concurrency: int
    max_tokens: int
    seconds: float
    turns: int
    bars: SoakBars


def read_soak(value: object, path: str) -> Soak:
    """The section `soak` of a profile. Raises UsageError."""
    section = Section(value, path)
    max_tokens = section.take("max_tokens", positive_integer, 8192)
    soak = Soak(
        tasks=section.take("tasks", each(lambda item, where: read_question(item, where, max_tokens)), ()),
        requests=section.take("requests", positive_integer, 30),
        concurrency=section.take("concurrency", positive_integer, 8),
        max_tokens=max_tokens,
        seconds=section.take("seconds", positive_number, 3600.0),
        turns=section.take("turns", _turns, 10),
        bars=section.take("bars", _bars, {}),
    )
    section.close()
    return soak


def _turns(value: object, path: str) -> int:
    return 0 if value == 0 and not isinstance(value, bool) else positive_integer(value, path)


def _bars(value: object, path: str) -> SoakBars:
    section = Section(value, path)
    bars = SoakBars(
        section.take("wrong", _share, SoakBars.wrong),
        section.take("empty", _share, SoakBars.empty),
        section.take("unfinished", _share, SoakBars.unfinished),
    )
    section.close()
    return bars


def _share(value: object, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise UsageError(f"{path} must be a share from 0 to 1, not {value!r}")
    return float(value)
