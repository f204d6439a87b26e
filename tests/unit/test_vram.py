"""The GPUs' memory against public figures, and what is refused with how much would fit."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.checkpoint import checkpoint_facts
from hypothesis import given
from hypothesis import strategies as st
from tiny_checkpoint import ATTENTION, qwen_tensors, write_checkpoint
from vram import (
    ELEMENT,
    GIB,
    MIB,
    SPREAD,
    fewest_gpus,
    kv_policy,
    kv_token_bytes,
    model_facts,
    model_fit,
    reserved_bytes,
    state_bytes,
    vram_budget,
    weights_on_gpu,
)

CATALOG = Path(__file__).parents[2] / "catalog"
LOADERS = yaml.safe_load((CATALOG / "kv_scales.yml").read_text())


def profile(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CATALOG / f"models/{name}.yml").read_text())
    return found


QWEN397 = profile("qwen3.5-397b-a17b-nvfp4-community-8x")
GLM5 = profile("glm-5-nvfp4-mtp-8x")
GPT_OSS = profile("gpt-oss-120b-1x")
QWEN27 = profile("qwen3.8-27b-nvfp4-5090")["architecture"] | {"mtp_layers": 1}
QWEN9 = {  # https://huggingface.co/Qwen/Qwen3.5-9B
    "layers": 32,
    "full_layers": 8,
    "linear_layers": 24,
    "kv_heads": 4,
    "head_dim": 256,
    "linear": {
        "key_heads": 16,
        "value_heads": 32,
        "key_dim": 128,
        "value_dim": 128,
        "conv_kernel": 4,
        "state_dtype": "float32",
    },
}


def pro6000(count: int) -> list[dict[str, Any]]:
    """GPUs of the size that CUDA reports: 102,005,866,496 bytes (ovg-project/kvcached pull request 459)."""
    return [{"name": "RTX PRO 6000", "memory_gib": 95.0}] * count


def budget(given: dict[str, Any], count: int, launch: dict[str, Any], **options: Any) -> dict[str, Any]:
    return vram_budget(model_facts(given), pro6000(count), launch, **options)


# --- public figures ------------------------------------------------------------------------------
# The first ones are logged sizes of pools that follow from the shape alone, so they must come out to the last
# digit that was printed. The others depend on what else the process holds, which nobody publishes. The wiki
# is https://github.com/voipmonitor/rtx6kpro.


def test_a_state_of_qwen35_9b_has_the_bytes_that_kvcached_logged() -> None:
    """`raw=2146304B` a layer: https://github.com/ovg-project/kvcached/pull/459"""
    assert state_bytes(QWEN9) == 24 * 2_146_304


@pytest.mark.parametrize(("dtype", "mib"), [("float32", 146.81), ("bfloat16", 74.81)])
def test_a_state_of_qwen38_27b_has_the_size_of_sglangs_cookbook(dtype: str, mib: float) -> None:
    """146.81 MiB in fp32, 74.81 in bf16: https://github.com/sgl-project/sglang/pull/35065"""
    assert round(state_bytes(QWEN27, dtype=dtype) / MIB, 2) == mib


def test_a_state_takes_the_place_of_as_many_tokens_as_were_measured() -> None:
    """11 states fewer made room for 24,785 tokens, 2,253.2 each, of FP8 in 17 layers, that of MTP included:
    https://github.com/noonghunna/club-3090/pull/1331"""
    tokens = state_bytes(QWEN27, 2, dtype="bfloat16") / kv_token_bytes(QWEN27, "fp8_e4m3", 2, draft=True)
    assert round(tokens, 1) == 2253.2
    assert int(11 * tokens) == 24_784


@pytest.mark.parametrize(
    ("kind", "tokens", "gib"),
    [("full_layers", 318_715, 5.47), ("sliding_layers", 254_972, 4.38)],
    ids=["full", "sliding"],
)
def test_the_pools_of_gpt_oss_have_the_sizes_of_its_log(kind: str, tokens: int, gib: float) -> None:
    """K size of both pools, RTX PRO 6000: https://github.com/sgl-project/sglang/pull/19718"""
    alone = GPT_OSS["architecture"] | {"full_layers": GPT_OSS["architecture"][kind], "sliding_layers": 0}
    assert round(kv_token_bytes(alone, "bf16") * tokens / 2 / GIB, 2) == gib


