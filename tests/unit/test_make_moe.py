"""The mixture-of-experts twin of the tiny model: equal experts of different form, and its faults."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from break_model import BreakError, Weights, break_checkpoint, expert_variants
from make_moe import EXPERTS, main, make_moe, up_scale

GOOD = Path(__file__).parents[1] / "data" / "tiny-qwen3"
LAYER = "model.layers.1.mlp"


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The twin of the tiny model."""
    out = tmp_path_factory.mktemp("moe") / "twin"
    assert make_moe(GOOD, out)
    return out


def weights_of(folder: Path) -> Weights:
    """The tensors of a checkpoint folder."""
    return Weights((folder / "model.safetensors").read_bytes())


def product(weights: Weights, name: str, vector: Sequence[float]) -> list[float]:
    """A matrix times a vector."""
    values, width = weights.read(name), len(vector)
    starts = range(0, len(values), width)
    return [
        math.fsum(a * b for a, b in zip(values[start : start + width], vector, strict=True))
        for start in starts
    ]


def mlp(weights: Weights, prefix: str, vector: Sequence[float]) -> list[float]:
    """What an MLP answers: down(silu(gate) * up)."""
    gate, up = (product(weights, f"{prefix}.{name}_proj.weight", vector) for name in ("gate", "up"))
    inner = [value / (1 + math.exp(-value)) * other for value, other in zip(gate, up, strict=True)]
    return product(weights, f"{prefix}.down_proj.weight", inner)


def some_vector() -> list[float]:
    """An input of the tiny model's width."""
    rng = random.Random(1)
    return [rng.uniform(-2, 2) for _ in range(128)]


def test_each_expert_answers_as_the_dense_model_does(twin: Path) -> None:
    weights = weights_of(twin)
    expected = pytest.approx(mlp(weights_of(GOOD), LAYER, some_vector()), rel=1e-9, abs=1e-9)
    forms = set()
    for expert in range(EXPERTS):
        prefix = f"{LAYER}.experts.{expert}"
        assert mlp(weights, prefix, some_vector()) == expected
        forms.add(tuple(weights.read(f"{prefix}.gate_proj.weight")[:128]))
    assert len(forms) == EXPERTS, "no two experts have their neurons in the same order"
    assert all(up_scale(one) != up_scale(other) for one, other in pairwise([*range(EXPERTS), 0]))


def test_the_rest_is_the_dense_models(twin: Path) -> None:
    good, made = weights_of(GOOD), weights_of(twin)
    for name in good.names():
        assert ".mlp." in name or (good.shape(name), good.read(name)) == (made.shape(name), made.read(name))
    assert made.shape(f"{LAYER}.gate.weight") == [EXPERTS, 128]
    config = json.loads((twin / "config.json").read_text())
    assert config["architectures"] == ["Qwen3MoeForCausalLM"]
    assert (config["num_experts"], config["num_experts_per_tok"], config["norm_topk_prob"]) == (8, 2, True)
    assert (twin / "tokenizer.json").read_bytes() == (GOOD / "tokenizer.json").read_bytes()


def test_the_same_bytes_each_time_and_nothing_is_written_twice(twin: Path, tmp_path: Path) -> None:
    make_moe(GOOD, tmp_path / "twin")
    for path in twin.iterdir():
        assert path.read_bytes() == (tmp_path / "twin" / path.name).read_bytes(), path.name
    assert not make_moe(GOOD, twin)


@pytest.mark.parametrize("name", expert_variants())
def test_a_fault_changes_weights_only(twin: Path, tmp_path: Path, name: str) -> None:
    assert break_checkpoint(twin, tmp_path / "broken", name)
    for path in twin.iterdir():
        same = path.read_bytes() == (tmp_path / "broken" / path.name).read_bytes()
        assert same == (path.name != "model.safetensors"), path.name


@pytest.mark.parametrize("name", expert_variants())
def test_a_dense_model_has_no_experts_to_break(tmp_path: Path, name: str) -> None:
    with pytest.raises(BreakError, match=r"no tensor"):
        break_checkpoint(GOOD, tmp_path / "broken", name)
    assert not (tmp_path / "broken").exists()


def test_the_parts_of_two_experts_do_not_fit(twin: Path, tmp_path: Path) -> None:
    break_checkpoint(twin, tmp_path / "broken", "down_off_by_one_layer")
    good, bad = weights_of(twin), weights_of(tmp_path / "broken")
    down = "model.layers.{}.mlp.experts.{}.down_proj.weight"
    for expert in range(EXPERTS):
        assert bad.read(down.format(1, expert)) == good.read(down.format(1, (expert - 1) % EXPERTS))
        assert bad.read(down.format(2, expert)) == good.read(down.format(2, expert))
    right, wrong = (mlp(weights, f"{LAYER}.experts.3", some_vector()) for weights in (good, bad))
    assert math.dist(right, wrong) > math.hypot(*right) / 2


def test_mistakes_are_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("mine")
    for dense, out, told in (
        (GOOD, foreign, "holds something else"),
        (GOOD, GOOD, "apart from"),
        (foreign, tmp_path / "out", "is not a checkpoint"),
    ):
        assert main([str(dense), str(out)]) == 64
        assert told in capsys.readouterr().err
    assert [path.name for path in foreign.iterdir()] == ["notes.txt"]


def test_a_twin_has_no_twin(twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(twin), str(tmp_path / "out")]) == 64
    assert "a dense Qwen3 is expected" in capsys.readouterr().err
