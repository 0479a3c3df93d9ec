"""Reads small files whole, up to a limit: the length of a file from others is checked before it is read."""

from __future__ import annotations

import os

from ags1.errors import FormatError
from ags1.storage._errors import naming
from ags1.storage._fsspec import file_system_of
from ags1.storage.directories import read_descriptor
from ags1.storage.listing import Entry, status
from ags1.storage.location import Location
from ags1.storage.sources import open_descriptor
from ags1.support.typing import Buffer


def read_whole(location: Location, maximum: int) -> Buffer:
    """Read all of a file of at most `maximum` bytes; no more are transferred.

    OSError: it does not exist, is not a regular file, or cannot be read. FormatError: it has more bytes.
    """
    if location.is_local:
        data: Buffer = _read_local(location, maximum + 1)
    elif location.is_object:
        return read_identified(location, maximum)[0]
    else:
        file_system, path = file_system_of(location)
        with naming(location.shown):
            with file_system.open(path, "rb") as file:
                data = file.read(maximum + 1)
    if memoryview(data).nbytes > maximum:
        raise _too_long(location, maximum)
    return data


def read_identified(location: Location, maximum: int) -> tuple[Buffer, Entry]:
    """As :func:`read_whole`, with the :class:`Entry` of what was read; an object's etag is of the same response."""
    if not location.is_object:
        data = read_whole(location, maximum)
        return data, status(location)
    import ags1.storage._objects as _objects

    data, size, etag, modified = _objects.get_beginning(location, maximum + 1)
    if size > maximum:
        raise _too_long(location, maximum)
    return data, Entry(location.name, location, size, modified, etag)


def _too_long(location: Location, maximum: int) -> FormatError:
    return FormatError(f"{location} has more than {maximum} bytes, the limit for such a file")


def _read_local(location: Location, most: int) -> bytes:
    descriptor = open_descriptor(location)
    try:
        return read_descriptor(descriptor, os.fstat(descriptor).st_size, most)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, location.path) from None
    finally:
        os.close(descriptor)
