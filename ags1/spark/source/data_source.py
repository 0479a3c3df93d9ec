"""Spark's data source ``format("ags1")``: encrypted files as rows, to read, to write and to follow.

::

    ags1.spark.register(spark)
    vault = spark.read.format("ags1").option("kms", "aws:")
    lines = vault.option("decode", "text").option("prefix", "events").load("s3a://vault")
    events = lines.select(from_json("value", "id bigint, amount double").alias("row")).select("row.*")
    events.write.format("ags1").mode("append").options(kms="aws:", decode="parquet").save("s3a://other")
    new = spark.readStream.format("ags1").options(kms="aws:", decode="text").load("s3a://vault")

Names of options may be written with or without ``_``, in any case: ``splitBytes`` is ``split_bytes``. Sizes may have a
unit: ``64m``. Lists have commas. An option that is not known, or that means nothing to the ``decode``, is an error. No
option is a secret: keys are given by reference, and every task loads them itself.

What is read
    A dataset, as :func:`ags1.spark.encrypt_files`, :func:`ags1.dataset.encrypt` and a write make it: ``load(PATH)``
    with ``kms``. Single AGS1 files, directories or globs of them: with ``keyref``. Encrypted Parquet files outside of
    AGS1: with ``kms`` and ``decode=parquet``.

======================= =============== ========================================================================
Reading                 Default         Meaning
======================= =============== ========================================================================
``path``                                what ``load`` gives; several, or globs, for files with ``keyref``
``kms``                                 URL of the KMS as :func:`ags1.kms.load` takes it: ``aws:``,
                                        ``vault:https://HOST``, ``local:PATH?key_file=PATH`` ...
``key_id``              any             the master key that the dataset must be under
``expected_version``    any             the version that the dataset must have
``version_as_of``       the last        a version that was kept: time travel, as Delta has it
``keyref``                              where the key of single files is: ``env:NAME`` (of the executors),
                                        ``file:PATH``, or ``file:DIRECTORY`` with key metadata for each file
``aad_prefix``          none            AAD prefix of single files, also of Parquet; ``{name}``, ``{path}`` are those of
                                        each file
``aad_prefix_hex``      none            the same in hexadecimal
``trust_fs_length``     false           no warning about single files without a recorded length
``decode``              binary          what is inside: binary (a row for each block), text (a row for each line),
                                        avro, arrow or parquet
``include``             all             globs of paths that are read: ``*.json``, ``day=1/**``
``exclude``             none            globs of paths that are not
``prefix``              all             a directory of the dataset; only what is below it is read
``columns``             all             columns to read: Spark does not tell a Python source which a query needs
``path_column``         none            name of a column that gets the path of the file
``partition_discovery`` true            directories like ``day=1`` become columns: int, bigint, double, date or string
``split_bytes``         256m            plaintext of a task; bigger files are cut, unless they cannot be
``min_partitions``      1               smaller splits, for about as many tasks
``batch_bytes``         4m              plaintext of an Arrow batch
``threads``             1               threads that decrypt in a task
``on_error``            fail            skip: leave out files that are missing or cannot be opened, with a
                                        warning; what is not authentic fails all the same
``line_sep``            any line end    text: what ends a line
``wholetext``           false           text: a row for each file
``max_unpacked_bytes``  256m            text: what a line of a gzip file, or one that is read as one piece, may unpack
                                        to
``missing_keys``        error           parquet: drop leaves out columns whose key the KMS refuses
``allow_plaintext``     false           parquet, outside of AGS1: files that are not encrypted are read too
======================= =============== ========================================================================

Text is UTF-8. ``.gz`` files of text are unpacked, a file by one task; other compressed text is refused. For CSV and
JSON, give the lines to Spark's ``from_csv`` and ``from_json``.

==================== =============== =============================================================================
Writing              Default         Meaning
==================== =============== =============================================================================
``path``                             what ``save`` gives: a dataset, which is made if there is none
``kms``                              URL of the KMS
``key_id``           the dataset's   the master key; needed to make a dataset
``decode``                           the format, as for reading: text (one column of strings), avro, arrow or parquet
``compression``      by ``decode``   text: **none**, gzip; avro: **deflate**, none; arrow: **none**, lz4, zstd; parquet:
                                     **snappy**, zstd, gzip, none
``max_file_bytes``   1g              plaintext after which a task starts another file
==================== =============== =============================================================================

One task reads a whole gzip file, so ``max_file_bytes``, of the compressed text, limits how far a read can be
distributed. Parquet files are plain ones inside of AGS1: files with Parquet's own encryption are made by
:func:`ags1.spark.encrypt_parquet`.

Use ``mode("append")``, which adds a version with more files, or ``mode("overwrite")``, whose version has only the new
files: Spark refuses the other modes for Python sources, also its default. Nothing is visible before the commit. A write
that is repeated after its commit adds its rows twice. An append must have the columns and types of the dataset, in any
order; text is not compared. Files in directories that are columns cannot be appended to.

========================== ========== ======================================================================
Streaming                  Default    Meaning, besides the options of reading
========================== ========== ======================================================================
``starting_version``       earliest   where a query without a checkpoint begins: earliest, latest (what comes from
                                      now on), or the first version whose files are read
``max_versions_per_batch`` all        how many versions of the dataset a batch takes at most
========================== ========== ======================================================================

A stream follows one dataset, so ``keyref``, ``expected_version`` and ``version_as_of`` are not for it. Spark before 4.2
tells no source what the trigger is: ``availableNow`` with a limit is one batch there, with a warning if there is more,
so start the query again.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, DataSourceWriter
from pyspark.sql.types import StructType

from ags1.spark.engine.captured import CapturedSession, capture
from ags1.spark.engine.sessions import Session
from ags1.spark.source.options import SourceOptions, StreamOptions
from ags1.spark.source.reader import SourceReader, infer_schema


class Ags1DataSource(DataSource):
    """Encrypted files as rows: of a dataset, of single AGS1 files, or of encrypted Parquet files.

    The module :mod:`ags1.spark.source.data_source` lists the options. Keys are never sent: ``kms`` is a URL, and
    ``keyref`` names a variable or a file; every task loads the keys itself.

    Notes
    -----
    A file that is not authentic fails the query, whatever ``on_error`` is. In single files without a
    recorded length, missing blocks at the end are not detected; datasets and key metadata have lengths.

    Spark does not tell Python data sources which columns a query needs, so a count decrypts everything: use the
    options ``columns``, ``prefix`` and ``include``.
    """

    session: CapturedSession | None = None
    """What :func:`register` has captured."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "ags1"

    def schema(self) -> StructType:
        """Infer the schema from the data."""
        # Spark does not tell whether the schema is for a stream.
        return infer_schema(StreamOptions.parse(self.options, self.session))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader."""
        return SourceReader(SourceOptions.parse(self.options, self.session), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Begin a write."""
        from ags1.spark.source.writer import writer_for

        return writer_for(self.options, schema, overwrite, self.session)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make the reader of a growing dataset."""
        from ags1.spark.source.reader import stream_reader_for

        return stream_reader_for(self.options, schema, self.session)


def register(spark: Any, *, kms: str | None = None, key_id: str | None = None) -> None:
    """Register ``format("ags1")`` in a session, also one of Spark Connect.

    Parameters
    ----------
    spark : SparkSession
        Its settings of the storage, endpoint, region and path style of ``fs.s3a.*``, are captured as they are now.
        Register again when you have changed one.
    kms, key_id : str, optional
        A KMS, as a URL, and a master key: the session's credentials for storage are sealed under it, and each task
        opens them with a call to the KMS. Without them, credentials stay where they are, and a read or a write that
        needs them is refused unless the environment of the driver and of the executors has some.

    Raises
    ------
    ValueError
        Only one of `kms` and `key_id`.
    KeyAccessError
        The KMS refused.

    Notes
    -----
    ``help(ags1.spark.source.data_source)`` lists the options of ``spark.read``, ``df.write`` and
    ``spark.readStream`` with this format. Executors need ags1 too. Without it, Spark raises DATA_SOURCE_NOT_FOUND.

    Examples
    --------
    >>> ags1.spark.register(spark, kms="aws:", key_id="alias/lake")  # doctest: +SKIP
    >>> reader = spark.read.format("ags1").option("kms", "aws:")  # doctest: +SKIP
    >>> reader.option("decode", "parquet").load("s3a://vault").show()  # doctest: +SKIP
    """
    captured = capture(Session(spark).spark, kms, key_id)
    # Spark pickles the class and not what it was made with; a class that no module has is pickled with its attributes.
    spark.dataSource.register(type("Ags1DataSource", (Ags1DataSource,), {"session": captured}))
