"""The key of a dataset: one, under one master key.

    master key in a KMS  ->  key encryption key  ->  key of the dataset  ->  key metadata of each object

Destroying the master key destroys the keys of all files, in all copies: no other master key opens them. A new master
key wraps the same key encryption key again, so the key of a dataset stays the same for all its versions.
"""

from __future__ import annotations

import hashlib
import hmac

from ags1.core.gcm import Key, open_message, random_bytes, seal_message
from ags1.errors import AuthenticationError, FormatError, KeyAccessError
from ags1.iceberg.keys.wrapped_key import WrappedKey
from ags1.keys import KeyMetadata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from ags1.dataset.entries import Part

_NONCE = 12
_LABEL = b"ags1 dataset key\0"


class DatasetKeys:
    """Seals and opens what is under the key of a dataset. It unwraps that key once, and is safe to share by threads."""

    def __init__(self, wrapped: WrappedKey, kms: Any, name: str) -> None:
        self.wrapped = wrapped
        self._kms = kms
        self._name = name
        self._key: Key | None = None

    @property
    def is_open(self) -> bool:
        """Whether the key is unwrapped already."""
        return self._key is not None

    def key(self) -> Key:
        """The key of the dataset. KeyAccessError: the KMS refused."""
        if self._key is None:
            try:
                self._key = self.wrapped.unwrap(self._kms)
            except KeyAccessError as error:
                raise type(error)(f"{self._name}: {error}") from error
        return self._key

    def seal(self, object_name: str, metadata: bytes) -> bytes:
        """Seal the encoded key metadata of an object."""
        nonce = random_bytes(_NONCE)
        return nonce + seal_message(metadata, self.key(), nonce, _bound(object_name))

    def open(self, object_name: str, sealed: bytes) -> KeyMetadata:
        """The key metadata of an object. AuthenticationError: it is damaged, or belongs to another object."""
        plain = open_message(sealed[_NONCE:], self.key(), sealed[:_NONCE], _bound(object_name))
        if plain is None:
            raise AuthenticationError(f"{self._name}: the sealed key of {object_name} is damaged, or of another object")
        return KeyMetadata.decode(plain)

    def open_part(self, part: Part) -> KeyMetadata:
        """The key metadata of an object of a file; raises as :meth:`open`."""
        metadata = self.open(part.name, part.sealed_key)
        if metadata.file_length != part.file_length:
            raise FormatError(f"{self._name}: the key of {part.name} is for another length than the manifest says")
        return metadata

    def tag(self, data: bytes) -> str:
        """An authentication tag over a document, with a key derived from the key of the dataset."""
        key = hmac.digest(bytes(self.key()), _LABEL + b"version", hashlib.sha256)
        return hmac.digest(key, data, hashlib.sha256).hex()

    def __repr__(self) -> str:
        return f"<ags1.dataset.DatasetKeys of {self._name}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("the keys of a dataset cannot be pickled or copied: open the dataset there")


def _bound(object_name: str) -> bytes:
    return _LABEL + object_name.encode()
