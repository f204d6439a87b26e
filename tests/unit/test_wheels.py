"""Wheels enter the wheelhouse by hash, whole, and only once."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import local_wheel
import pytest
import stack_lock
import wheel_fetch
from ansible.module_utils import wheels
from ansible.module_utils.durable import read_json
from ansible.module_utils.pip_tags import tag_options
from ansible.module_utils.progress import Progress
from ansible.module_utils.wheels import BATCH, SPARE, FetchError, Source, batches, fetch
from stack_lock import chosen_wheels, project_of
from tiny_wheels import Index, make_wheel, serving

RunModule = Callable[..., dict[str, Any]]
STAND_IN = Path(__file__).parents[2] / "packaging" / "cpu_stand_in"
NODE = {"abi": "cp311", "platform": "linux_x86_64"}


@pytest.fixture(autouse=True)
def no_help_from_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the test's own indexes: no configuration, wheels, caches or proxies of the machine."""
    for name in list(os.environ):
        if name.upper().startswith("PIP_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")


@pytest.fixture
def house(tmp_path: Path) -> Path:
    path = tmp_path / "house"
    path.mkdir()
    return path


@pytest.fixture
def pypi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """What takes PyPI's place."""
    with serving(tmp_path / "pypi") as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        yield index


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Index]:
    """An index that a stack names."""
    with serving(tmp_path / "own") as index:
        yield index


def there(house: Path) -> list[str]:
    """What lies in the wheelhouse, its own small files left out."""
    return sorted(path.name for path in house.iterdir() if not path.name.startswith("."))


# --- tags and batches ----------------------------------------------------------------------------


def test_pip_is_told_the_nodes_python_and_every_platform_it_accepts() -> None:
    options = tag_options("cp312", "linux_aarch64")
    pairs = list(zip(options[::2], options[1::2], strict=True))
    assert pairs[:5] == [
        ("--implementation", "cp"),
        ("--python-version", "3.12"),
        ("--abi", "cp312"),
        ("--abi", "abi3"),
        ("--abi", "none"),
    ]
    platforms = [value for option, value in pairs if option == "--platform"]
    assert platforms[0] == "manylinux_2_41_aarch64"
    assert {"manylinux_2_17_aarch64", "manylinux2014_aarch64", "linux_aarch64"} <= set(platforms)


@pytest.mark.parametrize(
    ("abi", "platform"),
    [("cp2", "linux_x86_64"), ("pp311", "linux_x86_64"), ("cp311", "win_amd64"), ("", "")],
)
def test_an_unknown_abi_or_platform_is_refused(abi: str, platform: str) -> None:
    with pytest.raises(ValueError, match="no pip options known"):
        tag_options(abi, platform)


def sized(index: str | None, *sizes: int) -> list[dict[str, Any]]:
    return [{"name": f"w{size}", "file": f"{index}-{size}", "index": index, "size": size} for size in sizes]


def test_a_batch_is_of_one_index_and_keeps_the_limit() -> None:
    groups = batches(sized("own", 5, 30, 70, 40) + sized(None, 10), limit=100)
    assert [[wheel["file"] for wheel in group] for group in groups] == [
        ["None-10"],
        ["own-70"],
        ["own-40", "own-30", "own-5"],
    ]


def test_a_wheel_above_the_limit_is_a_batch_of_its_own() -> None:
    assert [len(group) for group in batches(sized(None, 500, 1, 2), limit=100)] == [1, 2]


def test_two_versions_of_a_package_are_not_asked_of_one_pip() -> None:
    one, other = sized(None, 2, 1)
    assert [len(group) for group in batches([one, {**other, "name": one["name"]}])] == [1, 1]


# --- downloads -----------------------------------------------------------------------------------


