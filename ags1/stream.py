"""Streams over AGS1: a seekable Reader, a Writer, and open().

    Reader          BufferedReader (CPython's own: read, readline, peek, seek, ...)
       |                 | readinto(window)
       | pread           v
       +-------> _RawReader: a position, read-ahead that doubles while reading is sequential
                         | whole blocks straight into the caller's memory, edges through one kept block
                         v
                    _Plaintext: header, length, key; thread-safe, no position
                         |
                         v
                    a source (ags1._sources): memory, descriptor, file object, remote object

A pipe has no length and cannot seek: _PipeReader takes the place of _RawReader and reads blocks as they come.
"""

from __future__ import annotations

import io
import os
import threading
import warnings

from ags1 import _blocks, layout
from ags1._buffer import BufferView
from ags1._gcm import Key
from ags1._sinks import Sink, open_sink
from ags1._sources import PipeSource, Source, octets, open_source
from ags1._typing import Buffer, KeyLike
from ags1.errors import AuthenticationError, FormatError, LimitError, TruncatedError
from ags1.keys import KeyMetadata
from ags1.layout import BLOCK_OVERHEAD, DEFAULT_BLOCK_LENGTH, HEADER_LENGTH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, NoReturn

__all__ = ["Reader", "Writer", "open"]

# Plaintext that a sequential read keeps ahead of the caller, and that a Writer gathers before it encrypts. Enough for
# every core to have a block or two, and little beside the 64 MiB that streaming may take.
_WINDOW = 8 << 20
# A request to an object store costs as much as some mebibytes: ask for more at once.
_REMOTE_WINDOW = 16 << 20
_SMALL_WINDOW = 1 << 20


