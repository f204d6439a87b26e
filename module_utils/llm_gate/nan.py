"""Names NaN logits as such.

NaN never reaches the client as NaN. Asked with logprobs, the server answers 500, or null, or a flat
-ln(vocabulary) where NaN were replaced by a constant. Without logprobs the same server answers 200 with token
0 for ever, `!!!!` for most vocabularies. https://github.com/vllm-project/vllm/issues/13035
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from .chat import Chat, read_logprob
from .errors import HttpStatus

# Enough to see it; every token of a looping text shows the same.
TOKENS = 16


def look_for_nan(chat: Chat, prompt: str, max_tokens: int, extra: Mapping[str, object]) -> str | None:
    """Ask a prompt again, with logprobs; say how NaN shows, or None if it does not.

    Only for a prompt that was answered with 200 without logprobs, and never with speculative decoding, which
    a logprob request can crash (https://github.com/sgl-project/sglang/issues/19761). Raises RequestFailed.
    """
    try:
        entries = chat.logprobs(prompt, min(max_tokens, TOKENS), extra)
    except HttpStatus as error:
        # vLLM on a CPU answers 400 and names the encoder's complaint.
        if error.status >= 500 or "json compliant" in error.body.lower():
            return f"NaN logits: HTTP {error.status} when asked with logprobs, 200 without"
        return None
    return judge_logprobs(entries)


def judge_logprobs(entries: Sequence[Mapping[str, object]]) -> str | None:
    """Say how NaN shows in the logprob entries of an answer, or None."""
    values = [read_logprob(entry.get("logprob")) for entry in entries]
    missing = sum(math.isnan(value) for value in values)
    if missing:
        return f"NaN logits: {missing} of {len(values)} logprobs are null"
    if any(value > 1e-3 for value in values):
        return f"NaN logits or broken sampling: a logprob of {max(values):g} is above 0"
    flat = [value for entry, value in zip(entries, values, strict=True) if _is_flat(entry)]
    if flat:
        return (
            f"NaN or all-zero logits: the likeliest tokens are all at {flat[0]:.2f} "
            f"at {len(flat)} of {len(values)} positions"
        )
    return None


def _is_flat(entry: Mapping[str, object]) -> bool:
    """All likeliest tokens equally likely."""
    top = entry.get("top_logprobs")
    values = (
        [read_logprob(item.get("logprob")) for item in top if isinstance(item, dict)]
        if isinstance(top, list)
        else []
    )
    return len(values) >= 3 and max(values) - min(values) < 1e-3
