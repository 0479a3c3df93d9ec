"""Avro data and delete files are read as PyIceberg reads the same rows in Parquet: by field id, as the table is now."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    EqualTo,
    GreaterThan,
    In,
    IsNull,
    LessThan,
    NotNull,
    Or,
    StartsWith,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

import ags1
from ags1.errors import AuthenticationError, FormatError, TruncatedError
from ags1.iceberg import EncryptedFileIO, _avro_files
from ags1.iceberg._avro_files import read_position_deletes, read_task
from ags1.iceberg._avro_schema import iceberg_schema, parse
from ags1.iceberg._file_keys import KnownFile
from ags1.iceberg._scan import EncryptedArrowScan
from ags1.keys import KeyMetadata

KEY = bytes(range(16))
PREFIX = b"0123456789abcdef"
SCAN_BYTES = 1 << 16


def optional(field_id: int, name: str, kind: Any, **options: Any) -> NestedField:
    return NestedField(field_id, name, kind, required=False, **options)


# A name of a column, its Avro type, its Iceberg type, a value in Avro, and the same in Arrow where it is another.
_INSTANT = 1_700_000_000_123_456
_UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
_MICROS = {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False}
_NANOS = {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False}
PRIMITIVES: tuple[tuple[Any, Any, list[Any]], ...] = (
    ("boolean", BooleanType(), [True, False]),
    ("int", IntegerType(), [-(2**31), 2**31 - 1]),
    ("long", LongType(), [-(2**63), 2**63 - 1]),
    ("float", FloatType(), [1.5, float("-inf")]),
    ("double", DoubleType(), [0.1, -0.0]),
    ({"type": "int", "logicalType": "date"}, DateType(), [-719162, 2932896]),
    ({"type": "long", "logicalType": "time-micros"}, TimeType(), [0, 86_399_999_999]),
    (_MICROS, TimestampType(), [_INSTANT, -62135596800000000]),
    ({**_MICROS, "adjust-to-utc": True}, TimestamptzType(), [_INSTANT, -1]),
    (_NANOS, TimestampNanoType(), [_INSTANT * 1000 + 1, -1]),
    ({**_NANOS, "adjust-to-utc": True}, TimestamptzNanoType(), [_INSTANT * 1000 + 1, 0]),
    ("string", StringType(), ["", "grüezi"]),
    ("bytes", BinaryType(), [b"", b"\x00\xff"]),
    ({"type": "fixed", "name": "fixed_3", "size": 3}, FixedType(3), [b"abc", b"\x00\x00\x00"]),
    ({"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}, UUIDType(), [_UUID.bytes]),
)
DECIMALS = ((1, 0), (9, 2), (18, 18), (19, 4), (38, 10))


def _decimal_bytes(value: decimal.Decimal, scale: int, size: int | None = None) -> bytes:
    number = int(value.scaleb(scale))
    return number.to_bytes(size or max(1, (number.bit_length() + 8) // 8), "big", signed=True)


class Lake:
    """Two files with the same rows, Avro and Parquet, and tables that consist of one of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.io = EncryptedFileIO()
        self.avro = str(directory / "data.avro")
        self.parquet = str(directory / "data.parquet")

    def write(self, schema: Any, rows: list[Any], *, codec: str = "null", encrypted: bool = False) -> None:
        """Write an Avro file of rows with Avro's own values."""
        self.write_bytes(avro_bytes(schema, rows, codec), encrypted=encrypted)

    def write_bytes(self, data: bytes, *, encrypted: bool = False) -> None:
        if not encrypted:
            Path(self.avro).write_bytes(data)
            return
        with ags1.open(self.avro, "wb", key=KEY, aad_prefix=PREFIX, block_length=1 << 20) as stream:
            stream.write(data)
        length = Path(self.avro).stat().st_size
        known = KeyMetadata(KEY, PREFIX, length)
        self.io.keys._files[self.avro] = KnownFile(self.avro, "data", "avro", known, length, True)

    def write_parquet(self, schema: Schema, rows: list[dict[str, Any]]) -> None:
        arrow = pa.schema([_stored(each) for each in schema_to_pyarrow(schema)])
        pq.write_table(pa.Table.from_pylist(rows, schema=arrow), self.parquet)

    def read(
        self,
        table: Schema,
        *,
        path: str | None = None,
        columns: Schema | None = None,
        row_filter: Any = AlwaysTrue(),
        deleted: list[list[int]] | None = None,
        limit: int | None = None,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        partition: Record | None = None,
        properties: dict[str, str] | None = None,
    ) -> pa.Table:
        path = path or self.avro
        table = table.model_copy(update={"schema_id": 0})
        metadata = TableMetadataV3(
            location="file:///table",
            last_column_id=1000,
            schemas=[table],
            current_schema_id=0,
            partition_specs=[spec],
            default_spec_id=spec.spec_id,
            sort_orders=[UNSORTED_SORT_ORDER],
            default_sort_order_id=0,
            last_partition_id=1999,
            next_row_id=0,
            properties=properties or {},
        )
        file = data_file(path, FileFormat.AVRO if path.endswith(".avro") else FileFormat.PARQUET, partition)
        file.spec_id = spec.spec_id
        requested = table if columns is None else columns
        scan = EncryptedArrowScan(metadata, self.io, requested, row_filter, True, limit)
        positions = None
        if deleted is not None:
            positions = [pa.chunked_array([pa.array(each, pa.int64())]) for each in deleted]
        task = FileScanTask(file)
        batches = (
            read_task(scan, task, positions)
            if file.file_format == FileFormat.AVRO
            else scan._record_batches_from_scan_tasks_and_deletes([task], {path: positions} if positions else {})
        )
        wanted = schema_to_pyarrow(requested, include_field_ids=False)
        tables = [pa.Table.from_batches([batch]).cast(wanted) for batch in batches]
        return pa.concat_tables(tables).combine_chunks() if tables else wanted.empty_table()

    def read_both(self, table: Schema, **options: Any) -> pa.Table:
        """Rows of the Avro file, which must be those that PyIceberg reads of the Parquet file."""
        ours = self.read(table, **options)
        ours.validate(full=True)
        theirs = self.read(table, path=self.parquet, **options)
        assert ours.schema == theirs.schema
        assert ours.equals(theirs) or ours.to_pylist() == theirs.to_pylist()
        return ours


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def data_file(path: str, file_format: FileFormat, partition: Record | None = None, content: Any = None) -> Any:
    return DataFile.from_args(
        content=content or DataFileContent.DATA,
        file_path=path,
        file_format=file_format,
        partition=partition or Record(),
        record_count=1,
        file_size_in_bytes=1,
    )


