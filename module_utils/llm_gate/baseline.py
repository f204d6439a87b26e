"""The stored baseline: what a deployment measured that was proved right.

A pass is one measurement, a baseline the merger of several. Both are JSON documents. The key says what must
be the same for logprobs to be comparable; parallelism, backends and versions are no part of it, since they
must not change answers: they are attributes, recorded and shown. Speed depends on the hardware and is kept
beside it. Nothing outside the standard library is imported, so that a controller without `requests` can use
this.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import zlib
from array import array
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, TypeVar

from .errors import UsageError
from .results import Scalar
from .section import Section, any_text, each, kind, number, optional, positive_integer, positive_number, text

if TYPE_CHECKING:
    from .server import Server

SCHEMA_VERSION = 1
# What a key holds. None: the server does not tell. UNSET: it tells that nothing is set.
KEY = (
    "model",
    "revision",
    "quantization",
    "kv_cache_dtype",
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_num_draft_tokens",
)
UNSET = "none"
# Attributes that choose other kernels: with the same of them the same numbers are expected, but for noise.
BUILD = (
    "engine",
    "engine_version",
    "dtype",
    "tp_size",
    "dp_size",
    "attention_backend",
    "moe_runner_backend",
    "fp4_gemm_runner_backend",
    "chunked_prefill_size",
    "page_size",
)
DIGITS = 4
REMEDY = "record it again with baseline.yml"
T = TypeVar("T")


@dataclass(frozen=True)
class Segment:
    """Token ids, and from `first` on each one's logprob, the likeliest token there, and its lead in nats.

    `kind` is `text`, or `copy` for a list of words repeated far from where it stood first.
    """

    name: str
    kind: str
    ids: tuple[int, ...]
    first: int
    logprobs: tuple[float, ...]
    likeliest: tuple[int, ...]
    gaps: tuple[float, ...]


@dataclass(frozen=True)
class Text:
    """A greedy answer to a prompt, thinking off."""

    prompt: str
    max_tokens: int
    text: str


@dataclass(frozen=True)
class Hardware:
    """What speed depends on beside the deployment; the power cap in watts, None where there is none."""

    gpu: str
    count: int
    power_cap_w: float | None

    def __str__(self) -> str:
        cap = "" if self.power_cap_w is None else f" at {self.power_cap_w:g} W"
        return f"{self.count} x {self.gpu}{cap}"


@dataclass(frozen=True)
class Speed:
    """Speed on some hardware, None for hardware that nobody named.

    `tokens_per_second` is the decode speed of one request, `slowest` that of the slowest pass;
    `output_throughput` is tokens per second of all requests together, by concurrency.
    """

    hardware: Hardware | None
    tp_size: int | None
    tokens_per_second: float
    slowest: float
    ttft_s: float | None
    itl_s: float | None
    output_throughput: Mapping[int, float]
    accept_length: float | None

    def fits(self, hardware: Hardware | None, tp_size: Scalar) -> bool:
        """Whether speed measured on that hardware may be compared with this."""
        return self.hardware is not None and self.hardware == hardware and self.tp_size == tp_size


@dataclass(frozen=True)
class Noise:
    """The largest difference between two passes, for each statistic of `drift`."""

    trimmed_mean: float
    large_share: float
    largest: float
    confident_flips: float
    nll_change: float
    copy_nll_change: float
    texts_changed: int


@dataclass(frozen=True)
class Pass:
    """One measurement. `recorded` is the time in UTC, `run_id` the run of the gate that it belongs to."""

    recorded: str
    run_id: str
    key: Mapping[str, Scalar]
    attributes: Mapping[str, Scalar]
    segments: tuple[Segment, ...]
    texts: tuple[Text, ...]
    speed: Speed | None


@dataclass(frozen=True)
class Baseline:
    """The median of several passes, and how far they were from one another."""

    recorded: str
    passes: int
    key: Mapping[str, Scalar]
    attributes: Mapping[str, Scalar]
    noise: Noise
    segments: tuple[Segment, ...]
    texts: tuple[Text, ...]
    speeds: tuple[Speed, ...]

    def speed_on(self, hardware: Hardware | None, tp_size: Scalar) -> Speed | None:
        """What was measured on that hardware, if anything."""
        return next((speed for speed in self.speeds if speed.fits(hardware, tp_size)), None)


@dataclass(frozen=True)
class Stored:
    """A baseline with the name of its file and the SHA-256 of its text, for the report."""

    path: str
    sha256: str
    baseline: Baseline


@dataclass(frozen=True)
class Deployment:
    """What the caller knows of a deployment that its server does not tell.

    `baseline` was named and must fit; of `choice` the one that fits is taken, if there is one.
    """

    revision: str | None = None
    hardware: Hardware | None = None
    baseline: Stored | None = None
    choice: tuple[Stored, ...] = ()

    def baseline_for(self, server: Server | None) -> Stored | None:
        """The baseline to compare with."""
        if self.baseline is not None or server is None:
            return self.baseline
        running = key_of(server, self.revision)
        return next((stored for stored in self.choice if stored.baseline.key == running), None)


# The key.


def key_of(server: Server, revision: str | None) -> dict[str, Scalar]:
    """The key of what runs. `revision` is the checkpoint's, which a server seldom knows."""
    told = {name: _told(server.settings, name) for name in KEY if name not in ("model", "revision")}
    return {"model": server.model, "revision": revision or server.settings.get("revision"), **told}


