"""Launch options become arguments, and a unit hands exactly those to the server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from launch import launch_args, launch_problems, systemd_command, systemd_environment, systemd_quote

ROOT = Path(__file__).parents[2]
ROLE = ROOT / "roles" / "sglang_server"

WORDS = {
    "plain": "--port",
    "empty": "",
    "blank": "two words",
    "blanks at the ends": "  padded\t",
    "per cent": "100%",
    "specifier": "%h/%%i",
    "dollar": "$HOME ${HOME} $$",
    "dollar alone": "$HOME",
    "double quotes": 'say "hi"',
    "single quotes": "it's",
    "backslash": "a\\b",
    "backslash at the end": "path\\",
    "escapes": r"\n \x41 \s \"",
    "semicolon alone": ";",
    "semicolon inside": "a;b",
    "hash": "#no comment",
    "json": '{"type": "eagle", "steps": [1, 2]}',
    "umlaut": "größe 日本",
    "everything": "\\\"'%$; \\\\",
}
ESCAPES = {"n": "\n", "t": "\t", "s": " ", "\\": "\\", '"': '"', "'": "'"}


# --- launch_args ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"trust_remote_code": True}, ["--trust-remote-code"], id="true is a bare flag"),
        pytest.param({"trust_remote_code": False}, [], id="false is left out"),
        pytest.param({"trust_remote_code": None}, [], id="null is left out"),
        pytest.param({"cuda_graph_bs": [1, 2, 4]}, ["--cuda-graph-bs", "1", "2", "4"], id="list"),
        pytest.param({"tp_size": 8}, ["--tp-size", "8"], id="integer"),
        pytest.param({"tp_size": 0}, ["--tp-size", "0"], id="zero is a value"),
        pytest.param({"mem_fraction_static": 0.85}, ["--mem-fraction-static", "0.85"], id="float"),
        pytest.param({"device": "cpu"}, ["--device", "cpu"], id="string"),
        pytest.param({"chat_template": ""}, ["--chat-template", ""], id="empty string is a value"),
        pytest.param({"quantization": "true"}, ["--quantization", "true"], id="the word true is a value"),
        pytest.param(
            {"z": 1, "a": True, "m": "x"}, ["--z", "1", "--a", "--m", "x"], id="the order is the mapping's"
        ),
    ],
)
def test_options_become_arguments(options: dict[str, Any], arguments: list[str]) -> None:
    assert launch_args(options) == arguments


@pytest.mark.parametrize("name", ["tp-size", "--tp", "TP", "tp size", "", "1st", "tp_size ", "tp_size\n", 7])
def test_a_name_that_is_no_option_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(name))):
        launch_args({name: 1})


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"a": 1}, id="mapping"),
        pytest.param(b"x", id="bytes"),
        pytest.param([{"a": 1}], id="mapping in a list"),
        pytest.param([[1]], id="list in a list"),
        pytest.param([None], id="null in a list"),
        pytest.param([True], id="boolean in a list"),
    ],
)
def test_a_value_that_no_argument_can_hold_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="'odd'"):
        launch_args({"odd": value})


@pytest.mark.parametrize("options", [["--tp", "8"], "tp_size", None], ids=["list", "string", "null"])
def test_options_that_are_no_mapping_are_refused(options: Any) -> None:
    with pytest.raises(TypeError, match="mapping"):
        launch_args(options)


# --- systemd -------------------------------------------------------------------------------------


def parsed(line: str) -> list[str]:
    """The words of a unit's value by the rules of systemd.syntax(7) and systemd.service(5), written anew."""
    line = re.sub(r"\\\n\s*", " ", line)
    words: list[str] = []
    word, quote, position = "", "", 0
    inside = False
    while position < len(line):
        character = line[position]
        position += 1
        if character == "\\":
            word, inside = word + ESCAPES[line[position]], True
            position += 1
        elif quote:
            quote, word = ("", word) if character == quote else (quote, word + character)
        elif character in "\"'" and not inside:
            quote, inside = character, True
        elif character.isspace():
            words, word, inside = ([*words, word] if inside else words), "", False
        else:
            word, inside = word + character, True
    assert not quote, line
    words = [*words, word] if inside else words
    return [specifiers(word) for word in words]


def specifiers(word: str) -> str:
    """The word with each %% as one %; every other use of % would be replaced by something else."""
    assert not re.search(r"%[^%]", word.replace("%%", "")), word
    return word.replace("%%", "%")


def executed(words: list[str]) -> list[str]:
    """The words with each $$ as one $, as systemd does it when it starts the program."""
    for word in words:
        assert "$" not in word.replace("$$", ""), f"{word} would be replaced by a variable"
    return [word.replace("$$", "$") for word in words]


@pytest.mark.parametrize("word", WORDS.values(), ids=WORDS)
def test_a_word_reaches_the_program_as_it_is(word: str) -> None:
    assert executed(parsed(f"/bin/x {systemd_quote(word)} last")) == ["/bin/x", word, "last"]


def test_all_words_reach_the_program_together_and_in_order() -> None:
    words = list(WORDS.values())
    assert executed(parsed(systemd_command(words))) == words


def test_each_option_stands_on_a_line_of_its_own_with_its_values() -> None:
    words = ["--host", "127.0.0.1", "--sizes", "1", "2", "--flag"]
    expected = ["--host 127.0.0.1 \\", "  --sizes 1 2 \\", "  --flag"]
    assert systemd_command(words, indent="  ").split("\n") == expected


@pytest.mark.parametrize("bad", ["a\nb", "a\rb", "a\0b"], ids=["newline", "return", "null"])
def test_a_line_break_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        systemd_command(["--name", bad])
    with pytest.raises(ValueError, match="NAME must not hold a line break"):
        systemd_environment({"NAME": bad})


