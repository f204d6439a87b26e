"""One run of the gate: from the settings to the document."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from threading import Lock

from .baseline import Deployment
from .chat import Tokens
from .client import Client, Deadline, check_api_key, check_url
from .document import Run, write_document
from .errors import UsageError
from .hints import HINTS
from .model_profile import ModelProfile, read_model_profile
from .probe import Context, Probe, Step
from .probes import PROBES
from .profiles import PROBE_IDS, PROFILES
from .results import Coverage, Evidence, Notes, ProbeResult
from .section import positive_integer, positive_number
from .server import flush_cache, look_at_health, look_at_presence
from .text import excerpt
from .verdict import doubted, judge_probe

SERVER_DIED = "server-died"
# Called after each check with the number done, the number in all, and a short note.
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Settings:
    """What to test and how, checked.

    Where `flush_after_nan` allows it, a server whose logits were NaN is made to forget its cache, which may
    hold them. A server that others use is never flushed unasked.
    """

    url: str
    model: str | None
    profile: str
    model_profile: ModelProfile
    deadline_s: float
    api_key: str | None
    deployment: Deployment
    flush_after_nan: bool

    @property
    def wanted_model(self) -> str | None:
        """The name that the server must serve, None for whichever it serves."""
        return self.model or self.model_profile.served_name


def make_settings(
    *,
    url: str,
    model: str | None = None,
    profile: str = "quick",
    model_profile: object | None = None,
    deadline_s: float | None = None,
    api_key: str | None = None,
    deployment: Deployment | None = None,
    flush_after_nan: bool = False,
    most_concurrency: int | None = None,
    most_tokens: int | None = None,
) -> Settings:
    """Check everything that can be checked without sending anything. Raises UsageError.

    `most_concurrency` and `most_tokens` are the load budget of a server that others use: more requests than
    that are never under way at a time, and a plan that may cost more tokens is refused.
    """
    if profile not in PROFILES:
        raise UsageError(f"profile: must be one of {', '.join(PROFILES)}, not {profile!r}")
    read_profile = read_model_profile(model_profile, thorough=profile != "quick")
    if most_concurrency is not None:
        most_concurrency = positive_integer(most_concurrency, "most_concurrency")
        read_profile = replace(read_profile, most_concurrency=most_concurrency)
    usual_s = read_profile.deadline_s + (read_profile.soak.seconds if profile == "soak" else 0)
    settings = Settings(
        url=check_url(url),
        model=model or None,
        profile=profile,
        model_profile=read_profile,
        deadline_s=usual_s if deadline_s is None else positive_number(deadline_s, "deadline"),
        api_key=None if api_key is None else check_api_key(api_key, "api_key"),
        deployment=deployment or Deployment(),
        flush_after_nan=flush_after_nan,
    )
    if most_tokens is not None:
        _refuse_above(positive_integer(most_tokens, "most_tokens"), settings)
    return settings


def _refuse_above(most_tokens: int, settings: Settings) -> None:
    cost = cost_of([step for _probe, steps in plan(settings) for step in steps], settings)
    tokens = cost.prompt_tokens + cost.completion_tokens
    if tokens > most_tokens:
        raise UsageError(
            f"profile {settings.profile} may cost {tokens} tokens, the load budget is {most_tokens}: "
            f"choose a smaller profile or raise the budget"
        )


def plan(settings: Settings) -> list[tuple[Probe, list[Step]]]:
    """What a run will do."""
    return [(PROBES[name], PROBES[name].plan(settings.model_profile)) for name in PROFILES[settings.profile]]


def plan_lines(settings: Settings) -> list[str]:
    """The plan for people: every check, the most it can cost, and a budget for each probe."""
    lines = [f"plan of profile {settings.profile} for {settings.url}, deadline {settings.deadline_s:g} s"]
    planned = plan(settings)
    for probe, steps in planned:
        lines += [
            f"  {probe.id} {step.check:<12} at most {step.max_tokens:>4} tokens  {step.requests}"
            for step in steps
        ]
        lines.append(f"  {probe.id}: {cost_of(steps, settings)}")
    return [*lines, str(cost_of([step for _probe, steps in planned for step in steps], settings))]


@dataclass(frozen=True)
class Cost:
    """The most that something can cost; the seconds only as the profile's speeds have it."""

    requests: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"at most {self.requests} requests, {self.prompt_tokens} prompt tokens "
            f"and {self.completion_tokens} completion tokens, about {self.seconds:.0f} s"
        )


