"""Stacks and locks: what is wrong in a file is said with its line, and what is shipped is right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.patches import read_hunks
from one_change import changed
from stacks import (
    lock_name,
    lock_problems,
    lock_refusals,
    lock_wheels,
    node_kinds,
    patch_problems,
    patch_series,
    project,
    read_lock,
    stack_inputs,
    stack_lines,
    stack_pins,
    stack_problems,
    unlocked_line,
    write_lock,
)

ROOT = Path(__file__).parents[2]
CATALOG = ROOT / "catalog"
STACKS = sorted((CATALOG / "stacks").glob("*.yml"))
LOCKS = sorted((CATALOG / "stacks").glob("*.lock"))
NEVER_LOCKED = {"nightly-2026-03-07", "sm120-0.5.9", "sm120-0.5.23"}
"""Their indexes were not reached when they were written: a lock of one of them would be a forgery."""

TEXT = """---
name: demo
title: A stack
reason: for the tests
sources: [https://example.org]
python: ">=3.10,<3.14"
torch: 2.9.0+cpu
flashinfer:
  version: 0.6.3
  jit_cache: cu130
sglang:
  version: 0.5.9
kernel:
  wheel:
    name: sgl-kernel
    version: 0.3.21
    torch: 2.9.0
    cuda: "13"
indexes:
  own: https://index.example/simple
from_index:
  torch: own
requirements:
  - numpy<2.4
without_dependencies:
  - uv==0.9.5
imports: [torch]
"""
STACK: dict[str, Any] = yaml.safe_load(TEXT)
WHEELS: list[dict[str, Any]] = [
    {
        "name": "torch",
        "version": "2.9.0+cpu",
        "file": "torch-2.9.0+cpu-cp311-cp311-linux_x86_64.whl",
        "sha256": "a" * 64,
        "size": 123456789,
        "index": "own",
    },
    {
        "name": "typing-extensions",
        "version": "4.15.0",
        "file": "typing_extensions-4.15.0-py3-none-any.whl",
        "sha256": "b" * 64,
        "size": 1,
        "index": None,
    },
]
META = {
    "stack": "demo",
    "abi": "cp311",
    "platform": "linux_x86_64",
    "inputs": stack_inputs(STACK),
    "resolved": "2026-01-02",
}
LOCK = write_lock(WHEELS, META)


# --- stack files ---------------------------------------------------------------------------------


def said(old: str, new: str) -> list[str]:
    """The problems of the stack file after one replacement, without the file's name."""
    assert old in TEXT
    return [
        problem.removeprefix("catalog/stacks/demo.yml:") for problem in problems(TEXT.replace(old, new, 1))
    ]


def problems(text: str) -> list[str]:
    return stack_problems(text, "demo")


def test_a_right_stack_has_no_problems() -> None:
    assert problems(TEXT) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        pytest.param(
            "imports: [torch]",
            "imports: [torch]\nimport: [torch]",
            "28: unknown key 'import'; did you mean 'imports'?",
            id="misspelt key",
        ),
        pytest.param(
            "    torch: 2.9.0\n",
            "    torch: 2.9.0\n    touch: 1\n",
            "18: kernel.wheel: unknown key 'touch'; did you mean 'torch'?",
            id="misspelt key of a key",
        ),
        pytest.param(
            "imports: [torch]",
            "",
            "2: imports is missing: modules that must import on the node",
            id="missing key",
        ),
        pytest.param(
            '    cuda: "13"\n',
            "",
            "14: kernel.wheel: cuda is missing: the CUDA major that the wheel is linked with",
            id="missing key of a key",
        ),
        pytest.param(
            "torch: 2.9.0+cpu",
            "torch: 2.9",
            "7: torch: must be a text, not 2.9; write it in quotes",
            id="a number",
        ),
        pytest.param(
            "torch: 2.9.0+cpu",
            "torch: nightly",
            "7: torch: must be one version: a release such as 2.9.1 or 2.13.0+cpu, or a nightly",
            id="no version",
        ),
        pytest.param("title: A stack", "title:", "3: title: must be a text, not None", id="nothing"),
        pytest.param(
            "  - numpy<2.4",
            "  - numpy<2.4\n  - {a: 1}",
            "25: requirements[1]: must be a text, not {'a': 1}",
            id="an item",
        ),
        pytest.param(
            "  - numpy<2.4\n",
            "  - Torch==2.9.1\n",
            "24: requirements[0]: 'Torch==2.9.1' is pinned by a key of its own above; take it out",
            id="a pin twice",
        ),
        pytest.param(
            "name: demo", "name: other", "2: name is 'other', the file says 'demo'", id="another name"
        ),
        pytest.param(
            "  torch: own",
            "  torch: own\n  triton: lost",
            "23: from_index.triton: the index 'lost' is not among indexes (own)",
            id="index that is not named",
        ),
        pytest.param(
            "title: A stack",
            "title: A stack\ntitle: Another",
            "4: title is there twice, first in line 3",
            id="a key twice",
        ),
        pytest.param(
            "kernel:\n",
            "kernel:\n  stand_in: packaging/x\n",
            "13: kernel: must be the kernel package, one of stand_in, wheel and source, not stand_in, wheel",
            id="two kernels",
        ),
        pytest.param(
            "  version: 0.5.9",
            "  commit: " + "a" * 40,
            "11: sglang: a commit needs its repository, and a repository its commit",
            id="a commit of nothing",
        ),
        pytest.param(
            "  version: 0.5.9", "  dependencies: false", "11: sglang: version is missing", id="no version"
        ),
        pytest.param(
            "[https://example.org]", "[]", "5: sources: is empty: where the pins are from", id="no sources"
        ),
        pytest.param("sources: [", "sources: [[", "6: not YAML: ", id="not YAML"),
    ],
)
def test_what_is_wrong_in_a_stack_is_said_with_its_line(old: str, new: str, problem: str) -> None:
    (sentence,) = said(old, new)
    assert sentence.startswith(problem)


