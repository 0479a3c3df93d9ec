"""A proxy on loopback that gives a link latency and a rate, breaks what it is told to, and counts requests.

It is a process of its own, so that it does not share an interpreter with the client that is measured.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import urlsplit

from tests.servers._process import ROOT
from tests.servers.faults import Fault, Log, Rule

# It finds hangs, and not slow machines.
_REPLY_SECONDS = 600.0


class ProxyFailure(RuntimeError):
    """The proxy ended, or did not reply."""


class ShapingProxy:
    """A running proxy. :meth:`start` makes one. Its methods may be called from several threads.

    Attributes
    ----------
    endpoint
        Its URL, without a slash at its end. Host and port of the server's URL are replaced and nothing else is.
    """

    def __init__(self, control: Connection, endpoint: str) -> None:
        self._control = control
        self._lock = threading.Lock()
        self.endpoint = endpoint

    @classmethod
    @contextlib.contextmanager
    def start(
        cls,
        endpoint: str,
        *,
        latency: float = 0.0,
        rate: float | None = None,
        credentials: tuple[str, str, str] | None = None,
    ) -> Iterator[ShapingProxy]:
        """Start a proxy in front of a server, for as long as the context lasts.

        Parameters
        ----------
        endpoint
            The server's URL, ``http://HOST:PORT``.
        latency, rate
            As for :meth:`shape`.
        credentials
            Access key, secret key and region of S3, with which :class:`~tests.servers.faults.IgnoreRange` signs.

        Raises
        ------
        ProxyFailure
            It did not start.
        """
        parts = urlsplit(endpoint)
        ours, its = socket.socketpair()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.servers._relay", str(its.fileno())],
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        its.close()
        control = Connection(ours.detach())
        proxy = cls(control, "")
        try:
            port = proxy._ask("listen", parts.hostname, parts.port, credentials)
            proxy.endpoint = parts._replace(netloc=f"127.0.0.1:{port}").geturl().rstrip("/")
            proxy.shape(latency=latency, rate=rate)
            yield proxy
        finally:
            # It ends when this is closed, and so it does if this process is killed.
            control.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _ask(self, what: str, *arguments: Any) -> Any:
        with self._lock:
            try:
                self._control.send((what, arguments))
                if not self._control.poll(_REPLY_SECONDS):
                    raise ProxyFailure(f"the proxy did not reply to {what!r}")
                return self._control.recv()
            except (EOFError, OSError) as error:
                raise ProxyFailure("the proxy ended") from error

    def shape(self, *, latency: float = 0.0, rate: float | None = None) -> None:
        """Change the link, for requests that come from now on.

        Parameters
        ----------
        latency
            Seconds of a round trip: each request waits as long, and so does each new connection.
        rate
            Bytes a second of each connection in each direction; None for as many as there are.
        """
        self._ask("shape", latency, rate)

    def fault(
        self,
        fault: Fault,
        *,
        method: str | None = None,
        path: str | None = None,
        offset: int | None = None,
        skip: int = 0,
        count: int | None = 1,
    ) -> None:
        """Add a rule; :class:`~tests.servers.faults.Rule` has its parameters. The oldest rule that fits applies."""
        self._ask("add", Rule(fault, method, path, offset, skip, count))

    def heal(self) -> None:
        """Forget all rules, and let stalled responses go on."""
        self._ask("heal")

    def release(self) -> None:
        """Let stalled responses go on."""
        self._ask("release")

    def log(self) -> Log:
        """Return the requests since the start or the last :meth:`forget`, those in flight among them."""
        return Log(tuple(self._ask("log")))

    def forget(self) -> None:
        """Begin a new log."""
        self._ask("forget")

    def reset(self) -> None:
        """Take away shape and rules, and begin a new log."""
        self.heal()
        self.shape()
        self.forget()