def test_both_pools_of_gpt_oss_together() -> None:
    """SWAKVPool 19.70 GiB for 318,715 tokens, 0.8 of which the sliding layers keep: the same log."""
    assert round(kv_token_bytes(GPT_OSS["architecture"], "bf16") * 318_715 / GIB, 2) == 19.70


def test_the_kv_cache_of_glm5_is_latent_with_an_indexer() -> None:
    """29.32 GiB for 314,304 tokens in bf16, on each of 8 GPUs: the wiki's models/glm5.md."""
    assert round(kv_token_bytes(GLM5["architecture"], "bf16", 8) * 314_304 / GIB, 2) == 29.32


def test_the_tokens_of_glm5_are_those_of_the_wiki_within_four_percent() -> None:
    """mem_fraction_static 0.92 gave 314,304: the wiki's models/glm5.md. What a process holds beside, such as
    CUDA's context and NCCL's buffers, is not reckoned, and 1 GiB of it is 3 % of this cache: too high, never
    too low.
    """
    launch = {"tp_size": 8, "mem_fraction_static": 0.92}
    tokens = budget(GLM5, 8, launch)["split"]["tokens"]
    assert 314_304 < tokens < 314_304 * 1.04


def test_the_founding_deployment_has_its_tokens_between_both_ends() -> None:
    """About 1.57 M tokens of bf16 on 8 GPUs, as its notes say, without a memory fraction; SGLang's own is
    taken. The ends are for weights that take what their files take, and `SPREAD` more: 5 GiB of each GPU, an
    eighth of what is left for the cache and the states.
    """
    model = model_facts(QWEN397)
    low, high = (
        vram_budget(model | {"weights_bytes": size}, pro6000(8), {"tp_size": 8})["split"]["tokens"]
        for size in (model["weights_bytes"], model["weights_bytes"] / SPREAD)
    )
    assert low < 1_570_000 < high
    assert high / low < 1.125


@pytest.mark.parametrize(("count", "verdict"), [(4, "refuse"), (8, "ok")])
def test_glm5_fits_eight_gpus_and_not_four(count: int, verdict: str) -> None:
    """8 is the least in the wiki's models/glm5.md, and that 4 are too few."""
    launch = GLM5["launch"] | {"tp_size": count, "mem_fraction_static": 0.92, "context_length": 190_000}
    found = budget(GLM5, count, {key: value for key, value in launch.items() if "spec" not in key})
    assert found["verdict"] == verdict


@pytest.mark.parametrize(("count", "verdict"), [(1, "refuse"), (2, "refuse"), (4, "ok"), (8, "ok")])
def test_qwen35_397b_fits_four_gpus_and_not_two(count: int, verdict: str) -> None:
    """4 GPUs are the most common setup in the wiki's models/qwen35-397b.md."""
    assert budget(QWEN397, count, QWEN397["launch"] | {"tp_size": count})["verdict"] == verdict


# --- the parts -----------------------------------------------------------------------------------


def test_fewer_kv_heads_than_gpus_are_kept_by_each() -> None:
    shape = QWEN397["architecture"]
    assert kv_token_bytes(shape, "bf16", 2) == 15 * 1 * 2 * 256 * 2
    assert kv_token_bytes(shape, "bf16", 8) == kv_token_bytes(shape, "bf16", 2)
    assert kv_token_bytes(shape, "bf16", 1) == 2 * kv_token_bytes(shape, "bf16", 2)


def test_linear_layers_keep_a_state_and_no_tokens() -> None:
    shape = QWEN397["architecture"]
    assert kv_token_bytes(shape | {"linear_layers": 1000}, "bf16") == kv_token_bytes(shape, "bf16")
    assert state_bytes(shape | {"linear_layers": 90}) == 2 * state_bytes(shape)
    assert state_bytes(GLM5["architecture"]) == 0


@pytest.mark.parametrize("dtype", ELEMENT)
def test_a_smaller_type_takes_less(dtype: str) -> None:
    assert kv_token_bytes(QWEN9, dtype) == kv_token_bytes(QWEN9, "bf16") * ELEMENT[dtype] / 2


def test_the_draft_layer_has_a_cache_of_its_own() -> None:
    assert kv_token_bytes(QWEN27, "bf16", draft=True) == kv_token_bytes(QWEN27, "bf16") * 17 / 16


def test_pipeline_stages_share_the_layers() -> None:
    assert kv_token_bytes(QWEN9, "bf16", 1, 2) == kv_token_bytes(QWEN9, "bf16") / 2
    assert state_bytes(QWEN9, 1, 2) == state_bytes(QWEN9) / 2


