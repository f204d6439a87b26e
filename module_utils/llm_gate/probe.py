"""What a probe is, and what it gets to work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .chat import Chat, Tokens
from .client import Client
from .model_profile import ModelProfile
from .results import Notes
from .server import Server


@dataclass(frozen=True)
class Step:
    """One check as planned: the requests it sends and the most tokens it lets the server make."""

    check: str
    requests: str
    max_requests: int
    max_tokens: int


@dataclass
class Context:
    """What probes share during one run. The smoke probe, always first, fills in `server`."""

    client: Client
    profile: ModelProfile
    wanted_model: str | None
    tokens: Tokens
    check_done: Callable[[str, str], None]
    server: Server | None = None

    def chat(self) -> Chat:
        """A conversation with the identified model."""
        if self.server is None:
            raise RuntimeError("no probe has identified the server yet")
        return Chat(self.client, self.server.model, self.tokens)


@dataclass(frozen=True)
class Probe:
    """A set of checks with one verdict. `run` writes notes as it goes and raises only if it has a bug."""

    id: str
    title: str
    category: str
    plan: Callable[[ModelProfile], list[Step]]
    run: Callable[[Context, Notes], None]
