"""Patches of a source tree: each ending, all or nothing, interrupted runs, undo, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import patch_series
import pytest
from ansible.module_utils import patches
from ansible.module_utils.basic import AnsibleModule

BUILD = """\
cmake_minimum_required(VERSION 3.26)
policy OLD
project(kernel)

set(ARCHS 80 90)
set(EXTRA ON)
install(first)
install(second)
"""
SOFT = "import torch\n\ntry:\n    import extra\nexcept:\n    raise\n"
POLICY = """\
--- a/build.cmake
+++ b/build.cmake
@@ -1,3 +1,5 @@
 cmake_minimum_required(VERSION 3.26)
-policy OLD
+if(POLICY)
+    policy OLD
+endif()
 project(kernel)
"""
ARCHS = """\
diff --git a/build.cmake b/build.cmake
--- a/build.cmake
+++ b/build.cmake
@@ -5,2 +5,3 @@
 set(ARCHS 80 90)
+include(archs.cmake)
 set(EXTRA ON)
@@ -7,2 +8,4 @@
-install(first)
+if(NINETY)
+    install(first)
+endif()
 install(second)
diff --git a/more/archs.cmake b/more/archs.cmake
new file mode 100644
--- /dev/null
+++ b/more/archs.cmake
@@ -0,0 +1,2 @@
+# asked for
+set(ARCHS 120a)
"""
SOFTEN = """\
--- a/soft.py
+++ b/soft.py
@@ -4,3 +4,3 @@
     import extra
-except:
-    raise
+except ImportError:
+    extra = None
"""
ALL = {"policy": POLICY, "archs": ARCHS, "soften": SOFTEN}
FILES = ["kernel/build.cmake", "kernel/more/archs.cmake", "kernel/soft.py"]

Run = Callable[..., dict[str, Any]]


def git(folder: Path, *arguments: str) -> str:
    """git, with no settings but its own."""
    names = [part for key in ("user.name", "user.email") for part in ("-c", f"{key}=tests@localhost")]
    return subprocess.run(
        ["git", *names, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """The folder of a package in a repository that holds more than it."""
    folder = tmp_path / "repository" / "kernel"
    folder.mkdir(parents=True)
    (folder / "build.cmake").write_text(BUILD)
    (folder / "soft.py").write_text(SOFT)
    (folder.parent / "README").write_text("another part\n")
    git(folder.parent, "init", "--quiet")
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    git(folder, "add", "--all", ".", "..")
    git(folder, "commit", "--quiet", "--message", "source")


def series(*names: str, **changes: dict[str, Any]) -> list[dict[str, Any]]:
    """The patches of these names, all of them without; `changes` are by name."""
    return [{"name": name, "text": ALL[name]} | changes.get(name, {}) for name in names or ALL]


def states(result: dict[str, Any]) -> dict[str, str]:
    return {patch["name"]: patch["state"] for patch in result["patches"]}


def snapshot(folder: Path) -> dict[str, str]:
    """Every file of the repository's work tree, and what git says of them."""
    top = folder.parent
    files = {
        str(path.relative_to(top)): f"{path.stat().st_mode:o} {path.read_text()}"
        for path in top.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(top).parts
    }
    return files | {
        "folders": str(
            sorted(str(path) for path in top.rglob("*") if path.is_dir() and ".git" not in path.parts)
        ),
        "status": git(top, "status", "--porcelain"),
    }


def repository(folder: Path) -> dict[str, bytes]:
    """Every file of the repository's own folder."""
    return {str(path): path.read_bytes() for path in (folder.parent / ".git").rglob("*") if path.is_file()}


# --- the five endings ----------------------------------------------------------------------------


