"""The gate on the command line.

Exit status: 0 pass or warn, 1 fail, 2 error, 64 usage.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from .baseline import Deployment, Hardware, Stored, parse, read_hardware, store, to_text
from .client import check_api_key
from .errors import UsageError
from .files import write_atomically
from .gate import Settings, make_settings, plan_lines, run_gate
from .profiles import PROFILES
from .record import PROFILE, record_pass
from .render import render_reports, table_lines

EXIT_CODES = {"pass": 0, "warn": 0, "fail": 1, "error": 2}
USAGE = 64
KEY_VARIABLE = "LLM_GATE_API_KEY"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = _Parser(
        prog="llm_gate",
        allow_abbrev=False,
        description="Prove that an LLM server answers rightly before it serves.",
    )
    options.add_argument(
        "--url", required=True, help="base address of the server, such as http://127.0.0.1:30000"
    )
    options.add_argument(
        "--model", help="name that the server must serve; default: the model profile's, else the first"
    )
    options.add_argument(
        "--profile", default="quick", help=f"how much to test: {', '.join(PROFILES)} (default: quick)"
    )
    options.add_argument(
        "--model-profile", metavar="FILE", help="model profile (YAML or JSON) with a gate section"
    )
    options.add_argument(
        "--baseline",
        metavar="FILE",
        help="stored baseline to compare with; it must be of this deployment",
    )
    options.add_argument(
        "--record",
        metavar="FILE",
        help="run the profile full and, if it passes, write one pass of a new baseline; "
        "`python -m llm_gate.merge --out BASELINE PASS...` makes a baseline of several",
    )
    options.add_argument(
        "--beside", type=int, default=0, metavar="N", help="record beside N other requests (default: 0)"
    )
    options.add_argument("--revision", help="revision of the checkpoint, a part of the baseline's key")
    options.add_argument(
        "--hardware",
        metavar="JSON",
        help='what speed depends on, such as {"gpu": "RTX PRO 6000", "count": 8, "power_cap_w": 400}',
    )
    options.add_argument(
        "--api-key-file",
        metavar="FILE",
        help=f"file that holds the server's API key; default: ${KEY_VARIABLE}",
    )
    options.add_argument(
        "--deadline", type=float, metavar="S", help="seconds for the whole run; default: the profile's"
    )
    options.add_argument(
        "--flush-after-nan",
        action="store_true",
        help="have the server flush its cache if its logits were NaN; not for a server that others use",
    )
    options.add_argument(
        "--most-concurrency", type=int, metavar="N", help="the most requests at a time, for a live server"
    )
    options.add_argument(
        "--most-tokens", type=int, metavar="N", help="refuse a plan that may cost more tokens"
    )
    options.add_argument("--dry-run", action="store_true", help="print the plan and send nothing")
    options.add_argument("--out", metavar="DIR", help="folder for the reports; needed unless --dry-run")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the gate; the exit status."""
    try:
        options = parser().parse_args(arguments)
        settings = _settings(options)
        if options.dry_run:
            print("\n".join(plan_lines(settings)))
            return 0
        if options.out is None:
            raise UsageError("--out is needed unless --dry-run is given")
        if options.beside < 0:
            raise UsageError(f"--beside must not be below 0, not {options.beside}")
        folder = prepare_folder(Path(options.out))
    except UsageError as error:
        print(f"llm_gate: {error}", file=sys.stderr)
        return USAGE
    recording = record_pass(settings, options.beside, _print_progress) if options.record else None
    document = recording.document if recording else run_gate(settings, _print_progress)
    print("\n".join(table_lines(document)))
    try:
        for name, text in render_reports(document).items():
            write_atomically(folder / name, text)
        if recording and recording.measured:
            write_atomically(Path(options.record), to_text(recording.measured))
    except OSError as error:
        print(f"llm_gate: the reports could not be written: {error}", file=sys.stderr)
        return EXIT_CODES["error"]
    if recording and not recording.measured:
        print(f"llm_gate: nothing recorded: {recording.refused}", file=sys.stderr)
        return max(EXIT_CODES[str(document["verdict"])], EXIT_CODES["fail"])
    return EXIT_CODES[str(document["verdict"])]


def _settings(options: argparse.Namespace) -> Settings:
    return make_settings(
        url=options.url,
        model=options.model,
        profile=PROFILE if options.record else options.profile,
        model_profile=None
        if options.model_profile is None
        else load_model_profile(Path(options.model_profile)),
        deadline_s=options.deadline,
        api_key=_api_key(options.api_key_file),
        deployment=Deployment(
            revision=options.revision or None,
            hardware=None if options.hardware is None else _read_hardware(options.hardware),
            baseline=None if options.baseline is None else _read_baseline(Path(options.baseline)),
        ),
        flush_after_nan=options.flush_after_nan,
        most_concurrency=options.most_concurrency,
        most_tokens=options.most_tokens,
    )


def _api_key(file: str | None) -> str | None:
    if file is not None:
        return read_api_key(Path(file))
    key = os.environ.get(KEY_VARIABLE)
    return check_api_key(key, KEY_VARIABLE) if key else None


def read_api_key(path: Path) -> str:
    """The key in a file. Raises UsageError, which never shows the key."""
    return check_api_key(_read(path, "api key file"), f"api key file {path}")


def load_model_profile(path: Path) -> object:
    """The document of a model profile, JSON or YAML. Raises UsageError."""
    text = _read(path, "model profile")
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        import yaml  # noqa: PLC0415 - the gate needs it for nothing else, and a JSON profile does without
    except ImportError:
        raise UsageError(
            f"model profile {path}: is not JSON, and YAML needs the Python package PyYAML"
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"model profile {path}: is neither JSON nor YAML: {error}") from None


def _read_baseline(path: Path) -> Stored:
    text = _read(path, "baseline")
    return store(parse(text, str(path)), str(path), hashlib.sha256(text.encode()).hexdigest())


def _read_hardware(text: str) -> Hardware:
    try:
        return read_hardware(json.loads(text), "--hardware")
    except ValueError as error:
        raise UsageError(f"--hardware must be JSON: {error}") from None


def _read(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise UsageError(f"{what} {path}: {reason}") from None


def prepare_folder(folder: Path) -> Path:
    """Make the folder and see that files can be written there. Raises UsageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        trial = folder / ".llm_gate.trial"
        write_atomically(trial, "")
        trial.unlink()
    except OSError as error:
        raise UsageError(f"--out {folder}: {error.strerror}") from None
    return folder


def _print_progress(done: int, total: int, note: str) -> None:
    print(f"[{done}/{total}] {note}", file=sys.stderr, flush=True)
