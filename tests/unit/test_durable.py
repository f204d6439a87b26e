"""Files and links are the old or the new ones, never something between; hashes are read once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hashed_folder
import pytest
from ansible.module_utils import durable, hashed_files
from ansible.module_utils.durable import read_json, remove, switch_link, write_json, write_text
from ansible.module_utils.hashed_files import INDEX, unverified
from ansible.module_utils.progress import Progress, mib

RunModule = Callable[..., dict[str, Any]]


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- durable -------------------------------------------------------------------------------------


def test_a_file_is_replaced_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("old")
    path.chmod(0o600)
    write_text(path, "größer", mode=0o640)
    assert path.read_text(encoding="utf-8") == "größer"
    assert path.stat().st_mode & 0o777 == 0o640
    assert names(tmp_path) == ["state"]


@pytest.mark.parametrize("call", ["fsync", "fchmod"])
def test_a_failing_write_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "state"
    path.write_text("old")

    def fail(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable.os, call, fail)
    with pytest.raises(OSError, match="No space left"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["state"]


def test_a_text_that_cannot_be_encoded_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "half \ud800")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["state"]


def test_a_write_is_on_disk_before_it_gets_its_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    path.write_text("old")
    there = []
    monkeypatch.setattr(durable.os, "fsync", lambda _descriptor: there.append(path.read_text()))
    write_text(path, "new")
    assert there == ["old", "new"]


def test_a_document_reads_back_and_its_text_is_stable(tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    write_json(path, {"b": "ü", "a": [1, None]})
    assert path.read_text(encoding="utf-8") == '{\n  "a": [\n    1,\n    null\n  ],\n  "b": "ü"\n}\n'
    assert read_json(path) == {"b": "ü", "a": [1, None]}


@pytest.mark.parametrize(
    "content",
    [None, b"", b'{"a": ', b"\0\0\0\0", b"\xff\xfe\x00garbage"],
    ids=["missing", "empty", "torn", "zeros", "no text"],
)
def test_a_file_that_was_never_whole_counts_as_none(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "document.json"
    if content is not None:
        path.write_bytes(content)
    assert read_json(path) is None


def test_a_file_below_something_that_is_no_folder_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert read_json(tmp_path / "file" / "document.json") is None


def test_a_link_is_made_and_switched(tmp_path: Path) -> None:
    link = tmp_path / "current"
    for target in ("one", "two", "two"):
        switch_link(link, Path(target))
        assert link.readlink() == Path(target)
        assert names(tmp_path) == ["current"]


def test_a_link_is_there_at_every_moment_of_a_switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tmp_path / "current"
    switch_link(link, Path("one"))
    seen = []
    real_replace = Path.replace

    def replace(self: Path, target: Path) -> Path:
        seen.append(link.readlink())
        return real_replace(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    switch_link(link, Path("two"))
    assert [*seen, link.readlink()] == [Path("one"), Path("two")]


def test_what_a_killed_switch_left_does_not_stop_the_next(tmp_path: Path) -> None:
    (tmp_path / f".current.{os.getpid()}").symlink_to("half")
    switch_link(tmp_path / "current", Path("one"))
    assert names(tmp_path) == ["current"]


def test_removing_takes_files_and_dangling_links_and_minds_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("file", "link", "missing"):
        remove(tmp_path / name)
    assert names(tmp_path) == []


def test_progress_is_one_small_document(tmp_path: Path) -> None:
    path = tmp_path / "run" / "wheels.json"
    Progress(str(path)).say(3, 4, "3 of 4")
    document = read_json(path)
    assert (document["done"], document["total"], document["note"]) == (3, 4, "3 of 4")
    assert names(path.parent) == ["wheels.json"]


def test_progress_without_a_file_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Progress(None).say(1, 2, "half")
    assert names(tmp_path) == []


def test_bytes_are_written_for_people() -> None:
    assert mib(3.6 * (1 << 20)) == "4 MiB"


# --- hashed files --------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files whose bytes were read, as they are read."""
    read: list[str] = []
    real = hashed_files.sha256_of

    def sha256_of(path: Path) -> str:
        read.append(path.name)
        result: str = real(path)
        return result

    monkeypatch.setattr(hashed_files, "sha256_of", sha256_of)
    return read


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two files, named after their content."""
    path = tmp_path / "folder"
    path.mkdir()
    (path / "one").write_text("one")
    (path / "two").write_text("two")
    return path


WANTED = {"one": sha256("one"), "two": sha256("two")}


def test_a_large_file_is_hashed_whole(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * (hashed_files.BLOCK + 1))
    assert hashed_files.sha256_of(path) == sha256("x" * (hashed_files.BLOCK + 1))


def test_right_files_are_fine(folder: Path) -> None:
    assert unverified(folder, WANTED) == {}


def test_missing_and_wrong_files_are_named_with_the_reason(folder: Path) -> None:
    wanted = {"one": "0" * 64, "two": WANTED["two"], "three": "3" * 64}
    assert unverified(folder, wanted) == {
        "one": f"its SHA-256 is {WANTED['one']}, wanted {'0' * 64}",
        "three": "missing",
    }


def test_a_folder_that_is_not_there_lacks_everything(tmp_path: Path) -> None:
    assert unverified(tmp_path / "none", WANTED) == {"one": "missing", "two": "missing"}


def test_a_file_is_read_once_while_it_stays_the_same(folder: Path, reads: list[str]) -> None:
    for _ in range(3):
        assert unverified(folder, WANTED) == {}
    assert sorted(reads) == ["one", "two"]


def test_a_remembered_hash_still_has_to_be_the_wanted_one(folder: Path) -> None:
    unverified(folder, WANTED)
    assert list(unverified(folder, {"one": "0" * 64})) == ["one"]


@pytest.mark.parametrize("keep", ["size", "time"])
def test_a_touched_file_is_read_again(folder: Path, reads: list[str], keep: str) -> None:
    unverified(folder, WANTED)
    reads.clear()
    stat = (folder / "one").stat()
    (folder / "one").write_text("1ne" if keep == "size" else "three")
    moved = 1 if keep == "size" else 0
    os.utime(folder / "one", ns=(stat.st_atime_ns, stat.st_mtime_ns + moved))
    assert list(unverified(folder, WANTED)) == ["one"]
    assert reads == ["one"]


def test_nothing_is_written_unless_it_may_remember(folder: Path) -> None:
    unverified(folder, WANTED, remember=False)
    assert names(folder) == ["one", "two"]


def test_hashes_of_other_files_are_kept_in_memory(folder: Path, reads: list[str]) -> None:
    unverified(folder, {"one": WANTED["one"]})
    unverified(folder, {"two": WANTED["two"]})
    unverified(folder, WANTED)
    assert reads == ["one", "two"]


@pytest.mark.parametrize("memory", ["", "{", json.dumps({"one": "what"})], ids=["empty", "torn", "strange"])
def test_a_spoilt_memory_is_no_memory(folder: Path, memory: str) -> None:
    (folder / INDEX).write_text(memory)
    assert unverified(folder, WANTED) == {}


# --- the module hashed_folder --------------------------------------------------------------------


def ask(run_module: RunModule, folder: Path, **arguments: Any) -> dict[str, Any]:
    return run_module(hashed_folder, path=str(folder), files=WANTED, **arguments)


def test_the_module_lists_what_is_missing(run_module: RunModule, folder: Path) -> None:
    (folder / "two").unlink()
    result = ask(run_module, folder)
    assert (result["changed"], result["missing"], result["reasons"]) == (False, ["two"], {"two": "missing"})


def test_in_check_mode_missing_files_are_a_change(run_module: RunModule, folder: Path) -> None:
    (folder / "two").unlink()
    result = ask(run_module, folder, check=True)
    assert (result["changed"], result["missing"]) == (True, ["two"])
    assert names(folder) == ["one"]


def test_a_complete_folder_may_be_demanded(run_module: RunModule, folder: Path) -> None:
    assert not ask(run_module, folder, complete=True).get("failed")
    (folder / "one").write_text("torn")
    (folder / "two").unlink()
    result = ask(run_module, folder, complete=True)
    assert result["failed"]
    assert result["msg"].startswith(f"{folder / 'one'}: its SHA-256 is")
    assert "(and 1 more)" in result["msg"]


def test_a_right_folder_is_sealed_once(run_module: RunModule, folder: Path, tmp_path: Path) -> None:
    final = tmp_path / "final"
    told = ask(run_module, folder, seal_as=str(final), check=True)
    assert (told["changed"], final.exists()) == (True, False)
    done = ask(run_module, folder, seal_as=str(final))
    assert (done["changed"], done["missing"]) == (True, [])
    assert (folder.exists(), (final / "one").read_text()) == (False, "one")
    for check in (True, False):
        again = ask(run_module, folder, seal_as=str(final), check=check)
        assert (again["changed"], again["missing"]) == (False, [])


def test_half_a_folder_is_not_sealed(run_module: RunModule, folder: Path, tmp_path: Path) -> None:
    (folder / "two").write_text("tw")
    result = ask(run_module, folder, seal_as=str(tmp_path / "final"))
    assert (result["changed"], result["missing"]) == (False, ["two"])
    assert not (tmp_path / "final").exists()


def test_half_a_folder_that_should_be_whole_is_an_error_and_not_sealed(
    run_module: RunModule, folder: Path, tmp_path: Path
) -> None:
    (folder / "two").write_text("tw")
    assert ask(run_module, folder, seal_as=str(tmp_path / "final"), complete=True)["failed"]
    assert not (tmp_path / "final").exists()


def test_a_file_torn_after_sealing_is_found_and_not_mended(
    run_module: RunModule, folder: Path, tmp_path: Path
) -> None:
    final = tmp_path / "final"
    ask(run_module, folder, seal_as=str(final))
    (final / "one").write_text("torn")
    result = ask(run_module, folder, seal_as=str(final))
    assert result["failed"]
    assert result["msg"].endswith(f"never mended in place: remove {final} and run again")
    assert (final / "one").read_text() == "torn"


def test_a_check_says_which_file_it_reads(run_module: RunModule, folder: Path, tmp_path: Path) -> None:
    progress = tmp_path / "run/progress.json"
    ask(run_module, folder, progress_file=str(progress), check=True)
    assert not progress.exists()
    ask(run_module, folder, progress_file=str(progress))
    assert read_json(progress)["note"] == "file 2 of 2: hashing two"
