"""A CUDA toolkit of wheels: locked, refused where it cannot compile, laid out once, carried in a kit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from integration.harness import LAB, LAB_TOOL, REPO, ROOT, Node, Playbooks, Run, difference

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

STACK = "cuda-on-cpu"
CUDA: dict[str, Any] = {
    "name": STACK,
    "title": "SGLang 0.5.9 on a CPU, with the torch of CUDA 13",
    "torch": "2.13.0",  # PyPI's
    "cuda": "13.0",
    "cuda_toolkit": {
        "version": "13.0",
        "wheels": [
            "nvidia-cuda-nvcc==13.0.88",
            "nvidia-cuda-crt==13.0.88",
            "nvidia-nvvm==13.0.88",
            "nvidia-cuda-runtime==13.0.96",
            "nvidia-cuda-cccl==13.0.85",
        ],
    },
}
INDEX = {"PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}  # no torch of this machine's own
KERNEL = """#include <cuda/std/array>
__global__ void twice(int* x) { *x *= cuda::std::array<int, 1>{2}[0]; }
int main() { twice<<<1, 1>>>(nullptr); }
"""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The catalogue with one more stack: that of the demo with torch for CUDA, and a CUDA toolkit."""
    folder = tmp_path_factory.mktemp("toolkit") / "catalog"
    shutil.copytree(REPO / "catalog", folder)
    stack = yaml.safe_load((folder / "stacks/cpu-demo.yml").read_text()) | CUDA
    del stack["indexes"], stack["from_index"]
    (folder / f"stacks/{STACK}.yml").write_text(yaml.safe_dump(stack))
    return folder


@pytest.fixture(scope="module")
def chosen(catalog: Path) -> Mapping[str, str]:
    return {"stack": STACK, "plan_catalog": str(catalog)}


@pytest.fixture(scope="module")
def lock(playbooks: Playbooks, chosen: Mapping[str, str], catalog: Path) -> str:
    """The lock as lock.yml wrote it, from the real index."""
    run = playbooks.run("lock.yml", variables=chosen, environment=INDEX)
    assert run.rc == 0, run.failures
    [file] = (catalog / "stacks").glob(f"{STACK}.*.lock")
    return file.read_text()


def test_the_lock_holds_the_toolkits_wheels_beside_those_of_the_environment(lock: str) -> None:
    for wheel in ("nvidia_cuda_nvcc-13.0.88-", "nvidia_nvvm-13.0.88-", "nvidia_cuda_cccl-13.0.85-", "torch-"):
        assert any(f" {wheel}" in line for line in lock.splitlines()), wheel


@pytest.fixture(scope="module")
def refused_driver(lock: str, deployed: Node, playbooks: Playbooks, chosen: Mapping[str, str]) -> Run:
    """A run on a node without a GPU's driver."""
    return playbooks.run("site.yml", variables=chosen)


def test_a_node_without_a_driver_is_refused_before_anything_is_brought(refused_driver: Run) -> None:
    assert refused_driver.rc != 0
    assert "the node has no NVIDIA driver" in refused_driver.failure
    assert refused_driver.changed == {}


@pytest.fixture(scope="module")
def with_driver(refused_driver: Run, deployed: Node) -> Iterator[Node]:
    """The node with a stand-in for the driver: the file in which a loaded one tells its version."""
    there = "mkdir -p /sys/module/nvidia && echo 580.95.05 > /sys/module/nvidia/version"
    deployed.run("sh", "-c", f"mount -o remount,rw /sys && {there}")  # a host's /sys is a tmpfs
    yield deployed
    deployed.run("rm", "-r", "/sys/module/nvidia")


@pytest.fixture(scope="module")
def refused(with_driver: Node, playbooks: Playbooks, chosen: Mapping[str, str]) -> Run:
    """A run on a node without a C++ compiler."""
    return playbooks.run("site.yml", variables=chosen)


