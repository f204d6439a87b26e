"""A file of results that grows by one JSON object a line: a crash loses at most the line that it was at."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine import BenchError


def read_results(path: Path, keep: Callable[[Any], None]) -> None:
    """Give `keep` what each line holds, nothing where there is no file.

    A last line that was torn by a crash is dropped. Any other that is no JSON, or that `keep` cannot take, is
    a BenchError.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    whole, _newline, torn = text.rpartition("\n")
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            keep(json.loads(line))
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise BenchError(f"{path}, line {number}: is no result: {error}") from None
    if torn:
        path.write_text(whole + "\n" if whole else "", encoding="utf-8")


def add_result(path: Path, entry: Mapping[str, Any]) -> None:
    """Write one more line, on disk at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
