"""A table's metadata for the tests of catalogs, and what every catalog has to keep."""

from __future__ import annotations

import copy
import datetime
import json
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from ags1 import iceberg
from ags1.errors import ConflictError
from ags1.iceberg.catalogs import CatalogTable, TableState, catalog_table
from ags1.kms import MemoryKms
from tests.iceberg.conversions import ENCRYPTED, PLAINTEXT, beginning_with
from tests.iceberg.keys import MASTER_KEYS

KEY = {
    "key-id": "kek",
    "encrypted-key-metadata": "AAAA",
    "encrypted-by-id": "keyA",
    "properties": {"KEY_TIMESTAMP": "1"},
}


def create_in(catalog: Any, identifier: Any, fields: dict[str, Any], **options: Any) -> CatalogTable:
    """Create a table with this metadata."""
    table = catalog_table(catalog, identifier, **options)
    table.create(fields)
    return table


def fields_of(location: str, **properties: str) -> dict[str, Any]:
    """Metadata of a new table of format version 3, in another order than Java's."""
    return {
        "table-uuid": str(uuid.uuid4()),
        "format-version": 3,
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": 1_700_000_000_000,
        "last-column-id": 2,
        "current-schema-id": 0,
        "schemas": [
            {
                "type": "struct",
                "schema-id": 0,
                "fields": [
                    {"id": 1, "name": "id", "required": True, "type": "long"},
                    {"id": 2, "name": "größe", "required": False, "type": "string", "doc": "so \u001f it is"},
                ],
            }
        ],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"owner": "ä", **properties},
        "current-snapshot-id": None,
        "next-row-id": 0,
        "refs": {},
        "snapshots": [],
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [],
        "metadata-log": [],
    }


def changed(state: TableState, **properties: str | None) -> dict[str, Any]:
    """The state's metadata with other properties; None takes one away."""
    fields = copy.deepcopy(dict(state.document.fields))
    fields["properties"] = {
        name: value for name, value in {**fields["properties"], **properties}.items() if value is not None
    }
    return fields


def with_snapshot(state: TableState, location: str, key_id: str | None = "list-key") -> dict[str, Any]:
    """The state's metadata with one more snapshot on its main branch, which is encrypted if it has a `key_id`."""
    fields = copy.deepcopy(dict(state.document.fields))
    parent = fields.get("current-snapshot-id")
    number = fields["last-sequence-number"] + 1
    snapshot = {
        "sequence-number": number,
        "snapshot-id": 1_000_000 + number,
        **({} if parent in (None, -1) else {"parent-snapshot-id": parent}),
        "timestamp-ms": max(fields["last-updated-ms"], 1_700_000_000_000) + number,
        "summary": {"operation": "append", "total-records": "0", "total-data-files": "0"},
        "manifest-list": f"{location}/metadata/snap-{number}.avro",
        "schema-id": fields["current-schema-id"],
        "first-row-id": fields["next-row-id"],
        "added-rows": 0,
    }
    if key_id is not None:
        snapshot["key-id"] = key_id
        entry = {"key-id": key_id, "encrypted-key-metadata": "AAAA", "encrypted-by-id": "kek"}
        kept = fields.get("encryption-keys") or [KEY]
        fields["encryption-keys"] = [*kept, entry]
    fields["snapshots"] = [*fields["snapshots"], snapshot]
    fields["last-sequence-number"] = number
    fields["current-snapshot-id"] = snapshot["snapshot-id"]
    fields["refs"] = {**fields["refs"], "main": {"snapshot-id": snapshot["snapshot-id"], "type": "branch"}}
    entry = {"timestamp-ms": snapshot["timestamp-ms"], "snapshot-id": snapshot["snapshot-id"]}
    fields["snapshot-log"] = [*fields["snapshot-log"], entry]
    return fields


def metadata_files(directory: Path) -> set[str]:
    """Names of the metadata files of a table in a directory."""
    return {path.name for path in (directory / "metadata").glob("*.metadata.json")}


def race(
    tables: list[CatalogTable], change: Callable[[TableState, int], dict[str, Any]]
) -> tuple[int, list[TableState]]:
    """Let all commit to the state that all have loaded; return how many were refused, and what the others made."""
    states = [table.load() for table in tables]
    assert len({each.metadata_location for each in states}) == 1
    start = threading.Barrier(len(tables))
    made: list[TableState] = []
    refused: list[ConflictError] = []
    failed: list[BaseException] = []

    def run(number: int) -> None:
        start.wait()
        try:
            made.append(tables[number].commit(states[number], change(states[number], number)))
        except ConflictError as error:
            refused.append(error)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(tables))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return len(refused), made


