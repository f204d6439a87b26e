"""The one switch between releases: it ends on a proved release or on a trial, whenever a run is killed."""

from __future__ import annotations

import functools
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import release_switch
from ansible.module_utils import durable, releases
from ansible.module_utils.releases import ReleaseError, Store, Switch

RunModule = Callable[..., dict[str, Any]]
RELEASES = ("a", "b", "c", "d")


def verdict(word: str) -> dict[str, Any]:
    return {"run_id": f"run-{word}", "verdict": word, "summary": f"it is a {word}", "finished": "2026-01-02"}


class Killed(BaseException):
    """The run ends here, as by a power cut."""


class Node:
    """A node with four releases, none of which was ever run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "opt"
        self.run = folder / "run"
        self.engine = folder / "engine" / "release"
        self.engine.parent.mkdir(parents=True)
        made_of = folder / "made_of"
        for file in ("venv/bin/python", "model/config.json"):
            (made_of / file).parent.mkdir(parents=True)
            (made_of / file).touch()
        for release in RELEASES:
            home = self.root / "releases" / release
            home.mkdir(parents=True)
            (home / "manifest.json").write_text(json.dumps({"release": release}))
            for part in ("venv", "model"):
                (home / part).symlink_to(made_of / part)

    def store(self, dry: bool = False) -> Store:
        return Store(self.root, self.run, self.engine, dry)

    def start_engine(self) -> None:
        """What the unit does when it is restarted."""
        self.engine.unlink(missing_ok=True)
        current = self.store().current
        if current:
            assert self.store().proved(current) or self.marked, "the unit would refuse to start"
            self.engine.symlink_to(self.root / "releases" / current)

    def reboot(self) -> None:
        (self.run / "trial").unlink(missing_ok=True)

    @property
    def marked(self) -> bool:
        return (self.run / "trial").exists()

    @property
    def links(self) -> tuple[str | None, str | None]:
        """What `current` and `previous` name, and nothing but what lies on disk."""
        current, previous = (
            link.readlink().name if link.is_symlink() else None
            for link in (self.root / "current", self.root / "previous")
        )
        return current, previous

    @property
    def ways(self) -> set[str]:
        """The proved releases that a run or a rollback can get at."""
        store = self.store()
        return {release for release in (store.current, store.previous) if release and store.proved(release)}

    def tree(self) -> dict[str, Any]:
        """Every path of the node, with what it holds."""
        return {
            str(path.relative_to(self.folder)): path.readlink()
            if path.is_symlink()
            else path.read_text()
            if path.is_file()
            else None
            for path in sorted(self.folder.rglob("*"))
        }

    def deploy(self, release: str, word: str = "pass") -> None:
        """A whole run: try a release out, gate it, confirm it or go back."""
        self.store().try_out(release, retry_failed=True)
        self.start_engine()
        if word in ("pass", "warn"):
            self.store().confirm(release, verdict(word))
        else:
            self.store().revert(release, verdict(word))
            self.start_engine()


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests cut runs short between steps; that a step is flushed is tested with the steps."""
    monkeypatch.setattr(durable.os, "fsync", lambda _descriptor: None)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder in memory where there is one: the tests below make some thousand small files."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture
def node(scratch: Path) -> Node:
    return Node(scratch / "node")


# --- the switch ----------------------------------------------------------------------------------


def test_a_node_without_releases_says_so(tmp_path: Path) -> None:
    facts = Store(tmp_path, tmp_path / "run", tmp_path / "release").facts()
    assert set(facts.values()) == {None, False}


def test_the_first_release_goes_on_trial(node: Node) -> None:
    assert node.store().try_out("a") == Switch(changed=True, release="a", previous=None, restart=True)
    assert node.store().facts() | {"manifest": {}} == {
        "current": "a",
        "previous": None,
        "running": None,
        "running_url": None,
        "trial": "a",
        "proved": False,
        "manifest": {},
        "verdict": None,
    }
    assert node.marked


def test_a_confirmed_release_is_proved_and_no_longer_on_trial(node: Node) -> None:
    node.store().try_out("a")
    node.start_engine()
    assert node.store().confirm("a", verdict("warn")) == Switch(True, "a", None, restart=False)
    facts = node.store().facts()
    assert (facts["trial"], facts["proved"], facts["verdict"]) == (None, True, verdict("warn"))
    assert not node.marked


def test_the_second_release_leaves_the_first_as_the_way_back(node: Node) -> None:
    node.deploy("a")
    assert node.store().try_out("b") == Switch(changed=True, release="b", previous="a", restart=True)
    node.start_engine()
    assert (node.store().running(), node.store().trial) == ("b", "b")
    assert node.store().confirm("b", verdict("pass")) == Switch(True, "b", "a", restart=False)
    assert node.links == ("b", "a")


