"""A stand-in for an LLM server: small, scriptable, and able to misbehave as real servers and proxies do."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from llm_gate.neutral import CONTINUATIONS
from talker import FACTS, Spoil, document, events, speak
from toy_model import ToyModel

_DAYS = """grey sea/wind, red boat/harbour, old lamp/night, lost gull/cliff, slow rain/roof, blue door/hinge,
long rope/knot, tin cup/kettle, thin map/compass, warm stove/coal, broken oar/carpenter, white fog/bell,
small child/mother, late letter/postman, first snow/sledge, last star/dawn""".replace("\n", " ").split(", ")
STORY = " ".join(
    "On day {} the keeper of the light wrote {} words about the {}, and the {} answered.".format(
        day, day * 7, *pair.split("/")
    )
    for day, pair in enumerate(_DAYS, start=1)
)

Reply = Callable[[BaseHTTPRequestHandler], None]


@dataclass(frozen=True)
class Request:
    """One request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


def json_reply(document: object, status: int = 200) -> Reply:
    return raw_reply(json.dumps(document).encode(), status, "application/json")


def raw_reply(body: bytes, status: int = 200, content_type: str = "text/plain") -> Reply:
    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", content_type)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return reply


def hang(handler: BaseHTTPRequestHandler) -> None:
    """No reply at all."""
    handler.server.closing.wait(20)  # type: ignore[attr-defined]
    handler.close_connection = True


