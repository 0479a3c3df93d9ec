"""AGS1 blocks between file descriptors and memory, over a crew of threads."""

from typing import Final

from ags1._typing import Buffer, KeyLike

# Of every Cython module.
__test__: Final[dict[str, str]]

MAX_WINDOW_BLOCKS: Final[int]

def reserve(descriptor: int, length: int, name: str | None = None) -> None: ...
def seal_file(
    source: int,
    source_offset: int,
    target: int,
    target_offset: int,
    length: int,
    key: KeyLike,
    aad_prefix: Buffer,
    block_length: int,
    first_block: int,
    threads: int | None,
    source_name: str | None = None,
    target_name: str | None = None,
) -> None:
    """Seal `length` bytes of a file into blocks of another. Both descriptors must be seekable files.

    Parameters
    ----------
    source, target : int
        Descriptors; their positions are neither used nor moved.
    source_offset : int
        Offset of the first plaintext byte.
    target_offset : int
        Offset at which the first block goes.
    length : int
        Bytes of plaintext: a multiple of `block_length` unless they end the stream, in at most
        MAX_WINDOW_BLOCKS blocks.
    first_block : int
        Index in the stream of the first block.

    Raises
    ------
    OSError
        Reading or writing failed, or the source ended early.
    LimitError, BackendError
    """

def open_file(
    source: int,
    source_offset: int,
    target: int,
    target_offset: int,
    length: int,
    key: KeyLike,
    aad_prefix: Buffer,
    block_length: int,
    first_block: int,
    threads: int | None,
    source_name: str | None = None,
    target_name: str | None = None,
) -> None:
    """Open blocks of a file into another file; `length` is their plaintext. The inverse of :func:`seal_file`.

    No byte of a block is written before its tag has verified.

    Raises
    ------
    AuthenticationError
        Names the first block that failed.
    TruncatedError
        The source ended inside the range.
    OSError
        Reading or writing failed.
    """

def seal_into_file(
    data: Buffer,
    target: int,
    target_offset: int,
    key: KeyLike,
    aad_prefix: Buffer,
    block_length: int,
    first_block: int,
    threads: int | None,
    target_name: str | None = None,
) -> None:
    """Seal memory into blocks of a file. See :func:`seal_file`."""

def open_from_file(
    source: int,
    source_offset: int,
    out: Buffer,
    key: KeyLike,
    aad_prefix: Buffer,
    block_length: int,
    first_block: int,
    threads: int | None,
    source_name: str | None = None,
) -> None:
    """Open blocks of a file into memory: exactly as much plaintext as `out` has bytes, in whole blocks.

    Ciphertext is read to where its plaintext will be, so nothing is copied; if anything fails, `out` is
    zeroed.
    """
