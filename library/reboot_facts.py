#!/usr/bin/python
"""Ansible module: what speaks for a reboot of the host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: reboot_facts
short_description: Read what a host runs and what is installed
description:
  - Reads the marker of a wanted reboot, and the running and the installed versions of the kernel and of the
    NVIDIA driver. Changes nothing and reboots nothing.
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
- name: See whether a reboot is wanted
  reboot_facts:
"""

RETURN = r"""
facts:
  description: V(marker) (whether the distribution asks for a reboot), V(packages) (that asked for it),
    V(kernel) (the running one), V(newest_kernel) (the newest in /boot, null when none is seen), V(driver)
    (the loaded one, null when none is) and V(installed_driver) (of the running kernel's module on disk, null
    when none is seen).
  type: dict
  returned: always
"""

import os
import re
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.nvidia import DRIVER, nvidia_driver

MARKER = Path("/run/reboot-required")
BOOT = Path("/boot")


def by_number(name: str) -> list[tuple[int, str]]:
    """A key that sorts 6.1.0-9 before 6.1.0-18."""
    return [(int(digits or -1), text) for digits, text in re.findall(r"(\d+)|(\D+)", name)]


def newest_kernel(boot: Path) -> str | None:
    """The newest kernel that is installed, as `uname -r` would name it."""
    names = [path.name.removeprefix("vmlinuz-") for path in boot.glob("vmlinuz-*")]
    return max(names, key=by_number, default=None)


def main() -> None:
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    modinfo = module.get_bin_path("modinfo", opt_dirs=["/sbin", "/usr/sbin"])
    status, said, _err = module.run_command([modinfo, "-F", "version", "nvidia"]) if modinfo else (1, "", "")
    packages = MARKER.with_name("reboot-required.pkgs")
    module.exit_json(
        changed=False,
        facts={
            "marker": MARKER.exists(),
            "packages": sorted(set(packages.read_text().split())) if packages.is_file() else [],
            "kernel": os.uname().release,
            "newest_kernel": newest_kernel(BOOT),
            "driver": nvidia_driver(DRIVER),
            "installed_driver": (said.strip() or None) if status == 0 else None,
        },
    )


if __name__ == "__main__":
    main()
