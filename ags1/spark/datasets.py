"""Datasets of :mod:`ags1.dataset` over a cluster: trees of files encrypted, decrypted and verified.

    encrypt   ags1.dataset.writing       --units-->    engine  --tasks-->  objects, synced, under names of their own
              records, puts, commits     <--outcomes
    decrypt   manifests, in their order  --entries-->  engine  --tasks-->  files, synced; then a record
    verify    ags1.dataset.verification  --entries-->  engine  --tasks-->  what failed, and how

Only the execution of units differs from that with threads. A late, duplicate or repeated task that encrypts writes
objects with unique names, which no version names.

The driver creates a big file of a local target, which all executors see, beside the records; many tasks fill it, and
the driver renames it. A late task writes the same bytes at the same place, or does not find the file. An object store
cannot write into the middle of a file: there, one task decrypts all of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import ags1.dataset as datasets
from ags1.dataset import Dataset
from ags1.dataset.decrypting import made_before, refuse_different, refuse_twin_files
from ags1.dataset.entries import DatasetEntry
from ags1.dataset.manifests import DatasetView
from ags1.dataset.pins import Access, Pins
from ags1.dataset.runs import DatasetRun
from ags1.dataset.selection import Filter, Patterns
from ags1.dataset.targets import LocalTarget
from ags1.dataset.verification import compare
from ags1.dataset.versions import read_version
from ags1.dataset.worker import EncryptUnit, cut
from ags1.dataset.writing import Options, write_files
from ags1.kms.asking import reported
from ags1.layout import encrypted_length
from ags1.spark.engine.dataset_work import DecryptionRecords, DecryptWork, EncryptWork, VerifyWork, units_of
from ags1.spark.engine.locations import locate
from ags1.spark.engine.planning import PART_BYTES, Unit
from ags1.spark.engine.progress import Progress
from ags1.spark.engine.results import Recorder, Result, error_of
from ags1.spark.engine.runner import Engine, Outcome, check_arguments
from ags1.spark.engine.sealing import Sealer, dataset_keys, kms_client, kms_reference
from ags1.storage import Location, TreeDirectories, Unsynced, identity_of, inside, list_files, pass_unnamed, remove
from ags1.support.arguments import one_of
from ags1.support.reports import ERROR, Finding
from ags1.work.units import UnitOutcome

# After these errors no other file could be encrypted either.
_REFUSALS = ("KeyAccessError", "ServiceRefusal", "BackendError")


def encrypt_files(
    spark: Any,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    kms: str,
    key_id: str | None = None,
    include: Patterns = None,
    exclude: Patterns = None,
    part_bytes: int = PART_BYTES,
    parallelism: int | None = None,
    on_error: str = "fail",
    resume: bool = True,
    single_writer: bool = False,
    again: bool = False,
    pins: Pins | None = None,
    progress: Progress = True,
) -> Result:
    """Encrypt a tree of files of any size and number into a dataset.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    source : path or URL
        A directory, or one file: of the local file system, if all executors see it, or s3a://, gs://, abfss://, hdfs://
        and others that fsspec knows. It must not change during the run: a changed file is an error.
    target : path or URL
        The dataset. If it exists, only new and changed files are encrypted, and those whose object is missing or has
        another length; files that are no longer in the source stay. A file that became a directory in the source, or
        the reverse, is an error: remove the older one first.
    kms : str
        What :func:`ags1.kms.load` takes; each worker makes its own client from it. Secrets are not in it.
    key_id : str, optional
        The master key of a new dataset, as for :func:`ags1.dataset.encrypt`.
    include, exclude : str or sequence of str, optional
        Glob patterns. One without ``/`` is compared with each component of a relative path, one with ``/`` with the
        whole path.
    part_bytes : int
        Files of more plaintext bytes than this are cut into ranges that many tasks encrypt at once, each into an object
        of its own.
    parallelism : int, optional
        Tasks to make of 100,000 files; by default as many as keep all slots busy for a second or more.
    on_error : {"fail", "collect"}
        Whether a file that cannot be read or written ends the run, or is reported while the others continue.
    resume : bool
        Whether to reuse the work of an interrupted run; otherwise it is repeated.
    single_writer : bool
        For a new dataset in a store without create-if-absent, such as HDFS: promise that there is never another writer.
    again : bool
        Whether to encrypt what is encrypted already: AGS1 streams, and datasets inside of the source.
    pins : Pins, optional
        What an existing dataset must be; see :func:`ags1.dataset.open`.
    progress : bool or callable
        Whether to show a line on standard error where it is a terminal or a notebook; or a function called as
        ``progress(done, total)`` with bytes.

    Returns
    -------
    Result
        The run is complete: reading the result repeats no work.

    Raises
    ------
    OSError
        Reading or writing failed. Files encrypted before are kept for the next run.
    ConflictError
        Another writer changed one of the same paths during the run.
    KeyAccessError
        A master key could not be used.
    ValueError
        The dataset is under another master key; source and target overlap; a wrong argument.
    TypeError
        `kms` is no URL.
    UnsupportedError
        The store has no create-if-absent.
    FormatError, AuthenticationError
        The existing dataset is damaged or was tampered with.
    """
    kms = kms_reference(kms)
    one_of(on_error, ("fail", "collect"), "on_error")
    here, there = locate(source, spark), locate(target, spark)
    _refuse_overlap(here, there)
    wanted = Filter(include, exclude)
    check_arguments(spark, parallelism, part_bytes)
    recorder = Recorder(spark, "encrypt")
    reported(recorder.result, kms_client(kms))

    def engine(sealer: Sealer) -> Engine:
        work = EncryptWork(here, there, sealer.opener, again)
        return Engine(spark, work, parallelism=parallelism, progress=progress, seal=sealer, part_bytes=part_bytes)

    encrypting = _Encrypting(kms, engine, recorder, on_error)
    options = Options(
        wanted, on_error=on_error, resume=resume, single_writer=single_writer, again=again,
        perform=encrypting.perform, noted=encrypting.note,
    )  # fmt: skip
    report, _ = write_files(here, Access.of(there, kms_client(kms), pins), "", key_id, "encrypt", options)
    if report.unchanged:
        recorder.result.counts["unchanged"] = report.unchanged
    recorder.result.version = report.version
    recorder.result.links = len(report.links)
    recorder.result.notes += [(path, f"was left out: it {reason}") for path, reason in report.skipped] + report.notes
    return recorder.close()


def _refuse_overlap(source: Location, target: Location) -> None:
    if inside(target, source) is not None:
        raise ValueError(f"the source {source} lies in the target {target}: choose a target beside it")
    if inside(source, target) is not None:
        raise ValueError(f"the target {target} lies in the source {source}: choose a target beside it")


@dataclass(eq=False, repr=False)
class _Encrypting:
    """Runs the units in tasks, and makes rows of the outcomes."""

    kms: str
    engine: Callable[[Sealer], Engine]
    recorder: Recorder
    on_error: str
    files: dict[str, EncryptUnit] = field(default_factory=dict)

    def note(self, path: str, size: int, error: Exception | None) -> None:
        if error is None:
            row = Outcome(path, plaintext_length=size, file_length=encrypted_length(size), status="skipped")
        else:
            row = Outcome(path, status="error", error=str(error), kind=type(error).__name__)
        self.recorder.add([row])
        if error is not None and self.on_error == "fail":
            self.recorder.fail(row)

    def perform(self, run: DatasetRun, units: Iterator[EncryptUnit]) -> Generator[UnitOutcome | None, None, None]:
        """DatasetRun units; see :class:`ags1.dataset.writing.Options`."""
        engine = self.engine(Sealer(run.keys, self.kms))
        # The units are closed too: an exception of Spark would keep them alive.
        with closing(self._cut(units, engine.part_bytes)) as ranges, closing(engine.run(ranges)) as waves:
            for rows in waves:
                refused: Outcome | None = None
                for path, each in by_file(rows).items():
                    unit = self.files.pop(path)
                    row = joined(each, unit.size)
                    self.recorder.add([row])
                    if row.status != "error":
                        done = tuple((name, length) for one in each for name, length in one.detail)
                        yield UnitOutcome(unit, done, None, row.seconds)
                    elif self.on_error == "fail" or row.kind in _REFUSALS:
                        refused = refused or row
                    else:
                        yield UnitOutcome(unit, None, error_of(row))
                # The whole wave is durable now.
                yield None
                if refused is not None:
                    self.recorder.fail(refused)

    def _cut(self, units: Iterator[EncryptUnit], part_bytes: int) -> Generator[EncryptUnit, None, None]:
        for unit in units:
            self.files[unit.path] = unit
            yield from cut(unit, part_bytes)


def by_file(outcomes: list[Outcome]) -> dict[str, list[Outcome]]:
    """The outcomes of each file."""
    files: dict[str, list[Outcome]] = {}
    for each in outcomes:
        files.setdefault(each.path, []).append(each)
    return files


def joined(outcomes: list[Outcome], size: int) -> Outcome:
    """One outcome of a file from those of its ranges; `size` is its plaintext."""
    failed = next((each for each in outcomes if each.status == "error"), None)
    first = failed or outcomes[0]
    if len(outcomes) > 1:
        first.seconds = sum(each.seconds for each in outcomes)
        first.attempt = max(each.attempt for each in outcomes)
        first.file_length = sum(each.file_length for each in outcomes)
    first.plaintext_length = size
    return first


def open_dataset(
    location: Location, kms: str, expected_version: int | None, key_id: str | None, pins: Pins | None
) -> Dataset:
    """Open the dataset at a location, with the cached KMS client of this process."""
    return datasets.open(location, kms_client(kms), expected_version=expected_version, key_id=key_id, pins=pins)


def sealer_of(dataset: Dataset, kms: str) -> Sealer:
    """The Sealer for units of a dataset, below the dataset's key encryption key."""
    return Sealer.create(kms, dataset.key_id, dataset.wrapped_key.encryption_keys)


