"""Servers on loopback: one that answers by script, one that stands between a client and a real server."""

from __future__ import annotations

import http.client
import threading
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from typing_extensions import Self

# Longer than any answer takes; shorter than a test may.
PATIENCE = 600.0
# Between two bytes; far shorter than any timeout of a test.
_DRIP = 0.02


@dataclass
class Request:
    """What a client asked."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    """What it gets."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


class Silence(Answer):
    """No answer, as long as the client waits."""


class HangUp(Answer):
    """The connection is closed without an answer."""


class Drip(Answer):
    """The body comes byte after byte, and never ends, as long as the client waits."""


class DripHeaders(Answer):
    """So do the headers."""


class LoopbackServer:
    """An HTTP server on a free loopback port. The next requests get what is in `script`; then :meth:`answer` does.

    Attributes
    ----------
    requests
        All that were received, in order.
    script
        Answers to give before :meth:`answer` is asked; None stands for its answer.
    """

    def __init__(self, tls: Any = None) -> None:
        self.requests: list[Request] = []
        self.script: deque[Answer | None] = deque()
        self._released = threading.Event()
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                request = Request(self.command, self.path, dict(self.headers.items()), self.rfile.read(length))
                with outer._lock:
                    outer.requests.append(request)
                    scripted = outer.script.popleft() if outer.script else None
                if isinstance(scripted, Silence):
                    outer._released.wait(PATIENCE)
                if isinstance(scripted, (Silence, HangUp)):
                    self.close_connection = True
                    return
                answer = scripted if scripted is not None else outer.answer(request)
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                while isinstance(answer, DripHeaders) and not outer._released.wait(_DRIP):
                    self.flush_headers()
                    self.wfile.write(b"X")
                is_endless = isinstance(answer, Drip)
                self.send_header("Content-Length", str(1 << 20 if is_endless else len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)
                while is_endless and not outer._released.wait(_DRIP):
                    self.wfile.write(b" ")

            do_GET = do_PUT = do_POST

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                # A client that hung up first, as the tests have it.
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def answer(self, request: Request) -> Answer:
        """Return a request that no script is for."""
        return Answer(404, b"{}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Go away: the port refuses connections from now on."""
        self._released.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(PATIENCE)
        self._server.server_close()


class Between(LoopbackServer):
    """Hands requests on to a real server, and counts them; its script makes the faults."""

    def __init__(self, target: str) -> None:
        super().__init__()
        parts = urlsplit(target)
        self._host, self._target_port = parts.hostname or "", parts.port or 80

    def answer(self, request: Request) -> Answer:
        connection = http.client.HTTPConnection(self._host, self._target_port, timeout=PATIENCE)
        try:
            headers = {name: value for name, value in request.headers.items() if name.lower() != "connection"}
            connection.request(request.method, request.path, request.body, headers)
            response = connection.getresponse()
            dropped = {"content-length", "connection", "transfer-encoding", "date", "server"}
            kept = {name: value for name, value in response.getheaders() if name.lower() not in dropped}
            return Answer(response.status, response.read(), kept)
        finally:
            connection.close()


class FakeTime:
    """A clock that only the test moves, and a sleep that nobody waits for."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    @property
    def common(self) -> dict[str, Any]:
        """Arguments that every client takes."""
        return {"clock": self, "sleep": self.sleep}
