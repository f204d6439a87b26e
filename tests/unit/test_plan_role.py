"""The role plan on this machine, for a node that a stand-in for host_facts describes: nothing is written."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from run_play import run_play
from tiny_checkpoint import QWEN35, write_checkpoint

ROOT = Path(__file__).parents[2]
PLAY = """---
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {{name: plan}}
    - ansible.builtin.copy:
        content: "{{{{ plan | to_json }}}}"
        dest: {folder}/plan.json
        mode: "0644"
      check_mode: false
      diff: false
    - ansible.builtin.import_role: {{name: model}}
"""
NODE = {
    "distribution": "debian",
    "version": "12",
    "machine": "x86_64",
    "python": "3.11",
    "abi": "cp311",
    "platform": "linux_x86_64",
    "glibc": "2.36",
    "systemd": True,
    "driver": None,
    "memory_gib": 64.0,
}
STAND_IN = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
import json
AnsibleModule(argument_spec={}, supports_check_mode=True).exit_json(changed=False, facts=json.loads(%r))
"""


class Run:
    """Plans for profiles of a catalogue of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.catalog = folder, folder / "catalog"
        shutil.copytree(ROOT / "catalog", self.catalog)
        (folder / "library").mkdir()

    def profile(self, **changes: Any) -> Path:
        """The profile `small`: the tiny model's but for these keys."""
        tiny = yaml.safe_load((self.catalog / "models/tiny-qwen3.yml").read_text())
        path = self.catalog / "models/small.yml"
        path.write_text(yaml.safe_dump({**tiny, "name": "small", **changes}, sort_keys=False))
        return path

    def go(self, model: str, **variables: Any) -> subprocess.CompletedProcess[str]:
        gpus = variables.pop("gpus", None)
        node = NODE | ({"gpus": gpus} if gpus else {})
        (self.folder / "library/host_facts.py").write_text(STAND_IN % json.dumps(node))
        given = {"stack": "cpu-demo", "model_profile": model, "plan_catalog": str(self.catalog)}
        given |= {"wheelhouse_path": str(self.folder / "house"), **variables}
        return run_play(self.folder, PLAY.format(folder=self.folder), given, "--check")

    def refusal(self, model: str, **variables: Any) -> str:
        """What a refused run said, on one line."""
        done = self.go(model, **variables)
        assert done.returncode == 2, done.stdout + done.stderr
        return " ".join(done.stdout.split())

    def fit(self, model: str, **variables: Any) -> dict[str, Any]:
        """Whether the model fits, as the plan of a run that went well says."""
        done = self.go(model, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads((self.folder / "plan.json").read_text())["fit"]
        return found


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_a_profile_without_hashes_is_refused_with_the_command_that_writes_them(run: Run) -> None:
    refusal = run.refusal("qwen3.5-397b-a17b-nvfp4-8x")
    assert "model profile qwen3.5-397b-a17b-nvfp4-8x is not locked" in refusal
    assert "tools/lock_model.py qwen3.5-397b-a17b-nvfp4-8x FOLDER" in refusal


def test_a_mistake_in_a_profile_is_told_with_its_line(run: Run) -> None:
    path = run.profile()
    path.write_text(path.read_text().replace("served_name:", "servd_name:"))
    assert "catalog/models/small.yml:5: unknown key 'servd_name'; did you mean 'served_name'?" in run.refusal(
        "small"
    )


def test_a_torn_checkpoint_is_refused_before_it_is_sent(run: Run) -> None:
    folder = write_checkpoint(run.folder / "m")
    (folder / "model-00001-of-00002.safetensors").unlink()
    run.profile(checkpoint={"path": str(folder), "files": {"config.json": "a" * 64}})
    assert "is unfit: model-00001-of-00002.safetensors is missing" in run.refusal("small")


def test_gpus_that_were_seen_are_reckoned_with_and_the_override_is_named(run: Run) -> None:
    """FP8 by `auto`, which the checkpoint declares; SGLang 0.5.9 drops this architecture's scales."""
    folder = write_checkpoint(run.folder / "m", QWEN35)
    launch = {
        "tp_size": 1,
        "context_length": 4096,
        "moe_runner_backend": "flashinfer_cutlass",
        "fp4_gemm_backend": "flashinfer_cudnn",
        "attention_backend": "triton",
    }
    run.profile(checkpoint={"path": str(folder), "files": {"config.json": "a" * 64}}, launch=launch)
    gpus = [{"name": "RTX 5090", "memory_gib": 31.36}]
    assert "SGLang 0.5.9 is not known to load the KV scales" in run.refusal("small", gpus=gpus)
    fit = run.fit("small", gpus=gpus, model_kv_override="the platform team")
    assert fit["lines"][0].endswith("Overridden by the platform team")
    assert fit["lines"][1].startswith("VRAM: 1 x RTX 5090 of 31.4 GiB")
    assert fit["vram"]["verdict"] == "ok"
