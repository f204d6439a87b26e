#!/usr/bin/env python3
"""What does it cost to bring a stack to a node? Prints one table for each group of measurements.

  transport   the wheels to N nodes: by the role's copy, by one tar stream, from a static server; and with uv
  release     a fresh release and a second environment on N nodes, against uv alone and the disk's copy speed
  upgrade     seconds in which a node does not serve, against the engine's own start

Real lab hosts, real wheels of a locked stack. Each pass over a group is a line in RESULTS, a JSON-lines file:
a run that was broken off goes on with the passes that are missing. Only figures of one pass are compared.

Exit status: 0 done, 1 the measurement could not go on, 64 usage.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
sys.path[:0] = [str(BENCH), str(ROOT / "filter_plugins"), str(ROOT / "library"), str(ROOT / "module_utils")]

from engine import BenchError  # noqa: E402
from lab_nodes import (  # noqa: E402
    Lab,
    Node,
    at_once,
    lab_hosts,
    on_all,
    play,
    read_verdict,
    seconds_between,
    served,
)
from result_file import add_result, read_results  # noqa: E402
from stacks import read_lock  # noqa: E402

USAGE = 64
RESULTS = ROOT / "build" / "install.jsonl"
HOUSE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "smokestack" / "wheelhouse"
PROFILE = "tiny-qwen3"
PORT = 31050
DISK_GB = {"transport": 4, "release": 8, "upgrade": 8}  # of a node: wheels, environments, a copy
MIB = 1 << 20

# Tasks of the roles whose starts are the marks of a phase.
FIRST, ASK, INSTALL = "Make the user", "Ask which wheels the node lacks", "Start the installation"
ROLES = ("release", "node_wheels", "progress")

AT = "/opt/sglang"
WORK = "/opt/bench"  # beside it, on the same file system
INSTALL_ALONE = (
    "uv pip install --quiet --no-index --no-deps --require-hashes --link-mode hardlink --python {python} "
    "--requirements {work}/requirements.txt --find-links {links} {more}"
)


# --- results -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pass:
    """One pass over a group. `values` maps what was measured to seconds (`*_s`) or bytes (`*_bytes`).

    `load` is the load average of this machine over the minute before the pass, `machine` what it has.
    """

    group: str
    nodes: int
    number: int
    values: Mapping[str, float]
    load: float
    machine: str
    stack: str


@dataclass
class Results:
    """The passes so far, kept in a file of JSON lines. A later line replaces an earlier one."""

    path: Path
    passes: dict[tuple[str, int, int], Pass] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Results:
        """What is there. A last line that was torn by a crash is dropped; any other is a BenchError."""
        results = cls(path)
        read_results(path, lambda entry: results._keep(Pass(**entry)))
        return results

    def add(self, entry: Pass) -> None:
        """Keep a pass, on disk at once."""
        self._keep(entry)
        add_result(self.path, asdict(entry))

    def _keep(self, entry: Pass) -> None:
        self.passes[entry.group, entry.nodes, entry.number] = entry

    def of(self, group: str, nodes: int) -> list[Pass]:
        """The passes over a group with so many nodes, in their order."""
        return [self.passes[key] for key in sorted(self.passes) if key[:2] == (group, nodes)]


# --- measuring -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bench:
    """Everything that a measurement needs."""

    lab: Lab
    house: Path
    stack: str
    upgrade: str
    wheels: Sequence[Mapping[str, Any]]
    url: str
    folder: Path
    say: Callable[[str], None]

    def play(self, playbook: str, nodes: Sequence[Node], stack: str = "", options: str = "") -> Any:
        variables = {
            "stack": stack or self.stack,
            "model_profile": PROFILE,
            "wheelhouse_path": str(self.house),
        }
        return play(self.lab, playbook, nodes, self.folder, variables, options=options)

    def empty(self, nodes: Sequence[Node]) -> None:
        """Take off what a pass leaves, so that the disk holds no more than one."""
        on_all(nodes, f"systemctl stop sglang 2>/dev/null || :; rm -rf {AT} {WORK}; mkdir -p {WORK} {AT}")

    def clean(self, nodes: Sequence[Node]) -> None:
        """Bring the nodes to where a pass begins: nothing of a release, uv at hand, nothing left to write."""
        hashes = "".join(f"{wheel['sha256']}  {wheel['file']}\n" for wheel in self.wheels)
        wanted = [f"{one['name']}=={one['version']} --hash=sha256:{one['sha256']}" for one in self.wheels]
        wanted = [line for line in wanted if not line.startswith("uv==")]
        urls = "".join(f'url = "{self.url}{one["file"]}"\nremote-name\n' for one in self.wheels)
        texts = {"SHA256SUMS": hashes, "requirements.txt": "\n".join(wanted) + "\n", "urls": urls}
        self.empty(nodes)
        for name, text in texts.items():
            on_all(nodes, f"cat >{WORK}/{name}", text)
        uv = next(wheel["file"] for wheel in self.wheels if wheel["name"] == "uv")
        unpack = (
            "import sys, zipfile; archive = zipfile.ZipFile(sys.argv[1]); "
            "name = next(name for name in archive.namelist() if name.endswith('scripts/uv')); "
            "open('/usr/local/bin/uv', 'wb').write(archive.read(name))"
        )
        on_all(
            nodes,
            f"cd {WORK}; curl --silent --fail --remote-name {self.url}{uv}; "
            f'python3 -c "{unpack}" {uv}; chmod 755 /usr/local/bin/uv; rm {uv}; sync',
        )

    def transport(self, nodes: Sequence[Node]) -> dict[str, float]:
        """The wheels to the nodes in three ways, and environments from where two of these leave them."""
        values: dict[str, float] = {}

        def received(name: str, before: int) -> int:
            now = sum(node.received() for node in nodes)
            values[f"{name}_bytes"] = (now - before) / len(nodes)
            return now

        self.clean(nodes)
        wires = sum(node.received() for node in nodes)
        self.say("the role's copy")
        events = self.play("bench/send_wheels.yml", nodes)
        values["copy_s"] = seconds_between(events, ASK, roles=ROLES)
        wires = received("copy", wires)
        self.say("one tar stream")
        house = f"{WORK}/house"
        on_all(nodes, f"mkdir -p {house}; sync")
        names = [wheel["file"] for wheel in self.wheels]
        tar = ["tar", "--create", "--directory", str(self.house), *names]
        check = f"cd {house}; sha256sum --check --quiet {WORK}/SHA256SUMS"
        unpack = f"tar --extract --directory {house}; {check}"
        pipes = [f"{shlex.join(tar)} | {shlex.join(node.command(unpack))}" for node in nodes]
        values["stream_s"] = at_once([["bash", "-o", "pipefail", "-c", pipe] for pipe in pipes])
        wires = received("stream", wires)
        self.say("from the static server")
        on_all(nodes, f"rm -rf {house}; mkdir -p {house}; sync")
        fetch = f"curl --silent --fail --parallel --parallel-max 8 --config {WORK}/urls"
        values["fetch_s"] = on_all(nodes, f"cd {house}; {fetch}; {check}")
        wires = received("fetch", wires)
        on_all(nodes, f"rm -rf {house}; sync")
        self.say("uv from the node's own folder, and from the static server")
        values["folder_uv_s"] = self.install(nodes, f"{AT}/wheelhouse", cold=True)
        wires = received("folder_uv", wires)
        values["served_uv_s"] = self.install(nodes, self.url, cold=True)
        wires = received("served_uv", wires)
        values["copy_uv_s"] = values["copy_s"] + values["folder_uv_s"]
        values["left_bytes"] = self.size(nodes, f"{AT}/wheelhouse")
        return values

    def install(
        self, nodes: Sequence[Node], links: str, cold: bool, more: str = "", proof: str = ""
    ) -> float:
        """Seconds for uv alone, until all that it wrote is on the disk. The environment is new either way."""
        python = f"{WORK}/venv/bin/python"
        cache = f"{WORK}/uv"
        drop = f"rm -rf {WORK}/venv {cache if cold else ''}"
        on_all(nodes, f"{drop}; uv venv --quiet --python /usr/bin/python3 {WORK}/venv; sync")
        if links.startswith("/"):
            more += " --offline"
        run = INSTALL_ALONE.format(python=python, work=WORK, links=links, more=more)
        return on_all(
            nodes, f"export UV_CACHE_DIR={cache} UV_NO_CONFIG=1; {run}; {proof or ':'}; sync -f {WORK}"
        )

    def size(self, nodes: Sequence[Node], *paths: str) -> float:
        """Bytes that the last path takes beyond the others, on the node where they are the most."""
        script = f"du --summarize --block-size=1 {' '.join(paths)} | tail -n 1 | cut -f 1"
        return max(float(node.run(script)) for node in nodes)

    def release(self, nodes: Sequence[Node]) -> dict[str, float]:
        """A fresh release by site.yml, uv alone, the disk, and a second environment beside the first."""
        values: dict[str, float] = {}
        self.clean(nodes)
        self.say("a fresh release")
        events = self.play("site.yml", nodes, options="--tags release")
        values["role_s"] = seconds_between(events, FIRST, roles=ROLES)
        values["role_send_s"] = seconds_between(events, ASK, INSTALL, roles=ROLES)
        values["role_install_s"] = seconds_between(events, INSTALL, roles=ROLES)
        self.say("a second environment")
        # The very wheels that the role installs: the kernel's stand-in is in no lock.
        on_all(nodes, f'cd {AT}/venvs; mv "$(ls)" first; cp first/requirements.txt {WORK}; sync')
        events = self.play("site.yml", nodes, options="--tags release")
        values["second_s"] = seconds_between(events, FIRST, roles=ROLES)
        values["second_install_s"] = seconds_between(events, INSTALL, roles=ROLES)
        second = nodes[0].run(f"cd {AT}/venvs; ls --ignore=first").strip()
        values["second_bytes"] = self.size(nodes, f"{AT}/venvs/first", f"{AT}/venvs/{second}")
        values["venv_bytes"] = self.size(nodes, f"{AT}/venvs/first")
        on_all(nodes, f"rm -rf {AT}/venvs/{second} {AT}/venvs/first {AT}/cache; sync")
        self.say("uv alone")
        links = f"{AT}/wheelhouse"
        proof = f"{WORK}/venv/bin/python -B -W ignore -c 'import torch, transformers, sglang.srt.server_args'"
        values["uv_same_s"] = self.install(nodes, links, cold=True, more="--compile-bytecode", proof=proof)
        values["uv_s"] = self.install(nodes, links, cold=True)
        values["uv_second_s"] = self.install(nodes, links, cold=False)
        self.say("the disk")
        copy = f"cp -r {WORK}/venv {WORK}/copy; sync -f {WORK}"
        values["disk_s"] = on_all(nodes, copy)
        return values

    def not_serving(self, nodes: Sequence[Node]) -> dict[str, float]:
        """An upgrade to the other stack; what serves before is deployed unless it does already."""
        node = nodes[0]
        self.say(f"an upgrade from {self.stack} to {self.upgrade}")
        for stack in (self.stack, self.upgrade):
            self.play("site.yml", nodes, stack)
        outage = read_verdict(node)["not_serving"]
        self.say("the engine's own start")
        start = (
            "systemctl stop sglang; began=$(date +%s.%N); systemctl start sglang; "
            "until curl --silent --fail --output /dev/null http://127.0.0.1:30000/health; "
            "do sleep 0.1; done; "
            'echo "$(date +%s.%N) $began"'
        )
        ended, began = map(float, node.run(start).split())
        return {
            "engine_s": ended - began,
            "until_ready_s": outage["until_ready_s"],
            "until_verdict_s": outage["until_verdict_s"],
        }


Measure = Callable[[Bench, Sequence[Node]], dict[str, float]]
GROUPS: Mapping[str, tuple[Measure, tuple[int, ...]]] = {
    "transport": (Bench.transport, (1, 8)),
    "release": (Bench.release, (1, 4)),
    "upgrade": (Bench.not_serving, (1,)),
}


def missing(
    results: Results, groups: Sequence[str], passes: int, counts: Sequence[int] = ()
) -> list[tuple[str, int, int]]:
    """Group, nodes and number of every pass that there is not yet: one of each before the next of any."""
    return [
        (group, nodes, number)
        for number in range(1, passes + 1)
        for group in groups
        for nodes in GROUPS[group][1]
        if not counts or nodes in counts
        if (group, nodes, number) not in results.passes
    ]


def machine() -> str:
    """What this machine has: cores, memory, and the kind of the disk that the lab's hosts are on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    device = Path("/var/tmp").stat().st_dev
    block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    block = block if (block / "queue").is_dir() else block.parent
    rotational = block / "queue" / "rotational"
    kind = disk_kind(block.name, rotational.read_text().strip() if rotational.is_file() else "")
    return f"{os.cpu_count()} cores, {memory:.0f} GiB of memory, {kind}"


