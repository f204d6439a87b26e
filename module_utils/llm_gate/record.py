"""Records one pass of a baseline: a full run that must pass, then the measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from . import golden
from .baseline import Hardware, Pass, Speed, attributes_of, key_of
from .chat import Tokens
from .client import Client, Deadline
from .errors import NanLogits, NotTested, RequestFailed
from .gate import Progress, Settings, count_checks, run_gate
from .probe import Context
from .results import Scalar
from .server import identify

# Nothing less proves that the answers are worth recording.
PROFILE = "full"


@dataclass(frozen=True)
class Recording:
    """The document of the run, and the pass; without one the reason why nothing was recorded."""

    document: dict[str, object]
    measured: Pass | None
    refused: str


def record_pass(settings: Settings, beside: int = 0, progress: Progress | None = None) -> Recording:
    """Run the gate, and measure if it passed; `beside` other requests run meanwhile. Raises for no server.

    The settings must have the profile PROFILE. Baselines in them are not looked at: the new one takes their
    place. The measurement has the run's deadline once more.
    """
    if settings.profile != PROFILE:
        raise ValueError(f"a pass is recorded by the profile {PROFILE}, not by {settings.profile}")
    settings = replace(settings, deployment=replace(settings.deployment, baseline=None, choice=()))
    document = run_gate(settings, progress)
    if document["verdict"] != "pass":
        return Recording(
            document, None, f"only a run that passed is recorded, this one: {document['summary']}"
        )
    try:
        measured = _measure(settings, document, beside)
    except NotTested as reason:
        return Recording(document, None, f"there is nothing to record: {reason}")
    except (RequestFailed, NanLogits) as error:
        return Recording(document, None, f"the measurement broke off: {error}")
    if progress:
        total = count_checks(settings)
        progress(total, total, f"recorded {len(measured.segments)} segments")
    return Recording(document, measured, "")


def _measure(settings: Settings, document: Mapping[str, Any], beside: int) -> Pass:
    profile = settings.model_profile
    client = Client(settings.url, Deadline(settings.deadline_s), profile.request_timeout_s, settings.api_key)
    server = identify(client, settings.wanted_model)
    context = Context(client, profile, settings.wanted_model, Tokens(), lambda _check, _verdict: None, server)
    asked = golden.scripts(context)
    with golden.company(context, beside):
        segments = tuple(golden.score(context.scorer(), script) for script in asked)
        texts = tuple(golden.answer(context, golden.prompts(profile)))
    return Pass(
        recorded=str(document["finished"]),
        run_id=str(document["run_id"]),
        key=key_of(server, settings.deployment.revision),
        attributes=attributes_of(server),
        segments=segments,
        texts=texts,
        speed=speed_of(document, settings.deployment.hardware, server.settings.get("tp_size")),
    )


def speed_of(document: Mapping[str, Any], hardware: Hardware | None, tp_size: Scalar) -> Speed | None:
    """The speed that a run measured; None if it measured none."""
    measured = {probe["id"]: probe["measured"] for probe in document["probes"]}.get("throughput", {})
    single = measured.get("single", {})
    if single.get("tokens_per_second") is None:
        return None
    return Speed(
        hardware=hardware,
        tp_size=tp_size if isinstance(tp_size, int) and not isinstance(tp_size, bool) else None,
        tokens_per_second=single["tokens_per_second"],
        slowest=single["tokens_per_second"],
        ttft_s=_seconds(single.get("median_ttft_ms")),
        itl_s=_seconds(single.get("median_itl_ms")),
        output_throughput={
            values["concurrency"]: values["output_throughput"]
            for values in measured.values()
            if values.get("output_throughput")
        },
        accept_length=single.get("accept_length"),
    )


def _seconds(milliseconds: float | None) -> float | None:
    return round(milliseconds / 1000, 6) if milliseconds else None
