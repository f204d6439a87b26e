"""What a finding usually means and what to try next, by the rule that found it."""

from __future__ import annotations

_BACKEND_HINT = (
    "On SM120 mostly a MoE or FP4 GEMM backend without right kernels for it: try another "
    "--moe-runner-backend and --fp4-gemm-backend, and SGLANG_ENABLE_JIT_DEEPGEMM=0. "
    "https://github.com/flashinfer-ai/flashinfer/issues/2577 https://github.com/sgl-project/sglang/issues/24321"
)
_DRIFT = (
    "Other numbers than the proved deployment gave: another or a damaged checkpoint, a wrong scale, another "
    "backend or build. Compare the checkpoint's hashes, then the attributes of the baseline, then another "
    "--fp4-gemm-backend and --moe-runner-backend."
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
    "replay": "After a hit in the prefix cache one row is left to compute, and comes out wrong: the kernels "
    "for a single row (MoE tiles, attention). Compare --disable-radix-cache. "
    "https://github.com/sgl-project/sglang/pull/29633",
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
    "prompt-tokens": "The server makes another prompt of a chat than the checkpoint's template: compare "
    "chat_template.jinja, --chat-template and the tokenizer's files with the release's. Count anew with "
    "tools/count_prompts.py if the profile is for another checkpoint. "
    "https://github.com/MoonshotAI/Kimi-Vendor-Verifier",
    "tokenizer": "Another tokenizer than the checkpoint's: compare the hashes of its files.",
    "prompt-relations": "A part of the chat does not reach the model: a chat template that drops it, or a "
    "proxy that rewrites messages. Compare chat_template.jinja and --chat-template.",
    "refused": "The server refuses what the profile says that it offers: --tool-call-parser and "
    "--grammar-backend. The profile of a model without it says `null` under gate.protocol.",
    "developer-role": "The chat template knows no role `developer`, with which newer clients send their "
    "instructions: a template that takes it as `system`. "
    "https://github.com/local-inference-lab/rtx6kpro/blob/master/troubleshooting/common-issues.md",
    "end-token": "The answer does not end by itself: end tokens (generation_config.json) and chat template. "
    "https://github.com/Blaizzy/mlx-vlm/issues/2112",
    "finish-reason": "Clients go by it: the tool or reasoning parser, or a proxy that rewrites it. "
    "https://github.com/sgl-project/sglang/pull/26172",
    "no-finish": "The stream breaks off without saying why: a crash behind a proxy, or a proxy that cuts "
    "streams. Ask the server itself and look at its journal.",
    "no-done": "Clients wait for [DONE]: a proxy that cuts or rewrites streams. Ask the server itself.",
    "lump": "The stream is collected before it is sent on: a proxy that buffers (nginx: proxy_buffering "
    "off), or a large --stream-interval.",
    "empty-at-stop": "The model ended without a word, often after a think block that was never closed: "
    "reasoning parser, or numerics under load. "
    "https://github.com/joninco/rtx6kpro/blob/master/models/ds4f-empty-think/README.md",
    "thinking-not-off": "The request fields that switch thinking off do not work here: gate.thinking.off, or "
    "a template that ignores them.",
    "no-tool-call": "The tool parser finds no call: --tool-call-parser must be the model's, and some parsers "
    "lose calls in streams. https://github.com/noonghunna/club-3090/issues/145 The profile of a model "
    "without tools says `gate.protocol.tools: null`.",
    "tool-name": "The call is garbled, or the wrong tool: --tool-call-parser, chat template, numerics.",
    "tool-arguments": "Arguments that clients cannot use: --tool-call-parser must fit the way in which the "
    "model writes calls. https://github.com/QwenLM/Qwen3.8/issues/125",
    "tool-text": "A call was left in the text: --tool-call-parser and --reasoning-parser, and the order in "
    "which they run. https://github.com/sgl-project/sglang/pull/26172",
    "schema": "The grammar is not applied: --grammar-backend (xgrammar, llguidance, outlines). "
    "https://github.com/vllm-project/vllm/issues/13828",
    "lost-call": "Streams lose a call now and then: --stream-interval 1, and a parser that takes name and "
    "arguments in one piece. "
    "https://github.com/local-inference-lab/rtx6kpro/blob/master/troubleshooting/common-issues.md",
    "mixed": "Right apart and wrong side by side: the grammar of one request reaches others of its batch. "
    "SGLang 0.5.9 does so with --grammar-backend llguidance: use xgrammar, or a version with the fix. "
    "https://github.com/sgl-project/sglang/pull/23653 https://github.com/vllm-project/vllm/pull/22896",
    "stream-differs": "Another answer when streamed: a parser of streams, a proxy, or results that change "
    "from run to run. Ask the server itself, and look at the probes prefix_cache and concurrency.",
    "usage-differs": "Token counts differ between a reply and its stream: a proxy that counts by itself.",
    "stop": "Stop texts are ignored: a proxy that drops the field, or the detokenizer.",
    "max-tokens": "max_tokens is not kept to: a proxy that drops or changes the field.",
    "odd-request": "A request that should be answered or refused breaks the server: its journal has the "
    "reason.",
    "golden-stale": "A baseline proves something for its own deployment only: checkpoint, quantisation, KV "
    "cache and speculation are its key.",
    "golden-trimmed-mean": _DRIFT,
    "golden-large-share": _DRIFT,
    "golden-confident-flips": _DRIFT,
    "golden-nll-change": _DRIFT,
    "golden-largest": _DRIFT,
    "golden-copy-nll-change": "Far context is heard less well than it was: unscaled FP8 KV, position scaling "
    "or another attention backend. Compare --kv-cache-dtype bf16. "
    "https://github.com/vllm-project/vllm/issues/47827",
    "golden-texts": "Greedy texts change at near ties when kernels change: look at the logprobs beside them.",
    "speed": "Slower than it was on this hardware: look at clocks and power cap, other load on the GPUs, "
    "CUDA graphs and the acceptance length.",
    "suspiciously-fast": "Work may be skipped: empty experts, early ends, a loop whose drafts are all right. "
    "Compare without speculation.",
    "ramp": "Requests together are slower than fewer: batches without a captured CUDA graph run eagerly. "
    "Look at --cuda-graph-max-bs.",
    "soak-garbage": "Right at first and garbage later: KV cache, speculation, or a rare NaN. Compare with "
    "--kv-cache-dtype bf16 and without speculation. https://github.com/vllm-project/vllm/issues/47087",
    "soak-empty": "Answers end without content: a think block that never closed, or the reasoning parser. "
    "https://github.com/joninco/rtx6kpro/blob/master/models/ds4f-empty-think/README.md",
    "soak-wrong": "Wrong results at the end of long answers: unscaled FP8 KV shows there first. Compare "
    "--kv-cache-dtype bf16. https://github.com/NVIDIA/TensorRT-LLM/issues/16916",
}
