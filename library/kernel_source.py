#!/usr/bin/python
"""Ansible module: a kernel's source at one commit, from git or from an archive."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_source
short_description: Have a kernel's source at one commit, from a repository or an archive
description:
  - Checks a commit out into C(source) below O(path), once; git compares its content with the commit's id.
  - An archive is a tar with a bare repository in C(repository.git), which must hold the commit (its history
    may be left out), and, beside it, a folder C(dependencies) with one folder for each name that FetchContent
    would fetch. Then no network is needed. They come to C(dependencies) below O(path).
options:
  path:
    description: Folder for the source and its dependencies.
    type: path
    required: true
  repository:
    description: The repository, an address or a folder.
    type: str
    required: true
  commit:
    description: The commit; one of fewer than 40 digits needs the whole history to be fetched.
    type: str
    required: true
  archive:
    description: An archive in the place of the repository.
    type: path
attributes:
  check_mode:
    support: full
    description: Says whether the source would be brought.
  diff_mode:
    support: none
    description: The source has no useful difference.
author: Smokestack
"""

EXAMPLES = r"""
- name: Check the source out
  kernel_source:
    path: /var/cache/smokestack/kernel/51e5dc845
    repository: https://github.com/sgl-project/sglang
    commit: 51e5dc845a1b18927c00380a8447d7f6e3f15d79
"""

RETURN = r"""
source:
  description: The work tree; null where it is not there (in check mode).
  type: str
  returned: success
commit:
  description: The whole id of the commit; null where it is not there.
  type: str
  returned: success
dependencies:
  description: Folder of the dependencies; null where there was no archive.
  type: str
  returned: success
archive_sha256:
  description: The archive's SHA-256; null where there was none.
  type: str
  returned: success
"""

import fcntl
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.durable import read_json, sync_folder, write_json
from ansible.module_utils.hashed_files import sha256_of
from ansible.module_utils.said import last_lines

ORIGIN = "origin.json"
FULL = 40
REPOSITORY, DEPENDENCIES = "repository.git", "dependencies"
HOW = (
    "make it of a folder with: git clone --bare REPOSITORY repository.git; the dependencies' sources in "
    "dependencies/NAME; tar --create --file ARCHIVE repository.git dependencies"
)


class SourceError(Exception):
    """The source cannot be had; the message says why and what to do."""


class Git:
    """Questions to git, in one folder."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder = program, folder

    def __call__(self, *arguments: str) -> str:
        """Run git. Raises SourceError with its words."""
        done = subprocess.run(
            [self.program, "-C", str(self.folder), *arguments],
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SourceError(last_lines(done.stderr) or f"git {arguments[0]} ended with {done.returncode}")
        return done.stdout.strip()


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive into the folder. Raises SourceError."""
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    except (OSError, tarfile.TarError) as error:
        raise SourceError(f"{archive} cannot be unpacked whole: {error}") from error
    if not (folder / REPOSITORY / "HEAD").is_file():
        raise SourceError(f"{archive} holds no bare repository {REPOSITORY}; {HOW}")


def fetch(git: Git, repository: str, commit: str) -> None:
    """Bring the commit: alone where the server gives it by its id, else with all branches and tags."""
    if len(commit) == FULL:
        try:
            git("fetch", "--quiet", "--depth", "1", repository, commit)
            return
        except SourceError:
            pass  # some servers give no commit by its id; the next attempt tells what is wrong
    git("fetch", "--quiet", "--tags", repository, "+refs/heads/*:refs/remotes/origin/*")


def bring(program: str, wanted: dict[str, Any], folder: Path) -> str:
    """Check the commit out in `folder`; returns its whole id. Raises SourceError."""
    repository = wanted["repository"]
    if wanted["archive"]:
        unpack(Path(wanted["archive"]), folder)
        repository = str(folder / REPOSITORY)
    source = folder / "source"
    source.mkdir()
    git = Git(program, source)
    git("init", "--quiet")
    origin = wanted["archive"] or repository
    try:
        fetch(git, repository, wanted["commit"])
        commit = git("rev-parse", "--verify", f"{wanted['commit']}^{{commit}}")
        git("checkout", "--quiet", "--detach", commit)
    except SourceError as error:
        raise SourceError(
            f"{origin} did not give the commit {wanted['commit']}: {error}. Name a mirror that has it with "
            "sgl_kernel_git, or an archive with sgl_kernel_archive"
        ) from error
    shutil.rmtree(folder / REPOSITORY, ignore_errors=True)
    return commit


def origin_of(wanted: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """What decides about the content: the commit, and the archive by its bytes. Raises SourceError."""
    origin: dict[str, Any] = {"commit": wanted["commit"], "archive": None}
    if wanted["archive"]:
        archive = Path(wanted["archive"])
        if not archive.is_file():
            raise SourceError(f"sgl_kernel_archive: {archive} is not there")
        stat = archive.stat()
        origin["archive"] = [str(archive), stat.st_size, stat.st_mtime_ns]
        same = known.get("archive") == origin["archive"]
        origin["sha256"] = known["sha256"] if same else sha256_of(archive)
    return origin


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "repository": {"type": "str", "required": True},
            "commit": {"type": "str", "required": True},
            "archive": {"type": "path"},
        },
        supports_check_mode=True,
    )
    wanted, path = module.params, Path(module.params["path"])
    git = module.get_bin_path("git")
    if not git:
        module.fail_json(msg="git is not installed on this host, and it holds the source: install git")
    try:
        known = read_json(path / ORIGIN) or {}
        origin = origin_of(wanted, known)
        changed = any(known.get(key) != origin.get(key) for key in ("commit", "sha256"))
        if changed and not module.check_mode:
            path.parent.mkdir(parents=True, exist_ok=True)
            with (path.parent / f".{path.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                incoming = path.with_name(f".{path.name}.incoming")
                shutil.rmtree(incoming, ignore_errors=True)
                incoming.mkdir()
                head = bring(git, wanted, incoming)
                os.sync()
                write_json(incoming / ORIGIN, origin | {"head": head})
                shutil.rmtree(path, ignore_errors=True)
                incoming.rename(path)
                sync_folder(path.parent)
    except (SourceError, OSError) as error:
        module.fail_json(msg=str(error))
    there = read_json(path / ORIGIN) if not (changed and module.check_mode) else None
    dependencies = path / DEPENDENCIES
    module.exit_json(
        changed=changed,
        source=str(path / "source") if there else None,
        commit=there["head"] if there else None,
        dependencies=str(dependencies) if there and dependencies.is_dir() else None,
        archive_sha256=origin.get("sha256"),
    )


if __name__ == "__main__":
    main()
