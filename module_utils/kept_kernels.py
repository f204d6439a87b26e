"""Kernel wheels that were built: each lies in the wheelhouse with a file beside it that declares it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .durable import read_json

ENDING = ".kernel.json"


def records(house: Path) -> list[dict[str, Any]]:
    """What is kept beside the wheels that were built, the newest last."""
    there = (read_json(path) for path in house.glob(f"*.whl{ENDING}"))
    return sorted((record for record in there if record), key=lambda record: str(record["built"]))


def drop(house: Path, record: dict[str, Any], but: str = "") -> None:
    """Take a wheel out: first the file that declares it; the wheel itself stays where it is named `but`."""
    (house / f"{record['file']}{ENDING}").unlink(missing_ok=True)
    if record["file"] != but:
        (house / record["file"]).unlink(missing_ok=True)
