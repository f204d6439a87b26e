"""The reports: readable by their readers, and safe whatever a server said."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import llm_stand_in as replies
import pytest
from jsonschema import Draft202012Validator
from llm_gate.document import name_target
from llm_gate.gate import make_settings, run_gate
from llm_gate.render import render_reports, table_lines
from llm_gate.render.coverage import untested_by_reason
from llm_gate.render.page import against_limits
from llm_gate.render.plots import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Point,
    Series,
    find_series,
    labelled,
    plot,
    show,
    ticks,
)
from llm_stand_in import StandIn, completion, json_reply

pytestmark = pytest.mark.usefixtures("smoke_only")
VALIDATOR = Draft202012Validator(
    json.loads(
        (Path(__file__).parents[3] / "module_utils" / "llm_gate" / "report.schema.json").read_text(
            encoding="utf-8"
        )
    )
)
NASTY = '<script>alert(1)</script> | `x` & "quoted" \\ ]]> \x00\x1b[31m \ud800 ☃'


@pytest.fixture
def passed(stand_in: StandIn, profile: dict[str, Any]) -> dict[str, Any]:
    return run_gate(make_settings(url=stand_in.url, model_profile=profile))


@pytest.fixture
def failed(stand_in: StandIn, profile: dict[str, Any]) -> dict[str, Any]:
    stand_in.chat |= {"answer": json_reply(completion(NASTY)), "arithmetic": json_reply(completion(None))}
    stand_in.pages["/model_info"] = json_reply({"model_path": NASTY})
    return run_gate(make_settings(url=stand_in.url, model_profile=profile))


@pytest.fixture
def broken(stand_in: StandIn, profile: dict[str, Any]) -> dict[str, Any]:
    stand_in.pages["/v1/models"] = replies.raw_reply(NASTY.encode("utf-8", "replace"), 500)
    return run_gate(make_settings(url=stand_in.url, model_profile=profile))


def test_there_is_a_report_for_every_reader(passed: dict[str, Any]) -> None:
    reports = render_reports(passed)
    assert sorted(reports) == ["gate.prom", "junit.xml", "report.html", "report.json", "report.md"]
    assert json.loads(reports["report.json"]) == passed


@pytest.mark.parametrize("outcome", ["passed", "failed", "broken"])
def test_every_report_can_be_written_as_utf_8(outcome: str, request: pytest.FixtureRequest) -> None:
    document = request.getfixturevalue(outcome)
    for text in [*render_reports(document).values(), *table_lines(document)]:
        text.encode("utf-8")
        assert "\x00" not in text
        assert "\x1b" not in text


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [("passed", ("1", "0", "0")), ("failed", ("1", "1", "0")), ("broken", ("1", "0", "1"))],
)
def test_junit_tells_a_failure_from_an_error(
    outcome: str, counts: tuple[str, str, str], request: pytest.FixtureRequest
) -> None:
    root = ET.fromstring(render_reports(request.getfixturevalue(outcome))["junit.xml"])
    suite, untested = root.findall("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == counts
    assert (untested.get("tests"), untested.get("skipped")) == ("12", "12")


class Page(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_self_contained_and_escapes_what_a_server_said(failed: dict[str, Any]) -> None:
    page = Page(render_reports(failed)["report.html"])
    assert not {"script", "img", "link", "iframe"} & {tag for tag, _attributes in page.tags}
    assert not any({"src", "href"} & attributes.keys() for _tag, attributes in page.tags)
    assert "<script>alert(1)</script>" in page.text


def test_the_page_starts_with_the_verdict(passed: dict[str, Any]) -> None:
    page = render_reports(passed)["report.html"]
    body = page[page.index("<body>") :]
    assert re.sub(r"<[^>]+>", " ", body).split()[:2] == ["pass", "pass:"]


def test_markdown_keeps_its_table_whatever_a_server_said(failed: dict[str, Any]) -> None:
    lines = render_reports(failed)["report.md"].splitlines()
    assert lines[0] == "# Gate: fail"
    rows = [line for line in lines if line.startswith("| ")]
    assert len(rows) == 2 + len(failed["probes"][0]["evidence"])
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 4 for row in rows)
    assert "<script" not in re.sub(r"\\<", "", "\n".join(lines))


SAMPLE = re.compile(r'[a-z_]+(\{([a-z_]+="([^"\\]|\\.)*",?)+\})? -?[0-9.]+(e[-+][0-9]+)?')


@pytest.mark.parametrize("outcome", ["passed", "failed", "broken"])
def test_metrics_are_in_the_prometheus_text_format(outcome: str, request: pytest.FixtureRequest) -> None:
    lines = render_reports(request.getfixturevalue(outcome))["gate.prom"].splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(sample) for sample in samples)
    helped = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert {re.split(r"[{ ]", sample)[0] for sample in samples} == helped


def test_metrics_give_speed_only_where_it_was_judged(passed: dict[str, Any], broken: dict[str, Any]) -> None:
    good, bad = render_reports(passed)["gate.prom"], render_reports(broken)["gate.prom"]
    assert "\nllm_gate_verdict 0\n" in good.replace("\r", "")
    assert 'llm_gate_output_tokens_per_second{concurrency="1"} ' in good
    assert "llm_gate_time_to_first_token_seconds" in good
    assert "llm_gate_verdict 3\n" in bad
    assert "tokens_per_second" not in bad


def test_the_table_ends_with_the_summary(failed: dict[str, Any]) -> None:
    lines = table_lines(failed)
    assert lines[0].startswith("smoke: fail, ")
    assert lines[-1] == failed["summary"]
    assert any(line.startswith("  hint ") for line in lines)


VOID = frozenset({"meta", "br", "hr", "img", "input", "link"})


class Nesting(HTMLParser):
    """Fails on a tag that is closed wrongly or never, and on an id that is there twice."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        names = [name for name, _value in attributes]
        assert len(names) == len(set(names)), (tag, names)
        for name, value in attributes:
            if name == "id":
                assert value and value not in self.ids
                self.ids.add(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def with_figures(document: dict[str, Any]) -> dict[str, Any]:
    """The document with figures as the numeric probes write them."""
    probe = document["probes"][0] | {
        "id": "lengths",
        "measured": {
            "absolute": {"unjudged_nll_8": 2.15, "nll_64": 0.02, "nll_512": 0.31, "nan_lengths": "8"},
            "c1": {"right_share": 1.0, "questions": 8},
            "c16": {"right_share": 0.5, "questions": 32},
            "ramp": {"tokens_per_second_c1": 60.0, "tokens_per_second_c8": 410.5, "ttft_len900": 1.0},
            "answers": {
                "answer_1": "Paris",
                "answer_2": "Paris",
                "single_4": 1.0,
                "flag_1": True,
                "flag_2": True,
            },
        },
        "limits": {"absolute": {"nll": 0.2}, "c1": {"right_share": 0.85}, "c16": {"right_share": 0.85}},
    }
    return document | {"probes": [*document["probes"], probe]}


@pytest.mark.parametrize("outcome", ["passed", "failed", "broken"])
def test_the_page_is_well_formed(outcome: str, request: pytest.FixtureRequest) -> None:
    document = request.getfixturevalue(outcome)
    for each in (document, with_figures(document), name_target(document, NASTY, NASTY)):
        Nesting(render_reports(each)["report.html"])


def test_a_series_is_what_has_numbers_in_its_name_or_limits_in_numbered_checks(
    passed: dict[str, Any],
) -> None:
    series = find_series(with_figures(passed)["probes"][-1])
    assert [(one.name, one.axis, one.limit) for one in series] == [
        ("absolute: nll", "tokens", 0.2),
        ("right_share", "requests at a time", 0.85),
        ("ramp: tokens_per_second", "requests at a time", None),
    ]
    assert series[0].points == [Point(8, 2.15, False), Point(64, 0.02), Point(512, 0.31)]
    assert series[1].points == [Point(1, 1.0), Point(16, 0.5)]


SVG = "{http://www.w3.org/2000/svg}"


def test_a_plot_puts_points_where_their_figures_belong() -> None:
    series = Series("nll", "tokens", 0.5, [Point(1, 0.0), Point(8, 0.25), Point(64, 1.0, False)])
    root = ET.fromstring(plot(series, "p").replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))
    circles = [
        (float(circle.get("cx", "")), float(circle.get("cy", ""))) for circle in root.iter(f"{SVG}circle")
    ]
    # Equal factors are equal distances along; values are proportional upwards, from 0 at the bottom to 1.
    assert [x for x, _y in circles] == [LEFT, (LEFT + WIDTH - RIGHT) / 2, WIDTH - RIGHT]
    bottom, top = HEIGHT - BOTTOM, TOP
    assert [y for _x, y in circles] == [bottom, bottom - (bottom - top) / 4, top]
    (limit,) = [line for line in root.iter(f"{SVG}line") if line.get("class") == "limit"]
    assert float(limit.get("y1", "")) == (bottom + top) / 2
    assert [circle.get("class") for circle in root.iter(f"{SVG}circle")] == ["judged", "judged", "unjudged"]
    titles = [element.text for element in root if element.tag in (f"{SVG}title", f"{SVG}desc")]
    assert titles == ["nll by tokens", "1: 0; 8: 0.25; 64: 1 (not judged); limit 0.5"]
    assert root.get("aria-labelledby") == "p-title p-desc"


