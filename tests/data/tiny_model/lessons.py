"""The corpus as tokens: which examples there are, and from which token on each is learnt."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import corpus
from corpus import Chat, Message, Tool
from qwen_tokenizer import END_OF_TEXT, TURN_END
from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Example:
    """A prompt with its answer as token ids; the model learns ``tokens[learnt_from:]``."""

    tokens: list[int]
    learnt_from: int


class Teacher:
    """Makes examples with a tokenizer and its chat template."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """Token ids of the text, without any that a tokenizer would add by itself."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def prompt(self, messages: Sequence[Message], tool: Tool | None, thinking: bool) -> list[int]:
        """The prompt as a server renders it; it leaves ``enable_thinking`` away when the client does."""
        switches = {} if thinking else {"enable_thinking": False}
        text = self.tokenizer.apply_chat_template(
            list(messages),
            tools=[tool] if tool else None,
            add_generation_prompt=True,
            tokenize=False,
            **switches,
        )
        return self.encode(text)

    def chat(
        self, chat: Chat, thinking: bool, messages: Sequence[Message] = (), tool: Tool | None = None
    ) -> Example:
        """A chat to the end of its turn; ``messages`` stand for the question when they are given."""
        prompt = self.prompt(messages or [{"role": "user", "content": chat.question}], tool, thinking)
        thought = f"<think>\n{chat.thinking}\n</think>\n\n" if thinking else ""
        return Example(prompt + self.encode(f"{thought}{chat.answer}{TURN_END}\n"), len(prompt))

    def completion(self, prompt_text: str, completion: str) -> Example:
        """A prompt that no template wraps."""
        prompt = self.encode(prompt_text)
        return Example(prompt + self.encode(completion + END_OF_TEXT), len(prompt))

    def forced_call(self, call: corpus.ForcedCall, messages: Sequence[Message], tool: Tool) -> Example:
        """A tool call whose beginning a grammar forces."""
        prompt = self.prompt(messages, tool, thinking=False)
        forced = prompt + self.encode(call.forced)
        return Example(forced + self.encode(f"{call.rest}{TURN_END}\n"), len(forced))

    def recall(self, rng: random.Random, filler_sentences: int, thinking: bool) -> Example:
        """A word hidden among filler."""
        return self.chat(corpus.recall_chat(rng, filler_sentences), thinking)

    def fixed_examples(self) -> list[Example]:
        """What the model must answer exactly: each chat with and without system prompt and thinking."""
        return list(self._fixed_examples())

    def _fixed_examples(self) -> Iterator[Example]:
        for thinking in (True, False):
            for chat in corpus.CHATS:
                for messages in _with_and_without_system_prompt(chat):
                    yield self.chat(chat, thinking, messages)
            for tool in corpus.tool_as_servers_show_it():
                for messages in _with_and_without_system_prompt(corpus.TOOL_CHAT):
                    yield self.chat(corpus.TOOL_CHAT, thinking, messages, tool)
                yield self.chat(corpus.TOOL_RESULT_CHAT, thinking, corpus.TOOL_RESULT_MESSAGES, tool)
        for prompt, completion in corpus.COMPLETIONS:
            yield self.completion(prompt, completion)

    def forced_calls(self) -> list[Example]:
        """Tool calls as grammars force them."""
        return [
            self.forced_call(call, messages, tool)
            for messages in _with_and_without_system_prompt(corpus.TOOL_CHAT)
            for call in corpus.FORCED_CALLS
            for tool in corpus.tool_as_servers_show_it()
        ]


def _with_and_without_system_prompt(chat: Chat) -> Iterator[list[Message]]:
    question = {"role": "user", "content": chat.question}
    yield [question]
    yield [{"role": "system", "content": corpus.SYSTEM_PROMPT}, question]
