#!/usr/bin/python
"""Ansible module: make a release, whole or not at all."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_folder
short_description: Seal a release
description:
  - Writes the files, the links and the manifest of a release into a folder beside its final place and renames
    it, so that a release is never seen half-made. A release that exists is not touched.
options:
  root:
    description: Folder that holds the releases.
    type: path
    default: /opt/sglang
  release:
    description: The release's name.
    type: str
    required: true
  files:
    description: File name to text.
    type: dict
    required: true
  links:
    description: Link name to target.
    type: dict
    required: true
  manifest:
    description:
      - What the release was made of. The manifests that the environment and the model left
        (V(smokestack.json) in each link's target) are added under V(parts).
    type: dict
    required: true
attributes:
  check_mode:
    support: full
    description: Says whether the release would be made.
  diff_mode:
    support: full
    description: Shows the files.
author: Smokestack
"""

EXAMPLES = r"""
- name: Seal the release
  release_folder:
    release: cpu-demo.tiny-qwen3.4f2a91c07e
    files:
      sglang.conf: "{{ lookup('template', 'sglang.conf.j2') }}"
    links:
      venv: /opt/sglang/venvs/0f3b8a
      model: /opt/sglang/models/tiny-qwen3.93ab
    manifest: "{{ manifest }}"
"""

RETURN = r"""
path:
  description: The release's folder.
  type: str
  returned: always
"""

import datetime
import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.durable import read_json, sync_folder, write_json, write_text

ARGUMENTS = {
    "root": {"type": "path", "default": "/opt/sglang"},
    "release": {"type": "str", "required": True},
    "files": {"type": "dict", "required": True},
    "links": {"type": "dict", "required": True},
    "manifest": {"type": "dict", "required": True},
}


def seal(wanted: dict, final: Path) -> None:
    """Make the release beside its place, then give it its name."""
    for name, target in wanted["links"].items():
        if not Path(target).is_dir():
            raise FileNotFoundError(f"{name} should be {target}, which is not there")
    staging = final.with_name(f".{final.name}")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    for name, text in wanted["files"].items():
        write_text(staging / name, text)
    for name, target in wanted["links"].items():
        (staging / name).symlink_to(target)
    parts = {name: read_json(Path(target) / "smokestack.json") for name, target in wanted["links"].items()}
    made = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    write_json(
        staging / "manifest.json",
        {**wanted["manifest"], "release": wanted["release"], "made": made, "parts": parts},
    )
    staging.chmod(0o755)
    staging.rename(final)
    sync_folder(final.parent)


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    final = Path(module.params["root"]) / "releases" / module.params["release"]
    if final.is_dir():
        module.exit_json(changed=False, path=str(final))
    if not module.check_mode:
        try:
            seal(module.params, final)
        except OSError as error:
            module.fail_json(
                msg=f"release {final.name} was not made: {error}. The node serves what it served before"
            )
    text = "".join(f"# {name}\n{content}" for name, content in sorted(module.params["files"].items()))
    module.exit_json(
        changed=True, path=str(final), diff={"before": "", "after": text, "after_header": str(final)}
    )


if __name__ == "__main__":
    main()
