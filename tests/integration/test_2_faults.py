"""Answers that go wrong in a running server are noticed, by a gate that only looks."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.harness import ROOT, Node, Playbooks, break_model, difference, lab

FOLDER = "/srv/faults"  # the server's own /tmp is private


@pytest.fixture(scope="module")
def faulty(deployed: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """The node with faulty checkpoints on it, and its good weights back at the end."""
    models = tmp_path_factory.mktemp("models")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for variant in ("nan", "scale_neg"):
            tar.add(break_model(models / variant, variant), variant)
    (models / "all.tar").write_bytes(archive.getvalue())
    deployed.run("mkdir", FOLDER)
    with (models / "all.tar").open() as stream:
        lab("exec", deployed.name, "--", "tar", "-xC", FOLDER, "--no-same-owner", stdin=stream)
    try:
        yield deployed
    finally:
        deployed.load_weights(f"{ROOT}/current/model")
        deployed.run("rm", "-r", FOLDER)
