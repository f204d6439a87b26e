"""lock.yml and kit.yml as they are typed, against indexes on this machine that hold stand-ins for packages.

They prove the way from a stack file to a lock and a kit, not what the real indexes hold.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from stacks import read_lock
from tiny_wheels import Index, make_wheel, serving

ROOT = Path(__file__).parents[2]
STACK = """---
name: demo
title: Stand-ins
reason: for the tests
sources: [https://example.org]
python: ">=3.10,<3.15"
cuda: "13.0"
torch: 2.12.0.dev20260307+cu130
flashinfer:
  version: 0.7.2
  jit_cache: cu130
sglang:
  version: 0.5.23
kernel:
  wheel: {{name: sglang-kernel, version: 0.4.10, torch: 2.12.0, cuda: "13"}}
indexes:
  pytorch: {pytorch}
  flashinfer: {flashinfer}
from_index:
  torch: pytorch
  flashinfer-cubin: flashinfer
  flashinfer-jit-cache: flashinfer
requirements: []
without_dependencies: [uv==0.13.9]
imports: [torch]
"""


class Builder:
    """A controller with a catalogue and a wheelhouse of its own, and the three indexes that it reaches."""

    def __init__(self, folder: Path, pypi: Index, pytorch: Index, flashinfer: Index) -> None:
        self.catalog, self.house = folder / "catalog", folder / "house"
        self.pypi, self.pytorch, self.flashinfer = pypi, pytorch, flashinfer
        shutil.copytree(ROOT / "catalog", self.catalog, ignore=shutil.ignore_patterns("*.lock"))
        self.stack = self.catalog / "stacks/demo.yml"
        self.stack.write_text(STACK.format(pytorch=pytorch.url, flashinfer=flashinfer.url))
        self.lock = self.catalog / "stacks/demo.cp311-linux_x86_64.lock"
        self._environment = {
            key: value for key, value in os.environ.items() if not key.upper().startswith("PIP_")
        } | {
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": pypi.url,
            "PIP_RETRIES": "0",
        }

    def run(self, playbook: str, *variables: str) -> subprocess.CompletedProcess[str]:
        argv = [str(Path(sys.executable).with_name("ansible-playbook")), str(ROOT / playbook)]
        for variable in (f"plan_catalog={self.catalog}", f"wheelhouse_path={self.house}", *variables):
            argv += ["-e", variable]
        return subprocess.run(argv, env=self._environment, capture_output=True, text=True, check=False)

    def make_lock(self) -> subprocess.CompletedProcess[str]:
        return self.run("lock.yml", "stack=demo", "lock_abi=cp311")


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[Builder]:
    with (
        serving(tmp_path / "pypi") as pypi,
        serving(tmp_path / "pytorch", "/whl/nightly/cu130", "/whl/nightly/cu130") as pytorch,
        serving(tmp_path / "flashinfer", "/whl/cu130", "/releases/download/v0.7.2") as flashinfer,
    ):
        for name, version, requires in (
            ("sglang", "0.5.23", "flashinfer_python==0.7.2"),
            ("sglang_kernel", "0.4.10", "torch==2.12.0"),
            ("flashinfer_python", "0.7.2", ""),
            ("uv", "0.13.9", ""),
        ):
            make_wheel(pypi.folder, name, version, requires=requires)
        make_wheel(pytorch.folder, "torch", "2.12.0.dev20260307+cu130")
        make_wheel(flashinfer.folder, "flashinfer_cubin", "0.7.2")
        make_wheel(flashinfer.folder, "flashinfer_jit_cache", "0.7.2+cu130")
        yield Builder(tmp_path, pypi, pytorch, flashinfer)


def said(done: subprocess.CompletedProcess[str]) -> str:
    """What a failed run said, on one line."""
    assert done.returncode != 0
    return " ".join(done.stdout.split())


def test_a_stack_is_locked_from_its_indexes_and_its_kit_goes_to_a_builder_without_network(
    builder: Builder, tmp_path: Path
) -> None:
    assert builder.make_lock().returncode == 0
    lock = read_lock(builder.lock.read_text())
    assert {wheel["name"]: (wheel["version"], wheel["index"]) for wheel in lock["wheels"]} == {
        "torch": ("2.12.0.dev20260307+cu130", "pytorch"),
        "flashinfer-python": ("0.7.2", None),
        "flashinfer-cubin": ("0.7.2", "flashinfer"),
        "flashinfer-jit-cache": ("0.7.2+cu130", "flashinfer"),
        "sglang": ("0.5.23", None),
        "sglang-kernel": ("0.4.10", None),
        "uv": ("0.13.9", None),
    }
    assert all((builder.house / wheel["file"]).is_file() for wheel in lock["wheels"])

    archive = tmp_path / "demo.kit.tar"
    packed = builder.run("kit.yml", "stack=demo", "lock_abi=cp311", f"kit_export={archive}")
    assert packed.returncode == 0, packed.stdout
    before = [len(index.requests) for index in (builder.pypi, builder.pytorch, builder.flashinfer)]
    shutil.rmtree(builder.house)
    unpacked = builder.run("kit.yml", f"kit_import={archive}")
    assert unpacked.returncode == 0, unpacked.stdout
    assert all((builder.house / wheel["file"]).is_file() for wheel in lock["wheels"])
    assert before == [len(index.requests) for index in (builder.pypi, builder.pytorch, builder.flashinfer)]


@pytest.mark.full
def test_a_trio_that_does_not_agree_is_not_locked(builder: Builder) -> None:
    """SGLang takes FlashInfer along in another version than the stack's line for the cubins."""
    text = builder.stack.read_text()
    builder.stack.write_text(
        text.replace("flashinfer:\n  version: 0.7.2\n  jit_cache: cu130\n", "").replace(
            "requirements: []", "requirements:\n  - flashinfer-cubin==0.7.1"
        )
    )
    make_wheel(builder.flashinfer.folder, "flashinfer_cubin", "0.7.1")
    message = said(builder.make_lock())
    line = next(
        number for number, line in enumerate(builder.stack.read_text().splitlines(), 1) if "cubin==" in line
    )
    assert f"catalog/stacks/demo.yml:{line}: flashinfer-cubin is 0.7.1, flashinfer-python is 0.7.2" in message
    assert not builder.lock.exists()


@pytest.mark.full
def test_a_vanished_nightly_is_refused_with_the_line_to_change(builder: Builder) -> None:
    for day in (309, 312):
        make_wheel(builder.pytorch.folder, "torch", f"2.12.0.dev20260{day}+cu130")
    (builder.pytorch.folder / "torch-2.12.0.dev20260307+cu130-py3-none-any.whl").unlink()
    message = said(builder.make_lock())
    assert "Nearest: 2.12.0.dev20260309+cu130, 2.12.0.dev20260312+cu130." in message
    assert "Change catalog/stacks/demo.yml:8 to" in message
    assert "torch: 2.12.0.dev20260309+cu130" in message
    assert not builder.lock.exists()
