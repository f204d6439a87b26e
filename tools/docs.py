#!/usr/bin/env python3
"""Write the reference in docs/ from argument specs, module docs, filters, playbooks and the catalogue.

With --check nothing is written; stale pages are named, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
MADE = "Made by `make docs`; edit what it is made of.\n"
# Ansible's markup: code, value, option, return value, module, plugin, environment variable, italic, bold.
CODE = re.compile(r"\b(?:C|V|O|RV|M|P|E|I|B)\(((?:[^()\\]|\\.|\([^()]*\))*)\)")
LINK = re.compile(r"\bU\(([^)]*)\)")
ADDRESS = re.compile(r"https?://\S+")
SHORT = 12


def text(words: Any) -> str:
    """Words of a document, which may be in Ansible's markup and in several paragraphs, as one of Markdown."""
    joined = " ".join(" ".join(str(part).split()) for part in (words if isinstance(words, list) else [words]))
    return LINK.sub(r"<\1>", CODE.sub(r"`\1`", joined))


def cell(words: Any) -> str:
    """A cell of a table."""
    return text(words).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table of Markdown; cells are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def code(value: Any) -> str:
    """A value as YAML has it on one line, as code; nothing where there is none."""
    if value is None or value in ([], {}, ""):
        return ""
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"`{shown}`".replace("|", "\\|")


