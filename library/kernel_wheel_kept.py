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
    description: The fingerprint that is wanted.
    type: str
    required: true
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
"""

import datetime
import os
import shutil
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.durable import read_json, sync_folder, write_json
from ansible.module_utils.hashed_files import sha256_of, unverified
from ansible.module_utils.wheels import locked

ENDING = ".kernel.json"

ARGUMENTS = {
    "path": {"type": "path", "required": True},
    "fingerprint": {"type": "str", "required": True},
    "stack": {"type": "str", "required": True},
    "wheel": {"type": "path"},
    "record": {"type": "dict", "default": {}},
}


def records(house: Path) -> list[dict[str, Any]]:
    """What is kept beside the wheels that were built, the newest last."""
    there = (read_json(path) for path in house.glob(f"*.whl{ENDING}"))
    return sorted((record for record in there if record), key=lambda record: str(record["built"]))


def keep(house: Path, wheel: Path, record: dict[str, Any]) -> None:
    """Bring a wheel in: first the wheel, then the file that declares it."""
    for old in records(house):
        if old["fingerprint"] == record["fingerprint"]:
            (house / f"{old['file']}{ENDING}").unlink(missing_ok=True)
            if old["file"] != wheel.name:
                (house / old["file"]).unlink(missing_ok=True)
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
    record = next((item for item in there if item["fingerprint"] == wanted["fingerprint"]), None)
    if record and unverified(house, {record["file"]: record["sha256"]}, remember):
        record = None
    return {
        "kernel": {"file": record["file"], "sha256": record["sha256"]} if record else None,
        "record": record,
        "last": next((item for item in reversed(there) if item["stack"] == wanted["stack"]), None),
    }


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    wanted = module.params
    house, wheel = Path(wanted["path"]), Path(wanted["wheel"]) if wanted["wheel"] else None
    remember = not module.check_mode
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
