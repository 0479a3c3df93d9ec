"""Lines of a file by plaintext range: a line belongs to the range in which its first byte lies.

    a range      |start                         end|
    lines    ....NL line NL line NL ............ li|ne NL
                   ^ first that begins here         ^^^^^ is read to its end, after the range

Ranges that tile a file give every line exactly once, wherever they are cut, even between CR and LF: the bytes before
`start`, as many as a separator has, show whether a line begins at `start`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ags1.errors import FormatError, LimitError

BOM = b"\xef\xbb\xbf"
_STEP = 64 << 10
# Arrow's strings count bytes with 32 bits.
_MAX_LINE = (1 << 31) - 1
_NO_LIMIT = 1 << 62


def read_buffer(reader: Any, offset: int, size: int) -> pa.Buffer:
    """Plaintext, decrypted straight into Arrow's memory."""
    size = max(0, min(size, reader.size - offset))
    buffer = pa.allocate_buffer(size)
    reader.pread_into(offset, buffer)
    return buffer


def chunks(reader: Any, start: int, end: int, separator: bytes, step: int) -> Iterator[pa.Array]:
    """The lines of a range of plaintext, which may end after the file, about `step` bytes at a time.

    The length of a line is not limited. The separator b"" means LF, CR LF or CR; one that can overlap itself needs a
    range that begins at 0.
    """
    size = reader.size
    if size == 0 and start == 0 < end:
        # It has a tag all the same.
        reader.pread(0, 1)
    end = min(end, size)
    if start >= end:
        return
    position = begin = max(0, start - max(1, len(separator)))

    def read(wanted: int) -> tuple[bytes, bool]:
        nonlocal position
        # Read up to the end of a block, so that none is decrypted twice, and after the range only what is needed.
        inside = position < end
        most = min(wanted - position % step, end - position) if inside else min(wanted, max(_STEP, position - end))
        data: bytes = reader.pread(position, most)
        position += len(data)
        return data, position == size

    yield from _chunks(read, begin, start, end, separator, step)


def chunks_of_stream(stream: Any, separator: bytes, step: int, most: int) -> Iterator[pa.Array]:
    """The lines of a text that can only be read from its start. A line of more than `most` bytes raises LimitError."""

    def read(wanted: int) -> tuple[bytes, bool]:
        data: bytes = stream.read(wanted)
        return data, len(data) < wanted

    return _chunks(read, 0, 0, _NO_LIMIT, separator, step, most, stream.name)


def _chunks(
    read: Callable[[int], tuple[bytes, bool]],
    begin: int,
    start: int,
    end: int,
    separator: bytes,
    step: int,
    most: int = _NO_LIMIT,
    name: str = "",
) -> Iterator[pa.Array]:
    """The lines that begin in a range, from pieces of text that are read from `begin` on."""
    ends = re.compile(re.escape(separator) or rb"\r\n?|\n")
    data, wanted, at_end = b"", step, False

    def line_from(place: int) -> int | None:
        """Where in `data` the first line begins that is not before a place of the text; None if it is not known yet."""
        found = ends.search(data, max(0, place - begin - max(1, len(separator))))
        # After CR, LF may follow.
        if at_end or (found and (separator or found.end() < len(data) or data.endswith(b"\n"))):
            return found.end() if found else len(data)
        return None

    while begin < end:
        piece, at_end = read(wanted)
        data = data + piece if data else piece
        if start > begin:
            first = line_from(start)
            if first is None:
                # If a line begins before the range and ends after it, no line begins inside.
                if begin + len(data) > end + len(separator):
                    return
                wanted = max(step, len(data))
                continue
            begin, data, start = begin + first, data[first:], 0
            if begin >= end:
                return
        behind = line_from(end) if begin + len(data) >= end else None
        mark = len(BOM) if begin == 0 and data.startswith(BOM) else 0
        lines, rest = _split(data[mark:behind], separator, is_whole=at_end or behind is not None)
        if len(lines):
            yield lines
        else:
            # The line begins with the mark.
            rest = data[:mark] + rest
        if len(rest) > most:
            raise LimitError(
                f"{name}: from byte {begin + len(data) - len(rest)} of the unpacked text there is no line end in "
                f"{len(rest)} bytes, and the option max_unpacked_bytes is {most}: raise it, or give the right lineSep"
            )
        if at_end or behind is not None:
            return
        wanted = step if len(lines) else min(max(step, len(rest)), most + 1 - len(rest))
        begin, data = begin + len(data) - len(rest), rest


def _split(data: bytes, separator: bytes, *, is_whole: bool) -> tuple[pa.Array, bytes]:
    """The lines of some data, and the beginning of one that goes on behind the data unless these are whole."""
    size, held = len(data), b""
    if size > _MAX_LINE:
        raise FormatError(f"a line of {size} bytes does not fit an Arrow string")
    if not separator:
        held = b"\r" if data.endswith(b"\r") and not is_whole else b""
        data = data.removesuffix(held).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = pc.split_pattern(pa.scalar(data, pa.binary()), separator or b"\n").values
    rest = lines[-1].as_py() + held
    if not (is_whole and rest):
        lines = lines[:-1]
    try:
        return lines.cast(pa.string()), rest
    except pa.ArrowInvalid:
        # Bytes that are not UTF-8 become U+FFFD.
        return pa.array([line.decode("utf-8", "replace") for line in lines.to_pylist()], pa.string()), rest
