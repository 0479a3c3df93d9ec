"""``spark.read.format("ags1")`` in a real session: every format, and what must fail."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ags1
from ags1 import dataset
from ags1.kms import load
from ags1.parquet import EncryptionConfig, write_table
from tests.checks import KEY, damage
from tests.spark.sessions import need_spark
from tests.spark.trees import objects

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MIB = 1 << 20
COUNT = 1000
ROWS = [{"id": number, "name": f"n{number}"} for number in range(COUNT)]
Read = Callable[..., "DataFrame"]


def avro() -> bytes:
    file = io.BytesIO()
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    fastavro.writer(file, {"type": "record", "name": "R", "fields": fields}, ROWS, sync_interval=1000)
    return file.getvalue()


def arrow() -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist(ROWS)
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(ROWS), sink, row_group_size=100)
    data: bytes = sink.getvalue().to_pybytes()
    return data


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, kms_url: str) -> Path:
    """A dataset with a directory of each format, and one larger file."""
    raw = tmp_path_factory.mktemp("raw")
    lines = [json.dumps(row) for row in ROWS]
    files: dict[str, bytes] = {
        "text/year=2025/p.json": "\n".join(lines[:600]).encode(),
        "text/year=2026/p.json": "\n".join(lines[600:]).encode(),
        "text/_SUCCESS": b"",
        "avro/p.avro": avro(),
        "arrow/p.arrow": arrow(),
        "parquet/k=1/p.parquet": parquet(),
        "big/log.txt": b"".join(b"line %07d\n" % number for number in range(3 * MIB // 13)),
        "empty/e": b"",
    }
    for name, data in files.items():
        path = raw / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    with load(kms_url) as client:
        write_table(pa.Table.from_pylist(ROWS), raw / "parquet/k=2.parquet", EncryptionConfig.from_kms(client, "lake"))
        (raw / "parquet/k=2").mkdir()
        (raw / "parquet/k=2.parquet").rename(raw / "parquet/k=2/p.parquet")
        vault = tmp_path_factory.mktemp("lake") / "vault"
        dataset.encrypt(raw, vault, client, "lake").close()
    return vault


@pytest.fixture
def read(spark: SparkSession, lake: Path, kms_url: str) -> Read:
    """Read the dataset, or another path, with options."""
    need_spark()
    from ags1.spark.source.data_source import register

    register(spark)

    def load_with(path: Path | None = None, schema: str | None = None, **options: Any) -> DataFrame:
        reader = spark.read.format("ags1")
        if "keyref" not in options:
            reader = reader.option("kms", kms_url)
        if schema is not None:
            reader = reader.schema(schema)
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load(str(path or lake))

    return load_with


def tasks_of(frame: DataFrame) -> int:
    count: int = frame.rdd.getNumPartitions()
    return count


@pytest.mark.parametrize("decode", ["avro", "arrow", "parquet"])
def test_every_format_gives_its_rows(read: Read, decode: str) -> None:
    frame = read(decode=decode, prefix=decode)
    assert [name for name in frame.columns if name in ("id", "name")] == ["id", "name"]
    # The last directory of Parquet has a file that is encrypted itself.
    times = 2 if decode == "parquet" else 1
    assert frame.count() == times * COUNT
    found = frame.selectExpr("sum(id) as total", "count(distinct name) as names").collect()[0]
    assert (found.total, found.names) == (times * sum(range(COUNT)), COUNT)


def test_lines_of_a_file_that_is_split(read: Read) -> None:
    frame = read(decode="text", prefix="big", split_bytes=MIB, path_column="file")
    assert tasks_of(frame) == 3
    count = 3 * MIB // 13
    found = frame.selectExpr("count(*)", "count(distinct value)", "min(value)", "max(value)", "max(file)").collect()
    assert tuple(found[0]) == (count, count, "line 0000000", f"line {count - 1:07}", "big/log.txt")


def test_bytes_are_those_of_the_file(read: Read, lake: Path, kms_url: str) -> None:
    frame = read(include="big/*", split_bytes=2 * MIB)
    assert [(name, kind) for name, kind in frame.dtypes] == [
        ("path", "string"),
        ("offset", "bigint"),
        ("content", "binary"),
    ]
    pieces = {row.offset: bytes(row.content) for row in frame.collect()}
    assert sorted(pieces) == [0, MIB, 2 * MIB]
    with dataset.open(lake, kms_url) as vault, vault.open("big/log.txt") as reader:
        assert b"".join(pieces[offset] for offset in sorted(pieces)) == reader.read()


def test_directories_are_columns_of_their_types(read: Read) -> None:
    frame = read(decode="text", prefix="text")
    assert dict(frame.dtypes) == {"value": "string", "year": "int"}
    counts = {row.year: row["count"] for row in frame.groupBy("year").count().collect()}
    assert counts == {2025: 600, 2026: 400}


def test_a_schema_that_is_given_chooses_columns_and_types(read: Read) -> None:
    frame = read(decode="parquet", prefix="parquet", schema="k string, none date, ID int")
    assert frame.orderBy("id").first().asDict() == {"k": "1", "none": None, "ID": 0}
    chosen = read(decode="parquet", prefix="parquet", columns="name,k")
    assert chosen.columns == ["name", "k"]
    assert chosen.where("k = 2 and name = 'n7'").count() == 1
    with pytest.raises(Exception, match="with a schema, leave columns out"):
        read(decode="avro", prefix="avro", columns="id", schema="id long, name string").count()
    with pytest.raises(Exception, match="there is no column 'nothing', or no key for it; there are value, year"):
        read(decode="text", prefix="text", columns="nothing")


def test_no_files_are_no_rows(read: Read) -> None:
    assert read(include="nothing*").collect() == []
    with pytest.raises(Exception, match=r"give one with \.schema"):
        read(decode="avro", include="nothing*")
    assert read(decode="avro", include="nothing*", schema="id long").count() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": KEY.hex()}, "has no option 'key' here; .*A key is never an option"),
        ({"keyref": KEY.hex()}, "a reference to a key, never the key"),
        ({"decode": "xml"}, "decode must be one of"),
        ({"expected_version": 9}, "9 is expected"),
    ],
)
def test_a_refusal_names_what_to_do_and_repeats_no_secret(read: Read, options: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message) as caught:
        read(**options).count()
    assert KEY.hex() not in str(caught.value)


def test_a_damaged_block_fails_whatever_the_options_say(read: Read, lake: Path, tmp_path: Path, kms_url: str) -> None:
    import shutil

    copy = tmp_path / "vault"
    shutil.copytree(lake, copy)
    stored = objects(copy, kms_url)["big/log.txt"][0]
    stored.write_bytes(damage(stored.read_bytes(), MIB, 1))
    # Each is tried three times.
    with pytest.raises(Exception, match=r"big/log\.txt\..*: block 1 failed authentication"):
        read(copy, prefix="big", on_error="skip", decode="text").count()


def test_a_file_that_is_missing_fails_or_is_left_out(read: Read, lake: Path, tmp_path: Path, kms_url: str) -> None:
    import shutil

    copy = tmp_path / "vault"
    shutil.copytree(lake, copy)
    objects(copy, kms_url)["text/year=2025/p.json"][0].unlink()
    given = {"decode": "text", "prefix": "text", "schema": "value string, year int"}
    with pytest.raises(Exception, match="is in the manifest, but its object is missing"):
        read(copy, **given).count()
    assert read(copy, on_error="skip", **given).count() == 400


def test_a_dataset_that_changes_under_way_is_read_as_it_was_planned(read: Read, kms_url: str, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "a.txt").write_text("one\n")
    vault = tmp_path / "vault"
    with load(kms_url) as client:
        dataset.encrypt(raw, vault, client, "lake").close()
        frame = read(vault, decode="text")
        # The plan is made, and kept.
        tasks_of(frame)
        frame.explain()
        (raw / "a.txt").write_text("two\n")
        dataset.encrypt(raw, vault, client, "lake").close()
    assert [row.value for row in frame.rdd.collect()] == ["one"]
    assert [row.value for row in read(vault, decode="text").collect()] == ["two"]


def test_plain_files_by_a_key_file(read: Read, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY.hex())
    (tmp_path / "files").mkdir()
    for number in range(3):
        data = f"{number}\n".encode()
        ags1.encrypt_file(io.BytesIO(data), tmp_path / "files" / f"{number}.ags1", KEY, aad_prefix=b"%d" % number)
    frame = read(tmp_path / "files" / "*.ags1", decode="text", keyref=f"file:{tmp_path / 'key'}", aad_prefix="{name}")
    assert sorted(row.value for row in frame.collect()) == ["0", "1", "2"]
    wrong = read(tmp_path / "files", decode="text", keyref=f"file:{tmp_path / 'key'}")
    with pytest.raises(Exception, match=r"0\.ags1: block 0 failed authentication"):
        wrong.count()


def test_what_travels_has_no_key(lake: Path, kms_url: str) -> None:
    """What Spark pickles: the source, its reader, and the partitions."""
    need_spark()
    import pickle

    from ags1.spark.source.data_source import Ags1DataSource

    source = Ags1DataSource({"path": str(lake), "kms": kms_url, "decode": "text", "prefix": "text"})
    reader = source.reader(source.schema())
    partitions = reader.partitions()
    with dataset.open(lake, kms_url) as vault:
        keys = [bytes(vault.key_metadata(entry.path).encryption_key) for entry in vault.files]
    travelling = pickle.dumps((source, reader, partitions))
    for partition in partitions:
        import zlib

        travelling += zlib.decompress(partition.value)
    assert not [key for key in keys if key in travelling or key.hex().encode() in travelling]
    batches = list(pickle.loads(pickle.dumps(reader)).read(partitions[0]))
    assert sum(batch.num_rows for batch in batches) == COUNT


def test_the_partitions_that_spark_makes_of_none() -> None:
    need_spark()
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from ags1.spark.source.data_source import Ags1DataSource

    reader = Ags1DataSource({"path": "nowhere", "kms": "local:keys.json"}).reader(StructType())
    assert list(reader.read(None)) == []
    assert list(reader.read(InputPartition(None))) == []


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_timestamps_of_files_by_spark_are_those_that_spark_reads(
    read: Read, spark: SparkSession, tmp_path: Path, kms_url: str, zone: str
) -> None:
    # INT96, as Spark writes it by default, from the year 1 to the year 9999.
    settings = {
        "spark.sql.session.timeZone": zone,
        "spark.sql.parquet.outputTimestampType": "INT96",
        "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    }
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        moment = "timestamp_micros(cast(rand(7) * 3.155e17 as bigint) - 62135596800000000)"
        written = spark.range(300).selectExpr("id", f"{moment} AS t", "cast(id AS string) AS s").selectExpr(
            "*", "array(t, null) AS list", "map(s, t) AS map", "named_struct('n', id, 't', t) AS struct"
        )  # fmt: skip
        written.coalesce(1).write.parquet(str(tmp_path / "plain"))
        dataset.encrypt(tmp_path / "plain", tmp_path / "vault", load(kms_url), "lake").close()
        theirs = spark.read.parquet(str(tmp_path / "plain"))
        ours = read(tmp_path / "vault", decode="parquet", include="*.parquet")
        assert [(each.name, each.dataType.simpleString()) for each in ours.schema] == [
            (each.name, each.dataType.simpleString()) for each in theirs.schema
        ]
        # Maps cannot be compared.
        rows = [frame.withColumn("map", frame["map"][frame["s"]]) for frame in (ours, theirs)]
        assert rows[0].exceptAll(rows[1]).count() == 0
        assert rows[0].count() == 300
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
