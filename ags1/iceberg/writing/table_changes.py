"""The methods of an open table that change its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.iceberg.writing.change import ChangeReport, WriteTarget


class TableChanges:
    """Changes to the rows of a table that was opened through a catalog.

    Each change is one snapshot. An impossible change is refused before anything is written. If another writer commits
    first, the change is made again from the newest state, as the table's properties ``commit.retry.*`` say; then a
    ConflictError is raised. The table object has the new state afterwards.

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
        from ags1.iceberg.writing.upserting import upsert

        return upsert(self._target(ref, snapshot_properties), data, on)

    def _target(self, ref: str, snapshot_properties: Mapping[str, str] | None) -> WriteTarget:
        from ags1.iceberg.writing.change import WriteTarget

        return WriteTarget(self, ref, snapshot_properties)
