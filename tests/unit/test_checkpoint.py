"""What a checkpoint folder is: read from real shapes, and refused with a sentence whatever else is there."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import checkpoint_facts
import pytest
from ansible.module_utils.checkpoint import (
    INDEX,
    CheckpointError,
    architecture_of,
    cache_type,
    folder_hashes,
    format_of,
    hash_problems,
    kind_of,
    kv_scales,
    quantization_of,
)
from ansible.module_utils.checkpoint import checkpoint_facts as facts_of
from ansible.module_utils.shards import LONGEST_HEADER, POINTER, Tensor, TornShard, read_shard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_checkpoint import (
    ATTENTION,
    LAYERS,
    QWEN35,
    header_of,
    packed,
    qwen_tensors,
    write_checkpoint,
    write_shard,
)

TINY = Path(__file__).parents[1] / "data" / "tiny-qwen3"
ONE = {"a": ("F32", [2, 2]), "b": ("BF16", [3])}
a_folder = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "model")


# --- one safetensors file ------------------------------------------------------------------------


def test_a_shard_is_read_by_its_header(tmp_path: Path) -> None:
    write_shard(tmp_path / "x.safetensors", ONE)
    assert read_shard(tmp_path / "x.safetensors") == {
        "a": Tensor("F32", (2, 2), 16),
        "b": Tensor("BF16", (3,), 6),
    }


def test_a_shard_without_tensors_is_whole(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(packed({}, b""))
    assert read_shard(tmp_path / "x") == {}


def test_the_real_file_of_the_tiny_model_is_whole() -> None:
    tensors = read_shard(TINY / "model.safetensors")
    assert tensors["model.embed_tokens.weight"] == Tensor("BF16", (1536, 128), 1536 * 128 * 2)


def one(**changes: Any) -> bytes:
    """A file of one tensor of 8 bytes, with some of its description changed."""
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes
    return packed({"a": entry}, bytes(8))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "it has 0 bytes, fewer than the 8 of a header's length", id="empty"),
        pytest.param(b"1234567", "it has 7 bytes, fewer than", id="short"),
        pytest.param(struct.pack("<Q", 9) + b"{}", "its header is 9 bytes long, the file has 10", id="cut"),
        pytest.param(
            struct.pack("<Q", 1 << 63) + b"{}",
            "more than safetensors allows (100000000)",
            id="nonsense length",
        ),
        pytest.param(packed(b"{", b""), "its header is not JSON", id="not JSON"),
        pytest.param(packed(b"\xff\xfe", b""), "its header is not JSON", id="not UTF-8"),
        pytest.param(packed(b"[" * 100_000, b""), "its header is not JSON", id="nested"),
        pytest.param(packed(b'{"a": {}, "a": {}}', b""), "'a' is there twice", id="a tensor twice"),
        pytest.param(packed([], b""), "its header is a list, not a mapping of tensors", id="a list"),
        pytest.param(packed({"a": 1}, b""), "tensor a is described by a int", id="no description"),
        pytest.param(one(dtype=3), "tensor a has no dtype", id="no dtype"),
        pytest.param(one(shape=[-2]), "tensor a has no shape of whole numbers", id="negative shape"),
        pytest.param(one(shape=[2.0]), "tensor a has no shape of whole numbers", id="fractional shape"),
        pytest.param(one(shape=[True, 2]), "tensor a has no shape of whole numbers", id="boolean shape"),
        pytest.param(one(data_offsets=[0]), "no data_offsets of two whole numbers", id="one offset"),
        pytest.param(
            one(data_offsets=[0, 1e999]), "no data_offsets of two whole numbers", id="infinite offset"
        ),
        pytest.param(one(data_offsets=[8, 0]), "ends at byte 0, before it begins at 8", id="backwards"),
        pytest.param(one(shape=[3]), "tensor a of F32 [3] does not take 8 bytes", id="another size"),
        pytest.param(one()[:-1], "its tensors take 8 bytes, the file holds 7", id="torn"),
        pytest.param(one() + b"x", "its tensors take 8 bytes, the file holds 9", id="too long"),
        pytest.param(
            packed(
                {
                    "a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},
                    "b": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]},
                },
                bytes(6),
            ),
            "tensor b begins at byte 2, inside another that ends at 4",
            id="overlap",
        ),
        pytest.param(
            packed({"a": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]}}, bytes(6)),
            "no tensor holds bytes 0 to 2, before tensor a",
            id="hole",
        ),
        pytest.param(
            POINTER + b"v1\noid sha256:00\nsize 5000000000\n", "it is a git-lfs pointer", id="git-lfs pointer"
        ),
    ],
)
def test_a_torn_shard_is_told_apart(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(TornShard) as error:
        read_shard(tmp_path / "x")
    assert reason in str(error.value)


def test_a_type_that_is_not_known_is_not_measured(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(one(dtype="F5_NEW"))
    assert read_shard(tmp_path / "x")["a"].dtype == "F5_NEW"


def test_a_long_header_of_a_large_file_is_not_read(tmp_path: Path) -> None:
    """A length that a file could hold, but that no header has: nothing of it comes into memory."""
    with (tmp_path / "x").open("wb") as stream:
        stream.write(struct.pack("<Q", LONGEST_HEADER + 1))
        stream.truncate(LONGEST_HEADER * 2)
    with pytest.raises(TornShard, match="more than safetensors allows"):
        read_shard(tmp_path / "x")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
entries = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "U8", "F4"]) | anything,
        "shape": st.lists(st.integers(-1, 4), max_size=3) | anything,
        "data_offsets": st.lists(st.integers(-1, 20), max_size=3) | anything,
    },
)


@a_folder
@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_whole_shard_or_torn(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    try:
        read_shard(tmp_path / "x")
    except TornShard as error:
        assert str(error)


@a_folder
@given(header=st.dictionaries(st.text(max_size=4), entries | anything, max_size=3), size=st.integers(0, 30))
def test_any_header_is_whole_or_torn(tmp_path: Path, header: dict[str, Any], size: int) -> None:
    (tmp_path / "x").write_bytes(packed(header, bytes(size)))
    try:
        tensors = read_shard(tmp_path / "x")
    except TornShard as error:
        assert str(error)
    else:
        assert sum(tensor.size for tensor in tensors.values()) == size


# --- configurations of real models, values only --------------------------------------------------


def qwen(**changes: Any) -> dict[str, Any]:
    config = deepcopy(QWEN35)
    config["text_config"] |= changes
    return config


def test_a_hybrid_model_is_described() -> None:
    assert architecture_of(QWEN35) == {
        "name": "Qwen3_5MoeForConditionalGeneration",
        "model_type": "qwen3_5_moe_text",
        "layers": 8,
        "full_layers": 2,
        "linear_layers": 6,
        "sliding_layers": 0,
        "other_layers": 0,
        "hidden_size": 4096,
        "attention_heads": 32,
        "kv_heads": 2,
        "head_dim": 256,
        "vocab_size": 248320,
        "max_positions": 262144,
        "experts": 512,
        "mtp_layers": 1,
        "multimodal": True,
        "linear": {
            "key_heads": 16,
            "value_heads": 64,
            "key_dim": 128,
            "value_dim": 128,
            "conv_kernel": 4,
            "state_dtype": "float32",
        },
    }


def test_without_names_every_fourth_layer_is_a_full_one() -> None:
    named, unnamed = architecture_of(QWEN35), architecture_of(qwen(layer_types=None))
    assert named == unnamed


def test_the_layers_that_need_scales_are_the_full_ones_without_names_too(tmp_path: Path) -> None:
    facts = facts_of(write_checkpoint(tmp_path / "m", qwen(layer_types=None)))
    assert facts["kv_scales"]["complete"] == list(ATTENTION)


def test_latent_attention_with_an_indexer_is_described() -> None:
    """The values of GLM-5's config.json."""
    found = architecture_of(
        {
            "architectures": ["GlmMoeDsaForCausalLM"],
            "num_hidden_layers": 78,
            "num_attention_heads": 64,
            "num_key_value_heads": 64,
            "hidden_size": 6144,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
            "index_head_dim": 128,
            "n_routed_experts": 256,
            "num_nextn_predict_layers": 1,
        }
    )
    assert found["latent"] == {"kv_rank": 512, "rope_dim": 64, "index_dim": 128}
    assert (found["full_layers"], found["experts"], found["mtp_layers"]) == (78, 256, 1)
    assert found["head_dim"] == 96


