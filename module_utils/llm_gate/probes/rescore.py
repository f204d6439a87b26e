"""Generates greedily without logprobs, then scores what came: by prefill, and from the cache it wrote."""

from __future__ import annotations

from dataclasses import dataclass, field

from .. import arms, regret
from ..model_profile import ModelProfile
from ..probe import Check, Context, Probe, Step, run_checks
from ..results import Notes
from ..scoring import Scored, fresh_key
from ..text import excerpt

TEXTS = 2


@dataclass
class Texts:
    """The scored texts, and by their length the end computed anew and from the cache."""

    scored: list[Scored] = field(default_factory=list)
    pairs: dict[int, tuple[list[float], list[float]]] = field(default_factory=dict)


def plan(profile: ModelProfile) -> list[Step]:
    """Each text is generated once and scored twice."""
    tokens = profile.probes.continuation_tokens
    prompts = profile.probes.continuations[:TEXTS]
    shown = f'{len(prompts)} texts of {tokens} tokens after "{excerpt(prompts[0], 40)}", then their logprobs'
    prompt_tokens = sum(len(prompt) for prompt in prompts) + 2 * tokens * len(prompts)
    return [
        Step("regret", shown, 5 * len(prompts), (tokens + 4) * len(prompts), prompt_tokens),
        Step("decode_cache", "nothing more", 0, 0),
    ]


def run(context: Context, notes: Notes) -> None:
    """Generate and score, then compare the end of each text with the cache that decoding wrote."""
    texts = Texts()

    def regret_check(check: Check, context: Context) -> None:
        _generate_and_score(texts, context)
        _judge_regret(check, texts, context)

    def decode_cache(check: Check, context: Context) -> None:
        _judge_cache(check, texts, context)

    run_checks(context, notes, {"regret": regret_check, "decode_cache": decode_cache})


def _generate_and_score(texts: Texts, context: Context) -> None:
    scorer, data = context.scorer(), context.profile.probes
    for prompt in data.continuations[:TEXTS]:
        ids, key = scorer.tokenize(prompt), fresh_key()
        made = scorer.generate(ids, data.continuation_tokens, key)
        if not made.ids:
            continue
        # What decoding wrote is read first, since scoring anew writes the same places.
        end = regret.rescore_end(scorer, ids, made, key) if scorer.reads_cache else None
        scored = regret.rescore(scorer, ids, made, fresh_key())
        texts.scored.append(scored)
        if end is not None and (end.cached_tokens or 0) > len(ids):
            texts.pairs[len(ids) + len(made.ids)] = (scored.logprobs[-len(end.logprobs) :], end.logprobs)


def _judge_regret(check: Check, texts: Texts, context: Context) -> None:
    bars = context.profile.probes.bars
    check.limits(regret.limits(bars))
    found = regret.summarise(texts.scored)
    if found is None:
        check.say("fail", "no-content", "no text was generated for any of the prompts")
        return
    check.measured(found.figures)
    broken = regret.broken_bars(found, bars)
    for rule, text in broken:
        check.say("fail", rule, f"{found}; {text}")
    if not broken and found.tokens < regret.LEAST_TOKENS:
        check.say("skipped", "not-tested", f"regret not judged: only {found.tokens} tokens were generated")
    elif not broken:
        check.say("pass", "regret", str(found))


def _judge_cache(check: Check, texts: Texts, context: Context) -> None:
    if not texts.pairs:
        check.say(
            "skipped", "not-tested", "decode_cache not tested: nothing that was generated came from the cache"
        )
        return
    what = f"ends of {len(texts.pairs)} texts, anew against from the cache"
    arms.judge(check, texts.pairs, context.profile.probes.bars, what)


PROBE = Probe("rescore", "Generated tokens are the likeliest", "numerics", plan, run)
