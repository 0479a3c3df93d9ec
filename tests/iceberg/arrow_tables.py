"""Random Arrow tables with columns of every type that can be written, and random ways to partition and to sort them."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

import pyarrow

from tests.iceberg.random_tables import POOLS, RandomTable

_DECIMALS = {"decimal(9, 2)": (9, 2), "decimal(20, 2)": (20, 2), "decimal(38, 10)": (38, 10)}
_TYPES: dict[str, Any] = {
    "boolean": pyarrow.bool_(),
    "int": pyarrow.int32(),
    "long": pyarrow.int64(),
    "float": pyarrow.float32(),
    "double": pyarrow.float64(),
    "date": pyarrow.date32(),
    "timestamp": pyarrow.timestamp("us"),
    "timestamptz": pyarrow.timestamp("us", "UTC"),
    "string": pyarrow.string(),
    "binary": pyarrow.binary(),
    **{name: pyarrow.decimal128(*parts) for name, parts in _DECIMALS.items()},
}
_DAYS = ("day({})", "month({})", "year({})")
_TRANSFORMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("boolean", "float", "double"), ("{}",)),
    **dict.fromkeys(("int", "long"), ("{}", "bucket(4, {})", "truncate(10, {})")),
    **dict.fromkeys(("decimal(9, 2)", "decimal(20, 2)"), ("{}", "bucket(4, {})", "truncate(50, {})")),
    "decimal(38, 10)": ("{}", "bucket(4, {})"),
    "date": ("{}", *_DAYS),
    "timestamp": ("hour({})", *_DAYS),
    "timestamptz": ("hour({})", *_DAYS),
    "string": ("{}", "bucket(4, {})", "truncate(2, {})"),
    "binary": ("{}", "bucket(4, {})", "truncate(1, {})"),
}


def value(kind: str, chance: random.Random) -> Any:
    """A value of one type, or None."""
    if chance.random() < 0.15:
        return None
    found = chance.choice(POOLS[kind])
    if kind in ("float", "double"):
        return float(found)
    if kind in _DECIMALS:
        return Decimal(found)
    if kind == "date":
        return datetime.date.fromisoformat(found)
    if kind.startswith("timestamp"):
        zone = datetime.timezone.utc if kind == "timestamptz" else None
        return datetime.datetime.fromisoformat(found).replace(tzinfo=zone)
    return bytes.fromhex(found) if kind == "binary" else found


def nested(chance: random.Random) -> Any:
    """A struct of text, a list and a map."""
    return None if chance.random() < 0.2 else {
        "a": value("string", chance),
        "l": chance.choice((None, [], [1, None])),
        "m": chance.choice((None, [], [("k", 1.5), ("n", None)])),
    }  # fmt: skip


NESTED = pyarrow.struct(
    [
        ("a", pyarrow.string()),
        ("l", pyarrow.list_(pyarrow.int64())),
        ("m", pyarrow.map_(pyarrow.string(), pyarrow.float64())),
    ]
)


class RandomRows:
    """Rows of one random schema.

    Attributes
    ----------
    schema : pyarrow.Schema
        ``id`` is required, and no two rows have the same.
    partition_by, sort_by : list of str
    """

    def __init__(self, seed: int) -> None:
        self._chance = chance = random.Random(seed)
        self._next = 0
        self.kinds = {f"c{place}": kind for place, kind in enumerate(chance.sample(sorted(_TYPES), 8))}
        fields = [pyarrow.field("id", pyarrow.int64(), nullable=False)]
        fields += [pyarrow.field(name, _TYPES[kind]) for name, kind in self.kinds.items()]
        self.schema = pyarrow.schema([*fields, pyarrow.field("deep", NESTED)])
        self.partition_by = [
            chance.choice(_TRANSFORMS[self.kinds[name]]).format(name)
            for name in chance.sample(sorted(self.kinds), chance.choice((0, 1, 1, 2)))
        ]
        self.sort_by = [
            f"{name} {chance.choice(('asc', 'desc'))} nulls {chance.choice(('first', 'last'))}"
            for name in chance.sample(sorted(self.kinds), chance.choice((0, 0, 1, 2)))
        ]

    def rows(self, count: int) -> pyarrow.Table:
        """Further rows."""
        chance = self._chance
        ids = range(self._next, self._next + count)
        self._next += count
        columns = [pyarrow.array(ids, pyarrow.int64())]
        for name, kind in self.kinds.items():
            values = [value(kind, chance) for _ in ids]
            if name in self.partition_by and kind in ("float", "double"):
                # Java takes the zeros of both signs for different partitions, and then filters by them.
                values = [None if each is None else each + 0.0 for each in values]
            columns.append(pyarrow.array(values, _TYPES[kind]))
        columns.append(pyarrow.array([nested(chance) for _ in ids], NESTED))
        return pyarrow.Table.from_arrays(columns, schema=self.schema)

    def filters(self, seed: int) -> RandomTable:
        """What makes random filters of the columns that are no partition as they are.

        Of those, Java takes null for unequal to anything, which Spark does not.
        """
        made = RandomTable("t", seed)
        names = {kind: name for name, kind in self.kinds.items() if name not in self.partition_by}
        made.columns = [each for each in made.columns if each.kind in names]
        for each in made.columns:
            each.name = names[each.kind]
        return made


def further_types(count: int) -> pyarrow.Table:
    """Columns of the types that Spark's SQL has no word for."""
    chance = random.Random(count)
    return pyarrow.table(
        {
            "u": pyarrow.array([chance.randbytes(16) for _ in range(count)], pyarrow.uuid()),
            "f": pyarrow.array([chance.randbytes(3) for _ in range(count)], pyarrow.binary(3)),
            "t": pyarrow.array([chance.randrange(86_400_000_000) for _ in range(count)], pyarrow.time64("us")),
            "n": pyarrow.array([chance.randrange(-(2**60), 2**60) for _ in range(count)], pyarrow.timestamp("ns")),
        }
    )
