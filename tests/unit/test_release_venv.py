"""An environment is made of given wheels, proved, and then never changed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import release_venv
from ansible.module_utils.durable import read_json
from release_venv import VenvError, name_and_version, requirements, unpack_uv
from tiny_wheels import make_wheel

RunModule = Callable[..., dict[str, Any]]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "smokestack" / "wheelhouse"


@pytest.mark.parametrize(
    ("wheel", "expected"),
    [
        ("tiny-1.0-py3-none-any.whl", ("tiny", "1.0")),
        ("typing_extensions-4.15.0-py3-none-any.whl", ("typing_extensions", "4.15.0")),
        ("torch-2.9.0+cpu-cp311-cp311-linux_x86_64.whl", ("torch", "2.9.0+cpu")),
        ("tiny-1.0-1build-py3-none-any.whl", ("tiny", "1.0")),
    ],
)
def test_a_wheels_file_name_holds_name_and_version(wheel: str, expected: tuple[str, str]) -> None:
    assert name_and_version(wheel) == expected


def test_every_wheel_but_uvs_own_is_required_by_hash() -> None:
    wheels = {
        "two-2-py3-none-any.whl": "b",
        "uv-0.9.5-py3-none-linux.whl": "u",
        "one-1-py3-none-any.whl": "a",
    }
    assert requirements(wheels, Path("/house")) == "one==1 --hash=sha256:a\ntwo==2 --hash=sha256:b\n"


def test_a_wheel_of_uv_without_uv_in_it_is_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "uv")
    with pytest.raises(VenvError, match="no uv binary in it"):
        unpack_uv(tmp_path / wheel["file"], tmp_path / "uv")


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, Any]:
    """The module's arguments for two tiny wheels, without uv's."""
    house = tmp_path / "house"
    house.mkdir()
    wheels = [
        make_wheel(house, "tiny", code="import os\nassert os.environ['HELLO'] == '1'\n"),
        make_wheel(house, "sad_one", code="raise RuntimeError('libsad.so.1 is missing')\n"),
    ]
    return {
        "path": str(tmp_path / "venvs" / "v1"),
        "wheelhouse": str(house),
        "wheels": {wheel["file"]: wheel["sha256"] for wheel in wheels},
        "python": sys.executable,
        "cache": str(tmp_path / "cache"),
        "imports": ["tiny"],
        "environment": {"HELLO": 1},
    }


@pytest.fixture
def with_uv(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with the real wheel of uv among the wheels."""
    wheel = next(CACHE.glob("uv-*.whl"), None)
    if wheel is None:
        pytest.skip(f"no wheel of uv in {CACHE}; a deployment puts it there")
    (Path(arguments["wheelhouse"]) / wheel.name).symlink_to(wheel)
    return arguments | {"wheels": arguments["wheels"] | {wheel.name: "0" * 64}}


def test_without_uv_among_the_wheels_nothing_is_made(
    run_module: RunModule, arguments: dict[str, Any]
) -> None:
    result = run_module(release_venv, **arguments)
    assert result["failed"]
    assert "uv is not among the wheels" in result["msg"]
    assert result["msg"].endswith("The node serves what it served before")
    assert run_module(release_venv, **arguments, check=True)["changed"]


def test_check_mode_makes_nothing(run_module: RunModule, arguments: dict[str, Any]) -> None:
    assert run_module(release_venv, **arguments, check=True)["changed"]
    assert not Path(arguments["path"]).parent.exists()


def test_an_environment_is_made_once(run_module: RunModule, with_uv: dict[str, Any], tmp_path: Path) -> None:
    venv, progress = Path(with_uv["path"]), tmp_path / "progress.json"
    venv.mkdir(parents=True)
    (venv / "half").touch()  # what a killed run left

    done = run_module(release_venv, **with_uv, progress_file=str(progress))
    assert (done["changed"], done["packages"]) == (True, {"sad_one": "1.0", "tiny": "1.0"})
    assert not (venv / "half").exists()
    assert not (venv / "uv").exists()
    names = "import importlib.metadata as m; print(*sorted(d.name for d in m.distributions()))"
    probe = subprocess.run([venv / "bin/python", "-c", names], capture_output=True, text=True, check=True)
    assert probe.stdout.split() == ["sad_one", "tiny"]
    manifest = read_json(venv / "smokestack.json")
    assert (manifest["wheels"], manifest["imports"]) == (with_uv["wheels"], ["tiny"])
    assert manifest["python"] == os.path.realpath(sys.executable)
    assert read_json(progress)["note"] == "2 packages installed, importing tiny"

    before = {path: path.lstat().st_mtime_ns for path in venv.rglob("*")}
    for check in (True, False):
        again = run_module(release_venv, **(with_uv | {"imports": ["absent"]}), check=check)
        assert (again["changed"], again["packages"]) == (False, done["packages"])
    assert {path: path.lstat().st_mtime_ns for path in venv.rglob("*")} == before

    (venv / "smokestack.json").unlink()  # as if it had been killed before the end
    assert run_module(release_venv, **with_uv, check=True)["changed"]


