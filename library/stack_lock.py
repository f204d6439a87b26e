#!/usr/bin/python
"""Ansible module: resolve a stack to its exact wheels."""

from __future__ import annotations

DOCUMENTATION = r"""
module: stack_lock
short_description: Resolve a stack to wheels with hashes
description:
  - Lets pip resolve the stack's requirements for the node's Python and platform, downloads what was chosen
    into the wheelhouse and reads the hashes and sizes from the bytes.
options:
  stack:
    description: The stack's name and pins, as the filter P(stack_pins#filter) gives them.
    type: dict
    required: true
  abi:
    description: The Python ABI of the nodes, such as V(cp311).
    type: str
    required: true
  platform:
    description: The platform of the nodes, such as V(linux_x86_64).
    type: str
    required: true
  path:
    description: The wheelhouse.
    type: path
    required: true
  places:
    description: Where the stack pins a package, for what is said when a version is gone. Package to V(where)
      and V(line), as the filter P(stack_places#filter) gives them.
    type: dict
    default: {}
attributes:
  check_mode:
    support: full
    description: Resolves and downloads nothing.
  diff_mode:
    support: none
    description: The lock file that is written from the result shows the difference.
author: Smokestack
"""

EXAMPLES = r"""
- name: Resolve the stack
  stack_lock:
    stack: "{{ stack }}"
    abi: cp311
    platform: linux_x86_64
    path: /var/cache/smokestack/wheelhouse
"""

RETURN = r"""
wheels:
  description: Each wheel's name, version, file, sha256, size (bytes) and index (null for PyPI), sorted by
    name.
  type: list
  elements: dict
  returned: when it was resolved
toolkit:
  description: The same of the wheels that the stack's CUDA toolkit is made of.
  type: list
  elements: dict
  returned: when it was resolved
build:
  description: The same of the wheels that the stack's kernel is built with.
  type: list
  elements: dict
  returned: when it was resolved
"""

import concurrent.futures
import json
import re
import tempfile
import urllib.parse
from pathlib import Path
from typing import Any

import requests
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hashed_files import sha256_of
from ansible.module_utils.progress import Progress
from ansible.module_utils.wheels import FetchError, Source, fetch, gone, locked, pip, pip_says

UNKNOWN_SIZE = 0
ASKERS = 8  # questions for sizes at a time

ARGUMENTS = {
    "stack": {"type": "dict", "required": True},
    "abi": {"type": "str", "required": True},
    "platform": {"type": "str", "required": True},
    "path": {"type": "path", "required": True},
    "places": {"type": "dict", "default": {}},
}


def run_pip(arguments: list[str], source: Source, index: str | None = None) -> None:
    """Run pip for the node's Python; FetchError with its last lines when it fails."""
    done = pip([*arguments[:1], "--quiet", *source.options(index), *arguments[1:]])
    if done.returncode != 0:
        raise FetchError(pip_says(done))


