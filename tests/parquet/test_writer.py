"""write_table and ParquetWriter: what PyArrow would have written, encrypted, or nothing at all."""

from __future__ import annotations

import gc
import io
import random
import resource
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ags1 import FormatError, KeyAccessError
from ags1.kms import MemoryKms
from ags1.parquet import (
    DecryptionConfig,
    EncryptionConfig,
    ParquetWriter,
    decrypt_file,
    encrypt_file,
    read_table,
    write_table,
)
from ags1.storage import Output
from tests.checks import run_python
from tests.parquet import corpus
from tests.parquet.compare import differences
from tests.parquet.reference import open_encrypted, open_plain
from tests.parquet.view_files import COLUMN_KEYS, FOOTER_KEY, plain_table

TABLE = plain_table("everything-v1")
CONFIG = EncryptionConfig(FOOTER_KEY)
# For all ways: columns that have a key here may have another protection.
DECRYPTION = DecryptionConfig(FOOTER_KEY, column_keys=COLUMN_KEYS, allow_plaintext=True)
BLOOM: dict[str, Any] = {"name": {"ndv": 97, "fpp": 0.05}, "struct.y": {"ndv": 100, "fpp": 0.1}}
OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "row groups": {"row_group_size": 150},
    "everything": {
        "row_group_size": 130,
        "compression": "zstd",
        "data_page_version": "2.0",
        "data_page_size": 512,
        "write_batch_size": 50,
        "write_page_index": True,
        "write_page_checksum": True,
        "bloom_filter_options": BLOOM,
    },
    "each column": {"compression": {"name": "gzip", "number": "lz4"}, "use_dictionary": ["name"]},
    "sorting": {"sorting_columns": [pq.SortingColumn(7), pq.SortingColumn(8, descending=True)], "row_group_size": 99},
    "old": {"version": "1.0", "store_schema": False, "flavor": "spark"},
}
WAYS: dict[str, EncryptionConfig] = {
    "uniform": CONFIG,
    "columns": EncryptionConfig(FOOTER_KEY, column_keys=COLUMN_KEYS),
    "java": EncryptionConfig(FOOTER_KEY, column_keys=COLUMN_KEYS, encrypt_all=True, data_page_v2="java"),
    "ctr-signed": EncryptionConfig(
        FOOTER_KEY, column_keys=COLUMN_KEYS, encrypt_all=True, algorithm="AES_GCM_CTR_V1", plaintext_footer=True
    ),
}


def written(table: Any, config: EncryptionConfig = CONFIG, **options: Any) -> bytes:
    target = io.BytesIO()
    write_table(table, target, config, **options)
    return target.getvalue()


def rows(data: bytes) -> pa.Table:
    return read_table(data, DECRYPTION, use_threads=False)


# -- what is written -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("options", OPTIONS)
def test_it_is_what_pyarrow_writes_encrypted(options: str, way: str) -> None:
    """Module by module: pages, indexes, Bloom filters, metadata, sorting columns, row groups."""
    plain = io.BytesIO()
    pq.write_table(TABLE, plain, **OPTIONS[options])
    expected = open_plain(plain.getvalue())
    found = open_encrypted(written(TABLE, WAYS[way], **OPTIONS[options]), FOOTER_KEY, COLUMN_KEYS)
    assert differences(expected, found) == []
    assert found.gaps() == []
    if options == "everything":
        forms = {page.v2_form for chunk in found.chunks for page in chunk.pages}
        assert ("java" if way == "java" else "arrow") in forms
        assert any(chunk.bloom_bitset for chunk in found.chunks)


@pytest.mark.parametrize("name", ["types-v1", "key-value-metadata", "odd-names", "no-rows", "all-null-v2", "wide"])
def test_tables_of_every_kind(name: str) -> None:
    table = plain_table(name)
    found = rows(written(table))
    assert found.equals(table)
    assert found.schema.equals(table.schema, check_metadata=True)


