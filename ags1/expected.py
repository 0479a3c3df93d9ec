"""What a caller knows of a table beforehand, from a place where no writer of the table can change it.

    load_table(table_key_id=..., ...)  -->  Expected  -->  CatalogTable.load               each state of the table
                                                      -->  EncryptedFileIO.read_metadata   before another file is read

A stream has its :class:`ags1.KeyMetadata` for the same purpose (key, AAD prefix, length), and a dataset its pins.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ags1.errors import AuthenticationError, KeyAccessError
from ags1.support.arguments import one_of, spelled
from ags1.support.typing import Any

LENGTH_POLICIES = ("trusted", "metadata-hint", "file")
TABLE_KEY_ID, METADATA_HASH = "ags1.table-key-id", "ags1.metadata-hash"
ALLOW_PLAINTEXT, LENGTH_POLICY = "ags1.allow-plaintext", "ags1.length-policy"
ALLOWED_LOCATIONS = "ags1.allowed-locations"
"""Properties of a FileIO, or of a catalog, with the same meaning; the locations are a JSON list of paths and URLs."""
_HASH_BYTES = 32


@dataclass(frozen=True)
class Expected:
    """Expectations of a table. Immutable, so safe to share between threads; it holds no secret.

    Attributes
    ----------
    table_key_id, metadata_hash, allow_plaintext, length_policy
        As for :func:`ags1.iceberg.open_table`.
    allowed_locations : iterable of str
        Further directories that the table's files may be in.
    moved_from : (str, str) or None
        Of a copied table: the directory that its metadata names, and the directory of the copy.
    """

    table_key_id: str | None = None
    metadata_hash: str | None = None
    allow_plaintext: bool = False
    length_policy: str = "trusted"
    allowed_locations: Iterable[str] | None = ()
    moved_from: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        one_of(self.length_policy, LENGTH_POLICIES, "length_policy")
        if isinstance(self.allowed_locations, str):
            raise TypeError("allowed_locations must be a list of directories, not one text")
        if self.metadata_hash is not None:
            check_hash(self.metadata_hash)
        object.__setattr__(self, "allowed_locations", tuple(self.allowed_locations or ()))

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Expected:
        """Return what the properties of a FileIO or of a catalog say; a ValueError names one that is malformed."""
        plaintext = str(properties.get(ALLOW_PLAINTEXT, "false")).lower()
        if plaintext not in ("true", "false"):
            raise ValueError(f"{ALLOW_PLAINTEXT} must be true or false, got {properties[ALLOW_PLAINTEXT]!r}")
        policy = one_of(properties.get(LENGTH_POLICY, "trusted"), LENGTH_POLICIES, LENGTH_POLICY)
        key_id, metadata_hash = properties.get(TABLE_KEY_ID), properties.get(METADATA_HASH)
        return cls(key_id, metadata_hash, plaintext == "true", policy, _locations(properties.get(ALLOWED_LOCATIONS)))

    def within(self, properties: Mapping[str, Any]) -> Expected:
        """Return the same with the properties of a catalog. What the caller says comes first; locations add up."""
        said = Expected.of(properties)
        return replace(
            self,
            table_key_id=said.table_key_id if self.table_key_id is None else self.table_key_id,
            metadata_hash=said.metadata_hash if self.metadata_hash is None else self.metadata_hash,
            allowed_locations=(*(said.allowed_locations or ()), *(self.allowed_locations or ())),
        )

    def after(self, table_key_id: str | None, metadata_hash: str) -> Expected:
        """Return the same after a commit of the caller: what was expected before is now what the commit has made."""
        return replace(
            self,
            table_key_id=None if self.table_key_id is None else table_key_id,
            metadata_hash=None if self.metadata_hash is None else metadata_hash,
        )

    def check_hash(self, where: str, found: str) -> None:
        """Raise an AuthenticationError if the hash of the metadata is another than the expected one."""
        if self.metadata_hash is not None and not hmac.compare_digest(found.encode(), self.metadata_hash.encode()):
            raise AuthenticationError(
                f"{where}: has the hash {found}, and {self.metadata_hash} is expected: another writer has committed to "
                "the table, or changed or put back a file of it. If that is meant to be, pin the hash that it has now"
            )

    def check_key(self, where: str, found: str | None) -> None:
        """Raise a KeyAccessError if the master key is another than the expected one."""
        if self.table_key_id in (None, found) or (found is None and self.allow_plaintext):
            return
        if found is None:
            raise KeyAccessError(
                f"{where}: has no master key, and {self.table_key_id!r} is expected: the table is not encrypted, or "
                "somebody wants you to believe that"
            )
        raise KeyAccessError(
            f"{where}: is under the master key {found!r}, and {self.table_key_id!r} is expected: it was re-wrapped, or "
            f"comes from another table; if that is meant to be, give {spelled('table_key_id')} with the new one"
        )


NOTHING = Expected()
"""For a caller who knows nothing of a table, and accepts no plaintext."""


def check_hash(metadata_hash: str) -> str:
    """Return the hash, or raise a ValueError if it is no base64 of 32 bytes."""
    try:
        length = len(base64.b64decode(metadata_hash, validate=True))
    except ValueError:
        length = 0
    if length != _HASH_BYTES:
        raise ValueError("the metadata hash must be the base64 of 32 bytes, as the Hive parameter metadata_hash has it")
    return metadata_hash


def _locations(text: str | None) -> list[str]:
    try:
        found = [] if text is None else json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
        raise ValueError(f"{ALLOWED_LOCATIONS} must be a JSON list of paths and URLs, got {text!r}")
    return found