def test_layers_with_a_sliding_window_are_counted() -> None:
    """The values of gpt-oss-120b's config.json."""
    found = architecture_of(
        {
            "num_hidden_layers": 36,
            "layer_types": ["sliding_attention", "full_attention"] * 18,
            "num_key_value_heads": 8,
            "head_dim": 64,
        }
    )
    assert (found["full_layers"], found["sliding_layers"], found["linear_layers"]) == (18, 18, 0)


def test_kinds_of_layers_that_are_not_known_are_counted_apart() -> None:
    found = architecture_of({"num_hidden_layers": 2, "layer_types": ["chunked_attention", "full_attention"]})
    assert (found["full_layers"], found["other_layers"]) == (1, 1)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({}, "num_hidden_layers is missing, so it describes no language model"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be a whole number above 0, not 0"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be a whole number above 0, not True"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, which no model has"),
        ({"num_hidden_layers": 4, "head_dim": "x"}, "head_dim must be a whole number above 0, not 'x'"),
        ({"num_hidden_layers": 4, "layer_types": "x"}, "layer_types must be a list of names, not 'x'"),
        ({"num_hidden_layers": 4, "layer_types": ["x"]}, "layer_types names 1 layers, the model has 4"),
        ({"num_hidden_layers": 4, "full_attention_interval": -1}, "full_attention_interval must be a whole"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_in_a_configuration_is_said(config: dict[str, Any], problem: str) -> None:
    with pytest.raises(CheckpointError) as error:
        architecture_of(config)
    assert str(error.value).startswith(f"config.json: {problem}")


@a_folder
@given(config=st.dictionaries(st.sampled_from([*QWEN35, *QWEN35["text_config"], "layer_types"]), anything))
def test_any_configuration_is_read_or_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    folder = write_checkpoint(tmp_path / "model", config | {"num_hidden_layers": 4}, shards=1)
    try:
        facts_of(folder)
    except CheckpointError as error:
        assert str(error)


# --- how it is quantised -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inner", "beside", "method", "algorithm", "cache"),
    [
        pytest.param({}, None, None, None, None, id="not"),
        pytest.param(
            QWEN35["quantization_config"], None, "modelopt", "NVFP4", "FP8", id="ModelOpt, one file"
        ),
        pytest.param(
            {},
            {
                "quantization": {
                    "quant_algo": "NVFP4",
                    "kv_cache_quant_algo": "FP8",
                    "exclude_modules": ["lm_head"],
                }
            },
            "modelopt",
            "NVFP4",
            "FP8",
            id="ModelOpt, file beside",
        ),
        pytest.param(
            {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "kv_cache_scheme": None},
            None,
            "compressed-tensors",
            "NVFP4",
            None,
            id="llm-compressor, no KV scheme",
        ),
        pytest.param(
            {
                "quant_method": "compressed-tensors",
                "format": "nvfp4-pack-quantized",
                "kv_cache_scheme": {"num_bits": 8, "type": "float"},
            },
            None,
            "compressed-tensors",
            "NVFP4",
            "FP8",
            id="llm-compressor, FP8 KV",
        ),
        pytest.param(
            {"quant_method": "fp8", "weight_block_size": [128, 128]}, None, "fp8", "FP8", None, id="block FP8"
        ),
        pytest.param({"quant_method": "mxfp4"}, None, "mxfp4", "MXFP4", None, id="gpt-oss"),
    ],
)
def test_the_quantisation_is_read(inner: Any, beside: Any, method: Any, algorithm: Any, cache: Any) -> None:
    found = quantization_of({"quantization_config": inner}, beside)
    assert (found["method"], found["algorithm"], found["kv_cache"]) == (method, algorithm, cache)
    assert found["notes"] == []


def test_two_files_that_disagree_are_noted() -> None:
    beside = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "NVFP4"}}
    assert quantization_of(QWEN35, beside)["notes"] == [
        "config.json says quant_algo NVFP4, hf_quant_config.json says FP8",
        "config.json says kv_cache FP8, hf_quant_config.json says NVFP4",
    ]


