"""What the detection bench keeps, skips and prints."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import detection
import pytest
from break_model import expert_variants, variants
from detection import (
    GATE,
    GATE_BASELINE,
    GOOD,
    HEALTH,
    HEALTH_GENERATE,
    MOE,
    OTHER,
    SMOKE,
    Bench,
    Cell,
    CleanRun,
    Gate,
    GateRun,
    Results,
    all_rows,
    read_report,
    select,
    smaller,
    table,
)
from engine import BenchError, Engine, Launch, running
from llm_gate.cli import parser

ENGINE = "SGLang 0.5.9"
CELL = Cell("weights:nan", GATE, "fail", ("smoke", "nan_scan"), "answer: !!!!", 3.2, ENGINE, "abc")
CLEAN = CleanRun(0, "alone", "pass", (), "", 11.0, 8.0, ENGINE, "abc")
REPORT = {
    "verdict": "fail",
    "probes": [
        {
            "id": "smoke",
            "verdict": "pass",
            "evidence": [{"check": "answer", "verdict": "pass", "text": "OK"}],
        },
        {
            "id": "lengths",
            "verdict": "fail",
            "evidence": [{"check": "cache", "verdict": "fail", "text": "off"}],
        },
        {"id": "protocol", "verdict": "error", "evidence": []},
        {"id": "golden", "verdict": "warn", "evidence": []},
    ],
}


def test_every_weight_fault_of_the_lab_has_a_row() -> None:
    rows = {row.weights for row in all_rows(other_model=False)}
    # Numerically the same as kv_small.
    assert set(variants()) - {"kv_small_1024"} <= rows
    assert set(expert_variants()) <= rows
    names = [row.name for row in all_rows(other_model=True)]
    assert len(names) == len(set(names))
    assert "other-model" in names


def test_rows_are_selected_by_pattern() -> None:
    rows = all_rows(other_model=False)
    assert [row.name for row in select(rows, ["weights:k_*", "sound"])] == [
        "sound",
        "weights:k_x0.5",
        "weights:k_x0.25",
    ]
    assert select(rows, []) == rows
    with pytest.raises(BenchError, match="--rows weight:nan: no row is named so"):
        select(rows, ["weight:nan"])


def test_a_report_names_the_probes_that_block() -> None:
    run = read_report(REPORT, 5.0)
    assert run.caught_by == ("lengths", "protocol!")
    assert run.reason == "cache: off"
    assert run.only("smoke") == GateRun("pass", {}, "", 5.0)
    assert run.only("lengths").caught_by == ("lengths",)


def test_a_verdict_that_blocks_without_a_probe_is_caught() -> None:
    assert GateRun("error", {}, "", 1.0).caught_by == ("gate!",)
    assert GateRun("warn", {}, "", 1.0).caught_by == ()


def test_results_survive_and_the_last_line_wins(tmp_path: Path) -> None:
    path = tmp_path / "results" / "cells.jsonl"
    results = Results.read(path)
    newer = replace(CELL, verdict="pass", caught_by=())
    for entry in (CELL, CLEAN, newer):
        results.add(entry)
    again = Results.read(path)
    assert again.cells == {(CELL.row, GATE, ENGINE): newer}
    assert again.clean == {(0, ENGINE): CLEAN}


def test_a_torn_last_line_is_dropped_and_the_file_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    Results(path).add(CELL)
    with path.open("a") as file:
        file.write('{"kind": "cell", "row": "we')
    results = Results.read(path)
    results.add(CLEAN)
    assert len(path.read_text().splitlines()) == 2
    assert Results.read(path).clean


@pytest.mark.parametrize("line", ["no JSON", "[]", '{"kind": "cell", "row": "x"}', '{"row": "x"}'])
def test_a_line_that_is_no_result_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "cells.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(BenchError, match=r"cells\.jsonl, line 1: is no result"):
        Results.read(path)


def test_the_table_tells_caught_missed_and_unmeasured(tmp_path: Path) -> None:
    rows = select(all_rows(other_model=False), ["weights:nan", "proxy:no_done", "sound"])
    results = Results(tmp_path / "cells.jsonl")
    for entry in (
        CELL,
        replace(CELL, column=HEALTH, verdict="pass", caught_by=()),
        replace(CELL, row="proxy:no_done", verdict="error", caught_by=("protocol!",)),
        replace(CELL, row="sound", verdict="warn", caught_by=()),
        replace(CELL, row="sound", engine="SGLang 0.5.23", caught_by=("other",)),
    ):
        results.add(entry)
    lines = table(rows, results, ENGINE).splitlines()
    assert lines[2] == "| sound: nothing is wrong, through the proxy | ? | ? | ? | warn | ? |"
    assert lines[3] == "| weights:nan: nan | - | ? | ? | smoke, nan\\_scan | ? |"
    assert lines[4].endswith(" | ? | ? | ? | protocol! | ? |")
    assert "| weights | 0 of 1 | 0 of 0 | 0 of 0 | 1 of 1 | 0 of 0 |" in lines
    assert "| all faults | 0 of 1 | 0 of 0 | 0 of 0 | 2 of 2 | 0 of 0 |" in lines
    assert "| sound (must pass) | 0 of 0 | 0 of 0 | 0 of 0 | 0 of 1 | 0 of 0 |" in lines
    assert lines[-1] == "No clean runs were made."


def test_what_the_gate_let_through_is_told_with_the_reason(tmp_path: Path) -> None:
    rows = all_rows(other_model=False)
    results = Results(tmp_path / "cells.jsonl")
    through = replace(CELL, verdict="pass", caught_by=())
    for entry in (
        replace(through, row="sound"),
        replace(through, row="proxy:late_round"),
        replace(through, row="proxy:late_round", column=GATE_BASELINE),
        replace(through, row="proxy:no_done", column=HEALTH),
        replace(through, row="weights:nan"),
    ):
        results.add(entry)
    assert detection.missed(rows, results, ENGINE) == [
        "- weights:nan passed gate, no baseline: no reason is known.",
        "- proxy:late\\_round passed gate, no baseline and gate, baseline: it takes a conversation of three "
        "rounds and more.",
        "",
    ]


def test_cells_of_different_gates_are_told(tmp_path: Path) -> None:
    rows = all_rows(other_model=False)
    results = Results(tmp_path / "cells.jsonl")
    results.add(CELL)
    assert "versions of the gate" not in table(rows, results, ENGINE)
    results.add(replace(CELL, column=HEALTH, gate="def"))
    assert "come from 2 versions of the gate" in table(rows, results, ENGINE)


def test_false_alarms_are_counted_and_named(tmp_path: Path) -> None:
    results = Results(tmp_path / "cells.jsonl")
    for number, (verdict, how) in enumerate([("pass", "alone"), ("warn", "beside load"), ("fail", "alone")]):
        caught = ("lengths",) if verdict == "fail" else ()
        run = replace(CLEAN, number=number, verdict=verdict, condition=how, caught_by=caught, reason=verdict)
        results.add(run)
    lines = detection.clean_summary(results, ENGINE)
    assert lines[0] == ("False alarms: 1 in 3 clean runs (2 alone, 1 beside load); 1 ended with a warning.")
    assert lines[1] == "- run 2 (alone): lengths: fail"
    assert "took 11.0 s" in lines[2] and "busy for 8.0 s" in lines[2]


# --- measuring, with a server that is only said to run -------------------------------------------


class NoEngine:
    """Stands for a server; `lives_for` rows at a time."""

    url = "http://127.0.0.1:9"

    def __init__(self, loaded: list[str], lives_for: int) -> None:
        self.loaded = loaded
        self.lives_for = lives_for

    def load(self, weights: Path) -> None:
        self.loaded.append(weights.name)

    def lives(self) -> bool:
        self.lives_for -= 1
        return self.lives_for >= 0


class NoGate(Gate):
    """Stands for the gate; says that everything is well."""

    def run(self, url: str, with_baseline: bool = False) -> GateRun:
        return GateRun("pass", {}, "", 1.0)

    def digest(self) -> str:
        return "abc"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench whose servers only take note."""
    starts: list[Mapping[str, Any]] = []
    bases: list[str] = []
    loaded: list[str] = []

    @contextmanager
    def no_server(launch: Launch, weights: Path) -> Iterator[NoEngine]:
        starts.append(launch.options)
        bases.append(weights.name)
        yield NoEngine(loaded, lives_for=100)

    monkeypatch.setattr(detection, "running", no_server)
    monkeypatch.setattr(Bench, "model", lambda self, name: Path(name))
    monkeypatch.setattr(Bench, "weights", lambda self, row: Path(row.weights))
    made = Bench(
        gate=NoGate("full", Path("profile.yml"), 60.0),
        launch=launch_of(tmp_path, 1),
        good=Path("good"),
        other=None,
        folder=tmp_path,
        proxy_port=0,
        seed=1,
        results=Results(tmp_path / "cells.jsonl"),
        columns=(SMOKE, GATE),
        say=lambda line: None,
        label=ENGINE,
    )
    made.starts, made.loaded, made.bases = starts, loaded, bases  # type: ignore[attr-defined]
    return made