def decrypt_files(
    spark: Any,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    kms: str,
    key_id: str | None = None,
    expected_version: int | None = None,
    pins: Pins | None = None,
    include: Patterns = None,
    exclude: Patterns = None,
    part_bytes: int = PART_BYTES,
    parallelism: int | None = None,
    on_error: str = "fail",
    resume: bool = True,
    overwrite: bool = True,
    progress: Progress = True,
) -> Result:
    """Decrypt the files of a dataset into a tree, under the names that they have in it.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    source : path or URL
        The dataset.
    target : path or URL
        A directory. Files of the same names in it are replaced, each atomically; nothing is written through a link.
    kms : str
        What :func:`ags1.kms.load` takes; each worker makes its own client from it.
    key_id : str, optional
        The master key that the dataset must be under.
    expected_version : int, optional
        The version that the dataset must have.
    pins : Pins, optional
        What the dataset must be; see :func:`ags1.dataset.open`.
    part_bytes : int
        Files of more plaintext bytes than this are cut into ranges that many tasks decrypt at once, if the target is a
        directory of the file system. Behind a URL, one task decrypts a file.
    include, exclude, parallelism, on_error, progress
        As :func:`~ags1.spark.encrypt_files`.
    resume : bool
        Whether to skip files that an interrupted run into the same target has recorded.
    overwrite : bool
        Whether to replace files that exist. Otherwise they are looked at before anything is written, as by
        :meth:`ags1.dataset.Dataset.decrypt`; what an interrupted run has written is no obstacle, behind a URL if it has
        recorded anything.

    Returns
    -------
    Result

    Raises
    ------
    AuthenticationError, TruncatedError, FormatError
        A file is not as it was written; none of it appears. With ``on_error="collect"`` it is reported instead.
    FileExistsError
        Without `overwrite`, a file of the target differs. Nothing was written.
    NotADirectoryError
        One file has the name of a directory of another file, as only a store allows. Nothing was written.
    OSError
        Reading or writing failed.
    KeyAccessError
        The master key could not be used, or is not `key_id`.
    ValueError
        The target lies in the dataset, or the dataset where files of it would be put.
    """
    kms = kms_reference(kms)
    one_of(on_error, ("fail", "collect"), "on_error")
    check_arguments(spark, parallelism, part_bytes)
    here, there = locate(source, spark), locate(target, spark)
    if inside(here, there) is not None:
        raise ValueError(f"the target {there} lies in the dataset: plaintext would be among encrypted files")
    wanted = Filter(include, exclude)
    recorder = Recorder(spark, "decrypt", on_error)
    with open_dataset(here, kms, expected_version, key_id, pins) as dataset:
        below = inside(there, here)
        if below is not None and dataset.files.is_directory(below):
            raise ValueError(
                f"files below {below}/ would be put into the dataset, which lies in the target {there}: choose a "
                "target beside it"
            )
        refuse_twin_files(dataset.files, wanted, there)
        engine = Engine(
            spark,
            DecryptWork(here, there, dataset.wrapped_key, kms, dataset.uuid, dataset.digest),
            parallelism=parallelism,
            progress=progress,
            seal=sealer_of(dataset, kms),
            part_bytes=part_bytes,
        )
        recorder.result.version = dataset.version
        keys = dataset_keys(dataset.wrapped_key, kms, here)
        records = DecryptionRecords.of(there, keys, dataset.uuid, dataset.digest)
        if not overwrite:
            done = records.read() if resume else {}
            if there.is_local or not done:
                entries = (each for each in dataset.files if wanted.accepts(each.path) and each.path not in done)
                refuse_different(there.as_root(), entries, lambda entry: dataset.open(entry.path))
        _Decrypting(dataset, there.as_root(), wanted, engine, recorder, records, resume).run()
    return recorder.close()


