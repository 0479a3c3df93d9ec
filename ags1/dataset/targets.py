"""Targets: write files into a local or remote tree. Links are not followed, and special files are not written to.

    new        an object with a unique name: written directly, because no reader opens it before the commit
    replaced   an existing file: written without a name or under a temporary one, and renamed when it is complete
    filled     a big file that several processes write ranges of: one of them begins and finishes it

Locally a file is made in a directory that :class:`ags1.storage.Directories` has entered. So a concurrent change of a
directory above it cannot redirect the write.
"""

from __future__ import annotations

import errno
import os
import stat
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ags1.core import descriptors as native_descriptors
from ags1.storage import (
    AtomicFile,
    Directories,
    LocalOutput,
    Location,
    Output,
    change_mode,
    make_parent,
    open_output,
)
from ags1.support.typing import Buffer

_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | _CLOEXEC
# Without O_NONBLOCK, opening a pipe would wait for its other end.
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | _CLOEXEC


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

    def write(self, path: str, data: Buffer, mode: int | None, modified: int | None = None) -> None:
        """As that of LocalTarget; there are no modes, and times are the store's."""
        self.write_new(path, data)

    def open(self, path: str, expected: int, mode: int | None, modified: int | None = None) -> Output:
        """As that of LocalTarget; there are no modes, and times are the store's."""
        return self.open_new(path, expected)


class LocalTarget:
    """A directory of this machine, made if it is missing. Use it from one thread."""

    is_local = True

    def __init__(self, root: str) -> None:
        self._directories = Directories(root, make=True)

    def close(self) -> None:
        """Give back the descriptors."""
        self._directories.close()

    def write_new(self, name: str, data: Buffer) -> None:
        """Write a whole object under a unique name. A failure leaves no part of it."""
        descriptor = -1
        try:
            descriptor = self._directories.open(name, _NEW, make=True)
            _write_all(descriptor, data)
        except BaseException as error:
            if descriptor >= 0 or not isinstance(error, OSError):
                # Ctrl-C may come when there is a file, and its descriptor is not known yet.
                self._directories.remove(name)
            if isinstance(error, OSError):
                raise self._directories.named(error, name) from None
            raise
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def open_new(self, name: str, expected: int) -> Output:
        """The same for a large object, written in pieces; `expected` is its length in bytes."""
        return self._new(name, expected, 0o666)

    def write(self, path: str, data: Buffer, mode: int | None, modified: int | None = None) -> None:
        """Write a whole file and replace what has its path.

        `mode` are the permission bits that it has at most, `modified` is when it was changed last, in nanoseconds.
        After a failure, the old file is unchanged.
        """
        try:
            with self._atomic(path, mode) as output:
                _write_all(output.descriptor, data)
                _publish(output, modified)
        except OSError as error:
            raise self._directories.named(error, path) from None

    def open(self, path: str, expected: int, mode: int | None, modified: int | None = None) -> Output:
        """The same for a large file, written in pieces."""
        return _reserved(_Replacing(self._atomic(path, mode), modified), expected)

    def begin(self, name: str, size: int, mode: int | None) -> None:
        """Make a file of `size` bytes under a new name; other processes :meth:`fill` it."""
        # The processes that fill it must be able to open it.
        self._new(name, size, 0o666 if mode is None else mode & 0o777 | 0o200).commit()

    def fill(self, name: str, start: int) -> Output:
        """Open a file that :meth:`begin` made, to write from an offset on."""
        descriptor = self._directories.open(name, _WRITE)
        output = _File(*self._directories.above(name), descriptor, self._directories.path(name))
        output.position = start
        return output

    def finish(self, name: str, path: str, mode: int | None, modified: int | None = None) -> None:
        """Rename a file that :meth:`begin` made to its path, and replace what has that path.

        After a failure, both files are unchanged.
        """
        with ExitStack() as opened:
            descriptor = self._directories.open(name, _WRITE)
            opened.callback(os.close, descriptor)
            source, temporary = self._directories.above(name)
            source = os.dup(source)
            opened.callback(os.close, source)
            directory, base = self._directories.above(path, make=True)
            try:
                _narrow(directory, base, descriptor, None if mode is None else mode & 0o777)
                if mode is not None and not mode & 0o200:
                    change_mode(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) & ~0o200)
                if modified is not None:
                    os.utime(descriptor, ns=(modified, modified))
                os.rename(temporary, base, src_dir_fd=source, dst_dir_fd=directory)
            except OSError as error:
                raise self._directories.named(error, path) from None

    def _new(self, name: str, expected: int, permissions: int) -> Output:
        return _reserved(_NewFile(self._directories, name, permissions), expected)

    def _atomic(self, path: str, mode: int | None) -> AtomicFile:
        directory, _ = self._directories.above(path, make=True)
        return AtomicFile(self._directories.path(path), mode=mode, directory=directory)


