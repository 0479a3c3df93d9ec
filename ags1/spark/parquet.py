"""Encrypted Parquet on a cluster: whole trees of files encrypted, decrypted, re-keyed and verified, none re-encoded.

>>> from ags1.spark.parquet import encrypt_parquet
>>> encrypt_parquet(spark, "s3a://raw/people", "s3a://vault/people", kms="aws:?region=eu-central-1",
...                 footer_key_id="alias/lake", column_key_ids={"alias/pii": ["ssn", "salary"]})  # doctest: +SKIP

Files are what is distributed: a Parquet file is never split. Each appears whole or not at all, under the name that it
has in the source, and a run that was killed is repeated to go on where it was. What a file is, is decided as
:mod:`ags1.parquet.trees` does it, by the worker that has the file. Markers such as ``_SUCCESS`` come when everything
else is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from ags1.parquet.config_arguments import CACHE_SECONDS
from ags1.spark._parquet_run import Run, check_choice
from ags1.spark._parquet_work import Reading, Writing
from ags1.spark._results import Result
from ags1.spark._sealing import kms_reference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    from ags1.parquet.expected import Expected

    Tree: TypeAlias = str | os.PathLike[str]
    Patterns: TypeAlias = str | Sequence[str] | None

__all__ = ["decrypt_parquet", "encrypt_parquet", "rekey_parquet", "verify_parquet"]


def encrypt_parquet(
    spark: Any,
    source: Tree,
    target: Tree,
    *,
    kms: str,
    footer_key_id: str,
    column_key_ids: Mapping[str, Sequence[Any]] | None = None,
    include: Patterns = None,
    exclude: Patterns = None,
    others: str = "error",
    double_wrapping: bool = True,
    data_key_bits: int = 128,
    kek_bits: int = 128,
    encrypt_all: bool = False,
    algorithm: str = "AES_GCM_V1",
    plaintext_footer: bool = False,
    aad_prefix: str | bytes | None = None,
    store_aad_prefix: bool = True,
    kms_instance_id: str = "DEFAULT",
    kms_instance_url: str = "DEFAULT",
    cache_seconds: float = CACHE_SECONDS,
    data_page_v2: str = "java",
    parallelism: int | None = None,
    threads: int = 1,
    on_error: str = "fail",
    resume: bool = True,
    progress: Any = True,
) -> Result:
    """Encrypt the Parquet files of a tree into another, on a cluster.

    Every file has fresh data keys, whose wrapped form is kept in the file: key material beside it could be that of
    another attempt of Spark's at the same file.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    source, target : path or URL
        Trees. Files get the names that they have in the source; what else the target has stays. A target in the
        source is left out of it.
    kms : str
        URL of the key management service, as :func:`ags1.kms.load` takes it: each worker makes its own client.
    footer_key_id, column_key_ids, double_wrapping, data_key_bits, kek_bits, encrypt_all, algorithm, plaintext_footer, \
