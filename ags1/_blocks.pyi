"""AGS1 blocks in memory: seal or open ranges of blocks, over a crew of threads."""

from typing import Final, SupportsIndex, overload

from ags1._typing import Buffer, KeyLike

# Of every Cython module.
__pyx_capi__: Final[dict[str, object]]
__test__: Final[dict[str, str]]

def usable_cpus() -> int: ...
def fresh_bytes(length: int) -> bytes:
    """Uninitialised bytes, to be filled through :func:`writable_view` before anyone else sees them."""

def writable_view(fresh: bytes) -> memoryview:
    """A writable memoryview of bytes that nobody else has seen. Release it before `fresh` dies."""

def seal_blocks(
    data: Buffer,
    out: Buffer,
    key: KeyLike,
    aad_prefix: Buffer,
    block_length: SupportsIndex,
    first_block: int,
    threads: int | None,
) -> int:
    """Seal plaintext into consecutive blocks, without a header.

    Parameters
    ----------
    data : bytes-like
        Plaintext; a multiple of `block_length` unless it ends the stream. Empty makes one empty block.
    out : bytes-like, writable
        Where the blocks go: at least 28 bytes a block more than `data`. Must not overlap `data`.
    key : bytes-like or Key
    aad_prefix : bytes-like
    block_length : int
        Bytes of plaintext in a block.
    first_block : int
        Index in the stream of the first block.
    threads : int or None

    Returns
    -------
    int
        Bytes written to `out`.

    Raises
    ------
    LimitError
        An index above 2^31 - 2.
    ValueError, TypeError, BackendError
    """

def open_blocks(
    data: Buffer,
    out: Buffer,
    key: KeyLike,
    aad_prefix: Buffer,
    block_length: SupportsIndex,
    first_block: int,
    threads: int | None,
    name: str | None = None,
) -> int:
    """Open consecutive blocks, without a header: the inverse of :func:`seal_blocks`.

    Parameters
    ----------
    data : bytes-like
        Whole blocks; only the last may be shorter than `block_length` + 28.
    out : bytes-like, writable
        Where the plaintext goes: 28 bytes a block less than `data`. Wiped if a tag fails. Must not overlap
        `data`.
    name : str, optional
        What to call the stream in an error.

    Returns
    -------
    int
        Bytes written to `out`.

    Raises
    ------
    AuthenticationError
        Names the first block that failed.
    """

@overload
def encrypt_stream(
    data: Buffer,
    out: None,
    key: KeyLike,
    aad_prefix: Buffer,
    block_length: SupportsIndex,
    threads: int | None,
) -> bytes: ...
@overload
def encrypt_stream(
    data: Buffer,
    out: Buffer,
    key: KeyLike,
    aad_prefix: Buffer,
    block_length: SupportsIndex,
    threads: int | None,
) -> int:
    """A whole stream, header and blocks, into `out`, or into new bytes if `out` is None."""

@overload
def decrypt_stream(
    data: Buffer,
    out: None,
    key: KeyLike,
    aad_prefix: Buffer,
    length: int | None,
    threads: int | None,
    name: str | None = None,
) -> bytes: ...
@overload
def decrypt_stream(
    data: Buffer,
    out: Buffer,
    key: KeyLike,
    aad_prefix: Buffer,
    length: int | None,
    threads: int | None,
    name: str | None = None,
) -> int:
    """A whole stream into `out`, or into new bytes if `out` is None; every block is authenticated."""
