"""The plan of a node: its names change with what it is made of, and with nothing else."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import pytest
from plan import (
    by_option,
    deployment_plan,
    human,
    lease_seconds,
    plan_lines,
    plan_wheels,
    profile_launch,
    release_id,
    transfer,
    venv_id,
    wheel_bundles,
)
from preflight import GIB, UNPACKED, disk_bytes, needed_glibc, preflight_findings

MIB = 1 << 20
STACK = {"name": "demo", "title": "A stack", "sglang": {"version": "0.5.9"}, "imports": ["torch"]}
PROFILE = {
    "name": "tiny",
    "title": "A model",
    "checkpoint": {"path": "models/tiny", "files": {"config.json": "0" * 64, "model.safetensors": "1" * 64}},
    "served_name": "tiny",
    "launch": {"device": "cpu", "max_running_requests": 4},
    "environment": {"A": "1"},
    "needs": {"memory_gib": 3},
    "gate": {},
}
LOCK = {
    "stack": "demo",
    "abi": "cp311",
    "platform": "linux_x86_64",
    "wheels": [
        {
            "name": "torch",
            "version": "2",
            "file": "torch-2-cp311-cp311-manylinux_2_28_x86_64.whl",
            "sha256": "a" * 64,
            "size": GIB,
        },
        {"name": "six", "version": "1", "file": "six-1-py3-none-any.whl", "sha256": "b" * 64, "size": MIB},
    ],
}
KERNEL = {"file": "sgl_kernel-1.whl", "sha256": "c" * 64}
LAUNCH = ["--port", "30000"]


def plan(
    stack: dict[str, Any] = STACK, profile: Any = PROFILE, lock: dict[str, Any] = LOCK
) -> dict[str, Any]:
    made = deployment_plan(stack, profile, lock, base="/project")
    lacking = {
        "house": [],
        "node": list(plan_wheels(made)),
        "model": list(made["profile"]["checkpoint"]["files"]),
    }
    return made | {"transfer": transfer(made, lacking, [], [])}


# --- plan ----------------------------------------------------------------------------------------


def test_a_plan_says_where_the_model_goes_and_what_is_downloaded() -> None:
    made = deployment_plan(STACK, PROFILE, LOCK, root="/srv/sglang")
    assert made["model_path"] == f"/srv/sglang/models/{made['model']}"
    assert made["model"].startswith("tiny-")
    assert made["download_bytes"] == GIB + MIB


def test_a_checkpoint_with_other_bytes_is_another_model() -> None:
    other = deepcopy(PROFILE)
    other["checkpoint"]["files"]["config.json"] = "2" * 64
    assert plan(profile=other)["model"] != plan()["model"]


def test_the_order_of_a_checkpoints_files_does_not_matter() -> None:
    other = deepcopy(PROFILE)
    other["checkpoint"]["files"] = dict(reversed(PROFILE["checkpoint"]["files"].items()))
    assert plan(profile=other)["model"] == plan()["model"]


def test_the_kernel_wheel_is_one_of_a_nodes_wheels_where_there_is_one() -> None:
    locked = {wheel["file"]: wheel["sha256"] for wheel in LOCK["wheels"]}
    assert plan_wheels(plan()) == locked
    assert plan_wheels(plan(), KERNEL) == {**locked, "sgl_kernel-1.whl": "c" * 64}


def other_lock(**changes: Any) -> dict[str, Any]:
    return {**deepcopy(LOCK), **changes}


WHEEL = LOCK["wheels"][0]


@pytest.mark.parametrize(
    ("made", "kernel"),
    [
        pytest.param(plan(lock=other_lock(wheels=LOCK["wheels"][:1])), KERNEL, id="a wheel less"),
        pytest.param(
            plan(lock=other_lock(wheels=[WHEEL | {"sha256": "d" * 64}, LOCK["wheels"][1]])),
            KERNEL,
            id="a hash",
        ),
        pytest.param(plan(), KERNEL | {"sha256": "d" * 64}, id="the kernel's hash"),
        pytest.param(plan(), None, id="no kernel"),
        pytest.param(plan(lock=other_lock(abi="cp312")), KERNEL, id="the ABI"),
    ],
)
def test_a_venv_has_another_name_when_it_has_other_content(made: dict[str, Any], kernel: Any) -> None:
    assert venv_id(made, kernel) != venv_id(plan(), KERNEL)


@pytest.mark.parametrize(
    ("made", "kernel"),
    [
        pytest.param(plan(stack=STACK | {"title": "Else", "imports": []}), KERNEL, id="the stack's words"),
        pytest.param(plan(profile=PROFILE | {"name": "big", "needs": {}}), KERNEL, id="the profile"),
        pytest.param(deployment_plan(STACK, PROFILE, LOCK, root="/srv"), KERNEL, id="the root"),
        pytest.param(plan(lock=other_lock(resolved="2027-01-01")), KERNEL, id="the day of the lock"),
        pytest.param(plan(), KERNEL | {"file": "renamed.whl"}, id="the kernel's file name"),
    ],
)
def test_a_venv_keeps_its_name_when_its_content_is_the_same(made: dict[str, Any], kernel: Any) -> None:
    assert venv_id(made, kernel) == venv_id(plan(), KERNEL)


def test_a_release_is_named_by_stack_and_profile() -> None:
    assert release_id(plan(), "venv1", LAUNCH, {}).startswith("demo.tiny.")


OTHER_MODEL = {**PROFILE, "checkpoint": {"path": "x", "files": {"config.json": "3" * 64}}}


@pytest.mark.parametrize(
    ("made", "venv", "launch", "environment"),
    [
        pytest.param(plan(), "venv2", LAUNCH, {"A": "1"}, id="venv"),
        pytest.param(plan(), "venv1", ["--port", "30001"], {"A": "1"}, id="an argument"),
        pytest.param(plan(), "venv1", [*reversed(LAUNCH)], {"A": "1"}, id="the order of arguments"),
        pytest.param(plan(), "venv1", LAUNCH, {"A": "2"}, id="a variable"),
        pytest.param(plan(), "venv1", LAUNCH, {}, id="no variable"),
        pytest.param(plan(profile=OTHER_MODEL), "venv1", LAUNCH, {"A": "1"}, id="model"),
    ],
)
def test_a_release_has_another_name_when_something_in_it_changes(
    made: dict[str, Any], venv: str, launch: list[str], environment: dict[str, str]
) -> None:
    assert release_id(made, venv, launch, environment) != release_id(plan(), "venv1", LAUNCH, {"A": "1"})


@pytest.mark.parametrize(
    ("made", "environment"),
    [
        pytest.param(
            plan(profile=PROFILE | {"gate": {"deadline_s": 5}}), {"A": "1", "B": "2"}, id="the gate"
        ),
        pytest.param(plan(), {"B": "2", "A": "1"}, id="the order of variables"),
    ],
)
def test_a_release_keeps_its_name_otherwise(made: dict[str, Any], environment: dict[str, str]) -> None:
    wanted = release_id(plan(), "venv1", LAUNCH, {"A": "1", "B": "2"})
    assert release_id(made, "venv1", LAUNCH, environment) == wanted


# --- bundles -------------------------------------------------------------------------------------


def sized(**sizes: int) -> dict[str, Any]:
    """A plan whose wheels have these sizes in MiB."""
    return {"lock": {"wheels": [{"file": name, "size": size * MIB} for name, size in sizes.items()]}}


def test_bundles_hold_every_missing_wheel_once_and_keep_the_limit() -> None:
    made = sized(a=5, b=1, c=3, d=4, e=2)
    bundles = wheel_bundles(made, ["a", "b", "c", "d"], limit=6 * MIB)
    assert sorted(name for bundle in bundles for name in bundle["files"]) == ["a", "b", "c", "d"]
    assert all(bundle["bytes"] <= 6 * MIB for bundle in bundles)
    assert sum(bundle["bytes"] for bundle in bundles) == 13 * MIB


def test_bundles_of_the_same_files_have_the_same_name_and_no_others() -> None:
    made = sized(a=5, b=1, c=3)
    names = [
        [bundle["id"] for bundle in wheel_bundles(made, missing, limit=6 * MIB)]
        for missing in (["a", "b", "c"], ["c", "b", "a"], ["a"])
    ]
    assert names[0] == names[1]
    assert names[0][0] == names[2][0], "the first holds the same one"
    assert len(set(names[0])) == 2


def test_a_wheel_above_the_limit_goes_alone() -> None:
    bundles = wheel_bundles(sized(big=100, small=1), ["big", "small"], limit=10 * MIB)
    assert [bundle["files"] for bundle in bundles] == [["big"], ["small"]]


def test_a_kernel_wheel_whose_size_no_lock_names_is_sent_too() -> None:
    (bundle,) = wheel_bundles(sized(a=1), ["a", "kernel"])
    assert bundle["files"] == ["a", "kernel"]


def test_a_bundles_note_counts_it() -> None:
    notes = [bundle["note"] for bundle in wheel_bundles(sized(a=2, b=2, c=1), ["a", "b", "c"], limit=3 * MIB)]
    assert notes == ["bundle 1 of 2, 1 wheels, 2 MiB", "bundle 2 of 2, 2 wheels, 3 MiB"]


def test_a_lease_lasts_as_long_as_a_slow_line_needs() -> None:
    assert [lease_seconds(size) for size in (0, 5e9)] == [60, 560]


def test_nothing_missing_makes_no_bundle() -> None:
    assert wheel_bundles(plan(), []) == []


# --- the plan in words ---------------------------------------------------------------------------


ARGUMENTS = ["--port", "30000", "--device", "cpu", "--trust-remote-code"]
MANIFEST = {
    "stack": "demo",
    "lock_id": plan()["lock_id"],
    "model": plan()["model"],
    "kernel": KERNEL,
    "launch": ARGUMENTS,
    "environment": {"A": "1"},
    "parts": {"venv": {"packages": {"torch": "2", "six": "1", "sgl_kernel": "1.whl"}}},
}
SERVING = {"current": "r1", "previous": None, "running": "r1", "proved": True, "manifest": MANIFEST}


def told(made: Any = None, arguments: Any = ARGUMENTS, facts: Any = None, **manifest: Any) -> list[str]:
    """The plan's lines for a node that serves what MANIFEST says, but for these changes."""
    return plan_lines(made or plan(), arguments, {**SERVING, "manifest": MANIFEST | manifest} | (facts or {}))


