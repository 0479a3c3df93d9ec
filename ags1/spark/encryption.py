"""Encrypt a tree of files over a cluster, into a dataset of :mod:`ags1.dataset`.

    ags1.dataset.writing   --units-->  engine  --tasks-->  objects, synced  --outcomes-->  ags1.dataset.writing
    compares, in order                                                                     records, puts, commits

Only the execution of units differs from that with threads. A late, duplicate or repeated task writes objects with
unique names, which no version names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from ags1.dataset.pins import Access, Pins
from ags1.dataset.runs import DatasetRun
from ags1.dataset.selection import Filter, Patterns
from ags1.dataset.worker import EncryptUnit, cut
from ags1.dataset.writing import Options, write_files
from ags1.kms.asking import reported
from ags1.layout import encrypted_length
from ags1.spark.engine.dataset_work import EncryptWork
from ags1.spark.engine.locations import locate
from ags1.spark.engine.planning import PART_BYTES
from ags1.spark.engine.progress import Progress
from ags1.spark.engine.results import Recorder, Result, error_of
from ags1.spark.engine.runner import Engine, Outcome, check_arguments
from ags1.spark.engine.sealing import Sealer, kms_client, kms_reference
from ags1.storage import Location, inside
from ags1.support.arguments import one_of
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
