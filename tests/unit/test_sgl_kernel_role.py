"""The role sgl_kernel on this machine: from a git repository to a proved wheel, with a real nvcc and uv."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from plan import deployment_plan
from run_play import run_play
from tiny_kernel import DATA, ORDER, commit, cuda_home, entry, repository, tool_wheels
from tiny_kernel_wheel import shared_object
from tiny_wheels import make_wheel

ROOT = Path(__file__).parents[2]
PLAY = """---
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.import_role:
        name: sgl_kernel
    - ansible.builtin.copy:
        content: "{{{{ wheelhouse_kernel | to_json }}}}"
        dest: {folder}/kernel.json
        mode: "0644"
      check_mode: false
      diff: false
      changed_when: false
"""
PROFILE = {"name": "tiny", "checkpoint": {"path": "m", "files": {}}, "served_name": "tiny", "launch": {}}

# A real compiler: minutes on a busy machine.
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the lock of uv and packaging is for 3.11"),
]


class Builder:
    """This machine as a builder, with all that it has in one folder. Its torch is a stand-in."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.house = folder, folder / "house"
        self.house.mkdir()
        for wheel in tool_wheels():
            (self.house / wheel.name).symlink_to(wheel)
        files = {"torch/__init__.py": "", "torch/lib/libtorch.so": shared_object().decode()}
        torch = make_wheel(self.house, "torch", "2.12.0", files=files)
        tools = [entry(wheel) for wheel in sorted(self.house.glob("*.whl")) if "torch" not in wheel.name]
        uv = [wheel for wheel in tools if wheel["name"] == "uv"]
        self.tools = [wheel for wheel in tools if wheel["name"] != "uv"]
        (folder / "git").mkdir()
        self.origin, self.commit = repository(folder / "git")
        self.lock = {
            "abi": "cp311",
            "platform": "linux_x86_64",
            "wheels": [torch, *uv],
            "toolkit": [],
            "build": self.tools,
        }
        self.source: dict[str, Any] = {
            "repository": "https://tiny-kernel.invalid/sglang",
            "commit": self.commit,
            "folder": "sgl-kernel",
            "patches": ORDER,
            "archs": ["12.0a"],
            "build": [f"{wheel['name']}=={wheel['version']}" for wheel in self.tools],
            "options": {"TINY_KERNEL_ENABLE_FA3": False},
            "fp4": "csrc/fp4*",
        }
        patches = folder / "catalog" / "patches"
        patches.mkdir(parents=True)
        (patches / "sgl-kernel").symlink_to(DATA / "patches")
        for name in ("kernel.yml", "cuda.yml"):
            (folder / "catalog" / name).symlink_to(ROOT / "catalog" / name)
        self.archive = folder / "source.tar"
        self.pack()

    def change(self, file: str, old: str, new: str) -> None:
        """Change a file of the source in the repository, in another commit."""
        path = self.origin / "sgl-kernel" / file
        path.write_text(path.read_text().replace(old, new))
        self.source["commit"] = commit(self.origin)

    def pack(self) -> None:
        """Make the archive of the repository and the dependencies."""
        bare = self.folder / "repository.git"
        shutil.rmtree(bare, ignore_errors=True)
        subprocess.run(["git", "clone", "--quiet", "--bare", str(self.origin), str(bare)], check=True)
        with tarfile.open(self.archive, "w") as tar:
            tar.add(bare, "repository.git")
            tar.add(DATA / "deps", "dependencies")

    @property
    def plan(self) -> dict[str, Any]:
        stack = {
            "name": "demo",
            "sglang": {"version": "0.5.9"},
            "torch": "2.12.0",
            "kernel": {"source": self.source},
            "cuda_toolkit": {"version": "13.0", "path": str(cuda_home())},
        }
        return deployment_plan(stack, PROFILE, self.lock)

    @property
    def kernel(self) -> Any:
        return json.loads((self.folder / "kernel.json").read_text())

    @property
    def record(self) -> dict[str, Any]:
        (sidecar,) = self.house.glob("*.kernel.json")
        record: dict[str, Any] = json.loads(sidecar.read_text())
        return record

    def run(self, *options: str, **more: Any) -> subprocess.CompletedProcess[str]:
        given = {
            "plan": self.plan,
            "plan_catalog": str(self.folder / "catalog"),
            "wheelhouse_folder": str(self.house),
            "run_id": "r",
            "run_holder": "h",
            "sgl_kernel_folder": str(self.folder / "kernel"),
            "sgl_kernel_archive": str(self.archive),
            "sgl_kernel_jobs": 1,
            "sgl_kernel_memory_gib": 6,
            "sgl_kernel_disk_gib": 1,
            "progress_interval": 1,
        }
        return run_play(self.folder, PLAY.format(folder=self.folder), given | more, *options)


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path)


