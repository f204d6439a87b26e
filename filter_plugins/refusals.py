"""What is refused before a host is touched: empty runs, misspelt names, wrong types, unfit nodes."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from packaging.specifiers import SpecifierSet
from packaging.version import Version

# Ansible's own tags: those that select every task or none of them, and those that would leave the gate out.
HARMLESS = {"--tags": {"all"}, "--skip-tags": {"never"}}
BROAD = ("all", "always", "tagged", "untagged")
CONTROLLER = ("localhost", "127.0.0.1", "::1")
SUPPORTED = {"debian": ("12", "13"), "ubuntu": ("24.04",)}
CORE = SpecifierSet(">=2.19,<2.22", prereleases=True)
OLDEST_PYTHON = (3, 11)
SPEC_KEYS = ("type", "elements", "choices", "options")
# What a run sets itself. A variable of the command line would win over it: a verdict could be made up.
INTERNAL = (
    *("run_id", "run_holder", "plan", "lease_held", "preflight_findings", "progress_result"),
    *("release_venv", "wheelhouse_folder", "wheelhouse_kernel"),
    *("cuda_toolkit_home", "cuda_toolkit_findings", "reboot_required"),
    *("sglang_server_release", "sglang_server_touched", "sglang_server_reverted", "sglang_server_verdict"),
    *("sglang_server_stopped_at", "sglang_server_ready_at"),
    *("gate_release", "gate_report", "gate_folder", "gate_recorded"),
    *("baseline_state", "baseline_passes", "baseline_stored"),
)
INTERNAL_PREFIXES = ("__", "trial_")
CLOSE = 0.84  # similarity from which a variable outside our prefixes counts as a misspelling of one of ours


def run_problems(group: Sequence[str], hosts: Sequence[str], site: str) -> list[str]:
    """Why a run would do nothing: an empty group, or a limit that leaves none. `site` is the inventory."""
    if not group:
        return [
            f"no host is in the group sglang_nodes (inventory: {site or 'none'}). "
            "Copy inventory/example to inventory/site and edit it, or name another inventory with -i"
        ]
    if not [host for host in hosts if host not in CONTROLLER]:
        return [f"the limit leaves no host of sglang_nodes ({', '.join(group)})"]
    return []


def controller_problems(core: str, python: Sequence[int] = sys.version_info[:2]) -> list[str]:
    """Why this controller is not supported: `core` is ansible-core's version, `python` its interpreter's."""
    problems = []
    if Version(core) not in CORE:
        problems.append(f"this is ansible-core {core}; supported is {CORE} (requirements.txt has it)")
    if tuple(python) < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        problems.append(
            f"ansible-core runs on Python {python[0]}.{python[1]}; supported is {wanted} and newer"
        )
    return problems


def tag_problems(
    run: Sequence[str], skip: Sequence[str], known: Sequence[str], unskippable: Sequence[str] = ()
) -> list[str]:
    """Misspelt tags of --tags and --skip-tags, and tags that may not be skipped.

    A run without an `unskippable` one would prove nothing.
    """
    forbidden = [tag for tag in skip if tag in unskippable or tag in BROAD]
    problems = []
    for option, tags in (("--tags", run), ("--skip-tags", set(skip) - set(forbidden))):
        for tag in sorted(set(tags) - set(known) - HARMLESS[option]):
            near = difflib.get_close_matches(tag, list(known), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            there = f"known here: {', '.join(known)}" if known else "this playbook has none"
            problems.append(f"{option} {tag}: there is no such tag ({there}){hint}")
    for tag in sorted(forbidden):
        problems.append(
            f"--skip-tags {tag}: nothing may serve ungated, so that part of the run cannot be skipped"
        )
    return problems


def known_variables(specs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every variable that some role's argument specs name, with its options."""
    known: dict[str, Any] = {}
    for spec in specs:
        for entry in spec["argument_specs"].values():
            known.update(entry.get("options") or {})
    return known


def type_only(option: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an option's spec that a value alone can break."""
    kept = {key: option[key] for key in SPEC_KEYS if key in option}
    if "options" in kept:
        kept["options"] = {name: type_only(inner) for name, inner in kept["options"].items()}
    return kept


def unknown_variables(
    names: Sequence[str], specs: Sequence[Mapping[str, Any]], roles: Sequence[str]
) -> list[str]:
    """Misspelt variables among `names`.

    A variable is ours when it starts with a role's name, and misspelt when no role knows it. A variable
    outside those prefixes that is all but one of ours (`stak`) is taken for a misspelling as well.
    """
    known = list(known_variables(specs))
    problems = []
    for name in sorted(set(names) - set(known)):
        if name.startswith(("ansible_", "__", "guard_")):
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=CLOSE)
        if near:
            problems.append(f"unknown variable {name!r}; did you mean {near[0]!r}?")
        elif name.startswith(tuple(f"{role}_" for role in roles)):
            problems.append(f"unknown variable {name!r}: it begins with a role's name, but no role has it")
    return problems


def internal_variables(names: Sequence[str]) -> list[str]:
    """Variables among `names` that only a run itself may set; asked before the run has set any."""
    return [
        f"variable {name!r} is set by the run itself: take it out of the command line and the inventory"
        for name in sorted(names)
        if name in INTERNAL or name.startswith(INTERNAL_PREFIXES)
    ]


def wrong_values(values: Mapping[str, Any], specs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Values that do not fit the type or the choices of their variable."""
    known = known_variables(specs)
    spec = {name: type_only(known[name]) for name in values}
    messages = ArgumentSpecValidator(spec).validate(dict(values)).error_messages
    return [f"wrong value: {message}" for message in messages]


def node_problems(facts: Mapping[str, Any]) -> list[str]:
    """Why a node is not one that Smokestack supports."""
    problems = []
    distribution, version = facts["distribution"], facts["version"]
    if version not in SUPPORTED.get(distribution, ()):
        wanted = "Debian 12 or 13, Ubuntu 24.04"
        problems.append(f"the node runs {distribution} {version}; supported are {wanted}")
    if not facts["systemd"]:
        problems.append("systemd is not PID 1 on the node; the server runs as a systemd unit")
    return problems


class FilterModule:
    """Filters about refusals."""

    def filters(self) -> dict[str, Any]:
        return {
            "controller_problems": controller_problems,
            "run_problems": run_problems,
            "tag_problems": tag_problems,
            "known_variables": known_variables,
            "unknown_variables": unknown_variables,
            "internal_variables": internal_variables,
            "wrong_values": wrong_values,
            "node_problems": node_problems,
        }
