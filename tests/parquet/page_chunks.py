"""Chunks of pages made by hand for the tests of the conversion, in every protection."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from ags1.parquet.native import modules
from ags1.parquet.native.pages import AES_CTR, AES_GCM, PLAINTEXT, Chunk, PageList, PageSource
from tests.checks import KEYS, OTHER_KEY, pattern
from tests.parquet.pages import ALL, DATA, DATA_V2, DICTIONARY, header
from tests.parquet.reference_thrift import encode

KEY, NEW_KEY = KEYS[16], OTHER_KEY
SOURCE_AAD, TARGET_AAD = b"source aad", b"target aad"
THREADS = pytest.mark.parametrize("threads", [1, 2, 8])
MODES = {"plaintext": PLAINTEXT, "GCM": AES_GCM, "CTR": AES_CTR}
# Kinds, bodies and levels: empty pages, a page without anything but levels, one large one, many small ones.
PAGES: list[tuple[int, bytes, int, int]] = [
    (DICTIONARY, pattern(300), 0, 0),
    (DATA, b"", 0, 0),
    (DATA, pattern(1000), 0, 0),
    (DATA_V2, b"", 0, 0),
    (DATA_V2, b"rrdd", 2, 2),
    (DATA_V2, pattern(5000), 0, 7),
    (DATA_V2, pattern(40), 9, 0),
    (DATA, pattern(1_300_000), 0, 0),
    *((DATA_V2, pattern(number), min(number, 3), 0) for number in range(60)),
]


def protected(
    body: bytes, levels: int, mode: int, form: str, module_type: int, place: tuple[int, ...], key: bytes
) -> bytes:
    """A page's body as it is stored."""
    if mode == PLAINTEXT:
        return body
    before = levels if form == "java" else 0
    aad = modules.module_aad(SOURCE_AAD, module_type, *place)
    return body[:before] + bytes(modules.seal_module(body[before:], key, aad, mode == AES_CTR))


def chunk_of(
    pages: list[tuple[int, bytes, int, int]], mode: int, form: str, *, checksum: bool, padding: int = 0
) -> bytes:
    """A chunk of row group 1, column 2."""
    made, ordinal = bytearray(b"PAR1"), 0
    for kind, body, repetition, definition in pages:
        dictionary = kind == DICTIONARY
        place = (1, 2) if dictionary else (1, 2, ordinal)
        module_type = modules.DICTIONARY_PAGE if dictionary else modules.DATA_PAGE
        stored = protected(body, repetition + definition, mode, form, module_type, place, KEY)
        options: dict[str, Any] = {"repetition": repetition, "definition": definition, "uncompressed": len(body)}
        plain = encode(header(len(stored), kind, crc=zlib.crc32(stored) if checksum else None, **options))
        if mode != PLAINTEXT:
            module_type = modules.DICTIONARY_PAGE_HEADER if dictionary else modules.DATA_PAGE_HEADER
            plain = modules.seal_module(
                plain + bytes(padding), KEY, modules.module_aad(SOURCE_AAD, module_type, *place)
            )
        made += plain + stored
        ordinal += not dictionary
    return bytes(made)


def found_in(
    data: bytes, mode: int, target: int = PLAINTEXT, source: PageSource | None = None
) -> tuple[PageList, Chunk]:
    """The pages of a chunk that starts at 4, to be converted to row group 3, column 4."""
    whole = Chunk(
        4, len(data) - 4, 0, "a.b", source_protection=mode, source_key=KEY, source_ordinals=(1, 2),
        target_protection=target, target_key=NEW_KEY, target_ordinals=(3, 4),
    )  # fmt: skip
    pages = PageList(SOURCE_AAD)
    pages.add(whole, source or PageSource(data), ALL)
    return pages, whole
