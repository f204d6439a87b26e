"""What comes from the prefix cache is what was computed: the same question again, and long prompts again."""

from __future__ import annotations

from .. import arms, regret
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
# One page of a cache's usual 64 tokens, and one and two tokens more. What a hit leaves to compute is one row
# then: https://github.com/sgl-project/sglang/pull/29633 made the first token wrong at 1 modulo 64.
REPLAYED = (192, 193, 194)
REPLAYED_TOKENS = 8


def plan(profile: ModelProfile) -> list[Step]:
    """The same chat question in a row, then one long prompt twice, whose pieces are tokenized before."""
    question = profile.facts[0]
    shown = f'{ROUNDS} x POST {PATH} "{excerpt(question.prompt, 50)}"'
    return [
        Step("repeat", shown, ROUNDS, ROUNDS * question.max_tokens, ROUNDS * len(question.prompt) // 3),
        Step("hit", f"2 x logprobs of the last {SCORED_END} of {PROMPT} tokens", 7, 4, 2 * PROMPT),
        Step(
            "replay",
            f"2 x {REPLAYED_TOKENS} tokens after each of {', '.join(map(str, REPLAYED))} tokens",
            5 * len(REPLAYED),
            (2 * REPLAYED_TOKENS + 1) * len(REPLAYED),
            3 * sum(REPLAYED),
        ),
    ]


def run(context: Context, notes: Notes) -> None:
    """Ask again, score again, then generate again."""
    run_checks(context, notes, {"repeat": _repeat, "hit": _hit, "replay": _replay})


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
    if _has_no_cache(check, context):
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


def _replay(check: Check, context: Context) -> None:
    if _has_no_cache(check, context):
        return
    scorer, most = context.scorer(), context.profile.probes.bars.replay_regret
    check.limits({"regret": most})
    lengths = context.fitting(REPLAYED)
    wrong = []
    for length in lengths:
        ids = (scorer.nonce() + scorer.filler(length))[:length]
        key = fresh_key()
        first = scorer.generate(ids, REPLAYED_TOKENS, key)
        again = scorer.generate(ids, REPLAYED_TOKENS, key)
        if again.ids == first.ids:
            continue
        # Near ties may fall either way: what came from the cache must at least be likely.
        cost = max(regret.rescore(scorer, ids, again, fresh_key()).regrets) if again.ids else most
        check.measured({f"regret_{length}": cost})
        if not again.ids or cost > most:
            got = f"'{excerpt(again.text, 40)}', first '{excerpt(first.text, 40)}'"
            wrong.append(f"after {length} tokens {got}")
    check.measured({"prompts": len(lengths), "wrong": len(wrong)})
    if not lengths:
        check.say("skipped", "not-tested", f"replay not tested: no prompt of {REPLAYED[0]} tokens fits")
    elif wrong:
        check.say("fail", "replay", f"the same prompt again goes on in another way: {'; '.join(wrong)}")
    else:
        check.say("pass", "replay", f"{len(lengths)} prompts again go on as before")


def _has_no_cache(check: Check, context: Context) -> bool:
    without = bool(context.identified().settings.get("disable_radix_cache"))
    if without:
        text = f"{check.name} not tested: the server runs without a prefix cache"
        check.say("skipped", "not-tested", text)
    return without


PROBE = Probe("prefix_cache", "From the cache as computed", "cache", plan, run)
