"""Who listens on a TCP port of this host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LISTEN = "0A"  # state of a listening socket in /proc/net/tcp


def listening_inodes(table: str, port: int) -> set[str]:
    """Socket inodes that listen on `port`, from the text of /proc/net/tcp or tcp6."""
    found = set()
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
            found.add(fields[9])
    return found


def opened(handle: Path) -> str | None:
    """What an entry of /proc/PID/fd stands for; None when it was closed while it was looked at."""
    try:
        return str(handle.readlink())
    except OSError:
        return None


def port_holder(port: int, proc: Path = Path("/proc")) -> dict[str, Any] | None:
    """Who listens on the TCP port: {name, pid, unit}, null where /proc does not say; None when it is free."""
    inodes: set[str] = set()
    for table in ("net/tcp", "net/tcp6"):
        if (proc / table).exists():
            inodes |= listening_inodes((proc / table).read_text(), port)
    if not inodes:
        return None
    sockets = {f"socket:[{inode}]" for inode in inodes}
    for process in proc.glob("[0-9]*"):
        try:
            if any(opened(handle) in sockets for handle in (process / "fd").iterdir()):
                unit = (process / "cgroup").read_text().strip().rpartition("/")[2]
                return {
                    "name": (process / "comm").read_text().strip(),
                    "pid": int(process.name),
                    "unit": unit,
                }
        except OSError:  # it ended while it was looked at
            continue
    return {"name": None, "pid": None, "unit": None}
