"""Spark's data source ``format("ags1")``.

ags1.spark.register(spark)
events = spark.read.format("ags1").option("kms", "aws:").option("decode", "json").load("s3://vault")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from ags1.spark._source_options import STREAM_OPTIONS, SourceOptions
from ags1.spark._source_reader import infer_schema, reader_for

if TYPE_CHECKING:
    from typing import Any

    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceWriter
    from pyspark.sql.types import StructType

__all__ = ["Ags1DataSource", "register"]


class Ags1DataSource(DataSource):
    """Encrypted files as rows: of a dataset, of single AGS1 files, or of encrypted Parquet files.

    :class:`ags1.spark._source_options.SourceOptions` describes the options. Keys never travel: ``kms`` is a URL, and
    ``keyref`` names a variable or a file; every task gets the keys itself.

    Notes
    -----
    A file that is not authentic fails the query, whatever ``mode`` and ``on_error`` say. Of plain files whose length
    nobody recorded, blocks missing at the end go unnoticed; datasets and key metadata have lengths.

    Python data sources are not told which columns a query needs, so a count decrypts everything: say what is wanted by
    the options ``columns`` and ``content=false``. Filters reach the source by ``pushdown=once``, and only if
    ``spark.sql.python.filterPushdown.enabled`` is true; Spark raises DATA_SOURCE_PUSHDOWN_DISABLED otherwise. Load a
    DataFrame anew then for each query, and for each side of a join with itself: Spark up to 4.3 gives the splits of
    one query to the others that use the same DataFrame, and rows are missing there.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "ags1"

    def schema(self) -> StructType:
        """Look into the data for its schema."""
        # Spark does not say whether it is for a stream.
        return infer_schema(SourceOptions.parse(self.options, STREAM_OPTIONS))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader."""
        return reader_for(SourceOptions.parse(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Begin a write; :class:`ags1.spark._write_options.WriteOptions` describes its options."""
        from ags1.spark._source_writer import writer_for

        return writer_for(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make the reader of a growing dataset."""
        from ags1.spark._source_stream import stream_reader_for

        return stream_reader_for(self.options, schema)


def register(spark: Any) -> None:
    """Make ``format("ags1")`` known to a session, also one of Spark Connect.

    Parameters
    ----------
    spark : SparkSession
    """
    spark.dataSource.register(Ags1DataSource)
