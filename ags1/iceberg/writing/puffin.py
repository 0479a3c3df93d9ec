"""Deletion vectors in a new Puffin file.

    PFA1 | blob | blob | ... | PFA1 | footer: JSON | length of the JSON (4, LE) | flags (4) | PFA1
    blob: length (4, BE) | D1 D3 39 64 | bitmaps: number (8, LE), then high key (4, LE) and a 32-bit Roaring bitmap each
          | CRC-32 of magic and bitmaps (4, BE)

Source: Puffin spec, "File structure" and "deletion-vector-v1"; Iceberg table spec, "Deletion Vectors".
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any

from ags1._version import version
from ags1.iceberg.deletion_vectors import DeletionVector
from ags1.iceberg.manifests import POSITION_DELETES
from ags1.iceberg.writing.table_files import TableFiles

__all__ = ["vector_files", "write_vectors"]

_PUFFIN, _MAGIC = b"PFA1", b"\xd1\xd3\x39\x64"
# Of the column _pos, which the vector is about.
_ROW_POSITION = 2147483645


def write_vectors(puffin: str, vectors: Iterable[tuple[str, Any]]) -> tuple[bytes, list[DeletionVector]]:
    """Plaintext of the Puffin file of a path with the deleted positions (BitMap64) of data files, and its vectors."""
    parts, written, offset = [_PUFFIN], [], len(_PUFFIN)
    for path, positions in vectors:
        content = _MAGIC + positions.serialize()
        blob = b"".join((len(content).to_bytes(4, "big"), content, zlib.crc32(content).to_bytes(4, "big")))
        written.append(DeletionVector(puffin, path, offset, len(blob), len(positions)))
        parts.append(blob)
        offset += len(blob)
    blobs = [
        {
            "type": "deletion-vector-v1",
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


def vector_files(vectors: Iterable[tuple[str, Any]], files: TableFiles) -> list[dict[str, Any]]:
    """Write vectors into one Puffin file of a table.

    Return what a manifest has of each, in the same order, but its partition: that of the data file.
    """
    path = files.new_data_path("-deletes.puffin")
    data, written = write_vectors(path, vectors)
    length, key = files.write(path, data)
    return [
        {
            "content": POSITION_DELETES,
            "file_path": path,
            "file_format": "PUFFIN",
            "record_count": each.cardinality,
            "file_size_in_bytes": length,
            "referenced_data_file": each.data_file,
            "content_offset": each.offset,
            "content_size_in_bytes": each.size,
            **({} if key is None else {"key_metadata": key.encode()}),
        }
        for each in written
    ]
