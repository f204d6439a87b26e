"""HTTP to the server under test: every request ends within its time, whatever the server does.

A read timeout alone does not do that: a server that drips one byte a second never trips it, and a name
look-up has no timeout at all. So each request runs in a thread, and the caller stops waiting when the time
is up.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import requests
import urllib3

from .errors import (
    Dropped,
    HttpStatus,
    Malformed,
    NotJson,
    RequestFailed,
    TimedOut,
    TooLarge,
    Unreachable,
    UsageError,
)
from .text import excerpt

# A gate answer of 4,096 tokens with logprobs stays under 4 MiB.
LARGEST_REPLY = 16 * 1024 * 1024
PIECE = 65536
_STREAM_END = re.compile(rb"(?:^|\n)data: ?\[DONE\]")


class Deadline:
    """A moment that all work must end before, `seconds` after it was made."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def remaining(self) -> float:
        """Seconds left, 0 or less once it has passed."""
        return self._end - time.monotonic()


@dataclass(frozen=True)
class Event:
    """One data line of an event stream: when it arrived (monotonic seconds) and its JSON object."""

    at: float
    data: dict[str, object]


@dataclass(frozen=True)
class Stream:
    """A whole event stream: when the request was sent, its events, and whether `[DONE]` ended it."""

    sent: float
    events: list[Event]
    done: bool


@dataclass
class _Transfer:
    """What a request's thread has brought so far; the waiting caller reads it when the time is up."""

    sent: float = 0.0
    status: int | None = None
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    size: int = 0
    failure: Exception | None = None
    given_up: threading.Event = field(default_factory=threading.Event)

    def body(self) -> bytes:
        return b"".join(piece for _at, piece in self.pieces)


