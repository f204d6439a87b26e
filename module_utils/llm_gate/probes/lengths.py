"""The ends of prompts of many lengths, cold and with its beginning taken from the cache.

Kernels go wrong at some shapes only: https://github.com/flashinfer-ai/flashinfer/issues/3398 gave zeros for
3072 rows while 1536, 2048 and 4096 were right. Each length is one prefill of that many rows (cold), then
another of the rows that the cache lacks. Numbers in a row cost next to nothing at any length, and their cost
has a bar; for a model that cannot count the two computations are still held against each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .. import arms
from ..arms import SCORED_END
from ..errors import NanLogits, NotTested
from ..model_profile import ModelProfile
from ..probe import Check, Context, Probe, Step, run_checks
from ..probe_data import Bars, Counting
from ..results import Notes
from ..scoring import Scored, Scorer, fresh_key
from ..stats import mean_nll

# Chunked prefill starts above the server's chunk; the plan reckons with the usual one.
USUAL_CHUNK = 8192
# Two random digits are the same in one case of ten.
NONCE_TRIALS = 8


@dataclass
class Sweep:
    """What was seen, by prompt length."""

    nan: dict[int, str] = field(default_factory=dict)
    cold: dict[int, Scored] = field(default_factory=dict)
    pairs: dict[int, tuple[list[float], list[float]]] = field(default_factory=dict)
    known_from: int | None = None


def plan(profile: ModelProfile) -> list[Step]:
    """Up to three requests for each length, and one more length, just above the server's prefill chunk."""
    lengths = (*profile.probes.lengths, USUAL_CHUNK + 1)
    # Whether cache namespaces are honoured is tried out with two short prompts.
    prompt = 3 * sum(lengths) + 4 * SCORED_END
    asked = f"the last {SCORED_END} of {lengths[0]} to {lengths[-2]} tokens and of the chunk + 1"
    return [
        Step(
            "absolute", f"{asked}, up to three times each", 7 * len(lengths) + 2, 4 * len(lengths) + 2, prompt
        ),
        Step("cache", "nothing more", 0, 0),
    ]


def run(context: Context, notes: Notes) -> None:
    """Sweep, then judge the lengths by themselves and the cold against the cached computation."""
    sweep = Sweep()

    def absolute(check: Check, context: Context) -> None:
        _sweep(sweep, context)
        _judge_absolute(check, sweep, context.profile.probes.bars)

    def cache(check: Check, context: Context) -> None:
        _judge_cache(check, sweep, context)

    run_checks(context, notes, {"absolute": absolute, "cache": cache})


def lengths_for(context: Context) -> tuple[int, ...]:
    """The profile's lengths that fit, and one just above the server's prefill chunk."""
    lengths = set(context.profile.probes.lengths)
    chunk = context.identified().count("chunked_prefill_size")
    if chunk is not None:
        lengths.add(chunk + 1)
    return context.fitting(tuple(sorted(lengths)))


def _sweep(sweep: Sweep, context: Context) -> None:
    scorer, counting = context.scorer(), context.profile.probes.counting
    lengths = lengths_for(context)
    if not lengths:
        raise NotTested(f"no prompt length of the profile fits into {context.longest_prompt()} tokens")
    prefix, then, text = _text(scorer, counting, max(lengths))
    chain = fresh_key() if scorer.reads_cache and scorer.honours_namespaces() else None
    nonce = scorer.nonce(then)
    if counting is not None:
        # From here on all that is scored lies behind the first tokens of the count.
        sweep.known_from = len(nonce) + len(prefix) + counting.after + SCORED_END
    for length in lengths:
        # Without namespaces only a prompt that never was before is cold, and the cached one is the same
        # again. With them the cached arm grows from length to length, so that it computes other numbers of
        # rows.
        try:
            if chain:
                ids = [*nonce, *prefix, *text][:length]
                cold = scorer.score(ids, max(1, length - SCORED_END), fresh_key())
            else:
                ids, cold = score_cold(scorer, then, [*prefix, *text], length, context.longest_prompt())
            sweep.cold[length] = cold
            if scorer.reads_cache:
                warm = scorer.score(ids, max(1, len(ids) - SCORED_END), chain)
                if cold.is_cold and warm.is_hit:
                    sweep.pairs[length] = (cold.logprobs, warm.logprobs)
        except NanLogits as found:
            sweep.nan[length] = str(found)


