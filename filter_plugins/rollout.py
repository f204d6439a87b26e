"""How a change goes over the nodes: one node first, then batches, until too many have failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.utils.vars import load_extra_vars

BATCH = re.compile(r"[1-9]\d*%?")


def batches(wanted: Any) -> list[str]:
    """The sizes of batches for `serial`: one node, then `wanted`, whose last entry goes on to the end.

    `wanted` is a list of numbers of nodes and of percentages of all of them, or that as text with commas.
    """
    entries = wanted.split(",") if isinstance(wanted, str) else wanted
    entries = [str(entry).strip() for entry in (entries if isinstance(entries, (list, tuple)) else [entries])]
    wrong = [entry for entry in entries if not BATCH.fullmatch(entry)]
    if wrong or not entries:
        raise ValueError(
            f"rollout_batches must list numbers of nodes or percentages, such as 2,50%, not {wanted!r}"
        )
    return ["1", *entries]


def batch_problems(wanted: Any, given: Sequence[str] | None = None) -> list[str]:
    """Why `wanted`, the roll-out's batches as a host sees them, cannot be followed; None stands for not set.

    A play learns its batches before it has hosts, so an inventory cannot set them. `given` are the names of
    the variables on the command line, read from there unless given.
    """
    if wanted is None:
        return []
    if "rollout_batches" not in (load_extra_vars(DataLoader()) if given is None else given):
        return ["rollout_batches is read from the command line alone: -e rollout_batches=2,50%"]
    try:
        batches(wanted)
    except ValueError as error:
        return [str(error)]
    return []


def rollout_problems(hosts: Sequence[str], left: Sequence[str], most: float | str) -> list[str]:
    """Why the roll-out must not go on: more than `most` percent of its `hosts` are no longer `left`."""
    failed = [host for host in hosts if host not in left]
    if 100 * len(failed) <= float(most) * len(hosts):
        return []
    return [
        f"the roll-out stops: {len(failed)} of {len(hosts)} nodes failed ({', '.join(failed)}), "
        f"rollout_max_fail_percentage is {float(most):g}. What serves on this node was not touched"
    ]


class FilterModule:
    """Filters about the roll-out."""

    def filters(self) -> dict[str, Any]:
        return {"batches": batches, "batch_problems": batch_problems, "rollout_problems": rollout_problems}
