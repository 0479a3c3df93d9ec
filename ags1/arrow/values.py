"""Arrow arrays and columns, encrypted value by value: each value is an AGS1 stream or a GCM message of its own.

    form "ags1"   AGS1 | block length (4) | nonce (12) | ciphertext | tag (16)    36 bytes more; AAD: prefix, 00000000
    form "gcm"                              nonce (12) | ciphertext | tag (16)    28 bytes more; AAD: prefix

The first form is a whole stream, which longer values have several blocks of. The second is what Spark's ``aes_encrypt``
and most libraries call AES-GCM. The plaintext of a text or binary value is its bytes; of a number, date, time or
decimal, its bytes as Arrow has them, little-endian; of a value of any other type, what :mod:`ags1.arrow.nested` says.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ags1 import codec
from ags1.arrow.nested import check_type, pack, unpack, width_of
from ags1.codec import NumberedPrefixes
from ags1.core.typing import Items, KeyLike
from ags1.errors import Ags1Error, AlreadyEncryptedError, FormatError
from ags1.layout import DEFAULT_BLOCK_LENGTH
from ags1.support.typing import Buffer

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError("ags1.arrow needs pyarrow: pip install 'ags1[arrow]'") from error

if TYPE_CHECKING:
    from typing import Literal

# Metadata key of an encrypted field; the value is the original field, in a serialised schema as base64.
_METADATA = b"ags1.field"


def encrypt_array(
    array: Any,
    key: KeyLike | Items,
    *,
    aad_prefixes: Buffer | Items | NumberedPrefixes | None = None,
    block_length: int = DEFAULT_BLOCK_LENGTH,
    threads: int | None = None,
    form: Literal["ags1", "gcm"] = "ags1",
) -> Any:
    """Encrypt each value of an array, in one native call; nulls stay null.

    Parameters
    ----------
    array : pyarrow.Array or pyarrow.ChunkedArray
        Of binary, string, numbers, decimals, dates or times, which are not copied before encryption; of booleans,
        structs, lists or maps, which are.
    key, aad_prefixes, block_length, threads, form
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
        as_values(array), key, aad_prefixes=aad_prefixes, block_length=block_length, threads=threads, form=form
    ).to_arrow()


def decrypt_array(
    array: Any,
    key: KeyLike | Items,
    *,
    value_type: Any = None,
    aad_prefixes: Buffer | Items | NumberedPrefixes | None = None,
    threads: int | None = None,
    on_error: Literal["raise", "null"] = "raise",
    form: Literal["ags1", "gcm"] = "ags1",
) -> Any:
    """Decrypt what :func:`encrypt_array` made; every value is authenticated.

    Parameters
    ----------
    array : pyarrow.Array or pyarrow.ChunkedArray
        Of binary, large_binary or binary_view: each value is an AGS1 stream, or a GCM message.
    key, aad_prefixes, threads, form
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
    check_type(wanted)
    batch = codec.decrypt_many(array, key, aad_prefixes=aad_prefixes, threads=threads, on_error=on_error, form=form)
    plain = from_values(batch.to_arrow(), wanted)
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
    form: Literal["ags1", "gcm"] = "ags1",
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
    block_length, threads, form
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
        As :func:`encrypt_array`; AlreadyEncryptedError for a column that is encrypted.
    """
    _check_rows(table)
    _check_names(columns)
    prefix = bytes(memoryview(aad_prefix))
    for name in columns:
        position, field = _column(table, name)
        if _METADATA in (field.metadata or {}):
            raise AlreadyEncryptedError(f"column {name!r} is encrypted already")
        stored = base64.b64encode(pa.schema([field]).serialize().to_pybytes())
        sealed = encrypt_array(
            table.column(position),
            key,
            aad_prefixes=_prefix_of(prefix, name),
            block_length=block_length,
            threads=threads,
            form=form,
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
    form: Literal["ags1", "gcm"] = "ags1",
) -> Any:
    """Decrypt columns that :func:`encrypt_columns` made, and restore their original fields.

    Parameters
    ----------
    table : pyarrow.Table or pyarrow.RecordBatch
        May have lost rows or columns, and may come from a file that keeps the metadata of fields.
    key, aad_prefix, threads, form
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
    _check_names(columns)
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
                form=form,
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


def _check_names(columns: object) -> None:
    if isinstance(columns, (str, bytes)):
        raise TypeError(f"columns must be a list of names, such as [{columns!r}], not one name")


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


def as_values(array: Any) -> Any:
    """The plaintexts of an array, as an array of text or binary: the array itself, or without a copy, if that can be.

    TypeError: it is of a type that :func:`encrypt_array` does not take.
    """
    width = width_of(array.type)
    if width is None:
        return pack(array)
    if width == 0 or pa.types.is_fixed_size_binary(array.type):
        return array
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([chunk.view(pa.binary(width)) for chunk in array.chunks], pa.binary(width))
    return array.view(pa.binary(width))


def from_values(plain: Any, kind: Any) -> Any:
    """Undo :func:`as_values`: an array of this type from a large_binary one.

    FormatError: a value does not have this type. TypeError: as :func:`as_values`.
    """
    width = width_of(kind)
    if width is None:
        return unpack(plain, kind)
    try:
        return plain.cast(pa.binary(width)).view(kind) if width else plain.cast(kind)
    except pa.ArrowInvalid as error:
        raise FormatError(f"the decrypted values are not of type {kind}: {error}") from None
