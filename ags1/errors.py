"""The exception family of ags1.

Every error that ags1 itself raises about data, keys or its backend descends from :class:`Ags1Error` and from the
builtin that fits, so that both ``except ags1.Ags1Error`` and ``except ValueError`` do what a reader expects.
Wrong arguments stay plain ``TypeError`` and ``ValueError``; I/O faults stay ``OSError``.

No message contains key bytes, and a message about a failed tag says no more than the tag does.
"""

from __future__ import annotations

__all__ = [
    "Ags1Error",
    "AuthenticationError",
    "BackendError",
    "ConflictError",
    "FormatError",
    "KeyAccessError",
    "LimitError",
    "TruncatedError",
    "UnsupportedError",
]


class Ags1Error(Exception):
    """Root of the family."""


class FormatError(Ags1Error, ValueError):
    """The bytes are not what they should be: not AGS1, a bad header, a length that no writer produces."""


class TruncatedError(FormatError, EOFError):
    """The data ends before the stream does."""


class UnsupportedError(FormatError):
    """The data is of a kind that this version, or a library below it, does not read; it need not be damaged."""


class ConflictError(Ags1Error):
    """Somebody else has changed the same thing meanwhile. Nothing was committed; run it again."""


class AuthenticationError(Ags1Error):
    """A tag did not verify: wrong key, wrong AAD prefix, or damaged data. Nothing more is known.

    Attributes
    ----------
    block_index : int or None
        Index of the first block whose tag failed, counted from 0.
    """

    block_index: int | None = None

    @classmethod
    def for_block(cls, block_index: int, name: str | None = None) -> AuthenticationError:
        """Make the error for one block of the stream called `name`."""
        where = f"{name}: block {block_index}" if name else f"block {block_index}"
        error = cls(
            f"{where} failed authentication: wrong key, wrong AAD prefix, or damaged data "
            "(a swapped, repeated or missing block counts as damage); no plaintext of it was released"
        )
        error.block_index = block_index
        return error


class LimitError(Ags1Error, OverflowError):
    """A limit of the format or of the cipher would be passed, such as 2^31 - 1 blocks in a stream."""


class BackendError(Ags1Error, RuntimeError):
    """OpenSSL, or the system below it, failed in a way that says nothing about the data."""


class KeyAccessError(Ags1Error):
    """A key could not be had: its file, variable or service refused, is missing, or returned nonsense."""
