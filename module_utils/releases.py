"""The releases on a node: which there are, which one is current, and the one switch between them.

    ROOT/releases/<id>/   manifest.json, sglang.conf, venv -> ..., model -> ..., then verdict.json and `proved`
    ROOT/current          the release that the unit runs
    ROOT/previous         the release that a rollback goes back to
    ROOT/trial.json       the journal of a switch whose gate has not spoken yet
    TRIAL_MARK            lets the unit start an unproved release; in /run, so that a reboot takes it away

A release is on trial from the switch until `confirm` or `revert`. The journal is on disk before the first link moves,
so a run that dies at any point leaves enough to carry on or to go back.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .durable import read_json, remove, switch_link, write_json, write_text

PASSING = ("pass", "warn")
RUN_FOLDER = Path("/run/smokestack")
RUNNING_LINK = Path("/run/sglang/release")


class ReleaseError(Exception):
    """A switch that must not happen; the message says what was found and what to do."""


@dataclass(frozen=True)
class Switch:
    """What a step changed, and what the unit must now do."""

    changed: bool
    release: str | None
    """The release that is current afterwards; None when there is none and the unit must stop."""
    restart: bool
    """Whether the unit runs something other than `release`."""


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
    def previous(self) -> str | None:
        return self.linked("previous")

    def running(self) -> str | None:
        """The release whose process the unit runs; the unit writes this link when it starts and drops it when it stops."""
        return self._running_link.readlink().name if self._running_link.is_symlink() else None

    def proved(self, release: str | None) -> bool:
        return release is not None and (self.folder(release) / "proved").exists()

    def verdict(self, release: str) -> dict[str, Any] | None:
        return read_json(self.folder(release) / "verdict.json")

    def manifest(self, release: str) -> dict[str, Any] | None:
        return read_json(self.folder(release) / "manifest.json")

    def journal(self) -> dict[str, Any] | None:
        return read_json(self._journal)

    def facts(self) -> dict[str, Any]:
        current = self.current
        return {
            "current": current,
            "previous": self.previous,
            "running": self.running(),
            "trial": (self.journal() or {}).get("candidate"),
            "proved": self.proved(current),
            "manifest": self.manifest(current) if current else None,
            "verdict": self.verdict(current) if current else None,
        }

    # The switch

    def try_out(self, release: str, retry_failed: bool = False) -> Switch:
        """Make `release` current on trial. Nothing happens when it is current, proved and running."""
        self._check_whole(release)
        verdict = self.verdict(release)
        if verdict and verdict["verdict"] not in PASSING and not retry_failed:
            raise ReleaseError(
                f"release {release} failed its gate at {verdict['finished']} and is not tried again: "
                f"{verdict['summary']}. Change the stack or the profile, or try it again with -e retry_failed=true"
            )
        restart = self.running() != release
        if self.current == release and self.proved(release) and self.journal() is None:
            return Switch(changed=False, release=release, restart=restart)
        journal = self.journal()
        if journal:  # an earlier trial never ended: its way back is still the way back
            back, previous = journal["revert_to"], journal["previous"]
        else:
            back, previous = self.current, self.previous
            if back == release or not self.proved(back):
                back, previous = previous, None
        if back == release:  # the run wants again what served before that trial
            back, previous = previous, None
        changed = self.current != release
        if not self.dry:
            write_json(self._journal, {"candidate": release, "revert_to": back, "previous": previous})
            self._mark.parent.mkdir(parents=True, exist_ok=True)
            self._mark.touch()
            self._link("previous", back)
            self._link("current", release)
        return Switch(changed=changed, release=release, restart=restart)

    def confirm(self, release: str, verdict: dict[str, Any]) -> Switch:
        """The gate passed: the release on trial is proved, and what served before it is `previous`."""
        if self.current != release:
            raise ReleaseError(f"cannot confirm release {release}: the current one is {self.current}")
        known = self.verdict(release)
        changed = not self.proved(release) or known is None or known["verdict"] != verdict["verdict"]
        if not self.dry:
            if changed:
                write_json(self.folder(release) / "verdict.json", verdict)
                write_text(self.folder(release) / "proved", f"{verdict['run_id']}\n")
            self._end_trial()
        return Switch(changed=changed, release=release, restart=False)

    def revert(self, release: str, verdict: dict[str, Any]) -> Switch:
        """The gate failed, or the release did not start: remember that, and go back to what was proved before."""
        if self.current != release:
            raise ReleaseError(f"cannot revert release {release}: the current one is {self.current}")
        journal = self.journal()
        back, previous = (journal["revert_to"], journal["previous"]) if journal else (self.previous, None)
        if not self.proved(back):
            back = None
        if not self.dry:
            remove(self.folder(release) / "proved")
            write_json(self.folder(release) / "verdict.json", verdict)
            self._link("current", back)
            self._link("previous", previous if previous != back else None)
            self._end_trial()
        return Switch(changed=True, release=back, restart=back is not None)

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

    def _link(self, name: str, release: str | None) -> None:
        if release is None:
            remove(self.root / name)
        elif self.linked(name) != release:
            switch_link(self.root / name, self.folder(release))

    def _end_trial(self) -> None:
        remove(self._journal)
        self._mark.unlink(missing_ok=True)


def unstarted_verdict(run_id: str, summary: str) -> dict[str, Any]:
    """The verdict of a release that never answered, in the words of a gate report."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"run_id": run_id, "verdict": "error", "summary": summary, "finished": now}
