#!/usr/bin/env python3
"""Train the tiny Qwen3 chat model of the tests from nothing, on a CPU, in some fifteen minutes of one core.

It is a real checkpoint that real servers load, and it does what the gate asks of a model: it knows some forty
facts and three texts in two scripts by heart, thinks, calls a tool, answers in JSON, holds a dialogue, writes
a story, counts and copies to the end of its context, and recalls a word among filler. It knows nothing else.
The same seed and number of threads give the same bytes on the same machine. Nothing is written unless the
model knows everything.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import torch
from corpus import tokenizer_texts
from lessons import Teacher
from qwen_tokenizer import END_OF_TEXT, TURN_END, train_tokenizer, write_json, write_tokenizer
from safetensors.torch import save_file
from tokenizers import Tokenizer
from training import Schedule, plant_heads, train
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

CHAT_TEMPLATE = Path(__file__).with_name("chat_template.jinja")
CONTEXT_TOKENS = 4096
VOCABULARY_MULTIPLE = 64
"""Rows of the embedding are a multiple of this, as in large models: tensor-parallel servers split them."""
DEFAULT_OUT = Path(__file__).parents[1] / "tiny-qwen3"


def write_config(tokenizer: Tokenizer, folder: Path) -> None:
    """Write both configurations, with the names of transformers 4 and 5 side by side."""
    vocabulary = -(-tokenizer.get_vocab_size() // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
    end, padding = tokenizer.token_to_id(TURN_END), tokenizer.token_to_id(END_OF_TEXT)
    rope_base = 1e6
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "dtype": "bfloat16",
        "eos_token_id": end,
        "head_dim": 32,
        "hidden_act": "silu",
        "hidden_size": 128,
        "initializer_range": 0.06,
        "intermediate_size": 384,
        "max_position_embeddings": CONTEXT_TOKENS,
        "model_type": "qwen3",
        "num_attention_heads": 4,
        "num_hidden_layers": 4,
        "num_key_value_heads": 2,
        "pad_token_id": padding,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": rope_base, "rope_type": "default"},  # transformers 5
        "rope_scaling": None,
        "rope_theta": rope_base,  # transformers 4
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",  # servers that do not know "dtype" yet
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": vocabulary,
    }
    generation = {"do_sample": False, "eos_token_id": [end, padding], "pad_token_id": padding}
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", generation)


def write_weights(model: PreTrainedModel, folder: Path) -> None:
    """Write the weights as one file; ``format`` is what transformers asks for."""
    save_file(model.state_dict(), folder / "model.safetensors", metadata={"format": "pt"})


def make(out: Path, seed: int, threads: int, snapshots: Path | None) -> bool:
    """Train a model and write it to ``out``; return False and write nothing when it stayed wrong."""
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    chat_template = CHAT_TEMPLATE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        tokenizer = train_tokenizer(tokenizer_texts(chat_template))
        write_tokenizer(tokenizer, folder, chat_template, CONTEXT_TOKENS)
        write_config(tokenizer, folder)
        # Tokenizer and model are made from the files that servers will read, not from what wrote them.
        config = AutoConfig.from_pretrained(folder)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        plant_heads(model)
        teacher = Teacher(AutoTokenizer.from_pretrained(folder))

        def write(served: PreTrainedModel, to: Path) -> None:
            write_weights(served, folder)
            to.mkdir(parents=True, exist_ok=True)
            for source in sorted(folder.iterdir()):
                (to / source.name).write_bytes(source.read_bytes())

        def keep(served: PreTrainedModel) -> None:
            if snapshots:
                write(served, snapshots)

        served, result = train(model, teacher, Schedule(), seed, keep)
        if not result.complete:
            ends = [teacher.tokenizer.decode(example.tokens)[-90:] for example in result.unsure]
            print(f"not learnt: {result}", "Unsure of:", *ends, sep="\n", file=sys.stderr)
            return False
        write(served, out)
    return True


def main() -> int:
    """Run from the command line; exit 1 when the model did not learn everything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, nargs="?", default=DEFAULT_OUT, help="folder of the checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of torch (another number, other bytes)"
    )
    parser.add_argument(
        "--snapshots", type=Path, help="also write the model so far to this folder, now and then"
    )
    options = parser.parse_args()
    return 0 if make(options.out, options.seed, options.threads, options.snapshots) else 1


if __name__ == "__main__":
    sys.exit(main())
