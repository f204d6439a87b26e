"""What folders take on disk, where files are shared by hard links."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

BLOCK = 512  # the unit of st_blocks, whatever the file system's block size is


def statuses(folder: Path) -> Iterator[os.stat_result]:
    """The status of the folder and all below it. Links are not followed; what vanishes is left out."""
    try:
        yield folder.lstat()
        with os.scandir(folder) as entries:
            inside = list(entries)
    except OSError:
        return
    for entry in inside:
        if entry.is_dir(follow_symlinks=False):
            yield from statuses(Path(entry.path))
        else:
            try:
                yield entry.stat(follow_symlinks=False)
            except OSError:
                continue


def disk_bytes(*folders: Path) -> int:
    """Bytes that the folders take together; a file with several names in them counts once."""
    blocks = {
        (status.st_dev, status.st_ino): status.st_blocks for folder in folders for status in statuses(folder)
    }
    return BLOCK * sum(blocks.values())


def is_unshared(folder: Path) -> bool:
    """Whether no file below the folder has another name, so that removing the folder frees what it takes."""
    return all(stat.S_ISDIR(status.st_mode) or status.st_nlink == 1 for status in statuses(folder))
