"""Where a Reader's ciphertext comes from: memory, a file descriptor, a file object, a remote object, a pipe.

Each source knows its length in bytes (None for a pipe) and gives any range of bytes; the descriptor also decrypts
straight from the file into the caller's memory. None of them knows anything about keys' policy or positions.
All but the pipe are safe to use from several threads at once.
"""

from __future__ import annotations

import io
import os
import stat
import threading

from ags1 import _blocks, _descriptors
from ags1._buffer import BufferView
from ags1._gcm import Key
from ags1._typing import Buffer
from ags1.errors import TruncatedError
from ags1.layout import stored_length

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol
else:
    # typing costs more to import than all of this package; only a type checker needs it.
    Protocol = object

__all__ = ["PipeSource", "Source", "is_url", "open_source", "remote_file_system"]

_PIPE_STEP = 1 << 20


class Source(Protocol):
    """What a Reader needs of its source."""

    name: str | None
    size: int
    is_remote: bool

    def read(self, offset: int, size: int) -> Buffer:
        """Exactly `size` bytes at `offset`; TruncatedError if the source has fewer."""

    def open_blocks(
        self,
        offset: int,
        out: memoryview,
        key: Key,
        aad_prefix: bytes,
        block_length: int,
        first_block: int,
        threads: int | None,
    ) -> None:
        """Decrypt whole blocks, the first of them stored at `offset`, until `out` is full."""

    def close(self) -> None:
        """Give back what the source owns."""


def is_url(file: object) -> bool:
    """Whether `file` is a text with a scheme, for fsspec, rather than a path."""
    if not isinstance(file, str):
        return False
    scheme = file.partition("://")[0] if "://" in file else file.partition("::")[0] if "::" in file else ""
    # One letter is a drive, as in C:\\data.
    return len(scheme) > 1 and scheme[0].isalpha() and all(each.isalnum() or each in "+.-" for each in scheme)


def remote_file_system(url: str) -> tuple[Any, str]:
    """The fsspec file system and the path in it that a URL names."""
    try:
        import fsspec
    except ImportError as error:
        raise ImportError(f"reading or writing {url} needs fsspec: pip install 'ags1[fsspec]'") from error
    file_system, path = fsspec.core.url_to_fs(url)
    return file_system, path


def open_source(file: Any) -> Source | PipeSource:
    """Make the source for whatever a Reader accepts."""
    if is_url(file):
        if file.startswith("file://"):
            return _local(file[len("file://") :])
        file_system, path = remote_file_system(file)
        return RemoteSource(file_system, path, file)
    if isinstance(file, (str, os.PathLike)):
        return _local(os.fspath(file))
    if hasattr(file, "read") and not _is_buffer(file):
        return _from_file_object(file)
    return MemorySource(file)


def _is_buffer(file: Any) -> bool:
    """Whether `file` is memory first of all: an mmap has methods of a file too."""
    try:
        memoryview(file).release()
    except TypeError:
        return False
    return True


def octets(buffer: Buffer, *, writable: bool = False) -> memoryview:
    """The bytes of a contiguous buffer, whatever its items are; it holds the exporter until it is released."""
    return memoryview(BufferView(buffer, writable))


def _local(path: str | bytes) -> Source | PipeSource:
    text = os.fsdecode(path)
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(21, "Is a directory", text)
        if not stat.S_ISREG(mode):
            return PipeSource(io.FileIO(descriptor, closefd=True), text, owned=True)
        return DescriptorSource(descriptor, text)
    except BaseException:
        os.close(descriptor)
        raise


def _from_file_object(file: Any) -> Source | PipeSource:
    if isinstance(file, io.TextIOBase):
        raise TypeError("a binary file object is needed, but this one is text: open it with mode 'rb'")
    name = getattr(file, "name", None)
    name = name if isinstance(name, str) else None
    file_system, path = getattr(file, "fs", None), getattr(file, "path", None)
    if hasattr(file_system, "cat_file") and isinstance(path, str) and getattr(file, "mode", "rb") == "rb":
        return RemoteSource(file_system, path, path)
    if not _is_seekable(file):
        return PipeSource(file, name, owned=False)
    if type(file) in (io.FileIO, io.BufferedReader, io.BufferedRandom):
        # Positioned reads on a duplicate neither move the caller's position nor care when the caller closes.
        if file.writable():
            file.flush()
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return DescriptorSource(os.dup(file.fileno()), name)
    return FileObjectSource(file, name)


def _is_seekable(file: Any) -> bool:
    seekable = getattr(file, "seekable", None)
    return bool(seekable()) if seekable is not None else hasattr(file, "seek")


def _too_much(name: str | None, wanted: int, got: int) -> OSError:
    return OSError(f"{name or 'the file object'} answered {got} bytes to a read of {wanted}")


def _truncated(name: str | None, offset: int, wanted: int, got: int) -> TruncatedError:
    where = f"{name}: " if name else ""
    return TruncatedError(
        f"{where}only {got} of {wanted} bytes could be read at offset {offset}: "
        "the source is shorter than it was when it was opened"
    )


