"""Work on the files of an Iceberg table: authenticate them, or move them to new paths.

    verify    Unit (key metadata)  -->  VerifyReport
    convert   Unit (FileTask, Job)  -->  run  -->  FileResult, its key sealed  -->  journal, and the driver

A unit travels sealed as a whole, and key metadata stay in the worker's memory. Spark may retry a task, or run it twice
at once, so each attempt to move a file writes to a new, unique path. The attempt whose results reach the driver
counts; the files of other attempts are leftovers.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ags1.expected import Expected
from ags1.iceberg.conversion.journal import Journal, Records
from ags1.iceberg.conversion.work import FileTask, Places, run
from ags1.iceberg.files.file_io import EncryptedFileIO, KnownFile
from ags1.iceberg.walk.table_verification import FileChecker
from ags1.iceberg.walk.table_walk import TableFile
from ags1.keys import KeyMetadata
from ags1.spark.engine.planning import Unit
from ags1.spark.engine.runner import FileWork, Outcome, Tell
from ags1.spark.engine.sealing import kms_client, of_process
from ags1.support.reports import NOT_PROTECTED, VerifyReport
from ags1.work.units import Advance


@dataclass
class TableVerifying(FileWork):
    """Authenticates files of a table, one after the other; `threads` are for each file.

    Files are read where the driver may: in the directory of the table, whose metadata file it names, and where it is
    expected. The properties of the FileIO may hold credentials of the storage, so no repr shows them.
    """

    properties: dict[str, str] = field(repr=False)
    metadata_location: str
    expected: Expected
    threads: int = 1
    verb: str = "verify"

    def one(self, unit: Unit, threads: int | None, advance: Advance) -> Outcome:
        """Check one file."""
        # Without a KMS, only files whose keys are known can be opened.
        name = (tuple(sorted(self.properties.items())), self.metadata_location, self.expected, self.threads)
        checker: FileChecker = of_process(name, self._checker)
        file = _file_of(unit)
        return outcome_of(unit.path, unit.size, checker.check(file, advance))

    def _checker(self) -> FileChecker:
        file_io = EncryptedFileIO(self.properties, expected=self.expected)
        file_io.locations.add(self.metadata_location)
        return FileChecker(file_io, self.threads)


def unit_of(file: TableFile) -> Unit:
    """The unit for a file. It contains the file's key, so it must travel sealed."""
    return Unit(file.path, file.size, (form_of(file.known), file.vectors, file.conflict))


def _file_of(unit: Unit) -> TableFile:
    form, vectors, conflict = unit.data
    file = TableFile(known_of(form))
    file.vectors, file.conflict = vectors, conflict
    return file


def form_of(known: KnownFile) -> tuple[Any, ...]:
    """The form in which a known file travels, with its key."""
    key = None if known.key_metadata is None else known.key_metadata.encode()
    return known.path, known.kind, known.file_format, key, known.length_hint


def known_of(form: tuple[Any, ...]) -> KnownFile:
    """Return the known file."""
    path, kind, file_format, key, *more = form
    return KnownFile(path, kind, file_format, None if key is None else KeyMetadata.decode(key), *more)


def outcome_of(path: str, size: int, report: VerifyReport) -> Outcome:
    """The report of a file as a row."""
    outcome = Outcome(path, plaintext_length=size, file_length=size, detail=report.checked)
    if not report.ok:
        outcome.status = NOT_PROTECTED if report.outcome == NOT_PROTECTED else "error"
        outcome.error = report.fault()
        outcome.kind = next(
            each.details.get("error", "AuthenticationError")
            for each in report.findings
            if each.outcome == report.outcome
        )
    elif contradictions := report.having("contradiction"):
        outcome.error = f"problem: {contradictions[0].message}"
    return outcome


@dataclass(frozen=True)
class Job:
    """What the files of a run share: the FileIO, and the run's journal, with the key that seals their keys."""

    places: Places = field(repr=False)
    journal: Journal | None


@dataclass
class TableMoving(FileWork):
    """Moves files of a table, one after the other; `threads` are for each file."""

    verb: str
    kms: str
    threads: int = 1

    def run(self, units: list[Unit], tell: Tell) -> Iterator[Outcome]:
        """Move files; an error becomes an outcome. The journal has all of them before the last outcome."""
        records: Records | None = None
        for unit, outcome in zip(units, super().run(units, tell), strict=True):
            job: Job = unit.data[1]
            if outcome.status == "ok" and job.journal is not None:
                records = records or job.journal.records(job.journal.open(kms_client(self.kms)))
                records.add(outcome.detail)
            yield outcome
        if records is not None:
            records.flush()

    def one(self, unit: Unit, threads: int | None, advance: Advance) -> Outcome:
        """Move one file to a path of its own."""
        task: FileTask = unit.data[0]
        job: Job = unit.data[1]
        seal = None if job.journal is None else job.journal.open(kms_client(self.kms))
        own = replace(task, target=_own(task.target))
        result = run(own, seal, job.places, threads=threads, progress=advance)
        return Outcome(unit.path, result.target, task.length, result.length, detail=result)


def _own(path: str) -> str:
    """A new, unique path beside another one; `clean` knows it by the beginning of its name."""
    directory, slash, name = path.rpartition("/")
    stem, dot, suffix = name.partition(".")
    return f"{directory}{slash}{stem}-{uuid.uuid4().hex[:12]}{dot}{suffix}"
