#!/usr/bin/env python3
"""What do the patches of sgl-kernel save? Configures and compiles the real source, before and after them.

For each CMake the series is put into a checkout, and both trees are configured: the one without patches as it
is, the other with TORCH_CUDA_ARCH_LIST. What would be compiled is counted by target and architecture. With
--sample some units of each group are compiled, one at a time, and the hours of a whole build are reckoned
from their CPU seconds. With --prove one unit is compiled for the architecture and for its plain neighbour,
and its machine code is searched for FP4.

Every measurement is a line in RESULTS, a JSON-lines file: a run that was broken off goes on where it stopped.

Exit status: 0 done, 1 the measurement could not go on, 64 usage.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
sys.path[:0] = [str(BENCH), str(ROOT / "filter_plugins")]

import ansible.module_utils  # noqa: E402

ansible.module_utils.__path__.append(str(ROOT / "module_utils"))

from ansible.module_utils import kernel_wheel, patches  # noqa: E402
from engine import BenchError  # noqa: E402
from result_file import add_result, read_results  # noqa: E402
from stacks import patch_series  # noqa: E402

USAGE = 64
RESULTS = ROOT / "build" / "kernel_build.jsonl"
CATALOG = ROOT / "catalog"
STACK = CATALOG / "stacks" / "nightly-2026-03-07.yml"
SERIES = CATALOG / "patches" / "sgl-kernel"
PLAIN, PATCHED = "as it is", "patched"
FP4 = re.compile(r"\b\w+(?:\.\w+)*\.E2M1\b[\w.]*")  # any instruction that names the type
TOOL_S = 600.0
GENCODE = re.compile(r"code=\[?(sm_\w+)")
TARGET = re.compile(r"-o (\S+?\.dir)/")


@dataclass(frozen=True)
class Setup:
    """Where everything is."""

    source: Path  # a git repository, bare or not
    commit: str
    folder: str  # of the kernel, in the repository
    dependencies: Path  # a folder for each name that FetchContent would fetch
    cuda_home: Path
    python: Path  # of an environment with torch
    archs: str
    work: Path
    more: tuple[str, ...]  # further arguments of CMake

    @property
    def torch(self) -> Path:
        """Where torch's CMake files are."""
        found = next(self.python.parent.parent.glob("lib/python3*/site-packages/torch/share/cmake"), None)
        if found is None:
            raise BenchError(f"{self.python} is of no environment with torch")
        return found


# --- the source ----------------------------------------------------------------------------------


