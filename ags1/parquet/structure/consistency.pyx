"""Checks that the parts of a Parquet file agree: sizes, offsets, counts, ordinals. Pure; reads nothing.

    footer         row group   [num_rows, total sizes]   column chunk [offsets, sizes, num_values]   visible copy
    index          offset index [place, size, first row of each page]      column index [one bound of each page]
    the file       dictionary page, pages                                  what the walk found

Each function adds the contradictions to `problems`, as (kind of module, text). Only readers that use the wrong part
fail; other readers do not notice it.
"""

cimport cython
from libc.stdint cimport int64_t

from ags1.parquet.native.modules cimport (
    MODULE_COLUMN_INDEX, MODULE_COLUMN_METADATA, MODULE_DICTIONARY_PAGE, MODULE_OFFSET_INDEX,
)
from ags1.parquet.native.thrift cimport List, Struct
from ags1.parquet.structure.chunks cimport SourceChunk, foretells_dictionary
from ags1.parquet.structure.fields cimport (
    DATA_PAGE_OFFSET, DICTIONARY_PAGE_OFFSET, ENCODING_STATS, GROUP_FILE_OFFSET, GROUP_ORDINAL,
    LOCATION_COMPRESSED_PAGE_SIZE, LOCATION_FIRST_ROW_INDEX, LOCATION_OFFSET, META_DATA, NUM_VALUES, PAGE_LOCATIONS,
    STATISTICS, TOTAL_COMPRESSED_SIZE, TOTAL_UNCOMPRESSED_SIZE,
)

from ags1.parquet.native.modules import NAMES
from ags1.parquet.structure.fields import ColumnIndex, RowGroup

cdef str METADATA_NAME = NAMES[MODULE_COLUMN_METADATA]
cdef str DICTIONARY_NAME = NAMES[MODULE_DICTIONARY_PAGE]
cdef str COLUMN_INDEX_NAME = NAMES[MODULE_COLUMN_INDEX]
cdef str OFFSET_INDEX_NAME = NAMES[MODULE_OFFSET_INDEX]
cdef str ROW_GROUP_NAME = "row group"

cdef tuple INDEX_LISTS = (
    (ColumnIndex.NULL_PAGES, "null_pages"), (ColumnIndex.MIN_VALUES, "min_values"),
    (ColumnIndex.MAX_VALUES, "max_values"), (ColumnIndex.NULL_COUNTS, "null_counts"),
)
cdef tuple GROUP_SUMS = (
    (RowGroup.TOTAL_BYTE_SIZE, "total_byte_size", TOTAL_UNCOMPRESSED_SIZE),
    (RowGroup.TOTAL_COMPRESSED_SIZE, "total_compressed_size", TOTAL_COMPRESSED_SIZE),
)


@cython.final
cdef class FoundPages:
    """The result of a walk over the pages of a column chunk, in the units of """

    def __cinit__(self):
        self.data_pages = []


cdef int page_disagreements(SourceChunk chunk, FoundPages found, list problems) except -1:
    """Column metadata and pages."""
    cdef Struct metadata = chunk.known_metadata()
    other = chunk.other_column()
    if other is not None:
        problems.append((METADATA_NAME, f"{chunk.name}: path_in_schema is that of column {other!r}"))
    values = metadata.integer(NUM_VALUES, 0)
    if found.values != values:
        problems.append(
            (METADATA_NAME, f"{chunk.name}: num_values is {values}, but its pages have {found.values}")
        )
    if not found.stored:
        return 0
    first = found.data_pages[0][0] if found.data_pages else metadata.integer(DATA_PAGE_OFFSET)
    for field, what, counted in (
        (TOTAL_UNCOMPRESSED_SIZE, "total_uncompressed_size", found.uncompressed),
        (TOTAL_COMPRESSED_SIZE, "total_compressed_size", found.stored), (DATA_PAGE_OFFSET, "data_page_offset", first),
    ):
        stated = metadata.integer(field)
        if stated != counted:
            text = f"{chunk.name}: {what} is {stated}, but by its pages it is {counted}"
            problems.append((METADATA_NAME, text))
    _dictionary_disagreements(chunk, found, metadata, problems)
    return 0


