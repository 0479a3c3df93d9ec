"""The difference between two versions of a table's metadata, as updates of Iceberg's REST protocol.

Sources: Iceberg's rest-catalog-open-api.yaml; Iceberg Java's MetadataUpdateParser and UpdateRequirementParser.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ags1.errors import UnsupportedError
from ags1.iceberg.metadata.metadata_document import CHOSEN

Update: TypeAlias = dict[str, Any]

# Fields that the server derives from the updates.
_DERIVED = frozenset(
    (
        "last-sequence-number", "last-updated-ms", "last-column-id", "last-partition-id", "next-row-id",
        "current-snapshot-id", "snapshot-log", "metadata-log", "schema", "partition-spec",
    )
)  # fmt: skip
_EXPRESSED = frozenset(
    (
        "format-version", "location", "current-schema-id", "schemas", "default-spec-id", "partition-specs",
        "default-sort-order-id", "sort-orders", "properties", "encryption-keys", "refs", "snapshots", "statistics",
        "partition-statistics",
    )
)  # fmt: skip
# All other fields of a ref are the same in an update.
_MAIN = "main"


@dataclass(frozen=True)
class Updates:
    """Updates in a safe order.

    `first` has the base of the rest, without effect on readers: version, schemas, specs, entries of new key ids.
    `snapshots` are new snapshots, which no ref has yet. `last` has the changes that readers see: refs, properties,
    removals, and entries that replace others of the same id.
    """

    first: list[Update]
    snapshots: list[Update]
    last: list[Update]

    @property
    def all(self) -> list[Update]:
        return [*self.first, *self.snapshots, *self.last]


def updates_of(base: Mapping[str, Any], fields: Mapping[str, Any]) -> Updates:
    """Return the updates that change `base` into `fields`; an UnsupportedError if a change has no update."""
    for name in base.keys() | fields.keys():
        if name not in _DERIVED and name not in _EXPRESSED and base.get(name) != fields.get(name):
            raise UnsupportedError(f"REST catalogs have no update for a change of {name}")
    first: list[Update] = []
    if base.get("format-version") != fields.get("format-version"):
        first.append({"action": "upgrade-format-version", "format-version": fields["format-version"]})
    if base.get("location") != fields.get("location"):
        first.append({"action": "set-location", "location": fields["location"]})
    last = _structure(base, fields, first)
    _keys(base, fields, first, last)
    snapshots, removed = _changes(base, fields, "snapshots", "snapshot-id")
    last += _refs(base, fields)
    if removed:
        last.append({"action": "remove-snapshots", "snapshot-ids": removed})
    _statistics(base, fields, last)
    _properties(base, fields, last)
    return Updates(first, [{"action": "add-snapshot", "snapshot": each} for each in snapshots], last)


def requirements_of(base: Mapping[str, Any], fields: Mapping[str, Any]) -> list[Update]:
    """Return what the server must find unchanged since `base`."""
    found: list[Update] = [{"type": "assert-table-uuid", "uuid": base["table-uuid"]}]
    before, after = refs_of(base), refs_of(fields)
    for name in sorted(
        {_MAIN, *(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))}
    ):
        snapshot_id = before.get(name, {}).get("snapshot-id")
        found.append({"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": snapshot_id})
    for other, (_, name) in CHOSEN.items():
        if base.get(name) != fields.get(name) or base.get(other) != fields.get(other):
            found.append({"type": f"assert-{name}", name: base.get(name)})
    return found


def refs_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the refs by name; ``main`` also if only the current snapshot defines it."""
    refs = dict(fields.get("refs") or {})
    current = fields.get("current-snapshot-id")
    if _MAIN not in refs and current not in (None, -1):
        refs[_MAIN] = {"snapshot-id": current, "type": "branch"}
    return refs


def keyed(fields: Mapping[str, Any], name: str, key: str) -> dict[Any, dict[str, Any]]:
    """Return the entries of a list by one of their fields, without null fields."""
    return {
        each[key]: {field: value for field, value in each.items() if value not in (None, {})}
        for each in fields.get(name) or ()
    }


def _changes(base: Mapping[str, Any], fields: Mapping[str, Any], name: str, key: str) -> tuple[list[Any], list[Any]]:
    """Return new entries, and the keys of removed ones; none may have changed."""
    before, after = keyed(base, name, key), keyed(fields, name, key)
    different = [each for each in before.keys() & after.keys() if before[each] != after[each]]
    if different:
        raise UnsupportedError(f"REST catalogs have no update for a change inside {name}, of {key} {different[0]}")
    added = [each for each in fields.get(name) or () if each[key] not in before]
    return added, [each for each in before if each not in after]


def _structure(base: Mapping[str, Any], fields: Mapping[str, Any], first: list[Update]) -> list[Update]:
    last: list[Update] = []
    for name, what in (("schemas", "schema"), ("partition-specs", "spec"), ("sort-orders", "sort-order")):
        key, chosen = CHOSEN[name]
        added, removed = _changes(base, fields, name, key)
        if removed and name == "sort-orders":
            raise UnsupportedError("REST catalogs have no update that removes sort orders")
        further = {"last-column-id": fields.get("last-column-id")} if name == "schemas" else {}
        first += [{"action": f"add-{what}", what: each, **further} for each in added]
        if base.get(chosen) != fields.get(chosen):
            first.append({"action": f"set-{chosen.removesuffix('-id')}", f"{what}-id": fields[chosen]})
        if removed:
            last.append({"action": f"remove-{name}", f"{what}-ids": removed})
    return last


def _keys(base: Mapping[str, Any], fields: Mapping[str, Any], first: list[Update], last: list[Update]) -> None:
    before, after = keyed(base, "encryption-keys", "key-id"), keyed(fields, "encryption-keys", "key-id")
    for key_id, entry in after.items():
        if before.get(key_id) == entry:
            continue
        add = {"action": "add-encryption-key", "encryption-key": entry}
        if key_id in before:
            # The server would ignore an entry with a known id.
            last += [{"action": "remove-encryption-key", "key-id": key_id}, add]
        else:
            first.append(add)
    last += [{"action": "remove-encryption-key", "key-id": key_id} for key_id in before if key_id not in after]


def _refs(base: Mapping[str, Any], fields: Mapping[str, Any]) -> list[Update]:
    before, after = refs_of(base), refs_of(fields)
    found: list[Update] = [
        {"action": "set-snapshot-ref", "ref-name": name, **ref}
        for name, ref in after.items()
        if before.get(name) != ref
    ]
    return found + [{"action": "remove-snapshot-ref", "ref-name": name} for name in before if name not in after]


def _statistics(base: Mapping[str, Any], fields: Mapping[str, Any], last: list[Update]) -> None:
    for what in ("statistics", "partition-statistics"):
        before, after = keyed(base, what, "snapshot-id"), keyed(fields, what, "snapshot-id")
        for snapshot_id, entry in after.items():
            if before.get(snapshot_id) != entry:
                last.append({"action": f"set-{what}", "snapshot-id": snapshot_id, what: entry})
        gone = before.keys() - after.keys()
        last += [{"action": f"remove-{what}", "snapshot-id": snapshot_id} for snapshot_id in gone]


def _properties(base: Mapping[str, Any], fields: Mapping[str, Any], last: list[Update]) -> None:
    before, after = base.get("properties") or {}, fields.get("properties") or {}
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    removed = sorted(before.keys() - after.keys())
    if changed:
        last.append({"action": "set-properties", "updates": changed})
    if removed:
        last.append({"action": "remove-properties", "removals": removed})