def test_the_plan_tells_of_the_gpus_memory_and_the_kv_cache() -> None:
    fit = {"problems": [], "lines": ["KV cache: bf16", "VRAM: 8 x"]}
    lines = told(plan() | {"fit": fit}, ["--port", "30001"])
    first = lines.index("KV cache: bf16")
    assert lines[first - 1 : first + 2] == ["launch option --trust-remote-code: on -> none", *fit["lines"]]


def test_a_fresh_node_gets_everything() -> None:
    none = {"current": None, "previous": None, "running": None, "proved": False, "manifest": None}
    made = plan()
    assert told(made, facts=none) == [
        "stack: none -> demo",
        f"model: none -> {made['model']}",
        "torch: none -> 2",
        "other packages: 1",
        "launch option --port: none -> 30000",
        "launch option --device: none -> cpu",
        "launch option --trust-remote-code: none -> on",
        "environment variable A: none -> 1",
        "to download: 0 wheels, 0 bytes",
        "to copy to the node: 2 wheels, 1.00 GiB; 2 files of the model, 0 bytes",
        "start: sglang.service, then the gate",
    ]


# --- the CUDA toolkit ----------------------------------------------------------------------------

COMPILING = {**STACK, "cuda_toolkit": {"version": "13.0", "wheels": ["nvidia-cuda-nvcc==13.0.88"]}}
NVCC = {
    "name": "nvidia-cuda-nvcc",
    "version": "13.0.88",
    "file": "nvidia_cuda_nvcc-13.0.88-py3-none-any.whl",
    "sha256": "e" * 64,
    "size": 10 * MIB,
    "index": None,
}
LOCK_WITH_TOOLKIT = {**LOCK, "toolkit": [NVCC]}