store_aad_prefix, kms_instance_id, kms_instance_url, cache_seconds, data_page_v2
        As for ``EncryptionConfig.from_kms``.
    include, exclude : str or sequence of str, optional
        Glob patterns of the files that are meant, as for :func:`ags1.dataset.encrypt`.
    others : {"error", "copy", "skip"}
        What to do with files that are not Parquet: refuse the tree before anything is written, copy them as they are,
        unencrypted, or leave them out.
    aad_prefix : str or bytes, optional
        Identity of the files. In a text, ``{path}`` stands for the name of each in the tree and ``{name}`` for the
        last part of it; bytes are the same for all, so that one file of them can take the place of another.
    parallelism : int, optional
        Tasks; by default some for each core of the cluster.
    threads : int
        Threads for each file.
    on_error : {"fail", "collect"}
        "fail" raises the first error when those files are finished that were under way with it; "collect" goes
        through all files and reports.
    resume : bool
        Pass over files that an earlier run of the same work has finished: the target is newer than the source, and
        its footer has the algorithm, mode, stored AAD prefix and master key that it would have. Which columns have
        which keys is not looked at: give False after you changed that.
    progress : bool
        Whether to show how far it is.

    Returns
    -------
    Result
        A row for each file. A file that was finished before is "skipped"; one that nothing is done with is "left out",
        and its error says why.

    Raises
    ------
    TypeError, ValueError
        A wrong argument; a KMS that is no URL; a source in the target, or both the same.
    KeyAccessError
        The KMS refuses to wrap with one of the master keys: before any task is started.
    FormatError
        With ``others="error"``, files that are not Parquet; before anything is written.
    Ags1Error, OSError
        With ``on_error="fail"``, the first error. What was written before stays.
    """
    writing = _writing(
        kms,
        footer_key_id,
        column_key_ids,
        aad_prefix,
        double_wrapping=double_wrapping,
        data_key_bits=data_key_bits,
        kek_bits=kek_bits,
        encrypt_all=encrypt_all,
        algorithm=algorithm,
        plaintext_footer=plaintext_footer,
        store_aad_prefix=store_aad_prefix,
        kms_instance_id=kms_instance_id,
        kms_instance_url=kms_instance_url,
        cache_seconds=cache_seconds,
        data_page_v2=data_page_v2,
    )
    run = Run(spark, source, target, include, exclude, parallelism, on_error, progress)
    return run.transfer("encrypt", None, writing, others, resume, threads)


def decrypt_parquet(
    spark: Any,
    source: Tree,
    target: Tree,
    *,
    kms: str,
    include: Patterns = None,
    exclude: Patterns = None,
    others: str = "error",
    aad_prefix: str | bytes | None = None,
    check_footer_integrity: bool = True,
    allow_plaintext: bool = False,
    algorithm: str | None = None,
    cache_seconds: float = CACHE_SECONDS,
    drop_bloom_filters: bool = False,
    parallelism: int | None = None,
    threads: int = 1,
    on_error: str = "fail",
    resume: bool = True,
    progress: Any = True,
) -> Result:
    """Decrypt the Parquet files of a tree into another, on a cluster; every module is authenticated.

    Parameters
    ----------
    check_footer_integrity, allow_plaintext, algorithm, cache_seconds
        As for ``DecryptionConfig.from_kms``.
    drop_bloom_filters : bool
        As for ``ags1.parquet.decrypt_file``.
    spark, source, target, kms, include, exclude, others, aad_prefix, parallelism, threads, on_error, resume, progress
        As for :func:`encrypt_parquet`; a finished file is a newer one that is not encrypted.

    Raises
    ------
    KeyAccessError
        None of the first files can be opened with this KMS: before any task is started.
    TypeError, ValueError, FormatError, Ags1Error, OSError
        As for :func:`encrypt_parquet`; an AuthenticationError names the file, column and page.
    """
    reading = _reading(
        kms,
        aad_prefix,
        check_footer_integrity=check_footer_integrity,
        allow_plaintext=allow_plaintext,
        algorithm=algorithm,
        cache_seconds=cache_seconds,
    )
    run = Run(spark, source, target, include, exclude, parallelism, on_error, progress)
    return run.transfer("decrypt", reading, None, others, resume, threads, drop_bloom_filters=drop_bloom_filters)


def rekey_parquet(
    spark: Any,
    source: Tree,
    target: Tree,
    *,
    kms: str,
    footer_key_id: str,
    column_key_ids: Mapping[str, Sequence[Any]] | None = None,
    new_kms: str | None = None,
    include: Patterns = None,
    exclude: Patterns = None,
    others: str = "error",
    old_aad_prefix: str | bytes | None = None,
    check_footer_integrity: bool = True,
    allow_plaintext: bool = False,
    old_algorithm: str | None = None,
    double_wrapping: bool = True,
    data_key_bits: int = 128,
    kek_bits: int = 128,
    encrypt_all: bool = False,
    algorithm: str = "AES_GCM_V1",
    plaintext_footer: bool = False,
    aad_prefix: str | bytes | None = None,
    store_aad_prefix: bool = True,
    kms_instance_id: str = "DEFAULT",
    kms_instance_url: str = "DEFAULT",
    cache_seconds: float = CACHE_SECONDS,
    data_page_v2: str = "java",
    plaintext_columns: Iterable[Any] = (),
    drop_bloom_filters: bool = False,
    parallelism: int | None = None,
    threads: int = 1,
    on_error: str = "fail",
    resume: bool = True,
    progress: Any = True,
) -> Result:
    """Encrypt the encrypted Parquet files of a tree in another way, into another tree, with new data keys.

    Parameters
    ----------
    kms : str
        URL of the service that the source is read with.
    new_kms : str, optional
        URL of the one that the target's keys are wrapped by; by default the same.
    old_aad_prefix, old_algorithm, check_footer_integrity, allow_plaintext
        What the source is read with, as for :func:`decrypt_parquet`.
    plaintext_columns, drop_bloom_filters
        As for ``ags1.parquet.rekey_file``: a file of which other encrypted columns would become plaintext is an error.
    spark, source, target, footer_key_id, column_key_ids, include, exclude, others, double_wrapping, data_key_bits, \
kek_bits, encrypt_all, algorithm, plaintext_footer, aad_prefix, store_aad_prefix, kms_instance_id, kms_instance_url, \
cache_seconds, data_page_v2, parallelism, threads, on_error, resume, progress
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
    reading = _reading(
        kms,
        old_aad_prefix,
        check_footer_integrity=check_footer_integrity,
        allow_plaintext=allow_plaintext,
        algorithm=old_algorithm,
        cache_seconds=cache_seconds,
    )
    writing = _writing(
        kms if new_kms is None else kms_reference(new_kms, "new_kms"),
        footer_key_id,
        column_key_ids,
        aad_prefix,
        double_wrapping=double_wrapping,
        data_key_bits=data_key_bits,
        kek_bits=kek_bits,
        encrypt_all=encrypt_all,
        algorithm=algorithm,
        plaintext_footer=plaintext_footer,
        store_aad_prefix=store_aad_prefix,
        kms_instance_id=kms_instance_id,
        kms_instance_url=kms_instance_url,
        cache_seconds=cache_seconds,
        data_page_v2=data_page_v2,
    )
    run = Run(spark, source, target, include, exclude, parallelism, on_error, progress)
    return run.transfer(
        "rekey",
        reading,
        writing,
        others,
        resume,
        threads,
        plaintext_columns=plaintext_columns,
        drop_bloom_filters=drop_bloom_filters,
    )


