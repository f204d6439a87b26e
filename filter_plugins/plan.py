"""The plan of a node: what it should run, named by what it is made of. No host is touched here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

SHORT = 12
GIB = 1 << 30


def fingerprint(value: Any) -> str:
    """The SHA-256 of data, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def deployment_plan(
    stack: Mapping[str, Any],
    profile: Mapping[str, Any],
    lock: Mapping[str, Any],
    root: str = "/opt/sglang",
) -> dict[str, Any]:
    """What one node should run.

    The checkpoint's folder is named by its files' hashes, so that a re-uploaded checkpoint is another model.
    """
    files = dict(profile["checkpoint"]["files"])
    model = f"{profile['name']}-{fingerprint(files)[:SHORT]}"
    return {
        "root": root,
        "stack": dict(stack),
        "profile": dict(profile),
        "lock": dict(lock),
        "lock_id": fingerprint(lock["wheels"]),
        "download_bytes": sum(wheel["size"] for wheel in lock["wheels"]),
        "model": model,
        "model_path": f"{root}/models/{model}",
    }


def plan_wheels(plan: Mapping[str, Any], kernel: Mapping[str, str] | None = None) -> dict[str, str]:
    """File name to SHA-256 of every wheel of a node: those of the lock, and the kernel's if there is one."""
    wheels = {wheel["file"]: wheel["sha256"] for wheel in plan["lock"]["wheels"]}
    if kernel:
        wheels[kernel["file"]] = kernel["sha256"]
    return wheels


def venv_id(plan: Mapping[str, Any], kernel: Mapping[str, str] | None = None) -> str:
    """The name of an environment: a hash of its lock, the kernel wheel's SHA-256 and the Python ABI."""
    return fingerprint([plan["lock_id"], kernel["sha256"] if kernel else None, plan["lock"]["abi"]])[:SHORT]


def release_id(
    plan: Mapping[str, Any], venv: str, launch: Sequence[str], environment: Mapping[str, Any]
) -> str:
    """The name of a release: stack, profile, and a hash of venv, model, arguments and variables."""
    parts = [venv, plan["model"], list(launch), dict(environment)]
    return f"{plan['stack']['name']}.{plan['profile']['name']}.{fingerprint(parts)[:SHORT]}"


def wheel_bundles(
    plan: Mapping[str, Any], missing: Sequence[str], limit: int = 256 << 20
) -> list[dict[str, Any]]:
    """Group the missing wheels into bundles of about `limit` bytes, sent one by one: {files, bytes, note}."""
    sizes = {wheel["file"]: wheel["size"] for wheel in plan["lock"]["wheels"]}
    bundles: list[dict[str, Any]] = []
    for name in sorted(missing, key=lambda file: -sizes.get(file, 0)):
        size = sizes.get(name, 0)
        if not bundles or bundles[-1]["bytes"] + size > limit:
            bundles.append({"files": [], "bytes": 0})
        bundles[-1]["files"].append(name)
        bundles[-1]["bytes"] += size
    for number, bundle in enumerate(bundles, 1):
        bundle["note"] = (
            f"bundle {number} of {len(bundles)}, {len(bundle['files'])} wheels, "
            f"{bundle['bytes'] / (1 << 20):.0f} MiB"
        )
    return bundles


def plan_lines(plan: Mapping[str, Any], manifest: Mapping[str, Any] | None) -> list[str]:
    """The plan for an operator, a sentence a line; `manifest` is the current release's, or None."""
    manifest = manifest or {}
    wheels = f"{len(plan['lock']['wheels'])} wheels, {plan['download_bytes'] / GIB:.2f} GiB"
    rows = (
        ("stack", manifest.get("stack"), plan["stack"]["name"]),
        ("wheels", manifest.get("lock_id", "")[:SHORT], plan["lock_id"][:SHORT]),
        ("model", manifest.get("model"), plan["model"]),
    )
    lines = []
    for what, now, then in rows:
        detail = f" ({wheels})" if what == "wheels" and now != then else ""
        lines.append(f"{what}: stays {then}" if now == then else f"{what}: {now or 'none'} -> {then}{detail}")
    return lines


class FilterModule:
    """Filters about a node's plan."""

    def filters(self) -> dict[str, Any]:
        return {
            "deployment_plan": deployment_plan,
            "plan_wheels": plan_wheels,
            "venv_id": venv_id,
            "release_id": release_id,
            "wheel_bundles": wheel_bundles,
            "plan_lines": plan_lines,
        }
