#!/usr/bin/python
"""Ansible module: what of an inference server is on a host that was not put there by us."""

from __future__ import annotations

DOCUMENTATION = r"""
module: foreign_servers
short_description: Find SGLang servers that somebody else set up
description:
  - Looks at processes, at systemd units, at the containers of Docker and Podman, and at the folder, the user
    and the unit that a deployment would take. Changes nothing.
options:
  root:
    description: Folder of the deployment.
    type: path
    default: /opt/sglang
  unit:
    description: Unit of the deployment.
    type: str
    default: sglang.service
  user:
    description: User of the deployment.
    type: str
    default: sglang
  home:
    description: That user's home.
    type: path
    default: /var/lib/sglang
  containers:
    description: Whether to ask Docker and Podman.
    type: bool
    default: true
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
- name: Look for servers of others
  foreign_servers:
"""

RETURN = r"""
facts:
  description:
    - V(processes), servers that run ({pid, command, unit, engine, container}), ours left out.
    - V(units), unit files that start one ({name, path, active, enabled}), ours left out.
    - V(containers), those with SGLang ({engine, id, name, image, running, restart, ports, sglang}) and those
      that publish a port; V(silent), engines that are installed and did not answer, with what they said.
    - V(unit) ({path, ours}), the unit file of the deployment's name, null where there is none. It is ours
      when its drop-in links into O(root).
    - V(root_others), what lies in O(root) and is not ours; V(user_home), the home of a user of the
      deployment's name where that is not O(home), else null.
  type: dict
  returned: always
"""

import json
import pwd
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.foreign import container_of, runs_server, server_processes

ARGUMENTS = {
    "root": {"type": "path", "default": "/opt/sglang"},
    "unit": {"type": "str", "default": "sglang.service"},
    "user": {"type": "str", "default": "sglang"},
    "home": {"type": "path", "default": "/var/lib/sglang"},
    "containers": {"type": "bool", "default": True},
}
UNIT_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
)
OURS = {"releases", "venvs", "models", "toolkits", "wheelhouse", "cache"}
OURS |= {"current", "previous", "trial.json"}
PATIENCE = "20"  # seconds that a container engine gets


def unit_file(folders: list[Path], unit: str, root: Path) -> dict | None:
    """The file of the deployment's unit: {path, ours}."""
    for folder in folders:
        path = folder / unit
        if path.exists() or path.is_symlink():
            link = folder / f"{unit}.d/release.conf"
            ours = link.is_symlink() and link.readlink() == root / "current/sglang.conf"
            return {"path": str(path), "ours": ours}
    return None


def other_units(folders: list[Path], unit: str) -> list[dict]:
    """Unit files of other names that start a server: {name, path}."""
    found = {}
    for path in (path for folder in folders if folder.is_dir() for path in sorted(folder.glob("*.service"))):
        try:
            if path.name != unit and path.is_file() and runs_server(path.read_text(errors="replace")):
                found.setdefault(path.name, {"name": path.name, "path": str(path)})
        except OSError:
            continue
    return list(found.values())


def other_entries(root: Path) -> list[str]:
    """What lies in the deployment's folder without being ours; the folder itself when it is a file."""
    if not root.exists():
        return []
    if not root.is_dir():
        return [str(root)]
    return sorted(path.name for path in root.iterdir() if path.name not in OURS and path.name[0] != ".")


def other_home(user: str, home: str) -> str | None:
    """The home of the user, where there is one and it is another than ours."""
    try:
        found = pwd.getpwnam(user).pw_dir
    except KeyError:
        return None
    return found if found != home else None


def containers(module: AnsibleModule) -> tuple[list[dict], dict[str, str]]:
    """The containers with SGLang or with published ports, and what an engine said that did not answer."""
    found, silent = [], {}
    for engine in ("docker", "podman"):
        binary = module.get_bin_path(engine)
        if binary is None:
            continue
        rc, out, err = module.run_command(
            ["timeout", PATIENCE, binary, "ps", "--all", "--quiet", "--no-trunc"]
        )
        if rc == 0 and out.split():
            rc, out, err = module.run_command(["timeout", PATIENCE, binary, "inspect", *out.split()])
            documents = json.loads(
                out or "[]"
            )  # a container that went meanwhile makes rc 1, the others are there
            found += [container_of(engine, document) for document in documents]
        elif rc != 0:
            silent[engine] = err.strip().splitlines()[-1] if err.strip() else f"exit status {rc}"
    return [entry for entry in found if entry["sglang"] or entry["ports"]], silent


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    wanted = module.params
    root = Path(wanted["root"])
    folders = [Path(folder) for folder in UNIT_FOLDERS]
    ours = unit_file(folders, wanted["unit"], root)

    def state(unit: str) -> dict:
        argv = ["systemctl", "show", unit, "--property", "ActiveState,UnitFileState"]
        lines = module.run_command(argv)[1].splitlines()
        told = dict(line.split("=", 1) for line in lines if "=" in line)
        return {
            "active": told.get("ActiveState") in ("active", "activating", "reloading"),
            "enabled": told.get("UnitFileState", "").startswith("enabled"),
        }

    boxes, silent = containers(module) if wanted["containers"] else ([], {})
    module.exit_json(
        changed=False,
        facts={
            "processes": [
                process
                for process in server_processes()
                if not (process["unit"] == wanted["unit"] and ours and ours["ours"])
            ],
            "units": [unit | state(unit["name"]) for unit in other_units(folders, wanted["unit"])],
            "containers": boxes,
            "silent": silent,
            "unit": ours,
            "root_others": other_entries(root),
            "user_home": other_home(wanted["user"], wanted["home"]),
        },
    )


if __name__ == "__main__":
    main()
