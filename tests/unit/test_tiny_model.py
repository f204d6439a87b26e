"""The tiny model's profiles ask what the model was taught, and nothing else."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from llm_gate.model_profile import read_model_profile

ROOT = Path(__file__).parents[2]
PROFILES = ("tiny-qwen3", "tiny-qwen3-nan")


def document(name: str) -> dict[str, Any]:
    """A model profile of the catalogue."""
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "catalog/models" / f"{name}.yml").read_text())
    return loaded


@pytest.fixture
def corpus(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the model was taught; its files import one another by plain names, as scripts do."""
    monkeypatch.syspath_prepend(str(ROOT / "tests/data/tiny_model"))
    return importlib.import_module("corpus")


def test_both_profiles_ask_the_same() -> None:
    asked = [document(name)["gate"] for name in PROFILES]
    assert asked[0] == asked[1]


def test_the_facts_are_those_that_were_taught(corpus: Any) -> None:
    facts = read_model_profile(document("tiny-qwen3")).probes.facts
    assert len(facts) >= 40
    assert {fact.prompt: fact.expect for fact in facts} == corpus.FACTS


def test_the_known_texts_are_those_that_were_taught(corpus: Any) -> None:
    probes = read_model_profile(document("tiny-qwen3")).probes
    taught = [*corpus.ENGLISH, corpus.KOREAN]
    for anchor, text in zip(probes.anchors, taught, strict=True):
        assert anchor.text in (text, text.removesuffix("."))
    for beginning, text in zip(
        probes.continuations, [*corpus.ENGLISH, corpus.STORY, corpus.KOREAN], strict=True
    ):
        assert text.startswith(beginning)


def test_the_list_is_copied_as_it_was_taught(corpus: Any) -> None:
    copy = read_model_profile(document("tiny-qwen3")).probes.copy
    assert copy is not None
    assert copy.words == corpus.COPY_WORDS
    assert (copy.head, copy.after, copy.repeat) == (corpus.COPY_HEAD, corpus.COPY_AFTER, corpus.COPY_REPEAT)
    assert copy.filler == corpus.COPY_FILLER
