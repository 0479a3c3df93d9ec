"""What tasks and the driver do to a tree: list it, read from it, and put whole files into it.

:class:`Storage` is made for a location and is then one of two: :class:`~ags1.spark._local_storage.LocalStorage`, which
goes by way of :mod:`os`, or :class:`~ags1.spark._remote_storage.RemoteStorage`, by way of fsspec. Paths are relative to
the tree, with ``/`` between their components, as they are in a manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from ags1.dataset._control import CONTROL
from ags1.dataset._tree import Filter
from ags1.spark._locations import Location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    from typing_extensions import Self

    Skipped: TypeAlias = Callable[[str, str], object]

__all__ = ["Listed", "Storage"]


@dataclass(frozen=True, slots=True)
class Listed:
    """A file of a tree.

    Attributes
    ----------
    path : str
        Relative to the tree.
    size : int
        Bytes.
    mtime_ns : int
        When it was last written, in nanoseconds since the epoch; 0 where the storage does not say. S3 tells it in whole
        seconds, and so it is here.
    error : OSError or None
        Why this file, or this directory with all that is in it, could not be looked at.
    """

    path: str
    size: int
    mtime_ns: int
    error: OSError | None = None


class Storage:
    """A tree at a location.

    Parameters
    ----------
    location : Location
        Where it is; it need not exist yet.

    Notes
    -----
    Can be pickled and forked, and used by several threads at once; whoever gets a copy opens the file system anew.
    If the location is a single file, the tree has that file under its own name, as an encrypted dataset would.
    """

    def __new__(cls, location: Location) -> Self:
        """Make the kind of storage that the location needs."""
        kind: Any = cls
        if cls is Storage:
            # Each of the two is a Storage, so neither can be imported before this class exists.
            if location.is_local:
                from ags1.spark._local_storage import LocalStorage as kind
            else:
                from ags1.spark._remote_storage import RemoteStorage as kind
        made: Self = super().__new__(kind)
        return made

    def __init__(self, location: Location) -> None:
        self.location = location
        self._is_one_file: bool | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Storage, (self.location,)

    def __repr__(self) -> str:
        return f"Storage({self.location!r})"

    # -- reading ---------------------------------------------------------------------------------------------------

    def walk(self, wanted: Filter, skipped: Skipped | None = None, below: str = "") -> Iterator[Listed]:
        """Every file that is meant, sorted by the bytes of the paths.

        Parameters
        ----------
        wanted : Filter
            Compared with the paths relative to the tree.
        skipped : callable, optional
            Called with the path and the reason of what is left out: links to directories, pipes, names that cannot be
            paths. The control directory is left out without a word.
        below : str
            Only what is in this directory; it may be one in the control directory. Paths stay relative to the tree.

        Raises
        ------
        FileNotFoundError
            There is no tree, or no such directory.
        ValueError
            A file has the name of the control directory.
        OSError
            The tree itself cannot be looked at; what cannot be in it has an `error`.
        """
        raise NotImplementedError

    def stat(self, path: str) -> Listed:
        """Look at one file.

        Raises
        ------
        FileNotFoundError
            It is not there.
        IsADirectoryError
            It is a directory.
        """
        raise NotImplementedError

    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory; a storage that does not answer is an OSError, not a no."""
        raise NotImplementedError

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Read exactly `size` bytes at `offset`.

        Raises
        ------
        TruncatedError
            The file ends before.
        FileNotFoundError
            It is not there.
        """
        raise NotImplementedError

    def opened(self, path: str) -> Any:
        """What :class:`ags1.Reader` and :func:`ags1.encrypt_file` take as a source."""
        raise NotImplementedError

    def names(self, directory: str) -> list[str]:
        """Names of all that is in a directory, sorted; none if it is missing."""
        raise NotImplementedError

    # -- writing ---------------------------------------------------------------------------------------------------

    def publish(self, path: str, data: bytes | memoryview) -> None:
        """Put a small file in place, whole or not at all, with the directories above it; an older one is replaced.

        Any number of attempts may do so at once: each replaces the whole file.
        """
        raise NotImplementedError

    def target(self, path: str) -> AbstractContextManager[Any]:
        """What :func:`ags1.encrypt_file` and :func:`ags1.decrypt_file` take as a target, for a ``with`` statement.

        The file appears when the statement ends, and an exception in it leaves the old one, or none.
        """
        raise NotImplementedError

    def ensure_parent(self, path: str) -> None:
        """Make the directories above a path, where the storage has any."""
        raise NotImplementedError

    def move(self, source: str, target: str) -> None:
        """Give a file another path, replacing what is there.

        Locally in one step. Elsewhere it is copied, then removed: an interrupted one leaves both, and can be repeated.
        """
        raise NotImplementedError

    def move_tree(self, source: str, target: str) -> None:
        """Move all files of a directory into another, replacing those of the same names.

        Whatever interrupts it, doing it again finishes it; a source that is missing has been moved.
        """
        raise NotImplementedError

    def remove(self, path: str) -> None:
        """Remove a file, if there is one."""
        raise NotImplementedError

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it, if there is one."""
        raise NotImplementedError

    # -- the control directory -------------------------------------------------------------------------------------

    def write_control(self, name: str, data: bytes) -> None:
        """Put a small file into the control directory as :meth:`publish` does, locally waiting for the disk."""
        raise NotImplementedError

    def read_control(self, name: str) -> bytes:
        """All of a file in the control directory.

        Raises
        ------
        FileNotFoundError
            There is none.
        """
        return self.read_whole(f"{CONTROL}/{name}")

    def read_whole(self, path: str) -> bytes:
        """Read all of a file, whatever its length is.

        Raises
        ------
        FileNotFoundError
            It is not there.
        """
        raise NotImplementedError

    # -- a tree that is one file -----------------------------------------------------------------------------------

    def _where(self, path: str) -> str:
        """Where to read a file from: the location itself if that is a file of this name."""
        root = self.location.root
        if path == root.rpartition("/")[2]:
            if self._is_one_file is None:
                self._is_one_file = self._is_file(root)
            if self._is_one_file:
                return root
        return self.location.join(path)

    def _is_file(self, path: str) -> bool:
        raise NotImplementedError
