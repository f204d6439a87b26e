#!/usr/bin/python
"""Ansible module: wait a little for a job on the host and say where it is."""

from __future__ import annotations

DOCUMENTATION = r"""
module: job_progress
short_description: Follow a long job by its progress file
description:
  - Returns as soon as the job has ended, or after O(wait) seconds, with the note that the job wrote last.
options:
  job:
    description: The job's identifier, as an asynchronous task returns it.
    type: str
    required: true
  file:
    description: The progress file that the job writes.
    type: path
    required: true
  wait:
    description: Longest time to wait, in seconds.
    type: float
    default: 10
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
- name: See how far the wheels are
  job_progress:
    job: "{{ wheels.ansible_job_id }}"
    file: /run/smokestack/wheels.json
"""

RETURN = r"""
ended:
  description: Whether the job has ended. Its result is read with M(ansible.builtin.async_status).
  type: bool
  returned: always
note:
  description: Where the job is, for a person.
  type: str
  returned: always
"""

import os
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.durable import read_json

STEP = 0.25


def is_alive(job: str, proc: Path = Path("/proc")) -> bool:
    """Whether a process of the job is there: its wrapper has the job's number as an argument."""
    number = job.partition(".")[0].encode()
    for process in proc.glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it ended while it was looked at
            continue
        if number in words and any(b"async_wrapper" in word for word in words):
            return True
    return False


def has_ended(job_file: Path) -> bool:
    """A task's result file holds `finished` once it is over. Without the file the job is not known."""
    state = read_json(job_file)
    return not job_file.exists() or bool(state and (state.get("finished") or "ansible_job_id" not in state))


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "job": {"type": "str", "required": True},
            "file": {"type": "path", "required": True},
            "wait": {"type": "float", "default": 10},
        },
        supports_check_mode=True,
    )
    folder = Path(os.environ.get("ANSIBLE_ASYNC_DIR") or "~/.ansible_async").expanduser()
    job_file = folder / module.params["job"]
    until = time.monotonic() + module.params["wait"]
    while not (ended := has_ended(job_file)) and time.monotonic() < until:
        time.sleep(STEP)
    if not ended and not is_alive(module.params["job"]) and not has_ended(job_file):
        module.fail_json(
            msg=f"the job {module.params['job']} was killed before it ended; run the playbook again to go on"
        )
    progress = read_json(Path(module.params["file"])) or {}
    module.exit_json(changed=False, ended=ended, note=progress.get("note", "starting"))


if __name__ == "__main__":
    main()
