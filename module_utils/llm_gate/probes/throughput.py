"""Measures speed: one request at a time, then a ramp of concurrencies. Comes after the answers proved right.

Tokens are counted by the server's usage and never by pieces, since speculative decoding sends several in
one. The tokens of the first piece are left out: their time is prefill. Speed is held against that of the
baseline on the same hardware, and against nothing else: published numbers come from other prompts, other
power limits and other clocks.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import median

from ..baseline import Speed
from ..chat import PATH, Answer, Timing
from ..errors import NotTested
from ..golden_data import SpeedBars
from ..model_profile import ModelProfile
from ..neutral import filler
from ..probe import Check, Context, Probe, Step, run_checks
from ..profiles import PROBE_IDS
from ..results import CheckVerdict, Notes
from ..scoring import fresh_key

# Fewer tokens take no time that could be measured.
LEAST_TOKENS = 8
# A shorter wave says more of the host's scheduler than of the server: its speed is told and not judged.
LEAST_SECONDS = 0.5
# The share of the time to first token below which all other tokens cannot have been decoded.
AT_ONCE = 0.05
CHARACTERS_A_TOKEN = 4
TASK = "\n\nContinue this report in the same manner and at length."


@dataclass(frozen=True)
class Run:
    """One streamed answer and when it came."""

    answer: Answer
    timing: Timing


@dataclass(frozen=True)
class Wave:
    """So many requests at once: tokens of all of them per second, and the medians of each one's times."""

    concurrency: int
    seconds: float
    output_throughput: float
    ttft_s: float | None
    itl_s: float | None


def plan(profile: ModelProfile) -> list[Step]:
    """Requests of one kind, alone and together."""
    data = profile.throughput
    alone = data.warmups + data.runs

    def step(check: str, requests: int, tokens: int, concurrency: int) -> Step:
        shown = f"{requests} x {tokens} tokens by POST {PATH}, {concurrency} at a time"
        return Step(check, shown, requests, requests * tokens, requests * data.prompt_tokens, concurrency)

    # A rung that looks bad is climbed once more, and one answer more tells what speculation accepts.
    return [
        step("single", alone + 1, data.tokens, 1),
        *(step(f"c{rung}", 2 * rung, data.ramp_tokens, rung) for rung in profile.allowed(data.ramp)),
    ]


def run(context: Context, notes: Notes) -> None:
    """Alone, then the ramp; each rung is held against those before it."""
    waves: dict[int, Wave] = {}
    rungs = {
        f"c{concurrency}": partial(_rung, waves=waves, concurrency=concurrency)
        for concurrency in context.profile.allowed(context.profile.throughput.ramp)
    }
    run_checks(context, notes, {"single": _single, **rungs})


def _single(check: Check, context: Context) -> None:
    data = context.profile.throughput
    for _warmup in range(data.warmups):
        _ask(context, data.tokens)
    runs = [_ask(context, data.tokens) for _run in range(data.runs)]
    speeds = [
        one.timing.tokens_per_second
        for one in runs
        if one.timing.tokens_per_second is not None and not came_at_once(one)
    ]
    counts = [one.answer.completion_tokens for one in runs if one.answer.completion_tokens is not None]
    if len(counts) < len(runs):
        check.say("error", "no-usage", "the stream tells no completion_tokens, so that speed cannot be told")
        return
    if not speeds or min(counts) < LEAST_TOKENS:
        came = f"{len(speeds)} of {len(runs)} answers came in more than one piece"
        text = f"speed not tested: {came}, the shortest had {min(counts)} tokens"
        check.say("skipped", "not-tested", text)
        return
    middle = median(speeds)
    accepted = _accept_length(context)
    check.measured(
        {
            "concurrency": 1,
            "runs": len(speeds),
            "tokens": median(counts),
            "tokens_per_second": middle,
            "tokens_per_second_mad": median(abs(speed - middle) for speed in speeds),
            **_milliseconds(runs),
            **({} if accepted is None else {"accept_length": accepted}),
        }
    )
    told = f"{middle:.1f} tokens/s, the median of {len(speeds)} runs"
    told += "" if accepted is None else f", {accepted:.2f} tokens for each verification"
    known, why_not = _known(context)
    if known is not None:
        check.limits(
            {
                "tokens_per_second": data.bars.fail * known.tokens_per_second,
                "baseline": known.tokens_per_second,
            }
        )
        check.say(*judge_speed(middle, known, data.bars, told))
    else:
        check.say("pass", "throughput", told)
        check.say("skipped", "not-tested", f"speed not compared: {why_not}")


