"""The bytes of one value of a nested type or a boolean, for a whole array at once: no Python object for a value.

A value has parts, one behind the other, in the order in which its type is written down. A part has all elements of one
node of the type that belong to the value, as Arrow's own buffers have them, so that both directions work on whole
buffers. For n elements of a node::

    validity   n bytes, 1 or 0            every node but the value itself, which is not null
    lengths    n unsigned integers (4)    text, binary, lists and maps
    content    text, binary: their bytes. Numbers, dates, times, decimals: the bytes that Arrow has, 0 for nulls.
               Booleans: a byte each. Structs: the parts of each field, n elements each.
               Lists: the parts of their elements. Maps: of a struct of key and value.

    [{a: 7, b: "xy"}, null]  as  list<struct<a: int8, b: string>>
    02000000 | 01 00 | 01 00 | 07 00 | 01 00 | 02000000 00000000 | 7879
    lengths    struct  a valid  a      b valid  lengths of b       b

Integers are little-endian. What is nested in what is the type's to say: it is not in the bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ags1.errors import FormatError

try:
    import numpy as np
except ImportError:
    # PyArrow does not need it, and other values do not.
    np = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from numpy.typing import NDArray


def width_of(kind: Any) -> int | None:
    """Bytes of each value of a type; 0 for text and binary of any length, None for what has to be packed."""
    binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
    if any(check(kind) for check in binary) or str(kind) in ("binary_view", "string_view"):
        return 0
    fixed = (pa.types.is_primitive, pa.types.is_decimal, pa.types.is_fixed_size_binary)
    if any(check(kind) for check in fixed) and kind.bit_width % 8 == 0:
        return int(kind.bit_width // 8)
    return None


def check_type(kind: Any) -> None:
    """Raise TypeError if there are no bytes for values of this type, and ImportError if numpy is missing for them."""
    if width_of(kind) is None and np is None:
        raise ImportError("booleans and nested values need numpy: pip install numpy")
    types = pa.types
    if types.is_struct(kind):
        for field in kind:
            check_type(field.type)
    elif types.is_map(kind):
        check_type(kind.key_type)
        check_type(kind.item_type)
    elif types.is_list(kind) or types.is_large_list(kind):
        check_type(kind.value_type)
    elif width_of(kind) is None and not types.is_boolean(kind):
        text = "are not bytes: encrypt the table's buffers, or all of it (encrypt_table)"
        raise TypeError(f"values of type {kind} {text}")


def pack(array: Any) -> Any:
    """Return the bytes of each value, as large_binary; nulls stay null. TypeError: :func:`check_type`."""
    check_type(array.type)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    parts: list[Any] = []
    _take(array, np.arange(len(array) + 1), parts, None)
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary())) if parts else _empty(len(array))
    return pc.if_else(array.is_valid(), joined, pa.scalar(None, pa.large_binary())) if array.null_count else joined


def _empty(count: int) -> Any:
    return pa.array([b""], pa.large_binary()).take(pa.array(np.zeros(count, np.int64)))


def _take(array: Any, bounds: NDArray[np.int64], parts: list[Any], validity: Any) -> None:
    """Add the parts of a node. Value i has the elements from ``bounds[i]`` to ``bounds[i + 1]``."""
    kind = array.type
    types = pa.types

    def add(data: Any, places: NDArray[np.int64]) -> None:
        buffers = [None, pa.py_buffer(np.ascontiguousarray(places)), pa.py_buffer(data)]
        parts.append(pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(places) - 1, buffers))

    def add_lengths(lengths: Any) -> NDArray[np.int64]:
        found = lengths.fill_null(0).to_numpy(zero_copy_only=False)
        if len(found) and found.max() >= 1 << 32:
            raise ValueError("a nested text, binary, list or map of 2^32 bytes or elements is too long: divide it")
        add(found.astype("<u4"), 4 * bounds)
        places = np.zeros(len(found) + 1, np.int64)
        np.cumsum(found, out=places[1:])
        return places[bounds]

    if validity is not None:
        add(validity.cast(pa.uint8()).to_numpy(zero_copy_only=False), bounds)
    if types.is_struct(kind):
        for child in array.flatten():
            _take(child, bounds, parts, child.is_valid())
    elif types.is_map(kind) or types.is_list(kind) or types.is_large_list(kind):
        inner = add_lengths(pc.list_value_length(_as_list(array)))
        child = _as_list(array).flatten()
        _take(child, inner, parts, child.is_valid())
    elif width_of(kind) == 0:
        # Without what may lie in the memory of nulls.
        filled = array.cast(pa.large_binary()).fill_null(b"")
        places = add_lengths(pc.binary_length(filled))
        joined = pa.concat_arrays([filled])
        first = np.frombuffer(joined.buffers()[1], np.int64)[joined.offset] if len(joined) else 0
        add(joined.buffers()[2] or b"", places + first)
    elif types.is_boolean(kind):
        add(array.fill_null(False).cast(pa.uint8()).to_numpy(zero_copy_only=False), bounds)
    else:
        width = width_of(kind) or 0
        filled = array.view(pa.binary(width)).fill_null(bytes(width))
        add(filled.buffers()[1], width * (bounds + filled.offset))


def _as_list(array: Any) -> Any:
    """A map as a list of structs; a list as it is."""
    if not pa.types.is_map(array.type):
        return array
    entries = pa.struct([array.type.key_field, array.type.item_field])
    kind = pa.list_(pa.field("entries", entries, nullable=False))
    buffers = array.buffers()[:2]
    child = pa.StructArray.from_arrays([array.keys, array.items], fields=list(entries))
    return pa.Array.from_buffers(kind, len(array), buffers, offset=array.offset, children=[child])


class _Parts:
    """Reads the parts of all values of an array at once. A null has zeros in place of every part."""

    def __init__(self, array: Any) -> None:
        _, places, data = array.buffers()
        found = np.frombuffer(places, np.int64)[array.offset : array.offset + len(array) + 1]
        self.data = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        self.places = found[:-1].copy()
        self.ends = found[1:]
        self._nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None

    def read(self, sizes: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The next `sizes` bytes of each value, one behind the other."""
        stored = sizes if self._nulls is None else np.where(self._nulls, 0, sizes)
        if (stored > self.ends - self.places).any():
            raise FormatError("the decrypted values are not of this type: one of them ends early")
        begins = np.cumsum(stored) - stored
        where = np.repeat(self.places - begins, stored)
        where += np.arange(len(where))
        self.places += stored
        found: NDArray[np.uint8] = self.data[where]
        if self._nulls is None:
            return found
        spread = np.zeros(int(sizes.sum()), np.uint8)
        spread[np.repeat(~self._nulls, sizes)] = found
        return spread

    def is_read(self) -> bool:
        """Whether no value has more bytes."""
        unread = self.places != self.ends
        return not (unread if self._nulls is None else unread & ~self._nulls).any()


