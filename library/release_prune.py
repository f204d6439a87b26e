#!/usr/bin/python
"""Ansible module: take away the releases that a node no longer keeps, and what only they used."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_prune
short_description: Remove old releases, and the environments, toolkits and wheels that no release uses
description:
  - A release that is current, previous, on trial, running or pinned always stays; of the others the newest
    stay until there are O(keep) in all. With a release goes what the gate said of it, so a release that
    failed may be tried once more after it was pruned.
  - Environments, CUDA toolkits, compile caches and wheels that only they used go with them. Those that no
    release ever used go once they are older than O(grace), since a run that has made them may not have sealed
    its release yet; what an installation left half-made goes at once. Of uv's cache goes what no environment
    shares. Weights stay unless O(models).
  - What is removed is renamed first, so a release or environment is never seen half-removed.
options:
  root:
    description: Folder that holds the releases.
    type: path
    default: /opt/sglang
  compile_caches:
    description: Folder of the compile caches, one for each environment.
    type: path
    default: /var/cache/sglang
  keep:
    description: How many releases a node keeps.
    type: int
    default: 3
  grace:
    description: Seconds for which what no release uses is left alone.
    type: int
    default: 86400
  models:
    description: Whether to remove the weights that no release uses as well.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: Says what would go.
  diff_mode:
    support: full
    description: Lists what goes.
author: Smokestack
"""

EXAMPLES = r"""
- name: Keep three releases
  release_prune:
    keep: 3
"""

RETURN = r"""
removed:
  description: Paths that went, below O(root) or O(compile_caches).
  type: list
  elements: str
  returned: success
freed_bytes:
  description: What the disk gained, as the file system says; nothing in check mode.
  type: int
  returned: success
"""

import fcntl
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.disk import is_unshared
from ansible.module_utils.durable import read_json, sync_folder
from ansible.module_utils.releases import Store, surplus

ARGUMENTS = {
    "root": {"type": "path", "default": "/opt/sglang"},
    "compile_caches": {"type": "path", "default": "/var/cache/sglang"},
    "keep": {"type": "int", "default": 3},
    "grace": {"type": "int", "default": 86400},
    "models": {"type": "bool", "default": False},
}
MANIFEST = "smokestack.json"  # its last file, so that an environment without it is half-made
GONE = ".gone."


def entries(folder: Path, pattern: str = "[!.]*") -> list[Path]:
    """What lies in a folder, which need not exist."""
    return sorted(folder.glob(pattern)) if folder.is_dir() else []


def old(path: Path, grace: int) -> bool:
    """Whether the path was put here more than `grace` seconds ago; a wheel's mtime is that of its making."""
    return time.time() - path.lstat().st_ctime > grace


def is_half_made(folder: Path) -> bool:
    """Whether the installation of an environment or toolkit did not come to its end."""
    return not (folder / MANIFEST).exists()


def wheels_of(folders: set[Path]) -> set[str]:
    """File names of the wheels that the environments and toolkits were made of."""
    manifests = (read_json(folder / MANIFEST) or {} for folder in folders)
    return {name for manifest in manifests for name in manifest.get("wheels", ())}


def made_of(root: Path, releases: list[dict]) -> set[Path]:
    """The environments of releases, and the toolkits that were laid out for them."""
    venvs = {root / "venvs" / release["venv"] for release in releases if release["venv"]}
    return venvs | {Path(release["toolkit"]) for release in releases if release["toolkit"]}


def unused(wanted: dict, kept: list[dict], going: list[dict]) -> Iterator[Path]:
    """What no kept release uses: environments, toolkits, compile caches, wheels and, if asked, weights."""
    root, grace = Path(wanted["root"]), wanted["grace"]
    used, dropped = made_of(root, kept), made_of(root, going)
    spared = set(used)
    for folder in [*entries(root / "venvs"), *entries(root / "toolkits")]:
        if folder not in used:
            if folder in dropped or is_half_made(folder) or old(folder, grace):
                yield folder
            else:
                spared.add(folder)
    venvs = {folder.name for folder in spared if folder.parent.name == "venvs"}
    yield from (path for path in entries(Path(wanted["compile_caches"])) if path.name not in venvs)
    wheels, leaving = wheels_of(spared), wheels_of(dropped)
    for path in entries(root / "wheelhouse", "*.whl"):
        if path.name not in wheels and (path.name in leaving or old(path, grace)):
            yield path
    if wanted["models"]:
        models = {release["model"] for release in kept}
        names = models | {f"{model}.incoming" for model in models}
        yield from (path for path in entries(root / "models") if path.name not in names and old(path, grace))


def remove(path: Path) -> bool:
    """Remove a file or folder, renamed first; False when an installation holds it."""
    lock = path.parent / f".{path.name}.lock"  # that of an environment
    if lock.exists():
        with lock.open("w") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            remove_tree(path)
            lock.unlink()
    elif path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink()
    return True


def remove_tree(folder: Path) -> None:
    gone = folder.with_name(f"{GONE}{folder.name}")
    shutil.rmtree(gone, ignore_errors=True)
    folder.rename(gone)
    sync_folder(folder.parent)
    shutil.rmtree(gone)


def drop_unshared(cache: Path) -> None:
    """Take out of uv's cache the wheels whose files no environment shares.

    uv 0.13 does not forgive an archive that is missing while NAME.rev beside the link NAME still names it, so
    those go first. An archive that no link names is of a layout that is not known here, and stays.
    """
    links: dict[str, list[Path]] = {}
    for path in cache.glob("wheels-v*/**/*"):
        if path.is_symlink():
            links.setdefault(path.readlink().name, []).append(path)
    for archive in entries(cache, "archive-v*/*"):
        if archive.name in links and is_unshared(archive):
            for link in links[archive.name]:
                for pointer in link.parent.glob(f"{link.name}.*"):
                    pointer.unlink()
                link.unlink()
            shutil.rmtree(archive)


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    wanted = module.params
    root = Path(wanted["root"])
    if wanted["keep"] < 1:
        module.fail_json(msg=f"keep must be at least 1, not {wanted['keep']}")
    store = Store(root)
    releases = [store.describe(name) for name in store.names()]
    names = surplus(releases, wanted["keep"])
    kept = [release for release in releases if release["name"] not in names]
    dropped = [release for release in releases if release["name"] in names]
    going = [store.folder(name) for name in names] + list(unused(wanted, kept, dropped))
    free = shutil.disk_usage(root).free if root.is_dir() else 0
    gone = going
    if not module.check_mode:
        try:
            for name in ("releases", "venvs", "toolkits", "models"):
                for left in entries(root / name, f"{GONE}*"):  # by a run that was killed
                    shutil.rmtree(left)
            gone = [path for path in going if remove(path)]
            if gone:
                drop_unshared(root / "cache/uv")
        except OSError as error:
            module.fail_json(msg=f"pruning ended early: {error}. What serves was not touched; run again")
    now = shutil.disk_usage(root).free if root.is_dir() else 0
    module.exit_json(
        changed=bool(gone),
        removed=[str(path) for path in gone],
        freed_bytes=max(0, now - free),
        diff={"before": "".join(f"{path}\n" for path in gone), "after": ""},
    )


if __name__ == "__main__":
    main()
