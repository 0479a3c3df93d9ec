"""Shared by the configurations for writing and reading: checks of arguments, and hiding of keys."""

from __future__ import annotations

from ags1.core.gcm import Key
from ags1.core.typing import KeyLike
from ags1.errors import Ags1Error, AuthenticationError, FormatError, KeyAccessError
from ags1.keys import KeyMetadata
from ags1.kms import ServiceRefusal
from ags1.support.typing import Buffer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from typing_extensions import Self

    from ags1.parquet.keys.columns import ColumnName

CACHE_SECONDS = 600.0
"""How long key encryption keys are kept, in seconds: the same as in parquet-java and PyArrow."""

ALGORITHMS = ("AES_GCM_V1", "AES_GCM_CTR_V1")


def as_key(key: KeyLike, what: str) -> Key:
    """Return a key; an error names the argument."""
    try:
        return key if isinstance(key, Key) else Key(key)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what}: {error}") from None


def as_flag(value: object, what: str) -> bool:
    """Return the bool. TypeError: it is none; the message names the argument."""
    if not isinstance(value, bool):
        raise TypeError(f"{what} must be True or False, not {type(value).__name__}")
    return value


def as_key_metadata(key_metadata: KeyMetadata | Buffer) -> KeyMetadata:
    """Return key metadata, decoded if it is bytes."""
    return key_metadata if isinstance(key_metadata, KeyMetadata) else KeyMetadata.decode(key_metadata)


def dotted(name: ColumnName) -> str:
    """Return the name of a column as text, with dots between its parts."""
    return name if isinstance(name, str) else ".".join(name)


def with_text(error: Ags1Error, text: str) -> Ags1Error:
    """Return an error of the same kind with another text."""
    kinds = (ServiceRefusal, KeyAccessError, AuthenticationError, FormatError)
    return next((kind(text) for kind in kinds if isinstance(error, kind)), error)


class HoldsKeys:
    """Its repr shows no key, and it cannot be pickled or copied."""

    def _said(self) -> str:
        return "redacted"

    def __repr__(self) -> str:
        name = type(self).__name__
        try:
            return f"<ags1.parquet.{name}: {self._said()}>"
        except AttributeError:
            # The constructor has not finished, as in a traceback.
            return f"<ags1.parquet.{name}, not made>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"ags1.parquet.{type(self).__name__} cannot be pickled or copied: it holds keys; send the key ids "
            "or the source of the keys, and make another one there"
        )


class Config(HoldsKeys):
    """A configuration; immutable."""

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, name):
            raise AttributeError(f"{type(self).__name__}.{name} cannot be changed: make another configuration")
        super().__setattr__(name, value)

    def _with(self, **changes: object) -> Self:
        made = type(self).__new__(type(self))
        vars(made).update(vars(self), **changes)
        return made
