"""A text file for the node exporter's textfile collector: gauges in base units, without time stamps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

# A number for the verdict, so that an alert can say "> 1".
VALUES = {"pass": 0, "warn": 1, "fail": 2, "error": 3}
# Figures of a probe's checks: (probe, check, figure) -> metric and its help.
FIGURES = {
    ("smoke", "throughput", "tokens_per_second"): (
        "llm_gate_output_tokens_per_second",
        "Decode speed of one request, without its first token.",
    ),
    ("smoke", "throughput", "ttft_s"): (
        "llm_gate_time_to_first_token_seconds",
        "Time from sending to the first text.",
    ),
    ("smoke", "throughput", "itl_s"): (
        "llm_gate_inter_token_latency_seconds",
        "Mean time between later tokens.",
    ),
}


def render_prometheus(document: Mapping[str, Any]) -> str:
    """The metrics of a run. A figure that was not measured is left out rather than given as 0."""
    target = document["target"]
    info = {
        "model": target["model"] or "",
        "profile": target["profile"],
        "engine": target["engine"] or "",
        "engine_version": target["engine_version"] or "",
        "run_id": document["run_id"],
    }
    finished = datetime.fromisoformat(document["finished"]).timestamp()
    words = "0 pass, 1 warn, 2 fail, 3 error."
    lines = [
        *_metric("llm_gate_verdict", f"Verdict of the last run: {words}", {"": VALUES[document["verdict"]]}),
        *_metric(
            "llm_gate_probe_verdict",
            f"Verdict of a probe: {words}",
            {_labels(probe=probe["id"]): VALUES[probe["verdict"]] for probe in document["probes"]},
        ),
        *_metric(
            "llm_gate_probe_tested",
            "Whether a probe tested anything: 1 or 0.",
            {_labels(probe=entry["id"]): int(entry["tested"]) for entry in document["coverage"]},
        ),
        *_metric("llm_gate_last_run_timestamp_seconds", "When the last run finished.", {"": finished}),
        *_metric("llm_gate_duration_seconds", "How long the last run took.", {"": document["duration_s"]}),
        *_metric("llm_gate_info", "What was tested.", {_labels(**info): 1}),
    ]
    measured = {probe["id"]: probe["measured"] for probe in document["probes"]}
    for (probe, check, figure), (name, text) in FIGURES.items():
        values = measured.get(probe, {}).get(check, {})
        if values.get(figure) is not None:
            lines += _metric(name, text, {_labels(concurrency=str(values["concurrency"])): values[figure]})
    return "\n".join(lines) + "\n"


def _metric(name: str, text: str, samples: Mapping[str, float]) -> list[str]:
    return [
        f"# HELP {name} {text}",
        f"# TYPE {name} gauge",
        *(f"{name}{key} {value}" for key, value in samples.items()),
    ]


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
