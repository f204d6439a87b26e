"""`site.yml --tags sgl_kernel`: a kernel from source goes from a git repository to a gated server, and back.

The engine is the real one, on a CPU. Its kernel is a stand-in that is compiled for SM120 with a real nvcc;
beside it in its wheel is what lets SGLang start without kernels.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from integration.harness import REPO, ROOT, Node, Playbooks, Run
from stacks import lock_name, read_lock, stack_inputs, write_lock
from unit.tiny_kernel import DATA, ORDER, commit, cuda_home, entry, repository, tool_wheels

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

STAND_IN = REPO / "packaging" / "cpu_stand_in"
FILES = ("smokestack_cpu_stand_in.py", "smokestack_cpu_stand_in.pth")
HOUSE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "smokestack" / "wheelhouse"
KIND = {"abi": "cp311", "platform": "linux_x86_64"}
# The kernel imports for everything but the server, as one does that asks for a symbol of another torch.
BROKEN = """
import sys
if any("launch_server" in word for word in sys.orig_argv):
    STAND_INS = ("torchvision",)
"""


class Catalogue:
    """A copy of the catalogue with a stack whose kernel is built from a repository of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.stacks = folder / "catalog", folder / "catalog" / "stacks"
        shutil.copytree(REPO / "catalog", self.folder)
        shutil.rmtree(self.folder / "patches" / "sgl-kernel")
        shutil.copytree(DATA / "patches", self.folder / "patches" / "sgl-kernel")
        source = folder / "source"
        shutil.copytree(DATA / "source", source)
        for name in FILES:
            shutil.copy(STAND_IN / name, source)
        with (source / "CMakeLists.txt").open("a") as file:
            file.write("\n# What lets SGLang start on a CPU\n")
            file.write(f"install(FILES {' '.join(FILES)} DESTINATION .)\n")
        (folder / "git").mkdir()
        self.origin, self.commit = repository(folder / "git", source)
        self.tools = [entry(wheel) for wheel in tool_wheels() if not wheel.name.startswith("uv-")]
        self.archive = folder / "source.tar"
        self.write()

    def write(self) -> None:
        """Write the stack and its lock, and the archive of its source."""
        stack: dict[str, Any] = yaml.safe_load((self.stacks / "cpu-demo.yml").read_text())
        stack |= {
            "name": "cpu-kernel",
            "cuda_toolkit": {"version": "13.0", "path": str(cuda_home())},
            "kernel": {
                "source": {
                    "repository": "https://tiny-kernel.invalid/sglang",
                    "commit": self.commit,
                    "folder": "sgl-kernel",
                    "patches": ORDER,
                    "archs": ["12.0a"],
                    "build": [f"{wheel['name']}=={wheel['version']}" for wheel in self.tools],
                    "fp4": "csrc/fp4*",
                }
            },
        }
        (self.stacks / "cpu-kernel.yml").write_text(json.dumps(stack))  # which is YAML
        lock = read_lock((self.stacks / lock_name("cpu-demo", **KIND)).read_text())
        meta = {**KIND, "stack": "cpu-kernel", "inputs": stack_inputs(stack), "resolved": lock["resolved"]}
        text = write_lock(lock["wheels"], meta, [], self.tools)
        (self.stacks / lock_name("cpu-kernel", **KIND)).write_text(text)
        with tarfile.open(self.archive, "w") as tar:
            tar.add(self.origin / ".git", "repository.git")
            tar.add(DATA / "deps", "dependencies")

    def break_the_kernel(self) -> None:
        with (self.origin / "sgl-kernel" / FILES[0]).open("a") as file:
            file.write(BROKEN)
        self.commit = commit(self.origin)
        self.write()


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    """The wheelhouse is the user's; what the tests built leaves it."""
    yield Catalogue(tmp_path_factory.mktemp("kernel"))
    for path in HOUSE.glob("tiny_kernel-*"):
        path.unlink()


@pytest.fixture(scope="module")
def variables(catalogue: Catalogue) -> dict[str, Any]:
    return {
        "stack": "cpu-kernel",
        "plan_catalog": str(catalogue.folder),
        "model_base": str(REPO),
        "sgl_kernel_archive": str(catalogue.archive),
        "sgl_kernel_folder": str(catalogue.folder.parent / "kernel"),
        "sgl_kernel_jobs": 1,
        "sgl_kernel_memory_gib": 6,
        "sgl_kernel_disk_gib": 1,
    }


@pytest.fixture(scope="module")
def built(node: Node, playbooks: Playbooks, variables: dict[str, Any]) -> Run:
    return playbooks.run("site.yml", "--tags sgl_kernel", variables)


def kernel_of(node: Node) -> dict[str, str]:
    """The kernel wheel of the release that serves, by its manifest."""
    kernel: dict[str, str] = node.read_json(f"{ROOT}/current/manifest.json")["kernel"]
    return kernel


def test_one_tag_builds_the_kernel_and_carries_it_to_a_gated_server(node: Node, built: Run) -> None:
    assert built.rc == 0, built.failures
    assert [
        line for line in built.told if re.match("the kernel wheel of fingerprint .* is to be built", line)
    ]
    assert [line for line in built.told if line.startswith("it holds code for sm_120a; FP4 comes from")]
    assert kernel_of(node)["file"].startswith("tiny_kernel-0.1.0-0")
    assert node.run("sh", "-c", f"ls {ROOT}/current/venv/lib/python3*/site-packages/tiny_kernel/sm100") == (
        "common_ops.abi3.so\n"
    )
    assert node.answer() == "OK"
    assert node.read_json(f"{ROOT}/current/verdict.json")["verdict"] in ("pass", "warn")


def test_a_second_run_compiles_nothing_and_changes_nothing(
    node: Node, built: Run, playbooks: Playbooks, variables: dict[str, Any]
) -> None:
    release = node.linked("current")
    again = playbooks.run("site.yml", "--tags sgl_kernel", variables)
    assert again.rc == 0, again.failures
    assert sum(again.changed.values()) == 0
    assert "kernel_wheel_build" not in again.actions
    assert node.linked("current") == release


def test_a_stack_without_a_source_has_nothing_to_build(node: Node, playbooks: Playbooks) -> None:
    refused = playbooks.run("site.yml", "--tags sgl_kernel")
    assert refused.rc != 0
    assert "--tags sgl_kernel: stack cpu-demo builds no kernel" in refused.failure


def test_a_kernel_that_the_server_cannot_import_is_rolled_back(
    node: Node, built: Run, playbooks: Playbooks, variables: dict[str, Any], catalogue: Catalogue
) -> None:
    release, kernel = node.linked("current"), kernel_of(node)
    catalogue.break_the_kernel()
    broken = playbooks.run("site.yml", "--tags sgl_kernel", variables)
    assert broken.rc != 0
    assert f"release {release} serves again and passed its gate" in broken.failure
    assert node.linked("current") == release
    assert kernel_of(node) == kernel
    assert node.answer() == "OK"


def test_the_sidecar_tells_what_the_wheel_was_made_of(node: Node, built: Run) -> None:
    file = kernel_of(node)["file"]
    record = json.loads((HOUSE / f"{file}.kernel.json").read_text())
    assert record["sha256"] == hashlib.sha256((HOUSE / file).read_bytes()).hexdigest()
    assert record["parts"]["torch"]
    assert record["build"]["steps"] == record["build"]["units"]
