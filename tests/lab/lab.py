#!/usr/bin/env python3
"""Real hosts for tests: systemd as PID 1, OpenSSH, a network of their own. No Docker, no virtual machine.

  lab.py check                        can this machine run the lab? One line for each thing missing
  lab.py deps [--print] [--route-out] install the Debian packages that are missing, or print their names
  lab.py build                        make the hosts' root file system (cached); prints its path
  lab.py up HOST.. [--route-out]      boot hosts; prints the path of the inventory
  lab.py down [HOST..] [--keep]       stop hosts cleanly (default: all); --keep keeps their disks
  lab.py reboot HOST..                clean stop, then boot from the same disk
  lab.py kill HOST..                  power cut: SIGKILL to the whole host; `up` boots its disk again
  lab.py exec HOST -- COMMAND..       run a command as root inside a host, without ssh
  lab.py status                       one line a host: name, address, up or down (tabs between)
  lab.py inventory                    print the path of the Ansible inventory (group sglang_nodes)
  lab.py clean [--all]                switch off and delete this lab; --all: all labs, the root file system

It needs root. Labs are told apart by --lab NAME, before the verb (default: demo); several run at once.
A host's name ends in a number N from 1 to 200 and its address in 10+N: node1 is 10.213.X.11, X the lab's.

A host is an overlay over the root file system, booted by systemd-nspawn in namespaces of its own (host.sh).
Without --route-out it reaches its lab's other hosts and the bridge address of this machine, no more.

Files lie under SMOKESTACK_LAB_HOME (default /var/tmp/smokestack-lab), those of a lab in labs/NAME.
Results go to stdout, progress to stderr. Exit: 0 done, 1 failed, 64 wrong usage; exec: the command's own.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import ipaddress
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

DEFAULT_HOME = "/var/tmp/smokestack-lab"
HOST_SCRIPT = Path(__file__).resolve().with_name("host.sh")
SUPPORTED = {("debian", "12"), ("debian", "13"), ("ubuntu", "24.04")}
TOOLS = ("mmdebstrap", "systemd-container", "openssh-client", "iproute2")
ROUTE_OUT_TOOLS = ("nftables",)

NET = "10.213"  # a lab's network is one /24 of this /16
USER = "deploy"
HIGHEST_HOST = 200
ROUTE_PROTOCOL = "213"  # marks our routes in the machine's table
RULE_PRIORITY = "213"

NAMESPACES = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child=KILL", "--mount-proc")

DISK_GB = 5  # root file system, and one host with an engine's virtual environment
BOOT_S = 90.0
STOP_S = 20.0
HALT = signal.SIGRTMIN + 3  # systemd as PID 1 halts the host on it

# The root file system is these four constants, the system's release, its apt settings and extra certificates:
# a change of any of them changes the key that it is cached by.
PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "libpam-systemd",
    "openssh-server",
    "python3",
    "python3-apt",
    "sudo",
    "iproute2",
    "ca-certificates",
    "procps",
    "curl",
    "libnuma1",
)
BOOTSTRAP_OPTIONS = (
    "--variant=minbase",
    "--mode=root",
    "--format=directory",
    '--aptopt=Acquire::Languages "none"',
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
)
FILES = {  # path: mode, text
    "etc/machine-id": (0o444, ""),
    "etc/resolv.conf": (0o644, ""),
    "etc/default/locale": (0o644, "LANG=C.UTF-8\n"),
    f"etc/sudoers.d/{USER}": (0o440, f"{USER} ALL=(ALL) NOPASSWD:ALL\n"),
    "etc/ssh/sshd_config.d/10-lab.conf": (
        0o644,
        "HostKey /etc/ssh/ssh_host_ed25519_key\n"
        "AuthorizedKeysFile .ssh/authorized_keys /etc/ssh/authorized_keys/%u\n"
        "PasswordAuthentication no\n"
        "PermitRootLogin no\n"
        "UseDNS no\n",
    ),
}
MASKED_UNITS = (  # what only a machine with hardware, a console or the internet needs
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "console-getty.service",
    "dev-hugepages.mount",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "getty.target",
    "motd-news.timer",
    "sys-fs-fuse-connections.mount",
    "systemd-networkd-wait-online.service",
)

LAB_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
HOST_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,40}[a-z-])?([1-9][0-9]{0,2})")
HOME_PATH = re.compile(r"/[A-Za-z0-9._/@+-]+")  # it ends up in mount options and in ssh's arguments
APT_SETTING = re.compile(r'Acquire::(?:Check-|Retries|ForceIPv|https?::)\S* "[^"]+";')


class LabError(Exception):
    """Something failed; the message says what was wanted, what came and what to do next."""

    exit_status = 1


class UsageError(LabError):
    """The command line asks for something that does not exist."""

    exit_status = 64


def say(text: str) -> None:
    print(f"lab: {text}", file=sys.stderr, flush=True)


# ---------------------------------------------------------------- names and addresses (pure)


def home_tag(home: Path) -> str:
    """Begins all our names in the kernel, so that labs of another home are never touched."""
    return "smk" + hashlib.sha256(str(home).encode()).hexdigest()[:4]


def host_number(name: str) -> int:
    """The number that a host's name ends in. Raises UsageError for a name that a lab cannot have."""
    match = HOST_NAME.fullmatch(name)
    if not match or int(match[1]) > HIGHEST_HOST:
        raise UsageError(
            f"host name {name!r}: wanted small letters, digits and hyphens, ending in a number from 1 to "
            f"{HIGHEST_HOST}, such as node1"
        )
    return int(match[1])


