"""Two ways to the same logprobs: computed anew, and with the beginning taken from the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .probe import Check
from .probe_data import Bars
from .stats import differences, mean, share_above, trimmed_mean

# Enough to see a kernel that gives zeros, which hits all of them, and safe for the memory of any server.
SCORED_END = 64


@dataclass(frozen=True)
class Deltas:
    """How far two arms are apart over the tokens of all lengths, in nats; `worst` is one length's mean."""

    tokens: int
    trimmed_mean: float
    large_share: float
    largest: float
    worst: float
    worst_length: int

    @property
    def figures(self) -> dict[str, float]:
        """As measured."""
        return {
            "delta_trimmed_mean": self.trimmed_mean,
            "delta_large_share": self.large_share,
            "delta_largest": self.largest,
            "delta_worst_length_mean": self.worst,
        }

    def __str__(self) -> str:
        return (
            f"{self.tokens} tokens differ by {self.trimmed_mean:.4f} nats (trimmed mean), "
            f"{self.large_share:.1%} by more than 1 nat, at most by {self.largest:.3f}"
        )


def compare(pairs: Mapping[int, tuple[list[float], list[float]]]) -> Deltas:
    """The differences between the logprobs of both arms, given by prompt length."""
    by_length = {length: differences(*pair) for length, pair in pairs.items()}
    pooled = [value for values in by_length.values() for value in values]
    worst_length = max(by_length, key=lambda length: mean(by_length[length]))
    return Deltas(
        tokens=len(pooled),
        trimmed_mean=trimmed_mean(pooled),
        large_share=share_above(pooled, 1.0),
        largest=max(pooled),
        worst=mean(by_length[worst_length]),
        worst_length=worst_length,
    )


def limits(bars: Bars) -> dict[str, float]:
    """The bars by the names of the figures."""
    return {
        "delta_trimmed_mean": bars.delta_trimmed,
        "delta_large_share": bars.delta_share,
        "delta_worst_length_mean": bars.delta_mean_one_length,
    }


def broken_bars(deltas: Deltas, bars: Bars) -> list[str]:
    """Each bar that the differences break, in words."""
    broken = []
    if deltas.trimmed_mean > bars.delta_trimmed:
        broken.append(f"expected at most {bars.delta_trimmed:g} nats")
    if deltas.large_share > bars.delta_share:
        broken.append(f"expected at most {bars.delta_share:.0%} above 1 nat")
    if deltas.worst > bars.delta_mean_one_length:
        broken.append(
            f"at {deltas.worst_length} tokens the mean is {deltas.worst:.2f}, "
            f"expected at most {bars.delta_mean_one_length:g}"
        )
    return broken


def judge(check: Check, pairs: Mapping[int, tuple[list[float], list[float]]], bars: Bars, what: str) -> None:
    """Compare the arms, write down figures and bars, and say of `what` whether the bars hold."""
    deltas = compare(pairs)
    check.measured(deltas.figures)
    check.limits(limits(bars))
    broken = broken_bars(deltas, bars)
    check.say("fail" if broken else "pass", "cache-delta", "; ".join([f"{what}: {deltas}", *broken]))
