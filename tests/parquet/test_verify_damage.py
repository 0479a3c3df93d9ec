"""verify_file: every module that fails is found and named, whatever the others do, and nothing is decoded."""

from __future__ import annotations

from collections import Counter

import pytest

from ags1.parquet import DecryptionConfig, verify_file
from tests.checks import flip
from tests.parquet import corpus
from tests.parquet.reference import open_encrypted, open_plain
from tests.parquet.reference_model import CTR_PAGES
from tests.parquet.verified import (
    COLUMN_KEYS,
    DATA_KINDS,
    FOOTER_KEY,
    KEYS,
    NAME_KEY,
    OTHER_KEY,
    PLAIN,
    Y_KEY,
    contradictions,
    counted,
    encrypted,
    failures,
    missing_keys,
    modules,
    opened,
    place_of,
    places,
)


@pytest.mark.parametrize("kind", DATA_KINDS)
@pytest.mark.parametrize("name", ["everything-v1", "everything-v2"])
def test_a_flipped_bit_in_any_module_is_found_and_named(name: str, kind: str) -> None:
    data = encrypted(name, plaintext_footer=kind == "column metadata", data_page_v2="arrow")
    file = opened(data)
    modules = file.find_modules(kind)
    assert modules
    for module in {modules[0], modules[len(modules) // 2], modules[-1]}:
        # Nonce, ciphertext, tag.
        for position in (4, 16 + (module.length - 32) // 2, module.length - 1):
            broken = flip(data, module.offset + position)
            report = verify_file(broken, KEYS)
            failed = [place for place in places(report) if place[0] != "footer signature"]
            assert failed == [place_of(file, module)]
            assert not report.ok
            lost = sum(each.details.get("unchecked", 0) for each in failures(report))
            assert (lost > 0) == kind.endswith("page header")
            assert report.facts["unchecked_bytes"] == lost


@pytest.mark.parametrize("kind", DATA_KINDS)
def test_a_wrong_length_word_is_found_and_named(kind: str) -> None:
    data = encrypted(plaintext_footer=True)
    file = opened(data)
    module = file.find_modules(kind)[1]
    for position in (0, 3):
        report = verify_file(flip(data, module.offset + position), KEYS)
        failed = [place for place in places(report) if place[0] != "footer signature"]
        assert failed == [place_of(file, module)]


@pytest.mark.parametrize("position", [4, 20, -1])
def test_a_damaged_footer_module_is_named_and_ends_the_check(position: int) -> None:
    data = encrypted()
    (module,) = opened(data).find_modules("footer")
    at = module.offset + (position if position >= 0 else module.length - 1)
    report = verify_file(flip(data, at), KEYS)
    assert places(report) == [("footer", None, None, None, module.offset)]
    assert failures(report)[0].details["error"] == "AuthenticationError"
    assert (report.ok, report.facts["footer"]) == (False, "encrypted")
    assert report.facts["unchecked_bytes"] > 0
    assert "could not be checked" in str(report)


def test_a_damaged_signature_is_named_and_the_rest_is_checked() -> None:
    data = encrypted(plaintext_footer=True)
    file = opened(data)
    (module,) = file.find_modules("footer signature")
    for position in (0, 27):
        report = verify_file(flip(data, module.offset + position), KEYS)
        assert places(report) == [("footer signature", None, None, None, module.offset)]
        assert report.facts["signature_verified"] is False
        assert counted(report) == Counter(each.kind for each in file.modules if each.kind != "footer signature")


def test_a_changed_signed_footer_is_found_by_its_signature() -> None:
    data = encrypted(plaintext_footer=True)
    at = data.rindex(b"parquet-cpp-arrow")
    report = verify_file(flip(data, at), KEYS)
    assert modules(failures(report)) == ["footer signature"]


def test_a_stripped_signature_is_found() -> None:
    data = encrypted(plaintext_footer=True)
    (module,) = opened(data).find_modules("footer signature")
    length = int.from_bytes(data[-8:-4], "little") - 28
    report = verify_file(data[: module.offset] + length.to_bytes(4, "little") + b"PAR1", KEYS)
    assert modules(failures(report)) == ["footer signature"]
    assert "a footer signature has 28 bytes, not 0" in failures(report)[0].message


def test_several_failures_are_all_found() -> None:
    data = encrypted()
    file = opened(data)
    bad = [
        file.find_modules("data page")[3],
        file.find_modules("data page")[-1],
        file.find_modules("dictionary page")[0],
        file.find_modules("column index")[1],
        file.find_modules("offset index")[-1],
        file.find_modules("Bloom filter bitset")[0],
    ]
    for module in bad:
        data = flip(data, module.offset + module.length - 1)
    report = verify_file(data, KEYS)
    assert sorted(places(report), key=str) == sorted((place_of(file, module) for module in bad), key=str)
    assert report.counts["damaged"] == 6
    assert counted(report) == Counter(module.kind for module in file.modules) - Counter(each.kind for each in bad)


def test_a_failed_page_header_ends_its_chunk_and_no_other() -> None:
    data = encrypted()
    file = opened(data)
    module = next(each for each in file.find_modules("data page header") if each.page == 1)
    assert module.row_group is not None
    assert module.column is not None
    chunk = file.row_groups[module.row_group].chunks[module.column]
    report = verify_file(flip(data, module.offset + 20), KEYS)
    (failure,) = failures(report)
    end = chunk.pages[-1].offset + chunk.pages[-1].stored_size
    assert failure.details["unchecked"] == report.facts["unchecked_bytes"] == end - module.offset
    lost = len(chunk.data_pages) - 1
    expected = Counter(each.kind for each in file.modules) - Counter({"data page": lost, "data page header": lost})
    assert counted(report) == expected
    assert not contradictions(report), "what is not known contradicts nothing"
    assert f"{failure.details['unchecked']} bytes of pages could not be checked" in str(report)


def test_pages_that_changed_places_are_both_found() -> None:
    data = encrypted("pages-v1", column_keys=None)
    file = open_encrypted(data, FOOTER_KEY)
    pairs = (
        (chunk, one, other)
        for chunk in file.chunks
        for one in chunk.data_pages
        for other in chunk.data_pages
        if one.offset < other.offset and one.body_size == other.body_size
    )
    chunk, one, other = next(pairs)
    first, second = one.offset + one.header_size, other.offset + other.header_size
    swapped = bytearray(data)
    swapped[first : first + one.body_size] = data[second : second + one.body_size]
    swapped[second : second + one.body_size] = data[first : first + one.body_size]
    report = verify_file(swapped, DecryptionConfig(FOOTER_KEY))
    column = ".".join(chunk.path)
    assert [(module, column, page) for module, _, column, page, _ in places(report)] == [
        ("data page", column, one.ordinal),
        ("data page", column, other.ordinal),
    ]


def test_the_footer_of_another_file_fails() -> None:
    """Every module of both lies at the same place; no CRC shifts any."""
    data, other = encrypted("snappy-v1"), encrypted("snappy-v1", aad_file_unique=b"another!")
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    other_start = len(other) - 8 - int.from_bytes(other[-8:-4], "little")
    report = verify_file(data[:start] + other[other_start:], KEYS)
    assert not report.ok
    assert {each.details["error"] for each in failures(report)} == {"AuthenticationError"}


def test_a_wrong_column_key_fails_in_that_column_only() -> None:
    data = encrypted()
    wrong = DecryptionConfig(FOOTER_KEY, column_keys={"name": OTHER_KEY, "struct.y": Y_KEY})
    report = verify_file(data, wrong)
    groups = len(opened(data).row_groups)
    assert [(module, column) for module, _, column, _, _ in places(report)] == [("column metadata", "name")] * groups
    assert missing_keys(report) == []


def test_a_wrong_footer_key_or_prefix_fails_in_the_footer() -> None:
    for decryption in (
        DecryptionConfig(OTHER_KEY),
        DecryptionConfig(FOOTER_KEY, column_keys=COLUMN_KEYS, aad_prefix=b"wrong"),
    ):
        report = verify_file(encrypted(aad_prefix=b"right"), decryption)
        assert modules(failures(report)) == ["footer"]


def test_damaged_column_metadata_of_a_signed_footer_leaves_the_pages_checkable() -> None:
    data = encrypted(plaintext_footer=True)
    file = opened(data)
    module = file.find_modules("column metadata")[0]
    report = verify_file(flip(data, module.offset + 20), KEYS)
    assert set(modules(failures(report))) == {"footer signature", "column metadata"}
    expected = Counter(each.kind for each in file.modules) - Counter({"footer signature": 1, "column metadata": 1})
    assert counted(report) == expected


def test_damaged_pages_with_a_crc_are_found_in_plaintext_and_ctr() -> None:
    for data, decryption, file in (
        (corpus.build(PLAIN), None, open_plain(corpus.build(PLAIN))),
        (encrypted(algorithm=CTR_PAGES), KEYS, opened(encrypted(algorithm=CTR_PAGES))),
    ):
        page = file.chunks[1].data_pages[0]
        report = verify_file(flip(data, page.offset + page.stored_size - 1), decryption)
        assert [
            (each.details["module"], each.details.get("page"), each.details["error"]) for each in failures(report)
        ] == [("data page", 0, "FormatError")]
        assert "its CRC does not match its bytes" in failures(report)[0].message


def test_damaged_structures_of_plain_files_are_found() -> None:
    data = corpus.build(PLAIN)
    file = open_plain(data)
    chunk = file.chunks[-1]
    page = next(page for page in chunk.data_pages if page.ordinal == 1)
    # Not a Thrift structure any more.
    report = verify_file(data[: page.offset] + b"\xff" + data[page.offset + 1 :])
    assert [(module, page, offset) for module, _, _, page, offset in places(report)] == [
        ("data page header", 1, page.offset)
    ]
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    report = verify_file(data[:start] + b"\xff" + data[start + 1 :])
    assert modules(failures(report)) == ["footer"]


def test_a_failing_key_service_is_named_as_such() -> None:
    from ags1.errors import AuthenticationError

    def retrieve(key_metadata: bytes) -> bytes:
        if key_metadata == b"bad":
            raise AuthenticationError("the wrapped key failed authentication")
        return NAME_KEY

    data = encrypted(column_key_metadata={"struct.y": b"bad", "name": b"good"})
    report = verify_file(data, DecryptionConfig(FOOTER_KEY, key_retriever=retrieve))
    assert [(module, column) for module, _, column, _, _ in places(report)] == [("column key", "struct.y")]
    assert missing_keys(report) == []