@pytest.mark.parametrize(
    "scheme", [{"type": "float", "num_bits": [8]}, {"type": "int", "num_bits": 8}, 8, ""]
)
def test_a_scheme_that_is_none_makes_no_cache_type(scheme: Any) -> None:
    assert cache_type({"kv_cache_scheme": scheme}) is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"{LAYERS}.0.linear_attn.in_proj_qkv.weight", "linear attention"),
        (f"{LAYERS}.3.self_attn.k_proj.weight", "attention"),
        (f"{LAYERS}.3.mlp.experts.17.down_proj.weight", "experts"),
        (f"{LAYERS}.3.mlp.shared_expert.down_proj.weight", "shared experts"),
        (f"{LAYERS}.3.mlp.gate.weight", "router"),
        (f"{LAYERS}.3.mlp.gate_proj.weight", "mlp"),
        (f"{LAYERS}.3.input_layernorm.weight", "other"),
        ("model.visual.blocks.26.attn.qkv.weight", "vision"),
        ("mtp.layers.0.self_attn.k_proj.weight", "mtp"),
        ("model.layers.8.self_attn.kv_b_proj.weight", "mtp"),
        ("model.language_model.embed_tokens.weight", "embeddings"),
        ("lm_head.weight", "head"),
    ],
)
def test_a_tensor_belongs_to_a_kind_of_layer(name: str, kind: str) -> None:
    assert kind_of(name, 8) == kind


