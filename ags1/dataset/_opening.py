"""encrypt() makes and continues a dataset, open() opens one."""

from __future__ import annotations

import errno
from collections.abc import Mapping

from ags1._typing import Any
from ags1.dataset._arguments import check_run, kms_client
from ags1.dataset._dataset import Dataset
from ags1.dataset.classes import patterns_of
from ags1.dataset.reports import RunReport
from ags1.dataset.selection import Filter, Patterns
from ags1.dataset.versions import Version, read_committed, read_latest
from ags1.dataset.writing import Options, write_files
from ags1.errors import AuthenticationError, KeyAccessError
from ags1.files import Progress
from ags1.storage import Location


def encrypt(
    source: Any,
    target: Any,
    kms: Any,
    key_id: str | None = None,
    *,
    keys: Mapping[str, str] | None = None,
    include: Patterns = None,
    exclude: Patterns = None,
    delete: bool = False,
    threads: int | None = None,
    on_error: str = "fail",
    resume: bool = True,
    progress: Progress | None = None,
    durable: bool = True,
    single_writer: bool = False,
    dry_run: bool = False,
    source_options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Encrypt a directory into a dataset: each file with a key of its own, under one master key or several.

    Parameters
    ----------
    source : path or URL
        A directory, or one file. It must not change meanwhile: a file that does is an error. Links to files stand for
        their contents; links to directories, pipes, sockets and devices are left out and reported; empty directories
        are not kept.
    target : path or URL
        A directory, made if it is missing, or a place in an object store. If there is a dataset, only files that are
        new or have changed are encrypted, and those whose object is missing or has another length. Files that the
        source has no more stay, unless `delete` is True; those that `include` and `exclude` leave out stay in any case.
    kms : client or URL
        Where the master keys are: a client of :mod:`ags1.kms`, or what :func:`ags1.kms.load` takes.
    key_id : str, optional
        The master key of all files that no pattern of `keys` names.
    keys : mapping of str to str, optional
        Patterns of paths with their master keys, such as ``{"tenant=a/**": "alias/a", "**": "alias/lake"}``. The first
        that matches counts. Without the master key of a class, its files cannot be opened, the others can. They replace
        the patterns of a dataset that is there, and its files that come under another class are encrypted again;
        without `keys`, its patterns stay.
    include, exclude : str or sequence of str, optional
        Glob patterns. One without ``/`` is compared with each component of a relative path, one with ``/`` with the
        whole path. If they leave no file, that is no error: the report counts none.
    delete : bool
        Leave files out of the new version that the source has no more.
    threads : int, optional
        Threads to use; by default every usable CPU. 1 starts none.
    on_error : {"fail", "collect"}
        What a file that cannot be read or written does: end the run, or be reported while the others go on. A full
        disk always ends the run.
    resume : bool
        Whether to take over what an interrupted run has done; otherwise that is done again.
    progress : callable, optional
        Called as ``progress(done, total)`` with bytes of plaintext. An exception in it stops the run.
    durable : bool
        Wait until all data is on a local disk before the commit, so that a power cut loses no committed file.
    single_writer : bool
        For a new dataset in a store without create-if-absent: promise that nobody else ever writes.
    dry_run : bool
        Write nothing; the report says what would be done. There must be a dataset to be returned.
    source_options, storage_options : mapping, optional
        What is needed to reach source and target, and is not in the environment.

    Returns
    -------
    Dataset
        With a :attr:`~Dataset.report` of what was done.

    Raises
    ------
    OSError
        Reading or writing failed. What was encrypted by then is kept for the next run.
    ConflictError
        Somebody else has changed one of the same paths meanwhile.
    KeyAccessError
        A master key could not be used.
    ValueError
        The dataset is under another master key; source and target overlap; of a source for a new dataset, `include`
        and `exclude` leave no file.
    UnsupportedError
        The store has no create-if-absent; or the dataset there has another format.
    FormatError, AuthenticationError
        The dataset that is there is damaged, or was changed by somebody else.

    Notes
    -----
    Nothing of it is seen before one small file is created, last: whatever interrupts a run, the dataset is the old
    version or the new one, whole.
    """
    check_run(on_error, threads)
    options = Options(
        Filter(include, exclude), threads, on_error, resume, progress, durable, dry_run, delete, single_writer
    )  # fmt: skip
    where, there = Location(source, source_options), Location(target, storage_options)
    with kms_client(kms) as (client, close):
        report = write_files(where, there, "", client, patterns_of(key_id, keys), "encrypt", options)
        found = read_latest(there)
        assert found is not None
        dataset = Dataset(there, found, client, threads, close)
    dataset.report = report
    return dataset


def preview(
    source: Any,
    target: Any,
    kms: Any,
    key_id: str | None = None,
    *,
    keys: Mapping[str, str] | None = None,
    include: Patterns = None,
    exclude: Patterns = None,
    delete: bool = False,
    on_error: str = "fail",
    source_options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> RunReport:
    """What :func:`encrypt` would do; nothing is written."""
    options = Options(Filter(include, exclude), on_error=on_error, dry_run=True, delete=delete, single_writer=True)
    with kms_client(kms) as (client, close):
        where, there = Location(source, source_options), Location(target, storage_options)
        report = write_files(where, there, "", client, patterns_of(key_id, keys), "encrypt", options)
    if close is not None:
        close()
    return report


def open(
    target: Any,
    kms: Any,
    *,
    version: int | None = None,
    expected_version: int | None = None,
    expected_uuid: str | None = None,
    expected_digest: str | None = None,
    key_id: str | None = None,
    threads: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Open a dataset: one call to the KMS for each class of keys that is used, whatever the number of files.

    Parameters
    ----------
    target : path or URL
        Its directory.
    kms : client or URL
        A client of :mod:`ags1.kms`, or what :func:`ags1.kms.load` takes.
    version : int, optional
        The version to show; by default the last one.
    expected_version, expected_uuid, expected_digest : optional
        What the dataset must have. Nothing else shows that somebody put back the whole directory from an older copy,
        or put another dataset under the same master key in its place, because those are authentic.
    key_id : str, optional
        The master key that the default class must be under. Whoever can write the directory and use another key of
        the same service could otherwise bring a dataset of their own.
    threads : int, optional
        Threads for reading; by default every usable CPU for large reads.
    storage_options : mapping, optional
        What is needed to reach a URL and is not in the environment.

    Raises
    ------
    FileNotFoundError
        There is no dataset, its first run was not completed, or it has no such version.
    KeyAccessError
        The master key could not be used, or is not `key_id`.
    FormatError
        What is there is damaged, or no dataset.
    AuthenticationError
        The version or a manifest was changed; or it is not what was expected.
    """
    check_run("fail", threads)
    location = Location(target, storage_options)
    with kms_client(kms) as (client, close):
        found = read_latest(location) if version is None else read_committed(location, version)
        if found is None:
            text = "there is no ags1 dataset here, or its first run was not completed"
            raise FileNotFoundError(errno.ENOENT, text, location.text)
        _expect(location, found, expected_version, expected_uuid, expected_digest, key_id)
        return Dataset(location, found, client, threads, close)


def _expect(
    location: Location, found: Version, version: int | None, uuid: str | None, digest: str | None, key_id: str | None
) -> None:
    if version is not None and found.version != version:
        why = "it was changed since"
        if found.version < version:
            why = "an older copy was put back, or the number is too high"
        raise AuthenticationError(f"{location} has version {found.version}, but {version} is expected: {why}")
    if uuid is not None and found.uuid != uuid:
        raise AuthenticationError(f"{location} is the dataset {found.uuid}, but {uuid} is expected: it was replaced")
    if digest is not None and found.digest != digest:
        raise AuthenticationError(
            f"version {found.version} of {location} has the digest {found.digest}, but {digest} is expected: it was "
            "replaced, or changed since"
        )
    if key_id is not None and found.key_id != key_id:
        raise KeyAccessError(f"{location} is under the master key {found.key_id!r}, but {key_id!r} is expected")