def test_every_problem_of_a_stack_is_said_at_once_in_the_order_of_the_file() -> None:
    text = (
        TEXT.replace("title:", "titel:").replace("torch: 2.9.0+cpu", "torch: 2.9").replace("[torch]", "torch")
    )
    assert [re.match(r"catalog/stacks/demo.yml:(\d+): (\w+)", line)[0][24:] for line in problems(text)] == [  # type: ignore[index]
        "2: title",
        "3: unknown",
        "7: torch",
        "27: imports",
    ]


@pytest.mark.parametrize("text", ["", "[]", "text"], ids=["nothing", "list", "text"])
def test_a_stack_that_is_no_mapping_is_a_problem(text: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith("catalog/stacks/demo.yml:1: must be a mapping of keys")


def test_the_line_of_every_key_and_item_is_known() -> None:
    lines = stack_lines(TEXT)
    assert (lines["torch"], lines["kernel.wheel.torch"], lines["requirements[0]"]) == (7, 17, 24)


def test_the_pins_of_a_stack_are_what_pip_is_asked_for() -> None:
    pins = stack_pins(STACK)
    assert pins["requirements"] == [
        "torch==2.9.0+cpu",
        "flashinfer-python==0.6.3",
        "flashinfer-cubin==0.6.3",
        "flashinfer-jit-cache==0.6.3+cu130",
        "sglang==0.5.9",
        "numpy<2.4",
    ]
    assert pins["without_dependencies"] == ["sgl-kernel==0.3.21", "uv==0.9.5"]


def test_sglang_can_go_in_without_its_dependencies() -> None:
    pins = stack_pins(changed(STACK, "sglang.dependencies", False))
    assert "sglang==0.5.9" not in pins["requirements"]
    assert pins["without_dependencies"][0] == "sglang==0.5.9"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("torch", "2.9.1"),
        ("flashinfer.version", "0.6.4"),
        ("flashinfer.jit_cache", ...),
        ("sglang.version", "0.5.10"),
        ("sglang.dependencies", False),
        ("kernel.wheel.version", "0.3.20"),
        ("indexes", {}),
        ("from_index", ...),
        ("requirements", []),
        ("without_dependencies", []),
    ],
)
def test_what_decides_the_wheels_changes_the_inputs(path: str, value: Any) -> None:
    assert stack_inputs(changed(STACK, path, value)) != stack_inputs(STACK)