def headers_then_silence(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.flush()
    hang(handler)


def dripping_headers(handler: BaseHTTPRequestHandler) -> None:
    _drip(handler, b"HTTP/1.1 200 OK\r\nX-Padding: ")


def dripping_body(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    _drip(handler, b'{"a": "')


def endless_stream(handler: BaseHTTPRequestHandler) -> None:
    """An event stream without end."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.end_headers()
    event = json.dumps({"choices": [{"index": 0, "delta": {"content": "!"}, "finish_reason": None}]})
    _drip(handler, b"", f"data: {event}\n\n".encode())


def flood(handler: BaseHTTPRequestHandler) -> None:
    """More bytes than any answer has, as fast as they go."""
    handler.send_response(200)
    handler.end_headers()
    try:
        while not handler.server.closing.is_set():  # type: ignore[attr-defined]
            handler.wfile.write(b" " * 1_000_000)
    except OSError:
        handler.close_connection = True


def _drip(handler: BaseHTTPRequestHandler, start: bytes, piece: bytes = b"x") -> None:
    handler.close_connection = True
    try:
        handler.wfile.write(start)
        while not handler.server.closing.wait(0.02):  # type: ignore[attr-defined]
            handler.wfile.write(piece)
            handler.wfile.flush()
    except OSError:
        pass


def drop(handler: BaseHTTPRequestHandler) -> None:
    """The connection closes in the middle of a reply."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.wfile.flush()
    handler.close_connection = True


def close_at_once(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def stream_reply(
    events: Iterable[object],
    done: bool = True,
    pause: float = 0.0,
    chunked: bool = True,
    at_once: bool = False,
) -> Reply:
    """Server-sent events: chunked as uvicorn sends them, or up to the connection's end; or all at once."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header(
            "Transfer-Encoding" if chunked else "Connection", "chunked" if chunked else "close"
        )
        handler.end_headers()
        lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
        texts = [f"data: {line}\n\n" for line in ([*lines, "[DONE]"] if done else lines)]
        for text in ["".join(texts)] if at_once else texts:
            data = text.encode()
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)
            handler.wfile.flush()
            time.sleep(pause)
        if chunked:
            handler.wfile.write(b"0\r\n\r\n")
        else:
            handler.close_connection = True

    return reply


def completion(
    content: object,
    *,
    reasoning: object = None,
    finish_reason: object = "stop",
    completion_tokens: object = 3,
    logprobs: object = None,
    reasoning_field: str = "reasoning_content",
) -> dict[str, Any]:
    """A chat completion."""
    message = {"role": "assistant", "content": content, reasoning_field: reasoning}
    return {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 12, "completion_tokens": completion_tokens},
    }


def story_events(
    text: str = STORY, tokens: int | None = 300, finish_reason: str | None = "stop", pieces: int = 6
) -> list[object]:
    """The events of a streamed answer."""
    size = max(1, -(-len(text) // pieces))
    parts = [text[start : start + size] for start in range(0, len(text), size)]
    events: list[object] = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}]
    events += [
        {"choices": [{"index": 0, "delta": {"content": part}, "finish_reason": None}]} for part in parts
    ]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]})
    if tokens is not None:
        events.append({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": tokens}})
    return events


def kind_of(body: dict[str, Any]) -> str:
    """Which of the smoke probe's checks a chat request belongs to; `fact`, or `other` for the rest."""
    question = body["messages"][-1]["content"]
    if body.get("logprobs"):
        return "logprobs"
    if body.get("stream"):
        return "throughput" if "story" in question or "this report" in question else "other"
    if len(body["messages"]) > 1 or body["max_tokens"] == 1:
        return "other"
    thinks = body.get("chat_template_kwargs", {}).get("enable_thinking")
    kinds = {
        "Reply with exactly OK": "answer",
        "What is 17*19?": "thinking" if thinks else "arithmetic",
        **dict.fromkeys(FACTS, "fact"),
    }
    return kinds.get(question, "other")


@dataclass
class StandIn:
    """The stand-in's script: replies by path, for chat by the kind of question. It starts faultless."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    pages: dict[str, Reply] = field(default_factory=dict)
    chat: dict[str, Reply] = field(default_factory=dict)
    spoil: Spoil | None = None
    after: Callable[[Request], None] | None = None
    toy: ToyModel = field(default_factory=ToyModel)

    def reset(self) -> None:
        self.requests.clear()
        self.after = None
        self.spoil = None
        self.toy = ToyModel()
        for prompt in CONTINUATIONS:
            self.toy.learn(f"{prompt} {STORY}")
        self.pages = {
            "/health": raw_reply(b""),
            "/model_info": json_reply({"model_path": "/models/tiny", "weight_version": "default"}),
            "/v1/models": json_reply(
                {
                    "object": "list",
                    "data": [{"id": "tiny-qwen3", "root": "/models/tiny", "max_model_len": 4096}],
                }
            ),
            "/server_info": json_reply(
                {
                    "version": "0.5.9",
                    "tp_size": 1,
                    "kv_cache_dtype": "auto",
                    "speculative_algorithm": None,
                    "disable_overlap_schedule": True,
                    "api_key": "secret-of-the-server",
                }
            ),
        }
        self.chat = {
            "throughput": stream_reply(story_events(), pause=0.001),
            "logprobs": json_reply(completion("OK", logprobs=None)),
        }

    def becomes_vllm(self) -> None:
        """Speak vLLM's interfaces instead of SGLang's."""
        for page in ("/model_info", "/server_info"):
            del self.pages[page]
        entry = {"id": "tiny-qwen3", "owned_by": "vllm", "max_model_len": 4096}
        self.pages["/v1/models"] = json_reply({"object": "list", "data": [entry]})
        self.pages["/generate"] = json_reply({"detail": "Not Found"}, 404)

    def answer(self, request: Request) -> Reply:
        """The reply to a request: scripted by path, else the toy model's, else by the kind of question."""
        if request.path in self.pages:
            return self.pages[request.path]
        toy = {
            "/tokenize": self.toy.answer_tokenize,
            "/generate": self.toy.answer_generate,
            "/v1/completions": self.toy.answer_completion,
        }.get(request.path)
        if request.path == "/v1/completions" and isinstance(request.body.get("prompt"), str):
            return self.talk(request.body, raw=True)
        if toy:
            status, made = toy(request.body)
            return json_reply(made, status)
        if request.path == "/v1/chat/completions":
            return self.chat.get(kind_of(request.body)) or self.talk(request.body)
        return json_reply({"detail": "Not Found"}, 404)

    def talk(self, body: dict[str, Any], raw: bool = False) -> Reply:
        """What the talker says, spoilt if a test wants it."""
        spoken = speak(body)
        if self.spoil:
            self.spoil(body, spoken)
        if spoken.status != 200:
            return json_reply({"error": {"message": "refused"}}, spoken.status)
        if not body.get("stream"):
            return json_reply(document(spoken, raw))
        streamed = events(spoken, raw, bool(body.get("stream_options", {}).get("include_usage")))
        return stream_reply(streamed, spoken.done, pause=0.0 if spoken.lump else 0.001, at_once=spoken.lump)

    def asked(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == path]


class Handler(BaseHTTPRequestHandler):
    """Looks the reply up in the script."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer("GET", {})

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length", "0"))
        self._answer("POST", json.loads(self.rfile.read(size) or b"{}"))

    def _answer(self, method: str, body: dict[str, Any]) -> None:
        script: StandIn = self.server.script  # type: ignore[attr-defined]
        request = Request(method, self.path, dict(self.headers.items()), body)
        script.requests.append(request)
        script.answer(request)(self)
        if script.after:
            script.after(request)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = StandIn(url=f"http://127.0.0.1:{self.server_port}")
        self.closing = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is part of the tests."""
