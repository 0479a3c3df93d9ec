"""New snapshots for the branches and tags of a table, whose files have new paths and keys.

old manifest --> entries, all EXISTING, with their old numbers --> new manifest, once for all refs
position delete files --> vectors, separately for each snapshot
each ref's snapshot --> one `replace` snapshot on top of it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ags1.errors import FormatError
from ags1.iceberg.conversion.changes import Change
from ags1.iceberg.conversion.contents import Contents, RefSnapshot, is_moved, is_position_delete, is_vector
from ags1.iceberg.conversion.vectors import merge_position_deletes, move_vectors
from ags1.iceberg.conversion.work import FileResult, key_of
from ags1.iceberg.files.file_io import SnapshotFiles
from ags1.iceberg.metadata.manifests import DATA, DELETES, EXISTING, Entry, Manifest
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.iceberg.writing.snapshot import SnapshotSummary, SnapshotWriter
from ags1.iceberg.writing.table_files import TableFiles
from ags1.kms.run_records import RunSeal

__all__ = ["SnapshotConversion", "is_finished"]


def is_finished(change: Change, contents: Contents, snapshot: RefSnapshot) -> bool:
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
        change: Change,
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
        self._made: dict[str, dict[str, Any] | None] = {}
        self._counts: dict[str, SnapshotSummary] = {}

    def write(self, snapshot: RefSnapshot) -> dict[str, Any]:
        """Write one snapshot on top of another, and move all its refs to the new one; return its JSON."""
        writer = SnapshotWriter(self._metadata, self._files, self._kms, snapshot.refs[0])
        summary = SnapshotSummary()
        manifests = []
        for listed, manifest in self._contents.of(snapshot):
            summary.include(self._add(writer, listed, manifest))
            manifests.append(manifest)
        merged = merge_position_deletes(manifests, self._paths, self._source, self._files)
        for spec_id, vectors in merged.items():
            like = next(each for each in manifests if each.spec_id == spec_id and each.content == DATA)
            writer.add(like.like(vectors, DELETES), None)
            summary.include(_counted(vectors, spec_id))
        made = writer.finish("replace", summary.totals(), schema_id=snapshot.fields.get("schema-id"))
        for ref in snapshot.refs[1:]:
            self._metadata.set_ref(ref, made)
        return made

    def _add(self, writer: SnapshotWriter, listed: dict[str, Any], manifest: Manifest) -> SnapshotSummary:
        """Add the new form of a manifest to a snapshot; return its entries."""
        path = listed["manifest_path"]
        if path in self._made:
            made = self._made[path]
            if made is not None:
                writer.keep(made)
            return self._counts[path]
        if self._change.is_done(listed.get("key_metadata")) and all(
            self._change.is_done(each.file.get("key_metadata")) and self._stays(each) for each in manifest.entries
        ):
            made, entries = listed, manifest.entries
            writer.keep(made)
        else:
            # With the metrics of columns, for one manifest in memory at a time.
            live = [each for each in self._source.manifest(listed).entries if each.is_live]
            entries = [self._converted(each) for each in live if is_moved(each)]
            entries += self._vectors([each for each in live if is_vector(each)])
            made = None
            if entries:
                writer.add(manifest.like(entries), listed.get("partitions"), listed.get("first_row_id"))
                made = writer.manifests[-1]
        self._made[path], self._counts[path] = made, _counted(entries, manifest.spec_id)
        return self._counts[path]

    def _stays(self, entry: Entry) -> bool:
        """Whether a file stays valid after other files got new paths."""
        if is_position_delete(entry):
            return False
        if is_vector(entry):
            path = entry.file.get("referenced_data_file")
            return path is not None and self._paths.get(path) == path
        return True

    def _vectors(self, entries: list[Entry]) -> list[Entry]:
        kept: list[Entry] = []
        changed: list[Entry] = []
        for each in entries:
            stays = self._change.is_done(each.file.get("key_metadata")) and self._stays(each)
            (kept if stays else changed).append(each)
        moved = move_vectors(changed, self._paths, self._source, self._files)
        return [replace(each, status=EXISTING) for each in kept] + moved

    def _converted(self, entry: Entry) -> Entry:
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


def _counted(entries: list[Entry], spec_id: int) -> SnapshotSummary:
    summary = SnapshotSummary()
    for each in entries:
        summary.add(each.file, spec_id)
    return summary
