#!/usr/bin/env python3
"""Which faults does each check see? Prints one table: a row for each fault, a column for each check.

Every row is a real server with a real fault: broken weights, an FP8 KV cache that cannot hold the numbers,
or a proxy in front that spoils what the server says (faults.py). Every cell is a line in RESULTS, a
JSON-lines file: a run that was broken off goes on where it stopped, and a part can be run at a time.

Exit status: 0 done, 1 the measurement could not go on, 64 usage.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import yaml

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
sys.path[:0] = [str(BENCH), str(ROOT / "tests" / "data" / "tiny_model")]

from break_model import break_checkpoint, expert_variants  # noqa: E402
from engine import (  # noqa: E402
    BenchError,
    Engine,
    Launch,
    ask,
    default_python,
    refuse_busy,
    running,
    sglang_version,
)
from fault_proxy import NO_FAULT, FaultProxy  # noqa: E402
from faults import FAULTS, by_name  # noqa: E402
from make_moe import make_moe  # noqa: E402
from plan import profile_launch  # noqa: E402 - filter_plugins, whose path engine.py has set
from result_file import add_result, read_results  # noqa: E402

USAGE = 64
HEALTH, HEALTH_GENERATE, SMOKE = "/health", "/health_generate", "smoke"
GATE, GATE_BASELINE = "gate", "gate+baseline"
RESULTS = ROOT / "build" / "detection.jsonl"
COLUMNS = (HEALTH, HEALTH_GENERATE, SMOKE, GATE, GATE_BASELINE)
TITLES = ("/health", "/health_generate", "founding five", "gate, no baseline", "gate, baseline")
LOOK_S = 30.0
# The gate ends by its own deadline; this much later it is called stuck.
GRACE_S = 60.0

WEIGHT_FAULTS = (
    *("nan", "inf_norm", "scale_neg", "scale_x1000", "scale_all_x64", "scale_x16", "scale_x8"),
    *("k_x0.5", "k_x0.25", "v_x0.25", "v_x4", "kv_noise_0.8", "kv_noise_1.2"),
)
# Slight enough that no answer shows them: what a baseline is for.
SLIGHT_FAULTS = ("scale_x2", "k_x0.8", "kv_noise_0.2")
KV_FAULTS = ("kv_small", "kv_big")
# The experts of make_moe.py are equal, so that it does not matter which of them the routers choose.
EQUAL = ("router_lost",)
# The models that a server is started with: the one under test, its mixture of experts, and another one.
GOOD, MOE, OTHER = "good", "moe", "other"


@dataclass(frozen=True)
class Row:
    """One server to test: its model, how it is started, the proxy's fault. `sound` rows must pass.

    `weights` names what is broken of the model, nothing where it is empty. `config` is JSON that the server
    takes in place of what config.json says.
    """

    name: str
    kind: str
    summary: str
    model: str = GOOD
    weights: str = ""
    kv_dtype: str = ""
    config: str = ""
    fault: str = "none"
    sound: bool = False
    source: str = ""
    if_missed: str = ""


def all_rows(other_model: bool) -> list[Row]:
    """Every row; the wrong model's only where there is another model."""
    rows = [Row("sound", "sound", "nothing is wrong, through the proxy", sound=True)]
    rows += [Row(f"weights:{name}", "weights", name, weights=name) for name in WEIGHT_FAULTS]
    why = "no answer and no known text shows it: only a baseline knows what it was"
    for name in SLIGHT_FAULTS:
        rows.append(Row(f"slight:{name}", "slight weights", name, weights=name, if_missed=why))
    for name in KV_FAULTS:
        told = f"{name} with a bfloat16 KV cache"
        rows.append(Row(f"bf16-kv:{name}", "sound", told, weights=name, sound=True))
    for name in KV_FAULTS:
        told = f"{name} with an FP8 KV cache"
        rows.append(Row(f"fp8-kv:{name}", "kv cache", told, weights=name, kv_dtype="fp8_e4m3"))
    rows += expert_rows()
    rows += [
        Row(
            name=f"proxy:{fault.name}",
            kind="proxy",
            summary=fault.summary,
            fault=fault.name,
            source=fault.source,
            if_missed=fault.if_missed,
        )
        for fault in FAULTS
    ]
    if other_model:
        rows.append(Row("other-model", "wrong model", "a sound model of the right name", OTHER))
    return rows