def check_log(state: TableState, *earlier: TableState) -> None:
    """The metadata log has these states at its end, the oldest first."""
    log = state.document.fields["metadata-log"]
    assert [Path(each["metadata-file"]).name for each in log][-len(earlier) :] == [
        Path(each.metadata_location).name for each in earlier
    ]
    for entry, each in zip(log[-len(earlier) :], earlier, strict=True):
        assert entry["timestamp-ms"] == each.document.fields["last-updated-ms"]


def text_of(state: TableState) -> dict[str, Any]:
    """The metadata as it is stored."""
    return json.loads(state.document.text)


def check_conversions(catalog: Any, names: tuple[Any, Any], place: Path) -> None:
    """Make a table in a catalog, write to it, and convert it in each way; its rows stay, and its copy has them.

    Parameters
    ----------
    names
        Of the table and of its copy.
    place
        The directory of the table.
    """
    kms = MemoryKms(MASTER_KEYS)
    rows = pa.table({"id": range(50), "text": [str(each) for each in range(50)]})
    table = iceberg.create_table(catalog, names[0], rows.schema, kms=kms, key_id="keyA", location=place.as_uri())
    table.append(rows)
    table.append(rows.slice(0, 10))
    table.delete("id >= 40")
    table.upsert(pa.table({"id": [39, 60], "text": ["new", "more"]}), on=["id"])
    expected = sorted(table.scan().to_arrow().to_pylist(), key=str)
    assert len(expected) == 51
    every = ("enable", "convert", "expire")
    conversions: tuple[tuple[Any, dict[str, Any]], ...] = (
        (iceberg.rekey_table, {"key_id": "keyB", "data_keys": True, "expire": True}),
        (iceberg.decrypt_table, {"expire": True}),
        (iceberg.encrypt_table, {"key_id": "keyA", "steps": every}),
        (iceberg.rekey_table, {"key_id": "keyB"}),
    )
    for convert, options in conversions:
        report = convert(table, **options)
        assert not report.remaining
        plain = report.change == "decrypt"
        table = iceberg.load_table(catalog, names[0], kms=kms, allow_plaintext=plain)
        assert sorted(table.scan().to_arrow().to_pylist(), key=str) == expected
        if plain:
            assert not beginning_with(place / "data", ENCRYPTED)
        else:
            assert not beginning_with(place / "data", PLAINTEXT)
            assert table.verify().ok
    iceberg.clean(table, older_than=datetime.timedelta(0))
    assert sorted(table.scan().to_arrow().to_pylist(), key=str) == expected
    iceberg.relocate_table(table, place.with_name("copy").as_uri(), catalog, names[1])
    copied = iceberg.load_table(catalog, names[1], kms=kms)
    assert sorted(copied.scan().to_arrow().to_pylist(), key=str) == expected
    assert copied.verify().ok


def check_rekeys(catalog: Any, namespace: str, directory: Path) -> None:
    """Tables are re-keyed and read, nothing is left to the old key, and one is compacted and branched."""
    old, new = {"old": bytes(16)}, {"new": bytes(range(16))}
    rows, names = pa.table({"id": pa.array([1, 2, 3], pa.int64())}), ("rekeyed_a", "rekeyed_b")
    for name in names:
        place = (directory / name).as_uri()
        made = iceberg.create_table(
            catalog, (namespace, name), rows.schema, kms=MemoryKms(old), key_id="old", location=place
        )
        for _ in range(2):
            made.append(rows)
    for name in names:
        table = iceberg.load_table(catalog, (namespace, name), kms=MemoryKms(old | new))
        report = iceberg.rekey_table(table, key_id="new", data_keys=True, expire=True)
        assert report.ok, str(report)
        assert report.old_keys is not None
        found = report.old_keys
        assert found.ok, str(found)
        if Path(table.metadata_location.removeprefix("file://")).exists():
            assert (found.is_proved, found.opened) == (True, ["old"])
        else:
            # This server keeps the metadata files in its memory: what the old key opens there, nobody can say.
            assert (found.is_proved, found.opened) == (False, [])
            assert "do NOT delete the old master keys yet" in str(found)
        only_new = iceberg.load_table(catalog, (namespace, name), kms=MemoryKms(new))
        assert only_new.verify().ok
        assert only_new.audit().ok
    table = iceberg.load_table(catalog, (namespace, names[0]), kms=MemoryKms(new))
    table.table.manage_snapshots().create_branch(table.refs["main"], "side").commit()
    table.append(rows, ref="side")
    assert table.compact(min_input_files=2).added_files == 1
    assert [table.scan(ref=ref).count() for ref in ("main", "side")] == [6, 9]
    assert table.compact(ref="side", min_input_files=2).added_files == 1
    maintained = table.maintain(
        iceberg.MaintenancePolicy(expire_older_than=datetime.timedelta(0), clean_older_than=datetime.timedelta(0))
    )
    assert maintained.expired is not None
    assert len(table.snapshots()) == 2
    assert [table.scan(ref=ref).count() for ref in ("main", "side")] == [6, 9]
    assert only_new.verify().ok
