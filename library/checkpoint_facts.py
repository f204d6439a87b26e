#!/usr/bin/python
"""Ansible module: what a checkpoint folder is, read from its configuration and its headers."""

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_facts
short_description: Say what a checkpoint is, how it is quantised and whether it is whole
description:
  - Reads C(config.json), C(hf_quant_config.json), C(generation_config.json), the index and the headers of the
    safetensors files of a folder. No weight is read and no code of the folder is run.
  - A folder that is something else (no C(config.json), a GGUF, a LoRA adapter, torch pickles alone, git-lfs
    pointers) fails with one line. What is wrong in a checkpoint is listed in RV(facts.problems).
options:
  path:
    description: The folder that holds C(config.json) and the weights.
    type: path
    required: true
  hash:
    description: Hash every file as well. That takes minutes for a large checkpoint.
    type: bool
    default: false
  files:
    description: File name to SHA-256 as the model profile was locked to; compared when O(hash) is true.
    type: dict
    default: {}
  progress_file:
    description: Where to write progress while hashing.
    type: path
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
- name: Look at the checkpoint
  checkpoint_facts:
    path: /srv/models/Qwen3.5-397B-A17B-NVFP4
  register: checkpoint

- name: Prove that it is the one that the profile was locked to
  checkpoint_facts:
    path: /srv/models/Qwen3.5-397B-A17B-NVFP4
    hash: true
    files:
      config.json: 3c1d...
    progress_file: /run/smokestack/checkpoint.json
"""

RETURN = r"""
facts:
  description:
    - V(architecture) with V(name), V(model_type), V(layers), of them V(full_layers), V(linear_layers) (with a
      state and no KV cache), V(sliding_layers) and V(other_layers); V(hidden_size), V(attention_heads),
      V(kv_heads), V(head_dim), V(vocab_size), V(max_positions), V(experts), V(mtp_layers), V(multimodal);
      V(latent) for latent attention (MLA) and V(linear) for the state of linear layers, where there is one.
      What the configuration does not say is null.
    - V(quantization) with V(method), V(algorithm), V(kv_cache) (what SGLang's C(auto) makes the KV cache),
      V(excluded), V(notes) where two files disagree, and V(formats), bytes by kind of layer and format.
    - V(kv_scales) with V(state) (all, some or none of the attention layers), their numbers V(complete) and
      V(lacking), and V(names) of the tensors below a layer.
    - V(mtp) with the layers that the configuration names and the tensors that are there.
    - V(generation), the sampling defaults.
    - V(weights) with V(files), V(bytes), V(tensors), V(indexed), V(missing), V(torn) (file to reason) and
      V(extra), files that the index does not use.
    - V(problems), a sentence for everything that makes the checkpoint unfit, and V(hashes), file to SHA-256
      or null.
  type: dict
  returned: success
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.checkpoint import (
    CheckpointError,
    checkpoint_facts,
    folder_hashes,
    hash_problems,
)
from ansible.module_utils.progress import Progress, mib

ARGUMENTS = {
    "path": {"type": "path", "required": True},
    "hash": {"type": "bool", "default": False},
    "files": {"type": "dict", "default": {}},
    "progress_file": {"type": "path"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    folder = Path(module.params["path"])
    progress = Progress(None if module.check_mode else module.params["progress_file"])

    def watch(done: int, everything: int, name: str) -> None:
        progress.say(done, everything, f"hashing {name}, {mib(done)} of {mib(everything)} done")

    try:
        facts = checkpoint_facts(folder)
        if module.params["hash"]:
            facts["hashes"] = folder_hashes(folder, watch)
            facts["problems"] += hash_problems(facts["hashes"], module.params["files"])
    except (CheckpointError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, facts=facts)


if __name__ == "__main__":
    main()