def test_a_plan_without_a_toolkit_has_none() -> None:
    made = plan()
    assert (made["toolkit"], made["lock"]["toolkit"], made["environment"]) == (None, [], {"A": "1"})


def test_a_toolkit_from_wheels_has_a_folder_of_its_own_and_is_not_in_the_environment() -> None:
    made = deployment_plan(COMPILING, PROFILE, LOCK_WITH_TOOLKIT, root="/srv")
    assert made["toolkit"]["source"] == "wheels"
    assert re.fullmatch(r"/srv/toolkits/13\.0-[0-9a-f]{12}", made["toolkit"]["home"])
    assert made["environment"] == {"CUDA_HOME": made["toolkit"]["home"], "A": "1"}
    assert plan_wheels(made) == plan_wheels(plan())


def test_a_toolkit_with_another_wheel_is_another_folder_and_another_environment() -> None:
    lock = {**LOCK, "toolkit": [NVCC | {"sha256": "f" * 64}]}
    one, other = plan(COMPILING, lock=LOCK_WITH_TOOLKIT), plan(COMPILING, lock=lock)
    assert one["toolkit"]["home"] != other["toolkit"]["home"]
    assert len({venv_id(made) for made in (one, other, plan())}) == 3


@pytest.mark.parametrize(
    ("asked", "source", "package"),
    [
        pytest.param({"path": "/usr/local/cuda-13.0"}, "path", None, id="path"),
        pytest.param({"path": "/usr/local/cuda-13.0", "package": "cuda"}, "package", "cuda", id="package"),
    ],
)
def test_a_toolkit_of_the_host_is_where_the_stack_says(
    asked: dict[str, str], source: str, package: str | None
) -> None:
    made = plan({**STACK, "cuda_toolkit": {"version": "13.0", **asked}})
    home = "/usr/local/cuda-13.0"
    assert made["toolkit"] == {
        **{"version": "13.0", "source": source, "home": home, "wheels": [], "package": package},
    }
    assert made["environment"]["CUDA_HOME"] == home


