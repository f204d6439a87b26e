"""One HTML page, self-contained: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from .coverage import untested_by_reason
from .plots import Series, find_series, is_number, plot, show

# The gravest first.
_TROUBLE = ("fail", "error", "warn")
# More pairs than these in a probe's row are left to its own table.
_MOST_PAIRS = 4

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --paper: #fff; --soft: #59636e; --line: #d1d9e0;
  --raised: #f6f8fa; --plot: #0969da; --pass: #1a7f37; --warn: #9a6700; --fail: #cf222e; --error: #8250df;
  --skipped: #59636e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --soft: #9198a1;
  --line: #3d444d; --raised: #151b23; --plot: #4493f8; --pass: #3fb950; --warn: #d29922; --fail: #f85149;
  --error: #ab7df8; --skipped: #9198a1; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--paper); overflow-wrap: anywhere; }
header { border: 1px solid var(--tone); border-left-width: .6rem; border-radius: .5rem; padding: .8rem 1.2rem;
  background: var(--raised); }
h1 { margin: 0; color: var(--tone); text-transform: uppercase; letter-spacing: .06em; line-height: 1.2; }
header p { margin: .4rem 0 0; }
h2 { margin: 2.2rem 0 .6rem; font-size: 1.25rem; }
.soft { color: var(--soft); font-weight: 400; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem; border-bottom: 1px solid var(--line); }
th { font-weight: 600; }
thead th { color: var(--soft); font-size: .85rem; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.verdict { color: var(--tone); font-weight: 600; white-space: nowrap; }
.pass { --tone: var(--pass); } .warn { --tone: var(--warn); } .fail { --tone: var(--fail); }
.error { --tone: var(--error); } .skipped { --tone: var(--skipped); }
.pairs { margin: 0; padding: 0; list-style: none; font-size: .9rem; }
.found { border-left: .3rem solid var(--tone); padding: .1rem .9rem; margin: .8rem 0; }
.found p { margin: .2rem 0; }
pre { background: var(--raised); border: 1px solid var(--line); border-radius: .3rem; padding: .6rem;
  white-space: pre-wrap; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(19rem, 1fr)); gap: 1rem; }
figure { margin: 0; border: 1px solid var(--line); border-radius: .5rem; padding: .6rem;
  break-inside: avoid; }
figcaption { font-size: .9rem; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: var(--soft); }
.x { text-anchor: middle; }
.y { text-anchor: end; }
.grid { stroke: var(--line); }
.limit { stroke: var(--fail); stroke-dasharray: 5 4; }
polyline { fill: none; stroke: var(--plot); stroke-width: 1.5; }
circle { stroke: var(--plot); }
.judged { fill: var(--plot); }
.unjudged { fill: var(--paper); }
details { border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .9rem; margin: .6rem 0; }
summary { cursor: pointer; }
@media print { body { max-width: none; margin: 0; font-size: 11pt; } tr, .found { break-inside: avoid; } }
"""


