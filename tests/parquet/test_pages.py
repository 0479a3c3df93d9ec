"""The walk over pages: hostile headers, window and memory edges, dictionaries, limits, files that change."""

from __future__ import annotations

import contextlib
import os
import re
import struct
import threading
from pathlib import Path

import pytest

import ags1
from ags1.parquet.native import modules
from ags1.parquet.native.pages import AES_CTR, AES_GCM, PLAINTEXT, Chunk, PageList, PageSource
from tests.checks import KEYS, OTHER_KEY, open_descriptors
from tests.parquet.pages import ALL, DATA, DATA_V2, DICTIONARY, INDEX, header, page, source_of, walk
from tests.parquet.reference_thrift import BINARY, I32, I64, LIST, STRUCT, Sequence, Struct, encode

KEY, AAD = KEYS[16], b"file aad"
WHERE = pytest.mark.parametrize("where", ["memory", "file"])
NAME = "of column 'a.b' in row group 0"


def chunk(data: bytes, values: int = 0, **options: object) -> Chunk:
    return Chunk(4, len(data) - 4, values, "a.b", **options)  # type: ignore[arg-type]


def refusal(data: bytes, where: str, values: int = 0, **options: object) -> ags1.Ags1Error:
    """The error of a walk over a plaintext chunk."""
    with source_of(b"PAR1" + data, where) as source, pytest.raises(ags1.Ags1Error) as caught:
        walk(source, chunk(b"PAR1" + data, values, **options))
    return caught.value


def sealed(plain: bytes, module_type: int, *ordinals: int, key: bytes = KEY) -> bytes:
    return bytes(modules.seal_module(plain, key, modules.module_aad(AAD, module_type, *ordinals)))


def sealed_page(ordinal: int = 0, *, padding: int = 0, kind: int = DATA, sealed_as: int | None = None) -> bytes:
    """An encrypted page of row group 0, column 0; `sealed_as` is the type of page that its AAD has."""
    dictionary = (kind if sealed_as is None else sealed_as) == DICTIONARY
    place = (0, 0) if dictionary else (0, 0, ordinal)
    body = sealed(b"values", modules.DICTIONARY_PAGE if dictionary else modules.DATA_PAGE, *place)
    plain = encode(header(len(body), kind)) + bytes(padding)
    return sealed(plain, modules.DICTIONARY_PAGE_HEADER if dictionary else modules.DATA_PAGE_HEADER, *place) + body


def encrypted(data: bytes, **options: object) -> Chunk:
    return chunk(data, source_protection=AES_GCM, source_key=KEY, **options)


# -- what is found -------------------------------------------------------------------------------------------


@WHERE
@pytest.mark.parametrize("most", [1, 50, ALL])
def test_pages_are_found_with_all_that_matters(where: str, most: int) -> None:
    parts = [
        page(b"dictionary", DICTIONARY, values=9, checksum=True),
        page(b"", values=0),
        page(b"first", values=3),
        page(b"ldl values", DATA_V2, values=4, repetition=1, definition=2, checksum=True),
    ]
    data = b"PAR1" + b"".join(parts)
    with source_of(data, where) as source:
        found = walk(source, chunk(data, 7), most=most)
    assert [each["type"] for each in found] == [DICTIONARY, DATA, DATA, DATA_V2]
    assert [each["ordinal"] for each in found] == [None, 0, 1, 2]
    assert [each["body_length"] for each in found] == [10, 0, 5, 10]
    assert [each["values"] for each in found] == [0, 0, 3, 4]
    assert [each["levels_length"] for each in found] == [0, 0, 0, 3]
    offset = 4
    for each, part in zip(found, parts, strict=True):
        assert each["offset"] == offset
        assert each["header"] == part[: len(part) - each["body_length"]]
        assert each["header_length"] == len(each["header"])
        offset += len(part)


