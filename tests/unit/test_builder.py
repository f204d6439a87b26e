"""What goes into a kernel wheel, how its build is bounded and followed, and how its failures are told."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
import tarfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import builder_facts
import kernel_archive
import kernel_prune
import kernel_source
import kernel_wheel_build
import kernel_wheel_kept
import pytest
import yaml
from ansible.module_utils import builder
from ansible.module_utils.builder import (
    BuildError,
    Steps,
    alone,
    build_backend,
    ceiling,
    diagnose,
    torch_state,
)
from kernel import (
    build_jobs,
    build_limits,
    build_wheels,
    builder_refusals,
    carried_problems,
    first_with,
    kernel_lines,
    kernel_parts,
    kernel_reasons,
    kernel_tag_problems,
    kernel_tools,
    proof_wanted,
    toolkit_name,
)
from plan import short_id
from tiny_kernel import repository

RunModule = Callable[..., dict[str, Any]]
FAILURES = yaml.safe_load((Path(__file__).parents[2] / "catalog" / "kernel.yml").read_text())["failures"]


def wheel(name: str, version: str = "1.0") -> dict[str, Any]:
    return {
        "name": name,
        "version": version,
        "file": f"{name}-{version}-py3-none-any.whl",
        "sha256": f"sha of {name}",
    }


SOURCE = {
    "repository": "https://example.org/sglang",
    "commit": "5" * 40,
    "folder": "sgl-kernel",
    "patches": [],
    "archs": ["12.0a"],
    "build": ["cmake==3.31.10", "ninja==1.13.0"],
    "options": {"SGL_KERNEL_COMPILE_THREADS": 1},
}
PLAN = {
    "stack": {"name": "demo", "torch": "2.12.0", "kernel": {"source": SOURCE}},
    "builder_toolkit": {"version": "13.0", "source": "wheels", "home": "/x/13.0-cafe"},
    "lock": {
        "abi": "cp311",
        "platform": "linux_x86_64",
        "wheels": [
            wheel("torch", "2.12.0"),
            wheel("sympy"),
            wheel("flask"),
            wheel("ninja", "9"),
            wheel("uv"),
        ],
        "build": [wheel("cmake", "3.31.10"), wheel("ninja", "1.13.0"), wheel("nvidia-cuda-nvcc")],
    },
}
NEEDS = {
    "torch": ["sympy>=1", 'triton; platform_system == "Linux"'],
    "sympy": ["mpmath"],
    "flask": ["jinja2"],
}
FACTS = {
    **{"git": True, "compiler": "g++ 12.2.0", "abi": "cp311", "python_headers": True},
    **{"platform": "linux_x86_64", "cores": 64, "available_gib": 250.0},
}


# --- how much ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "mem_gib", "jobs"),
    [(64, 250, 17), (8, 250, 8), (64, 13, 1), (1, 1, 1), (4, 28, 2), (4, 27.9, 1), ("16", "64", 4)],
)
def test_each_job_has_a_core_and_14_gib(cores: Any, mem_gib: Any, jobs: int) -> None:
    assert build_jobs(cores, mem_gib) == jobs


def test_a_build_leaves_a_tenth_of_the_memory_unless_the_operator_says_otherwise() -> None:
    assert build_limits(FACTS) == {"jobs": 16, "memory_gib": 225.0}
    assert build_limits(FACTS, "3", "50") == {"jobs": 3, "memory_gib": 50.0}
    assert build_limits(FACTS, memory_gib=30) == {"jobs": 2, "memory_gib": 30.0}


# --- what goes in --------------------------------------------------------------------------------


def test_a_kernel_is_built_with_torch_what_torch_needs_and_the_tools() -> None:
    assert sorted(build_wheels(PLAN, NEEDS)) == [
        "cmake-3.31.10-py3-none-any.whl",
        "ninja-1.13.0-py3-none-any.whl",
        "sympy-1.0-py3-none-any.whl",
        "torch-2.12.0-py3-none-any.whl",
        "uv-1.0-py3-none-any.whl",
    ]
    assert kernel_tools(PLAN) == {"cmake": "3.31.10", "cuda": "13.0"}


def parts(plan: dict[str, Any] = PLAN, **more: Any) -> dict[str, Any]:
    given = {
        "source": "tree",
        "wheels": build_wheels(plan, NEEDS),
        "toolkit": "nvcc 13.0.88",
        "compiler": "g++ 12",
    }
    return kernel_parts(plan, **given | more)


def other_plan(**source: Any) -> dict[str, Any]:
    plan = deepcopy(PLAN)
    plan["stack"]["kernel"]["source"] |= source
    return plan


def other_lock(kind: str, name: str) -> dict[str, Any]:
    plan = deepcopy(PLAN)
    next(item for item in plan["lock"][kind] if item["name"] == name)["sha256"] = "another"
    return plan


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        (parts(source="other"), "source"),
        (parts(other_lock("wheels", "torch")), "torch"),
        (parts(other_lock("build", "cmake")), "tools"),
        (parts(toolkit="nvcc 13.0.90"), "toolkit"),
        (parts(compiler="g++ 13"), "compiler"),
        (parts(other_plan(archs=["12.0f"])), "archs"),
        (parts(other_plan(options={})), "options"),
        (parts(archive="cafe"), "dependencies"),
        (parts(deepcopy(PLAN) | {"lock": PLAN["lock"] | {"abi": "cp312"}}), "python"),
    ],
)
def test_each_part_changes_the_fingerprint_and_is_named_as_the_reason(
    changed: dict[str, Any], name: str
) -> None:
    assert short_id(changed) != short_id(parts())
    (reason,) = kernel_reasons(changed, {"parts": parts(), "file": "x.whl"})
    assert reason.startswith(f"{name}: ")
    assert " -> " in reason


def test_the_order_of_keys_and_what_does_not_go_in_leave_the_fingerprint() -> None:
    assert short_id(dict(reversed(parts().items()))) == short_id(parts())
    assert parts(other_lock("wheels", "flask")) == parts()
    assert parts(other_plan(commit="6" * 40)) == parts()


def test_why_a_kernel_is_built_where_nothing_differs() -> None:
    last = {"parts": parts(), "file": "x.whl"}
    assert kernel_reasons(parts(), None) == ["no wheel of this stack's kernel was built before"]
    assert kernel_reasons(parts(), last, rebuild=True) == ["sgl_kernel_rebuild is set"]
    assert kernel_reasons(parts(), last) == ["the wheelhouse lost x.whl, or its bytes changed"]
    assert kernel_lines({"record": None, "last": None}, parts(), "f00d")[0].endswith("f00d is to be built:")


def test_the_toolkit_is_named_by_nvccs_version_and_its_wheels() -> None:
    assert toolkit_name(PLAN["builder_toolkit"], "13.0.88") == "nvcc 13.0.88 of wheels cafe"  # type: ignore[arg-type]
    assert toolkit_name({"source": "path", "home": "/usr/local/cuda"}, None) == "nvcc not there yet"


def test_the_proof_is_for_the_first_sm120_of_the_list() -> None:
    assert proof_wanted(other_plan(archs=["9.0a", "12.1f"]), True) == {
        **{"arch": "sm_121a", "fp4": True, "torch": "2.12.0", "cuda": "13.0"},
    }


@pytest.mark.parametrize(
    ("facts", "source", "said"),
    [
        ({"git": False}, {}, "no git"),
        ({"compiler": None}, {}, "no C++ compiler"),
        ({"abi": "cp312"}, {}, "the builder's Python is cp312, the nodes' is cp311"),
        ({"abi": None}, {}, "the builder's Python is not to be run"),
        ({"python_headers": False}, {}, "apt-get install python3.11-dev"),
        ({"platform": "linux_aarch64"}, {}, "the builder is linux_aarch64, the nodes are linux_x86_64"),
        ({}, {"archs": ["9.0a"]}, "9.0a names no SM120"),
        ({}, {"archs": ["12.0"]}, "a build for plain 12.0 ends well and holds no FP4"),
    ],
)
def test_what_cannot_be_built_is_refused_before_anything_is_compiled(
    facts: dict[str, Any], source: dict[str, Any], said: str
) -> None:
    (refusal,) = builder_refusals(FACTS | facts, other_plan(**source), True)
    assert said in refusal


def test_a_good_builder_is_not_refused_and_plain_12_0_is_right_for_a_source_without_fp4() -> None:
    assert builder_refusals(FACTS, PLAN, True) == []
    assert builder_refusals(FACTS, other_plan(archs=["12.0"]), False) == []


def test_the_tag_means_nothing_for_a_stack_without_a_source() -> None:
    stack = {"name": "demo", "kernel": {"stand_in": "x"}}
    assert kernel_tag_problems(["gate"], stack) == []
    assert kernel_tag_problems(["sgl_kernel"], PLAN["stack"]) == []  # type: ignore[arg-type]
    assert "stack demo builds no kernel" in kernel_tag_problems(["sgl_kernel"], stack)[0]


def test_one_host_builds_for_all_that_want_the_same() -> None:
    assert [first_with(["a", "b", "c"], ["x", "y", "x"], value) for value in "xyx"] == ["a", "b", "a"]


# --- the build -----------------------------------------------------------------------------------


def test_progress_counts_the_units_of_all_attempts() -> None:
    steps = Steps()
    assert not steps.read("-- Configuring done\n")
    assert steps.read("[1/20] Building CUDA object a.cu.o\n")
    assert steps.note(30) == "1 of 20 units done, about 10 min left"
    again = Steps(total=20)
    assert again.read("[2/10] Building CUDA object b.cu.o\n")
    assert again.note(6) == "12 of 20 units done, about 24 s left"
    assert again.read("[10/10] Linking\n")
    assert again.note(60) == "20 of 20 units done"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)", "killed for memory"),
        ("c++: fatal error: Killed signal terminated program cc1plus", "killed for memory"),
        ("/bin/sh: line 1: 123 Killed   nvcc x.cu", "killed for memory"),
        ("virtual memory exhausted: Cannot allocate memory", "killed for memory"),
        ("x.h(3): catastrophic\n  error: out of memory", "killed for memory"),
        ("cc1plus: out of memory allocating 65536 bytes", "killed for memory"),
        ("cutlass/fast_math.h:42: fatal error: cuda/std/utility: No such file or directory", "no cuda/std"),
        ('Policy "CMP0177" is not known to this version of\n  CMake.', "unknown CMake policy"),
        ("Compatibility with CMake < 3.5 has been removed from CMake.", "a dependency asks"),
        ("ModuleNotFoundError: No module named 'torch'", "wrong torch"),
        ("fatal: unable to access 'https://github.com/x/': Could not resolve host: github.com", "no network"),
        ("/tmp/x.s: No space left on device", "disk full"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_120a'", "nvcc too old"),
        ("ptxas fatal   : Value 'sm_120a' is not defined for option 'gpu-name'", "nvcc too old"),
        ("Instruction 'wgmma.fence' not supported on .target 'sm_120a'", "a kernel of another"),
    ],
)
def test_a_failure_is_told_by_its_kind(text: str, kind: str) -> None:
    noise = "-- a line\n" * 50
    found = diagnose(f"{noise}{text}\n{noise}ninja: build stopped", 1, FAILURES)
    assert found["kind"].startswith(kind)
    assert found["remedy"]
    assert "\n" not in found["seen"] + found["remedy"]


def test_a_failure_of_no_kind_shows_the_last_lines() -> None:
    found = diagnose("one\ntwo\n", 3, FAILURES)
    assert (found["kind"], found["seen"]) == ("unknown", "exit 3: one | two")


def test_what_a_good_build_prints_is_no_failure() -> None:
    line = "RUN: cmake -DFETCHCONTENT_FULLY_DISCONNECTED=ON\n-- Looking for memory.h\n-- Found CUDAToolkit"
    assert diagnose(line, 1, FAILURES)["kind"] == "unknown"


def test_every_kind_of_failure_has_its_source() -> None:
    assert [failure["kind"] for failure in FAILURES if not failure["source"].startswith("https://")] == []


def test_without_systemd_the_ceiling_is_that_of_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "scope_words", lambda size: ("false",))
    limit = ceiling(40, 2)
    assert limit.kind == "rlimit"
    assert limit.prefix == ("prlimit", f"--data={20 << 30}:{20 << 30}")
    assert ceiling(40, 8).prefix[1] == f"--data={16 << 30}:{16 << 30}"  # the largest unit must fit
    assert ceiling(4, 8).prefix[1] == f"--data={4 << 30}:{4 << 30}"


@pytest.mark.parametrize(("told", "kind"), [(str(40 << 30), "systemd"), ("max", "rlimit")])
def test_systemds_ceiling_counts_only_where_a_scope_is_seen_to_have_it(
    monkeypatch: pytest.MonkeyPatch, told: str, kind: str
) -> None:
    monkeypatch.setattr(builder, "scope_words", lambda size: ("sh", "-c", f"echo {told}", "--"))
    assert ceiling(40, 2).kind == kind


def test_a_lock_is_held_as_long_as_any_of_the_build_lives(tmp_path: Path) -> None:
    with alone(tmp_path, "one", "the build f00d") as held:
        held.tell(4711)
        orphan = os.dup(held.descriptor)
    with (
        pytest.raises(BuildError, match=r"the build f00d, since .*kill -- -4711"),
        alone(tmp_path, "two", "another"),
    ):
        pass
    os.close(orphan)
    with alone(tmp_path, "two", "another"):
        pass


def test_a_build_of_the_same_run_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    real = fcntl.flock

    def flock(lock: Any, how: int) -> None:
        waited.append(how)
        if how & fcntl.LOCK_NB and len(waited) == 1:
            raise BlockingIOError
        real(lock, how)

    with alone(tmp_path, "one", "first"):
        pass
    monkeypatch.setattr(builder.fcntl, "flock", flock)
    with alone(tmp_path, "one", "second"):
        assert waited == [fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_EX]


def test_a_torch_that_changed_is_seen(tmp_path: Path) -> None:
    site = tmp_path / "lib/python3.11/site-packages"
    (site / "torch-2.12.0.dist-info").mkdir(parents=True)
    assert torch_state(tmp_path) is None
    (site / "torch.py").write_text("one")
    (site / "torch-2.12.0.dist-info/RECORD").write_text("torch.py,,\ntorch-2.12.0.dist-info/RECORD,,\n")
    before = torch_state(tmp_path)
    assert before is not None
    assert before["version"] == "2.12.0"
    assert torch_state(tmp_path) == before
    (site / "torch.py").write_text("three")
    assert torch_state(tmp_path) != before


def test_another_backend_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="names no build backend"):
        build_backend(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[build-system]\nbuild-backend = "setuptools.build_meta"\n')
    with pytest.raises(BuildError, match=r"setuptools.build_meta, wanted scikit_build_core.build"):
        build_backend(tmp_path)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"jobs": 0}, "jobs and memory_gib"),
        ({"fingerprint": "../x"}, "letters and digits"),
        ({"disk_gib": 1e9}, "GiB free"),
    ],
)
def test_a_build_that_cannot_begin_is_refused(
    tmp_path: Path, run_module: RunModule, wrong: dict[str, Any], said: str
) -> None:
    given = {
        **{"path": str(tmp_path), "fingerprint": "f00d", "repository": "r", "source": "s", "venv": "v"},
        **{"cuda_home": "c", "archs": ["12.0a"], "jobs": 1, "memory_gib": 1},
    }
    assert said in run_module(kernel_wheel_build, **given | wrong)["msg"]


# --- what is kept --------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path, run_module: RunModule) -> Callable[..., dict[str, Any]]:
    """The module kernel_wheel_kept on a wheelhouse, for the stack `demo`."""
    (tmp_path / "built").mkdir()
    (tmp_path / "house").mkdir()

    def run(fingerprint: str, content: str = "", **more: Any) -> dict[str, Any]:
        given = {"path": str(tmp_path / "house"), "fingerprint": fingerprint, "stack": "demo"}
        if content:
            built = tmp_path / "built" / f"kernel-1-0{fingerprint}-py3-none-any.whl"
            built.write_text(content)
            given |= {"wheel": str(built), "record": {"parts": {"text": content}}}  # type: ignore[dict-item]
        return run_module(kernel_wheel_kept, **given | more)

    return run


def test_a_wheel_is_found_by_its_fingerprint_only_while_its_bytes_are_those(
    tmp_path: Path, kept: Callable[..., dict[str, Any]]
) -> None:
    assert kept("f00d")["kernel"] is None
    assert kept("f00d", "one", check=True)["changed"]
    assert not list((tmp_path / "house").glob("*.whl"))
    entered = kept("f00d", "one")
    assert entered["record"]["parts"] == {"text": "one"}
    assert kept("f00d")["kernel"] == entered["kernel"]
    other = kept("cafe")
    assert (other["kernel"], other["last"]["fingerprint"]) == (None, "f00d")
    assert kept("cafe", stack="another")["last"] is None
    (tmp_path / "house" / entered["kernel"]["file"]).write_text("torn")
    assert kept("f00d")["kernel"] is None


def test_a_rebuilt_wheel_takes_the_place_of_the_old_one(
    tmp_path: Path, kept: Callable[..., dict[str, Any]]
) -> None:
    first = kept("f00d", "one")
    second = kept("f00d", "two")
    assert second["kernel"]["sha256"] != first["kernel"]["sha256"]
    kept("cafe", "three")
    assert len(list((tmp_path / "house").glob("*.kernel.json"))) == 2
    assert kept("f00d")["kernel"] == second["kernel"]


def test_without_a_fingerprint_the_newest_of_the_stack_is_found_with_all_that_carries_it(
    tmp_path: Path, kept: Callable[..., dict[str, Any]], run_module: RunModule
) -> None:
    assert kept("")["files"] == {}
    kept("f00d", "one")
    kept("cafe", "two")
    found = kept("")
    assert [item["fingerprint"] for item in found["built"]] == ["f00d", "cafe"]
    assert found["kernel"] == kept("cafe")["kernel"]
    assert found["files"] == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (tmp_path / "house").glob("*cafe*")
    }
    assert len(found["files"]) == 2
    said = run_module(
        kernel_wheel_kept, path=str(tmp_path), stack="demo", wheel=str(tmp_path / "house/none.whl")
    )["msg"]
    assert "needs a fingerprint" in said


def carried(**record: Any) -> dict[str, Any]:
    """What kernel_wheel_kept finds of a wheel that was carried here, built for PLAN but for `record`."""
    made = parts()
    given = {
        "stack": PLAN["stack"]["name"],
        "file": "k.whl",
        "commit": PLAN["stack"]["kernel"]["source"]["commit"] + "0",
        "parts": made,
        "patches": [{"name": name} for name in PLAN["stack"]["kernel"]["source"]["patches"]],
    }
    return {"record": given | record, "built": [{"fingerprint": "f00d"}]}


@pytest.mark.parametrize(
    ("kept", "why"),
    [
        pytest.param(carried(stack="other"), "it was built for stack other", id="stack"),
        pytest.param(carried(commit="abc"), "its commit is abc, the stack's", id="commit"),
        pytest.param(carried(patches=[{"name": "mine"}]), "its patches is mine", id="patches"),
        pytest.param(carried(parts=parts() | {"archs": ["10.0a"]}), "its archs is 10.0a", id="archs"),
        pytest.param(carried(parts=parts() | {"torch": {"t.whl": "0"}}), "its torch is t.whl 0", id="torch"),
        pytest.param(
            {"record": None, "built": [{"fingerprint": "f00d"}]},
            "has no whole kernel wheel of fingerprint cafe (of stack demo: f00d)",
            id="none",
        ),
    ],
)
def test_a_carried_wheel_that_is_not_the_stacks_is_refused(kept: dict[str, Any], why: str) -> None:
    (said,) = carried_problems(kept, PLAN, "cafe")
    assert why in said


def test_a_carried_wheel_of_the_stack_is_taken_whatever_compiled_it() -> None:
    assert carried_problems(carried(parts=parts() | {"compiler": "another"}), PLAN, "f00d") == []


# --- what older builds left ----------------------------------------------------------------------


def test_older_wheels_and_what_their_builds_left_go(
    tmp_path: Path, kept: Callable[..., dict[str, Any]], run_module: RunModule
) -> None:
    folder, house = tmp_path / "kernel", tmp_path / "house"
    for number, name in enumerate(("aa", "bb", "cc", "dd")):
        for kind in ("sources", "venvs", "builds"):
            (folder / kind / name / "deep").mkdir(parents=True)
            os.utime(folder / kind / name, (number, number))
        log = folder / "logs" / f"{name}.log"
        log.parent.mkdir(exist_ok=True)
        log.write_text("")
        os.utime(log, (number, number))
        kept(name, name)
        (sidecar,) = house.glob(f"*0{name}-*.kernel.json")
        record = json.loads(sidecar.read_text()) | {
            "build": {"log": str(log)},
            "built": f"2026-01-0{number + 1}",
        }
        sidecar.write_text(json.dumps(record))
    kept("ee", "of another stack", stack="another")
    (other,) = house.glob("*0ee-*.kernel.json")
    other.write_text(json.dumps(json.loads(other.read_text()) | {"build": {"log": "elsewhere"}}))
    given = {
        "path": str(folder),
        "house": str(house),
        "stack": "demo",
        "fingerprint": "aa",
        "using": [str(folder / "venvs" / "aa")],
        "keep": 2,
    }

    def left() -> dict[str, list[str]]:
        wheels = sorted(path.name[10:12] for path in house.glob("*.whl"))
        kinds = {
            kind: sorted(path.name for path in (folder / kind).iterdir())
            for kind in ("sources", "venvs", "builds", "logs")
        }
        return {"wheels": wheels} | kinds

    whole = left()
    told = run_module(kernel_prune, **given, check=True)
    assert left() == whole
    with alone(folder, "r", "a build"):
        busy = run_module(kernel_prune, **given)
        assert (busy["changed"], left()) == (False, whole)
        assert "a build" in busy["busy"]
    done = run_module(kernel_prune, **given)
    assert done["removed"] == told["removed"]
    assert left() == {
        "wheels": ["aa", "cc", "dd", "ee"],
        "sources": ["cc", "dd"],
        "venvs": ["aa", "cc", "dd"],
        "builds": ["cc", "dd"],
        "logs": ["aa.log", "bb.log", "cc.log", "dd.log"],  # bb's is among the newest of no wheel
    }
    assert not run_module(kernel_prune, **given)["changed"]


# --- the source ----------------------------------------------------------------------------------


@pytest.fixture
def origin(tmp_path: Path) -> tuple[Path, str]:
    folder = tmp_path / "origin"
    folder.mkdir()
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "file").write_text("text")
    return repository(folder, tmp_path / "text")


def test_a_source_is_brought_once_at_its_commit(
    tmp_path: Path, run_module: RunModule, origin: tuple[Path, str]
) -> None:
    given = {"path": str(tmp_path / "there"), "repository": str(origin[0]), "commit": origin[1]}
    told = run_module(kernel_source, **given, check=True)
    assert (told["changed"], told["source"]) == (True, None)
    done = run_module(kernel_source, **given)
    assert (done["changed"], done["commit"], done["dependencies"]) == (True, origin[1], None)
    assert Path(done["source"], "sgl-kernel/file").read_text() == "text"
    (tmp_path / "origin" / ".git").rename(tmp_path / "gone")  # it is asked no more
    for check in (True, False):
        again = run_module(kernel_source, **given, check=check)
        assert (again["changed"], again["source"]) == (False, done["source"])


def test_a_short_commit_is_found_and_one_that_is_not_there_is_told(
    tmp_path: Path, run_module: RunModule, origin: tuple[Path, str]
) -> None:
    given = {"path": str(tmp_path / "there"), "repository": str(origin[0])}
    assert run_module(kernel_source, **given, commit=origin[1][:9])["commit"] == origin[1]
    said = run_module(kernel_source, **given, commit="0" * 40)["msg"]
    assert f"{origin[0]} did not give the commit {'0' * 40}" in said
    assert "sgl_kernel_git" in said
    assert (tmp_path / "there" / "source").is_dir()


def test_an_archive_needs_its_repository_with_the_commit(
    tmp_path: Path, run_module: RunModule, origin: tuple[Path, str]
) -> None:
    archive = tmp_path / "a.tar"
    given = {
        "path": str(tmp_path / "there"),
        "repository": "https://nowhere.invalid",
        "archive": str(archive),
    }
    assert f"{archive} is not there" in run_module(kernel_source, **given, commit=origin[1])["msg"]
    with tarfile.open(archive, "w") as tar:
        tar.add(tmp_path / "text", "dependencies/some")
    assert (
        "holds no bare repository repository.git"
        in run_module(kernel_source, **given, commit=origin[1])["msg"]
    )
    with tarfile.open(archive, "w") as tar:
        tar.add(origin[0] / ".git", "repository.git")
        tar.add(tmp_path / "text", "dependencies/some")
    assert f"{archive} did not give the commit" in run_module(kernel_source, **given, commit="0" * 40)["msg"]
    done = run_module(kernel_source, **given, commit=origin[1])
    assert Path(done["dependencies"], "some/file").is_file()
    assert done["archive_sha256"]
    assert not run_module(kernel_source, **given, commit=origin[1])["changed"]


def test_what_one_build_fetched_is_packed_for_a_controller_without_network(
    tmp_path: Path, run_module: RunModule, origin: tuple[Path, str]
) -> None:
    there = run_module(
        kernel_source, path=str(tmp_path / "there"), repository=str(origin[0]), commit=origin[1]
    )
    fetched, archive = tmp_path / "_deps", tmp_path / "a.tar"
    given = {
        "path": str(archive),
        "repository": there["source"],
        "commit": there["commit"],
        "fetched": str(fetched),
    }
    assert "only a build that has configured" in run_module(kernel_archive, **given)["msg"]
    for name in ("some-src/.git", "some-build", "other-src"):
        (fetched / name).mkdir(parents=True)
    (fetched / "some-src/file").write_text("text")
    assert run_module(kernel_archive, **given, check=True)["dependencies"] == ["other", "some"]
    assert not archive.exists()
    done = run_module(kernel_archive, **given)
    assert done["changed"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".a.tar")] == []
    again = run_module(
        kernel_source,
        path=str(tmp_path / "island"),
        repository="https://nowhere.invalid",
        archive=str(archive),
        commit=origin[1],
    )
    assert (again["commit"], again["archive_sha256"]) == (origin[1], done["sha256"])
    assert Path(again["source"], "sgl-kernel/file").read_text() == "text"
    assert Path(again["dependencies"], "some/file").read_text() == "text"
    assert sorted(path.name for path in Path(again["dependencies"]).iterdir()) == ["other", "some"]
    assert not Path(again["dependencies"], "some/.git").exists()
    said = run_module(kernel_archive, **given | {"path": str(tmp_path / "no/a.tar")})["msg"]
    assert f"the folder {tmp_path}/no is not there" in said


def test_the_builder_is_looked_at(tmp_path: Path, run_module: RunModule) -> None:
    facts = run_module(builder_facts, python="/nowhere/python", cuda_home=str(tmp_path))["facts"]
    assert (facts["abi"], facts["python_headers"], facts["nvcc"]) == (None, False, None)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nvcc").write_text("#!/bin/sh\necho Cuda compilation tools, release 13.0, V13.0.88\n")
    (tmp_path / "bin/nvcc").chmod(0o755)
    facts = run_module(builder_facts, python=sys.executable, cuda_home=str(tmp_path))["facts"]
    assert facts["nvcc"] == "13.0.88"
    assert facts["abi"].startswith("cp3")
