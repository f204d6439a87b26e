"""Everything that can go wrong by design. Anything else is a bug in the gate."""

from __future__ import annotations


class UsageError(Exception):
    """What the caller asked for cannot be done as asked; nothing has been sent."""


class RequestFailed(Exception):
    """A request brought no usable reply. `rule` is the short name used in evidence."""

    rule = "request-failed"


class Unreachable(RequestFailed):
    """No connection: refused, no route, unknown name, or TLS trouble."""

    rule = "unreachable"


class Dropped(RequestFailed):
    """The connection broke before the reply was complete."""

    rule = "dropped"


class TimedOut(RequestFailed):
    """The reply was not complete within the time allowed for one request, or the run's deadline passed."""

    rule = "timeout"


class TooLarge(RequestFailed):
    """The reply is longer than any answer to the gate's requests can be."""

    rule = "too-large"


class NotJson(RequestFailed):
    """The reply is not JSON."""

    rule = "not-json"


class Malformed(RequestFailed):
    """The reply is JSON of the wrong shape."""

    rule = "malformed"


# Statuses by which servers say that they do not take a request as it is.
REFUSED = frozenset({400, 415, 422, 501})


class HttpStatus(RequestFailed):
    """The server answered with a status other than 200."""

    rule = "http-status"

    def __init__(self, status: int, body: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = body


class NotTested(Exception):
    """A check cannot be made here; the message says why. It counts neither for nor against the server."""


class NanLogits(Exception):
    """A scored reply shows NaN logits in one of their faces, at so many positions as far as known."""

    def __init__(self, message: str, positions: int) -> None:
        super().__init__(message)
        self.positions = positions
