"""What the probe `template` asks: chats whose prompt tokens are known, and texts whose token ids are.

```yaml
template:
  chats:                       # [] by default: then only relations that hold for any sane template are tested
    - name: system
      messages: [{role: system, content: Be brief.}, {role: user, content: Hello}]
      tools: []                # as clients send them; the chat is counted with them
      thinking: false          # which of gate.thinking's request fields go with it
      prompt_tokens: 21        # a list where servers differ, as they do in how they show tools
  tokenize:                    # [] by default; without the tokens that begin a text
    - {text: Hello world, ids: [9707, 1879]}
```

`tools/count_prompts.py` counts both with the checkpoint's own tokenizer and prints the section to paste.
"""

from __future__ import annotations

from dataclasses import dataclass

from .conversations import Messages, read_messages, read_tools
from .errors import UsageError
from .section import Section, boolean, each, positive_integer, text


@dataclass(frozen=True)
class GoldenChat:
    """A conversation and the numbers of tokens that its prompt may have, by the checkpoint's own template."""

    name: str
    messages: Messages
    tools: Messages
    thinking: bool
    prompt_tokens: tuple[int, ...]


@dataclass(frozen=True)
class GoldenText:
    """A text and its token ids."""

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True)
class TemplateData:
    """The golden chats and texts; either may be empty."""

    chats: tuple[GoldenChat, ...]
    tokenize: tuple[GoldenText, ...]


def read_template(value: object, path: str) -> TemplateData:
    """The section `gate.template`. Raises UsageError."""
    section = Section(value, path)
    data = TemplateData(
        section.take("chats", each(_chat), []), section.take("tokenize", each(_golden_text), [])
    )
    section.close()
    if len({chat.name for chat in data.chats}) < len(data.chats):
        raise UsageError(f"{path}.chats has two chats of one name")
    return data


def _chat(value: object, path: str) -> GoldenChat:
    section = Section(value, path)
    chat = GoldenChat(
        section.take("name", text),
        section.take("messages", read_messages),
        section.take("tools", _tools, []),
        section.take("thinking", boolean, False),
        section.take("prompt_tokens", _counts),
    )
    section.close()
    return chat


def _tools(value: object, path: str) -> Messages:
    return read_tools(value, path) if value != [] else ()


def _counts(value: object, path: str) -> tuple[int, ...]:
    if isinstance(value, (list, tuple)):
        return each(positive_integer, 1)(value, path)
    return (positive_integer(value, path),)


def _golden_text(value: object, path: str) -> GoldenText:
    section = Section(value, path)
    golden = GoldenText(section.take("text", text), section.take("ids", each(_token_id, 1)))
    section.close()
    return golden


def _token_id(value: object, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(f"{path} must be a token id, not {value!r}")
    return value
