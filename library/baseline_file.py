#!/usr/bin/python
"""Ansible module: merge the passes of a baseline and store it in the catalogue."""

from __future__ import annotations

DOCUMENTATION = r"""
module: baseline_file
short_description: Store a baseline made of several passes
description:
  - Merges passes that the module M(llm_gate) recorded and writes them below O(folder), in a file named by the
    model and a hash of the key. The file is replaced as a whole.
  - A stored baseline of the same key stays as it is while the new one differs from it by no more than noise.
    Its speeds on other hardware are kept in any case.
options:
  folder:
    description: Folder of the baselines.
    type: path
    required: true
  passes:
    description: Documents of the passes, at least two, all of one deployment.
    type: list
    elements: dict
    required: true
attributes:
  check_mode:
    support: full
    description: Says what would be written.
  diff_mode:
    support: full
    description: Shows the lines that change.
author: Smokestack
"""

EXAMPLES = r"""
- name: Store the baseline
  baseline_file:
    folder: catalog/baselines
    passes: "{{ baseline_passes }}"
  delegate_to: localhost
"""

RETURN = r"""
path:
  description: The file of the baseline.
  type: str
  returned: always
differences:
  description: What differs from the stored baseline beyond noise, a sentence each; that a new file is new.
  type: list
  elements: str
  returned: always
noise:
  description: The largest difference between two passes, for each statistic, in nats or as a share.
  type: dict
  returned: always
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.durable import write_text
from ansible.module_utils.llm_gate.baseline import (
    Baseline,
    file_name,
    parse,
    read_baseline,
    read_pass,
    to_text,
)
from ansible.module_utils.llm_gate.errors import UsageError
from ansible.module_utils.llm_gate.merge import changes, merge

ARGUMENTS = {
    "folder": {"type": "path", "required": True},
    "passes": {"type": "list", "elements": "dict", "required": True},
}


def read_stored(path: Path) -> Baseline | None:
    """The baseline in a file, None where there is no file. Raises UsageError and OSError."""
    return (
        read_baseline(parse(path.read_text(encoding="utf-8"), str(path)), str(path))
        if path.exists()
        else None
    )


def merged(passes: list[dict[str, Any]], folder: Path) -> tuple[Path, Baseline | None, Baseline]:
    """The file, what it holds, and the new baseline. Raises UsageError and OSError."""
    read = [read_pass(document, f"pass {number}") for number, document in enumerate(passes, 1)]
    if not read:
        raise UsageError("passes: a baseline needs at least two, not none")
    path = folder / file_name(read[0].key)
    stored = read_stored(path)
    return path, stored, merge(read, stored)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    folder = Path(module.params["folder"])
    try:
        path, stored, fresh = merged(module.params["passes"], folder)
        differences = ["a new baseline"] if stored is None else changes(stored, fresh)
        before = "" if stored is None else to_text(stored)
        after = to_text(fresh) if differences else before
        if differences and not module.check_mode:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(path, after)
    except UsageError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error.filename or folder}: {error.strerror}")
    module.exit_json(
        changed=bool(differences),
        path=str(path),
        differences=differences,
        noise=asdict(fresh.noise),
        diff={"before": before, "after": after, "before_header": str(path), "after_header": str(path)},
    )


if __name__ == "__main__":
    main()
