"""Servers that somebody else set up are recognised by what they are, not by a word in some text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import foreign_servers
import path_removal
import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.foreign import (
    commands_of,
    container_of,
    is_image,
    is_server,
    owner_of,
    runs_server,
    server_processes,
)
from listing import uninstall_lines
from preflight import foreign_findings

RunModule = Callable[..., dict[str, Any]]
ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("words", "server"),
    [
        (["python3", "-m", "sglang.launch_server", "--port", "1"], True),
        (["/x/bin/python", "/x/lib/sglang/launch_server.py"], True),
        (["/usr/bin/python3", "/usr/local/bin/sglang", "serve", "--model-path", "m"], True),
        (["sglang", "serve"], True),
        (["python3", "-m", "sglang.bench_serving"], False),
        (["vi", "sglang.launch_server"], False),
        (["grep", "-r", "sglang serve"], False),
        (["python3", "launch_server.py"], False),
        (["ls", "/opt/sglang"], False),
        ([""], False),
        ([], False),
    ],
)
def test_a_server_is_known_by_its_arguments(words: list[str], server: bool) -> None:
    assert is_server(words) is server


@pytest.mark.parametrize(
    ("word", "image"),
    [
        ("lmsysorg/sglang:v0.5.9-cu130", True),
        ("registry.example:5000/ai/sglang@sha256:00", True),
        ("me/sglang-patched", True),
        ("sglang", False),
        ("/opt/sglang", False),
        ("./sglang", False),
        ("me/vllm:sglang", False),
        ("sglang/router", False),
    ],
)
def test_an_image_is_known_by_its_repository(word: str, image: bool) -> None:
    assert is_image(word) is image


@pytest.mark.parametrize(
    ("cgroup", "unit", "engine", "container"),
    [
        ("0::/system.slice/my-llm.service\n", "my-llm.service", None, None),
        ("0::/system.slice/my-llm.service/workers\n", "my-llm.service", None, None),
        ("0::/user.slice/user-0.slice/session-4.scope\n", "session-4.scope", None, None),
        (f"0::/system.slice/docker-{ID}.scope\n", f"docker-{ID}.scope", "docker", ID),
        (f"0::/machine.slice/libpod-{ID}.scope/container\n", f"libpod-{ID}.scope", "podman", ID),
        (f"12:cpu:/docker/{ID}\n1:name=systemd:/docker/{ID}\n", None, "docker", ID),
        (f"0::/kubepods.slice/cri-containerd-{ID}.scope\n", f"cri-containerd-{ID}.scope", "containerd", ID),
        ("0::/\n", None, None, None),
        ("", None, None, None),
    ],
)
def test_an_owner_is_read_from_the_cgroup(
    cgroup: str, unit: str | None, engine: str | None, container: str | None
) -> None:
    assert owner_of(cgroup) == {"unit": unit, "engine": engine, "container": container}


def test_running_servers_are_found_among_the_processes(tmp_path: Path) -> None:
    for pid, words in (
        ("70", ["python3", "-m", "sglang.launch_server"]),
        ("9", ["sglang", "serve"]),
        ("8", ["bash"]),
    ):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_bytes("\0".join(words).encode() + b"\0")
        (tmp_path / pid / "cgroup").write_text(f"0::/system.slice/s{pid}.service\n")
    (tmp_path / "71").mkdir()  # it ended while it was looked at
    found = [(process["pid"], process["unit"]) for process in server_processes(tmp_path)]
    assert found == [(9, "s9.service"), (70, "s70.service")]


UNIT = """\
[Service]
Environment=X=sglang
ExecStartPre=-/usr/bin/docker rm lmsysorg/sglang
ExecStart=/srv/venv/bin/python -m sglang.launch_server \\
    --model-path '/srv/my model'
