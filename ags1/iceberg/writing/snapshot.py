"""One new snapshot of a table: manifests, manifest list, key entry, and its place in the metadata.

    entries --> manifest --> manifest list --> snapshot {manifest-list, key-id, first-row-id, added-rows} --> metadata
                   key          key --> encryption-keys

Row numbers: each data manifest without a first row id gets the table's next one, which moves on by the manifest's added
and existing rows. The summary says how many files, rows and bytes it adds and removes, and how many there are then.
Source: Iceberg table spec, "Snapshots", "First Row ID Assignment", "Sequence Numbers", "Optional Snapshot Summary
Fields"; Iceberg Java's SnapshotSummary, whose names these are.
"""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ags1.iceberg.keys.encryption_keys import EncryptionKeys
from ags1.iceberg.metadata.manifests import ADDED, DATA, DELETED, DELETES, EQUALITY_DELETES, EXISTING, Manifest
from ags1.iceberg.writing.commit import TableFiles
from ags1.iceberg.writing.manifest_avro import write_list, write_manifest
from ags1.iceberg.writing.metadata import MAIN, TableMetadata

_COUNTED = ("data-files", "records", "delete-files", "position-deletes", "equality-deletes", "files-size")
_TOTALS = {
    # Summary fields that are not counted from the manifests: for additions, and for removals.
    "total-files-size": ("added-files-size", "removed-files-size"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "total-equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}


class SnapshotWriter:
    """Writes one snapshot into a table's metadata, which :meth:`finish` changes. For one thread, but :meth:`write`.

    `manifests` is what the manifest list will have, in its order; `summary` counts for its caller. A commit that lost a
    race needs a new writer: ids, sequence numbers and row numbers are taken from the metadata. Manifests whose entries
    state all numbers may be added to the new one again.
    """

    def __init__(self, metadata: TableMetadata, files: TableFiles, kms: Any, ref: str = MAIN) -> None:
        metadata.upgrade()
        self._metadata, self.files, self._kms, self._ref = metadata, files, kms, ref
        self.summary = SnapshotSummary()
        self.snapshot_id = metadata.new_snapshot_id()
        self.sequence_number = int(metadata.fields.get("last-sequence-number", 0)) + 1
        self.manifests: list[dict[str, Any]] = []
        self._name = str(uuid.uuid4())
        self._numbers = itertools.count()

    def keep(self, listed: Mapping[str, Any]) -> None:
        """Add a manifest that is there, as its list has it."""
        self.manifests.append(dict(listed))

    def add(self, manifest: Manifest, partitions: list[dict[str, Any]] | None, first_row_id: int | None = None) -> None:
        """Write a manifest, and add it; as :meth:`write`."""
        self.manifests.append(self.write(manifest, partitions, first_row_id))

    def write(
        self, manifest: Manifest, partitions: list[dict[str, Any]] | None, first_row_id: int | None = None
    ) -> dict[str, Any]:
        """Write a manifest, and return what `manifests` has of it; several threads may write at once.

        Its new entries have the status ADDED and no sequence numbers. `partitions` sums up its partitions, field by
        field of the spec. `first_row_id` is that of a data manifest whose entries had one: it is kept. Without it, the
        table's next number is given.
        """
        path = self.files.new_metadata_path(f"{self._name}-m{next(self._numbers)}.avro")
        for each in manifest.entries:
            if each.status in (ADDED, DELETED):
                each.snapshot_id = self.snapshot_id
        length, key = self.files.write(path, write_manifest(manifest))
        record: dict[str, Any] = {
            "manifest_path": path,
            "manifest_length": length,
            "partition_spec_id": manifest.spec_id,
            "content": manifest.content,
            "sequence_number": self.sequence_number,
            "min_sequence_number": min(
                (
                    self.sequence_number if each.sequence_number is None else each.sequence_number
                    for each in manifest.entries
                    if each.is_live
                ),
                default=self.sequence_number,
            ),
            "added_snapshot_id": self.snapshot_id,
        }
        for name, status in (("added", ADDED), ("existing", EXISTING), ("deleted", DELETED)):
            files = [each.file for each in manifest.entries if each.status == status]
            record[f"{name}_files_count"] = len(files)
            record[f"{name}_rows_count"] = sum(each["record_count"] for each in files)
        if partitions is not None:
            record["partitions"] = partitions
        if key is not None:
            record["key_metadata"] = key.encode()
        if first_row_id is not None and manifest.content == DATA:
            record["first_row_id"] = first_row_id
        return record

    def finish(self, operation: str, summary: Mapping[str, str], *, schema_id: int | None = None) -> dict[str, Any]:
        """Write the manifest list, and put the snapshot into the metadata; return its JSON.

        The summary needs ``total-records`` and ``total-data-files``, for Iceberg Java. The schema is by default the
        table's current one. A KeyAccessError says that the KMS did not wrap the list's key.
        """
        metadata = self._metadata
        first = running = metadata.next_row_id
        # Data manifests first: delete manifests refer to what is in them.
        self.manifests.sort(key=lambda each: each["content"])
        for each in self.manifests:
            if each["content"] == DATA and each.get("first_row_id") is None:
                each["first_row_id"] = running
                running += each["added_rows_count"] + each["existing_rows_count"]
        parent = metadata.snapshot_of(self._ref)
        snapshot: dict[str, Any] = {"sequence-number": self.sequence_number, "snapshot-id": self.snapshot_id}
        if parent is not None:
            snapshot["parent-snapshot-id"] = parent["snapshot-id"]
        path = self.files.new_metadata_path(f"snap-{self.snapshot_id}-1-{self._name}.avro")
        snapshot |= {
            "timestamp-ms": metadata.now_ms(),
            "summary": {"operation": operation, **summary},
            "manifest-list": path,
            "schema-id": metadata.fields["current-schema-id"] if schema_id is None else schema_id,
            "first-row-id": first,
            "added-rows": running - first,
        }
        _, key = self.files.write(path, write_list(self.manifests, snapshot))
        if key is not None:
            master = metadata.key_id
            assert master is not None
            keys = EncryptionKeys.from_table_metadata(metadata.fields)
            snapshot["key-id"] = keys.add_manifest_list_key(
                key, self._kms, master, data_key_length=metadata.data_key_length
            )
            metadata.fields["encryption-keys"] = keys.to_list()
        metadata.add_snapshot(snapshot, self._ref)
        return snapshot


class SnapshotSummary:
    """Counts what a snapshot adds and removes."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._partitions: set[str] = set()

    def add(self, file: Mapping[str, Any], spec_id: int) -> None:
        """Take in a file that is added."""
        self._count(file, spec_id, "added", "added")

    def remove(self, file: Mapping[str, Any], spec_id: int) -> None:
        """Take in a file that is removed."""
        self._count(file, spec_id, "deleted", "removed")

    def include(self, other: SnapshotSummary) -> None:
        """Take in what another counted."""
        self._counts += other._counts

    def totals(self) -> dict[str, str]:
        """What was added, as the totals of a snapshot that has nothing else."""
        return {f"total-{name}": str(self._counts[f"added-{name}"]) for name in _COUNTED}

    def _count(self, file: Mapping[str, Any], spec_id: int, data: str, other: str) -> None:
        counts, rows = self._counts, file["record_count"]
        self._partitions.add(f"{spec_id} {file['partition']!r}")
        size = file.get("content_size_in_bytes")
        counts[f"{other}-files-size"] += file["file_size_in_bytes"] if size is None else size
        if file["content"] == DATA:
            counts[f"{data}-data-files"] += 1
            counts[f"{data}-records"] += rows
            return
        counts[f"{other}-delete-files"] += 1
        kind = "equality" if file["content"] == EQUALITY_DELETES else "position"
        counts[f"{other}-{kind}-deletes"] += rows
        is_vector = file["file_format"].lower() == "puffin"
        counts[f"{other}-dvs" if is_vector else f"{other}-{kind}-delete-files"] += 1

    def fields(self, parent: Mapping[str, Any] | None, manifests: Iterable[Mapping[str, Any]]) -> dict[str, str]:
        """The fields, without the operation; `manifests` are all of the new snapshot, as their list has them.

        A total that the parent snapshot lacks is left out.
        """
        found = {name: str(count) for name, count in self._counts.items() if count}
        found["changed-partition-count"] = str(len(self._partitions))
        before = {} if parent is None else parent.get("summary") or {}
        for total, (added, removed) in _TOTALS.items():
            base = before.get(total, "0" if parent is None else None)
            if base is not None:
                found[total] = str(int(base) + self._counts[added] - self._counts[removed])
        files: Counter[int] = Counter()
        rows = 0
        for each in manifests:
            files[each["content"]] += each["added_files_count"] + each["existing_files_count"]
            if each["content"] == DATA:
                rows += each["added_rows_count"] + each["existing_rows_count"]
        totals = {"total-records": rows, "total-data-files": files[DATA], "total-delete-files": files[DELETES]}
        return found | {name: str(number) for name, number in totals.items()}
