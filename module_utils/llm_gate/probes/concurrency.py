"""Questions with one right answer, and prose, at rising concurrency without logprobs; then scores the prose.

Logprob requests take paths of their own, so that the load itself goes without. What was right alone and is
wrong beside others is a fault of batches: CUDA graphs, padding, experts, speculation with several requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from .. import regret
from ..answers import holds_word
from ..chat import PATH
from ..errors import NotTested
from ..model_profile import ModelProfile
from ..probe import Check, Context, Probe, Step, run_checks
from ..probe_data import Bars, Question
from ..regret import Regret
from ..results import CheckVerdict, Notes
from ..scoring import Generated, Scorer
from ..stats import mean
from ..text import Finding, excerpt, find_garbage

MOST_TEXTS = 4
TEXT_TOKENS = 128
LEAST_QUESTIONS = 8


@dataclass(frozen=True)
class Told:
    """What came for a question, and whether it is right; `silent` if the model ended without a word."""

    fact: Question
    text: str
    right: bool
    silent: bool = False


@dataclass(frozen=True)
class Text:
    """What came for a prompt that asks for prose; `made` is None where its tokens are unknown."""

    prompt: str
    ids: list[int]
    text: str
    made: Generated | None


@dataclass
class Rung:
    """All that came at one concurrency."""

    told: list[Told] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)


@dataclass
class Ladder:
    """The rungs climbed so far, and what scores the texts; None for the reason `unscored`."""

    rungs: dict[int, Rung] = field(default_factory=dict)
    scorer: Scorer | None = None
    unscored: str = ""


def plan(profile: ModelProfile) -> list[Step]:
    """A rung for each concurrency: questions, some prose with them, and the prose's logprobs."""
    data = profile.probes
    rungs = profile.allowed(data.concurrency)
    steps = []
    for concurrency in rungs:
        questions, texts = sizes(concurrency, len(profile.facts), concurrency == rungs[0])
        facts = _facts(profile, concurrency, questions)
        tokens = min(TEXT_TOKENS, data.continuation_tokens)
        asked = f"{questions} questions by POST {PATH}, {texts} texts of {tokens} tokens"
        shown = f"{asked}, {concurrency} at a time"
        prompt = sum(len(fact.prompt) // 3 for fact in facts) + texts * (2 * tokens + 64)
        made = sum(fact.max_tokens for fact in facts) + texts * (tokens + 2)
        steps.append(Step(f"c{concurrency}", shown, questions + 4 * texts, made, prompt, concurrency))
    return [*steps, Step("acceptance", "nothing more", 0, 0)]


def sizes(concurrency: int, facts: int, first: bool) -> tuple[int, int]:
    """The numbers of questions and texts: enough to keep so many under way, and all on the first rung."""
    questions = max(LEAST_QUESTIONS, 2 * concurrency)
    return (max(questions, facts), MOST_TEXTS) if first else (questions, min(MOST_TEXTS, concurrency))


def run(context: Context, notes: Notes) -> None:
    """Climb the rungs; each is held against the first, then acceptance over all."""
    ladder = Ladder()
    wanted, profile = context.profile.probes.concurrency, context.profile
    rungs = profile.allowed(wanted)
    checks: dict[str, Callable[[Check, Context], None]] = {
        f"c{concurrency}": partial(_climb, ladder=ladder, concurrency=concurrency) for concurrency in rungs
    }
    run_checks(context, notes, {**checks, "acceptance": partial(_acceptance, rungs=ladder.rungs)})
    if wanted[-1] > rungs[-1]:
        budget = f"the load budget allows {profile.most_concurrency} requests at a time"
        text = f"concurrency {rungs[-1] + 1} to {wanted[-1]} not tested: {budget}"
        Check("load", notes).say("skipped", "not-tested", text)


def _climb(check: Check, context: Context, ladder: Ladder, concurrency: int) -> None:
    bars = context.profile.probes.bars
    alone = not ladder.rungs
    if alone:
        ladder.scorer, ladder.unscored = _scorer(context)
    rung = _ask_all(context, ladder.scorer, concurrency, alone)
    base = next(iter(ladder.rungs.values()), rung)
    ladder.rungs[concurrency] = rung
    right = mean([float(told.right) for told in rung.told])
    check.limits({"right_share": bars.exact_share, **regret.limits(bars)})
    check.measured({"concurrency": concurrency, "questions": len(rung.told), "right_share": right})

    def say(verdict: CheckVerdict, rule: str, text: str) -> None:
        check.say(verdict, rule, f"{text}, at concurrency {concurrency}")

    findings = [*judge_answers(rung.told, base.told, bars), *judge_texts(rung.texts, base.texts)]
    for finding in findings:
        say(*finding)
    # Scored only now, so that nothing else runs beside it, and what was found before is written down.
    found = _score(ladder.scorer, rung.texts)
    broken = []
    if found is not None:
        check.measured(found.figures)
        broken = regret.broken_bars(found, bars)
        for rule, text in broken:
            say("fail", rule, f"{found}; {text}")
    if not broken and not any(verdict == "fail" for verdict, _rule, _text in findings):
        told = f"{right:.0%} of {len(rung.told)} answers right, {len(rung.texts)} texts sound"
        check.say("pass", "concurrency", f"{told}, {found.share:.1%} regret" if found else told)
    if alone and ladder.unscored:
        check.say("skipped", "not-tested", f"texts not scored: {ladder.unscored}")


def _score(scorer: Scorer | None, texts: Sequence[Text]) -> Regret | None:
    """The regret of what was generated; None where it cannot be scored."""
    if scorer is None:
        return None
    made = [(text.ids, text.made) for text in texts if text.made is not None and text.made.ids]
    return regret.summarise([regret.rescore(scorer, ids, one, None) for ids, one in made])


def _scorer(context: Context) -> tuple[Scorer | None, str]:
    """What can go on with tokens and score them, or None and the reason: then prose is asked for by chat."""
    try:
        scorer = context.scorer()
        scorer.generate(scorer.tokenize(context.profile.probes.continuations[0]), 1)
    except NotTested as reason:
        return None, str(reason)
    return scorer, ""


def _ask_all(context: Context, scorer: Scorer | None, concurrency: int, first: bool) -> Rung:
    """Everything of one rung, so many requests at a time. Raises what the first failed request raised."""
    profile = context.profile
    questions, texts = sizes(concurrency, len(profile.facts), first)
    prompts = _prompts(profile, scorer, texts)
    pool = ThreadPoolExecutor(concurrency)
    try:
        # The long ones first, so that the short ones run beside them.
        long = [pool.submit(_write, context, scorer, prompt, ids) for prompt, ids in prompts]
        short = [pool.submit(_ask, context, fact) for fact in _facts(profile, concurrency, questions)]
        return Rung([job.result() for job in short], [job.result() for job in long])
    finally:
        pool.shutdown(cancel_futures=True)


def _facts(profile: ModelProfile, concurrency: int, count: int) -> list[Question]:
    """So many questions, beginning with another one at each concurrency."""
    return [profile.facts[(concurrency + number) % len(profile.facts)] for number in range(count)]


def _prompts(profile: ModelProfile, scorer: Scorer | None, count: int) -> list[tuple[str, list[int]]]:
    given = profile.probes.continuations if scorer else (profile.smoke.throughput.prompt,)
    chosen = [given[number % len(given)] for number in range(count)]
    return [(prompt, scorer.tokenize(prompt) if scorer else []) for prompt in chosen]


def _ask(context: Context, fact: Question) -> Told:
    answer = context.chat().ask(fact.prompt, fact.max_tokens, context.profile.thinking_off)
    text = (answer.content or "").strip()
    right = holds_word(text, fact.expect) and not find_garbage(text)
    return Told(fact, text, right, silent=not text and answer.finish_reason == "stop")


def _write(context: Context, scorer: Scorer | None, prompt: str, ids: list[int]) -> Text:
    tokens = min(TEXT_TOKENS, context.profile.probes.continuation_tokens)
    if scorer is None:
        answer = context.chat().ask(prompt, tokens, context.profile.thinking_off)
        return Text(prompt, ids, answer.content or "", None)
    made = scorer.generate(ids, tokens)
    return Text(prompt, ids, made.text, made)


def judge_answers(
    told: Sequence[Told], base: Sequence[Told], bars: Bars
) -> list[tuple[CheckVerdict, str, str]]:
    """Wrong answers: too many of all, or of those right on the first rung, where a few are a warning.

    Not one may be silent. A sound model answers, and users met this in 3 to 8 of 1000 requests under load:
    https://github.com/joninco/rtx6kpro/blob/master/models/ds4f-empty-think/README.md
    """
    silent = [one for one in told if one.silent]
    if silent:
        shown = f'"{excerpt(silent[0].fact.prompt, 40)}" answered with nothing and finish_reason stop'
        return [("fail", "empty-at-stop", f"{len(silent)} of {len(told)} answers are empty: {shown}")]
    alone = {one.fact.prompt for one in base if one.right}
    known = [one for one in told if one.fact.prompt in alone]
    wrong = [one for one in known if not one.right]
    example = next(iter(wrong), next((one for one in told if not one.right), None))
    if example is None:
        return []
    shown = f"\"{excerpt(example.fact.prompt, 40)}\" answered '{excerpt(example.text, 40)}'"
    shown = f"{shown}, expected {example.fact.expect!r}"
    if wrong:
        verdict: CheckVerdict = "fail" if len(wrong) > (1 - bars.exact_share) * len(known) else "warn"
        return [
            (verdict, "batch-answer", f"{len(wrong)} of {len(known)} answers that were right alone: {shown}")
        ]
    right = sum(one.right for one in told)
    if right < bars.exact_share * len(told):
        return [("fail", "answer", f"only {right} of {len(told)} answers right: {shown}")]
    return []


def judge_texts(texts: Sequence[Text], base: Sequence[Text]) -> list[tuple[CheckVerdict, str, str]]:
    """Garbage in a text.

    A model may loop by itself when it only goes on with a text. Then it does so alone too, which is a warning
    on the first rung and nothing new on the others.
    """
    alone = {text.prompt: {finding.rule for finding in _garbage(text)} for text in base}
    judged: dict[str, tuple[CheckVerdict, str, str]] = {}
    for text in texts:
        for finding in _garbage(text):
            told = f"garbage in prose: {finding.evidence} ({finding.rule})"
            if finding.rule not in alone.get(text.prompt, set()):
                judged.setdefault("fail", ("fail", "batch-text", told))
            elif texts is base:
                judged.setdefault("warn", ("warn", "batch-text", told))
    return list(judged.values())


def _garbage(text: Text) -> list[Finding]:
    """What the detector says; a beginning may lead into reasoning, whose closing tag nobody takes out."""
    return [finding for finding in find_garbage(text.text, prose=True) if finding.rule != "think-tag"]


def _acceptance(check: Check, context: Context, rungs: Mapping[int, Rung]) -> None:
    bars = context.profile.probes.bars
    lengths, firsts = {}, {}
    for concurrency, rung in rungs.items():
        made = [text.made for text in rung.texts if text.made]
        accepted = [one.accept_length for one in made if one.accept_length is not None]
        first = [one.first_acceptance for one in made if one.first_acceptance is not None]
        if accepted:
            lengths[concurrency] = mean(accepted)
        if first:
            firsts[concurrency] = mean(first)
    if not lengths:
        check.say(
            "skipped", "not-tested", "acceptance not tested: the server reports no speculative decoding"
        )
        return
    check.measured({f"accept_length_c{concurrency}": value for concurrency, value in lengths.items()})
    check.measured({f"first_acceptance_c{concurrency}": value for concurrency, value in firsts.items()})
    check.limits({"ratio_to_alone": bars.acceptance_ratio, "first_acceptance": bars.first_acceptance})
    steps = context.identified().count("speculative_num_steps")
    findings = judge_acceptance(lengths, firsts, bars, steps)
    for verdict, text in findings:
        check.say(verdict, "acceptance", text)
    if not findings:
        shown = ", ".join(f"{value:.2f} at {concurrency}" for concurrency, value in lengths.items())
        check.say("pass", "acceptance", f"tokens for each verification: {shown}")


def judge_acceptance(
    lengths: Mapping[int, float], firsts: Mapping[int, float], bars: Bars, steps: int | None
) -> list[tuple[CheckVerdict, str]]:
    """Drafts that batches spoil, that are hardly ever right, or that are suspiciously always right."""
    judged: list[tuple[CheckVerdict, str]] = []
    alone = next(iter(lengths.values()))
    spoilt = {c: value for c, value in lengths.items() if value < bars.acceptance_ratio * alone}
    if spoilt:
        c, value = min(spoilt.items(), key=lambda item: item[1])
        text = f"{value:.2f} tokens for each verification at concurrency {c}, {alone:.2f} alone"
        judged.append(("fail", f"{text}, expected at least {bars.acceptance_ratio:.0%} of that"))
    bad = {c: value for c, value in firsts.items() if value < bars.first_acceptance}
    if bad:
        c, value = min(bad.items(), key=lambda item: item[1])
        text = f"only {value:.0%} of first drafts are right at concurrency {c}"
        judged.append(("fail", f"{text}, expected at least {bars.first_acceptance:.0%}"))
    if steps is not None and min(lengths.values()) >= steps + 1:
        judged.append(("warn", f"every draft of {steps} steps is right: a text that only repeats itself"))
    return judged


PROBE = Probe("concurrency", "Right beside other requests", "concurrency", plan, run)
