"""A plain table for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .coverage import untested_by_reason


def table_lines(document: Mapping[str, Any]) -> list[str]:
    """Every check with its verdict and reason, then what was not tested, the hint and the summary."""
    lines = []
    for probe in document["probes"]:
        tokens = probe["tokens"]
        lines.append(
            f"{probe['id']}: {probe['verdict']}, {probe['duration_s']:.1f} s, {probe['requests']} requests, "
            f"{tokens['prompt']} + {tokens['completion']} tokens"
        )
        lines += [
            f"  {entry['verdict']:<8}{entry['check']:<13}{entry['text']}" for entry in probe["evidence"]
        ]
        if probe["hint"]:
            lines.append(f"  hint    {probe['hint']}")
    lines += [
        f"not tested: {', '.join(names)}: {reason}" for reason, names in untested_by_reason(document).items()
    ]
    return [*lines, document["summary"]]
