"""Copies column chunks from one file to another: finds pages, converts them in many threads, writes them in order.

file or memory to file    while threads convert and write the newest pages, this one finds the next
anything else             windows of the source in memory  -->  converted pages in memory  -->  write
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ags1.parquet.native.conversion import Conversion
from ags1.parquet.native.pages import Chunk, PageList
from ags1.parquet.structure.source_file import PageWindows, SourceFile
from ags1.storage import Output

# Bytes of pages that are converted at once: enough for every core, with progress many times a second.
_BATCH_BYTES = 32 << 20
_BATCH_PAGES = 16384
# Bytes of a file in a store whose pages are found and converted at once, while those behind them arrive.
_WINDOW = 8 << 20


def move_chunks(
    source: SourceFile,
    chunks: Iterable[Chunk],
    output: Output,
    conversion: Conversion,
    advance: Callable[[int], None],
) -> None:
    """Convert column chunks and write them, one behind the other.

    `advance` is called with the number of bytes of the source processed since its last call.
    """
    pages, descriptor = source.pages(), output.descriptor
    if pages is None or descriptor is None:
        _move_in_windows(source, chunks, output, conversion, advance)
        return
    walked, moving = PageList(source.footer.file_aad), PageList(source.footer.file_aad)

    def land() -> None:
        if moving.count:
            output.position = conversion.wait()
            stored = moving.stored
            moving.clear()
            advance(stored)

    def start() -> None:
        nonlocal walked, moving
        land()
        conversion.start(walked, pages, descriptor, output.position, target_name=output.name)
        walked, moving = moving, walked

    try:
        for chunk in chunks:
            while not chunk.done:
                walked.add(chunk, pages, _BATCH_BYTES, _BATCH_PAGES)
                if walked.stored >= _BATCH_BYTES or walked.count >= _BATCH_PAGES:
                    start()
        if walked.count:
            start()
        land()
    except BaseException:
        conversion.stop()
        raise


def _move_in_windows(
    source: SourceFile,
    chunks: Iterable[Chunk],
    output: Output,
    conversion: Conversion,
    advance: Callable[[int], None],
) -> None:
    pages = PageList(source.footer.file_aad)
    windows = PageWindows(source, _WINDOW)

    def flush() -> None:
        if pages.count:
            output.write_owned(conversion.convert(pages, windows.source, output.position))
            stored = pages.stored
            pages.clear()
            advance(stored)

    for chunk in chunks:
        while not chunk.done:
            if not windows.has(chunk.position):
                flush()
                windows.move_to(chunk.position)
            complete = pages.add(chunk, windows.source, _BATCH_BYTES, _BATCH_PAGES)
            if not complete or pages.stored >= _BATCH_BYTES or pages.count >= _BATCH_PAGES:
                flush()
            if not complete:
                windows.move_to(chunk.position)
    flush()
