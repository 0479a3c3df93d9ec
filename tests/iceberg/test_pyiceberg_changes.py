"""PyIceberg's own table object changes an encrypted table as it changes others; rows and keys it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import LongType, StringType

from ags1.errors import ConflictError
from ags1.iceberg import EncryptedTable, create_table, encrypt_table, load_table, open_table
from ags1.kms import MemoryKms

KMS = MemoryKms({"lake": bytes(16)})
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "s": ["x", "y", "z"]})


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    made = SqlCatalog("changes", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=(tmp_path / "lake").as_uri())
    made.create_namespace("t")
    return made


@pytest.fixture(params=["SQL", "none"])
def table(request: pytest.FixtureRequest, catalog: SqlCatalog, tmp_path: Path) -> EncryptedTable:
    """An encrypted table of two snapshots, in a catalog and in none."""
    if request.param == "SQL":
        made = create_table(catalog, "t.encrypted", ROWS.schema, kms=KMS, key_id="lake")
    else:
        made = create_table(None, str(tmp_path / "encrypted"), ROWS.schema, kms=KMS, key_id="lake")
    made.append(ROWS)
    made.append(ROWS)
    return made


@pytest.fixture
def plain(catalog: SqlCatalog) -> Any:
    """The same table, unencrypted, of PyIceberg."""
    made = catalog.create_table("t.plain", ROWS.schema)
    made.append(ROWS)
    made.append(ROWS)
    return made


def add_columns(table: Any) -> None:
    with table.update_schema() as update:
        update.add_column("n", LongType(), doc="a number")
        update.add_column("t", StringType())
        update.rename_column("s", "text")
        update.update_column("id", LongType())
        update.move_first("n")


def partition(table: Any) -> None:
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(16), "id_bucket")
        update.add_identity("s")
    with table.update_spec() as update:
        update.remove_field("id_bucket")


def sort(table: Any) -> None:
    with table.update_sort_order() as update:
        update.asc("id", IdentityTransform())


def set_properties(table: Any) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"owner": "me", "write.parquet.compression-codec": "zstd"})
    with table.transaction() as transaction:
        transaction.remove_properties("owner")


def retention(table: Any) -> None:
    first = table.metadata.snapshots[0].snapshot_id
    table.manage_snapshots().create_branch(first, "b", 10_000, 20_000, 3).create_tag(first, "t", 30_000).commit()
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id, "b").commit()


def roll_back(table: Any) -> None:
    first, last = (each.snapshot_id for each in table.metadata.snapshots)
    with table.manage_snapshots() as changes:
        changes.create_tag(last, "before").rollback_to_snapshot(first)
    table.manage_snapshots().set_current_snapshot(ref_name="before").commit()
    table.manage_snapshots().rollback_to_timestamp(table.metadata.snapshots[1].timestamp_ms).commit()


def several(table: Any) -> None:
    with table.transaction() as transaction:
        transaction.set_properties(team="lake")
        transaction.update_schema().add_column("note", StringType()).commit()
        transaction.update_spec().add_identity("id").commit()
        transaction.update_sort_order().desc("id", IdentityTransform()).commit()


def widen(table: Any) -> None:
    table.update_schema().union_by_name(pa.schema([*ROWS.schema, pa.field("more", pa.list_(pa.float64()))])).commit()
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("s").make_column_optional("id").move_after("more", "id")
    with table.update_spec() as update:
        update.add_field("id", IdentityTransform(), "b")
    table.update_spec().rename_field("b", "bucket").commit()


def branches(table: Any) -> None:
    first = table.metadata.snapshots[0].snapshot_id
    table.manage_snapshots().create_branch(first, "old").create_tag(first, "v1").commit()
    table.manage_snapshots().create_tag(table.metadata.current_snapshot_id, "v2").commit()
    table.manage_snapshots().remove_tag("v1").commit()


CHANGES: dict[str, Callable[[Any], None]] = {
    "schema": add_columns,
    "partitioning": partition,
    "sort order": sort,
    "properties": set_properties,
    "branches and tags": branches,
    "retention": retention,
    "rollback": roll_back,
    "several in one transaction": several,
    "columns from another schema": widen,
}


def shape(metadata: Any) -> dict[str, Any]:
    """What the changes are about, with snapshots by their numbers."""
    numbers = {each.snapshot_id: number for number, each in enumerate(metadata.snapshots)}
    found = metadata.model_dump(mode="json", by_alias=True, exclude_none=True)
    names = ("schemas", "current-schema-id", "last-column-id", "partition-specs", "default-spec-id")
    names += ("last-partition-id", "sort-orders", "default-sort-order-id")
    refs = {name: each | {"snapshot-id": numbers[each["snapshot-id"]]} for name, each in found["refs"].items()}
    properties = {name: value for name, value in found["properties"].items() if not name.startswith("encryption.")}
    log = [numbers[each["snapshot-id"]] for each in found["snapshot-log"]]
    current = numbers[metadata.current_snapshot_id]
    return {**{name: found[name] for name in names}, "refs": refs, "properties": properties, "log": [*log, current]}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_what_it_is_to_an_unencrypted_table(table: EncryptedTable, plain: Any, change: str) -> None:
    before, keys = shape(plain.metadata)["properties"], table.document.fields["encryption-keys"]
    with_properties = table.table.transaction()
    # Each of the two writers has defaults of its own.
    with_properties.remove_properties(*shape(table.table.metadata)["properties"].keys()).commit_transaction()
    with table.table.transaction() as transaction:
        transaction.set_properties(before)
    for each in (table.table, plain):
        CHANGES[change](each)
    assert shape(table.table.metadata) == shape(plain.metadata)
    assert table.document.fields["encryption-keys"] == keys
    newest = table.refresh()
    assert shape(newest.table.metadata) == shape(plain.metadata)
    rows = plain.scan().to_arrow()
    assert newest.scan().to_arrow().to_pylist() == rows.to_pylist()
    for each in (newest, plain):
        each.append(rows.slice(0, 2))
    assert newest.scan().to_arrow().num_rows == plain.scan().to_arrow().num_rows == rows.num_rows + 2
    assert newest.verify().ok


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "append": (lambda table: table.append(ROWS), "append of the EncryptedTable"),
    "overwrite": (lambda table: table.overwrite(ROWS), "overwrite of"),
    "overwrite of partitions": (lambda table: table.dynamic_partition_overwrite(ROWS), "overwrite_partitions of"),
    "delete": (lambda table: table.delete("id = 1"), "delete of"),
    "upsert": (lambda table: table.upsert(ROWS, join_cols=["id"]), "upsert of"),
    "files": (lambda table: table.add_files(["x.parquet"]), "append of"),
    "snapshot": (lambda table: table.transaction().update_snapshot().fast_append(), "append, overwrite"),
    "location": (lambda table: table.transaction().update_location("/x"), "relocate_table"),
    "polars": (lambda table: table.to_polars(), r"polars\.DataFrame\(scan\(\)\)"),
    "daft": (lambda table: table.to_daft(), r"scan\(\).to_arrow\(\)"),
    "bodo": (lambda table: table.to_bodo(), r"scan\(\).to_pandas\(\)"),
}


def test_what_pyiceberg_cannot_do_says_what_can(table: EncryptedTable) -> None:
    for call, instead in REFUSED.values():
        with pytest.raises(PermissionError, match=instead):
            call(table.table)
    assert len(table.refresh().snapshots()) == 2


def test_every_inspection_is_that_of_an_unencrypted_table(table: EncryptedTable, plain: Any) -> None:
    """What it shows of files, but for what is of the one table alone: paths, sizes, ids and times."""
    own = {"file_path", "path", "file", "length", "file_size_in_bytes", "total_size", "key_metadata", "manifest_list"}
    own |= {"snapshot_id", "parent_id", "parent_snapshot_id", "added_snapshot_id", "last_updated_snapshot_id"}
    own |= {"committed_at", "made_current_at", "last_updated_at", "timestamp", "latest_snapshot_id", "summary"}
    own |= {
        "reference_snapshot_id",
        "total_data_file_size_in_bytes",
        "column_sizes",
        "split_offsets",
        "column_size",
        "sort_order_id",
    }

    def known(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: known(each) for name, each in value.items() if name not in own}
        return [known(each) for each in value] if isinstance(value, list) else value

    for each in (table.table, plain):
        branches(each)
    old = {id(each): each.metadata.snapshots[0].snapshot_id for each in (table.table, plain)}
    for name in ("snapshots", "entries", "refs", "partitions", "manifests", "history", "files", "data_files"):
        found, expected = (getattr(each.inspect, name)() for each in (table.table, plain))
        assert found.schema.equals(expected.schema), name
        assert [known(row) for row in found.to_pylist()] == [known(row) for row in expected.to_pylist()], name
        assert found.num_rows or name == "delete_files"
    for name in ("all_manifests", "all_files", "all_data_files", "all_delete_files"):
        found, expected = (getattr(each.inspect, name)() for each in (table.table, plain))
        assert found.schema.equals(expected.schema), name
        assert found.num_rows == expected.num_rows, name
    for name in ("entries", "files", "partitions", "data_files", "delete_files"):
        found, expected = (getattr(each.inspect, name)(old[id(each)]) for each in (table.table, plain))
        assert [known(row) for row in found.to_pylist()] == [known(row) for row in expected.to_pylist()], name
    assert table.table.inspect.metadata_log_entries().num_rows >= 3


def test_statistics_are_named_and_not_any_more(table: EncryptedTable, plain: Any) -> None:
    for each in (table.table, plain):
        for number in (each.metadata.snapshots[0].snapshot_id, each.metadata.current_snapshot_id):
            file = StatisticsFile(
                snapshot_id=number,
                statistics_path=f"{each.location()}/metadata/{number}.puffin",
                file_size_in_bytes=4,
                file_footer_size_in_bytes=2,
                blob_metadata=[],
            )
            with each.update_statistics() as update:
                update.set_statistics(file)
        each.update_statistics().remove_statistics(each.metadata.snapshots[0].snapshot_id).commit()
        assert [found.snapshot_id for found in each.metadata.statistics] == [each.metadata.current_snapshot_id]
    assert table.refresh().audit().having("statistics-plaintext")


def test_a_view_that_is_refreshed_opens_what_others_have_added(table: EncryptedTable) -> None:
    """A snapshot of another writer has a key that the view did not know."""
    assert table.catalog_table is not None
    view, other = table.table, table.at(table.catalog_table.load())
    other.append(ROWS)
    assert view.refresh().scan().to_arrow().num_rows == 3 * ROWS.num_rows
    other.append(ROWS)
    with view.transaction() as transaction:
        transaction.set_properties(owner="me")
    assert view.scan().to_arrow().num_rows == 4 * ROWS.num_rows
    assert view.inspect.files().num_rows == 4


def test_a_table_of_a_catalog_has_its_name(table: EncryptedTable) -> None:
    assert table.catalog_table is not None
    if table.catalog_table.identifier is not None:
        assert table.table.name() == ("t", "encrypted")


def test_rows_and_keys_are_changed_by_others(table: EncryptedTable) -> None:
    for properties in ({"encryption.key-id": "mine"}, {"encryption.data-key-length": "32"}):
        with pytest.raises(PermissionError, match="rekey_table"):
            table.table.transaction().set_properties(properties).commit_transaction()
    for name in ("ags1.allow-plaintext", "py-io-impl"):
        with pytest.raises(PermissionError, match="load_table"):
            table.table.transaction().set_properties({name: "true"}).commit_transaction()
    with pytest.raises(ValueError, match=r"commit.retry.num-retries is 'x'"):
        table.table.transaction().set_properties({"commit.retry.num-retries": "x"}).commit_transaction()
    with pytest.raises(PermissionError, match="rekey_table"):
        table.table.transaction().remove_properties("encryption.key-id").commit_transaction()
    old = table.table.metadata.snapshots[0].snapshot_id
    with pytest.raises(PermissionError, match="expire_snapshots"):
        table.table.maintenance.expire_snapshots().by_id(old).commit()
    assert len(table.refresh().snapshots()) == 2


def test_a_change_of_what_somebody_else_has_changed_is_refused(table: EncryptedTable) -> None:
    assert table.catalog_table is not None
    other = table.at(table.catalog_table.load())
    update = other.table.update_schema().add_column("late", LongType())
    add_columns(table.table)
    with pytest.raises(ConflictError, match="refresh"):
        update.commit()
    other.table.refresh()
    with other.table.update_schema() as again:
        again.add_column("late", LongType())
    assert [each.name for each in table.refresh().schema.fields] == ["n", "id", "text", "t", "late"]


def test_a_table_that_was_opened_by_its_metadata_file_cannot_be_changed(table: EncryptedTable) -> None:
    opened = open_table(table.metadata_location, KMS)
    for change in CHANGES.values():
        with pytest.raises(PermissionError, match="load_table"):
            change(opened.table)
    with pytest.raises(PermissionError, match="load_table"):
        opened.table.refresh()


def test_what_pyiceberg_has_changed_is_what_the_table_shows(table: EncryptedTable, catalog: SqlCatalog) -> None:
    branches(table.table)
    assert set(table.refs) == {"main", "old", "v2"}
    table.append(ROWS, ref="old")
    assert table.scan(ref="old").to_arrow().num_rows == 2 * ROWS.num_rows
    if table.catalog_table is not None and "t.encrypted" in table.catalog_table.name:
        assert set(load_table(catalog, "t.encrypted", kms=KMS).refs) == {"main", "old", "v2"}


def test_a_partition_field_that_comes_back_has_its_old_number(table: EncryptedTable) -> None:
    """Spark reads no table with two partition fields of one name."""
    view = table.table
    view.update_spec().add_identity("s").commit()
    spec = view.spec()
    view.update_spec().remove_field("s").commit()
    with view.transaction() as transaction:
        transaction.update_spec().add_identity("s").commit()
    assert view.spec() == spec
    assert len(view.specs()) == 2
    view.update_spec().remove_field("s").add_field("id", BucketTransform(4)).commit()
    view.update_spec().add_identity("s").commit()
    assert {each.field_id for each in view.spec().fields} == {1000, 1001}
    table.append(ROWS)
    assert table.scan().count() == 9


def test_main_stays_and_is_a_branch(table: EncryptedTable) -> None:
    snapshots = table.snapshots()
    for change in (
        table.table.manage_snapshots().remove_branch("main"),
        table.table.manage_snapshots().remove_tag("main"),
        table.table.manage_snapshots().create_tag(snapshots[0].snapshot_id, "main"),
    ):
        with pytest.raises(PermissionError, match="main is the table itself"):
            change.commit()
    assert table.refresh().refs == {"main": snapshots[-1].snapshot_id}
    assert table.scan().count() == 6


def test_a_table_that_pyiceberg_partitioned_by_bucket_and_truncate_is_encrypted(catalog: SqlCatalog) -> None:
    """PyIceberg writes such a table with the core that the extra brings; ags1 puts rows into the same partitions."""
    pytest.importorskip("pyiceberg_core")
    rows = pa.table({"id": range(100), "s": [f"{number % 7}-{number}" for number in range(100)]})
    plain = catalog.create_table("t.bucketed", rows.schema)
    with plain.update_spec() as update:
        update.add_field("id", BucketTransform(4))
        update.add_field("s", TruncateTransform(1))
    plain.append(rows)
    encrypt_table(load_table(catalog, "t.bucketed", kms=KMS, allow_plaintext=True), key_id="lake")
    table = load_table(catalog, "t.bucketed", kms=KMS)
    assert table.scan().to_arrow().cast(rows.schema).sort_by("id").equals(rows)
    own = create_table(catalog, "t.own", rows.schema, ["bucket(4, id)", "truncate(s, 1)"], kms=KMS, key_id="lake")
    own.append(rows)
    files = [each.files().filter(pc.field("kind") == "data")["record_count"].to_pylist() for each in (table, own)]
    assert sorted(files[0]) == sorted(files[1])
