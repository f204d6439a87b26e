"""Mistakes are refused with a sentence that says which, before anything is touched."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from integration.harness import REPO, Node, Playbooks, difference

EMPTY = "sglang_nodes:\n  hosts: {}\n"
ELSEWHERE = "routers:\n  hosts:\n    router1: {ansible_host: 192.0.2.1}\n"
LOCK = "cpu-demo.cp311-linux_x86_64.lock"


class Refuse:
    """Runs what has to be refused."""

    def __init__(self, node: Node, playbooks: Playbooks) -> None:
        self._node, self._playbooks = node, playbooks

    def __call__(
        self,
        playbook: str = "site.yml",
        options: str = "",
        variables: dict[str, Any] | None = None,
        **more: Any,
    ) -> str:
        """The refusal; the run failed with it alone and touched nothing."""
        before = self._node.listing(depth=3)
        run = self._playbooks.run(playbook, options, variables, **more)
        assert run.rc != 0
        assert run.changed == {}
        assert difference(before, self._node.listing(depth=3), volatile="") == {}
        [refusal] = run.failures
        return refusal


@pytest.fixture(scope="module")
def refuse(deployed: Node, playbooks: Playbooks) -> Refuse:
    return Refuse(deployed, playbooks)


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """A copy of the catalogue to spoil."""
    return shutil.copytree(REPO / "catalog", tmp_path / "catalog")


@pytest.mark.parametrize(
    ("playbook", "inventory"),
    [("site.yml", EMPTY), ("validate.yml", ELSEWHERE), ("rollback.yml", EMPTY)],
    ids=["site-empty", "validate-undefined", "rollback-empty"],
)
def test_a_group_without_hosts_is_refused(
    playbook: str, inventory: str, refuse: Refuse, tmp_path: Path
) -> None:
    hosts = tmp_path / "hosts.yml"
    hosts.write_text(inventory)
    refusal = refuse(playbook, inventory=hosts)
    assert "no host is in the group sglang_nodes" in refusal
    assert str(hosts) in refusal


def test_a_missing_inventory_is_refused_with_the_way_to_make_one(refuse: Refuse) -> None:
    if (REPO / "inventory/site").exists():
        pytest.skip("this clone has an inventory/site, whose hosts are not for tests")
    assert "Copy inventory/example to inventory/site" in refuse(inventory=None)


def test_a_limit_that_leaves_only_the_controller_is_refused(refuse: Refuse, tmp_path: Path) -> None:
    controller = tmp_path / "controller.yml"
    controller.write_text("all:\n  hosts:\n    localhost: {ansible_connection: local}\n")
    refusal = refuse(options=f"--inventory {controller} --limit localhost")
    assert refusal == "the limit leaves no host of sglang_nodes (node1)"


@pytest.mark.parametrize("limit", ["nosuch", "localhost"])
def test_a_limit_that_matches_nothing_is_an_error(limit: str, deployed: Node, playbooks: Playbooks) -> None:
    run = playbooks.run("site.yml", f"--limit {limit}")
    assert run.rc != 0
    assert run.actions == set()


@pytest.mark.parametrize("limit", ["", "--limit node1"], ids=["whole", "limited"])
def test_misspelt_variables_and_wrong_types_are_refused_all_at_once(limit: str, refuse: Refuse) -> None:
    mistakes = {
        "sglang_server_prot": 30001,
        "stak": "cpu-demo",
        "sglang_server_port": "abc",
        "gate_profile": "fast",
    }
    lines = refuse(options=limit, variables=mistakes).splitlines()
    assert len(lines) == len(mistakes)
    assert "unknown variable 'sglang_server_prot'; did you mean 'sglang_server_port'?" in lines
    assert "unknown variable 'stak'; did you mean 'stack'?" in lines
    assert [line for line in lines if line.startswith("wrong value:") and "sglang_server_port" in line]
    assert [line for line in lines if line.startswith("wrong value:") and "gate_profile" in line]


@pytest.mark.parametrize("limit", ["", "--limit node1"], ids=["whole", "limited"])
def test_misspelt_tags_and_tags_that_must_not_be_skipped_are_refused_all_at_once(
    limit: str, refuse: Refuse
) -> None:
    lines = refuse(options=f"{limit} --tags gaet,model --skip-tags wheelhuose,gate").splitlines()
    assert len(lines) == 3
    assert "did you mean 'gate'?" in lines[0]
    assert "did you mean 'wheelhouse'?" in lines[1]
    assert lines[2].startswith("--skip-tags gate: nothing may serve ungated")


@pytest.mark.parametrize("playbook", ["validate.yml", "rollback.yml"])
def test_tags_are_refused_where_there_are_none(playbook: str, refuse: Refuse) -> None:
    lines = refuse(playbook, "--tags gate --skip-tags model").splitlines()
    assert lines == [
        f"{option}: there is no such tag (this playbook has none)"
        for option in ("--tags gate", "--skip-tags model")
    ]


def test_an_unknown_stack_and_an_unknown_profile_are_refused_together(refuse: Refuse) -> None:
    lines = refuse(variables={"stack": "cpu-dmo", "model_profile": "tiny-qwen"}).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("stack 'cpu-dmo' is not in catalog/stacks")
    assert lines[0].endswith("did you mean 'cpu-demo'?")
    assert lines[1].startswith("model_profile 'tiny-qwen' is not in catalog/models")


def test_a_lock_that_was_made_for_another_stack_is_refused(refuse: Refuse, catalog: Path) -> None:
    stack = catalog / "stacks/cpu-demo.yml"
    stack.write_text(stack.read_text().replace("numpy<2.4", "numpy<2.3"))
    refusal = refuse(variables={"plan_catalog": str(catalog)})
    assert f"catalog/stacks/{LOCK} does not match its stack" in refusal


def test_a_stack_without_a_lock_for_the_node_is_refused_with_the_command_that_makes_it(
    refuse: Refuse, catalog: Path
) -> None:
    (catalog / "stacks" / LOCK).unlink()
    refusal = refuse(variables={"plan_catalog": str(catalog)})
    assert f"stack cpu-demo has no lock for this node (catalog/stacks/{LOCK})" in refusal
    assert (
        "ansible-playbook lock.yml -e stack=cpu-demo -e lock_abi=cp311 -e lock_platform=linux_x86_64"
        in refusal
    )