def _write_all(descriptor: int, data: Buffer) -> None:
    done = os.write(descriptor, data)
    view = memoryview(data)
    while done < view.nbytes:
        done += os.write(descriptor, view[done:])


class _Replacing(LocalOutput):
    """A file that replaces another one, or nothing, when it is complete."""

    def __init__(self, atomic: AtomicFile, modified: int | None) -> None:
        super().__init__(atomic)
        self._modified = modified

    def _publish(self, durable: bool) -> None:
        _publish(self._atomic, self._modified, durable)


def _publish(output: AtomicFile, modified: int | None, durable: bool = False) -> None:
    if modified is not None:
        os.utime(output.descriptor, ns=(modified, modified))
    output.commit(durable=durable)


class _File(Output):
    """A file in an open directory. Another process has begun it, and finishes or removes it."""

    descriptor: int

    def __init__(self, directory: int, base: str, descriptor: int, path: str) -> None:
        self._directory = os.dup(directory)
        self.descriptor = descriptor
        self._base = base
        self.name = self.path = path

    def reserve(self, size: int) -> None:
        """Allocate the disk space; all of it is written later."""
        native_descriptors.reserve(self.descriptor, size, self.path)

    def _commit(self, durable: bool) -> None:
        self._close()

    def _abort(self, mark: bytes) -> None:
        self._close()

    def _close(self) -> None:
        os.close(self.descriptor)
        os.close(self._directory)


class _NewFile(_File):
    """An object that has its final name from the beginning. It is removed unless it is committed."""

    def __init__(self, directories: Directories, name: str, permissions: int) -> None:
        directory, base = directories.above(name, make=True)
        # Before there is a file, because Ctrl-C may come at any moment after that.
        self._removal = weakref.finalize(self, _remove, os.dup(directory), base, os.getpid())
        try:
            descriptor = directories.open(name, _NEW, permissions)
        except FileExistsError:
            self._keep()
            raise
        super().__init__(directory, base, descriptor, directories.path(name))

    def _keep(self) -> None:
        kept = self._removal.detach()
        assert kept is not None
        os.close(kept[2][0])

    def _commit(self, durable: bool) -> None:
        self._keep()
        self._close()

    def _abort(self, mark: bytes) -> None:
        try:
            self._removal()
        finally:
            self._close()


def _remove(directory: int, base: str, owner: int) -> None:
    try:
        # A forked child inherits the object, but the file is its parent's.
        if owner == os.getpid():
            os.unlink(base, dir_fd=directory)
    except FileNotFoundError:
        pass
    finally:
        os.close(directory)


def _narrow(directory: int, base: str, descriptor: int, most: int | None) -> None:
    """Give a file no more permissions than the one that it replaces."""
    try:
        seen = os.stat(base, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISREG(seen.st_mode):
        change_mode(descriptor, stat.S_IMODE(seen.st_mode) & (0o7777 if most is None else most))


def _reserved(output: Output, expected: int) -> Output:
    try:
        output.reserve(expected)
    except BaseException:
        output.abort()
        raise
    return output
