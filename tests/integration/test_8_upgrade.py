"""SGLang 0.5.9 is upgraded to 0.5.23 and rolled back while a client asks: what serves never answers wrongly.

Both engines are the real ones, from the locks of `cpu-demo` and `cpu-demo-0.5.23`. Until its verdict
a release does not count as serving, though nothing keeps a client of the node's own from asking it. On 0.5.9
with llguidance the gate's structured outputs then reach other requests of their batch:
https://github.com/sgl-project/sglang/pull/23653. On 0.5.23 they must not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from integration.harness import LAB, LAB_TOOL, MODEL, REPO, ROOT, URL, Node, Playbooks, Run, wait_for
from unit.rendered import rendered_commands
from unit.sglang_parser import FOLDER, question, read_answer

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


@dataclass(frozen=True)
class Client:
    """What the program on the node got that asks all the time."""

    out: Path

    @property
    def replies(self) -> list[Reply]:
        return [Reply(**json.loads(line)) for line in self.out.read_text().split("\n")[:-1]]

    def wait_for_answers(self, count: int) -> None:
        """Let it get so many more right answers."""

        def answers() -> int:
            return sum(reply.outcome == "right" for reply in self.replies)

        wanted = answers() + count
        wait_for(lambda: answers() >= wanted, f"{count} right answers")


@dataclass(frozen=True)
class Change:
    """A run that put another release in the place of the one that served."""

    run: Run
    release: str | None
    stopped: float
    """When the run says that what served was stopped, on the node's clock."""
    ready: float
    """When it says that the server answered again."""
    verdict: float
    """When it had the gate's verdict."""

    def __contains__(self, reply: Reply) -> bool:
        """Whether the request was on its way while the run says that the node did not serve."""
        return reply.began <= self.ready and reply.ended >= self.stopped

    def tries(self, reply: Reply) -> bool:
        """Whether the request was on its way before the verdict, and since the stop."""
        return reply.began <= self.verdict and reply.ended >= self.stopped

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
    told = node.read_json(f"{ROOT}/current/verdict.json")["not_serving"]
    return Change(run, node.linked("current"), stopped, ready, stopped + told["until_verdict_s"])


def version(node: Node) -> str:
    """The version that the running engine names."""
    return str(json.loads(node.run("curl", "--silent", f"{URL}/server_info"))["version"])


@pytest.fixture(scope="module")
def older(deployed: Node) -> Node:
    """The node with SGLang 0.5.9."""
    assert version(deployed) == "0.5.9"
    return deployed


@pytest.fixture(scope="module")
def client(older: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Asks from before the upgrade until after the way back."""
    asking = Client(tmp_path_factory.mktemp("client") / "replies")
    command = [sys.executable, str(LAB_TOOL), "--lab", LAB, "exec", older.name, "--", "python3", "-c"]
    command += [ASKER.read_text(), URL, str(PAUSE), json.dumps(QUESTION)]
    with asking.out.open("w") as out, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out) as asker:
        try:
            asking.wait_for_answers(5)
            yield asking
        finally:
            assert asker.stdin
            asker.stdin.close()  # it ends then


@pytest.fixture(scope="module")
def upgrade(client: Client, older: Node, playbooks: Playbooks) -> Change:
    return change(older, playbooks.run("site.yml", variables={"stack": NEWER}))


@pytest.fixture(scope="module")
def back(upgrade: Change, client: Client, older: Node, playbooks: Playbooks) -> Change:
    made = change(older, playbooks.run("rollback.yml"))
    client.wait_for_answers(10)
    return made


def test_the_plan_of_the_upgrade_names_both_versions_and_what_the_newer_one_wants(upgrade: Change) -> None:
    lines = upgrade.run.told
    assert f"stack: cpu-demo -> {NEWER}" in lines
    assert "sglang: 0.5.9 -> 0.5.23" in lines
    assert "launch option --grammar-backend: llguidance -> xgrammar" in lines


def test_the_newer_engine_is_gated_and_serves(upgrade: Change, older: Node) -> None:
    assert "llm_gate" in upgrade.run.actions
    assert version(older) == "0.5.23"
    assert older.linked("current") == upgrade.release


def test_the_parser_of_the_newer_engine_takes_every_command_of_the_catalogue(
    upgrade: Change, older: Node
) -> None:
    commands = rendered_commands("0.5.23")
    assert len(commands) > 5
    python = f"{ROOT}/releases/{upgrade.release}/venv/bin/python"
    told = read_answer(older.run(*question(python, commands)))
    assert (told["version"], told["refused"]) == ("0.5.23", {})
    assert told["options"] == json.loads((FOLDER / "0.5.23.json").read_text())


def test_the_way_back_is_gated_and_leads_to_the_release_before(
    upgrade: Change, back: Change, older: Node
) -> None:
    assert "llm_gate" in back.run.actions
    assert version(older) == "0.5.9"
    assert older.linked("previous") == upgrade.release


def test_no_answer_is_wrong(back: Change, client: Client) -> None:
    wrong = [reply for reply in client.replies if reply.outcome == "wrong"]
    assert [reply for reply in wrong if not back.tries(reply)] == []


def test_requests_fail_only_while_a_run_says_that_the_node_does_not_serve(
    upgrade: Change, back: Change, client: Client
) -> None:
    failed = [reply for reply in client.replies if reply.outcome == "failed"]
    assert [reply for reply in failed if reply not in upgrade and reply not in back] == []
    for way in (upgrade, back):
        assert any(reply in way for reply in failed), "the client did not see the restart: it proves nothing"


def test_the_time_without_service_that_is_told_is_the_one_that_the_client_saw(
    upgrade: Change, back: Change, client: Client, older: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    replies = client.replies
    outcomes = [reply.outcome for reply in replies]
    counts = {outcome: outcomes.count(outcome) for outcome in ("right", "wrong", "failed")}
    table: dict[str, Any] = {"requests": counts}
    for name, way in {"0.5.9 to 0.5.23": upgrade, "0.5.23 to 0.5.9": back}.items():
        told = older.read_json(f"{ROOT}/releases/{way.release}/verdict.json")["not_serving"]
        seen = way.unanswered(replies)
        table[name] = {**told, "client_without_an_answer_s": round(seen, 1)}
        assert told["until_ready_s"] == pytest.approx(way.ready - way.stopped, abs=0.1)
        # A look at health is given 5 s and the next comes 0.5 s later: the client may see the answer first.
        assert -3 < told["until_ready_s"] - seen < 6
    MEASURED.parent.mkdir(exist_ok=True)
    MEASURED.write_text(json.dumps(table, indent=2) + "\n")
    with capsys.disabled():
        print(f"\nupgrade, {MEASURED.relative_to(REPO)}: {json.dumps(table)}")
