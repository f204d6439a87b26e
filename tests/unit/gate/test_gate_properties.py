"""Whatever a server sends and whatever a profile says, the gate ends in a verdict or in a named refusal.

The examples are the same in every run, so that a failure is no accident of the day.
"""

from __future__ import annotations

import json
import math
import random
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from llm_gate.baseline import read_baseline, read_pass, to_document
from llm_gate.chat import PATH as CHAT_PATH
from llm_gate.chat import Chat, Tokens, read_answer, read_stream
from llm_gate.client import Client, Deadline, Event, Stream, read_events
from llm_gate.defaults import GATE
from llm_gate.errors import NanLogits, NotTested, RequestFailed, UsageError
from llm_gate.gate import make_settings, plan_lines, run_gate
from llm_gate.model_profile import LongAnswer, read_model_profile
from llm_gate.nan import judge_logprobs
from llm_gate.probe_data import Question
from llm_gate.probes.smoke import judge_answer, judge_model, judge_thinking, judge_throughput
from llm_gate.profiles import PROFILES
from llm_gate.render import render_reports, table_lines
from llm_gate.scoring import SglangScorer, VllmScorer
from llm_gate.server import Server, identify
from llm_gate.text import excerpt, find_garbage
from llm_stand_in import Request, StandIn, completion, json_reply, raw_reply, story_events
from malformed import ODD_VALUES, dumped, event_stream, every_single_damage, garbled, mutated, odd_value
from test_gate_baseline import a_baseline, a_pass
from toy_model import ToyModel

ROOT = Path(__file__).parents[3]
VALIDATOR = Draft202012Validator(
    json.loads((ROOT / "module_utils" / "llm_gate" / "report.schema.json").read_text(encoding="utf-8"))
)
STORY = LongAnswer("Write a story.", 512, 256, 1.0)
QUESTION = Question("What is 17*19?", "323", 64)
SOURCES = st.randoms(use_true_random=False)


def cases(count: int) -> settings:
    """So many examples, the same each time."""
    return settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


def damaged(source: random.Random, document: Any) -> Any:
    """A reply broken in one to three places, as a client reads it from the wire."""
    for _ in range(source.randrange(1, 4)):
        document = mutated(source, document)
    return json.loads(dumped(document))


class Pages(Client):
    """A client that is answered with given replies, by path; exceptions are raised."""

    def __init__(self, replies: Mapping[str, Any]) -> None:
        super().__init__("http://127.0.0.1:1", Deadline(60), 1)
        self.replies = replies

    def get(self, path: str) -> object:
        return self.post(path, {})

    def post(self, path: str, body: Mapping[str, object]) -> object:
        return self.replies[path]


# --- what reads replies ---------------------------------------------------------------------------


@cases(200)
@given(st.lists(st.binary(max_size=200), max_size=8), st.floats(0, 1))
@example([b"data: {}"], 0.0)
@example([b"data: " + b"[" * 100_000], 0.0)
@example([b'data: {"a": ' + b"9" * 5000 + b"}\n"], 0.0)
@example([b"data: \xff\n\ndata: [DONE]"], 0.0)
@example([], 0.0)
def test_any_bytes_are_events_or_refused(pieces: list[bytes], sent: float) -> None:
    try:
        stream = read_events(sent, [(sent + number, piece) for number, piece in enumerate(pieces)], "shown")
    except RequestFailed:
        return
    assert stream.events or stream.done


@cases(200)
@given(SOURCES)
def test_any_event_stream_is_an_answer_or_refused(source: random.Random) -> None:
    events = damaged(source, story_events())
    body = event_stream(events if isinstance(events, list) else [events], source.random() < 0.5)
    if source.random() < 0.5:
        body = garbled(source, body)
    cuts = sorted(source.randrange(len(body) + 1) for _ in range(3))
    pieces = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    try:
        stream = read_events(0.0, [(float(number), piece) for number, piece in enumerate(pieces)], "shown")
        answer, timing = read_stream(stream)
    except RequestFailed:
        return
    assert judge_throughput(STORY, answer, timing, stream.done)


def test_every_damage_of_an_event_is_an_answer_or_refused() -> None:
    sound = story_events(text="Once upon a time", pieces=2)
    sound[1]["usage"] = {"prompt_tokens": 12, "completion_tokens": 4}  # type: ignore[index]
    for events in every_single_damage(sound):
        if not isinstance(events, list):
            continue
        stream = Stream(
            0.0, [Event(n + 0.5, event) for n, event in enumerate(events) if isinstance(event, dict)], True
        )
        try:
            answer, timing = read_stream(stream)
        except RequestFailed:
            continue
        assert judge_throughput(STORY, answer, timing, True)


ENTRY = {"token": "a", "logprob": -0.1, "top_logprobs": [{"token": "a", "logprob": -0.1}] * 2}
CHAT = completion("323", reasoning="17*20 is 340", logprobs={"content": [ENTRY] * 2})


