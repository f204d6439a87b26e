"""Whether a text holds an expected answer."""

from __future__ import annotations

import re


def is_exactly(text: str, expect: str) -> bool:
    """The text is the expected one, around it white space, after it at most one full stop or the like."""
    return re.fullmatch(re.escape(expect.strip()) + r"[.!?]?", text.strip()) is not None


def holds_word(text: str, expect: str) -> bool:
    """The text holds the expected value as a whole word, not as a part of a longer number or word."""
    return re.search(rf"(?<![\w.,-]){re.escape(expect.strip())}(?![\w-]|[.,]\d)", text) is not None
