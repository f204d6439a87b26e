"""Finds garbage in a text without knowing what the text should say.

The rules S1-S11 and the prose rules come from a test on 2,422 valid windows (25 kinds of text: code, JSON,
tables, base64, CJK, emoji ...) and 2,025 broken ones. They give certainty about gross faults only: word salad
of plain words passes, and needs exact answers or logprobs. Windows are 1,500 characters, the length tested;
the end is looked at more closely, since faults that need time or length to show begin with a sound text.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

WINDOW = 1500
# The end is judged by itself as well, so that what is sound before it does not dilute it.
END = 400
# What repeats may be one token up to this many characters; longer units are phrases.
LONGEST_TOKEN = 16
# A loop is looked for in this much of the end, whatever its period.
TAIL = 20_000
# Longer texts are judged by this much of their beginning and of their end.
SPAN = 100_000

# Rules that one endlessly repeated token trips. NaN logits look so: the largest of all-NaN logits is token 0.
LOOP_RULES = frozenset(
    {"whole-loop", "S1-run", "S2-blank", "S3-token-loop", "S4-character-loop", "S10-one-token", "tail-loop"}
)

# A line of these only is a rule, a table border or a heading's underline.
_SEPARATOR_LINE = re.compile(r"[ \t]*[-=_*#~+.|:/<>\u2500-\u257f \t]{3,120}")
# Characters that people repeat: to draw lines, bars and leaders, in numbers and encoded data.
_DRAWN = re.compile(r"[A-Za-z0-9\s=_*#~+./:<>|\\^%&@'`,\"\xb7\u2010-\u2027\u2500-\u25ff-]")
# The borders of a table's cells and the quotes of a list's items are no words.
_BORDERS = frozenset("|,;'\"\u2502\u2503\u2551")
_TOKEN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|\w+|([^\w\s])\1*")
_WHOLE_LOOP = re.compile(r"(\D{1,16}?)\1{7,}")
# Control tokens of the usual chat formats and tokenizers. None of them belongs in a text for people:
# https://github.com/sgl-project/sglang/issues/12824, https://github.com/vllm-project/vllm/pull/41834,
# https://github.com/huggingface/transformers/issues/23765
_SPECIAL_TOKEN = re.compile(
    r"<\|[^|<>\s]{1,40}\|>|<\uff5c[^\uff5c\n]{1,40}\uff5c>|<(?:unk|pad|bos|eos|sop|eop|mask)>|\[(?:gMASK|UNK|PAD|CLS|SEP)\]"
    r"|<(?:start|end)_of_(?:turn|image|sentence)>|\[/?INST\]|<</?SYS>>|<0x[0-9A-Fa-f]{2}>|<extra_id_\d+>"
)
_HTML_END = re.compile(r"</(?!s>)[a-z]{1,10}>")
# Left in the text when no reasoning parser took the reasoning out. https://github.com/sgl-project/sglang/issues/22242
_THINK_TAG = re.compile(r"</?think(?:ing)?>")


_NAMES_IN_EAST_ASIA = ({"LATIN", "CJK"}, {"LATIN", "HANGUL"})


@dataclass(frozen=True)
class Finding:
    """One reason to call a text garbage: the rule's name and what was seen."""

    rule: str
    evidence: str


def excerpt(text: str, limit: int = 120) -> str:
    """The beginning of a text on one line, safe to print: unprintable characters appear as escapes."""
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text[:limit]
    )
    return shown if len(text) <= limit else f"{shown}..."


def find_garbage(text: str, completion_tokens: int | None = None, prose: bool = False) -> list[Finding]:
    """Say why a text is garbage; an empty list means that nothing was found.

    `completion_tokens` is the number of tokens the server says it made for this text, where known.
    `prose` adds rules for texts that were asked to be running prose in one language.
    """
    if not text.strip():
        if completion_tokens is not None and completion_tokens >= 16:
            return [Finding("S2-blank", f"{completion_tokens} tokens and nothing to read")]
        return []
    if len(text) > 2 * SPAN:
        text = text[:SPAN] + text[-SPAN:]
    found = [
        *_whole_loop(text),
        *_tail_loop(text[-TAIL:]),
        *_special_tokens(text),
        *_replacement_characters(text),
    ]
    seen = {finding.rule for finding in found}
    for window in _windows(text):
        for finding in _judge_window(window, prose):
            if finding.rule not in seen:
                seen.add(finding.rule)
                found.append(finding)
    return found