class _Plaintext:
    """The plaintext of one stream, by position. Thread-safe; after its first failure it refuses everything."""

    def __init__(self, source: Source, key: Key, aad_prefix: bytes, length: int | None, threads: int | None) -> None:
        self.source = source
        self.key = key
        self.aad_prefix = aad_prefix
        self.threads = threads
        self.length_trusted = length is not None
        self.error: BaseException | None = None
        self._kept_index = -1
        self._kept: bytearray = bytearray()
        self._lock = threading.Lock()
        head = bytes(memoryview(source.read(0, min(source.size, HEADER_LENGTH))))
        self.block_length = layout.read_header(head, source.name)
        self.encrypted_length = _check_length(source.size, length, source.name)
        try:
            self.size = layout.plaintext_length(source.size, self.block_length)
        except (FormatError, LimitError) as error:
            raise type(error)(f"{source.name}: {error}" if source.name else str(error)) from None

    def read_into(self, offset: int, out: memoryview) -> int:
        """Fill `out` from `offset`; answer how many bytes there were before the end."""
        if self.error is not None:
            _refuse(self.error, "Reader")
        size = min(len(out), self.size - offset)
        if size <= 0:
            self._verify_empty()
            return 0
        try:
            self._fill(offset, out[:size])
        except BaseException as error:
            out[:size] = bytes(size)
            if not isinstance(error, (KeyboardInterrupt, ValueError)) or isinstance(error, FormatError):
                self.error = error
            raise
        return size

    def _fill(self, offset: int, out: memoryview) -> None:
        block_length = self.block_length
        first = offset // block_length
        end = offset + len(out)
        last = -(-end // block_length)
        ahead: Buffer | None = None
        base = layout.block_to_ciphertext(first, block_length)
        if self.source.is_remote and not (last - first == 1 and first == self._kept_index):
            # One request for all that this read touches.
            stop = min(layout.block_to_ciphertext(last, block_length), self.encrypted_length)
            ahead = self.source.read(base, stop - base)
        done = 0
        while done < len(out):
            position = offset + done
            index, within = divmod(position, block_length)
            whole = self._whole_blocks(position, len(out) - done) if within == 0 else 0
            if whole:
                self._open(index, out[done : done + whole], ahead, base)
                done += whole
            else:
                count = min(block_length - within, len(out) - done)
                self._copy_from_block(index, within, out[done : done + count], ahead, base)
                done += count

    def _whole_blocks(self, position: int, wanted: int) -> int:
        """How many of the `wanted` bytes at a block's start are whole blocks."""
        if position + wanted >= self.size:
            return self.size - position
        return wanted - wanted % self.block_length

    def _open(self, first: int, out: memoryview, ahead: Buffer | None, base: int) -> None:
        offset = layout.block_to_ciphertext(first, self.block_length)
        if ahead is None:
            self.source.open_blocks(
                offset, out, self.key, self.aad_prefix, self.block_length, first, self.threads
            )
            return
        stored = layout.stored_length(len(out), self.block_length)
        data = memoryview(ahead)[offset - base : offset - base + stored]
        _blocks.open_blocks(
            data, out, self.key, self.aad_prefix, self.block_length, first, self.threads, self.source.name
        )

    def open_whole(self, first: int, out: memoryview) -> None:
        """Decrypt whole blocks; a failure says nothing about the others, and is not remembered."""
        self._open(first, out, None, 0)

    def _copy_from_block(self, index: int, within: int, out: memoryview, ahead: Buffer | None, base: int) -> None:
        with self._lock:
            if self._kept_index == index:
                out[:] = memoryview(self._kept)[within : within + len(out)]
                return
            # Taken out of sight while it is filled, so that the memory is reused and no other thread sees half of it.
            scratch, self._kept, self._kept_index = self._kept, bytearray(), -1
        size = min(self.block_length, self.size - index * self.block_length)
        if len(scratch) < size:
            scratch = bytearray(size)
        with memoryview(scratch) as view:
            self._open(index, view[:size], ahead, base)
            out[:] = view[within : within + len(out)]
        with self._lock:
            self._kept, self._kept_index = scratch, index

    def _verify_empty(self) -> None:
        """An empty stream still has a tag: check it once, so that a wrong key is noticed."""
        if self.size == 0 and self._kept_index != 0:
            try:
                data = self.source.read(HEADER_LENGTH, BLOCK_OVERHEAD)
                _blocks.open_blocks(
                    data, bytearray(), self.key, self.aad_prefix, self.block_length, 0, 1, self.source.name
                )
            except BaseException as error:
                self.error = error
                raise
            self._kept_index = 0


class _RawReader(io.RawIOBase):
    """A position in a plaintext, for a BufferedReader on top; one thread at a time (the BufferedReader's lock)."""

    def __init__(self, plaintext: _Plaintext, window: int) -> None:
        super().__init__()
        self.plaintext = plaintext
        self._window = window
        self._ahead = 0
        self._position = 0
        self._expected = -1

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        plaintext = self.plaintext
        block_length = plaintext.block_length
        position = self._position
        with memoryview(buffer) as view:
            size = len(view)
            if size <= self._window:
                # A refill of the buffer, so how much comes is ours to say: one block after a seek, then more and
                # more, in whole blocks, while the reading goes straight on.
                self._ahead = min(max(2 * self._ahead, block_length), self._window) if position == self._expected else 1
                stop = -(-(position + min(self._ahead, size)) // block_length) * block_length
                size = min(size, stop - position)
            count = plaintext.read_into(position, view[:size])
        self._position = self._expected = position + count
        return count

    def readall(self) -> bytes:
        size = max(0, self.plaintext.size - self._position)
        out = _blocks.fresh_bytes(size)
        with _blocks.writable_view(out) as view:
            count = self.plaintext.read_into(self._position, view)
        self._position += count
        return out

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET:
            position = offset
        elif whence == os.SEEK_CUR:
            position = self._position + offset
        elif whence == os.SEEK_END:
            position = self.plaintext.size + offset
        else:
            raise ValueError(f"whence must be 0, 1 or 2, got {whence}")
        if position < 0:
            raise ValueError(f"negative seek position {position}")
        self._position = position
        return position

    def tell(self) -> int:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        return self._position

    def close(self) -> None:
        if not self.closed:
            super().close()
            self.plaintext.source.close()


class _PipeReader(io.RawIOBase):
    """Plaintext of a pipe, block after block."""

    def __init__(
        self, source: PipeSource, key: Key, aad_prefix: bytes, length: int | None, threads: int | None
    ) -> None:
        super().__init__()
        self._source = source
        self._key = key
        self._aad_prefix = aad_prefix
        self._threads = threads
        self._length = length
        self._next_block = 0
        self._plain = memoryview(b"")
        self._position = 0
        self._ended = False
        self.error: BaseException | None = None
        self.block_length = layout.read_header(source.read_up_to(HEADER_LENGTH), source.name)
        self._stored = HEADER_LENGTH
        self._stride = self.block_length + BLOCK_OVERHEAD
        self._blocks_at_once = max(1, _SMALL_WINDOW // self._stride)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.error is not None:
            _refuse(self.error, "Reader")
        try:
            while not self._plain and not self._ended:
                self._next()
        except BaseException as error:
            self.error = error
            raise
        with memoryview(buffer) as view:
            count = min(len(view), len(self._plain))
            view[:count] = self._plain[:count]
        self._plain = self._plain[count:]
        self._position += count
        return count

    def _next(self) -> None:
        data = self._source.read_up_to(self._stride * self._blocks_at_once)
        self._stored += len(data)
        self._ended = len(data) < self._stride * self._blocks_at_once
        if not data and self._next_block:
            self._check_end()
            return
        if self._ended:
            self._check_end()
        elif self._length is not None and self._stored > self._length:
            _check_length(self._stored, self._length, self._source.name)
        count = -(-len(data) // self._stride)
        out = bytearray(len(data) - count * BLOCK_OVERHEAD)
        _blocks.open_blocks(
            data, out, self._key, self._aad_prefix, self.block_length, self._next_block, self._threads,
            self._source.name,
        )  # fmt: skip
        self._next_block += count
        self._plain = memoryview(out)

    def _check_end(self) -> None:
        _check_length(self._stored, self._length, self._source.name)
        try:
            layout.plaintext_length(self._stored, self.block_length)
        except (FormatError, LimitError) as error:
            raise type(error)(f"{self._source.name}: {error}" if self._source.name else str(error)) from None

    @property
    def encrypted_length(self) -> int | None:
        return self._stored if self._ended else self._length

    def tell(self) -> int:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        return self._position

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._source.close()


class Reader(io.BufferedReader):
    """Plaintext of an AGS1 stream as a binary file: seekable, buffered, authenticated.

    Parameters
    ----------
    source : path, URL, file object or buffer
        A path or URL is owned and closed with the Reader. A binary file object is borrowed: the stream is the whole
        file, whatever its position; while the Reader lives, its position is the Reader's (plain files of ``open()``
        excepted). A buffer is read where it lies and must not change. A pipe can be read forwards only.
    key : buffer of 16, 24 or 32 bytes, or Key
        The AES key.
    aad_prefix : buffer
        As it was given when the stream was written.
    length : int, optional
        Trusted length of the encrypted stream in bytes. Without it the source's own length is believed, and blocks
        missing at the end go unnoticed: `length_trusted` is then False.
    threads : int, optional
        Threads for reads that span blocks. By default one for little, every usable CPU for much.

    Raises
    ------
    FormatError, TruncatedError
        Not AGS1, a bad header, or a length that does not agree with `length` or with the format.
    AuthenticationError
        From any read: names the block. Nothing of that read is released, and the Reader refuses everything after it.
    OSError
        The source failed.

    Notes
    -----
    Everything that :class:`io.BufferedReader` promises holds. :meth:`pread` and :meth:`pread_into` may be called from
    any number of threads at once, also beside the other methods, which share one position under a lock.
    A read that spans blocks decrypts them in parallel, straight into the memory that it returns.
    """

    def __init__(
        self,
        source: Any,
        key: KeyLike,
        *,
        aad_prefix: Buffer = b"",
        length: int | None = None,
        threads: int | None = None,
    ) -> None:
        secret, prefix = _key_and_prefix(key, aad_prefix)
        _check_threads(threads)
        _check_trusted_length(length)
        opened = open_source(source)
        try:
            if isinstance(opened, PipeSource):
                self._plaintext: _Plaintext | None = None
                self._pipe = _PipeReader(opened, secret, prefix, length, threads)
                self._trusted = length is not None
                super().__init__(self._pipe, buffer_size=64 << 10)
            else:
                self._plaintext = _Plaintext(opened, secret, prefix, length, threads)
                window = _window(self._plaintext, threads)
                super().__init__(_RawReader(self._plaintext, window), buffer_size=window)
        except BaseException:
            opened.close()
            raise

    @property
    def name(self) -> str | None:
        """Path or URL of the source, if it has one."""
        return self._plaintext.source.name if self._plaintext is not None else self._pipe._source.name

    @property
    def mode(self) -> str:
        """Always "rb"."""
        return "rb"

    @property
    def size(self) -> int | None:
        """Bytes of plaintext; None for a pipe."""
        return self._plaintext.size if self._plaintext is not None else None

    @property
    def encrypted_length(self) -> int | None:
        """Bytes of the encrypted stream, header included; None for a pipe that has not ended."""
        return self._plaintext.encrypted_length if self._plaintext is not None else self._pipe.encrypted_length

    @property
    def block_length(self) -> int:
        """Bytes of plaintext in each block but the last."""
        return self._plaintext.block_length if self._plaintext is not None else self._pipe.block_length

    @property
    def length_trusted(self) -> bool:
        """Whether the length came from the caller, so that a truncated stream cannot pass for a shorter one."""
        return self._plaintext.length_trusted if self._plaintext is not None else self._trusted

    def readall(self) -> bytes:
        """Everything from the position to the end."""
        return self.read()

    def pread(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes at a plaintext offset, without touching the position. Thread-safe.

        Returns
        -------
        bytes
            Fewer than `size` bytes only at the end of the stream.

        Raises
        ------
        AuthenticationError, TruncatedError, OSError
            As reading; the Reader refuses everything afterwards.
        ValueError
            A negative offset or size, or a closed Reader.
        io.UnsupportedOperation
            The source is a pipe.
        """
        plaintext = self._positional(offset)
        if size < 0:
            raise ValueError(f"size must not be negative, got {size}")
        out: bytes = _blocks.fresh_bytes(max(0, min(size, plaintext.size - offset)))
        with _blocks.writable_view(out) as view:
            self._read_at(plaintext, offset, view)
        return out

    def pread_into(self, offset: int, out: Buffer) -> int:
        """Fill `out` with plaintext from an offset, without touching the position. Thread-safe.

        Parameters
        ----------
        offset : int
            Plaintext offset in bytes.
        out : writable buffer
            C-contiguous memory; zeroed as far as it was to be filled if the read fails.

        Returns
        -------
        int
            Bytes written: fewer than `out` has only at the end of the stream.
        """
        plaintext = self._positional(offset)
        with octets(out, writable=True) as view:
            return self._read_at(plaintext, offset, view)

    def _positional(self, offset: int) -> _Plaintext:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if self._plaintext is None:
            raise io.UnsupportedOperation("this source is a pipe: it can only be read forwards")
        if offset < 0:
            raise ValueError(f"offset must not be negative, got {offset}")
        return self._plaintext

    def _read_at(self, plaintext: _Plaintext, offset: int, out: memoryview) -> int:
        try:
            return plaintext.read_into(offset, out)
        except BaseException:
            if plaintext.error is not None:
                # Drop what is buffered, so that the next sequential read meets the error too.
                super().seek(0, os.SEEK_END)
            raise


class Writer(io.BufferedIOBase):
    """Encrypts what is written to it into an AGS1 stream.

    Parameters
    ----------
    sink : path, URL or file object
        A path or URL is owned: nothing appears under that name before :meth:`close` succeeds. A binary file object is
        borrowed: it is written from where it stands, flushed, and not closed.
    key : buffer of 16, 24 or 32 bytes, or Key
        The AES key.
    aad_prefix : buffer
        Identity of the file: authenticated, not stored; reading needs the same.
    block_length : int
        Bytes of plaintext in a block. Iceberg reads only the default, 1 MiB.
    threads : int, optional
        Threads for encrypting what was gathered. By default every usable CPU, if there is enough to do.

    Raises
    ------
    LimitError
        From a write that would pass 2^31 - 1 blocks.
    OSError
        From any write or from close, when the sink fails. The Writer then refuses everything and its output is gone.

    Notes
    -----
    Only :meth:`close` completes the stream. An exception in a ``with`` body, :meth:`abort`, or a Writer that is dropped
    unclosed leaves nothing under a path; a borrowed file object then gets 27 extra bytes, which no stream of whole
    blocks has, so that what was written cannot pass for a complete stream. Not safe to share between threads.
    """

    def __init__(
        self,
        sink: Any,
        key: KeyLike,
        *,
        aad_prefix: Buffer = b"",
        block_length: int = DEFAULT_BLOCK_LENGTH,
        threads: int | None = None,
    ) -> None:
        self._sink: Sink | None = None
        self._finished = False
        self._key, self._aad_prefix = _key_and_prefix(key, aad_prefix)
        _check_threads(threads)
        layout.encrypted_length(0, block_length)
        self._block_length = block_length
        self._threads = threads
        gathered = _WINDOW if threads != 1 else _SMALL_WINDOW
        self._capacity = max(1, gathered // block_length) * block_length
        self._gathered = bytearray()
        self._position = 0
        self._next_block = 0
        self._encrypted_length: int | None = None
        self._error: BaseException | None = None
        self._owner = os.getpid()
        self._sink = open_sink(sink)

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str | None:
        """Path or URL of the sink, if it has one."""
        return self._sink.name if self._sink is not None else None

    @property
    def mode(self) -> str:
        """Always "wb"."""
        return "wb"

    @property
    def block_length(self) -> int:
        """Bytes of plaintext in each block but the last."""
        return self._block_length

    @property
    def encrypted_length(self) -> int:
        """Bytes of the finished stream, header included. Known after :meth:`close` only."""
        if self._encrypted_length is None:
            raise ValueError("the encrypted length is known only after close() has succeeded")
        return self._encrypted_length

    @property
    def key_metadata(self) -> KeyMetadata:
        """Key, AAD prefix and length of the finished stream. Known after :meth:`close` only."""
        return KeyMetadata(self._key, self._aad_prefix, self.encrypted_length)

    def writable(self) -> bool:
        """Return True: this is what it is for."""
        return True

    def tell(self) -> int:
        """Bytes of plaintext written so far."""
        return self._position

    # -- writing ---------------------------------------------------------------------------------------------------

    def write(self, data: Buffer) -> int:
        """Take all of `data`; answer its length in bytes."""
        self._check_usable()
        with octets(data) as view:
            try:
                self._take(view)
            except BaseException as error:
                self._fail(error)
                raise
            return len(view)

    def _take(self, data: memoryview) -> None:
        done = 0
        size = len(data)
        while done < size:
            if not self._gathered and size - done >= self._capacity:
                # Enough for whole windows: encrypted from where it lies.
                count = min(size - done, self._capacity)
                self._seal(data[done : done + count])
            else:
                count = min(size - done, self._capacity - len(self._gathered))
                self._gathered += data[done : done + count]
                if len(self._gathered) == self._capacity:
                    with memoryview(self._gathered) as view:
                        self._seal(view)
                    self._gathered.clear()
            done += count
            self._position += count

    def _seal(self, data: memoryview) -> None:
        """Encrypt whole blocks, or the last ones, and hand them on."""
        assert self._sink is not None
        if self._next_block == 0:
            self._sink.write(memoryview(layout.write_header(self._block_length)))
        self._sink.seal(data, self._key, self._aad_prefix, self._block_length, self._next_block, self._threads)
        self._next_block += layout.block_count(len(data), self._block_length)

    def flush(self) -> None:
        """Hand every full block to the sink and flush that. A block that is not full waits for more, or for close."""
        self._check_usable()
        try:
            whole = len(self._gathered) - len(self._gathered) % self._block_length
            if whole:
                with memoryview(self._gathered) as view:
                    self._seal(view[:whole])
                del self._gathered[:whole]
            assert self._sink is not None
            self._sink.flush()
        except BaseException as error:
            self._fail(error)
            raise

    # -- ending ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write the last block and publish the stream. Closing twice does nothing; after a failure it only cleans up."""
        if self.closed:
            return
        if self._owner != os.getpid():
            # A forked child's copy. The stream is its parent's to complete.
            self._finished = True
            return
        try:
            if self._error is None and self._sink is not None:
                if self._gathered or self._next_block == 0:
                    with memoryview(self._gathered) as view:
                        self._seal(view)
                    self._gathered.clear()
                self._sink.commit()
                self._encrypted_length = layout.encrypted_length(self._position, self._block_length)
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            self._finished = True

    def abort(self) -> None:
        """Give up: nothing appears under the path. Aborting a closed Writer does nothing."""
        if self.closed:
            return
        try:
            self._fail(ValueError("this Writer was aborted"))
        finally:
            self._finished = True

    def _fail(self, error: BaseException) -> None:
        """Remember the first error and throw the output away."""
        if self._error is None:
            self._error = error
            self._gathered = bytearray()
            if self._sink is not None and self._owner == os.getpid():
                self._sink.abort(mark=True)


    @property
    def closed(self) -> bool:
        """Whether the Writer was closed or aborted."""
        return self._finished

    def _check_usable(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if self._owner != os.getpid():
            raise ValueError("this Writer belongs to the process that opened it, not to a forked child")
        if self._error is not None:
            _refuse(self._error, "Writer")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close after a body that succeeded, abort after one that raised."""
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        # IOBase.__del__ would close, and so complete a stream that nobody finished.
        if getattr(self, "_sink", None) is None or self.closed or self._owner != os.getpid():
            return
        # First, since a warning may be an exception.
        self.abort()
        warnings.warn(f"unclosed Writer {self.name or ''} was dropped: its output is discarded", ResourceWarning, 2)

    def __getstate__(self) -> NoReturn:
        raise TypeError("an ags1.Writer cannot be pickled")


def open(  # noqa: A001
    file: Any,
    mode: str = "rb",
    *,
    key: KeyLike | None = None,
    aad_prefix: Buffer = b"",
    length: int | None = None,
    key_metadata: KeyMetadata | Buffer | None = None,
    block_length: int = DEFAULT_BLOCK_LENGTH,
    threads: int | None = None,
) -> Any:
    """Open an AGS1 stream for reading or writing plaintext.

    Parameters
    ----------
    file : path, URL, file object or buffer
        A path or a URL of fsspec's ("s3://...") is owned; a binary file object is borrowed; any buffer can be read.
    mode : {"rb", "wb"}
        For text, wrap the result: ``io.TextIOWrapper(ags1.open(...), encoding="utf-8")``.
    key : buffer of 16, 24 or 32 bytes, or Key, optional
        The AES key; this or `key_metadata` is needed.
    aad_prefix : buffer
        Identity of the file.
    length : int, optional
        Trusted length of the encrypted stream in bytes, for reading.
    key_metadata : KeyMetadata or its bytes, optional
        Key, AAD prefix and, if it has one, trusted length, instead of the three arguments.
    block_length : int
        For writing: bytes of plaintext in a block.
    threads : int, optional
        Threads to use.

    Returns
    -------
    Reader or Writer

    Raises
    ------
    TypeError
        Neither or both of `key` and `key_metadata`.
    ValueError
        Another mode.
    FormatError, TruncatedError, OSError
        As :class:`Reader` and :class:`Writer`.
    """
    if mode not in ("rb", "wb"):
        raise ValueError(
            f"mode must be 'rb' or 'wb', got {mode!r}; for text, wrap the binary stream in io.TextIOWrapper"
        )
    if key_metadata is not None:
        if key is not None or aad_prefix != b"":
            raise TypeError("give either key_metadata, or key and aad_prefix, not both")
        if not isinstance(key_metadata, KeyMetadata):
            key_metadata = KeyMetadata.decode(key_metadata)
        key = key_metadata.encryption_key
        aad_prefix = key_metadata.aad_prefix or b""
        if length is None:
            length = key_metadata.file_length
    if key is None:
        raise TypeError("a key is needed: pass key= (16, 24 or 32 bytes) or key_metadata=")
    if mode == "rb":
        return Reader(file, key, aad_prefix=aad_prefix, length=length, threads=threads)
    return Writer(file, key, aad_prefix=aad_prefix, block_length=block_length, threads=threads)


def _key_and_prefix(key: KeyLike, aad_prefix: Buffer) -> tuple[Key, bytes]:
    secret = key if isinstance(key, Key) else Key(key)
    BufferView(aad_prefix).release()
    return secret, bytes(memoryview(aad_prefix).cast("B")) if len(memoryview(aad_prefix)) else b""


def _check_threads(threads: int | None) -> None:
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int)):
        raise TypeError(f"threads must be an integer or None, not {type(threads).__name__}")
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")


def _check_trusted_length(length: object) -> None:
    if length is not None and (isinstance(length, bool) or not isinstance(length, int) or length < 0):
        raise ValueError(f"length must be a number of bytes or None, got {length!r}")


def _check_length(actual: int, trusted: int | None, name: str | None) -> int:
    where = f"{name}: " if name else ""
    if trusted is not None and actual < trusted:
        raise TruncatedError(
            f"{where}has {actual} bytes, but its trusted length is {trusted}: {trusted - actual} bytes are missing at "
            "its end"
        )
    if trusted is not None and actual > trusted:
        raise FormatError(
            f"{where}has {actual} bytes, but its trusted length is {trusted}: {actual - trusted} bytes were added, or "
            "the length belongs to another file"
        )
    return actual


def _window(plaintext: _Plaintext, threads: int | None) -> int:
    """Size of the buffer: whole blocks, about a window, no more than the stream has."""
    wanted = _REMOTE_WINDOW if plaintext.source.is_remote else _WINDOW if threads != 1 else _SMALL_WINDOW
    block_length = plaintext.block_length
    blocks = max(1, wanted // block_length)
    return max(1, min(blocks * block_length, plaintext.size, _REMOTE_WINDOW))


def _refuse(error: BaseException, what: str) -> NoReturn:
    """Raise the first failure again, in its own type, for whatever is tried after it."""
    text = f"this {what} failed before and refuses everything since: {error}"
    if isinstance(error, AuthenticationError):
        again: BaseException = AuthenticationError(text)
        again.block_index = error.block_index  # type: ignore[attr-defined]
    elif isinstance(error, (FormatError, LimitError)):
        again = type(error)(text)
    elif isinstance(error, OSError):
        again = OSError(error.errno, text) if error.errno is not None else OSError(text)
    else:
        again = ValueError(text)
    raise again from error


