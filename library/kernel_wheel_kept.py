#!/usr/bin/python
"""Ansible module: kernel wheels that were built, in the wheelhouse, by their fingerprint."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_wheel_kept
short_description: Find a built kernel wheel in the wheelhouse, or bring one in
description:
  - A kernel wheel that was built and proved lies in the wheelhouse with C(WHEEL.kernel.json) beside it, which
    names its fingerprint, all that went into it, how it was built and what the proof saw.
  - Without O(wheel) it is only looked for. With it, it enters the wheelhouse; what the wheelhouse has for
    the same fingerprint is replaced.
options:
  path:
    description: The wheelhouse.
    type: path
    required: true
  fingerprint:
    description: The fingerprint that is wanted. Without it the newest wheel of the stack is.
    type: str
  stack:
    description: The stack; RV(last) is the newest wheel that was built for it.
    type: str
    required: true
  wheel:
    description: The wheel to bring in.
    type: path
  record:
    description: What to keep beside it.
    type: dict
    default: {}
attributes:
  check_mode:
    support: full
    description: Says whether a wheel would enter.
  diff_mode:
    support: none
    description: A wheel has no useful difference.
author: Smokestack
"""

EXAMPLES = r"""
- name: Look for the kernel wheel
  kernel_wheel_kept:
    path: /var/cache/smokestack/wheelhouse
    fingerprint: 0f3b8ac41d22
    stack: nightly-2026-03-07
"""

RETURN = r"""
kernel:
  description: The C(file) and C(sha256) of the wheel with this fingerprint; null where there is none, or its
    bytes are not those that were kept.
  type: dict
  returned: success
record:
  description: What is kept beside it; null where there is none.
  type: dict
  returned: success
last:
  description: What is kept beside the newest wheel of the stack; null where there is none.
  type: dict
  returned: success
files:
  description: SHA-256 by file name of what carries the wheel to another wheelhouse, the wheel and what is
    kept beside it; empty where there is none.
  type: dict
  returned: success
built:
  description: The C(fingerprint), C(file) and C(built) (time) of each wheel of the stack, the newest last.
  type: list
  elements: dict
  returned: success
"""

import datetime
import os
import shutil
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.durable import sync_folder, write_json
from ansible.module_utils.hashed_files import sha256_of, unverified
from ansible.module_utils.kept_kernels import ENDING, drop, records
from ansible.module_utils.wheels import locked

ARGUMENTS = {
    "path": {"type": "path", "required": True},
    "fingerprint": {"type": "str"},
    "stack": {"type": "str", "required": True},
    "wheel": {"type": "path"},
    "record": {"type": "dict", "default": {}},
}


def keep(house: Path, wheel: Path, record: dict[str, Any]) -> None:
    """Bring a wheel in: first the wheel, then the file that declares it."""
    for old in records(house):
        if old["fingerprint"] == record["fingerprint"]:
            drop(house, old, but=wheel.name)
    beside = house / f".{wheel.name}"
    shutil.copyfile(wheel, beside)
    with beside.open("rb") as stream:
        os.fsync(stream.fileno())
    beside.chmod(0o644)
    beside.replace(house / wheel.name)
    sync_folder(house)
    write_json(house / f"{wheel.name}{ENDING}", record)


def found(house: Path, wanted: dict[str, Any], remember: bool) -> dict[str, Any]:
    """The module's result without changes."""
    there = records(house)
    of_stack = [item for item in there if item["stack"] == wanted["stack"]]
    last = of_stack[-1] if of_stack else None
    record = last
    if wanted["fingerprint"]:
        record = next((item for item in there if item["fingerprint"] == wanted["fingerprint"]), None)
    if record and unverified(house, {record["file"]: record["sha256"]}, remember):
        record = None
    kernel = {"file": record["file"], "sha256": record["sha256"]} if record else None
    files = {}
    if kernel:
        beside = f"{kernel['file']}{ENDING}"
        files = {kernel["file"]: kernel["sha256"], beside: sha256_of(house / beside)}
    built = [{key: item[key] for key in ("fingerprint", "file", "built")} for item in of_stack]
    return {"kernel": kernel, "record": record, "last": last, "files": files, "built": built}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    wanted = module.params
    house, wheel = Path(wanted["path"]), Path(wanted["wheel"]) if wanted["wheel"] else None
    remember = not module.check_mode
    if wheel and not wanted["fingerprint"]:
        module.fail_json(msg=f"{wheel} needs a fingerprint to be kept by")
    try:
        if wheel is None:
            module.exit_json(changed=False, **found(house, wanted, remember))
        if module.check_mode:
            module.exit_json(changed=True, **found(house, wanted, remember))
        record = wanted["record"] | {
            "fingerprint": wanted["fingerprint"],
            "stack": wanted["stack"],
            "file": wheel.name,
            "sha256": sha256_of(wheel),
            "built": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}",
        }
        house.mkdir(parents=True, exist_ok=True)
        with locked(house):
            keep(house, wheel, record)
        module.exit_json(changed=True, **found(house, wanted, remember))
    except OSError as error:
        module.fail_json(msg=f"the kernel wheel was not brought into {house}: {error}")


if __name__ == "__main__":
    main()
