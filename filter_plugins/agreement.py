"""What has to agree before anything is installed, judged from a stack's lock and its wheels' own metadata.

Each problem names both versions and the line of the stack file to change. A pair of which one side is not
known is not judged: a CPU stack has no FlashInfer, and a plan is made before the wheels are there.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

NEWEST_GLIBC = 50
OLDEST_GLIBC = 5
OLD_PLATFORMS = ("manylinux2014", "manylinux2010", "manylinux1", "linux")
KERNELS = ("sgl-kernel", "sglang-kernel")
TORCH_FAMILY = ("torch", "torchvision", "torchaudio")

Wheels = Sequence[Mapping[str, Any]]
Needs = Mapping[str, Sequence[str]]  # package to the Requires-Dist lines of its wheel


class StackFile:
    """Where a stack file says what: for the sentences."""

    def __init__(self, stack: Mapping[str, Any], lines: Mapping[str, int]) -> None:
        self._stack, self._lines = stack, lines
        self._name = f"catalog/stacks/{stack['name']}.yml"

    def line(self, key: str) -> str:
        """`catalog/stacks/NAME.yml:LINE` of a key, without the line where the file does not have the key."""
        return f"{self._name}:{self._lines[key]}" if key in self._lines else self._name

    def key_of(self, package: str) -> str:
        """The key that decides the version of a package, '' where another package brings it."""
        for name in ("requirements", "without_dependencies"):
            for number, requirement in enumerate(self._stack[name]):
                if canonicalize_name(Requirement(requirement).name) == package:
                    return f"{name}[{number}]"
        if package.startswith("flashinfer-"):
            return "flashinfer.version"
        if package in KERNELS:
            return "kernel.wheel.version"
        return {"torch": "torch", "sglang": "sglang.version"}.get(package, "")

    def pin(self, package: str) -> tuple[str, str]:
        """Where a package's version is to be changed, and what to do there."""
        key = self.key_of(package)
        return (self.line(key), f"change {key}") if key else (self._name, f"pin {package} under requirements")


def stack_places(stack: Mapping[str, Any], lines: Mapping[str, int]) -> dict[str, dict[str, str]]:
    """Where each package of a stack is pinned: {where, line}, `line` being what may stand there."""
    file = StackFile(stack, lines)
    kernel = stack["kernel"].get("wheel", {}).get("name")
    packages = ["torch", "sglang", "flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache", kernel]
    packages += [Requirement(line).name for line in [*stack["requirements"], *stack["without_dependencies"]]]
    places: dict[str, dict[str, str]] = {}
    for name in map(canonicalize_name, filter(None, packages)):
        key = file.key_of(name)
        if key.endswith("]"):
            line = f"- {name}=={{version}}"
        elif key == "flashinfer.version":
            line = "version: {public}"
        else:
            line = f"{key.rpartition('.')[2]}: {{version}}"
        places[name] = {"where": file.line(key), "line": line}
    for number, pin in enumerate(stack.get("cuda_toolkit", {}).get("wheels", ())):
        name = canonicalize_name(Requirement(pin).name)
        where = file.line(f"cuda_toolkit.wheels[{number}]")
        places.setdefault(name, {"where": where, "line": f"- {name}=={{version}}"})
    for number, pin in enumerate(stack["kernel"].get("source", {}).get("build", ())):
        name = canonicalize_name(Requirement(pin).name)
        where = file.line(f"kernel.source.build[{number}]")
        places.setdefault(name, {"where": where, "line": f"- {name}=={{version}}"})
    return places


def versions(wheels: Wheels) -> dict[str, Version]:
    return {canonicalize_name(wheel["name"]): Version(wheel["version"]) for wheel in wheels}


def cuda_of_tag(local: str | None) -> str | None:
    """`13.0` for the local version `cu130`; None for others."""
    match = re.fullmatch(r"cu(\d+)(\d)", local or "")
    return f"{match[1]}.{match[2]}" if match else None


def torch_cuda(locked: Mapping[str, Version]) -> str | None:
    """The CUDA version that the locked torch is built for, None for a CPU build.

    A local version says it (+cu130, +cpu); a build from PyPI brings the CUDA runtime as a package.
    """
    if "torch" not in locked or locked["torch"].local:
        return cuda_of_tag(locked["torch"].local) if "torch" in locked else None
    for name, version in locked.items():
        if re.fullmatch(r"nvidia-cuda-runtime(-cu\d+)?", name):
            return f"{version.major}.{version.minor}"
    return None


