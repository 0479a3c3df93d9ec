"""The comparison finds each thing that may differ, and nothing that must."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.parquet import corpus
from tests.parquet.compare import differences
from tests.parquet.reference import open_plain
from tests.parquet.reference_model import File
from tests.parquet.reference_thrift import BINARY, BOOL, I32, I64, STRUCT, Struct
from tests.parquet.reference_writer import write_plain

NAME = "everything-v2"


def opened() -> File:
    return open_plain(corpus.build(NAME))


CHANGES: dict[str, tuple[str, Callable[[File], object]]] = {
    "number of row groups": ("number of row groups", lambda f: f.row_groups.pop()),
    "columns": ("row group 0, number of columns", lambda f: f.row_groups[0].chunks.pop()),
    "key-value metadata": ("footer, field 5", lambda f: f.footer[5][0].put(2, BINARY, b"changed")),
    "unknown footer field": ("footer, field 77", lambda f: f.footer.put(77, STRUCT, Struct())),
    "created_by": ("footer, field 6", lambda f: f.footer.remove(6)),
    "column orders": ("footer, field 7", lambda f: f.footer[7].items.pop()),
    "schema": ("footer, field 2", lambda f: f.footer[2][1].put(9, I32, 5)),
    "rows": ("row group 1, field 3", lambda f: f.row_groups[1].fields.put(3, I64, 1)),
    "file path": ("column 0 .*, field 1", lambda f: f.chunks[0].chunk.put(1, BINARY, b"elsewhere")),
    "codec": ("metadata, field 4", lambda f: f.chunks[0].metadata.put(4, I32, 1)),
    "statistics": ("metadata, field 12, field 3", lambda f: f.chunks[0].metadata[12].put(3, I64, 1000)),
    "size statistics": ("metadata, field 16", lambda f: f.chunks[0].metadata.remove(16)),
    "type of a field": (
        "metadata, field 5: of type",
        lambda f: f.chunks[0].metadata.put(5, I32, 150),
    ),
    "pages": ("number of pages", lambda f: f.chunks[0].pages.pop()),
    "page header": ("page 1, header, field 8", lambda f: f.chunks[0].pages[1].header[8].put(1, I32, 5)),
    "unknown field of a page": ("page 0, header", lambda f: f.chunks[0].pages[0].header.put(60, BOOL, True)),
    "CRC": ("whether it has a CRC", lambda f: f.chunks[0].pages[0].header.remove(4)),
    "body": ("page 1, body", lambda f: setattr(f.chunks[0].pages[1], "body", b"")),
    "repetition levels": ("repetition levels", lambda f: setattr(f.chunks[0].pages[1], "repetition_levels", b"")),
    "definition levels": ("definition levels", lambda f: setattr(f.chunks[0].pages[1], "definition_levels", b"")),
    "column index": (
        "column index, field 1",
        lambda f: f.chunks[0].column_index[1].items.pop(),
    ),
    "no column index": ("column index: only in the first", lambda f: setattr(f.chunks[0], "column_index", None)),
    "first row": (r"offset index, field 1\[1\], field 3", lambda f: f.chunks[0].offset_index[1][1].put(3, I64, 9)),
    "offset index": ("offset index: only in the first", lambda f: setattr(f.chunks[0], "offset_index", None)),
    "Bloom filter": ("Bloom filter bitset", lambda f: setattr(bloom(f), "bloom_bitset", b"\x00" * 32)),
    "Bloom filter header": ("Bloom filter header", lambda f: setattr(bloom(f), "bloom_header", None)),
    "locked": ("it was not opened", lambda f: setattr(f.chunks[0], "is_locked", True)),
}


def bloom(file: File) -> Any:
    return next(chunk for chunk in file.chunks if chunk.bloom_header is not None)


@pytest.mark.parametrize(("message", "change"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_found(message: str, change: Callable[[File], object]) -> None:
    changed = opened()
    change(changed)
    found = differences(opened(), changed)
    assert len(found) >= 1
    assert any(re.search(message, line) for line in found), found


def test_a_file_equals_itself_wherever_its_bytes_lie(corpus_name: str) -> None:
    file = open_plain(corpus.build(corpus_name), strict=False)
    moved = write_plain(file, pad=lambda _: b"\x00" * 7, backwards=True)
    assert moved != file.data
    assert differences(file, open_plain(moved)) == []
    assert differences(file, file) == []
