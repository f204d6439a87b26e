"""Retention: what is in use stays, what no release uses goes, and nothing is half-removed."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import release_list
import release_pin
import release_prune
import release_venv
from ansible.module_utils.disk import disk_bytes, is_unshared
from ansible.module_utils.releases import Store, surplus
from tiny_wheels import make_wheel

RunModule = Callable[..., dict[str, Any]]
KIB = 1 << 10


def release(name: str, safe: bool = False) -> dict[str, Any]:
    return {"name": name, "made": f"2026-01-0{name[-1]}", "safe": safe}


@pytest.mark.parametrize(
    ("safe", "keep", "gone"),
    [
        pytest.param("", 2, ["r1", "r2"], id="the oldest go"),
        pytest.param("", 4, [], id="all fit"),
        pytest.param("", 9, [], id="fewer than are kept"),
        pytest.param("1", 2, ["r2", "r3"], id="a safe one counts"),
        pytest.param("12", 1, ["r3", "r4"], id="more safe ones than are kept"),
        pytest.param("1234", 1, [], id="all safe"),
    ],
)
def test_the_oldest_releases_go_and_the_safe_ones_stay(safe: str, keep: int, gone: list[str]) -> None:
    releases = [release(f"r{number}", str(number) in safe) for number in (3, 1, 4, 2)]
    assert surplus(releases, keep) == gone


def test_a_release_without_a_date_counts_as_the_oldest() -> None:
    assert surplus([release("r2"), {"name": "r9", "made": None, "safe": False}], 1) == ["r9"]


class Node:
    """A node with four releases; the third and the fourth share an environment."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "opt"
        self.caches = folder / "caches"
        for number, venv in enumerate(("v1", "v2", "v3", "v3"), 1):
            home = self.root / f"releases/r{number}"
            home.mkdir(parents=True)
            wheels = {f"w{venv}.whl": "0" * 64, "shared.whl": "0" * 64}
            made = {"made": f"2026-01-0{number}", "venv": venv, "model": f"m{number}", "lock_id": "l"}
            (home / "manifest.json").write_text(json.dumps(made))
            self.put(f"opt/venvs/{venv}/smokestack.json", json.dumps({"wheels": wheels}), folder)
            self.put(f"opt/venvs/.{venv}.lock", "", folder)
            self.put(f"opt/models/m{number}/config.json", "x" * 5 * KIB, folder)
            self.put(f"caches/{venv}/kernel", "", folder)
            for wheel in wheels:
                self.put(f"opt/wheelhouse/{wheel}", "", folder)
        self.store = Store(self.root, folder / "run", folder / "engine")
        self.link("current", "r3")
        self.link("previous", "r1")
        (self.root / "releases/r1/proved").touch()  # else it is no way back

    def put(self, path: str, text: str, folder: Path) -> None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)

    def link(self, name: str, release: str) -> None:
        (self.root / name).unlink(missing_ok=True)
        (self.root / name).symlink_to(self.root / "releases" / release)

    def names(self, folder: str) -> set[str]:
        return {path.name for path in (self.root / folder).iterdir()}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    node = Node(tmp_path)
    monkeypatch.setattr(
        release_prune, "Store", lambda root: Store(root, tmp_path / "run", tmp_path / "engine")
    )
    return node


@pytest.fixture
def prune(node: Node, run_module: RunModule) -> RunModule:
    def run(**options: Any) -> dict[str, Any]:
        paths = {"root": str(node.root), "compile_caches": str(node.caches)}
        return run_module(release_prune, **{**paths, "keep": 2, **options})

    return run


def test_a_pruned_release_takes_along_what_only_it_used(prune: RunModule, node: Node) -> None:
    result = prune()
    assert result["changed"]
    assert node.names("releases") == {"r1", "r3"}
    assert node.names("venvs") == {"v1", "v3", ".v1.lock", ".v3.lock"}
    assert node.names("wheelhouse") == {"wv1.whl", "wv3.whl", "shared.whl"}
    assert {path.name for path in node.caches.iterdir()} == {"v1", "v3"}
    assert node.names("models") == {"m1", "m2", "m3", "m4"}
    assert str(node.root / "venvs/v2") in result["removed"]
    assert not prune()["changed"]


def test_a_wheel_that_no_environment_was_made_of_is_given_time(prune: RunModule, node: Node) -> None:
    (node.root / "wheelhouse/fresh.whl").touch()
    prune(keep=9)
    assert "fresh.whl" in node.names("wheelhouse")
    assert prune(keep=9, grace=-1)["removed"] == [str(node.root / "wheelhouse/fresh.whl")]


def test_weights_go_only_when_that_is_asked_for(prune: RunModule, node: Node) -> None:
    prune(grace=-1, models=True)
    assert node.names("models") == {"m1", "m3"}


