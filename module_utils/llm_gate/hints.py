"""What a finding usually means and what to try next, by the rule that found it."""

from __future__ import annotations

_BACKEND_HINT = (
    "On SM120 mostly a MoE or FP4 GEMM backend without right kernels for it: try another "
    "--moe-runner-backend and --fp4-gemm-backend, and SGLANG_ENABLE_JIT_DEEPGEMM=0. "
    "https://github.com/flashinfer-ai/flashinfer/issues/2577 https://github.com/sgl-project/sglang/issues/24321"
)
HINTS: dict[str, str] = {
    "unreachable": "Nothing listens there, or TLS does not fit: look at the unit's journal and at the port.",
    "dropped": "The server closed the connection in the middle: look for a crash in its journal.",
    "timeout": "The server hangs or is far too slow: look for a stuck scheduler or NCCL in its journal.",
    "server-died": "The server crashed under an ordinary request: its journal has the reason.",
    "http-401": "The server wants a key: give it as a file (--api-key-file).",
    "http-404": "This is no OpenAI-compatible server, or the address has a wrong path.",
    "not-json": "Something other than an LLM server answers at this address, such as a proxy.",
    "served-name": "Another model is served here, or under another name (--served-model-name).",
    "nan-logits": f"NaN or all-zero logits, so token 0 wins every time. {_BACKEND_HINT}",
    "loop": f"One token for ever, mostly from NaN or all-zero logits. {_BACKEND_HINT}",
    "phrase-loop": "The text repeats itself to its end: long answers loop first where the KV cache or its "
    "scales are damaged. Compare with --kv-cache-dtype bf16, then another --attention-backend. "
    "https://github.com/sgl-project/sglang/issues/22671",
    "think-tag": "The reasoning was not taken out of the answer: set --reasoning-parser to the model's.",
    "special-token": "Control tokens in the text: chat template, end tokens or tokenizer do not fit. "
    "https://github.com/vllm-project/vllm/pull/41834",
    "S7-replacement": "Broken characters: seen with NVFP4 on SM120 while English looked fine. "
    "https://github.com/vllm-project/vllm/issues/54150",
    "garbage": "The numerics are broken: compare with another backend and with --kv-cache-dtype bf16.",
    "answer": "The model does not know what it should: weights, scales, chat template or backend.",
    "no-content": "The answer is not in the content: reasoning parser, or max_tokens too small. "
    "https://github.com/sgl-project/sglang/issues/28042",
    "no-reasoning": "Thinking is on, but its text is in no reasoning field: set --reasoning-parser. "
    "The profile of a model without thinking mode says `gate.thinking: null`.",
    "min-tokens": "A long answer ends too early: a damaged KV cache or scales show in long answers first. "
    "Compare with --kv-cache-dtype bf16.",
    "min-tokens-per-second": "Slower than the profile's bar: CUDA graphs, power limit, PCIe path.",
    "no-usage": "The stream tells no token counts; a proxy may strip `stream_options`.",
    "identity": "The server was started otherwise than the model profile expects: compare the unit's "
    "launch arguments.",
    "kv-scales": "An FP8 KV cache without scales costs tolerant models nothing and others their long "
    "answers: compare with --kv-cache-dtype bf16. "
    "https://github.com/sgl-project/sglang/issues/22671",
    "anchor-nll": "The model no longer knows what it knew: a wrong scale, a damaged weight, or another "
    "checkpoint. Compare the files' hashes, then another --fp4-gemm-backend and "
    "--moe-runner-backend.",
    "counting": "A wrong scale or a damaged weight shows in counting before texts look wrong. Compare the "
    "checkpoint's hashes, then another --fp4-gemm-backend and --moe-runner-backend.",
    "length-nll": "Wrong at some prompt lengths only: a GEMM or attention kernel for that shape. Try "
    "another --fp4-gemm-backend and --attention-backend. "
    "https://github.com/flashinfer-ai/flashinfer/issues/3398",
    "cache-delta": "Computed anew it is another result than from the cache: unscaled FP8 KV, the attention "
    "backend's cached path, or chunked prefill. Compare --kv-cache-dtype bf16 and "
    "--disable-radix-cache.",
    "regret": "Generating takes another path to other tokens than scoring: decode kernels, KV cache or "
    "speculative decoding. Compare without speculation, then with --kv-cache-dtype bf16 and "
    "--disable-cuda-graph. https://github.com/local-inference-lab/rtx6kpro/issues/63",
    "low-logprob": "The server doubts its own text: numerics are broken on the way to it. Compare another "
    "backend.",
    "repeat": "Right at first and wrong when asked again: the prefix cache. Compare "
    "--disable-radix-cache. https://github.com/jundot/omlx/issues/2255",
    "batch-answer": "Wrong only beside other requests: CUDA graphs, expert balance, or speculation with "
    "several requests. Compare --disable-cuda-graph and without speculation. "
    "https://github.com/sgl-project/sglang/issues/1742",
    "batch-text": "Garbage only beside other requests: CUDA graphs, expert balance, or speculation with "
    "several requests. Compare --disable-cuda-graph and without speculation. "
    "https://github.com/sgl-project/sglang/issues/32666",
    "acceptance": "Drafts are refused more often when requests run together: the draft's or the "
    "verification's kernels for batches. "
    "https://github.com/local-inference-lab/rtx6kpro/issues/72",
    "copy-nll": "Far context is lost: unscaled FP8 KV, position scaling, or attention beyond some length. "
    "Compare --kv-cache-dtype bf16. https://github.com/vllm-project/vllm/issues/47827",
}
