"""Logprobs of given tokens, the same from every engine that offers them, and NaN named in each of its faces.

SGLang scores by `/generate`, vLLM by `/v1/completions` with `prompt_logprobs`. A request scores at most
MOST_SCORED positions on SGLang, and only one is under way at a time.
"""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .chat import Tokens, read_logprob
from .client import Client
from .errors import HttpStatus, Malformed, NanLogits, NotTested
from .nan import NAN_STATUS, find_nan, may_be_nan
from .neutral import filler
from .probe_data import MOST_SCORED
from .server import Server
from .stats import regrets
from .text import excerpt

TOP = 5
# vLLM sends the logprobs of the whole prompt. 32,768 positions with 3 tokens each are some 9 MB.
LONG_PROMPT = 4096
TOP_OF_LONG = 3
NONCE_DIGITS = 8
# Equal beginnings of nonces may come from a cache; a real hit is longer.
LEAST_HIT = 16
# Statuses that say that a page is not there or not for us.
NOT_OFFERED = frozenset({403, 404, 405, 501})


@dataclass(frozen=True)
class Scored:
    """The logprobs of tokens, those of the likeliest in their places, and how much came from the cache.

    `likeliest` names the likeliest tokens, `gaps` says by how many nats each is ahead of the next.
    """

    logprobs: list[float]
    best: list[float]
    cached_tokens: int | None
    likeliest: list[int] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)

    @property
    def regrets(self) -> list[float]:
        return regrets(self.logprobs, self.best)

    @property
    def is_cold(self) -> bool:
        """Whether the server says that the prompt was computed anew."""
        return self.cached_tokens is not None and self.cached_tokens < LEAST_HIT

    @property
    def is_hit(self) -> bool:
        """Whether the server says that a part came from its cache."""
        return self.cached_tokens is not None and self.cached_tokens >= LEAST_HIT


@dataclass(frozen=True)
class Generated:
    """A greedy continuation. Acceptance is what speculative decoding reports, None without it."""

    ids: list[int]
    text: str
    accept_length: float | None
    first_acceptance: float | None