def launch_of(folder: Path, port: int, python: Path = Path(sys.executable)) -> Launch:
    return Launch(python, port, "tiny", {"device": "cpu"}, {}, folder / "served", folder / "server.log")


def test_a_rerun_skips_what_is_there(bench: Bench) -> None:
    rows = select(all_rows(other_model=False), ["weights:nan", "weights:k_*"])
    bench.results.add(CELL)
    bench.results.add(replace(CELL, column=SMOKE))
    bench.measure(rows)
    assert bench.loaded == ["k_x0.5", "good", "k_x0.25", "good"]  # type: ignore[attr-defined]
    assert len(bench.results.cells) == 6
    bench.measure(rows)
    assert len(bench.starts) == 1  # type: ignore[attr-defined]


def test_rows_of_one_launch_share_a_server(bench: Bench) -> None:
    bench.measure(select(all_rows(other_model=False), ["bf16-kv:*", "fp8-kv:*"]))
    assert bench.starts == [  # type: ignore[attr-defined]
        {"device": "cpu"},
        {"device": "cpu", "kv_cache_dtype": "fp8_e4m3"},
    ]


def test_the_wrong_model_has_a_server_of_its_own_and_its_own_tokenizer(bench: Bench) -> None:
    bench.measure(select(all_rows(other_model=True), ["other-model", "sound", "weights:nan"]))
    assert bench.bases == ["good", "other"]  # type: ignore[attr-defined]
    assert bench.loaded == ["nan", "good"]  # type: ignore[attr-defined]
    assert "other-model" not in [row.name for row in all_rows(other_model=False)]


