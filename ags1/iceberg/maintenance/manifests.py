"""Manifests written again: few instead of many, encrypted, and without delete files that delete nothing any more.

    manifests of one kind, spec and partition type --neighbours--> about the target size --> entries, all EXISTING
    a delete file that applies to no data file --> DELETED

Entries keep the numbers that they had inherited. Iceberg Java before 1.12 wrote plaintext manifests here. Source:
Iceberg Java's BaseRewriteManifests and RemoveDanglingDeletesSparkAction; Iceberg table spec, "Scan Planning".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyiceberg.utils.bin_packing import ListPacker

from ags1.iceberg.files.file_io import SnapshotFiles
from ags1.iceberg.maintenance.reports import ManifestReport
from ags1.iceberg.metadata.manifests import DATA, DELETED, Manifest, ManifestEntry, kind_of
from ags1.iceberg.writing.change import ChangeReport, WriteTarget, existing, shape_of, target_length
from ags1.iceberg.writing.commit import TableFiles
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.iceberg.writing.partitioning import Partitioning
from ags1.iceberg.writing.snapshot import SnapshotWriter
from ags1.kms.asking import reported

_Listed = dict[str, Any]


def rewrite_manifests(target: WriteTarget, *, dry_run: bool = False) -> ManifestReport:
    """Write the manifests of a branch again; errors are those of :meth:`EncryptedTable.rewrite_manifests`."""
    report = ManifestReport(target.table.catalog_table.name, target.ref, dry_run)

    def write(table: Any, metadata: TableMetadata, files: TableFiles) -> ChangeReport | None:
        nonlocal report
        work = _Work(target, table, metadata)
        report = ManifestReport(report.table, report.ref, dry_run)
        if not work.bins:
            report.kept = len(work.listed)
            return None
        report.replaced = sum(map(len, work.bins))
        report.kept = len(work.listed) - report.replaced
        if dry_run:
            return None
        return work.written(files, report)

    done = target.commit_snapshot(write, "replace")
    report.snapshot_id = done.snapshot_id
    return reported(report, target.table.io.kms)


class _Work:
    """The manifests of a branch, and which of them are written again, and together."""

    def __init__(self, target: WriteTarget, table: Any, metadata: TableMetadata) -> None:
        self._target, self._table, self._metadata = target, table, metadata
        self._parent = metadata.snapshot_of(target.ref)
        self._source = SnapshotFiles(table.io)
        self.listed: list[_Listed] = [] if self._parent is None else self._source.manifests(self._parent)
        self._used = self._used_deletes()
        self.bins = list(self._bins())

    def written(self, files: TableFiles, report: ManifestReport) -> ChangeReport:
        """Write them into a new snapshot."""
        writer = SnapshotWriter(self._metadata, files, self._table.io.kms, self._target.ref)
        replaced = {each["manifest_path"] for found in self.bins for each in found}
        entries = 0
        for found in self.bins:
            for manifest in self._merged(found):
                for each in manifest.entries:
                    if each.status == DELETED:
                        writer.summary.remove(each.file, manifest.spec_id)
                        report.dangling += 1
                entries += len(manifest.entries)
                partitioning = Partitioning(self._table.table.specs()[manifest.spec_id], self._table.schema)
                writer.add(manifest, partitioning.summaries(manifest.entries))
                report.written += 1
        for listed in self.listed:
            if listed["manifest_path"] not in replaced:
                writer.keep(listed)
        counts = {
            "manifests-created": report.written,
            "manifests-kept": report.kept,
            "manifests-replaced": report.replaced,
            "entries-processed": entries,
        }
        fields = writer.summary.fields(self._parent, writer.manifests)
        fields |= {name: str(each) for name, each in counts.items()}
        snapshot = writer.finish("replace", self._target.properties | fields)
        return ChangeReport("replace", snapshot["snapshot-id"])

    def _bins(self) -> Iterator[list[_Listed]]:
        """Neighbours that together have the target size, where that changes something."""
        packer = ListPacker[_Listed](target_length(self._metadata.properties), 1, False)
        kinds: dict[tuple[int, int], list[_Listed]] = {}
        for each in self.listed:
            kinds.setdefault((each["content"], each["partition_spec_id"]), []).append(each)
        bins = [each for found in kinds.values() for each in packer.pack(found, lambda one: one["manifest_length"])]
        work = [each for each in bins if len(each) > 1 or self._is_worth_it(each[0])]
        yield from work
        if work:
            # What has only files that are gone is left out, but is no reason for a snapshot.
            for few in bins:
                if few not in work and not few[0]["added_files_count"] + few[0]["existing_files_count"]:
                    yield few

    def _is_worth_it(self, listed: _Listed) -> bool:
        """Whether a manifest alone is written again: it is plaintext, or names what the snapshot does not have."""
        if listed.get("key_metadata") is None:
            return True
        return listed["content"] != DATA and any(
            each.is_live and not self._is_used(each) for each in self._source.entries(listed, metrics=False)
        )

    def _merged(self, listed: list[_Listed]) -> Iterator[Manifest]:
        """The manifests that take the place of some: one for each type of their partitions."""
        made: dict[str, Manifest] = {}
        for each in listed:
            manifest = self._source.manifest(each)
            found = made.setdefault(json.dumps(shape_of(manifest.partition)), manifest.like([]))
            for entry in existing(manifest):
                if manifest.content != DATA and not self._is_used(entry):
                    entry.status = DELETED
                found.entries.append(entry)
        return (each for each in made.values() if each.entries)

    def _is_used(self, entry: ManifestEntry) -> bool:
        is_vector = kind_of(entry.file) == "deletion vectors"
        return (entry.path, entry.file.get("content_offset") if is_vector else None) in self._used

    def _used_deletes(self) -> set[tuple[str, int | None]]:
        """Delete files that apply to a data file, each vector on its own."""
        if all(each["content"] == DATA for each in self.listed):
            return set()
        found = set[tuple[str, int | None]]()
        for task in self._table.scan(ref=self._target.ref).plan_files():
            deletes = task.deletes
            found |= {(each.file_path, None) for each in deletes.files if each.file_format.value.lower() != "puffin"}
            if deletes.vector is not None:
                found.add((deletes.vector.path, deletes.vector.offset))
        return found