class Scorer(ABC):
    """Scores and continues token ids at temperature 0. What it spends is added to `tokens`.

    Every method raises RequestFailed, NotTested where the server does not offer the request, and NanLogits.
    """

    # Whether a scored request may read the prefix cache.
    reads_cache: bool

    def __init__(self, client: Client, server: Server, tokens: Tokens, filler_text: str | None) -> None:
        self.client = client
        self.server = server
        self.tokens = tokens
        self._filler_text = filler_text
        self._filler: list[int] = []
        self._namespaces: bool | None = None

    def tokenize(self, text: str, goes_on: bool = False) -> list[int]:
        """The ids of a text; `goes_on` leaves out what a tokenizer puts at the beginning."""
        body = {"model": self.server.model, "prompt": text, "add_special_tokens": not goes_on}
        reply = self._offered("/tokenize", body)
        ids = _counts(reply.get("tokens"))
        if not ids:
            raise Malformed(f"POST /tokenize: the reply lists no token ids: {excerpt(str(reply))!r}")
        return ids

    def filler(self, tokens: int) -> list[int]:
        """The ids of filler, at least so many; text that the profile gives is repeated."""
        while len(self._filler) < tokens:
            known = len(self._filler)
            if self._filler_text is None:
                # A word of the built-in sentences has 4 letters and more.
                self._filler = self.tokenize(filler(max(4000, 6 * tokens, 2 * 6 * len(self._filler))))
            else:
                self._filler += self.tokenize(self._filler_text, goes_on=bool(self._filler))
            if len(self._filler) <= known:
                raise Malformed(f"POST /tokenize: more text than before, and still only {known} tokens")
        return self._filler[:tokens]

    def nonce(self, then: str = ". ", goes_on: bool = False) -> list[int]:
        """The ids of a random number and what comes after it: a prompt that begins so is in no cache.

        Its first few tokens may be: those of the tokenizer's own, and the first digits of another nonce.
        """
        digits = f"{secrets.randbelow(10**NONCE_DIGITS):0{NONCE_DIGITS}}"
        return self.tokenize(f"{digits}{then}", goes_on)

    def honours_namespaces(self) -> bool:
        """Whether a cache key of a request's own keeps it from the cache of others, tried out.

        SGLang 0.5.9 takes `extra_key` and drops it: https://github.com/sgl-project/sglang/pull/23300
        """
        if self._namespaces is None:
            ids = self.nonce() + self.filler(64)
            self.score(ids, 32, fresh_key())
            other = self.score(ids, 32, fresh_key())
            self._namespaces = other.is_cold
        return self._namespaces

    def score(self, ids: Sequence[int], first: int, key: str | None = None) -> Scored:
        """The logprobs of `ids[first:]`; `first` is at least 1, as nothing comes before the first token."""
        body = self._scoring_body(ids, first, key)
        try:
            reply = self._offered(self._path, body)
        except HttpStatus as error:
            # A status that comes now and then says nothing about logprobs; it stays the error that it is.
            is_nan = may_be_nan(error) and self._answers(self._without_logprobs(body))
            if is_nan and not self._answers(body):
                raise NanLogits(NAN_STATUS.format(error.status), max(1, len(ids) - first)) from None
            raise
        return self._read_scored(reply, ids, first)

    @abstractmethod
    def generate(self, ids: Sequence[int], max_tokens: int, key: str | None = None) -> Generated:
        """The greedy continuation of ids, asked for without logprobs."""

    @property
    @abstractmethod
    def _path(self) -> str: ...

    @abstractmethod
    def _scoring_body(self, ids: Sequence[int], first: int, key: str | None) -> dict[str, object]: ...

    @abstractmethod
    def _without_logprobs(self, body: Mapping[str, object]) -> dict[str, object]: ...

    @abstractmethod
    def _read_scored(self, reply: Mapping[str, object], ids: Sequence[int], first: int) -> Scored: ...

    def _answers(self, body: Mapping[str, object]) -> bool:
        try:
            self.client.post(self._path, body)
        except HttpStatus:
            return False
        return True

    def _offered(self, path: str, body: Mapping[str, object]) -> dict[str, object]:
        try:
            reply = self.client.post(path, body)
        except HttpStatus as error:
            if error.status in NOT_OFFERED:
                raise NotTested(f"the server does not offer POST {path} (HTTP {error.status})") from None
            raise
        if not isinstance(reply, dict):
            raise Malformed(f"POST {path}: the reply is no object")
        return reply


