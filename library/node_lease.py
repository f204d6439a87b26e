#!/usr/bin/python
"""Ansible module: let one run at a time change a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_lease
short_description: Hold a node while it is being changed
description:
  - A lease is a file on the node with a holder and a time of expiry. The holder renews it while it works; a
    holder that died stops renewing, so it blocks others for O(ttl) seconds at most.
  - Asking again with the same O(run) renews.
options:
  state:
    description: V(held) takes or renews the lease, V(free) gives it back, V(read) only says whether another
      run holds it.
    choices: [held, free, read]
    default: held
    type: str
  run:
    description: Identifies the run.
    type: str
    required: true
  holder:
    description: Who that is, for the message that another run gets.
    type: str
    default: unknown
  ttl:
    description: Seconds until the lease expires unless it is renewed.
    type: int
    default: 60
  path:
    description: The lease file. In /run, so that a reboot frees the node.
    type: path
    default: /run/smokestack/lease.json
attributes:
  check_mode:
    support: full
    description: Takes nothing, but fails when another run holds the lease.
  diff_mode:
    support: none
    description: A lease is not configuration.
author: Smokestack
"""

EXAMPLES = r"""
- name: Hold the node
  node_lease:
    run: 20260307T101500-4242
    holder: ops@controller, process 4242
"""

RETURN = r"""
holder:
  description: Who holds the lease now, null when it is free.
  type: str
  returned: always
"""

import fcntl
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.durable import read_json, write_json

ARGUMENTS = {
    "state": {"choices": ["held", "free", "read"], "default": "held"},
    "run": {"type": "str", "required": True},
    "holder": {"type": "str", "default": "unknown"},
    "ttl": {"type": "int", "default": 60},
    "path": {"type": "path", "default": "/run/smokestack/lease.json"},
}


def held_by_other(lease: dict[str, Any] | None, run: str, now: float) -> dict[str, Any] | None:
    """The lease when another run holds it and it has not expired, else None. Times are seconds since boot."""
    if not lease or lease["run"] == run or lease["expires"] <= now:
        return None
    return lease


def refusal(lease: dict[str, Any], now: float) -> str:
    return (
        f"this node is being changed by {lease['holder']} (run {lease['run']}); nothing was touched. "
        f"Wait for that run to end. If it died, the node is free in {lease['expires'] - now:.0f} s"
    )


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    wanted = module.params
    path = Path(wanted["path"])
    if module.check_mode or wanted["state"] == "read":
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        other = held_by_other(read_json(path), wanted["run"], now)
        if other and wanted["state"] == "held":
            module.fail_json(msg=refusal(other, now))
        module.exit_json(changed=False, holder=other["holder"] if other else None)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs that ask in the same instant
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        lease = read_json(path)
        other = held_by_other(lease, wanted["run"], now)
        if wanted["state"] == "free":
            if lease and lease["run"] == wanted["run"]:
                path.unlink()
            module.exit_json(changed=False, holder=other["holder"] if other else None)
        if other:
            module.fail_json(msg=refusal(other, now))
        write_json(path, {"run": wanted["run"], "holder": wanted["holder"], "expires": now + wanted["ttl"]})
    module.exit_json(changed=False, holder=wanted["holder"])


if __name__ == "__main__":
    main()
