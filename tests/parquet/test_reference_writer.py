"""The reference writer: what it encrypts opens, holds the same, and shows nothing that it should not."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from tests.checks import covering, every
from tests.parquet import corpus
from tests.parquet.compare import differences
from tests.parquet.reference import open_encrypted, open_plain
from tests.parquet.reference_model import CTR_PAGES, DATA_PAGE_V2, GCM, File, Inconsistent, NotAuthentic
from tests.parquet.reference_writer import Encryption, encrypt_reference, write_plain

FOOTER_KEY = b"footer key, 24 bytes ..."
PREFIX = b"prefix"
# By dotted path and by its parts; the files have some of them.
COLUMN_KEYS: Mapping[tuple[str, ...] | str, bytes] = {
    "name": b"column key, 32 bytes ...........",
    "list.list.element": b"another, 16 byte",
    ("struct", "y"): b"one more, 24 bytes .....",
}


def check(plain: File, encryption: Encryption) -> File:
    """Encrypt, open and decrypt; returns what was opened."""
    encrypted = encrypt_reference(plain, encryption)
    supplied = None if encryption.store_aad_prefix else encryption.aad_prefix
    opened = open_encrypted(encrypted, encryption.footer_key, encryption.column_keys, supplied)
    assert differences(plain, opened) == []
    assert opened.gaps() == []
    assert differences(plain, open_plain(write_plain(opened))) == []
    return opened


OPTIONS: tuple[dict[str, Any], ...] = ({"pad_thrift": True}, {"plaintext_footer": True, "column_keys": COLUMN_KEYS})


@every("name", corpus.CORPUS)
def test_every_file_of_the_corpus_survives(name: str) -> None:
    options = OPTIONS[list(corpus.CORPUS).index(name) % 2]
    check(open_plain(corpus.build(name), strict=False), Encryption(FOOTER_KEY, **options))


def test_every_two_options_together_open(small_name: str) -> None:
    plain = open_plain(corpus.build(small_name))
    keys = ((None, False), (COLUMN_KEYS, False), (COLUMN_KEYS, True))
    prefixes = ((None, True, True), (PREFIX, True, False), (PREFIX, False, True))
    for each in covering((False, True), (GCM, CTR_PAGES), keys, ("java", "arrow"), prefixes):
        plaintext_footer, algorithm, (column_keys, encrypt_all), form, (prefix, is_stored, has_ordinals) = each
        encryption = Encryption(
            FOOTER_KEY,
            column_keys=column_keys,
            encrypt_all=encrypt_all,
            algorithm=algorithm,
            plaintext_footer=plaintext_footer,
            aad_prefix=prefix,
            store_aad_prefix=is_stored,
            data_page_v2=form,
            write_ordinals=has_ordinals,
            omit_supply_aad_prefix=has_ordinals,
        )
        opened = check(plain, encryption)
        assert {page.v2_form for chunk in opened.chunks for page in chunk.pages} <= {None, form}
        kinds = {chunk.encryption for chunk in opened.chunks}
        assert ("plaintext" in kinds) <= (column_keys is not None and not encrypt_all)


def test_both_forms_of_v2_pages_differ_in_the_levels_only() -> None:
    plain = corpus.build("everything-v2")
    java, arrow = (encrypt_reference(plain, Encryption(FOOTER_KEY, data_page_v2=form)) for form in ("java", "arrow"))
    sizes = []
    for data, form in ((java, "java"), (arrow, "arrow")):
        pages = [page for chunk in open_encrypted(data, FOOTER_KEY).chunks for page in chunk.data_pages]
        assert all(page.type == DATA_PAGE_V2 for page in pages)
        assert {page.v2_form for page in pages if page.definition_levels} == {form}
        sizes.append([page.body_size for page in pages])
        for page in pages:
            levels = page.repetition_levels + page.definition_levels
            begin = page.offset + page.header_size
            assert (data[begin : begin + len(levels)] == levels) == (form == "java" or not levels)
    assert sizes[0] == sizes[1]


def test_pyarrow_takes_the_arrow_form_only() -> None:
    plain = corpus.build("everything-v2")
    properties = pe.create_decryption_properties(FOOTER_KEY)
    for form in ("arrow", "java"):
        file = io.BytesIO(encrypt_reference(plain, Encryption(FOOTER_KEY, data_page_v2=form)))
        if form == "arrow":
            assert pq.read_table(file, decryption_properties=properties).num_rows == 400
        else:
            with pytest.raises(OSError, match="ciphertext length"):
                pq.read_table(file, decryption_properties=properties, use_threads=False)


def test_nothing_of_an_encrypted_column_is_left_in_plaintext() -> None:
    """Neither its values nor its statistics, with a plaintext footer either."""
    secret = b"name 96"
    for name in ("polars", "everything-v1", "none-v1"):
        plain = corpus.build(name)
        assert secret in plain
        for footer in (False, True):
            encryption = Encryption(FOOTER_KEY, column_keys={"name": FOOTER_KEY}, plaintext_footer=footer)
            assert secret not in encrypt_reference(plain, encryption)


def test_structs_are_padded_as_parquet_java_does() -> None:
    file = check(open_plain(corpus.build("checksums")), Encryption(FOOTER_KEY, pad_thrift=True))
    assert {module.length for module in file.find_modules("data page header")} == {132}
    assert all(page.header_padding for chunk in file.chunks for page in chunk.pages)


def test_a_footer_that_says_gcm_for_ctr_is_understood_of_old_arrow_only() -> None:
    plain = open_plain(corpus.build("snappy-v1"))
    encryption = Encryption(FOOTER_KEY, algorithm=CTR_PAGES, declared_algorithm=GCM, plaintext_footer=True)
    with pytest.raises(NotAuthentic, match="dictionary page, row group 0, column 0"):
        open_encrypted(encrypt_reference(plain, encryption), FOOTER_KEY)
    plain.footer.fields[6] = (8, b"parquet-cpp-arrow version 21.0.0")
    data = encrypt_reference(plain, encryption)
    with pytest.raises(Inconsistent, match="it is CTR although the footer says GCM"):
        open_encrypted(data, FOOTER_KEY)
    file = open_encrypted(data, FOOTER_KEY, strict=False)
    assert file.says_gcm_for_ctr
    assert differences(plain, file) == []


def test_key_metadata_is_written_where_it_belongs() -> None:
    plain = corpus.build("checksums")
    keys = {b"\xffkf": FOOTER_KEY, b"kc": COLUMN_KEYS["name"]}
    for footer in (False, True):
        encryption = Encryption(
            FOOTER_KEY,
            column_keys=COLUMN_KEYS,
            plaintext_footer=footer,
            footer_key_metadata=b"\xffkf",
            column_key_metadata={"name": b"kc"},
        )
        data = encrypt_reference(plain, encryption)
        file = open_encrypted(data, lambda named: keys[named or b""], lambda _path, named: keys[named or b""])
        assert file.footer_key_metadata == b"\xffkf"
        assert {chunk.path: chunk.key_metadata for chunk in file.chunks if chunk.key_metadata} == {("name",): b"kc"}
