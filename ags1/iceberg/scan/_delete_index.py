"""Which deletes apply to a data file.

    deletion vector     the vector that names the file; then no position deletes apply
    position deletes    as old as the file or newer: those that name it, and those of its partition
    equality deletes    newer than the file: those of its partition, or of a spec without partitions

Iceberg Java does the same. Source: Iceberg table spec, "Scan Planning"; Iceberg Java's DeleteFileIndex.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import DataFileContent
from pyiceberg.transforms import VoidTransform

from ags1.errors import FormatError
from ags1.iceberg.scan.deletion_vectors import DeletionVector

DELETED_PATH = 2147483546
"""Field of a position delete file with the path of the data file."""
_EVERYWHERE: tuple[Any, ...] = ()


@dataclass(eq=False)
class EqualityDeletes:
    """Equality delete files of one partition that compare the same columns, with their data sequence numbers."""

    field_ids: tuple[int, ...]
    files: list[tuple[Any, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Deletes:
    """The deletes of one data file.

    There are no position deletes beside a vector. Equality delete files apply if they are newer than the data file.
    `files` has all delete files that apply, as PyIceberg's objects.
    """

    vector: DeletionVector | None
    position_deletes: tuple[Any, ...]
    equality_deletes: tuple[EqualityDeletes, ...]
    files: frozenset[Any]


class DeleteIndex:
    """The delete files of a snapshot of a table with these partition specs."""

    def __init__(self, specs: Mapping[int, Any]) -> None:
        self._specs = specs
        self._vectors: dict[str, tuple[DeletionVector, Any, int]] = {}
        self._by_path: dict[str, list[tuple[Any, int]]] = {}
        self._by_partition: dict[tuple[Any, ...], list[tuple[Any, int]]] = {}
        self._groups: dict[tuple[Any, ...], dict[tuple[int, ...], EqualityDeletes]] = {}

    def add(self, file: Any, number: int, vector: DeletionVector | None = None) -> None:
        """Add a delete file with its data sequence number, or a vector in it.

        A FormatError names a delete file that does not state what it deletes, or two vectors for one data file.
        """
        if file.content == DataFileContent.EQUALITY_DELETES:
            field_ids = tuple(sorted(set(file.equality_ids or ())))
            if not field_ids:
                raise FormatError(f"{file.file_path}: this equality delete file does not say which columns it compares")
            groups = self._groups.setdefault(self._place(file), {})
            groups.setdefault(field_ids, EqualityDeletes(field_ids)).files.append((file, number))
        elif vector is not None:
            other = self._vectors.setdefault(vector.data_file, (vector, file, number))[0]
            if other is not vector:
                raise FormatError(
                    f"{vector.data_file}: the snapshot has two deletion vectors for it, in {other.path} and "
                    f"{vector.path}, and nothing says which of them counts"
                )
        elif (path := _only_path(file)) is not None:
            self._by_path.setdefault(path, []).append((file, number))
        else:
            self._by_partition.setdefault((file.spec_id, *file.partition), []).append((file, number))

    def of(self, file: Any, number: int) -> Deletes:
        """Return the deletes of a data file with this data sequence number; a FormatError if its vector is older."""
        positions: list[Any] = []
        vector, vector_file, vector_number = self._vectors.get(file.file_path, (None, None, 0))
        if vector is None:
            scoped = self._by_path.get(file.file_path, ())
            near = self._by_partition.get((file.spec_id, *file.partition), ())
            positions += [each for each, newer in scoped if newer >= number]
            positions += [each for each, newer in near if newer >= number and _may_name(each, file.file_path)]
        elif vector_number < number:
            raise FormatError(
                f"{file.file_path}: its deletion vector, in {vector.path}, is older than it is ({vector_number} and "
                f"{number}): they are not of one table's history"
            )
        groups = tuple(
            group
            for place in {_EVERYWHERE, self._place(file)}
            for group in self._groups.get(place, {}).values()
            if any(newer > number for _, newer in group.files)
        )
        files = {each for group in groups for each, newer in group.files if newer > number}
        files.update(positions)
        if vector_file is not None:
            files.add(vector_file)
        return Deletes(vector, tuple(positions), groups, frozenset(files))

    def _place(self, file: Any) -> tuple[Any, ...]:
        """Return what an equality delete file shares with its data files; nothing if it applies to all."""
        if all(isinstance(each.transform, VoidTransform) for each in self._specs[file.spec_id].fields):
            return _EVERYWHERE
        return (file.spec_id, *file.partition)


def _only_path(file: Any) -> str | None:
    """Return the path of the only data file that a position delete file applies to."""
    if file.referenced_data_file is not None:
        path: str = file.referenced_data_file
        return path
    lower, upper = _bounds(file)
    if lower is None or lower != upper:
        return None
    try:
        return lower.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _may_name(file: Any, path: str) -> bool:
    lower, upper = _bounds(file)
    encoded = path.encode("utf-8")
    return (lower is None or lower <= encoded) and (upper is None or encoded <= upper)


def _bounds(file: Any) -> tuple[bytes | None, bytes | None]:
    return (file.lower_bounds or {}).get(DELETED_PATH), (file.upper_bounds or {}).get(DELETED_PATH)