def test_formats_are_told_by_the_tensors_themselves(folder: Path) -> None:
    formats = facts_of(folder)["quantization"]["formats"]
    assert set(formats["experts"]) == {"NVFP4"}
    assert formats["experts"]["NVFP4"] == 8 * (32 + 4 + 4 + 4)
    assert set(formats["attention"]) == {"BF16", "F32"}
    assert formats["shared experts"] == {"BF16": 8 * 16}


@pytest.mark.parametrize(
    ("tensors", "name", "form"),
    [
        ({"e.gate_up_proj_blocks": Tensor("U8", (4,), 4)}, "e.gate_up_proj_blocks", "MXFP4"),
        ({"e.weight": Tensor("F8_E4M3", (4,), 4)}, "e.weight", "FP8"),
        ({"e.weight": Tensor("U8", (4,), 4)}, "e.weight", "U8"),
        (
            {"e.weight_packed": Tensor("U8", (4,), 4), "e.weight_global_scale": Tensor("F32", (), 4)},
            "e.weight_packed",
            "NVFP4",
        ),
    ],
    ids=["MXFP4", "FP8", "bytes", "NVFP4 of compressed-tensors"],
)
def test_the_format_of_a_weight(tensors: dict[str, Tensor], name: str, form: str) -> None:
    assert format_of(name, tensors) == form


# --- KV scales -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scaled", "state", "lacking"),
    [(ATTENTION, "all", []), ((3,), "some", [7]), ((), "none", [3, 7])],
    ids=["all", "some", "none"],
)
def test_kv_scales_are_counted_by_layer(tmp_path: Path, scaled: Any, state: str, lacking: list[int]) -> None:
    facts = facts_of(write_checkpoint(tmp_path / "m", tensors=qwen_tensors(scaled)))
    assert (facts["kv_scales"]["state"], facts["kv_scales"]["lacking"]) == (state, lacking)


