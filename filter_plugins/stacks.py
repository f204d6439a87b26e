"""Stacks, their locks and their patches: what such a file says, what is wrong in it, what belongs to what.

A stack file is checked against `catalog/schema/stack.schema.json`, the file beside a patch against
`patch.schema.json`. Problems are returned as sentences that name file, line and key, all at once, so that an
operator mends a file in one go.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator, ValidationError
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

SCHEMAS = Path(__file__).resolve().parents[1] / "catalog" / "schema"
TOOLKIT, BUILD = "toolkit", "build"
"""Wheels of a lock outside the environment: the CUDA toolkit's, and what a kernel is built with."""
LOCK_META = ("stack", "abi", "platform", "inputs", "resolved", "count")
TOOLKIT_SOURCES = ("wheels", "path", "package")
TOOLKIT_PARTS = (
    "nvidia-cuda-nvcc",
    "nvidia-cuda-crt",
    "nvidia-nvvm",
    "nvidia-cuda-runtime",
    "nvidia-cuda-cccl",
)
"""What compiles and links a program: nvcc with ptxas, its headers, cicc, the runtime and cuda/std. PyPI has
them from CUDA 13 on; its CUDA 12 wheel of that name (nvidia-cuda-nvcc-cu12 12.9.86) holds ptxas, no nvcc."""
BUILD_TOOLS = ("cmake", "ninja", "packaging", "pathspec", "scikit-build-core")
"""What builds sgl-kernel without isolation: its backend, what that needs
(https://pypi.org/project/scikit-build-core/), and the programs that it runs."""
TYPES = {
    "string": "a text",
    "object": "a mapping",
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
}

YamlPath = tuple[str | int, ...]
Problems = Iterator[tuple[YamlPath, str]]


# --- files of the catalogue that have a schema ---------------------------------------------------


def node_lines(node: yaml.Node | None, path: YamlPath = ()) -> Iterator[tuple[YamlPath, int]]:
    """Each path of a YAML document with its line, counted from 1; a key of a mapping stands for its value."""
    if node is None:
        return
    if not path:
        yield path, node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*path, str(key.value)), key.start_mark.line + 1
            yield from node_lines(value, (*path, str(key.value)))
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield (*path, number), item.start_mark.line + 1
            yield from node_lines(item, (*path, number))


def dotted(path: Sequence[str | int]) -> str:
    """`kernel.wheel.torch`, `requirements[3]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def stack_lines(text: str) -> dict[str, int]:
    """The line of every key and item of a file of the catalogue, by its dotted path."""
    return {dotted(path): line for path, line in node_lines(yaml.compose(text, Loader=yaml.SafeLoader))}


def repeated_keys(text: str) -> list[tuple[int, str, int]]:
    """Keys that a mapping holds twice: (line, path, line of the first)."""
    first: dict[YamlPath, int] = {}
    found = []
    for path, line in node_lines(yaml.compose(text, Loader=yaml.SafeLoader)):
        if path in first and isinstance(path[-1], str):
            found.append((line, dotted(path), first[path]))
        first.setdefault(path, line)
    return found


def schema_sentences(error: ValidationError) -> Problems:
    """One of the schema's errors in words, each with the path of the line that it is about."""
    path: YamlPath = tuple(error.absolute_path)
    where = f"{dotted(path)}: " if path else ""
    wanted = error.schema.get("description", "") if isinstance(error.schema, Mapping) else ""
    value, asked = error.instance, error.validator_value
    match error.validator:
        case "required":
            for key in asked:
                if key not in value:
                    meaning = error.schema["properties"][key]["description"]
                    yield path, f"{where}{key} is missing: {meaning}"
        case "additionalProperties":
            known = list(error.schema["properties"])
            for key in value:
                if key not in known:
                    near = difflib.get_close_matches(str(key), known, n=1)
                    hint = f"; did you mean {near[0]!r}?" if near else f" (known: {', '.join(known)})"
                    yield (*path, str(key)), f"{where}unknown key {key!r}{hint}"
        case "type":
            quotes = ""
            if asked == "string" and not isinstance(value, (Mapping, list, type(None))):
                quotes = "; write it in quotes"
            yield path, f"{where}must be {TYPES[asked]}, not {value!r}{quotes} ({wanted})"
        case "dependentRequired":
            yield path, f"{where}a commit needs its repository, and a repository its commit"
        case "minProperties" | "maxProperties":
            there = ", ".join(map(str, value)) or "nothing"
            yield path, f"{where}must be {wanted}, not {there}"
        case "minItems" | "minLength":
            yield path, f"{where}is empty: {wanted}"
        case _:
            yield path, f"{where}must be {wanted}, not {value!r}"


