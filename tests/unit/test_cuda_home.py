"""CUDA wheels as one folder: whole or not there, made once, mended when it is not what it was."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cuda_home
import pytest
from tiny_wheels import make_wheel
from toolkit_wheels import PARTS, cuda_wheel, cuda_wheels, hashes

RunModule = Callable[..., dict[str, Any]]


@pytest.fixture
def house(tmp_path: Path) -> Path:
    return tmp_path / "wheelhouse"


@pytest.fixture
def arguments(house: Path, tmp_path: Path) -> dict[str, Any]:
    wheels = hashes(cuda_wheels(house))
    return {"path": str(tmp_path / "toolkits/13.0-demo"), "wheelhouse": str(house), "wheels": wheels}


def content(home: Path) -> dict[str, str]:
    """Every file and link of a toolkit, without what tells of it."""
    return {
        str(path.relative_to(home)): f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
        for path in home.rglob("*")
        if (path.is_symlink() or path.is_file()) and path.name not in ("smokestack.json", ".verified.json")
    }


LAID_OUT = {place: text for files in PARTS.values() for place, text in files.items()} | {
    "lib64": "-> lib",
    "lib/libnvvm.so": "-> libnvvm.so.4",
    "lib/libcudart.so": "-> libcudart.so.13",
}


def test_the_wheels_become_one_toolkit_once(run_module: RunModule, arguments: dict[str, Any]) -> None:
    home = Path(arguments["path"])
    told = run_module(cuda_home, **arguments, check=True)
    assert (told["changed"], told["bytes"], home.parent.exists()) == (True, None, False)
    assert told["diff"]["before"] == ""
    assert told["diff"]["after"].splitlines() == [
        f"{name} sha256:{sha256}" for name, sha256 in sorted(arguments["wheels"].items())
    ]

    done = run_module(cuda_home, **arguments)
    assert done["changed"]
    assert content(home) == LAID_OUT
    assert done["bytes"] == sum(len(text) for files in PARTS.values() for text in files.values())
    modes = {
        place: (home / place).stat().st_mode & 0o777
        for place in ("bin/nvcc", "bin", "include/crt/host_config.h")
    }
    assert modes == {"bin/nvcc": 0o755, "bin": 0o755, "include/crt/host_config.h": 0o644}

    inode = home.stat().st_ino
    for check in (True, False):
        again = run_module(cuda_home, **arguments, check=check)
        assert (again["changed"], again["reasons"], home.stat().st_ino) == (False, {}, inode)
        assert again["diff"]["before"] == again["diff"]["after"]


def test_a_toolkit_that_is_there_needs_no_wheels(run_module: RunModule, arguments: dict[str, Any]) -> None:
    run_module(cuda_home, **arguments)
    shutil.rmtree(arguments["wheelhouse"])
    assert not run_module(cuda_home, **arguments)["changed"]


@pytest.mark.parametrize(
    ("spoil", "file", "reason"),
    [
        pytest.param(lambda home: (home / "bin/ptxas").unlink(), "bin/ptxas", "missing", id="a file is gone"),
        pytest.param(
            lambda home: (home / "bin/nvcc.profile").write_text("TOP = /usr"),
            "bin/nvcc.profile",
            "its SHA-256 is",
            id="a file is another",
        ),
        pytest.param(
            lambda home: (home / "lib64").unlink(), "lib64", "a link to lib is missing", id="a link is gone"
        ),
        pytest.param(
            lambda home: (home / "smokestack.json").write_text("{"),
            "smokestack.json",
            "missing",
            id="torn manifest",
        ),
    ],
)
def test_a_toolkit_that_is_not_what_it_was_is_made_anew(
    run_module: RunModule, arguments: dict[str, Any], spoil: Callable[[Path], object], file: str, reason: str
) -> None:
    home = Path(arguments["path"])
    run_module(cuda_home, **arguments)
    spoil(home)
    told = run_module(cuda_home, **arguments, check=True)
    assert told["changed"]
    assert {name: text[: len(reason)] for name, text in told["reasons"].items()} == {file: reason}
    assert f"{file}: {reason}" in told["diff"]["before"]
    assert run_module(cuda_home, **arguments)["changed"]
    assert content(home) == LAID_OUT
    assert not run_module(cuda_home, **arguments)["changed"]


def test_what_an_interrupted_run_left_is_thrown_away(
    run_module: RunModule, arguments: dict[str, Any]
) -> None:
    home = Path(arguments["path"])
    for name in (f".{home.name}", f".gone.{home.name}"):
        (home.parent / name / "bin").mkdir(parents=True)
        (home.parent / name / "bin/half").write_text("half")
    assert run_module(cuda_home, **arguments)["changed"]
    assert content(home) == LAID_OUT
    assert sorted(path.name for path in home.parent.iterdir()) == [f".{home.name}.lock", home.name]


def test_a_run_that_is_cut_short_leaves_no_toolkit(
    run_module: RunModule, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step before the folder gets its name fails, as on a full disk."""
    home = Path(arguments["path"])

    def full(*_arguments: object) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(cuda_home, "write_json", full)
        assert "No space left on device" in run_module(cuda_home, **arguments)["msg"]
    assert not home.exists()
    assert run_module(cuda_home, **arguments)["changed"]
    assert content(home) == LAID_OUT


