"""The reference reader opens what others wrote, and refuses what nobody may accept."""

from __future__ import annotations

import io
import itertools
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from tests.checks import flip
from tests.parquet import corpus
from tests.parquet.compare import differences
from tests.parquet.public_files import EXTERNAL_MATERIAL, PUBLIC_FILES, external_key, read
from tests.parquet.reference import open_encrypted, open_plain
from tests.parquet.reference_model import (
    CTR_PAGES,
    DATA_PAGE_V2,
    GCM,
    MODULE_TYPES,
    File,
    Inconsistent,
    NotAuthentic,
    Refused,
    module_aad,
)
from tests.parquet.reference_thrift import I16, I32, I64, Struct, ThriftError, decode, encode
from tests.parquet.reference_writer import Encryption, encrypt_reference, write_plain

FOOTER_KEY = b"footer key, 24 bytes ..."
COLUMN_KEY = b"column key, 32 bytes ..........."
COLUMN_KEYS = {"name": COLUMN_KEY, ("struct", "y"): b"another, 16 byte"}
PREFIX = b"prefix"

# The files of parquet-testing that hold the same rows in the same columns.
SAME_ROWS = [name for name in PUBLIC_FILES if name.startswith("encrypt_columns") and "bloom" not in name]


def open_public(name: str) -> File:
    file = PUBLIC_FILES[name]
    return open_encrypted(file.read(), file.footer_key, file.column_keys, file.aad_prefix)


# -- files of others -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLIC_FILES)
def test_every_module_of_a_public_file_opens(name: str) -> None:
    file = open_public(name)
    counts = Counter(module.kind for module in file.modules)
    assert counts["data page"] == counts["data page header"] > 0
    assert counts["footer"] + counts["footer signature"] == 1
    assert file.footer_mode == ("plaintext" if "plaintext_footer" in name else "encrypted")
    assert file.algorithm == (CTR_PAGES if name.endswith("ctr") else GCM)
    assert file.gaps() == []


def test_the_public_file_with_bloom_filters_has_what_parquet_java_writes() -> None:
    file = open_public("encrypt_columns_and_footer_bloom_filter")
    encrypted = [chunk for chunk in file.chunks if chunk.encryption == "column key"]
    assert {page.type for chunk in encrypted for page in chunk.data_pages} == {DATA_PAGE_V2}
    assert all(4 in page.header and page.header_padding for chunk in encrypted for page in chunk.pages)
    assert any(chunk.bloom_bitset for chunk in encrypted)


@pytest.mark.parametrize("name", SAME_ROWS)
def test_public_files_hold_the_same_however_they_are_encrypted(name: str) -> None:
    """Nothing else proves that the pages of the CTR file were deciphered rightly."""
    assert differences(open_public(SAME_ROWS[0]), open_public(name)) == []


def test_the_public_file_with_external_key_material_opens() -> None:
    data = read(f"{EXTERNAL_MATERIAL}.parquet.encrypted")
    file = open_encrypted(data, external_key, lambda _path, key_metadata: external_key(key_metadata))
    assert {chunk.path: chunk.encryption for chunk in file.chunks} == {
        ("integers",): "column key",
        ("strings",): "column key",
    }
    assert len({module.key for module in file.modules}) == 3


@pytest.mark.parametrize(
    ("version", "algorithm", "plaintext_footer", "is_stored"),
    list(itertools.product(("1.0", "2.0"), (GCM, CTR_PAGES), (False, True), (False, True))),
)
def test_files_of_pyarrow_hold_what_its_plaintext_files_hold(
    version: str, algorithm: str, plaintext_footer: bool, is_stored: bool
) -> None:
    table = corpus.nested(200).append_column("name", corpus.flat(200)["name"])
    options: dict[str, Any] = {
        "row_group_size": 80,
        "data_page_size": 200,
        "write_batch_size": 20,
        "data_page_version": version,
        "write_page_index": True,
        "write_page_checksum": True,
    }
    properties = pe.create_encryption_properties(
        FOOTER_KEY,
        aad_prefix=PREFIX,
        store_aad_prefix=is_stored,
        encryption_algorithm=algorithm,
        plaintext_footer=plaintext_footer,
    )
    encrypted = corpus.written(table, encryption_properties=properties, **options)
    file = open_encrypted(encrypted, FOOTER_KEY, aad_prefix=None if is_stored else PREFIX)
    assert (file.algorithm, file.aad_prefix, len(file.row_groups)) == (algorithm, PREFIX, 3)
    assert differences(open_plain(corpus.written(table, **options)), file) == []
    forms = {page.v2_form for chunk in file.chunks for page in chunk.data_pages}
    assert forms <= ({None} if version == "1.0" else {None, "arrow"})


@pytest.mark.parametrize("rows", [0, 1])
def test_tiny_files_of_pyarrow_open(rows: int) -> None:
    properties = pe.create_encryption_properties(FOOTER_KEY)
    for table in (corpus.flat(rows), corpus.nested(rows)):
        file = open_encrypted(corpus.written(table, encryption_properties=properties), FOOTER_KEY)
        assert differences(open_plain(corpus.written(table)), file) == []


