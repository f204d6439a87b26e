"""Building a kernel wheel on the builder: one at a time, below a ceiling of memory, resumed after a kill.

A build has a folder of its own, named by its fingerprint: the source as git's tree says, ninja's objects, the
wheel. The same fingerprint finds the same folder again, and ninja compiles what is missing in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .durable import read_json, write_json
from .hashed_files import sha256_of
from .progress import Progress

GIB = 1 << 30
LOCK = ".building"
STATE = "state.json"
LAST_LINES = 8
SEEN = 400  # characters of a failure's evidence
LEAST_FREE = 64 << 20  # bytes of disk under which a build that failed is told to have filled it
EPOCH = "1577836800"  # of the files in the wheel, so that equal bytes make an equal wheel: 2020-01-01
LARGEST_UNIT_GIB = 16
"""What one process may take whatever the number of jobs: the largest unit of sgl-kernel at 51e5dc845
(fp8_gemm for sm_120a) was measured at 15.2 GiB."""
PASSED_ON = re.compile(
    r"(?i:https?_proxy|no_proxy|all_proxy)|HOME|USER|SSL_CERT_\w+|GIT_SSL_\w+|CCACHE_\w+|TMPDIR"
)
# PEP 517's hook without a front end: nothing can put another environment between the build and torch.
HOOK = (
    "import importlib, json, sys; backend = importlib.import_module(sys.argv[1]); "
    "print('WHEEL', backend.build_wheel(sys.argv[2], json.loads(sys.argv[3])), flush=True)"
)
STEP = re.compile(r"^\[(\d+)/(\d+)\] ")
SCOPE_PROBE = "cat /sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)/memory.max"


class BuildError(Exception):
    """The wheel cannot be built; the message says why and what to do."""


# --- one build at a time -------------------------------------------------------------------------


class Builder:
    """The builder, held by one run; the build holds the lock's descriptor as long as any of it lives."""

    def __init__(self, folder: Path, run: str, what: str, descriptor: int) -> None:
        self.folder, self.descriptor = folder, descriptor
        self._told = {"run": run, "what": what, "since": time.strftime("%Y-%m-%d %H:%M:%S"), "group": None}
        self.tell(None)

    def tell(self, group: int | None) -> None:
        """Say for other runs who works here; `group` is the process group of the build."""
        write_json(self.folder / f"{LOCK}.json", self._told | {"group": group})


@contextlib.contextmanager
def alone(folder: Path, run: str, what: str) -> Iterator[Builder]:
    """Have the builder alone. A build of the same run is waited for.

    Raises BuildError while a build of another run is there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = read_json(folder / f"{LOCK}.json") or {}
            if not run or holder.get("run") != run:
                group = holder.get("group")
                end = f", or end it with: kill -- -{group}" if group else ""
                raise BuildError(
                    f"another build works in {folder}: {holder.get('what', 'not told which')}, "
                    f"since {holder.get('since', 'not told when')}. Wait for it{end}"
                ) from error
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield Builder(folder, run, what, lock.fileno())


# --- what is built, with what --------------------------------------------------------------------


def bring_source(git: str, repository: Path, tree: str, folder: Path) -> None:
    """Write the files of git's tree into `folder`, unless they are there. Raises BuildError."""
    done = folder.with_name(f"{folder.name}.json")
    if (read_json(done) or {}).get("tree") == tree:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    index = folder.with_name(f"{folder.name}.index")
    for arguments in (["read-tree", tree], ["checkout-index", "--all", f"--prefix={folder}/"]):
        result = subprocess.run(
            [git, "-C", str(repository), *arguments],
            env={**os.environ, "GIT_INDEX_FILE": str(index)},
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            raise BuildError(f"{repository} did not give the source {tree}: {result.stderr.strip()}")
    index.unlink()
    os.sync()
    write_json(done, {"tree": tree})


def build_backend(source: Path) -> str:
    """The module that builds the wheel, as pyproject.toml names it. Raises BuildError."""
    try:
        project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))
        backend = str(project["build-system"]["build-backend"])
    except (OSError, ValueError, KeyError) as error:
        raise BuildError(f"{source}/pyproject.toml names no build backend ({error!r})") from error
    if backend != "scikit_build_core.build":
        raise BuildError(
            f"{source}/pyproject.toml is built by {backend}, wanted scikit_build_core.build, "
            "whose settings are given here"
        )
    return backend


