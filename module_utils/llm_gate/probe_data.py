"""What the numeric probes ask a model, and their bars, all with defaults; `model_profile` documents them.

The bars without another source are proposals that a GPU has yet to confirm. On the real SGLang 0.5.9 with the
tiny model on a CPU all path differences are at most 0.001 nat, so that a healthy server is far below them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from .errors import UsageError
from .neutral import CONTINUATIONS, WORDS
from .results import Scalar
from .section import (
    NEEDED,
    Section,
    any_text,
    boolean,
    each,
    kind,
    number,
    optional,
    positive_integer,
    positive_number,
    shown,
    text,
)
from .server import SETTINGS

# One request never scores more positions: SGLang 0.5.9 holds positions x vocabulary floats twice.
# https://github.com/sgl-project/sglang/issues/2607
MOST_SCORED = 512
# Multiples of common tile sizes and their neighbours: https://github.com/flashinfer-ai/flashinfer/issues/3398
# is a GEMM that returned zeros at 3072 rows while 1536, 2048 and 4096 were right.
LENGTHS = (1, 2, 8, 16, 33, 64, 128, 257, 512, 1024, 1536, 2048, 3072)
# 17 lies above the batch of https://github.com/sgl-project/sglang/issues/1742.
CONCURRENCY = (1, 2, 3, 5, 9, 17)
# Each request under way takes a thread and a connection.
MOST_AT_ONCE = 1024


@dataclass(frozen=True)
class Anchor:
    """A text that the model knows by heart after `prefix`, and the most nats a token of it may cost."""

    name: str
    prefix: str
    text: str
    max_nll: float


@dataclass(frozen=True)
class Counting:
    """Numbers in a row, which cost next to nothing once the pattern is clear, `after` some tokens."""

    prefix: str
    to: int
    separator: str
    after: int
    max_nll: float
    min_top1: float

    def up_to(self, last: int) -> str:
        """The numbers from 1 on."""
        return self.separator.join(str(value) for value in range(1, last + 1))


@dataclass(frozen=True)
class Question:
    """A question with one right answer."""

    prompt: str
    expect: str
    max_tokens: int


@dataclass(frozen=True)
class Copy:
    """Words in random order, filler, and the same words again, which cost a sound model next to nothing."""

    words: tuple[str, ...]
    count: int
    separator: str
    head: str
    after: str
    filler: str | None
    repeat: str
    lengths: tuple[int, ...]
    max_nll: float
    fail_nll: float


@dataclass(frozen=True)
class KvScales:
    """Whether the checkpoint ships scales for an FP8 KV cache, and what it means if it does not."""

    shipped: bool
    otherwise: str


@dataclass(frozen=True)
class Bars:
    """Limits of the numeric probes; logprob differences in nats."""

    # Predictable text at every prompt length.
    length_nll: float = 0.2
    # The same tokens computed cold and from the cache. Published run-to-run noise of a GPU: mean 0.03, most
    # 0.12 (https://github.com/pegainfer-project/pegainfer/issues/293); deliberately bad FP8 KV scales: 3.6 to
    # 9.8 at most (https://github.com/sgl-project/sglang/issues/25790).
    delta_trimmed: float = 0.05
    delta_share: float = 0.02
    delta_mean_one_length: float = 0.5
    # Where the same prompt goes on in another way the second time: how many nats a token of it may be behind
    # the likeliest.
    replay_regret: float = 1.0
    # Tokens that were generated greedily and are not the likeliest when scored. With a prefix changed, bf16
    # against itself agrees on 88 to 90 % only (https://github.com/vllm-project/vllm/issues/54704), hence a
    # bar on the size.
    regret_share: float = 0.05
    regret_large_share: float = 0.01
    # Healthy greedy text is above -0.5; Whisper calls -1.0 a failure.
    min_mean_logprob: float = -2.0
    # 34 of 40: with answers right in 97 of 100 a false alarm in 1 of 5000 runs.
    exact_share: float = 0.85
    # Acceptance when a second request joins: https://github.com/local-inference-lab/rtx6kpro/issues/72
    acceptance_ratio: float = 0.85
    # Healthy first drafts are right in 0.95, corrupted ones in 0.05 of cases.
    first_acceptance: float = 0.3


@dataclass(frozen=True)
class Speed:
    """Tokens per second that the plan reckons with; nothing is judged by them."""

    prefill: float = 2500.0
    decode: float = 60.0


@dataclass(frozen=True)
class ProbeData:
    """All of it. `facts` is empty where the smoke probe's questions are to be used."""

    context_length: int | None
    expect: Mapping[str, Scalar]
    kv_scales: KvScales | None
    anchors: tuple[Anchor, ...]
    counting: Counting | None
    continuations: tuple[str, ...]
    continuation_tokens: int
    facts: tuple[Question, ...]
    copy: Copy | None
    filler: str | None
    lengths: tuple[int, ...]
    concurrency: tuple[int, ...]
    bars: Bars
    speed: Speed


