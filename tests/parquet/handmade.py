"""Parquet files with what writers at hand do not write: unknown fields, old habits, gaps, rare pages.

Each change takes a file that PyArrow wrote and lays it out anew. ``CHANGES`` and ``UNREADABLE`` name them, with the
base that they want.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pyarrow as pa

from tests.parquet.reference import open_plain
from tests.parquet.reference_model import DATA_PAGE_V2, DICTIONARY_ENCODINGS, DICTIONARY_PAGE, INDEX_PAGE, Chunk, Page
from tests.parquet.reference_thrift import (
    BINARY,
    BOOL,
    DOUBLE,
    I8,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    SET,
    STRUCT,
    Mapping,
    Sequence,
    Struct,
)
from tests.parquet.reference_writer import write_plain

Change = Callable[[bytes], bytes]

LARGE_STATISTIC = bytes(range(256)) * 300
PLAIN = 0


def _chunk_structs(footer: Struct) -> Iterator[Struct]:
    for group in footer[4]:
        yield from group[1]


def _unknown() -> Struct:
    """A struct with fields of every type."""
    inner = Struct().put(1, I32, 7).put(40, BINARY, b"\xff\x00")
    return (
        Struct()
        .put(1, BOOL, True)
        .put(2, BOOL, False)
        .put(3, I8, -5)
        .put(4, I16, -300)
        .put(5, I32, 1 << 30)
        .put(6, I64, -(1 << 62))
        .put(7, DOUBLE, b"\x00\x00\x00\x00\x00\x00\xf8\x7f")
        .put(8, BINARY, b"not UTF-8: \xc3\x28")
        .put(9, LIST, Sequence(STRUCT, [inner, Struct()]))
        .put(10, SET, Sequence(I64, list(range(20))))
        .put(11, MAP, Mapping(BINARY, STRUCT, [(b"k", inner)]))
        .put(12, MAP, Mapping(0, 0))
        .put(13, LIST, Sequence(BOOL, [True, False]))
        .put(300, STRUCT, inner)
        .put(20000, LIST, Sequence(BINARY, []))
    )


def _all_structs(value: object) -> Iterator[Struct]:
    if isinstance(value, Struct):
        # Unions have one field by definition.
        yield value
        for _, item in list(value.fields.values()):
            yield from _all_structs(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _all_structs(item)


def _is_union_or_empty(value: Struct) -> bool:
    return len(value.fields) < 2


def unknown_fields(data: bytes) -> bytes:
    """Fields of a later version in every struct of the file."""
    file = open_plain(data)
    roots: list[Struct | None] = [file.footer]
    for chunk in file.chunks:
        roots += [chunk.metadata, chunk.column_index, chunk.offset_index, chunk.bloom_header]
        roots += [page.header for page in chunk.pages]
    # Chunks share their metadata with the footer.
    structs = {id(found): found for root in roots for found in _all_structs(root) if not _is_union_or_empty(found)}
    for found in structs.values():
        found.put(200, STRUCT, _unknown()).put(201, BOOL, False)
    return write_plain(file)


def _strange_page(type_: int, has_crc: bool) -> Page:
    header = Struct().put(1, I32, type_).put(2, I32, 9).put(3, I32, 9)
    if has_crc:
        header.put(4, I32, 0)
    if type_ == INDEX_PAGE:
        header.put(6, STRUCT, Struct())
    return Page(header, b"something", 0, 0, 9)


def _with_strange_pages(type_: int) -> Change:
    def change(data: bytes) -> bytes:
        file = open_plain(data)
        for chunk in file.chunks:
            first = 1 if chunk.pages[0].type == DICTIONARY_PAGE else 0
            for position in range(len(chunk.pages), first, -1):
                chunk.pages.insert(position, _strange_page(type_, position % 2 == 0))
        return write_plain(file)

    return change


def _with_padding(data: bytes) -> bytes:
    paddings = {"row group": b"\x00" * 11, "chunk": b"PAR1 padding", "footer": b"\xff" * 100}
    return write_plain(open_plain(data), pad=paddings.__getitem__)


def _with_footer(change: Callable[[Struct], object]) -> Change:
    return lambda data: write_plain(open_plain(data), finish=change)


def _dictionary_offset(value: int | None) -> Change:
    """As old writers had it: data_page_offset is that of the dictionary page."""

    def change(footer: Struct) -> None:
        for fields in _chunk_structs(footer):
            metadata = fields[3]
            if 11 in metadata:
                metadata.put(9, I64, metadata[11]).remove(11)
            if value is not None:
                metadata.put(11, I64, value)

    return _with_footer(change)


def _old_file_offset(footer: Struct) -> None:
    for fields in _chunk_structs(footer):
        metadata = fields[3]
        fields.put(2, I64, metadata.get(11, metadata[9]))


def _old_file_offset_behind(footer: Struct) -> None:
    for fields in _chunk_structs(footer):
        metadata = fields[3]
        fields.put(2, I64, metadata.get(11, metadata[9]) + metadata[7])


def _without_dictionary_headers(created_by: bytes) -> Callable[[Struct], None]:
    """parquet-mr before 1.2.9 left the header of the dictionary page out of total_compressed_size (PARQUET-816)."""

    def change(footer: Struct) -> None:
        footer.put(6, BINARY, created_by)
        for fields in _chunk_structs(footer):
            metadata = fields[3]
            if 11 in metadata:
                metadata.put(7, I64, metadata[7] - 14)

    return change


def without_dictionary_headers(data: bytes, created_by: bytes) -> bytes:
    """The file, as a writer with the fault of PARQUET-816 and this name leaves it."""
    return write_plain(open_plain(data), finish=_without_dictionary_headers(created_by))


def _without_statistics_names(footer: Struct) -> None:
    """created_by, column orders and encoding_stats are optional."""
    footer.remove(6, 7)
    for fields in _chunk_structs(footer):
        fields[3].remove(13, 16)


def _bare_row_groups(footer: Struct) -> None:
    for group in footer[4]:
        group.remove(5, 6, 7)


def _strange_key_values(footer: Struct) -> None:
    pairs = [
        Struct().put(1, BINARY, b"no value"),
        Struct().put(1, BINARY, b"twice").put(2, BINARY, b"1"),
        Struct().put(1, BINARY, b"twice").put(2, BINARY, b"2"),
        Struct().put(1, BINARY, b"").put(2, BINARY, b""),
    ]
    footer.put(5, LIST, Sequence(STRUCT, pairs))
    for fields in _chunk_structs(footer):
        fields[3].put(8, LIST, Sequence(STRUCT, copy.deepcopy(pairs)))


def _bytes_that_are_no_text(footer: Struct) -> None:
    pair = Struct().put(1, BINARY, b"\xff\xfe").put(2, BINARY, b"\xc3\x28")
    footer.put(5, LIST, Sequence(STRUCT, [pair])).put(6, BINARY, b"\x80 by")


def _without_index(kind: str) -> Change:
    def change(data: bytes) -> bytes:
        file = open_plain(data)
        for chunk in file.chunks:
            setattr(chunk, kind, None)
        return write_plain(file)

    return change


def _indexes_of_some_chunks(data: bytes) -> bytes:
    file = open_plain(data)
    for number, chunk in enumerate(file.chunks):
        if number % 2:
            chunk.column_index = chunk.offset_index = None
        if number % 3 == 0:
            chunk.column_index = None
    return write_plain(file)


def _some_checksums(data: bytes) -> bytes:
    file = open_plain(data)
    for chunk in file.chunks:
        for number, page in enumerate(chunk.pages):
            page.header.remove(4)
            if number % 2:
                page.header.put(4, I32, 0)
    return write_plain(file)


def _codec(chunk: Chunk) -> pa.Codec | None:
    return {1: pa.Codec("snappy"), 6: pa.Codec("zstd")}.get(chunk.metadata[4])


def _some_v2_pages_uncompressed(data: bytes) -> bytes:
    file = open_plain(data)
    for chunk in file.chunks:
        codec = _codec(chunk)
        assert codec is not None
        for number, page in enumerate(chunk.pages):
            if page.type != DATA_PAGE_V2:
                continue
            size = page.header[2] - len(page.repetition_levels) - len(page.definition_levels)
            is_compressed = page.header[8].get(7, True)
            if number % 2 and is_compressed:
                page.body = codec.decompress(page.body, size, asbytes=True)
                page.header[8].put(7, BOOL, False)
            elif is_compressed:
                # The default is true: many writers leave it out.
                page.header[8].remove(7)
    return write_plain(file)


def _large_page_headers(data: bytes) -> bytes:
    file = open_plain(data)
    for chunk in file.chunks:
        for page in chunk.data_pages[::3]:
            statistics = Struct().put(5, BINARY, LARGE_STATISTIC).put(6, BINARY, b"")
            number, field = (8, 8) if page.type == DATA_PAGE_V2 else (5, 5)
            if chunk.metadata[1] == 6:
                page.header[number].put(field, STRUCT, statistics)
        if chunk.column_index is not None and chunk.metadata[1] == 6:
            chunk.column_index[3].items[0] = LARGE_STATISTIC
    return write_plain(file)


def _unused_dictionary(data: bytes) -> bytes:
    """A dictionary page that no data page uses, in a chunk of which the pages are plain."""
    file = open_plain(data)
    donor = next(chunk for chunk in file.chunks if chunk.pages[0].type == DICTIONARY_PAGE)
    dictionary = donor.pages[0]
    for group in file.row_groups:
        chunk = next(chunk for chunk in group.chunks if chunk.path == donor.path)
        _make_plain(chunk)
        chunk.pages.insert(0, copy.deepcopy(dictionary))
        stats = [
            Struct().put(1, I32, DICTIONARY_PAGE).put(2, I32, PLAIN).put(3, I32, 1),
            Struct().put(1, I32, 0).put(2, I32, PLAIN).put(3, I32, 1),
        ]
        chunk.metadata.put(13, LIST, Sequence(STRUCT, stats))
        chunk.metadata.put(2, LIST, Sequence(I32, [PLAIN, 3]))
    return write_plain(file)


def _make_plain(chunk: Chunk) -> None:
    """One plain page of the number 0 in place of a chunk's pages; the column must be an INT64 without nulls."""
    assert chunk.metadata[1] == 2
    rows = chunk.metadata[5]
    body = bytes(8 * rows)
    compressed = body if (codec := _codec(chunk)) is None else codec.compress(body, asbytes=True)
    data = Struct().put(1, I32, rows).put(2, I32, PLAIN).put(3, I32, 3).put(4, I32, 3)
    header = Struct().put(1, I32, 0).put(2, I32, len(body)).put(3, I32, 0).put(5, STRUCT, data)
    chunk.pages = [Page(header, compressed, 0, 0, 0, 0)]
    chunk.metadata.remove(12)
    chunk.column_index = chunk.offset_index = None


