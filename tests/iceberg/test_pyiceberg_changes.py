"""PyIceberg's own table object changes an encrypted table as it changes others; rows and keys it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, StringType

from ags1.errors import ConflictError
from ags1.iceberg import EncryptedTable, create_table, load_table, open_table
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
}


def shape(metadata: Any) -> dict[str, Any]:
    """What the changes are about, with snapshots by their numbers."""
    numbers = {each.snapshot_id: number for number, each in enumerate(metadata.snapshots)}
    found = metadata.model_dump(mode="json", by_alias=True, exclude_none=True)
    names = ("schemas", "current-schema-id", "last-column-id", "partition-specs", "default-spec-id")
    names += ("last-partition-id", "sort-orders", "default-sort-order-id")
    refs = {name: (each.snapshot_ref_type, numbers[each.snapshot_id]) for name, each in metadata.refs.items()}
    properties = {name: value for name, value in found["properties"].items() if not name.startswith("encryption.")}
    return {**{name: found[name] for name in names}, "refs": refs, "properties": properties}


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
    assert newest.scan().to_arrow().num_rows == 2 * ROWS.num_rows
    newest.append(newest.scan(limit=2).to_arrow())
    assert newest.scan().to_arrow().num_rows == 2 * ROWS.num_rows + 2
    assert newest.verify().ok


def test_rows_and_keys_are_changed_by_others(table: EncryptedTable) -> None:
    with pytest.raises(PermissionError, match="PyIceberg cannot write to encrypted tables"):
        table.table.append(ROWS)
    for properties in ({"encryption.key-id": "mine"}, {"encryption.data-key-length": "32"}):
        with pytest.raises(PermissionError, match="rekey_table"):
            table.table.transaction().set_properties(properties).commit_transaction()
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
