"""What has to agree in a stack agrees, or is said with both versions and the line to change."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import wheel_needs
import yaml
from agreement import agreement_problems, cuda_of_tag, node_cuda_problems, stack_places
from stacks import stack_lines
from tiny_wheels import make_wheel

RunModule = Callable[..., dict[str, Any]]
ROOT = Path(__file__).parents[2]
CUDA = yaml.safe_load((ROOT / "catalog/cuda.yml").read_text())

TEXT = """---
name: demo
cuda: "13.0"
torch: 2.14.1
flashinfer:
  version: 0.7.2
  jit_cache: cu130
sglang:
  version: 0.5.23
kernel:
  wheel:
    name: sglang-kernel
    version: 0.4.10
    torch: 2.14.1
    cuda: "13"
requirements:
  - flashinfer-jit-cache-sm120f==0.7.2+cu130
without_dependencies:
  - uv==0.13.9
"""
LINES = stack_lines(TEXT)
STACK: dict[str, Any] = yaml.safe_load(TEXT)
NEEDS = {
    "sglang": ["torch==2.14.1", "flashinfer_python[cu13]==0.7.2", "sglang-kernel==0.4.10", "uvicorn>=0.51"],
    "sglang-kernel": ["torch==2.14.1"],
}
VERSIONS = {
    "torch": "2.14.1",
    "nvidia-cuda-runtime": "13.0.96",
    "nvidia-cuda-nvcc": "13.5.37",
    "flashinfer-python": "0.7.2",
    "flashinfer-cubin": "0.7.2",
    "flashinfer-jit-cache": "0.7.2+cu130",
    "flashinfer-jit-cache-sm120f": "0.7.2+cu130",
    "sglang": "0.5.23",
    "sglang-kernel": "0.4.10",
    "uvicorn": "0.54.0",
    "uv": "0.13.9",
}


def lock(tags: str = "py3-none-any", abi: str = "cp311", **versions: str) -> dict[str, Any]:
    """A lock of VERSIONS with some changed, named with underscores."""
    merged = VERSIONS | {name.replace("_", "-"): version for name, version in versions.items()}
    return {
        "abi": abi,
        "platform": "linux_x86_64",
        "wheels": [
            {"name": name, "version": version, "file": f"{name.replace('-', '_')}-{version}-{tags}.whl"}
            for name, version in merged.items()
        ],
    }


def problems(made: dict[str, Any], stack: dict[str, Any] = STACK, needs: Any = NEEDS) -> list[str]:
    return [
        re.sub(r"^catalog/stacks/demo.yml:\s?", "", problem)
        for problem in agreement_problems(made, stack, LINES, needs)
    ]


def test_what_agrees_has_no_problems() -> None:
    assert problems(lock()) == []
    assert problems(lock(), needs=None) == []


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        pytest.param(
            {"flashinfer_cubin": "0.7.1"},
            [
                "6: flashinfer-cubin is 0.7.1, flashinfer-python is 0.7.2; FlashInfer's "
                "packages must be equal: change flashinfer.version"
            ],
            id="cubin",
        ),
        pytest.param(
            {"flashinfer_jit_cache": "0.7.2.post1+cu130"},
            [
                "6: flashinfer-jit-cache is 0.7.2.post1+cu130, flashinfer-python is 0.7.2; FlashInfer's "
                "packages must be equal: change flashinfer.version"
            ],
            id="jit-cache",
        ),
        pytest.param(
            {"flashinfer_jit_cache_sm120f": "0.7.1+cu130"},
            [
                "17: flashinfer-jit-cache-sm120f is 0.7.1+cu130, flashinfer-python is 0.7.2; FlashInfer's "
                "packages must be equal: change requirements[0]"
            ],
            id="jit-cache of an architecture",
        ),
        pytest.param(
            {"flashinfer_jit_cache": "0.7.2+cu129"},
            [
                "6: flashinfer-jit-cache 0.7.2+cu129 is of CUDA 12.9, torch 2.14.1 of "
                "CUDA 13.0: change flashinfer.jit_cache"
            ],
            id="jit-cache of another CUDA",
        ),
        pytest.param(
            {"nvidia_cuda_nvcc": "12.9.86"},
            [
                "nvidia-cuda-nvcc 12.9.86 is of CUDA 12.9, torch 2.14.1 of CUDA 13.0: "
                "pin nvidia-cuda-nvcc under requirements"
            ],
            id="nvcc of another CUDA",
        ),
        pytest.param(
            {"torch": "2.13.0"},
            [
                "4: torch is 2.13.0, sglang-kernel 0.4.10 is built against torch 2.14.1: change torch, "
                "or take another kernel under kernel.wheel",
                "4: torch is 2.13.0, SGLang 0.5.23 asks for ==2.14.1: change torch",
            ],
            id="an older torch",
        ),
        pytest.param(
            {"torch": "2.15.0"},
            [
                "4: torch is 2.15.0, sglang-kernel 0.4.10 is built against torch 2.14.1: change torch, "
                "or take another kernel under kernel.wheel"
            ],
            id="a newer torch",
        ),
        pytest.param({"torch": "2.14.2"}, [], id="a patch of torch"),
        pytest.param(
            {"torch": "2.14.1+cu129"},
            [
                '3: cuda is 13.0, torch 2.14.1+cu129 is built for CUDA 12.9: set cuda: "12.9", '
                "or change torch (catalog/stacks/demo.yml:4)",
                "6: flashinfer-jit-cache 0.7.2+cu130 is of CUDA 13.0, torch 2.14.1+cu129 of "
                "CUDA 12.9: change flashinfer.jit_cache",
                "17: flashinfer-jit-cache-sm120f 0.7.2+cu130 is of CUDA 13.0, torch 2.14.1+cu129 of "
                "CUDA 12.9: change requirements[0]",
                "nvidia-cuda-nvcc 13.5.37 is of CUDA 13.5, torch 2.14.1+cu129 of "
                "CUDA 12.9: pin nvidia-cuda-nvcc under requirements",
                "13: sglang-kernel 0.4.10 is linked with CUDA 13, torch 2.14.1+cu129 is built for CUDA 12.9: "
                "take the kernel and torch of one CUDA",
            ],
            id="torch of another CUDA",
        ),
        pytest.param(
            {"torch": "2.14.1+cpu"},
            [
                "3: cuda is 13.0, torch 2.14.1+cpu is built for no CUDA: take cuda out, or change torch "
                "(catalog/stacks/demo.yml:4)"
            ],
            id="torch of no CUDA",
        ),
        pytest.param(
            {"sglang_kernel": "0.4.9"},
            ["13: sglang-kernel is 0.4.9, SGLang 0.5.23 asks for ==0.4.10: change kernel.wheel.version"],
            id="a kernel older than SGLang's",
        ),
        pytest.param({"sglang_kernel": "0.4.10.post1"}, [], id="a kernel newer than SGLang's"),
        pytest.param(
            {"uvicorn": "0.50"},
            ["uvicorn is 0.50, SGLang 0.5.23 asks for >=0.51: pin uvicorn under requirements"],
            id="another package older than SGLang's",
        ),
    ],
)
def test_what_does_not_agree_is_said_with_both_versions_and_the_line(
    versions: dict[str, str], expected: list[str]
) -> None:
    found = problems(lock(**versions))
    assert sorted(found) == sorted(expected)


def test_the_trio_is_compared_before_the_wheels_are_there() -> None:
    (problem,) = problems(lock(flashinfer_cubin="0.7.3"), needs=None)
    assert problem.startswith("6: flashinfer-cubin is 0.7.3")


def test_a_torch_that_the_stack_says_wrongly_is_told_from_the_kernels_metadata() -> None:
    stack = deepcopy(STACK)
    stack["kernel"]["wheel"]["torch"] = "2.13.0"
    assert problems(lock(), stack) == [
        "14: kernel.wheel.torch is 2.13.0, the metadata of sglang-kernel 0.4.10 asks for torch 2.14.1: "
        "change it to 2.14.1"
    ]


def test_a_kernel_whose_metadata_names_no_torch_is_judged_by_the_stack() -> None:
    (problem,) = problems(lock(torch="2.15.0"), needs={})
    assert "is built against torch 2.14.1" in problem


def test_a_stack_without_a_real_kernel_may_have_another_torch() -> None:
    stack = deepcopy(STACK) | {"kernel": {"stand_in": "packaging/x"}}
    assert problems(lock(torch="2.13.0"), stack) == []


def test_a_need_of_another_platform_is_none() -> None:
    needs = {"sglang": ["uvicorn>=9; sys_platform == 'win32'", "uvicorn>=9; python_version < '3.11'"]}
    assert problems(lock(), needs=needs) == []
    assert len(problems(lock(abi="cp310"), needs=needs)) == 1


@pytest.mark.parametrize(
    ("tags", "fits"),
    [
        ("py3-none-any", True),
        ("py2.py3-none-any", True),
        ("cp311-cp311-manylinux_2_28_x86_64", True),
        ("cp39-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64", True),
        ("py3-none-manylinux_2_5_x86_64", True),
        ("cp311-cp311-linux_x86_64", True),
        ("cp312-cp312-manylinux_2_28_x86_64", False),
        ("cp312-abi3-manylinux_2_28_x86_64", False),
        ("cp311-cp311-manylinux_2_28_aarch64", False),
        ("cp311-cp311-win_amd64", False),
        ("cp311-cp311-musllinux_1_2_x86_64", False),
    ],
)
def test_a_wheel_of_another_python_or_platform_is_refused(tags: str, fits: bool) -> None:
    found = agreement_problems(lock(tags), STACK, LINES)
    assert len(found) == (0 if fits else len(VERSIONS))
    assert all(problem.startswith("catalog/stacks/demo.cp311-linux_x86_64.lock: ") for problem in found)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        pytest.param({}, [], id="nothing known"),
        pytest.param({"driver": "580.95.05"}, [], id="fit driver"),
        pytest.param({"driver": None}, ["CUDA 13.0", "no NVIDIA driver", "580"], id="no driver"),
        pytest.param(
            {"driver": "575.64.03"}, ["CUDA 13.0", "driver 580 or newer", "575.64.03"], id="old driver"
        ),
        pytest.param({"driver": "590.1", "toolkit": "13.0.88"}, [], id="fit toolkit"),
        pytest.param(
            {"toolkit": "12.9.1"}, ["CUDA 13.0", "12.9.1", "toolkit of CUDA 13"], id="other toolkit"
        ),
    ],
)
def test_the_nodes_driver_and_toolkit_are_compared_with_the_stack(facts: Any, words: list[str]) -> None:
    found = node_cuda_problems(facts, STACK, CUDA)
    assert len(found) == bool(words)
    assert [word for word in words if word not in found[0]] == []


def test_an_old_toolkit_of_the_right_major_is_refused_too() -> None:
    (problem,) = node_cuda_problems({"toolkit": "12.8.1"}, STACK | {"cuda": "12.8"}, CUDA)
    assert "12.8.1" in problem
    assert "12.9" in problem


def test_a_stack_without_cuda_needs_no_driver() -> None:
    stack = {key: value for key, value in STACK.items() if key != "cuda"}
    assert node_cuda_problems({"driver": None}, stack, CUDA) == []


def test_a_cuda_that_the_catalogue_does_not_know_is_said() -> None:
    (problem,) = node_cuda_problems({"driver": "700"}, STACK | {"cuda": "14.0"}, CUDA)
    assert "catalog/cuda.yml names no driver for CUDA 14" in problem


@pytest.mark.parametrize(
    ("local", "cuda"), [("cu130", "13.0"), ("cu128", "12.8"), ("cpu", None), (None, None), ("cu12x", None)]
)
def test_the_cuda_of_a_local_version(local: str | None, cuda: str | None) -> None:
    assert cuda_of_tag(local) == cuda


def test_the_place_of_each_pin_is_known_with_the_line_that_may_stand_there() -> None:
    places = stack_places(STACK, LINES)
    lines = {
        name: f"{place['where']} {place['line'].format(version='9+cu1', public='9')}"
        for name, place in places.items()
    }
    assert lines == {
        "torch": "catalog/stacks/demo.yml:4 torch: 9+cu1",
        "sglang": "catalog/stacks/demo.yml:9 version: 9+cu1",
        "flashinfer-python": "catalog/stacks/demo.yml:6 version: 9",
        "flashinfer-cubin": "catalog/stacks/demo.yml:6 version: 9",
        "flashinfer-jit-cache": "catalog/stacks/demo.yml:6 version: 9",
        "sglang-kernel": "catalog/stacks/demo.yml:13 version: 9+cu1",
        "flashinfer-jit-cache-sm120f": "catalog/stacks/demo.yml:17 - flashinfer-jit-cache-sm120f==9+cu1",
        "uv": "catalog/stacks/demo.yml:19 - uv==9+cu1",
    }


def test_the_place_of_a_toolkits_wheel_is_its_line() -> None:
    stack = {**STACK, "cuda_toolkit": {"version": "13.0", "wheels": ["nvidia-nvvm==13.0.88", "uv==0.9"]}}
    places = stack_places(stack, {**LINES, "cuda_toolkit.wheels[0]": 99})
    assert places["nvidia-nvvm"] == {
        "where": "catalog/stacks/demo.yml:99",
        "line": "- nvidia-nvvm=={version}",
    }
    assert places["uv"] == stack_places(STACK, LINES)["uv"]


# --- what wheels say -----------------------------------------------------------------------------


def test_what_wheels_ask_for_is_read_from_them(run_module: RunModule, tmp_path: Path) -> None:
    make_wheel(tmp_path, "tiny_one", requires="two>=1")
    make_wheel(tmp_path, "three", requires="four; extra == 'all'")
    files = [wheel.name for wheel in tmp_path.glob("*.whl")] + ["absent-1-py3-none-any.whl"]
    result = run_module(wheel_needs, path=str(tmp_path), files=files)
    assert (result["changed"], result["needs"]) == (False, {"tiny-one": ["two>=1"], "three": []})


@pytest.mark.parametrize("content", [b"torn", None], ids=["torn", "empty archive"])
def test_a_torn_wheel_is_an_error_with_its_name(run_module: RunModule, tmp_path: Path, content: Any) -> None:
    wheel = tmp_path / "torn-1-py3-none-any.whl"
    if content:
        wheel.write_bytes(content)
    else:
        zipfile.ZipFile(wheel, "w").close()
    result = run_module(wheel_needs, path=str(tmp_path), files=[wheel.name])
    assert result["failed"]
    assert f"{wheel} is not a whole wheel" in result["msg"]
