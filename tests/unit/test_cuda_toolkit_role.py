"""The role cuda_toolkit on this machine, in a folder of its own, with stand-ins for NVIDIA's wheels."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from plan import deployment_plan
from run_play import run_play
from toolkit_wheels import NVCC, cuda_wheel, cuda_wheels

ROOT = Path(__file__).parents[2]
PLAY = """---
- hosts: localhost
  connection: local
  gather_facts: false
  module_defaults:
    node_lease: {{path: {folder}/run/lease.json}}
  tasks:
    - ansible.builtin.import_role:
        name: cuda_toolkit
        tasks_from: {entry}
      when: plan.toolkit is not none
    - ansible.builtin.copy:
        content: >-
          {{{{ {{'home': cuda_toolkit_home | default(none), 'findings': cuda_toolkit_findings | default(none),
                'reboot': reboot_required | default(none)}} | to_json }}}}
        dest: {folder}/facts.json
        mode: "0644"
      check_mode: false
      diff: false
      changed_when: false
"""
PROFILE = {
    "name": "tiny",
    "checkpoint": {"path": "m", "files": {}},
    "served_name": "tiny",
    "launch": {},
    "environment": {"PATH": "/usr/bin:/bin"},
}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the role makes files that belong to root")


class Host:
    """This machine with a deployment's folder and a wheelhouse below a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root, self.house = folder, folder / "opt", folder / "house"
        self.stack: dict[str, Any] = {
            "name": "demo",
            "sglang": {"version": "0.5.9"},
            "cuda_toolkit": {"version": "13.0", "wheels": ["nvidia-cuda-nvcc==13.0.88"]},
        }
        self.wheels = cuda_wheels(self.house)

    @property
    def plan(self) -> dict[str, Any]:
        lock = {"abi": "cp311", "wheels": [], "toolkit": self.wheels}
        return deployment_plan(self.stack, PROFILE, lock, root=str(self.root))

    @property
    def home(self) -> Path:
        return Path(self.plan["toolkit"]["home"])

    @property
    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads((self.folder / "facts.json").read_text())
        return facts

    def run(self, *options: str, entry: str = "main") -> subprocess.CompletedProcess[str]:
        given = {"plan": self.plan, "wheelhouse_folder": str(self.house), "run_id": "r", "run_holder": "h"}
        given["cuda_toolkit_builder_folder"] = str(self.folder / "builds")
        return run_play(self.folder, PLAY.format(folder=self.folder, entry=entry), given, *options)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def changes(done: subprocess.CompletedProcess[str]) -> int:
    """How many tasks of a run that went well said that they changed something."""
    assert done.returncode == 0, done.stdout
    return int(done.stdout.rpartition("changed=")[2].split()[0])


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """What a refused run said, on one line."""
    assert done.returncode == 2, done.stdout
    return " ".join(done.stdout.split())


@needs_root
def test_a_toolkit_from_wheels_is_sent_laid_out_and_checked_once(host: Host) -> None:
    told = host.run("--check", "--diff")
    assert changes(told) > 0
    assert f"+{host.wheels[0]['file']} sha256:{host.wheels[0]['sha256']}" in told.stdout
    assert not host.root.exists()
    assert host.facts["findings"] is None

    assert changes(host.run()) > 0
    assert (host.home / "nvvm/bin/cicc").is_file()
    assert host.facts["home"] == str(host.home)
    levels = {finding["check"]: finding["level"] for finding in host.facts["findings"]}
    assert {levels[check] for check in ("nvcc", "cccl", "ptxas", "compile")} == {"ok"}
    assert isinstance(host.facts["reboot"], list)

    assert changes(host.run("--check")) == 0
    assert changes(host.run()) == 0


