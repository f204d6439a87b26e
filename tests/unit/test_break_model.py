"""The broken checkpoints: bit-exact, made whole or not at all, and each with the fault it names."""

from __future__ import annotations

import hashlib
import json
import math
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from data.tiny_model import break_model
from data.tiny_model.break_model import (
    BreakError,
    Weights,
    all_variants,
    break_checkpoint,
    main,
    variants,
)

DATA = Path(__file__).parents[1] / "data"
GOOD = DATA / "tiny-qwen3"
SCRIPT = DATA / "tiny_model" / "break_model.py"


def weights_of(folder: Path) -> Weights:
    """The tensors of a checkpoint folder."""
    return Weights((folder / "model.safetensors").read_bytes())


def broken(tmp_path: Path, variant: str) -> Weights:
    """The tensors of a variant of the tiny model."""
    break_checkpoint(GOOD, tmp_path / variant, variant)
    return weights_of(tmp_path / variant)


# --- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "pattern"),
    [
        (0.0, 0x0000),
        (-0.0, 0x8000),
        (1.0, 0x3F80),
        (-2.5, 0xC020),
        (1 + 2**-8, 0x3F80),  # a tie goes down to the even pattern
        (1 + 3 * 2**-8, 0x3F82),  # a tie goes up to the even pattern
        (1 + 2**-8 + 2**-20, 0x3F81),  # just above a tie
        (2 - 2**-9, 0x4000),  # rounding carries into the exponent
        (3.4e38, 0x7F80),  # too large for bfloat16
        (1e300, 0x7F80),  # too large for float32
        (math.inf, 0x7F80),
        (-math.inf, 0xFF80),
        (math.nan, 0x7FC0),
    ],
)
def test_floats_are_rounded_to_nearest_even(value: float, pattern: int) -> None:
    assert break_model.floats_to_bf16([value]) == [pattern]


def test_every_bf16_pattern_survives_a_round_trip() -> None:
    patterns = [pattern for pattern in range(0x10000) if pattern & 0x7FFF <= 0x7F80]
    assert break_model.floats_to_bf16(break_model.bf16_to_floats(patterns)) == patterns


def test_a_nan_whose_payload_is_cut_off_stays_a_nan() -> None:
    assert break_model._round_to_bf16(0x7F800001) == 0x7FC0


# --- the faults ----------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", variants())
def test_a_variant_changes_weights_only_and_always_alike(tmp_path: Path, variant: str) -> None:
    for name in ("one", "two"):
        assert break_checkpoint(GOOD, tmp_path / name, variant)
    for path in GOOD.iterdir():
        same = path.read_bytes() == (tmp_path / "one" / path.name).read_bytes()
        assert same == (path.name != "model.safetensors"), path.name
    assert (tmp_path / "one" / "model.safetensors").stat().st_size == (
        GOOD / "model.safetensors"
    ).stat().st_size
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_the_variants_differ_from_one_another(tmp_path: Path) -> None:
    digests = set()
    for variant in variants():
        break_checkpoint(GOOD, tmp_path / variant, variant)
        digests.add(hashlib.sha256((tmp_path / variant / "model.safetensors").read_bytes()).hexdigest())
    assert len(digests) == len(variants())


def test_nan_is_one_element_of_one_tensor(tmp_path: Path) -> None:
    name = "model.layers.2.mlp.down_proj.weight"
    good, bad = weights_of(GOOD).read(name), broken(tmp_path, "nan").read(name)
    changed = [place for place, (before, after) in enumerate(zip(good, bad, strict=True)) if before != after]
    assert changed == [3 * 384 + 5]
    assert math.isnan(bad[changed[0]])


def test_inf_norm_is_one_infinity(tmp_path: Path) -> None:
    assert [
        value for value in broken(tmp_path, "inf_norm").read("model.norm.weight") if math.isinf(value)
    ] == [math.inf]


def test_a_scale_touches_the_tensors_it_names(tmp_path: Path) -> None:
    bad, good = broken(tmp_path, "scale_x16"), weights_of(GOOD)
    touched, left = "model.layers.1.mlp.down_proj.weight", "model.layers.2.mlp.down_proj.weight"
    assert bad.read(touched) == [16 * value for value in good.read(touched)]
    assert bad.read(left) == good.read(left)


