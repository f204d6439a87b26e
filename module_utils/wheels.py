"""Bringing wheels into a wheelhouse by hash, with pip."""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from .hashed_files import sha256_of
from .pip_tags import tag_options
from .progress import Progress, mib

PROCESSES = 4
BATCH = 64 << 20  # bytes a pip process fetches before its wheels are moved in: an interruption loses no more
SPARE = 1 << 30  # bytes left free on the disk
RESUMES = 10  # times that pip takes up a download that was cut, with Range requests
NEAREST = 3
LAST_LINES = 6
PYPI = "PyPI"


@dataclass(frozen=True)
class Source:
    """Where wheels come from and for whom: index name to URL, Python ABI (`cp311`) and platform.

    `places` says where a package is pinned: name to {where, line}; `line` is the text to put there, with
    {version} or {public} (a version without its local part) in it.
    """

    indexes: dict[str, str]
    abi: str
    platform: str
    places: dict[str, dict[str, str]] = field(default_factory=dict)

    def options(self, index: str | None) -> list[str]:
        """pip's options for the node's Python and for one index. Raises FetchError for an unknown index."""
        options = ["--only-binary", ":all:", *tag_options(self.abi, self.platform)]
        if index is None:
            return options
        if index not in self.indexes:
            raise FetchError(f"the stack does not name the index {index!r} under indexes")
        return [*options, "--index-url", self.indexes[index]]

    def name(self, index: str | None) -> str:
        """An index for people."""
        return f"{index} ({self.indexes[index]})" if index else PYPI


class FetchError(Exception):
    """Wheels could not be brought; the message names the first one and the reason."""


