"""A directory in the cache that is used only as it was built: for its owner alone, and checked by a hash."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

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
