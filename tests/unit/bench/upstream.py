"""A scripted server behind the proxy: says the same each time, as SGLang 0.5.9 says it."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import requests
from fault_proxy import Fault, FaultProxy
from faults import by_name

TEXT = "The keeper of the light wrote seven words about the sea. The wind answered him at once."
REASONING = "The user wants a text about the sea."
CALL = {
    "id": "call_1",
    "index": 0,
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
}
PROMPT_TOKENS, MADE = 12, 20
NAME = "tiny"


def usage() -> dict[str, Any]:
    return {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": MADE,
        "total_tokens": PROMPT_TOKENS + MADE,
    }


def completion(body: dict[str, Any]) -> dict[str, Any]:
    """A chat completion: a tool call where tools are offered, a text otherwise."""
    calls = [CALL] if body.get("tools") else None
    message = {
        "role": "assistant",
        "content": None if calls else TEXT,
        "reasoning_content": REASONING if thinks(body) else None,
        "tool_calls": calls,
    }
    entries = [
        {"token": token, "logprob": -0.1, "top_logprobs": [{"token": token, "logprob": -0.1}]}
        for token in TEXT.split()
    ]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": {"content": entries} if body.get("logprobs") else None,
        "finish_reason": "tool_calls" if calls else "stop",
    }
    return {"id": "1", "object": "chat.completion", "model": NAME, "choices": [choice], "usage": usage()}


def thinks(body: dict[str, Any]) -> bool:
    return (body.get("chat_template_kwargs") or {}).get("enable_thinking") is not False


def events(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The same as a stream."""
    whole = completion(body)["choices"][0]
    message = whole["message"]

    def event(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        empty = {"role": None, "content": None, "reasoning_content": None, "tool_calls": None}
        choice = {"index": 0, "delta": {**empty, **delta}, "logprobs": None, "finish_reason": finish}
        return {"id": "1", "object": "chat.completion.chunk", "choices": [choice], "usage": None}

    listed = [event({"role": "assistant", "content": ""})]
    for name in ("reasoning_content", "content"):
        listed += [event({name: piece}) for piece in pieces(message[name] or "")]
    listed += [event({"tool_calls": [call]}) for call in message["tool_calls"] or ()]
    listed.append(event({}, whole["finish_reason"]))
    if (body.get("stream_options") or {}).get("include_usage"):
        listed.append({"id": "1", "object": "chat.completion.chunk", "choices": [], "usage": usage()})
    return listed


def pieces(text: str) -> list[str]:
    return [word + " " for word in text.split(" ")[:-1]] + text.split(" ")[-1:] if text else []


def generated(body: dict[str, Any]) -> dict[str, Any]:
    """SGLang's own reply: a scored prompt, or a text with its token ids, one a letter."""
    ids = body["input_ids"]
    info: dict[str, Any] = {
        "finish_reason": {"type": "stop", "matched": 1},
        "prompt_tokens": len(ids),
        "completion_tokens": len(TEXT),
        "cached_tokens": body.get("cached", 0),
    }
    if not body.get("return_logprob"):
        return {"text": TEXT, "output_ids": [ord(letter) for letter in TEXT], "meta_info": info}
    start = body["logprob_start_len"]
    scored = ids[start:]
    info |= {
        "completion_tokens": 1,
        "input_token_logprobs": [[None if not n else -0.1, token, None] for n, token in enumerate(scored)],
        "input_top_logprobs": [
            None if not n else [[-0.1, token, None], [-4.0, 9, None]] for n, token in enumerate(scored)
        ],
        "output_token_logprobs": [[-0.1, 7, None]],
        "output_top_logprobs": [[[-0.1, 7, None], [-4.0, 9, None]]],
    }
    return {"text": "", "output_ids": [7], "meta_info": info}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._send({"object": "list", "data": [{"id": NAME, "root": NAME}]})
        else:
            self._send({})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            self._send({"tokens": [ord(letter) for letter in body["prompt"]]})
        elif self.path == "/detokenize":
            self._send({"text": "".join(map(chr, body["tokens"]))})
        elif self.path == "/generate":
            self.server.bodies.append(body)
            self._send(generated(body))
        elif body.get("stream"):
            self.server.bodies.append(body)
            self._stream(events(body))
        else:
            self.server.bodies.append(body)
            self.server.waiting.wait()
            self._send(completion(body))

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _send(self, document: dict[str, Any]) -> None:
        data = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, listed: list[dict[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for text in [*map(json.dumps, listed), "[DONE]"]:
            data = f"data: {text}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


class Upstream(ThreadingHTTPServer):
    """The server; `bodies` is what it was asked. Plain chats wait while `waiting` is not set."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[dict[str, Any]] = []
        self.waiting = threading.Event()
        self.waiting.set()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is part of the tests."""


class Asker:
    """Asks the scripted server, directly and through a proxy with a fault."""

    def __init__(self, upstream: Upstream, stack: ExitStack) -> None:
        self.upstream = upstream
        self.stack = stack

    def proxy(self, fault: str | Fault, seed: int = 0) -> FaultProxy:
        """A proxy that plays a fault, until the test ends."""
        played = by_name()[fault] if isinstance(fault, str) else fault
        return self.stack.enter_context(FaultProxy(self.upstream.url, played, seed=seed))

    def post(self, url: str, path: str, body: dict[str, Any], timeout: float = 5.0) -> requests.Response:
        return requests.post(url + path, json=body, timeout=timeout)
