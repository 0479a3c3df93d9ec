"""Create-if-absent: the one write that two writers cannot both do."""

from __future__ import annotations

import errno
import os

from ags1.core.descriptors import mounted_at
from ags1.errors import FormatError
from ags1.storage._errors import naming
from ags1.storage._fsspec import file_system_of
from ags1.storage._requests import in_order
from ags1.storage.atomic import AtomicFile, temporary_name
from ags1.storage.directories import DIRECTORY, Directories
from ags1.storage.listing import remove
from ags1.storage.location import Location
from ags1.storage.sources import read_whole

# fsspec file systems whose rename never replaces a file, and reports whether it renamed anything.
_RENAMING = frozenset({"webhdfs"})


# Whether a local file system has create-if-absent.
_local: dict[tuple[int, int], bool] = {}


def can_create(location: Location) -> bool:
    """Whether the backend has create-if-absent; the interface of fsspec has no such call.

    A local file system without hard links and exclusive renames has none: it is tried once, in the nearest directory.
    """
    if not location.is_local:
        return location.is_object or location.scheme in _RENAMING
    above = os.path.dirname(os.path.abspath(location.path))
    while not os.path.isdir(above):
        above = os.path.dirname(above)
    directory = os.open(above, DIRECTORY)
    try:
        mounted = mounted_at(directory)
    finally:
        os.close(directory)
    if mounted not in _local:
        probe = temporary_name(os.path.join(above, "probe"))
        try:
            with AtomicFile(probe) as output:
                output.commit_new()
            os.unlink(probe)
            _local[mounted] = True
        except OSError as error:
            if error.errno != errno.ENOTSUP:
                # What is wrong with this directory is an error of the work itself.
                return True
            _local[mounted] = False
    return _local[mounted]


# Stores that this process has asked, with their settings.
_asked: set[tuple[str, ...]] = set()
_AT_ONCE = 4


def creates_once(probe: Location) -> bool:
    """Whether the store of `probe`, a name that nobody else has, lets only one of several creations succeed.

    Some servers accept the condition of a request and ignore it. So several creations of one object are sent at once,
    and one more behind them: exactly one may succeed, and the object must have its content. The object is removed. A
    process asks each store once, until it gets a good answer; a local file system is not asked. No answer is a proof.

    OSError: the store did not answer, or refused all of them.
    """
    options = sorted(f"{name}={value!r}" for name, value in probe.storage_options.items())
    key = (probe.scheme, probe.container, *probe.text.split("/")[2:3], *options)
    if probe.is_local or key in _asked:
        return True
    contents = [os.urandom(16) for _ in range(_AT_ONCE + 1)]

    def attempt(data: bytes) -> OSError | None:
        try:
            create(probe, data)
        except OSError as error:
            return error
        return None

    try:
        answers = list(in_order(attempt, contents[:-1], at_once=_AT_ONCE))
        answers.append(attempt(contents[-1]))
        won = [data for data, error in zip(contents, answers, strict=True) if error is None]
        failed = [each for each in answers if each is not None and not isinstance(each, FileExistsError)]
        if not won and failed:
            raise failed[0]
        try:
            kept = bytes(memoryview(read_whole(probe, len(contents[0]))))
        except (FileNotFoundError, FormatError):
            return False
        if won != [kept]:
            return False
    finally:
        remove([probe])
    _asked.add(key)
    return True


def create(location: Location, data: bytes, *, durable: bool = True) -> None:
    """Write a whole file, if its name is free.

    Locally a complete, synced file is linked to its name; in an object store it is one conditional request; in HDFS a
    complete file is renamed, which replaces nothing. A process that is killed leaves the whole file or nothing.

    FileExistsError: the name is taken. A request that was repeated because its response was lost is recognised by the
    content of the file. OSError ENOTSUP: the backend cannot do this. After any other OSError it is unknown whether the
    file exists: read it to find out.
    """
    if location.is_local:
        # A name that a link or a pipe has is taken: neither is followed or opened.
        above = os.path.dirname(os.path.abspath(location.path))
        within = Directories(above) if location.root is None else Directories(location.root)
        name = location.name if location.root is None else location.name_below
        with within, AtomicFile(location.path, directory=within.above(name)[0]) as output:
            output.write(data)
            output.commit_new(durable=durable)
    elif location.is_object:
        import ags1.storage.objects as _objects

        _objects.create(location, data)
    elif location.scheme in _RENAMING:
        _rename_into_place(location, data)
    else:
        raise OSError(errno.ENOTSUP, "this file system cannot create a file only if it is absent", location.shown)


def _rename_into_place(location: Location, data: bytes) -> None:
    file_system, path = file_system_of(location)
    temporary = temporary_name(path)
    with naming(location.shown):
        file_system.unguarded.pipe_file(temporary, data)
        try:
            answer = file_system.unguarded._call("RENAME", method="put", path=temporary, destination=path)
            if answer.json()["boolean"]:
                return
            if file_system.unguarded.cat_file(path) == data:
                # The request was repeated because its first response was lost.
                return
            raise FileExistsError(errno.EEXIST, "File exists", location.shown)
        finally:
            try:
                file_system.unguarded.rm_file(temporary)
            except OSError:
                # It was renamed, or it stays; its name shows that it is temporary.
                pass
