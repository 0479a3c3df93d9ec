"""The proxy: what a plain HTTP client sees of its shape and of each fault, and what it counts."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar, NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.checks import HANG_SECONDS
from tests.servers import faults
from tests.servers._process import ROOT
from tests.servers.proxy import ProxyFailure, ShapingProxy

BODY = bytes(range(256)) * 4096
HELD = b"held"


class Server(NamedTuple):
    """A web server that counts what reaches it."""

    endpoint: str
    seen: list[tuple[str, str, int]]
    # Requests for /held are kept until it is set.
    go_on: threading.Event


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, str, int]]]
    go_on: ClassVar[threading.Event]

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        self.seen.append(("GET", self.path, 0))
        if self.path == "/held":
            self.go_on.wait(HANG_SECONDS)
        if self.path == "/chunked":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for start in range(0, len(BODY), 100_000):
                piece = BODY[start : start + 100_000]
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
            return
        if self.path == "/old":
            self.protocol_version = "HTTP/1.0"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(BODY)
            self.close_connection = True
            return
        range_ = self.headers.get("Range")
        first, last = (map(int, range_.removeprefix("bytes=").split("-"))) if range_ else (0, len(BODY) - 1)
        piece = BODY[first : last + 1]
        self.send_response(206 if range_ else 200)
        self.send_header("Content-Length", str(len(piece)))
        self.send_header("ETag", '"one"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(piece)

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        if self.path == "/refused":
            self.send_response(412)
            self.send_header("Content-Length", "0")
            self.send_header("Connection", "close")
            self.end_headers()
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append(("PUT", self.path, len(body)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(_Handler):
        seen: ClassVar = []
        go_on: ClassVar = threading.Event()

    class Quiet(http.server.ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Connections are cut on purpose."""

    with Quiet(("127.0.0.1", 0), Handler) as started:
        started.daemon_threads = True
        thread = threading.Thread(target=started.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield Server(f"http://127.0.0.1:{started.server_port}", Handler.seen, Handler.go_on)
        finally:
            Handler.go_on.set()
            started.shutdown()
            thread.join()


@pytest.fixture
def proxy(server: Server) -> Iterator[ShapingProxy]:
    with ShapingProxy.start(server.endpoint) as started:
        yield started


@contextlib.contextmanager
def connected(proxy: ShapingProxy) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(urlsplit(proxy.endpoint).netloc, timeout=HANG_SECONDS)
    with contextlib.closing(connection):
        yield connection


def ask(
    proxy: ShapingProxy, method: str = "GET", path: str = "/a", body: bytes | None = None, **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    with connected(proxy) as connection:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response, response.read()


# -- without a fault -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/a", "/chunked", "/old"])
def test_a_body_passes_however_it_is_framed(proxy: ShapingProxy, path: str) -> None:
    response, body = ask(proxy, path=path)
    assert response.status == 200
    assert body == BODY
    assert proxy.log().downloaded == len(BODY)


def test_requests_of_one_connection_follow_one_another(proxy: ShapingProxy, server: Server) -> None:
    with connected(proxy) as connection:
        for method, path, body in [("GET", "/a", None), ("HEAD", "/b", None), ("PUT", "/c", BODY), ("GET", "/d", None)]:
            connection.request(method, path, body)
            assert connection.getresponse().read() == (BODY if method == "GET" else b"")
    log = proxy.log()
    assert [(request.method, request.path) for request in log.requests] == [
        ("GET", "/a"),
        ("HEAD", "/b"),
        ("PUT", "/c"),
        ("GET", "/d"),
    ]
    assert log.connections == 1
    assert log.most_in_flight == 1
    assert log.uploaded == len(BODY)
    assert server.seen[-2] == ("PUT", "/c", len(BODY))


def test_the_log_has_ranges_and_bytes_and_begins_anew(proxy: ShapingProxy) -> None:
    ask(proxy, Range="bytes=5-8")
    (request,) = proxy.log().requests
    assert (request.range, request.status, request.downloaded) == ("bytes=5-8", 206, 4)
    assert request.ended is not None
    proxy.forget()
    assert not proxy.log()


def test_the_log_says_how_many_were_in_flight_at_once(proxy: ShapingProxy, server: Server) -> None:
    with ThreadPoolExecutor(5) as pool:
        held = [pool.submit(ask, proxy, path="/held") for _ in range(5)]
        while len(server.seen) < 5:
            time.sleep(0.001)
        assert proxy.log().in_flight == 5
        server.go_on.set()
        for result in held:
            assert result.result()[1] == BODY
    assert proxy.log().most_in_flight == 5
    assert proxy.log().only("GET", "held").most_in_flight == 5
    assert not proxy.log().only("PUT")


def test_a_client_that_expects_100_sends_its_body_after_the_servers_word(proxy: ShapingProxy, server: Server) -> None:
    host, port = urlsplit(proxy.endpoint).netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=HANG_SECONDS) as client:
        client.sendall(b"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 100 ")
        client.sendall(b"1234")
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
    assert server.seen == [("PUT", "/x", 4)]


def test_a_refusal_reaches_a_client_that_still_sends(proxy: ShapingProxy) -> None:
    with connected(proxy) as connection:
        with contextlib.suppress(OSError):
            connection.request("PUT", "/refused", BODY * 16)
        assert connection.getresponse().status == 412


# -- shape ---------------------------------------------------------------------------------------------------


def test_latency_is_added_to_each_request_and_to_the_connection(proxy: ShapingProxy) -> None:
    proxy.shape(latency=0.08)
    start = time.monotonic()
    with connected(proxy) as connection:
        for _ in range(3):
            connection.request("GET", "/a")
            connection.getresponse().read()
    assert time.monotonic() - start >= 4 * 0.08


@pytest.mark.parametrize("direction", ["down", "up"])
def test_no_connection_is_faster_than_the_rate(proxy: ShapingProxy, direction: str) -> None:
    proxy.shape(rate=5e6)
    start = time.monotonic()
    ask(proxy) if direction == "down" else ask(proxy, "PUT", body=BODY)
    # What may be caught up on is a fiftieth of a second's worth.
    assert time.monotonic() - start >= len(BODY) / 5e6 - 0.02


# -- faults --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [412, 429, 500, 503])
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_answer_returns_a_status_so_many_times_and_the_server_sees_nothing(
    proxy: ShapingProxy, server: Server, status: int, method: str
) -> None:
    body = b"1234" if method == "PUT" else None
    proxy.fault(faults.Answer(status, (("Retry-After", "1"),)), count=2)
    for _ in range(2):
        response, _ = ask(proxy, method, body=body)
        assert (response.status, response.headers["Retry-After"]) == (status, "1")
    assert not server.seen
    assert ask(proxy, method, body=body)[0].status == 200
    assert [request.fault for request in proxy.log().requests] == ["Answer", "Answer", None]


def test_answer_leaves_the_connection_usable(proxy: ShapingProxy) -> None:
    proxy.fault(faults.Answer(503))
    with connected(proxy) as connection:
        for status in (503, 200):
            connection.request("PUT", "/a", BODY)
            response = connection.getresponse()
            response.read()
            assert response.status == status
    assert proxy.log().connections == 1


def test_an_answer_can_hide_that_the_request_was_carried_out(proxy: ShapingProxy, server: Server) -> None:
    proxy.fault(faults.Answer(503, carried_out=True))
    assert ask(proxy, "PUT", body=b"1234")[0].status == 503
    assert server.seen == [("PUT", "/a", 4)]


@pytest.mark.parametrize("after", [0, 1, 300_000, len(BODY) - 1])
def test_cut_ends_the_body_early(proxy: ShapingProxy, after: int) -> None:
    proxy.fault(faults.Cut(after))
    with pytest.raises(http.client.IncompleteRead) as caught:
        ask(proxy)
    assert caught.value.partial == BODY[:after]
    assert ask(proxy)[1] == BODY


def test_reset_before_the_server_sees_the_request(proxy: ShapingProxy, server: Server) -> None:
    proxy.fault(faults.Reset())
    with pytest.raises(ConnectionResetError):
        ask(proxy)
    assert not server.seen


def test_reset_in_the_body(proxy: ShapingProxy) -> None:
    proxy.fault(faults.Reset(1000))
    with pytest.raises(ConnectionResetError):
        ask(proxy)


def test_a_lost_response_was_carried_out(proxy: ShapingProxy, server: Server) -> None:
    proxy.fault(faults.Lost())
    with pytest.raises(ConnectionResetError):
        ask(proxy, "PUT", body=b"1234")
    assert server.seen == [("PUT", "/a", 4)]


@pytest.mark.parametrize("after", [None, 0, 1000])
def test_stall_lasts_until_it_is_released(proxy: ShapingProxy, after: int | None) -> None:
    proxy.fault(faults.Stall(after))
    with connected(proxy) as connection:
        connection.request("GET", "/a")
        assert connection.sock is not None
        got = b""
        if after is not None:
            response = connection.getresponse()
            got = response.read(after)
        connection.sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.sock.recv(1, socket.MSG_PEEK)
        assert proxy.log().in_flight == 1
        connection.sock.settimeout(HANG_SECONDS)
        proxy.release()
        if after is None:
            response = connection.getresponse()
        assert got + response.read() == BODY


def test_a_stalled_request_ends_when_its_client_leaves(proxy: ShapingProxy) -> None:
    proxy.fault(faults.Stall())
    with connected(proxy) as connection:
        connection.request("GET", "/a")
    while proxy.log().in_flight or not proxy.log():
        time.sleep(0.001)
    assert ask(proxy)[1] == BODY


def test_short_and_long_bodies_are_well_formed(proxy: ShapingProxy) -> None:
    proxy.fault(faults.ShortBody(300_000))
    proxy.fault(faults.LongBody(3))
    with connected(proxy) as connection:
        bodies = []
        for _ in range(3):
            connection.request("GET", "/a")
            bodies.append(connection.getresponse().read())
    assert bodies == [BODY[:-300_000], BODY + bytes(3), BODY]


@pytest.mark.parametrize("at", [0, 1 << 18, len(BODY) - 1])
def test_flip_changes_one_byte(proxy: ShapingProxy, at: int) -> None:
    proxy.fault(faults.FlipByte(at))
    _, body = ask(proxy)
    assert [index for index in range(len(BODY)) if body[index] != BODY[index]] == [at]


def test_ignore_range_returns_all_of_the_object(proxy: ShapingProxy) -> None:
    proxy.fault(faults.IgnoreRange())
    response, body = ask(proxy, Range="bytes=5-8")
    assert response.status == 200
    assert body == BODY
    assert proxy.log().requests[0].range == "bytes=5-8"


def test_hidden_headers_do_not_arrive(proxy: ShapingProxy) -> None:
    proxy.fault(faults.HideHeaders())
    response, body = ask(proxy)
    assert response.headers["Content-Length"] is None
    assert response.headers["ETag"] is None
    assert body == BODY
    proxy.fault(faults.HideHeaders(("ETag",)))
    response, body = ask(proxy)
    assert response.headers["Content-Length"] == str(len(BODY))
    assert response.headers["ETag"] is None
    assert body == BODY


def test_cut_upload_gives_the_server_a_part(proxy: ShapingProxy, server: Server) -> None:
    proxy.fault(faults.CutUpload(1000))
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        ask(proxy, "PUT", body=BODY * 16)
    assert proxy.log().uploaded == 1000


def test_delay_is_one_requests(proxy: ShapingProxy) -> None:
    proxy.fault(faults.Delay(0.1), path="slow")
    ask(proxy, path="/slow")
    (request,) = proxy.log().requests
    assert (request.ended or 0) - request.started >= 0.1


def test_a_rule_is_about_a_method_a_path_and_a_byte_and_skips_and_counts(proxy: ShapingProxy) -> None:
    proxy.fault(faults.Answer(503), method="GET", path="^/lake/.*x$", offset=100, skip=1, count=2)

    def status(path: str = "/lake/x", range_: str = "bytes=50-100") -> int:
        return ask(proxy, path=path, Range=range_)[0].status

    assert ask(proxy, "HEAD", "/lake/x", Range="bytes=50-100")[0].status == 206
    assert (
        status("/lake/y") == status("/other/x") == status(range_="bytes=0-99") == status(range_="bytes=101-200") == 206
    )
    assert [status() for _ in range(4)] == [206, 503, 503, 206]


def test_heal_forgets_rules_and_releases(proxy: ShapingProxy) -> None:
    proxy.fault(faults.Stall(1000))
    proxy.fault(faults.Answer(503), count=None)
    with ThreadPoolExecutor(1) as pool:
        stalled = pool.submit(ask, proxy)
        while not proxy.log().in_flight:
            time.sleep(0.001)
        assert ask(proxy)[0].status == ask(proxy)[0].status == 503
        proxy.heal()
        assert stalled.result()[1] == BODY
    assert ask(proxy)[0].status == 200


# -- its process ---------------------------------------------------------------------------------------------


def test_it_ends_with_its_context(server: Server) -> None:
    with ShapingProxy.start(server.endpoint) as proxy:
        ask(proxy)
    with pytest.raises(ProxyFailure, match="ended"):
        proxy.log()
    with pytest.raises(ConnectionError):
        ask(proxy)


def test_it_ends_when_the_process_that_started_it_is_killed(server: Server, tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from tests.servers.proxy import ShapingProxy\n"
        "with ShapingProxy.start(sys.argv[1]) as proxy:\n"
        "    print(proxy.endpoint, flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, server.endpoint],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout is not None
        host, port = urlsplit(process.stdout.readline().strip()).netloc.split(":")
        with socket.create_connection((host, int(port)), timeout=HANG_SECONDS) as client:
            process.send_signal(signal.SIGKILL)
            client.settimeout(HANG_SECONDS)
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""
