"""The gate's validator against the reference implementation."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from llm_gate.errors import UsageError
from llm_gate.json_schema import check_schema, equal, parse_json, violation

SCHEMAS: list[dict[str, Any]] = [
    {},
    *({"type": name} for name in ("object", "array", "string", "integer", "number", "boolean", "null")),
    {"enum": ["a", 1, None, {"k": [True]}]},
    {"const": False},
    {"type": "integer", "minimum": 0, "maximum": 10},
    {"required": ["a"], "properties": {"a": {"type": "string"}, "b": {"items": {"type": "integer"}}}},
    {"properties": {"a": {}, "b": {}}, "additionalProperties": False},
    {"type": "array", "items": {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}},
]
VALUES: list[Any] = [
    *(None, True, False, 0, 1, 1.0, 1.5, -1, 11, "a", "", [], {}, [1, 2], ["a"], {"a": "x"}, {"a": 1}),
    *({"a": "x", "b": [1, 2]}, {"a": "x", "b": [1, "2"]}, {"c": 1}, {"k": [True]}, {"k": [1]}),
    *([{"a": 1}], [{"a": 3}], [{"a": 1}, {}], [{"a": True}], 10**400),
]


@pytest.mark.parametrize(("schema", "value"), list(itertools.product(SCHEMAS, VALUES)))
def test_it_judges_as_the_reference_does(schema: dict[str, Any], value: Any) -> None:
    check_schema(schema, "schema")
    assert (violation(value, schema) == "") is Draft202012Validator(schema).is_valid(value)


def test_a_violation_names_the_place() -> None:
    schema = check_schema(
        {"properties": {"a": {"type": "array", "items": {"properties": {"b": {"type": "string"}}}}}}, "s"
    )
    assert violation({"a": [{}, {"b": 1}]}, schema) == "a[1].b is 1, not of type string"
    assert violation({}, {"required": ["x"]}) == "it lacks the key 'x'"
    assert violation({"y": 1}, {"additionalProperties": False}) == "it has the unknown key 'y'"


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        {"$ref": "#"},
        {"anyOf": []},
        {"type": ["string", "null"]},
        {"enum": []},
        {"required": "a"},
        {"additionalProperties": {}},
        {"properties": {"a": 1}},
        {"items": {"format": "date"}},
        {"minimum": "1"},
    ],
)
def test_what_it_does_not_understand_is_refused(schema: Any) -> None:
    with pytest.raises(UsageError, match="schema"):
        check_schema(schema, "schema")


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", "[Infinity]", "{'a': 1}", '{"a": 1} trailing', "[" * 100_000]
)
def test_what_is_no_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_equal_takes_no_true_for_1() -> None:
    assert equal({"a": [1, "x", None]}, {"a": [1.0, "x", None]})
    assert not equal({"a": 1}, {"a": True})
    assert not equal([1], [1, 2])
    assert not equal({"a": 1}, {"b": 1})
