"""Whether two Parquet files hold the same, once decrypted."""

from __future__ import annotations

from typing import Any

from tests.parquet.reference_model import DATA_PAGES, DICTIONARY_PAGE, Chunk, File, Page, RowGroup
from tests.parquet.reference_thrift import Sequence, Struct

# What must change when bytes move or are encrypted: positions, sizes as stored, and what belongs to encryption.
FOOTER = (4, 8, 9)
ROW_GROUP = (1, 2, 5, 6, 7)
CHUNK = (2, 3, 4, 5, 6, 7, 8, 9)
METADATA = (6, 7, 9, 10, 11, 14, 15)
PAGE_HEADER = (3, 4)
PAGE_LOCATION = (1, 2)


class _Comparison:
    def __init__(self) -> None:
        self.found: list[str] = []

    def same(self, what: str, one: Any, other: Any) -> bool:
        """Note what differs; structs field by field."""
        if one == other:
            return True
        if isinstance(one, Struct) and isinstance(other, Struct):
            for number in sorted(one.fields.keys() | other.fields.keys()):
                (type_, value), (other_type, other_value) = (
                    struct.fields.get(number, (None, None)) for struct in (one, other)
                )
                if type_ != other_type:
                    self.found.append(f"{what}, field {number}: of type {type_} and {other_type}")
                else:
                    self.same(f"{what}, field {number}", value, other_value)
        elif isinstance(one, Sequence) and isinstance(other, Sequence) and len(one) == len(other) and len(one):
            if one.element != other.element:
                self.found.append(f"{what}: elements of type {one.element} and {other.element}")
            for index, (value, other_value) in enumerate(zip(one, other, strict=True)):
                self.same(f"{what}[{index}]", value, other_value)
        else:
            self.found.append(f"{what}: {_short(one)} and {_short(other)}")
        return False

    def struct(self, what: str, one: Struct | None, other: Struct | None, without: tuple[int, ...] = ()) -> None:
        if one is None or other is None:
            if one is not other:
                self.found.append(f"{what}: only in the {'second' if one is None else 'first'} file")
            return
        self.same(what, one.without(*without), other.without(*without))

    def row_group(self, what: str, one: RowGroup, other: RowGroup) -> None:
        self.struct(what, one.fields, other.fields, ROW_GROUP)
        if self.same(f"{what}, number of columns", len(one.chunks), len(other.chunks)):
            for column, (chunk, other_chunk) in enumerate(zip(one.chunks, other.chunks, strict=True)):
                self.chunk(f"{what}, column {column} ({'.'.join(chunk.path)})", chunk, other_chunk)

    def chunk(self, what: str, one: Chunk, other: Chunk) -> None:
        if one.is_locked or other.is_locked:
            self.found.append(f"{what}: it was not opened")
            return
        self.struct(what, one.chunk, other.chunk, CHUNK)
        self.struct(f"{what}, metadata", one.metadata, other.metadata, METADATA)
        self.struct(f"{what}, column index", one.column_index, other.column_index)
        self.struct(f"{what}, offset index", _without_positions(one), _without_positions(other))
        self.struct(f"{what}, Bloom filter header", one.bloom_header, other.bloom_header)
        self.same(f"{what}, Bloom filter bitset", one.bloom_bitset, other.bloom_bitset)
        pages, other_pages = _known(one), _known(other)
        if self.same(f"{what}, number of pages", len(pages), len(other_pages)):
            for number, (page, other_page) in enumerate(zip(pages, other_pages, strict=True)):
                self.page(f"{what}, page {number}", page, other_page)

    def page(self, what: str, one: Page, other: Page) -> None:
        self.struct(f"{what}, header", one.header, other.header, PAGE_HEADER)
        self.same(f"{what}, whether it has a CRC", 4 in one.header, 4 in other.header)
        self.same(f"{what}, repetition levels", one.repetition_levels, other.repetition_levels)
        self.same(f"{what}, definition levels", one.definition_levels, other.definition_levels)
        self.same(f"{what}, body", one.body, other.body)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:40]}... ({len(value) if hasattr(value, '__len__') else '?'})"


def _known(chunk: Chunk) -> list[Page]:
    """Pages of the types that readers use; the others have no module type and cannot be encrypted."""
    return [page for page in chunk.pages if page.type in DATA_PAGES or page.type == DICTIONARY_PAGE]


def _without_positions(chunk: Chunk) -> Struct | None:
    """The offset index without where its pages lie, which the reference compares with the pages themselves."""
    index = chunk.offset_index
    if index is None or 1 not in index:
        return index
    type_, locations = index.fields[1]
    kept = Sequence(locations.element, [entry.without(*PAGE_LOCATION) for entry in locations])
    return Struct({**index.fields, 1: (type_, kept)})


def differences(one: File, other: File) -> list[str]:
    """What differs between two files, apart from what encryption and new positions must change.

    Pages of types that nobody reads are left out of account, and so are bytes between chunks.
    """
    comparison = _Comparison()
    comparison.struct("footer", one.footer, other.footer, FOOTER)
    if comparison.same("number of row groups", len(one.row_groups), len(other.row_groups)):
        for number, (group, other_group) in enumerate(zip(one.row_groups, other.row_groups, strict=True)):
            comparison.row_group(f"row group {number}", group, other_group)
    return comparison.found