def changes(done: subprocess.CompletedProcess[str]) -> int:
    """How many tasks of a run that went well said that they changed something."""
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout.rpartition("changed=")[2].split()[0])


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """What a refused run said, on one line."""
    assert done.returncode == 2, done.stdout + done.stderr
    return " ".join(done.stdout.split())


def test_a_kernel_is_built_once_proved_kept_and_built_again_only_when_that_is_asked_for(
    builder: Builder,
) -> None:
    told = builder.run("--check")
    assert changes(told) == 1
    assert "the kernel wheel would be built: its source" in told.stdout
    assert not (builder.folder / "kernel").exists()

    done = builder.run()
    assert changes(done) > 0
    assert "no wheel of this stack's kernel was built before" in done.stdout
    assert "units done" in done.stdout
    first = builder.record
    assert builder.kernel == {"file": first["file"], "sha256": first["sha256"]}
    assert first["proof"]["archs"] == ["sm_120a"]
    assert first["proof"]["fp4_instructions"] == {"sm_120a": 1}
    assert first["build"]["steps"] == first["build"]["units"] == 4
    assert first["build"]["torch"] == "2.12.0"
    states = {patch["name"]: patch["state"] for patch in first["patches"]}
    assert states == dict.fromkeys(ORDER, "applied") | {"dlpack-minimum": "not_needed"}
    assert Path(first["build"]["log"]).is_file()
    assert not list((builder.folder / "kernel" / "builds").iterdir())

    for options in (("--check",), ()):
        again = builder.run(*options)
        assert changes(again) == 0
        assert first["file"] in again.stdout
    assert builder.record == first

    builder.source["options"] = {"TINY_KERNEL_ENABLE_FA3": False, "TINY_OTHER": 1}
    told = builder.run("--check")
    assert "options: TINY_KERNEL_ENABLE_FA3 False -> TINY_KERNEL_ENABLE_FA3 False, TINY_OTHER 1" in " ".join(
        told.stdout.split()
    )
    assert builder.kernel is None
    del builder.source["options"]["TINY_OTHER"]

    assert "sgl_kernel_rebuild is set" in builder.run(sgl_kernel_rebuild=True).stdout
    assert builder.record["built"] > first["built"]
    assert builder.record["build"]["steps"] == 4
    assert builder.record["sha256"] == first["sha256"]


def test_a_mirror_stands_in_for_the_repository_and_what_it_lacks_is_told(builder: Builder) -> None:
    done = builder.run(sgl_kernel_archive=None, sgl_kernel_git=str(builder.origin))
    assert "no network for FetchContent: " in refusal(done)
    assert (builder.folder / "kernel" / "sources" / builder.commit[:12] / "source").is_dir()
    builder.source["commit"] = "0" * 40
    done = builder.run(sgl_kernel_archive=None, sgl_kernel_git=str(builder.origin))
    assert f"{builder.origin} did not give the commit {'0' * 40}" in refusal(done)


def test_a_wheel_that_the_proof_refuses_stays_out_of_the_wheelhouse(builder: Builder) -> None:
    builder.source["archs"] = ["12.0"]
    assert "a build for plain 12.0 ends well and holds no FP4" in refusal(builder.run())
    assert not (builder.folder / "kernel" / "builds").exists()

    builder.source["archs"] = ["12.0a"]
    builder.change("csrc/fp4.cu", "__CUDA_ARCH_FEAT_SM120_ALL", "NOTHING_HAS_THIS")
    builder.change("csrc/fp4.cu", "__CUDA_ARCH_FAMILY_SPECIFIC__", "NOR_THIS")
    builder.pack()
    said = refusal(builder.run())
    assert "should hold FP4 for sm_120a and was built for plain 12.0" in said
    assert "and no node gets it" in said
    assert not list(builder.house.glob("*.kernel.json"))
    assert not list(builder.house.glob("tiny_kernel-*.whl"))
