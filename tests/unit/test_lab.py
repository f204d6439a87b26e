"""The lab's pure parts: names, addresses, the inventory, what the root file system is made of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from lab import lab

HOME = Path("/var/tmp/some-lab")
DEBIAN = (
    'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n'
)
UBUNTU = "PRETTY_NAME='Ubuntu 24.04.2 LTS'\nID=ubuntu\nVERSION_ID=\"24.04\"\nVERSION_CODENAME=noble\n"


def one_lab(home: Path = HOME, name: str = "demo", net: int = 7) -> lab.Lab:
    return lab.Lab(home, name, net)


@pytest.mark.parametrize(("name", "number"), [("node1", 1), ("a9", 9), ("gpu-200", 200), ("x2y10", 10)])
def test_a_host_is_numbered_by_the_end_of_its_name(name: str, number: int) -> None:
    assert lab.host_number(name) == number
    assert lab.Host(one_lab(), name).address == f"10.213.7.{10 + number}"


@pytest.mark.parametrize(
    "name", ["", "node", "node0", "node01", "node201", "Node1", "1", "-a1", "a_1", "a b1", "../x1", "node1\n"]
)
def test_a_host_name_that_no_lab_can_have_is_refused_by_name(name: str) -> None:
    with pytest.raises(lab.UsageError) as caught:
        lab.host_number(name)
    assert repr(name) in str(caught.value)
    assert caught.value.exit_status == 64


@pytest.mark.parametrize("name", ["", "Demo", "1st", "a/b", "..", "a b", "x" * 32, "demo\n"])
def test_bad_lab_names_are_refused(name: str) -> None:
    with pytest.raises(lab.UsageError):
        lab.parse_lab_name(name)


def test_names_in_the_kernel_fit_and_tell_homes_and_labs_apart() -> None:
    longest = lab.Host(one_lab(net=255), "node200")
    assert longest.link.startswith(longest.lab.bridge)
    assert len(longest.link) <= 15
    assert one_lab().bridge != one_lab(home=Path("/elsewhere")).bridge
    assert one_lab().bridge != one_lab(net=8).bridge
    assert lab.is_of(one_lab(net=1))(lab.Host(one_lab(net=1), "node1").link)
    assert not lab.is_of(one_lab(net=1))(one_lab(net=11).bridge)


def test_two_hosts_of_a_lab_cannot_share_an_address(tmp_path: Path) -> None:
    there = one_lab(home=tmp_path)
    (there.folder / "hosts/node1").mkdir(parents=True)
    assert [host.name for host in lab.choose_hosts(there, ["node1", "node2", "node2"])] == ["node1", "node2"]
    with pytest.raises(lab.UsageError, match="node1"):
        lab.choose_hosts(there, ["gpu1"])


def test_hosts_are_listed_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    there = one_lab(home=tmp_path)
    for name in ("node10", "node9", "not a host"):
        (there.folder / "hosts" / name).mkdir(parents=True)
    assert [host.name for host in there.hosts()] == ["node9", "node10"]


def test_a_network_is_in_use_when_a_route_leads_into_it() -> None:
    routes = [
        "default",
        "10.0.0.0/8",
        "10.213.0.0/24",
        "10.213.2.7",
        "10.213.3.128/25",
        "172.17.0.0/16",
        "fe80::/64",
    ]
    assert lab.nets_in_use(routes) == {0, 2, 3}


def test_the_lowest_free_network_is_taken() -> None:
    assert lab.free_net(set()) == 0
    assert lab.free_net({0, 1, 3}) == 2
    with pytest.raises(lab.LabError, match="no network is free"):
        lab.free_net(set(range(256)))


def test_a_lab_keeps_what_it_was_registered_with(tmp_path: Path) -> None:
    there = one_lab(home=tmp_path, net=3)
    assert lab.load_lab(tmp_path, "demo") is None
    lab.write(there.folder / "lab.json", json.dumps({"net": 3, "route_out": False}))
    assert lab.load_lab(tmp_path, "demo") == there
    assert lab.all_labs(tmp_path) == [there]
    lab.write(there.folder / "lab.json", '{"net":')
    assert lab.load_lab(tmp_path, "demo") is None


def test_the_inventory_is_yaml_with_pinned_host_keys() -> None:
    there = one_lab()
    hosts = [lab.Host(there, "node1"), lab.Host(there, "node2")]
    group = yaml.safe_load(lab.render_inventory(there, hosts))["sglang_nodes"]
    assert group["hosts"] == {
        "node1": {"ansible_host": "10.213.7.11"},
        "node2": {"ansible_host": "10.213.7.12"},
    }
    assert group["vars"]["ansible_user"] == "deploy"
    assert group["vars"]["ansible_python_interpreter"] == "/usr/bin/python3"
    assert group["vars"]["ansible_ssh_private_key_file"] == "/var/tmp/some-lab/labs/demo/ssh/id_ed25519"
    arguments = group["vars"]["ansible_ssh_common_args"].split()
    assert "StrictHostKeyChecking=yes" in arguments
    assert "UserKnownHostsFile=/var/tmp/some-lab/labs/demo/ssh/known_hosts" in arguments


def test_the_inventory_of_an_empty_lab_has_an_empty_group() -> None:
    assert yaml.safe_load(lab.render_inventory(one_lab(), []))["sglang_nodes"]["hosts"] == {}


@pytest.mark.parametrize(
    ("text", "system"),
    [(DEBIAN, lab.System("debian", "12", "bookworm")), (UBUNTU, lab.System("ubuntu", "24.04", "noble"))],
)
def test_the_suite_is_this_machines_own(text: str, system: lab.System) -> None:
    assert lab.parse_os_release(text) == system


@pytest.mark.parametrize(
    "text", ["", DEBIAN.replace("12", "11"), UBUNTU.replace("24.04", "22.04"), "ID=fedora\nVERSION_ID=42\n"]
)
def test_an_unsupported_distribution_is_refused_by_name(text: str) -> None:
    with pytest.raises(lab.LabError) as caught:
        lab.parse_os_release(text)
    assert "debian 12, debian 13, ubuntu 24.04" in str(caught.value)
    assert "PRETTY_NAME" not in text or text.splitlines()[0].split("=")[1].strip("\"'") in str(caught.value)


def test_hosts_have_what_ansible_needs_and_no_other_way_to_install_python_packages() -> None:
    assert {"systemd-sysv", "openssh-server", "python3", "python3-apt", "sudo"} <= set(lab.PACKAGES)
    assert not {"python3-venv", "python3-pip", "pip", "uv"} & set(lab.PACKAGES)
    assert len(set(lab.PACKAGES)) == len(lab.PACKAGES)


def test_only_apt_settings_that_decide_how_archives_are_reached_are_carried() -> None:
    dump = (
        'APT::Architecture "amd64";\nAcquire::http "";\nAcquire::http::Proxy "http://proxy.example:3128";\n'
        'Acquire::Check-Valid-Until "false";\nAcquire::Languages:: "en";\nDPkg::Pre-Invoke:: "true";\n'
    )
    assert lab.apt_settings(dump) == [
        'Acquire::http::Proxy "http://proxy.example:3128";',
        'Acquire::Check-Valid-Until "false";',
    ]


def test_the_root_file_system_is_cached_by_all_of_its_inputs(tmp_path: Path) -> None:
    source = tmp_path / "debian.sources"
    source.write_text("Types: deb\n")
    debian, ubuntu = lab.parse_os_release(DEBIAN), lab.parse_os_release(UBUNTU)
    first = lab.Recipe(debian, [source], [], []).key
    assert lab.Recipe(debian, [source], [], []).key == first
    others = [
        lab.Recipe(ubuntu, [source], [], []).key,
        lab.Recipe(debian, [], [], []).key,
        lab.Recipe(debian, [source], ['Acquire::Retries "3";'], []).key,
        lab.Recipe(debian, [source], [], [source]).key,
    ]
    source.write_text("Types: deb-src\n")
    others.append(lab.Recipe(debian, [source], [], []).key)
    assert len({first, *others}) == 6


def test_a_command_line_becomes_a_request() -> None:
    verb, request = lab.parse_command_line(["--lab", "two", "exec", "node1", "--", "ls", "-l", "--", "x"], {})
    assert (verb, request.lab_name, request.hosts) == ("exec", "two", ["node1"])
    assert request.command == ["ls", "-l", "--", "x"]
    assert request.home == Path("/var/tmp/smokestack-lab")
    verb, request = lab.parse_command_line(["down", "--keep"], {"SMOKESTACK_LAB_HOME": "/srv/lab"})
    assert (verb, request.hosts, request.flags["keep"], request.home) == ("down", [], True, Path("/srv/lab"))
    verb, request = lab.parse_command_line(["up", "node1", "node2", "--route-out"], {})
    assert (request.hosts, request.flags["route_out"]) == (["node1", "node2"], True)


@pytest.mark.parametrize("home", ["relative", "/with space", "/with:colon", "/with,comma", "/"])
def test_a_home_that_mount_options_or_ssh_would_misread_is_refused(home: str) -> None:
    with pytest.raises(lab.UsageError, match="SMOKESTACK_LAB_HOME"):
        lab.parse_home(home)


@pytest.mark.parametrize(
    "arguments", [[], ["frobnicate"], ["up"], ["--lab", "X", "status"], ["up", "node1", "--frob"]]
)
def test_wrong_usage_is_one_line_and_64(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert lab.main(arguments) == 64
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("lab: ")
    assert output.err.count("\n") == 1


def test_the_inventory_has_a_stable_path(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMOKESTACK_LAB_HOME", "/srv/lab")
    assert lab.main(["--lab", "two", "inventory"]) == 0
    assert capsys.readouterr().out == "/srv/lab/labs/two/inventory/hosts.yml\n"
