"""What a program said, for an error."""

from __future__ import annotations

LAST_LINES = 3


def last_lines(text: str) -> str:
    """What a program said last, on one line."""
    return " ".join(line.strip() for line in text.strip().splitlines()[-LAST_LINES:])