def _windows(text: str) -> Iterator[str]:
    """The text in pieces of WINDOW characters, the last a full one as well; then the END by itself."""
    for start in range(0, len(text) - WINDOW, WINDOW):
        yield text[start : start + WINDOW]
    yield text[-WINDOW:]
    if len(text) > END:
        yield text[-END:]


def _judge_window(window: str, prose: bool) -> Iterator[Finding]:
    body = _without_separator_lines(window)
    tokens = _tokens(body)
    yield from _runs(window, body)
    yield from _loops(body, tokens)
    yield from _compression(body)
    yield from _odd_characters(window)
    yield from _scripts(window, tokens)
    if prose:
        yield from _prose(body, tokens)


def _without_separator_lines(text: str) -> str:
    """Drop table borders and underlines, as long as there is about as much else to read."""
    lines = text.splitlines()
    rest = [line for line in lines if not _SEPARATOR_LINE.fullmatch(line)]
    readable = sum(any(map(str.isalnum, line)) for line in rest)
    return "\n".join(rest) if readable and len(lines) - len(rest) <= readable + 2 else text


def _tokens(text: str) -> list[str]:
    """Words, single CJK characters, and punctuation with its repeats; combining marks do not split a word."""
    plain = "".join(character for character in text if unicodedata.category(character)[0] != "M")
    return [match.group() for match in _TOKEN.finditer(plain)]


def _whole_loop(text: str) -> Iterator[Finding]:
    """The whole text is one unit again and again. Numbers may do that, so a unit must have no digit."""
    squeezed = "".join(text.split())
    match = _WHOLE_LOOP.match(squeezed[:4000])
    if match and match.group(1).startswith(squeezed[:4000][match.end() :]):
        count = len(match.group()) // len(match.group(1))
        yield Finding("whole-loop", f"nothing but {excerpt(match.group(1), 20)!r}, at least {count} times")


def _tail_loop(text: str) -> Iterator[Finding]:
    """The text ends in a loop of any period, however much sound text comes before it.

    Valid texts repeat as well: zeros in a matrix, so that a loop without letters must be of marks alone; a
    refrain, so that long units must come more often than in a song.
    """
    body = _without_separator_lines(text).rstrip()
    last_line = body.rpartition("\n")[2]
    for period, length in _tails(body):
        unit, count = body[-period:], length // period
        if any(map(str.isalpha, unit)):
            loops = (length >= 48 and count >= 16) or (length >= 240 and count >= 5)
            loops |= length >= 400 and count >= 4
        else:
            loops = length >= 48 and count >= 24 and not any(map(str.isdigit, unit))
            # A ruler that is all of the last line.
            loops &= len(last_line) < length or _SEPARATOR_LINE.fullmatch(last_line) is None
        if loops:
            rule = "tail-loop" if period <= LONGEST_TOKEN else "phrase-loop"
            yield Finding(rule, f"the text ends in {count} times {excerpt(unit, 40)!r}")
            return


def _tails(text: str) -> Iterator[tuple[int, int]]:
    """Each period with which an end of the text repeats, ascending, and the length of the longest such end.

    The prefix function of Knuth, Morris and Pratt on the reversed text: linear, for all periods at once.
    """
    back = text[::-1]
    border = [0] * len(back)
    last = 1
    for place in range(1, len(back)):
        known = border[place - 1]
        while known and back[place] != back[known]:
            known = border[known - 1]
        border[place] = known + (back[place] == back[known])
        period = place + 1 - border[place]
        if period != last:
            if place >= 2 * last:
                yield last, place
            last = period
    if len(back) >= 2 * last:
        yield last, len(back)


