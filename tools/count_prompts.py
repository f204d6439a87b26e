#!/usr/bin/env python3
"""Count the prompts of a model profile's golden chats with the checkpoint's own tokenizer and template.

Prints the section `template:` of the profile, or with --write puts the counts into the file. Run it with the
interpreter of a release, so that the release's own transformers count:

    /opt/sglang/current/venv/bin/python tools/count_prompts.py catalog/models/NAME.yml CHECKPOINT

`gate.template` of the profile needs `chats` (name, messages, and if wanted tools and thinking) and `tokenize`
(text). For --write each needs a `prompt_tokens` or `ids` as well, any number will do; only these change.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "module_utils"))

from llm_gate.model_profile import read_model_profile


def shown_tools(tools: list[dict[str, Any]]) -> list[list[dict[str, Any]] | None]:
    """The tools in each form in which servers hand them to the template, which then writes other prompts."""
    if not tools:
        return [None]
    sent = [copy.deepcopy(tool["function"]) for tool in tools]
    # SGLang's Function lists the description first: openai/protocol.py.
    first = {"description": None, "name": None, "parameters": None}
    forms: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
        (sent, {}),  # as they were sent, and vLLM
        ([first | function | {"strict": False} for function in sent], {}),  # SGLang 0.5.9
        (sent, {"defer_loading": None}),  # SGLang 0.5.23: Function keeps what was sent, Tool adds its field
    ]
    return [
        [{"type": "function", "function": function} | added for function in functions]
        for functions, added in forms
    ]


def shown_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages as servers hand them to the template: no empty content, arguments as objects."""
    shown = copy.deepcopy(messages)
    for message in shown:
        message["content"] = message.get("content") or ""
        for call in message.get("tool_calls") or []:
            if isinstance(call["function"]["arguments"], str):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return shown


def count(tokenizer: Any, chat: dict[str, Any], fields: dict[str, Any]) -> int | list[int]:
    """The tokens of a chat's prompt; all that are possible if servers differ."""
    counts = {
        len(
            tokenizer.apply_chat_template(
                shown_messages(chat["messages"]),
                tools=tools,
                tokenize=True,
                add_generation_prompt=True,
                return_dict=False,
                **fields.get("chat_template_kwargs", {}),
            )
        )
        for tools in shown_tools(chat.get("tools") or [])
    }
    return sorted(counts) if len(counts) > 1 else counts.pop()


def write(path: Path, text: str, template: dict[str, Any]) -> None:
    """Put the counts and ids where the file has others, in their order, and leave the rest as it is."""
    before, heading, section = text.partition("\n  template:\n")
    counts = [chat["prompt_tokens"] for chat in template.get("chats") or []]
    wanted = iter([*counts, *(golden["ids"] for golden in template.get("tokenize") or [])])
    pattern = re.compile(r"(?<=prompt_tokens: )(?:\d+|\[[^\]]*\])|(?<=ids: )\[[^\]]*\]")
    written = before + heading + pattern.sub(lambda match: str(next(wanted, match.group())), section)
    if yaml.safe_load(written)["gate"].get("template") != template:
        sys.exit(
            f"{path}: not every chat has a prompt_tokens and every text its ids; print and paste instead"
        )
    path.write_text(written, encoding="utf-8")


def main() -> None:
    """Count and print, or write."""
    # Only a release has it.
    from transformers import AutoTokenizer  # noqa: PLC0415

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("profile", type=Path, help="catalog/models/NAME.yml")
    parser.add_argument("checkpoint", type=Path, help="the folder with tokenizer and chat template")
    parser.add_argument("--write", action="store_true", help="put the counts into the profile")
    arguments = parser.parse_args()
    text = arguments.profile.read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    template = document["gate"].pop("template", None) or {}
    profile = read_model_profile(document)
    tokenizer = AutoTokenizer.from_pretrained(arguments.checkpoint, local_files_only=True)
    for chat in template.get("chats") or []:
        fields = profile.thinking_on if chat.get("thinking") else profile.thinking_off
        chat["prompt_tokens"] = count(tokenizer, chat, dict(fields))
    for golden in template.get("tokenize") or []:
        golden["ids"] = tokenizer.encode(golden["text"], add_special_tokens=False)
    if arguments.write:
        write(arguments.profile, text, template)
        return
    printed = {"template": template}
    print(yaml.safe_dump(printed, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120))


if __name__ == "__main__":
    main()
