"""What a run left out, told once a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def untested_by_reason(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """Each reason with the ids of the probes that were left out for it, in the document's order.

    A probe that ran and could not test anything says so itself.
    """
    ran = {probe["id"] for probe in document["probes"]}
    reasons: dict[str, list[str]] = {}
    for entry in document["coverage"]:
        if not entry["tested"] and entry["id"] not in ran:
            reasons.setdefault(entry["reason"], []).append(entry["id"])
    return reasons
