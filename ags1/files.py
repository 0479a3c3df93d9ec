"""Whole files: encrypt_file and decrypt_file.

    plaintext file  --window by window, many threads--  AtomicFile  --rename-->  target

Between two regular files on this machine every byte moves by positioned reads and writes without the GIL, in windows
that take about a fifth of a second; between them progress is reported and signals (Ctrl-C) are handled. Anything else
(URLs, pipes, file objects) streams through a Reader or a Writer. Either way the target appears whole or not at all.
"""

from __future__ import annotations

import io
import os
import stat
import time
from collections.abc import Callable

from ags1 import _descriptors, layout
from ags1._atomic import AtomicFile
from ags1._gcm import Key, random_bytes
from ags1._sinks import FileObjectSink, RemoteSink
from ags1._sources import is_url, remote_file_system
from ags1._typing import Buffer, KeyLike
from ags1.errors import LimitError
from ags1.keys import AAD_PREFIX_LENGTH, KeyMetadata
from ags1.layout import DEFAULT_BLOCK_LENGTH
from ags1.stream import Reader, Writer, open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self

__all__ = ["Progress", "decrypt_file", "encrypt_file"]

Progress = Callable[[int, "int | None"], object]
"""Called as ``progress(done, total)`` with bytes of plaintext; total is None for a pipe. An exception stops the work.
"""

_FIRST_WINDOW = 32 << 20
# A disk that falls behind takes a second for this much, and nothing can interrupt a window.
_LARGEST_WINDOW = 128 << 20
_WINDOW_SECONDS = 0.2
_COPY_BYTES = 8 << 20


def encrypt_file(
    source: Any,
    target: Any,
    key: KeyLike | None = None,
    *,
    aad_prefix: Buffer = b"",
    block_length: int = DEFAULT_BLOCK_LENGTH,
    threads: int | None = None,
    progress: Progress | None = None,
    fsync: bool = False,
) -> KeyMetadata:
    """Encrypt a file into an AGS1 file.

    Parameters
    ----------
    source, target : path, URL or binary file object
        What to read and what to write. A target path is replaced atomically when the work is done; whatever goes
        wrong before leaves it as it was. File objects are borrowed.
    key : buffer of 16, 24 or 32 bytes, or Key, optional
        The AES key. By default a fresh 256-bit key and, unless `aad_prefix` is given, a fresh 16-byte AAD prefix.
    aad_prefix : buffer
        Identity of the file: authenticated, not stored; decryption needs the same.
    block_length : int
        Bytes of plaintext in a block. Iceberg reads only the default, 1 MiB.
    threads : int, optional
        Threads to use; by default every usable CPU.
    progress : callable, optional
        See :data:`Progress`.
    fsync : bool
        Wait until a local target is on the disk before this returns.

    Returns
    -------
    KeyMetadata
        Key, AAD prefix and file length: all that decryption needs, and the key itself, so keep it as such.

    Raises
    ------
    OSError
        Reading or writing failed, the disk is full, or the source changed while it was read.
    ValueError
        Source and target are the same file; a wrong argument.
    LimitError
        More than 2^31 - 1 blocks.
    """
    if key is None:
        key = Key.generate()
        if memoryview(aad_prefix).nbytes == 0:
            aad_prefix = random_bytes(AAD_PREFIX_LENGTH)
    metadata = KeyMetadata(key, aad_prefix)
    secret, prefix = metadata.encryption_key, metadata.aad_prefix or b""
    layout.encrypted_length(0, block_length)
    _refuse_same(source, target)
    if _between_files(source, target):
        descriptor, _ = _open_source(source)
        try:
            output = AtomicFile(_local_path(target))
            length = _encrypt_regular(
                descriptor, os.fsdecode(source), output, secret, prefix, block_length, threads, progress, fsync
            )
            return metadata.with_length(length)
        finally:
            os.close(descriptor)
    with _PlainInput(source) as plain:
        with Writer(target, secret, aad_prefix=prefix, block_length=block_length, threads=threads) as writer:
            _copy(plain.file, writer, plain.size, progress)
        return metadata.with_length(writer.encrypted_length)


