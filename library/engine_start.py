#!/usr/bin/python
"""Ansible module: follow a starting inference server for a while."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_start
short_description: Watch a unit until its server answers, or say why it does not
description:
  - Returns as soon as the server answers its health route, the unit has failed or the unit restarts in a
    loop, and after O(wait) seconds at the latest. Health is not proof of anything; it only says that the gate
    can begin.
options:
  unit:
    description: The systemd unit.
    type: str
    default: sglang.service
  url:
    description: Base URL of the server.
    type: str
    required: true
  health:
    description: Path of the health route.
    type: str
    default: /health
  wait:
    description: Longest time to wait, in seconds.
    type: float
    default: 10
  restarts:
    description: How many times the process may end and be started again by systemd before that is called a
      loop.
    type: int
    default: 1
  lines:
    description: How many of the last log lines to return.
    type: int
    default: 20
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
- name: Watch the server start
  engine_start:
    url: http://127.0.0.1:30000
"""

RETURN = r"""
phase:
  description: V(ready), V(starting), V(failed) or V(looping).
  type: str
  returned: always
seconds:
  description: Age of the main process.
  type: float
  returned: always
note:
  description: One sentence for a person.
  type: str
  returned: always
start_id:
  description: systemd's identifier of this run of the unit; another one means that it was started again.
  type: str
  returned: always
clock:
  description:
    - Seconds of the clock that systemd's monotonic timestamps are of, at the last look. With RV(stopped_at)
      it tells how long the unit has not served.
  type: float
  returned: always
stopped_at:
  description: When the unit last left the active state, on the same clock; null when it never did.
  type: float
  returned: always
log:
  description: The last lines that the unit logged.
  type: list
  elements: str
  returned: always
"""

import http.client
import re
import time
import urllib.parse

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.listeners import port_holder
from ansible.module_utils.loopback import ask_directly

STEP = 0.5
# SGLang begins its own lines with the time; Python's warnings tell an operator nothing.
ENGINE_LINE = re.compile(r"\[\d{4}-\d\d-\d\d ")
HEALTH_TIMEOUT = 5.0  # SGLang's health route may wait for the scheduler
PROPERTIES = (
    "ActiveState",
    "SubState",
    "Result",
    "NRestarts",
    "ExecMainStatus",
    "ExecMainStartTimestampMonotonic",
    "ActiveExitTimestampMonotonic",
    "InvocationID",
)

ARGUMENTS = {
    "unit": {"type": "str", "default": "sglang.service"},
    "url": {"type": "str", "required": True},
    "health": {"type": "str", "default": "/health"},
    "wait": {"type": "float", "default": 10},
    "restarts": {"type": "int", "default": 1},
    "lines": {"type": "int", "default": 20},
}


def properties(text: str) -> dict[str, str]:
    """The output of C(systemctl show) as a mapping."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def seconds_of(timestamp: str | None) -> float | None:
    """A monotonic timestamp of systemd (microseconds, 0 for never) in seconds."""
    return int(timestamp) / 1e6 if timestamp and int(timestamp) else None


def serves(url: str, unit: str) -> bool:
    """Whether what listens on the URL's port belongs to the unit: another server proves nothing."""
    holder = port_holder(urllib.parse.urlsplit(url).port or 80)
    return holder is not None and holder["unit"] == unit


def judge(state: dict[str, str], healthy: bool, restarts: int) -> str:
    """The phase, from the unit's properties and whether the health route answered 200."""
    if state.get("ActiveState") == "failed":
        return "failed"
    if healthy and state.get("ActiveState") == "active":
        return "ready"
    if int(state.get("NRestarts") or 0) > restarts:
        return "looping"
    if state.get("ActiveState") == "inactive":
        return "failed"
    return "starting"


def describe(phase: str, unit: str, state: dict[str, str], seconds: float, log: list[str]) -> str:
    """What an operator should read."""
    status = state.get("ExecMainStatus")
    if phase == "ready":
        return f"{unit} answers its health route with 200 after {seconds:.0f} s"
    if phase == "looping":
        return f"{unit} ends and is started again, {state['NRestarts']} times by now (exit status {status})"
    if phase == "failed":
        return f"{unit} is {state.get('ActiveState')} ({state.get('Result')}, exit status {status})"
    said = [line for line in log if ENGINE_LINE.match(line) and "/health" not in line]
    return f"{seconds:.0f} s: {said[-1] if said else 'loading, the engine has logged nothing yet'}"


def answers(url: str) -> bool:
    """Whether the health route says 200."""
    try:
        with ask_directly(url, HEALTH_TIMEOUT) as reply:
            return reply.status == 200
    except (OSError, http.client.HTTPException):
        return False


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    wanted = module.params
    unit = wanted["unit"]

    def show() -> dict[str, str]:
        argv = ["systemctl", "show", unit, "--property", ",".join(PROPERTIES)]
        return properties(module.run_command(argv, check_rc=True)[1])

    until = time.monotonic() + wanted["wait"]
    while True:
        state = show()
        healthy = serves(wanted["url"], unit) and answers(wanted["url"] + wanted["health"])
        phase = judge(state, healthy, wanted["restarts"])
        if phase != "starting" or time.monotonic() >= until:
            break
        time.sleep(STEP)
    began = int(state.get("ExecMainStartTimestampMonotonic") or 0) / 1e6
    seconds = max(0.0, time.monotonic() - began) if began else 0.0
    argv = ["journalctl", "--unit", unit, "--lines", str(wanted["lines"]), "--no-pager", "--output", "cat"]
    if phase in ("ready", "starting") and state.get("InvocationID"):
        argv += [f"_SYSTEMD_INVOCATION_ID={state['InvocationID']}"]
    log = [line for line in module.run_command(argv)[1].splitlines() if line.strip()]
    module.exit_json(
        changed=False,
        phase=phase,
        seconds=round(seconds, 1),
        note=describe(phase, unit, state, seconds, log),
        log=log,
        start_id=state.get("InvocationID"),
        clock=round(time.monotonic(), 3),
        stopped_at=seconds_of(state.get("ActiveExitTimestampMonotonic")),
    )


if __name__ == "__main__":
    main()