def record(*fields: Any) -> Any:
    """An Avro schema: (id, name, type) of each field."""
    return {
        "type": "record",
        "name": "table",
        "fields": [{"name": name, "type": kind, "field-id": field_id} for field_id, name, kind in fields],
    }


def nullable(kind: Any) -> list[Any]:
    return ["null", kind]


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(each) for each in schema]
    if isinstance(schema, dict):
        return {name: _without_logical_types(each) for name, each in schema.items() if name != "logicalType"}
    return schema


def avro_bytes(schema: Any, rows: list[Any], codec: str = "null") -> bytes:
    """A container with this schema of rows whose values are as they are stored: integers for dates, bytes for UUIDs."""
    out = io.BytesIO()
    fastavro.writer(
        out,
        _without_logical_types(schema),
        rows,
        codec="null",
        sync_interval=4000,
        metadata={},
        sync_marker=bytes(range(16)),
        strict=False,
    )
    plain = out.getvalue()
    found = _blocks(plain)
    header = {b"avro.schema": json.dumps(schema).encode(), b"avro.codec": codec.encode()}
    parts = [b"Obj\x01", _long(len(header))]
    parts += [_long(len(each)) + each for entry in header.items() for each in entry]
    parts += [_long(0), bytes(range(16))]
    for count, data in found:
        stored = _COMPRESS[codec](data)
        parts += [_long(count), _long(len(stored)), stored, bytes(range(16))]
    return b"".join(parts)


def _blocks(container: bytes) -> list[tuple[int, bytes]]:
    return [(each.num_records, each.bytes_.getvalue()) for each in fastavro.block_reader(io.BytesIO(container))]