def decrypt_file(
    source: Any,
    target: Any,
    key: KeyLike | None = None,
    *,
    key_metadata: KeyMetadata | Buffer | None = None,
    aad_prefix: Buffer = b"",
    length: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    fsync: bool = False,
) -> int:
    """Decrypt an AGS1 file; every block is authenticated before the target appears.

    Parameters
    ----------
    source, target : path, URL or binary file object
        As :func:`encrypt_file`. A source may also be a buffer (bytes are one, not a path). A target that is a pipe or
        a file object receives each block once it is authenticated, but cannot take back what it received if a later
        block fails.
    key, aad_prefix : optional
        As the file was encrypted with; or `key_metadata` instead.
    key_metadata : KeyMetadata or its bytes, optional
        Key, AAD prefix and length.
    length : int, optional
        Trusted length of the encrypted file in bytes. Without it, blocks missing at the end go unnoticed.
    threads, progress, fsync
        As :func:`encrypt_file`.

    Returns
    -------
    int
        Bytes of plaintext written.

    Raises
    ------
    AuthenticationError
        A tag failed; names the file and the first block.
    FormatError, TruncatedError
        Not AGS1, a bad header, or a length that does not agree.
    OSError
        Reading or writing failed.
    TypeError, ValueError
        No key, two keys, or another wrong argument.
    """
    if not isinstance(source, bytes):
        _refuse_same(source, target)
    with open(
        source, key=key, key_metadata=key_metadata, aad_prefix=aad_prefix, length=length, threads=threads
    ) as reader:
        if not isinstance(source, bytes) and _between_files(source, target):
            output = AtomicFile(_local_path(target))
            return _decrypt_regular(os.fsdecode(source), reader, output, threads, progress, fsync)
        with _PlainOutput(target) as plain:
            _copy(reader, plain, reader.size, progress)
        count: int = reader.tell()
        return count


def _encrypt_regular(
    source: int,
    name: str,
    output: AtomicFile,
    key: Key,
    aad_prefix: bytes,
    block_length: int,
    threads: int | None,
    progress: Progress | None,
    fsync: bool,
) -> int:
    before = os.fstat(source)
    try:
        try:
            length = layout.encrypted_length(before.st_size, block_length)
        except LimitError as error:
            raise LimitError(f"{name}: {error}") from None
        output.reserve(length)
        os.pwrite(output.descriptor, layout.write_header(block_length), 0)

        def window(done: int, size: int) -> None:
            first = layout.plaintext_to_block(done, block_length)
            offset = layout.block_to_ciphertext(first, block_length)
            _descriptors.seal_file(
                source, done, output.descriptor, offset, size, key, aad_prefix, block_length, first, threads,
                name, output.name,
            )  # fmt: skip

        _in_windows(before.st_size, block_length, window, progress)
        after = os.fstat(source)
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            raise OSError(
                f"{name} was changed while it was being encrypted; nothing was kept: encrypt one that nobody writes to"
            )
        output.commit(fsync=fsync)
    except BaseException:
        output.abort()
        raise
    return length


def _decrypt_regular(
    name: str, reader: Reader, output: AtomicFile, threads: int | None, progress: Progress | None, fsync: bool
) -> int:
    plaintext = reader._plaintext
    assert plaintext is not None
    block_length = plaintext.block_length
    source: Any = plaintext.source

    def window(done: int, size: int) -> None:
        first = layout.plaintext_to_block(done, block_length)
        source.open_blocks_to(
            layout.block_to_ciphertext(first, block_length), output.descriptor, done, size, plaintext.key,
            plaintext.aad_prefix, block_length, first, threads, output.name,
        )  # fmt: skip

    try:
        output.reserve(plaintext.size)
        _in_windows(plaintext.size, block_length, window, progress)
        output.commit(fsync=fsync)
    except BaseException:
        output.abort()
        raise
    return plaintext.size


def _in_windows(size: int, block_length: int, window: Callable[[int, int], None], progress: Progress | None) -> None:
    """Call `window(done, size)` over whole blocks, each time for about as long as a person waits for a sign of life."""
    largest = min(_LARGEST_WINDOW, _descriptors.MAX_WINDOW_BLOCKS * block_length)
    step = min(_FIRST_WINDOW, largest)
    done = 0
    if progress is not None:
        progress(0, size)
    while done < size or done == 0:
        step = max(block_length, step - step % block_length)
        count = min(step, size - done)
        started = time.monotonic()
        window(done, count)
        seconds = time.monotonic() - started
        done += count
        if progress is not None:
            progress(done, size)
        if done >= size:
            break
        step = int(min(largest, max(step / 2, min(2 * step, step * _WINDOW_SECONDS / max(seconds, 1e-6)))))


