"""encrypt() makes and continues a dataset, open() opens one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from ags1.dataset._arguments import check_run, kms_client
from ags1.dataset._dataset import Dataset
from ags1.dataset.damage import authenticated
from ags1.dataset.keys import DatasetKeys
from ags1.dataset.pins import ATTEMPTS, Access, ExpectedVersion, Pins
from ags1.dataset.reports import RunReport
from ags1.dataset.selection import Filter, Patterns
from ags1.dataset.versions import made_since, no_dataset, read_latest, read_named, refuse_uncommitted
from ags1.dataset.writing import Options, write_files
from ags1.errors import AuthenticationError
from ags1.storage import Location
from ags1.streams.files import Progress
from ags1.support.typing import Any


def encrypt(
    source: Any,
    target: Any,
    kms: Any,
    key_id: str | None = None,
    *,
    include: Patterns = None,
    exclude: Patterns = None,
    delete: bool = False,
    allow_empty: bool = False,
    threads: int | None = None,
    on_error: str = "fail",
    resume: bool = True,
    progress: Progress | None = None,
    durable: bool = True,
    single_writer: bool = False,
    dry_run: bool = False,
    again: bool = False,
    pins: Pins | None = None,
    attempts: int = ATTEMPTS,
    source_options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Encrypt a directory into a dataset: each file with a key of its own, under one master key.

    Parameters
    ----------
    source : path or URL
        A directory, or one file. A file that changes during the run is an error. Links, pipes, sockets and devices in
        a directory are skipped and reported. Directories of a local source are kept with their modes, empty ones too.
    target : path or URL
        A directory, made if it is missing, or a prefix in an object store. If it has a dataset already, only files
        that are new or changed are encrypted, and those whose object is missing or has another length. Files that the
        source no longer has stay, unless `delete` is True; files that `include` and `exclude` leave out always stay.
    kms : client or URL
        The service of the master key: a client of :mod:`ags1.kms`, or an argument of :func:`ags1.kms.load`.
    key_id : str, optional
        The master key of a new dataset. An existing dataset must be under it; without it, an existing dataset keeps its
        own, whoever made it: `pins` say which dataset it must be.
    include, exclude : str or sequence of str, optional
        Glob patterns. A pattern without ``/`` is compared with each component of a relative path, one with ``/`` with
        the whole path. It is no error if no file is left: the report then counts none.
    delete : bool
        Remove files from the new version that the source no longer has.
    allow_empty : bool
        With `delete`, whether a source without files, which may not be mounted, removes all that it would; otherwise
        it is refused.
    threads : int, optional
        Threads to use; by default every usable CPU. With 1, no thread is started.
    on_error : {"fail", "collect"}
        "fail" ends the run at the first file that cannot be read or written; "collect" reports it and continues. A
        full disk always ends the run.
    resume : bool
        Whether to reuse the work of an interrupted run; otherwise it is done again.
    progress : callable, optional
        Called as ``progress(done, total)`` with bytes of plaintext. An exception in it stops the run.
    durable : bool
        Wait until all data is on a local disk before the commit, so that a power cut loses no committed file.
    single_writer : bool
        For a store without create-if-absent, or one that only says that it has it: promise that there is never a second
        writer. The version records it.
    dry_run : bool
        Write nothing; the report says what would be done. The dataset must exist already.
    again : bool
        Whether to encrypt what is encrypted already: AGS1 streams, and datasets inside of the source.
    pins : Pins, optional
        What an existing dataset must be; see :func:`open`. Without it, whoever can write in the directory and use the
        master key can put another dataset of that key in its place.
    attempts : int
        How often the version is applied on top of those of other writers, before ConflictError; also for later
        changes through the returned object.
    source_options, storage_options : mapping, optional
        Settings for source and target that are not in the environment.

    Returns
    -------
    Dataset
        With a :attr:`~Dataset.report` of what was done.

    Raises
    ------
    OSError
        Reading or writing failed. Files that were encrypted until then are kept for the next run.
    ConflictError
        Another writer has changed one of the same paths in the meantime.
    KeyAccessError
        The master key cannot be used.
    AlreadyEncryptedError
        A file of the source is an AGS1 stream, or the source is or has a dataset.
    ValueError
        The dataset is under another master key; source and target overlap; the source has no files, with `delete` and
        without `allow_empty`; or `include` and `exclude` leave no file for a new dataset.
    UnsupportedError
        The store has no create-if-absent, or let several creations of one object succeed; or the dataset has another
        format version.
    FormatError, AuthenticationError
        The existing dataset is damaged, or was changed by another program.

    Notes
    -----
    The last step of a run creates one small file, which makes the new version visible. If a run is interrupted, the
    dataset is the complete old version or the complete new one.
    """
    check_run(on_error, threads)
    options = Options(
        Filter(include, exclude), threads, on_error, resume, progress, durable, dry_run, delete, allow_empty,
        single_writer, again=again,
    )  # fmt: skip
    where, there = Location(source, source_options), Location(target, storage_options).as_root()
    with kms_client(kms) as (client, close):
        access = Access.of(there, client, pins, attempts)
        report, found = write_files(where, access, "", key_id, "encrypt", options)
        if found is None:
            raise no_dataset(there)
        # That of the pins, or the one that the caller named.
        access = replace(access, pins=access.pins.under(found.key_id))
        dataset = Dataset(access, found, DatasetKeys(found.key, client, there.text), threads, close)
    dataset.report = report
    return dataset