def _rung(check: Check, context: Context, waves: dict[int, Wave], concurrency: int) -> None:
    data = context.profile.throughput
    wave = _wave(context, concurrency)
    if wave is not None and collapsed(wave, waves.values(), data.bars):
        # What else the host did may have slowed one wave down.
        again = _wave(context, concurrency)
        wave = max((one for one in (wave, again) if one), key=lambda one: one.output_throughput)
    if wave is None:
        check.say(
            "skipped", "not-tested", f"speed at concurrency {concurrency} not tested: too few tokens came"
        )
        return
    check.measured(
        {
            "concurrency": concurrency,
            "output_throughput": wave.output_throughput,
            **{
                name: 1000 * value
                for name, value in (("median_ttft_ms", wave.ttft_s), ("median_itl_ms", wave.itl_s))
                if value is not None
            },
        }
    )
    known, _why_not = _known(context)
    check.say(*judge_wave(wave, waves.values(), known, data.bars))
    waves[concurrency] = wave


def came_at_once(one: Run) -> bool:
    """Whether an answer was collected on its way and arrived in next to no time: that is not decode speed.

    The prompt is short, so that the first token is there long before the last unless something holds it back,
    such as a proxy that buffers or a host whose other work starves the server's HTTP process.
    """
    timing, tokens = one.timing, one.answer.completion_tokens or 0
    if timing.itl_s is None or timing.ttft_s is None:
        return False
    return timing.itl_s * tokens < AT_ONCE * timing.ttft_s


def judge_speed(speed: float, known: Speed, bars: SpeedBars, told: str) -> tuple[CheckVerdict, str, str]:
    """Decode speed against that of the baseline: too slow, slower than any pass was, or suspiciously fast."""
    share = speed / known.tokens_per_second
    text = f"{told}: {share:.0%} of the baseline's {known.tokens_per_second:.1f} on {known.hardware}"
    if share < bars.fail:
        return "fail", "speed", f"{text}, expected at least {bars.fail:.0%}"
    if share < bars.warn and speed < known.slowest:
        return "warn", "speed", f"{text}, expected at least {bars.warn:.0%}"
    if share > bars.suspicious:
        return "warn", "suspiciously-fast", f"{text}, expected at most {bars.suspicious:.0%}"
    return "pass", "throughput", text


def judge_wave(
    wave: Wave, before: Iterable[Wave], known: Speed | None, bars: SpeedBars
) -> tuple[CheckVerdict, str, str]:
    """Tokens per second of all requests: a collapse against fewer requests, or far below the baseline."""
    long_enough = wave.seconds >= LEAST_SECONDS
    text = f"{wave.output_throughput:.1f} tokens/s at concurrency {wave.concurrency}"
    best = collapsed(wave, before, bars)
    if best is not None:
        text = f"{text}, {best.output_throughput:.1f} at {best.concurrency}"
        return "warn", "ramp", f"{text}: expected at least {bars.collapse:.0%} of that"
    reference = known.output_throughput.get(wave.concurrency) if known else None
    if reference is not None and long_enough and wave.output_throughput < bars.fail * reference:
        text = f"{text}: {wave.output_throughput / reference:.0%} of the baseline's {reference:.1f}"
        return "warn", "ramp", f"{text}, expected at least {bars.fail:.0%}"
    return "pass", "throughput", text