def unpack(array: Any, kind: Any) -> Any:
    """Undo :func:`pack`, for a large_binary array. FormatError: a value is not of this type."""
    check_type(kind)
    parts = _Parts(array)
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    found = _read(kind, np.ones(len(array), np.int64), parts, valid)
    if not parts.is_read():
        raise FormatError(f"the decrypted values are not of type {kind}: one of them has more bytes")
    return found


def _read(kind: Any, counts: NDArray[np.int64], parts: _Parts, valid: Any) -> Any:
    """Read a node of which the values have `counts` elements, as one array; without `valid`, all are."""
    types = pa.types
    total = int(counts.sum())
    validity = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))

    def read_child(of: Any, inner: NDArray[np.int64]) -> Any:
        return _read(of, inner, parts, parts.read(inner))

    def read_lengths() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where each element ends in the content of all, from 0 on; and what each value has of it."""
        places = np.zeros(total + 1, np.int64)
        np.cumsum(parts.read(4 * counts).view("<u4"), out=places[1:])
        ends = np.cumsum(counts)
        sizes: NDArray[np.int64] = places[ends] - places[ends - counts]
        return places, sizes

    def read_entries(sizes: NDArray[np.int64]) -> Any:
        # PyArrow ends the process if one is null; before its version 26, also if it has not counted that none is.
        if not (parts.read(sizes).all() and parts.read(sizes).all()):
            raise FormatError(f"the decrypted values are not of type {kind}: an entry of a map, or its key, is null")
        children = [_read(kind.key_type, sizes, parts, None), read_child(kind.item_type, sizes)]
        return pa.StructArray.from_arrays(children, fields=[kind.key_field, kind.item_field])

    def made(of: Any, *buffers: Any, children: Any = None) -> Any:
        return pa.Array.from_buffers(of, total, [validity, *buffers], children=children)

    if types.is_struct(kind):
        return made(kind, children=[read_child(field.type, counts) for field in kind])
    if types.is_map(kind) or types.is_list(kind) or types.is_large_list(kind):
        places, sizes = read_lengths()
        child = read_entries(sizes) if types.is_map(kind) else read_child(kind.value_type, sizes)
        wide = np.int64 if types.is_large_list(kind) else np.int32
        if places[-1] > np.iinfo(wide).max:
            raise FormatError(f"{places[-1]} elements are too many for one array of type {kind}: make smaller batches")
        return made(kind, pa.py_buffer(places.astype(wide)), children=[child])
    if width_of(kind) == 0:
        places, sizes = read_lengths()
        binary = made(pa.large_binary(), pa.py_buffer(places), pa.py_buffer(parts.read(sizes)))
        try:
            return binary.cast(kind)
        except pa.ArrowInvalid as error:
            raise FormatError(f"the decrypted values are not of type {kind}: {error}") from None
    if types.is_boolean(kind):
        return made(kind, pa.py_buffer(np.packbits(parts.read(counts), bitorder="little")))
    return made(kind, pa.py_buffer(parts.read((width_of(kind) or 0) * counts)))
