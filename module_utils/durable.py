"""Writes that survive a power cut: a file or link is either the old one or the new one."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace `path` by a file with this text: written beside it, flushed to disk, then renamed."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, document: Any, mode: int = 0o644) -> None:
    """Replace `path` by this document, readable by people and stable in its order."""
    write_text(path, json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n", mode)


def read_json(path: Path) -> Any:
    """The document in `path`, or None where there is none. A torn file counts as none: it was never whole."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))
    return None


def switch_link(link: Path, target: Path) -> None:
    """Point `link` at `target` in one step: a reader sees the old target or the new one, never none."""
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)
    sync_folder(link.parent)


def remove(path: Path) -> None:
    """Remove a file or link if it is there, durably."""
    if path.is_symlink() or path.exists():
        path.unlink()
        sync_folder(path.parent)
