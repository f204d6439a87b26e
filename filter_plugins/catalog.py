"""What the catalogue says: names and model profiles, and refusing what is wrong in them.

A profile is checked against `catalog/schema/model.schema.json` first, by the filter schema_problems.
Problems are returned as sentences that name file, line and key, all at once, so that an operator mends a file
in one go.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

KINDS = ("full_layers", "linear_layers", "sliding_layers")
Problems = Iterator[tuple[str, str]]


def name_problems(name: Any, known: Sequence[str], kind: str, folder: str) -> list[str]:
    """Why `name` does not select an entry of the catalogue; `kind` and `folder` are for the sentence."""
    if not isinstance(name, str) or not name:
        return [f"{kind} is not set: name one of {folder} ({', '.join(sorted(known)) or 'none there'})"]
    if name in known:
        return []
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return [f"{kind} {name!r} is not in {folder} (there: {', '.join(sorted(known)) or 'none'}){hint}"]


def range_problem(versions: str, key: str) -> Problems:
    """Why a text is no range of SGLang's versions."""
    try:
        SpecifierSet(versions)
    except InvalidSpecifier:
        yield (
            key,
            f'{key}: {versions!r} is no range of SGLang\'s versions; write one such as ">=0.5.23"',
        )


def placed(problems: Problems, where: str, lines: Mapping[str, int]) -> list[str]:
    """Problems with the file and the line of their key; `lines` are those of the filter stack_lines."""
    found = sorted({(lines.get(key, 1), sentence) for key, sentence in problems})
    return [f"{where}:{line}: {sentence}" for line, sentence in found]


def profile_problems(profile: Mapping[str, Any], name: str, lines: Mapping[str, int]) -> list[str]:
    """What a schema cannot see, in a model profile that keeps to it: `catalog/models/NAME.yml:LINE: ...`."""
    return placed(contradictions(profile, name), f"catalog/models/{name}.yml", lines)


def contradictions(profile: Mapping[str, Any], name: str) -> Problems:
    """Where a profile contradicts itself or its name, each with the key that it is about."""
    if profile["name"] != name:
        yield "name", f"name is {profile['name']!r}, the file says {name!r}"
    checkpoint = profile["checkpoint"]
    if "files" in checkpoint and "unlocked" in checkpoint:
        yield "checkpoint.unlocked", "checkpoint: files are named, so it is not unlocked; keep one of them"
    if "files" not in checkpoint and "unlocked" not in checkpoint:
        yield (
            "checkpoint",
            "checkpoint: files is missing: file name to SHA-256; or say under unlocked why there are none",
        )
    if "sglang" in profile:
        yield from range_problem(profile["sglang"], "sglang")
    for versions in profile.get("launch_by_version", {}):
        for _key, sentence in range_problem(versions, "launch_by_version"):
            yield f"launch_by_version.{versions}", sentence
    if "architecture" in profile:
        yield from shape_problems(profile["architecture"])
    yield from gpu_problems(profile)


def shape_problems(architecture: Mapping[str, Any]) -> Problems:
    """What is missing in an architecture, or does not add up."""
    kinds = sum(architecture[kind] for kind in KINDS)
    if kinds != architecture["layers"]:
        yield (
            "architecture.layers",
            f"architecture.layers is {architecture['layers']}, but {', '.join(KINDS)} make {kinds}",
        )
    if "latent" not in architecture:
        for key in ("kv_heads", "head_dim"):
            if key not in architecture:
                yield "architecture", f"architecture: {key} is missing, and so is latent"
    if architecture["linear_layers"] and "linear" not in architecture:
        yield "architecture", "architecture: linear is missing: the state of a linear layer"


def gpu_problems(profile: Mapping[str, Any]) -> Problems:
    """Where launch, hardware and gate disagree about the number of GPUs."""
    launch = profile["launch"]
    tensor, pipeline = launch.get("tp_size", 1), launch.get("pp_size", 1)
    copies = 1 if launch.get("enable_dp_attention") else launch.get("dp_size", 1)
    sizes = (tensor, pipeline, copies)
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        yield "launch", f"launch: tp_size, pp_size and dp_size must be whole numbers above 0, not {sizes!r}"
        return
    used = tensor * pipeline * copies
    count = profile.get("hardware", {}).get("count", used)
    if count != used:
        yield (
            "hardware.count",
            f"hardware.count is {count}, but launch uses {used} (tp_size x pp_size x dp_size)",
        )
    expected = profile["gate"].get("expect")
    if isinstance(expected, Mapping) and expected.get("tp_size", tensor) != tensor:
        yield (
            "gate.expect.tp_size",
            f"gate.expect.tp_size is {expected['tp_size']!r}, but launch.tp_size is {tensor}",
        )


def profile_refusals(profile: Mapping[str, Any], stack: Mapping[str, Any]) -> list[str]:
    """Why a right profile cannot be deployed with this stack: no hashes, or another SGLang."""
    problems = []
    name, checkpoint = profile["name"], profile["checkpoint"]
    if "unlocked" in checkpoint:
        fetched = f" from {checkpoint['repository']}" if "repository" in checkpoint else ""
        problems.append(
            f"model profile {name} is not locked: {' '.join(checkpoint['unlocked'].split())} Fetch the "
            f"checkpoint{fetched}, see that it is the one you mean, and write the hashes of its files with: "
            f"tools/lock_model.py {name} FOLDER"
        )
    version = stack["sglang"].get("version")
    wanted = profile.get("sglang")
    if wanted and version and not SpecifierSet(wanted).contains(version, prereleases=True):
        problems.append(
            f"model profile {name} was only seen with SGLang {wanted}, and stack {stack['name']} has "
            f"{version}; name another stack"
        )
    return problems


def kv_scales_problems(table: Mapping[str, Any], lines: Mapping[str, int]) -> list[str]:
    """What a schema cannot see in catalog/kv_scales.yml."""

    def ranges() -> Problems:
        for architecture, entry in table.items():
            yield from range_problem(entry["sglang"], f"{architecture}.sglang")

    return placed(ranges(), "catalog/kv_scales.yml", lines)


class FilterModule:
    """Filters about the catalogue."""

    def filters(self) -> dict[str, Any]:
        return {
            "name_problems": name_problems,
            "profile_problems": profile_problems,
            "profile_refusals": profile_refusals,
            "kv_scales_problems": kv_scales_problems,
        }
