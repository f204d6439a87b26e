"""Patches of a source tree: what each would do there, and putting the whole series in or taking it out.

The tree is a folder in a git work tree. What a series makes of it is worked out beside the work tree, from
HEAD: so the outcome hangs on the commit, the patches and the tools, never on what an earlier run left. Files
in the work tree are written last, each in one step; two refs of the work tree say which files are ours, and
so an interrupted run is gone on with, and undone, without guessing.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .durable import sync_folder

AT = "refs/worktree/patch-series/at"
"""The series that is in the work tree: a commit that is on no branch, whose parent is the commit patched."""
TO = "refs/worktree/patch-series/to"
"""The series that is being put there; left behind only by a run that was interrupted."""

APPLIED, ALREADY, NOT_NEEDED, UPSTREAM, DRIFTED = (
    "applied",
    "already_applied",
    "not_needed",
    "upstream",
    "drifted",
)
WITHHELD = "withheld"
"""Fits, and is not applied because another patch drifted."""

PLAIN = {
    "apply.ignoreWhitespace": "no",
    "apply.whitespace": "nowarn",
    "core.fsync": "loose-object,reference",
    "core.quotePath": "off",
}
"""Whatever a user's own settings are: context counts to the letter, and what is written is on the disk."""
NOBODY = {
    f"GIT_{who}_{key}": value
    for who in ("AUTHOR", "COMMITTER")
    for key, value in {
        "NAME": "patch_series",
        "EMAIL": "patch_series@localhost",
        "DATE": "2000-01-01T00:00:00Z",
    }.items()
}


class PatchError(Exception):
    """The series cannot be worked on; the message says what is wrong and what to do."""


# --- patches -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hunk:
    """One place that a patch changes: the lines it finds there and those it leaves."""

    file: str
    number: int  # in its file, from 1
    line: int  # where it begins in the file that the patch was made of; 0 for a new file
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def new(self) -> bool:
        """Whether the hunk is a file of its own."""
        return self.line == 0