def _long(value: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", value)
    return out.getvalue()


def _deflate(data: bytes) -> bytes:
    squeezed = zlib.compressobj(wbits=-15)
    return squeezed.compress(data) + squeezed.flush()


def _zstandard(data: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(data)
    return out.getvalue().to_pybytes()


def _snappy(data: bytes) -> bytes:
    return pa.Codec("snappy").compress(data, asbytes=True) + zlib.crc32(data).to_bytes(4, "big")


_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": _deflate,
    "zstandard": _zstandard,
    "snappy": _snappy,
    "lzo": bytes,
}


def _stored(field: pa.Field) -> pa.Field:
    """PyArrow makes no UUIDs from Python values inside lists; PyIceberg takes 16 bytes for one."""
    kind = field.type
    if kind == pa.uuid():
        kind = pa.binary(16)
    elif pa.types.is_struct(kind):
        kind = pa.struct([_stored(each) for each in kind])
    elif pa.types.is_large_list(kind):
        kind = pa.large_list(_stored(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(_stored(kind.key_field), _stored(kind.item_field))
    return field.with_type(kind)


# -- types ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encrypted", [False, True], ids=["plaintext", "encrypted"])
@pytest.mark.parametrize(("avro", "kind", "values"), PRIMITIVES, ids=[str(each[1]) for each in PRIMITIVES])
def test_values_of_every_type_are_what_parquet_has(
    lake: Lake, avro: Any, kind: Any, values: list[Any], encrypted: bool
) -> None:
    rows = [{"id": index, "value": value} for index, value in enumerate([*values, None])]
    lake.write(record((1, "id", "long"), (2, "value", nullable(avro))), rows, encrypted=encrypted)
    schema = Schema(NestedField(1, "id", LongType(), required=True), optional(2, "value", kind))
    lake.write_parquet(schema, rows)
    assert lake.read_both(schema).num_rows == len(rows)
    assert lake.read_both(schema, row_filter=IsNull("value")).num_rows == 1
    assert lake.read_both(schema, row_filter=NotNull("value")).num_rows == len(values)


@pytest.mark.parametrize("fixed", [True, False], ids=["fixed", "bytes"])
@pytest.mark.parametrize(("precision", "scale"), DECIMALS)
def test_decimals_are_read_from_fixed_and_from_bytes(lake: Lake, precision: int, scale: int, fixed: bool) -> None:
    largest = decimal.Decimal((0, (9,) * precision, -scale))
    with decimal.localcontext(prec=60):
        values = [largest, -largest, decimal.Decimal(0).scaleb(-scale), decimal.Decimal(-1).scaleb(-scale), None]
        size = 16 if fixed else None
        stored = [None if each is None else _decimal_bytes(each, scale, size) for each in values]
    physical = {"type": "fixed", "name": "d", "size": 16} if fixed else {"type": "bytes"}
    avro = {**physical, "logicalType": "decimal", "precision": precision, "scale": scale}
    lake.write(record((1, "value", nullable(avro))), [{"value": each} for each in stored])
    schema = Schema(optional(1, "value", DecimalType(precision, scale)))
    lake.write_parquet(schema, [{"value": each} for each in values])
    assert lake.read_both(schema)["value"].to_pylist() == values


def test_a_decimal_of_more_digits_than_its_type_is_refused(lake: Lake) -> None:
    avro = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0}
    lake.write(record((1, "value", avro)), [{"value": (1000).to_bytes(2, "big")}])
    with pytest.raises(FormatError, match=r"data\.avro: its rows cannot be decoded: .*precision"):
        lake.read(Schema(optional(1, "value", DecimalType(3, 0))))


def test_uuids_as_text_and_times_in_milliseconds_of_other_writers_are_read(lake: Lake) -> None:
    avro = record(
        (1, "u", nullable({"type": "string", "logicalType": "uuid"})),
        (2, "t", {"type": "int", "logicalType": "time-millis"}),
        (3, "at", {"type": "long", "logicalType": "timestamp-millis", "adjust-to-utc": True}),
    )
    lake.write(avro, [{"u": str(_UUID), "t": 1500, "at": 1500}, {"u": None, "t": 0, "at": 0}])
    schema = Schema(optional(1, "u", UUIDType()), optional(2, "t", TimeType()), optional(3, "at", TimestamptzType()))
    found = lake.read(schema, row_filter=EqualTo("u", _UUID)).to_pylist()
    at = datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=datetime.timezone.utc)
    assert found == [{"u": _UUID, "t": datetime.time(0, 0, 1, 500_000), "at": at}]


def test_a_column_of_nulls_only_gets_the_type_that_the_table_gave_it_later(lake: Lake) -> None:
    lake.write(record((1, "id", "long"), (2, "value", "null")), [{"id": 1, "value": None}])
    for kind in (UnknownType(), StringType(), TimestampType(), DecimalType(9, 2)):
        schema = Schema(optional(1, "id", LongType()), optional(2, "value", kind))
        assert lake.read(schema, row_filter=IsNull("value")).to_pylist() == [{"id": 1, "value": None}]


UUID_FIXED = {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}
NESTED_AVRO = record(
    (1, "id", "long"),
    (2, "tags", nullable({"type": "array", "element-id": 3, "items": nullable("string")})),
    (4, "uuids", nullable({"type": "array", "element-id": 5, "items": nullable(UUID_FIXED)})),
    (
        6,
        "place",
        nullable(
            {
                "type": "record",
                "name": "r6",
                "fields": [
                    {"name": "city", "type": nullable("string"), "field-id": 7},
                    # The type was defined above: a reference.
                    {"name": "key", "type": nullable("uuid_fixed"), "field-id": 8},
                ],
            }
        ),
    ),
    (9, "scores", nullable({"type": "map", "key-id": 10, "value-id": 11, "values": nullable("double")})),
    (
        12,
        "names",
        nullable(
            {
                "type": "array",
                "logicalType": "map",
                "items": {
                    "type": "record",
                    "name": "k13_v14",
                    "fields": [
                        {"name": "key", "type": "int", "field-id": 13},
                        {"name": "value", "type": nullable("string"), "field-id": 14},
                    ],
                },
            }
        ),
    ),
    (
        15,
        "lines",
        nullable(
            {
                "type": "array",
                "element-id": 16,
                "items": nullable(
                    {
                        "type": "record",
                        "name": "r16",
                        "fields": [
                            {"name": "item", "type": nullable("string"), "field-id": 17},
                            {"name": "at", "type": nullable(_MICROS), "field-id": 18},
                        ],
                    }
                ),
            }
        ),
    ),
)
NESTED = Schema(
    NestedField(1, "id", LongType(), required=True),
    optional(2, "tags", ListType(3, StringType(), False)),
    optional(4, "uuids", ListType(5, UUIDType(), False)),
    optional(6, "place", StructType(optional(7, "city", StringType()), optional(8, "key", UUIDType()))),
    optional(9, "scores", MapType(10, StringType(), 11, DoubleType(), False)),
    optional(12, "names", MapType(13, IntegerType(), 14, StringType(), False)),
    optional(
        15, "lines", ListType(16, StructType(optional(17, "item", StringType()), optional(18, "at", TimestampType())))
    ),
)
NESTED = Schema(
    *NESTED.fields[:-1], optional(15, "lines", ListType(16, NESTED.fields[-1].field_type.element_type, False))
)


def _maybe(strategy: Any) -> Any:
    return st.none() | strategy


NESTED_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(-(2**63), 2**63 - 1),
            "tags": _maybe(st.lists(_maybe(st.text(max_size=5)), max_size=3)),
            "uuids": _maybe(st.lists(_maybe(st.binary(min_size=16, max_size=16)), max_size=2)),
            "place": _maybe(
                st.fixed_dictionaries(
                    {"city": _maybe(st.text(max_size=3)), "key": _maybe(st.binary(min_size=16, max_size=16))}
                )
            ),
            "scores": _maybe(st.dictionaries(st.text(max_size=2), _maybe(st.floats(allow_nan=False)), max_size=2)),
            "names": _maybe(st.dictionaries(st.integers(-9, 9), _maybe(st.text(max_size=2)), max_size=2)),
            # Not null: PyIceberg makes null lists of structs in Parquet empty. The next test has them.
            "lines": st.lists(
                _maybe(
                    st.fixed_dictionaries({"item": _maybe(st.text(max_size=3)), "at": _maybe(st.integers(0, 2**50))})
                ),
                max_size=2,
            ),
        }
    ),
    min_size=1,
    max_size=8,
)