def expert_rows() -> list[Row]:
    """The mixture of experts: sound, with routers that are lost but do no harm, and with its faults."""
    few = "a quarter of the tokens takes half of one layer from it: too slight for answers and known texts"
    rows = [Row("moe:sound", "sound", "the mixture of experts", MOE, sound=True)]
    for name, told in expert_variants().items():
        sound = name in EQUAL
        kind = "sound" if sound else "experts"
        why = few if name.startswith("expert_") else ""
        rows.append(Row(f"moe:{name}", kind, told, MOE, name, sound=sound, if_missed=why))
    told = "the shares of a token's experts do not add up to 1"
    rows.append(Row("moe:shares", "experts", told, MOE, config=json.dumps({"norm_topk_prob": False})))
    return rows


def smaller(rows: Sequence[Row]) -> list[Row]:
    """The rows whose fault is the model's. What the proxy does is much the same for each version.

    Those of the FP8 KV cache are left out: on a CPU without AMX, SGLang 0.5.23 refuses one at start ("CPU FP8
    KV cache requires Intel AMX support", kv_cache_configurator.py).
    """
    return [row for row in rows if row.fault == "none" and row.weights not in KV_FAULTS]


def select(rows: Sequence[Row], patterns: Sequence[str]) -> list[Row]:
    """The rows that match a pattern, all without patterns. Raises BenchError if one matches none."""
    for pattern in patterns:
        if not any(fnmatchcase(row.name, pattern) for row in rows):
            raise BenchError(f"--rows {pattern}: no row is named so; --list shows them")
    return [row for row in rows if not patterns or any(fnmatchcase(row.name, one) for one in patterns)]


# --- results -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """What one check said of one row. `caught_by` names the probes that block: `name` failed, `name!` erred.

    `engine` and `gate` are the versions measured: SGLang's, and a hash of the gate's files and profile.
    """

    row: str
    column: str
    verdict: str
    caught_by: tuple[str, ...]
    reason: str
    seconds: float
    engine: str
    gate: str

    @property
    def caught(self) -> bool:
        return bool(self.caught_by)


@dataclass(frozen=True)
class CleanRun:
    """One run of the gate against a sound server. `busy_s` is how long the server worked for it."""

    number: int
    condition: str
    verdict: str
    caught_by: tuple[str, ...]
    reason: str
    seconds: float
    busy_s: float
    engine: str
    gate: str


@dataclass
class Results:
    """The cells and clean runs so far, kept in a file of JSON lines. A later line replaces an earlier one."""

    path: Path
    cells: dict[tuple[str, str, str], Cell] = field(default_factory=dict)
    clean: dict[tuple[int, str], CleanRun] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Results:
        """What is there. A last line that was torn by a crash is dropped; any other is a BenchError."""
        results = cls(path)

        def keep(entry: Any) -> None:
            kind = entry.pop("kind")
            entry["caught_by"] = tuple(entry["caught_by"])
            results._keep(Cell(**entry) if kind == "cell" else CleanRun(**entry))

        read_results(path, keep)
        return results

    def add(self, entry: Cell | CleanRun) -> None:
        """Keep a result, on disk at once."""
        self._keep(entry)
        kind = "cell" if isinstance(entry, Cell) else "clean"
        add_result(self.path, {"kind": kind, **asdict(entry)})

    def _keep(self, entry: Cell | CleanRun) -> None:
        if isinstance(entry, Cell):
            self.cells[entry.row, entry.column, entry.engine] = entry
        else:
            self.clean[entry.number, entry.engine] = entry

    def missing(self, row: Row, columns: Iterable[str], engine: str) -> list[str]:
        """The columns of a row that have no cell yet."""
        return [column for column in columns if (row.name, column, engine) not in self.cells]


# --- the gate ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GateRun:
    """What one run of the gate said. `probes` maps each probe that blocks to fail or error."""

    verdict: str
    probes: Mapping[str, str]
    reason: str
    seconds: float

    @property
    def caught_by(self) -> tuple[str, ...]:
        """The probes that block, marked where they could not test."""
        named = tuple(name if verdict == "fail" else f"{name}!" for name, verdict in self.probes.items())
        return named or (("gate!",) if self.verdict in ("fail", "error") else ())

    def only(self, probe: str) -> GateRun:
        """What this probe alone would have said."""
        verdict = self.probes.get(probe, "pass")
        blocks = verdict != "pass"
        return replace(
            self,
            verdict=verdict,
            probes={probe: verdict} if blocks else {},
            reason=self.reason if blocks else "",
        )


@dataclass(frozen=True)
class Gate:
    """How the gate is run: as its command line, so as users run it."""

    profile: str
    model_profile: Path
    deadline_s: float
    baseline: Path | None = None

    def command(self, url: str, out: Path, with_baseline: bool) -> list[str]:
        command = [sys.executable, "-m", "llm_gate", "--url", url, "--profile", self.profile]
        command += ["--model-profile", str(self.model_profile), "--deadline", f"{self.deadline_s:g}"]
        if with_baseline:
            assert self.baseline is not None
            command += ["--baseline", str(self.baseline)]
        return [*command, "--out", str(out)]

    def run(self, url: str, with_baseline: bool = False) -> GateRun:
        """Gate a server. Raises BenchError if the gate could not be run at all."""
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="detection-") as folder:
            out = Path(folder)
            try:
                done = _call(self.command(url, out, with_baseline), self.deadline_s + GRACE_S)
            except subprocess.TimeoutExpired:
                return GateRun("error", {}, "the gate did not end in time", time.monotonic() - began)
            seconds = time.monotonic() - began
            report = out / "report.json"
            if done.returncode == USAGE or not report.is_file():
                raise BenchError(
                    f"the gate did not run (exit {done.returncode}): {done.stderr.strip()[-500:]}"
                )
            return read_report(json.loads(report.read_text(encoding="utf-8")), seconds)

    def digest(self) -> str:
        """A name for the gate's code and its profile, as they are now."""
        paths = sorted((ROOT / "module_utils" / "llm_gate").rglob("*.py"))
        content = b"".join(path.read_bytes() for path in [*paths, self.model_profile])
        return hashlib.sha256(content).hexdigest()[:12]


