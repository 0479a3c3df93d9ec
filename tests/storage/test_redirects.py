"""An HTTP server that redirects: on its own host it is followed, to another host nothing is asked."""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ags1.storage import Location, open_source, read_whole, status

pytest.importorskip("aiohttp")


@contextmanager
def server(answers: dict[str, str | bytes]) -> Iterator[tuple[int, list[str]]]:
    """A server that returns bytes, or redirects to a URL; the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            found = answers[self.path]
            if isinstance(found, str):
                self.send_response(307)
                self.send_header("Location", found)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            begin, end = 0, len(found)
            if (wanted := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))) is not None:
                begin, end = int(wanted[1]), min(end, int(wanted[2]) + 1)
            self.send_response(206 if wanted else 200)
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(found)}")
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(end - begin))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(found[begin:end])

        do_HEAD = do_GET

        def log_message(self, *arguments: object) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield running.server_port, asked
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


def test_a_redirect_to_another_host_is_not_followed() -> None:
    with server({"/secret": b"inner"}) as (inner, asked):
        # Another name of this machine is another host.
        with server({"/a": f"http://localhost:{inner}/secret", "/b": "/c", "/c": b"content"}) as (port, _):
            for text in (f"http://127.0.0.1:{port}/a", f"simplecache::http://127.0.0.1:{port}/a"):
                place = Location(text)
                for read in (status, open_source, lambda where: read_whole(where, 100)):
                    with pytest.raises(OSError, match="redirects to http://localhost") as refused:
                        read(place)
                    assert refused.value.errno == errno.EACCES
            assert not asked
            assert bytes(memoryview(read_whole(Location(f"http://127.0.0.1:{port}/b"), 100))) == b"content"
