"""Random tables for Spark to make, and random filters for them, each as ags1 takes it and in Spark's SQL.

Everything follows from a seed. Values come from small pools of awkward ones, so that filters hit them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyiceberg import expressions as pyiceberg
from pyiceberg.expressions.parser import parse

from tests.iceberg.random_values import POOLS, WORDS, python_value, sql_text, sql_type, sql_value

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
        return {"list": "ARRAY<INT>", "map": "MAP<STRING, INT>"}.get(self.kind, sql_type(self.kind))

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
        return sql_value(self.kind, chance.choice(POOLS[self.kind]))


@dataclass(frozen=True)
class Filter:
    """A filter: PyIceberg's expression, and the same rows in Spark's SQL."""

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
                return Filter(pyiceberg.Not(left.ours), f"NOT ({left.sql})")
            right = self.filter(depth - 1)
            word, combine = chance.choice((("AND", pyiceberg.And), ("OR", pyiceberg.Or)))
            return Filter(combine(left.ours, right.ours), f"({left.sql}) {word} ({right.sql})")
        path, column = chance.choice(list(self._paths()))
        return _predicate(chance, path, column.kind)

    def _paths(self) -> Any:
        for each in self.columns:
            yield each.name, each
            if each.kind == "struct":
                for inner in each.fields:
                    yield f"{each.name}.{inner.name}", inner
                    for deepest in inner.fields:
                        yield f"{each.name}.{inner.name}.{deepest.name}", deepest


_OPERATORS: tuple[tuple[str, Any], ...] = (
    ("=", pyiceberg.EqualTo),
    ("!=", pyiceberg.NotEqualTo),
    ("<", pyiceberg.LessThan),
    ("<=", pyiceberg.LessThanOrEqual),
    (">", pyiceberg.GreaterThan),
    (">=", pyiceberg.GreaterThanOrEqual),
)


def _predicate(chance: random.Random, path: str, kind: str) -> Filter:
    """A random predicate."""
    is_float = kind in ("float", "double")
    if kind not in POOLS or chance.random() < 0.15:
        word, null = chance.choice((("IS NULL", pyiceberg.IsNull), ("IS NOT NULL", pyiceberg.NotNull)))
        return Filter(null(path), f"{path} {word}")
    if is_float and chance.random() < 0.15:
        # Spark's isnan is false for null, and PyIceberg's is null.
        word, nan = chance.choice((("=", pyiceberg.IsNaN), ("!=", pyiceberg.NotNaN)))
        return Filter(nan(path), f"{path} {word} CAST('NaN' AS DOUBLE)")
    if kind == "string" and chance.random() < 0.3:
        prefix = chance.choice(WORDS)[: chance.choice((1, 2, 30))]
        word, starts = chance.choice((("", pyiceberg.StartsWith), ("NOT ", pyiceberg.NotStartsWith)))
        return Filter(starts(path, prefix), f"{word}startswith({path}, {sql_text(prefix)})")
    # PyIceberg has no literal of NaN, and no infinite one of 32 bits.
    pool = [each for each in POOLS[kind] if not (is_float and each in ("NaN", "Infinity", "-Infinity"))]
    if chance.random() < 0.3:
        listed = chance.sample(pool, min(len(pool), chance.choice((2, 3, 5))))
        # To PyIceberg, null is in no list.
        among = f"{path} IS NOT NULL AND ({' OR '.join(f'{path} = {sql_value(kind, each)}' for each in listed)})"
        word, made = chance.choice((("", pyiceberg.In), ("NOT ", pyiceberg.NotIn)))
        return Filter(made(path, [python_value(kind, each) for each in listed]), f"{word}({among})")
    value = chance.choice(pool)
    operator, made = chance.choice(_OPERATORS)
    found = made(path, python_value(kind, value))
    if kind in ("int", "long") or "decimal" in kind:
        found = parse(f"{path} {operator} {value}")
    # To Spark, NaN is more than any other number.
    more = is_float and operator in (">", ">=")
    return Filter(found, f"{path} {operator} {sql_value(kind, value)}" + f" AND NOT isnan({path})" * more)


def _default(kind: str, value: Any) -> Any:
    """As Java's literals take it."""
    if kind in ("float", "double"):
        # The metadata's JSON has no other numbers.
        return float(value) if value not in ("NaN", "Infinity", "-Infinity") else 0.25
    if kind in ("timestamp", "timestamptz"):
        return value.replace(" ", "T") + "+00:00" * (kind == "timestamptz")
    return value