@WHERE
@pytest.mark.parametrize("edge", [256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 300_000])
def test_headers_around_the_edges_of_the_window(where: str, edge: int) -> None:
    # The first look at a header takes a few hundred bytes: it may be cut off in any of its fields.
    for length in (0, 1, *range(edge - 60, edge + 5)):
        data = b"PAR1" + page(b"body", statistic=bytes(length)) + page(b"more", values=2)
        with source_of(data, where) as source:
            found = walk(source, chunk(data, 3))
        assert [each["body_length"] for each in found] == [4, 4]
        assert found[0]["header"] == encode(header(4, statistic=bytes(length)))


@WHERE
def test_a_list_that_is_cut_off_by_the_window(where: str) -> None:
    strange = header(4).put(20, LIST, Sequence(I64, [1 << 60] * 3000)).put(21, LIST, Sequence(BINARY, [b"x" * 9] * 900))
    data = b"PAR1" + encode(strange) + b"body"
    with source_of(data, where) as source:
        assert walk(source, chunk(data, 1))[0]["header"] == encode(strange)


@WHERE
def test_a_header_of_nearly_16_mebibytes_and_one_of_more(where: str) -> None:
    limit = 16 << 20
    data = b"PAR1" + page(b"body", statistic=bytes(limit - 100))
    with source_of(data, where) as source:
        assert walk(source, chunk(data, 1))[0]["header_length"] > limit - 100
    error = refusal(page(b"body", statistic=bytes(limit)) + bytes(limit), where, 1)
    assert str(error) == f"lake.parquet: header of data page 0 {NAME}: is not a valid PageHeader"


def test_memory_that_ends_inside_a_page_is_no_error_yet() -> None:
    data = b"PAR1" + page(b"first body") + page(b"second body", statistic=b"x" * 50)
    second = 4 + len(page(b"first body"))
    for end in range(second, len(data)):
        whole = chunk(data, 2)
        pages = PageList()
        assert not pages.add(whole, PageSource(data[4:end], base=4), ALL)
        assert (pages.count, whole.position, whole.done) == (1, second, False)
        # With memory that begins where the page does, it goes on.
        assert pages.add(whole, PageSource(data[second:], base=second), ALL)
        assert (pages.count, whole.data_pages, whole.done) == (2, 2, True)


def test_memory_that_begins_behind_the_page_has_nothing_of_it() -> None:
    data = b"PAR1" + page(b"body")
    pages = PageList()
    assert not pages.add(chunk(data), PageSource(data[4:-2], base=5), ALL)
    with pytest.raises(ags1.TruncatedError, match="the file ends inside it"):
        pages.add(chunk(data), PageSource(data[4:], base=5), ALL)
    assert pages.count == 0


# -- hostile headers -----------------------------------------------------------------------------------------


def without(field: int) -> Struct:
    return header(4).remove(field)


def twice(field: int, kind: int = I32) -> bytes:
    """A header with a field twice: again behind all others, in the long form."""
    once = encode(header(4))
    again = bytes([kind]) + struct.pack("B", 2 * field) + encode(header(4))[1:2]
    return once[:-1] + again + b"\0"


