"""A server on 127.0.0.1 that speaks as much of the hub's API as its real client needs to read metadata."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeRepository:
    """Files of a repository by name; a token where it is gated; revisions that exist."""

    files: Mapping[str, bytes]
    gated: bool = False
    token: str = "hf_secret"  # noqa: S105 - of a server that lives for a test
    revisions: tuple[str, ...] = ("main", COMMIT)


@dataclass
class FakeHub:
    """The server's content and what was asked of it."""

    repositories: dict[str, FakeRepository] = field(default_factory=dict)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    sent_bytes: int = 0
    url: str = ""


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:  # noqa: C901 - one class
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            """Say nothing."""

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _error(self, status: int, code: str, message: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", message)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _answer(self) -> None:
            hub.requests.append((self.command, self.path, self.headers.get("Range")))
            parts = self.path.split("?")[0].strip("/").split("/")
            if len(parts) < 5 or parts[2] != "resolve":
                self._error(404, "EntryNotFound", "not served")
                return
            repository = hub.repositories.get("/".join(parts[:2]))
            if repository is None:
                self._error(401, "RepoNotFound", "Repository not found")
            elif parts[3] not in repository.revisions:
                self._error(404, "RevisionNotFound", "Invalid rev id")
            elif repository.gated and self.headers.get("Authorization") != f"Bearer {repository.token}":
                self._error(401, "GatedRepo", "Access to model is restricted")
            elif (name := "/".join(parts[4:])) not in repository.files:
                self._error(404, "EntryNotFound", "Entry not found")
            else:
                self._send(repository.files[name])

        def _send(self, content: bytes) -> None:
            begin, end = 0, len(content) - 1
            wanted = self.headers.get("Range")
            if wanted and wanted.startswith("bytes="):
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                begin, end = int(first or 0), min(end, int(last) if last else end)
            body = content[begin : end + 1]
            self.send_response(206 if wanted else 200)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')  # noqa: S324 - as git does
            self.send_header("Accept-Ranges", "bytes")
            if wanted:
                self.send_header("Content-Range", f"bytes {begin}-{end}/{len(content)}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                hub.sent_bytes += len(body)
                self.wfile.write(body)

    return Handler


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """Serve until the block ends; `hub.url` is the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
