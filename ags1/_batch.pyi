"""Many buffers, one native call: each becomes, or was, an AGS1 stream of its own; results share one arena."""

from collections.abc import Iterable, Sequence
from typing import Final, SupportsIndex

from ags1._typing import Buffer, KeyLike

# Of every Cython module.
__test__: Final[dict[str, str]]

def encrypt_batch(
    buffers: Iterable[Buffer],
    key: KeyLike | Sequence[KeyLike],
    aad_prefixes: Iterable[Buffer] | None,
    block_length: SupportsIndex,
    threads: int | None,
) -> list[memoryview]:
    """Encrypt each buffer into a stream of its own. See :func:`ags1.encrypt_many`."""

def decrypt_batch(
    buffers: Iterable[Buffer],
    key: KeyLike | Sequence[KeyLike],
    aad_prefixes: Iterable[Buffer] | None,
    lengths: Iterable[int | None] | None,
    threads: int | None,
    alignment: int = 1,
) -> list[memoryview]:
    """Decrypt each buffer, a stream of its own. See :func:`ags1.decrypt_many`."""
