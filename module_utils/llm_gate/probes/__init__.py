"""The probes, by name: Ansible ships only what is imported, so nothing is discovered."""

from __future__ import annotations

from ..probe import Probe
from . import (
    concurrency,
    golden,
    identity,
    lengths,
    long_copy,
    nan_scan,
    prefix_cache,
    protocol,
    rescore,
    smoke,
    soak,
    template,
    throughput,
)

PROBES: dict[str, Probe] = {
    probe.id: probe
    for probe in (
        smoke.PROBE,
        identity.PROBE,
        template.PROBE,
        nan_scan.PROBE,
        lengths.PROBE,
        rescore.PROBE,
        prefix_cache.PROBE,
        concurrency.PROBE,
        long_copy.PROBE,
        protocol.PROBE,
        golden.PROBE,
        throughput.PROBE,
        soak.PROBE,
    )
}
