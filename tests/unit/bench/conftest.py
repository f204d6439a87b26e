"""Fixtures of the bench's tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from upstream import Asker, Upstream


@pytest.fixture(scope="session")
def _server() -> Iterator[Upstream]:
    with Upstream() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def asker(_server: Upstream) -> Iterator[Asker]:
    """The scripted server, forgetful of earlier tests."""
    _server.bodies.clear()
    _server.waiting.set()
    with ExitStack() as stack:
        yield Asker(_server, stack)
        _server.waiting.set()
