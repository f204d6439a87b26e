"""How a long step on a host tells a polling task where it is."""

from __future__ import annotations

import datetime
from pathlib import Path

from .durable import write_json


class Progress:
    """Writes {done, total, note, updated} to a small file; does nothing without a path."""

    def __init__(self, path: str | None):
        self._path = Path(path) if path else None
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self.say(0, 1, "starting")  # the file may hold the last note of an earlier job

    def say(self, done: float, total: float, note: str) -> None:
        """`done` of `total` in any one unit; `note` is the sentence that a person reads."""
        if self._path:
            updated = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
            write_json(self._path, {"done": done, "total": total, "note": note, "updated": updated})


def mib(size: float) -> str:
    """A number of bytes for people."""
    return f"{size / (1 << 20):.0f} MiB"
