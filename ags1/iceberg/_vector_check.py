"""Deletion vectors that readers of a table would not agree about, found while its manifests are read."""

from __future__ import annotations

from typing import Any

from ags1.errors import FormatError
from ags1.iceberg.deletion_vectors import DeletionVector

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.iceberg.table_walk import ReadFile, TableFile

__all__ = ["VectorCheck"]


class VectorCheck:
    """Takes in the entries of manifests; what is wrong with a vector becomes the conflict of its Puffin file."""

    def __init__(self) -> None:
        self._in: dict[TableFile, dict[DeletionVector, None]] = {}
        self._of: dict[str, list[tuple[DeletionVector, TableFile, ReadFile, int | None]]] = {}

    def add(
        self, file: TableFile, bound: tuple[Any, ...], records: int | None, manifest: ReadFile, number: int | None
    ) -> bool:
        """Take in a vector, by what binds it: data file, offset and size. Return whether it was not there before."""
        try:
            data_file, offset, size = bound
            vector = DeletionVector.from_entry(file.path, data_file, offset, size, records)
        except FormatError as error:
            file.conflict = str(error).removeprefix(f"{file.path}: ")
            return False
        self._of.setdefault(vector.data_file, []).append((vector, file, manifest, number))
        known = self._in.setdefault(file, {})
        is_new = vector not in known
        known[vector] = None
        return is_new

    def check_data(self, data_file: TableFile, elsewhere: ReadFile, number: int | None) -> None:
        """Compare a file that is no vector, by its data sequence number, with its vectors, which were all taken in."""
        for _, file, manifest, of_vector in self._of.get(data_file.path, ()):
            # Most are newer, and then nothing is compared.
            if number is not None and of_vector is not None and of_vector < number and _share(manifest, elsewhere):
                file.conflict = (
                    f"its deletion vector for {data_file.path} is older than that file is: they are not of one table's "
                    "history"
                )

    def finish(self) -> None:
        """Give the vectors to their files, and compare those of each data file."""
        for file, found in self._in.items():
            file.vectors = tuple(found)
        for data_file, vectors in self._of.items():
            by_snapshot: dict[int, DeletionVector] = {}
            for vector, file, manifest, _ in vectors:
                for snapshot_id in manifest.snapshot_ids:
                    other = by_snapshot.setdefault(snapshot_id, vector)
                    if other != vector:
                        file.conflict = (
                            f"snapshot {snapshot_id} has two deletion vectors for {data_file}, one of them in "
                            f"{other.path}, and nothing says which of them counts"
                        )


def _share(one: ReadFile, other: ReadFile) -> bool:
    """Whether two manifests are in one snapshot."""
    return not set(one.snapshot_ids).isdisjoint(other.snapshot_ids)