def check_chat(reply: object) -> None:
    try:
        answer = read_answer(reply)
        entries = Chat(Pages({CHAT_PATH: reply}), "m", Tokens()).logprobs("prompt", 8, {})
    except RequestFailed:
        return
    assert judge_answer("answer", QUESTION, answer)
    assert judge_answer("arithmetic", QUESTION, answer)
    assert judge_thinking(QUESTION, answer)
    assert judge_logprobs(entries) != ""


def test_every_damage_of_a_chat_reply_is_judged_or_refused() -> None:
    for reply in every_single_damage(CHAT):
        check_chat(reply)


@cases(200)
@given(SOURCES)
def test_any_chat_reply_is_judged_or_refused(source: random.Random) -> None:
    check_chat(damaged(source, CHAT))


def scoring(engine: str) -> tuple[str, list[int], object, object]:
    """Where an engine scores, some ids, and its sound replies to scoring and to generating."""
    toy = ToyModel()
    ids = toy.tokenize("1, 2, 3, 4")
    asked = {"input_ids": ids, "prompt": ids, "max_tokens": 1, "sampling_params": {"max_new_tokens": 1}}
    if engine == "vllm":
        scored = toy.answer_completion(asked | {"prompt_logprobs": 5})
        return "/v1/completions", ids, scored[1], toy.answer_completion(asked)[1]
    toy.accept_length = lambda _concurrency: 2.5
    scored = toy.answer_generate(asked | {"return_logprob": True, "logprob_start_len": 3})
    made = toy.answer_generate(asked)[1]
    made["meta_info"]["spec_accept_histogram"] = [1, 9]  # type: ignore[index]
    return "/generate", ids, scored[1], made


def check_scoring(engine: str, ids: list[int], replies: Mapping[str, object]) -> None:
    scorer = (VllmScorer if engine == "vllm" else SglangScorer)(
        Pages(replies), server(engine), Tokens(), None
    )
    try:
        found = scorer.score(ids, 4)
        assert all(-1e308 < value <= 1e-3 for value in found.logprobs)
        assert len(found.best) == len(found.logprobs) == len(ids) - 4
        assert all(map(math.isfinite, found.regrets))
    except (RequestFailed, NanLogits, NotTested):
        pass
    try:
        generated = scorer.generate(ids, 1)
        assert generated.accept_length is None or math.isfinite(generated.accept_length)
        assert generated.first_acceptance is None or 0 <= generated.first_acceptance <= 1
    except (RequestFailed, NanLogits, NotTested):
        pass


def server(engine: str) -> Server:
    return Server("m", ("m",), None, engine, "0.5.9", {}, None, True, "")


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_every_damage_of_a_scoring_reply_is_read_or_refused(engine: str) -> None:
    path, ids, scored, made = scoring(engine)
    for sound in (scored, made):
        for reply in every_single_damage(sound):
            check_scoring(engine, ids, {path: reply})


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@cases(100)
@given(SOURCES)
def test_any_scoring_reply_is_read_or_refused(engine: str, source: random.Random) -> None:
    path, ids, scored, made = scoring(engine)
    for sound in (scored, made):
        check_scoring(engine, ids, {path: damaged(source, sound)})


def test_every_damage_of_token_ids_is_read_or_refused() -> None:
    for reply in every_single_damage({"tokens": [1, 2], "count": 2}):
        scorer = SglangScorer(Pages({"/tokenize": reply}), server("sglang"), Tokens(), None)
        with suppress(RequestFailed):
            assert scorer.tokenize("text")


PAGES: dict[str, Any] = {
    "/model_info": {"model_path": "/models/tiny"},
    "/v1/models": {
        "object": "list",
        "data": [{"id": "tiny", "root": "/m", "max_model_len": 9, "owned_by": "x"}],
    },
    "/server_info": {
        "version": "0.5.9",
        "speculative_algorithm": "EAGLE3",
        "context_length": 4096,
        "tp_size": 1,
    },
}


def check_pages(pages: Mapping[str, object]) -> None:
    for wanted in (None, "tiny"):
        try:
            found = identify(Pages(pages), wanted)
        except RequestFailed:
            continue
        assert judge_model(found, "tiny").verdict in ("pass", "fail")
        json.dumps(dict(found.settings), allow_nan=False)
        assert found.context_length is None or found.context_length > 0


@pytest.mark.parametrize("path", PAGES)
def test_every_damage_of_a_page_identifies_a_server_or_is_refused(path: str) -> None:
    for reply in every_single_damage(PAGES[path]):
        check_pages({**PAGES, path: reply})