def test_wheels_come_from_their_indexes_once(
    run_module: RunModule, house: Path, tmp_path: Path, pypi: Index, own: Index
) -> None:
    locked = [make_wheel(pypi.folder, "tiny_one"), make_wheel(pypi.folder, "two", requires="absent")]
    make_wheel(pypi.folder, "two", "2.0")
    locked.append(make_wheel(own.folder, "three") | {"index": "own"})
    make_wheel(pypi.folder, "three", code="another = True")
    progress = tmp_path / "run" / "progress.json"
    arguments = {"path": str(house), "wheels": locked, "indexes": {"own": own.url}, **NODE}

    told = run_module(wheel_fetch, **arguments, check=True)
    assert (told["changed"], told["fetched"], list(house.iterdir())) == (True, [], [])
    done = run_module(wheel_fetch, **arguments, progress_file=str(progress))
    assert (done["changed"], done["fetched"]) == (True, [wheel["file"] for wheel in locked])
    assert there(house) == sorted(wheel["file"] for wheel in locked)
    assert {path.stat().st_mode & 0o777 for path in house.glob("*.whl")} == {0o644}
    assert not (house / ".staging").exists()
    assert own.downloads == ["three-1.0-py3-none-any.whl"]
    asked = len(pypi.requests + own.requests)
    for check in (True, False):
        again = run_module(wheel_fetch, **arguments, check=check)
        assert (again["changed"], again["fetched"]) == (False, [])
    assert len(pypi.requests + own.requests) == asked


def test_what_is_whole_is_kept_when_an_index_is_gone_and_not_fetched_again(
    run_module: RunModule, house: Path, pypi: Index, own: Index
) -> None:
    locked = [make_wheel(pypi.folder, "here"), make_wheel(own.folder, "gone") | {"index": "own"}]
    arguments = {
        "path": str(house),
        "wheels": locked,
        "indexes": {"own": "http://127.0.0.1:9/simple"},
        **NODE,
    }
    (house / ".staging/half").mkdir(parents=True)
    (house / ".staging/half/gone-1.0-py3-none-any.whl").write_text("ha")
    (house / locked[1]["file"]).write_text("torn")

    result = run_module(wheel_fetch, **arguments)
    assert result["failed"]
    assert "gone-1.0-py3-none-any.whl could not be downloaded from own" in result["msg"]
    assert result["msg"].endswith("What was downloaded whole is kept; run again to go on")
    assert pypi.downloads == ["here-1.0-py3-none-any.whl"]
    assert not (house / ".staging").exists()

    result = run_module(wheel_fetch, **(arguments | {"indexes": {"own": own.url}}))
    assert (result["changed"], result["fetched"]) == (True, ["gone-1.0-py3-none-any.whl"])
    assert pypi.downloads == ["here-1.0-py3-none-any.whl"]
    assert wheels.sha256_of(house / locked[1]["file"]) == locked[1]["sha256"]


def wrong_hash(wheel: dict[str, Any], _folder: Path) -> dict[str, Any]:
    return wheel | {"sha256": "0" * 64}


def missing_file(wheel: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The index lists the wheel, but does not have it."""
    (folder / wheel["file"]).unlink()
    (folder / wheel["file"]).symlink_to("nowhere")
    return wheel


def other_file(wheel: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The same bytes under another name."""
    (folder / wheel["file"]).rename(folder / f"{wheel['name']}-1.0-1-py3-none-any.whl")
    return wheel


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        pytest.param(wrong_hash, "DO NOT MATCH THE HASHES", id="wrong hash"),
        pytest.param(missing_file, "404", id="missing file"),
        pytest.param(other_file, "the index gave .*tiny-1.0-1-py3-none-any.whl", id="another file"),
    ],
)
def test_a_wheel_that_is_not_the_locked_one_is_refused(
    house: Path, pypi: Index, spoil: Callable[[dict[str, Any], Path], dict[str, Any]], words: str
) -> None:
    wheel = spoil(make_wheel(pypi.folder, "tiny"), pypi.folder)
    with pytest.raises(FetchError, match=words) as error:
        fetch(house, [wheel], Source({}, **NODE), Progress(None))
    assert wheel["file"] in str(error.value)
    assert list(house.iterdir()) == []


def test_an_index_that_the_stack_does_not_name_is_refused(house: Path) -> None:
    wheel = {"name": "a", "version": "1", "file": "a.whl", "sha256": "0" * 64, "size": 1, "index": "lost"}
    with pytest.raises(FetchError, match="the stack does not name the index 'lost' under indexes"):
        fetch(house, [wheel], Source({}, **NODE), Progress(None))


