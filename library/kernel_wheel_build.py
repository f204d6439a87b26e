#!/usr/bin/python
"""Ansible module: compile a kernel wheel from a patched source."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_wheel_build
short_description: Compile a kernel wheel, one build at a time and below a ceiling of memory
description:
  - Builds the wheel of a scikit-build-core project by its build backend inside an environment that is there
    already, so that nothing but that environment's torch is seen; torch is compared before and after.
  - The build has a folder below O(path) that bears the fingerprint. A build that was killed goes on there
    with what it lacks. The wheel stays in that folder until it is proved and kept (M(kernel_wheel_kept)).
  - Memory is bounded by a systemd scope with C(MemoryMax) where that is seen to be enforced, else by
    C(RLIMIT_DATA) of each process.
  - A failure is told by its kind, with the words that show it, what to do, and the log.
options:
  path:
    description: Folder of all builds on this host.
    type: path
    required: true
  fingerprint:
    description: What names the build, letters and digits; it becomes the wheel's build tag.
    type: str
    required: true
  repository:
    description: The git work tree that holds the source.
    type: path
    required: true
  source:
    description: Git's id of the folder to build, as M(patch_series) returns it.
    type: str
    required: true
  venv:
    description: The environment with torch and the build's tools.
    type: path
    required: true
  cuda_home:
    description: The CUDA toolkit.
    type: path
    required: true
  archs:
    description: What C(TORCH_CUDA_ARCH_LIST) is to name.
    type: list
    elements: str
    required: true
  options:
    description: CMake's options, name to value; true is ON.
    type: dict
    default: {}
  dependencies:
    description: Folder with one folder for each name that FetchContent would fetch. Then nothing is fetched.
    type: path
  jobs:
    description: Units to compile at a time.
    type: int
    required: true
  memory_gib:
    description: The ceiling, in GiB.
    type: float
    required: true
  disk_gib:
    description: Free space that the build must find, in GiB.
    type: float
    default: 10
  ccache:
    description: The program ccache, if it is to be used.
    type: path
  failures:
    description: The entries of C(failures) in catalog/kernel.yml.
    type: list
    elements: dict
    default: []
  fresh:
    description: Whether to forget what an earlier attempt compiled.
    type: bool
    default: false
  deadline:
    description: Seconds after which the build is stopped.
    type: int
    default: 86400
  run:
    description: What names the run. A second build of the same run waits, one of another run is refused.
    type: str
    default: ''
  progress_file:
    description: Where to write progress.
    type: path
attributes:
  check_mode:
    support: full
    description: Builds nothing, and says that it would.
  diff_mode:
    support: none
    description: A wheel has no useful difference.
author: Smokestack
"""

EXAMPLES = r"""
- name: Compile the kernel
  kernel_wheel_build:
    path: /var/cache/smokestack/kernel
    fingerprint: 0f3b8ac41d22
    repository: /var/cache/smokestack/kernel/source
    source: 51e5dc845a1b18927c00380a8447d7f6e3f15d79
    venv: /var/cache/smokestack/kernel/venvs/9a1c
    cuda_home: /usr/local/cuda-13.0
    archs: [12.0a]
    jobs: 4
    memory_gib: 60
"""

RETURN = r"""
wheel:
  description: The wheel, in the build's folder.
  type: str
  returned: when it was built
sha256:
  description: Its SHA-256.
  type: str
  returned: when it was built
steps:
  description: The steps that ninja took this time.
  type: int
  returned: when it was built
units:
  description: The steps of the whole build, those of earlier attempts among them.
  type: int
  returned: when it was built
seconds:
  description: How long it took.
  type: float
  returned: when it was built
memory:
  description: How memory was bounded, V(kind) (systemd or rlimit) and V(text).
  type: dict
  returned: when it was built
torch:
  description: The version of the torch that it was built against; null where the environment has none.
  type: str
  returned: when it was built
log:
  description: The build's log.
  type: str
  returned: when it was built
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.builder import BuildError, Job, alone, build
from ansible.module_utils.progress import Progress

ARGUMENTS = {
    "path": {"type": "path", "required": True},
    "fingerprint": {"type": "str", "required": True},
    "repository": {"type": "path", "required": True},
    "source": {"type": "str", "required": True},
    "venv": {"type": "path", "required": True},
    "cuda_home": {"type": "path", "required": True},
    "archs": {"type": "list", "elements": "str", "required": True},
    "options": {"type": "dict", "default": {}},
    "dependencies": {"type": "path"},
    "jobs": {"type": "int", "required": True},
    "memory_gib": {"type": "float", "required": True},
    "disk_gib": {"type": "float", "default": 10},
    "ccache": {"type": "path"},
    "failures": {"type": "list", "elements": "dict", "default": []},
    "fresh": {"type": "bool", "default": False},
    "deadline": {"type": "int", "default": 86400},
    "run": {"type": "str", "default": ""},
    "progress_file": {"type": "path"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    wanted = module.params
    if not wanted["fingerprint"].isalnum():
        module.fail_json(msg=f"fingerprint must be letters and digits, not {wanted['fingerprint']!r}")
    if wanted["jobs"] < 1 or wanted["memory_gib"] <= 0:
        module.fail_json(
            msg=f"jobs and memory_gib must be above 0, not {wanted['jobs']} and {wanted['memory_gib']}"
        )
    if module.check_mode:
        module.exit_json(changed=True)
    git = module.get_bin_path("git")
    if not git:
        module.fail_json(msg="git is not installed on this host, and it holds the source: install git")
    job = Job(
        fingerprint=wanted["fingerprint"],
        repository=Path(wanted["repository"]),
        tree=wanted["source"],
        venv=Path(wanted["venv"]),
        cuda_home=Path(wanted["cuda_home"]),
        archs=wanted["archs"],
        options=wanted["options"],
        dependencies=Path(wanted["dependencies"]) if wanted["dependencies"] else None,
        jobs=wanted["jobs"],
        memory_gib=wanted["memory_gib"],
        disk_gib=wanted["disk_gib"],
        ccache=wanted["ccache"],
        deadline_s=wanted["deadline"],
        failures=wanted["failures"],
    )
    try:
        with alone(Path(wanted["path"]), wanted["run"], f"the build {job.fingerprint}") as builder:
            progress = Progress(wanted["progress_file"])
            made = build(job, builder, git, progress, fresh=wanted["fresh"])
    except (BuildError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=True, **made)


if __name__ == "__main__":
    main()
