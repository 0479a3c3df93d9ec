"""Random tables for Spark to make, and random filters for them, each as ags1 takes it and as Spark's SQL has it.

Everything follows from a seed. Values come from small pools of awkward ones, so that filters hit them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pyiceberg import expressions as pyiceberg
from pyiceberg.expressions.literals import literal

from ags1.iceberg._row_filter import parse_filter

_WORDS = (
    "",
    "a",
    "ab",
    "abc",
    "abd",
    "b",
    "B",
    "ab\u00fc",
    "\u65e5\u672c",
    "\U0001f511",
    "\uffee",
    "a" * 20,
    "a" * 19 + "b",
)
_FLOATS = ("NaN", "Infinity", "-Infinity", "-0.0", "0.0", "0.1", "0.5", "1.5", "-2.25", "16777216", "3.0E38")
_DATES = (
    "0001-01-01",
    "1582-10-10",
    "1969-01-01",
    "1969-12-31",
    "1970-01-01",
    "1970-01-02",
    "2020-02-29",
    "9999-12-31",
)
_CLOCKS = ("00:00:00.000000", "23:59:59.999999", "12:00:00.000001", "10:30:00.500000")
_INTS = (-(2**31), -100, -11, -10, -1, 0, 1, 2, 3, 5, 7, 10, 100, 16777217, 2**31 - 1)
_LONGS = (*_INTS, -(2**63), -(2**53) - 1, 2**53 + 1, 2**63 - 1)
_BYTES = ("", "00", "00ff", "7f80", "80", "ff", "ff" * 20)

POOLS: dict[str, tuple[Any, ...]] = {
    "boolean": (True, False),
    "int": _INTS,
    "long": _LONGS,
    "float": _FLOATS,
    "double": (*_FLOATS, "1.0E300", "0.10000000149011612"),
    "decimal(9, 2)": ("0.00", "-0.01", "0.10", "15.00", "15.25", "-15.00", "1234567.89", "-9999999.99"),
    "decimal(20, 2)": ("0.00", "-0.01", "0.10", "15.00", "15.25", "-15.00", "123456789012345678.90"),
    "decimal(38, 10)": (
        "0.0000000000",
        "15.0000000000",
        "0.1000000000",
        "-0.0000000001",
        "1234567890123456789.5000000000",
    ),
    "date": _DATES,
    "timestamptz": tuple(f"{day} {clock}" for day in _DATES[2:7] for clock in _CLOCKS),
    "timestamp": tuple(f"{day} {clock}" for day in _DATES[2:7] for clock in _CLOCKS),
    "string": _WORDS,
    "binary": _BYTES,
}
_SQL = {"long": "BIGINT", "timestamptz": "TIMESTAMP", "timestamp": "TIMESTAMP_NTZ"}
_WIDER = {"int": "long", "float": "double", "decimal(9, 2)": "decimal(20, 2)"}
_DAYS = ("days({})", "months({})", "years({})")
_TRANSFORMS: dict[str, tuple[str, ...]] = {
    "boolean": ("{}",),
    "int": ("{}", "bucket(4, {})", "truncate(10, {})"),
    "long": ("{}", "bucket(4, {})", "truncate(10, {})"),
    "float": ("{}",),
    "double": ("{}",),
    "decimal(9, 2)": ("{}", "bucket(4, {})", "truncate(50, {})"),
    "decimal(20, 2)": ("{}", "bucket(4, {})", "truncate(50, {})"),
    "decimal(38, 10)": ("{}", "bucket(4, {})"),
    "date": ("{}", *_DAYS),
    "timestamptz": ("hours({})", *_DAYS),
    "timestamp": ("hours({})", *_DAYS),
    "string": ("{}", "bucket(4, {})", "truncate(2, {})"),
    "binary": ("{}", "bucket(4, {})", "truncate(1, {})"),
}


@dataclass
class Column:
    """A column, or a field of a struct; `kind` is "struct", "list" or "map" where it is no single value."""

    name: str
    kind: str
    required: bool = False
    fields: list[Column] = field(default_factory=list)

    @property
    def sql_type(self) -> str:
        if self.kind == "struct":
            inside = ", ".join(f"{each.name}: {each.sql_type}{' NOT NULL' * each.required}" for each in self.fields)
            return f"STRUCT<{inside}>"
        return {"list": "ARRAY<INT>", "map": "MAP<STRING, INT>"}.get(self.kind, _SQL.get(self.kind, self.kind.upper()))

    def value(self, chance: random.Random) -> str:
        """A random value, as SQL of the column's type."""
        if not self.required and chance.random() < 0.22:
            return f"CAST(null AS {self.sql_type})"
        if self.kind == "struct":
            inside = ", ".join(f"'{each.name}', {each.value(chance)}" for each in self.fields)
            return f"named_struct({inside})"
        if self.kind == "list":
            return chance.choice(("array()", "array(1)", "array(CAST(null AS INT))"))
        if self.kind == "map":
            return chance.choice(("map()", "map('a', 1)", "map('b', CAST(null AS INT))"))
        return _sql(self.kind, chance.choice(POOLS[self.kind]))