BAD_HEADERS = {
    "nothing": b"",
    "zeros": bytes(40),
    "ones": b"\xff" * 40,
    "an overlong varint": b"\x15" + b"\x80" * 11 + b"\x00" + bytes(30),
    "a varint of 65 bits": b"\x15" + b"\xff" * 9 + b"\x02" + bytes(30),
    "no type": encode(without(1)),
    "no uncompressed size": encode(without(2)),
    "no compressed size": encode(without(3)),
    "no counts": encode(without(5)),
    "counts of another type": encode(without(5).put(7, STRUCT, Struct().put(1, I32, 1))),
    "counts twice": encode(header(4).put(8, STRUCT, Struct().put(1, I32, 1))),
    "counts without values": encode(without(5).put(5, STRUCT, Struct().put(2, I32, 0))),
    "negative values": encode(header(4, values=-1)),
    "a negative size": encode(header(-1)),
    "the smallest size": encode(header(-(1 << 31))),
    "a negative uncompressed size": encode(header(4, uncompressed=-5)),
    "a size of 33 bits": encode(Struct({**header(4).fields, 3: (I32, 1 << 32)})),
    "a size of 64 bits": encode(Struct({**header(4).fields, 3: (I32, (1 << 63) - 1)})),
    "the type twice": twice(1),
    "the size twice": twice(3),
    "negative levels": encode(header(4, DATA_V2, definition=-1)),
    "levels of 32 bits": encode(header(4, DATA_V2, definition=(1 << 31) - 1, repetition=(1 << 31) - 1)),
    "sizes of another kind": encode(header(4).put(3, I64, 4)),
    "structs 200 deep": encode(header(4))[:-1] + b"\x1c" * 200 + bytes(210),
    "lists 200 deep": encode(header(4))[:-1] + b"\x19" + b"\x19" * 200 + bytes(20),
    "a list of more than there is": encode(header(4))[:-1] + b"\x19\xf5\xff\xff\xff\x7f" + bytes(50),
    "a map of more than there is": encode(header(4))[:-1] + b"\x1b\xff\xff\xff\x7f\x55" + bytes(50),
    "a kind that does not exist": encode(header(4))[:-1] + b"\x1e" + bytes(50),
    "a field id beyond 16 bits": encode(header(4))[:-1] + b"\x05\xff\xff\x7f\x00" + bytes(50),
}


@WHERE
@pytest.mark.parametrize("name", BAD_HEADERS)
def test_headers_that_are_none(name: str, where: str) -> None:
    if not BAD_HEADERS[name]:
        return
    error = refusal(BAD_HEADERS[name] + b"body", where, 1)
    assert type(error) is ags1.FormatError
    assert str(error) == f"lake.parquet: header of data page 0 {NAME}: is not a valid PageHeader"


@pytest.mark.parametrize("name", BAD_HEADERS)
def test_authentic_headers_that_are_none(name: str) -> None:
    data = b"PARE" + sealed(BAD_HEADERS[name], modules.DATA_PAGE_HEADER, 0, 0, 0) + bytes(40)
    with pytest.raises(ags1.FormatError, match=f"^header of data page 0 {NAME}: is not a valid PageHeader$"):
        walk(PageSource(data), encrypted(data, target_protection=PLAINTEXT), AAD)


@WHERE
def test_bodies_that_reach_past_the_chunk_or_the_file(where: str) -> None:
    for claimed in (5, 1000, (1 << 31) - 1):
        error = refusal(encode(header(claimed)) + b"body", where, 1)
        assert re.search(rf"header of data page 0 {NAME}: reaches past the end of its column chunk at \d+$", str(error))


def test_chunks_longer_than_the_file() -> None:
    data = b"PAR1" + page(b"body")[:-1]
    with source_of(data, "memory") as source:
        assert not PageList().add(Chunk(4, 100, 1, "a.b"), source, ALL), "more memory is asked for"
    with source_of(data, "file") as source:
        with pytest.raises(ags1.TruncatedError, match=rf"^lake.parquet: header of data page 0 {NAME}: the file ends"):
            PageList().add(Chunk(4, 100, 1, "a.b"), source, ALL)


@WHERE
@pytest.mark.parametrize("kind", [INDEX, 4, 5, 77, (1 << 31) - 1])
def test_types_of_pages_that_no_module_is_for(kind: int, where: str) -> None:
    data = page(b"fine") + page(b"index", kind)
    error = refusal(data, where, 2, target_protection=AES_GCM, target_key=KEY)
    assert f"header of data page 1 {NAME}: has page type {kind}, for which Parquet Modular Encryption" in str(error)
    with source_of(b"PAR1" + data, where) as source:
        assert [each["type"] for each in walk(source, chunk(b"PAR1" + data, 1))] == [DATA, kind], "plaintext stays"