def score_cold(
    scorer: Scorer, then: str, text: Sequence[int], rows: int, longest: int | None
) -> tuple[list[int], Scored]:
    """A prompt of which the server computes just so many tokens, if it can be had, and its end scored.

    A cache that shares single tokens knows the first ones of a nonce from others, and a kernel that is wrong
    at 1536 rows is right at 1535. The second prompt begins with as much of the first as nothing else begins
    with, so that exactly this comes from the cache, and is longer by it.
    """
    ids = [*scorer.nonce(then), *text][:rows]
    cold = scorer.score(ids, max(1, len(ids) - SCORED_END))
    known = cold.cached_tokens or 0
    if not known or not cold.is_cold or len(ids) < rows or (longest is not None and rows + known >= longest):
        return ids, cold
    shared, parting = ids[: known + 1], ids[known + 1]
    for _trial in range(NONCE_TRIALS):
        again = scorer.nonce(then, goes_on=True)
        if again[0] != parting:
            break
    ids = [*shared, *again, *text][: rows + len(shared)]
    return ids, scorer.score(ids, max(1, len(ids) - SCORED_END))


def _text(scorer: Scorer, counting: Counting | None, tokens: int) -> tuple[list[int], str, list[int]]:
    """What comes before the text, what parts it from a nonce, and a text of at least so many tokens."""
    if counting is None:
        return [], ". ", scorer.filler(tokens)
    prefix = scorer.tokenize(counting.prefix, goes_on=True) if counting.prefix else []
    # A number is one token at least.
    return prefix, counting.separator, scorer.tokenize(counting.up_to(tokens), goes_on=True)


def _judge_absolute(check: Check, sweep: Sweep, bars: Bars) -> None:
    if sweep.nan:
        shown = ", ".join(map(str, sweep.nan))
        check.measured({"nan_lengths": shown})
        check.say("fail", "nan-logits", f"{next(iter(sweep.nan.values()))}, with prompts of {shown} tokens")
    nlls = {length: mean_nll(scored.logprobs) for length, scored in sweep.cold.items() if scored.logprobs}
    start = sweep.known_from
    known = {length: nll for length, nll in nlls.items() if start is not None and length >= start}
    check.measured(
        {
            f"nll_{length}" if length in known else f"unjudged_nll_{length}": nll
            for length, nll in nlls.items()
        }
    )
    if sweep.known_from is None:
        text = "NLL by length not judged: the model profile has no counting"
        check.say("skipped", "not-tested", text)
        if not sweep.nan:
            check.say("pass", "no-nan", f"no NaN at {len(sweep.cold)} prompt lengths")
        return
    check.limits({"nll": bars.length_nll})
    bad = bad_lengths(known, bars)
    if bad:
        shown = ", ".join(f"{length} ({nll:.2f})" for length, nll in bad.items())
        text = f"NLL at {shown} tokens, expected at most {bars.length_nll:g} nats at every length"
        check.say("fail", "length-nll", text)
    elif not sweep.nan and known:
        worst = max(known, key=lambda length: known[length])
        text = (
            f"{len(sweep.cold)} prompt lengths up to {max(known)}, at most {known[worst]:.4f} nats at {worst}"
        )
        check.say("pass", "length-nll", text)
    elif not sweep.nan:
        check.say("skipped", "not-tested", f"no prompt length of {sweep.known_from} tokens or more fits")


def bad_lengths(nlls: Mapping[int, float], bars: Bars) -> dict[int, float]:
    """The lengths at which the predictable text costs more than the bar."""
    return {length: nll for length, nll in nlls.items() if nll > bars.length_nll}


def _judge_cache(check: Check, sweep: Sweep, context: Context) -> None:
    if not context.scorer().reads_cache:
        text = "cache not compared: this engine does not read its cache for prompt logprobs"
        check.say("skipped", "not-tested", text)
        return
    if not sweep.pairs:
        check.say("skipped", "not-tested", "cache not compared: nothing came from the server's prefix cache")
        return
    what = f"cold against cached at {len(sweep.pairs)} lengths"
    arms.judge(check, sweep.pairs, context.profile.probes.bars, what)


PROBE = Probe("lengths", "Every prompt length, cold and cached", "numerics", plan, run)
