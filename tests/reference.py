"""A slow and obvious AGS1 and StandardKeyMetadata, for reading and for checking other implementations.

Nothing here is shared with the ``ags1`` package: the two meet only in the tests. AES-GCM comes from the
``cryptography`` package; everything else is written out step by step.

A stream is an 8-byte header (``AGS1``, then the block length as a little-endian 32-bit integer) and blocks of
``nonce (12) || ciphertext || tag (16)``. Every block but the last holds exactly one block length of
plaintext. The additional authenticated data of block ``i`` is ``aad_prefix || int32_le(i)``. Nothing
authenticates the header, and nothing inside the stream says how many blocks there should be: only a length
from a trusted place does.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"AGS1"
HEADER_LENGTH = 8
NONCE_LENGTH = 12
TAG_LENGTH = 16
OVERHEAD = NONCE_LENGTH + TAG_LENGTH
MINIMUM_LENGTH = HEADER_LENGTH + OVERHEAD
DEFAULT_BLOCK_LENGTH = 1 << 20
MAX_BLOCK_LENGTH = (1 << 31) - 1
MAX_BLOCKS = (1 << 31) - 1
KEY_LENGTHS = (16, 24, 32)


class ReferenceFailure(Exception):
    """Base class of every refusal; ``outcome`` is the word that a test vector uses for it."""

    outcome = ""


class NotAgs1(ReferenceFailure):
    """The first bytes are not the AGS1 magic."""

    outcome = "not-ags1"


class BadBlockLength(ReferenceFailure):
    """The header's block length is 0 or does not fit a signed 32-bit integer."""

    outcome = "bad-block-length"


class Truncated(ReferenceFailure):
    """The stream ends too early: for its format, for its trusted length, or inside a block's overhead."""

    outcome = "truncated"


class TrailingBlock(ReferenceFailure):
    """An empty block follows a full one; no writer makes that."""

    outcome = "trailing-block"


class Extended(ReferenceFailure):
    """The stream is longer than its trusted length."""

    outcome = "extended"


class Authentication(ReferenceFailure):
    """A tag does not verify: wrong key, wrong AAD prefix, or changed bytes."""

    outcome = "authentication"


class UnknownVersion(ReferenceFailure):
    """The version byte of a key metadata is not 1."""

    outcome = "unknown-version"


class TruncatedMetadata(ReferenceFailure):
    """The key metadata ends inside a field."""

    outcome = "truncated"


class MalformedMetadata(ReferenceFailure):
    """The key metadata holds an impossible length, union branch or integer."""

    outcome = "malformed"


class BadKeyLength(ReferenceFailure):
    """The key in a key metadata is not 16, 24 or 32 bytes long."""

    outcome = "bad-key-length"


def counter_nonce(index: int) -> bytes:
    """Return the fixed nonce of block `index` in the test vectors: ``u32_le(index)`` and eight zero bytes.

    Only for vectors. A real stream draws twelve random bytes for every block; under one key, a nonce that
    depends on nothing but the block index repeats in the second file, and AES-GCM is then broken.
    """
    return struct.pack("<I", index) + bytes(8)


def block_aad(aad_prefix: bytes, index: int) -> bytes:
    """Return the additional authenticated data of block `index`."""
    return aad_prefix + struct.pack("<i", index)


def seal_block(plaintext: bytes, key: bytes, aad_prefix: bytes, index: int, nonce: bytes) -> bytes:
    """Return one block: nonce, ciphertext, tag."""
    return nonce + AESGCM(key).encrypt(nonce, plaintext, block_aad(aad_prefix, index))


def encrypt(
    plaintext: bytes,
    key: bytes,
    aad_prefix: bytes = b"",
    block_length: int = DEFAULT_BLOCK_LENGTH,
    nonces: Callable[[int], bytes] | None = None,
) -> bytes:
    """Encrypt `plaintext` to an AGS1 stream.

    Parameters
    ----------
    plaintext, key, aad_prefix
        The bytes, the AES key (16, 24 or 32 bytes) and the AAD prefix of the file. No prefix and an empty one
        are the same thing here.
    block_length
        Plaintext bytes per block.
    nonces
        Gives the nonce of a block index, for vectors with fixed bytes; random nonces without it.

    Returns
    -------
    bytes
        The whole stream. An empty plaintext makes one empty block; a multiple of the block length has no
        empty block after its last full one.
    """
    if not 1 <= block_length <= MAX_BLOCK_LENGTH:
        raise ValueError(f"block length {block_length} is out of range")
    stream = MAGIC + struct.pack("<I", block_length)
    starts = range(0, len(plaintext), block_length) or [0]
    for index, start in enumerate(starts):
        nonce = os.urandom(NONCE_LENGTH) if nonces is None else nonces(index)
        stream += seal_block(plaintext[start : start + block_length], key, aad_prefix, index, nonce)
    return stream