def check_url(url: str) -> str:
    """The server's base address without a closing slash or `/v1`. Raises UsageError."""
    try:
        parts = urlsplit(url)
        _port = parts.port
    except ValueError as error:
        raise UsageError(f"url: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise UsageError("url: holds a user name or password; give the key as a file instead")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"url: must be http://HOST[:PORT] or https://HOST[:PORT], not {excerpt(url)!r}")
    if parts.query or parts.fragment or re.search(r"\s", url):
        raise UsageError(f"url: must hold no query, fragment or white space: {excerpt(url)!r}")
    return url.rstrip("/").removesuffix("/v1")


def check_api_key(key: str, source: str) -> str:
    """The key without surrounding white space. Raises UsageError, which never shows the key."""
    stripped = key.strip()
    if not re.fullmatch(r"[\x21-\x7e]+", stripped):
        raise UsageError(f"{source}: must hold one key of printable ASCII characters")
    return stripped


class Client:
    """Talks to one server.

    Every method raises a RequestFailed if no usable reply came within `request_timeout_s` seconds or before
    the deadline. Environment proxies and .netrc are ignored, since they would divert even loopback. Redirects
    are not followed, so the key reaches no other host. Threads may share a client.
    """

    def __init__(
        self, url: str, deadline: Deadline, request_timeout_s: float, api_key: str | None = None
    ) -> None:
        self.url = check_url(url)
        self.deadline = deadline
        self.request_timeout_s = request_timeout_s
        self.requests = 0
        self._api_key = api_key
        self._lock = threading.Lock()

    def again(self) -> Client:
        """Another client for the same server and deadline, which counts its own requests."""
        return Client(self.url, self.deadline, self.request_timeout_s, self._api_key)

    def get(self, path: str) -> object:
        """The JSON document at a path."""
        return self._json(self._exchange("GET", path, None, self.request_timeout_s), f"GET {path}")

    def post(self, path: str, body: Mapping[str, object]) -> object:
        """The JSON reply to a JSON body."""
        return self._json(self._exchange("POST", path, body, self.request_timeout_s), f"POST {path}")

    def stream(self, path: str, body: Mapping[str, object]) -> Stream:
        """The whole event stream that answers a JSON body."""
        transfer = self._exchange("POST", path, body, self.request_timeout_s)
        self._expect_200(transfer, f"POST {path}")
        return read_events(transfer.sent, transfer.pieces, self._shown(transfer.body()))

    def look(self, path: str, seconds: float, method: str = "GET") -> int:
        """The HTTP status of a path, whatever it is: a sign of life."""
        transfer = self._exchange(method, path, None, min(seconds, self.request_timeout_s))
        assert transfer.status is not None
        return transfer.status

    def _json(self, transfer: _Transfer, request: str) -> object:
        self._expect_200(transfer, request)
        try:
            reply: object = json.loads(transfer.body().decode("utf-8"))
        except (ValueError, RecursionError):
            raise NotJson(f"{request}: the reply is not JSON: {self._shown(transfer.body())!r}") from None
        return reply

    def _expect_200(self, transfer: _Transfer, request: str) -> None:
        if transfer.status == 200:
            return
        assert transfer.status is not None
        text = self._hide_key(transfer.body().decode("utf-8", "replace"))
        shown = f": {excerpt(text)}" if text.strip() else ""
        raise HttpStatus(transfer.status, text, f"{request}: HTTP {transfer.status}{shown}")

    def _shown(self, body: bytes) -> str:
        return excerpt(self._hide_key(body[:4096].decode("utf-8", "replace")))

    def _hide_key(self, text: str) -> str:
        return text.replace(self._api_key, "***") if self._api_key else text

    def _exchange(
        self, method: str, path: str, body: Mapping[str, object] | None, seconds: float
    ) -> _Transfer:
        """Run one request in a thread and wait. A thread given up ends at its next piece or read timeout."""
        request = f"{method} {path}"
        remaining = self.deadline.remaining()
        if remaining <= 0:
            raise TimedOut(
                f"{request}: not sent, the run's deadline of {self.deadline.seconds:g} s has passed"
            )
        limit = min(seconds, remaining)
        transfer = _Transfer()
        with self._lock:
            self.requests += 1
        thread = threading.Thread(target=self._work, args=(transfer, method, path, body, limit), daemon=True)
        thread.start()
        thread.join(limit)
        if thread.is_alive():
            transfer.given_up.set()
            raise TimedOut(self._timeout_text(request, transfer, limit))
        if isinstance(transfer.failure, TimedOut):
            raise TimedOut(self._timeout_text(request, transfer, limit))
        if isinstance(transfer.failure, RequestFailed):
            raise type(transfer.failure)(self._hide_key(f"{request}: {transfer.failure}"))
        if transfer.failure is not None:
            raise transfer.failure
        return transfer

    def _timeout_text(self, request: str, transfer: _Transfer, limit: float) -> str:
        if transfer.status is None:
            came = "no reply"
        elif transfer.size == 0:
            came = f"HTTP {transfer.status} and its headers, then nothing,"
        else:
            came = f"HTTP {transfer.status} and {transfer.size} bytes of an unfinished reply"
        deadline = (
            ", the run's deadline"
            if limit < self.request_timeout_s and self.deadline.remaining() < 0.1
            else ""
        )
        return f"{request}: {came} after {limit:.3g} s{deadline}"

    def _work(
        self, transfer: _Transfer, method: str, path: str, body: Mapping[str, object] | None, limit: float
    ) -> None:
        headers = {"Accept-Encoding": "identity", "User-Agent": "smokestack-llm-gate"}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        try:
            with requests.Session() as session:
                session.trust_env = False
                transfer.sent = time.monotonic()
                with session.request(
                    method,
                    self.url + path,
                    json=body,
                    headers=headers,
                    timeout=(limit, limit),
                    allow_redirects=False,
                    stream=True,
                ) as response:
                    transfer.status = response.status_code
                    _receive(response.raw, transfer)
        except Exception as error:
            transfer.failure = _as_request_failed(error)


def _receive(raw: urllib3.HTTPResponse, transfer: _Transfer) -> None:
    """Collect the body as it arrives, up to its end, to `[DONE]`, or until nobody waits any more."""
    tail = b""
    while piece := raw.read1(PIECE):
        transfer.pieces.append((time.monotonic(), piece))
        transfer.size += len(piece)
        if transfer.size > LARGEST_REPLY:
            raise TooLarge(f"the reply is longer than {LARGEST_REPLY} bytes")
        # Some servers keep the connection open after the end of the stream.
        if transfer.given_up.is_set() or _STREAM_END.search(tail + piece):
            return
        tail = (tail + piece)[-16:]


def _as_request_failed(error: Exception) -> Exception:
    """Turn the many exceptions of requests, urllib3 and sockets into the gate's few; a bug stays a bug."""
    root: BaseException = error
    while root.__context__ is not None:
        root = root.__context__
    reason = excerpt(str(root) or type(root).__name__, 200)
    if isinstance(error, (requests.Timeout, urllib3.exceptions.TimeoutError)):
        return TimedOut(reason)
    if isinstance(error, requests.exceptions.SSLError):
        return Unreachable(f"TLS: {reason}")
    # A connection that broke comes wrapped as well; what never came about is no ProtocolError.
    broke = bool(error.args) and isinstance(error.args[0], urllib3.exceptions.ProtocolError)
    if isinstance(error, requests.ConnectionError) and not broke:
        return Unreachable(f"no connection: {reason}")
    if isinstance(error, (requests.RequestException, urllib3.exceptions.HTTPError, OSError)):
        return Dropped(f"the connection broke: {reason}")
    return error


def read_events(sent: float, pieces: list[tuple[float, bytes]], shown: str) -> Stream:
    """Read server-sent events out of timed pieces. `shown` is the excerpt for the error when there are none.

    Raises NotJson or Malformed.
    """
    events: list[Event] = []
    for at, line in _lines(pieces):
        if not line.startswith(b"data:"):
            continue
        payload = line.removeprefix(b"data:").strip()
        if payload == b"[DONE]":
            return Stream(sent, events, done=True)
        try:
            data = json.loads(payload.decode("utf-8"))
        except (ValueError, RecursionError):
            raise NotJson(f"event {len(events) + 1} of the stream is not JSON") from None
        if not isinstance(data, dict):
            raise Malformed(f"event {len(events) + 1} of the stream is not a JSON object")
        events.append(Event(at, data))
    if not events:
        raise Malformed(f"the reply is no event stream: {shown!r}")
    return Stream(sent, events, done=False)


def _lines(pieces: list[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """Complete lines, each with the arrival time of its last byte."""
    rest: list[bytes] = []
    for at, piece in pieces:
        *complete, last = piece.split(b"\n")
        for line in complete:
            yield at, b"".join([*rest, line]).rstrip(b"\r")
            rest = []
        rest.append(last)
    if rest:
        yield pieces[-1][0], b"".join(rest)
