"""AES-GCM by BoringSSL's EVP: what ags1.core.gcm takes instead of OpenSSL's where it is faster. May be missing."""

from typing import Final

# Of every Cython module.
__test__: Final[dict[str, str]]

def library() -> object: ...
def uses_zmm() -> bool: ...
