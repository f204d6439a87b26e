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

_NUMERIC = ("identity", "nan_scan", "lengths", "rescore", "prefix_cache", "concurrency", "long_copy")

PROFILES: dict[str, tuple[str, ...]] = {
    # The founding questions alone, until the shipped model profiles hold what the numeric probes ask about.
    "quick": ("smoke",),
    "full": ("smoke", *_NUMERIC, "golden", "throughput"),
    "soak": ("smoke", *_NUMERIC, "golden", "throughput", "soak"),
}
