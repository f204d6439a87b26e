"""A text file for the node exporter's textfile collector: gauges in base units, without time stamps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

# A number for the verdict, so that an alert can say "> 1".
VALUES = {"pass": 0, "warn": 1, "fail": 2, "error": 3}


def render_prometheus(document: Mapping[str, Any]) -> str:
    """The metrics of a run. A figure that was not measured is left out rather than given as 0."""
    target = document["target"]
    info = {
        "model": target["model"] or "",
        "profile": target["profile"],
        "engine": target["engine"] or "",
        "engine_version": target["engine_version"] or "",
        "run_id": document["run_id"],
        **{name: target[name] for name in ("node", "release") if name in target},
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
    for name, (text, samples) in (_speeds(measured) | _numerics(measured)).items():
        lines += _metric(name, text, samples) if samples else []
    return "\n".join(lines) + "\n"


def _speeds(measured: Mapping[str, Any]) -> dict[str, tuple[str, dict[str, float]]]:
    """The metrics of speed by concurrency: the smoke probe's one answer, or better the throughput probe's."""
    smoke = measured.get("smoke", {}).get("throughput", {})
    throughput = measured.get("throughput", {})
    single, rungs = (
        throughput.get("single", {}),
        [value for key, value in throughput.items() if key != "single"],
    )
    speeds, firsts, gaps = {}, {}, {}
    if "concurrency" in smoke:
        label = _labels(concurrency=str(smoke["concurrency"]))
        speeds[label], firsts[label] = smoke.get("tokens_per_second"), smoke.get("ttft_s")
        gaps[label] = smoke.get("itl_s")
    for values in (*rungs, single):
        if "concurrency" in values:
            label = _labels(concurrency=str(values["concurrency"]))
            speeds[label] = values.get("tokens_per_second", values.get("output_throughput"))
            firsts[label] = _seconds(values.get("median_ttft_ms"))
            gaps[label] = _seconds(values.get("median_itl_ms"))
    return {
        "llm_gate_output_tokens_per_second": (
            "Tokens per second: of one request without its first, of several together in all.",
            _known(speeds),
        ),
        "llm_gate_time_to_first_token_seconds": (
            "Time from sending to the first text, the median.",
            _known(firsts),
        ),
        "llm_gate_inter_token_latency_seconds": ("Mean time between later tokens, the median.", _known(gaps)),
    }


def _known(samples: Mapping[str, float | None]) -> dict[str, float]:
    return {label: value for label, value in samples.items() if value is not None}


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds / 1000, 7)


def _numerics(measured: Mapping[str, Any]) -> dict[str, tuple[str, dict[str, float]]]:
    """The metrics of the numeric probes with their samples."""

    def figure(probe: str, check: str, name: str) -> float | None:
        value: float | None = measured.get(probe, {}).get(check, {}).get(name)
        return value

    def labelled(label: str, values: Mapping[str, float | None]) -> dict[str, float]:
        return {_labels(**{label: key}): value for key, value in values.items() if value is not None}

    nan = figure("nan_scan", "scan", "nan_positions")
    anchors = measured.get("nan_scan", {}).get("anchors", {})
    lengths = measured.get("lengths", {}).get("absolute", {})
    rungs = {
        check: values for check, values in measured.get("concurrency", {}).items() if "concurrency" in values
    }
    accepted = measured.get("concurrency", {}).get("acceptance", {})
    nlls = {
        **{name.removeprefix("nll_"): value for name, value in anchors.items() if name.startswith("nll_")},
        "counting": figure("nan_scan", "counting", "nll"),
        **{f"length_{name[4:]}": value for name, value in lengths.items() if name.startswith("nll_")},
        **{f"copy_{check}": values.get("nll") for check, values in measured.get("long_copy", {}).items()},
        **{
            f"golden_{name.removeprefix('nll_')}": value
            for name, value in measured.get("golden", {}).get("segments", {}).items()
            if name.startswith("nll_") and not name.startswith("nll_change")
        },
    }
    arms = {"lengths": "cache", "prefix_cache": "hit", "rescore": "decode_cache", "golden": "segments"}
    deltas = {probe: figure(probe, check, "delta_trimmed_mean") for probe, check in arms.items()}
    regrets = {
        "1": figure("rescore", "regret", "regret_share"),
        **{str(values["concurrency"]): values.get("regret_share") for values in rungs.values()},
    }
    single = figure("throughput", "single", "accept_length")
    acceptance = {} if single is None else {"1": single}
    acceptance |= {
        name.removeprefix("accept_length_c"): value
        for name, value in accepted.items()
        if name.startswith("accept_length_c")
    }
    flips = figure("golden", "segments", "confident_flips")
    return {
        "llm_gate_golden_confident_flips_ratio": (
            "Share of tokens that the baseline was sure of and the server no longer finds the likeliest.",
            {"": flips} if flips is not None else {},
        ),
        "llm_gate_nan_positions": ("Positions with NaN logits.", {"": nan} if nan is not None else {}),
        "llm_gate_nll_nats": ("Mean cost of a token of a known text.", labelled("domain", nlls)),
        "llm_gate_logprob_delta_trimmed_mean": (
            "How far logprobs are from those computed with the cache or from the baseline's, in nats.",
            labelled("arm", deltas),
        ),
        "llm_gate_regret_ratio": (
            "Share of generated tokens that are not the likeliest when scored.",
            labelled("concurrency", regrets),
        ),
        "llm_gate_spec_accept_length": ("Tokens for each verification.", labelled("concurrency", acceptance)),
    }


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