def _copy(source: Any, target: Any, size: int | None, progress: Progress | None) -> None:
    memory = memoryview(bytearray(_COPY_BYTES))
    done = 0
    if progress is not None:
        progress(0, size)
    while True:
        count = source.readinto(memory)
        if count is None:
            raise BlockingIOError(11, "the source is non-blocking and has no data now")
        if not count:
            break
        target.write(memory[:count])
        done += count
        if progress is not None:
            progress(done, size)
    if size is not None and done != size:
        raise OSError(f"the source had {size} bytes when it was opened, but {done} could be read: it was changed")


class _PlainInput:
    """Plaintext to be read: a path or URL that is opened here, or a file object of the caller's."""

    def __init__(self, source: Any) -> None:
        self.size: int | None = None
        self._owned = True
        if is_url(source) and not source.startswith("file://"):
            file_system, path = remote_file_system(source)
            self.size = int(file_system.info(path)["size"])
            self.file = file_system.open(path, "rb")
        elif _is_path(source):
            descriptor, regular = _open_source(source)
            self.file = os.fdopen(descriptor, "rb", buffering=0)
            if regular:
                self.size = os.fstat(descriptor).st_size
        elif isinstance(source, io.TextIOBase):
            raise TypeError("a binary file object is needed, but this one is text: open it with mode 'rb'")
        elif hasattr(source, "read"):
            self.file, self._owned = source, False
            if not hasattr(source, "readinto"):
                self.file = _ReadInto(source)
        else:
            raise TypeError(f"source must be a path, a URL or a binary file object, not {type(source).__name__}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._owned:
            self.file.close()


class _ReadInto:
    """Gives readinto to a file object that has only read."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readinto(self, memory: memoryview) -> int | None:
        data = self._file.read(len(memory))
        if data is None:
            return None
        if len(data) > len(memory):
            raise OSError(f"the source answered {len(data)} bytes to a read of {len(memory)}")
        memory[: len(data)] = data
        return len(data)


class _PlainOutput:
    """Plaintext to be written: published on success if it has a name here, written through otherwise."""

    def __init__(self, target: Any) -> None:
        self._atomic: AtomicFile | None = None
        self._sink: FileObjectSink
        if isinstance(target, RemoteSink):
            self._sink = target
        elif is_url(target) and not target.startswith("file://"):
            file_system, path = remote_file_system(target)
            self._sink = RemoteSink(file_system, path, target)
        elif _is_path(target):
            self._atomic = AtomicFile(_local_path(target))
            self._sink = FileObjectSink(os.fdopen(os.dup(self._atomic.descriptor), "wb", buffering=0))
        elif hasattr(target, "write"):
            self._sink = FileObjectSink(target)
        else:
            raise TypeError(f"target must be a path, a URL or a binary file object, not {type(target).__name__}")

    def write(self, data: memoryview) -> None:
        try:
            self._sink.write(data)
        except OSError as error:
            if self._atomic is None or error.errno is None:
                raise
            raise OSError(error.errno, error.strerror, self._atomic.name) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is not None:
            if isinstance(self._sink, RemoteSink):
                self._sink.abort(mark=False)
            if self._atomic is not None:
                self._sink.close()
                self._atomic.abort()
            return
        self._sink.commit()
        if self._atomic is not None:
            self._sink.close()
            self._atomic.commit()


def _is_path(file: Any) -> bool:
    if isinstance(file, str):
        return not is_url(file) or file.startswith("file://")
    return isinstance(file, (bytes, os.PathLike)) and not hasattr(file, "read")


def _local_path(file: Any) -> Any:
    return file[len("file://") :] if isinstance(file, str) and file.startswith("file://") else os.fspath(file)


def _between_files(source: Any, target: Any) -> bool:
    """Whether both are regular files by their paths, the target perhaps yet to be.

    Asked before either is opened: opening a FIFO and closing it again would be seen at its other end.
    """
    if not (_is_path(source) and _is_path(target)) or not stat.S_ISREG(os.stat(_local_path(source)).st_mode):
        return False
    try:
        mode = os.stat(_local_path(target)).st_mode
    except OSError:
        # What is wrong with it, AtomicFile says.
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _open_source(source: Any) -> tuple[int, bool]:
    descriptor = os.open(_local_path(source), os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        os.close(descriptor)
        raise IsADirectoryError(21, "Is a directory", os.fsdecode(source))
    return descriptor, stat.S_ISREG(mode)


def _refuse_same(source: Any, target: Any) -> None:
    if not (_is_path(source) and _is_path(target)):
        return
    try:
        same = os.path.samefile(_local_path(source), _local_path(target))
    except OSError:
        return
    if same and stat.S_ISREG(os.stat(_local_path(source)).st_mode):
        raise ValueError(
            f"source and target are the same file ({os.fsdecode(source)}): write to another name, then rename"
        )