def test_an_operators_toolkit_stands_in_for_the_stacks() -> None:
    made = deployment_plan(COMPILING, PROFILE, LOCK_WITH_TOOLKIT, toolkit_path="/opt/cuda")
    assert (made["toolkit"]["source"], made["toolkit"]["home"]) == ("path", "/opt/cuda")
    assert made["lock"]["toolkit"] == []
    assert deployment_plan(STACK, PROFILE, LOCK, toolkit_path="/opt/cuda")["toolkit"] is None


def test_a_profile_may_name_another_cuda_home() -> None:
    profile = {**PROFILE, "environment": {"CUDA_HOME": "/mine"}}
    assert plan(COMPILING, profile, LOCK_WITH_TOOLKIT)["environment"] == {"CUDA_HOME": "/mine"}


def test_the_plan_says_which_toolkit_comes_and_what_is_laid_out() -> None:
    made = plan(COMPILING, lock=LOCK_WITH_TOOLKIT)
    lacking = {"house": [], "node": [NVCC["file"]], "model": [], "toolkit": True}
    made["transfer"] = transfer(made, lacking, [], [])
    home = made["toolkit"]["home"]
    lines = told(made)
    assert f"CUDA toolkit: none -> CUDA 13.0 in {home}" in lines
    assert "to copy to the node: 1 wheels, 10 MiB; 0 files of the model, 0 bytes" in lines
    assert f"to lay out: the CUDA toolkit in {home} from 1 wheels, 10 MiB packed" in lines


def test_the_toolkit_counts_for_the_disk_until_it_is_there() -> None:
    made = plan(COMPILING, lock=LOCK_WITH_TOOLKIT)
    taken = [
        disk_bytes(
            made
            | {"transfer": transfer(made, {"house": [], "node": [], "model": [], "toolkit": lacks}, [], [])}
        )
        for lacks in (False, True)
    ]
    assert taken[1] - taken[0] == NVCC["size"] * (UNPACKED - 1)


def test_the_packages_of_a_stack_that_is_not_resolved_yet_are_not_known() -> None:
    lines = told(plan(lock=LOCK | {"wheels": []}))
    assert lines[0] == "packages: not known until the stack is resolved"
    assert not any("torch" in line for line in lines)


def test_a_node_that_has_it_all_is_told_that_nothing_changes() -> None:
    assert told() == ["nothing changes: release r1 is what the plan names"]


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        pytest.param(
            {"proved": False}, "it has not passed its gate: it is put on trial again", id="unproved"
        ),
        pytest.param({"running": None}, "start: sglang.service, which runs nothing", id="stopped"),
        pytest.param({"running": "r0"}, "start: sglang.service, which runs r0", id="another one runs"),
    ],
)
def test_a_node_that_does_not_serve_what_it_has_is_told_so(facts: dict[str, Any], line: str) -> None:
    assert told(facts=facts)[1:] == [line]


