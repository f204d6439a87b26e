"""The gate section that is used when no model profile is given: the values of a typical reasoning model."""

from __future__ import annotations

GATE: dict[str, object] = {
    "deadline_s": 120,
    "request_timeout_s": 60,
    "thinking": {
        "on": {"chat_template_kwargs": {"enable_thinking": True}},
        "off": {"chat_template_kwargs": {"enable_thinking": False}},
    },
    "smoke": {
        "answer": {"prompt": "Reply with exactly OK", "expect": "OK", "max_tokens": 16},
        "arithmetic": {"prompt": "What is 17*19?", "expect": "323", "max_tokens": 64},
        "thinking": {"prompt": "What is 17*19?", "expect": "323", "max_tokens": 512},
        "throughput": {
            "prompt": "Write a story of about 300 words.",
            "max_tokens": 512,
            "min_tokens": 256,
            "min_tokens_per_second": None,
        },
    },
}
