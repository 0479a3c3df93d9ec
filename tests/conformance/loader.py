"""Reader of the cases in ``tests/vectors``, whose README.md describes their files."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import reference

DIRECTORY = Path(__file__).parents[1] / "vectors"


def pattern(size: int) -> bytes:
    """Return the plaintext of long streams: byte `k` is ``k mod 251``."""
    return (bytes(range(251)) * (size // 251 + 1))[:size]


@functools.lru_cache(maxsize=8)
def base_stream(key: bytes, aad_prefix: bytes, block_length: int, size: int) -> bytes:
    """Build the stream that the parts of long streams take their bytes from."""
    return reference.encrypt(pattern(size), key, aad_prefix, block_length, reference.counter_nonce)


def checked(name: str, data: bytes, length: int, sha256: str) -> bytes:
    """Return the data of a case, which must have the length and SHA-256 that the case says."""
    if len(data) != length or hashlib.sha256(data).hexdigest() != sha256:
        raise ValueError(f"{name}: the bytes do not have the stated length and SHA-256")
    return data


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


@dataclass(frozen=True)
class Vector:
    """A case; `fields` is its JSON object."""

    name: str
    fields: Mapping[str, Any] = field(repr=False)

    @property
    def expect(self) -> str:
        """The outcome: ``success`` or the kind of refusal."""
        return str(self.fields["expect"])

    @property
    def good(self) -> bool:
        """Whether a strict reader accepts it."""
        return self.expect == "success"

    @property
    def threat(self) -> str | None:
        """What a refusal protects from."""
        threat: str | None = self.fields.get("threat")
        return threat

    @property
    def java(self) -> list[str]:
        """What Iceberg Java does, as words."""
        return str(self.fields["java"]).split()

    def octets(self, name: str) -> bytes:
        """The bytes of a field in hexadecimal digits; none where it is null."""
        return _bytes(self.fields[name]) or b""


class StreamVector(Vector):
    """An AGS1 stream and what a strict reader makes of it."""

    @property
    def key(self) -> bytes:
        """The key that the reader is given."""
        return self.octets("key")

    @property
    def aad_prefix(self) -> bytes | None:
        """The AAD prefix that the reader is given; None and empty mean the same in AGS1."""
        return _bytes(self.fields["aad_prefix"])

    @property
    def length(self) -> int | None:
        """The trusted length that the reader is given, if any."""
        length: int | None = self.fields["length"]
        return length

    @property
    def block_length(self) -> int | None:
        """The block length in the header, None if the stream is too short to have one."""
        length: int | None = self.fields["block_length"]
        return length

    @property
    def stream_length(self) -> int:
        """The number of bytes in the stream."""
        return int(self.fields["stream_length"])

    def stream(self) -> bytes:
        """Read or build the stream."""
        if "file" in self.fields:
            data = (DIRECTORY / self.fields["file"]).read_bytes()
        else:
            base = self.fields["base"]
            whole = base_stream(
                bytes.fromhex(base["key"]),
                _bytes(base["aad_prefix"]) or b"",
                base["block_length"],
                base["plaintext_length"],
            )
            data = b"".join(
                bytes.fromhex(part) if isinstance(part, str) else whole[part[0] : part[0] + part[1]]
                for part in self.fields["parts"]
            )
        return checked(self.name, data, self.stream_length, self.fields["stream_sha256"])

    def plaintext(self) -> bytes:
        """Build the plaintext of a good vector."""
        length = self.fields["plaintext_length"]
        plaintext = self.octets("plaintext") if "plaintext" in self.fields else pattern(length)
        return checked(self.name, plaintext, length, self.fields["plaintext_sha256"])


class KeyMetadataVector(Vector):
    """An encoded StandardKeyMetadata and what a decoder makes of it."""

    @property
    def encoded(self) -> bytes:
        """The bytes."""
        return self.octets("encoded")

    @property
    def key_metadata(self) -> reference.KeyMetadata:
        """The decoded fields of a good vector."""
        return reference.KeyMetadata(self.octets("key"), _bytes(self.fields["aad_prefix"]), self.fields["file_length"])

    @property
    def canonical(self) -> int | None:
        """How many fields an encoder writes to get exactly these bytes; None if no encoder does."""
        count: int | None = self.fields["canonical"]
        return count


class WrappedKeyVector(Vector):
    """Two entries of ``encryption-keys`` and what a reader makes of them."""

    @property
    def timestamp(self) -> str:
        """The exact text of the property KEY_TIMESTAMP."""
        return str(self.fields["key_timestamp"])

    def entries(self) -> list[dict[str, object]]:
        """The two entries as they stand in a table's metadata: under the master key "master"."""
        wrapped, entry = (base64.b64encode(self.octets(name)).decode() for name in ("wrapped_kek", "entry"))
        properties = {"KEY_TIMESTAMP": self.timestamp}
        return [
            {"key-id": "kek", "encrypted-key-metadata": wrapped, "encrypted-by-id": "master", "properties": properties},
            {"key-id": "list", "encrypted-key-metadata": entry, "encrypted-by-id": "kek"},
        ]


def load(group: str) -> list[dict[str, Any]]:
    """Return the cases of a file, such as "streams", in its order."""
    cases: list[dict[str, Any]] = json.loads((DIRECTORY / f"{group}.json").read_text(encoding="utf-8"))["cases"]
    return cases


def load_streams() -> list[StreamVector]:
    """Return all stream vectors."""
    return [StreamVector(case["name"], case) for case in load("streams")]


def load_key_metadata() -> list[KeyMetadataVector]:
    """Return all key metadata vectors."""
    return [KeyMetadataVector(case["name"], case) for case in load("key_metadata")]


def load_wrapped_keys() -> list[WrappedKeyVector]:
    """Return all vectors of wrapped keys."""
    return [WrappedKeyVector(case["name"], case) for case in load("wrapped_keys")]