@pytest.mark.parametrize(
    ("before", "lines"),
    [
        pytest.param({"stack": "old"}, ["stack: old -> demo"], id="stack"),
        pytest.param({"model": "tiny-old"}, [f"model: tiny-old -> {plan()['model']}"], id="model"),
        pytest.param(
            {"launch": ["--port", "30000", "--device", "cuda", "--gone", "1", "2"]},
            [
                "launch option --device: cuda -> cpu",
                "launch option --trust-remote-code: none -> on",
                "launch option --gone: 1 2 -> none",
            ],
            id="launch options",
        ),
        pytest.param(
            {"environment": {"A": "2", "B": "3"}},
            ["environment variable A: 2 -> 1", "environment variable B: 3 -> none"],
            id="environment",
        ),
        pytest.param(
            {"parts": {"venv": {"packages": {"torch": "1.9", "Six": "0", "flashinfer_python": "0.3"}}}},
            [
                "torch: 1.9 -> 2",
                "flashinfer-python: 0.3 -> none",
                "other packages: 1 change: six 0 -> 1",
            ],
            id="packages",
        ),
        pytest.param(
            {"lock_id": "0" * 64},
            [f"wheels: the same versions with other bytes, lock {plan()['lock_id'][:12]}"],
            id="bytes",
        ),
    ],
)
def test_a_change_is_told_with_what_it_was_and_what_follows(before: dict[str, Any], lines: list[str]) -> None:
    made = told(**before)
    assert made[: len(lines)] == lines
    assert [line.partition(":")[0] for line in made[len(lines) :]] == [
        "to download",
        "to copy to the node",
        "restart",
    ]


def test_many_changed_packages_are_counted_and_a_few_of_them_named() -> None:
    packages = {"torch": "2", "six": "1", **{f"p{number:02}": "1" for number in range(12)}}
    line = told(parts={"venv": {"packages": packages}})[0]
    assert line.startswith("other packages: 12 change: p00 1 -> none, p01 1 -> none")
    assert line.endswith("p07 1 -> none and 4 more, see --diff")


def test_a_kernel_that_is_still_to_be_built_is_not_said_to_be_the_same() -> None:
    stand_in = plan(stack=STACK | {"kernel": {"stand_in": "packaging/x"}})
    assert told(stand_in)[0].endswith("unless the kernel's wheel comes out different")
    [line] = [line for line in told(stand_in, stack="old") if line.startswith("kernel:")]
    assert line.startswith("kernel: sgl_kernel-1.whl -> built from packaging/x;")


def test_a_kernel_from_source_is_told_with_its_commit_and_architectures() -> None:
    source = {"repository": "https://example.org/x", "commit": "5" * 40, "archs": ["12.0a"], "build": []}
    made = plan(stack=STACK | {"kernel": {"source": source}})
    assert told(made)[0].endswith("unless the kernel's wheel comes out different")
    [line] = [line for line in told(made, stack="old") if line.startswith("kernel:")]
    assert "-> built from https://example.org/x at 555555555555 for 12.0a;" in line


def test_the_toolkit_of_a_stack_whose_nodes_compile_nothing_is_the_builders_alone() -> None:
    part = LOCK["wheels"][0] | {"name": "nvidia-cuda-nvcc", "file": "nvcc.whl", "size": 7}
    stack = STACK | {
        "kernel": {"source": {"build": []}},
        "cuda_toolkit": {"version": "13.0", "wheels": ["x==1"]},
    }
    lock = LOCK | {"toolkit": [part]}
    made = deployment_plan(stack, PROFILE, lock)
    assert made["toolkit"] is None
    assert made["builder_toolkit"]["wheels"] == [part]
    assert (made["lock"]["toolkit"], made["lock"]["build"]) == ([], [part])
    assert "CUDA_HOME" not in made["environment"]
    both = deployment_plan(stack | {"cuda": "13.0"}, PROFILE, lock)
    assert both["toolkit"] == both["builder_toolkit"]
    assert (both["lock"]["toolkit"], both["lock"]["build"]) == ([part], [])


def test_options_of_the_inventory_win_and_the_plan_has_them_all() -> None:
    made = deployment_plan(
        STACK,
        PROFILE,
        LOCK,
        port="30001",
        options={"max_running_requests": 8, "x": True},
        environment={"A": "2"},
    )
    assert made["launch"] == {
        "host": "127.0.0.1",
        "port": 30001,
        "served_model_name": "tiny",
        "device": "cpu",
        "max_running_requests": 8,
        "x": True,
    }
    assert made["environment"] == {"A": "2"}
    assert made["url"] == "http://127.0.0.1:30001"


