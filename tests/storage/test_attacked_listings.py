"""A server attacks the listing by an SDK: what was not asked for is not believed, no credential goes elsewhere."""

from __future__ import annotations

import errno
import itertools
import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ags1.storage import Location, list_files
from tests.storage.loopback import served

pytest.importorskip("google.cloud.storage")
pytest.importorskip("azure.storage.blob")

Page = Callable[[str], tuple[list[str], str]]
"""The names and the next token of the page of a token, "" for the first and none."""

STORES = ["gs", "az"]
KEY = "a2V5"


def google_page(names: list[str], token: str) -> bytes:
    items = [{"name": each, "size": "1", "updated": "2026-01-01T00:00:00Z"} for each in names]
    return json.dumps({"items": items, **({"nextPageToken": token} if token else {})}).encode()


def azure_page(names: list[str], token: str) -> bytes:
    about = (
        "<Last-Modified>Thu, 01 Jan 2026 00:00:00 GMT</Last-Modified><Etag>x</Etag><Content-Length>1</Content-Length>"
        "<Content-Type>text/plain</Content-Type><BlobType>BlockBlob</BlobType>"
    )
    blobs = "".join(f"<Blob><Name>{each}</Name><Properties>{about}</Properties></Blob>" for each in names)
    return (
        '<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="http://x/" ContainerName="c">'
        f"<Blobs>{blobs}</Blobs><NextMarker>{token}</NextMarker></EnumerationResults>"
    ).encode()


def obstore_page() -> bytes:
    """What obstore stops at."""
    about = "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>x</ETag><Size>1</Size>"
    contents = f"<Contents><Key>m//x</Key>{about}</Contents>"
    return f"<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>".encode()


def send(request: BaseHTTPRequestHandler, body: bytes, *, length: int | None = None) -> None:
    request.send_response(200)
    request.send_header("Content-Type", "application/json" if body.startswith(b"{") else "application/xml")
    request.send_header("Content-Length", str(len(body) if length is None else length))
    request.end_headers()
    request.wfile.write(body)


@contextmanager
def attacked(scheme: str, answer: Callable[[BaseHTTPRequestHandler, str], object]) -> Iterator[Location]:
    """A store whose listings by an SDK `answer` writes; it gets the token of the page."""

    def respond(request: BaseHTTPRequestHandler) -> None:
        asked = parse_qs(urlsplit(request.path).query)
        token = asked.get("pageToken", asked.get("marker", [""]))[0]
        if scheme == "gs" and "/storage/v1/" not in request.path:
            send(request, obstore_page())
        elif scheme == "az" and not request.headers["User-Agent"].startswith("azsdk"):
            send(request, azure_page(["m//x"], ""))
        else:
            answer(request, token)

    with served(respond) as port:
        yield Location(f"{scheme}://c/m", options_of(scheme, port))


def options_of(scheme: str, port: int) -> dict[str, Any]:
    common = {"allow_http": True, "timeout": 5, "max_retries": 0}
    if scheme == "az":
        return {"account_name": "n", "account_key": KEY, "endpoint": f"http://127.0.0.1:{port}/n", **common}
    return {"base_url": f"http://127.0.0.1:{port}", "bearer_token": "the-token", **common}


def paged(scheme: str, page: Page) -> Callable[[BaseHTTPRequestHandler, str], object]:
    encode = google_page if scheme == "gs" else azure_page
    return lambda request, token: send(request, encode(*page(token)))


def refusal(place: Location) -> OSError:
    with pytest.raises(OSError, match=r".") as failed:
        list_files(place, on_error=list[OSError]().append)
    assert failed.value.filename == place.text
    return failed.value


@pytest.mark.parametrize("scheme", STORES)
def test_true_pages_are_listed(scheme: str) -> None:
    pages = {"": (["m//x", "m/a"], "t1"), "t1": ([], "t2"), "t2": (["m/b"], "")}
    errors: list[OSError] = []
    with attacked(scheme, paged(scheme, lambda token: pages[token])) as place:
        assert [each.name for each in list_files(place, on_error=errors.append)] == ["a", "b"]
    assert [each.filename for each in errors] == [f"{scheme}://c/m//x"]


@pytest.mark.parametrize("scheme", STORES)
@pytest.mark.parametrize("following", [["t0"], ["t0", "t1", "t0"]])
def test_a_page_token_that_comes_again_ends_the_listing_with_an_error(scheme: str, following: list[str]) -> None:
    tokens = itertools.cycle(following)
    with attacked(scheme, paged(scheme, lambda token: ([f"m/{token}-a", f"m/{token}-b"], next(tokens)))) as place:
        fault = refusal(place)
    assert fault.errno == errno.EIO
    assert "again and again" in str(fault)


