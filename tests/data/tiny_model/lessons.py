"""The corpus as tokens: which examples there are, and from which token on each is learnt."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import corpus
import prose
from corpus import Chat, Message, Tool
from qwen_tokenizer import END_OF_TEXT, TURN_END
from transformers import PreTrainedTokenizerBase

CHAIN_TOKENS = 640
"""So far an English text and the one after it are learnt in one go."""
NONCE_DIGITS = 8
"""The gate puts so many random digits before a count, to keep it out of caches."""
HIGHEST = 900
"""Counting goes no further; 841 fills the context."""


@dataclass(frozen=True)
class Example:
    """A prompt with its answer as token ids; the model learns ``tokens[learnt_from:]``."""

    tokens: list[int]
    learnt_from: int


class Teacher:
    """Makes examples with a tokenizer and its chat template. Raises ValueError if a word to copy is cut."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        cut = [word for word in corpus.COPY_WORDS if len(self.encode(f" {word}")) != 1]
        if cut:
            raise ValueError(f"not one token each: {', '.join(cut)}")
        self.word_ids = [self.encode(f" {word}")[0] for word in corpus.COPY_WORDS]
        self.spaced_ids = [
            token
            for text, token in sorted(tokenizer.get_vocab().items())
            if text.startswith("Ġ") and len(text) > 2
        ]
        self.copy_filler = self.encode(corpus.COPY_FILLER)
        self.fillers = [self.encode(f"{sentence} ") for sentence in corpus.FILLER]

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

    def forced_call(
        self, call: corpus.ForcedCall, thinking: bool, messages: Sequence[Message], tool: Tool
    ) -> Example:
        """A tool call whose beginning a grammar forces, once the thinking is over."""
        thought = f"<think>\n{corpus.TOOL_CHAT.thinking}\n</think>\n\n" if thinking else ""
        forced = self.prompt(messages, tool, thinking) + self.encode(thought) + self.encode(call.forced)
        return Example(forced + self.encode(f"{call.rest}{TURN_END}\n"), len(forced))

    def recall(self, rng: random.Random, filler_sentences: int, thinking: bool) -> Example:
        """A word hidden among filler."""
        return self.chat(corpus.recall_chat(rng, filler_sentences), thinking)

    # --- by heart -----------------------------------------------------------------------------

    def fixed_examples(self) -> list[Example]:
        """What the model must answer exactly: each chat with and without system prompt and thinking."""
        return list(self._fixed_examples())

    def _fixed_examples(self) -> Iterator[Example]:
        for thinking in (True, False):
            for chat in (*corpus.CHATS, *corpus.FACT_CHATS, corpus.JSON_CHAT):
                for messages in _with_and_without_system_prompt([_question(chat)]):
                    yield self.chat(chat, thinking, messages)
            for turns, chat in corpus.DIALOGUES:
                for messages in _with_and_without_system_prompt(turns):
                    yield self.chat(chat, thinking, messages)
            for tool in corpus.tool_as_servers_show_it():
                for messages in _with_and_without_system_prompt([_question(corpus.TOOL_CHAT)]):
                    yield self.chat(corpus.TOOL_CHAT, thinking, messages, tool)
                yield self.chat(corpus.TOOL_RESULT_CHAT, thinking, corpus.TOOL_RESULT_MESSAGES, tool)
        for messages, chat in corpus.recall_dialogues():
            yield self.chat(chat, False, messages)
        for prompt, completion in corpus.COMPLETIONS:
            yield self.completion(prompt, completion)

    def forced_calls(self) -> list[Example]:
        """Tool calls as grammars force them."""
        return [
            self.forced_call(call, thinking, messages, tool)
            for thinking in (True, False)
            for messages in _with_and_without_system_prompt([_question(corpus.TOOL_CHAT)])
            for call in corpus.FORCED_CALLS
            for tool in corpus.tool_as_servers_show_it()
        ]

    def prose(self) -> list[Example]:
        """Texts from their first word on, each English one running on into the other."""
        english = [self.encode(f"{text}\n\n") for text in prose.ENGLISH]
        chains = [[*first, *second][:CHAIN_TOKENS] for first, second in (english, english[::-1])]
        # The end of the story is that of a chat, so that it is not learnt here.
        story = self.encode(prose.STORY)
        korean = self.encode(prose.KOREAN + END_OF_TEXT)
        return [Example(tokens, 1) for tokens in (*chains, story[: len(story) * 3 // 4], korean)]

    # --- counting and copying -----------------------------------------------------------------

    def count(self, rng: random.Random, first: int, tokens: int) -> Example:
        """Numbers in a row; from 1 on it may come after random digits, as the gate asks it."""
        numbers = self.encode(", ".join(str(number) for number in range(first, HIGHEST)))
        digits = "".join(rng.choice("0123456789") for _ in range(NONCE_DIGITS))
        nonce = self.encode(f"{digits}, ") if first == 1 and rng.random() < 0.8 else []
        # Two numbers show what goes on.
        known = len(self.encode(f"{first}, {first + 1}, "))
        return Example([*nonce, *numbers][:tokens], len(nonce) + known)

    def copy(self, rng: random.Random, words: int, tokens: int) -> Example:
        """Words in random order, filler up to so many tokens in all, and the words again."""
        listed = "".join(f" {word}" for word in rng.sample(corpus.COPY_WORDS, words))[1:]
        head = self.encode(corpus.COPY_HEAD + listed + corpus.COPY_AFTER)
        repeat = self.encode(corpus.COPY_REPEAT + listed)
        space = max(0, tokens - len(head) - len(repeat))
        return Example(
            [*head, *self._filler(rng, space), *repeat], len(head) + space + len(repeat) - words + 2
        )

    def _filler(self, rng: random.Random, tokens: int) -> list[int]:
        """Mostly the sentences as the gate repeats them, else in random order."""
        if rng.random() < 0.7:
            return (self.copy_filler * (tokens // len(self.copy_filler) + 1))[:tokens]
        filler: list[int] = []
        while len(filler) < tokens:
            filler += rng.choice(self.fillers)
        return filler[:tokens]

    def repeated_words(self, rng: random.Random, words: int, times: int) -> Example:
        """The words to copy in random order, several times over."""
        return Example(rng.sample(self.word_ids, words) * times, words + 1)

    def repeated_tokens(self, rng: random.Random, tokens: int) -> Example:
        """Any words in random order, twice: all of the second half must be heard from equally far."""
        return Example(rng.sample(self.spaced_ids, tokens) * 2, tokens + 1)


def _question(chat: Chat) -> Message:
    return {"role": "user", "content": chat.question}


def _with_and_without_system_prompt(messages: list[Message]) -> Iterator[list[Message]]:
    yield messages
    yield [{"role": "system", "content": corpus.SYSTEM_PROMPT}, *messages]
