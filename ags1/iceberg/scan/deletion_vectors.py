"""Deletion vectors: which rows of one data file are deleted, in a named range of a Puffin file.

    manifest entry:  file_path, referenced_data_file, content_offset, content_size_in_bytes, record_count
    Puffin file:     ... | length (4) | D1 D3 39 64 | bitmaps | CRC-32 (4) | ...
                         ^ content_offset                                  ^ content_offset + content_size_in_bytes
                  ... | PFA1 | footer: JSON | length of the JSON (4, LE) | flags (4) | PFA1

The manifest binds a vector to its data file. The footer of the Puffin file does not: one file may have vectors that
were removed from the table, and its footer may name paths of another copy of the table. Source: Iceberg table spec,
"Deletion Vectors" and "Position Delete Files"; Puffin spec, "File structure" and "deletion-vector-v1".
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterable
from typing import Any

import pyarrow
import pyarrow.compute as compute
from pyroaring import BitMap64

from ags1.errors import FormatError, TruncatedError, UnsupportedError
from ags1.iceberg.deletes import DeletionVector, is_count
from ags1.version import version

_MAGIC = b"\xd1\xd3\x39\x64"
_PUFFIN = b"PFA1"
_LENGTH, _CHECKSUM = 4, 4
_TYPE = "deletion-vector-v1"
_FOOTER_END = 12
# A vector takes some hundred bytes in the footer, so a longer footer is not valid.
_LARGEST_FOOTER = 64 << 20
_MOST_POSITIONS = 1 << 63
_POSITION_DELETES = {2147483546: "file_path", 2147483545: "pos"}
# A run of a million rows that are alike has a few bytes. Of rows that differ, as positions do, no writer has many more.
_FREE_ROWS, _ROWS_PER_BYTE = 1 << 24, 16
# Field id of the column _pos, which a vector lists.
_ROW_POSITION = 2147483645


def read_vector(file: Any, vector: DeletionVector, end: int) -> BitMap64:
    """The deleted positions of a vector, read from its range alone; the plaintext has `end` bytes.

    They stay a bitmap: a few bytes can encode 2^48 positions, and the manifest can claim as many.

    Raises
    ------
    TruncatedError
        The range is not inside the file.
    FormatError
        The range is not this vector: magic bytes, length, checksum or number of rows differ.
    """
    where = f"{vector.path}: the deletion vector of {vector.data_file}, at offset {vector.offset},"
    if vector.offset > end - vector.size:
        raise TruncatedError(f"{where} ends behind the end of the file")
    file.seek(vector.offset)
    data = file.read(vector.size)
    if len(data) != vector.size:
        raise TruncatedError(f"{where} ends behind the end of the file")
    length = int.from_bytes(data[:_LENGTH], "big")
    content = memoryview(data)[_LENGTH:-_CHECKSUM]
    if length != len(content) or content[: len(_MAGIC)] != _MAGIC:
        raise FormatError(f"{where} does not begin as one: the manifest names another place, or another file")
    if zlib.crc32(content) != int.from_bytes(data[-_CHECKSUM:], "big"):
        raise FormatError(f"{where} has a wrong checksum")
    return _positions(bytes(content[len(_MAGIC) :]), vector.cardinality, where)


def deleted_positions(file: Any, vectors: Iterable[DeletionVector]) -> dict[DeletionVector, BitMap64]:
    """The deleted positions of several vectors of one Puffin file; raises as :func:`read_vector`."""
    end = file.seek(0, io.SEEK_END)
    return {each: read_vector(file, each, end) for each in sorted(vectors, key=lambda each: each.offset)}


def footer_contradictions(file: Any, vectors: Iterable[DeletionVector]) -> list[str]:
    """What the footer of a Puffin file says otherwise than the manifests, for whoever reads only footers."""
    listed = _footer(file, file.seek(0, io.SEEK_END))
    if listed is None:
        return []
    blobs = {
        (each["offset"], each["length"]): each
        for each in listed
        if isinstance(each, dict)
        and each.get("type") == _TYPE
        and is_count(each.get("offset"))
        and is_count(each.get("length"))
    }
    found = []
    for vector in vectors:
        blob = blobs.get((vector.offset, vector.size))
        if blob is None:
            found.append(f"its footer lists no deletion vector at offset {vector.offset}")
            continue
        properties = blob.get("properties")
        named = properties.get("referenced-data-file") if isinstance(properties, dict) else None
        if named != vector.data_file:
            found.append(
                f"its footer has the deletion vector at offset {vector.offset} for {named}, and the manifest, which "
                f"counts, for {vector.data_file}"
            )
    return found


def _footer(file: Any, end: int) -> list[Any] | None:
    """The blobs that the footer lists; None if there is none that says so."""
    size = min(end, _FOOTER_END)
    file.seek(end - size)
    tail = file.read(size)
    if len(tail) != _FOOTER_END or tail[8:] != _PUFFIN:
        file.seek(0)
        if file.read(len(_PUFFIN)) != _PUFFIN:
            # Readers find a vector by its place alone, in any file.
            return None
        raise FormatError("it does not end as a Puffin file")
    if tail[4] & 1:
        # A compressed footer: Iceberg does not write one, and nothing depends on it.
        return None
    length = int.from_bytes(tail[:4], "little")
    if length > end - _FOOTER_END:
        raise FormatError("the footer of the Puffin file is longer than the file")
    if length > _LARGEST_FOOTER:
        raise FormatError(
            f"the footer of the Puffin file has {length:,} bytes, and none has more than {_LARGEST_FOOTER:,}"
        )
    file.seek(end - _FOOTER_END - length)
    try:
        blobs = json.loads(file.read(length))["blobs"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FormatError("the footer of the Puffin file is not one") from None
    return blobs if isinstance(blobs, list) else []


def _positions(bitmaps: bytes, cardinality: int, where: str) -> BitMap64:
    try:
        found = BitMap64.deserialize(bitmaps)
    except Exception as error:
        raise FormatError(f"{where} has no Roaring bitmaps: {type(error).__name__}") from None
    if len(found) != cardinality:
        raise FormatError(
            f"{where} deletes {len(found)} rows, and the manifest says {cardinality}: it is not the one that the "
            "manifest means"
        )
    if found and found.max() >= _MOST_POSITIONS:
        raise FormatError(f"{where} deletes positions that no file has")
    return found


def write_vectors(puffin: str, vectors: Iterable[tuple[str, Any]]) -> tuple[bytes, list[DeletionVector]]:
    """Plaintext of the Puffin file of a path with the deleted positions (BitMap64) of data files, and its vectors."""
    parts, written, offset = [_PUFFIN], [], len(_PUFFIN)
    for path, positions in vectors:
        content = _MAGIC + positions.serialize()
        blob = len(content).to_bytes(_LENGTH, "big") + content + zlib.crc32(content).to_bytes(_CHECKSUM, "big")
        written.append(DeletionVector(puffin, path, offset, len(blob), len(positions)))
        parts.append(blob)
        offset += len(blob)
    blobs = [
        {
            "type": _TYPE,
            "fields": [_ROW_POSITION],
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": each.offset,
            "length": each.size,
            "properties": {"referenced-data-file": each.data_file, "cardinality": str(each.cardinality)},
        }
        for each in written
    ]
    footer = {"blobs": blobs, "properties": {"created-by": f"ags1 {version}"}}
    text = json.dumps(footer, separators=(",", ":"), ensure_ascii=False).encode()
    parts += [_PUFFIN, text, len(text).to_bytes(4, "little"), bytes(4), _PUFFIN]
    return b"".join(parts), written


# -- position delete files ---------------------------------------------------------------------------------------------


def read_position_deletes(file: Any, file_format: str) -> dict[str, pyarrow.ChunkedArray]:
    """Deleted positions, as int64, by the path of the data file. `file` is the plaintext.

    Any exception means that it is damaged: a FormatError where a row has no path or no position.
    """
    if file_format == "avro":
        from ags1.iceberg.scan.avro_files import read_columns

        found = read_columns(file, _POSITION_DELETES)
    else:
        found = _of_parquet(file) if file_format == "parquet" else _of_orc(file)
    paths, positions = found[0], found[1].cast(pyarrow.int64()).combine_chunks()
    if not pyarrow.types.is_dictionary(paths.type):
        paths = paths.cast(pyarrow.large_string()).dictionary_encode()
    encoded = paths.unify_dictionaries().combine_chunks()
    names = encoded.dictionary.cast(pyarrow.large_string())
    if encoded.null_count:
        raise FormatError("a deleted position has no path of a data file")
    if positions.null_count:
        raise FormatError("a deleted row has no position")
    order = compute.sort_indices(encoded.indices)
    runs = compute.run_end_encode(encoded.indices.take(order), run_end_type=pyarrow.int64())
    positions, start, made = positions.take(order), 0, {}
    for code, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        made[names[code].as_py()] = pyarrow.chunked_array([positions.slice(start, end - start)])
        start = end
    return made


def _of_parquet(file: Any) -> list[Any]:
    import pyarrow.parquet

    opened = pyarrow.parquet.ParquetFile(file)
    names = {int((each.metadata or {}).get(b"PARQUET:field_id", -1)): each.name for each in opened.schema_arrow}
    wanted = [names.get(field_id, name) for field_id, name in _POSITION_DELETES.items()]
    _refuse_bomb(opened.metadata, file.seek(0, io.SEEK_END))
    # Paths of a hundred characters are the same in many rows.
    opened = pyarrow.parquet.ParquetFile(file, metadata=opened.metadata, read_dictionary=wanted[:1])
    columns: list[Any] = opened.read(wanted).select(wanted).columns
    return columns


def _refuse_bomb(metadata: Any, size: int) -> None:
    """Refuse more rows than positions in so many bytes can be."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    # Memory is allocated for the number of values that the columns claim, not the row groups.
    rows = sum(
        max((group.column(each).num_values for each in range(metadata.num_columns)), default=0) for group in groups
    )
    most = _FREE_ROWS + _ROWS_PER_BYTE * size
    if rows > most:
        raise UnsupportedError(
            f"{size:,} bytes have {rows:,} deleted positions, and more than {most:,} are not read: if it is meant to "
            "be, write the deletes again, as several files"
        )


def _of_orc(file: Any) -> list[Any]:
    import pyarrow.orc

    names = list(_POSITION_DELETES.values())
    columns: list[Any] = pyarrow.orc.ORCFile(file).read(names).select(names).columns
    return columns
