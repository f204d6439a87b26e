"""A fresh node becomes one that serves, whatever happens on the way; then nothing more is done to it."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from integration.harness import GOOD_MODEL, REPO, ROOT, Node, Playbooks, Run, difference
from unit.rendered import rendered_commands
from unit.sglang_parser import FOLDER, question, read_answer

REPORTS = {"report.json", "junit.xml", "report.md", "report.html", "gate.prom"}


@dataclass(frozen=True)
class Look:
    """A run, and the node before and after it."""

    run: Run
    before: Mapping[str, str]
    after: Mapping[str, str]


@pytest.fixture(scope="module")
def fresh_node(node: Node) -> Node:
    """The node while nothing was deployed yet."""
    if node.linked("current"):
        pytest.skip("something was deployed already: run this file before the others")
    return node


@pytest.fixture(scope="module")
def fresh_check(fresh_node: Node, playbooks: Playbooks) -> Look:
    before = fresh_node.listing()
    run = playbooks.run("site.yml", "--check --diff")
    return Look(run, before, fresh_node.listing())


def test_check_mode_changes_nothing_on_a_fresh_node(fresh_check: Look) -> None:
    assert fresh_check.run.rc == 0, fresh_check.run.failures
    assert difference(fresh_check.before, fresh_check.after, volatile="") == {}


def test_check_mode_says_what_a_fresh_node_will_get_and_that_the_gate_is_not_run(fresh_check: Look) -> None:
    told = fresh_check.run.told
    for wanted in ("stack: none -> cpu-demo", "model: none -> tiny-qwen3", "gate: not run"):
        assert any(wanted in line for line in told), (wanted, told)
    assert fresh_check.run.changed["node1"] > 5


@pytest.fixture(scope="module")
def killed(fresh_node: Node, playbooks: Playbooks) -> Node:
    """The node after a first deployment that was killed in the midst of the installation, on both sides."""

    def is_installing() -> bool:
        return bool(
            fresh_node.run("sh", "-c", f"ls -d {ROOT}/venvs/*/lib/python3*/site-packages/*.dist-info; true")
        )

    run = playbooks.run("site.yml", kill_when=is_installing)
    fresh_node.run("pkill", "--signal", "KILL", "--full", f"AnsiballZ_release_venv|{ROOT}/venvs")
    assert not run.stats, "the run came to its end before it was killed"
    return fresh_node


def test_a_deployment_that_dies_leaves_no_half_release(killed: Node) -> None:
    assert killed.linked("current") is None
    assert not killed.exists("/etc/systemd/system/sglang.service")
    left = killed.listing(f"{ROOT}/releases", f"{ROOT}/venvs")
    assert not [
        path for path in left if path.startswith(f"{ROOT}/releases/") or path.endswith("/smokestack.json")
    ]


def test_a_deployment_that_dies_holds_the_node_for_a_minute_at_most(
    killed: Node, playbooks: Playbooks
) -> None:
    assert 0 < killed.lease_seconds() <= 60
    holder = killed.read_json("/run/smokestack/lease.json")
    before = killed.listing()
    run = playbooks.run("site.yml")
    assert run.rc != 0
    assert holder["holder"] in run.failure
    assert holder["run"] in run.failure
    assert run.changed == {}
    assert difference(before, killed.listing()) == {}
    assert killed.read_json("/run/smokestack/lease.json") == holder


@pytest.fixture(scope="module")
def first(killed: Node, playbooks: Playbooks) -> Run:
    """The first deployment that comes to its end, a minute later."""
    killed.end_lease()
    run = playbooks.run("site.yml")
    assert run.rc == 0, run.failures
    return run


def test_the_next_deployment_carries_on_where_the_dead_one_was(first: Run, killed: Node) -> None:
    assert "ansible.builtin.unarchive" not in first.actions, "wheels that were there were sent again"
    assert killed.answer() == "OK"
    assert killed.exists(f"{ROOT}/current/proved")


def test_a_release_lies_where_it_should_and_records_what_it_is_made_of(deployed: Node) -> None:
    release = deployed.linked("current")
    assert release
    manifest = deployed.read_json(f"{ROOT}/releases/{release}/manifest.json")
    verdict = deployed.read_json(f"{ROOT}/current/verdict.json")
    assert verdict["verdict"] == "pass"
    assert verdict["run_id"]
    venv = deployed.read_json(f"{ROOT}/venvs/{manifest['venv']}/smokestack.json")
    checkpoint = deployed.run("sh", "-c", f"cd {ROOT}/current/model && sha256sum *")
    on_node = {name: sha256 for sha256, name in (line.split() for line in checkpoint.splitlines())}
    assert manifest["checkpoint"] == on_node
    assert set(on_node) == {path.name for path in GOOD_MODEL.iterdir()}
    assert manifest["parts"]["venv"]["wheels"] == venv["wheels"]
    lock = (REPO / "catalog/stacks/cpu-demo.cp311-linux_x86_64.lock").read_text()
    from_lock = {name for name, sha256 in venv["wheels"].items() if sha256 in lock}
    assert len(venv["wheels"]) - len(from_lock) == 1, "only the kernel's wheel is not in the lock"
    assert manifest["kernel"]["sha256"] == venv["wheels"][manifest["kernel"]["file"]]


def test_the_server_runs_as_its_own_user_and_starts_at_boot(deployed: Node) -> None:
    owner = deployed.run("stat", "--format", "%U", f"/proc/{deployed.pid()}").strip()
    unit = deployed.unit()
    assert (owner, unit["User"], unit["UnitFileState"]) == ("sglang", "sglang", "enabled")


def test_systemd_finds_no_fault_in_the_unit_and_little_exposure(deployed: Node) -> None:
    deployed.run("systemd-analyze", "verify", "--recursive-errors=yes", "sglang.service")
    deployed.run("systemd-analyze", "security", "--no-pager", "--threshold=25", "sglang.service")


def test_the_server_runs_with_the_arguments_that_its_release_asked_for(deployed: Node) -> None:
    asked = deployed.read_json(f"{ROOT}/current/manifest.json")["asked"]
    live = json.loads(deployed.run("curl", "--silent", "http://127.0.0.1:30000/server_info"))
    assert {"attention_backend", "context_length", "port"} <= asked.keys()
    assert {name: live[name] for name in asked} == asked


def test_sglangs_own_parser_takes_every_command_of_the_catalogue(deployed: Node) -> None:
    commands = rendered_commands("0.5.9")
    assert len(commands) > 5
    told = read_answer(deployed.run(*question(f"{ROOT}/current/venv/bin/python", commands)))
    assert (told["version"], told["refused"]) == ("0.5.9", {})
    assert told["options"] == json.loads((FOLDER / "0.5.9.json").read_text())


def test_nothing_of_the_server_can_be_reached_from_another_machine(deployed: Node) -> None:
    listening = {line.split()[3] for line in deployed.run("ss", "-Hltn").splitlines()}
    assert "127.0.0.1:30000" in listening
    ports = {int(address.rpartition(":")[2]) for address in listening}
    assert {port for port in ports if accepts(deployed.address, port)} == {22}


def accepts(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=0.5).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def second(deployed: Node, playbooks: Playbooks) -> tuple[Look, str, str]:
    """A run that finds nothing to do, and the server's process before and after it."""
    pid, before = deployed.pid(), deployed.listing()
    run = playbooks.run("site.yml")
    return Look(run, before, deployed.listing()), pid, deployed.pid()


