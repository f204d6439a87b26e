"""Breaks sound replies, one random step at a time: wrong types, missing fields, odd numbers, torn bytes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

# No float holds it.
HUGE = 10**400
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3.5, -0.0, HUGE, -HUGE, 10**18, 1e308, 5e-324),
    *(float("nan"), float("inf"), float("-inf")),
    *("", " ", "0", "null", "\x00", "\ud800", "\udfff\ud800", "é" * 40, "!" * 600, "<think>", "x" * 5000),
    *([], {}, [None], [[]], [{}], {"": None}, {"choices": []}, {"error": {"message": "no"}}),
    *(
        [1] * 300,
        [[None, 1, None]],
        [[float("nan"), True]],
        {"logprob": "much"},
        {"content": [{"text": "OK"}]},
    ),
)


def odd_value(source: random.Random, depth: int = 2) -> Any:
    """Any JSON value, most often one that has broken readers before."""
    kind = source.randrange(4)
    if depth and kind == 0:
        return [odd_value(source, depth - 1) for _ in range(source.randrange(4))]
    if depth and kind == 1:
        return {
            str(odd_value(source, 0))[:20]: odd_value(source, depth - 1) for _ in range(source.randrange(4))
        }
    return source.choice(ODD_VALUES)


def mutated(source: random.Random, document: Any) -> Any:
    """A copy with one place in it changed: replaced, taken out, doubled, or wrapped."""
    if not isinstance(document, (dict, list)) or not document or source.randrange(8) == 0:
        return odd_value(source)
    if isinstance(document, dict):
        copy = dict(document)
        name = source.choice(sorted(copy))
        what = source.randrange(6)
        if what == 0:
            del copy[name]
        elif what == 1:
            copy[name] = odd_value(source)
        elif what == 2:
            copy[source.choice(("usage", "choices", "error", "meta_info", "x"))] = odd_value(source)
        else:
            copy[name] = mutated(source, copy[name])
        return copy
    items = list(document)
    place = source.randrange(len(items))
    what = source.randrange(6)
    if what == 0:
        del items[place]
    elif what == 1:
        items.insert(place, items[place])
    elif what == 2:
        items[place] = odd_value(source)
    else:
        items[place] = mutated(source, items[place])
    return items


def every_single_damage(document: Any) -> Iterator[Any]:
    """Every copy with one value of the document, at any depth, replaced by an odd one or taken out."""
    yield from ODD_VALUES
    if isinstance(document, dict):
        for name, value in document.items():
            yield {key: other for key, other in document.items() if key != name}
            for damaged in every_single_damage(value):
                yield {**document, name: damaged}
    elif isinstance(document, list):
        for place, value in enumerate(document):
            yield document[:place] + document[place + 1 :]
            for damaged in every_single_damage(value):
                yield [*document[:place], damaged, *document[place + 1 :]]


def garbled(source: random.Random, body: bytes) -> bytes:
    """The bytes cut off, changed, doubled, or others altogether."""
    damage: Callable[[], bytes] = source.choice(
        (
            lambda: body[: source.randrange(len(body) + 1)],
            lambda: body[source.randrange(len(body) + 1) :],
            lambda: (
                body.replace(
                    *source.choice(((b":", b""), (b'"', b"'"), (b"}", b"]"), (b"\n", b"\r"), (b"data", b"")))
                )
                if body
                else b""
            ),
            lambda: bytes(byte ^ 0x80 if source.randrange(40) == 0 else byte for byte in body),
            lambda: body * 2,
            lambda: b"",
            lambda: b"[" * 100_000,
            lambda: b"<html><body>502 Bad Gateway</body></html>",
            lambda: b"NaN",
            lambda: b"\xff\xfe" + body,
            lambda: b"9" * 5000,
        )
    )
    return damage()


def dumped(document: Any) -> bytes:
    """JSON as Python servers write it: NaN, Infinity and lone surrogates included."""
    return json.dumps(document).encode()


def event_stream(events: list[Any], done: bool) -> bytes:
    """Server-sent events."""
    lines = [b"data: " + dumped(event) + b"\n\n" for event in events]
    return b"".join(lines) + (b"data: [DONE]\n\n" if done else b"")
