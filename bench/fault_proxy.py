"""A proxy that spoils what a real LLM server says, in one named way.

It stands between a client and a server and passes everything on as it comes, piece by piece. A fault says
which requests it touches and how: it refuses them, changes them on their way to the server, changes the
answer, its logprobs, the events of a stream, or how the bytes travel. An answer that is changed is collected
first and sent on in as many pieces and at the pace that the server had.

The rest of the server stays as it is. So a fault in the text leaves logprobs sound, which makes it harder to
see than the real one.
"""

from __future__ import annotations

import copy
import hashlib
import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import urlsplit

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
GENERATE = "/generate"
GENERATING = (CHAT, COMPLETIONS, GENERATE)
# Streams of an OpenAI-compatible server end with this instead of a JSON event.
DONE = "[DONE]"
# Upstream gets this long for one reply, seconds.
PATIENCE_S = 300.0

Document = dict[str, Any]
StreamEvent = Document | Literal["[DONE]"]


@dataclass(frozen=True)
class Asked:
    """One request.

    `number` counts the requests for tokens from 1. `repeats` says how often the same prompt was asked before,
    `peak` how many requests for tokens ran at the same time at most while this one did, itself included.
    """

    method: str
    path: str
    body: Mapping[str, Any] = field(default_factory=dict)
    number: int = 1
    repeats: int = 0
    peak: int = 1
    seed: int = 0

    @property
    def generates(self) -> bool:
        """Whether tokens are asked for, or their logprobs."""
        return self.method == "POST" and self.path in GENERATING

    @property
    def streams(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def wants_logprobs(self) -> bool:
        return any(self.body.get(name) for name in ("return_logprob", "logprobs", "prompt_logprobs"))

    @property
    def only_scores(self) -> bool:
        """Whether given tokens are to be scored: SGLang is asked for one token at most, and its logprobs."""
        return self.path == GENERATE and self.wants_logprobs and self.max_tokens <= 1

    @property
    def thinks(self) -> bool:
        """Whether a chat request leaves thinking on."""
        switches = self.body.get("chat_template_kwargs") or {}
        return self.path == CHAT and switches.get("enable_thinking") is not False

    @property
    def max_tokens(self) -> int:
        """The most tokens that may be made."""
        parameters = self.body.get("sampling_params") or {}
        for value in (
            parameters.get("max_new_tokens"),
            self.body.get("max_completion_tokens"),
            self.body.get("max_tokens"),
        ):
            if isinstance(value, int):
                return value
        return 128

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        return [message for message in self.body.get("messages") or [] if isinstance(message, Mapping)]

    @property
    def rng(self) -> random.Random:
        """Chance that is the same for the same request of a run."""
        return random.Random(f"{self.seed} {self.number}")


@dataclass(frozen=True)
class Answer:
    """What a server generated. `ids` only where it tells them; None for what there is not."""

    content: str | None
    reasoning: str | None = None
    tool_calls: tuple[Document, ...] = ()
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Place:
    """Where a logprob belongs: its position in the prompt, or among the generated tokens."""

    position: int
    generated: bool
    prompt_tokens: int | None
    cached_tokens: int

    @property
    def rows(self) -> int | None:
        """How many tokens of the prompt were computed, the M of its matrix multiplications."""
        return None if self.prompt_tokens is None else self.prompt_tokens - self.cached_tokens


@dataclass(frozen=True)
class Refusal:
    """A reply that the server is not even asked for."""

    status: int
    document: Document


@dataclass(frozen=True)
class Wire:
    """How replies to requests for tokens travel.

    `hang` stops after the headers or in the middle until the client gives up, beginning with the request
    `hang_from`; `drip_s` waits before every byte; `lump` sends a stream at once when it is complete; after
    `dies_after` requests nobody listens.
    """

    hang: Literal["", "headers", "middle"] = ""
    hang_from: int = 1
    drip_s: float = 0.0
    lump: bool = False
    dies_after: int | None = None


ChangeLogprob = Callable[[float, object, Place, Asked], float | None]


@dataclass(frozen=True)
class Fault:
    """One way to go wrong; what is None or empty is left alone. `source` is where users met it.

    `refuse` comes before the server is asked, `forward` changes what it is asked. `answer` changes a
    generated answer, streamed or not, `logprob` one logprob of a token (of those likeliest in its place as
    well), `document` any reply that is one JSON object, and `events` the events of a stream. `if_missed`
    says why a good check may let it through.
    """

    name: str
    summary: str
    source: str
    refuse: Callable[[Asked], Refusal | None] | None = None
    forward: Callable[[Document, Asked], Document] | None = None
    answer: Callable[[Answer, Asked], Answer] | None = None
    logprob: ChangeLogprob | None = None
    document: Callable[[Document, Asked], Document] | None = None
    events: Callable[[Iterator[StreamEvent], Asked], Iterator[StreamEvent]] | None = None
    wire: Wire = Wire()
    if_missed: str = ""


NO_FAULT = Fault("none", "everything as it is", "")


# --- answers in documents ------------------------------------------------------------------------


def read_answer(document: Mapping[str, Any], path: str) -> Answer:
    """The answer in a reply that is no stream."""
    if path == GENERATE:
        info = document.get("meta_info") or {}
        finish = info.get("finish_reason")
        ids = document.get("output_ids")
        return Answer(
            content=document.get("text"),
            finish_reason=finish.get("type") if isinstance(finish, Mapping) else None,
            prompt_tokens=info.get("prompt_tokens"),
            completion_tokens=info.get("completion_tokens"),
            cached_tokens=info.get("cached_tokens"),
            ids=tuple(ids) if isinstance(ids, list) else None,
        )
    choice = document["choices"][0]
    usage = document.get("usage") or {}
    message = choice.get("message") or {"content": choice.get("text")}
    return Answer(
        content=message.get("content"),
        reasoning=message.get("reasoning_content"),
        tool_calls=tuple(message.get("tool_calls") or ()),
        finish_reason=choice.get("finish_reason"),
        prompt_tokens=usage.get("prompt_tokens"),
        completion_tokens=usage.get("completion_tokens"),
    )


def write_answer(document: Document, path: str, answer: Answer) -> Document:
    """The same reply with another answer."""
    document = copy.deepcopy(document)
    if path == GENERATE:
        document["text"] = answer.content
        if answer.ids is not None:
            document["output_ids"] = list(answer.ids)
        _write_info(document["meta_info"], answer)
        return document
    choice = document["choices"][0]
    if "message" in choice:
        choice["message"] |= {
            "content": answer.content,
            "reasoning_content": answer.reasoning,
            "tool_calls": list(answer.tool_calls) or None,
        }
    else:
        choice["text"] = answer.content
    choice["finish_reason"] = answer.finish_reason
    _write_usage(document.get("usage"), answer)
    return document


def _write_info(info: Document, answer: Answer) -> None:
    info["completion_tokens"] = answer.completion_tokens
    was = info.get("finish_reason")
    if isinstance(was, Mapping) and was.get("type") != answer.finish_reason:
        info["finish_reason"] = {"type": answer.finish_reason}
        if answer.finish_reason == "length":
            info["finish_reason"]["length"] = answer.completion_tokens


def _write_usage(usage: Document | None, answer: Answer) -> None:
    if not usage:
        return
    usage["completion_tokens"] = answer.completion_tokens
    usage["total_tokens"] = (answer.prompt_tokens or 0) + (answer.completion_tokens or 0)


# --- answers in streams --------------------------------------------------------------------------

_FIELDS = ("reasoning_content", "content", "tool_calls")


def read_stream(events: Sequence[Document], path: str) -> Answer:
    """The answer that the events of a stream add up to."""
    if path == GENERATE:
        return read_answer(events[-1], path)  # each event holds all that came before
    texts: dict[str, list[str]] = {"reasoning_content": [], "content": []}
    calls: dict[int, Document] = {}
    finish = None
    usage: Mapping[str, Any] = {}
    for event in events:
        usage = event.get("usage") or usage
        for choice in event.get("choices") or ():
            finish = choice.get("finish_reason") or finish
            delta = choice.get("delta") or {"content": choice.get("text")}
            for name, pieces in texts.items():
                pieces.append(delta.get(name) or "")
            for call in delta.get("tool_calls") or ():
                _add_call(calls, call)
    return Answer(
        content="".join(texts["content"]) or None,
        reasoning="".join(texts["reasoning_content"]) or None,
        tool_calls=tuple(calls[index] for index in sorted(calls)),
        finish_reason=finish,
        prompt_tokens=usage.get("prompt_tokens"),
        completion_tokens=usage.get("completion_tokens"),
    )


def _add_call(calls: dict[int, Document], piece: Mapping[str, Any]) -> None:
    call = calls.setdefault(
        piece.get("index") or 0,
        {"id": None, "type": "function", "function": {"name": None, "arguments": ""}},
    )
    function = piece.get("function") or {}
    call["id"] = piece.get("id") or call["id"]
    call["function"]["name"] = function.get("name") or call["function"]["name"]
    call["function"]["arguments"] += function.get("arguments") or ""


def write_stream(events: Sequence[Document], path: str, before: Answer, after: Answer) -> list[Document]:
    """The events of a stream with another answer; what did not change keeps its events."""
    if path == GENERATE:
        return _write_native_stream(events, before, after)
    head: list[Document] = []
    finish: list[Document] = []
    usage: list[Document] = []
    groups: dict[str, list[Document]] = {name: [] for name in _FIELDS}
    for event in copy.deepcopy(list(events)):
        choices = event.get("choices")
        if not choices:
            usage.append(event)
        elif choices[0].get("finish_reason"):
            finish.append(event)
        else:
            delta = choices[0].get("delta") or {"content": choices[0].get("text")}
            groups.get(next((name for name in _FIELDS if delta.get(name)), ""), head).append(event)
    tokens = max(1, after.completion_tokens or 1)
    template = next(iter([*head, *groups["content"], *groups["reasoning_content"], *finish]))
    if after.reasoning != before.reasoning:
        groups["reasoning_content"] = _text_events(
            template, "reasoning_content", after.reasoning or "", tokens
        )
    if after.content != before.content:
        groups["content"] = _text_events(template, "content", after.content or "", tokens)
    if after.tool_calls != before.tool_calls:
        groups["tool_calls"] = [
            _delta_event(template, {"tool_calls": [{"index": index, **call}]})
            for index, call in enumerate(after.tool_calls)
        ]
    for event in finish:
        event["choices"][0]["finish_reason"] = after.finish_reason
        delta = event["choices"][0].get("delta") or {}
        if after.content != before.content and delta.get("content"):
            delta["content"] = None
    for event in [*finish, *usage]:
        _write_usage(event.get("usage"), after)
    return [*head, *(event for name in _FIELDS for event in groups[name]), *finish, *usage]


def _text_events(template: Document, name: str, text: str, tokens: int) -> list[Document]:
    size = max(1, -(-len(text) // tokens))
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    return [_delta_event(template, {name: piece}) for piece in pieces]


def _delta_event(template: Document, delta: Document) -> Document:
    event = copy.deepcopy(template)
    choice = event["choices"][0]
    choice["finish_reason"] = None
    if "delta" in choice:
        choice["delta"] = dict.fromkeys(choice["delta"]) | delta
    else:
        choice["text"] = delta.get("content")
    return event


def _write_native_stream(events: Sequence[Document], before: Answer, after: Answer) -> list[Document]:
    last = write_answer(events[-1], GENERATE, after)
    if after.content == before.content and after.ids == before.ids:
        return [*copy.deepcopy(list(events[:-1])), last]
    text, ids = after.content or "", after.ids or ()
    count = max(1, after.completion_tokens or 1)
    written = []
    for number in range(1, count):
        event = copy.deepcopy(events[0])
        event["text"] = text[: len(text) * number // count]
        event["output_ids"] = list(ids[:number])
        event["meta_info"]["completion_tokens"] = number
        written.append(event)
    return [*written, last]


# --- logprobs ------------------------------------------------------------------------------------


def change_logprobs(document: Document, asked: Asked, change: ChangeLogprob) -> Document:
    """The same reply with each logprob changed, in SGLang's own form or in a chat completion's."""
    document = copy.deepcopy(document)
    if asked.path == GENERATE:
        _change_native(document.get("meta_info") or {}, asked, change)
    elif asked.path == CHAT:
        for choice in document.get("choices") or ():
            entries = (choice.get("logprobs") or {}).get("content") or []
            for position, entry in enumerate(entries):
                place = Place(position, True, None, 0)
                for one in [entry, *(entry.get("top_logprobs") or ())]:
                    one["logprob"] = change(one["logprob"], one.get("token"), place, asked)
    return document


def _change_native(info: Document, asked: Asked, change: ChangeLogprob) -> None:
    start = max(0, asked.body.get("logprob_start_len") or 0)
    prompt, cached = info.get("prompt_tokens"), info.get("cached_tokens") or 0
    for which, first in (("input", start), ("output", 0)):
        for name in (f"{which}_token_logprobs", f"{which}_top_logprobs"):
            for index, entry in enumerate(info.get(name) or ()):
                place = Place(first + index, which == "output", prompt, cached)
                for item in [entry] if name.endswith("token_logprobs") else entry or ():
                    # The first of a prompt has none.
                    if item and item[0] is not None:
                        item[0] = change(item[0], item[1], place, asked)


# --- the proxy -----------------------------------------------------------------------------------


class FaultProxy(ThreadingHTTPServer):
    """Listens on loopback in front of `upstream` until closed; use it as a context manager.

    `busy_s` is the time in seconds during which at least one request for tokens was under way.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, upstream: str, fault: Fault = NO_FAULT, port: int = 0, seed: int = 0) -> None:
        """Raises OSError if the port is taken."""
        super().__init__(("127.0.0.1", port), _Handler)
        self.upstream = urlsplit(upstream)
        self.fault = fault
        self.seed = seed
        self.closing = threading.Event()
        self.dead = False
        self.busy_s = 0.0
        self._lock = threading.Lock()
        self._number = 0
        self._prompts: Counter[str] = Counter()
        self._running: dict[int, int] = {}
        self._busy_since = 0.0
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        if not self.dead:
            self.shutdown()
            self.server_close()

    def die(self) -> None:
        """Stop listening, as a server does that crashed."""
        with self._lock:
            if self.dead:
                return
            self.dead = True
        self.closing.set()
        # From a handler's thread: the serving loop ends and the port is free before the handler goes on.
        self.shutdown()
        self.server_close()

    def enter(self, asked: Asked) -> Asked:
        """Count a request for tokens that begins."""
        with self._lock:
            self._number += 1
            prompt = _prompt_key(asked)
            asked = replace(asked, number=self._number, repeats=self._prompts[prompt], seed=self.seed)
            self._prompts[prompt] += 1
            if not self._running:
                self._busy_since = time.monotonic()
            self._running[self._number] = 0
            for number in self._running:
                self._running[number] = max(self._running[number], len(self._running))
        return asked

    def peak(self, asked: Asked) -> Asked:
        """The same with how many ran beside it so far."""
        with self._lock:
            return replace(asked, peak=self._running.get(asked.number, 1))

    def leave(self, asked: Asked) -> None:
        """Count a request for tokens that ended."""
        with self._lock:
            self._running.pop(asked.number, None)
            if not self._running:
                self.busy_s += time.monotonic() - self._busy_since

    def ask(self, path: str, body: Mapping[str, Any]) -> Document:
        """Ask the server something for the proxy's own use. Raises OSError."""
        connection = self.connect()
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            data: Document = json.loads(reply.read())
            if reply.status != 200:
                raise OSError(f"POST {path}: HTTP {reply.status}")
            return data
        finally:
            connection.close()

    def connect(self) -> http.client.HTTPConnection:
        assert self.upstream.hostname is not None
        return http.client.HTTPConnection(self.upstream.hostname, self.upstream.port, timeout=PATIENCE_S)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no news."""


def _prompt_key(asked: Asked) -> str:
    # A stream of the same prompt, or one more token of it, is the same prompt to a cache.
    names = ("messages", "prompt", "text", "input_ids", "tools", "chat_template_kwargs")
    prompt = [asked.path, [asked.body.get(name) for name in names]]
    return hashlib.sha256(json.dumps(prompt, sort_keys=True).encode()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultProxy

    def do_GET(self) -> None:
        self._pass_on(Asked("GET", self.path), b"")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(raw)
        except ValueError:
            body = {}
        asked = Asked("POST", self.path.split("?")[0], body if isinstance(body, dict) else {})
        self._pass_on(asked, raw)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _pass_on(self, asked: Asked, raw: bytes) -> None:
        if not asked.generates:
            self._answer(asked, raw)
            return
        asked = self.server.enter(asked)
        try:
            after = self.server.fault.wire.dies_after
            if after is not None and asked.number > after:
                self.close_connection = True
                self.server.die()
                return
            self._answer(asked, raw)
        finally:
            self.server.leave(asked)

    def _answer(self, asked: Asked, raw: bytes) -> None:
        fault = self.server.fault
        refusal = fault.refuse(asked) if fault.refuse else None
        if refusal:
            self._send_document(refusal.document, refusal.status, asked)
            return
        if fault.forward and asked.generates:
            raw = json.dumps(fault.forward(copy.deepcopy(dict(asked.body)), asked)).encode()
        connection = self.server.connect()
        try:
            names = ("Content-Type", "Authorization", "Accept")
            headers = {name: self.headers[name] for name in names if name in self.headers}
            connection.request(self.command, self.path, raw or None, headers)
            reply = connection.getresponse()
            if reply.status == 200 and "event-stream" in (reply.headers.get("Content-Type") or ""):
                self._answer_stream(asked, reply)
            else:
                self._answer_whole(asked, reply)
        except (OSError, http.client.HTTPException):
            # The server or the client hung up. Either way the client sees a connection that broke.
            self.close_connection = True
        finally:
            connection.close()

    # One document.

    def _answer_whole(self, asked: Asked, reply: http.client.HTTPResponse) -> None:
        data = reply.read()
        changed = self._change_whole(asked, data) if reply.status == 200 else None
        if changed is None:
            kind = reply.headers.get("Content-Type") or "text/plain"
            self._send(data, reply.status, kind, asked)
        else:
            self._send_document(changed, 200, asked)

    def _change_whole(self, asked: Asked, data: bytes) -> Document | None:
        """The changed reply; None if nothing changes."""
        fault = self.server.fault
        if not (fault.answer or fault.logprob or fault.document):
            return None
        try:
            document = json.loads(data)
        except ValueError:
            return None
        if not isinstance(document, dict):
            return None
        asked = self.server.peak(asked)
        before = document
        if fault.answer and asked.generates and not asked.only_scores:
            answer = read_answer(document, asked.path)
            after = self._consistent(answer, fault.answer(answer, asked))
            if after != answer:
                document = write_answer(document, asked.path, after)
        if fault.logprob and asked.generates:
            document = change_logprobs(document, asked, fault.logprob)
        if fault.document:
            document = fault.document(copy.deepcopy(document), asked)
        return None if document == before else document

    def _consistent(self, before: Answer, after: Answer) -> Answer:
        """Token ids that fit the text, and the text that fits the ids, by the server's own tokenizer."""
        if before.ids is None:
            return after
        if after.content != before.content:
            text = after.content or ""
            body = {"prompt": text, "add_special_tokens": False}
            made = self.server.ask("/tokenize", body)["tokens"] if text else []
            made = made[: after.completion_tokens] if after.finish_reason == "length" else made
            return replace(after, ids=tuple(made), completion_tokens=len(made))
        if after.ids is not None and after.ids != before.ids:
            text = self.server.ask("/detokenize", {"tokens": list(after.ids)})["text"]
            return replace(after, content=text, completion_tokens=len(after.ids))
        return after

    # A stream.

    def _answer_stream(self, asked: Asked, reply: http.client.HTTPResponse) -> None:
        fault = self.server.fault
        if fault.answer and not asked.only_scores:
            pieces = self._changed_stream(asked, reply)
        elif fault.events:
            pieces = map(_event_bytes, fault.events(_read_events(reply), asked))
        else:
            pieces = iter(lambda: reply.read1(65536), b"")
        self._send_stream(pieces, asked)

    def _changed_stream(self, asked: Asked, reply: http.client.HTTPResponse) -> Iterator[bytes]:
        fault = self.server.fault
        assert fault.answer is not None
        timed = [(time.monotonic(), event) for event in _read_events(reply)]
        events = [event for _at, event in timed if not isinstance(event, str)]
        done = any(isinstance(event, str) for _at, event in timed)
        asked = self.server.peak(asked)
        before = read_stream(events, asked.path)
        after = self._consistent(before, fault.answer(before, asked))
        changed = write_stream(events, asked.path, before, after) if after != before else events
        stream: Iterator[StreamEvent] = iter([*changed, *([DONE] if done else [])])  # type: ignore[list-item]
        if fault.events:
            stream = fault.events(stream, asked)
        pause = (timed[-1][0] - timed[0][0]) / len(timed)
        for event in stream:
            yield _event_bytes(event)
            time.sleep(pause)

    # How it travels.

    def _send_document(self, document: Document, status: int, asked: Asked) -> None:
        self._send(json.dumps(document).encode(), status, "application/json", asked)

    def _send(self, data: bytes, status: int, kind: str, asked: Asked) -> None:
        wire = self.server.fault.wire if asked.generates else Wire()
        hang = wire.hang if asked.number >= wire.hang_from else ""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if hang:
            self.wfile.write(data[: len(data) // 2] if hang == "middle" else b"")
            self._hang()
        elif wire.drip_s:
            for byte in data:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                if self.server.closing.wait(wire.drip_s):
                    break
        else:
            self.wfile.write(data)

    def _send_stream(self, pieces: Iterator[bytes], asked: Asked) -> None:
        wire = self.server.fault.wire
        hang = wire.hang if asked.number >= wire.hang_from else ""
        if wire.lump:
            pieces = iter([b"".join(pieces)])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if hang == "headers":
            self._hang()
            return
        for number, piece in enumerate(pieces):
            if hang == "middle" and number == 3:
                self._hang()
                return
            for part in [piece[i : i + 1] for i in range(len(piece))] if wire.drip_s else [piece]:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.flush()
                if wire.drip_s and self.server.closing.wait(wire.drip_s):
                    return
        self.wfile.write(b"0\r\n\r\n")

    def _hang(self) -> None:
        """Keep the connection open and say nothing until the client goes away or the proxy closes."""
        self.wfile.flush()
        self.close_connection = True
        self.connection.settimeout(0.2)
        while not self.server.closing.is_set():
            try:
                if not self.connection.recv(1):
                    return
            except TimeoutError:
                continue


def _read_events(reply: http.client.HTTPResponse) -> Iterator[StreamEvent]:
    """The events as they arrive."""
    for line in reply:
        if not line.startswith(b"data:"):
            continue
        text = line.removeprefix(b"data:").strip().decode()
        if text == DONE:
            yield "[DONE]"
        else:
            yield json.loads(text)


def _event_bytes(event: StreamEvent) -> bytes:
    text = event if isinstance(event, str) else json.dumps(event)
    return f"data: {text}\n\n".encode()
