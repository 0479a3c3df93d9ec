"""An HTTP server on loopback whose responses a test writes itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def served(respond: Callable[[BaseHTTPRequestHandler], object]) -> Iterator[int]:
    """The port of a server that lets `respond` write the response to each GET and HEAD."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            respond(self)

        do_HEAD = do_GET

        def log_message(self, *arguments: object) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield running.server_port
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


def as_s3(port: int) -> dict[str, Any]:
    """Storage options that reach a server on this port as S3."""
    return {
        "endpoint": f"http://127.0.0.1:{port}", "access_key_id": "a", "secret_access_key": "b",
        "region": "us-east-1", "virtual_hosted_style_request": False,
    }  # fmt: skip
