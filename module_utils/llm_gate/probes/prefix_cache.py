"""What comes from the prefix cache is what was computed: the same question again, and a long prompt again."""

from __future__ import annotations

from .. import arms
from ..answers import holds_word
from ..arms import SCORED_END
from ..chat import PATH
from ..model_profile import ModelProfile
from ..probe import Check, Context, Probe, Step, run_checks
from ..results import Notes
from ..scoring import fresh_key
from ..text import excerpt, find_garbage

PROMPT = 3072
ROUNDS = 3


def plan(profile: ModelProfile) -> list[Step]:
    """The same chat question in a row, then one long prompt twice, whose pieces are tokenized before."""
    question = profile.facts[0]
    shown = f'{ROUNDS} x POST {PATH} "{excerpt(question.prompt, 50)}"'
    return [
        Step("repeat", shown, ROUNDS, ROUNDS * question.max_tokens, ROUNDS * len(question.prompt) // 3),
        Step("hit", f"2 x logprobs of the last {SCORED_END} of {PROMPT} tokens", 7, 4, 2 * PROMPT),
    ]


def run(context: Context, notes: Notes) -> None:
    """Ask again, then score again."""
    run_checks(context, notes, {"repeat": _repeat, "hit": _hit})


def _repeat(check: Check, context: Context) -> None:
    question = context.profile.facts[0]
    check.limits({"expect": question.expect})
    texts = []
    for _round in range(ROUNDS):
        answer = context.chat().ask(question.prompt, question.max_tokens, context.profile.thinking_off)
        texts.append((answer.content or "").strip())
    check.measured({f"answer_{number}": excerpt(text) for number, text in enumerate(texts, start=1)})
    wrong = [
        number
        for number, text in enumerate(texts, start=1)
        if not holds_word(text, question.expect) or find_garbage(text)
    ]
    asked = f'"{excerpt(question.prompt, 60)}" asked {ROUNDS} times'
    if wrong:
        got = excerpt(texts[wrong[0] - 1], 40)
        text = f"{asked}: answer {wrong[0]} is '{got}', expected {question.expect!r}"
        check.say("fail", "repeat" if wrong[0] > 1 else "answer", text)
    else:
        check.say("pass", "repeat", f"{asked}: right each time")


def _hit(check: Check, context: Context) -> None:
    if context.identified().settings.get("disable_radix_cache"):
        check.say("skipped", "not-tested", "hit not tested: the server runs without a prefix cache")
        return
    scorer = context.scorer()
    if not scorer.reads_cache:
        text = "hit not tested: this engine does not read its cache for prompt logprobs"
        check.say("skipped", "not-tested", text)
        return
    length = min(PROMPT, context.longest_prompt() or PROMPT)
    nonce, key = scorer.nonce(), fresh_key()
    ids = (nonce + scorer.filler(length))[:length]
    first = max(1, length - SCORED_END)
    cold, warm = scorer.score(ids, first, key), scorer.score(ids, first, key)
    check.measured({"cached_tokens_cold": cold.cached_tokens, "cached_tokens_hit": warm.cached_tokens})
    if not cold.is_cold or not warm.is_hit:
        text = f"hit not tested: {cold.cached_tokens}, then {warm.cached_tokens} tokens came from the cache"
        check.say("skipped", "not-tested", text)
        return
    what = f"{warm.cached_tokens} of {length} tokens from the cache"
    arms.judge(check, {length: (cold.logprobs, warm.logprobs)}, context.profile.probes.bars, what)


PROBE = Probe("prefix_cache", "From the cache as computed", "cache", plan, run)
