"""One key under a master key: of a dataset, of a column, or of a run and its records.

master key in a KMS  ->  key encryption key  ->  key
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ags1.errors import AuthenticationError, FormatError
from ags1.iceberg.keys.encryption_keys import EncryptionKeys
from ags1.keys import Key, KeyMetadata
from ags1.work.records import Unwrap


@dataclass(frozen=True)
class WrappedKey:
    """The key of a dataset, a run or a column under a master key. It holds wrapped keys only, and can be pickled.

    `encryption_keys` has Iceberg's form: the key encryption key, and the key that it wraps, whose id is `entry`.
    """

    key_id: str
    encryption_keys: tuple[dict[str, Any], ...] = ()
    entry: str = ""

    def another(self, kms: Any) -> WrappedKey:
        """A new key under the same master key.

        If the key encryption key is young enough, it wraps the new key too: then the KMS is only asked to unwrap.
        """
        keys = self._keys()
        entry = keys.add_manifest_list_key(KeyMetadata.generate(), kms, self.key_id)
        by_id = {each["key-id"]: each for each in keys.to_list()}
        made = by_id[entry]
        return WrappedKey(self.key_id, (by_id[made["encrypted-by-id"]], made), entry)

    def unwrap(self, kms: Any) -> Key:
        """Unwrap the key. KeyAccessError: the KMS refused."""
        return self._keys().unwrap(self.entry, kms, table_key_id=self.key_id).encryption_key

    def rewrapped(self, kms: Any, new_key_id: str, new_kms: Any) -> WrappedKey:
        """The same key under another master key."""
        keys = self._keys().rewrap(kms, new_key_id, new_kms)
        return WrappedKey(new_key_id, tuple(keys.to_list()), self.entry)

    def _keys(self) -> EncryptionKeys:
        return EncryptionKeys.from_table_metadata({"format-version": 3, "encryption-keys": [*self.encryption_keys]})

    def to_json(self) -> dict[str, Any]:
        """The form in a version file, and in the record of a run."""
        return {"key-id": self.key_id, "entry": self.entry, "encryption-keys": list(self.encryption_keys)}

    @classmethod
    def from_json(cls, fields: object, name: str) -> WrappedKey:
        """Read that form; `name` is the document's, for errors."""
        kinds = {"key-id": str, "entry": str, "encryption-keys": list}
        if not isinstance(fields, dict) or not all(isinstance(fields.get(each), kinds[each]) for each in kinds):
            raise FormatError(f"{name}: the wrapped key is damaged")
        entries = fields["encryption-keys"]
        if len(entries) != 2 or not all(isinstance(each, dict) for each in entries):
            raise FormatError(f"{name}: the wrapped key is damaged")
        named = {str(each.get("key-id")): each.get("encrypted-by-id") for each in entries}
        if named.get(str(named.get(fields["entry"]))) != fields["key-id"]:
            raise FormatError(f"{name}: the wrapped key is damaged: its entries do not lead to its master key")
        return cls(fields["key-id"], tuple(entries), fields["entry"])


def unwrapping_under(key_id: str, kms: Any) -> Unwrap:
    """What unwraps the keys of runs; an AuthenticationError if a key is under another master key than `key_id`."""

    def unwrap(fields: Mapping[str, Any], name: str) -> Key:
        key = WrappedKey.from_json(fields, name)
        if key.key_id != key_id:
            raise AuthenticationError(f"{name}: is under the master key {key.key_id!r}, and {key_id!r} is expected")
        return key.unwrap(kms)

    return unwrap
