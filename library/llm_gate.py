#!/usr/bin/python
"""Ansible module over the gate."""

from __future__ import annotations

DOCUMENTATION = r"""
module: llm_gate
short_description: Prove that an LLM server answers rightly
description:
  - Asks a running OpenAI-compatible server questions with known answers and judges the answers.
  - Changes nothing on the host. Every request ends within its time, all of them within the deadline.
  - Fails the task when the verdict is C(fail) (a proved fault) or C(error) (something could not be tested).
options:
  url:
    description: Base address of the server, without a key in it.
    type: str
    required: true
  model:
    description: Name that the server must serve. Without it the model profile's, else the first served.
    type: str
  profile:
    description: How much to test.
    type: str
    choices: [quick, full, soak]
    default: quick
  model_profile:
    description:
      - Model profile, of which C(served_name) and C(gate) are read.
      - Without it the gate asks what a typical reasoning model should know.
    type: dict
  deadline:
    description: Seconds for the whole run. Without it the model profile's C(gate.deadline_s).
    type: float
  api_key:
    description: Key of the server.
    type: str
  api_key_file:
    description: File on the host that holds the key of the server.
    type: path
  flush_after_nan:
    description:
      - Have the server flush its prefix cache if its logits were NaN, since the cache may hold them.
      - Not for a server that others use.
    type: bool
    default: false
  most_concurrency:
    description:
      - The most requests at a time, for a server that others use.
      - What needs more is left out, and the report says so.
    type: int
  most_tokens:
    description: The most tokens that the plan may cost. A plan above it is refused and nothing is sent.
    type: int
  revision:
    description: Revision of the checkpoint, a part of a baseline's key that a server seldom knows.
    type: str
  hardware:
    description: What speed depends on. Without it speed is recorded but not compared.
    type: dict
    suboptions:
      gpu:
        description: Name of the GPU.
        type: str
        required: true
      count:
        description: Number of GPUs.
        type: int
        required: true
      power_cap_w:
        description: Power cap of each in watts.
        type: float
  baseline:
    description:
      - Stored baseline to compare with, as its JSON document.
      - One of another deployment is an error.
    type: dict
  baselines:
    description:
      - Stored baselines to choose from, each with its C(path) and C(document).
      - The one whose key is the running server's is taken. Without one the report's coverage says so.
    type: list
    elements: dict
    default: []
  record:
    description:
      - Run the profile C(full) and, if it passes, measure one pass of a new baseline.
      - O(baseline) and O(baselines) are not looked at then.
    type: bool
    default: false
  record_beside:
    description: Number of other requests that are under way while a pass is measured.
    type: int
    default: 0
  node:
    description: Name of the host, for the reports.
    type: str
  overrides:
    description: Settings that somebody answers for, though they are not known to be right, for the reports.
    type: str
  release:
    description: Name of the release that serves, for the reports.
    type: str
  progress_file:
    description:
      - File on the host that is replaced after each check; JSON of C(done), C(total), C(note), C(updated).
      - Meant for a task that polls an asynchronous run.
    type: path
  fail_on_verdict:
    description: Whether the verdicts C(fail) and C(error) fail the task.
    type: bool
    default: true
attributes:
  check_mode:
    description: In check mode nothing is sent and the verdict is C(not run).
    support: full
  diff_mode:
    description: Nothing is changed, so there is no difference to show.
    support: none
requirements:
  - Python 3.11
  - requests, with urllib3 2.2 or newer
author:
  - Smokestack
"""

EXAMPLES = r"""
- name: Prove that the server answers rightly
  llm_gate:
    url: http://127.0.0.1:30000
    model_profile: "{{ lookup('ansible.builtin.file', 'catalog/models/tiny-qwen3.yml') | from_yaml }}"
  vars:
    ansible_python_interpreter: /opt/sglang/current/venv/bin/python
  register: gate_result

- name: Collect the verdict without failing, and show how far the gate has come
  llm_gate:
    url: http://127.0.0.1:30000
    profile: full
    deadline: 600
    api_key_file: /run/credentials/sglang.service/api_key
    progress_file: /run/sglang-gate.json
    fail_on_verdict: false
  async: 900
  poll: 0
"""

RETURN = r"""
verdict:
  description: C(pass), C(warn), C(fail), C(error), or C(not run) in check mode.
  returned: always, unless the parameters are wrong
  type: str
  sample: pass
summary:
  description: The outcome in one sentence.
  returned: always, unless the parameters are wrong
  type: str
  sample: "fail: smoke: \"Reply with exactly OK\" answered '!!!' (64 characters): NaN logits"
table:
  description: Lines for a terminal, every check with its reason. In check mode the plan.
  returned: always, unless the parameters are wrong
  type: list
  elements: str
report:
  description: The document, as described by the gate's C(report.schema.json). Empty in check mode.
  returned: always, unless the parameters are wrong
  type: dict
recorded:
  description: The document of the pass that O(record) asked for. Empty where nothing was recorded.
  returned: always, unless the parameters are wrong
  type: dict
refused:
  description: Why nothing was recorded although O(record) asked for it, else empty.
  returned: always, unless the parameters are wrong
  type: str
  sample: ""
reports:
  description: Contents of the report files by file name. Empty in check mode.
  returned: always, unless the parameters are wrong
  type: dict
  contains:
    report.json:
      description: The document.
      type: str
    junit.xml:
      description: JUnit XML.
      type: str
    report.md:
      description: Markdown.
      type: str
    report.html:
      description: A self-contained page.
      type: str
    gate.prom:
      description: Metrics in the Prometheus text format.
      type: str
"""

