"""The catalogue: what is wrong in a file is said in full, and what is shipped is right."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from data.tiny_model.break_model import break_checkpoint
from launch import launch_args
from llm_gate.model_profile import read_model_profile
from plan import profile_launch
from stacks import SCHEMAS, schema_problems, stack_lines
from vram import model_fit

from catalog import kv_scales_problems, name_problems, profile_problems, profile_refusals

ROOT = Path(__file__).parents[2]
CATALOG = ROOT / "catalog"
PROFILES = sorted((CATALOG / "models").glob("*.yml"))
LOCKED = {"tiny-qwen3", "tiny-qwen3-nan"}
"""Their files were hashed. No checkpoint of the others was ever here: a hash in one would be a forgery."""

TEXT = """---
name: tiny
title: A model
sources: [https://example.org]
served_name: tiny
sglang: ">=0.5.9"
checkpoint:
  path: models/tiny
  repository: somebody/tiny
  files:
    config.json: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
architecture:
  name: TinyForCausalLM
  layers: 8
  full_layers: 2
  linear_layers: 6
  sliding_layers: 0
  kv_heads: 2
  head_dim: 32
  max_positions: 4096
  linear: {key_heads: 1, value_heads: 2, key_dim: 8, value_dim: 8, conv_kernel: 4, state_dtype: float32}
sizes:
  disk_gb: 1.5
  vram:
    - {gpus: 2, weights_gib: 0.7, source: "https://example.org"}
kv_cache: {scales: none, source: "https://example.org"}
hardware: {gpu: X, count: 2, memory_gib: 32, source: "https://example.org"}
speeds:
  - {concurrency: 1, tokens_per_second: 70.5, with: this launch, tier: measured, source: "https://example.org"}
launch:
  tp_size: 2
  sizes: [1, 2]
  flag: true
  off: null
launch_by_version:
  ">=0.5.23": {flag: false}
environment: {A: "1"}
needs: {memory_gib: 3}
gate:
  expect: {tp_size: 2}
"""


def problems(text: str, name: str = "tiny") -> list[str]:
    """What the plan finds in a profile: the schema first, then what it cannot see."""
    where = f"catalog/models/{name}.yml"
    return schema_problems(text, where, "model.schema.json") or profile_problems(
        yaml.safe_load(text), name, stack_lines(text)
    )


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("demo", None),
        ("dmeo", "stack 'dmeo' is not in catalog/stacks (there: demo, other); did you mean 'demo'?"),
        ("xyz", "stack 'xyz' is not in catalog/stacks (there: demo, other)"),
        ("", "stack is not set: name one of catalog/stacks (demo, other)"),
        (None, "stack is not set: name one of catalog/stacks (demo, other)"),
        (7, "stack is not set: name one of catalog/stacks (demo, other)"),
    ],
    ids=["known", "misspelt", "unknown", "empty", "null", "number"],
)
def test_a_name_must_select_an_entry(name: Any, problem: str | None) -> None:
    assert name_problems(name, ["other", "demo"], "stack", "catalog/stacks") == ([problem] if problem else [])


def test_an_empty_catalogue_is_said_to_be_empty() -> None:
    (problem,) = name_problems("demo", [], "stack", "catalog/stacks")
    assert problem.endswith("(there: none)")


# --- profiles ------------------------------------------------------------------------------------


def said(old: str, new: str) -> list[str]:
    """The problems of the profile after one replacement, without the file's name."""
    assert old in TEXT
    return [found.removeprefix("catalog/models/tiny.yml:") for found in problems(TEXT.replace(old, new, 1))]


def test_a_right_profile_has_no_problems() -> None:
    assert problems(TEXT) == []


FILES = "  files:\n    config.json: " + "a" * 64 + "\n"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        pytest.param(
            "launch:", "lunch: {}\nlaunch:", "30: unknown key 'lunch'; did you mean 'launch'?", id="misspelt"
        ),
        pytest.param(
            "gate:\n  expect: {tp_size: 2}\n", "", "2: gate is missing: what the gate asks", id="missing"
        ),
        pytest.param(
            "title: A model", "title: 7", "3: title: must be a text, not 7; write it in quotes", id="number"
        ),
        pytest.param(
            "name: tiny", "name: other", "2: name is 'other', the file says 'tiny'", id="another name"
        ),
        pytest.param("served_name: tiny", "served_name: [", "7: not YAML: ", id="not YAML"),
        pytest.param(
            "title: A model", "title: A model\ntitle: B", "4: title is there twice", id="a key twice"
        ),
        pytest.param("  path: models/tiny", "  pathh: x", "7: checkpoint: path is missing", id="no path"),
        pytest.param(
            FILES,
            "",
            "7: checkpoint: files is missing: file name to SHA-256; or say under unlocked",
            id="no files",
        ),
        pytest.param(
            FILES, FILES + "  unlocked: why\n", "12: checkpoint: files are named, so it is not", id="both"
        ),
        pytest.param(
            "somebody/tiny",
            "https://hub",
            "9: checkpoint.repository: must be the repository",
            id="an address",
        ),
        pytest.param(
            "repository: somebody/tiny",
            "revision: main",
            "9: checkpoint.revision: must be the commit",
            id="a branch",
        ),
        pytest.param('">=0.5.9"', "new", "6: sglang: 'new' is no range of SGLang's versions", id="no range"),
        pytest.param(
            "tp_size: 2\n  sizes",
            "odd: {a: 1}\n  sizes",
            "31: launch.odd: must be a plain value or",
            id="nested",
        ),
        pytest.param(
            "  flag: true", "  fl-ag: true", "30: launch: must be in lower case with underscores", id="dash"
        ),
        pytest.param(
            '">=0.5.23": {',
            '"0.5.23": {',
            "36: launch_by_version: '0.5.23' is no range",
            id="no range of options",
        ),
        pytest.param(
            "{flag: false}",
            "x",
            "36: launch_by_version.>=0.5.23: must be a mapping, not 'x'",
            id="no options",
        ),
        pytest.param(
            "{flag: false}",
            "{odd: {}}",
            "36: launch_by_version.>=0.5.23.odd: must be a plain",
            id="nested for a version",
        ),
        pytest.param(
            'A: "1"', "A: 1", "37: environment.A: must be a text, not 1; write it in quotes", id="variable"
        ),
        pytest.param(
            "layers: 8", "layers: 9", "14: architecture.layers is 9, but full_layers, linear_layers", id="sum"
        ),
        pytest.param(
            "  kv_heads: 2\n", "", "12: architecture: kv_heads is missing, and so is latent", id="no heads"
        ),
        pytest.param(
            "state_dtype: float32}", "}", "21: architecture.linear: state_dtype is missing", id="half a state"
        ),
        pytest.param(
            "layers: 8",
            "layers: eight",
            "14: architecture.layers: must be a whole number, not 'eight'",
            id="word",
        ),
        pytest.param(
            "disk_gb: 1.5",
            "disk_gb: large",
            "23: sizes.disk_gb: must be a number, not 'large'",
            id="no number",
        ),
        pytest.param(
            "disk_gb: 1.5",
            "disk_gb: 0",
            "23: sizes.disk_gb: must be its files, in 10^9 bytes, not 0",
            id="nothing",
        ),
        pytest.param(
            "scales: none", "scales: most", "26: kv_cache.scales: must be all, some or none of", id="scales"
        ),
        pytest.param(
            "count: 2",
            "count: 4",
            "27: hardware.count is 4, but launch uses 2 (tp_size x pp_size x dp_size)",
            id="GPUs",
        ),
        pytest.param(
            "expect: {tp_size: 2}",
            "expect: {tp_size: 8}",
            "40: gate.expect.tp_size is 8, but launch.tp_size is 2",
            id="gate",
        ),
        pytest.param(
            "tp_size: 2\n",
            "tp_size: two\n",
            "30: launch: tp_size, pp_size and dp_size must be whole numbers above",
            id="no size",
        ),
        pytest.param(
            "tier: measured",
            "tier: heard",
            "29: speeds[0].tier: must be measured (by us), submitted",
            id="tier",
        ),
        pytest.param(
            'tier: measured, source: "https://example.org"',
            "tier: measured",
            "29: speeds[0]: source is missing",
            id="no source",
        ),
    ],
)
def test_what_is_wrong_in_a_profile_is_said_with_its_line(old: str, new: str, problem: str) -> None:
    found = said(old, new)
    assert found
    assert any(line.startswith(problem) for line in found), found


