"""Encrypted Parquet on a cluster: whole trees of files encrypted, decrypted, re-keyed and verified, none re-encoded.

>>> from ags1.spark.parquet import encrypt_parquet
>>> encrypt_parquet(spark, "s3a://raw/people", "s3a://vault/people", kms="aws:?region=eu-central-1",
...                 footer_key_id="alias/lake", column_key_ids={"alias/pii": ["ssn", "salary"]})  # doctest: +SKIP

Tasks get whole files: a Parquet file is never split. Each file appears whole or not at all, under its name in the
source. Repeat a killed run to resume it. The worker that has a file decides what it is, as
:mod:`ags1.parquet.rewrite.trees` does. Markers such as ``_SUCCESS`` are written after all other files.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ags1.dataset.selection import Patterns
from ags1.parquet.keys.columns import list_of_columns_text
from ags1.parquet.verify.expected import Expected
from ags1.spark.engine.parquet_run import ParquetRun, ReadingSettings, TransferSettings, Tree, WritingSettings, as_names
from ags1.spark.engine.results import Result
from ags1.spark.engine.sealing import kms_reference
from ags1.support.arguments import one_of

Config = TypeVar("Config", bound=ReadingSettings)

_DECRYPTION = frozenset({"algorithm", "allow_plaintext", "cache_seconds", "check_footer_integrity", "expected_key_ids"})
_ENCRYPTION = frozenset(
    [
        "algorithm",
        "cache_seconds",
        "data_key_bits",
        "double_wrapping",
        "encrypt_all",
        "kek_bits",
        "kms_instance_id",
        "kms_instance_url",
        "plaintext_footer",
        "store_aad_prefix",
    ]
)


def encrypt_parquet(
    spark: Any,
    source: Tree,
    target: Tree,
    *,
    kms: str,
    footer_key_id: str,
    column_key_ids: Mapping[str, Sequence[Any]] | None = None,
    aad_prefix: str | bytes | None = None,
    data_page_v2: str = "java",
    missing_columns: str = "fail",
    include: Patterns = None,
    exclude: Patterns = None,
    others: str = "error",
    parallelism: int | None = None,
    threads: int = 1,
    on_error: str = "fail",
    resume: bool = True,
    progress: Any = True,
    **encryption: Any,
) -> Result:
    """Encrypt the Parquet files of a tree into another, on a cluster.

    Every file has fresh data keys, whose wrapped form is kept in the file: key material beside it could be from
    another attempt of Spark at the same file.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    source, target : path or URL
        Trees. Files keep their names from the source, and directories their modes; other files in the target stay.
        Links, and a target inside the source, are left out of the source.
    kms : str
        URL of the key management service, as :func:`ags1.kms.load` takes it: each worker makes its own client.
    footer_key_id, column_key_ids
        Master keys, as for ``EncryptionConfig.from_kms``.
    aad_prefix : str or bytes, optional
        Identity of the files. In a str, ``{path}`` stands for the name of each file in the tree and ``{name}`` for its
        last part. Bytes are the same for all files, so that one can be exchanged for another.
    data_page_v2 : {"java", "arrow"}
        The form of V2 data pages, as for ``EncryptionConfig``; Spark reads the Java form only, which leaves the levels
        of V2 pages in plaintext. So :func:`verify_parquet` needs ``allow_unauthenticated_pages=True`` for such files.
    missing_columns : {"fail", "skip"}
        What to do with files that lack a column of `column_key_ids`: refuse the tree before anything is written, or
        encrypt the columns that each file has. A column that no file has is an error in both cases, and so is one that
        a file has in another case only. With ``on_error="collect"`` and "fail", the rows of such files have the error.
        Every footer is read once more.
    include, exclude : str or sequence of str, optional
        Glob patterns that select files, as for :func:`ags1.dataset.encrypt`.
    others : {"error", "copy", "skip"}
        What to do with files that are not Parquet: refuse the tree before anything is written, copy them as they are,
        unencrypted, or leave them out.
    parallelism : int, optional
        Tasks; by default some for each core of the cluster.
    threads : int
        Threads for each file.
    on_error : {"fail", "collect"}
        "fail" raises the first error when the files of the same wave are finished; "collect" does all and reports.
    resume : bool
        Skip files that an earlier run of the same work has finished: the target is newer than the source (and than the
        coming of a local one, which may have an older time), it has the source's schema and numbers of rows, and its
        footer has the same algorithm, mode, stored AAD prefix and columns, with keys under the same master keys. It
        is an error if a newer target is better protected than the result; with False, all targets are replaced.
    progress : bool
        Whether to show how far it is.
    **encryption
        Further arguments of ``EncryptionConfig.from_kms``, with its defaults: double_wrapping, data_key_bits,
        kek_bits, encrypt_all, algorithm, plaintext_footer, store_aad_prefix, kms_instance_id, kms_instance_url,
        cache_seconds.

    Returns
    -------
    Result
        A row for each file. A file that was finished before is "skipped"; a file that is not processed is "left out",
        and its error has the reason.

    Raises
    ------
    TypeError, ValueError
        A wrong argument; a KMS that is no URL; a source in the target, or both the same; missing columns.
    KeyAccessError
        The KMS refuses to wrap with one of the master keys. Raised before any task starts.
    FormatError
        With ``others="error"``, a file is not Parquet. Raised before anything is written.
    Ags1Error, OSError
        With ``on_error="fail"``, the first error. Files written before stay.
    """
    _refuse_unknown(encrypt_parquet, encryption, _ENCRYPTION)
    encryption["data_page_v2"] = data_page_v2
    writing = _writing(kms_reference(kms), footer_key_id, column_key_ids, aad_prefix, encryption)
    run = ParquetRun(spark, source, target, include, exclude, parallelism, on_error, progress)
    how = TransferSettings(None, writing, others, resume, threads, missing_columns=missing_columns)
    return run.run("encrypt", how)


def decrypt_parquet(
    spark: Any,
    source: Tree,
    target: Tree,
    *,
    kms: str,
    aad_prefix: str | bytes | None = None,
    drop_bloom_filters: bool = False,
    transfer_key_id: str | None = None,
    include: Patterns = None,
    exclude: Patterns = None,
    others: str = "error",
    parallelism: int | None = None,
    threads: int = 1,
    on_error: str = "fail",
    resume: bool = True,
    progress: Any = True,
    **decryption: Any,
) -> Result:
    """Decrypt the Parquet files of a tree into another, on a cluster; every module is authenticated.

    Parameters
    ----------
    drop_bloom_filters : bool
        As for ``ags1.parquet.decrypt_file``.
    transfer_key_id : str, optional
        Master key of `kms` under which the work of tasks is sealed. Without it the session's secret settings of the
        storage stay on the driver, and tasks use the credentials of their machines' environment.
    spark, source, target, kms, aad_prefix, include, exclude, others, parallelism, threads, on_error, resume, progress
        As for :func:`encrypt_parquet`; a file is finished if the target has a newer one that is not encrypted.
    **decryption
        Further arguments of ``DecryptionConfig.from_kms``: check_footer_integrity, allow_plaintext, algorithm,
        cache_seconds, expected_key_ids.

    Raises
    ------
    KeyAccessError
        None of the first files can be opened with this KMS. Raised before any task starts.
    PermissionError
        The session has secret settings of the storage, no `transfer_key_id` was given, and the environment has no
        credentials.
    TypeError, ValueError, FormatError, Ags1Error, OSError
        As for :func:`encrypt_parquet`; an AuthenticationError names the file, column and page.
    """
    _refuse_unknown(decrypt_parquet, decryption, _DECRYPTION)
    reading = _reading(kms, aad_prefix, decryption)
    run = ParquetRun(spark, source, target, include, exclude, parallelism, on_error, progress)
    how = TransferSettings(reading, None, others, resume, threads, drop_bloom_filters=drop_bloom_filters)
    return run.run("decrypt", how, transfer_key_id)


def rekey_parquet(
    spark: Any,
    source: Tree,
    target: Tree,
    *,
    kms: str,
    footer_key_id: str,
    column_key_ids: Mapping[str, Sequence[Any]] | None = None,
    aad_prefix: str | bytes | None = None,
    new_kms: str | None = None,
    old_aad_prefix: str | bytes | None = None,
    old_algorithm: str | None = None,
    check_footer_integrity: bool = True,
    allow_plaintext: bool = False,
    plaintext_columns: Iterable[Any] = (),
    drop_bloom_filters: bool = False,
    data_page_v2: str = "java",
    missing_columns: str = "fail",
    include: Patterns = None,
    exclude: Patterns = None,
    others: str = "error",
    parallelism: int | None = None,
    threads: int = 1,
    on_error: str = "fail",
    resume: bool = True,
    progress: Any = True,
    **encryption: Any,
) -> Result:
    """Re-encrypt the Parquet files of a tree into another tree, with new data keys and other settings.

    Parameters
    ----------
    kms : str
        URL of the service with the keys of the source.
    new_kms : str, optional
        URL of the service that wraps the keys of the target; by default the same.
    old_aad_prefix, old_algorithm, check_footer_integrity, allow_plaintext
        How the source is read, as for :func:`decrypt_parquet`; so is cache_seconds.
    plaintext_columns, drop_bloom_filters
        As for ``ags1.parquet.rekey_file``: it is an error if other encrypted columns of a file would become plaintext,
        and without encrypt_all, if columns with keys of their own would be under the footer key.
    spark, source, target, footer_key_id, column_key_ids, aad_prefix, data_page_v2, missing_columns, include, exclude, \