def test_a_series_is_applied_once_and_check_mode_foretells_it(kernel: Path, run_module: Run) -> None:
    before, stored = snapshot(kernel), repository(kernel)
    foretold = run_module(patch_series, check=True, path=str(kernel), patches=series())
    assert snapshot(kernel) == before
    assert repository(kernel) == stored
    done = run_module(patch_series, path=str(kernel), patches=series())
    assert done == foretold | {"invocation": done["invocation"]}
    assert done["changed"]
    assert done["files"] == FILES
    assert states(done) == dict.fromkeys(ALL, "applied")
    assert "if(POLICY)\n    policy OLD\nendif()\n" in (kernel / "build.cmake").read_text()
    assert (kernel / "more" / "archs.cmake").read_text() == "# asked for\nset(ARCHS 120a)\n"
    assert (kernel / "soft.py").read_text().endswith("except ImportError:\n    extra = None\n")
    applied, stored = snapshot(kernel), repository(kernel)
    for check in (True, False):
        again = run_module(patch_series, check=check, path=str(kernel), patches=series())
        assert not again["changed"]
        assert states(again) == dict.fromkeys(ALL, "already_applied")
        assert (again["files"], again["diff"], again["source"]) == ([], [], done["source"])
    assert snapshot(kernel) == applied
    assert repository(kernel) == stored


def test_the_diff_shows_each_file_before_and_after(kernel: Path, run_module: Run) -> None:
    diff = run_module(patch_series, check=True, path=str(kernel), patches=series())["diff"]
    assert [entry["before_header"] for entry in diff] == FILES
    assert (diff[0]["before"], diff[1]["before"]) == (BUILD, "")
    assert "include(archs.cmake)\n" in diff[0]["after"]
    assert diff[1]["after"] == "# asked for\nset(ARCHS 120a)\n"


def test_the_source_is_named_by_what_is_built(kernel: Path, run_module: Run) -> None:
    done = run_module(patch_series, path=str(kernel), patches=series())
    assert done["commit"] == git(kernel, "rev-parse", "HEAD").strip()
    commit(kernel)
    assert done["source"] == git(kernel, "rev-parse", "HEAD:kernel").strip()


def test_tools_that_need_no_patch(kernel: Path, run_module: Run) -> None:
    wanted = series(policy={"unneeded": "cmake 3.31.6 is not <3.31"})
    result = run_module(patch_series, path=str(kernel), patches=wanted)
    assert result["patches"][0]["state"] == "not_needed"
    assert result["patches"][0]["reason"] == "cmake 3.31.6 is not <3.31"
    assert "if(POLICY)" not in (kernel / "build.cmake").read_text()


CONDITIONS = [
    ({"upstream_when": [{"file": "build.cmake", "lacks": "^cuda"}]}, "upstream", "build.cmake lacks '^cuda'"),
    ({"upstream_when": [{"file": "build.cmake", "has": "^policy"}]}, "upstream", "build.cmake has '^policy'"),
    ({"upstream_when": [{"file": "build.cmake", "has": "^OLD"}]}, "applied", ""),
    (
        {
            "upstream_when": [
                {"file": "build.cmake", "has": "^policy"},
                {"file": "soft.py", "lacks": "except"},
            ]
        },
        "applied",
        "",
    ),
    ({"needed_when": [{"file": "build.cmake", "has": "^policy OLD$"}]}, "applied", ""),
    ({"needed_when": [{"file": "build.cmake", "has": "cccl"}]}, "not_needed", "build.cmake lacks 'cccl'"),
    ({"needed_when": [{"file": "build.cmake", "lacks": "EXTRA"}]}, "not_needed", "build.cmake has 'EXTRA'"),
    (
        {"needed_when": [{"file": "gone.cmake", "lacks": "x"}]},
        "drifted",
        "gone.cmake: there is no such file, and a condition asks for it",
    ),
]


@pytest.mark.parametrize(("keys", "state", "reason"), CONDITIONS)
def test_conditions_on_the_tree(
    kernel: Path, run_module: Run, keys: dict[str, Any], state: str, reason: str
) -> None:
    result = run_module(patch_series, path=str(kernel), patches=series("policy", policy=keys))
    assert [(patch["state"], patch["reason"]) for patch in result["patches"]] == [(state, reason)]


