"""What a node has against what its plan needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

GIB = 1 << 30
UNIT = "sglang.service"
UNPACKED = 4.0
"""Disk that an installation takes per byte of wheels: the wheel on the node (1), its unpacked files (about
2.5 times a wheel's size, as measured with torch's and SGLang's wheels; uv's cache shares them by hard links)
and compiled bytecode."""
OLD_TAGS = {"manylinux1_": (2, 5), "manylinux2010_": (2, 12), "manylinux2014_": (2, 17)}


def finding(level: str, check: str, text: str) -> dict[str, str]:
    return {"level": level, "check": check, "text": text}


def needed_glibc(wheels: list[Mapping[str, Any]]) -> tuple[int, int]:
    """The newest glibc that some wheel's platform tag asks for, (0, 0) where none asks.

    A wheel with several tags asks for the lowest.
    """
    newest = (0, 0)
    for wheel in wheels:
        tags = [
            (int(major), int(minor)) for major, minor in re.findall(r"manylinux_(\d+)_(\d+)_", wheel["file"])
        ]
        tags += [needs for tag, needs in OLD_TAGS.items() if tag in wheel["file"]]
        if tags:
            newest = max(newest, min(tags))
    return newest


def disk_bytes(plan: Mapping[str, Any]) -> float:
    """Disk that the deployment will take: wheels and weights that are not there yet, and the environment."""
    moved = plan["transfer"]
    environment = 0 if moved["environment"] else plan["download_bytes"] * (UNPACKED - 1)
    return float(moved["wheels"]["bytes"] + moved["model"]["bytes"] + environment)


def preflight_findings(
    facts: Mapping[str, Any], plan: Mapping[str, Any], spare_disk_gib: float
) -> list[dict[str, str]]:
    """Findings {level: ok or refuse, check, text}, one a check."""
    findings = []
    wanted_disk = disk_bytes(plan) / GIB + float(spare_disk_gib)
    have_disk = facts["disk_free_gib"]
    level = "ok" if have_disk >= wanted_disk else "refuse"
    need = f"what is to come needs {wanted_disk:.1f} GiB, {float(spare_disk_gib):g} of them to spare"
    findings.append(finding(level, "disk", f"{have_disk:.1f} GiB free at {plan['root']}; {need}"))

    wanted_memory = float(plan["profile"].get("needs", {}).get("memory_gib", 0))
    level = "ok" if facts["memory_gib"] >= wanted_memory else "refuse"
    findings.append(
        finding(
            level,
            "memory",
            f"{facts['memory_gib']:.1f} GiB of memory; the profile needs {wanted_memory:g} GiB",
        )
    )

    glibc = needed_glibc(plan["lock"]["wheels"])
    have_glibc = tuple(int(part) for part in facts["glibc"].split(".")[:2]) if facts["glibc"] else (0, 0)
    level = "ok" if have_glibc >= glibc else "refuse"
    findings.append(finding(level, "glibc", f"glibc {facts['glibc']}; the wheels need {glibc[0]}.{glibc[1]}"))

    holder = facts["port_holder"]
    if holder is None or holder["unit"] == UNIT:
        findings.append(finding("ok", "port", "the port is free or held by our unit"))
    else:
        who = f"{holder['name'] or 'an unknown process'} (PID {holder['pid']}, unit {holder['unit']})"
        findings.append(
            finding(
                "refuse",
                "port",
                f"the port is taken by {who}: stop it, or set sglang_server_port to another one",
            )
        )
    return findings


class FilterModule:
    """Filters of the preflight."""

    def filters(self) -> dict[str, Any]:
        return {"preflight_findings": preflight_findings}
