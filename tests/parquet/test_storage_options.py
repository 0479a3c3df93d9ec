"""Parquet files in a store of which only storage_options= says where it is."""

from __future__ import annotations

from pathlib import Path

from ags1.parquet import (
    DecryptionConfig,
    EncryptionConfig,
    ParquetView,
    dataset,
    decrypt_file,
    decrypt_tree,
    encrypt_file,
    encrypt_tree,
    read_table,
    rekey_file,
    rekey_tree,
    verify_file,
    verify_tree,
)
from tests.parquet import corpus
from tests.parquet.view_files import NAME, plain_table
from tests.servers.s3 import S3Server

KEY = b"footer key, 16 b"


def test_every_function_of_files_takes_storage_options(s3_server: S3Server, s3_bucket: str, tmp_path: Path) -> None:
    options, where = s3_server.storage_options(), f"s3://{s3_bucket}/lake"
    plain = tmp_path / "plain.parquet"
    plain.write_bytes(corpus.build(NAME))
    reading = DecryptionConfig(KEY)
    encrypt_file(plain, f"{where}/a.parquet", EncryptionConfig(KEY), storage_options=options)
    rekey_file(
        f"{where}/a.parquet", f"{where}/b.parquet", reading, EncryptionConfig(KEY, aad_prefix=b"b"),
        storage_options=options,
    )  # fmt: skip
    expected = plain_table(NAME)
    assert read_table(f"{where}/b.parquet", reading, storage_options=options).equals(expected)
    assert verify_file(f"{where}/b.parquet", reading, storage_options=options).failure_count == 0
    with ParquetView(f"{where}/a.parquet", reading, storage_options=options) as view:
        assert view.read(4) == b"PAR1"
    found = dataset(f"{where}/*.parquet", reading, storage_options=options, partitioning=None)
    assert found.count_rows() == 2 * expected.num_rows
    decrypt_file(f"{where}/b.parquet", tmp_path / "back.parquet", reading, storage_options=options)
    assert read_table(tmp_path / "back.parquet", None).equals(expected)


def test_every_function_of_trees_takes_storage_options(s3_server: S3Server, s3_bucket: str, tmp_path: Path) -> None:
    options, where = s3_server.storage_options(), f"s3://{s3_bucket}/lake"
    for name in ("p=1/a.parquet", "p=2/a.parquet"):
        path = tmp_path / "plain" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(corpus.build(NAME))
    (tmp_path / "plain/_SUCCESS").write_bytes(b"")
    config, reading = EncryptionConfig(KEY), DecryptionConfig(KEY)
    done = ["p=1/a.parquet", "p=2/a.parquet"]
    made = encrypt_tree(tmp_path / "plain", f"{where}/one", config, shared_keys=True, storage_options=options)
    assert (made.done, made.copied) == (done, ["_SUCCESS"])
    made = rekey_tree(f"{where}/one", f"{where}/two", reading, config, shared_keys=True, storage_options=options)
    assert made.done == done
    again = rekey_tree(
        f"{where}/one", f"{where}/two", reading, config, shared_keys=True, resume=True, storage_options=options
    )
    assert not again.errors
    assert sorted(again.done + again.finished_before) == done
    assert verify_tree(f"{where}/two", reading, storage_options=options).done == done
    decrypt_tree(f"{where}/two", tmp_path / "back", reading, storage_options=options)
    for name in done:
        assert read_table(tmp_path / "back" / name, None).equals(read_table(tmp_path / "plain" / name, None))
