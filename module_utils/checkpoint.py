"""What a checkpoint folder is: its architecture, how it is quantised, its KV scales, whether it is whole.

Reads config.json, hf_quant_config.json, generation_config.json, the index and the headers of the safetensors
files; no weight is read and no code of the folder is run. What cannot be read as a checkpoint at all raises
CheckpointError with one sentence; what is wrong in one is listed in `problems`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .hashed_files import sha256_of
from .shards import POINTER, Tensor, TornShard, parsed, read_shard

CONFIG, QUANTIZATION, GENERATION = "config.json", "hf_quant_config.json", "generation_config.json"
INDEX = "model.safetensors.index.json"
LONGEST_JSON = 256 << 20
"""Bytes. The index of a 397B mixture of experts in NVFP4 has some 370,000 entries, about 45 MB."""
MOST = 10**12
"""No number of a configuration is above it."""
TEXT_CONFIGS = ("text_config", "llm_config", "language_config")
GENERATION_KEYS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "eos_token_id")
PART = re.compile(r"-(\d{1,6})-of-(\d{1,6})\.safetensors$")
LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d{1,6})\.")

KINDS = (
    ("mtp", re.compile(r"(?:^|\.)mtp\.|nextn")),
    ("vision", re.compile(r"(?:^|\.)(?:visual|vision|vision_model|vision_tower|multi_modal_projector)\.")),
    ("linear attention", re.compile(r"\.(?:linear_attn|mamba|mixer)\.")),
    ("router", re.compile(r"\.(?:gate|router|shared_expert_gate)\.(?:weight|bias|e_score_correction_bias)$")),
    ("shared experts", re.compile(r"\.shared_experts?\.")),
    ("experts", re.compile(r"\.experts\.")),
    ("attention", re.compile(r"\.(?:self_attn|attn|attention)\.")),
    ("mlp", re.compile(r"\.(?:mlp|feed_forward)\.")),
    ("embeddings", re.compile(r"embed|wte\.")),
    ("head", re.compile(r"(?:^|\.)lm_head\.")),
)
"""Kinds of layers by a tensor's name, the first that fits; the rest is `other`, norms above all."""

SCALES = {
    ".kv_scale": ("k", "v"),
    ".k_scale": ("k",),
    ".v_scale": ("v",),
    ".k_proj.output_scale": ("k",),
    ".v_proj.output_scale": ("v",),
}
"""Endings of the tensors that SGLang takes for KV scales, and what they scale. From its
`maybe_remap_kv_scale_name` (0.5.9 and 0.5.23), with the per-projection names of ModelOpt, the ones of
compressed-tensors, the old single one, and Quark's:
https://github.com/sgl-project/sglang/blob/v0.5.9/python/sglang/srt/model_loader/weight_utils.py"""


class CheckpointError(Exception):
    """A folder is no checkpoint that SGLang serves; one sentence with what to do."""


# --- files ---------------------------------------------------------------------------------------


