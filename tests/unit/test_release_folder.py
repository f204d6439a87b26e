"""A release is there whole or not at all, and is never changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import release_folder
from ansible.module_utils.durable import read_json

Seal = Callable[..., dict[str, Any]]
FILES = {"sglang.conf": "[Service]\n", "notes": "größe\n"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A node with an environment and a model, the first with a manifest of its own."""
    for name in ("venvs/v1", "models/m1"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "venvs/v1/smokestack.json").write_text('{"packages": {"torch": "2.9.0"}}')
    return tmp_path


@pytest.fixture
def seal(run_module: Seal, root: Path) -> Seal:
    """Run the module for the release `r1`."""

    def run(**changes: Any) -> dict[str, Any]:
        arguments = {
            "root": str(root),
            "release": "r1",
            "files": FILES,
            "links": {"venv": str(root / "venvs/v1"), "model": str(root / "models/m1")},
            "manifest": {"stack": "demo"},
        }
        return run_module(release_folder, **(arguments | changes))

    return run


def test_a_release_holds_its_files_links_and_manifest(seal: Seal, root: Path) -> None:
    result = seal()
    folder = root / "releases/r1"
    assert (result["changed"], result["path"]) == (True, str(folder))
    assert {name: (folder / name).read_text(encoding="utf-8") for name in FILES} == FILES
    assert (folder / "venv").readlink() == root / "venvs/v1"
    assert (folder / "model").readlink() == root / "models/m1"
    manifest = read_json(folder / "manifest.json")
    assert manifest.pop("made").endswith("+00:00")
    assert manifest == {
        "stack": "demo",
        "release": "r1",
        "parts": {"venv": {"packages": {"torch": "2.9.0"}}, "model": None},
    }
    assert (folder.stat().st_mode & 0o777, (folder / "notes").stat().st_mode & 0o777) == (0o755, 0o644)
    assert [path.name for path in folder.parent.iterdir()] == ["r1"]


def test_a_release_that_is_there_is_not_touched(seal: Seal, root: Path) -> None:
    seal()
    before = {path: path.lstat().st_mtime_ns for path in (root / "releases").rglob("*")}
    for check in (True, False):
        assert not seal(files={"sglang.conf": "other"}, check=check)["changed"]
    assert {path: path.lstat().st_mtime_ns for path in (root / "releases").rglob("*")} == before


def test_check_mode_shows_the_files_and_makes_nothing(seal: Seal, root: Path) -> None:
    told = seal(check=True)
    assert told["changed"]
    assert told["diff"]["after"] == "# notes\ngröße\n# sglang.conf\n[Service]\n"
    assert told["diff"]["before"] == ""
    assert not (root / "releases").exists()
    assert seal()["diff"] == told["diff"]


def test_check_mode_does_not_ask_for_what_a_run_would_bring(seal: Seal, root: Path) -> None:
    assert seal(links={"venv": str(root / "venvs/later")}, check=True)["changed"]


def test_a_link_to_something_that_is_not_there_is_refused(seal: Seal, root: Path) -> None:
    result = seal(links={"venv": str(root / "venvs/v2")})
    assert result["failed"]
    assert f"venv should be {root / 'venvs/v2'}, which is not there" in result["msg"]
    assert result["msg"].endswith("The node serves what it served before")
    assert not (root / "releases/r1").exists()


@pytest.mark.parametrize("step", ["write_text", "write_json", "sync_folder"])
def test_a_failing_step_leaves_no_release_and_the_next_run_makes_it(
    seal: Seal, root: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(path: Path, *_arguments: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(release_folder, step, fail)
        result = seal()
    assert result["failed"]
    assert "release r1 was not made" in result["msg"]
    assert "No space left" in result["msg"]
    whole = (root / "releases/r1/manifest.json").exists()
    assert (root / "releases/r1").exists() == whole
    assert whole == (step == "sync_folder")
    assert not seal().get("failed")
    assert (root / "releases/r1/manifest.json").exists()


def test_what_a_killed_run_left_beside_does_not_get_into_the_release(seal: Seal, root: Path) -> None:
    (root / "releases/.r1").mkdir(parents=True)
    (root / "releases/.r1/old").touch()
    seal()
    assert not (root / "releases/r1/old").exists()
    assert not (root / "releases/.r1").exists()
