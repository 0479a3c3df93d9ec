"""A dataset's wrapped keys: Iceberg's ``encryption-keys``, with the one master key that is above them.

master key in a KMS  ->  key encryption key  ->  key of the manifest, key of a journal  ->  keys of the files
"""

from __future__ import annotations

from ags1.errors import FormatError
from ags1.iceberg.encryption_keys import EncryptionKeys
from ags1.keys import KeyMetadata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["KeyRing"]


class KeyRing:
    """Wrapped keys under one master key.

    Parameters
    ----------
    entries : sequence of dict
        As in ``encryption-keys``.
    table_key_id : str
        The master key in the KMS.
    name : str
        What to call the document that has them, in errors.

    Raises
    ------
    FormatError
        They are damaged.
    """

    def __init__(self, entries: Sequence[dict[str, Any]], table_key_id: str, name: str = "the dataset") -> None:
        self.table_key_id = table_key_id
        self._name = name
        try:
            self._keys = EncryptionKeys.from_table_metadata({"format-version": 3, "encryption-keys": list(entries)})
        except FormatError as error:
            raise FormatError(f"{name}: {error}") from None

    def add(self, metadata: KeyMetadata, kms: Any) -> str:
        """Wrap the key of a manifest or a journal; answer the id of its entry."""
        return self._keys.add_manifest_list_key(metadata, kms, self.table_key_id)

    def unwrap(self, key_id: str, kms: Any) -> KeyMetadata:
        """The key of an entry: one call to the KMS, or none if it was made before.

        Raises
        ------
        KeyAccessError
            The KMS refused, or the entry is missing or below another master key.
        FormatError, AuthenticationError
            The entries are damaged.
        """
        return self._keys.unwrap(key_id, kms, table_key_id=self.table_key_id)

    def only(self, key_id: str) -> KeyRing:
        """The entry and what is above it, without what nobody needs any more."""
        by_id = {entry["key-id"]: entry for entry in self.to_list()}
        wanted: set[str] = set()
        above: str | None = key_id
        while above is not None and above in by_id and above not in wanted:
            wanted.add(above)
            above = by_id[above].get("encrypted-by-id")
        kept = [entry for name, entry in by_id.items() if name in wanted]
        return KeyRing(kept, self.table_key_id, self._name)

    def copy(self) -> KeyRing:
        """The same entries, to be added to."""
        return KeyRing(self.to_list(), self.table_key_id, self._name)

    def to_list(self) -> list[dict[str, Any]]:
        """The entries as they go into JSON."""
        return [dict(entry) for entry in self._keys.to_list()]

    def rewrapped(self, kms: Any, new_table_key_id: str, new_kms: Any) -> KeyRing:
        """The same keys under another master key."""
        keys = self._keys.rewrap(kms, new_table_key_id, new_kms)
        return KeyRing([dict(entry) for entry in keys.to_list()], new_table_key_id, self._name)