@pytest.mark.parametrize(
    "sha256", ["0" * 63, "0" * 65, "G" * 64, "A" * 64, "''", "null", "0", f'"{"0" * 64}\\n"']
)
def test_a_checkpoint_file_needs_a_whole_hash(sha256: str) -> None:
    (problem,) = said("a" * 64, sha256)
    assert problem.startswith("11: checkpoint.files.config.json: must be a")


def test_every_problem_of_a_file_is_said_at_once() -> None:
    spoilt = TEXT.replace("title: A model\n", "titel: x\n").replace("scales: none", "scales: 1")
    assert [problem.split(": ")[0] + problem.split(": ")[1] for problem in problems(spoilt)] == [
        "catalog/models/tiny.yml:2title is missing",
        "catalog/models/tiny.yml:3unknown key 'titel'; did you mean 'title'?",
        "catalog/models/tiny.yml:26kv_cache.scales",
    ]


@pytest.mark.parametrize("text", ["", "[]", "text"], ids=["empty", "list", "text"])
def test_a_file_that_is_no_mapping_is_a_problem(text: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith("catalog/models/tiny.yml:1: must be a mapping of keys")


def stack(version: str | None) -> dict[str, Any]:
    return {"name": "demo", "sglang": {"version": version} if version else {"commit": "a" * 40}}


def test_a_locked_profile_is_not_refused() -> None:
    assert profile_refusals(yaml.safe_load(TEXT), stack("0.5.9")) == []


def test_a_profile_without_hashes_is_refused_with_the_command_that_writes_them() -> None:
    profile = yaml.safe_load(TEXT.replace(FILES, "  unlocked: nobody read them.\n"))
    assert profile_refusals(profile, stack("0.5.9")) == [
        "model profile tiny is not locked: nobody read them. Fetch the checkpoint from somebody/tiny, see "
        "that it is the one you mean, and write the hashes of its files with: tools/lock_model.py tiny FOLDER"
    ]


@pytest.mark.parametrize(
    ("version", "refused"), [("0.5.8", True), ("0.5.9", False), ("0.6.0rc1", False), (None, False)]
)
def test_a_profile_is_refused_with_an_sglang_that_it_was_not_seen_with(version: Any, refused: bool) -> None:
    found = profile_refusals(yaml.safe_load(TEXT), stack(version))
    assert found == (
        ["model profile tiny was only seen with SGLang >=0.5.9, and stack demo has 0.5.8; name another stack"]
        if refused
        else []
    )


# --- the table of KV scales ----------------------------------------------------------------------


def scales_problems(text: str) -> list[str]:
    return schema_problems(text, "catalog/kv_scales.yml", "kv_scales.schema.json") or kv_scales_problems(
        yaml.safe_load(text), stack_lines(text)
    )


def test_the_table_of_kv_scales_is_right() -> None:
    assert scales_problems((CATALOG / "kv_scales.yml").read_text()) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("X: {sglang: new, reason: r, sources: [https://a]}", "1: X.sglang: 'new' is no range of SGLang's"),
        ("X: {reason: r, sources: [https://a]}", "1: X: sglang is missing: a range of SGLang's versions"),
        ("x-y: {}", "1: must be an architecture as config.json names it, not 'x-y'"),
        (
            'X: {sglang: ">=1", reason: r, sources: [x]}',
            "1: X.sources[0]: must be an address that starts with",
        ),
    ],
    ids=["no range", "no versions", "no architecture", "no address"],
)
def test_what_is_wrong_in_the_table_is_said(text: str, problem: str) -> None:
    assert any(
        found.removeprefix("catalog/kv_scales.yml:").startswith(problem) for found in scales_problems(text)
    )


