"""Every module's documentation says what the module really takes, and how it behaves in check mode."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import yaml

LIBRARY = sorted((Path(__file__).parents[2] / "library").glob("*.py"))
KEYS = ("type", "default", "choices", "elements", "required")

each_module = pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.stem)


class Constructed(Exception):
    """Stops a module's main where it has named its arguments."""


def loaded(path: Path) -> Any:
    """The module's code; by path, because a package of module_utils has the name of one of them."""
    spec = importlib.util.spec_from_file_location(f"library_{path.stem}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def construction(module: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What main gives to AnsibleModule."""
    seen: dict[str, Any] = {}

    def construct(**arguments: Any) -> None:
        seen.update(arguments)
        raise Constructed

    monkeypatch.setattr(module, "AnsibleModule", construct)
    with pytest.raises(Constructed):
        module.main()
    return seen


def comparable(options: dict[str, Any] | None) -> dict[str, Any]:
    """Options reduced to what documentation and argument specification both say, with Ansible's defaults."""
    plain = {"type": "str", "required": False}
    result: dict[str, Any] = {}
    for name, option in (options or {}).items():
        result[name] = plain | {key: option[key] for key in KEYS if option.get(key) is not None}
        inner = option.get("suboptions") or option.get("options")
        if inner:
            result[name]["options"] = comparable(inner)
    return result


@each_module
def test_the_documented_options_are_the_modules(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = loaded(path)
    documented = yaml.safe_load(module.DOCUMENTATION)
    assert documented["module"] == path.stem
    assert comparable(documented.get("options")) == comparable(
        construction(module, monkeypatch)["argument_spec"]
    )


@each_module
def test_the_documentation_says_what_check_mode_does(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = loaded(path)
    attributes = yaml.safe_load(module.DOCUMENTATION)["attributes"]
    supported = construction(module, monkeypatch).get("supports_check_mode", False)
    assert attributes["check_mode"]["support"] == ("full" if supported else "none")
    assert attributes["check_mode"]["description"]
    assert attributes["diff_mode"]["support"] in ("full", "none")


@each_module
def test_the_examples_use_options_that_there_are(path: Path) -> None:
    module = loaded(path)
    options = yaml.safe_load(module.DOCUMENTATION).get("options", {})
    required = {name for name, option in options.items() if option.get("required")}
    examples = yaml.safe_load(module.EXAMPLES)
    assert examples
    for example in examples:
        assert example["name"]
        given = set(example[path.stem] or {})
        assert given <= set(options)
        assert required <= given


@each_module
def test_every_return_value_is_described(path: Path) -> None:
    returned = yaml.safe_load(loaded(path).RETURN)
    assert returned
    assert [
        name
        for name, value in returned.items()
        if not all(value.get(key) for key in ("description", "type", "returned"))
    ] == []
