"""Reads the gate's part of a model profile: what to ask this model, and what its answers must hold.

```yaml
served_name: tiny-qwen3
gate:
  deadline_s: 120            # whole run
  request_timeout_s: 60      # one request
  thinking:                  # request fields that switch thinking; null if the model has no thinking mode
    on: {chat_template_kwargs: {enable_thinking: true}}
    off: {chat_template_kwargs: {enable_thinking: false}}
  smoke:
    answer: {prompt: Reply with exactly OK, expect: OK}
    arithmetic: {prompt: "What is 17*19?", expect: "323", max_tokens: 64}
    thinking: {prompt: "What is 17*19?", expect: "323", max_tokens: 512}   # not needed if thinking is null
    throughput: {prompt: Write a story., max_tokens: 512, min_tokens: 256, min_tokens_per_second: null}
```

The two times, `max_tokens` of `answer` and `min_tokens_per_second` have defaults; the rest is needed. Other
keys at the top of a model profile belong to others and are not looked at.

The numeric probes read these keys as well. None is needed: without a text that the model knows, the probes
look for NaN and compare computations with one another, and the coverage says which bars were not applied. The
values here are the defaults, but for `expect`, `kv_scales`, `anchors`, `counting`, `facts` and `copy`: by
default these are absent (without any profile they are those of `defaults.GATE`). No number may be above
10,000,000, and no concurrency above 1,024.

```yaml more
gate:
  context_length: null       # longest prompt; null: what the server says
  expect:                    # identity: what the server must say of itself; null means unset
    version: 0.5.9
    quantization: modelopt_fp4
    kv_cache_dtype: fp8_e4m3
    tp_size: 8
    speculative_algorithm: null
  kv_scales: {shipped: false, otherwise: warn}   # an FP8 KV cache without scales: warn or fail
  anchors:                   # texts known by heart; `prefix` goes before, verbatim, and is not judged
    - {name: gettysburg, prefix: "", text: Four score and seven years ago our fathers, max_nll: 0.5}
  counting: {prefix: "", to: 200, separator: ", ", after: 32, max_nll: 0.05, min_top1: 0.99}
  continuations: [Once upon a time, In the beginning]   # prose to go on with, verbatim, no template
  continuation_tokens: 256   # at most 512
  facts:                     # asked at every concurrency, thinking off; [] takes the smoke probe's
    - {prompt: "What is the capital of France?", expect: Paris, max_tokens: 32}
  copy:                      # head + words + after + filler + repeat + words; the second words are judged
    words: [apple, river, stone, garden]
    count: 4
    separator: " "
    head: "The words are: "
    after: ".\\n\\n"
    filler: null             # sentences, repeated as needed; null takes the built-in ones
    repeat: "\\n\\nThe words are: "
    lengths: [8192, 32768]   # in tokens; the coverage says which the context cannot hold
    max_nll: 0.2             # above it a warning, above fail_nll a failure
    fail_nll: 1.0
  filler: null               # text of any length to fill prompts with, repeated as needed; null: built-in
  lengths: [1, 2, 8, 16, 33, 64, 128, 257, 512, 1024, 1536, 2048, 3072]
  concurrency: [1, 2, 3, 5, 9, 17]
  bars: {regret_large_share: 0.02}   # any of probe_data.Bars; a mixture of experts needs this one
  speed: {prefill: 2500, decode: 60}   # tokens per second, for the seconds in the plan only
  full:                      # what the run profiles full and soak take instead; without it defaults.FULL
    lengths: [1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64, 100, 500, 1536, 2001, 3072, 4096]
```

Two more keys have a module each that documents them: `template` (template_data.py), which without golden
chats tests little, and `protocol` (protocol_data.py), whose defaults suit a large chat model with tools.
Golden, throughput and soak read these; the values are the defaults, and without `tasks` there is no soak.

```yaml baseline
gate:
  golden: {trimmed_mean: 0.03, nll_change_fail: 0.04}   # any of golden_data.GoldenBars
  throughput:
    warmups: 1
    runs: 3
    tokens: 128              # of each answer, made even past its end
    prompt_tokens: 512       # about
    ramp: [1, 4, 16]         # concurrencies
    ramp_tokens: 64
    bars: {fail: 0.8, warn: 0.92}   # any of golden_data.SpeedBars
  soak:
    tasks:                   # long answers, thinking on; the content must hold the result
      - {prompt: "Add 1 to 200, one by one, and end with the sum.", expect: "20100"}
    requests: 30             # long answers, each with a short one (of `facts`) beside it
    concurrency: 8
    max_tokens: 8192         # of a task that says nothing else
    seconds: 3600            # nothing is asked after that; a run of profile soak has so much more time
    turns: 10                # of the chat that grows
    bars: {wrong: 0.15, empty: 0.0, unfinished: 0.5}   # shares
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .chat import RESERVED_FIELDS
from .defaults import FULL, GATE
from .errors import UsageError
from .golden_data import GoldenBars, Throughput, read_golden_bars, read_throughput
from .probe_data import ProbeData, Question, read_question, take_probe_data
from .protocol_data import ProtocolData, read_protocol
from .section import NEEDED, Section, kind, optional, positive_integer, positive_number, text
from .soak_data import Soak, read_soak
from .template_data import TemplateData, read_template

# YAML reads a bare `on` as true, and the way into an Ansible module makes that a text.
_SWITCHES: Mapping[object, str] = {
    True: "on",
    "true": "on",
    "True": "on",
    False: "off",
    "false": "off",
    "False": "off",
}


@dataclass(frozen=True)
class LongAnswer:
    """A prompt for a long answer, the fewest tokens it must have, and the speed bar, None for no bar."""

    prompt: str
    max_tokens: int
    min_tokens: int
    min_tokens_per_second: float | None


@dataclass(frozen=True)
class Thinking:
    """The request fields that switch thinking on and off."""

    on: Mapping[str, object]
    off: Mapping[str, object]


@dataclass(frozen=True)
class Smoke:
    """The smoke probe's questions; `thinking` is None exactly where the model has no thinking mode."""

    answer: Question
    arithmetic: Question
    thinking: Question | None
    throughput: LongAnswer


