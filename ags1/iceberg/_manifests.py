"""Manifest lists and manifests of format version 3, as PyIceberg's own objects with the fields that it leaves out.

PyIceberg reads every version as version 2, without row ids and without what binds a deletion vector. Files of older
versions have nulls there. Source: Iceberg table spec, "Manifests" and "First Row ID Inheritance".
"""

from __future__ import annotations

import struct
from typing import Any, TypeVar

from pyiceberg import manifest
from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.reader import DoubleReader
from pyiceberg.avro.resolver import ReadSchemaResolver, SchemaPartnerAccessor
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntryStatus
from pyiceberg.schema import visit_with_partner

__all__ = ["DataFile", "ManifestFile", "read_manifest_list"]

_VERSION = 3
_DOUBLE = struct.Struct("<d")
_Row = TypeVar("_Row", bound=Any)


class DataFile(manifest.DataFile):
    """A data or delete file, as its manifest has it."""

    @property
    def first_row_id(self) -> int | None:
        """Number of its first row, also inherited; None if its rows have none."""
        found: int | None = self._data[16]
        return found

    @property
    def referenced_data_file(self) -> str | None:
        """The one data file that its deletes are for."""
        found: str | None = self._data[17]
        return found

    @property
    def content_offset(self) -> int | None:
        """Where a deletion vector begins, in bytes of the plaintext."""
        found: int | None = self._data[18]
        return found

    @property
    def content_size_in_bytes(self) -> int | None:
        """Bytes of a deletion vector."""
        found: int | None = self._data[19]
        return found


class ManifestFile(manifest.ManifestFile):
    """A manifest, as its list has it."""

    @property
    def first_row_id(self) -> int | None:
        """Number of the first row of its files that state none."""
        found: int | None = self._data[15]
        return found

    def fetch_manifest_entry(self, io: Any, discard_deleted: bool = True) -> list[manifest.ManifestEntry]:
        """The entries, with what they inherit from the manifest."""
        with _AvroFile[manifest.ManifestEntry](
            io.new_input(self.manifest_path),
            manifest.MANIFEST_ENTRY_SCHEMAS[_VERSION],
            read_types={-1: manifest.ManifestEntry, 2: DataFile},
            read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
        ) as reader:
            entries = [manifest._inherit_from_manifest(entry, self) for entry in reader]
        live = [each for each in entries if each.status != ManifestEntryStatus.DELETED]
        self._number_rows(live)
        return live if discard_deleted else entries

    def _number_rows(self, live: list[manifest.ManifestEntry]) -> None:
        number = self.first_row_id
        for entry in live:
            file = entry.data_file
            if number is None:
                # Java lets nobody state a number below a manifest that has none.
                file._data[16] = None
            elif file._data[16] is None and file.content == DataFileContent.DATA:
                file._data[16] = number
                number += file.record_count


def read_manifest_list(input_file: Any) -> list[ManifestFile]:
    """The manifests of a list."""
    with _AvroFile[ManifestFile](
        input_file,
        manifest.MANIFEST_LIST_FILE_SCHEMAS[_VERSION],
        read_types={-1: ManifestFile, 508: manifest.PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as reader:
        return list(reader)


class _AvroFile(AvroFile[_Row]):
    """PyIceberg's, with partition values of the type double as they are written.

    PyIceberg 0.12's compiled decoder returns them rounded to 32 bits.
    """

    def __enter__(self) -> _AvroFile[_Row]:
        super().__enter__()
        resolver: Any = _Resolver(self.read_types, self.read_enums)
        self.reader = visit_with_partner(self.schema, self.read_schema, resolver, SchemaPartnerAccessor())
        return self


class _Resolver(ReadSchemaResolver):
    def visit_double(self, double_type: Any, partner: Any) -> DoubleReader:
        return _DoubleReader()  # type: ignore[no-untyped-call]


class _DoubleReader(DoubleReader):
    def read(self, decoder: Any) -> float:
        found: float = _DOUBLE.unpack(decoder.read(_DOUBLE.size))[0]
        return found
