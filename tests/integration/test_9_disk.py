"""A disk that is too small, or full in the midst: said clearly, nothing half-made, the next run goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.harness import ROOT, Node, Playbooks, inventory_of, lab

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

ENOUGH = "5g"  # the wheels, the environment and what preflight wants to spare, but no half-made one beside it
PACKAGES = f"{ROOT}/venvs/*/lib/python3*/site-packages/*.dist-info"


@pytest.fixture(scope="module")
def small(node: Node) -> Iterator[Node]:
    """A bare host with a file system of its own, of one GiB, where the deployment goes."""
    lab("up", "node3")
    third = Node("node3")
    third.run("mkdir", ROOT)
    third.run("mount", "-t", "tmpfs", "-o", "size=1g,mode=755", "tmpfs", ROOT)
    yield third
    lab("down", "node3")


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return inventory_of(tmp_path_factory.mktemp("small") / "inventory", "node3")


def resize(node: Node, size: str) -> None:
    node.run("mount", "-o", f"remount,size={size}", ROOT)


def fill(node: Node) -> None:
    """Leave the file system hardly any room, while others write to it."""
    size = f"$(( $(df --block-size=1 --output=used {ROOT} | tail -n 1) + (16 << 20) ))"
    node.run("timeout", "10", "sh", "-c", f"until mount -o remount,size={size} {ROOT}; do :; done")


def test_a_disk_that_is_too_small_is_refused_before_anything_is_brought(
    small: Node, inventory: Path, playbooks: Playbooks
) -> None:
    run = playbooks.run("site.yml", inventory=inventory)
    assert run.rc != 0
    assert f"1.0 GiB free at {ROOT}; what is to come needs " in run.failure
    assert run.changed == {}
    assert list(small.listing(ROOT)) == [ROOT]


def test_a_disk_that_is_full_in_the_midst_leaves_nothing_half_made(
    small: Node, inventory: Path, playbooks: Playbooks
) -> None:
    resize(small, ENOUGH)
    filled: list[bool] = []

    def fill_once() -> bool:
        if not filled and small.run("sh", "-c", f"ls -d {PACKAGES} 2>/dev/null; true"):
            fill(small)
            filled.append(True)
        return False  # the run is not killed

    run = playbooks.run("site.yml", inventory=inventory, kill_when=fill_once)
    assert filled
    assert run.rc != 0
    assert "No space left on device" in run.failure
    assert small.linked("current") is None
    assert not small.exists("/etc/systemd/system/sglang.service")
    assert not small.exists("/run/smokestack/lease.json")
    left = small.listing(f"{ROOT}/releases", f"{ROOT}/venvs")
    assert not [path for path in left if path.startswith(f"{ROOT}/releases/")]
    assert not [path for path in left if path.endswith("/smokestack.json")]


def test_a_half_made_environment_is_pruned_and_the_next_run_goes_through(
    small: Node, inventory: Path, playbooks: Playbooks
) -> None:
    resize(small, ENOUGH)
    refused = playbooks.run("site.yml", inventory=inventory)
    assert refused.rc != 0
    assert "releases.yml -e release_prune=true -e release_keep=1" in refused.failure
    pruned = playbooks.run(
        "releases.yml", inventory=inventory, variables={"release_prune": True, "release_keep": 1}
    )
    assert pruned.rc == 0, pruned.failures
    run = playbooks.run("site.yml", inventory=inventory)
    assert run.rc == 0, run.failures
    assert "ansible.builtin.unarchive" not in run.actions, "wheels that were there were sent again"
    assert small.answer() == "OK"
