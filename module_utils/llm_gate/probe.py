"""What a probe is, what it gets to work with, and how its checks are run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from .baseline import Deployment
from .chat import Chat, Tokens
from .client import Client
from .errors import HttpStatus, NanLogits, NotTested, RequestFailed
from .hints import HINTS
from .model_profile import ModelProfile
from .results import CheckVerdict, Evidence, Notes, Scalar
from .scoring import Scorer, make_scorer
from .server import Server

# Shorter prompts leave nothing to score behind a nonce.
LEAST_PROMPT = 64
# What must not have failed for the evidence of the other probes to mean anything.
GROUND = ("smoke", "identity", "template", "nan_scan")


@dataclass(frozen=True)
class Step:
    """One check as planned: the requests it sends, the most tokens it lets the server make, those it sends.

    `concurrency` is the number of requests under way at a time.
    """

    check: str
    requests: str
    max_requests: int
    max_tokens: int
    prompt_tokens: int = 0
    concurrency: int = 1


@dataclass
class Context:
    """What probes share during one run. The smoke probe, always first, fills in `server`."""

    client: Client
    profile: ModelProfile
    wanted_model: str | None
    tokens: Tokens
    check_done: Callable[[str, str], None]
    server: Server | None = None
    may_flush: bool = False
    deployment: Deployment = field(default_factory=Deployment)
    _scorer: Scorer | None = None

    def apart(self) -> Context:
        """The same for a probe that runs beside others: what it sends and spends is counted by itself."""
        return replace(self, client=self.client.again(), tokens=Tokens(), _scorer=None)

    def chat(self) -> Chat:
        """A conversation with the identified model."""
        return Chat(self.client, self.identified().model, self.tokens)

    def scorer(self) -> Scorer:
        """What asks for logprobs of given tokens. Raises NotTested where the engine has no safe way."""
        longest = self.longest_prompt()
        if longest is not None and longest < LEAST_PROMPT:
            raise NotTested(f"a context of {longest + 8} tokens is too short for logprobs to say anything")
        if self._scorer is None:
            filler = self.profile.probes.filler
            self._scorer = make_scorer(self.client, self.identified(), self.tokens, filler)
        return self._scorer

    def identified(self) -> Server:
        """The server under test, once it is known."""
        if self.server is None:
            raise RuntimeError("no probe has identified the server yet")
        return self.server

    def longest_prompt(self) -> int | None:
        """The most tokens that a prompt may have so that a few more can be made; None where nobody says."""
        told = (self.profile.probes.context_length, self.identified().context_length)
        known = [length for length in told if length is not None]
        return min(known) - 8 if known else None

    def fitting(self, lengths: tuple[int, ...]) -> tuple[int, ...]:
        """Those lengths that the context can hold."""
        longest = self.longest_prompt()
        return tuple(length for length in lengths if longest is None or length <= longest)


@dataclass(frozen=True)
class Probe:
    """A set of checks with one verdict. `run` writes notes as it goes and raises only if it has a bug.

    It is not run if one of the probes `after` which it comes has failed. A probe whose checks were all
    skipped has tested nothing: it stands in the coverage with their reasons and has no verdict. Probes in a
    row that say `beside` disturb nobody and run at the same time.
    """

    id: str
    title: str
    category: str
    plan: Callable[[ModelProfile], list[Step]]
    run: Callable[[Context, Notes], None]
    after: tuple[str, ...] = GROUND
    beside: bool = False


@dataclass(frozen=True)
class Check:
    """One check at work: where it writes, and shorthands for what it writes."""

    name: str
    notes: Notes

    def say(self, verdict: CheckVerdict, rule: str, text: str) -> None:
        """Write down evidence, with the hint for its rule."""
        hint = HINTS.get(rule, "") if verdict in ("warn", "fail", "error") else ""
        self.notes.evidence.append(Evidence(self.name, verdict, rule, text, hint))

    def measured(self, figures: Mapping[str, Scalar]) -> None:
        """Write down figures, rounded to four digits after the point."""
        self.notes.measured[self.name] = {**self.notes.measured.get(self.name, {}), **_rounded(figures)}

    def limits(self, figures: Mapping[str, Scalar]) -> None:
        """Write down the limits that the figures are held against."""
        self.notes.limits[self.name] = {**self.notes.limits.get(self.name, {}), **figures}

    def attempt(self, work: Callable[[], None]) -> bool:
        """Do a piece of work; whether it was done. A reply that is missing or shows NaN becomes evidence."""
        try:
            work()
        except NotTested as reason:
            self.say("skipped", "not-tested", f"{self.name} not tested: {reason}")
        except NanLogits as found:
            self.measured({"nan_positions": found.positions})
            self.say("fail", "nan-logits", f"{self.name}: {found}")
        except RequestFailed as error:
            self.notes.evidence.append(failed_request(self.name, error))
        else:
            return True
        return False


def run_checks(
    context: Context, notes: Notes, checks: Mapping[str, Callable[[Check, Context], None]]
) -> None:
    """Run checks in order. Nothing is asked once the time is up: that is said once."""
    stopped = ""
    for name, work in checks.items():
        check = Check(name, notes)
        before = len(notes.evidence)
        if stopped:
            check.say("skipped", "not-tested", f"{name} not tested: {stopped}")
        else:
            check.attempt(partial(work, check, context))
            if context.client.deadline.remaining() <= 0:
                stopped = f"the deadline of {context.client.deadline.seconds:g} s passed during {name}"
                if not any(entry.rule == "timeout" for entry in notes.evidence[before:]):
                    check.say("error", "timeout", stopped)
        context.check_done(name, verdict_of(name, notes))


def verdict_of(name: str, notes: Notes) -> CheckVerdict:
    """The gravest word about one check."""
    order: tuple[CheckVerdict, ...] = ("skipped", "pass", "warn", "error", "fail")
    words = (entry.verdict for entry in notes.evidence if entry.check == name)
    return max(words, key=order.index, default="skipped")


def failed_request(check: str, error: RequestFailed) -> Evidence:
    """What a request without a usable reply is as evidence: it proves nothing, and blocks."""
    hint = HINTS.get(error.rule, "")
    if isinstance(error, HttpStatus):
        hint = HINTS.get({403: "http-401"}.get(error.status, f"http-{error.status}"), "")
    return Evidence(check, "error", error.rule, str(error), hint)


def _rounded(figures: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}
