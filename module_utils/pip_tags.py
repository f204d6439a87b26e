"""The pip options that choose wheels for a node whose Python is not the controller's."""

from __future__ import annotations

import re

NEWEST_GLIBC = 41  # minor version; the lock fixes the file, so a tag too many costs nothing
OLDEST_GLIBC = 5


def tag_options(abi: str, platform: str) -> list[str]:
    """pip's --implementation, --python-version, --abi and --platform for `cp311` and `linux_x86_64`."""
    match = re.fullmatch(r"cp3(\d+)", abi)
    if not match or not platform.startswith("linux_"):
        raise ValueError(f"no pip options known for ABI {abi!r} on platform {platform!r}")
    machine = platform.removeprefix("linux_")
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(NEWEST_GLIBC, OLDEST_GLIBC - 1, -1)]
    platforms += [f"manylinux2014_{machine}", f"manylinux2010_{machine}", f"manylinux1_{machine}", platform]
    options = ["--implementation", "cp", "--python-version", f"3.{match[1]}"]
    for value in (abi, "abi3", "none"):
        options += ["--abi", value]
    for value in platforms:
        options += ["--platform", value]
    return options