def _as_avro(row: dict[str, Any]) -> dict[str, Any]:
    names = row["names"]
    pairs = None if names is None else [{"key": key, "value": value} for key, value in names.items()]
    return {**row, "names": pairs}


def _as_arrow(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: list(value.items()) if name in ("scores", "names") and value is not None else value
        for name, value in row.items()
    }


@given(rows=NESTED_ROWS, data=st.data())
@settings(deadline=None, max_examples=40)
def test_random_nested_rows_are_what_parquet_has(tmp_path_factory: Any, rows: list[Any], data: Any) -> None:
    lake = Lake(tmp_path_factory.mktemp("rows"))
    lake.write(NESTED_AVRO, [_as_avro(row) for row in rows], encrypted=True)
    lake.write_parquet(NESTED, [_as_arrow(row) for row in rows])
    deleted = data.draw(st.none() | st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1))
    names = data.draw(st.sets(st.sampled_from([each.name for each in NESTED.fields]), min_size=1))
    row_filter = data.draw(st.sampled_from([AlwaysTrue(), GreaterThan("id", 0), NotNull("place.city")]))
    lake.read_both(NESTED, columns=NESTED.select(*names), deleted=deleted, row_filter=row_filter)


def test_a_null_list_or_map_of_structs_stays_null(lake: Lake) -> None:
    struct = {"type": "record", "name": "r", "fields": [{"name": "x", "type": "int", "field-id": 3}]}
    other = {"type": "record", "name": "o", "fields": [{"name": "y", "type": "int", "field-id": 7}]}
    avro = record(
        (1, "lines", nullable({"type": "array", "element-id": 2, "items": struct})),
        (4, "places", nullable({"type": "map", "key-id": 5, "value-id": 6, "values": other})),
    )
    rows = [
        {"lines": None, "places": None},
        {"lines": [], "places": {}},
        {"lines": [{"x": 1}], "places": {"a": {"y": 2}}},
    ]
    lake.write(avro, rows)
    schema = Schema(
        optional(1, "lines", ListType(2, StructType(optional(3, "x", IntegerType())), False)),
        optional(4, "places", MapType(5, StringType(), 6, StructType(optional(7, "y", IntegerType())), False)),
    )
    assert lake.read(schema).to_pylist() == [
        {"lines": None, "places": None},
        {"lines": [], "places": []},
        {"lines": [{"x": 1}], "places": [("a", {"y": 2})]},
    ]
    assert lake.read(schema, deleted=[[1]])["lines"].to_pylist() == [None, [{"x": 1}]]


