"""Random changes and conversions of small tables, compared with a plain list of rows after each.

    python -m tests.iceberg.soak_table_changes --tables 1000 [--seed 0] [--seconds 600]

The list has what every branch and tag shows, with ``_row_id`` and ``_last_updated_sequence_number``. Files that nothing
names, and plaintext below an encrypted table that was expired, are faults too.
"""

from __future__ import annotations

import argparse
import datetime
import math
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow

from ags1 import iceberg
from ags1.iceberg.catalogs import catalog_table
from ags1.iceberg.maintenance import rewriting
from ags1.iceberg.metadata.locations import location_of
from ags1.iceberg.writing.commit import commit
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.kms import MemoryKms
from tests.iceberg.conversions import LINEAGE, PLAINTEXT, beginning_with
from tests.iceberg.keys import MASTER_KEYS

NOW = datetime.timedelta(0)
TEXTS = (None, "", "a", "b", "ä/ö", "50%", "a=b", "x y", "..", "null", "\U0001f512", "%2F")
FLOATS = (None, 0.0, -0.0, 1.5, -2.5, math.nan, math.inf)
DECIMALS = (None, Decimal("0.00"), Decimal("-1.25"), Decimal("9999999.99"))
TIMES = (None, *(datetime.datetime(year, 2, 28, 23, tzinfo=datetime.timezone.utc) for year in (1901, 1969, 1970, 2026)))
SCHEMA = pyarrow.schema(
    [
        ("id", pyarrow.int64()),
        ("x", pyarrow.float64()),
        ("s", pyarrow.string()),
        ("d", pyarrow.decimal128(9, 2)),
        ("t", pyarrow.timestamp("us", "UTC")),
    ]
)
PARTITIONS: tuple[list[str], ...] = (
    [], [], ["s"], ["x"], ["d"], ["bucket(3, id)"], ["truncate(2, s)"], ["day(t)"], ["s", "bucket(2, d)"],
)  # fmt: skip
ADDED = "extra"

Row = tuple[Any, ...]
Predicate = Callable[[dict[str, Any]], bool]


def form(value: Any) -> Any:
    """A value that is equal to itself; zeros of both signs differ."""
    return repr(value) if isinstance(value, float) else value


def same_key(value: Any) -> Any:
    """As :func:`form`, but one zero and one NaN."""
    return form(value + 0.0) if isinstance(value, float) else value


