"""Reads conversations and tools as a model profile gives them: in the form in which clients send them."""

from __future__ import annotations

from collections.abc import Mapping

from .errors import UsageError
from .json_schema import check_schema
from .section import Section, any_text, each, kind, optional, text

Messages = tuple[Mapping[str, object], ...]
ROLES = ("system", "developer", "user", "assistant", "tool")


def read_messages(value: object, path: str) -> Messages:
    """At least one message with `role` and `content`. Raises UsageError."""
    return each(_message, 1)(value, path)


def read_tools(value: object, path: str) -> Messages:
    """Tools as `{type: function, function: {name, description, parameters}}`. Raises UsageError."""
    return each(_tool, 1)(value, path)


def parameters_of(tool: Mapping[str, object]) -> Mapping[str, object]:
    """The schema of a read tool's arguments; empty, which everything keeps to, where it takes none."""
    function = tool["function"]
    assert isinstance(function, Mapping)
    parameters = function.get("parameters")
    return parameters if isinstance(parameters, Mapping) else {}


def name_of(tool: Mapping[str, object]) -> str:
    """A read tool's name."""
    function = tool["function"]
    assert isinstance(function, Mapping)
    return str(function["name"])


def _message(value: object, path: str) -> Mapping[str, object]:
    section = Section(value, path)
    section.take("role", _role)
    section.take("content", optional(any_text), None)
    section.take_if_there("name", text)
    section.take_if_there("tool_call_id", text)
    section.take_if_there("tool_calls", each(_mapping, 1))
    section.close()
    assert isinstance(value, Mapping)
    return dict(value)


def _role(value: object, path: str) -> str:
    if value not in ROLES:
        raise UsageError(f"{path} must be one of {', '.join(ROLES)}, not {value!r}")
    return str(value)


def _tool(value: object, path: str) -> Mapping[str, object]:
    section = Section(value, path)
    section.take("type", _function_word)
    section.take("function", _function)
    section.close()
    assert isinstance(value, Mapping)
    return dict(value)


def _function_word(value: object, path: str) -> str:
    if value != "function":
        raise UsageError(f"{path} must be function, not {value!r}")
    return str(value)


def _function(value: object, path: str) -> None:
    section = Section(value, path)
    section.take("name", text)
    section.take_if_there("description", text)
    section.take_if_there("parameters", check_schema)
    section.close()


def _mapping(value: object, path: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{path} must be a mapping, not {kind(value)}")
    return value
