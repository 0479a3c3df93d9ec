"""AES-GCM by OpenSSL's EVP on raw memory, and the keys for it. The only module that links libcrypto."""

from os import PathLike
from typing import ClassVar, Final, NoReturn, TypedDict, type_check_only

from typing_extensions import Self, disjoint_base

from ags1._typing import Buffer, KeyLike

# Of every Cython module.
__pyx_capi__: Final[dict[str, object]]
__test__: Final[dict[str, str]]

@type_check_only
class _Library(TypedDict):
    version: str
    number: int
    provider: str
    linkage: str
    remedy: str
    cpu_settings: str

@disjoint_base
class Key(Buffer):
    """An AES key: 16, 24 or 32 bytes that are never printed, never pickled, and wiped when the object dies.

    Parameters
    ----------
    key : bytes-like or Key
        The key's bytes; they are copied. Wiping the source is the caller's business.

    Raises
    ------
    TypeError
        Not a bytes-like object.
    ValueError
        Not 16, 24 or 32 bytes.

    Notes
    -----
    Safe to share between threads. ``bytes(key)`` and ``memoryview(key)`` give the bytes to code that needs them; a
    copy made that way is not wiped. Comparison takes constant time.

    A Key counts the messages that it seals, whatever they are (blocks, Parquet modules, wrapped keys), and refuses with
    LimitError to seal more than 2^32. Another Key of the same bytes, here or in another process, counts on its own.
    """

    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __new__(cls, key: KeyLike) -> Self: ...
    @staticmethod
    def load(reference: str | PathLike[str]) -> Key:
        """Read a key from a file or an environment variable, in any form that the command line reads.

        Parameters
        ----------
        reference : path or str
            A file, as its path or as ``file:PATH``: 16, 24 or 32 raw bytes, or the same as hexadecimal or base64
            text, as ``ags1 keygen`` writes it. ``env:NAME`` is an environment variable with such a text.

        Raises
        ------
        KeyAccessError
            The file or variable is missing, unreadable, or holds no key. Names it, never what it holds.
        TypeError, ValueError
            No path or reference; a key itself.
        """
    @staticmethod
    def generate(bits: int = 256) -> Key:
        """Make a fresh random key.

        Parameters
        ----------
        bits : int
            128, 192 or 256.

        Raises
        ------
        ValueError
            Another size.
        BackendError
            The random generator failed.
        """
    @property
    def bits(self) -> int:
        """Size of the key in bits."""
    def __len__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> NoReturn: ...

def random_bytes(length: int) -> bytes:
    """Return `length` random bytes.

    Raises
    ------
    BackendError
        The random generator failed.
    """

def seal_message(data: Buffer, key: KeyLike, nonce: Buffer, aad: Buffer = b"") -> bytes:
    """Seal one GCM message with a given nonce: for known-answer tests and for wrapping keys.

    Parameters
    ----------
    data, aad : bytes-like
        Plaintext, and what is authenticated beside it.
    key : bytes-like or Key
        16, 24 or 32 bytes.
    nonce : bytes-like
        12 bytes that this key has never been used with. Repeating one destroys the security of both messages.

    Returns
    -------
    bytes
        Ciphertext and tag.

    Raises
    ------
    LimitError
        The key has sealed 2^32 messages.
    """

def open_message(data: Buffer, key: KeyLike, nonce: Buffer, aad: Buffer = b"") -> bytes | None:
    """Open one GCM message: the inverse of :func:`seal_message`.

    Returns
    -------
    bytes or None
        The plaintext; None if the tag does not verify or `data` is shorter than a tag.
    """

def library() -> _Library:
    """What libcrypto this is: version, provider of AES-GCM, linkage, how to get a fast one, CPU settings."""
