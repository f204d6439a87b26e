"""The probes, by name: Ansible ships only what is imported, so nothing is discovered."""

from __future__ import annotations

from ..probe import Probe
from . import smoke

PROBES: dict[str, Probe] = {probe.id: probe for probe in (smoke.PROBE,)}
