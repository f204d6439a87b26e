"""The stand-in for sgl-kernel, built by the modules with a real nvcc: once, below a ceiling, resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernel
import kernel_wheel_facts
import kernel_wheel_kept
import pytest
from tiny_kernel import DATA, installed
from tiny_kernel_build import Kitchen

RunModule = Callable[..., dict[str, Any]]
WANTED = {"arch": "sm_120a", "fp4": True, "cuda": "13.0", "torch": "2.12.0"}
LIBRARY = Path(__file__).parents[2] / "library"
HUNGRY = """
#include <cstddef>
#include <utility>
// A list that the compiler takes half a gigabyte for.
template <std::size_t... I> const long *many(std::index_sequence<I...>) {
  static constexpr long values[] = {static_cast<long>(I)...};
  return values;
}
extern "C" const long *tiny_hungry() { return many(std::make_index_sequence<1000000>()); }
"""

# A real compiler; without an nvcc they are skipped, and say so.


@pytest.mark.parametrize(
    ("without", "newest_cmake", "kind"),
    [
        ("cmake-policy-guards", False, "unknown CMake policy"),
        ("cccl-include", False, "no cuda/std for the host compiler"),
        ("dlpack-minimum", True, "a dependency asks for an old CMake"),
        ("fa3-optional", False, "a kernel of another architecture"),
    ],
)
def test_without_a_patch_the_failure_is_told_by_its_kind_and_names_the_patch(
    tmp_path: Path, run_module: RunModule, without: str, newest_cmake: bool, kind: str
) -> None:
    result = Kitchen(tmp_path, run_module, newest_cmake=newest_cmake).build(without=[without])
    assert result["failed"]
    assert result["msg"].startswith(f"the kernel wheel was not built, {kind}: ")
    assert without in result["msg"]
    assert "\n" not in result["msg"]


def test_a_dependency_that_cannot_be_fetched_is_told(tmp_path: Path, run_module: RunModule) -> None:
    result = Kitchen(tmp_path, run_module).build(dependencies=None)
    assert "no network for FetchContent: " in result["msg"]
    assert "sgl_kernel_archive" in result["msg"]


def test_an_architecture_that_nvcc_does_not_know_is_told(tmp_path: Path, run_module: RunModule) -> None:
    assert "nvcc too old: nvcc fatal" in Kitchen(tmp_path, run_module).build(archs=["19.9a"])["msg"]


@pytest.mark.parametrize("newest_cmake", [False, True])
def test_a_patched_build_passes_the_proof_and_its_twin_takes_no_step(
    tmp_path: Path, run_module: RunModule, newest_cmake: bool
) -> None:
    kitchen = Kitchen(tmp_path, run_module, newest_cmake=newest_cmake)
    assert kitchen.build(check=True)["changed"]
    assert not (tmp_path / "builds").exists()
    built = kitchen.build()
    assert (built["steps"], built["units"]) == (4, 4)
    assert Path(built["wheel"]).name == "tiny_kernel-0.1.0-0f00d-cp310-abi3-linux_x86_64.whl"
    told = json.loads((tmp_path / "progress.json").read_text())
    assert (told["total"], told["note"].split(" units")[0]) in [(4, f"{done} of 4") for done in (1, 2, 3, 4)]
    facts = run_module(kernel_wheel_facts, wheel=built["wheel"], tools=[str(installed(DATA / "tools.txt"))])
    assert kernel.kernel_wheel_refusals(facts["facts"], WANTED) == []

    kept = {"path": str(tmp_path / "house"), "fingerprint": "f00d", "stack": "demo"}
    entered = run_module(kernel_wheel_kept, **kept, wheel=built["wheel"], record={"parts": {}})
    assert entered["kernel"]["sha256"] == built["sha256"]
    assert run_module(kernel_wheel_kept, **kept)["kernel"] == entered["kernel"]

    again = kitchen.build()
    assert (again["steps"], again["sha256"]) == (0, built["sha256"])
    anew = kitchen.build(fresh=True)
    assert (anew["steps"], anew["sha256"]) == (4, built["sha256"])


def test_a_build_for_plain_12_0_ends_well_and_is_refused_by_the_proof(
    tmp_path: Path, run_module: RunModule
) -> None:
    built = Kitchen(tmp_path, run_module).build(archs=["12.0"])
    facts = run_module(kernel_wheel_facts, wheel=built["wheel"], tools=[str(installed(DATA / "tools.txt"))])
    (refusal,) = kernel.kernel_wheel_refusals(facts["facts"], WANTED)
    assert "was built for plain 12.0" in refusal


def test_a_compiler_that_hits_the_ceiling_fails_alone_and_the_rest_is_kept(
    tmp_path: Path, run_module: RunModule
) -> None:
    kitchen = Kitchen(tmp_path, run_module, more={"csrc/common_extension.cpp": HUNGRY})
    result = kitchen.build(memory_gib=0.35)
    assert "the kernel wheel was not built, killed for memory: " in result["msg"]
    assert "sgl_kernel_jobs" in result["msg"]
    assert "0.35 GiB" in result["msg"]
    again = kitchen.build(memory_gib=8)
    assert again["steps"] < again["units"]


def arguments_of(kitchen: Kitchen) -> dict[str, Any]:
    """The arguments of a build, of one that only says what it would do."""
    given: dict[str, Any] = kitchen.build(check=True)["invocation"]["module_args"]
    return given


def test_a_build_that_was_killed_goes_on_with_what_it_lacks_and_another_run_is_refused_meanwhile(
    tmp_path: Path, run_module: RunModule
) -> None:
    kitchen = Kitchen(tmp_path, run_module)
    given = arguments_of(kitchen)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [tmp_path / "bridge"]))}
    bridge = tmp_path / "bridge"
    bridge.mkdir()
    (bridge / "sitecustomize.py").write_text(
        "import ansible.module_utils\n"
        f"ansible.module_utils.__path__.append({str(LIBRARY.parent / 'module_utils')!r})\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(LIBRARY / "kernel_wheel_build.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({"ANSIBLE_MODULE_ARGS": given | {"run": "first"}}))
    process.stdin.close()
    objects = tmp_path / "builds" / "builds" / "f00d" / "objects"
    deadline = time.monotonic() + 120
    ended = objects / ".ninja_log"  # names what is compiled whole
    while not (ended.is_file() and ".cu.o" in ended.read_text()):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.stdout and process.stdout.read()
        time.sleep(0.02)
    refused = kitchen.build(run="second")
    assert f"another build works in {tmp_path}/builds: the build f00d, since " in refused["msg"]
    holder = json.loads((tmp_path / "builds" / ".building.json").read_text())
    assert f"kill -- -{holder['group']}" in refused["msg"]

    process.kill()  # what compiles goes on, and holds the lock
    process.wait()
    assert "another build works in" in kitchen.build(run="second")["msg"]
    os.killpg(holder["group"], signal.SIGKILL)
    time.sleep(0.5)
    resumed = kitchen.build(run="second")
    assert 0 < resumed["steps"] < resumed["units"] == 4
