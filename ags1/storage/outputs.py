"""Where bytes are written to: each output appears whole when it is committed, or not at all.

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

from ags1._typing import Any, Buffer, Self
from ags1.storage._atomic import AtomicFile
from ags1.storage._errors import naming
from ags1.storage._fsspec import file_system_of, guarded
from ags1.storage.location import Location
from ags1.storage.sources import octets

__all__ = ["DirectOutput", "FileObjectOutput", "FsspecOutput", "LocalOutput", "ObjectOutput", "Output", "open_output"]


class Output:
    """Bytes being written, one after the other. Leaving its ``with`` body before :meth:`commit` throws them away.

    Attributes
    ----------
    name : str or None
        Path or URL, or the name that a file object gives itself.
    location : Location or None
        None for a file object.
    position : int
        Bytes written so far.
    descriptor : int or None
        Of a regular file: many threads may write it at positions from `position` on, and then move that.
    is_published : bool
        Whether nothing is seen of it before :meth:`commit`.
    """

    name: str | None = None
    location: Location | None = None
    position: int = 0
    descriptor: int | None = None
    is_published: bool = True
    _ended: bool = False

    def write(self, data: Buffer) -> None:
        """Write all of `data` behind what was written before; the caller keeps the memory."""
        view = octets(data)
        self._write(view)
        self.position += len(view)

    def write_owned(self, data: Buffer) -> None:
        """As :meth:`write`; the memory is given away and must not be changed any more."""
        self.write(data)

    def reserve(self, size: int) -> None:
        """Take the space for `size` bytes now, where that can be done: a full disk is noticed before the work."""

    def flush(self) -> None:
        """Hand on what is buffered."""

    def commit(self, *, durable: bool = False) -> None:
        """Publish the output; with `durable`, when a power cut cannot lose it. Objects in stores always are."""
        self._commit(durable)
        self._ended = True

    def abort(self, mark: bytes = b"") -> None:
        """Throw the output away. Does nothing after :meth:`commit` or a first abort.

        `mark` is written behind bytes that cannot be taken back, so that they do not pass for a complete file.
        """
        if not self._ended:
            self._ended = True
            self._abort(mark)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.abort()

    def _write(self, data: memoryview) -> None:
        # What has no descriptor writes in its own way.
        assert self.descriptor is not None
        done = 0
        while done < len(data):
            try:
                done += os.pwrite(self.descriptor, data[done:], self.position + done)
            except OSError as error:
                raise OSError(error.errno, error.strerror, self.name) from None

    def _commit(self, durable: bool) -> None:
        raise NotImplementedError

    def _abort(self, mark: bytes) -> None:
        raise NotImplementedError


def open_output(
    file: Any, storage_options: Mapping[str, Any] | None = None, *, expected: int | None = None, mode: int | None = None
) -> Output:
    """Make the output for a path, a URL, a Location, a file object or an Output.

    `expected` bytes will be written, if that is known; `mode` are the permission bits of a new local file, narrowed by
    the umask. OSError: the directory is missing or not writable, or the target is a directory. TypeError: `file` is
    none of these, or a file object of text.
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
        return ObjectOutput(location, expected)
    if not location.is_local:
        return FsspecOutput(*file_system_of(location), location.text)
    atomic = AtomicFile(location.path, mode=mode)
    return LocalOutput(atomic) if atomic.seekable else DirectOutput(atomic)


class LocalOutput(Output):
    """A regular file."""

    def __init__(self, atomic: AtomicFile) -> None:
        self._atomic = atomic
        self.name = atomic.name
        self.descriptor: int = atomic.descriptor
        self._reserved = False

    def reserve(self, size: int) -> None:
        """Take the disk space; what is not written is given back by the commit."""
        self._reserved = True
        self._atomic.reserve(size)

    def _commit(self, durable: bool) -> None:
        if self._reserved:
            # More may have been reserved than was needed.
            os.ftruncate(self.descriptor, self.position)
        self._atomic.commit(durable=durable)

    def _abort(self, mark: bytes) -> None:
        self._atomic.abort()


class FileObjectOutput(Output):
    """A binary file object of the caller's: written from where it stands, flushed, not closed."""

    is_published = False

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
                # A raw non-blocking file returns None for "try later"; a sloppy wrapper for "all of it". Only
                # io.RawIOBase defines the former.
                if hasattr(self._file, "readinto") and hasattr(self._file, "fileno"):
                    raise BlockingIOError(11, f"{self.name or 'the file object'} is non-blocking and takes no data now")
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
        # A write that failed may have stored some too, so what counts is that anything was written.
        if mark and self._wrote:
            try:
                self._file.write(mark)
                self.flush()
            except Exception:
                # The file itself is what failed; there is nothing more to be done to it.
                pass


class DirectOutput(FileObjectOutput):
    """A FIFO or device by its path: nothing to publish, nothing to remove."""

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
        self.is_published = self._deferred
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
            # It renames, and does not say so when that failed.
            raise OSError(errno.EIO, "the file system did not publish it: is there no such directory?", self.name)

    def _abort(self, mark: bytes) -> None:
        try:
            if self._deferred:
                self._file.discard()
                # Its destructor would close, and so upload.
                self._file.closed = True
            else:
                super()._abort(mark)
                self._file.close()
        except Exception:
            # The service itself is what failed. An upload that was never completed is no object.
            pass


def _publish(file: Any) -> None:
    """Give a deferred file its name, in place of an older one."""
    call, target = getattr(file.fs, "_call", None), getattr(file, "target", None)
    if "hdfs" in str(file.fs.protocol) and call is not None and target is not None:
        # WebHDFS keeps the old file, unless it is told otherwise, which fsspec does not.
        call("RENAME", method="put", path=file.path, destination=target, renameoptions="OVERWRITE")
    else:
        file.commit()


def _open_deferred(file_system: Any, path: str) -> Any:
    """Open a file for writing that is published by its commit(), where the file system has that."""
    if file_system.protocol == "memory":
        # Its open() publishes at once; the file by itself does so when it is told to.
        from fsspec.implementations.memory import MemoryFile

        return MemoryFile(file_system, path)
    try:
        file = file_system.open(path, "wb", autocommit=False)
    except TypeError:
        file = file_system.open(path, "wb")
    waiting = file_system.transaction.files
    if waiting and waiting[-1] is file:
        # The file system would keep it for a transaction of its own; this file is committed here.
        waiting.pop()
    return file


class ObjectOutput(Output):
    """An object in a store: one request if it is small, else parts of an upload, several on their way at once."""

    def __init__(self, location: Location, expected: int | None = None) -> None:
        from ags1.storage._objects import Upload

        self.name = location.text
        self._upload = Upload(location, expected)

    def _write(self, data: memoryview) -> None:
        self._upload.write(bytes(data))

    def write_owned(self, data: Buffer) -> None:
        """Hand the memory to the upload, which keeps it until it is sent."""
        self._upload.write(data)
        self.position += memoryview(data).nbytes

    def _commit(self, durable: bool) -> None:
        self._upload.commit()

    def _abort(self, mark: bytes) -> None:
        self._upload.abort()