def test_the_schema_of_a_file_is_what_pyiceberg_takes_it_for() -> None:
    schema = Schema(*(field for field in NESTED.fields if field.name != "scores"))
    # PyIceberg writes no references, so that it defines the type of UUIDs twice: one column of them only.
    schema = Schema(*(field for field in schema.fields if field.name != "uuids"))
    avro = AvroSchemaConversion().iceberg_to_avro(schema, schema_name="table")
    assert iceberg_schema(parse(avro), {8: UUIDType()}.get).fields[0] == schema.fields[0]
    found = iceberg_schema(parse(avro), lambda _: None)
    theirs = AvroSchemaConversion().avro_to_iceberg(avro)
    assert found.find_field("place.city") == theirs.find_field("place.city")
    assert found.find_field("names").field_type == schema.find_field("names").field_type
    assert found.find_field("lines").field_type == theirs.find_field("lines").field_type


# -- evolution -----------------------------------------------------------------------------------------------

OLD = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    optional(2, "amount", DecimalType(9, 2)),
    optional(3, "ratio", FloatType()),
    optional(4, "gone", StringType()),
    optional(5, "place", StructType(optional(6, "city", StringType()), optional(7, "zip", IntegerType()))),
)
_PLACE = {
    "type": "record",
    "name": "r5",
    "fields": [
        {"name": "city", "type": nullable("string"), "field-id": 6},
        {"name": "zip", "type": nullable("int"), "field-id": 7},
    ],
}
_AMOUNT = {"type": "fixed", "name": "decimal_9_2", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2}
OLD_AVRO = record(
    (1, "id", "int"),
    (2, "amount", nullable(_AMOUNT)),
    (3, "ratio", nullable("float")),
    (4, "gone", nullable("string")),
    (5, "place", nullable(_PLACE)),
)
NEW = Schema(
    optional(5, "location", StructType(optional(7, "zip", LongType()), optional(9, "street", StringType()))),
    NestedField(1, "number", LongType(), required=True),
    optional(2, "sum", DecimalType(20, 2)),
    optional(3, "ratio", DoubleType()),
    optional(8, "note", StringType()),
    NestedField(10, "kind", StringType(), required=True, initial_default="old"),
)


@pytest.fixture
def old_files(lake: Lake) -> Lake:
    rows = [
        {
            "id": index,
            "amount": decimal.Decimal(index) / 4,
            "ratio": None if index % 3 == 0 else index / 8,
            "gone": "x" * index,
            "place": None if index % 4 == 0 else {"city": f"city {index}", "zip": index},
        }
        for index in range(40)
    ]
    stored = [{**row, "amount": _decimal_bytes(row["amount"], 2, 4)} for row in rows]
    lake.write(OLD_AVRO, stored, codec="deflate", encrypted=True)
    lake.write_parquet(OLD, rows)
    return lake


def test_renamed_added_dropped_reordered_and_promoted_columns_are_found_by_their_ids(old_files: Lake) -> None:
    found = old_files.read_both(NEW)
    assert found.column_names == ["location", "number", "sum", "ratio", "note", "kind"]
    assert found.slice(5, 1).to_pylist() == [
        {
            "location": {"zip": 5, "street": None},
            "number": 5,
            "sum": decimal.Decimal("1.25"),
            "ratio": 0.625,
            "note": None,
            "kind": "old",
        }
    ]


@pytest.mark.parametrize(
    ("row_filter", "count"),
    [
        (GreaterThan("number", 29), 10),
        (GreaterThan("number", 2**40), 0),
        (LessThan("number", 2**40), 40),
        (And(LessThan("sum", decimal.Decimal("2.00")), NotNull("ratio")), 5),
        (EqualTo("location.zip", 5), 1),
        (Or(In("number", [1, 2]), IsNull("location.zip")), 12),
        (IsNull("note"), 40),
        (NotNull("note"), 0),
        (EqualTo("kind", "old"), 40),
        (StartsWith("kind", "new"), 0),
        (AlwaysFalse(), 0),
    ],
    ids=str,
)
def test_a_filter_of_the_table_is_a_filter_of_the_file(old_files: Lake, row_filter: Any, count: int) -> None:
    assert old_files.read_both(NEW, row_filter=row_filter).num_rows == count
    # The filter's columns need not be asked for.
    assert old_files.read_both(NEW, columns=NEW.select("ratio"), row_filter=row_filter).num_rows == count