@pytest.mark.parametrize(
    ("path", "value"),
    [("title", "x"), ("reason", "x"), ("imports", ["x"]), ("kernel.wheel.torch", "2.9.1"), ("dead", {})],
)
def test_what_does_not_decide_the_wheels_leaves_the_inputs(path: str, value: Any) -> None:
    assert stack_inputs(changed(STACK, path, value)) == stack_inputs(STACK)


DEAD = changed(STACK, "dead", {"reason": "torch is\ngone.", "instead": "living"})


def test_a_dead_stack_is_refused_by_name_with_the_nearest_living_one() -> None:
    for refusals in (lock_refusals(DEAD, "cp311"), lock_problems("", DEAD, "cp311", "linux_x86_64")):
        (refusal,) = refusals
        assert refusal.startswith("stack demo is dead: torch is gone. Take stack 'living' instead. ")


def test_a_dead_stack_whose_lock_was_kept_may_still_be_installed() -> None:
    assert lock_problems(LOCK, DEAD, "cp311", "linux_x86_64") == []


def test_a_commit_and_an_unfit_python_cannot_be_locked() -> None:
    stack = changed(STACK, "sglang", {"commit": "a" * 40, "repository": "https://example.org"})
    first, second = lock_refusals(stack, "cp314")
    assert first.startswith("catalog/stacks/demo.yml: sglang.commit: ")
    assert second.endswith("python is '>=3.10,<3.14', so there is no lock for Python 3.14 (cp314)")
    assert lock_refusals(STACK, "cp311") == []


# --- the CUDA toolkit -----------------------------------------------------------------------------

TOOLKIT_TEXT = TEXT.replace(
    "torch: 2.9.0+cpu\n",
    """torch: 2.9.0+cpu
cuda: "13.0"
cuda_toolkit:
  version: "13.0"
  wheels:
    - nvidia-cuda-nvcc==13.0.88
    - nvidia-cuda-crt==13.0.88
    - nvidia-nvvm==13.0.88
    - nvidia-cuda-runtime==13.0.96
    - nvidia-cuda-cccl==13.0.85
""",
    1,
)
WHEELS_KEY = TOOLKIT_TEXT[TOOLKIT_TEXT.index("  wheels:") : TOOLKIT_TEXT.index("flashinfer:")]
PART = {**WHEELS[1], "name": "nvidia-cuda-nvcc", "file": "nvidia_cuda_nvcc-13.0.88-py3-none-any.whl"}


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(WHEELS_KEY, id="wheels"),
        pytest.param("  path: /usr/local/cuda-13.0\n", id="path"),
        pytest.param("  package: cuda-toolkit-13-0\n  path: /usr/local/cuda-13.0\n", id="package"),
    ],
)
def test_a_toolkit_may_come_from_wheels_a_path_or_a_package(source: str) -> None:
    assert problems(TOOLKIT_TEXT.replace(WHEELS_KEY, source)) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        pytest.param(
            WHEELS_KEY, "", "9: cuda_toolkit: name where it comes from: wheels, path", id="no source"
        ),
        pytest.param(
            WHEELS_KEY,
            f"  path: /usr/local/cuda\n{WHEELS_KEY}",
            "12: cuda_toolkit: wheels and path are named; keep one",
            id="two sources",
        ),
        pytest.param(
            WHEELS_KEY,
            "  package: cuda-toolkit-13-0\n",
            "11: cuda_toolkit.path is missing: the folder that the package puts",
            id="a package without its folder",
        ),
        pytest.param(
            WHEELS_KEY,
            "  path: cuda\n",
            "11: cuda_toolkit.path: must be the folder of a toolkit on the host",
            id="a relative path",
        ),
        pytest.param(
            "  wheels:\n", "  wheel:\n", "11: cuda_toolkit: unknown key 'wheel'; did you mean", id="typo"
        ),
        pytest.param(
            "    - nvidia-nvvm==13.0.88\n",
            "",
            "11: cuda_toolkit.wheels: nvidia-nvvm missing; without it nothing compiles",
            id="a companion is missing",
        ),
        pytest.param(
            "crt==13.0.88",
            "crt==13.1.80",
            "13: cuda_toolkit.wheels[1]: nvidia-cuda-crt==13.1.80 is not of CUDA 13.0",
            id="a companion of another CUDA",
        ),
        pytest.param(
            "crt==13.0.88", "crt", "13: cuda_toolkit.wheels[1]: must be an exact pin such as", id="no pin"
        ),
        pytest.param(
            "    - nvidia-cuda-crt==13.0.88\n",
            "    - nvidia-cuda-crt==13.0.88\n    - nvidia_cuda_crt==13.0.48\n",
            "14: cuda_toolkit.wheels[2]: nvidia-cuda-crt is pinned twice",
            id="pinned twice",
        ),
        pytest.param(
            'cuda: "13.0"\n',
            "",
            "8: cuda_toolkit: the stack has no cuda, so nothing of it is compiled",
            id="no GPU",
        ),
        pytest.param(
            'cuda: "13.0"\n',
            'cuda: "12.8"\n',
            "10: cuda_toolkit.version: a toolkit of CUDA 13.0 compiles nothing for a torch of CUDA 12.8",
            id="another major",
        ),
    ],
)
def test_a_wrong_toolkit_is_named_with_its_line(old: str, new: str, problem: str) -> None:
    assert old in TOOLKIT_TEXT
    (sentence,) = problems(TOOLKIT_TEXT.replace(old, new, 1))
    assert sentence.removeprefix("catalog/stacks/demo.yml:")[: len(problem)] == problem


