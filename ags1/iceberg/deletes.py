"""Which deletes apply to a data file: the one rule of scans, changes of rows, compactions and conversions.

    deletion vector     the vector that names the file; then no position deletes apply
    position deletes    as old as the file or newer: those that name it alone, and those of its partition that name none
    equality deletes    newer than the file: those of its partition, or of a spec without partitions

What names a data file applies to it in any partition. Bounds name one if they are equal and end as a path does: other
bounds may be cut or wrong, and leave nothing out. In partitions, NaN equals NaN, and the zeros of both signs differ.
Source: Iceberg table spec, "Scan Planning"; Iceberg Java's DeleteFileIndex and ContentFileUtil.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

from ags1.errors import FormatError
from ags1.iceberg.metadata.manifests import EQUALITY_DELETES, ManifestEntry, kind_of

_PATH = 2147483546
"""Field of a position delete file with the path of the data file."""
_WHOLE_PATHS = (".parquet", ".avro", ".orc")
_EVERYWHERE: tuple[Any, ...] = ()
# Bytes of a deletion vector: what stands around its bitmaps, and their number; Java reads it into one array.
_SMALLEST, _LARGEST = 20, (1 << 31) - 1


@dataclass(frozen=True)
class DeletionVector:
    """A deletion vector, from a manifest.

    Attributes
    ----------
    path : str
        Of the Puffin file.
    data_file : str
        Path of the data file whose rows it deletes.
    offset, size : int
        Where it is in the plaintext of the Puffin file, in bytes.
    cardinality : int
        How many rows it deletes.
    """

    path: str
    data_file: str
    offset: int
    size: int
    cardinality: int

    @classmethod
    def of(cls, file: Mapping[str, Any]) -> DeletionVector:
        """Make it from the fields of ``data_file``; a FormatError names the file if one is missing or impossible."""
        path, data_file = file["file_path"], file.get("referenced_data_file")
        offset, size = file.get("content_offset"), file.get("content_size_in_bytes")
        cardinality = file["record_count"]
        if not isinstance(data_file, str) or not data_file:
            raise FormatError(f"{path}: the manifest does not say which data file this deletion vector is for")
        if not (is_count(offset) and is_count(size) and is_count(cardinality)):
            raise FormatError(
                f"{path}: the manifest does not say where in it the deletion vector of {data_file} is, or how many "
                "rows it deletes"
            )
        if not _SMALLEST <= size <= _LARGEST:
            raise FormatError(f"{path}: the manifest says that the deletion vector of {data_file} has {size} bytes")
        return cls(path, data_file, offset, size, cardinality)


def is_count(value: object) -> TypeGuard[int]:
    """Whether a value of a file is a number of something, or a place."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class FileScope(NamedTuple):
    """Of a data or delete file: what decides which deletes apply to it, or to which files its deletes apply.

    Attributes
    ----------
    place : tuple
        Partition spec and partition, in a form in which only equal ones are equal.
    number : int
        Data sequence number.
    only : str or None
        The data file that a position delete file names.
    is_sure : bool
        Whether it has deletes for no other file.
    field_ids : tuple of int or None
        Columns that an equality delete file compares.
    """

    path: str
    place: tuple[Any, ...]
    number: int
    only: str | None = None
    is_sure: bool = False
    field_ids: tuple[int, ...] | None = None
    vector: DeletionVector | None = None

    @classmethod
    def of(cls, entry: ManifestEntry, spec_id: int, is_partitioned: bool) -> FileScope:
        """Make it from an entry that has a sequence number; a FormatError names a delete file that lacks something.

        The entry of a position delete file must have its bounds.
        """
        file, number = entry.file, entry.sequence_number
        assert number is not None
        values = (each for _, each in sorted(file["partition"].items()))
        place = (spec_id, *(repr(each) if isinstance(each, float) else each for each in values))
        made = cls(entry.path, place, number)
        kind = kind_of(file)
        if kind == "deletion vectors":
            return made._replace(vector=DeletionVector.of(file))
        if kind == "position deletes":
            only, is_sure = _only_path(file)
            return made._replace(only=only, is_sure=is_sure)
        if file["content"] == EQUALITY_DELETES:
            field_ids = tuple(sorted(set(file.get("equality_ids") or ())))
            if not field_ids:
                raise FormatError(f"{entry.path}: this equality delete file does not say which columns it compares")
            return made._replace(field_ids=field_ids, place=place if is_partitioned else _EVERYWHERE)
        return made


