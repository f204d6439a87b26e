"""The facts that a deployment is planned by."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import host_facts
import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.listeners import listening_inodes, port_holder
from ansible.module_utils.nvidia import listed_gpus
from host_facts import existing_parent, memory_gib

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:7530 00000000:0000 0A 0:0 0:0 0 1000 0 111 1 0000 100 0 0 10 0
   1: 00000000:7530 00000000:0000 0A 0:0 0:0 0 1000 0 222 1 0000 100 0 0 10 0
   2: 0100007F:7530 0100007F:A2C4 01 0:0 0:0 0 1000 0 333 1 0000 20 4 30 10 -1
   3: 0100007F:7531 00000000:0000 0A 0:0 0:0 0 1000 0 444 1 0000 100 0 0 10 0
   4: 0100007F:75
"""
TABLE6 = """\
  sl  local_address                         remote_address                        st tx_queue ...
   0: 00000000000000000000000000000000:7530 00000000000000000000000000000000:0000 0A 0:0 0:0 0 1000 0 555 1
"""


@pytest.mark.parametrize(
    ("table", "port", "inodes"),
    [
        pytest.param(TABLE, 30000, {"111", "222"}, id="two listeners, no connection"),
        pytest.param(TABLE, 30001, {"444"}, id="another port"),
        pytest.param(TABLE, 30002, set(), id="a free port"),
        pytest.param(TABLE6, 30000, {"555"}, id="IPv6"),
        pytest.param("", 30000, set(), id="an empty table"),
    ],
)
def test_listening_sockets_are_found_by_port(table: str, port: int, inodes: set[str]) -> None:
    assert listening_inodes(table, port) == inodes


@pytest.mark.parametrize(
    ("key", "gib"), [("MemTotal", 15.62), ("MemAvailable", 1.0), ("MemFree", 0.0)], ids=str
)
def test_memory_is_read_in_gib(key: str, gib: float) -> None:
    assert memory_gib("MemTotal:       16384000 kB\nMemAvailable:    1048576 kB\n", key) == gib


def test_the_nearest_folder_that_exists_is_measured(tmp_path: Path) -> None:
    assert existing_parent(tmp_path / "a/b/c") == tmp_path
    assert existing_parent(tmp_path) == tmp_path


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket of this process that listens on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_the_holder_of_a_port_is_named(listener: socket.socket) -> None:
    holder = port_holder(listener.getsockname()[1])
    assert holder
    assert (holder["pid"], holder["name"]) == (os.getpid(), Path("/proc/self/comm").read_text().strip())
    assert holder["unit"] == Path("/proc/self/cgroup").read_text().strip().rpartition("/")[2]


def test_a_port_that_nobody_listens_on_is_free(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    listener.close()
    assert port_holder(port) is None


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc in which process 42 of the unit x.service listens on port 30000."""
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text(TABLE)
    process = tmp_path / "42"
    (process / "fd").mkdir(parents=True)
    (process / "fd/3").symlink_to("socket:[111]")
    (process / "cgroup").write_text("0::/system.slice/x.service\n")
    (process / "comm").write_text("python\n")
    return tmp_path


def test_the_unit_of_a_holder_is_the_end_of_its_control_group(proc: Path) -> None:
    assert port_holder(30000, proc) == {"name": "python", "pid": 42, "unit": "x.service"}


def test_a_file_that_is_closed_while_it_is_looked_at_does_not_hide_the_holder(proc: Path) -> None:
    for name in ("0", "1", "2", "4", "5"):
        (proc / "42/fd" / name).touch()  # no link, so that reading it fails
    holder = port_holder(30000, proc)
    assert holder
    assert holder["pid"] == 42


def test_a_process_that_ended_while_it_was_looked_at_is_unknown(proc: Path) -> None:
    (proc / "42/comm").unlink()
    assert port_holder(30000, proc) == {"name": None, "pid": None, "unit": None}


def test_the_module_reports_this_host(
    run_module: Callable[..., dict[str, Any]], listener: socket.socket, tmp_path: Path
) -> None:
    result = run_module(host_facts, port=listener.getsockname()[1], folder=str(tmp_path / "later"))
    facts = result["facts"]
    assert not result["changed"]
    assert facts["port_holder"]["pid"] == os.getpid()
    assert facts["abi"] == f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert facts["platform"] == f"linux_{os.uname().machine}"
    assert facts["cores"] == len(os.sched_getaffinity(0))
    assert facts["systemd"] == Path("/run/systemd/system").is_dir()
    assert 0 < facts["available_gib"] <= facts["memory_gib"]
    assert facts["disk_free_gib"] > 0
    assert f"ID={facts['distribution']}" in Path("/etc/os-release").read_text().replace('"', "").splitlines()


def test_the_driver_is_read_where_one_is_loaded(tmp_path: Path) -> None:
    assert host_facts.nvidia_driver(tmp_path / "version") is None
    (tmp_path / "version").write_text("580.95.05\n")
    assert host_facts.nvidia_driver(tmp_path / "version") == "580.95.05"


GPU = {"name": "NVIDIA RTX PRO 6000 Blackwell", "memory_gib": 95.59, "compute_capability": "12.0"}


@pytest.mark.parametrize(
    ("rc", "output", "gpus"),
    [
        pytest.param(0, "NVIDIA RTX PRO 6000 Blackwell, 97887, 12.0\n" * 2, [GPU, GPU], id="two"),
        pytest.param(0, "", [], id="none"),
        pytest.param(9, "NVIDIA-SMI has failed", None, id="no driver"),
        pytest.param(0, "NVIDIA RTX PRO 6000 Blackwell, [N/A], 12.0\n", None, id="no size"),
    ],
)
def test_the_gpus_are_those_that_nvidia_smi_lists(
    run_module: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    rc: int,
    output: str,
    gpus: list[dict[str, Any]] | None,
) -> None:
    asked = []

    def run_command(_module: Any, argv: list[str], **_options: Any) -> tuple[int, str, str]:
        asked.append(argv)
        return rc, output, ""

    monkeypatch.setattr(AnsibleModule, "get_bin_path", lambda _module, name: f"/usr/bin/{name}")
    monkeypatch.setattr(AnsibleModule, "run_command", run_command)
    assert run_module(host_facts)["facts"]["gpus"] == gpus
    assert [argv[0] for argv in asked] == ["/usr/bin/nvidia-smi"]


def test_without_nvidia_smi_no_gpus_were_seen(
    run_module: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AnsibleModule, "get_bin_path", lambda _module, _name: None)
    assert run_module(host_facts)["facts"]["gpus"] is None


def test_a_line_that_is_no_gpu_is_an_error() -> None:
    with pytest.raises(ValueError, match="a name, MiB and a compute capability are wanted, not 'text'"):
        listed_gpus("text")