def collapsed(wave: Wave, before: Iterable[Wave], bars: SpeedBars) -> Wave | None:
    """The best wave of fewer requests, if this one took long enough to be judged and fell far below it."""
    if wave.seconds < LEAST_SECONDS:
        return None
    best = max(before, key=lambda one: one.output_throughput, default=None)
    fell = best is not None and wave.output_throughput < bars.collapse * best.output_throughput
    return best if fell else None


def _known(context: Context) -> tuple[Speed | None, str]:
    """The baseline's speed on this hardware, or why there is none."""
    stored = context.deployment.baseline_for(context.server)
    hardware = context.deployment.hardware
    if stored is None:
        return None, "no baseline"
    if hardware is None:
        return None, "nobody said on which hardware the server runs"
    tp_size = context.identified().settings.get("tp_size")
    known = stored.baseline.speed_on(hardware, tp_size)
    return known, "" if known else f"the baseline has no speed on {hardware} with tp_size {tp_size}"


def _ask(context: Context, tokens: int) -> Run:
    """One streamed answer of so many tokens to a prompt that is in no cache, but for its beginning."""
    server = context.identified()
    extra = dict(context.profile.thinking_off)
    if server.engine in ("sglang", "vllm"):
        extra["ignore_eos"] = True
    answer, timing, _done = context.chat().stream(_prompt(context), tokens, extra)
    return Run(answer, timing)


def _prompt(context: Context) -> str:
    """Prose of about the wanted length. Random tokens would change what speculation accepts."""
    wanted = context.profile.throughput.prompt_tokens
    longest = context.longest_prompt()
    room = wanted if longest is None else max(1, min(wanted, longest - context.profile.throughput.tokens))
    characters = CHARACTERS_A_TOKEN * room
    text = context.profile.probes.filler or filler(characters)
    text = (text * (characters // len(text) + 1))[:characters]
    return f"Report {fresh_key()}.\n\n{text}{TASK}"


def _wave(context: Context, concurrency: int) -> Wave | None:
    """All requests at once; None if they made too few tokens."""
    tokens = context.profile.throughput.ramp_tokens
    began = time.monotonic()
    pool = ThreadPoolExecutor(concurrency)
    try:
        runs = [job.result() for job in [pool.submit(_ask, context, tokens) for _ in range(concurrency)]]
    finally:
        pool.shutdown(cancel_futures=True)
    seconds = time.monotonic() - began
    made = sum(one.answer.completion_tokens or 0 for one in runs)
    if made < LEAST_TOKENS * concurrency:
        return None
    times = _milliseconds(runs)
    return Wave(
        concurrency,
        seconds,
        made / seconds,
        _seconds(times.get("median_ttft_ms")),
        _seconds(times.get("median_itl_ms")),
    )


def _milliseconds(runs: Sequence[Run]) -> dict[str, float]:
    """Medians of the time to first token and of that between tokens, by the names of the bench tools."""
    times: Mapping[str, list[float | None]] = {
        "median_ttft_ms": [one.timing.ttft_s for one in runs],
        "median_itl_ms": [None if came_at_once(one) else one.timing.itl_s for one in runs],
    }
    known = {name: [value for value in values if value is not None] for name, values in times.items()}
    return {name: 1000 * median(values) for name, values in known.items() if values}


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _accept_length(context: Context) -> float | None:
    """Tokens for each verification, where the server speculates and tells it."""
    if not context.identified().settings.get("speculative_algorithm"):
        return None
    try:
        scorer = context.scorer()
        ids = scorer.tokenize(_prompt(context))
        return scorer.generate(ids, context.profile.throughput.tokens).accept_length
    except NotTested:
        return None


PROBE = Probe(
    "throughput",
    "Speed, alone and together",
    "speed",
    plan,
    run,
    after=tuple(probe for probe in PROBE_IDS if probe not in ("throughput", "soak")),
)
