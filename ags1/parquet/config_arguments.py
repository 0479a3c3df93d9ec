"""Checks of arguments that the configurations for writing and for reading share."""

from __future__ import annotations

from ags1._buffer import BufferView
from ags1._gcm import Key
from ags1._typing import Buffer, KeyLike
from ags1.keys import KeyMetadata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.parquet._columns import ColumnName

__all__ = ["CACHE_SECONDS", "as_flag", "as_key", "as_key_metadata", "as_octets", "dotted", "not_picklable"]

CACHE_SECONDS = 600.0
"""How long key encryption keys are kept, as parquet-java and PyArrow keep them."""


def as_key(key: KeyLike, what: str) -> Key:
    """Return a key; an error names the argument."""
    try:
        return key if isinstance(key, Key) else Key(key)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what}: {error}") from None


def as_octets(data: Buffer, what: str) -> bytes:
    """Return the bytes of a buffer; an error names the argument."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        raise TypeError(f"{what} must be a bytes-like object, not str; encode it first")
    BufferView(data).release()
    return memoryview(data).tobytes()


def as_flag(value: object, what: str) -> bool:
    """Return a bool; TypeError names the argument that is none."""
    if not isinstance(value, bool):
        raise TypeError(f"{what} must be True or False, not {type(value).__name__}")
    return value


def as_key_metadata(key_metadata: KeyMetadata | Buffer) -> KeyMetadata:
    """Return key metadata, decoded if it came as bytes."""
    return key_metadata if isinstance(key_metadata, KeyMetadata) else KeyMetadata.decode(key_metadata)


def dotted(name: ColumnName) -> str:
    """Return the name of a column as text, with dots between its parts."""
    return name if isinstance(name, str) else ".".join(name)


def not_picklable(name: str) -> TypeError:
    """Return the error of a configuration that somebody tries to pickle or copy."""
    return TypeError(
        f"ags1.parquet.{name} cannot be pickled or copied: it holds keys; send what the keys are found by, and make "
        "another there"
    )