@dataclass(eq=False)
class EqualityDeletes:
    """Equality delete files of one partition that compare the same columns, with their data sequence numbers."""

    field_ids: tuple[int, ...]
    files: list[tuple[Any, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Deletes:
    """The deletes of one data file.

    There are no position deletes beside a vector. Equality delete files apply if they are newer than the data file.
    `files` has all delete files that apply, as the index got them.
    """

    vector: DeletionVector | None
    position_deletes: tuple[Any, ...]
    equality_deletes: tuple[EqualityDeletes, ...]
    files: tuple[Any, ...]


NO_DELETES = Deletes(None, (), (), ())


class DeleteIndex:
    """The delete files of a snapshot that may apply to some of its data files."""

    def __init__(self, data: Iterable[FileScope]) -> None:
        self._wanted: set[Any] = {_EVERYWHERE}.union(key for each in data for key in (each.path, each.place))
        self._vectors: dict[str, tuple[FileScope, DeletionVector, Any]] = {}
        # By path, and by partition; a file may be in both.
        self._positions: dict[Any, list[tuple[FileScope, Any]]] = {}
        self._groups: dict[tuple[Any, ...], dict[tuple[int, ...], EqualityDeletes]] = {}

    def wants(self, scope: FileScope) -> bool:
        """Whether a delete file may apply to one of the data files."""
        if scope.vector is not None:
            return scope.vector.data_file in self._wanted
        return scope.only in self._wanted or (not scope.is_sure and scope.place in self._wanted)

    def add(self, scope: FileScope, file: Any) -> None:
        """Add a delete file, or a vector in it; a FormatError names two vectors for one data file."""
        if scope.vector is not None:
            _, other, _ = self._vectors.setdefault(scope.vector.data_file, (scope, scope.vector, file))
            if other is not scope.vector:
                raise FormatError(
                    f"{other.data_file}: the snapshot has two deletion vectors for it, in {other.path} and "
                    f"{scope.path}, and nothing says which of them counts"
                )
        elif scope.field_ids is not None:
            groups = self._groups.setdefault(scope.place, {})
            groups.setdefault(scope.field_ids, EqualityDeletes(scope.field_ids)).files.append((file, scope.number))
        else:
            for key in (scope.only, None if scope.is_sure else scope.place):
                if key is not None:
                    self._positions.setdefault(key, []).append((scope, file))

    def of(self, data: FileScope) -> Deletes:
        """Return the deletes of a data file; a FormatError if its vector is older."""
        found = self._vectors.get(data.path)
        positions = {}
        if found is None:
            near = (each for key in (data.path, data.place) for each in self._positions.get(key, ()))
            positions = {scope.path: file for scope, file in near if scope.number >= data.number}
        elif found[0].number < data.number:
            raise FormatError(
                f"{data.path}: its deletion vector, in {found[1].path}, is older than it is ({found[0].number} and "
                f"{data.number}): they are not of one table's history"
            )
        groups = tuple(
            group
            for place in (_EVERYWHERE, data.place)
            for group in self._groups.get(place, {}).values()
            if any(number > data.number for _, number in group.files)
        )
        files = [*positions.values()] if found is None else [found[2]]
        files += [file for group in groups for file, number in group.files if number > data.number]
        return Deletes(None if found is None else found[1], tuple(positions.values()), groups, tuple(files))


def _only_path(file: Mapping[str, Any]) -> tuple[str | None, bool]:
    """Return the path of a data file that a position delete file names, and whether that is the only one."""
    named: str | None = file.get("referenced_data_file")
    if named is not None:
        return named, True
    bounds = (file.get(each) or () for each in ("lower_bounds", "upper_bounds"))
    lower, upper = (next((each["value"] for each in pairs if each["key"] == _PATH), None) for pairs in bounds)
    if lower is None or lower != upper:
        return None, False
    path = bytes(lower).decode(errors="replace")
    return path, path.endswith(_WHOLE_PATHS)
