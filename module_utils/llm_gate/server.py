"""Finds out what answers at the address: model, engine, settings. Named fields only; the rest holds keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .client import Client
from .errors import HttpStatus, Malformed, NotJson, RequestFailed
from .results import Scalar
from .text import excerpt

# Fields of SGLang's /server_info that say what is served and how. `api_key` is in there as well.
SETTINGS = (
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
)
# A health request makes SGLang generate one token and waits up to 20 s for it.
LOOK_S = 30.0


@dataclass(frozen=True)
class Server:
    """The server under test. `model` is the name to ask it by; None where it did not say."""

    model: str
    served_names: tuple[str, ...]
    model_path: str | None
    engine: str | None
    engine_version: str | None
    settings: Mapping[str, Scalar]
    may_ask_logprobs: bool


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
    # A logprob request can crash SGLang with speculative decoding: https://github.com/sgl-project/sglang/issues/19761
    speculative = bool(settings.get("speculative_algorithm")) if settings is not None else engine == "sglang"
    return Server(
        model=model,
        served_names=names,
        model_path=_text(info or {}, "model_path") or _text(own, "root"),
        engine=engine,
        engine_version=_text(settings or {}, "version"),
        settings={key: _scalar(settings[key]) for key in SETTINGS if key in settings} if settings else {},
        may_ask_logprobs=not speculative,
    )


def look_at_health(client: Client) -> tuple[int | None, str | None]:
    """The status of /health (None without a reply), and how the server shows that it is dead, if it is.

    Any status below 500 is life. Health says nothing about the answers: it is 200 with NaN in the weights.
    """
    try:
        status = client.look("/health", LOOK_S)
    except RequestFailed as error:
        return None, str(error)
    return status, f"GET /health: HTTP {status}" if status >= 500 else None


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
