"""What the catalogue says: reading stacks, locks and model profiles, and refusing what is wrong in them.

Problems are returned as sentences, all at once, so that an operator mends a file in one go.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

SHA256 = re.compile(r"[0-9a-f]{64}")
LOCK_META = ("stack", "abi", "platform", "inputs", "resolved", "count")
STACK_KEYS = {
    "name": str,
    "title": str,
    "reason": str,
    "sources": list,
    "indexes": dict,
    "from_index": dict,
    "requirements": list,
    "without_dependencies": list,
    "kernel": dict,
    "imports": list,
}
STACK_REQUIRED = ("name", "title", "reason", "requirements", "without_dependencies", "imports")
STACK_RESOLVED = ("indexes", "from_index", "requirements", "without_dependencies")
"""The keys that decide which wheels a stack is made of; a change in one of them needs a new lock."""
PROFILE_KEYS = {
    "name": str,
    "title": str,
    "sources": list,
    "served_name": str,
    "checkpoint": dict,
    "launch": dict,
    "environment": dict,
    "needs": dict,
    "gate": dict,
}
PROFILE_REQUIRED = ("name", "title", "served_name", "checkpoint", "launch", "gate")
CHECKPOINT_KEYS = {"path": str, "revision": str, "files": dict, "made_by": str}
CHECKPOINT_REQUIRED = ("path", "files")


def canonical(value: Any) -> str:
    """One text for equal data. Tagged values of Ansible are plain ones here."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def digest(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def name_problems(name: Any, known: Sequence[str], kind: str, folder: str) -> list[str]:
    """Why `name` does not select an entry of the catalogue; `kind` and `folder` are for the sentence."""
    if not isinstance(name, str) or not name:
        return [f"{kind} is not set: name one of {folder} ({', '.join(sorted(known)) or 'none there'})"]
    if name in known:
        return []
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return [f"{kind} {name!r} is not in {folder} (there: {', '.join(sorted(known)) or 'none'}){hint}"]


def key_problems(where: str, data: Any, known: Mapping[str, type], required: Sequence[str]) -> list[str]:
    """Unknown keys, missing keys and wrong types of one mapping."""
    if not isinstance(data, Mapping):
        return [f"{where} must be a mapping, not {type(data).__name__}"]
    problems = [f"{where}: {key} is missing" for key in required if key not in data]
    for key, value in data.items():
        if key not in known:
            near = difflib.get_close_matches(str(key), list(known), n=1)
            problems.append(
                f"{where}: unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")
            )
        elif not isinstance(value, known[key]):
            problems.append(f"{where}: {key} must be a {known[key].__name__}, not {type(value).__name__}")
    return problems


def stack_problems(stack: Any, name: str) -> list[str]:
    """What is wrong in a stack file."""
    where = f"catalog/stacks/{name}.yml"
    problems = key_problems(where, stack, STACK_KEYS, STACK_REQUIRED)
    if problems:
        return problems
    if stack["name"] != name:
        problems.append(f"{where}: name is {stack['name']!r}, the file says {name!r}")
    for package, index in stack.get("from_index", {}).items():
        if index not in stack.get("indexes", {}):
            problems.append(f"{where}: {package} comes from the index {index!r}, which indexes does not name")
    return problems


def profile_problems(profile: Any, name: str) -> list[str]:
    """What is wrong in a model profile."""
    where = f"catalog/models/{name}.yml"
    problems = key_problems(where, profile, PROFILE_KEYS, PROFILE_REQUIRED)
    if problems:
        return problems
    if profile["name"] != name:
        problems.append(f"{where}: name is {profile['name']!r}, the file says {name!r}")
    checkpoint = profile["checkpoint"]
    problems += key_problems(f"{where}: checkpoint", checkpoint, CHECKPOINT_KEYS, CHECKPOINT_REQUIRED)
    if problems:
        return problems
    for file, sha256 in checkpoint["files"].items():
        if not isinstance(sha256, str) or not SHA256.fullmatch(sha256):
            problems.append(
                f"{where}: checkpoint file {file} needs its SHA-256 (64 hexadecimal digits), not {sha256!r}"
            )
    for option, value in profile["launch"].items():
        if isinstance(value, Mapping) or not isinstance(value, (str, int, float, bool, list, type(None))):
            problems.append(
                f"{where}: launch option {option} must be a plain value or a list, not {type(value).__name__}"
            )
    return problems


def stack_inputs(stack: Mapping[str, Any]) -> str:
    """The hash of what decides a stack's wheels; a lock carries it to show that it belongs to the stack."""
    return digest({key: stack.get(key) for key in STACK_RESOLVED})


def lock_name(stack: str, abi: str, platform: str) -> str:
    """File name of a stack's lock for one Python ABI and platform."""
    return f"{stack}.{abi}-{platform}.lock"


def write_lock(wheels: Sequence[Mapping[str, Any]], meta: Mapping[str, str]) -> str:
    """The text of a lock: a requirements file with hashes; comments hold file names, sizes and indexes."""
    lines = ["# Exact wheels of a stack; made by lock.yml, not by hand."]
    header = {**meta, "count": len(wheels)}
    lines += [f"# {key}: {header[key]}" for key in LOCK_META]
    for wheel in wheels:
        lines.append(f"# {wheel['file']} {wheel['size']} {wheel['index'] or 'PyPI'}")
        lines.append(f"{wheel['name']}=={wheel['version']} --hash=sha256:{wheel['sha256']}")
    return "\n".join(lines) + "\n"


def read_lock(text: str) -> dict[str, Any]:
    """A lock's content: its header's keys and `wheels`, each {name, version, file, sha256, size, index}."""
    lock: dict[str, Any] = {"wheels": []}
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
            if not entry or len(beside) != 3 or not beside[1].isdigit():
                raise ValueError(f"line {number} of the lock is not an entry of a lock: {line[:80]!r}")
            lock["wheels"].append(
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


def lock_problems(text: str, stack: Mapping[str, Any], abi: str, platform: str) -> list[str]:
    """Why a lock may not be used for this stack on this node; `text` is empty when there is no such file."""
    file = lock_name(stack["name"], abi, platform)
    variables = {"stack": stack["name"], "lock_abi": abi, "lock_platform": platform}
    options = " ".join(f"-e {name}={value}" for name, value in variables.items())
    remedy = f"make it with: ansible-playbook lock.yml {options}"
    if not text:
        return [f"stack {stack['name']} has no lock for this node (catalog/stacks/{file}); {remedy}"]
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
    if lock.get("count") != str(len(lock["wheels"])):
        holds = f"holds {len(lock['wheels'])} wheels, its header says {lock.get('count')}: it is torn"
        return [f"catalog/stacks/{file} {holds}; {remedy}"]
    return [] if lock["wheels"] else [f"catalog/stacks/{file} holds no wheels; {remedy}"]


class FilterModule:
    """Filters about the catalogue."""

    def filters(self) -> dict[str, Any]:
        return {
            "name_problems": name_problems,
            "stack_problems": stack_problems,
            "profile_problems": profile_problems,
            "stack_inputs": stack_inputs,
            "lock_name": lock_name,
            "write_lock": write_lock,
            "read_lock": read_lock,
            "lock_problems": lock_problems,
        }
