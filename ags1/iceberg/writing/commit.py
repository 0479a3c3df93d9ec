"""One optimistic commit: load, build the next metadata, commit; again, if another writer was faster.

load --> attempt(state, metadata) --> catalog.commit --+--> done
  ^                                                    |
  +----- wait <----- what was written is removed <-- conflict, or the files of the state were expired

How often and how long it tries is what the table's properties ``commit.retry.*`` say, with the defaults of Iceberg
Java. Each wait is twice as long as the one before, and of a random part, so that writers do not meet again and again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from ags1.errors import Ags1Error, ConflictError
from ags1.iceberg.catalogs import CatalogTable, RefusedError, TableState
from ags1.iceberg.metadata.metadata_document import number_property, properties_of
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.iceberg.writing.table_files import TableFiles
from ags1.storage import Location

COMMIT_RETRY = "commit.retry."
"""How the table's properties of lost races begin."""


@dataclass(frozen=True)
class Retries:
    """How often and how long a commit is tried, as the properties ``commit.retry.*`` have it.

    Attributes
    ----------
    num_retries : int
        Number of attempts after the first.
    min_wait_ms, max_wait_ms : int
        Shortest and longest wait between two attempts, in milliseconds.
    total_timeout_ms : int
        Time for all attempts, in milliseconds: no further one begins later.
    """

    num_retries: int = 4
    min_wait_ms: int = 100
    max_wait_ms: int = 60_000
    total_timeout_ms: int = 1_800_000

    def of(self, properties: Mapping[str, str]) -> Retries:
        """Return what a table's properties say, else what these do; a ValueError names a property that is no number."""
        usual = asdict(self)
        return Retries(
            **{
                name: number_property(properties, COMMIT_RETRY + name.replace("_", "-"), number, least=0)
                for name, number in usual.items()
            }
        )

    def wait(self, attempts: int) -> float:
        """Return the seconds to wait after this number of attempts."""
        # The exponent is bounded, because a float is.
        wanted = self.min_wait_ms * float(2 ** min(attempts - 1, 60)) * random.uniform(0.5, 1.5)
        return min(self.max_wait_ms, wanted) / 1000


PATIENT = Retries(num_retries=100, max_wait_ms=5000)
"""For commits whose work is long, or reads the whole table: giving them up loses much."""


def commit(
    table: CatalogTable,
    locate: Callable[[str], Location],
    attempt: Callable[[TableState, TableMetadata, TableFiles], bool],
    *,
    retries: Retries = Retries(),
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> TableState | None:
    """Commit the change of `attempt` to the table's newest state; return the new state, None if there is nothing to do.

    `attempt` changes the metadata, and writes manifests through the TableFiles. It is called again after each lost
    race, with the newest state. False means that there is nothing to commit. `retries` is for what the table's
    properties leave open. `wait` takes seconds, and `clock` returns them.

    Raises
    ------
    ConflictError
        Another writer committed first each time. Nothing was changed, and all files of the attempts are removed.
    ValueError
        A property ``commit.retry.*`` is not a number. Nothing was changed.
    Exception
        What `attempt` and the catalog raise. Where the catalog cannot say whether it committed, which is an OSError but
        no RefusedError, what was written stays.
    """
    began, attempts = clock(), 0
    while True:
        state = table.load()
        limits = retries.of(properties_of(state.document.fields))
        metadata = TableMetadata(state.document.fields)
        files = TableFiles(metadata, table.places(state).within(locate))
        attempts += 1
        lost: Exception
        try:
            if not attempt(state, metadata, files):
                files.discard()
                return None
        except BaseException as error:
            files.discard()
            if not (
                isinstance(error, (FileNotFoundError, ConflictError)) and has_moved(table, state.metadata_location)
            ):
                raise
            # Others have committed, and may have removed what this snapshot needed.
            lost = error
        else:
            try:
                return table.commit(state, metadata.fields)
            except ConflictError as error:
                files.discard()
                lost = error
            except (Ags1Error, RefusedError):
                # The catalog refused, so nothing names the written files.
                files.discard()
                raise
        seconds = limits.wait(attempts)
        if attempts > limits.num_retries or 1000 * (clock() - began + seconds) > limits.total_timeout_ms:
            raise ConflictError(
                f"{table.name}: other writers committed during each of {attempts} attempts. Nothing was committed: do "
                f"it again, stop the writers, or raise the table's properties {COMMIT_RETRY}num-retries "
                f"({limits.num_retries}) and {COMMIT_RETRY}total-timeout-ms ({limits.total_timeout_ms})"
            ) from lost
        wait(seconds)


def has_moved(table: CatalogTable, metadata_location: str) -> bool:
    """Whether a table has a newer state than that of this metadata file, so that the files of this may be gone."""
    return table.load().metadata_location != metadata_location
