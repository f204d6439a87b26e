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
  wheels:
    description: File names of the environment's wheels; only the diff shows them.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    description: Says whether the release would be made.
  diff_mode:
    support: full
    description: Shows the files and the packages beside those of the release that is current.
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
    "wheels": {"type": "list", "elements": "str", "default": []},
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


def packages_of(wheels: list[str]) -> dict[str, str]:
    """Distribution name to version, from wheels' file names; uv, which only installs, is not among them."""
    pairs = (wheel.split("-")[:2] for wheel in wheels)
    return {name: version for name, version in pairs if name != "uv"}


def described(files: dict[str, str], packages: dict[str, str]) -> str:
    """The text of a release for a diff."""
    text = "".join(f"# {name}\n{content}" for name, content in sorted(files.items()))
    return text + "".join(f"{name}=={packages[name]}\n" for name in sorted(packages))


def current_text(current: Path, names: list[str]) -> str:
    """The release that is current, as `described`; empty where there is none."""
    manifest = read_json(current / "manifest.json")
    if manifest is None:
        return ""
    files = {name: (current / name).read_text() for name in names if (current / name).is_file()}
    return described(files, manifest.get("parts", {}).get("venv", {}).get("packages", {}))


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    wanted = module.params
    root = Path(wanted["root"])
    final = root / "releases" / wanted["release"]
    if final.is_dir():
        module.exit_json(changed=False, path=str(final))
    diff = {
        "before": current_text(root / "current", list(wanted["files"])),
        "before_header": "the current release",
        "after": described(wanted["files"], packages_of(wanted["wheels"])),
        "after_header": str(final),
    }
    if not module.check_mode:
        try:
            seal(wanted, final)
        except OSError as error:
            module.fail_json(
                msg=f"release {final.name} was not made: {error}. The node serves what it served before"
            )
    module.exit_json(changed=True, path=str(final), diff=diff)


if __name__ == "__main__":
    main()
