"""Arrow buffers, tables, and IPC streams and files, encrypted as AGS1.

    buffers        encrypt_buffers      one AGS1 stream for each buffer, one native call for all
    table          encrypt_table        one AGS1 stream that holds an Arrow IPC stream
    IPC file       write_ipc_file       an AGS1 file of an Arrow IPC file: read_batch opens only what it touches

Nothing is serialised or copied before it is encrypted: buffers are encrypted from where Arrow keeps them, and
decrypted into 64-byte aligned memory that Arrow then uses as it is. Needs pyarrow: ``pip install 'ags1[arrow]'``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ags1 import _batch, codec, layout
from ags1._open import open
from ags1._typing import Buffer, KeyLike
from ags1.keys import KeyMetadata
from ags1.layout import DEFAULT_BLOCK_LENGTH
from ags1.stream import Writer

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError("ags1.arrow needs pyarrow: pip install 'ags1[arrow]'") from error

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = [
    "IpcFile",
    "decrypt_buffers",
    "decrypt_table",
    "encrypt_buffers",
    "encrypt_table",
    "open_ipc_file",
    "open_ipc_stream",
    "write_ipc_file",
    "write_ipc_stream",
]

# What Arrow's specification recommends, and its kernels like best.
_ALIGNMENT = 64


def encrypt_buffers(
    buffers: Iterable[Buffer | None],
    key: KeyLike | Sequence[KeyLike],
    *,
    aad_prefixes: Sequence[Buffer] | None = None,
    block_length: int = DEFAULT_BLOCK_LENGTH,
    threads: int | None = None,
) -> list[Any]:
    """Encrypt Arrow buffers, each into an AGS1 stream of its own, in one native call.

    Parameters
    ----------
    buffers : iterable of pyarrow.Buffer or None
        As ``pyarrow.Array.buffers()`` gives them; None (an absent validity bitmap) stays None.
    key, aad_prefixes, block_length, threads
        As :func:`ags1.encrypt_many`; one prefix for each entry, also for those that are None. Give each buffer its
        own prefix, or buffers under one key can be swapped unnoticed.

    Returns
    -------
    list of pyarrow.Buffer or None
        In order; slices of one arena.

    Raises
    ------
    TypeError, ValueError, LimitError, BackendError
        As :func:`ags1.encrypt_many`.
    """
    entries = list(buffers)
    keys, prefixes = _present(entries, key, aad_prefixes)
    streams = codec.encrypt_many(
        [entry for entry in entries if entry is not None],
        keys,
        aad_prefixes=prefixes,
        block_length=block_length,
        threads=threads,
    )
    return _with_gaps(entries, streams)


def decrypt_buffers(
    buffers: Iterable[Buffer | None],
    key: KeyLike | Sequence[KeyLike],
    *,
    aad_prefixes: Sequence[Buffer] | None = None,
    threads: int | None = None,
) -> list[Any]:
    """Decrypt what :func:`encrypt_buffers` made, into 64-byte aligned memory.

    Returns
    -------
    list of pyarrow.Buffer or None
        In order, ready for ``pyarrow.Array.from_buffers``; slices of one arena.

    Raises
    ------
    AuthenticationError, FormatError, TruncatedError
        As :func:`ags1.decrypt_many`; the message names the buffer by its position among those that are not None.
    """
    entries = list(buffers)
    keys, prefixes = _present(entries, key, aad_prefixes)
    plain = _batch.decrypt_aligned([entry for entry in entries if entry is not None], keys, prefixes, threads, _ALIGNMENT)
    return _with_gaps(entries, plain)


def _present(
    entries: list[Any], key: Any, aad_prefixes: Sequence[Buffer] | None
) -> tuple[Any, Sequence[Buffer] | None]:
    """Keys and prefixes of the entries that are not None."""
    kept = [index for index, entry in enumerate(entries) if entry is not None]
    if len(kept) == len(entries):
        return key, aad_prefixes
    if isinstance(key, (list, tuple)):
        if len(key) != len(entries):
            raise ValueError(f"{len(key)} keys for {len(entries)} buffers: give one for all, or one each")
        key = [key[index] for index in kept]
    if aad_prefixes is not None:
        if len(aad_prefixes) != len(entries):
            raise ValueError(f"{len(aad_prefixes)} aad_prefixes for {len(entries)} buffers: give one each")
        aad_prefixes = [aad_prefixes[index] for index in kept]
    return key, aad_prefixes


def _with_gaps(entries: list[Any], results: Iterable[memoryview | None]) -> list[Any]:
    left = iter(results)
    return [None if entry is None else pa.py_buffer(next(left)) for entry in entries]


def encrypt_table(
    table: Any,
    key: KeyLike,
    *,
    aad_prefix: Buffer = b"",
    block_length: int = DEFAULT_BLOCK_LENGTH,
    threads: int | None = None,
) -> Any:
    """Encrypt a table or record batch into one AGS1 stream in memory, which holds an Arrow IPC stream.

    Parameters
    ----------
    table : pyarrow.Table, pyarrow.RecordBatch or pyarrow.RecordBatchReader
    key, aad_prefix, block_length, threads
        As :func:`ags1.encrypt`.

    Returns
    -------
    pyarrow.Buffer
        The encrypted stream.

    Raises
    ------
    TypeError, ValueError, LimitError, BackendError
        As :func:`ags1.encrypt`.
    """
    _check_table(table)
    sink = pa.BufferOutputStream()
    write_ipc_stream(table, sink, key, aad_prefix=aad_prefix, block_length=block_length, threads=threads)
    return sink.getvalue()


def decrypt_table(
    data: Buffer,
    key: KeyLike,
    *,
    aad_prefix: Buffer = b"",
    length: int | None = None,
    threads: int | None = None,
) -> Any:
    """Decrypt what :func:`encrypt_table` made. The table's columns lie in the decrypted memory; nothing is copied.

    Returns
    -------
    pyarrow.Table

    Raises
    ------
    AuthenticationError, FormatError, TruncatedError
        As :func:`ags1.decrypt`.
    """
    nbytes = memoryview(data).nbytes
    head = bytes(memoryview(data).cast("B")[: layout.HEADER_LENGTH]) if nbytes else b""
    size = layout.plaintext_length(nbytes, layout.read_header(head))
    plain = pa.allocate_buffer(size)
    codec.decrypt_into(data, plain, key, aad_prefix=aad_prefix, length=length, threads=threads)
    with pa.ipc.open_stream(plain) as reader:
        return reader.read_all()


def write_ipc_stream(
    table: Any,
    target: Any,
    key: KeyLike | None = None,
    *,
    key_metadata: KeyMetadata | Buffer | None = None,
    aad_prefix: Buffer = b"",
    block_length: int = DEFAULT_BLOCK_LENGTH,
    threads: int | None = None,
    options: Any = None,
) -> KeyMetadata:
    """Write record batches as an Arrow IPC stream, encrypted.

    Parameters
    ----------
    table : pyarrow.Table, pyarrow.RecordBatch or pyarrow.RecordBatchReader
    target : path, URL or binary file object
        A path appears when everything is written.
    key, key_metadata, aad_prefix, block_length, threads
        As :func:`ags1.open`.
    options : pyarrow.ipc.IpcWriteOptions, optional

    Returns
    -------
    KeyMetadata
        Key, AAD prefix and length of the file.

    Raises
    ------
    TypeError
        `table` is none of these, or another wrong argument.
    ValueError, LimitError, OSError
        As :class:`ags1.Writer`. Nothing appears under a path then.
    """
    _check_table(table)
    writer = open(
        target,
        "wb",
        key=key,
        key_metadata=key_metadata,
        aad_prefix=aad_prefix,
        block_length=block_length,
        threads=threads,
    )
    return _write(table, writer, pa.ipc.new_stream, options)


def write_ipc_file(
    table: Any,
    target: Any,
    key: KeyLike | None = None,
    *,
    key_metadata: KeyMetadata | Buffer | None = None,
    aad_prefix: Buffer = b"",
    block_length: int = DEFAULT_BLOCK_LENGTH,
    threads: int | None = None,
    options: Any = None,
) -> KeyMetadata:
    """Write record batches as an Arrow IPC file (Feather V2), encrypted. See :func:`write_ipc_stream`."""
    _check_table(table)
    writer = open(
        target,
        "wb",
        key=key,
        key_metadata=key_metadata,
        aad_prefix=aad_prefix,
        block_length=block_length,
        threads=threads,
    )
    return _write(table, writer, pa.ipc.new_file, options)


def _check_table(table: Any) -> None:
    """Refuse what cannot be written before a target is opened for it."""
    if not isinstance(table, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
        raise TypeError(f"a pyarrow Table, RecordBatch or RecordBatchReader is needed, not {type(table).__name__}")


def _write(table: Any, writer: Writer, new: Any, options: Any) -> KeyMetadata:
    with writer:
        with new(pa.PythonFile(writer, mode="w"), table.schema, options=options) as sink:
            if isinstance(table, pa.RecordBatchReader):
                for batch in table:
                    sink.write_batch(batch)
            else:
                sink.write(table)
    return writer.key_metadata


def open_ipc_stream(
    source: Any,
    key: KeyLike | None = None,
    *,
    key_metadata: KeyMetadata | Buffer | None = None,
    aad_prefix: Buffer = b"",
    length: int | None = None,
    threads: int | None = None,
) -> Any:
    """Open an encrypted Arrow IPC stream for reading, batch after batch.

    Parameters
    ----------
    source : path, URL, file object, pipe or buffer
    key, key_metadata, aad_prefix, length, threads
        As :func:`ags1.open`.

    Returns
    -------
    pyarrow.RecordBatchReader
        Iterate over it, or ``read_all()``; it closes the source when it is dropped.

    Raises
    ------
    FormatError, TruncatedError, AuthenticationError, OSError
        As :class:`ags1.Reader`, here or from reading batches; ``pyarrow.ArrowInvalid`` if the plaintext is no IPC
        stream.
    """
    reader = open(source, key=key, key_metadata=key_metadata, aad_prefix=aad_prefix, length=length, threads=threads)
    try:
        return pa.ipc.open_stream(pa.PythonFile(reader, mode="r"))
    except BaseException:
        reader.close()
        raise


def open_ipc_file(
    source: Any,
    key: KeyLike | None = None,
    *,
    key_metadata: KeyMetadata | Buffer | None = None,
    aad_prefix: Buffer = b"",
    length: int | None = None,
    threads: int | None = None,
) -> IpcFile:
    """Open an encrypted Arrow IPC file for random access to its record batches.

    Parameters
    ----------
    source : path, URL, seekable file object or buffer
    key, key_metadata, aad_prefix, length, threads
        As :func:`ags1.open`.

    Returns
    -------
    IpcFile

    Raises
    ------
    FormatError, TruncatedError, AuthenticationError, OSError
        As :class:`ags1.Reader`; ``pyarrow.ArrowInvalid`` if the plaintext is no IPC file.
    """
    reader = open(source, key=key, key_metadata=key_metadata, aad_prefix=aad_prefix, length=length, threads=threads)
    try:
        return IpcFile(reader)
    except BaseException:
        reader.close()
        raise


class IpcFile:
    """Record batches of an encrypted IPC file, by number; only the blocks that a batch touches are decrypted.

    For one thread at a time. Made by :func:`open_ipc_file`; usable in a ``with`` statement.
    """

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._file = pa.ipc.open_file(pa.PythonFile(reader, mode="r"))

    @property
    def schema(self) -> Any:
        """The ``pyarrow.Schema`` of every batch."""
        return self._file.schema

    @property
    def num_record_batches(self) -> int:
        """How many batches there are."""
        return int(self._file.num_record_batches)

    def read_batch(self, index: int) -> Any:
        """One ``pyarrow.RecordBatch``."""
        return self._file.get_batch(index)

    def read_all(self) -> Any:
        """All batches as a ``pyarrow.Table``.

        Blocks without anything of a batch are not read, so not authenticated: :func:`ags1.verify_file` does all.
        """
        return self._file.read_all()

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