# --- what is shipped -----------------------------------------------------------------------------

each_profile = pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def test_there_is_something_in_the_catalogue() -> None:
    assert {path.stem for path in PROFILES} > LOCKED


@each_profile
def test_a_shipped_profile_passes_its_checks_and_can_be_launched(path: Path) -> None:
    assert problems(path.read_text(), path.stem) == []
    profile = read(path)
    for options in (profile["launch"], *profile.get("launch_by_version", {}).values()):
        assert launch_args(options)


@each_profile
def test_a_shipped_profile_has_hashes_only_where_its_files_were_read(path: Path) -> None:
    checkpoint = read(path)["checkpoint"]
    assert ("files" in checkpoint) == (path.stem in LOCKED)
    assert ("unlocked" in checkpoint) == (path.stem not in LOCKED)
    assert "revision" not in checkpoint


@each_profile
def test_the_gate_understands_a_shipped_profile(path: Path) -> None:
    for thorough in (False, True):
        assert read_model_profile(read(path), thorough).served_name == read(path)["served_name"]


@each_profile
@pytest.mark.parametrize("version", ["0.5.9", "0.5.23"])
def test_a_shipped_profile_keeps_to_its_own_kv_policy_and_fits_its_gpus(path: Path, version: str) -> None:
    profile, loaders = read(path), read(CATALOG / "kv_scales.yml")
    if profile_refusals(profile | {"checkpoint": {}}, stack(version)):
        assert (profile["sglang"], version) in ((">=0.5.23", "0.5.9"), ("<0.5.23", "0.5.23"))
        return
    launch = profile_launch(profile, stack(version))
    fit = model_fit(profile, None, None, launch, version=version, loaders=loaders)
    assert fit["problems"] == []
    assert not any("does not fit" in line for line in fit["lines"])