def test_other_readers_read_it() -> None:
    data = written(TABLE, row_group_size=150)
    target = io.BytesIO()
    decrypt_file(data, target, DECRYPTION)
    assert pq.read_table(target).equals(TABLE)
    # PyArrow's own decryption reads uniform encryption.
    import pyarrow.parquet.encryption as pe

    properties = pe.create_decryption_properties(FOOTER_KEY)
    assert pq.read_table(io.BytesIO(data), decryption_properties=properties).equals(TABLE)


@pytest.mark.parametrize("row_group_size", [1, 7, 399, 400, 401, 1 << 30])
def test_row_groups_have_the_size_that_was_asked_for(row_group_size: int) -> None:
    table = TABLE.select(["number"]).slice(0, 20 if row_group_size < 7 else 400)
    plain = io.BytesIO()
    pq.write_table(table, plain, row_group_size=row_group_size)
    data = written(table, row_group_size=row_group_size)
    expected = open_plain(plain.getvalue())
    found = open_encrypted(data, FOOTER_KEY)
    assert [group.fields[3] for group in found.row_groups] == [group.fields[3] for group in expected.row_groups]
    assert [group.fields[7] for group in found.row_groups] == list(range(len(expected.row_groups)))
    assert rows(data).equals(table)


def test_row_groups_that_are_made_at_once_stand_in_their_order() -> None:
    table = pa.table({"number": range(10_000), "word": [f"word {each % 77}" for each in range(10_000)]})
    files = []
    for threads in (1, 4):
        sink = io.BytesIO()
        with ParquetWriter(sink, table.schema, CONFIG, threads=threads) as writer:
            writer.write_table(table, 300)
            assert writer.row_group_offsets == sorted(writer.row_group_offsets)
            assert [each.num_rows for each in writer.statistics] == [300] * 33 + [100]
        back = io.BytesIO()
        decrypt_file(io.BytesIO(sink.getvalue()), back, DECRYPTION)
        files.append(back.getvalue())
    assert files[0] == files[1]
    assert pq.read_table(io.BytesIO(files[0])).equals(table)


def test_tables_of_other_libraries() -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None]})
    pd.testing.assert_frame_equal(rows(written(frame)).to_pandas(), frame)
    assert rows(written(pl.DataFrame({"a": [1, 2]}))).to_pydict() == {"a": [1, 2]}
    assert rows(written(TABLE.to_batches()[0])).equals(TABLE.slice(0, TABLE.to_batches()[0].num_rows))
    assert rows(written(pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches()))).equals(TABLE)
    with pytest.raises(TypeError, match=r"the table must be a pyarrow\.Table, or another with the Arrow stream"):
        written({"a": [1]})


# -- in steps ------------------------------------------------------------------------------------------------


def test_a_writer_takes_tables_and_batches() -> None:
    target, plain = io.BytesIO(), io.BytesIO()
    options = {"write_page_index": True, "bloom_filter_options": BLOOM}
    own = ParquetWriter(target, TABLE.schema, CONFIG, **options)
    for writer in (own, pq.ParquetWriter(plain, TABLE.schema, **options)):
        with writer:
            writer.write_table(TABLE.slice(0, 100), row_group_size=60)
            writer.write_batch(TABLE.slice(100, 50).combine_chunks().to_batches()[0])
            writer.write(TABLE.slice(150, 0))
            writer.write(TABLE.slice(150, 250), 120)
        assert not writer.is_open
    expected = open_plain(plain.getvalue())
    found = open_encrypted(target.getvalue(), FOOTER_KEY)
    assert [group.fields[3] for group in found.row_groups] == [60, 40, 50, 0, 120, 120, 10]
    assert differences(expected, found) == []
    assert rows(target.getvalue()).equals(TABLE)


def test_nothing_written_is_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.parquet"
    schema = TABLE.schema.with_metadata({"key": "value"})
    with ParquetWriter(path, schema, WAYS["columns"]) as writer:
        assert writer.schema == schema
    found = read_table(path, DECRYPTION)
    assert found.num_rows == 0
    assert found.schema.equals(schema, check_metadata=True)
    assert open_encrypted(path.read_bytes(), FOOTER_KEY, COLUMN_KEYS).row_groups == []


