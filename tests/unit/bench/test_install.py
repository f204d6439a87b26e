"""What the install bench keeps, skips, computes and prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import install
import pytest
import yaml
from engine import BenchError
from install import GROUPS, TABLES, Bench, Line, Pass, Results, cell, disk_kind, locked_wheels, missing, table
from lab_nodes import Lab, Node, call, on_all, seconds_between

VALUES = {"copy_s": 20.0, "fetch_s": 5.0, "copy_bytes": 640 * 1024.0**2}
PASS = Pass("transport", 8, 1, VALUES, 0.4, "2 cores", "cpu-demo")
LINE = Line("curl / copy", "fetch_s", "copy_s")


def event(second: int, task: str, role: str | None, kind: str = "playbook_on_task_start") -> dict[str, Any]:
    data = {"task": task, "role": role, "play": "Prepare"}
    return {"event": kind, "created": f"2026-01-01T00:00:{second:02}.500000+00:00", "event_data": data}


EVENTS = [
    event(1, "Ask", "plan"),  # a task of the same name, of another role
    event(2, "Ask", "release"),
    event(3, "Ask", "release", "runner_on_ok"),
    event(4, "Follow", "progress"),
    event(9, "Free", "lease"),
    event(12, "Ask", "release"),
    event(20, "", None, "playbook_on_stats"),
]


@pytest.mark.parametrize(
    ("first", "last", "roles", "seconds"),
    [
        pytest.param("Ask", "Follow", ("release",), 2.0, id="to-a-task"),
        pytest.param("Ask", "", ("release", "progress"), 7.0, id="to-the-end-of-the-roles"),
        pytest.param("Free", "", ("lease",), 3.0, id="to-another-role"),
        pytest.param("Follow", "", ("progress", "lease", "release"), 16.0, id="to-the-end-of-the-run"),
    ],
)
def test_the_time_of_a_phase_is_between_two_starts(
    first: str, last: str, roles: tuple[str, ...], seconds: float
) -> None:
    assert seconds_between(EVENTS, first, last, roles) == seconds


def test_the_marks_of_the_phases_are_tasks_of_the_roles() -> None:
    tasks = [
        task["name"]
        for role in install.ROLES
        for path in (install.ROOT / "roles" / role / "tasks").glob("*.yml")
        for task in yaml.safe_load(path.read_text())
    ]
    for mark in (install.FIRST, install.ASK, install.INSTALL):
        assert tasks.count(mark) == 1


@pytest.mark.parametrize(
    ("first", "last", "why"),
    [
        ("Pack", "", "'Pack' cannot be told: no task of this name ran"),
        ("Ask", "Look", r"'Ask' cannot be told: no task followed it \(Look\)"),
    ],
)
def test_a_phase_that_did_not_happen_has_no_time(first: str, last: str, why: str) -> None:
    with pytest.raises(BenchError, match=why):
        seconds_between(EVENTS, first, last, ("release",))


def test_a_run_that_was_broken_off_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.jsonl"
    Results(path).add(PASS)
    Results.read(path).add(replace(PASS, load=3.0))  # measured anew
    with path.open("a", encoding="utf-8") as file:
        file.write('{"group": "transport", "no')  # a crash while it wrote
    results = Results.read(path)
    assert results.of("transport", 8) == [replace(PASS, load=3.0)]
    assert path.read_text(encoding="utf-8").endswith("}\n")

    every = [(group, nodes) for group in GROUPS for nodes in GROUPS[group][1]]
    todo = missing(results, list(GROUPS), 2)
    assert ("transport", 8, 1) not in todo
    assert ("transport", 8, 2) in todo
    assert len(todo) == 2 * len(every) - 1
    assert [number for _group, _nodes, number in todo] == sorted(number for _g, _n, number in todo)
    assert missing(results, ["transport", "upgrade"], 1, [1]) == [("transport", 1, 1), ("upgrade", 1, 1)]
    assert missing(results, ["upgrade"], 1) == [("upgrade", 1, 1)]


@pytest.mark.parametrize("line", ["7", "{}", '{"group": 1, "other": 2}', "nonsense"])
def test_a_line_that_is_no_result_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(BenchError, match="line 1: is no result"):
        Results.read(path)


@pytest.mark.parametrize(
    ("values", "line", "shown"),
    [
        pytest.param([], LINE, "not measured", id="none"),
        pytest.param([(5, 20)], LINE, "0.25", id="one"),
        # The median of the ratios, not the ratio of the medians.
        pytest.param([(5, 20), (30, 10), (4, 40)], LINE, "0.25 (0.10 to 3.00)", id="spread"),
        pytest.param([(0.1, 20)], LINE, "0.005", id="small"),
        pytest.param([(5, 20), (7, 20)], Line("curl", "fetch_s"), "6.0 s (5.0 s to 7.0 s)", id="seconds"),
        pytest.param([(5, 20)], Line("curl", "copy_bytes"), "640 MiB", id="bytes"),
    ],
)
def test_a_cell_is_the_median_and_its_spread(
    values: list[tuple[float, float]], line: Line, shown: str
) -> None:
    passes = [replace(PASS, values=VALUES | {"fetch_s": a, "copy_s": b}) for a, b in values]
    assert cell(passes, line) == shown


class FakeBench(Bench):
    """Nothing is run; every measurement takes a second, every folder holds a byte."""

    def play(self, *_arguments: Any, **_options: Any) -> list[dict[str, Any]]:
        names = (install.FIRST, install.ASK, install.INSTALL)
        return [*(event(n, name, "release") for n, name in enumerate(names)), event(9, "Free", "lease")]

    def clean(self, _nodes: Any) -> None:
        pass

    def install(self, *_arguments: Any, **_options: Any) -> float:
        return 1.0

    def size(self, *_arguments: Any) -> float:
        return 1.0


@pytest.mark.parametrize("group", list(GROUPS))
def test_every_line_of_a_table_is_measured(
    group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FakeNode(Node):
        def run(self, script: str, text: str = "") -> str:
            return "2.0 1.0" if "date" in script else "7"

    def second(*_arguments: Any) -> float:
        return 1.0

    def verdict(_node: Node) -> Mapping[str, Any]:
        return {"not_serving": {"until_ready_s": 2.0, "until_verdict_s": 3.0}}

    monkeypatch.setattr(install, "on_all", second)
    monkeypatch.setattr(install, "at_once", second)
    monkeypatch.setattr(install, "read_verdict", verdict)
    node = FakeNode("node1", "10.0.0.1", ("ssh",))
    bench = FakeBench(
        Lab((node,), tmp_path, "10.0.0.254"),
        tmp_path,
        "a",
        "b",
        [],
        "http://x/",
        tmp_path,
        lambda _text: None,
    )
    values = GROUPS[group][0](bench, [node])
    keys = {key for line in TABLES[group][1] for key in (line.key, line.base) if key}
    assert keys <= values.keys()


def test_the_table_says_what_it_was_measured_on_and_what_is_missing() -> None:
    results = Results(Path("none"))
    assert "not measured" in table(results)
    assert "Measured on" not in table(results)
    keys = {key for line in TABLES["transport"][1] for key in (line.key, line.base) if key}
    for number, load in ((1, 0.4), (2, 5.0)):
        one = replace(PASS, number=number, load=load, values=dict.fromkeys(keys, 2.0))
        results.passes["transport", 8, number] = one
    text = table(results)
    assert "| The wheels to every node | 1 node, n=0 | 8 nodes, n=2 |" in text
    assert "| the role's copy | not measured | 2.0 s (2.0 s to 2.0 s) |" in text
    assert text.endswith(
        "Measured on 2 cores, with the stack cpu-demo. The load average before a pass was 0.4 to 5.0."
    )


@pytest.mark.parametrize(
    ("name", "rotational", "kind"),
    [
        ("vda", "1", "a virtual disk"),  # a virtual disk says that it rotates, whatever it lies on
        ("nvme0n1", "0", "an NVMe disk"),
        ("sda", "0", "an SSD"),
        ("sdb", "1", "a spinning disk"),
        ("dm-0", "", "a disk of unknown kind"),
    ],
)
def test_a_disk_is_told_in_words(name: str, rotational: str, kind: str) -> None:
    assert disk_kind(name, rotational) == kind


def test_only_a_locked_stack_whose_wheels_are_there_is_measured(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"--stack sm120-0\.5\.23: catalog/stacks has no lock of it"):
        locked_wheels("sm120-0.5.23", tmp_path)
    with pytest.raises(
        BenchError, match=r"lacks \d+ of the \d+ wheels of cpu-demo, such as aiohappyeyeballs"
    ):
        locked_wheels("cpu-demo", tmp_path)


def test_a_command_that_fails_is_told_with_the_end_of_what_it_said() -> None:
    assert call(["sh", "-c", "cat"], "text") == "text"
    with pytest.raises(BenchError, match=r"ended with 3: .*no space left"):
        call(["sh", "-c", "echo no space left >&2; exit 3"])


def test_one_node_that_fails_fails_the_measurement() -> None:
    sound = Node("node1", "one", ("sh", "-c", "cat >/dev/null; :"))
    broken = Node("node2", "two", ("sh", "-c", "exit 4"))
    assert on_all([sound], "true", "text") > 0
    with pytest.raises(BenchError, match="ended with 4"):
        on_all([sound, broken], "true")


def test_a_mistaken_command_line_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as error:
        install.main(["--group", "transprot"])
    assert error.value.code == install.USAGE
    assert "invalid choice: 'transprot'" in capsys.readouterr().err
    assert install.main(["--passes", "0", "--results", str(tmp_path / "r")]) == 1
    assert "--passes must be at least 1, not 0" in capsys.readouterr().err


def test_what_is_missing_is_listed_and_nothing_is_measured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "results.jsonl"
    Results(path).add(PASS)
    assert install.main(["--list", "--group", "transport", "--passes", "1", "--results", str(path)]) == 0
    assert capsys.readouterr().out == "transport, 1 nodes, pass 1\n"


@pytest.mark.parametrize(
    ("user", "nginx", "wanted", "why"),
    [
        pytest.param(1000, True, 0, "the lab's hosts need root", id="not-root"),
        pytest.param(
            0, False, 0, "nginx does not exist: install nginx, or name it by --nginx", id="no-nginx"
        ),
        pytest.param(0, True, 10**9, r"are free, the lab's nodes need 1000000000; make room", id="full-disk"),
    ],
)
def test_what_is_missing_is_said_before_anything_is_started(
    user: int, nginx: bool, wanted: int, why: str, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    if nginx:
        (tmp_path / "nginx").touch()
    options = install.parser().parse_args(["--nginx", str(tmp_path / "nginx")])
    with pytest.raises(BenchError, match=why):
        install.refuse_what_cannot_be(options, wanted)
