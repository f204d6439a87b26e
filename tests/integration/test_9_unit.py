"""What the unit refuses to start, and a server that does not run as it was asked to."""

from __future__ import annotations

import pytest
from integration.harness import Node, Playbooks, wait_for

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

# On a CPU, SGLang 0.5.9 takes pytorch's sampling whatever it was asked for.
REPLACED = {"sglang_server_options": {"sampling_backend": "flashinfer"}}
SQUATTER = (
    "systemd-run",
    "--unit",
    "squatter",
    "python3",
    "-m",
    "http.server",
    "--bind",
    "127.0.0.1",
    "30000",
)


def test_a_backend_that_sglang_replaces_at_start_is_refused_and_the_node_goes_back(
    deployed: Node, playbooks: Playbooks
) -> None:
    proved = deployed.linked("current")
    run = playbooks.run("site.yml", variables=REPLACED)
    assert run.rc != 0
    assert "sampling_backend is 'pytorch', asked was 'flashinfer'" in run.failure
    assert deployed.linked("current") == proved
    assert deployed.answer() == "OK"


def test_a_port_that_another_process_took_is_told_in_the_journal(deployed: Node) -> None:
    deployed.run("systemctl", "stop", "sglang.service")
    deployed.run(*SQUATTER)
    try:
        deployed.run("systemctl", "start", "--no-block", "sglang.service")
        journal = ("journalctl", "--unit", "sglang.service", "--lines", "20", "--output", "cat")
        told = "not started: port 30000 is taken by another process"
        wait_for(lambda: told in deployed.run(*journal), "the unit's refusal", seconds=60)
        assert deployed.unit()["ActiveState"] != "active"
    finally:
        deployed.run("systemctl", "stop", "squatter.service", "sglang.service")
        deployed.run("systemctl", "start", "sglang.service")
    wait_for(lambda: deployed.health() == "200", "the server on its port again", seconds=180)
    assert deployed.answer() == "OK"
