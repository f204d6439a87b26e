"""The reports: readable by their readers, and safe whatever a server said."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from typing import Any

import llm_stand_in as replies
import pytest
from llm_gate.gate import make_settings, run_gate
from llm_gate.render import render_reports, table_lines
from llm_stand_in import StandIn, completion, json_reply

pytestmark = pytest.mark.usefixtures("smoke_only")
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
