"""Fixtures of the gate's tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from llm_gate.defaults import GATE
from llm_gate.profiles import PROFILES
from llm_stand_in import Server, StandIn


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    """A stand-in for an LLM server, faultless until a test scripts it otherwise."""
    server = Server()
    server.script.reset()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.script
    server.closing.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def profile() -> dict[str, Any]:
    """A model profile with deadlines and amounts for tests."""
    amounts: dict[str, Any] = {
        "deadline_s": 5,
        "request_timeout_s": 1,
        "counting": {"to": 60},
        "continuation_tokens": 96,
        "lengths": [1, 8, 64, 128, 300],
        "concurrency": [1, 2, 5],
        "throughput": {"warmups": 1, "runs": 2, "tokens": 300, "prompt_tokens": 40, "ramp": [1, 2]},
    }
    gate = deepcopy(GATE) | amounts
    # The run profiles then differ in their probes alone.
    gate["full"] = {}
    return {"served_name": "tiny-qwen3", "gate": gate}


@pytest.fixture
def smoke_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run profiles with the smoke probe alone."""
    for name in PROFILES:
        monkeypatch.setitem(PROFILES, name, ("smoke",))