def document_problems(
    text: str, where: str, schema: str, meaning: Callable[[Mapping[str, Any]], Problems]
) -> list[str]:
    """What is wrong in a file, in the order of its lines: `WHERE:LINE: KEY ...`.

    `meaning` says what the schema, a file of `catalog/schema`, cannot see in a document that keeps to it.
    """
    try:
        document = yaml.safe_load(text)
        lines = dict(node_lines(yaml.compose(text, Loader=yaml.SafeLoader)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return [f"{where}:{mark.line + 1 if mark else 1}: not YAML: {error.problem}"]
    if not isinstance(document, Mapping):
        return [f"{where}:1: must be a mapping of keys, not {document!r:.60}"]
    found = [
        (line, f"{key} is there twice, first in line {first}") for line, key, first in repeated_keys(text)
    ]
    rules = json.loads((SCHEMAS / schema).read_text())
    for broken in Draft202012Validator(rules).iter_errors(document):
        found += [(lines.get(path, 1), sentence) for path, sentence in schema_sentences(broken)]
    if not found:
        found = [(lines[path], sentence) for path, sentence in meaning(document)]
    return [f"{where}:{line}: {sentence}" for line, sentence in sorted(set(found))]


def schema_problems(text: str, where: str, schema: str) -> list[str]:
    """What is wrong in a file of the catalogue by its schema alone; see `document_problems`."""
    return document_problems(text, where, schema, lambda _document: iter(()))


# --- stack files ---------------------------------------------------------------------------------


def stack_problems(text: str, name: str) -> list[str]:
    """What is wrong in a stack file, in the order of its lines: `catalog/stacks/NAME.yml:LINE: KEY ...`."""
    where = f"catalog/stacks/{name}.yml"
    return document_problems(text, where, "stack.schema.json", functools.partial(meaning_problems, name=name))


def meaning_problems(stack: Mapping[str, Any], name: str) -> Problems:
    """What a schema cannot see, in a stack that keeps to it."""
    if stack["name"] != name:
        yield ("name",), f"name is {stack['name']!r}, the file says {name!r}"
    if "version" in stack["sglang"] and "commit" in stack["sglang"]:
        yield ("sglang", "commit"), "sglang: a version and a commit are named; keep one of them"
    if "version" not in stack["sglang"] and "commit" not in stack["sglang"]:
        yield ("sglang",), "sglang: version is missing: a released version, such as 0.5.9"
    for package, index in stack.get("from_index", {}).items():
        if index not in stack.get("indexes", {}):
            there = ", ".join(stack.get("indexes", {})) or "none"
            yield (
                ("from_index", package),
                f"from_index.{package}: the index {index!r} is not among indexes ({there})",
            )
    source = stack["kernel"].get("source")
    if "cuda_toolkit" in stack:
        yield from toolkit_problems(stack["cuda_toolkit"], stack.get("cuda"), compiled=source is not None)
    if source:
        yield from source_problems(source, stack)
    pinned = {
        project(pin) for pin in stack_pins(stack)["requirements"][: -len(stack["requirements"]) or None]
    }
    for number, requirement in enumerate(stack["requirements"]):
        if project(requirement) in pinned:
            sentence = (
                f"requirements[{number}]: {requirement!r} is pinned by a key of its own above; take it out"
            )
            yield ("requirements", number), sentence


def source_problems(source: Mapping[str, Any], stack: Mapping[str, Any]) -> Problems:
    """What is wrong in `kernel.source`."""
    top: YamlPath = ("kernel", "source")
    if "cuda_toolkit" not in stack:
        yield top, "kernel.source: the stack has no cuda_toolkit, and a kernel is compiled with one; name it"
    where: YamlPath = (*top, "build")
    names = [project(pin) for pin in source["build"]]
    for number, name in enumerate(names):
        if name in names[:number]:
            yield (*where, number), f"kernel.source.build[{number}]: {name} is pinned twice; keep one of them"
        if name in ("torch", "uv"):
            yield (
                (*where, number),
                f"kernel.source.build[{number}]: {name} is the environment's own; take it out",
            )
    missing = [name for name in BUILD_TOOLS if name not in names]
    if missing:
        yield where, f"kernel.source.build: {', '.join(missing)} missing; without it nothing is built"


def toolkit_problems(
    toolkit: Mapping[str, Any], cuda: str | None, compiled: bool = False
) -> Iterator[tuple[YamlPath, str]]:
    """What is wrong in `cuda_toolkit`; `cuda` is the CUDA version of the stack's torch.

    `compiled` says whether the kernel is compiled from source, on the builder.
    """
    top: YamlPath = ("cuda_toolkit",)
    version = toolkit["version"]
    if not cuda and not compiled:
        yield top, "cuda_toolkit: the stack has no cuda, so nothing of it is compiled; take cuda_toolkit out"
    if cuda and cuda.split(".")[0] != version.split(".")[0]:
        yield (
            (*top, "version"),
            f"cuda_toolkit.version: a toolkit of CUDA {version} compiles nothing for a torch of CUDA {cuda}; "
            "they must be of one major",
        )
    named = [source for source in TOOLKIT_SOURCES if source in toolkit]
    if not named:
        yield top, "cuda_toolkit: name where it comes from: wheels, path, or package with path"
    elif "wheels" in toolkit and len(named) > 1:
        yield (*top, "wheels"), f"cuda_toolkit: {' and '.join(named)} are named; keep one of them"
    elif named == ["package"]:
        yield (
            (*top, "package"),
            "cuda_toolkit.path is missing: the folder that the package puts the toolkit in",
        )
    if "wheels" in toolkit:
        yield from toolkit_wheel_problems(toolkit["wheels"], version)


def toolkit_wheel_problems(pins: Sequence[str], version: str) -> Iterator[tuple[YamlPath, str]]:
    """The wheels of a toolkit are whole, and its parts of one CUDA version."""
    where: YamlPath = ("cuda_toolkit", "wheels")
    if int(version.partition(".")[0]) < 13:
        yield (
            where,
            f"cuda_toolkit.wheels: PyPI's wheels of CUDA {version} hold no nvcc; name a path or a package",
        )
        return
    numbers: dict[str, int] = {}
    for number, pin in enumerate(pins):
        name, pinned = project(pin), pin.partition("==")[2]
        if name in numbers:
            yield (*where, number), f"cuda_toolkit.wheels[{number}]: {name} is pinned twice; keep one of them"
        numbers[name] = number
        if name in TOOLKIT_PARTS and pinned.split(".")[:2] != version.split("."):
            yield (*where, number), f"cuda_toolkit.wheels[{number}]: {pin} is not of CUDA {version}"
    missing = [name for name in TOOLKIT_PARTS if name not in numbers]
    if missing:
        yield where, f"cuda_toolkit.wheels: {', '.join(missing)} missing; without it nothing compiles"


def project(requirement: str) -> str:
    """The normalised project name of a requirement."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]).lower()


def stack_pins(stack: Mapping[str, Any]) -> dict[str, Any]:
    """What pip is asked for: a stack's `indexes`, `from_index`, `requirements` and `without_dependencies`,
    `toolkit` where a CUDA toolkit is made of wheels, and `build` where a kernel is built from source.

    These decide which wheels a stack is made of. The pins that have keys of their own come first.
    """
    resolved = [f"torch=={stack['torch']}"]
    alone: list[str] = []
    if "flashinfer" in stack:
        version = stack["flashinfer"]["version"]
        resolved += [f"flashinfer-python=={version}", f"flashinfer-cubin=={version}"]
        if "jit_cache" in stack["flashinfer"]:
            resolved.append(f"flashinfer-jit-cache=={version}+{stack['flashinfer']['jit_cache']}")
    if "version" in stack["sglang"]:
        pins = resolved if stack["sglang"].get("dependencies", True) else alone
        pins.append(f"sglang=={stack['sglang']['version']}")
    if "wheel" in stack["kernel"]:
        alone.append("{name}=={version}".format(**stack["kernel"]["wheel"]))
    asked: dict[str, Any] = {
        "indexes": stack.get("indexes"),
        "from_index": stack.get("from_index"),
        "requirements": resolved + list(stack["requirements"]),
        "without_dependencies": alone + list(stack["without_dependencies"]),
    }
    if "wheels" in stack.get("cuda_toolkit", {}):
        asked[TOOLKIT] = list(stack["cuda_toolkit"]["wheels"])
    if "source" in stack["kernel"]:
        asked[BUILD] = list(stack["kernel"]["source"]["build"])
    return asked


def stack_inputs(stack: Mapping[str, Any]) -> str:
    """The hash of what decides a stack's wheels; a lock carries it to show that it belongs to the stack."""
    text = json.dumps(stack_pins(stack), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def lock_refusals(stack: Mapping[str, Any], abi: str) -> list[str]:
    """Why no lock can be made of this stack for this Python ABI (`cp311`)."""
    name, where = stack["name"], f"catalog/stacks/{stack['name']}.yml"
    if "dead" in stack:
        reason = " ".join(stack["dead"]["reason"].split())
        return [
            f"stack {name} is dead: {reason} Take stack {stack['dead']['instead']!r} instead. If a mirror of "
            f"yours kept the wheels, name it under indexes in {where} and take the key dead out"
        ]
    problems = []
    if "commit" in stack["sglang"]:
        problems.append(
            f"{where}: sglang.commit: SGLang is locked from released wheels only; "
            "name a version that holds the commit"
        )
    python = f"3.{abi.removeprefix('cp3')}"
    if not SpecifierSet(stack["python"]).contains(python):
        problems.append(
            f"{where}: python is {stack['python']!r}, so there is no lock for Python {python} ({abi})"
        )
    return problems


# --- locks ---------------------------------------------------------------------------------------


def lock_name(stack: str, abi: str, platform: str) -> str:
    """File name of a stack's lock for one Python ABI and platform."""
    return f"{stack}.{abi}-{platform}.lock"


def write_lock(
    wheels: Sequence[Mapping[str, Any]],
    meta: Mapping[str, str],
    toolkit: Sequence[Mapping[str, Any]] = (),
    build: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The text of a lock: a line with a hash for each wheel; comments hold file names, sizes and indexes.

    The comment of a wheel of `toolkit` or `build` ends with that word: it is not part of the environment.
    """
    lines = ["# Exact wheels of a stack; made by lock.yml, not by hand."]
    header = {**meta, "count": len(wheels) + len(toolkit) + len(build)}
    lines += [f"# {key}: {header[key]}" for key in LOCK_META]
    for kind, entries in (("", wheels), (f" {TOOLKIT}", toolkit), (f" {BUILD}", build)):
        for wheel in entries:
            lines.append(f"# {wheel['file']} {wheel['size']} {wheel['index'] or 'PyPI'}{kind}")
            lines.append(f"{wheel['name']}=={wheel['version']} --hash=sha256:{wheel['sha256']}")
    return "\n".join(lines) + "\n"


def read_lock(text: str) -> dict[str, Any]:
    """A lock's content: its header's keys, `wheels`, each {name, version, file, sha256, size, index}, and the
    same of `toolkit`, the CUDA toolkit's wheels, and of `build`, what a kernel is built with.
    """
    lock: dict[str, Any] = {"wheels": [], TOOLKIT: [], BUILD: []}
    beside: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        header = re.fullmatch(r"# (\w+): (.*)", line)
        if header and header[1] in LOCK_META:
            lock[header[1]] = header[2]
            beside = []
        elif line.startswith("# "):
            beside = line[2:].split()
        elif line.strip():
            entry = re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+) --hash=sha256:([0-9a-f]{64})", line)
            whole = len(beside) >= 3 and beside[1].isdigit()
            if not entry or not whole or beside[3:] not in ([], [TOOLKIT], [BUILD]):
                raise ValueError(f"line {number} of the lock is not an entry of a lock: {line[:80]!r}")
            lock[beside[3] if beside[3:] else "wheels"].append(
                {
                    "name": entry[1],
                    "version": entry[2],
                    "file": beside[0],
                    "sha256": entry[3],
                    "size": int(beside[1]),
                    "index": None if beside[2] == "PyPI" else beside[2],
                }
            )
            beside = []
    if beside:
        raise ValueError(f"the lock ends before the entry of {beside[0]}")
    return lock


def lock_command(name: str, abi: str, platform: str) -> str:
    """The command that makes a lock."""
    variables = {"stack": name, "lock_abi": abi, "lock_platform": platform}
    return "ansible-playbook lock.yml " + " ".join(f"-e {key}={value}" for key, value in variables.items())


def lock_problems(text: str, stack: Mapping[str, Any], abi: str, platform: str) -> list[str]:
    """Why a lock may not be used for this stack on this node; `text` is empty when there is no such file."""
    file = lock_name(stack["name"], abi, platform)
    remedy = f"make it with: {lock_command(stack['name'], abi, platform)}"
    if not text:
        refusals = lock_refusals(stack, abi)
        return refusals or [
            f"stack {stack['name']} has no lock for this node (catalog/stacks/{file}); {remedy}"
        ]
    try:
        lock = read_lock(text)
    except ValueError as error:
        return [f"catalog/stacks/{file}: {error}; {remedy}"]
    wanted = {"stack": stack["name"], "abi": abi, "platform": platform, "inputs": stack_inputs(stack)}
    for key, value in wanted.items():
        if lock.get(key) != value:
            return [
                f"catalog/stacks/{file} does not match its stack: {key} is {lock.get(key)!r}, "
                f"wanted {value!r}; if the change of the stack is meant, {remedy}"
            ]
    count = sum(len(lock[kind]) for kind in ("wheels", TOOLKIT, BUILD))
    if lock.get("count") != str(count):
        holds = f"holds {count} wheels, its header says {lock.get('count')}: it is torn"
        return [f"catalog/stacks/{file} {holds}; {remedy}"]
    return [] if lock["wheels"] else [f"catalog/stacks/{file} holds no wheels; {remedy}"]


def lock_wheels(lock: Mapping[str, Any], build: bool = True) -> list[Mapping[str, Any]]:
    """Every wheel of a lock once: the environment's, the CUDA toolkit's, and those of a build unless not."""
    every = [*(lock.get(BUILD, ()) if build else ()), *lock.get(TOOLKIT, ()), *lock["wheels"]]
    wheels = {wheel["file"]: wheel for wheel in every}
    return sorted(wheels.values(), key=lambda wheel: str(wheel["name"]))


# --- stacks without a lock -----------------------------------------------------------------------


def node_kinds(nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The distinct {abi, platform} of nodes' facts, in their order."""
    kinds = dict.fromkeys((node["abi"], node["platform"]) for node in nodes)
    return [{"abi": abi, "platform": platform} for abi, platform in kinds]


def unlocked_line(name: str, text: str, kept: str) -> str:
    """What to know of a stack without a lock: `text` is what was resolved and lies in the file `kept`."""
    line = f"NOT LOCKED: stack {name} has no lock, and sglang_stack_unlocked_ok is set: "
    lock = read_lock(text)
    if not lock["wheels"]:
        return (
            f"{line}a run resolves it first, without review, and keeps the result in {kept}; "
            "what it will install is not known yet"
        )
    return (
        f"{line}its {len(lock['wheels'])} wheels were resolved on this controller on {lock['resolved']}, "
        f"without review; review {kept} and copy it to catalog/stacks to make it the lock"
    )


# --- the patches of a kernel's source ------------------------------------------------------------


def condition_problems(where: YamlPath, condition: Mapping[str, Any]) -> Problems:
    """What is wrong in one condition on the source tree."""
    if set(condition) not in ({"file", "has"}, {"file", "lacks"}, {"since"}, {"before"}):
        yield (
            where,
            f"{dotted(where)}: must be a file with has or lacks, or one of since and before, "
            f"not {', '.join(condition)}",
        )
    for key in condition.keys() & {"has", "lacks"}:
        try:
            re.compile(condition[key])
        except re.error as error:
            yield (*where, key), f"{dotted((*where, key))}: not a regular expression: {error}"


def patch_meaning_problems(patch: Mapping[str, Any], name: str) -> Problems:
    """What a schema cannot see, in the file beside a patch that keeps to it."""
    if patch["name"] != name:
        yield ("name",), f"name is {patch['name']!r}, the file says {name!r}"
    needed = patch.get("needed_when", {})
    for key, place, conditions in (
        ("needed_when", ("needed_when", "tree"), needed.get("tree", [])),
        ("upstream_when", ("upstream_when",), patch["upstream_when"]),
    ):
        if key in patch:
            for number, condition in enumerate(conditions):
                yield from condition_problems((*place, number), condition)
    for tool, ranges in needed.get("tools", {}).items():
        for number, versions in enumerate(ranges):
            try:
                SpecifierSet(versions)
            except InvalidSpecifier:
                where = ("needed_when", "tools", tool, number)
                yield (
                    where,
                    f'{dotted(where)}: {versions!r} is no range of versions; write one such as "<3.31"',
                )


def catalogue_name(folder: str) -> str:
    """A folder as it is called in the catalogue: `catalog/patches/sgl-kernel`."""
    parts = Path(folder).parts
    return str(Path(*parts[parts.index("catalog") :])) if "catalog" in parts else folder


def patch_problems(folder: str, names: Sequence[str]) -> list[str]:
    """Why the patches `names` of a folder such as `catalog/patches/sgl-kernel` make no series."""
    shown = catalogue_name(folder)
    known = sorted(path.stem for path in Path(folder).glob("*.yml"))
    problems, orders = [], []
    for name in names:
        sidecar, patch = (Path(folder, f"{name}.{ending}") for ending in ("yml", "patch"))
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f" (there: {', '.join(known) or 'none'})"
            problems.append(f"{shown}/{name}.yml: no patch of that name{hint}")
            continue
        if not patch.is_file():
            problems.append(f"{shown}/{name}.patch: missing, though {name}.yml describes it")
        text = sidecar.read_text()
        found = document_problems(
            text,
            f"{shown}/{name}.yml",
            "patch.schema.json",
            functools.partial(patch_meaning_problems, name=name),
        )
        problems += found
        if not found:
            orders.append((yaml.safe_load(text)["order"], name))
    if not problems and orders != sorted(set(orders)):
        wanted = ", ".join(name for _order, name in sorted(set(orders)))
        problems.append(f"{shown}: the series must be named in its order, each patch once: {wanted}")
    return problems


def version_refusal(tool: str, version: str | None, ranges: Sequence[str]) -> str:
    """Why no range holds a tool's version; empty when one does. Raises ValueError where it is not known."""
    wanted = " or ".join(ranges)
    try:
        found = Version(version or "")
    except InvalidVersion as error:
        raise ValueError(
            f"{tool}: a version such as 3.31.6 is wanted, to compare with {wanted}; not {version!r}"
        ) from error
    if any(SpecifierSet(versions).contains(found, prereleases=True) for versions in ranges):
        return ""
    return f"{tool} {version} is not {wanted}"


def patch_series(folder: str, names: Sequence[str], tools: Mapping[str, str]) -> list[dict[str, Any]]:
    """The patches of a folder as the module patch_series takes them.

    `tools` are the versions of what builds: `cmake`, `cuda`. A patch whose tools are not there is
    `unneeded`, with the reason. The files must be right: see `patch_problems`.
    """
    series = []
    for name in names:
        patch = yaml.safe_load(Path(folder, f"{name}.yml").read_text())
        needed = patch.get("needed_when", {})
        refusals = [
            version_refusal(tool, tools.get(tool), ranges) for tool, ranges in needed.get("tools", {}).items()
        ]
        series.append(
            {
                "name": name,
                "text": Path(folder, f"{name}.patch").read_text(),
                "unneeded": "; ".join(filter(None, refusals)),
                "needed_when": needed.get("tree", []),
                "upstream_when": patch["upstream_when"],
            }
        )
    return series


class FilterModule:
    """Filters about stacks, locks and patches."""

    def filters(self) -> dict[str, Any]:
        return {
            "schema_problems": schema_problems,
            "stack_problems": stack_problems,
            "stack_lines": stack_lines,
            "stack_pins": stack_pins,
            "stack_inputs": stack_inputs,
            "lock_refusals": lock_refusals,
            "lock_name": lock_name,
            "write_lock": write_lock,
            "read_lock": read_lock,
            "lock_wheels": lock_wheels,
            "lock_problems": lock_problems,
            "node_kinds": node_kinds,
            "unlocked_line": unlocked_line,
            "patch_problems": patch_problems,
            "patch_series": patch_series,
        }
