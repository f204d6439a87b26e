"""A baseline is recorded on a real node; later gates are held against it and see what no answer shows."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from integration.harness import REPO, ROOT, Node, Playbooks, break_model, difference, lab

pytestmark = pytest.mark.full
FAULT = "scale_x2"
FOLDER = "/srv/slight"


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalogue of its own, without baselines."""
    folder = tmp_path_factory.mktemp("baseline") / "catalog"
    shutil.copytree(REPO / "catalog", folder)
    shutil.rmtree(folder / "baselines", ignore_errors=True)
    return folder


@pytest.fixture(scope="module")
def baseline(deployed: Node, playbooks: Playbooks, catalog: Path) -> Path:
    """The recorded baseline."""
    pid = deployed.pid()
    run = playbooks.run("baseline.yml", variables={"plan_catalog": str(catalog)})
    assert run.rc == 0, run.failures
    assert deployed.pid() != pid  # started again between two passes
    [file] = (catalog / "baselines").glob("*.json")
    return file


def report(playbooks: Playbooks) -> dict[str, Any]:
    newest = max((playbooks.reports / "node1").iterdir(), key=lambda folder: folder.stat().st_mtime)
    document: dict[str, Any] = json.loads((newest / "report.json").read_text())
    return document


def test_check_mode_says_what_would_be_recorded_and_records_nothing(
    deployed: Node, playbooks: Playbooks, catalog: Path
) -> None:
    before, pid = deployed.listing(), deployed.pid()
    run = playbooks.run("baseline.yml", "--check --diff", variables={"plan_catalog": str(catalog)})
    assert run.rc == 0, run.failures
    assert any("would record 5 passes" in str(message) for message in run.messages)
    assert not (catalog / "baselines").exists()
    assert difference(before, deployed.listing()) == {}
    assert deployed.pid() == pid


def test_a_baseline_is_of_five_passes_and_a_cpu_has_no_noise(baseline: Path) -> None:
    document = json.loads(baseline.read_text())
    assert document["passes"] == 5
    assert document["noise"]["largest"] < 0.01


def test_a_later_gate_is_held_against_it(deployed: Node, playbooks: Playbooks, baseline: Path) -> None:
    run = playbooks.run("validate.yml", variables={"plan_catalog": str(baseline.parents[1])})
    assert run.rc == 0, run.failures
    document = report(playbooks)
    assert document["baseline"]["path"].endswith(baseline.name)
    assert [probe["verdict"] for probe in document["probes"] if probe["id"] == "golden"] == ["pass"]


def test_it_sees_weights_that_answer_everything_rightly(
    deployed: Node, playbooks: Playbooks, baseline: Path, tmp_path: Path
) -> None:
    with tarfile.open(tmp_path / "slight.tar", "w") as tar:
        tar.add(break_model(tmp_path / FAULT, FAULT), FAULT)
    deployed.run("mkdir", "--parents", FOLDER)
    with (tmp_path / "slight.tar").open() as archive:
        lab("exec", deployed.name, "--", "tar", "-xC", FOLDER, "--no-same-owner", stdin=archive)
    deployed.load_weights(f"{FOLDER}/{FAULT}")
    try:
        run = playbooks.run("validate.yml", variables={"plan_catalog": str(baseline.parents[1])})
    finally:
        deployed.load_weights(f"{ROOT}/current/model")
        deployed.run("rm", "--recursive", FOLDER)
    assert run.rc != 0
    failed = {probe["id"] for probe in report(playbooks)["probes"] if probe["verdict"] == "fail"}
    assert failed == {"golden"}
