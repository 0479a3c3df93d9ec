"""The files below a prefix of a URL, sorted by name, in memory that does not grow with their number.

the store's pages --> a temporary database of SQLite, which is on the disk if it is large --> by name
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

from ags1.storage.listing import Entry, apart, remote_rows
from ags1.storage.location import Location
from ags1.support.closing import Closing


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
        # Imported here, to keep `import ags1` fast.
        import sqlite3

        self._location = location
        self._files = sqlite3.connect("", check_same_thread=False)
        rows = ((_encoded(name), *of_it) for name, *of_it in remote_rows(location, outside, on_error))
        try:
            self._files.execute("pragma journal_mode = off")
            self._files.execute("create table files (name blob, size integer, modified integer, etag text)")
            self._files.executemany("insert into files values (?, ?, ?, ?)", rows)
            self._files.execute("create index by_name on files (name)")
        except BaseException as error:
            self.close()
            if isinstance(error, OverflowError):
                text = f"the store lists a file with a length or a time that is none: {error}"
                raise OSError(errno.EIO, text, location.shown) from None
            if isinstance(error, sqlite3.Error):
                text = f"{error}: a listing keeps its names there; set TMPDIR to a directory with enough space"
                raise OSError(errno.ENOSPC, text, location.shown) from None
            raise

    def close(self) -> None:
        """Remove the temporary file."""
        self._files.close()

    def __iter__(self) -> Iterator[Entry]:
        entries = (
            Entry(name := found.decode("utf-8", "surrogatepass"), self._location.join(name), *of_it)
            for found, *of_it in self._files.execute("select * from files order by name")
        )
        return apart(entries) if self._location.is_object else entries

    def size_of(self, name: str) -> int | None:
        """Length of a file in bytes, None if there is none."""
        found = self._files.execute("select size from files where name = ?", (_encoded(name),)).fetchone()
        return None if found is None else int(found[0])

    def has_below(self, directory: str) -> bool:
        """Whether there are files below this subdirectory."""
        # "0" follows "/" directly.
        between = _encoded(f"{directory}/"), _encoded(f"{directory}0")
        return self._files.execute("select 1 from files where name > ? and name < ?", between).fetchone() is not None


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")