def test_positions_are_deleted_before_the_filter_counts_rows(old_files: Lake) -> None:
    found = old_files.read_both(NEW, deleted=[[0, 1, 39], [2, 700]], row_filter=GreaterThan("number", 1))
    assert found["number"].to_pylist() == list(range(3, 39))


@pytest.mark.parametrize("column", ["note", "kind"])
def test_rows_are_counted_where_no_column_is_in_the_file(old_files: Lake, column: str) -> None:
    assert old_files.read(NEW, columns=NEW.select(column)).num_rows == 40
    assert old_files.read(NEW, columns=NEW.select(column), deleted=[[3, 5]]).num_rows == 38


def test_a_struct_of_new_fields_only_keeps_its_nulls(old_files: Lake) -> None:
    columns = Schema(optional(5, "location", StructType(optional(9, "street", StringType()))))
    found = old_files.read_both(NEW, columns=columns)
    assert found["location"].to_pylist()[:5] == [None, *[{"street": None}] * 3, None]


def test_a_limit_ends_the_reading(old_files: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_avro_files, "_BATCH_ROWS", 8)
    found = old_files.read(NEW, columns=NEW.select("number"), limit=10)
    assert found["number"].to_pylist() == list(range(16))


def test_the_value_of_an_identity_partition_stands_in_for_its_column(lake: Lake) -> None:
    table = Schema(optional(1, "id", LongType()), optional(2, "country", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "country"), spec_id=3)
    lake.write(record((1, "id", "long")), [{"id": 1}, {"id": 2}])
    lake.write_parquet(table.select("id"), [{"id": 1}, {"id": 2}])
    options: dict[str, Any] = {"spec": spec, "partition": Record("CH")}
    assert lake.read_both(table, **options)["country"].to_pylist() == ["CH", "CH"]
    assert lake.read_both(table, row_filter=EqualTo("country", "CH"), **options).num_rows == 2
    assert lake.read_both(table, row_filter=EqualTo("country", "IT"), **options).num_rows == 0
    # PyIceberg forgets the partition when only the filter has it.
    ids = lake.read(table, columns=table.select("id"), row_filter=EqualTo("country", "CH"), **options)
    assert ids["id"].to_pylist() == [1, 2]


def test_names_that_avro_cannot_have_are_found_by_id_and_can_be_filtered(lake: Lake) -> None:
    avro = record((1, "a_x2Eb", "long"))
    avro["fields"][0]["iceberg-field-name"] = "a.b"
    lake.write(avro, [{"a_x2Eb": 1}, {"a_x2Eb": 2}])
    found = lake.read(Schema(optional(1, "a.b", LongType())), row_filter=GreaterThan("a.b", 1))
    assert found.to_pylist() == [{"a.b": 2}]


# -- names instead of ids ------------------------------------------------------------------------------------

WITHOUT_IDS = {
    "type": "record",
    "name": "table",
    "namespace": "org.example",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "unmapped", "type": "string"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "place",
            "type": {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]},
        },
        {"name": "other", "type": ["Place", "null"]},
        {"name": "scores", "type": {"type": "map", "values": "int"}},
    ],
}
MAPPING = [
    {"field-id": 1, "names": ["id", "number"]},
    {"field-id": 2, "names": ["tags"], "fields": [{"field-id": 3, "names": ["element"]}]},
    {"field-id": 4, "names": ["place"], "fields": [{"field-id": 5, "names": ["city"]}]},
    {
        "field-id": 6,
        "names": ["scores"],
        "fields": [{"field-id": 7, "names": ["key"]}, {"field-id": 8, "names": ["value"]}],
    },
]
MAPPED = Schema(
    optional(1, "id", LongType()),
    optional(2, "tags", ListType(3, StringType(), False)),
    optional(4, "place", StructType(optional(5, "city", StringType()))),
    optional(6, "scores", MapType(7, StringType(), 8, IntegerType(), False)),
)
_NAMED_ROW = {
    "number": 1,
    "unmapped": "x",
    "tags": ["a"],
    "place": {"city": "Bern"},
    "other": {"city": "Basel"},
    "scores": {"s": 1},
}


def test_a_file_without_field_ids_is_read_by_the_tables_name_mapping(lake: Lake) -> None:
    lake.write(WITHOUT_IDS, [_NAMED_ROW])
    properties = {"schema.name-mapping.default": json.dumps(MAPPING)}
    assert lake.read(MAPPED, properties=properties).to_pylist() == [
        {"id": 1, "tags": ["a"], "place": {"city": "Bern"}, "scores": [("s", 1)]}
    ]


def test_a_file_without_field_ids_is_refused_where_the_table_has_no_name_mapping(lake: Lake) -> None:
    lake.write(WITHOUT_IDS, [_NAMED_ROW])
    with pytest.raises(FormatError, match=r"data\.avro: the Avro schema has no field ids.*name-mapping\.default"):
        lake.read(MAPPED)


