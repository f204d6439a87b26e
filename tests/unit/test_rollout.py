"""A change goes over the nodes in batches after one canary, and stops when too many have failed."""

from __future__ import annotations

from typing import Any

import pytest
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
