"""The plan, time without service, named rollbacks, retention, uninstalling, servers of others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from integration.harness import ROOT, Node, Playbooks, Run, difference, wait_for

THIRD = {"sglang_server_options": {"max_running_requests": 4}}
OPTION = "--max-running-requests"
UNIT = "/etc/systemd/system/sglang.service"


def releases(node: Node) -> set[str]:
    return set(node.run("ls", f"{ROOT}/releases").split())


# --- the plan --------------------------------------------------------------------------------------


def test_the_plan_names_what_would_change_and_shows_it_against_what_runs(
    deployed: Node, playbooks: Playbooks
) -> None:
    launch = deployed.read_json(f"{ROOT}/current/manifest.json")["launch"]
    now = launch[launch.index(OPTION) + 1] if OPTION in launch else "none"
    before, pid = deployed.listing(), deployed.pid()
    run = playbooks.run("site.yml", "--check --diff", variables=THIRD)
    assert run.rc == 0, run.failures
    lines = run.told
    assert f"launch option {OPTION}: {now} -> 4" in lines
    assert "to copy to the node: 0 wheels, 0 bytes; 0 files of the model, 0 bytes" in lines
    assert any(line.startswith("restart: sglang.service") for line in lines)
    assert not any(line.startswith(("stack:", "model:", "torch:", "other packages:")) for line in lines)
    [diff] = [result["diff"] for action, result in run.results() if action == "release_folder"]
    gone = set(diff["before"].splitlines()) - set(diff["after"].splitlines())
    assert not [line for line in gone if "==" in line], "a package would change"
    assert f"{OPTION} 4" in diff["after"]
    assert f"{OPTION} 4" not in diff["before"]
    assert (f"{OPTION} {now}" in diff["before"]) is (now != "none")
    assert "ExecStart=" in diff["before"]
    assert difference(before, deployed.listing()) == {}
    assert deployed.pid() == pid


# --- time without service --------------------------------------------------------------------------


def test_an_upgrade_records_how_long_the_node_did_not_serve(upgraded: Node) -> None:
    verdict = upgraded.read_json(f"{ROOT}/current/verdict.json")
    outage = verdict["not_serving"]
    assert 1 < outage["until_ready_s"] < outage["until_verdict_s"] < 300
    first = upgraded.read_json(f"{ROOT}/previous/verdict.json")
    assert "not_serving" not in first, "nothing served before the first deployment"


# --- rollback --------------------------------------------------------------------------------------


def test_a_release_that_there_is_not_is_refused_with_those_that_there_are(
    upgraded: Node, playbooks: Playbooks
) -> None:
    pid = upgraded.pid()
    run = playbooks.run("rollback.yml", variables={"release": "cpu-demo.tiny-qwen3.nosuch"})
    assert run.rc != 0
    assert all(name in run.failure for name in releases(upgraded))
    assert run.changed == {}
    assert upgraded.pid() == pid


def test_a_rollback_to_a_named_release_is_gated_and_tells_the_time_without_service(
    upgraded: Node, playbooks: Playbooks
) -> None:
    current, previous = upgraded.linked("current"), upgraded.linked("previous")
    run = playbooks.run("rollback.yml", variables={"release": previous})
    assert run.rc == 0, run.failures
    assert (upgraded.linked("current"), upgraded.linked("previous")) == (previous, current)
    assert "llm_gate" in run.actions
    assert any(line.startswith("not serving: ") for line in run.told)
    assert upgraded.read_json(f"{ROOT}/current/verdict.json")["not_serving"]["until_verdict_s"] > 1
    assert upgraded.answer() == "OK"


@pytest.mark.parametrize(
    "made_up",
    [{"gate_report": {"verdict": "pass"}}, {"sglang_server_release": "x"}, {"__gate_node": {}}],
    ids=lambda made_up: next(iter(made_up)),
)
def test_what_a_run_finds_out_itself_cannot_be_given_to_it(
    made_up: dict[str, Any], upgraded: Node, playbooks: Playbooks
) -> None:
    run = playbooks.run("rollback.yml", variables=made_up)
    assert run.rc != 0
    assert f"variable '{next(iter(made_up))}' is set by the run itself" in run.failure
    assert run.changed == {}


# --- the list, pins and retention ------------------------------------------------------------------


def test_the_releases_are_listed_and_one_is_pinned_once(upgraded: Node, playbooks: Playbooks) -> None:
    current, previous = upgraded.linked("current"), upgraded.linked("previous")
    runs = [playbooks.run("releases.yml", variables={"pin": previous}) for _ in range(2)]
    assert [run.rc for run in runs] == [0, 0], runs[0].failures
    assert [run.changed.get("node1", 0) for run in runs] == [1, 0]
    lines = runs[1].told
    [line] = [line for line in lines if line.startswith(f"{current} (current, running); pass at ")]
    assert "stack cpu-demo, model tiny-qwen3-" in line
    assert any(line.startswith(f"{previous} (previous, pinned); pass at ") for line in lines)
    assert any(line.startswith("disk: ") for line in lines)
    before = upgraded.listing()
    assert playbooks.run("releases.yml").changed == {}
    assert difference(before, upgraded.listing()) == {}


@pytest.mark.full
def test_what_is_no_longer_kept_goes_and_a_pinned_release_stays(upgraded: Node, playbooks: Playbooks) -> None:
    first, second = upgraded.linked("current"), upgraded.linked("previous")
    assert first
    assert second
    run = playbooks.run("site.yml", variables={**THIRD, "release_keep": 1})
    assert run.rc == 0, run.failures
    third = upgraded.linked("current")
    assert third
    assert {first, second, third} <= releases(upgraded), "current, previous and pinned stay"
    run = playbooks.run("releases.yml", variables={"unpin": second, "release_prune": True, "release_keep": 1})
    assert run.rc == 0, run.failures
    assert releases(upgraded).isdisjoint({second})
    assert {first, third} <= releases(upgraded)
    assert upgraded.answer() == "OK"
    again = playbooks.run("releases.yml", variables={"release_prune": True, "release_keep": 1})
    assert again.changed == {}


# --- a failure that cannot be recorded -------------------------------------------------------------


@pytest.mark.full
def test_a_verdict_that_cannot_be_written_is_told_as_it_is(upgraded: Node, playbooks: Playbooks) -> None:
    proved = upgraded.linked("current")
    mounted: list[str] = []

    def seal_off(result: dict[str, Any]) -> None:
        candidate = upgraded.linked("current")
        if result.get("phase") == "ready" and candidate != proved and not mounted:
            folder = f"{ROOT}/releases/{candidate}"
            mounted.append(folder)
            upgraded.run("mount", "--bind", folder, folder)
            upgraded.run("mount", "-o", "remount,bind,ro", folder)

    options = {"sglang_server_options": {"max_running_requests": 6}}
    run = playbooks.run("site.yml", variables=options, on_result=seal_off)
    for folder in mounted:
        upgraded.run("umount", folder)
    assert mounted
    assert run.rc != 0
    assert "the state of the releases was not written" in run.failure
    assert "the node could not go back" in run.failure
    assert "failed as well" not in run.failure
    assert upgraded.unit()["ActiveState"] == "inactive"
    run = playbooks.run("rollback.yml", variables={"release": proved})
    assert run.rc == 0, run.failures
    assert upgraded.linked("current") == proved
    assert upgraded.answer() == "OK"


# --- a run that is killed --------------------------------------------------------------------------


def is_sealed(node: Node, before: set[str], _pid: str) -> bool:
    return bool({name for name in releases(node) - before if not name.startswith(".")})


def is_switched(node: Node, before: set[str], _pid: str) -> bool:
    return node.linked("current") not in before


def is_restarted(node: Node, _before: set[str], pid: str) -> bool:
    return node.unit()["MainPID"] not in (pid, "0")


def is_gated(node: Node, before: set[str], pid: str) -> bool:
    gated = node.run("sh", "-c", f"test /run/smokestack/gate.json -nt {ROOT}/current && echo yes; true")
    return is_switched(node, before, pid) and gated == "yes\n"


def is_proved(node: Node, before: set[str], pid: str) -> bool:
    return is_switched(node, before, pid) and node.exists(f"{ROOT}/current/proved")


@pytest.mark.full
@pytest.mark.parametrize(
    ("number", "reached"),
    list(enumerate((is_sealed, is_switched, is_restarted, is_gated, is_proved), 10)),
    ids=["sealed", "switched", "restarted", "gated", "proved"],
)
def test_a_run_that_is_killed_once_its_release_is(
    number: int, reached: Callable[[Node, set[str], str], bool], upgraded: Node, playbooks: Playbooks
) -> None:
    options = {"sglang_server_options": {"max_running_requests": number}, "release_keep": 9}
    before, pid = releases(upgraded), upgraded.pid()
    killed = playbooks.run("site.yml", variables=options, kill_when=lambda: reached(upgraded, before, pid))
    assert not killed.stats, "the run came to its end before it was killed"
    upgraded.end_lease()
    run = playbooks.run("site.yml", variables=options)
    assert run.rc == 0, run.failures
    [made] = releases(upgraded) - before
    assert upgraded.linked("current") == made
    assert upgraded.linked("previous") in before
    assert upgraded.exists(f"{ROOT}/current/proved")
    assert not upgraded.exists(f"{ROOT}/trial.json")
    assert upgraded.answer() == "OK"


# --- uninstalling ----------------------------------------------------------------------------------


@pytest.fixture
def held(deployed: Node) -> Iterator[Node]:
    """The node while somebody else's run holds it."""
    lease = {"run": "other", "holder": "somebody@elsewhere", "expires": 1e9}
    deployed.run("mkdir", "-p", "/run/smokestack")
    deployed.run("sh", "-c", "cat > /run/smokestack/lease.json", input=json.dumps(lease))
    yield deployed
    deployed.run("rm", "/run/smokestack/lease.json")


