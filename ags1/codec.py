"""One-shot and batch functions over buffers.

All of these take any C-contiguous buffer (``bytes``, ``bytearray``, ``memoryview`` of any item size, ``mmap``,
``array``, numpy arrays, ``pyarrow.Buffer``), count bytes and not items, release the GIL while they work, and may be
called from any number of threads at once. Buffers are borrowed for the length of the call and must not change while it
lasts: if another thread or process changes the data, the result is undefined and not authenticated. The functions on
files read into private memory first, so this cannot happen to them.
"""

from __future__ import annotations

from ags1.core import batch as native_batch
from ags1.core import blocks as native_blocks
from ags1.core.arena import Batch
from ags1.core.items import NumberedPrefixes
from ags1.core.layout import DEFAULT_BLOCK_LENGTH
from ags1.core.typing import Items, KeyLike
from ags1.support.typing import Buffer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal, SupportsIndex

__all__ = [
    "Batch",
    "NumberedPrefixes",
    "decrypt",
    "decrypt_into",
    "decrypt_many",
    "encrypt",
    "encrypt_into",
    "encrypt_many",
]


def encrypt(
    data: Buffer,
    key: KeyLike,
    *,
    aad_prefix: Buffer = b"",
    block_length: int = DEFAULT_BLOCK_LENGTH,
    threads: int | None = None,
) -> bytes:
    """Encrypt a buffer into a new AGS1 stream.

    Parameters
    ----------
    data : buffer
        Plaintext.
    key : buffer of 16, 24 or 32 bytes, or Key
        The AES key.
    aad_prefix : buffer
        Identity of the file. It is authenticated, not stored; decryption needs the same value.
    block_length : int
        Bytes of plaintext in a block, 1 to 2^31 - 1. Iceberg reads only the default, 1 MiB.
    threads : int, optional
        Threads to use. By default one for small data, and one for each usable CPU for large data.

    Returns
    -------
    bytes
        The whole stream: ``encrypted_length(nbytes, block_length)`` bytes.

    Raises
    ------
    TypeError, ValueError
        A wrong argument.
    LimitError
        More than 2^31 - 1 blocks.
    BackendError
        OpenSSL failed, for example its random generator.
    """
    result: bytes = native_blocks.encrypt_stream(data, None, key, aad_prefix, block_length, threads)
    return result


def encrypt_into(
    data: Buffer,
    out: Buffer,
    key: KeyLike,
    *,
    aad_prefix: Buffer = b"",
    block_length: int = DEFAULT_BLOCK_LENGTH,
    threads: int | None = None,
) -> int:
    """Encrypt a buffer into memory of the caller.

    Parameters
    ----------
    data, key, aad_prefix, block_length, threads
        As :func:`encrypt`.
    out : writable buffer
        At least ``encrypted_length(nbytes, block_length)`` bytes; it must not overlap `data`. Reusing one buffer for
        many calls is fastest: fresh memory costs more than the cipher.

    Returns
    -------
    int
        Bytes written to the start of `out`; the rest is unchanged.

    Raises
    ------
    TypeError, ValueError
        A wrong argument: `out` too small, read-only, or overlapping `data`.
    LimitError, BackendError
        As :func:`encrypt`.
    """
    result: int = native_blocks.encrypt_stream(data, _required(out), key, aad_prefix, block_length, threads)
    return result


def decrypt(
    data: Buffer,
    key: KeyLike,
    *,
    aad_prefix: Buffer = b"",
    length: int | None = None,
    threads: int | None = None,
) -> bytes:
    """Decrypt a whole AGS1 stream into new bytes; every block is authenticated first.

    Parameters
    ----------
    data : buffer
        The stream, header included.
    key : buffer of 16, 24 or 32 bytes, or Key
        The AES key.
    aad_prefix : buffer
        The prefix that was used for encryption.
    length : int, optional
        Trusted length of the stream in bytes, for example ``KeyMetadata.file_length``. Without it, a stream that has
        lost whole blocks at its end still authenticates.
    threads : int, optional
        As :func:`encrypt`.

    Raises
    ------
    AuthenticationError
        A tag failed; the error names the first block.
    TruncatedError
        The stream ends early, or before the trusted length.
    FormatError
        Not AGS1, a bad header, or bytes beyond the trusted length.
    TypeError, ValueError, BackendError
        As :func:`encrypt`.
    """
    result: bytes = native_blocks.decrypt_stream(data, None, key, aad_prefix, length, threads)
    return result


def decrypt_into(
    data: Buffer,
    out: Buffer,
    key: KeyLike,
    *,
    aad_prefix: Buffer = b"",
    length: int | None = None,
    threads: int | None = None,
) -> int:
    """Decrypt a whole AGS1 stream into memory of the caller.

    Parameters
    ----------
    data, key, aad_prefix, length, threads
        As :func:`decrypt`.
    out : writable buffer
        At least as many bytes as the plaintext has; it must not overlap `data`. If a tag fails, the range of the
        plaintext is zeroed before the error is raised.

    Returns
    -------
    int
        Bytes written to the start of `out`.

    Raises
    ------
    AuthenticationError, TruncatedError, FormatError, TypeError, ValueError, BackendError
        As :func:`decrypt`; ValueError also if `out` is too small.
    """
    result: int = native_blocks.decrypt_stream(data, _required(out), key, aad_prefix, length, threads)
    return result