def test_pypis_wheels_of_cuda_12_are_no_toolkit() -> None:
    text = TOOLKIT_TEXT.replace('"13.0"', '"12.9"').replace(
        "nvidia-cuda-nvcc==13.0.88", "nvidia-cuda-nvcc-cu12==12.9.86"
    )
    (sentence,) = problems(text)
    assert "PyPI's wheels of CUDA 12.9 hold no nvcc; name a path or a package" in sentence


def test_a_toolkit_from_wheels_is_part_of_what_a_lock_belongs_to() -> None:
    stack = yaml.safe_load(TOOLKIT_TEXT)
    assert stack_pins(stack)["toolkit"] == stack["cuda_toolkit"]["wheels"]
    assert stack_inputs(stack) != stack_inputs(STACK)


def test_a_toolkit_of_the_host_is_not() -> None:
    stack = {**STACK, "cuda_toolkit": {"version": "13.0", "path": "/usr/local/cuda-13.0"}}
    assert stack_inputs(stack) == stack_inputs(STACK)


def test_a_lock_keeps_the_toolkits_wheels_apart() -> None:
    text = write_lock(WHEELS, META, [PART])
    lock = read_lock(text)
    assert (lock["wheels"], lock["toolkit"], lock["count"]) == (WHEELS, [PART], "3")
    assert lock_problems(text, STACK, "cp311", "linux_x86_64") == []


def test_a_lock_that_lost_a_wheel_of_the_toolkit_is_torn() -> None:
    lines = write_lock(WHEELS, META, [PART]).splitlines()
    (problem,) = lock_problems("\n".join(lines[:-2]), STACK, "cp311", "linux_x86_64")
    assert "holds 2 wheels, its header says 3: it is torn" in problem


def test_a_wheel_of_both_the_environment_and_the_toolkit_is_brought_once() -> None:
    lock = read_lock(write_lock([*WHEELS, PART], META, [PART]))
    assert lock_wheels(lock) == [PART, *WHEELS]


# --- a kernel from source -------------------------------------------------------------------------

KERNEL_KEY = TOOLKIT_TEXT[TOOLKIT_TEXT.index("kernel:") : TOOLKIT_TEXT.index("indexes:")]
SOURCE_TEXT = TOOLKIT_TEXT.replace(
    KERNEL_KEY,
    """kernel:
  source:
    repository: https://example.org/sglang
    commit: 51e5dc845
    folder: sgl-kernel
    patches: [arch-list]
    archs: [12.0a]
    build:
      - cmake==3.31.10
      - ninja==1.13.0
      - scikit-build-core==0.11.6
      - packaging==26.4
      - pathspec==1.1.1
    options: {SGL_KERNEL_COMPILE_THREADS: 1, SGL_KERNEL_ENABLE_FA3: false}
    fp4: csrc/fp4*
""",
)


