"""What the catalogue says: names and model profiles, and refusing what is wrong in them.

Problems are returned as sentences, all at once, so that an operator mends a file in one go.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

SHA256 = re.compile(r"[0-9a-f]{64}")
PROFILE_KEYS = {
    "name": str,
    "title": str,
    "sources": list,
    "served_name": str,
    "checkpoint": dict,
    "launch": dict,
    "launch_by_version": dict,
    "environment": dict,
    "needs": dict,
    "gate": dict,
}
PROFILE_REQUIRED = ("name", "title", "served_name", "checkpoint", "launch", "gate")
CHECKPOINT_KEYS = {"path": str, "revision": str, "files": dict, "made_by": str}
CHECKPOINT_REQUIRED = ("path", "files")


def name_problems(name: Any, known: Sequence[str], kind: str, folder: str) -> list[str]:
    """Why `name` does not select an entry of the catalogue; `kind` and `folder` are for the sentence."""
    if not isinstance(name, str) or not name:
        return [f"{kind} is not set: name one of {folder} ({', '.join(sorted(known)) or 'none there'})"]
    if name in known:
        return []
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return [f"{kind} {name!r} is not in {folder} (there: {', '.join(sorted(known)) or 'none'}){hint}"]


def key_problems(where: str, data: Any, known: Mapping[str, type], required: Sequence[str]) -> list[str]:
    """Unknown keys, missing keys and wrong types of one mapping."""
    if not isinstance(data, Mapping):
        return [f"{where} must be a mapping, not {type(data).__name__}"]
    problems = [f"{where}: {key} is missing" for key in required if key not in data]
    for key, value in data.items():
        if key not in known:
            near = difflib.get_close_matches(str(key), list(known), n=1)
            problems.append(
                f"{where}: unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")
            )
        elif not isinstance(value, known[key]):
            problems.append(f"{where}: {key} must be a {known[key].__name__}, not {type(value).__name__}")
    return problems


def option_problems(where: str, options: Any) -> list[str]:
    """What is wrong in launch options that a profile names."""
    if not isinstance(options, Mapping):
        return [f"{where} must be a mapping of options, not {type(options).__name__}"]
    return [
        f"{where} option {option} must be a plain value or a list, not {type(value).__name__}"
        for option, value in options.items()
        if isinstance(value, Mapping) or not isinstance(value, (str, int, float, bool, list, type(None)))
    ]


def profile_problems(profile: Any, name: str) -> list[str]:
    """What is wrong in a model profile."""
    where = f"catalog/models/{name}.yml"
    problems = key_problems(where, profile, PROFILE_KEYS, PROFILE_REQUIRED)
    if problems:
        return problems
    if profile["name"] != name:
        problems.append(f"{where}: name is {profile['name']!r}, the file says {name!r}")
    checkpoint = profile["checkpoint"]
    problems += key_problems(f"{where}: checkpoint", checkpoint, CHECKPOINT_KEYS, CHECKPOINT_REQUIRED)
    if problems:
        return problems
    for file, sha256 in checkpoint["files"].items():
        if not isinstance(sha256, str) or not SHA256.fullmatch(sha256):
            problems.append(
                f"{where}: checkpoint file {file} needs its SHA-256 (64 hexadecimal digits), not {sha256!r}"
            )
    problems += option_problems(f"{where}: launch", profile["launch"])
    for versions, options in profile.get("launch_by_version", {}).items():
        try:
            SpecifierSet(versions)
        except (InvalidSpecifier, TypeError):
            problems.append(
                f"{where}: launch_by_version: {versions!r} is no range of SGLang's versions; "
                'write one such as ">=0.5.23"'
            )
        problems += option_problems(f"{where}: launch_by_version {versions}:", options)
    return problems


class FilterModule:
    """Filters about the catalogue."""

    def filters(self) -> dict[str, Any]:
        return {
            "name_problems": name_problems,
            "profile_problems": profile_problems,
        }
