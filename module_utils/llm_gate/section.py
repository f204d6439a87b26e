"""Reads mappings that people wrote, strictly: a missing, misspelt or wrong value is refused by its path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeGuard, TypeVar

from .errors import UsageError
from .text import excerpt

T = TypeVar("T")
NEEDED = object()
# No context, time in seconds or rate comes near it, and everything can reckon with it.
LARGEST = 10_000_000


class Section:
    """One mapping of the profile; whatever was not taken by the end is an unknown key."""

    def __init__(self, value: object, path: str) -> None:
        if value is None:
            raise UsageError(f"{path} is missing")
        if not isinstance(value, Mapping):
            raise UsageError(f"{path} must be a mapping, not {kind(value)}")
        self._rest = dict(value)
        self._path = path

    def take(self, key: str, read: Callable[[object, str], T], default: object = NEEDED) -> T:
        """The value of a key as `read` makes it; a default is read the same way. Raises UsageError."""
        path = f"{self._path}.{key}"
        if key not in self._rest and default is NEEDED:
            raise UsageError(f"{path} is missing")
        return read(self._rest.pop(key, default), path)

    def take_if_there(self, key: str, read: Callable[[object, str], object]) -> None:
        """Check the value of a key that may be absent and has no default. Raises UsageError."""
        if key in self._rest:
            self.take(key, read)

    def close(self) -> None:
        """Refuse what was not taken. Raises UsageError."""
        if self._rest:
            names = ", ".join(f"{self._path}.{key}" for key in self._rest)
            raise UsageError(f"unknown key {names}")


def positive_number(value: object, path: str) -> float:
    """A number above 0, up to LARGEST. Raises UsageError."""
    if not _is_number(value) or not 0 < value <= LARGEST:
        raise UsageError(f"{path} must be a number above 0, not {shown(value)}, and at most {LARGEST}")
    return float(value)


def number(value: object, path: str) -> float:
    """A number from -LARGEST to LARGEST. Raises UsageError."""
    if not _is_number(value) or not -LARGEST <= value <= LARGEST:
        raise UsageError(f"{path} must be a number, not {shown(value)}, and at most {LARGEST}")
    return float(value)


def positive_integer(value: object, path: str, most: int = LARGEST) -> int:
    """A whole number from 1 to `most`. Raises UsageError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise UsageError(
            f"{path} must be a whole number of at least 1, not {shown(value)}, and at most {most}"
        )
    return int(value)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def shown(value: object) -> str:
    """A value for people, cut short: Python refuses to write out whole numbers of many digits."""
    try:
        return excerpt(repr(value), 80)
    except ValueError:
        return "a number of very many digits"


def text(value: object, path: str) -> str:
    """A text that is not blank. Raises UsageError."""
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{path} must be a text, not {shown(value)}")
    return str(value)


def any_text(value: object, path: str) -> str:
    """A text, blank or not. Raises UsageError."""
    if not isinstance(value, str):
        raise UsageError(f"{path} must be a text, not {shown(value)}")
    return str(value)


def boolean(value: object, path: str) -> bool:
    """True or false. Raises UsageError."""
    if not isinstance(value, bool):
        raise UsageError(f"{path} must be true or false, not {shown(value)}")
    return value


def optional(read: Callable[[object, str], T]) -> Callable[[object, str], T | None]:
    """The same reader, which also takes None for None."""
    return lambda value, path: None if value is None else read(value, path)


def each(read: Callable[[object, str], T], least: int = 0) -> Callable[[object, str], tuple[T, ...]]:
    """A reader of lists of at least so many items."""

    def read_list(value: object, path: str) -> tuple[T, ...]:
        if not isinstance(value, (list, tuple)) or len(value) < least:
            wanted = f"a list of at least {least}" if least else "a list"
            raise UsageError(f"{path} must be {wanted}, not {kind(value)}")
        return tuple(read(item, f"{path}[{number}]") for number, item in enumerate(value))

    return read_list


def kind(value: object) -> str:
    """What a value is, for people."""
    return "nothing" if value is None else type(value).__name__
