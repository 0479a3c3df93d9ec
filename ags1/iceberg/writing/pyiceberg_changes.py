"""Changes that PyIceberg's own table object makes: schema, partitioning, sort order, properties, branches and tags.

    table.table.update_schema() ... commit()
         requirements, updates --> applied to PyIceberg's model --> what differs, put into the metadata --> catalog

PyIceberg's model drops what it does not know, such as keys, and does not write format version 3: so the metadata stays
as it is but for what the updates change. They need no file, and no key. Source: Iceberg's rest-catalog-open-api.yaml,
"TableUpdate".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import RemoveSnapshotRefUpdate, update_table_metadata

from ags1.errors import ConflictError
from ags1.iceberg.catalogs import CatalogTable, TableState
from ags1.iceberg.metadata.locations import IO_IMPLEMENTATION
from ags1.iceberg.metadata.metadata_document import DATA_KEY_LENGTH, KEY_ID, number_property, refuse_reserved
from ags1.iceberg.metadata.pyiceberg_view import metadata_text, without_variants
from ags1.iceberg.writing.commit import COMMIT_RETRY
from ags1.iceberg.writing.metadata import MAIN, TableMetadata

# Actions of updates.
_ALLOWED = (
    "add-schema", "set-current-schema", "add-spec", "set-default-spec", "add-sort-order", "set-default-sort-order",
    "set-properties", "remove-properties", "set-snapshot-ref", "remove-snapshot-ref", "set-statistics",
    "remove-statistics",
)  # fmt: skip
# What does the same with the keys, by the action of the update.
_INSTEAD = {
    "add-snapshot": "append, delete, overwrite and upsert of the EncryptedTable",
    "remove-snapshots": "ags1.iceberg.expire_snapshots",
    "set-location": "ags1.iceberg.relocate_table",
    "upgrade-format-version": "ags1.iceberg.encrypt_table",
}
_LISTS = {"schemas": "schema-id", "partition-specs": "spec-id", "sort-orders": "order-id"}
_NUMBERS = (
    "current-schema-id", "last-column-id", "default-spec-id", "last-partition-id", "default-sort-order-id",
    "current-snapshot-id",
)  # fmt: skip


def commit_changes(table: CatalogTable, requirements: Iterable[Any], updates: tuple[Any, ...]) -> TableState:
    """Commit updates of PyIceberg's to the newest state of a table.

    Raises
    ------
    PermissionError
        One of the updates needs keys or files, and the message names the function for it; or it removes the branch main
        or makes a tag of it; or a schema with variants, which PyIceberg does not know.
    ValueError
        A property ``commit.retry.*`` is not a number.
    UnsupportedError
        A new column has a reserved name.
    ConflictError
        The table is not any more what the change was made from.
    """
    for each in updates:
        _refuse(table.name, each)
    state = table.load()
    schemas = state.document.fields.get("schemas")
    if without_variants(schemas) != schemas and any(each.action == "add-schema" for each in updates):
        raise PermissionError(
            f"{table.name}: has variants, which PyIceberg does not know and would take out of the schema: change it "
            "with Spark"
        )
    base = TableMetadataUtil.parse_raw(metadata_text(state.document))
    there = {each.name for each in base.schema().fields}
    for each in updates:
        if each.action == "add-schema":
            refuse_reserved([field.name for field in each.schema_.fields if field.name not in there], "choose another")
    try:
        for requirement in requirements:
            requirement.validate(base)
    except CommitFailedException as error:
        raise ConflictError(
            f"{table.name}: another writer has committed meanwhile ({error}). Nothing was committed: refresh the table "
            "and make the change again"
        ) from None
    return table.commit(state, _changed(state.document.fields, base, update_table_metadata(base, updates)))


def _refuse(name: str, update: Any) -> None:
    if update.action not in _ALLOWED:
        instead = _INSTEAD.get(update.action)
        raise PermissionError(
            f"{name}: PyIceberg cannot make this change ({update.action}) of an encrypted table"
            + (f": use {instead}" if instead else "")
        )
    is_removal = isinstance(update, RemoveSnapshotRefUpdate)
    if (is_removal or getattr(update, "type", None) == SnapshotRefType.TAG) and getattr(update, "ref_name", "") == MAIN:
        raise PermissionError(f"{name}: {MAIN} is the table itself: it stays, and is a branch")
    given: Mapping[str, str] = getattr(update, "updates", {})
    if ours := sorted(each for each in given if each.startswith("ags1.") or each == IO_IMPLEMENTATION):
        raise PermissionError(
            f"{name}: how a table is read is not for the table to say, so that one with the property {ours[0]} would "
            "not be opened: give it to the catalog, or to load_table"
        )
    for each in sorted(given):
        if each.startswith(COMMIT_RETRY):
            # PyIceberg could not commit again with it, not even another value.
            number_property(given, each, 0, least=0)
    named = given.keys() | set(getattr(update, "removals", ()))
    if not named.isdisjoint((KEY_ID, DATA_KEY_LENGTH)):
        raise PermissionError(
            f"{name}: its master key is changed by ags1.iceberg.encrypt_table, rekey_table and decrypt_table, and not "
            "by a property alone"
        )


def _changed(fields: Mapping[str, Any], base: Any, made: Any) -> dict[str, Any]:
    """Return the metadata with what is different between two of PyIceberg's models."""
    before, after = (each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in (base, made))
    metadata = TableMetadata(fields)
    found = metadata.fields
    for name, key in _LISTS.items():
        known = {each[key] for each in before[name]}
        found[name] = [*found.get(name, ()), *(each for each in after[name] if each[key] not in known)]
    for name in _NUMBERS:
        if before.get(name) != after.get(name):
            found[name] = after[name]
    for name, there in (("properties", metadata.properties), ("refs", metadata.refs)):
        old, new = before.get(name) or {}, after.get(name) or {}
        there.update({each: value for each, value in new.items() if old.get(each) != value})
        for each in old.keys() - new.keys():
            there.pop(each, None)
    old, new = ({each["snapshot-id"]: each for each in model.get("statistics") or ()} for model in (before, after))
    if old != new:
        kept = [
            each
            for each in found.get("statistics") or ()
            if new.get(each["snapshot-id"]) == old.get(each["snapshot-id"])
        ]
        found["statistics"] = [*kept, *(each for number, each in new.items() if old.get(number) != each)]
    log = (after.get("snapshot-log") or [])[len(before.get("snapshot-log") or ()) :]
    if log:
        found["snapshot-log"] = [*found.get("snapshot-log", ()), *log]
    return found
