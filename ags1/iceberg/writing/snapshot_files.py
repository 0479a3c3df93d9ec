"""Manifest lists, manifests and files of a snapshot, opened with the keys that stand above them.

snapshot --> manifest list --> manifest --> data or delete file
             key_metadata      key_metadata
"""

from __future__ import annotations

from ags1.errors import Ags1Error
from ags1.iceberg.file_keys import KnownFile
from ags1.iceberg.metadata_document import list_contradiction, list_header
from ags1.iceberg.writing.manifest_avro import DATA, EQUALITY_DELETES, Manifest, read_list, read_manifest
from ags1.keys import KeyMetadata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ags1.iceberg.file_io import EncryptedFileIO

__all__ = ["SnapshotFiles", "kind_of"]


class SnapshotFiles:
    """Opens what a snapshot has.

    Parameters
    ----------
    file_io : EncryptedFileIO
        It has read the table's metadata.

    Notes
    -----
    Safe to share between threads.
    """

    def __init__(self, file_io: EncryptedFileIO) -> None:
        self._io = file_io

    def manifests(self, snapshot: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The entries of a snapshot's manifest list.

        Raises
        ------
        FormatError, AuthenticationError, KeyAccessError, OSError
            It cannot be read, or is that of another snapshot.
        """
        path = snapshot["manifest-list"]
        known = self._io.keys.find(path)
        if known is None:
            known = KnownFile(path, "manifest list", "avro", None, None, self._io.keys.promised)
        data = self._read(known)
        try:
            contradiction = list_contradiction(list_header(data), known.snapshots)
            if contradiction is not None:
                raise contradiction
            return read_list(data)
        except Ags1Error as error:
            raise type(error)(f"{path}: {error}") from None

    def manifest(self, listed: Mapping[str, Any]) -> Manifest:
        """A manifest that a list has.

        Raises
        ------
        FormatError, AuthenticationError, KeyAccessError, OSError
            It cannot be read.
        """
        path = listed["manifest_path"]
        data = self._read(self._known(path, "manifest", "avro", listed, listed.get("manifest_length")))
        try:
            return read_manifest(data, listed)
        except Ags1Error as error:
            raise type(error)(f"{path}: {error}") from None

    def known(self, file: Mapping[str, Any]) -> KnownFile:
        """What a manifest says of a data or delete file."""
        path, form = file["file_path"], file["file_format"].lower()
        return self._known(path, kind_of(file), form, file, file.get("file_size_in_bytes"), file["record_count"])

    def open(self, file: Mapping[str, Any]) -> Any:
        """Plaintext of a data or delete file, decrypted where it is read.

        Raises
        ------
        FormatError, AuthenticationError, KeyAccessError, OSError
            It cannot be opened.
        """
        known = self.known(file)
        return self._io.new_input(known.path).plaintext(known)

    def _known(
        self, path: str, kind: str, form: str, above: Mapping[str, Any], size: int | None, rows: int | None = None
    ) -> KnownFile:
        encoded = above.get("key_metadata")
        key = None if encoded is None else KeyMetadata.decode(encoded)
        return KnownFile(path, kind, form, key, size, self._io.keys.promised, rows)

    def _read(self, known: KnownFile) -> bytes:
        with self._io.new_input(known.path).plaintext(known) as file:
            data: bytes = file.read()
        return data


def kind_of(file: Mapping[str, Any]) -> str:
    """What a file is: "data", "position deletes", "equality deletes" or "deletion vectors"."""
    if file["content"] == DATA:
        return "data"
    if file["content"] == EQUALITY_DELETES:
        return "equality deletes"
    return "deletion vectors" if file["file_format"].lower() == "puffin" else "position deletes"
