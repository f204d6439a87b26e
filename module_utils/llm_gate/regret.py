"""Judges greedy text by scoring it: every token should have been the likeliest in its place.

Generating goes through decode kernels, the KV cache, batches and speculation; scoring goes through prefill.
So this sees faults on the way to a token, in any mode of speculation, but none that both ways share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .arms import SCORED_END
from .probe_data import MOST_SCORED, Bars
from .scoring import Generated, Scored, Scorer
from .stats import mean, share_above

# Fewer tokens say nothing about their mean logprob.
LEAST_TOKENS = 64


@dataclass(frozen=True)
class Regret:
    """The figures of some greedy texts."""

    tokens: int
    share: float
    large_share: float
    largest: float
    mean_logprob: float

    @property
    def figures(self) -> dict[str, float | int]:
        """As measured."""
        return {
            "tokens": self.tokens,
            "regret_share": self.share,
            "regret_large_share": self.large_share,
            "regret_largest": self.largest,
            "mean_logprob": self.mean_logprob,
        }

    def __str__(self) -> str:
        return (
            f"{self.share:.1%} of {self.tokens} generated tokens are not the likeliest when scored, "
            f"{self.large_share:.1%} by more than 1 nat, mean logprob {self.mean_logprob:.3f}"
        )


def limits(bars: Bars) -> dict[str, float]:
    """The bars by the names of the figures."""
    return {
        "regret_share": bars.regret_share,
        "regret_large_share": bars.regret_large_share,
        "mean_logprob": bars.min_mean_logprob,
    }


def rescore(scorer: Scorer, prompt: Sequence[int], made: Generated, key: str | None) -> Scored:
    """The logprobs of generated tokens, computed anew: what is scored does not come from the cache."""
    first = len(prompt)
    return scorer.score([*prompt, *made.ids[:MOST_SCORED]], first, key)


def rescore_end(scorer: Scorer, prompt: Sequence[int], made: Generated, key: str | None) -> Scored:
    """The same for the last tokens only, so that the rest may come from the cache that decoding wrote."""
    ids = [*prompt, *made.ids[:MOST_SCORED]]
    return scorer.score(ids, max(len(prompt), len(ids) - SCORED_END), key)


def summarise(scored: Sequence[Scored]) -> Regret | None:
    """The figures of all texts together; None if there is no token."""
    regrets = [value for one in scored for value in one.regrets]
    logprobs = [value for one in scored for value in one.logprobs]
    if not regrets:
        return None
    return Regret(
        len(regrets), share_above(regrets, 0.0), share_above(regrets, 1.0), max(regrets), mean(logprobs)
    )


def broken_bars(regret: Regret, bars: Bars) -> list[tuple[str, str]]:
    """Each bar that is broken: the rule and words."""
    broken = []
    if regret.share > bars.regret_share:
        broken.append(("regret", f"expected at most {bars.regret_share:.0%}"))
    if regret.large_share > bars.regret_large_share:
        broken.append(("regret", f"expected at most {bars.regret_large_share:.0%} by more than 1 nat"))
    if regret.tokens >= LEAST_TOKENS and regret.mean_logprob < bars.min_mean_logprob:
        broken.append(("low-logprob", f"expected a mean of at least {bars.min_mean_logprob:g}"))
    return broken
