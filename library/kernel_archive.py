#!/usr/bin/python
"""Ansible module: pack a kernel's source and what it fetches for a controller without network."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_archive
short_description: Pack a kernel's source and its dependencies into one archive
description:
  - Writes a tar as M(kernel_source) reads it, with the bare repository C(repository.git), which holds one
    commit, and C(dependencies/NAME) for each name that FetchContent fetched.
  - The archive is written beside its place and renamed.
options:
  path:
    description: The archive.
    type: path
    required: true
  repository:
    description: The git work tree that holds the commit.
    type: path
    required: true
  commit:
    description: The whole id of the commit.
    type: str
    required: true
  fetched:
    description: CMake's folder C(_deps) of a build that fetched its dependencies itself.
    type: path
  dependencies:
    description: In place of O(fetched), a folder with one folder for each name.
    type: path
attributes:
  check_mode:
    support: full
    description: Says whether the archive would be written.
  diff_mode:
    support: none
    description: An archive has no useful difference.
author: Smokestack
"""

EXAMPLES = r"""
- name: Pack the source of the kernel
  kernel_archive:
    path: /media/usb/sgl-kernel-51e5dc845.tar
    repository: /var/cache/smokestack/kernel/sources/51e5dc845a1b/source
    commit: 51e5dc845a1b18927c00380a8447d7f6e3f15d79
    fetched: /var/cache/smokestack/kernel/builds/0f3b8ac41d22/objects/_deps
"""

RETURN = r"""
dependencies:
  description: Names of the dependencies in the archive.
  type: list
  elements: str
  returned: success
sha256:
  description: SHA-256 of the archive.
  type: str
  returned: when it was written
bytes:
  description: Its size.
  type: int
  returned: when it was written
"""

import os
import subprocess
import tarfile
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.durable import sync_folder
from ansible.module_utils.hashed_files import sha256_of
from ansible.module_utils.said import last_lines

ARGUMENTS = {
    "path": {"type": "path", "required": True},
    "repository": {"type": "path", "required": True},
    "commit": {"type": "str", "required": True},
    "fetched": {"type": "path"},
    "dependencies": {"type": "path"},
}
SOURCE = "-src"  # FetchContent's folder of NAME is _deps/<name in small letters>-src


class ArchiveError(Exception):
    """The archive cannot be made; the message says why and what to do."""


def dependencies_of(fetched: Path | None, given: Path | None) -> dict[str, Path]:
    """Folder of each dependency by its name. Raises ArchiveError where there is no folder to look into."""
    folder, ending = (given, "") if given else (fetched, SOURCE)
    if folder is None or not folder.is_dir():
        raise ArchiveError(
            f"{folder} is not there: only a build that has configured its source fetched anything"
        )
    found = {path.name.removesuffix(ending): path for path in folder.iterdir() if path.name.endswith(ending)}
    return {name: path for name, path in sorted(found.items()) if path.is_dir()}


def git(program: str, *arguments: str) -> None:
    """Run git. Raises ArchiveError with its words."""
    done = subprocess.run(
        [program, *arguments],
        env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ArchiveError(last_lines(done.stderr) or f"git {arguments[0]} ended with {done.returncode}")


def bare(program: str, repository: Path, commit: str, target: Path) -> None:
    """Make a bare repository of one commit. Raises ArchiveError."""
    git(program, "init", "--quiet", "--bare", "--template=", str(target))
    git(program, "-C", str(target), "fetch", "--quiet", "--depth", "1", f"file://{repository}", commit)
    git(program, "-C", str(target), "update-ref", "--no-deref", "HEAD", commit)
    (target / "FETCH_HEAD").unlink(missing_ok=True)


def nameless(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """A member without owner and time, and none of the histories that FetchContent cloned."""
    if member.name.startswith("dependencies/") and "/.git/" in f"{member.name}/":
        return None
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def pack(archive: Path, repository: Path, dependencies: dict[str, Path]) -> None:
    """Write the archive beside its place and rename it there."""
    with tempfile.NamedTemporaryFile(dir=archive.parent, prefix=f".{archive.name}.", delete=False) as stream:
        beside = Path(stream.name)
        try:
            with tarfile.open(fileobj=stream, mode="w:", format=tarfile.PAX_FORMAT) as tar:
                tar.add(repository, "repository.git", filter=nameless)
                for name, folder in dependencies.items():
                    tar.add(folder, f"dependencies/{name}", filter=nameless)
            stream.flush()
            os.fsync(stream.fileno())
            beside.chmod(0o644)
            beside.replace(archive)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    sync_folder(archive.parent)


def main() -> None:
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        mutually_exclusive=[("fetched", "dependencies")],
        required_one_of=[("fetched", "dependencies")],
        supports_check_mode=True,
    )
    wanted = module.params
    archive = Path(wanted["path"])
    program = module.get_bin_path("git")
    if not program:
        module.fail_json(msg="git is not installed on this host, and it holds the source: install git")
    try:
        if not archive.parent.is_dir():
            raise ArchiveError(
                f"the folder {archive.parent} is not there: make it, or mount the disk that it is on"
            )
        dependencies = dependencies_of(
            *(wanted[key] and Path(wanted[key]) for key in ("fetched", "dependencies"))
        )
        if module.check_mode:
            module.exit_json(changed=True, dependencies=list(dependencies))
        before = sha256_of(archive) if archive.is_file() else None
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix=f".{archive.name}.") as name:
            bare(program, Path(wanted["repository"]), wanted["commit"], Path(name) / "repository.git")
            pack(archive, Path(name) / "repository.git", dependencies)
        sha256 = sha256_of(archive)
    except (ArchiveError, OSError, tarfile.TarError) as error:
        module.fail_json(msg=f"{archive} was not written: {error}")
    module.exit_json(
        changed=sha256 != before,
        dependencies=list(dependencies),
        sha256=sha256,
        bytes=archive.stat().st_size,
    )


if __name__ == "__main__":
    main()