def test_a_failed_release_is_left_for_the_one_before_and_for_that_ones_way_back(node: Node) -> None:
    node.deploy("a")
    node.deploy("b")
    node.store().try_out("c")
    node.start_engine()
    assert node.store().revert("c", verdict("fail")) == Switch(True, "b", "a", restart=True)
    assert node.links == ("b", "a")
    assert node.store().verdict("c") == verdict("fail")
    assert (node.store().journal(), node.marked) == (None, False)


def test_with_nothing_proved_a_failure_leaves_nothing_current(node: Node) -> None:
    node.store().try_out("a")
    assert node.store().revert("a", verdict("fail")) == Switch(True, None, None, restart=False)
    assert node.links == (None, None)
    assert (node.store().journal(), node.marked) == (None, False)


def test_a_proved_release_that_runs_is_left_alone(node: Node) -> None:
    node.deploy("a")
    before = node.tree()
    assert node.store().try_out("a") == Switch(changed=False, release="a", previous=None, restart=False)
    assert node.store().confirm("a", verdict("pass")) == Switch(False, "a", None, restart=False)
    assert node.tree() == before


def test_a_proved_release_that_does_not_run_is_started(node: Node) -> None:
    node.deploy("a")
    node.engine.unlink()
    assert node.store().try_out("a") == Switch(changed=False, release="a", previous=None, restart=True)


def test_the_end_of_a_switch_always_records_its_verdict(node: Node) -> None:
    node.deploy("a")
    node.deploy("b")
    node.store().try_out("a")
    later = verdict("pass") | {"run_id": "later"}
    assert node.store().confirm("a", later).changed
    assert node.store().verdict("a") == later


def test_the_state_says_where_what_runs_answers(node: Node) -> None:
    (node.root / "releases/a/manifest.json").write_text(json.dumps({"url": "http://127.0.0.1:1"}))
    assert node.store().facts()["running_url"] is None
    node.deploy("a")
    node.store().try_out("b")
    assert node.store().facts()["running_url"] == "http://127.0.0.1:1"


def test_another_verdict_is_a_change(node: Node) -> None:
    node.deploy("a")
    assert node.store().confirm("a", verdict("warn")).changed
    assert not node.store().confirm("a", verdict("warn")).changed


def test_a_trial_that_never_ended_goes_on(node: Node) -> None:
    node.deploy("a")
    node.deploy("b")
    node.store().try_out("c")
    node.start_engine()
    assert node.store().try_out("c") == Switch(changed=False, release="c", previous="b", restart=False)
    assert node.store().revert("c", verdict("fail")) == Switch(True, "b", "a", restart=True)


def test_a_trial_that_a_reboot_cut_short_may_start_again(node: Node) -> None:
    node.store().try_out("a")
    node.reboot()
    node.store().try_out("a")
    node.start_engine()
    assert node.store().running() == "a"


def test_a_third_release_after_a_trial_that_never_ended_goes_back_to_what_was_proved(node: Node) -> None:
    node.deploy("a")
    node.deploy("b")
    node.store().try_out("c")
    assert node.store().try_out("d") == Switch(changed=True, release="d", previous="b", restart=True)
    assert node.store().revert("d", verdict("fail")) == Switch(True, "b", "a", restart=True)


def test_the_old_release_after_a_trial_that_never_ended_is_simply_there_again(node: Node) -> None:
    node.deploy("a")
    node.deploy("b")
    node.store().try_out("c")
    node.start_engine()
    assert node.store().try_out("b") == Switch(changed=True, release="b", previous="a", restart=True)
    assert node.links == ("b", "a")


def test_a_rollback_goes_back_and_a_second_one_forward(node: Node) -> None:
    node.deploy("a")
    node.deploy("b")
    node.deploy("a")
    assert node.links == ("a", "b")
    node.deploy("b")
    assert node.links == ("b", "a")


def test_a_rollback_to_a_release_that_fails_now_takes_its_proof(node: Node) -> None:
    node.deploy("a")
    node.deploy("b")
    node.deploy("a", "fail")
    assert node.links == ("b", None)
    assert not node.store().proved("a")


def test_a_current_release_that_fails_without_a_trial_is_left(node: Node) -> None:
    node.deploy("a")
    node.deploy("b")
    assert node.store().revert("b", verdict("fail")) == Switch(True, "a", None, restart=True)
    assert node.links == ("a", None)
    assert node.store().revert("a", verdict("fail")) == Switch(True, None, None, restart=False)