@pytest.mark.parametrize(
    ("sglang", "backend"),
    [
        ({"version": "0.5.9"}, "a"),
        ({"version": "0.5.10"}, "b"),
        ({"version": "0.5.23rc1"}, "b"),
        ({"version": "0.5.23"}, "c"),
        ({"commit": "0" * 40}, "a"),
    ],
    ids=["below", "from", "before the last", "the last entry wins", "no version"],
)
def test_a_profile_has_other_options_for_other_versions(sglang: dict[str, str], backend: str) -> None:
    others = {">=0.5.10": {"grammar_backend": "b"}, "==0.5.23": {"grammar_backend": "c"}}
    profile = PROFILE | {"launch": {"device": "cpu", "grammar_backend": "a"}, "launch_by_version": others}
    stack = STACK | {"sglang": sglang}
    wanted = {"device": "cpu", "grammar_backend": backend}
    assert profile_launch(profile, stack) == wanted
    assert deployment_plan(stack, profile, LOCK)["launch"].items() >= wanted.items()
    made = deployment_plan(stack, profile, LOCK, options={"grammar_backend": "d"})
    assert made["launch"]["grammar_backend"] == "d", "the inventory wins"


def test_a_plan_knows_whether_its_lock_was_reviewed() -> None:
    assert plan()["locked"] is True
    assert deployment_plan(STACK, PROFILE, LOCK, locked=False)["locked"] is False


def test_arguments_are_read_as_options() -> None:
    assert by_option(["--a", "1", "--b", "--c", "x", "y", "--d", "-1"]) == {
        "--a": "1",
        "--b": "on",
        "--c": "x y",
        "--d": "-1",
    }


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (1023, "1023 bytes"), (5 * MIB, "5 MiB"), (3 * GIB // 2, "1.50 GiB")]
)
def test_sizes_are_written_for_people(size: int, text: str) -> None:
    assert human(size) == text


def test_what_is_moved_is_what_is_missing() -> None:
    made = deployment_plan(STACK, PROFILE, LOCK, base="/project")
    torch = LOCK["wheels"][0]["file"]
    moved = transfer(
        made,
        {"house": [], "node": [torch, "kernel.whl"], "model": ["config.json", "sub/other"]},
        [
            {"path": "/project/models/tiny/config.json", "size": 10},
            {"path": "/project/models/tiny/sub/other", "size": 5},
            {"path": "/project/models/tiny/unasked", "size": 1000},
        ],
        [{"lock_id": "another"}],
    )
    assert moved == {
        "download": {"files": 0, "bytes": 0},
        "wheels": {"files": 2, "bytes": GIB},
        "model": {"files": 2, "bytes": 15, "sizes": {"config.json": 10, "sub/other": 5}},
        "toolkit": {"files": 0, "bytes": 0},
        "environment": False,
    }
    assert transfer(made, {"house": [], "node": [], "model": []}, [], [{"lock_id": made["lock_id"]}])[
        "environment"
    ]


# --- preflight -----------------------------------------------------------------------------------

DISK = (GIB + MIB) * UNPACKED / GIB + 2


def test_only_what_the_node_lacks_takes_disk() -> None:
    made = plan()

    def needed(**moved: Any) -> str:
        text: str = preflight_findings(FACTS, made | {"transfer": made["transfer"] | moved}, 2)[0]["text"]
        return text.partition("needs ")[2]

    none = {"files": 0, "bytes": 0}
    assert needed().startswith(f"{DISK:.1f} GiB")
    assert needed(wheels=none).startswith("5.0 GiB")
    assert needed(wheels=none, environment=True).startswith("2.0 GiB")
    assert needed(wheels=none, environment=True, model={"files": 1, "bytes": 3 * GIB}).startswith("5.0 GiB")


FACTS = {"disk_free_gib": 100.0, "memory_gib": 16.0, "glibc": "2.36", "port_holder": None}


def levels(**facts: Any) -> dict[str, str]:
    """Check to level, for these facts."""
    return {found["check"]: found["level"] for found in preflight_findings(FACTS | facts, plan(), 2)}


def test_a_fit_node_passes_every_check() -> None:
    assert levels() == {"disk": "ok", "memory": "ok", "glibc": "ok", "port": "ok"}


