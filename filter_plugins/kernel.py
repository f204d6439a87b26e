"""Whether a kernel wheel may be installed, judged by what module kernel_wheel_facts saw in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

# The architectures whose cubins run on a GPU; a build for the family (120f) lists as plain sm_120.
# https://docs.nvidia.com/cuda/cuda-c-programming-guide/#feature-set-compiler-targets
RUNS_ON = {
    "sm_120a": ("sm_120a", "sm_120f", "sm_120"),
    "sm_121a": ("sm_121a", "sm_121f", "sm_121", "sm_120f", "sm_120"),
}
SHOWN = 3


def holds_fp4(facts: Mapping[str, Any], arch: str) -> bool:
    """Whether FP4 tensor-core instructions that run on an architecture were seen in a wheel."""
    return any(facts["fp4"]["instructions"].get(name) for name in RUNS_ON[arch])


def fp4_refusal(facts: Mapping[str, Any], arch: str) -> str:
    """Why a wheel that should hold FP4 for an architecture does not prove it; '' where it does."""
    fp4, marker = facts["fp4"], facts["marker"]
    if holds_fp4(facts, arch):
        return ""
    wanted = f"{facts['file']} should hold FP4 for {arch}"
    if marker["seen"] == "yes" and fp4["instructions_seen"] != "not seen":
        plain, marked = f"{arch[3:5]}.{arch[5]}", sum(marker["cubins"].values())
        return (
            f"{wanted} and was built for plain {plain}: in the place of its FP4 code is the message that it "
            f"aborts with ({marked} cubins). Build it with TORCH_CUDA_ARCH_LIST={plain}a"
        )
    if fp4["instructions_seen"] == "not seen" or not (fp4["whole"] or fp4["instructions_seen"] == "no"):
        reason = fp4["reason"] or "not every cubin was looked into; ask with count"
        return f"{wanted}, and that was not seen: {reason}"
    there = ", ".join(facts["archs"]) or "none"
    return (
        f"{wanted} and has no FP4 tensor-core instruction that runs there: {fp4['looked']} cubins were "
        f"looked into (architectures in the wheel: {there}; functions named FP4: {len(fp4['symbols'])})"
    )


def build_refusals(
    facts: Mapping[str, Any], wanted: Mapping[str, Any], missing: Sequence[str] | None
) -> list[str]:
    """Why a wheel does not belong to the stack's CUDA and torch."""
    refusals = []
    major = str(wanted["cuda"]).partition(".")[0]
    others = [found for found in facts["cuda"] if found != major]
    if others:
        refusals.append(
            f"{facts['file']} is linked with libcudart.so.{', libcudart.so.'.join(others)}, and the stack is "
            f"of CUDA {wanted['cuda']}: build it with the stack's toolkit"
        )
    asked = facts["requires_torch"]
    torch = Version(str(wanted["torch"]))
    if asked and not SpecifierSet(asked).contains(torch, prereleases=True):
        refusals.append(
            f"{facts['file']} asks for torch{asked}, and the stack has torch {torch}: build it against that"
        )
    if missing:
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        refusals.append(
            f"{facts['file']} was built for another torch: torch {torch} lacks "
            f"{', '.join(missing[:SHOWN])}{more}. Build it against the stack's torch"
        )
    return refusals


def kernel_wheel_refusals(
    facts: Mapping[str, Any], wanted: Mapping[str, Any], missing: Sequence[str] | None = None
) -> list[str]:
    """Why a kernel wheel is refused, a sentence each; empty when it may be installed.

    `wanted` has `arch` (sm_120a or sm_121a), `fp4` (whether the source has FP4 kernels: a tree with
    csrc/gemm/nvfp4_*), and the stack's `torch` and `cuda`. `missing` is what kernel_wheel_facts returns as
    torch_missing. Raises ValueError for an architecture that is not known here.
    """
    if wanted["arch"] not in RUNS_ON:
        raise ValueError(f"arch must be one of {', '.join(RUNS_ON)}, not {wanted['arch']!r}")
    refusals = build_refusals(facts, wanted, missing)
    fp4 = fp4_refusal(facts, wanted["arch"]) if wanted["fp4"] else ""
    return [*refusals, fp4] if fp4 else refusals


def kernel_fp4(
    facts: Mapping[str, Any], wanted: Mapping[str, Any], origins: Sequence[Mapping[str, Any]]
) -> str:
    """Where FP4 comes from with this wheel, for a person. `origins` is `fp4` of catalog/kernel.yml."""
    if holds_fp4(facts, wanted["arch"]):
        return f"from the kernel wheel {facts['file']}"
    public = Version(re.sub(r"\+.*", "", facts["version"]))
    for origin in origins:
        if SpecifierSet(origin["kernel"]).contains(public, prereleases=True):
            return f"{origin['from']} ({origin['source']})"
    return f"not known for {facts['name']} {facts['version']}: catalog/kernel.yml has no entry for it"


class FilterModule:
    """Filters about the kernel wheel."""

    def filters(self) -> dict[str, Any]:
        return {"kernel_wheel_refusals": kernel_wheel_refusals, "kernel_fp4": kernel_fp4}
