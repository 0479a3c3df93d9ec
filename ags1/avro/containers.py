r"""Avro container files by plaintext range: the rows that belong to one split of a file.

    offset 0                                    marker          marker             marker
           | Obj\x01 | metadata map            | sync | block   | sync | block     | sync |
                                                ^ starts here: a block belongs to the split in which
                                                  the marker in front of it starts

Ranges that tile the plaintext give every row exactly once, for any cuts: inside a header, a block or a marker,
aligned to AGS1 blocks or not. A range is in plaintext bytes and may reach beyond the end of the file, as
Iceberg's does (it tiles the encrypted length)::

    with ags1.open("part.avro", key=key) as reader:
        for start, end in splits(reader.size, 64 << 20):
            rows = read_split(reader, start, end)

This module reads the container (header, block lengths, markers), and checks each length before it allocates
memory; fastavro decodes the rows. Source: Apache Avro specification, "Object Container Files".
"""

from __future__ import annotations

import io
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ags1 import layout
from ags1.avro.codecs import decompressor
from ags1.avro.items import ItemBound
from ags1.errors import Ags1Error, FormatError, TruncatedError, UnsupportedError
from ags1.layout import DEFAULT_BLOCK_LENGTH
from ags1.support.avro_encoding import container_start, encoded_block

_MAGIC = b"Obj\x01"
_MARKER_LENGTH = 16
# A schema has kilobytes. A header that claims more than this is damaged, or an attack on memory.
_MAX_HEADER = 16 << 20
_MAX_ENTRIES = 10_000
# Avro's own implementations cannot read a larger block either.
_MAX_BLOCK = (1 << 31) - 1
_MAX_VARINT = 10
# Limits of a schema whose names are written out. Real schemas have tens of levels and thousands of types.
_MAX_DEPTH = 100
_MAX_TYPES = 100_000
# A row is as many objects in memory as its values have bytes, twice, and these; so is an item of an array.
_MAX_EXCESS, _MAX_ITEM_EXCESS = 100, 8
_SCAN_BYTES = 1 << 20
UUID_TEXT = "ags1-uuid"
"""Logical type of a UUID in text, for fastavro to return its bytes."""
# Blocks are read until the file ends.
_WHOLE_FILE = 1 << 62


@dataclass(frozen=True)
class AvroHeader:
    """The header of a container.

    Attributes
    ----------
    metadata : dict
        The entries of the metadata map: ``avro.schema``, ``avro.codec`` and the writer's own.
    marker : bytes
        The 16 bytes after the header and after every block.
    length : int
        Bytes of the header, its marker included: where the first block starts.
    """

    metadata: dict[str, bytes]
    marker: bytes
    length: int


@dataclass(frozen=True)
class AvroBlock:
    """One block of a container.

    Attributes
    ----------
    offset : int
        Plaintext offset of the block's first byte, after the marker in front of it.
    count : int
        Rows in it.
    data : bytes
        The rows: from :func:`iter_blocks` as they are stored, compressed if the container has a codec.
    """

    offset: int
    count: int
    data: bytes


def read_header(reader: Any) -> AvroHeader:
    """Read the header of an Avro container.

    Parameters
    ----------
    reader : binary file
        A :class:`ags1.Reader` or any other seekable binary file.

    Raises
    ------
    TruncatedError
        The file ends inside the header.
    FormatError
        Not an Avro container, or an impossible length in its header.
    """
    return _parse_header(_Input(reader))


def check_schema(schema: Any) -> None:
    """Refuse a schema with which a few bytes can encode endless values: fastavro would crash, or not return.

    Parameters
    ----------
    schema : object
        The parsed JSON. Other faults of the schema are not checked.

    Raises
    ------
    FormatError
        A record inside itself, more than 100 levels, more than 100,000 types with all names written out; an array of
        values without bytes; or many more values without bytes (null, and records themselves) than with some: over
        100 in a row, or 8 in an item of an array or a map, beyond two for each value with bytes.
    """
    found = _Schema().walk(schema, 0)
    if found.excess > _MAX_EXCESS:
        raise FormatError(f"the Avro schema has more than {_MAX_EXCESS} values without bytes in a row")


class _Cost(NamedTuple):
    """Memory cost of a value: number of types, the excess over two for each byte, whether it has no bytes."""

    types: int
    excess: int
    is_empty: bool


