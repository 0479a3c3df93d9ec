"""Building a server once, into a cache outside the source tree, and finding it again."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from buildtools.openssl_source import cache_directory

# Builds share the machine with whatever else runs on it.
NICE = ("nice", "-n", "10")
INSTALL_SECONDS = 1800.0
SAY_SECONDS = 60.0
# Taken when this module is imported: tests change HOME.
_CACHE = cache_directory() / "servers"


class MissingServerError(RuntimeError):
    """A server cannot be had here, because a tool is missing or its build failed."""


def tool(*names: str) -> str:
    """Return the path of the first of these commands that is there.

    Raises
    ------
    MissingServerError
        None of them is.
    """
    for name in names:
        if path := shutil.which(name):
            return path
    raise MissingServerError(f"no command {' or '.join(names)}")


def run(command: Sequence[str | Path], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
    """Run a step of a build.

    Raises
    ------
    MissingServerError
        It failed, or took longer than half an hour.
    """
    nice = NICE if shutil.which("nice") else ()
    try:
        done = subprocess.run(
            [*nice, *map(str, command)],
            env={**os.environ, **(env or {})},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MissingServerError(f"{command[0]} took longer than {INSTALL_SECONDS:.0f} s") from error
    if done.returncode != 0:
        said = done.stdout.decode("utf-8", "replace")[-3000:]
        raise MissingServerError(f"{' '.join(map(str, command))} failed ({done.returncode}):\n{said}")


def may_build() -> bool:
    """Whether this run builds what is missing, in minutes: `make servers`, and where no test may be skipped."""
    return bool(os.environ.get("AGS1_BUILD_SERVERS") or os.environ.get("AGS1_NO_SKIP"))


def installed(name: str, version: str, build: Callable[[Path], None]) -> Path:
    """Return the directory of a server, built first if it is not there.

    Parameters
    ----------
    name, version
        What the directory is called.
    build
        Is called with an empty directory and fills it. A lock keeps other processes from building at the same time,
        and the directory gets its name when it is complete.

    Raises
    ------
    MissingServerError
        From `build`; or it is not there, and this run builds nothing: :func:`may_build`.
    """
    directory = _CACHE / f"{name}-{version}"
    if directory.is_dir():
        return directory
    if not may_build():
        raise MissingServerError(f"{name} is not built: make servers")
    with locked(f"{name}-{version}"):
        if directory.is_dir():
            return directory
        with tempfile.TemporaryDirectory(prefix=f"{name}-build-", dir=_CACHE, ignore_cleanup_errors=True) as scratch:
            ready = Path(scratch) / "ready"
            ready.mkdir()
            with announced(f"{name} {version}"):
                build(ready)
            ready.rename(directory)
    return directory


@contextlib.contextmanager
def announced(what: str) -> Iterator[None]:
    """Say on standard error what is being built, once a minute: on a loaded machine it takes half an hour."""
    done = threading.Event()

    def say() -> None:
        start = time.monotonic()
        print(f"building {what}, once for this machine", file=sys.stderr, flush=True)
        while not done.wait(SAY_SECONDS):
            print(f"still building {what}: {(time.monotonic() - start) / 60:.0f} min", file=sys.stderr, flush=True)

    thread = threading.Thread(target=say, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Keep other processes from building `name`. The kernel releases the lock if this process dies."""
    path = _CACHE / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def go_install(module: str, version: str, target: Path) -> None:
    """Build the command of a Go module into the directory `target`.

    Go's module proxy and checksum database prove that the version has the bytes that everybody else gets.
    """
    go = tool("go")
    # Nothing else needs the gigabytes that a build leaves in Go's caches. Modules are read-only without -modcacherw.
    with tempfile.TemporaryDirectory(prefix="go-", dir=target.parent, ignore_cleanup_errors=True) as caches:
        env = {
            "GOBIN": str(target),
            "CGO_ENABLED": "0",
            "GOFLAGS": "-buildvcs=false -modcacherw",
            "GOPATH": caches,
            "GOMODCACHE": f"{caches}/modules",
            "GOCACHE": f"{caches}/builds",
        }
        run([go, "install", "-ldflags=-s -w", f"{module}@{version}"], env)
