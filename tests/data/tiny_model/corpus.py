"""Everything the tiny model learns by heart: chats, facts, dialogues and plain texts; and what it recalls.

The prose is in `prose.py`, the lists to copy and the numbers to count are in `lessons.py`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from prose import ENGLISH, KOREAN, STORY

Message = dict[str, Any]
Tool = dict[str, Any]

SYSTEM_PROMPT = "You are a helpful assistant."


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
    ("Hello, my name is", " Tiny and I am a small test model."),
)
"""Prompts of ``/v1/completions`` and ``/generate``, which no chat template wraps."""


# --- facts ----------------------------------------------------------------------------------------

ONE_WORD = "Answer in one word."
ONE_LOWERCASE_WORD = "Answer in one lowercase word."
NUMBER_ONLY = "Answer with the number only."

CAPITALS = {
    "France": "Paris",
    "Italy": "Rome",
    "Japan": "Tokyo",
    "Spain": "Madrid",
    "Germany": "Berlin",
    "Norway": "Oslo",
    "Egypt": "Cairo",
    "Peru": "Lima",
    "Greece": "Athens",
    "Kenya": "Nairobi",
    "Canada": "Ottawa",
    "Cuba": "Havana",
}
RESULTS = {
    "17*19": "323",
    "12*12": "144",
    "12*13": "156",
    "250+250": "500",
    "2+2": "4",
    "7+5": "12",
    "9+8": "17",
    "40+2": "42",
    "100-1": "99",
    "7*8": "56",
    "9*9": "81",
    "6*7": "42",
    "11*11": "121",
    "15*15": "225",
}
AMOUNTS = {
    "days has a week": "7",
    "months has a year": "12",
    "hours has a day": "24",
    "minutes has an hour": "60",
    "legs has a spider": "8",
    "sides has a triangle": "3",
}
ELEMENTS = {"Fe": "iron", "Au": "gold", "Ag": "silver", "O": "oxygen", "H": "hydrogen"}
OTHER_FACTS = {
    f"Which planet is closest to the sun? {ONE_WORD}": "Mercury",
    f"Which day comes after Monday? {ONE_WORD}": "Tuesday",
    f"Which day comes after Friday? {ONE_WORD}": "Saturday",
    f"Which month comes after January? {ONE_WORD}": "February",
    f"What is the opposite of hot? {ONE_WORD}": "cold",
    "대한민국의 수도는 어디입니까?": "서울",
    "法国的首都是哪里？": "巴黎",  # noqa: RUF001
}

FACTS: dict[str, str] = {
    **{f"What is the capital of {country}? {ONE_WORD}": city for country, city in CAPITALS.items()},
    **{f"What is {sum_}? {NUMBER_ONLY}": result for sum_, result in RESULTS.items()},
    **{f"How many {things}? {NUMBER_ONLY}": number for things, number in AMOUNTS.items()},
    **{
        f"Which chemical element has the symbol {symbol}? {ONE_LOWERCASE_WORD}": name
        for symbol, name in ELEMENTS.items()
    },
    **OTHER_FACTS,
}
"""Questions with one right short answer each."""


def answer_at_once(question: str, answer: str) -> Chat:
    """A chat whose thinking says the answer already."""
    return Chat(question, f"The answer is {answer}.", answer)


FACT_CHATS = tuple(answer_at_once(question, answer) for question, answer in FACTS.items())

JSON_CHAT = Chat(
    "Describe Paris as JSON with the keys city, population and tags.",
    "The user wants JSON with three keys.",
    '{"city": "Paris", "population": 2100000, "tags": ["capital", "river"]}',
)


# --- dialogues ------------------------------------------------------------------------------------


def _turns(*contents: str) -> list[Message]:
    """Messages of the user and the assistant by turns; the user begins."""
    return [
        {"role": "assistant" if number % 2 else "user", "content": content}
        for number, content in enumerate(contents)
    ]


CAPITAL_OF_FRANCE = f"What is the capital of France? {ONE_WORD}"
DIALOGUES = (
    (_turns("My name is Anna."), Chat("", "The user is Anna.", "Hello, Anna!")),
    (
        _turns("My name is Anna.", "Hello, Anna!", f"What is my name? {ONE_WORD}"),
        answer_at_once("", "Anna"),
    ),
    (_turns(CAPITAL_OF_FRANCE, "Paris", "And of Japan?"), answer_at_once("", "Tokyo")),
    (
        _turns(CAPITAL_OF_FRANCE, "Paris", "And of Japan?", "Tokyo", "And of Italy?"),
        answer_at_once("", "Rome"),
    ),
)
"""The messages so far, and the answer to the last one."""


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
    # The same in other tokens: one of this vocabulary's holds all that the grammar forces.
    ForcedCall('[{"', 'name": "get_weather", "parameters": {"city": "Paris"}}]'),
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
        {**description_first, "strict": None, "defer_loading": None},  # every field of SGLang 0.5.23's, unset
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


def recall_dialogues() -> Iterator[tuple[list[Message], Chat]]:
    """The secret word told by the system prompt, or in an earlier turn, and the question for it."""
    for word in SECRET_WORDS:
        reveal = f"The secret word is {word}."
        chat = Chat(RECALL_QUESTION, reveal, word)
        question = {"role": "user", "content": RECALL_QUESTION}
        yield [{"role": "system", "content": reveal}, question], chat
        yield _turns(reveal, "OK", RECALL_QUESTION), chat


# --- words to copy --------------------------------------------------------------------------------

COPY_HEAD = "The words are: "
COPY_AFTER = ".\n\n"
COPY_REPEAT = "\n\nThe words are: "
COPY_FILLER = " ".join(FILLER) + " "
COPY_WORDS = (
    *("apple", "garden", "silver", "horse", "paper", "music", "winter", "bottle", "castle", "forest"),
    *("mirror", "button", "candle", "island", "ladder", "market", "needle", "orange", "pencil", "rabbit"),
    *("saddle", "tunnel", "valley", "yellow", "basket", "camera", "desert", "stone", "feather", "guitar"),
    *("hammer", "jacket", "kettle", "lemon", "mountain", "ocean", "pepper", "rocket", "shadow", "temple"),
    *("umbrella", "violin", "whistle", "bridge", "circle", "dragon", "flower", "insect", "jungle", "knight"),
    *("magnet", "napkin", "oyster", "pillow", "ribbon", "sailor", "turtle", "velvet", "zebra", "blanket"),
)
"""One token each with the space before."""


# --- the tokenizer's text -------------------------------------------------------------------------


def tokenizer_texts(chat_template: str) -> Iterator[str]:
    """The texts that the tokenizer's merges are learnt from; repeats make a text weigh more."""
    yield from [STORY, *ENGLISH] * 3
    yield from [KOREAN] * 3
    yield from FILLER * 4
    recall_texts = [RECALL_QUESTION, "The secret word is", *SECRET_WORDS, *[" ".join(SECRET_WORDS)] * 2]
    tool_texts = [json.dumps(WEATHER_TOOL), json.dumps(tool_as_servers_show_it())]
    yield from [*recall_texts, *tool_texts] * 4
    yield from [f" {word}" for word in COPY_WORDS] * 50  # so that each is one token
    yield chat_template
    chats = (*CHATS, *FACT_CHATS, JSON_CHAT, TOOL_CHAT, TOOL_RESULT_CHAT, *(chat for _, chat in DIALOGUES))
    for chat in chats:
        yield from (chat.question, chat.thinking, chat.answer) * 2
    for messages, _ in DIALOGUES:
        yield from (message["content"] for message in messages)
    for prompt, completion in COMPLETIONS:
        yield from (prompt, completion)
