"""What a conversion is to make of a table, and of each of its files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ags1.iceberg.metadata_document import DATA_PATH, METADATA_PATH
from ags1.iceberg.writing.metadata import TableMetadata

__all__ = ["DECRYPT", "ENCRYPT", "REKEY", "RELOCATE", "Change"]

ENCRYPT, DECRYPT, REKEY, RELOCATE = "encrypt", "decrypt", "rekey", "relocate"

# Where the old table had its files is not where the new one has them.
_PATH_PROPERTIES = (DATA_PATH, METADATA_PATH, "write.object-storage.path", "write.folder-storage.path")


@dataclass(frozen=True)
class Change:
    """A conversion: "encrypt", "decrypt", "rekey" or "relocate".

    `key_id` is the master key of the result, None for a plaintext table; `data_key_length` counts bytes, None for what
    the table has; `location` is where the table goes.
    """

    name: str
    key_id: str | None
    data_key_length: int | None = None
    location: str | None = None

    @property
    def purpose(self) -> dict[str, Any]:
        """What two runs have in common that can use each other's files, as JSON values."""
        return {"change": self.name, "key-id": self.key_id, "data-key-length": self.data_key_length}

    def is_done(self, key_metadata: bytes | None) -> bool:
        """Whether a file with this key metadata stays as it is."""
        if self.name == ENCRYPT:
            return key_metadata is not None
        return self.name == DECRYPT and key_metadata is None

    def copies(self, key_metadata: bytes | None) -> bool:
        """Whether the bytes of a file stay as they are, at another place."""
        return self.name == RELOCATE and (key_metadata is not None or self.key_id is None)

    def apply(self, metadata: TableMetadata) -> None:
        """Change what the table's metadata says of encryption and of places; snapshots come after that."""
        metadata.upgrade()
        metadata.set_encryption(self.key_id, self.data_key_length)
        if self.location is not None:
            metadata.fields["location"] = self.location
            for name in _PATH_PROPERTIES:
                metadata.properties.pop(name, None)

    def key_bits(self, metadata: TableMetadata) -> int:
        """Length of the keys of new files; 0 for plaintext files."""
        if self.key_id is None:
            return 0
        return 8 * (metadata.data_key_length if self.data_key_length is None else self.data_key_length)