@dataclass(frozen=True)
class Lab:
    """A set of hosts on one bridge. `net` is the third number of its addresses."""

    home: Path
    name: str
    net: int
    route_out: bool = False

    @property
    def folder(self) -> Path:
        return lab_folder(self.home, self.name)

    @property
    def bridge(self) -> str:
        return f"{home_tag(self.home)}-{self.net}"

    @property
    def subnet(self) -> str:
        return f"{NET}.{self.net}.0/24"

    @property
    def gateway(self) -> str:
        return f"{NET}.{self.net}.1"

    def mac(self, number: int) -> str:
        """Fixed, so that nobody's neighbour table is stale after a reboot."""
        return f"02:73:6d:6b:{self.net:02x}:{number:02x}"

    @property
    def key(self) -> Path:
        return self.folder / "ssh/id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "ssh/known_hosts"

    def hosts(self) -> list[Host]:
        """Those that have a disk, running or not, by number."""
        found = (
            Host(self, path.name)
            for path in (self.folder / "hosts").glob("*")
            if HOST_NAME.fullmatch(path.name)
        )
        return sorted(found, key=lambda host: host.number)


@dataclass(frozen=True)
class Host:
    lab: Lab
    name: str

    @property
    def number(self) -> int:
        return 10 + host_number(self.name)

    @property
    def address(self) -> str:
        return f"{NET}.{self.lab.net}.{self.number}"

    @property
    def id(self) -> str:
        """Ends the supervisor's command line, by which a host is found, and names its cgroup."""
        return f"{home_tag(self.lab.home)}/{self.lab.name}/{self.name}"

    @property
    def link(self) -> str:
        """The bridge's end of its cable: at most 15 characters."""
        return f"{self.lab.bridge}-{self.number}"

    @property
    def folder(self) -> Path:
        return self.lab.folder / "hosts" / self.name

    @property
    def console(self) -> Path:
        return self.folder / "console.log"

    @property
    def host_key(self) -> Path:
        return self.folder / "upper/etc/ssh/ssh_host_ed25519_key"


def lab_folder(home: Path, name: str) -> Path:
    return home / "labs" / name


def inventory_path(home: Path, name: str) -> Path:
    return lab_folder(home, name) / "inventory/hosts.yml"


def parse_home(text: str) -> Path:
    path = str(Path(text).resolve()) if text.startswith("/") else text
    if not HOME_PATH.fullmatch(path):
        raise UsageError(
            f"SMOKESTACK_LAB_HOME is {text!r}: wanted an absolute path of letters, digits and ._@+- only"
        )
    return Path(path)


def parse_lab_name(text: str) -> str:
    if not LAB_NAME.fullmatch(text):
        raise UsageError(
            f"lab name {text!r}: wanted a small letter, then at most 30 small letters, digits and hyphens"
        )
    return text


def choose_hosts(lab: Lab, names: Iterable[str]) -> list[Host]:
    """The hosts of these names. Raises UsageError where two hosts of the lab would have the same address."""
    names = list(dict.fromkeys(names))
    owner = {host.number: host.name for host in lab.hosts()}
    for name in names:
        host = Host(lab, name)
        if owner.setdefault(host.number, name) != name:
            raise UsageError(
                f"host name {name!r}: lab {lab.name} has {owner[host.number]}, which takes the same address "
                f"({host.address}); choose another number"
            )
    return [Host(lab, name) for name in names]


def nets_in_use(routes: Iterable[str]) -> set[int]:
    """Which of our /24 networks hold a destination of these routes, as `ip -j route` names them."""
    used = set()
    whole = ipaddress.ip_network(f"{NET}.0.0/16")
    for route in routes:
        if route == "default" or ":" in route:
            continue
        net = ipaddress.ip_network(route, strict=False)
        if net.prefixlen >= 24 and net.subnet_of(whole):  # type: ignore[arg-type]
            used.add(net.network_address.packed[2])
    return used


def free_net(used: set[int]) -> int:
    for net in range(256):
        if net not in used:
            return net
    raise LabError(
        f"no network is free: all of {NET}.0.0/16 is in use; delete labs with `lab.py --lab NAME clean`"
    )