@contextlib.contextmanager
def locked(house: Path) -> Iterator[None]:
    """Have the wheelhouse alone: wait for another run that works on it. The end of a process frees it."""
    with (house / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def batches(wheels: list[dict[str, Any]], limit: int = BATCH) -> list[list[dict[str, Any]]]:
    """Group wheels of one index until a group holds `limit` bytes; the largest come first.

    pip takes one version of a package at a time: the toolkit's may be another than the environment's.
    """
    groups: list[list[dict[str, Any]]] = []
    for wheel in sorted(wheels, key=lambda item: (item["index"] or "", -item["size"])):
        last = groups[-1] if groups else None
        if (
            last
            and last[0]["index"] == wheel["index"]
            and wheel["name"] not in [item["name"] for item in last]
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


def pip(arguments: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run this interpreter's pip, without questions."""
    argv = [sys.executable, "-m", "pip", *arguments[:1], "--no-input", "--disable-pip-version-check"]
    return subprocess.run([*argv, *arguments[1:]], capture_output=True, text=True, check=False, **options)


def pip_says(done: subprocess.CompletedProcess[str]) -> str:
    """What a failed pip said last, without its advice."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR", "OSError", "Expected sha", "Got"))]
    return "pip says: " + " ".join((errors or lines)[-LAST_LINES:])


def listed_versions(package: str, index: str | None, source: Source) -> list[str]:
    """The versions of a package that an index lists for the node, newest first.

    Raises FetchError when it lists none or does not answer: pip does not tell one from the other.
    """
    done = pip(["index", "versions", "--json", "--pre", *source.options(index), package])
    if done.returncode != 0:
        raise FetchError(
            f"{source.name(index)} does not answer, or lists no {package} for {source.abi} on "
            f"{source.platform}; {pip_says(done)}"
        )
    versions: list[str] = json.loads(done.stdout)["versions"]
    return versions


def nearest(wanted: str, listed: list[str], count: int = NEAREST) -> list[str]:
    """The listed versions that are nearest to one that is gone, the nearest first.

    A nightly's neighbours are those of the nearest days with the same local part (+cu130), those of a release
    the ones before and after it.
    """
    day = nightly_day(wanted)
    local = Version(wanted).local
    if day:
        days = {version: nightly_day(version) for version in listed if Version(version).local == local}
        nights = [(abs((other - day).days), version) for version, other in days.items() if other]
        return [version for _distance, version in sorted(nights)[:count]]
    order = sorted(listed, key=Version)
    place = sum(Version(version) < Version(wanted) for version in order)
    ranked = sorted(range(len(order)), key=lambda rank: abs(rank + 0.5 - place))
    return [order[rank] for rank in ranked[:count]]


def nightly_day(version: str) -> datetime.date | None:
    """The day of a nightly version such as 2.12.0.dev20260307, None for a release."""
    match = re.search(r"\.dev(\d{4})(\d{2})(\d{2})(?!\d)", version)
    with contextlib.suppress(ValueError):
        return datetime.date(*map(int, match.groups())) if match else None
    return None


def gone(package: str, version: str, index: str | None, source: Source) -> str:
    """Why a pinned version cannot be had, where it is not listed any more; '' where it is listed.

    Raises FetchError when the index does not answer.
    """
    listed = listed_versions(package, index, source)
    if Version(version) in map(Version, listed):
        return ""
    place = source.places.get(canonicalize_name(package))
    near = nearest(version, listed)
    text = (
        f"{source.name(index)} does not list {package} {version} for {source.abi} on {source.platform}: "
        f"it has {len(listed)} versions, {listed[-1]} to {listed[0]}. Nearest: {', '.join(near) or 'none'}. "
    )
    if place and near:
        line = place["line"].format(version=near[0], public=Version(near[0]).public)
        text += f"Change {place['where']} to {line!r} and lock the stack again, or "
    return f"{text}bring the wheel with an offline kit (kit.yml) from a builder that kept it"


def fetch_batch(house: Path, batch: list[dict[str, Any]], source: Source, staging: Path) -> None:
    """Download one batch and move each wheel in."""
    index = batch[0]["index"]
    options = source.options(index)
    with tempfile.TemporaryDirectory(dir=staging) as name:
        folder = Path(name)
        (folder / "requirements.txt").write_text(
            "".join(f"{item['name']}=={item['version']} --hash=sha256:{item['sha256']}\n" for item in batch)
        )
        (folder / "tmp").mkdir()
        argv = ["download", "--quiet", "--no-deps", "--require-hashes", "--no-cache-dir", *options]
        argv += ["--resume-retries", str(RESUMES), "--dest", str(folder / "done")]
        done = pip(
            [*argv, "--requirement", str(folder / "requirements.txt")],
            env={**os.environ, "TMPDIR": str(folder / "tmp")},
        )
        if done.returncode != 0:
            raise FetchError(failure(batch, index, source, done))
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


def failure(
    batch: list[dict[str, Any]], index: str | None, source: Source, done: subprocess.CompletedProcess[str]
) -> str:
    """Why pip could not download a batch: an index that is dead, a version that is gone, or what pip says."""
    files = ", ".join(item["file"] for item in batch[:3]) + (" ..." if len(batch) > 3 else "")
    what = f"{files} could not be downloaded from {index or PYPI}: "
    try:
        reasons = (gone(item["name"], item["version"], index, source) for item in batch)
        return what + (next(filter(None, reasons), "") or pip_says(done))
    except FetchError as error:
        return what + str(error)


def fetch(house: Path, missing: list[dict[str, Any]], source: Source, progress: Progress) -> None:
    """Download the wheels into `house`, several pip processes at a time; FetchError names one that failed."""
    need = sum(item["size"] for item in missing)
    groups = batches(missing)
    twice = sum(sorted(sum(item["size"] for item in group) for group in groups)[-PROCESSES:])
    free = shutil.disk_usage(house).free
    if need + twice + SPARE > free:
        raise FetchError(
            f"{house} has {mib(free)} free; {len(missing)} wheels need {mib(need)}, {mib(twice)} while pip "
            f"holds wheels twice, and {mib(SPARE)} to spare: make room, or set wheelhouse_path elsewhere"
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
            jobs = [pool.submit(fetch_batch, house, batch, source, staging) for batch in groups]
            try:
                for job in concurrent.futures.as_completed(jobs):
                    job.result()
            except FetchError:
                pool.shutdown(cancel_futures=True)
                raise
    finally:
        stop.set()
        shutil.rmtree(staging, ignore_errors=True)
