"""Writes Arrow tables to encrypted Parquet files: PyArrow writes a row group, then its pages are encrypted.

    table  --slice-->  row group  --PyArrow-->  small Parquet file in memory  --TargetFile-->  encrypted, at its place

PyArrow makes one row group on one core. So several are made at once, and written in order. Memory holds two row groups
for each thread, as Parquet, and no plaintext is written to a disk.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing

from ags1.core.blocks import usable_cpus
from ags1.parquet.rewrite._target_file import TargetFile
from ags1.parquet.rewrite.conversions import check_configs, publish, refuse_external
from ags1.parquet.structure.fields import FileMetaData
from ags1.parquet.structure.schema import same_columns
from ags1.parquet.structure.source_file import SourceFile
from ags1.storage import located, open_output
from ags1.support.arguments import at_least_one
from ags1.support.parallel import in_parallel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self

    from ags1.parquet.keys.properties import EncryptionConfig
    from ags1.parquet.view.view import ParquetView

# The default of PyArrow.
_ROW_GROUP_SIZE = 1 << 20
_MAX_ROW_GROUP_SIZE = 64 << 20
_REFUSED = {
    "encryption_properties": "they are for PyArrow's own encryption; give an EncryptionConfig as encryption",
    "filesystem": "give the target as a path, a URL or an open file",
    "metadata_collector": "the collected metadata would have the offsets of pages before their encryption",
}


def write_table(
    table: Any,
    target: Any,
    encryption: EncryptionConfig,
    *,
    row_group_size: int | None = None,
    threads: int | None = None,
    durable: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Write a table to an encrypted Parquet file.

    Everything that PyArrow can write can be encrypted, with any configuration: column keys, Bloom filters, page
    indexes, V2 pages in both forms.

    Parameters
    ----------
    table : pyarrow.Table, pyarrow.RecordBatch, or another with the Arrow stream interface
        A pandas or polars data frame, for example.
    row_group_size : int, optional
        Most rows in a row group; by default 1,048,576.
    threads : int, optional
        Threads that make row groups, and that encrypt; by default every usable CPU.
    target, encryption, durable, storage_options
        As :func:`encrypt_file`.
    **options
        Of ``pyarrow.parquet.write_table``: compression, data_page_version, write_page_index, bloom_filter_options, ...

    Raises
    ------
    TypeError, ValueError
        A wrong argument, or a configured column that the table does not have; nothing was written.
    pyarrow.ArrowException
        PyArrow cannot write the table.
    KeyAccessError
        The KMS did not wrap a key.
    LimitError
        More than 32,768 row groups, columns, or pages in a column chunk.
    OSError
        Writing failed.

    Examples
    --------
    >>> encryption = EncryptionConfig(footer_key, column_keys={"ssn": column_key})
    >>> write_table(table, "out.parquet", encryption, compression="zstd", write_page_index=True)
    """
    found = _as_table(table)
    with ParquetWriter(
        target, found.schema, encryption, threads=threads, durable=durable, storage_options=storage_options, **options
    ) as writer:
        writer.write_table(found, row_group_size)


