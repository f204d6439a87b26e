"""The plan of a big model: what is sent, how long it takes, and that a run keeps to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from llm_gate.gate import Cost, cost_of, make_settings, plan, plan_lines, run_gate
from llm_gate.probe import Step
from llm_gate.probe_data import MOST_SCORED
from llm_gate.profiles import PROFILES
from llm_gate.render import table_lines
from llm_stand_in import StandIn, json_reply

FILE = Path(__file__).parents[3] / "catalog" / "models" / "qwen3.5-397b-a17b-nvfp4-8x.yml"
PROFILE: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
# The template and the question of a chat, which the plan does not reckon; and the sign of life after a probe.
CHAT_TOKENS, SIGN_OF_LIFE = 32, 1


def planned(run: str) -> dict[str, list[Step]]:
    """The steps of each probe."""
    settings = make_settings(url="http://h", model_profile=PROFILE, profile=run)
    return {probe.id: steps for probe, steps in plan(settings)}


def cost(steps: list[Step]) -> Cost:
    """What steps cost together at most."""
    return cost_of(steps, make_settings(url="http://h", model_profile=PROFILE))


def test_the_plan_reckons_with_the_speeds_of_the_profile() -> None:
    assert cost([Step("x", "", 3, 120, prompt_tokens=5000)]) == Cost(3, 5000, 120, 4.0)
    assert cost([Step("x", "", 3, 120, concurrency=4)]).seconds == 0.5


def test_copying_goes_up_to_32k() -> None:
    steps = planned("full")["long_copy"]
    assert [(step.check, step.prompt_tokens) for step in steps] == [
        ("2048", 2048),
        ("8192", 8192),
        ("16384", 16384),
        ("32000", 32000),
    ]
    assert all("the last 128 of" in step.requests for step in steps)


def test_the_numeric_probes_send_what_they_should() -> None:
    full = planned("full")
    absolute = full["lengths"][0]
    settings = make_settings(url="http://h", model_profile=PROFILE, profile="full")
    lengths = settings.model_profile.probes.lengths
    assert lengths[-1] == 4096
    assert 3 * sum((*lengths, 8193)) <= absolute.prompt_tokens < 3 * sum((*lengths, 8193)) + 512
    scan, anchors, counting = full["nan_scan"]
    assert (scan.prompt_tokens, anchors.prompt_tokens, counting.prompt_tokens) == (2048, 1024, 512)
    assert [step.concurrency for step in full["concurrency"]] == [1, 2, 3, 5, 9, 17, 1]
    regret = full["rescore"][0]
    assert 2 * 512 <= regret.max_tokens < 2 * 512 + 16


def test_quick_takes_two_minutes_and_hardly_more_if_every_answer_is_as_long_as_it_may_be() -> None:
    steps = [step for steps in planned("quick").values() for step in steps]
    assert cost(steps).seconds <= 200
    # Most of the tokens of protocol and concurrency are the room of answers that end by themselves.
    roomy = [step for name in ("protocol", "concurrency") for step in planned("quick")[name]]
    assert cost(steps).seconds - cost(roomy).seconds / 2 <= 155


def test_full_ends_well_before_its_deadline() -> None:
    assert (
        cost([step for steps in planned("full").values() for step in steps]).seconds
        <= PROFILE["gate"]["deadline_s"] / 2
    )


def test_the_plan_is_printed_with_its_budget() -> None:
    settings = make_settings(url="http://h:1", model_profile=PROFILE, profile="full")
    lines = plan_lines(settings)
    assert lines[0] == "plan of profile full for http://h:1, deadline 600 s"
    total = cost([step for steps in planned("full").values() for step in steps])
    assert lines[-1] == (
        f"at most {total.requests} requests, {total.prompt_tokens} prompt tokens and "
        f"{total.completion_tokens} completion tokens, about {total.seconds:.0f} s"
    )
    for name, steps in planned("full").items():
        assert sum(line.startswith(f"  {name} ") for line in lines) == len(steps)
        assert sum(line.startswith(f"  {name}: at most ") for line in lines) == 1


def verdicts_of(document: dict[str, Any]) -> dict[str, str]:
    return {probe["id"]: probe["verdict"] for probe in document["probes"]}


@pytest.fixture
def big_model(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """The stand-in under the big model's name, with its context, prefill chunk and memory of texts."""
    entry = {"id": PROFILE["served_name"], "max_model_len": 262_144}
    stand_in.pages["/v1/models"] = json_reply({"object": "list", "data": [entry]})
    stand_in.pages["/server_info"] = json_reply(
        {"version": "0.5.9", "tp_size": 8, "chunked_prefill_size": 8192, "speculative_algorithm": None}
    )
    # The stand-in says that any streamed answer has 300 tokens, and has no speed to speak of.
    monkeypatch.setitem(PROFILES, "full", tuple(name for name in PROFILES["full"] if name != "throughput"))
    for anchor in PROFILE["gate"]["anchors"]:
        stand_in.toy.learn(anchor["text"])
    return stand_in


def test_a_run_keeps_to_its_plan_and_to_the_servers_memory(big_model: StandIn) -> None:
    document: dict[str, Any] = run_gate(
        make_settings(url=big_model.url, model_profile=PROFILE, profile="full")
    )
    assert document["verdict"] == "pass", table_lines(document)
    steps = planned("full")
    assert {"nan_scan", "lengths", "rescore", "concurrency", "long_copy"} <= verdicts_of(document).keys()
    for probe in document["probes"]:
        most = cost(steps[probe["id"]])
        assert probe["requests"] <= most.requests + SIGN_OF_LIFE, probe["id"]
        # The stand-in tells its whole story whatever max_tokens says.
        if probe["id"] != "throughput":
            assert probe["tokens"]["completion"] <= most.completion_tokens, probe["id"]
        assert probe["tokens"]["prompt"] <= most.prompt_tokens + CHAT_TOKENS * probe["requests"], probe["id"]
    # SGLang 0.5.9 holds positions x vocabulary floats twice: https://github.com/sgl-project/sglang/issues/2607
    scored = [request.body for request in big_model.asked("/generate") if request.body.get("return_logprob")]
    positions = [len(body["input_ids"]) - body["logprob_start_len"] - 1 for body in scored]
    assert max(positions) <= MOST_SCORED
    assert max(len(body["input_ids"]) for body in scored) == 32_000
