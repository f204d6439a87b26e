"""Many long answers with known results, several at a time, and a chat that grows: for faults that are rare.

A fault that hits 3 % of answers shows in 30 of them with a chance of 63 %, in 128 with 98.6 %. On RTX PRO
6000 3 of 90 long runs of an NVFP4 model broke down, each after 8,000 to 10,000 tokens, so that the whole of
every answer is looked at in windows and not its beginning only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from ..answers import holds_word
from ..chat import PATH, Answer, read_answer
from ..errors import RequestFailed
from ..model_profile import ModelProfile
from ..probe import Check, Context, Probe, Step, run_checks
from ..probe_data import Question
from ..profiles import PROBE_IDS
from ..results import CheckVerdict, Notes
from ..soak_data import Soak, SoakBars
from ..text import Finding, excerpt, find_garbage

# Characters of a window, and from the end of one to that of the next: the detector looks for loops at the end
# of a text, and a loop needs some room to show.
WINDOW = 1500
STRIDE = 500
# Answers with garbage that the evidence names.
SHOWN = 3


@dataclass(frozen=True)
class Told:
    """What came for a question that was asked in a soak."""

    question: Question
    answer: Answer

    @property
    def text(self) -> str:
        return (self.answer.content or "").strip()

    @property
    def empty(self) -> bool:
        """The answer ended by itself and holds nothing: a think block that never closed looks so."""
        return not self.text and self.answer.finish_reason != "length"

    @property
    def unfinished(self) -> bool:
        return self.answer.finish_reason == "length"

    @property
    def right(self) -> bool:
        return holds_word(self.text, self.question.expect)

    @property
    def garbage(self) -> Finding | None:
        """The first thing that is wrong with the content or the reasoning, wherever it is."""
        found = find_in_windows(self.answer.content or "") or find_in_windows(self.answer.reasoning or "")
        return found[0] if found else None

    def __str__(self) -> str:
        asked = f'"{excerpt(self.question.prompt, 50)}"'
        return f"{asked} ended with '{excerpt(self.text[-60:], 60)}', expected {self.question.expect!r}"


def plan(profile: ModelProfile) -> list[Step]:
    """The long answers with as many short ones between them, then the chat."""
    soak = profile.soak
    if not soak.tasks:
        return [Step("answers", "nothing: the model profile has no long tasks", 0, 0)]
    asked = questions(soak, profile.facts)
    at_a_time = profile.at_a_time(soak.concurrency)
    return [
        Step(
            "answers",
            f"{len(asked)} questions by POST {PATH}, {at_a_time} at a time, for {soak.seconds:g} s",
            len(asked),
            sum(question.max_tokens for question in asked),
            sum(len(question.prompt) // 3 for question in asked),
            at_a_time,
        ),
        Step(
            "chat",
            f"a chat of {soak.turns} turns",
            soak.turns,
            sum(question.max_tokens for question in _turns(soak, profile.facts)),
        ),
    ]


def run(context: Context, notes: Notes) -> None:
    """Nothing of it without tasks of known result."""
    soak = context.profile.soak
    if not soak.tasks:
        run_checks(context, notes, {"answers": _no_tasks})
        return
    checks: dict[str, Callable[[Check, Context], None]] = {
        "answers": partial(_answers, soak=soak),
        "chat": partial(_chat, soak=soak),
    }
    with _patience(context):
        run_checks(context, notes, checks)


def questions(soak: Soak, facts: Sequence[Question]) -> list[Question]:
    """Long tasks in turn, after each a short question, so that short answers come and go beside long ones."""
    asked = []
    for number in range(soak.requests):
        asked += [soak.tasks[number % len(soak.tasks)], facts[number % len(facts)]]
    return asked


def _turns(soak: Soak, facts: Sequence[Question]) -> list[Question]:
    return [facts[number % len(facts)] for number in range(soak.turns)]


def _no_tasks(check: Check, context: Context) -> None:
    check.say("skipped", "not-tested", "soak not tested: the model profile has no long tasks")


@contextmanager
def _patience(context: Context) -> Iterator[None]:
    """Let one request take all the time that the run has left: 8,000 tokens beside others take minutes."""
    usual = context.client.request_timeout_s
    context.client.request_timeout_s = max(usual, context.client.deadline.remaining())
    try:
        yield
    finally:
        context.client.request_timeout_s = usual


def _answers(check: Check, context: Context, soak: Soak) -> None:
    asked = questions(soak, context.profile.facts)
    at_a_time = context.profile.at_a_time(soak.concurrency)
    end = time.monotonic() + soak.seconds

    def ask(question: Question) -> Told | RequestFailed | None:
        if time.monotonic() > end:
            return None
        long = question in soak.tasks
        extra = context.profile.thinking_on if long else context.profile.thinking_off
        try:
            return Told(question, context.chat().ask(question.prompt, question.max_tokens, extra))
        except RequestFailed as error:
            return error

    with ThreadPoolExecutor(at_a_time) as pool:
        came = list(pool.map(ask, asked))
    told = [one for one in came if isinstance(one, Told)]
    errors = [one for one in came if isinstance(one, RequestFailed)]
    check.measured({"questions": len(asked), "concurrency": at_a_time, "failed_requests": len(errors)})
    if errors:
        text = f"{len(errors)} of {len(asked)} requests brought no answer: {errors[0]}"
        check.say("error", errors[0].rule, text)
    if len(came) > len(told) + len(errors):
        left = sum(one is None for one in came)
        check.say(
            "skipped", "not-tested", f"{left} of {len(asked)} questions not asked: {soak.seconds:g} s passed"
        )
    if told:
        _judge(check, told, soak.bars)


def _chat(check: Check, context: Context, soak: Soak) -> None:
    """One conversation that grows, as agents have them: every turn is asked with all that was said before."""
    if not soak.turns:
        check.say("skipped", "not-tested", "a growing chat not tested: the model profile asks for no turns")
        return
    messages: list[dict[str, str]] = []
    told: list[Told] = []
    for question in _turns(soak, context.profile.facts):
        messages.append({"role": "user", "content": question.prompt})
        answer = _ask(context, messages, question.max_tokens)
        told.append(Told(question, answer))
        messages.append({"role": "assistant", "content": told[-1].text})
    check.measured({"turns": len(told)})
    _judge(check, told, soak.bars)


def _ask(context: Context, messages: Sequence[Mapping[str, str]], max_tokens: int) -> Answer:
    body = {
        **context.profile.thinking_off,
        "model": context.identified().model,
        "messages": list(messages),
        "temperature": 0,
        "max_tokens": max_tokens,
    }
    answer = read_answer(context.client.post(PATH, body))
    context.tokens.add(answer.prompt_tokens, answer.completion_tokens)
    return answer


def _judge(check: Check, told: Sequence[Told], bars: SoakBars) -> None:
    right = sum(one.right for one in told)
    tokens = sum(one.answer.completion_tokens or 0 for one in told)
    check.measured(
        {
            "answers": len(told),
            "right": right,
            "garbage": sum(one.garbage is not None for one in told),
            "empty": sum(one.empty for one in told),
            "unfinished": sum(one.unfinished for one in told),
            "completion_tokens": tokens,
        }
    )
    check.limits(
        {
            "wrong_share": bars.wrong,
            "empty_share": bars.empty,
            "unfinished_share": bars.unfinished,
            "garbage": 0,
        }
    )
    findings = judge_soak(told, bars)
    for finding in findings:
        check.say(*finding)
    if not any(verdict == "fail" for verdict, _rule, _text in findings):
        check.say("pass", "soak", f"{right} of {len(told)} answers right, {tokens} tokens without garbage")


def judge_soak(told: Sequence[Told], bars: SoakBars) -> list[tuple[CheckVerdict, str, str]]:
    """Garbage anywhere, empty answers, wrong results; an answer that was cut off is none of them."""
    judged: list[tuple[CheckVerdict, str, str]] = []
    for one in [one for one in told if one.garbage][:SHOWN]:
        found = one.garbage
        assert found is not None
        judged.append(("fail", "soak-garbage", f"garbage: {found.evidence} ({found.rule}); {one}"))
    empty = [one for one in told if one.empty]
    if len(empty) > bars.empty * len(told):
        text = f"{len(empty)} of {len(told)} answers ended without content: {empty[0]}"
        judged.append(("fail", "soak-empty", f"{text}, expected at most {bars.empty:.1%}"))
    finished = [one for one in told if not one.unfinished and not one.empty and not one.garbage]
    wrong = [one for one in finished if not one.right]
    if len(wrong) > bars.wrong * len(finished):
        text = f"{len(wrong)} of {len(finished)} results wrong: {wrong[0]}"
        judged.append(("fail", "soak-wrong", f"{text}, expected at most {bars.wrong:.0%}"))
    cut = [one for one in told if one.unfinished and not one.right]
    if len(cut) > bars.unfinished * len(told):
        text = f"{len(cut)} of {len(told)} answers were cut off before their result: {cut[0]}"
        judged.append(("warn", "soak-unfinished", f"{text}; raise gate.soak.max_tokens"))
    return judged


def find_in_windows(text: str) -> list[Finding]:
    """What the detector says of the first bad window of a text."""
    for end in range(STRIDE, len(text) + STRIDE, STRIDE):
        found = find_garbage(text[max(0, end - WINDOW) : end])
        if found:
            return found
    return []


PROBE = Probe(
    "soak",
    "Long answers and a long chat",
    "endurance",
    plan,
    run,
    after=tuple(probe for probe in PROBE_IDS if probe not in ("throughput", "soak")),
)
