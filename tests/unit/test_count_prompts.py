"""The tool that counts golden chats: what it hands to a template, and what it changes in a file."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

PROFILE = """\
name: tiny  # a comment
gate:
  copy: {ids: [1]}
  template:
    chats:
      - {name: a, messages: [{role: user, content: x}], prompt_tokens: 1}
      - name: b
        messages: [{role: user, content: "prompt_tokens of y"}]
        prompt_tokens: [1]   # stays
    tokenize:
      - {text: "x", ids: [0]}
  protocol: {}
"""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "count_prompts.py"
    spec = importlib.util.spec_from_file_location("count_prompts", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def template() -> Any:
    return yaml.safe_load(PROFILE)["gate"]["template"]


def test_only_the_counts_in_a_file_change(tool: ModuleType, tmp_path: Path) -> None:
    counted = template()
    counted["chats"][0]["prompt_tokens"] = 12
    counted["chats"][1]["prompt_tokens"] = [20, 23]
    counted["tokenize"][0]["ids"] = [7, 8]
    path = tmp_path / "tiny.yml"
    tool.write(path, PROFILE, counted)
    expected = PROFILE.replace("prompt_tokens: 1}", "prompt_tokens: 12}")
    expected = expected.replace("prompt_tokens: [1]", "prompt_tokens: [20, 23]").replace(
        "ids: [0]", "ids: [7, 8]"
    )
    assert path.read_text() == expected


def test_a_file_with_a_place_missing_is_left_alone(tool: ModuleType, tmp_path: Path) -> None:
    text = PROFILE.replace(", prompt_tokens: 1", "")
    counted = yaml.safe_load(text)["gate"]["template"]
    counted["chats"][0]["prompt_tokens"] = 12
    path = tmp_path / "tiny.yml"
    with pytest.raises(SystemExit, match="not every chat has a prompt_tokens"):
        tool.write(path, text, counted)
    assert not path.exists()


def test_tools_are_shown_in_every_form_of_servers(tool: ModuleType) -> None:
    function = {"name": "f", "description": "does f", "parameters": {}}
    shown = tool.shown_tools([{"type": "function", "function": function}])
    assert [list(one[0]["function"]) for one in shown] == [
        ["name", "description", "parameters"],
        ["description", "name", "parameters", "strict"],
        ["name", "description", "parameters"],
    ]
    assert [list(one[0]) for one in shown] == [
        ["type", "function"],
        ["type", "function"],
        ["type", "function", "defer_loading"],
    ]
    assert tool.shown_tools([]) == [None]


def test_messages_are_shown_as_servers_do(tool: ModuleType) -> None:
    call = {"id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}}
    sent = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    (shown,) = tool.shown_messages(sent)
    assert shown["content"] == ""
    assert shown["tool_calls"][0]["function"]["arguments"] == {"x": 1}
    assert call["function"]["arguments"] == '{"x": 1}'
