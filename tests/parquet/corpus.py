"""Small plaintext Parquet files of every kind, as their builders by name; the same bytes in every run.

``SMALL`` names a handful for large products of options. ``handmade.py`` adds files that no writer at hand makes.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tests.parquet import handmade

Builder = Callable[[], bytes]

CODECS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")


# -- tables --------------------------------------------------------------------------------------------------


def flat(rows: int = 1000) -> pa.Table:
    """Columns of common types, with nulls and without."""
    numbers = range(rows)
    names = [None if n % 11 == 0 else f"name {n * n % 97}" for n in numbers]
    columns = {
        "number": pa.array(numbers, pa.int64()),
        "real": pa.array([None if n % 7 == 0 else n / 3 for n in numbers], pa.float64()),
        "name": pa.array(names, pa.string()),
        "flag": pa.array([n % 3 == 0 for n in numbers], pa.bool_()),
        "blob": pa.array([bytes([n & 255]) * (n % 5) for n in numbers], pa.binary()),
    }
    required = pa.schema([pa.field(name, column.type, name in ("real", "name")) for name, column in columns.items()])
    return pa.table(columns, schema=required)


def nested(rows: int = 400) -> pa.Table:
    """Lists, structs and maps, empty and null at every level."""
    numbers = range(rows)
    lists = [None if n % 5 == 0 else [None if i % 3 == 2 else i for i in range(n % 4)] for n in numbers]
    structs = [None if n % 6 == 0 else {"x": n, "y": None if n % 4 == 0 else f"y{n}"} for n in numbers]
    maps = [None if n % 7 == 0 else [(f"k{i}", n * i) for i in range(n % 3)] for n in numbers]
    deep = [None if n % 9 == 0 else [[{"a": n, "b": [n] * (n % 2)}] * (n % 3), None] for n in numbers]
    deep_type = pa.list_(pa.list_(pa.struct([("a", pa.int32()), ("b", pa.list_(pa.int16()))])))
    return pa.table(
        {
            "list": pa.array(lists, pa.list_(pa.int32())),
            "struct": pa.array(structs, pa.struct([("x", pa.int64()), ("y", pa.string())])),
            "map": pa.array(maps, pa.map_(pa.string(), pa.int64())),
            "deep": pa.array(deep, deep_type),
        }
    )


def typed(rows: int = 300) -> pa.Table:
    """Logical types."""
    start = datetime.datetime(2026, 1, 2, 3, 4, 5)
    days = [(start + datetime.timedelta(days=n)).date() for n in range(rows)]
    times = [start + datetime.timedelta(microseconds=n * 1_000_001) for n in range(rows)]
    decimals = [decimal.Decimal(n * 37 - 999).scaleb(-2) for n in range(rows)]
    return pa.table(
        {
            "date": pa.array(days, pa.date32()),
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            "time": pa.array(range(rows), pa.time64("us")),
            "small decimal": pa.array(decimals, pa.decimal128(9, 2)),
            "decimal": pa.array(decimals, pa.decimal128(18, 2)),
            "large decimal": pa.array(decimals, pa.decimal128(30, 2)),
            "half": pa.array([n / 8 for n in range(rows)], pa.float16()),
            "fixed": pa.array([n.to_bytes(5, "big") for n in range(rows)], pa.binary(5)),
            "byte": pa.array([n % 256 - 128 for n in range(rows)], pa.int8()),
            "unsigned": pa.array([n << 20 for n in range(rows)], pa.uint64()),
            "category": pa.array([f"c{n % 4}" for n in range(rows)]).dictionary_encode(),
        }
    )


def odd_names() -> pa.Table:
    """Names that are dotted, empty, blank or not ASCII; one is the path of another."""
    names = ["a.b", "a", "", " ", "größe", "列", "x/y", '"quoted"', "a.b.c", "\N{GRINNING FACE}"]
    columns: dict[str, pa.Array] = {name: pa.array([index] * 10 + [None]) for index, name in enumerate(names)}
    columns["a"] = pa.array([{"b": n, "b.c": n + 1} for n in range(11)])
    return pa.table(columns)


# -- writers -------------------------------------------------------------------------------------------------


def written(table: pa.Table, **options: Any) -> bytes:
    """The table in a Parquet file by PyArrow."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def _pages(**options: Any) -> dict[str, Any]:
    """Options that make several pages a chunk."""
    return {"data_page_size": 512, "write_batch_size": 50, **options}


def _zero_row_group() -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, flat(0).schema) as writer:
        writer.write_table(flat(10))
        writer.write_table(flat(0), row_group_size=1)
        writer.write_batch(pa.RecordBatch.from_pylist([], schema=flat(0).schema))
        writer.write_table(flat(10))
    return sink.getvalue()


