"""What a CUDA toolkit is worth: each check with its good, bad and unseen side; and what wants a reboot."""

from __future__ import annotations

from typing import Any

import pytest
from one_change import changed
from toolkit import package_problems, reboot_reasons, toolkit_findings

TOOLKIT = {"version": "13.0", "source": "wheels", "home": "/opt/cuda", "wheels": [], "package": None}
DATA = {"toolkit": {"nvcc": "12.9"}}
FACTS: dict[str, Any] = {
    "home": "/opt/cuda",
    "arch": "sm_120a",
    "nvcc": {"version": "13.0", "said": "release 13.0"},
    "cccl": "/opt/cuda/include/cccl",
    "ptxas": {"accepts": True, "said": ""},
    "compiled": {"ok": True, "said": ""},
    "path_nvcc": [],
    "libcuda": {"path": [], "cache": ["/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"]},
}
CHECKS = ["nvcc", "cccl", "ptxas", "compile", "path", "compat"]
OLD = {"path": "/usr/bin/nvcc", "version": "12.4"}
OURS = {"path": "/opt/cuda/bin/nvcc", "version": "13.0"}
COMPAT = "/usr/local/cuda-13.0/compat/libcuda.so.580.65.06"


def test_a_right_toolkit_has_every_finding_ok() -> None:
    findings = toolkit_findings(FACTS, TOOLKIT, DATA)
    assert [(found["check"], found["level"]) for found in findings] == [(check, "ok") for check in CHECKS]


@pytest.mark.parametrize(
    ("key", "value", "check", "level", "words"),
    [
        pytest.param("nvcc", None, "nvcc", "refuse", "there is no /opt/cuda/bin/nvcc", id="no nvcc"),
        pytest.param(
            "nvcc.version",
            "13.1",
            "nvcc",
            "refuse",
            "is of CUDA 13.1, the stack wants 13.0",
            id="another nvcc",
        ),
        pytest.param(
            "nvcc",
            {"version": None, "said": "cannot"},
            "nvcc",
            "unseen",
            "not seen: /opt",
            id="an nvcc that is mute",
        ),
        pytest.param(
            "cccl", None, "cccl", "refuse", "no cuda/std/utility in /opt/cuda/include/cccl", id="no cccl"
        ),
        pytest.param("ptxas", None, "ptxas", "refuse", "there is no /opt/cuda/bin/ptxas", id="no ptxas"),
        pytest.param(
            "ptxas",
            {"accepts": False, "said": "Value 'sm_120a' is not defined"},
            "ptxas",
            "refuse",
            "does not assemble for sm_120a: Value 'sm_120a' is not defined",
            id="an old ptxas",
        ),
        pytest.param(
            "ptxas",
            {"accepts": None, "said": "denied"},
            "ptxas",
            "unseen",
            "not seen: /opt",
            id="a ptxas that is mute",
        ),
        pytest.param(
            "compiled",
            {"ok": False, "said": "gcc: not found"},
            "compile",
            "refuse",
            "gcc: not found. It needs a C++ compiler: apt-get install g++",
            id="no host compiler",
        ),
        pytest.param(
            "compiled",
            {"ok": None, "said": "denied"},
            "compile",
            "unseen",
            "not seen: nvcc",
            id="nothing compiled",
        ),
        pytest.param(
            "path_nvcc",
            [OLD, OURS],
            "path",
            "refuse",
            "/usr/bin/nvcc of CUDA 12.4 is first on the path, before 13.0",
            id="an older nvcc first",
        ),
        pytest.param(
            "path_nvcc", [OURS, OLD], "path", "ok", "the first nvcc on the path is /opt", id="ours first"
        ),
        pytest.param(
            "path_nvcc",
            [{**OLD, "version": None}],
            "path",
            "unseen",
            "not seen: /usr/bin/nvcc",
            id="a mute nvcc first",
        ),
        pytest.param(
            "libcuda.cache",
            [COMPAT, *FACTS["libcuda"]["cache"]],
            "compat",
            "refuse",
            f"{COMPAT} shadows the driver's library: take its folder out of the loader's cache",
            id="compat first in the cache",
        ),
        pytest.param(
            "libcuda.cache",
            [*FACTS["libcuda"]["cache"], COMPAT],
            "compat",
            "ok",
            "libcuda is /usr/lib",
            id="compat later",
        ),
        pytest.param(
            "libcuda.path",
            [COMPAT],
            "compat",
            "refuse",
            "take its folder out of LD_LIBRARY_PATH",
            id="compat by variable",
        ),
        pytest.param(
            "libcuda.cache", None, "compat", "unseen", "not seen: the loader's cache", id="no cache"
        ),
        pytest.param("libcuda.cache", [], "compat", "ok", "no libcuda.so.1 is found", id="no driver"),
    ],
)
def test_each_finding_is_of_its_check_alone(key: str, value: Any, check: str, level: str, words: str) -> None:
    findings = toolkit_findings(changed(FACTS, key, value), TOOLKIT, DATA)
    assert {found["check"]: found["level"] for found in findings} == {
        **dict.fromkeys(CHECKS, "ok"),
        check: level,
    }
    (text,) = [found["text"] for found in findings if found["check"] == check]
    assert words in text


def test_an_nvcc_that_does_not_know_sm120_is_refused_though_the_stack_names_it() -> None:
    old = {**TOOLKIT, "version": "12.8"}
    finding = toolkit_findings(changed(FACTS, "nvcc.version", "12.8"), old, DATA)[0]
    assert (finding["level"], finding["check"]) == ("refuse", "nvcc")
    assert "nvcc compiles for SM120 from 12.9" in finding["text"]


@pytest.mark.parametrize(
    ("installed", "candidate", "count"), [("12.9.1-1", None, 0), (None, "12.9.1-1", 0), (None, None, 1)]
)
def test_a_package_that_no_repository_has_is_refused(
    installed: str | None, candidate: str | None, count: int
) -> None:
    problems = package_problems("cuda-toolkit-12-9", {"installed": installed, "candidate": candidate})
    assert len(problems) == count
    assert all("no repository of the host offers the package cuda-toolkit-12-9" in text for text in problems)


RUNNING: dict[str, Any] = {
    "marker": False,
    "packages": [],
    "kernel": "6.1.0-18-amd64",
    "newest_kernel": "6.1.0-18-amd64",
    "driver": "580.95.05",
    "installed_driver": "580.95.05",
}


def test_a_host_that_runs_what_is_installed_wants_no_reboot() -> None:
    assert reboot_reasons(RUNNING) == []


@pytest.mark.parametrize("key", ["newest_kernel", "driver", "installed_driver"])
def test_what_is_not_seen_speaks_for_no_reboot(key: str) -> None:
    assert reboot_reasons({**RUNNING, key: None}) == []


def test_each_reason_for_a_reboot_is_named() -> None:
    facts = {
        **RUNNING,
        "marker": True,
        "packages": ["linux-base"],
        "newest_kernel": "6.1.0-31-amd64",
        "installed_driver": "585.1",
    }
    assert reboot_reasons(facts) == [
        "the distribution asks for a reboot (for linux-base)",
        "kernel 6.1.0-18-amd64 runs, 6.1.0-31-amd64 is installed",
        "NVIDIA driver 580.95.05 is loaded, 585.1 is installed",
    ]