def encrypt_many(
    buffers: Items,
    key: KeyLike | Items,
    *,
    aad_prefixes: Buffer | Items | NumberedPrefixes | None = None,
    block_length: int = DEFAULT_BLOCK_LENGTH,
    threads: int | None = None,
    out: Buffer | Batch | None = None,
    form: Literal["ags1", "gcm"] = "ags1",
) -> Batch:
    """Encrypt many buffers, each into an AGS1 stream or a GCM message of its own, in one native call.

    Parameters
    ----------
    buffers : iterable of buffers, Batch, Arrow array, (data, offsets) or array of rows
        The plaintexts. An Arrow array (of pyarrow, polars, pandas...) has type binary, string, fixed_size_binary, or
        a large or view form of them, and may have chunks; its nulls stay null. A tuple of bytes and of an array of
        integers, `offsets`, one more than there are items, is data in one piece. In a numpy array of two or more
        dimensions, each row is a plaintext. The data is not copied, and no Python object is made for an item.
    key : key, list or tuple of keys, or an array of them
        One for all, or one for each item: a list, or any form of `buffers`.
    aad_prefixes : buffer, NumberedPrefixes, list of buffers, or an array of them, optional
        One for all, or one for each item; none by default. Under one key and one prefix, streams can be swapped
        unnoticed; :class:`NumberedPrefixes` binds each stream to its position without an object for each.
    block_length, threads
        As :func:`encrypt`.
    out : writable buffer, or batch of Batch.reserve(), optional
        Memory for the streams, one after the other. Reusing memory is fastest: fresh memory costs more than the
        cipher. A buffer must not overlap the input.
    form : {"ags1", "gcm"}
        What each result is. "ags1" is a stream, 36 bytes or more longer than its plaintext. "gcm" is one message:
        nonce (12 bytes), ciphertext, tag (16). Its additional data is the item's AAD prefix as it is, and
        `block_length` is not for it. Nothing in a message says which form it has, so decryption is told.

    Returns
    -------
    Batch
        Read-only memoryviews in order, made on access; ``list(batch)`` makes all. Each view keeps all of the memory
        alive: copy an item to keep it for long.

    Raises
    ------
    TypeError, ValueError, LimitError, BackendError
        As :func:`encrypt`; the message names the buffer. LimitError also if a Key would seal more than 2^32 blocks or
        messages, or a message would have more than 2^31 - 1 bytes. Nothing is returned, and the content of `out` is
        undefined.
    """
    return native_batch.encrypt_batch(buffers, key, aad_prefixes, block_length, threads, out, form)


def decrypt_many(
    buffers: Items,
    key: KeyLike | Items,
    *,
    aad_prefixes: Buffer | Items | NumberedPrefixes | None = None,
    lengths: Iterable[SupportsIndex | None] | None = None,
    threads: int | None = None,
    out: Buffer | Batch | None = None,
    on_error: Literal["raise", "null"] = "raise",
    form: Literal["ags1", "gcm"] = "ags1",
) -> Batch:
    """Decrypt many AGS1 streams or GCM messages in one native call.

    Parameters
    ----------
    buffers : iterable of buffers, Batch, Arrow array, (data, offsets) or array of rows
        The streams, in any form that :func:`encrypt_many` takes.
    key, aad_prefixes, threads
        As :func:`encrypt_many`.
    lengths : iterable of int or None, optional
        Trusted length of each stream in bytes.
    out : writable buffer, or batch of Batch.reserve(), optional
        As :func:`encrypt_many`. If any tag fails, all of the results in it are zeroed before the error is raised.
    on_error : {"raise", "null"}
        What is done about a stream whose tag does not verify. "null" makes this item null, zeroes its memory, and has
        its position in :attr:`Batch.failed`. If the tags of all items fail, it raises as "raise" does: then the key or
        the prefix is wrong. Anything else that is wrong with a stream, such as its header or its length, raises.
    form : {"ags1", "gcm"}
        What each buffer is, as :func:`encrypt_many` was told.

    Returns
    -------
    Batch
        Read-only memoryviews in order.

    Raises
    ------
    AuthenticationError, TruncatedError, FormatError
        As :func:`decrypt`; the message names the buffer and the block, and `item_index` of an AuthenticationError is
        the buffer's position. Nothing is returned.
    """
    return native_batch.decrypt_batch(buffers, key, aad_prefixes, lengths, threads, out, on_error, form)


def _required(out: Buffer) -> Buffer:
    if out is None:
        raise TypeError("out must be a writable bytes-like object, not None")
    return out
