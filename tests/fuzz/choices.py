"""The bytes of an input as a script of choices."""

from __future__ import annotations

from typing import Any


class Choices:
    """Takes decisions from bytes; from 0 when they have run out."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    @property
    def left(self) -> int:
        """Bytes that have not been used."""
        return len(self.data) - self.position

    def octets(self, count: int) -> bytes:
        """The next bytes, fewer at the end."""
        taken = self.data[self.position : self.position + count]
        self.position += len(taken)
        return taken

    def number(self, octets: int = 1) -> int:
        """An unsigned number."""
        return int.from_bytes(self.octets(octets), "little")

    def below(self, limit: int) -> int:
        """A number below `limit`, or 0."""
        return self.number(1 if limit <= 256 else 2 if limit <= 65_536 else 8) % max(limit, 1)

    def one_of(self, values: Any) -> Any:
        """One of the values."""
        return values[self.below(len(values))]

    def size(self) -> int:
        """A number as sizes and offsets are: small, around a power of two, or anything of 72 bits."""
        kind = self.below(4)
        if kind == 0:
            return self.number()
        if kind == 1:
            return self.number(9)
        power = 1 << self.below(72)
        return max(0, power + self.number() - 128) if kind == 2 else power * self.number() + self.number()