def cost_of(steps: Sequence[Step], settings: Settings) -> Cost:
    """The budget of some checks together."""
    speed = settings.model_profile.probes.speed
    prefill_s = sum(step.prompt_tokens / speed.prefill for step in steps)
    decode_s = sum(step.max_tokens / (speed.decode * step.concurrency) for step in steps)
    return Cost(
        sum(step.max_requests for step in steps),
        sum(step.prompt_tokens for step in steps),
        sum(step.max_tokens for step in steps),
        prefill_s + decode_s,
    )


def count_checks(settings: Settings) -> int:
    """The number of checks that a run reports progress on."""
    return sum(len(steps) for _probe, steps in plan(settings))


def run_gate(settings: Settings, progress: Progress | None = None) -> dict[str, object]:
    """Run the probes that the profile asks for; the document. Ends in time, and raises for no server."""
    started = datetime.now(UTC)
    total = count_checks(settings)
    done = 0
    lock = Lock()

    def check_done(check: str, verdict: str) -> None:
        nonlocal done
        with lock:
            done += 1
            if progress:
                progress(done, max(done, total), f"{check}: {verdict}")

    context = Context(
        client=Client(
            settings.url,
            Deadline(settings.deadline_s),
            settings.model_profile.request_timeout_s,
            settings.api_key,
        ),
        profile=settings.model_profile,
        wanted_model=settings.wanted_model,
        tokens=Tokens(),
        check_done=check_done,
        may_flush=settings.flush_after_nan,
        deployment=settings.deployment,
    )
    asked = PROFILES[settings.profile]
    results: list[ProbeResult] = []
    untested: dict[str, str] = {}
    for group in in_groups(PROBES[name] for name in asked):
        reasons = {probe.id: reason_to_leave_out(probe, results, context) for probe in group}
        ran = run_group([probe for probe in group if not reasons[probe.id]], context)
        reasons |= {result.id: tested_nothing(result) for result in ran}
        results += [result for result in ran if not reasons[result.id]]
        untested |= {name: reason for name, reason in reasons.items() if reason}
    results = ask_again(results, context)
    run = Run(
        run_id=f"{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}",
        started=started,
        finished=datetime.now(UTC),
        url=settings.url,
        model=settings.wanted_model,
        profile=settings.profile,
        server=context.server,
        baseline=settings.deployment.baseline_for(context.server),
        asked=asked,
        results=results,
        coverage=cover(asked, results, untested),
    )
    return write_document(run, settings.api_key)


def reason_to_leave_out(probe: Probe, results: list[ProbeResult], context: Context) -> str:
    """Why a probe's evidence would mean nothing now; empty if it would not."""
    for result in results:
        if any(entry.rule == SERVER_DIED for entry in result.notes.evidence):
            return f"the server died during {result.id}"
    if results and context.server is None:
        return "the server was not identified"
    failed = [result.id for result in results if result.verdict == "fail" and result.id in probe.after]
    if failed:
        return f"{' and '.join(failed)} failed, so that later evidence would mean nothing"
    if context.client.deadline.remaining() <= 0:
        return f"the deadline of {context.client.deadline.seconds:g} s has passed"
    return ""


def in_groups(probes: Iterable[Probe]) -> list[list[Probe]]:
    """The probes in order: those in a row that disturb nobody as one group, every other by itself."""
    groups = []
    for beside, row in groupby(probes, lambda probe: probe.beside):
        members = list(row)
        groups += [members] if beside else [[probe] for probe in members]
    return groups


def run_group(group: list[Probe], context: Context) -> list[ProbeResult]:
    """Run probes at the same time; the results in their order."""
    if len(group) < 2:
        return [run_probe(probe, context) for probe in group]
    with ThreadPoolExecutor(len(group)) as pool:
        return list(pool.map(lambda probe: run_probe(probe, context.apart()), group))


