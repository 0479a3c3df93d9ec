"""An HTTP server that redirects: on its own host it is followed, to another host nothing is asked."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest

from ags1.storage import Location, open_source, read_whole, status
from tests.storage.loopback import served

pytest.importorskip("aiohttp")


@contextmanager
def server(answers: dict[str, str | bytes]) -> Iterator[tuple[int, list[str]]]:
    """A server that returns bytes, or redirects to a URL; the paths that it was asked for."""
    asked: list[str] = []

    def respond(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.path)
        found = answers[request.path]
        if isinstance(found, str):
            request.send_response(307)
            request.send_header("Location", found)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        begin, end = 0, len(found)
        if (wanted := re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("Range", ""))) is not None:
            begin, end = int(wanted[1]), min(end, int(wanted[2]) + 1)
        request.send_response(206 if wanted else 200)
        request.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(found)}")
        request.send_header("Accept-Ranges", "bytes")
        request.send_header("Content-Length", str(end - begin))
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(found[begin:end])

    with served(respond) as port:
        yield port, asked


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