def read_document(path: Path) -> dict[str, Any]:
    """The mapping in a JSON file. Raises CheckpointError with the file's name."""
    try:
        size = path.stat().st_size
        if size > LONGEST_JSON:
            raise CheckpointError(f"{path}: {size} bytes are more than a configuration has ({LONGEST_JSON})")
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from error
    if data.startswith(POINTER):
        raise CheckpointError(
            f"{path} is a git-lfs pointer, its bytes were never fetched: run git lfs pull there"
        )
    try:
        document = parsed(data)
    except ValueError as error:
        raise CheckpointError(f"{path}: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise CheckpointError(f"{path}: must be a mapping, not {type(document).__name__}")
    return document


def checked_folder(folder: Path) -> list[str]:
    """The names of the safetensors files of a folder. Raises CheckpointError for what is something else."""
    if not folder.is_dir():
        if folder.suffix == ".gguf":
            raise CheckpointError(f"{folder} is a GGUF file of llama.cpp; name a folder with safetensors")
        what = "is a file, not a folder" if folder.exists() else "is not there"
        raise CheckpointError(f"{folder} {what}: name the folder that holds config.json and the weights")
    names = sorted(path.name for path in folder.iterdir())
    weights = [name for name in names if name.endswith(".safetensors")]
    if "adapter_config.json" in names and CONFIG not in names:
        raise CheckpointError(
            f"{folder} holds a LoRA adapter, not a model: name the folder of its base model"
        )
    if "model_index.json" in names and CONFIG not in names:
        raise CheckpointError(f"{folder} holds a diffusion pipeline, not a language model")
    if "snapshots" in names and "blobs" in names:
        raise CheckpointError(
            f"{folder} is a repository of the hub's cache: name its folder snapshots/REVISION"
        )
    if not weights and any(name.endswith(".gguf") for name in names):
        raise CheckpointError(f"{folder} holds a GGUF of llama.cpp; name a folder with safetensors")
    if CONFIG not in names:
        raise CheckpointError(f"{folder} has no {CONFIG}, so it is no checkpoint")
    if not weights and any(name.endswith((".bin", ".pt", ".pth")) for name in names):
        raise CheckpointError(
            f"{folder} has its weights as torch pickles (.bin) alone, which run code when they are loaded; "
            "take a repository with safetensors"
        )
    if not weights:
        raise CheckpointError(f"{folder} has no weights: no file there ends with .safetensors")
    return weights


# --- configuration -------------------------------------------------------------------------------


def number(config: Mapping[str, Any], *names: str) -> int | None:
    """The first of these keys that is set, as a whole number above 0. Raises CheckpointError for another."""
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MOST:
            raise CheckpointError(f"{CONFIG}: {name} must be a whole number above 0, not {value!r:.40}")
        return value
    return None


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a configuration that describes the language model."""
    for name in TEXT_CONFIGS:
        if isinstance(config.get(name), Mapping):
            return {**config, **config[name]}
    return config


def layer_kinds(config: Mapping[str, Any], layers: int) -> list[str]:
    """`full_attention`, `linear_attention` or `sliding_attention` for each layer, as the config names them.

    Without names each `full_attention_interval`-th layer is a full one and the rest are linear ones, as
    Qwen3.5 has it; without that either, all are full ones.
    """
    kinds = config.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
            raise CheckpointError(f"{CONFIG}: layer_types must be a list of names, not {kinds!r:.40}")
        if len(kinds) < layers:
            raise CheckpointError(f"{CONFIG}: layer_types names {len(kinds)} layers, the model has {layers}")
        return ["full_attention" if kind == "attention" else str(kind) for kind in kinds[:layers]]
    interval = number(config, "full_attention_interval")
    if interval is None:
        return ["full_attention"] * layers
    return ["linear_attention" if (i + 1) % interval else "full_attention" for i in range(layers)]


def architecture_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The shape of a model as far as its KV cache and its identity depend on it; see the module's RETURN."""
    text = text_config(config)
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None
    layers = number(text, "num_hidden_layers", "n_layer", "num_layers")
    if layers is None:
        raise CheckpointError(f"{CONFIG}: num_hidden_layers is missing, so it describes no language model")
    if layers > 10_000:
        raise CheckpointError(f"{CONFIG}: num_hidden_layers is {layers}, which no model has")
    heads = number(text, "num_attention_heads", "n_head")
    hidden = number(text, "hidden_size", "n_embd")
    head_dim = number(text, "head_dim") or (hidden // heads if hidden and heads else None)
    kinds = layer_kinds(text, layers)
    found: dict[str, Any] = {
        "name": name,
        "model_type": text.get("model_type") if isinstance(text.get("model_type"), str) else None,
        "layers": layers,
        "full_layers": kinds.count("full_attention"),
        "linear_layers": kinds.count("linear_attention"),
        "sliding_layers": kinds.count("sliding_attention"),
        "hidden_size": hidden,
        "attention_heads": heads,
        "kv_heads": number(text, "num_key_value_heads") or heads,
        "head_dim": head_dim,
        "vocab_size": number(text, "vocab_size"),
        "max_positions": number(text, "max_position_embeddings", "n_positions"),
        "experts": number(text, "num_experts", "n_routed_experts", "num_local_experts"),
        "mtp_layers": mtp_layers(text),
        "multimodal": isinstance(config.get("vision_config"), Mapping),
    }
    found["other_layers"] = layers - found["full_layers"] - found["linear_layers"] - found["sliding_layers"]
    if number(text, "kv_lora_rank"):
        found["latent"] = {
            "kv_rank": number(text, "kv_lora_rank"),
            "rope_dim": number(text, "qk_rope_head_dim") or 0,
            "index_dim": number(text, "index_head_dim") or 0,
        }
    if found["linear_layers"] and number(text, "linear_num_value_heads"):
        found["linear"] = {
            "key_heads": number(text, "linear_num_key_heads"),
            "value_heads": number(text, "linear_num_value_heads"),
            "key_dim": number(text, "linear_key_head_dim"),
            "value_dim": number(text, "linear_value_head_dim"),
            "conv_kernel": number(text, "linear_conv_kernel_dim"),
            "state_dtype": str(text.get("mamba_ssm_dtype") or "float32"),
        }
    return found


def mtp_layers(config: Mapping[str, Any]) -> int:
    """How many layers for multi-token prediction a configuration names; 0 where it names none."""
    for name in ("mtp_num_hidden_layers", "num_nextn_predict_layers"):
        if config.get(name) not in (None, 0):
            return number(config, name) or 0
    return 0


def attention_layers(config: Mapping[str, Any]) -> list[int]:
    """The numbers of the layers that have a KV cache, without those for multi-token prediction."""
    text = text_config(config)
    layers = number(text, "num_hidden_layers", "n_layer", "num_layers") or 0
    return [i for i, kind in enumerate(layer_kinds(text, layers)) if kind != "linear_attention"]


def quantization_of(config: Mapping[str, Any], beside: Mapping[str, Any] | None) -> dict[str, Any]:
    """How a checkpoint says that it is quantised: {method, algorithm, kv_cache, excluded, notes}.

    `config` is its config.json and `beside` its hf_quant_config.json, which ModelOpt writes. `kv_cache` is
    FP8 or another type where SGLang's `auto` would take it for the KV cache, else None.
    """
    inner = config.get("quantization_config") or config.get("compression_config") or {}
    if not isinstance(inner, Mapping):
        raise CheckpointError(f"{CONFIG}: quantization_config must be a mapping, not {type(inner).__name__}")
    outer = (beside or {}).get("quantization") or {}
    if not isinstance(outer, Mapping):
        raise CheckpointError(f"{QUANTIZATION}: quantization must be a mapping, not {type(outer).__name__}")
    method = inner.get("quant_method") or ("modelopt" if outer else None)
    algorithms = [text for text in (algorithm(inner), outer.get("quant_algo")) if text]
    caches = [text for text in (cache_type(inner), cache_type(outer)) if text]
    excluded = (
        inner.get("ignore")
        or inner.get("exclude_modules")
        or inner.get("modules_to_not_convert")
        or outer.get("exclude_modules")
        or []
    )
    notes = [
        f"{CONFIG} says {what} {said[0]}, {QUANTIZATION} says {said[1]}"
        for what, said in (("quant_algo", algorithms), ("kv_cache", caches))
        if len(said) == 2 and str(said[0]).upper() != str(said[1]).upper()
    ]
    return {
        "method": str(method) if method else None,
        "algorithm": str(algorithms[0]) if algorithms else None,
        "kv_cache": str(caches[0]) if caches else None,
        "excluded": [str(name) for name in excluded] if isinstance(excluded, list) else [],
        "notes": notes,
    }


def algorithm(section: Mapping[str, Any]) -> str | None:
    """The format of the weights that a quantisation section names."""
    said = section.get("quant_algo")
    if isinstance(said, str):
        return said
    method, layout = section.get("quant_method"), str(section.get("format") or "")
    if "nvfp4" in layout:
        return "NVFP4"
    if method == "fp8":
        return "FP8"
    return layout or (str(method).upper() if method else None)


def cache_type(section: Mapping[str, Any]) -> str | None:
    """What a quantisation section wants the KV cache to be, None where it says nothing or `auto`."""
    said = section.get("kv_cache_quant_algo")
    if isinstance(said, str) and said.lower() != "auto":
        return said.upper()
    scheme = section.get("kv_cache_scheme")
    if isinstance(scheme, str) and scheme.strip():
        return scheme.strip().upper()
    if isinstance(scheme, Mapping) and scheme.get("type") == "float":
        return "FP8" if scheme.get("num_bits") == 8 else "NVFP4" if scheme.get("num_bits") == 4 else None
    return None


# --- tensors -------------------------------------------------------------------------------------


def kind_of(name: str, layers: int) -> str:
    """The kind of layer that a tensor belongs to. A layer past the last one is for MTP, as GLM-5 has it."""
    layer = LAYER.search(name)
    if layer and int(layer.group(1)) >= layers and "visual" not in name and "vision" not in name:
        return "mtp"
    return next((kind for kind, pattern in KINDS if pattern.search(name)), "other")


def format_of(name: str, tensors: Mapping[str, Tensor]) -> str:
    """The format of a weight: NVFP4, FP8, MXFP4, or its type."""
    tensor = tensors[name]
    stem = name.rpartition(".")[0]
    if tensor.dtype == "U8":
        if name.endswith("_blocks"):
            return "MXFP4"
        if {f"{stem}.weight_scale", f"{stem}.weight_scale_2", f"{stem}.weight_global_scale"} & tensors.keys():
            return "NVFP4"
    return "FP8" if tensor.dtype.startswith("F8_") else tensor.dtype


def formats(tensors: Mapping[str, Tensor], kinds: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Kind of layer (`kinds`, by tensor) to format to bytes of weights; scales count with their weights."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for name, tensor in tensors.items():
        weight = name
        if name.endswith("_scales") and f"{name.removesuffix('_scales')}_blocks" in tensors:
            weight = f"{name.removesuffix('_scales')}_blocks"
        elif "scale" in name.rpartition(".")[2]:
            stem = name.rpartition(".")[0]
            weight = next(
                (f"{stem}.{end}" for end in ("weight", "weight_packed") if f"{stem}.{end}" in tensors), name
            )
        found[kinds[name]][format_of(weight, tensors)] += tensor.size
    return {kind: dict(sizes) for kind, sizes in sorted(found.items())}


def kv_scales(names: Sequence[str], layers: Sequence[int]) -> dict[str, Any]:
    """Which of the attention layers have scales for K and V: {state, complete, lacking, names}.

    `state` is all, some or none. Scales of MTP layers and of a vision tower do not count.
    """
    has: dict[int, set[str]] = {layer: set() for layer in layers}
    endings: set[str] = set()
    for name in names:
        ending = next((ending for ending in SCALES if name.endswith(ending)), None)
        layer = LAYER.search(name)
        if ending is None or layer is None or kind_of(name, max(layers, default=0) + 1) in ("mtp", "vision"):
            continue
        if int(layer.group(1)) in has:
            has[int(layer.group(1))] |= set(SCALES[ending])
            endings.add(name[layer.end() :])
    complete = sorted(layer for layer, parts in has.items() if parts == {"k", "v"})
    lacking = sorted(set(layers) - set(complete))
    state = "all" if complete and not lacking else "some" if any(has.values()) else "none"
    return {"state": state, "complete": complete, "lacking": lacking, "names": sorted(endings)}


# --- the whole folder ----------------------------------------------------------------------------


def read_index(folder: Path) -> dict[str, str] | None:
    """Tensor to file as the index says, None where there is no index. Raises CheckpointError."""
    path = folder / INDEX
    if not path.exists():
        return None
    places = read_document(path).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise CheckpointError(f"{path}: weight_map must be a mapping of tensors to files")
    good: set[str] = set()
    for name, file in places.items():
        if isinstance(file, str) and file in good:
            continue
        if not isinstance(file, str) or not file.endswith(".safetensors") or Path(file).name != file:
            raise CheckpointError(
                f"{path}: {name} must be in a safetensors file of the folder, not {file!r:.60}"
            )
        good.add(file)
    return places


def wanted_files(weights: Sequence[str], index: Mapping[str, str] | None) -> tuple[set[str], set[str]]:
    """The files that a checkpoint is made of, and those beside them that it does not use.

    Without an index these are all files, with those that the numbers of the others call for.
    """
    if index is not None:
        wanted = set(index.values())
        return wanted, set(weights) - wanted
    wanted = set(weights)
    for name in weights:
        part = PART.search(name)
        if part and 0 < int(part.group(2)) <= 10_000:
            width, last = len(part.group(2)), int(part.group(2))
            stem = name[: part.start()]
            wanted |= {f"{stem}-{i:0{width}}-of-{last:0{width}}.safetensors" for i in range(1, last + 1)}
    return wanted, set()


def index_problems(index: Mapping[str, str], held: Mapping[str, Mapping[str, Tensor]]) -> Iterator[str]:
    """Where an index and the headers of whole files disagree, a sentence a file."""
    expected: dict[str, set[str]] = defaultdict(set)
    for name, file in index.items():
        expected[file].add(name)
    for file, tensors in held.items():
        lacking, more = expected[file] - tensors.keys(), tensors.keys() - expected[file]
        if lacking:
            yield f"{file} lacks {count(lacking, 'tensor')} that {INDEX} places there, {min(lacking)}"
        if more:
            yield f"{file} holds {count(more, 'tensor')} that {INDEX} does not name, {min(more)}"


def count(things: Sequence[Any] | set[str], what: str) -> str:
    return f"{len(things)} {what}{'' if len(things) == 1 else 's'}"


def checkpoint_facts(folder: Path) -> dict[str, Any]:
    """The facts of a checkpoint folder; the module's RETURN names them. Raises CheckpointError or OSError."""
    weights = checked_folder(folder)
    config = read_document(folder / CONFIG)
    architecture = architecture_of(config)
    beside = read_document(folder / QUANTIZATION) if (folder / QUANTIZATION).exists() else None
    generation = read_document(folder / GENERATION) if (folder / GENERATION).exists() else {}
    quantization = quantization_of(config, beside)
    index = read_index(folder)
    wanted, extra = wanted_files(weights, index)

    held: dict[str, dict[str, Tensor]] = {}
    torn: dict[str, str] = {}
    for name in sorted(wanted & set(weights)):
        try:
            held[name] = read_shard(folder / name)
        except TornShard as error:
            torn[name] = str(error)
    missing = sorted(wanted - set(weights))
    problems = [f"{name} is missing" for name in missing]
    problems += [f"{name} is torn: {reason}" for name, reason in torn.items()]
    tensors: dict[str, Tensor] = {}
    for file, found in held.items():
        twice = tensors.keys() & found.keys()
        if twice:
            problems.append(
                f"{file} holds {count(twice, 'tensor')} that another file holds too, {min(twice)}"
            )
        tensors |= found
    if index is not None:
        problems += index_problems(index, held)
    if not tensors and not problems:
        problems.append("no file holds a tensor")

    known = tensors.keys() if index is None else tensors.keys() | index.keys()
    scales = kv_scales(sorted(known), attention_layers(config))
    kinds = {name: kind_of(name, architecture["layers"]) for name in known}
    return {
        "folder": str(folder),
        "architecture": architecture,
        "quantization": quantization | {"formats": formats(tensors, kinds)},
        "kv_scales": scales,
        "mtp": {"layers": architecture["mtp_layers"], "tensors": list(kinds.values()).count("mtp")},
        "generation": {key: generation[key] for key in GENERATION_KEYS if key in generation},
        "weights": {
            "files": len(wanted),
            "bytes": sum(tensor.size for tensor in tensors.values()),
            "tensors": len(tensors),
            "indexed": index is not None,
            "missing": missing,
            "torn": torn,
            "extra": sorted(extra),
        },
        "problems": problems,
        "hashes": None,
    }


def files_of(folder: Path) -> list[str]:
    """The files that make a checkpoint, with those in subfolders; hidden ones are a tool's own."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(str(path) for path in paths if not any(part.startswith(".") for part in path.parts))


def folder_hashes(folder: Path, watch: Callable[[int, int, str], None]) -> dict[str, str]:
    """File to SHA-256 of a checkpoint's files. `watch` gets bytes done, bytes in all and the file's name."""
    names = files_of(folder)
    sizes = {name: (folder / name).stat().st_size for name in names}
    done, everything = 0, sum(sizes.values())
    found = {}
    for name in names:
        watch(done, everything, name)
        found[name] = sha256_of(folder / name)
        done += sizes[name]
    return found


def hash_problems(hashes: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """Where a folder differs from the files that a profile was locked to: another upload is another model."""
    problems = [f"{name} is missing" for name in sorted(wanted.keys() - hashes.keys())]
    problems += [
        f"{name} is another file than the profile was locked to: its SHA-256 is {hashes[name]}, not {sha256}"
        for name, sha256 in sorted(wanted.items())
        if name in hashes and hashes[name] != sha256
    ]
    return problems
