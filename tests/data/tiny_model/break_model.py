#!/usr/bin/env python3
"""Derive broken checkpoints from a good one: real weights with one known fault each.

Only the standard library is used and the bytes are the same on every machine, so that a variant of
a given checkpoint always has the same SHA-256. A broken folder holds the good folder's files with
other weights, and ``broken.json``, which names the variant.

The file format is safetensors: the length of the header as eight bytes, a JSON header that says
where each tensor lies, then the numbers. Changed tensors are bfloat16, the upper half of a float32.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import struct
import sys
import tempfile
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EX_USAGE = 64
WEIGHTS_FILE = "model.safetensors"
MARKER_FILE = "broken.json"


class BreakError(Exception):
    """A folder, a variant or the weights are not what the caller said; the message is for people."""


# --- bfloat16 ------------------------------------------------------------------------------------

BF16_NAN = 0x7FC0
BF16_INFINITY = 0x7F80


def bf16_to_floats(patterns: Iterable[int]) -> list[float]:
    """The values of bfloat16 bit patterns."""
    float32_patterns = array("I", [pattern << 16 for pattern in patterns])
    return array("f", float32_patterns.tobytes()).tolist()


def floats_to_bf16(values: Iterable[float]) -> list[int]:
    """The bit patterns of the nearest bfloat16 values, ties to even; too large becomes infinite."""
    float32_patterns = array("I", array("f", values).tobytes())
    return [_round_to_bf16(pattern) for pattern in float32_patterns]


def _round_to_bf16(float32_pattern: int) -> int:
    upper, lower = float32_pattern >> 16, float32_pattern & 0xFFFF
    if float32_pattern & 0x7FFFFFFF > 0x7F800000:
        return upper | 0x0040  # a NaN stays one even if only its lower half told it from infinity
    return upper + (lower > 0x8000 or (lower == 0x8000 and upper & 1))


# --- safetensors ---------------------------------------------------------------------------------


class Weights:
    """The tensors of one safetensors file, changed in place: header and order stay as they were."""

    def __init__(self, content: bytes) -> None:
        """Take a file's bytes; raises BreakError when they are not safetensors."""
        try:
            (header_length,) = struct.unpack_from("<Q", content)
            header = json.loads(content[8 : 8 + header_length])
            self._tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
            size = max(entry["data_offsets"][1] for entry in self._tensors.values())
        except (struct.error, ValueError, AttributeError, LookupError, TypeError) as error:
            raise BreakError(f"{WEIGHTS_FILE} is not a safetensors file") from error
        self._content = bytearray(content)
        self._data_start = 8 + header_length
        if len(content) != self._data_start + size:
            raise BreakError(f"{WEIGHTS_FILE} is cut short or has bytes too many")

    def to_bytes(self) -> bytes:
        """The file as it stands now."""
        return bytes(self._content)

    def names(self) -> list[str]:
        """The names of all tensors, sorted."""
        return sorted(self._tensors)

    def shape(self, name: str) -> list[int]:
        """The shape of a tensor."""
        return list(self._tensor(name)["shape"])

    def names_ending(self, endings: tuple[str, ...]) -> list[str]:
        """The tensors whose names end so, sorted; raises BreakError when there are none."""
        names = sorted(name for name in self._tensors if name.endswith(endings))
        if not names:
            raise BreakError(f"no tensor's name ends in {' or '.join(endings)}")
        return names

    def names_within(self, part: str, ending: str) -> list[str]:
        """The tensors whose names have that part and end so, sorted; raises BreakError if there are none."""
        names = [name for name in self.names() if part in name and name.endswith(ending)]
        if not names:
            raise BreakError(f"no tensor's name has {part} and ends in {ending}")
        return names

    def read(self, name: str) -> list[float]:
        """The values of a tensor, row by row."""
        count, offset = self._place(name)
        return bf16_to_floats(struct.unpack_from(f"<{count}H", self._content, offset))

    def write(self, name: str, values: Sequence[float]) -> None:
        """Replace the values of a tensor."""
        count, offset = self._place(name)
        struct.pack_into(f"<{count}H", self._content, offset, *floats_to_bf16(values))

    def poke(self, name: str, index: int, pattern: int) -> None:
        """Set the bit pattern of one element, counted row by row."""
        count, offset = self._place(name)
        if index >= count:
            raise BreakError(f"{name} has only {count} elements")
        struct.pack_into("<H", self._content, offset + 2 * index, pattern)

    def _tensor(self, name: str) -> dict[str, Any]:
        if name not in self._tensors:
            raise BreakError(f"the checkpoint has no tensor {name}")
        tensor: dict[str, Any] = self._tensors[name]
        if tensor["dtype"] != "BF16":
            raise BreakError(f"{name} is {tensor['dtype']}, not BF16")
        return tensor

    def _place(self, name: str) -> tuple[int, int]:
        """How many elements a tensor has, and at which byte of the file they start."""
        start, end = self._tensor(name)["data_offsets"]
        return (end - start) // 2, self._data_start + start


