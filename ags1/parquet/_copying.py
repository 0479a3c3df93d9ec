"""Bytes of one file that go into another as they are."""

from __future__ import annotations

import os
from collections.abc import Callable

from ags1.storage import DescriptorSource, Output, SequentialSource, Source

__all__ = ["copy_bytes"]

_PIECE = 16 << 20


def copy_bytes(source: Source, length: int, output: Output, advance: Callable[[int], None]) -> None:
    """Append the first `length` bytes of a source to an output; between files without a detour, where that can be.

    Parameters
    ----------
    advance : callable
        Told how many bytes were copied since the last time.

    Raises
    ------
    TruncatedError
        The source is shorter.
    """
    done = 0
    if source.is_remote:
        source = SequentialSource(source)
    if isinstance(source, DescriptorSource) and output.descriptor is not None and hasattr(os, "copy_file_range"):
        done = _between_files(source.fileno(), length, output, advance)
    while done < length:
        piece = source.read(done, min(_PIECE, length - done))
        output.write(piece)
        size = memoryview(piece).nbytes
        done += size
        advance(size)


def _between_files(descriptor: int, length: int, output: Output, advance: Callable[[int], None]) -> int:
    """Bytes that the system copied; fewer than were asked for, where it cannot."""
    assert output.descriptor is not None
    done = 0
    while done < length:
        try:
            count = os.copy_file_range(descriptor, output.descriptor, min(_PIECE, length - done), done, output.position)
        except OSError:
            # Another file system, or one that cannot: whatever it is, reading and writing tells it better.
            return done
        if count == 0:
            return done
        done += count
        output.position += count
        advance(count)
    return done