@needs_root
@pytest.mark.full
def test_a_toolkit_that_lost_a_file_is_made_anew_from_the_wheels_that_are_there(host: Host) -> None:
    host.run()
    shutil.rmtree(host.house)  # the node has its own wheels
    (host.home / "bin/ptxas").unlink()
    assert changes(host.run()) == 1
    assert (host.home / "bin/ptxas").is_file()


@needs_root
@pytest.mark.full
def test_a_torn_wheel_on_the_node_is_sent_again(host: Host) -> None:
    house = host.root / "wheelhouse"
    house.mkdir(parents=True)
    (house / host.wheels[0]["file"]).write_bytes(b"torn")
    assert changes(host.run()) > 0
    assert (host.home / "bin/nvcc").is_file()


@needs_root
@pytest.mark.full
def test_a_companion_that_is_missing_is_refused_and_leaves_no_toolkit(host: Host) -> None:
    host.wheels = cuda_wheels(host.house, without="nvidia_nvvm")
    assert "no nvvm/bin/cicc (of nvidia-nvvm)" in refusal(host.run())
    assert not host.home.exists()


def at_a_path(host: Host, name: str = "cuda") -> Path:
    """A toolkit that the host has, as the stack names it."""
    home = host.folder / name
    (home / "bin").mkdir(parents=True)
    (home / "bin/nvcc").write_text(NVCC.format(version="12.8"))
    (home / "bin/nvcc").chmod(0o755)
    host.stack["cuda_toolkit"] = {"version": "13.0", "path": str(home)}
    return home


def test_each_thing_that_is_wrong_in_a_toolkit_of_the_host_is_refused_with_its_name(host: Host) -> None:
    home = at_a_path(host)
    message = refusal(host.run())
    assert f"{home}/bin/nvcc is of CUDA 12.8, the stack wants 13.0" in message
    assert f"there is no cuda/std/utility in {home}/include/cccl" in message
    assert f"there is no {home}/bin/ptxas" in message
    assert sorted(path.name for path in home.iterdir()) == ["bin"]


@pytest.mark.full
def test_a_toolkit_that_is_not_there_is_refused(host: Host) -> None:
    host.stack["cuda_toolkit"] = {"version": "13.0", "path": str(host.folder / "none")}
    assert f"there is no {host.folder}/none/bin/nvcc" in refusal(host.run())


@pytest.mark.skipif(not shutil.which("apt-cache"), reason="this host has no APT")
def test_a_package_that_no_repository_offers_is_refused(host: Host) -> None:
    host.stack["cuda_toolkit"] |= {"package": "no-such-package-as-this", "path": "/usr/local/none"}
    del host.stack["cuda_toolkit"]["wheels"]
    for options in ((), ("--check",)):
        message = refusal(host.run(*options))
        assert "no repository of the host offers the package no-such-package-as-this" in message
        assert "apt-get update" in message


def test_a_stack_without_a_toolkit_needs_none(host: Host) -> None:
    del host.stack["cuda_toolkit"]
    assert changes(host.run()) == 0
    assert host.facts == {"home": None, "findings": None, "reboot": None}


@pytest.mark.full
def test_a_builder_lays_its_toolkit_out_from_the_wheelhouse(host: Host) -> None:
    home = host.folder / "builds" / host.home.name
    assert changes(host.run("--check", entry="builder")) == 1
    assert not home.exists()
    assert changes(host.run(entry="builder")) == 1
    assert (host.facts["home"], (home / "bin/nvcc").is_file()) == (str(home), True)
    assert changes(host.run(entry="builder")) == 0


def test_a_builder_refuses_an_old_ptxas(host: Host) -> None:
    nvcc = NVCC.format(version="13.0")
    files: dict[str, str] = {"bin/nvcc": nvcc, "bin/ptxas": "#!/bin/sh\necho no such arch >&2; exit 1\n"}
    host.wheels[0] = cuda_wheel(host.house, "nvidia_cuda_nvcc", files)
    assert "bin/ptxas does not assemble for sm_120a: no such arch" in refusal(host.run(entry="builder"))
