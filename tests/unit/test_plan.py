"""The plan of a node: its names change with what it is made of, and with nothing else."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from plan import GIB, deployment_plan, plan_lines, plan_wheels, release_id, venv_id, wheel_bundles
from preflight import UNPACKED, needed_glibc, preflight_findings

MIB = 1 << 20
STACK = {"name": "demo", "title": "A stack", "imports": ["torch"]}
PROFILE = {
    "name": "tiny",
    "title": "A model",
    "checkpoint": {"path": "models/tiny", "files": {"config.json": "0" * 64, "model.safetensors": "1" * 64}},
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
            "file": "torch-2-cp311-cp311-manylinux_2_28_x86_64.whl",
            "sha256": "a" * 64,
            "size": GIB,
        },
        {"name": "six", "file": "six-1-py3-none-any.whl", "sha256": "b" * 64, "size": MIB},
    ],
}
KERNEL = {"file": "sgl_kernel-1.whl", "sha256": "c" * 64}
LAUNCH = ["--port", "30000"]


def plan(
    stack: dict[str, Any] = STACK, profile: Any = PROFILE, lock: dict[str, Any] = LOCK
) -> dict[str, Any]:
    return deployment_plan(stack, profile, lock)


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


def test_a_wheel_above_the_limit_goes_alone() -> None:
    bundles = wheel_bundles(sized(big=100, small=1), ["big", "small"], limit=10 * MIB)
    assert [bundle["files"] for bundle in bundles] == [["big"], ["small"]]


def test_a_kernel_wheel_whose_size_no_lock_names_is_sent_too() -> None:
    (bundle,) = wheel_bundles(sized(a=1), ["a", "kernel"])
    assert bundle["files"] == ["a", "kernel"]


def test_a_bundles_note_counts_it() -> None:
    notes = [bundle["note"] for bundle in wheel_bundles(sized(a=2, b=2, c=1), ["a", "b", "c"], limit=3 * MIB)]
    assert notes == ["bundle 1 of 2, 1 wheels, 2 MiB", "bundle 2 of 2, 2 wheels, 3 MiB"]


def test_nothing_missing_makes_no_bundle() -> None:
    assert wheel_bundles(plan(), []) == []


# --- the plan in words ---------------------------------------------------------------------------


def test_a_fresh_node_gets_everything() -> None:
    made = plan()
    assert plan_lines(made, None) == [
        "stack: none -> demo",
        f"wheels: none -> {made['lock_id'][:12]} (2 wheels, 1.00 GiB)",
        f"model: none -> {made['model']}",
    ]


def test_what_stays_is_said_to_stay() -> None:
    made = plan()
    lines = plan_lines(made, {"stack": "demo", "lock_id": made["lock_id"], "model": "tiny-old"})
    assert lines == [
        "stack: stays demo",
        f"wheels: stays {made['lock_id'][:12]}",
        f"model: tiny-old -> {made['model']}",
    ]


# --- preflight -----------------------------------------------------------------------------------

DISK = (GIB + MIB) * UNPACKED / GIB + 2
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
        ({"disk_free_gib": 1.0}, ["1.0 GiB free at /opt/sglang", f"{DISK:.1f} GiB"]),
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
