"""One lab host for the whole session, and the runs that several tests look at."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.harness import LAB, LAB_TOOL, REPO, Node, Playbooks, break_model, lab

SECOND = {"sglang_server_options": {"max_running_requests": 8}}


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    """A host with nothing on it but its system. It is gone after the session, however that ends."""
    if os.geteuid():
        pytest.skip("the lab's hosts need root")
    able = subprocess.run(
        [sys.executable, str(LAB_TOOL), "check"], capture_output=True, text=True, check=False
    )
    if able.returncode:
        pytest.skip(f"this machine cannot run the lab: {able.stderr.strip()}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (Path(tempfile.gettempdir()) / f"smokestack-lab-{LAB}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pytest.exit(f"the lab {LAB} is in use by other tests: set SMOKESTACK_TEST_LAB", returncode=1)
        lab("clean")
        try:
            lab("build")
            lab("up", "node1")
            yield Node("node1")
        finally:
            lab("clean")


@pytest.fixture(scope="session")
def second_node(node: Node) -> Node:
    """Another host beside it, as bare."""
    lab("up", "node2")
    return Node("node2")


@pytest.fixture(scope="session")
def playbooks(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playbooks]:
    """Ends before the node does."""
    runs = Playbooks(tmp_path_factory.mktemp("it"))
    try:
        yield runs
    finally:
        runs.close()


@pytest.fixture(scope="session")
def deployed(node: Node, playbooks: Playbooks) -> Node:
    """The node with a release that serves."""
    if node.linked("current") is None:
        run = playbooks.run("site.yml")
        assert run.rc == 0, run.failures
    return node


@pytest.fixture(scope="session")
def upgraded(deployed: Node, playbooks: Playbooks) -> Node:
    """The node with a second release that serves, and the first one to go back to."""
    if deployed.linked("previous") is None:
        run = playbooks.run("site.yml", variables=SECOND)
        assert run.rc == 0, run.failures
    return deployed


@pytest.fixture(scope="session")
def nan_model() -> Path:
    """The faulty checkpoint of the profile tiny-qwen3-nan, where that profile looks for it."""
    return break_model(REPO / "build/models/tiny-qwen3-nan", "nan")