def render_inventory(lab: Lab, hosts: Sequence[Host]) -> str:
    """An Ansible inventory in YAML (strings as JSON, which YAML contains)."""
    options = {
        "UserKnownHostsFile": lab.known_hosts,
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
    }
    shared = {
        "ansible_user": USER,
        "ansible_ssh_private_key_file": str(lab.key),
        "ansible_ssh_common_args": " ".join(f"-o {name}={value}" for name, value in options.items()),
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    lines = [f"# Lab {lab.name}: written anew by every `up` and `down` of tests/lab/lab.py", "sglang_nodes:"]
    lines += ["  hosts:"] if hosts else ["  hosts: {}"]
    lines += [f"    {host.name}: {{ansible_host: {host.address}}}" for host in hosts]
    lines += ["  vars:", *(f"    {name}: {json.dumps(value)}" for name, value in shared.items())]
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- small tools


def run(*argv: str | Path, **options: Any) -> str:
    """The command's stdout. Raises LabError with its complaint when it fails."""
    done: subprocess.CompletedProcess[str]
    done = subprocess.run(argv, text=True, capture_output=True, check=False, **options)
    if done.returncode:
        complaint = (done.stderr or done.stdout).strip() or "it said nothing"
        raise LabError(f"`{' '.join(map(str, argv))}` ended with {done.returncode}: {complaint}")
    return done.stdout


def succeeds(*argv: str | Path) -> bool:
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace the file, so that a reader finds the old text or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.chmod(mode)
    new.replace(path)


def tail(path: Path, lines: int = 20) -> str:
    with contextlib.suppress(OSError):
        written = path.read_text(errors="replace").splitlines()
        return "\n".join([line for line in written if line.strip()][-lines:])
    return ""


@contextlib.contextmanager
def locked(home: Path, name: str) -> Iterator[int]:
    """Hold a lock of this home, waiting for it as long as it takes. Yields its descriptor."""
    path = home / "locks" / name
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another lab.py to finish ({path})")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):  # `clean --all` may have deleted it while we waited
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                break
        os.close(descriptor)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def delete(path: Path) -> None:
    """Delete a tree of ours, taking off mounts left in it, never following into one that stays."""
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        mount = line.split()[1]
        if mount == str(path) or mount.startswith(f"{path}/"):
            succeeds("umount", "--lazy", mount)
    run("rm", "-rf", "--one-file-system", path)


# ---------------------------------------------------------------- the machine


@dataclass(frozen=True)
class System:
    """A Linux distribution and its release."""

    id: str
    version: str
    suite: str


def parse_os_release(text: str) -> System:
    """Raises LabError for a distribution that the lab is not made for."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    fields = {name.strip(): value.strip().strip("\"'") for name, value in pairs}
    system = System(fields.get("ID", ""), fields.get("VERSION_ID", ""), fields.get("VERSION_CODENAME", ""))
    if (system.id, system.version) not in SUPPORTED or not system.suite:
        wanted = ", ".join(sorted(f"{name} {version}" for name, version in SUPPORTED))
        name = fields.get("PRETTY_NAME") or "an unknown distribution"
        raise LabError(f"this machine runs {name}; the lab needs one of: {wanted}")
    return system


def this_system() -> System:
    try:
        return parse_os_release(Path("/etc/os-release").read_text())
    except OSError as error:
        raise LabError(
            f"/etc/os-release cannot be read ({error}): the lab must know the distribution"
        ) from error


def missing_packages(route_out: bool = False) -> list[str]:
    """The names of the packages that the lab needs and dpkg does not have installed."""
    wanted = TOOLS + (ROUTE_OUT_TOOLS if route_out else ())
    if not shutil.which("dpkg-query"):
        return list(wanted)
    return [
        name
        for name in wanted
        if "ok installed"
        not in subprocess.run(
            ["dpkg-query", "-W", "-f=${Status}", name], capture_output=True, text=True, check=False
        ).stdout
    ]


def check(home: Path) -> list[str]:
    """What keeps this machine from running the lab, one sentence each. Changes nothing."""
    if sys.platform != "linux":
        return [f"this machine runs {platform.system()}; the lab needs Linux"]
    problems = []
    try:
        this_system()
    except LabError as error:
        problems.append(str(error))
    for package in missing_packages():
        if not re.search(r"Candidate: [^(\s]", apt_policy(package)):
            problems.append(
                f"package {package} is not installed and apt does not offer it: run `apt-get update`"
            )
    folder = next(path for path in (home, *home.parents) if path.is_dir())
    free = shutil.disk_usage(folder).free / 1e9
    if free < DISK_GB:
        problems.append(
            f"{folder} has {free:.1f} GB free; the lab needs {DISK_GB}: set SMOKESTACK_LAB_HOME elsewhere"
        )
    if os.geteuid():
        return [*problems, f"the lab needs root; this is user {os.geteuid()}: use sudo"]
    with tempfile.TemporaryDirectory(dir=folder, prefix=".lab-check-") as scratch:
        probe = f"/sys/fs/cgroup/{Path(scratch).name.lstrip('.')}"
        trials = {
            f"an overlay on {folder} (wanted: overlay in the kernel; a disk that is not one itself)": (
                "mkdir l u w m; mount -t overlay overlay -o lowerdir=l,upperdir=u,workdir=w m"
            ),
            "a cgroup in cgroup2 (wanted: cgroup2 in the kernel, the right to mount it)": (
                f"mount -t cgroup2 cgroup2 /sys/fs/cgroup; mkdir {probe}; rmdir {probe}"
            ),
        }
        if shutil.which("ip"):
            trials["a bridge and a veth pair (wanted: those kernel modules, CAP_NET_ADMIN)"] = (
                "ip link add br0 type bridge; ip link add v0 master br0 type veth peer name v1"
            )
        for what, script in trials.items():
            try:
                run(*NAMESPACES, "sh", "-ec", script, cwd=scratch)
            except LabError as error:
                problems.append(f"cannot make {what}: {str(error).rsplit(': ', 1)[-1].splitlines()[0]}")
    return problems


def apt_policy(package: str) -> str:
    return run("apt-cache", "policy", package) if shutil.which("apt-cache") else ""


def install_packages(names: Sequence[str]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    say(f"installing {' '.join(names)}")
    run("apt-get", "update", "-qq", env=environment)
    run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *names, env=environment)


# ---------------------------------------------------------------- the root file system


def apt_sources(system: System) -> list[Path]:
    """The files that say where this machine gets its distribution from; none: mmdebstrap's own default."""
    candidates = [Path("/etc/apt/sources.list"), Path(f"/etc/apt/sources.list.d/{system.id}.sources")]
    return [
        path for path in candidates if path.is_file() and re.search(r"(?m)^(deb |Types:)", path.read_text())
    ]


def apt_settings(dump: str) -> list[str]:
    """Those lines of `apt-config dump` that decide how archives are reached (proxies, clocks, retries)."""
    return [line for line in dump.splitlines() if APT_SETTING.fullmatch(line)]


def files_to_carry(sources: Iterable[Path]) -> list[Path]:
    """This machine's own files by which a host reaches what it reaches: certificates, mirror lists."""
    certificates = sorted(Path("/usr/local/share/ca-certificates").rglob("*.crt"))
    mirrors = [
        Path(name) for source in sources for name in re.findall(r"mirror\+file:(/\S+)", source.read_text())
    ]
    return [path for path in (*certificates, *mirrors) if path.is_file()]


@dataclass(frozen=True)
class Recipe:
    """All that the root file system is made of."""

    system: System
    sources: list[Path]
    settings: list[str]
    carried: list[Path]

    @property
    def key(self) -> str:
        inputs = [
            [self.system.id, self.system.version, self.system.suite, platform.machine()],
            [PACKAGES, BOOTSTRAP_OPTIONS, FILES, MASKED_UNITS, USER, self.settings],
            [
                [str(path), hashlib.sha256(path.read_bytes()).hexdigest()]
                for path in (*self.sources, *self.carried)
            ],
        ]
        return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:12]


