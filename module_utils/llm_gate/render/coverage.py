"""What a run left out, told once a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def untested_by_reason(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """Each reason with the ids of the probes that did not test anything for it, in the document's order."""
    reasons: dict[str, list[str]] = {}
    for entry in document["coverage"]:
        if not entry["tested"]:
            reasons.setdefault(entry["reason"], []).append(entry["id"])
    return reasons
