"""One optimistic commit: load, build the next metadata, commit; again, if another writer was faster.

load --> attempt(state, metadata) --> catalog.commit --+--> done
  ^                                                    |
  +----- wait <----- what was written is removed <-- conflict, or the files of the state were expired

How often and how long it tries is what the table's properties ``commit.retry.*`` say, with the defaults of Iceberg
Java. Each wait is twice as long as the one before, and of a random part, so that writers do not meet again and again.

The small files of a commit (manifests, lists, Puffin files) have a key each. They are written under new, unique
names before it, so a failed commit removes them and a reader never sees a partial file. Source: Iceberg table spec,
"Encryption Keys"; AES GCM Stream specification.
"""

from __future__ import annotations

import contextlib
import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ags1 import codec
from ags1.errors import Ags1Error, ConflictError
from ags1.iceberg.catalogs import CatalogTable, RefusedError, TableState
from ags1.iceberg.metadata.locations import rooted
from ags1.iceberg.metadata.manifests import POSITION_DELETES
from ags1.iceberg.metadata.metadata_document import (
    data_directory,
    directories_of,
    metadata_directory,
    number_property,
    properties_of,
)
from ags1.iceberg.scan.deletion_vectors import write_vectors
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.keys import KeyMetadata
from ags1.storage import Location, list_files, make_parent, open_output, remove


class TableFiles:
    """Writes small files of a table. Safe to share between threads that do not change the metadata.

    At each write, the metadata determines the file's location, whether it is encrypted, and with which keys.
    `locate` makes a Location of a path or URL as metadata has it; `written` has the paths of all that was written.
    `directory` is that of the data files, below the one of all data files of the table.
    """

    def __init__(self, metadata: TableMetadata, locate: Callable[[str], Location], directory: str = "") -> None:
        self._metadata = metadata
        self._locate = locate
        self._directory = directory
        self.written: list[str] = []

    def new_metadata_path(self, name: str) -> str:
        """Path of a file below the table's metadata directory."""
        return f"{metadata_directory(self._metadata.fields)}/{name}"

    def new_data_path(self, suffix: str, partition: str = "") -> str:
        """Return a unique path for a data or delete file; `partition` is its directory, if any."""
        directory = data_directory(self._metadata.fields)
        parts = (directory, self._directory, partition, f"{uuid.uuid4()}{suffix}")
        return "/".join(part for part in parts if part)

    def located(self, path: str) -> Location:
        """Where a file is: no link below the table's directories is followed."""
        found = self._locate(path)
        return rooted(found, directories_of(self._metadata.fields)) or found

    def new_key(self) -> KeyMetadata | None:
        """A fresh key and AAD prefix for one file; None in a table that is not encrypted."""
        metadata = self._metadata
        return None if metadata.key_id is None else KeyMetadata.generate(8 * metadata.data_key_length)

    def new_data_file(self) -> tuple[str, Location, KeyMetadata | None]:
        """Return path, location and key of a Parquet file that the caller writes; :meth:`discard` removes it too."""
        path = self.new_data_path(".parquet")
        location = self.located(path)
        make_parent(location)
        self.written.append(path)
        return path, location, self.new_key()

    def write(self, path: str, data: bytes) -> tuple[int, KeyMetadata | None]:
        """Write a plaintext under a new name, as an AGS1 stream where the table is encrypted; or leave nothing.

        Return the stored bytes, and the file's key with its length.
        """
        key = self.new_key()
        stored = data if key is None else codec.encrypt(data, key.encryption_key, aad_prefix=key.aad_prefix or b"")
        location = self.located(path)
        make_parent(location)
        self.written.append(path)
        with open_output(location, expected=len(stored)) as output:
            output.write(stored)
            output.commit(durable=True)
        return len(stored), None if key is None else key.with_length(len(stored))

    def find(self) -> None:
        """Take over the data files that other processes have written into the directory of these, if they have one."""
        if not self._directory:
            return
        place = f"{data_directory(self._metadata.fields)}/{self._directory}"
        with contextlib.suppress(FileNotFoundError):
            found = list_files(self.located(place), temporary=True)
            self.written += [f"{place}/{each.name}" for each in found]

    def discard(self) -> None:
        """Remove all that was written: the commit failed."""
        for path in self.written:
            # It is harmless if it stays: nothing names it.
            with contextlib.suppress(OSError):
                remove([self.located(path)])
        self.written.clear()


def vector_files(vectors: Iterable[tuple[str, Any]], files: TableFiles) -> list[dict[str, Any]]:
    """Write vectors into one Puffin file of a table.

    Return what a manifest has of each, in the same order, but its partition: that of the data file.
    """
    path = files.new_data_path("-deletes.puffin")
    data, written = write_vectors(path, vectors)
    length, key = files.write(path, data)
    return [
        {
            "content": POSITION_DELETES,
            "file_path": path,
            "file_format": "PUFFIN",
            "record_count": each.cardinality,
            "file_size_in_bytes": length,
            "referenced_data_file": each.data_file,
            "content_offset": each.offset,
            "content_size_in_bytes": each.size,
            **({} if key is None else {"key_metadata": key.encode()}),
        }
        for each in written
    ]


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
