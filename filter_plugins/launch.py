"""Launch arguments of the inference server, and their form in a systemd unit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

OPTION = re.compile(r"[a-z][a-z0-9_]*")


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
            "systemd_command": systemd_command,
            "systemd_environment": systemd_environment,
        }
