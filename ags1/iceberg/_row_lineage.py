"""Row lineage: the number that a row keeps for ever, and the commit that changed it last.

    _row_id                          stored in the file for a row that was moved, else first_row_id + position
    _last_updated_sequence_number    stored for a row that was moved unchanged, else that of the file
    _pos                             position in the file

Files of older format versions have no first_row_id, and then no number at all; Avro files still have the second. So
Iceberg Java reads them. Source: Iceberg table spec, "Row Lineage"; Iceberg Java's ParquetValueReaders.
"""

from __future__ import annotations

from typing import Any

import pyarrow
import pyarrow.compute as compute
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

__all__ = ["LAST_UPDATED", "LINEAGE", "POSITION", "ROW_ID", "RowLineage"]

ROW_ID, LAST_UPDATED, POSITION = 2147483540, 2147483539, 2147483645
LINEAGE = {
    field.name: field
    for field in (
        NestedField(ROW_ID, "_row_id", LongType(), required=False),
        NestedField(LAST_UPDATED, "_last_updated_sequence_number", LongType(), required=False),
        NestedField(POSITION, "_pos", LongType(), required=False),
    )
}


class RowLineage:
    """The lineage columns of a scan, for the rows of one file.

    `first_row_id` is the file's, also inherited; `sequence_number` is that of the snapshot that added the file.
    """

    def __init__(
        self, schema: Schema, first_row_id: int | None, sequence_number: int | None, *, is_avro: bool = False
    ) -> None:
        places = {field.field_id: place for place, field in enumerate(schema.fields)}
        self._row_id, self._last_updated, self._position = (
            places.get(each) for each in (ROW_ID, LAST_UPDATED, POSITION)
        )
        self._first = first_row_id
        self._number = sequence_number if is_avro or first_row_id is not None else None

    def filled(self, rows: Any, start: int, kept: Any) -> Any:
        """The rows, which have what their file stores, with what it does not store.

        `start` is the position in the file of the first row that was read; `kept` says which of them these are, None
        for all.
        """
        if self._row_id is not None or self._position is not None:
            positions = pyarrow.array(range(rows.num_rows), pyarrow.int64()) if kept is None else kept
            positions = compute.add(positions.cast(pyarrow.int64()), start)
            if self._position is not None:
                rows = self._with(rows, self._position, positions)
            if self._row_id is not None:
                computed = None if self._first is None else compute.add(positions, self._first)
                rows = self._with(rows, self._row_id, computed)
        if self._last_updated is not None:
            number = None if self._number is None else pyarrow.scalar(self._number, pyarrow.int64())
            rows = self._with(rows, self._last_updated, number)
        return rows

    def _with(self, rows: Any, place: int, computed: Any) -> Any:
        field = pyarrow.field(rows.schema.field(place).name, pyarrow.int64())
        if computed is None:
            return rows.set_column(place, field, pyarrow.nulls(rows.num_rows, pyarrow.int64()))
        stored = rows.column(place).cast(pyarrow.int64())
        return rows.set_column(place, field, compute.coalesce(stored, computed))
