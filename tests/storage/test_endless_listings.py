"""A store whose listing has no end: the error says so, and nothing waits for ever."""

from __future__ import annotations

import errno
import itertools
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ags1.dataset import references
from ags1.dataset.references import Listed, unnamed
from ags1.storage import Location, list_files
from tests.checks import every

# Not a divisor of the length of a batch.
_KEYS = 700


def page(number: int, after: int) -> bytes:
    contents = "".join(
        f"<Contents><Key>vault/{number}-{key:03}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        f"<ETag>&quot;x&quot;</ETag><Size>1</Size></Contents>"
        for key in range(_KEYS)
    )
    token = f"<NextContinuationToken>t{after}</NextContinuationToken>" if after else ""
    more = "true" if after else "false"
    about = f"<Name>b</Name><IsTruncated>{more}</IsTruncated>{token}"
    return f"<ListBucketResult>{about}{contents}</ListBucketResult>".encode()


@every("following", [{0: 0}, {0: 1, 1: 1}, {0: 1, 1: 2, 2: 1}, {0: 1, 1: 2, 2: None}])
def test_pages_that_come_again_are_an_error(following: dict[int, int | None]) -> None:
    asked = 0

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal asked
            asked += 1
            found = re.search(r"continuation-token=t(\d+)", self.path)
            number = int(found[1]) - 1 if found else 0
            after = following[number]
            body = page(number, 0 if after is None else after + 1)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    options = {
        "endpoint": f"http://127.0.0.1:{running.server_port}", "access_key_id": "a", "secret_access_key": "b",
        "region": "us-east-1", "virtual_hosted_style_request": False,
    }  # fmt: skip
    try:
        place = Location("s3://b/vault", options)
        if None in following.values():
            assert len(list_files(place)) == _KEYS * len(following)
            assert asked == len(following)
            return
        with pytest.raises(OSError, match=r"lists vault/.* again and again, so its listing has no end") as failed:
            list_files(place)
        assert failed.value.errno == errno.EIO
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


def test_ever_new_objects_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "_MOST_UNNAMED", 100)
    endless = (Listed(f"{number:09}", "file", 1, 0) for number in itertools.count())
    with pytest.raises(OSError, match="its listing has no end"):
        unnamed(endless, lambda: ["a", "b"])
    many = [Listed(f"{number:09}", "file", 1, 0) for number in range(1100)]
    assert len(unnamed(many, lambda: [each.name for each in many[:100]])) == 1000