class MemorySource:
    """A buffer, read where it lies."""

    is_remote = False

    def __init__(self, buffer: Buffer) -> None:
        self.name: str | None = None
        self._bytes = octets(buffer)
        self.size = len(self._bytes)

    def read(self, offset: int, size: int) -> Buffer:
        if offset + size > self.size:
            raise _truncated(self.name, offset, size, max(0, self.size - offset))
        return self._bytes[offset : offset + size]

    def open_blocks(
        self,
        offset: int,
        out: memoryview,
        key: Key,
        aad_prefix: bytes,
        block_length: int,
        first_block: int,
        threads: int | None,
    ) -> None:
        stored = stored_length(len(out), block_length)
        data = self.read(offset, stored)
        _blocks.open_blocks(data, out, key, aad_prefix, block_length, first_block, threads, self.name)

    def close(self) -> None:
        self._bytes.release()


class DescriptorSource:
    """A regular file, read at positions; the descriptor is owned."""

    is_remote = False

    def __init__(self, descriptor: int, name: str | None) -> None:
        self.name = name
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        # A close while another thread reads would let the number be reused for another file.
        self._users = 0
        self._closed = False
        self._lock = threading.Lock()

    def read(self, offset: int, size: int) -> Buffer:
        out = bytearray(size)
        self._enter()
        try:
            done = 0
            with memoryview(out) as view:
                while done < size:
                    count = os.preadv(self._descriptor, [view[done:]], offset + done)
                    if count == 0:
                        raise _truncated(self.name, offset, size, done)
                    done += count
        finally:
            self._leave()
        return out

    def open_blocks(
        self,
        offset: int,
        out: memoryview,
        key: Key,
        aad_prefix: bytes,
        block_length: int,
        first_block: int,
        threads: int | None,
    ) -> None:
        self._enter()
        try:
            _descriptors.open_from_file(
                self._descriptor, offset, out, key, aad_prefix, block_length, first_block, threads, self.name
            )
        finally:
            self._leave()

    def open_blocks_to(
        self,
        offset: int,
        target: int,
        target_offset: int,
        length: int,
        key: Key,
        aad_prefix: bytes,
        block_length: int,
        first_block: int,
        threads: int | None,
        target_name: str,
    ) -> None:
        """Decrypt whole blocks with `length` bytes of plaintext into another file."""
        self._enter()
        try:
            _descriptors.open_file(
                self._descriptor, offset, target, target_offset, length, key, aad_prefix, block_length, first_block,
                threads, self.name, target_name,
            )  # fmt: skip
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

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                if self._users == 0:
                    os.close(self._descriptor)


class FileObjectSource:
    """A seekable file object of the caller's: a lock makes seek and read one step; it is not closed."""

    is_remote = False

    def __init__(self, file: Any, name: str | None) -> None:
        self.name = name
        self._file = file
        self._lock = threading.Lock()
        with self._lock:
            self.size = file.seek(0, os.SEEK_END)
            if self.size is None:
                self.size = file.tell()

    def read(self, offset: int, size: int) -> Buffer:
        pieces: list[bytes] = []
        done = 0
        with self._lock:
            self._file.seek(offset)
            while done < size:
                piece = self._file.read(size - done)
                if piece is None:
                    raise BlockingIOError(11, f"{self.name or 'the file object'} is non-blocking and has no data now")
                if not piece:
                    raise _truncated(self.name, offset, size, done)
                if len(piece) > size - done:
                    raise _too_much(self.name, size - done, len(piece))
                if not pieces and len(piece) == size:
                    return bytes(piece) if not isinstance(piece, bytes) else piece
                pieces.append(piece)
                done += len(piece)
        return b"".join(pieces)

    def open_blocks(
        self,
        offset: int,
        out: memoryview,
        key: Key,
        aad_prefix: bytes,
        block_length: int,
        first_block: int,
        threads: int | None,
    ) -> None:
        data = self.read(offset, stored_length(len(out), block_length))
        _blocks.open_blocks(data, out, key, aad_prefix, block_length, first_block, threads, self.name)

    def close(self) -> None:
        pass


class RemoteSource(FileObjectSource):
    """An object behind an fsspec file system: one ranged request for each range."""

    is_remote = True

    def __init__(self, file_system: Any, path: str, name: str) -> None:
        self.name = name
        self._file_system = file_system
        self._path = path
        self.size = int(file_system.info(path)["size"])

    def read(self, offset: int, size: int) -> Buffer:
        data: bytes = self._file_system.cat_file(self._path, start=offset, end=offset + size)
        if len(data) != size:
            raise _truncated(self.name, offset, size, len(data))
        return data


class PipeSource:
    """A source that can only be read forwards and does not know its length. For one thread at a time."""

    def __init__(self, file: Any, name: str | None, *, owned: bool) -> None:
        self.name = name
        self._file = file
        self._owned = owned

    def read_up_to(self, size: int) -> bytes:
        """The next `size` bytes, fewer only at the end."""
        pieces: list[bytes] = []
        done = 0
        while done < size:
            # In steps: a header may promise blocks of gigabytes, and files take the memory before they read.
            step = min(size - done, _PIPE_STEP)
            piece = self._file.read(step)
            if piece is None:
                raise BlockingIOError(11, f"{self.name or 'the file object'} is non-blocking and has no data now")
            if not piece:
                break
            if len(piece) > step:
                raise _too_much(self.name, step, len(piece))
            pieces.append(piece)
            done += len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        if self._owned:
            self._file.close()