@pytest.mark.parametrize(
    ("key", "kind", "state"),
    [
        ("needed_when", "before", "not_needed"),
        ("needed_when", "since", "applied"),
        ("upstream_when", "since", "upstream"),
        ("upstream_when", "before", "applied"),
    ],
)
def test_conditions_on_the_history(kernel: Path, run_module: Run, key: str, kind: str, state: str) -> None:
    wanted = {key: [{kind: git(kernel, "rev-parse", "HEAD").strip()}]}
    result = run_module(patch_series, path=str(kernel), patches=series("policy", policy=wanted))
    assert states(result) == {"policy": state}


def test_a_history_that_cannot_tell_is_refused(kernel: Path, run_module: Run) -> None:
    wanted = series("policy", policy={"needed_when": [{"before": "0123456789abcdef"}]})
    message = run_module(patch_series, path=str(kernel), patches=wanted)["msg"]
    assert message.startswith(
        f"{kernel.parent} does not know the commit 0123456789abcdef that a condition names"
    )


def test_a_patch_that_the_commit_holds_to_the_letter(kernel: Path, run_module: Run) -> None:
    run_module(patch_series, path=str(kernel), patches=series("policy"))
    commit(kernel)
    result = run_module(patch_series, path=str(kernel), patches=series())
    assert states(result) == {"policy": "already_applied", "archs": "applied", "soften": "applied"}
    assert result["patches"][0]["reason"] == "the commit itself holds it"
    run_module(patch_series, path=str(kernel), state="absent")
    assert git(kernel, "status", "--porcelain") == ""
    assert "if(POLICY)" in (kernel / "build.cmake").read_text()


DRIFTS = [
    (
        "policy NEW",
        "build.cmake, hunk 1 (line 1 where it was made): the line 'policy OLD' is not there",
    ),
    ("policy  OLD", "build.cmake, hunk 1 (line 1 where it was made): the line 'policy OLD' is not there"),
    (
        "# between\npolicy OLD",
        "build.cmake, hunk 1 (line 1 where it was made): its lines are not together there",
    ),
    (
        "policy OLD\nproject(kernel)\n\ncmake_minimum_required(VERSION 3.26)\npolicy OLD",
        "build.cmake, hunk 1 (line 1 where it was made): its lines stand there 2 times, from lines 1, 5",
    ),
]


@pytest.mark.parametrize(("text", "reason"), DRIFTS, ids=["changed", "space", "apart", "twice"])
@pytest.mark.parametrize("check", [True, False])
def test_one_drifted_patch_holds_the_whole_series_back(
    kernel: Path, run_module: Run, text: str, reason: str, check: bool
) -> None:
    (kernel / "build.cmake").write_text(BUILD.replace("policy OLD", text))
    commit(kernel)
    git(kernel, "config", "apply.ignoreWhitespace", "change")
    before, stored = snapshot(kernel), repository(kernel)
    result = run_module(patch_series, check=check, path=str(kernel), patches=series())
    assert result["failed"]
    assert states(result) == {"policy": "drifted", "archs": "withheld", "soften": "withheld"}
    assert result["patches"][0]["reason"] == reason
    commit_id = git(kernel, "rev-parse", "HEAD")[:9]
    assert result["msg"].splitlines() == [
        f"patch policy drifted: {reason}",
        f"Nothing of the series was applied to {kernel} (commit {commit_id}): port the patch to this commit, "
        "or take it off the stack's patches",
    ]
    assert snapshot(kernel) == before
    if check:
        assert repository(kernel) == stored


def test_every_drifted_hunk_is_named(kernel: Path, run_module: Run) -> None:
    (kernel / "build.cmake").write_text(BUILD.replace("EXTRA", "MORE").replace("install(first)\n", ""))
    (kernel / "more").mkdir()
    (kernel / "more" / "archs.cmake").write_text("another\n")
    (kernel / "soft.py").unlink()
    commit(kernel)
    result = run_module(patch_series, path=str(kernel), patches=series())
    assert result["patches"][1]["reason"] == (
        "build.cmake, hunk 1 (line 5 where it was made): the line 'set(EXTRA ON)' is not there; "
        "build.cmake, hunk 2 (line 7 where it was made): the line 'install(first)' is not there; "
        "more/archs.cmake, hunk 1: the file that it adds is there"
    )
    assert result["patches"][2]["reason"] == (
        "soft.py, hunk 1 (line 4 where it was made): there is no such file"
    )


