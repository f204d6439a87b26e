"""Tiny wheels, made byte by byte, and an index that serves them as PyPI does."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

LONG_AGO = (2026, 1, 1, 0, 0, 0)


def make_wheel(
    folder: Path, name: str, version: str = "1.0", code: str = "", requires: str = ""
) -> dict[str, Any]:
    """Write the wheel of a module `name` with this code; returns its entry of a lock."""
    info = f"{name}-{version}.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        record += f"{path},sha256={digest},{len(text.encode())}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path, LONG_AGO), text)
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    wheel.write_bytes(content.getvalue())
    return {
        "name": name.replace("_", "-"),
        "version": version,
        "file": wheel.name,
        "sha256": hashlib.sha256(content.getvalue()).hexdigest(),
        "size": len(content.getvalue()),
        "index": None,
    }


class Index(ThreadingHTTPServer):
    """A folder of wheels, with the pages of the simple API over it."""

    daemon_threads = True
    folder: Path
    requests: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/simple"

    @property
    def downloads(self) -> list[str]:
        """The wheels that were asked for, in order."""
        return [unquote(path.rpartition("/")[2]) for path in self.requests if path.endswith(".whl")]


class Handler(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        kind, content = self.answer()
        self.send_response(200 if content is not None else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def answer(self) -> tuple[str, bytes | None]:
        page = re.fullmatch(r"/simple/([a-z0-9-]+)/", self.path)
        if page:
            wheels = sorted(self.server.folder.glob(f"{page[1].replace('-', '_')}-*.whl"))
            links = "".join(f'<a href="/files/{wheel.name}">{wheel.name}</a>\n' for wheel in wheels)
            return (
                "text/html",
                f"<!DOCTYPE html><html><body>{links}</body></html>".encode() if links else None,
            )
        wheel = self.server.folder / unquote(self.path.removeprefix("/files/"))
        return "application/octet-stream", wheel.read_bytes() if wheel.is_file() else None

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@contextmanager
def serving(folder: Path) -> Iterator[Index]:
    """Serve the wheels of a folder."""
    folder.mkdir(exist_ok=True)
    index = Index(("127.0.0.1", 0), Handler)
    index.folder, index.requests = folder, []
    thread = threading.Thread(target=index.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield index
    finally:
        index.shutdown()
        index.server_close()
        thread.join()
