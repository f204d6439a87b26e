#!/usr/bin/python
"""Ansible module: what a host has to build kernels with."""

from __future__ import annotations

DOCUMENTATION = r"""
module: builder_facts
short_description: Say what a host has to build kernels with
description: Read-only. Cores, memory and disk are told by M(host_facts).
options:
  python:
    description: The interpreter that the build runs on.
    type: path
    required: true
  cuda_home:
    description: The CUDA toolkit; it need not be there.
    type: path
    required: true
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
- name: Look at the builder
  builder_facts:
    python: /usr/bin/python3
    cuda_home: /usr/local/cuda-13.0
"""

RETURN = r"""
facts:
  description:
    - V(compiler), the first line of C(g++ --version), null where there is none; V(ccache), the program, or
      null; V(git), whether it is there; V(nvcc), its full version, null where it does not run.
    - V(abi) of the interpreter as in wheel names, null where it does not run, and V(python_headers), whether
      its C(Python.h) is there.
  type: dict
  returned: always
"""

import json
import re

from ansible.module_utils.basic import AnsibleModule

ASKED = (
    "import json, pathlib, sys, sysconfig; print(json.dumps({'abi': 'cp%d%d' % sys.version_info[:2], "
    "'python_headers': pathlib.Path(sysconfig.get_path('include'), 'Python.h').is_file()}))"
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "required": True},
            "cuda_home": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )

    def said_by(*argv: str) -> str:
        """A program's output, '' where it does not run."""
        try:
            status, out, _err = module.run_command(list(argv), handle_exceptions=False)
        except OSError:
            return ""
        return out if status == 0 else ""

    compiler = module.get_bin_path("g++")
    said = said_by(compiler, "--version") if compiler else ""
    nvcc = re.search(r"\bV(\d[\d.]+)", said_by(f"{module.params['cuda_home']}/bin/nvcc", "--version"))
    interpreter = json.loads(
        said_by(module.params["python"], "-c", ASKED) or '{"abi": null, "python_headers": false}'
    )
    module.exit_json(
        changed=False,
        facts={
            "compiler": said.splitlines()[0] if said else None,
            "ccache": module.get_bin_path("ccache"),
            "git": module.get_bin_path("git") is not None,
            "nvcc": nvcc[1] if nvcc else None,
            **interpreter,
        },
    )


if __name__ == "__main__":
    main()
