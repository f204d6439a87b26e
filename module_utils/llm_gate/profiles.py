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

PROFILES: dict[str, tuple[str, ...]] = {
    "quick": ("smoke",),
    "full": ("smoke",),
    "soak": ("smoke",),
}
