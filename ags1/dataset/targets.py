"""Targets: write files into a local or remote tree. Links are not followed, and special files are not written to.

    new        an object with a unique name: written directly, because no reader opens it before the commit
    replaced   an existing file: written without a name or under a temporary one, and renamed when it is complete
    filled     a big file that several processes write ranges of: one of them begins and finishes it

Locally each directory is opened relative to its parent, without following links, and files are made inside it. So a
concurrent change of a directory above it cannot redirect the write.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ags1 import _descriptors
from ags1._typing import Buffer
from ags1.storage import Location, Output, make_parent, open_output, temporary_name

__all__ = ["LocalTarget", "RemoteTarget", "open_target"]

_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | _CLOEXEC
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | _CLOEXEC
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | _CLOEXEC
# Errors of open() where a file system, or an old kernel, has no unnamed files.
_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)


@contextmanager
def open_target(location: Location) -> Iterator[LocalTarget | RemoteTarget]:
    """Open a target; a directory that does not exist is made."""
    if not location.is_local:
        yield RemoteTarget(location)
        return
    target = LocalTarget(location.path)
    try:
        yield target
    finally:
        target.close()


class RemoteTarget:
    """A prefix in an object store, or a directory of another file system. Safe to use from several threads.

    Its methods are those of :class:`LocalTarget`. Permissions do not exist, and only a LocalTarget has files that
    several processes fill.
    """

    is_local = False

    def __init__(self, location: Location) -> None:
        self._location = location
        self._made: set[str] = set()

    def write_new(self, name: str, data: Buffer) -> None:
        """As that of LocalTarget."""
        with self.open_new(name, memoryview(data).nbytes) as output:
            output.write_owned(data)
            output.commit()

    def open_new(self, name: str, expected: int) -> Output:
        """As that of LocalTarget."""
        place = self._location.join(name)
        try:
            name.encode()
        except UnicodeEncodeError:
            text = "its name is not UTF-8, which object stores need: decrypt it into a local directory"
            raise OSError(errno.EILSEQ, text, repr(name)) from None
        above = name.rpartition("/")[0]
        if above not in self._made:
            make_parent(place)
            self._made.add(above)
        return open_output(place, expected=expected)

    def write(self, path: str, data: Buffer, mode: int | None) -> None:
        """As that of LocalTarget; there are no modes."""
        self.write_new(path, data)

    def open(self, path: str, expected: int, mode: int | None) -> Output:
        """As that of LocalTarget; there are no modes."""
        return self.open_new(path, expected)


class LocalTarget:
    """A directory of this machine, made if it is missing. Use it from one thread."""

    is_local = True

    def __init__(self, root: str) -> None:
        self._root = root
        try:
            self._top = os.open(root, _DIRECTORY)
        except FileNotFoundError:
            os.makedirs(root, exist_ok=True)
            self._top = os.open(root, _DIRECTORY)
        self._name = ""
        self._current = self._top
        self._unnamed = hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd")

    def close(self) -> None:
        """Give back the descriptors."""
        if self._current != self._top:
            os.close(self._current)
        os.close(self._top)

    def write_new(self, name: str, data: Buffer) -> None:
        """Write a whole object under a unique name. A failure leaves no part of it."""
        above, _, base = name.rpartition("/")
        try:
            directory = self._current if above == self._name else self._enter(above)
            descriptor = os.open(base, _NEW, 0o666, dir_fd=directory)
        except OSError as error:
            raise self._named(error, name) from None
        try:
            _write_all(descriptor, data)
        except BaseException as error:
            os.unlink(base, dir_fd=directory)
            if isinstance(error, OSError):
                raise self._named(error, name) from None
            raise
        finally:
            os.close(descriptor)

    def open_new(self, name: str, expected: int) -> Output:
        """The same for a large object, written in pieces; `expected` is its length in bytes."""
        above, _, base = name.rpartition("/")
        try:
            directory = self._enter(above)
            descriptor = os.open(base, _NEW, 0o666, dir_fd=directory)
        except OSError as error:
            raise self._named(error, name) from None
        return _reserved(_NewFile(directory, descriptor, base, os.path.join(self._root, name)), expected)

    def write(self, path: str, data: Buffer, mode: int | None) -> None:
        """Write a whole file and replace what has its path; `mode` are the permission bits that it has at most.

        After a failure, the old file is unchanged.
        """
        output = self._open(path, mode)
        try:
            _write_all(output.descriptor, data)
            output.commit()
        except OSError as error:
            raise self._named(error, path) from None
        finally:
            output.abort()

    def open(self, path: str, expected: int, mode: int | None) -> Output:
        """The same for a large file, written in pieces."""
        return _reserved(self._open(path, mode), expected)

    def begin(self, name: str, size: int, mode: int | None) -> None:
        """Make a file of `size` bytes under a new name; other processes :meth:`fill` it."""
        above, _, base = name.rpartition("/")
        try:
            directory = self._enter(above)
            # The processes that fill it must be able to open it.
            descriptor = os.open(base, _NEW, 0o666 if mode is None else mode & 0o777 | 0o200, dir_fd=directory)
        except OSError as error:
            raise self._named(error, name) from None
        _reserved(_NewFile(directory, descriptor, base, os.path.join(self._root, name)), size).commit()

    def fill(self, name: str, start: int) -> Output:
        """Open a file that :meth:`begin` made, to write from an offset on."""
        above, _, base = name.rpartition("/")
        try:
            directory = self._enter(above, make=False)
            descriptor = os.open(base, _WRITE, dir_fd=directory)
        except OSError as error:
            raise self._named(error, name) from None
        output = _File(directory, descriptor, base, os.path.join(self._root, name))
        output.position = start
        return output

    def finish(self, name: str, path: str, mode: int | None) -> None:
        """Rename a file that :meth:`begin` made to its path, and replace what has that path.

        After a failure, both files are unchanged.
        """
        (inside, _, temporary), (above, _, base) = name.rpartition("/"), path.rpartition("/")
        with ExitStack() as opened:
            try:
                source = os.dup(self._enter(inside, make=False))
                opened.callback(os.close, source)
                descriptor = os.open(temporary, _WRITE, dir_fd=source)
                opened.callback(os.close, descriptor)
                directory = self._enter(above)
                _narrow(directory, base, descriptor, None if mode is None else mode & 0o777)
                if mode is not None and not mode & 0o200:
                    os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) & ~0o200)
                os.rename(temporary, base, src_dir_fd=source, dst_dir_fd=directory)
            except OSError as error:
                raise self._named(error, path) from None

    def _open(self, path: str, mode: int | None) -> _ReplacedFile:
        above, _, base = path.rpartition("/")
        permissions = 0o666 if mode is None else mode & 0o777
        temporary: str | None = None
        try:
            directory = self._enter(above)
            descriptor = self._open_unnamed(directory, permissions)
            if descriptor is None:
                temporary = temporary_name(base)
                descriptor = os.open(temporary, _NEW, permissions, dir_fd=directory)
        except OSError as error:
            raise self._named(error, path) from None
        most = None if mode is None else permissions
        return _ReplacedFile(directory, descriptor, base, temporary, most, os.path.join(self._root, path))

    def _open_unnamed(self, directory: int, permissions: int) -> int | None:
        if self._unnamed:
            try:
                return os.open(".", os.O_TMPFILE | os.O_WRONLY | _CLOEXEC, permissions, dir_fd=directory)
            except OSError as error:
                if error.errno not in _NO_UNNAMED:
                    raise
                self._unnamed = False
        return None

    def _enter(self, name: str, *, make: bool = True) -> int:
        """The descriptor of a directory, which is made if it is missing; valid until the next call."""
        if name == self._name:
            return self._current
        if self._current != self._top:
            os.close(self._current)
        self._name, self._current = "", self._top
        current = self._top
        try:
            for part in name.split("/") if name else ():
                below = _enter_one(current, part, make)
                if current != self._top:
                    os.close(current)
                current = below
        except BaseException:
            if current != self._top:
                os.close(current)
            raise
        self._name, self._current = name, current
        return current

    def _named(self, error: OSError, name: str) -> OSError:
        path = os.path.join(self._root, name)
        return error if error.filename == path else OSError(error.errno, error.strerror, path)


def _enter_one(above: int, name: str, make: bool) -> int:
    """Open a directory in another one; make it if it is missing."""
    for _ in range(2):
        try:
            return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
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
            # A link: a file that is written through it would not be in the tree.
            text = f"{name} is in the way of a directory of that name"
            raise NotADirectoryError(errno.ENOTDIR, text) from None
    return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=above)


def _write_all(descriptor: int, data: Buffer) -> None:
    done = os.write(descriptor, data)
    view = memoryview(data)
    while done < view.nbytes:
        done += os.write(descriptor, view[done:])


class _File(Output):
    """A file in an open directory. Another process has begun it, and finishes or removes it."""

    descriptor: int

    def __init__(self, directory: int, descriptor: int, base: str, path: str) -> None:
        self._directory = os.dup(directory)
        self.descriptor = descriptor
        self._base = base
        self.name = self.path = path

    def reserve(self, size: int) -> None:
        """Allocate the disk space; all of it is written later."""
        _descriptors.reserve(self.descriptor, size, self.path)

    def _commit(self, durable: bool) -> None:
        self._close()

    def _abort(self, mark: bytes) -> None:
        self._close()

    def _close(self) -> None:
        os.close(self.descriptor)
        os.close(self._directory)


class _NewFile(_File):
    """An object that has its final name from the beginning."""

    def _abort(self, mark: bytes) -> None:
        try:
            os.unlink(self._base, dir_fd=self._directory)
        finally:
            self._close()


class _ReplacedFile(_File):
    """A file that gets its name when it is complete."""

    def __init__(
        self, directory: int, descriptor: int, base: str, temporary: str | None, most: int | None, path: str
    ) -> None:
        super().__init__(directory, descriptor, base, path)
        self._temporary = temporary
        self._most = most

    def _commit(self, durable: bool) -> None:
        if self._temporary is not None or not self._link(self._base):
            _narrow(self._directory, self._base, self.descriptor, self._most)
            if self._temporary is None:
                temporary = temporary_name(self._base)
                self._link(temporary)
                self._temporary = temporary
            # The path itself is replaced, also a link or a pipe; never the target of a link.
            os.rename(self._temporary, self._base, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        self._close()

    def _link(self, name: str) -> bool:
        """Give the unnamed file a name; return False if the name exists."""
        unnamed = f"/proc/self/fd/{self.descriptor}"
        try:
            # Python follows the link in /proc only if a directory descriptor is given.
            os.link(unnamed, name, src_dir_fd=self._directory, dst_dir_fd=self._directory, follow_symlinks=True)
        except FileExistsError:
            return False
        return True

    def _abort(self, mark: bytes) -> None:
        try:
            if self._temporary is not None:
                os.unlink(self._temporary, dir_fd=self._directory)
        finally:
            self._close()


def _narrow(directory: int, base: str, descriptor: int, most: int | None) -> None:
    """Give a file no more permissions than the one that it replaces."""
    try:
        seen = os.stat(base, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISREG(seen.st_mode):
        os.fchmod(descriptor, stat.S_IMODE(seen.st_mode) & (0o7777 if most is None else most))


def _reserved(output: _File, expected: int) -> Output:
    try:
        output.reserve(expected)
    except BaseException:
        output.abort()
        raise
    return output
