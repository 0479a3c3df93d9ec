"""The proxy's process: a thread for each connection of a client, and one for control.

A thread that sleeps or copies holds no lock of the interpreter, and wakes within a tenth of a millisecond of its time.
An event loop wakes on whole milliseconds, and would have one core for all connections.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from tests.servers import faults
from tests.servers.faults import Fault, Request, Rule

CHUNK = 1 << 18
HEAD_BYTES = 1 << 16
# A sender that was late may catch up on as much: the rate is kept on a busy machine too.
_CATCH_UP_SECONDS = 0.02
_LINGER_SECONDS = 2.0
_NO_BODY = {204, 304}
_CODES = {
    403: "AccessDenied",
    404: "NoSuchKey",
    412: "PreconditionFailed",
    429: "TooManyRequests",
    500: "InternalError",
    503: "SlowDown",
}


class _Ended(Exception):
    """The connection is of no more use."""


class Pace:
    """Waits so that no more bytes pass than the rate allows."""

    def __init__(self) -> None:
        self._due = 0.0

    def wait(self, nbytes: int, rate: float | None) -> None:
        if not rate:
            return
        now = time.monotonic()
        self._due = max(self._due, now - _CATCH_UP_SECONDS) + nbytes / rate
        if self._due > now:
            time.sleep(self._due - now)

    def begin(self) -> None:
        """Nothing is to be caught up on: there was nothing to send."""
        self._due = max(self._due, time.monotonic())


class Stream:
    """A socket with a buffer in front of it, from which heads and bodies are taken."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._memory = memoryview(bytearray(CHUNK))
        self._start = self._end = 0

    def pending(self, timeout: float | None = 0) -> bool:
        """Return whether there is something to read, the end included."""
        return self._start < self._end or bool(select.select([self.socket], [], [], timeout)[0])

    def head(self) -> bytes | None:
        """Return the next head with its empty line, or None at the end of the stream."""
        while True:
            found = bytes(self._memory[self._start : min(self._end, self._start + HEAD_BYTES)]).find(b"\r\n\r\n")
            if found >= 0:
                head = bytes(self._memory[self._start : self._start + found + 4])
                self._start += found + 4
                return head
            if self._end - self._start >= HEAD_BYTES:
                raise _Ended
            if not self._more():
                return None

    def _more(self) -> int:
        if self._start:
            rest = bytes(self._memory[self._start : self._end])
            self._memory[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        count = self.socket.recv_into(self._memory[self._end :])
        self._end += count
        return count

    def line(self) -> bytes:
        """Return the next line without its end."""
        while True:
            held = bytes(self._memory[self._start : self._end])
            if (found := held.find(b"\r\n")) >= 0:
                self._start += found + 2
                return held[:found]
            if len(held) >= HEAD_BYTES or not self._more():
                raise _Ended

    def some(self, limit: int) -> memoryview:
        """Return 1 to `limit` bytes, valid until the next call; none at the end of the stream."""
        if self._start == self._end:
            self._start = 0
            self._end = self.socket.recv_into(self._memory[: min(limit, CHUNK)])
        taken = self._memory[self._start : min(self._end, self._start + limit)]
        self._start += len(taken)
        return taken

    def pieces(self, framing: Framing) -> Iterator[memoryview]:
        """Yield a body; what frames its chunks is left out.

        Raises
        ------
        _Ended
            The other side left in the middle.
        """
        if framing.chunked:
            while size := int(self.line().split(b";")[0], 16):
                yield from self._exactly(size)
                self.line()
            while self.line():
                pass
        elif framing.length is not None:
            yield from self._exactly(framing.length)
        else:
            while piece := self.some(CHUNK):
                yield piece

    def _exactly(self, count: int) -> Iterator[memoryview]:
        while count:
            piece = self.some(count)
            if not piece:
                raise _Ended
            count -= len(piece)
            yield piece

    def reset(self) -> None:
        """Close so that the other side sees a reset."""
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        """Close so that the other side gets all that was sent, also while it still sends."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
            self.socket.settimeout(_LINGER_SECONDS)
            deadline = time.monotonic() + _LINGER_SECONDS
            while time.monotonic() < deadline and self.socket.recv_into(self._memory):
                pass
        self.socket.close()


class Framing(NamedTuple):
    """How the end of a body is known: chunked, after a length, or (neither) at the end of the connection."""

    chunked: bool = False
    length: int | None = None


class Head(NamedTuple):
    """The head of a request or response."""

    first: list[str]
    # As sent, in their order: the case of a header's name is the sender's.
    headers: list[tuple[str, str]]

    @classmethod
    def parse(cls, head: bytes) -> Head:
        first, *lines = head[:-4].decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return cls(first.split(" ", 2), [(name, value.strip()) for name, _, value in pairs])

    def get(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)

    def without(self, *names: str) -> Head:
        return Head(self.first, [(name, value) for name, value in self.headers if name.lower() not in names])

    def having(self, *more: tuple[str, str]) -> Head:
        kept = self.without(*(name.lower() for name, _ in more))
        return Head(self.first, [*kept.headers, *more])

    def encode(self) -> bytes:
        lines = [" ".join(self.first), *(f"{name}: {value}" for name, value in self.headers), "", ""]
        return "\r\n".join(lines).encode("latin-1")

    def framing(self) -> Framing:
        if "chunked" in (self.get("transfer-encoding") or "").lower():
            return Framing(chunked=True)
        length = self.get("content-length")
        return Framing(length=None if length is None else int(length))

    def closes(self) -> bool:
        return "close" in (self.get("connection") or "").lower()


class Proxy:
    """What the connections share: where the server is, the shape, the rules, the log."""

    def __init__(self, host: str, port: int, credentials: tuple[str, str, str] | None) -> None:
        self.address = (host, port)
        self.credentials = credentials
        self.latency = 0.0
        self.rate: float | None = None
        self.lock = threading.Lock()
        self._rules: list[Rule] = []
        self._log: list[Request] = []
        self._gate = socket.socketpair()
        self._connections = 0

    def listen(self) -> int:
        """Accept connections from now on; return the port."""
        server = socket.create_server(("127.0.0.1", 0), backlog=1024)
        threading.Thread(target=self._accept, args=(server,), daemon=True).start()
        return int(server.getsockname()[1])

    def _accept(self, server: socket.socket) -> None:
        while True:
            client, _ = server.accept()
            self._connections += 1
            exchange = Exchange(self, Stream(client), self._connections - 1)
            threading.Thread(target=exchange.serve, daemon=True).start()

    def shape(self, latency: float, rate: float | None) -> None:
        self.latency, self.rate = latency, rate

    def add(self, rule: Rule) -> None:
        with self.lock:
            self._rules.append(rule)

    def release(self) -> None:
        with self.lock:
            old, self._gate = self._gate, socket.socketpair()
        old[0].close()

    def heal(self) -> None:
        with self.lock:
            self._rules.clear()
        self.release()

    def log(self) -> list[Request]:
        with self.lock:
            return [replace(request) for request in self._log]

    def forget(self) -> None:
        with self.lock:
            self._log.clear()

    def admit(self, request: Request) -> tuple[Fault | None, socket.socket]:
        """Note a request; return the fault that it meets, and a socket that can be read when it is to stall no more."""
        with self.lock:
            return self._admit(request), self._gate[1]

    def _admit(self, request: Request) -> Fault | None:
        self._log.append(request)
        for index, rule in enumerate(self._rules):
            if rule.count == 0 or not rule.matches(request.method, request.path, request.range):
                continue
            if rule.skip:
                self._rules[index] = replace(rule, skip=rule.skip - 1)
                continue
            if rule.count is not None:
                self._rules[index] = replace(rule, count=rule.count - 1)
            request.fault = type(rule.fault).__name__
            return rule.fault
        return None


class Exchange:
    """The requests of one client's connection, one after another."""

    def __init__(self, proxy: Proxy, client: Stream, number: int) -> None:
        self._proxy = proxy
        self._client = client
        self._number = number
        self._server: Stream | None = None
        self._up = Pace()
        self._down = Pace()
        self._gate: socket.socket
        # The head of a response that came before its request had ended.
        self._early: bytes | None = None

    def serve(self) -> None:
        try:
            time.sleep(self._proxy.latency)
            while self._one():
                pass
            self._client.close()
        except (_Ended, OSError, ValueError):
            self._client.reset()
        finally:
            if self._server is not None:
                self._server.socket.close()

    def _one(self) -> bool:
        """Relay a request and its response; return whether another may follow."""
        raw = self._client.head()
        if raw is None:
            return False
        head = Head.parse(raw)
        method, path, _ = head.first
        request = Request(
            self._number,
            method,
            path,
            range=head.get("range"),
            if_match=head.get("if-match"),
            if_none_match=head.get("if-none-match"),
        )
        request.started = time.monotonic()
        fault, self._gate = self._proxy.admit(request)
        try:
            return self._relay(request, raw, head, fault)
        finally:
            _end(request)

    def _relay(self, request: Request, raw: bytes, head: Head, fault: Fault | None) -> bool:
        time.sleep(self._proxy.latency)
        if isinstance(fault, faults.Delay):
            time.sleep(fault.seconds)
        if isinstance(fault, faults.Reset) and fault.after is None:
            raise _Ended
        body = head.framing()
        if body.length is None and not body.chunked:
            body = Framing(length=0)
        waits = (head.get("expect") or "").lower() == "100-continue"
        if isinstance(fault, faults.Answer) and not fault.carried_out:
            if not waits:
                for piece in self._client.pieces(body):
                    request.uploaded += len(piece)
            return self._answer(request, fault, last=waits) and not head.closes()
        if isinstance(fault, faults.IgnoreRange):
            raw = _without_range(head, self._proxy.credentials).encode()
        server = self._connected()
        server.socket.sendall(raw)
        finished = self._upload(request, server, body, fault, waits)
        if waits:
            # The client's body was half a round trip behind the server's word to go on, and so was that.
            time.sleep(self._proxy.latency)
        return self._respond(request, server, fault) and finished and not head.closes()

    def _connected(self) -> Stream:
        """Return the connection to the server, a new one if it closed the last."""
        if self._server is not None and self._server.pending():
            self._server.socket.close()
            self._server = None
        if self._server is None:
            self._server = Stream(socket.create_connection(self._proxy.address))
        return self._server

    def _upload(self, request: Request, server: Stream, body: Framing, fault: Fault | None, waits: bool) -> bool:
        """Pass the request's body on; return False where the server did not wait for its end."""
        if not body.chunked and not body.length:
            return True
        if waits:
            select.select([server.socket, self._client.socket], [], [])
            if server.pending():
                word = server.head()
                if word is None:
                    raise _Ended
                if not word.startswith(b"HTTP/1.1 1"):
                    self._early = word
                    return False
                self._client.socket.sendall(word)
        self._up.begin()
        for piece in self._client.pieces(body):
            if isinstance(fault, faults.CutUpload) and request.uploaded + len(piece) > fault.after:
                server.socket.sendall(piece[: fault.after - request.uploaded])
                request.uploaded = fault.after
                server.reset()
                raise _Ended
            self._up.wait(len(piece), self._proxy.rate)
            try:
                _send(server.socket, piece, body.chunked)
            except OSError:
                # It may have said why before it closed.
                return False
            request.uploaded += len(piece)
            # What comes after the last byte is the answer that it waited for.
            if request.uploaded != body.length and server.pending():
                return False
        if body.chunked:
            server.socket.sendall(b"0\r\n\r\n")
        return True

    def _respond(self, request: Request, server: Stream, fault: Fault | None) -> bool:
        """Pass the response on; return whether both connections can be used again."""
        raw, self._early = self._early or server.head(), None
        while raw is not None and raw.startswith(b"HTTP/1.1 1"):
            self._client.socket.sendall(raw)
            raw = server.head()
        if raw is None:
            raise _Ended
        head = Head.parse(raw)
        status = int(head.first[1])
        framing = head.framing()
        if request.method == "HEAD" or status in _NO_BODY:
            framing = Framing(length=0)
        ends = framing.length is None and not framing.chunked
        if isinstance(fault, faults.Lost | faults.Answer):
            for _ in server.pieces(framing):
                pass
            if isinstance(fault, faults.Answer):
                return self._answer(request, fault, last=ends)
            raise _Ended
        if isinstance(fault, faults.Stall) and fault.after is None:
            self._stall()
        sent, out = _changed(head, framing, fault)
        request.status = status
        if out.length == 0 and not isinstance(fault, faults.Stall):
            _end(request)
        self._client.socket.sendall(raw if sent is head else sent.encode())
        self._download(request, server, framing, out, fault)
        return not (ends or head.closes())

    def _download(self, request: Request, server: Stream, framing: Framing, out: Framing, fault: Fault | None) -> None:
        client = self._client.socket
        stop = fault.after if isinstance(fault, faults.Cut | faults.Reset | faults.Stall) else None
        self._down.begin()
        position = 0
        for piece in server.pieces(framing):
            if isinstance(fault, faults.FlipByte) and 0 <= fault.at - position < len(piece):
                piece[fault.at - position] ^= 1
            position += len(piece)
            if isinstance(fault, faults.ShortBody) and out.length is not None:
                piece = piece[: max(0, out.length - request.downloaded)]
            while stop is not None and request.downloaded + len(piece) >= stop:
                before = piece[: stop - request.downloaded]
                self._pass(request, before, out)
                piece = piece[len(before) :]
                self._stop(request, fault)
                stop = None
            self._pass(request, piece, out)
        if stop is not None:
            # The body was shorter.
            self._stop(request, fault)
        if isinstance(fault, faults.LongBody) and position:
            self._pass(request, memoryview(bytes(fault.extra)), out)
        if out.chunked:
            _end(request)
            client.sendall(b"0\r\n\r\n")

    def _pass(self, request: Request, piece: memoryview, out: Framing) -> None:
        if piece:
            self._down.wait(len(piece), self._proxy.rate)
            request.downloaded += len(piece)
            if request.downloaded == out.length:
                _end(request)
            _send(self._client.socket, piece, out.chunked)

    def _stop(self, request: Request, fault: Fault | None) -> None:
        if isinstance(fault, faults.Stall):
            self._stall()
        elif isinstance(fault, faults.Cut):
            _end(request)
            self._client.close()
            raise _Ended
        else:
            raise _Ended

    def _stall(self) -> None:
        ready, _, _ = select.select([self._client.socket, self._gate], [], [])
        if self._gate not in ready:
            raise _Ended

    def _answer(self, request: Request, fault: faults.Answer, *, last: bool) -> bool:
        code = _CODES.get(fault.status, "Error")
        body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>by order</Message></Error>'
        first = ["HTTP/1.1", str(fault.status), code]
        headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body))), *fault.headers]
        if last:
            headers.append(("Connection", "close"))
        request.status = fault.status
        said = Head(first, headers).encode()
        _end(request)
        self._client.socket.sendall(said if request.method == "HEAD" else said + body.encode())
        return not last