@dataclass(eq=False, repr=False)
class _Decrypting:
    dataset: Dataset
    target: Location
    wanted: Filter
    engine: Engine
    recorder: Recorder
    records: DecryptionRecords
    resume: bool

    def __post_init__(self) -> None:
        self._done = self.records.read() if self.resume else {}
        if not self._done:
            self.records.remove()
        self._unsynced = Unsynced(self.target)
        # Empty directories that could not be made.
        self._failed: list[tuple[str, OSError]] = []
        # Files that tasks fill: their entries, and their temporary names.
        self._begun: dict[str, tuple[DatasetEntry, str]] = {}

    def run(self) -> None:
        try:
            self._run()
        finally:
            remove(self.target.join(name) for _, name in self._begun.values())
            self.records.close()

    def _run(self) -> None:
        # The driver makes the directories, so its umask counts.
        with TreeDirectories(self.target, self.dataset.mode) as directories:
            self.records.begin()
            with closing(self._units(directories)) as units, closing(self.engine.run(units)) as waves:
                for rows in waves:
                    shared = set(self._begun)
                    outcomes = [self._joined(path, each) for path, each in by_file(rows).items()]
                    # The tasks have recorded the others.
                    self.records.write(
                        (each.path, each.plaintext_length)
                        for each in outcomes
                        if each.status == "ok" and each.path in shared
                    )
                    self.recorder.add(outcomes)
            self._unsynced.sync()
            self.recorder.add(Outcome.failed(Unit(path, 0), error) for path, error in self._failed)
            self.records.remove()
            directories.finish()

    def _units(self, directories: TreeDirectories) -> Generator[Unit, None, None]:
        there = self._there()
        entries = self.dataset.files.entries()
        for entry in made_before(entries, self.wanted, directories, self._unsynced, self._failed):
            size = entry.plaintext_length
            if self._is_done(entry.path, size, there.get(entry.path)):
                where = self.target.join(entry.path).text
                row = Outcome(entry.path, where, size, encrypted_length(size), "skipped")
                self.recorder.add([row])
                continue
            yield from self._cut(entry)

    def _is_done(self, path: str, size: int, there: int | None) -> bool:
        recorded, identity = self._done.get(path, (None, ""))
        if not recorded == size == there:
            return False
        # In a store, that would be a request for each file.
        return not self.target.is_local or identity_of(self.target.join(path)) == identity

    def _cut(self, entry: DatasetEntry) -> list[Unit]:
        """The units of a file: ranges, if it is big and several tasks can fill it."""
        size, name = entry.plaintext_length, self.records.name_of_file()
        units = units_of(entry, self.engine.part_bytes if self.target.is_local else size, name)
        if len(units) > 1:
            try:
                with closing(LocalTarget(self.target.path)) as target:
                    target.begin(name, size, entry.mode)
            except OSError:
                # The task that gets the whole file meets the same error, and reports it in a row.
                return units_of(entry, size)
            self._begun[entry.path] = entry, name
        return units

    def _joined(self, path: str, outcomes: list[Outcome]) -> Outcome:
        """The outcome of a file; one whose ranges are all there is renamed to its path."""
        if path not in self._begun:
            return outcomes[0]
        entry, name = self._begun[path]
        row = joined(outcomes, entry.plaintext_length)
        if row.status != "error":
            unsynced = Unsynced(self.target)
            try:
                with closing(LocalTarget(self.target.path)) as target:
                    target.finish(name, path, entry.mode, entry.modified_ns)
                unsynced.add(path)
                unsynced.sync()
            except OSError as error:
                row.status, row.error, row.kind = "error", str(error), type(error).__name__
        remove([self.target.join(name)])
        del self._begun[path]
        return row

    def _there(self) -> dict[str, int]:
        """Lengths of the files that a record names."""
        if not self._done:
            return {}
        on_error = pass_unnamed if self.target.is_object else None
        return {each.name: each.size for each in list_files(self.target, on_error=on_error) if each.name in self._done}