@cases(300)
@given(st.text(st.characters(exclude_categories=())), st.integers(1, 400), st.booleans())
@example("\ud800" * 30, 1, True)
@example("\x00", 400, False)
def test_any_text_is_judged(text: str, times: int, prose: bool) -> None:
    for finding in find_garbage(text * times, completion_tokens=times, prose=prose):
        assert finding.rule
        assert finding.evidence.isprintable()
    assert excerpt(text).isprintable()


# --- what reads profiles --------------------------------------------------------------------------


FULL_PROFILE = yaml.safe_load((ROOT / "catalog" / "models" / "tiny-qwen3.yml").read_text(encoding="utf-8"))
FULL_PROFILE["gate"] |= deepcopy(GATE) | {
    "context_length": 4096,
    "expect": {"version": "0.5.9", "tp_size": 8},
    "kv_scales": {"shipped": False, "otherwise": "warn"},
    "anchors": [{"name": "a", "prefix": "", "text": "Four score and seven years", "max_nll": 0.5}],
    "copy": {"count": 4, "lengths": [400, 900], "max_nll": 0.2, "fail_nll": 1.0},
    "lengths": [1, 8, 64],
    "concurrency": [1, 2],
    "bars": {"regret_large_share": 0.02},
    "speed": {"prefill": 2500, "decode": 60},
}


def reads_or_refuses(document: object) -> None:
    """A profile that reads can also be planned."""
    try:
        read_model_profile(document)
    except UsageError as error:
        assert str(error).startswith("model profile: ")
        return
    for profile in PROFILES:
        lines = plan_lines(make_settings(url="http://h", model_profile=document, profile=profile))
        assert lines[-1].startswith("at most ")


@cases(300)
@given(SOURCES)
def test_a_damaged_profile_is_read_or_refused_by_name(source: random.Random) -> None:
    document = deepcopy(FULL_PROFILE)
    for _ in range(source.randrange(1, 3)):
        document["gate"] = mutated(source, document["gate"])
    reads_or_refuses(document)


@pytest.mark.parametrize("key", sorted(FULL_PROFILE["gate"]))
def test_every_odd_value_of_a_key_is_read_or_refused_by_name(key: str) -> None:
    for value in (*ODD_VALUES, 7, 10**9, 1e-9, [1, 2, 10**9], "text", {1: 2}, {"on": 1}):
        document = deepcopy(FULL_PROFILE)
        document["gate"][key] = value
        reads_or_refuses(document)


@cases(100)
@given(SOURCES)
def test_any_document_is_a_profile_or_refused_by_name(source: random.Random) -> None:
    reads_or_refuses(odd_value(source, 4))


# --- what reads baselines -------------------------------------------------------------------------


BASELINE = to_document(a_baseline())
PASS = to_document(a_pass(-1.0, -2.0, -3.0))


def test_every_damage_of_a_baseline_is_read_or_refused_by_its_file() -> None:
    for read, sound in ((read_baseline, BASELINE), (read_pass, PASS)):
        for document in every_single_damage(sound):
            try:
                read(document, "b.json")
            except UsageError as error:
                assert str(error).startswith("baseline b.json: ")


# --- whole runs -----------------------------------------------------------------------------------


def check_run(url: str, profile: dict[str, Any], run: str) -> dict[str, Any]:
    """Run the gate; it must end in a verdict, with a document and reports that their readers can read."""
    document = run_gate(make_settings(url=url, model_profile=profile, profile=run))
    VALIDATOR.validate(json.loads(json.dumps(document, allow_nan=False)))
    said = [entry for probe in document["probes"] for entry in probe["evidence"]]  # type: ignore[attr-defined]
    assert [entry for entry in said if entry["rule"] == "internal"] == []
    reports = render_reports(document)
    ET.fromstring(reports["junit.xml"])
    for text in [*reports.values(), *table_lines(document)]:
        text.encode("utf-8")
    return document


def break_replies(stand_in: StandIn, source: random.Random) -> None:
    """Every reply of some paths, or a single one, is damaged from now on; or its status is another."""
    paths = source.sample(
        [
            "/v1/chat/completions",
            "/v1/completions",
            "/generate",
            "/tokenize",
            "/v1/models",
            "/server_info",
            "/model_info",
        ],
        source.randrange(1, 3),
    )
    only = source.choice((None, None, 1, 2, 5))
    seed = source.random()
    sound = stand_in.answer

    def answer(request: Request) -> Any:
        place = len(stand_in.asked(request.path))
        if request.path not in paths or only not in (None, place):
            return sound(request)
        own = random.Random(f"{seed} {request.path} {place}")
        body = _body_of(sound(request), own)
        status = own.choice((200, 200, 200, 200, 204, 302, 400, 401, 404, 429, 500, 503, 599, 799))
        return raw_reply(body, status, own.choice(("application/json", "text/event-stream", "x")))

    stand_in.answer = answer  # type: ignore[method-assign]