def _special_tokens(text: str) -> Iterator[Finding]:
    leaked = Counter(match.group() for match in _SPECIAL_TOKEN.finditer(text))
    # <s>...</s> is also HTML for struck-out text, so only an unpaired one counts, but for one in HTML that a
    # token limit cut.
    unpaired = text.count("</s>") - text.count("<s>")
    if unpaired and not (unpaired == -1 and _HTML_END.search(text)):
        leaked["</s>" if unpaired > 0 else "<s>"] = abs(unpaired)
    tags = Counter(match.group() for match in _THINK_TAG.finditer(text))
    if tags:
        yield Finding(
            "think-tag", "reasoning tags in the text: " + ", ".join(f"{tag} x{n}" for tag, n in tags.items())
        )
    if leaked:
        shown = ", ".join(f"{token} x{count}" for token, count in leaked.most_common(5))
        yield Finding("special-token", f"control tokens in the text: {shown}")


def _replacement_characters(text: str) -> Iterator[Finding]:
    """S7. The last 4 characters are excused: a token limit may cut a character in the middle."""
    count = text[:-4].count("\ufffd")
    if count >= 2:
        yield Finding("S7-replacement", f"{count} x U+FFFD: bytes that are no character")


def _runs(window: str, body: str) -> Iterator[Finding]:
    """S1: 160 equal characters, 32 that nobody draws with, or 30 % of the text (valid texts reach 100).

    White space is excused from the share (indentation, padded columns), digits below 40 (1e30 written out).
    """
    run, character = _longest_run(window)
    share_run, share_character = _longest_run(body)
    needed = 40 if share_character.isdigit() else 8
    if run >= 160 or (run >= 32 and not _DRAWN.match(character)):
        yield Finding("S1-run", f"{run} times {excerpt(character)!r} in a row")
    elif (
        len(body) >= 24
        and share_run >= needed
        and share_run / len(body) >= 0.30
        and not share_character.isspace()
    ):
        yield Finding(
            "S1-run", f"{share_run} times {excerpt(share_character)!r} in a row, of {len(body)} characters"
        )


def _longest_run(text: str) -> tuple[int, str]:
    runs = ((len(match.group()), match.group(1)) for match in re.finditer(r"(.)\1+", text, re.DOTALL))
    return max(runs, default=(len(text[:1]), text[:1]), key=lambda run: run[0])


def _loops(body: str, tokens: Sequence[str]) -> Iterator[Finding]:
    """S3, S4: the end repeats. S5: few different 4-token groups. S10: one token is most of the text."""
    if len(tokens) >= 40:
        covered, period = _periodic_tail(tokens[-400:], 60)
        if covered >= 0.5 * min(len(tokens), 400):
            unit = " ".join(tokens[-period:])
            yield Finding("S3-token-loop", f"the last {covered} tokens repeat {excerpt(unit, 40)!r}")
    characters = body.strip()
    if len(characters) >= 40:
        covered, period = _periodic_tail(characters[-400:], 40)
        if covered >= 0.5 * min(len(characters), 400):
            yield Finding(
                "S4-character-loop",
                f"the last {covered} characters repeat {excerpt(characters[-period:], 40)!r}",
            )
    if len(tokens) >= 100:
        groups = list(zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False))
        distinct = len(set(groups)) / len(groups)
        if distinct < 0.12:
            yield Finding("S5-few-phrases", f"only {distinct:.0%} of the 4-token groups differ")
    words = [token for token in tokens if token not in _BORDERS]
    if len(words) >= 60:
        token, count = Counter(words).most_common(1)[0]
        if count / len(words) >= 0.60:
            yield Finding("S10-one-token", f"{excerpt(token, 20)!r} is {count} of {len(words)} tokens")