# -- what must be refused ------------------------------------------------------------------------------------


def encrypted(name: str = "everything-v2", **options: Any) -> bytes:
    options = {"column_keys": COLUMN_KEYS, "encrypt_all": True, **options}
    return encrypt_reference(corpus.build(name), Encryption(FOOTER_KEY, **options))


def open_ours(data: bytes, **options: Any) -> File:
    return open_encrypted(data, FOOTER_KEY, COLUMN_KEYS, **options)


@pytest.mark.parametrize("kind", MODULE_TYPES)
def test_a_changed_bit_is_refused_with_the_name_of_its_module(kind: str) -> None:
    data = encrypted(plaintext_footer=kind in ("footer signature", "column metadata"))
    modules = open_ours(data).find_modules(kind)
    for module in (modules[0], modules[-1]):
        # The signature has no length word.
        nonce = module.offset + (0 if kind == "footer signature" else 4)
        for position in (nonce, module.offset + module.length - 1):
            # A changed bit inside the column metadata is one inside the footer, too.
            named = "footer signature" if kind == "column metadata" else str(module)
            with pytest.raises(Refused, match=named):
                open_ours(flip(data, position))


def test_ctr_pages_are_not_authenticated_and_only_a_checksum_notices() -> None:
    data = encrypted(algorithm=CTR_PAGES)
    module = open_ours(data).find_modules("data page")[3]
    with pytest.raises(Inconsistent, match="its CRC is not that of the bytes as they are stored"):
        open_ours(flip(data, module.offset + module.length - 1))
    without = encrypted("snappy-v1", algorithm=CTR_PAGES)
    module = open_ours(without).find_modules("data page")[0]
    changed = open_ours(flip(without, module.offset + module.length - 1))
    assert len(differences(open_ours(without), changed)) == 1


def test_exchanged_modules_are_refused() -> None:
    data = encrypted("several-row-groups")
    pages = [m for m in open_ours(data).find_modules("data page") if m.key == FOOTER_KEY]
    one, other = next(
        (a, b) for a, b in itertools.combinations(pages, 2) if a.length == b.length and a.row_group != b.row_group
    )
    swapped = bytearray(data)
    for a, b in ((one, other), (other, one)):
        swapped[a.offset : a.offset + a.length] = data[b.offset : b.offset + b.length]
    with pytest.raises(NotAuthentic, match=str(one)):
        open_ours(bytes(swapped))


@pytest.mark.parametrize(
    ("stored", "given", "message"),
    [
        (True, b"other", "the stored AAD prefix is not the given one"),
        (False, None, "wants an AAD prefix, and none is given"),
        (False, b"other", "the tag of the module"),
        (None, b"other", "an AAD prefix is given, and the file uses none"),
    ],
)
def test_a_wrong_prefix_is_refused(stored: bool | None, given: bytes | None, message: str) -> None:
    options = {} if stored is None else {"aad_prefix": PREFIX, "store_aad_prefix": stored}
    with pytest.raises(Refused, match=message):
        open_ours(encrypted("snappy-v1", **options), aad_prefix=given)


def test_a_missing_or_wrong_key_is_refused() -> None:
    data = encrypted()
    with pytest.raises(NotAuthentic, match="footer"):
        open_encrypted(data, COLUMN_KEY, COLUMN_KEYS)
    with pytest.raises(NotAuthentic, match="column metadata, row group 0"):
        open_encrypted(data, FOOTER_KEY, {**COLUMN_KEYS, "name": FOOTER_KEY})
    with pytest.raises(Refused, match=r"\(struct.y\): no key is given for it"):
        open_encrypted(data, FOOTER_KEY, {"name": COLUMN_KEY})
    locked = open_encrypted(data, FOOTER_KEY, {"name": COLUMN_KEY}, skip_missing=True)
    assert {chunk.path for chunk in locked.chunks if chunk.is_locked} == {("struct", "y")}


def test_a_plaintext_file_and_an_encrypted_one_are_not_taken_for_each_other() -> None:
    with pytest.raises(Refused, match="the file is not encrypted"):
        open_ours(corpus.build("snappy-v1"))
    with pytest.raises(Refused, match="does not begin and end with PAR1"):
        open_plain(encrypted("snappy-v1"))
    with pytest.raises(Refused, match="the file is encrypted, or says so"):
        open_plain(encrypted("snappy-v1", plaintext_footer=True))


# -- what must agree -----------------------------------------------------------------------------------------


def metadata(footer: Struct) -> Struct:
    value: Struct = footer[4][1][1][-1][3]
    return value