class _Recorder:
    """Takes down the body that a reply writes."""

    def __init__(self) -> None:
        self.wfile = self
        self.body = b""

    def write(self, data: bytes) -> None:
        self.body += data

    def __getattr__(self, _name: str) -> Any:
        return lambda *_arguments: None


def _body_of(reply: Any, source: random.Random) -> bytes:
    recorder = _Recorder()
    reply(recorder)
    if source.random() < 0.4:
        return garbled(source, recorder.body)
    try:
        document = json.loads(recorder.body)
    except ValueError:
        return event_stream([mutated(source, event) for event in story_events()], source.random() < 0.8)
    for _ in range(source.randrange(1, 3)):
        document = mutated(source, document)
    return dumped(document)


SMALL = {
    "deadline_s": 3,
    "request_timeout_s": 0.5,
    "continuation_tokens": 16,
    "lengths": [8, 64],
    "concurrency": [1, 2],
}


@pytest.mark.parametrize(("run", "engine"), [("quick", "sglang"), ("full", "sglang"), ("full", "vllm")])
@cases(12)
@given(source=SOURCES)
def test_a_run_against_damaged_replies_ends_in_a_verdict(
    run: str, engine: str, source: random.Random, stand_in: StandIn, profile: dict[str, Any]
) -> None:
    stand_in.__dict__.pop("answer", None)
    stand_in.reset()
    if engine == "vllm":
        stand_in.becomes_vllm()
    break_replies(stand_in, source)
    own = deepcopy(profile)
    own["gate"] |= SMALL | {"copy": {"count": 4, "lengths": [200]}}
    check_run(stand_in.url, own, run)


def _toy_but(**changed: object) -> Callable[[StandIn], None]:
    """The toy model's replies to /generate with some fields as given."""

    def apply(stand_in: StandIn) -> None:
        generate = stand_in.toy.answer_generate

        def other_generate(body: dict[str, Any]) -> tuple[int, object]:
            status, reply = generate(body)
            assert isinstance(reply, dict)
            info = {**reply["meta_info"], **{name: value for name, value in changed.items() if name in META}}
            own = {name: value for name, value in changed.items() if name not in META}
            return status, {**reply, **own, "meta_info": info}

        stand_in.toy.answer_generate = other_generate  # type: ignore[method-assign]

    return apply


META = (
    "cached_tokens",
    "spec_accept_length",
    "spec_accept_histogram",
    "completion_tokens",
    "output_token_logprobs",
)


def _tokens(ids: list[int]) -> Callable[[StandIn], None]:
    def apply(stand_in: StandIn) -> None:
        stand_in.pages["/tokenize"] = json_reply({"tokens": ids, "count": len(ids)})

    return apply


def _context(length: int) -> Callable[[StandIn], None]:
    def apply(stand_in: StandIn) -> None:
        entry = {"id": "tiny-qwen3", "root": "/models/tiny", "max_model_len": length}
        stand_in.pages["/v1/models"] = json_reply({"object": "list", "data": [entry]})

    return apply


def _setting(**changed: object) -> Callable[[StandIn], None]:
    def apply(stand_in: StandIn) -> None:
        stand_in.pages["/server_info"] = json_reply({"version": "0.5.9", **changed})

    return apply


# Well-formed replies that no sound server gives.
STRANGE: dict[str, Callable[[StandIn], None]] = {
    **{f"context of {length}": _context(length) for length in (1, 8, 9, 10, 11, 40, 73, 10**9)},
    **{f"prefill chunk of {size}": _setting(chunked_prefill_size=size) for size in (-1, 1, 2, 10**9)},
    "many speculative steps": _setting(speculative_algorithm="EAGLE", speculative_num_steps=10**9),
    "every text is one token": _tokens([0]),
    "every text is the same tokens": _tokens([1, 2, 3] * 1000),
    "huge token ids": _tokens([10**9]),
    "nothing generated": _toy_but(output_ids=[], text=""),
    "too much generated": _toy_but(output_ids=[3] * 5000, text="no " * 5000),
    "generated text of nothing": _toy_but(text=None),
    "all from the cache": _toy_but(cached_tokens=10**9),
    "nothing said of the cache": _toy_but(cached_tokens=None),
    "no acceptance": _toy_but(spec_accept_length=0, spec_accept_histogram=[0, 0]),
    "negative acceptance": _toy_but(spec_accept_length=-1.0, spec_accept_histogram=[5]),
    "tokens made without logprobs": _toy_but(output_token_logprobs=[]),
}


@pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE)
def test_a_run_against_a_strange_server_ends_in_a_verdict(
    strange: Callable[[StandIn], None], stand_in: StandIn, profile: dict[str, Any]
) -> None:
    strange(stand_in)
    profile["gate"] |= SMALL | {"copy": {"count": 4, "lengths": [200]}, "facts": []}
    check_run(stand_in.url, profile, "full")
