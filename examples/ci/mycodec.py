"""A codec of somebody's, to be measured."""

import os

from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def encrypt(data: bytes, key: bytes) -> bytes:
    """Nonce, ciphertext, tag."""
    nonce = os.urandom(12)
    return nonce + AESGCM(key).encrypt(nonce, data, None)


def decrypt(stream: bytes, key: bytes) -> bytes:
    """What was encrypted, if nobody changed it."""
    return AESGCM(key).decrypt(stream[:12], stream[12:], None)
