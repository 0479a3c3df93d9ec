"""Keys of files on their way between processes, and in the journal: sealed by a key that the KMS wraps.

    master key (KMS) --wraps--> WorkKey --seals--> key metadata of a file
                                                   nonce (12) || ciphertext || tag (16); AAD: the file's path

A task and a journal hold no plaintext key; whoever works on them asks the KMS once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from ags1._gcm import open_message, random_bytes, seal_message
from ags1.errors import AuthenticationError
from ags1.iceberg._kek import check_kms, keep_kek, kept_kek, make_kek
from ags1.keys import Key, KeyMetadata

__all__ = ["Seal", "WorkKey"]

_NONCE, _KEY_LENGTH = 12, 32
_LABEL = b"ags1 key of a moved file "
_NAME = "conversion"


@dataclass(frozen=True)
class WorkKey:
    """A wrapped key, which can be pickled and stored, and the id of the master key that wrapped it."""

    key_id: str
    wrapped: bytes

    @classmethod
    def make(cls, kms: Any, key_id: str) -> WorkKey:
        """Make a new one; a KeyAccessError if the KMS refused."""
        check_kms(kms)
        key, wrapped = make_kek(kms, key_id, _NAME, _KEY_LENGTH)
        keep_kek(kms, wrapped, key_id, key)
        return cls(key_id, wrapped)

    def open(self, kms: Any) -> Seal:
        """Have it unwrapped; a KeyAccessError if the KMS refused."""
        check_kms(kms)
        return Seal(kept_kek(kms, self.wrapped, self.key_id, _NAME))


class Seal:
    """Seals and opens key metadata. Safe to share between threads; it cannot be pickled."""

    __slots__ = ("_key",)

    def __init__(self, key: Key) -> None:
        self._key = key

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Seal cannot be pickled: it holds a key; send its WorkKey")

    def seal(self, metadata: KeyMetadata, path: str) -> bytes:
        """Key metadata of the file of this path, sealed."""
        nonce = random_bytes(_NONCE)
        return nonce + seal_message(metadata.encode(), self._key, nonce, _LABEL + path.encode())

    def open(self, sealed: bytes, path: str) -> KeyMetadata:
        """The key metadata again; an AuthenticationError if it was sealed otherwise, or for another file."""
        plain = open_message(sealed[_NONCE:], self._key, sealed[:_NONCE], _LABEL + path.encode())
        if plain is None:
            raise AuthenticationError(f"{path}: the sealed key of this file does not open: another key, or changed")
        return KeyMetadata.decode(plain)
