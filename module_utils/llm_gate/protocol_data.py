"""What the probe `protocol` asks: one case for each part of the API that clients rely on.

The values here are the defaults, which a large chat model with tools answers rightly; `null` switches a case
off, and the coverage says so. The questions about thinking are those of `smoke`, `answers` are the `facts`.

```yaml
protocol:
  concurrency: 4             # requests at a time
  tools:                     # null for a model without tools
    tools:
      - type: function
        function:
          name: get_weather
          description: Get the current weather in a city
          parameters:        # of JSON Schema the keywords of json_schema.py
            type: object
            properties: {city: {type: string, enum: [London, Paris, Tokyo]}}
            required: [city]
            additionalProperties: false
    prompt: What is the weather in Paris right now?
    call: {name: get_weather, arguments: {city: Paris}}   # without arguments: any that keep to the schema
    max_tokens: 128          # with thinking on those of smoke.thinking are added
    result: '{"temperature_celsius": 18}'   # what the tool says, and what the answer then must hold
    expect: "18"
  schemas:                   # response_format json_schema; [] for a server without structured output
    - prompt: "Describe the city of Paris as JSON: its name, inhabitants in millions, and three sights."
      schema:
        type: object
        properties:
          city: {type: string, enum: [London, Paris, Tokyo]}
          millions: {type: integer, minimum: 1, maximum: 20}
          sights: {type: array, items: {type: string}}
        required: [city, millions, sights]
        additionalProperties: false
      expect: null           # the whole value, where the model is known to give just this one
      max_tokens: 128
    # One that is answered otherwise where the schema is ignored.
    - prompt: What is the capital of France? Answer in one word.
      schema:
        type: object
        properties: {answer: {type: string, enum: [London, Paris, Tokyo]}}
        required: [answer]
        additionalProperties: false
      expect: {answer: Paris}
      max_tokens: 64
  stream:                    # a sure answer of 16 tokens and more, which must be the same in one piece
    prompt: Count from 1 to 20, separated by commas. Give only the numbers.
    max_tokens: 128
  stop:                      # `expect` comes before the stop text
    prompt: Count from 1 to 20, separated by commas. Give only the numbers.
    stop: "9"
    expect: "8"
    max_tokens: 128
  limit:                     # an answer longer than max_tokens, which must end just there
    prompt: Count from 1 to 20, separated by commas. Give only the numbers.
    max_tokens: 5
  conversations:             # roles and turns; where a role developer is refused, that is a warning
    - name: system
      messages:
        - {role: system, content: The secret word is falcon.}
        - {role: user, content: "What is the secret word? Answer with this word only."}
      expect: falcon
      exact: false           # true: the content must be `expect` itself
      max_tokens: 32
    - name: developer
      messages:
        - {role: developer, content: The secret word is walnut.}
        - {role: user, content: "What is the secret word? Answer with this word only."}
      expect: walnut
    - name: turns
      messages:
        - {role: user, content: My name is Anna.}
        - {role: assistant, content: "Hello, Anna!"}
        - {role: user, content: "What is my name? Answer in one word."}
      expect: Anna
    - name: third turn
      messages:
        - {role: user, content: "What is the capital of France? Answer in one word."}
        - {role: assistant, content: Paris}
        - {role: user, content: "And of Japan?"}
        - {role: assistant, content: Tokyo}
        - {role: user, content: "And of Italy? Answer in one word."}
      expect: Rome
  completion:                # /v1/completions, which no template wraps
    prompt: The capital of France is
    expect: Paris
    max_tokens: 8
  answers: {count: 24, exact: false}   # so many facts, each asked twice
  mixed: true                # facts beside the schemas' questions, which must not disturb one another
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .conversations import Messages, name_of, parameters_of, read_messages, read_tools
from .errors import UsageError
from .json_schema import check_schema, violation
from .probe_data import Question, read_question
from .section import Section, boolean, each, kind, optional, positive_integer, text

_COUNTING = "Count from 1 to 20, separated by commas. Give only the numbers."
_CITIES = ["London", "Paris", "Tokyo"]
_TOOLS: Mapping[str, object] = {
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Get the current weather in a city",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string", "enum": _CITIES}},
                    "required": ["city"],
                    "additionalProperties": False,
                },
            },
        }
    ],
    "prompt": "What is the weather in Paris right now?",
    "call": {"name": "get_weather", "arguments": {"city": "Paris"}},
    "max_tokens": 128,
    "result": '{"temperature_celsius": 18}',
    "expect": "18",
}
_SCHEMAS: tuple[Mapping[str, object], ...] = (
    {
        "prompt": "Describe the city of Paris as JSON: its name, inhabitants in millions, and three sights.",
        "schema": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "enum": _CITIES},
                "millions": {"type": "integer", "minimum": 1, "maximum": 20},
                "sights": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["city", "millions", "sights"],
            "additionalProperties": False,
        },
    },
    {
        "prompt": "What is the capital of France? Answer in one word.",
        "schema": {
            "type": "object",
            "properties": {"answer": {"type": "string", "enum": _CITIES}},
            "required": ["answer"],
            "additionalProperties": False,
        },
        "expect": {"answer": "Paris"},
        "max_tokens": 64,
    },
)
_STREAM: Mapping[str, object] = {"prompt": _COUNTING, "max_tokens": 128}
_STOP: Mapping[str, object] = {"prompt": _COUNTING, "stop": "9", "expect": "8", "max_tokens": 128}
_LIMIT: Mapping[str, object] = {"prompt": _COUNTING, "max_tokens": 5}
_SECRET = "What is the secret word? Answer with this word only."
_CONVERSATIONS: tuple[Mapping[str, object], ...] = (
    {
        "name": "system",
        "messages": [
            {"role": "system", "content": "The secret word is falcon."},
            {"role": "user", "content": _SECRET},
        ],
        "expect": "falcon",
    },
    {
        "name": "developer",
        "messages": [
            {"role": "developer", "content": "The secret word is walnut."},
            {"role": "user", "content": _SECRET},
        ],
        "expect": "walnut",
    },
    {
        "name": "turns",
        "messages": [
            {"role": "user", "content": "My name is Anna."},
            {"role": "assistant", "content": "Hello, Anna!"},
            {"role": "user", "content": "What is my name? Answer in one word."},
        ],
        "expect": "Anna",
    },
    # A fault that began in the third round: https://github.com/vllm-project/vllm/issues/53305
    {
        "name": "third turn",
        "messages": [
            {"role": "user", "content": "What is the capital of France? Answer in one word."},
            {"role": "assistant", "content": "Paris"},
            {"role": "user", "content": "And of Japan?"},
            {"role": "assistant", "content": "Tokyo"},
            {"role": "user", "content": "And of Italy? Answer in one word."},
        ],
        "expect": "Rome",
    },
)
_COMPLETION: Mapping[str, object] = {"prompt": "The capital of France is", "expect": "Paris", "max_tokens": 8}


@dataclass(frozen=True)
class Call:
    """The call that a question must lead to; `arguments` is None where any by the schema will do."""

    name: str
    arguments: Mapping[str, object] | None


@dataclass(frozen=True)
class Tools:
    """Tools, a question for one of them, and the answer once the tool has said `result` (None: not asked)."""

    tools: Messages
    prompt: str
    call: Call
    max_tokens: int
    result: str | None
    expect: str | None

    def parameters(self, name: str | None) -> Mapping[str, object] | None:
        """The schema of a tool's arguments, None if there is no such tool."""
        return next((parameters_of(tool) for tool in self.tools if name_of(tool) == name), None)