def disk_kind(name: str, rotational: str) -> str:
    """A disk in words, from its name in the kernel and what that says of rotation: `1`, `0` or nothing."""
    if name.startswith(("vd", "xvd")):
        return "a virtual disk"
    if name.startswith("nvme"):
        return "an NVMe disk"
    return {"1": "a spinning disk", "0": "an SSD"}.get(rotational, "a disk of unknown kind")


# --- the table -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A line of a table: a value, or its ratio to another value of the same pass."""

    title: str
    key: str
    base: str = ""


TABLES: Mapping[str, tuple[str, tuple[Line, ...]]] = {
    "transport": (
        "The wheels to every node",
        (
            Line("the role's copy", "copy_s"),
            Line("one tar stream over SSH / the role's copy", "stream_s", "copy_s"),
            Line("curl from a static server / the role's copy", "fetch_s", "copy_s"),
            Line("the role's copy, then uv alone", "copy_uv_s"),
            Line("uv alone from a static server / copy, then uv", "served_uv_s", "copy_uv_s"),
            Line("to a node by the role's copy", "copy_bytes"),
            Line("to a node by one tar stream / the role's copy", "stream_bytes", "copy_bytes"),
            Line("to a node by curl / the role's copy", "fetch_bytes", "copy_bytes"),
            Line("to a node by uv from a static server / the role's copy", "served_uv_bytes", "copy_bytes"),
            Line("wheels that the copy leaves on a node", "left_bytes"),
        ),
    ),
    "release": (
        "A fresh release and a second environment",
        (
            Line("a fresh release by the role", "role_s"),
            Line("of it: sending and checking the wheels", "role_send_s", "role_s"),
            Line("of it: environment, bytecode, proof of the imports", "role_install_s", "role_s"),
            Line("uv alone / the role's environment", "uv_s", "role_install_s"),
            Line("uv with bytecode and imports / the role's environment", "uv_same_s", "role_install_s"),
            Line("copying uv's environment on the disk / uv alone", "disk_s", "uv_s"),
            Line("a second environment by the role / a fresh release", "second_s", "role_s"),
            Line("of both only the environment", "second_install_s", "role_install_s"),
            Line("uv alone with a warm cache / with a cold one", "uv_second_s", "uv_s"),
            Line("an environment", "venv_bytes"),
            Line("what a second one adds / an environment", "second_bytes", "venv_bytes"),
        ),
    ),
    "upgrade": (
        "A node that does not serve",
        (
            Line("the engine's own start", "engine_s"),
            Line(
                "an upgrade, until the new server answers / the engine's start", "until_ready_s", "engine_s"
            ),
            Line("an upgrade, until it passed the gate / the engine's start", "until_verdict_s", "engine_s"),
        ),
    ),
}