def test_a_dead_server_is_started_anew_and_no_row_is_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = []

    @contextmanager
    def short_lived(launch: Launch, weights: Path) -> Iterator[NoEngine]:
        starts.append(1)
        yield NoEngine([], lives_for=1)

    monkeypatch.setattr(detection, "running", short_lived)
    bench.measure(select(all_rows(other_model=False), ["weights:*"]))
    assert len(bench.results.cells) == 26
    assert len(starts) == 13


def test_the_mixture_of_experts_has_servers_of_its_own(bench: Bench) -> None:
    bench.measure(select(all_rows(other_model=False), ["moe:*", "sound"]))
    assert bench.bases == ["good", "moe", "moe"]  # type: ignore[attr-defined]
    assert bench.starts == [  # type: ignore[attr-defined]
        {"device": "cpu"},
        {"device": "cpu"},
        {"device": "cpu", "json_model_override_args": '{"norm_topk_prob": false}'},
    ]
    assert "moe" in bench.loaded and "good" not in bench.loaded  # type: ignore[attr-defined]


def test_without_its_baseline_the_mixture_of_experts_is_not_held_against_anothers(bench: Bench) -> None:
    bench.gate = replace(bench.gate, baseline=bench.folder / "base.json")
    bench.columns = (GATE, GATE_BASELINE)
    rows = select(all_rows(other_model=False), ["moe:sound", "sound"])
    bench.measure(rows)
    assert ("sound", GATE_BASELINE, ENGINE) in bench.results.cells
    assert ("moe:sound", GATE_BASELINE, ENGINE) not in bench.results.cells
    (bench.folder / "base-moe.json").touch()
    bench.measure(rows)
    assert ("moe:sound", GATE_BASELINE, ENGINE) in bench.results.cells


