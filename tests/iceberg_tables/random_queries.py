"""Random filters in the languages of polars and DuckDB: the same rows of a scan as of a plain Arrow table.

Everything follows from a seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow

from ags1.iceberg import create_table
from ags1.kms import MemoryKms
from tests.iceberg_tables.keys import MASTER_KEYS
from tests.iceberg_tables.random_filters import INTS, LONGS, POOLS, WORDS, PlainRows, python_value

_NUMBERS = ("int", "long", "float", "double")


class PlainTable:
    """A table with the rows of `PlainRows` in several files, and the same rows plain."""

    def __init__(self, directory: Path) -> None:
        made = PlainRows()
        rows = made.table()
        rows = rows.append_column("id", pyarrow.array(range(rows.num_rows), pyarrow.int64()))
        self.columns = made.columns
        self.table = create_table(None, str(directory), rows.schema, kms=MemoryKms(MASTER_KEYS), key_id="keyA")
        for start in range(0, rows.num_rows, 12):
            self.table.append(rows.slice(start, 12))

    def polars_differences(self, seed: int, count: int) -> list[str]:
        """Ask both for rows by random conditions of polars; return those with another answer."""
        import polars

        chance, found = random.Random(seed), []
        whole: Any = polars.from_arrow(self.table.scan().to_arrow())
        frames = self.table.scan().to_polars(), whole.lazy()
        for _ in range(count):
            condition = polars_predicate(chance, self.columns)
            ours, plain = (_answer(_ids, each.filter(condition)) for each in frames)
            if ours != plain:
                found.append(f"{condition}: {ours} instead of {plain}")
        return found

    def duckdb_differences(self, seed: int, count: int) -> list[str]:
        """Ask both for rows by random conditions of DuckDB; return those with another answer."""
        import duckdb

        chance, found = random.Random(seed), []
        with self.table.scan().to_duckdb("t") as scanned, duckdb.connect() as connected:
            connected.register("t", self.table.scan().to_arrow())
            for _ in range(count):
                query = f"SELECT id FROM t WHERE {duckdb_condition(chance, self.columns)} ORDER BY id"
                ours, plain = (_answer(_rows, each, query) for each in (scanned, connected))
                if ours != plain:
                    found.append(f"{query}: {ours} instead of {plain}")
        return found


def _ids(frame: Any) -> list[int]:
    return sorted(frame.select("id").collect()["id"].to_list())


def _rows(connection: Any, query: str) -> list[Any]:
    found: list[Any] = connection.execute(query).fetchall()
    return found


def _answer(ask: Callable[..., Any], *arguments: Any) -> Any:
    """Return the answer, or that there was none: the words of an error are the engine's."""
    try:
        return ask(*arguments)
    except Exception as error:
        if not type(error).__module__.startswith(("polars", "duckdb", "_duckdb")):
            raise
        return "refused"


def polars_predicate(chance: random.Random, columns: list[tuple[str, str]], depth: int = 2) -> Any:
    """A condition of polars: some that a scan can use, and some that only polars can evaluate."""
    import polars as pl

    if depth and chance.random() < 0.6:
        left = polars_predicate(chance, columns, depth - 1)
        if chance.random() < 0.2:
            return ~left
        right = polars_predicate(chance, columns, depth - 1)
        return chance.choice((left & right, left & right, left | right, left | right, left ^ right))
    name, kind = chance.choice(columns)
    column = pl.col(name)
    values = [_polars_value(chance, kind) for _ in range(chance.choice((0, 1, 3, 12)))]
    some = _polars_value(chance, kind)
    tests = [
        column.is_null,
        column.is_not_null,
        lambda: column.is_in(values),
        lambda: column.is_in([*values, None], nulls_equal=chance.random() < 0.5),
        lambda: column.is_in(pl.Series([some, None])),
        lambda: column.is_between(some, _polars_value(chance, kind), closed=chance.choice(("both", "none", "left"))),
        lambda: column.eq_missing(some),
        lambda: column.ne_missing(None),
        lambda: pl.lit(some) <= column,
        lambda: column.fill_null(some) == some,
        lambda: pl.when(column.is_null()).then(True).otherwise(column > some),
        lambda: column == chance.choice([pl.col(other) for other, sort in columns if sort == kind]),
        # What needs more rows than one.
        lambda: column.is_duplicated(),
        lambda: column.is_first_distinct(),
        lambda: column == column.max(),
        lambda: column.shift(1).is_null(),
        lambda: column.count().over(pl.col(chance.choice(columns)[0])) > 2,
        lambda: column.map_batches(lambda series: series.is_null(), return_dtype=pl.Boolean),
    ]
    tests += [lambda: column > some, lambda: column >= some, lambda: column < some, lambda: column != some] * 3
    if kind in _NUMBERS or "decimal" in kind:
        number = chance.choice((0, 1, 7, -10, 0.5, 0.1, 2**31 - 1))
        typed = pl.lit(chance.choice(INTS), chance.choice((pl.Int32, pl.Int64, pl.Float64, pl.Decimal(38, 2))))
        small = pl.lit(number if number != 2**31 - 1 else 5, chance.choice((pl.Float32, pl.Float64)))
        tests += [
            lambda: column.is_close(number, abs_tol=chance.choice((0.0, 0.5))),
            lambda: column.is_close(column),
            lambda: (column + 1) > number,
            lambda: column == typed,
            lambda: column != small,
            lambda: column.abs() <= number,
            lambda: column > pl.lit(chance.choice((2**63 - 1, 2**63, 2**53 + 1)), pl.UInt64),
            lambda: column.cast(pl.Float32) == number,
            lambda: column > number,
            lambda: column == float(number),
        ]
    if kind in ("float", "double"):
        tests += [column.is_nan, column.is_finite, column.is_not_nan, lambda: column == float("nan")]
    if kind == "boolean":
        tests += [lambda: column, lambda: ~column, lambda: column == 1, lambda: column.not_()]
    if kind == "string":
        tests += [
            lambda: column.str.starts_with(some[:1]),
            lambda: column.str.contains("a", literal=True),
            lambda: column.str.len_bytes() > 2,
            lambda: column.str.to_lowercase() == some,
            lambda: column.map_elements(lambda text: len(text) > 2, return_dtype=pl.Boolean),
        ]
    if kind in ("date", "timestamp", "timestamptz"):
        tests += [lambda: column.dt.year() > 1970, lambda: column.dt.month() == 1]
    return chance.choice(tests)()