# -- the container -------------------------------------------------------------------------------------------

SIMPLE_AVRO = record((1, "id", "long"), (2, "text", nullable("string")))
SIMPLE = Schema(optional(1, "id", LongType()), optional(2, "text", StringType()))


def _simple_rows(count: int) -> list[dict[str, Any]]:
    return [{"id": index, "text": f"row {index}" if index % 5 else None} for index in range(count)]


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard", "snappy"])
def test_the_codecs_that_iceberg_writes_are_read(lake: Lake, codec: str) -> None:
    lake.write(SIMPLE_AVRO, _simple_rows(3000), codec=codec, encrypted=True)
    assert lake.read(SIMPLE).to_pylist() == _simple_rows(3000)


def test_another_codec_is_refused_by_name(lake: Lake) -> None:
    lake.write(SIMPLE_AVRO, _simple_rows(1), codec="lzo")
    with pytest.raises(FormatError, match=r"data\.avro: the Avro codec 'lzo' is not supported"):
        lake.read(SIMPLE)


def test_a_file_without_rows_has_none(lake: Lake) -> None:
    lake.write(SIMPLE_AVRO, [], encrypted=True)
    assert lake.read(SIMPLE).num_rows == 0


@pytest.mark.parametrize(("limit", "value"), [("_BATCH_ROWS", 100), ("_BATCH_BYTES", 1000)])
def test_batches_are_bounded_and_positions_go_on_through_them(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    rows = _simple_rows(3000)
    lake.write(SIMPLE_AVRO, rows)
    monkeypatch.setattr(_avro_files, limit, value)
    sizes = []
    original = _avro_files.record_batch

    def counted(*arguments: Any) -> Any:
        batch = original(*arguments)
        sizes.append(batch.num_rows)
        return batch

    monkeypatch.setattr(_avro_files, "record_batch", counted)
    found = lake.read(SIMPLE, deleted=[[0, 1500, 2999]])
    assert found.to_pylist() == [row for row in rows if row["id"] not in (0, 1500, 2999)]
    assert sum(sizes) == 3000
    assert max(sizes) <= (100 if limit == "_BATCH_ROWS" else 1000)


def test_columns_that_nobody_wants_are_not_decoded(lake: Lake) -> None:
    avro = record(*((index, f"c{index}", "string") for index in range(1, 9)))
    data = avro_bytes(avro, [{f"c{index}": "good" if index == 1 else "bad!" for index in range(1, 9)}])
    # Not UTF-8: who decodes it fails.
    lake.write_bytes(data.replace(b"bad!", b"\xff\xff\xff\xff"))
    assert lake.read(Schema(optional(1, "c1", StringType()))).to_pylist() == [{"c1": "good"}]
    with pytest.raises(FormatError, match=r"data\.avro: its rows cannot be decoded: UnicodeDecodeError"):
        lake.read(Schema(optional(2, "c2", StringType())))


# -- bad files -----------------------------------------------------------------------------------------------


def test_a_required_column_that_the_file_lacks_is_named(lake: Lake) -> None:
    lake.write(SIMPLE_AVRO, _simple_rows(1))
    with pytest.raises(FormatError, match=r"data\.avro: its columns do not fit .*required.*9: added"):
        lake.read(Schema(NestedField(9, "added", LongType(), required=True)))


def test_a_column_that_cannot_become_the_tables_type_is_refused(lake: Lake) -> None:
    lake.write(SIMPLE_AVRO, _simple_rows(1))
    with pytest.raises(FormatError, match=r"data\.avro: its columns do not fit .*promote long to int"):
        lake.read(Schema(optional(1, "id", IntegerType())))


def test_every_cut_of_a_plaintext_file_is_noticed_or_at_the_end_of_a_block(lake: Lake) -> None:
    data = avro_bytes(SIMPLE_AVRO, _simple_rows(600))
    ends = [match + 16 for match in range(len(data)) if data.startswith(bytes(range(16)), match)]
    assert len(ends) > 2
    for length in range(0, len(data), 97):
        lake.write_bytes(data[:length])
        if length in ends:
            continue
        with pytest.raises(TruncatedError, match=r"data\.avro"):
            lake.read(SIMPLE)


@settings(deadline=None, max_examples=60)
@given(position=st.integers(0, 4000), value=st.integers(1, 255))
def test_a_changed_byte_of_a_plaintext_file_changes_rows_or_names_the_file(
    tmp_path_factory: Any, position: int, value: int
) -> None:
    lake = Lake(tmp_path_factory.mktemp("changed"))
    data = bytearray(avro_bytes(SIMPLE_AVRO, _simple_rows(300), "deflate"))
    data[position % len(data)] ^= value
    lake.write_bytes(bytes(data))
    try:
        lake.read(SIMPLE)
    except FormatError as error:
        assert "data.avro" in str(error)


def test_a_changed_byte_of_an_encrypted_file_fails_authentication(lake: Lake) -> None:
    lake.write(SIMPLE_AVRO, _simple_rows(300), encrypted=True)
    data = bytearray(Path(lake.avro).read_bytes())
    data[len(data) // 2] ^= 1
    Path(lake.avro).write_bytes(data)
    with pytest.raises(AuthenticationError, match=r"data\.avro"):
        lake.read(SIMPLE)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("string", "not records but of the Avro type string"),
        (record((1, "a", ["null", "int", "string"])), "column a is an Avro union of more than null and a type"),
        (record((1, "a", "nowhere")), "column a is of the Avro type 'nowhere', which the schema does not define"),
        (record((1, "a", nullable("table"))), "column a is an Avro record inside itself"),
        (record((1, "a", {"type": "array", "items": "int"})), "schema.a has no field ids for what is in it"),
        (record((1, "a", {"type": "fixed", "name": "f"})), "column a is of an Avro type without a size"),
        (record((1, "a", "int"), (1, "b", "int")), "its schema cannot be read: .*field id"),
        ({"type": "record", "name": "t", "fields": 5}, "no field ids"),
    ],
    ids=["no record", "union", "undefined", "recursive", "list without ids", "fixed without size", "twice", "fields"],
)
def test_a_schema_that_iceberg_cannot_have_is_refused(lake: Lake, schema: Any, message: str) -> None:
    empty = avro_bytes(record((1, "id", "long")), [])
    was, now = (json.dumps(each).encode() for each in (record((1, "id", "long")), schema))
    lake.write_bytes(empty.replace(_long(len(was)) + was, _long(len(now)) + now))
    with pytest.raises(FormatError, match=rf"data\.avro: .*{message}"):
        lake.read(SIMPLE)