@pytest.mark.parametrize("word", ["fail", "error"])
def test_a_failure_is_remembered_and_refused(node: Node, word: str) -> None:
    node.deploy("a")
    node.deploy("b", word)
    before = node.tree()
    with pytest.raises(ReleaseError, match=rf"b failed its gate at 2026.*it is a {word}.*retry_failed=true"):
        node.store().try_out("b")
    assert node.tree() == before


def test_a_failure_may_be_tried_again_when_asked(node: Node) -> None:
    node.deploy("b", "fail")
    assert node.store().try_out("b", retry_failed=True).changed
    node.store().confirm("b", verdict("pass"))
    assert node.store().proved("b")
    assert not node.store().try_out("b").changed


@pytest.mark.parametrize("file", ["manifest.json", "venv/bin/python", "model/config.json"])
def test_half_a_release_is_refused(node: Node, file: str) -> None:
    path = node.root / "releases/a" / file
    path.unlink()
    before = node.tree()
    with pytest.raises(ReleaseError, match=f"a is not whole.*{file}"):
        node.store().try_out("a")
    assert node.tree() == before


@pytest.mark.parametrize("step", ["confirm", "revert"])
def test_only_the_current_release_is_judged(node: Node, step: str) -> None:
    node.deploy("a")
    before = node.tree()
    with pytest.raises(ReleaseError, match=f"cannot {step} release b: the current one is a"):
        getattr(node.store(), step)("b", verdict("pass"))
    assert node.tree() == before


@pytest.mark.parametrize("word", ["fail", "error"])
def test_a_release_is_not_confirmed_by_a_failure(node: Node, word: str) -> None:
    node.store().try_out("a")
    with pytest.raises(ReleaseError, match=f"its verdict is {word}"):
        node.store().confirm("a", verdict(word))
    assert not node.store().proved("a")


def test_a_link_to_a_release_that_is_gone_counts_as_none(node: Node) -> None:
    node.deploy("a")
    (node.root / "releases/a").rename(node.root / "away")
    assert (node.store().current, node.store().facts()["proved"]) == (None, False)


# --- check mode ----------------------------------------------------------------------------------

Step = Callable[[Store], Switch]

SITUATIONS: dict[str, Callable[[Node], object]] = {
    "fresh": lambda node: None,
    "one proved": lambda node: node.deploy("a"),
    "two proved": lambda node: (node.deploy("a"), node.deploy("b")),
    "first on trial": lambda node: (node.store().try_out("c"), node.start_engine()),
    "third on trial": lambda node: (
        node.deploy("a"),
        node.deploy("b"),
        node.store().try_out("c"),
        node.start_engine(),
    ),
    "old one on trial": lambda node: (
        node.deploy("a"),
        node.deploy("b"),
        node.store().try_out("a"),
        node.start_engine(),
    ),
}
"""What led to the state that a step begins in."""

STEPS: dict[str, tuple[str, Step]] = {
    "first trial": ("fresh", lambda store: store.try_out("c")),
    "second trial": ("one proved", lambda store: store.try_out("c")),
    "third trial": ("two proved", lambda store: store.try_out("c")),
    "trial of the previous one": ("two proved", lambda store: store.try_out("a")),
    "trial after a trial": ("third on trial", lambda store: store.try_out("d")),
    "trial after the first trial": ("first on trial", lambda store: store.try_out("d")),
    "same trial again": ("third on trial", lambda store: store.try_out("c")),
    "back to the old one": ("third on trial", lambda store: store.try_out("b")),
    "first confirmed": ("first on trial", lambda store: store.confirm("c", verdict("pass"))),
    "third confirmed": ("third on trial", lambda store: store.confirm("c", verdict("pass"))),
    "old one confirmed": ("old one on trial", lambda store: store.confirm("a", verdict("warn"))),
    "first reverted": ("first on trial", lambda store: store.revert("c", verdict("fail"))),
    "third reverted": ("third on trial", lambda store: store.revert("c", verdict("fail"))),
    "old one reverted": ("old one on trial", lambda store: store.revert("a", verdict("fail"))),
    "current one reverted": ("two proved", lambda store: store.revert("b", verdict("fail"))),
    "only one reverted": ("one proved", lambda store: store.revert("a", verdict("fail"))),
}
"""A step, and the situation it begins in."""

each_step = pytest.mark.parametrize(("situation", "step"), STEPS.values(), ids=STEPS)


@each_step
def test_check_mode_says_what_would_happen_and_does_nothing(node: Node, situation: str, step: Step) -> None:
    SITUATIONS[situation](node)
    before = node.tree()
    told = step(node.store(dry=True))
    assert node.tree() == before
    assert step(node.store()) == told
    assert (node.store().current, node.store().previous) == (told.release, told.previous)


