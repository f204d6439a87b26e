"""Looks at the logits of some 2,000 positions, and at what the model knows by heart.

NaN may hit some positions only (8 % of them in one published case), so that 16 tokens of an answer miss it. A
wrong scale makes a memorised text 10 to 100 times less likely before any text looks wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import NanLogits
from ..model_profile import ModelProfile
from ..neutral import DOMAINS
from ..probe import Check, Context, Probe, Step, run_checks
from ..probe_data import MOST_SCORED, Anchor, Counting
from ..results import Notes
from ..scoring import Scored, Scorer
from ..stats import mean_nll, share_above

POSITIONS = 2048


def plan(profile: ModelProfile) -> list[Step]:
    """Each text is one request or more; NaN that shows as an error costs two more, one without logprobs."""
    data = profile.probes
    return [
        _step("scan", POSITIONS // MOST_SCORED, POSITIONS, "neutral text in several languages and filler"),
        _step("anchors", len(data.anchors), MOST_SCORED * len(data.anchors), "texts known by heart"),
        _step(
            "counting",
            int(data.counting is not None),
            MOST_SCORED * int(data.counting is not None),
            "1, 2, 3",
        ),
    ]


def _step(check: str, requests: int, positions: int, what: str) -> Step:
    shown = f"{requests} x logprobs of {what}" if requests else "nothing: not in the model profile"
    return Step(check, shown, 3 * requests, 2 * requests, prompt_tokens=positions)


def run(context: Context, notes: Notes) -> None:
    """Scan, then hold the known texts against their bars."""
    run_checks(context, notes, {"scan": _scan, "anchors": _anchors, "counting": _counting})


def _scan(check: Check, context: Context) -> None:
    scorer = context.scorer()
    ids = scorer.tokenize("\n\n".join(DOMAINS))
    ids = (ids + scorer.filler(POSITIONS))[:POSITIONS]
    size = min(MOST_SCORED, context.longest_prompt() or MOST_SCORED)
    logprobs: list[float] = []
    nan_positions, shown = 0, ""
    # Two tokens at least, for the first of a window has no logprob.
    for start in range(0, len(ids) - 1, size):
        try:
            logprobs += scorer.score(ids[start : start + size], 1).logprobs
        except NanLogits as found:
            nan_positions += found.positions
            shown = shown or str(found)
    check.measured({"positions": len(ids), "nan_positions": nan_positions})
    check.limits({"nan_positions": 0})
    if nan_positions:
        check.say("fail", "nan-logits", f"{shown}; {nan_positions} of {len(ids)} positions in all")
        return
    check.measured({"nll_neutral": mean_nll(logprobs)})
    check.say("pass", "no-nan", f"no NaN at {len(ids)} positions")


def _anchors(check: Check, context: Context) -> None:
    anchors = context.profile.probes.anchors
    if not anchors:
        check.say("skipped", "not-tested", "anchors not tested: the model profile has no text known by heart")
    for anchor in anchors:

        def work(anchor: Anchor = anchor) -> None:
            scored = score_after(context.scorer(), anchor.prefix, anchor.text)
            nll = mean_nll(scored.logprobs)
            check.measured({f"nll_{anchor.name}": nll})
            check.limits({f"nll_{anchor.name}": anchor.max_nll})
            tokens = len(scored.logprobs)
            if nll <= anchor.max_nll:
                check.say("pass", "anchor-nll", f"{anchor.name}: {nll:.4f} nats a token over {tokens}")
            else:
                told = f"{anchor.name}: {nll:.3f} nats a token over {tokens}"
                check.say("fail", "anchor-nll", f"{told}, expected at most {anchor.max_nll:g}")

        check.attempt(work)


def _counting(check: Check, context: Context) -> None:
    counting = context.profile.probes.counting
    if counting is None:
        check.say("skipped", "not-tested", "counting not tested: the model profile has no such sequence")
        return
    check.limits({"nll": counting.max_nll, "top1_share": counting.min_top1})
    scored = score_after(context.scorer(), counting.prefix, counting.up_to(counting.to))
    logprobs, regrets = scored.logprobs[counting.after :], scored.regrets[counting.after :]
    if not logprobs:
        check.say(
            "skipped", "not-tested", f"counting to {counting.to} is no longer than {counting.after} tokens"
        )
        return
    nll, top1 = mean_nll(logprobs), 1 - share_above(regrets, 0.0)
    check.measured({"nll": nll, "top1_share": top1})
    verdict, text = judge_counting(counting, nll, top1)
    check.say("fail" if verdict else "pass", "counting", text)


def judge_counting(counting: Counting, nll: float, top1: float) -> tuple[bool, str]:
    """Whether counting is broken, and the figures."""
    broken = []
    if nll > counting.max_nll:
        broken.append(f"expected at most {counting.max_nll:g} nats")
    if top1 < counting.min_top1:
        broken.append(f"expected at least {counting.min_top1:.0%} likeliest")
    told = f"counting to {counting.to}: {nll:.4f} nats a token, {top1:.1%} of the tokens the likeliest"
    return bool(broken), "; ".join([told, *broken])


def score_after(scorer: Scorer, prefix: str, text: str) -> Scored:
    """The logprobs of the tokens of a text after a prefix, as many as one request may score."""
    head = scorer.tokenize(prefix) if prefix else []
    return score_tokens(scorer, head, scorer.tokenize(text, goes_on=bool(head)))


def score_tokens(scorer: Scorer, head: Sequence[int], ids: Sequence[int]) -> Scored:
    """The logprobs of tokens after others; the first token of all has none."""
    first = max(1, len(head))
    return scorer.score([*head, *ids][: first + MOST_SCORED], first)


PROBE = Probe("nan_scan", "No NaN, and known texts are known", "numerics", plan, run, after=("identity",))