def test_a_node_that_another_run_changes_is_not_uninstalled(held: Node, playbooks: Playbooks) -> None:
    pid, before = held.pid(), held.listing()
    for options in ("", "--check"):
        run = playbooks.run("uninstall.yml", options)
        assert run.rc != 0
        assert "this node is being changed by somebody@elsewhere" in run.failure
        assert run.changed == {}
    assert difference(before, held.listing()) == {}
    assert held.read_json("/run/smokestack/lease.json")["run"] == "other"
    assert held.pid() == pid


@pytest.fixture(scope="module")
def uninstalled(deployed: Node, playbooks: Playbooks) -> tuple[Node, Run, Run]:
    """The node after an uninstallation, that run, and the one in check mode before it."""
    before, pid = deployed.listing(), deployed.pid()
    check = playbooks.run("uninstall.yml", "--check --diff")
    assert check.rc == 0, check.failures
    assert difference(before, deployed.listing()) == {}
    assert deployed.pid() == pid
    assert f"would be removed: {ROOT}/releases" in check.told
    assert not [line for line in check.told if line.startswith("removed: ")]
    run = playbooks.run("uninstall.yml")
    assert run.rc == 0, run.failures
    return deployed, run, check


def test_an_uninstallation_leaves_nothing_but_the_weights(uninstalled: tuple[Node, Run, Run]) -> None:
    node, run, check = uninstalled
    assert node.unit()["ActiveState"] == "inactive"
    for path in (UNIT, f"{UNIT}.d", "/var/lib/sglang", "/var/cache/sglang", "/run/sglang", "/run/smokestack"):
        assert not node.exists(path), path
    assert node.run("ls", "-A", ROOT).split() == ["models"]
    assert "sglang" not in node.run("cut", "-d:", "-f1", "/etc/passwd", "/etc/group").split()
    assert node.health() == "000"
    assert f"removed: {ROOT}/releases" in run.told
    assert any(line.startswith(f"left: {ROOT}/models (weights") for line in run.told)
    said, seen = (
        next(result["removed"] for action, result in one.results() if action == "path_removal")
        for one in (check, run)
    )
    assert set(seen) <= set(said), "check mode named it before"