def verify_files(
    spark: Any,
    source: str | os.PathLike[str],
    *,
    kms: str,
    key_id: str | None = None,
    expected_version: int | None = None,
    pins: Pins | None = None,
    part_bytes: int = PART_BYTES,
    parallelism: int | None = None,
    progress: Progress = True,
) -> Result:
    """Authenticate every block of every file of a dataset, and compare the tree with the manifest.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    source : path or URL
        A dataset.
    kms : str
        What :func:`ags1.kms.load` takes; each worker makes its own client from it.
    key_id : str, optional
        The master key that the dataset must be under.
    expected_version : int, optional
        The version that the dataset must have: nothing else shows that a whole directory was restored from an older
        copy.
    pins : Pins, optional
        What a dataset must be; see :func:`ags1.dataset.open`.
    part_bytes : int
        Plaintext bytes of a big file that one task verifies.
    parallelism, progress
        As :func:`~ags1.spark.encrypt_files`.

    Returns
    -------
    Result
        A row with the status "error" for each file that is missing, truncated, extended, replaced, damaged
        or unreadable, and for each foreign file; its error begins with that word. Objects that no version names, left
        by interrupted runs and repeated tasks, have the status "left out".

    Raises
    ------
    FileNotFoundError
        There is no dataset.
    KeyAccessError, FormatError, AuthenticationError
        The dataset itself cannot be opened.
    """
    kms = kms_reference(kms)
    here = locate(source, spark)
    check_arguments(spark, parallelism, part_bytes)
    recorder = Recorder(spark, "verify")
    with open_dataset(here, kms, expected_version, key_id, pins) as dataset:
        version = read_version(here, dataset.version)
        # What was read again is what was opened.
        dataset.pins.check(version, here)
        engine = Engine(
            spark, VerifyWork(here, version.key, kms), parallelism=parallelism, progress=progress,
            seal=sealer_of(dataset, kms), part_bytes=part_bytes,
        )  # fmt: skip
        verifying = _Verifying(engine, recorder)
        view = DatasetView.of(here, version, dataset_keys(version.key, kms, here))
        found = compare(view, perform=verifying.perform)
        recorder.result.version = dataset.version
        recorder.add(verifying.row(here, each) for each in found)
    return recorder.close()


