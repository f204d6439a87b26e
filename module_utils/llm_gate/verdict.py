"""Puts verdicts together. Pure functions.

`fail` is a proved fault, `error` says that something could not be tested; both keep a release from serving.
Where both occur the proved fault is the news: pass < warn < error < fail.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from .results import Coverage, Evidence, ProbeResult, Verdict

ORDER: tuple[Verdict, ...] = ("pass", "warn", "error", "fail")
# Their warnings are about the interface and the speed, and say nothing against the answers.
ASIDE = frozenset({"protocol", "throughput"})


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The gravest of some verdicts. Nothing tested is an error."""
    return max(verdicts, key=ORDER.index, default="error")


def judge_probe(evidence: Iterable[Evidence]) -> Verdict:
    """The verdict of a probe. Skipped checks count neither way."""
    return worst(entry.verdict for entry in evidence if entry.verdict != "skipped")


def unaccounted(asked: Sequence[str], ran: Collection[str], coverage: Iterable[Coverage]) -> list[str]:
    """The asked probes that neither ran nor stand in the coverage with a reason."""
    explained = {entry.id for entry in coverage if not entry.tested and entry.reason}
    return [probe for probe in asked if probe not in ran and probe not in explained]


def doubted(results: Iterable[ProbeResult]) -> list[ProbeResult]:
    """The results that warn about the answers, if there are two or more.

    One warning never blocks. Two on different probes are no accident: both are asked once more, and if both
    warn again, the run has failed.
    """
    warned = [result for result in results if result.verdict == "warn" and result.id not in ASIDE]
    return warned if len(warned) >= 2 else []


def judge_run(asked: Sequence[str], results: Sequence[ProbeResult], coverage: Iterable[Coverage]) -> Verdict:
    """The verdict of a run: that of its worst probe, and an error if an asked probe is unaccounted for.

    Two warnings that came back when asked again make it fail.
    """
    verdicts = [result.verdict for result in results]
    if doubted(result for result in results if result.runs > 1):
        verdicts.append("fail")
    if unaccounted(asked, {result.id for result in results}, coverage):
        verdicts.append("error")
    return worst(verdicts)
