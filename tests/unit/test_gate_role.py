"""The role gate asks a release thoroughly whose settings are not known to be right; no warning passes."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from run_play import run_play

ROOT = Path(__file__).parents[2]
ROLE = ROOT / "roles/gate"
TASKS: list[dict[str, Any]] = yaml.safe_load((ROLE / "tasks/measure.yml").read_text())
FINDINGS = [
    {"level": "override", "id": "a", "verdict": "bad", "text": "A. Overridden: the platform team"},
    {"level": "warn", "id": "b", "verdict": "unknown", "text": "B"},
]


def task(name: str) -> dict[str, Any]:
    (found,) = (task for task in TASKS if task["name"] == name)
    return found


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the role's own expressions come to, by "strict live profile verdict".

    An old release's manifest says nothing of strictness. One run of Ansible for all.
    """
    folder = tmp_path_factory.mktemp("gate")
    asked = task("Ask")["module_defaults"]["llm_gate"]
    expressions = {
        "profile": asked["profile"],
        "overrides": asked["overrides"].replace("default(omit, true)", "default(none, true)"),
        "passes": "{{ " + task("Let only a pass through")["ansible.builtin.assert"]["that"] + " }}",
    }
    cases = [
        {"strict": strict, "live": live, "profile": profile, "verdict": verdict}
        for strict, live, profile, verdict in itertools.product(
            (True, False, "old"), (True, False), ("quick", "full", "soak"), ("pass", "warn")
        )
    ]
    manifest = "{'strict': item.strict, 'verdicts': findings} if item.strict != 'old' else {}"
    play = [
        {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "vars_files": [str(ROLE / "vars/main.yml")],
            "vars": {
                "findings": FINDINGS,
                "expressions": expressions,
                "gate_live": "{{ item.live }}",
                "gate_profile": "{{ item.profile }}",
                "gate_report": {"verdict": "{{ item.verdict }}"},
                "__gate_node": {"facts": {"manifest": "{{ " + manifest + " }}"}},
            },
            "tasks": [
                {
                    "ansible.builtin.set_fact": {
                        "told": "{{ told | default([]) + [[item, expressions | to_json]] }}"
                    },
                    "loop": cases,
                },
                {"ansible.builtin.copy": {"content": "{{ told | to_json }}", "dest": f"{folder}/told.json"}},
            ],
        }
    ]
    done = run_play(folder, yaml.safe_dump(play), {})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    told = json.loads((folder / "told.json").read_text())
    assert [case for case, _result in told] == cases
    keys = ("strict", "live", "profile", "verdict")
    return {" ".join(str(case[key]) for key in keys): json.loads(result) for case, result in told}


@pytest.mark.parametrize(("asked", "profile"), [("quick", "full"), ("full", "full"), ("soak", "soak")])
def test_a_strict_gate_is_full_at_least(results: dict[str, Any], asked: str, profile: str) -> None:
    assert results[f"True False {asked} pass"]["profile"] == profile
    assert results[f"False False {asked} pass"]["profile"] == asked


def test_a_warning_does_not_pass_a_strict_gate(results: dict[str, Any]) -> None:
    passes = {name: result["passes"] for name, result in results.items() if " False quick " in name}
    assert passes == {
        "True False quick pass": True,
        "True False quick warn": False,
        "False False quick pass": True,
        "False False quick warn": True,
        "old False quick pass": True,
        "old False quick warn": True,
    }


def test_a_server_in_use_is_gated_within_its_budget(results: dict[str, Any]) -> None:
    assert results["True True quick warn"]["profile"] == "quick"
    assert results["True True quick warn"]["passes"] is True


def test_the_report_gets_the_overrides_alone(results: dict[str, Any]) -> None:
    assert results["True False quick pass"]["overrides"] == "A. Overridden: the platform team"
    assert results["old False quick pass"]["overrides"] is None
