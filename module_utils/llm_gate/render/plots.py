"""Plots as inline SVG: figures that a probe took at several prompt lengths or concurrencies.

A figure is a point of a series if its name ends in a number: `nll_512` and `nll_len512` are of 512 tokens,
`tokens_per_second_c8` is of 8 requests at a time. Where the number stands in the check's name instead, as in
`c8` or `8192`, its figures are drawn if they have a limit. What has only one point is left to the tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, TypeGuard

_NUMBERED = re.compile(r"(?P<stem>\w+?)_(?P<axis>c|len)?(?P<number>\d{1,9})")
_CHECK = re.compile(r"(?P<axis>c|len)?(?P<number>\d{1,9})")
_AXES = {"c": "requests at a time"}
# Figures that are measured for information where nothing is known of what they should be.
_UNJUDGED = "unjudged_"

WIDTH, HEIGHT = 360, 220
LEFT, RIGHT, TOP, BOTTOM = 54, 14, 14, 44
# Least distance of the numbers along the axis.
LABEL_GAP = 30


@dataclass(frozen=True)
class Point:
    """A figure at a length or concurrency; whether it is held against the limit."""

    x: int
    y: float
    judged: bool = True


@dataclass
class Series:
    """The points of one figure in ascending order, what they lie over, and their limit."""

    name: str
    axis: str
    limit: float | None
    points: list[Point] = field(default_factory=list)

    def largest(self) -> float | None:
        """The largest of the figures that are held against the limit."""
        return max((point.y for point in self.points if point.judged), default=None)


def find_series(probe: Mapping[str, Any]) -> list[Series]:
    """All series of a probe with at least two points."""
    found: dict[tuple[str, str, str], Series] = {}
    for check, figures in probe["measured"].items():
        limits = probe["limits"].get(check, {})
        for name, value in figures.items():
            own, of_check = _NUMBERED.fullmatch(name), _CHECK.fullmatch(check)
            match = own or (of_check if name in limits else None)
            if match is None or not is_number(value):
                continue
            stem = own["stem"] if own else name
            plain = stem.removeprefix(_UNJUDGED)
            title = f"{check}: {plain}" if own else plain
            axis = _AXES.get(match["axis"], "tokens")
            limit = limits.get(plain)
            series = found.setdefault(
                (title, plain, axis), Series(title, axis, limit if is_number(limit) else None)
            )
            series.points.append(Point(int(match["number"]), float(value), stem == plain))
    for series in found.values():
        series.points.sort(key=lambda point: point.x)
    return [series for series in found.values() if len({point.x for point in series.points}) > 1]


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a figure can be drawn and compared."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def show(value: object) -> str:
    """A figure for people: four significant digits, no exponent where a few zeros do."""
    if not isinstance(value, float):
        return str(value)
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        digits = 4 if value == 0 else max(0, 3 - math.floor(math.log10(abs(value))))
        text = f"{value:.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.3g}"


def ticks(low: float, high: float) -> list[float]:
    """Three to six round numbers that enclose a range; one that is empty is widened."""
    if low == high:
        low, high = min(low, 0.0), max(high, 0.0) or (1.0 if low == 0 else 0.0)
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def along(value: float, low: float, high: float) -> float:
    """Where a length lies between two others, 0 to 1; each doubling takes the same room."""
    return (
        math.log2(max(value, 1) / max(low, 1)) / math.log2(max(high, 1) / max(low, 1))
        if high > max(low, 1)
        else 0.5
    )


def labelled(positions: Sequence[float]) -> list[int]:
    """The places in ascending positions that get a number: the last, and from there what has room."""
    chosen: list[int] = []
    for place in reversed(range(len(positions))):
        if not chosen or positions[chosen[-1]] - positions[place] >= LABEL_GAP:
            chosen.append(place)
    return chosen[::-1]


def plot(series: Series, name: str) -> str:
    """The SVG of a series; `name` must be unique on its page."""
    values = [point.y for point in series.points] + ([] if series.limit is None else [series.limit])
    marks = ticks(min(0.0, *values), max(0.0, *values))
    low, high = series.points[0].x, series.points[-1].x

    def across(x: float) -> float:
        return round(LEFT + along(x, low, high) * (WIDTH - LEFT - RIGHT), 1)

    def up(y: float) -> float:
        share = (y - marks[0]) / (marks[-1] - marks[0])
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)

    places = [(across(point.x), up(point.y)) for point in series.points]
    lines = [
        f'<line class="grid" x1="{LEFT}" y1="{up(mark)}" x2="{WIDTH - RIGHT}" y2="{up(mark)}"/>'
        f'<text class="y" x="{LEFT - 6}" y="{up(mark) + 4:.1f}">{show(mark)}</text>'
        for mark in marks
    ]
    lines += [
        f'<text class="x" x="{places[place][0]}" y="{HEIGHT - BOTTOM + 16}">{series.points[place].x}</text>'
        for place in labelled([across for across, _up in places])
    ]
    lines.append(
        f'<text class="x" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}">{escape(series.axis)}</text>'
    )
    if series.limit is not None:
        y = up(series.limit)
        lines.append(f'<line class="limit" x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}"/>')
    lines.append(f'<polyline points="{" ".join(f"{x},{y}" for x, y in places)}"/>')
    lines += [
        f'<circle class="{"judged" if point.judged else "unjudged"}" cx="{x}" cy="{y}" r="3.5">'
        f"<title>{point.x}: {show(point.y)}</title></circle>"
        for point, (x, y) in zip(series.points, places, strict=True)
    ]
    told = "; ".join(
        f"{point.x}: {show(point.y)}{'' if point.judged else ' (not judged)'}" for point in series.points
    )
    bar = "" if series.limit is None else f"; limit {show(series.limit)}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(series.name)} by {escape(series.axis)}</title>'
        f'<desc id="{name}-desc">{told}{bar}</desc>{"".join(lines)}</svg>'
    )
