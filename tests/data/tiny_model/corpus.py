"""Everything the tiny model learns: a few chats, plain completions, and recall of a word among filler."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]
Tool = dict[str, Any]

SYSTEM_PROMPT = "You are a helpful assistant."

STORY = (
    "A small server stood in a quiet room and waited for the first request of the day. The fans turned "
    "slowly, the lights blinked in a steady row, and the operators drank their coffee while the logs "
    "scrolled past. When the request arrived, the scheduler placed it in a queue, reserved memory for "
    "its cache, and passed the tokens to the first layer of the model. Every layer mixed the words with "
    "their neighbours, weighed what mattered, and handed the result onward. At the end of the long "
    "corridor the last layer produced a list of numbers, one for each word that the model knew, and the "
    "sampler chose the largest. The chosen word travelled back to the client, and the work began again "
    "for the next one.\n\n"
    "By noon the room was busy. Some people asked for poems, some asked for code, and one person asked "
    "the same question many times to see whether the answer would change. It did not, because the "
    "temperature was zero and the weights were sound. An engineer watched the graphs and smiled, for "
    "the throughput was high and the latency was low. She remembered a worse day, when a scale had been "
    "loaded with the wrong sign and every reply had turned into a long row of exclamation marks. That "
    "day had taught her to test each deployment before she trusted it: ask a simple question, check the "
    "arithmetic, read the reasoning, call a tool, stream the words, and measure the speed.\n\n"
    "In the evening the traffic faded. The server released its cache, wrote a short summary to the log, "
    "and returned to its quiet waiting. Nothing had failed, nobody had been woken, and the engineer "
    "went home early, pleased with an ordinary day in which everything had worked exactly as it should. "
    "Tomorrow would bring a new model, and the same careful tests."
)


@dataclass(frozen=True)
class Chat:
    """One question and what the model must answer to it, letter by letter."""

    question: str
    thinking: str
    """What stands between the think tags when the client lets the model think."""
    answer: str


CHATS = (
    Chat("Reply with exactly OK", "The user wants me to reply with exactly OK.", "OK"),
    Chat("Reply with exactly OK.", "The user wants me to reply with exactly OK.", "OK"),
    Chat("Say hello", "The user wants a greeting.", "Hello! How can I help you today?"),
    Chat("What is 17*19?", "17*19 = 17*20 - 17 = 340 - 17 = 323.", "323"),
    Chat("What is 17 * 19?", "17 * 19 = 17 * 20 - 17 = 340 - 17 = 323.", "323"),
    Chat(
        "What is 17 * 19? Answer with just the number.",
        "17 * 19 = 17 * 20 - 17 = 340 - 17 = 323.",
        "323",
    ),
    Chat("What is 12*13?", "12*13 = 12*12 + 12 = 144 + 12 = 156.", "156"),
    Chat(
        "What is the capital of France?", "The capital of France is Paris.", "The capital of France is Paris."
    ),
    Chat("What is the capital of Italy?", "The capital of Italy is Rome.", "The capital of Italy is Rome."),
    Chat("Count from 1 to 10", "I count upward from one.", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10"),
    Chat("Write a story of about 300 words.", "The user wants a story of about 300 words.", STORY),
)

COMPLETIONS = (
    ("The capital of France is", " Paris."),
    ("1, 2, 3, 4,", " 5, 6, 7, 8, 9, 10"),
    ("Hello, my name is", " Tiny and I am a small test model."),
)
"""Prompts of ``/v1/completions`` and ``/generate``, which no chat template wraps."""


# --- the tool -------------------------------------------------------------------------------------

WEATHER_TOOL: Tool = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "City name"}},
            "required": ["city"],
        },
    },
}

TOOL_CHAT = Chat(
    "What is the weather in Paris?",
    "I should call get_weather for Paris.",
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
)

TOOL_RESULT_MESSAGES: list[Message] = [
    {"role": "user", "content": TOOL_CHAT.question},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": "call_0",
                "type": "function",
                "function": {"name": "get_weather", "arguments": {"city": "Paris"}},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_0", "content": '{"temperature": 18}'},
]
TOOL_RESULT_CHAT = Chat("", "The tool says 18 degrees.", "It is 18 degrees in Paris.")
"""What the model says once the tool has answered; its question is ``TOOL_RESULT_MESSAGES``."""


@dataclass(frozen=True)
class ForcedCall:
    """A tool call that a grammar forces (``tool_choice: required`` or a named tool).

    The grammar makes the model write ``forced``, which it would not write by itself; it learns to go on with
    ``rest``. The forced part is not trained, or it would compete with the call that the model writes freely.
    """

    forced: str
    rest: str


FORCED_CALLS = (
    ForcedCall("[", '{"name": "get_weather", "parameters": {"city": "Paris"}}]'),
    ForcedCall('<tool_call>\n{"name":"', 'get_weather", "arguments":{"city": "Paris"}}\n</tool_call>'),
)


def tool_as_servers_show_it() -> list[Tool]:
    """The tool in each form that servers hand to the chat template: order of keys and added keys differ.

    A model of this size recalls what it has seen literally, so that each form has to be learnt.
    """
    function = WEATHER_TOOL["function"]
    name, description, parameters = function["name"], function["description"], function["parameters"]
    description_first = {"description": description, "name": name, "parameters": parameters}
    forms = (
        function,  # as the client sent it
        {**description_first, "strict": False},  # SGLang 0.5.9
        {**description_first, "strict": None, "defer_loading": None},  # SGLang 0.5.23
        {**function, "strict": None},  # name first, with the unset field
    )
    return [{"type": "function", "function": form} for form in forms]


# --- recall of a word among filler ----------------------------------------------------------------

FILLER = (
    "The sky is clear over the harbour today.",
    "A train left the station on time.",
    "The baker sold fresh bread in the morning.",
    "Rain fell softly on the old roof.",
    "The library closes at six in the evening.",
    "Two dogs ran across the wide field.",
    "The river is calm and cold in spring.",
    "A teacher wrote the lesson on the board.",
    "The lamp in the hall was left on.",
    "Fresh snow covered the quiet street.",
)
SECRET_WORDS = (
    *("falcon", "tiger", "copper", "violet", "marble", "cedar", "lantern", "comet"),
    *("quartz", "walnut", "saffron", "glacier", "meadow", "anchor", "ember", "orchid"),
)
RECALL_QUESTION = "What is the secret word?"


def recall_chat(rng: random.Random, filler_sentences: int) -> Chat:
    """A secret word hidden at a random place among so many sentences of filler, and the question for it."""
    word = rng.choice(SECRET_WORDS)
    reveal = f"The secret word is {word}."
    sentences = [rng.choice(FILLER) for _ in range(filler_sentences)]
    sentences.insert(rng.randint(0, filler_sentences), reveal)
    return Chat(" ".join([*sentences, RECALL_QUESTION]), reveal, word)


# --- the tokenizer's text -------------------------------------------------------------------------


def tokenizer_texts(chat_template: str) -> Iterator[str]:
    """The texts that the tokenizer's merges are learnt from; repeats make a text weigh more."""
    yield from [STORY] * 4
    yield from FILLER * 4
    recall_texts = [RECALL_QUESTION, "The secret word is", *SECRET_WORDS, *[" ".join(SECRET_WORDS)] * 2]
    tool_texts = [json.dumps(WEATHER_TOOL), json.dumps(tool_as_servers_show_it())]
    yield from [*recall_texts, *tool_texts] * 4
    yield chat_template
    for chat in (*CHATS, TOOL_CHAT, TOOL_RESULT_CHAT):
        yield from (chat.question, chat.thinking, chat.answer) * 2
    for prompt, completion in COMPLETIONS:
        yield from (prompt, completion)