@dataclass(frozen=True)
class Structured:
    """A question whose answer a schema shapes; `expect` is None where only the shape is known."""

    prompt: str
    schema: Mapping[str, object]
    expect: object
    max_tokens: int


@dataclass(frozen=True)
class Counted:
    """A question and a limit of tokens."""

    prompt: str
    max_tokens: int


@dataclass(frozen=True)
class Stopped:
    """A question, the text that must end the answer, and what comes before it."""

    prompt: str
    stop: str
    expect: str
    max_tokens: int


@dataclass(frozen=True)
class Conversation:
    """Messages with one right answer."""

    name: str
    messages: Messages
    expect: str
    exact: bool
    max_tokens: int

    @property
    def has_developer(self) -> bool:
        """Whether the role `developer` speaks, which not every template knows."""
        return any(message["role"] == "developer" for message in self.messages)


@dataclass(frozen=True)
class Answers:
    """How many facts are asked, and whether the content must be the expected text itself."""

    count: int
    exact: bool


@dataclass(frozen=True)
class ProtocolData:
    """All cases; None for one that is switched off."""

    concurrency: int
    tools: Tools | None
    schemas: tuple[Structured, ...]
    stream: Counted | None
    stop: Stopped | None
    limit: Counted | None
    conversations: tuple[Conversation, ...]
    completion: Question | None
    answers: Answers | None
    mixed: bool


