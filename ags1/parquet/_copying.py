"""Files that are looked at, or whose bytes go into another as they are."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from ags1._typing import Any
from ags1.files import Progress
from ags1.storage import DescriptorSource, Output, PipeSource, SequentialSource, Source, open_source

_PIECE = 16 << 20


@contextlib.contextmanager
def seekable(file: Any) -> Iterator[Source | None]:
    """The source of a file as long as the context lasts; None if it cannot be read from any position."""
    source = open_source(file)
    try:
        yield None if isinstance(source, PipeSource) else source
    finally:
        source.close()


def counting(progress: Progress | None, total: int) -> Callable[[int], None]:
    """Tell of the start of work, and return what is told how many more of its bytes are done."""
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    advance(0)
    return advance


def copy_bytes(source: Source, length: int, output: Output, advance: Callable[[int], None]) -> None:
    """Append the first `length` bytes of a source to an output; between files without a detour, where that can be.

    `advance` is told how many bytes were copied since the last time.
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