@dataclass(frozen=True)
class ModelProfile:
    """What the gate needs to know of a model. Times in seconds.

    `most_concurrency` is the run's own: the load budget of a server that others use, None without one.
    """

    served_name: str | None
    deadline_s: float
    request_timeout_s: float
    thinking: Thinking | None
    smoke: Smoke
    probes: ProbeData
    template: TemplateData
    protocol: ProtocolData
    golden: GoldenBars
    throughput: Throughput
    soak: Soak
    most_concurrency: int | None = None

    def allowed(self, concurrencies: Sequence[int]) -> tuple[int, ...]:
        """Those numbers of requests at a time that the load budget of the run allows, at least 1."""
        most = self.most_concurrency
        return tuple(c for c in concurrencies if most is None or c <= most) or (1,)

    def at_a_time(self, wanted: int) -> int:
        """So many requests at a time, or as many as the load budget allows."""
        return wanted if self.most_concurrency is None else min(wanted, self.most_concurrency)

    @property
    def facts(self) -> tuple[Question, ...]:
        """Questions with one right answer; without any of their own those of the smoke probe."""
        return self.probes.facts or (self.smoke.answer, self.smoke.arithmetic)

    @property
    def thinking_on(self) -> Mapping[str, object]:
        return self.thinking.on if self.thinking else {}

    @property
    def thinking_off(self) -> Mapping[str, object]:
        return self.thinking.off if self.thinking else {}


def read_model_profile(document: object | None, thorough: bool = False) -> ModelProfile:
    """Check the gate's part of a model profile; None takes the defaults. Raises UsageError with the key.

    A thorough run takes what `full` says instead. Both are checked whichever is wanted.
    """
    if document is None:
        document = {"gate": GATE}
    try:
        return [_model_profile(each) for each in _quick_and_full(document)][thorough]
    except UsageError as error:
        raise UsageError(f"model profile: {error}") from None


def _quick_and_full(document: object) -> tuple[object, object]:
    """The document without `gate.full`, and with what that says in its place.

    One that says nothing there is asked for more where it has the defaults, and for the same elsewhere.
    """
    gate = document.get("gate") if isinstance(document, Mapping) else None
    if not isinstance(gate, Mapping):
        return document, document
    more = gate.get("full", {key: value for key, value in FULL.items() if key not in gate})
    if not isinstance(more, Mapping):
        raise UsageError(f"gate.full must be a mapping, not {kind(more)}")
    quick = {key: value for key, value in gate.items() if key != "full"}
    assert isinstance(document, Mapping)
    return {**document, "gate": quick}, {**document, "gate": {**quick, **more}}


def _model_profile(document: object) -> ModelProfile:
    if not isinstance(document, Mapping):
        raise UsageError(f"it must be a mapping, not {kind(document)}")
    served_name = document.get("served_name")
    section = Section(document.get("gate"), "gate")
    thinking = section.take("thinking", _thinking)
    profile = ModelProfile(
        served_name=None if served_name is None else text(served_name, "served_name"),
        deadline_s=section.take("deadline_s", positive_number, 300.0),
        request_timeout_s=section.take("request_timeout_s", positive_number, 60.0),
        thinking=thinking,
        smoke=section.take("smoke", lambda value, path: _smoke(value, path, thinking is not None)),
        probes=take_probe_data(section),
        template=section.take("template", read_template, {}),
        protocol=section.take("protocol", read_protocol, {}),
        golden=section.take("golden", read_golden_bars, {}),
        throughput=section.take("throughput", read_throughput, {}),
        soak=section.take("soak", read_soak, {}),
    )
    section.close()
    return profile


def _thinking(value: object, path: str) -> Thinking | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        value = {_SWITCHES.get(key, key): fields for key, fields in value.items()}
    section = Section(value, path)
    thinking = Thinking(section.take("on", _request_fields), section.take("off", _request_fields))
    section.close()
    return thinking


def _request_fields(value: object, path: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{path} must be a mapping of request fields, not {kind(value)}")
    reserved = sorted(RESERVED_FIELDS & value.keys())
    if reserved:
        raise UsageError(f"{path}.{reserved[0]} is the gate's own to set")
    return dict(value)


def _smoke(value: object, path: str, thinks: bool) -> Smoke:
    section = Section(value, path)
    answer = section.take("answer", lambda value, path: read_question(value, path, 16))
    arithmetic = section.take("arithmetic", read_question)
    # A profile may keep the question of a model whose thinking is switched off.
    thinking = section.take(
        "thinking", read_question if thinks else _question_or_none, NEEDED if thinks else None
    )
    smoke = Smoke(answer, arithmetic, thinking if thinks else None, section.take("throughput", _long_answer))
    section.close()
    return smoke


def _question_or_none(value: object, path: str) -> Question | None:
    return None if value is None else read_question(value, path)


def _long_answer(value: object, path: str) -> LongAnswer:
    section = Section(value, path)
    answer = LongAnswer(
        section.take("prompt", text),
        section.take("max_tokens", positive_integer),
        section.take("min_tokens", positive_integer),
        section.take("min_tokens_per_second", optional(positive_number), None),
    )
    section.close()
    if answer.min_tokens > answer.max_tokens:
        raise UsageError(f"{path}.min_tokens must not be above max_tokens")
    return answer
