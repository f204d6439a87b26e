"""The stand-in for sgl-kernel in tests/data/tiny_kernel: its tools by hash, its build with a real nvcc."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[1] / "data" / "tiny_kernel"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "smokestack" / "kernel-tests"
PATCHES = tuple(path.stem for path in sorted((DATA / "patches").glob("*.patch")))
LOCK = Path(__file__).parents[2] / "catalog" / "stacks" / "cpu-demo.cp311-linux_x86_64.lock"
GIT = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost"]
ORDER = [
    *("cmake-policy-guards", "cccl-include", "dlpack-minimum"),
    *("fa3-optional", "fa3-soft-import", "arch-list"),
]
BUILD_S = 300


def installed(requirements: Path) -> Path:
    """The packages of a requirements file with hashes, installed once into the cache; else a skip."""
    if platform.machine() != "x86_64":
        pytest.skip(f"{requirements.name} names wheels for x86_64, and this is {platform.machine()}")
    folder = CACHE / f"{requirements.stem}-{hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = folder.with_name(f".{folder.name}.{os.getpid()}")
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        argv += ["--disable-pip-version-check", "--only-binary", ":all:", "--target", str(staging)]
        done = subprocess.run([*argv, "-r", str(requirements)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            shutil.rmtree(staging, ignore_errors=True)
            pytest.skip(f"pip could not install {requirements.name}: {done.stderr.strip()[-300:]}")
        staging.rename(folder)
    return folder


def cuda_home() -> Path:
    """The toolkit of an nvcc 13.0 or newer, from CUDA_HOME, the PATH or /usr/local; else a skip."""
    nvcc = shutil.which("nvcc")
    asked = [os.environ["CUDA_HOME"]] if os.environ.get("CUDA_HOME") else []
    if nvcc:
        said = subprocess.run([nvcc, "--dryrun", "x.cu"], capture_output=True, text=True, check=False).stderr
        asked += [line.partition("=")[2].strip() for line in said.splitlines() if line.startswith("#$ TOP=")]
    asked += sorted(map(str, Path("/usr/local").glob("cuda-1[3-9]*")))
    for home in map(Path, asked):
        if (home / "bin/nvcc").is_file() and (home / "include/cccl/cuda/std/utility").is_file():
            return home.resolve()
    pytest.skip(f"no nvcc of CUDA 13 or newer in CUDA_HOME, PATH or /usr/local (looked at {asked or 'none'})")


def locked_lines() -> list[str]:
    """Requirements with hashes: the tools of the stand-in, and what else builds and installs."""
    lines = [line for line in (DATA / "tools.txt").read_text().splitlines() if not line.startswith("#")]
    wanted = re.compile(r"(uv|packaging)==")
    return lines + [line for line in LOCK.read_text().splitlines() if wanted.match(line)]


def tool_wheels() -> list[Path]:
    """The wheels of all tools, downloaded once by hash; else a skip."""
    text = "\n".join(locked_lines()) + "\n"
    folder = CACHE / f"house-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if not folder.is_dir():
        staging = folder.with_name(f".{folder.name}.{os.getpid()}")
        staging.mkdir(parents=True)
        requirements = staging / "requirements.txt"
        requirements.write_text(text)
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        argv += ["--disable-pip-version-check", "--only-binary", ":all:", "--dest", str(staging)]
        done = subprocess.run([*argv, "-r", str(requirements)], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"pip could not download the tools: {done.stderr.strip()[-300:]}")
        staging.rename(folder)
    return sorted(folder.glob("*.whl"))


def entry(wheel: Path) -> dict[str, Any]:
    """A wheel's entry of a lock."""
    name, version = wheel.name.split("-")[:2]
    return {
        "name": name.replace("_", "-"),
        "version": version,
        "file": wheel.name,
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "size": wheel.stat().st_size,
        "index": None,
    }


def commit(folder: Path) -> str:
    """Commit all that is in a repository's folder; returns the commit."""
    for arguments in (["add", "--all"], ["commit", "--quiet", "-m", "the source"]):
        subprocess.run([*GIT, *arguments], cwd=folder, check=True)
    argv = ["git", "rev-parse", "HEAD"]
    return subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder: Path, source: Path = DATA / "source") -> tuple[Path, str]:
    """A git repository with the source in the folder `sgl-kernel`; returns it and its commit."""
    shutil.copytree(source, folder / "sgl-kernel")
    subprocess.run([*GIT, "init", "--quiet"], cwd=folder, check=True)
    return folder, commit(folder)


@dataclass
class Built:
    """How a build ended."""

    status: int
    output: str
    wheels: list[Path]


def build(
    folder: Path,
    *,
    without: Collection[str] = (),
    patched: bool = True,
    archs: str = "12.0a",
    newest_cmake: bool = False,
    fetch: bool = False,
) -> Built:
    """Copy the source, put in every patch but those `without`, and build the wheel as the role does."""
    home, tools = cuda_home(), installed(DATA / "tools.txt")
    source = folder / "source"
    shutil.copytree(DATA / "source", source)
    for name in PATCHES if patched else ():
        if name not in without:
            subprocess.run(
                ["git", "apply", "--unidiff-zero", str(DATA / "patches" / f"{name}.patch")],
                cwd=source,
                check=True,
                env={**os.environ, "GIT_CEILING_DIRECTORIES": str(folder)},
            )
    paths = [installed(DATA / "cmake-4.txt"), tools] if newest_cmake else [tools]
    arguments = [] if fetch else [f"-DFETCHCONTENT_SOURCE_DIR_REPO-TENSORS={DATA / 'deps' / 'repo-tensors'}"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PATH": os.pathsep.join([str(tools / "bin"), os.environ["PATH"]]),
        "CUDACXX": str(home / "bin/nvcc"),
        "CUDA_HOME": str(home),
        "TORCH_CUDA_ARCH_LIST": archs,
        "CMAKE_BUILD_PARALLEL_LEVEL": "1",
        "CMAKE_ARGS": " ".join([*arguments, f"-DCUDAToolkit_ROOT={home}"]),
    }
    argv = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    argv += ["--no-cache-dir", "--disable-pip-version-check", "-v", "--wheel-dir", str(folder / "dist")]
    done = subprocess.run(
        [*argv, str(source)], capture_output=True, text=True, check=False, env=environment, timeout=BUILD_S
    )
    return Built(done.returncode, done.stdout + done.stderr, sorted((folder / "dist").glob("*.whl")))
