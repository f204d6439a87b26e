"""Merges passes into a baseline: the median of each position, and how far the passes are from one another.

On the command line: `python -m llm_gate.merge --out FILE PASS PASS...`. Where FILE holds a baseline of the
same key, its speeds on other hardware are kept, and what changed is told.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import median, mode

from .baseline import (
    DIGITS,
    Baseline,
    Noise,
    Pass,
    Segment,
    Speed,
    Text,
    changed_build,
    contradictions,
    parse,
    read_baseline,
    read_pass,
    to_text,
    untold,
)
from .drift import drift, judge_drift, texts_changed
from .errors import UsageError
from .files import write_atomically
from .golden_data import GoldenBars, SpeedBars

# Fewer say nothing about noise.
LEAST_PASSES = 2


def merge(passes: Sequence[Pass], previous: Baseline | None = None) -> Baseline:
    """One baseline of passes over the same deployment. Raises UsageError for too few or different ones."""
    if len(passes) < LEAST_PASSES:
        raise UsageError(f"a baseline needs at least {LEAST_PASSES} passes, not {len(passes)}")
    first = passes[0]
    for number, other in enumerate(passes[1:], 2):
        differing = [*contradictions(first.key, other.key), *untold(first.key, other.key)]
        differing += changed_build(first.attributes, other.attributes)
        differing += [] if _same_tokens(first.segments, other.segments) else ["other token ids were scored"]
        differing += [] if _same_prompts(first.texts, other.texts) else ["other prompts were asked"]
        if differing:
            raise UsageError(f"pass {number} is not of the same deployment as pass 1: {'; '.join(differing)}")
    return Baseline(
        recorded=max(one.recorded for one in passes),
        passes=len(passes),
        key=first.key,
        attributes=first.attributes,
        noise=noise_of(passes),
        segments=tuple(map(_median_segment, zip(*(one.segments for one in passes), strict=True))),
        texts=tuple(map(_commonest, zip(*(one.texts for one in passes), strict=True))),
        speeds=_speeds([one.speed for one in passes if one.speed], previous),
    )


def noise_of(passes: Sequence[Pass]) -> Noise:
    """The largest difference between any two passes, for each statistic."""
    drifts = [drift(one.segments, other.segments) for one, other in combinations(passes, 2)]

    def most(values: Iterable[float]) -> float:
        return round(max(map(abs, values), default=0.0), DIGITS + 2)

    return Noise(
        trimmed_mean=most(one.trimmed_mean for one in drifts),
        large_share=most(one.large_share for one in drifts),
        largest=most(one.largest for one in drifts),
        confident_flips=most(one.confident_flips for one in drifts),
        nll_change=most(change for one in drifts for change in one.nll_changes.values()),
        copy_nll_change=most(change for one in drifts for change in one.copy_nll_changes.values()),
        texts_changed=max(
            len(texts_changed(one.texts, other.texts)) for one, other in combinations(passes, 2)
        ),
    )


def changes(stored: Baseline, fresh: Baseline, bars: GoldenBars | None = None) -> list[str]:
    """How a fresh baseline differs from the stored one beyond the noise of both; [] if it does not."""
    told = [f"build: {change}" for change in changed_build(stored.attributes, fresh.attributes)]
    if not _same_tokens(stored.segments, fresh.segments):
        return [*told, "other token ids: the texts, the tokenizer or the model profile changed"]
    noise = Noise(
        **{name: max(value, getattr(fresh.noise, name)) for name, value in vars(stored.noise).items()}
    )
    apart = drift(stored.segments, fresh.segments)
    told += [finding.text for finding in judge_drift(apart, noise, bars or GoldenBars(), same_build=True)]
    if not _same_prompts(stored.texts, fresh.texts):
        told.append("other prompts for greedy texts")
    elif len(texts_changed(stored.texts, fresh.texts)) > noise.texts_changed:
        told.append(f"{len(texts_changed(stored.texts, fresh.texts))} greedy texts are others")
    return [*told, *speed_changes(stored, fresh, SpeedBars())]


def speed_changes(stored: Baseline, fresh: Baseline, bars: SpeedBars) -> list[str]:
    """Hardware that is new, and hardware on which one request is faster or slower by more than a warning."""
    told = []
    for speed in fresh.speeds:
        known = stored.speed_on(speed.hardware, speed.tp_size)
        shown = f"speed on {speed.hardware}: {speed.tokens_per_second:.1f} tokens/s"
        if speed.hardware is not None and known is None:
            told.append(f"{shown}, not known before")
        elif known and not bars.warn <= speed.tokens_per_second / known.tokens_per_second <= 1 / bars.warn:
            told.append(f"{shown}, before {known.tokens_per_second:.1f}")
    return told


def _same_tokens(one: Sequence[Segment], other: Sequence[Segment]) -> bool:
    return [(segment.name, segment.ids, segment.first) for segment in one] == [
        (segment.name, segment.ids, segment.first) for segment in other
    ]


def _same_prompts(one: Sequence[Text], other: Sequence[Text]) -> bool:
    return [(text.prompt, text.max_tokens) for text in one] == [
        (text.prompt, text.max_tokens) for text in other
    ]


def _median_segment(same: Sequence[Segment]) -> Segment:
    return replace(
        same[0],
        logprobs=_medians([one.logprobs for one in same]),
        likeliest=tuple(mode(tokens) for tokens in zip(*(one.likeliest for one in same), strict=True)),
        gaps=_medians([one.gaps for one in same]),
    )


def _medians(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(round(median(values), DIGITS) for values in zip(*rows, strict=True))


def _commonest(same: Sequence[Text]) -> Text:
    return replace(same[0], text=mode(one.text for one in same))


def _speeds(speeds: Sequence[Speed], previous: Baseline | None) -> tuple[Speed, ...]:
    """The median on each hardware, and what was known of other hardware."""
    fresh: list[Speed] = []
    for one in speeds:
        if not any(_same_place(one, other) for other in fresh):
            fresh.append(_median_speed([other for other in speeds if _same_place(one, other)]))
    old = previous.speeds if previous else ()
    return (*fresh, *(one for one in old if not any(_same_place(one, other) for other in fresh)))


def _same_place(one: Speed, other: Speed) -> bool:
    return (one.hardware, one.tp_size) == (other.hardware, other.tp_size)


def _median_speed(same: Sequence[Speed]) -> Speed:
    def middle(read: Callable[[Speed], float | None]) -> float | None:
        values = [value for value in map(read, same) if value is not None]
        return float(f"{median(values):.6g}") if values else None

    concurrencies = sorted(set.intersection(*(set(one.output_throughput) for one in same)))
    return Speed(
        hardware=same[0].hardware,
        tp_size=same[0].tp_size,
        tokens_per_second=round(median(one.tokens_per_second for one in same), DIGITS),
        slowest=min(one.slowest for one in same),
        ttft_s=middle(lambda one: one.ttft_s),
        itl_s=middle(lambda one: one.itl_s),
        output_throughput={
            concurrency: round(median(one.output_throughput[concurrency] for one in same), DIGITS)
            for concurrency in concurrencies
        },
        accept_length=middle(lambda one: one.accept_length),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Merge files; the exit status, 64 for what cannot be merged."""
    options = argparse.ArgumentParser(
        prog="llm_gate.merge",
        allow_abbrev=False,
        description="Merge passes that `llm_gate --record` wrote into a baseline.",
    )
    options.add_argument(
        "--out", required=True, metavar="FILE", help="baseline to write, replaced as a whole"
    )
    options.add_argument("passes", nargs="+", metavar="PASS", help=f"passes, at least {LEAST_PASSES}")
    given = options.parse_args(arguments)
    out = Path(given.out)
    try:
        stored = read_baseline(parse(_read(out), given.out), given.out) if out.exists() else None
        passes = [read_pass(parse(_read(Path(name)), name), name) for name in given.passes]
        if stored is not None and stored.key != passes[0].key:
            raise UsageError(f"{given.out} is the baseline of another deployment; name another file")
        fresh = merge(passes, stored)
        write_atomically(out, to_text(fresh))
    except (UsageError, OSError) as error:
        print(f"llm_gate.merge: {error}", file=sys.stderr)
        return 64
    told = changes(stored, fresh) if stored else ["a new baseline"]
    print("\n".join(told or [f"no change of {given.out} beyond noise"]))
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeError:
        raise UsageError(f"{path}: is not UTF-8") from None


if __name__ == "__main__":
    sys.exit(main())
