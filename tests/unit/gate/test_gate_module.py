"""The Ansible module: it is shipped whole, runs as a process, and fails the task on a bad verdict."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from base64 import b64decode
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from llm_gate.baseline import read_pass, to_document
from llm_gate.merge import merge
from llm_stand_in import StandIn, completion, json_reply

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "module_utils" / "llm_gate"
KEY = "sk-not-for-any-eyes"


def run_module(stand_in: StandIn, folder: Path, **arguments: Any) -> dict[str, Any]:
    """The result of the module, run through Ansible on this host."""
    (folder / "ansible.cfg").touch()
    environment = os.environ | {
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_LIBRARY": str(ROOT / "library"),
        "ANSIBLE_MODULE_UTILS": str(ROOT / "module_utils"),
        "ANSIBLE_LOCAL_TEMP": str(folder),
        "ANSIBLE_REMOTE_TEMP": str(folder),
    }
    command = [Path(sys.executable).with_name("ansible"), "localhost", "-m", "llm_gate"]
    command += ["-e", json.dumps({"ansible_python_interpreter": sys.executable})]
    command += ["-a", json.dumps({"url": stand_in.url, **arguments})]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert "localhost | " in done.stdout, done.stdout + done.stderr
    assert KEY not in done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout.partition(" => ")[2])
    return result


def test_a_pass_returns_the_document_and_the_reports(
    stand_in: StandIn, profile: dict[str, Any], tmp_path: Path
) -> None:
    key_file, progress_file = tmp_path / "key", tmp_path / "progress.json"
    key_file.write_text(KEY)
    result = run_module(
        stand_in,
        tmp_path,
        model_profile=profile,
        deadline=20,
        api_key_file=str(key_file),
        progress_file=str(progress_file),
        node="gpu-07",
        release="20261130-a1b2",
    )
    assert (result["changed"], result["verdict"]) == (False, "pass")
    target = result["report"]["target"]
    assert (target["node"], target["release"]) == ("gpu-07", "20261130-a1b2")
    assert result["summary"] == result["report"]["summary"] == result["table"][-1]
    assert sorted(result["reports"]) == ["gate.prom", "junit.xml", "report.html", "report.json", "report.md"]
    assert stand_in.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    progress = json.loads(progress_file.read_text())
    assert progress["done"] == progress["total"]
    assert progress["note"].endswith(": pass")
    assert progress["updated"].endswith("Z")


def test_a_fault_fails_the_task_with_its_summary(
    stand_in: StandIn, profile: dict[str, Any], tmp_path: Path
) -> None:
    stand_in.chat["answer"] = json_reply(completion(f"KO {KEY}"))
    result = run_module(stand_in, tmp_path, model_profile=profile, api_key=KEY)
    assert result["msg"] == result["summary"]
    assert result["verdict"] == result["report"]["verdict"] == "fail"


# What Ansible's wrapper does: make our module_utils importable, hand the parameters over, run the module.
STARTER = """
import runpy, sys
import ansible.module_utils, ansible.module_utils.basic as basic
ansible.module_utils.__path__.append(sys.argv[1])
basic._ANSIBLE_PROFILE = "legacy"
basic._ANSIBLE_ARGS = sys.stdin.buffer.read()
if sys.argv[3:]:
    sys.modules[sys.argv[3]] = None
