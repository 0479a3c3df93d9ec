"""Parser of the test vectors; ``README.md`` beside this file describes the format."""

from __future__ import annotations

import base64
import functools
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from tests import reference

DIRECTORY = Path(__file__).parent
STREAMS = DIRECTORY / "streams"
KEY_METADATA = DIRECTORY / "key_metadata.vector"
WRAPPED_KEYS = DIRECTORY / "wrapped_keys.vector"


def pattern(size: int) -> bytes:
    """Return the plaintext of the recipes: byte `k` is ``k mod 251``."""
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def parse_header(text: str) -> dict[str, str]:
    """Parse ``name: value`` lines; a name may stand only once."""
    header: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if not colon or name in header:
            raise ValueError(f"bad header line {line!r}")
        header[name] = value.strip()
    return header


def parse_bytes(value: str) -> bytes | None:
    """Parse ``none``, ``empty`` or hexadecimal digits."""
    if value == "none":
        return None
    return b"" if value == "empty" else bytes.fromhex(value)


def parse_number(value: str) -> int | None:
    """Parse ``none`` or a decimal number."""
    return None if value == "none" else int(value)


@functools.lru_cache(maxsize=8)
def base_stream(key: bytes, aad_prefix: bytes, block_length: int, size: int) -> bytes:
    """Build the stream that ``base`` lines take their bytes from."""
    return reference.encrypt(pattern(size), key, aad_prefix, block_length, reference.counter_nonce)


@dataclass(frozen=True)
class StreamVector:
    """One AGS1 stream and what a strict reader makes of it."""

    name: str
    header: dict[str, str] = field(repr=False)
    body: str = field(repr=False)

    @property
    def expect(self) -> str:
        """The outcome: ``success`` or the kind of refusal."""
        return self.header["expect"]

    @property
    def good(self) -> bool:
        """Whether a strict reader accepts the stream."""
        return self.expect == "success"

    @property
    def key(self) -> bytes:
        """The key that the reader is given."""
        return bytes.fromhex(self.header["key"])

    @property
    def aad_prefix(self) -> bytes | None:
        """The AAD prefix that the reader is given; None and empty mean the same in AGS1."""
        return parse_bytes(self.header["aad-prefix"])

    @property
    def length(self) -> int | None:
        """The trusted length that the reader is given, if any."""
        return parse_number(self.header["length"])

    @property
    def block_length(self) -> int | None:
        """The block length in the header, None if the stream is too short to have one."""
        return parse_number(self.header["block-length"])

    @property
    def java(self) -> list[str]:
        """What Iceberg Java does, as words."""
        return self.header["java"].split()

    @property
    def stream_length(self) -> int:
        """The number of bytes in the stream."""
        return int(self.header["stream-length"])

    def stream(self) -> bytes:
        """Build the stream and check it against the vector's length and SHA-256."""
        parts = []
        for line in self.body.splitlines():
            if line.startswith("base "):
                offset, size = map(int, line.split()[1:])
                part = self._base()[offset : offset + size]
                if len(part) != size:
                    raise ValueError(f"{self.name}: the base stream ends before {line!r} does")
            else:
                part = bytes.fromhex(line)
            parts.append(part)
        stream = b"".join(parts)
        digest = hashlib.sha256(stream).hexdigest()
        if len(stream) != self.stream_length or digest != self.header["stream-sha256"]:
            raise ValueError(f"{self.name}: the stream does not have the stated length and SHA-256")
        return stream

    def _base(self) -> bytes:
        return base_stream(
            bytes.fromhex(self.header["base-key"]),
            parse_bytes(self.header["base-aad-prefix"]) or b"",
            int(self.header["base-block-length"]),
            int(self.header["base-plaintext-length"]),
        )

    def plaintext(self) -> bytes:
        """Build the plaintext of a good vector and check it against the vector's length and SHA-256."""
        stated = self.header["plaintext"]
        length = int(self.header["plaintext-length"])
        plaintext = pattern(length) if stated == "pattern" else parse_bytes(stated) or b""
        digest = hashlib.sha256(plaintext).hexdigest()
        if len(plaintext) != length or digest != self.header["plaintext-sha256"]:
            raise ValueError(f"{self.name}: the plaintext does not have the stated length and SHA-256")
        return plaintext


