"""An offline kit carries a stack to a controller that reaches no index; a node is made of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from integration.conftest import SECOND
from integration.harness import REPO, ROOT, Node, Playbooks, Run, difference, inventory_of, wait_for

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

MADE = (".git", ".venv", "build", "reports", ".*_cache", "__pycache__", ".ansible")  # no part of a clone
LOCK = "cpu-demo.cp311-linux_x86_64.lock"
LEASE = "/run/smokestack/lease.json"
UNREACHABLE = "http://127.0.0.1:9"  # nobody listens there


@dataclass(frozen=True)
class Island:
    """A controller of its own: a clean clone and an empty cache, cut off from every index."""

    clone: Path
    cache: Path
    inventory: Path

    @property
    def house(self) -> Path:
        return self.cache / "smokestack/wheelhouse"

    def environment(self, index: str = UNREACHABLE) -> dict[str, str]:
        """All that pip asks for goes to `index`, that of a stack's own indexes by way of a proxy."""
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), index)
        return {
            **proxies,
            "ANSIBLE_CONFIG": str(self.clone / "ansible.cfg"),
            "XDG_CACHE_HOME": str(self.cache),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DEFAULT_TIMEOUT": "600",
            "PIP_EXTRA_INDEX_URL": "",
            "PIP_FIND_LINKS": "",
            "PIP_INDEX_URL": index,
            "PIP_RETRIES": "0",
        }


@pytest.fixture(scope="module")
def island(tmp_path_factory: pytest.TempPathFactory) -> Island:
    folder = tmp_path_factory.mktemp("island")
    shutil.copytree(REPO, folder / "clone", ignore=shutil.ignore_patterns(*MADE), symlinks=True)
    return Island(folder / "clone", folder / "cache", inventory_of(folder / "inventory", "node2"))


@dataclass(frozen=True)
class Controller:
    """Runs the island's playbooks."""

    island: Island
    playbooks: Playbooks

    def run(self, playbook: str, variables: dict[str, Any] | None = None) -> Run:
        return self.playbooks.run(
            self.island.clone / playbook,
            variables=variables,
            inventory=self.island.inventory,
            environment=self.island.environment(),
        )


@pytest.fixture(scope="module")
def controller(island: Island, playbooks: Playbooks) -> Controller:
    return Controller(island, playbooks)


@pytest.fixture(scope="module")
def kit(playbooks: Playbooks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kit, from the builder's wheelhouse."""
    path = tmp_path_factory.mktemp("usb") / "cpu-demo.kit.tar"
    run = playbooks.run("kit.yml", variables={"stack": "cpu-demo", "kit_export": str(path)})
    assert run.rc == 0, run.failures
    return path


@contextlib.contextmanager
def silent_index() -> Iterator[str]:
    """An index that takes connections and never answers; then it is gone, and the connections with it."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_run_that_waits_for_an_index_renews_its_lease_and_ends_clearly_without_one(
    second_node: Node, island: Island, playbooks: Playbooks
) -> None:
    before = second_node.listing()
    expiries: dict[str, set[float]] = {}

    def is_renewed() -> bool:
        if second_node.exists(LEASE):
            lease = second_node.read_json(LEASE)
            expiries.setdefault(lease["run"], set()).add(lease["expires"])
        return any(len(seen) > 3 for seen in expiries.values())

    with silent_index() as index:
        run = playbooks.start(
            island.clone / "site.yml", inventory=island.inventory, environment=island.environment(index)
        )
        wait_for(lambda: run.done() or is_renewed(), "three renewals while it downloads", seconds=420)
        assert not run.done(), run.result().failures
    ended = run.result()
    assert ended.rc != 0
    assert "could not be downloaded" in ended.failure
    assert "does not answer" in ended.failure
    assert len(expiries) == 1
    assert not second_node.exists(LEASE)
    assert difference(before, second_node.listing()) == {}
    assert not list(island.house.glob("*.whl"))


@pytest.fixture(scope="module")
def imported(controller: Controller, kit: Path) -> list[Run]:
    """Two imports of the kit."""
    return [controller.run("kit.yml", {"kit_import": str(kit)}) for _ in range(2)]


def test_a_kit_is_unpacked_once(imported: list[Run], island: Island) -> None:
    assert [run.rc for run in imported] == [0, 0], imported[0].failures
    assert [run.changed.get("localhost", 0) for run in imported] == [1, 0]
    lock = (REPO / "catalog/stacks" / LOCK).read_text()
    assert {path.name for path in island.house.glob("*.whl")} == {
        line.split()[1] for line in lock.splitlines() if line.startswith("# ") and ".whl " in line
    }


@pytest.fixture(scope="module")
def from_kit(imported: list[Run], second_node: Node, controller: Controller) -> Node:
    """The second node, deployed by the island."""
    assert imported[0].rc == 0
    run = controller.run("site.yml")
    assert run.rc == 0, run.failures
    return second_node


def test_a_node_is_made_of_it_and_passes_its_gate(from_kit: Node) -> None:
    assert from_kit.read_json(f"{ROOT}/current/verdict.json")["verdict"] == "pass"
    assert from_kit.answer() == "OK"


def test_a_release_whose_stack_was_not_locked_says_so(from_kit: Node, controller: Controller) -> None:
    locked = from_kit.linked("current")
    unlocked = controller.island.house / "unlocked"
    unlocked.mkdir()
    (controller.island.clone / "catalog/stacks" / LOCK).rename(unlocked / LOCK)  # as if a run had resolved it
    run = controller.run("site.yml", {**SECOND, "sglang_stack_unlocked_ok": True})
    assert run.rc == 0, run.failures
    assert from_kit.read_json(f"{ROOT}/current/manifest.json")["locked"] is False
    assert from_kit.read_json(f"{ROOT}/previous/manifest.json")["locked"] is True
    lines = controller.run("releases.yml").told
    assert [line.startswith(f"{locked} ") for line in lines if "; stack cpu-demo, model " in line] == [True]
    [line] = [line for line in lines if "; stack cpu-demo (NOT LOCKED when it was made), model " in line]
    assert line.startswith(f"{from_kit.linked('current')} (current, running)")
