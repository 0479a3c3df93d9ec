"""Servers on loopback that fail as networks do: an HTTP server of objects, and a TCP proxy before a real server."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import Self

__all__ = ["FAULTS", "HostileProxy", "HostileServer"]

FAULTS = ("reset", "cut", "error", "hang up")
"""The connection is reset in the body, or ends in it; the service answers 503; it hangs up without an answer."""

_STEP = 1 << 16


def reset(connection: socket.socket) -> None:
    """Close a connection with RST rather than FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class HostileServer:
    """Objects over HTTP/1.1, with ranges.

    Attributes
    ----------
    objects : dict of str to bytes
        By path.
    fault : str or None
        One of FAULTS for the body of every object; "no range": it ignores Range; "no length": it tells none.
    """

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        self.objects = dict(objects or {})
        self.fault: str | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._give(body=False)

            def do_GET(self) -> None:
                self._give(body=True)

            def _give(self, *, body: bool) -> None:
                data = outer.objects.get(self.path)
                fault = outer.fault
                if data is None:
                    self.send_error(404)
                    return
                if body and fault == "error":
                    self.send_error(503)
                    return
                if body and fault == "hang up":
                    self.close_connection = True
                    return
                wanted = self.headers.get("Range")
                status = 200
                if wanted and fault not in ("no range", "no length"):
                    first, _, last = wanted.removeprefix("bytes=").partition("-")
                    data = data[int(first) : int(last) + 1 if last else None]
                    status = 206
                self.send_response(status)
                if fault == "no length":
                    self.send_header("Transfer-Encoding", "chunked")
                else:
                    self.send_header("Content-Length", str(len(data)))
                    if fault != "no range":
                        self.send_header("Accept-Ranges", "bytes")
                self.end_headers()
                if not body:
                    return
                if fault in ("reset", "cut"):
                    self.wfile.write(data[: len(data) // 2])
                    self.wfile.flush()
                    self.close_connection = True
                    if fault == "reset":
                        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                elif fault == "no length":
                    self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data))
                else:
                    self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                pass

            def shutdown_request(self, request: Any) -> None:
                # Without the FIN of the base class, which would come before the RST.
                if outer.fault == "reset":
                    reset(request)
                else:
                    super().shutdown_request(request)

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(20)
        self._server.server_close()


class HostileProxy:
    """A TCP proxy before a real server, which breaks answers when it is told to.

    Attributes
    ----------
    fault : str or None
        "reset" or "cut" in the middle of each answer that is longer than `spared` bytes; "hang up": at once.
    """

    def __init__(self, port: int, *, spared: int = 2000) -> None:
        self.fault: str | None = None
        self.spared = spared
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(20)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self.fault == "hang up":
                reset(client)
                continue
            server = socket.create_connection(("127.0.0.1", self._port))
            threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        asking = threading.Thread(target=self._copy, args=(client, server, False), daemon=True)
        asking.start()
        self._copy(server, client, True)
        asking.join()
        for each in (client, server):
            each.close()

    def _copy(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_STEP):
                if answers and self.fault in ("reset", "cut") and len(data) > self.spared:
                    target.sendall(data[: len(data) // 2])
                    if self.fault == "reset":
                        target.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        # The other direction ends first, so that closing the target, with its RST, comes next.
                        target.shutdown(socket.SHUT_RD)
                        source.shutdown(socket.SHUT_RDWR)
                        return
                    break
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
