#!/usr/bin/python
"""Ansible module: what a CUDA toolkit is and does, and what could get in its way."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_toolkit_facts
short_description: Read what a CUDA toolkit can do
description:
  - Asks the toolkit's nvcc and ptxas, lets them compile and link a few lines for O(arch), and looks for
    another nvcc on the path and for compatibility libraries that shadow the driver's. Changes nothing.
options:
  home:
    description: The toolkit's folder, its CUDA_HOME.
    type: path
    required: true
  arch:
    description: The architecture to ask for.
    type: str
    default: sm_120a
  environment:
    description: Variables of the process that will compile; of them C(PATH) and C(LD_LIBRARY_PATH) are looked
      at. A C(PATH) that is not among them is that of this module.
    type: dict
    default: {}
attributes:
  check_mode:
    support: full
    description: Read-only.
  diff_mode:
    support: none
    description: Read-only.
author: Smokestack
"""

EXAMPLES = r"""
- name: Look at the toolkit
  cuda_toolkit_facts:
    home: /usr/local/cuda-13.0
"""

RETURN = r"""
facts:
  description:
    - V(home), V(arch); V(nvcc) with V(version) ({major}.{minor}, null when it was not told) and V(said), null
      where there is no nvcc; V(cccl), the folder of the headers V(cuda/std), or null; V(ptxas) with
      V(accepts) (whether it assembles for the architecture, null when it did not run) and V(said), null where
      there is none; V(compiled) with V(ok) (null when nvcc did not run) and V(said).
    - V(path_nvcc), each nvcc of the path in its order with V(path) and V(version); V(libcuda) with V(path),
      the files named libcuda.so.1 in C(LD_LIBRARY_PATH), and V(cache), those of the loader's cache in its
      order, null when the cache was not read.
  type: dict
  returned: always
"""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.said import last_lines

LIBCUDA = "libcuda.so.1"
# The oldest ISA that knows the target sm_120a is 8.7, https://docs.nvidia.com/cuda/parallel-thread-execution/
PTX = ".version 8.7\n.target {arch}\n.address_size 64\n.visible .entry nothing() {{ ret; }}\n"
PROGRAM = """#include <cuda/std/utility>
__global__ void second(float *out) { out[0] = cuda::std::pair<int, float>{1, 2.f}.second; }
extern "C" int start(float *out) { second<<<1, 1>>>(out); return cudaGetLastError(); }
"""

ARGUMENTS = {
    "home": {"type": "path", "required": True},
    "arch": {"type": "str", "default": "sm_120a"},
    "environment": {"type": "dict", "default": {}},
}


class Toolkit:
    """Questions to the programs of one toolkit."""

    def __init__(self, module: AnsibleModule, home: Path, path: str) -> None:
        self._module, self.home, self._path = module, home, path

    def run(self, argv: list[str | Path]) -> tuple[int | None, str]:
        """Exit status and output of a program; no status when it could not be started."""
        environment = {"PATH": self._path, "LC_ALL": "C"}
        try:
            status, out, err = self._module.run_command(
                [str(word) for word in argv], environ_update=environment, handle_exceptions=False
            )
        except OSError as error:
            return None, str(error)
        return status, f"{out}\n{err}"

    def version(self, nvcc: Path) -> dict[str, Any] | None:
        """What an nvcc says of itself, None where there is none."""
        if not nvcc.is_file():
            return None
        _status, said = self.run([nvcc, "--version"])
        release = re.search(r"release (\d+\.\d+)", said)
        return {"version": release[1] if release else None, "said": last_lines(said)}

    def cccl(self) -> str | None:
        """The folder that holds cuda/std: CUDA 13 has it in include/cccl, CUDA 12 in include."""
        folders = (self.home / "include/cccl", self.home / "include")
        return next((str(folder) for folder in folders if (folder / "cuda/std/utility").is_file()), None)

    def ptxas(self, arch: str, scratch: Path) -> dict[str, Any] | None:
        """Whether ptxas assembles a few lines for the architecture."""
        ptxas, source, out = self.home / "bin/ptxas", scratch / "nothing.ptx", scratch / "nothing.cubin"
        if not ptxas.is_file():
            return None
        source.write_text(PTX.format(arch=arch))
        status, said = self.run([ptxas, "--gpu-name", arch, source, "--output-file", out])
        accepts = None if status is None else status == 0 and out.is_file()
        return {"accepts": accepts, "said": last_lines(said)}

    def compiled(self, arch: str, scratch: Path) -> dict[str, Any]:
        """Whether nvcc compiles a host and a device function for the architecture and links them."""
        source, out = scratch / "second.cu", scratch / "second.so"
        source.write_text(PROGRAM)
        # As builds ask for it. With -arch=sm_120a alone, nvcc 13.0 compiles for a plain compute_120 as well.
        target = f"arch={arch.replace('sm_', 'compute_')},code={arch}"
        argv = [
            self.home / "bin/nvcc",
            "-gencode",
            target,
            "-shared",
            "-Xcompiler",
            "-fPIC",
            "-o",
            out,
            source,
        ]
        status, said = self.run(argv)
        return {"ok": None if status is None else status == 0 and out.is_file(), "said": last_lines(said)}


def on_path(name: str, path: str) -> list[Path]:
    """The programs of this name on a path, in its order, each file once."""
    found: dict[Path, Path] = {}
    for folder in path.split(os.pathsep):
        program = Path(folder) / name
        if folder and program.is_file() and os.access(program, os.X_OK):
            found.setdefault(program.resolve(), program)
    return list(found.values())


def cached(listing: str) -> list[str]:
    """The paths of libcuda.so.1 in what `ldconfig -p` prints, in its order."""
    return re.findall(rf"^\s*{re.escape(LIBCUDA)} \([^)]*\) => (\S+)$", listing, re.MULTILINE)


def libcuda(module: AnsibleModule, library_path: str) -> dict[str, Any]:
    """Where the loader finds the driver's library."""
    folders = [Path(folder) for folder in library_path.split(os.pathsep) if folder]
    ldconfig = module.get_bin_path("ldconfig", opt_dirs=["/sbin", "/usr/sbin"])
    status, listing, _err = module.run_command([ldconfig, "-p"]) if ldconfig else (1, "", "")
    files = [folder / LIBCUDA for folder in folders if (folder / LIBCUDA).exists()]
    return {
        "path": [str(file.resolve()) for file in files],
        "cache": [str(Path(file).resolve()) for file in cached(listing)] if status == 0 else None,
    }


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    home, arch = Path(module.params["home"]), module.params["arch"]
    environment = module.params["environment"]
    path = str(environment.get("PATH") or os.environ.get("PATH", os.defpath))
    toolkit = Toolkit(module, home, path)
    with tempfile.TemporaryDirectory() as name:
        facts = {
            "home": str(home),
            "arch": arch,
            "nvcc": toolkit.version(home / "bin/nvcc"),
            "cccl": toolkit.cccl(),
            "ptxas": toolkit.ptxas(arch, Path(name)),
            "compiled": toolkit.compiled(arch, Path(name)),
            "path_nvcc": [
                {"path": str(nvcc), "version": (toolkit.version(nvcc) or {}).get("version")}
                for nvcc in on_path("nvcc", path)
            ],
            "libcuda": libcuda(module, str(environment.get("LD_LIBRARY_PATH", ""))),
        }
    module.exit_json(changed=False, facts=facts)


if __name__ == "__main__":
    main()