def test_a_second_run_changes_nothing(second: tuple[Look, str, str]) -> None:
    look, pid_before, pid_after = second
    assert look.run.rc == 0, look.run.failures
    assert look.run.changed == {}
    assert pid_after == pid_before
    assert difference(look.before, look.after) == {}


@pytest.fixture(scope="module")
def validated(deployed: Node, playbooks: Playbooks) -> Look:
    """validate.yml as users type it: in the project's folder, which needs no ANSIBLE_CONFIG."""
    before = deployed.listing()
    run = playbooks.run("validate.yml", cwd=REPO, environment={"ANSIBLE_CONFIG": ""})
    return Look(run, before, deployed.listing())


def test_validate_passes_and_leaves_the_node_as_it_is(validated: Look) -> None:
    assert validated.run.rc == 0, validated.run.failures
    assert validated.run.changed == {}
    assert "/run/smokestack/lease.json" not in validated.after
    assert difference(validated.before, validated.after) == {}


def test_validate_saves_its_reports_on_the_controller(validated: Look, playbooks: Playbooks) -> None:
    newest = max((playbooks.reports / "node1").iterdir(), key=lambda folder: folder.stat().st_mtime)
    assert {path.name for path in newest.iterdir()} == REPORTS


def test_a_rollback_needs_a_release_to_go_back_to(deployed: Node, playbooks: Playbooks) -> None:
    if deployed.linked("previous"):
        pytest.skip("there is one already: run this file before the others")
    pid = deployed.pid()
    run = playbooks.run("rollback.yml")
    assert run.rc != 0
    assert "no previous release" in run.failure
    assert run.changed == {}
    assert deployed.pid() == pid
