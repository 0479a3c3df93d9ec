"""Sizes and offsets of AGS1: the length of a stream, the offset of a block, the offsets of splits.

Pure arithmetic on Python integers; see :mod:`ags1.core.layout` for the picture of the bytes.
"""

from __future__ import annotations

from ags1.core.layout import (
    BLOCK_OVERHEAD,
    DEFAULT_BLOCK_LENGTH,
    HEADER_LENGTH,
    MAGIC,
    MAX_BLOCK_LENGTH,
    MAX_BLOCKS,
    MIN_ENCRYPTED_LENGTH,
    NONCE_LENGTH,
    TAG_LENGTH,
    block_count,
    block_to_ciphertext,
    cipher_block_index,
    ciphertext_to_plaintext,
    encrypted_length,
    plaintext_length,
    plaintext_to_block,
    read_header,
    split_offsets,
    stored_length,
    write_header,
)

__all__ = [
    "BLOCK_OVERHEAD",
    "DEFAULT_BLOCK_LENGTH",
    "HEADER_LENGTH",
    "MAGIC",
    "MAX_BLOCKS",
    "MAX_BLOCK_LENGTH",
    "MIN_ENCRYPTED_LENGTH",
    "NONCE_LENGTH",
    "TAG_LENGTH",
    "block_count",
    "block_to_ciphertext",
    "cipher_block_index",
    "ciphertext_to_plaintext",
    "encrypted_length",
    "plaintext_length",
    "plaintext_to_block",
    "read_header",
    "split_offsets",
    "stored_length",
    "write_header",
]
