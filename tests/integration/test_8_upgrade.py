"""SGLang 0.5.9 is upgraded to 0.5.23 and rolled back while a client asks: it never gets a wrong answer.

Both engines are the real ones, from the locks of `cpu-demo` and `cpu-demo-0.5.23`.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from integration.harness import LAB, LAB_TOOL, MODEL, REPO, ROOT, URL, Node, Playbooks, Run, wait_for

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

ASKER = REPO / "tests/integration/asker.py"
PAUSE = 0.2
QUESTION = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "What is 17*19?"}],
    "max_tokens": 64,
    "temperature": 0,
    "chat_template_kwargs": {"enable_thinking": False},
}
ANSWER = "323"
NEWER = "cpu-demo-0.5.23"
MEASURED = REPO / "build/upgrade.json"
"""What the last run of these tests measured, for people."""


@dataclass(frozen=True)
class Reply:
    began: float
    ended: float
    status: int | None
    text: str

    @property
    def outcome(self) -> str:
        """`right`, `wrong` (an answer, and not the right one) or `failed` (an error, or no reply)."""
        if self.status != 200:
            return "failed"
        return "right" if self.text.strip() == ANSWER else "wrong"  # 0.5.23 puts line breaks around it


class Client:
    """A program on the node that asks for as long as the block lasts."""

    def __init__(self, out: Path) -> None:
        self._out = out

    @contextlib.contextmanager
    def asking(self, node: Node) -> Iterator[None]:
        command = [sys.executable, str(LAB_TOOL), "--lab", LAB, "exec", node.name, "--", "python3", "-c"]
        command += [ASKER.read_text(), URL, str(PAUSE), json.dumps(QUESTION)]
        with (
            self._out.open("w") as out,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out) as asker,
        ):
            try:
                yield
            finally:
                assert asker.stdin
                asker.stdin.close()

    @property
    def replies(self) -> list[Reply]:
        return [Reply(**json.loads(line)) for line in self._out.read_text().split("\n")[:-1]]

    def has_answers(self, count: int) -> bool:
        return sum(reply.outcome == "right" for reply in self.replies) >= count


@dataclass(frozen=True)
class Change:
    """A run that put another release in the place of the one that served."""

    run: Run
    release: str | None
    stopped: float
    """When the run says that what served was stopped, on the node's clock."""
    ready: float
    """When it says that the server answered again."""

    def __contains__(self, reply: Reply) -> bool:
        """Whether the request was on its way while the run says that the node did not serve."""
        return reply.began <= self.ready and reply.ended >= self.stopped

    def unanswered(self, replies: Sequence[Reply]) -> float:
        """Seconds from the last right answer before the first failed request to the next right one."""
        right = [reply.ended for reply in replies if reply.outcome == "right"]
        failed = [reply.ended for reply in replies if reply in self and reply.outcome == "failed"]
        before = max(moment for moment in right if moment < failed[0])
        return min(moment for moment in right if moment > failed[-1]) - before


def change(node: Node, run: Run) -> Change:
    assert run.rc == 0, run.failures
    facts: dict[str, Any] = {}
    for _action, result in run.results():
        facts |= result.get("ansible_facts") or {}
    stopped, ready = facts["sglang_server_stopped_at"], facts["sglang_server_ready_at"]
    return Change(run, node.linked("current"), stopped, ready)


@dataclass(frozen=True)
class Journey:
    """To the newer engine and back, and what the client got on the way."""

    upgrade: Change
    back: Change
    first: str
    replies: Sequence[Reply]

    @property
    def changes(self) -> dict[str, Change]:
        return {"0.5.9 to 0.5.23": self.upgrade, "0.5.23 to 0.5.9": self.back}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Client:
    return Client(tmp_path_factory.mktemp("client") / "replies")


@pytest.fixture(scope="module")
def older(deployed: Node, playbooks: Playbooks) -> Node:
    """The node with SGLang 0.5.9 as the demo has it."""
    run = playbooks.run("site.yml")
    assert run.rc == 0, run.failures
    assert version(deployed) == "0.5.9"
    return deployed


def version(node: Node) -> str:
    """The version that the running engine names."""
    return str(json.loads(node.run("curl", "--silent", f"{URL}/server_info"))["version"])


@pytest.fixture(scope="module")
def journey(older: Node, playbooks: Playbooks, client: Client) -> Journey:
    first = older.linked("current")
    assert first
    with client.asking(older):
        wait_for(lambda: client.has_answers(5), "right answers before the upgrade")
        upgrade = change(older, playbooks.run("site.yml", variables={"stack": NEWER}))
        assert version(older) == "0.5.23"
        back = change(older, playbooks.run("rollback.yml"))
        assert version(older) == "0.5.9"
        count = len(client.replies)
        wait_for(lambda: len(client.replies) > count + 10, "replies after the way back")
    return Journey(upgrade, back, first, client.replies)


def test_the_plan_of_the_upgrade_names_both_versions_and_what_the_newer_one_wants(journey: Journey) -> None:
    lines = journey.upgrade.run.told
    assert f"stack: cpu-demo -> {NEWER}" in lines
    assert "sglang: 0.5.9 -> 0.5.23" in lines
    assert "launch option --grammar-backend: llguidance -> xgrammar" in lines


def test_both_ways_are_gated_and_the_way_back_is_the_release_before(journey: Journey) -> None:
    assert all("llm_gate" in way.run.actions for way in journey.changes.values())
    assert journey.upgrade.release != journey.first
    assert journey.back.release == journey.first


def test_no_answer_is_wrong(journey: Journey) -> None:
    assert [reply for reply in journey.replies if reply.outcome == "wrong"] == []


def test_requests_fail_only_while_the_run_says_that_the_node_does_not_serve(journey: Journey) -> None:
    failed = [reply for reply in journey.replies if reply.outcome == "failed"]
    ways = journey.changes.values()
    assert [reply for reply in failed if not any(reply in way for way in ways)] == []
    for way in ways:
        assert any(reply in way for reply in failed), "the client did not see the restart: it proves nothing"


def test_the_time_without_service_that_is_told_is_the_one_that_the_client_saw(
    older: Node, journey: Journey, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = {
        outcome: sum(reply.outcome == outcome for reply in journey.replies)
        for outcome in ("right", "wrong", "failed")
    }
    table: dict[str, Any] = {"requests": counts}
    for name, way in journey.changes.items():
        verdict = older.read_json(f"{ROOT}/releases/{way.release}/verdict.json")
        seen = round(way.unanswered(journey.replies), 1)
        table[name] = {**verdict["not_serving"], "client_without_an_answer_s": seen}
        assert table[name]["until_ready_s"] == pytest.approx(way.ready - way.stopped, abs=0.1)
        # The client asks every 0.2 s; health may say 200 a look later than it could have.
        assert abs(seen - (way.ready - way.stopped)) < 3
    MEASURED.parent.mkdir(exist_ok=True)
    MEASURED.write_text(json.dumps(table, indent=2) + "\n")
    with capsys.disabled():
        print(f"\nupgrade, {MEASURED.relative_to(REPO)}: {json.dumps(table)}")
