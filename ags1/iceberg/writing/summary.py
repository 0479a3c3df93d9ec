"""The summary of a snapshot: how many files, rows and bytes it adds and removes, and how many there are then.

Source: Iceberg table spec, "Optional Snapshot Summary Fields"; Iceberg Java's SnapshotSummary, whose names these are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ags1.iceberg.manifests import DATA, DELETES, EQUALITY_DELETES

__all__ = ["SnapshotSummary"]

_COUNTED = ("data-files", "records", "delete-files", "position-deletes", "equality-deletes", "files-size")
_TOTALS = {
    # Of what is not counted from the manifests: what adds, and what removes.
    "total-files-size": ("added-files-size", "removed-files-size"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "total-equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}


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

        A total that the parent snapshot does not have, it does not give on.
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
