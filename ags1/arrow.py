"""Arrow buffers, tables, and IPC streams and files, encrypted as AGS1.

    array          encrypt_array        one AGS1 stream for each value, one native call for all; nulls stay null
    columns        encrypt_columns      likewise, and the metadata of the schema keeps the original types
    buffers        encrypt_buffers      one AGS1 stream for each buffer, one native call for all
    table          encrypt_table        one AGS1 stream that holds an Arrow IPC stream
    IPC file       write_ipc_file       an AGS1 file of an Arrow IPC file: read_batch decrypts only its blocks

Buffers are encrypted without serialisation or a copy, directly from the memory of Arrow, and decrypted into 64-byte
aligned memory that Arrow then uses without a copy. Needs pyarrow: ``pip install 'ags1[arrow]'``.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ags1 import _batch, codec, layout
from ags1._open import open
from ags1._typing import Buffer, Items, KeyLike
from ags1.codec import NumberedPrefixes
from ags1.errors import Ags1Error, AuthenticationError, FormatError
from ags1.keys import KeyMetadata
from ags1.layout import DEFAULT_BLOCK_LENGTH

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError("ags1.arrow needs pyarrow: pip install 'ags1[arrow]'") from error

if TYPE_CHECKING:
    from typing import Literal

    from typing_extensions import Self

__all__ = [
    "IpcFile",
    "decrypt_array",
    "decrypt_buffers",
    "decrypt_columns",
    "decrypt_table",
    "encrypt_array",
    "encrypt_buffers",
    "encrypt_columns",
    "encrypt_table",
    "open_ipc_file",
    "open_ipc_stream",
    "write_ipc_file",
    "write_ipc_stream",
]

# Alignment that Arrow's specification recommends; its kernels are fastest with it.
_ALIGNMENT = 64
# Metadata key of an encrypted field; the value is the original field, in a serialised schema as base64.
_METADATA = b"ags1.field"


def encrypt_array(
    array: Any,
    key: KeyLike | Items,
    *,
    aad_prefixes: Buffer | Items | NumberedPrefixes | None = None,
    block_length: int = DEFAULT_BLOCK_LENGTH,
    threads: int | None = None,
) -> Any:
    """Encrypt each value of an array into an AGS1 stream of its own, in one native call; nulls stay null.

    Parameters
    ----------
    array : pyarrow.Array or pyarrow.ChunkedArray
        Of binary, string, or any type whose values have a fixed number of whole bytes: numbers, decimals, dates, times.
        The values are not copied before encryption.
    key, aad_prefixes, block_length, threads
        As :func:`ags1.encrypt_many`. One prefix for the column binds values to the column.
        :class:`ags1.NumberedPrefixes` binds each value to its row too: rows then must not be filtered or sorted before
        they are decrypted.

    Returns
    -------
    pyarrow.LargeBinaryArray
        In one piece of memory, also for a chunked array.

    Raises
    ------
    TypeError
        Not an Arrow array, or one of another type.
    ValueError, LimitError, BackendError
        As :func:`ags1.encrypt_many`.
    """
    _check_array(array)
    return codec.encrypt_many(
        _as_bytes(array), key, aad_prefixes=aad_prefixes, block_length=block_length, threads=threads
    ).to_arrow()


def decrypt_array(
    array: Any,
    key: KeyLike | Items,
    *,
    value_type: Any = None,
    aad_prefixes: Buffer | Items | NumberedPrefixes | None = None,
    threads: int | None = None,
    on_error: Literal["raise", "null"] = "raise",
) -> Any:
    """Decrypt what :func:`encrypt_array` made; every value is authenticated.

    Parameters
    ----------
    array : pyarrow.Array or pyarrow.ChunkedArray
        Of binary, large_binary or binary_view: each value is an AGS1 stream.
    key, aad_prefixes, threads
        As :func:`ags1.decrypt_many`.
    value_type : pyarrow.DataType, optional
        The original type of the values; large_binary by default.
    on_error : {"raise", "null"}
        What is done about a value whose tag does not verify, as in :func:`ags1.decrypt_many`. "null" makes it null, and
        returns a mask too.

    Returns
    -------
    pyarrow.Array
        Of `value_type`, in one piece of memory.
    (pyarrow.Array, pyarrow.BooleanArray)
        With ``on_error="null"``: beside it, which of its nulls are values whose tags did not verify.

    Raises
    ------
    AuthenticationError, FormatError, TruncatedError
        As :func:`ags1.decrypt_many`; FormatError also if a value does not have the type `value_type`.
    TypeError
        Not an Arrow array, or `value_type` is a type that :func:`encrypt_array` does not take.
    """
    _check_array(array)
    wanted = pa.large_binary() if value_type is None else value_type
    if not isinstance(wanted, pa.DataType):
        raise TypeError(f"value_type must be a pyarrow.DataType, not {type(wanted).__name__}")
    width = _width(wanted)
    batch = codec.decrypt_many(array, key, aad_prefixes=aad_prefixes, threads=threads, on_error=on_error)
    plain = batch.to_arrow()
    try:
        plain = plain.cast(wanted) if width is None else plain.cast(pa.binary(width)).view(wanted)
    except pa.ArrowInvalid as error:
        raise FormatError(f"the decrypted values are not of type {wanted}: {error}") from None
    return plain if on_error == "raise" else (plain, _mask(batch.failed, len(batch)))


def _mask(positions: Sequence[int], length: int) -> Any:
    """A boolean array that is true at these positions."""
    bits = bytearray((length + 7) // 8)
    for position in positions:
        bits[position >> 3] |= 1 << (position & 7)
    return pa.BooleanArray.from_buffers(pa.bool_(), length, [None, pa.py_buffer(bits)])


def encrypt_columns(
    table: Any,
    columns: Sequence[str],
    key: KeyLike,
    *,
    aad_prefix: Buffer = b"",
    block_length: int = DEFAULT_BLOCK_LENGTH,
    threads: int | None = None,
) -> Any:
    """Encrypt columns of a table or record batch, value by value; the schema keeps their original types.

    Rows can still be filtered, sorted and joined by the other columns.

    Parameters
    ----------
    table : pyarrow.Table or pyarrow.RecordBatch
    columns : sequence of str
        Names of columns, of types that :func:`encrypt_array` takes.
    key : key
    aad_prefix : buffer
        Identity of the table. The AAD prefix of a value is `aad_prefix`, ``b"/"`` and the name of the column. So a
        value that is moved to another column is detected; one that is moved to another row is not.
    block_length, threads
        As :func:`encrypt_array`.

    Returns
    -------
    pyarrow.Table or pyarrow.RecordBatch
        The columns are large_binary; metadata of their fields has the key ``ags1.field``.

    Raises
    ------
    KeyError
        A column does not exist.
    TypeError, ValueError, LimitError, BackendError
        As :func:`encrypt_array`; ValueError also for a column that is encrypted already.
    """
    _check_rows(table)
    prefix = bytes(memoryview(aad_prefix))
    for name in columns:
        position, field = _column(table, name)
        if _METADATA in (field.metadata or {}):
            raise ValueError(f"column {name!r} is encrypted already")
        stored = base64.b64encode(pa.schema([field]).serialize().to_pybytes())
        sealed = encrypt_array(
            table.column(position),
            key,
            aad_prefixes=_prefix_of(prefix, name),
            block_length=block_length,
            threads=threads,
        )
        described = pa.field(
            name, sealed.type, nullable=field.nullable, metadata={**(field.metadata or {}), _METADATA: stored}
        )
        table = table.set_column(position, described, sealed)
    return table


def decrypt_columns(
    table: Any,
    key: KeyLike,
    *,
    columns: Sequence[str] | None = None,
    aad_prefix: Buffer = b"",
    threads: int | None = None,
    on_error: Literal["raise", "null"] = "raise",
) -> Any:
    """Decrypt columns that :func:`encrypt_columns` made, and restore their original fields.

    Parameters
    ----------
    table : pyarrow.Table or pyarrow.RecordBatch
        May have lost rows or columns, and may come from a file that keeps the metadata of fields.
    key, aad_prefix, threads
        As for :func:`encrypt_columns`.
    columns : sequence of str, optional
        Some of the encrypted columns; by default all. A table without encrypted columns is returned unchanged.
    on_error
        As :func:`decrypt_array`: for each column on its own.

    Returns
    -------
    pyarrow.Table or pyarrow.RecordBatch
    (pyarrow.Table or pyarrow.RecordBatch, dict of str to pyarrow.BooleanArray)
        With ``on_error="null"``: beside it, for each column that has some, which values' tags did not verify.

    Raises
    ------
    AuthenticationError, FormatError, TruncatedError
        As :func:`decrypt_array`; the message names the column, and `item_index` is the row.
    KeyError
        A column does not exist.
    ValueError
        A column has no metadata of an encrypted one.
    """
    _check_rows(table)
    prefix = bytes(memoryview(aad_prefix))
    if columns is None:
        columns = [field.name for field in table.schema if _METADATA in (field.metadata or {})]
    failed: dict[str, Any] = {}
    for name in columns:
        position, field = _column(table, name)
        original = _original(field)
        if original.name != name:
            raise ValueError(f"column {name!r} was {original.name!r} when it was encrypted: rename it back first")
        try:
            plain = decrypt_array(
                table.column(position),
                key,
                value_type=original.type,
                aad_prefixes=_prefix_of(prefix, name),
                threads=threads,
                on_error=on_error,
            )
        except Ags1Error as error:
            error.args = (f"column {name!r}: {error}",)
            raise
        if on_error == "null":
            plain, mask = plain
            if mask.true_count:
                failed[name] = mask
                original = original.with_nullable(True)
        table = table.set_column(position, original, plain)
    return table if on_error == "raise" else (table, failed)


def _check_array(array: Any) -> None:
    if not isinstance(array, (pa.Array, pa.ChunkedArray)):
        raise TypeError(f"a pyarrow Array or ChunkedArray is needed, not {type(array).__name__}")


def _check_rows(table: Any) -> None:
    if not isinstance(table, (pa.Table, pa.RecordBatch)):
        raise TypeError(f"a pyarrow Table or RecordBatch is needed, not {type(table).__name__}")


def _column(table: Any, name: str) -> tuple[int, Any]:
    position = table.schema.get_field_index(name)
    if position < 0:
        raise KeyError(f"there is no column {name!r}, or there are several: {', '.join(table.schema.names)}")
    return position, table.schema.field(position)


def _original(field: Any) -> Any:
    """The field before encryption."""
    stored = (field.metadata or {}).get(_METADATA)
    if stored is None:
        raise ValueError(f"column {field.name!r} has no metadata of ags1: it is not encrypted, or lost its metadata")
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored, validate=True))).field(0)
    except (ValueError, KeyError, IndexError, OSError) as error:
        raise FormatError(f"column {field.name!r} has damaged metadata of ags1: {error}") from None


def _prefix_of(prefix: bytes, name: str) -> bytes:
    return prefix + b"/" + name.encode()


def _width(kind: Any) -> int | None:
    """Bytes of each value of a type, None for values of any length."""
    binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
    if any(check(kind) for check in binary) or str(kind) in ("binary_view", "string_view"):
        return None
    fixed = (pa.types.is_primitive, pa.types.is_decimal, pa.types.is_fixed_size_binary)
    if any(check(kind) for check in fixed) and kind.bit_width % 8 == 0:
        return int(kind.bit_width // 8)
    raise TypeError(f"values of type {kind} are not bytes: encrypt the table's buffers, or all of it (encrypt_table)")


def _as_bytes(array: Any) -> Any:
    """The array itself, or its values as fixed-size binary, without a copy."""
    width = _width(array.type)
    if width is None or pa.types.is_fixed_size_binary(array.type):
        return array
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([chunk.view(pa.binary(width)) for chunk in array.chunks], pa.binary(width))
    return array.view(pa.binary(width))


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
        As ``pyarrow.Array.buffers()`` returns them; None (an absent validity bitmap) stays None.
    key, aad_prefixes, block_length, threads
        As :func:`ags1.encrypt_many`; one prefix for each entry, also for those that are None. Give each buffer its
        own prefix: otherwise buffers under one key can be swapped unnoticed.

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

    It has no ``on_error``: None among the results is an absent buffer, and an array without its validity bitmap would
    have values in place of its nulls. Columns of values that may be damaged: :func:`encrypt_columns`.

    Returns
    -------
    list of pyarrow.Buffer or None
        In order, ready for ``pyarrow.Array.from_buffers``; slices of one arena.

    Raises
    ------
    AuthenticationError, FormatError, TruncatedError
        As :func:`ags1.decrypt_many`; `item_index` of an AuthenticationError is a position in `buffers`, and others
        name the buffer by its position among those that are not None.
    """
    entries = list(buffers)
    present = [index for index, entry in enumerate(entries) if entry is not None]
    keys, prefixes = _present(entries, key, aad_prefixes)
    try:
        plain = _batch.decrypt_aligned(
            [entry for entry in entries if entry is not None], keys, prefixes, threads, _ALIGNMENT
        )
    except AuthenticationError as error:
        index = present[error.item_index or 0]
        raise AuthenticationError.for_block(error.block_index or 0, f"buffer {index}", index) from None
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


class IpcFile:
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