def take_probe_data(section: Section) -> ProbeData:
    """Take the keys of the numeric probes out of the `gate` section. Raises UsageError."""
    return ProbeData(
        context_length=section.take("context_length", optional(positive_integer), None),
        expect=section.take("expect", _expect, {}),
        kv_scales=section.take("kv_scales", optional(_kv_scales), None),
        anchors=section.take("anchors", _anchors, []),
        counting=section.take("counting", optional(_counting), None),
        continuations=section.take("continuations", each(text, 1), CONTINUATIONS),
        continuation_tokens=section.take("continuation_tokens", _scorable, 256),
        facts=section.take("facts", each(_fact), []),
        copy=section.take("copy", optional(_copy), None),
        filler=section.take("filler", optional(text), None),
        lengths=section.take("lengths", _ascending, LENGTHS),
        concurrency=section.take("concurrency", _concurrency, CONCURRENCY),
        bars=section.take("bars", _bars, {}),
        speed=section.take("speed", _speed, {}),
    )


def _expect(value: object, path: str) -> Mapping[str, Scalar]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{path} must be a mapping, not {kind(value)}")
    known = ("model_path", "version", *SETTINGS)
    for key, wanted in value.items():
        if key not in known:
            raise UsageError(f"unknown key {path}.{key}; known are {', '.join(known)}")
        if wanted is not None and not isinstance(wanted, (str, int, float, bool)):
            raise UsageError(f"{path}.{key} must be a plain value, not {kind(wanted)}")
    return dict(value)


def _kv_scales(value: object, path: str) -> KvScales:
    section = Section(value, path)
    scales = KvScales(section.take("shipped", boolean), section.take("otherwise", _warn_or_fail, "warn"))
    section.close()
    return scales


def _anchors(value: object, path: str) -> tuple[Anchor, ...]:
    anchors = each(_anchor)(value, path)
    if len({anchor.name for anchor in anchors}) < len(anchors):
        raise UsageError(f"{path} has two anchors of one name")
    return anchors


def _anchor(value: object, path: str) -> Anchor:
    section = Section(value, path)
    anchor = Anchor(
        section.take("name", text),
        section.take("prefix", any_text, ""),
        section.take("text", text),
        # For a text that a large model half knows. The tiny model's cost 0.002 to 0.003 nats when sound and
        # 0.2 to 11 under 11 weight faults without NaN: measure and set it.
        section.take("max_nll", positive_number, 0.5),
    )
    section.close()
    return anchor


def _counting(value: object, path: str) -> Counting:
    section = Section(value, path)
    counting = Counting(
        section.take("prefix", any_text, ""),
        section.take("to", positive_integer, 200),
        section.take("separator", any_text, ", "),
        section.take("after", positive_integer, 32),
        section.take("max_nll", positive_number, 0.05),
        section.take("min_top1", _share, 0.99),
    )
    section.close()
    return counting


def read_question(value: object, path: str, max_tokens: object = NEEDED) -> Question:
    """A question of a profile; `max_tokens` is the default of that key. Raises UsageError."""
    section = Section(value, path)
    question = Question(
        section.take("prompt", text),
        section.take("expect", text),
        section.take("max_tokens", positive_integer, max_tokens),
    )
    section.close()
    return question


def _fact(value: object, path: str) -> Question:
    return read_question(value, path, max_tokens=32)


def _copy(value: object, path: str) -> Copy:
    section = Section(value, path)
    copy = Copy(
        section.take("words", each(text, 2), WORDS),
        section.take("count", positive_integer, 64),
        section.take("separator", _text_or_space, " "),
        section.take("head", text, "The words are: "),
        section.take("after", text, ".\n\n"),
        section.take("filler", optional(text), None),
        section.take("repeat", text, "\n\nThe words are: "),
        section.take("lengths", _ascending),
        section.take("max_nll", positive_number, 0.2),
        section.take("fail_nll", positive_number, 1.0),
    )
    section.close()
    if copy.count > len(copy.words):
        raise UsageError(f"{path}.count must not be above the number of words, {len(copy.words)}")
    if copy.fail_nll < copy.max_nll:
        raise UsageError(f"{path}.fail_nll must not be below max_nll")
    return copy


def _text_or_space(value: object, path: str) -> str:
    """A text of at least one character."""
    if not isinstance(value, str) or not value:
        raise UsageError(f"{path} must be a text, not {shown(value)}")
    return str(value)


def _bars(value: object, path: str) -> Bars:
    section = Section(value, path)
    bars = Bars(**{bar.name: section.take(bar.name, number, bar.default) for bar in fields(Bars)})
    section.close()
    return bars


def _speed(value: object, path: str) -> Speed:
    section = Section(value, path)
    speed = Speed(
        section.take("prefill", positive_number, Speed.prefill),
        section.take("decode", positive_number, Speed.decode),
    )
    section.close()
    return speed


def _ascending(value: object, path: str) -> tuple[int, ...]:
    values = each(positive_integer, 1)(value, path)
    if list(values) != sorted(set(values)):
        raise UsageError(f"{path} must ascend")
    return values


def _concurrency(value: object, path: str) -> tuple[int, ...]:
    values = _ascending(value, path)
    if values[-1] > MOST_AT_ONCE:
        raise UsageError(f"{path} must not be above {MOST_AT_ONCE}")
    return values


def _scorable(value: object, path: str) -> int:
    tokens = positive_integer(value, path)
    if tokens > MOST_SCORED:
        raise UsageError(f"{path} must not be above {MOST_SCORED}")
    return tokens


def _share(value: object, path: str) -> float:
    share = positive_number(value, path)
    if share > 1:
        raise UsageError(f"{path} must not be above 1, it is a share")
    return share


def _warn_or_fail(value: object, path: str) -> str:
    if not isinstance(value, str) or value not in ("warn", "fail"):
        raise UsageError(f"{path} must be warn or fail, not {shown(value)}")
    return str(value)
