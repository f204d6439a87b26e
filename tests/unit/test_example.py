"""The example fleet: every variable is explained in it once, and what it sets is what the roles take."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from launch import launch_problems
from plan import profile_launch
from refusals import internal_variables, known_variables, unknown_variables, wrong_values
from stacks import lock_problems, schema_problems, stack_lines, stack_problems
from verdicts import judge_launch, verdict_facts

from catalog import profile_problems, profile_refusals

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "inventory" / "example"
FLEET = EXAMPLE / "group_vars" / "sglang_nodes.yml"
SPEC_FILES = sorted((ROOT / "roles").glob("*/meta/argument_specs.yml"))
SPECS = [yaml.safe_load(path.read_text()) for path in SPEC_FILES]
ROLES = [path.parent.parent.name for path in SPEC_FILES]
KNOWN = known_variables(SPECS)
# What one role hands to another when it includes it.
HANDED = {
    "node_wheels_files",
    "node_wheels_from",
    *(f"progress_{name}" for name in ("file", "host", "job", "what")),
}
OPERATORS = sorted(name for name in KNOWN if name not in HANDED and not internal_variables([name]))
SETTING = re.compile(r"^(# )?(\w+): *(.*)$", re.MULTILINE)
ONE_RUN = "# --- what one run is told on its command line"


@pytest.fixture(scope="module")
def inventory() -> Any:
    """What Ansible makes of the example."""
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-inventory"), "-i", str(EXAMPLE), "--list"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", OPERATORS)
def test_every_variable_is_explained_once(name: str) -> None:
    text = FLEET.read_text()
    shown = [found for found in SETTING.finditer(text) if found[2] == name]
    assert len(shown) == 1, f"{name}: explain it once in {FLEET.relative_to(ROOT)}"
    paragraph = text[: shown[0].start()].rpartition("\n\n")[2]
    words = [line for line in paragraph.splitlines() if line.startswith("# ") and not SETTING.match(line)]
    assert words, f"{name}: {FLEET.relative_to(ROOT)} shows it without a word"


def test_the_example_shows_the_defaults() -> None:
    for _comment, name, value in SETTING.findall(FLEET.read_text().partition(ONE_RUN)[0]):
        default = KNOWN.get(name, {}).get("default")
        if isinstance(default, bool | int | float) or (isinstance(default, str) and "{" not in default):
            assert yaml.safe_load(value) == default, name


def test_the_example_has_eight_nodes_and_no_mistake(inventory: Any) -> None:
    assert len(inventory["sglang_nodes"]["hosts"]) == 8
    files = {path.name: yaml.safe_load(path.read_text()) for path in (EXAMPLE / "group_vars").glob("*.yml")}
    assert sorted(files) == ["founding.yml", "sglang_nodes.yml"]
    for name, values in files.items():
        assert unknown_variables(list(values), SPECS, ROLES) == [], name
        assert internal_variables(list(values)) == [], name
        assert wrong_values({key: value for key, value in values.items() if key in KNOWN}, SPECS) == [], name


def test_what_is_commented_out_is_right_as_well() -> None:
    shown = [
        (name, yaml.safe_load(value))
        for comment, name, value in SETTING.findall(FLEET.read_text())
        if comment
    ]
    values = {name: value for name, value in shown if name in KNOWN}
    assert len(values) > len(OPERATORS) // 2
    assert unknown_variables(list(values), SPECS, ROLES) == []
    assert wrong_values(values, SPECS) == []


def test_of_the_founding_deployment_only_the_locks_are_missing() -> None:
    given = yaml.safe_load((EXAMPLE / "group_vars" / "founding.yml").read_text())
    name, model = given["stack"], given["model_profile"]
    stack_text = (ROOT / "catalog/stacks" / f"{name}.yml").read_text()
    profile_text = (ROOT / "catalog/models" / f"{model}.yml").read_text()
    verdicts = yaml.safe_load((ROOT / "catalog/backends.yml").read_text())
    stack, profile = yaml.safe_load(stack_text), yaml.safe_load(profile_text)

    assert stack_problems(stack_text, name) == []
    assert schema_problems(profile_text, f"catalog/models/{model}.yml", "model.schema.json") == []
    assert profile_problems(profile, model, stack_lines(profile_text)) == []
    options = profile_launch(profile, stack)
    assert launch_problems(options, profile["environment"], 30000) == []
    founding = {"moe_runner_backend": "flashinfer_cutlass", "fp4_gemm_backend": "flashinfer_cudnn"}
    assert options | founding | {"kv_cache_dtype": "bf16"} == options
    judged = judge_launch(
        options,
        verdict_facts(stack, verdicts, profile=profile),
        verdicts,
        environment=profile["environment"],
        overrides={},
    )
    assert [finding["text"] for finding in judged if finding["level"] == "refuse"] == []

    (unlocked,) = profile_refusals(profile, stack)
    assert f"tools/lock_model.py {model}" in unlocked
    (dead,) = lock_problems("", stack, "cp312", "linux_x86_64")
    assert stack["dead"]["reason"].split(",")[0] in dead
