"""Views of pages as they are made: their headers, the checksums they leave out, and the memory they are made in."""

from __future__ import annotations

import contextlib
import io
import zlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ags1
from ags1 import parquet
from ags1.parquet.native import modules
from ags1.parquet.native.conversion import Conversion
from ags1.parquet.native.page_conversion import stretch
from ags1.parquet.native.pages import AES_CTR, AES_GCM, Chunk, PageList, PageSource
from tests.checks import flip, pattern
from tests.parquet import reference_writer
from tests.parquet.page_chunks import KEY, PAGES, SOURCE_AAD, THREADS, chunk_of, found_in
from tests.parquet.pages import ALL, DATA, DATA_V2, header
from tests.parquet.reference_thrift import BINARY, BOOL, I32, Struct, decode, encode

PADDINGS = [*range(210), *range(16_200, 16_500, 7), *range(16_330, 16_400), 70_000, 2_097_000, 2_097_152, 2_097_200]


@pytest.mark.parametrize("form", ["java", "arrow"])
@pytest.mark.parametrize("mode", [AES_GCM, AES_CTR])
@pytest.mark.parametrize("checksum", [False, True])
def test_viewed_headers_are_those_of_the_page_with_an_unknown_field(checksum: bool, mode: int, form: str) -> None:
    body = (DATA_V2, pattern(50), 2, 3)
    for padding in PADDINGS:
        data = chunk_of([body], mode, form, checksum=checksum, padding=padding)
        pages, _ = found_in(data, mode)
        out = bytearray(b"#" * (len(data) + 8))
        Conversion(SOURCE_AAD, threads=1).view(pages, PageSource(data), memoryview(out)[:-8], 0)
        assert out[:4] == out[-8:-4] == b"####", "it wrote beyond the pages"
        structure, end = decode(bytes(out), 4)
        assert bytes(out[end : len(data)]) == body[1]
        known = set(header(1, DATA_V2).fields)
        # 15 behind the last field: as far as the short form goes, which every reader knows.
        filler = structure[max(known) + 15]
        assert filler == bytes(len(filler))
        assert set(structure.fields) == known | {max(known) + 15}
        assert structure[3] == 50


# None of them has the number of the filler, which is 15 above that of the last field.
UNKNOWN_FIELDS = [6, 9, 10, 19, 40, 300]


@given(st.permutations([1, 2, 3, 4, 5, *UNKNOWN_FIELDS]), st.sets(st.sampled_from(UNKNOWN_FIELDS)), st.booleans())
def test_views_leave_out_the_crc_wherever_it_stands(order: list[int], unknown: set[int], in_place: bool) -> None:
    body = pattern(100)
    stored = modules.seal_module(body, KEY, modules.module_aad(SOURCE_AAD, modules.DATA_PAGE, 1, 2, 0))
    fields = header(len(stored), crc=zlib.crc32(stored)).fields
    fields |= {each: (BINARY, b"unknown") if each % 2 else (BOOL, True) for each in unknown}
    made = Struct({each: fields[each] for each in order if each in fields})
    # The filler's id is 15 above that of the last field. A header whose ids go backwards may have it already.
    assume([each for each in made.fields if each != 4][-1] + 15 not in fields)
    aad = modules.module_aad(SOURCE_AAD, modules.DATA_PAGE_HEADER, 1, 2, 0)
    data = bytearray(b"PAR1" + modules.seal_module(encode(made), KEY, aad) + stored)
    pages, _ = found_in(data, AES_GCM)
    out = data if in_place else bytearray(len(data))
    Conversion(SOURCE_AAD, threads=1).view(pages, PageSource(data), out, 0)
    structure, end = decode(bytes(out), 4)
    assert out[end:] == body
    rest = {each: value for each, value in structure.fields.items() if each in fields}
    assert rest == made.without(4).put(3, I32, len(body)).fields


