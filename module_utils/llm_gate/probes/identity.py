"""The server says that it is what the model profile expects: nothing is generated.

A wrong quantisation, KV-cache type or degree of parallelism is another deployment than the one to be proved,
however well it answers. An FP8 KV cache without scales in the checkpoint is flagged: short answers survive
it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..model_profile import ModelProfile
from ..probe import Check, Context, Probe, Step, run_checks
from ..probe_data import KvScales
from ..results import CheckVerdict, Notes, Scalar
from ..server import Server
from ..text import excerpt


def plan(profile: ModelProfile) -> list[Step]:
    """Both checks read what the smoke probe asked for."""
    wanted = ", ".join(profile.probes.expect) or "the profile expects nothing in particular"
    return [
        Step("settings", f"nothing more; compares {wanted}", 0, 0),
        Step("kv_scales", "nothing more", 0, 0),
    ]


def run(context: Context, notes: Notes) -> None:
    """Compare the settings, then look at the KV cache's scales."""
    run_checks(context, notes, {"settings": _settings, "kv_scales": _kv_scales})


def _settings(check: Check, context: Context) -> None:
    server, expect = context.identified(), context.profile.probes.expect
    told = told_by(server)
    check.limits(expect)
    check.measured({name: told.get(name) for name in expect})
    for verdict, text in judge_settings(told, expect, server.served_names, context.wanted_model):
        check.say(verdict, "identity" if verdict == "fail" else "settings", text)


def _kv_scales(check: Check, context: Context) -> None:
    dtype = context.identified().settings.get("kv_cache_dtype")
    check.measured({"kv_cache_dtype": dtype})
    verdict, text = judge_kv_scales(dtype, context.profile.probes.kv_scales)
    check.say(verdict, "kv-scales", text)


def told_by(server: Server) -> dict[str, Scalar]:
    """What the server says of itself, by the names that a profile may expect."""
    told: dict[str, Scalar] = dict(server.settings)
    if server.engine_version is not None:
        told["version"] = server.engine_version
    if server.model_path is not None:
        told["model_path"] = server.model_path
    return told


def judge_settings(
    told: Mapping[str, Scalar],
    expect: Mapping[str, Scalar],
    served_names: tuple[str, ...],
    wanted_model: str | None,
) -> list[tuple[CheckVerdict, str]]:
    """Every expected value that is another, then those that the server does not tell, then what is right."""
    names = excerpt(", ".join(served_names))
    judged: list[tuple[CheckVerdict, str]] = []
    if wanted_model is not None and wanted_model not in served_names:
        judged.append(("fail", f"expected the model {wanted_model!r}, the server serves {names!r}"))
    judged += [
        ("fail", f"{name} is {told[name]!r}, expected {wanted!r}")
        for name, wanted in expect.items()
        if name in told and told[name] != wanted
    ]
    untold = [name for name in expect if name not in told]
    if untold:
        judged.append(("skipped", f"the server does not tell {', '.join(untold)}"))
    if not any(verdict == "fail" for verdict, _text in judged):
        right = [f"{name} {told[name]}" for name, wanted in expect.items() if name in told]
        judged.append(("pass", f"serves {', '.join([names, *right])}"))
    return judged


def judge_kv_scales(dtype: Scalar, scales: KvScales | None) -> tuple[CheckVerdict, str]:
    """What an FP8 KV cache means with or without scales in the checkpoint."""
    if dtype is None:
        return "skipped", "the server does not tell its kv_cache_dtype"
    if not str(dtype).startswith("fp8"):
        return "pass", f"kv_cache_dtype is {dtype}, which needs no scales"
    if scales is None:
        return "skipped", f"kv_cache_dtype is {dtype}, and the profile does not say whether it ships scales"
    if scales.shipped:
        return "pass", f"kv_cache_dtype is {dtype}, and the checkpoint ships its scales"
    verdict: CheckVerdict = "fail" if scales.otherwise == "fail" else "warn"
    return verdict, f"kv_cache_dtype is {dtype}, but the checkpoint ships no scales"


PROBE = Probe("identity", "The server is the one expected", "identity", plan, run, after=())
