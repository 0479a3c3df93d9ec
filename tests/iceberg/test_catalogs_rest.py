"""Commits to a REST catalog over Java's CatalogHandlers, which writes the metadata; and to servers that lose keys."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.types import StringType

from ags1.errors import ConflictError, UnsupportedError
from ags1.iceberg import (
    create_table,
    decrypt_table,
    encrypt_table,
    expire_snapshots,
    load_table,
    rekey_table,
)
from ags1.iceberg.catalogs import CatalogTable, catalog_table
from ags1.iceberg.catalogs.rest import RestTable
from ags1.kms import MemoryKms
from tests.iceberg.catalog_cases import changed, check_conversions, create_in, fields_of, race, with_snapshot
from tests.iceberg.keys import MASTER_KEYS
from tests.iceberg.warehouse import HiveLake

_NUMBERS = itertools.count()


class RestCase:
    """A table without snapshots, in the server."""

    def __init__(self, lake: HiveLake) -> None:
        self._lake = lake
        self.name = f"t{next(_NUMBERS)}"
        self.location = (lake.directory.resolve() / "rest" / self.name).as_uri()

    def catalog(self, mode: str = "whole") -> RestCatalog:
        return RestCatalog("rest", uri=f"{self._lake.rest}/{mode}")

    def make(self, mode: str = "whole", **changes: Any) -> CatalogTable:
        return create_in(self.catalog(mode), f"db.{self.name}", fields_of(self.location) | changes)

    def open(self, mode: str = "whole") -> CatalogTable:
        return catalog_table(self.catalog(mode), f"db.{self.name}")


@pytest.fixture
def case(hive_lake: HiveLake) -> RestCase:
    return RestCase(hive_lake)


def refusing(catalog: RestCatalog, is_refused: Callable[[dict[str, Any]], bool], code: int = 409) -> RestCatalog:
    """The catalog, whose server answers `code` to the commits of which `is_refused` says so."""
    send = catalog._session.request

    def request(method: str, url: str, *, data: str | None = None, **options: Any) -> Any:
        if method == "POST" and data is not None and is_refused(json.loads(data)):
            reply = requests.Response()
            reply.status_code, reply._content = code, b'{"error": {"type": "Refused", "message": "not that"}}'
            return reply
        return send(method, url, data=data, **options)

    catalog._session.request = request
    return catalog


def moves_a_ref(body: dict[str, Any]) -> bool:
    return any(each["action"] == "set-snapshot-ref" for each in body.get("updates", ()))


def sets_key_id(body: dict[str, Any]) -> bool:
    return any(
        "encryption.key-id" in (*each.get("updates", ()), *each.get("removals", ())) for each in body.get("updates", ())
    )


def content(table: CatalogTable) -> dict[str, Any]:
    """What a refused commit must leave as it was."""
    fields = table.load().document.fields
    names = ("snapshots", "refs", "properties", "encryption-keys", "current-snapshot-id", "schemas")
    found = {name: fields.get(name) or None for name in names}
    # The server puts an entry that was changed, and changed back, at the end.
    return {**found, "encryption-keys": sorted(found["encryption-keys"] or (), key=lambda each: each["key-id"]) or None}


def test_an_encrypted_snapshot_arrives_with_its_keys(case: RestCase) -> None:
    table = case.make()
    state = table.load()
    fields = with_snapshot(state, case.location)
    after = table.commit(state, fields)
    found = case.open().load().document.fields
    assert after.metadata_location != state.metadata_location
    assert found["snapshots"] == fields["snapshots"]
    assert found["refs"]["main"]["snapshot-id"] == found["current-snapshot-id"] == 1_000_001
    assert [each["key-id"] for each in found["encryption-keys"]] == ["kek", "list-key"]
    second = with_snapshot(after, case.location, "second-key")
    second["properties"]["a"] = "1"
    done = table.commit(after, second).document.fields
    assert [each["key-id"] for each in done["snapshots"]] == ["list-key", "second-key"]
    assert done["properties"]["a"] == "1"
    assert done["snapshots"][1]["parent-snapshot-id"] == 1_000_001


def test_a_whole_encrypted_table_is_made_at_once(case: RestCase) -> None:
    other = RestCase(case._lake)
    state = other.make().load()
    fields = {**with_snapshot(state, case.location), "location": case.location}
    table = create_in(case.catalog(), f"db.{case.name}", {**fields, "table-uuid": fields_of("x")["table-uuid"]})
    found = table.load().document.fields
    assert found["snapshots"] == fields["snapshots"]
    assert found["refs"]["main"]["snapshot-id"] == 1_000_001
    with pytest.raises(FileExistsError, match="already"):
        case.make()


@pytest.mark.parametrize(("mode", "lost"), [("drops-key-id", "loses key-id"), ("drops-keys", "encryption-keys")])
def test_a_server_that_loses_keys_is_refused_and_the_table_is_as_it_was(case: RestCase, mode: str, lost: str) -> None:
    case.make()
    table = case.open(mode)
    state = table.load()
    before = content(table)
    with pytest.raises(UnsupportedError, match=lost):
        table.commit(state, with_snapshot(state, case.location))
    assert content(table) == before
    # With an honest server nothing is in the way afterwards.
    honest = case.open()
    state = honest.load()
    assert honest.commit(state, with_snapshot(state, case.location)).document.fields["current-snapshot-id"]


def test_a_new_table_on_a_server_that_loses_keys_is_taken_away(case: RestCase) -> None:
    state = RestCase(case._lake).make().load()
    fields = {**with_snapshot(state, case.location), "location": case.location}
    with pytest.raises(UnsupportedError, match="loses key-id"):
        create_in(case.catalog("drops-key-id"), f"db.{case.name}", fields)
    with pytest.raises(FileNotFoundError):
        case.open().load()


def test_of_many_committers_at_once_exactly_one_wins(case: RestCase) -> None:
    case.make()

    def change(state: Any, who: int) -> dict[str, Any]:
        fields = with_snapshot(state, case.location, f"key-{who}")
        fields["snapshots"][-1]["snapshot-id"] += who * 1000
        fields["refs"]["main"]["snapshot-id"] = fields["current-snapshot-id"] = fields["snapshots"][-1]["snapshot-id"]
        return fields

    refused, made = race([case.open() for _ in range(4)], change)
    assert (refused, len(made)) == (3, 1)
    found = case.open().load().document.fields
    assert len(found["snapshots"]) == 1
    assert found["current-snapshot-id"] == made[0].document.fields["current-snapshot-id"]
    assert found["snapshots"][0]["key-id"] in {each["key-id"] for each in found["encryption-keys"]}


def test_a_state_that_is_not_the_newest_is_refused(case: RestCase) -> None:
    case.make()
    mine, other = case.open(), case.open()
    state = mine.load()
    other.commit(state, changed(state, who="other"))
    before = content(mine)
    for fields in (changed(state, who="me"), with_snapshot(state, case.location)):
        with pytest.raises(ConflictError, match="another writer has committed"):
            mine.commit(state, fields)
    assert content(mine) == before


@pytest.mark.parametrize("mode", ["silent", "deaf"])
@pytest.mark.parametrize("encrypted", [True, False])
def test_a_connection_that_breaks_is_looked_after(case: RestCase, mode: str, encrypted: bool) -> None:
    case.make()
    table = case.open(mode)
    state = table.load()
    before = content(table)
    make: Callable[..., dict[str, Any]] = lambda: (  # noqa: E731
        with_snapshot(state, case.location) if encrypted else changed(state, a="1")
    )
    if mode == "silent":
        done = table.commit(state, make()).document.fields
        assert (done["current-snapshot-id"] == 1_000_001) if encrypted else (done["properties"]["a"] == "1")
    else:
        with pytest.raises(OSError, match="not known whether the commit is made"):
            table.commit(state, make())
        assert content(table) == before


def test_schema_partitioning_and_removals_arrive(case: RestCase) -> None:
    table = case.make()
    state = table.commit(table.load(), with_snapshot(table.load(), case.location))
    fields = changed(state, a="1", owner=None)
    schema = {**fields["schemas"][0], "schema-id": 1}
    schema["fields"] = [*schema["fields"], {"id": 3, "name": "more", "required": False, "type": "date"}]
    fields["schemas"] = [*fields["schemas"], schema]
    fields["current-schema-id"], fields["last-column-id"] = 1, 3
    spec = {"spec-id": 1, "fields": [{"name": "d", "transform": "day", "source-id": 3, "field-id": 1000}]}
    fields["partition-specs"] = [*fields["partition-specs"], spec]
    fields["default-spec-id"], fields["last-partition-id"] = 1, 1000
    fields["refs"] = {**fields["refs"], "tag": {"snapshot-id": 1_000_001, "type": "tag"}}
    state = table.commit(state, fields)
    found = state.document.fields
    assert (found["current-schema-id"], found["default-spec-id"]) == (1, 1)
    assert found["refs"]["tag"]["type"] == "tag"
    assert "owner" not in found["properties"]
    fields = changed(state)
    fields["snapshots"], fields["refs"], fields["encryption-keys"] = [], {}, []
    fields["current-snapshot-id"] = None
    found = table.commit(state, fields).document.fields
    assert not found["snapshots"]
    assert not found.get("encryption-keys")


def test_a_rewrapped_key_replaces_the_old_one(case: RestCase) -> None:
    table = case.make()
    state = table.commit(table.load(), with_snapshot(table.load(), case.location))
    fields = changed(state, **{"encryption.key-id": "keyB"})
    fields["encryption-keys"][0] = {**fields["encryption-keys"][0], "encrypted-by-id": "keyB"}
    found = table.commit(state, fields).document.fields
    assert {each["key-id"]: each["encrypted-by-id"] for each in found["encryption-keys"]} == {
        "kek": "keyB",
        "list-key": "kek",
    }


def test_a_server_that_loses_keys_is_found_out_before_a_key_is_replaced(case: RestCase) -> None:
    table = case.make()
    state = table.commit(table.load(), with_snapshot(table.load(), case.location))
    before = content(table)
    fields = changed(state)
    fields["encryption-keys"][0] = {**fields["encryption-keys"][0], "encrypted-by-id": "keyB"}
    losing = case.open("drops-keys")
    with pytest.raises(UnsupportedError, match="loses entries of encryption-keys"):
        losing.commit(losing.load(), fields)
    assert content(table) == before


def test_what_has_no_update_is_refused_before_anything_is_sent(case: RestCase) -> None:
    table = case.make()
    state = table.load()
    with pytest.raises(UnsupportedError, match="of-tomorrow"):
        table.commit(state, {**changed(state), "of-tomorrow": 1})
    assert table.load().metadata_location == state.metadata_location


def test_a_table_is_made_written_and_converted(case: RestCase, tmp_path: Path) -> None:
    check_conversions(case.catalog(), (f"db.{case.name}", f"db.{case.name}_copy"), tmp_path / "rows")


@pytest.mark.parametrize("mode", ["drops-key-id", "drops-keys"])
def test_a_table_is_not_encrypted_on_a_server_that_loses_keys(case: RestCase, mode: str, tmp_path: Path) -> None:
    name, kms = f"db.{case.name}", MemoryKms(MASTER_KEYS)
    rows = pa.table({"id": range(50)})
    made = create_table(case.catalog(), name, rows.schema, kms=kms, key_id="keyA", location=(tmp_path / "t").as_uri())
    made.append(rows)
    decrypt_table(made, expire=True)
    before = content(case.open())
    plain = load_table(case.catalog(mode), name, kms=kms)
    with pytest.raises(UnsupportedError):
        encrypt_table(plain, key_id="keyA")
    assert {each: value for each, value in content(case.open()).items() if each != "properties"} == {
        each: value for each, value in before.items() if each != "properties"
    }
    again = load_table(case.catalog(), name, kms=kms, allow_plaintext=True)
    assert sorted(again.scan().to_arrow()["id"].to_pylist()) == list(range(50))


def test_pyicebergs_object_changes_a_table_of_the_server(case: RestCase) -> None:
    """Schema, properties, branches, tags and rollback, which Java's server applies to its own metadata."""
    kms, rows = MemoryKms(MASTER_KEYS), pa.table({"id": pa.array([1, 2], pa.int64())})
    table = create_table(case.catalog(), f"db.{case.name}", rows.schema, kms=kms, key_id="keyA", location=case.location)
    for _ in range(2):
        table.append(rows)
    keys = table.document.fields["encryption-keys"]
    view = table.table
    assert view.name() == ("db", case.name)
    first, last = (each.snapshot_id for each in view.snapshots())
    with view.transaction() as transaction:
        transaction.set_properties(owner="me")
        transaction.update_schema().add_column("note", StringType()).commit()
    with view.manage_snapshots() as changes:
        changes.create_branch(first, "side", max_ref_age_ms=9_000, min_snapshots_to_keep=2).create_tag(last, "v2")
    view.manage_snapshots().rollback_to_snapshot(first).commit()
    found = load_table(case.catalog(), f"db.{case.name}", kms=kms)
    assert found.document.fields["encryption-keys"] == keys
    refs = found.document.fields["refs"]
    assert {name: each["snapshot-id"] for name, each in refs.items()} == {"main": first, "side": first, "v2": last}
    assert (refs["side"]["max-ref-age-ms"], refs["side"]["min-snapshots-to-keep"]) == (9_000, 2)
    assert found.scan().to_arrow().num_rows == 2
    assert found.scan(ref="v2").to_arrow().num_rows == 4
    found.append(pa.table({"id": pa.array([3], pa.int64()), "note": ["new"]}))
    found.table.manage_snapshots().remove_tag("v2").remove_branch("side").commit()
    assert set(found.refresh().refs) == {"main"}
    assert found.table.properties["owner"] == "me"
    assert found.scan().to_arrow().num_rows == 3
    assert found.verify(None).ok


