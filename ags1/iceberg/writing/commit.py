"""One optimistic commit: load, build the next metadata, commit; again, if another writer was faster.

load --> attempt(state, metadata) --> catalog.commit --+--> done
  ^                                                    |
  +---------- what was written is removed <-- conflict-+
"""

from __future__ import annotations

from collections.abc import Callable

from ags1.errors import Ags1Error, ConflictError
from ags1.iceberg.catalogs import CatalogTable, RefusedError, TableState
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.iceberg.writing.table_files import TableFiles
from ags1.storage import Location

__all__ = ["ATTEMPTS", "commit"]

ATTEMPTS = 4
"""Number of attempts before a commit fails."""


def commit(
    table: CatalogTable,
    locate: Callable[[str], Location],
    attempt: Callable[[TableState, TableMetadata, TableFiles], bool],
    *,
    attempts: int = ATTEMPTS,
) -> TableState | None:
    """Commit the change of `attempt` to the table's newest state; return the new state, None if there is nothing to do.

    `attempt` changes the metadata, and writes manifests through the TableFiles. It is called again after each lost
    race, with the newest state. False means that there is nothing to commit.

    Raises
    ------
    ConflictError
        Another writer committed first each time. Nothing was changed, and all files of the attempts are removed.
    Exception
        What `attempt` and the catalog raise. Where the catalog cannot say whether it committed, which is an OSError but
        no RefusedError, what was written stays.
    """
    for number in range(attempts):
        state = table.load()
        metadata = TableMetadata(state.document.fields)
        files = TableFiles(metadata, locate)
        try:
            if not attempt(state, metadata, files):
                files.discard()
                return None
        except BaseException:
            files.discard()
            raise
        try:
            return table.commit(state, metadata.fields)
        except ConflictError as error:
            files.discard()
            if number + 1 == attempts:
                raise ConflictError(
                    f"{table.name}: others committed during each of {attempts} attempts; try again, or stop its writers"
                ) from error
        except (Ags1Error, RefusedError):
            # The catalog refused, so nothing names the written files.
            files.discard()
            raise
    raise AssertionError("unreachable")