@WHERE
def test_a_dictionary_that_comes_late_or_twice(where: str) -> None:
    for first in (DATA, DICTIONARY):
        error = refusal(page(b"first", first) + page(b"words", DICTIONARY), where)
        assert f"dictionary page {NAME}: follows data pages; a dictionary page comes first or not at all" in str(error)


@WHERE
def test_levels_longer_than_the_page(where: str) -> None:
    error = refusal(page(b"12345", DATA_V2, definition=3, repetition=3), where, 1)
    assert str(error) == f"lake.parquet: header of data page 0 {NAME}: its levels are longer than the page"
    data = b"PAR1" + page(b"12345", DATA_V2, definition=3, repetition=2)
    with source_of(data, where) as source:
        assert walk(source, chunk(data, 1))[0]["levels_length"] == 5


@WHERE
def test_values_that_are_missing(where: str) -> None:
    error = refusal(page(b"first", values=3), where, 4)
    assert str(error) == (
        "lake.parquet: column 'a.b' in row group 0 has 3 values in its pages, but its metadata says 4"
    )


@WHERE
def test_padding_behind_the_last_value_is_passed_over_and_nothing_else(where: str) -> None:
    data = b"PAR1" + page(b"first", values=3) + bytes(20)
    with source_of(data, where) as source:
        assert len(walk(source, chunk(data, 3))) == 1
    assert "is not a valid PageHeader" in str(refusal(data[4:], where, 4))


@WHERE
def test_a_chunk_that_ends_with_its_values(where: str) -> None:
    # PARQUET-816: the stated length is wrong; what follows is another chunk's.
    data = b"PAR1" + page(b"first", values=3) + page(b"of another", values=5)
    with source_of(data, where) as source:
        assert len(walk(source, chunk(data, 3, ends_with_values=True))) == 1


def test_counts_beyond_32_bits_do_not_wrap() -> None:
    many = (1 << 31) - 1
    data = b"PAR1" + page(b"", values=many) * 5
    assert sum(each["values"] for each in walk(PageSource(data), chunk(data, 5 * many))) == 5 * many
    with pytest.raises(ags1.FormatError, match=f"has {5 * many} values in its pages, but its metadata says"):
        walk(PageSource(data), chunk(data, (1 << 63) - 1))


@pytest.mark.parametrize(("start", "length"), [(-1, 5), (4, -1), (4, 1 << 63), ((1 << 63) - 1, 1), (1 << 62, 1)])
def test_chunks_that_no_file_has(start: int, length: int) -> None:
    with pytest.raises((ValueError, OverflowError)):
        Chunk(start, length, 1, "a")


@pytest.mark.parametrize("ordinal", [-1, 32_768, 65_536, 1 << 40])
@pytest.mark.parametrize("which", ["source", "target"])
def test_ordinals_of_chunks_never_wrap(which: str, ordinal: int) -> None:
    for ordinals in ((ordinal, 0), (0, ordinal)):
        options = {f"{which}_protection": AES_GCM, f"{which}_key": KEY, f"{which}_ordinals": ordinals}
        with pytest.raises(ags1.LimitError, match=f"{ordinal} is outside 0 to 32767"):
            Chunk(4, 5, 1, "a", **options)  # type: ignore[arg-type]


# -- how many pages ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protection", [AES_GCM, AES_CTR])
@WHERE
def test_as_many_pages_as_there_are_ordinals_and_no_more(where: str, protection: int) -> None:
    one = page(b"")
    options = {"target_protection": protection, "target_key": KEY}
    for count in (32_768, 32_769):
        data = b"PAR1" + page(b"", DICTIONARY) + one * count
        with source_of(data, where) as source:
            whole = chunk(data, count, **options)
            if count == 32_768:
                # The dictionary page has no ordinal.
                assert walk(source, whole)[-1]["ordinal"] == 32_767
                continue
            with pytest.raises(ags1.LimitError, match=r"data page 32768 .*: encrypted Parquet files can have no more"):
                walk(source, whole)
    with source_of(data, where) as source:
        assert len(walk(source, chunk(data, count))) == 32_770, "a plaintext file may have more"