@pytest.mark.parametrize(
    ("launch", "mib"),
    [
        ({}, 512 + 8192 * 1.5 + 256 * 2 + 128),
        ({"tp_size": 8}, 512 + 8192 * 1.5 + 512 * 2 + 1024),
        ({"chunked_prefill_size": 2048, "cuda_graph_max_bs": 1}, 10 * 1024),
        ({"speculative_algorithm": "NEXTN"}, 512 + 8192 * 1.5 + 256 * 2 + 128 + 2048),
        ({"mem_fraction_static": 0.9}, 0.1 * 95 * 1024),
    ],
    ids=["defaults", "eight GPUs", "at least ten GiB", "draft model", "a fraction that is named"],
)
def test_what_is_left_for_graphs_and_activations_is_sglangs_rule(launch: dict[str, Any], mib: float) -> None:
    assert reserved_bytes(95 * GIB, launch) == pytest.approx(mib * MIB)


def test_a_small_gpu_has_small_defaults() -> None:
    assert reserved_bytes(31 * GIB, {}) == (512 + 2048 * 1.5 + 24 * 2 + 128) * MIB


def test_weights_that_were_measured_have_no_range() -> None:
    model = model_facts(GLM5)
    assert weights_on_gpu(model, 8) == (57.06 * GIB, 57.06 * GIB)
    low, high = weights_on_gpu(model, 4)
    assert (low, high) == (429e9 / 4, 429e9 / 4 * SPREAD)


def test_the_states_take_what_they_are_given() -> None:
    """--max-mamba-cache-size in place of the ratio, and the states of draft tokens."""
    launch = {"tp_size": 4, "mem_fraction_static": 0.9}
    given, fixed, drafted = (
        budget(QWEN397, 4, launch | more)["split"]
        for more in (
            {},
            {"max_mamba_cache_size": 10},
            {
                "max_mamba_cache_size": 10,
                "speculative_algorithm": "NEXTN",
                "max_running_requests": 8,
                "speculative_num_draft_tokens": 4,
            },
        )
    )
    state = state_bytes(QWEN397["architecture"], 4)
    assert given["states"] / given["room"] == pytest.approx(0.9)
    assert fixed["states"] == pytest.approx(10 * state)
    assert drafted["states"] == pytest.approx((10 + 8 * 4) * state)
    replayed = budget(
        QWEN397,
        4,
        launch
        | {
            "max_mamba_cache_size": 10,
            "speculative_algorithm": "NEXTN",
            "enable_linear_replayssm_spec": True,
        },
    )
    assert replayed["split"]["states"] == pytest.approx(10 * state)


# --- verdicts ------------------------------------------------------------------------------------


def test_a_refusal_says_how_much_context_would_fit() -> None:
    found = budget(GLM5, 8, {"tp_size": 8, "mem_fraction_static": 0.85}, context=300_000)
    assert found["verdict"] == "refuse"
    assert f"a context of {found['largest_context']} tokens would fit" in found["text"]
    again = budget(GLM5, 8, {"tp_size": 8, "mem_fraction_static": 0.85}, context=found["largest_context"])
    assert again["verdict"] == "ok"


def test_a_refusal_says_how_many_gpus_would_do() -> None:
    found = budget(QWEN397, 2, QWEN397["launch"] | {"tp_size": 2})
    assert found["fewest_gpus"] == 4
    assert found["text"].endswith("does not fit: 4 such GPUs would hold it")


def test_a_refusal_says_when_nothing_would_do() -> None:
    huge = deepcopy(QWEN397) | {"sizes": {"disk_gb": 90_000}}
    found = budget(huge, 8, huge["launch"])
    assert found["text"].endswith("does not fit: no number of such GPUs up to 32 holds it")


def test_heads_that_do_not_divide_are_no_choice() -> None:
    """Qwen3.8-27B has 24 heads: 16 GPUs cannot share them."""
    model = model_facts({"architecture": QWEN27, "sizes": {"disk_gb": 2000}})
    assert fewest_gpus(model, 95 * GIB, {"mem_fraction_static": 0.9}, "bf16", 1000) is None


def test_too_few_gpus_are_refused_before_anything_is_reckoned() -> None:
    found = budget(QWEN397, 4, QWEN397["launch"])
    assert found["verdict"] == "refuse"
    assert found["text"].startswith("VRAM: the launch takes 8 GPUs, the node has 4; set tp_size")


