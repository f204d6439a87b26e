"""Bringing wheels into a wheelhouse by hash, with pip."""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .hashed_files import sha256_of
from .pip_tags import tag_options
from .progress import Progress, mib

PROCESSES = 4
BATCH = 64 << 20  # bytes a pip process fetches before its wheels are moved in: an interruption loses no more
SPARE = 1 << 30  # bytes left free on the disk


@dataclass(frozen=True)
class Source:
    """Where wheels come from and for whom: index name to URL, Python ABI (`cp311`) and platform."""

    indexes: dict[str, str]
    abi: str
    platform: str


class FetchError(Exception):
    """Wheels could not be brought; the message names the first one and the reason."""


@contextlib.contextmanager
def locked(house: Path) -> Iterator[None]:
    """Have the wheelhouse alone: wait for another run that works on it. The end of a process frees it."""
    with (house / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def batches(wheels: list[dict[str, Any]], limit: int = BATCH) -> list[list[dict[str, Any]]]:
    """Group wheels of one index until a group holds `limit` bytes; the largest come first."""
    groups: list[list[dict[str, Any]]] = []
    for wheel in sorted(wheels, key=lambda item: (item["index"] or "", -item["size"])):
        last = groups[-1] if groups else None
        if (
            last
            and last[0]["index"] == wheel["index"]
            and sum(item["size"] for item in last) + wheel["size"] <= limit
        ):
            last.append(wheel)
        else:
            groups.append([wheel])
    return groups


def folder_size(folder: Path) -> int:
    """Bytes below the folder, while others write to it."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total


def fetch_batch(house: Path, batch: list[dict[str, Any]], source: Source, staging: Path) -> None:
    """Download one batch and move each wheel in."""
    with tempfile.TemporaryDirectory(dir=staging) as name:
        folder = Path(name)
        (folder / "requirements.txt").write_text(
            "".join(f"{item['name']}=={item['version']} --hash=sha256:{item['sha256']}\n" for item in batch)
        )
        index = batch[0]["index"]
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        argv += ["--no-cache-dir", "--no-input", "--disable-pip-version-check", "--only-binary", ":all:"]
        argv += ["--dest", str(folder / "done")]
        argv += tag_options(source.abi, source.platform)
        if index:
            if index not in source.indexes:
                raise FetchError(
                    f"{batch[0]['file']} comes from the index {index!r}, which the stack does not name"
                )
            argv += ["--index-url", source.indexes[index]]
        (folder / "tmp").mkdir()
        done = subprocess.run(
            [*argv, "--requirement", str(folder / "requirements.txt")],
            env={**os.environ, "TMPDIR": str(folder / "tmp")},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            lines = [
                line for line in done.stderr.splitlines() if line.startswith("ERROR")
            ] or done.stderr.splitlines()
            files = ", ".join(item["file"] for item in batch[:3]) + (" ..." if len(batch) > 3 else "")
            raise FetchError(
                f"{files} could not be downloaded from {index or 'PyPI'}: {' '.join(lines[-3:])}"
            )
        for item in batch:
            path = folder / "done" / item["file"]
            if not path.is_file():
                given = sorted(other.name for other in path.parent.iterdir())
                raise FetchError(f"{item['file']} is locked, but the index gave {given}")
            if sha256_of(path) != item["sha256"]:
                raise FetchError(
                    f"{item['file']}: its SHA-256 is {sha256_of(path)}, locked is {item['sha256']}"
                )
            path.chmod(0o644)
            path.replace(house / item["file"])


def fetch(house: Path, missing: list[dict[str, Any]], source: Source, progress: Progress) -> None:
    """Download the wheels into `house`, several pip processes at a time; FetchError names one that failed."""
    need = sum(item["size"] for item in missing)
    free = shutil.disk_usage(house).free
    if need + SPARE > free:
        raise FetchError(
            f"{house} has {mib(free)} free; {len(missing)} wheels need {mib(need)} and {mib(SPARE)} to spare"
        )
    staging = house / ".staging"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    before = folder_size(house)
    stop = threading.Event()

    def report() -> None:
        while not stop.wait(1):
            have = max(0, folder_size(house) - before)
            progress.say(have, need, f"{mib(min(have, need))} of {mib(need)} downloaded")

    watcher = threading.Thread(target=report, daemon=True)
    watcher.start()
    try:
        with concurrent.futures.ThreadPoolExecutor(PROCESSES) as pool:
            jobs = [pool.submit(fetch_batch, house, batch, source, staging) for batch in batches(missing)]
            try:
                for job in concurrent.futures.as_completed(jobs):
                    job.result()
            except FetchError:
                pool.shutdown(cancel_futures=True)
                raise
    finally:
        stop.set()
        shutil.rmtree(staging, ignore_errors=True)
