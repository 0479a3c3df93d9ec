"""The small files that a commit writes: manifests, manifest lists, Puffin files. Each has a key of its own.

They are written under new, unique names before the commit, so a failed commit removes them and a reader never sees a
partial file. Source: Iceberg table spec, "Encryption Keys"; AES GCM Stream specification.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from ags1 import codec
from ags1.iceberg.metadata.locations import rooted
from ags1.iceberg.metadata.manifests import POSITION_DELETES
from ags1.iceberg.metadata.metadata_document import data_directory, directories_of, metadata_directory
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
