#!/usr/bin/env python3
"""Make the mixture-of-experts twin of a dense Qwen3 checkpoint: a Qwen3MoeForCausalLM that computes the same.

Each expert is the dense layer's MLP in a form of its own: its neurons stand in another order, and its up
projection is a power of two times as large while its down projection is as much smaller. Both are exact in
bfloat16, so whatever experts the router takes, their answers are equal and the mean of them is the dense
MLP's answer up to rounding. An expert that is spoilt, or put together from parts of two, is wrong as in a
trained model. A router that chooses wrongly is not: no expert is better for a token than another.

Only the standard library is used and the bytes are the same on every machine. It takes a few seconds.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from break_model import (
    EX_USAGE,
    WEIGHTS_FILE,
    BreakError,
    Weights,
    floats_to_bf16,
    nearly_normal,
    put_folder,
)

EXPERTS = 8
EXPERTS_PER_TOKEN = 2
ROUTER_DEVIATION = 0.1
"""Standard deviation of the router's weights: the two experts of a token count for unequally much."""
SEED = 0
TWIN_FILE = "twin.json"
"""Marks a folder that this made, which may be replaced."""


def up_scale(expert: int) -> float:
    """How much larger an expert's up projection is than the dense one; no two neighbours have the same."""
    return float(2.0 ** (3 * expert % 5 - 2))


@dataclass(frozen=True)
class Tensor:
    """A bfloat16 matrix or vector, row by row."""

    shape: tuple[int, ...]
    values: Sequence[float]

    def rows(self) -> list[Sequence[float]]:
        """The rows of a matrix."""
        width = self.shape[1]
        return [self.values[start : start + width] for start in range(0, len(self.values), width)]


def matrix(rows: Sequence[Sequence[float]]) -> Tensor:
    """A matrix of its rows."""
    return Tensor((len(rows), len(rows[0])), [value for row in rows for value in row])


def with_rows(tensor: Tensor, order: Sequence[int], scale: float) -> Tensor:
    """The rows in another order, each multiplied."""
    rows = tensor.rows()
    return matrix([[scale * value for value in rows[place]] for place in order])


def with_columns(tensor: Tensor, order: Sequence[int], scale: float) -> Tensor:
    """The columns in another order, each multiplied."""
    return matrix([[scale * row[place] for place in order] for row in tensor.rows()])


def upcycle(dense: dict[str, Tensor]) -> dict[str, Tensor]:
    """The twin's tensors. Raises BreakError if there is no MLP of the names of Qwen3."""
    rng = random.Random(SEED)
    layers = sorted({name.split(".mlp.")[0] for name in dense if ".mlp." in name})
    twin = {name: tensor for name, tensor in dense.items() if ".mlp." not in name}
    if not layers:
        raise BreakError("the checkpoint has no tensors of an MLP: a dense Qwen3 is expected")
    for layer in layers:
        try:
            gate, up, down = (dense[f"{layer}.mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
        except KeyError as error:
            raise BreakError(f"the checkpoint has no tensor {error}: a dense Qwen3 is expected") from None
        neurons, hidden = gate.shape
        twin[f"{layer}.mlp.gate.weight"] = matrix(
            [[ROUTER_DEVIATION * nearly_normal(rng) for _ in range(hidden)] for _ in range(EXPERTS)]
        )
        for expert in range(EXPERTS):
            order = list(range(neurons))
            rng.shuffle(order)
            scale = up_scale(expert)
            prefix = f"{layer}.mlp.experts.{expert}"
            twin[f"{prefix}.gate_proj.weight"] = with_rows(gate, order, 1.0)
            twin[f"{prefix}.up_proj.weight"] = with_rows(up, order, scale)
            twin[f"{prefix}.down_proj.weight"] = with_columns(down, order, 1 / scale)
    return twin


def twin_config(dense: dict[str, Any]) -> dict[str, Any]:
    """The twin's configuration."""
    return dense | {
        "architectures": ["Qwen3MoeForCausalLM"],
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "model_type": "qwen3_moe",
        "moe_intermediate_size": dense["intermediate_size"],
        "norm_topk_prob": True,
        "num_experts": EXPERTS,
        "num_experts_per_tok": EXPERTS_PER_TOKEN,
        "output_router_logits": False,
        "router_aux_loss_coef": 0.001,
    }


def to_safetensors(tensors: dict[str, Tensor]) -> bytes:
    """A safetensors file of bfloat16 tensors, in the order of their names."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name in sorted(tensors):
        content = array("H", floats_to_bf16(tensors[name].values))
        if sys.byteorder == "big":
            content.byteswap()
        start = len(data)
        data += content.tobytes()
        header[name] = {
            "dtype": "BF16",
            "shape": list(tensors[name].shape),
            "data_offsets": [start, len(data)],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + bytes(data)


def make_moe(dense: Path, out: Path) -> bool:
    """Make ``out`` the twin of the checkpoint ``dense``; return whether anything changed.

    ``out`` may be missing, empty, or an earlier twin. It appears whole or not at all. Raises BreakError when
    ``dense`` is no dense Qwen3 checkpoint or ``out`` holds anything else.
    """
    dense, out = dense.resolve(), out.resolve()
    try:
        files = {path.name: path.read_bytes() for path in sorted(dense.iterdir()) if path.is_file()}
        config = json.loads(files["config.json"])
        weights = Weights(files[WEIGHTS_FILE])
    except (OSError, LookupError, ValueError) as error:
        raise BreakError(f"{dense} is not a checkpoint: {type(error).__name__}: {error}") from None
    tensors = {name: Tensor(tuple(weights.shape(name)), weights.read(name)) for name in weights.names()}
    files[WEIGHTS_FILE] = to_safetensors(upcycle(tensors))
    files["config.json"] = (json.dumps(twin_config(config), indent=1, sort_keys=True) + "\n").encode()
    files[TWIN_FILE] = (json.dumps({"experts": EXPERTS, "seed": SEED}) + "\n").encode()
    return put_folder(dense, out, files, replaceable=(out / TWIN_FILE).is_file())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; 0 done, 64 the caller's mistake, 1 the disk's."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dense", type=Path, metavar="DENSE_DIR", help="a dense Qwen3 checkpoint")
    parser.add_argument("out", type=Path, metavar="OUT_DIR", help="the folder to write")
    options = parser.parse_args(arguments)
    try:
        changed = make_moe(options.dense, options.out)
    except BreakError as error:
        print(f"make_moe: {error}", file=sys.stderr)
        return EX_USAGE
    except OSError as error:
        print(f"make_moe: {error}", file=sys.stderr)
        return 1
    print(f"{options.out}: {EXPERTS} experts a layer{'' if changed else ' (already there)'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