def preview(
    source: Any,
    target: Any,
    kms: Any,
    key_id: str | None = None,
    *,
    include: Patterns = None,
    exclude: Patterns = None,
    delete: bool = False,
    allow_empty: bool = False,
    on_error: str = "fail",
    again: bool = False,
    pins: Pins | None = None,
    source_options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> RunReport:
    """Report what :func:`encrypt` would do; nothing is written. The master key is tried by wrapping a key."""
    options = Options(
        Filter(include, exclude),
        on_error=on_error,
        dry_run=True,
        delete=delete,
        allow_empty=allow_empty,
        single_writer=True,
        again=again,
    )
    with kms_client(kms) as (client, close):
        where, there = Location(source, source_options), Location(target, storage_options).as_root()
        report, _ = write_files(where, Access.of(there, client, pins), "", key_id, "encrypt", options)
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
    pins: Pins | None = None,
    attempts: int = ATTEMPTS,
    threads: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Open a dataset: the KMS is called once, however many files it has.

    Parameters
    ----------
    target : path or URL
        The directory of the dataset.
    kms : client or URL
        A client of :mod:`ags1.kms`, or an argument of :func:`ags1.kms.load`.
    version : int, optional
        The version to show; by default the last one.
    expected_version, expected_uuid, expected_digest : optional
        Required properties of the dataset. Without them, two attacks are not detected, because the data is authentic:
        the whole directory restored from an older copy, and another dataset under the same master key in its place.
    key_id : str, optional
        The master key that the dataset must be under. Without it, an attacker who can write the directory and use
        another key of the same service can substitute a dataset.
    pins : Pins, optional
        What an earlier :attr:`Dataset.pins` said: the same dataset and master key, and no older version. The last
        version must be that, also if `version` is an older one. After a rewrap by somebody else, `key_id` is the new
        master key.
    attempts : int
        How often a change through this object is applied on top of the versions of other writers, before
        ConflictError.
    threads : int, optional
        Threads for reading; by default every usable CPU for large reads.
    storage_options : mapping, optional
        Settings for the URL that are not in the environment.

    Raises
    ------
    FileNotFoundError
        There is no dataset, its first run was not completed, or it has no such version.
    KeyAccessError
        The master key cannot be used, or is not `key_id`.
    FormatError
        The dataset is damaged, or the directory has none.
    AuthenticationError
        The version or a manifest was changed; or it is not what was expected.

    Notes
    -----
    What is expected here, or what was found where nothing is, holds for as long as the object lives: every version
    that it shows or builds on later has the same UUID and master key, and no lower number. :attr:`Dataset.pins` are
    these.
    """
    check_run("fail", threads)
    location = Location(target, storage_options).as_root()
    with kms_client(kms) as (client, close):
        expected = ExpectedVersion(expected_version, expected_uuid, expected_digest, key_id)
        found = read_latest(location) if version is None else read_named(location, version)
        if found is None:
            raise no_dataset(location)
        if pins is None:
            keys = authenticated(location, found, client, partial(expected.check, found, location))
        else:
            last = found if version is None else read_latest(location)
            assert last is not None
            # The caller names the new master key.
            pins = known = pins.under(last.key_id) if key_id == last.key_id else pins

            def check() -> None:
                expected.check(found, location)
                known.check(last, location)

            keys = authenticated(location, last, client, check)
            if last.version > found.version and made_since(location, last, found.version - 1)[0] != found:
                raise AuthenticationError(f"version {found.version} of {location} is not one that the last follows")
            pins = pins.holding(last)
        if version is not None:
            refuse_uncommitted(location, found, keys)
        return Dataset(Access.of(location, client, pins, attempts), found, keys, threads, close)
