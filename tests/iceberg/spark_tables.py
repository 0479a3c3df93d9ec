"""What tables Spark makes, and what is special about each: the content, not the machinery.

Everything is deterministic but ids, keys and times, so that a plaintext twin has the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.iceberg.spark_process import Lake

AVRO = {"write.format.default": "avro", "write.delete.format.default": "avro"}


@dataclass(frozen=True)
class Definition:
    """A table: what makes it, and the words by which tests find it."""

    name: str
    features: tuple[str, ...]
    make: Callable[[Lake, str], None]


def make(lake: Lake) -> dict[str, Any]:
    """Make every table; return what was recorded of each, by name."""
    tables = {}
    for definition in DEFINITIONS:
        started = time.monotonic()
        definition.make(lake, definition.name)
        tables[definition.name] = lake.record(definition.name, definition.features)
        print(f"{definition.name}: {time.monotonic() - started:.1f} s", flush=True)
    return tables


# -- many snapshots ------------------------------------------------------------------------------------------


def _events(**options: Any) -> Callable[[Lake, str], None]:
    """Partitions of three kinds, and every kind of commit that Spark has, while the schema changes."""

    def make(lake: Lake, name: str) -> None:
        lake.create(
            name,
            "id BIGINT NOT NULL, region STRING, amount DECIMAL(10, 2), at TIMESTAMP, day DATE, note STRING",
            partitioned_by="region, bucket(2, id), days(at)",
            **options,
        )

        def insert(first: int, last: int, *further: str) -> str:
            columns = [
                "id",
                "element_at(array('eu', 'us', null), CAST(id % 3 + 1 AS INT))",
                "IF(id % 10 = 3, null, CAST(id * 1.25 AS DECIMAL(10, 2)))",
                "TIMESTAMP'2026-02-27 23:59:59.999999' + make_interval(0, 0, 0, CAST(id % 2 AS INT))",
                "date_add(DATE'1969-12-30', CAST(id AS INT))",
                "IF(id % 4 = 0, null, concat('note ', id))",
                *further,
            ]
            return f"SELECT {', '.join(columns)} FROM range({first}, {last}, 1, 1)"

        lake.sql(f"INSERT INTO {name} {insert(0, 60)}")
        lake.sql(f"INSERT INTO {name} {insert(60, 100)}")
        lake.sql(f"DELETE FROM {name} WHERE id % 7 = 0")
        lake.sql(f"UPDATE {name} SET amount = amount * 2, note = 'updated' WHERE id % 11 = 1")
        lake.sql(f"ALTER TABLE {name} ADD COLUMN quantity INT AFTER amount")
        lake.sql(f"ALTER TABLE {name} RENAME COLUMN note TO comment")
        with_quantity = insert(100, 120).replace(" AS DECIMAL(10, 2))),", " AS DECIMAL(10, 2))), CAST(id AS INT),")
        lake.sql(f"INSERT INTO {name} {with_quantity}")
        # The partitions of the one region only are replaced.
        lake.sql(f"INSERT OVERWRITE {name} SELECT * FROM {name} WHERE region = 'us' AND id < 80")
        lake.sql(f"DELETE FROM {name} WHERE region IS NULL")
        lake.sql(f"DELETE FROM {name} WHERE id % 5 = 0")

    return make


def _maintained(lake: Lake, name: str) -> None:
    """Expired snapshots whose keys are left, compacted files, a branch and a tag."""
    lake.create(name, "id BIGINT, text STRING")
    for first in (0, 20, 40):
        lake.sql(f"INSERT INTO {name} SELECT id, concat('row ', id) FROM range({first}, {first + 20}, 1, 1)")
    lake.sql(f"DELETE FROM {name} WHERE id % 6 = 0")
    lake.sql(f"ALTER TABLE {name} CREATE TAG kept")
    target = f"{lake.namespace}.{name}"
    lake.sql(f"CALL lake.system.rewrite_data_files(table => '{target}', options => map('min-input-files', '2'))")
    lake.sql(f"INSERT INTO {name} SELECT id, 'late' FROM range(60, 70, 1, 1)")
    lake.sql(f"CALL lake.system.rewrite_manifests(table => '{target}')")
    lake.sql(f"ALTER TABLE {name} CREATE BRANCH side")
    lake.sql(f"INSERT INTO {lake.namespace}.{name}.branch_side SELECT id, 'branch' FROM range(70, 75, 1, 1)")
    lake.sql(
        f"CALL lake.system.expire_snapshots(table => '{target}', older_than => TIMESTAMP'2999-01-01 00:00:00', "
        "retain_last => 1)"
    )


def _branches(lake: Lake, name: str) -> None:
    """A branch and a tag of before and of after a change of the schema."""
    lake.create(name, "id BIGINT, text STRING")
    lake.sql(f"INSERT INTO {name} SELECT id, concat('row ', id) FROM range(0, 10, 1, 1)")
    lake.sql(f"ALTER TABLE {name} CREATE TAG early")
    lake.sql(f"ALTER TABLE {name} CREATE BRANCH side")
    lake.sql(f"ALTER TABLE {name} RENAME COLUMN text TO label")
    lake.sql(f"ALTER TABLE {name} ADD COLUMN amount INT")
    lake.sql(f"INSERT INTO {name} SELECT id, concat('new ', id), CAST(id AS INT) FROM range(10, 15, 1, 1)")
    lake.sql(f"INSERT INTO {lake.namespace}.{name}.branch_side SELECT id, 'side', 7 FROM range(20, 25, 1, 1)")
    lake.sql(f"DELETE FROM {lake.namespace}.{name}.branch_side WHERE id IN (3, 22)")
    lake.sql(f"ALTER TABLE {name} CREATE TAG late")
    lake.sql(f"UPDATE {name} SET amount = -1 WHERE id % 4 = 0")


def _lineage(**options: Any) -> Callable[[Lake, str], None]:
    """Rows that were moved, changed and compacted, of which each keeps its number."""

    def make(lake: Lake, name: str) -> None:
        lake.create(name, "id BIGINT, region STRING, amount INT", partitioned_by="region", **options)
        for first in range(0, 80, 20):
            lake.sql(
                f"INSERT INTO {name} SELECT id, IF(id % 2 = 0, 'eu', 'us'), CAST(id AS INT) "
                f"FROM range({first}, {first + 20}, 1, 1)"
            )
        lake.sql(f"UPDATE {name} SET amount = amount + 1000 WHERE id % 7 = 0")
        lake.sql(f"DELETE FROM {name} WHERE id % 11 = 3")
        target = f"{lake.namespace}.{name}"
        lake.sql(
            f"CALL lake.system.rewrite_data_files(table => '{target}', where => 'region = \"eu\"', "
            "options => map('min-input-files', '2'))"
        )
        lake.sql(f"UPDATE {name} SET amount = -1 WHERE id % 13 = 0")
        lake.sql(f"CALL lake.system.rewrite_manifests(table => '{target}')")
        lake.sql(f"INSERT INTO {name} SELECT id, 'us', 0 FROM range(80, 90, 1, 1)")

    return make


# -- schemas -------------------------------------------------------------------------------------------------

_COLUMNS: tuple[tuple[str, Any], ...] = (
    ("id", "long"),
    ("flag", "boolean"),
    ("small", "int"),
    ("single", "float"),
    ("double", "double"),
    ("decimal9", "decimal(9, 2)"),
    ("decimal18", "decimal(18, 4)"),
    ("decimal38", "decimal(38, 10)"),
    ("day", "date"),
    ("instant", "timestamptz"),
    ("local", "timestamp"),
    ("text", "string"),
    ("unique", "uuid"),
    ("fixed", "fixed[4]"),
    ("octets", "binary"),
)
_NESTED = {
    "place": "STRUCT<city: STRING, spot: STRUCT<x: DOUBLE, y: DOUBLE>>",
    "tags": "ARRAY<STRING>",
    "lines": "ARRAY<STRUCT<item: STRING, count: INT>>",
    "scores": "MAP<STRING, DOUBLE>",
    "by_number": "MAP<INT, STRUCT<name: STRING, values: ARRAY<BIGINT>>>",
}


def _types(**options: Any) -> Callable[[Lake, str], None]:
    """A column of every type that Spark can write to Iceberg, with nulls, ends of ranges and nested nulls."""

    def make(lake: Lake, name: str) -> None:
        fields = [
            {"id": index, "name": column, "required": False, "type": kind}
            for index, (column, kind) in enumerate(_COLUMNS, 1)
        ]
        schema = {"type": "struct", "schema-id": 0, "fields": fields}
        lake.create_from_schema(name, schema, **options)
        for column, kind in _NESTED.items():
            lake.sql(f"ALTER TABLE {name} ADD COLUMN {column} {kind}")
        lake.sql(f"INSERT INTO {name} VALUES {', '.join(_TYPE_ROWS)}")
        lake.sql(
            f"INSERT INTO {name} SELECT id + 100, flag, small, single, double, -decimal9, -decimal18, decimal38, "
            f"date_sub(day, 40000), instant, local, upper(text), unique, fixed, octets, place, reverse(tags), lines, "
            f"scores, by_number FROM {name}"
        )

    return make


_TYPE_ROWS = (
    (
        "(1, true, 2147483647, CAST(1.5 AS FLOAT), 1.7976931348623157E308D, 1234567.89, 12345678901234.5678, "
        "1234567890123456789012345678.0123456789, DATE'2026-11-20', TIMESTAMP'2026-11-20 01:02:03.456789', "
        "TIMESTAMP_NTZ'2026-11-20 01:02:03.456789', 'plain', '00010203-0405-0607-0809-0a0b0c0d0e0f', X'00FF7F80', "
        "X'0001FEFF', named_struct('city', 'Oslo', 'spot', named_struct('x', 1.5D, 'y', -0.25D)), "
        "array('a', null, 'b'), array(named_struct('item', 'bolt', 'count', 3), null), map('m', 1.5D, 'n', null), "
        "map(7, named_struct('name', 'seven', 'values', array(7L, null))))"
    ),
    (
        "(2, false, -2147483648, CAST('NaN' AS FLOAT), CAST('Infinity' AS DOUBLE), -0.01, -0.0001, -0.0000000001, "
        "DATE'0201-01-01', TIMESTAMP'1969-12-31 23:59:59.999999', TIMESTAMP_NTZ'1900-01-01 00:00:00', "
        "'na\u00efve \u65e5\u672c \U0001f511', 'ffffffff-ffff-4fff-bfff-ffffffffffff', X'00000000', X'', "
        "named_struct('city', CAST(null AS STRING), 'spot', CAST(null AS STRUCT<x: DOUBLE, y: DOUBLE>)), "
        "array(), array(), map(), map())"
    ),
    f"(3{', null' * (len(_COLUMNS) + len(_NESTED) - 1)})",
    (
        "(4, true, 0, CAST('-Infinity' AS FLOAT), -0.0D, 0.00, 0.0000, 0.0000000000, DATE'9999-12-31', "
        "TIMESTAMP'2262-04-11 23:47:16.854775', TIMESTAMP_NTZ'2000-02-29 12:00:00', '', "
        "'00000000-0000-0000-0000-000000000000', X'FFFFFFFF', X'00', "
        "named_struct('city', '', 'spot', named_struct('x', CAST(null AS DOUBLE), 'y', 0D)), array(''), "
        "array(named_struct('item', CAST(null AS STRING), 'count', CAST(null AS INT))), map('', 0D), "
        "map(-1, named_struct('name', CAST(null AS STRING), 'values', CAST(null AS ARRAY<BIGINT>))))"
    ),
)


def _evolution(**options: Any) -> Callable[[Lake, str], None]:
    """Every change of schema and of partitions between two inserts, so that readers must go by field ids."""

    def make(lake: Lake, name: str) -> None:
        lake.create(
            name,
            "id INT, ratio FLOAT, price DECIMAL(5, 2), label STRING, dropped STRING, "
            "place STRUCT<city: STRING, zip: INT>, items ARRAY<STRUCT<sku: STRING, count: INT>>",
            **options,
        )
        lake.sql(
            f"INSERT INTO {name} SELECT CAST(id AS INT), CAST(id / 4 AS FLOAT), CAST(id / 8 AS DECIMAL(5, 2)), "
            "concat('old ', id), concat('gone ', id), named_struct('city', concat('c', id), 'zip', CAST(id AS INT)), "
            "array(named_struct('sku', concat('s', id), 'count', CAST(id AS INT))) FROM range(0, 10, 1, 1)"
        )
        for change in (
            "ALTER COLUMN id TYPE BIGINT",
            "ALTER COLUMN ratio TYPE DOUBLE",
            "ALTER COLUMN price TYPE DECIMAL(12, 2)",
            "ALTER COLUMN place.zip TYPE BIGINT",
            "RENAME COLUMN label TO title",
            "RENAME COLUMN place.city TO town",
            "DROP COLUMN dropped",
            "ADD COLUMN place.country STRING",
            "ADD COLUMN items.element.price DOUBLE",
            "ADD COLUMN extra MAP<STRING, INT>",
            "ALTER COLUMN title FIRST",
        ):
            lake.sql(f"ALTER TABLE {name} {change}")
        lake.sql(
            f"INSERT INTO {name} (title, id, ratio, price, place, items, extra) SELECT concat('new ', id), "
            "id + 5000000000, id / 3, CAST(id * 1000000.25 AS DECIMAL(12, 2)), "
            "named_struct('town', concat('t', id), 'zip', id + 6000000000, 'country', 'NO'), "
            "array(named_struct('sku', concat('n', id), 'count', CAST(id AS INT), 'price', id / 2)), map('k', 1) "
            "FROM range(0, 10, 1, 1)"
        )
        # The same name with another type, and a new meaning: only the field id tells.
        lake.sql(f"ALTER TABLE {name} ADD COLUMN dropped INT")
        lake.sql(f"ALTER TABLE {name} ADD PARTITION FIELD truncate(1, title)")
        literal = lake.jvm.org.apache.iceberg.expressions.Literal.of("from the start")
        text = lake.jvm.org.apache.iceberg.types.Types.StringType.get()
        lake.table(name).updateSchema().addColumn("with_default", text, None, literal).commit()
        lake.sql(
            f"INSERT INTO {name} (title, id, dropped, with_default) "
            "SELECT concat(IF(id % 2 = 0, 'x', 'y'), id), id, CAST(-id AS INT), IF(id = 1, 'own', null) "
            "FROM range(0, 4, 1, 1)"
        )
        lake.sql(f"DELETE FROM {name} WHERE title IN ('old 3', 'new 4', 'x0')")

    return make


def _fixed_partitions(lake: Lake, name: str) -> None:
    """Partitions by values of a fixed length."""
    fields = [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "code", "required": False, "type": "fixed[4]"},
    ]
    lake.create_from_schema(name, {"type": "struct", "schema-id": 0, "fields": fields})
    lake.sql(f"ALTER TABLE {name} ADD PARTITION FIELD code")
    lake.sql(f"INSERT INTO {name} VALUES (1, X'00FF7F80'), (2, X'61626364'), (3, null), (4, X'00FF7F80')")
    lake.sql(f"DELETE FROM {name} WHERE id = 4")


# -- deletes that Spark does not write -----------------------------------------------------------------------


def _deletes(data: str, deletes: str) -> Callable[[Lake, str], None]:
    """Equality deletes, position deletes as of tables that once had version 2, and a vector, over one another."""

    def make(lake: Lake, name: str) -> None:
        lake.create(name, "id BIGINT, text STRING", properties={"write.format.default": data})
        java = lake.jvm.ags1.interop.tables.Deletes
        lake.sql(f"INSERT INTO {name} SELECT id, concat('row ', id) FROM range(0, 30, 1, 1)")
        java.byValue(lake.table(name), "id", [1, 4, 9, 16, 25, 1000], deletes)
        # Rows that come back are newer than the delete, so they stay.
        lake.sql(f"INSERT INTO {name} SELECT id, concat('again ', id) FROM range(0, 10, 1, 1)")
        newest = lake.sql(
            f"SELECT file_path FROM {lake.namespace}.{name}.files WHERE content = 0 AND record_count = 10"
        )[0][0]
        java.byPosition(lake.table(name), newest, [0, 1, 9], deletes)
        lake.sql(f"INSERT INTO {name} SELECT id, concat('last ', id) FROM range(30, 40, 1, 1)")
        lake.sql(f"DELETE FROM {name} WHERE text IN ('last 31', 'last 32')")
        java.byValue(lake.table(name), "id", [2, 33], deletes)

    return make


def _shared_vectors(again: str) -> Callable[[Lake, str], None]:
    """Two data files whose vectors are in one Puffin file, of which the first file's is then removed."""

    def make(lake: Lake, name: str) -> None:
        lake.create(name, "id BIGINT, text STRING")
        for first in (0, 10):
            lake.sql(f"INSERT INTO {name} SELECT id, concat('row ', id) FROM range({first}, {first + 10}, 1, 1)")
        lake.sql(f"DELETE FROM {name} WHERE id % 5 = 0")
        files = lake.sql(f"SELECT DISTINCT _file FROM {name} WHERE id < 10")
        getattr(lake.jvm.ags1.interop.tables.Deletes, again)(lake.table(name), files[0][0])

    return make