class SglangScorer(Scorer):
    """SGLang's own interface."""

    reads_cache = True
    _path = "/generate"

    def generate(self, ids: Sequence[int], max_tokens: int, key: str | None = None) -> Generated:
        reply = self._offered(self._path, self._body(ids, max_tokens, key))
        info = _object(reply, "meta_info")
        made = _counts(reply.get("output_ids"))
        if made is None:
            raise Malformed("output_ids is no list of token ids")
        self._count(info)
        return Generated(made, str(reply.get("text") or ""), _accept_length(info), _first_acceptance(info))

    def _body(self, ids: Sequence[int], max_tokens: int, key: str | None) -> dict[str, object]:
        parameters = {"temperature": 0, "max_new_tokens": max_tokens}
        body: dict[str, object] = {"input_ids": list(ids), "sampling_params": parameters}
        return body | ({"extra_key": key} if key else {})

    def _scoring_body(self, ids: Sequence[int], first: int, key: str | None) -> dict[str, object]:
        if len(ids) - first > MOST_SCORED:
            raise ValueError(f"{len(ids) - first} positions are too many for one request")
        # One token is made as well: with speculation no token at all is asking for trouble, and its logprobs
        # are judged too. They come from the prefill, not from a draft.
        return self._body(ids, 1, key) | {
            "return_logprob": True,
            "logprob_start_len": first - 1,
            "top_logprobs_num": TOP,
            "return_text_in_logprobs": False,
        }

    def _without_logprobs(self, body: Mapping[str, object]) -> dict[str, object]:
        return {key: body[key] for key in ("input_ids", "sampling_params", "extra_key") if key in body}

    def _read_scored(self, reply: Mapping[str, object], ids: Sequence[int], first: int) -> Scored:
        info = _object(reply, "meta_info")
        self._count(info)
        # The first entry belongs to the token before `first` and is always null.
        values, tops = self._read_entries(info, "input", ids[first:], drop=1)
        leading = [_leading(top) for top in _list(info, "input_top_logprobs")[1 : 1 + len(values)]]
        made = info.get("output_token_logprobs")
        made_values, made_tops = self._read_entries(info, "output", None) if made else ([], [])
        _refuse_nan(values + made_values, tops + made_tops)
        cached = _count(info.get("cached_tokens"))
        return Scored(
            values,
            [max(top, default=math.nan) for top in tops],
            cached,
            [token for token, _gap in leading],
            [gap for _token, gap in leading],
        )

    def _read_entries(
        self, info: Mapping[str, object], which: str, ids: Sequence[int] | None, drop: int = 0
    ) -> tuple[list[float], list[list[float]]]:
        """The logprobs of tokens and of the likeliest in their places; the tokens must be the asked ones."""
        entries = _list(info, f"{which}_token_logprobs")[drop:]
        tops = _list(info, f"{which}_top_logprobs")[drop:]
        if not all(isinstance(entry, list) and len(entry) >= 2 for entry in entries):
            raise Malformed(f"an entry of {which}_token_logprobs is no logprob with its token")
        if ids is not None and [entry[1] for entry in entries] != list(ids):
            raise Malformed("the server scored other tokens than it was given")
        if len(tops) != len(entries) and ids is not None:
            raise Malformed(f"{which}_top_logprobs has {len(tops)} entries for {len(entries)} tokens")
        # Of made tokens not every version tells the likeliest.
        tops += [[]] * (len(entries) - len(tops))
        return [read_logprob(entry[0]) for entry in entries], [_read_top(top) for top in tops[: len(entries)]]

    def _count(self, info: Mapping[str, object]) -> None:
        prompt, completion = info.get("prompt_tokens"), info.get("completion_tokens")
        self.tokens.add(_count(prompt), _count(completion))


class VllmScorer(Scorer):
    """vLLM. Requests for prompt logprobs never read its prefix cache."""

    reads_cache = False
    _path = "/v1/completions"

    def generate(self, ids: Sequence[int], max_tokens: int, key: str | None = None) -> Generated:
        reply = self._offered(self._path, self._body(ids, max_tokens, key) | {"return_token_ids": True})
        choice = self._choice(reply)
        made = _counts(choice.get("token_ids"))
        if made is None:
            raise NotTested("this version of vLLM does not tell the ids of the tokens that it makes")
        return Generated(made, str(choice.get("text") or ""), None, None)

    def _body(self, ids: Sequence[int], max_tokens: int, key: str | None) -> dict[str, object]:
        body: dict[str, object] = {"model": self.server.model, "prompt": list(ids), "temperature": 0}
        return body | {"max_tokens": max_tokens} | ({"cache_salt": key} if key else {})

    def _scoring_body(self, ids: Sequence[int], first: int, key: str | None) -> dict[str, object]:
        return self._body(ids, 1, key) | {"prompt_logprobs": TOP if len(ids) <= LONG_PROMPT else TOP_OF_LONG}

    def _without_logprobs(self, body: Mapping[str, object]) -> dict[str, object]:
        return {key: value for key, value in body.items() if key != "prompt_logprobs"}

    def _read_scored(self, reply: Mapping[str, object], ids: Sequence[int], first: int) -> Scored:
        entries = _list(self._choice(reply), "prompt_logprobs")
        if len(entries) != len(ids):
            raise Malformed(f"prompt_logprobs has {len(entries)} entries for {len(ids)} tokens")
        values, tops, leading = [], [], []
        for token, entry in zip(ids[first:], entries[first:], strict=True):
            ranked = entry if isinstance(entry, dict) else {}
            found = {name: _logprob_of(item) for name, item in ranked.items()}
            values.append(found.get(str(token), math.nan))
            # The token itself stands there as well, however unlikely.
            tops.append(sorted(found.values(), reverse=True)[:TOP_OF_LONG])
            leading.append(_leading([[value, int(name)] for name, value in found.items() if name.isdigit()]))
        _refuse_nan(values, tops)
        return Scored(
            values,
            [max(top, default=math.nan) for top in tops],
            None,
            [token for token, _gap in leading],
            [gap for _token, gap in leading],
        )

    def _choice(self, reply: Mapping[str, object]) -> Mapping[str, object]:
        choices = _list(reply, "choices")
        usage = reply.get("usage")
        if isinstance(usage, dict):
            self.tokens.add(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))
        if not choices or not isinstance(choices[0], dict):
            raise Malformed("the reply holds no choice")
        return choices[0]


