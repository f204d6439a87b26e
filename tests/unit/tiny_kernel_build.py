"""The stand-in for sgl-kernel, built as the role does: git, patch_series, kernel_wheel_build, nvcc."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import kernel_source
import kernel_wheel_build
import patch_series
import stacks
import yaml
from tiny_kernel import DATA, ORDER, cuda_home, installed, repository

import packaging

RunModule = Callable[..., dict[str, Any]]
CATALOG = yaml.safe_load((Path(__file__).parents[2] / "catalog" / "kernel.yml").read_text())
TOOLS = {"cmake": "3.28.4", "cuda": "13.0"}
NEWEST = TOOLS | {"cmake": "4.4.5"}


def environment(folder: Path, *packages: Path) -> Path:
    """An environment that sees the packages of these folders."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next(folder.glob("lib/python3*/site-packages"))
    (site / "packages.pth").write_text("".join(f"{path}\n" for path in packages))
    (site / "packaging").symlink_to(Path(packaging.__file__).parent)  # scikit-build-core needs it
    return folder


class Kitchen:
    """All that a build of the stand-in takes, in one folder."""

    def __init__(
        self,
        folder: Path,
        run_module: RunModule,
        *,
        newest_cmake: bool = False,
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self._run = folder, run_module
        self.tools = NEWEST if newest_cmake else TOOLS
        packages = [installed(DATA / "tools.txt")]
        if newest_cmake:
            packages.insert(0, installed(DATA / "cmake-4.txt"))
        self.venv = environment(folder / "venv", *packages)
        (folder / "git").mkdir()
        source = shutil.copytree(DATA / "source", folder / "source")
        for name, text in (more or {}).items():  # appended to files of the source
            with (source / name).open("a") as file:
                file.write(text)
        self.origin, self.commit = repository(folder / "git", source)
        self.fetched = self._run(
            kernel_source, path=str(folder / "fetched"), repository=str(self.origin), commit=self.commit
        )

    def patch(self, without: Collection[str] = ()) -> dict[str, Any]:
        """Put the patches in; returns the result of patch_series."""
        names = [name for name in ORDER if name not in without]
        series = stacks.patch_series(str(DATA / "patches"), names, self.tools)
        path = f"{self.fetched['source']}/sgl-kernel"
        return self._run(patch_series, path=path, patches=series, state="present" if names else "absent")

    def build(self, without: Collection[str] = (), **more: Any) -> dict[str, Any]:
        """Patch and build; returns the result of kernel_wheel_build."""
        wanted = {
            "path": str(self.folder / "builds"),
            "fingerprint": "f00d",
            "repository": self.fetched["source"],
            "source": self.patch(without)["source"],
            "venv": str(self.venv),
            "cuda_home": str(cuda_home()),
            "archs": ["12.0a"],
            "options": {"TINY_KERNEL_ENABLE_FA3": "fa3-optional" in without},
            "dependencies": str(DATA / "deps"),
            "jobs": 1,
            "memory_gib": 6,
            "disk_gib": 1,
            "failures": CATALOG["failures"],
            "progress_file": str(self.folder / "progress.json"),
        }
        return self._run(kernel_wheel_build, **wanted | more)
