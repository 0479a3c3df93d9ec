"""Parquet encryption between ags1.parquet and PyArrow, both ways, and the public files of apache/parquet-testing."""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from ags1.kms import MemoryKms
from ags1.parquet import DecryptionConfig, EncryptionConfig, decrypt_file, encrypt_file, rekey_file, rotate_master_keys
from tests.checks import every
from tests.parquet import corpus, public_files
from tests.parquet.compare import differences
from tests.parquet.key_tools import MASTERS, CountingKms, rekey_freely
from tests.parquet.public_files import PUBLIC_FILES, PublicFile
from tests.parquet.reference import open_encrypted, open_plain
from tests.parquet.reference_model import CTR_PAGES, DATA_PAGE_V2, GCM, File

KEYS = {16: b"0123456789012345", 24: b"012345678901234567890123", 32: b"01234567890123456789012345678901"}
FOOTER_KEY = KEYS[16]
PREFIX = b"warehouse/table/part-3"
PREFIXES: dict[str, dict[str, Any]] = {
    "no-prefix": {},
    "stored": {"aad_prefix": PREFIX},
    "not-stored": {"aad_prefix": PREFIX, "store_aad_prefix": False},
}
algorithms = pytest.mark.parametrize("algorithm", [GCM, CTR_PAGES])
footers = pytest.mark.parametrize("plaintext_footer", [False, True], ids=["encrypted-footer", "plaintext-footer"])
prefixes = pytest.mark.parametrize("prefix", PREFIXES)
versions = pytest.mark.parametrize("version", ["1.0", "2.0"])

# PyArrow cannot read the first ones, or not say what a column is called; the last ones cannot be encrypted.
READABLE = [
    name
    for name in corpus.CORPUS
    if name not in {*corpus.UNREADABLE, "path-that-is-no-text", "index-pages", "unknown-pages"}
]


def table(rows: int = 900) -> pa.Table:
    return (
        corpus.nested(rows)
        .append_column("number", corpus.flat(rows)["number"])
        .append_column("name", corpus.flat(rows)["name"])
    )


LAYOUT: dict[str, Any] = {
    "row_group_size": 400,
    "write_page_index": True,
    "write_page_checksum": True,
    "data_page_size": 700,
    "write_batch_size": 60,
}


def written_by_pyarrow(content: pa.Table, properties: Any, **options: Any) -> bytes:
    sink = io.BytesIO()
    options = {**LAYOUT, **options}
    size = options.pop("row_group_size")
    with pq.ParquetWriter(sink, content.schema, encryption_properties=properties, **options) as writer:
        writer.write_table(content, row_group_size=size)
    return sink.getvalue()


def read_by_pyarrow(data: bytes | Path, properties: Any, **options: Any) -> pa.Table:
    source = io.BytesIO(data) if isinstance(data, bytes) else data
    return pq.read_table(
        source, decryption_properties=properties, page_checksum_verification=True, use_threads=False, **options
    )


def encrypted(data: bytes, config: EncryptionConfig) -> bytes:
    target = io.BytesIO()
    encrypt_file(data, target, config)
    return target.getvalue()


def decrypted(data: Any, config: DecryptionConfig) -> bytes:
    target = io.BytesIO()
    decrypt_file(data, target, config)
    return target.getvalue()


# -- one key for everything ----------------------------------------------------------------------------------


def supplied(prefix: str) -> bytes | None:
    return PREFIX if prefix == "not-stored" else None


@algorithms
@footers
@every("name", READABLE)
def test_pyarrow_reads_every_file_that_we_encrypted(name: str, algorithm: str, plaintext_footer: bool) -> None:
    data = corpus.build(name)
    config = EncryptionConfig(
        FOOTER_KEY,
        algorithm=algorithm,
        plaintext_footer=plaintext_footer,
        aad_prefix=PREFIX,
        store_aad_prefix=False,
        data_page_v2="arrow",
    )
    properties = pe.create_decryption_properties(FOOTER_KEY, aad_prefix=PREFIX)
    found = read_by_pyarrow(encrypted(data, config), properties)
    assert found.equals(pq.read_table(io.BytesIO(data), use_threads=False), check_metadata=True)