@pytest.mark.parametrize("scheme", STORES)
def test_pages_without_names_that_never_end_are_an_error(scheme: str) -> None:
    count = itertools.count()
    with attacked(scheme, paged(scheme, lambda token: ([], f"t{next(count)}"))) as place:
        fault = refusal(Location(place.text, {**place.storage_options, "timeout": 0.05}))
    assert fault.errno == errno.ETIMEDOUT
    assert "no end" in str(fault)


@pytest.mark.parametrize("scheme", STORES)
@pytest.mark.parametrize("declared", [True, False])
def test_a_reply_that_is_cut_in_the_middle_is_an_error_and_no_shorter_listing(scheme: str, declared: bool) -> None:
    whole = (google_page if scheme == "gs" else azure_page)(["m/a", "m/b"], "")

    def answer(request: BaseHTTPRequestHandler, token: str) -> None:
        half = whole[: len(whole) // 2]
        send(request, half, length=len(whole) if declared else len(half))

    with attacked(scheme, answer) as place:
        assert refusal(place).errno == errno.EIO


@pytest.mark.parametrize("scheme", STORES)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_gets_no_credential_and_no_request(scheme: str, status: int) -> None:
    asked: list[str] = []

    def thief(request: BaseHTTPRequestHandler) -> None:
        asked.append(str(request.headers))
        send(request, (google_page if scheme == "gs" else azure_page)(["m/planted"], ""))

    with served(thief) as elsewhere:

        def answer(request: BaseHTTPRequestHandler, token: str) -> None:
            request.send_response(status)
            # Another name of this machine is another host.
            request.send_header("Location", f"http://localhost:{elsewhere}{request.path}")
            request.send_header("Content-Length", "0")
            request.end_headers()

        with attacked(scheme, answer) as place:
            fault = refusal(place)
    assert asked == []
    assert fault.errno == errno.EACCES
    assert f"redirects to http://localhost:{elsewhere}" in str(fault)
    assert "the-token" not in str(fault)


@pytest.mark.parametrize("scheme", STORES)
@pytest.mark.parametrize("outside", ["secret/a", "ma", "n", "m", "", "../m/a", "/m/a"])
def test_a_name_outside_of_the_prefix_becomes_no_other_name(scheme: str, outside: str) -> None:
    with attacked(scheme, paged(scheme, lambda token: (["m/a", outside, "m/zz"], ""))) as place:
        if outside == "m":
            assert [each.name for each in list_files(place, on_error=list[OSError]().append)] == ["a", "zz"]
            return
        assert refusal(place).errno == errno.EIO


@pytest.mark.parametrize("scheme", STORES)
def test_a_name_that_is_listed_twice_is_an_error(scheme: str) -> None:
    with attacked(scheme, paged(scheme, lambda token: (["m/a", "m/b", "m/b", "m/c"], ""))) as place:
        fault = refusal(place)
    assert fault.errno == errno.EIO
    assert "lists m/b twice" in str(fault)


@pytest.mark.parametrize("scheme", STORES)
def test_a_page_of_a_million_names_is_refused_before_it_is_in_memory(scheme: str) -> None:
    encode = google_page if scheme == "gs" else azure_page
    middle = b",".join([encode(["m/n"], "")[11:-2]] * 10_000) if scheme == "gs" else encode(["m/n"], "")
    sent = 0

    def answer(request: BaseHTTPRequestHandler, token: str) -> None:
        nonlocal sent
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.end_headers()
        piece = middle * (1 + (1 << 20) // len(middle))
        try:
            for _ in range(200):
                request.wfile.write(piece)
                sent += len(piece)
        except OSError:
            pass

    with attacked(scheme, answer) as place:
        tracemalloc.start()
        try:
            fault = refusal(place)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert fault.errno == errno.EIO
    assert "more than 67,108,864 bytes" in str(fault)
    assert sent < 200 << 20
    assert most < 200 << 20


@pytest.mark.parametrize("listing", [b"{}", b"[]", b'{"items": 5}', b'{"items": [{}]}', b'{"items": [{"name": "m/a"}]}',
                                     b'{"items": [{"name": "m/a", "size": "-5"}]}', b"null", b"no JSON"])  # fmt: skip
def test_what_is_no_listing_of_google_is_an_error(listing: bytes) -> None:
    with attacked("gs", lambda request, token: send(request, listing)) as place:
        assert refusal(place).errno == (errno.ENOENT if listing == b"{}" else errno.EIO)


@pytest.mark.parametrize("listing", [b"", b"<a/>", b"<EnumerationResults><Blobs><Blob/></Blobs></EnumerationResults>",
                                     b"<EnumerationResults/>", b"no XML"])  # fmt: skip
def test_what_is_no_listing_of_azure_is_an_error(listing: bytes) -> None:
    with attacked("az", lambda request, token: send(request, listing)) as place:
        assert refusal(place).errno in (errno.EIO, errno.ENOENT)
