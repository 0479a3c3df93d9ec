"""What workers do when a table is converted: move files to new paths, and note in the run's journal what they moved.

    Unit (FileTask, Job)  -->  run  -->  FileResult, its key sealed  -->  journal, and the driver

All of a unit travels sealed. A task may be tried again, or run twice at once, so each attempt writes to paths that
nobody else has: the one whose results the driver gets counts, and what others wrote is left over.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from ags1.iceberg.conversion.journal import Records
from ags1.iceberg.conversion.sealing import WorkKey
from ags1.iceberg.conversion.work import FileTask, Places, run
from ags1.spark._engine import Outcome
from ags1.spark._parquet_work import Advance, timed
from ags1.spark._planning import Unit
from ags1.spark._sealing import kms_client
from ags1.storage import Location

Tell = Callable[[int, int], None]

__all__ = ["Job", "TableMoving"]


@dataclass(frozen=True)
class Job:
    """What the files of a run have in common: how they are reached, what seals their keys, and the run's journal."""

    places: Places = field(repr=False)
    work_key: WorkKey | None
    directory: Location


@dataclass
class TableMoving:
    """Moves files of a table, one after the other; `threads` are for each file."""

    verb: str
    kms: str
    threads: int = 1

    def run(self, units: list[Unit], tell: Tell) -> Iterator[Outcome]:
        """Move files; an error is an outcome. What was moved is in the journal when the last outcome is returned."""
        records: Records | None = None
        for unit in units:
            job: Job = unit.data[1]
            records = records or Records(job.directory)
            outcome = timed(self._one, unit, tell)
            if outcome.status == "ok":
                records.add(outcome.detail)
            yield outcome
        if records is not None:
            records.flush()

    def _one(self, unit: Unit, advance: Advance) -> Outcome:
        task: FileTask = unit.data[0]
        job: Job = unit.data[1]
        seal = None if job.work_key is None else job.work_key.open(kms_client(self.kms))
        own = replace(task, target=_own(task.target))
        result = run(own, seal, job.places, threads=self.threads, progress=advance)
        return Outcome(unit.path, result.target, task.length, result.length, detail=result)


def _own(path: str) -> str:
    """A path beside another one, which nobody has."""
    directory, slash, name = path.rpartition("/")
    suffix = name.rpartition(".")[2] if "." in name else ""
    return f"{directory}{slash}{uuid.uuid4()}{'.' if suffix else ''}{suffix}"