def test_lists_stop_where_they_are_told_to() -> None:
    data = b"PAR1" + page(b"x" * 10) * 50
    pages, whole = PageList(), chunk(data, 50)
    assert pages.add(whole, PageSource(data), ALL, 7)
    assert pages.count == 7
    assert pages.add(whole, PageSource(data), pages.stored + 1, 100)
    assert pages.count == 8
    pages.clear()
    assert (pages.count, pages.stored, pages.details()) == (0, 0, [])
    assert pages.add(whole, PageSource(data), ALL)
    assert pages.count == 42


# -- encrypted headers ---------------------------------------------------------------------------------------


@WHERE
@pytest.mark.parametrize("padding", [0, 1, 64, 5000, 100_000])
def test_encrypted_headers_without_their_padding(where: str, padding: int) -> None:
    data = b"PARE" + b"".join(sealed_page(ordinal, padding=padding) for ordinal in range(3))
    with source_of(data, where) as source:
        found = walk(source, encrypted(data), AAD)
    assert [each["header"] for each in found] == [encode(header(38))] * 3


@WHERE
@pytest.mark.parametrize("expected", [False, True])
@pytest.mark.parametrize("kind", [DATA, DICTIONARY])
def test_metadata_that_lies_about_a_dictionary(kind: int, expected: bool, where: str) -> None:
    data = b"PARE" + sealed_page(kind=kind) + sealed_page(0 if kind == DICTIONARY else 1)
    with source_of(data, where) as source:
        found = walk(source, encrypted(data, dictionary_expected=expected), AAD)
    assert [each["type"] for each in found] == [kind, DATA]


@pytest.mark.parametrize("kind", [DATA, DICTIONARY])
def test_pages_that_were_sealed_as_another_type(kind: int) -> None:
    data = b"PARE" + sealed_page(kind=kind, sealed_as=DATA + DICTIONARY - kind)
    for expected in (False, True):
        with pytest.raises(ags1.FormatError, match="was encrypted as another type of page than it is"):
            walk(PageSource(data), encrypted(data, dictionary_expected=expected), AAD)


def test_pages_in_another_order_or_another_place() -> None:
    one, other = sealed_page(0), sealed_page(1)
    for data in (b"PARE" + other + one, b"PARE" + one + one):
        with pytest.raises(ags1.AuthenticationError, match=rf"^header of data page \d {NAME}: wrong key, wrong AAD"):
            walk(PageSource(data), encrypted(data), AAD)
    for ordinals in ((1, 0), (0, 1)):
        data = b"PARE" + one
        with pytest.raises(ags1.AuthenticationError, match=r"header of data page 0 of column 'a.b' in row group"):
            walk(PageSource(data), encrypted(data, source_ordinals=ordinals), AAD)


@WHERE
@pytest.mark.parametrize("stated", [0, 27, 1 << 24, 1 << 26, (1 << 31) - 1, (1 << 32) - 1])
def test_length_words_of_headers(stated: int, where: str) -> None:
    data = b"PARE" + struct.pack("<I", stated) + bytes(60)
    message = "length word of its module contradicts its size" if stated < 28 else "reaches past the end of its column"
    with source_of(data, where) as source, pytest.raises(ags1.FormatError, match=message):
        walk(source, encrypted(data), AAD)
    # Nor is memory taken where the chunk seems to be large enough.
    with source_of(data, where) as source, contextlib.suppress(ags1.FormatError):
        long = Chunk(4, 1 << 40, 1, "a", source_protection=AES_GCM, source_key=KEY)
        assert not PageList(AAD).add(long, source, ALL)