cdef int _dictionary_disagreements(SourceChunk chunk, FoundPages found, Struct metadata, list problems) except -1:
    """The fields that tell readers, before they decrypt it, whether the first page is a dictionary page."""
    cdef bint foretold
    offset = found.dictionary_offset
    stated = metadata.integer(DICTIONARY_PAGE_OFFSET)
    there = f"there is one at {offset}" if offset is not None else "there is none"
    # Old writers store 0 for none.
    if (stated or None) != offset:
        problems.append((DICTIONARY_NAME, f"{chunk.name}: dictionary_page_offset is {stated}, but {there}"))
    if not chunk.encrypted or not found.values:
        return 0
    foretold = foretells_dictionary(metadata)
    if foretold != (offset is not None):
        what = "encoding_stats" if ENCODING_STATS in metadata else "encodings"
        says = "a dictionary page" if foretold else "none"
        text = f"{chunk.name}: its {what} foretell {says} to parquet-java, but {there}"
        problems.append((DICTIONARY_NAME, text))
    return 0


cdef int column_index_disagreements(SourceChunk chunk, FoundPages found, Struct index, list problems) except -1:
    """Column index and pages."""
    cdef List entries
    cdef Py_ssize_t pages = len(found.data_pages)
    for field, what in INDEX_LISTS:
        entries = index.list(field)
        if entries is not None and len(entries) != pages:
            text = f"{COLUMN_INDEX_NAME} of {chunk.name} has {len(entries)} {what} for {pages} data pages"
            problems.append((COLUMN_INDEX_NAME, text))
    return 0


cdef int offset_index_disagreements(SourceChunk chunk, FoundPages found, Struct index, list problems) except -1:
    """Offset index and pages; all entries that are wrong are one contradiction."""
    cdef List locations = index.list(PAGE_LOCATIONS)
    cdef list entries = [] if locations is None else list(locations.structs())
    cdef Struct entry
    cdef int64_t number
    row, wrong, first = 0, 0, ""
    if len(entries) != len(found.data_pages):
        text = f"has {len(entries)} entries for {len(found.data_pages)} data pages"
        problems.append((OFFSET_INDEX_NAME, f"{OFFSET_INDEX_NAME} of {chunk.name} {text}"))
        return 0
    for number, entry in enumerate(entries):
        offset, size = found.data_pages[number]
        at, length = entry.integer(LOCATION_OFFSET), entry.integer(LOCATION_COMPRESSED_PAGE_SIZE)
        before, row = row, entry.integer(LOCATION_FIRST_ROW_INDEX, -1)
        if at != offset or length != size:
            fault = f"has offset {at} and size {length} for data page {number}, not {offset} and {size}"
        elif row < before or (number == 0 and row):
            fault = f"has first row {row} for data page {number}, and {before} for the page before"
        else:
            continue
        wrong += 1
        first = first or fault
    if not wrong:
        return 0
    more = f" (and {wrong - 1} more entries are wrong)" if wrong > 1 else ""
    problems.append((OFFSET_INDEX_NAME, f"{OFFSET_INDEX_NAME} of {chunk.name} {first}{more}"))
    return 0


cdef int visible_disagreements(SourceChunk chunk, list problems) except -1:
    """Checks of what a plaintext footer shows of an encrypted column: no statistics, and nothing wrong."""
    cdef Struct visible = chunk.structure.struct(META_DATA), metadata = chunk.known_metadata()
    if visible is None:
        return 0
    if STATISTICS in visible:
        problems.append((METADATA_NAME, f"the footer shows the statistics of encrypted {chunk.name}"))
    different = [each for each in visible.ids() if visible.get(each) != metadata.get(each)]
    if different:
        problems.append((METADATA_NAME, f"{chunk.name}: fields {different[:10]} of its copy in the footer differ"))
    return 0


cdef int row_group_disagreements(object group, list chunks, bint encrypted, list problems) except -1:
    """A row group and its column chunks; a chunk that is not known is None."""
    cdef Struct structure = group.structure, metadata
    cdef SourceChunk first = chunks[0] if chunks else None, each
    cdef list known = []
    name = f"row group {group.index}"
    stated = structure.integer(GROUP_ORDINAL)
    if stated is not None and stated != group.index:
        problems.append((ROW_GROUP_NAME, f"{name} has ordinal {stated}"))
    if first is not None:
        at, length = first.extent()
        start = structure.integer(GROUP_FILE_OFFSET)
        if length and start is None and encrypted:
            text = f"{name} has no file_offset, by which parquet-java finds row groups of encrypted files"
            problems.append((ROW_GROUP_NAME, text))
        elif length and start is not None and start != at:
            problems.append((ROW_GROUP_NAME, f"{name}: file_offset is {start}, but its first page is at {at}"))
    for each in chunks:
        if each is None:
            return 0
        known.append(each.known_metadata())
    for field, what, summand in GROUP_SUMS:
        total = 0
        for metadata in known:
            total += metadata.integer(summand, 0)
        said = structure.integer(field, total)
        if said != total:
            problems.append((ROW_GROUP_NAME, f"{name}: {what} is {said}, but its columns have {total}"))
    return 0