def make_scorer(client: Client, server: Server, tokens: Tokens, filler_text: str | None) -> Scorer:
    """The scorer for the engine. Raises NotTested where none may be used."""
    if server.why_not_score:
        raise NotTested(server.why_not_score)
    kind = VllmScorer if server.engine == "vllm" else SglangScorer
    return kind(client, server, tokens, filler_text)


def fresh_key() -> str:
    """The name of a cache namespace that nobody else uses."""
    return secrets.token_hex(8)


def _refuse_nan(values: Sequence[float], tops: Sequence[Sequence[float]]) -> None:
    found = find_nan(values, tops)
    if found:
        raise NanLogits(*found)


def _read_top(top: object) -> list[float]:
    if not isinstance(top, list):
        return []
    return [read_logprob(item[0] if isinstance(item, list) and item else None) for item in top]


def _leading(top: object) -> tuple[int, float]:
    """The likeliest of [logprob, token, ...] entries and its lead in nats; (-1, 0) where that is not told."""
    entries = (
        [item for item in top if isinstance(item, list) and len(item) >= 2] if isinstance(top, list) else []
    )
    told = [(read_logprob(item[0]), item[1]) for item in entries if _is_count(item[1])]
    ranked = sorted((one for one in told if math.isfinite(one[0])), key=lambda one: -one[0])
    if not ranked:
        return -1, 0.0
    return ranked[0][1], ranked[0][0] - ranked[1][0] if len(ranked) > 1 else 0.0


def _logprob_of(item: object) -> float:
    return read_logprob(item.get("logprob") if isinstance(item, dict) else None)


def _accept_length(info: Mapping[str, object]) -> float | None:
    """Tokens made in one verification step, on average."""
    value = read_logprob(info.get("spec_accept_length"))
    return value if math.isfinite(value) else None


def _first_acceptance(info: Mapping[str, object]) -> float | None:
    """The share of steps whose first draft was right: entry n counts the steps with n right drafts."""
    counts = _counts(info.get("spec_accept_histogram") or info.get("spec_correct_drafts_histogram"))
    return 1 - counts[0] / sum(counts) if counts and sum(counts) else None


def _object(reply: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = reply.get(name)
    if not isinstance(value, dict):
        raise Malformed(f"{name} is no object")
    return value


def _list(reply: Mapping[str, object], name: str) -> list[Any]:
    value = reply.get(name)
    if not isinstance(value, list):
        raise Malformed(f"{name} is no list")
    return value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1_000_000_000


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and _is_count(value) else None


def _counts(value: object) -> list[int] | None:
    """The value if it is a list of token ids or of other counts."""
    return value if isinstance(value, list) and all(_is_count(item) for item in value) else None
