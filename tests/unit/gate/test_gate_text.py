"""The garbage detector: nothing said against valid texts of many kinds, every gross kind of garbage found."""

from __future__ import annotations

import base64
import json
import random
import string
import time
from pathlib import Path

import pytest
from llm_gate.text import excerpt, find_garbage

DATA = Path(__file__).parents[2] / "data" / "text"
VALID_FILES = sorted((DATA / "valid").glob("*.txt"))
ENGLISH = (DATA / "valid" / "english.txt").read_text(encoding="utf-8")


def rules(text: str, completion_tokens: int | None = None, prose: bool = False) -> set[str]:
    return {finding.rule for finding in find_garbage(text, completion_tokens, prose)}


def _numbers(count: int, most: int) -> list[int]:
    generator = random.Random(7)
    return [generator.randint(0, most) for _ in range(count)]


def _python() -> str:
    functions = [
        f'def scale_{name}(values, factor={number}):\n    """Scale {name}."""\n'
        f"    if not values:\n        return []\n    return [value * factor for value in values]\n"
        for number, name in enumerate(["rows", "columns", "weights", "biases", "scores", "masks"], start=2)
    ]
    return "\n\n".join(functions)


VALID = {
    "nothing": "",
    "ok": "OK",
    "ok-with-stop": "OK.",
    "number": "323",
    "negative-number": "-17.5",
    "dashes": "---",
    "dots": "...",
    "seven-exclamation-marks": "Stop!!!!!!!",
    "ten-to-the-thirty": "1" + "0" * 30,
    "one-ninth": "0.1111111111111111",
    "repeated-digit": "11111111",
    "binary": "1010101010101010",
    "equation": "17*19 = 17*20 - 17 = 340 - 17 = 323",
    "latex": r"$$\frac{-b \pm \sqrt{b^2 - 4ac}}{2a}$$ so the answer is $\boxed{323}$",
    "python": _python(),
    "json": json.dumps(
        [{"id": number, "name": f"node-{number}", "ready": number % 3 == 0} for number in range(60)], indent=2
    ),
    "json-compact": json.dumps({f"key{number}": number * 37 % 101 for number in range(120)}),
    "csv": "time,node,tokens\n" + "\n".join(f"{i},n{i % 7},{n}" for i, n in enumerate(_numbers(120, 900))),
    "yaml": "\n".join(
        f"- name: task {n}\n  when: fact_{n} is defined\n  loop: [{n}, {n + 1}]" for n in range(40)
    ),
    "times-table": "\n".join(f"{a} x {b} = {a * b}" for a in range(1, 11) for b in range(1, 11)),
    "counting": " ".join(str(number) for number in range(1, 300)),
    "number-list": ", ".join(str(number) for number in _numbers(200, 9999)),
    "table-of-columns": "\n".join(
        f"{name:<40}{size:>10}" for name, size in zip("abcdefgh", range(8), strict=True)
    ),
    "heading": "Introduction\n============\n\nA short text follows here.",
    "rules-between-lines": "\n".join(
        f"{'-' * 60}\nsection {number}\n{'=' * 60}\nbody" for number in range(12)
    ),
    "closing-rule": "Results\nall checks passed\n" + "-" * 80,
    "box-table": "\n".join(
        [
            "┌──────────┬─────────┐",
            "│ backend  │ verdict │",
            "├──────────┼─────────┤",
            "│ cutlass  │ good    │",
            "│ cutedsl  │ bad     │",
            "└──────────┴─────────┘",
        ]
    ),
    "base64": base64.b64encode(random.Random(1).randbytes(1500)).decode(),
    "base64-lines": base64.encodebytes(random.Random(2).randbytes(1500)).decode(),
    "hex-dump": "\n".join(random.Random(n).randbytes(16).hex(" ") for n in range(40)),
    "uuids": "\n".join(random.Random(n).randbytes(16).hex() for n in range(40)),
    "html": "<ul>" + "".join(f"<li><s>{n}</s> <b>{n * 3}</b></li>" for n in range(40)) + "</ul>",
    "html-cut-in-a-struck-text": "<li><b>7</b></li><li><s>8</s></li><li><s>9",
    "quoted-list": ", ".join(f"'{word}'" for word in ENGLISH.split()[:60]),
    "zeros-at-the-end": ", ".join(map(str, _numbers(90, 99))) + ", 0" * 40,
    "ruler-of-words": "Signature below this line, please:\n" + "* " * 30,
    "progress-bar": f"{ENGLISH}\nloading " + "█" * 60 + " done",
    "table-of-contents": "\n".join(f"Chapter {n} {'.' * 60} {n * 7}" for n in range(1, 12)),
    "one-cut-character": "A good answer ends here \ufffd",
    "new-emoji": "Look: \U0001fae8\U0001fadf",
    "greek-letters": "The angle Θ is twice the angle β, and Δ is their difference; Σ is their sum.",
    "sparkline": "load ▁▂▃▄▅▆▇█▇▆▅▄▃▂▁ over the day",
    "eight-languages": "\n".join(
        path.read_text(encoding="utf-8")[:150] for path in VALID_FILES if path.stem.isalpha()
    ),
}


