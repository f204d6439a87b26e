"""The bench of the kernel's build: what it counts, compiles as a sample, and reckons from that."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import kernel_build as bench
import pytest

PLAIN, PATCHED = bench.PLAIN, bench.PATCHED


def unit(target: str, file: str, archs: str = "") -> dict[str, str]:
    """An entry of compile_commands.json."""
    flags = " ".join(f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs.split())
    command = f"nvcc {flags} -o CMakeFiles/{target}.dir/{file}.o -c {file}"
    return {"command": command, "file": file, "directory": "/build"}


def test_units_are_grouped_by_target_and_architectures() -> None:
    commands = [
        unit("common_ops", "a.cu", "120a 90a"),
        unit("common_ops", "b.cu", "90a 120a"),
        unit("common_ops", "c.cc"),
        unit("flash_ops", "d.cu", "90a"),
    ]
    assert bench.counted(bench.units_of(commands)) == {
        "common_ops: host": 1,
        "common_ops: sm_120a sm_90a": 2,
        "flash_ops: sm_90a": 1,
    }


@pytest.mark.parametrize(
    ("each", "names"),
    [
        pytest.param(1, ["3.cu"], id="the middle one"),
        pytest.param(2, ["2.cu", "4.cu"], id="spread over the sizes"),
        pytest.param(9, ["1.cu", "2.cu", "3.cu", "4.cu", "5.cu"], id="no more than there are"),
    ],
)
def test_a_sample_is_spread_over_the_sizes_of_the_files(tmp_path: Path, each: int, names: list[str]) -> None:
    commands = []
    for size in (5, 3, 1, 4, 2):
        (tmp_path / f"{size}.cu").write_text("x" * size)
        commands.append(unit("ops", str(tmp_path / f"{size}.cu"), "120a"))
    chosen = bench.sampled(bench.units_of(commands), each)
    assert [Path(one.file).name for one in chosen] == names


def sample(group: str, cpu_s: float, ok: bool = True) -> dict[str, Any]:
    return {"group": group, "cpu_s": cpu_s, "ok": ok, "which": PLAIN, "peak_gib": 2.0}


def test_core_hours_are_those_of_the_groups_that_were_sampled() -> None:
    counts = {"a": 36, "b": 2, "c": 5}
    samples = [sample("a", 90), sample("a", 110), sample("b", 1800), sample("c", 9, ok=False)]
    assert bench.core_hours(counts, samples) == (2.0, 3, ["c"])


def test_the_table_says_what_was_left_out_of_the_reckoning() -> None:
    configured = {"cmake": "3.31.6", "which": PLAIN, "patches": {}, "failed": "", "seconds": 3.0}
    known = {
        "1": {"commit": "c" * 40, **configured, "units": {"a": 36, "b": 2}},
        "2": {"commit": "c" * 40, **sample("a", 100)},
        "3": {"commit": "d" * 40, **sample("b", 100)},
    }
    told = bench.table(known, "c" * 40)
    assert "| 3.31.6 | as it is | 38 | 3 | - |" in told
    assert (
        "About 1.0 core-hours, reckoned from 1 compiled units; 2 units of 1 groups were not measured" in told
    )


def test_a_configuration_that_stops_is_told_by_its_sentence() -> None:
    said = 'CMake Error at CMakeLists.txt:3:\n  Policy "CMP0169" is not known\n  here.\n\n\nCall Stack'
    assert bench.reason(said) == 'Policy "CMP0169" is not known here.'


def test_a_unit_is_compiled_and_its_processes_are_measured(tmp_path: Path) -> None:
    (tmp_path / "nvcc").write_text('#!/bin/sh\necho "$@" > "$PWD/told"; : > "$3"\n')  # a stand-in
    (tmp_path / "nvcc").chmod(0o755)
    command = f"{tmp_path}/nvcc -gencode=arch=compute_120a,code=sm_120a -o x.o -c a.cu"
    one = bench.Unit("ops", ("sm_120a",), "a.cu", str(tmp_path), command)
    done = bench.compiled(one, tmp_path / "out.o", "120")
    assert done["ok"], done["said"]
    assert (tmp_path / "out.o").exists()
    told = (tmp_path / "told").read_text()
    assert "-gencode=arch=compute_120,code=sm_120" in told
    assert "120a" not in told


def test_a_unit_that_does_not_compile_says_why(tmp_path: Path) -> None:
    command = "sh -c 'echo nothing good >&2; exit 3' -o x.o"
    done = bench.compiled(bench.Unit("ops", ("host",), "a.cc", str(tmp_path), command), tmp_path / "out.o")
    assert (done["ok"], done["said"]) == (False, "nothing good")


def test_a_path_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = ["--dependencies", str(tmp_path), "--cuda-home", str(tmp_path), "--python", os.devnull]
    results = ["--results", str(tmp_path / "results.jsonl"), "--work", str(tmp_path / "work")]
    assert bench.main(["--source", str(tmp_path / "none"), *paths, *results]) == 1
    assert f"{tmp_path}/none does not exist" in capsys.readouterr().err


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    setup = bench.Setup(tmp_path, "c" * 40, "k", tmp_path, tmp_path, tmp_path, "12.0a", tmp_path, ())
    results = tmp_path / "results.jsonl"
    bench.Bench(setup, results).add("one", {"which": PATCHED})
    again = bench.Bench(setup, results)
    assert again.known["one"]["which"] == PATCHED
    assert json.loads(results.read_text())["commit"] == "c" * 40


def test_checkouts_and_builds_of_another_commit_are_others(tmp_path: Path) -> None:
    places = set()
    for commit in ("c" * 40, "d" * 40):
        setup = bench.Setup(tmp_path, commit, "k", tmp_path, tmp_path, tmp_path, "12.0a", tmp_path, ())
        places.add(bench.Bench(setup, tmp_path / "results.jsonl").build("3.31.6", PATCHED))
    assert len(places) == 2
