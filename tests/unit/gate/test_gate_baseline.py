"""Baselines: the document, merging, the distance from it, and the golden probe on the stand-in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from llm_gate import cli, merge
from llm_gate.baseline import (
    KEY,
    Baseline,
    Deployment,
    Hardware,
    Noise,
    Pass,
    Segment,
    Speed,
    Stored,
    Text,
    file_name,
    pack,
    parse,
    read_baseline,
    read_hardware,
    read_pass,
    store,
    to_document,
    to_text,
    unpack,
)
from llm_gate.drift import Drift, confident_flips, drift, judge_drift, texts_changed
from llm_gate.errors import UsageError
from llm_gate.gate import make_settings, plan_lines, run_gate
from llm_gate.golden_data import GoldenBars
from llm_gate.model_profile import read_model_profile
from llm_gate.record import Recording, record_pass
from llm_gate.render import render_reports, table_lines
from llm_stand_in import StandIn, completion, json_reply

H200 = Hardware("NVIDIA H200", 8, 700.0)
RTX = Hardware("RTX PRO 6000", 8, None)
NO_KEY = dict.fromkeys(KEY)
QUIET = Noise(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0)


def a_segment(*logprobs: float, name: str = "english", kind: str = "text", likeliest: int = 4) -> Segment:
    count = len(logprobs)
    return Segment(name, kind, tuple(range(count + 1)), 1, logprobs, (likeliest,) * count, (2.0,) * count)


def a_pass(*logprobs: float, **changed: Any) -> Pass:
    key = {**NO_KEY, "model": "tiny-qwen3", "kv_cache_dtype": "auto"}
    speed = Speed(H200, 8, 60.0, 60.0, 0.2, 0.016, {1: 50.0, 2: 90.0}, None)
    texts = (Text("Say OK", 8, "OK"),)
    made = Pass(
        "2031-04-02T06:00:00Z", "run", key, {"engine": "sglang"}, (a_segment(*logprobs),), texts, speed
    )
    return replace(made, **changed)


def a_baseline() -> Baseline:
    return merge.merge([a_pass(-1.0, -2.0, -3.0), a_pass(-1.0, -2.1, -3.0), a_pass(-1.0, -2.2, -3.5)])


# The document.


def test_a_pass_and_a_baseline_are_read_as_they_were_written() -> None:
    one, several = a_pass(-1.0, -2.5), a_baseline()
    assert read_pass(parse(to_text(one), "p.json"), "p.json") == one
    assert read_baseline(parse(to_text(several), "b.json"), "b.json") == several
    assert to_text(read_baseline(json.loads(to_text(several)), "b.json")) == to_text(several)


def test_a_list_of_numbers_is_one_line_for_a_diff() -> None:
    lines = to_text(a_baseline()).splitlines()
    assert '   "logprobs": [-1.0, -2.1, -3.0],' in lines


@pytest.mark.parametrize("ids", [(), (0,), (-1, 151935, 2**31 - 1), tuple(range(5000))])
def test_packed_ids_come_back(ids: tuple[int, ...]) -> None:
    assert unpack(pack(ids)) == ids


def test_ids_that_were_packed_elsewhere_are_read() -> None:
    # What another machine's zlib made of [1, 2, 300]: stored, not compressed.
    assert unpack("eAEBDADz/wEAAAACAAAALAEAAADbADE=") == (1, 2, 300)


def broken(**changes: Any) -> dict[str, Any]:
    return {**to_document(a_baseline()), **changes}


def broken_segment(**changes: Any) -> dict[str, Any]:
    document = to_document(a_baseline())
    document["segments"] = [{**document["segments"][0], **changes}]  # type: ignore[index]
    return document


BAD = {
    "list": ([], "must hold a JSON object, not list"),
    "newer": (broken(schema_version=2), "schema_version must be 1, not 2; record it again with baseline.yml"),
    "true": (broken(schema_version=True), "schema_version must be 1, not True"),
    "pass": (broken(kind="pass"), "kind must be baseline, not 'pass'; merge passes with"),
    "unknown": (broken(hint="x"), "unknown key baseline.hint"),
    "missing": (
        {key: value for key, value in broken().items() if key != "noise"},
        "baseline.noise is missing",
    ),
    "noise": (broken(noise={}), "baseline.noise.trimmed_mean is missing"),
    "passes": (
        broken(passes="5"),
        "baseline.passes must be a whole number of at least 1, not '5'",
    ),
    "no-key": (broken(key={"model": "x"}), "baseline.key must have just model, revision,"),
    "no-segments": (broken(segments=[]), "baseline.segments must be a list of at least 1"),
    "logprob": (broken_segment(logprobs=[None, 1, 2]), "segments[0].logprobs[0] must be a number, not None"),
    "short": (broken_segment(logprobs=[-1.0]), "logprobs must have 3 entries, one a judged token, not 1"),
    "gaps": (broken_segment(gaps=[-1, 1, 1]), "segments[0].gaps[0] must not be below 0, not -1"),
    "kind": (broken_segment(kind="song"), "segments[0].kind must be text or copy, not 'song'"),
    "ids": (broken_segment(ids="eNpj"), "segments[0].ids must be packed token ids: "),
    "ids-list": (broken_segment(ids=[1, 2]), "segments[0].ids must be packed token ids, not list"),
    "speed": (broken(speeds=[{"hardware": {"gpu": "x"}}]), "speeds[0].hardware.count is missing"),
}


@pytest.mark.parametrize(("document", "message"), BAD.values(), ids=BAD.keys())
def test_a_wrong_document_is_refused_by_file_and_key(document: object, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_baseline(document, "catalog/baselines/x.json")
    assert str(caught.value).startswith("baseline catalog/baselines/x.json: ")
    assert message in str(caught.value)


def test_a_torn_file_is_refused_at_every_length() -> None:
    text = to_text(a_baseline()).rstrip()
    for end in range(0, len(text), 97):
        with pytest.raises(UsageError, match="is not whole JSON"):
            parse(text[:end], "x.json")


def test_the_file_is_named_by_model_and_key() -> None:
    one = {**NO_KEY, "model": "nvidia/Qwen3.5-397B NVFP4"}
    assert file_name(one).startswith("nvidia-Qwen3.5-397B-NVFP4-")
    assert file_name(one) == file_name(dict(reversed(one.items())))
    assert file_name(one) != file_name({**one, "kv_cache_dtype": "fp8_e4m3"})
    assert file_name({**NO_KEY, "model": "../.."}).startswith("model-")


@pytest.mark.parametrize(
    "value",
    [{"gpu": "x"}, {"gpu": "", "count": 1}, {"gpu": "x", "count": 0}, {"gpu": "x", "count": 1, "w": 2}, "x"],
)
def test_wrong_hardware_is_refused(value: object) -> None:
    with pytest.raises(UsageError):
        read_hardware(value, "hardware")


# Merging.


def test_the_median_of_each_position_and_the_largest_difference_are_kept() -> None:
    baseline = a_baseline()
    assert baseline.passes == 3
    assert baseline.segments[0].logprobs == (-1.0, -2.1, -3.0)
    assert baseline.noise.largest == pytest.approx(0.5)
    assert baseline.noise.nll_change == pytest.approx(0.7 / 3, abs=1e-6)
    assert baseline.noise.texts_changed == 0
    assert baseline.speeds[0].tokens_per_second == 60.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": {**NO_KEY, "model": "other"}}, "model is other, the baseline's tiny-qwen3"),
        ({"attributes": {"engine": "vllm"}}, "engine sglang -> vllm"),
        ({"segments": (a_segment(-1.0, -2.0, name="python"),)}, "other token ids were scored"),
        ({"texts": ()}, "other prompts were asked"),
    ],
    ids=["key", "build", "tokens", "prompts"],
)
def test_passes_of_different_deployments_are_not_merged(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=r"pass 2 is not of the same deployment as pass 1") as caught:
        merge.merge([a_pass(-1.0, -2.0), a_pass(-1.0, -2.0, **change)])
    assert message in str(caught.value)


def test_one_pass_is_no_baseline() -> None:
    with pytest.raises(UsageError, match="at least 2 passes, not 1"):
        merge.merge([a_pass(-1.0)])


def test_speed_on_other_hardware_is_kept_and_on_the_same_replaced() -> None:
    elsewhere = Speed(RTX, 8, 30.0, 29.0, None, None, {}, None)
    previous = replace(
        a_baseline(), speeds=(elsewhere, replace(a_baseline().speeds[0], tokens_per_second=1.0))
    )
    merged = merge.merge([a_pass(-1.0), a_pass(-1.0)], previous)
    assert [speed.hardware for speed in merged.speeds] == [H200, RTX]
    assert merged.speeds[0].tokens_per_second == 60.0
    assert merged.speed_on(RTX, 8) == elsewhere
    assert merged.speed_on(None, 8) is None
    assert merged.speed_on(RTX, 4) is None


def test_speed_of_passes_is_their_median_and_their_slowest() -> None:
    speeds = [Speed(None, 1, value, value, None, None, {1: value}, None) for value in (50.0, 40.0, 60.0)]
    merged = merge.merge([a_pass(-1.0, speed=speed) for speed in speeds])
    assert (merged.speeds[0].tokens_per_second, merged.speeds[0].slowest) == (50.0, 40.0)


def test_changes_beyond_noise_are_told_and_noise_is_not() -> None:
    stored = a_baseline()
    assert merge.changes(stored, stored) == []
    assert merge.changes(stored, merge.merge([a_pass(-1.0, -2.2, -3.4), a_pass(-1.0, -2.2, -3.4)])) == []
    moved = merge.merge([a_pass(-1.0, -2.2, -9.0), a_pass(-1.0, -2.2, -9.0)])
    assert any("largest difference 6.000 nats" in line for line in merge.changes(stored, moved))
    other = merge.merge([a_pass(-1.0), a_pass(-1.0)])
    assert "other token ids" in merge.changes(stored, other)[0]


# The distance.


def far(**changes: Any) -> Drift:
    return replace(Drift(100, 0.0, 0.0, 0.0, "english", 0.0, {"english": 0.0}, {"copy_8192": 0.0}), **changes)


def test_only_what_the_reference_was_sure_of_may_not_flip() -> None:
    sure = a_segment(-0.1, -0.1)
    torn = replace(sure, gaps=(0.5, 2.0))
    flipped = replace(sure, likeliest=(5, 5), gaps=(0.1, 0.1))
    assert confident_flips(sure, flipped) == [1.0, 1.0]
    assert confident_flips(torn, flipped) == [0.0, 1.0]
    assert confident_flips(sure, sure) == [0.0, 0.0]


def test_the_statistics_of_a_drift() -> None:
    reference = [a_segment(*[-1.0] * 40), a_segment(*[-0.1] * 10, name="copy_9", kind="copy")]
    measured = [a_segment(*[-1.0] * 39, -4.0), a_segment(*[-0.2] * 10, name="copy_9", kind="copy")]
    apart = drift(reference, measured)
    assert (apart.positions, apart.largest, apart.largest_in) == (50, 3.0, "english")
    assert apart.large_share == pytest.approx(1 / 50)
    assert apart.trimmed_mean == pytest.approx(0.8 / 47)
    assert apart.nll_changes == {"english": pytest.approx(3 / 40)}
    assert apart.copy_nll_changes == {"copy_9": pytest.approx(0.1)}


@pytest.mark.parametrize(
    ("changes", "verdict", "statistic"),
    [
        ({"trimmed_mean": 0.029}, None, None),
        ({"trimmed_mean": 0.05}, "warn", "trimmed_mean"),
        ({"trimmed_mean": 0.11}, "fail", "trimmed_mean"),
        ({"large_share": 0.02}, "warn", "large_share"),
        ({"large_share": 0.04}, "fail", "large_share"),
        ({"confident_flips": 0.005}, "warn", "confident_flips"),
        ({"confident_flips": 0.02}, "fail", "confident_flips"),
        ({"nll_changes": {"json": 0.02}}, "warn", "nll_change"),
        ({"nll_changes": {"json": 0.05}}, "fail", "nll_change"),
        ({"nll_changes": {"json": -2.0}}, None, None),
        ({"copy_nll_changes": {"copy_8192": 0.1}}, "warn", "copy_nll_change"),
        ({"copy_nll_changes": {"copy_8192": 0.3}}, "fail", "copy_nll_change"),
        ({"largest": 0.25}, None, None),
        ({"largest": 0.26}, "fail", "largest"),
    ],
)
def test_the_bars(changes: dict[str, Any], verdict: str | None, statistic: str | None) -> None:
    findings = judge_drift(far(**changes), QUIET, GoldenBars(), same_build=True)
    assert [(one.verdict, one.statistic) for one in findings] == ([(verdict, statistic)] if verdict else [])


def test_noise_lifts_the_bars() -> None:
    noise = Noise(0.02, 0.01, 0.5, 0.003, 0.01, 0.1, 1)
    quiet_enough = far(trimmed_mean=0.08, large_share=0.04, largest=2.0, confident_flips=0.012)
    assert judge_drift(quiet_enough, noise, GoldenBars(), same_build=True) == []
    loud = far(trimmed_mean=0.21, largest=2.1)
    assert [one.verdict for one in judge_drift(loud, noise, GoldenBars(), same_build=True)] == [
        "fail",
        "fail",
    ]


def test_with_another_build_a_single_token_only_warns() -> None:
    (finding,) = judge_drift(far(largest=3.0), QUIET, GoldenBars(), same_build=False)
    assert finding.verdict == "warn"


def test_changed_texts_are_counted() -> None:
    one = [Text("a", 4, "x"), Text("b", 4, "y")]
    assert texts_changed(one, one) == []
    assert texts_changed(one, [one[0], Text("b", 4, "z")]) == [Text("b", 4, "z")]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"trimmed": 1}, "unknown key gate.golden.trimmed"),
        ({"largest": -1}, "gate.golden.largest must not be below 0"),
        ({"nll_change": 0.5}, "gate.golden.nll_change_fail must not be below nll_change"),
    ],
)
def test_wrong_bars_are_refused(profile: dict[str, Any], section: Any, message: str) -> None:
    profile["gate"]["golden"] = section
    with pytest.raises(UsageError, match=message):
        read_model_profile(profile)


# The probe, on the stand-in.


def gate(stand_in: StandIn, profile: dict[str, Any], deployment: Deployment) -> dict[str, Any]:
    settings = make_settings(url=stand_in.url, model_profile=profile, profile="full", deployment=deployment)
    return run_gate(settings)


def record(stand_in: StandIn, profile: dict[str, Any], beside: int = 0, **known: Any) -> Recording:
    deployment = Deployment(**known)
    settings = make_settings(url=stand_in.url, model_profile=profile, profile="full", deployment=deployment)
    return record_pass(settings, beside)


def stored_by(stand_in: StandIn, profile: dict[str, Any], **known: Any) -> Stored:
    passes = [record(stand_in, profile, beside, **known).measured for beside in (0, 2)]
    assert None not in passes
    return store(to_document(merge.merge([one for one in passes if one])), "base.json")


def probe(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(entry for entry in document["probes"] if entry["id"] == name)
    return found


def reason(document: dict[str, Any], name: str) -> str:
    return next(str(entry["reason"]) for entry in document["coverage"] if entry["id"] == name)


@pytest.fixture
def golden_profile(profile: dict[str, Any]) -> dict[str, Any]:
    profile["gate"]["copy"] = {"count": 16, "lengths": [400]}
    profile["gate"]["concurrency"] = [1, 2]
    return profile


def test_a_sound_server_is_as_its_baseline_has_it(stand_in: StandIn, golden_profile: dict[str, Any]) -> None:
    stored = stored_by(stand_in, golden_profile)
    assert stored.baseline.noise == QUIET
    names = [segment.name for segment in stored.baseline.segments]
    assert names[0] == "english"
    assert names[-2:] == ["counting", "copy_400"]
    document = gate(stand_in, golden_profile, Deployment(baseline=stored))
    assert document["verdict"] == "pass", table_lines(document)
    assert document["baseline"] == {"path": "base.json", "sha256": stored.sha256}
    assert probe(document, "golden")["measured"]["texts"] == {"texts": 5, "texts_changed": 0}
    metrics = render_reports(document)["gate.prom"]
    assert 'llm_gate_logprob_delta_trimmed_mean{arm="golden"} 0.0\n' in metrics
    assert 'llm_gate_nll_nats{domain="golden_english"} ' in metrics
    assert 'llm_gate_output_tokens_per_second{concurrency="2"}' in metrics
    assert metrics.count("# TYPE llm_gate_output_tokens_per_second gauge") == 1


def test_a_few_other_logprobs_are_found_though_every_answer_is_right(
    stand_in: StandIn, golden_profile: dict[str, Any]
) -> None:
    stored = stored_by(stand_in, golden_profile)
    german = next(one for one in stored.baseline.segments if one.name == "german")
    stand_in.toy.fault = lambda at: at.scored and at.position == 60 and at.rows == len(german.ids)
    document = gate(stand_in, golden_profile, Deployment(baseline=stored))
    assert probe(document, "golden")["verdict"] == "fail"
    assert "largest difference 6.000 nats in german" in str(probe(document, "golden")["evidence"])
    assert reason(document, "throughput") == "golden failed, so that later evidence would mean nothing"


def test_nan_in_what_the_baseline_scores_is_named(stand_in: StandIn, golden_profile: dict[str, Any]) -> None:
    stored = stored_by(stand_in, golden_profile)
    golden_profile["gate"]["counting"] = None
    stand_in.toy.nan = lambda at: at.scored and at.position == 61 and 62 <= at.rows <= 250
    document = gate(stand_in, golden_profile, Deployment(baseline=stored))
    found = [entry["rule"] for entry in probe(document, "golden")["evidence"]]
    assert "nan-logits" in found


def test_a_baseline_of_another_deployment_is_an_error_that_names_each_difference(
    stand_in: StandIn, golden_profile: dict[str, Any]
) -> None:
    stored = stored_by(stand_in, golden_profile, revision="abc")
    other = {"version": "0.5.9", "kv_cache_dtype": "fp8_e4m3", "speculative_algorithm": None}
    stand_in.pages["/server_info"] = json_reply(other)
    document = gate(stand_in, golden_profile, Deployment(revision="def", baseline=stored))
    (entry,) = probe(document, "golden")["evidence"]
    assert (document["verdict"], entry["verdict"], entry["rule"]) == ("error", "error", "golden-stale")
    for told in ("revision is def, the baseline's abc", "kv_cache_dtype is fp8_e4m3, the baseline's auto"):
        assert told in entry["text"]
    assert "baseline.yml" in entry["text"]


def test_what_only_one_side_knows_of_the_key_is_told_and_not_compared(
    stand_in: StandIn, golden_profile: dict[str, Any]
) -> None:
    stored = stored_by(stand_in, golden_profile, revision="abc")
    document = gate(stand_in, golden_profile, Deployment(baseline=stored))
    assert document["verdict"] == "pass"
    assert "not known on both sides, so not compared: revision" in reason(document, "golden")


def test_another_build_is_named_and_single_tokens_only_warn(
    stand_in: StandIn, golden_profile: dict[str, Any]
) -> None:
    golden_profile["gate"]["counting"] = None
    stored = stored_by(stand_in, golden_profile)
    page = {"version": "0.5.23", "tp_size": 1, "kv_cache_dtype": "auto", "speculative_algorithm": None}
    stand_in.pages["/server_info"] = json_reply(page)
    german = next(one for one in stored.baseline.segments if one.name == "german")
    stand_in.toy.fault = lambda at: at.scored and at.position == 60 and at.rows == len(german.ids)
    found = probe(gate(stand_in, golden_profile, Deployment(baseline=stored)), "golden")
    single = next(entry for entry in found["evidence"] if entry["rule"] == "golden-largest")
    assert single["verdict"] == "warn"
    assert "engine_version 0.5.9 -> 0.5.23" in single["text"]


def test_without_a_baseline_the_coverage_says_so(stand_in: StandIn, golden_profile: dict[str, Any]) -> None:
    document = gate(stand_in, golden_profile, Deployment())
    assert document["verdict"] == "pass"
    assert reason(document, "golden") == "golden not tested: no baseline"
    assert document["baseline"] is None


def test_of_several_baselines_the_one_that_fits_is_taken(
    stand_in: StandIn, golden_profile: dict[str, Any]
) -> None:
    fitting = stored_by(stand_in, golden_profile)
    key = {**fitting.baseline.key, "kv_cache_dtype": "fp8_e4m3"}
    other = Stored("other.json", "0" * 64, replace(fitting.baseline, key=key))
    document = gate(stand_in, golden_profile, Deployment(choice=(other, fitting)))
    assert document["baseline"]["path"] == "base.json"
    assert probe(document, "golden")["verdict"] == "pass"
    document = gate(stand_in, golden_profile, Deployment(choice=(other,)))
    nearest = "no baseline of this deployment; the nearest, other.json: kv_cache_dtype is auto"
    assert nearest in reason(document, "golden")


def test_changed_greedy_texts_are_a_warning(stand_in: StandIn, golden_profile: dict[str, Any]) -> None:
    stored = stored_by(stand_in, golden_profile)
    texts = (Text("What is 17*19?", 16, "323"),)
    stored = replace(stored, baseline=replace(stored.baseline, texts=texts))
    document = gate(stand_in, golden_profile, Deployment(baseline=stored))
    assert document["verdict"] == "warn"
    assert "1 of 1 greedy texts are others" in document["summary"]


def test_vllm_is_compared_as_well(stand_in: StandIn, golden_profile: dict[str, Any]) -> None:
    stand_in.becomes_vllm()
    stored = stored_by(stand_in, golden_profile)
    document = gate(stand_in, golden_profile, Deployment(baseline=stored))
    assert probe(document, "golden")["verdict"] == "pass"


def test_a_run_that_failed_or_warned_records_nothing(
    stand_in: StandIn, golden_profile: dict[str, Any]
) -> None:
    stand_in.chat["answer"] = json_reply(completion("OK", finish_reason="length"))
    warned = record(stand_in, golden_profile)
    assert warned.measured is None
    assert warned.refused.startswith("only a run that passed is recorded, this one: warn: ")
    stand_in.chat["answer"] = json_reply(completion("KO"))
    assert record(stand_in, golden_profile).measured is None


def test_a_quick_run_is_never_recorded(stand_in: StandIn, golden_profile: dict[str, Any]) -> None:
    settings = make_settings(url=stand_in.url, model_profile=golden_profile)
    with pytest.raises(ValueError, match="by the profile full, not by quick"):
        record_pass(settings)
    assert stand_in.requests == []


def test_an_engine_without_logprobs_has_nothing_to_record(
    stand_in: StandIn, golden_profile: dict[str, Any]
) -> None:
    stand_in.becomes_vllm()
    stand_in.pages["/v1/models"] = json_reply({"data": [{"id": "tiny-qwen3"}]})
    recording = record(stand_in, golden_profile)
    assert (recording.document["verdict"], recording.measured) == ("pass", None)
    assert "offers no logprobs" in recording.refused


def test_other_requests_run_beside_a_measurement(stand_in: StandIn, golden_profile: dict[str, Any]) -> None:
    stand_in.toy.pause = 0.01
    before = len(stand_in.asked("/generate"))
    assert record(stand_in, golden_profile, beside=4).measured is not None
    bodies = [request.body for request in stand_in.asked("/generate")[before:]]
    lengths = {body["sampling_params"]["max_new_tokens"] for body in bodies if not body.get("return_logprob")}
    assert {64, 63, 62, 61} <= lengths


def test_the_plan_says_that_golden_needs_a_baseline(golden_profile: dict[str, Any]) -> None:
    lines = plan_lines(make_settings(url="http://x", model_profile=golden_profile, profile="full"))
    assert any("if there is a baseline: 10 x logprobs of its tokens" in line for line in lines)


# The command line.


def test_passes_are_recorded_merged_and_used(
    stand_in: StandIn, golden_profile: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.json").write_text(json.dumps(golden_profile))
    common = ["--url", stand_in.url, "--model-profile", str(tmp_path / "model.json"), "--out", str(tmp_path)]
    for name in ("1", "2"):
        assert (
            cli.main([*common, "--record", str(tmp_path / name), "--hardware", '{"gpu": "x", "count": 1}'])
            == 0
        )
    merged = [str(tmp_path / name) for name in ("1", "2")]
    assert merge.main(["--out", str(tmp_path / "base.json"), *merged]) == 0
    assert merge.main(["--out", str(tmp_path / "base.json"), *merged]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("base.json beyond noise")
    used = [*common, "--profile", "full", "--baseline", str(tmp_path / "base.json")]
    assert cli.main(used) == 0
    assert cli.main([*used, "--revision", "z"]) == 0
    base = json.loads((tmp_path / "base.json").read_text())
    assert base["speeds"][0]["hardware"] == {"gpu": "x", "count": 1, "power_cap_w": None}
    base["key"]["quantization"] = "modelopt_fp4"
    page = {"version": "0.5.9", "quantization": None, "kv_cache_dtype": "auto", "speculative_algorithm": None}
    stand_in.pages["/server_info"] = json_reply(page)
    (tmp_path / "base.json").write_text(json.dumps(base))
    assert cli.main(used) == 2
    assert "quantization is none, the baseline's modelopt_fp4" in capsys.readouterr().out


def test_a_failed_run_records_nothing_and_says_so(
    stand_in: StandIn, golden_profile: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in.chat["answer"] = json_reply(completion("KO"))
    arguments = ["--url", stand_in.url, "--out", str(tmp_path), "--record", str(tmp_path / "pass.json")]
    assert cli.main(arguments) == 1
    assert "nothing recorded: only a run that passed is recorded" in capsys.readouterr().err
    assert not (tmp_path / "pass.json").exists()


def test_what_cannot_be_merged_is_64(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "1").write_text(to_text(a_pass(-1.0)))
    (tmp_path / "2").write_text(to_text(a_pass(-1.0))[:100])
    out = tmp_path / "base.json"
    assert merge.main(["--out", str(out), str(tmp_path / "1")]) == 64
    assert merge.main(["--out", str(out), str(tmp_path / "1"), str(tmp_path / "2")]) == 64
    assert merge.main(["--out", str(out), str(tmp_path / "1"), str(tmp_path / "none")]) == 64
    assert not out.exists()
    assert "is not whole JSON" in capsys.readouterr().err
