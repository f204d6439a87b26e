"""How far a measurement is from a baseline, and what that means. Pure functions.

The statistics come from published comparisons of quantised models; `golden_data.GoldenBars` holds the bars
with their sources. A bar is never below a multiple of the baseline's own noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .baseline import Noise, Segment, Text
from .golden_data import GoldenBars
from .stats import differences, mean, share_above, trimmed_mean

# The reference must be so sure of a token for another one to count: what it was torn over may flip freely.
# Its own margin alone counts. A measurement that is unsure itself is no excuse.
CONFIDENT = 1.0
LARGE = 1.0


@dataclass(frozen=True)
class Drift:
    """Differences of logprobs in nats: over all positions, and each segment's mean NLL's change, signed."""

    positions: int
    trimmed_mean: float
    large_share: float
    largest: float
    largest_in: str
    confident_flips: float
    nll_changes: Mapping[str, float]
    copy_nll_changes: Mapping[str, float]

    @property
    def figures(self) -> dict[str, float | int]:
        """As measured, over all positions."""
        return {
            "positions": self.positions,
            "delta_trimmed_mean": self.trimmed_mean,
            "delta_large_share": self.large_share,
            "delta_largest": self.largest,
            "confident_flips": self.confident_flips,
        }

    def __str__(self) -> str:
        return (
            f"{self.positions} tokens differ by {self.trimmed_mean:.4f} nats (trimmed mean), "
            f"at most by {self.largest:.3f} ({self.largest_in})"
        )


@dataclass(frozen=True)
class Finding:
    """One bar that is broken: which statistic, how gravely, and words."""

    verdict: Literal["warn", "fail"]
    statistic: str
    text: str


def drift(reference: Sequence[Segment], measured: Sequence[Segment]) -> Drift:
    """How far segments are from those of a reference, which must be over the same tokens."""
    pairs = list(zip(reference, measured, strict=True))
    by_name = {one.name: differences(one.logprobs, other.logprobs) for one, other in pairs}
    pooled = [value for values in by_name.values() for value in values]
    worst = max(by_name, key=lambda name: max(by_name[name]))
    changes = {one.name: mean(one.logprobs) - mean(other.logprobs) for one, other in pairs}
    flips = [flipped for one, other in pairs for flipped in confident_flips(one, other)]
    return Drift(
        positions=len(pooled),
        trimmed_mean=trimmed_mean(pooled),
        large_share=share_above(pooled, LARGE),
        largest=max(pooled),
        largest_in=worst,
        confident_flips=mean(flips),
        nll_changes={one.name: changes[one.name] for one, _other in pairs if one.kind == "text"},
        copy_nll_changes={one.name: changes[one.name] for one, _other in pairs if one.kind == "copy"},
    )


def confident_flips(reference: Segment, measured: Segment) -> list[float]:
    """1 at each position where another token is the likeliest although the reference was sure, else 0."""
    rows = zip(reference.likeliest, reference.gaps, measured.likeliest, strict=True)
    return [float(gap > CONFIDENT and token != came) for token, gap, came in rows]


def texts_changed(reference: Sequence[Text], measured: Sequence[Text]) -> list[Text]:
    """The measured texts that differ from the reference's."""
    return [came for one, came in zip(reference, measured, strict=True) if one.text != came.text]


def judge_drift(drift: Drift, noise: Noise, bars: GoldenBars, same_build: bool) -> list[Finding]:
    """Every bar that is broken.

    With the same build (engine, backends, parallelism) the same numbers are expected but for noise, so that
    the largest single difference decides as well. Another build may move single tokens: there it warns only.
    """
    largest_bar = max(bars.largest, bars.noise_warn * noise.largest)
    found = [
        _judge("trimmed_mean", "trimmed mean", drift.trimmed_mean, noise.trimmed_mean, bars),
        _judge("large_share", f"share above {LARGE:g} nat", drift.large_share, noise.large_share, bars),
        _judge("confident_flips", "confident flips", drift.confident_flips, noise.confident_flips, bars),
        _judge_worst("nll_change", drift.nll_changes, noise.nll_change, bars),
        _judge_worst("copy_nll_change", drift.copy_nll_changes, noise.copy_nll_change, bars),
    ]
    if drift.largest > largest_bar:
        text = f"largest difference {drift.largest:.3f} nats in {drift.largest_in}"
        text = f"{text}, expected at most {largest_bar:.3g}"
        found.append(Finding("fail" if same_build else "warn", "largest", text))
    return [finding for finding in found if finding]


def limits(noise: Noise, bars: GoldenBars) -> dict[str, float]:
    """The bars above which a statistic warns or fails, by the names of the figures."""
    figures = {"delta_largest": max(bars.largest, bars.noise_warn * noise.largest)}
    for name, statistic in (
        ("delta_trimmed_mean", "trimmed_mean"),
        ("delta_large_share", "large_share"),
        ("confident_flips", "confident_flips"),
        ("nll_change", "nll_change"),
        ("copy_nll_change", "copy_nll_change"),
    ):
        warn, fail = _bars(statistic, float(getattr(noise, statistic)), bars)
        figures |= {name: warn, f"{name}_fail": fail}
    return figures


def _bars(statistic: str, noise: float, bars: GoldenBars) -> tuple[float, float]:
    warn = max(float(getattr(bars, statistic)), bars.noise_warn * noise)
    fail = max(float(getattr(bars, f"{statistic}_fail")), bars.noise_fail * noise)
    return warn, fail


def _judge(statistic: str, shown: str, value: float, noise: float, bars: GoldenBars) -> Finding | None:
    warn, fail = _bars(statistic, noise, bars)
    if value <= warn:
        return None
    verdict: Literal["warn", "fail"] = "fail" if value > fail else "warn"
    return Finding(
        verdict, statistic, f"{shown} {value:+.4f}, expected at most {warn:.3g} ({fail:.3g} fails)"
    )


def _judge_worst(
    statistic: str, changes: Mapping[str, float], noise: float, bars: GoldenBars
) -> Finding | None:
    """The text whose tokens became costlier than any other's. Cheaper tokens alone are no finding."""
    if not changes:
        return None
    name = max(changes, key=lambda one: changes[one])
    return _judge(statistic, f"mean NLL of {name}", changes[name], noise, bars)
