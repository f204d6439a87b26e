"""Launch arguments of the inference server, and their form in a systemd unit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

OPTION = re.compile(r"[a-z][a-z0-9_]*")
OWN_OPTIONS = {
    "host": "the engine listens on loopback",
    "port": "set sglang_server_port",
    "model_path": "the model profile names the checkpoint",
    "served_model_name": "the model profile has served_name",
    "config": "name the file's options one by one, so that they are judged",
}
SECRET = re.compile(r"(?:^|_)(?:api_?key|key|token|secret|password)$", re.IGNORECASE)
LOWEST_PORT = 1024  # the engine's user may not open a lower one
HIGHEST_PORT = 65535


def launch_args(options: Mapping[str, Any]) -> list[str]:
    """Render options as an argument list.

    Names are written with underscores. True is a bare flag; false and null leave the option out; a list
    becomes one option with several values; everything else is its value. The order is the mapping's.
    """
    if not isinstance(options, Mapping):
        raise TypeError(f"launch_args needs a mapping of options, not {type(options).__name__}")
    arguments: list[str] = []
    for name, value in options.items():
        if not isinstance(name, str) or not OPTION.fullmatch(name):
            raise ValueError(
                f"launch option {name!r}: write the name in lower case with underscores, without dashes"
            )
        flag = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            arguments.append(flag)
        elif isinstance(value, (list, tuple)):
            if any(isinstance(item, bool) or not isinstance(item, (str, int, float)) for item in value):
                raise TypeError(f"launch option {name!r} must be a list of plain values, not {value!r}")
            arguments += [flag, *(str(item) for item in value)]
        elif isinstance(value, (str, int, float)):
            arguments += [flag, str(value)]
        else:
            raise TypeError(
                f"launch option {name!r} must be a plain value or a list, not {type(value).__name__}"
            )
    return arguments


def launch_problems(options: Mapping[str, Any], environment: Mapping[str, Any], port: Any) -> list[str]:
    """Why these launch options, environment variables and port must not be used, in sentences."""
    problems = []
    try:
        launch_args(options)
    except (TypeError, ValueError) as error:
        problems.append(str(error))
    for name in options:
        if name in OWN_OPTIONS:
            problems.append(f"launch option {name!r} is Smokestack's own: {OWN_OPTIONS[name]}")
        elif SECRET.search(str(name)):
            problems.append(
                f"launch option {name!r}: a secret on a command line is seen by all, and SGLang logs it"
            )
    for name in environment:
        if SECRET.search(str(name)):
            problems.append(f"environment variable {name!r}: a secret in a unit file is seen by all")
    if not str(port).isdigit() or not LOWEST_PORT <= int(port) <= HIGHEST_PORT:
        problems.append(f"sglang_server_port must be {LOWEST_PORT} to {HIGHEST_PORT}, not {port!r}")
    return problems


def systemd_quote(word: str) -> str:
    """One word of a systemd command line: specifiers and variables stay literal, blanks do not split it."""
    if any(character in word for character in "\n\r\0"):
        raise ValueError(f"a unit cannot hold a word with a line break: {word!r}")
    escaped = word.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$").replace('"', '\\"')
    return f'"{escaped}"' if re.search(r"[\s\"';]", word) or not word else escaped


def systemd_command(words: Sequence[str], indent: str = "    ") -> str:
    """A command line for ExecStart=, each option on a line of its own with its values."""
    lines: list[list[str]] = []
    for word in words:
        if not lines or word.startswith("--"):
            lines.append([])
        lines[-1].append(systemd_quote(word))
    return f" \\\n{indent}".join(" ".join(line) for line in lines)


def systemd_environment(variables: Mapping[str, Any]) -> list[str]:
    """Lines of Environment= for a unit, sorted by name."""
    lines = []
    for name in sorted(variables):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{name!r} is not a name of an environment variable")
        value = str(variables[name])
        if any(character in value for character in "\n\r\0"):
            raise ValueError(f"the environment variable {name} must not hold a line break")
        text = f"{name}={value}".replace("\\", "\\\\").replace("%", "%%").replace('"', '\\"')
        lines.append(f'Environment="{text}"')
    return lines


class FilterModule:
    """Filters about launching the server."""

    def filters(self) -> dict[str, Any]:
        return {
            "launch_args": launch_args,
            "launch_problems": launch_problems,
            "systemd_command": systemd_command,
            "systemd_environment": systemd_environment,
        }