@pytest.mark.parametrize(
    ("names", "state"),
    [
        (["self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale"], "all"),
        (["self_attn.k_scale", "self_attn.v_scale"], "all"),
        (["self_attn.attn.k_scale", "self_attn.attn.v_scale"], "all"),
        (["self_attn.kv_scale"], "all"),
        (["self_attn.k_proj.output_scale", "self_attn.v_proj.output_scale"], "all"),
        (["self_attn.k_proj.k_scale"], "some"),
        (["self_attn.k_proj.weight_scale", "self_attn.v_proj.input_scale"], "none"),
        (["mlp.down_proj.weight_scale_2"], "none"),
    ],
    ids=[
        "ModelOpt",
        "compressed-tensors",
        "SGLang",
        "one for both",
        "Quark",
        "K alone",
        "of weights",
        "of an MLP",
    ],
)
def test_the_names_of_kv_scales_are_those_that_sglang_takes(names: list[str], state: str) -> None:
    assert kv_scales([f"model.layers.0.{name}" for name in names], [0])["state"] == state


def test_scales_of_mtp_and_vision_do_not_stand_in_for_those_of_a_layer() -> None:
    names = [
        f"{where}.0.self_attn.{part}_proj.{part}_scale"
        for where in ("mtp.layers", "model.visual.blocks")
        for part in ("k", "v")
    ]
    assert kv_scales(names, [0])["state"] == "none"


# --- whole folders -------------------------------------------------------------------------------


def test_a_whole_checkpoint_has_no_problems(folder: Path) -> None:
    facts = facts_of(folder)
    assert facts["problems"] == []
    tensors = qwen_tensors()
    assert facts["weights"] == {
        "files": 2,
        "bytes": header_of(tensors)[1],
        "tensors": len(tensors),
        "indexed": True,
        "missing": [],
        "torn": {},
        "extra": [],
    }
    assert facts["mtp"] == {"layers": 1, "tensors": 1}


def lose_a_shard(folder: Path) -> None:
    (folder / "model-00002-of-00002.safetensors").unlink()


def tear_a_shard(folder: Path) -> None:
    path = folder / "model-00002-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def leave_a_pointer(folder: Path) -> None:
    (folder / "model-00001-of-00002.safetensors").write_bytes(POINTER + b"v1\n")


def lose_a_tensor(folder: Path) -> None:
    path = folder / "model-00001-of-00002.safetensors"
    names = sorted(qwen_tensors())[0::2]
    write_shard(path, {name: qwen_tensors()[name] for name in names[1:]})


def hide_a_tensor(folder: Path) -> None:
    index = json.loads((folder / INDEX).read_text())
    del index["weight_map"]["lm_head.weight"]
    (folder / INDEX).write_text(json.dumps(index))


def lose_the_index(folder: Path) -> None:
    (folder / INDEX).unlink()
    lose_a_shard(folder)