def test_between_the_files_and_their_spread_it_is_tight() -> None:
    model = model_facts(QWEN397)
    launch = {"tp_size": 2, "mem_fraction_static": 0.9}
    gpus = [{"name": "X", "memory_gib": 140.0}] * 2
    found = vram_budget(model, gpus, launch, context=200_000)
    assert found["verdict"] == "tight"
    assert "fits if the weights take no more than their files, else" in found["text"]


def test_several_requests_share_the_cache() -> None:
    one, four = (budget(GLM5, 8, GLM5["launch"], concurrency=number) for number in (1, 4))
    assert (one["verdict"], four["verdict"]) == ("ok", "refuse")
    assert "4 requests of 190000 tokens does not fit" in four["text"]
    assert four["largest_context"] == pytest.approx(one["split"]["tokens"] / 4, abs=1)


def test_replicas_take_gpus_of_their_own_and_dp_attention_does_not() -> None:
    """TP=4 and DP=2 on 8 GPUs is in the wiki: each four hold all weights."""
    four = {"tp_size": 4, "context_length": 4096, "mem_fraction_static": 0.85}
    alone = budget(QWEN397, 8, four)
    twice, shared = (
        budget(QWEN397, 8, four | {"dp_size": 2, "enable_dp_attention": dp}) for dp in (False, True)
    )
    assert (alone["gpus"], twice["gpus"], shared["gpus"]) == (4, 8, 4)
    assert alone["split"] == twice["split"]
    assert shared["split"]["weights"] == alone["split"]["weights"]
    assert shared["split"]["token"] == alone["split"]["token"]  # 2 KV heads over 2 GPUs, as over 4
    assert vram_budget(model_facts(QWEN397), pro6000(4), four | {"dp_size": 2})["verdict"] == "refuse"


def test_the_smallest_gpu_counts() -> None:
    mixed = [*pro6000(7), {"name": "RTX 5090", "memory_gib": 31.36}]
    assert vram_budget(model_facts(QWEN397), mixed, QWEN397["launch"])["verdict"] == "refuse"


@pytest.mark.parametrize(
    ("given", "gpus", "launch", "text"),
    [
        (QWEN397, None, {"tp_size": 8}, "VRAM: not seen, no GPU of the node was; the weights take 27.1 to"),
        (QWEN397, [], {"tp_size": 8}, "VRAM: not seen, no GPU of the node was"),
        ({}, pro6000(1), {}, "VRAM: not seen, neither the checkpoint nor its size in the profile is there"),
        (
            {"architecture": {"layers": 1}, "sizes": {"disk_gb": 1}},
            pro6000(1),
            {},
            "VRAM: not seen, the model's longest context is unknown",
        ),
    ],
    ids=["no GPU facts", "no GPU", "no model", "no context"],
)
def test_what_was_not_seen_is_said_and_not_refused(given: Any, gpus: Any, launch: Any, text: str) -> None:
    found = vram_budget(model_facts(given), gpus, launch)
    assert found["verdict"] == "not seen"
    assert found["text"].startswith(text)


def test_a_launch_on_the_cpu_takes_no_vram() -> None:
    assert vram_budget(model_facts({}), None, {"device": "cpu"})["verdict"] == "none"


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("linear", None, "the shape of its linear layers is not known"),
        ("head_dim", None, "its number of KV heads or their dimension is not known"),
        ("kv_heads", None, "its number of KV heads or their dimension is not known"),
    ],
)
def test_a_shape_that_is_not_known_is_not_reckoned(key: str, value: Any, reason: str) -> None:
    found = budget(QWEN397 | {"architecture": QWEN397["architecture"] | {key: value}}, 8, QWEN397["launch"])
    assert found["text"] == f"VRAM: not reckoned, {reason}"


def test_options_that_are_no_numbers_are_not_reckoned_with() -> None:
    found = budget(QWEN397, 8, QWEN397["launch"] | {"mem_fraction_static": "most"})
    assert found["text"].startswith("VRAM: not reckoned, could not convert string to float")


