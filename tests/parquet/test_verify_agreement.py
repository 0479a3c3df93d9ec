"""verify_file: what contradicts something else in a file is a problem, and what cannot be read a failure."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from ags1.parquet import DecryptionConfig, verify_file
from tests.parquet import corpus, reference_writer
from tests.parquet.reference import open_plain
from tests.parquet.reference_thrift import I16, I32, I64, STRUCT, Struct
from tests.parquet.reference_writer import Encryption, encrypt_reference, write_plain

FOOTER_KEY = b"footer key, 24 bytes ..."
COLUMN_KEYS = {"name": b"column key, 32 bytes ...........", "struct.y": b"another, 16 byte"}
KEYS = DecryptionConfig(FOOTER_KEY, column_keys=COLUMN_KEYS)
PLAIN = "everything-v1"


def encrypted(**options: Any) -> bytes:
    options = {"column_keys": COLUMN_KEYS, "encrypt_all": True, **options}
    return encrypt_reference(corpus.build(PLAIN), Encryption(FOOTER_KEY, **options))


def _changed(change: Any, **options: Any) -> bytes:
    """A file of which the reference writer was told lies; `change` is applied to its footer before encryption."""

    class Layout(reference_writer._Layout):
        def column_chunk(self, chunk: Any, fields: Any, metadata: Any, key: Any, place: Any) -> None:
            change(fields, metadata)
            super().column_chunk(chunk, fields, metadata, key, place)

        def set_row_group(self, fields: Any, metadata: Any, start: int, ordinal: int) -> None:
            super().set_row_group(fields, metadata, start, ordinal)
            change(fields, None)

    sealer = reference_writer._Sealer(Encryption(FOOTER_KEY, **options))
    return Layout(open_plain(corpus.build(PLAIN)), sealer).write()


@pytest.mark.parametrize(
    ("field", "kind", "text"),
    [
        (5, I64, None),
        (6, I64, "total_uncompressed_size is 12345, but by its pages"),
        (9, I64, None),
        (15, I32, "bloom_filter_length is 12345, but by the filter"),
    ],
)
def test_wrong_numbers_in_column_metadata_are_problems(field: int, kind: int, text: str | None) -> None:
    def change(fields: Struct, metadata: Struct | None) -> None:
        if metadata is None or field not in metadata:
            return
        if field == 5:
            metadata.put(5, kind, metadata[5] - 1)
        elif field == 9:
            # Inside the chunk, behind its start.
            metadata.put(9, kind, metadata[9] + (1 if 11 in metadata else 0))
        else:
            metadata.put(field, kind, 12345)

    report = verify_file(_changed(change), DecryptionConfig(FOOTER_KEY))
    assert report.ok, report
    assert report.having("contradiction")
    expected = text or {5: "num_values is", 9: "data_page_offset is"}[field]
    assert any(expected in each.message for each in report.having("contradiction"))


def test_values_that_are_missing_are_a_failure() -> None:
    def change(fields: Struct, metadata: Struct | None) -> None:
        if metadata is not None:
            metadata.put(5, I64, metadata[5] + 1)

    report = verify_file(_changed(change), DecryptionConfig(FOOTER_KEY))
    assert {each.details["module"] for each in report.having("damaged")} == {"column chunk"}
    assert "values in its pages, but its metadata says" in report.having("damaged")[0].message


@pytest.mark.parametrize(
    ("field", "kind", "text"),
    [
        (2, I64, "total_byte_size is 77, but its columns have"),
        (5, I64, "file_offset is 77, but its first page is at"),
        (6, I64, "total_compressed_size is 77, but its columns have"),
    ],
)
def test_wrong_numbers_of_row_groups_are_problems(field: int, kind: int, text: str) -> None:
    def change(fields: Struct, metadata: Struct | None) -> None:
        if metadata is None:
            fields.put(field, kind, 77)

    report = verify_file(_changed(change), DecryptionConfig(FOOTER_KEY))
    assert report.ok
    assert {each.details["module"] for each in report.having("contradiction")} == {"row group"}
    assert text in report.having("contradiction")[0].message
    assert "warning: contradiction: row group 0" in str(report)


def test_ordinals_beyond_int16_are_refused() -> None:
    for ordinal in (-1, 1 << 15, 1 << 40):

        def change(fields: Struct, metadata: Struct | None, ordinal: int = ordinal) -> None:
            if metadata is None:
                fields.put(7, I64, ordinal)

        report = verify_file(_changed(change), DecryptionConfig(FOOTER_KEY))
        assert {(each.details["module"], each.details["error"]) for each in report.having("damaged")} == {
            ("row group", "LimitError")
        }


def test_pages_outside_of_the_file_are_a_failure_of_their_chunk_only() -> None:
    def change(fields: Struct, metadata: Struct | None) -> None:
        if metadata is not None and list(metadata[3]) == [b"name"]:
            metadata.put(7, I64, 1 << 40)

    report = verify_file(_changed(change), DecryptionConfig(FOOTER_KEY))
    assert {(each.details["module"], each.subject) for each in report.having("damaged")} == {("column chunk", "name")}
    assert report.counts["damaged"] == report.facts["row_groups"]
    assert "are not inside the file" in report.having("damaged")[0].message


def test_encodings_that_foretell_another_first_page_are_problems() -> None:
    def change(fields: Struct, metadata: Struct | None) -> None:
        if metadata is not None and 11 in metadata:
            metadata.put(13, 9, type(metadata[13])(STRUCT, []))

    report = verify_file(_changed(change), DecryptionConfig(FOOTER_KEY))
    assert report.ok
    assert {each.details["module"] for each in report.having("contradiction")} == {"dictionary page"}
    assert (
        "its encoding_stats foretell none to parquet-java, but there is one at"
        in report.having("contradiction")[0].message
    )


def test_offset_indexes_that_disagree_with_the_pages_are_problems() -> None:
    file = open_plain(corpus.build(PLAIN))
    data = encrypted(column_keys=None)
    report = verify_file(data, DecryptionConfig(FOOTER_KEY))
    assert not report.having("contradiction")
    for chunk in file.chunks:
        assert chunk.offset_index is not None
        for entry in list(chunk.offset_index[1])[1:]:
            entry.put(3, I64, -5)
        assert chunk.column_index is not None
        chunk.column_index[1].items.append(False)
    report = verify_file(encrypt_reference(file, Encryption(FOOTER_KEY)), DecryptionConfig(FOOTER_KEY))
    assert report.ok
    kinds = Counter(each.details["module"] for each in report.having("contradiction"))
    assert kinds["column index"] == len(file.chunks)
    assert kinds["offset index"] == sum(len(chunk.data_pages) > 1 for chunk in file.chunks)


def test_page_locations_that_are_not_those_of_the_pages_are_a_problem() -> None:
    class Layout(reference_writer._Layout):
        def index(self, *arguments: Any) -> None:
            kind, index = arguments[5:7]
            if kind == "offset index":
                index[1].items[-1].put(1, I64, index[1].items[-1][1] + 1)
            super().index(*arguments)

    sealer = reference_writer._Sealer(Encryption(FOOTER_KEY))
    report = verify_file(Layout(open_plain(corpus.build(PLAIN)), sealer).write(), DecryptionConfig(FOOTER_KEY))
    assert report.ok
    assert {each.details["module"] for each in report.having("contradiction")} == {"offset index"}
    assert report.counts["contradiction"] == sum(
        len(chunk.pages) > 0 for chunk in open_plain(corpus.build(PLAIN)).chunks
    )


def test_a_dictionary_page_without_its_offset_is_a_problem() -> None:
    report = verify_file(corpus.build("dictionary-offset-missing"), DecryptionConfig(allow_plaintext=True))
    assert report.ok
    assert {each.details["module"] for each in report.having("contradiction")} == {"column metadata", "dictionary page"}
    assert any(
        "dictionary_page_offset is None, but there is one at 4" in each.message
        for each in report.having("contradiction")
    )


def test_an_ordinal_that_is_not_the_position_is_a_problem() -> None:
    def change(footer: Struct) -> None:
        footer[4].items[1].put(7, I16, 0)

    data = write_plain(open_plain(corpus.build(PLAIN)), finish=change)
    report = verify_file(data, DecryptionConfig(allow_plaintext=True))
    assert report.ok
    assert [(each.details["module"], each.message) for each in report.having("contradiction")] == [
        ("row group", "row group 1 has ordinal 0")
    ]


def test_a_copy_in_a_signed_footer_that_differs_is_a_problem() -> None:
    class Layout(reference_writer._Layout):
        def footer(self, footer: Struct) -> bytes:
            footer[4].items[0][1].items[0][3].put(5, I64, 99)
            return super().footer(footer)

    sealer = reference_writer._Sealer(Encryption(FOOTER_KEY, plaintext_footer=True))
    report = verify_file(Layout(open_plain(corpus.build(PLAIN)), sealer).write(), DecryptionConfig(FOOTER_KEY))
    assert report.ok
    assert [each.message for each in report.having("contradiction")] == [
        "column 'list.list.element' in row group 0: fields [5] of its copy in the footer differ"
    ]


def test_statistics_that_a_signed_footer_shows_are_a_problem() -> None:
    data = encrypted(plaintext_footer=True, hidden_fields=())
    report = verify_file(data, KEYS)
    assert report.ok
    assert any(
        "the footer shows the statistics of encrypted column 'name'" in each.message
        for each in report.having("contradiction")
    )


def test_a_plaintext_bloom_filter_of_an_encrypted_column_is_a_failure() -> None:
    """arrow-rs writes such files."""

    class Layout(reference_writer._Layout):
        def bloom_filter(self, chunk: Any, _fields: Any, metadata: Any, key: Any, place: Any) -> None:
            super().bloom_filter(chunk, _fields, metadata, None, place)

    sealer = reference_writer._Sealer(Encryption(FOOTER_KEY))
    report = verify_file(Layout(open_plain(corpus.build(PLAIN)), sealer).write(), DecryptionConfig(FOOTER_KEY))
    assert {each.details["module"] for each in report.having("damaged")} == {"Bloom filter header"}
    assert "its Bloom filter is not encrypted, although the column is" in report.having("damaged")[0].message
