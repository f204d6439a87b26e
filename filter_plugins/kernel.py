"""The kernel wheel: what goes into one that is built, and whether one may be installed.

A wheel is judged by what the module kernel_wheel_facts saw in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

# The architectures whose cubins run on a GPU; a build for the family (120f) lists as plain sm_120.
# https://docs.nvidia.com/cuda/cuda-c-programming-guide/#feature-set-compiler-targets
RUNS_ON = {
    "sm_120a": ("sm_120a", "sm_120f", "sm_120"),
    "sm_121a": ("sm_121a", "sm_121f", "sm_121", "sm_120f", "sm_120"),
}
SHOWN = 3
SHORT = 12
JOB_GIB = 14
"""Memory of a compile job: nvfp4_scaled_mm for sm_120a took 13.8 GiB and fp8_gemm 15.2 GiB, of the tree
51e5dc845 with nvcc's --threads 1; most units take less than 5 GiB."""
SPARED = 0.1
"""Of the available memory, what a build leaves to the host."""


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


# --- what is built, with what --------------------------------------------------------------------


def build_jobs(cores: int, mem_gib: float) -> int:
    """How many units may be compiled at a time: one a core, `JOB_GIB` of memory for each; at least one."""
    return max(1, min(int(cores), int(float(mem_gib) // JOB_GIB)))


def build_limits(
    facts: Mapping[str, Any], jobs: int | str | None = None, memory_gib: float | str | None = None
) -> dict[str, Any]:
    """{jobs, memory_gib}: what a build may take of a host with these facts (of host_facts).

    The ceiling leaves a tenth of the available memory to the host. `jobs` and `memory_gib` are an operator's.
    """
    memory = float(memory_gib) if memory_gib else round(facts["available_gib"] * (1 - SPARED), 2)
    return {"jobs": int(jobs) if jobs else build_jobs(facts["cores"], memory), "memory_gib": memory}


def build_tools(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The locked wheels that kernel.source.build names, by package."""
    pins = plan["stack"]["kernel"]["source"]["build"]
    names = {canonicalize_name(Requirement(pin).name) for pin in pins}
    wheels = {canonicalize_name(wheel["name"]): wheel for wheel in plan["lock"]["build"]}
    return {str(name): wheel for name, wheel in wheels.items() if name in names}


def build_wheels(plan: Mapping[str, Any], needs: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """File name to SHA-256 of what a kernel is built with: the locked torch, what it needs, and the tools.

    `needs` are the Requires-Dist lines of the lock's wheels by package; what is not locked is left out. A
    tool wins over a package of the same name; uv installs them.
    """
    locked: dict[str, Any] = {canonicalize_name(wheel["name"]): wheel for wheel in plan["lock"]["wheels"]}
    wanted, left = {"uv"}, ["torch"]
    while left:
        name = left.pop()
        if name in locked and name not in wanted:
            wanted.add(name)
            left += [canonicalize_name(Requirement(line).name) for line in needs.get(name, ())]
    chosen = {name: locked[name] for name in sorted(wanted & locked.keys())} | build_tools(plan)
    return {wheel["file"]: wheel["sha256"] for wheel in chosen.values()}


def kernel_tools(plan: Mapping[str, Any]) -> dict[str, str]:
    """Version of what a patch may be needed for: `cmake` and `cuda`."""
    return {"cmake": build_tools(plan)["cmake"]["version"], "cuda": plan["builder_toolkit"]["version"]}


def kernel_tag_problems(run: Sequence[str], stack: Mapping[str, Any]) -> list[str]:
    """Why `--tags sgl_kernel` means nothing for a stack."""
    if "sgl_kernel" not in run or "source" in stack["kernel"]:
        return []
    return [
        f"--tags sgl_kernel: stack {stack['name']} builds no kernel: catalog/stacks/{stack['name']}.yml has "
        "no kernel.source"
    ]


def toolkit_name(toolkit: Mapping[str, Any], nvcc: str | None) -> str:
    """What names the builder's CUDA toolkit: nvcc's full version, and its wheels by their hash."""
    wheels = f" of wheels {toolkit['home'].rpartition('-')[2]}" if toolkit["source"] == "wheels" else ""
    return f"nvcc {nvcc or 'not there yet'}{wheels}"


def sm120_arch(archs: Sequence[str]) -> str:
    """The architecture that a wheel is proved for, `sm_120a` for 12.0, 12.0a and 12.0f; '' where none is."""
    for arch in archs:
        found = re.match(r"12\.([01])[af]?", str(arch))
        if found:
            return f"sm_12{found[1]}a"
    return ""


def builder_refusals(facts: Mapping[str, Any], plan: Mapping[str, Any], fp4: bool) -> list[str]:
    """Why this stack's kernel cannot be built on this host, before anything is compiled.

    `facts` are those of builder_facts and host_facts, `fp4` says whether the source has FP4 kernels.
    """
    where = f"catalog/stacks/{plan['stack']['name']}.yml: kernel.source"
    source = plan["stack"]["kernel"]["source"]
    refusals = []
    if not facts["git"]:
        refusals.append("the builder has no git, which holds the source: apt-get install git")
    if not facts["compiler"]:
        refusals.append("the builder has no C++ compiler: apt-get install g++")
    wanted = plan["lock"]["abi"]
    if facts["abi"] != wanted:
        refusals.append(
            f"the builder's Python is {facts['abi'] or 'not to be run'}, the nodes' is {wanted}: name an "
            "interpreter of theirs with sgl_kernel_python"
        )
    elif not facts["python_headers"]:
        version = wanted.removeprefix("cp3")
        refusals.append(f"the builder has no Python.h of its Python: apt-get install python3.{version}-dev")
    if facts["platform"] != plan["lock"]["platform"]:
        refusals.append(
            f"the builder is {facts['platform']}, the nodes are {plan['lock']['platform']}: build on a "
            "controller of their kind"
        )
    if not sm120_arch(source["archs"]):
        refusals.append(f"{where}.archs: {', '.join(source['archs'])} names no SM120: write 12.0a")
    plain = [arch for arch in source["archs"] if re.fullmatch(r"12\.[01]", arch)]
    if fp4 and plain:
        refusals.append(
            f"{where}.archs: a build for plain {plain[0]} ends well and holds no FP4, which this source has: "
            f"write {plain[0]}a"
        )
    return refusals


def kernel_parts(
    plan: Mapping[str, Any],
    source: str,
    wheels: Mapping[str, str],
    *,
    toolkit: str,
    compiler: str,
    archive: str | None = None,
) -> dict[str, Any]:
    """All that goes into a kernel wheel, by name: what its fingerprint is made of.

    `source` is git's id of the patched folder, `wheels` those of build_wheels, `toolkit` what names the CUDA
    toolkit, `archive` the SHA-256 of the archive that the dependencies are from.
    """
    asked = plan["stack"]["kernel"]["source"]
    torch = {file: sha for file, sha in wheels.items() if file.startswith("torch-")}
    return {
        "source": source,
        "torch": torch,
        "tools": {file: sha for file, sha in wheels.items() if file not in torch},
        "toolkit": toolkit,
        "compiler": compiler,
        "python": plan["lock"]["abi"],
        "platform": plan["lock"]["platform"],
        "archs": list(asked["archs"]),
        "options": dict(asked.get("options", {})),
        "dependencies": f"archive {archive}" if archive else "as the source names them",
    }


def carried_problems(kept: Mapping[str, Any], plan: Mapping[str, Any], fingerprint: str) -> list[str]:
    """Why a wheel that was built elsewhere is not the stack's, as far as that is seen without its source.

    `kept` is the result of kernel_wheel_kept for the fingerprint that the operator named.
    """
    record, stack = kept["record"], plan["stack"]
    if record is None:
        there = ", ".join(item["fingerprint"] for item in kept["built"]) or "none"
        return [
            f"sgl_kernel_fingerprint: the wheelhouse has no whole kernel wheel of fingerprint {fingerprint} "
            f"(of stack {stack['name']}: {there}): unpack a kit that holds it, or leave it out to build one"
        ]
    asked = stack["kernel"]["source"]
    locked = {wheel["file"]: wheel["sha256"] for wheel in plan["lock"]["wheels"] if wheel["name"] == "torch"}
    wanted = {
        "torch": locked,
        "python": plan["lock"]["abi"],
        "platform": plan["lock"]["platform"],
        "archs": list(asked["archs"]),
        "options": dict(asked.get("options", {})),
        "patches": list(asked["patches"]),
    }
    came = record["parts"] | {"patches": [patch["name"] for patch in record["patches"]]}
    problems = [
        f"its {name} is {part_text(came.get(name))}, the stack's {part_text(value)}"
        for name, value in wanted.items()
        if came.get(name) != value
    ]
    if record["stack"] != stack["name"]:
        problems.insert(0, f"it was built for stack {record['stack']}")
    if not record["commit"].startswith(asked["commit"]):
        problems.append(f"its commit is {record['commit'][:SHORT]}, the stack's {asked['commit'][:SHORT]}")
    if not problems:
        return []
    return [
        f"sgl_kernel_fingerprint: {record['file']} is not the kernel of stack {stack['name']}: "
        f"{'; '.join(problems)}. Unpack the kit of this stack, or leave it out to build one"
    ]


def kernel_reasons(
    parts: Mapping[str, Any], last: Mapping[str, Any] | None, rebuild: bool = False
) -> list[str]:
    """Why a kernel is built: the parts that differ from those beside the stack's newest wheel (`last`)."""
    if rebuild:
        return ["sgl_kernel_rebuild is set"]
    if not last:
        return ["no wheel of this stack's kernel was built before"]
    old = last["parts"]
    reasons = [
        f"{name}: {part_text(old.get(name))} -> {part_text(value)}"
        for name, value in parts.items()
        if old.get(name) != value
    ]
    return reasons or [f"the wheelhouse lost {last['file']}, or its bytes changed"]


def part_text(value: Any) -> str:
    """A part of a fingerprint for people."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {str(item)[:SHORT]}" for key, item in sorted(value.items())) or "none"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "none" if value is None else str(value)


def proof_wanted(plan: Mapping[str, Any], fp4: bool) -> dict[str, Any]:
    """What a built wheel must be, as kernel_wheel_refusals takes it; `fp4`: whether the source has FP4."""
    torch = [wheel["version"] for wheel in plan["lock"]["wheels"] if wheel["name"] == "torch"]
    return {
        "arch": sm120_arch(plan["stack"]["kernel"]["source"]["archs"]),
        "fp4": fp4,
        "torch": (torch or [plan["stack"]["torch"]])[0],
        "cuda": plan["builder_toolkit"]["version"],
    }


def proof_summary(facts: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """What is kept of the proof beside a wheel; `origin` says where FP4 comes from."""
    return {
        "archs": facts["archs"],
        "fp4": facts["fp4"]["instructions_seen"],
        "fp4_instructions": facts["fp4"]["instructions"],
        "fp4_from": origin,
        "marker": facts["marker"]["seen"],
        "cuda": facts["cuda"],
        "requires_torch": facts["requires_torch"],
    }


def build_record(built: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a build beside its wheel, of the result of kernel_wheel_build."""
    keys = ("seconds", "steps", "units", "jobs", "memory", "ccache", "torch", "log")
    return {key: built[key] for key in keys}


def kernel_lines(
    kept: Mapping[str, Any], parts: Mapping[str, Any], fingerprint: str, rebuild: bool = False
) -> list[str]:
    """The kernel wheel for an operator, a sentence a line; `kept` is the result of kernel_wheel_kept."""
    record = kept["record"]
    if record is None or rebuild:
        reasons = kernel_reasons(parts, kept["last"], rebuild)
        return [f"the kernel wheel of fingerprint {fingerprint} is to be built:", *reasons]
    build, proof = record["build"], record["proof"]
    how = (
        f"{build['steps']} of {build['units']} steps, {build['jobs']} jobs, memory: {build['memory']['text']}"
    )
    return [
        f"kernel wheel {record['file']}, built {record['built']} in {build['seconds']:.0f} s ({how})",
        f"memory was bounded: {build['memory']['text']}",
        f"it holds code for {', '.join(proof['archs'])}; FP4 comes {proof['fp4_from']}",
        f"log: {build['log']}",
    ]


def kit_lines(kit: Mapping[str, Any], stack: Mapping[str, Any] | None = None) -> list[str]:
    """What an offline kit holds, of the result of wheel_kit. `stack` is the one that was packed."""
    lines = [f"{len(kit['wheels'])} files, lock {kit['lock']}"]
    lines += [
        f"kernel wheel {kernel['file']} of stack {kernel['stack']}: to take it and build nothing, set "
        f"sgl_kernel_fingerprint: {kernel['fingerprint']}"
        for kernel in kit["kernels"]
    ]
    if stack and "source" in stack["kernel"] and not kit["kernels"]:
        lines.append(
            "no kernel wheel: this wheelhouse has none that was built for the stack. Build it first with "
            "site.yml --tags sgl_kernel, or carry the source as well (sgl_kernel_archive_to)"
        )
    return lines


def first_with(hosts: Sequence[str], values: Sequence[Any], value: Any) -> str:
    """The first host that has a value; `values` are those of the hosts in their order."""
    return next(host for host, other in zip(hosts, values, strict=True) if other == value)


class FilterModule:
    """Filters about the kernel wheel."""

    def filters(self) -> dict[str, Any]:
        return {
            "kernel_wheel_refusals": kernel_wheel_refusals,
            "kernel_fp4": kernel_fp4,
            "build_jobs": build_jobs,
            "build_limits": build_limits,
            "build_wheels": build_wheels,
            "kernel_tools": kernel_tools,
            "kernel_tag_problems": kernel_tag_problems,
            "toolkit_name": toolkit_name,
            "builder_refusals": builder_refusals,
            "kernel_parts": kernel_parts,
            "carried_problems": carried_problems,
            "kernel_reasons": kernel_reasons,
            "proof_wanted": proof_wanted,
            "proof_summary": proof_summary,
            "build_record": build_record,
            "kernel_lines": kernel_lines,
            "kit_lines": kit_lines,
            "first_with": first_with,
        }