_BYTES, _NO_BYTES = _Cost(1, -1, False), _Cost(1, 1, True)


class _Schema:
    """Counts the types of a schema, and finds those whose values have no bytes.

    Readers differ in the namespace below a name with dots. So a name stands for itself in each namespace that it may be
    in, and no namespace can hide a recursion.
    """

    def __init__(self) -> None:
        self._named: dict[str, _Cost] = {}
        self._open: list[set[str]] = []

    def walk(self, schema: Any, depth: int, spaces: tuple[str, ...] = ("",)) -> _Cost:
        """The memory cost of a value of a schema."""
        if depth > _MAX_DEPTH:
            raise FormatError(f"the Avro schema is nested more than {_MAX_DEPTH} levels deep")
        if isinstance(schema, list):
            # The number of the branch is in front of each value.
            found = [self.walk(each, depth + 1, spaces) for each in schema]
            return _Cost(
                1 + sum(each.types for each in found), max((each.excess for each in found), default=0) - 2, False
            )
        if not isinstance(schema, dict):
            return self._reference(_full(str(schema), spaces))
        kind = schema.get("type")
        if isinstance(kind, (dict, list)):
            return self.walk(kind, depth + 1, spaces)
        if kind in ("array", "map"):
            item = self.walk(schema.get("items" if kind == "array" else "values"), depth + 1, spaces)
            if item.is_empty and kind == "array":
                raise FormatError("the Avro schema has an array of values without bytes, which can claim any number")
            if item.excess > _MAX_ITEM_EXCESS:
                raise FormatError(
                    f"the Avro schema has more than {_MAX_ITEM_EXCESS} values without bytes in an item of an array or "
                    "a map"
                )
            return _BYTES._replace(types=1 + item.types)
        if kind not in ("record", "error", "fixed"):
            return self._reference(_full(str(kind), spaces))
        name, space = str(schema.get("name")), schema.get("namespace")
        if "." in name:
            spaces = (name.rpartition(".")[0], "")
        elif isinstance(space, str):
            spaces = (space,)
        names = _full(name, spaces)
        if kind == "fixed":
            return self._define(names, _NO_BYTES if schema.get("size") == 0 else _BYTES)
        self._open.append(names)
        fields = schema.get("fields")
        types = [each.get("type") for each in fields if isinstance(each, dict)] if isinstance(fields, list) else []
        found = [self.walk(each, depth + 1, spaces) for each in types]
        self._open.pop()
        made = _Cost(
            1 + sum(each.types for each in found),
            1 + sum(each.excess for each in found),
            all(each.is_empty for each in found),
        )
        if made.types > _MAX_TYPES:
            raise FormatError(f"the Avro schema has more than {_MAX_TYPES:,} types with all names written out")
        return self._define(names, made)

    def _define(self, names: set[str], found: _Cost) -> _Cost:
        for name in names:
            self._named[name] = _worst((self._named.get(name, found), found))
        return found

    def _reference(self, names: set[str]) -> _Cost:
        if any(names & each for each in self._open):
            raise FormatError(f"the Avro schema has a record inside itself, {min(names)!r:.60}, which is not read")
        usual = _NO_BYTES if any(each.rpartition(".")[2] == "null" for each in names) else _BYTES
        return _worst([self._named[each] for each in names if each in self._named] or [usual])


def _worst(costs: Sequence[_Cost]) -> _Cost:
    types, excesses, empty = zip(*costs, strict=True)
    return _Cost(max(types), max(excesses), any(empty))


def _full(name: str, spaces: tuple[str, ...]) -> set[str]:
    """Return the full names that a name may mean in some namespaces."""
    return {name} if "." in name else {f"{each}.{name}".lstrip(".") for each in spaces}


def iter_blocks(reader: Any, start: int, end: int) -> Iterator[AvroBlock]:
    """The blocks that belong to a plaintext range: those whose marker in front starts inside it.

    Parameters
    ----------
    reader : binary file
        A :class:`ags1.Reader` or any other seekable binary file; its position is moved.
    start, end : int
        Plaintext offsets, `end` exclusive; both may lie beyond the end of the file.

    Yields
    ------
    AvroBlock

    Raises
    ------
    TruncatedError
        The file ends inside its header or a block.
    FormatError
        Not an Avro container, an impossible length, or a block that is not followed by the marker.
    ValueError
        A negative `start`.
    """
    _check_range(start, end)
    return _blocks_of(_Input(reader), start, end)