def this_recipe() -> Recipe:
    system = this_system()
    sources = apt_sources(system)
    settings = apt_settings(run("apt-config", "dump"))
    return Recipe(system, sources, settings, files_to_carry(sources))


def root_path(home: Path, recipe: Recipe) -> Path:
    return home / f"rootfs-{recipe.key}"


def build(home: Path) -> Path:
    """Make the root file system, unless one with the same inputs is there, and return its path.

    It appears under its name only when complete. Others are deleted once no host's disk lies over them.
    """
    recipe = this_recipe()
    root = root_path(home, recipe)
    with locked(home, "rootfs") as lock:
        if root.is_dir():
            return root
        if missing := missing_packages():
            raise LabError(f"these packages are missing: {' '.join(missing)}; run `lab.py deps`")
        used = {link.readlink() for link in home.glob("labs/*/hosts/*/rootfs")}
        for old in set(home.glob("rootfs-*")) - used:
            delete(old)
        new, log, start = home / f"{root.name}.new", home / "build.log", time.monotonic()
        say(f"building {recipe.system.id} {recipe.system.version} in {root} (a minute or two; log: {log})")
        try:
            bootstrap(recipe, new, log, lock)
            finish_root(recipe, new)
        except LabError as error:
            raise LabError(
                f"{error}\n{tail(log)}\nThe whole log is {log}; run `lab.py build` again"
            ) from error
        new.rename(root)
        say(f"built in {time.monotonic() - start:.0f} s")
    return root


def bootstrap(recipe: Recipe, root: Path, log: Path, lock: int) -> None:
    """Run mmdebstrap. Its mounts end with it; it holds the lock as well, should it outlive us."""
    command = [
        *("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"),
        *("mmdebstrap", *BOOTSTRAP_OPTIONS, f"--include={','.join(PACKAGES)}"),
        *(f"--aptopt={setting}" for setting in recipe.settings),
        *(recipe.system.suite, str(root), *map(str, recipe.sources)),
    ]
    with log.open("w") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE, text=True, pass_fds=[lock]
        )
        try:
            assert process.stderr is not None
            for line in process.stderr:
                file.write(line)
                file.flush()
                if line.startswith("I: "):
                    say(f"  {line[3:].strip()}")
            process.wait()
        finally:
            process.kill()
            status = process.wait()
    if status:
        raise LabError(f"mmdebstrap ended with {status}")


def finish_root(recipe: Recipe, root: Path) -> None:
    """Turn a minimal installation into that of a lab host."""
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    run("chroot", root, "useradd", "--create-home", "--shell=/bin/bash", USER)
    for name, (mode, text) in FILES.items():
        write(root / name, text, mode)
    for unit in MASKED_UNITS:
        mask = root / "etc/systemd/system" / unit
        mask.unlink(missing_ok=True)
        mask.symlink_to("/dev/null")
    for path in recipe.carried:
        write(root / str(path).lstrip("/"), path.read_text())
    run("chroot", root, "update-ca-certificates")


# ---------------------------------------------------------------- the network


def ip_json(*arguments: str) -> list[dict[str, Any]]:
    answer = run("ip", "-json", *arguments)
    found: list[dict[str, Any]] = json.loads(answer) if answer.strip() else []
    return found


def links() -> set[str]:
    return {str(link["ifname"]) for link in ip_json("link", "show")}


def hold_subnet(lab: Lab) -> None:
    """With the bridge gone, nothing meant for a host may leave by the default route."""
    run("ip", "route", "replace", "unreachable", lab.subnet, "metric", "4000", "protocol", ROUTE_PROTOCOL)


def sysctl(name: str, value: str) -> None:
    """Set it, where this kernel has it."""
    with contextlib.suppress(FileNotFoundError):
        (Path("/proc/sys") / name).write_text(value)


def network_up(lab: Lab) -> None:
    """The bridge, and either a way out or none. What is there already is used."""
    hold_subnet(lab)
    present = links()
    if lab.bridge not in present:
        run("ip", "link", "add", lab.bridge, "address", lab.mac(1), "type", "bridge")
        for cable in present & {host.link for host in lab.hosts()}:  # the bridge was lost, hosts were not
            run("ip", "link", "set", cable, "master", lab.bridge)
    sysctl(f"net/ipv6/conf/{lab.bridge}/disable_ipv6", "1")
    run("ip", "address", "replace", f"{lab.gateway}/24", "dev", lab.bridge)
    run("ip", "link", "set", lab.bridge, "up")
    if lab.route_out:
        open_way_out(lab)
    elif not any(rule.get("iif") == lab.bridge for rule in ip_json("rule", "show")):
        # What comes over the bridge and is not for this machine ends here, even where this machine forwards.
        run("ip", "rule", "add", "iif", lab.bridge, "priority", RULE_PRIORITY, "unreachable")


