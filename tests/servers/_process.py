"""A server as a child process: a port of its own, ready when it answers, ended with its parent."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # This file is run without site-packages too.
    from typing_extensions import Self

# From where the modules of the tests can be imported.
ROOT = Path(__file__).resolve().parents[2]
# A limit that finds hangs, and not slow machines.
START_SECONDS = 600.0
END_SECONDS = 15.0
# A port is free when it is asked for, and may be taken a moment later.
TRIES = 3


class ServerFailure(RuntimeError):
    """A server did not start, or ended by itself."""


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listening(port: int) -> bool:
    """Return whether somebody accepts connections at a port of 127.0.0.1."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


class ServerProcess:
    """A running server; a context manager.

    The server is the child of a small Python process that ends it when this process closes its side of a pipe. So it
    ends also if this process is killed.

    Parameters
    ----------
    command
        Its program and arguments.
    ready
        Is called until it returns True.
    env, cwd
        As of subprocess.

    Raises
    ------
    ServerFailure
        It ended or was not ready within ten minutes. The message has the last lines that it wrote.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        ready: Callable[[], bool],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=None if env is None else {**os.environ, **env},
            cwd=cwd,
        )
        deadline = time.monotonic() + START_SECONDS
        try:
            while not ready():
                if self._process.poll() is not None:
                    raise ServerFailure(f"{command[0]} ended with {self._process.returncode}:\n{self.said()}")
                if time.monotonic() > deadline:
                    raise ServerFailure(f"{command[0]} was not ready in {START_SECONDS:.0f} s:\n{self.said()}")
                time.sleep(0.02)
        except BaseException:
            self.close()
            raise

    def said(self) -> str:
        """Return the last of what the server wrote to its standard output and error."""
        with open(os.dup(self._output.fileno()), "rb") as output:
            size = output.seek(0, os.SEEK_END)
            return os.pread(output.fileno(), 4000, max(0, size - 4000)).decode("utf-8", "replace")

    def close(self) -> None:
        """End the server; a second call does nothing."""
        if self._output.closed:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS + 5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def start_on_free_port(
    command: Callable[[int], Sequence[str | Path]],
    ready: Callable[[int], bool] = listening,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> tuple[ServerProcess, int]:
    """Start a server that is told its port; return it and the port.

    Raises
    ------
    ServerFailure
        It did not start on any of three ports.
    """
    for attempt in range(TRIES):
        port = free_port()
        try:
            return ServerProcess(command(port), lambda port=port: ready(port), env=env, cwd=cwd), port  # type: ignore[misc]
        except ServerFailure:
            if attempt == TRIES - 1:
                raise
    raise AssertionError


def _supervise(command: Sequence[str]) -> int:
    """Run the command until it ends or standard input is closed; return its exit status."""
    # Ctrl-C in a terminal goes to all of its processes: the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def ended(signum: int, frame: object) -> None:
        if child.poll() is not None:
            os._exit(child.returncode & 0xFF)

    signal.signal(signal.SIGCHLD, ended)
    ended(0, None)
    while os.read(0, 1):
        pass
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for signum in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signum)
        try:
            return child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    return 1


if __name__ == "__main__":
    sys.exit(_supervise(sys.argv[1:]))
