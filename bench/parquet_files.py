"""Parquet files to measure with: a table of eight ordinary columns, in pages of several sizes.

Stands alone: questions.py loads it by its place, beside an ags1 of any revision.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# To be counted up when anything below changes what is in a file.
RECIPE = 1
ROW_GROUPS = 8
# Rows that are written at once to learn how many bytes a row takes.
_TRIAL_ROWS = 20_000
_TEXT = """
account address amount average balance before branch charge client confirm contact credit customer deliver
deposit discount during exchange express failed first follow handle invoice late letter limit market missing
morning notice number offer office order package partial payment pending period phone please price private
product question receipt refund regular reminder repeat request return review second service shipping status
still store street supply support thanks total transfer unknown update urgent value visit waiting weekly
"""
_WORDS = _TEXT.split()


@dataclass(frozen=True)
class Variant:
    """How the pages of a file are.

    Attributes
    ----------
    page_bytes, page_rows
        Where a page ends: at whatever comes first.
    checksums
        Whether pages have a CRC.
    page_index
        Whether the file has column and offset indexes.
    words
        The same for a reader.
    """

    page_bytes: int
    page_rows: int
    checksums: bool
    page_index: bool
    words: str


VARIANTS = {
    "large": Variant(1 << 20, 1 << 30, False, False, "pages of 1 MiB"),
    # What parquet-java writes when nobody tells it otherwise.
    "java": Variant(1 << 20, 20_000, True, True, "pages of 20,000 rows with CRC and page index"),
    "small": Variant(8 << 10, 20_000, True, True, "pages of 8 KiB with CRC and page index"),
}
DICTIONARY_COLUMNS = ["quantity", "city"]


def table(rows: int, first: int = 0) -> Any:
    """Rows of the sample, the same every time: numbers and text, predictable and not, with and without nulls.

    Parameters
    ----------
    rows
        How many.
    first
        Number of the first of them.
    """
    import numpy as np
    import pyarrow as pa

    draw = np.random.default_rng([RECIPE, first])
    absent = draw.random(rows) < 0.1
    cities = pa.array([f"{_WORDS[i % 61].title()} {_WORDS[i % 59]}-{i}" for i in range(997)])
    return pa.table(
        {
            "id": np.arange(first, first + rows, dtype=np.int64) * 7 + draw.integers(0, 7, rows),
            "quantity": pa.array(np.minimum(draw.geometric(0.2, rows), 50).astype(np.int32)),
            "price": np.round(np.exp(draw.normal(3, 1.2, rows)), 2),
            "score": pa.array(draw.normal(0, 1, rows), mask=absent),
            "at": pa.array(1_700_000_000_000_000 + np.cumsum(draw.integers(0, 90_000, rows)), pa.timestamp("us")),
            "city": cities.take(pa.array(np.minimum(draw.zipf(1.3, rows) - 1, 996))),
            "token": _tokens(draw.integers(0, 256, (rows, 16), np.uint8)),
            "comment": _sentences().take(pa.array(draw.integers(0, 20_000, rows), mask=absent)),
        }
    )


@functools.cache
def _sentences() -> Any:
    """The 20,000 comments that there are."""
    import numpy as np
    import pyarrow as pa

    drawn = np.random.default_rng(RECIPE).integers(0, len(_WORDS), (20_000, 6)).tolist()
    return pa.array([" ".join(_WORDS[index] for index in each) for each in drawn])


def _tokens(octets: Any) -> Any:
    """A text of 32 hex digits for each row of 16 bytes."""
    import numpy as np
    import pyarrow as pa

    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = np.stack([digits[octets >> 4], digits[octets & 15]], axis=-1)
    offsets = np.arange(len(octets) + 1, dtype=np.int32) * 32
    return pa.StringArray.from_buffers(len(octets), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(text)))


def options(variant: str) -> dict[str, Any]:
    """What PyArrow's writer is told to write such pages."""
    chosen = VARIANTS[variant]
    return {
        "compression": "snappy",
        "use_dictionary": DICTIONARY_COLUMNS,
        "data_page_size": chosen.page_bytes,
        "max_rows_per_page": chosen.page_rows,
        "write_page_checksum": chosen.checksums,
        "write_page_index": chosen.page_index,
        # How often the writer looks whether a page is full.
        "write_batch_size": 1024 if chosen.page_bytes >= 1 << 16 else 128,
    }


def rows_per_group(nbytes: int) -> int:
    """Rows in each of the row groups of a file of about so many bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    trial = pa.BufferOutputStream()
    pq.write_table(table(_TRIAL_ROWS), trial, **options("large"))
    return max(100, nbytes * _TRIAL_ROWS // int(trial.tell()) // ROW_GROUPS)


def write(path: Path, nbytes: int, variant: str) -> None:
    """Write a file of about `nbytes` in ROW_GROUPS row groups."""
    import pyarrow.parquet as pq

    rows = rows_per_group(nbytes)
    with pq.ParquetWriter(path, table(1).schema, **options(variant)) as writer:
        for group in range(ROW_GROUPS):
            writer.write_table(table(rows, group * rows), row_group_size=rows)


def cached(nbytes: int, variant: str, directory: Path) -> Path:
    """The file as it is kept in a directory, made if it is not there."""
    import pyarrow as pa

    path = directory / f"sample-{RECIPE}-{variant}-{nbytes}-pyarrow-{pa.__version__}.parquet"
    if path.is_file():
        return path
    directory.mkdir(parents=True, exist_ok=True)
    descriptor, scratch = tempfile.mkstemp(dir=directory, prefix=".making-", suffix=".parquet")
    os.close(descriptor)
    try:
        write(Path(scratch), nbytes, variant)
        os.replace(scratch, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(scratch)
    return path


def wide_table(columns: int) -> Any:
    """One row of many columns."""
    import pyarrow as pa

    return pa.table({f"measure_{index:05}": pa.array([float(index)]) for index in range(columns)})


def write_wide(path: Path, columns: int, row_groups: int) -> None:
    """Write a file that is nearly all footer: one value in each column chunk."""
    import pyarrow.parquet as pq

    one = wide_table(columns)
    with pq.ParquetWriter(path, one.schema, use_dictionary=False, compression="none") as writer:
        for _ in range(row_groups):
            writer.write_table(one)
