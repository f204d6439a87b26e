"""The catalogue: what is wrong in a file is said in full, and what is shipped is right."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from data.tiny_model.break_model import break_checkpoint
from launch import launch_args
from one_change import changed

from catalog import name_problems, profile_problems

ROOT = Path(__file__).parents[2]
CATALOG = ROOT / "catalog"
PROFILES = sorted((CATALOG / "models").glob("*.yml"))

PROFILE: dict[str, Any] = {
    "name": "tiny",
    "title": "A model",
    "served_name": "tiny",
    "checkpoint": {"path": "models/tiny", "files": {"config.json": "0" * 64}},
    "launch": {"device": "cpu", "sizes": [1, 2], "flag": True, "off": None},
    "gate": {},
}


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("demo", None),
        ("dmeo", "stack 'dmeo' is not in catalog/stacks (there: demo, other); did you mean 'demo'?"),
        ("xyz", "stack 'xyz' is not in catalog/stacks (there: demo, other)"),
        ("", "stack is not set: name one of catalog/stacks (demo, other)"),
        (None, "stack is not set: name one of catalog/stacks (demo, other)"),
        (7, "stack is not set: name one of catalog/stacks (demo, other)"),
    ],
    ids=["known", "misspelt", "unknown", "empty", "null", "number"],
)
def test_a_name_must_select_an_entry(name: Any, problem: str | None) -> None:
    assert name_problems(name, ["other", "demo"], "stack", "catalog/stacks") == ([problem] if problem else [])


def test_an_empty_catalogue_is_said_to_be_empty() -> None:
    (problem,) = name_problems("demo", [], "stack", "catalog/stacks")
    assert problem.endswith("(there: none)")


# --- profiles ------------------------------------------------------------------------------------


def test_a_right_profile_has_no_problems() -> None:
    assert profile_problems(PROFILE, "tiny") == []


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        pytest.param("lunch", {}, ": unknown key 'lunch'; did you mean 'launch'?", id="misspelt key"),
        pytest.param("gate", ..., ": gate is missing", id="missing key"),
        pytest.param("launch", [], ": launch must be a dict, not list", id="wrong type"),
        pytest.param("name", "other", ": name is 'other', the file says 'tiny'", id="another name"),
        pytest.param(
            "checkpoint.pathh",
            "x",
            ": checkpoint: unknown key 'pathh'; did you mean 'path'?",
            id="misspelt key of the checkpoint",
        ),
        pytest.param("checkpoint.files", ..., ": checkpoint: files is missing", id="no files"),
        pytest.param(
            "launch.odd", {"a": 1}, ": launch option odd must be a plain", id="nested launch option"
        ),
        pytest.param(
            "launch_by_version",
            {"0.5.23": {}},
            ": launch_by_version: '0.5.23' is no range of SGLang's versions",
            id="no range",
        ),
        pytest.param(
            "launch_by_version",
            {">=0.5.23": "x"},
            ": launch_by_version >=0.5.23: must be a mapping of options, not str",
            id="no options",
        ),
        pytest.param(
            "launch_by_version",
            {">=0.5.23": {"odd": {}}},
            ": launch_by_version >=0.5.23: option odd must be a plain",
            id="nested option of a version",
        ),
    ],
)
def test_what_is_wrong_in_a_profile_is_said(path: str, value: Any, problem: str) -> None:
    (said,) = profile_problems(changed(PROFILE, path, value), "tiny")
    assert said.startswith(f"catalog/models/tiny.yml{problem}")


@pytest.mark.parametrize("sha256", ["0" * 63, "0" * 65, "G" * 64, "A" * 64, "", None, 0, "0" * 64 + "\n"])
def test_a_checkpoint_file_needs_a_whole_hash(sha256: Any) -> None:
    (problem,) = profile_problems(changed(PROFILE, "checkpoint.files", {"config.json": sha256}), "tiny")
    assert "config.json needs its SHA-256" in problem


def test_every_problem_of_a_file_is_said_at_once() -> None:
    profile = changed(changed(changed(PROFILE, "titel", "x"), "title", ...), "launch", "torch")
    assert [problem.partition(": ")[2] for problem in profile_problems(profile, "tiny")] == [
        "title is missing",
        "launch must be a dict, not str",
        "unknown key 'titel'; did you mean 'title'?",
    ]


@pytest.mark.parametrize("data", [None, [], "text"], ids=["empty", "list", "text"])
def test_a_file_that_is_no_mapping_is_a_problem(data: Any) -> None:
    assert "must be a mapping" in profile_problems(data, "tiny")[0]


# --- what is shipped -----------------------------------------------------------------------------


def test_there_is_something_in_the_catalogue() -> None:
    assert PROFILES


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_a_shipped_profile_passes_its_checks_and_can_be_launched(path: Path) -> None:
    profile = yaml.safe_load(path.read_text())
    assert profile_problems(profile, path.stem) == []
    for options in (profile["launch"], *profile.get("launch_by_version", {}).values()):
        assert launch_args(options)
    assert "config.json" in profile["checkpoint"]["files"]


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_the_tiny_model_is_the_one_that_its_profile_names() -> None:
    checkpoint = yaml.safe_load((CATALOG / "models/tiny-qwen3.yml").read_text())["checkpoint"]
    assert hashes(ROOT / checkpoint["path"]) == checkpoint["files"]


def test_the_broken_model_is_the_one_that_its_profile_names(tmp_path: Path) -> None:
    checkpoint = yaml.safe_load((CATALOG / "models/tiny-qwen3-nan.yml").read_text())["checkpoint"]
    script, good, folder, variant = checkpoint["made_by"].split()[1:]
    assert (ROOT / script).is_file()
    assert folder == checkpoint["path"]
    break_checkpoint(ROOT / good, tmp_path / "broken", variant)
    assert hashes(tmp_path / "broken") == checkpoint["files"]


def test_the_broken_model_is_gated_like_the_sound_one() -> None:
    sound, broken = (
        yaml.safe_load((CATALOG / f"models/{name}.yml").read_text())
        for name in ("tiny-qwen3", "tiny-qwen3-nan")
    )
    assert broken["gate"] == sound["gate"]
