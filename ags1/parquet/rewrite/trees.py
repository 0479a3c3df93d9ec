"""Directories of Parquet files: each file is encrypted, decrypted, re-keyed or verified, and keeps its name.

>>> from ags1 import parquet
>>> encryption = parquet.EncryptionConfig.from_kms("aws:?region=eu-central-1", "alias/lake")  # doctest: +SKIP
>>> parquet.encrypt_tree("people", "people-encrypted", encryption)  # doctest: +SKIP

The content of a file decides what is done with it; if that is not enough, its name:

    Parquet, whatever its name; NAME.parquet    the work is done on it
    _metadata                                   left out: it repeats statistics of all files, and points into old bytes
    .NAME.crc beside NAME                       left out: a checksum of bytes that change
    _KEY_MATERIAL_FOR_NAME.json                 left out: it goes with the old keys; new ones are written where needed
    empty, beginning with _ or . (_SUCCESS)     copied
    a link                                      left out: it is not followed
    anything else                               refused, copied or left out, as `others` says
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import warnings
from dataclasses import dataclass, field

from ags1.kms.asking import reported
from ags1.parquet.keys.properties import EncryptionConfig
from ags1.parquet.rewrite.operations import (
    COPY,
    LEAVE_OUT,
    OTHER,
    PARQUET,
    FileOperation,
    Lacking,
    classify,
    refuse_missing_columns,
    refuse_others,
)
from ags1.parquet.rewrite.tree_files import FINISHED, TreeWork
from ags1.parquet.verify.expected import ExpectedFiles
from ags1.parquet.verify.report import add_file, add_missing, report_of_set
from ags1.storage import (
    REQUESTS_AT_ONCE,
    Entry,
    Location,
    directories_like,
    inside,
    list_files,
    pass_unnamed,
    refuse_twins,
    status,
)
from ags1.streams.files import Progress
from ags1.support.arguments import one_of, spelled
from ags1.support.parallel import in_parallel
from ags1.support.reports import ERROR, NOT_CHECKED, Finding, Report, VerifyReport
from ags1.support.words import LINK
from ags1.work.units import OneByOne, SharedProgress, Threads, run_on_threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any, Protocol, TypeAlias

    from ags1.parquet.keys.columns import ColumnName
    from ags1.parquet.rewrite.operations import Decryption, Encryption
    from ags1.parquet.verify.expected import Expected

    FilePath: TypeAlias = str | os.PathLike[str]

    class Executor(Protocol):
        """What does the work on the files of a tree that becomes another: threads, or Spark."""

        @property
        def source(self) -> Location | None:
            """The directory that becomes the target, if it is one."""

        def entries(self) -> Iterable[Entry]:
            """The files that may come into the target."""

        def others(self, work: TreeWork) -> Iterable[str]:
            """Names of files that are not Parquet; the first ones are enough."""

        def lacking(self, work: TreeWork) -> Iterable[Lacking]:
            """The columns that each file lacks."""

        def transfer(self, work: TreeWork) -> Iterable[Any]:
            """Do the work on all files; return those that were put off."""

        def finish(self, work: TreeWork, later: Iterable[Any]) -> None:
            """Copy the files that were put off, or leave them out if a file failed."""


NO_PARQUET = "there are no Parquet files in {}"
FAILED_BEFORE = "a file before it failed"


@dataclass
class ParquetTreeReport(Report):
    """The results for the files of a tree. Names are relative to it; there are no keys.

    Attributes
    ----------
    done : list of str
        Files that were processed.
    done_bytes : int
        Their size in the source, in bytes.
    finished_before : list of str
        Files that an earlier run had finished, with ``resume=True``.
    copied : list of str
        Files that were copied unchanged.
    left_out : list of (str, str)
        Files that the target does not have, and the reason.
    errors : list of (str, Exception)
        Files that failed, with ``on_error="collect"``.
    """

    done: list[str] = field(default_factory=list)
    done_bytes: int = 0
    finished_before: list[str] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    errors: list[tuple[str, Exception]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.errors


def encrypt_tree(
    source: FilePath,
    target: FilePath,
    encryption: Encryption,
    *,
    shared_keys: bool = False,
    missing_columns: str = "fail",
    others: str = "error",
    on_error: str = "fail",
    resume: bool = False,
    overwrite: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    durable: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> ParquetTreeReport:
    """Encrypt the Parquet files of a directory into another. Each file appears whole or not at all.

    A directory without Parquet files is most likely another one than was meant: a warning says so.

    Parameters
    ----------
    source, target : path or URL
        Directories. Files keep their names; other files in the target are not changed. A link in the target is replaced
        where a file is written, and refused in the way to it: nothing is written outside of the target. Links in the
        source are left out. Directories have the modes of the source's.
    encryption : EncryptionConfig or callable
        One configuration for all files, or a function that returns one for the name of a file, with ``/`` between its
        parts: ``lambda name: config.with_aad_prefix(name.encode())`` binds each file to its place.
    shared_keys : bool
        Encrypt many files with the same given keys. AES GCM allows 2**32 invocations for a key, over all files of this
        and all other runs, and they are not counted across runs. With ``from_kms``, each file has new keys.
    missing_columns : {"fail", "skip"}
        What to do with files that lack a column that has a key: refuse the tree before anything is written, or encrypt
        the columns that each file has. A column that no file has is an error in both cases, before anything is written,
        and so is one that a file has in another case only.
    others : {"error", "copy", "skip"}
        What to do with files that are not Parquet: refuse the tree before anything is written, copy them unencrypted,
        or leave them out.
    on_error : {"fail", "collect"}
        Stop at the first file that fails, or continue and report it. If the key management service refuses every file,
        or cannot be reached, or the disk is full, that is always raised.
    resume : bool
        Skip files that an earlier run has finished: the target is newer than the source (and than the coming of a local
        one, which may have an older time), it has the source's schema and numbers of rows, and its footer has the same
        algorithm, mode, stored AAD prefix and keys; with ``from_kms``, keys under the same master keys.
    overwrite : bool
        Replace files that the target has. A run with `resume` replaces those that no earlier run has finished; without
        `overwrite`, not those that are newer than their source and better protected than the result.
    threads : int, optional
        Threads in all, for several files at once or within large ones; by default every usable CPU. For an object
        store, more files are processed at once, because they wait for requests. Functions that return configurations
        are called by several threads.
    progress : callable, optional
        Called as ``progress(done, total)`` with bytes of all files. An exception from it stops the work.
    durable : bool
        Wait until each file is on the disk.
    storage_options : mapping, optional
        Endpoint, credentials and the like for URLs, of source and target, as :func:`ags1.open`; key material beside
        files is found by what the environment says.

    Raises
    ------
    ValueError
        Given keys for many files, without `shared_keys`; the same directory as source and target; missing columns.
    FileExistsError
        The target has a file of that name, without `overwrite` and `resume`; nothing was written. Or a file would
        replace one that is not Parquet, or no regular file.
    NotADirectoryError
        One file has the name of a directory of another file, as only a store allows. Nothing was written.
    FormatError, LimitError, KeyAccessError, OSError
        As :func:`encrypt_file`; a file was changed since it was listed. Files written before stay.
    """
    operation = FileOperation("encrypt", None, encryption, missing_columns=missing_columns)
    options = _Options(others, on_error, resume, overwrite, threads, progress, durable, storage_options)
    return reported(_run(operation, source, target, options, None if shared_keys else encryption), encryption)


def decrypt_tree(
    source: FilePath,
    target: FilePath,
    decryption: Decryption,
    *,
    drop_bloom_filters: bool = False,
    others: str = "error",
    on_error: str = "fail",
    resume: bool = False,
    overwrite: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    durable: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> ParquetTreeReport:
    """Decrypt the Parquet files of a directory into another.

    Parameters
    ----------
    decryption : DecryptionConfig or callable
        One configuration for all files, or a function that returns one for the name of a file.
    drop_bloom_filters : bool
        As :func:`decrypt_file`.
    source, target, others, on_error, resume, overwrite, threads, progress, durable, storage_options
        As :func:`encrypt_tree`; a file is finished if it is newer and not encrypted.

    Raises
    ------
    AuthenticationError, KeyAccessError, FormatError, OSError, ValueError
        As :func:`decrypt_file`.
    """
    operation = FileOperation("decrypt", decryption, drop_bloom_filters=drop_bloom_filters)
    options = _Options(others, on_error, resume, overwrite, threads, progress, durable, storage_options)
    return _run(operation, source, target, options)


def rekey_tree(
    source: FilePath,
    target: FilePath,
    decryption: Decryption,
    encryption: Encryption,
    *,
    plaintext_columns: Iterable[ColumnName] = (),
    drop_bloom_filters: bool = False,
    shared_keys: bool = False,
    missing_columns: str = "fail",
    others: str = "error",
    on_error: str = "fail",
    resume: bool = False,
    overwrite: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    durable: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> ParquetTreeReport:
    """Re-encrypt the encrypted Parquet files of a directory into another directory.

    Parameters
    ----------
    plaintext_columns, drop_bloom_filters
        As :func:`rekey_file`.
    source, target, decryption, encryption, shared_keys, missing_columns, others, on_error, resume, overwrite, threads,
    progress, durable, storage_options
        As :func:`decrypt_tree` and :func:`encrypt_tree`.

    Raises
    ------
    AuthenticationError, KeyAccessError, FormatError, LimitError, OSError, ValueError
        As :func:`rekey_file`.
    """
    operation = FileOperation(
        "rekey",
        decryption,
        encryption,
        plaintext_columns=plaintext_columns,
        drop_bloom_filters=drop_bloom_filters,
        missing_columns=missing_columns,
    )
    options = _Options(others, on_error, resume, overwrite, threads, progress, durable, storage_options)
    return reported(_run(operation, source, target, options, None if shared_keys else encryption), encryption)


def verify_tree(
    source: FilePath,
    decryption: Decryption | None,
    *,
    missing_keys: str = "error",
    require_encrypted: Iterable[ColumnName] = (),
    allow_unauthenticated_pages: bool = False,
    expected: Expected | None = None,
    on_error: str = "fail",
    threads: int | None = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> VerifyReport:
    """Authenticate every module of every Parquet file of a directory, without decoding; other files are left out.

    A directory without Parquet files is not authentic: a warning says so, its report is not ok, and its outcome is "not
    checked".

    Parameters
    ----------
    source, decryption, on_error, threads, progress, storage_options
        As :func:`decrypt_tree`. Modules that fail are findings; "fail" is about files that cannot be examined.
    missing_keys, require_encrypted, allow_unauthenticated_pages
        As :func:`verify_file`.
    expected : str, bytes, path or iterable of str and bytes, optional
        The files of the set, each once: names in the tree as str, AAD prefixes as bytes, or the path of a text file
        with one name in each line. ``part-{0..99}.parquet`` stands for 100 names. The report names missing files and
        unexpected Parquet files.

    Returns
    -------
    VerifyReport
        `checked` has "files", those that are `ok`, "modules" and "bytes". `facts` has "results", the report of each
        file by name; "outcomes", the number of files of each; and "left_out", names of other files with the reason.

        Findings are those of each file, with its name as `subject` and `details`, and the codes of :func:`verify_file`.
        Other codes of errors: "not-there", an expected file; "not-expected", a file that is not; "nothing-found"; and
        "missing", "truncated", "unsupported" or "unreadable" of a file that could not be examined.

    Raises
    ------
    AuthenticationError, KeyAccessError, FormatError, LimitError, OSError, ValueError
        As :func:`verify_file`, with ``on_error="fail"``; or `expected` names no file.
    """
    from ags1.parquet.verify.verification import verify_file

    one_of(on_error, ("fail", "collect"), "on_error")
    required = require_encrypted if isinstance(require_encrypted, str) else list(require_encrypted)
    wanted = None if expected is None else ExpectedFiles(expected)
    listed = ParquetTreeReport()
    plan = _classified(_listed(source, None, storage_options, listed), threads)
    chosen = [each for each, kind, _ in plan if kind == PARQUET]
    left_out = listed.left_out + [(each.name, reason) for each, kind, reason in plan if kind != PARQUET]
    where = Location(source).shown
    report = report_of_set(where)
    results: dict[str, VerifyReport] = {}
    report.facts |= {"left_out": left_out, "results": results}
    if not chosen:
        warnings.warn(NO_PARQUET.format(where), stacklevel=2)
        report.add(Finding(ERROR, "nothing-found", where, NO_PARQUET.format(where), NOT_CHECKED))

    def verify(each: Entry, threads: int | None, within: Progress) -> VerifyReport:
        return verify_file(
            each,
            decryption(each.name) if callable(decryption) else decryption,
            missing_keys=missing_keys,
            require_encrypted=required,
            allow_unauthenticated_pages=allow_unauthenticated_pages,
            threads=threads,
            progress=within,
        )

    how, shared = _threads(chosen, threads), SharedProgress(progress, sum(each.size for each in chosen))
    for each, found, error, *_ in run_on_threads(OneByOne(verify), chosen, how, shared, on_error=on_error):
        if error is None:
            results[each.name] = found
        add_file(report, each.name, found if error is None else error, wanted)
    add_missing(report, wanted)
    return report


@dataclass(frozen=True)
class _Options:
    """What a caller says of a tree that becomes another; see :func:`encrypt_tree`."""

    others: str
    on_error: str
    resume: bool
    overwrite: bool
    threads: int | None
    progress: Progress | None
    durable: bool
    storage_options: Mapping[str, Any] | None


def _threads(files: list[Entry], threads: int | None) -> Threads:
    return Threads.of_files([each.location for each in files[:1]], [each.size for each in files], threads)


def _run(
    operation: FileOperation,
    source: FilePath,
    target: FilePath,
    options: _Options,
    unshared: Encryption | None = None,
) -> ParquetTreeReport:
    """Process a tree; `unshared` has keys that must not be given for many files."""
    report = ParquetTreeReport()
    files = _listed(source, target, options.storage_options, report)
    if len(files) > 1 and isinstance(unshared, EncryptionConfig) and not unshared.fresh_keys:
        raise ValueError(
            "these keys would encrypt many files, and AES GCM allows a key only 2**32 invocations for all of them: "
            "give a configuration with from_kms, which makes new keys for each file, a function that returns a "
            f"configuration for the name of each file, or {spelled('shared_keys', True)}"
        )
    one_of(options.others, ("error", "copy", "skip"), "others")
    one_of(options.on_error, ("fail", "collect"), "on_error")
    kinds = {each.name: (kind, reason) for each, kind, reason in _classified(files, options.threads)}
    root = Location(target, options.storage_options).as_root()
    work = TreeWork(
        lambda: operation,
        lambda each: kinds[each.name],
        root,
        options.others,
        options.resume,
        options.overwrite,
        options.durable,
    )
    plan = [(each, *work.kind(each)) for each in files]
    report.left_out.extend((each.name, reason) for each, kind, reason in plan if kind in (OTHER, LEAVE_OUT))
    if not (options.overwrite or options.resume):
        _refuse_existing([root.join(each.name) for each, kind, _ in plan if kind in (PARQUET, COPY)])
    executor = _OnThreads(Location(source, options.storage_options), plan, options, report)
    # The work on the single file of a tree refuses it.
    run_tree(work, executor, stops=options.on_error == "fail" and sum(kind == PARQUET for _, kind, _ in plan) > 1)
    return report


def _refuse_existing(targets: list[Location]) -> None:
    there = [*itertools.compress(targets, in_parallel(_exists, targets, REQUESTS_AT_ONCE))]
    if there:
        text = (
            f"it exists ({len(there):,} of {len(targets):,} targets do), and nothing was replaced: "
            f"{spelled('overwrite', True)}"
        )
        raise FileExistsError(errno.EEXIST, f"{text} replaces what exists", there[0].shown)


def _exists(target: Location) -> bool:
    try:
        status(target)
    except PermissionError:
        raise
    except OSError:
        # None, or a directory, a link, a pipe: the work refuses or replaces it as it says.
        return False
    return True


def run_tree(work: TreeWork, executor: Executor, *, stops: bool) -> None:
    """Refuse what must not be begun, then write; `stops` is whether a file without a column is a reason to refuse."""
    root = work.target.as_root()
    refuse_twins((each.name for each in executor.entries()), root)
    if work.others == "error":
        way_out = f"{spelled('others', 'copy')} copies them unencrypted, {spelled('others', 'skip')} leaves them out"
        refuse_others(list(executor.others(work)), way_out)
    operation = work.operation()
    if operation.encrypts and (stops or operation.missing_columns == "skip"):
        way_out = f"{spelled('missing_columns', 'skip')} encrypts those that a file has"
        refuse_missing_columns(executor.lacking(work), operation.missing_columns, way_out)
    with directories_like(executor.source, root, ((each.name, each.location) for each in executor.entries())):
        # Markers such as _SUCCESS state that the set is complete, so they are copied last, if nothing failed.
        executor.finish(work, executor.transfer(work))


class _OnThreads:
    """Threads of this process."""

    def __init__(
        self, source: Location, plan: list[tuple[Entry, str, str]], options: _Options, report: ParquetTreeReport
    ) -> None:
        self.source, self._options, self._report = source, options, report
        self._plan = plan
        self._files = [each for each, kind, _ in plan if kind == PARQUET]
        self._copied = [each for each, kind, _ in plan if kind == COPY]
        self._threads = _threads(self._files, options.threads)

    def entries(self) -> list[Entry]:
        return [*self._files, *self._copied]

    def others(self, work: TreeWork) -> list[str]:
        return [each.name for each, kind, _ in self._plan if kind == OTHER]

    def lacking(self, work: TreeWork) -> Iterator[Lacking]:
        with contextlib.closing(in_parallel(work.lacking, self._files, self._threads.at_once)) as found:
            yield from found

    def transfer(self, work: TreeWork) -> list[Entry]:
        if not self._files:
            warnings.warn(NO_PARQUET.format(self.source), stacklevel=5)
        self._progress = SharedProgress(self._options.progress, sum(each.size for each in self.entries()))
        self._do(work.transfer, self._files, self._threads, self._report.done)
        done = set(self._report.done)
        self._report.done_bytes = sum(each.size for each in self._files if each.name in done)
        return self._copied

    def finish(self, work: TreeWork, later: Iterable[Entry]) -> None:
        if self._report.errors:
            self._report.left_out += [(each.name, FAILED_BEFORE) for each in later]
        else:
            self._do(work.copy, later, Threads(1), self._report.copied)

    def _do(self, function: Any, files: Iterable[Entry], threads: Threads, done: list[str]) -> None:
        found = run_on_threads(OneByOne(function), files, threads, self._progress, on_error=self._options.on_error)
        for each, result, error, *_ in found:
            if error is not None:
                self._report.errors.append((each.name, error))
            else:
                (self._report.finished_before if result.status == FINISHED else done).append(each.name)


def _classified(files: list[Entry], threads: int | None) -> list[tuple[Entry, str, str]]:
    known = {each.name for each in files}
    at_once = _threads(files, threads).at_once
    return list(in_parallel(lambda each: (each, *classify(each.location, each.name, known)), files, at_once))


def _listed(
    source: FilePath, target: FilePath | None, storage_options: Mapping[str, Any] | None, report: ParquetTreeReport
) -> list[Entry]:
    """The files of a tree, without those of the target if that is inside the tree, and of directories behind links."""
    root = Location(source, storage_options)
    outside = None if target is None else Location(target, storage_options)
    if outside is not None and inside(outside, root) == "":
        raise ValueError(f"source and target are the same directory ({root}): write to another, then rename")

    def leave_out(name: str) -> None:
        report.left_out.append((name, f"it {LINK}"))

    def leave_out_unnamed(error: OSError) -> None:
        pass_unnamed(error)
        report.left_out.append((str(error.filename).removeprefix(f"{root.shown.rstrip('/')}/"), str(error.strerror)))

    on_error = leave_out_unnamed if root.is_object else None
    return list_files(root, outside=outside, on_link=leave_out, on_error=on_error)