def site_packages(venv: Path) -> Path:
    """Where an environment's packages are. Raises BuildError."""
    found = next(venv.glob("lib/python3*/site-packages"), None)
    if found is None:
        raise BuildError(f"{venv} is no environment: it has no lib/python3*/site-packages")
    return found


def torch_state(venv: Path) -> dict[str, str] | None:
    """What names an environment's torch to the file: version, hash of its RECORD, hash over its files' sizes
    and times. None where there is no torch.
    """
    site = site_packages(venv)
    record = next(site.glob("torch-*.dist-info/RECORD"), None)
    if record is None:
        return None
    digest = hashlib.sha256()
    for line in record.read_text(encoding="utf-8").splitlines():
        name = line.rsplit(",", 2)[0].strip('"')
        path = site / name
        if "__pycache__" not in name:
            stat = path.stat() if path.exists() else None
            digest.update(f"{name} {stat and (stat.st_size, stat.st_mtime_ns)}\n".encode())
    return {
        "version": record.parent.name.removeprefix("torch-").removesuffix(".dist-info"),
        "record": sha256_of(record),
        "files": digest.hexdigest(),
    }


def cmake_arguments(
    options: Mapping[str, Any], cuda_home: Path, dependencies: Path | None, ccache: str | None
) -> list[str]:
    """What CMake is given. `dependencies` holds a folder for each name that FetchContent would fetch."""
    given = {"CUDAToolkit_ROOT": str(cuda_home), "CUDA_TOOLKIT_ROOT_DIR": str(cuda_home)}
    if dependencies:
        given["FETCHCONTENT_FULLY_DISCONNECTED"] = "ON"
        for folder in sorted(path for path in dependencies.iterdir() if path.is_dir()):
            given[f"FETCHCONTENT_SOURCE_DIR_{folder.name.upper()}"] = str(folder)
    if ccache:
        given |= {f"CMAKE_{language}_COMPILER_LAUNCHER": ccache for language in ("C", "CXX", "CUDA")}
    given |= {name: cmake_value(value) for name, value in options.items()}
    return [f"-D{name}={value}" for name, value in given.items()]


def cmake_value(value: Any) -> str:
    """A value of the catalogue as CMake reads it."""
    return {True: "ON", False: "OFF"}[value] if isinstance(value, bool) else str(value)


def build_environment(
    venv: Path, cuda_home: Path, archs: Sequence[str], jobs: int, arguments: Sequence[str]
) -> dict[str, str]:
    """All variables of the build: of the machine's own only home, proxies, certificates and ccache's."""
    kept = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
    return kept | {
        "PATH": os.pathsep.join([str(venv / "bin"), str(cuda_home / "bin"), "/usr/bin", "/bin"]),
        "LC_ALL": "C.UTF-8",
        "CUDA_HOME": str(cuda_home),
        "CUDACXX": str(cuda_home / "bin/nvcc"),
        "TORCH_CUDA_ARCH_LIST": " ".join(archs),
        "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs),
        "CMAKE_GENERATOR": "Ninja",
        "CMAKE_ARGS": shlex.join(arguments),
        "SOURCE_DATE_EPOCH": EPOCH,
        "GIT_TERMINAL_PROMPT": "0",
        "PYTHONUNBUFFERED": "1",
    }


# --- the ceiling of memory -----------------------------------------------------------------------


@dataclass(frozen=True)
class Ceiling:
    """How the memory of a build is bounded."""

    kind: str  # systemd, or rlimit
    text: str  # for people
    prefix: tuple[str, ...]  # the words to put before the command


