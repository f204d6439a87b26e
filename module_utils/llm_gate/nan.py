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
# Of logits that are all the same, each token of 150 has this logprob, and each of 100,000 has -11.5.
FLAT_LOGPROB = -5.0


def look_for_nan(chat: Chat, prompt: str, max_tokens: int, extra: Mapping[str, object]) -> str | None:
    """Ask a prompt again, with logprobs; say how NaN shows, or None if it does not.

    Only for a prompt that was answered with 200 without logprobs, and never with speculative decoding, which
    a logprob request can crash (https://github.com/sgl-project/sglang/issues/19761). Raises RequestFailed.
    """
    try:
        entries = chat.logprobs(prompt, min(max_tokens, TOKENS), extra)
    except HttpStatus as error:
        return NAN_STATUS.format(error.status) if may_be_nan(error) else None
    return judge_logprobs(entries)


NAN_STATUS = "NaN logits: HTTP {} when asked with logprobs, 200 without"


def may_be_nan(error: HttpStatus) -> bool:
    """Whether a server's status may be its way to say that a logprob is NaN."""
    # vLLM on a CPU answers 400 and names the encoder's complaint.
    return error.status >= 500 or "json compliant" in error.body.lower()


def judge_logprobs(entries: Sequence[Mapping[str, object]]) -> str | None:
    """Say how NaN shows in the logprob entries of a chat answer, or None."""
    found = find_nan(
        [read_logprob(entry.get("logprob")) for entry in entries], [_top(entry) for entry in entries]
    )
    return found[0] if found else None


def find_nan(values: Sequence[float], tops: Sequence[Sequence[float]]) -> tuple[str, int] | None:
    """How NaN shows in the logprobs of tokens, and at how many; `tops` are those of the likeliest there."""
    missing = sum(
        math.isnan(value) or any(map(math.isnan, top)) for value, top in zip(values, tops, strict=True)
    )
    if missing:
        return f"NaN logits: {missing} of {len(values)} logprobs are null", missing
    above = [value for value in values if value > 1e-3]
    if above:
        return f"NaN logits or broken sampling: a logprob of {max(above):g} is above 0", len(above)
    flat = [top[0] for top in tops if _is_flat(top)]
    if flat:
        shown = f"at {flat[0]:.2f} at {len(flat)} of {len(values)} positions"
        return f"NaN or all-zero logits: the likeliest tokens are all {shown}", len(flat)
    return None


def _top(entry: Mapping[str, object]) -> list[float]:
    top = entry.get("top_logprobs")
    if not isinstance(top, list):
        return []
    return [read_logprob(item.get("logprob")) for item in top if isinstance(item, dict)]


def _is_flat(top: Sequence[float]) -> bool:
    """All likeliest tokens equally likely, and none likely: bfloat16 logits alone make some of them equal."""
    return len(top) >= 3 and max(top) - min(top) < 1e-3 and max(top) < FLAT_LOGPROB