def test_a_full_disk_is_refused_before_anything_is_fetched(
    run_module: RunModule, house: Path, pypi: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make_wheel(pypi.folder, "tiny") | {"size": BATCH}
    usage = shutil.disk_usage(house)._replace(free=2 * BATCH + SPARE - 1)
    monkeypatch.setattr(wheels.shutil, "disk_usage", lambda _path: usage)
    result = run_module(wheel_fetch, path=str(house), wheels=[wheel], **NODE)
    assert result["failed"]
    assert "has 1152 MiB free" in result["msg"]
    assert "1 wheels need 64 MiB, 64 MiB while pip holds wheels twice, and 1024 MiB to spare" in result["msg"]
    assert (pypi.requests, there(house)) == ([], [])


# --- faults of indexes and disks -----------------------------------------------------------------

NIGHTLY = "/whl/nightly/cu130"
RELEASES = "/flashinfer-ai/flashinfer/releases/download/v0.6.3"
MIB = 1 << 20


@pytest.fixture
def nightly(tmp_path: Path) -> Iterator[Index]:
    """An index laid out like PyTorch's nightly one, with stand-ins for torch of five days."""
    with serving(tmp_path / "nightly", NIGHTLY, NIGHTLY) as index:
        for version in (
            "2.12.0.dev20260309",
            "2.12.0.dev20260312",
            "2.12.0.dev20260401",
            "2.13.0.dev20260601",
        ):
            make_wheel(index.folder, "torch", f"{version}+cu130")
        make_wheel(index.folder, "torch", "2.12.0.dev20260308+cpu")
        yield index


@pytest.fixture
def flashinfer(tmp_path: Path) -> Iterator[Index]:
    """An index laid out like FlashInfer's: the pages below /whl/cu130, the wheels in a release."""
    with serving(tmp_path / "flashinfer", "/whl/cu130", RELEASES) as index:
        yield index


PLACES = {"torch": {"where": "catalog/stacks/demo.yml:7", "line": "torch: {version}"}}
GONE = (
    "does not list torch 2.12.0.dev20260307+cu130 for cp311 on linux_x86_64: it has 5 versions, "
    "2.12.0.dev20260308+cpu to 2.13.0.dev20260601+cu130. Nearest: 2.12.0.dev20260309+cu130, "
    "2.12.0.dev20260312+cu130, 2.12.0.dev20260401+cu130. Change catalog/stacks/demo.yml:7 to "
    "'torch: 2.12.0.dev20260309+cu130' and lock the stack again, or bring the wheel with an offline kit "
    "(kit.yml) from a builder that kept it"
)


def test_a_nightly_that_vanished_is_refused_with_the_nearest_ones_and_the_line_to_change(
    run_module: RunModule, house: Path, pypi: Index, nightly: Index
) -> None:
    stack = {
        "name": "demo",
        "indexes": {"pytorch": nightly.url},
        "from_index": {"torch": "pytorch"},
        "requirements": ["torch==2.12.0.dev20260307+cu130"],
        "without_dependencies": [],
    }
    result = run_module(stack_lock, stack=stack, path=str(house), places=PLACES, **NODE)
    assert result["msg"] == (f"stack demo was not locked: pytorch ({nightly.url}) {GONE}")
    assert (there(house), pypi.requests) == ([], [])


def test_a_locked_nightly_that_was_purged_is_refused_in_the_same_words(
    run_module: RunModule, house: Path, pypi: Index, nightly: Index
) -> None:
    purged = make_wheel(nightly.folder, "torch", "2.12.0.dev20260307+cu130") | {"index": "pytorch"}
    (nightly.folder / purged["file"]).unlink()
    locked = [make_wheel(pypi.folder, "here"), purged]
    result = run_module(
        wheel_fetch,
        path=str(house),
        wheels=locked,
        indexes={"pytorch": nightly.url},
        places=PLACES,
        **NODE,
    )
    assert f"{GONE}" in result["msg"]
    assert there(house) == [locked[0]["file"]]


NIGHTS = ["2.13.0.dev20260601+cu130", "2.12.0.dev20260308+cu130", "2.12.0.dev20260301+cu130"]


@pytest.mark.parametrize(
    ("wanted", "listed", "near"),
    [
        ("2.12.0.dev20260307+cu130", NIGHTS, ["2.12.0.dev20260308+cu130", "2.12.0.dev20260301+cu130"]),
        ("2.12.0.dev20260307+cpu", [*NIGHTS, "2.12.0.dev20260501+cpu"], ["2.12.0.dev20260501+cpu"]),
        ("2.12.0.dev20260307", NIGHTS, []),
        ("1.5", ["2.0", "1.0", "1.4", "1.10"], ["1.4", "1.10"]),
        ("3", ["2.0", "1.0", "1.4", "1.10"], ["2.0", "1.10"]),
        ("0.1", ["2.0", "1.0", "1.4", "1.10"], ["1.0", "1.4"]),
        ("2.0.dev99999999", ["2.0", "1.0"], ["1.0", "2.0"]),
    ],
)
def test_the_nearest_versions_of_one_that_is_gone(wanted: str, listed: list[str], near: list[str]) -> None:
    assert wheels.nearest(wanted, listed, count=2) == near


def test_wheels_come_from_indexes_laid_out_like_pytorchs_and_flashinfers(
    run_module: RunModule, house: Path, nightly: Index, flashinfer: Index
) -> None:
    torch = make_wheel(nightly.folder, "torch", "2.12.0.dev20260307+cu130") | {"index": "pytorch"}
    cache = make_wheel(flashinfer.folder, "flashinfer_jit_cache", "0.6.3+cu130") | {"index": "flashinfer"}
    indexes = {"pytorch": nightly.url, "flashinfer": flashinfer.url}
    result = run_module(wheel_fetch, path=str(house), wheels=[torch, cache], indexes=indexes, **NODE)
    assert sorted(result["fetched"]) == there(house) == sorted([torch["file"], cache["file"]])


def fetched(house: Path, index: Index, *wheels_: dict[str, Any]) -> None:
    locked = [wheel | {"index": "own"} for wheel in wheels_]
    fetch(house, locked, Source({"own": index.url}, **NODE), Progress(None))


def test_a_tampered_wheel_never_enters_and_the_right_one_does_later(house: Path, own: Index) -> None:
    wheel = make_wheel(own.folder, "tiny")
    own.fault.tampered.add(wheel["file"])
    with pytest.raises(FetchError, match=rf"tiny-1.0.*Expected sha256 {wheel['sha256']} Got +[0-9a-f]{{64}}"):
        fetched(house, own, wheel)
    assert list(house.iterdir()) == []
    own.fault.tampered.clear()
    fetched(house, own, wheel)
    assert there(house) == [wheel["file"]]


def test_a_cut_download_goes_on_where_it_was_cut(house: Path, own: Index) -> None:
    wheel = make_wheel(own.folder, "large", size=2 * MIB)
    own.fault.cut_after, own.fault.cuts = MIB // 2, 3
    fetched(house, own, wheel)
    assert wheels.sha256_of(house / wheel["file"]) == wheel["sha256"]
    assert own.ranges == [wheel["file"]] * 3


def test_a_download_that_is_cut_again_and_again_is_an_error_and_leaves_nothing_half(
    house: Path, own: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels, "RESUMES", 1)
    wheel = make_wheel(own.folder, "large", size=2 * MIB)
    own.fault.cut_after, own.fault.cuts = MIB // 4, 99
    with pytest.raises(FetchError, match=r"large-1.0.*could not be downloaded from own"):
        fetched(house, own, wheel)
    assert list(house.iterdir()) == []


def test_a_slow_download_is_waited_for(house: Path, own: Index) -> None:
    wheel = make_wheel(own.folder, "large", size=MIB)
    own.fault.pause = 0.1
    fetched(house, own, wheel)
    assert there(house) == [wheel["file"]]


def test_a_dead_index_is_said_to_be_dead(house: Path, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "tiny") | {"index": "own"}
    with pytest.raises(
        FetchError, match=r"own \(http://127.0.0.1:9/simple\) does not answer, or lists no tiny"
    ):
        fetch(house, [wheel], Source({"own": "http://127.0.0.1:9/simple"}, **NODE), Progress(None))
    assert list(house.iterdir()) == []


def test_a_disk_that_fills_up_on_the_way_keeps_what_is_whole(
    run_module: RunModule, house: Path, pypi: Index, own: Index
) -> None:
    """A limit of the size of files stands in for the full disk: the write fails in the same place."""
    locked = [
        make_wheel(pypi.folder, "small"),
        make_wheel(own.folder, "large", size=2 * MIB) | {"index": "own"},
    ]
    arguments = {"path": str(house), "wheels": locked, "indexes": {"own": own.url}, **NODE}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
    try:
        result = run_module(wheel_fetch, **arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "large-1.0-py3-none-any.whl could not be downloaded from own" in result["msg"]
    assert "File too large" in result["msg"]
    assert there(house) == [locked[0]["file"]]
    again = run_module(wheel_fetch, **arguments)
    assert again["fetched"] == [locked[1]["file"]]


def test_only_one_run_at_a_time_works_on_the_wheelhouse(house: Path) -> None:
    with (
        wheels.locked(house),
        (house / ".lock").open("w") as other,
        pytest.raises(BlockingIOError),
    ):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (house / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


# --- locks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requirement", "project"),
    [
        ("torch", "torch"),
        ("torch==2.9.0+cpu", "torch"),
        ("huggingface_hub<1", "huggingface-hub"),
        ("IPython", "ipython"),
        ("llguidance>=0.7.11,<0.8.0", "llguidance"),
        ("uvicorn[standard]>=0.30", "uvicorn"),
        ("numpy ; python_version > '3.10'", "numpy"),
        ("tiny @ https://example/tiny.whl", "tiny"),
    ],
)
def test_a_requirement_names_a_project(requirement: str, project: str) -> None:
    assert project_of(requirement) == project


def test_the_wheels_of_a_resolution_are_read_from_pips_report() -> None:
    def item(name: str, version: str, url: str, sha256: str) -> dict[str, Any]:
        return {
            "metadata": {"name": name, "version": version},
            "download_info": {"url": url, "archive_info": {"hashes": {"sha256": sha256}}},
        }

    report = {
        "install": [
            item("torch", "2.9.0+cpu", "https://own/whl/torch-2.9.0%2Bcpu-cp311.whl", "a" * 64),
            item("Typing_Extensions", "4.15.0", "https://pypi/typing_extensions-4.15.0.whl", "b" * 64),
        ]
    }
    assert chosen_wheels(report, {"from_index": {"torch": "own"}}) == [
        {
            "name": "torch",
            "version": "2.9.0+cpu",
            "file": "torch-2.9.0+cpu-cp311.whl",
            "sha256": "a" * 64,
            "size": 0,
            "index": "own",
        },
        {
            "name": "typing-extensions",
            "version": "4.15.0",
            "file": "typing_extensions-4.15.0.whl",
            "sha256": "b" * 64,
            "size": 0,
            "index": None,
        },
    ]


def test_requirements_are_resolved_with_what_they_need_and_each_from_its_index(
    house: Path, pypi: Index, own: Index
) -> None:
    one = make_wheel(pypi.folder, "one", requires="three>1")
    make_wheel(pypi.folder, "three", "1.0")
    three = make_wheel(pypi.folder, "three", "1.5")
    two = make_wheel(own.folder, "two", "1.0+cpu") | {"index": "own"}
    make_wheel(pypi.folder, "two", "1.0")
    make_wheel(own.folder, "one", code="another = True")
    stack = {"from_index": {"two": "own"}}
    found = stack_lock.resolve(["one", "two==1.0+cpu"], stack, Source({"own": own.url}, **NODE), house)
    assert sorted(found, key=lambda wheel: wheel["name"]) == [one, three, two]
    assert there(house) == [two["file"]]


def test_a_size_that_no_server_tells_is_unknown(pypi: Index) -> None:
    for url in ("http://127.0.0.1:9/files/a.whl", pypi.url.replace("/simple", "/files/absent.whl")):
        assert stack_lock.size_at(url) == stack_lock.UNKNOWN_SIZE


def test_a_stack_that_the_disk_cannot_hold_is_refused_before_it_is_downloaded(
    run_module: RunModule, house: Path, pypi: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(pypi.folder, "large", size=MIB)
    stack = {
        "name": "demo",
        "indexes": None,
        "from_index": None,
        "requirements": ["large"],
        "without_dependencies": [],
    }
    usage = shutil.disk_usage(house)._replace(free=MIB + SPARE)
    monkeypatch.setattr(wheels.shutil, "disk_usage", lambda _path: usage)
    result = run_module(stack_lock, stack=stack, path=str(house), **NODE)
    assert "stack demo was not locked: " in result["msg"]
    assert "1 wheels need 1 MiB, 1 MiB while pip holds wheels twice" in result["msg"]
    assert there(house) == []


def test_the_tools_of_a_build_are_locked_apart_and_may_be_of_another_version(
    run_module: RunModule, house: Path, pypi: Index
) -> None:
    for name, version in (("engine", "1.0"), ("ninja", "1.13.2"), ("ninja", "1.13.0"), ("cmake", "3.31.10")):
        make_wheel(pypi.folder, name, version)
    stack = {
        "name": "demo",
        "indexes": None,
        "from_index": None,
        "requirements": ["engine", "ninja==1.13.2"],
        "without_dependencies": [],
        "build": ["ninja==1.13.0", "cmake==3.31.10"],
    }
    made = run_module(stack_lock, stack=stack, path=str(house), **NODE)
    pins = {kind: [(item["name"], item["version"]) for item in made[kind]] for kind in ("wheels", "build")}
    assert pins["wheels"] == [("engine", "1.0"), ("ninja", "1.13.2")]
    assert pins["build"] == [("cmake", "3.31.10"), ("ninja", "1.13.0")]
    assert made["toolkit"] == []
    assert {item["file"] for item in [*made["wheels"], *made["build"]]} <= set(there(house))


def test_check_mode_resolves_nothing(run_module: RunModule, house: Path, pypi: Index) -> None:
    assert run_module(stack_lock, stack={"name": "demo"}, path=str(house / "later"), **NODE, check=True)[
        "changed"
    ]
    assert (pypi.requests, list(house.iterdir())) == ([], [])


# --- the project's own wheel ---------------------------------------------------------------------


def test_a_folder_without_a_project_is_refused(run_module: RunModule, tmp_path: Path) -> None:
    result = run_module(local_wheel, source=str(tmp_path), path=str(tmp_path / "house"))
    assert result["failed"]
    assert "no pyproject.toml in it" in result["msg"]


@pytest.fixture
def stand_in(tmp_path: Path) -> dict[str, Any]:
    """The module's arguments for a copy of the CPU stand-in."""
    source = tmp_path / "cpu_stand_in"
    shutil.copytree(STAND_IN, source, ignore=shutil.ignore_patterns("__pycache__"))
    return {"source": str(source), "path": str(tmp_path / "house")}


def test_the_cpu_stand_in_is_the_same_wheel_whenever_it_is_built(
    run_module: RunModule, stand_in: dict[str, Any]
) -> None:
    pytest.importorskip("hatchling", reason="hatchling, the wheel's build backend, is not installed")
    house = Path(stand_in["path"])
    told = run_module(local_wheel, **stand_in, check=True)
    assert (told["changed"], house.exists()) == (True, False)
    done = run_module(local_wheel, **stand_in)
    assert (done["changed"], done["file"], done["sha256"]) == (True, told["file"], told["sha256"])
    assert wheels.sha256_of(house / done["file"]) == done["sha256"]
    assert there(house) == ["cpu_stand_in.source.json", done["file"]]


def test_a_wheel_is_built_once_for_a_content(
    run_module: RunModule, stand_in: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    builds: list[Path] = []

    def build(source: Path, folder: Path) -> Path:
        builds.append(source)
        wheel = folder / "stand_in-1.0-py3-none-any.whl"
        wheel.write_text(local_wheel.tree_sha256(source))
        return wheel

    monkeypatch.setattr(local_wheel, "build", build)
    source, house = Path(stand_in["source"]), Path(stand_in["path"])
    first = run_module(local_wheel, **stand_in)
    for check in (True, False):
        (source / "__pycache__").mkdir(exist_ok=True)
        (source / "__pycache__" / f"{check}.pyc").touch()
        again = run_module(local_wheel, **stand_in, check=check)
        assert (again["changed"], again["sha256"], len(builds)) == (False, first["sha256"], 1)

    (house / first["file"]).write_text("torn")
    mended = run_module(local_wheel, **stand_in)
    assert (mended["changed"], mended["sha256"], len(builds)) == (True, first["sha256"], 2)

    module = source / "smokestack_cpu_stand_in.py"
    module.write_text(module.read_text() + "\n# changed\n")
    told = run_module(local_wheel, **stand_in, check=True)
    assert (told["changed"], told["sha256"] != first["sha256"], len(builds)) == (True, True, 3)
    assert read_json(house / "cpu_stand_in.source.json")["sha256"] == first["sha256"]
    done = run_module(local_wheel, **stand_in)
    assert (done["changed"], done["sha256"]) == (True, told["sha256"])


def test_a_source_that_cannot_be_built_is_an_error_with_the_reason(
    run_module: RunModule, tmp_path: Path
) -> None:
    source, house = tmp_path / "broken", tmp_path / "house"
    source.mkdir()
    (source / "pyproject.toml").write_text("[project\n")
    result = run_module(local_wheel, source=str(source), path=str(house))
    assert result["failed"]
    assert result["msg"].startswith(f"the wheel of {source} was not built:\n")
    assert "TOML" in result["msg"] or "pyproject.toml" in result["msg"].partition("\n")[2]
    assert not house.exists()