def table(results: Results) -> str:
    """All tables in Markdown; a cell is the median of the passes and their least and greatest."""
    lines: list[str] = []
    for group, (title, rows) in TABLES.items():
        runs = {nodes: results.of(group, nodes) for nodes in GROUPS[group][1]}
        heads = [f"{nodes} node{'s' * (nodes > 1)}, n={len(found)}" for nodes, found in runs.items()]
        lines += [f"| {title} | {' | '.join(heads)} |", f"|{'---|' * (len(heads) + 1)}"]
        for row in rows:
            lines.append(f"| {row.title} | {' | '.join(cell(found, row) for found in runs.values())} |")
        lines.append("")
    every = list(results.passes.values())
    if every:
        loads = [one.load for one in every]
        lines.append(
            f"Measured on {' and '.join(sorted({one.machine for one in every}))}, with the stack "
            f"{' and '.join(sorted({one.stack for one in every}))}. The load average before a pass was "
            f"{min(loads):.1f} to {max(loads):.1f}."
        )
    return "\n".join(lines)


def cell(passes: Sequence[Pass], row: Line) -> str:
    """The median of a value or ratio, with its spread where there is more than one pass."""
    numbers = [one.values[row.key] / (one.values[row.base] if row.base else 1) for one in passes]
    if not numbers:
        return "not measured"
    shown = [show(value, row) for value in (statistics.median(numbers), min(numbers), max(numbers))]
    return shown[0] if len(numbers) == 1 else f"{shown[0]} ({shown[1]} to {shown[2]})"