def test_lines_that_moved_are_told(kernel: Path, run_module: Run) -> None:
    (kernel / "build.cmake").write_text(BUILD.replace("\n\n", "\n\n# one\n# two\n"))
    commit(kernel)
    result = run_module(patch_series, path=str(kernel), patches=series())
    assert states(result) == dict.fromkeys(ALL, "applied")
    assert [patch["moved"] for patch in result["patches"]] == [
        [],
        [
            {"file": "build.cmake", "hunk": 1, "lines": 2},
            {"file": "build.cmake", "hunk": 2, "lines": 2},
        ],
        [],
    ]


def test_where_git_refuses_its_word_counts(kernel: Path, run_module: Run) -> None:
    """A hunk that was made at a file's first line may not move."""
    (kernel / "build.cmake").write_text("# one\n" + BUILD)
    commit(kernel)
    result = run_module(patch_series, path=str(kernel), patches=series("policy"))
    assert states(result) == {"policy": "drifted"}
    assert result["patches"][0]["reason"] == "git apply: patch failed: kernel/build.cmake:1"


# --- undoing, other series, interruptions --------------------------------------------------------


def test_absent_restores_the_tree_exactly(kernel: Path, run_module: Run) -> None:
    (kernel / "build").mkdir()
    (kernel / "build" / "object.o").write_text("made by the build")
    (kernel / "soft.py").chmod(0o755)
    commit(kernel)
    (kernel / "untracked").write_text("mine\n")
    before = snapshot(kernel)
    run_module(patch_series, path=str(kernel), patches=series())
    assert (kernel / "soft.py").stat().st_mode & 0o777 == 0o755
    applied = snapshot(kernel)
    foretold = run_module(patch_series, check=True, path=str(kernel), state="absent")
    assert foretold["changed"]
    assert snapshot(kernel) == applied
    undone = run_module(patch_series, path=str(kernel), state="absent")
    assert undone["files"] == FILES
    assert snapshot(kernel) == before
    assert git(kernel, "for-each-ref", "refs/worktree") == ""
    assert not run_module(patch_series, path=str(kernel), state="absent")["changed"]


def test_a_shorter_series_takes_the_place_of_a_longer_one(kernel: Path, run_module: Run) -> None:
    run_module(patch_series, path=str(kernel), patches=series())
    result = run_module(patch_series, path=str(kernel), patches=series("soften"))
    assert states(result) == {"soften": "already_applied"}
    assert result["files"] == ["kernel/build.cmake", "kernel/more/archs.cmake"]
    assert (kernel / "build.cmake").read_text() == BUILD
    assert not (kernel / "more").exists()


def test_a_longer_series_says_which_of_it_was_there(kernel: Path, run_module: Run) -> None:
    run_module(patch_series, path=str(kernel), patches=series("policy"))
    result = run_module(patch_series, path=str(kernel), patches=series())
    assert states(result) == {"policy": "already_applied", "archs": "applied", "soften": "applied"}


def test_a_series_that_is_not_needed_any_more_is_taken_out(kernel: Path, run_module: Run) -> None:
    run_module(patch_series, path=str(kernel), patches=series("policy"))
    result = run_module(
        patch_series, path=str(kernel), patches=series("policy", policy={"unneeded": "new tools"})
    )
    assert (result["changed"], states(result)) == (True, {"policy": "not_needed"})
    assert git(kernel, "status", "--porcelain") == ""


def test_a_changed_patch_replaces_the_old_text(kernel: Path, run_module: Run) -> None:
    run_module(patch_series, path=str(kernel), patches=series("archs"))
    newer = series("archs", archs={"text": ARCHS.replace("120a", "121a")})
    result = run_module(patch_series, path=str(kernel), patches=newer)
    assert result["files"] == ["kernel/more/archs.cmake"]
    assert (kernel / "more" / "archs.cmake").read_text() == "# asked for\nset(ARCHS 121a)\n"