def read_protocol(value: object, path: str) -> ProtocolData:
    """The section `gate.protocol`. Raises UsageError."""
    section = Section(value, path)
    data = ProtocolData(
        concurrency=section.take("concurrency", positive_integer, 4),
        tools=section.take("tools", optional(_tools), _TOOLS),
        schemas=section.take("schemas", each(_structured), _SCHEMAS),
        stream=section.take("stream", optional(_counted), _STREAM),
        stop=section.take("stop", optional(_stopped), _STOP),
        limit=section.take("limit", optional(_counted), _LIMIT),
        conversations=section.take("conversations", _conversations, _CONVERSATIONS),
        completion=section.take("completion", optional(_completion), _COMPLETION),
        answers=section.take("answers", optional(_answers), {}),
        mixed=section.take("mixed", boolean, True),
    )
    section.close()
    return data


def _tools(value: object, path: str) -> Tools:
    section = Section(value, path)
    tools = Tools(
        section.take("tools", read_tools),
        section.take("prompt", text),
        section.take("call", _call),
        section.take("max_tokens", positive_integer, 128),
        section.take("result", optional(text), None),
        section.take("expect", optional(text), None),
    )
    section.close()
    parameters = tools.parameters(tools.call.name)
    if parameters is None:
        raise UsageError(f"{path}.call.name is {tools.call.name!r}, which is none of {path}.tools")
    broken = violation(tools.call.arguments, parameters) if tools.call.arguments is not None else ""
    if broken:
        raise UsageError(f"{path}.call.arguments do not keep to the tool's own parameters: {broken}")
    if (tools.result is None) != (tools.expect is None):
        raise UsageError(f"{path}.result and {path}.expect go together")
    if tools.result is not None and tools.call.arguments is None:
        raise UsageError(f"{path}.result needs {path}.call.arguments, which the tool is said to answer")
    return tools


def _call(value: object, path: str) -> Call:
    section = Section(value, path)
    call = Call(section.take("name", text), section.take("arguments", optional(_mapping), None))
    section.close()
    return call


def _structured(value: object, path: str) -> Structured:
    section = Section(value, path)
    structured = Structured(
        section.take("prompt", text),
        section.take("schema", check_schema),
        section.take("expect", lambda value, _path: value, None),
        section.take("max_tokens", positive_integer, 128),
    )
    section.close()
    broken = violation(structured.expect, structured.schema) if structured.expect is not None else ""
    if broken:
        raise UsageError(f"{path}.expect does not keep to {path}.schema: {broken}")
    return structured


def _counted(value: object, path: str) -> Counted:
    section = Section(value, path)
    counted = Counted(section.take("prompt", text), section.take("max_tokens", positive_integer))
    section.close()
    return counted


def _stopped(value: object, path: str) -> Stopped:
    section = Section(value, path)
    stopped = Stopped(
        section.take("prompt", text),
        section.take("stop", text),
        section.take("expect", text),
        section.take("max_tokens", positive_integer, 128),
    )
    section.close()
    return stopped


def _conversations(value: object, path: str) -> tuple[Conversation, ...]:
    conversations = () if value is None else each(_conversation)(value, path)
    if len({one.name for one in conversations}) < len(conversations):
        raise UsageError(f"{path} has two conversations of one name")
    return conversations


def _conversation(value: object, path: str) -> Conversation:
    section = Section(value, path)
    conversation = Conversation(
        section.take("name", text),
        section.take("messages", read_messages),
        section.take("expect", text),
        section.take("exact", boolean, False),
        section.take("max_tokens", positive_integer, 32),
    )
    section.close()
    return conversation


def _completion(value: object, path: str) -> Question:
    return read_question(value, path, max_tokens=8)


def _answers(value: object, path: str) -> Answers:
    section = Section(value, path)
    answers = Answers(section.take("count", positive_integer, 24), section.take("exact", boolean, False))
    section.close()
    return answers


def _mapping(value: object, path: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{path} must be a mapping, not {kind(value)}")
    return value
