"""Encrypted files for the tests of the plaintext view, by an implementation that shares nothing with ags1."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ags1.parquet import DecryptionConfig, ParquetView
from tests.parquet import corpus
from tests.parquet.compare import differences
from tests.parquet.reference import open_encrypted, open_plain
from tests.parquet.reference_model import CTR_PAGES, File
from tests.parquet.reference_thrift import BINARY, Struct
from tests.parquet.reference_writer import Encryption, encrypt_reference

FOOTER_KEY = b"footer key, 24 bytes ..."
PREFIX = b"table/part-7"
# A file with nearly everything: levels, V2 pages, row groups, indexes, Bloom filters, CRCs.
NAME = "everything-v2"
# By their dotted paths: each test takes those that its file has.
COLUMN_KEYS = {
    "name": b"column key, 32 bytes ...........",
    "list.list.element": b"another, 16 byte",
    "struct.y": b"one more, 24 bytes .....",
    "map.key_value.value": b"the map's, 16 by",
    "number": b"of all numbers..",
}
# Between them, everything that writers do in different ways.
WAYS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "java": {"pad_thrift": True, "column_keys": COLUMN_KEYS, "encrypt_all": True, "footer_key_metadata": b"kf"},
    "arrow": {"data_page_v2": "arrow", "column_keys": COLUMN_KEYS, "encrypt_all": True, "hidden_fields": ()},
    "ctr": {"algorithm": CTR_PAGES, "column_keys": COLUMN_KEYS, "encrypt_all": True},
    "ctr-arrow-signed": {"algorithm": CTR_PAGES, "data_page_v2": "arrow", "plaintext_footer": True},
    "java-signed": {"pad_thrift": True, "plaintext_footer": True, "column_keys": COLUMN_KEYS, "encrypt_all": True},
    "prefix-not-stored": {"aad_prefix": PREFIX, "store_aad_prefix": False, "column_keys": COLUMN_KEYS},
    "no-ordinals": {"write_ordinals": False, "omit_supply_aad_prefix": True, "encrypt_all": True},
}


@functools.cache
def encrypted(name: str, way: str) -> bytes:
    """A file of the corpus, encrypted in one of the ways."""
    return encrypt_reference(open_plain(corpus.build(name), strict=False), Encryption(FOOTER_KEY, **WAYS[way]))


def decryption(way: str = "uniform", **options: Any) -> DecryptionConfig:
    """What reads the files of a way."""
    if WAYS[way].get("store_aad_prefix") is False:
        options.setdefault("aad_prefix", PREFIX)
    options.setdefault("column_keys", WAYS[way].get("column_keys"))
    return DecryptionConfig(FOOTER_KEY, **options)


@functools.cache
def opened(name: str, way: str) -> File:
    """Such a file, taken apart."""
    supplied = PREFIX if WAYS[way].get("store_aad_prefix") is False else None
    return open_encrypted(encrypted(name, way), FOOTER_KEY, COLUMN_KEYS, supplied, strict=False)


def view_of(name: str = NAME, way: str = "uniform", **options: Any) -> ParquetView:
    """The view of a file of the corpus that was encrypted in one of the ways."""
    return ParquetView(encrypted(name, way), decryption(way), **options)


def table_of(view: ParquetView, **options: Any) -> pa.Table:
    """The rows of a view, read in a way in which errors are harmless to PyArrow."""
    return pq.read_table(view, use_threads=False, pre_buffer=False, **options)


def plain_table(name: str, **options: Any) -> pa.Table:
    """What PyArrow reads from a file of the corpus before it is encrypted."""
    return pq.read_table(io.BytesIO(corpus.build(name)), **options)


def view_of_plain(data: bytes) -> tuple[File, list[str]]:
    """The bytes of a view taken apart, without fillers, and what is inconsistent about them.

    Sizes before compression count headers as they were stored, so that they are a few bytes off.
    """
    file = open_plain(data, strict=False)
    fillers = sum(_without_filler(each) for each in _stretched(file))
    complaints = [each for each in file.complaints if "total_uncompressed_size" not in each]
    if not fillers and any(chunk.pages for chunk in file.chunks):
        complaints.append("nothing was stretched")
    return file, complaints


def _stretched(file: File) -> Iterator[Struct]:
    for chunk in file.chunks:
        for structure in (chunk.column_index, chunk.offset_index, chunk.bloom_header):
            if structure is not None:
                yield structure
        for page in chunk.pages:
            yield page.header


def _without_filler(structure: Struct) -> bool:
    last = max(structure.fields)
    kind, value = structure.fields[last]
    # No structure of the format has as many fields.
    if last < 16 or kind != BINARY or any(value):
        return False
    del structure.fields[last]
    return True


def differences_of_view(file: File, view: File) -> list[str]:
    """What a view holds otherwise than the file; decrypted pages have no CRC in it."""
    return [each for each in differences(file, view) if not each.endswith("whether it has a CRC: True and False")]