def decrypt(data: bytes, key: bytes, aad_prefix: bytes = b"", length: int | None = None) -> bytes:
    """Decrypt the AGS1 stream `data`, refusing everything that no writer makes.

    Parameters
    ----------
    data, key, aad_prefix
        The whole stream, its key and its AAD prefix.
    length
        The stream's length from a trusted place. Without it, a stream that lost whole blocks at its end
        decrypts to a shorter plaintext, and nobody can tell.

    Raises
    ------
    ReferenceFailure
        The subclass says which check failed. They run in this order: magic, minimum length, block length,
        trusted length, shape of the last block, then the tags from block 0 on.
    """
    if data[:4] != MAGIC[: len(data)]:
        raise NotAgs1(f"starts with {data[:4]!r}")
    if len(data) < MINIMUM_LENGTH:
        raise Truncated(f"{len(data)} bytes; the shortest stream has {MINIMUM_LENGTH}")
    (block_length,) = struct.unpack("<I", data[4:8])
    if not 1 <= block_length <= MAX_BLOCK_LENGTH:
        raise BadBlockLength(str(block_length))
    if length is not None and len(data) < length:
        raise Truncated(f"{len(data)} bytes; the trusted length is {length}")
    if length is not None and len(data) > length:
        raise Extended(f"{len(data)} bytes; the trusted length is {length}")
    full_blocks, tail = divmod(len(data) - HEADER_LENGTH, block_length + OVERHEAD)
    if 0 < tail < OVERHEAD:
        raise Truncated(f"the last {tail} bytes are too few for a nonce and a tag")
    if tail == OVERHEAD and full_blocks > 0:
        raise TrailingBlock("an empty block after a full one")
    blocks = full_blocks + (tail > 0)
    if blocks > MAX_BLOCKS:
        raise ReferenceFailure(f"{blocks} blocks")
    plaintext = []
    for index in range(blocks):
        start = HEADER_LENGTH + index * (block_length + OVERHEAD)
        block = data[start : start + block_length + OVERHEAD]
        nonce, sealed = block[:NONCE_LENGTH], block[NONCE_LENGTH:]
        try:
            plaintext.append(AESGCM(key).decrypt(nonce, sealed, block_aad(aad_prefix, index)))
        except InvalidTag:
            raise Authentication(f"block {index} of {blocks}") from None
    return b"".join(plaintext)


@dataclass(frozen=True)
class KeyMetadata:
    """The fields of Iceberg's StandardKeyMetadata, version 1."""

    encryption_key: bytes
    aad_prefix: bytes | None = None
    file_length: int | None = None


def encode_varint(number: int) -> bytes:
    """Encode an Avro long: zigzag, then seven bits per byte, lowest first."""
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(0x80 | (rest & 0x7F))
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def encode_key_metadata(metadata: KeyMetadata, fields: int = 3) -> bytes:
    """Encode `metadata`: a version byte and one Avro datum, without a container or a schema.

    Iceberg up to 1.10 writes two fields, its successors three; with ``fields=2`` the file length is left out.
    """
    encoded = b"\x01" + encode_varint(len(metadata.encryption_key)) + metadata.encryption_key
    if metadata.aad_prefix is None:
        encoded += b"\x00"
    else:
        encoded += b"\x02" + encode_varint(len(metadata.aad_prefix)) + metadata.aad_prefix
    if fields == 2:
        return encoded
    if metadata.file_length is None:
        return encoded + b"\x00"
    return encoded + b"\x02" + encode_varint(metadata.file_length)


class _Cursor:
    """A position in an encoded key metadata."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        if count > len(self.data) - self.position:
            raise TruncatedMetadata(f"{count} bytes wanted at {self.position} of {len(self.data)}")
        taken = self.data[self.position : self.position + count]
        self.position += count
        return taken

    def varint(self) -> int:
        """Return the next Avro long."""
        number = 0
        for index in range(10):
            (byte,) = self.take(1)
            number |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                break
        else:
            raise MalformedMetadata("an integer of more than ten bytes")
        if number >= 1 << 64:
            raise MalformedMetadata("an integer of more than 64 bits")
        return (number >> 1) ^ -(number & 1)

    def byte_string(self) -> bytes:
        """Return the next length-prefixed byte string."""
        count = self.varint()
        if count < 0:
            raise MalformedMetadata(f"a length of {count}")
        return self.take(count)

    def is_present(self) -> bool:
        """Read the branch of a union of null and one type."""
        branch = self.varint()
        if branch not in (0, 1):
            raise MalformedMetadata(f"union branch {branch}")
        return branch == 1


def decode_key_metadata(data: bytes) -> KeyMetadata:
    """Decode the two- or the three-field form; bytes after the last field are ignored, as Iceberg does."""
    if not data:
        raise TruncatedMetadata("no bytes at all")
    if data[0] != 1:
        raise UnknownVersion(str(data[0]))
    cursor = _Cursor(data)
    cursor.take(1)
    key = cursor.byte_string()
    if len(key) not in KEY_LENGTHS:
        raise BadKeyLength(str(len(key)))
    aad_prefix = cursor.byte_string() if cursor.is_present() else None
    if cursor.position == len(data):
        return KeyMetadata(key, aad_prefix)
    file_length = cursor.varint() if cursor.is_present() else None
    if file_length is not None and file_length < 0:
        raise MalformedMetadata(f"a file length of {file_length}")
    return KeyMetadata(key, aad_prefix, file_length)
