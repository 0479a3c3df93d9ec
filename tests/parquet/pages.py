"""Pages made by hand for the tests of the page walk and of the conversion: headers, chunks of them, and walks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ags1.parquet.native.page_conversion import crc32
from ags1.parquet.native.pages import Chunk, PageList, PageSource
from tests.parquet.reference_thrift import BINARY, BOOL, I32, STRUCT, Struct, encode

DATA, INDEX, DICTIONARY, DATA_V2 = range(4)
ALL = 1 << 40


def header(
    body: int,
    kind: int = DATA,
    values: int = 1,
    *,
    crc: int | None = None,
    repetition: int = 0,
    definition: int = 0,
    uncompressed: int | None = None,
    statistic: bytes | None = None,
) -> Struct:
    """A PageHeader for a body of so many bytes; the CRC as the unsigned number that it is."""
    made = Struct().put(1, I32, kind).put(2, I32, body if uncompressed is None else uncompressed).put(3, I32, body)
    if crc is not None:
        made.put(4, I32, crc - (1 << 32) if crc >> 31 else crc)
    if kind == DICTIONARY:
        return made.put(7, STRUCT, Struct().put(1, I32, values).put(2, I32, 0))
    counts = Struct().put(1, I32, values)
    if kind == DATA_V2:
        counts.put(2, I32, 0).put(3, I32, values).put(4, I32, 0).put(5, I32, definition).put(6, I32, repetition)
        counts.put(7, BOOL, False)
    else:
        counts.put(2, I32, 0).put(3, I32, 3).put(4, I32, 3)
    if statistic is not None:
        counts.put(8 if kind == DATA_V2 else 5, STRUCT, Struct().put(5, BINARY, statistic))
    return made.put(8 if kind == DATA_V2 else 5, STRUCT, counts)


def page(body: bytes, kind: int = DATA, *, checksum: bool = False, **options: Any) -> bytes:
    """A page in plaintext."""
    return encode(header(len(body), kind, crc=crc32(body) if checksum else None, **options)) + body


@contextmanager
def source_of(data: bytes, where: str, base: int = 0) -> Iterator[PageSource]:
    """The data in "memory" or in a "file"; in memory it may begin at an offset."""
    if where == "memory":
        yield PageSource(data[base:], base=base, name="lake.parquet")
        return
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        yield PageSource(file.fileno(), name="lake.parquet")


def walk(source: PageSource, chunk: Chunk, aad: bytes = b"", most: int = ALL) -> list[dict[str, Any]]:
    """All pages of a chunk."""
    found: list[dict[str, Any]] = []
    while not chunk.done:
        pages = PageList(aad)
        assert pages.add(chunk, source, most)
        found += pages.details()
    return found
