"""Streams over AGS1: a seekable Reader and a Writer.

Reader          BufferedReader (CPython's own: read, readline, peek, seek, ...)
   |                 | readinto(window)
   | pread           v
   |         RawReader ......... Ahead (ags1.core.ahead) or, of a remote source, ReadAhead: what comes next
   |                 v
   +-------> Plaintext (ags1.streams.reading): blocks straight into the caller's memory, by position
                     |
                     v
                a Source (ags1.storage): memory, descriptor, file object, object in a store, pipe

Writer          gathers a window of whole blocks, while other threads seal and write earlier windows
   | Gathered (ags1.core.gathered); large pieces go directly to BlockCipher.seal_to
   v
an Output (ags1.storage): a file that appears when it is complete, a file object, an object in a store
"""

from __future__ import annotations

import io
import operator
import os
import warnings
from collections import deque
from collections.abc import Mapping
from types import TracebackType

from ags1 import layout
from ags1.core import blocks as native_blocks
from ags1.core import descriptors
from ags1.core.ahead import iterates_quickly
from ags1.core.gathered import Gathered, Helper
from ags1.core.gcm import Key
from ags1.core.typing import KeyLike
from ags1.errors import FormatError
from ags1.keys import KeyMetadata, as_octets
from ags1.layout import DEFAULT_BLOCK_LENGTH
from ags1.storage import Output, PipeSource, octets, open_output, open_source
from ags1.streams.cipher import INCOMPLETE, BlockCipher
from ags1.streams.reading import WINDOW, PipeReader, Plaintext, RawReader, refuse, window_of
from ags1.support.arguments import at_least_one
from ags1.support.arrow_threads import lend
from ags1.support.typing import Any, Buffer, NoReturn

# Plaintext that a Writer gathers before it is sealed.
GATHERED = 1 << 20
# Windows of that size that may be pending: one that is being written, one that waits for it, and one that the Writer
# may seal itself in the meantime.
_BEHIND = 3
# Bytes of all windows of a Writer together, unless one block is larger.
_MOST_GATHERED = 16 << 20