# -- what is to be refused, and edges ------------------------------------------------------------------------


_NAMES = '[{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["text"]}]'


def _with_plaintext_files(format_: str, *, by_procedure: bool = False) -> Callable[[Lake, str], None]:
    """Files that were never encrypted in an encrypted table; Spark's procedure adds them with a plaintext manifest."""

    def make(lake: Lake, name: str) -> None:
        lake.create(name, "id BIGINT, text STRING", properties={"schema.name-mapping.default": _NAMES})
        lake.sql(f"INSERT INTO {name} SELECT id, 'encrypted' FROM range(0, 5, 1, 1)")
        directory = lake.directory / "added" / name
        plain = lake.spark.sql("SELECT id, 'plaintext' AS text FROM range(5, 10, 1, 1)")
        plain.write.format(format_).save(directory.as_uri())
        if by_procedure:
            source = f"`{format_}`.`{directory.as_uri()}`"
            lake.sql(f"CALL lake.system.add_files(table => '{lake.namespace}.{name}', source_table => '{source}')")
            return
        (file,) = directory.glob(f"part-*.{format_}")
        iceberg = lake.jvm.org.apache.iceberg
        data_file = (
            iceberg.DataFiles.builder(iceberg.PartitionSpec.unpartitioned())
            .withPath(file.as_uri())
            .withFormat(format_)
            .withFileSizeInBytes(file.stat().st_size)
            .withRecordCount(5)
            .build()
        )
        lake.table(name).newAppend().appendFile(data_file).commit()

    return make


