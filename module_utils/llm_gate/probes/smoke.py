"""Five questions with known answers, the least that a server must get right.

Checks, in order:

1. `model_info`: the served name is the one asked for.
2. `answer`: the stripped content is the expected text, with at most one closing `.`, `!` or `?`.
3. `arithmetic`: the content holds the expected value as a whole word (3232323 and 1,323 do not hold 323).
4. `thinking`: the same with thinking switched on; the reasoning must arrive in its own field.
5. `throughput`: a long streamed answer is long enough, and fast enough if there is a bar. Asked only if all
   before passed, since the speed of wrong answers means nothing.

Every text goes through the garbage detector. Without content a check fails, with one exception: if a token
limit cut the thinking off, and clean reasoning already holds the expected value, that is a warning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from ..answers import holds_word, is_exactly
from ..chat import PATH, Answer, Timing
from ..errors import RequestFailed
from ..hints import HINTS
from ..model_profile import LongAnswer, ModelProfile
from ..nan import TOKENS as NAN_LOOK_TOKENS
from ..nan import look_for_nan
from ..probe import Context, Probe, Step, failed_request, verdict_of
from ..probe_data import Question
from ..results import CheckVerdict, Evidence, Notes
from ..server import Server, identify, look_at_health, look_at_presence
from ..text import LOOP_RULES, excerpt, find_garbage

_CORRECTNESS = ("model_info", "answer", "arithmetic", "thinking")
LAST = "throughput"


def plan(profile: ModelProfile) -> list[Step]:
    """The checks with their requests. A looping text costs one more, with logprobs, to look for NaN."""
    smoke = profile.smoke

    def ask(check: str, max_tokens: int, prompt: str) -> Step:
        shown = f'POST {PATH} "{excerpt(prompt, 50)}", then a sign of life'
        return Step(check, shown, 3, max_tokens + min(max_tokens, NAN_LOOK_TOKENS))

    pages = "GET /model_info, /v1/models, /server_info or their old names"
    no_thinking = Step("thinking", "nothing: the model has no thinking mode", 0, 0)
    return [
        Step("model_info", pages, 6, 0),
        ask("answer", smoke.answer.max_tokens, smoke.answer.prompt),
        ask("arithmetic", smoke.arithmetic.max_tokens, smoke.arithmetic.prompt),
        ask("thinking", smoke.thinking.max_tokens, smoke.thinking.prompt) if smoke.thinking else no_thinking,
        ask("throughput", smoke.throughput.max_tokens, smoke.throughput.prompt),
    ]


def run(context: Context, notes: Notes) -> None:
    """Run the checks in order, and look after each whether the server lives. A dead server ends it."""
    stopped = ""
    for name, check in _CHECKS.items():
        reason = stopped or _reason_to_skip(name, context.profile, notes)
        if reason:
            notes.evidence.append(Evidence(name, "skipped", "not-tested", f"{name} not tested: {reason}"))
        else:
            before = len(notes.evidence)
            try:
                check(context, notes)
            except RequestFailed as error:
                notes.evidence.append(failed_request(name, error))
            stopped = _reason_to_stop(name, context, notes, before)
        context.check_done(name, verdict_of(name, notes))


def _reason_to_skip(name: str, profile: ModelProfile, notes: Notes) -> str:
    if name == "thinking" and profile.thinking is None:
        return "the model profile says that the model has no thinking mode"
    if name == "throughput":
        bad = [check for check in _CORRECTNESS if verdict_of(check, notes) in ("fail", "error")]
        if bad:
            return f"speed means nothing while {' and '.join(bad)} did not pass"
    return ""


def _reason_to_stop(name: str, context: Context, notes: Notes, before: int) -> str:
    if name == "model_info" and verdict_of(name, notes) != "pass":
        return "the server was not identified as the right one"
    if context.client.deadline.remaining() <= 0:
        text = f"the deadline of {context.client.deadline.seconds:g} s passed during {name}"
        # A check that ran out of time has said so itself.
        if not any(entry.rule == "timeout" for entry in notes.evidence[before:]):
            notes.evidence.append(Evidence(name, "error", "timeout", text, HINTS["timeout"]))
        return text
    # A health request takes SGLang a second: it is asked where something went wrong, and at the end.
    if verdict_of(name, notes) in ("pass", "skipped") and name != LAST:
        death = look_at_presence(context.client)
    else:
        health_status, death = look_at_health(context.client)
        notes.measured[name] = {**notes.measured.get(name, {}), "health_status": health_status}
    if death is None:
        return ""
    notes.evidence.append(
        Evidence(
            name, "error", "server-died", f"the server died during {name}: {death}", HINTS["server-died"]
        )
    )
    return f"the server died during {name}"


# The checks: ask, measure, and leave the judgement to the pure functions below.


def _check_model_info(context: Context, notes: Notes) -> None:
    server = identify(context.client, context.wanted_model)
    context.server = server
    notes.measured["model_info"] = {
        "served_names": ", ".join(server.served_names),
        "model_path": server.model_path,
        "engine": server.engine,
        "engine_version": server.engine_version,
    }
    notes.limits["model_info"] = {"model": context.wanted_model}
    notes.evidence.append(judge_model(server, context.wanted_model))


def _check_answer(context: Context, notes: Notes) -> None:
    _ask_and_judge("answer", context.profile.smoke.answer, context, notes)


def _check_arithmetic(context: Context, notes: Notes) -> None:
    _ask_and_judge("arithmetic", context.profile.smoke.arithmetic, context, notes)


def _check_thinking(context: Context, notes: Notes) -> None:
    question = context.profile.smoke.thinking
    assert question is not None
    _ask_and_judge("thinking", question, context, notes)


def _ask_and_judge(check: str, question: Question, context: Context, notes: Notes) -> None:
    extra = context.profile.thinking_on if check == "thinking" else context.profile.thinking_off
    notes.limits[check] = {"expect": question.expect, "max_tokens": question.max_tokens}
    began = time.monotonic()
    answer = context.chat().ask(question.prompt, question.max_tokens, extra)
    notes.measured[check] = {**_measured(answer), "duration_s": round(time.monotonic() - began, 3)}
    judged = (
        judge_thinking(question, answer) if check == "thinking" else judge_answer(check, question, answer)
    )
    notes.evidence.extend(judged)
    _name_nan(check, question, extra, context, notes)


def _check_throughput(context: Context, notes: Notes) -> None:
    wanted = context.profile.smoke.throughput
    extra = context.profile.thinking_off
    notes.limits["throughput"] = {
        "max_tokens": wanted.max_tokens,
        "min_tokens": wanted.min_tokens,
        "min_tokens_per_second": wanted.min_tokens_per_second,
    }
    began = time.monotonic()
    answer, timing, done = context.chat().stream(wanted.prompt, wanted.max_tokens, extra)
    measured = {**_measured(answer), "duration_s": round(time.monotonic() - began, 3), "concurrency": 1}
    judged = judge_throughput(wanted, answer, timing, done)
    if not any(
        entry.verdict in ("fail", "error") and entry.rule != "min-tokens-per-second" for entry in judged
    ):
        measured |= {
            "ttft_s": _rounded(timing.ttft_s),
            "itl_s": _rounded(timing.itl_s),
            "longest_gap_s": _rounded(timing.longest_gap_s),
            "tokens_per_second": _rounded(timing.tokens_per_second),
        }
    notes.measured["throughput"] = measured
    notes.evidence.extend(judged)
    _name_nan("throughput", wanted, extra, context, notes)


def _measured(answer: Answer) -> dict[str, str | int | float | None]:
    return {
        "got": excerpt((answer.content or "").strip()) if answer.content is not None else None,
        "characters": len(answer.content or ""),
        "reasoning": excerpt(answer.reasoning.strip()) if answer.reasoning is not None else None,
        "reasoning_characters": len(answer.reasoning or ""),
        "finish_reason": answer.finish_reason,
        "completion_tokens": answer.completion_tokens,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _name_nan(
    check: str, question: Question | LongAnswer, extra: Mapping[str, object], context: Context, notes: Notes
) -> None:
    """If a text loops, ask once more with logprobs to see whether the logits are NaN."""
    if not any(entry.check == check and entry.rule in LOOP_RULES for entry in notes.evidence):
        return
    assert context.server is not None
    if not context.server.may_ask_logprobs:
        text = f"{check} not asked with logprobs, which can crash a server with speculative decoding"
        notes.evidence.append(Evidence(check, "skipped", "nan-look", text))
        return
    try:
        seen = look_for_nan(context.chat(), question.prompt, question.max_tokens, extra)
    except RequestFailed as error:
        notes.evidence.append(
            Evidence(check, "skipped", "nan-look", f"{check} not asked with logprobs: {error}")
        )
        return
    if seen:
        notes.evidence.append(Evidence(check, "fail", "nan-logits", seen, HINTS["nan-logits"]))


_CHECKS: dict[str, Callable[[Context, Notes], None]] = {
    "model_info": _check_model_info,
    "answer": _check_answer,
    "arithmetic": _check_arithmetic,
    "thinking": _check_thinking,
    "throughput": _check_throughput,
}


# The judgement: pure functions of what was asked for and what came.


def judge_model(server: Server, wanted: str | None) -> Evidence:
    """The served name must be the wanted one, if one is wanted."""
    names = excerpt(", ".join(server.served_names))
    if wanted is not None and wanted not in server.served_names:
        text = f"expected the model {wanted!r}, the server serves {names!r}"
        return Evidence("model_info", "fail", "served-name", text, HINTS["served-name"])
    return Evidence(
        "model_info",
        "pass",
        "served-name",
        f"serves {names!r} from {excerpt(server.model_path or 'unknown')}",
    )


def judge_answer(check: str, question: Question, answer: Answer) -> list[Evidence]:
    """A short answer without thinking: `answer` must be the expected text, `arithmetic` hold the value."""
    content = answer.content or ""
    matches = is_exactly if check == "answer" else holds_word
    told = _told(question.prompt, answer)
    evidence: list[Evidence] = []
    if not content.strip():
        evidence.append(
            Evidence(
                check, "fail", "no-content", f"{told}, expected {question.expect!r}", HINTS["no-content"]
            )
        )
    elif not matches(content, question.expect):
        evidence.append(
            Evidence(check, "fail", "answer", f"{told}, expected {question.expect!r}", HINTS["answer"])
        )
    evidence.extend(_garbage(check, answer))
    if evidence:
        return evidence
    if (answer.reasoning or "").strip():
        return [
            Evidence(
                check,
                "warn",
                "thinking-not-off",
                f"{told}, with reasoning although thinking was switched off",
            )
        ]
    if check == "answer" and answer.finish_reason == "length":
        text = f"{told}, but stopped only at the limit of {question.max_tokens} tokens"
        return [Evidence(check, "warn", "end-token", text)]
    return [Evidence(check, "pass", "answer", told)]


def judge_thinking(question: Question, answer: Answer) -> list[Evidence]:
    """An answer with thinking: reasoning in its own field, the value in the content."""
    check = "thinking"
    content, reasoning = answer.content or "", answer.reasoning or ""
    told = _told(question.prompt, answer)
    evidence: list[Evidence] = []
    if not reasoning.strip():
        evidence.append(
            Evidence(check, "fail", "no-reasoning", f"{told}, without reasoning", HINTS["no-reasoning"])
        )
    garbage = list(_garbage(check, answer))
    if content.strip():
        if not holds_word(content, question.expect):
            evidence.append(
                Evidence(check, "fail", "answer", f"{told}, expected {question.expect!r}", HINTS["answer"])
            )
    elif answer.finish_reason == "length" and not garbage and holds_word(reasoning, question.expect):
        text = (
            f"{told}: cut off at {question.max_tokens} tokens, though the reasoning has {question.expect!r}"
        )
        evidence.append(Evidence(check, "warn", "no-content", text, HINTS["no-content"]))
    else:
        ended = f"finish_reason {answer.finish_reason!r}"
        text = f"{told} ({ended}), expected {question.expect!r}"
        evidence.append(Evidence(check, "fail", "no-content", text, HINTS["no-content"]))
    evidence.extend(garbage)
    return evidence or [
        Evidence(check, "pass", "answer", f"{told} after {len(reasoning)} characters of reasoning")
    ]


def judge_throughput(wanted: LongAnswer, answer: Answer, timing: Timing, done: bool) -> list[Evidence]:
    """A long streamed answer: complete, clean, long enough, and fast enough if there is a bar."""
    check = "throughput"
    told = _told(wanted.prompt, answer)
    evidence: list[Evidence] = []

    def add(verdict: CheckVerdict, rule: str, text: str) -> None:
        evidence.append(Evidence(check, verdict, rule, text, HINTS.get(rule, "")))

    if answer.finish_reason is None:
        add(
            "error",
            "dropped",
            f"{told}: the stream ended without finish_reason{'' if done else ' and [DONE]'}",
        )
    elif not done:
        add("warn", "no-done", f"{told}: the stream ended without [DONE]")
    if not (answer.content or "").strip():
        add("fail", "no-content", told)
    evidence.extend(_garbage(check, answer, prose=True))
    tokens = answer.completion_tokens
    if tokens is None:
        add("error", "no-usage", f"{told}: the stream tells no completion_tokens")
    elif tokens < wanted.min_tokens:
        add("fail", "min-tokens", f"{told}: {tokens} tokens, expected at least {wanted.min_tokens}")
    if any(entry.verdict in ("fail", "error") for entry in evidence):
        return evidence
    speed, bar = timing.tokens_per_second, wanted.min_tokens_per_second
    if speed is None:
        add(
            "warn" if bar is None else "error",
            "no-speed",
            f"{told}: it arrived in one piece, so its speed is unknown",
        )
    elif bar is not None and speed < bar:
        add(
            "fail",
            "min-tokens-per-second",
            f"{speed:.1f} tokens/s at concurrency 1, expected at least {bar:g}",
        )
    if not evidence and speed is not None and timing.ttft_s is not None:
        add(
            "pass",
            "throughput",
            f"{tokens} tokens at {speed:.1f} tokens/s, the first after {timing.ttft_s:.2f} s",
        )
    return evidence


def _told(prompt: str, answer: Answer) -> str:
    """The question and what came, cut short with the full length told."""
    asked = f'"{excerpt(prompt, 60)}"'
    if answer.content is None:
        return f"{asked} answered no content"
    content = answer.content.strip()
    length = f" ({len(answer.content)} characters)" if len(content) > 40 or not content else ""
    return f"{asked} answered '{excerpt(content, 40)}'{length}"


def _garbage(check: str, answer: Answer, prose: bool = False) -> Iterator[Evidence]:
    """Every text through the detector. The token count belongs to content and reasoning together."""
    content, reasoning = answer.content or "", answer.reasoning or ""
    tokens = None if reasoning.strip() else answer.completion_tokens
    for where, findings in (
        ("content", find_garbage(content, tokens, prose)),
        ("reasoning", find_garbage(reasoning)),
    ):
        if findings:
            # A loop trips many rules and may be NaN, so it goes first.
            first = min(findings, key=lambda finding: finding.rule not in LOOP_RULES)
            rules = ", ".join(finding.rule for finding in findings)
            text = f"garbage in the {where} of {check}: {first.evidence} ({rules})"
            hint = HINTS.get(first.rule) or HINTS["loop" if first.rule in LOOP_RULES else "garbage"]
            yield Evidence(check, "fail", first.rule, text, hint)


PROBE = Probe("smoke", "Five questions with known answers", "correctness", plan, run, after=())