@pytest.mark.parametrize("form", ["java", "arrow"])
@pytest.mark.parametrize("mode", [AES_GCM, AES_CTR])
@THREADS
def test_views_in_the_memory_of_the_file_are_those_in_other_memory(threads: int, mode: int, form: str) -> None:
    data = chunk_of(PAGES, mode, form, checksum=True)
    pages, _ = found_in(data, mode)
    apart, same = bytearray(len(data)), bytearray(data)
    Conversion(SOURCE_AAD, threads=threads).view(pages, PageSource(data), apart, 0)
    Conversion(SOURCE_AAD, threads=threads).view(pages, PageSource(same), same, 0)
    assert apart[4:] == same[4:]
    for damage in range(10, len(data), 31_013):
        same = bytearray(flip(data, damage))
        with contextlib.suppress(ags1.Ags1Error):
            pages, _ = found_in(same, mode)
            with pytest.raises(ags1.Ags1Error):
                Conversion(SOURCE_AAD, threads=threads).view(pages, PageSource(same), same, 0)
            assert same == bytes(len(same))


def test_structures_stretched_to_every_length() -> None:
    small = encode(header(5))
    for more in (*range(2, 400), *range(16_300, 16_500), *range(2_097_140, 2_097_170)):
        made = stretch(small, len(small) + more)
        structure, end = decode(made, 0)
        assert end == len(made) == len(small) + more
        assert structure.fields.pop(max(header(5).fields) + 15)[0] == BINARY
        assert structure == header(5)
    assert stretch(small, len(small)) == small
    for wrong in (-1, 0, len(small) - 1, len(small) + 1):
        with pytest.raises(ValueError, match="cannot become"):
            stretch(small, wrong)
    with pytest.raises(ValueError, match="cannot become"):
        stretch(b"", 9)


@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
@pytest.mark.parametrize("padding", [0, 1, 15, 63, 64, 79, 80, 81, 127, 128, 200, 16_300, 16_384, 70_000])
def test_pyarrow_reads_views_with_any_filler(padding: int, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"a": [1, None, 3] * 30, "b": ["x", "y", None] * 30})
    plain = io.BytesIO()
    pq.write_table(table, plain, data_page_version="2.0", write_page_checksum=True, write_page_index=True)

    def seal_struct(self: Any, kind: str, key: bytes, value: Any, *ordinals: int | None) -> bytes:
        return bytes(self.seal(kind, key, encode(value) + bytes(padding), *ordinals))

    monkeypatch.setattr(reference_writer._Sealer, "seal_struct", seal_struct)
    made = reference_writer.encrypt_reference(
        plain.getvalue(), reference_writer.Encryption(KEY, algorithm=algorithm, data_page_v2="arrow")
    )
    with parquet.open(made, parquet.DecryptionConfig(KEY)) as view:
        assert pq.read_table(view, use_threads=False, page_checksum_verification=True) == table


def test_views_stay_inside_the_memory_for_them() -> None:
    data = chunk_of([(DATA, pattern(100), 0, 0)] * 3, AES_GCM, "java", checksum=False)
    pages, _ = found_in(data, AES_GCM)
    source, conversion = PageSource(data), Conversion(SOURCE_AAD)
    for room, base in ((len(data) - 1, 0), (len(data), 5), (0, 0), (10, 1 << 62), (len(data), -1)):
        with pytest.raises(ValueError, match="the pages do not fit into the memory for them"):
            conversion.view(pages, source, bytearray(room), base)
    for first, last in ((-1, 2), (2, 1), (0, 4), (4, 4)):
        with pytest.raises(ValueError, match=f"pages {first} to {last} of 3"):
            conversion.view(pages, source, bytearray(len(data)), 0, first, last)
    with pytest.raises(TypeError, match="out must be writable"):
        conversion.view(pages, source, bytes(len(data)), 0)
    # Of two chunks, one before the other: neither the first nor the last page is the one that does not fit.
    both = PageList(SOURCE_AAD)
    options: dict[str, Any] = {"source_protection": AES_GCM, "source_key": KEY, "source_ordinals": (1, 2)}
    moved = bytes(500) + data[4:]
    for start, where in ((4, data), (500, moved), (4, data)):
        both.add(Chunk(start, len(data) - 4, 0, "a", **options), PageSource(where), ALL)
    with pytest.raises(ValueError, match="the source does not have all of the pages"):
        conversion.view(both, source, bytearray(5000), 0)
    with pytest.raises(ValueError, match="the pages do not fit into the memory for them"):
        conversion.view(both, PageSource(moved), bytearray(len(data)), 0)
    conversion.view(pages, source, bytearray(len(data)), 0)
