"""The run profiles: which probes each asks for."""

from __future__ import annotations

# Every id that a report accounts for, in the order of the report.
PROBE_IDS = (
    "smoke",
    "identity",
    "template",
    "nan_scan",
    "lengths",
    "rescore",
    "prefix_cache",
    "concurrency",
    "long_copy",
    "protocol",
    "golden",
    "throughput",
    "soak",
)

_PROGRAMME = (
    "smoke",
    "identity",
    *("template", "protocol"),  # side by side
    *("nan_scan", "lengths", "rescore", "prefix_cache", "concurrency", "long_copy"),
    "golden",
    "throughput",  # the speed of wrong answers means nothing
)

# `full` asks the same probes for more: what `gate.full` of the model profile says.
PROFILES: dict[str, tuple[str, ...]] = {
    "quick": _PROGRAMME,
    "full": _PROGRAMME,
    "soak": (*_PROGRAMME, "soak"),
}
