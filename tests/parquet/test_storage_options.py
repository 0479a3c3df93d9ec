"""Parquet files in a store of which only storage_options= says where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from ags1.kms import MemoryKms
from ags1.parquet import (
    DecryptionConfig,
    EncryptionConfig,
    ParquetView,
    ParquetWriter,
    dataset,
    decrypt_file,
    decrypt_tree,
    encrypt_file,
    encrypt_tree,
    inspect,
    read_table,
    rekey_file,
    rekey_tree,
    rotate_file,
    rotate_master_keys,
    verify_file,
    verify_tree,
)
from ags1.parquet.structure.source_file import SourceFile
from ags1.storage import Entry, Location, open_output, status
from tests.parquet import corpus
from tests.parquet.view_files import NAME, plain_table
from tests.servers.proxy import ShapingProxy
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
    assert verify_file(f"{where}/b.parquet", reading, storage_options=options).outcome != "damaged"
    with ParquetView(f"{where}/a.parquet", reading, storage_options=options) as view:
        assert view.read(4) == b"PAR1"
    found = dataset(f"{where}/*.parquet", reading, storage_options=options, partitioning=None)
    assert found.count_rows() == 2 * expected.num_rows
    decrypt_file(f"{where}/b.parquet", tmp_path / "back.parquet", reading, storage_options=options)
    assert read_table(tmp_path / "back.parquet", None).equals(expected)
    with ParquetWriter(f"{where}/w.parquet", expected.schema, EncryptionConfig(KEY), storage_options=options) as writer:
        writer.write_table(expected)
    assert read_table(f"{where}/w.parquet", reading, storage_options=options).equals(expected)
    assert inspect(f"{where}/w.parquet", reading, storage_options=options).encryption is not None


@pytest.mark.parametrize("internal", [True, False])
def test_master_keys_rotate_with_storage_options(
    internal: bool, s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    options, where = s3_server.storage_options(), f"s3://{s3_bucket}/lake"
    kms = MemoryKms({"old": bytes(16), "new": bytes(range(16))})
    plain = tmp_path / "plain.parquet"
    plain.write_bytes(corpus.build(NAME))
    config = EncryptionConfig.from_kms(kms, "old", internal_key_material=internal)
    encrypt_file(plain, f"{where}/p=1/a.parquet", config, storage_options=options)
    if internal:
        counts = rotate_file(
            f"{where}/p=1/a.parquet", f"{where}/p=1/a.parquet", kms, master_key_ids={"old": "new"},
            storage_options=options,
        )  # fmt: skip
        assert counts.keys() == {"new"}
    else:
        report = rotate_master_keys(kms, where, master_key_ids={"old": "new"}, storage_options=options)
        assert [name for name, _ in report.rotated] == [f"{where}/p=1/_KEY_MATERIAL_FOR_a.parquet.json"]
        assert report.master_keys.keys() == {"new"}
    reading = DecryptionConfig.from_kms(MemoryKms({"new": bytes(range(16))}))
    assert read_table(f"{where}/p=1/a.parquet", reading, storage_options=options).equals(plain_table(NAME))


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
    # Whether _SUCCESS is copied again depends on the second in which it was written: S3 keeps no smaller part.
    assert sorted({*again.done, *again.finished_before} - {"_SUCCESS"}) == done
    assert list(verify_tree(f"{where}/two", reading, storage_options=options).facts["results"]) == done
    decrypt_tree(f"{where}/two", tmp_path / "back", reading, storage_options=options)
    for name in done:
        assert read_table(tmp_path / "back" / name, None).equals(read_table(tmp_path / "plain" / name, None))


def test_a_small_file_of_a_tree_is_fetched_once_each_time_that_it_is_read(
    s3_server: S3Server, s3_bucket: str, shaping_proxy: ShapingProxy
) -> None:
    # Longer than what opening an object of unknown length fetches.
    table = corpus.flat(6000)
    plain = corpus.written(table, compression="none", row_group_size=1000, write_page_index=True)
    assert 100_000 < len(plain) < 1 << 20
    options, where = s3_server.storage_options(), f"s3://{s3_bucket}/small"
    keys = {"name": bytes(range(16))}
    config, reading = EncryptionConfig(KEY, column_keys=keys), DecryptionConfig(KEY, column_keys=keys)
    with open_output(Location(f"{where}/plain/a.parquet", options)) as output:
        output.write(plain)
        output.commit()
    seen = s3_server.through(shaping_proxy.endpoint).storage_options()

    def gets() -> int:
        found = shaping_proxy.log().only("GET", r"a\.parquet")
        shaping_proxy.forget()
        return len(found.requests)

    shaping_proxy.forget()
    encrypt_tree(f"{where}/plain", f"{where}/sealed", config, shared_keys=True, storage_options=seen)
    # For its kind, for its columns, and to encrypt it.
    assert gets() <= 3
    assert verify_tree(f"{where}/sealed", reading, storage_options=seen).ok
    assert gets() == 1


@pytest.mark.parametrize("real", [90_000, 3 << 20])
def test_a_length_that_a_listing_invents_is_not_believed(s3_server: S3Server, s3_bucket: str, real: int) -> None:
    """The threat: a listing answers with another length, or the object was replaced after it."""
    plain = corpus.written(corpus.flat(real // 20), compression="none")
    options, name = s3_server.storage_options(), f"s3://{s3_bucket}/lengths-{real}.parquet"
    encrypt_file(plain, name, EncryptionConfig(KEY), storage_options=options)
    true = status(Location(name, options))
    size = true.size
    assert abs(size - real) < real
    for said in (0, 1, 7, 8, 12, 1000, size // 2, size - 1, size + 1, size + 1000, 1 << 20, (1 << 20) + 1, 1 << 40):
        entry = Entry(true.name, true.location, said, true.modified, true.etag)
        report = verify_file(entry, DecryptionConfig(KEY))
        assert (report.outcome, report.ok) == ("authentic", True), said
        with SourceFile(entry, DecryptionConfig(KEY)) as file:
            assert file.source.size == size
