"""What is read from a toolkit and its host. The programs are stand-ins; the last test has NVIDIA's own."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apt_offer
import cuda_home
import cuda_toolkit_facts
import pytest
import reboot_facts
import wheel_fetch
from stacks import read_lock
from toolkit import toolkit_findings
from toolkit_wheels import NVCC, PTXAS, cuda_wheels, hashes

RunModule = Callable[..., dict[str, Any]]
TOOLKIT = {"version": "13.0"}
DATA = {"toolkit": {"nvcc": "12.9"}}
PATH = "/usr/bin:/bin"


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def home(run_module: RunModule, tmp_path: Path) -> Path:
    home = tmp_path / "toolkits/13.0-demo"
    wheels = hashes(cuda_wheels(tmp_path / "house"))
    assert run_module(cuda_home, path=str(home), wheelhouse=str(tmp_path / "house"), wheels=wheels)["changed"]
    return home


@pytest.fixture
def look(run_module: RunModule, home: Path) -> Callable[..., dict[str, Any]]:
    def facts(**environment: str) -> dict[str, Any]:
        result = run_module(cuda_toolkit_facts, home=str(home), environment={"PATH": PATH, **environment})
        assert not result["changed"]
        return result["facts"]

    return facts


def levels(facts: dict[str, Any], *checks: str) -> dict[str, str]:
    found = {finding["check"]: finding["level"] for finding in toolkit_findings(facts, TOOLKIT, DATA)}
    return {check: found[check] for check in checks}


def test_a_whole_toolkit_is_seen_whole(look: Callable[..., dict[str, Any]], home: Path) -> None:
    facts = look()
    assert facts["nvcc"] == {"version": "13.0", "said": "Cuda compilation tools, release 13.0, V13.0.88"}
    assert facts["cccl"] == str(home / "include/cccl")
    assert facts["ptxas"] == {"accepts": True, "said": ""}
    assert facts["compiled"] == {"ok": True, "said": ""}
    assert set(levels(facts, "nvcc", "cccl", "ptxas", "compile").values()) == {"ok"}


def test_a_toolkit_that_is_not_there_is_refused(run_module: RunModule, tmp_path: Path) -> None:
    facts = run_module(cuda_toolkit_facts, home=str(tmp_path / "none"), environment={"PATH": PATH})["facts"]
    assert (facts["nvcc"], facts["cccl"], facts["ptxas"], facts["compiled"]["ok"]) == (None, None, None, None)
    refused = levels(facts, "nvcc", "cccl", "ptxas", "compile")
    assert refused == {"nvcc": "refuse", "cccl": "refuse", "ptxas": "refuse", "compile": "unseen"}


def test_missing_cccl_headers_are_seen(look: Callable[..., dict[str, Any]], home: Path) -> None:
    shutil.rmtree(home / "include/cccl")
    assert levels(look(), "cccl") == {"cccl": "refuse"}


def test_cuda_12_has_the_headers_in_include(look: Callable[..., dict[str, Any]], home: Path) -> None:
    (home / "include/cccl/cuda").rename(home / "include/cuda")
    assert look()["cccl"] == str(home / "include")


def test_a_ptxas_that_does_not_know_the_architecture_is_refused(
    look: Callable[..., dict[str, Any]], home: Path
) -> None:
    program(home / "bin/ptxas", PTXAS.format(archs="sm_90a sm_100a"))
    facts = look()
    assert facts["ptxas"] == {
        "accepts": False,
        "said": "ptxas fatal   : Value 'sm_120a' is not defined for option 'gpu-name'",
    }
    assert levels(facts, "ptxas") == {"ptxas": "refuse"}


def test_a_ptxas_that_says_yes_and_writes_nothing_is_refused(
    look: Callable[..., dict[str, Any]], home: Path
) -> None:
    program(home / "bin/ptxas", "#!/bin/sh\nexit 0\n")
    assert levels(look(), "ptxas") == {"ptxas": "refuse"}


@pytest.mark.parametrize("name", ["ptxas", "nvcc"])
def test_a_program_that_cannot_be_started_was_not_seen(
    look: Callable[..., dict[str, Any]], home: Path, name: str
) -> None:
    program(home / "bin" / name, "#!/nonexistent/shell\n")
    check = {"ptxas": "ptxas", "nvcc": "compile"}[name]
    assert levels(look(), check) == {check: "unseen"}


def test_a_compiler_that_fails_is_refused_with_what_it_said(
    look: Callable[..., dict[str, Any]], home: Path
) -> None:
    program(home / "bin/nvcc", "#!/bin/sh\necho 'g++: not found' >&2\nexit 1\n")
    facts = look()
    assert facts["compiled"] == {"ok": False, "said": "g++: not found"}
    assert levels(facts, "nvcc", "compile") == {"nvcc": "unseen", "compile": "refuse"}


def test_an_older_nvcc_first_on_the_path_is_seen(
    look: Callable[..., dict[str, Any]], home: Path, tmp_path: Path
) -> None:
    old = program(tmp_path / "usr/bin/nvcc", NVCC.format(version="12.4"))
    (tmp_path / "link").symlink_to(home / "bin")
    facts = look(PATH=f"{old.parent}:{tmp_path / 'link'}:{home / 'bin'}:{PATH}")
    found = [entry for entry in facts["path_nvcc"] if str(tmp_path) in entry["path"]]
    assert found == [
        {"path": str(old), "version": "12.4"},
        {"path": str(tmp_path / "link/nvcc"), "version": "13.0"},
    ]
    assert levels(facts, "path") == {"path": "refuse"}
    assert levels(look(PATH=f"{home / 'bin'}:{old.parent}:{PATH}"), "path") == {"path": "ok"}


def test_a_compatibility_library_in_the_servers_variables_is_seen(
    look: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    compat = tmp_path / "cuda/compat"
    compat.mkdir(parents=True)
    (compat / "libcuda.so.580.65.06").touch()
    (compat / "libcuda.so.1").symlink_to("libcuda.so.580.65.06")
    facts = look(LD_LIBRARY_PATH=f"/nonexistent:{compat}")
    assert facts["libcuda"]["path"] == [str(compat / "libcuda.so.580.65.06")]
    assert levels(facts, "compat") == {"compat": "refuse"}


def test_the_loaders_cache_is_read_in_its_order() -> None:
    listing = (
        "4 libs found in cache `/etc/ld.so.cache'\n"
        "\tlibcudart.so.13 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.13\n"
        "\tlibcuda.so.1 (libc6,x86-64) => /usr/local/cuda/compat/libcuda.so.1\n"
        "\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1\n"
        "\tlibcuda.so (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so\n"
    )
    assert cuda_toolkit_facts.cached(listing) == [
        "/usr/local/cuda/compat/libcuda.so.1",
        "/lib/x86_64-linux-gnu/libcuda.so.1",
    ]


# --- the host ------------------------------------------------------------------------------------


def test_what_wants_a_reboot_is_read(
    run_module: RunModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("vmlinuz-6.1.0-9-amd64", "vmlinuz-6.1.0-18-amd64", "config-6.1.0-31-amd64"):
        (tmp_path / name).touch()
    (tmp_path / "version").write_text("580.95.05\n")
    monkeypatch.setattr(reboot_facts, "MARKER", tmp_path / "reboot-required")
    monkeypatch.setattr(reboot_facts, "BOOT", tmp_path)
    monkeypatch.setattr(reboot_facts, "DRIVER", tmp_path / "version")
    facts = run_module(reboot_facts)["facts"]
    assert (facts["marker"], facts["packages"]) == (False, [])
    assert (facts["kernel"], facts["newest_kernel"]) == (os.uname().release, "6.1.0-18-amd64")
    assert facts["driver"] == "580.95.05"

    (tmp_path / "reboot-required").touch()
    (tmp_path / "reboot-required.pkgs").write_text("linux-base\nlibc6\nlinux-base\n")
    facts = run_module(reboot_facts)["facts"]
    assert (facts["marker"], facts["packages"]) == (True, ["libc6", "linux-base"])


@pytest.mark.parametrize(
    ("said", "installed", "candidate"),
    [
        pytest.param("", None, None, id="unknown"),
        pytest.param("cuda:\n  Installed: (none)\n  Candidate: (none)\n", None, None, id="only named"),
        pytest.param("cuda:\n  Installed: (none)\n  Candidate: 12.9.1-1\n", None, "12.9.1-1", id="offered"),
        pytest.param(
            "cuda:\n  Installed: 12.9.0-1\n  Candidate: 12.9.1-1\n", "12.9.0-1", "12.9.1-1", id="installed"
        ),
    ],
)
def test_what_apt_says_of_a_package(said: str, installed: str | None, candidate: str | None) -> None:
    found = (apt_offer.version_of("Installed", said), apt_offer.version_of("Candidate", said))
    assert found == (installed, candidate)


@pytest.mark.skipif(not shutil.which("apt-cache"), reason="this host has no APT")
def test_apt_is_asked(run_module: RunModule) -> None:
    result = run_module(apt_offer, name="no-such-package-as-this")
    assert (result["changed"], result["installed"], result["candidate"]) == (False, None, None)


# --- NVIDIA's own wheels -------------------------------------------------------------------------

WHEELHOUSE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "smokestack/wheelhouse"
# From PyPI, read from the bytes: 104 MB, the compiler's part of catalog/stacks/sm120-0.5.23.yml.
REAL = read_lock("""
# nvidia_cuda_nvcc-13.0.88-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 37384532 PyPI toolkit
nvidia-cuda-nvcc==13.0.88 --hash=sha256:56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03
# nvidia_cuda_crt-13.0.88-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 134086 PyPI toolkit
nvidia-cuda-crt==13.0.88 --hash=sha256:2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4
# nvidia_nvvm-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl 61601415 PyPI toolkit
nvidia-nvvm==13.0.88 --hash=sha256:c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0
# nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 2243632 PyPI toolkit
nvidia-cuda-runtime==13.0.96 --hash=sha256:7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
# nvidia_cuda_cccl-13.0.85-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 3120526 PyPI toolkit
nvidia-cuda-cccl==13.0.85 --hash=sha256:e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649
""")["toolkit"]
# The instruction is the tensor cores' FP4 one, which ptxas assembles for sm_120a and not for a plain sm_120.
FP4 = """#include <cuda/std/utility>
#include <cuda_runtime.h>
#include <cstdio>
__global__ void fp4(float *out, unsigned x) {
    cuda::std::pair<float, float> d{0.f, 0.f}, e{0.f, 0.f};
    asm volatile(
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 "
        "{%0,%1,%2,%3},{%4,%4,%4,%4},{%4,%4},{%0,%1,%2,%3},{%4},{%5,%5},{%4},{%5,%5};"
        : "+f"(d.first), "+f"(d.second), "+f"(e.first), "+f"(e.second) : "r"(x), "h"((unsigned short)0));
    out[threadIdx.x] = d.first + d.second + e.first + e.second;
}
int main() {
    fp4<<<1, 32>>>(nullptr, 0);
    std::printf("runtime %d\\n", CUDART_VERSION);
    return 0;
}
"""


@pytest.mark.full
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the wheels are those of x86_64")
@pytest.mark.skipif(not shutil.which("g++"), reason="nvcc needs g++, which this host does not have")
def test_nvidias_own_wheels_compile_and_link_for_sm_120a(run_module: RunModule, tmp_path: Path) -> None:
    fetched = run_module(wheel_fetch, path=str(WHEELHOUSE), wheels=REAL, abi="cp311", platform="linux_x86_64")
    assert "msg" not in fetched, fetched["msg"]
    home = tmp_path / "toolkits/13.0-real"
    arguments = {"path": str(home), "wheelhouse": str(WHEELHOUSE), "wheels": hashes(REAL)}
    made = run_module(cuda_home, **arguments)
    assert made.get("changed"), made
    assert not run_module(cuda_home, **arguments)["changed"]

    facts = run_module(cuda_toolkit_facts, home=str(home), environment={"PATH": PATH})["facts"]
    assert set(levels(facts, "nvcc", "cccl", "ptxas", "compile").values()) == {"ok"}, facts

    source, binary = tmp_path / "fp4.cu", tmp_path / "fp4"
    source.write_text(FP4)
    environment = {"PATH": PATH}

    def nvcc(arch: str) -> subprocess.CompletedProcess[str]:
        target = f"arch=compute_{arch},code=sm_{arch}"
        argv = [str(home / "bin/nvcc"), "-gencode", target, "-o", str(binary), str(source)]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)

    assert "not supported on .target 'sm_120'" in nvcc("120").stderr
    done = nvcc("120a")
    assert done.returncode == 0, done.stderr
    ran = subprocess.run([str(binary)], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "runtime 13000\n"
    assert b"sm_120a" in binary.read_bytes()

    unknown = run_module(cuda_toolkit_facts, home=str(home), arch="sm_999a", environment=environment)["facts"]
    assert unknown["ptxas"]["accepts"] is False
    assert levels(unknown, "ptxas", "compile") == {"ptxas": "refuse", "compile": "refuse"}
    shutil.rmtree(home / "include/cccl")
    bare = run_module(cuda_toolkit_facts, home=str(home), environment=environment)["facts"]
    assert levels(bare, "cccl", "compile") == {"cccl": "refuse", "compile": "refuse"}
    assert "cuda/std/utility" in bare["compiled"]["said"]