def _periodic_tail(items: Sequence[str], longest_period: int) -> tuple[int, int]:
    """The length of the longest end that repeats at least 3 times with one period, and that period."""
    best, best_period = 0, 1
    for period in range(1, min(longest_period, len(items) // 3) + 1):
        start = len(items) - period
        while start > 0 and items[start - 1] == items[start - 1 + period]:
            start -= 1
        covered = len(items) - start
        if covered >= 3 * period and covered > best:
            best, best_period = covered, period
    return best, best_period


def _compression(body: str) -> Iterator[Finding]:
    """S6: too regular (valid JSON reaches 11.0). S11: too random, unless encoded data such as base64."""
    data = body.encode("utf-8", "replace")
    ratio = len(data) / len(zlib.compress(data))
    if len(data) >= 400 and ratio > 12:
        yield Finding("S6-compressible", f"compresses {ratio:.1f} to 1")
    words = body.split()
    if len(data) >= 800 and ratio < 1.42 and len(body) <= 16 * len(words):
        yield Finding("S11-incompressible", f"compresses only {ratio:.2f} to 1")


def _odd_characters(window: str) -> Iterator[Finding]:
    """S8: more than 0.5 % control, private, surrogate or unassigned characters."""
    odd = Counter({character: count for character, count in Counter(window).items() if _is_odd(character)})
    if odd.total() > 0.005 * len(window):
        shown = ", ".join(f"U+{ord(character):04X}" for character in sorted(odd)[:5])
        yield Finding("S8-control", f"{odd.total()} control or unassigned characters: {shown}")


def _is_odd(character: str) -> bool:
    # Emoji are assigned faster than Python's tables follow.
    if character in "\n\r\t" or 0x1F000 <= ord(character) <= 0x1FAFF:
        return False
    return unicodedata.category(character) in ("Cc", "Co", "Cn", "Cs")


@lru_cache(maxsize=4096)
def _script(character: str) -> str:
    """The script of a letter by its Unicode name, else ''. Kanji and kana are one script here."""
    if not character.isalpha() or unicodedata.category(character) == "Lm":
        return ""
    script = unicodedata.name(character, "").partition(" ")[0].partition("-")[0]
    return "CJK" if script in ("HIRAGANA", "KATAKANA", "BOPOMOFO", "IDEOGRAPHIC") else script


def _scripts(window: str, tokens: Sequence[str]) -> Iterator[Finding]:
    """S9: neighbouring letters change script (valid: up to 0.05 of them). Soup: neighbouring words do.

    Chinese, Japanese and Korean put Latin names beside their letters without a space, so that these changes
    count only where they are many.
    """
    letters = [_script(character) for character in window]
    pairs = [(one, two) for one, two in pairwise(letters) if one and two]
    changes = [{one, two} for one, two in pairs if one != two]
    odd = sum(change not in _NAMES_IN_EAST_ASIA for change in changes)
    if len(window) >= 200 and pairs and (odd >= 0.06 * len(pairs) or len(changes) >= 0.20 * len(pairs)):
        yield Finding(
            "S9-script-switch", f"{len(changes)} of {len(pairs)} neighbouring letters change script"
        )
    words = [script for token in tokens if (script := _script(token[0]))]
    jumps = sum(one != two for one, two in pairwise(words))
    if len(words) >= 30 and len(set(words)) >= 4 and jumps / len(words) >= 0.25:
        yield Finding(
            "vocabulary-soup", f"{len(set(words))} scripts, changing at {jumps} of {len(words)} words"
        )


def _prose(body: str, tokens: Sequence[str]) -> Iterator[Finding]:
    """Rules for running prose only; a real asterisk loop and a real word salad pass all others."""
    gap = max((len(match.group()) for match in re.finditer(r"\s+", body.strip())), default=0)
    if gap >= 30:
        yield Finding("prose-gap", f"{gap} white-space characters in a row")
    readable = sum(unicodedata.category(character)[0] in "LMN" for character in body)
    if len(body) >= 40 and readable / len(body) < 0.40:
        yield Finding("prose-symbols", f"only {readable / len(body):.0%} letters and digits")
    if len(tokens) >= 40:
        token, count = Counter(tokens).most_common(1)[0]
        if count / len(tokens) >= 0.30:
            yield Finding("prose-one-token", f"{excerpt(token, 20)!r} is {count} of {len(tokens)} tokens")
    yield from _script_drift(body)


def _script_drift(body: str) -> Iterator[Finding]:
    """Letters neither of the text's main script nor Latin: at least 5, and 0.5 % of all letters."""
    scripts = Counter(script for character in body if (script := _script(character)))
    main = {script for script, _count in scripts.most_common(1)} | {"LATIN"}
    foreign = Counter({script: count for script, count in scripts.items() if script not in main})
    if foreign.total() >= 5 and foreign.total() >= 0.005 * scripts.total():
        shown = ", ".join(f"{script.title()} x{count}" for script, count in foreign.most_common(4))
        yield Finding("prose-script-drift", f"letters of foreign scripts: {shown}")