class Trial:
    """One table, and what it must show."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.chance = random.Random(seed)
        self.directory, self.kms = directory, MemoryKms(MASTER_KEYS)
        self.columns = list(SCHEMA.names)
        self.refs: dict[str, dict[int, tuple[Row, int]]] = {"main": {}}
        self.tags: set[str] = set()
        self.next_id = self.places = 0
        self.log: list[str] = []
        self.partition_by = self.chance.choice(PARTITIONS)
        properties = {"commit.manifest.min-count-to-merge": self.chance.choice(("2", "3", "100"))}
        if self.chance.random() < 0.3:
            properties["write.target-file-size-bytes"] = "2000"
        self.place = self.directory / "t 0"
        self.table = iceberg.create_table(
            None, str(self.place), SCHEMA, self.partition_by, kms=self.kms, key_id="keyA", properties=properties
        )

    # -- steps -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One random change, and a look at the table."""
        steps = (
            (self.append, 6), (self.delete, 5), (self.upsert, 5), (self.overwrite, 2), (self.overwrite_all, 1),
            (self.stale_append, 1), (self.compact, 4), (self.rewrite_manifests, 2), (self.maintain, 1),
            (self.branch, 2), (self.rekey, 1), (self.decrypt_and_encrypt, 1), (self.enable_late, 1), (self.expire, 2),
            (self.clean, 1), (self.relocate, 1), (self.new_spec, 1), (self.new_column, 1), (self.rename, 1),
        )  # fmt: skip
        chosen = self.chance.choices([each for each, _ in steps], [weight for _, weight in steps])[0]
        self.log.append(chosen.__name__)
        chosen()
        self.table.refresh()
        self.check()

    def append(self) -> None:
        ref = self.a_branch()
        rows = self.rows(self.chance.choice((0, 1, 3, 20)))
        report = self.table.append(self.arrow(rows), ref=ref)
        assert report.added_rows == len(rows)
        self.learn(ref, dict(self.refs[ref]), rows)

    def stale_append(self) -> None:
        """Somebody else has committed since the table was loaded."""
        other = iceberg.load_table(None, self.table.metadata_location, kms=self.kms)
        self.append()
        rows = self.rows(2)
        other.append(self.arrow(rows))
        self.table.refresh()
        self.learn("main", dict(self.refs["main"]), rows)

    def delete(self) -> None:
        ref = self.a_branch()
        text, passes = self.a_filter()
        gone = [number for number, (row, _) in self.refs[ref].items() if passes(self.named(row))]
        report = self.table.delete(text, ref=ref)
        self.log[-1] += f" {ref} {text}"
        assert report.deleted_rows == len(gone), (report, len(gone))
        self.learn(ref, {number: each for number, each in self.refs[ref].items() if number not in gone}, [])

    def overwrite(self) -> None:
        ref = self.a_branch()
        text, passes = self.a_filter()
        rows = self.rows(self.chance.choice((0, 4)))
        self.table.overwrite(self.arrow(rows), text, ref=ref)
        self.log[-1] += f" {ref} {text}"
        kept = {number: each for number, each in self.refs[ref].items() if not passes(self.named(each[0]))}
        self.learn(ref, kept, rows)

    def overwrite_all(self) -> None:
        ref = self.a_branch()
        rows = self.rows(self.chance.choice((0, 5)))
        self.table.overwrite(self.arrow(rows), ref=ref)
        self.learn(ref, {}, rows)

    def upsert(self) -> None:
        ref = self.a_branch()
        on = self.chance.choice((["id"], ["s"], ["x"], ["d", "s"], ["t", "x"]))
        places = [SCHEMA.names.index(name) for name in on]

        def key(row: Row) -> Any:
            return tuple(same_key(row[place]) for place in places)

        rows: dict[Any, Row] = {}
        for row in self.rows(self.chance.choice((1, 4))):
            if self.refs[ref] and self.chance.random() < 0.5:
                known = self.chance.choice(list(self.refs[ref].values()))[0]
                row = tuple(known[place] if place in places else value for place, value in enumerate(row))
            rows[key(row)] = row
        kept = dict(self.refs[ref])
        moved = []
        done = set()
        for number, (row, _) in self.refs[ref].items():
            if None not in key(row) and key(row) in rows:
                del kept[number]
                moved.append((number, rows[key(row)]))
                done.add(key(row))
        new = [row for each, row in rows.items() if each not in done]
        self.log[-1] += f" {ref} {on} {list(rows.values())}"
        self.table.upsert(self.arrow(list(rows.values())), self.current(on), ref=ref)
        self.learn(ref, kept, new, moved)

    def compact(self) -> None:
        """Fewer files, and the same rows."""
        ref = self.a_branch()
        sort_by = self.chance.choice((None, None, self.current(["s", "id"])))
        target, everything = self.chance.choice((3000, None)), self.chance.random() < 0.5
        where = self.chance.choice((None, self.a_filter()[0]))
        self.log[-1] += f" {ref} {sort_by} {target} {everything} {where}"
        # Row groups of any size are moved, or none.
        with mock.patch.object(rewriting, "_LEAST_MOVED", self.chance.choice((1, 1 << 30))):
            report = self.table.compact(
                ref=ref, sort_by=sort_by, target_bytes=target, rewrite_all=everything, where=where, min_input_files=2
            )
        assert not report.left

    def rewrite_manifests(self) -> None:
        self.table.rewrite_manifests(ref=self.a_branch())

    def maintain(self) -> None:
        self.table.maintain(iceberg.MaintenancePolicy(expire_older_than=NOW, clean_older_than=NOW))

    def branch(self) -> None:
        """A branch or a tag of what a branch has now; or one that is removed."""
        found = self.table.refs
        if not found:
            return
        if len(self.refs) > 2 and self.chance.random() < 0.5:
            gone = self.chance.choice([name for name in self.refs if name != "main"])
            self.edit(lambda metadata: metadata.refs.pop(gone))
            del self.refs[gone]
            self.tags.discard(gone)
            return
        source = self.chance.choice([name for name in self.refs if name in found])
        self.places += 1
        name = f"r{self.places}"
        kind = self.chance.choice(("branch", "tag"))
        self.edit(lambda metadata: metadata.refs.update({name: {"snapshot-id": found[source], "type": kind}}))
        self.refs[name] = dict(self.refs[source])
        if kind == "tag":
            self.tags.add(name)

    def rekey(self) -> None:
        iceberg.rekey_table(self.table, data_keys=True, expire=self.chance.random() < 0.5)

    def decrypt_and_encrypt(self) -> None:
        iceberg.decrypt_table(self.table)
        self.table = iceberg.load_table(None, str(self.place), kms=self.kms, allow_plaintext=True)
        self.check()
        iceberg.encrypt_table(self.table, key_id="keyA")
        self.table.refresh()

    def enable_late(self) -> None:
        """Changes in a table of which a part is plaintext."""
        iceberg.decrypt_table(self.table)
        self.table = iceberg.load_table(None, str(self.place), kms=self.kms, allow_plaintext=True)
        iceberg.encrypt_table(self.table, key_id="keyA", steps=("enable",))
        self.table.refresh()
        for each in self.chance.choices((self.append, self.delete, self.upsert, self.overwrite), k=2):
            self.log.append(f"late {each.__name__}")
            each()
            self.check()
        iceberg.encrypt_table(self.table, key_id="keyA")

    def expire(self) -> None:
        iceberg.encrypt_table(self.table, key_id="keyA")
        iceberg.expire_snapshots(self.table)
        left = beginning_with(self.place, PLAINTEXT)
        assert not left, f"plaintext after expiry: {left}"

    def clean(self) -> None:
        iceberg.clean(self.table, older_than=NOW)

    def relocate(self) -> None:
        """Go on with a copy, of which the source is emptied and cleaned."""
        source, old = self.table, self.place
        self.places += 1
        self.place = self.directory / f"t {self.places}"
        iceberg.relocate_table(source, str(self.place))
        self.table = iceberg.load_table(None, str(self.place), kms=self.kms)
        for name in self.table.refs:
            if name not in self.tags:
                source.refresh()
                source.overwrite(self.arrow([]), ref=name)
        iceberg.expire_snapshots(source)
        iceberg.clean(source, older_than=NOW)
        assert old != self.place

    def new_spec(self) -> None:
        """Another partition spec for what is written from now on."""

        def edit(metadata: TableMetadata) -> None:
            fields = metadata.fields
            number = max(each["spec-id"] for each in fields["partition-specs"]) + 1
            last = int(fields["last-partition-id"]) + 1
            (source,) = (each["id"] for each in self.schema(metadata)["fields"] if each["name"] == self.columns[column])
            field = {"source-id": source, "field-id": last, "name": f"p{last}", "transform": transform}
            fields["partition-specs"].append({"spec-id": number, "fields": [field]})
            fields |= {"default-spec-id": number, "last-partition-id": last}

        column, transform = self.chance.choice(((0, "bucket[2]"), (2, "identity"), (2, "truncate[1]"), (4, "year")))
        self.edit(edit)
        self.partition_by = []

    def new_column(self) -> None:
        """A further column, of which older rows have null."""
        if ADDED in self.columns:
            return

        def edit(schema: dict[str, Any], metadata: TableMetadata) -> None:
            metadata.fields["last-column-id"] += 1
            column = {"id": metadata.fields["last-column-id"], "name": ADDED, "required": False, "type": "string"}
            schema["fields"].append(column)

        self.edit_schema(edit)
        self.columns.append(ADDED)
        for name, rows in self.refs.items():
            self.refs[name] = {number: ((*row, None), sequence) for number, (row, sequence) in rows.items()}

    def rename(self) -> None:
        """Two columns swap their names."""

        def edit(schema: dict[str, Any], _: TableMetadata) -> None:
            for each in schema["fields"]:
                each["name"] = swapped.get(each["name"], each["name"])

        first, second = self.chance.sample(range(5), 2)
        swapped = {self.columns[first]: self.columns[second], self.columns[second]: self.columns[first]}
        self.edit_schema(edit)
        self.columns = [swapped.get(name, name) for name in self.columns]

    # -- what is there -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Every branch and tag shows what it must, with its row ids and sequence numbers."""
        if self.table.refs and "main" not in self.table.refs:
            raise AssertionError("main is gone")
        for ref, wanted in self.refs.items():
            found = self.shown(ref)
            assert len(found) == len({number for number, _, _ in found}), f"{ref}: a row id is there twice"
            assert Counter(each for each in found) == Counter(
                (number, tuple(map(form, row)), sequence) for number, (row, sequence) in wanted.items()
            ), f"{ref}: other rows"

    def shown(self, ref: str) -> list[tuple[int, Row, int]]:
        chosen = ref if ref in self.table.refs else None
        # A tag shows the columns that it had.
        names = self.table.scan(ref=ref).to_arrow().column_names if ref in self.tags else self.columns
        columns = self.table.scan(columns=[*names, *LINEAGE], ref=chosen).to_arrow().columns
        missing = (form(None),) * (len(self.columns) - len(names))
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return [(row[-2], (*map(form, row[:-2]), *missing), row[-1]) for row in rows]

    def learn(
        self,
        ref: str,
        kept: dict[int, tuple[Row, int]],
        new: Sequence[Row],
        moved: Sequence[tuple[int, Row]] = (),
    ) -> None:
        """Take over the row ids of new rows, which nobody can know before."""
        metadata = TableMetadata(self.table.document.fields)
        newest = metadata.fields["last-sequence-number"]
        expected = dict(kept) | {number: (row, newest) for number, row in moved}
        known = {number for rows in self.refs.values() for number in rows}
        waiting = Counter(tuple(map(form, row)) for row in new)
        rows = {tuple(map(form, row)): row for row in new}
        for number, row, sequence in self.shown(ref):
            if number in expected:
                continue
            assert number not in known, f"row id {number} was another row's"
            assert number < metadata.next_row_id, "a row id beyond next-row-id"
            assert sequence == newest, "a new row of an older sequence number"
            assert waiting[row], f"unexpected row {row}"
            waiting[row] -= 1
            expected[number] = (rows[row], sequence)
        assert not +waiting, f"missing rows: {+waiting}"
        self.refs[ref] = expected

    # -- what is made ------------------------------------------------------------------------------------------

    def a_branch(self) -> str:
        return self.chance.choice([name for name in self.refs if name not in self.tags])

    def rows(self, count: int) -> list[Row]:
        made = []
        for _ in range(count):
            self.next_id += 1
            chosen = tuple(self.chance.choice(each) for each in (FLOATS, TEXTS, DECIMALS, TIMES))
            made.append((self.next_id if self.chance.random() < 0.95 else None, *chosen))
        extra = len(self.columns) - len(SCHEMA)
        return [(*row, *(self.chance.choice(TEXTS) for _ in range(extra))) for row in made]

    def arrow(self, rows: Sequence[Row]) -> pyarrow.Table:
        kinds = [*SCHEMA.types, pyarrow.string()]
        columns = [pyarrow.array([row[place] for row in rows], kinds[place]) for place, _ in enumerate(self.columns)]
        return pyarrow.Table.from_arrays(columns, names=self.columns)

    def named(self, row: Row) -> dict[str, Any]:
        return dict(zip([*SCHEMA.names, ADDED], row, strict=False))

    def current(self, names: Sequence[str]) -> list[str]:
        """What columns are called now."""
        return [self.columns[SCHEMA.names.index(name)] for name in names]

    def a_filter(self) -> tuple[str, Predicate]:
        number = self.chance.randrange(0, self.next_id + 2)
        text = self.chance.choice(TEXTS[1:])
        id_, x, s = self.current(["id", "x", "s"])
        choices: tuple[tuple[str, Predicate], ...] = (
            (f"{id_} < {number}", lambda row: row["id"] is not None and row["id"] < number),
            (f"{id_} = {number}", lambda row: row["id"] == number),
            (f"{s} = '{text}'", lambda row: row["s"] == text),
            (f"{s} is null", lambda row: row["s"] is None),
            (f"{x} is nan", lambda row: row["x"] != row["x"]),
            (f"{x} is null or {id_} >= {number}", lambda row: row["x"] is None or (row["id"] or -1) >= number),
            (f"{s} = '{text}' and {id_} > {number}", lambda row: row["s"] == text and (row["id"] or -1) > number),
        )
        return self.chance.choice(choices)

    # -- what other engines do -----------------------------------------------------------------------------------

    def edit(self, change: Callable[[TableMetadata], Any]) -> None:
        def attempt(_state: Any, metadata: TableMetadata, _files: Any) -> bool:
            change(metadata)
            return True

        commit(catalog_table(None, self.table.metadata_location), location_of, attempt)
        self.table.refresh()

    def schema(self, metadata: TableMetadata) -> Any:
        (found,) = (
            each for each in metadata.fields["schemas"] if each["schema-id"] == metadata.fields["current-schema-id"]
        )
        return found

    def edit_schema(self, change: Callable[[dict[str, Any], TableMetadata], None]) -> None:
        def edit(metadata: TableMetadata) -> None:
            fields = metadata.fields
            number = max(each["schema-id"] for each in fields["schemas"]) + 1
            new = self.schema(metadata) | {"schema-id": number}
            new["fields"] = [dict(each) for each in new["fields"]]
            change(new, metadata)
            fields["schemas"].append(new)
            fields["current-schema-id"] = number

        self.edit(edit)


def trial(seed: int, steps: int = 25) -> None:
    """A table of its own, and so many changes of it."""
    with tempfile.TemporaryDirectory() as name:
        made = Trial(seed, Path(name))
        try:
            for _ in range(steps):
                made.step()
            report = made.table.verify()
            assert report.outcome == "authentic", report
        except BaseException:
            print(f"failed: seed {seed}, partitions {made.partition_by}: {'; '.join(made.log)}", flush=True)
            raise


def main(arguments: Sequence[str] | None = None) -> None:
    """Run as many as were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=25, help="changes of each table")
    parser.add_argument("--seed", type=int, default=0, help="of the first table; each further one has the next")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no table is begun after so long")
    options = parser.parse_args(arguments)
    end = time.monotonic() + options.seconds
    done = 0
    while done < options.tables and time.monotonic() < end:
        trial(options.seed + done, options.steps)
        done += 1
    print(f"{done} tables, {done * options.steps} changes: all right")


if __name__ == "__main__":
    main()
