"""JSON and the part of JSON Schema that model profiles may use, so that the gate needs no package for it.

Meaning of the keywords: https://json-schema.org/draft/2020-12/json-schema-validation
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import NoReturn

from .errors import UsageError
from .section import Section, any_text, boolean, each, kind, number, text
from .text import excerpt


def parse_json(source: str) -> object:
    """The value of a JSON text. Raises ValueError, for NaN and too deep nesting as well."""
    try:
        return json.loads(source, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def check_schema(schema: object, path: str) -> Mapping[str, object]:
    """The schema, if `violation` understands all of it. Raises UsageError with the path.

    Keywords: type (one of them), enum, const, properties, required, additionalProperties (true or false),
    items, minimum, maximum; title and description say nothing about values.
    """
    section = Section(schema, path)
    for keyword, read in _KEYWORDS.items():
        section.take_if_there(keyword, read)
    section.close()
    assert isinstance(schema, Mapping)
    return schema


def violation(value: object, schema: Mapping[str, object], where: str = "") -> str:
    """The first way in which a value breaks a checked schema, for people; empty if it keeps to it."""
    for keyword, rule in schema.items():
        judge = _JUDGES.get(keyword)
        broken = judge(value, rule, where) if judge else ""
        if broken:
            return broken
    if isinstance(value, Mapping) and schema.get("additionalProperties") is False:
        known = schema.get("properties", {})
        extra = sorted(str(key) for key in value if key not in known)  # type: ignore[operator]
        if extra:
            return f"{_named(where)} has the unknown key {extra[0]!r}"
    return ""


def equal(one: object, other: object) -> bool:
    """Whether two JSON values are the same; true is not 1, while 1.0 is."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


def _is_number(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return value.is_integer() if isinstance(value, float) else _is_number(value)


_TYPES: Mapping[str, Callable[[object], bool]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": _is_integer,
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


def _named(where: str) -> str:
    return where or "it"


def _shown(value: object) -> str:
    try:
        return excerpt(json.dumps(value, ensure_ascii=False), 40)
    except RecursionError:
        return "nested too deeply"


def _judge_type(value: object, wanted: object, where: str) -> str:
    if _TYPES[str(wanted)](value):
        return ""
    return f"{_named(where)} is {_shown(value)}, not of type {wanted}"


def _judge_enum(value: object, allowed: object, where: str) -> str:
    if any(equal(value, one) for one in allowed):  # type: ignore[attr-defined]
        return ""
    return f"{_named(where)} is {_shown(value)}, not one of {allowed}"


def _judge_const(value: object, wanted: object, where: str) -> str:
    return _judge_enum(value, [wanted], where)


def _judge_required(value: object, keys: object, where: str) -> str:
    missing = [key for key in keys if key not in value] if isinstance(value, Mapping) else []  # type: ignore[attr-defined]
    return f"{_named(where)} lacks the key {missing[0]!r}" if missing else ""


def _judge_properties(value: object, schemas: object, where: str) -> str:
    if not isinstance(value, Mapping) or not isinstance(schemas, Mapping):
        return ""
    broken = (
        violation(value[key], rule, f"{where}.{key}".lstrip("."))
        for key, rule in schemas.items()
        if key in value
    )
    return next(filter(None, broken), "")


def _judge_items(value: object, schema: object, where: str) -> str:
    if not isinstance(value, list) or not isinstance(schema, Mapping):
        return ""
    return next(
        filter(None, (violation(item, schema, f"{where}[{place}]") for place, item in enumerate(value))), ""
    )


def _judge_minimum(value: object, least: object, where: str) -> str:
    too_small = _is_number(value) and value < least  # type: ignore[operator]
    return f"{_named(where)} is {value}, below {least}" if too_small else ""


def _judge_maximum(value: object, most: object, where: str) -> str:
    too_large = _is_number(value) and value > most  # type: ignore[operator]
    return f"{_named(where)} is {value}, above {most}" if too_large else ""


_JUDGES: Mapping[str, Callable[[object, object, str], str]] = {
    "type": _judge_type,
    "enum": _judge_enum,
    "const": _judge_const,
    "required": _judge_required,
    "properties": _judge_properties,
    "items": _judge_items,
    "minimum": _judge_minimum,
    "maximum": _judge_maximum,
}


def _known_type(value: object, path: str) -> str:
    if not isinstance(value, str) or value not in _TYPES:
        raise UsageError(f"{path} must be one of {', '.join(_TYPES)}, not {value!r}")
    return value


def _anything(value: object, path: str) -> object:
    return value


def _schemas(value: object, path: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{path} must be a mapping of schemas, not {kind(value)}")
    return {key: check_schema(schema, f"{path}.{key}") for key, schema in value.items()}


_KEYWORDS: Mapping[str, Callable[[object, str], object]] = {
    "title": any_text,
    "description": any_text,
    "type": _known_type,
    "enum": each(_anything, 1),
    "const": _anything,
    "properties": _schemas,
    "required": each(text),
    "additionalProperties": boolean,
    "items": check_schema,
    "minimum": number,
    "maximum": number,
}