@pytest.mark.parametrize("text", VALID.values(), ids=VALID.keys())
def test_valid_text_is_clean(text: str) -> None:
    assert find_garbage(text) == []


@pytest.mark.parametrize("path", VALID_FILES, ids=lambda path: path.stem)
def test_valid_file_is_clean(path: Path) -> None:
    assert find_garbage(path.read_text(encoding="utf-8"), completion_tokens=300) == []


@pytest.mark.parametrize(
    "path",
    [path for path in VALID_FILES if path.stem not in ("kernel", "markdown", "shell")],
    ids=lambda path: path.stem,
)
def test_valid_prose_is_clean_as_prose(path: Path) -> None:
    assert find_garbage(path.read_text(encoding="utf-8"), prose=True) == []


GARBAGE = {
    "eight-marks": ("!!!!!!!!", "whole-loop"),
    "a-token-limit-of-marks": ("!" * 512, "whole-loop"),
    "marks-with-spaces": ("! " * 20, "whole-loop"),
    "pluses": ("+" * 64, "S1-run"),
    "slashes": ("/" * 30, "whole-loop"),
    "cyrillic-token": ("при" * 20, "whole-loop"),
    "cjk-character": ("的" * 32, "whole-loop"),
    "emoji": ("😂" * 16, "whole-loop"),
    "one-word": ("the " * 12, "whole-loop"),
    "one-digit": ("3" * 80, "S1-run"),
    "two-digits": ("32" * 60, "S4-character-loop"),
    "unknown-tokens": ("<unk>" * 10, "special-token"),
    "end-tokens": ("</s></s></s></s>", "special-token"),
    "chat-token": ("OK<|im_end|>", "special-token"),
    "end-of-text": ("The answer is 323.<|endoftext|>Human: what else", "special-token"),
    "fullwidth-token": ("<\uff5cbegin\u2581of\u2581sentence\uff5c>" * 4, "special-token"),
    "mask": ("[gMASK] 323", "special-token"),
    "byte-token": ("caf<0xC3><0xA9>", "special-token"),
    "turn": ("323<end_of_turn>", "special-token"),
    "think-tags": ("<think>17*19</think>323", "think-tag"),
    "closing-think-tag": ("17*20-17\n</think>\n\n323", "think-tag"),
    "answer-then-marks": ("OK" + "!" * 60, "S1-run"),
    "prose-then-marks": (ENGLISH + "!" * 400, "S1-run"),
    "newlines": ("Yes." + "\n" * 300, "S1-run"),
    "thirty-two-marks-after-prose": (ENGLISH + "!" * 32, "S1-run"),
    "word-loop-after-prose": (ENGLISH + " the" * 16, "tail-loop"),
    "sentence-loop-after-prose": (
        ENGLISH + " Let me check this answer again, carefully. " * 6,
        "phrase-loop",
    ),
    "paragraph-loop": ((ENGLISH + "\n\n") * 5, "phrase-loop"),
    "asterisks-after-prose": (ENGLISH + " ** x" + " **" * 40, "tail-loop"),
    "leading-token": ("<s> The answer is 323.", "special-token"),
    "only-rules": ("OK\n" + f"{'-' * 30}\n" * 30, "S4-character-loop"),
    "phrase-loop": ("Wait, let me check that again. " * 40, "S3-token-loop"),
    "prose-then-loop": (ENGLISH + "and then and so " * 60, "S3-token-loop"),
    "few-words": (" ".join(random.Random(3).choices(["no", "yes"], k=1200)), "S5-few-phrases"),
    "one-token-mostly": (
        " ".join(random.Random(4).choices(["!", "a", "b", "c"], [8, 1, 1, 1], k=300)),
        "S10-one-token",
    ),
    "long-period": (
        ("".join(random.Random(5).choices(string.ascii_letters + " ", k=90))) * 40,
        "S6-compressible",
    ),
    "random-characters": (
        "".join(
            chr(random.Random(n).choice((n % 90 + 33, n * 7919 % 0x4000 + 0x100))) + " " * (n % 5 == 0)
            for n in range(900)
        ),
        "S11-incompressible",
    ),
    "control-characters": ("ab\x00\x01cd\x02 and so on", "S8-control"),
    "private-use": ("text \ue000\ue001\ue002 text", "S8-control"),
    "lone-surrogate": ("text \ud800 text", "S8-control"),
    "fullwidth-mix": (
        "".join(chr(0xFF41 + n % 26) + chr(97 + n * 7 % 26) for n in range(120)),
        "S9-script-switch",
    ),
}