class _Verifying:
    """Verifies entries in tasks, and makes rows of the outcomes."""

    def __init__(self, engine: Engine, recorder: Recorder) -> None:
        self._engine = engine
        self._recorder = recorder
        # Of files that are under way.
        self._entries: dict[str, DatasetEntry] = {}
        # Of files that failed: they are judged when all others are known.
        self._failed: dict[str, Outcome] = {}

    def perform(self, view: DatasetView) -> Generator[UnitOutcome, None, None]:
        """Verify all files; see :func:`ags1.dataset.verification.compare`."""
        with closing(self._units(view)) as units, closing(self._engine.run(units)) as waves:
            for rows in waves:
                for path, each in by_file(rows).items():
                    entry = self._entries.pop(path)
                    row = joined(each, entry.plaintext_length)
                    if row.status == "error":
                        self._failed[path] = row
                        yield UnitOutcome(entry, None, error_of(row), row.seconds)
                    else:
                        self._recorder.add([row])

    def _units(self, view: DatasetView) -> Generator[Unit, None, None]:
        """Each file, or its ranges."""
        for entry in view.manifests.files(view.root):
            self._entries[entry.path] = entry
            yield from units_of(entry, self._engine.part_bytes)

    def row(self, location: Location, finding: Finding) -> Outcome:
        path = finding.subject
        found = self._failed.get(path) or Outcome(path, location.join(path).text)
        found.error, found.kind = f"{finding.code}: {finding.message}", finding.code
        found.status = "error" if finding.severity == ERROR else "left out"
        return found
