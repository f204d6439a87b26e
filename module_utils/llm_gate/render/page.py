"""One HTML page, self-contained: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --pass: #1a7f37; --warn: #9a6700; --fail: #cf222e;
  --error: #8250df; --skipped: #6e7781; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
header { border-left: .5rem solid var(--tone); padding: .2rem 1rem; }
h1 { margin: 0; color: var(--tone); text-transform: uppercase; letter-spacing: .05em; }
h2 { margin: 2rem 0 .5rem; font-size: 1.2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }
th { font-weight: 600; white-space: nowrap; }
.verdict { color: var(--tone); font-weight: 600; white-space: nowrap; }
.pass { --tone: var(--pass); } .warn { --tone: var(--warn); } .fail { --tone: var(--fail); }
.error { --tone: var(--error); } .skipped { --tone: var(--skipped); }
.hint { border-left: .25rem solid var(--line); padding: .2rem .8rem; overflow-wrap: anywhere; }
"""


def render_page(document: Mapping[str, Any]) -> str:
    """The verdict on top, then the target, the probes with checks and figures, and what was not tested."""
    verdict = document["verdict"]
    target = document["target"]
    facts = {
        "server": target["url"],
        "engine": " ".join(filter(None, [target["engine"], target["engine_version"]])) or None,
        "model": target["model"],
        "profile": target["profile"],
        "run": document["run_id"],
        "started": document["started"],
        "took": f"{document['duration_s']:.1f} s",
        "model path": document["identity"]["model_path"],
        **document["identity"]["settings"],
    }
    probes = "\n".join(_probe(probe) for probe in document["probes"])
    untested = {entry["id"]: entry["reason"] for entry in document["coverage"] if not entry["tested"]}
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Gate: {verdict}</title>
<style>{_STYLE}</style>
</head>
<body>
<header class="{verdict}"><h1>{verdict}</h1><p>{escape(document["summary"])}</p></header>
<h2>Tested</h2>
{_facts(facts)}
{probes}
<h2>Not tested</h2>
{_facts(untested) if untested else "<p>Nothing was left out.</p>"}
</body>
</html>
"""


def _probe(probe: Mapping[str, Any]) -> str:
    rows = "\n".join(
        f'<tr class="{entry["verdict"]}"><th>{escape(entry["check"])}</th>'
        f'<td class="verdict">{entry["verdict"]}</td><td>{escape(entry["text"])}</td></tr>'
        for entry in probe["evidence"]
    )
    hint = f'<p class="hint">{escape(probe["hint"])}</p>' if probe["hint"] else ""
    figures = {
        f"{check}: {name}": value
        for check, values in probe["measured"].items()
        for name, value in values.items()
        if value is not None
    }
    return f"""<h2>{escape(probe["title"])} ({escape(probe["id"])}): {probe["verdict"]}</h2>
{hint}
<table>
{rows}
</table>
<details><summary>Figures: {probe["requests"]} requests, {probe["duration_s"]:.1f} s</summary>
{_facts(figures)}
</details>"""


def _facts(facts: Mapping[str, Any]) -> str:
    rows = "\n".join(
        f"<tr><th>{escape(str(name))}</th><td>{'unknown' if value is None else escape(str(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table>\n{rows}\n</table>"