@algorithms
@footers
@prefixes
@pytest.mark.parametrize("length", [16, 24, 32])
def test_pyarrow_reads_every_kind_of_key_and_prefix(
    algorithm: str, plaintext_footer: bool, prefix: str, length: int
) -> None:
    data = corpus.build("everything-v2")
    config = EncryptionConfig(
        KEYS[length],
        algorithm=algorithm,
        plaintext_footer=plaintext_footer,
        data_page_v2="arrow",
        **PREFIXES[prefix],
    )
    secret = encrypted(data, config)
    properties = pe.create_decryption_properties(KEYS[length], aad_prefix=supplied(prefix))
    expected = pq.read_table(io.BytesIO(data))
    assert read_by_pyarrow(secret, properties).equals(expected)
    columns = ["name", "list"]
    properties = pe.create_decryption_properties(KEYS[length], aad_prefix=supplied(prefix))
    assert read_by_pyarrow(secret, properties, columns=columns).equals(expected.select(columns))
    with pytest.raises((OSError, pa.ArrowException)):
        read_by_pyarrow(secret, pe.create_decryption_properties(KEYS[length][::-1], aad_prefix=supplied(prefix)))


@algorithms
@footers
@prefixes
@versions
def test_what_pyarrow_encrypted_decrypts_to_what_it_writes_in_plaintext(
    algorithm: str, plaintext_footer: bool, prefix: str, version: str
) -> None:
    properties = pe.create_encryption_properties(
        FOOTER_KEY, encryption_algorithm=algorithm, plaintext_footer=plaintext_footer, **PREFIXES[prefix]
    )
    secret = written_by_pyarrow(table(), properties, data_page_version=version)
    plain = written_by_pyarrow(table(), None, data_page_version=version)
    back = decrypted(secret, DecryptionConfig(FOOTER_KEY, aad_prefix=supplied(prefix)))
    assert differences(open_plain(plain), open_plain(back)) == []
    assert read_by_pyarrow(back, None).equals(table())


@algorithms
@footers
@versions
def test_what_pyarrow_encrypted_is_re_keyed_for_pyarrow(algorithm: str, plaintext_footer: bool, version: str) -> None:
    properties = pe.create_encryption_properties(
        FOOTER_KEY, encryption_algorithm=algorithm, plaintext_footer=plaintext_footer, aad_prefix=PREFIX
    )
    secret = written_by_pyarrow(table(), properties, data_page_version=version)
    for new, other_algorithm in itertools.product((FOOTER_KEY, KEYS[32]), (GCM, CTR_PAGES)):
        target = io.BytesIO()
        config = EncryptionConfig(
            new,
            algorithm=other_algorithm,
            plaintext_footer=not plaintext_footer,
            aad_prefix=PREFIX,
            data_page_v2="arrow",
        )
        rekey_file(secret, target, DecryptionConfig(FOOTER_KEY), config)
        found = read_by_pyarrow(target.getvalue(), pe.create_decryption_properties(new))
        assert found.equals(table())
        assert differences(open_encrypted(secret, FOOTER_KEY), open_encrypted(target.getvalue(), new)) == []


def test_statistics_indexes_and_filters_work_on_what_we_encrypted() -> None:
    data = corpus.written(corpus.flat(), row_group_size=250, write_page_index=True)
    secret = encrypted(data, EncryptionConfig(FOOTER_KEY, data_page_v2="arrow"))
    before = pq.read_metadata(io.BytesIO(data))
    after = pq.read_metadata(io.BytesIO(secret), decryption_properties=pe.create_decryption_properties(FOOTER_KEY))
    assert after.schema.equals(before.schema)
    assert (after.num_rows, after.num_row_groups, after.created_by, after.metadata) == (
        before.num_rows,
        before.num_row_groups,
        before.created_by,
        before.metadata,
    )
    for group, column in itertools.product(range(before.num_row_groups), range(before.num_columns)):
        one, other = before.row_group(group).column(column), after.row_group(group).column(column)
        assert one.statistics == other.statistics
        assert (one.encodings, one.compression, one.num_values) == (
            other.encodings,
            other.compression,
            other.num_values,
        )
        assert other.has_column_index
        assert other.has_offset_index
    for terms in ([("number", ">=", 300), ("number", "<", 310)], [("name", "==", "name 16")], [("number", "<", 0)]):
        properties = pe.create_decryption_properties(FOOTER_KEY)
        found = read_by_pyarrow(secret, properties, filters=terms)
        assert found.equals(pq.read_table(io.BytesIO(data), filters=terms))


def test_pyarrow_refuses_the_form_of_v2_pages_that_java_has_until_it_is_re_keyed() -> None:
    plain = corpus.written(table(), data_page_version="2.0")
    secret = encrypted(plain, EncryptionConfig(FOOTER_KEY, data_page_v2="java"))
    with pytest.raises((OSError, pa.ArrowException)):
        read_by_pyarrow(secret, pe.create_decryption_properties(FOOTER_KEY))
    target = io.BytesIO()
    rekey_file(secret, target, DecryptionConfig(FOOTER_KEY), EncryptionConfig(FOOTER_KEY, data_page_v2="arrow"))
    assert read_by_pyarrow(target.getvalue(), pe.create_decryption_properties(FOOTER_KEY)).equals(table())


