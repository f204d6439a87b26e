"""What is compared with a baseline, how fast a server must be, and the soak, as a model profile has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from .errors import UsageError
from .section import Section, kind, number, positive_integer, positive_number


@dataclass(frozen=True)
class GoldenBars:
    """Bars on the distance from a baseline; differences in nats. Each has a bar to warn and one to fail.

    Run-to-run noise is 0.03 in the mean and 0.12 at most with other KV pages
    (https://github.com/pegainfer-project/pegainfer/issues/293). Of NVFP4 against FP8 the community of RTX PRO
    6000 calls 0.01 to 0.05 good and above 0.1 significant (https://github.com/local-inference-lab/rtx6kpro).
    0.04 nats are 4 % of perplexity; an NVFP4 KV cache costs 0.4 to 0.6 %
    (https://github.com/vllm-project/vllm/pull/54426).
    """

    trimmed_mean: float = 0.03
    trimmed_mean_fail: float = 0.10
    large_share: float = 0.01
    large_share_fail: float = 0.03
    confident_flips: float = 0.003
    confident_flips_fail: float = 0.01
    # Of each text, signed: noise cancels in it.
    nll_change: float = 0.015
    nll_change_fail: float = 0.04
    copy_nll_change: float = 0.05
    copy_nll_change_fail: float = 0.2
    # The largest single difference, with one and the same build. On the real SGLang 0.5.9 with the tiny model
    # a sound server is at 0 after a restart and beside 7 other requests, keys scaled by 0.98 at 0.9, the
    # mildest of 13 weight faults at 9. A GPU's noise is larger, hence the multiple.
    largest: float = 0.25
    # Bars are at least so many times the largest difference between the passes of the baseline.
    noise_warn: float = 4.0
    noise_fail: float = 10.0


@dataclass(frozen=True)
class SpeedBars:
    """Shares of the baseline's speed on the same hardware.

    One box with MTP ran from 108.7 to 135.8 tokens/s in six runs
    (https://github.com/vllm-project/vllm/issues/46329), hence medians and wide bands. A server that is much
    faster than it was may be skipping work: empty experts, or a loop whose drafts are all right.
    """

    fail: float = 0.80
    warn: float = 0.92
    suspicious: float = 1.30
    # Tokens per second of all requests together, against fewer requests: a fall to half of it when a second
    # one joins is the cliff from CUDA graphs to eager mode.
    collapse: float = 0.5


@dataclass(frozen=True)
class Throughput:
    """How speed is measured: tokens of a prompt, tokens made, and how often."""

    warmups: int
    runs: int
    tokens: int
    prompt_tokens: int
    ramp: tuple[int, ...]
    ramp_tokens: int
    bars: SpeedBars


def read_golden_bars(value: object, path: str) -> GoldenBars:
    """The section `golden` of a profile, which holds bars only. Raises UsageError."""
    section = Section(value, path)
    bars = GoldenBars(**{bar.name: section.take(bar.name, _size, bar.default) for bar in fields(GoldenBars)})
    section.close()
    for bar in fields(GoldenBars):
        if bar.name.endswith("_fail") and bar.name != "noise_fail":
            warn = bar.name.removesuffix("_fail")
            if getattr(bars, bar.name) < getattr(bars, warn):
                raise UsageError(f"{path}.{bar.name} must not be below {warn}")
    return bars


def read_throughput(value: object, path: str) -> Throughput:
    """The section `throughput` of a profile. Raises UsageError."""
    section = Section(value, path)
    throughput = Throughput(
        warmups=section.take("warmups", _count, 1),
        runs=section.take("runs", positive_integer, 3),
        tokens=section.take("tokens", positive_integer, 128),
        prompt_tokens=section.take("prompt_tokens", positive_integer, 512),
        ramp=section.take("ramp", _ramp, (1, 4, 16)),
        ramp_tokens=section.take("ramp_tokens", positive_integer, 64),
        bars=section.take("bars", _speed_bars, {}),
    )
    section.close()
    return throughput


def _speed_bars(value: object, path: str) -> SpeedBars:
    section = Section(value, path)
    bars = SpeedBars(
        **{bar.name: section.take(bar.name, positive_number, bar.default) for bar in fields(SpeedBars)}
    )
    section.close()
    return bars


def _ramp(value: object, path: str) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)) or isinstance(value, Mapping):
        raise UsageError(f"{path} must be a list of concurrencies, not {kind(value)}")
    ramp = tuple(positive_integer(item, f"{path}[{place}]") for place, item in enumerate(value))
    if ramp[:1] != (1,) or list(ramp) != sorted(set(ramp)):
        raise UsageError(f"{path} must begin with 1 and ascend, not {list(ramp)}")
    return ramp


def _count(value: object, path: str) -> int:
    return 0 if value == 0 and not isinstance(value, bool) else positive_integer(value, path)


def _size(value: object, path: str) -> float:
    size = number(value, path)
    if size < 0:
        raise UsageError(f"{path} must not be below 0, not {value!r}")
    return size