def _no_row_groups() -> bytes:
    sink = io.BytesIO()
    pq.ParquetWriter(sink, flat(0).schema).close()
    return sink.getvalue()


def _sorted() -> bytes:
    sorting = [pq.SortingColumn(0), pq.SortingColumn(2, descending=True, nulls_first=True)]
    return written(flat(), sorting_columns=sorting, row_group_size=400)


def _metadata() -> bytes:
    metadata = {b"key": b"value", b"empty": b"", "schlüssel".encode(): "größe".encode(), b"long": b"x" * 5000}
    table = flat(50).replace_schema_metadata(metadata)
    return written(table)


def _wide() -> bytes:
    columns = {f"column {number:03}": pa.array([number, None, -number], pa.int32()) for number in range(300)}
    return written(pa.table(columns), row_group_size=2, write_page_index=True, compression="none")


def _encodings(version: str) -> bytes:
    rows = 500
    columns = {
        "delta": pa.array(range(rows), pa.int64()),
        "delta length": pa.array([f"{n}" * (n % 4) for n in range(rows)]),
        "delta bytes": pa.array([f"prefix {n:05}" for n in range(rows)]),
        "split": pa.array([n / 7 for n in range(rows)], pa.float32()),
        "runs": pa.array([n % 50 < 25 for n in range(rows)]),
    }
    encodings = ("DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT", "RLE")
    return written(
        pa.table(columns),
        use_dictionary=False,
        column_encoding=dict(zip(columns, encodings, strict=True)),
        data_page_version=version,
        write_page_index=True,
    )


def _dictionary_fallback(version: str) -> bytes:
    table = pa.table({"text": [f"{n:040}" for n in range(1200)], "few": [n % 3 for n in range(1200)]})
    limits = {"dictionary_pagesize_limit": 6000, "data_page_version": version}
    return written(table, write_page_index=True, write_page_checksum=True, **_pages(**limits))


def _all_null() -> pa.Table:
    return pa.table(
        {
            "null": pa.nulls(200),
            "int": pa.nulls(200, pa.int32()),
            "text": pa.nulls(200, pa.string()),
            "list": pa.nulls(200, pa.list_(pa.int32())),
        }
    )


def _bloom_filters(version: str) -> bytes:
    blooms = {"number": {"ndv": 1000, "fpp": 0.05}, "name": {"ndv": 97, "fpp": 0.01}}
    return written(
        flat(),
        bloom_filter_options=blooms,
        row_group_size=400,
        write_page_index=True,
        write_page_checksum=True,
        data_page_version=version,
    )


def _everything(version: str) -> bytes:
    table = nested(400)
    for name in ("number", "name"):
        table = table.append_column(name, flat(400)[name])
    options = _pages(row_group_size=150, data_page_version=version, write_page_index=True, write_page_checksum=True)
    options["max_rows_per_page"] = 60
    blooms: dict[str, Any] = {"name": {"ndv": 97, "fpp": 0.05}, "struct.y": {"ndv": 100, "fpp": 0.1}}
    return written(table, compression="zstd", bloom_filter_options=blooms, **options)


def _polars(**options: Any) -> bytes:
    frame = pl.from_arrow(nested(200).drop_columns(["map"]).append_column("name", flat(200)["name"]))
    assert isinstance(frame, pl.DataFrame)
    sink = io.BytesIO()
    frame.write_parquet(sink, **options)
    return sink.getvalue()


def _duckdb(options: str) -> bytes:
    source = flat(3000)
    with tempfile.TemporaryDirectory() as directory, duckdb.connect(config={"threads": 1}) as connection:
        connection.register("source", source)
        path = Path(directory) / "file.parquet"
        connection.execute(f"COPY (SELECT * FROM source) TO '{path}' (FORMAT parquet, {options})")
        return path.read_bytes()


# -- the corpus ----------------------------------------------------------------------------------------------