def value_text(value: Any) -> str:
    """A value of the catalogue in a cell: addresses as links, folded text as text, structures as one line."""
    if isinstance(value, list):
        plain = all(isinstance(item, str) and not ADDRESS.fullmatch(item) for item in value)
        return "; ".join(code(item) if plain else value_text(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {value_text(item)}" for name, item in value.items())
    if isinstance(value, str):
        shown = " ".join(value.split()).replace("|", "\\|")
        return f"<{shown}>" if ADDRESS.fullmatch(shown) else shown
    return json.dumps(value, ensure_ascii=False).replace("|", "\\|")


def comment(path: Path) -> str:
    """The comment that a YAML file begins with."""
    lines = path.read_text(encoding="utf-8").removeprefix("---\n").splitlines()
    head = []
    for line in lines:
        if not line.startswith("#"):
            break
        head.append(line.removeprefix("#").removeprefix(" "))
    return "\n".join(head)


def ansible_doc(*arguments: str) -> Any:
    """What ansible-doc says of the project's own roles or modules."""
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-doc"), "--json", *arguments],
        cwd=ROOT,
        env={
            "PATH": "/usr/bin:/bin",
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "LC_ALL": "C.UTF-8",
            "HOME": "/tmp",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"docs: ansible-doc failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def options(spec: Mapping[str, Any], depth: int = 0) -> list[list[str]]:
    """Rows of a table of options, those of a dict below it."""
    rows = []
    for name, option in spec.items():
        kind = str(option.get("type", "str"))
        if "elements" in option:
            kind += f" of {option['elements']}"
        if option.get("required"):
            kind += ", required"
        words = text(option["description"])
        if option.get("choices"):
            words += f" One of {', '.join(f'`{choice}`' for choice in option['choices'])}."
        indent = "&nbsp;&nbsp;" * depth
        rows.append([f"{indent}`{name}`", kind, code(option.get("default")), words.replace("|", "\\|")])
        rows += options(option.get("options") or option.get("suboptions") or {}, depth + 1)
    return rows


# --- pages ---------------------------------------------------------------------------------------


def roles() -> str:
    """All roles with what each takes."""
    names = sorted(path.parent.parent.name for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"))
    known = ansible_doc("--type", "role", "--roles-path", "roles", *names)
    parts = ["# Roles\n"]
    for name in names:
        parts.append(f"## {name}\n")
        for entry, spec in sorted(known[name]["entry_points"].items(), key=lambda item: item[0] != "main"):
            if entry != "main":
                parts.append(f"### {name}, {entry}\n")
            parts.append(
                f"{text(spec['short_description'])}. {text(spec.get('description', ''))}".strip() + "\n"
            )
            if spec.get("options"):
                parts.append(table(["variable", "type", "default", "what it is"], options(spec["options"])))
    return "\n".join(parts)


def modules() -> str:
    """All modules with what each takes and gives."""
    names = sorted(path.stem for path in (ROOT / "library").glob("*.py"))
    known = ansible_doc("--type", "module", "--module-path", "library", *names)
    parts = ["# Modules\n"]
    for name in names:
        doc, returns = known[name]["doc"], known[name]["return"] or {}
        parts += [f"## {name}\n", f"{text(doc['short_description'])}.\n"]
        parts += [f"- {text(line)}" for line in doc["description"]]
        for attribute, support in sorted((doc.get("attributes") or {}).items()):
            parts.append(
                f"- {attribute.replace('_', ' ')}: {support['support']}. {text(support['description'])}"
            )
        parts.append("")
        if doc.get("options"):
            parts.append(table(["option", "type", "default", "what it is"], options(doc["options"])))
        if returns:
            rows = [
                [
                    f"`{key}`",
                    value.get("type", ""),
                    cell(value.get("returned", "")),
                    cell(value["description"]),
                ]
                for key, value in returns.items()
            ]
            parts.append(table(["returns", "type", "when", "what it is"], rows))
        parts.append(f"```yaml\n{known[name]['examples'].strip()}\n```\n")
    return "\n".join(parts)


def filters() -> str:
    """All filters by the plugin that has them."""
    parts = ["# Filters\n"]
    for path in sorted((ROOT / "filter_plugins").glob("*.py")):
        plugin = import_module(path.stem)
        parts += [f"## {path.stem}\n", f"{(plugin.__doc__ or '').strip()}\n"]
        rows = [
            [f"`{name}`", cell((inspect.getdoc(function) or "").replace("\n\n", " "))]
            for name, function in sorted(plugin.FilterModule().filters().items())
        ]
        parts.append(table(["filter", "what it gives"], rows))
    return "\n".join(parts)


def tags_of(tasks: Any) -> set[str]:
    """All tags in a play, but those with a meaning to Ansible."""
    if isinstance(tasks, list):
        return set().union(*map(tags_of, tasks)) if tasks else set()
    if not isinstance(tasks, Mapping):
        return set()
    own = tasks.get("tags", [])
    below = [
        tasks[key] for key in ("tasks", "block", "rescue", "always", "roles", "pre_tasks") if key in tasks
    ]
    return {*([own] if isinstance(own, str) else own), *tags_of(below)} - {"always", "never"}


def playbooks() -> str:
    """The playbooks that people run."""
    parts = ["# Playbooks\n"]
    for path in sorted(ROOT.glob("*.yml")):
        inner = ROOT / "playbooks" / path.name
        if not inner.is_file():
            continue
        parts += [f"## {path.name}\n", f"{comment(path)}\n"]
        if comment(inner) and comment(inner) != comment(path):
            parts.append(f"```\n{comment(inner)}\n```\n")
        plays, tags = list(_plays(inner)), set()
        for play in plays:
            tags |= tags_of(play)
        rows = [[play["name"], code(play["hosts"])] for play in plays]
        parts.append(table(["play", "hosts"], rows))
        if tags:
            parts.append(f"Tags: {', '.join(f'`{tag}`' for tag in sorted(tags))}.\n")
    return "\n".join(parts)


def _plays(path: Path) -> Iterable[Mapping[str, Any]]:
    """The plays of a playbook, those that it imports among them."""
    for play in yaml.safe_load(path.read_text(encoding="utf-8")):
        imported = play.get("ansible.builtin.import_playbook")
        if imported:
            yield from _plays(path.parent / imported)
        else:
            yield play


def verdicts() -> str:
    """The verdicts as a table."""
    path = ROOT / "catalog" / "backends.yml"
    known = yaml.safe_load(path.read_text(encoding="utf-8"))
    made: str = import_module("verdicts").verdict_table(known)
    return f"# Verdicts\n\n```\n{comment(path)}\n```\n\n{made}"


def catalogue_entries(folder: str) -> Callable[[], str]:
    """A page of a folder of the catalogue: each file's own words, and its fields."""

    def page() -> str:
        parts = [f"# {folder.capitalize()}\n"]
        for path in sorted((ROOT / "catalog" / folder).rglob("*.yml")):
            entry = yaml.safe_load(path.read_text(encoding="utf-8"))
            parts += [f"## {entry['name']}\n", f"{text(entry['title'])}.\n"]
            if comment(path):
                parts.append(f"{comment(path)}\n")
            shown = {key: value for key, value in entry.items() if key not in ("name", "title", "gate")}
            rows = [
                [key, value_text(shortened(value))] for key, value in shown.items() if value not in ([], {})
            ]
            parts.append(table(["field", "value"], rows))
        return "\n".join(parts)

    return page


def shortened(value: Any) -> Any:
    """A value with each SHA-256 in it cut to its beginning: the file has the whole."""
    if isinstance(value, Mapping):
        return {key: shortened(item) for key, item in value.items()}
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value):
        return value[:SHORT]
    return value


def catalogue() -> str:
    """What else is in the catalogue, as tables."""
    parts = ["# Catalogue\n"]
    for path in sorted((ROOT / "catalog").glob("*.yml")):
        if path.name == "backends.yml":
            continue
        parts += [f"## {path.stem}\n", f"{comment(path)}\n"]
        known, plain = yaml.safe_load(path.read_text(encoding="utf-8")), []
        if all(isinstance(entry, Mapping) and not entries(entry) for entry in known.values()):
            known = {"": known}
        for key, value in known.items():
            rows = entries(value)
            if rows:
                columns = list(dict.fromkeys(name for row in rows for name in row))
                body = [[value_text(row[name]) if name in row else "" for name in columns] for row in rows]
                parts += [f"### {key}\n"] if key else []
                parts.append(table([name or key or path.stem for name in columns], body))
            else:
                plain.append([key, value_text(value)])
        if plain:
            parts.append(table(["field", "value"], plain))
    return "\n".join(parts)


def entries(value: Any) -> list[Mapping[str, Any]]:
    """Rows of what is a list of mappings or a mapping of mappings; [] of anything else."""
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        return value
    if isinstance(value, Mapping) and value and all(isinstance(item, Mapping) for item in value.values()):
        return [{"": name, **item} for name, item in value.items()]
    return []


PAGES: Mapping[str, tuple[str, Callable[[], str]]] = {
    "playbooks": ("what people run", playbooks),
    "roles": ("what each role does, and every variable", roles),
    "verdicts": ("settings that are known to be good or bad", verdicts),
    "models": ("the model profiles", catalogue_entries("models")),
    "stacks": ("the stacks", catalogue_entries("stacks")),
    "patches": ("what is changed in a kernel's source", catalogue_entries("patches")),
    "catalogue": ("drivers, failures, limits and what else is data", catalogue),
    "modules": ("the modules", modules),
    "filters": ("the filters", filters),
}


def pages() -> dict[str, str]:
    """Every page by its file name."""
    index = "".join(f"- [{name}]({name}.md): {what}\n" for name, (what, _page) in PAGES.items())
    made = {"README.md": f"# Reference\n\n{MADE}\n{index}"}
    for name, (_what, page) in PAGES.items():
        title, _, body = page().partition("\n")
        made[f"{name}.md"] = f"{title}\n\n{MADE}{body.rstrip()}\n"
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only say which pages are stale")
    given = parser.parse_args(arguments)
    sys.path[:0] = [str(ROOT / "filter_plugins"), str(ROOT / "module_utils"), str(ROOT / "library")]
    made = pages()
    there = {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("*.md")}
    stale = sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))
    if given.check:
        for name in stale:
            print(
                f"docs: docs/{name} is not what `make docs` writes: run it and commit docs/", file=sys.stderr
            )
        return 1 if stale else 0
    DOCS.mkdir(exist_ok=True)
    for name in stale:
        if name in made:
            (DOCS / name).write_text(made[name], encoding="utf-8")
        else:
            (DOCS / name).unlink()
        print(f"docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
