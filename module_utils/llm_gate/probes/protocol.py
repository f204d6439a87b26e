"""What clients rely on: thinking, tools, schemas, streams, ends, roles, asked plainly and streamed.

Every case is asked both ways at temperature 0, a few requests at a time. Parsers, templates and proxies fail
in one of the two ways only more often than not: https://github.com/noonghunna/club-3090/issues/145
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ..asking import Ask, Reply, ask_all
from ..chat import PATH, RAW_PATH, Answer, Chat, Prompt, RawCompletions
from ..errors import REFUSED, HttpStatus, NotTested
from ..model_profile import ModelProfile
from ..probe import Check, Context, Probe, Step, failed_request, run_checks, verdict_of
from ..probe_data import Question
from ..protocol_data import Structured, Tools
from ..reply_rules import (
    Found,
    came_in_one_lump,
    judge_call,
    judge_expected,
    judge_form,
    judge_limited,
    judge_pair,
    judge_same,
    judge_stopped,
    judge_structured,
    judge_thinking_off,
    judge_thinking_on,
    merge,
)
from ..results import Notes
from ..text import excerpt

# Statuses by which servers say that a page is not there.
_NOT_THERE = frozenset({404, 405})
_UNKNOWN_MODEL = "no-such-model"
_NAME_TOKENS = 8
_MOST_MIXED = 4
# Some servers lose calls now and then, so that one is not enough:
# https://github.com/local-inference-lab/rtx6kpro/blob/master/troubleshooting/common-issues.md
_CALLS = 6
# A streamed call that broke is asked for again so often. SGLang 0.5.9 loses the arguments of a call whose
# name and rest arrive in one piece (function_call/base_format_detector.py), which a busy event loop makes of
# them now and then; with --stream-interval 4 it loses a third of all calls, with a wrong parser all.
_CALLS_AGAIN = 3
# A streamed answer that came in one lump is asked for again so often. On a host with other work two in a row
# were seen to: the HTTP process gets no core until the short answer is done.
_LUMPS_AGAIN = 4
_LOST_CALL = frozenset({"no-tool-call", "tool-arguments", "empty-at-stop", "no-content", "finish-reason"})


@dataclass(frozen=True)
class Case:
    """Something to ask plainly and streamed, and what its answer must hold. `finish`: how it may end."""

    label: str
    prompt: Prompt
    max_tokens: int
    extra: Mapping[str, object]
    judge: Callable[[Answer], Iterable[Found]]
    finish: tuple[str, ...] = ("stop",)
    has_developer: bool = False
    # Whether a grammar shapes the answer.
    shaped: bool = False

    def asks(self) -> list[Ask]:
        plain = Ask(self.label, self.prompt, self.max_tokens, self.extra)
        return [plain, replace(plain, label=f"{self.label}, streamed", streamed=True)]


# The cases, by check: data of the model profile turned into questions and rules.


def _thinking(profile: ModelProfile) -> list[Case]:
    asked, thinking = profile.smoke.arithmetic, profile.smoke.thinking
    off = Case(
        "thinking off" if profile.thinking else "arithmetic",
        asked.prompt,
        asked.max_tokens,
        profile.thinking_off,
        partial(judge_thinking_off if profile.thinking else judge_expected, expect=asked.expect),
    )
    if thinking is None:
        return [off]
    on = Case(
        "thinking on",
        thinking.prompt,
        thinking.max_tokens,
        profile.thinking_on,
        partial(judge_thinking_on, expect=thinking.expect),
        ("stop", "length"),
    )
    return [off, on]


def _tools(profile: ModelProfile) -> list[Case]:
    tools = profile.protocol.tools
    if tools is None:
        raise NotTested("the model profile says that the model has no tools")
    judge = partial(judge_call, tools=tools)

    def case(choice: str) -> Case:
        extra = {**profile.thinking_off, "tools": list(tools.tools), "tool_choice": choice}
        label, shaped = f"tool_choice {choice}", choice == "required"
        return Case(label, tools.prompt, tools.max_tokens, extra, judge, ("tool_calls",), shaped=shaped)

    auto = case("auto")
    cases = [case("required"), *[auto] * _CALLS]
    if profile.smoke.thinking is not None:
        # Where the parser of the reasoning may take the call for a part of it.
        extra = {**auto.extra, **profile.thinking_on}
        most = tools.max_tokens + profile.smoke.thinking.max_tokens
        cases.append(replace(auto, label=f"{auto.label}, thinking", max_tokens=most, extra=extra))
    if tools.result is not None and tools.expect is not None:
        extra = {**profile.thinking_off, "tools": list(tools.tools)}
        judge_answer = partial(judge_expected, expect=tools.expect)
        cases.append(Case("tool result", _with_result(tools), tools.max_tokens, extra, judge_answer))
    return cases


def _with_result(tools: Tools) -> list[Mapping[str, object]]:
    """The conversation after the expected call, with what the tool says."""
    function = {"name": tools.call.name, "arguments": json.dumps(tools.call.arguments)}
    call = {"id": "call_0", "type": "function", "function": function}
    return [
        {"role": "user", "content": tools.prompt},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_0", "content": tools.result},
    ]


def _schema(profile: ModelProfile) -> list[Case]:
    if not profile.protocol.schemas:
        raise NotTested("the model profile says that there is no structured output")

    def case(wanted: Structured) -> Case:
        form = {"name": "answer", "schema": dict(wanted.schema), "strict": True}
        extra = {**profile.thinking_off, "response_format": {"type": "json_schema", "json_schema": form}}
        label = f'json_schema "{excerpt(wanted.prompt, 40)}"'
        judge = partial(judge_structured, wanted=wanted)
        return Case(label, wanted.prompt, wanted.max_tokens, extra, judge, shaped=True)

    return [case(wanted) for wanted in profile.protocol.schemas]


def _stream(profile: ModelProfile) -> list[Case]:
    asked = profile.protocol.stream
    if asked is None:
        raise NotTested("the model profile has no question for it")
    return [Case("text", asked.prompt, asked.max_tokens, profile.thinking_off, _anything)]


def _anything(answer: Answer) -> Iterable[Found]:
    return ()


def _answers(profile: ModelProfile) -> list[Case]:
    wanted = profile.protocol.answers
    if wanted is None:
        raise NotTested("the model profile switches it off")

    def case(fact: Question) -> Case:
        judge = partial(judge_expected, expect=fact.expect, exact=wanted.exact)
        label = f'"{excerpt(fact.prompt, 40)}"'
        return Case(label, fact.prompt, fact.max_tokens, profile.thinking_off, judge)

    return [case(fact) for fact in profile.facts[: wanted.count]]


def _stop(profile: ModelProfile) -> list[Case]:
    wanted = profile.protocol.stop
    if wanted is None:
        raise NotTested("the model profile has no question for it")
    extra = {**profile.thinking_off, "stop": [wanted.stop]}
    judge = partial(judge_stopped, stop=wanted.stop, expect=wanted.expect)
    return [Case(f"stop {wanted.stop!r}", wanted.prompt, wanted.max_tokens, extra, judge)]


def _limit(profile: ModelProfile) -> list[Case]:
    wanted = profile.protocol.limit
    if wanted is None:
        raise NotTested("the model profile has no question for it")
    judge = partial(judge_limited, max_tokens=wanted.max_tokens)
    label = f"max_tokens {wanted.max_tokens}"
    return [Case(label, wanted.prompt, wanted.max_tokens, profile.thinking_off, judge, ("length",))]


def _roles(profile: ModelProfile) -> list[Case]:
    if not profile.protocol.conversations:
        raise NotTested("the model profile has no conversations")
    return [
        Case(
            one.name,
            one.messages,
            one.max_tokens,
            profile.thinking_off,
            partial(judge_expected, expect=one.expect, exact=one.exact),
            has_developer=one.has_developer,
        )
        for one in profile.protocol.conversations
    ]


def _mixed(profile: ModelProfile) -> list[Case]:
    """Short answers before and after each shaped one, so that every row of a batch changes hands."""
    if not profile.protocol.mixed:
        raise NotTested("the model profile switches it off")
    shaped, answers = _schema(profile), _answers(profile)[:_MOST_MIXED]
    return [case for answer in answers for case in (answer, *shaped)]


def _completion(profile: ModelProfile) -> list[Case]:
    asked = profile.protocol.completion
    if asked is None:
        raise NotTested("the model profile has no text for it")
    judge = partial(judge_expected, expect=asked.expect)
    return [Case(RAW_PATH, asked.prompt, asked.max_tokens, {}, judge, ("stop", "length"))]


_CASES: Mapping[str, Callable[[ModelProfile], list[Case]]] = {
    "thinking": _thinking,
    "tools": _tools,
    "schema": _schema,
    "stream": _stream,
    "answers": _answers,
    "mixed": _mixed,
    "stop": _stop,
    "limit": _limit,
    "roles": _roles,
    "completion": _completion,
}


def plan(profile: ModelProfile) -> list[Step]:
    """Each case twice, what looks like chance again, and two odd requests."""
    steps = []
    for name, make in _CASES.items():
        try:
            asks = [ask for case in make(profile) for ask in case.asks()]
        except NotTested as reason:
            steps.append(Step(name, f"nothing: {reason}", 0, 0))
            continue
        again = {"stream": _LUMPS_AGAIN, "tools": _CALLS_AGAIN}.get(name, 0)
        asks += [max(asks, key=lambda ask: ask.max_tokens)] * again
        path = RAW_PATH if name == "completion" else PATH
        shown = f'POST {path} "{excerpt(_last_words(asks[0].prompt), 40)}" and the like'
        steps.append(
            Step(
                name,
                shown,
                len(asks),
                sum(ask.max_tokens for ask in asks),
                sum(_tokens_of(ask) for ask in asks),
                profile.at_a_time(profile.protocol.concurrency),
            )
        )
    question = profile.smoke.arithmetic.prompt
    shown = f"POST {PATH} for a model that is not there, and for two answers"
    return [*steps, Step("names", shown, 2, 3 * _NAME_TOKENS, 2 * (len(question) // 3 + 16))]


def _last_words(prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else str(prompt[-1].get("content"))


def _tokens_of(ask: Ask) -> int:
    """About what a request's prompt costs, its tools and template with it."""
    asked = ask.prompt if isinstance(ask.prompt, str) else json.dumps(ask.prompt)
    return len(asked) // 3 + len(json.dumps(ask.extra)) // 3 + 16


