"""Markdown, such as for the summary of a CI job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .coverage import untested_by_reason


def render_markdown(document: Mapping[str, Any]) -> str:
    """The verdict, a table of checks for each probe, and what was not tested."""
    target = document["target"]
    engine = " ".join(filter(None, [target["engine"], target["engine_version"]])) or "unknown engine"
    lines = [
        f"# Gate: {document['verdict']}",
        "",
        _escape(document["summary"]),
        "",
        *(
            f"- {name}: {_escape(target[name])}"
            for name in ("node", "release", "overrides")
            if name in target
        ),
        f"- server: {_escape(target['url'])} ({_escape(engine)})",
        f"- model: {_escape(target['model'] or 'unknown')}",
        f"- profile: {target['profile']}",
        f"- run: {document['run_id']}, {document['started']}, {document['duration_s']:.1f} s",
    ]
    for probe in document["probes"]:
        lines += ["", f"## {probe['id']}: {probe['verdict']}", ""]
        lines += ["| check | verdict | seen |", "| --- | --- | --- |"]
        lines += [
            f"| {_escape(entry['check'])} | {entry['verdict']} | {_escape(entry['text'])} |"
            for entry in probe["evidence"]
        ]
        if probe["hint"]:
            lines += ["", f"Hint: {_escape(probe['hint'])}"]
    untested = untested_by_reason(document)
    if untested:
        lines += ["", "## Not tested", ""]
        lines += [f"- {_escape(', '.join(names))}: {_escape(reason)}" for reason, names in untested.items()]
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    """What a server said must neither break the table nor become markup."""
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", text)
