"""Puts the document of a run together: the one source of every report. Its schema is `report.schema.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from .baseline import Stored
from .results import Coverage, Evidence, ProbeResult, Verdict
from .server import Server
from .text import excerpt
from .verdict import ORDER, doubted, judge_run

SCHEMA_VERSION = 1
# Longer than any text the gate writes, shorter than a server's idea of a name.
LONGEST_TEXT = 2000


@dataclass(frozen=True)
class Run:
    """All of a run. Times are in UTC."""

    run_id: str
    started: datetime
    finished: datetime
    url: str
    model: str | None
    profile: str
    server: Server | None
    baseline: Stored | None
    asked: Sequence[str]
    results: Sequence[ProbeResult]
    coverage: Sequence[Coverage]


def write_document(run: Run, secret: str | None) -> dict[str, object]:
    """The JSON document. It holds no secret, no unprintable character and no number that JSON cannot hold."""
    verdict = judge_run(run.asked, run.results, run.coverage)
    server = run.server
    document: dict[str, object] = {
        "schema_version": SCHEMA_VERSION,
        "run_id": run.run_id,
        "started": f"{run.started:%Y-%m-%dT%H:%M:%SZ}",
        "finished": f"{run.finished:%Y-%m-%dT%H:%M:%SZ}",
        "duration_s": round((run.finished - run.started).total_seconds(), 3),
        "target": {
            "url": run.url,
            "model": server.model if server else run.model,
            "profile": run.profile,
            "engine": server.engine if server else None,
            "engine_version": server.engine_version if server else None,
        },
        "identity": {
            "model_path": server.model_path if server else None,
            "served_names": list(server.served_names) if server else [],
            "settings": dict(server.settings) if server else {},
        },
        "baseline": {"path": run.baseline.path, "sha256": run.baseline.sha256} if run.baseline else None,
        "verdict": verdict,
        "summary": summarise(verdict, run.results),
        "coverage": [
            {"id": entry.id, "tested": entry.tested, "reason": entry.reason} for entry in run.coverage
        ],
        "probes": [_probe(result) for result in run.results],
    }
    clean = _clean(document, secret)
    assert isinstance(clean, dict)
    return clean


def name_target(
    document: dict[str, object], node: str | None, release: str | None, overrides: str | None = None
) -> dict[str, object]:
    """The document with whose server it was, as far as the caller tells; the server itself does not know.

    `overrides` says which settings somebody answers for, though they are not known to be right.
    """
    known = {"node": node, "release": release, "overrides": overrides}
    told = {name: value for name, value in known.items() if value}
    target = document["target"]
    assert isinstance(target, dict)
    named = _clean({**target, **told}, None)
    return {**document, "target": named}


def summarise(verdict: Verdict, results: Sequence[ProbeResult]) -> str:
    """The run in one sentence: what was wrong first, or what passed."""
    worst = max(results, key=lambda result: ORDER.index(result.verdict), default=None)
    again = doubted(result for result in results if result.runs > 1)
    if verdict == "fail" and again and worst is not None and worst.verdict != "fail":
        told = "; ".join(f"{result.id}: {_decisive(result)[0].text}" for result in again)
        return f"fail: {len(again)} warnings that came back when asked again: {told}"
    if worst is None or worst.verdict != verdict:
        return f"{verdict}: not every probe that the profile asks for was run"
    first = _decisive(worst)[0]
    nan = any(entry.rule == "nan-logits" for entry in worst.notes.evidence)
    cause = ": NaN logits" if nan and first.rule != "nan-logits" else ""
    if verdict == "pass":
        checks = sum(entry.verdict == "pass" for result in results for entry in result.notes.evidence)
        return f"pass: {checks} checks passed; {first.check}: {first.text}"
    return f"{verdict}: {worst.id}: {first.text}{cause}"


def _decisive(result: ProbeResult) -> list[Evidence]:
    """The evidence that made the verdict; for a pass the last, which has the figures."""
    evidence = [entry for entry in result.notes.evidence if entry.verdict == result.verdict]
    if not evidence:
        return [Evidence(result.id, "error", "nothing-tested", "no check was made")]
    return evidence[::-1] if result.verdict == "pass" else evidence


def _probe(result: ProbeResult) -> dict[str, object]:
    decisive = [] if result.verdict == "pass" else _decisive(result)
    # The cause before its effects.
    decisive.sort(key=lambda entry: entry.rule != "nan-logits")
    hints = list(dict.fromkeys(entry.hint for entry in decisive if entry.hint))
    return {
        "id": result.id,
        "title": result.title,
        "verdict": result.verdict,
        "category": result.category,
        "duration_s": result.duration_s,
        "runs": result.runs,
        "requests": result.requests,
        "tokens": {"prompt": result.prompt_tokens, "completion": result.completion_tokens},
        "measured": {check: dict(values) for check, values in result.notes.measured.items()},
        "limits": {check: dict(values) for check, values in result.notes.limits.items()},
        "evidence": [
            {"check": entry.check, "verdict": entry.verdict, "rule": entry.rule, "text": entry.text}
            for entry in result.notes.evidence
        ],
        "hint": hints[0] if hints else "",
    }


def _clean(value: object, secret: str | None) -> object:
    """A copy that is safe to publish: what a server sent may hold the key, control characters or NaN."""
    if isinstance(value, Mapping):
        return {key: _clean(item, secret) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item, secret) for item in value]
    if isinstance(value, str):
        return excerpt(value.replace(secret, "***") if secret else value, LONGEST_TEXT)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
