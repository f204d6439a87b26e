"""What a CUDA toolkit is worth on its host, and whether the host wants a reboot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from packaging.version import Version

COMPAT = "compat"
"""The folder of NVIDIA's forward-compatibility libraries, which load in the driver's place:
https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html"""

Finding = dict[str, str]


def finding(level: str, check: str, text: str) -> Finding:
    return {"level": level, "check": check, "text": text}


def nvcc_finding(facts: Mapping[str, Any], wanted: str, lowest: str) -> Finding:
    """nvcc is of the version that the stack names, and of one that knows SM120 (`lowest`)."""
    path, nvcc = f"{facts['home']}/bin/nvcc", facts["nvcc"]
    if nvcc is None:
        return finding("refuse", "nvcc", f"there is no {path}: the toolkit is not there, or not whole")
    if nvcc["version"] is None:
        return finding("unseen", "nvcc", f"not seen: {path} does not tell its version: {nvcc['said']}")
    if nvcc["version"] != wanted:
        text = f"{path} is of CUDA {nvcc['version']}, the stack wants {wanted}: install that one"
        return finding("refuse", "nvcc", f"{text}, or name another with cuda_toolkit_path")
    if Version(nvcc["version"]) < Version(lowest):
        text = f"{path} is of CUDA {nvcc['version']}; nvcc compiles for SM120 from {lowest}"
        return finding("refuse", "nvcc", f"{text}: take a newer toolkit")
    return finding("ok", "nvcc", f"nvcc {nvcc['version']} in {facts['home']}")


def cccl_finding(facts: Mapping[str, Any]) -> Finding:
    """The headers cuda/std are there: without them `cuda/std/utility: No such file`.

    https://github.com/sgl-project/sglang/pull/20588
    """
    if facts["cccl"] is None:
        text = (
            f"there is no cuda/std/utility in {facts['home']}/include/cccl (CUDA 13) or include (CUDA 12): "
            "add CCCL's headers (the package nvidia-cuda-cccl, or cuda-cccl of the distribution)"
        )
        return finding("refuse", "cccl", text)
    return finding("ok", "cccl", f"cuda/std is in {facts['cccl']}")


def ptxas_finding(facts: Mapping[str, Any]) -> Finding:
    """ptxas assembles for the architecture: https://github.com/triton-lang/triton/issues/8539."""
    path, ptxas, arch = f"{facts['home']}/bin/ptxas", facts["ptxas"], facts["arch"]
    if ptxas is None:
        return finding("refuse", "ptxas", f"there is no {path}: the toolkit is not whole")
    if ptxas["accepts"] is None:
        return finding("unseen", "ptxas", f"not seen: {path} did not run: {ptxas['said']}")
    if not ptxas["accepts"]:
        text = f"{path} does not assemble for {arch}: {ptxas['said']}: take a newer toolkit"
        return finding("refuse", "ptxas", text)
    return finding("ok", "ptxas", f"ptxas assembles for {arch}")


def compile_finding(facts: Mapping[str, Any]) -> Finding:
    """nvcc compiles and links, for which it needs the host's C++ compiler as well."""
    compiled = facts["compiled"]
    if compiled["ok"] is None:
        return finding("unseen", "compile", f"not seen: nvcc did not run: {compiled['said']}")
    if not compiled["ok"]:
        text = f"nvcc cannot compile and link a few lines for {facts['arch']}: {compiled['said']}"
        return finding("refuse", "compile", f"{text}. It needs a C++ compiler: apt-get install g++")
    return finding("ok", "compile", f"nvcc compiles and links for {facts['arch']}")


def path_finding(facts: Mapping[str, Any], wanted: str) -> Finding:
    """The first nvcc of the path is not an older one: what ignores CUDA_HOME compiles with that."""
    if not facts["path_nvcc"]:
        return finding("ok", "path", "no other nvcc is on the path")
    first = facts["path_nvcc"][0]
    if first["version"] is None:
        return finding("unseen", "path", f"not seen: {first['path']} does not tell its version")
    if Version(first["version"]) < Version(wanted):
        text = f"{first['path']} of CUDA {first['version']} is first on the path, before {wanted}"
        return finding("refuse", "path", f"{text}: take it off, or put {facts['home']}/bin before it")
    return finding("ok", "path", f"the first nvcc on the path is {first['path']} of CUDA {first['version']}")


def compat_finding(facts: Mapping[str, Any]) -> Finding:
    """The driver's libcuda is the driver's, not a compatibility library that is older or newer than it."""
    variable, cache = facts["libcuda"]["path"], facts["libcuda"]["cache"]
    found = [*variable, *(cache or [])]
    if found and COMPAT in PurePosixPath(found[0]).parts:
        where = "LD_LIBRARY_PATH" if variable else "the loader's cache (/etc/ld.so.conf.d)"
        text = f"{found[0]} shadows the driver's library: take its folder out of {where}"
        return finding("refuse", "compat", text)
    if cache is None and not variable:
        return finding("unseen", "compat", "not seen: the loader's cache was not read (ldconfig -p)")
    return finding(
        "ok", "compat", f"libcuda is {found[0]}" if found else "no libcuda.so.1 is found, none shadows"
    )


def toolkit_findings(
    facts: Mapping[str, Any], toolkit: Mapping[str, Any], data: Mapping[str, Any]
) -> list[Finding]:
    """Findings {level: ok, refuse or unseen, check, text}, one a check.

    `facts` are those of `cuda_toolkit_facts`, `toolkit` is the plan's, `data` catalog/cuda.yml. What was not
    seen is no reason to refuse, and is not called ok.
    """
    wanted = toolkit["version"]
    return [
        nvcc_finding(facts, wanted, data["toolkit"]["nvcc"]),
        cccl_finding(facts),
        ptxas_finding(facts),
        compile_finding(facts),
        path_finding(facts, wanted),
        compat_finding(facts),
    ]


def package_problems(package: str, offer: Mapping[str, Any]) -> list[str]:
    """Why a toolkit's package cannot be installed; `offer` is what `apt_offer` read."""
    if offer["installed"] or offer["candidate"]:
        return []
    return [
        f"no repository of the host offers the package {package}: add the one that does "
        "(NVIDIA's: https://docs.nvidia.com/cuda/cuda-installation-guide-linux/) and run apt-get update, "
        "or name a toolkit that is there with cuda_toolkit_path"
    ]


def reboot_reasons(facts: Mapping[str, Any]) -> list[str]:
    """Why the host wants a reboot, from the facts of `reboot_facts`; nothing here reboots it."""
    return list(reasons(facts))


def reasons(facts: Mapping[str, Any]) -> Iterator[str]:
    if facts["marker"]:
        packages = f" (for {', '.join(facts['packages'])})" if facts["packages"] else ""
        yield f"the distribution asks for a reboot{packages}"
    kernel, newest = facts["kernel"], facts["newest_kernel"]
    if newest and newest != kernel:
        yield f"kernel {kernel} runs, {newest} is installed"
    driver, installed = facts["driver"], facts["installed_driver"]
    if driver and installed and driver != installed:
        yield f"NVIDIA driver {driver} is loaded, {installed} is installed"


class FilterModule:
    """Filters about CUDA toolkits."""

    def filters(self) -> dict[str, Any]:
        return {
            "toolkit_findings": toolkit_findings,
            "package_problems": package_problems,
            "reboot_reasons": reboot_reasons,
        }
