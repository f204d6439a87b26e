"""The import stand-ins for the CPU engine: importable, loud when called, and out of a real package's way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "packaging" / "cpu_stand_in"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site-packages folder as the wheel fills it."""
    folder = tmp_path / "site"
    folder.mkdir()
    for name in ("smokestack_cpu_stand_in.py", "smokestack_cpu_stand_in.pth"):
        shutil.copy(SOURCE / name, folder)
    return folder


def run(site: Path, code: str) -> str:
    """What the code prints in a fresh interpreter that has only this site-packages folder."""
    command = [sys.executable, "-I", "-S", "-c", f"import site; site.addsitedir({str(site)!r})\n{code}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_every_import_of_a_stand_in_works(site: Path) -> None:
    code = """
import sgl_kernel, torchvision.transforms.functional
from sgl_kernel.flash_attn import flash_attn_varlen_func
from torchvision.transforms import InterpolationMode
print(InterpolationMode.BICUBIC is InterpolationMode.BICUBIC, InterpolationMode.BICUBIC)
"""
    assert run(site, code) == "True <stand-in for torchvision.transforms.InterpolationMode.BICUBIC>"


@pytest.mark.parametrize(
    "call", ["sgl_kernel.rmsnorm(1, eps=2)", "sgl_kernel.moe.topk()", "torchvision.io.decode_jpeg(b'')"]
)
def test_a_call_raises_and_names_itself(site: Path, call: str) -> None:
    code = f"""
import sgl_kernel, torchvision
try:
    {call}
except RuntimeError as error:
    print(type(error).__name__, error)
"""
    name = call.partition("(")[0]
    assert run(site, code).startswith(f"StandInUsedError {name} was called, but {name.split('.')[0]} is not")


def test_a_stand_in_has_a_version_but_is_not_installed(site: Path) -> None:
    code = """
import importlib.metadata, sgl_kernel, torchvision
print(sgl_kernel.__version__, torchvision.__version__)
try:
    importlib.metadata.version("torchvision")
except importlib.metadata.PackageNotFoundError:
    print("absent")
"""
    assert run(site, code).split() == ["0.0.0+cpu.stand.in", "0.0.0+cpu.stand.in", "absent"]


def test_double_underscore_names_stay_absent(site: Path) -> None:
    code = """
import copy, sgl_kernel
kernel = sgl_kernel.rmsnorm
print(hasattr(sgl_kernel, "__wrapped__"), hasattr(kernel, "__iter__"), copy.copy(kernel))
"""
    assert run(site, code) == "False False <stand-in for sgl_kernel.rmsnorm>"


def test_a_real_package_wins_with_its_submodules(site: Path) -> None:
    real = site / "torchvision"
    real.mkdir()
    (real / "__init__.py").write_text("__version__ = '1.2.3'\n")
    code = """
import torchvision
print(torchvision.__version__)
try:
    import torchvision.transforms
except ModuleNotFoundError as error:
    print(error)
import sgl_kernel
print(sgl_kernel.__version__)
"""
    assert run(site, code).splitlines() == [
        "1.2.3",
        "No module named 'torchvision.transforms'",
        "0.0.0+cpu.stand.in",
    ]


def test_other_missing_packages_stay_missing(site: Path) -> None:
    code = """
try:
    import sgl_kernel_extra
except ModuleNotFoundError as error:
    print(error)
"""
    assert run(site, code) == "No module named 'sgl_kernel_extra'"


def test_installing_twice_adds_one_finder(site: Path) -> None:
    code = """
import sys, smokestack_cpu_stand_in
smokestack_cpu_stand_in.install()
print(sum(type(finder).__name__ == "StandInFinder" for finder in sys.meta_path))
"""
    assert run(site, code) == "1"


def test_the_version_is_the_wheels(site: Path) -> None:
    version = run(site, "import smokestack_cpu_stand_in; print(smokestack_cpu_stand_in.__version__)")
    assert f'version = "{version}"' in (SOURCE / "pyproject.toml").read_text()


@pytest.mark.skipif(
    find_spec("hatchling") is None, reason="hatchling, the wheel's build backend, is not installed"
)
def test_the_wheel_is_the_same_twice_and_holds_both_files_at_its_root(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    wheels = []
    for number, mtime in enumerate((1_000_000_000, 2_000_000_000)):
        for path in source.iterdir():
            os.utime(path, (mtime, mtime))
        folder = tmp_path / str(number)
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
        subprocess.run([*command, "--wheel-dir", folder, source], check=True, capture_output=True)
        wheels.append(next(folder.iterdir()))
    assert wheels[0].name == "smokestack_cpu_stand_in-1.0.0-py3-none-any.whl"
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    with zipfile.ZipFile(wheels[0]) as wheel:
        assert {"smokestack_cpu_stand_in.py", "smokestack_cpu_stand_in.pth"} <= set(wheel.namelist())