def open_way_out(lab: Lab) -> None:
    if not shutil.which("nft"):
        raise LabError("--route-out needs nft, which is not installed: run `lab.py deps --route-out`")
    uplinks = {route["dev"] for route in ip_json("-4", "route", "show", "default") if "dev" in route}
    if not uplinks:
        raise LabError("--route-out: this machine has no default route itself")
    saved = lab.home / "forwarding.json"
    with locked(lab.home, "forwarding"):
        before = json.loads(saved.read_text()) if saved.exists() else {}
        for link in uplinks:  # of these links alone: ip_forward would open the way for everybody
            before.setdefault(link, Path(f"/proc/sys/net/ipv4/conf/{link}/forwarding").read_text().strip())
        write(saved, json.dumps(before))
        for link in (*uplinks, lab.bridge):
            sysctl(f"net/ipv4/conf/{link}/forwarding", "1")
    chain = "type nat hook postrouting priority srcnat;"
    rule = f'ip saddr {lab.subnet} oifname != "{lab.bridge}" masquerade'
    table = f"table ip {lab.bridge}"
    rules = f"{table} {{}}\ndelete {table}\n{table} {{ chain out {{ {chain} {rule}; }}; }}\n"
    run("nft", "-f", "-", input=rules)


def close_way_out(home: Path) -> None:
    """Set this machine's forwarding back, once no lab of this home has a way out."""
    saved = home / "forwarding.json"
    with locked(home, "forwarding"):
        if not saved.exists() or any(lab.route_out and lab.bridge in links() for lab in all_labs(home)):
            return
        with contextlib.suppress(ValueError):
            for link, value in json.loads(saved.read_text()).items():
                sysctl(f"net/ipv4/conf/{link}/forwarding", value)
        saved.unlink()


def network_down(home: Path, is_ours: Callable[[str], bool]) -> None:
    """Take off every bridge, cable, rule and address translation whose name is ours, if they are there."""
    if not shutil.which("ip"):
        return
    for link in filter(is_ours, links()):
        succeeds("ip", "link", "delete", link)
    for rule in ip_json("rule", "show"):
        if is_ours(str(rule.get("iif", ""))):
            succeeds("ip", "rule", "delete", "iif", rule["iif"], "priority", str(rule["priority"]))
    if shutil.which("nft"):
        for _, _, name in (line.split() for line in run("nft", "list", "tables", "ip").splitlines()):
            if is_ours(name):
                succeeds("nft", "delete", "table", "ip", name)
    close_way_out(home)


def free_subnet(subnet: str) -> None:
    succeeds("ip", "route", "delete", "unreachable", subnet, "metric", "4000", "protocol", ROUTE_PROTOCOL)


# ---------------------------------------------------------------- labs


