"""A server before an object store that now and then fails as stores do.

A request in so many is answered with 503 or 429, or the next answer with a body is cut in the
middle. If wanted, as many listings are stale: the answer is the one that the same request had a
moment ago. Those of the steps of a checkpoint are not: Orbax counts on them, as GCS and S3 promise.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

_FAULTS = ("503", "cut", "429", "cut", "503")
_LISTING = re.compile(r"/storage/v1/b/[^/]+/o/?\?|[?&](list-type|delimiter|prefix)=")
_OF_A_STEP = re.compile(r"checkpoints(/|%2F)\d", re.IGNORECASE)
_STALE_SECONDS = 3
_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length"}


_Answer = tuple[int, dict[str, str], bytes]


class Proxy:
    """What a proxy forwards to, and what it has done to requests.

    Attributes:
      target: the address of the store.
      every: one request in this many fails; 0 for none.
      stale: whether one listing in as many is an earlier one.
      done: how often each fault was made.
    """

    def __init__(self, target: str, every: int, stale: bool) -> None:
        self.target = urlsplit(target)
        self.every = every
        self.stale = stale
        self.done: dict[str, int] = {}
        self._count = itertools.count(1)
        self._kinds = itertools.cycle(_FAULTS)
        self._cuts = 0  # that are due
        self._listings = itertools.count(1)
        self._listed: dict[str, tuple[float, _Answer]] = {}
        self._lock = threading.Lock()

    def fault(self, *, readable: bool) -> str:
        """The fault of the next request; "" for none. Only answers with a body can be cut."""
        with self._lock:
            kind = ""
            if self.every and not next(self._count) % self.every:
                kind = next(self._kinds)
            if kind == "cut":
                self._cuts, kind = self._cuts + 1, ""
            if self.every and readable and not kind and self._cuts:
                self._cuts, kind = self._cuts - 1, "cut"
            if kind:
                self.done[kind] = self.done.get(kind, 0) + 1
            return kind

    def listed(self, path: str, answer: _Answer) -> _Answer:
        """The answer to a request for a listing: an earlier one, if it is time for a stale one."""
        with self._lock:
            now = time.monotonic()
            before, old = self._listed.get(path, (0.0, answer))
            due = self.stale and self.every and not next(self._listings) % self.every
            if due and now - before < _STALE_SECONDS:
                self.done["stale"] = self.done.get("stale", 0) + 1
                return old
            self._listed[path] = now, answer
            return answer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def log_message(self, *args: Any) -> None:
        pass

    def forward(self) -> None:
        """Answers a request of any method."""
        body = self._body()
        fault = self.proxy.fault(readable=self.command == "GET")
        if fault in ("503", "429"):
            self._answer(int(fault), {"content-type": "text/plain", "retry-after": "0"}, b"later")
            return
        target = self.proxy.target
        assert target.hostname is not None
        connection = http.client.HTTPConnection(target.hostname, target.port, timeout=60)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP}
        with contextlib.closing(connection):
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
            kept = {k: v for k, v in answer.getheaders() if k.lower() not in _HOP}
            length = answer.getheader("content-length")
            if self.command == "HEAD" and length is not None:
                kept["content-length"] = length
        listing = _LISTING.search(self.path) and not _OF_A_STEP.search(self.path)
        if self.command == "GET" and answer.status == 200 and listing:
            _, kept, content = self.proxy.listed(self.path, (answer.status, kept, content))
        if fault == "cut" and len(content) > 1:
            self._answer(answer.status, kept, content, sent=len(content) // 2)
            self.close_connection = True
            return
        self._answer(answer.status, kept, content)

    def _answer(
        self, status: int, headers: dict[str, str], content: bytes, sent: int | None = None
    ) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "content-length" not in headers and status not in (204, 304):
            self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(ConnectionError):  # the client may have gone
                self.wfile.write(content[:sent])

    def _body(self) -> bytes | None:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        length = self.headers.get("content-length")
        return self.rfile.read(int(length)) if length else None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: clients end their connections as they like."""


@contextlib.contextmanager
def faulty(target: str, *, port: int, every: int, stale: bool = False) -> Iterator[Proxy]:
    """A proxy at a port of this machine before the store at `target`."""
    proxy = Proxy(target, every, stale)
    methods = ("GET", "PUT", "POST", "DELETE", "HEAD", "PATCH")
    forward = {f"do_{method}": _Handler.forward for method in methods}
    handler = type("Handler", (_Handler,), {"proxy": proxy, **forward})
    server = _Server(("127.0.0.1", port), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
