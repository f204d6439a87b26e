"""Fixtures of the gate's tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from llm_gate.defaults import GATE
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
    """A model profile with deadlines for tests."""
    return {"served_name": "tiny-qwen3", "gate": deepcopy(GATE) | {"deadline_s": 5, "request_timeout_s": 1}}