@pytest.mark.parametrize("moment", ["before it is checked", "behind that"])
def test_no_row_is_lost_to_an_expiry_between_two_requests_of_a_commit(
    case: RestCase, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The threat: a snapshot has no ref yet, so its files are removed, and the next attempt names them again."""
    kms = MemoryKms(MASTER_KEYS)
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    table = create_table(case.catalog(), f"db.{case.name}", rows.schema, kms=kms, key_id="keyA", location=case.location)
    check = RestTable._lost

    def checked(self: RestTable, now: Any, *rest: Any) -> str:
        monkeypatch.undo()
        report = expire_snapshots(load_table(case.catalog(), f"db.{case.name}", kms=kms))
        assert report.files["data"] == 1
        return check(self, self.load() if moment == "before it is checked" else now, *rest)

    monkeypatch.setattr(RestTable, "_lost", checked)
    with pytest.raises(OSError, match=r"others have expired the new snapshot .* write it again"):
        table.append(rows)
    for count in (0, 3, 6):
        found = load_table(case.catalog(), f"db.{case.name}", kms=kms)
        assert found.scan().count() == count
        assert found.verify().ok
        found.append(rows)


def two_rows(case: RestCase, kms: MemoryKms) -> None:
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    table = create_table(case.catalog(), f"db.{case.name}", rows.schema, kms=kms, key_id="keyA", location=case.location)
    for _ in range(2):
        table.append(rows)


def test_a_refused_rekey_leaves_every_key_under_its_master_key(case: RestCase) -> None:
    kms, name = MemoryKms(MASTER_KEYS), f"db.{case.name}"
    two_rows(case, kms)
    honest = case.open()
    state = honest.load()
    state = honest.commit(state, changed(state, **{"commit.retry.num-retries": "0"}))
    before = content(honest)
    fields = with_snapshot(state, case.location, "third-key")
    fields["encryption-keys"][0] = {**fields["encryption-keys"][0], "encrypted-by-id": "keyB"}
    fields["properties"]["encryption.key-id"] = "keyB"
    refusing_ = refusing(case.catalog(), moves_a_ref)
    with pytest.raises(ConflictError, match="Nothing was committed"):
        catalog_table(refusing_, name).commit(state, fields)
    assert content(honest) == before
    with pytest.raises(ConflictError, match="Nothing was committed"):
        rekey_table(load_table(refusing_, name, kms=kms), key_id="keyB", data_keys=True)
    assert content(honest) == before
    assert rekey_table(load_table(case.catalog(), name, kms=kms), key_id="keyB", data_keys=True, expire=True).ok
    only_new = load_table(case.catalog(), name, kms=MemoryKms({"keyB": MASTER_KEYS["keyB"]}))
    assert only_new.scan().count() == 4
    assert only_new.verify().ok


def test_a_commit_to_a_server_that_keeps_keys_is_one_request(case: RestCase) -> None:
    two_rows(case, MemoryKms(MASTER_KEYS))
    sent: list[dict[str, Any]] = []

    def counted(body: dict[str, Any]) -> bool:
        sent.append(body)
        return False

    table = catalog_table(refusing(case.catalog(), counted), f"db.{case.name}")
    state = table.load()
    table.commit(state, with_snapshot(state, case.location, "third-key"))
    assert len(sent) == 1
    assert content(case.open())["snapshots"][-1]["key-id"] == "third-key"


def test_files_stay_when_a_server_has_lost_the_key_of_a_commit_that_it_made(case: RestCase) -> None:
    """The threat: the table names the files, and who removes them after the error loses its rows for good."""
    two_rows(case, MemoryKms(MASTER_KEYS))
    table = load_table(case.catalog("drops-key-id"), f"db.{case.name}", kms=MemoryKms(MASTER_KEYS))
    files = set((case._lake.directory / "rest" / case.name).rglob("*"))
    with pytest.raises(OSError, match=r"loses key-id of snapshots.* This commit is made nevertheless"):
        table.append(pa.table({"id": pa.array([3], pa.int64())}))
    now = set((case._lake.directory / "rest" / case.name).rglob("*"))
    assert files < now
    assert any(each.suffix == ".parquet" for each in now - files)


@pytest.mark.parametrize("last", ["snapshots", "refs"])
def test_what_a_killed_first_commit_has_added_harms_nobody_and_is_expired(case: RestCase, last: str) -> None:
    kms, name = MemoryKms(MASTER_KEYS), f"db.{case.name}"
    rows = pa.table({"id": pa.array([3], pa.int64())})
    made = create_table(case.catalog(), name, rows.schema, kms=kms, key_id="keyA", location=case.location)
    made.table.transaction().set_properties({"commit.retry.num-retries": "0"}).commit_transaction()
    action = {"snapshots": "add-snapshot", "refs": "set-snapshot-ref"}[last]
    is_dead = False

    def dies(body: dict[str, Any]) -> bool:
        nonlocal is_dead
        is_dead = is_dead or any(each["action"] == action for each in body.get("updates", ()))
        return is_dead

    killed = load_table(refusing(case.catalog(), dies), name, kms=kms)
    with pytest.raises(
        (ConflictError, OSError), match="could not be taken back" if last == "refs" else "other writers"
    ):
        killed.append(rows)
    left = content(case.open())
    assert left["encryption-keys"] is not None
    assert len(left["snapshots"] or ()) == (1 if last == "refs" else 0)
    table = load_table(case.catalog(), name, kms=kms)
    assert table.scan().count() == 0
    table.append(rows)
    assert table.scan().count() == 1
    report = expire_snapshots(table)
    assert report.key_entries >= 1
    assert report.files == ({"manifest list": 1, "manifest": 1, "data": 1} if last == "refs" else {})
    assert table.refresh().verify().ok
    assert len(content(case.open())["encryption-keys"]) == 2


@pytest.mark.parametrize("change", ["rekey", "encrypt"])
def test_a_catalog_that_pins_the_master_key_leaves_the_table_as_it_is_and_the_error_has_the_remedy(
    case: RestCase, change: str
) -> None:
    kms, name = MemoryKms(MASTER_KEYS), f"db.{case.name}"
    if change == "rekey":
        two_rows(case, kms)
    else:
        plain = case.catalog().create_table(
            name, pa.schema([("id", pa.int64())]), location=case.location, properties={"format-version": "2"}
        )
        plain.append(pa.table({"id": pa.array([1, 2], pa.int64())}))
    before = case.open().load().document.fields
    table = load_table(refusing(case.catalog(), sets_key_id, 400), name, kms=kms, allow_plaintext=True)
    wanted: dict[str, Any] = {"key_id": "keyB"} | ({"data_keys": True} if change == "rekey" else {})
    with pytest.raises(UnsupportedError, match=r"encryption\.key-id could not be changed .* relocate"):
        (rekey_table if change == "rekey" else encrypt_table)(table, **wanted)
    found = case.open().load().document.fields
    assert {each: found.get(each) or None for each in ("snapshots", "properties", "encryption-keys")} == {
        each: before.get(each) or None for each in ("snapshots", "properties", "encryption-keys")
    }


def test_a_catalog_that_keeps_the_old_master_key_and_says_nothing_is_named_by_the_error(case: RestCase) -> None:
    kms, name = MemoryKms(MASTER_KEYS), f"db.{case.name}"
    two_rows(case, kms)
    catalog = case.catalog()
    send = catalog._session.request

    def request(method: str, url: str, *, data: str | None = None, **options: Any) -> Any:
        if method == "POST" and data is not None:
            body = json.loads(data)
            body["updates"] = [each for each in body["updates"] if not sets_key_id({"updates": [each]})]
            data = json.dumps(body)
        return send(method, url, data=data, **options)

    catalog._session.request = request
    with pytest.raises(OSError, match=r"encryption\.key-id could not be changed .* This commit is made nevertheless"):
        rekey_table(load_table(catalog, name, kms=kms), key_id="keyB", data_keys=True)
    # No row is lost: every entry names the master key that wraps it.
    assert load_table(case.catalog(), name, kms=kms).scan().count() == 4
