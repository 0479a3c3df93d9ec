"""Sizes, offsets and the header of AGS1: pure arithmetic, overflow-checked; no crypto, no I/O."""

from typing import Final, SupportsIndex

# Of every Cython module.
__test__: Final[dict[str, str]]

MAGIC: Final[bytes]
HEADER_LENGTH: Final[int]
NONCE_LENGTH: Final[int]
TAG_LENGTH: Final[int]
BLOCK_OVERHEAD: Final[int]
MIN_ENCRYPTED_LENGTH: Final[int]
DEFAULT_BLOCK_LENGTH: Final[int]
MAX_BLOCK_LENGTH: Final[int]
MAX_BLOCKS: Final[int]

def encrypted_length(plaintext_length: SupportsIndex, block_length: SupportsIndex = 1048576) -> int:
    """Length in bytes of the AGS1 stream that holds `plaintext_length` bytes.

    Parameters
    ----------
    plaintext_length : int
        Bytes of plaintext, 0 or more.
    block_length : int
        Bytes of plaintext in a block.

    Returns
    -------
    int
        Bytes of ciphertext, header included; 36 for an empty plaintext.

    Raises
    ------
    ValueError
        A negative length, or a block length outside 1 .. 2^31 - 1.
    LimitError
        More than 2^31 - 1 blocks.
    """

def plaintext_length(encrypted_length: SupportsIndex, block_length: SupportsIndex = 1048576) -> int:
    """Length in bytes of the plaintext in an AGS1 stream of `encrypted_length` bytes.

    Parameters
    ----------
    encrypted_length : int
        Bytes of the whole stream, header included.
    block_length : int
        The block length in the stream's header.

    Raises
    ------
    TruncatedError
        Fewer than 36 bytes, or a last block of 1 to 27 bytes.
    FormatError
        An empty block after full ones.
    LimitError
        More than 2^31 - 1 blocks.
    ValueError
        A negative length, or a block length outside 1 .. 2^31 - 1.
    """

def block_count(plaintext_length: SupportsIndex, block_length: SupportsIndex = 1048576) -> int:
    """Number of blocks that hold `plaintext_length` bytes: 1 for an empty plaintext.

    Raises
    ------
    ValueError, LimitError
        As :func:`encrypted_length`.
    """

def stored_length(plaintext_length: SupportsIndex, block_length: SupportsIndex = 1048576) -> int:
    """Bytes that the blocks of this much plaintext take, without a header.

    The plaintext is that of whole blocks of a stream, or of its last ones.

    Raises
    ------
    ValueError, LimitError
        As :func:`encrypted_length`.
    """

def plaintext_to_block(offset: SupportsIndex, block_length: SupportsIndex = 1048576) -> int:
    """Index of the block that holds the plaintext byte at `offset`."""

def block_to_ciphertext(block_index: SupportsIndex, block_length: SupportsIndex = 1048576) -> int:
    """Offset in the encrypted stream at which a block starts, that is, of its nonce.

    Parameters
    ----------
    block_index : int
        0 .. 2^31 - 1; the index one past the last block gives the length of a stream of full blocks.

    Raises
    ------
    LimitError
        An index above 2^31 - 1.
    """

def cipher_block_index(offset: SupportsIndex, block_length: SupportsIndex = 1048576) -> int:
    """Index of the block that stores the byte at `offset` of the encrypted stream, nonce and tag included.

    The inverse of :func:`block_to_ciphertext`, under the name that the AGS1 discussion uses.

    Parameters
    ----------
    offset : int
        Offset in the encrypted stream, at least 8 (behind the header).
    block_length : int
        The stream's block length.

    Raises
    ------
    ValueError
        An offset inside the header.
    LimitError
        An offset beyond the 2^31 - 1 blocks that a stream can have.
    """

def ciphertext_to_plaintext(
    offset: SupportsIndex,
    block_length: SupportsIndex = 1048576,
    *,
    plaintext_size: SupportsIndex | None = None,
    exact: bool = False,
) -> int:
    """Plaintext offset for an offset in the encrypted stream, for planning splits.

    The function never decreases, and maps the start of a block to the block's first byte, so split points
    that are converted with it tile the plaintext exactly when they tile the ciphertext.

    Parameters
    ----------
    offset : int
        Offset in the encrypted stream, at least 8 (behind the header).
    block_length : int
        The stream's block length.
    plaintext_size : int, optional
        Bytes of plaintext in the stream; the result is clamped to it.
    exact : bool
        False counts from the start of the block, as the AGS1 discussion does. True counts from the first
        byte of ciphertext, 12 bytes later, so that the result is the very byte that is stored at `offset`.

    Raises
    ------
    ValueError
        An offset inside the header.
    """

def split_offsets(
    plaintext_size: SupportsIndex, split_size: SupportsIndex, block_length: SupportsIndex = 1048576
) -> list[int]:
    """Plaintext offsets at which to start the splits of a stream, each on a block boundary.

    A split that starts on a block boundary shares no block with its neighbours: no block is decrypted twice.

    Parameters
    ----------
    plaintext_size : int
        Bytes of plaintext in the stream.
    split_size : int
        Wanted bytes of plaintext in a split; splits are no larger, unless one block is.
    block_length : int
        The stream's block length.

    Returns
    -------
    list of int
        Ascending, starting with 0. An empty stream has one (empty) split.

    Raises
    ------
    ValueError
        `split_size` below 1, a negative size, a bad block length.
    """

def write_header(block_length: SupportsIndex = 1048576) -> bytes:
    """The 8 bytes that open a stream: magic and block length."""

def read_header(data: bytes | bytearray | memoryview, name: str | None = None) -> int:
    """Block length from the first bytes of a stream.

    Parameters
    ----------
    data : bytes
        The first 8 bytes of the stream, or fewer if it has fewer; more are ignored.
    name : str, optional
        What to call the stream in an error.

    Raises
    ------
    TruncatedError
        The bytes agree with an AGS1 header but end before it does.
    FormatError
        Not AGS1, or a block length of 0 or above 2^31 - 1.
    """
