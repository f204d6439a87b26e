"""The reference in docs/ is what the specs say, and the specs are whole."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))

import docs  # noqa: E402

SPECS = {
    path.parent.parent.name: yaml.safe_load(path.read_text())["argument_specs"]
    for path in sorted((ROOT / "roles").glob("*/meta/argument_specs.yml"))
}


def options_of(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, option in spec.get("options", {}).items():
        yield name, option
        yield from options_of(option)


def test_the_reference_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main(["--check"]) == 0, capsys.readouterr().err


def test_a_stale_page_is_named_and_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(docs, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(docs, "pages", lambda: {"one.md": "new\n", "two.md": "two\n"})
    assert docs.main([]) == 0
    (tmp_path / "docs/one.md").write_text("old\n")
    (tmp_path / "docs/gone.md").write_text("of no spec\n")
    capsys.readouterr()
    assert docs.main(["--check"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(" is not")[0] for line in said] == ["docs: docs/gone.md", "docs: docs/one.md"]
    assert all(line.endswith("run it and commit docs/") for line in said)
    assert docs.main([]) == 0
    assert {path.name: path.read_text() for path in (tmp_path / "docs").iterdir()} == docs.pages()


@pytest.mark.parametrize("role", SPECS)
def test_every_entry_point_and_variable_of_a_role_is_described(role: str) -> None:
    for entry, spec in SPECS[role].items():
        assert spec["short_description"], entry
        assert [name for name, option in options_of(spec) if not option.get("description")] == []


@pytest.mark.parametrize("role", SPECS)
def test_a_default_is_the_same_in_the_spec_and_in_the_role(role: str) -> None:
    path = ROOT / "roles" / role / "defaults" / "main.yml"
    defaults = (yaml.safe_load(path.read_text()) or {}) if path.is_file() else {}
    told = {
        name: option["default"]
        for spec in SPECS[role].values()
        for name, option in spec.get("options", {}).items()
        if "default" in option
    }
    assert {name: told[name] for name in defaults.keys() & told.keys()} == {
        name: defaults[name] for name in defaults.keys() & told.keys()
    }
    assert sorted(defaults.keys() - told.keys()) == [], "set by the role, and the spec names no default"


@pytest.mark.parametrize("plugin", sorted(path.stem for path in (ROOT / "filter_plugins").glob("*.py")))
def test_every_filter_says_what_it_gives(plugin: str) -> None:
    module = import_module(plugin)
    assert module.__doc__
    filters = module.FilterModule().filters()
    assert [name for name, function in filters.items() if not inspect.getdoc(function)] == []


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("https://example.org/a", "<https://example.org/a>"),
        (["a|b", "c"], "`a\\|b`; `c`"),
        (
            ["https://example.org/a", "https://example.org/b"],
            "<https://example.org/a>; <https://example.org/b>",
        ),
        ({"gpus": 8, "on": True}, "gpus: 8, on: true"),
        ([{"a": 1}, {"a": 2}], "a: 1; a: 2"),
        ("folded\n  text", "folded text"),
    ],
)
def test_a_value_is_shown_so_that_a_table_holds_it(value: Any, shown: str) -> None:
    assert docs.value_text(value) == shown


def test_ansibles_markup_becomes_code() -> None:
    assert docs.text("the fact C(a (b)), O(path) and U(https://example.org)") == (
        "the fact `a (b)`, `path` and <https://example.org>"
    )