def test_everyone_reads_the_plaintext_columns_beside_a_plaintext_footer() -> None:
    """Without any key."""
    content = corpus.flat()
    config = EncryptionConfig(FOOTER_KEY, column_keys={"name": KEYS[32], "blob": KEYS[24]}, plaintext_footer=True)
    secret = encrypted(corpus.written(content), config)
    with pq.ParquetFile(io.BytesIO(secret)) as file:
        assert file.read(columns=["number", "flag"], use_threads=False).equals(content.select(["number", "flag"]))


# -- key tools -----------------------------------------------------------------------------------------------


COLUMNS = {"kc1": ["name", "list.list.element"], "kc2": ["struct.y"]}


def factory() -> Any:
    return pe.CryptoFactory(lambda _: MemoryKms(MASTERS).as_pyarrow())


def opening(path: Path | None = None) -> Any:
    connection = pe.KmsConnectionConfig()
    return factory().file_decryption_properties(connection, None, *([] if path is None else [str(path)]))


@algorithms
@footers
@versions
@pytest.mark.parametrize("double", [True, False], ids=["double", "single"])
@pytest.mark.parametrize("internal", [True, False], ids=["internal", "external"])
def test_pyarrows_key_tools_read_what_we_encrypted_with_column_keys(
    tmp_path: Path, algorithm: str, plaintext_footer: bool, version: str, double: bool, internal: bool
) -> None:
    path = tmp_path / "secret.parquet"
    plain = corpus.written(table(), data_page_version=version, **LAYOUT)
    config = EncryptionConfig.from_kms(
        CountingKms(),
        "kf",
        COLUMNS,
        algorithm=algorithm,
        plaintext_footer=plaintext_footer,
        double_wrapping=double,
        internal_key_material=internal,
        data_page_v2="arrow",
    )
    # The keys of a file that replaces another have other names in the key material file.
    for _ in range(1 if internal else 2):
        encrypt_file(plain, path, config)
    assert read_by_pyarrow(path, opening(path)).equals(table())
    assert (tmp_path / "_KEY_MATERIAL_FOR_secret.parquet.json").exists() != internal


@algorithms
@footers
@versions
@pytest.mark.parametrize("internal", [True, False], ids=["internal", "external"])
def test_we_read_what_pyarrows_key_tools_encrypted(
    tmp_path: Path, algorithm: str, plaintext_footer: bool, version: str, internal: bool
) -> None:
    path = tmp_path / "secret.parquet"
    config = pe.EncryptionConfiguration(
        "kf",
        column_keys=COLUMNS,
        encryption_algorithm=algorithm,
        plaintext_footer=plaintext_footer,
        internal_key_material=internal,
        data_key_length_bits=256,
    )
    properties = factory().file_encryption_properties(pe.KmsConnectionConfig(), config, str(path))
    path.write_bytes(written_by_pyarrow(table(), properties, data_page_version=version))
    opener = DecryptionConfig.from_kms(CountingKms())
    back = open_plain(decrypted(path, opener))
    plain = open_plain(written_by_pyarrow(table(), None, data_page_version=version))
    assert differences(plain, back) == []
    assert any(page.type == DATA_PAGE_V2 for chunk in back.chunks for page in chunk.pages) == (version == "2.0")
    # With fresh keys, for PyArrow again: other columns, the key material in the other place.
    changed = tmp_path / "changed.parquet"
    other = EncryptionConfig.from_kms(
        CountingKms(), "kc2", {"kf": ["number", "map"]}, internal_key_material=not internal, data_page_v2="arrow"
    )
    rekey_freely(path, changed, opener, other)
    assert read_by_pyarrow(changed, opening(changed)).equals(table())


def test_either_rotates_the_key_material_of_the_other(tmp_path: Path) -> None:
    path = tmp_path / "secret.parquet"
    config = EncryptionConfig.from_kms(CountingKms(), "kf", COLUMNS, internal_key_material=False, data_page_v2="arrow")
    encrypt_file(corpus.written(table()), path, config)
    before = path.read_bytes()
    material = path.with_name("_KEY_MATERIAL_FOR_secret.parquet.json")
    seen = {material.read_bytes()}
    factory().rotate_master_keys(pe.KmsConnectionConfig(), str(path))
    seen.add(material.read_bytes())
    assert read_by_pyarrow(path, opening(path)).equals(table())
    rotate_master_keys(CountingKms(), tmp_path)
    seen.add(material.read_bytes())
    assert read_by_pyarrow(path, opening(path)).equals(table())
    decrypted(path, DecryptionConfig.from_kms(CountingKms()))
    assert len(seen) == 3
    assert path.read_bytes() == before


