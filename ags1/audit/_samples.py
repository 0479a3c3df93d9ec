"""Whether bytes can be encrypted ones: samples or all of them, and the lengths of Parquet's modules, without a key.

Encrypted bytes look random. Random bytes do not compress, and 40 printable characters in a row are not in them.
"""

from __future__ import annotations

import zlib

from ags1.storage import Source

_PIECE, _BLOCK = 4 << 10, 64 << 10
_SAMPLES = 4
# The least length of a module is that of its nonce; its own length, of four bytes, is before it.
_LENGTH, _SHORTEST = 4, 12
_PRINTABLE = bytes(each in b"\t\n\r" or 32 <= each < 127 for each in range(256))
_TEXT = b"\1" * 40


def looks_random(data: bytes) -> bool:
    """Whether 28 bytes or more look like encrypted ones."""
    printable = data.translate(_PRINTABLE)
    return _TEXT not in printable and 0 in printable and len(zlib.compress(data, 1)) > 0.9 * len(data)


def bare_bytes(source: Source, start: int, end: int, *, whole: bool, modules: bool) -> int | None:
    """Return where the first bytes between `start` and `end` are that cannot be encrypted, or None.

    With `whole`, and of few bytes, all are read, else samples. With `modules`, the bytes are modules of Parquet, one
    after another, and are followed as far as they are read.
    """
    whole = whole or end - start <= _BLOCK
    module = start
    for offset, size in _ranges(start, end, whole):
        data = bytes(memoryview(source.read(offset, size)))
        for each in _starts(size, _PIECE):
            if not looks_random(data[each : each + _PIECE]):
                return offset + each
        while modules and offset <= module <= offset + size - _LENGTH:
            length = int.from_bytes(data[module - offset :][:_LENGTH], "little")
            if length < _SHORTEST or module + _LENGTH + length > end:
                return module
            module += _LENGTH + length
    return module if whole and modules and module < end else None


def _ranges(start: int, end: int, whole: bool) -> list[tuple[int, int]]:
    if not whole:
        return [(start + (end - start - _PIECE) * each // (_SAMPLES - 1), _PIECE) for each in range(_SAMPLES)]
    size = min(_BLOCK, end - start)
    return [(start + each, size) for each in _starts(end - start, size)] if size else []


def _starts(length: int, size: int) -> list[int]:
    """Where parts of `size` bytes begin that cover `length` bytes. They overlap: no length of a module is cut."""
    return [*range(0, length - size, max(1, size - _LENGTH)), max(0, length - size)]