def scope_words(size: int) -> tuple[str, ...]:
    """The words that run a command in a systemd scope with so many bytes of memory."""
    user = () if os.geteuid() == 0 else ("--user",)
    words = ("systemd-run", *user, "--scope", "--quiet", "--collect", "-p", f"MemoryMax={size}")
    return (*words, "-p", "MemorySwapMax=0", "--")


def ceiling(memory_gib: float, jobs: int) -> Ceiling:
    """The ceiling for a build with so many jobs. systemd's counts where a scope is seen to have it."""
    size = int(memory_gib * GIB) // 4096 * 4096
    try:
        probe = subprocess.run(
            [*scope_words(size), "sh", "-c", SCOPE_PROBE],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        enforced = probe.stdout.strip() == str(size)
    except (OSError, subprocess.TimeoutExpired):
        enforced = False
    if enforced:
        return Ceiling("systemd", f"{memory_gib:g} GiB for all, by systemd's MemoryMax", scope_words(size))
    each = min(size, max(size // jobs, LARGEST_UNIT_GIB * GIB))
    return Ceiling(
        "rlimit",
        f"{each / GIB:.3g} GiB for each process, by RLIMIT_DATA: systemd enforces no MemoryMax here, and "
        "nothing bounds what they take together",
        ("prlimit", f"--data={each}:{each}"),
    )


# --- the build -----------------------------------------------------------------------------------


@dataclass
class Steps:
    """How far ninja is. `total` counts the steps of all attempts of this build."""

    done: int = 0  # of this attempt
    left: int = 0  # when this attempt began
    total: int = 0

    def read(self, line: str) -> bool:
        """Take in a line of the build's output; whether it told a step. Ninja counts what is left to do."""
        found = STEP.match(line)
        if not found:
            return False
        self.done, self.left = int(found[1]), max(self.left, int(found[2]))
        self.total = max(self.total, self.left)
        return True

    def note(self, seconds: float) -> str:
        """Where the build is, for a person; `seconds` since its first step began."""
        before = self.total - self.left
        text = f"{before + self.done} of {self.total} units done"
        if self.done and self.left > self.done:
            rest = seconds / self.done * (self.left - self.done)
            text += f", about {rest / 60:.0f} min left" if rest >= 90 else f", about {rest:.0f} s left"
        return text


def run_build(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    log: Path,
    builder: Builder,
    watch: Callable[[str], None],
    deadline_s: float,
) -> int:
    """Run to the end, each line of output into the log and to `watch`; returns the exit status.

    An interruption ends all of its processes. Where this process is killed they go on, and hold the lock.
    Raises BuildError after `deadline_s` seconds.
    """
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        pass_fds=(builder.descriptor,),
    )
    builder.tell(process.pid)
    late = threading.Event()

    def expire() -> None:
        late.set()
        os.killpg(process.pid, signal.SIGTERM)

    timer = threading.Timer(deadline_s, expire)
    timer.start()
    try:
        assert process.stdout is not None
        with log.open("w", encoding="utf-8") as out:
            for line in process.stdout:
                out.write(line)
                out.flush()
                watch(line)
        status = process.wait()
    finally:
        timer.cancel()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
    if late.is_set():
        raise BuildError(f"the build was not done after {deadline_s:.0f} s; run again to go on (log: {log})")
    return status


def diagnose(text: str, status: int, failures: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Why a build failed: {kind, seen (the words that tell it), remedy}, of the first entry that fits.

    `failures` is that of catalog/kernel.yml, each {kind, patterns, remedy}; lines that were wrapped are
    read as one. The kind `unknown` has the last lines.
    """
    flat = " ".join(text.split())
    for failure in failures:
        for pattern in failure["patterns"]:
            found = re.search(pattern, flat)
            if found:
                return {"kind": failure["kind"], "seen": found[0][:SEEN], "remedy": failure["remedy"]}
    last = " | ".join(line.strip() for line in text.strip().splitlines()[-LAST_LINES:])
    return {"kind": "unknown", "seen": f"exit {status}: {last}", "remedy": "read the log"}


@dataclass(frozen=True)
class Job:
    """What is to be built, and how. `fingerprint` names the folder; `tree` is git's id of the source."""

    fingerprint: str
    repository: Path
    tree: str
    venv: Path
    cuda_home: Path
    archs: Sequence[str]
    options: Mapping[str, Any]
    dependencies: Path | None
    jobs: int
    memory_gib: float
    disk_gib: float
    ccache: str | None
    deadline_s: float
    failures: Sequence[Mapping[str, Any]]


def build(job: Job, builder: Builder, git: str, progress: Progress, *, fresh: bool = False) -> dict[str, Any]:
    """Build the wheel in the build's folder; returns {wheel, log, seconds, steps, ...}. Raises BuildError.

    `fresh` forgets what an earlier attempt left. The log of each attempt is kept in the folder `logs`.
    """
    folder = builder.folder
    work = folder / "builds" / job.fingerprint
    if fresh:
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(work).free
    if free < job.disk_gib * GIB:
        raise BuildError(
            f"{work} has {free / GIB:.1f} GiB free, wanted are {job.disk_gib:g} GiB: make room, or set "
            "sgl_kernel_folder to another disk or sgl_kernel_disk_gib to what the build takes"
        )
    bring_source(git, job.repository, job.tree, work / "source")
    (folder / "logs").mkdir(exist_ok=True)
    log = folder / "logs" / f"{job.fingerprint}-{time.strftime('%Y%m%dT%H%M%S')}.log"
    shutil.rmtree(work / "dist", ignore_errors=True)
    (work / "dist").mkdir()
    before = torch_state(job.venv)
    limit = ceiling(job.memory_gib, job.jobs)
    settings = {
        "build-dir": str(work / "objects"),
        "wheel.build-tag": f"0{job.fingerprint}",
        "logging.level": "INFO",
    }
    arguments = cmake_arguments(job.options, job.cuda_home, job.dependencies, job.ccache)
    steps = Steps(total=int((read_json(work / STATE) or {}).get("total", 0)))
    started = first = time.monotonic()
    said = 0.0

    def watch(line: str) -> None:
        nonlocal first, said
        total = steps.total
        if not steps.read(line):
            return
        if steps.done <= 1:
            first = time.monotonic()
        if steps.total != total:
            write_json(work / STATE, {"total": steps.total})
        if time.monotonic() - said > 1:
            said = time.monotonic()
            done = steps.total - steps.left + steps.done
            progress.say(done, steps.total, steps.note(time.monotonic() - first))

    progress.say(0, 1, "configuring")
    argv = [str(job.venv / "bin/python"), "-c", HOOK]
    backend = build_backend(work / "source")
    status = run_build(
        [*limit.prefix, *argv, backend, str(work / "dist"), json.dumps(settings)],
        environment=build_environment(job.venv, job.cuda_home, job.archs, job.jobs, arguments),
        folder=work / "source",
        log=log,
        builder=builder,
        watch=watch,
        deadline_s=job.deadline_s,
    )
    wheels = sorted((work / "dist").glob("*.whl"))
    if status or len(wheels) != 1:
        text = log.read_text(encoding="utf-8", errors="replace")
        if shutil.disk_usage(work).free < LEAST_FREE:
            text += "\nNo space left on device"  # the log may have had no room for it either
        found = diagnose(text, status, job.failures)
        raise BuildError(
            f"the kernel wheel was not built, {found['kind']}: {found['seen']}. {found['remedy']} "
            f"({steps.done} of {steps.left} steps done, memory: {limit.text}; log: {log})"
        )
    after = torch_state(job.venv)
    if after != before:
        raise BuildError(
            f"the build changed the torch that it was built against ({before} became {after}), so the wheel "
            f"is worth nothing: remove {job.venv} and run again (log: {log})"
        )
    return {
        "wheel": str(wheels[0]),
        "sha256": sha256_of(wheels[0]),
        "log": str(log),
        "seconds": round(time.monotonic() - started, 1),
        "steps": steps.done,
        "units": steps.total,
        "torch": after["version"] if after else None,
        "jobs": job.jobs,
        "memory": {"kind": limit.kind, "text": limit.text},
        "ccache": job.ccache,
    }
