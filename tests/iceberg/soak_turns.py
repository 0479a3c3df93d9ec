"""Random operations by Spark and ags1 in turns on one table: what both read after each is what it must be.

    python -m tests.iceberg.soak_turns --operations 300 [--seed 0] [--seconds 600]

A plain model has the rows of every snapshot. After each operation, both engines must show its rows in every branch and
tag, with the row ids and sequence numbers that the specification asks for: those of untouched rows stay, a row that was
changed keeps its row id and gets the sequence number of the change, and a new row has numbers that no row had.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow
from pyiceberg.table.sorting import NullOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, TruncateTransform
from pyiceberg.types import LongType, StringType

from ags1 import iceberg
from tests.iceberg.canonical import arrow_rows, sorted_rows
from tests.iceberg.conversions import PLAINTEXT, beginning_with
from tests.iceberg.test_writing_spark import EXPIRE, LINEAGE, UPSERT, Written
from tests.iceberg.warehouse import HiveLake, local_path

NOW = timedelta(0)
TEXTS = (None, "", "a", "b", "ä/ö", "a=b", "null")
NUMBERS = (None, 0.0, 1.5, -2.5, 1e9)
SPECS: tuple[tuple[str, Transform[Any, Any], str], ...] = (
    ("id", BucketTransform(2), "bucket(2, {})"),
    ("part", IdentityTransform(), "{}"),
    ("s", TruncateTransform(1), "truncate(1, {})"),
)
MOST_REFS = 4

Row = dict[str, Any]
"""Values by the first name of the column, which it keeps here when it is renamed."""


@dataclass
class Snapshot:
    """What a snapshot must show: rows by id, with their numbers; and the columns that it had, old names to new ones."""

    rows: dict[int, Row]
    numbers: dict[int, tuple[int, int]]
    columns: dict[str, str]


class Turns:
    """One table, and what it must show."""

    def __init__(self, lake: HiveLake, name: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.columns = {each: each for each in ("id", "part", "s", "x", "n")}
        self.is_wide = False
        partition_by = self.chance.choice(([], ["part"], ["bucket(2, id)"]))
        self.table = Written(lake, name, self.arrow([]).schema, partition_by).table
        self.lake, self.name = lake, name
        self.snapshots: dict[int, Snapshot] = {}
        self.refs: dict[str, int] = {}
        self.tags: set[str] = set()
        self.next_id = self.made = self.next_row_id = 0
        self.log: list[str] = []
        self.by_spark = False

    def step(self) -> None:
        """One random operation, and a look by both."""
        steps: tuple[tuple[Callable[[], None], int], ...] = (
            (self.append, 8), (self.delete, 6), (self.change, 6), (self.overwrite, 2), (self.compact, 5),
            (self.rewrite_manifests, 3), (self.new_column, 1), (self.drop_column, 1), (self.rename, 2),
            (self.widen, 1), (self.new_spec, 3), (self.new_order, 2), (self.branch, 4), (self.roll_back, 2),
            (self.expire, 2), (self.modes, 2), (self.maintain, 1), (self.rekey, 1), (self.rewrite_deletes, 1),
        )  # fmt: skip
        chosen = self.chance.choices([each for each, _ in steps], [weight for _, weight in steps])[0]
        self.by_spark = self.chance.random() < 0.5
        self.log.append(f"{'Spark' if self.by_spark else 'ags1'} {chosen.__name__}")
        self.table.refresh()
        chosen()
        self.table.refresh()
        self.check()

    # -- rows ------------------------------------------------------------------------------------------------------

    def append(self) -> None:
        ref, rows = self.a_branch(), self.new_rows(self.chance.choice((1, 3, 10)))
        if self.by_spark:
            self.sql(f"INSERT INTO {self.at(ref)} VALUES {', '.join(map(self.literal, rows))}")
        else:
            self.table.append(self.arrow(rows), ref=ref)
        self.learn(ref, self.shown(ref).rows | by_id(rows), new=set(by_id(rows)))

    def delete(self) -> None:
        ref = self.a_branch()
        text, passes = self.a_filter()
        before = self.shown(ref).rows
        kept = {number: row for number, row in before.items() if not passes(row)}
        if self.by_spark:
            self.sql(f"DELETE FROM {self.at(ref)} WHERE {text}")
        else:
            self.table.delete(text, ref=ref)
        self.learn(ref, kept, is_same=len(kept) == len(before))

    def change(self) -> None:
        """Update some rows, and add some; or only update, as a statement of Spark's."""
        ref, new = self.a_branch(), self.new_rows(self.chance.choice((0, 2)))
        before = self.shown(ref).rows
        if self.by_spark and not new:
            text, passes = self.a_filter()
            changed = {number: {**row, "s": "changed"} for number, row in before.items() if passes(row)}
            self.sql(f"UPDATE {self.at(ref)} SET {self.columns['s']} = 'changed' WHERE {text}")
            self.learn(ref, before | changed, touched=set(changed), is_same=not changed)
            return
        ids = self.chance.sample(sorted(before), min(len(before), 3))
        changed = by_id([{**each, "id": number} for each, number in zip(self.random_rows(len(ids)), ids, strict=True)])
        rows = [*changed.values(), *new]
        if not rows:
            return
        on = self.columns["id"]
        if self.by_spark:
            source = " UNION ALL ".join(f"SELECT {self.literal(each, named=True)}" for each in rows)
            self.sql(f"MERGE INTO {self.at(ref)} t USING ({source}) s ON t.{on} = s.{on}{UPSERT}")
        else:
            self.table.upsert(self.arrow(rows), [on], ref=ref)
        self.learn(ref, before | by_id(rows), touched=set(changed), new=set(by_id(new)))

    def overwrite(self) -> None:
        ref, rows = self.a_branch(), self.new_rows(3)
        if self.by_spark:
            # Of all partitions, as the mode is static for a condition that is always true.
            self.sql(f"DELETE FROM {self.at(ref)} WHERE true")
            self.learn(ref, {}, is_same=not self.shown(ref).rows)
            return
        text, passes = self.a_filter()
        self.table.overwrite(self.arrow(rows), text, ref=ref)
        kept = {number: row for number, row in self.shown(ref).rows.items() if not passes(row)}
        self.learn(ref, kept | by_id(rows), new=set(by_id(rows)))

    # -- files -----------------------------------------------------------------------------------------------------

    def compact(self) -> None:
        if self.by_spark:
            options = "options => map('rewrite-all', 'true')"
            self.sql(f"CALL lake.system.rewrite_data_files(table => '{self.at('main')}', {options})")
            self.moved("main")
            return
        ref = self.a_branch()
        sort_by = self.chance.choice((None, [f"{self.columns['s']} desc"]))
        self.table.compact(ref=ref, min_input_files=2, rewrite_all=self.chance.random() < 0.5, sort_by=sort_by)
        self.moved(ref)

    def rewrite_manifests(self) -> None:
        if self.by_spark:
            self.sql(f"CALL lake.system.rewrite_manifests(table => '{self.at('main')}')")
        else:
            self.table.rewrite_manifests()
        self.moved("main")

    def rewrite_deletes(self) -> None:
        options = "options => map('rewrite-all', 'true')"
        self.sql(f"CALL lake.system.rewrite_position_delete_files(table => '{self.at('main')}', {options})")
        self.moved("main")

    def maintain(self) -> None:
        policy = iceberg.MaintenancePolicy(expire_older_than=NOW, clean_older_than=NOW)
        self.table.maintain(policy)
        self.moved("main")
        self.forget_expired()

    def expire(self) -> None:
        if self.by_spark:
            self.sql(EXPIRE.format(self.name))
        else:
            iceberg.expire_snapshots(self.table)
        self.forget_expired()

    def rekey(self) -> None:
        iceberg.rekey_table(self.table, key_id=self.chance.choice(("keyA", "keyB")), data_keys=True)
        for ref in self.refs:
            # Its new snapshot has the schema of the old one.
            self.moved(ref, self.shown(ref).columns)

    # -- metadata --------------------------------------------------------------------------------------------------

    def new_column(self) -> None:
        self.made += 1
        name = f"c{self.made}"
        if self.by_spark:
            self.sql(f"ALTER TABLE {self.name} ADD COLUMN {name} STRING")
        else:
            self.table.table.update_schema().add_column(name, StringType()).commit()
        self.columns[name] = name

    def drop_column(self) -> None:
        found = [each for each in self.columns if each.startswith("c")]
        if not found:
            return
        gone = self.columns.pop(self.chance.choice(found))
        if self.by_spark:
            self.sql(f"ALTER TABLE {self.name} DROP COLUMN {gone}")
        else:
            self.table.table.update_schema().delete_column(gone).commit()

    def rename(self) -> None:
        self.made += 1
        first = self.chance.choice([each for each in self.columns if each != "id"])
        old, new = self.columns[first], f"{first[0]}_{self.made}"
        if self.by_spark:
            self.sql(f"ALTER TABLE {self.name} RENAME COLUMN {old} TO {new}")
        else:
            self.table.table.update_schema().rename_column(old, new).commit()
        self.columns[first] = new

    def widen(self) -> None:
        """An int becomes a long. It is in no partition: Spark alone cannot read then what it wrote to a branch."""
        if self.is_wide:
            return
        self.is_wide, name = True, self.columns["n"]
        if self.by_spark:
            self.sql(f"ALTER TABLE {self.name} ALTER COLUMN {name} TYPE BIGINT")
        else:
            self.table.table.update_schema().update_column(name, LongType()).commit()

    def new_spec(self) -> None:
        fields = self.table.table.spec().fields
        schema = self.table.schema
        first, transform, text = self.chance.choice(SPECS)
        name = self.columns[first]
        there = [each for each in fields if each.source_id == schema.find_field(name).field_id]
        if self.by_spark:
            change = f"DROP PARTITION FIELD {there[0].name}" if there else f"ADD PARTITION FIELD {text.format(name)}"
            self.sql(f"ALTER TABLE {self.name} {change}")
        elif there:
            self.table.table.update_spec().remove_field(there[0].name).commit()
        else:
            self.table.table.update_spec().add_field(name, transform).commit()

    def new_order(self) -> None:
        s, number = self.columns["s"], self.columns["id"]
        if self.by_spark:
            self.sql(
                f"ALTER TABLE {self.name} WRITE {self.chance.choice((f'ORDERED BY {s}, {number} DESC', 'UNORDERED'))}"
            )
        else:
            order = self.table.table.update_sort_order()
            order.desc(s, IdentityTransform(), NullOrder.NULLS_LAST).asc(number, IdentityTransform()).commit()

    def modes(self) -> None:
        """How Spark deletes and updates from now on."""
        mode = self.chance.choice(("merge-on-read", "copy-on-write"))
        names = [f"write.{each}.mode" for each in ("delete", "update", "merge")]
        if self.by_spark:
            pairs = ", ".join(f"'{name}' = '{mode}'" for name in names)
            self.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ({pairs})")
        else:
            self.table.table.transaction().set_properties(dict.fromkeys(names, mode)).commit_transaction()

    def branch(self) -> None:
        """A branch or a tag of what a branch has now; or one that is dropped."""
        if not self.refs:
            return
        if len(self.refs) >= MOST_REFS:
            gone = self.chance.choice([name for name in self.refs if name != "main"])
            kind = "tag" if gone in self.tags else "branch"
            if self.by_spark:
                self.sql(f"ALTER TABLE {self.name} DROP {kind} {gone}")
            else:
                getattr(self.table.table.manage_snapshots(), f"remove_{kind}")(gone).commit()
            del self.refs[gone]
            self.tags.discard(gone)
            return
        source = self.chance.choice(list(self.refs))
        self.made += 1
        name, kind = f"r{self.made}", self.chance.choice(("branch", "tag"))
        if self.by_spark:
            self.sql(f"ALTER TABLE {self.name} CREATE {kind} {name} AS OF VERSION {self.refs[source]}")
        else:
            getattr(self.table.table.manage_snapshots(), f"create_{kind}")(self.refs[source], name).commit()
        self.refs[name] = self.refs[source]
        if kind == "tag":
            self.tags.add(name)

    def roll_back(self) -> None:
        """An earlier snapshot of main becomes current."""
        known = {each.snapshot_id: each.parent_snapshot_id for each in self.table.snapshots()}
        found, now = [], known.get(self.refs.get("main", 0))
        while now in known:
            found.append(now)
            now = known[now]
        if not found:
            return
        wanted = self.chance.choice(found[:3])
        if self.by_spark:
            self.sql(f"CALL lake.system.rollback_to_snapshot('{self.at('main')}', {wanted})")
        else:
            self.table.table.manage_snapshots().rollback_to_snapshot(wanted).commit()
        self.refs["main"] = wanted

    # -- what must be there ----------------------------------------------------------------------------------------

    def shown(self, ref: str) -> Snapshot:
        found = self.refs.get(ref)
        return Snapshot({}, {}, {}) if found is None else self.snapshots[found]

    def learn(
        self,
        ref: str,
        rows: dict[int, Row],
        *,
        touched: set[int] = frozenset(),  # type: ignore[assignment]
        new: set[int] = frozenset(),  # type: ignore[assignment]
        is_same: bool = False,
    ) -> None:
        """Take over the numbers of new rows, which nobody can know before, from ags1; Spark is compared afterwards."""
        self.table.refresh()
        now, before = self.table.refs.get(ref), self.shown(ref)
        if now == self.refs.get(ref):
            assert is_same, "nothing was committed"
            return
        assert now is not None
        (snapshot,) = (each for each in self.table.snapshots() if each.snapshot_id == now)
        newest = snapshot.sequence_number
        columns = [self.columns["id"], *LINEAGE]
        found = self.table.scan(columns=columns, ref=ref).to_arrow().to_pydict()
        numbers = dict(zip(found[columns[0]], zip(found[LINEAGE[0]], found[LINEAGE[1]], strict=True), strict=True))
        assert numbers.keys() == rows.keys(), f"other rows: {sorted(numbers.keys() ^ rows.keys())}"
        used = [number for number, _ in (numbers[each] for each in new)]
        assert len(set(used)) == len(used), "a row id is there twice"
        for each, (row_id, sequence_number) in numbers.items():
            if each in new:
                assert row_id >= self.next_row_id, f"row {each} got the row id {row_id} of another"
                assert sequence_number == newest, f"new row {each} has an older sequence number"
                continue
            assert row_id == before.numbers[each][0], f"row {each} has another row id"
            wanted = newest if each in touched else before.numbers[each][1]
            assert sequence_number == wanted, f"row {each} has the sequence number {sequence_number}, not {wanted}"
        self.next_row_id = self.table.document.fields["next-row-id"]
        self.snapshots[now] = Snapshot(rows, numbers, dict(self.columns))
        self.refs[ref] = now

    def moved(self, ref: str, columns: dict[str, str] | None = None) -> None:
        """A branch may have a new snapshot, of the same rows with the same numbers."""
        now = self.table.refresh().refs.get(ref)
        if now is not None and now != self.refs[ref]:
            before = self.shown(ref)
            self.snapshots[now] = Snapshot(
                before.rows, before.numbers, dict(self.columns) if columns is None else columns
            )
            self.refs[ref] = now
        self.next_row_id = self.table.document.fields["next-row-id"]

    def forget_expired(self) -> None:
        there = {each.snapshot_id for each in self.table.refresh().snapshots()}
        assert there.issuperset(self.refs.values()), "a snapshot of a branch or tag was expired"
        self.snapshots = {number: each for number, each in self.snapshots.items() if number in there}

    def check(self) -> None:
        """Both show the model's rows, in each branch and tag."""
        assert self.table.refs == self.refs, "other branches and tags"
        for ref in self.refs:
            wanted = self.shown(ref)
            names = wanted.columns if ref in self.tags else self.columns
            columns = [*names.values(), *LINEAGE]
            found = self.table.scan(columns=columns, ref=ref).to_arrow()
            assert sorted_tuples(zip(*found.to_pydict().values(), strict=True)) == sorted_tuples(
                (*(row.get(each) for each in names), *wanted.numbers[number]) for number, row in wanted.rows.items()
            ), f"{ref}: other rows"
            theirs = self.lake.rows(self.name, ", ".join(columns), None if ref == "main" else ref)
            assert sorted_rows(arrow_rows(found)) == theirs, f"{ref}: Spark reads other rows"

    # -- what is made ----------------------------------------------------------------------------------------------

    def sql(self, statement: str) -> list[Any]:
        self.log[-1] += f": {statement}"
        return self.lake.sql(statement)

    def at(self, ref: str) -> str:
        """The name of a branch in Spark's SQL."""
        return f"tables.{self.name}" + ("" if ref == "main" else f".branch_{ref}")

    def a_branch(self) -> str:
        return self.chance.choice(["main", *(name for name in self.refs if name not in self.tags)])

    def random_rows(self, count: int) -> list[Row]:
        made = []
        for _ in range(count):
            row = {"part": self.chance.randrange(3), "s": self.chance.choice(TEXTS), "x": self.chance.choice(NUMBERS)}
            row["n"] = self.chance.choice((None, -1, 2**31 - 1, 2**40 if self.is_wide else 0))
            made.append({**row, **{each: self.chance.choice(TEXTS) for each in self.columns if each.startswith("c")}})
        return made

    def new_rows(self, count: int) -> list[Row]:
        made = [{"id": self.next_id + place, **row} for place, row in enumerate(self.random_rows(count))]
        self.next_id += count
        return made

    def kind(self, column: str) -> pyarrow.DataType:
        kinds = {"id": pyarrow.int64(), "part": pyarrow.int32(), "x": pyarrow.float64(), "n": pyarrow.int32()}
        if self.is_wide:
            kinds["n"] = pyarrow.int64()
        return kinds.get(column, pyarrow.string())

    def arrow(self, rows: list[Row]) -> pyarrow.Table:
        columns = [pyarrow.array([row[each] for row in rows], self.kind(each)) for each in self.columns]
        return pyarrow.Table.from_arrays(columns, names=list(self.columns.values()))

    def literal(self, row: Row, named: bool = False) -> str:
        """A row in SQL, in the order of the table's columns."""
        types = {"id": "BIGINT", "part": "INT", "x": "DOUBLE", "n": "BIGINT" if self.is_wide else "INT"}
        values = []
        for each, name in self.columns.items():
            value = row[each]
            text = "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
            values.append(f"CAST({text} AS {types.get(each, 'STRING')})" + (f" AS {name}" if named else ""))
        return ", ".join(values) if named else f"({', '.join(values)})"

    def a_filter(self) -> tuple[str, Callable[[Row], bool]]:
        number, part, text = (
            self.chance.randrange(self.next_id + 2),
            self.chance.randrange(3),
            self.chance.choice(TEXTS[1:]),
        )
        id_, part_, s, x = (self.columns[each] for each in ("id", "part", "s", "x"))
        choices: tuple[tuple[str, Callable[[Row], bool]], ...] = (
            (f"{id_} >= {number} AND {id_} < {number + 5}", lambda row: number <= row["id"] < number + 5),
            (f"{id_} = {number}", lambda row: row["id"] == number),
            (f"{part_} = {part} AND {id_} < {number}", lambda row: row["part"] == part and row["id"] < number),
            (f"{s} = '{text}'", lambda row: row["s"] == text),
            (f"{s} IS NULL", lambda row: row["s"] is None),
            (
                f"{x} > 1 OR {id_} = {number}",
                lambda row: (row["x"] is not None and row["x"] > 1) or row["id"] == number,
            ),
        )
        return self.chance.choice(choices)


def by_id(rows: list[Row]) -> dict[int, Row]:
    return {row["id"]: row for row in rows}


def sorted_tuples(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, rows), key=repr)


def trial(lake: HiveLake, seed: int, operations: int, seconds: float = math.inf) -> int:
    """So many operations on a table of its own, of which none begins after so long; return how many were done."""
    turns = Turns(lake, f"turns_{seed}", seed)
    done, end = 0, time.monotonic() + seconds
    try:
        while done < operations and time.monotonic() < end:
            turns.step()
            done += 1
        assert turns.table.verify().ok
        assert turns.table.audit().ok
        assert not beginning_with(local_path(turns.table.document.fields["location"]), PLAINTEXT)
    except BaseException:
        print(f"failed: seed {seed}, operation {done}: " + "\n".join(turns.log), flush=True)
        raise
    return done


def main() -> None:
    """Do as many as were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=math.inf, help="none is begun after so long")
    options = parser.parse_args()
    with HiveLake() as lake:
        done = trial(lake, options.seed, options.operations, options.seconds)
    print(f"{done} operations by Spark and ags1 in turns: all right")


if __name__ == "__main__":
    main()
