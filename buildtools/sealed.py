"""A directory in the cache that is used only as it was built: for its owner alone, and checked by a hash."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Also where this is imported as buildtools.sealed.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from openssl_source import UnavailableError

DIGEST = "SHA256"
"""File in a sealed directory with the hash of all the others."""


def private_directory(path: Path) -> Path:
    """Make `path` if need be, and take from others what they may do in it, if it is ours to take.

    Raises
    ------
    PermissionError
        It belongs to somebody else, and others may write to it.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.stat()
    if found.st_uid == os.geteuid():
        if stat.S_IMODE(found.st_mode) != 0o700:
            path.chmod(0o700)
    elif found.st_mode & 0o022:
        raise PermissionError(f"{path} belongs to another user, and others may write to it: set AGS1_CACHE to another")
    return path


def _digest(place: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in place.rglob("*") if path.is_file() and path != place / DIGEST):
        digest.update(f"{path.relative_to(place)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def seal(place: Path) -> None:
    """Write down the hash of what is in `place`."""
    (place / DIGEST).write_text(_digest(place) + "\n")


def is_sealed(place: Path) -> bool:
    """Whether `place` holds just what it held when it was sealed."""
    try:
        return (place / DIGEST).read_text() == _digest(place) + "\n"
    except OSError:
        return False


@contextlib.contextmanager
def workplace(cache: Path) -> Iterator[Path]:
    """Give an empty directory in `cache` to build in, to one process at a time.

    Raises
    ------
    UnavailableError
        Nothing can be built in `cache`.
    """
    try:
        private_directory(cache)
    except OSError as error:
        raise UnavailableError(
            f"nothing can be built in the cache: {error}", "set AGS1_CACHE to a directory of yours and build again"
        ) from error
    with open(cache / "openssl.lock", "w") as lock, tempfile.TemporaryDirectory(prefix="build-", dir=cache) as name:
        # The kernel releases it if this process dies.
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(name)


def move_sealed(out: Path, place: Path) -> None:
    """Seal what was built in a workplace, and move it to `place` in one step."""
    seal(out)
    # A directory that is not as it was built is a leftover, or was changed: this process holds the lock.
    shutil.rmtree(place, ignore_errors=True)
    os.rename(out, place)
