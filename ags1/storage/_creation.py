"""Create-if-absent: the one write that two writers cannot both do."""

from __future__ import annotations

import errno

from ags1.storage._atomic import AtomicFile, temporary_name
from ags1.storage._errors import naming
from ags1.storage._fsspec import file_system_of
from ags1.storage.location import Location

# fsspec file systems whose rename never replaces a file, and reports whether it renamed anything.
_RENAMING = frozenset({"webhdfs"})


def can_create(location: Location) -> bool:
    """Whether the backend has create-if-absent; the interface of fsspec has no such call."""
    return location.is_local or location.is_object or location.scheme in _RENAMING


def create(location: Location, data: bytes, *, durable: bool = True) -> None:
    """Write a whole file, if its name is free.

    Locally a complete, synced file is linked to its name; in an object store it is one conditional request; in HDFS a
    complete file is renamed, which replaces nothing. A process that is killed leaves the whole file or nothing.

    FileExistsError: the name is taken. A request that was repeated because its response was lost is recognised by the
    content of the file. OSError ENOTSUP: the backend cannot do this. After any other OSError it is unknown whether the
    file exists: read it to find out.
    """
    if location.is_local:
        with AtomicFile(location.path) as output:
            output.write(data)
            output.commit_new(durable=durable)
    elif location.is_object:
        import ags1.storage._objects as _objects

        _objects.create(location, data)
    elif location.scheme in _RENAMING:
        _rename_into_place(location, data)
    else:
        raise OSError(errno.ENOTSUP, "this file system cannot create a file only if it is absent", location.text)


def _rename_into_place(location: Location, data: bytes) -> None:
    file_system, path = file_system_of(location)
    temporary = temporary_name(path)
    with naming(location.text):
        file_system.unguarded.pipe_file(temporary, data)
        try:
            answer = file_system.unguarded._call("RENAME", method="put", path=temporary, destination=path)
            if answer.json()["boolean"]:
                return
            if file_system.unguarded.cat_file(path) == data:
                # The request was repeated because its first response was lost.
                return
            raise FileExistsError(errno.EEXIST, "File exists", location.text)
        finally:
            try:
                file_system.unguarded.rm_file(temporary)
            except OSError:
                # It was renamed, or it stays; its name shows that it is temporary.
                pass
