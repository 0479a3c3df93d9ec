"""The master keys of the tables' KMS: ``ags1.kms.MemoryKms(MASTER_KEYS)`` and the one in Java unwrap each other's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

MASTER_KEYS = {
    "keyA": b"0123456789012345",
    "keyB": b"1123456789012345",
    "key256": b"01234567890123456789012345678901",
}


def keystore(directory: Path, keys: Mapping[str, bytes] = MASTER_KEYS) -> str:
    """The URL of a local keystore with these master keys, which the file `secret` beside it opens."""
    from ags1.kms import LocalKms

    secret = directory / "secret"
    secret.write_bytes(os.urandom(32))
    secret.chmod(0o600)
    LocalKms.create(directory / "keys.json", keys, key_file=secret).close()
    return f"local:{directory / 'keys.json'}?{urlencode({'key_file': secret})}"