others, parallelism, threads, on_error, resume, progress, **encryption
        As for :func:`encrypt_parquet`.

    Returns
    -------
    Result
        As for :func:`encrypt_parquet`; ``plaintext_length`` is the stored length of the source.

    Raises
    ------
    TypeError, ValueError, KeyAccessError, FormatError, Ags1Error, OSError
        As for :func:`decrypt_parquet` and :func:`encrypt_parquet`.
    """
    _refuse_unknown(rekey_parquet, encryption, _ENCRYPTION)
    decryption = {
        "algorithm": old_algorithm,
        "check_footer_integrity": check_footer_integrity,
        "allow_plaintext": allow_plaintext,
        **{name: value for name, value in encryption.items() if name == "cache_seconds"},
    }
    reading = _reading(kms, old_aad_prefix, decryption)
    new = kms_reference(kms) if new_kms is None else kms_reference(new_kms, "new_kms")
    encryption["data_page_v2"] = data_page_v2
    writing = _writing(new, footer_key_id, column_key_ids, aad_prefix, encryption)
    run = ParquetRun(spark, source, target, include, exclude, parallelism, on_error, progress)
    columns = as_names(plaintext_columns, "plaintext_columns")
    how = TransferSettings(reading, writing, others, resume, threads, columns, drop_bloom_filters, missing_columns)
    return run.run("rekey", how)


def verify_parquet(
    spark: Any,
    source: Tree,
    *,
    kms: str | None = None,
    aad_prefix: str | bytes | None = None,
    missing_keys: str = "error",
    require_encrypted: Iterable[Any] = (),
    allow_unauthenticated_pages: bool = False,
    allow_plaintext: bool = False,
    expected: Expected | None = None,
    transfer_key_id: str | None = None,
    include: Patterns = None,
    exclude: Patterns = None,
    parallelism: int | None = None,
    threads: int = 1,
    on_error: str = "collect",
    progress: Any = True,
    **decryption: Any,
) -> Result:
    """Authenticate every module of the Parquet files of a tree, on a cluster, without decoding a value.

    Parameters
    ----------
    kms : str, optional
        As for :func:`encrypt_parquet`; without it only files that are not encrypted can be checked.
    missing_keys : {"error", "drop"}
        Whether columns without an available key are an error.
    require_encrypted, allow_unauthenticated_pages
        As for ``ags1.parquet.verify_file``.
    expected
        The files of the set, as for ``ags1.parquet.verify_tree``. A missing file has a row with an error, and so has a
        file that does not belong to the set.
    on_error : {"fail", "collect"}
        "collect" checks all files and reports; "fail" raises the first error.
    spark, source, aad_prefix, allow_plaintext, transfer_key_id, include, exclude, parallelism, threads, progress, \
