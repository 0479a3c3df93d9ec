"""Files of pins: a JSON object in a small file of this machine that nobody but its owner can write."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping

from ags1.errors import FormatError
from ags1.storage.atomic import AtomicFile
from ags1.support.typing import Any

_MAX_BYTES = 64 << 10


def read_pins(path: str | os.PathLike[str], pinned: str) -> dict[str, Any]:
    """Return the fields of a file of pins.

    Raises
    ------
    FormatError
        Others can write it, or it is no file with a JSON object; names what is `pinned`.
    FileNotFoundError
        It does not exist yet.
    OSError
        It cannot be read, or its directory does not exist, so it could not be written either.
    """
    import json

    name = os.fspath(path)
    if not os.path.isdir(os.path.dirname(name) or "."):
        raise NotADirectoryError(errno.ENOTDIR, "there is no such directory for this file of pins: make it", name)
    # Without waiting: a pipe may stand there.
    with open(os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise FormatError(f"{name} can be written by others than its owner, so it pins nothing: chmod 600 {name}")
        try:
            found: Any = json.loads(file.read(_MAX_BYTES)) if stat.S_ISREG(mode) else None
        except (ValueError, RecursionError):
            found = None
    if not isinstance(found, dict):
        raise no_pins(name, pinned)
    return found


def no_pins(path: str | os.PathLike[str], pinned: str) -> FormatError:
    """Return the error for a file whose fields are others."""
    return FormatError(f"{os.fspath(path)} holds no pins of a {pinned}: remove it, and pin the {pinned} again")


def write_pins(path: str | os.PathLike[str], fields: Mapping[str, Any]) -> None:
    """Replace a file of pins; only its owner can read and write it. OSError: it cannot be written."""
    import json

    with AtomicFile(path, mode=0o600) as output:
        output.write(json.dumps(fields, indent=2).encode("ascii") + b"\n")
        output.commit(durable=True)