def load_lab(home: Path, name: str) -> Lab | None:
    """The lab as it was registered; None where it was not (or not completely)."""
    try:
        data = json.loads((lab_folder(home, name) / "lab.json").read_text())
        return Lab(home, name, int(data["net"]), bool(data["route_out"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def all_labs(home: Path) -> list[Lab]:
    found = (load_lab(home, path.parent.name) for path in sorted(home.glob("labs/*/lab.json")))
    return [lab for lab in found if lab]


def register_lab(home: Path, name: str, route_out: bool) -> Lab:
    """The lab of this name, which keeps its network, or a new one with a network that nobody uses."""
    with locked(home, "networks"):
        old = load_lab(home, name)
        if (
            old
            and old.route_out != route_out
            and (running := [h.name for h in old.hosts() if h.id in supervisors(home)])
        ):
            mode = "with" if old.route_out else "without"
            raise LabError(
                f"lab {name} runs {mode} --route-out and {' '.join(running)} is up: use the same again, "
                f"take the lab down first, or choose another --lab"
            )
        if old:
            net = old.net
        else:
            routes = [str(route["dst"]) for route in ip_json("-4", "route", "show", "table", "all")]
            net = free_net(nets_in_use(routes) | {lab.net for lab in all_labs(home)})
        lab = Lab(home, name, net, route_out)
        if lab != old:
            write(lab.folder / "lab.json", json.dumps({"net": net, "route_out": route_out}) + "\n")
        hold_subnet(lab)  # inside the lock: labs of other homes see by it that the network is taken
    return lab


def write_inventory(lab: Lab) -> None:
    """The inventory and the pinned host keys of all hosts that have a disk."""
    hosts = [host for host in lab.hosts() if host.host_key.is_file()]
    lines = []
    for host in hosts:
        kind, key = host.host_key.with_suffix(".pub").read_text().split()[:2]
        lines.append(f"{host.address} {kind} {key}\n")
    write(lab.known_hosts, "".join(lines), 0o600)
    write(inventory_path(lab.home, lab.name), render_inventory(lab, hosts))


# ---------------------------------------------------------------- hosts


def supervisors(home: Path) -> dict[str, int]:
    """The running hosts of this home: id to PID of the process that holds the host's namespaces.

    Found by command line, not by PID file: a PID may long belong to somebody else.
    """
    prefix = home_tag(home) + "/"
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            if words[0] == "unshare" and words[-1].startswith(prefix):
                found[words[-1]] = int(path.parent.name)
    return found


def leader(supervisor: int) -> int | None:
    """The PID of the host's own PID 1, seen from here; None while there is none."""
    queue = [supervisor]
    while queue:
        pid = queue.pop()
        with contextlib.suppress(OSError):
            queue += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
            match = re.search(r"^NSpid:\t(.*)$", Path(f"/proc/{pid}/status").read_text(), re.M)
            if match and len(match[1].split()) == 3 and match[1].split()[2] == "1":
                return pid  # three levels: this machine, host.sh, the host
    return None


def inside(pid: int, *command: str) -> list[str]:
    """The command line that runs `command` as root in the host whose PID 1 is `pid`."""
    paths = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    environment = [f"PATH={paths}", "HOME=/root", "LANG=C.UTF-8", f"TERM={os.environ.get('TERM', 'dumb')}"]
    namespaces = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd"]
    return ["nsenter", f"--target={pid}", *namespaces, "env", "-i", *environment, *command]


def make_disk(host: Host) -> None:
    """What tells this host from the others, laid over the root file system; an old disk keeps its own."""
    upper = host.folder / "upper"
    if not host.host_key.is_file():
        root = root_path(host.lab.home, this_recipe())
        if not root.is_dir():
            raise LabError(f"there is no root file system for this machine ({root}): run `lab.py build`")
        delete(host.folder)
        for name in ("upper", "work", "merged"):
            (host.folder / name).mkdir(parents=True)
        (host.folder / "rootfs").symlink_to(root)
        write(upper / "etc/machine-id", uuid.uuid4().hex + "\n", 0o444)
        write(upper / "etc/hostname", f"{host.name}\n")
        write(upper / "etc/hosts", f"127.0.0.1 localhost\n::1 localhost\n{host.address} {host.name}\n")
        write(upper / f"etc/ssh/authorized_keys/{USER}", host.lab.key.with_suffix(".pub").read_text())
        make_key(host.host_key, f"root@{host.name}")
    write(
        upper / "etc/resolv.conf", name_servers() if host.lab.route_out else "# this host has no route out\n"
    )


def make_key(path: Path, comment: str) -> None:
    """An SSH key pair; the private half gets its name last, so where it is both are whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name("new-key")
    for half in (new, new.with_suffix(".pub")):
        half.unlink(missing_ok=True)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", new)
    new.with_suffix(".pub").replace(path.with_suffix(".pub"))
    new.replace(path)


def name_servers() -> str:
    """This machine's resolv.conf, without servers that only this machine can reach."""
    files = [Path("/run/systemd/resolve/resolv.conf"), Path("/etc/resolv.conf")]
    text = next((path.read_text() for path in files if path.is_file()), "")
    return "".join(
        line + "\n" for line in text.splitlines() if not re.match(r"nameserver\s+(127\.|::1)", line)
    )


def boot(host: Host) -> None:
    """Start a host that has a disk and is not running. Does not wait for it."""
    arguments = [(host.folder / "rootfs").readlink(), host.folder, host.address]
    arguments += [host.lab.gateway if host.lab.route_out else "none", host.id]
    with host.console.open("wb") as console:
        process: subprocess.Popen[bytes] = subprocess.Popen(
            [
                *(*NAMESPACES, "sh", str(HOST_SCRIPT), *map(str, arguments)),
            ],
            stdin=subprocess.PIPE,
            stdout=console,
            stderr=console,
            start_new_session=True,  # a Ctrl-C here is not for the host
            cwd="/",
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
        )
    ours = Path("/proc/self/ns/net").readlink()
    while process.poll() is None and Path(f"/proc/{process.pid}/ns/net").readlink() == ours:
        time.sleep(0.005)
    peer = ["peer", "name", "eth0", "address", host.lab.mac(host.number), "netns", str(process.pid)]
    try:
        run("ip", "link", "add", host.link, "type", "veth", *peer)
        run("ip", "link", "set", host.link, "master", host.lab.bridge, "up")
        assert process.stdin is not None
        with process.stdin as pipe:
            pipe.write(b"go\n")
    except (LabError, BrokenPipeError) as error:
        process.kill()
        raise LabError(f"{host.name} did not start: {error}\n{tail(host.console)}") from error


def wait_until_up(host: Host) -> None:
    """Return when systemd has booted and sshd answers. Raises LabError with the console's last lines."""
    deadline = time.monotonic() + BOOT_S
    state = "no answer"
    while state not in ("running", "degraded"):
        supervisor = supervisors(host.lab.home).get(host.id)
        if not supervisor or time.monotonic() > deadline:
            what = f"is not up after {BOOT_S:.0f} s ({state})" if supervisor else "ended while booting"
            raise LabError(f"{host.name} {what}; its console, {host.console}, ends:\n{tail(host.console)}")
        time.sleep(0.05)
        pid = leader(supervisor)
        if pid and ssh_answers(host.address):
            state = system_state(pid) or state
    say(f"{host.name} is up at {host.address}" + (", with failed units" if state == "degraded" else ""))


def ssh_answers(address: str) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, 22), timeout=2) as connection:
        return connection.recv(4) == b"SSH-"
    return False


def system_state(pid: int) -> str:
    command = inside(pid, "systemctl", "is-system-running", "--wait")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BOOT_S)
    except subprocess.TimeoutExpired:
        return "still booting"
    return done.stdout.strip()


