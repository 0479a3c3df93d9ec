"""Variant columns: read as their two binaries from files of Avro and of DuckDB, and never wrongly."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    FixedType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

import ags1
from ags1.cli import main
from ags1.errors import UnsupportedError
from ags1.iceberg import EncryptedTable, open_table
from ags1.keys import KeyMetadata
from tests.iceberg.avro_lake import nullable, optional
from tests.iceberg.delete_lake import DeleteLake

META, LONG, TEXT = b"\x01\x00\x00", b"\x18\x2a" + bytes(7), b"\x0dabc"
KIND = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])

ROWS: list[dict[str, Any]] = [
    {"id": 1, "v": {"metadata": META, "value": LONG}, "s": {"n": 5, "w": {"metadata": META, "value": TEXT}}},
    {"id": 2, "v": None, "s": {"n": 6, "w": None}},
    {"id": 3, "v": {"metadata": META, "value": TEXT}, "s": None},
]
ROWS[0] |= {
    "l": [{"metadata": META, "value": LONG}, None],
    "m": [("a", {"metadata": META, "value": TEXT}), ("b", None)],
}
ROWS[1] |= {"l": None, "m": None}
ROWS[2] |= {"l": [], "m": []}


class VariantLake(DeleteLake):
    """A table with variants, whose files are written by other means."""

    def add_path(self, path: str, key: KeyMetadata | None = None) -> None:
        kind = FileFormat.AVRO if path.endswith(".avro") else FileFormat.PARQUET
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=kind,
            partition=Record(),
            record_count=len(ROWS),
            file_size_in_bytes=Path(path).stat().st_size,
            key_metadata=None if key is None else key.encode(),
        )
        self.add_file(file, 1)

    def open(self) -> EncryptedTable:
        """The stand-ins for variants, strings, become variants in the metadata."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tests.iceberg.delete_lake.open_table", lambda location, kms, **given: location)
            location: Any = super().open()
        document = json.loads(Path(location).read_text())
        document["schemas"] = json.loads(json.dumps(document["schemas"]).replace('"string"', '"variant"'))
        Path(location).write_text(json.dumps(document))
        return open_table(location, None, allow_plaintext=True)


# A key of a map is no variant.
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    optional(2, "v", StringType()),
    optional(3, "s", StructType(optional(4, "n", LongType()), optional(5, "w", StringType()))),
    optional(6, "l", ListType(7, StringType(), element_required=False)),
    optional(8, "m", MapType(9, BinaryType(), 10, StringType(), value_required=False)),
)


def _with_id(name: str, kind: Any, number: int, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable, {"PARQUET:field_id": str(number)})


def _arrow_schema(kind: pa.StructType = KIND) -> pa.Schema:
    below = pa.struct([_with_id("n", pa.int64(), 4), _with_id("w", kind, 5)])
    return pa.schema(
        [
            _with_id("id", pa.int64(), 1, False),
            _with_id("v", kind, 2),
            _with_id("s", below, 3),
            _with_id("l", pa.list_(_with_id("element", kind, 7)), 6),
            _with_id("m", pa.map_(_with_id("key", pa.binary(), 9, False), _with_id("value", kind, 10)), 8),
        ]
    )


def _write_parquet(path: Path) -> None:
    rows = [{**each, "m": each["m"] and [(key.encode(), value) for key, value in each["m"]]} for each in ROWS]
    # Spark has the value in front.
    spark = pa.struct([KIND.field("value"), KIND.field("metadata")])
    pq.write_table(pa.Table.from_pylist(rows, schema=_arrow_schema(spark)), path)


def _write_avro(path: Path) -> None:
    def variant(name: str) -> Any:
        fields = [{"name": each, "type": "bytes"} for each in ("metadata", "value")]
        return nullable({"type": "record", "name": name, "fields": fields})

    def field(number: int, name: str, kind: Any) -> dict[str, Any]:
        return {"name": name, "type": kind, "field-id": number}

    below = {"type": "record", "name": "r3", "fields": [field(4, "n", nullable("long")), field(5, "w", variant("r5"))]}
    entry = {"type": "record", "name": "e", "fields": [field(9, "key", "bytes"), field(10, "value", variant("r10"))]}
    fields = [
        field(1, "id", "long"),
        field(2, "v", variant("r2")),
        field(3, "s", nullable(below)),
        field(6, "l", nullable({"type": "array", "items": variant("r7"), "element-id": 7})),
        field(8, "m", nullable({"type": "array", "logicalType": "map", "items": entry})),
    ]
    rows = [
        {**each, "m": each["m"] and [{"key": key.encode(), "value": value} for key, value in each["m"]]}
        for each in ROWS
    ]
    schema = {"type": "record", "name": "row", "fields": fields}
    out = io.BytesIO()
    fastavro.writer(out, schema, rows)
    path.write_bytes(out.getvalue())


