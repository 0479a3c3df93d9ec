"""Arrow tables as encrypted IPC streams and files."""

from __future__ import annotations

from functools import partial
from typing import Any

from ags1 import codec, layout
from ags1.core.typing import KeyLike
from ags1.keys import KeyMetadata
from ags1.layout import DEFAULT_BLOCK_LENGTH
from ags1.streams.opening import open
from ags1.support.closing import Closing
from ags1.support.typing import Buffer

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError("ags1.arrow needs pyarrow: pip install 'ags1[arrow]'") from error


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
        A file under a path appears when everything is written.
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
        `table` has another type, or another argument is wrong.
    ValueError, LimitError, OSError
        As :class:`ags1.Writer`. No file appears under a path.
    """
    return _write(
        table,
        target,
        partial(pa.ipc.new_stream, options=options),
        key=key,
        key_metadata=key_metadata,
        aad_prefix=aad_prefix,
        block_length=block_length,
        threads=threads,
    )


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
    return _write(
        table,
        target,
        partial(pa.ipc.new_file, options=options),
        key=key,
        key_metadata=key_metadata,
        aad_prefix=aad_prefix,
        block_length=block_length,
        threads=threads,
    )


def _write(table: Any, target: Any, new: Any, **arguments: Any) -> KeyMetadata:
    # Refuse other types before the target is opened.
    if not isinstance(table, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
        raise TypeError(f"a pyarrow Table, RecordBatch or RecordBatchReader is needed, not {type(table).__name__}")
    with open(target, "wb", **arguments) as writer:
        with new(pa.PythonFile(writer, mode="w"), table.schema) as sink:
            if isinstance(table, pa.RecordBatchReader):
                for batch in table:
                    sink.write_batch(batch)
            else:
                sink.write(table)
    written: KeyMetadata = writer.key_metadata
    return written


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
        Iterate over it, or call ``read_all()``; it closes the source when it is garbage-collected.

    Raises
    ------
    FormatError, TruncatedError, AuthenticationError, OSError
        As :class:`ags1.Reader`, here or from reading batches; ``pyarrow.ArrowInvalid`` if the plaintext is not an IPC
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
        As :class:`ags1.Reader`; ``pyarrow.ArrowInvalid`` if the plaintext is not an IPC file.
    """
    reader = open(source, key=key, key_metadata=key_metadata, aad_prefix=aad_prefix, length=length, threads=threads)
    try:
        return IpcFile(reader)
    except BaseException:
        reader.close()
        raise


class IpcFile(Closing):
    """Record batches of an encrypted IPC file, by number; only the blocks of a batch are decrypted.

    Use it from one thread at a time. :func:`open_ipc_file` returns it; it is a context manager.
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
        """Number of batches."""
        return int(self._file.num_record_batches)

    def read_batch(self, index: int) -> Any:
        """One ``pyarrow.RecordBatch``."""
        return self._file.get_batch(index)

    def read_all(self) -> Any:
        """All batches as a ``pyarrow.Table``.

        Blocks that belong to no batch are not read and not authenticated; :func:`ags1.verify_file` reads all blocks.
        """
        return self._file.read_all()

    def close(self) -> None:
        """Close the file."""
        self._reader.close()
