"""Small files of a store, each requested before a thread works on it.

items --taken in turn--> a request for the file of each --> a thread: input_of(path).open() --> forget(path)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from ags1.iceberg.files.file_io import EncryptedFileIO, EncryptedInputFile, KnownFile
from ags1.storage import REQUESTS_AT_ONCE

Item = TypeVar("Item")


class FilesAhead:
    """The files that threads are about to open. Safe to share between them."""

    def __init__(self, file_io: EncryptedFileIO) -> None:
        self._io = file_io
        self._begun: dict[str, EncryptedInputFile] = {}

    def requested(
        self, items: Iterable[Item], file_of: Callable[[Item], tuple[str, KnownFile | None]]
    ) -> Iterator[Item]:
        """Yield items; the file of each is requested while others are worked on, and held until :meth:`forget`.

        `file_of` returns the path under which the file will be opened, and what the files above say of it.
        """
        waiting: deque[Item] = deque()
        for item in items:
            path, known = file_of(item)
            if known is not None:
                self._begun[path] = self._io.new_input(path).begin(known)
            waiting.append(item)
            if len(waiting) == REQUESTS_AT_ONCE:
                yield waiting.popleft()
        yield from waiting

    def input_of(self, path: str) -> EncryptedInputFile:
        """The file, which may be requested already."""
        begun = self._begun.get(path)
        # The truth of an input file would be its length, a request.
        return self._io.new_input(path) if begun is None else begun

    def forget(self, path: str) -> None:
        """Hold a file no longer: the work on it has ended, whether or not that has opened it."""
        begun = self._begun.pop(path, None)
        if begun is not None:
            begun.cancel()

    def close(self) -> None:
        """Forget all files, also those that no thread has come to."""
        for path in list(self._begun):
            self.forget(path)
