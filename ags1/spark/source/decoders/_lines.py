"""Lines of a file by plaintext range: a line belongs to the range in which its first byte lies.

    a range      |start                         end|
    lines    ....NL line NL line NL ............ li|ne NL
                   ^ first that begins here         ^^^^^ is read to its end, after the range

Ranges that tile a file give every line exactly once, wherever they are cut, even between CR and LF: the bytes before
`start`, as many as a separator has, show whether a line begins at `start`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ags1.errors import FormatError, LimitError

_LF, _CR = 10, 13
_BOM = b"\xef\xbb\xbf"
_STEP = 64 << 10
_COMPRESSED = frozenset({"bz2", "xz", "zst", "lz4", "snappy", "zip", "deflate", "br"})
# Arrow's strings count bytes with 32 bits.
_MAX_LINE = (1 << 31) - 1
_NO_LIMIT = 1 << 62


def _strings(data: bytes, starts: Any, ends: Any) -> pa.Array:
    """Lines as an Arrow array; bytes that are not UTF-8 become U+FFFD."""
    octets = np.frombuffer(data, np.uint8)
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(ends - starts, out=offsets[1:])
    if offsets[-1] > _MAX_LINE:
        raise FormatError(f"a line of {offsets[-1]} bytes does not fit an Arrow string")
    # Which bytes belong to a line: +1 at its first byte, -1 after its last.
    steps = np.zeros(len(octets) + 1, np.int8)
    steps[starts] += 1
    steps[ends] -= 1
    values = pa.py_buffer(octets[np.cumsum(steps[:-1], dtype=np.int8).view(bool)])
    made = pa.Array.from_buffers(pa.string(), len(starts), [None, pa.py_buffer(offsets.astype(np.int32)), values])
    try:
        made.validate(full=True)
    except pa.ArrowInvalid:
        pairs = zip(starts.tolist(), ends.tolist(), strict=True)
        return pa.array([data[start:end].decode("utf-8", "replace") for start, end in pairs], pa.string())
    return made


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


def chunks_of_stream(stream: Any, end: int, separator: bytes, step: int, most: int) -> Iterator[pa.Array]:
    """The lines of a text that can only be read from its start. A line of more than `most` bytes raises LimitError."""

    def read(wanted: int) -> tuple[bytes, bool]:
        data: bytes = stream.read(wanted)
        return data, len(data) < wanted

    return _chunks(read, 0, 0, end, separator, step, most, stream.name)


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
    data, wanted = b"", step
    while True:
        piece, at_end = read(wanted)
        data = data + piece if data else piece
        if not data:
            return
        ends, lengths = _ends(np.frombuffer(data, np.uint8), separator, at_end=at_end)
        if at_end and (len(ends) == 0 or ends[-1] < len(data)):
            # The last line has no separator.
            ends, lengths = np.append(ends, len(data)), np.append(lengths, 0)
        if len(ends) == 0:
            # If a line begins before the range and ends after it, no line begins inside.
            if at_end or (begin < start and begin + len(data) > end + len(separator)):
                return
            if len(data) > most:
                raise LimitError(
                    f"{name}: from byte {begin} of the unpacked text there is no line end in {len(data)} "
                    f"bytes, and the option max_unpacked_bytes is {most}: raise it, or give the right lineSep"
                )
            wanted = min(max(step, len(data)), most + 1 - len(data))
            continue
        starts = np.concatenate(([0], ends[:-1]))
        some = slice(*np.searchsorted(starts, (start - begin, end - begin)))
        if begin == 0 and data[:3] == _BOM:
            starts[0] = 3
        if some.start < some.stop:
            yield _strings(data, starts[some], (ends - lengths)[some])
        begin, data, wanted = begin + int(ends[-1]), data[int(ends[-1]) :], step
        if at_end or begin >= end:
            return


def refuse_compressed(name: str) -> None:
    """Refuse a compressed file, which is not text."""
    ending = name.lower().removesuffix(".ags1").rpartition(".")[2]
    if ending in _COMPRESSED:
        raise FormatError(
            f"{name} is compressed, and only gzip is read here: leave it out with the option exclude=*."
            f"{ending}{'.ags1' if name.lower().endswith('.ags1') else ''}, or read it with decode=binary"
        )


def _ends(data: Any, separator: bytes, *, at_end: bool) -> tuple[Any, Any]:
    """Offsets behind the separators, and the separators' lengths."""
    if separator:
        ends = _occurrences(data, separator) + len(separator)
        return ends, np.full(len(ends), len(separator), np.int64)
    feeds = np.flatnonzero(data == _LF)
    returns = np.flatnonzero(data == _CR)
    lengths = np.ones(len(feeds), np.int64)
    if len(returns) == 0:
        return feeds + 1, lengths
    lengths[(feeds > 0) & (data[feeds - 1] == _CR)] = 2
    following = np.append(data[1:], np.uint8(0))
    lone = returns[following[returns] != _LF]
    if not at_end and len(lone) and lone[-1] == len(data) - 1:
        # It is not known yet whether LF follows.
        lone = lone[:-1]
    if len(lone) == 0:
        return feeds + 1, lengths
    ends = np.concatenate((feeds, lone)) + 1
    lengths = np.concatenate((lengths, np.ones(len(lone), np.int64)))
    order = np.argsort(ends, kind="stable")
    return ends[order], lengths[order]


def _occurrences(data: Any, separator: bytes) -> Any:
    """Where a separator begins, without overlaps."""
    count = len(data) - len(separator) + 1
    if count <= 0:
        return np.zeros(0, np.int64)
    matches = data[:count] == separator[0]
    for index in range(1, len(separator)):
        matches &= data[index : index + count] == separator[index]
    found = np.flatnonzero(matches)
    if len(found) < 2 or (np.diff(found) >= len(separator)).all():
        return found
    kept = []
    behind = 0
    for position in found.tolist():
        if position >= behind:
            kept.append(position)
            behind = position + len(separator)
    return np.array(kept, np.int64)
