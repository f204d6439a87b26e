#!/usr/bin/python
"""Ansible module: move a node from one release to another, on trial until the gate has spoken."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_switch
short_description: Put a release on trial, confirm it, or go back
description:
  - Moves the links V(current) and V(previous) below O(root) in one step, with a journal that survives a power
    cut.
  - Does not touch systemd. The return value RV(restart) says whether the unit runs something else.
options:
  root:
    description: Folder that holds the releases.
    type: path
    default: /opt/sglang
  state:
    description:
      - V(read) only reports.
      - V(trial) makes O(release) current. A release whose gate failed before is refused unless
        O(retry_failed).
      - V(confirmed) records O(verdict) for the current release and marks it proved.
      - V(reverted) records O(verdict) for the current release and goes back to the last proved one, if there
        is one.
    choices: [read, trial, confirmed, reverted]
    default: read
    type: str
  release:
    description: The release meant; needed unless O(state=read).
    type: str
  verdict:
    description:
      - The gate's report for O(state=confirmed) and O(state=reverted). Its keys V(run_id), V(verdict),
        V(summary), V(finished) and V(probes) are kept.
    type: dict
  retry_failed:
    description: Try a release again that failed its gate.
    type: bool
    default: false
  stopped_at:
    description: When what served was stopped, as M(engine_start) returns it; unset where nothing was.
    type: float
  ready_at:
    description: When a server answered its health route again, on the same clock; unset while none has.
    type: float
attributes:
  check_mode:
    support: full
    description: Says what would change.
  diff_mode:
    support: full
    description: Shows which release the links name.
author: Smokestack
"""

EXAMPLES = r"""
- name: Switch to the new release, on trial
  release_switch:
    state: trial
    release: cpu-demo.tiny-qwen3.4f2a91c07e
"""

RETURN = r"""
release:
  description: The release that is current afterwards, null where there is none.
  type: str
  returned: always
not_serving:
  description:
    - V(until_ready_s), how long the node did not answer its health route, and V(until_verdict_s), how long
      until this module was called, which is after the gate's verdict. Null without O(stopped_at).
    - With O(state=confirmed) it is kept in the verdict.
  type: dict
  returned: always
restart:
  description: Whether the unit must be restarted to run RV(release).
  type: bool
  returned: always
facts:
  description: The keys current, previous, running, running_url, trial, proved, manifest and verdict, as they
    are afterwards.
  type: dict
  returned: always
"""

import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.releases import ReleaseError, Store, Switch

ARGUMENTS = {
    "root": {"type": "path", "default": "/opt/sglang"},
    "state": {"choices": ["read", "trial", "confirmed", "reverted"], "default": "read"},
    "release": {"type": "str"},
    "verdict": {"type": "dict"},
    "retry_failed": {"type": "bool", "default": False},
    "stopped_at": {"type": "float"},
    "ready_at": {"type": "float"},
}
KEPT = ("run_id", "verdict", "summary", "finished", "probes")


def outage(stopped_at: float | None, ready_at: float | None, now: float) -> dict[str, float | None] | None:
    """How long a node did not serve, from the clock's readings in seconds."""
    if stopped_at is None:
        return None
    until_ready = None if ready_at is None else round(ready_at - stopped_at, 1)
    return {"until_ready_s": until_ready, "until_verdict_s": round(now - stopped_at, 1)}


def main() -> None:
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        supports_check_mode=True,
        required_if=[
            ("state", "trial", ["release"]),
            ("state", "confirmed", ["release", "verdict"]),
            ("state", "reverted", ["release", "verdict"]),
        ],
    )
    wanted = module.params
    store = Store(Path(wanted["root"]), dry=module.check_mode)
    verdict = {key: value for key, value in (wanted["verdict"] or {}).items() if key in KEPT}
    not_serving = outage(wanted["stopped_at"], wanted["ready_at"], time.monotonic())
    if not_serving and wanted["state"] == "confirmed":
        verdict["not_serving"] = not_serving
    before = store.facts()
    try:
        if wanted["state"] == "trial":
            done = store.try_out(wanted["release"], wanted["retry_failed"])
        elif wanted["state"] == "confirmed":
            done = store.confirm(wanted["release"], verdict)
        elif wanted["state"] == "reverted":
            done = store.revert(wanted["release"], verdict)
        else:
            current = store.current
            restart = store.running() != current
            done = Switch(changed=False, release=current, previous=store.previous, restart=restart)
    except ReleaseError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"the state of the releases was not written: {error}")
    module.exit_json(
        changed=done.changed,
        release=done.release,
        restart=done.restart,
        not_serving=not_serving,
        facts=store.facts(),
        diff={
            "before": f"current: {before['current']}\nprevious: {before['previous']}\n",
            "after": f"current: {done.release}\nprevious: {done.previous}\n",
        },
    )


if __name__ == "__main__":
    main()