def show(value: float, row: Line) -> str:
    """A number with its unit: a ratio has none."""
    if row.base:
        return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"
    return f"{value:.1f} s" if row.key.endswith("_s") else f"{value / MIB:.0f} MiB"


# --- the command line ----------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    description, _, more = (__doc__ or "").partition("\n\n")
    made = argparse.ArgumentParser(
        description=description, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.error = partial(_refuse, made)  # type: ignore[method-assign]
    made.add_argument("--group", action="append", choices=list(GROUPS), help="only this one (again for more)")
    counts = sorted({count for _measure, nodes in GROUPS.values() for count in nodes})
    made.add_argument(
        "--nodes", action="append", type=int, choices=counts, help="only with so many (again for more)"
    )
    made.add_argument("--passes", type=int, default=3, help="passes over each group (default: %(default)s)")
    made.add_argument(
        "--stack", default="cpu-demo", help="the stack that is installed (default: %(default)s)"
    )
    made.add_argument(
        "--upgrade", default="cpu-demo-0.5.23", help="the stack to upgrade to (default: %(default)s)"
    )
    made.add_argument(
        "--wheelhouse", type=Path, default=HOUSE, help="where its wheels are (default: site.yml's)"
    )
    made.add_argument(
        "--nginx", type=Path, default=_nginx(), help="the static server (default: the installed one)"
    )
    made.add_argument(
        "--port", type=int, default=PORT, help="the static server's port (default: %(default)s)"
    )
    made.add_argument(
        "--lab", default="bench-install", help="name of the lab, which must be free (default: %(default)s)"
    )
    made.add_argument(
        "--results", type=Path, default=RESULTS, help="file of the passes (default: build/install.jsonl)"
    )
    made.add_argument("--again", action="store_true", help="measure the selected groups anew")
    made.add_argument("--list", action="store_true", help="name the passes that are missing, measure nothing")
    made.add_argument("--table", type=Path, help="write the tables to this file as well")
    return made


def _refuse(made: argparse.ArgumentParser, message: str) -> NoReturn:
    made.exit(USAGE, f"install: {message}; --help says more\n")


def _nginx() -> Path:
    return Path(shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or "/usr/sbin/nginx")


def locked_wheels(stack: str, house: Path) -> list[dict[str, Any]]:
    """The wheels of a stack's lock, all of which must be there. Raises BenchError."""
    locks = sorted((ROOT / "catalog" / "stacks").glob(f"{stack}.*.lock"))
    if not locks:
        raise BenchError(
            f"--stack {stack}: catalog/stacks has no lock of it; only a locked stack can be measured"
        )
    wheels: list[dict[str, Any]] = read_lock(locks[0].read_text(encoding="utf-8"))["wheels"]
    lacking = [
        wheel["file"]
        for wheel in wheels
        if not (house / wheel["file"]).is_file() or (house / wheel["file"]).stat().st_size != wheel["size"]
    ]
    if lacking:
        raise BenchError(
            f"{house} lacks {len(lacking)} of the {len(wheels)} wheels of {stack}, such as {lacking[0]}: "
            "`make demo` or site.yml fetches them"
        )
    return wheels


def refuse_what_cannot_be(options: argparse.Namespace, wanted: int) -> None:
    """Say what is missing before anything is started; `wanted` is in GB of disk. Raises BenchError."""
    if os.geteuid():
        raise BenchError("the lab's hosts need root")
    if not options.nginx.is_file():
        raise BenchError(f"{options.nginx} does not exist: install nginx, or name it by --nginx")
    home = Path(os.environ.get("SMOKESTACK_LAB_HOME") or "/var/tmp")
    free = shutil.disk_usage(home if home.is_dir() else home.parent).free / 1e9
    if free < wanted:
        raise BenchError(
            f"{home}: {free:.0f} GB are free, the lab's nodes need {wanted}; make room, or set "
            "SMOKESTACK_LAB_HOME, or choose fewer by --group and --nodes"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; the exit status."""
    options = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _terminated)
    groups = options.group or list(GROUPS)
    try:
        if options.passes < 1:
            raise BenchError(f"--passes must be at least 1, not {options.passes}")
        results = Results.read(options.results)
        if options.again:
            results.passes = {key: one for key, one in results.passes.items() if key[0] not in groups}
        todo = missing(results, groups, options.passes, options.nodes or ())
        if options.list:
            print("\n".join(f"{group}, {nodes} nodes, pass {number}" for group, nodes, number in todo))
            return 0
        if todo:
            measure(options, results, todo)
    except BenchError as error:
        print(f"install: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("install: stopped; the same command goes on from here", file=sys.stderr)
        return 1
    text = table(results)
    print(text)
    if options.table:
        options.table.write_text(f"{HEAD}\n{text}\n", encoding="utf-8")
    return 0


def measure(options: argparse.Namespace, results: Results, todo: Sequence[tuple[str, int, int]]) -> None:
    """Measure these passes on a lab that is gone afterwards. Raises BenchError."""
    most = max(nodes for _group, nodes, _number in todo)
    refuse_what_cannot_be(options, max(DISK_GB[group] * nodes for group, nodes, _number in todo))
    house = options.wheelhouse.resolve()
    wheels = locked_wheels(options.stack, house)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="install-")))
        lab = stack.enter_context(lab_hosts(options.lab, most))
        url = stack.enter_context(served(options.nginx, house, lab.gateway, options.port, folder / "nginx"))
        for group, nodes, number in todo:
            told = f"{group}, {nodes} nodes, pass {number}"
            bench = Bench(lab, house, options.stack, options.upgrade, wheels, url, folder, partial(say, told))
            load = os.getloadavg()[0]
            values = GROUPS[group][0](bench, lab.nodes[:nodes])
            results.add(Pass(group, nodes, number, values, load, machine(), options.stack))
            bench.empty(lab.nodes[:nodes])


def say(*words: str) -> None:
    print(": ".join(words), file=sys.stderr, flush=True)


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


HEAD = """# What it costs to bring a stack to a node

Made by `bench/install.py`; see [README.md](README.md). Medians, in brackets the least and the greatest of n
passes. A ratio is of two figures of the same pass. Seconds are until the last node is done.
"""

if __name__ == "__main__":
    sys.exit(main())
