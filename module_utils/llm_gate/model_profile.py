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
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from .chat import RESERVED_FIELDS
from .defaults import GATE
from .errors import UsageError

T = TypeVar("T")
_NEEDED = object()
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
class Question:
    """A prompt with one right answer."""

    prompt: str
    expect: str
    max_tokens: int


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
    """What the gate needs to know of a model. Times in seconds."""

    served_name: str | None
    deadline_s: float
    request_timeout_s: float
    thinking: Thinking | None
    smoke: Smoke

    @property
    def thinking_on(self) -> Mapping[str, object]:
        return self.thinking.on if self.thinking else {}

    @property
    def thinking_off(self) -> Mapping[str, object]:
        return self.thinking.off if self.thinking else {}


def read_model_profile(document: object | None) -> ModelProfile:
    """Check the gate's part of a model profile; None takes the defaults. Raises UsageError with the key."""
    if document is None:
        document = {"gate": GATE}
    try:
        return _model_profile(document)
    except UsageError as error:
        raise UsageError(f"model profile: {error}") from None


def _model_profile(document: object) -> ModelProfile:
    if not isinstance(document, Mapping):
        raise UsageError(f"it must be a mapping, not {_kind(document)}")
    served_name = document.get("served_name")
    section = _Section(document.get("gate"), "gate")
    thinking = section.take("thinking", _thinking)
    profile = ModelProfile(
        served_name=None if served_name is None else _text(served_name, "served_name"),
        deadline_s=section.take("deadline_s", positive_number, 120.0),
        request_timeout_s=section.take("request_timeout_s", positive_number, 60.0),
        thinking=thinking,
        smoke=section.take("smoke", lambda value, path: _smoke(value, path, thinking is not None)),
    )
    section.close()
    return profile


def positive_number(value: object, path: str) -> float:
    """A finite number above 0. Raises UsageError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise UsageError(f"{path} must be a number above 0, not {value!r}")
    return float(value)


class _Section:
    """One mapping of the profile; whatever was not taken by the end is an unknown key."""

    def __init__(self, value: object, path: str) -> None:
        if value is None:
            raise UsageError(f"{path} is missing")
        if not isinstance(value, Mapping):
            raise UsageError(f"{path} must be a mapping, not {_kind(value)}")
        self._rest = dict(value)
        self._path = path

    def take(self, key: str, read: Callable[[object, str], T], default: object = _NEEDED) -> T:
        path = f"{self._path}.{key}"
        if key not in self._rest and default is _NEEDED:
            raise UsageError(f"{path} is missing")
        return read(self._rest.pop(key, default), path)

    def close(self) -> None:
        if self._rest:
            names = ", ".join(f"{self._path}.{key}" for key in self._rest)
            raise UsageError(f"unknown key {names}")


def _thinking(value: object, path: str) -> Thinking | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        value = {_SWITCHES.get(key, key): fields for key, fields in value.items()}
    section = _Section(value, path)
    thinking = Thinking(section.take("on", _request_fields), section.take("off", _request_fields))
    section.close()
    return thinking


def _request_fields(value: object, path: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{path} must be a mapping of request fields, not {_kind(value)}")
    reserved = sorted(RESERVED_FIELDS & value.keys())
    if reserved:
        raise UsageError(f"{path}.{reserved[0]} is the gate's own to set")
    return dict(value)


def _smoke(value: object, path: str, thinks: bool) -> Smoke:
    section = _Section(value, path)
    answer = section.take("answer", lambda value, path: _question(value, path, 16))
    arithmetic = section.take("arithmetic", _question)
    # A profile may keep the question of a model whose thinking is switched off.
    thinking = section.take(
        "thinking", _question if thinks else _question_or_none, _NEEDED if thinks else None
    )
    smoke = Smoke(answer, arithmetic, thinking if thinks else None, section.take("throughput", _long_answer))
    section.close()
    return smoke


def _question(value: object, path: str, max_tokens: object = _NEEDED) -> Question:
    section = _Section(value, path)
    question = Question(
        section.take("prompt", _text),
        section.take("expect", _text),
        section.take("max_tokens", _positive_integer, max_tokens),
    )
    section.close()
    return question


def _question_or_none(value: object, path: str) -> Question | None:
    return None if value is None else _question(value, path)


def _long_answer(value: object, path: str) -> LongAnswer:
    section = _Section(value, path)
    answer = LongAnswer(
        section.take("prompt", _text),
        section.take("max_tokens", _positive_integer),
        section.take("min_tokens", _positive_integer),
        section.take("min_tokens_per_second", _number_or_none, None),
    )
    section.close()
    if answer.min_tokens > answer.max_tokens:
        raise UsageError(f"{path}.min_tokens must not be above max_tokens")
    return answer


def _number_or_none(value: object, path: str) -> float | None:
    return None if value is None else positive_number(value, path)


def _positive_integer(value: object, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{path} must be a whole number of at least 1, not {value!r}")
    return int(value)


def _text(value: object, path: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{path} must be a text, not {value!r}")
    return str(value)


def _kind(value: object) -> str:
    return "nothing" if value is None else type(value).__name__
