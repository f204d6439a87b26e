"""An offline kit carries a lock's wheels whole or is refused; nothing half of it enters a wheelhouse."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernel_wheel_kept
import pytest
import wheel_kit
from ansible.module_utils.hashed_files import sha256_of
from kernel import kit_lines
from tiny_wheels import make_wheel

RunModule = Callable[..., dict[str, Any]]
LOCK = "demo.cp311-linux_x86_64.lock"


class Kit:
    """A wheelhouse with two wheels, a catalogue with their lock, the archive, and a wheelhouse elsewhere."""

    def __init__(self, folder: Path, run_module: RunModule) -> None:
        self._run = run_module
        self.here, self.there, self.stacks = folder / "here", folder / "there", folder / "stacks"
        for path in (self.here, self.stacks):
            path.mkdir()
        self.archive = folder / "demo.kit.tar"
        self.wheels = {
            wheel["file"]: wheel["sha256"]
            for wheel in (
                make_wheel(self.here, "one", size=1 << 17),
                make_wheel(self.here, "two", size=1 << 17),
            )
        }
        (self.stacks / "demo.yml").write_text("name: demo\n")
        (self.stacks / LOCK).write_text("a lock\n")

    def pack(self, **more: Any) -> dict[str, Any]:
        arguments = {"path": str(self.here), "stack": "demo.yml", "lock": LOCK, "wheels": self.wheels} | more
        return self._run(
            wheel_kit, state="packed", kit=str(self.archive), stacks=str(self.stacks), **arguments
        )

    def unpack(self, **more: Any) -> dict[str, Any]:
        arguments = {"path": str(self.there)} | more
        return self._run(
            wheel_kit, state="unpacked", kit=str(self.archive), stacks=str(self.stacks), **arguments
        )

    def arrived(self) -> dict[str, str]:
        """File name to SHA-256 of the wheels that are there."""
        return {path.name: sha256_of(path) for path in self.there.glob("*") if not path.name.startswith(".")}

    def rewrite(self, change: Callable[[dict[str, bytes]], None]) -> None:
        """Write the archive anew after a change of its members."""
        with tarfile.open(self.archive) as archive:
            members = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
        change(members)
        with tarfile.open(self.archive, "w:") as archive:
            for name, content in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))


@pytest.fixture
def kit(tmp_path: Path, run_module: RunModule) -> Kit:
    return Kit(tmp_path, run_module)


def test_a_kit_is_packed_once(kit: Kit) -> None:
    told = kit.pack(check=True)
    assert (told["changed"], kit.archive.exists()) == (True, False)
    done = kit.pack()
    assert (done["changed"], done["wheels"], done["lock"]) == (True, sorted(kit.wheels), LOCK)
    content = kit.archive.read_bytes()
    for check in (True, False):
        assert kit.pack(check=check)["changed"] is False
    kit.archive.unlink()
    kit.pack()
    assert kit.archive.read_bytes() == content
    with tarfile.open(kit.archive) as archive:
        names = archive.getnames()
    assert names == [
        "manifest.json",
        "stack/demo.yml",
        f"stack/{LOCK}",
        *(f"wheels/{name}" for name in sorted(kit.wheels)),
    ]


def test_a_kit_is_unpacked_once(kit: Kit) -> None:
    kit.pack()
    told = kit.unpack(check=True)
    assert (told["changed"], told["wheels"], kit.there.exists()) == (True, sorted(kit.wheels), False)
    done = kit.unpack()
    assert (done["changed"], done["wheels"]) == (True, sorted(kit.wheels))
    assert kit.arrived() == kit.wheels
    for check in (True, False):
        again = kit.unpack(check=check)
        assert (again["changed"], again["wheels"]) == (False, [])


def test_a_built_kernel_travels_with_the_file_that_declares_it(kit: Kit, run_module: RunModule) -> None:
    (kit.here / "built").mkdir()
    built = make_wheel(kit.here / "built", "kernel")
    given = {"stack": "demo", "fingerprint": "f00d"}
    entered = run_module(
        kernel_wheel_kept, path=str(kit.here), wheel=str(kit.here / "built" / built["file"]), **given
    )
    kernel = {"file": built["file"], "fingerprint": "f00d", "stack": "demo"}
    assert kit.pack(wheels=kit.wheels | entered["files"])["kernels"] == [kernel]
    assert kit.unpack()["kernels"] == [kernel]
    arrived = run_module(kernel_wheel_kept, path=str(kit.there), **given)
    assert (arrived["kernel"], arrived["record"]) == (entered["kernel"], entered["record"])
    (line,) = [line for line in kit_lines(kit.unpack()) if "kernel" in line]
    assert "set sgl_kernel_fingerprint: f00d" in line
    assert "no kernel wheel" in kit_lines(kit.pack(), {"kernel": {"source": {}}})[-1]


def test_only_what_is_missing_or_torn_is_unpacked(kit: Kit) -> None:
    kit.pack()
    kit.there.mkdir()
    one, two = sorted(kit.wheels)
    shutil.copy(kit.here / one, kit.there)
    (kit.there / two).write_text("torn")
    assert kit.unpack()["wheels"] == [two]
    assert kit.arrived() == kit.wheels


def test_a_changed_lock_makes_another_kit(kit: Kit) -> None:
    kit.pack()
    (kit.stacks / LOCK).write_text("another lock\n")
    assert kit.pack()["changed"] is True


def test_a_wheelhouse_that_lacks_a_wheel_packs_no_kit(kit: Kit) -> None:
    name = sorted(kit.wheels)[0]
    (kit.here / name).write_text("torn")
    result = kit.pack()
    assert f"1 wheels of the lock are not in {kit.here}, such as {name} (its SHA-256 is" in result["msg"]
    assert not kit.archive.exists()


def test_a_kit_of_another_lock_is_refused_with_the_way_to_look_at_it(kit: Kit) -> None:
    kit.pack()
    (kit.stacks / LOCK).write_text("another lock\n")
    result = kit.unpack()
    assert result["failed"]
    assert f"{kit.archive} is of another {LOCK} than {kit.stacks / LOCK}" in result["msg"]
    (kit.stacks / LOCK).unlink()
    result = kit.unpack()
    assert f"is of the lock {LOCK}, which {kit.stacks} does not have" in result["msg"]
    assert f"tar --extract --to-stdout --file {kit.archive} stack/{LOCK}" in result["msg"]
    assert kit.arrived() == {}


def tamper(members: dict[str, bytes]) -> None:
    members["wheels/two-1.0-py3-none-any.whl"] = b"tampered"


def leave_out(members: dict[str, bytes]) -> None:
    del members["wheels/two-1.0-py3-none-any.whl"]


def add_a_stranger(members: dict[str, bytes]) -> None:
    members["wheels/../../stranger"] = b"x"
    members["wheels/evil-1.0-py3-none-any.whl"] = b"x"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(tamper, "two-1.0-py3-none-any.whl in it is not the one that its", id="tampered"),
        pytest.param(leave_out, "lacks two-1.0-py3-none-any.whl: copy the kit again", id="a wheel short"),
    ],
)
def test_a_wrong_member_is_refused_and_what_is_right_is_kept(
    kit: Kit, change: Callable[[dict[str, bytes]], None], words: str
) -> None:
    kit.pack()
    kit.rewrite(change)
    assert words in kit.unpack()["msg"]
    assert list(kit.arrived()) == ["one-1.0-py3-none-any.whl"]


def test_what_the_manifest_does_not_name_is_not_unpacked(kit: Kit) -> None:
    kit.pack()
    kit.rewrite(add_a_stranger)
    assert kit.unpack()["changed"] is True
    assert kit.arrived() == kit.wheels
    assert not (kit.there.parent / "stranger").exists()


def test_a_manifest_with_a_path_in_a_name_writes_nothing_outside(kit: Kit) -> None:
    kit.pack()

    def point_outside(members: dict[str, bytes]) -> None:
        manifest = json.loads(members["manifest.json"])
        manifest["members"]["wheels/../stranger"] = {"sha256": "0" * 64, "size": 1}
        members["manifest.json"] = json.dumps(manifest).encode()
        members["wheels/../stranger"] = b"x"

    kit.rewrite(point_outside)
    assert "names '../stranger', which is no file name" in kit.unpack()["msg"]
    assert kit.arrived() == {}


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9], ids=["manifest", "middle", "end"])
def test_a_torn_kit_is_an_error_and_a_whole_one_mends_it(kit: Kit, share: float) -> None:
    kit.pack()
    content = kit.archive.read_bytes()
    kit.archive.write_bytes(content[: int(len(content) * share)])
    result = kit.unpack()
    assert result["failed"]
    assert str(kit.archive) in result["msg"]
    assert set(kit.arrived().items()) <= set(kit.wheels.items())
    kit.archive.write_bytes(content)
    kit.unpack()
    assert kit.arrived() == kit.wheels


@pytest.mark.parametrize("content", [b"", b"no archive", None], ids=["empty", "no archive", "absent"])
def test_what_is_no_kit_is_an_error_with_its_name(kit: Kit, content: bytes | None) -> None:
    if content is not None:
        kit.archive.write_bytes(content)
    result = kit.unpack()
    assert result["failed"]
    assert str(kit.archive) in result["msg"]


def test_a_kit_of_a_later_format_is_refused(kit: Kit) -> None:
    kit.pack()
    kit.rewrite(lambda members: members.update({"manifest.json": b'{"format": 2}'}))
    assert "is a kit of format 2, this Smokestack reads format 1" in kit.unpack()["msg"]


def test_a_full_disk_is_refused_before_anything_is_written(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(kit.here)._replace(free=wheel_kit.SPARE)
    monkeypatch.setattr(wheel_kit.shutil, "disk_usage", lambda _path: usage)
    assert f"{kit.archive.parent} has 1024 MiB free" in kit.pack()["msg"]
    assert list(kit.archive.parent.glob("*.tar*")) == []
    monkeypatch.undo()
    kit.pack()
    monkeypatch.setattr(wheel_kit.shutil, "disk_usage", lambda _path: usage)
    assert f"{kit.there} has 1024 MiB free" in kit.unpack()["msg"]
    assert kit.arrived() == {}


def test_a_folder_that_is_not_there_is_named(kit: Kit) -> None:
    kit.archive = kit.archive.parent / "usb" / "kit.tar"
    assert f"the folder {kit.archive.parent} is not there" in kit.pack()["msg"]
