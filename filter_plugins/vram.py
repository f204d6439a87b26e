"""What a model takes of the GPUs' memory, and what type its KV cache may have.

The arithmetic is SGLang's own: how it splits a GPU between weights, states, KV cache and the rest is read
from its releases 0.5.9 (server_args.py, model_runner_kv_cache_mixin.py) and 0.5.23 (memory_hook.py,
pool_configurator.py). Sizes are in bytes or, where a name says so, in GiB.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from packaging.specifiers import SpecifierSet

GIB = 1 << 30
MIB = 1 << 20
ELEMENT = {
    "bf16": 2.0,
    "bfloat16": 2.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "mxfp8": 1.0 + 1 / 32,
    "fp4_e2m1": 0.5 + 1 / 16,
    "nvfp4": 0.5 + 1 / 16,
    "fp4_mx_block16": 0.5 + 1 / 16,
}
"""Bytes of an element of the KV cache by --kv-cache-dtype, block scales included."""
STATE_ELEMENT = {"float32": 4, "bfloat16": 2, "float16": 2}
SPREAD = 1.17
"""What a GPU holds of the weights at most, as a share of the file sizes over the number of GPUs: padding and
what is replicated. The largest of the published pairs: GLM-5.1 REAP in NVFP4 has 285 GB of files and takes
77.2 GiB of each of 4 GPUs, 1.16 (https://huggingface.co/0xSero/GLM-5.1-478B-A42B-REAP-NVFP4); GLM-5 has 429
GB and takes 57.06 GiB of each of 8, 1.14 (https://github.com/voipmonitor/rtx6kpro/blob/master/models/glm5.md);
gpt-oss-120b has 60.8 GiB and takes 65.97 on one, 1.09 (https://github.com/vllm-project/vllm/issues/23278)."""
STATE_RATIO = 0.9
"""Memory for the states of linear layers over that for the KV cache: --mamba-full-memory-ratio."""
SLIDING_RATIO = 0.8
"""Tokens that layers with a sliding window keep over those of the other layers: --swa-full-tokens-ratio."""
SPECULATIVE_REQUESTS = 48
"""Requests at a time that SGLang allows under speculative decoding where nothing is said."""
VISION_SHARE = 0.91
"""What SGLang multiplies its default memory fraction with for a vision tower of Qwen3.5's size, 27 layers of
1152: adjust_mem_fraction_for_vlm."""
DEFAULTS = (
    (20, 2048, 8, 8),
    (35, 2048, 24, 80),
    (60, 4096, 32, 160),
    (160, 8192, 256, 512),
    (math.inf, 16384, 512, 512),
)
"""GPUs up to so many GiB: tokens of a chunk of prefill, largest batch with a CUDA graph below 4 GPUs and from
4 GPUs on, where the launch says nothing of them."""
COUNTS = (1, 2, 4, 8, 16, 32)
FP8 = ("fp8_e4m3", "fp8_e5m2", "mxfp8")
PLAIN = ("bf16", "bfloat16")
IDENTITY = (
    *("name", "layers", "full_layers", "linear_layers", "sliding_layers", "hidden_size"),
    *("kv_heads", "head_dim", "vocab_size", "latent"),
)
"""Keys of an architecture by which a checkpoint is told from another model."""


def option(launch: Mapping[str, Any], *names: str, default: Any = None) -> Any:
    """The value of an option that has several names."""
    return next((launch[name] for name in names if launch.get(name) is not None), default)


def parallel(launch: Mapping[str, Any]) -> tuple[int, int]:
    """The sizes of tensor and pipeline parallelism of a launch."""
    tensor = int(option(launch, "tp_size", "tensor_parallel_size", "tp", default=1))
    pipeline = int(option(launch, "pp_size", "pipeline_parallel_size", "pp", default=1))
    if tensor < 1 or pipeline < 1:
        raise ValueError(f"tp_size and pp_size must be at least 1, not {tensor} and {pipeline}")
    return tensor, pipeline


def replicas(launch: Mapping[str, Any]) -> int:
    """How often a launch holds the weights: --dp-size, which under DP attention splits attention alone."""
    return 1 if launch.get("enable_dp_attention") else max(1, int(option(launch, "dp_size", default=1)))


def model_facts(profile: Mapping[str, Any], facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What is known of a model, from its checkpoint where one was seen, else from its profile.

    {seen: checkpoint, profile or nothing, architecture, weights_bytes, kv_scales (all, some, none or
    unknown), kv_declares (what `auto` makes the KV cache, or null), measured (GPUs to GiB of weights on
    each)}. `facts` are those of the module checkpoint_facts.
    """
    sizes = profile.get("sizes", {})
    cache = profile.get("kv_cache", {})
    measured = {int(entry["gpus"]): float(entry["weights_gib"]) for entry in sizes.get("vram", [])}
    if facts:
        return {
            "seen": "checkpoint",
            "architecture": facts["architecture"],
            "weights_bytes": facts["weights"]["bytes"],
            "kv_scales": facts["kv_scales"]["state"],
            "kv_declares": facts["quantization"]["kv_cache"],
            "measured": measured,
        }
    return {
        "seen": "profile" if "architecture" in profile else "nothing",
        "architecture": profile.get("architecture"),
        "weights_bytes": sizes["disk_gb"] * 1e9 if "disk_gb" in sizes else None,
        "kv_scales": cache.get("scales", "unknown"),
        "kv_declares": cache.get("declares"),
        "measured": measured,
    }


# --- arithmetic ----------------------------------------------------------------------------------


def kv_token_bytes(
    architecture: Mapping[str, Any], dtype: str, tensor: int = 1, pipeline: int = 1, draft: bool = False
) -> float:
    """Bytes of KV cache that a token takes on one GPU. Raises ValueError where the shape is not known.

    Layers x heads x (key + value) x element. With fewer KV heads than GPUs each GPU keeps one of them. Linear
    layers keep none. Latent attention keeps one vector for all heads, on every GPU, and an indexer's key of
    a byte an element with a scale for each 128. `draft` adds the layers for multi-token prediction.
    """
    element = ELEMENT[dtype]
    more = int(architecture.get("mtp_layers") or 0) if draft else 0
    latent = architecture.get("latent")
    if latent:
        index = latent["index_dim"] + latent["index_dim"] // 128 * 4
        per_layer = (latent["kv_rank"] + latent["rope_dim"]) * element + index
        return float(per_layer * (architecture["layers"] / pipeline + more))
    if not architecture.get("kv_heads") or not architecture.get("head_dim"):
        raise ValueError("its number of KV heads or their dimension is not known")
    heads = max(1, architecture["kv_heads"] // tensor)
    per_layer = heads * 2 * architecture["head_dim"] * element
    full = architecture["full_layers"] + architecture.get("other_layers", 0)
    sliding = architecture.get("sliding_layers", 0) * SLIDING_RATIO
    return float(per_layer * ((full + sliding) / pipeline + more))


def state_bytes(
    architecture: Mapping[str, Any], tensor: int = 1, pipeline: int = 1, dtype: str | None = None
) -> float:
    """Bytes of one state of the linear layers on one GPU, 0 for a model without such layers.

    A layer keeps a matrix for each value head, and the last inputs of its convolution in bf16. A request
    has several states (see `kv_room`). `dtype` is --mamba-ssm-dtype. Raises ValueError where the model has
    linear layers of a shape that is not known.
    """
    layers = architecture.get("linear_layers", 0)
    if not layers:
        return 0.0
    linear = architecture.get("linear")
    if not linear or None in linear.values():
        raise ValueError("the shape of its linear layers is not known")
    keys = linear["key_heads"] if linear["key_heads"] % tensor == 0 else linear["key_heads"] + tensor
    convolved = 2 * keys * linear["key_dim"] + linear["value_heads"] * linear["value_dim"]
    matrix = linear["value_heads"] * linear["value_dim"] * linear["key_dim"]
    element = STATE_ELEMENT.get(dtype or linear.get("state_dtype", "float32"), 4)
    per_layer = convolved * (linear["conv_kernel"] - 1) * 2 + matrix * element
    return float(per_layer / tensor * layers / pipeline)


def reserved_bytes(memory: float, launch: Mapping[str, Any], multimodal: bool = False) -> float:
    """What a launch leaves of a GPU of `memory` bytes for CUDA graphs, activations and the rest.

    That is 1 - mem_fraction_static of it, or SGLang's own rule where the launch names no fraction: 512 MiB,
    1.5 a token of a prefill chunk, 2 a request of the largest graph, 128 a GPU, 2048 for a draft model, and
    at least 10 GiB on a GPU above 60 GiB.
    """
    fraction = option(launch, "mem_fraction_static")
    if fraction is not None:
        if not 0 < float(fraction) < 1:
            raise ValueError(f"mem_fraction_static must be between 0 and 1, not {fraction}")
        return memory * (1 - float(fraction))
    tensor, pipeline = parallel(launch)
    _limit, chunk, small, large = next(row for row in DEFAULTS if memory / GIB < row[0])
    chunk = option(launch, "chunked_prefill_size", default=chunk)
    batch = option(
        launch,
        "cuda_graph_max_bs",
        "cuda_graph_max_bs_decode",
        default=small if tensor < 4 else large,
    )
    mib = 512 + max(int(chunk), 2048) * 1.5 + int(batch) * 2 + tensor * pipeline / 8 * 1024
    if memory > 60 * GIB:
        mib = max(mib, 10 * 1024)
    if option(launch, "speculative_algorithm", "speculative_algo"):
        mib += 2048
    left = mib * MIB
    return memory - (memory - left) * VISION_SHARE if multimodal else left


def kv_room(
    rest: float, model: Mapping[str, Any], launch: Mapping[str, Any], tensor: int, pipeline: int
) -> float:
    """Bytes that are left for the KV cache of `rest`, which the states of linear layers share with it.

    Without --max-mamba-cache-size SGLang gives the states 0.9 of what it gives the KV cache, whatever they
    need; under speculative decoding each draft token of each request has a state too, unless it is replayed.
    """
    size = state_bytes(model["architecture"], tensor, pipeline, option(launch, "mamba_ssm_dtype"))
    if not size:
        return rest
    requests = option(launch, "max_running_requests", default=SPECULATIVE_REQUESTS)
    drafts = option(launch, "speculative_algorithm", "speculative_algo")
    if drafts and not launch.get("enable_linear_replayssm_spec"):
        rest -= size * int(requests) * int(option(launch, "speculative_num_draft_tokens", default=4))
    slots = option(launch, "max_mamba_cache_size")
    if slots is None and launch.get("disable_radix_cache") and launch.get("max_running_requests"):
        slots = launch["max_running_requests"]
    if slots is not None:
        return rest - int(slots) * size
    return rest / (1 + float(option(launch, "mamba_full_memory_ratio", default=STATE_RATIO)))


def weights_on_gpu(model: Mapping[str, Any], gpus: int) -> tuple[float, float]:
    """Bytes of weights on each of so many GPUs, at least and at most; equal where they were measured.

    Expert parallelism gives a GPU whole experts in place of a slice of each, which is as much.
    """
    if gpus in model["measured"]:
        return (model["measured"][gpus] * GIB,) * 2
    share = float(model["weights_bytes"]) / gpus
    return share, share * SPREAD


def split(
    model: Mapping[str, Any], memory: float, launch: Mapping[str, Any], dtype: str, weights: float
) -> dict[str, float]:
    """How a launch divides a GPU of `memory` bytes that holds `weights`: bytes, and `tokens` of cache."""
    tensor, pipeline = parallel(launch)
    attention = (
        tensor // int(option(launch, "dp_size", default=1)) if launch.get("enable_dp_attention") else tensor
    )
    draft = bool(option(launch, "speculative_algorithm", "speculative_algo"))
    token = kv_token_bytes(model["architecture"], dtype, max(1, attention), pipeline, draft)
    reserved = reserved_bytes(memory, launch, bool(model["architecture"].get("multimodal")))
    rest = memory - reserved - weights
    room = kv_room(rest, model, launch, max(1, attention), pipeline)
    return {
        "weights": weights,
        "reserved": reserved,
        "states": rest - room,
        "room": room,
        "token": token,
        "tokens": max(0.0, room / token),
    }


def unseen(
    model: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]] | None, count: int, context: Any
) -> str | None:
    """What has to be seen before memory can be reckoned, None where all was."""
    if model["architecture"] is None or (model["weights_bytes"] is None and count not in model["measured"]):
        return "not seen, neither the checkpoint nor its size in the profile is there"
    if context is None:
        return "not seen, the model's longest context is unknown"
    if not gpus:
        low, high = weights_on_gpu(model, count)
        return f"not seen, no GPU of the node was; the weights take {gib(low, high)} of each of {count}"
    return None


def vram_budget(
    model: Mapping[str, Any],
    gpus: Sequence[Mapping[str, Any]] | None,
    launch: Mapping[str, Any],
    *,
    dtype: str = "bf16",
    context: int | None = None,
    concurrency: int = 1,
) -> dict[str, Any]:
    """Whether a model fits the GPUs of a node under a launch, and how much would.

    `model` is of `model_facts`; `gpus` lists {name, memory_gib}, None where they were not seen; `dtype` is
    the KV cache's. The cache must hold `concurrency` requests of `context` tokens each at once; without a
    context the launch's, else the model's longest. Returns {verdict, text, context, gpus (that the launch
    uses), split, largest_context, fewest_gpus}: `verdict` is ok, tight (it fits unless the weights take more
    than their files, up to `SPREAD`), refuse, not seen, or none for a launch on the CPU. What is not known is
    null.
    """
    shares = math.prod(parallel(launch))
    count = shares * replicas(launch)
    found: dict[str, Any] = dict.fromkeys(("context", "split", "largest_context", "fewest_gpus"))
    found["gpus"] = count
    if launch.get("device") == "cpu":
        return found | {"verdict": "none", "text": "VRAM: none, the launch is on the CPU"}
    longest = (model["architecture"] or {}).get("max_positions")
    asked = context or option(launch, "context_length", default=longest)
    reason = unseen(model, gpus, shares, asked)
    if reason or not gpus:
        return found | {"verdict": "not seen", "text": f"VRAM: {reason}"}
    memory = min(float(gpu["memory_gib"]) for gpu in gpus) * GIB
    found["context"], wanted = int(asked), int(asked) * concurrency
    if len(gpus) < count:
        text = f"VRAM: the launch takes {count} GPUs, the node has {len(gpus)}"
        text += "; set tp_size to what it has, or name another profile"
        return found | {"verdict": "refuse", "text": text}
    low, high = weights_on_gpu(model, shares)
    try:
        best, worst = (split(model, memory, launch, dtype, weights) for weights in (low, high))
    except (TypeError, ValueError) as error:
        return found | {"verdict": "not seen", "text": f"VRAM: not reckoned, {error}"}
    found["split"] = worst
    found["largest_context"] = min(int(worst["tokens"] / concurrency), longest or int(asked))
    verdict = "ok" if worst["tokens"] >= wanted else "tight" if best["tokens"] >= wanted else "refuse"
    if verdict == "refuse":
        found["fewest_gpus"] = fewest_gpus(model, memory, launch, dtype, wanted)
    name = next((gpu["name"] for gpu in gpus if gpu.get("name")), "GPU")
    held = budget_text(low, worst, dtype)
    text = f"VRAM: {count} x {name} of {memory / GIB:.1f} GiB; on each {held}; "
    return found | {"verdict": verdict, "text": text + fit_text(verdict, concurrency, found)}


def fewest_gpus(
    model: Mapping[str, Any], memory: float, launch: Mapping[str, Any], dtype: str, wanted: int
) -> int | None:
    """The fewest GPUs of this size whose tensor parallelism holds so many tokens, None above 32."""
    heads = model["architecture"].get("attention_heads")
    for count in COUNTS:
        if heads and heads % count:
            continue
        other = {key: value for key, value in launch.items() if key not in ("tensor_parallel_size", "tp")}
        other |= {"tp_size": count, "pp_size": 1}
        if model["weights_bytes"] is None and count not in model["measured"]:
            continue
        weights = weights_on_gpu(model, count)[1]
        if split(model, memory, other, dtype, weights)["tokens"] >= wanted:
            return count
    return None


def named_gpus(profile: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The GPUs that a profile is for, in the form of those that a node has."""
    hardware = profile.get("hardware")
    if not hardware:
        return []
    return [{"name": hardware["gpu"], "memory_gib": hardware["memory_gib"]}] * int(hardware["count"])


# --- words ---------------------------------------------------------------------------------------


def gib(low: float, high: float | None = None) -> str:
    """Bytes, or a range of them, in GiB."""
    if high is not None and round(high / GIB, 1) != round(low / GIB, 1):
        return f"{low / GIB:.1f} to {high / GIB:.1f} GiB"
    return f"{low / GIB:.1f} GiB"


def budget_text(low: float, parts: Mapping[str, float], dtype: str) -> str:
    """What a GPU holds, in words."""
    said = [f"weights {gib(low, parts['weights'])}"]
    if parts["states"] > 0:
        said.append(f"states of its linear layers {gib(parts['states'])}")
    if parts["room"] > 0:
        said.append(f"KV cache {gib(parts['room'])} ({dtype}, {int(parts['tokens'])} tokens)")
    return ", ".join([*said, f"left for graphs and activations {gib(parts['reserved'])}"])


def fit_text(verdict: str, concurrency: int, found: Mapping[str, Any]) -> str:
    """Whether it fits, in words, and what would."""
    requests = f"a context of {found['context']} tokens"
    if concurrency > 1:
        requests = f"{concurrency} requests of {found['context']} tokens"
    largest = found["largest_context"]
    if verdict == "ok":
        return f"{requests} fits"
    if verdict == "tight":
        return f"{requests} fits if the weights take no more than their files, else {largest} tokens"
    ways = [f"a context of {largest} tokens would fit"] if largest > 0 else []
    if found["fewest_gpus"]:
        ways.append(f"{found['fewest_gpus']} such GPUs would hold it")
    return f"{requests} does not fit: {'; '.join(ways) or 'no number of such GPUs up to 32 holds it'}"


# --- KV policy -----------------------------------------------------------------------------------


def loads_scales(architecture: str | None, version: str | None, loaders: Mapping[str, Any]) -> bool:
    """Whether this SGLang is known to load the KV scales of this architecture; `loaders` says which does."""
    versions = loaders.get(architecture or "", {}).get("sglang")
    return bool(versions and version and SpecifierSet(versions).contains(version, prereleases=True))


def kv_policy(
    model: Mapping[str, Any],
    launch: Mapping[str, Any],
    version: str | None,
    loaders: Mapping[str, Any],
    override: str | None = None,
) -> dict[str, Any]:
    """What type the KV cache gets, and whether it may: {dtype, verdict, text}.

    bf16 always may. FP8 may where every attention layer has scales in the checkpoint and this SGLang is known
    to load them (`loaders` of catalog/kv_scales.yml): without, it takes 1.0 for each and answers get quietly
    worse. Other types have no such proof. `override` names who answers for it instead; the verdict is then
    `overridden`, not `refuse`.
    """
    asked = str(option(launch, "kv_cache_dtype", default="auto"))
    declared = model["kv_declares"]
    dtype = asked
    if asked == "auto":
        dtype = {"FP8": "fp8_e4m3", "NVFP4": "nvfp4"}.get(str(declared), "bf16")
    if dtype not in ELEMENT:
        known = ", ".join(ELEMENT)
        raise ValueError(f"kv_cache_dtype must be auto or one of {known}, not {asked!r}")
    from_auto = f", which auto makes of the checkpoint's {declared}" if asked == "auto" and declared else ""
    found: dict[str, Any] = {"dtype": dtype, "verdict": "ok"}
    if dtype in PLAIN:
        return found | {"text": f"KV cache: {dtype}"}
    name = (model["architecture"] or {}).get("name")
    if dtype not in FP8:
        reason = f"no accuracy of {dtype} was proved"
    elif model["kv_scales"] == "unknown":
        reason = "whether the checkpoint has KV scales is not known"
    elif model["kv_scales"] != "all":
        has = {"none": "no attention layer", "some": "only some attention layers"}[model["kv_scales"]]
        reason = f"{has} of the checkpoint has KV scales, so SGLang takes 1.0"
    elif not loads_scales(name, version, loaders):
        engine = f"SGLang {version}" if version else "an SGLang without a version"
        reason = f"{engine} is not known to load the KV scales of {name}, and takes 1.0 where it does not"
    else:
        return found | {"text": f"KV cache: {dtype}, with scales in every attention layer{from_auto}"}
    text = f"KV cache: {dtype}{from_auto}: {reason}"
    if override:
        return found | {"verdict": "overridden", "text": f"{text}. Overridden by {override}"}
    return found | {
        "verdict": "refuse",
        "text": f"{text}. Set kv_cache_dtype: bf16 under launch, or answer for it with model_kv_override",
    }


# --- a profile, its checkpoint and a node --------------------------------------------------------


def other_model(profile: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    """Where the checkpoint that was seen is another model than the profile describes."""
    found = facts["architecture"]
    differing = [
        f"{key} {found.get(key)}, not {value}"
        for key, value in profile.get("architecture", {}).items()
        if key in IDENTITY and found.get(key) != value
    ]
    if not differing:
        return []
    return [
        f"the checkpoint in {facts['folder']} is another model than profile {profile['name']} describes: "
        f"{', '.join(differing)}"
    ]


def draft_problems(facts: Mapping[str, Any], launch: Mapping[str, Any]) -> list[str]:
    """Why a launch cannot draft with the checkpoint's own MTP layers: it has none, and SGLang would end."""
    algorithm = str(option(launch, "speculative_algorithm", "speculative_algo", default="")).upper()
    own = algorithm in ("NEXTN", "EAGLE") and not launch.get("speculative_draft_model_path")
    if not own or facts["mtp"]["tensors"]:
        return []
    return [
        f"the launch asks for {algorithm} without a draft model, but the checkpoint in {facts['folder']} "
        "holds no MTP tensors; take speculative_algorithm out, or another checkpoint"
    ]


def model_fit(
    profile: Mapping[str, Any],
    facts: Mapping[str, Any] | None,
    gpus: Sequence[Mapping[str, Any]] | None,
    launch: Mapping[str, Any],
    *,
    version: str | None,
    loaders: Mapping[str, Any],
    override: str | None = None,
    concurrency: int = 1,
) -> dict[str, Any]:
    """Whether a checkpoint and a launch go together, and fit a node: {kv, vram, problems, lines}.

    `facts` are those of the module checkpoint_facts, None where no checkpoint was seen; `gpus` those of the
    node, None where they were not; `launch` are the options that the node would get. `problems` must keep the
    weights from being sent and the server from being started; `lines` are for the operator.
    """
    model = model_facts(profile, facts)
    named = named_gpus(profile)
    try:
        kv = kv_policy(model, launch, version, loaders, override)
        reckon = functools.partial(
            vram_budget, model, launch=launch, dtype=kv["dtype"], concurrency=concurrency
        )
        vram, planned = reckon(gpus), reckon(named) if named else None
    except (TypeError, ValueError) as error:
        return {"kv": None, "vram": None, "problems": [f"launch options: {error}"], "lines": []}
    lines = [kv["text"], vram["text"]]
    if not gpus and planned and planned["split"]:
        told = planned["text"].removeprefix("VRAM: ")
        lines[1] = f"VRAM: no GPU of the node was seen; of those that the profile names: {told}"
    problems = []
    if facts:
        problems += [f"the checkpoint in {facts['folder']} is unfit: {text}" for text in facts["problems"]]
        problems += other_model(profile, facts) + draft_problems(facts, launch)
    problems += [part["text"] for part in (kv, vram) if part["verdict"] == "refuse"]
    quiet = vram["verdict"] == "none" and kv["dtype"] in PLAIN
    return {"kv": kv, "vram": vram, "problems": problems, "lines": [] if quiet else lines}


class FilterModule:
    """Filters about the GPUs' memory."""

    def filters(self) -> dict[str, Any]:
        return {
            "model_facts": model_facts,
            "vram_budget": vram_budget,
            "kv_policy": kv_policy,
            "model_fit": model_fit,
        }
