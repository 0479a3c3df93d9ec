"""What the readers of the Parquet cases share."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.conformance.loader import DIRECTORY
from tests.conformance.outcomes import Fields
from tests.conformance.parquet_cases import apply


def content(case: Fields) -> bytes:
    """Return the bytes of a case's file."""
    stored = DIRECTORY / case["file"]
    others = {edit["file"]: (DIRECTORY / edit["file"]).read_bytes() for edit in case.get("edits", ()) if "file" in edit}
    data = apply(stored.read_bytes(), case.get("edits", []), others)
    if hashlib.sha256(data).hexdigest() != case["sha256"]:
        raise ValueError(f"{case['name']}: the file does not have the stated SHA-256")
    return data


@contextlib.contextmanager
def placed(case: Fields) -> Iterator[Path]:
    """A path with the case's file, and its key material file beside it."""
    with tempfile.TemporaryDirectory(prefix="ags1-") as folder:
        path = Path(folder, f"{case['name']}.parquet")
        path.write_bytes(content(case))
        if case.get("key_material") is not None:
            material = (DIRECTORY / case["key_material"]).read_bytes()
            path.with_name(f"_KEY_MATERIAL_FOR_{path.name}.json").write_bytes(material)
        yield path


def unwrapped(case: Fields, wrapped: bytes, master_key_id: str) -> bytes:
    """A key that one of the case's master keys wrapped, as the in-memory KMS of parquet-java's tests does."""
    key = AESGCM(octets(case["master_keys"][master_key_id]))
    return key.decrypt(wrapped[:12], wrapped[12:], master_key_id.encode())


def octets(text: str) -> bytes:
    """Return the bytes of hexadecimal digits."""
    return bytes.fromhex(text)


def optional(text: str | None) -> bytes | None:
    """Return the bytes of hexadecimal digits, or None."""
    return None if text is None else bytes.fromhex(text)
