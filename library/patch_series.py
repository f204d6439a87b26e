#!/usr/bin/python
"""Ansible module: put a series of patches into a source tree, all of it or nothing."""

from __future__ import annotations

DOCUMENTATION = r"""
module: patch_series
short_description: Apply a series of patches to a source tree, or take it out
description:
  - Works out with git what each patch would do to the commit that is checked out, and writes the files of the
    work tree only when the whole series fits. When one patch drifted, nothing is written.
  - A hunk fits when its lines stand in the file exactly as in the patch, in one place only. That place may
    have moved, which is reported under RV(patches); lines that differ are never passed over.
  - The outcome hangs on the commit, the patches and the tools only. A series that was put in before, or that
    an interrupted run put in by half, is replaced. Other changes in the folder are never written over; files
    that git does not track are left alone.
  - Needs git on the host.
options:
  path:
    description: Folder of the package, in a git work tree. The patches name their files from here.
    type: path
    required: true
  state:
    description: Whether the series is to be in the tree. With V(absent) the tree is as it was before.
    type: str
    choices: [present, absent]
    default: present
  patches:
    description: The series in its order, as the filter C(patch_series) reads it from the catalogue.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the patch.
        type: str
        required: true
      text:
        description: The patch, a unified diff of text files as C(git diff) writes it.
        type: str
        required: true
      unneeded:
        description: Why the tools do not need it; empty when they do.
        type: str
        default: ''
      needed_when:
        description: What the source must look like for the patch to be needed; all must hold.
        type: list
        elements: dict
        default: []
      upstream_when:
        description: What the source looks like once it needs the patch no more; all must hold.
        type: list
        elements: dict
        default: []
attributes:
  check_mode:
    support: full
    description: Says how each patch would end, and writes nothing, in the repository neither.
  diff_mode:
    support: full
    description: Shows each file that changes.
author: Smokestack
"""

EXAMPLES = r"""
- name: Patch the kernel's source
  patch_series:
    path: /opt/sglang/build/source/sgl-kernel
    patches: "{{ folder | patch_series(names, {'cmake': '3.31.6', 'cuda': '13.0'}) }}"

- name: Take the patches out
  patch_series:
    path: /opt/sglang/build/source/sgl-kernel
    state: absent
"""

RETURN = r"""
patches:
  description: >-
    How each patch ends: its C(name), C(files), C(reason), C(state), and under C(moved) each hunk that stands
    elsewhere than where it was made. The state is V(applied), V(already_applied), V(not_needed), V(upstream)
    (the source has it in its own words) or V(drifted); when one drifts, those that would fit are V(withheld).
  type: list
  elements: dict
  returned: state is present
files:
  description: The files that changed, from the repository's top.
  type: list
  elements: str
  returned: success
commit:
  description: The commit that is checked out.
  type: str
  returned: success
source:
  description: Git's id of the folder with the series in it. It names the source that is built, to the byte.
  type: str
  returned: success
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.patches import (
    APPLIED,
    WITHHELD,
    PatchError,
    Tree,
    carry_out,
    contents,
    plan,
)

ARGUMENTS = {
    "path": {"type": "path", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "patches": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "text": {"type": "str", "required": True},
            "unneeded": {"type": "str", "default": ""},
            "needed_when": {"type": "list", "elements": "dict", "default": []},
            "upstream_when": {"type": "list", "elements": "dict", "default": []},
        },
    },
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    folder, patches = Path(module.params["path"]), module.params["patches"]
    if module.params["state"] == "present" and not patches:
        module.fail_json(msg="patches is empty: name the series, or set state to absent to take it out")
    git = module.get_bin_path("git")
    if not git:
        module.fail_json(
            msg="git is not installed on this host, and it applies the patches: install the package git"
        )
    try:
        with Tree(git, folder, dry=module.check_mode) as tree:
            planned = plan(tree, patches if module.params["state"] == "present" else [])
            if planned.drifted:
                for outcome in planned.outcomes:
                    if outcome.state == APPLIED:
                        outcome.state = WITHHELD
                drifted = [f"patch {outcome.name} drifted: {outcome.reason}" for outcome in planned.drifted]
                module.fail_json(
                    msg="\n".join(drifted) + f"\nNothing of the series was applied to {folder} (commit "
                    f"{tree.head[:9]}): port the patch to this commit, or take it off the stack's patches",
                    patches=[outcome.facts() for outcome in planned.outcomes],
                )
            diff = [
                {"before_header": file, "after_header": file, "before": before, "after": after}
                for file, before, after in contents(tree, planned)
            ]
            if not module.check_mode:
                carry_out(tree, planned)
    except (PatchError, OSError) as error:
        module.fail_json(msg=str(error))
    result = {"patches": [outcome.facts() for outcome in planned.outcomes]} if patches else {}
    module.exit_json(
        changed=bool(planned.writes),
        files=planned.writes,
        commit=tree.head,
        source=planned.source,
        diff=diff,
        **result,
    )


if __name__ == "__main__":
    main()
