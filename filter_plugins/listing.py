"""The releases of a node in words, and the choice of one to go back to."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

STATES = ("current", "previous", "trial", "running", "pinned")
GIB = 1 << 30
MIB = 1 << 20


def size(count: float) -> str:
    """A number of bytes for people, in binary units."""
    return f"{count / GIB:.2f} GiB" if count >= GIB else f"{count / MIB:.1f} MiB"


def verdict_text(release: Mapping[str, Any]) -> str:
    """What the gate said of a release last, and when."""
    if not release["verdict"]:
        return "not gated"
    text = f"{release['verdict']} at {release['finished']}"
    outage = (release["not_serving"] or {}).get("until_verdict_s")
    return text if outage is None else f"{text}, not serving for {outage:.0f} s"


def release_lines(releases: Sequence[Mapping[str, Any]], disk: Mapping[str, Any]) -> list[str]:
    """The releases of a node as `release_list` gives them with `measure`, a line each, then the disk."""
    lines = []
    for release in releases:
        states = [state for state in STATES if release[state]]
        unlocked = " (NOT LOCKED when it was made)" if release["locked"] is False else ""
        parts = (
            f"{release['name']} ({', '.join(states) or 'kept'})",
            verdict_text(release),
            f"stack {release['stack']}{unlocked}, model {release['model']}",
            f"made {release['made']}",
            f"environment {size(release['venv_bytes'])}, model {size(release['model_bytes'])}",
        )
        lines.append("; ".join(parts))
    if not releases:
        lines.append("no release")
    lines.append(f"disk: {size(disk['bytes'])} in all, shared files counted once; {size(disk['free'])} free")
    for model, taken in disk["unused_models"].items():
        lines.append(f"model {model} is used by no release: {size(taken)}")
    return lines


def outage_text(not_serving: Mapping[str, float | None] | None) -> str:
    """How long a node did not serve, as `release_switch` measured it."""
    if not_serving is None:
        return "nothing was serving before, so no time without service was measured"
    ready, verdict = not_serving["until_ready_s"], not_serving["until_verdict_s"]
    health = (
        "its health route did not answer again" if ready is None else f"{ready:.1f} s until /health said 200"
    )
    return f"not serving: {health}, {verdict:.1f} s until the gate's verdict"


def undo_text(current: str | None, tried: str, task: str, reason: str) -> str:
    """What is the case after going back failed; `current` is current now, `tried` was on trial."""
    if current == tried:
        state = f"the node could not go back: {tried} is still current, but not proved"
    elif current is None:
        state = "no release is current"
    else:
        state = f"release {current} is current again, but does not serve"
    return f"{state}, since the task {task!r} failed: {reason.rstrip('.')}. sglang.service is stopped"


def rollback_problems(
    wanted: str | None, releases: Sequence[Mapping[str, Any]], facts: Mapping[str, Any], node: str
) -> list[str]:
    """Why a node cannot go back: to the release `wanted`, or to the previous one where none is named.

    `facts` are those of `release_switch`.
    """
    names = [release["name"] for release in releases]
    if wanted:
        if wanted in names:
            return []
        near = difflib.get_close_matches(wanted, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        there = ", ".join(names) or "none"
        return [f"{node} has no release {wanted!r}; it has: {there}{hint}. Nothing was changed"]
    if facts["previous"] is None:
        others = [name for name in names if name != facts["current"]]
        hint = f". Name one with -e release=NAME: {', '.join(others)}" if others else ""
        return [
            f"{node} has no previous release to go back to (current: {facts['current'] or 'none'}); "
            f"nothing was changed{hint}"
        ]
    return []


def uninstall_lines(
    foreign: Mapping[str, Any], removed: Sequence[str], left: Sequence[str], root: str, check: bool = False
) -> list[str]:
    """What an uninstallation took off, or in check mode would take off, and what it left.

    `foreign` are the facts of `foreign_servers`.
    """
    done = "would be removed" if check else "removed"
    lines = [f"{done}: {path}" for path in removed] or ["nothing of Smokestack was here"]
    models = f"{root}/models"
    for path in left:
        how = " (weights; remove them with -e uninstall_weights=true)" if path == models else ""
        lines.append(f"left: {path}{how or ', which is not ours'}")
    unit = foreign["unit"]
    if unit and not unit["ours"]:
        lines.append(f"left: {unit['path']}, which is not ours")
    if foreign["user_home"]:
        lines.append(f"left: the user sglang (home {foreign['user_home']}), who is not ours")
    return lines


class FilterModule:
    """Filters about the releases of a node."""

    def filters(self) -> dict[str, Any]:
        return {
            "release_lines": release_lines,
            "outage_text": outage_text,
            "undo_text": undo_text,
            "uninstall_lines": uninstall_lines,
            "rollback_problems": rollback_problems,
        }
