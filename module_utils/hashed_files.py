"""Folders of large files that are trusted by their SHA-256."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from .durable import read_json, write_json

INDEX = ".verified.json"
BLOCK = 1 << 20


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def unverified(
    folder: Path,
    wanted: Mapping[str, str],
    remember: bool = True,
    watch: Callable[[int, str], None] = lambda _number, _name: None,
) -> dict[str, str]:
    """Say which of the wanted files (name -> SHA-256) are not there as wanted.

    Returns name -> reason, empty when all is well. A file that was hashed before is not read again while its
    size and modification time (ns) stay the same; the memory is `INDEX` in the folder, written only when
    `remember` is true. `watch` is called with the number and the name of each file before it is read.
    """
    known = read_json(folder / INDEX) or {}
    fresh: dict[str, list[object]] = {}
    wrong: dict[str, str] = {}
    for number, (name, sha256) in enumerate(wanted.items()):
        path = folder / name
        if not path.is_file():
            wrong[name] = "missing"
            continue
        stat = path.stat()
        entry = known.get(name)
        if not (isinstance(entry, list) and entry[:2] == [stat.st_size, stat.st_mtime_ns]):
            watch(number, name)
            entry = [stat.st_size, stat.st_mtime_ns, sha256_of(path)]
        fresh[name] = entry
        if entry[2] != sha256:
            wrong[name] = f"its SHA-256 is {entry[2]}, wanted {sha256}"
    merged = {**known, **fresh}
    if remember and merged != known and folder.is_dir():
        write_json(folder / INDEX, merged)
    return wrong
