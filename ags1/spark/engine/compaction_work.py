"""Bins of a table's files written again by tasks.

    Unit (Bin, keys of its files)  -->  BinRewriter  -->  Rewritten, sealed  -->  the driver, which commits

Spark may retry a task, or run it twice at once. All attempts write to new, unique names in the directory of the run,
and the driver removes what no attempt that counts has named.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field

from ags1.iceberg.catalogs import TableState
from ags1.iceberg.files.file_io import KnownFile, file_io_at
from ags1.iceberg.maintenance.rewriting import Bin, BinRewriter, RewriteJob, Rewritten
from ags1.iceberg.metadata.metadata_document import metadata_document
from ags1.iceberg.tables import EncryptedTable
from ags1.iceberg.writing.commit import TableFiles
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.spark.engine.iceberg_work import form_of, known_of
from ags1.spark.engine.planning import Unit
from ags1.spark.engine.runner import FileWork, Outcome
from ags1.spark.engine.sealing import Opener, Sealer, of_process
from ags1.work.units import Advance


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
    return Unit(min(found.paths), found.bytes, (found, [form_of(each) for each in known]), files=len(found.tasks))


def rewritten_of(outcome: Outcome, seal: Sealer) -> Rewritten:
    """What became of the bin of a unit. Raise AuthenticationError if its result is another's."""
    made: Rewritten = pickle.loads(seal.open(outcome.detail, outcome.path))
    return made