def verify_parquet(
    spark: Any,
    source: Tree,
    *,
    kms: str | None = None,
    include: Patterns = None,
    exclude: Patterns = None,
    missing_keys: str = "error",
    require_encrypted: Iterable[Any] = (),
    allow_unauthenticated_pages: bool = False,
    expected: Expected | None = None,
    aad_prefix: str | bytes | None = None,
    check_footer_integrity: bool = True,
    allow_plaintext: bool = False,
    algorithm: str | None = None,
    cache_seconds: float = CACHE_SECONDS,
    parallelism: int | None = None,
    threads: int = 1,
    on_error: str = "collect",
    progress: Any = True,
) -> Result:
    """Authenticate every module of the Parquet files of a tree, on a cluster, without decoding a value.

    Parameters
    ----------
    kms : str, optional
        As for :func:`encrypt_parquet`; without it only files that are not encrypted can be checked.
    missing_keys : {"error", "drop"}
        Whether columns whose key cannot be had are an error.
    require_encrypted, allow_unauthenticated_pages
        As for ``ags1.parquet.verify_file``.
    expected
        The files of which the set consists, as for ``ags1.parquet.verify_tree``. One that is missing has a row with
        an error, and so has one that does not belong to it.
    on_error : {"fail", "collect"}
        "collect" checks all files and reports; "fail" raises the first error.
    spark, source, include, exclude, aad_prefix, check_footer_integrity, allow_plaintext, algorithm, cache_seconds, \
parallelism, threads, progress
        As for :func:`decrypt_parquet`.

    Returns
    -------
    Result
        A row for each file: "ok" if it is authentic, or what it is was allowed, "not protected", or "error". What
        failed is named with its column and page in the row's error; a row that is "ok" and has one tells of
        contradictions in a file that authenticates. Files that are not Parquet are "left out". Both
        lengths are the stored one.

    Raises
    ------
    TypeError, ValueError, KeyAccessError, Ags1Error, OSError
        As for :func:`decrypt_parquet`.
    """
    check_choice(missing_keys, ("error", "drop"), "missing_keys")
    options = {
        "check_footer_integrity": check_footer_integrity,
        "allow_plaintext": allow_plaintext,
        "algorithm": algorithm,
        "cache_seconds": cache_seconds,
    }
    if kms is None:
        reading = Reading(None, (("allow_plaintext", True),) if allow_plaintext else ())
    else:
        reading = _reading(kms, aad_prefix, **options)
    run = Run(spark, source, None, include, exclude, parallelism, on_error, progress)
    return run.verify(
        reading,
        missing_keys,
        threads,
        require_encrypted=require_encrypted,
        allow_unauthenticated_pages=allow_unauthenticated_pages,
        expected=expected,
    )


# -- arguments -----------------------------------------------------------------------------------------------------


def _writing(kms: str, footer_key_id: str, column_key_ids: Any, aad_prefix: Any, **options: Any) -> Writing:
    """What travels of the arguments for writing, after EncryptionConfig has checked them."""
    columns = None
    if column_key_ids is not None:
        if not isinstance(column_key_ids, Mapping):
            raise TypeError(f"column_key_ids must be a mapping, not {type(column_key_ids).__name__}")
        for master, names in column_key_ids.items():
            if isinstance(names, str) or not isinstance(names, Sequence):
                raise TypeError(f"column_key_ids maps master key ids to lists of column names; {master!r} has none")
        columns = tuple((master, tuple(names)) for master, names in column_key_ids.items())
    _check_prefix(aad_prefix, "aad_prefix")
    writing = Writing(kms_reference(kms), footer_key_id, columns, tuple(sorted(options.items())), aad_prefix)
    writing.config("x")
    return writing


def _reading(kms: str, aad_prefix: Any, **options: Any) -> Reading:
    _check_prefix(aad_prefix, "aad_prefix")
    reading = Reading(kms_reference(kms), tuple(sorted(options.items())), aad_prefix)
    reading.config("x")
    return reading


def _check_prefix(prefix: object, what: str) -> None:
    if prefix is not None and not isinstance(prefix, (str, bytes)):
        raise TypeError(f"{what} must be a str or bytes, not {type(prefix).__name__}")
    if prefix is not None and not prefix:
        raise ValueError(f"{what} must not be empty: leave it out for files without")
