"""Outputs: where bytes are written. An output appears whole when it is committed, or not at all.

    output            appears                                        parallel writes
    LocalOutput       by a rename (see AtomicFile)                   at positions of its descriptor
    ObjectOutput      with its last request                          parts of an upload
    FsspecOutput      as the file system can                         -
    FileObjectOutput  at once: it is the caller's file object        -
    DirectOutput      at once: a FIFO or a device                    -

For one writer at a time.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Mapping

from ags1.storage._errors import naming
from ags1.storage._fsspec import file_system_of, guarded
from ags1.storage.atomic import AtomicFile
from ags1.storage.directories import below
from ags1.storage.location import Location
from ags1.storage.output import Output
from ags1.support.typing import Any


def open_output(
    file: Any, storage_options: Mapping[str, Any] | None = None, *, expected: int | None = None, mode: int | None = None
) -> Output:
    """Make the output for a path, a URL, a Location, a file object or an Output.

    `expected` is the number of bytes that will be written, if known; `mode` has the permission bits of a new local
    file, before the umask. OSError: the directory is missing or not writable, or the target is a directory. TypeError:
    `file` is none of these, or a file object of text.
    """
    if isinstance(file, Output):
        return file
    if isinstance(file, (str, bytes, os.PathLike)) and not isinstance(file, Location):
        file = Location(file, storage_options)
    if isinstance(file, Location):
        output = _of_location(file, expected, mode)
        output.location = file
        return output
    if not hasattr(file, "write"):
        raise TypeError(f"a path, a URL or a binary file object is needed to write to, not {type(file).__name__}")
    if isinstance(file, io.TextIOBase):
        raise TypeError("a binary file object is needed, but this one is text: open it with mode 'wb'")
    return FileObjectOutput(file)


def _of_location(location: Location, expected: int | None, mode: int | None) -> Output:
    if location.is_object:
        from ags1.storage.objects import ObjectOutput

        return ObjectOutput(location, expected)
    if not location.is_local:
        return FsspecOutput(*file_system_of(location), location.shown)
    if location.root is None:
        atomic = AtomicFile(location.path, mode=mode)
    else:
        with below(location) as (directories, name):
            atomic = AtomicFile(location.path, mode=mode, directory=directories.above(name)[0])
    return LocalOutput(atomic) if atomic.seekable else DirectOutput(atomic)


class LocalOutput(Output):
    """A regular file."""

    def __init__(self, atomic: AtomicFile) -> None:
        self._atomic = atomic
        self.name = atomic.name
        self.descriptor: int = atomic.descriptor
        self._reserved = False

    def reserve(self, size: int) -> None:
        """Allocate the disk space; the commit frees what was not written."""
        self._reserved = True
        self._atomic.reserve(size)

    def _commit(self, durable: bool) -> None:
        if self._reserved:
            # More space may have been reserved than was needed.
            os.ftruncate(self.descriptor, self.position)
        self._publish(durable)

    def _publish(self, durable: bool) -> None:
        self._atomic.commit(durable=durable)

    def _abort(self, mark: bytes) -> None:
        self._atomic.abort()


class FileObjectOutput(Output):
    """A binary file object of the caller: written from its position on, flushed, not closed."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._wrote = False
        name = getattr(file, "name", None)
        self.name = name if isinstance(name, str) else None

    def _write(self, data: memoryview) -> None:
        done = 0
        self._wrote = True
        while done < len(data):
            count = self._file.write(data[done:])
            if count is None:
                # A non-blocking io.RawIOBase returns None for "try later". Some other wrappers return None for "all
                # written".
                if hasattr(self._file, "readinto") and hasattr(self._file, "fileno"):
                    raise BlockingIOError(11, f"{self.name or 'the file object'} is non-blocking and is not ready")
                return
            if not 0 < count <= len(data) - done:
                raise OSError(
                    f"{self.name or 'the file object'} returned {count} from a write of {len(data) - done} bytes"
                )
            done += count

    def flush(self) -> None:
        """Flush the file object."""
        if hasattr(self._file, "flush"):
            self._file.flush()

    def _commit(self, durable: bool) -> None:
        self.flush()

    def _abort(self, mark: bytes) -> None:
        # A failed write may have stored some bytes as well, so the mark is needed after any write.
        if mark and self._wrote:
            try:
                self._file.write(mark)
                self.flush()
            except Exception:
                # The file itself failed; nothing more can be done.
                pass


class DirectOutput(FileObjectOutput):
    """A FIFO or device, opened by its path: nothing to publish, nothing to remove."""

    def __init__(self, atomic: AtomicFile) -> None:
        super().__init__(os.fdopen(os.dup(atomic.descriptor), "wb", buffering=0))
        self._atomic = atomic
        self.name = atomic.name

    def _commit(self, durable: bool) -> None:
        self._file.close()
        self._atomic.commit()

    def _abort(self, mark: bytes) -> None:
        super()._abort(mark)
        self._file.close()
        self._atomic.abort()


class FsspecOutput(FileObjectOutput):
    """A file of an fsspec file system, published on commit where the file system can."""

    def __init__(self, file_system: Any, path: str, name: str) -> None:
        with naming(name):
            file = _open_deferred(file_system, path)
        self._file_system = guarded(file_system)
        self._path = path
        self._deferred = hasattr(file, "commit") and hasattr(file, "discard")
        super().__init__(file)
        self.name = name

    def _write(self, data: memoryview) -> None:
        with naming(self.name or ""):
            super()._write(data)

    def _commit(self, durable: bool) -> None:
        with naming(self.name or ""):
            self._file.close()
            if self._deferred:
                _publish(self._file)
        if (
            self._deferred
            and "hdfs" in str(self._file_system.protocol)
            and not (self._file_system.exists(self._path) and self._file_system.size(self._path) == self.position)
        ):
            # The file system renames, and does not report a rename that failed.
            raise OSError(errno.EIO, "the file system did not publish it: is there no such directory?", self.name)

    def _abort(self, mark: bytes) -> None:
        try:
            if self._deferred:
                self._file.discard()
                # Its destructor would close it, which uploads it.
                self._file.closed = True
            else:
                super()._abort(mark)
                self._file.close()
        except Exception:
            # The service itself failed. An upload that was not completed makes no object.
            pass


def _publish(file: Any) -> None:
    """Give a deferred file its name, and replace an older file."""
    call, target = getattr(file.fs, "_call", None), getattr(file, "target", None)
    if "hdfs" in str(file.fs.protocol) and call is not None and target is not None:
        # WebHDFS keeps the old file unless the request says overwrite, which fsspec's does not.
        call("RENAME", method="put", path=file.path, destination=target, renameoptions="OVERWRITE")
    else:
        file.commit()


def _open_deferred(file_system: Any, path: str) -> Any:
    """Open a file for writing that its commit() publishes, if the file system supports that."""
    if file_system.protocol == "memory":
        # The file system's open() publishes at once; the file class itself does so on request.
        from fsspec.implementations.memory import MemoryFile

        return MemoryFile(file_system, path)
    try:
        file = file_system.open(path, "wb", autocommit=False)
    except TypeError:
        file = file_system.open(path, "wb")
    waiting = file_system.transaction.files
    if waiting and waiting[-1] is file:
        # The file system would keep the file for its transaction; this file is committed here.
        waiting.pop()
    return file
