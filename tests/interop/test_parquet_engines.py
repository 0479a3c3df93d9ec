"""Other readers and writers of Parquet: what they write is encrypted, what was decrypted they read."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ags1 import AuthenticationError
from ags1.parquet import DecryptionConfig, EncryptionConfig, decrypt_file, encrypt_file
from tests.parquet import corpus
from tests.parquet.reference_thrift import decode

FOOTER_KEY = b"0123456789012345"
COLUMN_KEYS = {"name": b"key of the column name..", "number": b"key of number 16"}
WAYS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "columns-ctr": {"column_keys": COLUMN_KEYS, "algorithm": "AES_GCM_CTR_V1"},
    "all-plaintext-footer": {"column_keys": COLUMN_KEYS, "encrypt_all": True, "plaintext_footer": True},
}
FILES = ("everything-v1", "everything-v2", "bloom-filters-v1", "polars", "polars-uncompressed", "duckdb", "duckdb-v2")


def encrypted(data: bytes, **options: Any) -> bytes:
    target = io.BytesIO()
    encrypt_file(data, target, EncryptionConfig(FOOTER_KEY, **options))
    return target.getvalue()


def round_trip(data: bytes, path: Path, **options: Any) -> None:
    """Encrypt, and decrypt into a file."""
    names, keys = pq.read_schema(io.BytesIO(data)).names, None
    if "column_keys" in options:
        keys = options["column_keys"] = {name: key for name, key in COLUMN_KEYS.items() if name in names}
    secret = encrypted(data, **options)
    decrypt_file(secret, path, DecryptionConfig(FOOTER_KEY, column_keys=keys))


@pytest.fixture
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB without a network."""
    settings = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "threads": "1"}
    with duckdb.connect(config=settings) as connection:
        # Its own cryptography rather than that of an extension, which would be fetched.
        connection.execute("SET force_mbedtls_unsafe = 'true'")
        connection.execute(f"PRAGMA add_parquet_key('key', '{FOOTER_KEY.decode()}')")
        yield connection


def _by_pyarrow(path: Path, _: Any) -> pa.Table:
    return pq.read_table(path, page_checksum_verification=True)


def _by_polars(path: Path, _: Any) -> pa.Table:
    return pl.read_parquet(path).to_arrow()


def _by_polars_lazily(path: Path, _: Any) -> pa.Table:
    return pl.scan_parquet(path).filter(pl.col("name") == "name 16").collect().to_arrow()


def _by_duckdb(path: Path, database: duckdb.DuckDBPyConnection) -> pa.Table:
    return database.sql(f"SELECT * FROM read_parquet('{path}')").to_arrow_table()


def _by_duckdb_filtered(path: Path, database: duckdb.DuckDBPyConnection) -> pa.Table:
    """With a filter that statistics and Bloom filters answer."""
    return database.sql(f"SELECT * FROM read_parquet('{path}') WHERE name = 'name 16'").to_arrow_table()


READERS: dict[str, Callable[[Path, Any], pa.Table]] = {
    "pyarrow": _by_pyarrow,
    "polars": _by_polars,
    "polars-filtered": _by_polars_lazily,
    "duckdb": _by_duckdb,
    "duckdb-filtered": _by_duckdb_filtered,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", FILES)
def test_every_reader_finds_the_same_in_what_was_encrypted_and_decrypted(
    tmp_path: Path, database: duckdb.DuckDBPyConnection, name: str, reader: str, way: str
) -> None:
    data = corpus.build(name)
    if reader.startswith("polars") and name.startswith("everything"):
        # polars cannot read maps.
        data = corpus.written(
            pq.read_table(io.BytesIO(data)).drop_columns(["map"]),
            data_page_version=f"{name[-1]}.0",
            row_group_size=150,
            write_page_index=True,
            write_page_checksum=True,
        )
    (tmp_path / "plain.parquet").write_bytes(data)
    round_trip(data, tmp_path / "back.parquet", **WAYS[way])
    read = READERS[reader]
    expected = read(tmp_path / "plain.parquet", database)
    assert read(tmp_path / "back.parquet", database).equals(expected)
    assert expected.num_rows > 0


@pytest.mark.parametrize("name", ["polars", "polars-uncompressed", "polars-lz4", "duckdb", "duckdb-v2"])
def test_pyarrow_reads_what_others_wrote_and_we_encrypted(name: str) -> None:
    data = corpus.build(name)
    secret = encrypted(data, data_page_v2="arrow")
    found = pq.read_table(io.BytesIO(secret), decryption_properties=pe.create_decryption_properties(FOOTER_KEY))
    assert found.equals(pq.read_table(io.BytesIO(data)))


# -- DuckDB's own encryption ---------------------------------------------------------------------------------


ENCRYPTION = "ENCRYPTION_CONFIG {footer_key: 'key'}"


def test_duckdb_binds_its_modules_to_no_file_so_that_we_refuse_them(
    tmp_path: Path, database: duckdb.DuckDBPyConnection
) -> None:
    """The releases known when this was written seal without any AAD, against the specification.

    What they wrote must not be taken for a file of which every module is bound to its place.
    """
    path = tmp_path / "duckdb.parquet"
    database.execute(f"COPY (SELECT range AS id FROM range(100)) TO '{path}' ({ENCRYPTION})")
    data = path.read_bytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    _, position = decode(footer, 0)
    module = footer[position:]
    try:
        AESGCM(FOOTER_KEY).decrypt(module[4:16], module[16:], b"")
    except InvalidTag:
        # A later release, which does as the specification says.
        decrypt_file(path, tmp_path / "back.parquet", DecryptionConfig(FOOTER_KEY))
        assert pq.read_table(tmp_path / "back.parquet")["id"].to_pylist() == list(range(100))
        return
    with pytest.raises(AuthenticationError, match=r"duckdb\.parquet: footer: wrong key, wrong AAD prefix"):
        decrypt_file(path, tmp_path / "back.parquet", DecryptionConfig(FOOTER_KEY))
    assert not (tmp_path / "back.parquet").exists()


def test_duckdb_reads_our_files_right_or_not_at_all(tmp_path: Path, database: duckdb.DuckDBPyConnection) -> None:
    (tmp_path / "plain.parquet").write_bytes(corpus.written(corpus.flat()))
    path = tmp_path / "secret.parquet"
    encrypt_file(tmp_path / "plain.parquet", path, EncryptionConfig(FOOTER_KEY, data_page_v2="arrow"))
    query = f"SELECT * FROM read_parquet('{path}', encryption_config = {{footer_key: 'key'}})"
    try:
        found = database.sql(query).to_arrow_table()
    except duckdb.Error as error:
        assert "AES tag" in str(error)  # noqa: PT017
    else:
        assert found.equals(database.sql(f"SELECT * FROM '{tmp_path}/plain.parquet'").to_arrow_table())


def test_duckdb_reads_the_plaintext_columns_beside_a_plaintext_footer(
    tmp_path: Path, database: duckdb.DuckDBPyConnection
) -> None:
    content = corpus.flat()
    path = tmp_path / "secret.parquet"
    config = EncryptionConfig(FOOTER_KEY, column_keys=COLUMN_KEYS, plaintext_footer=True)
    encrypt_file(corpus.written(content), path, config)
    for names in itertools.combinations(["real", "flag", "blob"], 2):
        found = database.sql(f"SELECT {', '.join(names)} FROM '{path}'").to_arrow_table()
        assert found.to_pydict() == content.select(names).to_pydict()
    with pytest.raises(duckdb.Error):
        database.execute(f"SELECT name FROM '{path}'").fetchall()