def run(context: Context, notes: Notes) -> None:
    """The cases, then what happens to odd requests."""
    checks = {name: partial(_ask_cases, make=make) for name, make in _CASES.items()}
    run_checks(context, notes, {**checks, "names": _names})


def _ask_cases(check: Check, context: Context, make: Callable[[ModelProfile], list[Case]]) -> None:
    cases = make(context.profile)
    if check.name == "mixed":
        _need_right_apart(check)
    concurrency = context.profile.at_a_time(context.profile.protocol.concurrency)
    of_kind = RawCompletions if check.name == "completion" else Chat
    chat = of_kind(context.client, context.identified().model, context.tokens)
    replies = _ask_in_turn(chat, cases, concurrency, together=check.name == "mixed")
    if check.name == "completion":
        _skip_if_not_there(replies)
    judged = [_judge(case, reply, check) for case, reply in zip(_twice(cases), replies, strict=True)]
    if check.name == "tools":
        _look_again_at_a_lost_call(chat, cases, replies, judged)
    findings = [(reply.ask.label, found) for reply, one in zip(replies, judged, strict=True) for found in one]
    for case, plain, streamed in zip(cases, replies[::2], replies[1::2], strict=True):
        if plain.answer and streamed.answer:
            findings += [(case.label, found) for found in judge_pair(plain.answer, streamed.answer)]
            if check.name == "stream":
                findings += [(case.label, found) for found in judge_same(plain.answer, streamed.answer)]
    if check.name == "stream":
        findings += _look_again_at_a_lump(chat, replies[1])
    if check.name == "mixed":
        findings = [(label, replace(found, rule="mixed")) for label, found in findings]
    _write_down(check, replies, findings)


