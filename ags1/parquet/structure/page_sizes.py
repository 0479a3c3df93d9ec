"""What the pages of a column chunk become once decoded, from their headers, which every reader follows.

The footer has sums of these sizes. Nothing depends on the sums, so those of a hostile file may be anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from ags1.parquet.native.pages import Chunk, PageList, PageSource
from ags1.parquet.native.thrift import BINARY, I32, I64, LIST, STRUCT, List, Struct
from ags1.parquet.structure.fields import (
    ColumnChunk,
    ColumnMetaData,
    DataPageHeader,
    DataPageHeaderV2,
    DictionaryPageHeader,
    FileMetaData,
    PageHeader,
    RowGroup,
    SchemaElement,
)
from ags1.support.typing import Buffer

_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_PLAIN, _RLE, _DELTA_BYTE_ARRAY = 0, 3, 7
_DICTIONARY_ENCODINGS = (2, 8)
_BYTE_ARRAY, _REQUIRED = 6, 0
_CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
_MAGIC = b"PAR1"
# A hostile chunk may have millions of pages.
_ALL, _WALKED = 1 << 62, 4096


@dataclass(slots=True)
class PageSizes:
    """Sizes of a column chunk, in bytes without compression.

    Attributes
    ----------
    total : int
        Of all pages.
    count : int
        Number of values, nulls included.
    values : int
        Of data pages that have their values themselves.
    indexed : int
        Number of values that refer to the dictionary.
    dictionary : int
        Of the dictionary page; 0 if there is none.
    dictionary_values : int
        Number of values in it.
    dictionary_place : (int, int)
        Offset in the file, and stored bytes, of its values.
    expanding : int
        Of the largest page in DELTA_BYTE_ARRAY, where each value may repeat the page up to it.
    """

    total: int = 0
    count: int = 0
    values: int = 0
    indexed: int = 0
    dictionary: int = 0
    dictionary_values: int = 0
    dictionary_place: tuple[int, int] = (0, 0)
    expanding: int = 0


def page_sizes(
    data: Buffer, start: int, num_values: int, label: str, row_group: int, pages: PageList | None = None
) -> PageSizes:
    """Return the sizes of a plaintext column chunk.

    Parameters
    ----------
    data : buffer
        The chunk's bytes.
    start : int
        Its offset in the file.
    num_values : int
        Of the chunk, as the footer says: readers read no page after the one with the last of them.
    label, row_group : str, int
        Names of the column and of its row group, for messages.
    pages : PageList, optional
        An empty list, which is empty again afterwards: making one costs more than a few pages.

    Raises
    ------
    FormatError, TruncatedError
        There are other pages than a reader expects.
    """
    source = PageSource(data, base=start)
    length = source.size - start
    chunk = Chunk(start, length, num_values, label, source_ordinals=(row_group, 0), ends_with_values=True)
    pages, found = pages or PageList(), PageSizes()
    while not chunk.done and chunk.values < num_values:
        pages.add(chunk, source, _ALL, _WALKED)
        for page in pages.details():
            size, count, kind = page["uncompressed_length"], page["values"], page["type"]
            if kind not in (_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2):
                continue
            found.total += size
            header = Struct.parse(page["header"], what="page header")
            if kind == _DICTIONARY_PAGE:
                found.dictionary = size
                found.dictionary_values = _detail(
                    header, PageHeader.DICTIONARY_PAGE_HEADER, DictionaryPageHeader.NUM_VALUES
                )
                found.dictionary_place = (page["offset"] + page["header_length"], page["body_length"])
                continue
            if kind == _DATA_PAGE:
                encoding = _detail(header, PageHeader.DATA_PAGE_HEADER, DataPageHeader.ENCODING)
            else:
                encoding = _detail(header, PageHeader.DATA_PAGE_HEADER_V2, DataPageHeaderV2.ENCODING)
            found.count += count
            if encoding in _DICTIONARY_ENCODINGS:
                found.indexed += count
            else:
                found.values += size
            if encoding == _DELTA_BYTE_ARRAY:
                found.expanding = max(found.expanding, size)
        pages.clear()
    return found


def _detail(header: Struct, struct: int, field: int) -> int:
    found = header.struct(struct)
    return 0 if found is None else found.integer(field, 0)


def longest_value(values: Buffer, codec: str, size: int, count: int) -> int:
    """Return the length of the longest value of a dictionary of texts or binaries.

    Parameters
    ----------
    values : buffer
        The dictionary page without its header.
    codec : str
        Of the column, as PyArrow names it.
    size, count : int
        Bytes without compression, and number of values.

    Raises
    ------
    pyarrow.ArrowException, OSError
        They are damaged.
    """
    import pyarrow
    import pyarrow.compute
    import pyarrow.parquet

    # As the only data page of a file: a reader of dictionaries would look for equal values, which takes far longer.
    stored = len(memoryview(values))
    page = _struct(
        {PageHeader.TYPE: _DATA_PAGE, PageHeader.UNCOMPRESSED_PAGE_SIZE: size, PageHeader.COMPRESSED_PAGE_SIZE: stored}
    )
    encodings = {DataPageHeader.DEFINITION_LEVEL_ENCODING: _RLE, DataPageHeader.REPETITION_LEVEL_ENCODING: _RLE}
    details = _struct({DataPageHeader.NUM_VALUES: count, DataPageHeader.ENCODING: _PLAIN, **encodings})
    page.set(PageHeader.DATA_PAGE_HEADER, STRUCT, details)
    header = page.encode()
    footer = _footer(_CODECS.index(codec), size + len(header), stored + len(header), count)
    file = b"".join((_MAGIC, header, values, footer, len(footer).to_bytes(4, "little"), _MAGIC))
    read = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(file)).read(use_threads=False).column(0)
    longest: int | None = pyarrow.compute.max(pyarrow.compute.binary_length(read)).as_py()
    return longest or 0


def _footer(codec: int, size: int, stored: int, count: int) -> bytes:
    root = _struct({SchemaElement.NUM_CHILDREN: 1})
    leaf = _struct({SchemaElement.TYPE: _BYTE_ARRAY, SchemaElement.REPETITION_TYPE: _REQUIRED})
    for each in (root, leaf):
        each.set(SchemaElement.NAME, BINARY, b"v")
    metadata = _struct({ColumnMetaData.TYPE: _BYTE_ARRAY, ColumnMetaData.CODEC: codec})
    metadata.set(ColumnMetaData.ENCODINGS, LIST, List(I32, [_PLAIN]))
    metadata.set(ColumnMetaData.PATH_IN_SCHEMA, LIST, List(BINARY, [b"v"]))
    for field, number in (
        (ColumnMetaData.NUM_VALUES, count),
        (ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE, size),
        (ColumnMetaData.TOTAL_COMPRESSED_SIZE, stored),
        (ColumnMetaData.DATA_PAGE_OFFSET, len(_MAGIC)),
    ):
        metadata.set(field, I64, number)
    chunk = Struct()
    chunk.set(ColumnChunk.FILE_OFFSET, I64, 0)
    chunk.set(ColumnChunk.META_DATA, STRUCT, metadata)
    group = Struct()
    group.set(RowGroup.COLUMNS, LIST, List(STRUCT, [chunk]))
    group.set(RowGroup.TOTAL_BYTE_SIZE, I64, size)
    group.set(RowGroup.NUM_ROWS, I64, count)
    footer = _struct({FileMetaData.VERSION: 1})
    footer.set(FileMetaData.SCHEMA, LIST, List(STRUCT, [root, leaf]))
    footer.set(FileMetaData.NUM_ROWS, I64, count)
    footer.set(FileMetaData.ROW_GROUPS, LIST, List(STRUCT, [group]))
    return footer.encode()


def _struct(numbers: dict[int, int]) -> Struct:
    made = Struct()
    for field, number in numbers.items():
        made.set(field, I32, number)
    return made