def plain_blocks(reader: Any, start: int = 0, end: int = _WHOLE_FILE) -> Iterator[AvroBlock]:
    """The blocks of a range, or of the whole file, as from :func:`iter_blocks`, decompressed.

    A block may expand to 32 MiB and 32 times its stored bytes: writers end a block after about 64 KiB of rows.

    Raises
    ------
    TruncatedError, FormatError, ValueError
        As :func:`iter_blocks`; a FormatError also for a damaged block, and for one with more rows than bytes.
    UnsupportedError
        The codec is unknown, its library is missing, or a decompressed block is larger.
    """
    _check_range(start, end)
    return _plain_blocks_of(_Input(reader), start, end)


def read_split(reader: Any, start: int, end: int, *, reader_schema: Any = None) -> Iterator[Any]:
    """The rows of an Avro container that belong to a plaintext range.

    Parameters
    ----------
    reader : binary file
        A :class:`ags1.Reader` or any other seekable binary file; its position is moved.
    start, end : int
        Plaintext offsets, `end` exclusive; both may lie beyond the end of the file.
    reader_schema : dict, list or str, optional
        Avro schema to read the rows as, as for ``fastavro.reader``.

    Returns
    -------
    iterator
        The rows, dicts for records. Over ranges that tile the file, each row comes exactly once.

    Raises
    ------
    ValueError
        A negative `start`.
    ImportError
        From the iterator: fastavro is not installed.
    FormatError, TruncatedError, UnsupportedError
        From the iterator, as :func:`plain_blocks`, and as :func:`check_schema`.
    """
    _check_range(start, end)
    return _rows(_Input(reader), start, end, reader_schema)


def splits(plaintext_size: int, split_size: int, block_length: int = DEFAULT_BLOCK_LENGTH) -> list[tuple[int, int]]:
    """Ranges that tile a plaintext, cut at AGS1 block boundaries so that no block is decrypted twice.

    Parameters
    ----------
    plaintext_size : int
        Bytes of plaintext: ``reader.size``.
    split_size, block_length : int
        As :func:`ags1.split_offsets`.

    Returns
    -------
    list of (int, int)
        Starts and ends, for :func:`read_split`.
    """
    starts = layout.split_offsets(plaintext_size, split_size, block_length)
    return list(zip(starts, [*starts[1:], plaintext_size], strict=True))


def _check_range(start: int, end: int) -> None:
    if start < 0:
        raise ValueError(f"start must not be negative, got {start}")
    if end < start:
        raise ValueError(f"end must not be below start, got {start} and {end}")


def _rows(file: _Input, start: int, end: int, reader_schema: Any) -> Iterator[Any]:
    # The header is checked before fastavro uses it, also if no block follows.
    if start > 0 and start >= file.size:
        return
    header = _parse_header(file)
    if "avro.schema" not in header.metadata:
        raise FormatError(f"{file.where}the Avro header has no schema")
    try:
        check_schema(json.loads(header.metadata["avro.schema"]))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{file.where}the schema in the Avro header cannot be used: {error}") from None
    container = PlainContainer(header.metadata, header.marker, _plain_blocks_of(file, start, end, header))
    try:
        yield from container.rows(reader_schema)
    except (Ags1Error, ImportError, OSError, MemoryError):
        raise
    except Exception as error:
        # fastavro's own errors concern `reader_schema`, an argument of the caller; other errors concern the data.
        if reader_schema is not None and type(error).__module__.startswith("fastavro"):
            raise
        raise FormatError(
            f"{file.where}the rows of the Avro container cannot be decoded: {type(error).__name__}: {error}"
        ) from error


def _blocks_of(file: _Input, start: int, end: int, header: AvroHeader | None = None) -> Iterator[AvroBlock]:
    if start > 0 and start >= file.size:
        return
    if header is None:
        header = _parse_header(file)
    marker = header.marker
    first = header.length - _MARKER_LENGTH
    # Not header.length: `start` may lie inside the header's own marker, which then starts before it.
    found = first if start <= first else _find(file, marker, start, min(end, file.size))
    while found is not None and found < end and found + _MARKER_LENGTH < file.size:
        block, found = _read_block(file, found + _MARKER_LENGTH, marker)
        yield block


