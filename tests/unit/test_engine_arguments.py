"""Launch arguments are read by the engine's own parser, and held against what a running server tells."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import engine_arguments
import engine_live
import pytest
from ansible.module_utils.engine_parser import Parser, given

RunModule = Callable[..., dict[str, Any]]
FIELDS = {"tp_size", "attention_backend", "cuda_graph_bs", "disable_radix_cache", "mem_fraction_static"}


@pytest.fixture
def parser() -> Parser:
    """Options in SGLang's manner: spellings that differ from the field, choices, lists, bare flags."""
    parser = Parser()
    parser.add_argument("--tensor-parallel-size", "--tp-size", type=int, default=1)
    parser.add_argument("--attention-backend", choices=["triton", "flashinfer"])
    parser.add_argument("--cuda-graph-bs", type=int, nargs="+")
    parser.add_argument("--disable-radix-cache", action="store_true")
    parser.add_argument("--mem-fraction-static", type=float)
    parser.add_argument("--config")
    return parser


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        pytest.param([], {}, id="nothing"),
        pytest.param(["--tensor-parallel-size", "2"], {"tp_size": 2}, id="another spelling"),
        pytest.param(["--tp-size", "1"], {"tp_size": 1}, id="asked for the default"),
        pytest.param(["--tp", "4"], {"tp_size": 4}, id="an abbreviation"),
        pytest.param(["--cuda-graph-bs", "1", "2"], {"cuda_graph_bs": [1, 2]}, id="a list"),
        pytest.param(["--disable-radix-cache"], {"disable_radix_cache": True}, id="a bare flag"),
        pytest.param(["--mem-fraction-static", ".85"], {"mem_fraction_static": 0.85}, id="a fraction"),
        pytest.param(["--config", "x.yml"], {}, id="what is no field"),
    ],
)
def test_what_was_asked_for_is_named_as_the_server_names_it(
    parser: Parser, arguments: list[str], asked: dict[str, Any]
) -> None:
    assert given(parser, arguments, FIELDS) == asked


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--attention-backend", "fast"], ["--attention-backend", "'fast'", "triton"]),
        (["--tp-size", "two"], ["--tp-size", "'two'"]),
        (["--no-such-option"], ["--no-such-option"]),
    ],
)
def test_a_wrong_argument_is_told_in_the_parsers_sentence(
    parser: Parser, arguments: list[str], words: list[str]
) -> None:
    with pytest.raises((ValueError, argparse.ArgumentError)) as raised:
        given(parser, arguments, FIELDS)
    assert [word for word in words if word not in str(raised.value)] == []


def test_an_interpreter_without_sglang_is_told_by_its_own_words(run_module: RunModule) -> None:
    failed = run_module(engine_arguments, python=sys.executable, arguments=[])
    assert failed["failed"]
    assert "No module named 'sglang'" in failed["msg"]


SGLANG = """
import dataclasses

@dataclasses.dataclass
class ServerArgs:  # a stand-in for SGLang's
    tp_size: int = 1

    @staticmethod
    def add_cli_args(parser):
        print("chatter of an import")
        parser.add_argument("--tensor-parallel-size", "--tp-size", type=int)
"""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `sglang` is a stand-in of a few lines."""
    package = tmp_path / "sglang/srt"
    package.mkdir(parents=True)
    (package / "server_args.py").write_text(SGLANG)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("environment")
def test_the_parser_is_that_of_the_environment(run_module: RunModule) -> None:
    done = run_module(engine_arguments, python=sys.executable, arguments=["--tp", "2"])
    assert done["asked"] == {"tp_size": 2}
    failed = run_module(engine_arguments, python=sys.executable, arguments=["--tp", "x"])
    assert failed["msg"].startswith(
        "this SGLang does not take the launch arguments: argument --tensor-parallel"
    )


# --- the running server --------------------------------------------------------------------------


class Told(ThreadingHTTPServer):
    """Says `body` of its arguments."""

    daemon_threads = True
    body = b"{}"
    status = 200


@pytest.fixture
def told() -> Iterator[Told]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(server.status if self.path == "/server_info" else 404)
            self.send_header("Content-Length", str(len(server.body)))
            self.end_headers()
            self.wfile.write(server.body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = Told(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def live(run_module: RunModule, told: Told, asked: dict[str, Any], info: dict[str, Any]) -> dict[str, Any]:
    told.body = json.dumps(info).encode()
    return run_module(engine_live, url=f"http://127.0.0.1:{told.server_port}", asked=asked)


def test_a_server_that_runs_as_asked_passes(run_module: RunModule, told: Told) -> None:
    asked = {"tp_size": 2, "attention_backend": "triton", "mem_fraction_static": 0.85, "cuda_graph_bs": [1]}
    done = live(run_module, told, asked, {**asked, "api_key": "hidden"})
    assert (done["differences"], done["unseen"], done["changed"]) == ([], [], False)


def test_what_was_replaced_at_start_is_refused_by_name_and_no_key_is_shown(
    run_module: RunModule, told: Told
) -> None:
    info = {"attention_backend": "flashinfer", "api_key": "hidden"}
    failed = live(run_module, told, {"attention_backend": "triton", "tp_size": 2}, info)
    assert failed["failed"]
    assert "attention_backend is 'flashinfer', asked was 'triton'" in failed["msg"]
    assert failed["differences"] == [{"name": "attention_backend", "asked": "triton", "live": "flashinfer"}]
    assert failed["unseen"] == ["tp_size"]
    assert "hidden" not in json.dumps(failed)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        pytest.param(404, b"{}", "404", id="no such route"),
        pytest.param(200, b"[]", "wanted a JSON object, got list", id="no object"),
        pytest.param(200, b"{", "Expecting", id="no JSON"),
    ],
)
def test_a_server_that_does_not_tell_is_no_server_that_runs_as_asked(
    run_module: RunModule, told: Told, status: int, body: bytes, words: str
) -> None:
    told.status, told.body = status, body
    failed = run_module(engine_live, url=f"http://127.0.0.1:{told.server_port}", asked={"tp_size": 1})
    assert failed["failed"]
    assert words in failed["msg"]


def test_a_server_that_is_not_there_is_named(run_module: RunModule) -> None:
    failed = run_module(engine_live, url="http://127.0.0.1:9", asked={"tp_size": 1})
    assert failed["failed"]
    assert "http://127.0.0.1:9/server_info could not be read" in failed["msg"]
