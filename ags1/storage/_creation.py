"""Create-if-absent: the one write that two writers cannot both do."""

from __future__ import annotations

import errno
import os

from ags1.storage._atomic import AtomicFile
from ags1.storage.location import Location

__all__ = ["can_create", "create"]


def can_create(location: Location) -> bool:
    """Whether the backend has create-if-absent. fsspec does not promise it for any file system."""
    return location.is_local or location.is_object


def create(location: Location, data: bytes, *, durable: bool = True) -> None:
    """Write a whole file under a name that nobody has.

    Locally a complete, synced file is linked to its name; in an object store it is one conditional request. A kill at
    any moment leaves all of it or nothing.

    Raises
    ------
    FileExistsError
        Somebody else has the name. A request that was repeated after its answer was lost is recognised by its content.
    OSError
        ENOTSUP: the backend cannot do this. Any other: whether the file exists is unknown; read it to find out.
    """
    if location.is_local:
        output = AtomicFile(location.path)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(output.descriptor, data[written:], written)
            output.commit_new(durable=durable)
        except BaseException:
            output.abort()
            raise
    elif location.is_object:
        import ags1.storage._objects as _objects

        _objects.create(location, data)
    else:
        raise OSError(errno.ENOTSUP, "this file system cannot create a file only if it is absent", location.text)
