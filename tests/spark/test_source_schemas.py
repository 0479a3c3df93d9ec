"""What a write keeps of the columns, beside Spark's own Parquet: also without rows, and below structs that are null."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types
from pyspark.sql.types import StructField, StructType

import ags1.spark
from ags1 import FormatError, dataset
from ags1.spark.source.options import SourceOptions
from ags1.spark.source.reader import SourceReader, infer_schema
from ags1.spark.source.writer import writer_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, kms_url: str) -> Write:
    """Writes a DataFrame as the one task of a query does, without that query."""

    def write(frame: DataFrame, decode: str = "parquet", mode: str = "append", **options: str) -> Path:
        vault = tmp_path / f"vault-{decode}"
        given = {"path": str(vault), "kms": kms_url, "key_id": "lake", "decode": decode, **options}
        writer = writer_for(given, frame.schema, mode == "overwrite")
        writer.commit([writer.write(iter(frame.toArrow().to_batches()))])
        return vault

    return write


def read(vault: Path, kms_url: str, decode: str = "parquet", **given: str) -> tuple[StructType, list[dict[str, Any]]]:
    options = SourceOptions.parse({"path": str(vault), "kms": kms_url, "decode": decode, **given})
    schema = infer_schema(options)
    reader = SourceReader(options, schema)
    batches = (batch for task in reader.partitions() for batch in reader.read(task))
    return schema, [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("decode", ["parquet", "avro", "arrow"])
@pytest.mark.parametrize("name", ["a.csv", "z.csv"])
def test_a_file_of_another_format_names_the_option_that_leaves_it_out(
    tmp_path: Path, kms_url: str, write: Write, spark: SparkSession, name: str, decode: str
) -> None:
    """Whether it is the file that the schema is taken from, or one behind it."""
    vault = write(spark.range(3).coalesce(1), decode)
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / name).write_text("id,name\n1,Ann\n")
    dataset.encrypt(tmp_path / "raw", vault, kms_url, "lake").close()
    with pytest.raises(FormatError, match=rf"{name}.*give the option include, such as include='\*\.{decode}'$"):
        read(vault, kms_url, decode)


def _stored(decode: str, value: str, path: Path) -> None:
    import fastavro

    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"value": [value]})
    if decode == "parquet":
        pq.write_table(table, path)
    elif decode == "arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    elif decode == "avro":
        record = {"type": "record", "name": "r", "fields": [{"name": "value", "type": "string"}]}
        with open(path, "wb") as file:
            fastavro.writer(file, record, table.to_pylist())
    else:
        path.write_text(value)


@pytest.mark.parametrize("columns", ["", "year", "month,year"])
@pytest.mark.parametrize("decode", ["binary", "text", "parquet", "avro", "arrow"])
def test_a_file_outside_of_the_directories_of_partitions_has_nulls_in_their_columns(
    tmp_path: Path, kms_url: str, decode: str, columns: str
) -> None:
    chance = random.Random(f"{decode}{columns}")
    expected = []
    for number in range(20):
        parts = {name: chance.randrange(3) for name in ("year", "month") if chance.random() < 0.6}
        directory = "/".join(f"{name}={value}" for name, value in parts.items())
        _stored(decode, f"row {number}", tmp_path / "raw" / directory / f"{number}.{decode}")
        expected.append({"year": None, "month": None, **parts})
    dataset.encrypt(tmp_path / "raw", tmp_path / "vault", kms_url, "lake").close()
    schema, found = read(tmp_path / "vault", kms_url, decode, **({"columns": columns} if columns else {}))
    if columns:
        assert schema.names == columns.split(",")
        expected = [{name: each[name] for name in schema.names} for each in expected]
    else:
        data = ["path", "offset", "content"] if decode == "binary" else ["value"]
        assert sorted(schema.names) == sorted([*data, "year", "month"])
        found = [{name: each[name] for name in ("year", "month")} for each in found]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def a_type(chance: random.Random, depth: int = 0) -> types.DataType:
    """A type of which some parts may not be null."""
    kind = chance.randrange(5 if depth < 3 else 2)
    if kind == 2:
        return types.ArrayType(a_type(chance, depth + 1), chance.random() < 0.5)
    if kind == 3:
        return types.MapType(types.StringType(), a_type(chance, depth + 1), chance.random() < 0.5)
    if kind == 4 or depth == 0:
        names = "abc"[: chance.randint(1, 3)]
        return StructType([StructField(name, a_type(chance, depth + 1), chance.random() < 0.5) for name in names])
    return types.IntegerType() if kind else types.StringType()


def a_value(chance: random.Random, kind: types.DataType, nullable: bool) -> Any:
    if nullable and chance.random() < 0.4:
        return None
    if isinstance(kind, types.ArrayType):
        return [a_value(chance, kind.elementType, kind.containsNull) for _ in range(chance.randrange(3))]
    if isinstance(kind, types.MapType):
        return {key: a_value(chance, kind.valueType, kind.valueContainsNull) for key in "xy"[: chance.randrange(3)]}
    if isinstance(kind, StructType):
        return tuple(a_value(chance, field.dataType, field.nullable) for field in kind)
    return chance.randrange(9) if isinstance(kind, types.IntegerType) else chance.choice(("", "é"))


def test_what_may_not_be_null_below_what_is_null_is_written_as_spark_writes_it(
    spark: SparkSession, write: Write, tmp_path: Path, kms_url: str
) -> None:
    chance = random.Random("nullable")
    columns = [(f"c{index}", a_type(chance)) for index in range(12)]
    schema = StructType([StructField(name, kind, chance.random() < 0.8) for name, kind in columns])
    rows = [tuple(a_value(chance, field.dataType, field.nullable) for field in schema) for _ in range(30)]
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    frame.write.parquet(str(tmp_path / "theirs"))
    theirs = spark.read.parquet(str(tmp_path / "theirs"))
    ags1.spark.register(spark)
    vault, given = tmp_path / "vault", {"kms": kms_url, "decode": "parquet"}
    frame.write.format("ags1").options(key_id="lake", **given).mode("append").save(str(vault))
    ours = spark.read.format("ags1").options(**given).load(str(vault))
    assert (ours.schema, ours.collect()) == (theirs.schema, theirs.collect())
    # And Spark reads the files of the write.
    with dataset.open(vault, kms_url) as opened, opened.open(next(iter(opened.files)).path) as file:
        (tmp_path / "plain.parquet").write_bytes(file.read())
    assert spark.read.parquet(str(tmp_path / "plain.parquet")).collect() == theirs.collect()


@pytest.mark.parametrize("decode", ["parquet", "avro", "arrow"])
def test_a_write_without_rows_has_the_columns_as_sparks_parquet_has_them(
    spark: SparkSession, write: Write, kms_url: str, decode: str
) -> None:
    rows = spark.range(3).selectExpr("id", "cast(id as string) name").coalesce(1)
    nothing = rows.where("id > 5")
    vault = write(nothing, decode)
    assert read(vault, kms_url, decode) == (StructType.fromDDL("id long, name string"), [])
    with pytest.raises(ValueError, match="has the columns id bigint, name string"):
        write(spark.range(1), decode)
    write(rows, decode)
    write(nothing, decode)
    assert [len(read(vault, kms_url, decode)[1]), files(vault, kms_url)] == [3, 2]
    write(nothing.select("id"), decode, "overwrite")
    assert read(vault, kms_url, decode) == (StructType.fromDDL("id long"), [])
    assert files(vault, kms_url) == 1


def files(vault: Path, kms_url: str) -> int:
    with dataset.open(vault, kms_url) as opened:
        assert opened.verify().findings == []
        return len(list(opened.files))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (types.VariantType(), "'c' has the type variant, .*: write to_json"),
        (types.StringType("UTF8_LCASE"), "has the type string collate UTF8_LCASE, .*: write collate"),
        pytest.param(
            getattr(types, "TimeType", types.VariantType)(),
            "has the type (time|variant)",
            id="time",
        ),
    ],
)
def test_a_type_that_would_be_another_is_refused_before_anything_is_written(
    tmp_path: Path, kms_url: str, kind: types.DataType, message: str
) -> None:
    inside = types.ArrayType(StructType([StructField("x", kind)]))
    for schema in (StructType([StructField("c", kind)]), StructType([StructField("c", inside)])):
        for decode in ("parquet", "avro", "arrow"):
            options = {"path": str(tmp_path / "vault"), "kms": kms_url, "key_id": "lake", "decode": decode}
            with pytest.raises(ValueError, match=message):
                writer_for(options, schema, False)
    assert not (tmp_path / "vault").exists()


def test_names_that_differ_only_in_case_are_refused_as_spark_refuses_them(tmp_path: Path, kms_url: str) -> None:
    schema = StructType([StructField("a", types.LongType()), StructField("A", types.LongType())])
    options = {"path": str(tmp_path / "vault"), "kms": kms_url, "key_id": "lake", "decode": "parquet"}
    with pytest.raises(ValueError, match="several columns have the name 'A', 'a'"):
        writer_for(options, schema, False)


@pytest.mark.parametrize("decode", ["text", "binary"])
def test_columns_that_lines_and_bytes_never_have_are_refused_and_not_null(
    tmp_path: Path, kms_url: str, spark: SparkSession, decode: str
) -> None:
    (tmp_path / "raw" / "day=1").mkdir(parents=True)
    (tmp_path / "raw" / "day=1" / "events.csv").write_text("1,Ann\n")
    dataset.encrypt(tmp_path / "raw", tmp_path / "vault", kms_url, "lake").close()
    given = {"path": str(tmp_path / "vault"), "kms": kms_url, "decode": decode, "path_column": "file"}
    own = "value string" if decode == "text" else "content binary"

    def tasks(schema: str) -> int:
        return len(SourceReader(SourceOptions.parse(given), StructType.fromDDL(schema)).partitions())

    with pytest.raises(ValueError, match=r"the schema has id, email, but .* from_csv or from_json"):
        tasks("id long, email string, DAY int, file string")
    assert tasks(f"{own}, DAY int, file string") == 1