@pytest.mark.parametrize(("text", "rule"), GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_found_by_its_rule(text: str, rule: str) -> None:
    assert rule in rules(text)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("multilingual_soup", "S9-script-switch"),
        ("spaced_soup", "vocabulary-soup"),
        ("replacement", "S7-replacement"),
        ("word_loop", "S3-token-loop"),
        ("reasoning_loop", "phrase-loop"),
    ],
)
def test_garbage_file_is_found_by_its_rule(name: str, rule: str) -> None:
    assert rule in rules((DATA / "garbage" / f"{name}.txt").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        pytest.param((DATA / "garbage" / "asterisk_loop.txt").read_text(), "prose-one-token", id="asterisks"),
        pytest.param(
            (DATA / "garbage" / "drift.txt").read_text(encoding="utf-8"), "prose-script-drift", id="drift"
        ),
        pytest.param("It was a dark" + " " * 40 + "night.", "prose-gap", id="gap"),
        pytest.param("{[(<=>)]}; " * 3 + "a1 b2 {} [] () ;; :: ==", "prose-symbols", id="symbols"),
    ],
)
def test_prose_rules_apply_to_prose_only(text: str, rule: str) -> None:
    assert rule in rules(text, prose=True)
    assert rule not in rules(text)


@pytest.mark.parametrize(
    ("tokens", "found"), [(None, set()), (15, set()), (16, {"S2-blank"}), (512, {"S2-blank"})]
)
def test_blank_text_counts_only_with_many_tokens(tokens: int | None, found: set[str]) -> None:
    assert rules(" \n", completion_tokens=tokens) == found


def test_a_loop_in_the_middle_of_a_long_text_is_found() -> None:
    text = ENGLISH * 1 + " so it goes" * 300 + "".join(VALID["python"])
    assert "S3-token-loop" in rules(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ENGLISH * 200, id="prose"),
        pytest.param(_python() * 100, id="code"),
        pytest.param("!" * 100_000, id="one-character"),
        pytest.param("<|" * 50_000, id="almost-a-token"),
        pytest.param("a" + " " * 99_998 + "b", id="a-gap"),
        pytest.param(" \n" * 50_000, id="blank-lines"),
        pytest.param("".join(chr(33 + n * 7919 % 90) for n in range(100_000)), id="noise"),
        pytest.param("ab" * 25_000 + "ba" * 25_000, id="two-loops"),
        pytest.param("---\n" * 25_000, id="rules"),
    ],
)
def test_a_long_text_takes_less_than_a_second(text: str) -> None:
    assert len(text) >= 50_000
    began = time.process_time()
    find_garbage(text, completion_tokens=30_000, prose=True)
    assert time.process_time() - began < 1


def test_of_a_huge_text_beginning_and_end_are_judged() -> None:
    began = time.process_time()
    noise = "".join(chr(33 + n * 7919 % 90) for n in range(300_000))
    assert "S1-run" in rules(noise + "!" * 2_000_000)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("text", "shown"),
    [("OK", "OK"), ("a\nb\x00", "a\\nb\\x00"), ("\ud800", "\\ud800"), ("x" * 200, "x" * 120 + "...")],
    ids=["plain", "control", "surrogate", "long"],
)
def test_an_excerpt_is_one_printable_line(text: str, shown: str) -> None:
    assert excerpt(text) == shown