def test_a_kernel_may_come_from_source_and_its_toolkit_be_the_builders_alone() -> None:
    assert problems(SOURCE_TEXT) == []
    assert problems(SOURCE_TEXT.replace('cuda: "13.0"\n', "", 1)) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        pytest.param(
            "archs: [12.0a]", "archs: [12.0]", "must be a text, not 12.0; write it in", id="a number"
        ),
        pytest.param("archs: [12.0a]", "archs: [sm_120a]", "an architecture in quotes, such as", id="a name"),
        pytest.param("    archs: [12.0a]\n", "", "kernel.source: archs is missing", id="no archs"),
        pytest.param(
            "      - cmake==3.31.10\n", "", "cmake missing; without it nothing is built", id="no cmake"
        ),
        pytest.param("cmake==3.31.10", "cmake>=3", "an exact pin such as cmake==3.31.10", id="no pin"),
        pytest.param(
            "      - ninja==1.13.0\n", "      - ninja==1.13.0\n      - ninja==1.0\n", "pinned twice"
        ),
        pytest.param("      - ninja==1.13.0\n", "      - ninja==1.13.0\n      - torch==2.9.0\n", "own; take"),
        pytest.param("THREADS: 1", "THREADS: 1 2", "a number or a text without spaces", id="a space"),
    ],
)
def test_what_is_wrong_in_a_kernels_source_is_told(old: str, new: str, problem: str) -> None:
    (found,) = problems(SOURCE_TEXT.replace(old, new))
    assert problem in found


def test_a_kernel_from_source_needs_a_toolkit() -> None:
    toolkit = SOURCE_TEXT[SOURCE_TEXT.index("cuda_toolkit:") : SOURCE_TEXT.index("flashinfer:")]
    (found,) = problems(SOURCE_TEXT.replace(toolkit, ""))
    assert "the stack has no cuda_toolkit, and a kernel is compiled with one" in found


def test_the_tools_of_a_build_are_locked_beside_the_environment() -> None:
    stack = yaml.safe_load(SOURCE_TEXT)
    assert stack_pins(stack)["build"] == stack["kernel"]["source"]["build"]
    cmake = {**PART, "name": "cmake", "file": "cmake-3.31.10-py3-none-any.whl"}
    lock = read_lock(write_lock(WHEELS, META, [PART], [cmake]))
    assert (lock["toolkit"], lock["build"], lock["count"]) == ([PART], [cmake], "4")
    assert cmake in lock_wheels(lock)
    assert cmake not in lock_wheels(lock, build=False)


# --- locks ---------------------------------------------------------------------------------------


def test_a_lock_reads_back_as_it_was_written() -> None:
    assert read_lock(LOCK) == {
        **META,
        "count": str(len(WHEELS)),
        "wheels": WHEELS,
        "toolkit": [],
        "build": [],
    }


def test_pip_could_install_from_a_lock() -> None:
    lines = [line for line in LOCK.splitlines() if not line.startswith("#")]
    assert lines[0] == f"torch==2.9.0+cpu --hash=sha256:{'a' * 64}"
    assert len(lines) == len(WHEELS)


def is_readable(text: str) -> bool:
    try:
        read_lock(text)
    except ValueError:
        return False
    return True


def test_a_lock_torn_within_an_entry_is_refused() -> None:
    first, second = LOCK.index("# torch"), LOCK.index("# typing")
    readable = {LOCK[:cut].rstrip("# \n") for cut in range(first, len(LOCK) - 1) if is_readable(LOCK[:cut])}
    assert readable == {LOCK[:first].rstrip(), LOCK[:second].rstrip()}


@pytest.mark.parametrize(
    "line",
    [
        "torch==2.9.0",
        "torch==2.9.0 --hash=sha256:abc",
        f"torch>=2.9.0 --hash=sha256:{'a' * 64}",
        f"torch==2.9.0 --hash=sha512:{'a' * 64}",
        f"torch==2.9.0 --hash=sha256:{'a' * 64} --hash=sha256:{'b' * 64}",
        "#torch",
        "-r other.txt",
    ],
)
def test_a_line_that_is_no_entry_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(ValueError, match=r"line 9 of the lock"):
        read_lock(LOCK.replace(f"torch==2.9.0+cpu --hash=sha256:{'a' * 64}", line))


def test_an_entry_without_its_file_is_refused() -> None:
    lines = [line for line in LOCK.splitlines() if not line.startswith("# torch")]
    with pytest.raises(ValueError, match="line 8"):
        read_lock("\n".join(lines))