def hold_a_tensor_twice(folder: Path) -> None:
    write_shard(folder / "model-00002-of-00002.safetensors", qwen_tensors())
    index = json.loads((folder / INDEX).read_text())["weight_map"]
    (folder / INDEX).write_text(
        json.dumps({"weight_map": index | {"more": "model-00002-of-00002.safetensors"}})
    )


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lose_a_shard, "model-00002-of-00002.safetensors is missing"),
        (tear_a_shard, "model-00002-of-00002.safetensors is torn: its tensors take"),
        (leave_a_pointer, "model-00001-of-00002.safetensors is torn: it is a git-lfs pointer"),
        (lose_a_tensor, "model-00001-of-00002.safetensors lacks 1 tensor that model.safetensors.index.json"),
        (hide_a_tensor, "holds 1 tensor that model.safetensors.index.json does not name, lm_head.weight"),
        (lose_the_index, "model-00002-of-00002.safetensors is missing"),
        (hold_a_tensor_twice, "tensors that another file holds too, lm_head.weight"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_checkpoint_that_is_not_whole_is_told(
    folder: Path, spoil: Callable[[Path], None], problem: str
) -> None:
    spoil(folder)
    assert any(problem in found for found in facts_of(folder)["problems"])


def test_a_file_that_the_index_does_not_use_is_extra_and_no_problem(folder: Path) -> None:
    write_shard(folder / "consolidated.safetensors", ONE)
    facts = facts_of(folder)
    assert facts["weights"]["extra"] == ["consolidated.safetensors"]
    assert facts["problems"] == []


def test_a_missing_shard_does_not_hide_the_scales_that_the_index_names(folder: Path) -> None:
    lose_a_shard(folder)
    assert facts_of(folder)["kv_scales"]["state"] == "all"


def only(folder: Path, *names: str) -> None:
    """A folder with these empty files alone."""
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(b"")


SOMETHING_ELSE: dict[str, tuple[tuple[str, ...], str]] = {
    "empty": ((), "has no config.json, so it is no checkpoint"),
    "lora": (("adapter_config.json", "adapter_model.safetensors"), "holds a LoRA adapter, not a model"),
    "gguf": (("model-Q4_K_M.gguf",), "holds a GGUF of llama.cpp"),
    "gguf beside a config": (("config.json", "model-Q4_K_M.gguf"), "holds a GGUF of llama.cpp"),
    "pickles": (("config.json", "pytorch_model.bin"), "has its weights as torch pickles (.bin) alone"),
    "no weights": (("config.json", "tokenizer.json"), "has no weights: no file there ends with .safetensors"),
    "no config": (("model.safetensors",), "has no config.json, so it is no checkpoint"),
    "diffusion": (("model_index.json",), "holds a diffusion pipeline"),
}


@pytest.mark.parametrize(("names", "problem"), SOMETHING_ELSE.values(), ids=SOMETHING_ELSE)
def test_a_folder_that_is_something_else_is_refused(
    tmp_path: Path, names: tuple[str, ...], problem: str
) -> None:
    only(tmp_path / "x", *names)
    with pytest.raises(CheckpointError) as error:
        facts_of(tmp_path / "x")
    assert str(error.value).startswith(f"{tmp_path / 'x'} {problem}")


def test_a_repository_of_the_hubs_cache_is_named_one_folder_too_high(tmp_path: Path) -> None:
    for name in ("blobs", "snapshots"):
        (tmp_path / "x" / name).mkdir(parents=True)
    with pytest.raises(CheckpointError, match="name its folder snapshots/REVISION"):
        facts_of(tmp_path / "x")


@pytest.mark.parametrize(
    ("name", "problem"),
    [("gone", "is not there"), ("a.gguf", "is a GGUF file"), ("file", "is a file, not a folder")],
)
def test_no_folder_at_all_is_refused(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CheckpointError, match=problem):
        facts_of(tmp_path / name)


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("config.json", "{", "not JSON"),
        ("config.json", "[]", "must be a mapping, not list"),
        ("config.json", POINTER.decode(), "is a git-lfs pointer"),
        ("config.json", '{"num_hidden_layers": 8, "num_hidden_layers": 4}', "is there twice"),
        ("hf_quant_config.json", "x", "not JSON"),
        ("hf_quant_config.json", '{"quantization": [1]}', "quantization must be a mapping, not list"),
        ("generation_config.json", "1", "must be a mapping, not int"),
        (INDEX, "{}", "weight_map must be a mapping of tensors to files"),
        (INDEX, '{"weight_map": {"a": "../../etc/shadow.safetensors"}}', "a must be in a safetensors file"),
        (INDEX, '{"weight_map": {"a": 3}}', "a must be in a safetensors file of the folder, not 3"),
        (
            INDEX,
            '{"weight_map": {"a": "pytorch_model.bin"}}',
            "a must be in a safetensors file of the folder",
        ),
    ],
)
def test_a_spoilt_document_is_one_line(folder: Path, file: str, text: str, problem: str) -> None:
    (folder / file).write_text(text)
    with pytest.raises(CheckpointError) as error:
        facts_of(folder)
    assert problem in str(error.value)
    assert file in str(error.value)
    assert "\n" not in str(error.value)


