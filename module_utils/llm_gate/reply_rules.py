"""What a reply must hold whatever was asked, and what answers, calls and JSON must hold. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .answers import holds_word, is_exactly
from .asking import Reply
from .chat import Answer, ToolCall
from .hints import HINTS
from .json_schema import equal, parse_json, violation
from .protocol_data import Structured, Tools
from .results import CheckVerdict
from .text import LOOP_RULES, excerpt, find_garbage

# Calls as the usual templates let models write them; a parser takes all of it out of the text.
# https://github.com/sgl-project/sglang/pull/26172
_TOOL_MARKUP = re.compile(
    r"</?tool_calls?>|<function=[\w.-]+>|</function>|<parameter=[\w.-]+>|\[TOOL_CALLS\]|<\uff5ctool\u2581call"
    r"|<\|(?:tool_calls?|python_tag)[^|]*\|>|</?(?:minimax:|seed:)?(?:tool_call|invoke)\b[^<>]{0,80}>"
)
# A model may speak of such markup while it thinks; there only a call begun is one.
_CALL_BEGUN = re.compile(
    r"<(?:minimax:|seed:)?tool_call>\s*[{<]|<function=[\w.-]+>\s*<|\[TOOL_CALLS\]\s*[\[{]"
)
# Ends of sequences that are words of HTML as well, so that the detector leaves them alone. No case here asks
# for HTML.
_END_MARK = re.compile(r"</?s>")
# No server decodes one answer faster than this many tokens a second; what seems so came in one lump.
FASTEST = 5000.0
# Fewer tokens than this say nothing about the way in which they came.
LEAST_STREAMED = 16


@dataclass(frozen=True)
class Found:
    """A broken rule, or a remark about a reply."""

    verdict: CheckVerdict
    rule: str
    text: str


def fail(rule: str, text: str) -> Found:
    return Found("fail", rule, text)


def judge_form(reply: Reply, finish: tuple[str, ...]) -> Iterator[Found]:
    """Rules for every reply: how it ends, its counts, its texts. `finish` are the reasons that may end it."""
    answer = reply.answer
    assert answer is not None
    reason = answer.finish_reason
    if reason is None:
        yield fail("no-finish", "it ended without finish_reason")
    elif reason not in finish:
        rule = "end-token" if reason == "length" else "finish-reason"
        yield fail(rule, f"finish_reason {reason!r}, expected {' or '.join(map(repr, finish))}")
    if not reply.done:
        yield fail("no-done", "the stream ended without [DONE]")
    if answer.prompt_tokens is None or answer.completion_tokens is None:
        yield fail("no-usage", "it tells no token counts (usage)")
    if reason == "stop" and not (answer.content or "").strip() and not answer.tool_calls:
        reasoning = (answer.reasoning or "").strip()
        if reasoning:
            yield fail("no-content", f"no content, all in the reasoning: '{excerpt(reasoning, 40)}'")
        else:
            told = f"no content, {answer.completion_tokens} tokens"
            yield fail("empty-at-stop", f"{told}, finish_reason 'stop'")
    yield from judge_texts(answer)


def judge_texts(answer: Answer) -> Iterator[Found]:
    """Garbage, and what parsers should have taken out."""
    for where, text, call in (
        ("content", answer.content or "", _TOOL_MARKUP),
        ("reasoning", answer.reasoning or "", _CALL_BEGUN),
    ):
        findings = find_garbage(text)
        if findings:
            # A loop trips many rules and may be NaN, so it goes first.
            first = min(findings, key=lambda finding: finding.rule not in LOOP_RULES)
            kind = "loop" if first.rule in LOOP_RULES else "garbage"
            rule = first.rule if first.rule in HINTS else kind
            yield fail(rule, f"garbage in the {where}: {first.evidence} ({first.rule})")
        markup = call.search(text)
        if markup:
            yield fail("tool-text", f"{markup.group()!r} in the {where}: '{excerpt(text.strip(), 60)}'")
        mark = _END_MARK.search(text)
        if mark:
            yield fail("special-token", f"{mark.group()!r} in the {where}: '{excerpt(text.strip(), 60)}'")


def judge_expected(answer: Answer, expect: str, exact: bool = False) -> Iterator[Found]:
    """The content holds the expected text as whole words, or is it. Without content nothing more is said."""
    content = (answer.content or "").strip()
    right = is_exactly(content, expect) if exact else holds_word(content, expect)
    if content and not right:
        wanted = "exactly " if exact else ""
        yield fail("answer", f"answered '{excerpt(content, 40)}', expected {wanted}{expect!r}")


def judge_thinking_on(answer: Answer, expect: str) -> Iterator[Found]:
    """The reasoning is in its own field, the value in the content. A limit that cut it off is a warning."""
    content, reasoning = (answer.content or "").strip(), (answer.reasoning or "").strip()
    if not reasoning:
        yield fail("no-reasoning", f"no reasoning; the content is '{excerpt(content, 40)}'")
    if answer.finish_reason == "length":
        cut_off = f"cut off at {answer.completion_tokens} tokens"
        if content or not reasoning:
            yield fail("end-token", f"{cut_off}, the content is '{excerpt(content, 40)}'")
        else:
            yield Found("warn", "no-content", f"{cut_off} while it was thinking")
    yield from judge_expected(answer, expect)


def judge_thinking_off(answer: Answer, expect: str) -> Iterator[Found]:
    """Nothing in the reasoning, the value in the content."""
    reasoning = (answer.reasoning or "").strip()
    if reasoning and (answer.content or "").strip():
        text = f"reasoning though thinking was switched off: '{excerpt(reasoning, 40)}'"
        yield Found("warn", "thinking-not-off", text)
    yield from judge_expected(answer, expect)


def judge_call(answer: Answer, tools: Tools) -> Iterator[Found]:
    """A call of the wanted tool; its arguments are JSON, keep to the schema, and are the expected ones."""
    if not answer.tool_calls:
        came = (answer.content or answer.reasoning or "").strip()
        yield fail("no-tool-call", f"no call of a tool, but '{excerpt(came, 60)}'")
        return
    for call in answer.tool_calls:
        yield from _judge_one_call(call, tools)
    yield from _tool_as_text(answer, tools)


def _judge_one_call(call: ToolCall, tools: Tools) -> Iterator[Found]:
    shown = f"{call.name}({excerpt(call.arguments, 60)})"
    if not call.id:
        yield fail("tool-arguments", f"the call {shown} has no id to answer it by")
    schema = tools.parameters(call.name)
    if schema is None:
        yield fail("tool-name", f"the call {shown} is of an unknown tool, expected {tools.call.name!r}")
        return
    try:
        arguments = parse_json(call.arguments)
    except ValueError as error:
        yield fail("tool-arguments", f"the arguments of {shown} are no JSON: {excerpt(str(error), 60)}")
        return
    broken = violation(arguments, schema)
    if broken:
        yield fail("tool-arguments", f"the arguments of {shown} break the tool's schema: {broken}")
    elif call.name != tools.call.name:
        yield fail("tool-name", f"the call {shown} is of another tool, expected {tools.call.name!r}")
    elif tools.call.arguments is not None and not equal(arguments, tools.call.arguments):
        yield fail("tool-arguments", f"the call is {shown}, expected {dict(tools.call.arguments)}")


def _tool_as_text(answer: Answer, tools: Tools) -> Iterator[Found]:
    """The call once more as text, which a parser should have taken out."""
    written = re.compile(rf'\{{\s*"name"\s*:\s*"{re.escape(tools.call.name)}"')
    for where, text in (("content", answer.content or ""), ("reasoning", answer.reasoning or "")):
        if written.search(text):
            yield fail("tool-text", f"the call is in the {where} too: '{excerpt(text.strip(), 60)}'")


def judge_structured(answer: Answer, wanted: Structured) -> Iterator[Found]:
    """The content is JSON that keeps to the schema, and the expected value if there is one."""
    content = (answer.content or "").strip()
    if not content:
        return
    try:
        value = parse_json(content)
    except ValueError as error:
        yield fail("schema", f"no JSON ({excerpt(str(error), 60)}): '{excerpt(content, 60)}'")
        return
    broken = violation(value, wanted.schema)
    if broken:
        yield fail("schema", f"it breaks the schema: {broken}: '{excerpt(content, 60)}'")
    elif wanted.expect is not None and not equal(value, wanted.expect):
        yield fail("answer", f"answered '{excerpt(content, 80)}', expected {wanted.expect}")


def judge_stopped(answer: Answer, stop: str, expect: str) -> Iterator[Found]:
    """The stop text and what would follow are left out; what comes before is there."""
    content = answer.content or ""
    if stop in content:
        yield fail("stop", f"{stop!r} did not stop it: '{excerpt(content, 60)}'")
    yield from judge_expected(answer, expect)


def judge_limited(answer: Answer, max_tokens: int) -> Iterator[Found]:
    """Just so many tokens were made."""
    made = answer.completion_tokens
    if made is not None and made != max_tokens:
        yield fail("max-tokens", f"{made} tokens, expected just max_tokens = {max_tokens}")


def judge_pair(plain: Answer, streamed: Answer) -> Iterator[Found]:
    """The same request costs the same prompt, streamed or not."""
    yield from _judge_counts(plain.prompt_tokens, streamed.prompt_tokens, "prompt")


def _judge_counts(plain: int | None, streamed: int | None, what: str) -> Iterator[Found]:
    if plain is not None and streamed is not None and plain != streamed:
        yield fail("usage-differs", f"{plain} {what} tokens, but {streamed} when streamed")


def judge_same(plain: Answer, streamed: Answer) -> Iterator[Found]:
    """The same text, the same end and the same counts, streamed or not."""
    one, other = (plain.content or "").strip(), (streamed.content or "").strip()
    if one != other:
        yield fail("stream-differs", f"'{excerpt(one, 60)}', but when streamed '{excerpt(other, 60)}'")
    elif plain.finish_reason != streamed.finish_reason:
        told = f"finish_reason {plain.finish_reason!r}, but {streamed.finish_reason!r} when streamed"
        yield fail("stream-differs", told)
    else:
        yield from _judge_counts(plain.completion_tokens, streamed.completion_tokens, "completion")


def came_in_one_lump(reply: Reply) -> bool:
    """Whether a streamed answer of some length arrived all at once."""
    answer, timing = reply.answer, reply.timing
    if answer is None or timing is None or (answer.completion_tokens or 0) < LEAST_STREAMED:
        return False
    return timing.tokens_per_second is None or timing.tokens_per_second > FASTEST


def merge(findings: Iterable[tuple[str, Found]], replies: int) -> list[Found]:
    """One finding for each rule: the first, with its label and in how many of all replies it was so."""
    grouped: dict[tuple[CheckVerdict, str], list[str]] = {}
    for label, found in findings:
        grouped.setdefault((found.verdict, found.rule), []).append(f"{label}: {found.text}")
    return [
        Found(verdict, rule, texts[0] + (f" ({len(texts)} times in {replies} replies)" if texts[1:] else ""))
        for (verdict, rule), texts in grouped.items()
    ]