def test_a_right_lock_has_no_problems() -> None:
    assert lock_problems(LOCK, STACK, "cp311", "linux_x86_64") == []


@pytest.mark.parametrize(
    ("text", "stack", "abi", "problem"),
    [
        pytest.param("", STACK, "cp312", "has no lock for this node", id="no lock"),
        pytest.param(LOCK, changed(STACK, "name", "next"), "cp311", "stack is 'demo'", id="another stack"),
        pytest.param(LOCK, STACK, "cp312", "abi is 'cp311', wanted 'cp312'", id="another Python"),
        pytest.param(
            LOCK, changed(STACK, "requirements", ["torch==2.9.1"]), "cp311", "inputs is", id="changed stack"
        ),
        pytest.param(write_lock([], META), STACK, "cp311", "holds no wheels", id="no wheels"),
        pytest.param(LOCK[:-9], STACK, "cp311", "line 11 of the lock is not an entry", id="torn"),
        pytest.param(
            "\n".join(LOCK.splitlines()[:-2]) + "\n", STACK, "cp311", "it is torn", id="an entry short"
        ),
        pytest.param("# abi: cp311\n", STACK, "cp311", "stack is None", id="no header"),
    ],
)
def test_a_lock_that_does_not_fit_is_refused_with_its_remedy(
    text: str, stack: dict[str, Any], abi: str, problem: str
) -> None:
    (said,) = lock_problems(text, stack, abi, "linux_x86_64")
    assert problem in said
    assert f"catalog/stacks/{lock_name(stack['name'], abi, 'linux_x86_64')}" in said
    command = f"lock.yml -e stack={stack['name']} -e lock_abi={abi} -e lock_platform=linux_x86_64"
    assert said.endswith(command)


# --- stacks without a lock -----------------------------------------------------------------------

KEPT = "/house/unlocked/demo.cp311-linux_x86_64.lock"


def test_a_stack_without_a_lock_is_said_aloud() -> None:
    line = unlocked_line("demo", LOCK, KEPT)
    assert line.startswith(
        "NOT LOCKED: stack demo has no lock, and sglang_stack_unlocked_ok is set: its 2 wheels"
    )
    assert "resolved on this controller on 2026-01-02, without review" in line
    assert f"review {KEPT} and copy it to catalog/stacks" in line


def test_a_stack_that_was_not_resolved_yet_promises_no_wheels() -> None:
    line = unlocked_line("demo", write_lock([], META), KEPT)
    assert line.startswith("NOT LOCKED: ")
    assert line.endswith("what it will install is not known yet")


def test_a_stack_is_resolved_once_for_each_kind_of_node() -> None:
    nodes = [("cp311", "linux_x86_64"), ("cp312", "linux_x86_64"), ("cp311", "linux_x86_64")]
    facts = [{"abi": abi, "platform": platform, "cores": 8} for abi, platform in nodes]
    assert node_kinds(facts) == [
        {"abi": "cp311", "platform": "linux_x86_64"},
        {"abi": "cp312", "platform": "linux_x86_64"},
    ]


# --- what is shipped -----------------------------------------------------------------------------


def test_there_is_something_in_the_catalogue() -> None:
    assert STACKS
    assert LOCKS


@pytest.mark.parametrize("path", STACKS, ids=lambda path: path.stem)
def test_a_shipped_stack_passes_its_checks(path: Path) -> None:
    stack = yaml.safe_load(path.read_text())
    assert stack_problems(path.read_text(), path.stem) == []
    stand_in = stack["kernel"].get("stand_in")
    assert stand_in is None or (ROOT / stand_in / "pyproject.toml").is_file()
    living = [other.stem for other in STACKS if "dead" not in yaml.safe_load(other.read_text())]
    assert "dead" not in stack or stack["dead"]["instead"] in living