def _by_pyarrow() -> dict[str, Builder]:
    builders: dict[str, Builder] = {}

    def add(name: str, table: Callable[[], pa.Table], **options: Any) -> None:
        builders[name] = lambda: written(table(), **options)

    for codec in CODECS:
        for version in ("1.0", "2.0"):
            add(f"{codec}-v{version[0]}", functools.partial(flat, 200), compression=codec, data_page_version=version)
    for version in ("1.0", "2.0"):
        v = f"v{version[0]}"
        add(f"nested-{v}", nested, data_page_version=version, write_page_index=True)
        small = functools.partial(nested, 60)
        add(f"small-nested-{v}", small, data_page_version=version, write_page_index=True, row_group_size=25)
        options = _pages(data_page_version=version, write_page_index=True, write_page_checksum=True)
        add(f"pages-{v}", flat, row_group_size=300, **options)
        add(f"nested-pages-{v}", nested, row_group_size=150, compression="zstd", **options)
        add(f"no-dictionary-{v}", flat, use_dictionary=False, **options)
        add(f"no-compression-{v}", nested, compression="none", row_group_size=150, **options)
        add(f"all-null-{v}", _all_null, data_page_version=version, write_page_index=True)
        add(f"types-{v}", typed, data_page_version=version, write_page_index=True)
        builders[f"encodings-{v}"] = functools.partial(_encodings, version)
        builders[f"dictionary-fallback-{v}"] = functools.partial(_dictionary_fallback, version)
        builders[f"bloom-filters-{v}"] = functools.partial(_bloom_filters, version)
        builders[f"everything-{v}"] = functools.partial(_everything, version)
    add("several-row-groups", functools.partial(flat, 100), row_group_size=7)
    add("checksums", functools.partial(flat, 100), write_page_checksum=True)
    add("no-statistics", flat, write_statistics=False)
    add("some-statistics", flat, write_statistics=["number"], use_dictionary=["name"])
    add("format-1.0", functools.partial(flat, 300), version="1.0", row_group_size=200)
    add("no-arrow-schema", functools.partial(flat, 20), store_schema=False)
    add("decimals-as-integers", typed, store_decimal_as_integer=True)
    add("int96", functools.partial(typed, 50), use_deprecated_int96_timestamps=True)
    add("byte-stream-split", lambda: flat().select(["real"]), use_byte_stream_split=True, use_dictionary=False)
    add("odd-names", odd_names, write_page_index=True)
    add("no-rows", functools.partial(flat, 0))
    add("no-rows-nested", functools.partial(nested, 0))
    builders["no-row-groups"] = _no_row_groups
    add("no-columns", lambda: pa.table({}))
    add("one-value", lambda: pa.table({"one": [1]}))
    add("content-defined-chunks", flat, use_content_defined_chunking={"min_chunk_size": 500, "max_chunk_size": 2000})
    builders["zero-row-row-groups"] = _zero_row_group
    builders["sorting-columns"] = _sorted
    builders["key-value-metadata"] = _metadata
    builders["wide"] = _wide
    return builders


def _by_others() -> dict[str, Builder]:
    polars: dict[str, Any] = {"row_group_size": 70, "data_page_size": 300}
    return {
        "polars": functools.partial(_polars, compression="zstd", **polars),
        "polars-uncompressed": functools.partial(_polars, compression="uncompressed", statistics="full", **polars),
        "polars-lz4": functools.partial(_polars, compression="lz4", statistics=False),
        "duckdb": functools.partial(_duckdb, "COMPRESSION zstd, ROW_GROUP_SIZE 2048"),
        "duckdb-v2": functools.partial(_duckdb, "COMPRESSION snappy, PARQUET_VERSION v2"),
        "duckdb-uncompressed": functools.partial(_duckdb, "COMPRESSION uncompressed, ROW_GROUP_SIZE 2048"),
    }


def _handmade() -> dict[str, Builder]:
    """Files that are changed after PyArrow wrote them."""
    options = _pages(row_group_size=300, write_page_index=True)
    bases: dict[str, Builder] = {
        "v1": lambda: written(flat(600).select(["number", "name", "real"]), **options),
        "v2": lambda: written(flat(600).select(["number", "name", "real"]), data_page_version="2.0", **options),
        "bloom": functools.partial(_everything, "1.0"),
    }
    return {
        name: functools.partial(_changed, bases[base], change)
        for name, (base, change) in {**handmade.CHANGES, **handmade.UNREADABLE}.items()
    } | {"mixed-page-versions": lambda: handmade.mix_page_versions(bases["v1"](), bases["v2"]())}


def _changed(base: Builder, change: Callable[[bytes], bytes]) -> bytes:
    return change(base())


CORPUS: dict[str, Builder] = {
    name: functools.cache(builder) for name, builder in {**_by_pyarrow(), **_by_others(), **_handmade()}.items()
}
"""Builders of all files by name; each file is made once a process."""

UNREADABLE = frozenset({*handmade.UNREADABLE})
"""Names of the files that PyArrow cannot read; everything else about them is sound.

Let it try with ``use_threads=False`` only: PyArrow 26 may abort the process at its end after a threaded read failed.
"""

INCONSISTENT = handmade.INCONSISTENT
"""Names of the files in which something contradicts something else, as real writers have written it: open them with
``strict=False``. What was encrypted or decrypted from them must be consistent all the same."""

SMALL = ("snappy-v1", "zstd-v2", "small-nested-v1", "small-nested-v2", "everything-v2", "no-rows", "no-row-groups")
"""For large products of options: together they have both page versions, levels, several row groups, indexes, Bloom
filters, CRCs and an empty table."""


def build(name: str) -> bytes:
    """The file of a name."""
    return CORPUS[name]()
