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
      V(disk_free_gib), V(driver) (the version of the loaded NVIDIA driver or null), V(gpus) ({name,
      memory_gib, compute_capability} of each GPU, or null where nvidia-smi does not answer),
      V(systemd) (whether it is PID 1), V(port_holder) (null, or the name, PID and unit of
      the process that listens on the port).
  type: dict
  returned: always
"""

import os
import platform
import shutil
import sys
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.listeners import port_holder
from ansible.module_utils.nvidia import GPU_QUERY, listed_gpus, nvidia_driver

GIB = 1 << 30


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


def node_gpus(module: AnsibleModule) -> list[dict[str, str | float]] | None:
    """The GPUs by nvidia-smi, None where it is not there or does not answer."""
    program = module.get_bin_path("nvidia-smi")
    if not program:
        return None
    rc, out, _err = module.run_command([program, *GPU_QUERY])
    try:
        return listed_gpus(out) if rc == 0 else None
    except ValueError:
        return None


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
            "driver": nvidia_driver(),
            "gpus": node_gpus(module),
            "systemd": Path("/run/systemd/system").is_dir(),
            "port_holder": port_holder(module.params["port"]),
        },
    )


if __name__ == "__main__":
    main()
