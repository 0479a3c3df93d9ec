"""What the pages of a column chunk become once decoded, from their headers, which every reader follows.

The footer has sums of these sizes. Nothing depends on the sums, so those of a hostile file may be anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from ags1.parquet.native.pages import Chunk, PageList, PageSource
from ags1.parquet.native.thrift import Struct
from ags1.parquet.structure.fields import DataPageHeader, DataPageHeaderV2, DictionaryPageHeader, PageHeader
from ags1.support.typing import Buffer

_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_DELTA_BYTE_ARRAY = 7
_DICTIONARY_ENCODINGS = (2, 8)
# A hostile chunk may have millions of pages.
_ALL, _WALKED = 1 << 62, 4096
# Most writers end a dictionary at a mebibyte.
_LOOKED_AT = 1 << 19


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
    """Return the length of the longest value of a dictionary of texts or binaries; `size` if that is not known.

    Parameters
    ----------
    values : buffer
        The dictionary page without its header.
    codec : str
        Of the column, as PyArrow names it.
    size, count : int
        Bytes without compression, and number of values.
    """
    import pyarrow

    if count > _LOOKED_AT:
        return size
    try:
        if codec != "UNCOMPRESSED":
            values = pyarrow.decompress(values, size, "lz4_raw" if codec == "LZ4" else codec.lower())
    except (pyarrow.ArrowException, ValueError, OSError):
        # The page is damaged, or old LZ4, which has a form of its own.
        return size
    plain = memoryview(values)
    longest = place = 0
    while place < len(plain):
        length = int.from_bytes(plain[place : place + 4], "little")
        longest, place = max(longest, length), place + 4 + length
    return min(longest, size)