def _need_right_apart(check: Check) -> None:
    bad = [name for name in ("schema", "answers") if verdict_of(name, check.notes) != "pass"]
    if bad:
        raise NotTested(f"side by side means nothing while {' and '.join(bad)} did not pass")


def _twice(cases: Sequence[Case]) -> list[Case]:
    return [case for case in cases for _ in range(2)]


def _look_again_at_a_lump(chat: Chat, streamed: Reply) -> list[tuple[str, Found]]:
    """A busy host may deliver all at once now and then; a server or proxy that collects does it always."""
    for _ in range(_LUMPS_AGAIN):
        if not came_in_one_lump(streamed):
            return []
        [streamed] = ask_all(chat, [streamed.ask], 1)
    lump = came_in_one_lump(streamed)
    return [(streamed.ask.label, Found("warn", "lump", _told_lump(streamed)))] if lump else []


def _look_again_at_a_lost_call(
    chat: Chat, cases: Sequence[Case], replies: Sequence[Reply], judged: list[list[Found]]
) -> None:
    """Make one broken stream among sound calls a warning, if it stays the only one when asked again."""
    broken = [number for number, found in enumerate(judged) if any(one.verdict != "warn" for one in found)]
    if len(broken) != 1:
        return
    (number,) = broken
    case, reply = _twice(cases)[number], replies[number]
    if not reply.ask.streamed or not {found.rule for found in judged[number]} <= _LOST_CALL:
        return
    again = ask_all(chat, [reply.ask] * _CALLS_AGAIN, 1)
    if all(one.answer and not [*judge_form(one, case.finish), *case.judge(one.answer)] for one in again):
        text = f"1 of {1 + _CALLS_AGAIN} streamed calls broke: {judged[number][0].text}"
        judged[number] = [Found("warn", "lost-call", text)]