@each_profile
def test_sizes_of_a_shipped_profile_have_a_source(path: Path) -> None:
    """The schema asks for the others."""
    sizes = read(path).get("sizes", {})
    assert "disk_gb" not in sizes or sizes["source"].startswith("https://")


def test_the_schema_describes_every_key() -> None:
    """Problems are told with these descriptions."""

    def bare(schema: Any, where: str) -> list[str]:
        if not isinstance(schema, dict):
            return []
        inner = [
            hit
            for part in ("properties",)
            for name, value in schema.get(part, {}).items()
            for hit in ([] if value.get("description") else [f"{where}.{name}"])
            + bare(value, f"{where}.{name}")
        ]
        return inner + bare(schema.get("items"), f"{where}[]")

    for name in ("model", "kv_scales"):
        assert bare(json.loads((SCHEMAS / f"{name}.schema.json").read_text()), name) == []


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_the_tiny_model_is_the_one_that_its_profile_names() -> None:
    checkpoint = yaml.safe_load((CATALOG / "models/tiny-qwen3.yml").read_text())["checkpoint"]
    assert hashes(ROOT / checkpoint["path"]) == checkpoint["files"]


def test_the_broken_model_is_the_one_that_its_profile_names(tmp_path: Path) -> None:
    checkpoint = yaml.safe_load((CATALOG / "models/tiny-qwen3-nan.yml").read_text())["checkpoint"]
    script, good, folder, variant = checkpoint["made_by"].split()[1:]
    assert (ROOT / script).is_file()
    assert folder == checkpoint["path"]
    break_checkpoint(ROOT / good, tmp_path / "broken", variant)
    assert hashes(tmp_path / "broken") == checkpoint["files"]


def test_the_broken_model_is_gated_like_the_sound_one() -> None:
    sound, broken = (
        yaml.safe_load((CATALOG / f"models/{name}.yml").read_text())
        for name in ("tiny-qwen3", "tiny-qwen3-nan")
    )
    assert broken["gate"] == sound["gate"]


def test_the_profiles_of_one_model_are_gated_alike() -> None:
    """But for the number of GPUs, which the gate compares with what the server says."""
    same = [path for path in PROFILES if path.stem.startswith("qwen3.5-397b")]
    gates = [read(path)["gate"] for path in same]
    for gate, path in zip(gates, same, strict=True):
        assert gate.pop("expect") == {"tp_size": read(path)["hardware"]["count"]}
    assert len(gates) == 4
    assert all(gate == gates[0] for gate in gates)
    assert all(read(path)["architecture"] == read(same[0])["architecture"] for path in same)
