"""Finds out what answers at the address: model, engine, settings. Named fields only; the rest holds keys."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from .client import Client
from .errors import HttpStatus, Malformed, NotJson, RequestFailed
from .results import Scalar
from .text import excerpt

# Fields of SGLang's /server_info that say what is served and how. `api_key` is in there as well.
SETTINGS = (
    "revision",
    "quantization",
    "kv_cache_dtype",
    "dtype",
    "tp_size",
    "dp_size",
    "context_length",
    "attention_backend",
    "moe_runner_backend",
    "fp4_gemm_runner_backend",
    "reasoning_parser",
    "tool_call_parser",
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_num_draft_tokens",
    "disable_overlap_schedule",
    "disable_radix_cache",
    "chunked_prefill_size",
    "page_size",
)
# A health request makes SGLang generate one token and waits up to 20 s for it.
LOOK_S = 30.0


@dataclass(frozen=True)
class Server:
    """The server under test. `model` is the name to ask it by; None where it did not say.

    `may_ask_logprobs` is about logprobs of generated tokens, `why_not_score` about those of a prompt: empty
    where they may be asked for.
    """

    model: str
    served_names: tuple[str, ...]
    model_path: str | None
    engine: str | None
    engine_version: str | None
    settings: Mapping[str, Scalar]
    context_length: int | None
    may_ask_logprobs: bool
    why_not_score: str

    def count(self, name: str) -> int | None:
        """A setting that is a number above 0, else None."""
        value = self.settings.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def identify(client: Client, wanted_model: str | None) -> Server:
    """Read the model list, and SGLang's own pages where there are any. Raises RequestFailed."""
    info = _page(client, "/model_info", "/get_model_info")
    entries = _model_entries(client.get("/v1/models"))
    settings = _page(client, "/server_info", "/get_server_info")
    names = tuple(_name(entry) for entry in entries)
    model = wanted_model if wanted_model in names else names[0]
    assert model is not None
    own = entries[names.index(model)]
    engine = "sglang" if info is not None else _text(own, "owned_by")
    if engine not in ("sglang", "vllm"):
        engine = None
    # A logprob request can crash SGLang with speculative decoding:
    # https://github.com/sgl-project/sglang/issues/19761
    speculative = bool(settings.get("speculative_algorithm")) if settings is not None else engine == "sglang"
    version = _text(settings or {}, "version")
    return Server(
        model=model,
        served_names=names,
        model_path=_text(info or {}, "model_path") or _text(own, "root"),
        engine=engine,
        engine_version=version,
        settings={key: _scalar(settings[key]) for key in SETTINGS if key in settings} if settings else {},
        context_length=_context_length(own, settings or {}),
        may_ask_logprobs=not speculative,
        why_not_score=_why_not_score(engine, version, settings),
    )


def _why_not_score(engine: str | None, version: str | None, settings: Mapping[str, object] | None) -> str:
    """Why the server cannot safely be asked for the logprobs of a prompt; empty if it can."""
    if engine == "vllm":
        return ""
    if engine != "sglang":
        return "this engine offers no logprobs of a given text"
    if settings is None:
        return "the server does not say whether it speculates, and a logprob request can crash one that does"
    # Prefill does not use the draft model, so that speculation as such is no obstacle. EAGLE3 with the
    # overlapping scheduler is: https://github.com/sgl-project/sglang/issues/17349 (fix: pull 21589; 0.5.23 is
    # known to have it).
    eagle3 = settings.get("speculative_algorithm") == "EAGLE3" and not settings.get(
        "disable_overlap_schedule"
    )
    if eagle3 and _numbers(version) < (0, 5, 23):
        return f"SGLang {version or 'of unknown version'} with EAGLE3 and overlap crashes on logprob requests"
    return ""


def _numbers(version: str | None) -> tuple[int, ...]:
    """The leading numbers of a version, () for none: 0.5.9.post1 is (0, 5, 9)."""
    match = re.match(r"\d+(\.\d+)*", version or "")
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def _context_length(entry: Mapping[str, object], settings: Mapping[str, object]) -> int | None:
    """The longest prompt with its answer, in tokens, where the server tells it."""
    for value in (entry.get("max_model_len"), settings.get("context_length")):
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def look_at_health(client: Client) -> tuple[int | None, str | None]:
    """The status of /health (None without a reply), and how the server shows that it broke, if it did.

    Any status below 500 is life. Health says nothing about the answers: it is 200 with NaN in the weights.
    """
    try:
        status = client.look("/health", LOOK_S)
    except RequestFailed as error:
        return None, str(error)
    return status, f"GET /health: HTTP {status}" if status >= 500 else None


def look_at_presence(client: Client) -> str | None:
    """How the server shows that it is gone, if it is; a page that costs it nothing."""
    try:
        status = client.look("/v1/models", LOOK_S)
    except RequestFailed as error:
        return str(error)
    return f"GET /v1/models: HTTP {status}" if status >= 500 else None


def flush_cache(client: Client, engine: str | None) -> str:
    """Have the server forget its prefix cache; what came of it, in words."""
    page = "/reset_prefix_cache" if engine == "vllm" else "/flush_cache"
    try:
        status = client.look(page, LOOK_S, "POST")
    except RequestFailed as error:
        return f"not flushed: {error}"
    return "flushed" if status == 200 else f"not flushed: POST {page}: HTTP {status}"


def _page(client: Client, path: str, old_path: str) -> dict[str, object] | None:
    """A page that only SGLang has, by its new or its deprecated name; None if there is none."""
    for name in (path, old_path):
        try:
            page = client.get(name)
        except HttpStatus as error:
            if error.status in (401, 403):
                raise
        except NotJson:
            pass
        else:
            if not isinstance(page, dict):
                raise Malformed(f"GET {name}: the reply is no object")
            return page
    return None


def _model_entries(reply: object) -> list[dict[str, object]]:
    data = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(data, list) or not data or not all(isinstance(entry, dict) for entry in data):
        raise Malformed(f"GET /v1/models: the reply lists no models: {excerpt(str(reply))!r}")
    return data


def _name(entry: dict[str, object]) -> str:
    name = entry.get("id")
    if not isinstance(name, str) or not name:
        raise Malformed(f"GET /v1/models: a model's id is {excerpt(str(name), 40)!r}, not a text")
    return name


def _text(holder: Mapping[str, object], name: str) -> str | None:
    value = holder.get(name)
    return value if isinstance(value, str) else None


def _scalar(value: object) -> Scalar:
    if isinstance(value, (str, bool, int)):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else None