def read_hunks(name: str, text: str) -> list[Hunk]:
    """The hunks of a unified diff that changes or adds text files. Raises PatchError for anything else."""
    hunks: list[Hunk] = []
    lines = iter(enumerate(text.splitlines(), 1))
    old = file = ""

    def wrong(number: int, what: str) -> PatchError:
        return PatchError(f"patch {name}, line {number}: {what}; write it with `git diff`")

    for number, line in lines:
        if line.startswith("--- "):
            old = line[4:].split("\t")[0]
        elif line.startswith("+++ "):
            file = line[4:].split("\t")[0].removeprefix("b/")
            if not file or file.startswith("/") or ".." in Path(file).parts:
                raise wrong(number, f"{line[4:]!r} is no file of the tree")
            if old not in ("/dev/null", f"a/{file}"):
                raise wrong(number, f"{old!r} becomes {file!r}: files are changed or added, never renamed")
        elif line.startswith("@@"):
            head = re.match(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@", line)
            if not head or not file:
                raise wrong(number, "no header of a hunk" if file else "a hunk of no file")
            wanted = [int(head[2] or 1), int(head[3] or 1)]
            before: list[str] = []
            after: list[str] = []
            while [len(before), len(after)] != wanted:
                place, body = next(lines, (len(text.splitlines()), "the end of the patch"))
                if body[:1] not in (" ", "-", "+"):
                    raise wrong(place, f"{body!r} where a line of a hunk is wanted")
                if body[0] != "+":
                    before.append(body[1:])
                if body[0] != "-":
                    after.append(body[1:])
            start = 0 if old == "/dev/null" else int(head[1])
            count = sum(hunk.file == file for hunk in hunks)
            hunks.append(Hunk(file, count + 1, start, tuple(before), tuple(after)))
    if not hunks:
        raise PatchError(f"patch {name} holds no hunk of a unified diff; write it with `git diff`")
    return hunks


def places(wanted: Sequence[str], lines: Sequence[str]) -> list[int]:
    """Where these lines stand together in a file, counted from 1."""
    count = len(wanted)
    return [
        start + 1
        for start in range(len(lines) - count + 1)
        if tuple(lines[start : start + count]) == tuple(wanted)
    ]


def misfit(hunk: Hunk, content: str | None) -> str:
    """Why a hunk does not fit a file, None where there is none; empty when it fits, in one place only."""
    where = f"{hunk.file}, hunk {hunk.number}"
    if hunk.new:
        return "" if content is None else f"{where}: the file that it adds is there"
    where += f" (line {hunk.line} where it was made)"
    if content is None:
        return f"{where}: there is no such file"
    lines = content.splitlines()
    found = places(hunk.before, lines)
    if len(found) > 1:
        return f"{where}: its lines stand there {len(found)} times, from lines {', '.join(map(str, found))}"
    if found:
        return ""
    missing = next((line for line in hunk.before if line not in lines), None)
    what = (
        "its lines are not together there"
        if missing is None
        else f"the line {missing.strip()!r} is not there"
    )
    return f"{where}: {what}"


def holds(hunk: Hunk, content: str | None) -> bool:
    """Whether a file has what the hunk leaves."""
    if content is None:
        return False
    return (
        tuple(content.splitlines()) == hunk.after
        if hunk.new
        else bool(places(hunk.after, content.splitlines()))
    )


# --- git -----------------------------------------------------------------------------------------


class Tree:
    """A folder in a git work tree, and the tree that a series makes of it.

    `dry` keeps every new object out of the repository. Use it as a context: the objects and the index of the
    work beside the work tree are gone afterwards.
    """

    def __init__(self, git: str, folder: Path, dry: bool) -> None:
        self.git_path, self.folder, self.dry = git, folder, dry
        self.listings: dict[str, dict[str, str]] = {}
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        self.environment |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"} | NOBODY

    def __enter__(self) -> Tree:
        if not self.folder.is_dir():
            raise PatchError(f"{self.folder} is no folder: get the source first")
        try:
            self.top = Path(self.git("rev-parse", "--show-toplevel").strip())
        except PatchError as error:
            raise PatchError(
                f"{self.folder} is in no git work tree ({error}): clone the source there, or make one of "
                "an archive with git init, git add --all and git commit"
            ) from error
        self.prefix = self.git("rev-parse", "--show-prefix").strip()
        self.head = self.blob("HEAD^{commit}") or ""
        if not self.head or not self.blob(f"HEAD:{self.prefix.rstrip('/')}"):
            raise PatchError(
                f"{self.folder} is in no commit of the repository {self.top}: commit the source first"
            )
        self.work = tempfile.TemporaryDirectory(prefix="patch_series-")
        self.environment["GIT_INDEX_FILE"] = str(Path(self.work.name, "index"))
        if self.dry:
            objects = Path(self.git("rev-parse", "--path-format=absolute", "--git-path", "objects").strip())
            Path(self.work.name, "objects").mkdir()
            self.environment |= {
                "GIT_OBJECT_DIRECTORY": str(Path(self.work.name, "objects")),
                "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(objects),
            }
        self.git("read-tree", "HEAD")
        return self

    def __exit__(self, *_error: object) -> None:
        self.work.cleanup()

    def git(
        self, *arguments: str, text: str | None = None, own_index: bool = True, folder: Path | None = None
    ) -> str:
        """Run git, in the package's folder where no other is named. Raises PatchError with its words."""
        environment = dict(self.environment)
        if not own_index:
            environment.pop("GIT_INDEX_FILE", None)
        settings = [part for key, value in PLAIN.items() for part in ("-c", f"{key}={value}")]
        result = subprocess.run(
            [self.git_path, *settings, *arguments],
            cwd=folder or self.folder,
            env=environment,
            input=None if text is None else text.encode(),
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            check=False,
        )
        if result.returncode:
            words = result.stderr.decode(errors="replace").strip().splitlines() or [
                f"exit {result.returncode}"
            ]
            raise PatchError(
                f"git {arguments[0]}: {words[0].removeprefix('fatal: ').removeprefix('error: ')}"
            )
        try:
            return result.stdout.decode()
        except UnicodeDecodeError as error:
            raise PatchError(
                f"git {' '.join(arguments)}: not UTF-8, and only text files are patched"
            ) from error

    def blob(self, name: str) -> str | None:
        """The id of an object by any name of git's; None where there is none."""
        with contextlib.suppress(PatchError):
            return self.git("rev-parse", "--verify", "--quiet", name).strip()
        return None

    def content(self, file: str, where: str = "") -> str | None:
        """A file of the folder as the series has made it so far, or in a tree; None where there is none."""
        name = f"{where}:{self.prefix}{file}"
        return self.git("cat-file", "blob", name) if self.blob(name) else None

    def listing(self, tree: str) -> dict[str, str]:
        """The folder's files in a tree: name from the repository's top to id. Read once."""
        if tree not in self.listings:
            entries = self.git("ls-tree", "-r", "-z", "--full-tree", tree, "--", self.prefix or ".").split(
                "\0"
            )
            rows = (entry.split("\t", 1) for entry in entries if entry)
            self.listings[tree] = {name: row.split()[2] for row, name in rows}
        return self.listings[tree]

    def contains(self, commit: str) -> bool:
        """Whether HEAD holds a commit. Raises PatchError where the repository does not know it."""
        if not self.blob(f"{commit}^{{commit}}"):
            raise PatchError(
                f"{self.top} does not know the commit {commit} that a condition names, so it cannot tell "
                "whether the source holds it: fetch the whole history of the source's main branch"
            )
        try:
            self.git("merge-base", "--is-ancestor", commit, "HEAD")
        except PatchError:
            return False
        return True

    def apply(self, text: str) -> None:
        """Apply a patch to the tree beside the work tree; git refuses one whose context is not there."""
        self.git("apply", "--cached", f"--directory={self.prefix}", "-", text=text, folder=self.top)

    def present(self, files: Sequence[str]) -> dict[str, str | None]:
        """The ids of what the work tree has; the names count from the repository's top."""
        there = [file for file in files if (self.top / file).is_symlink() or (self.top / file).exists()]
        for path in (self.top / file for file in there):
            if path.is_symlink() or not path.is_file():
                raise PatchError(f"{path} is no plain file, and only those are patched")
        ids = self.git("hash-object", "--", *there, folder=self.top).split() if there else []
        return dict.fromkeys(files) | dict(zip(there, ids, strict=True))

    def foreign(self) -> tuple[list[str], list[str]]:
        """The folder's files that differ from HEAD: in the index, and in the work tree."""
        options = ["-z", "--name-only", "--no-renames", "--ignore-submodules", "--"]
        staged = self.git("diff", "--cached", *options, ".", own_index=False)
        loose = self.git("diff", *options, ".", own_index=False)
        return tuple([name for name in names.split("\0") if name] for names in (staged, loose))  # type: ignore[return-value]

    def beside(self, file: str) -> Path:
        """Where a file is written before it takes its place."""
        return (self.top / file).with_name(f".{Path(file).name}.patch_series")

    def write(self, tree: str, file: str) -> None:
        """Give a file of the work tree the content and mode that it has in a tree, in one step."""
        path = self.top / file
        entry = self.git("ls-tree", "--full-tree", tree, "--", file)
        beside = self.beside(file)
        if not entry:
            path.unlink(missing_ok=True)
            for folder in path.parents:
                if folder == self.top or any(folder.iterdir()):
                    break
                folder.rmdir()
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as stream:
            stream.write(self.git("cat-file", "--filters", f"{tree}:{file}").encode())
            stream.flush()
            os.fchmod(stream.fileno(), 0o755 if entry.startswith("100755") else 0o644)
            os.fsync(stream.fileno())
        beside.replace(path)
        sync_folder(path.parent)


# --- the series ----------------------------------------------------------------------------------


@dataclass
class Outcome:
    """How one patch ends: its state, and why."""

    name: str
    state: str
    reason: str = ""
    files: list[str] = field(default_factory=list)
    moved: list[dict[str, Any]] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        return vars(self)


def condition(tree: Tree, wanted: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether a condition holds in the tree, and why, in words. Raises LookupError for a missing file."""
    if wanted.get("since"):
        there = tree.contains(wanted["since"])
        return there, f"the source {'holds' if there else 'does not hold'} commit {wanted['since']}"
    if wanted.get("before"):
        there = tree.contains(wanted["before"])
        return not there, f"the source {'holds' if there else 'does not hold'} commit {wanted['before']}"
    content = tree.content(wanted["file"])
    if content is None:
        raise LookupError(f"{wanted['file']}: there is no such file, and a condition asks for it")
    pattern = wanted.get("has") or wanted["lacks"]
    there = re.search(pattern, content, re.MULTILINE) is not None
    return there == bool(wanted.get("has")), f"{wanted['file']} {'has' if there else 'lacks'} {pattern!r}"


def excuse(tree: Tree, patch: Mapping[str, Any]) -> tuple[str, str]:
    """The state of a patch that is not to be applied, and why; two empty texts for one that is."""
    if patch["unneeded"]:
        return NOT_NEEDED, patch["unneeded"]
    try:
        upstream = [condition(tree, wanted) for wanted in patch["upstream_when"]]
        needed = [condition(tree, wanted) for wanted in patch["needed_when"]]
    except LookupError as error:
        return DRIFTED, str(error.args[0])
    if upstream and all(there for there, _words in upstream):
        return UPSTREAM, "; ".join(words for _there, words in upstream)
    return next(((NOT_NEEDED, words) for there, words in needed if not there), ("", ""))


def judge(tree: Tree, patch: Mapping[str, Any]) -> Outcome:
    """What becomes of a patch in the tree as it is made so far; one that fits is applied there."""
    hunks = read_hunks(patch["name"], patch["text"])
    contents = {hunk.file: tree.content(hunk.file) for hunk in hunks}
    if all(holds(hunk, contents[hunk.file]) for hunk in hunks):
        return Outcome(patch["name"], ALREADY, "the commit itself holds it", list(contents))
    state, reason = excuse(tree, patch)
    if not state:
        reason = "; ".join(filter(None, (misfit(hunk, contents[hunk.file]) for hunk in hunks)))
        try:
            if not reason:
                tree.apply(patch["text"])
                reason = "; ".join(
                    f"{hunk.file}, hunk {hunk.number}: git put it elsewhere"
                    for hunk in hunks
                    if not holds(hunk, tree.content(hunk.file))
                )
        except PatchError as error:
            reason = str(error)
        state = DRIFTED if reason else APPLIED
    outcome = Outcome(patch["name"], state, reason, list(contents))
    for hunk in hunks if state == APPLIED else []:
        found = places(hunk.before, (tree.content(hunk.file, "HEAD") or "").splitlines())
        if not hunk.new and found and found[0] != hunk.line:
            outcome.moved.append({"file": hunk.file, "hunk": hunk.number, "lines": found[0] - hunk.line})
    return outcome


@dataclass
class Plan:
    """What a run does: the outcome of each patch, and the files to write from a tree."""

    outcomes: list[Outcome]
    target: str  # the tree with the series in
    files: dict[
        str, tuple[str | None, str | None]
    ]  # from the repository's top: what is there, what is wanted
    source: str  # the id of the folder itself in `target`: what is built

    @property
    def writes(self) -> list[str]:
        return [file for file, (there, wanted) in self.files.items() if there != wanted]

    @property
    def drifted(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.state == DRIFTED]


def known_blobs(tree: Tree) -> dict[str, set[str | None]]:
    """What a series that was put in, or was being put in, had in its files, and what they were before."""
    known: dict[str, set[str | None]] = {}
    for ref in (AT, TO):
        if tree.blob(ref):
            before, after = tree.listing(f"{ref}^"), tree.listing(ref)
            for file in before.keys() | after.keys():
                if before.get(file) != after.get(file):
                    known.setdefault(file, set()).update((before.get(file), after.get(file)))
    return known


def plan(tree: Tree, patches: Sequence[Mapping[str, Any]]) -> Plan:
    """Work out what the series does here. Raises PatchError when the work tree has changes of another's."""
    head, known = tree.listing("HEAD"), known_blobs(tree)
    outcomes = []
    for patch in patches:
        outcome = judge(tree, patch)
        outcomes.append(outcome)
        for file in outcome.files if outcome.state == APPLIED else []:
            name = tree.prefix + file
            known.setdefault(name, set()).add(tree.blob(f":{name}"))
    target = tree.git("write-tree").strip()
    staged, loose = tree.foreign()
    present = tree.present(sorted(known))
    wanted = tree.listing(target)
    others = [file for file in loose if file not in known]
    others += [file for file, blob in present.items() if blob not in known[file] | {head.get(file)}]
    if staged or others:
        others = sorted({*staged, *others})
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise PatchError(
            f"{tree.top / others[0]}{more}: changed, and not by this series. Commit the change, or take it "
            f"back with: git -C {tree.top} checkout HEAD -- {others[0]}"
        )
    for outcome, patch in zip(outcomes, patches, strict=True):
        if outcome.state == APPLIED and is_in(tree, patch, present, wanted):
            outcome.state = ALREADY
    files = {file: (blob, wanted.get(file)) for file, blob in present.items()}
    return Plan(outcomes, target, files, tree.blob(f"{target}:{tree.prefix.rstrip('/')}") or "")


def is_in(
    tree: Tree, patch: Mapping[str, Any], present: Mapping[str, str | None], wanted: Mapping[str, str]
) -> bool:
    """Whether the work tree has a patch: its files are those of the whole series, or they hold its hunks."""
    hunks = read_hunks(patch["name"], patch["text"])
    names = {hunk.file: tree.prefix + hunk.file for hunk in hunks}
    if all(present[name] == wanted.get(name) for name in names.values()):
        return True
    return all(
        holds(
            hunk,
            (tree.top / names[hunk.file]).read_text(encoding="utf-8") if present[names[hunk.file]] else None,
        )
        for hunk in hunks
    )


def carry_out(tree: Tree, planned: Plan) -> None:
    """Write the files. What they will be is on the disk before the first of them changes."""
    record = None
    if planned.target != tree.blob("HEAD^{tree}"):
        names = [outcome.name for outcome in planned.outcomes if outcome.state in (APPLIED, ALREADY)]
        record = tree.git("commit-tree", planned.target, "-p", tree.head, "-m", "\n".join(names)).strip()
    if not planned.writes and tree.blob(AT) == record and not tree.blob(TO):
        return
    if record:
        tree.git("update-ref", TO, record)
    for file in planned.files:
        tree.beside(file).unlink(missing_ok=True)
    for file in planned.writes:
        tree.write(planned.target, file)
    if record:
        tree.git("update-ref", AT, record)
    for ref in (TO,) if record else (AT, TO):
        if tree.blob(ref):
            tree.git("update-ref", "-d", ref)


def contents(tree: Tree, planned: Plan) -> Iterator[tuple[str, str, str]]:
    """The files to write: name from the repository's top, what is in it, what will be."""
    for file in planned.writes:
        there, wanted = planned.files[file]
        before = (tree.top / file).read_text(encoding="utf-8") if there else ""
        yield file, before, tree.git("cat-file", "blob", wanted) if wanted else ""