def _polars_value(chance: random.Random, kind: str) -> Any:
    if kind in ("int", "long"):
        return chance.choice(LONGS if kind == "long" else INTS)
    return python_value(kind, chance.choice(POOLS[kind]))


def duckdb_condition(chance: random.Random, columns: list[tuple[str, str]], depth: int = 2) -> str:
    """A condition of DuckDB's SQL."""
    if depth and chance.random() < 0.6:
        left = duckdb_condition(chance, columns, depth - 1)
        if chance.random() < 0.2:
            return f"NOT ({left})"
        return f"({left}) {chance.choice(('AND', 'AND', 'OR'))} ({duckdb_condition(chance, columns, depth - 1)})"
    name, kind = chance.choice(columns)
    some, other = _duckdb_value(chance, kind), _duckdb_value(chance, kind)
    listed = ", ".join(_duckdb_value(chance, kind) for _ in range(chance.choice((1, 2, 5, 12))))
    peers = [each for each, sort in columns if sort == kind]
    tests = [
        f"{name} IS NULL",
        f"{name} IS NOT NULL",
        f"{name} {chance.choice(('', 'NOT '))}IN ({listed})",
        f"{name} IN ({some}, NULL)",
        f"{name} BETWEEN {some} AND {other}",
        f"{name} IS DISTINCT FROM {some}",
        f"{name} IS NOT DISTINCT FROM {some}",
        f"coalesce({name}, {some}) = {other}",
        f"{name} = {chance.choice(peers)}",
        f"{name} = (SELECT max({name}) FROM t)",
        f"CASE WHEN {name} IS NULL THEN true ELSE {name} > {some} END",
        *(f"{name} {operator} {some}" for operator in ("=", "<>", "<", "<=", ">", ">=") for _ in range(3)),
    ]
    if kind in _NUMBERS:
        tests += [f"{name} + 1 > 5", f"{name} > 0.5", f"{name} = 7", f"{name} >= 9007199254740993", f"abs({name}) < 11"]
    if kind == "boolean":
        tests += [name, f"NOT {name}"]
    if kind == "string":
        tests += [
            f"{name} LIKE 'a%'",
            f"{name} LIKE 'a_'",
            f"{name} ILIKE 'B'",
            f"starts_with({name}, 'a')",
            f"regexp_matches({name}, '^a')",
            f"length({name}) > 2",
        ]
    return chance.choice(tests)


def _duckdb_value(chance: random.Random, kind: str) -> str:
    value = chance.choice(WORDS[:-1] if kind == "string" else POOLS[kind])
    if kind == "string":
        return "'" + value.replace("'", "''") + "'"
    if kind in ("boolean", "int", "long"):
        return str(value)
    if kind == "binary":
        return "'" + "".join(f"\\x{value[place : place + 2]}" for place in range(0, len(value), 2)) + "'::BLOB"
    sort = {"timestamptz": "TIMESTAMPTZ", "float": "FLOAT"}.get(kind, kind.upper())
    return f"'{value}{'+00' if kind == 'timestamptz' else ''}'::{sort}"