@pytest.mark.parametrize("chosen", ["0cafe", "0f00d", "none"])
def test_of_several_builds_of_one_version_the_wanted_one_is_installed(
    run_module: RunModule, with_uv: dict[str, Any], chosen: str
) -> None:
    house = Path(with_uv["wheelhouse"])
    made = {}
    for build in ("0cafe", "0f00d"):
        wheel = make_wheel(house, "kernel", code=f"BUILD = {build!r}\n")
        name = f"kernel-1.0-{build}-py3-none-any.whl"
        (house / wheel["file"]).rename(house / name)
        made[build] = {name: wheel["sha256"]}
    released = make_wheel(house, "kernel", code="BUILD = 'none'\n")
    made["none"] = {released["file"]: released["sha256"]}
    result = run_module(release_venv, **with_uv | {"wheels": with_uv["wheels"] | made[chosen]})
    assert result["packages"]["kernel"] == "1.0"
    (module,) = Path(with_uv["path"]).glob("lib/python3*/site-packages/kernel.py")
    assert chosen in module.read_text()


@pytest.mark.parametrize("chosen", ["2.13.0", "2.13.0+cpu"])
def test_of_a_version_and_its_local_one_the_wanted_one_is_installed(
    run_module: RunModule, with_uv: dict[str, Any], chosen: str
) -> None:
    house = Path(with_uv["wheelhouse"])
    made = {version: make_wheel(house, "torch", version) for version in ("2.13.0", "2.13.0+cpu")}
    wheels = with_uv["wheels"] | {made[chosen]["file"]: made[chosen]["sha256"]}
    run_module(release_venv, **with_uv | {"wheels": wheels})
    (metadata,) = Path(with_uv["path"]).glob("lib/python3*/site-packages/torch-*.dist-info")
    assert metadata.name == f"torch-{chosen}.dist-info"


def test_an_import_that_fails_is_said_with_its_last_lines(
    run_module: RunModule, with_uv: dict[str, Any]
) -> None:
    result = run_module(release_venv, **(with_uv | {"imports": ["tiny", "sad_one"]}))
    assert result["failed"]
    assert result["msg"].startswith(f"the environment {with_uv['path']} was not made: ")
    assert "RuntimeError: libsad.so.1 is missing" in result["msg"]
    assert not (Path(with_uv["path"]) / "smokestack.json").exists()


def test_a_wheel_with_other_bytes_is_not_installed(run_module: RunModule, with_uv: dict[str, Any]) -> None:
    make_wheel(Path(with_uv["wheelhouse"]), "tiny", code="tampered = True\n")
    result = run_module(release_venv, **with_uv)
    assert result["failed"]
    assert "hash" in result["msg"].lower()
    assert "tiny" in result["msg"]
    assert not (Path(with_uv["path"]) / "smokestack.json").exists()


def bytecode(venv: Path, module: str) -> os.stat_result:
    [path] = venv.glob(f"lib/python*/site-packages/__pycache__/{module}.*.pyc")
    return path.stat()


def test_a_second_environment_shares_files_and_their_bytecode_but_not_those_of_another_version(
    run_module: RunModule, with_uv: dict[str, Any]
) -> None:
    first, second = Path(with_uv["path"]), Path(with_uv["path"]).with_name("v2")
    run_module(release_venv, **with_uv)
    house, old = Path(with_uv["wheelhouse"]), next(name for name in with_uv["wheels"] if "sad_one" in name)
    newer = make_wheel(house, "sad_one", version="2.0", code="answer = 42\n")
    wheels = {name: sha256 for name, sha256 in with_uv["wheels"].items() if name != old}
    wheels[newer["file"]] = newer["sha256"]
    run_module(release_venv, **(with_uv | {"path": str(second), "wheels": wheels, "imports": ["sad_one"]}))

    assert bytecode(first, "tiny").st_ino == bytecode(second, "tiny").st_ino
    assert bytecode(first, "sad_one").st_ino != bytecode(second, "sad_one").st_ino
    answer = "import sad_one; print(sad_one.answer, sad_one.__file__)"
    said = subprocess.run([second / "bin/python", "-c", answer], capture_output=True, text=True, check=True)
    number, path = said.stdout.split()
    assert number == "42"
    assert Path(path).is_relative_to(second)


def test_what_is_no_complete_environment_shares_no_bytecode(
    run_module: RunModule, with_uv: dict[str, Any]
) -> None:
    first, second = Path(with_uv["path"]), Path(with_uv["path"]).with_name("v2")
    run_module(release_venv, **with_uv)
    (first / "smokestack.json").unlink()
    run_module(release_venv, **(with_uv | {"path": str(second)}))
    assert bytecode(first, "tiny").st_ino != bytecode(second, "tiny").st_ino


def test_a_full_disk_is_named_though_the_log_had_no_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_venv.shutil, "disk_usage", lambda _path: SimpleNamespace(free=3 << 20))
    with pytest.raises(VenvError, match="No space left on device: 3 MiB free"):
        release_venv.run(["false"], {"PATH": "/usr/bin:/bin"}, tmp_path / "log", lambda: None)
