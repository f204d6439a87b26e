#!/usr/bin/env python3
"""Write the hashes of a checkpoint folder into a model profile, so that the profile can be deployed.

    tools/lock_model.py NAME FOLDER [--revision COMMIT]

Reads the folder first, as the module checkpoint_facts does: a torn one, or one that is another model than the
profile describes, is not hashed. Then puts `files` (name to SHA-256) in the place of `checkpoint.unlocked` or
of older hashes. `revision` is written where --revision names it or the folder does: a snapshot of the hub's
cache, or a folder that `hf download --local-dir` filled. See what changed with git diff before you commit it:
from then on only these bytes are this model.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "filter_plugins"))

from vram import other_model

from module_utils.checkpoint import CheckpointError, checkpoint_facts, folder_hashes

CATALOG = Path(__file__).resolve().parent.parent / "catalog"
COMMIT = re.compile(r"[0-9a-f]{40}")
PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._/-]*")
DOWNLOADED = ".cache/huggingface/download/config.json.metadata"
"""What huggingface_hub writes beside a file that it downloads into a folder: the commit is the first line."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def known_revision(folder: Path) -> str | None:
    """The commit that a folder was fetched at, where huggingface_hub left it."""
    if folder.parent.name == "snapshots" and COMMIT.fullmatch(folder.name):
        return folder.name
    try:
        first = (folder / DOWNLOADED).read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, ValueError):
        return None
    return first if COMMIT.fullmatch(first) else None


def without_keys(text: str, keys: tuple[str, ...]) -> str:
    """A profile without these keys of `checkpoint`; the rest stays as it is, comments too."""
    document: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    checkpoint = next(value for name, value in document.value if name.value == "checkpoint")
    lines = text.splitlines(keepends=True)
    for name, value in reversed(checkpoint.value):
        if name.value in keys:
            inline = (
                isinstance(value, yaml.ScalarNode) or value.flow_style
            )  # else it ends where the next begins
            first, last = name.start_mark.line, value.end_mark.line
            last += bool(inline and value.end_mark.column)
            while last > first + 1 and (
                lines[last - 1].isspace() or lines[last - 1].lstrip().startswith("#")
            ):
                last -= 1
            del lines[first:last]
    return "".join(lines)


def locked(text: str, files: dict[str, str], revision: str | None) -> str:
    """The text of a profile with these hashes. Raises ValueError where it cannot be written in place."""
    wanted = yaml.safe_load(text)
    wanted["checkpoint"].pop("unlocked", None)
    wanted["checkpoint"] |= {"files": files} | ({"revision": revision} if revision else {})
    added = f"  revision: {revision}\n" if revision else ""
    added += "  files:\n"
    for name in sorted(files):
        added += f"    {name if PLAIN.fullmatch(name) else json.dumps(name)}: {files[name]}\n"
    old = ("unlocked", "files", "revision") if revision else ("unlocked", "files")
    before, heading, after = text.partition("\ncheckpoint:\n")
    if heading:
        before, heading, after = without_keys(text, old).partition("\ncheckpoint:\n")
    path, newline, rest = after.partition("\n")
    written = before + heading + path + newline + added + rest
    if not heading or yaml.safe_load(written) != wanted:
        raise ValueError(
            "its checkpoint is not written a key a line; put these lines there yourself:\n" + added
        )
    return written


def main() -> None:
    """Look, hash and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="a file of catalog/models without its ending")
    parser.add_argument("folder", type=Path, help="the folder that holds config.json and the weights")
    parser.add_argument("--revision", help="the commit of the repository, 40 hexadecimal digits")
    parser.add_argument("--catalog", type=Path, default=CATALOG, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    path: Path = arguments.catalog / "models" / f"{arguments.name}.yml"
    if not path.is_file():
        sys.exit(f"{path} is not there: name a file of catalog/models without its ending")
    if arguments.revision and not COMMIT.fullmatch(arguments.revision):
        sys.exit(f"--revision must be 40 hexadecimal digits, not {arguments.revision!r}")
    text = path.read_text(encoding="utf-8")
    profile: dict[str, Any] = yaml.safe_load(text)
    folder: Path = arguments.folder
    try:
        facts = checkpoint_facts(folder)
    except (CheckpointError, OSError) as error:
        sys.exit(str(error))
    problems = facts["problems"] + other_model(profile, facts)
    if problems:
        sys.exit("\n".join([f"{folder} is not hashed:", *problems]))
    scales, weights = facts["kv_scales"]["state"], facts["weights"]
    say(f"{weights['files']} files of weights, {weights['bytes'] / 1e9:.1f} GB; KV scales: {scales}")
    files = folder_hashes(
        folder, lambda done, everything, name: say(f"{done / everything:4.0%} {name}" if everything else name)
    )
    try:
        written = locked(text, files, arguments.revision or known_revision(folder.absolute()))
    except ValueError as error:
        sys.exit(f"{path}: {error}")
    path.write_text(written, encoding="utf-8")
    say(f"{len(files)} hashes are in {path}; see git diff")


if __name__ == "__main__":
    main()