def test_every_file_is_sealed_anew() -> None:
    one, other = (open_encrypted(written(TABLE), FOOTER_KEY) for _ in range(2))
    assert one.aad_file_unique != other.aad_file_unique
    nonces = [file.data[module.offset + 4 :][:12] for file in (one, other) for module in file.modules]
    assert len(set(nonces)) == len(nonces)


def test_memory_holds_a_row_group_and_not_the_file() -> None:
    """What is kept for the footer must not keep the pages."""
    program = """
        import os
        import pyarrow as pa
        from tests import peak_memory
        from ags1.parquet import EncryptionConfig, ParquetWriter
        schema = pa.schema([("blob", pa.binary())])
        with ParquetWriter(os.devnull, schema, EncryptionConfig(bytes(range(16))), compression="none") as writer:
            for number in range(40):
                writer.write_table(pa.table({"blob": [os.urandom(1 << 20) for _ in range(8)]}, schema))
                if number == 4:
                    before = peak_memory.begin()
        print(peak_memory.grown(before))
    """
    # 280 MiB went through since.
    assert int(run_python(program)) < 100 << 20


# -- nothing at all ------------------------------------------------------------------------------------------


def _interrupted(writer: ParquetWriter) -> None:
    with writer:
        writer.write_table(TABLE)
        raise ZeroDivisionError


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    with pytest.raises(ZeroDivisionError):
        _interrupted(ParquetWriter(path, TABLE.schema, CONFIG))
    assert list(tmp_path.iterdir()) == []
    path.write_bytes(b"old")
    writer = ParquetWriter(path, TABLE.schema, CONFIG)
    with pytest.raises(ZeroDivisionError):
        _interrupted(writer)
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"old"]
    with pytest.raises(ValueError, match="the file is closed, or was aborted after an error"):
        writer.write_table(TABLE)
    writer.close()
    writer.abort()
    assert path.read_bytes() == b"old"


