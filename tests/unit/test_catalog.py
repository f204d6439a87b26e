"""The catalogue: what is wrong in a file is said in full, and what is shipped is right."""

from __future__ import annotations

import hashlib
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from data.tiny_model.break_model import break_checkpoint
from launch import launch_args

from catalog import (
    lock_name,
    lock_problems,
    name_problems,
    profile_problems,
    read_lock,
    stack_inputs,
    stack_problems,
    write_lock,
)

ROOT = Path(__file__).parents[2]
CATALOG = ROOT / "catalog"
STACKS = sorted((CATALOG / "stacks").glob("*.yml"))
PROFILES = sorted((CATALOG / "models").glob("*.yml"))
LOCKS = sorted((CATALOG / "stacks").glob("*.lock"))

STACK: dict[str, Any] = {
    "name": "demo",
    "title": "A stack",
    "reason": "for the tests",
    "indexes": {"own": "https://index.example/simple"},
    "from_index": {"torch": "own"},
    "requirements": ["torch==2.9.0"],
    "without_dependencies": ["uv==0.9.5"],
    "imports": ["torch"],
}
PROFILE: dict[str, Any] = {
    "name": "tiny",
    "title": "A model",
    "served_name": "tiny",
    "checkpoint": {"path": "models/tiny", "files": {"config.json": "0" * 64}},
    "launch": {"device": "cpu", "sizes": [1, 2], "flag": True, "off": None},
    "gate": {},
}
WHEELS: list[dict[str, Any]] = [
    {
        "name": "torch",
        "version": "2.9.0+cpu",
        "file": "torch-2.9.0+cpu-cp311-cp311-linux_x86_64.whl",
        "sha256": "a" * 64,
        "size": 123456789,
        "index": "own",
    },
    {
        "name": "typing-extensions",
        "version": "4.15.0",
        "file": "typing_extensions-4.15.0-py3-none-any.whl",
        "sha256": "b" * 64,
        "size": 1,
        "index": None,
    },
]
META = {
    "stack": "demo",
    "abi": "cp311",
    "platform": "linux_x86_64",
    "inputs": stack_inputs(STACK),
    "resolved": "2026-01-02",
}
LOCK = write_lock(WHEELS, META)


