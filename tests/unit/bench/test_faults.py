"""Each fault changes what it says that it changes, and nothing else."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import requests
from fault_proxy import CHAT, GENERATE, NO_FAULT, Answer, Asked, Fault, FaultProxy, Wire
from faults import FAR_ANSWER, FAR_PROMPT, FAULTS, MANY, by_name
from upstream import CALL, REASONING, TEXT, Asker, completion, generated, usage

TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
OFF = {"chat_template_kwargs": {"enable_thinking": False}}
SHORT = list(range(100, 140))
LONG_CHAT = [{"role": "user", "content": str(number)} for number in range(3)]


def chat(prompt: str = "Hello", max_tokens: int = 8, **fields: Any) -> dict[str, Any]:
    return {
        "model": "tiny",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        **fields,
    }


def native(ids: list[int], max_tokens: int = 8, **fields: Any) -> dict[str, Any]:
    parameters = {"temperature": 0, "max_new_tokens": max_tokens}
    return {"input_ids": ids, "sampling_params": parameters, **fields}


def scoring(ids: list[int], **fields: Any) -> dict[str, Any]:
    return native(ids, 1, return_logprob=True, logprob_start_len=0, top_logprobs_num=2, **fields)


def message(reply: requests.Response) -> dict[str, Any]:
    told: dict[str, Any] = reply.json()["choices"][0]["message"]
    return told


def stream_of(reply: requests.Response) -> tuple[str, str, list[Any], list[str], list[dict[str, Any]], bool]:
    """Content, reasoning, tool calls, finish reasons, usages and whether [DONE] came."""
    content, reasoning, calls, finishes, usages, done = "", "", [], [], [], False
    for line in reply.text.splitlines():
        if not line.startswith("data: "):
            continue
        if line == "data: [DONE]":
            done = True
            continue
        event = json.loads(line[6:])
        if event.get("usage"):
            usages.append(event["usage"])
        for choice in event["choices"]:
            content += choice["delta"].get("content") or ""
            reasoning += choice["delta"].get("reasoning_content") or ""
            calls += choice["delta"].get("tool_calls") or []
            finishes += [choice["finish_reason"]] if choice["finish_reason"] else []
    return content, reasoning, calls, finishes, usages, done


STREAMED = {"stream": True, "stream_options": {"include_usage": True}}


def test_names_are_unique_and_every_fault_has_a_source() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 28
    assert all(fault.source.startswith("https://") and fault.summary for fault in FAULTS)


def test_without_a_fault_every_byte_is_the_servers(asker: Asker) -> None:
    proxy = asker.proxy(NO_FAULT)
    for path, body in (
        (CHAT, chat()),
        (CHAT, chat(**STREAMED)),
        (GENERATE, native(SHORT)),
        (GENERATE, scoring(SHORT)),
    ):
        direct, through = asker.post(asker.upstream.url, path, body), asker.post(proxy.url, path, body)
        assert through.content == direct.content
        assert through.headers["Content-Type"].startswith(direct.headers["Content-Type"])
    assert asker.upstream.bodies[0] == asker.upstream.bodies[1]
    assert requests.get(f"{proxy.url}/v1/models", timeout=5).json()["data"][0]["id"] == "tiny"


def test_an_answer_that_is_looked_at_and_left_alone_comes_as_it_was(asker: Asker) -> None:
    proxy = asker.proxy(Fault("looks", "", "", answer=lambda answer, asked: answer))
    for body in (chat(), chat(**STREAMED), chat(tools=TOOLS, **STREAMED)):
        direct, through = (asker.post(url, CHAT, body) for url in (asker.upstream.url, proxy.url))
        assert through.text == direct.text


def test_a_stream_comes_piece_by_piece(asker: Asker) -> None:
    proxy = asker.proxy(NO_FAULT)
    reply = requests.post(proxy.url + CHAT, json=chat(**STREAMED), stream=True, timeout=5)
    assert len(list(reply.iter_lines())) > 30


@pytest.mark.parametrize(
    ("fault", "unit"),
    [("all_exclamation", "!"), ("all_plus", "+"), ("a_a_a", "a "), ("all_newlines", "\n")],
)
def test_a_loop_goes_on_to_the_limit(asker: Asker, fault: str, unit: str) -> None:
    proxy = asker.proxy(fault)
    reply = asker.post(proxy.url, CHAT, chat(max_tokens=30)).json()
    assert reply["choices"][0]["message"]["content"] == unit * 30
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"]["completion_tokens"] == 30
    content, reasoning, _calls, finishes, usages, done = stream_of(
        asker.post(proxy.url, CHAT, chat(max_tokens=30, **STREAMED))
    )
    assert (content, reasoning, finishes, done) == (unit * 30, "", ["length"], True)
    assert usages[-1]["completion_tokens"] == 30
    made = asker.post(proxy.url, GENERATE, native(SHORT, 30)).json()
    assert made["text"].startswith(unit * 10)
    assert made["output_ids"] == [ord(letter) for letter in made["text"]][:30]
    assert made["meta_info"]["finish_reason"]["type"] == "length"
    # What is only scored stays sound.
    assert asker.post(proxy.url, GENERATE, scoring(SHORT)).json() == generated(scoring(SHORT))


@pytest.mark.parametrize("fault", ["soup", "fragments"])
def test_soup_is_new_each_time_and_replaces_the_text(asker: Asker, fault: str) -> None:
    proxy = asker.proxy(fault)
    one, other = (message(asker.post(proxy.url, CHAT, chat(max_tokens=40)))["content"] for _ in "12")
    assert one != other
    assert TEXT not in one and len(one) >= 40


def test_a_right_start_turns_into_junk(asker: Asker) -> None:
    content = message(asker.post(asker.proxy("right_then_soup").url, CHAT, chat()))["content"]
    assert content.startswith(TEXT[:20]) and TEXT[40:] not in content


def test_a_right_start_turns_into_a_loop(asker: Asker) -> None:
    reply = asker.post(asker.proxy("right_then_loop").url, CHAT, chat(max_tokens=50))
    content = message(reply)["content"]
    assert content.startswith(TEXT[:30]) and len(content) > 400
    assert reply.json()["choices"][0]["finish_reason"] == "length"


def test_words_are_swapped_one_for_one(asker: Asker) -> None:
    proxy = asker.proxy("word_swapped_5")
    before = TEXT.split()
    changed = 0
    for number in range(30):
        after = message(asker.post(proxy.url, CHAT, chat(str(number))))["content"].split()
        assert len(after) == len(before)
        changed += sum(one != other for one, other in zip(before, after, strict=True))
    assert 0 < changed < 0.2 * 30 * len(before)


def test_chinese_words_come_among_english_ones(asker: Asker) -> None:
    proxy = asker.proxy("chinese_drift")
    texts = [message(asker.post(proxy.url, CHAT, chat(str(number))))["content"] for number in range(9)]
    assert any("\u4e00" <= letter <= "\u9fff" for letter in "".join(texts))


def test_only_letters_outside_of_ascii_break(asker: Asker) -> None:
    proxy = asker.proxy("broken_characters")
    assert message(asker.post(proxy.url, CHAT, chat())) == message(
        asker.post(asker.upstream.url, CHAT, chat())
    )
    change = proxy.fault.answer
    assert change is not None
    changed = change(Answer("서울" * 50 + "abc"), Asked("POST", CHAT))
    assert changed.content is not None
    assert "\ufffd" in changed.content and changed.content.endswith("abc")


def test_an_empty_answer_looks_finished(asker: Asker) -> None:
    proxy = asker.proxy("empty_always")
    reply = asker.post(proxy.url, CHAT, chat()).json()
    assert reply["choices"][0]["message"]["content"] == ""
    assert reply["choices"][0]["finish_reason"] == "stop"
    made = asker.post(proxy.url, GENERATE, native(SHORT)).json()
    assert (made["text"], made["output_ids"]) == ("", [])


def test_a_silent_turn_keeps_its_reasoning_and_comes_by_chance() -> None:
    change = by_name()["empty_1_percent"].answer
    assert change is not None
    sound = Answer(TEXT, REASONING, finish_reason="stop")
    told = [change(sound, Asked("POST", CHAT, number=number)) for number in range(1000)]
    silent = [answer for answer in told if answer != sound]
    assert 3 <= len(silent) <= 20
    assert all(answer == Answer("", REASONING, finish_reason="stop") for answer in silent)


def test_thinking_alone_is_wrong(asker: Asker) -> None:
    proxy = asker.proxy("wrong_when_thinking")
    assert message(asker.post(proxy.url, CHAT, chat(**OFF)))["content"] == TEXT
    assert message(asker.post(proxy.url, CHAT, chat()))["content"] != TEXT


def at_once(asker: Asker, proxy: FaultProxy, count: int) -> list[dict[str, Any]]:
    """So many chats that all run at the same time."""
    asker.upstream.waiting.clear()
    with ThreadPoolExecutor(count) as pool:
        jobs = [pool.submit(asker.post, proxy.url, CHAT, chat(str(number))) for number in range(count)]
        end = time.monotonic() + 4
        while len(asker.upstream.bodies) < count and time.monotonic() < end:
            time.sleep(0.005)
        asker.upstream.waiting.set()
        return [message(job.result()) for job in jobs]


@pytest.mark.parametrize(
    ("fault", "sign"),
    [("exclamation_under_load", "!!!!"), ("leak_under_load", "<|im_end|>"), ("null_under_load", "!!!!")],
)
def test_under_load_only(asker: Asker, fault: str, sign: str) -> None:
    proxy = asker.proxy(fault)
    assert all(one["content"] == TEXT for one in at_once(asker, proxy, MANY))
    asker.upstream.bodies.clear()
    assert all(sign in one["content"] for one in at_once(asker, proxy, MANY + 1))
    assert message(asker.post(proxy.url, CHAT, chat()))["content"] == TEXT


def test_empty_under_load_only(asker: Asker) -> None:
    proxy = asker.proxy("empty_under_load")
    assert all(one["content"] == "" for one in at_once(asker, proxy, MANY + 1))
    assert message(asker.post(proxy.url, CHAT, chat()))["content"] == TEXT


def test_the_second_time_is_wrong(asker: Asker) -> None:
    proxy = asker.proxy("second_time_wrong")
    texts = [message(asker.post(proxy.url, CHAT, chat(prompt)))["content"] for prompt in "ababc"]
    assert [text == TEXT for text in texts] == [True, True, False, False, True]


def test_a_cache_hit_that_leaves_one_token_spoils_the_first(asker: Asker) -> None:
    proxy = asker.proxy("second_time_first_token")
    for length, right in ((64, [True, True]), (65, [True, False])):
        body = native(list(range(1000, 1000 + length)))
        texts = [asker.post(proxy.url, GENERATE, body).json()["text"] for _ in "12"]
        assert [text == TEXT for text in texts] == right
    assert texts[1][1:] == TEXT[1:]


def logprobs(reply: requests.Response, which: str = "input") -> list[float | None]:
    return [entry[0] for entry in reply.json()["meta_info"][f"{which}_token_logprobs"]]


def test_logprobs_of_a_cached_prompt_are_off(asker: Asker) -> None:
    proxy = asker.proxy("cache_logprobs")
    assert logprobs(asker.post(proxy.url, GENERATE, scoring(SHORT))) == [None] + [-0.1] * 39
    off = logprobs(asker.post(proxy.url, GENERATE, scoring(SHORT, cached=32)))
    assert len(set(off[1:])) > 10
    assert off == logprobs(asker.post(proxy.url, GENERATE, scoring(SHORT, cached=32)))


def test_one_length_is_wrong(asker: Asker) -> None:
    proxy = asker.proxy("one_length")
    ids = list(range(1536))
    assert set(logprobs(asker.post(proxy.url, GENERATE, scoring(ids[:-1])))) == {None, -0.1}
    assert set(logprobs(asker.post(proxy.url, GENERATE, scoring(ids, cached=2)))) == {None, -0.1}
    lost = logprobs(asker.post(proxy.url, GENERATE, scoring(ids)))[1:]
    assert all(value is not None and value <= -3 for value in lost)
    assert asker.post(proxy.url, GENERATE, native(ids)).json()["text"] != TEXT
    assert asker.post(proxy.url, GENERATE, native(ids[:-1])).json()["text"] == TEXT


def test_far_positions_are_lost(asker: Asker) -> None:
    proxy = asker.proxy("past_prompt_length")
    scored = logprobs(asker.post(proxy.url, GENERATE, scoring(list(range(FAR_PROMPT + 10)))))
    assert set(scored[1 : FAR_PROMPT + 1]) == {-0.1}
    assert all(value is not None and value <= -3 for value in scored[FAR_PROMPT + 1 :])
    assert asker.post(proxy.url, GENERATE, native(SHORT)).json()["text"] == TEXT


def test_a_long_answer_turns_into_junk(asker: Asker) -> None:
    change = asker.proxy("past_answer_length").fault.answer
    assert change is not None
    short = Answer("word " * FAR_ANSWER, completion_tokens=FAR_ANSWER)
    assert change(short, Asked("POST", CHAT)) == short
    long = Answer("word " * 2 * FAR_ANSWER, completion_tokens=2 * FAR_ANSWER)
    changed = change(long, Asked("POST", CHAT)).content
    assert changed is not None
    assert changed.startswith("word " * (FAR_ANSWER - 1)) and changed != long.content


def test_the_third_round_is_wrong(asker: Asker) -> None:
    proxy = asker.proxy("late_round")
    assert message(asker.post(proxy.url, CHAT, chat(messages=LONG_CHAT[:2])))["content"] == TEXT
    assert message(asker.post(proxy.url, CHAT, chat(messages=LONG_CHAT)))["content"] == "!" * 8


def test_decoding_takes_other_tokens(asker: Asker) -> None:
    made = asker.post(asker.proxy("decode_only").url, GENERATE, native(SHORT)).json()
    assert made["text"] == "".join(map(chr, made["output_ids"]))
    wrong = [one != other for one, other in zip(made["text"], TEXT, strict=True)]
    assert 3 <= sum(wrong) <= len(TEXT) / 8 + 1


def test_acceptance_collapses_beside_others(asker: Asker) -> None:
    proxy = asker.proxy("acceptance_collapse")
    info = asker.post(proxy.url, GENERATE, native(SHORT)).json()["meta_info"]
    assert info["spec_accept_length"] == 3.2
    assert info | generated(native(SHORT))["meta_info"] == info
    assert "spec_accept_length" not in asker.post(proxy.url, GENERATE, scoring(SHORT)).json()["meta_info"]


@pytest.mark.parametrize(("fault", "value"), [("null_logprobs", None), ("flat_logprobs", -11.931)])
def test_every_logprob_is_lost(asker: Asker, fault: str, value: float | None) -> None:
    proxy = asker.proxy(fault)
    reply = asker.post(proxy.url, GENERATE, scoring(SHORT))
    assert logprobs(reply) == [None] + [value] * 39
    assert logprobs(reply, "output") == [value]
    assert [top[0][0] for top in reply.json()["meta_info"]["input_top_logprobs"][1:]] == [value] * 39
    entries = asker.post(proxy.url, CHAT, chat(logprobs=True)).json()["choices"][0]["logprobs"]["content"]
    assert {entry["logprob"] for entry in entries} == {value}
    assert asker.post(proxy.url, CHAT, chat()).json() == completion(chat())


def test_some_logprobs_are_null(asker: Asker) -> None:
    scored = logprobs(asker.post(asker.proxy("null_some").url, GENERATE, scoring(list(range(400)))))
    assert 10 <= scored[1:].count(None) <= 70


def test_noise_has_its_size_and_is_the_same_each_time(asker: Asker) -> None:
    proxy = asker.proxy("noise_0.3")
    body = scoring(list(range(500)))
    one, other = (logprobs(asker.post(proxy.url, GENERATE, body)) for _ in "12")
    assert one == other
    size = sum(abs(value + 0.1) for value in one[1:] if value is not None) / 499
    assert 0.1 < size < 0.3
    assert all(value is not None and value <= 0 for value in one[1:])


def test_logprobs_are_refused_and_nothing_else(asker: Asker) -> None:
    proxy = asker.proxy("logprobs_500")
    assert asker.post(proxy.url, GENERATE, scoring(SHORT)).status_code == 500
    assert asker.post(proxy.url, CHAT, chat(logprobs=True)).status_code == 500
    assert asker.post(proxy.url, GENERATE, native(SHORT)).json() == generated(native(SHORT))


def test_everything_is_reasoning(asker: Asker) -> None:
    proxy = asker.proxy("all_in_reasoning")
    told = message(asker.post(proxy.url, CHAT, chat()))
    assert (told["content"], told["reasoning_content"]) == (None, REASONING + TEXT)
    content, reasoning, *_rest = stream_of(asker.post(proxy.url, CHAT, chat(**STREAMED)))
    assert (content, reasoning) == ("", REASONING + TEXT)


@pytest.mark.parametrize("fault", ["think_tags", "untagged_reasoning"])
def test_reasoning_is_content(asker: Asker, fault: str) -> None:
    proxy = asker.proxy(fault)
    told = message(asker.post(proxy.url, CHAT, chat()))
    assert told["reasoning_content"] is None
    assert REASONING in told["content"] and told["content"].endswith(TEXT)
    assert ("<think>" in told["content"]) == (fault == "think_tags")
    assert message(asker.post(proxy.url, CHAT, chat(**OFF)))["content"] == TEXT


@pytest.mark.parametrize(
    ("fault", "field", "sign"),
    [("tool_in_reasoning", "reasoning_content", "<tool_call>"), ("tool_as_xml", "content", "<function=")],
)
def test_a_tool_call_is_text(asker: Asker, fault: str, field: str, sign: str) -> None:
    proxy = asker.proxy(fault)
    told = message(asker.post(proxy.url, CHAT, chat(tools=TOOLS)))
    assert told["tool_calls"] is None and sign in told[field]
    assert not stream_of(asker.post(proxy.url, CHAT, chat(tools=TOOLS, **STREAMED)))[2]
    assert asker.post(proxy.url, CHAT, chat()).json() == completion(chat())


def test_tool_calls_are_lost_in_streams_only(asker: Asker) -> None:
    proxy = asker.proxy("tool_lost_in_stream")
    assert message(asker.post(proxy.url, CHAT, chat(tools=TOOLS)))["tool_calls"] == [CALL]
    assert not stream_of(asker.post(proxy.url, CHAT, chat(tools=TOOLS, **STREAMED)))[2]


def test_some_streamed_tool_calls_are_lost(asker: Asker) -> None:
    proxy = asker.proxy("tool_dropped")
    kept = [bool(stream_of(asker.post(proxy.url, CHAT, chat(tools=TOOLS, **STREAMED)))[2]) for _ in range(20)]
    assert 8 <= sum(kept) < 20


@pytest.mark.parametrize(
    ("fault", "arguments"),
    [("tool_not_json", '{"city": "Paris"'), ("tool_wrong_schema", '{"argument": "value"}')],
)
def test_tool_arguments_are_wrong(asker: Asker, fault: str, arguments: str) -> None:
    proxy = asker.proxy(fault)
    (call,) = message(asker.post(proxy.url, CHAT, chat(tools=TOOLS)))["tool_calls"]
    assert call == CALL | {"function": {"name": "get_weather", "arguments": arguments}}
    (streamed,) = stream_of(asker.post(proxy.url, CHAT, chat(tools=TOOLS, **STREAMED)))[2]
    assert streamed["function"]["arguments"] == arguments


@pytest.mark.parametrize(
    ("fault", "fields"),
    [
        ("schema_ignored", {"response_format": {"type": "json_schema"}}),
        ("stop_ignored", {"stop": ["."]}),
        ("thinking_stuck_on", OFF),
    ],
)
def test_a_field_does_not_reach_the_server(asker: Asker, fault: str, fields: dict[str, Any]) -> None:
    asker.post(asker.proxy(fault).url, CHAT, chat(**fields))
    assert asker.upstream.bodies == [chat()]


def test_sampling_parameters_are_ignored_as_well(asker: Asker) -> None:
    body = native(SHORT)
    asker.post(
        asker.proxy("stop_ignored").url,
        GENERATE,
        body | {"sampling_params": {**body["sampling_params"], "stop": ["x"]}},
    )
    assert asker.upstream.bodies == [body]


def test_the_token_limit_is_ignored(asker: Asker) -> None:
    asker.post(asker.proxy("max_tokens_ignored").url, CHAT, chat())
    assert "max_tokens" not in asker.upstream.bodies[0]


def test_messages_are_dropped(asker: Asker) -> None:
    system = {"role": "system", "content": "Be kind."}
    asker.post(asker.proxy("system_dropped").url, CHAT, chat(messages=[system, *LONG_CHAT]))
    asker.post(asker.proxy("history_dropped").url, CHAT, chat(messages=[system, *LONG_CHAT]))
    assert [body["messages"] for body in asker.upstream.bodies] == [LONG_CHAT, LONG_CHAT[-1:]]


def test_the_developer_is_refused(asker: Asker) -> None:
    proxy = asker.proxy("developer_refused")
    developer = [{"role": "developer", "content": "Be kind."}, *LONG_CHAT]
    assert asker.post(proxy.url, CHAT, chat(messages=developer)).status_code == 400
    assert asker.post(proxy.url, CHAT, chat()).status_code == 200


def test_every_answer_is_cut_off(asker: Asker) -> None:
    proxy = asker.proxy("always_length")
    told = asker.post(proxy.url, CHAT, chat()).json()
    expected = completion(chat())
    expected["choices"][0]["finish_reason"] = "length"
    assert told == expected
    assert stream_of(asker.post(proxy.url, CHAT, chat(**STREAMED)))[3] == ["length"]


def test_done_is_missing(asker: Asker) -> None:
    content, _reasoning, _calls, finishes, usages, done = stream_of(
        asker.post(asker.proxy("no_done").url, CHAT, chat(**STREAMED))
    )
    assert (content, finishes, len(usages), done) == (TEXT, ["stop"], 1, False)


def test_usage_is_missing(asker: Asker) -> None:
    proxy = asker.proxy("no_usage")
    assert "usage" not in asker.post(proxy.url, CHAT, chat()).json()
    content, _reasoning, _calls, finishes, usages, done = stream_of(
        asker.post(proxy.url, CHAT, chat(**STREAMED))
    )
    assert (content, finishes, usages, done) == (TEXT, ["stop"], [], True)


def test_the_finish_reason_is_missing(asker: Asker) -> None:
    content, *_rest, finishes, usages, done = stream_of(
        asker.post(asker.proxy("no_finish_reason").url, CHAT, chat(**STREAMED))
    )
    assert (content, finishes, len(usages), done) == (TEXT, [], 1, True)


def test_a_stream_is_torn(asker: Asker) -> None:
    content, *_rest, done = stream_of(
        asker.post(asker.proxy("torn_stream").url, CHAT, chat(**OFF, **STREAMED))
    )
    assert content and TEXT.startswith(content) and content != TEXT and not done


def test_a_stream_comes_in_one_lump(asker: Asker) -> None:
    reply = asker.post(asker.proxy("one_lump").url, CHAT, chat(**STREAMED))
    assert reply.text == asker.post(asker.upstream.url, CHAT, chat(**STREAMED)).text


@pytest.mark.parametrize("fields", [{}, STREAMED])
@pytest.mark.parametrize(("fault", "least"), [("hang_headers", 0), ("hang_middle", 1)])
def test_a_reply_hangs(asker: Asker, fault: str, least: int, fields: dict[str, Any]) -> None:
    proxy = asker.proxy(fault)
    reply = requests.post(proxy.url + CHAT, json=chat(**fields), stream=True, timeout=0.2)
    assert reply.status_code == 200
    came = b""
    with pytest.raises(requests.ConnectionError):
        for piece in reply.iter_content(1):
            came += piece
    assert bool(came) == bool(least)
    assert requests.get(f"{proxy.url}/health", timeout=1).status_code == 200


def test_replies_hang_from_some_request_on(asker: Asker) -> None:
    proxy = asker.proxy(Fault("test", "", "", wire=Wire(hang="headers", hang_from=3)))
    for _ in "12":
        assert asker.post(proxy.url, CHAT, chat()).status_code == 200
    with pytest.raises(requests.ConnectionError):
        asker.post(proxy.url, CHAT, chat(), timeout=0.2)


def test_a_reply_drips(asker: Asker) -> None:
    proxy = asker.proxy("slow_drip")
    began = time.monotonic()
    reply = requests.post(proxy.url + CHAT, json=chat(), stream=True, timeout=5)
    assert next(reply.iter_content(4)) == json.dumps(completion(chat())).encode()[:4]
    assert time.monotonic() - began >= 0.6
    reply.close()


def test_the_server_dies_for_everyone(asker: Asker) -> None:
    proxy = asker.proxy("dies")
    for number in range(20):
        assert asker.post(proxy.url, CHAT, chat(str(number))).status_code == 200
    with pytest.raises(requests.ConnectionError):
        asker.post(proxy.url, CHAT, chat())
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{proxy.url}/health", timeout=1)


def test_one_request_in_ten_fails(asker: Asker) -> None:
    proxy = asker.proxy("fails_1_in_10")
    statuses = [asker.post(proxy.url, CHAT, chat()).status_code for _ in range(20)]
    assert statuses.count(500) == 2 and statuses[9] == 500


def test_another_name_is_served(asker: Asker) -> None:
    proxy = asker.proxy("wrong_name")
    assert requests.get(f"{proxy.url}/v1/models", timeout=5).json()["data"][0]["id"] == "tiny-other"
    assert asker.post(proxy.url, CHAT, chat()).json() == completion(chat())


def test_nobody_is_authorized_but_health_answers(asker: Asker) -> None:
    proxy = asker.proxy("unauthorized")
    assert asker.post(proxy.url, CHAT, chat()).status_code == 401
    assert requests.get(f"{proxy.url}/v1/models", timeout=5).status_code == 401
    assert requests.get(f"{proxy.url}/health", timeout=5).status_code == 200


def test_busy_time_is_the_time_of_requests_for_tokens(asker: Asker) -> None:
    proxy = asker.proxy(NO_FAULT)
    requests.get(f"{proxy.url}/health", timeout=5)
    assert proxy.busy_s == 0
    asker.upstream.waiting.clear()
    timer = threading.Timer(0.1, asker.upstream.waiting.set)
    timer.start()
    asker.post(proxy.url, CHAT, chat())
    timer.join()
    # The reply is there a moment before the proxy has added its time up.
    until = time.monotonic() + 5
    while not proxy.busy_s and time.monotonic() < until:
        time.sleep(0.01)
    assert proxy.busy_s >= 0.09


def test_a_stream_keeps_what_did_not_change(asker: Asker) -> None:
    """Only the content is replaced: reasoning, usage and the order stay."""
    proxy = asker.proxy(Fault("test", "", "", answer=lambda answer, asked: replace(answer, content="x")))
    content, reasoning, _calls, finishes, usages, done = stream_of(
        asker.post(proxy.url, CHAT, chat(**STREAMED))
    )
    assert (content, reasoning, finishes, done) == ("x", REASONING, ["stop"], True)
    assert usages == [usage()]
