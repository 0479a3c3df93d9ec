"""The directories of a tree that is written: each made before its files, with the mode of the directory that it copies.

make("raw", 0o500)  -->  mkdir: 0o700, as the umask allows  -->  files  -->  finish(): 0o500, as the umask allows
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from ags1.storage.directories import Directories, change_mode
from ags1.storage.listing import make_parent
from ags1.storage.location import Location
from ags1.support.closing import Closing

_OWNER = 0o700
_OTHERS = 0o077
# With the sticky bit: without it, whoever may write in the directory could remove the files of others.
_KEPT = 0o1777


class TreeDirectories(Closing):
    """The directories of a local tree. Use it from one thread. Behind a URL nothing is made.

    A directory never gets more permissions than the umask allows. One that exists keeps its mode, but for one that a
    run before this has made. No link below the root is followed.

    Parameters
    ----------
    root : Location
        It is made if it is missing.
    mode : int, optional
        Of a new root, by default what the umask allows.
    """

    def __init__(self, root: Location, mode: int | None = None) -> None:
        self._directories: Directories | None = None
        # Directories whose owner may not do everything in them when they are complete.
        self._narrow: dict[str, int] = {}
        if not root.is_local:
            return
        path = os.path.abspath(root.path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            os.mkdir(path, _while_written(mode))
            self._narrow_later("", mode)
            self._directories = Directories(root.path)
        except FileExistsError:
            self._directories = Directories(root.path)
            self._reopen("", mode)

    def close(self) -> None:
        """Give back the descriptors."""
        if self._directories is not None:
            self._directories.close()

    def make(self, name: str, mode: int | None, modified: int | None = None) -> None:
        """Make a directory below the root, after those above it.

        `mode` are the permission bits that it has at most, by default what the umask allows. `modified` is when it was
        changed last, in nanoseconds, which lasts while it is empty. NotADirectoryError: a link or a file is in its
        place.
        """
        if self._directories is None:
            return
        above, base = self._directories.above(name, make=True)
        try:
            os.mkdir(base, _while_written(mode), dir_fd=above)
            if modified is not None:
                os.utime(base, ns=(modified, modified), dir_fd=above, follow_symlinks=False)
            self._narrow_later(name, mode)
        except FileExistsError:
            self._reopen(name, mode)
        except OSError as error:
            raise self._directories.named(error, name) from None

    def finish(self) -> None:
        """Take from the owner of each directory what its mode does not give, from the deepest directory upwards."""
        for name in sorted(self._narrow, reverse=True):
            with suppress(FileNotFoundError, NotADirectoryError):
                seen, directory = self._enter(name)
                change_mode(".", seen & (self._narrow[name] | ~_OWNER), directory)

    def _narrow_later(self, name: str, mode: int | None) -> None:
        if mode is not None and mode & _OWNER != _OWNER:
            self._narrow[name] = mode

    def _reopen(self, name: str, mode: int | None) -> None:
        """Let the owner write into a directory that an earlier run has made, and perhaps finished."""
        seen, directory = self._enter(name)
        if mode is None or mode & _OWNER == _OWNER or (not name and seen & _OWNER == _OWNER):
            return
        # One that others may use in a way that the mode does not allow is not of an earlier run.
        if not seen & _OTHERS & ~mode:
            self._narrow[name] = mode & (seen | ~_OWNER)
            change_mode(".", seen | _OWNER, directory)

    def _enter(self, name: str) -> tuple[int, int]:
        """The mode of a directory, and its descriptor."""
        assert self._directories is not None
        directory = self._directories.enter(name)
        return stat.S_IMODE(os.fstat(directory).st_mode), directory


def _while_written(mode: int | None) -> int:
    return 0o777 if mode is None else mode & _KEPT | _OWNER


def directory_mode(directory: Location) -> int | None:
    """Permission bits of a local directory; None for anything else, and if it is missing."""
    is_directory = directory.is_local and os.path.isdir(directory.path)
    return stat.S_IMODE(os.stat(directory.path).st_mode) if is_directory else None


def make_parent_like(target: Location, source: Location) -> None:
    """Make the directory of a file, and those above it; a new one below a root gets the mode of the source's."""
    directory = Location(os.path.dirname(os.path.abspath(source.path)))
    if target.root is not None and source.is_local:
        mode = directory_mode(directory)
        with TreeDirectories(Location(target.root), mode) as made:
            names = target.name_below.split("/")[:-1]
            for count in range(len(names)):
                made.make("/".join(names[: count + 1]), mode)
    else:
        make_parent(target)


@contextmanager
def directories_like(
    source: Location | None, target: Location, files: Iterable[tuple[str, Location]]
) -> Iterator[None]:
    """Make a target, and directories in it, with the modes of those of the sources; finish them after the body.

    `source` is the directory that becomes the target, if it is one. `files` have their names in the target and their
    sources, which have the same directories above them.
    """
    above: dict[str, str] = {}
    for name, place in files if target.is_local else ():
        path = place.path
        while place.is_local and (name := name.rpartition("/")[0]) and name not in above:
            above[name] = path = os.path.dirname(path)
    with TreeDirectories(target, None if source is None else directory_mode(source)) as made:
        for name in sorted(above):
            # What writes a file into it says what is wrong.
            with suppress(OSError):
                made.make(name, directory_mode(Location(above[name])))
        yield
        made.finish()


# -- a file that has the name of a directory of another file: an object store holds both, a directory cannot --------


class Twins:
    """Finds files that would be directories above other files. Names come sorted; each belongs to a side."""

    def __init__(self) -> None:
        # Each name is a prefix of the next one.
        self._prefixes: list[tuple[str, bool]] = []

    def above(self, name: str, side: bool = True) -> list[tuple[str, bool]]:
        """The earlier names, with their sides, that would be directories above this one."""
        while self._prefixes and not name.startswith(self._prefixes[-1][0]):
            self._prefixes.pop()
        found = [each for each in self._prefixes if name.startswith(f"{each[0]}/")]
        self._prefixes.append((name, side))
        return found

    def above_on_other_side(self, name: str, side: bool) -> str | None:
        """The first of these names that belongs to the other side."""
        return next((each for each, other in self.above(name, side) if other != side), None)


def refuse_twins(names: Iterable[str], target: Location) -> None:
    """Refuse a tree that a target with directories cannot hold, before anything is written; `names` are sorted.

    NotADirectoryError: one file has the name of a directory of another file.
    """
    if target.is_object:
        return
    twins = Twins()
    for name in names:
        for above, _ in twins.above(name):
            text = (
                f"{above} and {name} cannot both be written here, because {above} would be a file and a directory; "
                "nothing was written: leave one of the two out, or write to an object store"
            )
            raise NotADirectoryError(errno.ENOTDIR, text, target.shown)