def trio_problems(file: StackFile, locked: Mapping[str, Version]) -> Iterator[str]:
    """FlashInfer's packages must be of one version: the import raises, or a kernel reads what is not there.

    https://github.com/vllm-project/vllm/issues/49804
    """
    if "flashinfer-python" not in locked:
        return
    wanted = locked["flashinfer-python"].public
    for name, version in sorted(locked.items()):
        if re.fullmatch(r"flashinfer-(cubin|jit-cache.*)", name) and version.public != wanted:
            where, remedy = file.pin(name)
            yield (
                f"{where}: {name} is {version}, flashinfer-python is {wanted}; FlashInfer's packages must be "
                f"equal: {remedy}"
            )


def kernel_problems(
    file: StackFile, stack: Mapping[str, Any], locked: Mapping[str, Version], needs: Needs
) -> Iterator[str]:
    """A kernel wheel fits the torch that it was built against (equal to the minor version), and its CUDA.

    Another torch ends in `undefined symbol` at the first import: https://github.com/sgl-project/sglang/pull/30562
    """
    wheel = stack["kernel"].get("wheel")
    if not wheel or "torch" not in locked:
        return
    told = [Requirement(need) for need in needs.get(wheel["name"], [])]
    asked = [pin for need in told if need.name == "torch" for pin in need.specifier]
    pins = [pin.version for pin in asked if pin.operator == "=="]
    built = pins[0] if pins else wheel["torch"]
    torch = locked["torch"]
    kernel = f"{wheel['name']} {wheel['version']}"
    if Version(built).release[:2] != torch.release[:2]:
        yield (
            f"{file.line('torch')}: torch is {torch}, {kernel} is built against torch {built}: change torch, "
            "or take another kernel under kernel.wheel"
        )
    if pins and Version(built).release[:2] != Version(wheel["torch"]).release[:2]:
        yield (
            f"{file.line('kernel.wheel.torch')}: kernel.wheel.torch is {wheel['torch']}, the metadata of "
            f"{kernel} asks for torch {built}: change it to {built}"
        )
    cuda = torch_cuda(locked)
    if cuda and cuda.split(".")[0] != wheel["cuda"]:
        yield (
            f"{file.line('kernel.wheel.version')}: {kernel} is linked with CUDA {wheel['cuda']}, "
            f"torch {torch} is built for CUDA {cuda}: take the kernel and torch of one CUDA"
        )


def sglang_problems(
    file: StackFile, stack: Mapping[str, Any], lock: Mapping[str, Any], needs: Needs
) -> Iterator[str]:
    """The locked versions are at least those that SGLang's wheel names; a pin is a minimum, as at its start.

    What is not locked is not judged: a CPU stack leaves CUDA packages out. A kernel wheel that was released
    is linked with one torch; without one, or with a kernel that is built here, another torch may serve.
    """
    locked = versions(lock["wheels"])
    python = f"3.{lock['abi'].removeprefix('cp3')}"
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": lock["platform"].removeprefix("linux_"),
        "platform_system": "Linux",
        "sys_platform": "linux",
        "implementation_name": "cpython",
        "extra": "",
    }
    for need in map(Requirement, needs.get("sglang", [])):
        name = canonicalize_name(need.name)
        if need.marker and not need.marker.evaluate(environment):
            continue
        if name not in locked or (name in TORCH_FAMILY and "wheel" not in stack["kernel"]):
            continue
        pins = [(pin.operator.replace("==", ">="), pin.version.removesuffix(".*")) for pin in need.specifier]
        wanted = ",".join(operator + version for operator, version in pins)
        if not SpecifierSet(wanted, prereleases=True).contains(locked[name]):
            where, remedy = file.pin(name)
            yield (
                f"{where}: {name} is {locked[name]}, SGLang {locked['sglang']} asks for {need.specifier}: "
                f"{remedy}"
            )


def cuda_problems(file: StackFile, stack: Mapping[str, Any], locked: Mapping[str, Version]) -> Iterator[str]:
    """`cuda` is torch's CUDA; FlashInfer's JIT cache and a locked nvcc are of the same major."""
    if "torch" not in locked:
        return
    said, built = stack.get("cuda"), torch_cuda(locked)
    torch = locked["torch"]
    if said != built:
        change = f'set cuda: "{built}"' if built else "take cuda out"
        yield (
            f"{file.line('cuda')}: cuda is {said or 'not set'}, torch {torch} is built for "
            f"{f'CUDA {built}' if built else 'no CUDA'}: {change}, or change torch ({file.line('torch')})"
        )
    if not built:
        return
    major = built.split(".")[0]
    for name, version in sorted(locked.items()):
        other = None
        if name.startswith("flashinfer-jit-cache"):
            other = cuda_of_tag(version.local)
        elif re.fullmatch(r"nvidia-cuda-nvcc(-cu\d+)?", name):
            other = f"{version.major}.{version.minor}"
        if other and other.split(".")[0] != major:
            where, remedy = file.pin(name)
            remedy = remedy.replace("flashinfer.version", "flashinfer.jit_cache")
            yield f"{where}: {name} {version} is of CUDA {other}, torch {torch} of CUDA {built}: {remedy}"