def attributes_of(server: Server) -> dict[str, Scalar]:
    """Engine, version and settings that are no part of the key."""
    build = {name: _told(server.settings, name) for name in BUILD if not name.startswith("engine")}
    return {"engine": server.engine, "engine_version": server.engine_version, **build}


def _told(settings: Mapping[str, Scalar], name: str) -> Scalar:
    """A setting; UNSET where the server says that it is set to nothing, None where it does not say."""
    if name not in settings:
        return None
    value = settings[name]
    return UNSET if value is None else value


def contradictions(stored: Mapping[str, Scalar], running: Mapping[str, Scalar]) -> list[str]:
    """Each part of the key that is told on both sides and differs, in words."""
    return [
        f"{name} is {running[name]}, the baseline's {stored[name]}"
        for name in KEY
        if None not in (stored[name], running[name]) and stored[name] != running[name]
    ]


def untold(stored: Mapping[str, Scalar], running: Mapping[str, Scalar]) -> list[str]:
    """The parts of the key that one side knows and the other does not."""
    return [name for name in KEY if (stored[name] is None) != (running[name] is None)]


def changed_build(stored: Mapping[str, Scalar], running: Mapping[str, Scalar]) -> list[str]:
    """Each attribute that may move logprobs and differs, in words."""
    return [
        f"{name} {stored.get(name)} -> {running.get(name)}"
        for name in BUILD
        if stored.get(name) != running.get(name)
    ]


def file_name(key: Mapping[str, Scalar]) -> str:
    """The name of a key's file: the model for people, and a hash of the whole key."""
    model = re.sub(r"[^A-Za-z0-9._-]+", "-", str(key["model"])).strip("-.") or "model"
    digest = hashlib.sha256(json.dumps([key[name] for name in KEY]).encode()).hexdigest()
    return f"{model}-{digest[:12]}.json"


# Reading.


def parse(text: str, source: str) -> object:
    """The JSON document in the text of a file. Raises UsageError for a torn one."""
    try:
        document: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"baseline {source}: is not whole JSON ({error}); {REMEDY}") from None
    return document


def store(document: object, path: str, sha256: str | None = None) -> Stored:
    """A baseline with where it came from; without a hash that of its own text. Raises UsageError."""
    baseline = read_baseline(document, path)
    return Stored(path, sha256 or hashlib.sha256(to_text(baseline).encode()).hexdigest(), baseline)