def send(pid: int | None, number: int) -> None:
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def stop(home: Path, ids: Iterable[str], patience_s: float) -> None:
    """Halt these hosts together, if they run; at once with SIGKILL what still runs after `patience_s`."""
    ids = set(ids)
    deadline = time.monotonic() + patience_s
    asked = 0.0
    while running := {name: pid for name, pid in supervisors(home).items() if name in ids}:
        now = time.monotonic()
        shown = " ".join(name.partition("/")[2] for name in running)  # lab/host
        if now > deadline + 5:
            raise LabError(f"{shown}: still there 5 s after SIGKILL (PIDs {list(running.values())})")
        if now >= deadline:
            if patience_s:
                say(f"{shown}: no clean stop within {patience_s:.0f} s, killing")
            for pid in running.values():
                send(pid, signal.SIGKILL)
        elif now - asked > 2:  # asked again, as a host that has hardly begun to boot does not listen yet
            asked = now
            for pid in running.values():
                send(leader(pid), HALT)
        time.sleep(0.05)


def sweep(ids: Iterable[str]) -> None:
    """Remove the cgroups of these hosts (or of a whole lab or home), killing what may be left in them."""
    script = """
    mount -t cgroup2 cgroup2 /sys/fs/cgroup && cd /sys/fs/cgroup || exit 1
    for id; do
      [ -d "$id" ] || continue
      echo 1 >"$id/cgroup.kill" || :
      for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        find "$id" -depth -type d -exec rmdir {} + 2>/dev/null && break
        sleep 0.05
      done
      [ ! -d "$id" ] || { echo "cgroup $id does not empty" >&2; exit 1; }
      while parent=${id%/*}; [ "$parent" != "$id" ]; do rmdir "$parent" 2>/dev/null || break; id=$parent; done
    done
    """
    run("unshare", "--mount", "sh", "-c", script, "sweep", *ids)


def cut_off(hosts: Sequence[Host]) -> None:
    """Remove what a stopped or dead host left behind in the kernel."""
    present = links()
    for host in hosts:
        if host.link in present:
            succeeds("ip", "link", "delete", host.link)
    sweep(host.id for host in hosts)


# ---------------------------------------------------------------- verbs


@dataclass(frozen=True)
class Request:
    """One command line."""

    home: Path
    lab_name: str
    hosts: list[str]
    command: list[str]
    flags: Mapping[str, bool]

    def lab(self) -> Lab:
        lab = load_lab(self.home, self.lab_name)
        if not lab:
            raise UsageError(
                f"there is no lab {self.lab_name}: make it with `lab.py --lab {self.lab_name} up node1`"
            )
        return lab

    def existing_hosts(self) -> list[Host]:
        lab = self.lab()
        have = {host.name: host for host in lab.hosts()}
        for name in self.hosts:
            if name not in have:
                raise UsageError(f"lab {lab.name} has no host {name}; it has: {' '.join(have) or 'none'}")
        return [have[name] for name in dict.fromkeys(self.hosts)]


def verb_check(request: Request) -> int:
    problems = check(request.home)
    for problem in problems:
        say(problem)
    if not problems:
        say("this machine can run the lab")
    return 1 if problems else 0


def verb_deps(request: Request) -> int:
    missing = missing_packages(request.flags["route_out"])
    if request.flags["print"]:
        print("".join(f"{name}\n" for name in missing), end="")
    elif missing:
        install_packages(missing)
    return 0


def verb_build(request: Request) -> int:
    print(build(request.home))
    return 0


def verb_up(request: Request) -> int:
    for name in request.hosts:
        host_number(name)
    with locked(request.home, f"lab-{request.lab_name}"):
        lab = register_lab(request.home, request.lab_name, request.flags["route_out"])
        hosts = choose_hosts(lab, request.hosts)
        if not lab.key.is_file():
            make_key(lab.key, f"lab {lab.name}")
        running = supervisors(request.home)
        start_hosts(lab, [host for host in hosts if host.id not in running])
        for host in hosts:
            wait_until_up(host)
        print(inventory_path(lab.home, lab.name))
    return 0


def start_hosts(lab: Lab, hosts: Sequence[Host]) -> None:
    """Boot hosts that are not running, and put the lab's network right for those that are."""
    for host in hosts:
        make_disk(host)
    running = supervisors(lab.home)
    if not any(host.id in running for host in lab.hosts()):
        network_down(lab.home, is_of(lab))  # nobody uses it: whatever state it was left in, begin anew
    network_up(lab)
    cut_off(hosts)
    for host in hosts:
        boot(host)
    write_inventory(lab)


def verb_down(request: Request) -> int:
    for name in request.hosts:
        host_number(name)
    with locked(request.home, f"lab-{request.lab_name}"):
        lab = load_lab(request.home, request.lab_name)
        if not lab:
            return 0
        hosts = [host for host in lab.hosts() if not request.hosts or host.name in request.hosts]
        stop(request.home, [host.id for host in hosts], STOP_S)
        cut_off(hosts)
        if not request.flags["keep"]:
            for host in hosts:
                delete(host.folder)
        if not lab.hosts():
            network_down(lab.home, is_of(lab))
        write_inventory(lab)
    return 0


def is_of(lab: Lab) -> Callable[[str], bool]:
    return lambda name: name == lab.bridge or name.startswith(f"{lab.bridge}-")


def verb_reboot(request: Request) -> int:
    with locked(request.home, f"lab-{request.lab_name}"):
        hosts = request.existing_hosts()
        stop(request.home, [host.id for host in hosts], STOP_S)
        start_hosts(request.lab(), hosts)
        for host in hosts:
            wait_until_up(host)
    return 0


