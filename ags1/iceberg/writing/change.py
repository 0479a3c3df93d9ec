"""One change of a table's rows: files added, files removed, rows deleted from files; and its commit as one snapshot.

    plan(table as it is now) --> RowChange --> manifests: kept, written again, new --> snapshot --> catalog
         ^                                                                                        |
         +---------------------------- planned again, when somebody else was faster --------------+

A change that depends on the rows of the table is planned again from the newest state after a lost race, so it is as if
it had begun then: that is what Iceberg calls serializable, and nobody's rows are deleted unseen. Source: Iceberg table
spec, "Manifests", "Deletion Vectors", "Row Lineage".

Manifests are merged when rows are appended, so that a thousand appends do not leave a thousand of them. Entries of old
ones become EXISTING, with the numbers of rows and of snapshots that they had inherited. Source: Iceberg Java's
ManifestMergeManager, and the table properties ``commit.manifest*``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyiceberg.utils.bin_packing import ListPacker

from ags1.errors import Ags1Error, ConflictError, FormatError, UnsupportedError
from ags1.iceberg.catalogs import RefusedError
from ags1.iceberg.files.file_io import SnapshotFiles
from ags1.iceberg.metadata.manifests import ADDED, DATA, DELETED, DELETES, EXISTING, Manifest, ManifestEntry
from ags1.iceberg.metadata.metadata_document import number_property
from ags1.iceberg.writing.commit import TableFiles, commit, vector_files
from ags1.iceberg.writing.data_files import TableLayout
from ags1.iceberg.writing.metadata import MAIN, TableMetadata
from ags1.iceberg.writing.partitioning import Partitioning
from ags1.iceberg.writing.snapshot import SnapshotWriter
from ags1.kms.asking import reported
from ags1.storage import SMALL_FILES_AT_ONCE
from ags1.support.arguments import spelled
from ags1.support.parallel import in_parallel
from ags1.support.reports import Report
from ags1.support.words import counted

_Owners = dict[str, tuple[Manifest, ManifestEntry]]
_VERSION = 3
_ENABLED = "commit.manifest-merge.enabled"
_COUNT, _USUAL_COUNT = "commit.manifest.min-count-to-merge", 100
_SIZE, _USUAL_SIZE = "commit.manifest.target-size-bytes", 8 << 20


@dataclass(frozen=True)
class ChangeReport(Report):
    """The result of a change.

    Attributes
    ----------
    operation : str
        As in the snapshot: "append", "overwrite", "delete" or "replace".
    snapshot_id : int or None
        The new snapshot; None if there was nothing to do.
    added_files, added_rows, added_bytes : int
        New data files, their rows, and their stored bytes.
    removed_files : int
        Data files that are no longer in the table.
    deleted_rows : int
        Rows that are no longer in the table, in removed files or by deletion vectors. An upsert counts the rows that it
        replaced.
    metadata_hash : str or None
        Hash of the new metadata file; see :attr:`EncryptedTable.metadata_hash`.
    """

    operation: str
    snapshot_id: int | None = None
    added_files: int = 0
    added_rows: int = 0
    added_bytes: int = 0
    removed_files: int = 0
    deleted_rows: int = 0
    metadata_hash: str | None = None

    def _text(self) -> str:
        if self.snapshot_id is None:
            return "nothing to do: no snapshot was made"
        parts = []
        if self.added_files:
            parts.append(f"{counted(self.added_rows, 'row')} added in {counted(self.added_files, 'file')}")
        if self.deleted_rows or self.removed_files:
            parts.append(f"{counted(self.deleted_rows, 'row')} deleted, {counted(self.removed_files, 'file')} removed")
        return f"snapshot {self.snapshot_id} ({self.operation}): {'; '.join(parts)}"


@dataclass
class RowChange:
    """The changes of one snapshot.

    Attributes
    ----------
    partitioning : Partitioning
        Partitioning of the new files.
    added : list of ManifestEntry
        New data files.
    removed : set of str
        Paths of data files to remove.
    deleted : dict of str to pyroaring.BitMap64
        All deleted positions of data files that stay, including earlier deletes.
    deleted_rows : int
        Number of rows that the change deletes.
    replaces : bool
        Whether the new files have exactly the rows of the removed ones.
    """

    partitioning: Partitioning
    added: list[ManifestEntry] = field(default_factory=list)
    removed: set[str] = field(default_factory=set)
    deleted: dict[str, Any] = field(default_factory=dict)
    deleted_rows: int = 0
    replaces: bool = False

    def delete(self, file: Any, positions: Any) -> None:
        """Take out the rows at all these positions: a data file that has no others goes as a whole."""
        # A vector may have positions that the file does not.
        if len(positions) == file.record_count == positions.max() + 1:
            self.removed.add(file.file_path)
        else:
            self.deleted[file.file_path] = positions

    @property
    def operation(self) -> str:
        """As Iceberg Java calls it."""
        if self.replaces:
            return "replace"
        if not self.removed and not self.deleted:
            return "append"
        return "overwrite" if self.added else "delete"


class WriteTarget:
    """A branch of a table, for changes of its rows. The table object has the new state after a commit.

    A ValueError reports a table that was opened without a catalog, or a missing branch; an UnsupportedError, a table
    that is not encrypted, has an older format version, or is in a catalog that cannot hold it.
    """

    def __init__(self, table: Any, ref: str = MAIN, snapshot_properties: Mapping[str, str] | None = None) -> None:
        # Further fields of the snapshot's summary.
        self.properties = dict(snapshot_properties or {})
        if "operation" in self.properties:
            raise ValueError("snapshot_properties must not have the operation: it follows from the change")
        if table.catalog_table is None:
            raise ValueError(
                f"{table.metadata_location}: the table was opened by its metadata file, and a change needs the catalog "
                f"that says which is the newest: open it with {spelled('load_table')}"
            )
        # The table as it was last read.
        self.table, self._catalog, self.ref = table, table.catalog_table, ref
        self._catalog.check_can_encrypt()
        self._locate = self._catalog.place
        table.refresh()
        self._metadata(table)

    def has_snapshot(self, snapshot_id: int | None) -> bool:
        """Whether the newest state of the table has a snapshot, whose files are then needed."""
        now = TableMetadata(self._catalog.load().document.fields)
        return any(each["snapshot-id"] == snapshot_id for each in now.snapshots)

    def layout(self, further: tuple[Any, ...] = ()) -> TableLayout:
        """Return the current layout of new rows in files."""
        table = self.table.table
        return TableLayout(table.schema(), table.spec(), table.sort_order(), table.properties, further)

    def data_files(self, directory: str = "") -> TableFiles:
        """Return names and keys for data files that are written before the commit."""
        return TableFiles(self._metadata(self.table), self.table.io.locations.within(self._locate), directory)

    def commit(
        self, plan: Callable[[Any, TableFiles], RowChange | None], operation: str, written: TableFiles | None = None
    ) -> ChangeReport:
        """Commit the change that `plan` returns for the newest state of the table.

        `plan` gets the current table, and TableFiles for the files of this attempt; it returns None if there is nothing
        to do. Files in `written` are removed if the commit failed. A ConflictError reports that another writer
        committed first at each attempt, or changed the schema so that the new rows do not fit.
        """

        def write(now: Any, metadata: TableMetadata, files: TableFiles) -> ChangeReport | None:
            change = plan(now, files)
            if change is None or not (change.added or change.removed or change.deleted):
                return None
            return self._write(now, metadata, files, change)

        return self.commit_snapshot(write, operation, written)

    def commit_snapshot(
        self,
        write: Callable[[Any, TableMetadata, TableFiles], ChangeReport | None],
        operation: str,
        written: TableFiles | None = None,
    ) -> ChangeReport:
        """As :meth:`commit`; `write` puts the snapshot into the metadata of the newest state."""
        report = ChangeReport(operation)
        # Whether the request was sent to the catalog: then only the catalog knows the result.
        swapping = False

        def attempt(state: Any, metadata: TableMetadata, files: TableFiles) -> bool:
            nonlocal report, swapping
            swapping = False
            now = self.table.at(state)
            self._check(now, metadata)
            made = write(now, metadata, files)
            if made is None:
                return False
            report, swapping = made, True
            return True

        try:
            state = commit(self._catalog, self._locate, attempt)
        except BaseException as error:
            if written is not None and (not swapping or isinstance(error, (Ags1Error, RefusedError))):
                written.discard()
            raise
        if state is None:
            if written is not None:
                written.discard()
            return ChangeReport(operation)
        self.table.refresh(state)
        return reported(replace(report, metadata_hash=state.document.hash), self.table.io.kms)

    def _metadata(self, table: Any) -> TableMetadata:
        metadata = TableMetadata(table.document.fields)
        self._check(table, metadata)
        return metadata

    def _check(self, table: Any, metadata: TableMetadata) -> None:
        name = self._catalog.name
        if metadata.key_id is None:
            raise UnsupportedError(
                f"{name}: the table is not encrypted, and only encrypted tables are written here: make it one with "
                f"{spelled('encrypt_table')}, or write it with Spark (PyIceberg 0.12 writes no table of format "
                "version 3)"
            )
        if metadata.fields["format-version"] < _VERSION:
            raise UnsupportedError(
                f"{name}: the table has format version {metadata.fields['format-version']}, and encrypted tables have "
                f"{_VERSION}: upgrade it with {spelled('encrypt_table')}"
            )
        found = metadata.refs.get(self.ref)
        if found is None:
            if self.ref == MAIN:
                return
            branches = sorted(ref for ref, each in metadata.refs.items() if each.get("type") == "branch")
            raise ValueError(f"{name}: the table has no branch {self.ref!r}; it has {', '.join(branches) or 'none'}")
        if found.get("type") != "branch":
            raise ValueError(f"{name}: {self.ref!r} is a tag, which stays at its snapshot: write to a branch")

    # -- manifests ---------------------------------------------------------------------------------------------

    def _write(self, table: Any, metadata: TableMetadata, files: TableFiles, change: RowChange) -> ChangeReport:
        writer = SnapshotWriter(metadata, files, table.io.kms, self.ref)
        for entry in change.added:
            writer.summary.add(entry.file, change.partitioning.spec_id)
        parent = metadata.snapshot_of(self.ref)
        source = SnapshotFiles(table.io)
        listed = [] if parent is None else source.manifests(parent)
        if change.operation == "append":
            replaced, new = set[str](), change.partitioning.manifest(DATA, change.added)
            for manifest, paths in merged(new, listed, source, metadata.properties):
                writer.add(manifest, change.partitioning.summaries(manifest.entries))
                replaced |= paths
            for each in listed:
                if each["manifest_path"] not in replaced:
                    writer.keep(each)
        else:
            if change.added:
                made = change.partitioning.manifest(DATA, change.added)
                writer.add(made, change.partitioning.summaries(made.entries))
            self._rewrite(source, listed, table, writer, change)
        operation = change.operation
        snapshot = writer.finish(operation, self.properties | writer.summary.fields(parent, writer.manifests))
        return ChangeReport(
            operation,
            snapshot["snapshot-id"],
            len(change.added),
            sum(each.file["record_count"] for each in change.added),
            sum(each.file["file_size_in_bytes"] for each in change.added),
            len(change.removed),
            change.deleted_rows,
        )

    def _rewrite(
        self, source: SnapshotFiles, manifests: list[Any], table: Any, writer: SnapshotWriter, change: RowChange
    ) -> None:
        """Keep the manifests of the parent, without removed files, and write the deletion vectors."""
        touched = change.removed | change.deleted.keys()
        left, owners = set(touched), _Owners()
        for listed in manifests:
            manifest = source.manifest(listed)
            going = set()
            for each in manifest.entries:
                if not each.is_live:
                    continue
                if listed["content"] == DATA:
                    if each.path in change.removed:
                        going.add(id(each))
                    elif each.path in change.deleted:
                        owners[each.path] = (manifest, each)
                    left.discard(each.path)
                elif each.file.get("referenced_data_file") in touched:
                    going.add(id(each))
            if not going:
                writer.keep(listed)
                continue
            entries = list(existing(manifest))
            for each in entries:
                if id(each) in going:
                    each.status = DELETED
                    writer.summary.remove(each.file, manifest.spec_id)
            writer.add(manifest.like(entries), listed.get("partitions"), listed.get("first_row_id"))
        if left:
            raise FormatError(
                f"{self._catalog.name}: {min(left)} is to be changed, and no manifest of the newest snapshot has it"
            )
        if change.deleted:
            self._add_vectors(table, writer, change, owners)

    def _add_vectors(self, table: Any, writer: SnapshotWriter, change: RowChange, owners: _Owners) -> None:
        """Write all deletion vectors into one Puffin file, and a manifest for each partition spec."""
        manifests: dict[int, Manifest] = {}
        for file in vector_files(sorted(change.deleted.items()), writer.files):
            manifest, owner = owners[file["referenced_data_file"]]
            entry = ManifestEntry(ADDED, writer.snapshot_id, None, None, {**file, "partition": owner.file["partition"]})
            writer.summary.add(entry.file, manifest.spec_id)
            manifests.setdefault(manifest.spec_id, manifest.like([], DELETES)).entries.append(entry)
        for spec_id, made in manifests.items():
            partitioning = Partitioning(table.table.specs()[spec_id], table.schema)
            writer.add(made, partitioning.summaries(made.entries))


def check_still_fits(table: Any, layout: TableLayout) -> None:
    """Raise a ConflictError if the table now requires a column that the new files lack."""
    known = {each.field_id for each in layout.schema.fields}
    for each in table.schema.fields:
        if each.required and each.initial_default is None and each.field_id not in known:
            raise ConflictError(
                f"the table now has the required column {each.name} while the rows were written: write them again, "
                "with it"
            )


def merged(
    new: Manifest, listed: list[dict[str, Any]], source: SnapshotFiles, properties: Mapping[str, str]
) -> Iterator[tuple[Manifest, set[str]]]:
    """Manifests to write, each with the paths of those that it replaces; the first has the new entries.

    Parameters
    ----------
    new : Manifest
        Manifest of the appended files.
    listed : list of dict
        The manifests of the parent snapshot, the newest first.
    source : SnapshotFiles
        Reads them.
    properties : mapping of str to str
        Of the table.

    Raises
    ------
    ValueError
        A property is not a number.
    """
    alike = [each for each in listed if each["content"] == DATA and each["partition_spec_id"] == new.spec_id]
    target = target_length(properties)
    bins = ListPacker[Any](target, 1, False).pack_end(alike, lambda each: each["manifest_length"])
    if not bins or sum(each["manifest_length"] for each in bins[0]) >= target:
        # The new entries are added to the newest group.
        bins = [[], *bins]
    enabled = properties.get(_ENABLED, "true").lower() == "true"
    least = max(2, number_property(properties, _COUNT, _USUAL_COUNT))
    for number, each in enumerate(bins):
        entries, replaced = list(new.entries) if number == 0 else [], set[str]()
        if enabled and len(each) + (number == 0) >= least:
            each = each[::-1]
            for of, manifest in zip(each, in_parallel(source.manifest, each, SMALL_FILES_AT_ONCE), strict=True):
                # A column with a changed type has another encoding.
                if shape_of(manifest.partition) == shape_of(new.partition):
                    entries += existing(manifest)
                    replaced.add(of["manifest_path"])
        if entries:
            yield new.like(entries), replaced


def target_length(properties: Mapping[str, str]) -> int:
    """Return how many stored bytes a manifest should have; a ValueError if the property is not a number."""
    return number_property(properties, _SIZE, _USUAL_SIZE)


def existing(manifest: Manifest) -> Iterator[ManifestEntry]:
    """Return the live entries of a manifest, to be written again as they are."""
    for each in manifest.entries:
        if each.is_live:
            each.status = EXISTING
            yield each


def shape_of(partition: Any) -> Any:
    """Return an Avro schema without the parts that do not affect values."""
    if isinstance(partition, list):
        return [shape_of(each) for each in partition]
    if isinstance(partition, dict):
        return {name: shape_of(each) for name, each in partition.items() if name not in ("name", "doc", "default")}
    return partition