def test_a_baseline_is_recorded_for_each_model_that_has_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.gate = replace(bench.gate, baseline=bench.folder / "base.json")
    (bench.folder / "base.json").touch()
    merged: list[str] = []
    monkeypatch.setattr(detection, "record_pass", lambda *arguments: None)
    monkeypatch.setattr(detection, "merge_passes", lambda passes, baseline: merged.append(baseline.name))
    bench.record([GOOD, MOE])
    assert merged == ["base-moe.json"]
    assert bench.bases == ["moe", "moe"]  # type: ignore[attr-defined]


def test_the_smaller_set_has_the_faults_of_the_model_alone() -> None:
    names = {row.name for row in smaller(all_rows(other_model=False))}
    assert {"sound", "weights:nan", "slight:scale_x2", "moe:sound", "moe:shares"} <= names
    assert not any(name.startswith(("proxy:", "fp8-kv:", "bf16-kv:")) for name in names)


def test_the_selected_cells_are_measured_again(bench: Bench) -> None:
    bench.results.add(CELL)
    row = select(all_rows(other_model=False), ["weights:nan"])
    detection.forget(bench.results, row, (GATE,), ENGINE)
    bench.measure(row)
    assert bench.results.cells["weights:nan", GATE, ENGINE].verdict == "pass"


def test_clean_runs_go_on_where_they_stopped(bench: Bench) -> None:
    bench.measure_clean(4)
    bench.measure_clean(12)
    assert [run.number for run in bench.results.clean.values()] == list(range(12))
    conditions = [run.condition for run in bench.results.clean.values()]
    assert conditions.count("after a start") == 3
    assert "beside load" in conditions and "alone" in conditions
    assert [start["random_seed"] for start in bench.starts] == [1000, 1000, 1001]  # type: ignore[attr-defined]


# --- the server ----------------------------------------------------------------------------------


def checkpoint(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def test_a_missing_venv_a_busy_port_and_a_wrong_folder_are_named(tmp_path: Path) -> None:
    weights = checkpoint(tmp_path / "weights")
    with (
        pytest.raises(BenchError, match=r"nowhere does not exist"),
        running(launch_of(tmp_path, 1, Path("/nowhere")), weights),
    ):
        pass
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(BenchError, match=f"port {port}: .* in use"),
            running(launch_of(tmp_path, port), weights),
        ):
            pass
    with (
        pytest.raises(BenchError, match="is no checkpoint"),
        running(launch_of(tmp_path, free_port()), tmp_path),
    ):
        pass


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
        return port


def test_a_server_that_ends_at_once_is_told_with_its_log(tmp_path: Path) -> None:
    # This Python has no SGLang.
    with (
        pytest.raises(BenchError, match=r"ended with status 1: see .*server\.log"),
        running(launch_of(tmp_path, free_port()), checkpoint(tmp_path / "weights")),
    ):
        pass


