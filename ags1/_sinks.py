"""Where a Writer's blocks go: a file that appears when it is complete, a file object, a remote object.

A sink takes the header by :meth:`Sink.write` and plaintext by :meth:`Sink.seal`, which encrypts it into whole blocks
and stores them. For one thread at a time.
"""

from __future__ import annotations

import io
import os

from ags1 import _blocks, _descriptors
from ags1._atomic import AtomicFile
from ags1._gcm import Key
from ags1._sources import is_url, remote_file_system
from ags1.layout import BLOCK_OVERHEAD, stored_length

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol
else:
    Protocol = object

__all__ = ["Sink", "open_sink"]

# What no stream ends with: too few bytes for a block, too many to be taken for the end of a tag that a failed write
# cut off. (A single byte passes for the missing last one of a tag in one case of 256.)
_INCOMPLETE = bytes(BLOCK_OVERHEAD - 1)


class Sink(Protocol):
    """What a Writer needs of its sink."""

    name: str | None

    def write(self, data: memoryview) -> None:
        """Store all of `data`."""

    def seal(
        self,
        data: memoryview,
        key: Key,
        aad_prefix: bytes,
        block_length: int,
        first_block: int,
        threads: int | None,
    ) -> int:
        """Encrypt `data` into blocks and store them; answer how many bytes that were."""

    def flush(self) -> None:
        """Hand on what is buffered."""

    def commit(self) -> None:
        """Publish the complete stream, and give back what the sink owns."""

    def abort(self, *, mark: bool) -> None:
        """Give back what the sink owns; with `mark`, what was stored can no longer pass for a complete stream."""


def open_sink(file: Any) -> Sink:
    """Make the sink for whatever a Writer accepts, a :class:`RemoteSink` too."""
    if isinstance(file, RemoteSink):
        return file
    if is_url(file):
        if file.startswith("file://"):
            return _local(file[len("file://") :])
        file_system, path = remote_file_system(file)
        return RemoteSink(file_system, path, file)
    if isinstance(file, (str, bytes, os.PathLike)):
        return _local(os.fspath(file))
    if not hasattr(file, "write"):
        raise TypeError(f"a path, a URL or a binary file object is needed to write to, not {type(file).__name__}")
    if isinstance(file, io.TextIOBase):
        raise TypeError("a binary file object is needed, but this one is text: open it with mode 'wb'")
    return FileObjectSink(file)


def _local(path: str | bytes) -> Sink:
    output = AtomicFile(path)
    if output.seekable:
        return LocalFileSink(output)
    return DirectSink(output)


class _ScratchSink:
    """Encrypts into memory that is kept for the next time, then writes that."""

    name: str | None = None

    def __init__(self) -> None:
        self._scratch = bytearray()

    def write(self, data: memoryview) -> None:
        raise NotImplementedError

    def seal(
        self,
        data: memoryview,
        key: Key,
        aad_prefix: bytes,
        block_length: int,
        first_block: int,
        threads: int | None,
    ) -> int:
        stored = stored_length(len(data), block_length)
        if len(self._scratch) < stored:
            self._scratch = bytearray(stored)
        with memoryview(self._scratch) as scratch, scratch[:stored] as blocks:
            _blocks.seal_blocks(data, blocks, key, aad_prefix, block_length, first_block, threads)
            self.write(blocks)
        return stored


class FileObjectSink(_ScratchSink):
    """A binary file object of the caller's: written from where it stands, flushed, not closed."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file
        self._wrote = False
        name = getattr(file, "name", None)
        self.name = name if isinstance(name, str) else None

    def write(self, data: memoryview) -> None:
        done = 0
        self._wrote = True
        while done < len(data):
            count = self._file.write(data[done:])
            if count is None:
                # A raw non-blocking file says None for "try later"; a sloppy wrapper for "all of it". Only io.RawIOBase
                # defines the former.
                if hasattr(self._file, "readinto") and hasattr(self._file, "fileno"):
                    raise BlockingIOError(11, f"{self.name or 'the file object'} is non-blocking and takes no data now")
                return
            if not 0 < count <= len(data) - done:
                raise OSError(
                    f"{self.name or 'the file object'} answered {count} to a write of {len(data) - done} bytes"
                )
            done += count

    def flush(self) -> None:
        if hasattr(self._file, "flush"):
            self._file.flush()

    def commit(self) -> None:
        self.flush()

    def close(self) -> None:
        """Close the file: for whoever opened it for this sink."""
        self._file.close()

    def abort(self, *, mark: bool) -> None:
        # Whole blocks without the last authenticate as a shorter stream. With this behind them no reader accepts them.
        # A write that failed may have stored some too, so what counts is that anything was written.
        if mark and self._wrote:
            try:
                self._file.write(_INCOMPLETE)
                self.flush()
            except Exception:
                # The sink itself is what failed; there is nothing more to be done to it.
                pass


class DirectSink(FileObjectSink):
    """A FIFO or device by its path: nothing to publish, nothing to remove."""

    def __init__(self, output: AtomicFile) -> None:
        super().__init__(os.fdopen(os.dup(output.descriptor), "wb", buffering=0))
        self._output = output
        self.name = output.name

    def commit(self) -> None:
        self._file.close()
        self._output.commit()

    def abort(self, *, mark: bool) -> None:
        super().abort(mark=mark)
        self._file.close()
        self._output.abort()


class LocalFileSink:
    """A regular file: blocks are encrypted and written at their offsets by many threads at once."""

    def __init__(self, output: AtomicFile) -> None:
        self._output = output
        self._offset = 0
        self.name: str | None = output.name

    def write(self, data: memoryview) -> None:
        while len(data):
            try:
                count = os.pwrite(self._output.descriptor, data, self._offset)
            except OSError as error:
                raise OSError(error.errno, error.strerror, self.name) from None
            self._offset += count
            data = data[count:]

    def seal(
        self,
        data: memoryview,
        key: Key,
        aad_prefix: bytes,
        block_length: int,
        first_block: int,
        threads: int | None,
    ) -> int:
        _descriptors.seal_into_file(
            data, self._output.descriptor, self._offset, key, aad_prefix, block_length, first_block, threads, self.name
        )
        stored = stored_length(len(data), block_length)
        self._offset += stored
        return stored

    def flush(self) -> None:
        pass

    def commit(self) -> None:
        self._output.commit()

    def abort(self, *, mark: bool) -> None:
        self._output.abort()


class RemoteSink(FileObjectSink):
    """An object behind an fsspec file system, published on commit where the file system can (S3, GCS, local)."""

    def __init__(self, file_system: Any, path: str, name: str) -> None:
        if file_system.protocol == "memory":
            # Its open() publishes at once; the file by itself does so when it is told to.
            from fsspec.implementations.memory import MemoryFile

            file = MemoryFile(file_system, path)
        else:
            try:
                file = file_system.open(path, "wb", autocommit=False)
            except TypeError:
                file = file_system.open(path, "wb")
            waiting = file_system.transaction.files
            if waiting and waiting[-1] is file:
                # The file system would keep it for a transaction of its own; this file is committed here.
                waiting.pop()
        self._deferred = hasattr(file, "commit") and hasattr(file, "discard")
        super().__init__(file)
        self.name = name

    def commit(self) -> None:
        self._file.close()
        if self._deferred:
            self._file.commit()

    def abort(self, *, mark: bool) -> None:
        try:
            if self._deferred:
                self._file.discard()
                # Its destructor would close, and so upload.
                self._file.closed = True
            else:
                super().abort(mark=mark)
                self._file.close()
        except Exception:
            # The service itself is what failed. An upload that was never completed is no object.
            pass