runpy.run_path(sys.argv[2], run_name="__main__")
"""


def run_process(arguments: dict[str, Any], check: bool = False, without: str = "") -> dict[str, Any]:
    """The result of the module as a bare process, optionally without one of the libraries."""
    parameters = {"_ansible_check_mode": check, **arguments}
    command = [sys.executable, "-c", STARTER, ROOT / "module_utils", ROOT / "library" / "llm_gate.py"]
    done = subprocess.run(
        [*command, without] if without else command,
        input=json.dumps({"ANSIBLE_MODULE_ARGS": parameters}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.strip().startswith("{"), done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_a_fault_can_be_left_to_the_playbook(stand_in: StandIn, profile: dict[str, Any]) -> None:
    stand_in.chat["answer"] = json_reply(completion("KO"))
    result = run_process({"url": stand_in.url, "model_profile": profile, "fail_on_verdict": False})
    assert (result.get("failed", False), result["verdict"]) == (False, "fail")


def test_a_pass_is_recorded_and_a_baseline_is_used(stand_in: StandIn, profile: dict[str, Any]) -> None:
    arguments = {"url": stand_in.url, "model_profile": profile, "deadline": 30}
    hardware = {"gpu": "x", "count": 2}
    one, other = (
        run_process(
            {**arguments, "record": True, "record_beside": beside, "revision": "r1", "hardware": hardware}
        )
        for beside in (0, 1)
    )
    assert (one["verdict"], one["refused"]) == ("pass", "")
    assert one["report"]["target"]["profile"] == "full"
    passes = [read_pass(result["recorded"], "recorded") for result in (one, other)]
    baseline = to_document(merge(passes))
    used = {**arguments, "profile": "full", "revision": "r1"}
    assert run_process({**used, "baseline": baseline})["report"]["baseline"]["path"].startswith("tiny-qwen3-")
    stale = run_process({**used, "revision": "r2", "baseline": baseline})
    assert stale["failed"]
    assert "revision is r2, the baseline's r1" in stale["msg"]
    chosen = {"path": "catalog/baselines/x.json", "document": baseline}
    result = run_process({**used, "baselines": [chosen]})
    assert (result["verdict"], result["report"]["baseline"]["path"]) == ("pass", chosen["path"])
    other_one = run_process({**used, "revision": "r2", "baselines": [chosen]})
    assert (other_one["verdict"], other_one["report"]["baseline"]) == ("pass", None)


def test_a_run_that_fails_records_nothing(stand_in: StandIn, profile: dict[str, Any]) -> None:
    stand_in.chat["answer"] = json_reply(completion("KO"))
    result = run_process(
        {"url": stand_in.url, "model_profile": profile, "record": True, "fail_on_verdict": False}
    )
    assert (result["verdict"], result["recorded"]) == ("fail", {})
    assert result["refused"].startswith("only a run that passed is recorded")


def test_check_mode_sends_nothing(stand_in: StandIn, tmp_path: Path) -> None:
    progress_file = tmp_path / "progress.json"
    result = run_process({"url": stand_in.url, "progress_file": str(progress_file)}, check=True)
    assert (result["changed"], result["verdict"]) == (False, "not run")
    assert result["report"] == result["reports"] == {}
    assert "completion tokens" in result["table"][-1]
    assert stand_in.requests == []
    assert not progress_file.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "node:30000"}, "url: must be http://"),
        ({"model_profile": {"gate": {}}}, "model profile: gate.thinking is missing"),
        ({"api_key_file": "/does/not/exist"}, "No such file"),
        ({"baseline": {"schema_version": 7}}, "baseline baseline: schema_version must be 1, not 7"),
        ({"baselines": [{"path": "x"}]}, "baselines[0] must have just path and document"),
        ({"baselines": [{"path": "x.json", "document": {}}]}, "baseline x.json: schema_version"),
        ({"record": True, "record_beside": -1}, "record_beside must not be below 0"),
        ({"hardware": {"gpu": "x", "count": 0}}, "hardware.count must be a whole number"),
        ({"progress_file": "/dev/null/progress"}, "progress_file /dev/null/progress: File exists"),
    ],
    ids=[
        *("url", "profile", "key-file", "baseline", "half-baseline", "empty-baseline", "beside", "hardware"),
        "progress-file",
    ],
)
def test_wrong_parameters_fail_before_anything_is_sent(
    stand_in: StandIn, arguments: dict[str, Any], message: str
) -> None:
    result = run_process({"url": stand_in.url, **arguments})
    assert result["failed"]
    assert message in result["msg"]
    assert stand_in.requests == []


def test_a_missing_requests_library_is_named(stand_in: StandIn) -> None:
    result = run_process({"url": stand_in.url}, without="requests")
    assert result["failed"]
    assert "Failed to import the required Python library (requests)" in result["msg"]


def test_every_file_of_the_package_is_shipped() -> None:
    from ansible.executor import module_common  # noqa: PLC0415 - heavy, and for this test only
    from ansible.parsing.dataloader import DataLoader  # noqa: PLC0415
    from ansible.plugins.loader import init_plugin_loader, module_utils_loader  # noqa: PLC0415
    from ansible.template import Templar  # noqa: PLC0415

    init_plugin_loader()
    module_utils_loader.add_directory(str(ROOT / "module_utils"))
    built = module_common.modify_module(
        module_name="llm_gate",
        module_path=str(ROOT / "library" / "llm_gate.py"),
        module_args={"url": "http://127.0.0.1:1"},
        templar=Templar(loader=DataLoader()),
        task_vars={"ansible_python_interpreter": sys.executable},
    )
    payload = max(re.findall(rb"[A-Za-z0-9+/=]{1000,}", built.b_module_data), key=len)
    names = zipfile.ZipFile(BytesIO(b64decode(payload))).namelist()
    shipped = {
        name.partition("module_utils/llm_gate/")[2] for name in names if "module_utils/llm_gate/" in name
    }
    # Merging happens on the controller, by the module baseline_file.
    elsewhere = {"__main__.py", "merge.py"}
    needed = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")} - elsewhere
    assert shipped == needed


def test_documentation_and_parameters_agree() -> None:
    namespace: dict[str, Any] = {}
    source = (ROOT / "library" / "llm_gate.py").read_text(encoding="utf-8")
    exec(compile(source.partition("import json\n")[0], "llm_gate", "exec"), namespace)
    exec("ARGUMENTS = " + source.partition("\nARGUMENTS = ")[2].partition("\n}\n")[0] + "\n}", namespace)
    documented = yaml.safe_load(namespace["DOCUMENTATION"])["options"]
    assert documented.keys() == namespace["ARGUMENTS"].keys()
    for name, option in documented.items():
        for key in ("type", "default", "choices", "required", "elements"):
            assert option.get(key) == namespace["ARGUMENTS"][name].get(key), f"{name}.{key}"
    assert yaml.safe_load(namespace["EXAMPLES"])
    assert yaml.safe_load(namespace["RETURN"]).keys() == {
        *("verdict", "summary", "table", "report", "reports", "recorded", "refused")
    }