def _empty(lake: Lake, name: str) -> None:
    lake.create(name, "id BIGINT, text STRING")


def _emptied(lake: Lake, name: str) -> None:
    lake.create(name, "id BIGINT, text STRING")
    lake.sql(f"INSERT INTO {name} SELECT id, 'x' FROM range(0, 5, 1, 1)")
    lake.sql(f"DELETE FROM {name}")


def _bulk(rows: int, **options: Any) -> Callable[[Lake, str], None]:
    """Several AGS1 blocks or row groups a file: text that does not compress."""

    def make(lake: Lake, name: str) -> None:
        lake.create(name, "id BIGINT, amount DOUBLE, digest STRING", **options)
        lake.sql(
            f"INSERT INTO {name} SELECT id, id / 7, concat(sha2(CAST(id AS STRING), 512), ' ', id) "
            f"FROM range(0, {rows}, 1, 1)"
        )
        lake.sql(f"DELETE FROM {name} WHERE id % 1000 = 5")

    return make


_SMALL_GROUPS = {
    "write.parquet.row-group-size-bytes": "524288",
    "write.parquet.row-group-check-min-record-count": "500",
    "write.parquet.row-group-check-max-record-count": "500",
    "write.parquet.page-size-bytes": "65536",
    "write.parquet.bloom-filter-enabled.column.id": "true",
    "write.parquet.bloom-filter-max-bytes": "16384",
}

