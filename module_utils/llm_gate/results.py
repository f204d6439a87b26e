"""What a run leaves behind, as plain records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal["pass", "warn", "fail", "error"]
# A check's word may also be "skipped", always with the reason in the text.
CheckVerdict = Literal["pass", "warn", "fail", "error", "skipped"]
Scalar = str | int | float | bool | None


@dataclass(frozen=True)
class Evidence:
    """One reason for a verdict: the check it belongs to, the rule that decided, and what was seen."""

    check: str
    verdict: CheckVerdict
    rule: str
    text: str
    hint: str = ""


@dataclass
class Notes:
    """What a probe writes down while it works; it survives a probe that breaks off."""

    evidence: list[Evidence] = field(default_factory=list)
    measured: dict[str, Mapping[str, Scalar]] = field(default_factory=dict)
    limits: dict[str, Mapping[str, Scalar]] = field(default_factory=dict)


@dataclass(frozen=True)
class ProbeResult:
    """A probe that ran. Durations in seconds; tokens as the server counts them.

    `runs` is 2 for one that was asked again since it and another one had warned.
    """

    id: str
    title: str
    category: str
    verdict: Verdict
    duration_s: float
    requests: int
    prompt_tokens: int
    completion_tokens: int
    notes: Notes
    runs: int = 1


@dataclass(frozen=True)
class Coverage:
    """Whether a probe tested anything, and the reason for whatever it did not test."""

    id: str
    tested: bool
    reason: str
