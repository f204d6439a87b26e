"""Every role says what it takes: specification and defaults agree, and variables bear the role's name."""

from __future__ import annotations

import importlib
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from refusals import wrong_values

ROLES = sorted(path for path in (Path(__file__).parents[2] / "roles").iterdir() if path.is_dir())
SHARED = {"plan", "stack", "model_profile", "retry_failed", "plan_catalog", "wheelhouse_path"}
SHARED |= {"wheelhouse_kernel", "release_user", "release_venv", "lock_abi", "lock_platform", "lock_folder"}
SHARED |= {"sglang_stack_unlocked_ok", "backend_overrides", "kit_export", "kit_import"}
SHARED |= {"rollout_batches", "rollout_max_fail_percentage", "release", "pin", "unpin"}

each_role = pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text()) if path.is_file() else None


def entry_points(role: Path) -> dict[str, dict[str, Any]]:
    """Entry point to its options."""
    specs = read(role / "meta/argument_specs.yml")["argument_specs"]
    return {entry: spec.get("options") or {} for entry, spec in specs.items()}


def defaults(role: Path) -> dict[str, Any]:
    return read(role / "defaults/main.yml") or {}


def owner(variable: str, role: Path) -> Path:
    """The role whose name the variable bears; the role itself for its own and for shared ones."""
    others = [other for other in ROLES if variable.startswith(f"{other.name}_") and variable not in SHARED]
    return max(others, key=lambda other: len(other.name), default=role)


@each_role
def test_a_role_says_what_it_is_for(role: Path) -> None:
    specs = read(role / "meta/argument_specs.yml")["argument_specs"]
    assert "main" in specs
    assert [entry for entry, spec in specs.items() if not spec.get("short_description")] == []


@each_role
def test_every_entry_point_is_a_file_of_tasks(role: Path) -> None:
    tasks = {path.stem for path in (role / "tasks").glob("*.yml")}
    assert set(entry_points(role)) <= tasks


@each_role
def test_every_option_has_a_type_and_a_description(role: Path) -> None:
    bare = [
        name
        for options in entry_points(role).values()
        for name, option in options.items()
        if not (option.get("type") and option.get("description"))
    ]
    assert bare == []


@each_role
def test_every_default_is_specified_with_the_same_value(role: Path) -> None:
    missing = object()
    for name, value in defaults(role).items():
        said = [
            options[name].get("default", missing)
            for options in entry_points(role).values()
            if name in options
        ]
        assert said or owner(name, role) != role or name in SHARED, f"{name} is in no specification"
        assert [other for other in said if other != value] == [], name


@each_role
def test_every_specified_default_is_among_the_defaults(role: Path) -> None:
    """A default of another role's variable is among that role's defaults."""
    for options in entry_points(role).values():
        for name, option in options.items():
            if "default" in option:
                assert defaults(owner(name, role)).get(name, "absent") == option["default"], name


@each_role
def test_a_required_option_has_no_default(role: Path) -> None:
    required = {
        name
        for options in entry_points(role).values()
        for name, option in options.items()
        if option.get("required")
    }
    assert required & set(defaults(role)) == set()


@each_role
def test_every_default_fits_its_type(role: Path) -> None:
    plain = {name: value for name, value in defaults(role).items() if "{{" not in str(value)}
    specs = [read(other / "meta/argument_specs.yml") for other in ROLES]
    assert wrong_values(plain, specs) == []


@each_role
def test_every_variable_bears_the_roles_name_or_is_shared(role: Path) -> None:
    names = {*defaults(role), *(name for options in entry_points(role).values() for name in options)}
    strange = [
        name
        for name in names
        if not name.startswith((f"{role.name}_", "gate_"))
        and name not in SHARED
        and owner(name, role) == role
    ]
    assert strange == []


@each_role
def test_constants_are_internal(role: Path) -> None:
    assert [
        name for name in read(role / "vars/main.yml") or {} if not name.startswith(f"__{role.name}_")
    ] == []


@each_role
def test_each_default_is_explained_above(role: Path) -> None:
    path = role / "defaults/main.yml"
    lines = path.read_text().splitlines() if path.is_file() else []
    bare = [
        line
        for above, line in itertools.pairwise(lines)
        if re.match(r"\w+:", line) and not above.startswith("#")
    ]
    assert bare == []


def test_a_filter_has_a_name_of_its_own() -> None:
    """Ansible takes the filter of one file for that of another without a word."""
    names = [
        name
        for file in sorted((Path(__file__).parents[2] / "filter_plugins").glob("*.py"))
        for name in importlib.import_module(file.stem).FilterModule().filters()
    ]
    assert [name for name in set(names) if names.count(name) > 1] == []