def test_a_node_without_a_compiler_is_refused_and_serves_on(refused: Run, deployed: Node) -> None:
    assert refused.rc != 0
    assert "cannot compile and link" in refused.failure
    assert "apt-get install g++" in refused.failure
    manifest = deployed.read_json(f"{ROOT}/current/manifest.json")
    assert manifest["stack"] != STACK
    assert deployed.answer() == "OK"


def compiler_files() -> list[str]:
    """The files of this machine's g++ and of all that it needs; its system is that of the lab's hosts."""
    if not shutil.which("g++"):
        pytest.skip("this machine has no g++ to give to the lab's host: apt-get install g++")
    depends = ["apt-cache", "depends", "--recurse", "--installed", "--no-recommends", "--no-suggests"]
    depends += ["--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances", "g++"]
    names = {line for line in output(depends).splitlines() if line and line[0] not in " |<"}
    files = output(["dpkg-query", "--listfiles", *sorted(names)]).splitlines()
    return sorted({file for file in files if file.startswith("/") and not Path(file).is_dir()})


def output(argv: list[str]) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def with_compiler(refused: Run, deployed: Node) -> Node:
    """The node with the C++ compiler of this machine: it cannot reach a repository."""
    files = "\0".join(file for file in compiler_files() if os.path.lexists(file))
    pack = ["tar", "--create", "--null", "--files-from", "-", "--absolute-names"]
    packed = subprocess.run(pack, input=files.encode(), check=True, capture_output=True).stdout
    unpack = [sys.executable, str(LAB_TOOL), "--lab", LAB, "exec", deployed.name, "--"]
    unpack += ["tar", "--extract", "--absolute-names", "--skip-old-files"]
    subprocess.run(unpack, input=packed, check=True, capture_output=True)
    deployed.run("g++", "--version")
    return deployed


@pytest.fixture(scope="module")
def proved(with_compiler: Node, playbooks: Playbooks, chosen: Mapping[str, str]) -> Node:
    """The node with a release of the stack."""
    run = playbooks.run("site.yml", variables=chosen)
    assert run.rc == 0, run.failures
    return with_compiler


def test_the_release_names_its_toolkit_and_passes_its_gate(proved: Node) -> None:
    manifest = proved.read_json(f"{ROOT}/current/manifest.json")
    home = manifest["toolkit"]["home"]
    assert home.startswith(f"{ROOT}/toolkits/13.0-")
    assert f"CUDA_HOME={home}" in proved.run("cat", f"/proc/{proved.pid()}/environ").split("\0")
    assert proved.read_json(f"{ROOT}/current/verdict.json")["verdict"] == "pass"
    assert proved.answer() == "OK"


def test_the_toolkit_on_the_node_compiles_for_sm_120a(proved: Node) -> None:
    home = proved.read_json(f"{ROOT}/current/manifest.json")["toolkit"]["home"]
    build = f"cat > x.cu <<'END'\n{KERNEL}END\n{home}/bin/nvcc -arch=sm_120a -o x x.cu && test -x x"
    proved.run("sh", "-c", f"cd $(mktemp -d) && {build}")


def test_a_second_run_changes_nothing_and_lays_nothing_out(
    proved: Node, playbooks: Playbooks, chosen: Mapping[str, str]
) -> None:
    before = proved.listing()
    run = playbooks.run("site.yml", variables=chosen)
    assert run.rc == 0, run.failures
    assert run.changed == {}
    assert difference(before, proved.listing()) == {}


def test_a_kit_carries_the_toolkits_wheels(
    lock: str, playbooks: Playbooks, chosen: Mapping[str, str], tmp_path: Path
) -> None:
    kit = tmp_path / "toolkit.kit.tar"
    run = playbooks.run("kit.yml", variables={**chosen, "kit_export": str(kit)})
    assert run.rc == 0, run.failures
    with tarfile.open(kit) as archive:
        names = {Path(name).name for name in archive.getnames()}
    wanted = {line.split()[1] for line in lock.splitlines() if line.startswith("# ") and ".whl " in line}
    assert any(name.startswith("nvidia_cuda_nvcc-") for name in wanted)
    assert wanted <= names, json.dumps(sorted(wanted - names))