def test_check_mode_accepts_a_release_that_is_not_there_yet(node: Node) -> None:
    assert node.store(dry=True).try_out("new") == Switch(True, "new", None, restart=True)


# --- killed runs ---------------------------------------------------------------------------------


@contextmanager
def killed_before(number: int) -> Iterator[list[str]]:
    """Let the run die just before its step of this number; yields the steps that were done."""
    done: list[str] = []

    def counted(name: str, real: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(real)
        def step(*arguments: Any, **options: Any) -> object:
            if len(done) == number:
                raise Killed
            done.append(name)
            return real(*arguments, **options)

        return step

    with pytest.MonkeyPatch.context() as patch:
        for name in ("write_json", "write_text", "switch_link", "remove"):
            patch.setattr(releases, name, counted(name, getattr(releases, name)))
        patch.setattr(Store, "_allow_unproved", counted("mark", Store._allow_unproved))
        yield done


def killed_nodes(folder: Path, situation: str, step: Step) -> Iterator[Node]:
    """The node after a run that died in this step, once for each place where it can die."""
    for number in range(20):
        node = Node(folder / str(number))
        SITUATIONS[situation](node)
        with killed_before(number):
            try:
                step(node.store())
            except Killed:
                node.reboot()
            else:
                return
        yield node
    pytest.fail("the step never came to its end")


def check_rest(node: Node) -> None:
    """What holds after every whole run: nothing unproved serves, and nothing is left of the trial."""
    store = node.store()
    assert (store.current, store.previous) == node.links
    assert store.current is None or store.proved(store.current)
    assert store.previous is None or store.proved(store.previous)
    assert store.current is None or store.current != store.previous
    assert (store.journal(), store.trial, node.marked) == (None, None, False)
    assert store.running() == store.current


@each_step
def test_a_killed_step_leaves_a_way_back(scratch: Path, situation: str, step: Step) -> None:
    untouched = Node(scratch / "untouched")
    SITUATIONS[situation](untouched)
    before = untouched.ways
    step(untouched.store())
    for node in killed_nodes(scratch, situation, step):
        store = node.store()
        assert store.current in (None, store.trial) or store.proved(store.current)
        assert store.current is None or store.current != store.previous
        assert node.ways or not before or not untouched.ways


@each_step
def test_a_killed_step_ends_as_ever_when_it_is_done_again(scratch: Path, situation: str, step: Step) -> None:
    untouched = Node(scratch / "untouched")
    SITUATIONS[situation](untouched)
    untouched.reboot()
    step(untouched.store())
    for node in killed_nodes(scratch, situation, step):
        step(node.store())
        assert node.links == untouched.links
        assert (node.store().journal(), node.store().facts(), node.marked) == (
            untouched.store().journal(),
            untouched.store().facts(),
            untouched.marked,
        )


@pytest.mark.parametrize(("release", "word"), [("b", "pass"), ("c", "pass"), ("d", "fail")])
@each_step
def test_after_a_killed_step_any_release_can_be_deployed(
    scratch: Path, situation: str, step: Step, release: str, word: str
) -> None:
    for node in killed_nodes(scratch, situation, step):
        before = node.ways
        node.deploy(release, word)
        check_rest(node)
        if word == "pass":
            assert node.store().current == release
            assert node.store().previous is not None or not before - {release}
        else:
            assert node.store().current is not None or not before - {release}
            assert node.store().current != release


@each_step
def test_after_a_killed_step_a_refused_run_harms_nothing(scratch: Path, situation: str, step: Step) -> None:
    """A run that fails before its own trial goes back only from a release that is on trial."""
    for node in killed_nodes(scratch, situation, step):
        before = node.ways - {node.store().trial}
        if node.store().trial:
            node.store().revert(node.store().trial, verdict("error"))
        assert node.ways or not before


@each_step
def test_after_a_killed_step_a_rollback_finds_something_else(
    scratch: Path, situation: str, step: Step
) -> None:
    for node in killed_nodes(scratch, situation, step):
        current, previous = node.store().current, node.store().previous
        if previous:
            node.deploy(previous)
            check_rest(node)
            assert node.store().current == previous != current


@pytest.mark.parametrize("seed", range(10))
def test_no_row_of_steps_and_kills_loses_the_way_back(node: Node, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        current, before = node.store().current, node.ways
        act = chance.choice(["try", "try", "confirm", "revert"])
        with killed_before(chance.choice([0, 1, 2, 3, 4, 5, 99, 99])):
            try:
                if act == "try" or current is None:
                    node.store().try_out(chance.choice(RELEASES), retry_failed=True)
                elif act == "confirm":
                    node.store().confirm(current, verdict("pass"))
                else:
                    before -= {current}
                    node.store().revert(current, verdict("fail"))
            except Killed:
                node.reboot()
        store = node.store()
        assert store.current in (None, store.trial) or store.proved(store.current)
        assert store.current is None or store.current != store.previous
        assert node.ways or not before
    node.deploy("d")
    check_rest(node)


# --- the module ----------------------------------------------------------------------------------


@pytest.fixture
def switch(
    node: Node, run_module: RunModule, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """Run the module on the node."""
    monkeypatch.setattr(
        release_switch, "Store", functools.partial(Store, run_folder=node.run, running_link=node.engine)
    )
    return functools.partial(run_module, release_switch, root=str(node.root))


def test_the_module_reads_without_a_change(node: Node, switch: RunModule) -> None:
    node.deploy("a")
    before = node.tree()
    result = switch()
    assert (result["changed"], result["release"], result["restart"]) == (False, "a", False)
    assert result["facts"]["manifest"] == {"release": "a"}
    assert node.tree() == before


def test_the_module_says_a_change_in_check_mode_and_makes_it(node: Node, switch: RunModule) -> None:
    node.deploy("a")
    expected = {"before": "current: a\nprevious: None\n", "after": "current: b\nprevious: a\n"}
    for check in (True, False):
        result = switch(state="trial", release="b", check=check)
        assert (result["changed"], result["release"], result["restart"]) == (True, "b", True)
        assert result["diff"] == expected
        assert node.links == (("a", None) if check else ("b", "a"))
    node.start_engine()
    for check in (True, False):
        again = switch(state="trial", release="b", check=check)
        assert (again["changed"], again["restart"]) == (False, False)
        assert again["diff"]["before"] == again["diff"]["after"]


def test_the_module_keeps_the_verdict_without_the_whole_report(node: Node, switch: RunModule) -> None:
    switch(state="trial", release="a")
    report = verdict("pass") | {"probes": [], "target": {"url": "http://there"}}
    result = switch(state="confirmed", release="a", verdict=report)
    assert result["facts"]["verdict"] == verdict("pass") | {"probes": []}
    assert result["facts"]["proved"]


@pytest.mark.parametrize(
    ("stopped_at", "ready_at", "outage"),
    [
        (100.0, 110.54, {"until_ready_s": 10.5, "until_verdict_s": 30.0}),
        (100.0, None, {"until_ready_s": None, "until_verdict_s": 30.0}),
        (None, 110.0, None),
    ],
    ids=["measured", "never ready", "nothing served before"],
)
def test_the_module_keeps_how_long_the_node_did_not_serve(
    switch: RunModule, monkeypatch: pytest.MonkeyPatch, stopped_at: Any, ready_at: Any, outage: Any
) -> None:
    monkeypatch.setattr(release_switch.time, "monotonic", lambda: 130.0)
    times = {"stopped_at": stopped_at, "ready_at": ready_at}
    assert switch(**times)["not_serving"] == outage
    switch(state="trial", release="a")
    result = switch(state="confirmed", release="a", verdict=verdict("pass"), **times)
    assert result["not_serving"] == outage
    assert result["facts"]["verdict"].get("not_serving") == outage


def test_a_full_disk_is_told_in_one_sentence(switch: RunModule, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    switch(state="trial", release="a")
    monkeypatch.setattr(releases, "write_json", full)
    result = switch(state="confirmed", release="a", verdict=verdict("pass"))
    assert result["failed"]
    assert result["msg"] == "the state of the releases was not written: [Errno 28] No space left on device"


def test_the_module_goes_back(node: Node, switch: RunModule) -> None:
    node.deploy("a")
    switch(state="trial", release="b")
    result = switch(state="reverted", release="b", verdict=verdict("fail"))
    assert (result["changed"], result["release"], result["restart"]) == (True, "a", True)
    refused = switch(state="trial", release="b")
    assert refused["failed"]
    assert "release b failed its gate" in refused["msg"]
    assert switch(state="trial", release="b", retry_failed=True)["changed"]


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        ({"state": "trial"}, "release"),
        ({"state": "confirmed", "release": "a"}, "verdict"),
        ({"state": "reverted", "release": "a"}, "verdict"),
    ],
    ids=["trial", "confirmed", "reverted"],
)
def test_the_module_asks_for_what_a_state_needs(
    switch: RunModule, arguments: dict[str, str], missing: str
) -> None:
    result = switch(**arguments)
    assert result["failed"]
    assert result["msg"].endswith(f"missing: {missing}")