def git(*arguments: str | Path) -> str:
    done = subprocess.run(["git", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"git {' '.join(map(str, arguments))}: {done.stderr.strip()}")
    return done.stdout


def checkout(setup: Setup, name: str) -> Path:
    """A checkout of the commit of its own; returns the kernel's folder in it."""
    folder = setup.work / "trees" / setup.commit[:12] / name
    if not (folder / setup.folder / "CMakeLists.txt").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        git("clone", "--quiet", "--shared", "--no-checkout", setup.source.resolve(), folder)
        git("-C", folder, "checkout", "--quiet", "--detach", setup.commit)
    return folder / setup.folder


def put_in(tree: Path, cmake: str, cuda: str) -> dict[str, str]:
    """Put the series into a checkout; patch to how it ended, with git's line shifts left out."""
    stack = yaml.safe_load(STACK.read_text(encoding="utf-8"))
    names = stack["kernel"]["source"]["patches"]
    series = patch_series(str(SERIES), names, {"cmake": cmake, "cuda": cuda})
    try:
        with patches.Tree(shutil.which("git") or "git", tree, dry=False) as opened:
            planned = patches.plan(opened, series)
            if not planned.drifted:
                patches.carry_out(opened, planned)
    except patches.PatchError as error:
        raise BenchError(str(error)) from error
    return {outcome.name: outcome.state for outcome in planned.outcomes}


# --- configuring ---------------------------------------------------------------------------------


def version_of(program: Path) -> str:
    """The version that CMake or nvcc tells."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"(?:cmake version |\bV)(\d+\.\d+\.\d+)", done.stdout)
    if not found:
        raise BenchError(f"{program} --version told no version")
    return found[1]


def configure(setup: Setup, cmake: Path, tree: Path, build: Path, archs: str) -> tuple[float, str]:
    """Configure a tree; seconds, and why CMake stopped (empty when it did not)."""
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir(parents=True)
    arguments = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",
        "CMAKE_PREFIX_PATH": setup.torch,
        "Python_EXECUTABLE": setup.python,
        "Python3_EXECUTABLE": setup.python,
        "SKBUILD_SABI_COMPONENT": "Development.SABIModule",
        "SKBUILD_SABI_VERSION": "3.10",
        "CUDAToolkit_ROOT": setup.cuda_home,
        "CUDA_TOOLKIT_ROOT_DIR": setup.cuda_home,
        "SGL_KERNEL_COMPILE_THREADS": 1,
        "FETCHCONTENT_FULLY_DISCONNECTED": "ON",
    }
    for folder in sorted(path for path in setup.dependencies.iterdir() if path.is_dir()):
        arguments[f"FETCHCONTENT_SOURCE_DIR_{folder.name.upper()}"] = folder.resolve()
    argv = [cmake, "-S", tree, "-B", build, "-G", "Ninja", *(f"-D{k}={v}" for k, v in arguments.items())]
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_CUDA_ARCH_LIST"}
    environment |= {"CUDACXX": str(setup.cuda_home / "bin/nvcc"), "CUDA_HOME": str(setup.cuda_home)}
    environment["PATH"] = f"{setup.python.parent}:{os.environ['PATH']}"
    if archs:
        environment["TORCH_CUDA_ARCH_LIST"] = archs
    started = time.monotonic()
    done = subprocess.run(
        [*map(str, argv), *setup.more], env=environment, capture_output=True, text=True, check=False
    )
    (build / "configure.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    return time.monotonic() - started, "" if done.returncode == 0 else reason(done.stderr)


def reason(text: str) -> str:
    """CMake's own sentence for its first error, on one line."""
    error = text.partition("CMake Error")[2].partition("\n\n\n")[0]
    first, _newline, rest = error.partition("\n")
    return " ".join((rest or first).split())[:120] or "no reason given"


# --- units ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unit:
    """A file that is compiled."""

    target: str
    archs: tuple[str, ...]  # ("host",) for C++
    file: str
    folder: str
    command: str

    @property
    def group(self) -> str:
        """Units of one group cost about the same."""
        return f"{self.target}: {' '.join(self.archs)}"


def units_of(commands: Iterable[Mapping[str, str]]) -> list[Unit]:
    """The units of a compile_commands.json."""
    found = []
    for entry in commands:
        target = TARGET.search(entry["command"])
        archs = tuple(sorted(set(GENCODE.findall(entry["command"])))) if entry["file"].endswith(".cu") else ()
        name = target[1].rpartition("/")[2].removesuffix(".dir") if target else "?"
        found.append(Unit(name, archs or ("host",), entry["file"], entry["directory"], entry["command"]))
    return found


def counted(units: Iterable[Unit]) -> dict[str, int]:
    """Group to the number of its units."""
    counts: dict[str, int] = {}
    for unit in units:
        counts[unit.group] = counts.get(unit.group, 0) + 1
    return dict(sorted(counts.items()))


def sampled(units: Sequence[Unit], each: int) -> list[Unit]:
    """`each` units of every group, spread evenly over the sizes of its files."""
    groups: dict[str, list[Unit]] = {}
    for unit in units:
        groups.setdefault(unit.group, []).append(unit)
    chosen = []
    for _group, members in sorted(groups.items()):
        members.sort(key=lambda unit: (size_of(unit.file), unit.file))
        wanted = min(each, len(members))
        chosen += [members[(2 * place + 1) * len(members) // (2 * wanted)] for place in range(wanted)]
    return chosen


def size_of(file: str) -> int:
    return Path(file).stat().st_size if Path(file).exists() else 0


def compiled(unit: Unit, out: Path, archs: str | None = None) -> dict[str, Any]:
    """Compile a unit into `out`: {ok, cpu_s, wall_s, peak_gib (of its largest process), said}.

    `archs` compiles for another architecture than the build would, such as `120`.
    """
    words = shlex.split(unit.command)
    words[words.index("-o") + 1] = str(out)
    if archs:
        words = [word for word in words if "-gencode" not in word and not word.startswith("arch=compute_")]
        words.insert(1, f"-gencode=arch=compute_{archs},code=sm_{archs}")
    started = time.monotonic()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(words, cwd=unit.folder, stdout=said, stderr=said)
        _pid, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().decode(errors="replace")
    return {
        "ok": process.returncode == 0,
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
        "wall_s": round(time.monotonic() - started, 1),
        "peak_gib": round(usage.ru_maxrss / (1 << 20), 1),
        "said": "" if process.returncode == 0 else " ".join(text.split())[-300:],
    }


def fp4_in(setup: Setup, shared: Path) -> dict[str, Any]:
    """What the machine code of an object is: {archs, instructions} with the FP4 ones and their counts."""
    try:
        tools = kernel_wheel.find_tools([setup.python.parent.parent, setup.cuda_home])
        archs = kernel_wheel.listed_archs(tools["cuobjdump"], shared, TOOL_S)
        with tempfile.TemporaryDirectory() as folder:
            counts: dict[str, int] = {}
            for cubin in kernel_wheel.extracted(tools["cuobjdump"], shared, Path(folder), TOOL_S):
                text = kernel_wheel.run([tools["nvdisasm"], "-c", cubin], TOOL_S).stdout
                for name in FP4.findall(text):
                    counts[name] = counts.get(name, 0) + 1
    except kernel_wheel.ToolError as error:
        raise BenchError(str(error)) from error
    return {"archs": archs, "instructions": dict(sorted(counts.items()))}


# --- measuring -----------------------------------------------------------------------------------


class Bench:
    """The measurements of one commit, and those that were made before."""

    def __init__(self, setup: Setup, results: Path) -> None:
        self.setup, self.results = setup, results
        self.known: dict[str, dict[str, Any]] = {}
        read_results(results, self._keep)

    def _keep(self, entry: dict[str, Any]) -> None:
        self.known[entry["key"]] = entry

    def add(self, key: str, entry: Mapping[str, Any]) -> dict[str, Any]:
        told = {"key": key, "commit": self.setup.commit, **entry}
        add_result(self.results, told)
        self.known[key] = told
        return told

    def configured(self, cmake: Path, which: str) -> dict[str, Any]:
        """Patch, configure and count with one CMake; measured once."""
        version = version_of(cmake)
        key = f"{self.setup.commit} configure {version} {which}"
        build = self.build(version, which)
        if key in self.known and (self.known[key]["failed"] or (build / "compile_commands.json").exists()):
            return self.known[key]
        tree = checkout(self.setup, f"{version}-{which.replace(' ', '-')}")
        nvcc = version_of(self.setup.cuda_home / "bin/nvcc").rpartition(".")[0]
        states = put_in(tree, version, nvcc) if which == PATCHED else {}
        drifted = [name for name, state in states.items() if state == patches.DRIFTED]
        if drifted:
            seconds, failed, counts = 0.0, f"drifted: {', '.join(drifted)}", {}
        else:
            archs = self.setup.archs if which == PATCHED else ""
            seconds, failed = configure(self.setup, cmake, tree, build, archs)
            counts = {} if failed else counted(self.units(version, which))
        told = {"cmake": version, "which": which, "patches": states, "failed": failed, "units": counts}
        return self.add(key, told | {"seconds": round(seconds, 1)})

    def build(self, version: str, which: str) -> Path:
        return self.setup.work / "builds" / self.setup.commit[:12] / f"{version}-{which.replace(' ', '-')}"

    def units(self, version: str, which: str) -> list[Unit]:
        commands = self.build(version, which) / "compile_commands.json"
        return units_of(json.loads(commands.read_text(encoding="utf-8")))

    def sample(self, version: str, which: str, each: int) -> None:
        """Compile some units of every group."""
        for unit in sampled(self.units(version, which), each):
            key = f"{self.setup.commit} unit {which} {unit.group} {Path(unit.file).name}"
            if key not in self.known:
                done = compiled(unit, self.setup.work / "unit.o")
                say(
                    f"{which}: {unit.group}: {Path(unit.file).name}",
                    f"{done['cpu_s']:g} s of CPU {done['said']}",
                )
                self.add(key, {"which": which, "group": unit.group, "file": Path(unit.file).name, **done})

    def prove(self, version: str, name: str) -> None:
        """Compile one unit of the patched tree for what was asked for, and for its plain neighbour."""
        names = {Path(unit.file).stem: unit for unit in self.units(version, PATCHED)}
        if name not in names:
            near = ", ".join(sorted(other for other in names if name in other)) or "none is like it"
            raise BenchError(f"--prove {name}: no unit of the patched tree has a file of that name ({near})")
        asked = self.setup.archs.replace(".", "")
        for arch in (asked, asked.rstrip("af")):
            key = f"{self.setup.commit} proof {name} {arch}"
            if key not in self.known:
                out = self.setup.work / "unit.o"
                done = compiled(names[name], out, arch)
                seen = fp4_in(self.setup, out) if done["ok"] else {"archs": {}, "instructions": {}}
                say(
                    f"{name} for sm_{arch}",
                    f"{done['cpu_s']:g} s of CPU, FP4: {seen['instructions'] or 'none'}",
                )
                self.add(key, {"proof": name, "arch": arch, **done, **seen})


# --- the table -----------------------------------------------------------------------------------


def core_hours(
    counts: Mapping[str, int], samples: Iterable[Mapping[str, Any]]
) -> tuple[float, int, list[str]]:
    """Hours of one core for a whole build, from the mean of each group's samples.

    Returns the hours, how many units were compiled for it, and the groups of which none was.
    """
    seconds: dict[str, list[float]] = {}
    for one in samples:
        if one["ok"]:
            seconds.setdefault(one["group"], []).append(one["cpu_s"])
    hours = sum(statistics.mean(seconds[group]) * n for group, n in counts.items() if group in seconds) / 3600
    measured = sum(len(seconds[group]) for group in counts if group in seconds)
    return hours, measured, [group for group in counts if group not in seconds]


def table(known: Mapping[str, Mapping[str, Any]], commit: str) -> str:
    """All that is known of a commit, as Markdown."""
    entries = [entry for entry in known.values() if entry["commit"] == commit]
    configured = [entry for entry in entries if "cmake" in entry]
    samples = [entry for entry in entries if "group" in entry]
    lines = [
        f"## Commit {commit[:9]}",
        "",
        "| CMake | tree | units | seconds | patches |",
        "|---|---|---|---|---|",
    ]
    for entry in configured:
        states = ", ".join(f"{name} {state.replace('_', ' ')}" for name, state in entry["patches"].items())
        units = f"stops: {entry['failed']}" if entry["failed"] else str(sum(entry["units"].values()))
        lines.append(
            f"| {entry['cmake']} | {entry['which']} | {units} | {entry['seconds']:g} | {states or '-'} |"
        )
    for which in (PLAIN, PATCHED):
        counts = next(
            (entry["units"] for entry in configured if entry["which"] == which and entry["units"]), {}
        )
        if not counts:
            continue
        mine = [one for one in samples if one["which"] == which]
        lines += [
            "",
            f"| {which}: target and architectures | units | compiled here | CPU s each | peak GiB |",
        ]
        lines.append("|---|---|---|---|---|")
        for group, number in counts.items():
            seen = [one for one in mine if one["group"] == group and one["ok"]]
            told = f"{statistics.mean(one['cpu_s'] for one in seen):.0f}" if seen else "-"
            peak = f"{max(one['peak_gib'] for one in seen):g}" if seen else "-"
            lines.append(f"| {group} | {number} | {len(seen)} | {told} | {peak} |")
        hours, measured, without = core_hours(counts, mine)
        if measured:
            left = sum(counts[group] for group in without)
            but = (
                f"; {left} units of {len(without)} groups were not measured and are not in it" if left else ""
            )
            lines += ["", f"About {hours:.1f} core-hours, reckoned from {measured} compiled units{but}."]
    for entry in (entry for entry in entries if "proof" in entry):
        fp4 = ", ".join(f"{count} {name}" for name, count in entry["instructions"].items()) or "none"
        fate = f"FP4 instructions: {fp4}" if entry["ok"] else f"not compiled: {entry['said']}"
        lines += ["", f"`{entry['proof']}` for sm_{entry['arch']}: {entry['cpu_s']:g} s of CPU, "]
        lines[-1] += f"{entry['peak_gib']:g} GiB at most; {fate}."
    return "\n".join(lines)


def say(*words: str) -> None:
    print(": ".join(words), file=sys.stderr, flush=True)


# --- the command line ----------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    pinned = yaml.safe_load(STACK.read_text(encoding="utf-8"))["kernel"]["source"]
    made = argparse.ArgumentParser(
        description="Measure what the patches of sgl-kernel save. See bench/README.md."
    )
    add = made.add_argument
    add("--source", type=Path, required=True, metavar="REPOSITORY", help="a git repository of SGLang")
    add("--commit", default=pinned["commit"], help="default: %(default)s, that of the founding stack")
    add("--folder", default=pinned["folder"], help="the kernel's, in the repository (default: %(default)s)")
    add("--dependencies", type=Path, required=True, metavar="DIR", help="a folder for each FetchContent name")
    add("--cuda-home", type=Path, required=True, metavar="DIR", help="a CUDA toolkit")
    add(
        "--python",
        type=Path,
        required=True,
        metavar="FILE",
        help="of an environment with torch for that CUDA",
    )
    add(
        "--cmake",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="may be repeated; none: table only",
    )
    add("--archs", default="12.0a", help="TORCH_CUDA_ARCH_LIST of the patched tree (default: %(default)s)")
    add("--sample", type=int, default=0, metavar="N", help="compile N units of each group")
    add("--only", choices=[PLAIN, PATCHED], help="sample this tree only")
    add(
        "--prove",
        metavar="NAME",
        help="compile the unit of that file, without its ending, and look for FP4 in it",
    )
    add("--results", type=Path, default=RESULTS, metavar="FILE", help="default: %(default)s")
    add("--table", type=Path, metavar="FILE", help="write the table into this file as well")
    add("--work", type=Path, default=ROOT / "build" / "kernel", metavar="DIR", help="default: %(default)s")
    add("more", nargs="*", metavar="-DNAME=VALUE", help="further arguments of CMake, behind --")
    return made


def setup_of(options: argparse.Namespace) -> Setup:
    """Where everything is. Raises BenchError where something is not there."""
    for path in (options.source, options.dependencies, options.cuda_home, options.python, *options.cmake):
        if not path.exists():
            raise BenchError(f"{path} does not exist")
    return Setup(
        source=options.source,
        commit=git("-C", options.source, "rev-parse", "--verify", f"{options.commit}^{{commit}}").strip(),
        folder=options.folder,
        dependencies=options.dependencies,
        cuda_home=options.cuda_home.resolve(),
        python=options.python.absolute(),
        archs=options.archs,
        work=options.work.absolute(),
        more=tuple(options.more),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; the exit status."""
    made = parser()
    try:
        options = made.parse_args(arguments)
    except SystemExit as end:
        return USAGE if end.code else 0
    try:
        bench = Bench(setup_of(options), options.results)
        measure(bench, options)
        commits = dict.fromkeys(entry["commit"] for entry in bench.known.values())
        text = "\n\n".join(table(bench.known, commit) for commit in commits)
    except BenchError as error:
        print(f"kernel_build: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("kernel_build: stopped; the same command goes on from here", file=sys.stderr)
        return 1
    print(text)
    if options.table:
        options.table.write_text(f"{HEAD}\n{text}\n", encoding="utf-8")
    return 0


def measure(bench: Bench, options: argparse.Namespace) -> None:
    """All that was asked for and is not known. Raises BenchError."""
    works: dict[str, str] = {}  # tree to the last CMake that configured it
    for cmake in options.cmake:
        for which in (PLAIN, PATCHED):
            told = bench.configured(cmake, which)
            say(f"CMake {told['cmake']}, {which}", told["failed"] or f"{sum(told['units'].values())} units")
            if not told["failed"]:
                works[which] = told["cmake"]
    if options.prove and PATCHED in works:
        bench.prove(works[PATCHED], options.prove)
    for which, version in works.items():
        if options.sample and options.only in (None, which):
            bench.sample(version, which, options.sample)


HEAD = """# What the patches of sgl-kernel save

Made by `bench/kernel_build.py`; see [README.md](README.md). *as it is* is the source without patches, and
*patched* is the source with the series of `catalog/patches/sgl-kernel`, asked for SM120 alone. Nothing here
ran on a GPU, and no whole wheel was built.
"""

if __name__ == "__main__":
    sys.exit(main())
