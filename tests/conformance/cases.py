"""What a vector is made of, before ``generate.py`` renders it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests import reference
from tests.conformance import loader

MIB = 1 << 20
KEY_16 = b"0123456789012345"
KEY_24 = bytes(range(24))
KEY_32 = bytes(range(32))
PREFIX_16 = b"1234567890123456"
PREFIX_200 = bytes((7 * k + 3) % 256 for k in range(200))

# Iceberg Java reads no other block length.
JAVA_BLOCK_LENGTH = MIB
STATE = "refuses IllegalStateException"
TAG = "refuses RuntimeException"
END = "refuses EOFException"


@dataclass(frozen=True)
class Base:
    """A whole, good stream of the pattern plaintext with counter nonces."""

    key: bytes = KEY_16
    aad_prefix: bytes | None = PREFIX_16
    block_length: int = MIB
    size: int = 0

    def stream(self) -> bytes:
        """Build the stream."""
        return loader.base_stream(self.key, self.aad_prefix or b"", self.block_length, self.size)

    @property
    def stride(self) -> int:
        """Bytes from one block's start to the next one's."""
        return self.block_length + reference.OVERHEAD

    def block(self, index: int) -> tuple[int, int]:
        """Return offset and size of a block in the stream."""
        start = reference.HEADER_LENGTH + index * self.stride
        return start, min(self.stride, len(self.stream()) - start)


# A literal, or offset and size of a range of the base stream.
Part = bytes | tuple[int, int]


@dataclass(frozen=True)
class Case:
    """A stream vector. ``java`` is worked out from the rest where it is empty."""

    name: str
    comment: str
    parts: tuple[Part, ...]
    expect: str = "success"
    key: bytes = KEY_16
    aad_prefix: bytes | None = PREFIX_16
    length: int | None = None
    plaintext: bytes | None = None
    java: str = ""
    base: Base | None = None

    @property
    def patterned(self) -> bool:
        """Whether the plaintext is the pattern and too long to be written out."""
        return self.plaintext is not None and self.plaintext == loader.pattern(len(self.plaintext))

    def stream(self) -> bytes:
        """Build the stream."""
        whole = self.base.stream() if self.base else b""
        parts = (whole[p[0] : p[0] + p[1]] if isinstance(p, tuple) else p for p in self.parts)
        return b"".join(parts)


def java_behaviour(case: Case, block_length: int | None) -> str:
    """Return what Iceberg Java does with a case that is not one of its soft spots."""
    told = case.length if case.length is not None else len(case.stream())
    if told < reference.MINIMUM_LENGTH:
        return STATE
    if case.expect == "not-ags1" or block_length != JAVA_BLOCK_LENGTH:
        return STATE
    return {"success": "accepts", "authentication": TAG, "truncated": END}[case.expect]


def literal(case: Case) -> Case:
    """Write a case's stream out as bytes, for streams that are short enough."""
    return replace(case, parts=(case.stream(),), base=None)


def flip(base: Base, offset: int) -> tuple[Part, ...]:
    """Return the base stream with the lowest bit of one byte changed."""
    stream = base.stream()
    changed = bytes([stream[offset] ^ 1])
    return (0, offset), changed, (offset + 1, len(stream) - offset - 1)
