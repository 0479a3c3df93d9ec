"""Work on the files of an Iceberg table: authenticate them, move them to new paths, or write them again.

    verify    Unit (key metadata)  -->  VerifyReport
    convert   Unit (FileTask, Job)  -->  run  -->  FileResult, its key sealed  -->  journal, and the driver
    compact   Unit (Bin, keys of its files)  -->  BinRewriter  -->  Rewritten, sealed  -->  the driver, which commits

A unit travels sealed as a whole, and key metadata stay in the worker's memory. Spark may retry a task, or run it twice
at once, so each attempt to move a file, or to write a bin again, writes to new, unique paths. The attempt whose results
reach the driver counts. The files of other attempts are leftovers; a compaction removes those in its directory.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ags1.expected import Expected
from ags1.iceberg.catalogs import TableState
from ags1.iceberg.conversion.journal import Journal, Records
from ags1.iceberg.conversion.work import FileTask, Places, run
from ags1.iceberg.files.file_io import EncryptedFileIO, KnownFile, file_io_at
from ags1.iceberg.maintenance.rewriting import Bin, BinRewriter, RewriteJob, Rewritten
from ags1.iceberg.metadata.metadata_document import metadata_document
from ags1.iceberg.tables import EncryptedTable
from ags1.iceberg.walk.table_verification import FileChecker
from ags1.iceberg.walk.table_walk import TableFile
from ags1.iceberg.writing.commit import TableFiles
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.keys import KeyMetadata
from ags1.spark.engine.planning import Unit
from ags1.spark.engine.results import outcome_of
from ags1.spark.engine.runner import FileWork, Outcome
from ags1.spark.engine.sealing import Opener, Sealer, kms_client, of_process
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

    def run(self, units: list[Unit]) -> Iterator[Outcome]:
        """Move files; an error becomes an outcome. The journal has all of them before the last outcome."""
        records: Records | None = None
        for unit, outcome in zip(units, super().run(units), strict=True):
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


# -- compaction -----------------------------------------------------------------------------------------------------


@dataclass
class TableCompacting(FileWork):
    """Writes bins again, one after the other."""

    job: RewriteJob
    opener: Opener = field(repr=False)
    verb: str = "compact"

    def one(self, unit: Unit, threads: int | None, advance: Advance) -> Outcome:
        """Write one bin."""
        table, rewriter, files = of_process(("compaction", self.job.directory), self._opened)
        found, forms = unit.data
        table.io.keys.learn(map(known_of, forms))
        made = rewriter.rewritten(found, files, advance)
        return Outcome(unit.path, detail=self.opener.seal(pickle.dumps(made, pickle.HIGHEST_PROTOCOL), unit.path))

    def _opened(self) -> tuple[EncryptedTable, BinRewriter, TableFiles]:
        job = self.job
        document = metadata_document(job.metadata_location, job.metadata.encode())
        file_io = file_io_at(TableState(job.metadata_location, document), job.properties, None, job.expected)
        table = EncryptedTable(job.metadata_location, file_io)
        files = TableFiles(TableMetadata(document.fields), file_io.place, job.directory)
        return table, BinRewriter(table, job.ref, job.target_bytes, job.sort_by), files


def unit_of_bin(found: Bin, known: list[KnownFile]) -> Unit:
    """The unit for a bin, and for the data and delete files that it needs. It has their keys, so it travels sealed."""
    # No other bin has this file.
    return Unit(min(found.paths), found.bytes, (found, [form_of(each) for each in known]))


def rewritten_of(outcome: Outcome, seal: Sealer) -> Rewritten:
    """What became of the bin of a unit. Raise AuthenticationError if its result is another's."""
    made: Rewritten = pickle.loads(seal.open(outcome.detail, outcome.path))
    return made