def test_chunks_too_short_for_a_header() -> None:
    for length in range(1, 32):
        data = b"PARE" + sealed_page()
        with pytest.raises(ags1.FormatError, match="reaches past the end of its column chunk"):
            PageList(AAD).add(
                Chunk(4, length, 1, "a", source_protection=AES_GCM, source_key=KEY), PageSource(data), ALL
            )


def test_a_key_that_lies_where_another_lay_is_not_taken_for_it() -> None:
    # Contexts know keys by address. Memory of one that is gone is the first that the next one gets.
    pages = PageList(AAD)
    for number in range(20):
        raw = KEY if number % 2 else OTHER_KEY[:16]
        data = b"PARE" + sealed(encode(header(4)), modules.DATA_PAGE_HEADER, 0, 0, 0, key=raw) + b"body"
        key = ags1.Key(raw)
        assert pages.add(chunk(data, source_protection=AES_GCM, source_key=key), PageSource(data), ALL)
        pages.clear()
        del key


def test_keys_and_arguments() -> None:
    with pytest.raises(TypeError, match="key must be a bytes-like object"):
        Chunk(4, 1, 1, "a", source_protection=AES_GCM)
    with pytest.raises(TypeError):
        PageList().add(None, PageSource(b""), 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        PageList().add(Chunk(0, 0, 0, "a"), None, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        PageSource("text")  # type: ignore[arg-type]
    with pytest.raises(OSError, match="Bad file descriptor"):
        PageSource(1 << 20)


# -- files that change ---------------------------------------------------------------------------------------


def test_a_file_that_shrinks_while_it_is_walked(tmp_path: Path) -> None:
    path = tmp_path / "lake.parquet"
    one = page(b"x" * 3000)
    data = b"PAR1" + one * 20
    path.write_bytes(data)
    with open(path, "r+b") as file:
        source = PageSource(file.fileno(), name="lake.parquet")
        pages, whole = PageList(), chunk(data, 20)
        pages.add(whole, source, 1)
        file.truncate(len(data) // 2)
        with pytest.raises(ags1.TruncatedError, match=rf"^lake.parquet: header of data page \d+ {NAME}: the file ends"):
            pages.add(whole, source, ALL)
        file.truncate(0)
        with pytest.raises(ags1.TruncatedError, match="the file ends inside it"):
            PageList().add(chunk(data, 20), PageSource(file.fileno()), ALL)


def test_a_descriptor_that_is_no_longer_readable(tmp_path: Path) -> None:
    path = tmp_path / "lake.parquet"
    path.write_bytes(b"PAR1" + page(b"x"))
    descriptor = os.open(path, os.O_WRONLY)
    try:
        source = PageSource(descriptor, name="lake.parquet")
        with pytest.raises(OSError, match=r"Bad file descriptor: 'lake.parquet'"):
            PageList().add(Chunk(4, 10, 1, "a"), source, ALL)
    finally:
        os.close(descriptor)


def test_lists_and_sources_in_use_are_refused_to_others() -> None:
    # Two walks of one source at once would read each other's window: one of them is told so instead.
    data = b"PAR1" + page(b"x" * 20) * 30_000
    with source_of(data, "file") as source:
        outcomes: list[object] = []
        barrier = threading.Barrier(4)

        def work() -> None:
            barrier.wait(600)
            for _ in range(5):
                try:
                    outcomes.append(len(walk(source, chunk(data, 30_000))))
                except RuntimeError as error:
                    outcomes.append(str(error))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(600)
    assert len(outcomes) == 20
    assert set(outcomes) <= {30_000, "the pages of this list are being converted or looked for"}
    assert 30_000 in outcomes


def test_walks_leave_nothing_behind() -> None:
    data = b"PARE" + sealed_page() + bytes(100)
    before = open_descriptors()
    for _ in range(200):
        with source_of(data, "file") as source, pytest.raises(ags1.FormatError):
            walk(source, encrypted(data), AAD)
    assert open_descriptors() == before
