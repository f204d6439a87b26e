"""Checkpoint folders of a few kilobytes, with safetensors files that are written by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BYTES = {"BF16": 2, "F32": 4, "U8": 1, "F8_E4M3": 1, "I64": 8}

Tensors = Mapping[str, tuple[str, Sequence[int]]]

# The shapes of nvidia/Qwen3.5-397B-A17B-NVFP4, cut to 8 layers: keys and values are those of its config.json.
QWEN35: dict[str, Any] = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "model_type": "qwen3_5_moe",
    "text_config": {
        "model_type": "qwen3_5_moe_text",
        "num_hidden_layers": 8,
        "full_attention_interval": 4,
        "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 2,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "hidden_size": 4096,
        "vocab_size": 248320,
        "max_position_embeddings": 262144,
        "num_experts": 512,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 64,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "mamba_ssm_dtype": "float32",
        "mtp_num_hidden_layers": 1,
    },
    "vision_config": {"depth": 27, "hidden_size": 1152},
    "quantization_config": {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
        "ignore": ["lm_head", "model.language_model.layers.0.linear_attn*", "mtp*"],
    },
}
LAYERS = "model.language_model.layers"
ATTENTION = (3, 7)


def packed(header: Any, data: bytes) -> bytes:
    """A safetensors file with this header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def header_of(tensors: Tensors) -> tuple[dict[str, Any], int]:
    """The header of these tensors one after the other, and the bytes that they take."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, (dtype, shape) in tensors.items():
        size = math.prod(shape) * BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [place, place + size]}
        place += size
    return header, place


def write_shard(path: Path, tensors: Tensors) -> None:
    header, size = header_of(tensors)
    path.write_bytes(packed(header, bytes(size)))


def qwen_tensors(scaled: Sequence[int] = ATTENTION, mtp: bool = True) -> dict[str, tuple[str, list[int]]]:
    """Some tensors of each kind, with KV scales in these layers, as ModelOpt names them."""
    tensors: dict[str, tuple[str, list[int]]] = {
        "model.language_model.embed_tokens.weight": ("BF16", [4, 4]),
        "lm_head.weight": ("BF16", [4, 4]),
        "model.visual.blocks.0.attn.qkv.weight": ("BF16", [2, 2]),
    }
    for layer in range(8):
        kind = "self_attn.k_proj" if layer in ATTENTION else "linear_attn.in_proj_qkv"
        tensors[f"{LAYERS}.{layer}.{kind}.weight"] = ("BF16", [4, 4])
        expert = f"{LAYERS}.{layer}.mlp.experts.0.down_proj"
        tensors[f"{expert}.weight"] = ("U8", [4, 8])
        tensors[f"{expert}.weight_scale"] = ("F8_E4M3", [4, 1])
        tensors[f"{expert}.weight_scale_2"] = ("F32", [])
        tensors[f"{expert}.input_scale"] = ("F32", [])
        tensors[f"{LAYERS}.{layer}.mlp.gate.weight"] = ("BF16", [2, 4])
        tensors[f"{LAYERS}.{layer}.mlp.shared_expert.down_proj.weight"] = ("BF16", [2, 4])
    for layer in scaled:
        tensors[f"{LAYERS}.{layer}.self_attn.k_proj.k_scale"] = ("F32", [])
        tensors[f"{LAYERS}.{layer}.self_attn.v_proj.v_scale"] = ("F32", [])
    if mtp:
        tensors["mtp.layers.0.self_attn.k_proj.weight"] = ("BF16", [4, 4])
    return tensors


def write_checkpoint(
    folder: Path, config: Mapping[str, Any] = QWEN35, tensors: Tensors | None = None, shards: int = 2
) -> Path:
    """A whole checkpoint of so many shards with an index; of one shard it has none."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    everything = dict(tensors if tensors is not None else qwen_tensors())
    if shards == 1:
        write_shard(folder / "model.safetensors", everything)
        return folder
    names = sorted(everything)
    index = {}
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        own = names[number::shards]
        write_shard(folder / file, {name: everything[name] for name in own})
        index |= dict.fromkeys(own, file)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 1}, "weight_map": index})
    )
    return folder