def read_baseline(document: object, source: str) -> Baseline:
    """Check the document of a baseline. Raises UsageError: the file, the key, what was wanted, what came."""
    section = _open(document, source, "baseline")
    return _finish(
        section,
        source,
        lambda: Baseline(
            recorded=section.take("recorded", text),
            passes=section.take("passes", positive_integer),
            key=section.take("key", _key),
            attributes=section.take("attributes", _scalars),
            noise=section.take("noise", _noise),
            segments=section.take("segments", each(_segment, 1)),
            texts=section.take("texts", each(_text)),
            speeds=section.take("speeds", each(_speed)),
        ),
    )


def read_pass(document: object, source: str) -> Pass:
    """Check the document of one pass. Raises UsageError."""
    section = _open(document, source, "pass")
    return _finish(
        section,
        source,
        lambda: Pass(
            recorded=section.take("recorded", text),
            run_id=section.take("run_id", text),
            key=section.take("key", _key),
            attributes=section.take("attributes", _scalars),
            segments=section.take("segments", each(_segment, 1)),
            texts=section.take("texts", each(_text)),
            speed=section.take("speed", optional(_speed)),
        ),
    )


def read_hardware(value: object, path: str) -> Hardware:
    """What the caller says of the GPUs. Raises UsageError."""
    section = Section(value, path)
    hardware = Hardware(
        section.take("gpu", text),
        section.take("count", positive_integer),
        section.take("power_cap_w", optional(positive_number), None),
    )
    section.close()
    return hardware


def _open(document: object, source: str, wanted: str) -> Section:
    """The section of a document of the right version and kind."""
    if not isinstance(document, Mapping):
        raise UsageError(f"baseline {source}: must hold a JSON object, not {kind(document)}; {REMEDY}")
    version, came = document.get("schema_version"), document.get("kind")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise UsageError(
            f"baseline {source}: schema_version must be {SCHEMA_VERSION}, not {version!r}; {REMEDY}"
        )
    if came != wanted:
        hint = "merge passes with `python -m llm_gate.merge`" if wanted == "baseline" else REMEDY
        raise UsageError(f"baseline {source}: kind must be {wanted}, not {came!r}; {hint}")
    return Section(
        {key: value for key, value in document.items() if key not in ("schema_version", "kind")}, wanted
    )


def _finish(section: Section, source: str, read: Callable[[], T]) -> T:
    """What `read` makes of a section, with the file's name in its complaint."""
    try:
        result = read()
        section.close()
    except UsageError as error:
        raise UsageError(f"baseline {source}: {error}; {REMEDY}") from None
    return result


def _key(value: object, path: str) -> dict[str, Scalar]:
    scalars = _scalars(value, path)
    missing = [name for name in KEY if name not in scalars]
    unknown = [name for name in scalars if name not in KEY]
    if missing or unknown:
        raise UsageError(f"{path} must have just {', '.join(KEY)}; wrong: {', '.join(missing + unknown)}")
    text(scalars["model"], f"{path}.model")
    return scalars


def _scalars(value: object, path: str) -> dict[str, Scalar]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{path} must be a mapping, not {kind(value)}")
    for key, item in value.items():
        if item is not None and not isinstance(item, (str, int, float, bool)):
            raise UsageError(f"{path}.{key} must be a plain value, not {kind(item)}")
    return {str(key): item for key, item in value.items()}


def _noise(value: object, path: str) -> Noise:
    section = Section(value, path)
    figures = {
        field.name: section.take(field.name, _count if field.name == "texts_changed" else _size)
        for field in fields(Noise)
    }
    section.close()
    return Noise(**figures)  # type: ignore[arg-type]


def _segment(value: object, path: str) -> Segment:
    section = Section(value, path)
    segment = Segment(
        name=section.take("name", text),
        kind=section.take("kind", _text_or_copy),
        ids=section.take("ids", _packed),
        first=section.take("first", positive_integer),
        logprobs=section.take("logprobs", each(number, 1)),
        likeliest=section.take("likeliest", _packed),
        gaps=section.take("gaps", each(_size)),
    )
    section.close()
    judged = len(segment.ids) - segment.first
    for name in ("logprobs", "likeliest", "gaps"):
        have = len(getattr(segment, name))
        if have != judged:
            raise UsageError(f"{path}.{name} must have {judged} entries, one a judged token, not {have}")
    return segment


