"""The command line: exit status, files, and what is refused before anything is sent."""

from __future__ import annotations

import builtins
import hashlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from llm_gate import cli
from llm_gate.baseline import to_text
from llm_stand_in import StandIn, completion, json_reply
from test_gate_baseline import a_baseline

pytestmark = pytest.mark.usefixtures("smoke_only")
REPORTS = ["gate.prom", "junit.xml", "report.html", "report.json", "report.md"]
ROOT = Path(__file__).parents[3]


@pytest.fixture
def profile_file(profile: dict[str, Any], tmp_path: Path) -> Path:
    path = tmp_path / "model.yml"
    path.write_text(yaml.safe_dump(profile), encoding="utf-8")
    return path


def test_pass_is_0_and_leaves_five_reports(
    stand_in: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "reports"
    assert cli.main(["--url", stand_in.url, "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == REPORTS
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1].startswith("pass: 5 checks passed")
    assert printed.err.splitlines()[0] == "[1/5] model_info: pass"


def test_warn_is_0(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.chat["answer"] = json_reply(completion("OK", finish_reason="length"))
    assert cli.main(["--url", stand_in.url, "--out", str(tmp_path)]) == 0


def test_fail_is_1(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.chat["answer"] = json_reply(completion("KO"))
    assert cli.main(["--url", stand_in.url, "--out", str(tmp_path)]) == 1
    assert json.loads((tmp_path / "report.json").read_text())["verdict"] == "fail"


def test_error_is_2_and_leaves_the_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert cli.main(["--url", f"http://127.0.0.1:{port}", "--out", str(tmp_path)]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == REPORTS
    assert "Connection refused" in capsys.readouterr().out


def test_a_dry_run_prints_the_plan_and_sends_nothing(
    stand_in: StandIn, profile_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--url", stand_in.url, "--model-profile", str(profile_file), "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "deadline 5 s" in printed
    assert '"What is 17*19?"' in printed
    assert "completion tokens" in printed
    assert stand_in.requests == []


@pytest.mark.parametrize("suffix", ["yml", "json"])
def test_a_model_profile_is_read(
    stand_in: StandIn, profile: dict[str, Any], tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"model.{suffix}"
    path.write_text(json.dumps(profile) if suffix == "json" else yaml.safe_dump(profile), encoding="utf-8")
    profile["served_name"] = "other"
    assert cli.main(["--url", stand_in.url, "--model-profile", str(path), "--out", str(tmp_path)]) == 0


def test_the_wanted_model_and_the_key_reach_the_server(stand_in: StandIn, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-not-for-any-eyes\n")
    arguments = [
        "--url",
        stand_in.url,
        "--api-key-file",
        str(tmp_path / "key"),
        "--out",
        str(tmp_path / "out"),
    ]
    assert cli.main([*arguments, "--model", "other"]) == 1
    assert cli.main([*arguments, "--model", "tiny-qwen3", "--profile", "soak", "--deadline", "30"]) == 0
    assert {request.headers["Authorization"] for request in stand_in.requests} == {
        "Bearer sk-not-for-any-eyes"
    }
    assert not any("sk-not" in path.read_text() for path in (tmp_path / "out").iterdir())


def test_the_key_may_come_from_the_environment(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--url", stand_in.url, "--out", str(tmp_path), "--model", "tiny-qwen3"]
    monkeypatch.setenv("LLM_GATE_API_KEY", "two words")
    assert cli.main(arguments) == 64
    assert "LLM_GATE_API_KEY: must hold one key" in capsys.readouterr().err
    monkeypatch.setenv("LLM_GATE_API_KEY", "sk-of-the-environment")
    assert cli.main(arguments) == 0
    assert {request.headers["Authorization"] for request in stand_in.requests} == {
        "Bearer sk-of-the-environment"
    }


def test_a_baseline_is_recorded_by_its_hash(stand_in: StandIn, tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.json"
    baseline.write_text(to_text(a_baseline()))
    assert cli.main(["--url", stand_in.url, "--baseline", str(baseline), "--out", str(tmp_path)]) == 0
    recorded = json.loads((tmp_path / "report.json").read_text())["baseline"]
    assert recorded == {"path": str(baseline), "sha256": hashlib.sha256(baseline.read_bytes()).hexdigest()}


USAGE = {
    "nothing": ([], "required: --url"),
    "no-out": (["--url", "URL"], "--out is needed"),
    "unknown-option": (["--url", "URL", "--out", "TMP/out", "--speed"], "unrecognized arguments: --speed"),
    "abbreviation": (["--url", "URL", "--out", "TMP/out", "--dead", "3"], "unrecognized arguments: --dead"),
    "unknown-profile": (
        ["--url", "URL", "--out", "TMP/out", "--profile", "slow"],
        "one of quick, full, soak",
    ),
    "bad-url": (["--url", "node:30000", "--out", "TMP/out"], "url: must be http://"),
    "deadline-text": (["--url", "URL", "--out", "TMP/out", "--deadline", "soon"], "invalid float"),
    "deadline-zero": (
        ["--url", "URL", "--out", "TMP/out", "--deadline", "0"],
        "deadline must be a number above 0",
    ),
    "deadline-nan": (
        ["--url", "URL", "--out", "TMP/out", "--deadline", "nan"],
        "deadline must be a number above 0",
    ),
    "out-is-a-file": (["--url", "URL", "--out", "TMP/file"], "File exists"),
    "out-under-a-file": (["--url", "URL", "--out", "TMP/file/out"], "Not a directory"),
    "out-unwritable": (["--url", "URL", "--out", "/proc/out"], "--out /proc/out: "),
    "no-profile-file": (["--url", "URL", "--out", "TMP/out", "--model-profile", "TMP/none"], "No such file"),
    "profile-without-gate": (
        ["--url", "URL", "--out", "TMP/out", "--model-profile", "TMP/file"],
        "gate is missing",
    ),
    "profile-not-yaml": (
        ["--url", "URL", "--out", "TMP/out", "--model-profile", "TMP/bad"],
        "neither JSON nor YAML",
    ),
    "profile-binary": (["--url", "URL", "--out", "TMP/out", "--model-profile", "TMP/binary"], "is not UTF-8"),
    "no-key-file": (["--url", "URL", "--out", "TMP/out", "--api-key-file", "TMP/none"], "No such file"),
    "empty-key-file": (
        ["--url", "URL", "--out", "TMP/out", "--api-key-file", "TMP/empty"],
        "must hold one key",
    ),
    "no-baseline": (["--url", "URL", "--out", "TMP/out", "--baseline", "TMP/none"], "No such file"),
    "empty-baseline": (
        ["--url", "URL", "--out", "TMP/out", "--baseline", "TMP/file"],
        "schema_version must be 1, not None; record it again",
    ),
    "bad-hardware": (["--url", "URL", "--out", "TMP/out", "--hardware", "x"], "--hardware must be JSON"),
    "half-hardware": (
        ["--url", "URL", "--out", "TMP/out", "--hardware", '{"gpu": "x"}'],
        "--hardware.count is missing",
    ),
    "beside-less-than-none": (
        ["--url", "URL", "--out", "TMP/out", "--beside", "-1"],
        "--beside must not be below 0",
    ),
    "bad-baseline": (["--url", "URL", "--out", "TMP/out", "--baseline", "TMP/bad"], "is not whole JSON"),
}


@pytest.mark.parametrize(("arguments", "message"), USAGE.values(), ids=USAGE.keys())
def test_wrong_usage_is_64_and_sends_nothing(
    stand_in: StandIn, tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("{}")
    (tmp_path / "bad").write_text("a: [")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty").write_text("\n")
    words = [word.replace("URL", stand_in.url).replace("TMP", str(tmp_path)) for word in arguments]
    assert cli.main(words) == 64
    assert message in capsys.readouterr().err
    assert stand_in.requests == []


def test_yaml_without_pyyaml_is_a_clear_usage_error(
    stand_in: StandIn, profile_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real_import = builtins.__import__

    def without_yaml(name: str, *arguments: Any) -> Any:
        if name == "yaml":
            raise ImportError(name)
        return real_import(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without_yaml)
    assert cli.main(["--url", stand_in.url, "--model-profile", str(profile_file), "--dry-run"]) == 64
    assert "needs the Python package PyYAML" in capsys.readouterr().err


def test_reports_that_cannot_be_written_are_an_error(
    stand_in: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "junit.xml").mkdir()
    assert cli.main(["--url", stand_in.url, "--out", str(tmp_path)]) == 2
    assert "could not be written" in capsys.readouterr().err
    assert not list(tmp_path.glob(".*"))


def test_it_runs_as_a_process_without_ansible(stand_in: StandIn, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "llm_gate", "--url", stand_in.url, "--out", tmp_path],
        env=os.environ | {"PYTHONPATH": str(ROOT / "module_utils")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1][:5]) == (0, "pass:")