def tag_problems(lock: Mapping[str, Any], name: str) -> Iterator[str]:
    """Every wheel can be installed on the Python and the platform that the lock is for."""
    abi, platform = lock["abi"], lock["platform"]
    accepted = node_tags(abi, platform)
    for wheel in [*lock["wheels"], *lock.get("toolkit", ())]:
        tags = parse_wheel_filename(wheel["file"])[3]
        if not tags & accepted:
            yield (
                f"catalog/stacks/{name}.{abi}-{platform}.lock: {wheel['file']} is for "
                f"{', '.join(sorted(map(str, tags)))}; the node has {abi} on {platform}: lock the stack again"
            )


def node_tags(abi: str, platform: str) -> set[Tag]:
    """The wheel tags that CPython of this ABI accepts on this platform, whatever its glibc."""
    machine = platform.removeprefix("linux_")
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(OLDEST_GLIBC, NEWEST_GLIBC)]
    platforms += [f"{old}_{machine}" for old in OLD_PLATFORMS]
    python = (3, int(abi.removeprefix("cp3")))
    return set(
        itertools.chain(cpython_tags(python, [abi], platforms), compatible_tags(python, abi, platforms))
    )


def node_cuda_problems(
    facts: Mapping[str, Any], stack: Mapping[str, Any], data: Mapping[str, Any]
) -> list[str]:
    """Why a node's driver and toolkit do not fit a stack's CUDA; `data` is catalog/cuda.yml."""
    return list(_cuda_problems(stack, facts, data))


def _cuda_problems(
    stack: Mapping[str, Any], facts: Mapping[str, Any], data: Mapping[str, Any]
) -> Iterator[str]:
    cuda = stack.get("cuda")
    if not cuda:
        return
    major = cuda.split(".")[0]
    name = f"stack {stack['name']}"
    if major not in data["drivers"]:
        yield f"{name} is of CUDA {cuda}, and catalog/cuda.yml names no driver for CUDA {major}: add one"
        return
    lowest = data["drivers"][major]["driver"]
    if "driver" in facts and not facts["driver"]:
        yield f"{name} is of CUDA {cuda}, and the node has no NVIDIA driver: install {lowest} or newer"
    elif facts.get("driver") and Version(facts["driver"]) < Version(lowest):
        yield (
            f"{name} is of CUDA {cuda}, which needs driver {lowest} or newer; the node has "
            f"{facts['driver']}: update the driver, or choose a stack of an older CUDA"
        )
    toolkit = facts.get("toolkit")
    if toolkit and Version(toolkit).major != int(major):
        yield (
            f"{name} is of CUDA {cuda}, the node's toolkit is {toolkit}: kernels compiled at start would be "
            f"of another CUDA; install a toolkit of CUDA {major}"
        )
    elif toolkit and Version(toolkit) < Version(data["toolkit"]["nvcc"]):
        yield (
            f"the node's CUDA toolkit is {toolkit}; nvcc compiles for SM120 from {data['toolkit']['nvcc']}: "
            "install a newer one"
        )


def agreement_problems(
    lock: Mapping[str, Any], stack: Mapping[str, Any], lines: Mapping[str, int], needs: Needs | None = None
) -> list[str]:
    """What does not agree among the wheels of a lock {abi, platform, wheels}.

    `lines` is the line of each key of the stack file, `needs` what the wheels' metadata ask for.
    """
    file, locked, told = StackFile(stack, lines), versions(lock["wheels"]), needs or {}
    return [
        *trio_problems(file, locked),
        *cuda_problems(file, stack, locked),
        *kernel_problems(file, stack, locked, told),
        *sglang_problems(file, stack, lock, told),
        *tag_problems(lock, stack["name"]),
    ]


class FilterModule:
    """Filters about agreement."""

    def filters(self) -> dict[str, Any]:
        return {
            "agreement_problems": agreement_problems,
            "stack_places": stack_places,
            "node_cuda_problems": node_cuda_problems,
        }