def test_a_forgotten_writer_publishes_nothing(tmp_path: Path) -> None:
    """PyArrow's own writer would finish the file, however little of it was written."""
    ParquetWriter(tmp_path / "file.parquet", TABLE.schema, CONFIG).write_table(TABLE)
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_closing_publishes_once(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    writer = ParquetWriter(path, TABLE.schema, CONFIG, durable=True)
    writer.write_table(TABLE)
    assert not path.exists()
    writer.close()
    writer.close()
    assert [each.name for each in tmp_path.iterdir()] == ["file.parquet"]
    assert read_table(path, DECRYPTION).equals(TABLE)
    with pytest.raises(ValueError, match="is closed"):
        writer.write_batch(TABLE.to_batches()[0])


def test_no_plaintext_touches_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The threat: temporary files that are left, or recovered."""
    marker = b"a secret that would be seen"
    written_bytes = []
    write = Output.write

    def spy(output: Any, data: Any) -> None:
        written_bytes.append(bytes(data))
        write(output, data)

    monkeypatch.setattr(Output, "write", spy)
    table = pa.table({"name": [marker] * 1000})
    target = io.BytesIO()
    write_table(table, target, CONFIG, compression="none", use_dictionary=False)
    assert marker not in target.getvalue()
    assert written_bytes
    assert not any(marker in each for each in written_bytes)
    with ParquetWriter(tmp_path / "file", table.schema, CONFIG, compression="none") as writer:
        writer.write_table(table)
        assert not any(marker in each.read_bytes() for each in tmp_path.iterdir())
    assert marker not in (tmp_path / "file").read_bytes()


def test_a_file_that_cannot_grow_ends_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    writer = ParquetWriter(path, TABLE.schema, CONFIG)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            writer.write_table(TABLE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not writer.is_open
    assert list(tmp_path.iterdir()) == []


# -- refused before anything is written ----------------------------------------------------------------------


def test_another_schema_is_refused_and_the_file_goes_on() -> None:
    target = io.BytesIO()
    with ParquetWriter(target, TABLE.schema, CONFIG) as writer:
        writer.write_table(TABLE)
        size = target.tell()
        for other in (TABLE.select(["name"]), TABLE.rename_columns([*"abcdef"]), pa.table({"name": [1]})):
            with pytest.raises(ValueError, match="the table has another schema than the file:\n"):
                writer.write_table(other)
        for wrong, kind in ((0, ValueError), (-1, ValueError), (True, TypeError), ("9", TypeError)):
            with pytest.raises(kind, match="row_group_size must be"):
                writer.write_table(TABLE, wrong)  # type: ignore[arg-type]
        assert target.tell() == size
        writer.write_table(TABLE.replace_schema_metadata({"other": "metadata"}))
    assert rows(target.getvalue()).num_rows == 800


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"encryption_properties": object()}, TypeError, "encryption_properties cannot be given: .* EncryptionConfig"),
        ({"filesystem": object()}, TypeError, "filesystem cannot be given: give the target as a path"),
        ({"metadata_collector": []}, TypeError, "metadata_collector cannot be given"),
        ({"nosuch_option": 1}, TypeError, "nosuch_option"),
        ({"compression": "nosuch"}, (pa.ArrowException, ValueError, OSError), "(?i)nosuch"),
        ({"data_page_version": "3.0"}, (pa.ArrowException, ValueError), "3.0"),
    ],
)
def test_wrong_options_are_refused_before_the_target_is_touched(
    options: dict[str, Any], kind: Any, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "file.parquet"
    path.write_bytes(b"old")
    with pytest.raises(kind, match=message):
        write_table(TABLE, path, CONFIG, **options)
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"old"]


def test_wrong_keys_and_columns_are_refused_before_the_target_is_touched(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    with pytest.raises(ValueError, match=r"there is no column 'nam'; did you mean 'name'\?"):
        write_table(TABLE, path, EncryptionConfig(FOOTER_KEY, column_keys={"nam": FOOTER_KEY}))
    with pytest.raises(TypeError, match=r"encryption must be an ags1\.parquet\.EncryptionConfig, not bytes"):
        write_table(TABLE, path, FOOTER_KEY)  # type: ignore[arg-type]
    with pytest.raises(KeyAccessError, match="nosuch"):
        write_table(TABLE, path, EncryptionConfig.from_kms(MemoryKms({"kf": FOOTER_KEY}), "nosuch"))
    assert list(tmp_path.iterdir()) == []


def test_key_material_beside_the_file(tmp_path: Path) -> None:
    kms = MemoryKms({"kf": FOOTER_KEY, "kc": COLUMN_KEYS["name"]})
    config = EncryptionConfig.from_kms(kms, "kf", {"kc": ["name"]}, internal_key_material=False)
    path = tmp_path / "file.parquet"
    write_table(TABLE, path, config)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "_KEY_MATERIAL_FOR_file.parquet.json", "file.parquet",
    ]  # fmt: skip
    assert read_table(path, DecryptionConfig.from_kms(kms)).equals(TABLE)
    target = io.BytesIO()
    with pytest.raises(ValueError, match="key material outside of the file is stored beside it"):
        write_table(TABLE, target, config)
    assert target.getvalue() == b""


def test_a_file_of_a_writer_is_no_plaintext_file() -> None:
    data = written(TABLE)
    with pytest.raises(FormatError, match="is encrypted already"):
        encrypt_file(data, io.BytesIO(), CONFIG)


def test_random_tables_come_back() -> None:
    chance = random.Random(5)
    for _ in range(12):
        table = corpus.nested(chance.randrange(1, 120))
        way = chance.choice(sorted(WAYS))
        keys = {name: key for name, key in COLUMN_KEYS.items() if name.partition(".")[0] in table.column_names}
        config = EncryptionConfig(FOOTER_KEY, column_keys=keys, encrypt_all=way != "columns")
        data = written(table, config, row_group_size=chance.randrange(1, 50), data_page_size=chance.randrange(1, 999))
        assert rows(data).equals(table)