class ParquetWriter:
    """Writes an encrypted Parquet file in several steps, as ``pyarrow.parquet.ParquetWriter`` does.

    Leaving the ``with`` body publishes the file. An exception in the body publishes nothing (bytes that were written to
    a file object stay). A writer that is never closed publishes nothing.

    Parameters
    ----------
    target, encryption, threads, durable, storage_options, **options
        As for :func:`write_table`.
    schema : pyarrow.Schema
        Schema of all tables; its metadata is stored in the file.

    Attributes
    ----------
    schema : pyarrow.Schema
    is_open : bool
        Whether more may be written.
    statistics : list of pyarrow.parquet.FileMetaData
        PyArrow's metadata for each row group; offsets and sizes are those before encryption. Of a row group that was
        moved, it has the further columns.

    Raises
    ------
    TypeError, ValueError, pyarrow.ArrowException, KeyAccessError, OSError
        As :func:`write_table`; options, keys and columns are checked before the target is touched.

    Notes
    -----
    For one thread at a time.

    Examples
    --------
    >>> with ParquetWriter("out.parquet", schema, encryption) as writer:
    ...     for batch in batches:
    ...         writer.write_batch(batch)
    """

    def __init__(
        self,
        target: Any,
        schema: Any,
        encryption: EncryptionConfig,
        *,
        threads: int | None = None,
        durable: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.is_open = False
        for name, reason in _REFUSED.items():
            if options.pop(name, None) is not None:
                raise TypeError(f"{name} cannot be given: {reason}")
        check_configs(encryption=encryption)
        self.schema = schema
        self._threads = usable_cpus() if threads is None else threads
        self._options = options
        self._durable = durable
        # Write a file without rows, so that errors in schema, options and columns are raised now.
        self._empty, _ = self._encoded(None)
        place = located(target, storage_options)
        self._made = encryption.for_file(place)
        with SourceFile(self._empty) as source:
            self._made.columns([leaf.path for leaf in source.leaves])
        if not isinstance(target, (str, bytes, os.PathLike)):
            refuse_external(self._made)
        self.statistics: list[Any] = []
        self._output = open_output(place)
        self._abort = weakref.finalize(self, self._output.abort)
        try:
            self._target = TargetFile(self._output, self._made, threads=threads)
        except BaseException:
            self._abort()
            raise
        self.is_open = True

    def write_table(self, table: Any, row_group_size: int | None = None) -> None:
        """Write a table as one or more row groups; a table without rows becomes an empty row group.

        Parameters
        ----------
        table : pyarrow.Table, pyarrow.RecordBatch, or another with the Arrow stream interface
            Its schema must be that of the writer, except for metadata.
        row_group_size : int, optional
            Most rows in a row group; by default 1,048,576.

        Raises
        ------
        TypeError, ValueError
            A wrong argument, or another schema; more can be written afterwards. After any other error the writer is
            closed.
        """
        self._check_open()
        found = _as_table(table)
        if not found.schema.equals(self.schema, check_metadata=False):
            raise ValueError(
                f"the table has another schema than the file:\n{found.schema.to_string(show_schema_metadata=False)}\n"
                f"The file's:\n{self.schema.to_string(show_schema_metadata=False)}"
            )
        size = _checked_size(row_group_size)
        try:
            with closing(self._row_groups(found, size)) as made:
                for encoded, metadata in made:
                    with SourceFile(encoded) as source:
                        self._target.append(source)
                    self.statistics.append(metadata)
        except BaseException:
            self.abort()
            raise

    write_batch = write = write_table

    def move_row_group(self, source: ParquetView, index: int, further: Any) -> None:
        """Add a row group of an open file that :func:`has_columns`, without decoding it.

        Parameters
        ----------
        source : ParquetView
        index : int
            Which row group.
        further : pyarrow.Table
            The last columns of the row group; those that the file has of these names are left out.

        Raises
        ------
        AuthenticationError, FormatError, TruncatedError, OSError
            The source is damaged, or cannot be read. The writer is closed.
        """
        self._check_open()
        try:
            self._begin()
            file = source.source_file
            group = next(each for each in file.row_groups() if each.index == index)
            _ = file.pages_size  # column chunks that overlap are refused
            file.will_read((start, start + length) for start, length in (each.extent() for each in group.chunks()))
            options = {
                name: self._options[name] for name in ("compression", "compression_level") & self._options.keys()
            }
            encoded, metadata = _encoded(further, further.schema, options)
            with SourceFile(encoded) as columns:
                self._target.append_row_group(group, columns)
            file.source.check()
            self.statistics.append(metadata)
        except BaseException:
            self.abort()
            raise

    def _begin(self) -> None:
        """Give the file its schema."""
        if self._target.is_empty:
            with SourceFile(self._empty) as source:
                self._target.append(source)

    @property
    def row_group_offsets(self) -> list[int]:
        """Offset of each row group in the encrypted file."""
        return self._target.row_group_offsets

    def tell(self) -> int:
        """Bytes of the encrypted file so far; after :meth:`close`, of the whole file."""
        return self._output.position

    def _row_groups(self, table: Any, size: int) -> Generator[tuple[Any, Any], None, None]:
        """Make the row groups of a table, several at once; yield them in order."""
        parts = _parts(table, size)
        if self._threads > 1 and table.num_rows > size:
            yield from in_parallel(self._encoded, parts, self._threads)
        else:
            yield from map(self._encoded, parts)

    def _encoded(self, part: Any) -> tuple[Any, Any]:
        return _encoded(part, self.schema, self._options)

    def close(self) -> None:
        """Finish the file and publish it; safe to call again.

        Raises
        ------
        OSError
            Writing failed; nothing was published.
        """
        if not self.is_open:
            return
        try:
            self._begin()
            self._target.finish()
            publish(self._output, self._made, durable=self._durable)
        finally:
            self.abort()

    def abort(self) -> None:
        """Discard the file, unless it is published already; safe to call again."""
        self.is_open = False
        self._abort()

    def _check_open(self) -> None:
        if not self.is_open:
            raise ValueError("the file is closed, or was aborted after an error: nothing more can be written to it")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def has_columns(source: ParquetView, schema: Any, further: int, **options: Any) -> bool:
    """Whether row groups of an open file can be moved into one with this schema and its options.

    The file must have the columns, but for the last `further` ones, with the same types and field ids. It may have no
    others but those, and its writer must say how it ordered values for its statistics.
    """
    encoded, _ = _encoded(None, schema, options)
    with SourceFile(encoded) as mine:
        theirs = source.source_file
        if mine.schema is None or theirs.schema is None or theirs.footer.metadata is None:
            return False
        columns, others = mine.schema.children, theirs.schema.children
        width = len(columns) - further
        behind = {each.name for each in columns[width:]}
        return (
            FileMetaData.COLUMN_ORDERS in theirs.footer.metadata
            and same_columns(columns[:width], others[:width])
            and {each.name for each in others[width:]} <= behind
        )


def _encoded(part: Any, schema: Any, options: Mapping[str, Any]) -> tuple[Any, Any]:
    """A table of one row group or none, as the bytes of a Parquet file, and the metadata of that file."""
    import pyarrow
    import pyarrow.parquet

    sink = pyarrow.BufferOutputStream()
    with pyarrow.parquet.ParquetWriter(sink, schema, **options) as writer:
        if part is not None:
            writer.write_table(part, row_group_size=max(1, part.num_rows))
    return sink.getvalue(), writer.writer.metadata


def _as_table(table: Any) -> Any:
    import pyarrow

    if isinstance(table, pyarrow.Table):
        return table
    if isinstance(table, pyarrow.RecordBatch):
        return pyarrow.Table.from_batches([table])
    if hasattr(table, "__arrow_c_stream__"):
        return pyarrow.table(table)
    raise TypeError(
        f"the table must be a pyarrow.Table, or another with the Arrow stream interface, not {type(table).__name__}"
    )


def _checked_size(row_group_size: int | None) -> int:
    if row_group_size is None:
        return _ROW_GROUP_SIZE
    if isinstance(row_group_size, bool) or not isinstance(row_group_size, int):
        raise TypeError(f"row_group_size must be a number of rows, not {type(row_group_size).__name__}")
    at_least_one(row_group_size, "row_group_size")
    return min(row_group_size, _MAX_ROW_GROUP_SIZE)


def _parts(table: Any, size: int) -> Iterator[Any]:
    if table.num_rows == 0:
        yield table
    for start in range(0, table.num_rows, size):
        yield table.slice(start, size)
