#!/usr/bin/python
"""Ansible module: the few facts about a node that a deployment is planned by."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_facts
short_description: Read what a node is and has
description:
  - Reads the distribution, the Python ABI, memory, disk, systemd and who listens on a port. Changes nothing.
options:
  port:
    description: TCP port to look at.
    type: int
    default: 30000
  folder:
    description: Folder whose file system is measured; its nearest existing parent when it is not there yet.
    type: path
    default: /opt/sglang
attributes:
  check_mode:
    support: full
    description: Read-only.
  diff_mode:
    support: none
    description: Read-only.
author: Smokestack
"""

EXAMPLES = r"""
- name: Look at the node
  host_facts:
    port: 30000
"""

RETURN = r"""
facts:
  description:
    - V(distribution) and V(version) from os-release, V(machine), V(python) ({major}.{minor}), V(abi) as in
      wheel names, V(platform) as in wheel names, V(cores), V(memory_gib) and V(available_gib),
      V(disk_free_gib), V(systemd) (whether it is PID 1), V(port_holder) (null, or the name, PID and unit of
      the process that listens on the port).
  type: dict
  returned: always
"""

import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

GIB = 1 << 30
LISTEN = "0A"  # state of a listening socket in /proc/net/tcp


def existing_parent(folder: Path) -> Path:
    """The folder itself, or the nearest parent that exists."""
    while not folder.exists():
        folder = folder.parent
    return folder


def memory_gib(meminfo: str, key: str) -> float:
    """A value of /proc/meminfo (given in kB), in GiB."""
    for line in meminfo.splitlines():
        if line.startswith(f"{key}:"):
            return round(int(line.split()[1]) / (1 << 20), 2)
    return 0.0


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


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "port": {"type": "int", "default": 30000},
            "folder": {"type": "path", "default": "/opt/sglang"},
        },
        supports_check_mode=True,
    )
    release = platform.freedesktop_os_release()
    meminfo = Path("/proc/meminfo").read_text()
    folder = existing_parent(Path(module.params["folder"]))
    module.exit_json(
        changed=False,
        facts={
            "distribution": release.get("ID", "unknown"),
            "version": release.get("VERSION_ID", "unknown"),
            "machine": platform.machine(),
            "python": f"{sys.version_info.major}.{sys.version_info.minor}",
            "abi": f"cp{sys.version_info.major}{sys.version_info.minor}",
            "platform": f"linux_{platform.machine()}",
            "glibc": platform.libc_ver()[1],
            "cores": len(os.sched_getaffinity(0)),
            "memory_gib": memory_gib(meminfo, "MemTotal"),
            "available_gib": memory_gib(meminfo, "MemAvailable"),
            "disk_free_gib": round(shutil.disk_usage(folder).free / GIB, 2),
            "systemd": Path("/run/systemd/system").is_dir(),
            "port_holder": port_holder(module.params["port"]),
        },
    )


if __name__ == "__main__":
    main()
