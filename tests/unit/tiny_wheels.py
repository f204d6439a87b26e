"""Tiny wheels, made byte by byte, and an index that serves them as PyPI does."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import socket
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

PIECE = 1 << 16  # bytes of a wheel that are sent at once
LONG_AGO = (2026, 1, 1, 0, 0, 0)


def make_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    code: str = "",
    *,
    requires: str = "",
    size: int = 0,
    files: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Write the wheel of a module with this code and `size` bytes or more; returns its entry of a lock.

    Instead of the module it may hold `files`; those below a folder `bin` may be executed by their owner.

    Where a test needs the name of a real package, the wheel is a stand-in that holds nothing of it.
    """
    info = f"{name}-{version}.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        **({f"{name}.py": code} if files is None else files),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if size:
        files[f"{name}_padding.txt"] = "stand-in " * (size // 9 + 1)
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        record += f"{path},sha256={digest},{len(text.encode())}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path, text in files.items():
            member = zipfile.ZipInfo(path, LONG_AGO)
            member.external_attr = (0o100744 if "/bin/" in path else 0o100644) << 16
            archive.writestr(member, text)
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


@dataclass
class Fault:
    """What is wrong with an index's answers; each count is used up by the answers that it spoils."""

    cut_after: int = 0  # bytes of a wheel after which the connection is dropped
    cuts: int = 0  # how many downloads are cut
    pause: float = 0.0  # seconds between the pieces of a wheel
    tampered: set[str] = field(default_factory=set)  # wheels of which one byte is another


class Index(ThreadingHTTPServer):
    """A folder of wheels with the pages of the simple API over it.

    `page` is the path of the pages and `files` that of the wheels. PyTorch's nightly index has both below
    /whl/nightly/cu130; FlashInfer's has its pages below /whl/cu130 and its wheels in a release on GitHub.
    """

    daemon_threads = True
    folder: Path
    page: str
    files: str
    requests: list[str]
    ranges: list[str]
    fault: Fault

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}{self.page}"

    @property
    def downloads(self) -> list[str]:
        """The wheels that were asked for, in order."""
        return [unquote(path.rpartition("/")[2]) for path in self.requests if path.endswith(".whl")]


class Handler(BaseHTTPRequestHandler):
    server: Index

    def do_HEAD(self) -> None:
        wheel = self.server.folder / unquote(self.path.removeprefix(f"{self.server.files}/"))
        self.send_response(200 if wheel.is_file() else 404)
        self.send_header("Content-Length", str(wheel.stat().st_size if wheel.is_file() else 0))
        self.end_headers()

    def do_GET(self) -> None:
        index = self.server
        index.requests.append(self.path)
        page = re.fullmatch(f"{re.escape(index.page)}/([a-z0-9-]+)/", self.path)
        if page:
            self.send_page(page[1])
            return
        wheel = index.folder / unquote(self.path.removeprefix(f"{index.files}/"))
        if wheel.is_file():
            self.send_wheel(wheel)
        else:
            self.send_error(404)

    def send_page(self, package: str) -> None:
        wheels = sorted(self.server.folder.glob(f"{package.replace('-', '_')}-*.whl"))
        if not wheels:
            self.send_error(404)
            return
        links = "".join(
            f'<a href="{self.server.files}/{quote(wheel.name)}">{wheel.name}</a><br/>\n' for wheel in wheels
        )
        content = f"<!DOCTYPE html><html><body><h1>Links for {package}</h1>{links}</body></html>".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def send_wheel(self, wheel: Path) -> None:
        """The wheel, or what a Range asks for of it, with the index's faults."""
        content, fault = wheel.read_bytes(), self.server.fault
        if wheel.name in fault.tampered:
            content = content[:-1] + bytes([content[-1] ^ 1])
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        start = int(wanted[1]) if wanted else 0
        if wanted:
            self.server.ranges.append(wheel.name)
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("ETag", f'"{wheel.name}"')
        self.send_header("Accept-Ranges", "bytes")
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = len(content)
        if fault.cuts:
            fault.cuts -= 1
            end = min(end, start + fault.cut_after)
        for place in range(start, end, PIECE):
            self.wfile.write(content[place : min(end, place + PIECE)])
            self.wfile.flush()
            time.sleep(fault.pause)
        if end < len(content):
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@contextmanager
def serving(folder: Path, page: str = "/simple", files: str = "/files") -> Iterator[Index]:
    """Serve the wheels of a folder."""
    folder.mkdir(exist_ok=True)
    index = Index(("127.0.0.1", 0), Handler)
    index.folder, index.page, index.files = folder, page, files
    index.requests, index.ranges, index.fault = [], [], Fault()
    thread = threading.Thread(target=index.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield index
    finally:
        index.shutdown()
        index.server_close()
        thread.join()
