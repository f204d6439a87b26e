"""Baselines on the controller: merged, stored, found again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import baseline_file
import pytest
from baselines import gpu_hardware, stored_baselines

ROOT = Path(__file__).parents[2]
Run = Callable[..., dict[str, Any]]


def a_pass(*logprobs: float, speed: float | None = None, **key: Any) -> dict[str, Any]:
    """The document of a pass as the module llm_gate returns it."""
    # Made by the package under Ansible's name, as the module under test has it.
    from ansible.module_utils.llm_gate import baseline  # noqa: PLC0415 - needs conftest's path

    count = len(logprobs)
    segment = baseline.Segment(
        "english", "text", tuple(range(count + 1)), 1, logprobs, (4,) * count, (2.0,) * count
    )
    hardware = baseline.Hardware("RTX PRO 6000", 8, 400.0)
    known = None if speed is None else baseline.Speed(hardware, 8, speed, speed, None, None, {}, None)
    made = baseline.Pass(
        "2031-04-02T06:00:00Z",
        "run",
        {**dict.fromkeys(baseline.KEY), "model": "tiny-qwen3", **key},
        {"engine": "sglang"},
        (segment,),
        (baseline.Text("Say OK", 8, "OK"),),
        known,
    )
    document: dict[str, Any] = json.loads(baseline.to_text(made))
    return document


@pytest.fixture
def keep(run_module: Run, tmp_path: Path) -> Run:
    """Run the module on passes."""

    def run(*passes: dict[str, Any], check: bool = False) -> dict[str, Any]:
        return run_module(
            baseline_file, check=check, folder=str(tmp_path / "new" / "baselines"), passes=list(passes)
        )

    return run


def test_a_baseline_is_stored_once_and_stays_while_nothing_but_noise_differs(
    keep: Run, tmp_path: Path
) -> None:
    first = keep(a_pass(-1.0, -2.0), a_pass(-1.0, -2.01))
    path = Path(first["path"])
    assert (first["changed"], first["differences"]) == (True, ["a new baseline"])
    assert path.parent == tmp_path / "new" / "baselines"
    assert path.name.startswith("tiny-qwen3-")
    assert first["diff"]["before"] == ""
    assert first["diff"]["after"] == path.read_text()
    assert first["noise"]["largest"] == pytest.approx(0.01)
    before = path.read_bytes()
    again = keep(a_pass(-1.0, -2.01), a_pass(-1.0, -2.01))
    assert (again["changed"], again["differences"]) == (False, [])
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_difference_beyond_noise_is_told_and_stored(keep: Run) -> None:
    path = Path(keep(a_pass(-1.0, -2.0), a_pass(-1.0, -2.0))["path"])
    checked = keep(a_pass(-1.0, -4.0), a_pass(-1.0, -4.0), check=True)
    assert checked["changed"]
    assert any("largest difference 2.000 nats in english" in line for line in checked["differences"])
    assert "-2.0]" in path.read_text()
    assert "-4.0]" in checked["diff"]["after"]
    assert keep(a_pass(-1.0, -4.0), a_pass(-1.0, -4.0))["changed"]
    assert "-4.0]" in path.read_text()


def test_speed_on_hardware_that_is_new_is_stored(keep: Run) -> None:
    keep(a_pass(-1.0), a_pass(-1.0))
    told = keep(a_pass(-1.0, speed=60.0), a_pass(-1.0, speed=62.0))
    assert told["differences"] == ["speed on 8 x RTX PRO 6000 at 400 W: 61.0 tokens/s, not known before"]
    assert not keep(a_pass(-1.0, speed=60.0), a_pass(-1.0, speed=60.0))["changed"]
    slower = keep(a_pass(-1.0, speed=50.0), a_pass(-1.0, speed=50.0))
    assert slower["differences"] == ["speed on 8 x RTX PRO 6000 at 400 W: 50.0 tokens/s, before 61.0"]


def test_check_mode_writes_nothing(keep: Run, tmp_path: Path) -> None:
    assert keep(a_pass(-1.0), a_pass(-1.0), check=True)["changed"]
    assert list(tmp_path.iterdir()) == []


def test_another_key_is_another_file(keep: Run) -> None:
    one = keep(a_pass(-1.0), a_pass(-1.0))["path"]
    other = keep(a_pass(-1.0, kv_cache_dtype="fp8_e4m3"), a_pass(-1.0, kv_cache_dtype="fp8_e4m3"))["path"]
    assert one != other


def test_what_cannot_be_merged_or_read_fails_with_its_name(keep: Run) -> None:
    assert "at least two, not none" in keep()["msg"]
    assert "at least 2 passes, not 1" in keep(a_pass(-1.0))["msg"]
    assert "pass 2 is not of the same deployment" in keep(a_pass(-1.0), a_pass(-1.0, revision="b"))["msg"]
    assert "baseline pass 2: schema_version must be 1" in keep(a_pass(-1.0), {"x": 1})["msg"]
    path = Path(keep(a_pass(-1.0), a_pass(-1.0))["path"])
    path.write_text(path.read_text()[:-40])
    failed = keep(a_pass(-1.0), a_pass(-1.0))
    assert failed["failed"]
    assert f"baseline {path}: is not whole JSON" in failed["msg"]


def test_the_module_needs_no_requests() -> None:
    code = "import sys; sys.modules['requests'] = None; import llm_gate.merge"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / "module_utils")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def stored(model: str) -> str:
    return json.dumps({"schema_version": 1, "key": {"model": model}})


def test_the_baselines_of_the_served_model_are_found() -> None:
    texts = {"/c/baselines/b.json": stored("x"), "/c/baselines/a.json": stored("x"), "/c/z.json": stored("y")}
    found = stored_baselines(texts, "x")
    assert [entry["path"] for entry in found] == ["catalog/baselines/a.json", "catalog/baselines/b.json"]
    assert found[0]["document"]["key"] == {"model": "x"}
    assert stored_baselines({}, "x") == []


@pytest.mark.parametrize("text", ["", '{"key": ', "[]", "{}", '{"key": {"model": 7}}'])
def test_a_file_that_is_no_baseline_is_never_taken_for_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"catalog/baselines/b\.json .*baseline\.yml"):
        stored_baselines({"/c/a.json": stored("x"), "/c/b.json": text}, "x")


@pytest.mark.parametrize(
    ("lines", "hardware"),
    [
        ([], None),
        (["RTX PRO 6000, 400.00"] * 8, {"gpu": "RTX PRO 6000", "count": 8, "power_cap_w": 400.0}),
        (["GB10, [N/A]", ""], {"gpu": "GB10", "count": 1, "power_cap_w": None}),
        (["A, B 100, 300.00"], {"gpu": "A, B 100", "count": 1, "power_cap_w": 300.0}),
        (["RTX PRO 6000, 400.00", "RTX PRO 6000, 600.00"], None),
        (["RTX PRO 6000, 400.00", "RTX 5090, 400.00"], None),
        (["Failed to initialize NVML"], None),
        ([", 400"], None),
    ],
)
def test_what_the_gpus_say_of_themselves(lines: list[str], hardware: dict[str, Any] | None) -> None:
    assert gpu_hardware(lines) == hardware