# -- the public files ----------------------------------------------------------------------------------------


def open_public(file: PublicFile, **options: Any) -> File:
    return open_encrypted(
        file.read(),
        file.footer_key,
        file.column_keys,
        file.aad_prefix,
        **options,  # type: ignore[arg-type]
    )


def config_of(file: PublicFile) -> DecryptionConfig:
    return DecryptionConfig(file.footer_key, column_keys=file.column_keys, aad_prefix=file.aad_prefix)


def retriever(key_metadata: bytes) -> bytes | None:
    return public_files.KEYS_BY_ID.get(key_metadata)


@pytest.mark.parametrize("name", PUBLIC_FILES)
def test_a_public_file_decrypts_to_what_every_module_of_it_holds(name: str) -> None:
    file = PUBLIC_FILES[name]
    back = decrypted(file.read(), config_of(file))
    assert differences(open_public(file), open_plain(back)) == []
    assert open_plain(back).gaps() == []
    by_metadata = DecryptionConfig(key_retriever=retriever, aad_prefix=file.aad_prefix)
    assert decrypted(file.read(), by_metadata) == back


def test_public_files_hold_the_same_rows() -> None:
    expected = read_by_pyarrow(
        PUBLIC_FILES["uniform_encryption"].read(), pe.create_decryption_properties(public_files.FOOTER_KEY)
    )
    assert expected.num_rows > 0
    for name, file in PUBLIC_FILES.items():
        found = read_by_pyarrow(decrypted(file.read(), config_of(file)), None)
        if name.endswith("bloom_filter"):
            assert found.num_rows == 2000
        else:
            assert found.equals(expected), name


@algorithms
@footers
@pytest.mark.parametrize("name", PUBLIC_FILES)
def test_a_public_file_is_re_keyed(name: str, algorithm: str, plaintext_footer: bool) -> None:
    file = PUBLIC_FILES[name]
    content = read_by_pyarrow(decrypted(file.read(), config_of(file)), None)
    # A file keeps its prefix, which one of them does not store.
    prefix = config_of(file).aad_prefix
    for keys in (None, {"double_field": KEYS[32]}, file.column_keys):
        target = io.BytesIO()
        config = EncryptionConfig(
            file.footer_key,
            column_keys=keys,
            encrypt_all=keys is None,
            algorithm=algorithm,
            plaintext_footer=plaintext_footer,
            data_page_v2="arrow",
        )
        rekey_freely(file.read(), target, config_of(file), config)
        opened = open_encrypted(target.getvalue(), file.footer_key, keys, prefix)  # type: ignore[arg-type]
        assert differences(open_public(file), opened) == []
        assert opened.gaps() == []
        reading = DecryptionConfig(file.footer_key, column_keys=keys, aad_prefix=prefix)
        back = decrypted(target.getvalue(), reading)
        assert read_by_pyarrow(back, None).equals(content)
        if keys is None:
            given = {} if prefix is None else {"aad_prefix": prefix}
            found = read_by_pyarrow(target.getvalue(), pe.create_decryption_properties(file.footer_key, **given))
            assert found.equals(content)


class ServerWrap(pe.KmsClient):  # type: ignore[misc]
    """What wrapped the keys of the public file with external key material; it only unwraps."""

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        name = master_key_identifier.encode()
        return public_files._unwrap_locally(wrapped_key, public_files.KEYS_BY_ID[name], name)


def test_the_public_file_with_external_key_material_is_decrypted_and_re_keyed(tmp_path: Path) -> None:
    name = f"{public_files.EXTERNAL_MATERIAL}.parquet.encrypted"
    data = public_files.read(name)
    opened = open_encrypted(data, public_files.external_key, lambda _, metadata: public_files.external_key(metadata))
    opener = DecryptionConfig.from_kms(ServerWrap())
    back = decrypted(public_files.DIRECTORY / name, opener)
    assert differences(opened, open_plain(back)) == []
    assert read_by_pyarrow(back, None).num_rows == 100
    changed = tmp_path / "changed.parquet"
    rekey_freely(
        public_files.DIRECTORY / name,
        changed,
        opener,
        EncryptionConfig.from_kms(CountingKms(), "kf", {"kc1": [".".join(opened.chunks[0].path)]}),
    )
    assert read_by_pyarrow(changed, opening()).equals(read_by_pyarrow(back, None))