@pytest.mark.parametrize("package", PARTS)
def test_a_missing_companion_is_named(
    run_module: RunModule, house: Path, tmp_path: Path, package: str
) -> None:
    wheels = hashes(cuda_wheels(house, without=package))
    home = tmp_path / "toolkits/13.0-demo"
    message = run_module(cuda_home, path=str(home), wheelhouse=str(house), wheels=wheels)["msg"]
    assert f"(of {package.replace('_', '-')})" in message
    assert "name what is missing under cuda_toolkit.wheels" in message
    assert not home.exists()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        pytest.param(
            lambda wheel: wheel.write_bytes(wheel.read_bytes()[:-20]),
            "its SHA-256 is not the lock's",
            id="torn",
        ),
        pytest.param(lambda wheel: wheel.unlink(), "is missing; run again to send it", id="not there"),
    ],
)
def test_a_wheel_that_is_not_the_locks_is_refused(
    run_module: RunModule, arguments: dict[str, Any], spoil: Callable[[Path], object], words: str
) -> None:
    wheel = Path(arguments["wheelhouse"]) / min(arguments["wheels"])
    spoil(wheel)
    message = run_module(cuda_home, **arguments)["msg"]
    assert f"{wheel}" in message
    assert words in message
    assert not Path(arguments["path"]).exists()


@pytest.mark.parametrize(
    ("files", "words"),
    [
        pytest.param({"../../etc/cron.d/x": "x"}, "a path that leaves the folder", id="a path that leaves"),
        pytest.param({"nvidia_thing.pth": "x"}, "no part of a CUDA toolkit", id="a file for Python"),
        pytest.param({"nvidia/README": "x"}, "no part of a CUDA toolkit", id="a file beside the toolkit"),
        pytest.param(
            {"nvidia/cu13/include/cuda_runtime.h": "other"},
            "another one than that of a wheel before",
            id="a clash",
        ),
    ],
)
def test_a_wheel_that_does_not_belong_to_a_toolkit_is_refused(
    run_module: RunModule, arguments: dict[str, Any], files: dict[str, str], words: str
) -> None:
    strange = make_wheel(Path(arguments["wheelhouse"]), "strange", files=files)
    arguments["wheels"] |= hashes([strange])
    message = run_module(cuda_home, **arguments)["msg"]
    assert strange["file"] in message
    assert words in message
    assert not Path(arguments["path"]).exists()


def test_wheels_that_hold_the_same_file_agree(run_module: RunModule, arguments: dict[str, Any]) -> None:
    same = cuda_wheel(Path(arguments["wheelhouse"]), "same", {"include/cuda_runtime.h": "// runtime\n"})
    arguments["wheels"] |= hashes([same])
    run_module(cuda_home, **arguments)
    assert content(Path(arguments["path"])) == LAID_OUT


def test_of_two_numbered_libraries_the_linker_gets_the_shorter_name() -> None:
    files = {"lib/libx.so.13": "", "lib/libx.so.13.0.96": "", "lib/liby.so": "", "lib/liby.so.1": ""}
    assert cuda_home.wanted_links(files) == {"lib64": "lib", "lib/libx.so": "libx.so.13"}
