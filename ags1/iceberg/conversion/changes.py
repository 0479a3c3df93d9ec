"""The target of a conversion, for the table and for each file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ags1.iceberg.metadata.metadata_document import DATA_PATH, METADATA_PATH
from ags1.iceberg.writing.metadata import TableMetadata

ENCRYPT, DECRYPT, REKEY, RELOCATE = "encrypt", "decrypt", "rekey", "relocate"

# The new table's files are not where the old table's are.
_PATH_PROPERTIES = (DATA_PATH, METADATA_PATH, "write.object-storage.path", "write.folder-storage.path")


@dataclass(frozen=True)
class ConversionGoal:
    """A conversion: "encrypt", "decrypt", "rekey" or "relocate".

    `key_id` is the master key of the result, None for a plaintext table; `data_key_length` counts bytes, None for the
    table's current length; `location` is the target directory. `keeps_statistics` and `partition_paths` are of
    encrypted results: whether statistics files, which are plaintext, and partition values in paths may stay.
    """

    name: str
    key_id: str | None
    data_key_length: int | None = None
    location: str | None = None
    keeps_statistics: bool = False
    partition_paths: bool = False

    @property
    def shows_partitions(self) -> bool:
        """Whether new files lie in directories that are named after partition values."""
        return self.key_id is None or self.partition_paths

    def purpose(self, metadata: TableMetadata) -> dict[str, Any]:
        """Return JSON values that are equal for two runs that can use each other's files."""
        return {
            "change": self.name,
            "key-id": self.key_id,
            "data-key-length": self.data_key_length,
            "partition-paths": self.shows_partitions,
            "key-bits": self.key_bits(metadata),
        }

    def is_done(self, key_metadata: bytes | None) -> bool:
        """Whether a file with this key metadata stays as it is."""
        if self.name == ENCRYPT:
            return key_metadata is not None
        return self.name == DECRYPT and key_metadata is None

    def copies(self, key_metadata: bytes | None) -> bool:
        """Whether a file is copied byte for byte to another place."""
        return self.name == RELOCATE and (key_metadata is not None or self.key_id is None)

    def apply(self, metadata: TableMetadata) -> None:
        """Change encryption and locations in the table's metadata; snapshots come after that."""
        metadata.upgrade()
        metadata.set_encryption(self.key_id, self.data_key_length)
        if self.location is not None:
            metadata.fields["location"] = self.location
            for name in _PATH_PROPERTIES:
                metadata.properties.pop(name, None)

    def drops_statistics(self, metadata: TableMetadata) -> bool:
        """Whether the statistics files go: they tell of the data, and the result is encrypted."""
        # Others may need the files of a table that collects no garbage.
        return self.name in (ENCRYPT, REKEY) and not self.keeps_statistics and metadata.removes_files

    def key_bits(self, metadata: TableMetadata) -> int:
        """Length of the keys of new files; 0 for plaintext files."""
        if self.key_id is None:
            return 0
        return 8 * (metadata.data_key_length if self.data_key_length is None else self.data_key_length)