def test_the_command_line_is_the_profiles_with_a_stable_name(tmp_path: Path) -> None:
    command = launch_of(tmp_path, 31000).command
    assert command[1:3] == ["-m", "sglang.launch_server"]
    assert command[3:] == [
        *("--device", "cpu", "--model-path", "tiny", "--served-model-name", "tiny"),
        *("--host", "127.0.0.1", "--port", "31000"),
    ]


def test_stopping_ends_the_whole_process_group(tmp_path: Path) -> None:
    code = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    Engine(launch_of(tmp_path, 1), process).stop()
    end = time.monotonic() + 5
    while time.monotonic() < end and is_running(child):
        time.sleep(0.01)
    assert not is_running(child)
    assert process.returncode == -signal.SIGKILL
    process.stdout.close()


def is_running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


# --- the command line ----------------------------------------------------------------------------


def test_the_rows_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert detection.main(["--list", "--rows", "fp8-kv:*"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "fp8-kv:kv_small",
        "fp8-kv:kv_big",
    ]


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["--only", "golden"], 64, "invalid choice: 'golden'"),
        (["--rows", "nothing"], 1, "--rows nothing: no row is named so"),
        (["--model-profile", "/nowhere.yml"], 1, "--model-profile /nowhere.yml: FileNotFoundError"),
        (["--engine-python", "/nowhere"], 1, "/nowhere does not exist"),
        (["--engine-python", sys.executable], 1, "has no SGLang"),
    ],
)
def test_mistakes_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], status: int, told: str
) -> None:
    common = ["--work", str(tmp_path), "--results", str(tmp_path / "r"), "--port", str(free_port())]
    try:
        got = detection.main([*common, *arguments])
    except SystemExit as stop:
        got = int(stop.code or 0)
    assert got == status
    assert told in capsys.readouterr().err


def test_the_baseline_column_needs_a_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "sglang_version", lambda python: "0.5.9")
    options = detection.parser().parse_args(["--work", str(tmp_path), "--results", str(tmp_path / "r")])
    assert detection.make_bench(options).columns == (HEALTH, HEALTH_GENERATE, SMOKE, GATE)
    options.record_baseline = True
    made = detection.make_bench(options)
    assert made.columns[-1] == GATE_BASELINE
    assert made.gate.baseline == tmp_path / "baseline-0.5.9.json"
    assert made.baseline_of(GOOD) == made.baseline_of(OTHER) == made.gate.baseline
    assert made.baseline_of(MOE) == tmp_path / "baseline-0.5.9-moe.json"
    assert made.launch.options["grammar_backend"] == "llguidance"
    assert made.label == ENGINE


def test_the_server_is_started_as_its_version_wants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "sglang_version", lambda python: "0.5.23")
    options = detection.parser().parse_args(["--work", str(tmp_path), "--results", str(tmp_path / "r")])
    made = detection.make_bench(options)
    assert made.launch.options["grammar_backend"] == "xgrammar"
    assert made.label == "SGLang 0.5.23"


def test_the_gates_command_line_is_the_documented_one(tmp_path: Path) -> None:
    gate = Gate("full", Path("profile.yml"), 60.0, Path("base.json"))
    command = gate.command("http://127.0.0.1:1", tmp_path, with_baseline=True)
    options = parser().parse_args(command[3:])
    assert (options.url, options.profile, options.deadline) == ("http://127.0.0.1:1", "full", 60.0)
    assert (options.baseline, options.out) == ("base.json", str(tmp_path))


def test_the_gate_is_run_for_real_and_says_who_caught_what() -> None:
    """Nobody listens there: the smoke probe errs, and that blocks."""
    profile = detection.ROOT / "catalog" / "models" / "tiny-qwen3.yml"
    run = Gate("quick", profile, 5.0).run(f"http://127.0.0.1:{free_port()}")
    assert run.verdict == "error"
    assert run.caught_by == ("smoke!",)
    with pytest.raises(BenchError, match="the gate did not run"):
        Gate("no-profile", profile, 5.0).run("http://127.0.0.1:1")
