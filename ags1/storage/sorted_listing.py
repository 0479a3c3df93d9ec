"""The files below a prefix of a URL, sorted by name, in memory that does not grow with their number.

    the store's pages --> sorted, 10,000 files at a time --> pieces of 256 files, in a temporary file
                                                               the first name of each, in memory

Most stores list by name, so each sorted run follows the one before. S3 Express, Azure with hierarchical namespaces and
some S3 servers do not: then the runs are merged into a second temporary file.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from ags1.storage.listing import Entry, Row, apart, remote_rows
from ags1.storage.location import Location
from ags1.support.closing import Closing
from ags1.support.typing import Any

_SORTED = 10_000
_PIECE = 256
# Bytes of the temporary file that stay in memory.
_SPOOLED = 4 << 20

Piece = tuple[str, int]
"""The first name, and the offset in the file."""


class SortedListing(Closing):
    """The files of a directory or prefix of a URL at the time of creation: one listing, and no request after it.

    For one thread. Close it, or use it in a ``with`` statement: many names are kept in an unnamed temporary file. Files
    below `outside` are left out. `on_error`, for an object store, as of :func:`list_files`.

    FileNotFoundError: there is no such directory, and no object below the prefix. OSError: it cannot be listed, or the
    directory for temporary files is full.
    """

    def __init__(
        self,
        location: Location,
        *,
        outside: Location | None = None,
        on_error: Callable[[OSError], object] | None = None,
    ) -> None:
        self._location = location
        self._file = _temporary()
        # The piece that was read last.
        self._at, self._piece = -1, list[Row]()
        try:
            self._pieces = self._sort(remote_rows(location, outside, on_error))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the temporary file."""
        self._file.close()

    def __iter__(self) -> Iterator[Entry]:
        entries = (
            Entry(name, self._location.join(name), size, modified, etag)
            for name, size, modified, etag in _rows(self._file, self._pieces)
        )
        return apart(entries) if self._location.is_object else entries

    def size_of(self, name: str) -> int | None:
        """Length of a file in bytes, None if there is none. Fastest if names are looked up in about their order."""
        found = self._first_from(name)
        return found[1] if found is not None and found[0] == name else None

    def has_below(self, directory: str) -> bool:
        """Whether there are files below this subdirectory."""
        found = self._first_from(f"{directory}/")
        return found is not None and found[0].startswith(f"{directory}/")

    def _first_from(self, name: str) -> Row | None:
        """The first file with this name or a later one."""
        before = bisect_left(self._pieces, (name, 0)) - 1
        for index in range(max(before, 0), min(before + 2, len(self._pieces))):
            if index != self._at:
                self._at, self._piece = index, _read(self._file, self._pieces[index])
            found = bisect_left(self._piece, name, key=_name_of)
            if found < len(self._piece):
                return self._piece[found]
        return None

    def _sort(self, rows: Iterator[Row]) -> list[Piece]:
        runs: list[list[Piece]] = []
        last = ""
        while some := sorted(islice(rows, _SORTED), key=_name_of):
            if not runs or some[0][0] < last:
                runs.append([])
            last = some[-1][0]
            runs[-1] += _write(self._file, some)
        if len(runs) < 2:
            return runs[0] if runs else []
        with self._file as parts:
            self._file = _temporary()
            return list(_write(self._file, heapq.merge(*(_rows(parts, run) for run in runs), key=_name_of)))


def _temporary() -> Any:
    # Imported here, to keep `import ags1` fast.
    import tempfile

    return tempfile.SpooledTemporaryFile(_SPOOLED)


def _name_of(row: Row) -> str:
    return row[0]


def _write(file: Any, rows: Iterable[Row]) -> Iterator[Piece]:
    import json

    rows = iter(rows)
    while piece := list(islice(rows, _PIECE)):
        yield piece[0][0], file.tell()
        try:
            file.write(json.dumps(piece, separators=(",", ":")).encode("ascii") + b"\n")
        except OSError as error:
            text = f"{error.strerror}: a listing keeps its names here; set TMPDIR to a directory with enough space"
            import tempfile

            raise OSError(error.errno, text, tempfile.gettempdir()) from None


def _read(file: Any, piece: Piece) -> list[Row]:
    import json

    file.seek(piece[1])
    rows: list[Row] = json.loads(file.readline())
    return rows


def _rows(file: Any, pieces: Iterable[Piece]) -> Iterator[Row]:
    for piece in pieces:
        yield from _read(file, piece)