def test_a_second_uninstallation_changes_nothing_and_weights_go_when_asked(
    uninstalled: tuple[Node, Run, Run], playbooks: Playbooks
) -> None:
    node = uninstalled[0]
    before = node.listing()
    again = playbooks.run("uninstall.yml")
    assert (again.rc, again.changed) == (0, {}), again.failures
    assert difference(before, node.listing()) == {}
    run = playbooks.run("uninstall.yml", variables={"uninstall_weights": True})
    assert run.rc == 0, run.failures
    assert not node.exists(ROOT)


# --- servers of others -----------------------------------------------------------------------------


@pytest.fixture
def by_hand(uninstalled: tuple[Node, Run, Run]) -> Iterator[Node]:
    """The node with a server that somebody set up by hand: a program of that name that only sleeps."""
    node = uninstalled[0]
    folder = "/srv/hand/sglang"
    unit = f"[Service]\nExecStart=/usr/bin/python3 {folder}/launch_server.py\n"
    node.run("mkdir", "-p", folder)
    node.run("sh", "-c", f"cat > {folder}/launch_server.py", input="import time\ntime.sleep(3600)\n")
    node.run("sh", "-c", "cat > /etc/systemd/system/my-llm.service", input=unit)
    node.run("systemctl", "daemon-reload")
    node.run("systemctl", "start", "my-llm.service")
    yield node
    node.run("systemctl", "stop", "my-llm.service")
    node.run("rm", "-r", "/srv/hand", "/etc/systemd/system/my-llm.service")
    node.run("systemctl", "daemon-reload")


def test_a_server_that_was_set_up_by_hand_is_named_before_anything_is_changed(
    by_hand: Node, playbooks: Playbooks
) -> None:
    before = by_hand.listing()
    run = playbooks.run("site.yml")
    assert run.rc != 0
    assert "another SGLang server is here: unit my-llm.service (active" in run.failure
    assert "systemctl disable --now my-llm.service" in run.failure
    assert run.changed == {}
    assert difference(before, by_hand.listing()) == {}
    allowed = playbooks.run("site.yml", "--tags preflight", variables={"preflight_others_ok": True})
    assert allowed.rc == 0, allowed.failures


def test_a_unit_of_our_name_that_is_not_ours_is_not_written_over_nor_uninstalled(
    by_hand: Node, playbooks: Playbooks
) -> None:
    by_hand.run("cp", "/etc/systemd/system/my-llm.service", UNIT)
    by_hand.run("systemctl", "daemon-reload")
    by_hand.run("systemctl", "start", "sglang.service")
    wait_for(lambda: by_hand.unit()["ActiveState"] == "active", "the foreign unit")
    pid, before = by_hand.pid(), by_hand.listing()
    run = playbooks.run("site.yml")
    assert f"{UNIT} is not Smokestack's and would be written over" in run.failure
    run = playbooks.run("uninstall.yml")
    assert run.rc == 0, run.failures
    assert f"left: {UNIT}, which is not ours" in run.told
    assert difference(before, by_hand.listing()) == {}
    assert by_hand.pid() == pid
    by_hand.run("systemctl", "stop", "sglang.service")
    by_hand.run("rm", UNIT)