@pytest.fixture(params=["parquet", "avro"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> EncryptedTable:
    """Its data file is encrypted."""
    lake = VariantLake(tmp_path, SCHEMA, format_version=3)
    plain, path = tmp_path / "plain", tmp_path / f"data.{request.param}"
    key = KeyMetadata.generate(128)
    if request.param == "avro":
        _write_avro(plain)
        path.write_bytes(ags1.encrypt(plain.read_bytes(), key.encryption_key, aad_prefix=key.aad_prefix or b""))
    else:
        _write_parquet(plain)
        ags1.parquet.encrypt_file(plain, path, ags1.parquet.EncryptionConfig.for_iceberg(key))
    lake.add_path(str(path), key.with_length(path.stat().st_size))
    return lake.open()


EXPECTED = [{**each, "m": each["m"] and [(key.encode(), value) for key, value in each["m"]]} for each in ROWS]


def test_variants_are_read_as_their_binaries_wherever_they_are(table: EncryptedTable) -> None:
    rows = table.scan().to_arrow()
    rows.validate(full=True)
    below = rows.schema.field("v").type
    assert [(field.name, field.nullable) for field in below] == [("metadata", False), ("value", False)]
    assert rows.to_pylist() == EXPECTED
    assert table.scan().to_record_batches().read_all().to_pylist() == EXPECTED


def test_other_columns_are_read_without_the_variants(table: EncryptedTable) -> None:
    assert table.scan(columns=["id", "s.n"]).to_arrow().to_pylist() == [
        {"id": 1, "s": {"n": 5}},
        {"id": 2, "s": {"n": 6}},
        {"id": 3, "s": None},
    ]
    assert table.scan(columns=["s.w"], row_filter="id = 1").to_arrow().to_pylist() == [{"s": {"w": ROWS[0]["s"]["w"]}}]
    assert table.scan(row_filter="id > 1").count() == 2


@pytest.mark.parametrize(
    ("text", "ids"),
    [("v is null", [2]), ("v is not null", [1, 3]), ("s.w is null", [2, 3]), ("not (s.w is null)", [1])],
)
def test_a_filter_can_ask_whether_a_variant_is_null(table: EncryptedTable, text: str, ids: list[int]) -> None:
    assert table.scan(columns=["id"], row_filter=text).to_arrow()["id"].to_pylist() == ids


@pytest.mark.parametrize("text", ["v = 1", "v in (1, 2)", "v is nan", "v like 'a%'", "v.value = 'a'", "s.w > 2"])
def test_any_other_filter_on_a_variant_is_refused(table: EncryptedTable, text: str) -> None:
    with pytest.raises(ValueError, match="or a variant's") as caught:
        table.scan(row_filter=text)
    assert not isinstance(caught.value, ags1.Ags1Error)


def test_the_command_shows_variants(table: EncryptedTable, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "iceberg",
        "scan",
        table.metadata_location,
        "--format",
        "json",
        "--columns",
        "id,v",
        "--allow-plaintext",
    ]
    assert main(arguments) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    hexadecimal = [each["v"] and {name: value.hex() for name, value in each["v"].items()} for each in ROWS]
    assert shown == [{"id": each["id"], "v": v} for each, v in zip(ROWS, hexadecimal, strict=True)]


def test_a_column_that_was_dropped_or_added_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    _write_parquet(path)
    fewer = Schema(SCHEMA.fields[0], optional(20, "later", StringType()))
    lake = VariantLake(tmp_path, SCHEMA, fewer, format_version=3)
    lake.add_path(str(path))
    assert lake.open().scan().to_arrow().to_pylist() == [{"id": each, "later": None} for each in (1, 2, 3)]


def test_a_struct_that_a_file_lacks_is_null_whatever_must_not_be_null_in_it(tmp_path: Path) -> None:
    lake = DeleteLake(tmp_path, Schema(SCHEMA.fields[0]))
    inner = StructType(NestedField(33, "u", UUIDType(), required=True))
    later = StructType(
        NestedField(21, "a", LongType(), required=True),
        NestedField(22, "b", FixedType(4), required=True),
        NestedField(23, "c", inner, required=True),
        NestedField(24, "d", ListType(25, BinaryType(), element_required=True), required=True),
        NestedField(26, "e", MapType(27, StringType(), 28, LongType(), value_required=True), required=True),
        NestedField(29, "f", BooleanType(), required=True),
        optional(30, "g", inner.model_copy(update={"fields": (NestedField(34, "u", UUIDType(), required=True),)})),
    )
    lake.add([{"id": 1}, {"id": 2}], 1)
    lake.schemas.append(Schema(SCHEMA.fields[0], optional(20, "later", later), schema_id=1))
    for form in (FileFormat.PARQUET, FileFormat.AVRO):
        lake.add([{"id": 3}], 1, schema=lake.schemas[0], file_format=form)
    rows = lake.open().scan().to_arrow()
    rows.validate(full=True)
    assert rows["later"].to_pylist() == [None] * 4


def _duckdb(path: Path, *, shredded: bool) -> None:
    connection = duckdb.connect()
    connection.sql(
        "create table t as "
        "select i::bigint id, case when i = 1 then null else (i * 10)::variant end v from range(3) r(i)"
    )
    shredding = "" if shredded else ", shredding {v: 'VARIANT'}"
    connection.sql(f"copy t to '{path}' (format parquet, field_ids {{id: 1, v: 2}}{shredding})")
    connection.close()


def test_what_duckdb_writes_is_read_and_what_it_shreds_is_refused_by_name(tmp_path: Path) -> None:
    for shredded in (False, True):
        place = tmp_path / str(shredded)
        place.mkdir()
        path = place / "data.parquet"
        _duckdb(path, shredded=shredded)
        assert ("typed_value" in str(pq.ParquetFile(path).schema)) is shredded
        lake = VariantLake(place, Schema(*SCHEMA.fields[:2]), format_version=3)
        lake.add_path(str(path))
        table = lake.open()
        assert table.scan(columns=["id"]).to_arrow()["id"].to_pylist() == [0, 1, 2]
        if not shredded:
            values = pq.read_table(path).column("v").to_pylist()
            assert table.scan().to_arrow()["v"].to_pylist() == values
            assert [value is None for value in values] == [False, True, False]
            continue
        for options in ({}, {"columns": ["v"]}, {"columns": ["v.metadata"]}, {"row_filter": "v is null"}):
            with pytest.raises(UnsupportedError, match=r"data\.parquet.*column v.*shredded"):
                table.scan(**options).to_arrow()