@pytest.mark.parametrize(
    ("check", "facts", "level"),
    [
        pytest.param("disk", {"disk_free_gib": DISK}, "ok", id="just enough disk"),
        pytest.param("disk", {"disk_free_gib": DISK - 0.01}, "refuse", id="too little disk"),
        pytest.param("memory", {"memory_gib": 3.0}, "ok", id="just enough memory"),
        pytest.param("memory", {"memory_gib": 2.99}, "refuse", id="too little memory"),
        pytest.param("glibc", {"glibc": "2.28"}, "ok", id="just the glibc"),
        pytest.param("glibc", {"glibc": "2.27"}, "refuse", id="too old a glibc"),
        pytest.param("glibc", {"glibc": "2.5"}, "refuse", id="a glibc that is newer only as text"),
        pytest.param("glibc", {"glibc": ""}, "refuse", id="no glibc"),
        pytest.param(
            "port",
            {"port_holder": {"name": "python", "pid": 7, "unit": "sglang.service"}},
            "ok",
            id="our own unit on the port",
        ),
        pytest.param(
            "port",
            {"port_holder": {"name": "nginx", "pid": 7, "unit": "nginx.service"}},
            "refuse",
            id="another program on the port",
        ),
        pytest.param(
            "port",
            {"port_holder": {"name": None, "pid": None, "unit": None}},
            "refuse",
            id="an unknown program on the port",
        ),
    ],
)
def test_one_unfit_thing_is_one_refusal(check: str, facts: dict[str, Any], level: str) -> None:
    assert levels(**facts) == levels() | {check: level}


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            {"disk_free_gib": 1.0},
            ["1.0 GiB free at /opt/sglang", f"{DISK:.1f} GiB", "releases.yml -e release_prune=true"],
        ),
        ({"memory_gib": 2.0}, ["2.0 GiB", "3 GiB"]),
        ({"glibc": "2.17"}, ["2.17", "2.28"]),
        (
            {"port_holder": {"name": "nginx", "pid": 7, "unit": "nginx.service"}},
            ["nginx (PID 7, unit nginx.service)", "sglang_server_port"],
        ),
    ],
    ids=["disk", "memory", "glibc", "port"],
)
def test_a_refusal_names_what_there_is_and_what_is_needed(facts: dict[str, Any], words: list[str]) -> None:
    found = preflight_findings(FACTS | facts, plan(), 2)
    (text,) = [finding["text"] for finding in found if finding["level"] == "refuse"]
    assert [word for word in words if word not in text] == []


def test_a_checkpoint_that_is_unfit_is_refused_and_what_fits_is_told() -> None:
    fit = {"problems": ["KV cache: fp8"], "lines": ["KV cache: fp8", "VRAM: not seen"]}
    found = preflight_findings(FACTS, plan() | {"fit": fit}, 2)
    assert [(one["level"], one["text"]) for one in found if one["check"] == "model"] == [
        ("refuse", "KV cache: fp8"),
        ("ok", "VRAM: not seen"),
    ]


def test_a_profile_that_needs_no_memory_is_content() -> None:
    small = plan(profile={key: value for key, value in PROFILE.items() if key != "needs"})
    assert [found["level"] for found in preflight_findings(FACTS | {"memory_gib": 0.1}, small, 2)] == [
        "ok"
    ] * 4


@pytest.mark.parametrize(
    ("files", "glibc"),
    [
        pytest.param(["a-1-py3-none-any.whl"], (0, 0), id="pure"),
        pytest.param(["a-1-cp311-cp311-manylinux_2_28_x86_64.whl"], (2, 28), id="one tag"),
        pytest.param(["a-1-cp311-cp311-manylinux2014_x86_64.whl"], (2, 17), id="2014"),
        pytest.param(["a-1-cp311-cp311-manylinux2010_x86_64.manylinux_2_28_x86_64.whl"], (2, 12), id="2010"),
        pytest.param(["a-1-cp311-cp311-manylinux1_x86_64.manylinux_2_28_x86_64.whl"], (2, 5), id="1"),
        pytest.param(
            ["a-1-cp39-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.manylinux_2_34_x86_64.whl"],
            (2, 17),
            id="the lowest of a wheel's tags",
        ),
        pytest.param(
            ["a-1-cp311-cp311-manylinux_2_9_x86_64.whl", "b-1-cp311-cp311-manylinux_2_10_x86_64.whl"],
            (2, 10),
            id="the highest of all wheels, as a number",
        ),
    ],
)
def test_the_glibc_is_read_from_the_wheels_names(files: list[str], glibc: tuple[int, int]) -> None:
    assert needed_glibc([{"file": file} for file in files]) == glibc
