"""A toy language model with a prefix cache for the stand-in. It counts, copies, knows texts, can be broken.

It speaks SGLang's `/generate` and `/tokenize` and vLLM's `/v1/completions`. A fault is told the circumstances
of each token and says whether that token comes out wrong.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

PIECE = re.compile(r"\d+| ?[A-Za-z]+|\s+|[^\w\s]\s*|\w")
SEPARATOR = ", "
# Likeliest to fifth of a sure token, of a token that the model has no idea of, and of a broken one.
SURE = [-0.01, -5.0, -6.0, -7.0, -8.0]
UNSURE = [-1.0, -3.0, -4.0, -4.5, -5.0]
BROKEN = [-0.5, -2.0, -3.0, -4.0, -5.0]
FLAT = [-11.77] * 5
MEMORY = (30, 10, 6, 3)
END = 0


@dataclass(frozen=True)
class Circumstances:
    """How a token is computed: by prefill of so many rows or by decoding, where, beside how many others."""

    phase: Literal["prefill", "decode"]
    position: int
    rows: int
    cached: int
    concurrency: int
    scored: bool


Fault = Callable[[Circumstances], bool]


@dataclass
class ToyModel:
    """The model with its cache. `nan` and `fault` break tokens, `nan_face` says how NaN shows."""

    texts: list[str] = field(default_factory=list)
    namespaces: bool = False
    reads_cache: bool = True
    fault: Fault | None = None
    nan: Fault | None = None
    nan_face: Literal["500", "null", "flat"] = "null"
    accept_length: Callable[[int], float] | None = None
    pause: float = 0.0
    most_scored: int = 0
    flushed: int = 0
    _words: list[str] = field(default_factory=lambda: ["!"])
    _ids: dict[str, int] = field(default_factory=lambda: {"!": END})
    _memory: dict[tuple[int, ...], int] = field(default_factory=dict)
    _cache: dict[str | None, list[list[int]]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _running: int = 0

    def learn(self, text: str) -> None:
        """Know a text by heart."""
        self.texts.append(text)
        ids = self.tokenize(text)
        for size in MEMORY:
            for end in range(min(size, 3), len(ids)):
                self._memory.setdefault(tuple(ids[max(0, end - size) : end]), ids[end])

    def tokenize(self, text: str) -> list[int]:
        with self._lock:
            for piece in PIECE.findall(text):
                if piece not in self._ids:
                    self._ids[piece] = len(self._words)
                    self._words.append(piece)
            return [self._ids[piece] for piece in PIECE.findall(text)]

    def text_of(self, ids: Sequence[int]) -> str:
        return "".join(self._words[token] for token in ids if token != END)

    def expected(self, before: Sequence[int]) -> int | None:
        """The token that must come next: a number's successor, a known text's, a repeated pair's."""
        last = [self._words[token] for token in before[-2:]]
        if len(last) == 2 and last[1] == SEPARATOR and last[0].isdigit():
            return self.tokenize(str(int(last[0]) + 1))[0]
        if len(last) == 2 and last[1].isdigit() and last[0] == SEPARATOR:
            return self.tokenize(SEPARATOR)[0]
        for size in MEMORY:
            known = self._memory.get(tuple(before[-size:]))
            if known is not None:
                return known
        # Copying: what came after the last two words the time before.
        for place in range(len(before) - 3, 0, -1):
            if list(before[place - 1 : place + 1]) == list(before[-2:]):
                return before[place + 1]
        return None

    def prefill(
        self, ids: list[int], key: str | None, first: int | None
    ) -> tuple[int, list[tuple[float, list[float], int]], bool]:
        """How much came from the cache, the logprobs and likeliest from `first` on, whether NaN was seen."""
        with self._lock:
            cached = self._cached(ids, key, len(ids) - 1 if first is None else first - 1)
            self._store(ids, key)
            entries = []
            seen = False
            for position in range(len(ids) if first is None else first, len(ids)):
                at = Circumstances("prefill", position, len(ids) - cached, cached, self._running, True)
                entry, nan = self._entry(ids[:position], ids[position], at)
                entries.append(entry)
                seen |= nan
            return cached, entries, seen

    def decode(self, ids: list[int], most: int, key: str | None) -> tuple[list[int], int]:
        """The greedy continuation, and how many requests ran beside it at most, with it."""
        with self._lock:
            self._running += 1
        time.sleep(self.pause)
        try:
            with self._lock:
                concurrency = self._running
                cached = self._cached(ids, key, len(ids) - 1)
                made: list[int] = []
                while len(made) < most and (not made or made[-1] != END):
                    at = Circumstances("decode", len(ids) + len(made), 1, cached, concurrency, False)
                    token = self.expected([*ids, *made])
                    if self.nan and self.nan(at):
                        made.append(END)
                        made += [END] * (most - len(made))
                        break
                    if self.fault and self.fault(at):
                        token = self.tokenize("wrong ")[0]
                    made.append(END if token is None else token)
                self._store([*ids, *made], key)
                return made, concurrency
        finally:
            with self._lock:
                self._running -= 1

    def _entry(
        self, before: list[int], token: int, at: Circumstances
    ) -> tuple[tuple[float, list[float], int], bool]:
        if self.nan and self.nan(at):
            flat = self.nan_face == "flat"
            return ((FLAT[0], FLAT, END) if flat else (float("nan"), [float("nan")] * 5, END)), True
        if self.fault and self.fault(at):
            return (-9.0, BROKEN, self.tokenize("wrong ")[0]), False
        expected = self.expected(before)
        if expected is None:
            return (-3.0, UNSURE, END), False
        return ((SURE[0] if token == expected else -12.0), SURE, expected), False

    def _cached(self, ids: list[int], key: str | None, most: int) -> int:
        longest = 0
        for known in self._cache.get(key if self.namespaces else None, []):
            same = 0
            for one, other in zip(ids[:most], known, strict=False):
                if one != other:
                    break
                same += 1
            longest = max(longest, same)
        return longest

    def _store(self, ids: list[int], key: str | None) -> None:
        self._cache.setdefault(key if self.namespaces else None, []).append(list(ids))

    # The interfaces: a status and a document.

    def answer_tokenize(self, body: dict[str, Any]) -> tuple[int, object]:
        ids = self.tokenize(body["prompt"])
        return 200, {"tokens": ids, "count": len(ids), "max_model_len": 4096}

    def answer_generate(self, body: dict[str, Any]) -> tuple[int, object]:
        """SGLang's own interface."""
        ids, key, most = body["input_ids"], body.get("extra_key"), body["sampling_params"]["max_new_tokens"]
        if not body.get("return_logprob"):
            made, concurrency = self.decode(ids, most, key)
            info = {"prompt_tokens": len(ids), "completion_tokens": len(made), "cached_tokens": 0}
            if self.accept_length:
                info |= {"spec_accept_length": self.accept_length(concurrency), "spec_verify_ct": 1}
            return 200, {"text": self.text_of(made), "output_ids": made, "meta_info": info}
        start = body["logprob_start_len"]
        self.most_scored = max(self.most_scored, len(ids) - start - 1)
        cached, entries, nan = self.prefill(ids, key, start + 1)
        if nan and self.nan_face == "500":
            return 500, "Internal Server Error"
        info = {
            "prompt_tokens": len(ids),
            "completion_tokens": 1,
            "cached_tokens": cached,
            "input_token_logprobs": [[None, ids[start], None]]
            + [[value, token, None] for (value, *_), token in zip(entries, ids[start + 1 :], strict=True)],
            "input_top_logprobs": [None] + [_ranked(top, likeliest) for _value, top, likeliest in entries],
            "output_token_logprobs": [[-0.1, 7, None]],
            "output_top_logprobs": [[[value, 7, None] for value in SURE]],
        }
        return 200, {"text": "", "output_ids": [7], "meta_info": info}

    def answer_completion(self, body: dict[str, Any]) -> tuple[int, object]:
        """vLLM's."""
        ids = body["prompt"]
        usage = {"prompt_tokens": len(ids), "completion_tokens": body["max_tokens"]}
        if "prompt_logprobs" not in body:
            made, _concurrency = self.decode(ids, body["max_tokens"], None)
            choice = {"text": self.text_of(made), "token_ids": made, "finish_reason": "stop"}
            return 200, {"choices": [choice], "usage": usage}
        _cached, entries, nan = self.prefill(ids, None, 1)
        if nan and self.nan_face == "500":
            return 500, {"error": {"message": "Out of range float values are not JSON compliant: nan"}}
        listed: list[dict[str, Any] | None] = [None]
        for (value, top, likeliest), token in zip(entries, ids[1:], strict=True):
            others = {str(item[1]): {"logprob": item[0]} for item in _ranked(top, likeliest)}
            listed.append({**others, str(token): {"logprob": value, "rank": 1}})
        return 200, {"choices": [{"text": "", "prompt_logprobs": listed}], "usage": usage}


def _ranked(top: Sequence[float], likeliest: int) -> list[list[Any]]:
    """The likeliest tokens as SGLang lists them; all but the first are made up."""
    return [[value, 1_000_000 + rank if rank else likeliest, None] for rank, value in enumerate(top)]
