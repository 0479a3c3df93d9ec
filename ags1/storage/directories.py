"""Directories below a root, each opened relative to the one above it, so that no link below the root is followed.

    root (as the caller names it; it may be reached through a link)
     +-- descriptor --openat, O_NOFOLLOW--> descriptor --openat, O_NOFOLLOW--> file: opened, made, looked at, removed

Whoever can write below the root can put links, pipes and devices there, also between a listing and what follows it.
None of them leads out of the root here: a link in the way of a directory is refused, a link in the place of a file is
not opened, and a pipe is not waited for.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ags1.storage.location import Location
from ags1.support.closing import Closing

_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | _CLOEXEC
"""Flags for a directory that other files are opened in."""
# Without O_NONBLOCK, opening a pipe would wait for its other end.
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | _CLOEXEC
"""Flags for a file that is read; look whether it is a regular one."""
_IS_DIRECTORY, _IS_FILE, _IS_OTHER = "directory", "file", "other"
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | _CLOEXEC


Seen = tuple[str, bool, "os.stat_result | None"]
"""What a walk found: the name relative to the root, whether it is a regular file, and its status if that was wanted."""


class Directories(Closing):
    """The directories below a root. Use it from one thread; it holds two descriptors until it is closed.

    Names are relative to the root, with ``/`` between their parts. Errors name the path.
    """

    def __init__(self, root: str, *, make: bool = False) -> None:
        self.root = root
        try:
            self._top = os.open(root or ".", DIRECTORY)
        except FileNotFoundError:
            if not make:
                raise
            os.makedirs(root, exist_ok=True)
            self._top = os.open(root, DIRECTORY)
        self._name = ""
        self._current = self._top

    def close(self) -> None:
        """Give back the descriptors."""
        if self._current != self._top:
            os.close(self._current)
        os.close(self._top)

    def enter(self, name: str, *, make: bool = False) -> int:
        """The descriptor of a directory, "" for the root; valid until the next call of any method.

        With `make`, it is made if it is missing. NotADirectoryError: a link or a file is in the way.
        """
        if name == self._name:
            return self._current
        if self._current != self._top:
            os.close(self._current)
        self._name, self._current = "", self._top
        current = self._top
        try:
            for part in name.split("/") if name else ():
                following = _enter_one(current, part, make)
                if current != self._top:
                    os.close(current)
                current = following
        except BaseException as error:
            if current != self._top:
                os.close(current)
            if isinstance(error, OSError):
                raise self.named(error, name) from None
            raise
        self._name, self._current = name, current
        return current

    def above(self, name: str, *, make: bool = False) -> tuple[int, str]:
        """The descriptor of the directory of a file, as of :meth:`enter`, and the last part of its name."""
        directory, _, base = name.rpartition("/")
        if base in ("", ".", ".."):
            raise OSError(errno.EINVAL, "names no file below a directory", self.path(name))
        return self.enter(directory, make=make), base

    def open(self, name: str, flags: int, mode: int = 0o666, *, make: bool = False) -> int:
        """Open a file and return its descriptor; a link is not followed."""
        directory, base = self.above(name, make=make)
        try:
            return os.open(base, flags | os.O_NOFOLLOW, mode, dir_fd=directory)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._no_file(name) from None
            raise self.named(error, name) from None

    def open_regular(self, name: str) -> int:
        """Open a regular file to read it. OSError EINVAL: it is a link, a pipe, a socket or a device."""
        return self._open_regular(name)[0]

    def _open_regular(self, name: str) -> tuple[int, int]:
        """The descriptor of a regular file, and its length."""
        descriptor = self.open(name, READ)
        try:
            found = os.fstat(descriptor)
            if stat.S_ISDIR(found.st_mode):
                raise IsADirectoryError(errno.EISDIR, "Is a directory", self.path(name))
            if not stat.S_ISREG(found.st_mode):
                raise self._no_file(name)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, found.st_size

    def read(self, name: str, most: int) -> bytes:
        """Read up to `most` bytes of a regular file. OSError EINVAL: as of :meth:`open_regular`."""
        descriptor, size = self._open_regular(name)
        try:
            return read_descriptor(descriptor, size, most)
        except OSError as error:
            raise self.named(error, name) from None
        finally:
            os.close(descriptor)

    def status(self, name: str) -> os.stat_result:
        """The status of a regular file. OSError EINVAL: as of :meth:`open_regular`."""
        directory, base = self.above(name)
        try:
            found = os.stat(base, dir_fd=directory, follow_symlinks=False)
        except OSError as error:
            raise self.named(error, name) from None
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", self.path(name))
        if not stat.S_ISREG(found.st_mode):
            raise self._no_file(name)
        return found

    def walk(self, name: str = "", *, stats: bool = True) -> Iterator[Seen]:
        """Yield everything below a directory but the directories, in the order of the bytes of whole names.

        A directory that is removed meanwhile has no files; the first one has to exist. Without `stats`, no file is
        looked at.
        """
        waiting = [(name, iter(self._listed(name, stats)))]
        while waiting:
            above, listed = waiting[-1]
            found = next(listed, None)
            if found is None:
                waiting.pop()
                continue
            last, kind, status = found
            whole = f"{above}/{last}" if above else last
            if kind != _IS_DIRECTORY:
                yield whole, kind == _IS_FILE, status
                continue
            try:
                waiting.append((whole, iter(self._listed(whole, stats))))
            except (FileNotFoundError, NotADirectoryError):
                # It was removed, or exchanged for something else, since its parent was listed.
                continue

    def names(self, name: str = "") -> list[str]:
        """What is directly in a directory, except the directories."""
        return [last for last, kind, _ in self._listed(name, False) if kind != _IS_DIRECTORY]

    def _listed(self, name: str, stats: bool) -> list[tuple[str, str, os.stat_result | None]]:
        directory = self.enter(name)
        try:
            # `directory` names a place, and cannot be listed.
            descriptor = os.open(".", _LIST, dir_fd=directory)
            try:
                with os.scandir(descriptor) as listing:
                    found = [each for entry in listing for each in _kind_of(entry, stats)]
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self.named(error, name) from None
        # With the slash, a depth-first walk is in the order of whole names.
        return sorted(found, key=lambda each: os.fsencode(f"{each[0]}/" if each[1] == _IS_DIRECTORY else each[0]))

    def remove(self, name: str) -> None:
        """Remove a file, or a link itself, if it is there."""
        try:
            directory, base = self.above(name)
            os.unlink(base, dir_fd=directory)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self.named(error, name) from None

    def remove_directory(self, name: str) -> bool:
        """Remove a directory if it is empty; return whether it was removed."""
        try:
            directory, base = self.above(name)
            os.rmdir(base, dir_fd=directory)
        except OSError:
            return False
        return True

    def sync(self, name: str) -> None:
        """Wait until the names in a directory are on the disk."""
        descriptor = os.open(".", _LIST, dir_fd=self.enter(name))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def path(self, name: str) -> str:
        """The path of a name, for messages."""
        return os.path.join(self.root, name)

    def named(self, error: OSError, name: str) -> OSError:
        """The error with the path of a name."""
        path = self.path(name)
        if error.filename is not None and str(error.filename).startswith(path):
            return error
        return OSError(error.errno, error.strerror, path)

    def _no_file(self, name: str) -> OSError:
        return OSError(errno.EINVAL, "is a link, a pipe or a device, and not a regular file", self.path(name))


def _kind_of(entry: os.DirEntry[str], stats: bool) -> Iterator[tuple[str, str, os.stat_result | None]]:
    try:
        if entry.is_dir(follow_symlinks=False):
            yield entry.name, _IS_DIRECTORY, None
        elif not entry.is_file(follow_symlinks=False):
            yield entry.name, _IS_OTHER, None
        else:
            yield entry.name, _IS_FILE, entry.stat(follow_symlinks=False) if stats else None
    except FileNotFoundError:
        # It was removed since it was listed.
        return


def _enter_one(above: int, name: str, make: bool) -> int:
    """Open a directory in another one; make it if it is missing."""
    if name in ("", ".", ".."):
        raise OSError(errno.EINVAL, f"{name!r} is no name of a directory below another")
    for _ in range(2):
        try:
            return os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        except FileNotFoundError:
            if not make:
                raise
            try:
                os.mkdir(name, dir_fd=above)
            except FileExistsError:
                # Another process has just made it.
                pass
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            # A link: what is reached through it is not below the root.
            text = f"{name} is a link or a file, and in the way of a directory of that name: move it away"
            raise NotADirectoryError(errno.ENOTDIR, text) from None
    return os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=above)


def change_mode(place: int | str, mode: int, directory: int | None = None) -> None:
    """Change the mode of a file or directory that is ours, of a descriptor or a name in a directory.

    It stays as it is where the file system has no modes, and refuses what it cannot store.
    """
    with suppress(PermissionError):
        os.chmod(place, mode, dir_fd=directory)


def read_descriptor(descriptor: int, size: int, most: int) -> bytes:
    """Read up to `most` bytes of a regular file that had this size."""
    # One byte more shows whether the file grew; for an unchanged one, one call is enough.
    pieces = [os.read(descriptor, min(most, size + 1))]
    done = len(pieces[0])
    while pieces[-1] and done not in (size, most):
        pieces.append(os.read(descriptor, min(most - done, 1 << 20)))
        done += len(pieces[-1])
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@contextmanager
def below(location: Location, *, make: bool = False) -> Iterator[tuple[Directories, str]]:
    """The directories below the root of a local location, and its name among them; `make` makes the root."""
    assert location.root is not None
    with Directories(location.root, make=make) as directories:
        yield directories, location.name_below
