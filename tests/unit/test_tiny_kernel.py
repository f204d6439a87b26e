"""The stand-in for sgl-kernel, with a real nvcc: it fails where that fails, and its builds are told apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernel
import kernel_wheel_facts
import pytest
from ansible.module_utils.kernel_wheel import sidecar_of
from tiny_kernel import DATA, PATCHES, build, installed

RunModule = Callable[..., dict[str, Any]]
WANTED = {"arch": "sm_120a", "fp4": True, "cuda": "13.0", "torch": "2.12.0"}

# A real compiler: minutes on a busy machine.
pytestmark = pytest.mark.full


@pytest.mark.parametrize(
    ("without", "newest_cmake", "said"),
    [
        ("cmake-policy-guards", False, 'Policy "CMP0169" is not known to this version of CMake'),
        ("cccl-include", False, "cuda/std/utility: No such file or directory"),
        ("dlpack-minimum", True, "Compatibility with CMake < 3.5 has been removed"),
        ("fa3-optional", False, "not supported on .target 'sm_120a'"),
    ],
)
def test_without_one_patch_the_build_fails_as_sgl_kernels_does(
    tmp_path: Path, without: str, newest_cmake: bool, said: str
) -> None:
    built = build(tmp_path, without=[without], newest_cmake=newest_cmake)
    assert built.status != 0
    assert said in " ".join(built.output.split())
    assert not built.wheels


def test_the_unpatched_tree_does_not_build(tmp_path: Path) -> None:
    built = build(tmp_path, patched=False)
    assert built.status != 0
    assert "CMP0169" in built.output


def test_without_the_local_dependency_it_is_fetched_from_a_host_that_is_not_there(tmp_path: Path) -> None:
    built = build(tmp_path, fetch=True)
    assert built.status != 0
    assert "tiny-kernel.invalid" in built.output


def look(run_module: RunModule, wheel: Path, **more: Any) -> dict[str, Any]:
    """The facts of a wheel, with NVIDIA's real programs."""
    tools = [str(installed(DATA / "tools.txt"))]
    return run_module(kernel_wheel_facts, wheel=str(wheel), tools=tools, **more)


@pytest.mark.parametrize(
    ("archs", "newest_cmake", "listed"),
    [("12.0a", False, "sm_120a"), ("12.0a", True, "sm_120a"), ("12.0f", False, "sm_120")],
)
def test_a_patched_build_holds_one_fp4_instruction_and_passes(
    tmp_path: Path, run_module: RunModule, archs: str, newest_cmake: bool, listed: str
) -> None:
    built = build(tmp_path, archs=archs, newest_cmake=newest_cmake)
    assert built.status == 0, built.output[-2000:]
    (wheel,) = built.wheels
    result = look(run_module, wheel, count=True)
    facts = result["facts"]
    assert facts["archs"] == [listed]
    assert facts["fp4"]["instructions"] == {listed: 1}
    assert facts["fp4"]["instruction_names"] == ["OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X"]
    assert facts["fp4"]["symbols"] == ["tiny_kernel_fp4", "tiny_scaled_fp4_mm_sm120"]
    assert facts["marker"]["seen"] == "no"
    assert facts["cuda"] == ["13"]
    assert [item["files"] for item in facts["objects"]] == [["tiny_kernel/sm100/common_ops.abi3.so"]]
    assert kernel.kernel_refusals(facts, WANTED) == []
    assert look(run_module, wheel)["kept"]


def test_a_build_for_plain_12_0_succeeds_and_is_refused(tmp_path: Path, run_module: RunModule) -> None:
    built = build(tmp_path, archs="12.0")
    assert built.status == 0, built.output[-2000:]
    facts = look(run_module, built.wheels[0])["facts"]
    assert facts["archs"] == ["sm_120"]
    assert facts["fp4"]["instructions_seen"] == "no"
    assert facts["marker"] == {"seen": "yes", "cubins": {"sm_120": 1}}
    (refusal,) = kernel.kernel_refusals(facts, WANTED)
    assert "plain 12.0" in refusal


def test_without_the_patch_the_arch_list_has_no_effect(tmp_path: Path, run_module: RunModule) -> None:
    built = build(tmp_path, without=["arch-list"])
    assert built.status == 0, built.output[-2000:]
    facts = look(run_module, built.wheels[0], count=True)["facts"]
    assert facts["archs"] == ["sm_120a", "sm_90a"]
    assert [item["files"][0] for item in facts["objects"]] == [
        "tiny_kernel/sm100/common_ops.abi3.so",
        "tiny_kernel/sm90/common_ops.abi3.so",
    ]


def test_nothing_is_kept_in_check_mode(tmp_path: Path, run_module: RunModule) -> None:
    wheel = build(tmp_path).wheels[0]
    look(run_module, wheel, check=True)
    assert not sidecar_of(wheel).exists()


def test_every_patch_has_its_sidecar() -> None:
    assert {path.stem for path in (DATA / "patches").glob("*.yml")} == set(PATCHES)