**decryption
        As for :func:`decrypt_parquet`.

    Returns
    -------
    Result
        A row for each file: "ok" if it is authentic or its lack of protection was allowed, "not protected", or
        "error". The error names the column and page of the failure; in an "ok" row, it describes contradictions in an
        authentic file. Files that are not Parquet are "left out". Both lengths are the stored length. If there is no
        Parquet file, the source has a row with an error.

    Raises
    ------
    TypeError, ValueError, KeyAccessError, PermissionError, Ags1Error, OSError
        As for :func:`decrypt_parquet`.
    """
    one_of(missing_keys, ("error", "drop"), "missing_keys")
    _refuse_unknown(verify_parquet, decryption, _DECRYPTION)
    decryption["allow_plaintext"] = allow_plaintext
    if kms is None:
        # Without a KMS there are no keys to cache.
        decryption.pop("cache_seconds", None)
        aad_prefix = None
    reading = _reading(kms, aad_prefix, decryption)
    run = ParquetRun(spark, source, None, include, exclude, parallelism, on_error, progress)
    options = {
        "missing_keys": missing_keys,
        "require_encrypted": as_names(require_encrypted, "require_encrypted"),
        "allow_unauthenticated_pages": allow_unauthenticated_pages,
    }
    return run.verify(reading, threads, options, expected, transfer_key_id)


# -- arguments -----------------------------------------------------------------------------------------------------


def _refuse_unknown(function: Callable[..., Result], given: Mapping[str, Any], further: frozenset[str]) -> None:
    """TypeError: there is no such argument. A key among them would be sent to the workers in Spark's plans."""
    if "internal_key_material" in given:
        raise TypeError("internal_key_material is not for Spark: each file keeps its key material in itself")
    for name in given.keys() - further:
        like = difflib.get_close_matches(name, [*inspect.signature(function).parameters, *further], 1)
        hint = f"did you mean {like[0]}?" if like else f"its further arguments are {', '.join(sorted(further))}"
        raise TypeError(f"{function.__name__} has no argument {name}; {hint}")


