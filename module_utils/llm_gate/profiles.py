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

_NUMERIC = ("nan_scan", "lengths", "rescore", "prefix_cache", "concurrency", "long_copy")
_PROGRAMME = ("smoke", "identity", "template", *_NUMERIC, "protocol")

PROFILES: dict[str, tuple[str, ...]] = {
    # The founding questions alone, until the shipped model profiles hold what the numeric probes ask about.
    "quick": ("smoke",),
    "full": (*_PROGRAMME, "golden", "throughput"),
    "soak": (*_PROGRAMME, "golden", "throughput", "soak"),
}