def test_the_series_follows_another_commit(kernel: Path, run_module: Run) -> None:
    run_module(patch_series, path=str(kernel), patches=series("policy"))
    (kernel.parent / "README").write_text("a newer source\n")
    git(kernel.parent, "commit", "--quiet", "--message", "newer", "README")
    result = run_module(patch_series, path=str(kernel), patches=series("policy"))
    assert (result["changed"], states(result)) == (False, {"policy": "already_applied"})
    run_module(patch_series, path=str(kernel), state="absent")
    assert git(kernel, "status", "--porcelain") == ""


class Killed(BaseException):
    """The end of a process, as far as its own clean-up goes."""


@pytest.mark.parametrize("written", [0, 1, 2], ids=["before the first file", "after one", "after two"])
@pytest.mark.parametrize("then", ["present", "absent", "another"])
def test_an_interrupted_run_is_gone_on_with_or_undone(
    kernel: Path, run_module: Run, monkeypatch: pytest.MonkeyPatch, written: int, then: str
) -> None:
    before = snapshot(kernel)
    run_module(patch_series, path=str(kernel), patches=series("archs"))
    done: list[str] = []
    write = patches.Tree.write

    def killed(tree: patches.Tree, source: str, file: str) -> None:
        if len(done) == written:
            tree.beside(file).write_text("torn")
            raise Killed
        done.append(file)
        write(tree, source, file)

    newer = series(archs={"text": ARCHS.replace("120a", "121a")})
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(patches.Tree, "write", killed)
        # run_module waits for an exit, and a killed process has none
        patch.setattr(
            AnsibleModule, "exit_json", lambda *_args, **_result: pytest.fail("was not interrupted")
        )
        interrupted(kernel, newer, patch)
    if then == "present":
        assert run_module(patch_series, path=str(kernel), patches=newer)["changed"]
        assert (kernel / "more" / "archs.cmake").read_text() == "# asked for\nset(ARCHS 121a)\n"
        assert not run_module(patch_series, path=str(kernel), patches=newer)["changed"]
    if then == "another":
        run_module(patch_series, path=str(kernel), patches=series("soften"))
        assert git(kernel, "status", "--porcelain") == " M kernel/soft.py\n"
    run_module(patch_series, path=str(kernel), state="absent")
    assert snapshot(kernel) == before


def interrupted(kernel: Path, wanted: list[dict[str, Any]], patch: pytest.MonkeyPatch) -> None:
    """The module's work without Ansible around it."""
    git_path = shutil.which("git") or ""
    whole = [{"unneeded": "", "needed_when": [], "upstream_when": []} | one for one in wanted]
    with patches.Tree(git_path, kernel, dry=False) as tree:
        patches.carry_out(tree, patches.plan(tree, whole))


# --- what is refused -----------------------------------------------------------------------------


def test_changes_of_another_are_never_written_over(kernel: Path, run_module: Run) -> None:
    (kernel / "soft.py").write_text("mine\n")
    before = snapshot(kernel)
    result = run_module(patch_series, path=str(kernel), patches=series())
    assert result["msg"] == (
        f"{kernel}/soft.py: changed, and not by this series. Commit the change, or take it back with: "
        f"git -C {kernel.parent} checkout HEAD -- kernel/soft.py"
    )
    assert snapshot(kernel) == before


def test_changes_on_top_of_the_series_are_never_written_over(kernel: Path, run_module: Run) -> None:
    run_module(patch_series, path=str(kernel), patches=series())
    with (kernel / "build.cmake").open("a") as stream:
        stream.write("mine\n")
    before = snapshot(kernel)
    for arguments in ({"patches": series()}, {"state": "absent"}):
        assert run_module(patch_series, path=str(kernel), **arguments)["msg"].startswith(
            f"{kernel}/build.cmake: changed, and not by this series."
        )
    assert snapshot(kernel) == before