def test_an_environment_that_no_release_ever_used_is_given_time(prune: RunModule, node: Node) -> None:
    (node.root / "venvs/fresh").mkdir()
    (node.root / "venvs/fresh/smokestack.json").write_text("{}")
    (node.caches / "fresh").mkdir()
    prune(keep=9)
    assert (node.root / "venvs/fresh").exists()
    assert (node.caches / "fresh").exists()
    assert prune(keep=9, grace=-1)["removed"] == [str(node.root / "venvs/fresh"), str(node.caches / "fresh")]


def test_what_an_installation_left_half_made_goes_at_once_unless_it_still_runs(
    prune: RunModule, node: Node
) -> None:
    for name in ("venvs/broken", "venvs/going-on", "toolkits/broken"):
        (node.root / name).mkdir(parents=True)
    with (node.root / "venvs/.going-on.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert prune(keep=9)["removed"] == [
            str(node.root / "venvs/broken"),
            str(node.root / "toolkits/broken"),
        ]
    assert (node.root / "venvs/going-on").exists()


def test_a_toolkit_goes_with_the_last_release_that_was_made_with_it(
    prune: RunModule, node: Node, tmp_path: Path
) -> None:
    for name in ("13.0-used", "13.0-left", "13.1-fresh"):
        manifest = {"wheels": {f"{name}.whl": "0" * 64, "nvcc.whl": "0" * 64}}
        node.put(f"opt/toolkits/{name}/smokestack.json", json.dumps(manifest), tmp_path)
        node.put(f"opt/toolkits/.{name}.lock", "", tmp_path)
        node.put(f"opt/wheelhouse/{name}.whl", "", tmp_path)
    node.put("opt/wheelhouse/nvcc.whl", "", tmp_path)
    homes = {"r1": "/usr/local/cuda-12.9", "r2": "13.0-left", "r3": "13.0-used", "r4": "13.0-left"}
    for name, home in homes.items():
        file = node.root / f"releases/{name}/manifest.json"
        toolkit = {"home": str(node.root / "toolkits" / home)}  # a path of the host stays what it is
        file.write_text(json.dumps({**json.loads(file.read_text()), "toolkit": toolkit}))
    removed = prune()["removed"]
    assert str(node.root / "toolkits/13.0-left") in removed
    assert node.names("toolkits") == {
        *("13.0-used", ".13.0-used.lock", "13.1-fresh", ".13.1-fresh.lock"),
    }
    there = {"nvcc.whl", "13.0-used.whl", "13.1-fresh.whl", "wv1.whl", "wv3.whl", "shared.whl"}
    assert node.names("wheelhouse") == there
    assert prune(grace=-1)["removed"] == [
        str(node.root / "toolkits/13.1-fresh"),
        str(node.root / "wheelhouse/13.1-fresh.whl"),
    ]


def test_check_mode_says_what_would_go_and_removes_nothing(prune: RunModule, node: Node) -> None:
    before = sorted(node.root.rglob("*"))
    told = prune(check=True)
    assert told["changed"]
    assert str(node.root / "releases/r2") in told["diff"]["before"]
    assert sorted(node.root.rglob("*")) == before
    assert told["removed"] == prune()["removed"]


@pytest.mark.parametrize("name", ["pinned", "trial", "running"])
def test_a_release_that_something_names_stays(
    prune: RunModule, node: Node, name: str, tmp_path: Path
) -> None:
    if name == "pinned":
        node.store.pin("r2", True)
    elif name == "trial":
        journal = {"candidate": "r3", "revert_to": "r1", "previous": "r2"}
        (node.root / "trial.json").write_text(json.dumps(journal))
    else:
        (tmp_path / "engine").symlink_to(node.root / "releases/r2")
    prune(keep=1)
    assert node.names("releases") == {"r1", "r2", "r3"}


