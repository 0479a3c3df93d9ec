"""A table's metadata, edited as JSON: unknown fields are kept.

    {"format-version": 3, ..., "next-row-id": n, "encryption-keys": [...], "refs": {...}, "snapshots": [...], ...}

PyIceberg's models would drop keys and fields that they do not know. Source: Iceberg table spec, "Table Metadata
Fields", "Snapshots", "Row Lineage", and "Version 3" of "Format Changes".
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from ags1.core.gcm import random_bytes
from ags1.errors import FormatError, UnsupportedError
from ags1.iceberg.metadata.metadata_document import DATA_KEY_LENGTH, KEY_ID, current_of, data_directory, refuse_reserved

MAIN = "main"
_ENCRYPTED_VERSION = 3
_VERSIONS = (2, 3)
_DATA_KEY_LENGTHS = (16, 24, 32)
_STATISTICS = ("statistics", "partition-statistics")
_GC = "gc.enabled"
_STAGED, _PUBLISHED = "wap.id", "published-wap-id"


def _copied(value: Any) -> Any:
    """Copy parsed JSON. copy.deepcopy() would remember each value, which takes four times as long."""
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


class TableMetadata:
    """The metadata of a table, and the changes that one commit makes to it. Not safe to share between threads.

    The parsed `fields` are copied. An UnsupportedError refuses a format version that cannot be written here.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields: dict[str, Any] = _copied(dict(fields))
        version = self.fields.get("format-version")
        if version == 1:
            raise UnsupportedError(
                "the table has format version 1, whose rows have no sequence numbers: upgrade it to 2 or 3 with its "
                "engine first (Spark: ALTER TABLE t SET TBLPROPERTIES ('format-version'='2'))"
            )
        if version not in _VERSIONS:
            raise UnsupportedError(f"the table has format version {version}; versions 2 and 3 can be written here")
        if version == _ENCRYPTED_VERSION and type(self.fields.get("next-row-id")) is not int:
            raise FormatError(
                "the table has format version 3 and no next-row-id, so new rows could get the row ids of others: have "
                "its engine write its metadata again"
            )

    # -- what it says ------------------------------------------------------------------------------------------

    def with_plaintext(self, numbers: Collection[int]) -> list[int]:
        """Return those of some snapshots that may have plaintext files: without a key, or made from one without."""
        parents = {each["snapshot-id"]: each.get("parent-snapshot-id") for each in self.snapshots}
        bare = {each["snapshot-id"] for each in self.snapshots if not each.get("key-id")}

        def may(number: int | None) -> bool:
            # Metadata may be forged, with a snapshot that is its own ancestor.
            for _ in parents:
                if number in bare:
                    return True
                number = parents.get(number) if number is not None else None
            return False

        return [each for each in numbers if may(each)] if bare else []

    @property
    def location(self) -> str:
        """The table's directory, without a slash at its end."""
        found = self.fields.get("location")
        if not isinstance(found, str) or not found:
            raise FormatError("the table metadata has no location")
        return found.rstrip("/")

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties, which may be changed."""
        found: dict[str, str] = self.fields.setdefault("properties", {})
        return found

    @property
    def key_id(self) -> str | None:
        """The master key, or None for a table that is not encrypted."""
        return self.properties.get(KEY_ID) or None

    @property
    def data_key_length(self) -> int:
        """Bytes of the keys of its files: 16, 24 or 32; a FormatError if the table's property says something else."""
        text = self.properties.get(DATA_KEY_LENGTH, "16")
        if text not in map(str, _DATA_KEY_LENGTHS):
            raise FormatError(f"the table property {DATA_KEY_LENGTH} is {text!r}; it must be 16, 24 or 32")
        return int(text)

    @property
    def refs(self) -> dict[str, dict[str, Any]]:
        """Branches and tags by name. Metadata without them has the branch main, if there is a snapshot."""
        found: dict[str, dict[str, Any]] = self.fields.setdefault("refs", {})
        current = self.current_snapshot_id
        if MAIN not in found and current is not None:
            found[MAIN] = {"snapshot-id": current, "type": "branch"}
        return found

    @property
    def snapshots(self) -> list[dict[str, Any]]:
        """The snapshots, which may be changed."""
        found: list[dict[str, Any]] = self.fields.setdefault("snapshots", [])
        return found

    @property
    def removes_files(self) -> bool:
        """Whether the table alone needs its files, so that those that it no longer names may be removed."""
        return self.properties.get(_GC, "true").lower() != "false"

    @property
    def has_data_below(self) -> bool:
        """Whether new data files are below the table's directory, where `clean` lists all files."""
        return data_directory(self.fields).startswith(f"{self.location}/")

    @property
    def statistics(self) -> list[str]:
        """Paths of the statistics files."""
        return [each["statistics-path"] for name in _STATISTICS for each in self.fields.get(name) or ()]

    @property
    def staged(self) -> dict[int, str]:
        """Snapshots that were staged to be published later, and were not yet: the ``wap.id`` of each by its id.

        Spark's ``publish_changes`` finds such a snapshot by that field of its summary.
        """
        summaries = {each["snapshot-id"]: each.get("summary") or {} for each in self.snapshots}
        published = {each.get(_PUBLISHED) for each in summaries.values()}
        parents = {each["snapshot-id"]: each.get("parent-snapshot-id") for each in self.snapshots}
        history = set[int]()
        for ref in self.refs.values():
            number = ref["snapshot-id"]
            while number in parents and number not in history:
                history.add(number)
                number = parents[number]
        return {
            number: summary[_STAGED]
            for number, summary in summaries.items()
            if _STAGED in summary and summary[_STAGED] not in published and number not in history
        }

    @property
    def current_snapshot_id(self) -> int | None:
        """Id of the current snapshot; None for a table without one."""
        found = self.fields.get("current-snapshot-id")
        return None if found in (None, -1) else found

    @property
    def next_row_id(self) -> int:
        """Number of the first row that the next snapshot adds."""
        return int(self.fields.get("next-row-id") or 0)

    def snapshot(self, snapshot_id: int) -> dict[str, Any]:
        """A snapshot by its id; a ValueError if there is none."""
        for each in self.snapshots:
            if each["snapshot-id"] == snapshot_id:
                return each
        raise ValueError(f"the table has no snapshot {snapshot_id}")

    def snapshot_of(self, ref: str) -> dict[str, Any] | None:
        """The newest snapshot of a branch or tag; None for a branch that does not exist yet."""
        found = self.refs.get(ref)
        return None if found is None else self.snapshot(found["snapshot-id"])

    # -- what a commit changes ---------------------------------------------------------------------------------

    def check_upgrade(self) -> None:
        """Raise an UnsupportedError that names a column with a name that version 3 takes for its own."""
        if self.fields["format-version"] < _ENCRYPTED_VERSION:
            names = (each["name"] for each in current_of(self.fields, "schemas").get("fields", ()))
            refuse_reserved(names, "rename the column before the table is upgraded to format version 3")

    def upgrade(self) -> None:
        """Make it format version 3. Rows get their numbers from the next snapshot on."""
        self.fields["format-version"] = _ENCRYPTED_VERSION
        self.fields.setdefault("next-row-id", 0)

    def set_encryption(self, key_id: str | None, data_key_length: int | None = None) -> None:
        """Name the master key and the length of data keys in bytes, or remove both."""
        if key_id is None:
            self.properties.pop(KEY_ID, None)
            self.properties.pop(DATA_KEY_LENGTH, None)
            return
        self.upgrade()
        self.properties[KEY_ID] = key_id
        if data_key_length is None:
            return
        if data_key_length not in _DATA_KEY_LENGTHS:
            raise ValueError(f"data_key_length must be 16, 24 or 32 bytes, got {data_key_length}")
        self.properties[DATA_KEY_LENGTH] = str(data_key_length)

    def drop_statistics(self) -> list[str]:
        """Remove all statistics files, which are never encrypted; return their paths."""
        found = self.statistics
        for name in _STATISTICS:
            if self.fields.get(name):
                self.fields[name] = []
        return found

    def new_snapshot_id(self) -> int:
        """A random id that no snapshot has."""
        taken = {each["snapshot-id"] for each in self.snapshots}
        while True:
            found = int.from_bytes(random_bytes(8), "big") >> 1
            if found and found not in taken:
                return found

    def now_ms(self) -> int:
        """Milliseconds since 1970, and not before what the metadata has: its logs must not run backwards."""
        last = int(self.fields.get("last-updated-ms") or 0)
        return max([int(time.time() * 1000), last, *(int(each.get("timestamp-ms") or 0) for each in self.snapshots)])

    def add_snapshot(self, snapshot: dict[str, Any], ref: str) -> None:
        """Add a snapshot, and make it the newest of a branch.

        Row numbers and sequence numbers move on by what the snapshot says.
        """
        number = snapshot["sequence-number"]
        self.fields["last-sequence-number"] = max(number, self.fields.get("last-sequence-number", 0))
        if "added-rows" in snapshot:
            self.fields["next-row-id"] = max(self.next_row_id, snapshot["first-row-id"] + snapshot["added-rows"])
        self.snapshots.append(snapshot)
        self.set_ref(ref, snapshot)

    def set_ref(self, ref: str, snapshot: Mapping[str, Any]) -> None:
        """Move a branch or a tag to a snapshot; a new name becomes a branch."""
        number = snapshot["snapshot-id"]
        found = self.refs.setdefault(ref, {"type": "branch"})
        found["snapshot-id"] = number
        if ref == MAIN and self.current_snapshot_id != number:
            self.fields["current-snapshot-id"] = number
            log = self.fields.setdefault("snapshot-log", [])
            log.append({"timestamp-ms": snapshot["timestamp-ms"], "snapshot-id": number})

    def remove_snapshots(self, ids: Collection[int]) -> None:
        """Remove snapshots that no ref has; a ValueError if a branch or a tag has one of them.

        Entries of the snapshot log before the last that is removed go too, as Iceberg Java does it: what lies between
        would otherwise look current for too long.
        """
        for name, ref in self.refs.items():
            if ref["snapshot-id"] in ids:
                raise ValueError(f"snapshot {ref['snapshot-id']} is the newest of {name!r}")
        self.fields["snapshots"] = [each for each in self.snapshots if each["snapshot-id"] not in ids]
        log = self.fields.get("snapshot-log") or []
        last = max((index for index, each in enumerate(log) if each["snapshot-id"] in ids), default=-1)
        self.fields["snapshot-log"] = log[last + 1 :]
        for name in _STATISTICS:
            if name in self.fields:
                self.fields[name] = [each for each in self.fields[name] if each.get("snapshot-id") not in ids]
