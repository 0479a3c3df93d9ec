"""Directories of Parquet files: each file encrypted, decrypted, re-keyed or verified, under the name that it has.

>>> from ags1 import parquet
>>> encryption = parquet.EncryptionConfig.from_kms("aws:?region=eu-central-1", "alias/lake")  # doctest: +SKIP
>>> parquet.encrypt_tree("people", "people-encrypted", encryption)  # doctest: +SKIP

What a file is, its contents say, and its name where they cannot:

    Parquet, whatever its name; NAME.parquet    the work is done on it
    _metadata                                   left out: it repeats statistics of all files, and points into old bytes
    .NAME.crc beside NAME                       left out: a checksum of bytes that change
    _KEY_MATERIAL_FOR_NAME.json                 left out: it goes with the old keys; new ones are written where needed
    empty, beginning with _ or . (_SUCCESS)     copied
    anything else                               refused, copied or left out, as `others` says
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ags1._blocks import usable_cpus
from ags1._parallel import SharedProgress, in_parallel
from ags1.errors import Ags1Error
from ags1.files import Progress
from ags1.kms import ServiceRefusal
from ags1.parquet.config_arguments import one_of
from ags1.parquet.expected import ExpectedFiles
from ags1.parquet.operations import (
    COPY,
    LEAVE_OUT,
    OTHER,
    PARQUET,
    Decrypting,
    Encrypting,
    FileOperation,
    Rekeying,
    classify,
    copy_file,
    refuse_others,
)
from ags1.parquet.properties import EncryptionConfig
from ags1.parquet.verify_report import DAMAGED, NOT_CHECKED, outcome_of, worst_outcome
from ags1.storage import Entry, Location, list_files, make_parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, TypeAlias, TypeVar

    from ags1.parquet._columns import ColumnName
    from ags1.parquet.expected import Expected
    from ags1.parquet.operations import Decryption, Encryption
    from ags1.parquet.verify_report import VerifyReport

    FilePath: TypeAlias = str | os.PathLike[str]
    T = TypeVar("T")

# Each waits for its requests most of the time.
_REMOTE_FILES = 16

__all__ = ["TreeReport", "decrypt_tree", "encrypt_tree", "rekey_tree", "verify_tree"]


@dataclass
class TreeReport:
    """What was done with the files of a tree. Names are relative to it; there are no keys.

    Attributes
    ----------
    done : list of str
        Files that the work was done on.
    done_bytes : int
        Their bytes in the source.
    finished_before : list of str
        Files that an earlier run had finished, with ``resume=True``.
    copied : list of str
        Files that are the same in the target.
    left_out : list of (str, str)
        Files that the target does not have, and why.
    errors : list of (str, Exception)
        Files that failed, with ``on_error="collect"``.
    results : dict of str to VerifyReport
        What was found in each file, for :func:`verify_tree`.
    missing : list of str
        Files that :func:`verify_tree` was told to expect, and that are not there.
    unexpected : list of (str, str)
        Files that do not belong to what it was told to expect, and why.
    is_verification : bool
        Whether :func:`verify_tree` made it.
    """

    done: list[str] = field(default_factory=list)
    done_bytes: int = 0
    finished_before: list[str] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    errors: list[tuple[str, Exception]] = field(default_factory=list)
    results: dict[str, VerifyReport] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    unexpected: list[tuple[str, str]] = field(default_factory=list)
    is_verification: bool = False

    @property
    def ok(self) -> bool:
        """Whether nothing failed, and everything that was verified is as it should be, or as was allowed.

        Where nothing was verified, it is not.
        """
        found = self.errors or self.missing or self.unexpected or (self.is_verification and not self.results)
        return not found and all(each.ok for each in self.results.values())

    @property
    def outcomes(self) -> dict[str, int]:
        """How many files have which outcome, of those that :func:`verify_tree` met."""
        found = [each.outcome for each in self.results.values()] + [outcome_of(error) for _, error in self.errors]
        return {each: found.count(each) for each in sorted(set(found))}

    @property
    def outcome(self) -> str:
        """What all files together are, as :attr:`VerifyReport.outcome`: damage wins, then what was not checked.

        A set in which files are missing, or others are, is damaged. One without any file is "not checked".
        """
        if self.missing or self.unexpected:
            return DAMAGED
        return worst_outcome(self.outcomes) if self.outcomes else NOT_CHECKED


def encrypt_tree(
    source: FilePath,
    target: FilePath,
    encryption: Encryption,
    *,
    shared_keys: bool = False,
    others: str = "error",
    on_error: str = "fail",
    resume: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    durable: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> TreeReport:
    """Encrypt the Parquet files of a directory into another, one after the other; each appears whole or not at all.

    Parameters
    ----------
    source, target : path or URL
        Directories. Files get the names that they have in the source; what else the target holds stays.
    encryption : EncryptionConfig or callable
        What all files are encrypted with, or a function that returns it for the name of a file, with ``/`` between
        its parts: ``lambda name: config.with_aad_prefix(name.encode())`` binds each file to its place.
    shared_keys : bool
        Encrypt many files with the same given keys. Every one of them counts against the 2**32 invocations that AES
        GCM allows a key, in this run and in all others, and nothing counts them across runs; with ``from_kms``, each
        file has fresh keys.
    others : {"error", "copy", "skip"}
        What to do with files that are not Parquet: refuse the tree before anything is written, copy them as they are,
        unencrypted, or leave them out.
    on_error : {"fail", "collect"}
        Stop at the first file that fails, or go on and report it. A key management service that would refuse every
        file, or cannot be reached, is raised all the same.
    resume : bool
        Pass over files that an earlier run of the same work has finished: the target is newer than the source, and
        its footer has the algorithm, mode and stored AAD prefix, and the key where that was given, that it would have.
    threads : int, optional
        Threads in all, for several files at once or within large ones; by default every usable CPU. Sixteen files of
        an object store are worked on at once in any case, and functions that make configurations are called by
        several threads.
    progress : callable, optional
        Called as ``progress(done, total)`` with bytes of all files. An exception from it stops the work.
    durable : bool
        Wait for each file until it is on the disk.
    storage_options : mapping, optional
        Endpoint, credentials and the like for URLs, of source and target, as :func:`ags1.open`; key material beside
        files is found by what the environment says.

    Raises
    ------
    ValueError
        Given keys for many files, without `shared_keys`; the same directory as source and target.
    FormatError, LimitError, KeyAccessError, OSError
        As :func:`encrypt_file`. What was written before stays.
    """
    work = Encrypting(encryption)
    files = _listed(source, target, storage_options)
    _check_shared(files, encryption, shared_keys)
    return _run(work, files, Location(target, storage_options), others, on_error, resume, threads, progress, durable)


def decrypt_tree(
    source: FilePath,
    target: FilePath,
    decryption: Decryption,
    *,
    drop_bloom_filters: bool = False,
    others: str = "error",
    on_error: str = "fail",
    resume: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    durable: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> TreeReport:
    """Decrypt the Parquet files of a directory into another.

    Parameters
    ----------
    decryption : DecryptionConfig or callable
        What all files are read with, or a function that returns it for the name of a file.
    drop_bloom_filters : bool
        As :func:`decrypt_file`.
    source, target, others, on_error, resume, threads, progress, durable, storage_options
        As :func:`encrypt_tree`; a finished file is a newer one that is not encrypted.

    Raises
    ------
    AuthenticationError, KeyAccessError, FormatError, OSError, ValueError
        As :func:`decrypt_file`.
    """
    work = Decrypting(decryption, drop_bloom_filters=drop_bloom_filters)
    files = _listed(source, target, storage_options)
    return _run(work, files, Location(target, storage_options), others, on_error, resume, threads, progress, durable)


def rekey_tree(
    source: FilePath,
    target: FilePath,
    decryption: Decryption,
    encryption: Encryption,
    *,
    plaintext_columns: Iterable[ColumnName] = (),
    drop_bloom_filters: bool = False,
    shared_keys: bool = False,
    others: str = "error",
    on_error: str = "fail",
    resume: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    durable: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> TreeReport:
    """Encrypt the encrypted Parquet files of a directory in another way, into another directory.

    Parameters
    ----------
    plaintext_columns, drop_bloom_filters
        As :func:`rekey_file`.
    source, target, decryption, encryption, shared_keys, others, on_error, resume, threads, progress, durable,
    storage_options
        As :func:`decrypt_tree` and :func:`encrypt_tree`.

    Raises
    ------
    AuthenticationError, KeyAccessError, FormatError, LimitError, OSError, ValueError
        As :func:`rekey_file`.
    """
    files = _listed(source, target, storage_options)
    _check_shared(files, encryption, shared_keys)
    work = Rekeying(decryption, encryption, plaintext_columns=plaintext_columns, drop_bloom_filters=drop_bloom_filters)
    return _run(work, files, Location(target, storage_options), others, on_error, resume, threads, progress, durable)


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
) -> TreeReport:
    """Authenticate every module of every Parquet file of a directory, without decoding; other files are left out.

    A directory without any Parquet file is no authentic one: its report is not ok, and its outcome is "not checked".

    Parameters
    ----------
    source, decryption, on_error, threads, progress, storage_options
        As :func:`decrypt_tree`. Modules that fail are in the results; "fail" is about files that cannot be examined.
    missing_keys, require_encrypted, allow_unauthenticated_pages
        As :func:`verify_file`.
    expected : str, bytes, path or iterable of str and bytes, optional
        The files of which the set consists, each once: names in the tree as str, AAD prefixes as bytes, or the path
        of a text file with a name in each line. ``part-{0..99}.parquet`` stands for 100 names. Those that are not
        there, and other Parquet files that are, the report names.

    Raises
    ------
    AuthenticationError, KeyAccessError, FormatError, LimitError, OSError, ValueError
        As :func:`verify_file`, with ``on_error="fail"``; an `expected` that names no file.
    """
    from ags1.parquet.verify import verify_file

    one_of(on_error, ("fail", "collect"), "on_error")
    required = require_encrypted if isinstance(require_encrypted, str) else list(require_encrypted)
    wanted = None if expected is None else ExpectedFiles(expected)
    report = TreeReport(is_verification=True)
    plan = _classified(_listed(source, None, storage_options), threads)
    report.left_out += [(each.name, reason) for each, kind, reason in plan if kind != PARQUET]
    chosen = [each for each, kind, _ in plan if kind == PARQUET]
    at_once, share = _shares(chosen, threads)

    def verify(each: Entry, within: Progress) -> VerifyReport:
        return verify_file(
            each.location,
            decryption(each.name) if callable(decryption) else decryption,
            missing_keys=missing_keys,
            require_encrypted=required,
            allow_unauthenticated_pages=allow_unauthenticated_pages,
            threads=share,
            progress=within,
        )

    advance = SharedProgress(progress, sum(each.size for each in chosen))
    for each, found in _outcomes(advance, chosen, verify, on_error, at_once):
        prefix, checked = None, False
        if isinstance(found, Exception):
            report.errors.append((each.name, found))
        else:
            report.results[each.name] = found
            report.done.append(each.name)
            report.done_bytes += each.size
            prefix, checked = found.aad_prefix, found.failure_count == 0
        if wanted is not None:
            why = wanted.take(each.name, prefix, checked=checked)
            if why is not None:
                report.unexpected.append((each.name, why))
    if wanted is not None:
        report.missing = wanted.missing()
    return report


def _outcomes(
    advance: SharedProgress, files: list[Entry], work: Callable[[Entry, Progress], T], on_error: str, at_once: int
) -> Iterator[tuple[Entry, T | Exception]]:
    """Each file and what the work on it returned, or its error, if that is to be collected.

    The first error that is not ends the work on all files, and is what is raised, wherever it was met.
    """

    def one(each: Entry) -> T | Exception:
        with advance.part(each.size) as within:
            try:
                return work(each, within)
            except (Ags1Error, OSError, ValueError) as error:
                if on_error == "fail" or isinstance(error, ServiceRefusal):
                    advance.fail(error)
                    raise
                return error

    with advance.errors(), contextlib.closing(in_parallel(one, files, at_once, stop=advance.stop)) as outcomes:
        yield from zip(files, outcomes, strict=True)


def _shares(files: list[Entry], threads: int | None) -> tuple[int, int | None]:
    """How many files to work on at once, and the threads for each."""
    usable = usable_cpus() if threads is None else threads
    wanted = max(usable, _REMOTE_FILES) if any(not each.location.is_local for each in files) else usable
    at_once = max(1, min(len(files), wanted))
    return at_once, threads if at_once == 1 else max(1, usable // at_once)


def _run(
    work: FileOperation,
    files: list[Entry],
    target: Location,
    others: str,
    on_error: str,
    resume: bool,
    threads: int | None,
    progress: Progress | None,
    durable: bool,
) -> TreeReport:
    one_of(others, ("error", "copy", "skip"), "others")
    one_of(on_error, ("fail", "collect"), "on_error")
    report = TreeReport()
    plan = _classified(files, threads)
    if others == "error":
        names = [each.name for each, kind, _ in plan if kind == OTHER]
        refuse_others(names, "others='copy' copies them unencrypted, others='skip' leaves them out")
    kept = [(each, COPY if kind == OTHER and others == "copy" else kind, reason) for each, kind, reason in plan]
    report.left_out.extend((each.name, reason) for each, kind, reason in kept if kind in (OTHER, LEAVE_OUT))
    files = [each for each, kind, _ in kept if kind == PARQUET]
    copied = [each for each, kind, _ in kept if kind == COPY]
    work_bytes = sum(each.size for each in files)
    all_bytes = work_bytes + sum(each.size for each in copied)
    at_once, share = _shares(files, threads)

    def convert(each: Entry, within: Progress) -> bool:
        """Do the work on a file; return whether there was any."""
        place = target.join(each.name)
        if resume and work.is_finished(each.location, place, each.name):
            return False
        make_parent(place)
        work.run(each.location, place, each.name, threads=share, progress=within, durable=durable)
        return True

    for each, outcome in _outcomes(SharedProgress(progress, all_bytes), files, convert, on_error, at_once):
        if isinstance(outcome, Exception):
            report.errors.append((each.name, outcome))
        elif outcome:
            report.done.append(each.name)
            report.done_bytes += each.size
        else:
            report.finished_before.append(each.name)
    # Markers such as _SUCCESS say that everything is there: they come last, and not at all if it is not.
    if report.errors:
        report.left_out += [(each.name, "a file before it failed") for each in copied]
        return report

    def copy(each: Entry, within: Progress) -> None:
        place = target.join(each.name)
        make_parent(place)
        copy_file(each.location, place, progress=within, durable=durable)

    for each, error in _outcomes(SharedProgress(progress, all_bytes, work_bytes), copied, copy, on_error, 1):
        if error is None:
            report.copied.append(each.name)
        else:
            report.errors.append((each.name, error))
    return report


def _classified(files: list[Entry], threads: int | None) -> list[tuple[Entry, str, str]]:
    known = {each.name for each in files}
    at_once, _ = _shares(files, threads)
    return list(in_parallel(lambda each: (each, *classify(each.location, each.name, known)), files, at_once))


def _listed(source: FilePath, target: FilePath | None, storage_options: Mapping[str, Any] | None) -> list[Entry]:
    """The files of a tree, but for those of its target, if that lies in it."""
    root = Location(source, storage_options)
    outside = None if target is None else Location(target, storage_options)
    if outside is not None and _same_directory(root, outside):
        raise ValueError(f"source and target are the same directory ({root}): write to another, then rename")
    return list_files(root, outside=outside)


def _same_directory(one: Location, other: Location) -> bool:
    if one.is_local and other.is_local:
        return os.path.realpath(one.path) == os.path.realpath(other.path)
    return one.text.rstrip("/") == other.text.rstrip("/")


def _check_shared(files: list[Entry], encryption: Encryption, shared_keys: bool) -> None:
    """Refuse given keys for many files, unless that is meant."""
    if not shared_keys and isinstance(encryption, EncryptionConfig) and not encryption.fresh_keys and len(files) > 1:
        raise ValueError(
            "these keys would encrypt many files, which all count against the 2**32 invocations that AES GCM allows a "
            "key: give a configuration with from_kms, which makes fresh keys for each file, one for each file as a "
            "function of its name, or shared_keys=True"
        )
