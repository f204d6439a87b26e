"""The tool that writes a checkpoint's hashes into a profile: what it looks at first, and what it changes."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from tiny_checkpoint import write_checkpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PROFILE = """\
# a comment
name: small
checkpoint:
  path: models/small   # where it is
  repository: somebody/small
  unlocked: >-
    nobody read
    its files.

# after the checkpoint
architecture:
  name: Qwen3_5MoeForConditionalGeneration
  layers: 8
launch: {}
"""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "lock_model.py"
    spec = importlib.util.spec_from_file_location("lock_model", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    (tmp_path / "catalog/models").mkdir(parents=True)
    (tmp_path / "catalog/models/small.yml").write_text(PROFILE)
    return tmp_path / "catalog"


@pytest.fixture
def lock(tool: ModuleType, catalog: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the tool for the profile `small`; returns the profile as it then is."""

    def run(folder: Path, *more: str, name: str = "small") -> dict[str, Any]:
        words = ["lock_model.py", "--catalog", str(catalog), name, str(folder), *more]
        monkeypatch.setattr(sys, "argv", words)
        tool.main()
        found: dict[str, Any] = yaml.safe_load((catalog / "models/small.yml").read_text())
        return found

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "small")


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_the_hashes_take_the_place_of_the_reason(lock: Any, folder: Path, catalog: Path) -> None:
    assert lock(folder)["checkpoint"] == {
        "path": "models/small",
        "repository": "somebody/small",
        "files": hashes(folder),
    }
    text = (catalog / "models/small.yml").read_text()
    for kept in ("# a comment\n", "models/small   # where it is\n", "\n# after the checkpoint\n"):
        assert kept in text


def test_a_second_run_changes_nothing(lock: Any, folder: Path, catalog: Path) -> None:
    lock(folder)
    first = (catalog / "models/small.yml").read_text()
    lock(folder)
    assert (catalog / "models/small.yml").read_text() == first


def test_another_upload_changes_the_hashes(lock: Any, folder: Path) -> None:
    before = lock(folder, "--revision", COMMIT)
    (folder / "generation_config.json").write_text("{}")
    after = lock(folder, "--revision", COMMIT[::-1])
    assert set(after["checkpoint"]["files"]) - set(before["checkpoint"]["files"]) == {
        "generation_config.json"
    }
    assert after["checkpoint"]["revision"] == COMMIT[::-1]


def test_the_revision_is_read_from_where_the_hub_left_it(lock: Any, folder: Path, tmp_path: Path) -> None:
    metadata = folder / ".cache/huggingface/download/config.json.metadata"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"{COMMIT}\nan-etag\n1700000000.0\n")
    locked = lock(folder)["checkpoint"]
    assert locked["revision"] == COMMIT
    assert not any(name.startswith(".cache") for name in locked["files"])
    snapshot = write_checkpoint(tmp_path / "hub/snapshots" / COMMIT[::-1])
    assert lock(snapshot)["checkpoint"]["revision"] == COMMIT[::-1]


@pytest.mark.parametrize("first", ["", "main", COMMIT.upper(), COMMIT[:-1]])
def test_what_is_no_commit_is_no_revision(lock: Any, folder: Path, first: str) -> None:
    metadata = folder / ".cache/huggingface/download/config.json.metadata"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"{first}\n")
    assert "revision" not in lock(folder)["checkpoint"]


def refusal(lock: Any, *words: Any, **names: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        lock(*words, **names)
    return str(stopped.value)


def test_a_torn_checkpoint_is_not_hashed(lock: Any, folder: Path, catalog: Path) -> None:
    (folder / "model-00001-of-00002.safetensors").unlink()
    said = refusal(lock, folder)
    assert said == f"{folder} is not hashed:\nmodel-00001-of-00002.safetensors is missing"
    assert (catalog / "models/small.yml").read_text() == PROFILE


def test_another_model_is_not_hashed(lock: Any, folder: Path, catalog: Path) -> None:
    (catalog / "models/small.yml").write_text(PROFILE.replace("layers: 8", "layers: 60"))
    assert "is another model than profile small describes: layers 8, not 60" in refusal(lock, folder)


@pytest.mark.parametrize(
    ("names", "words", "problem"),
    [
        ({"name": "large"}, (), "large.yml is not there: name a file of catalog/models"),
        ({}, ("--revision", "main"), "--revision must be 40 hexadecimal digits, not 'main'"),
    ],
    ids=["no profile", "a branch"],
)
def test_a_mistaken_command_is_refused(lock: Any, folder: Path, names: Any, words: Any, problem: str) -> None:
    assert problem in refusal(lock, folder, *words, **names)


def test_a_folder_that_is_something_else_is_refused(lock: Any, tmp_path: Path) -> None:
    assert refusal(lock, tmp_path / "gone").startswith(f"{tmp_path / 'gone'} is not there")


def test_a_profile_that_cannot_be_written_in_place_is_left_alone(
    lock: Any, folder: Path, catalog: Path
) -> None:
    flow = "name: small\ncheckpoint: {path: x, unlocked: why}\n"
    (catalog / "models/small.yml").write_text(flow)
    assert "its checkpoint is not written a key a line; put these lines there yourself" in refusal(
        lock, folder
    )
    assert (catalog / "models/small.yml").read_text() == flow