# --- the faults ----------------------------------------------------------------------------------

Fault = Callable[[Weights], None]
ONE_DOWN_PROJECTION = "model.layers.1.mlp.down_proj.weight"
ALL_DOWN_PROJECTIONS = "mlp.down_proj.weight"
KEY_NORMS = "self_attn.k_norm.weight"
QUERY_NORMS = "self_attn.q_norm.weight"
KEYS = "self_attn.k_proj.weight"
VALUES = "self_attn.v_proj.weight"
ATTENTION_OUTPUTS = "self_attn.o_proj.weight"
# Of a mixture of experts, as make_moe.py makes it.
ALL_EXPERTS = ".mlp.experts."
ONE_EXPERT = "model.layers.1.mlp.experts.3"
ROUTERS = "mlp.gate.weight"


def nan_in_one_weight(weights: Weights) -> None:
    """One NaN in the third layer: every logit becomes NaN, and argmax of NaN is token 0, ``!``."""
    name = "model.layers.2.mlp.down_proj.weight"
    row, column = 3, 5
    weights.poke(name, row * weights.shape(name)[1] + column, BF16_NAN)


def infinity_in_last_norm(weights: Weights) -> None:
    """One infinity just before the logits: some become infinite, some NaN."""
    weights.poke("model.norm.weight", 7, BF16_INFINITY)


def scaled(*endings: str, by: float) -> Fault:
    """Multiply tensors by a number, as if a quantisation scale were wrong or left out."""

    def fault(weights: Weights) -> None:
        for name in weights.names_ending(endings):
            weights.write(name, [value * by for value in weights.read(name)])

    return fault


def noisy(*endings: str, deviations: float) -> Fault:
    """Add noise of so many standard deviations of the tensor itself, as a bad quantisation does."""

    def fault(weights: Weights) -> None:
        rng = random.Random(0)
        for name in weights.names_ending(endings):
            values = weights.read(name)
            size = deviations * _standard_deviation(values)
            weights.write(name, [value + size * nearly_normal(rng) for value in values])

    return fault


def rebalanced(by: float) -> Fault:
    """Make keys and values ``by`` times as large in the cache and undo it behind the cache.

    With a power of two this computes the same in bfloat16: only an unscaled FP8 KV cache, which
    cannot hold such numbers, loses by it.
    """

    def fault(weights: Weights) -> None:
        scaled(KEY_NORMS, VALUES, by=by)(weights)
        scaled(QUERY_NORMS, ATTENTION_OUTPUTS, by=1 / by)(weights)

    return fault


def scaled_expert(by: float) -> Fault:
    """One expert's scale wrong or, with 0, its weights never filled in. It gets a quarter of the tokens."""
    return scaled(f"{ONE_EXPERT}.down_proj.weight", by=by)


def nan_in_one_expert(weights: Weights) -> None:
    """One NaN in one expert: only texts with a token of this expert meet it."""
    weights.poke(f"{ONE_EXPERT}.down_proj.weight", 5, BF16_NAN)


def gate_and_up_swapped(within: str) -> Fault:
    """Engines keep gate and up in one tensor: here the halves of these experts stand in the wrong order."""

    def fault(weights: Weights) -> None:
        for gate in weights.names_within(within, "gate_proj.weight"):
            up = gate.replace("gate_proj", "up_proj")
            gates, ups = weights.read(gate), weights.read(up)
            weights.write(gate, ups)
            weights.write(up, gates)

    return fault


def down_of_the_neighbour(*layers: int) -> Fault:
    """Engines keep all experts' down projections in one tensor: here it is off by one expert."""

    def fault(weights: Weights) -> None:
        for layer in layers:
            names = weights.names_within(f".{layer}{ALL_EXPERTS}", "down_proj.weight")
            values = [weights.read(name) for name in names]
            for name, other in zip(names, [values[-1], *values[:-1]], strict=True):
                weights.write(name, other)

    return fault


def router_lost(weights: Weights) -> None:
    """Every router is 0, so that all tokens take the same experts."""
    scaled(ROUTERS, by=0)(weights)


