"""The kernel wheels on PyPI: sgl-kernel 0.3.21 has FP4 for SM120, sglang-kernel 0.4.10 has none."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kernel
import kernel_wheel_facts
import pytest
from test_kernel_wheel import ORIGINS, WANTED
from tiny_kernel import CACHE, DATA, installed

RunModule = Callable[..., dict[str, Any]]
WHEELS = {  # package, version and SHA-256 on PyPI; 536 MB and 373 MB
    "sgl-kernel": ("0.3.21", "57dfb3a2a3cd759f499c32e2bad5f6489b7c58f7f9a84ee00c53ec92d303aaab"),
    "sglang-kernel": ("0.4.10", "043cbe4a10e7887ea1b25599b729ff1ce115a0d5217b2c177aff9f9ae5327724"),
}
DEADLINE = 1700

pytestmark = [pytest.mark.full, pytest.mark.timeout(2400)]


def fetched(name: str, folder: Path) -> Path:
    """The wheel, fetched by hash into the cache once, as a link in the folder; a skip without PyPI."""
    version, sha256 = WHEELS[name]
    wheels = f"{name.replace('-', '_')}-{version}-*.whl"
    if not list(CACHE.glob(wheels)):
        CACHE.mkdir(parents=True, exist_ok=True)
        wanted = folder / "wanted.txt"
        wanted.write_text(f"{name}=={version} --hash=sha256:{sha256}\n")
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        argv += ["--no-cache-dir", "--only-binary", ":all:", "--dest", str(CACHE), "-r", str(wanted)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"{name} {version} could not be fetched: {done.stderr.strip()[-300:]}")
    (wheel,) = CACHE.glob(wheels)
    os.link(wheel, folder / wheel.name)  # its facts are kept beside the link, so no earlier run answers
    return folder / wheel.name


@pytest.fixture
def beside_the_cache() -> Iterator[Path]:
    """A folder on the cache's own disk: a link to a wheel costs nothing there."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        yield Path(name)


def look(run_module: RunModule, wheel: Path) -> dict[str, Any]:
    result = run_module(
        kernel_wheel_facts,
        wheel=str(wheel),
        tools=[str(installed(DATA / "tools.txt"))],
        count=True,
        deadline=DEADLINE,
        scratch=str(wheel.parent),
    )
    print(f"{wheel.name}: {result['seconds']} s, {result['facts']['fp4']}")
    facts: dict[str, Any] = result["facts"]
    assert facts["sha256"] in {sha256 for _version, sha256 in WHEELS.values()}
    return facts


def test_sgl_kernel_0_3_21_has_fp4_for_sm120(beside_the_cache: Path, run_module: RunModule) -> None:
    facts = look(run_module, fetched("sgl-kernel", beside_the_cache))
    by_object = {item["files"][0]: item["fp4_instructions"] for item in facts["objects"]}
    assert by_object["sgl_kernel/sm100/common_ops.abi3.so"] == {"sm_120a": 512}
    assert facts["fp4"]["instruction_names"] == ["OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X"]
    assert facts["fp4"]["whole"]
    assert {"cutlass_scaled_fp4_mm_sm100a_sm120a", "scaled_fp4_quant_sm100a_sm120a"} <= set(
        facts["fp4"]["symbols"]
    )
    assert facts["marker"]["seen"] == "no"
    assert (facts["cuda"], facts["requires_torch"]) == (["12"], None)
    assert kernel.kernel_refusals(facts, WANTED | {"cuda": "12.8", "torch": "2.9.1"}) == []
    (refusal,) = kernel.kernel_refusals(facts, WANTED)
    assert "libcudart.so.12" in refusal


def test_sglang_kernel_0_4_10_has_no_fp4(beside_the_cache: Path, run_module: RunModule) -> None:
    facts = look(run_module, fetched("sglang-kernel", beside_the_cache))
    assert facts["fp4"]["instructions_seen"] == "no"
    assert "sm_120a" in facts["archs"]
    assert (facts["cuda"], facts["requires_torch"]) == (["13"], "==2.14.1")
    wanted = WANTED | {"torch": "2.14.1"}
    (refusal,) = kernel.kernel_refusals(facts, wanted)
    assert "has no FP4 tensor-core instruction" in refusal
    assert kernel.kernel_refusals(facts, wanted | {"fp4": False}) == []
    assert "FlashInfer or Marlin" in kernel.kernel_fp4(facts, wanted, ORIGINS)
