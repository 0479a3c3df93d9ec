"""Encrypted Iceberg tables on a cluster: every file authenticated with the key that the table's own metadata have.

    driver   metadata.json  -->  manifest lists  -->  manifests          read whole, which authenticates each block
    workers  data files, delete files, deletion vectors                  every module of Parquet, every block of AGS1

>>> from ags1.spark.iceberg import verify_table
>>> verify_table(spark, "s3a://lake/db/t/metadata/00007.metadata.json", kms="aws:").summary()  # doctest: +SKIP

Key metadata travel to the workers sealed under a key that the KMS wraps, and a worker asks it once.
"""

from __future__ import annotations

from collections.abc import Mapping

from ags1.spark._results import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.iceberg._files import Snapshots

__all__ = ["verify_table"]


def verify_table(
    spark: Any,
    metadata_location: str,
    *,
    kms: str,
    table_key_id: str | None = None,
    snapshot_id: Snapshots = "all",
    properties: Mapping[str, str] | None = None,
    length_policy: str = "trusted",
    allow_plaintext: bool = False,
    transfer_key_id: str | None = None,
    parallelism: int | None = None,
    threads: int = 1,
    on_error: str = "collect",
    progress: Any = True,
) -> Result:
    """Authenticate every block and every module of the files of an Iceberg table, each file once, on a cluster.

    Manifest lists and manifests are read by the driver, which has to know all files at once: about a kilobyte of its
    memory for each. Everything else is read by the workers.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    metadata_location : str
        Path or URL of the table's ``metadata.json``; a catalog knows it. Of the table's directory, the newest one is
        taken, by its number: whoever can write there chooses which that is.
    kms : str
        URL of the key management service, as :func:`ags1.kms.load` takes it.
    table_key_id, length_policy, allow_plaintext
        As for :func:`ags1.iceberg.open_table`.
    snapshot_id : int, "all" or None
        Files of one snapshot, of all, or of the current one.
    properties : mapping, optional
        For PyIceberg's FileIO. Without them a table in an object store is read as Spark's configuration says.
    transfer_key_id : str, optional
        Master key under which keys of files travel to the workers; by default the table's own, below a key encryption
        key that the table has.
    parallelism : int, optional
        Tasks; by default some for each core of the cluster.
    threads : int
        Threads for each file.
    on_error : {"fail", "collect"}
        "collect" checks all files and reports; "fail" raises the first error.
    progress : bool
        Whether to show how far it is.

    Returns
    -------
    Result
        A row for each file, with the path that the table has for it. `plaintext_length` is the stored length, too. A
        plaintext file that was allowed is "left out"; a row that is "ok" and has an error tells of contradictions in a
        file that authenticates. What concerns the whole table is in the row of its metadata file.

    Raises
    ------
    TypeError, ValueError
        A wrong argument, no such snapshot; a KMS that is no URL.
    FormatError, OSError
        The metadata file cannot be read, or there is none in the directory.
    KeyAccessError
        The KMS does not unwrap, or does not wrap where that is needed, the key for the way to the workers.
    Ags1Error, OSError
        With ``on_error="fail"``, the first error.
    """
    # PyIceberg is an extra of its own, and what imports this package need not have it.
    from ags1.spark._iceberg_run import verify

    return verify(
        spark,
        metadata_location,
        kms,
        table_key_id=table_key_id,
        snapshot_id=snapshot_id,
        properties=properties,
        length_policy=length_policy,
        allow_plaintext=allow_plaintext,
        transfer_key_id=transfer_key_id,
        parallelism=parallelism,
        threads=threads,
        on_error=on_error,
        progress=progress,
    )
