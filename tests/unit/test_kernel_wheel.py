"""A kernel wheel is judged by its machine code, and nothing is said of what nobody looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernel
import kernel_wheel_facts
import pytest
import yaml
from ansible.module_utils.kernel_wheel import sidecar_of
from one_change import changed
from tiny_kernel_wheel import (
    FP4_LINE,
    MARKER,
    OTHER_LINE,
    disassembled,
    kernel_wheel,
    make_tools,
    shared_object,
)

RunModule = Callable[..., dict[str, Any]]
ORIGINS = yaml.safe_load((Path(__file__).parents[2] / "catalog" / "kernel.yml").read_text())["fp4"]
WANTED = {"arch": "sm_120a", "fp4": True, "cuda": "13.0", "torch": "2.12.0"}
OPS = "sgl_kernel/sm100/common_ops.abi3.so"
NEEDS = ["libtorch.so", "libc10.so", "libcudart.so.13"]
QUANT = "_Z30scaled_fp4_quant_sm100a_sm120aRKN2at6TensorES2_S2_S2_"
CHECK = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
FP4 = ("sm_120a", f"fp4 {FP4_LINE}\n{OTHER_LINE}\n{FP4_LINE}")
OTHER = ("sm_120a", OTHER_LINE)


def ops(*cubins: tuple[str, str], needs: list[str] = NEEDS) -> bytes:
    return shared_object(needs, [QUANT, "plain"], [CHECK, "malloc"], cubins)


class Bench:
    """A wheel, stand-in tools, and the module."""

    def __init__(self, folder: Path, run_module: RunModule) -> None:
        self.folder, self._run = folder, run_module
        self.tools = make_tools(folder / "tools")

    def look(self, wheel: Path, **more: Any) -> dict[str, Any]:
        return self._run(kernel_wheel_facts, **{"wheel": str(wheel), "tools": [str(self.tools)]} | more)

    def facts(self, *cubins: tuple[str, str], **more: Any) -> dict[str, Any]:
        facts: dict[str, Any] = self.look(kernel_wheel(self.folder, {OPS: ops(*cubins)}), **more)["facts"]
        return facts


@pytest.fixture
def bench(tmp_path: Path, run_module: RunModule) -> Bench:
    return Bench(tmp_path, run_module)


def test_the_facts_of_a_good_wheel(bench: Bench) -> None:
    facts = bench.facts(FP4, OTHER, ("sm_90a", OTHER_LINE), count=True)
    assert (facts["name"], facts["version"], facts["tags"]) == (
        "sgl-kernel",
        "0.3.21",
        ["cp310-abi3-linux_x86_64"],
    )
    assert (facts["cuda"], facts["requires_torch"], facts["torch_linked"], facts["cxx11_abi"]) == (
        ["13"],
        "==2.12.0",
        True,
        True,
    )
    assert facts["archs"] == ["sm_120a", "sm_90a"]
    assert facts["objects"][0]["archs"] == {"sm_120a": 2, "sm_90a": 1}
    assert facts["fp4"] == {
        "symbols": ["scaled_fp4_quant_sm100a_sm120a"],
        "instructions_seen": "yes",
        "instructions": {"sm_120a": 2},
        "instruction_names": ["OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X"],
        "whole": True,
        "looked": 2,
        "of": 2,
        "reason": None,
    }
    assert facts["marker"]["seen"] == "no"
    assert kernel.kernel_refusals(facts, WANTED) == []
    assert kernel.kernel_fp4(facts, WANTED, ORIGINS).startswith("from the kernel wheel sgl_kernel-0.3.21")


def test_the_cubin_that_names_fp4_is_looked_into_first_and_then_no_more(bench: Bench) -> None:
    facts = bench.facts(OTHER, ("sm_120a", "another"), FP4)
    assert (facts["fp4"]["instructions_seen"], facts["fp4"]["whole"]) == ("yes", False)
    assert disassembled(bench.tools) == 1


def test_cubins_with_the_same_bytes_are_looked_into_once(bench: Bench) -> None:
    wheel = kernel_wheel(bench.folder, {OPS: ops(FP4), "sgl_kernel/sm90/common_ops.abi3.so": ops(FP4, OTHER)})
    facts = bench.look(wheel, count=True)["facts"]
    assert facts["fp4"]["instructions"] == {"sm_120a": 4}
    assert disassembled(bench.tools) == 2


def test_libraries_under_several_names_are_one(bench: Bench) -> None:
    wheel = kernel_wheel(bench.folder, {"lib/x.so": ops(FP4), "lib/x.so.0": ops(FP4)})
    assert [item["files"] for item in bench.look(wheel)["facts"]["objects"]] == [["lib/x.so", "lib/x.so.0"]]


def test_fp4_that_only_its_names_promise_is_no_fp4(bench: Bench) -> None:
    facts = bench.facts(OTHER)
    assert facts["fp4"]["symbols"]
    assert facts["fp4"]["instructions_seen"] == "no"
    (refusal,) = kernel.kernel_refusals(facts, WANTED)
    assert "has no FP4 tensor-core instruction" in refusal
    assert kernel.kernel_refusals(facts, WANTED | {"fp4": False}) == []


def test_a_build_for_plain_12_0_is_refused_by_its_mark(bench: Bench) -> None:
    facts = bench.facts(("sm_120", MARKER))
    assert facts["marker"] == {"seen": "yes", "cubins": {"sm_120": 1}}
    (refusal,) = kernel.kernel_refusals(facts, WANTED)
    assert "plain 12.0" in refusal
    assert "TORCH_CUDA_ARCH_LIST=12.0a" in refusal


def test_a_family_build_that_lists_as_plain_sm_120_is_good(bench: Bench) -> None:
    assert kernel.kernel_refusals(bench.facts(("sm_120", FP4[1])), WANTED) == []


def test_fp4_of_another_gpu_does_not_count(bench: Bench) -> None:
    facts = bench.facts(("sm_121a", FP4[1]), count=True)
    assert "runs there" in kernel.kernel_refusals(facts, WANTED)[0]
    assert kernel.kernel_refusals(facts, WANTED | {"arch": "sm_121a"}) == []


def test_the_same_bytes_are_not_looked_into_twice(bench: Bench) -> None:
    wheel = kernel_wheel(bench.folder, {OPS: ops(OTHER)})
    first, calls = bench.look(wheel), disassembled(bench.tools)
    second = bench.look(wheel)
    assert (first["kept"], second["kept"]) == (False, True)
    assert first["facts"] == second["facts"]
    assert disassembled(bench.tools) == calls


@pytest.mark.parametrize("spoil", ["{", "[]", '{"schema": 0}'])
def test_a_sidecar_that_is_torn_or_of_another_form_is_not_believed(bench: Bench, spoil: str) -> None:
    wheel = kernel_wheel(bench.folder, {OPS: ops(FP4)})
    sidecar_of(wheel).write_text(spoil)
    assert bench.look(wheel)["facts"]["fp4"]["instructions_seen"] == "yes"


def test_a_wheel_with_other_bytes_is_looked_into_anew(bench: Bench) -> None:
    bench.facts(FP4)
    assert bench.facts(OTHER)["fp4"]["instructions_seen"] == "no"


def test_facts_that_leave_something_open_are_asked_again(bench: Bench) -> None:
    wheel = kernel_wheel(bench.folder, {OPS: ops(FP4, OTHER)})
    assert bench.look(wheel, tools=[])["facts"]["fp4"]["instructions_seen"] == "not seen"
    assert not bench.look(wheel)["facts"]["fp4"]["whole"]
    counted = bench.look(wheel, count=True)
    assert (counted["kept"], counted["facts"]["fp4"]["whole"]) == (False, True)


def test_without_the_tools_nothing_is_seen_and_it_says_what_to_install(bench: Bench) -> None:
    facts = bench.facts(FP4, tools=[str(bench.folder / "nowhere")])
    assert (facts["archs_seen"], facts["marker"]["seen"]) == ("not seen", "not seen")
    (refusal,) = kernel.kernel_refusals(facts, WANTED)
    assert "was not seen" in refusal
    assert "nvidia-cuda-cuobjdump" in refusal


@pytest.mark.parametrize("place", ["bin", "nvidia/cu13/bin", "lib/python3.11/site-packages/nvidia/cu13/bin"])
def test_the_tools_are_found_in_a_toolkit_and_in_an_environment(bench: Bench, place: str) -> None:
    (bench.folder / "home" / place).parent.mkdir(parents=True)
    make_tools(bench.folder / "home" / place)
    facts = bench.facts(FP4, tools=[str(bench.folder / "home")])
    assert facts["tools"] == {"cuobjdump": "13.2.86", "nvdisasm": "13.2.86"}


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (
            {"cuobjdump": "sys.exit('fatal : bad fatbin version')"},
            "cuobjdump --list-elf ended with 1 and says",
        ),
        ({"nvdisasm": "sys.exit('fatal : unknown architecture')"}, "nvdisasm ended with 1"),
        ({"nvdisasm": "time.sleep(60)"}, "nvdisasm was not done"),
    ],
)
def test_a_tool_that_fails_or_hangs_leaves_it_unseen_with_its_words(
    bench: Bench, spoilt: dict[str, str], said: str
) -> None:
    make_tools(bench.tools, **spoilt)
    facts = bench.facts(FP4, deadline=3)
    assert facts["fp4"]["instructions_seen"] == "not seen"
    assert said in facts["fp4"]["reason"]
    assert "\n" not in facts["fp4"]["reason"]
    assert "was not seen" in kernel.kernel_refusals(facts, WANTED)[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "no whole zip file"), (b"PK\x03\x04 torn", "no whole zip file"), (None, "is not there")],
)
def test_what_is_no_wheel_is_told_in_one_line(bench: Bench, content: bytes | None, said: str) -> None:
    wheel = bench.folder / "x.whl"
    if content is not None:
        wheel.write_bytes(content)
    result = bench.look(wheel)
    assert result["failed"]
    assert said in result["msg"]
    assert "\n" not in result["msg"]


def test_a_wheel_without_a_shared_object_is_no_kernel_wheel(bench: Bench) -> None:
    assert "no shared object" in bench.look(kernel_wheel(bench.folder, {}))["msg"]


def test_a_shared_object_that_is_none_is_named(bench: Bench) -> None:
    assert OPS in bench.look(kernel_wheel(bench.folder, {OPS: b"#!/bin/sh\n"}))["msg"]


def test_a_member_with_other_bytes_than_its_checksum_is_named(bench: Bench) -> None:
    wheel = kernel_wheel(bench.folder, {OPS: ops(FP4)})
    wheel.write_bytes(wheel.read_bytes().replace(b"libcudart.so.13", b"libcudart.so.12"))
    message = bench.look(wheel)["msg"]
    assert "is torn at" in message
    assert OPS in message


def test_a_wheel_for_another_cuda_or_torch_is_refused(bench: Bench) -> None:
    facts = bench.facts(FP4)
    cuda, torch = kernel.kernel_refusals(facts, WANTED | {"cuda": "12.8", "torch": "2.9.1"})
    assert "libcudart.so.13" in cuda
    assert "asks for torch==2.12.0" in torch
    assert kernel.kernel_refusals(facts, WANTED | {"torch": "2.12.0+cu130"}) == []
    assert kernel.kernel_refusals(changed(facts, "requires_torch", None), WANTED) == []


def test_what_a_torch_lacks_is_listed_and_refused(bench: Bench) -> None:
    wheel, torch = kernel_wheel(bench.folder, {OPS: ops(FP4)}), bench.folder / "torch"
    torch.mkdir()
    assert "holds no libtorch" in bench.look(wheel, torch=str(torch))["msg"]
    (torch / "libc10.so").write_bytes(shared_object(defined=[CHECK]))
    assert bench.look(wheel, torch=str(torch))["torch_missing"] == []
    (torch / "libc10.so").write_bytes(shared_object(defined=["other"]))
    result = bench.look(wheel, torch=str(torch))
    assert result["torch_missing"] == [CHECK]
    (refusal,) = kernel.kernel_refusals(result["facts"], WANTED, result["torch_missing"])
    assert "another torch" in refusal


def test_the_origin_of_fp4_is_named_where_the_wheel_has_none(bench: Bench) -> None:
    facts = changed(bench.facts(OTHER), "version", "0.4.10")
    assert "FlashInfer or Marlin" in kernel.kernel_fp4(facts, WANTED, ORIGINS)
    assert "JIT" in kernel.kernel_fp4(changed(facts, "version", "0.4.1+cu130"), WANTED, ORIGINS)
    assert "JIT" not in kernel.kernel_fp4(facts, WANTED, ORIGINS)


def test_an_architecture_that_is_not_known_is_an_error(bench: Bench) -> None:
    with pytest.raises(ValueError, match="sm_120a, sm_121a"):
        kernel.kernel_refusals(bench.facts(FP4), WANTED | {"arch": "sm_90a"})


def test_nothing_is_left_in_the_scratch_folder(bench: Bench, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    bench.facts(FP4, scratch=str(scratch))
    assert list(scratch.iterdir()) == []
