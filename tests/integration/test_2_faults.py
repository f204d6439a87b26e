"""Answers that go wrong while the server runs are noticed, by a gate that only looks."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator

import pytest
from integration.harness import REPO, ROOT, Node, Playbooks, Run, break_model, difference, lab

FAULTS = ("nan", "scale_neg", "inf_norm", "scale_x1000")
FOLDER = "/srv/faults"  # the server's /tmp is its own
PROFILE = REPO / "catalog/models/tiny-qwen3.yml"


@pytest.fixture(scope="module")
def faulty(deployed: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """The node with faulty checkpoints on it; afterwards its server has its good weights again."""
    models = tmp_path_factory.mktemp("models")
    with tarfile.open(models / "all.tar", "w") as tar:
        for fault in FAULTS:
            tar.add(break_model(models / fault, fault), fault)
    deployed.run("mkdir", "--parents", FOLDER)
    with (models / "all.tar").open() as archive:
        lab("exec", deployed.name, "--", "tar", "-xC", FOLDER, "--no-same-owner", stdin=archive)
    pid = deployed.pid()
    yield deployed
    deployed.run("rm", "--recursive", FOLDER)
    deployed.load_weights(f"{ROOT}/current/model")
    assert deployed.answer() == "OK"
    assert deployed.pid() == pid


def test_validate_fails_when_the_running_server_answers_wrongly_and_leaves_it_alone(
    faulty: Node, playbooks: Playbooks
) -> None:
    faulty.load_weights(f"{FOLDER}/nan")
    assert faulty.health() == "200"
    pid, before = faulty.pid(), faulty.listing()
    run = playbooks.run("validate.yml")
    assert run.rc != 0
    assert run.failure.startswith("fail: smoke:")
    assert "!!!" in run.failure
    assert run.changed == {}
    assert difference(before, faulty.listing()) == {}
    assert faulty.pid() == pid
    newest = max((playbooks.reports / "node1").iterdir(), key=lambda folder: folder.stat().st_mtime)
    assert json.loads((newest / "report.json").read_text())["verdict"] == "fail"


def gate(playbooks: Playbooks) -> Run:
    return playbooks.run(REPO / "tests/integration/gate.yml", variables={"profile_file": str(PROFILE)})


@pytest.mark.parametrize(
    "fault", ["scale_neg", *(pytest.param(fault, marks=pytest.mark.full) for fault in FAULTS[2:])]
)
def test_the_gate_fails_its_task_for(fault: str, faulty: Node, playbooks: Playbooks) -> None:
    faulty.load_weights(f"{FOLDER}/{fault}")
    run = gate(playbooks)
    assert run.rc != 0
    [(_action, result)] = run.results("runner_on_failed")
    assert result["report"]["verdict"] == "fail"
    assert [probe["verdict"] for probe in result["report"]["probes"] if probe["id"] == "smoke"] == ["fail"]


def test_the_gate_accounts_for_every_probe_and_passes_once_the_weights_are_good_again(
    faulty: Node, playbooks: Playbooks
) -> None:
    faulty.load_weights(f"{ROOT}/current/model")
    run = gate(playbooks)
    assert run.rc == 0, run.failures
    [(_action, result)] = run.results()
    report = result["report"]
    assert report["verdict"] == "pass"
    tested = {entry["id"] for entry in report["coverage"] if entry["tested"]}
    assert tested == {probe["id"] for probe in report["probes"]}
    assert tested
    assert all(entry["tested"] or entry["reason"] for entry in report["coverage"])
