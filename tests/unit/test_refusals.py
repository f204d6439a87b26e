"""What is refused before any host is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from refusals import (
    INTERNAL,
    controller_problems,
    internal_variables,
    known_variables,
    node_problems,
    run_problems,
    tag_problems,
    unknown_variables,
    wrong_values,
)

ROLES = Path(__file__).parents[2] / "roles"
TAGS = ["preflight", "release", "gate"]
SPECS: list[dict[str, Any]] = [
    {
        "argument_specs": {
            "main": {
                "options": {
                    "stack": {"type": "str", "required": True},
                    "server_port": {"type": "int", "default": 30000},
                    "server_options": {"type": "dict"},
                    "server_mode": {"type": "str", "choices": ["quick", "full"]},
                    "server_names": {"type": "list", "elements": "int"},
                    "server_limits": {
                        "type": "dict",
                        "options": {"cpus": {"type": "int", "required": True}, "mem": {"type": "int"}},
                    },
                }
            },
            "stop": {"options": {"server_grace": {"type": "float"}}},
            "nothing": {},
        }
    },
    {"argument_specs": {"main": {"options": {"gate_retry": {"type": "bool"}}}}},
]


# --- runs and tags -------------------------------------------------------------------------------


def test_a_run_with_a_node_is_fine() -> None:
    assert run_problems(["n1", "n2"], ["localhost", "n2"], "inventory/site") == []


@pytest.mark.parametrize(
    ("group", "hosts", "words"),
    [
        pytest.param(
            [], ["localhost"], "no host is in the group sglang_nodes (inventory: there)", id="empty group"
        ),
        pytest.param(
            ["n1", "n2"], ["localhost"], "the limit leaves no host of sglang_nodes (n1, n2)", id="limit"
        ),
        pytest.param(["n1"], [], "the limit leaves no host", id="limit without localhost"),
        pytest.param(
            ["n1"], ["127.0.0.1", "::1"], "the limit leaves no host", id="other names of the controller"
        ),
    ],
)
def test_a_run_that_would_do_nothing_is_refused(group: list[str], hosts: list[str], words: str) -> None:
    (problem,) = run_problems(group, hosts, "there")
    assert problem.startswith(words)


def test_an_empty_group_is_told_how_to_get_an_inventory() -> None:
    (problem,) = run_problems([], [], "")
    assert "inventory: none" in problem
    assert "Copy inventory/example to inventory/site" in problem


@pytest.mark.parametrize(
    ("run", "skip", "problem"),
    [
        pytest.param(["all"], [], None, id="no tags"),
        pytest.param(["release", "all"], ["preflight", "never"], None, id="known tags"),
        pytest.param(["always"], [], "--tags always: there is no such tag", id="only the guard"),
        pytest.param(["untagged"], [], "--tags untagged: there is no such tag", id="only what has no tag"),
        pytest.param(["all"], ["untagged"], "--skip-tags untagged: nothing may", id="the undo skipped"),
        pytest.param(["relaese"], [], "--tags relaese: there is no such tag", id="misspelt tag"),
        pytest.param(
            ["all"], ["preflihgt"], "--skip-tags preflihgt: there is no such tag", id="misspelt skip"
        ),
        pytest.param(["all"], ["gate"], "--skip-tags gate: nothing may serve ungated", id="skipped gate"),
        pytest.param(["all"], ["all"], "--skip-tags all: nothing may serve ungated", id="all skipped"),
        pytest.param(["all"], ["always"], "--skip-tags always: nothing may", id="the guard skipped"),
        pytest.param(["all"], ["tagged"], "--skip-tags tagged: nothing may", id="everything tagged skipped"),
    ],
)
def test_tags_that_do_not_mean_what_they_say_are_refused(
    run: list[str], skip: list[str], problem: str | None
) -> None:
    problems = tag_problems(run, skip, TAGS, ["gate"])
    assert [said[: len(problem or "")] for said in problems] == ([problem] if problem else [])


def test_a_misspelt_tag_gets_a_hint_and_the_known_ones() -> None:
    (problem,) = tag_problems(["relaese"], [], TAGS)
    assert "known here: preflight, release, gate" in problem
    assert problem.endswith("did you mean 'release'?")


def test_a_playbook_without_tags_says_so() -> None:
    assert tag_problems(["gate"], [], []) == ["--tags gate: there is no such tag (this playbook has none)"]


# --- variables -----------------------------------------------------------------------------------


def test_variables_of_every_entry_point_of_every_role_are_known() -> None:
    assert {"stack", "server_grace", "gate_retry"} <= set(known_variables(SPECS))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        pytest.param("server_port", None, id="known"),
        pytest.param("my_own_thing", None, id="somebody else's"),
        pytest.param("ansible_stack", None, id="Ansible's own"),
        pytest.param("__server_internal", None, id="internal"),
        pytest.param("guard_tags", None, id="the guard's"),
        pytest.param("server_prot", "unknown variable 'server_prot'; did you mean 'server_port'?", id="typo"),
        pytest.param(
            "stak", "unknown variable 'stak'; did you mean 'stack'?", id="typo outside the prefixes"
        ),
        pytest.param(
            "server_frobnicate",
            "unknown variable 'server_frobnicate': it begins with a role's name, but no role has it",
            id="one of ours that nobody has",
        ),
        pytest.param("servers", None, id="only the beginning of a role's name"),
    ],
)
def test_a_misspelt_variable_is_found(name: str, problem: str | None) -> None:
    found = unknown_variables([name, "stack"], SPECS, ["server", "gate"])
    assert found == ([problem] if problem else [])


def test_every_misspelt_variable_is_named_sorted() -> None:
    found = unknown_variables(["stacks", "server_prot", "gate_x"], SPECS, ["server", "gate"])
    assert [problem.split("'")[1] for problem in found] == ["gate_x", "server_prot", "stacks"]


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        pytest.param("server_port", 30001, None, id="integer"),
        pytest.param("server_port", "30001", None, id="integer as text, as -e gives it"),
        pytest.param("server_port", "many", "server_port", id="no integer"),
        pytest.param("server_options", {"a": 1}, None, id="mapping"),
        pytest.param("server_options", [1], "server_options", id="no mapping"),
        pytest.param("server_mode", "full", None, id="a choice"),
        pytest.param("server_mode", "slow", "quick, full", id="no choice"),
        pytest.param("server_names", [1, "2"], None, id="list"),
        pytest.param("server_names", ["x"], "server_names", id="wrong element"),
        pytest.param("server_limits", {"mem": 1}, None, id="a part of a mapping"),
        pytest.param("server_limits", {"mem": "much"}, "mem", id="wrong type within a mapping"),
        pytest.param("gate_retry", True, None, id="boolean"),
        pytest.param("gate_retry", "maybe", "gate_retry", id="no boolean"),
        pytest.param("stack", None, None, id="null"),
    ],
)
def test_a_value_must_fit_its_variable(name: str, value: Any, wrong: str | None) -> None:
    problems = wrong_values({name: value}, SPECS)
    assert len(problems) == (1 if wrong else 0)
    assert all(problem.startswith("wrong value: ") and (wrong or "") in problem for problem in problems)


def test_no_value_is_asked_for_that_is_not_there() -> None:
    assert wrong_values({}, SPECS) == []


def test_the_real_specs_know_their_own_defaults_and_no_misspelling() -> None:
    specs = [yaml.safe_load(path.read_text()) for path in sorted(ROLES.glob("*/meta/argument_specs.yml"))]
    roles = sorted(path.name for path in ROLES.iterdir())
    names = list(known_variables(specs))
    assert unknown_variables(names, specs, roles) == []
    (problem,) = unknown_variables([*names, "sglang_server_prot"], specs, roles)
    assert "'sglang_server_port'" in problem


# --- nodes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("distribution", "version", "systemd", "words"),
    [
        ("debian", "12", True, []),
        ("debian", "13", True, []),
        ("ubuntu", "24.04", True, []),
        ("debian", "11", True, ["debian 11"]),
        ("ubuntu", "22.04", True, ["ubuntu 22.04"]),
        ("rocky", "9.4", True, ["rocky 9.4"]),
        ("debian", "12", False, ["systemd is not PID 1"]),
        ("alpine", "3.20", False, ["alpine 3.20", "systemd is not PID 1"]),
    ],
)
def test_an_unsupported_node_is_refused_by_name(
    distribution: str, version: str, systemd: bool, words: list[str]
) -> None:
    problems = node_problems({"distribution": distribution, "version": version, "systemd": systemd})
    assert len(problems) == len(words)
    assert all(word in problem for word, problem in zip(words, problems, strict=True))


@pytest.mark.parametrize(
    ("core", "python", "problem"),
    [
        pytest.param("2.18.9", (3, 12), "ansible-core 2.18.9", id="core too old"),
        pytest.param("2.22.0", (3, 13), "ansible-core 2.22.0", id="core too new"),
        pytest.param("2.19.4", (3, 10), "Python 3.10", id="Python too old"),
    ],
)
def test_an_unsupported_controller_is_refused_by_name(
    core: str, python: tuple[int, int], problem: str
) -> None:
    (said,) = controller_problems(core, python)
    assert problem in said


@pytest.mark.parametrize("core", ["2.19.0", "2.20.3", "2.21.5", "2.21.0rc1"])
def test_a_supported_controller_is_not_refused(core: str) -> None:
    assert controller_problems(core, (3, 11)) == []


# --- variables that a run sets itself ------------------------------------------------------------


def set_names(node: Any) -> set[str]:
    """Names that tasks set: facts and registered results, wherever they stand."""
    if isinstance(node, list):
        return set().union(*map(set_names, node))
    if not isinstance(node, dict):
        return set()
    names = {name for name in node.get("ansible.builtin.set_fact", {}) if name != "cacheable"}
    if isinstance(node.get("register"), str):
        names.add(node["register"])
    return names.union(*map(set_names, node.values()))


def test_every_name_that_a_run_sets_is_refused_when_it_is_given() -> None:
    files = [*ROLES.glob("*/tasks/*.yml"), *(ROLES.parent / "playbooks").rglob("*.yml")]
    names = set().union(*(set_names(yaml.safe_load(path.read_text())) for path in files))
    assert {"gate_report", "trial_outcome"} <= names
    assert [name for name in sorted(names) if not internal_variables([name])] == []


def test_no_name_is_called_internal_without_need() -> None:
    files = [*ROLES.glob("*/tasks/*.yml"), *(ROLES.parent / "playbooks").rglob("*.yml")]
    text = "".join(path.read_text() for path in files)
    set_here = ("{name}:", "register: {name}\n")
    missing = [name for name in INTERNAL if not any(form.format(name=name) in text for form in set_here)]
    assert missing == []


def test_a_made_up_verdict_is_refused_by_name_and_an_option_is_not() -> None:
    names = ["gate_report", "gate_reports", "stack", "__x", "trial_state"]
    assert [problem.split("'")[1] for problem in internal_variables(names)] == [
        "__x",
        "gate_report",
        "trial_state",
    ]