def _text(value: object, path: str) -> Text:
    section = Section(value, path)
    answer = Text(
        section.take("prompt", text),
        section.take("max_tokens", positive_integer),
        section.take("text", any_text),
    )
    section.close()
    return answer


def _speed(value: object, path: str) -> Speed:
    section = Section(value, path)
    speed = Speed(
        hardware=section.take("hardware", optional(read_hardware)),
        tp_size=section.take("tp_size", optional(positive_integer)),
        tokens_per_second=section.take("tokens_per_second", positive_number),
        slowest=section.take("slowest", positive_number),
        ttft_s=section.take("ttft_s", optional(positive_number)),
        itl_s=section.take("itl_s", optional(positive_number)),
        output_throughput=section.take("output_throughput", _by_concurrency),
        accept_length=section.take("accept_length", optional(positive_number)),
    )
    section.close()
    return speed


def _by_concurrency(value: object, path: str) -> dict[int, float]:
    """A mapping from concurrency, which JSON keeps as text, to tokens per second."""
    if not isinstance(value, Mapping) or not all(re.fullmatch(r"[1-9]\d{0,5}", str(key)) for key in value):
        raise UsageError(f"{path} must be a mapping from concurrency to tokens per second, not {value!r}")
    return {int(key): positive_number(item, f"{path}.{key}") for key, item in value.items()}


def _size(value: object, path: str) -> float:
    size = number(value, path)
    if size < 0:
        raise UsageError(f"{path} must not be below 0, not {value!r}")
    return size


def _count(value: object, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(f"{path} must be a whole number, not {value!r}")
    return value


def _text_or_copy(value: object, path: str) -> str:
    if value not in ("text", "copy"):
        raise UsageError(f"{path} must be text or copy, not {value!r}")
    return str(value)


# Token ids as text: ten times shorter than a list of numbers, and nobody reads them.


def pack(ids: Sequence[int]) -> str:
    """Token ids as base64 of compressed signed 32-bit numbers, the lowest byte first; -1 is no token."""
    numbers = array("i", ids)
    if sys.byteorder == "big":
        numbers.byteswap()
    return b64encode(zlib.compress(numbers.tobytes(), 9)).decode()


def unpack(packed: str) -> tuple[int, ...]:
    """The token ids of such a text. Raises ValueError."""
    try:
        numbers = array("i", zlib.decompress(b64decode(packed, validate=True)))
    except (NotBase64, zlib.error) as error:
        raise ValueError(f"{error}") from None
    if sys.byteorder == "big":
        numbers.byteswap()
    return tuple(numbers)


def _packed(value: object, path: str) -> tuple[int, ...]:
    if not isinstance(value, str):
        raise UsageError(f"{path} must be packed token ids, not {kind(value)}")
    try:
        return unpack(value)
    except ValueError as error:
        raise UsageError(f"{path} must be packed token ids: {error}") from None


# Writing.


def to_document(record: Pass | Baseline) -> dict[str, object]:
    """The JSON document of a pass or a baseline."""
    made = asdict(record)
    for segment in made["segments"]:
        segment["ids"] = pack(segment["ids"])
        segment["likeliest"] = pack(segment["likeliest"])
    return {"schema_version": SCHEMA_VERSION, "kind": type(record).__name__.lower(), **_plain(made)}  # type: ignore[dict-item]


def to_text(record: Pass | Baseline) -> str:
    """The text of the document's file: always the same for the same record, a list of numbers a line."""
    return _lines(to_document(record), "") + "\n"


def _plain(value: object) -> object:
    """A copy of lists and mappings with texts for keys, as JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _lines(value: object, indent: str) -> str:
    """JSON for people and for diffs: containers over several lines, but plain values of a list in one."""
    deeper = f"{indent} "
    if isinstance(value, dict) and value:
        items = [f"{json.dumps(key)}: {_lines(item, deeper)}" for key, item in value.items()]
        return "{\n" + ",\n".join(deeper + item for item in items) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        return "[\n" + ",\n".join(deeper + _lines(item, deeper) for item in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
