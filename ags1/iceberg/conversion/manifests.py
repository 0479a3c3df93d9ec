"""New snapshots for the branches and tags of a table, whose files have new paths and keys.

refs --> snapshots, each read once --> manifests, each read once --> live entries
old manifest --> entries, all EXISTING, with their old numbers --> new manifest, once for all refs
deletion vector --> its positions, in a new Puffin file under the new path
position delete files --> merged into a vector for each data file, separately for each snapshot
each ref's snapshot --> one `replace` snapshot on top of it

A data file with a vector has no other deletes by position. Source: Iceberg table spec, "Deletion Vectors", "Position
Delete Files" and "Scan Planning".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ags1.errors import FormatError, UnsupportedError
from ags1.iceberg.conversion.changes import ConversionGoal
from ags1.iceberg.conversion.work import FileResult, key_of
from ags1.iceberg.deletes import DeleteIndex, DeletionVector, FileScope
from ags1.iceberg.files.file_io import SnapshotFiles, naming
from ags1.iceberg.metadata.manifests import (
    DATA,
    DELETES,
    EQUALITY_DELETES,
    EXISTING,
    POSITION_DELETES,
    Manifest,
    ManifestEntry,
    kind_of,
)
from ags1.iceberg.scan.deletion_vectors import deleted_positions, read_position_deletes
from ags1.iceberg.writing.commit import TableFiles, vector_files
from ags1.iceberg.writing.metadata import MAIN, TableMetadata
from ags1.iceberg.writing.snapshot import SnapshotSummary, SnapshotWriter
from ags1.storage import SMALL_FILES_AT_ONCE
from ags1.support.parallel import in_parallel
from ags1.work.records import RunSeal

Kept: TypeAlias = dict[tuple[str, int | None], Manifest]


@dataclass
class RefSnapshot:
    """A snapshot of branches or tags: their names, main first; its JSON; the entries of its manifest list."""

    refs: list[str]
    fields: dict[str, Any]
    manifests: list[dict[str, Any]] = field(default_factory=list)


class Contents:
    """The current files of a table. Manifests that are read are added to `kept`, and not read again.

    `snapshots` are in the order of the refs, with that of main first. `manifests` has them by path, with live entries
    only; of data files without the metrics of columns, which are most of the bytes. `listed` has the manifest list's
    entry of each.
    """

    def __init__(self, metadata: TableMetadata, files: SnapshotFiles, kept: Kept) -> None:
        by_id: dict[int, RefSnapshot] = {}
        for name in sorted(metadata.refs, key=lambda name: name != MAIN):
            number = metadata.refs[name]["snapshot-id"]
            by_id.setdefault(number, RefSnapshot([], metadata.snapshot(number))).refs.append(name)
        self.snapshots = list(by_id.values())
        self.listed: dict[str, dict[str, Any]] = {}
        lists = in_parallel(lambda each: files.manifests(each.fields), self.snapshots, SMALL_FILES_AT_ONCE)
        for snapshot, found in zip(self.snapshots, lists, strict=True):
            snapshot.manifests = found
            for each in found:
                other = self.listed.setdefault(each["manifest_path"], each)
                if other.get("first_row_id") is None:
                    # An old snapshot assigns no row ids, but a newer one with the same manifest does.
                    self.listed[each["manifest_path"]] = each
        unread = [each for each in self.listed.values() if _name(each) not in kept]
        # Bounds say which data files a position delete file is for.
        read = in_parallel(
            lambda each: files.manifest(each, metrics=each["content"] != DATA), unread, SMALL_FILES_AT_ONCE
        )
        for each, manifest in zip(unread, read, strict=True):
            manifest.entries = [entry for entry in manifest.entries if entry.is_live]
            kept[_name(each)] = manifest
        self.manifests = {path: kept[_name(each)] for path, each in self.listed.items()}

    def entries(self) -> Iterator[ManifestEntry]:
        """Return the live entries of all manifests."""
        for manifest in self.manifests.values():
            yield from manifest.entries

    def of(self, snapshot: RefSnapshot) -> Iterator[tuple[dict[str, Any], Manifest]]:
        """Return the manifests of a snapshot with their entries in the list, data manifests first."""
        for each in sorted(snapshot.manifests, key=lambda each: each["content"]):
            path = each["manifest_path"]
            yield self.listed[path], self.manifests[path]


def _name(listed: Mapping[str, Any]) -> tuple[str, int | None]:
    """Return the key of a manifest in `manifests`: an upgrade of the table assigns row ids."""
    return listed["manifest_path"], listed.get("first_row_id")


def is_vector(entry: ManifestEntry) -> bool:
    """Whether an entry is a deletion vector."""
    return kind_of(entry.file) == "deletion vectors"


def is_position_delete(entry: ManifestEntry) -> bool:
    """Whether an entry is a position delete file, which contains paths."""
    return kind_of(entry.file) == "position deletes"


def is_moved(entry: ManifestEntry) -> bool:
    """Whether a file is moved with its content: data files and equality delete files."""
    return entry.file["content"] in (DATA, EQUALITY_DELETES)


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


# Bytes of a manifest that takes longer to decode than to fetch.
_LARGE = 64 << 10


def is_finished(change: ConversionGoal, contents: Contents, snapshot: RefSnapshot) -> bool:
    """Whether a snapshot already is as the change would make it."""
    listed = change.is_done(b"" if snapshot.fields.get("key-id") is not None else None)
    return listed and all(
        change.is_done(each.get("key_metadata")) and all(change.is_done(e.file.get("key_metadata")) for e in m.entries)
        for each, m in contents.of(snapshot)
    )


class SnapshotConversion:
    """Writes the new snapshots of one commit.

    `moved` has the moved files by their old paths, with the seal that opens their keys; `source` opens old files. The
    change is already applied to `metadata`.
    """

    def __init__(
        self,
        change: ConversionGoal,
        contents: Contents,
        moved: Mapping[str, tuple[FileResult, RunSeal | None]],
        source: SnapshotFiles,
        metadata: TableMetadata,
        files: TableFiles,
        kms: Any,
    ) -> None:
        self._change, self._contents, self._moved = change, contents, moved
        self._source, self._metadata, self._files, self._kms = source, metadata, files, kms
        # Current paths of data files, also of those that stay.
        self._paths = {
            each.path: moved[each.path][0].target if each.path in moved else each.path
            for each in contents.entries()
            if each.file["content"] == DATA
        }
        # The new forms of manifests, by their old paths: None where no file is left.
        self._made: dict[str, tuple[dict[str, Any] | None, SnapshotSummary]] = {}

    def write(self, snapshot: RefSnapshot) -> dict[str, Any]:
        """Write one snapshot on top of another, and move all its refs to the new one; return its JSON."""
        writer = SnapshotWriter(self._metadata, self._files, self._kms, snapshot.refs[0])
        contents = list(self._contents.of(snapshot))
        manifests = [manifest for _, manifest in contents]

        def convert(each: tuple[dict[str, Any], Manifest]) -> tuple[dict[str, Any] | None, SnapshotSummary]:
            return self._made.get(each[0]["manifest_path"]) or self._converted(writer, *each)

        # With the metrics of columns, a manifest needs many times its length in memory.
        converted = in_parallel(
            convert, contents, SMALL_FILES_AT_ONCE, alone=lambda each: each[0]["manifest_length"] > _LARGE
        )
        with closing(converted):
            for (listed, _), (record, counts) in zip(contents, converted, strict=True):
                is_written = record is not listed and listed["manifest_path"] not in self._made
                self._made[listed["manifest_path"]] = record, counts
                writer.summary.include(counts)
                if record is not None and is_written:
                    # Not a copy: the next snapshot needs the first row id that this one gives it.
                    writer.manifests.append(record)
                elif record is not None:
                    writer.keep(record)
        specs = self._metadata.fields["partition-specs"]
        merged = merge_position_deletes(manifests, specs, self._paths, self._source, self._files)
        for spec_id, vectors in merged.items():
            like = next(each for each in manifests if each.spec_id == spec_id and each.content == DATA)
            writer.add(like.like(vectors, DELETES), None)
            writer.summary.include(_counted(vectors, spec_id))
        made = writer.finish("replace", writer.summary.totals(), schema_id=snapshot.fields.get("schema-id"))
        for ref in snapshot.refs[1:]:
            self._metadata.set_ref(ref, made)
        return made

    def _converted(
        self, writer: SnapshotWriter, listed: dict[str, Any], manifest: Manifest
    ) -> tuple[dict[str, Any] | None, SnapshotSummary]:
        """Return the new form of a manifest, None where no file is left, and its entries."""
        if self._change.is_done(listed.get("key_metadata")) and all(map(self._stays, manifest.entries)):
            return listed, _counted(manifest.entries, manifest.spec_id)
        live = [each for each in self._source.manifest(listed).entries if each.is_live]
        entries = [self._moved_entry(each) for each in live if is_moved(each)]
        entries += self._vectors([each for each in live if is_vector(each)])
        made = None
        if entries:
            made = writer.write(manifest.like(entries), listed.get("partitions"), listed.get("first_row_id"))
        return made, _counted(entries, manifest.spec_id)

    def _stays(self, entry: ManifestEntry) -> bool:
        """Whether a file stays as it is, and valid after other files got new paths."""
        if is_position_delete(entry) or not self._change.is_done(entry.file.get("key_metadata")):
            return False
        if is_vector(entry):
            path = entry.file.get("referenced_data_file")
            return path is not None and self._paths.get(path) == path
        return True

    def _vectors(self, entries: list[ManifestEntry]) -> list[ManifestEntry]:
        moved = [each for each in entries if not self._stays(each)]
        kept = [replace(each, status=EXISTING) for each in entries if self._stays(each)]
        return kept + move_vectors(moved, self._paths, self._source, self._files)

    def _moved_entry(self, entry: ManifestEntry) -> ManifestEntry:
        """Return the entry of a data file or equality delete file at its new place."""
        if self._change.is_done(entry.file.get("key_metadata")):
            return replace(entry, status=EXISTING)
        try:
            result, seal = self._moved[entry.path]
        except KeyError:
            raise FormatError(f"{entry.path}: this file was not moved, and the snapshot has it") from None
        file = {**entry.file, "file_path": result.target, "file_size_in_bytes": result.length}
        file.pop("key_metadata", None)
        if result.key is not None:
            assert seal is not None
            file["key_metadata"] = key_of(seal, result.key, result.target).encode()
        if result.split_offsets is not None:
            file.pop("split_offsets", None)
            if result.split_offsets:
                file["split_offsets"] = list(result.split_offsets)
        return replace(entry, status=EXISTING, file=file)


def _counted(entries: list[ManifestEntry], spec_id: int) -> SnapshotSummary:
    summary = SnapshotSummary()
    for each in entries:
        summary.add(each.file, spec_id)
    return summary
