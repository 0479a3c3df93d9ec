"""The peer: AGS1 written by hand on ``cryptography``, as fast as a Python user can make it.

Nonces come in bulk, every slice is taken of a memoryview, nothing is copied but the 12 bytes of a nonce, and threads
take contiguous halves. The AES-GCM itself is OpenSSL's; `measure.machine` says which one `cryptography` carries.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_INDEX = struct.Struct("<i")


def _in_parts(work: Callable[[int, int], None], count: int, threads: int) -> None:
    if threads == 1:
        work(0, count)
        return
    edges = [count * part // threads for part in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, edges[:-1], edges[1:]):
            pass


def seal(data: Any, out: Any, key: bytes, block_length: int, threads: int) -> None:
    """Encrypt memory into an AGS1 stream in memory."""
    source, target = memoryview(data).cast("B"), memoryview(out).cast("B")
    count = max(1, -(-len(source) // block_length))
    target[:8] = b"AGS1" + struct.pack("<I", block_length)
    stride = block_length + 28
    nonces = os.urandom(12 * count)

    def work(first: int, last: int) -> None:
        encrypt_into, pack = AESGCM(key).encrypt_into, _INDEX.pack
        offset = 8 + first * stride
        for index in range(first, last):
            plain = source[index * block_length : (index + 1) * block_length]
            nonce = nonces[12 * index : 12 * index + 12]
            target[offset : offset + 12] = nonce
            end = offset + 28 + len(plain)
            encrypt_into(nonce, plain, pack(index), target[offset + 12 : end])
            offset = end

    _in_parts(work, count, threads)


def open_(stream: Any, length: int, out: Any, key: bytes, block_length: int, threads: int) -> None:
    """Decrypt an AGS1 stream that holds `length` bytes of plaintext."""
    source, target = memoryview(stream).cast("B"), memoryview(out).cast("B")
    count = max(1, -(-length // block_length))
    stride = block_length + 28

    def work(first: int, last: int) -> None:
        decrypt_into, pack = AESGCM(key).decrypt_into, _INDEX.pack
        offset = 8 + first * stride
        for index in range(first, last):
            plain = min(block_length, length - index * block_length)
            end = offset + 28 + plain
            start = index * block_length
            decrypt_into(
                source[offset : offset + 12], source[offset + 12 : end], pack(index), target[start : start + plain]
            )
            offset = end

    _in_parts(work, count, threads)


def seal_each(buffers: Sequence[bytes], key: bytes) -> list[bytes]:
    """Call AESGCM.encrypt once a buffer. The nonces, which a user would have to keep too, are dropped here."""
    encrypt, urandom = AESGCM(key).encrypt, os.urandom
    return [encrypt(urandom(12), buffer, None) for buffer in buffers]
