"""inspect: what a file says of itself with all keys, some and none; never a key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ags1.errors import AuthenticationError, FormatError
from ags1.parquet import DecryptionConfig, EncryptionConfig, encrypt_file, inspect
from ags1.parquet.keys.key_description import KeyDescription
from ags1.parquet.structure.inspection import ColumnInspection, Inspection
from ags1.parquet.structure.schema import SchemaNode
from tests.checks import flip
from tests.parquet import corpus, public_files
from tests.parquet.key_tools import MASTERS, CountingKms
from tests.parquet.public_files import EXTERNAL_MATERIAL, PUBLIC_FILES
from tests.parquet.reference import open_encrypted, open_plain
from tests.parquet.reference_model import CTR_PAGES, DATA_PAGE_V2, GCM
from tests.parquet.reference_writer import Encryption, encrypt_reference

FOOTER_KEY = b"footer key, 24 bytes ..."
NAME_KEY = b"column key, 32 bytes ..........."
Y_KEY = b"another, 16 byte"
COLUMN_KEYS = {"name": NAME_KEY, "struct.y": Y_KEY}
KEYS = DecryptionConfig(FOOTER_KEY, column_keys=COLUMN_KEYS)


def encrypted(name: str = "everything-v1", **options: Any) -> bytes:
    return encrypt_reference(corpus.build(name), Encryption(FOOTER_KEY, column_keys=COLUMN_KEYS, **options))


def column(found: Inspection, name: str) -> ColumnInspection:
    return next(each for each in found.columns if each.column == name)


def checked(found: Inspection) -> Inspection:
    """What holds for every inspection."""
    text, data = str(found), json.dumps(found.to_dict())
    data.encode()
    for key in (FOOTER_KEY, NAME_KEY, Y_KEY):
        assert key.decode() not in text + data
        assert key.hex() not in text + data
    assert all(each == "\n" or each.isprintable() for each in text)
    return found


# -- plain files ---------------------------------------------------------------------------------------------


def test_plain_files_show_all_that_the_reference_finds(corpus_name: str) -> None:
    data = corpus.build(corpus_name)
    file = open_plain(data, strict=False)
    found = checked(inspect(data))
    assert found.encryption is None
    assert (found.size, found.rows, len(found.row_groups)) == (len(data), file.footer[3], len(file.row_groups))
    assert [each.rows for each in found.row_groups] == [group.fields[3] for group in file.row_groups]
    for index, each in enumerate(found.columns):
        chunks = [group.chunks[index] for group in file.row_groups]
        assert each.protection == "plaintext"
        assert each.readable
        assert each.readable_without_keys
        assert each.values == sum(chunk.metadata[5] for chunk in chunks)
        assert each.compressed_size == sum(chunk.metadata[7] for chunk in chunks)
        assert each.uncompressed_size == sum(chunk.metadata[6] for chunk in chunks)
        assert each.column_indexes == sum(chunk.column_index is not None for chunk in chunks)
        assert each.offset_indexes == sum(chunk.offset_index is not None for chunk in chunks)
        assert each.bloom_filters == sum(chunk.bloom_header is not None for chunk in chunks)
    assert "not encrypted" in str(found)


@pytest.mark.parametrize("version", [1, 2])
def test_the_version_of_pages_is_that_of_the_pages(version: int) -> None:
    found = inspect(corpus.build(f"nested-v{version}"))
    assert {each.page_version for each in found.columns} == {version}
    assert {each.levels_encrypted for each in found.columns} == {None}


def test_the_schema_is_a_tree_with_types() -> None:
    root = inspect(corpus.build("nested-v1")).schema
    assert root is not None
    assert (root.name, root.repetition) == ("schema", "")
    assert [each.name for each in root.children] == ["list", "struct", "map", "deep"]
    assert root.children[0] == SchemaNode(
        "list",
        "optional",
        None,
        "LIST",
        [SchemaNode("list", "repeated", None, None, [SchemaNode("element", "optional", "INT32", None)])],
    )
    types = inspect(corpus.build("types-v1")).schema
    assert types is not None
    found = {each.name: (each.type, each.logical_type) for each in types.children}
    assert found["date"] == ("INT32", "DATE")
    assert found["timestamp"] == ("INT64", "TIMESTAMP(MICROS, UTC)")
    assert found["time"] == ("INT64", "TIME(MICROS, local)")
    assert found["small decimal"][1] == "DECIMAL(9, 2)"
    assert found["fixed"] == ("FIXED_LEN_BYTE_ARRAY(5)", None)
    assert found["half"] == ("FIXED_LEN_BYTE_ARRAY(2)", "FLOAT16")
    assert found["byte"] == ("INT32", "INT(8)")
    assert found["unsigned"] == ("INT64", "UINT(64)")
    assert found["category"] == ("BYTE_ARRAY", "STRING")


def test_metadata_of_the_file_is_shown_by_key_and_size() -> None:
    found = inspect(corpus.build("key-value-metadata"))
    assert found.key_values is not None
    assert found.key_values["key"] == 5
    assert found.key_values["long"] == 5000
    assert found.created_by is not None
    assert found.created_by.startswith("parquet-cpp-arrow version")


def test_codecs_and_encodings_have_their_names() -> None:
    found = inspect(corpus.build("encodings-v1"))
    assert column(found, "delta").codecs == ["SNAPPY"]
    assert "DELTA_BINARY_PACKED" in (column(found, "delta").encodings or [])
    strange = inspect(corpus.build("unknown-codes"))
    assert strange.columns[0].codecs == ["99"]


def test_control_characters_of_strangers_reach_no_terminal() -> None:
    data = corpus.build("snappy-v1")
    at = data.rindex(b"parquet-cpp-arrow")
    found = checked(inspect(data[:at] + b"\x1b[31m\n\x00" + data[at + 7 :]))
    assert "created by \\x1b[31m\\n\\x00" in str(found)


# -- encrypted files -----------------------------------------------------------------------------------------


def test_without_keys_an_encrypted_footer_shows_only_how_it_is_encrypted() -> None:
    data = encrypted(aad_prefix=b"prefix", footer_key_metadata=b"kf", algorithm=CTR_PAGES)
    for decryption in (None, DecryptionConfig(column_keys=COLUMN_KEYS)):
        found = checked(inspect(data, decryption))
        assert not found.footer_readable
        assert (found.schema, found.columns, found.row_groups, found.rows, found.created_by) == (
            None, [], [], None, None,
        )  # fmt: skip
        encryption = found.encryption
        assert encryption is not None
        assert (encryption.algorithm, encryption.footer, encryption.signature_verified) == (
            CTR_PAGES, "encrypted", None,
        )  # fmt: skip
        assert (encryption.aad_prefix, encryption.stored_aad_prefix) == ("stored", b"prefix")
        assert encryption.aad_file_unique == bytes(range(1, 9))
        assert encryption.footer_key == KeyDescription("text", False, "kf", 2)
    assert "hidden by the encrypted footer" in str(found)
    assert "AES_GCM_CTR_V1, footer encrypted, AAD prefix stored ('prefix')" in str(found)
    assert "pages have no tag" in str(found)


def test_prefixes_are_stored_or_to_be_supplied_or_none() -> None:
    def said(**options: Any) -> str:
        encryption = inspect(encrypted(**options)).encryption
        assert encryption is not None
        return encryption.aad_prefix

    assert said() == "none"
    assert said(omit_supply_aad_prefix=True) == "none"
    assert said(aad_prefix=b"p") == "stored"
    assert said(aad_prefix=b"p", store_aad_prefix=False) == "to be supplied"


@pytest.mark.parametrize("encrypt_all", [False, True])
def test_all_keys_show_everything(small_name: str, encrypt_all: bool) -> None:
    data = encrypted(small_name, encrypt_all=encrypt_all)
    file = open_encrypted(data, FOOTER_KEY, COLUMN_KEYS)
    found = checked(inspect(data, KEYS))
    assert found.footer_readable
    for index, each in enumerate(found.columns):
        chunks = [group.chunks[index] for group in file.row_groups]
        if not chunks:
            assert each.protection == "plaintext"
            continue
        assert {each.protection} == {chunk.encryption for chunk in chunks}
        assert each.compressed_size == sum(chunk.metadata[7] for chunk in chunks)
        assert each.bloom_filters == sum(chunk.bloom_header is not None for chunk in chunks)
        assert each.readable
        assert each.readable_without_keys == (each.protection == "plaintext")
        assert (each.key is not None) == (each.protection == "column key")


def test_a_signed_footer_without_keys_shows_what_it_does_not_hide() -> None:
    data = encrypted(plaintext_footer=True, column_key_metadata={"name": b"kn"})
    found = checked(inspect(data))
    assert found.encryption is not None
    assert (found.encryption.footer, found.encryption.signature_verified) == ("signed", False)
    name = column(found, "name")
    assert (name.protection, name.readable, name.readable_without_keys) == ("column key", False, False)
    assert name.compressed_size
    assert name.page_version is None
    assert name.key == KeyDescription("text", False, "kn", 2)
    assert not name.statistics_shown
    assert column(found, "number").statistics_shown
    assert column(found, "number").page_version == 1
    assert "signature NOT checked" in str(found)
    assert "NOT encrypted: 7 of 9 columns" in str(found)
    verified = inspect(data, KEYS)
    assert verified.encryption is not None
    assert verified.encryption.signature_verified
    assert verified.encryption.footer_key.known
    assert "signature verified" in str(verified)


def test_of_a_file_without_values_nothing_is_said_to_be_readable_by_anyone() -> None:
    data = encrypt_reference(corpus.build("no-row-groups"), Encryption(FOOTER_KEY, plaintext_footer=True))
    assert "anyone with the file" not in str(checked(inspect(data)))
    assert "anyone with the file" in str(inspect(encrypted(plaintext_footer=True)))


def test_its_text_has_a_table_of_columns_and_one_of_row_groups() -> None:
    found = inspect(encrypted(), KEYS)
    lines = str(found).split("\n")
    columns = lines.index("") + 1
    assert lines[columns].split()[:3] == ["column", "protected", "by"]
    for line, each in zip(lines[columns + 1 :], found.columns, strict=False):
        assert line.startswith(each.column)
        assert line.index(each.protection) == lines[columns].index("protected by")
    groups = lines.index("", columns) + 1
    assert [line.split()[0] for line in lines[groups + 1 :][: len(found.row_groups)]] == [
        str(each.index) for each in found.row_groups
    ]
    assert lines[groups].split() == ["row", "group", "rows", "size", "uncompressed"]


def test_statistics_that_a_signed_footer_shows_are_pointed_out() -> None:
    found = inspect(encrypted(plaintext_footer=True, hidden_fields=()))
    assert column(found, "name").statistics_shown
    assert "STATISTICS SHOWN in the footer" in str(found)
    assert "STATISTICS" not in str(inspect(encrypted(plaintext_footer=True)))


def test_columns_whose_key_is_missing_are_not_known_but_the_others_are() -> None:
    found = checked(inspect(encrypted(), DecryptionConfig(FOOTER_KEY, column_keys={"name": NAME_KEY})))
    y, name = column(found, "struct.y"), column(found, "name")
    assert (y.protection, y.readable) == ("column key", False)
    assert (y.values, y.compressed_size, y.uncompressed_size, y.codecs, y.bloom_filters) == (None,) * 5
    assert y.column_indexes == y.offset_indexes == len(found.row_groups)
    assert y.key == KeyDescription("none", False)
    assert name.readable
    assert name.bloom_filters == len(found.row_groups)
    assert "column key (not known)" in str(found)
    assert "readable with the keys given: 8 of 9 columns" in str(found)


@pytest.mark.parametrize("form", ["java", "arrow"])
@pytest.mark.parametrize("algorithm", [GCM, CTR_PAGES])
def test_levels_of_v2_pages_are_inside_or_before_the_module(form: str, algorithm: str) -> None:
    data = encrypted("everything-v2", data_page_v2=form, algorithm=algorithm, encrypt_all=True)
    file = open_encrypted(data, FOOTER_KEY, COLUMN_KEYS)
    found = inspect(data, KEYS)
    for index, each in enumerate(found.columns):
        page = file.row_groups[0].chunks[index].data_pages[0]
        assert page.type == DATA_PAGE_V2
        assert each.page_version == 2
        levels = bool(page.repetition_levels + page.definition_levels)
        assert each.levels_encrypted == ((form == "arrow") if levels else None)
    assert ("levels in plaintext" in str(found)) == (form == "java")


def test_a_wrong_key_is_an_error_and_a_missing_one_is_not() -> None:
    with pytest.raises(AuthenticationError, match="footer"):
        inspect(encrypted(), DecryptionConfig(NAME_KEY))
    with pytest.raises(AuthenticationError, match=r"column metadata of column 'name' in row group 0"):
        inspect(encrypted(), DecryptionConfig(FOOTER_KEY, column_keys={"name": FOOTER_KEY}))
    data = encrypted(plaintext_footer=True)
    with pytest.raises(AuthenticationError, match="signed footer"):
        inspect(flip(data, data.rindex(b"parquet-cpp-arrow")), KEYS)
    with pytest.raises(FormatError, match="not a Parquet file, or truncated"):
        inspect(data[:-1])


def test_damaged_pages_are_no_matter() -> None:
    data = encrypted(encrypt_all=True)
    file = open_encrypted(data, FOOTER_KEY, COLUMN_KEYS)
    broken = data
    for module in file.find_modules("data page header"):
        broken = flip(broken, module.offset + 20)
    found = inspect(broken, KEYS)
    assert {each.page_version for each in found.columns} == {None}
    assert found.columns[0].compressed_size == inspect(data, KEYS).columns[0].compressed_size


# -- key metadata --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key_metadata", "kind"),
    [
        (b"name of a key", "text"),
        ("größe".encode(), "text"),
        (b"", "bytes"),
        (b"\x01\x20" + FOOTER_KEY, "bytes"),
        (b"\xff\xfe", "bytes"),
        (b"line\nline", "bytes"),
        (b"x" * 500, "bytes"),
        (b'{"wrappedKey": "AAAA"}', "bytes"),
        (b'{"keyMaterialType": "PKMT9", "wrappedDEK": "SECRETSECRET"}', "PKMT1"),
        (b"PKMT1 SECRETSECRET", "PKMT1"),
    ],
)
def test_key_metadata_is_shown_if_it_is_a_name_and_else_by_its_length(key_metadata: bytes, kind: str) -> None:
    found = checked(inspect(encrypted(footer_key_metadata=key_metadata)))
    assert found.encryption is not None
    key = found.encryption.footer_key
    assert (key.kind, key.length) == (kind, len(key_metadata))
    assert (key.text is not None) == (kind == "text")
    assert "SECRET" not in str(found) + json.dumps(found.to_dict())


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("internal", [False, True])
def test_key_material_is_described_without_what_is_wrapped(tmp_path: Path, double: bool, internal: bool) -> None:
    plain, path = tmp_path / "plain.parquet", tmp_path / "file.parquet"
    plain.write_bytes(corpus.build("snappy-v1"))
    kms = CountingKms()
    encryption = EncryptionConfig.from_kms(
        kms, "kf", {"kc1": ["name"]}, double_wrapping=double, internal_key_material=internal
    )
    encrypt_file(plain, path, encryption)
    kms.unwraps = 0
    found = checked(inspect(path))
    assert kms.unwraps == 0
    assert found.encryption is not None
    key = found.encryption.footer_key
    assert (key.kind, key.master_key_id, key.double_wrapped) == ("PKMT1", "kf", double)
    assert key.storage == ("internal" if internal else "external")
    assert (key.reference is None) == internal
    assert not key.known
    known = checked(inspect(path, DecryptionConfig.from_kms(kms)))
    name = column(known, "name").key
    assert name is not None
    assert (name.master_key_id, name.known, name.double_wrapped) == ("kc1", True, double)
    text = str(known) + json.dumps(known.to_dict())
    assert "wrappedDEK" not in text
    assert "wrappedKEK" not in text
    for master in MASTERS.values():
        assert master.decode() not in text
    assert f"master key 'kc1', {'double' if double else 'single'} wrapped" in str(known)
    if not internal:
        for each in tmp_path.glob("_KEY_MATERIAL_FOR_*"):
            each.unlink()
        lost = inspect(path).encryption
        assert lost is not None
        assert (lost.footer_key.master_key_id, lost.footer_key.reference) == (None, key.reference)


def test_the_public_file_with_external_material_names_its_master_key() -> None:
    public_files.read(f"{EXTERNAL_MATERIAL}.parquet.encrypted")
    found = checked(inspect(public_files.DIRECTORY / f"{EXTERNAL_MATERIAL}.parquet.encrypted"))
    assert found.encryption is not None
    assert found.encryption.footer_key.master_key_id == "kf"


@pytest.mark.parametrize("name", PUBLIC_FILES)
def test_public_files_show_their_columns_and_keys(name: str) -> None:
    public = PUBLIC_FILES[name]
    data = public.read()
    decryption = DecryptionConfig(public.footer_key, column_keys=public.column_keys, aad_prefix=public.aad_prefix)
    found = checked(inspect(data, decryption))
    assert found.encryption is not None
    assert found.encryption.footer_key == KeyDescription("text", True, "kf", 2)
    keys = {each.column: each.key.text for each in found.columns if each.key is not None}
    assert keys == ({"double_field": "kc1", "float_field": "kc2"} if public.column_keys else {})
    assert {each.page_version for each in found.columns} == {2 if "bloom" in name else 1}
