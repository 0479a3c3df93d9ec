"""Output files that appear whole or not at all.

    target directory:   (an unnamed file, or .NAME.TOKEN.ags1-tmp)   --commit: rename-->   NAME

Where the file system can (Linux: O_TMPFILE), the output has no name until it is complete, so that even SIGKILL leaves
nothing behind. Elsewhere it has a temporary name beside the target, which any exit but SIGKILL or a power cut removes.
"""

from __future__ import annotations

import os
import stat
import weakref

from ags1 import _descriptors
from ags1._typing import Buffer, Self

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
TEMPORARY_SUFFIX = ".ags1-tmp"


class AtomicFile:
    """A file that is written and then published under `path` by :meth:`commit`; its `descriptor` reads and writes.

    A symbolic link is followed: its target is replaced, not the link. A target that is no regular file (a FIFO, a
    device) cannot be replaced: it is written directly, and `seekable` is False. `mode` has the most permission bits
    that the file gets, from its creation on; by default those of the umask, or of the file that is replaced.
    """

    def __init__(self, path: str | bytes | os.PathLike[str] | os.PathLike[bytes], *, mode: int | None = None) -> None:
        self.name = os.fsdecode(path)
        self._target = os.path.realpath(self.name) if os.path.islink(self.name) else os.path.abspath(self.name)
        self._temporary: str | None = None
        self.seekable = True
        replaced = _mode_of(self._target, self.name)
        if replaced is not None and stat.S_ISDIR(replaced):
            raise IsADirectoryError(21, "Is a directory", self.name)
        if replaced is not None and not stat.S_ISREG(replaced):
            self.seekable = False
            self.descriptor = os.open(self._target, os.O_WRONLY | getattr(os, "O_CLOEXEC", 0))
        else:
            most = 0o666 if mode is None else stat.S_IMODE(mode) & 0o777
            self.descriptor, self._temporary = _create(self._target, self.name, most)
            if replaced is not None:
                os.fchmod(self.descriptor, stat.S_IMODE(replaced) & (0o7777 if mode is None else most))
        self._clean_up = weakref.finalize(self, _discard, self.descriptor, self._temporary, os.getpid())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.abort()

    def write(self, data: Buffer) -> None:
        """Write all of the data."""
        view = memoryview(data)
        while view:
            view = view[os.write(self.descriptor, view) :]

    def reserve(self, size: int) -> None:
        """Allocate the disk space now, so that a full disk is an error before the work and not after it."""
        if self.seekable:
            _descriptors.reserve(self.descriptor, size, self.name)

    def commit(self, *, durable: bool = False) -> None:
        """Publish the file under its name and replace what is there; with `durable`, it survives a power cut."""
        if self.seekable:
            if durable:
                os.fsync(self.descriptor)
            if self._temporary is not None or not self._link_new():
                assert self._temporary is not None
                os.replace(self._temporary, self._target)
            if durable:
                sync_path(os.path.dirname(self._target))
        self._clean_up.detach()
        os.close(self.descriptor)

    def commit_new(self, *, durable: bool = False) -> None:
        """Publish the file if its name is free. FileExistsError: the name is taken; abort this file."""
        if durable:
            os.fsync(self.descriptor)
        try:
            if self._temporary is None:
                _link(self.descriptor, self._target)
            else:
                os.link(self._temporary, self._target)
        except FileExistsError:
            raise FileExistsError(17, "File exists", self.name) from None
        if durable:
            sync_path(os.path.dirname(self._target))
        if self._temporary is None:
            self._clean_up.detach()
            os.close(self.descriptor)
        else:
            # This removes the temporary name only.
            self.abort()

    def _link_new(self) -> bool:
        """Give the unnamed file its name. If that is taken, give it a temporary name and return False."""
        try:
            _link(self.descriptor, self._target)
            return True
        except FileExistsError:
            pass
        temporary = temporary_name(self._target)
        _link(self.descriptor, temporary)
        self._temporary = temporary
        # If the rename fails, the temporary name must be removed.
        self._clean_up.detach()
        self._clean_up = weakref.finalize(self, _discard, self.descriptor, temporary, os.getpid())
        return False

    def abort(self) -> None:
        """Discard the file. Does nothing after :meth:`commit` or a first abort."""
        self._clean_up()


def _mode_of(path: str, name: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None
    except OSError as error:
        raise type(error)(error.errno, error.strerror, name) from None


def _create(target: str, name: str, permissions: int) -> tuple[int, str | None]:
    directory = os.path.dirname(target)
    if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
        try:
            return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, permissions), None
        except OSError:
            # The file system does not support it, or there is a real fault, which the next attempt reports.
            pass
    temporary = temporary_name(target)
    try:
        return os.open(temporary, _CREATE, permissions), temporary
    except OSError as error:
        raise type(error)(error.errno, error.strerror, name) from None


def temporary_name(target: str) -> str:
    """A new, unique name in the target's directory, for a file that will replace the target."""
    directory, base = os.path.split(target)
    # File systems allow names of at most 255 bytes.
    short = os.fsdecode(os.fsencode(base)[:200])
    return os.path.join(directory, f".{short}.{os.urandom(6).hex()}{TEMPORARY_SUFFIX}")


def _link(descriptor: int, path: str) -> None:
    """Give an unnamed file a name. os.link follows the link in /proc only with a directory descriptor."""
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=directory, follow_symlinks=True)
    finally:
        os.close(directory)


def sync_path(path: str) -> None:
    """Wait until a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _discard(descriptor: int, temporary: str | None, owner: int) -> None:
    # A forked child inherits the object, but the file is its parent's.
    os.close(descriptor)
    if temporary is not None and owner == os.getpid():
        try:
            os.unlink(temporary)
        except FileNotFoundError:
            pass
