"""Manifest lists, manifests and files of a snapshot, opened with the keys that stand above them.

snapshot --> manifest list --> manifest --> data or delete file
             key_metadata      key_metadata
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ags1.iceberg._naming import naming
from ags1.iceberg.catalogs import TableState
from ags1.iceberg.file_io import ALLOW_PLAINTEXT, EncryptedFileIO, file_io_at
from ags1.iceberg.file_keys import KnownFile, known_file, known_manifest
from ags1.iceberg.manifests import Entry, Manifest, read_entries, read_manifest

__all__ = ["SnapshotFiles"]


class SnapshotFiles:
    """Opens what a snapshot has, by a FileIO that has read the table's metadata. Safe to share between threads.

    All methods raise FormatError, AuthenticationError, KeyAccessError or OSError if the file cannot be read, or is
    another than the one above it means.
    """

    def __init__(self, file_io: EncryptedFileIO) -> None:
        self._io = file_io

    @classmethod
    def of(cls, state: TableState, kms: Any, io_properties: Mapping[str, str]) -> SnapshotFiles:
        """For a table in a state, also if some of its files are plaintext."""
        file_io = file_io_at(state, {**io_properties, ALLOW_PLAINTEXT: "true"}, kms)
        file_io.read_metadata(state.metadata_location)
        return cls(file_io)

    def manifests(self, snapshot: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The entries of a snapshot's manifest list; the keys of its manifests are known to the FileIO from now on."""
        path = snapshot["manifest-list"]
        known = self._io.keys.find(path)
        if known is None:
            known = KnownFile(path, "manifest list", "avro", None, None, self._io.keys.promised)
        return self._io.keys.learn_manifest_list(known, self._read(known))

    def manifest(self, listed: Mapping[str, Any], *, metrics: bool = True) -> Manifest:
        """A manifest that a list has, in memory; with or without the metrics of its files."""
        data = self._read(known_manifest(listed, self._io.keys.promised))
        with naming(listed["manifest_path"]):
            return read_manifest(data, listed, metrics=metrics)

    def entries(self, listed: Mapping[str, Any], *, metrics: bool = True) -> Iterator[Entry]:
        """The entries of a manifest one by one."""
        data = self._read(known_manifest(listed, self._io.keys.promised))
        with naming(listed["manifest_path"]):
            yield from read_entries(data, listed, metrics=metrics)

    def known(self, file: Mapping[str, Any]) -> KnownFile:
        """What a manifest says of a data or delete file."""
        return known_file(file, self._io.keys.promised)

    def open(self, file: Mapping[str, Any]) -> Any:
        """Plaintext of a data or delete file, decrypted where it is read."""
        known = self.known(file)
        return self._io.new_input(known.path).plaintext(known)

    def _read(self, known: KnownFile) -> bytes:
        # Above it anything may stand in the place of a path, such as text with a NUL.
        with naming(known.path, "cannot be read"), self._io.new_input(known.path).plaintext(known) as file:
            data: bytes = file.read()
        return data