@given(
    context=st.integers(1, 300_000),
    concurrency=st.integers(1, 64),
    count=st.sampled_from([1, 2, 4, 8]),
    fraction=st.none() | st.floats(0.1, 0.99),
)
def test_a_verdict_agrees_with_its_own_figures(
    context: int, concurrency: int, count: int, fraction: float | None
) -> None:
    launch = {"tp_size": count, "mem_fraction_static": fraction}
    found = budget(QWEN397, 8, launch, context=context, concurrency=concurrency)
    fits = found["split"]["tokens"] >= context * concurrency
    assert (found["verdict"] == "ok") == fits
    if found["largest_context"]:
        smaller = budget(QWEN397, 8, launch, context=found["largest_context"], concurrency=concurrency)
        assert smaller["verdict"] == "ok"


# --- KV policy -----------------------------------------------------------------------------------


def model(scales: str = "all", declares: str | None = "FP8") -> dict[str, Any]:
    return model_facts(QWEN397 | {"kv_cache": {"scales": scales, "declares": declares}})


@pytest.mark.parametrize(
    ("checkpoint", "asked", "version", "dtype", "verdict"),
    [
        pytest.param(("all", "FP8"), "fp8_e4m3", "0.5.23", "fp8_e4m3", "ok", id="scales that are loaded"),
        pytest.param(("all", "FP8"), None, "0.5.23", "fp8_e4m3", "ok", id="auto takes them"),
        pytest.param(("all", "FP8"), "bf16", "0.5.9", "bf16", "ok", id="bf16 always may"),
        pytest.param(("none", None), None, "0.5.9", "bf16", "ok", id="auto without scales is bf16"),
        pytest.param(
            ("all", "FP8"), "fp8_e4m3", "0.5.9", "fp8_e4m3", "refuse", id="an engine that drops them"
        ),
        pytest.param(("all", "FP8"), None, "0.5.9", "fp8_e4m3", "refuse", id="auto with such an engine"),
        pytest.param(
            ("all", "FP8"), "fp8_e4m3", None, "fp8_e4m3", "refuse", id="an engine without a version"
        ),
        pytest.param(("some", "FP8"), "fp8_e4m3", "0.5.23", "fp8_e4m3", "refuse", id="scales in some layers"),
        pytest.param(("none", "FP8"), None, "0.5.23", "fp8_e4m3", "refuse", id="FP8 declared without scales"),
        pytest.param(("none", None), "fp8_e5m2", "0.5.23", "fp8_e5m2", "refuse", id="another FP8"),
        pytest.param(("unknown", None), "fp8_e4m3", "0.5.23", "fp8_e4m3", "refuse", id="nothing was seen"),
        pytest.param(("all", "FP8"), "nvfp4", "0.5.23", "nvfp4", "refuse", id="four bits"),
    ],
)
def test_an_fp8_cache_needs_scales_that_are_loaded(
    checkpoint: tuple[str, str | None], asked: Any, version: Any, dtype: str, verdict: str
) -> None:
    launch = {"kv_cache_dtype": asked}
    found = kv_policy(model(*checkpoint), launch, version, LOADERS)
    assert (found["dtype"], found["verdict"]) == (dtype, verdict)
    assert found["text"].endswith("model_kv_override") == (verdict == "refuse")


def test_an_override_is_named_in_the_plan() -> None:
    launch = {"kv_cache_dtype": "fp8_e4m3"}
    found = kv_policy(model("none"), launch, "0.5.9", LOADERS, "anna, ticket 12")
    assert found["verdict"] == "overridden"
    assert found["text"].endswith("SGLang takes 1.0. Overridden by anna, ticket 12")


def test_an_override_of_what_is_right_changes_nothing() -> None:
    assert kv_policy(model(), {"kv_cache_dtype": "bf16"}, "0.5.9", LOADERS, "anna")["verdict"] == "ok"


def test_an_architecture_that_the_table_lacks_is_not_trusted() -> None:
    found = kv_policy(model(), {"kv_cache_dtype": "fp8_e4m3"}, "0.5.23", {})
    assert (
        "SGLang 0.5.23 is not known to load the KV scales of Qwen3_5MoeForConditionalGeneration"
        in found["text"]
    )


# --- a profile, its checkpoint and a node --------------------------------------------------------


def fit(given: dict[str, Any], facts: Any = None, gpus: Any = None, **more: Any) -> dict[str, Any]:
    launch = more.pop("launch", given["launch"])
    return model_fit(given, facts, gpus, launch, version="0.5.9", loaders=LOADERS, **more)


