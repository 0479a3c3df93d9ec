"""Scans of a table: rows and columns to read, and the result types."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

import pyarrow
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from ags1.iceberg.scan._reading import WAITING, EncryptedArrowScan, FileRows
from ags1.iceberg.scan.planning import ScanTask, plan_scan
from ags1.iceberg.scan.projection import LINEAGE
from ags1.iceberg.scan.row_filter import RowFilter

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pandas


class EncryptedTableScan:
    """Rows and columns to read, made by :meth:`EncryptedTable.scan`. Nothing is read before rows are requested.

    Attributes
    ----------
    plan : pyiceberg.table.DataScan or IncrementalAppendScan
        PyIceberg's scan, for methods that are missing here.
    schema : pyiceberg.schema.Schema
        Schema of the rows.
    """

    def __init__(
        self,
        plan: Any,
        row_filter: RowFilter,
        columns: Sequence[str] | None = None,
        lineage: Collection[str] = (),
        appends: Sequence[Any] | None = None,
    ) -> None:
        self.plan = plan
        self._filter, self._appends = row_filter, appends
        self.schema = _in_order(plan, columns, lineage)

    def plan_files(self) -> list[ScanTask]:
        """Return the data files to read, with the deletes that apply to them.

        A plan takes about 2 KiB of memory for each of these files, for any number of columns, and none for skipped
        files.

        Raises
        ------
        FormatError, AuthenticationError
            A manifest is damaged, or one of the files cannot be read. The message names it; no file is left out.
        KeyAccessError
            A key is not available, or a file is plaintext although it must be encrypted.
        """
        return plan_scan(self.plan, self._filter, self._appends)

    def _arrow_scan(self, *, narrow: bool = False) -> EncryptedArrowScan:
        plan = self.plan
        schema = self.schema
        if narrow:
            # Counting needs one column.
            simple = next((each.name for each in schema.fields if each.field_type.is_primitive), None)
            schema = schema if simple is None else schema.select(simple)
        row_filter = None if isinstance(plan.row_filter, AlwaysTrue) else self._filter
        return EncryptedArrowScan(plan.table_metadata, plan.io, schema, row_filter, plan.limit)

    def with_reserved(self, *field_ids: int, alone: bool = False) -> EncryptedTableScan:
        """Return the scan with reserved columns behind its own or alone, under names that no other column has."""
        made = copy(self)
        if alone:
            made.schema = Schema()
        for field in LINEAGE.values():
            if field.field_id not in field_ids:
                continue
            name = field.name
            while name in made.schema.column_names:
                name += "'"
            made.schema = Schema(*made.schema.fields, field.model_copy(update={"name": name}))
        return made

    def by_file(
        self, tasks: list[ScanTask], waiting: int = WAITING, row_groups: Mapping[str, Sequence[int]] | None = None
    ) -> Generator[FileRows, None, None]:
        """Return the rows of each task, in their order; `limit` is not applied.

        About `waiting` bytes of rows are read ahead. Of the Parquet files in `row_groups`, by path, only those row
        groups are read.
        """
        return self._arrow_scan().by_file(tasks, waiting, row_groups)

    def to_arrow(self) -> pyarrow.Table:
        """Return all rows."""
        return self._arrow_scan().to_table(self.plan_files())

    def to_record_batches(self) -> pyarrow.RecordBatchReader:
        """Return the rows batch by batch, in bounded memory: a few files are read at a time, in order."""
        schema = schema_to_pyarrow(self.schema, include_field_ids=False)
        batches: Iterator[Any] = self._arrow_scan().to_record_batches(self.plan_files())
        return pyarrow.RecordBatchReader.from_batches(schema, batches)

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """Return all rows as a pandas DataFrame; `options` are those of ``pyarrow.Table.to_pandas``."""
        return self.to_arrow().to_pandas(**options)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the rows batch by batch, for any engine that reads Arrow's streams; each call scans again."""
        return self.to_record_batches().__arrow_c_stream__(requested_schema)

    def count(self) -> int:
        """Return the number of rows; from metadata alone, where that is exact."""
        total: int = 0
        to_read = []
        for task in self.plan_files():
            if task.residual == AlwaysTrue() and not task.delete_files:
                total += task.file.record_count
            else:
                to_read.append(task)
        total += sum(batch.num_rows for batch in self._arrow_scan(narrow=True).to_record_batches(to_read))
        return total if self.plan.limit is None else min(total, self.plan.limit)


def _in_order(plan: Any, columns: Sequence[str] | None, lineage: Collection[str]) -> Any:
    """Return the schema of a scan with its columns in the requested order, lineage columns too."""
    projected = plan.projection()
    if columns is None:
        return projected
    fields = [*projected.fields, *(LINEAGE[name] for name in dict.fromkeys(columns) if name in lineage)]
    if "*" in columns:
        return Schema(*fields, schema_id=projected.schema_id)
    # A column stands where it, or a part of it, is first named.
    places: dict[int, int] = {}
    for place, name in enumerate(columns):
        named = LINEAGE[name] if name in lineage else projected.find_field(name, plan.case_sensitive)
        wanted = named.field_id
        for field in fields:
            if wanted in Schema(field).field_ids:
                places.setdefault(field.field_id, place)
    return Schema(*sorted(fields, key=lambda field: places[field.field_id]), schema_id=projected.schema_id)