@iterates_quickly
class Reader(io.BufferedReader):
    """Plaintext of an AGS1 stream as a binary file: seekable, buffered, authenticated.

    Parameters
    ----------
    source : path, URL, file object or buffer
        A file that is opened from a path or URL is closed with the Reader; a binary file object of the caller is not.
        The stream is the whole file, whatever the position of the file object. The Reader moves that position (except
        for plain files of ``open()``). A buffer is not copied and must not change. A pipe can only be read forwards.
        Bytes are the stream itself, never a path.
    key : buffer of 16, 24 or 32 bytes, or Key
        The AES key.
    aad_prefix : buffer
        The prefix that the stream was written with.
    length : int, optional
        Trusted length of the encrypted stream in bytes. Without it the length of the source is used, and blocks
        missing at the end are not detected: `length_trusted` is then False.
    threads : int, optional
        Threads for reads that span blocks. By default one for small reads, and one for each usable CPU for large ones.
        Sequential reading of a local file uses four at most, and keeps up to 8 MiB decrypted ahead. With 1, a local
        file is read on the calling thread alone.
    storage_options : mapping, optional
        Settings for the URL that are not in the environment: credentials, endpoint, timeouts.
    memory_budget : int, optional
        Bytes that may be fetched and decrypted ahead; 64 MiB by default, and 256 MiB for all Readers of a process.

    Raises
    ------
    FormatError, TruncatedError
        Not AGS1, a bad header, or a length that does not agree with `length` or with the format.
    AuthenticationError
        From any read; the error names the block. No data of that read is returned, and every later call fails.
    OSError
        The source failed, or a local file was written to after it was opened.

    Notes
    -----
    A source must not change while it is read. If another stream under the same key and AAD prefix replaces it, blocks
    of both authenticate. A change of a local file is detected by its size and the time of its last change. A change
    within the same tick of the file system's clock, and any change of a buffer, of a remote object or of a file object
    without a descriptor, is not detected. Replace files by renaming, and give each stream its own prefix.

    The Reader has all properties of :class:`io.BufferedReader`. :meth:`pread` and :meth:`pread_into` may be called from
    any number of threads at once, also together with the other methods, which share one position under a lock.
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
        storage_options: Mapping[str, Any] | None = None,
        memory_budget: int | None = None,
    ) -> None:
        secret, prefix = _key_and_prefix(key, aad_prefix)
        _check_threads(threads)
        _check_trusted_length(length)
        opened = open_source(source, storage_options)
        try:
            if isinstance(opened, PipeSource):
                self._plaintext: Plaintext | None = None
                self._pipe = PipeReader(opened, secret, prefix, length, threads)
                self._trusted = length is not None
                super().__init__(self._pipe, buffer_size=self._pipe.window)
            else:
                self._plaintext = Plaintext(opened, secret, prefix, length, threads, memory_budget)
                self._raw_reader = RawReader(self._plaintext, window_of(self._plaintext, threads))
                super().__init__(self._raw_reader, buffer_size=self._raw_reader.window)
        except FormatError as error:
            opened.close()
            if _is_path_in_bytes(source):
                raise type(error)(f"{error}; these bytes name a file: to read that, give str or pathlib.Path") from None
            raise
        except BaseException:
            opened.close()
            raise
        lend(self)

    @property
    def name(self) -> str:
        """Path or URL of the source; AttributeError if it has none."""
        return _name_of(self._plaintext.source.name if self._plaintext is not None else self._pipe._source.name)

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
        """Whether the length came from the caller, so that a truncation is detected."""
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
            As reading; every later call fails.
        ValueError
            A negative offset or size, or a closed Reader.
        io.UnsupportedOperation
            The source is a pipe.
        """
        offset, size = operator.index(offset), operator.index(size)
        plaintext = self._positional(offset)
        if size < 0:
            raise ValueError(f"size must not be negative, got {size}")
        out: bytes = native_blocks.fresh_bytes(max(0, min(size, plaintext.size - offset)))
        with native_blocks.writable_view(out) as view:
            self._read_at(plaintext, offset, view)
        return out

    def pread_into(self, offset: int, out: Buffer) -> int:
        """Fill `out` with plaintext from an offset, without touching the position. Thread-safe.

        Parameters
        ----------
        offset : int
            Plaintext offset in bytes.
        out : writable buffer
            C-contiguous memory. If the read fails, the part that it would have filled is zeroed.

        Returns
        -------
        int
            Bytes written: fewer than `out` has only at the end of the stream.
        """
        offset = operator.index(offset)
        plaintext = self._positional(offset)
        with octets(out, writable=True) as view:
            return self._read_at(plaintext, offset, view)

    def _positional(self, offset: int) -> Plaintext:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if self._plaintext is None:
            raise io.UnsupportedOperation("this source is a pipe: it can only be read forwards")
        if offset < 0:
            raise ValueError(f"offset must not be negative, got {offset}")
        return self._plaintext

    def _read_at(self, plaintext: Plaintext, offset: int, out: memoryview) -> int:
        try:
            return plaintext.read_into(offset, out)
        except BaseException:
            if plaintext.error is not None:
                # Drop the buffer, so that the next sequential read raises the error too.
                super().seek(0, os.SEEK_END)
            raise