@pytest.fixture
def small(tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """A profile of the small checkpoint, and the facts of that."""
    facts = checkpoint_facts(write_checkpoint(tmp_path / "m"))
    kept = (*QWEN397["architecture"],)
    shape = {key: facts["architecture"][key] for key in kept if key in facts["architecture"]}
    return {"name": "small", "architecture": shape, "launch": {"kv_cache_dtype": "bf16"}}, facts


def test_a_checkpoint_that_fits_has_no_problems(small: Any) -> None:
    found = fit(*small, pro6000(1))
    assert found["problems"] == []
    assert found["lines"][0] == "KV cache: bf16"
    assert found["lines"][1].startswith("VRAM: 1 x RTX PRO 6000 of 95.0 GiB; on each weights 0.0 GiB")
    assert found["lines"][1].endswith("a context of 262144 tokens fits")


def test_a_torn_checkpoint_is_a_problem(small: Any) -> None:
    given, facts = small
    facts["problems"] = ["x.safetensors is torn: why"]
    assert fit(given, facts)["problems"] == [
        f"the checkpoint in {facts['folder']} is unfit: x.safetensors is torn: why"
    ]


def test_another_model_is_a_problem(small: Any) -> None:
    given, facts = small
    given["architecture"] |= {"layers": 48, "kv_heads": 4}
    (problem,) = fit(given, facts)["problems"]
    assert problem.endswith(
        "is another model than profile small describes: layers 8, not 48, kv_heads 2, not 4"
    )


def test_the_headers_win_over_the_profile(tmp_path: Path, small: Any) -> None:
    given, _ = small
    given |= {"kv_cache": {"scales": "all"}, "launch": {"kv_cache_dtype": "fp8_e4m3"}}
    bare = checkpoint_facts(write_checkpoint(tmp_path / "bare", tensors=qwen_tensors(ATTENTION[:1])))
    found = model_fit(given, bare, None, given["launch"], version="0.5.23", loaders=LOADERS)
    assert "only some attention layers of the checkpoint has KV scales" in found["problems"][0]


@pytest.mark.parametrize(
    ("algorithm", "draft", "mtp", "refused"),
    [
        ("NEXTN", None, False, True),
        ("NEXTN", None, True, False),
        ("EAGLE", "models/draft", False, False),
        (None, None, False, False),
    ],
    ids=["no MTP tensors", "MTP tensors", "a draft model", "no speculation"],
)
def test_drafting_needs_mtp_tensors(
    tmp_path: Path, algorithm: Any, draft: Any, mtp: bool, refused: bool
) -> None:
    facts = checkpoint_facts(write_checkpoint(tmp_path / "m", tensors=qwen_tensors(mtp=mtp)))
    launch = {
        "speculative_algorithm": algorithm,
        "speculative_draft_model_path": draft,
        "kv_cache_dtype": "bf16",
    }
    problems = fit({"name": "x", "launch": launch}, facts)["problems"]
    assert any("holds no MTP tensors" in problem for problem in problems) == refused


def test_without_facts_the_gpus_of_the_profile_are_reckoned_with() -> None:
    found = fit(QWEN397)
    assert found["problems"] == []
    assert found["vram"]["verdict"] == "not seen"
    assert found["lines"][1].startswith(
        "VRAM: no GPU of the node was seen; of those that the profile names: 8 x RTX PRO 6000 of 95.0 GiB; on"
    )


def test_the_tiny_model_on_the_cpu_says_nothing() -> None:
    tiny = profile("tiny-qwen3")
    facts = checkpoint_facts(Path(__file__).parents[2] / tiny["checkpoint"]["path"])
    assert fit(tiny, facts) | {"vram": None, "kv": None} == {
        "vram": None,
        "kv": None,
        "problems": [],
        "lines": [],
    }


@pytest.mark.parametrize(
    ("launch", "problem"),
    [
        ({"tp_size": 0}, "launch options: tp_size and pp_size must be at least 1, not 0 and 1"),
        ({"tp_size": "x"}, "launch options: invalid literal for int()"),
        ({"dp_size": "x"}, "launch options: invalid literal for int()"),
        ({"context_length": []}, "launch options: int() argument must be"),
        ({"kv_cache_dtype": "fp9"}, "launch options: kv_cache_dtype must be auto or one of bf16, "),
    ],
    ids=["no GPU", "no number", "no replicas", "no length", "no type"],
)
def test_options_that_make_no_sense_are_a_problem(launch: dict[str, Any], problem: str) -> None:
    (found,) = fit(QWEN397 | {"launch": launch})["problems"]
    assert found.startswith(problem)
