"""Deletion vectors that readers of a table would not agree about, found while its manifests are read."""

from __future__ import annotations

from typing import Any

from ags1.errors import FormatError
from ags1.iceberg.deletion_vectors import DeletionVector

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.iceberg.file_keys import KnownFile
    from ags1.iceberg.table_walk import TableFile

__all__ = ["VectorCheck"]


class VectorCheck:
    """Takes in the entries of all manifests; what is wrong with a vector becomes the conflict of its Puffin file."""

    def __init__(self) -> None:
        self._seen: set[DeletionVector] = set()
        self._of: dict[str, list[tuple[DeletionVector, TableFile, TableFile, int | None]]] = {}
        self._data: list[tuple[str, TableFile, int]] = []

    def add_data(self, known: KnownFile, manifest: TableFile, number: int | None) -> None:
        """Take in a file that is no vector, with its data sequence number."""
        if known.kind == "data" and number is not None:
            self._data.append((known.path, manifest, number))

    def add(
        self, file: TableFile, bound: tuple[Any, ...], records: int | None, manifest: TableFile, number: int | None
    ) -> bool:
        """Take in a vector, by what binds it: data file, offset and size. Return whether it was not there before."""
        try:
            data_file, offset, size = bound
            vector = DeletionVector.from_entry(file.path, data_file, offset, size, records)
        except FormatError as error:
            file.conflict = str(error).removeprefix(f"{file.path}: ")
            return False
        self._of.setdefault(vector.data_file, []).append((vector, file, manifest, number))
        if vector in self._seen:
            return False
        self._seen.add(vector)
        file.vectors.append(vector)
        return True

    def finish(self) -> None:
        """Compare what was taken in."""
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
        for data_file, elsewhere, number in self._data:
            for _, file, manifest, of_vector in self._of.get(data_file, ()):
                # Most are newer, and then nothing is compared.
                if of_vector is not None and of_vector < number and _share(manifest, elsewhere):
                    file.conflict = (
                        f"its deletion vector for {data_file} is older than that file is: they are not of one table's "
                        "history"
                    )


def _share(one: TableFile, other: TableFile) -> bool:
    """Whether two manifests are in one snapshot."""
    return not set(one.snapshot_ids).isdisjoint(other.snapshot_ids)
