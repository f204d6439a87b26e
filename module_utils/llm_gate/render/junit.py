"""JUnit XML: a suite per category of probes, a case per probe."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Any


def render_junit(document: Mapping[str, Any]) -> str:
    """`fail` is a failure, `error` an error, an untested probe skipped; a warning passes with output."""
    root = ET.Element("testsuites", name="llm_gate")
    for category in dict.fromkeys(probe["category"] for probe in document["probes"]):
        suite = ET.SubElement(
            root, "testsuite", name=category, timestamp=document["started"].removesuffix("Z")
        )
        _properties(suite, document)
        probes = [probe for probe in document["probes"] if probe["category"] == category]
        for probe in probes:
            _case(suite, probe)
        _count(suite, sum(probe["duration_s"] for probe in probes))
    ran = {probe["id"] for probe in document["probes"]}
    missing = [entry for entry in document["coverage"] if entry["id"] not in ran]
    if missing:
        suite = ET.SubElement(root, "testsuite", name="not tested")
        for entry in missing:
            case = ET.SubElement(suite, "testcase", classname="llm_gate", name=entry["id"], time="0")
            ET.SubElement(case, "skipped", message=entry["reason"])
        _count(suite, 0.0)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _properties(suite: ET.Element, document: Mapping[str, Any]) -> None:
    properties = ET.SubElement(suite, "properties")
    for name in ("run_id", "verdict", "summary"):
        ET.SubElement(properties, "property", name=name, value=str(document[name]))
    for name, value in document["target"].items():
        ET.SubElement(properties, "property", name=name, value="" if value is None else str(value))


def _case(suite: ET.Element, probe: Mapping[str, Any]) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        classname=f"llm_gate.{probe['category']}",
        name=probe["id"],
        time=f"{probe['duration_s']:.3f}",
    )
    decisive = [entry["text"] for entry in probe["evidence"] if entry["verdict"] == probe["verdict"]]
    tag = {"fail": "failure", "error": "error"}.get(probe["verdict"])
    if tag:
        message = decisive[0] if decisive else "no evidence"
        problem = ET.SubElement(case, tag, message=message, type=probe["verdict"])
        problem.text = "\n".join([*decisive, probe["hint"]]).strip()
    output = ET.SubElement(case, "system-out")
    output.text = "\n".join(
        f"{entry['verdict']}: {entry['check']}: {entry['text']}" for entry in probe["evidence"]
    )


def _count(suite: ET.Element, seconds: float) -> None:
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    suite.set("time", f"{seconds:.3f}")
