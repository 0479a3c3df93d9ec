"""Deletes by position for data files with new paths: deletion vectors, one for each data file.

    deletion vector          its positions, in a new Puffin file under the new path
    position delete files    those that apply to a data file, merged into a vector

A data file with a vector has no other deletes by position. Source: Iceberg table spec, "Deletion Vectors",
"Position Delete Files" and "Scan Planning".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ags1.errors import FormatError, UnsupportedError
from ags1.iceberg.conversion.contents import is_position_delete
from ags1.iceberg.deletes import DeleteIndex, DeletionVector, FileScope
from ags1.iceberg.files.file_io import SnapshotFiles
from ags1.iceberg.metadata.manifests import DATA, EXISTING, POSITION_DELETES, Manifest, ManifestEntry
from ags1.iceberg.metadata.naming import naming
from ags1.iceberg.scan.deletion_vectors import deleted_positions, read_position_deletes
from ags1.iceberg.writing.table_files import TableFiles, vector_files


def move_vectors(
    entries: list[ManifestEntry], paths: Mapping[str, str], source: SnapshotFiles, files: TableFiles
) -> list[ManifestEntry]:
    """Write the vectors of a manifest into a new Puffin file.

    `paths` has the new paths of data files by their old ones; vectors of other files are dangling, and left out.
    """
    vectors: dict[str, list[tuple[DeletionVector, ManifestEntry]]] = {}
    for entry in entries:
        vector = DeletionVector.of(entry.file)
        if vector.data_file in paths:
            vectors.setdefault(entry.path, []).append((vector, entry))
    found: list[tuple[str, Any, ManifestEntry]] = []
    for of_file in vectors.values():
        with source.open(of_file[0][1].file) as opened:
            positions = deleted_positions(opened, [vector for vector, _ in of_file])
        found += [(paths[vector.data_file], positions[vector], entry) for vector, entry in of_file]
    return _written(found, files)


def merge_position_deletes(
    manifests: list[Manifest],
    specs: Iterable[Mapping[str, Any]],
    paths: Mapping[str, str],
    source: SnapshotFiles,
    files: TableFiles,
) -> dict[int, list[ManifestEntry]]:
    """Make vectors of the position delete files of one snapshot, grouped by the data file's partition spec.

    `specs` are the table's, as the metadata has them.
    """
    listed = [(manifest.spec_id, entry) for manifest in manifests for entry in manifest.entries]
    if not any(is_position_delete(entry) for _, entry in listed):
        return {}
    partitioned = {each["spec-id"] for each in specs if any(field["transform"] != "void" for field in each["fields"])}
    scoped = [(FileScope.of(entry, spec_id, spec_id in partitioned), spec_id, entry) for spec_id, entry in listed]
    data = [each for each in scoped if each[2].file["content"] == DATA]
    index = DeleteIndex(scope for scope, _, _ in data)
    for scope, _, entry in scoped:
        if entry.file["content"] != DATA and index.wants(scope):
            index.add(scope, entry)
    read: dict[str, dict[str, Any]] = {}
    found: list[tuple[str, Any, ManifestEntry]] = []
    spec_ids: list[int] = []
    for scope, spec_id, entry in data:
        applying = []
        for each in index.of(scope).position_deletes:
            if each.path not in read:
                read[each.path] = positions_in(each, source)
            if entry.path in read[each.path]:
                applying.append(each)
        if applying:
            positions = read[applying[0].path][entry.path].copy()
            for each in applying[1:]:
                positions |= read[each.path][entry.path]
            newest = max(applying, key=lambda each: each.sequence_number or 0)
            like = replace(newest, file={"content": POSITION_DELETES, "partition": entry.file["partition"]})
            found.append((paths[entry.path], positions, like))
            spec_ids.append(spec_id)
    made: dict[int, list[ManifestEntry]] = {}
    for number, vector in zip(spec_ids, _written(found, files), strict=True):
        made.setdefault(number, []).append(vector)
    return made


def _written(found: list[tuple[str, Any, ManifestEntry]], files: TableFiles) -> list[ManifestEntry]:
    """Write vectors; return the entries with their new fields."""
    if not found:
        return []
    made = vector_files(((path, positions) for path, positions, _ in found), files)
    return [
        replace(entry, status=EXISTING, file={**file, "partition": entry.file["partition"]})
        for file, (_, _, entry) in zip(made, found, strict=True)
    ]


def positions_in(entry: ManifestEntry, source: SnapshotFiles) -> dict[str, Any]:
    """Return the deleted positions of a position delete file, as bitmaps by path of the data file."""
    form = entry.file["file_format"].lower()
    if form not in ("parquet", "avro"):
        raise UnsupportedError(f"{entry.path}: position delete files of the format {form} are not read")
    with naming(entry.path, "cannot be read"), source.open(entry.file) as opened:
        found = read_position_deletes(opened, form)
    count = sum(map(len, found.values()))
    if count != entry.file["record_count"]:
        raise FormatError(f"{entry.path}: has {count} deletes, but its manifest says {entry.file['record_count']}")
    from pyroaring import BitMap64

    return {path: BitMap64(each.to_pylist()) for path, each in found.items()}