@pytest.mark.parametrize("value", WORDS.values(), ids=WORDS)
def test_a_variable_keeps_its_value(value: str) -> None:
    (line,) = systemd_environment({"NAME": value})
    assert parsed(line.removeprefix("Environment=")) == [f"NAME={value}"]


def test_variables_are_sorted_and_numbers_are_written_out() -> None:
    assert systemd_environment({"B": 1, "A": 0.5}) == ['Environment="A=0.5"', 'Environment="B=1"']


@pytest.mark.parametrize("name", ["A B", "1A", "", "A=B", "A-B", "A\n"])
def test_a_name_that_is_no_variable_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(name))):
        systemd_environment({name: "1"})


def systemd_analyze(unit: Path) -> str:
    """What systemd itself makes of a unit file and its drop-ins; fails when it finds anything wrong."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed here")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=yes", "--man=no", unit],
        env=os.environ | {"SYSTEMD_LOG_LEVEL": "debug", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [
        line for line in done.stderr.splitlines() if line.startswith((str(unit), f"{unit.name}: Comm"))
    ]
    assert (done.returncode, complaints) == (0, []), done.stderr[-2000:]
    return done.stdout


def test_systemd_reads_the_same_words_and_variables(tmp_path: Path) -> None:
    unit = tmp_path / "words.service"
    variables = {f"V{number}": word for number, word in enumerate(WORDS.values())}
    lines = ["[Service]", *systemd_environment(variables)]
    unit.write_text("\n".join([*lines, f"ExecStart=/bin/echo {systemd_command(list(WORDS.values()))}", ""]))
    dump = systemd_analyze(unit)
    command = next(line for line in dump.splitlines() if "Command Line:" in line).partition(": ")[2]
    # The dump quotes words for a shell, with C's escapes.
    words = [quoted or plain for quoted, plain in re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', command)]
    words = [re.sub(r"\\(.)", lambda match: {"t": "\t"}.get(match[1], match[1]), word) for word in words]
    assert executed(words) == ["/bin/echo", *WORDS.values()]
    there = [line.strip().partition(": ")[2] for line in dump.splitlines() if "\tEnvironment: " in line]
    assert [entry.strip() for entry in there] == [
        f"{name}={value}".strip() for name, value in sorted(variables.items())
    ]


def test_the_rendered_unit_is_one_that_systemd_accepts(tmp_path: Path) -> None:
    profile = yaml.safe_load((ROOT / "catalog/models/tiny-qwen3.yml").read_text())
    release = tmp_path / "releases" / "r1"
    (release / "venv/bin").mkdir(parents=True)
    (release / "venv/bin/python").symlink_to("/bin/true")
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROLE / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {
        "basename": os.path.basename,
        "systemd_command": systemd_command,
        "systemd_environment": systemd_environment,
    }
    variables = yaml.safe_load((ROLE / "defaults/main.yml").read_text()) | {
        "plan": {"root": str(tmp_path), "launch": {"port": 30000, **profile["launch"]}},
        "release_venv": str(tmp_path / "venvs" / "0123456789ab"),
        "sglang_server_release": release.name,
        "__sglang_server_arguments": launch_args({"port": 30000, **profile["launch"]}),
        "__sglang_server_variables": profile["environment"] | {"ODD": "50% of $HOME"},
    }
    unit = tmp_path / "sglang.service"
    unit.write_text(templates.get_template("sglang.service.j2").render(variables))
    unit.with_suffix(".service.d").mkdir()
    drop_in = templates.get_template("sglang.conf.j2").render(variables)
    (unit.with_suffix(".service.d") / "release.conf").write_text(drop_in)
    dump = systemd_analyze(unit)
    assert re.findall(r"Environment: (?:ODD|TORCHDYNAMO_DISABLE)=.*", dump) == [
        "Environment: ODD=50% of $HOME",
        "Environment: TORCHDYNAMO_DISABLE=1",
    ]
    wanted = f"{release}/venv/bin/python -m sglang.launch_server --model-path {release}/model --port 30000"
    assert wanted in dump


@pytest.mark.parametrize(
    ("options", "environment", "port", "problem"),
    [
        pytest.param({"port": 1}, {}, 30000, "Smokestack's own", id="the port as an option"),
        pytest.param({"model_path": "/etc"}, {}, 30000, "Smokestack's own", id="another model"),
        pytest.param({"api_key": "x"}, {}, 30000, "a secret on a command line", id="a key as an option"),
        pytest.param({}, {"HF_TOKEN": "x"}, 30000, "a secret in a unit file", id="a token as a variable"),
        pytest.param({"--tp": 8}, {}, 30000, "lower case with underscores", id="dashes"),
        pytest.param({}, {}, 80, "1024 to 65535", id="a port for root"),
        pytest.param({}, {}, 70000, "1024 to 65535", id="no port"),
        pytest.param({}, {}, True, "1024 to 65535", id="a truth for a port"),
        pytest.param({}, {}, "-1", "1024 to 65535", id="below all ports"),
    ],
)
def test_what_may_not_be_launched_is_refused(
    options: dict[str, Any], environment: dict[str, Any], port: Any, problem: str
) -> None:
    (said,) = launch_problems(options, environment, port)
    assert problem in said


@pytest.mark.parametrize("port", [30000, "30001", 1024, 65535])
def test_an_ordinary_launch_is_not_refused(port: Any) -> None:
    assert launch_problems({"tp_size": 8, "keep_alive": True}, {"TOKENIZERS_PARALLELISM": "0"}, port) == []
