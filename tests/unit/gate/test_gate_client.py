"""The HTTP client: whatever a server does, the caller gets a reply or a named failure, in time."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llm_stand_in as replies
import pytest
from llm_gate.client import Client, Deadline, check_api_key, check_url
from llm_gate.errors import (
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
from llm_stand_in import StandIn

KEY = "sk-not-for-any-eyes"


def client_for(url: str, seconds: float = 5.0, timeout: float = 0.25) -> Client:
    return Client(url, Deadline(seconds), timeout, KEY)


@pytest.mark.parametrize(
    ("reply", "failure", "words"),
    [
        pytest.param(replies.hang, TimedOut, "no reply after 0.25 s", id="hang"),
        pytest.param(
            replies.headers_then_silence, TimedOut, "headers, then nothing", id="headers-then-silence"
        ),
        pytest.param(replies.dripping_headers, TimedOut, "no reply after 0.25 s", id="dripping-headers"),
        pytest.param(replies.dripping_body, TimedOut, "bytes of an unfinished reply", id="dripping-body"),
        pytest.param(replies.endless_stream, TimedOut, "bytes of an unfinished reply", id="endless-stream"),
        pytest.param(replies.flood, (TooLarge, TimedOut), "", id="flood"),
        pytest.param(replies.drop, Dropped, "the connection broke", id="broken-reply"),
        pytest.param(replies.close_at_once, Dropped, "the connection broke", id="closed-without-reply"),
        pytest.param(replies.raw_reply(b"<html>hello</html>"), NotJson, "<html>hello</html>", id="html"),
        pytest.param(replies.raw_reply(b""), NotJson, "not JSON", id="empty"),
        pytest.param(replies.raw_reply(b"\xff\xfe{}"), NotJson, "not JSON", id="not-utf-8"),
        pytest.param(replies.raw_reply(b"[" * 100_000), NotJson, "not JSON", id="nested-too-deeply"),
        pytest.param(replies.raw_reply(b"1" * 5_000), NotJson, "not JSON", id="number-too-long"),
        pytest.param(replies.json_reply({"detail": "who are you"}, 401), HttpStatus, "HTTP 401", id="401"),
        pytest.param(replies.raw_reply(b"", 500), HttpStatus, "HTTP 500", id="500-without-body"),
        pytest.param(replies.raw_reply(b"", 302), HttpStatus, "HTTP 302", id="redirect"),
        pytest.param(
            lambda handler: handler.wfile.write(b"nonsense\r\n\r\n"), Dropped, "broke", id="not-http"
        ),
    ],
)
def test_a_bad_reply_is_a_named_failure_in_time(
    stand_in: StandIn, reply: Any, failure: type[RequestFailed], words: str
) -> None:
    stand_in.pages["/page"] = reply
    began = time.monotonic()
    with pytest.raises(failure) as caught:
        client_for(stand_in.url).get("/page")
    assert words in str(caught.value)
    assert str(caught.value).startswith("GET /page: ")
    assert time.monotonic() - began < 3


def test_the_deadline_ends_a_request_before_its_own_timeout(stand_in: StandIn) -> None:
    stand_in.pages["/page"] = replies.hang
    client = client_for(stand_in.url, seconds=0.2, timeout=30)
    with pytest.raises(TimedOut, match="the run's deadline"):
        client.get("/page")
    with pytest.raises(TimedOut, match="not sent"):
        client.get("/page")
    assert len(stand_in.requests) == 1


def test_a_refused_connection_is_unreachable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(Unreachable, match="Connection refused"):
        client_for(f"http://127.0.0.1:{port}").get("/page")


def test_an_unknown_host_is_unreachable_or_times_out() -> None:
    with pytest.raises((Unreachable, TimedOut)):
        client_for("http://no-such-host.invalid").get("/page")


def test_tls_with_an_unknown_certificate_is_unreachable(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-subj",
            "/CN=127.0.0.1",
            "-out",
            certificate,
            "-keyout",
            key,
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = replies.Server()
    server.script.reset()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    with pytest.raises(Unreachable, match="TLS: "):
        client_for(server.script.url.replace("http", "https")).get("/page")
    server.shutdown()
    server.server_close()
    thread.join()


def test_tls_against_a_plain_server_is_unreachable(stand_in: StandIn) -> None:
    with pytest.raises(Unreachable, match="TLS: "):
        client_for(stand_in.url.replace("http", "https")).get("/page")


def test_a_proxy_variable_does_not_divert_requests(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert client_for(stand_in.url).get("/model_info")


def test_the_key_is_sent_and_never_shown(stand_in: StandIn) -> None:
    def echo(handler: Any) -> None:
        replies.json_reply({"you sent": handler.headers["Authorization"]}, 401)(handler)

    stand_in.pages["/page"] = echo
    with pytest.raises(HttpStatus) as caught:
        client_for(stand_in.url).get("/page")
    assert stand_in.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert KEY not in str(caught.value)
    assert KEY not in caught.value.body


def test_the_events_of_a_stream_carry_their_arrival_times(stand_in: StandIn) -> None:
    stand_in.pages["/stream"] = replies.stream_reply([{"n": 1}, {"n": 2}, {"n": 3}], pause=0.05)
    stream = client_for(stand_in.url).stream("/stream", {})
    assert [event.data["n"] for event in stream.events] == [1, 2, 3]
    assert stream.done
    assert stream.events[2].at - stream.events[0].at > 0.08
    assert stream.sent < stream.events[0].at


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "to-the-end"])
def test_a_stream_may_end_without_done(stand_in: StandIn, chunked: bool) -> None:
    stand_in.pages["/stream"] = replies.stream_reply(
        [{"n": 1}, {"n": 2}], done=False, chunked=chunked, pause=0.05
    )
    stream = client_for(stand_in.url).stream("/stream", {})
    assert len(stream.events) == 2
    assert not stream.done
    assert stream.events[1].at - stream.events[0].at > 0.03


def test_a_connection_kept_open_after_done_does_not_delay(stand_in: StandIn) -> None:
    def reply(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b': a comment\nevent: x\ndata:{"n": 1}\r\n\r\ndata: [DONE]\n\n')
        handler.wfile.flush()
        replies.hang(handler)

    stand_in.pages["/stream"] = reply
    stream = client_for(stand_in.url, timeout=3).stream("/stream", {})
    assert (stream.events[0].data, stream.done) == ({"n": 1}, True)


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        pytest.param(replies.stream_reply(["{broken"]), NotJson, id="broken-event"),
        pytest.param(replies.stream_reply([[1, 2]]), Malformed, id="event-of-the-wrong-type"),
        pytest.param(replies.raw_reply(b"<html></html>"), Malformed, id="html"),
        pytest.param(replies.raw_reply(b"", 503), HttpStatus, id="503"),
        pytest.param(replies.drop, Dropped, id="broken-reply"),
    ],
)
def test_a_bad_stream_is_a_named_failure(
    stand_in: StandIn, reply: Callable[..., None], failure: type[RequestFailed]
) -> None:
    stand_in.pages["/stream"] = reply
    with pytest.raises(failure):
        client_for(stand_in.url).stream("/stream", {})


def test_a_look_tells_any_status(stand_in: StandIn) -> None:
    stand_in.pages["/health"] = replies.raw_reply(b"", 503)
    assert client_for(stand_in.url).look("/health", 1) == 503


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:30000", "http://127.0.0.1:30000"),
        ("http://127.0.0.1:30000/", "http://127.0.0.1:30000"),
        ("https://node.example/llm/v1/", "https://node.example/llm"),
        ("http://[::1]:30000", "http://[::1]:30000"),
    ],
)
def test_an_address_is_brought_to_its_base(url: str, base: str) -> None:
    assert check_url(url) == base


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:30000",
        "ftp://node",
        "http://",
        "http://node:port",
        "http://node:99999",
        "http://node/?a=b",
        "http://a b",
    ],
)
def test_a_wrong_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="url: "):
        check_url(url)


def test_an_address_with_a_password_is_refused_without_showing_it() -> None:
    with pytest.raises(UsageError) as caught:
        check_url("http://user:hunter2@node:30000")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("key", ["", " \n", "two words", "line\nbreak", "clé"])
def test_a_key_that_no_header_can_hold_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(UsageError, match="key file: must hold one key") as caught:
        check_api_key(key, "key file")
    assert not key.strip() or key not in str(caught.value)


def test_a_key_loses_its_line_end() -> None:
    assert check_api_key("abc\n", "key file") == "abc"
