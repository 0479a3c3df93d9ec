"""What pages become once decoded is what the reference finds in their headers, for files of every writer at hand."""

from __future__ import annotations

import random
import struct

import pytest

from ags1.parquet.structure.page_sizes import PageSizes, longest_value, page_sizes
from tests.parquet import corpus
from tests.parquet.reference import open_plain
from tests.parquet.reference_model import Chunk

DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
DICTIONARY_ENCODINGS, DELTA_BYTE_ARRAY = (2, 8), 7


def found_in(data: bytes, chunk: Chunk, number: int) -> PageSizes:
    first = chunk.pages[0]
    length = sum(page.stored_size for page in chunk.pages)
    part = data[first.offset : first.offset + length]
    return page_sizes(part, first.offset, int(chunk.metadata[5]), ".".join(chunk.path), number)


@pytest.mark.parametrize("name", sorted(corpus.CORPUS.keys() - corpus.INCONSISTENT - corpus.UNREADABLE))
def test_sizes_are_those_of_the_page_headers(name: str) -> None:
    file = open_plain(corpus.build(name))
    for number, group in enumerate(file.row_groups):
        # Readers read no page of a chunk without values.
        for chunk in (each for each in group.chunks if each.pages and int(each.metadata[5])):
            found = found_in(file.data, chunk, number)
            pages = [page for page in chunk.pages if page.type in (DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2)]
            values = {id(page): int(page.header[5 if page.type == DATA_PAGE else 8][1]) for page in chunk.data_pages}
            indexed = [page for page in chunk.data_pages if page.encoding in DICTIONARY_ENCODINGS]
            others = [page for page in chunk.data_pages if page.encoding not in DICTIONARY_ENCODINGS]
            expanding = [int(page.header[2]) for page in others if page.encoding == DELTA_BYTE_ARRAY]
            assert found.total == sum(int(page.header[2]) for page in pages)
            assert found.count == sum(values.values())
            assert found.indexed == sum(values[id(page)] for page in indexed)
            assert found.values == sum(int(page.header[2]) for page in others)
            assert found.expanding == max(expanding, default=0)
            for page in pages:
                if page.type == DICTIONARY_PAGE:
                    assert (found.dictionary, found.dictionary_values) == (int(page.header[2]), int(page.header[7][1]))
                    assert found.dictionary_place == (page.offset + page.header_size, page.body_size)


@pytest.mark.parametrize("seed", range(20))
def test_the_longest_value_is_found_and_never_longer_than_the_dictionary(seed: int) -> None:
    choices = random.Random(seed)
    lengths = [choices.randrange(1 << choices.randrange(12)) for _ in range(choices.randrange(200))]
    plain = b"".join(struct.pack("<I", length) + bytes(length) for length in lengths)
    assert longest_value(plain, "UNCOMPRESSED", len(plain)) == max(lengths, default=0)
    # Of damaged ones it need not be right, but no length leads out of the memory.
    damaged = bytearray(plain + b"\xff\xff\xff")
    for _ in range(20):
        damaged[choices.randrange(len(damaged))] ^= 1 << choices.randrange(8)
        assert 0 <= longest_value(damaged, "UNCOMPRESSED", len(damaged)) <= len(damaged)
    assert longest_value(b"damaged", "SNAPPY", 1000) == 1000


def test_of_an_encoding_that_is_said_twice_the_last_one_counts() -> None:
    """As for readers: a page that refers to the dictionary must not pass for one that has its values itself."""
    count, body = 100, bytes(10)
    # DataPageHeader: num_values, encoding PLAIN, encoding RLE_DICTIONARY (field 2 again), two encodings of levels.
    inner = bytes([0x15, *_zigzag(count), 0x15, 0x00, 0x05, 0x04, *_zigzag(8), 0x15, 0x06, 0x15, 0x06, 0x00])
    header = bytes([0x15, 0x00, 0x15, *_zigzag(10), 0x15, *_zigzag(10), 0x2C]) + inner + b"\x00"
    found = page_sizes(header + body, 4, count, "c", 0)
    assert (found.count, found.indexed, found.values) == (count, count, 0)


def _zigzag(value: int) -> list[int]:
    value, found = value << 1, list[int]()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return [*found, value]
