"""A Qwen-style byte-level BPE tokenizer with a small vocabulary, in which id 0 is ``!`` as in Qwen's own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import ByteLevel

MERGED_VOCABULARY = 1500
"""Tokens before the added ones: 256 bytes and the merges."""

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)
# Not special, as in Qwen3: servers parse them out of the text, so that decoding has to keep them.
MARKUP_TOKENS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")

# How Qwen splits text before merging: each digit alone, words with their leading space.
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Learn the merges from the texts and add Qwen's special and markup tokens.

    Raises ValueError when ``!`` is not id 0: NaN logits have to read as a row of exclamation marks.
    """
    tokenizer = Tokenizer(models.BPE(byte_fallback=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=MERGED_VOCABULARY,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.token_to_id("!") != 0:
        raise ValueError(f"the token '!' has id {tokenizer.token_to_id('!')}, not 0")
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in SPECIAL_TOKENS]
    )
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in MARKUP_TOKENS])
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path, chat_template: str, max_length: int) -> None:
    """Write the files that transformers 4 and 5 read a Qwen2Tokenizer from; ``max_length`` is in tokens."""
    serialized = json.loads(tokenizer.to_str())
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in serialized["model"]["merges"]]
    added_token_fields = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
    config = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(token["id"]): {field: token[field] for field in added_token_fields}
            for token in serialized["added_tokens"]
        },
        "additional_special_tokens": [TURN_START, TURN_END],
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": TURN_END,
        "errors": "replace",
        "model_max_length": max_length,
        "pad_token": END_OF_TEXT,
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    write_json(folder / "tokenizer.json", serialized)
    write_json(folder / "vocab.json", serialized["model"]["vocab"])
    write_json(folder / "tokenizer_config.json", config)
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(chat_template, encoding="utf-8")


def write_json(path: Path, document: object) -> None:
    """Write a JSON file for people and diffs: indented, one newline at the end."""
    path.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