def _sql(kind: str, value: Any) -> str:
    if kind == "binary":
        return f"X'{value}'"
    if kind == "timestamptz":
        return f"TIMESTAMP'{value}+00:00'"
    if kind in ("timestamp", "date"):
        return f"{_SQL.get(kind, kind)}'{value}'"
    if kind in ("string", "boolean"):
        return f"'{value}'" if kind == "string" else str(value).lower()
    return f"CAST('{value}' AS {_SQL.get(kind, kind)})"


@dataclass(frozen=True)
class Filter:
    """A filter: PyIceberg's expression, or text of its language, and Spark's SQL."""

    ours: Any
    sql: str


class RandomTable:
    """A table that grows by random steps.

    Attributes
    ----------
    request : dict
        What the peer is to do.
    """

    def __init__(self, name: str, seed: int) -> None:
        self._chance = chance = random.Random(seed)
        self._next = 0
        kinds = chance.sample(sorted(POOLS), 7)
        self.columns = [Column(f"c{index}", kind) for index, kind in enumerate(kinds)]
        inner = [
            Column(f"f{index}", kind, chance.random() < 0.4)
            for index, kind in enumerate(chance.sample(sorted(POOLS), 3))
        ]
        deep = Column(
            "deep", "struct", chance.random() < 0.3, [Column("x", chance.choice(sorted(POOLS)), chance.random() < 0.5)]
        )
        self.columns += [Column("st", "struct", False, [*inner, deep]), Column("li", "list"), Column("ma", "map")]
        parts = chance.sample(kinds, chance.choice((0, 1, 1, 2)))
        transforms = [chance.choice(_TRANSFORMS[kind]).format(f"c{kinds.index(kind)}") for kind in parts]
        columns = ["id BIGINT NOT NULL", *(f"{each.name} {each.sql_type}" for each in self.columns)]
        properties = {
            "write.parquet.row-group-size-bytes": "1",
            "write.parquet.row-group-check-min-record-count": "7",
            "write.parquet.row-group-check-max-record-count": "7",
        }
        self.request: dict[str, Any] = {
            "table": name,
            "create": {
                "columns": ", ".join(columns),
                "partitioned_by": ", ".join(transforms),
                "properties": properties,
            },
            "steps": [],
        }
        self._name = name
        self._insert()
        self._change()
        self._insert()
        changes: list[Callable[[], None]] = [self._delete, self._update, self._change, self._respecify]
        for step in chance.sample(changes, 3):
            step()
        self._insert()
        if chance.random() < 0.5:
            chance.choice((self._delete, self._update))()

    def _run(self, sql: str) -> None:
        self.request["steps"].append({"sql": sql})

    def _insert(self) -> None:
        chance = self._chance
        format_ = chance.choice(("parquet", "parquet", "avro"))
        self._run(f"ALTER TABLE {self._name} SET TBLPROPERTIES ('write.format.default' = '{format_}')")
        count = chance.choice((5, 25, 40))
        rows = []
        for number in range(self._next, self._next + count):
            values = ", ".join(each.value(chance) for each in self.columns)
            rows.append(f"({number}L, {values})")
        self._next += count
        names = ", ".join(["id", *(each.name for each in self.columns)])
        order = chance.choice([each.name for each in self.columns if each.kind in POOLS])
        self._run(
            f"INSERT INTO {self._name} ({names}) SELECT /*+ COALESCE(1) */ * "
            f"FROM VALUES {', '.join(rows)} AS t({names}) ORDER BY {order}"
        )

    def _change(self) -> None:
        """Several changes of the schema."""
        chance = self._chance
        for each in [*self.columns, *self._struct.fields]:
            path = each.name if each in self.columns else f"st.{each.name}"
            if each.kind in _WIDER and chance.random() < 0.5:
                each.kind = _WIDER[each.kind]
                self._run(f"ALTER TABLE {self._name} ALTER COLUMN {path} TYPE {each.sql_type}")
            elif each.kind in POOLS and chance.random() < 0.15:
                each.name += "_new"
                self._run(f"ALTER TABLE {self._name} RENAME COLUMN {path} TO {each.name}")
        if chance.random() < 0.3:
            self._run(f"ALTER TABLE {self._name} ALTER COLUMN st.{self._struct.fields[0].name} DROP NOT NULL")
            self._struct.fields[0].required = False
        for parent in (None, None, "st", chance.choice((None, "st"))):
            kind = chance.choice([each for each in sorted(POOLS) if each != "binary"])
            added = Column(f"n{len(self.request['steps'])}", kind, chance.random() < 0.3)
            into = self.columns if parent is None else self._struct.fields
            if chance.random() < 0.3:
                added.required = False
                path = added.name if parent is None else f"{parent}.{added.name}"
                self._run(f"ALTER TABLE {self._name} ADD COLUMN {path} {added.sql_type}")
            else:
                step = {"parent": parent, "name": added.name, "type": kind, "required": added.required}
                self.request["steps"].append({**step, "default": _default(kind, chance.choice(POOLS[kind]))})
            into.append(added)

    @property
    def _struct(self) -> Column:
        return next(each for each in self.columns if each.kind == "struct")

    def _delete(self) -> None:
        self._run(f"DELETE FROM {self._name} WHERE id % 7 = {self._chance.randrange(7)}")

    def _update(self) -> None:
        changed = self._chance.choice([each for each in self.columns if each.kind in POOLS])
        value = changed.value(self._chance)
        self._run(f"UPDATE {self._name} SET {changed.name} = {value} WHERE id % 5 = {self._chance.randrange(5)}")

    def _respecify(self) -> None:
        # Not those of the first specification, whose fields have the same names.
        free = [each for each in self.columns if each.kind in POOLS and each.name.startswith("n")]
        if free:
            chosen = self._chance.choice(free)
            transform = self._chance.choice(_TRANSFORMS[chosen.kind]).format(chosen.name)
            self._run(f"ALTER TABLE {self._name} ADD PARTITION FIELD {transform}")

    # -- filters -------------------------------------------------------------------------------------------------

    def filter(self, depth: int = 2) -> Filter:
        """A random filter."""
        chance = self._chance
        if depth and chance.random() < 0.55:
            left = self.filter(depth - 1)
            if chance.random() < 0.25:
                return Filter(pyiceberg.Not(_expression(left.ours)), f"NOT ({left.sql})")
            right = self.filter(depth - 1)
            word, combine = chance.choice((("AND", pyiceberg.And), ("OR", pyiceberg.Or)))
            sql = f"({left.sql}) {word} ({right.sql})"
            if isinstance(left.ours, str) and isinstance(right.ours, str):
                return Filter(f"({left.ours}) {word.lower()} ({right.ours})", sql)
            return Filter(combine(_expression(left.ours), _expression(right.ours)), sql)
        path, column = chance.choice(list(self._paths()))
        if column.kind not in POOLS or chance.random() < 0.15:
            word = chance.choice(("is null", "is not null"))
            return Filter(f"{path} {word}", f"{path} {word}")
        if column.kind in ("float", "double") and chance.random() < 0.15:
            negated = chance.random() < 0.5
            return Filter(f"{path} is {'not ' * negated}nan", f"{'NOT ' * negated}isnan({path})")
        if column.kind == "string" and chance.random() < 0.3:
            negated, prefix = chance.random() < 0.4, chance.choice(_WORDS)[: chance.choice((1, 2, 30))]
            word = "not like" if negated else "like"
            return Filter(f"{path} {word} '{prefix}%'", f"{'NOT ' * negated}startswith({path}, '{prefix}')")
        if chance.random() < 0.3:
            listed = [_literal(column.kind, chance) for _ in range(chance.choice((1, 2, 3, 5)))]
            negated = chance.random() < 0.5
            made = (pyiceberg.NotIn if negated else pyiceberg.In)(path, [each.value for each in listed])
            # Spark compares a list in one type, the widest of all; each literal has its own here.
            among = " OR ".join(f"{path} = {each.sql}" for each in listed)
            if len({type(each.value) for each in listed}) == 1 and chance.random() < 0.7:
                among = f"{path} IN ({', '.join(each.sql for each in listed)})"
            return Filter(made, f"NOT ({among})" if negated else among)
        compared = _literal(column.kind, chance)
        operator, made = chance.choice(_OPERATORS)
        sql = f"{path} {operator} {compared.sql}"
        if compared.text is not None and chance.random() < 0.6:
            return Filter(f"{path} {operator} {compared.text}", sql)
        return Filter(made(path, compared.value), sql)

    def _paths(self) -> Any:
        for each in self.columns:
            yield each.name, each
            if each.kind == "struct":
                for inner in each.fields:
                    yield f"{each.name}.{inner.name}", inner
                    for deepest in inner.fields:
                        yield f"{each.name}.{inner.name}.{deepest.name}", deepest