def _plain_blocks_of(file: _Input, start: int, end: int, header: AvroHeader | None = None) -> Iterator[AvroBlock]:
    if start > 0 and start >= file.size:
        return
    if header is None:
        header = _parse_header(file)
    codec = header.metadata.get("avro.codec", b"null").decode("utf-8", "replace")
    try:
        decompress = decompressor(codec)
    except UnsupportedError as error:
        raise UnsupportedError(f"{file.where}{error}") from None
    for block in _blocks_of(file, start, end, header):
        try:
            data = decompress(block.data)
        except UnsupportedError as error:
            raise UnsupportedError(f"{file.where}{error}") from None
        except MemoryError:
            raise
        except Exception as error:
            # Each codec raises its own exceptions.
            raise FormatError(
                f"{file.where}the Avro block at offset {block.offset}, compressed by {codec}, is damaged: {error}"
            ) from None
        if block.count > len(data):
            raise FormatError(
                f"{file.where}the Avro block at offset {block.offset} has {block.count} rows in {len(data)} bytes: "
                "rows without bytes are not read"
            )
        yield AvroBlock(block.offset, block.count, data)


def _find(file: _Input, marker: bytes, start: int, end: int) -> int | None:
    """Offset at which the first marker that starts in [start, end) starts."""
    position = start
    while position < end:
        # 15 bytes more, for the rest of a marker that starts at the last byte.
        wanted = min(_SCAN_BYTES, end - position)
        data = file.read_at(position, min(wanted + _MARKER_LENGTH - 1, file.size - position))
        index = data.find(marker)
        if index >= 0:
            return position + index
        position += wanted
    return None


def _read_block(file: _Input, offset: int, marker: bytes) -> tuple[AvroBlock, int]:
    """Return a block, and the offset of the marker after it."""
    head = _Fields(file, offset, min(file.size, offset + 2 * _MAX_VARINT), "block")
    count = head.number("count of rows")
    length = head.number("length")
    if count < 0:
        raise FormatError(f"{file.where}the Avro block at offset {offset} has a negative count of rows ({count})")
    if not 0 <= length <= _MAX_BLOCK:
        raise FormatError(
            f"{file.where}the Avro block at offset {offset} has an impossible length of {length} bytes: "
            "the file is damaged, or the bytes in front of the block only look like its marker"
        )
    behind = head.position + length
    if behind + _MARKER_LENGTH > file.size:
        raise TruncatedError(
            f"{file.where}the Avro block at offset {offset} has {length} bytes and a marker, but only "
            f"{file.size - head.position} bytes follow: the file is truncated or damaged"
        )
    data = file.read_at(head.position, length)
    if file.read_at(behind, _MARKER_LENGTH) != marker:
        raise FormatError(
            f"{file.where}the bytes at offset {behind}, behind the Avro block at offset {offset}, are not "
            "its marker: the file is damaged, or the bytes in front of the block only look like its marker"
        )
    return AvroBlock(offset, count, data), behind


def _parse_header(file: _Input) -> AvroHeader:
    magic = file.read_at(0, min(len(_MAGIC), file.size))
    if magic != _MAGIC:
        if magic and not _MAGIC.startswith(magic):
            raise FormatError(
                f"{file.where}not an Avro container: it starts with {magic.hex(' ')} instead of 4f 62 6a 01"
            )
        raise TruncatedError(f"{file.where}only {file.size} bytes: an Avro container has a header")
    fields = _Fields(file, len(_MAGIC), min(file.size, _MAX_HEADER), "header")
    metadata: dict[str, bytes] = {}
    entries = 0
    while (count := fields.number("count of metadata entries")) != 0:
        if count < 0:
            # This form has the length in bytes, for readers that skip the entries.
            count = -count
            fields.number("length of the metadata")
        entries += count
        if entries > _MAX_ENTRIES:
            raise FormatError(f"{file.where}the Avro header has more than {_MAX_ENTRIES:,} entries of metadata")
        for _ in range(count):
            key = fields.octets("metadata key")
            value = fields.octets("metadata value")
            metadata[key.decode("utf-8", "replace")] = value
    return AvroHeader(metadata, fields.take(_MARKER_LENGTH, "marker"), fields.position)


