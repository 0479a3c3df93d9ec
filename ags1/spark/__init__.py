"""Encrypted files at the scale of a cluster: whole trees encrypted, decrypted and verified, and a data source.

>>> import ags1.spark
>>> result = ags1.spark.encrypt_files(  # doctest: +SKIP
...     spark, "s3a://raw", "s3a://vault", kms="aws:", key_id="alias/lake"
... )
>>> ags1.spark.register(spark)  # doctest: +SKIP
>>> spark.read.format("ags1").option("kms", "aws:").option("decode", "parquet").load("s3a://vault")  # doctest: +SKIP

The functions write and read datasets of :mod:`ags1.dataset`. No plaintext key leaves the driver: executors get wrapped
keys and call the KMS themselves. All work runs through DataFrames, so it also runs over Spark Connect.
Needs the extra "spark".
"""

from __future__ import annotations

from ags1.spark.engine.failures import refuse_older_pyspark
from ags1.support.lazy import can_import, lazy_names

refuse_older_pyspark()

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.spark.columns import decrypt_columns, encrypt_columns, register_columns
    from ags1.spark.datasets import decrypt_files, encrypt_files, verify_files
    from ags1.spark.engine.results import Result
    from ags1.spark.iceberg import compact_table, decrypt_table, encrypt_table, rekey_table, verify_table
    from ags1.spark.parquet import decrypt_parquet, encrypt_parquet, rekey_parquet, verify_parquet
    from ags1.spark.source.data_source import register

__all__ = [
    "Result",
    "compact_table",
    "decrypt_columns",
    "decrypt_files",
    "decrypt_parquet",
    "decrypt_table",
    "encrypt_columns",
    "encrypt_files",
    "encrypt_parquet",
    "encrypt_table",
    "register",
    "register_columns",
    "rekey_parquet",
    "rekey_table",
    "verify_files",
    "verify_parquet",
    "verify_table",
]

# Lazy imports: each worker process imports this package for only one of these names.
_get, __dir__ = lazy_names(
    __name__,
    {
        "engine.results": ("Result",),
        "columns": ("decrypt_columns", "encrypt_columns", "register_columns"),
        "datasets": ("decrypt_files", "encrypt_files", "verify_files"),
        "iceberg": ("compact_table", "decrypt_table", "encrypt_table", "rekey_table", "verify_table"),
        "parquet": ("decrypt_parquet", "encrypt_parquet", "rekey_parquet", "verify_parquet"),
        "source.data_source": ("register",),
    },
)

_MISSING = [name for name in ("pyspark", "pyarrow", "pandas") if not can_import(name)]


def __getattr__(name: str) -> object:
    if _MISSING and name in __all__:
        raise ImportError(f"ags1.spark needs {' and '.join(_MISSING)}: pip install 'ags1[spark]'")
    return _get(name)