@pytest.mark.parametrize(
    ("low", "high", "marks"),
    [
        (0.0, 1.0, [0, 0.25, 0.5, 0.75, 1]),
        (0.0, 0.0, [0, 0.25, 0.5, 0.75, 1]),
        (-2.0, 0.0, [-2, -1.5, -1, -0.5, 0]),
        (0.0, 410.5, [0, 200, 400, 600]),
        (0.0, 1e-9, [0, 2.5e-10, 5e-10, 7.5e-10, 1e-9]),
    ],
)
def test_an_axis_has_round_marks_around_its_values(low: float, high: float, marks: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(marks)


def test_numbers_along_an_axis_keep_their_distance() -> None:
    assert labelled([54, 60, 100, 110, 346]) == [1, 3, 4]
    assert labelled([54, 346]) == [0, 1]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (0.00012345, "0.0001234"),
        (410.5, "410.5"),
        (53982.04, "53982"),
        (1e-7, "1e-07"),
        (8, "8"),
        ("x", "x"),
    ],
)
def test_figures_are_shown_short(value: object, shown: str) -> None:
    assert show(value) == shown


def test_a_row_holds_what_was_measured_against_its_limit(passed: dict[str, Any]) -> None:
    probe = with_figures(passed)["probes"][-1]
    assert against_limits(probe) == [
        ("absolute", "nll", 0.31, 0.2),
        ("c1", "right_share", 1.0, 0.85),
        ("c16", "right_share", 0.5, 0.85),
    ]
    assert "absolute: nll 0.31 <span" in render_reports(with_figures(passed))["report.html"]


