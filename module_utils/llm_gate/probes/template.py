"""The prompt that the server makes of a chat, by its number of tokens: one token of output for each chat.

A changed template, a dropped system prompt or another tokenizer shows in `usage.prompt_tokens` before it
shows in answers. The idea is Kimi Vendor Verifier's: https://github.com/MoonshotAI/Kimi-Vendor-Verifier
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..asking import Ask, Reply, ask_all
from ..chat import PATH, Prompt, messages_of
from ..errors import REFUSED, HttpStatus, Malformed, NotTested
from ..model_profile import ModelProfile
from ..neutral import filler
from ..probe import Check, Context, Probe, Step, failed_request, run_checks
from ..results import Notes
from ..scoring import NOT_OFFERED
from ..template_data import GoldenChat, GoldenText
from ..text import excerpt

CONCURRENCY = 4
# Tokens that may merge with those of the template, or with one another, where two texts meet.
SEAM = 4
_CHARACTERS = 600


def plan(profile: ModelProfile) -> list[Step]:
    """A request for each golden chat and text, and a few for the relations."""
    data = profile.template
    at_a_time = profile.at_a_time(CONCURRENCY)
    prompts = sum(max(chat.prompt_tokens) for chat in data.chats)
    questions = relation_prompts(profile)
    words = sum(len(str(prompt)) // 3 for prompt in questions.values())
    return [
        Step("chats", f"POST {PATH}, a token each", len(data.chats), len(data.chats), prompts, at_a_time),
        Step("tokenize", "POST /tokenize", len(data.tokenize), 0),
        Step(
            "relations",
            f"POST {PATH}, a token each; POST /tokenize",
            len(questions) + 2,
            len(questions),
            words,
            at_a_time,
        ),
    ]


def run(context: Context, notes: Notes) -> None:
    """Golden chats and texts, then relations that hold for any sane template."""
    run_checks(context, notes, {"chats": _chats, "tokenize": _tokenize, "relations": _relations})


def _chats(check: Check, context: Context) -> None:
    profile = context.profile
    chats = profile.template.chats
    if not chats:
        raise NotTested("the model profile has no golden chats (gate.template.chats)")
    asks = [Ask(chat.name, chat.messages, 1, _extra(chat, profile)) for chat in chats]
    counts = _count_all(check, context, asks)
    check.measured(counts)
    check.limits({chat.name: " or ".join(map(str, chat.prompt_tokens)) for chat in chats})
    wrong = judge_chats(chats, counts)
    if wrong:
        check.say("fail", "prompt-tokens", wrong)
    elif counts:
        check.say(
            "pass",
            "prompt-tokens",
            f"{len(counts)} chats have the prompt tokens that they must",
        )


def _extra(chat: GoldenChat, profile: ModelProfile) -> Mapping[str, object]:
    thinking = profile.thinking_on if chat.thinking else profile.thinking_off
    return {**thinking, "tools": list(chat.tools)} if chat.tools else thinking


def judge_chats(chats: Sequence[GoldenChat], counts: Mapping[str, int]) -> str:
    """The chats whose prompt has another number of tokens, for people; empty if none has."""
    wrong = [
        f"{chat.name} has {counts[chat.name]}, expected {' or '.join(map(str, chat.prompt_tokens))}"
        for chat in chats
        if chat.name in counts and counts[chat.name] not in chat.prompt_tokens
    ]
    return f"prompt tokens of {len(wrong)} of {len(chats)} chats differ: {'; '.join(wrong)}" if wrong else ""


def _count_all(check: Check, context: Context, asks: Sequence[Ask]) -> dict[str, int]:
    """The prompt tokens of each chat; one without becomes evidence."""
    counts = {}
    for reply in ask_all(context.chat(), asks, context.profile.at_a_time(CONCURRENCY)):
        count = _count(check, reply)
        if count is not None:
            counts[reply.ask.label] = count
    return counts


def _count(check: Check, reply: Reply) -> int | None:
    if reply.answer is None:
        assert reply.error is not None
        if _is_refused_developer(reply):
            # The checkpoint's own template took it when the tokens were counted.
            text = f"{reply.ask.label} refused, though the checkpoint's template takes the role developer"
            check.say("fail", "developer-role", f"{text}: {reply.error}")
            return None
        check.notes.evidence.append(failed_request(check.name, reply.error))
        return None
    if reply.answer.prompt_tokens is None:
        check.say("error", "no-usage", f"{reply.ask.label}: the reply tells no prompt_tokens")
    return reply.answer.prompt_tokens


def _is_refused_developer(reply: Reply) -> bool:
    """A role that not every template knows."""
    messages = messages_of(reply.ask.prompt)
    refused = isinstance(reply.error, HttpStatus) and reply.error.status in REFUSED
    return refused and any(message.get("role") == "developer" for message in messages)


def _tokenize(check: Check, context: Context) -> None:
    texts = context.profile.template.tokenize
    if not texts:
        raise NotTested("the model profile has no golden texts (gate.template.tokenize)")
    wrong = judge_ids(texts, [token_ids(context, golden.text) for golden in texts])
    if wrong:
        check.say("fail", "tokenizer", wrong)
    else:
        check.say("pass", "tokenizer", f"{len(texts)} texts have the token ids that they must")


def judge_ids(texts: Sequence[GoldenText], came: Sequence[Sequence[int]]) -> str:
    """The first text with other token ids, for people; empty if there is none."""
    for golden, ids in zip(texts, came, strict=True):
        if tuple(ids) != golden.ids:
            return f"'{excerpt(golden.text, 40)}' has the token ids {list(ids)}, expected {list(golden.ids)}"
    return ""


def token_ids(context: Context, text: str) -> list[int]:
    """The ids of a text, without what begins one. Raises RequestFailed, and NotTested if not offered."""
    body = {"model": context.identified().model, "prompt": text, "add_special_tokens": False}
    try:
        reply = context.client.post("/tokenize", body)
    except HttpStatus as error:
        if error.status in NOT_OFFERED:
            raise NotTested(f"the server does not offer /tokenize (HTTP {error.status})") from None
        raise
    ids = reply.get("tokens") if isinstance(reply, dict) else None
    if not isinstance(ids, list) or not all(isinstance(one, int) for one in ids):
        raise Malformed(f"POST /tokenize: the reply lists no token ids: {excerpt(str(reply))!r}")
    return ids


@dataclass(frozen=True)
class Lengths:
    """Token ids of the question and of the longer one, as far as known."""

    question: int | None = None
    longer: int | None = None


def relation_prompts(profile: ModelProfile) -> dict[str, Prompt]:
    """A question as it is, twice, made longer, after a system message, and after an earlier turn."""
    question = profile.smoke.arithmetic.prompt
    text = filler(_CHARACTERS)
    asked = {"role": "user", "content": question}
    return {
        "question": question,
        "again": question,
        "longer": _longer(question),
        "system": [{"role": "system", "content": text}, asked],
        "turns": [{"role": "user", "content": text}, {"role": "assistant", "content": text}, asked],
    }


def _longer(question: str) -> str:
    return f"{question}\n\n{filler(_CHARACTERS)}"


def _relations(check: Check, context: Context) -> None:
    profile = context.profile
    prompts = relation_prompts(profile)
    asks = [Ask(name, prompt, 1, profile.thinking_off) for name, prompt in prompts.items()]
    counts = _count_all(check, context, asks)
    check.measured(counts)
    if len(counts) < len(asks):
        return
    question = profile.smoke.arithmetic.prompt
    try:
        lengths = Lengths(len(token_ids(context, question)), len(token_ids(context, _longer(question))))
    except NotTested as reason:
        lengths = Lengths()
        check.say("skipped", "not-tested", f"how far the prompt grows not tested: {reason}")
    broken = judge_relations(counts, lengths)
    for text in broken:
        check.say("fail", "prompt-relations", text)
    if not broken:
        check.say("pass", "prompt-relations", "a longer question, a system message, earlier turns all count")


def judge_relations(counts: Mapping[str, int], lengths: Lengths) -> list[str]:
    """The relations that do not hold, which do for any sane template and tokenizer."""
    question = counts["question"]
    broken = []
    if counts["again"] != question:
        broken.append(f"the same chat has {question} prompt tokens, then {counts['again']}")
    longer = {"longer": "a longer question", "system": "a system message", "turns": "earlier turns"}
    for name, what in longer.items():
        if counts[name] <= question:
            told = f"{what} ({_CHARACTERS} characters more): {counts[name]} prompt tokens"
            broken.append(f"{told}, expected more than the {question} without")
    if lengths.question is not None and lengths.longer is not None:
        grown, expected = counts["longer"] - question, lengths.longer - lengths.question
        if abs(grown - expected) > SEAM:
            told = f"a question longer by {expected} tokens makes the prompt longer by {grown}"
            broken.append(f"{told}, expected at most {SEAM} more or fewer")
    return broken


PROBE = Probe(
    "template",
    "The prompt made of a chat",
    "contract",
    plan,
    run,
    after=("smoke", "identity"),
    beside=True,
)
