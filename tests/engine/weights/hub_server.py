"""A model hub on loopback that speaks what huggingface_hub asks for: repository listings with checksums, files with ranges."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = (".safetensors", ".gguf")


class Hub(ThreadingHTTPServer):
    """Serves `repos` (name to folder). `cut_after` bytes of a large file its connection is dropped, `cuts` times; files in
    `lies` are listed with a wrong checksum. `requests` are (method, path, range) as they came."""

    daemon_threads = True

    def __init__(self, repos: dict[str, Path]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos = repos
        self.requests: list[tuple[str, str, str]] = []
        self.cut_after, self.cuts = 0, 0
        self.lies: set[str] = set()
        self.gated: set[str] = set()
        self.sent = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serving(repos: dict[str, Path]) -> Iterator[Hub]:
    hub = Hub(repos)
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        path = unquote(urlparse(self.path).path)
        self.server.requests.append((self.command, path, self.headers.get("Range", "")))
        if path.startswith("/api/models/"):
            return self._listing(path.removeprefix("/api/models/").partition("/revision/")[0])
        repo, _, rest = path[1:].partition("/resolve/")
        file = self.server.repos.get(repo, Path("/nowhere")) / rest.partition("/")[2]
        if not file.is_file():
            return self._error(404, "EntryNotFound" if repo in self.server.repos else "RepoNotFound")
        return self._file(file, body)

    def _listing(self, repo: str) -> None:
        if repo in self.server.gated:
            return self._error(403, "GatedRepo")
        if repo not in self.server.repos:
            return self._error(401, "RepoNotFound")
        siblings = []
        for file in sorted(self.server.repos[repo].iterdir()):
            data = file.read_bytes()
            sibling: dict[str, Any] = {"rfilename": file.name, "size": len(data), "blobId": _git_sha1(data)}
            if file.suffix in LARGE:
                sha256 = hashlib.sha256(b"other" if file.name in self.server.lies else data).hexdigest()
                sibling["lfs"] = {"size": len(data), "sha256": sha256, "pointerSize": 134}
            siblings.append(sibling)
        data = json.dumps({"id": repo, "modelId": repo, "sha": COMMIT, "siblings": siblings}).encode()
        self._head(200, len(data), {"Content-Type": "application/json"})
        self.wfile.write(data)

    def _file(self, file: Path, body: bool) -> None:
        data = file.read_bytes()
        headers = {"ETag": f'"{_git_sha1(data)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        status, start, end = 200, 0, len(data)
        if wanted := self.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last) + 1 if last else len(data), len(data))
            status = 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        self._head(status, end - start, headers)
        if not body:
            return
        part = data[start:end]
        hub = self.server
        if hub.cuts and file.suffix in LARGE and (wanted or "").endswith("-") and len(part) > hub.cut_after:
            hub.cuts -= 1
            part = part[: hub.cut_after]
            self.close_connection = True
        hub.sent += len(part)
        self.wfile.write(part)

    def _error(self, status: int, code: str) -> None:
        self._head(status, 0, {"X-Error-Code": code, "X-Error-Message": code})

    def _head(self, status: int, size: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(size))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def _git_sha1(data: bytes) -> str:
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()