DEFINITIONS = (
    Definition("events", ("encrypted", "parquet", "partitions", "vectors"), _events()),
    Definition(
        "events_plain", ("plaintext", "parquet", "partitions", "twin", "position deletes"), _events(key_id=None)
    ),
    Definition("events_avro", ("encrypted", "avro", "partitions", "vectors"), _events(key_length=32, properties=AVRO)),
    Definition("maintained", ("encrypted", "parquet", "expired snapshots", "compacted"), _maintained),
    Definition("types", ("encrypted", "parquet", "types"), _types(key_length=32, key_id="key256")),
    Definition("types_avro", ("encrypted", "avro", "types"), _types(properties=AVRO)),
    Definition("evolution", ("encrypted", "parquet", "evolution", "vectors"), _evolution(key_length=24)),
    Definition("evolution_avro", ("encrypted", "avro", "evolution", "vectors"), _evolution(properties=AVRO)),
    Definition(
        "deletes",
        ("encrypted", "parquet", "equality deletes", "position deletes", "vectors"),
        _deletes("parquet", "parquet"),
    ),
    Definition(
        "deletes_avro",
        ("encrypted", "avro", "equality deletes", "position deletes", "vectors"),
        _deletes("avro", "avro"),
    ),
    Definition(
        "vector_removed", ("encrypted", "parquet", "vectors", "shared vectors"), _shared_vectors("removeVector")
    ),
    Definition("file_again", ("encrypted", "parquet", "vectors", "shared vectors"), _shared_vectors("appendAgain")),
    Definition("branches", ("encrypted", "parquet", "refs"), _branches),
    Definition("lineage", ("encrypted", "parquet", "partitions", "compacted", "lineage"), _lineage()),
    Definition("lineage_avro", ("encrypted", "avro", "partitions", "compacted", "lineage"), _lineage(properties=AVRO)),
    Definition("fixed_partitions", ("encrypted", "parquet", "partitions", "types"), _fixed_partitions),
    Definition("mixed", ("encrypted", "parquet", "plaintext files"), _with_plaintext_files("parquet")),
    Definition(
        "added",
        ("encrypted", "parquet", "plaintext files", "plaintext manifest"),
        _with_plaintext_files("parquet", by_procedure=True),
    ),
    Definition("orc", ("encrypted", "parquet", "plaintext files", "unsupported files"), _with_plaintext_files("orc")),
    Definition("empty", ("encrypted", "no snapshot"), _empty),
    Definition("emptied", ("encrypted", "parquet", "no rows"), _emptied),
    Definition("bulk", ("encrypted", "parquet", "large", "vectors"), _bulk(15_000, properties=_SMALL_GROUPS)),
    Definition(
        "bulk_avro",
        ("encrypted", "avro", "large", "vectors"),
        _bulk(15_000, properties={**AVRO, "write.avro.compression-codec": "uncompressed"}),
    ),
)


def make_bulk(lake: Lake, rows: int) -> dict[str, Any]:
    """Make an encrypted table and its plaintext twins of any size, for measurements; no rows are recorded."""
    kinds: dict[str, dict[str, Any]] = {
        "encrypted": {},
        "plain": {"key_id": None},
        "encrypted_avro": {"properties": AVRO},
        "plain_avro": {"key_id": None, "properties": AVRO},
    }
    tables = {}
    for name, options in kinds.items():
        _bulk(rows, **options)(lake, name)
        tables[name] = lake.summary(name, ("large",))
    return tables
