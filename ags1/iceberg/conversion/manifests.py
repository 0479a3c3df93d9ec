"""New snapshots for the branches and tags of a table, whose files have new paths and keys.

old manifest --> entries, all EXISTING, with their old numbers --> new manifest, once for all refs
position delete files --> vectors, separately for each snapshot
each ref's snapshot --> one `replace` snapshot on top of it
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from ags1.errors import FormatError
from ags1.iceberg.conversion.changes import ConversionGoal
from ags1.iceberg.conversion.contents import Contents, RefSnapshot, is_moved, is_position_delete, is_vector
from ags1.iceberg.conversion.vectors import merge_position_deletes, move_vectors
from ags1.iceberg.conversion.work import FileResult, key_of
from ags1.iceberg.files.file_io import SnapshotFiles
from ags1.iceberg.metadata.manifests import DATA, DELETES, EXISTING, Manifest, ManifestEntry
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.iceberg.writing.snapshot import SnapshotSummary, SnapshotWriter
from ags1.iceberg.writing.table_files import TableFiles
from ags1.storage import SMALL_FILES_AT_ONCE
from ags1.support.parallel import in_parallel
from ags1.work.records import RunSeal

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