"""


def test_a_units_command_line_is_read_over_its_line_breaks() -> None:
    assert commands_of(UNIT)[0][-1] == "/srv/my model"
    assert runs_server(UNIT)
    assert runs_server("ExecStart=-/usr/bin/docker run --rm --gpus all lmsysorg/sglang:latest python3 x\n")
    assert runs_server("ExecStart=sglang serve 'unclosed\n")
    assert not runs_server("# ExecStart=sglang serve\nExecStart=/usr/bin/nginx\nExecStart=\n")


def test_docker_and_podman_describe_their_containers_alike() -> None:
    docker = {
        "Id": ID,
        "Name": "/llm",
        "Config": {"Image": "lmsysorg/sglang:latest", "Entrypoint": None, "Cmd": ["bash"]},
        "State": {"Running": True},
        "HostConfig": {
            "RestartPolicy": {"Name": "always"},
            "PortBindings": {"30000/tcp": [{"HostIp": "", "HostPort": "30000"}], "1/tcp": None},
        },
    }
    wanted = {
        "engine": "docker",
        "id": ID,
        "name": "llm",
        "image": "lmsysorg/sglang:latest",
        "running": True,
        "restart": "always",
        "ports": [30000],
        "sglang": True,
    }
    assert container_of("docker", docker) == wanted
    podman = {
        **docker,
        "Name": "llm",
        "ImageName": "localhost/mine:1",
        "Config": {"Image": "localhost/mine:1", "Entrypoint": "python3 -m", "Cmd": ["sglang.launch_server"]},
    }
    assert container_of("podman", podman) == wanted | {"engine": "podman", "image": "localhost/mine:1"}
    bare = container_of("docker", {})
    assert (bare["sglang"], bare["running"], bare["restart"], bare["ports"]) == (False, False, "no", [])


# --- the module -----------------------------------------------------------------------------------


@pytest.fixture
def look(
    run_module: RunModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """Look at a host whose units lie in `units` and whose container engines are `engines`."""
    (tmp_path / "units").mkdir()
    engines: dict[str, tuple[int, str, str]] = {}

    def run_command(_module: Any, argv: list[str], **_options: Any) -> tuple[int, str, str]:
        if argv[0] == "systemctl":
            return 0, "ActiveState=inactive\nUnitFileState=enabled\n", ""
        rc, out, err = engines[argv[2]]
        return (rc, ID if argv[3] == "ps" and rc == 0 else out, err)

    monkeypatch.setattr(AnsibleModule, "run_command", run_command)
    monkeypatch.setattr(
        AnsibleModule, "get_bin_path", lambda _module, name: name if name in engines else None
    )
    monkeypatch.setattr(foreign_servers, "UNIT_FOLDERS", [str(tmp_path / "units"), str(tmp_path / "none")])
    processes: list[dict[str, Any]] = []
    monkeypatch.setattr(foreign_servers, "server_processes", lambda: iter(processes))

    def run(docker: tuple[int, str, str] | None = None, running: Any = (), **options: Any) -> dict[str, Any]:
        engines.clear()
        if docker:
            engines["docker"] = docker
        processes[:] = running
        result = run_module(
            foreign_servers, **{"root": str(tmp_path / "opt"), "user": "nobody-here", **options}
        )
        facts: dict[str, Any] = result["facts"]
        return facts

    return run


Look = Callable[..., dict[str, Any]]


def test_a_clean_host_has_nothing_foreign(look: Look) -> None:
    facts = look()
    assert facts["unit"] is None
    assert [value for key, value in facts.items() if value] == []
    assert foreign_findings(facts, 30000) == []


OUR_PROCESS = {"pid": 1, "command": "x", "unit": "sglang.service", "engine": None, "container": None}


@pytest.mark.parametrize("ours", [True, False])
def test_a_unit_of_our_name_is_ours_when_its_drop_in_is(look: Look, tmp_path: Path, ours: bool) -> None:
    (tmp_path / "units/sglang.service").write_text(UNIT)
    (tmp_path / "units/sglang.service.d").mkdir()
    target = tmp_path / ("opt/current/sglang.conf" if ours else "elsewhere")
    (tmp_path / "units/sglang.service.d/release.conf").symlink_to(target)
    facts = look(running=[OUR_PROCESS])
    assert facts["unit"]["ours"] is ours
    assert facts["units"] == []
    assert facts["processes"] == ([] if ours else [OUR_PROCESS])
    assert [found["check"] for found in foreign_findings(facts, 30000)] == ([] if ours else ["foreign unit"])


def test_units_folders_and_users_of_others_are_found(look: Look, tmp_path: Path) -> None:
    (tmp_path / "units/llm.service").write_text(UNIT)
    (tmp_path / "units/web.service").write_text("ExecStart=/usr/bin/nginx\n")
    for name in ("releases", ".git", "python", "README.md"):
        (tmp_path / "opt" / name).mkdir(parents=True)
    facts = look(user="root")
    assert facts["units"] == [
        {"name": "llm.service", "path": f"{tmp_path}/units/llm.service", "active": False, "enabled": True}
    ]
    assert facts["root_others"] == ["README.md", "python"]
    assert facts["user_home"] == "/root"
    assert {found["check"] for found in foreign_findings(facts, 30000)} == {
        "foreign folder",
        "foreign user",
        "foreign server",
    }


def test_containers_are_asked_for_and_a_silent_engine_is_named(look: Look) -> None:
    document = f'[{{"Id": "{ID}", "Name": "/llm", "Config": {{"Image": "lmsysorg/sglang"}}}}]'
    facts = look(docker=(0, document, ""))
    assert [box["name"] for box in facts["containers"]] == ["llm"]
    facts = look(docker=(1, "", "warning\nCannot connect to the Docker daemon\n"))
    assert facts["silent"] == {"docker": "Cannot connect to the Docker daemon"}
    assert [found["level"] for found in foreign_findings(facts, 30000)] == ["ok"]
    assert look(docker=(1, "", ""), containers=False)["silent"] == {}


# --- the findings ---------------------------------------------------------------------------------

NOTHING: dict[str, Any] = {
    "processes": [],
    "units": [],
    "containers": [],
    "silent": {},
    "unit": None,
    "root_others": [],
    "user_home": None,
}
BOX = {
    "engine": "docker",
    "id": ID,
    "name": "llm",
    "image": "lmsysorg/sglang",
    "running": True,
    "restart": "no",
    "ports": [],
    "sglang": True,
}
UNIT_FOUND = {"name": "llm.service", "path": "/etc/x/llm.service", "active": True, "enabled": False}
PROCESS = {"pid": 7, "command": "sglang serve", "unit": "session-4.scope", "engine": None, "container": None}


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        pytest.param(
            {"containers": [BOX]},
            ["docker container llm (image lmsysorg/sglang, running)", "docker update --restart=no llm"],
            id="container",
        ),
        pytest.param(
            {"containers": [BOX | {"running": False, "restart": "always"}]},
            ["stopped, restart policy always"],
            id="a stopped container that comes back",
        ),
        pytest.param(
            {"units": [UNIT_FOUND]},
            ["unit llm.service (active, /etc/x/llm.service)", "systemctl disable --now llm.service"],
            id="unit",
        ),
        pytest.param(
            {"processes": [PROCESS]}, ["PID 7 in session-4.scope: sglang serve", "kill 7"], id="process"
        ),
        pytest.param(
            {"processes": [PROCESS | {"unit": "own.service"}]},
            ["PID 7 in own.service", "systemctl disable --now own.service"],
            id="a process of a unit that hides its command",
        ),
        pytest.param(
            {"processes": [PROCESS | {"engine": "containerd", "container": ID, "unit": "x.scope"}]},
            ["PID 7 in containerd container 0123456789ab"],
            id="a container of an engine that was not asked",
        ),
    ],
)
def test_a_server_beside_is_refused_by_name_unless_it_may_stay(
    facts: dict[str, Any], words: list[str]
) -> None:
    [found] = foreign_findings(NOTHING | facts, 30000)
    assert found["level"] == "refuse"
    assert [word for word in [*words, "preflight_others_ok"] if word not in found["text"]] == []
    [found] = foreign_findings(NOTHING | facts, 30000, others_ok=True)
    assert found["level"] == "ok"
    assert words[0] in found["text"]


def test_one_server_is_named_once() -> None:
    inside = PROCESS | {"engine": "docker", "container": ID, "unit": f"docker-{ID}.scope"}
    assert len(foreign_findings(NOTHING | {"containers": [BOX], "processes": [inside]}, 30000)) == 1
    of_unit = PROCESS | {"unit": "llm.service"}
    assert len(foreign_findings(NOTHING | {"units": [UNIT_FOUND], "processes": [of_unit]}, 30000)) == 1


def test_a_container_on_our_port_is_always_refused() -> None:
    box = BOX | {"sglang": False, "image": "nginx", "ports": [30000]}
    [found] = foreign_findings(NOTHING | {"containers": [box]}, "30000", others_ok=True)
    assert found["level"] == "refuse"
    assert found["text"].startswith("port 30000 belongs to docker container llm")
    assert foreign_findings(NOTHING | {"containers": [box]}, 30001) == []


@pytest.mark.parametrize(
    "facts",
    [
        {"containers": [BOX | {"running": False}]},
        {"units": [UNIT_FOUND | {"active": False}]},
        {"unit": {"path": "/etc/x", "ours": True}},
    ],
    ids=["a container that stays off", "a unit that stays off", "our unit"],
)
def test_what_neither_runs_nor_comes_back_is_left(facts: dict[str, Any]) -> None:
    assert foreign_findings(NOTHING | facts, 30000) == []


# --- taking off -----------------------------------------------------------------------------------


@pytest.fixture
def deployed(tmp_path: Path) -> Path:
    (tmp_path / "opt/releases/r1").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "opt/current").symlink_to(tmp_path / "elsewhere")
    return tmp_path


def take_off(run_module: RunModule, folder: Path, check: bool = False) -> dict[str, Any]:
    paths = [str(folder / name) for name in ("opt/current", "opt/releases", "opt/none")]
    return run_module(path_removal, check=check, paths=paths, folders=[str(folder / "opt")])


def test_paths_go_with_the_folder_that_is_empty_then(run_module: RunModule, deployed: Path) -> None:
    told = take_off(run_module, deployed, check=True)
    assert (deployed / "opt/releases/r1").exists()
    result = take_off(run_module, deployed)
    assert result["removed"] == told["removed"]
    assert [Path(path).name for path in result["removed"]] == ["current", "releases", "opt"]
    assert not (deployed / "opt").exists()
    assert (deployed / "elsewhere").exists(), "what a link names is not removed"
    again = take_off(run_module, deployed)
    assert (again["changed"], again["removed"], again["left"]) == (False, [], [])


def test_a_folder_that_holds_more_stays_and_that_is_named(run_module: RunModule, deployed: Path) -> None:
    (deployed / "opt/models").mkdir()
    for check in (True, False):
        result = take_off(run_module, deployed, check)
        assert result["left"] == [str(deployed / "opt/models")]
    assert [path.name for path in (deployed / "opt").iterdir()] == ["models"]


def test_what_cannot_be_removed_is_named(
    run_module: RunModule, deployed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(16, "Device or resource busy", str(path))

    monkeypatch.setattr(path_removal, "remove", refuse)
    message = take_off(run_module, deployed)["msg"]
    assert (
        message == f"{deployed / 'opt/current'} was not removed: Device or resource busy. Run again to go on"
    )


def test_an_uninstallation_says_what_went_and_what_stays() -> None:
    lines = uninstall_lines(
        NOTHING, ["/opt/sglang/releases"], ["/opt/sglang/models", "/opt/sglang/x"], "/opt/sglang"
    )
    assert lines == [
        "removed: /opt/sglang/releases",
        "left: /opt/sglang/models (weights; remove them with -e uninstall_weights=true)",
        "left: /opt/sglang/x, which is not ours",
    ]
    theirs = NOTHING | {"unit": {"path": "/etc/u", "ours": False}, "user_home": "/home/sglang"}
    assert uninstall_lines(theirs, [], [], "/opt/sglang") == [
        "nothing of Smokestack was here",
        "left: /etc/u, which is not ours",
        "left: the user sglang (home /home/sglang), who is not ours",
    ]
