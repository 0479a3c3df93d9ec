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

__all__ = ["AtomicFile"]

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
TEMPORARY_SUFFIX = ".ags1-tmp"


class AtomicFile:
    """A file being written, to be published under `path` by :meth:`commit`.

    Parameters
    ----------
    path : path
        The target. A symbolic link is followed: its target is replaced, not the link. A target that is no regular
        file (a FIFO, a device) cannot be replaced: it is written directly, and `seekable` is False.
    private : bool
        Only the owner may read the file, from its first moment on; the mode of an old target is not taken over.

    Attributes
    ----------
    descriptor : int
        Open for reading and writing, owned.

    Raises
    ------
    OSError
        The directory is missing, not writable, or the target is a directory.
    """

    def __init__(self, path: str | bytes | os.PathLike[str] | os.PathLike[bytes], *, private: bool = False) -> None:
        self.name = os.fsdecode(path)
        self._target = os.path.realpath(self.name) if os.path.islink(self.name) else os.path.abspath(self.name)
        self._temporary: str | None = None
        self.seekable = True
        mode = _mode_of(self._target, self.name)
        if mode is not None and stat.S_ISDIR(mode):
            raise IsADirectoryError(21, "Is a directory", self.name)
        if mode is not None and not stat.S_ISREG(mode):
            self.seekable = False
            self.descriptor = os.open(self._target, os.O_WRONLY | getattr(os, "O_CLOEXEC", 0))
        else:
            self.descriptor, self._temporary = _create(self._target, self.name, 0o600 if private else 0o666)
            if mode is not None and not private:
                os.fchmod(self.descriptor, stat.S_IMODE(mode))
        self._clean_up = weakref.finalize(self, _discard, self.descriptor, self._temporary, os.getpid())

    def reserve(self, size: int) -> None:
        """Take the disk space now, so that a full disk is noticed before the work and not after it."""
        if self.seekable:
            _descriptors.reserve(self.descriptor, size, self.name)

    def commit(self, *, fsync: bool = False) -> None:
        """Publish the file under its target name, replacing what is there.

        Parameters
        ----------
        fsync : bool
            Wait until file and directory are on the disk, so that a power cut cannot lose them.
        """
        if self.seekable:
            if fsync:
                os.fsync(self.descriptor)
            if self._temporary is not None or not self._link_new():
                assert self._temporary is not None
                os.replace(self._temporary, self._target)
            if fsync:
                _sync_directory(os.path.dirname(self._target))
        self._clean_up.detach()
        os.close(self.descriptor)

    def _link_new(self) -> bool:
        """Give the unnamed file its name; if there is a file to replace, a temporary one, and answer False."""
        try:
            _link(self.descriptor, self._target)
            return True
        except FileExistsError:
            pass
        temporary = _temporary_name(self._target)
        _link(self.descriptor, temporary)
        self._temporary = temporary
        # From here on there is a name to remove if the rename fails.
        self._clean_up.detach()
        self._clean_up = weakref.finalize(self, _discard, self.descriptor, temporary, os.getpid())
        return False

    def abort(self) -> None:
        """Throw the file away. Does nothing after :meth:`commit` or a first abort."""
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
            # Not on this file system, or a real fault that the next attempt will meet and name.
            pass
    temporary = _temporary_name(target)
    try:
        return os.open(temporary, _CREATE, permissions), temporary
    except OSError as error:
        raise type(error)(error.errno, error.strerror, name) from None


def _temporary_name(target: str) -> str:
    directory, base = os.path.split(target)
    # 255 bytes is the longest name that file systems take.
    short = os.fsdecode(os.fsencode(base)[:200])
    return os.path.join(directory, f".{short}.{os.urandom(6).hex()}{TEMPORARY_SUFFIX}")


def _link(descriptor: int, path: str) -> None:
    """Give an unnamed file a name. os.link follows the link in /proc only with a directory descriptor."""
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=directory, follow_symlinks=True)
    finally:
        os.close(directory)


def _sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
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