def _end(request: Request) -> None:
    """Note when a request ended, before its client can know: a log that it asks for then has it."""
    if request.ended is None:
        request.ended = time.monotonic()


def _send(target: socket.socket, piece: memoryview, chunked: bool) -> None:
    if chunked:
        target.sendall(b"%x\r\n" % len(piece))
        target.sendall(piece)
        target.sendall(b"\r\n")
    else:
        target.sendall(piece)


def _changed(head: Head, framing: Framing, fault: Fault | None) -> tuple[Head, Framing]:
    """Return the head that the client gets, and how its body is framed."""
    match fault:
        case faults.ShortBody(missing) if framing.length:
            length = max(0, framing.length - missing)
        case faults.LongBody(extra) if framing.length:
            length = framing.length + extra
        case faults.HideHeaders(names):
            hidden = head.without(*(name.lower() for name in names))
            if framing.length and hidden.get("content-length") is None:
                return hidden.having(("Transfer-Encoding", "chunked")), Framing(chunked=True)
            return hidden, framing
        case _:
            return head, framing
    return head.having(("Content-Length", str(length))), Framing(length=length)


def _without_range(head: Head, credentials: tuple[str, str, str] | None) -> Head:
    """Return the head of a request for all of an object, signed anew where it was signed."""
    plain = head.without("range")
    if not (head.get("authorization") or "").startswith("AWS4-") or credentials is None:
        return plain
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    access, secret, region = credentials
    method, path, _ = head.first
    request = AWSRequest(method, f"http://{head.get('host')}{path}")
    S3SigV4Auth(Credentials(access, secret), "s3", region).add_auth(request)
    unsigned = plain.without("authorization", "x-amz-date", "x-amz-content-sha256")
    return unsigned.having(*request.headers.items())


def main() -> None:
    """Obey what comes over the control connection, until it is closed."""
    control = Connection(int(sys.argv[1]))
    proxy: Any = None
    with contextlib.suppress(EOFError, OSError):
        while True:
            what, arguments = control.recv()
            if what == "listen":
                proxy = Proxy(*arguments)
                control.send(proxy.listen())
            else:
                control.send(getattr(proxy, what)(*arguments))
    # Connections may be in the middle of something.
    os._exit(0)


if __name__ == "__main__":
    main()
