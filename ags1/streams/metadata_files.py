"""Files of key metadata beside encrypted ones, and AAD prefixes that contain a file's name."""

from __future__ import annotations

import os

from ags1.errors import KeyAccessError

SUFFIX = ".ags1"
KEY_METADATA_SUFFIX = ".key-metadata"


def metadata_beside(directory: str, path: str, name: str) -> str:
    """Find the key metadata for `path` in a directory, by `name` or the end of the path; else KeyAccessError."""
    # The name of a single file is only the last component, which other files may share.
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
    # In one pass, because the path may contain the text {name}.
    return path.join(piece.replace("{name}", path.rpartition("/")[2]) for piece in text.split("{path}"))