def test_a_rebalanced_model_computes_the_same(tmp_path: Path) -> None:
    bad, good = broken(tmp_path, "kv_small"), weights_of(GOOD)
    for larger, smaller in (("k_norm", "q_norm"), ("v_proj", "o_proj")):
        before = f"model.layers.0.self_attn.{larger}.weight"
        after = f"model.layers.0.self_attn.{smaller}.weight"
        assert [512 * value for value in bad.read(before)] == good.read(before)
        assert [value / 512 for value in bad.read(after)] == good.read(after)


def test_noise_has_the_size_it_names(tmp_path: Path) -> None:
    bad, good = broken(tmp_path, "kv_noise_0.8"), weights_of(GOOD)
    name = "model.layers.3.self_attn.v_proj.weight"
    before = good.read(name)
    noise = [after - value for after, value in zip(bad.read(name), before, strict=True)]
    ratio = break_model._standard_deviation(noise) / break_model._standard_deviation(before)
    assert ratio == pytest.approx(0.8, rel=0.03)


# --- folders -------------------------------------------------------------------------------------


def test_the_same_result_is_left_alone_and_another_one_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert break_checkpoint(GOOD, out, "nan")
    written = (out / "model.safetensors").stat().st_mtime_ns
    assert not break_checkpoint(GOOD, out, "nan")
    assert (out / "model.safetensors").stat().st_mtime_ns == written
    assert break_checkpoint(GOOD, out, "scale_neg")
    assert json.loads((out / "broken.json").read_text()) == {"variant": "scale_neg"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "temporary folders are gone"


def test_a_damaged_result_is_made_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    break_checkpoint(GOOD, out, "nan")
    whole = (out / "model.safetensors").read_bytes()
    (out / "model.safetensors").write_bytes(whole[:-1])
    assert break_checkpoint(GOOD, out, "nan")
    assert (out / "model.safetensors").read_bytes() == whole


def test_an_empty_folder_is_filled_and_readable_by_everyone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir(mode=0o700)
    assert break_checkpoint(GOOD, out, "nan")
    assert out.stat().st_mode & 0o777 == 0o755
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o644}


def test_a_foreign_folder_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BreakError, match="holds something else"):
        break_checkpoint(GOOD, tmp_path, "nan")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("place", [".", "inside"])
def test_the_good_checkpoint_is_never_written_to(tmp_path: Path, place: str) -> None:
    good = tmp_path / "good"
    break_checkpoint(GOOD, good, "kv_small")
    with pytest.raises(BreakError, match="apart from"):
        break_checkpoint(good, good / place, "nan")
    assert not (good / "inside").exists()


def safetensors(header: object, data: bytes) -> bytes:
    """The bytes of a safetensors file."""
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a safetensors file"),
        (b"not weights at all", "not a safetensors file"),
        (safetensors([], b""), "not a safetensors file"),
        (safetensors({"weight": {"dtype": "BF16"}}, b""), "not a safetensors file"),
        (
            safetensors({"weight": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}, b"abc"),
            "cut short",
        ),
        (
            safetensors({"weight": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}, b"abcd"),
            "no tensor model.layers.2",
        ),
        (
            safetensors(
                {
                    "model.layers.2.mlp.down_proj.weight": {
                        "dtype": "F32",
                        "shape": [1, 1],
                        "data_offsets": [0, 4],
                    }
                },
                b"abcd",
            ),
            "F32, not BF16",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    good = tmp_path / "good"
    good.mkdir()
    (good / "config.json").write_text("{}")
    (good / "model.safetensors").write_bytes(content)
    with pytest.raises(BreakError, match=message):
        break_checkpoint(good, tmp_path / "out", "nan")
    assert not (tmp_path / "out").exists()


# --- command line --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [str(GOOD)],
        ["--nonsense"],
        [str(GOOD), "{tmp}/out", "no_such_variant"],
        ["{tmp}", "{tmp}/out", "nan"],
        ["{tmp}/missing", "{tmp}/out", "nan"],
        [str(GOOD), str(DATA), "nan"],
    ],
)
def test_a_wrong_call_is_one_line_and_64(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main([argument.format(tmp=tmp_path) for argument in arguments]) == 64
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("break_model: ")
    assert output.err.count("\n") == 1


def test_the_list_has_one_line_for_each_variant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(all_variants())


def test_the_script_needs_nothing_but_python(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", str(SCRIPT), str(GOOD), str(tmp_path / "out"), "nan"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    assert (tmp_path / "out" / "config.json").is_file()