def _bloom_filters_without_length(data: bytes) -> bytes:
    file = open_plain(data)
    for chunk in file.chunks:
        chunk.metadata.remove(15)
    return write_plain(file)


def _dictionaries_without_encoding_stats(footer: Struct) -> None:
    for fields in _chunk_structs(footer):
        fields[3].remove(13)
        uses = 11 in fields[3]
        assert uses == any(encoding in DICTIONARY_ENCODINGS for encoding in fields[3][2])


def _unknown_codes(footer: Struct) -> None:
    """A codec and a logical type of the future."""
    for fields in _chunk_structs(footer):
        fields[3].put(4, I32, 99)
    for element in footer[2].items[1:]:
        element.put(10, STRUCT, Struct().put(77, STRUCT, _unknown()))


def _unknown_encodings(data: bytes) -> bytes:
    file = open_plain(data)
    for chunk in file.chunks:
        for page in chunk.data_pages:
            number, field = (8, 4) if page.type == DATA_PAGE_V2 else (5, 2)
            page.header[number].put(field, I32, 55)
        kept = [entry for entry in chunk.metadata[13] if entry[1] == DICTIONARY_PAGE]
        counted = Struct().put(1, I32, chunk.data_pages[0].type).put(2, I32, 55).put(3, I32, len(chunk.data_pages))
        chunk.metadata.put(13, LIST, Sequence(STRUCT, [*kept, counted]))
        chunk.metadata.put(2, LIST, Sequence(I32, [55, 3]))
    return write_plain(file)


