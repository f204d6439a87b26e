"""A list of words, filler up to a length, the list again: copying costs nothing while the far end is heard.

Damaged KV caches and attention beyond some length show here first: corruption that began at 4096 tokens
(https://github.com/vllm-project/vllm/issues/47827), garbled text beyond 10,000
(https://github.com/vllm-project/vllm/issues/20816). The order of the words is new in each run, so no cache
helps. A sound model may slip in one order (the tiny model costs more than 0.02 nats in 3 of 60 over 3500
tokens, measured with SGLang 0.5.9), a damaged context costs in all: what looks bad is judged by three.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median

from ..copying import SCORED, copy_prompt
from ..model_profile import ModelProfile
from ..probe import Check, Context, Probe, Step, run_checks
from ..probe_data import Copy
from ..results import CheckVerdict, Notes
from ..scoring import Scorer
from ..stats import mean_nll

ORDERS = 3


def plan(profile: ModelProfile) -> list[Step]:
    """A prefill for each length; NaN that shows as an error costs another. Four pieces are tokenized.

    What looks bad is asked in two more orders; the numbers are those of a sound server.
    """
    copy = profile.probes.copy
    if copy is None:
        return [Step("copy", "nothing: the model profile has no copying task", 0, 0)]
    return [
        Step(
            str(length),
            f"logprobs of the last {SCORED} of {length} tokens, twice more if they look bad",
            6,
            2,
            length,
        )
        for length in copy.lengths
    ]


def run(context: Context, notes: Notes) -> None:
    """Every length that the context can hold."""
    copy = context.profile.probes.copy
    if copy is None:
        run_checks(context, notes, {"copy": _no_task})
        return
    fitting = context.fitting(copy.lengths)
    checks: dict[str, Callable[[Check, Context], None]] = {
        str(length): partial(_copy, copy=copy, length=length) if length in fitting else _too_long
        for length in copy.lengths
    }
    run_checks(context, notes, checks)


def _no_task(check: Check, context: Context) -> None:
    check.say("skipped", "not-tested", "long contexts not tested: the model profile has no copying task")


def _too_long(check: Check, context: Context) -> None:
    text = f"{check.name} tokens not tested: prompts may have {context.longest_prompt()} tokens at most"
    check.say("skipped", "not-tested", text)


def _copy(check: Check, context: Context, copy: Copy, length: int) -> None:
    scorer = context.scorer()
    nll = _cost(scorer, copy, length)
    if nll is None:
        check.say("skipped", "not-tested", f"{length} tokens are too few for the list, twice")
        return
    orders = 1
    if judge_copy(nll, copy) != "pass":
        again = [_cost(scorer, copy, length) for _ in range(ORDERS - 1)]
        orders, nll = ORDERS, median([nll, *(one for one in again if one is not None)])
    check.measured({"nll": nll, "prompt_tokens": length, "orders": orders})
    check.limits({"nll": copy.max_nll, "nll_fail": copy.fail_nll})
    told = f"words copied over {length} tokens: {nll:.4f} nats a token"
    told += f", the median of {orders} orders" if orders > 1 else ""
    verdict = judge_copy(nll, copy)
    check.say(
        verdict, "copy-nll", told if verdict == "pass" else f"{told}, expected at most {copy.max_nll:g}"
    )


def _cost(scorer: Scorer, copy: Copy, length: int) -> float | None:
    """Nats a token for the list in a new order; None if the length holds it only once."""
    ids, first = copy_prompt(scorer, copy, length)
    if first is None:
        return None
    return mean_nll(scorer.score(ids, max(first, len(ids) - SCORED)).logprobs)


def judge_copy(nll: float, copy: Copy) -> CheckVerdict:
    """Passes up to one bar, warns up to the next."""
    if nll > copy.fail_nll:
        return "fail"
    return "warn" if nll > copy.max_nll else "pass"


PROBE = Probe("long_copy", "Far context is heard", "long context", plan, run)