def ask_again(results: list[ProbeResult], context: Context) -> list[ProbeResult]:
    """The results, with those of a second run for probes whose warnings together are in doubt."""
    again = {first.id: _run_again(first, context) for first in doubted(results)}
    return [again.get(result.id, result) for result in results]


def _run_again(first: ProbeResult, context: Context) -> ProbeResult:
    second = run_probe(PROBES[first.id], context)
    warnings = "; ".join(entry.text for entry in first.notes.evidence if entry.verdict == "warn")
    second.notes.measured["first run"] = {"warned": warnings}
    return replace(second, runs=2)


def tested_nothing(result: ProbeResult) -> str:
    """The reasons of a probe whose checks were all skipped; empty for one that tested something."""
    evidence = result.notes.evidence
    skipped = [entry.text for entry in evidence if entry.verdict == "skipped"]
    return "; ".join(skipped) if len(skipped) == len(evidence) else ""


def run_probe(probe: Probe, context: Context) -> ProbeResult:
    """Run one probe and see that the server lives. A bug becomes an error that names it, and so blocks."""
    notes = Notes()
    began = time.monotonic()
    requests, prompt, completion = context.client.requests, context.tokens.prompt, context.tokens.completion
    try:
        probe.run(context, notes)
    except Exception as error:
        text = f"a bug in the probe {probe.id}: {type(error).__name__}: {excerpt(str(error), 200)}"
        notes.evidence.append(Evidence(probe.id, "error", "internal", text))
    look_for_life(probe.id, context, notes)
    forget_nan(probe.id, context, notes)
    return ProbeResult(
        id=probe.id,
        title=probe.title,
        category=probe.category,
        verdict=judge_probe(notes.evidence),
        duration_s=round(time.monotonic() - began, 3),
        requests=context.client.requests - requests,
        prompt_tokens=context.tokens.prompt - prompt,
        completion_tokens=context.tokens.completion - completion,
        notes=notes,
    )


def look_for_life(probe: str, context: Context, notes: Notes) -> None:
    """See whether the server survived a probe, unless that is known or there is no time left."""
    known = any(entry.rule in (SERVER_DIED, "timeout") for entry in notes.evidence)
    if context.server is None or known or context.client.deadline.remaining() <= 0:
        return
    # Health takes SGLang a second. Where all went well it is enough to see that the server is still there.
    went_well = all(entry.verdict != "error" for entry in notes.evidence)
    death = look_at_presence(context.client) if went_well else look_at_health(context.client)[1]
    if death:
        text = f"the server died during {probe}: {death}"
        notes.evidence.append(Evidence(probe, "error", SERVER_DIED, text, HINTS[SERVER_DIED]))


def forget_nan(probe: str, context: Context, notes: Notes) -> None:
    """Have a server that showed NaN forget its cache, or write down that it was not to be touched.

    What NaN logits were computed from may be cached: https://github.com/jundot/omlx/issues/2255
    """
    if context.server is None or not any(entry.rule == "nan-logits" for entry in notes.evidence):
        return
    if context.may_flush:
        fate = flush_cache(context.client, context.server.engine)
    else:
        fate = "kept, since nobody allowed to flush it: it may hold NaN until it is flushed or restarted"
    notes.measured[probe] = {**notes.measured.get(probe, {}), "cache": fate}


def cover(
    asked: tuple[str, ...], results: list[ProbeResult], untested: Mapping[str, str] | None = None
) -> list[Coverage]:
    """For every probe id whether it tested anything, and why not; `untested` says why for those left out."""
    ran = {result.id: result for result in results}
    coverage = []
    for name in PROBE_IDS:
        if name in ran:
            coverage.append(_cover_result(ran[name]))
        elif name in PROBES:
            reason = (
                (untested or {}).get(name, "") if name in asked else "the run profile does not ask for it"
            )
            coverage.append(Coverage(name, False, reason))
        else:
            coverage.append(Coverage(name, False, "this version of the gate has no such probe"))
    return coverage


def _cover_result(result: ProbeResult) -> Coverage:
    evidence = result.notes.evidence
    tested = any(entry.verdict in ("pass", "warn", "fail") for entry in evidence)
    untested = [entry.text for entry in evidence if entry.verdict in ("error", "skipped")]
    return Coverage(result.id, tested, "; ".join(untested))