def _path_that_is_no_text(data: bytes) -> bytes:
    file = open_plain(data)
    for group in file.row_groups:
        group.chunks[0].metadata[3].items[0] = b"\xff\x00\xfe"
    file.footer[2][1].put(4, BINARY, b"\xff\x00\xfe")
    return write_plain(file)


def mix_page_versions(first: bytes, second: bytes) -> bytes:
    """The pages of one file and those of another by turns; they hold the same rows in the same pages."""
    one, other = open_plain(first), open_plain(second)
    for chunk, other_chunk in zip(one.chunks, other.chunks, strict=True):
        assert [page.num_values for page in chunk.pages] == [page.num_values for page in other_chunk.pages]
        chunk.pages = [
            (other_page if number % 2 else page)
            for number, (page, other_page) in enumerate(zip(chunk.pages, other_chunk.pages, strict=True))
        ]
    return write_plain(one)


CHANGES: dict[str, tuple[str, Change]] = {
    "unknown-fields": ("bloom", unknown_fields),
    "unknown-fields-v2": ("v2", unknown_fields),
    "index-pages": ("v1", _with_strange_pages(INDEX_PAGE)),
    "unknown-pages": ("v2", _with_strange_pages(77)),
    "padding": ("v1", _with_padding),
    "backwards": ("v1", lambda data: write_plain(open_plain(data), backwards=True)),
    "dictionary-offset-missing": ("v1", _dictionary_offset(None)),
    "dictionary-offset-zero": ("v2", _dictionary_offset(0)),
    "old-file-offset": ("v1", _with_footer(_old_file_offset)),
    "old-file-offset-behind": ("v1", _with_footer(_old_file_offset_behind)),
    "old-parquet-mr": ("v1", _with_footer(_without_dictionary_headers(b"parquet-mr version 1.2.8"))),
    "old-parquet-mr-without-version": ("v1", _with_footer(_without_dictionary_headers(b"parquet-mr"))),
    "few-optional-fields": ("v1", _with_footer(_without_statistics_names)),
    "no-encoding-stats": ("v2", _with_footer(_dictionaries_without_encoding_stats)),
    "bare-row-groups": ("v1", _with_footer(_bare_row_groups)),
    "strange-key-values": ("v1", _with_footer(_strange_key_values)),
    "no-offset-index": ("v1", _without_index("offset_index")),
    "no-column-index": ("v2", _without_index("column_index")),
    "some-indexes": ("v1", _indexes_of_some_chunks),
    "some-checksums": ("v2", _some_checksums),
    "some-v2-uncompressed": ("v2", _some_v2_pages_uncompressed),
    "large-page-headers": ("v1", _large_page_headers),
    "unused-dictionary": ("v1", _unused_dictionary),
    "bytes-that-are-no-text": ("v1", _with_footer(_bytes_that_are_no_text)),
    "path-that-is-no-text": ("v2", _path_that_is_no_text),
    "bloom-without-length": ("bloom", _bloom_filters_without_length),
}
"""Name of each file: which base it needs, and what is changed in it."""

UNREADABLE: dict[str, tuple[str, Change]] = {
    "unknown-codes": ("v1", _with_footer(_unknown_codes)),
    "unknown-encodings": ("v2", _unknown_encodings),
}
"""The same for files that PyArrow cannot read, which is no reason not to move their pages."""

INCONSISTENT = frozenset(
    {"dictionary-offset-missing", "dictionary-offset-zero", "old-parquet-mr", "old-parquet-mr-without-version"}
)