def test_a_change_in_a_file_that_no_patch_touches_is_refused(kernel: Path, run_module: Run) -> None:
    (kernel / "soft.py").write_text("mine\n")
    git(kernel, "add", "soft.py")
    assert "soft.py: changed" in run_module(patch_series, path=str(kernel), patches=series("policy"))["msg"]
    git(kernel, "reset", "--quiet")
    assert "soft.py: changed" in run_module(patch_series, path=str(kernel), patches=series("policy"))["msg"]


def test_a_file_of_anothers_in_a_new_files_place_is_refused(kernel: Path, run_module: Run) -> None:
    (kernel / "more").mkdir()
    (kernel / "more" / "archs.cmake").write_text("mine\n")
    assert "more/archs.cmake: changed" in run_module(patch_series, path=str(kernel), patches=series())["msg"]


def test_changes_beside_the_folder_do_not_matter(kernel: Path, run_module: Run) -> None:
    (kernel.parent / "README").write_text("mine\n")
    assert run_module(patch_series, path=str(kernel), patches=series())["changed"]


def test_a_link_in_a_files_place_is_refused(kernel: Path, run_module: Run) -> None:
    (kernel / "soft.py").unlink()
    (kernel / "soft.py").symlink_to("build.cmake")
    message = run_module(patch_series, path=str(kernel), patches=series())["msg"]
    assert message == f"{kernel}/soft.py is no plain file, and only those are patched"


def test_a_folder_in_no_repository_is_refused(
    tmp_path: Path, run_module: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    message = run_module(patch_series, path=str(tmp_path), patches=series())["msg"]
    assert message.startswith(f"{tmp_path} is in no git work tree (git rev-parse: not a git repository")
    assert message.endswith("make one of an archive with git init, git add --all and git commit")
    message = run_module(patch_series, path=str(tmp_path / "none"), patches=series())["msg"]
    assert message == f"{tmp_path / 'none'} is no folder: get the source first"


def test_a_folder_that_no_commit_holds_is_refused(kernel: Path, run_module: Run) -> None:
    (kernel / "archive").mkdir()
    message = run_module(patch_series, path=str(kernel / "archive"), patches=series())["msg"]
    assert message == (
        f"{kernel}/archive is in no commit of the repository {kernel.parent}: commit the source first"
    )


def test_a_host_without_git_is_refused(
    kernel: Path, run_module: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AnsibleModule, "get_bin_path", lambda *_arguments: None)
    assert run_module(patch_series, path=str(kernel), patches=series())["msg"] == (
        "git is not installed on this host, and it applies the patches: install the package git"
    )


def test_an_empty_series_is_refused(kernel: Path, run_module: Run) -> None:
    assert run_module(patch_series, path=str(kernel))["msg"].startswith("patches is empty: name the series")


BROKEN = [
    ("words\n", "patch policy holds no hunk of a unified diff"),
    (
        POLICY.replace("+++ b/build.cmake", "+++ b/../build.cmake"),
        "line 2: 'b/../build.cmake' is no file of the tree",
    ),
    (
        POLICY.replace("+++ b/build.cmake", "+++ b/other.cmake"),
        "line 2: 'a/build.cmake' becomes 'other.cmake'",
    ),
    (POLICY.replace("-policy OLD", "policy OLD"), "line 5: 'policy OLD' where a line of a hunk is wanted"),
    (
        POLICY.replace(" project(kernel)\n", ""),
        "line 8: 'the end of the patch' where a line of a hunk is wanted",
    ),
    (POLICY.replace("@@ -1,3", "@@ 1,3"), "line 3: no header of a hunk"),
    (POLICY.split("\n", 2)[2], "line 1: a hunk of no file"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_what_is_no_patch_is_refused(kernel: Path, run_module: Run, text: str, message: str) -> None:
    wanted = series("policy", policy={"text": text})
    result = run_module(patch_series, path=str(kernel), patches=wanted)
    assert result["failed"]
    assert message in result["msg"]
    assert result["msg"].endswith("write it with `git diff`")