def verb_kill(request: Request) -> int:
    with locked(request.home, f"lab-{request.lab_name}"):
        hosts = request.existing_hosts()
        stop(request.home, [host.id for host in hosts], 0)
        cut_off(hosts)
    return 0


def verb_exec(request: Request) -> int:
    host = request.existing_hosts()[0]
    if not request.command:
        raise UsageError("exec: no command; wanted `lab.py exec HOST -- COMMAND..`")
    supervisor = supervisors(request.home).get(host.id)
    pid = leader(supervisor) if supervisor else None
    if not pid:
        raise LabError(
            f"{host.name} is not running: start it with `lab.py --lab {host.lab.name} up {host.name}`"
        )
    command = inside(pid, *request.command)
    os.execvp(command[0], command)


def verb_status(request: Request) -> int:
    lab = load_lab(request.home, request.lab_name)
    running = supervisors(request.home)
    for host in lab.hosts() if lab else []:
        print(host.name, host.address, "up" if host.id in running else "down", sep="\t")
    return 0


def verb_inventory(request: Request) -> int:
    print(inventory_path(request.home, request.lab_name))
    return 0


def verb_clean(request: Request) -> int:
    if request.flags["all"]:
        clean_all(request.home)
    else:
        with locked(request.home, f"lab-{request.lab_name}"):
            clean_lab(request.home, request.lab_name)
    return 0


def clean_lab(home: Path, name: str) -> None:
    """Nothing of the lab is kept, so its hosts are simply switched off."""
    group = f"{home_tag(home)}/{name}"
    stop(home, [host for host in supervisors(home) if host.startswith(group + "/")], 0)
    sweep([group])
    lab = load_lab(home, name)
    if lab:
        network_down(home, is_of(lab))
        free_subnet(lab.subnet)
    delete(lab_folder(home, name))


def clean_all(home: Path) -> None:
    """All of this home, and what is left in the kernel of labs whose folders somebody deleted."""
    with contextlib.ExitStack() as locks:
        names = {path.name for path in home.glob("labs/*")}
        for name in sorted(names):
            locks.enter_context(locked(home, f"lab-{name}"))
        locks.enter_context(locked(home, "rootfs"))
        for name in sorted(names):
            clean_lab(home, name)
        tag = home_tag(home)
        stop(home, supervisors(home), 0)
        sweep([tag])
        network_down(home, lambda name: name.startswith(f"{tag}-"))
        if shutil.which("ip"):
            bridges = {
                link.rsplit("-", 1)[-1] for link in links() if re.fullmatch(r"smk[0-9a-f]{4}-\d+", link)
            }
            for route in ip_json("-4", "route", "show", "protocol", ROUTE_PROTOCOL):
                if route["dst"].split(".")[2] not in bridges:  # else it is in use by a lab of another home
                    free_subnet(route["dst"])
        # By name, as a home that was set by mistake may hold anything.
        for path in [*home.glob("rootfs-*"), *(home / name for name in ("labs", "build.log", "locks"))]:
            delete(path)
        with contextlib.suppress(OSError):
            home.rmdir()


# ---------------------------------------------------------------- command line


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see lab.py --help")


def parse_command_line(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[str, Request]:
    """The verb and its request. Raises UsageError."""
    parser = Parser(
        prog="lab.py",
        usage=argparse.SUPPRESS,
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--lab", default="demo", help=argparse.SUPPRESS)
    verbs = parser.add_subparsers(dest="verb", required=True, help=argparse.SUPPRESS)
    flags = {
        "deps": ["--print", "--route-out"],
        "up": ["--route-out"],
        "down": ["--keep"],
        "clean": ["--all"],
    }
    hosts = {"up": "+", "down": "*", "reboot": "+", "kill": "+", "exec": 1}
    for verb in VERBS:
        sub = verbs.add_parser(verb, prog=f"lab.py {verb}", help=argparse.SUPPRESS)
        for flag in flags.get(verb, []):
            sub.add_argument(flag, action="store_true")
        if verb in hosts:
            sub.add_argument("hosts", metavar="HOST", nargs=hosts[verb])  # type: ignore[arg-type]
        if verb == "exec":
            sub.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER)
    given = vars(parser.parse_args(arguments))
    home = parse_home(environment.get("SMOKESTACK_LAB_HOME") or DEFAULT_HOME)
    command = list(given.get("command", []))
    request = Request(
        home=home,
        lab_name=parse_lab_name(given["lab"]),
        hosts=list(given.get("hosts", [])),
        command=command[1:] if command[:1] == ["--"] else command,
        flags={name: value for name, value in given.items() if isinstance(value, bool)},
    )
    return str(given["verb"]), request


VERBS: dict[str, Callable[[Request], int]] = {
    "check": verb_check,
    "deps": verb_deps,
    "build": verb_build,
    "up": verb_up,
    "down": verb_down,
    "reboot": verb_reboot,
    "kill": verb_kill,
    "exec": verb_exec,
    "status": verb_status,
    "inventory": verb_inventory,
    "clean": verb_clean,
}
WITHOUT_ROOT = ("check", "inventory")


def terminate(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def main(arguments: Sequence[str]) -> int:
    try:
        verb, request = parse_command_line(arguments, os.environ)
        printing = request.flags.get("print", False)
        if os.geteuid() and verb not in WITHOUT_ROOT and not printing:
            raise LabError(f"{verb} needs root; this is user {os.geteuid()}: use sudo")
        return VERBS[verb](request)
    except LabError as error:
        say(str(error))
        return error.exit_status
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, terminate)
    os.umask(0o022)
    sys.exit(main(sys.argv[1:]))