def test_the_page_shows_the_text_that_failed_and_what_to_try(failed: dict[str, Any]) -> None:
    page = render_reports(failed)["report.html"]
    found = page[page.index("What was found") : page.index("<h2>Probes")]
    assert "<pre>&lt;script&gt;alert(1)&lt;/script&gt;" in found
    assert found.index("What to try next") > found.index("<pre>")
    assert "What was found" not in render_reports(failed | {"probes": []})["report.html"]


def test_reports_name_node_and_release_where_they_are_told(passed: dict[str, Any]) -> None:
    named = name_target(passed, "gpu-07", "20261130-a1b2")
    VALIDATOR.validate(named)
    VALIDATOR.validate(name_target(passed, None, ""))
    assert name_target(passed, None, None) == passed
    for name, text in render_reports(named).items():
        assert "gpu-07" in text, name
        assert "20261130-a1b2" in text, name


def test_reports_say_who_answers_for_settings_that_are_not_known_to_be_right(passed: dict[str, Any]) -> None:
    named = name_target(passed, "gpu-07", "20261130-a1b2", "ep_size 8: bad. Overridden: the platform team")
    VALIDATOR.validate(named)
    shown = {name for name, text in render_reports(named).items() if "Overridden: the platform team" in text}
    assert shown == {"report.json", "report.md", "report.html", "junit.xml"}


def test_what_was_not_tested_is_one_line_a_reason(passed: dict[str, Any]) -> None:
    reasons = untested_by_reason(passed)
    assert sum(map(len, reasons.values())) == 12
    assert len(reasons) < 4
    reports = render_reports(passed)
    for reason, names in reasons.items():
        assert table_lines(passed).count(f"not tested: {', '.join(names)}: {reason}") == 1
        assert reports["report.html"].count(f"<td>{escape(reason)}</td>") == 1
        assert reports["report.md"].replace("\\", "").count(f"- {', '.join(names)}: {reason}\n") == 1
