"""The corpus holds what its names promise."""

from __future__ import annotations

import hashlib
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.parquet import corpus
from tests.parquet.reference import open_plain
from tests.parquet.reference_model import DATA_PAGE, DATA_PAGE_V2, DICTIONARY_PAGE, INDEX_PAGE, File, Inconsistent
from tests.parquet.reference_thrift import decode, encode


def opened(name: str) -> File:
    return open_plain(corpus.build(name), strict=name not in corpus.INCONSISTENT)


def read(data: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(data), page_checksum_verification=True, use_threads=False)


def page_types(file: File) -> set[int]:
    return {page.type for chunk in file.chunks for page in chunk.pages}


def test_every_file_is_walked_to_its_last_byte(corpus_name: str) -> None:
    file = opened(corpus_name)
    assert sum(len(group.chunks) for group in file.row_groups) == len(file.chunks)
    # polars leaves a copy of the column metadata behind each chunk, as the first writers did.
    assert bool(file.gaps()) == (corpus_name == "padding" or corpus_name.startswith("polars"))
    assert len(file.data) < 400_000


def test_pyarrow_reads_every_file_that_it_can(corpus_name: str) -> None:
    data = corpus.build(corpus_name)
    if corpus_name in corpus.UNREADABLE:
        with pytest.raises((OSError, pa.ArrowException)):
            read(data)
    else:
        assert read(data).num_rows == open_plain(data, strict=False).footer[3]


def test_a_footer_survives_decoding_and_encoding(corpus_name: str) -> None:
    file = opened(corpus_name)
    raw = file.data[file.footer_offset : -8]
    assert decode(encode(decode(raw)[0])) == decode(raw)


def test_files_are_the_same_in_every_build() -> None:
    for name, builder in corpus.CORPUS.items():
        again = builder.__wrapped__()  # type: ignore[attr-defined]
        assert hashlib.sha256(again).digest() == hashlib.sha256(corpus.build(name)).digest(), name


@pytest.mark.parametrize("name", sorted(corpus.INCONSISTENT))
def test_files_of_old_writers_contradict_themselves(name: str) -> None:
    with pytest.raises(Inconsistent, match=r"dictionary_page_offset is|total_compressed_size ends"):
        open_plain(corpus.build(name))


@pytest.mark.parametrize("name", ["pages-v1", "pages-v2", "mixed-page-versions"])
def test_page_versions(name: str) -> None:
    expected = {"pages-v1": {DATA_PAGE}, "pages-v2": {DATA_PAGE_V2}}.get(name, {DATA_PAGE, DATA_PAGE_V2})
    assert page_types(opened(name)) == {*expected, DICTIONARY_PAGE}
    assert max(len(chunk.data_pages) for chunk in opened(name).chunks) > 3


@pytest.mark.parametrize("name", ["everything-v1", "everything-v2"])
def test_everything_has_everything(name: str) -> None:
    chunks = opened(name).chunks
    assert len(opened(name).row_groups) == 3
    assert all(chunk.column_index is not None and chunk.offset_index is not None for chunk in chunks)
    assert {chunk.path for chunk in chunks if chunk.bloom_bitset} == {("name",), ("struct", "y")}
    assert all(4 in page.header for chunk in chunks for page in chunk.pages)
    assert any(16 in chunk.metadata for chunk in chunks)
    assert all(len(chunk.data_pages) > 1 for chunk in chunks)
    if name == "everything-v2":
        assert {bool(page.repetition_levels) for chunk in chunks for page in chunk.data_pages} == {True, False}


@pytest.mark.parametrize("name", ["dictionary-fallback-v1", "dictionary-fallback-v2"])
def test_a_dictionary_is_given_up_inside_a_chunk(name: str) -> None:
    chunk = opened(name).chunks[0]
    assert chunk.pages[0].type == DICTIONARY_PAGE
    assert len({page.encoding for page in chunk.data_pages}) == 2


def test_files_made_by_hand_are_what_they_say() -> None:
    assert INDEX_PAGE in page_types(opened("index-pages"))
    assert 77 in page_types(opened("unknown-pages"))
    assert all(200 in chunk.metadata and 200 in chunk.chunk for chunk in opened("unknown-fields").chunks)
    assert all(200 in page.header for chunk in opened("unknown-fields").chunks for page in chunk.pages)
    assert all(200 in chunk.offset_index[1][0] for chunk in opened("unknown-fields").chunks if chunk.offset_index)
    assert all(chunk.offset_index is None and chunk.column_index for chunk in opened("no-offset-index").chunks)
    assert all(chunk.column_index is None and chunk.offset_index for chunk in opened("no-column-index").chunks)
    assert not opened("no-row-groups").row_groups
    assert {group.fields[3] for group in opened("zero-row-row-groups").row_groups} == {0, 10}
    assert any(not chunk.pages for chunk in opened("no-rows").chunks)
    assert all(not {5, 6, 7} & group.fields.fields.keys() for group in opened("bare-row-groups").row_groups)
    uncompressed = [
        page.header[8].get(7, True) for chunk in opened("some-v2-uncompressed").chunks for page in chunk.data_pages
    ]
    assert set(uncompressed) == {True, False}
    assert max(page.header_size for chunk in opened("large-page-headers").chunks for page in chunk.pages) > 65536
    first, *_ = opened("unused-dictionary").chunks
    assert [(page.type, page.encoding) for page in first.pages] == [(DICTIONARY_PAGE, 0), (DATA_PAGE, 0)]
    offsets = [chunk.pages[0].offset for chunk in opened("backwards").row_groups[0].chunks]
    assert offsets == sorted(offsets, reverse=True)
    assert len(opened("wide").row_groups[0].chunks) == 300


@pytest.mark.parametrize("name", ["polars", "polars-uncompressed"])
def test_metadata_lies_between_the_chunks_of_polars(name: str) -> None:
    """A file encrypted from it must not carry them: they hold statistics in plaintext."""
    file = opened(name)
    for chunk, (begin, end) in zip(file.chunks, file.gaps(), strict=True):
        copied, behind = decode(file.data, begin)
        assert behind == end
        assert (copied[3], copied.fields[12]) == (chunk.metadata[3], chunk.metadata.fields[12])
