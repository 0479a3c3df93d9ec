"""What a table's rows can be changed by: the methods of an open table that write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.iceberg.writing.change import ChangeReport, WriteTarget

__all__ = ["TableChanges"]


class TableChanges:
    """Changes of the rows of a table that was opened through a catalog.

    Each is one snapshot. What cannot be done is refused before anything is written. If somebody else commits
    meanwhile, the change is made again from the newest state, a few times; then it is a ConflictError. The table has
    the new state afterwards.

    Notes
    -----
    Rows come as a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars data frame, or any object with
    ``__arrow_c_stream__``. A reader is written as it comes, in bounded memory.

    All of them raise

    ValueError
        The table was opened without a catalog; no such branch, or a tag; rows that do not fit the schema.
    UnsupportedError
        The table is not encrypted, or has what cannot be written here.
    ConflictError
        Others committed each time. Nothing was changed.
    KeyAccessError
        The KMS did not wrap a key, or unwrap one.
    OSError
        Storage or catalog failed. The message says if it is not known whether the change was made.
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
        """Delete the rows that pass a filter, and add others, which need not pass it.

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
        """Replace the partitions that the new rows are in, as Spark's dynamic overwrite does.

        Files of older partition specs stay. A table without partitions is replaced as a whole. The parameters are those
        of :meth:`append`.
        """
        from ags1.iceberg.writing.operations import overwrite_partitions

        return overwrite_partitions(self._target(ref, snapshot_properties), data)

    def delete(
        self, row_filter: Any, *, ref: str = "main", snapshot_properties: Mapping[str, str] | None = None
    ) -> ChangeReport:
        """Delete exactly the rows that a scan with this filter shows.

        Files go as a whole where metadata says that all their rows pass; others get a deletion vector.

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
        self,
        data: Any,
        on: Sequence[str],
        *,
        ref: str = "main",
        snapshot_properties: Mapping[str, str] | None = None,
    ) -> ChangeReport:
        """Replace rows by others with the same key, and add those whose key is not there.

        As Spark's ``MERGE ... WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *``: a key with a null in it
        is like no other, NaN equals NaN, and a replaced row keeps its ``_row_id``.

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
            `data` has a key twice; a column that is no key.
        """
        from ags1.iceberg.writing.upserting import upsert

        return upsert(self._target(ref, snapshot_properties), data, on)

    def _target(self, ref: str, snapshot_properties: Mapping[str, str] | None) -> WriteTarget:
        from ags1.iceberg.writing.change import WriteTarget

        return WriteTarget(self, ref, snapshot_properties)
