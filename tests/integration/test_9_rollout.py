"""A change goes over two nodes: only what passed its gate on the first one reaches the second."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from integration.harness import ROOT, Node, Playbooks, Run, difference, inventory_of

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

GOOD = {"sglang_server_options": {"max_running_requests": 12}}
BATCHES = "--extra-vars rollout_batches=100%"


@dataclass(frozen=True)
class Fleet:
    """Two nodes."""

    first: Node
    second: Node
    inventory: Path

    def roll_out(self, playbooks: Playbooks, **variables: object) -> Run:
        return playbooks.run("site.yml", BATCHES, variables=variables, inventory=self.inventory)


@pytest.fixture(scope="module")
def fleet(
    deployed: Node, second_node: Node, playbooks: Playbooks, tmp_path_factory: pytest.TempPathFactory
) -> Fleet:
    folder = tmp_path_factory.mktemp("fleet") / "inventory"
    return Fleet(deployed, second_node, inventory_of(folder, deployed.name, second_node.name))


@pytest.fixture(scope="module")
def good(fleet: Fleet, playbooks: Playbooks) -> Run:
    """A roll-out that ends well; for the second node it may be the first deployment."""
    run = fleet.roll_out(playbooks, **GOOD)
    assert run.rc == 0, run.failures
    return run


def activated(run: Run) -> list[str]:
    """The nodes in the order in which the run worked on what they serve."""
    hosts = [
        event["event_data"]["host"]
        for event in run.events
        if event["event"] == "runner_on_start" and event["event_data"]["play"] == "Activate"
    ]
    return [host for host, before in zip(hosts, [None, *hosts], strict=False) if host != before]


def test_what_passes_on_the_first_node_goes_on_to_the_second(fleet: Fleet, good: Run) -> None:
    assert activated(good) == [fleet.first.name, fleet.second.name]
    assert fleet.first.linked("current") == fleet.second.linked("current")
    for node in (fleet.first, fleet.second):
        assert node.read_json(f"{ROOT}/current/verdict.json")["verdict"] == "pass"
        assert node.answer() == "OK"


def test_a_bad_model_stops_at_the_first_node_and_the_second_serves_on(
    fleet: Fleet, good: Run, playbooks: Playbooks, nan_model: Path
) -> None:
    proved, pids = fleet.first.linked("current"), (fleet.first.pid(), fleet.second.pid())
    before = fleet.second.listing()
    run = fleet.roll_out(playbooks, **GOOD, model_profile="tiny-qwen3-nan")
    assert run.rc != 0
    assert "fail: smoke:" in run.failure
    assert f"release {proved} serves again and passed its gate" in run.failure
    assert activated(run) == [fleet.first.name], "a batch of which no node is left ends the roll-out"
    assert (fleet.first.linked("current"), fleet.first.answer()) == (proved, "OK")
    assert fleet.first.pid() != pids[0]
    # Only the weights had come, beside those that serve.
    changed = difference(before, fleet.second.listing())
    assert [path for path in changed if not path.startswith(f"{ROOT}/models")] == []
    assert fleet.second.pid() == pids[1]
    assert fleet.second.answer() == "OK"
