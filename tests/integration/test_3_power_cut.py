"""A power cut in the midst of an upgrade: nothing unproved starts by itself, and the next run carries on."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from integration.conftest import SECOND
from integration.harness import ROOT, Node, Playbooks


@dataclass(frozen=True)
class Cut:
    node: Node
    first: str
    """The release that served before."""


@pytest.fixture(scope="module")
def cut(deployed: Node, playbooks: Playbooks) -> Cut:
    """The node, booted again after the power went while an upgrade was on trial."""
    first = deployed.linked("current")
    assert first
    if deployed.linked("previous"):
        pytest.skip("the upgrade was made already: run this file before the later ones")

    def cut_on_trial() -> bool:
        on_trial = deployed.exists(f"{ROOT}/trial.json") and deployed.linked("current") != first
        if on_trial:
            deployed.power_cut()
        return on_trial

    playbooks.run("site.yml", variables=SECOND, kill_when=cut_on_trial)
    was_cut = not deployed.is_up
    deployed.boot()
    assert was_cut, "the run came to its end before the power was cut"
    return Cut(deployed, first)


def test_a_release_that_is_not_proved_does_not_start_at_boot(cut: Cut) -> None:
    assert cut.node.linked("current") != cut.first
    assert not cut.node.exists(f"{ROOT}/current/proved")
    unit = cut.node.unit()
    assert (unit["ActiveState"], unit["AssertResult"], unit["MainPID"]) == ("inactive", "no", "0")


def test_the_next_run_proves_it_and_keeps_the_way_back(cut: Cut, playbooks: Playbooks) -> None:
    second = cut.node.linked("current")
    run = playbooks.run("site.yml", variables=SECOND)
    assert run.rc == 0, run.failures
    assert (cut.node.linked("current"), cut.node.linked("previous")) == (second, cut.first)
    assert cut.node.exists(f"{ROOT}/current/proved")
    assert not cut.node.exists(f"{ROOT}/trial.json")
    assert cut.node.answer() == "OK"


@pytest.mark.full
def test_a_proved_release_starts_at_boot(cut: Cut) -> None:
    cut.node.power_cut()
    cut.node.boot()
    assert cut.node.unit()["AssertResult"] == "yes"
    cut.node.wait_until_healthy()
    assert cut.node.answer() == "OK"