@pytest.mark.parametrize("path", STACKS, ids=lambda path: path.stem)
def test_a_shipped_stack_is_locked_only_where_its_indexes_could_be_reached(path: Path) -> None:
    locks = [lock.name for lock in LOCKS if read_lock(lock.read_text())["stack"] == path.stem]
    assert (locks == []) == (path.stem in NEVER_LOCKED)


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_a_shipped_lock_belongs_to_its_stack(path: Path) -> None:
    lock = read_lock(path.read_text())
    stack = yaml.safe_load((path.parent / f"{lock['stack']}.yml").read_text())
    assert path.name == lock_name(lock["stack"], lock["abi"], lock["platform"])
    assert lock_problems(path.read_text(), stack, lock["abi"], lock["platform"]) == []


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_a_shipped_lock_is_whole(path: Path) -> None:
    lock = read_lock(path.read_text())
    stack = yaml.safe_load((path.parent / f"{lock['stack']}.yml").read_text())
    names = [wheel["name"] for wheel in lock["wheels"]]
    assert names == sorted(set(names))
    for wheel in lock["wheels"]:
        assert re.fullmatch(r"[0-9a-f]{64}", wheel["sha256"])
        assert wheel["size"] > 0
        assert wheel["index"] is None or wheel["index"] in stack["indexes"]
        name, version = wheel["file"].removesuffix(".whl").split("-")[:2]
        assert (name.lower().replace("_", "-").replace(".", "-"), version) == (
            wheel["name"],
            wheel["version"],
        )
    pins = stack_pins(stack)
    assert {project(line) for line in pins["requirements"] + pins["without_dependencies"]} <= set(names)
    assert "uv" in names


# --- patches -------------------------------------------------------------------------------------

PATCHES = CATALOG / "patches" / "sgl-kernel"
SIDECAR = """---
name: guards
order: 10
title: A patch
reason: for the tests
needed_when:
  tools:
    cmake: ["<3.31.7", ">=4.0,<4.0.3"]
  tree:
    - {file: CMakeLists.txt, has: '^policy'}
upstream_when:
  - {file: CMakeLists.txt, lacks: '^policy'}
sources: [https://example.org]
"""
ORDER = [
    "cmake-policy-guards",
    "cccl-include",
    "dlpack-minimum",
    "fa3-optional",
    "fa3-soft-import",
    "arch-list",
]