def render_page(document: Mapping[str, Any]) -> str:
    """The verdict on top, what was found, a row a probe, plots, then all else, and what was left out."""
    verdict = document["verdict"]
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
<header class="{verdict}"><h1>{verdict}</h1><p>{escape(document["summary"])}</p>
<p class="soft">{escape(_told(document))}</p></header>
{_trouble(document)}
<main>
<h2>Probes</h2>
{_overview(document["probes"])}
{_plots(document["probes"])}
<h2>Checks</h2>
{"".join(_probe(probe) for probe in document["probes"])}
<h2>Target</h2>
{_facts(_target(document))}
<h2>Not tested</h2>
{_untested(document)}
</main>
</body>
</html>
"""


def _told(document: Mapping[str, Any]) -> str:
    """Whose server this was, when and how long, in one line."""
    target = document["target"]
    whose = [target.get("node"), target.get("release") and f"release {target['release']}", target["model"]]
    how = f"profile {target['profile']}, {document['started']}, took {document['duration_s']:.1f} s"
    return " · ".join(str(part) for part in (*whose, how) if part)


def _target(document: Mapping[str, Any]) -> dict[str, object]:
    target, identity = document["target"], document["identity"]
    return {
        **{name: target[name] for name in ("node", "release", "overrides") if name in target},
        "server": target["url"],
        "engine": " ".join(filter(None, [target["engine"], target["engine_version"]])) or None,
        "model": target["model"],
        "model path": identity["model_path"],
        "run": document["run_id"],
        **identity["settings"],
    }


def _trouble(document: Mapping[str, Any]) -> str:
    """Every failure, error and warning with the text that came, and what to try next."""
    found = [
        (entry, probe)
        for probe in document["probes"]
        for entry in probe["evidence"]
        if entry["verdict"] in _TROUBLE
    ]
    if not found:
        return ""
    found.sort(key=lambda item: _TROUBLE.index(item[0]["verdict"]))
    cards = [
        f'<div class="found {entry["verdict"]}"><p><span class="verdict">{entry["verdict"]}</span> '
        f"{escape(probe['id'])}, {escape(entry['check'])}</p><p>{escape(entry['text'])}</p>"
        f"{_got(probe, entry)}</div>"
        for entry, probe in found
    ]
    hints = dict.fromkeys(probe["hint"] for probe in document["probes"] if probe["hint"])
    tips = f"<h2>What to try next</h2>{''.join(f'<p>{escape(hint)}</p>' for hint in hints)}" if hints else ""
    return f"<section><h2>What was found</h2>{''.join(cards)}{tips}</section>"


def _got(probe: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    """The answer that a check is about, where it was written down."""
    got = probe["measured"].get(entry["check"], {}).get("got")
    return f"<pre>{escape(str(got))}</pre>" if got else ""


def _overview(probes: list[Mapping[str, Any]]) -> str:
    rows = "".join(
        f'<tr class="{probe["verdict"]}"><th scope="row">{escape(probe["title"])} '
        f'<span class="soft">{escape(probe["id"])}</span></th><td class="verdict">{probe["verdict"]}</td>'
        f'<td>{_pairs(probe)}</td><td class="number">{probe["duration_s"]:.1f}</td>'
        f'<td class="number">{probe["requests"]}</td>'
        f'<td class="number">{probe["tokens"]["prompt"]} + {probe["tokens"]["completion"]}</td></tr>'
        for probe in probes
    )
    names = ("probe", "verdict", "measured (limit)", "seconds", "requests", "tokens")
    head = "".join(
        f'<th scope="col" class="{"number" if number > 2 else "name"}">{name}</th>'
        for number, name in enumerate(names)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def against_limits(probe: Mapping[str, Any]) -> list[tuple[str, str, float, float]]:
    """Check, figure, measured and limit for what can be compared; of a series the largest value."""
    pairs: list[tuple[str, str, float, float]] = []
    series = {each.name: each for each in find_series(probe)}
    for check, limits in probe["limits"].items():
        figures = probe["measured"].get(check, {})
        for name, limit in limits.items():
            plain = name.removeprefix("min_").removeprefix("max_")
            if f"{check}: {name}" in series:
                value: object = series[f"{check}: {name}"].largest()
            else:
                value = figures.get(name, figures.get(plain))
            if is_number(limit) and is_number(value):
                pairs.append((check, plain, value, limit))
    return pairs


def _pairs(probe: Mapping[str, Any]) -> str:
    """The comparisons of a probe, those that decided before the others."""
    decided = {entry["check"] for entry in probe["evidence"] if entry["verdict"] in _TROUBLE}
    pairs = sorted(against_limits(probe), key=lambda pair: pair[0] not in decided)
    items = [
        f'<li>{escape(check)}: {escape(name)} {show(value)} <span class="soft">({show(limit)})</span></li>'
        for check, name, value, limit in pairs[:_MOST_PAIRS]
    ]
    if len(pairs) > _MOST_PAIRS:
        items.append(f'<li class="soft">and {len(pairs) - _MOST_PAIRS} more</li>')
    return f'<ul class="pairs">{"".join(items)}</ul>' if items else ""


def _plots(probes: list[Mapping[str, Any]]) -> str:
    drawn: list[tuple[str, Series]] = [
        (probe["id"], series) for probe in probes for series in find_series(probe)
    ]
    figures = [
        f"<figure>{plot(series, f'plot-{number}')}<figcaption>{escape(probe)}: {escape(series.name)}"
        f"{_legend(series)}</figcaption></figure>"
        for number, (probe, series) in enumerate(drawn)
    ]
    return f'<h2>Plots</h2><div class="plots">{"".join(figures)}</div>' if figures else ""


def _legend(series: Series) -> str:
    parts = [] if series.limit is None else [f"dashed: limit {show(series.limit)}"]
    parts += ["hollow: not judged"] if not all(point.judged for point in series.points) else []
    return f' <span class="soft">({"; ".join(parts)})</span>' if parts else ""


def _probe(probe: Mapping[str, Any]) -> str:
    rows = "".join(
        f'<tr class="{entry["verdict"]}"><th scope="row">{escape(entry["check"])}</th>'
        f'<td class="verdict">{entry["verdict"]}</td><td>{escape(entry["text"])}</td></tr>'
        for entry in probe["evidence"]
    )
    bars = {
        f"{check}: {name}": value
        for check, values in probe["limits"].items()
        for name, value in values.items()
    }
    figures = "".join(
        f'<tr><th scope="row">{escape(f"{check}: {name}")}</th><td>{escape(show(value))}</td>'
        f"<td>{escape(show(bars.get(f'{check}: {name}', '')))}</td></tr>"
        for check, values in probe["measured"].items()
        for name, value in values.items()
        if value is not None
    )
    names = "".join(f'<th scope="col">{name}</th>' for name in ("figure", "measured", "limit"))
    return f"""<details class="{probe["verdict"]}"{"" if probe["verdict"] == "pass" else " open"}>
<summary><span class="verdict">{probe["verdict"]}</span> {escape(probe["title"])}</summary>
<table><tbody>{rows}</tbody></table>
<table><thead><tr>{names}</tr></thead><tbody>{figures}</tbody></table>
</details>
"""


def _untested(document: Mapping[str, Any]) -> str:
    reasons = untested_by_reason(document)
    if not reasons:
        return "<p>Nothing was left out.</p>"
    return _facts({", ".join(names): reason for reason, names in reasons.items()})


def _facts(facts: Mapping[str, object]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        f"<td>{'unknown' if value is None else escape(str(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table><tbody>{rows}</tbody></table>"