class Writer(io.BufferedIOBase):
    """Encrypts what is written to it into an AGS1 stream.

    Parameters
    ----------
    sink : path, URL or file object
        A file under a path or URL does not appear before :meth:`close` succeeds. A binary file object of the caller is
        written from its position, flushed, and not closed. As with any raw stream of :mod:`io`, its ``write`` must not
        keep the memory that it gets.
    key : buffer of 16, 24 or 32 bytes, or Key
        The AES key.
    aad_prefix : buffer
        Identity of the file. It is authenticated, not stored; reading needs the same value.
    block_length : int
        Bytes of plaintext in a block. Iceberg reads only the default, 1 MiB.
    threads : int, optional
        Threads that encrypt a piece of 8 MiB or more, without a copy; by default one for each usable CPU. Smaller
        pieces are gathered, and one background thread seals and writes them. With 1, only the caller's thread works.
    durable : bool
        Whether :meth:`close` returns only when a file under a path survives a power cut.
    storage_options : mapping, optional
        Settings for the URL that are not in the environment: credentials, endpoint, timeouts.

    Raises
    ------
    LimitError
        From a write that would exceed 2^31 - 1 blocks.
    OSError
        From any write or from close, if the sink fails. Then every later call fails, and the output is removed.

    Notes
    -----
    Only :meth:`close` completes the stream. After an exception in a ``with`` body, after :meth:`abort`, or if a Writer
    is dropped without close, no file appears under a path. A file object of the caller then gets 27 extra bytes, an
    impossible end of a stream, so that the output cannot be taken for a complete stream. Not safe to share between
    threads.
    """

    def __init__(
        self,
        sink: Any,
        key: KeyLike,
        *,
        aad_prefix: Buffer = b"",
        block_length: int = DEFAULT_BLOCK_LENGTH,
        threads: int | None = None,
        durable: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._durable = durable
        self._output: Output | None = None
        self._finished = False
        secret, prefix = _key_and_prefix(key, aad_prefix)
        _check_threads(threads)
        layout.encrypted_length(0, block_length)
        self._cipher = BlockCipher(secret, prefix, block_length, threads)
        usable = native_blocks.usable_cpus() if threads is None else threads
        self._helper = Helper() if usable > 1 else None
        blocks = max(1, min(GATHERED // block_length, descriptors.MAX_WINDOW_BLOCKS))
        self._gathered = Gathered(block_length, blocks)
        # The other windows, oldest first: being sealed or written, or free for reuse.
        most = max(1, _MOST_GATHERED // self._gathered.capacity)
        self._sealing = deque(Gathered(block_length, blocks) for _ in range(min(most, _BEHIND if usable > 1 else 1)))
        self._direct = max(1, WINDOW // self._gathered.capacity) * self._gathered.capacity
        self._position = 0
        self._next_block = 0
        self._encrypted_length: int | None = None
        self._error: BaseException | None = None
        self._owner = os.getpid()
        if isinstance(sink, bytes):
            raise TypeError("bytes cannot be written to, and are no path here: give the path as str or pathlib.Path")
        self._output = open_output(sink, storage_options)

    # -- properties ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Path or URL of the output; AttributeError if it has none."""
        return _name_of(self._output.name if self._output is not None else None)

    @property
    def mode(self) -> str:
        """Always "wb"."""
        return "wb"

    @property
    def block_length(self) -> int:
        """Bytes of plaintext in each block but the last."""
        return self._cipher.block_length

    @property
    def encrypted_length(self) -> int:
        """Bytes of the finished stream, header included. Known after :meth:`close` only."""
        if self._encrypted_length is None:
            raise ValueError("the encrypted length is known only after close() has succeeded")
        return self._encrypted_length

    @property
    def key_metadata(self) -> KeyMetadata:
        """Key, AAD prefix and length of the finished stream. Known after :meth:`close` only."""
        return KeyMetadata(self._cipher.key, self._cipher.aad_prefix, self.encrypted_length)

    def writable(self) -> bool:
        """Return True."""
        self._check_open()
        return True

    def seekable(self) -> bool:
        """Return False: a stream is written from its start to its end."""
        self._check_open()
        return False

    def tell(self) -> int:
        """Bytes of plaintext written so far."""
        self._check_open()
        return self._position

    # -- writing ---------------------------------------------------------------------------------------------------

    def write(self, data: Buffer) -> int:
        """Write all of `data`; return its length in bytes."""
        self._check_usable()
        try:
            taken = self._gathered.take_whole(data)
        except MemoryError as error:
            self._fail(error)
            raise
        if taken >= 0:
            self._position += taken
            return taken
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
            if not self._gathered.filled and size - done >= self._direct:
                # All threads encrypt it without a copy.
                count = self._direct
                self._wait()
                output, first = self._take_blocks(count)
                self._cipher.seal_to(output, data[done : done + count], first)
            else:
                count = self._gathered.take(data[done:])
                if self._gathered.filled == self._gathered.capacity:
                    self._seal_gathered()
            done += count
            self._position += count

    def _take_blocks(self, size: int) -> tuple[Output, int]:
        """Reserve the next `size` bytes of plaintext; return the output and the index of their first block."""
        output, cipher, first = self._output, self._cipher, self._next_block
        assert output is not None
        layout.encrypted_length(first * cipher.block_length + size, cipher.block_length)
        self._next_block += layout.block_count(size, cipher.block_length)
        if first == 0:
            output.write(layout.write_header(cipher.block_length))
        return output, first

    def _seal_gathered(self, *, last: bool = False) -> None:
        """Start to seal and write the gathered data, all of it or its whole blocks, and gather into another window."""
        self._wait_for(self._sealing[0])
        full, cipher = self._gathered, self._cipher
        if not last:
            self._sealing[0].take_rest(full)
        output, first = self._take_blocks(full.filled)
        # `full` is not reused before _wait_for() has returned again.
        self._sealing.append(full)
        self._gathered = self._sealing.popleft()
        descriptor = -1 if output.descriptor is None else output.descriptor
        helper = None if last else self._helper
        full.start(descriptor, output.position, cipher.key, cipher.aad_prefix, first, helper, output.name)
        if output.descriptor is not None:
            output.position += cipher.stored(full.filled)
        if self._helper is None:
            self._wait_for(full)
            if not self._gathered.filled:
                # Its memory is in the processor's cache.
                self._sealing.append(self._gathered)
                self._gathered = self._sealing.popleft()

    def _wait(self) -> None:
        """Wait until all windows are sealed, and write them; raise the error of a window."""
        for sealing in self._sealing:
            self._wait_for(sealing)

    def _wait_for(self, sealing: Gathered) -> None:
        assert self._output is not None
        if sealing.wait() and self._output.descriptor is None:
            self._output.write(sealing.stored())
        sealing.clear()

    def flush(self) -> None:
        """Write every full block to the output and flush it. An incomplete block waits for more data, or for close."""
        self._check_usable()
        try:
            if self._gathered.filled >= self._cipher.block_length:
                self._seal_gathered()
            self._wait()
            assert self._output is not None
            self._output.flush()
        except BaseException as error:
            self._fail(error)
            raise

    # -- ending ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write the last block and publish the stream. Further calls do nothing; after a failure it only cleans up."""
        if self.closed:
            return
        if self._owner != os.getpid():
            # A forked child's copy. Only the parent completes the stream.
            self._finished = True
            return
        try:
            if self._error is None and self._output is not None:
                if self._gathered.filled or self._next_block == 0:
                    self._seal_gathered(last=True)
                self._wait()
                self._forget_gathered()
                self._output.commit(durable=self._durable)
                self._encrypted_length = layout.encrypted_length(self._position, self._cipher.block_length)
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            self._finished = True

    def abort(self) -> None:
        """Discard the output: no file appears under the path. Aborting a closed Writer does nothing."""
        if self.closed:
            return
        try:
            self._fail(ValueError("this Writer was aborted"))
        finally:
            self._finished = True

    def _fail(self, error: BaseException) -> None:
        """Remember the first error and discard the output."""
        if self._error is None:
            self._error = error
            if self._owner == os.getpid():
                # A thread may still write to the descriptor: closing it would let its number be reused, and the mark
                # of an unfinished stream must come after all data.
                for sealing in self._sealing:
                    sealing.stop()
                if self._output is not None:
                    self._output.abort(INCOMPLETE)
            self._forget_gathered()

    def _forget_gathered(self) -> None:
        self._gathered = Gathered(self._cipher.block_length, 1)
        self._sealing.clear()

    @property
    def closed(self) -> bool:
        """Whether the Writer was closed or aborted."""
        return self._finished

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")

    def _check_usable(self) -> None:
        if self._finished:
            self._check_open()
        if self._owner != os.getpid():
            raise ValueError("this Writer belongs to the process that opened it, not to a forked child")
        if self._error is not None:
            refuse(self._error, "Writer")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close after a body that succeeded, abort after one that raised."""
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        # IOBase.__del__ would close the Writer, and so complete an unfinished stream.
        if getattr(self, "_output", None) is None or self.closed or self._owner != os.getpid():
            return
        # Before the warning, which may be raised as an exception.
        self.abort()
        name = getattr(self, "name", "")
        warnings.warn(f"unclosed Writer {name} was dropped: its output is discarded", ResourceWarning, 2)

    def __getstate__(self) -> NoReturn:
        raise TypeError("an ags1.Writer cannot be pickled")


def _name_of(name: str | None) -> str:
    if name is None:
        # AttributeError as for builtin files: configparser and others then work without a name.
        raise AttributeError("this stream has no name: it is neither a path nor a URL")
    return name


def _is_path_in_bytes(source: object) -> bool:
    try:
        return isinstance(source, bytes) and len(source) < 4096 and os.path.exists(source)
    except ValueError:
        return False


def _key_and_prefix(key: KeyLike, aad_prefix: Buffer) -> tuple[Key, bytes]:
    secret = key if isinstance(key, Key) else Key(key)
    return secret, as_octets(aad_prefix, "aad_prefix")


def _check_threads(threads: int | None) -> None:
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int)):
        raise TypeError(f"threads must be an integer or None, not {type(threads).__name__}")
    at_least_one(threads, "threads")


def _check_trusted_length(length: object) -> None:
    if length is not None and (isinstance(length, bool) or not isinstance(length, int) or length < 0):
        raise ValueError(f"length must be a number of bytes or None, got {length!r}")