import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible.module_utils.progress import Progress as JobProgress

MISSING_LIBRARY = None
try:
    from ansible.module_utils.llm_gate.baseline import (
        Deployment,
        file_name,
        read_hardware,
        store,
        to_document,
    )
    from ansible.module_utils.llm_gate.cli import read_api_key
    from ansible.module_utils.llm_gate.document import name_target
    from ansible.module_utils.llm_gate.errors import UsageError
    from ansible.module_utils.llm_gate.gate import (
        Progress,
        Settings,
        count_checks,
        make_settings,
        plan_lines,
        run_gate,
    )
    from ansible.module_utils.llm_gate.record import PROFILE, Recording, record_pass
    from ansible.module_utils.llm_gate.render import render_reports, table_lines
except ImportError as error:
    if error.name not in ("requests", "urllib3"):
        raise
    MISSING_LIBRARY = traceback.format_exc()

ARGUMENTS = {
    "url": {"type": "str", "required": True},
    "model": {"type": "str"},
    "profile": {"type": "str", "choices": ["quick", "full", "soak"], "default": "quick"},
    "model_profile": {"type": "dict"},
    "deadline": {"type": "float"},
    "api_key": {"type": "str", "no_log": True},
    "api_key_file": {"type": "path", "no_log": False},
    "flush_after_nan": {"type": "bool", "default": False},
    "most_concurrency": {"type": "int"},
    "most_tokens": {"type": "int"},
    "revision": {"type": "str"},
    "hardware": {
        "type": "dict",
        "options": {
            "gpu": {"type": "str", "required": True},
            "count": {"type": "int", "required": True},
            "power_cap_w": {"type": "float"},
        },
    },
    "baseline": {"type": "dict"},
    "baselines": {"type": "list", "elements": "dict", "default": []},
    "record": {"type": "bool", "default": False},
    "record_beside": {"type": "int", "default": 0},
    "node": {"type": "str"},
    "release": {"type": "str"},
    "overrides": {"type": "str"},
    "progress_file": {"type": "path"},
    "fail_on_verdict": {"type": "bool", "default": True},
}


def settings_of(params: dict[str, Any]) -> Settings:
    """The gate's settings. Raises UsageError."""
    key_file = params["api_key_file"]
    return make_settings(
        url=params["url"],
        model=params["model"],
        profile=PROFILE if params["record"] else params["profile"],
        model_profile=params["model_profile"],
        deadline_s=params["deadline"],
        flush_after_nan=params["flush_after_nan"],
        most_concurrency=params["most_concurrency"],
        most_tokens=params["most_tokens"],
        api_key=read_api_key(Path(key_file)) if key_file else params["api_key"],
        deployment=deployment_of(params),
    )


def deployment_of(params: dict[str, Any]) -> Deployment:
    """What the parameters say of the deployment, its baselines checked. Raises UsageError."""
    if params["record_beside"] < 0:
        raise UsageError(f"record_beside must not be below 0, not {params['record_beside']}")
    baseline = None
    if params["baseline"] is not None:
        stored = store(params["baseline"], "baseline")
        baseline = replace(stored, path=file_name(stored.baseline.key))
    for number, entry in enumerate(params["baselines"]):
        if entry.keys() != {"path", "document"} or not isinstance(entry["path"], str):
            raise UsageError(f"baselines[{number}] must have just path and document, not {sorted(entry)}")
    return Deployment(
        revision=params["revision"] or None,
        hardware=None if params["hardware"] is None else read_hardware(params["hardware"], "hardware"),
        baseline=baseline,
        choice=tuple(store(entry["document"], entry["path"]) for entry in params["baselines"]),
    )


def progress_into(job: JobProgress) -> Progress:
    """A function that keeps the progress file up to date; a disk that fills up does not stop the gate."""

    def write(done: int, total: int, note: str) -> None:
        with suppress(OSError):
            job.say(done, total, note)

    return write


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        mutually_exclusive=[("api_key", "api_key_file")],
        supports_check_mode=True,
    )
    if MISSING_LIBRARY:
        module.fail_json(msg=missing_required_lib("requests"), exception=MISSING_LIBRARY)
    try:
        settings = settings_of(module.params)
        if module.check_mode:
            module.exit_json(
                changed=False,
                verdict="not run",
                summary="not run: check mode sends nothing",
                table=plan_lines(settings),
                report={},
                reports={},
                recorded={},
                refused="",
            )
        progress_file = module.params["progress_file"]
        job = JobProgress(progress_file)
        job.say(0, count_checks(settings), "started")
    except UsageError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"progress_file {progress_file}: {error.strerror}")
    wanted = module.params
    if wanted["record"]:
        recording = record_pass(settings, wanted["record_beside"], progress_into(job))
    else:
        recording = Recording(run_gate(settings, progress_into(job)), None, "")
    document = name_target(recording.document, wanted["node"], wanted["release"], wanted["overrides"])
    result = {
        "changed": False,
        "verdict": document["verdict"],
        "summary": document["summary"],
        "table": table_lines(document),
        "report": document,
        "reports": render_reports(document),
        "recorded": to_document(recording.measured) if recording.measured else {},
        "refused": recording.refused,
    }
    if wanted["fail_on_verdict"] and document["verdict"] in ("fail", "error"):
        module.fail_json(msg=document["summary"], **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