CONTRADICTIONS: dict[str, tuple[str, Callable[[Struct], object]]] = {
    "num_values": ("num_values is 1,", lambda f: metadata(f).put(5, I64, 1)),
    "uncompressed": ("total_uncompressed_size is 1,", lambda f: metadata(f).put(6, I64, 1)),
    "compressed": ("total_compressed_size ends at", lambda f: metadata(f).put(7, I64, metadata(f)[7] - 1)),
    "data page": (
        "data_page_offset is",
        lambda f: metadata(f).put(9, I64, metadata(f)[9] + 1),
    ),
    "dictionary": (
        "dictionary_page_offset is None",
        lambda f: metadata(f).put(9, I64, metadata(f)[11]).remove(11),
    ),
    "encoding stats": ("encoding_stats are", lambda f: metadata(f)[13][0].put(3, I32, 9)),
    "foretold": ("the encodings foretell False", lambda f: metadata(f).remove(13)[2].items.remove(8)),
    "bloom length": ("with its bitset, not 5", lambda f: metadata(f).put(15, I32, 5)),
    "ordinal": ("row group 1: its ordinal is 0", lambda f: f[4][1].put(7, I16, 0)),
    "file offset": ("row group 1: file_offset is 4,", lambda f: f[4][1].put(5, I64, 4)),
    "byte size": ("row group 2: total_byte_size is 1,", lambda f: f[4][2].put(2, I64, 1)),
    "group size": ("row group 2: total_compressed_size is 1,", lambda f: f[4][2].put(6, I64, 1)),
    "rows": ("num_rows is 1,", lambda f: f.put(3, I64, 1)),
    "index length": ("column index, row group 1, .* bytes long, not 1", lambda f: f[4][1][1][0].put(7, I32, 1)),
    "overlap": ("overlaps", lambda f: f[4][1][1][0].put(4, I64, f[4][1][1][1][4]).put(5, I32, f[4][1][1][1][5])),
}


@pytest.mark.parametrize(("message", "change"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_contradiction_in_a_footer_is_found(message: str, change: Callable[[Struct], object]) -> None:
    file = open_plain(corpus.build("everything-v1"))
    changed = write_plain(file, finish=change)
    with pytest.raises(Inconsistent, match=message):
        open_plain(changed)
    assert open_plain(changed, strict=False).complaints


@pytest.mark.parametrize(
    ("field", "type_", "message"),
    [(1, I64, "says offset 5 and"), (2, I32, "and size 5; it"), (3, I64, "first_row_index is 5, not")],
)
def test_a_contradiction_in_an_offset_index_is_found(field: int, type_: int, message: str) -> None:
    """The index is the last thing before the footer, so that another one can take its place."""
    plain = corpus.build("everything-v2")
    file = open_plain(plain)
    changed = file.chunks[-1].offset_index
    assert changed is not None
    changed[1][1].put(field, type_, 5)
    raw = encode(changed)
    file.footer[4][-1][1][-1].put(5, I32, len(raw))
    footer = encode(file.footer)
    begin = file.chunks[-1].chunk[4]
    data = plain[:begin] + raw + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(Inconsistent, match=message):
        open_plain(data)


def test_a_wrong_checksum_is_found_in_plaintext_too() -> None:
    plain = corpus.build("checksums")
    page = open_plain(plain).chunks[0].pages[0]
    begin = page.offset + page.header_size
    assert zlib.crc32(plain[begin : begin + page.body_size]) == page.header[4] & 0xFFFFFFFF
    with pytest.raises(Inconsistent, match=r"dictionary page, row group 0, column 0 .*: its CRC"):
        open_plain(flip(plain, begin))


def test_a_nonce_that_is_used_twice_is_found() -> None:
    class Constant:
        def randbytes(self, length: int) -> bytes:
            return bytes(length)

    encryption = Encryption(FOOTER_KEY, random=Constant())  # type: ignore[arg-type]
    data = encrypt_reference(corpus.build("snappy-v1"), encryption)
    with pytest.raises(Inconsistent, match="its nonce was used before with the same key"):
        open_encrypted(data, FOOTER_KEY)


def test_ordinals_do_not_wrap() -> None:
    assert module_aad(b"", "data page", 0x7FFF, 0, 1) == b"\x02\xff\x7f\x00\x00\x01\x00"
    with pytest.raises(Refused, match="data page, row group 32768, column 0, page 0: ordinal 32768"):
        module_aad(b"", "data page", 0x8000, 0, 0)


@pytest.mark.parametrize(
    "damaged", [b"", b"\x18", b"\x18\x05abc", b"\x19\xfc\xff\xff\xff\xff\x7f", b"\x1d\x00", b"\x1c" * 99]
)
def test_bytes_that_are_no_struct_are_refused(damaged: bytes) -> None:
    with pytest.raises(ThriftError):
        decode(damaged)


def test_pyarrow_agrees_that_our_pages_are_right() -> None:
    """The reference opens what it wrote itself: PyArrow is the second opinion."""
    properties = pe.create_decryption_properties(FOOTER_KEY, aad_prefix=PREFIX)
    for name, algorithm, footer in itertools.product(corpus.SMALL, (GCM, CTR_PAGES), (False, True)):
        plain = corpus.build(name)
        encryption = Encryption(
            FOOTER_KEY,
            algorithm=algorithm,
            plaintext_footer=footer,
            aad_prefix=PREFIX,
            store_aad_prefix=False,
            data_page_v2="arrow",
        )
        table = pq.read_table(
            io.BytesIO(encrypt_reference(plain, encryption)),
            decryption_properties=properties,
            page_checksum_verification=True,
        )
        assert table.equals(pq.read_table(io.BytesIO(plain))), (name, algorithm, footer)