def nan_in_one_router(weights: Weights) -> None:
    """One NaN in one router: the shares of all experts are NaN for every token of that layer."""
    weights.poke(f"model.layers.1.{ROUTERS}", 5, BF16_NAN)


def _standard_deviation(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def nearly_normal(rng: random.Random) -> float:
    """Mean 0, deviation 1. Sums of uniform numbers: exact everywhere, unlike logarithms and sines."""
    return sum(rng.random() for _ in range(12)) - 6.0


# --- the variants --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """One way to break a checkpoint."""

    name: str
    summary: str
    fault: Fault


_VARIANTS = (
    Variant("nan", "one NaN weight: every logit is NaN, the answer is !!!!", nan_in_one_weight),
    Variant("inf_norm", "an infinity in the last norm: infinite and NaN logits mixed", infinity_in_last_norm),
    Variant("scale_x1000", "one layer's MLP 1000 times too large", scaled(ONE_DOWN_PROJECTION, by=1000)),
    Variant("scale_all_x64", "every layer's MLP 64 times too large", scaled(ALL_DOWN_PROJECTIONS, by=64)),
    Variant("scale_neg", "every layer's MLP with the wrong sign", scaled(ALL_DOWN_PROJECTIONS, by=-1)),
    Variant("scale_x8", "one layer's MLP 8 times too large", scaled(ONE_DOWN_PROJECTION, by=8)),
    Variant("scale_x16", "one layer's MLP 16 times too large", scaled(ONE_DOWN_PROJECTION, by=16)),
    Variant(
        "kv_noise_0.8", "keys and values with noise of 0.8 deviations", noisy(KEYS, VALUES, deviations=0.8)
    ),
    Variant(
        "kv_noise_1.2", "keys and values with noise of 1.2 deviations", noisy(KEYS, VALUES, deviations=1.2)
    ),
    Variant("k_x0.5", "keys half as large: attention too flat", scaled(KEY_NORMS, by=0.5)),
    Variant("k_x0.25", "keys a quarter as large", scaled(KEY_NORMS, by=0.25)),
    Variant("v_x0.25", "values a quarter as large", scaled(VALUES, by=0.25)),
    Variant("v_x4", "values four times as large", scaled(VALUES, by=4)),
    Variant(
        "scale_x2", "one layer's MLP twice as large: no answer shows it", scaled(ONE_DOWN_PROJECTION, by=2)
    ),
    Variant(
        "kv_noise_0.2", "keys and values with noise of 0.2 deviations", noisy(KEYS, VALUES, deviations=0.2)
    ),
    Variant("k_x0.8", "keys four fifths as large", scaled(KEY_NORMS, by=0.8)),
    Variant("kv_big", "right, but an FP8 KV cache overflows: keys and values 1024-fold", rebalanced(1024)),
    Variant("kv_small", "right, but an FP8 KV cache underflows: keys and values 1/512", rebalanced(1 / 512)),
    Variant("kv_small_1024", "the same with 1/1024", rebalanced(1 / 1024)),
)

# Of the twin that make_moe.py makes. One expert is one of the eight of one layer of four.
_EXPERT_VARIANTS = (
    Variant("expert_x8", "one expert 8 times too large", scaled_expert(8)),
    Variant("expert_x16", "one expert 16 times too large", scaled_expert(16)),
    Variant("expert_zero", "one expert never filled in: all zeros", scaled_expert(0)),
    Variant("expert_neg", "one expert with the wrong sign", scaled_expert(-1)),
    Variant("expert_nan", "one NaN weight in one expert", nan_in_one_expert),
    Variant("expert_swapped", "gate and up swapped in one expert", gate_and_up_swapped(ONE_EXPERT)),
    Variant("gate_up_swapped", "gate and up swapped in all experts", gate_and_up_swapped(ALL_EXPERTS)),
    Variant(
        "down_off_by_one_layer", "one layer's experts with their neighbours' down", down_of_the_neighbour(1)
    ),
    Variant("down_off_by_one", "all experts with their neighbours' down", down_of_the_neighbour(0, 1, 2, 3)),
    Variant("router_nan", "one NaN weight in one router", nan_in_one_router),
    Variant("router_lost", "right all the same: every token to the same two experts", router_lost),
)


def variants() -> dict[str, str]:
    """Each variant's name of a dense checkpoint with one line about it."""
    return {variant.name: variant.summary for variant in _VARIANTS}


def expert_variants() -> dict[str, str]:
    """Those of a mixture of experts."""
    return {variant.name: variant.summary for variant in _EXPERT_VARIANTS}


def all_variants() -> dict[str, str]:
    """Both."""
    return variants() | expert_variants()


# --- folders -------------------------------------------------------------------------------------


def break_checkpoint(good: Path, out: Path, variant: str) -> bool:
    """Make ``out`` the named variant of the checkpoint ``good``; return whether anything changed.

    ``out`` may be missing, empty, or an earlier result, which is left alone when it is the same.
    It appears whole or not at all. Files are readable by everyone, since servers run as users of
    their own. Raises BreakError when the variant is unknown, ``good`` is not a checkpoint that the
    variant fits, or ``out`` holds anything else.
    """
    good, out = good.resolve(), out.resolve()
    fault = next((known.fault for known in (*_VARIANTS, *_EXPERT_VARIANTS) if known.name == variant), None)
    if fault is None:
        raise BreakError(f"unknown variant {variant!r}, known are: {', '.join(all_variants())}")
    if not (good / "config.json").is_file() or not (good / WEIGHTS_FILE).is_file():
        raise BreakError(f"{good} is not a checkpoint: config.json and {WEIGHTS_FILE} are expected there")
    files = {path.name: path.read_bytes() for path in sorted(good.iterdir()) if path.is_file()}
    weights = Weights(files[WEIGHTS_FILE])
    fault(weights)
    files[WEIGHTS_FILE] = weights.to_bytes()
    files[MARKER_FILE] = (json.dumps({"variant": variant}) + "\n").encode()
    return put_folder(good, out, files, replaceable=_is_variant(out))


def put_folder(good: Path, out: Path, files: dict[str, bytes], replaceable: bool) -> bool:
    """Make ``out``, a folder apart from ``good``, hold these files; return whether anything changed.

    It appears whole or not at all. Raises BreakError if it holds something else and is not replaceable.
    """
    if out == good or good in out.parents or out in good.parents:
        raise BreakError(f"{out} must be a folder apart from {good}")
    is_new = not out.exists() or (out.is_dir() and not any(out.iterdir()))
    if not is_new and not replaceable:
        raise BreakError(f"{out} holds something else: name a new or an empty folder")
    if _holds(out, files):
        return False
    _replace_folder(out, files)
    return True


def _is_variant(out: Path) -> bool:
    """Whether the folder was written by this program."""
    try:
        marker = json.loads((out / MARKER_FILE).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(marker, dict) and marker.get("variant") in all_variants()


def _holds(folder: Path, files: dict[str, bytes]) -> bool:
    if not folder.is_dir() or {path.name for path in folder.iterdir()} != set(files):
        return False
    return all((folder / name).read_bytes() == content for name, content in files.items())


def _replace_folder(out: Path, files: dict[str, bytes]) -> None:
    """Write the files beside ``out`` and rename: a reader sees the old folder, none, or the new one."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as temporary:
        new, old = Path(temporary, "new"), Path(temporary, "old")
        new.mkdir()
        new.chmod(0o755)
        for name, content in files.items():
            (new / name).write_bytes(content)
            (new / name).chmod(0o644)
        if out.exists():
            out.rename(old)
        new.rename(out)


# --- command line --------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """A parser that leaves with the exit status of the other errors."""

    def error(self, message: str) -> Any:
        raise BreakError(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; 0 done, 64 the caller's mistake, 1 the disk's, each told in one line."""
    parser = _Parser(description="Write a broken variant of a checkpoint.")
    parser.add_argument("--list", action="store_true", help="print the variants and stop")
    parser.add_argument("good", nargs="?", type=Path, metavar="GOOD_DIR", help="a checkpoint folder")
    parser.add_argument("out", nargs="?", type=Path, metavar="OUT_DIR", help="the folder to write")
    parser.add_argument("variant", nargs="?", metavar="VARIANT", help="how to break it")
    try:
        options = parser.parse_args(arguments)
        if options.list:
            width = max(map(len, all_variants()))
            print(*(f"{name:{width}}  {summary}" for name, summary in all_variants().items()), sep="\n")
            return 0
        if options.variant is None:
            raise BreakError("GOOD_DIR, OUT_DIR and VARIANT are needed (or --list)")
        changed = break_checkpoint(options.good, options.out, options.variant)
    except BreakError as error:
        print(f"break_model: {error}", file=sys.stderr)
        return EX_USAGE
    except OSError as error:
        print(f"break_model: {error}", file=sys.stderr)
        return 1
    print(f"{options.out}: {options.variant}{'' if changed else ' (already there)'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