class _Fields:
    """Reads the numbers and byte strings of Avro's binary encoding at one place of a file."""

    def __init__(self, file: _Input, position: int, end: int, what: str) -> None:
        self._file = file
        self._start = position
        self.position = position
        self._end = end
        self._what = what

    def take(self, length: int, field: str) -> bytes:
        if length < 0:
            raise FormatError(f"{self._name(field)} has a negative length ({length})")
        if length > self._end - self.position:
            if self._end < self._file.size:
                raise FormatError(f"{self._name(field)} has an impossible length of {length} bytes")
            raise TruncatedError(
                f"{self._name(field)} needs {length} bytes, but only {self._end - self.position} follow"
            )
        data = self._file.read_at(self.position, length)
        self.position += length
        return data

    def octets(self, field: str) -> bytes:
        return self.take(self.number(f"length of a {field}"), field)

    def number(self, field: str) -> int:
        """A zigzag varint of at most 64 bits."""
        data = self._file.read_at(self.position, min(_MAX_VARINT, self._end - self.position))
        value = 0
        for index, octet in enumerate(data):
            value |= (octet & 0x7F) << (7 * index)
            if octet < 0x80 and value < 1 << 64:
                self.position += index + 1
                return (value >> 1) ^ -(value & 1)
        if len(data) < _MAX_VARINT and value < 1 << 64:
            self.take(len(data) + 1, field)
        raise FormatError(f"{self._name(field)} is a number of more than 64 bits")

    def _name(self, field: str) -> str:
        return f"{self._file.where}the {field} of the Avro {self._what} at offset {self._start}"


class _Input:
    """A seekable binary file, read at offsets."""

    def __init__(self, file: Any) -> None:
        self._file = file
        size = file.seek(0, os.SEEK_END)
        self.size: int = file.tell() if size is None else size
        name = getattr(file, "name", None)
        self.where = f"{name}: " if isinstance(name, str) else ""

    def read_at(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes. The position is set each time, because the caller may move it in between."""
        self._file.seek(offset)
        pieces: list[bytes] = []
        left = size
        while left > 0:
            piece = self._file.read(left)
            if not piece:
                raise TruncatedError(f"{self.where}only {size - left} of {size} bytes could be read at offset {offset}")
            pieces.append(piece)
            left -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class PlainContainer:
    """A container of plain blocks, as fastavro reads one from front to back. Not safe to share between threads.

    Parameters
    ----------
    metadata : mapping of str to bytes
        As :class:`AvroHeader` has it, with a schema; whatever codec it names, the container has none.
    marker : bytes
        Of the header.
    blocks : iterator of AvroBlock
        From :func:`plain_blocks`.
    """

    def __init__(self, metadata: Mapping[str, bytes], marker: bytes, blocks: Iterator[AvroBlock]) -> None:
        self._marker = marker
        self._blocks = blocks
        self._current = io.BytesIO(container_start({**metadata, "avro.codec": b"null"}, marker))
        self._bound = ItemBound(json.loads(metadata["avro.schema"]))
        self._error: EOFError | None = None

    def rows(self, reader_schema: Any = None, **options: Any) -> Iterator[Any]:
        """The rows, with the options of ``fastavro.reader``, which raises what wrong bytes lead it to.

        Raises
        ------
        ImportError
            fastavro is not installed.
        """
        try:
            import fastavro
        except ImportError as error:
            raise ImportError("reading Avro needs fastavro: pip install 'ags1[avro]'") from error
        fastavro.read.LOGICAL_READERS[f"string-{UUID_TEXT}"] = lambda text, *_: uuid.UUID(text).bytes
        container: Any = self
        yield from fastavro.reader(container, reader_schema, **options)
        if self._error is not None:
            # fastavro takes a TruncatedError for the end of the rows.
            raise self._error

    def read(self, size: int) -> bytes:
        """Bytes of one field at a time, for fastavro."""
        data = self._current.read(size)
        if data or size == 0:
            # A read never spans blocks: fastavro reads one field after the other.
            return data
        try:
            block = next(self._blocks, None)
        except EOFError as error:
            self._error = error
            raise
        if block is None:
            return b""
        self._bound.check(block.count, block.data)
        self._current = io.BytesIO(encoded_block(block.count, block.data, self._marker))
        return self._current.read(size)
