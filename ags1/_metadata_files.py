"""Key metadata in files, and what an AAD prefix says of a file's name."""

from __future__ import annotations

import os

from ags1._key_files import from_base64, from_hex
from ags1.errors import FormatError, KeyAccessError
from ags1.keys import KeyMetadata

SUFFIX = ".ags1"
KEY_METADATA_SUFFIX = ".key-metadata"


def decode_metadata(data: bytes, where: str) -> KeyMetadata:
    """Key metadata from bytes, hexadecimal or base64 text; a KeyAccessError, which repeats nothing, if it is none."""
    if not data.startswith(b"\x01"):
        text = data.strip()
        data = from_hex(text) or from_base64(text) or data
    try:
        return KeyMetadata.decode(data)
    except FormatError as error:
        if len(data) in (16, 24, 32):
            # What the error says of the bytes could be said of a key.
            raise KeyAccessError(f"{where} holds no key metadata; if it is a key, give it as one") from None
        raise KeyAccessError(f"{where} holds no key metadata: {error}") from None


def metadata_beside(directory: str, path: str, name: str) -> str:
    """The key metadata of the file at `path` in a directory, by its name or the path's end; else KeyAccessError."""
    # The name of a file that was given by itself is only the last part, which others may share.
    candidates = [name] if "/" in name else []
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    candidates += ["/".join(parts[start:]) for start in range(len(parts))]
    for candidate in [*candidates, name]:
        found = os.path.join(directory, candidate + KEY_METADATA_SUFFIX)
        if os.path.exists(found):
            return found
    raise KeyAccessError(
        f"there is no key metadata for {path}: no {os.path.join(directory, name)}{KEY_METADATA_SUFFIX}"
    )


def text_of_prefix(text: str, path: str) -> str:
    """An AAD prefix for one file: ``{path}`` becomes its path, ``{name}`` the last part of that."""
    # In one go, because a file may be called {name} itself.
    return path.join(piece.replace("{name}", path.rpartition("/")[2]) for piece in text.split("{path}"))
