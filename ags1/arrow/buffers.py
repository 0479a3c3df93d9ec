"""Arrow buffers, each encrypted as an AGS1 stream of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ags1 import codec
from ags1.core import batch as native_batch
from ags1.core.typing import KeyLike
from ags1.errors import AuthenticationError
from ags1.layout import DEFAULT_BLOCK_LENGTH
from ags1.support.typing import Buffer

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError("ags1.arrow needs pyarrow: pip install 'ags1[arrow]'") from error

if TYPE_CHECKING:
    pass

# Alignment that Arrow's specification recommends; its kernels are fastest with it.
_ALIGNMENT = 64


def encrypt_buffers(
    buffers: Iterable[Buffer | None],
    key: KeyLike | Sequence[KeyLike],
    *,
    aad_prefixes: Sequence[Buffer] | None = None,
    block_length: int = DEFAULT_BLOCK_LENGTH,
    threads: int | None = None,
) -> list[Any]:
    """Encrypt Arrow buffers, each into an AGS1 stream of its own, in one native call.

    Parameters
    ----------
    buffers : iterable of pyarrow.Buffer or None
        As ``pyarrow.Array.buffers()`` returns them; None (an absent validity bitmap) stays None.
    key, aad_prefixes, block_length, threads
        As :func:`ags1.encrypt_many`; one prefix for each entry, also for those that are None. Give each buffer its
        own prefix: otherwise buffers under one key can be swapped unnoticed.

    Returns
    -------
    list of pyarrow.Buffer or None
        In order; slices of one arena.

    Raises
    ------
    TypeError, ValueError, LimitError, BackendError
        As :func:`ags1.encrypt_many`.
    """
    entries = list(buffers)
    keys, prefixes = _present(entries, key, aad_prefixes)
    streams = codec.encrypt_many(
        [entry for entry in entries if entry is not None],
        keys,
        aad_prefixes=prefixes,
        block_length=block_length,
        threads=threads,
    )
    return _with_gaps(entries, streams)


def decrypt_buffers(
    buffers: Iterable[Buffer | None],
    key: KeyLike | Sequence[KeyLike],
    *,
    aad_prefixes: Sequence[Buffer] | None = None,
    threads: int | None = None,
) -> list[Any]:
    """Decrypt what :func:`encrypt_buffers` made, into 64-byte aligned memory.

    It has no ``on_error``: None among the results is an absent buffer, and an array without its validity bitmap would
    have values in place of its nulls. Columns of values that may be damaged: :func:`encrypt_columns`.

    Returns
    -------
    list of pyarrow.Buffer or None
        In order, ready for ``pyarrow.Array.from_buffers``; slices of one arena.

    Raises
    ------
    AuthenticationError, FormatError, TruncatedError
        As :func:`ags1.decrypt_many`; `item_index` of an AuthenticationError is a position in `buffers`, and others
        name the buffer by its position among those that are not None.
    """
    entries = list(buffers)
    present = [index for index, entry in enumerate(entries) if entry is not None]
    keys, prefixes = _present(entries, key, aad_prefixes)
    try:
        plain = native_batch.decrypt_aligned(
            [entry for entry in entries if entry is not None], keys, prefixes, threads, _ALIGNMENT
        )
    except AuthenticationError as error:
        index = present[error.item_index or 0]
        raise AuthenticationError.for_block(error.block_index or 0, f"buffer {index}", index) from None
    return _with_gaps(entries, plain)


def _present(
    entries: list[Any], key: Any, aad_prefixes: Sequence[Buffer] | None
) -> tuple[Any, Sequence[Buffer] | None]:
    """Keys and prefixes of the entries that are not None."""
    kept = [index for index, entry in enumerate(entries) if entry is not None]
    if len(kept) == len(entries):
        return key, aad_prefixes
    if isinstance(key, (list, tuple)):
        if len(key) != len(entries):
            raise ValueError(f"{len(key)} keys for {len(entries)} buffers: give one for all, or one each")
        key = [key[index] for index in kept]
    if aad_prefixes is not None:
        if len(aad_prefixes) != len(entries):
            raise ValueError(f"{len(aad_prefixes)} aad_prefixes for {len(entries)} buffers: give one each")
        aad_prefixes = [aad_prefixes[index] for index in kept]
    return key, aad_prefixes


def _with_gaps(entries: list[Any], results: Iterable[memoryview | None]) -> list[Any]:
    left = iter(results)
    return [None if entry is None else pa.py_buffer(next(left)) for entry in entries]
