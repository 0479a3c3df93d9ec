"""Sources: bytes are read from memory, a descriptor, a file object, an object in a store, or a pipe.

    source            length   ranges          at once   changed while read
    MemorySource      known    a view          -         not checked
    HeldSource        known    a view          -         not seen: one request has all of it
    DescriptorSource  known    pread           any       seen by mtime, ctime and length (:meth:`Source.check`)
    FileObjectSource  known    seek and read   one       not seen
    FsspecSource      known    cat_file        many      seen if the file system has an etag
    ObjectSource      known    GET of a range  many      seen: every response has the etag of the first
    PipeSource        unknown  forwards only   one       -

A source has a length in bytes and returns any range of bytes; it has no part in formats and keys. All but the pipe are
thread-safe.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ags1.core.buffer import BufferView
from ags1.errors import FormatError, TruncatedError
from ags1.storage._errors import changed, naming
from ags1.storage._fsspec import file_system_of, guarded
from ags1.storage._requests import on_request_thread, start
from ags1.storage.directories import below, read_descriptor
from ags1.storage.listing import Entry, status
from ags1.storage.location import Location
from ags1.support.forks import renew_in_children
from ags1.support.typing import Any, Buffer, NoReturn

_PIPE_STEP = 1 << 20
# Bytes that opening an object fetches. The same response has its length and etag; a small object needs no other.
_BEGINNING = 64 << 10

SMALL = 1 << 20
"""Bytes of an object up to which one request for all of it takes about as long as one for any part."""


def octets(buffer: Buffer, *, writable: bool = False) -> memoryview:
    """The bytes of a contiguous buffer with items of any type. The view holds the buffer until it is released."""
    return memoryview(BufferView(buffer, writable))


class Source:
    """Bytes that can be read by position.

    Attributes
    ----------
    name : str or None
        Path or URL, for messages.
    size : int
        Bytes.
    is_file : bool
        Whether it is a regular local file.
    mode : int or None
        Permission bits of a local file: a file that is made from it gets no others.
    is_remote : bool
        Whether each read is a request: then a few large parallel reads cost less than many small ones.
    """

    name: str | None = None
    size: int = 0
    mode: int | None = None
    is_file: bool = False
    is_remote: bool = False

    def read(self, offset: int, size: int) -> Buffer:
        """Exactly `size` bytes at `offset`.

        TruncatedError: the source is shorter. OSError: reading failed, or the source was changed after it was opened.
        """
        raise NotImplementedError

    def read_into(self, offset: int, out: memoryview) -> None:
        """Fill `out` from `offset`. As :meth:`read`."""
        out[:] = memoryview(self.read(offset, len(out))).cast("B")

    @contextmanager
    def descriptor(self) -> Iterator[int | None]:
        """The descriptor of a regular file, for positioned reads inside the context; else None."""
        yield None

    def check(self) -> None:
        """Raise OSError if a change of the source since it was opened is detected."""

    def close(self) -> None:
        """Release what the source owns."""


def open_source(
    file: Any, storage_options: Mapping[str, Any] | None = None, *, expected: int | None = None, ends: bool = False
) -> Source | PipeSource:
    """Make the source of a path, a URL, a Location, a file object or a buffer; a source is returned as it is.

    `expected` is its length in bytes, as far as the caller knows: a small object is read whole with the first request,
    and is then a HeldSource. The caller compares the length. With `ends`, the end of a larger object is requested
    together with its beginning, for formats whose readers begin with both.

    OSError: it does not exist or cannot be read. TypeError: it is none of these, or a file object of text.
    """
    if isinstance(file, Source):
        return file
    if isinstance(file, Location):
        return _of_location(file, expected, ends)
    if isinstance(file, (str, os.PathLike)):
        return _of_location(Location(file, storage_options), expected, ends)
    if hasattr(file, "read") and not _is_buffer(file):
        return _of_file_object(file)
    return MemorySource(file)


def _of_location(location: Location, expected: int | None, ends: bool) -> Source | PipeSource:
    if location.is_local:
        return _local(location)
    if location.is_object:
        if expected is None or expected > SMALL:
            return ObjectSource(location, expected=expected if ends else None)
        found = ObjectSource(location, SMALL)
        return found.held() or found
    return FsspecSource(*file_system_of(location), location.shown)


def _is_buffer(file: Any) -> bool:
    """Whether `file` is to be read as memory; an mmap is, although it has the methods of a file."""
    try:
        memoryview(file).release()
    except TypeError:
        return False
    return True


def open_descriptor(location: Location) -> int:
    """Open a regular local file to read it. OSError EINVAL: it is a pipe, a socket or a device.

    Below a root, a link is refused as well.
    """
    if location.root is not None:
        with below(location) as (directories, name):
            return directories.open_regular(name)
    # Without O_NONBLOCK, opening a pipe would wait for its other end.
    descriptor = os.open(location.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", location.path)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "is not a regular file", location.path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_regular(location: Location) -> DescriptorSource:
    """Open a regular local file for reading by position, as :func:`open_descriptor` does."""
    descriptor = open_descriptor(location)
    try:
        return DescriptorSource(descriptor, location.text)
    except BaseException:
        os.close(descriptor)
        raise


def _local(location: Location) -> Source | PipeSource:
    if location.root is not None:
        return open_regular(location)
    descriptor = os.open(location.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(21, "Is a directory", location.path)
        if not stat.S_ISREG(mode):
            return PipeSource(io.FileIO(descriptor, closefd=True), location.path, owned=True)
        return DescriptorSource(descriptor, location.path)
    except BaseException:
        os.close(descriptor)
        raise


def _of_file_object(file: Any) -> Source | PipeSource:
    if isinstance(file, io.TextIOBase):
        raise TypeError("a binary file object is needed, but this one is text: open it with mode 'rb'")
    name = getattr(file, "name", None)
    name = name if isinstance(name, str) else None
    file_system, path = getattr(file, "fs", None), getattr(file, "path", None)
    if hasattr(file_system, "cat_file") and isinstance(path, str) and getattr(file, "mode", "rb") == "rb":
        return FsspecSource(file_system, path, path)
    if not _is_seekable(file):
        return PipeSource(file, name, owned=False)
    if type(file) in (io.FileIO, io.BufferedReader, io.BufferedRandom):
        # Positioned reads on a duplicate do not move the caller's position, and work after the caller closes its file.
        if file.writable():
            file.flush()
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return DescriptorSource(os.dup(file.fileno()), name)
    return FileObjectSource(file, name)


def _is_seekable(file: Any) -> bool:
    seekable = getattr(file, "seekable", None)
    return bool(seekable()) if seekable is not None else hasattr(file, "seek")


def _refuse_excess(name: str | None, wanted: int, got: int) -> NoReturn:
    raise OSError(f"{name or 'the file object'} returned {got} bytes to a read of {wanted}")


def _refuse_blocking(name: str | None) -> NoReturn:
    raise BlockingIOError(11, f"{name or 'the file object'} is non-blocking and has no data now")


def _truncated(name: str | None, offset: int, wanted: int, got: int) -> TruncatedError:
    where = f"{name}: " if name else ""
    return TruncatedError(
        f"{where}only {got} of {wanted} bytes could be read at offset {offset}: "
        "the source is shorter than it was when it was opened"
    )


def _changes(status: os.stat_result) -> tuple[int, int]:
    """Values that change when a file is written. Not ctime: a rename of the file changes that too."""
    return status.st_size, status.st_mtime_ns


def _status_of(file: Any) -> tuple[int, int] | None:
    try:
        status = os.fstat(file.fileno())
    except (AttributeError, TypeError, OSError, ValueError):
        return None
    return _changes(status) if stat.S_ISREG(status.st_mode) else None


class MemorySource(Source):
    """A buffer, read in place: `view` is all of it."""

    def __init__(self, buffer: Buffer) -> None:
        self.view = octets(buffer)
        self.size = len(self.view)

    def read(self, offset: int, size: int) -> Buffer:
        """A view of the range: nothing is copied."""
        if offset + size > self.size:
            raise _truncated(self.name, offset, size, max(0, self.size - offset))
        return self.view[offset : offset + size]

    def close(self) -> None:
        """Release the buffer."""
        self.view.release()


class HeldSource(MemorySource):
    """An object that one request has read whole; `data` is its content, which outlives the source."""

    def __init__(self, data: Buffer, name: str | None) -> None:
        super().__init__(data)
        self.data = data
        self.name = name

    def close(self) -> None:
        """Do nothing: it can be read again, as an object can be requested again."""


class DescriptorSource(Source):
    """A regular file, read by positioned reads; the descriptor is owned."""

    is_file = True

    def __init__(self, descriptor: int, name: str | None) -> None:
        self.name = name
        self._descriptor = descriptor
        found = os.fstat(descriptor)
        self.size = found.st_size
        self.status = found
        self.mode = stat.S_IMODE(found.st_mode)
        self._closed = False
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """Start again in a forked child, which has none of the threads that were reading."""
        # If it were closed while another thread reads, its number could be reused for another file.
        self._users = 0
        self._lock = threading.Lock()

    def read(self, offset: int, size: int) -> Buffer:
        """The range, in new memory."""
        out = bytearray(size)
        with memoryview(out) as view:
            self.read_into(offset, view)
        return out

    def read_into(self, offset: int, out: memoryview) -> None:
        """Read directly into `out`."""
        size = len(out)
        with self.descriptor() as descriptor:
            assert descriptor is not None
            done = 0
            while done < size:
                count = os.preadv(descriptor, [out[done:]], offset + done)
                if count == 0:
                    raise _truncated(self.name, offset, size, done)
                done += count
            self._check(descriptor)

    def fileno(self) -> int:
        """The number of the descriptor, valid while the source is open."""
        return self._descriptor

    @contextmanager
    def descriptor(self) -> Iterator[int | None]:
        """The descriptor, which stays open at least until the context ends."""
        self._enter()
        try:
            yield self._descriptor
        finally:
            self._leave()

    def _enter(self) -> None:
        with self._lock:
            if self._closed:
                raise ValueError("I/O operation on closed file.")
            self._users += 1

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._closed and self._users == 0:
                os.close(self._descriptor)

    def check(self) -> None:
        """Raise OSError if the file has changed. Called after a read, it covers the data of that read."""
        # Not by descriptor(), which would take half of the time: this is called for each block.
        self._enter()
        try:
            self._check(self._descriptor)
        finally:
            self._leave()

    def _check(self, descriptor: int) -> None:
        if _changes(os.fstat(descriptor)) != _changes(self.status):
            raise changed(self.name)

    def close(self) -> None:
        """Close the descriptor when no other thread reads from it."""
        if sys.is_finalizing():
            # In a forked child, a thread of the parent may have held the lock. The end of the process closes the
            # descriptor.
            return
        with self._lock:
            if not self._closed:
                self._closed = True
                if self._users == 0:
                    os.close(self._descriptor)


class FileObjectSource(Source):
    """A seekable file object of the caller: a lock makes seek and read one step; it is not closed."""

    def __init__(self, file: Any, name: str | None) -> None:
        self.name = name
        self._file = file
        self.renew()
        renew_in_children(self)
        with self._lock:
            size = file.seek(0, os.SEEK_END)
            self.size = file.tell() if size is None else size
        self._status = _status_of(file)

    def renew(self) -> None:
        """Start again in a forked child."""
        self._lock = threading.Lock()

    def check(self) -> None:
        """As :meth:`DescriptorSource.check`, where the file object has a descriptor."""
        if self._status is not None and _status_of(self._file) != self._status:
            raise changed(self.name)

    def read(self, offset: int, size: int) -> Buffer:
        """The range; several short reads of the file object are joined."""
        data = self._read(offset, size)
        self.check()
        return data

    def _read(self, offset: int, size: int) -> bytes:
        pieces: list[bytes] = []
        done = 0
        with self._lock:
            self._file.seek(offset)
            while done < size:
                piece = self._file.read(size - done)
                if piece is None:
                    _refuse_blocking(self.name)
                if not piece:
                    raise _truncated(self.name, offset, size, done)
                if len(piece) > size - done:
                    _refuse_excess(self.name, size - done, len(piece))
                if not pieces and len(piece) == size:
                    return bytes(piece) if not isinstance(piece, bytes) else piece
                pieces.append(piece)
                done += len(piece)
        return b"".join(pieces)


class FsspecSource(Source):
    """A file of an fsspec file system: one request for each range."""

    is_remote = True

    def __init__(self, file_system: Any, path: str, name: str) -> None:
        self.name = name
        self._file_system = guarded(file_system)
        self._path = path
        self.size = self._file_system.size(path, name)

    def read(self, offset: int, size: int) -> Buffer:
        """The range, in memory that the file system returned."""
        if size == 0:
            return b""

        def call() -> bytes:
            with naming(self.name):
                data: bytes = self._file_system.unguarded.cat_file(self._path, start=offset, end=offset + size)
            return data

        with naming(self.name):
            data = call() if on_request_thread() else start(call).result()
        if len(data) > size:
            text = (
                f"the server ignores the range of a request: it sent {len(data)} bytes instead of {size} "
                f"at offset {offset}; copy it to a file first"
            )
            raise OSError(errno.EOPNOTSUPP, text, self.name)
        if len(data) < size:
            text = (
                f"the server sent {len(data)} of {size} bytes at {offset}: the response was cut short, or the object "
                "was replaced by a shorter one"
            )
            raise OSError(errno.EIO, text, self.name)
        return data


class ObjectSource(Source):
    """An object in a store: the first request gets length, etag and the beginning; all later ones check that etag.

    Where the length is `expected`, another request gets the end at the same time.
    """

    is_remote = True

    def __init__(self, location: Location, beginning: int = _BEGINNING, expected: int | None = None) -> None:
        import ags1.storage.objects as _objects

        self.name = location.shown
        self._location = location
        self._get = _objects.get
        start_of_end = 0 if expected is None else max(beginning, expected - _BEGINNING)
        end = None if expected is None else start(lambda: _objects.get_ending(location, start_of_end, expected))
        self._beginning, self.size, self.etag, self.modified = _objects.get_beginning(location, beginning)
        self._ending: Buffer = b""
        if end is not None and expected == self.size:
            try:
                self._ending, etag = end.result()
            except OSError:
                # It is requested again when it is read, and raises the error then.
                etag = None
            if etag != self.etag:
                self._ending = b""

    def held(self) -> HeldSource | None:
        """The same, if opening it has fetched all of it."""
        is_whole = memoryview(self._beginning).nbytes == self.size
        return HeldSource(self._beginning, self.name) if is_whole else None

    def read(self, offset: int, size: int) -> Buffer:
        """The range, in memory that the client returned; bytes that opening fetched are not fetched again."""
        end = offset + size
        if end > self.size:
            raise _truncated(self.name, offset, size, max(0, self.size - offset))
        with memoryview(self._beginning) as beginning:
            if end <= len(beginning):
                return bytes(beginning[offset:end])
        with memoryview(self._ending) as ending:
            if offset >= self.size - len(ending):
                return bytes(ending[offset - self.size + len(ending) :][:size])
        return self._get(self._location, offset, end, self.etag)


class PipeSource:
    """A source that can only be read forwards and whose length is unknown. For one thread at a time."""

    def __init__(self, file: Any, name: str | None, *, owned: bool) -> None:
        self.name = name
        self._file = file
        self._owned = owned
        # A class below may have another read() alone.
        self._fills = type(file) in (io.FileIO, io.BufferedReader)

    def read_into(self, out: memoryview) -> int:
        """Fill `out`; return how many bytes that were, fewer than it has only at the end."""
        done = 0
        while done < len(out):
            # In steps: a file object allocates the memory before it reads.
            with out[done : done + _PIPE_STEP] as part:
                count = self._read_some(part)
            if not count:
                break
            done += count
        return done

    def _read_some(self, out: memoryview) -> int:
        if self._fills:
            count = self._file.readinto(out)
            if count is None:
                _refuse_blocking(self.name)
            return int(count)
        piece = self._file.read(len(out))
        if piece is None:
            _refuse_blocking(self.name)
        if len(piece) > len(out):
            _refuse_excess(self.name, len(out), len(piece))
        out[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        """Close the file, if it was opened here."""
        if self._owned:
            self._file.close()


# -- small files whole ---------------------------------------------------------------------------------------------


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
    import ags1.storage.objects as _objects

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
