"""Compares logprobs and greedy texts with a stored baseline: what else nothing sees shows in the logprobs.

A damaged weight that leaves every answer right moves them; so does a wrong scale, another checkpoint under
the same name, or a kernel that rounds badly. A baseline of another deployment proves nothing and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from .. import golden
from ..baseline import Stored, attributes_of, changed_build, contradictions, key_of, untold
from ..drift import drift, judge_drift, limits, texts_changed
from ..golden_texts import TEXTS
from ..model_profile import ModelProfile
from ..probe import GROUND, Check, Context, Probe, Step, run_checks
from ..probe_data import MOST_SCORED
from ..results import Notes, Scalar
from ..stats import mean_nll
from ..text import excerpt


def plan(profile: ModelProfile) -> list[Step]:
    """What a baseline of this profile asks again; one made with another profile may ask other things."""
    data = profile.probes
    known = len(data.anchors) + int(data.counting is not None)
    copies = golden.copy_lengths(data.copy)
    scored = len(TEXTS) + known + len(copies)
    prompt = len(TEXTS) * golden.TEXT_TOKENS + known * MOST_SCORED + sum(copies)
    texts = golden.prompts(profile)
    shown = "if there is a baseline: "
    return [
        Step("segments", f"{shown}{scored} x logprobs of its tokens", 2 * scored, 2 * scored, prompt),
        Step(
            "texts",
            f"{shown}{len(texts)} greedy answers",
            len(texts),
            sum(text.max_tokens for text in texts),
            sum(len(text.prompt) // 3 for text in texts),
        ),
    ]


def run(context: Context, notes: Notes) -> None:
    """Refuse a baseline that does not fit, then compare."""
    stored = context.deployment.baseline_for(context.server)
    why_not = _no_baseline(context) if stored is None else ""
    stale = [] if stored is None else contradictions(stored.baseline.key, _key(context))
    if stored is None or stale:
        check = (
            partial(_skip, reason=why_not) if stored is None else partial(_stale, stored=stored, stale=stale)
        )
        run_checks(context, notes, {"segments": check})
        context.check_done("texts", "skipped")
        return
    run_checks(
        context,
        notes,
        {"segments": partial(_segments, stored=stored), "texts": partial(_texts, stored=stored)},
    )


def _key(context: Context) -> Mapping[str, Scalar]:
    return key_of(context.identified(), context.deployment.revision)


def _no_baseline(context: Context) -> str:
    """Why there is nothing to compare with, and what stands in the way of the baselines that there are."""
    running = _key(context)
    near = {
        stored.path: [
            *contradictions(stored.baseline.key, running),
            *(f"{name} is not known on both sides" for name in untold(stored.baseline.key, running)),
        ]
        for stored in context.deployment.choice
    }
    if not near:
        return "no baseline"
    path = min(near, key=lambda name: len(near[name]))
    return f"no baseline of this deployment; the nearest, {path}: {', '.join(near[path])}"


def _skip(check: Check, context: Context, reason: str) -> None:
    check.say("skipped", "not-tested", f"golden not tested: {reason}")


def _stale(check: Check, context: Context, stored: Stored, stale: list[str]) -> None:
    text = f"baseline {stored.path} is of another deployment: {'; '.join(stale)}"
    check.say("error", "golden-stale", f"{text}. Record one of this deployment with baseline.yml")


def _segments(check: Check, context: Context, stored: Stored) -> None:
    baseline, bars = stored.baseline, context.profile.golden
    unknown = untold(baseline.key, _key(context))
    if unknown:
        check.say("skipped", "not-tested", f"not known on both sides, so not compared: {', '.join(unknown)}")
    segments = golden.score_again(context.scorer(), baseline.segments)
    apart = drift(baseline.segments, segments)
    check.measured(apart.figures)
    check.measured({f"nll_{one.name}": mean_nll(one.logprobs) for one in segments})
    check.measured(
        {
            f"nll_change_{name}": value
            for name, value in {**apart.nll_changes, **apart.copy_nll_changes}.items()
        }
    )
    check.limits(limits(baseline.noise, bars))
    changed = changed_build(baseline.attributes, attributes_of(context.identified()))
    findings = judge_drift(apart, baseline.noise, bars, same_build=not changed)
    build = f"; another build than the baseline's: {', '.join(changed)}" if changed else ""
    for finding in findings:
        check.say(
            finding.verdict,
            f"golden-{finding.statistic.replace('_', '-')}",
            f"{finding.text}; {apart}{build}",
        )
    if not findings:
        check.say("pass", "golden", f"{apart}{build}")


def _texts(check: Check, context: Context, stored: Stored) -> None:
    baseline = stored.baseline
    changed = texts_changed(baseline.texts, golden.answer(context, baseline.texts))
    noise = baseline.noise.texts_changed
    check.measured({"texts": len(baseline.texts), "texts_changed": len(changed)})
    check.limits({"texts_changed": noise})
    told = f"{len(changed)} of {len(baseline.texts)} greedy texts are others than the baseline's"
    if len(changed) > noise:
        shown = f"\"{excerpt(changed[0].prompt, 40)}\" answered '{excerpt(changed[0].text, 60)}'"
        check.say("warn", "golden-texts", f"{told}, expected at most {noise}: {shown}")
    else:
        check.say("pass", "golden-texts", told)


PROBE = Probe("golden", "The logprobs of the baseline", "baseline", plan, run, after=GROUND)