def changed(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with one key, named like `a.b`, set to another value; `...` takes the key out."""
    copy = deepcopy(data)
    *parents, last = path.split(".")
    inner = copy
    for parent in parents:
        inner = inner[parent]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return copy


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


# --- stacks and profiles -------------------------------------------------------------------------


def test_a_right_stack_and_a_right_profile_have_no_problems() -> None:
    assert stack_problems(STACK, "demo") == []
    assert profile_problems(PROFILE, "tiny") == []


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        pytest.param(
            "requirments", [], "unknown key 'requirments'; did you mean 'requirements'?", id="misspelt key"
        ),
        pytest.param("zzz", 1, "unknown key 'zzz'", id="unknown key"),
        pytest.param("imports", ..., "imports is missing", id="missing key"),
        pytest.param("requirements", "torch", "requirements must be a list, not str", id="wrong type"),
        pytest.param("title", None, "title must be a str, not NoneType", id="null"),
        pytest.param("name", "other", "name is 'other', the file says 'demo'", id="another name"),
        pytest.param(
            "from_index",
            {"torch": "own", "triton": "lost"},
            "triton comes from the index 'lost', which indexes does not name",
            id="index that is not named",
        ),
    ],
)
def test_what_is_wrong_in_a_stack_is_said(path: str, value: Any, problem: str) -> None:
    assert stack_problems(changed(STACK, path, value), "demo") == [f"catalog/stacks/demo.yml: {problem}"]


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
    stack = changed(changed(changed(STACK, "titel", "x"), "title", ...), "imports", "torch")
    assert [problem.partition(": ")[2] for problem in stack_problems(stack, "demo")] == [
        "title is missing",
        "imports must be a list, not str",
        "unknown key 'titel'; did you mean 'title'?",
    ]


@pytest.mark.parametrize("data", [None, [], "text"], ids=["empty", "list", "text"])
def test_a_file_that_is_no_mapping_is_a_problem(data: Any) -> None:
    assert "must be a mapping" in stack_problems(data, "demo")[0]
    assert "must be a mapping" in profile_problems(data, "tiny")[0]


@pytest.mark.parametrize("key", ["indexes", "from_index", "requirements", "without_dependencies"])
def test_what_decides_the_wheels_changes_the_inputs(key: str) -> None:
    assert stack_inputs(changed(STACK, key, ...)) != stack_inputs(STACK)


@pytest.mark.parametrize("key", ["title", "reason", "imports"])
def test_what_does_not_decide_the_wheels_leaves_the_inputs(key: str) -> None:
    assert stack_inputs(changed(STACK, key, ["else"])) == stack_inputs(STACK)


# --- locks ---------------------------------------------------------------------------------------


def test_a_lock_reads_back_as_it_was_written() -> None:
    assert read_lock(LOCK) == {**META, "count": str(len(WHEELS)), "wheels": WHEELS}


def test_pip_could_install_from_a_lock() -> None:
    lines = [line for line in LOCK.splitlines() if not line.startswith("#")]
    assert lines[0] == f"torch==2.9.0+cpu --hash=sha256:{'a' * 64}"
    assert len(lines) == len(WHEELS)


def is_readable(text: str) -> bool:
    try:
        read_lock(text)
    except ValueError:
        return False
    return True


def test_a_lock_torn_within_an_entry_is_refused() -> None:
    first, second = LOCK.index("# torch"), LOCK.index("# typing")
    readable = {LOCK[:cut].rstrip("# \n") for cut in range(first, len(LOCK) - 1) if is_readable(LOCK[:cut])}
    assert readable == {LOCK[:first].rstrip(), LOCK[:second].rstrip()}


@pytest.mark.parametrize(
    "line",
    [
        "torch==2.9.0",
        "torch==2.9.0 --hash=sha256:abc",
        f"torch>=2.9.0 --hash=sha256:{'a' * 64}",
        f"torch==2.9.0 --hash=sha512:{'a' * 64}",
        f"torch==2.9.0 --hash=sha256:{'a' * 64} --hash=sha256:{'b' * 64}",
        "#torch",
        "-r other.txt",
    ],
)
def test_a_line_that_is_no_entry_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(ValueError, match=r"line 9 of the lock"):
        read_lock(LOCK.replace(f"torch==2.9.0+cpu --hash=sha256:{'a' * 64}", line))


def test_an_entry_without_its_file_is_refused() -> None:
    lines = [line for line in LOCK.splitlines() if not line.startswith("# torch")]
    with pytest.raises(ValueError, match="line 8"):
        read_lock("\n".join(lines))


def test_a_right_lock_has_no_problems() -> None:
    assert lock_problems(LOCK, STACK, "cp311", "linux_x86_64") == []


@pytest.mark.parametrize(
    ("text", "stack", "abi", "problem"),
    [
        pytest.param("", STACK, "cp312", "has no lock for this node", id="no lock"),
        pytest.param(LOCK, changed(STACK, "name", "next"), "cp311", "stack is 'demo'", id="another stack"),
        pytest.param(LOCK, STACK, "cp312", "abi is 'cp311', wanted 'cp312'", id="another Python"),
        pytest.param(
            LOCK, changed(STACK, "requirements", ["torch==2.9.1"]), "cp311", "inputs is", id="changed stack"
        ),
        pytest.param(write_lock([], META), STACK, "cp311", "holds no wheels", id="no wheels"),
        pytest.param(LOCK[:-9], STACK, "cp311", "line 11 of the lock is not an entry", id="torn"),
        pytest.param(
            "\n".join(LOCK.splitlines()[:-2]) + "\n", STACK, "cp311", "it is torn", id="an entry short"
        ),
        pytest.param("# abi: cp311\n", STACK, "cp311", "stack is None", id="no header"),
    ],
)
def test_a_lock_that_does_not_fit_is_refused_with_its_remedy(
    text: str, stack: dict[str, Any], abi: str, problem: str
) -> None:
    (said,) = lock_problems(text, stack, abi, "linux_x86_64")
    assert problem in said
    assert f"catalog/stacks/{lock_name(stack['name'], abi, 'linux_x86_64')}" in said
    command = f"lock.yml -e stack={stack['name']} -e lock_abi={abi} -e lock_platform=linux_x86_64"
    assert said.endswith(command)


# --- what is shipped -----------------------------------------------------------------------------


def test_there_is_something_in_the_catalogue() -> None:
    assert STACKS
    assert PROFILES
    assert LOCKS


@pytest.mark.parametrize("path", STACKS, ids=lambda path: path.stem)
def test_a_shipped_stack_passes_its_checks_and_names_its_sources(path: Path) -> None:
    stack = yaml.safe_load(path.read_text())
    assert stack_problems(stack, path.stem) == []
    assert [source for source in stack["sources"] if not source.startswith("https://")] == []
    stand_in = stack.get("kernel", {}).get("stand_in")
    assert stand_in is None or (ROOT / stand_in / "pyproject.toml").is_file()


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_a_shipped_profile_passes_its_checks_and_can_be_launched(path: Path) -> None:
    profile = yaml.safe_load(path.read_text())
    assert profile_problems(profile, path.stem) == []
    assert launch_args(profile["launch"])
    assert "config.json" in profile["checkpoint"]["files"]


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_a_shipped_lock_belongs_to_its_stack(path: Path) -> None:
    lock = read_lock(path.read_text())
    stack = yaml.safe_load((path.parent / f"{lock['stack']}.yml").read_text())
    assert path.name == lock_name(lock["stack"], lock["abi"], lock["platform"])
    assert lock_problems(path.read_text(), stack, lock["abi"], lock["platform"]) == []


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_a_shipped_lock_is_whole(path: Path) -> None:
    lock = read_lock(path.read_text())
    stack = yaml.safe_load((path.parent / f"{lock['stack']}.yml").read_text())
    names = [wheel["name"] for wheel in lock["wheels"]]
    assert names == sorted(set(names))
    for wheel in lock["wheels"]:
        assert re.fullmatch(r"[0-9a-f]{64}", wheel["sha256"])
        assert wheel["size"] > 0
        assert wheel["index"] is None or wheel["index"] in stack["indexes"]
        name, version = wheel["file"].removesuffix(".whl").split("-")[:2]
        assert (name.lower().replace("_", "-").replace(".", "-"), version) == (
            wheel["name"],
            wheel["version"],
        )
    wanted = {
        re.split(r"[<>=!~\[; ]", line)[0] for line in stack["requirements"] + stack["without_dependencies"]
    }
    assert {name.lower().replace("_", "-") for name in wanted} <= set(names)
    assert "uv" in names


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
