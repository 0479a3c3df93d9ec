"""Checks that the parts of a Parquet file agree: sizes, offsets, counts, ordinals. Pure; reads nothing.

Each function returns the contradictions as (kind of module, text). Only readers that use the wrong part fail; other
readers do not notice it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ags1.parquet.native import modules
from ags1.parquet.native.thrift import STRUCT, List, Struct
from ags1.parquet.structure.chunks import SourceChunk, foretells_dictionary
from ags1.parquet.structure.fields import ColumnChunk, ColumnIndex, ColumnMetaData, OffsetIndex, PageLocation, RowGroup
from ags1.parquet.structure.source_file import SourceRowGroup

Disagreement = tuple[str, str]

_METADATA = modules.NAMES[modules.COLUMN_METADATA]
_ROW_GROUP = "row group"


@dataclasses.dataclass(slots=True)
class FoundPages:
    """The result of a walk over the pages of a column chunk, in the units of ColumnMetaData."""

    # Offset and stored size, header included, of each.
    data_pages: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    dictionary_offset: int | None = None
    stored: int = 0
    uncompressed: int = 0
    values: int = 0


def page_disagreements(chunk: SourceChunk, found: FoundPages) -> Iterator[Disagreement]:
    """Column metadata and pages."""
    metadata = chunk.known_metadata()
    other = chunk.other_column()
    if other is not None:
        yield _METADATA, f"{chunk.name}: path_in_schema is that of column {other!r}"
    values = metadata.integer(ColumnMetaData.NUM_VALUES, 0)
    if found.values != values:
        yield _METADATA, f"{chunk.name}: num_values is {values}, but its pages have {found.values}"
    if not found.stored:
        return
    first = found.data_pages[0][0] if found.data_pages else metadata.integer(ColumnMetaData.DATA_PAGE_OFFSET)
    for field, what, counted in (
        (ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE, "total_uncompressed_size", found.uncompressed),
        (ColumnMetaData.TOTAL_COMPRESSED_SIZE, "total_compressed_size", found.stored),
        (ColumnMetaData.DATA_PAGE_OFFSET, "data_page_offset", first),
    ):
        stated = metadata.integer(field)
        if stated != counted:
            yield _METADATA, f"{chunk.name}: {what} is {stated}, but by its pages it is {counted}"
    yield from _dictionary_disagreements(chunk, found, metadata)


def _dictionary_disagreements(chunk: SourceChunk, found: FoundPages, metadata: Struct) -> Iterator[Disagreement]:
    """The fields that tell readers, before they decrypt it, whether the first page is a dictionary page."""
    offset = found.dictionary_offset
    there = f"there is one at {offset}" if offset is not None else "there is none"
    kind = modules.NAMES[modules.DICTIONARY_PAGE]
    stated = metadata.integer(ColumnMetaData.DICTIONARY_PAGE_OFFSET)
    # Old writers store 0 for none.
    if (stated or None) != offset:
        yield kind, f"{chunk.name}: dictionary_page_offset is {stated}, but {there}"
    if not chunk.encrypted or not found.values:
        return
    foretold = foretells_dictionary(metadata)
    if foretold != (offset is not None):
        what = "encoding_stats" if ColumnMetaData.ENCODING_STATS in metadata else "encodings"
        says = "a dictionary page" if foretold else "none"
        yield kind, f"{chunk.name}: its {what} foretell {says} to parquet-java, but {there}"


def column_index_disagreements(chunk: SourceChunk, found: FoundPages, index: Struct) -> Iterator[Disagreement]:
    """Column index and pages."""
    kind = modules.NAMES[modules.COLUMN_INDEX]
    pages = len(found.data_pages)
    for field, what in (
        (ColumnIndex.NULL_PAGES, "null_pages"),
        (ColumnIndex.MIN_VALUES, "min_values"),
        (ColumnIndex.MAX_VALUES, "max_values"),
        (ColumnIndex.NULL_COUNTS, "null_counts"),
    ):
        entries = index.list(field)
        if entries is not None and len(entries) != pages:
            yield kind, f"{kind} of {chunk.name} has {len(entries)} {what} for {pages} data pages"


def offset_index_disagreements(chunk: SourceChunk, found: FoundPages, index: Struct) -> Iterator[Disagreement]:
    """Offset index and pages; all entries that are wrong are one contradiction."""
    kind = modules.NAMES[modules.OFFSET_INDEX]
    name = f"{kind} of {chunk.name}"
    entries = list((index.list(OffsetIndex.PAGE_LOCATIONS) or List(STRUCT)).structs())
    if len(entries) != len(found.data_pages):
        yield kind, f"{name} has {len(entries)} entries for {len(found.data_pages)} data pages"
        return
    row, wrong, first = 0, 0, ""
    for number, (entry, (offset, size)) in enumerate(zip(entries, found.data_pages, strict=True)):
        stated = (entry.integer(PageLocation.OFFSET), entry.integer(PageLocation.COMPRESSED_PAGE_SIZE))
        before, row = row, entry.integer(PageLocation.FIRST_ROW_INDEX, -1)
        if stated != (offset, size):
            fault = f"has offset {stated[0]} and size {stated[1]} for data page {number}, not {offset} and {size}"
        elif row < before or (number == 0 and row):
            fault = f"has first row {row} for data page {number}, and {before} for the page before"
        else:
            continue
        wrong += 1
        first = first or fault
    if wrong:
        more = f" (and {wrong - 1} more entries are wrong)" if wrong > 1 else ""
        yield kind, f"{name} {first}{more}"


def visible_disagreements(chunk: SourceChunk) -> Iterator[Disagreement]:
    """Checks of what a plaintext footer shows of an encrypted column: no statistics, and nothing wrong."""
    visible, metadata = chunk.structure.struct(ColumnChunk.META_DATA), chunk.known_metadata()
    if visible is None:
        return
    if ColumnMetaData.STATISTICS in visible:
        yield _METADATA, f"the footer shows the statistics of encrypted {chunk.name}"
    different = [each for each in visible.ids() if visible.get(each) != metadata.get(each)]
    if different:
        yield _METADATA, f"{chunk.name}: fields {different[:10]} of its copy in the footer differ"


def row_group_disagreements(
    group: SourceRowGroup, chunks: list[SourceChunk | None], *, encrypted: bool
) -> Iterator[Disagreement]:
    """A row group and its column chunks; a chunk that is not known is None."""
    structure, name = group.structure, f"row group {group.index}"
    stated = structure.integer(RowGroup.ORDINAL)
    if stated is not None and stated != group.index:
        yield _ROW_GROUP, f"{name} has ordinal {stated}"
    first = chunks[0] if chunks else None
    if first is not None:
        (at, length), start = first.extent(), structure.integer(RowGroup.FILE_OFFSET)
        if length and start is None and encrypted:
            yield _ROW_GROUP, f"{name} has no file_offset, by which parquet-java finds row groups of encrypted files"
        elif length and start is not None and start != at:
            yield _ROW_GROUP, f"{name}: file_offset is {start}, but its first page is at {at}"
    known = [each.known_metadata() for each in chunks if each is not None]
    if len(known) < len(chunks):
        return
    for field, what, summand in (
        (RowGroup.TOTAL_BYTE_SIZE, "total_byte_size", ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE),
        (RowGroup.TOTAL_COMPRESSED_SIZE, "total_compressed_size", ColumnMetaData.TOTAL_COMPRESSED_SIZE),
    ):
        total = sum(metadata.integer(summand, 0) for metadata in known)
        said = structure.integer(field, total)
        if said != total:
            yield _ROW_GROUP, f"{name}: {what} is {said}, but its columns have {total}"
