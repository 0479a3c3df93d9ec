"""Position delete files: which rows of which data files they delete.

Source: Iceberg table spec, "Position Delete Files".
"""

from __future__ import annotations

import io
from typing import Any

import pyarrow
import pyarrow.compute as compute

from ags1.errors import FormatError, UnsupportedError

__all__ = ["read_position_deletes"]

_FIELDS = {2147483546: "file_path", 2147483545: "pos"}
# A run of a million rows that are alike has a few bytes. Of rows that differ, as positions do, no writer has many more.
_FREE_ROWS, _ROWS_PER_BYTE = 1 << 24, 16


def read_position_deletes(file: Any, file_format: str) -> dict[str, pyarrow.ChunkedArray]:
    """Deleted positions, as int64, by the path of the data file. `file` is the plaintext.

    Any exception means that it is damaged: a FormatError where a row has no path or no position.
    """
    if file_format == "avro":
        from ags1.iceberg._avro_files import read_columns

        found = read_columns(file, _FIELDS)
    else:
        found = _of_parquet(file) if file_format == "parquet" else _of_orc(file)
    paths, positions = found[0], found[1].cast(pyarrow.int64()).combine_chunks()
    if not pyarrow.types.is_dictionary(paths.type):
        paths = paths.cast(pyarrow.large_string()).dictionary_encode()
    encoded = paths.unify_dictionaries().combine_chunks()
    names = encoded.dictionary.cast(pyarrow.large_string())
    if encoded.null_count:
        raise FormatError("a deleted position has no path of a data file")
    if positions.null_count:
        raise FormatError("a deleted row has no position")
    order = compute.sort_indices(encoded.indices)
    runs = compute.run_end_encode(encoded.indices.take(order), run_end_type=pyarrow.int64())
    positions, start, made = positions.take(order), 0, {}
    for code, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        made[names[code].as_py()] = pyarrow.chunked_array([positions.slice(start, end - start)])
        start = end
    return made


def _of_parquet(file: Any) -> list[Any]:
    import pyarrow.parquet

    opened = pyarrow.parquet.ParquetFile(file)
    names = {int((each.metadata or {}).get(b"PARQUET:field_id", -1)): each.name for each in opened.schema_arrow}
    wanted = [names.get(field_id, name) for field_id, name in _FIELDS.items()]
    _refuse_bomb(opened.metadata, file.seek(0, io.SEEK_END))
    # Paths of a hundred characters are the same in many rows.
    opened = pyarrow.parquet.ParquetFile(file, metadata=opened.metadata, read_dictionary=wanted[:1])
    columns: list[Any] = opened.read(wanted).select(wanted).columns
    return columns


def _refuse_bomb(metadata: Any, size: int) -> None:
    """Refuse more rows than positions in so many bytes can be."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    # Memory is taken for the values that the columns claim, whatever the row groups do.
    rows = sum(
        max((group.column(each).num_values for each in range(metadata.num_columns)), default=0) for group in groups
    )
    most = _FREE_ROWS + _ROWS_PER_BYTE * size
    if rows > most:
        raise UnsupportedError(
            f"{size:,} bytes have {rows:,} deleted positions, and more than {most:,} are not read: if it is meant to "
            "be, write the deletes again, as several files"
        )


def _of_orc(file: Any) -> list[Any]:
    import pyarrow.orc

    names = list(_FIELDS.values())
    columns: list[Any] = pyarrow.orc.ORCFile(file).read(names).select(names).columns
    return columns