@dataclass(frozen=True)
class KeyMetadataVector:
    """One encoded StandardKeyMetadata and what a decoder makes of it."""

    name: str
    header: dict[str, str] = field(repr=False)

    @property
    def expect(self) -> str:
        """The outcome: ``success`` or the kind of refusal."""
        return self.header["expect"]

    @property
    def good(self) -> bool:
        """Whether a decoder accepts the bytes."""
        return self.expect == "success"

    @property
    def encoded(self) -> bytes:
        """The bytes."""
        return parse_bytes(self.header["encoded"]) or b""

    @property
    def fields(self) -> reference.KeyMetadata:
        """The decoded fields of a good vector."""
        return reference.KeyMetadata(
            bytes.fromhex(self.header["key"]),
            parse_bytes(self.header["aad-prefix"]),
            parse_number(self.header["file-length"]),
        )

    @property
    def canonical(self) -> str:
        """``three-fields`` or ``two-fields`` if that form encodes to exactly these bytes, else ``no``."""
        return self.header["canonical"]

    @property
    def java(self) -> list[str]:
        """What Iceberg Java does, as words."""
        return self.header["java"].split()


@dataclass(frozen=True)
class WrappedKeyVector:
    """Two entries of ``encryption-keys`` and what a reader makes of them."""

    name: str
    header: dict[str, str] = field(repr=False)

    @property
    def expect(self) -> str:
        """The outcome: ``success`` or the kind of refusal."""
        return self.header["expect"]

    @property
    def java(self) -> list[str]:
        """What Iceberg Java does, as words."""
        return self.header["java"].split()

    @property
    def timestamp(self) -> str:
        """The exact text of the property KEY_TIMESTAMP."""
        return (parse_bytes(self.header["key-timestamp"]) or b"").decode()

    def octets(self, name: str) -> bytes:
        """The bytes of a header line."""
        return parse_bytes(self.header[name]) or b""

    def entries(self) -> list[dict[str, object]]:
        """The two entries as they stand in a table's metadata: under the master key "master"."""
        wrapped, entry = (base64.b64encode(self.octets(name)).decode() for name in ("wrapped-kek", "entry"))
        properties = {"KEY_TIMESTAMP": self.timestamp}
        return [
            {"key-id": "kek", "encrypted-key-metadata": wrapped, "encrypted-by-id": "master", "properties": properties},
            {"key-id": "list", "encrypted-key-metadata": entry, "encrypted-by-id": "kek"},
        ]


def load_streams() -> list[StreamVector]:
    """Return all stream vectors, sorted by name."""
    vectors = []
    for path in sorted(STREAMS.glob("*.vector")):
        head, _, body = path.read_text(encoding="ascii").partition("\n\n")
        vectors.append(StreamVector(path.stem, parse_header(head), body))
    return vectors


def load_key_metadata() -> list[KeyMetadataVector]:
    """Return all key metadata vectors, in file order."""
    records = KEY_METADATA.read_text(encoding="ascii").strip("\n").split("\n\n")
    headers = [parse_header(record) for record in records]
    return [KeyMetadataVector(header.pop("name"), header) for header in headers]


def load_wrapped_keys() -> list[WrappedKeyVector]:
    """Return all vectors of wrapped keys, in file order."""
    records = WRAPPED_KEYS.read_text(encoding="ascii").strip("\n").split("\n\n")
    headers = [parse_header(record) for record in records]
    return [WrappedKeyVector(header.pop("name"), header) for header in headers]
