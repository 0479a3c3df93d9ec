"""Small files, read whole and with a bound: what others may have written is never taken into memory unseen."""

from __future__ import annotations

import errno
import os
import stat

from ags1._typing import Buffer
from ags1.errors import FormatError
from ags1.storage._errors import naming
from ags1.storage._fsspec import file_system_of
from ags1.storage.listing import Entry, status
from ags1.storage.location import Location

__all__ = ["read_identified", "read_whole"]


def read_whole(location: Location, maximum: int) -> Buffer:
    """Read all of a file that may have at most `maximum` bytes; no more are transferred.

    OSError: there is none, it is no regular file, or it cannot be read. FormatError: it has more bytes.
    """
    if location.is_local:
        data: Buffer = _read_local(location.path, maximum)
    elif location.is_object:
        return read_identified(location, maximum)[0]
    else:
        file_system, path = file_system_of(location)
        with naming(location.text):
            with file_system.open(path, "rb") as file:
                data = file.read(maximum + 1)
    if memoryview(data).nbytes > maximum:
        raise _too_long(location, maximum)
    return data


def read_identified(location: Location, maximum: int) -> tuple[Buffer, Entry]:
    """As :func:`read_whole`, with what the file was like then: of an object, with the etag of that very response."""
    if not location.is_object:
        data = read_whole(location, maximum)
        return data, status(location)
    import ags1.storage._objects as _objects

    data, size, etag, modified = _objects.get_beginning(location, maximum + 1)
    if size > maximum:
        raise _too_long(location, maximum)
    return data, Entry(location.name, location, size, modified, etag)


def _too_long(location: Location, maximum: int) -> FormatError:
    return FormatError(f"{location} has more than {maximum} bytes, which no such file has")


def _read_local(path: str, maximum: int) -> bytes:
    # Without O_NONBLOCK, opening a pipe that somebody put there would wait for its other end.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is no regular file", path)
        wanted = min(status.st_size, maximum) + 1
        pieces = []
        while wanted > 0 and (piece := os.read(descriptor, wanted)):
            pieces.append(piece)
            wanted -= len(piece)
        return b"".join(pieces)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, path) from None
    finally:
        os.close(descriptor)