def test_deep_nesting_does_not_overflow_the_stack(lake: Lake) -> None:
    kind: Any = "int"
    for level in range(300):
        kind = {"type": "array", "element-id": 10 + level, "items": kind}
    empty = avro_bytes(record((1, "id", "long")), [])
    was, now = (json.dumps(each).encode() for each in (record((1, "id", "long")), record((1, "a", kind))))
    lake.write_bytes(empty.replace(_long(len(was)) + was, _long(len(now)) + now))
    with pytest.raises(FormatError, match=r"nested more than 100 levels deep"):
        lake.read(SIMPLE)


# -- position deletes ----------------------------------------------------------------------------------------

DELETES_AVRO = record(
    (2147483546, "file_path", "string"),
    (2147483545, "pos", "long"),
    (
        2147483544,
        "row",
        nullable({"type": "record", "name": "row", "fields": [{"name": "id", "type": "long", "field-id": 1}]}),
    ),
)


def _read_deletes(lake: Lake) -> dict[str, pa.ChunkedArray]:
    return read_position_deletes(lake.io, data_file(lake.avro, FileFormat.AVRO, None, DataFileContent.POSITION_DELETES))


@pytest.mark.parametrize("encrypted", [False, True], ids=["plaintext", "encrypted"])
def test_deleted_positions_are_grouped_by_data_file(lake: Lake, encrypted: bool) -> None:
    rows = [{"file_path": f"s3://b/{index % 3}", "pos": index, "row": {"id": index}} for index in range(1000)]
    lake.write(DELETES_AVRO, rows, codec="deflate", encrypted=encrypted)
    found = _read_deletes(lake)
    assert {path: array.to_pylist() for path, array in found.items()} == {
        f"s3://b/{file}": list(range(file, 1000, 3)) for file in range(3)
    }
    assert all(isinstance(array, pa.ChunkedArray) and array.type == pa.int64() for array in found.values())


def test_an_empty_delete_file_deletes_nothing(lake: Lake) -> None:
    lake.write(DELETES_AVRO, [])
    assert _read_deletes(lake) == {}


@pytest.mark.parametrize(
    ("schema", "row", "message"),
    [
        (record((2147483546, "file_path", "string"), (7, "pos", "long")), {"file_path": "a", "pos": 1}, "2147483545"),
        (
            record((2147483546, "file_path", nullable("string")), (2147483545, "pos", "long")),
            {"file_path": None, "pos": 1},
            "has no path",
        ),
        (
            record((2147483546, "file_path", "string"), (2147483545, "pos", nullable("long"))),
            {"file_path": "a", "pos": None},
            "has no position",
        ),
    ],
    ids=["no field", "no path", "no position"],
)
def test_deletes_without_paths_or_positions_are_refused(lake: Lake, schema: Any, row: Any, message: str) -> None:
    lake.write(schema, [row])
    with pytest.raises(FormatError, match=rf"data\.avro: .*{message}"):
        _read_deletes(lake)