def _call(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "module_utils")}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )


def read_report(report: Mapping[str, Any], seconds: float) -> GateRun:
    """The probes that block, and the first thing that was wrong."""
    probes = {
        probe["id"]: probe["verdict"] for probe in report["probes"] if probe["verdict"] in ("fail", "error")
    }
    reasons = [
        f"{entry['check']}: {entry['text']}"
        for probe in report["probes"]
        for entry in probe["evidence"]
        if entry["verdict"] in ("fail", "error")
    ]
    return GateRun(report["verdict"], probes, reasons[0] if reasons else "", seconds)


def record_pass(gate: Gate, url: str, path: Path, beside: int) -> None:
    """Record one pass of a baseline of a sound server, beside so many other requests. Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="detection-") as folder:
        command = gate.command(url, Path(folder), with_baseline=False)
        done = _call([*command, "--record", str(path), "--beside", str(beside)], gate.deadline_s + GRACE_S)
    if done.returncode != 0:
        told = done.stderr.strip()[-500:]
        raise BenchError(f"no pass of a baseline was recorded (exit {done.returncode}): {told}")


def merge_passes(passes: Sequence[Path], baseline: Path) -> None:
    """Make a baseline of passes. Raises BenchError."""
    command = [sys.executable, "-m", "llm_gate.merge", "--out", str(baseline), *map(str, passes)]
    done = _call(command, GRACE_S)
    if done.returncode != 0 or not baseline.is_file():
        raise BenchError(f"no baseline was made (exit {done.returncode}): {done.stderr.strip()[-500:]}")


# --- measuring -----------------------------------------------------------------------------------


@dataclass
class Bench:
    """Everything that a measurement needs. At most one server runs at a time."""

    gate: Gate
    launch: Launch
    good: Path
    other: Path | None
    folder: Path
    proxy_port: int
    seed: int
    results: Results
    columns: tuple[str, ...]
    say: Callable[[str], None]
    label: str = ""
    moe: Path | None = None

    def measure(self, rows: Sequence[Row]) -> None:
        """Fill in every missing cell of these rows, one server for all rows that are started alike."""

        def launched(row: Row) -> tuple[str, str, str]:
            # Another model has another shape or tokenizer, so that its weights alone would not do.
            return row.model, row.kv_dtype, row.config

        for (model, kv_dtype, config), group in groupby(sorted(rows, key=launched), key=launched):
            todo = [row for row in group if self._missing(row)]
            options = {"kv_cache_dtype": kv_dtype, "json_model_override_args": config}
            launch = self.launch_with({name: value for name, value in options.items() if value})
            while todo:
                # NaN can end a server: the next rows get a new one.
                with running(launch, self.model(model)) as engine:
                    while todo and engine.lives():
                        self._measure_row(engine, todo.pop(0))

    def record(self, models: Iterable[str]) -> None:
        """Record the baseline of each of these models that has none."""
        for model in models:
            baseline = self.baseline_of(model)
            if baseline is not None and not baseline.exists():
                self._record(model, baseline)

    def _record(self, model: str, baseline: Path) -> None:
        """Record a baseline of a sound server: five passes, one beside load, two after a new start."""
        passes: list[Path] = []
        for besides in ((0, 0, 8), (0, 0)):
            with running(self.launch, self.model(model)) as engine:
                for beside in besides:
                    passes.append(self.folder / f"pass-{len(passes) + 1}.json")
                    record_pass(self.gate, engine.url, passes[-1], beside)
                    self.say(f"baseline of {model}: pass {len(passes)} of 5")
        merge_passes(passes, baseline)

    def baseline_of(self, model: str) -> Path | None:
        """Where the baseline is that a model is held against; another model has the right one's name."""
        path = self.gate.baseline
        if path is None or model != MOE:
            return path
        return path.with_name(f"{path.stem}-{model}{path.suffix}")

    def _missing(self, row: Row) -> list[str]:
        columns = list(self.columns)
        baseline = self.baseline_of(row.model)
        if row.model == MOE and GATE_BASELINE in columns and not (baseline and baseline.exists()):
            columns.remove(GATE_BASELINE)
        return self.results.missing(row, columns, self.label)

    def _measure_row(self, engine: Engine, row: Row) -> None:
        columns = self._missing(row)
        if row.weights:
            engine.load(self.weights(row))
        for group in ((HEALTH,), (HEALTH_GENERATE,), (SMOKE, GATE), (GATE_BASELINE,)):
            wanted = [column for column in group if column in columns]
            # Each check meets a fresh proxy, since some faults count requests.
            if wanted:
                with FaultProxy(engine.url, self.fault(row), self.proxy_port, self.seed) as proxy:
                    self._ask(proxy.url, row, wanted)
        if row.weights and engine.lives():
            engine.load(self.model(row.model))

    def fault(self, row: Row) -> Any:
        return NO_FAULT if row.fault == "none" else by_name()[row.fault]

    def _ask(self, url: str, row: Row, columns: list[str]) -> None:
        """Fill in the cells of one question to the server."""
        if columns[0] in (HEALTH, HEALTH_GENERATE):
            self._add(row, columns[0], look_at_page(url, columns[0]))
            return
        gate = replace(self.gate, baseline=self.baseline_of(row.model))
        run = gate.run(url, with_baseline=columns == [GATE_BASELINE])
        for column in columns:
            # The founding five are the gate's first probe, so one run tells both.
            self._add(row, column, run.only("smoke") if column == SMOKE else run)

    def _add(self, row: Row, column: str, run: GateRun) -> None:
        cell = Cell(
            row=row.name,
            column=column,
            verdict=run.verdict,
            caught_by=run.caught_by,
            reason=run.reason,
            seconds=round(run.seconds, 2),
            engine=self.label,
            gate=self.gate.digest(),
        )
        self.results.add(cell)
        self.say(f"{row.name:32} {column:16} {show_cell(cell):40} {run.seconds:6.1f} s  {run.reason[:100]}")

    def measure_clean(self, count: int) -> None:
        """Run the gate so many times against the sound server, in three conditions by turns.

        A new server with another seed comes every tenth time; every third run has other clients beside it.
        """
        todo = [number for number in range(count) if (number, self.label) not in self.results.clean]
        for start, group in groupby(todo, key=lambda number: number // 10):
            launch = self.launch_with({"random_seed": 1000 + start})
            with running(launch, self.good) as engine:
                for place, number in enumerate(group):
                    self._clean_run(engine, number, "after a start" if place == 0 else condition(number))

    def _clean_run(self, engine: Engine, number: int, how: str) -> None:
        with ExitStack() as stack:
            proxy = stack.enter_context(FaultProxy(engine.url, NO_FAULT, self.proxy_port))
            if how == "beside load":
                stack.enter_context(load(engine.url, self.launch.name))
            run = self.gate.run(proxy.url, with_baseline=self.gate.baseline is not None)
            busy_s = proxy.busy_s
        clean = CleanRun(
            number=number,
            condition=how,
            verdict=run.verdict,
            caught_by=run.caught_by,
            reason=run.reason,
            seconds=round(run.seconds, 2),
            busy_s=round(busy_s, 2),
            engine=self.label,
            gate=self.gate.digest(),
        )
        self.results.add(clean)
        self.say(f"clean run {number:3} {how:14} {run.verdict:6} {run.seconds:5.1f} s  {run.reason[:100]}")

    def launch_with(self, options: Mapping[str, Any]) -> Launch:
        """The launch with other options."""
        return replace(self.launch, options={**self.launch.options, **options})

    def model(self, name: str) -> Path:
        """The folder of a sound model; the mixture of experts is made at its first use."""
        if name == MOE:
            if self.moe is None:
                self.moe = self.folder / "weights" / MOE
                make_moe(self.good, self.moe)
            return self.moe
        if name == OTHER:
            assert self.other is not None
            return self.other
        return self.good

    def weights(self, row: Row) -> Path:
        """The folder of a row's broken weights, made at their first use."""
        folder = self.folder / "weights" / row.weights
        break_checkpoint(self.model(row.model), folder, row.weights)
        return folder


def condition(number: int) -> str:
    """How a clean run is made that does not follow a start of the server."""
    return "beside load" if number % 3 == 0 else "alone"


def look_at_page(url: str, page: str) -> GateRun:
    """What a health check says: anything but HTTP 200 is bad."""
    began = time.monotonic()
    try:
        status, _text = ask(url + page, None, LOOK_S)
        seen = "" if status == 200 else f"HTTP {status}"
    except OSError as error:
        seen = f"no reply: {error}"
    seconds = time.monotonic() - began
    return GateRun("fail", {page: "fail"}, seen, seconds) if seen else GateRun("pass", {}, "", seconds)


@contextmanager
def load(url: str, model: str, clients: int = 2) -> Iterator[None]:
    """Other clients that chat without pause."""
    stop = threading.Event()
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Write a story of about 300 words."}],
        "max_tokens": 200,
        "temperature": 0.7,
    }

    def chat() -> None:
        while not stop.is_set():
            try:
                ask(f"{url}/v1/chat/completions", body, 60.0)
            except OSError:
                stop.wait(0.5)

    threads = [threading.Thread(target=chat, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


# --- the table -----------------------------------------------------------------------------------


def show_cell(cell: Cell | None) -> str:
    """A cell in a few words: what caught it, `-` for nothing, `?` where nothing was measured."""
    if cell is None:
        return "?"
    return ", ".join(cell.caught_by) or ("warn" if cell.verdict == "warn" else "-")


def table(rows: Sequence[Row], results: Results, engine: str) -> str:
    """The whole table in Markdown, with what was caught of each kind and the false alarms below."""
    lines = [f"| fault | {' | '.join(TITLES)} |", f"|{'---|' * (len(TITLES) + 1)}"]

    def cells(row: Row) -> list[Cell | None]:
        return [results.cells.get((row.name, column, engine)) for column in COLUMNS]

    for row in rows:
        link = f" ([seen]({row.source}))" if row.source else ""
        shown = " | ".join(_code(cell) for cell in cells(row))
        lines.append(f"| {_escape(row.name)}: {_escape(row.summary)}{link} | {shown} |")
    lines += ["", *summary(rows, results, engine), "", *missed(rows, results, engine)]
    lines += clean_summary(results, engine)
    return "\n".join([*lines, *mixed(rows, results, engine)])


def missed(rows: Sequence[Row], results: Results, engine: str) -> list[str]:
    """Each fault that the gate let through, and why, where that is known."""
    lines = []
    for row in rows:
        cells = [results.cells.get((row.name, column, engine)) for column in (GATE, GATE_BASELINE)]
        through = [
            TITLES[COLUMNS.index(cell.column)] for cell in cells if cell is not None and not cell.caught
        ]
        if through and not row.sound:
            why = row.if_missed or "no reason is known"
            lines.append(f"- {_escape(row.name)} passed {' and '.join(through)}: {why}.")
    return [*lines, ""] if lines else []


def mixed(rows: Sequence[Row], results: Results, engine: str) -> list[str]:
    """A warning if the cells come from different versions of the gate."""
    names = {row.name for row in rows}
    cells = [cell for cell in results.cells.values() if cell.engine == engine and cell.row in names]
    versions = {cell.gate for cell in cells}
    told = "The cells come from {} versions of the gate or of its profile: measure the older ones `--again`."
    return ["", told.format(len(versions))] if len(versions) > 1 else []


def _code(cell: Cell | None) -> str:
    return _escape(show_cell(cell))


def _escape(text: str) -> str:
    """Text that Markdown shows as it is."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|" else letter for letter in text)


def summary(rows: Sequence[Row], results: Results, engine: str) -> list[str]:
    """How many of each kind of row each check caught."""
    lines = [f"| rows | {' | '.join(TITLES)} |", f"|{'---|' * (len(TITLES) + 1)}"]
    kinds = list(dict.fromkeys(row.kind for row in rows))
    groups = [(kind, [row for row in rows if row.kind == kind]) for kind in kinds]
    faulty = [row for row in rows if not row.sound]
    named = [*((f"{kind} (must pass)" if kind == "sound" else kind, group) for kind, group in groups)]
    for name, group in [*named, ("all faults", faulty)]:
        counts = []
        for column in COLUMNS:
            cells = [results.cells.get((row.name, column, engine)) for row in group]
            measured = [cell for cell in cells if cell is not None]
            counts.append(f"{sum(cell.caught for cell in measured)} of {len(measured)}")
        lines.append(f"| {name} | {' | '.join(counts)} |")
    return lines


def clean_summary(results: Results, engine: str) -> list[str]:
    """False alarms and what a run costs."""
    runs = [run for run in results.clean.values() if run.engine == engine]
    if not runs:
        return ["No clean runs were made."]
    alarms = [run for run in runs if run.verdict not in ("pass", "warn")]
    warned = [run for run in runs if run.verdict == "warn"]
    conditions = Counter(run.condition for run in runs)
    shown = ", ".join(f"{count} {name}" for name, count in conditions.items())
    told = f"{len(alarms)} in {len(runs)} clean runs ({shown}); {len(warned)} ended with a warning"
    lines = [f"False alarms: {told}."]
    lines += [
        f"- run {run.number} ({run.condition}): {', '.join(run.caught_by)}: {_escape(run.reason)}"
        for run in alarms
    ]
    alone = [run for run in runs if run.condition != "beside load"] or runs
    seconds = sorted(run.seconds for run in alone)
    busy = sorted(run.busy_s for run in alone)
    middle = len(alone) // 2
    lines.append(
        f"Without load a run took {seconds[middle]:.1f} s (median; {seconds[0]:.1f} to {seconds[-1]:.1f}), "
        f"the server was busy for {busy[middle]:.1f} s of it."
    )
    return lines


# --- command line --------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"detection: {message}", file=sys.stderr)
        sys.exit(USAGE)


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = _Parser(
        allow_abbrev=False, description="Measure which faults each check sees. See bench/README.md."
    )
    add = options.add_argument
    add(
        "--engine-python",
        type=Path,
        metavar="FILE",
        default=default_python(),
        help="Python of a venv with SGLang (default: %(default)s)",
    )
    add(
        "--model-profile",
        type=Path,
        metavar="FILE",
        default=ROOT / "catalog" / "models" / "tiny-qwen3.yml",
        help="checkpoint, launch options and gate section (default: tiny-qwen3)",
    )
    add("--profile", default="full", help="run profile of the gate (default: %(default)s)")
    add(
        "--other-model",
        type=Path,
        metavar="DIR",
        help="another sound checkpoint of the same architecture, the wrong model",
    )
    add(
        "--baseline",
        type=Path,
        metavar="FILE",
        help="a recorded baseline of the model; NAME-moe.json beside NAME.json is the mixture of experts'",
    )
    add("--record-baseline", action="store_true", help="record them first, in --work, if none are there")
    add(
        "--smaller",
        action="store_true",
        help="only the rows whose fault is the model's: for another version",
    )
    add(
        "--rows",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only rows whose names match, such as 'weights:*'; may be repeated",
    )
    add(
        "--only",
        action="append",
        default=[],
        choices=COLUMNS,
        metavar="COLUMN",
        help=f"only these columns: {', '.join(COLUMNS)}; may be repeated",
    )
    add(
        "--clean-runs",
        type=int,
        default=0,
        metavar="N",
        help="make N runs against the sound server as well; those made before count",
    )
    add("--no-rows", action="store_true", help="measure no rows: clean runs or the table only")
    add("--again", action="store_true", help="measure the selected cells anew")
    add("--port", type=int, default=31040, help="the server's port; the proxy takes the next one")
    add("--deadline", type=float, default=90.0, metavar="S", help="of one run of the gate, seconds")
    add("--seed", type=int, default=1, help="for faults that come by chance")
    add("--results", type=Path, default=RESULTS, metavar="FILE", help="default: %(default)s")
    add("--table", type=Path, metavar="FILE", help="write the table into this file as well")
    add(
        "--work",
        type=Path,
        metavar="DIR",
        default=Path(tempfile.gettempdir()) / "smokestack-detection",
        help="for broken weights and logs (default: %(default)s)",
    )
    add("--list", action="store_true", help="print the rows and stop")
    return options


def make_bench(options: argparse.Namespace) -> Bench:
    """Check the options and put everything together. Raises BenchError."""
    try:
        profile = yaml.safe_load(options.model_profile.read_text(encoding="utf-8"))
        checkpoint = ROOT / profile["checkpoint"]["path"]
        name, environment = profile["served_name"], profile.get("environment", {})
        version = sglang_version(options.engine_python)
        launch = profile_launch(profile, {"sglang": {"version": version}})
    except (OSError, yaml.YAMLError, LookupError, TypeError, ValueError) as error:
        raise BenchError(
            f"--model-profile {options.model_profile}: {type(error).__name__}: {error}"
        ) from None
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    recorded = work / f"baseline-{version}.json" if options.record_baseline else None
    baseline = options.baseline or recorded
    columns = tuple(column for column in COLUMNS if not options.only or column in options.only)
    if baseline is None:
        columns = tuple(column for column in columns if column != GATE_BASELINE)
    return Bench(
        gate=Gate(options.profile, options.model_profile.resolve(), options.deadline, baseline),
        launch=Launch(
            python=options.engine_python.absolute(),
            port=options.port,
            name=name,
            options=launch,
            environment={key: str(value) for key, value in environment.items()},
            served=work / "served",
            log=work / "server.log",
        ),
        good=checkpoint,
        other=options.other_model,
        folder=work,
        proxy_port=options.port + 1,
        seed=options.seed,
        results=Results.read(options.results),
        columns=columns,
        say=lambda line: print(line, file=sys.stderr, flush=True),
        label=f"SGLang {version}",
    )


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; the exit status."""
    options = parser().parse_args(arguments)
    # As Ctrl-C does, so that the server is stopped.
    signal.signal(signal.SIGTERM, _terminated)
    rows = all_rows(options.other_model is not None)
    rows = smaller(rows) if options.smaller else rows
    try:
        chosen = select(rows, options.rows)
        if options.list:
            print("\n".join(f"{row.name:32} {row.summary}" for row in chosen))
            return 0
        bench = make_bench(options)
        refuse_busy(options.port + 1)
        if options.record_baseline:
            models = {row.model for row in chosen}
            bench.record([GOOD, *models & {MOE}])
        if options.again:
            forget(bench.results, chosen, bench.columns, bench.label)
        if not options.no_rows:
            bench.measure(chosen)
        bench.measure_clean(options.clean_runs)
    except BenchError as error:
        print(f"detection: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("detection: stopped; the same command goes on from here", file=sys.stderr)
        return 1
    text = table(rows, bench.results, bench.label)
    print(text)
    if options.table:
        options.table.write_text(f"{HEAD.format(engine=bench.label)}\n{text}\n", encoding="utf-8")
    return 0


HEAD = """# Which faults each check sees

Made by `bench/detection.py` with {engine}; see [README.md](README.md). A cell names the probes that block:
`name` proved a fault, `name!` could not test and so blocks as well. `-` is a fault that was let through.
"""


def forget(results: Results, rows: Sequence[Row], columns: Iterable[str], engine: str) -> None:
    """Make the cells of these rows count as missing; the file keeps them until newer lines replace them."""
    for row in rows:
        for column in columns:
            results.cells.pop((row.name, column, engine), None)


if __name__ == "__main__":
    sys.exit(main())