def test_an_environment_that_is_being_installed_is_left(prune: RunModule, node: Node) -> None:
    with (node.root / "venvs/.v2.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = prune()
    assert str(node.root / "venvs/v2") not in result["removed"]
    assert (node.root / "venvs/v2/smokestack.json").exists()


def test_what_a_killed_prune_left_goes_with_the_next_one(
    prune: RunModule, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_arguments: object, **_options: object) -> None:
        raise OSError("cut")

    with monkeypatch.context() as patch:
        patch.setattr(release_prune, "sync_folder", killed)
        assert "pruning ended early" in prune()["msg"]
    assert node.names("releases") == {"r1", "r3", "r4", ".gone.r2"}
    assert "r2" not in node.store.names()
    prune()
    assert node.names("releases") == {"r1", "r3"}


def test_uvs_cache_keeps_what_an_environment_shares(prune: RunModule, node: Node) -> None:
    cache = node.root / "cache/uv"
    (cache / "wheels-v8/index").mkdir(parents=True)
    for name in ("v2", "v3", "unknown"):
        (cache / "archive-v0" / name).mkdir(parents=True)
        (cache / "archive-v0" / name / "file").write_text("x")
        if name != "unknown":
            os.link(cache / "archive-v0" / name / "file", node.root / "venvs" / name / "file")
            (cache / "wheels-v8/index" / name).symlink_to(f"../../archive-v0/{name}")
            (cache / f"wheels-v8/index/{name}.rev").touch()
    prune()
    assert sorted(path.name for path in (cache / "archive-v0").iterdir()) == ["unknown", "v3"]
    assert sorted(path.name for path in (cache / "wheels-v8/index").iterdir()) == ["v3", "v3.rev"]


WHEELHOUSE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "smokestack/wheelhouse"


@pytest.mark.skipif(not list(WHEELHOUSE.glob("uv-*.whl")), reason="no uv in the wheelhouse: run make demo")
def test_uv_itself_installs_again_from_a_pruned_cache(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    wheels = [make_wheel(tmp_path / "wheels", name)["name"] for name in ("one", "two")]
    uv = release_venv.unpack_uv(next(WHEELHOUSE.glob("uv-*.whl")), tmp_path)
    environment = {"PATH": "/usr/bin:/bin", "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_NO_CONFIG": "1"}

    def install(name: str) -> None:
        venv = tmp_path / name
        python = ["--python", str(venv / "bin/python")]
        offline = ["--quiet", "--offline", "--no-index", "--no-deps", "--link-mode", "hardlink"]
        for command in (
            ["venv", "--quiet", "--python", sys.executable, str(venv)],
            ["pip", "install", *offline, "--find-links", str(tmp_path / "wheels"), *python, *wheels],
        ):
            subprocess.run([str(uv), *command], env=environment, check=True, capture_output=True)

    def archives() -> int:
        return len(list((tmp_path / "cache").glob("archive-v*/*")))

    install("one")
    release_prune.drop_unshared(tmp_path / "cache")
    assert archives() == len(wheels), "they are shared"
    shutil.rmtree(tmp_path / "one")
    release_prune.drop_unshared(tmp_path / "cache")
    assert archives() == 0
    install("two")
    assert archives() == len(wheels)


def test_at_least_one_release_is_kept(prune: RunModule) -> None:
    assert prune(keep=0)["msg"] == "keep must be at least 1, not 0"


def test_a_node_without_releases_has_nothing_to_prune(run_module: RunModule, tmp_path: Path) -> None:
    paths = {"root": str(tmp_path / "none"), "compile_caches": str(tmp_path / "none")}
    assert not run_module(release_prune, **paths)["changed"]
    assert run_module(release_list, root=paths["root"], measure=True)["releases"] == []


def test_a_pin_is_put_and_taken_once(run_module: RunModule, node: Node) -> None:
    def pin(check: bool = False, **options: Any) -> dict[str, Any]:
        return run_module(release_pin, check=check, root=str(node.root), **options)

    assert pin(release="r2", check=True)["changed"]
    assert not node.store.pinned("r2")
    assert [pin(release="r2")["changed"], pin(release="r2")["changed"]] == [True, False]
    assert node.store.pinned("r2")
    assert pin(release="r2", pinned=False)["diff"]["after"] == "r2 pinned: False\n"
    assert not node.store.pinned("r2")
    assert pin(release="r9")["msg"] == "there is no release 'r9' on this node; there is: r1, r2, r3, r4"


def test_the_list_is_measured_and_the_newest_comes_first(run_module: RunModule, node: Node) -> None:
    told = run_module(release_list, root=str(node.root), measure=True)
    assert [entry["name"] for entry in told["releases"]] == ["r4", "r3", "r2", "r1"]
    by_name = {entry["name"]: entry for entry in told["releases"]}
    assert by_name["r3"]["current"]
    assert by_name["r1"]["previous"]
    assert not by_name["r2"]["safe"]
    assert by_name["r2"]["verdict"] is None
    assert by_name["r1"]["model_bytes"] >= 5 * KIB
    assert told["disk"]["bytes"] > 4 * 5 * KIB
    assert told["disk"]["unused_models"] == {}


def test_a_file_with_two_names_is_counted_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a/file").write_bytes(b"x" * (64 * KIB))
    assert is_unshared(tmp_path / "a")
    os.link(tmp_path / "a/file", tmp_path / "b/file")
    assert not is_unshared(tmp_path / "a")
    one, both = disk_bytes(tmp_path / "a"), disk_bytes(tmp_path / "a", tmp_path / "b")
    assert one >= 64 * KIB
    assert both < 2 * 64 * KIB
    assert disk_bytes(tmp_path / "none") == 0