# Spark takes `null < 99999999999999999999.5` for true, if null is a whole number: it goes by the literal alone.
_WHOLE = ("int", "long")
_OPERATORS: tuple[tuple[str, Any], ...] = (
    ("=", pyiceberg.EqualTo),
    ("!=", pyiceberg.NotEqualTo),
    ("<", pyiceberg.LessThan),
    ("<=", pyiceberg.LessThanOrEqual),
    (">", pyiceberg.GreaterThan),
    (">=", pyiceberg.GreaterThanOrEqual),
)


@dataclass(frozen=True)
class _Literal:
    """A literal: PyIceberg's, in the text of a filter if it can be there, and in Spark's SQL."""

    value: Any
    text: str | None
    sql: str


def _literal(kind: str, chance: random.Random) -> _Literal:
    """A random literal that columns of a type can be compared with."""
    value = chance.choice(POOLS[kind])
    if kind == "boolean":
        return _Literal(literal(value), str(value).lower(), str(value).lower())
    if kind == "binary":
        return _Literal(literal(bytes.fromhex(value)), None, f"X'{value}'")
    if kind in ("date", "string"):
        return _Literal(literal(value), f"'{value}'", _sql(kind, value))
    if kind in ("timestamp", "timestamptz"):
        text = value.replace(" ", chance.choice("T ")) + "+00:00" * (kind == "timestamptz")
        return _Literal(literal(text), f"'{text}'", _sql(kind, value))
    sort = chance.choice(("whole", "decimal", "double"))
    if sort == "double":
        found = float(chance.choice(POOLS["double"] if chance.random() < 0.5 else POOLS[kind]))
        if found == found:
            return _Literal(literal(found), None, f"CAST('{found!r}' AS DOUBLE)")
        return _Literal(literal("NaN"), "'NaN'", "CAST('NaN' AS DOUBLE)") if "decimal" not in kind else _whole(5)
    if sort == "decimal":
        pool = ["0.0", "0.1", "0.10", "15.0", "15.25", "15.255", "-0.01", "-2.25"]
        if kind not in _WHOLE:
            pool.append("99999999999999999999.5")
        text = chance.choice(POOLS[kind]) if "decimal" in kind and chance.random() < 0.6 else chance.choice(pool)
        return _Literal(literal(Decimal(text)), text, text)
    return _whole(chance.choice((*_LONGS, 15) if kind in _WHOLE else (*_LONGS, 15, 10**20, -(10**20))))


def _whole(number: int) -> _Literal:
    if number == -(2**63):
        # Spark reads the sign apart from the digits.
        return _Literal(literal(number), str(number), "CAST('-9223372036854775808' AS BIGINT)")
    sql = f"{number}L" if -(2**63) < number < 2**63 and not -(2**31) < number < 2**31 else str(number)
    return _Literal(literal(number), str(number), sql)


def _expression(ours: Any) -> Any:
    return parse_filter(ours) if isinstance(ours, str) else ours


def _default(kind: str, value: Any) -> Any:
    """As Java's literals take it."""
    if kind in ("float", "double"):
        # The metadata's JSON has no other numbers.
        return float(value) if value not in ("NaN", "Infinity", "-Infinity") else 0.25
    if kind in ("timestamp", "timestamptz"):
        return value.replace(" ", "T") + "+00:00" * (kind == "timestamptz")
    return value
