#!/usr/bin/python
"""Ansible module: what a kernel wheel holds, without a GPU."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_wheel_facts
short_description: Say what machine code a kernel wheel holds, and what it was built for
description:
  - Reads a wheel's metadata, the dynamic sections of its shared objects, and the cubins inside them with
    NVIDIA's C(cuobjdump) and C(nvdisasm). No GPU and no driver is needed, and nothing of the wheel is run.
  - Whether it holds FP4 is told by the tensor-core instructions in its machine code, not by the names of its
    architectures. What was not looked at is V(not seen), never a yes and never a no.
  - Looking takes seconds to minutes. The facts are kept beside the wheel in C(WHEEL.facts.json) with its
    SHA-256; a wheel with the same bytes is not looked into again, unless something was not seen.
options:
  wheel:
    description: The wheel.
    type: path
    required: true
  tools:
    description:
      - Folders to look through for C(cuobjdump) with C(nvdisasm) beside it. Each is a folder that holds both,
        a toolkit, or an environment with C(nvidia-cuda-cuobjdump) and C(nvidia-cuda-nvdisasm) or with
        C(triton).
    type: list
    elements: path
    required: true
  torch:
    description:
      - Folder C(torch/lib) of the torch that the wheel is to run with. RV(torch_missing) then lists what the
        wheel wants from torch and this one lacks.
    type: path
  count:
    description: Look into every cubin of SM120 even after FP4 was found, so that RV(facts) counts them all.
    type: bool
    default: false
  deadline:
    description: Seconds after which what has not been looked at is V(not seen).
    type: int
    default: 900
  scratch:
    description: Folder for the unpacked shared objects, twice the largest of them. Else the system's own.
    type: path
  progress_file:
    description: Where to write progress.
    type: path
attributes:
  check_mode:
    support: full
    description: Looks all the same, and keeps nothing beside the wheel.
  diff_mode:
    support: none
    description: The wheel is not changed.
author: Smokestack
"""

EXAMPLES = r"""
- name: Look into the kernel wheel
  kernel_wheel_facts:
    wheel: /var/cache/smokestack/wheelhouse/sgl_kernel-0.3.21-cp310-abi3-linux_x86_64.whl
    tools: [/opt/sglang/toolkits/13.0-5f1c90a2b7de, /opt/smokestack/build/venv]
"""

RETURN = r"""
facts:
  description:
    - V(name), V(version), V(tags), V(requires_python) and V(requires_torch) as the metadata says; V(cuda),
      the major versions of libcudart that it is linked with; V(torch_linked) and V(cxx11_abi).
    - V(archs) over all shared objects and for each in V(objects), with the number of cubins.
    - V(fp4) with V(symbols), V(instructions_seen) (yes, no or not seen), V(instructions) by architecture,
      V(whole) where every cubin of SM120 was looked into, and V(reason) where it was not seen.
    - V(marker) with V(seen), yes where a build for plain 12.0 left the message that its FP4 code aborts with.
  type: dict
  returned: success
torch_missing:
  description: Symbols that the wheel wants and O(torch) lacks; null when O(torch) is not given.
  type: list
  elements: str
  returned: success
kept:
  description: Whether the facts were kept from an earlier look.
  type: bool
  returned: success
seconds:
  description: Seconds that this took.
  type: float
  returned: success
"""

import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kernel_wheel import WheelError, kernel_facts, missing_torch
from ansible.module_utils.progress import Progress

ARGUMENTS = {
    "wheel": {"type": "path", "required": True},
    "tools": {"type": "list", "elements": "path", "required": True},
    "torch": {"type": "path"},
    "count": {"type": "bool", "default": False},
    "deadline": {"type": "int", "default": 900},
    "scratch": {"type": "path"},
    "progress_file": {"type": "path"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    wanted = module.params
    start = time.monotonic()
    if wanted["deadline"] < 1:
        module.fail_json(msg=f"deadline must be at least 1 second, not {wanted['deadline']}")
    try:
        facts, kept = kernel_facts(
            Path(wanted["wheel"]),
            [Path(folder) for folder in wanted["tools"]],
            seconds=wanted["deadline"],
            count=wanted["count"],
            keep=not module.check_mode,
            scratch=Path(wanted["scratch"]) if wanted["scratch"] else None,
            progress=Progress(None if module.check_mode else wanted["progress_file"]),
        )
        missing = missing_torch(facts, Path(wanted["torch"])) if wanted["torch"] else None
    except (WheelError, OSError) as error:
        module.fail_json(msg=str(error))
    facts = {name: value for name, value in facts.items() if name != "torch_symbols"} | {
        "objects": [
            {name: value for name, value in item.items() if name != "torch_symbols"}
            for item in facts["objects"]
        ]
    }
    module.exit_json(
        changed=False,
        facts=facts,
        torch_missing=missing,
        kept=kept,
        seconds=round(time.monotonic() - start, 1),
    )


if __name__ == "__main__":
    main()
