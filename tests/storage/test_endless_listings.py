"""A store whose listing has no end: the error says so, and nothing waits for ever."""

from __future__ import annotations

import errno
import itertools
import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import pytest

from ags1.dataset import references
from ags1.dataset.references import ListedReference, unnamed
from ags1.storage import Location, list_files, list_names
from tests.checks import every
from tests.storage.loopback import as_s3, served

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

    def respond(request: BaseHTTPRequestHandler) -> None:
        nonlocal asked
        asked += 1
        found = re.search(r"continuation-token=t(\d+)", request.path)
        number = int(found[1]) - 1 if found else 0
        after = following[number]
        body = page(number, 0 if after is None else after + 1)
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    with served(respond) as port:
        place = Location("s3://b/vault", as_s3(port))
        if None in following.values():
            assert len(list_files(place)) == _KEYS * len(following)
            assert asked == len(following)
            return
        with pytest.raises(OSError, match=r"lists vault/.* again and again, so its listing has no end") as failed:
            list_files(place)
        assert failed.value.errno == errno.EIO


@pytest.mark.parametrize("listing", [list_files, list_names])
def test_pages_without_names_that_never_end_are_an_error(listing: Callable[[Location], object]) -> None:
    tokens = itertools.count()

    def respond(request: BaseHTTPRequestHandler) -> None:
        token = f"<NextContinuationToken>t{next(tokens)}</NextContinuationToken>"
        body = f"<ListBucketResult><Name>b</Name><IsTruncated>true</IsTruncated>{token}</ListBucketResult>".encode()
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    with served(respond) as port:
        place = Location("s3://b/vault", {**as_s3(port), "timeout": 0.05})
        with pytest.raises(TimeoutError, match="no end and no 1000 names of its listing") as failed:
            listing(place)
        assert (failed.value.errno, failed.value.filename) == (errno.ETIMEDOUT, place.text)


def test_ever_new_objects_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "_MOST_UNNAMED", 100)
    endless = (ListedReference(f"{number:09}", "file", 1, 0) for number in itertools.count())
    with pytest.raises(OSError, match="its listing has no end"):
        unnamed(endless, lambda: ["a", "b"])
    many = [ListedReference(f"{number:09}", "file", 1, 0) for number in range(1100)]
    assert len(unnamed(many, lambda: [each.name for each in many[:100]])) == 1000