def folder_of_patches(tmp_path: Path, **sidecars: str) -> str:
    folder = tmp_path / "catalog" / "patches" / "demo"
    folder.mkdir(parents=True)
    for name, text in sidecars.items():
        (folder / f"{name}.yml").write_text(text)
        (folder / f"{name}.patch").write_text(f"the patch {name}\n")
    return str(folder)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "reason: for the tests\n",
            "",
            "2: reason is missing: what goes wrong without the patch, and what it does",
        ),
        ("title:", "titel:", "4: unknown key 'titel'; did you mean 'title'?"),
        (
            "order: 10",
            "order: first",
            "3: order: must be a whole number, not 'first' (its place in the series",
        ),
        ("name: guards", "name: guard", "2: name is 'guard', the file says 'guards'"),
        ("cmake:", "nvcc:", "8: needed_when.tools: unknown key 'nvcc' (known: cmake, cuda)"),
        (
            "<3.31.7",
            "3.31.7",
            "8: needed_when.tools.cmake[0]: '3.31.7' is no range of versions; write one such as \"<3.31\"",
        ),
        (
            "has: '^policy'",
            "has: '(policy'",
            "10: needed_when.tree[0].has: not a regular expression: missing )",
        ),
        (
            ", lacks: '^policy'",
            "",
            "12: upstream_when[0]: must be a file with has or lacks, or one of since and before, not file",
        ),
        ("title: A patch\n", "title: A patch\ntitle: Again\n", "5: title is there twice, first in line 4"),
        (
            "[https://example.org]",
            "[http://example.org]",
            "13: sources[0]: must be an address that starts with https://",
        ),
        ("order: 10", "order: [", "5: not YAML: "),
    ],
)
def test_what_is_wrong_beside_a_patch_is_said_with_its_line(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in SIDECAR
    folder = folder_of_patches(tmp_path, guards=SIDECAR.replace(old, new))
    problems = patch_problems(folder, ["guards"])
    assert any(problem.startswith(f"catalog/patches/demo/guards.yml:{message}") for problem in problems), (
        problems
    )


def test_a_right_patch_has_no_problem(tmp_path: Path) -> None:
    assert patch_problems(folder_of_patches(tmp_path, guards=SIDECAR), ["guards"]) == []


def test_a_patch_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder = folder_of_patches(tmp_path, guards=SIDECAR)
    assert patch_problems(folder, ["gards", "other"]) == [
        "catalog/patches/demo/gards.yml: no patch of that name; did you mean 'guards'?",
        "catalog/patches/demo/other.yml: no patch of that name (there: guards)",
    ]
    Path(folder, "guards.patch").unlink()
    assert patch_problems(folder, ["guards"]) == [
        "catalog/patches/demo/guards.patch: missing, though guards.yml describes it"
    ]


@pytest.mark.parametrize("names", [["second", "guards"], ["guards", "guards", "second"]])
def test_a_series_is_named_in_its_order(tmp_path: Path, names: list[str]) -> None:
    second = SIDECAR.replace("guards", "second").replace("order: 10", "order: 20")
    folder = folder_of_patches(tmp_path, guards=SIDECAR, second=second)
    assert patch_problems(folder, ["guards", "second"]) == []
    assert patch_problems(folder, names) == [
        "catalog/patches/demo: the series must be named in its order, each patch once: guards, second"
    ]


@pytest.mark.parametrize(
    ("cmake", "unneeded"),
    [
        ("3.26.4", ""),
        ("3.31.6", ""),
        ("3.31.7", "cmake 3.31.7 is not <3.31.7 or >=4.0,<4.0.3"),
        ("4.0.2", ""),
        ("4.4.5", "cmake 4.4.5 is not <3.31.7 or >=4.0,<4.0.3"),
    ],
)
def test_a_patch_is_needed_by_some_tools_only(tmp_path: Path, cmake: str, unneeded: str) -> None:
    folder = folder_of_patches(tmp_path, guards=SIDECAR)
    assert patch_series(folder, ["guards"], {"cmake": cmake, "cuda": "13.0"}) == [
        {
            "name": "guards",
            "text": "the patch guards\n",
            "unneeded": unneeded,
            "needed_when": [{"file": "CMakeLists.txt", "has": "^policy"}],
            "upstream_when": [{"file": "CMakeLists.txt", "lacks": "^policy"}],
        }
    ]


@pytest.mark.parametrize("tools", [{}, {"cmake": "new"}])
def test_a_tool_of_no_known_version_is_refused(tmp_path: Path, tools: dict[str, str]) -> None:
    folder = folder_of_patches(tmp_path, guards=SIDECAR)
    with pytest.raises(
        ValueError, match=r"^cmake: a version such as 3\.31\.6 is wanted, to compare with <3\.31\.7"
    ):
        patch_series(folder, ["guards"], tools)


def test_the_shipped_patches_are_right_and_whole() -> None:
    assert patch_problems(str(PATCHES), ORDER) == []
    assert sorted(path.stem for path in PATCHES.glob("*.yml")) == sorted(ORDER)
    assert sorted(path.stem for path in PATCHES.glob("*.patch")) == sorted(ORDER)
    for patch in patch_series(str(PATCHES), ORDER, {"cmake": "3.31.6", "cuda": "13.0"}):
        assert read_hunks(patch["name"], patch["text"])


@pytest.mark.parametrize("path", STACKS, ids=lambda path: path.stem)
def test_a_stacks_patches_are_shipped_in_their_order(path: Path) -> None:
    source = yaml.safe_load(path.read_text())["kernel"].get("source", {"patches": []})
    assert patch_problems(str(PATCHES), source["patches"]) == []


@pytest.mark.parametrize(
    ("cmake", "cuda", "unneeded"),
    [
        ("3.26.4", "13.0", {"dlpack-minimum"}),
        ("3.30.5", "12.9", {"cccl-include", "dlpack-minimum"}),
        ("3.31.6", "13.0", {"cmake-policy-guards", "dlpack-minimum"}),
        ("3.31.10", "13.0", {"cmake-policy-guards", "cccl-include", "dlpack-minimum"}),
        ("4.0.2", "13.0", {"cmake-policy-guards"}),
        ("4.4.5", "13.0", {"cmake-policy-guards", "cccl-include"}),
    ],
)
def test_which_shipped_patches_the_tools_do_not_need(cmake: str, cuda: str, unneeded: set[str]) -> None:
    series = patch_series(str(PATCHES), ORDER, {"cmake": cmake, "cuda": cuda})
    assert {patch["name"] for patch in series if patch["unneeded"]} == unneeded
