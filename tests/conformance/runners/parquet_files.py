"""What the readers of the Parquet cases share."""

from __future__ import annotations

import hashlib

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


def octets(text: str) -> bytes:
    """Return the bytes of hexadecimal digits."""
    return bytes.fromhex(text)


def optional(text: str | None) -> bytes | None:
    """Return the bytes of hexadecimal digits, or None."""
    return None if text is None else bytes.fromhex(text)