def _ask_in_turn(chat: Chat, cases: Sequence[Case], concurrency: int, together: bool) -> list[Reply]:
    """A plain and a streamed reply for each case; shaped ones, which come first, apart unless `together`."""
    asks = [ask for case in cases for ask in case.asks()]
    shaped = 0 if together else 2 * sum(case.shaped for case in cases)
    return [*ask_all(chat, asks[:shaped], concurrency), *ask_all(chat, asks[shaped:], concurrency)]


def _skip_if_not_there(replies: Sequence[Reply]) -> None:
    for reply in replies:
        if isinstance(reply.error, HttpStatus) and reply.error.status in _NOT_THERE:
            raise NotTested(f"the server has no {RAW_PATH}")


def _judge(case: Case, reply: Reply, check: Check) -> list[Found]:
    """Everything about one reply; a request without one becomes evidence by itself."""
    if reply.answer is not None:
        return [*judge_form(reply, case.finish), *case.judge(reply.answer)]
    assert reply.error is not None
    if isinstance(reply.error, HttpStatus) and reply.error.status in REFUSED:
        if case.has_developer:
            return [Found("warn", "developer-role", f"refused: {reply.error}")]
        return [Found("fail", "refused", f"refused: {reply.error}")]
    entry = failed_request(check.name, reply.error)
    return [Found("error", entry.rule, entry.text)]


def _told_lump(reply: Reply) -> str:
    assert reply.answer is not None and reply.timing is not None
    waited = f" after {reply.timing.ttft_s:.2f} s" if reply.timing.ttft_s is not None else ""
    return f"{reply.answer.completion_tokens} tokens came in one lump{waited}"


def _write_down(check: Check, replies: Sequence[Reply], findings: list[tuple[str, Found]]) -> None:
    answered = [reply for reply in replies if reply.answer is not None]
    bad = {label for label, found in findings if found.verdict != "warn"}
    sound = [reply for reply in answered if reply.ask.label not in bad]
    check.measured({"replies": len(answered), "sound": len(sound)})
    check.limits({"sound": len(replies)})
    merged = merge(findings, len(replies))
    for found in merged:
        check.say(found.verdict, found.rule, found.text)
    if not merged:
        check.say("pass", "protocol", f"{len(replies)} of {len(replies)} replies as they must be")


def _names(check: Check, context: Context) -> None:
    """Records what happens to a model name that is not served, and to a request for two answers."""
    server, question = context.identified(), context.profile.smoke.arithmetic
    body = {
        **context.profile.thinking_off,
        "messages": [{"role": "user", "content": question.prompt}],
        "temperature": 0,
        "max_tokens": _NAME_TOKENS,
    }
    unknown = _outcome(context, {**body, "model": _UNKNOWN_MODEL}, 1)
    two = _outcome(context, {**body, "model": server.model, "n": 2}, 2)
    check.measured({"unknown_model": unknown, "two_answers": two})
    outcomes = {"an unknown model": unknown, "n = 2": two}
    odd = [f"{asked}: {came}" for asked, came in outcomes.items() if came not in _SANE]
    for text in odd:
        check.say("warn", "odd-request", f"{text}, expected an answer or a refusal (HTTP 4xx)")
    if not odd:
        check.say("pass", "names", f"an unknown model is {unknown}, a request for two answers is {two}")


_SANE = ("answered", "refused")


def _outcome(context: Context, body: Mapping[str, object], choices: int) -> str:
    """`answered`, `refused`, or what came instead."""
    try:
        reply = context.client.post(PATH, body)
    except HttpStatus as error:
        if error.status in (401, 403):
            raise
        return "refused" if 400 <= error.status < 500 else f"HTTP {error.status}"
    usage = reply.get("usage") if isinstance(reply, dict) else None
    if isinstance(usage, dict):
        counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
        context.tokens.add(*(count if isinstance(count, int) else None for count in counts))
    came = reply.get("choices") if isinstance(reply, dict) else None
    count = len(came) if isinstance(came, list) else 0
    return "answered" if count == choices else f"{count} answers"


PROBE = Probe("protocol", "What clients rely on", "protocol", plan, run, beside=True)