@a_folder
@given(data=st.binary(max_size=40) | anything.map(lambda value: json.dumps(value).encode()))
@pytest.mark.parametrize("file", ["config.json", "hf_quant_config.json", "generation_config.json", INDEX])
def test_any_document_is_read_or_refused(tmp_path: Path, file: str, data: bytes) -> None:
    folder = write_checkpoint(tmp_path / "model")
    (folder / file).write_bytes(data)
    try:
        facts_of(folder)
    except CheckpointError as error:
        assert str(error)


# --- hashes --------------------------------------------------------------------------------------


def test_the_files_of_a_folder_are_hashed_and_those_of_tools_are_not(folder: Path) -> None:
    (folder / ".cache").mkdir()
    (folder / ".cache/x").write_bytes(b"x")
    (folder / "sub").mkdir()
    (folder / "sub/tokenizer.model").write_bytes(b"y")
    seen: list[str] = []
    hashes = folder_hashes(folder, lambda _done, _everything, name: seen.append(name))
    assert list(hashes) == seen
    assert "sub/tokenizer.model" in hashes
    assert not any(name.startswith(".") for name in hashes)
    assert hashes["config.json"] == hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()


def test_another_upload_is_another_model() -> None:
    assert hash_problems({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}) == [
        "c is missing",
        "b is another file than the profile was locked to: its SHA-256 is 2, not 3",
    ]


# --- the module ----------------------------------------------------------------------------------


@pytest.fixture
def run(run_module: Callable[..., dict[str, Any]]) -> Iterator[Callable[..., dict[str, Any]]]:
    def call(path: Path, check: bool = False, **options: Any) -> dict[str, Any]:
        return run_module(checkpoint_facts, check, path=str(path), **options)

    yield call


def test_the_module_tells_the_facts_and_changes_nothing(run: Any, folder: Path) -> None:
    before = sorted(folder.iterdir())
    result = run(folder)
    assert result["changed"] is False
    assert result["facts"] == facts_of(folder)
    assert run(folder, True)["facts"] == result["facts"]
    assert sorted(folder.iterdir()) == before


def test_the_module_hashes_when_it_is_asked_and_says_how_far_it_is(
    run: Any, folder: Path, tmp_path: Path
) -> None:
    progress = tmp_path / "run/progress.json"
    wanted = {"config.json": "0" * 64}
    result = run(folder, hash=True, files=wanted, progress_file=str(progress))
    assert set(result["facts"]["hashes"]) == {path.name for path in folder.iterdir()}
    assert ["config.json is another file" in problem for problem in result["facts"]["problems"]] == [True]
    assert json.loads(progress.read_text())["note"].startswith("hashing model.safetensors.index.json, ")


def test_the_module_does_not_hash_unless_it_is_asked(run: Any, folder: Path) -> None:
    assert run(folder, files={"config.json": "0" * 64})["facts"]["hashes"] is None


def test_the_module_fails_with_one_line(run: Any, tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result["failed"]
    assert result["msg"] == f"{tmp_path} has no config.json, so it is no checkpoint"


def test_the_tiny_model_is_whole_and_has_no_kv_scales(run: Any) -> None:
    facts = run(TINY)["facts"]
    assert facts["problems"] == []
    assert facts["kv_scales"]["state"] == "none"
    assert (facts["architecture"]["kv_heads"], facts["architecture"]["head_dim"]) == (2, 32)
