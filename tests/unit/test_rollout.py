"""A change goes over the nodes in batches after one canary, and stops when too many have failed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from rollout import batch_problems, batches, rollout_problems


@pytest.mark.parametrize(
    ("wanted", "sizes"),
    [
        ([1], ["1", "1"]),
        ([2, "50%"], ["1", "2", "50%"]),
        ("2, 50%", ["1", "2", "50%"]),
        ("4", ["1", "4"]),
        (3, ["1", "3"]),
    ],
)
def test_one_node_goes_first_whatever_the_batches_are(wanted: Any, sizes: list[str]) -> None:
    assert batches(wanted) == sizes


@pytest.mark.parametrize("wanted", [[], "", "0", "-1", "half", [2, "x%"], "2 3", [None]])
def test_other_batches_are_refused_by_name(wanted: Any) -> None:
    with pytest.raises(ValueError, match="rollout_batches must list numbers of nodes or percentages"):
        batches(wanted)
    assert len(batch_problems(wanted, given=["rollout_batches"])) == 1


def test_batches_of_the_inventory_would_not_be_seen_and_are_refused() -> None:
    assert batch_problems(None, given=[]) == []
    assert batch_problems("2", given=["rollout_batches"]) == []
    [problem] = batch_problems("2", given=["stack"])
    assert "from the command line alone" in problem


HOSTS = ["n1", "n2", "n3", "n4"]


@pytest.mark.parametrize(
    ("left", "most", "stops"),
    [
        pytest.param(HOSTS, 0, False, id="none failed"),
        pytest.param(HOSTS[1:], 0, True, id="one failed, none may"),
        pytest.param(HOSTS[1:], "25", False, id="as many as may"),
        pytest.param(HOSTS[2:], 25, True, id="more than may"),
        pytest.param([], 100, False, id="all may"),
    ],
)
def test_a_roll_out_stops_when_more_nodes_failed_than_may(left: list[str], most: Any, stops: bool) -> None:
    assert bool(rollout_problems(HOSTS, left, most)) is stops


def test_a_roll_out_that_stops_says_which_nodes_failed() -> None:
    [problem] = rollout_problems(HOSTS, ["n2", "n4"], 10)
    assert "2 of 4 nodes failed (n1, n3), rollout_max_fail_percentage is 10" in problem


# --- the play itself, with nodes that do nothing but fail ----------------------------------------

REPO = Path(__file__).parents[2]


def touched(folder: Path, failing: list[str], *options: str) -> list[list[str]]:
    """The nodes that a roll-out over six reaches, batch by batch, as the play of deploy.yml does it."""
    plays = yaml.safe_load((REPO / "playbooks/deploy.yml").read_text())
    [play] = [play for play in plays if "serial" in play]
    stop = play["tasks"][0]
    change = [
        {
            "ansible.builtin.lineinfile": {
                "path": "touched",
                "line": "{{ ansible_play_batch | join(' ') }}",
                "create": True,
            }
        },
        {"ansible.builtin.fail": {"msg": "bad"}, "when": "inventory_hostname in failing"},
    ]
    keys = {key: value for key, value in play.items() if key != "become"}
    (folder / "play.yml").write_text(yaml.safe_dump([keys | {"tasks": [stop, *change]}]))
    hosts = {f"n{number}": {"ansible_connection": "local"} for number in range(1, 7)}
    inventory = {"sglang_nodes": {"hosts": hosts, "vars": {"failing": failing}}}
    (folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
    command = [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.yml", "play.yml", *options]
    environment = os.environ | {
        "ANSIBLE_CONFIG": str(REPO / "ansible.cfg"),
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
    }
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == bool(failing), done.stdout + done.stderr
    return [line.split() for line in (folder / "touched").read_text().splitlines()]


BATCHES = ("-e", "rollout_batches=2,50%")
BY_TWO = [["n1"], ["n2", "n3"], ["n4", "n5", "n6"]]


@pytest.mark.parametrize(
    ("failing", "options", "reached"),
    [
        pytest.param([], (), [[f"n{number}"] for number in range(1, 7)], id="one by one"),
        pytest.param([], BATCHES, BY_TWO, id="batches", marks=pytest.mark.full),
        pytest.param(["n1"], BATCHES, BY_TWO[:1], id="a bad stack stops at the canary"),
        pytest.param(
            ["n1"],
            (*BATCHES, "-e", "rollout_max_fail_percentage=90"),
            BY_TWO[:1],
            id="whatever may fail",
            marks=pytest.mark.full,
        ),
        pytest.param(["n2"], BATCHES, BY_TWO[:2], id="one failure stops it"),
        pytest.param(["n2"], (*BATCHES, "-e", "rollout_max_fail_percentage=20"), BY_TWO, id="one may fail"),
    ],
)
def test_the_play_reaches(
    failing: list[str], options: tuple[str, ...], reached: list[list[str]], tmp_path: Path
) -> None:
    assert touched(tmp_path, failing, *options) == reached
