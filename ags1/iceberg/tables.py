"""Encrypted Iceberg tables, opened by catalog or metadata file.

PyIceberg parses the metadata and binds the columns of a scan. ags1 supplies the keys, plans the scan and reads the
files.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import DataScan, IncrementalAppendScan, StaticTable

from ags1.errors import without_secrets
from ags1.expected import Expected
from ags1.iceberg.catalogs import CatalogTable, TableState
from ags1.iceberg.files.file_io import EncryptedFileIO, client_of, file_io_at
from ags1.iceberg.metadata.locations import io_properties_of, moving
from ags1.iceberg.metadata.pyiceberg_view import parsed_metadata, view_of
from ags1.iceberg.scan.planning import appends_between
from ags1.iceberg.scan.projection import LINEAGE
from ags1.iceberg.scan.row_filter import RowFilter, parsed
from ags1.iceberg.scan.table_scan import EncryptedTableScan
from ags1.iceberg.table_changes import TableChanges
from ags1.support.arguments import spelled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.iceberg.walk.table_tree import TreeNode
    from ags1.iceberg.walk.table_walk import Snapshots, TableWalk
    from ags1.streams.files import Progress
    from ags1.support.reports import FindingsReport, VerifyReport

__all__ = ["EncryptedTable", "EncryptedTableScan", "load_table", "open_table"]


def open_table(
    metadata_location: str,
    kms: Any,
    *,
    properties: Mapping[str, str] | None = None,
    length_policy: str = "trusted",
    allow_plaintext: bool = False,
    table_key_id: str | None = None,
    metadata_hash: str | None = None,
    allowed_locations: Sequence[str] | None = None,
    moved_from: str | None = None,
) -> EncryptedTable:
    """Open an encrypted Iceberg table.

    Parameters
    ----------
    metadata_location : str
        Path or URL of the table's current ``metadata.json``; a catalog knows it.
    kms : object or str
        A client of :mod:`ags1.kms`, any object with ``unwrap_key``, or a URL for :func:`ags1.kms.load`.
    properties : mapping, optional
        Endpoints and credentials of the storage, under PyIceberg's names, such as ``s3.endpoint``, or those of
        :mod:`ags1.storage`, such as ``endpoint``.
    length_policy : {"trusted", "metadata-hint", "file"}
        How to treat AGS1 files without a length in their key metadata, as iceberg-rust writes them: refuse them; accept
        them if an authenticated file above confirms their size; accept them, each with an UntrustedLengthWarning,
        unless a file above contradicts their size.
    allow_plaintext : bool
        Read plaintext files too: those of a table that is not encrypted, or from before it was encrypted.
    table_key_id : str, optional
        The master key that must be at the top of the key hierarchy, known from a trusted source.
    metadata_hash : str, optional
        Authenticates the metadata file, which is otherwise not authenticated: standard base64 of the SHA-256 of its
        JSON text, uncompressed, as in Hive's table parameter ``metadata_hash``.
    allowed_locations : sequence of str, optional
        Further directories that the table's files may be in: paths or URLs. Without it, a file outside of the table's
        own directory, or of those that the catalog names, is refused, whatever the metadata file says: nothing protects
        that, and it could name any bucket. Tables need it that have files of others (``add_files``), or a
        ``write.data.path`` elsewhere that the catalog does not store.
    moved_from : str, optional
        For a copy of a table, such as a backup: the directory that the table was in, as its metadata has it. Every file
        that it names below that directory is read below the directory of the copy, and never in the old one. A copy is
        only read; :func:`relocate_table` makes a table of it.

    Returns
    -------
    EncryptedTable

    Raises
    ------
    AuthenticationError
        The metadata file has another hash.
    KeyAccessError
        The table is under another master key than `table_key_id`, or not encrypted.
    FormatError
        Not the metadata of a table.
    UnsupportedError
        The table has a format version or a type that PyIceberg does not read.
    OSError
        It cannot be read.
    ValueError
        `metadata_hash` is not a hash; a property would have no effect.

    Examples
    --------
    >>> table = ags1.iceberg.open_table("s3://lake/db/t/metadata/00007.metadata.json", kms="aws:")
    >>> table.scan(columns=["id", "amount"], row_filter="amount > 10").to_arrow()
    """
    moved = moving(moved_from, metadata_location)
    expected = Expected(table_key_id, metadata_hash, allow_plaintext, length_policy, allowed_locations, moved)
    given = io_properties_of(properties)
    file_io = EncryptedFileIO(given, kms=client_of(kms), expected=expected.within(given))
    return EncryptedTable(metadata_location, file_io)


def load_table(
    catalog: Any,
    identifier: str | tuple[str, ...],
    *,
    kms: Any,
    properties: Mapping[str, str] | None = None,
    length_policy: str = "trusted",
    allow_plaintext: bool = False,
    table_key_id: str | None = None,
    metadata_hash: str | None = None,
    allowed_locations: Sequence[str] | None = None,
    moved_from: str | None = None,
) -> EncryptedTable:
    """Open an encrypted Iceberg table from a catalog.

    Parameters
    ----------
    catalog : pyiceberg.catalog.Catalog, str or None
        A catalog of PyIceberg's: Hive, Glue, SQL or REST; its name in PyIceberg's configuration; or None for a table
        without a catalog.
    identifier : str or tuple of str
        ``"db.table"``; without a catalog, path or URL of a metadata file or of the table's directory.
    properties : mapping, optional
        As for :func:`open_table`, in addition to those of the catalog.
    table_key_id : str, optional
        As for :func:`open_table`, for catalogs that do not store it; a Hive metastore does.
    metadata_hash : str, optional
        As for :func:`open_table`. It stays pinned: the table's own commits go on from it, and what others commit is
        refused with an AuthenticationError. Not for REST catalogs.
    kms, length_policy, allow_plaintext, allowed_locations, moved_from
        As for :func:`open_table`; a table of a catalog is not moved.

    Raises
    ------
    AuthenticationError
        The metadata file is not the one that the catalog names.
    FileNotFoundError
        The catalog has no such table.
    FormatError, KeyAccessError, UnsupportedError, OSError, ValueError
        As for :func:`open_table`.

    Examples
    --------
    >>> table = ags1.iceberg.load_table(load_catalog("lake"), "db.events", kms="aws:")
    >>> table.scan(columns=["id", "amount"], row_filter="amount > 10").to_arrow()
    """
    from ags1.iceberg.catalogs import catalog_table

    moved = None if moved_from is None else moving(moved_from, str(identifier))
    expected = Expected(table_key_id, metadata_hash, allow_plaintext, length_policy, allowed_locations, moved)
    found = catalog_table(catalog, identifier, storage_options=properties, expected=expected)
    state = found.load()
    file_io = file_io_at(state, found.io_properties, client_of(kms), found.expected)
    return EncryptedTable(state.metadata_location, file_io, found)


class EncryptedTable(TableChanges):
    """An open table. :func:`load_table` and :func:`open_table` make it.

    Attributes
    ----------
    metadata_location : str
    io : EncryptedFileIO
        Opens the table's files.
    table : pyiceberg.table.StaticTable
        PyIceberg's own view of the table: schemas, snapshots, partition specs, and ``inspect``. Of a table from a
        catalog, ``update_schema()``, ``update_spec()``, ``update_sort_order()``, ``manage_snapshots()`` and
        ``transaction().set_properties()`` are committed there; rows and keys are changed by the methods here and by
        the functions of :mod:`ags1.iceberg`.
    document : Document
        The table's metadata as in its file, with the fields that PyIceberg's view leaves out.
    catalog_table : CatalogTable or None
        The table in its catalog, needed for changes; None if the table was opened by its metadata file.
    """

    def __init__(
        self, metadata_location: str, file_io: EncryptedFileIO, catalog_table: CatalogTable | None = None
    ) -> None:
        self.metadata_location = metadata_location
        self.io = file_io
        self.catalog_table = catalog_table
        self.document = document = file_io.read_metadata(metadata_location)
        self._snapshots = document.snapshots()
        self.table: StaticTable = self._view()

    def __repr__(self) -> str:
        return f"<ags1.iceberg.EncryptedTable {without_secrets(self.metadata_location)}>"

    def at(self, state: TableState) -> EncryptedTable:
        """Return the table in a given state, with the same KMS and properties.

        Parameters
        ----------
        state : TableState
            From its catalog, which may store the master key and the hash of the metadata file.
        """
        # A catalog issues new credentials every time, and its table knows what was committed since.
        table = self.catalog_table
        renewed, expected = ({}, self.io.expected) if table is None else (table.io_properties, table.expected)
        file_io = file_io_at(state, {**self.io.properties, **renewed}, self.io.kms, expected)
        return EncryptedTable(state.metadata_location, file_io, self.catalog_table)

    def refresh(self, state: TableState | None = None) -> EncryptedTable:
        """Load the newest state from the catalog; return the table itself.

        Parameters
        ----------
        state : TableState, optional
            The newest state, if already loaded.

        Raises
        ------
        ValueError
            The table was opened by its metadata file, so the newest state is unknown.
        FormatError, OSError
            The catalog or the metadata file cannot be read.
        """
        if self.catalog_table is None:
            raise ValueError(
                f"{without_secrets(self.metadata_location)}: the table was opened by its metadata file, and no catalog "
                f"says which is the newest: open it with {spelled('load_table')}"
            )
        self.__dict__.update(self.at(self.catalog_table.load() if state is None else state).__dict__)
        # What PyIceberg changes, this table shows.
        self.table = self._view(self.table.metadata)
        return self

    def _view(self, metadata: Any = None) -> StaticTable:
        newest = None if self.catalog_table is None else self._newest
        named = None if self.catalog_table is None else self.catalog_table.identifier
        name = named or ("static-table", self.metadata_location)
        metadata = parsed_metadata(self.metadata_location, self.document) if metadata is None else metadata
        return view_of(self.metadata_location, metadata, self.io, newest, name)

    def _newest(self, requirements: Any, updates: Any) -> tuple[Any, str, EncryptedFileIO]:
        """Commit what PyIceberg has changed, if anything; return the newest metadata, where it is, and its FileIO."""
        from ags1.iceberg.writing.pyiceberg_changes import commit_changes

        assert self.catalog_table is not None
        self.refresh(commit_changes(self.catalog_table, requirements, updates) if updates else None)
        return self.table.metadata, self.metadata_location, self.io

    @property
    def metadata_hash(self) -> str:
        """Hash of the table's metadata file. Store it elsewhere, and pin it with ``open_table(metadata_hash=...)``."""
        return self.document.hash

    @property
    def refs(self) -> dict[str, int]:
        """Return the snapshots of the branches and tags, by name."""
        return {name: self._snapshots.of_ref(name) for name in self._snapshots.refs}

    @property
    def schema(self) -> Any:
        """Return the current schema as PyIceberg's object."""
        return self.table.schema()

    def snapshots(self) -> list[Any]:
        """Return all snapshots as PyIceberg's objects."""
        return list(self.table.metadata.snapshots)

    def scan(
        self,
        *,
        columns: Sequence[str] | None = None,
        row_filter: Any = None,
        snapshot_id: int | None = None,
        as_of: datetime.datetime | int | None = None,
        ref: str | None = None,
        from_snapshot: int | None = None,
        to_snapshot: int | None = None,
        case_sensitive: bool = True,
        limit: int | None = None,
    ) -> EncryptedTableScan:
        """Return a scan of the chosen rows and columns.

        Parameters
        ----------
        columns : sequence of str, optional
            Columns in this order; by default all. A part of a struct is returned as the struct with only that part.
            Tables of format version 3 also have ``_row_id`` and ``_last_updated_sequence_number``, and all tables have
            ``_pos``, the position of the row in its file; these are returned only if named. In files from before
            version 3 the first two are null. A variant is a struct of its two binaries, ``metadata`` and ``value``.
        row_filter : str or pyiceberg expression, optional
            An expression of PyIceberg, or text that PyIceberg parses: ``"amount > 10 and country = 'CH'"``. Put a text
            in single quotes, and a name with characters other than letters, digits and ``_`` in double quotes.
        snapshot_id : int, optional
            By default the current snapshot.
        as_of : datetime or int, optional
            The snapshot that was current at this time: a datetime (UTC if naive), or milliseconds since 1970.
        ref : str, optional
            The newest snapshot of a branch, or the snapshot of a tag.
        from_snapshot : int, optional
            Only the rows of appends after this snapshot, as Spark's ``start-snapshot-id``. The snapshot may have
            expired if the next one has not. Snapshots that only rewrite files are left out. A snapshot that changes or
            deletes rows is refused.
        to_snapshot : int, optional
            The last snapshot of these, as Spark's ``end-snapshot-id``; by default the current one.
        case_sensitive : bool
            Whether column names are case-sensitive.
        limit : int, optional
            Maximum number of rows.

        Raises
        ------
        ValueError
            The snapshot, branch, tag or column does not exist; a snapshot was given in two ways; rows were changed or
            deleted between `from_snapshot` and `to_snapshot`, or the one was not made from the other; the filter does
            not fit the columns, or is not supported.

        Notes
        -----
        An older snapshot, or a tag, has the columns and names of its own schema, in `row_filter` too. A branch has the
        table's current columns, and so have appended rows.

        A filter may be on ``_row_id``, ``_last_updated_sequence_number`` and ``_pos`` too. The rows that were added or
        changed after a snapshot have a higher ``_last_updated_sequence_number`` than its ``sequence_number``; files
        without such rows are not opened.

        A filter means what PyIceberg means by it. Null passes ``is null`` and ``not in``, and NaN passes ``is nan``,
        ``!=`` and ``not in``; neither passes another comparison, nor does the opposite of one. A value is converted to
        the type of its column. A ValueError refuses a value that this would change, but for rounding to a float.
        """
        if limit is not None and limit < 0:
            raise ValueError(f"limit must not be negative, got {limit}")
        if columns is not None and (isinstance(columns, str) or not columns):
            raise ValueError("columns must be a sequence of at least one name")
        if sum(each is not None for each in (snapshot_id, as_of, ref, from_snapshot)) > 1:
            raise ValueError(
                f"give one of {spelled('snapshot_id')}, {spelled('as_of')}, {spelled('ref')} and "
                f"{spelled('from_snapshot')}"
            )
        if to_snapshot is not None and from_snapshot is None:
            raise ValueError(
                f"give {spelled('from_snapshot')} with {spelled('to_snapshot')}, or {spelled('snapshot_id')} for all "
                "rows of a snapshot"
            )
        metadata = appends = None
        if from_snapshot is not None:
            appends = appends_between(self.table.metadata, from_snapshot, to_snapshot)
        if as_of is not None:
            snapshot_id = self._snapshot_as_of(as_of)
        elif ref is not None:
            snapshot_id = self._snapshots.of_ref(ref)
            if self._snapshots.is_branch(ref):
                metadata = self._metadata_of_branch(snapshot_id)
        elif snapshot_id is not None and self.table.metadata.snapshot_by_id(snapshot_id) is None:
            known = ", ".join(str(each.snapshot_id) for each in self.snapshots()) or "none"
            raise ValueError(f"the table has no snapshot {snapshot_id}; it has {known}")
        if metadata is None:
            metadata = self._metadata_at(snapshot_id)
        names = set(metadata.schema().column_names)
        lineage = {each for each in columns or () if each in LINEAGE and each not in names}
        given: dict[str, Any] = {
            "table_metadata": metadata,
            "io": self.io,
            "row_filter": parsed(row_filter) if isinstance(row_filter, str) else row_filter or AlwaysTrue(),
            "selected_fields": ("*",) if columns is None else tuple(each for each in columns if each not in lineage),
            "case_sensitive": case_sensitive,
            "limit": limit,
        }
        plan: Any = DataScan(**given, snapshot_id=snapshot_id)
        if from_snapshot is not None:
            plan = IncrementalAppendScan(**given, from_snapshot_id=from_snapshot, to_snapshot_id=to_snapshot)
        # Checked now, so that wrong arguments are not reported as a damaged table.
        checked = None
        if not isinstance(plan.row_filter, AlwaysTrue):
            checked = RowFilter(plan.row_filter, metadata.schema(), case_sensitive)
        return EncryptedTableScan(plan, checked, columns, lineage, appends)

    def _metadata_of_branch(self, snapshot_id: int) -> Any:
        """Return the table's metadata, with the current schema for a snapshot."""
        metadata = self.table.metadata
        snapshots = [
            each.model_copy(update={"schema_id": metadata.current_schema_id})
            if each.snapshot_id == snapshot_id
            else each
            for each in metadata.snapshots
        ]
        return metadata.model_copy(update={"snapshots": snapshots})

    def _metadata_at(self, snapshot_id: int | None) -> Any:
        """Return the table's metadata with a snapshot's schema, which PyIceberg uses to select columns but not rows."""
        metadata = self.table.metadata
        snapshot = None if snapshot_id is None else metadata.snapshot_by_id(snapshot_id)
        if snapshot is None or snapshot.schema_id not in {each.schema_id for each in metadata.schemas}:
            return metadata
        return metadata.model_copy(update={"current_schema_id": snapshot.schema_id})

    def files(self, snapshot_id: Snapshots = None, *, ref: str | None = None, sizes: bool = False) -> pyarrow.Table:
        """List the table's files, one row each: their encryption, their length, and the snapshots that need them.

        Parameters
        ----------
        snapshot_id : int, "all" or None
            Files of one snapshot, of all, or of the current one.
        ref : str, optional
            Files of a branch or a tag, instead of `snapshot_id`.
        sizes : bool
            Request the current stored size of every file.

        Returns
        -------
        pyarrow.Table
            ``path``; ``kind`` ("manifest list", "manifest", "data", "position deletes", "equality deletes", "deletion
            vectors"); ``file_format``; ``encryption`` ("AGS1", "Parquet AES_GCM_V1 uniform", "plaintext");
            ``key_bits``; ``stored_length``, trusted, from the key metadata; ``file_size``, from the file above;
            ``physical_size``, if `sizes`, null for a missing file; ``record_count``, for manifests the number of
            entries; ``key_id`` and ``kek_id``, for manifest lists; ``snapshot_ids``, among the requested snapshots.

        Raises
        ------
        FormatError, KeyAccessError, AuthenticationError, OSError
            The metadata file, a manifest list or a manifest cannot be read. No file is left out silently.
        ValueError
            The snapshot, branch or tag does not exist, or both `snapshot_id` and `ref` were given.
        """
        from ags1.iceberg.walk.table_walk import files_table

        if ref is not None:
            if snapshot_id is not None:
                raise ValueError("give snapshot_id or ref, not both")
            snapshot_id = self._snapshots.of_ref(ref)
        return files_table(self._walk(snapshot_id), self.io, sizes=sizes)

    def tree(self, snapshot_id: Snapshots = "all") -> TreeNode:
        """Return the table as a tree: names of keys, snapshots, manifests, files, and what cannot be read.

        Parameters
        ----------
        snapshot_id : int, "all" or None
            One snapshot, all, or the current one.

        Raises
        ------
        FormatError, OSError
            The metadata file cannot be read.
        ValueError
            No such snapshot.
        """
        from ags1.iceberg.walk.table_tree import table_tree

        return table_tree(self._walk(snapshot_id))

    def audit(self, snapshot_id: Snapshots = "all") -> FindingsReport:
        """Find faults in the table's encryption, from its metadata and from the recorded facts about its files.

        Data files are not read; :meth:`verify` reads them. Files that cannot be opened are reported; the audit
        continues. What master keys other than the table's own still open is found out by trying them, if the table was
        opened by :func:`load_table`.

        Parameters
        ----------
        snapshot_id : int, "all" or None
            Files of one snapshot, of all, or of the current one. Keys are checked in any case.

        Returns
        -------
        FindingsReport
            `checked` has "snapshots", "keys" and "files", those that were looked at, manifest lists and manifests among
            them; and "unread_manifests", lists among them, that could not be read, so that what they name was not
            looked at. `facts` has "old_keys", what other master keys still open, an OldKeyReport, if that could be
            tried. It does not count for `ok`. Warnings and notes do not count either: notes are worth knowing, such as
            what ``prune`` would drop.

            The codes. Of the table: "format-version", "table-not-encrypted", "no-master-key-property",
            "data-key-length", "statistics-plaintext", "statistics-key-leaked". Of snapshots: "snapshot-without-key",
            "key-missing", "no-manifest-list", "partition-in-summary". Of keys: "key-does-not-open", "key-unused",
            "kek-does-not-open", "kek-missing", "kek-unused", "kek-orphaned", "kek-expired", "kek-from-the-future",
            "kek-without-timestamp", "kek-timestamp", "kek-other-master-key", "keys-not-judged". Of files:
            "file-plaintext", "file-format", "file-block-length", "file-without-length", "file-size",
            "file-size-in-manifest", "file-missing", "size-unreadable", "file-unreadable", "file-conflict",
            "key-length", "list-without-snapshot", "partition-in-path", "vector-outside".

        Raises
        ------
        FormatError, OSError
            The metadata file cannot be read.
        ValueError
            No such snapshot.
        """
        from ags1.iceberg.conversion.old_keys import audit_with_old_keys

        return audit_with_old_keys(self._walk(snapshot_id), self.io, self.catalog_table)

    def verify(
        self, snapshot_id: Snapshots = "all", *, progress: Progress | None = None, threads: int | None = None
    ) -> VerifyReport:
        """Authenticate every block and every module of the table's files, each file once, in little memory.

        A file that fails is reported, and the others are checked.

        Parameters
        ----------
        snapshot_id : int, "all" or None
            Files of one snapshot, of all, or of the current one.
        progress : callable, optional
            Called as ``progress(done, total)`` with stored bytes, from any thread, never by two at once. An exception
            from it stops the work.
        threads : int, optional
            Threads to use, for several files at once or within large ones; by default every usable CPU.

        Returns
        -------
        VerifyReport
            `checked` has "files", of which everything authenticated, manifest lists and manifests among them; "blocks"
            of AGS1; "modules" of Parquet; "bytes". `facts` has "snapshots" and "files", those that were followed, and
            "by_kind", the authentic files of each kind.

            A file that fails has one finding, by path within a kind, with the `details` "kind", "snapshot_ids", those
            that need the file, "error" (name of an exception) or "failed" (blocks or modules). The codes of errors:
            "damaged", "truncated", "missing", "key-missing", "unreadable", "unsupported", "no-manifest-list". Of
            violations: "table-not-encrypted", "not-protected" (Parquet with pages that are not), "plaintext", also
            where ``allow_plaintext=True`` allows such files. Of warnings: "untrusted-length", as the length policy
            allows; "contradiction", what is authentic and contradicts something else in the file; "file-of-original",
            read in the old place of a copied table, so that nothing is known of the copy's own. Of notes:
            "partition-in-path", "levels-without-tags" (version 2 pages of Parquet as parquet-java writes them).

        Raises
        ------
        FormatError, OSError
            The metadata file cannot be read.
        ValueError
            The snapshot does not exist, or `threads` is below 1.
        """
        from ags1.iceberg.walk.table_verification import verify_table

        return verify_table(self._walk(snapshot_id), self.io, progress=progress, threads=threads)

    def _walk(self, snapshot_id: Snapshots) -> TableWalk:
        from ags1.iceberg.walk.table_walk import walk

        return walk(self.metadata_location, self.io, snapshot_id)

    def _snapshot_as_of(self, as_of: datetime.datetime | int) -> int:
        if isinstance(as_of, datetime.datetime):
            moment = as_of if as_of.tzinfo is not None else as_of.replace(tzinfo=datetime.timezone.utc)
            milliseconds = int(moment.timestamp() * 1000)
        else:
            milliseconds = as_of
        snapshot = self.table.snapshot_as_of_timestamp(milliseconds)
        if snapshot is None:
            raise ValueError(f"the table had no snapshot at {as_of}")
        found: int = snapshot.snapshot_id
        return found
