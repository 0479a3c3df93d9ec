"""The methods of an open table that change its rows, or its files and none of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.iceberg.maintenance.maintaining import MaintenancePolicy
    from ags1.iceberg.maintenance.reports import CompactionReport, MaintenanceReport, ManifestReport
    from ags1.iceberg.writing.change import ChangeReport, WriteTarget
    from ags1.streams.files import Progress


class TableChanges:
    """Changes to the rows of a table that was opened through a catalog, and its maintenance.

    Each change of rows is one snapshot. An impossible change is refused before anything is written. If another writer
    commits first, the change is made again from the newest state, as the table's properties ``commit.retry.*`` say;
    then a ConflictError is raised. The table object has the new state afterwards.

    Notes
    -----
    Rows come as a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars data frame, or any object with
    ``__arrow_c_stream__``. A reader is consumed batch by batch, in bounded memory.

    All methods raise

    ValueError
        The table was opened without a catalog; the branch does not exist, or is a tag; the rows do not fit the schema.
    UnsupportedError
        The table is not encrypted, or uses a feature that cannot be written here.
    ConflictError
        Another writer committed first at each attempt. Nothing was changed.
    KeyAccessError
        The KMS did not wrap a key, or unwrap one.
    OSError
        The storage or the catalog failed. The message says if it is unknown whether the change was made.
    """

    def append(
        self, data: Any, *, ref: str = "main", snapshot_properties: Mapping[str, str] | None = None
    ) -> ChangeReport:
        """Add rows.

        Parameters
        ----------
        data : pyarrow.Table or another source of rows
        ref : str
            A branch.
        snapshot_properties : mapping of str to str, optional
            Further fields of the snapshot's summary.

        Returns
        -------
        ChangeReport

        Examples
        --------
        >>> table.append(rows).added_rows
        """
        from ags1.iceberg.writing.operations import append

        return append(self._target(ref, snapshot_properties), data)

    def overwrite(
        self,
        data: Any,
        row_filter: Any = None,
        *,
        ref: str = "main",
        snapshot_properties: Mapping[str, str] | None = None,
    ) -> ChangeReport:
        """Delete the rows that pass a filter, and add other rows, which need not pass it.

        Parameters
        ----------
        data, ref, snapshot_properties
            As for :meth:`append`.
        row_filter : str or pyiceberg expression, optional
            As for :meth:`EncryptedTable.scan`; without it, all rows are replaced.
        """
        from ags1.iceberg.writing.operations import overwrite

        return overwrite(self._target(ref, snapshot_properties), data, row_filter)

    def overwrite_partitions(
        self, data: Any, *, ref: str = "main", snapshot_properties: Mapping[str, str] | None = None
    ) -> ChangeReport:
        """Replace the partitions of the new rows, as Spark's dynamic overwrite does.

        Files of older partition specs stay. All rows of an unpartitioned table are replaced. The parameters are those
        of :meth:`append`.
        """
        from ags1.iceberg.writing.operations import overwrite_partitions

        return overwrite_partitions(self._target(ref, snapshot_properties), data)

    def delete(
        self, row_filter: Any, *, ref: str = "main", snapshot_properties: Mapping[str, str] | None = None
    ) -> ChangeReport:
        """Delete exactly the rows that a scan with this filter returns.

        A file is removed as a whole if the metadata proves that all its rows pass; other files get a deletion vector.

        Parameters
        ----------
        row_filter : str or pyiceberg expression
            As for :meth:`EncryptedTable.scan`.
        ref, snapshot_properties
            As for :meth:`append`.

        Examples
        --------
        >>> table.delete("amount < 0").deleted_rows
        """
        from ags1.iceberg.writing.operations import delete

        return delete(self._target(ref, snapshot_properties), row_filter)

    def upsert(
        self, data: Any, on: Sequence[str], *, ref: str = "main", snapshot_properties: Mapping[str, str] | None = None
    ) -> ChangeReport:
        """Replace rows that have the same key, and add rows whose key is new.

        As Spark's ``MERGE ... WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *``: a key that contains null
        matches no other, NaN equals NaN, and a replaced row keeps its ``_row_id``.

        Parameters
        ----------
        data : pyarrow.Table or another source of rows
            All of it is held in memory.
        on : sequence of str
            The columns of the key.
        ref, snapshot_properties
            As for :meth:`append`.

        Raises
        ------
        ValueError
            `data` has a key twice; a column cannot be a key.
        """
        from ags1.iceberg.writing.operations import upsert

        return upsert(self._target(ref, snapshot_properties), data, on)

    def compact(
        self,
        *,
        target_bytes: int | None = None,
        where: Any = None,
        sort_by: Sequence[str] | None = None,
        min_input_files: int = 5,
        rewrite_all: bool = False,
        ref: str = "main",
        snapshot_properties: Mapping[str, str] | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> CompactionReport:
        """Write small files, and files with deletes, again as fewer files with the same rows.

        As Spark's ``rewrite_data_files``: files below 75 % or above 180 % of the target size are chosen, files of which
        30 % of the rows are deleted, and files with equality deletes or position delete files. Every row keeps its
        ``_row_id`` and its ``_last_updated_sequence_number``. Each partition is compacted on its own; files of older
        partition specs get the current one. What others append meanwhile is kept. A file that others change meanwhile
        is left as it is, and named in the report.

        The old files stay until their snapshots are expired. A killed run leaves files that no snapshot names, which
        :func:`ags1.iceberg.clean` removes.

        Parameters
        ----------
        target_bytes : int, optional
            Size of a new file; by default the table property ``write.target-file-size-bytes``, else 512 MiB.
        where : str or pyiceberg expression, optional
            Only files that may have rows that pass this filter, as for :meth:`EncryptedTable.scan`; all rows of these
            files are kept.
        sort_by : sequence of str, optional
            Sort the rows of each new file, as ``sort_order`` of :func:`create_table`: ``["day", "id desc"]``.
        min_input_files : int
            Small files of a partition that do not fill a new file are written again if there are so many.
        rewrite_all : bool
            Write files of the right size without deletes again too.
        ref, snapshot_properties
            As for :meth:`append`.
        dry_run : bool
            Only report what would be done.
        progress : callable, optional
            Called as ``progress(done, total)`` with stored bytes of the old files, from any thread, never by two at
            once. An exception from it stops the work.

        Returns
        -------
        CompactionReport

        Raises
        ------
        UnsupportedError
            A file, or a type of a column, cannot be written here.

        Examples
        --------
        >>> table.compact().added_files
        """
        from ags1.iceberg.maintenance.compaction import CompactionOptions, compact

        options = CompactionOptions(target_bytes, where, sort_by, min_input_files, rewrite_all, dry_run)
        return compact(self._target(ref, snapshot_properties), options, progress)

    def rewrite_manifests(
        self, *, ref: str = "main", snapshot_properties: Mapping[str, str] | None = None, dry_run: bool = False
    ) -> ManifestReport:
        """Write many small manifests again as few, and leave out delete files that delete nothing any more.

        Neighbours of one partition spec become manifests of about ``commit.manifest.target-size-bytes``, by default 8
        MiB. Files keep their sequence numbers and rows their numbers. New manifests are encrypted, also those that take
        the place of plaintext ones, which Iceberg Java before 1.12 left; to read these, the table must be open with
        ``allow_plaintext=True``. It is one snapshot, or none if nothing would change.

        Parameters
        ----------
        ref, snapshot_properties
            As for :meth:`append`.
        dry_run : bool
            Only report what would be done.

        Returns
        -------
        ManifestReport
        """
        from ags1.iceberg.maintenance.manifests import rewrite_manifests

        return rewrite_manifests(self._target(ref, snapshot_properties), dry_run=dry_run)

    def maintain(
        self, policy: MaintenancePolicy | None = None, *, dry_run: bool = False, progress: Progress | None = None
    ) -> MaintenanceReport:
        """Compact, write manifests again, expire old snapshots with their keys, and remove orphans, in this order.

        Each step is committed on its own, and none loses a row beside other writers. After an error or a kill, run it
        again: it does what is left.

        Parameters
        ----------
        policy : MaintenancePolicy, optional
            By default all steps: snapshots older than 5 days are removed, and files that nothing names after 3 days.
        dry_run : bool
            Only report what would be done.
        progress : callable, optional
            As for :meth:`compact`.

        Returns
        -------
        MaintenanceReport

        Raises
        ------
        ConflictError
            A conversion of the table is under way, or was killed and not finished.

        Examples
        --------
        >>> print(table.maintain(dry_run=True))
        """
        from ags1.iceberg.maintenance.maintaining import MaintenancePolicy, maintain

        return maintain(self, MaintenancePolicy() if policy is None else policy, dry_run=dry_run, progress=progress)

    def _target(self, ref: str, snapshot_properties: Mapping[str, str] | None) -> WriteTarget:
        from ags1.iceberg.writing.change import WriteTarget

        return WriteTarget(self, ref, snapshot_properties)
