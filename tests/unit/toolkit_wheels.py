"""Stand-ins for CUDA wheels: small files in the places of the real ones, and programs that are scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiny_wheels import make_wheel

NVCC = """#!/bin/sh
# A stand-in for nvcc: it tells a version, and compiles a file with cuda/std by copying it.
case "$*" in
  *--version*) echo "Cuda compilation tools, release {version}, V{version}.88" ;;
  *) while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done; cp "$1" "$out" ;;
esac
"""
PTXAS = """#!/bin/sh
# A stand-in for ptxas: it knows some architectures.
case " {archs} " in
  *" $2 "*) echo cubin > "$5" ;;
  *) echo "ptxas fatal   : Value '$2' is not defined for option 'gpu-name'" >&2; exit 255 ;;
esac
"""
PARTS = {
    "nvidia_cuda_nvcc": {
        "bin/nvcc": NVCC.format(version="13.0"),
        "bin/ptxas": PTXAS.format(archs="sm_100a sm_120a"),
        "bin/nvcc.profile": "TOP = ..\n",
    },
    "nvidia_nvvm": {"nvvm/bin/cicc": "#!/bin/sh\n", "lib/libnvvm.so.4": "nvvm"},
    "nvidia_cuda_crt": {"include/crt/host_config.h": "// host\n"},
    "nvidia_cuda_runtime": {
        "include/cuda_runtime.h": "// runtime\n",
        "lib/libcudart_static.a": "static",
        "lib/libcudart.so.13": "shared",
    },
    "nvidia_cuda_cccl": {"include/cccl/cuda/std/utility": "// utility\n"},
}


def cuda_wheel(folder: Path, name: str, files: dict[str, str], version: str = "13.0.88") -> dict[str, Any]:
    """Write a CUDA wheel with these files below its nvidia/cu13; returns its entry of a lock."""
    return make_wheel(
        folder, name, version, files={f"nvidia/cu13/{place}": text for place, text in files.items()}
    )


def cuda_wheels(folder: Path, without: str = "") -> list[dict[str, Any]]:
    """Write the wheels of a whole toolkit, without one if that is named; returns their entries of a lock."""
    folder.mkdir(parents=True, exist_ok=True)
    return [cuda_wheel(folder, name, files) for name, files in PARTS.items() if name != without]


def hashes(wheels: list[dict[str, Any]]) -> dict[str, str]:
    """File name to SHA-256."""
    return {wheel["file"]: wheel["sha256"] for wheel in wheels}
