"""Opening of files for inspection, and copying of bytes without a change."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from ags1.storage import DescriptorSource, Output, PipeSource, PlannedSource, Source, open_source
from ags1.streams.files import Progress
from ags1.support.typing import Any

_PIECE = 16 << 20


@contextlib.contextmanager
def seekable(file: Any) -> Iterator[Source | None]:
    """The source of a file, open inside the context; None if it is not seekable."""
    source = open_source(file)
    try:
        yield None if isinstance(source, PipeSource) else source
    finally:
        source.close()


def counting(progress: Progress | None, total: int) -> Callable[[int], None]:
    """Report the start of work; return a function that takes the number of further bytes that are done."""
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    advance(0)
    return advance


def copy_bytes(source: Source, length: int, output: Output, advance: Callable[[int], None]) -> None:
    """Append the first `length` bytes of a source to an output; between files the system copies, if it can.

    `advance` is called with the number of bytes copied since its last call.
    """
    done = 0
    if source.is_remote:
        with contextlib.closing(PlannedSource(source)) as planned:
            planned.will_read([(0, length)])
            _by_pieces(planned, 0, length, output, advance)
        return
    if isinstance(source, DescriptorSource) and output.descriptor is not None and hasattr(os, "copy_file_range"):
        done = _between_files(source.fileno(), length, output, advance)
    _by_pieces(source, done, length, output, advance)


def _by_pieces(source: Source, done: int, length: int, output: Output, advance: Callable[[int], None]) -> None:
    for begin in range(done, length, _PIECE):
        piece = source.read(begin, min(_PIECE, length - begin))
        output.write(piece)
        advance(memoryview(piece).nbytes)


def _between_files(descriptor: int, length: int, output: Output, advance: Callable[[int], None]) -> int:
    """Number of bytes that the system copied; fewer than `length` if it cannot copy more."""
    assert output.descriptor is not None
    done = 0
    while done < length:
        try:
            count = os.copy_file_range(descriptor, output.descriptor, min(_PIECE, length - done), done, output.position)
        except OSError:
            # Other or unsuitable file systems. A real fault is reported when the rest is read and written.
            return done
        if count == 0:
            return done
        done += count
        output.position += count
        advance(count)
    return done
