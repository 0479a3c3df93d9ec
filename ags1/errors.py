"""The exception family of ags1.

Every error that ags1 itself raises about data, keys or its backend is a subclass of :class:`Ags1Error` and of the
builtin exception that fits, so that both ``except ags1.Ags1Error`` and ``except ValueError`` work as expected.
Wrong arguments stay plain ``TypeError`` and ``ValueError``; I/O faults stay ``OSError``.

No message contains key bytes or the secrets of a URL, and a message about a failed tag says no more than the tag does.
"""

from __future__ import annotations

import re

__all__ = [
    "Ags1Error",
    "AlreadyEncryptedError",
    "AuthenticationError",
    "BackendError",
    "ConflictError",
    "FormatError",
    "KeyAccessError",
    "LimitError",
    "TruncatedError",
    "UnsupportedError",
]


# A container of Azure stands where other URLs have a user.
_SECRETS = re.compile(
    r"(?P<user>://)(?:(?<!\babfs://)(?<!\babfss://)|[^/\s@:'\"]*:)[^/\s@'\"]+@"
    r"|(?P<hex>\b(?:hex|base64):)[\w+/=-]{8,}"
    r"|(?P<name>[?&][\w.-]*(?:sig|signature|token|secret|password|credential|api_?key)=)(?!<redacted>)[^&\s'\"]+",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """The text without what a URL or an argument in it keeps secret: users and passwords, signatures, tokens, keys."""
    return _SECRETS.sub(lambda found: found["user"] or f"{found['name'] or found['hex']}<redacted>", text)


class Ags1Error(Exception):
    """Base class of all errors of ags1. Its text never has the user, password or signature of a URL."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(without_secrets(each) if isinstance(each, str) else each for each in args))


class FormatError(Ags1Error, ValueError):
    """The data has a wrong format: not AGS1, a bad header, or a length that no writer produces."""


class TruncatedError(FormatError, EOFError):
    """The data ends before the stream does."""


class UnsupportedError(FormatError):
    """The data has a feature that this version, or a library that it uses, cannot read; it may be intact."""


class AlreadyEncryptedError(FormatError):
    """The data is encrypted already, so that nothing was done. Nothing is wrong with it."""


class ConflictError(Ags1Error):
    """Another writer has changed the same file or table in the meantime. Nothing was committed; run it again."""


class AuthenticationError(Ags1Error):
    """A tag did not verify: wrong key, wrong AAD prefix, or damaged data. Which one is unknown.

    Attributes
    ----------
    block_index : int or None
        Index of the first block whose tag failed, counted from 0.
    item_index : int or None
        Of a batch or an Arrow array: index of the item that this block belongs to.
    """

    block_index: int | None = None
    item_index: int | None = None

    @classmethod
    def for_block(
        cls, block_index: int, name: str | None = None, item_index: int | None = None, *, may_be_cut: bool = False
    ) -> AuthenticationError:
        """Make the error for one block of the stream called `name`, an item of a batch if it has an index.

        `may_be_cut` is for a short last block of a stream whose length nobody vouches for, behind an authentic block.
        """
        where = f"{name}: block {block_index}" if name else f"block {block_index}"
        cause = (
            "wrong key, wrong AAD prefix, or damaged data "
            "(a swapped, repeated, missing or truncated block counts as damage)"
        )
        if may_be_cut:
            cause = (
                "the block before it is authentic, so the stream is truncated inside this last block, or damaged there"
            )
        error = cls(f"{where} failed authentication: {cause}; no plaintext of it was released")
        error.block_index = block_index
        error.item_index = item_index
        return error


class LimitError(Ags1Error, OverflowError):
    """A limit of the format or of the cipher would be exceeded, such as 2^31 - 1 blocks in a stream."""


class BackendError(Ags1Error, RuntimeError):
    """OpenSSL or the system failed; the cause is not the data."""


class KeyAccessError(Ags1Error):
    """A key is not available: its file, variable or service is missing, refused access, or returned an invalid key.

    Attributes
    ----------
    holds_for_all : bool
        Whether every other key would fail too: the service cannot be reached, or refuses this caller.
    """

    holds_for_all = False
