"""The releases on a node: which there are, which one is current, and the one switch between them.

    ROOT/releases/<id>/   manifest.json, sglang.conf, venv -> ..., model -> ..., then verdict.json and
    `proved`; `pinned` where an operator wants it kept
    ROOT/current          the release that the unit runs
    ROOT/previous         the release that a rollback goes back to
    ROOT/trial.json       the journal of a switch whose gate has not spoken yet
    TRIAL_MARK            lets the unit start an unproved release; in /run, so that a reboot takes it away

A release is on trial from the switch until `confirm` or `revert`. The journal is on disk before the first
link moves, so a run that dies at any point leaves enough to carry on or to go back.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .durable import read_json, remove, switch_link, write_json, write_text

PASSING = ("pass", "warn")
RUN_FOLDER = Path("/run/smokestack")
RUNNING_LINK = Path("/run/sglang/release")
PINNED = "pinned"


class ReleaseError(Exception):
    """A switch that must not happen; the message says what was found and what to do."""


def unknown_release(release: str, known: list[str]) -> str:
    """The refusal of a name that no release has."""
    there = ", ".join(known) or "none"
    return f"there is no release {release!r} on this node; there is: {there}"


@dataclass(frozen=True)
class Switch:
    """What a step changed, and what the unit must now do."""

    changed: bool
    release: str | None
    """The release that is current afterwards; None when there is none and the unit must stop."""
    previous: str | None
    """The release that a rollback goes back to afterwards."""
    restart: bool
    """Whether the unit runs something other than `release`."""


def surplus(releases: list[dict[str, Any]], keep: int) -> list[str]:
    """The releases that a node no longer keeps, the oldest first.

    `releases` are {name, made, safe}. The safe ones stay whatever `keep` says; of the others the newest stay
    until there are `keep` in all.
    """
    newest = sorted(releases, key=lambda release: (release["made"] or "", release["name"]), reverse=True)
    room = keep - sum(release["safe"] for release in releases)
    others = [release["name"] for release in newest if not release["safe"]]
    return others[max(room, 0) :][::-1]


class Store:
    """The releases below `root` (normally /opt/sglang)."""

    def __init__(
        self, root: Path, run_folder: Path = RUN_FOLDER, running_link: Path = RUNNING_LINK, dry: bool = False
    ):
        self.root = root
        self.dry = dry
        self._releases = root / "releases"
        self._journal = root / "trial.json"
        self._mark = run_folder / "trial"
        self._running_link = running_link

    # What is there

    def folder(self, release: str) -> Path:
        return self._releases / release

    def linked(self, name: str) -> str | None:
        """The release that the link `current` or `previous` names, if that release is there."""
        link = self.root / name
        if not link.is_symlink():
            return None
        release = link.readlink().name
        return release if self.folder(release).is_dir() else None

    @property
    def current(self) -> str | None:
        return self.linked("current")

    @property
    def trial(self) -> str | None:
        """The release on trial; None too after a switch that was cut short before it began, or undone."""
        journal, current = self.journal(), self.current
        return current if journal and journal["candidate"] == current else None

    @property
    def previous(self) -> str | None:
        """The release that a rollback goes back to. A journal knows better than the link does."""
        journal = self.journal()
        if journal and self.trial:
            back: str | None = journal["revert_to"]
            return back
        return self._settled()[1]

    def running(self) -> str | None:
        """The release whose process the unit runs; the unit makes this link at start and drops it at stop."""
        return self._running_link.readlink().name if self._running_link.is_symlink() else None

    def proved(self, release: str | None) -> bool:
        return release is not None and (self.folder(release) / "proved").exists()

    def verdict(self, release: str) -> dict[str, Any] | None:
        document: dict[str, Any] | None = read_json(self.folder(release) / "verdict.json")
        return document

    def manifest(self, release: str) -> dict[str, Any] | None:
        document: dict[str, Any] | None = read_json(self.folder(release) / "manifest.json")
        return document

    def journal(self) -> dict[str, Any] | None:
        document: dict[str, Any] | None = read_json(self._journal)
        return document

    def names(self) -> list[str]:
        """Every release that is there whole, by name."""
        found = self._releases.iterdir() if self._releases.is_dir() else ()
        return sorted(
            path.name
            for path in found
            if not path.name.startswith(".") and (path / "manifest.json").is_file()
        )

    def pinned(self, release: str) -> bool:
        return (self.folder(release) / PINNED).exists()

    def pin(self, release: str, wanted: bool) -> bool:
        """Keep a release whatever retention says, or no longer. Returns whether that changed something."""
        if release not in self.names():
            raise ReleaseError(unknown_release(release, self.names()))
        if self.pinned(release) == wanted:
            return False
        if not self.dry:
            if wanted:
                write_text(self.folder(release) / PINNED, "")
            else:
                remove(self.folder(release) / PINNED)
        return True

    def in_use(self) -> set[str]:
        """The releases that something names: the links, the journal of a switch, the unit's process."""
        journal = self.journal() or {}
        named = (self.current, self.previous, self.running(), *journal.values())
        return {release for release in named if release is not None}

    def describe(self, release: str) -> dict[str, Any]:
        """What an operator asks about one release."""
        manifest, verdict = self.manifest(release) or {}, self.verdict(release) or {}
        return {
            "name": release,
            "made": manifest.get("made"),
            "stack": manifest.get("stack"),
            "profile": manifest.get("profile"),
            "model": manifest.get("model"),
            "lock_id": manifest.get("lock_id"),
            "locked": manifest.get("locked"),
            "venv": manifest.get("venv"),
            "toolkit": (manifest.get("toolkit") or {}).get("home"),
            "current": release == self.current,
            "previous": release == self.previous,
            "trial": release == self.trial,
            "running": release == self.running(),
            "pinned": self.pinned(release),
            "proved": self.proved(release),
            "verdict": verdict.get("verdict"),
            "summary": verdict.get("summary"),
            "finished": verdict.get("finished"),
            "not_serving": verdict.get("not_serving"),
            "safe": self.pinned(release) or release in self.in_use(),
        }

    def facts(self) -> dict[str, Any]:
        current, running = self.current, self.running()
        return {
            "current": current,
            "previous": self.previous,
            "running": running,
            "running_url": (self.manifest(running) or {}).get("url") if running else None,
            "trial": self.trial,
            "proved": self.proved(current),
            "manifest": self.manifest(current) if current else None,
            "verdict": self.verdict(current) if current else None,
        }

    # The switch

    def try_out(self, release: str, retry_failed: bool = False) -> Switch:
        """Make `release` current on trial. Nothing happens when it is current, proved and running.

        An earlier trial that never ended is given up first, unless it is this release's: then it goes on.
        """
        self._check_whole(release)
        verdict = self.verdict(release)
        if verdict and verdict["verdict"] not in PASSING and not retry_failed:
            raise ReleaseError(
                f"release {release} failed its gate at {verdict['finished']} and is not tried again: "
                f"{verdict['summary']}. Change the stack or the profile, "
                "or try it again with -e retry_failed=true"
            )
        restart = self.running() != release
        if self.trial == release:
            if not self.dry:
                self._allow_unproved()
            return Switch(changed=False, release=release, previous=self.previous, restart=restart)
        changed = self.current != release
        current, previous = self._settled()
        if not self.dry:
            self._settle()
        if current == release and self.proved(release):
            return Switch(changed=changed, release=release, previous=previous, restart=restart)
        if current == release or not self.proved(current):
            back, before = previous, None
        else:
            back, before = current, previous
        if back == release:
            back, before = before, None
        if not self.dry:
            write_json(self._journal, {"candidate": release, "revert_to": back, "previous": before})
            self._allow_unproved()
            self._link("previous", back)
            self._link("current", release)
        return Switch(changed=changed, release=release, previous=back, restart=restart)

    def confirm(self, release: str, verdict: dict[str, Any]) -> Switch:
        """The gate passed: the release on trial is proved, and what served before it is `previous`."""
        if self.current != release:
            raise ReleaseError(f"cannot confirm release {release}: the current one is {self.current}")
        if verdict["verdict"] not in PASSING:
            raise ReleaseError(f"cannot confirm release {release}: its verdict is {verdict['verdict']}")
        known = self.verdict(release)
        changed = (
            self.trial == release  # a switch is told apart from a run that found nothing to do
            or not self.proved(release)
            or known is None
            or known["verdict"] != verdict["verdict"]
        )
        previous = self.previous
        if not self.dry:
            if changed:
                write_json(self.folder(release) / "verdict.json", verdict)
                write_text(self.folder(release) / "proved", f"{verdict['run_id']}\n")
            self._settle()
        return Switch(changed=changed, release=release, previous=previous, restart=False)

    def revert(self, release: str, verdict: dict[str, Any]) -> Switch:
        """The gate failed, or the release did not start: remember that, and go back to what was proved."""
        journal, current = self.journal(), self.current
        began = journal is not None and journal["candidate"] == release
        if current != release and not began:
            raise ReleaseError(f"cannot revert release {release}: the current one is {current}")
        if began:
            back, previous = self._settled(failed=release)
        else:
            back, previous = self.previous, None
        if not self.dry:
            if not began:
                self._settle()
                write_json(self._journal, {"candidate": release, "revert_to": back, "previous": None})
            remove(self.folder(release) / "proved")
            write_json(self.folder(release) / "verdict.json", verdict)
            self._settle()
        return Switch(changed=True, release=back, previous=previous, restart=back is not None)

    # How

    def _check_whole(self, release: str) -> None:
        folder = self.folder(release)
        if self.dry and not folder.is_dir():
            return  # check mode on a node that does not have it yet
        for name, what in (
            ("manifest.json", "its manifest"),
            ("venv/bin/python", "its virtual environment"),
            ("model/config.json", "its model"),
        ):
            if not (folder / name).exists():
                raise ReleaseError(
                    f"release {release} is not whole: {what} is missing ({folder / name}); run site.yml"
                )

    def _settled(self, failed: str | None = None) -> tuple[str | None, str | None]:
        """What `current` and `previous` name once the switch in the journal, if any, is over.

        A candidate that is current and proved stays; otherwise the node is as it was. `failed` is not proved.
        """

        def proved(release: str | None) -> str | None:
            return release if release != failed and self.proved(release) else None

        journal, current = self.journal(), self.current
        if journal is None:
            previous = self.linked("previous")
        elif current == journal["revert_to"]:  # not moved yet, or moved back
            previous = journal["previous"]
        elif proved(current):
            previous = journal["revert_to"]
        else:
            current, previous = proved(journal["revert_to"]), journal["previous"]
            if current is None:
                current, previous = proved(previous), None
        return current, proved(previous) if previous != current else None

    def _settle(self) -> None:
        """End the switch in the journal. The journal goes last: this can be cut short and done again."""
        current, previous = self._settled()
        self._link("current", current)
        self._link("previous", previous)
        self._mark.unlink(missing_ok=True)
        remove(self._journal)

    def _allow_unproved(self) -> None:
        self._mark.parent.mkdir(parents=True, exist_ok=True)
        self._mark.touch()

    def _link(self, name: str, release: str | None) -> None:
        if release is None:
            remove(self.root / name)
        elif self.linked(name) != release:
            switch_link(self.root / name, self.folder(release))