def project_of(requirement: str) -> str:
    """The normalised project name of a requirement."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]).lower()


def index_of(project: str, stack: dict[str, Any]) -> str | None:
    """The name of the index that the stack takes a project from, None for PyPI."""
    indexes = {project_of(name): index for name, index in (stack["from_index"] or {}).items()}
    return indexes.get(project)


def from_indexes(requirements: list[str], stack: dict[str, Any], source: Source, folder: Path) -> list[str]:
    """Bring the wheels that the stack takes from an index of their own; nothing else is looked up there.

    Returns the requirements with those wheels' paths in their place: no other index can answer for them.
    """
    settled = []
    for requirement in requirements:
        index = index_of(project_of(requirement), stack)
        if index is None:
            settled.append(requirement)
            continue
        before = set(folder.glob("*.whl"))
        try:
            run_pip(["download", "--no-deps", "--dest", str(folder), requirement], source, index)
        except FetchError as error:
            name, exact, version = requirement.partition("==")
            raise FetchError((exact and gone(name, version, index, source)) or str(error)) from error
        settled += [str(wheel) for wheel in set(folder.glob("*.whl")) - before]
    return settled


def resolve(
    requirements: list[str], stack: dict[str, Any], source: Source, house: Path
) -> list[dict[str, Any]]:
    """Ask pip which files it would install for the requirements and what they need, with sizes."""
    with tempfile.TemporaryDirectory(dir=house) as name:
        folder = Path(name)
        settled = from_indexes(requirements, stack, source, folder)
        report = folder / "report.json"
        options = ["--dry-run", "--ignore-installed", "--target", name, "--report", str(report)]
        run_pip(["install", *options, *settled], source)
        chosen = json.loads(report.read_text())
        wheels = chosen_wheels(chosen, stack)
        with concurrent.futures.ThreadPoolExecutor(ASKERS) as pool:
            sizes = pool.map(size_at, (item["download_info"]["url"] for item in chosen["install"]))
        for wheel, size in zip(wheels, sizes, strict=True):
            wheel["size"] = size
        for wheel in folder.glob("*.whl"):
            wheel.replace(house / wheel.name)
    return wheels


def size_at(url: str) -> int:
    """The bytes of the file at a URL as its server tells them, UNKNOWN_SIZE where it does not.

    Only the disk budget and the batches of the download go by it: a lock holds the size of the bytes.
    """
    if url.startswith("file:"):
        return Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path)).stat().st_size
    try:
        answer = requests.head(url, timeout=30, allow_redirects=True)
        return int(answer.headers["Content-Length"]) if answer.ok else UNKNOWN_SIZE
    except (requests.RequestException, KeyError, ValueError):
        return UNKNOWN_SIZE


def chosen_wheels(report: dict[str, Any], stack: dict[str, Any]) -> list[dict[str, Any]]:
    """The wheels of one of pip's installation reports; their sizes are not known yet."""
    wheels = []
    for item in report["install"]:
        project = project_of(item["metadata"]["name"])
        wheels.append(
            {
                "name": project,
                "version": item["metadata"]["version"],
                "file": urllib.parse.unquote(item["download_info"]["url"].rpartition("/")[2]),
                "sha256": item["download_info"]["archive_info"]["hashes"]["sha256"],
                "size": UNKNOWN_SIZE,
                "index": index_of(project, stack),
            }
        )
    return wheels


def lock(stack: dict[str, Any], source: Source, house: Path) -> dict[str, list[dict[str, Any]]]:
    """Resolve, download and measure a stack's `wheels`, and those of its `toolkit` and `build`, by name.

    Raises FetchError.
    """
    wheels = resolve(stack["requirements"], stack, source, house)
    names = {wheel["name"] for wheel in wheels}
    pins = stack["without_dependencies"]
    alone = resolve(["--no-deps", *pins], stack, source, house) if pins else []
    wheels += [wheel for wheel in alone if wheel["name"] not in names]
    made = {"wheels": wheels}
    for kind in ("toolkit", "build"):
        parts = stack.get(kind)
        made[kind] = resolve(["--no-deps", *parts], stack, source, house) if parts else []
    every = [wheel for kind in made.values() for wheel in kind]
    there = {wheel["file"]: wheel for wheel in every}
    missing = [wheel for wheel in there.values() if not (house / wheel["file"]).is_file()]
    fetch(house, missing, source, Progress(None))
    for wheel in every:
        path = house / wheel["file"]
        if sha256_of(path) != wheel["sha256"]:
            raise FetchError(
                f"{path}: its SHA-256 is not the one that the index names; remove the file and run again"
            )
        wheel["size"] = path.stat().st_size
    return {kind: sorted(found, key=lambda wheel: wheel["name"]) for kind, found in made.items()}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    if module.check_mode:
        module.exit_json(changed=True)
    stack, house = module.params["stack"], Path(module.params["path"])
    source = Source(
        stack["indexes"] or {}, module.params["abi"], module.params["platform"], module.params["places"]
    )
    house.mkdir(parents=True, exist_ok=True)
    try:
        with locked(house):
            made = lock(stack, source, house)
    except (FetchError, OSError) as error:
        module.fail_json(msg=f"stack {stack['name']} was not locked: {error}")
    module.exit_json(changed=True, **made)


if __name__ == "__main__":
    main()