def _writing(
    kms: str, footer_key_id: str, column_key_ids: Any, aad_prefix: Any, encryption: dict[str, Any]
) -> WritingSettings:
    """The arguments for writing that are sent to workers, after EncryptionConfig has checked them."""
    columns = None
    if column_key_ids is not None:
        if not isinstance(column_key_ids, Mapping):
            raise TypeError(f"column_key_ids must be a mapping, not {type(column_key_ids).__name__}")
        for master, names in column_key_ids.items():
            if isinstance(names, str) or not isinstance(names, Sequence):
                raise TypeError(list_of_columns_text(master, names))
        columns = tuple((master, tuple(names)) for master, names in column_key_ids.items())
    return _checked(WritingSettings(kms, tuple(sorted(encryption.items())), aad_prefix, footer_key_id, columns))


def _reading(kms: str | None, aad_prefix: Any, decryption: dict[str, Any]) -> ReadingSettings:
    expected = decryption.pop("expected_key_ids", None)
    if expected is not None and kms is not None:
        decryption["expected_key_ids"] = expected if isinstance(expected, str) else tuple(expected)
    return _checked(
        ReadingSettings(None if kms is None else kms_reference(kms), tuple(sorted(decryption.items())), aad_prefix)
    )


def _checked(config: Config) -> Config:
    """The same, whose arguments are right: what is wrong is said before anything is read."""
    prefix = config.aad_prefix
    if prefix is not None and not isinstance(prefix, (str, bytes)):
        raise TypeError(f"aad_prefix must be a str or bytes, not {type(prefix).__name__}")
    if prefix is not None and not prefix:
        raise ValueError("aad_prefix must not be empty: leave it out for files without one")
    config.config("x")
    return config
