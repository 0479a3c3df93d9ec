"""Output files that appear whole or not at all.

    target directory:   (an unnamed file, or .NAME.TOKEN.ags1-tmp)   --commit: rename-->   NAME

Where the file system can (Linux: O_TMPFILE, and a hard link that gives such a file its name), the output has no name
until it is complete, so that even SIGKILL leaves nothing behind. Elsewhere it has a temporary name beside the target,
which any exit but SIGKILL or a power cut removes.
"""

from __future__ import annotations

import errno
import os
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from ags1.core import descriptors as native_descriptors
from ags1.storage.directories import DIRECTORY, change_mode
from ags1.support.typing import Buffer, Self

_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | _CLOEXEC
_UNNAMED = getattr(os, "O_TMPFILE", 0) | os.O_RDWR | _CLOEXEC
TEMPORARY_SUFFIX = ".ags1-tmp"


class AtomicFile:
    """A file that is written and then published under `path` by :meth:`commit`; its `descriptor` reads and writes.

    A symbolic link is followed: its target is replaced, not the link. A target that is no regular file (a FIFO, a
    device) cannot be replaced: it is written directly, and `seekable` is False. `mode` has the most permission bits
    that the file gets, from its creation on; by default those of the umask, or of the file that is replaced.

    With `directory`, the descriptor of an open directory, the file is made in that: the directories of `path` are for
    messages, and what has its name there is replaced itself, also a link or a pipe.
    """

    def __init__(
        self, path: str | bytes | os.PathLike[str] | os.PathLike[bytes], *, mode: int | None = None,
        directory: int | None = None,
    ) -> None:  # fmt: skip
        self.name = os.fsdecode(path)
        follows = directory is None
        target = os.path.realpath(self.name) if follows and os.path.islink(self.name) else os.path.abspath(self.name)
        above, self._base = os.path.split(target)
        self._temporary: str | None = None
        self.seekable = True
        with _naming(self.name):
            self._directory = os.open(above, DIRECTORY) if directory is None else os.dup(directory)
            try:
                self._open(follows, mode)
            except BaseException:
                os.close(self._directory)
                raise
        self._finish_with(self._temporary)

    def _open(self, follows: bool, mode: int | None) -> None:
        replaced = _mode_of(self._base or ".", self._directory, follows)
        if replaced is not None and stat.S_ISDIR(replaced):
            raise IsADirectoryError(21, "Is a directory", self.name)
        if replaced is not None and not stat.S_ISREG(replaced) and follows:
            self.seekable = False
            self.descriptor = os.open(self._base, os.O_WRONLY | _CLOEXEC, dir_fd=self._directory)
            return
        most = 0o666 if mode is None else stat.S_IMODE(mode) & 0o777
        self.descriptor, self._temporary = _create(self._base, self._directory, most)
        if replaced is not None and stat.S_ISREG(replaced):
            try:
                change_mode(self.descriptor, stat.S_IMODE(replaced) & (0o7777 if mode is None else most))
            except BaseException:
                _discard(self.descriptor, os.dup(self._directory), self._temporary, os.getpid())
                raise

    def _finish_with(self, temporary: str | None) -> None:
        """Have the end of this object close the descriptors, and remove what has a temporary name."""
        self._clean_up = weakref.finalize(self, _discard, self.descriptor, self._directory, temporary, os.getpid())

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
            native_descriptors.reserve(self.descriptor, size, self.name)

    def commit(self, *, durable: bool = False) -> None:
        """Publish the file under its name and replace what is there; with `durable`, it survives a power cut."""
        if self.seekable:
            if durable:
                os.fsync(self.descriptor)
            if self._temporary is not None or not self._link_new():
                assert self._temporary is not None
                os.replace(self._temporary, self._base, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            if durable:
                _sync_directory(self._directory)
        self._clean_up.detach()
        os.close(self.descriptor)
        os.close(self._directory)

    def commit_new(self, *, durable: bool = False) -> None:
        """Publish the file if its name is free.

        FileExistsError: the name is taken; abort this file. OSError ENOTSUP: the file system has no such operation.
        """
        if durable:
            os.fsync(self.descriptor)
        try:
            if self._temporary is None:
                _link(self.descriptor, self._base, self._directory)
            else:
                _rename_new(self._temporary, self._base, self._directory, self.name)
        except FileExistsError:
            raise FileExistsError(17, "File exists", self.name) from None
        if durable:
            _sync_directory(self._directory)
        # This removes a temporary name that is left.
        self.abort()

    def _link_new(self) -> bool:
        """Give the unnamed file its name. If that is taken, give it a temporary name and return False."""
        try:
            _link(self.descriptor, self._base, self._directory)
            return True
        except FileExistsError:
            pass
        temporary = temporary_name(self._base)
        _link(self.descriptor, temporary, self._directory)
        self._temporary = temporary
        # If the rename fails, the temporary name must be removed.
        self._clean_up.detach()
        self._finish_with(temporary)
        return False

    def abort(self) -> None:
        """Discard the file. Does nothing after :meth:`commit` or a first abort."""
        self._clean_up()


@contextmanager
def _naming(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise type(error)(error.errno, error.strerror, name) from None


def _mode_of(base: str, directory: int, follows: bool) -> int | None:
    try:
        return os.stat(base, dir_fd=directory, follow_symlinks=follows).st_mode
    except FileNotFoundError:
        return None


def _create(base: str, directory: int, permissions: int) -> tuple[int, str | None]:
    if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
        try:
            if _links_unnamed(base, directory):
                return os.open(".", _UNNAMED, permissions, dir_fd=directory), None
        except OSError:
            # The file system does not support it, or there is a real fault, which the next attempt reports.
            pass
    temporary = temporary_name(base)
    return os.open(temporary, _CREATE, permissions, dir_fd=directory), temporary


# Whether an unnamed file can get a name, by the file system: some have no hard links.
_nameable: dict[tuple[int, int], bool] = {}


def _links_unnamed(base: str, directory: int) -> bool:
    """Try it once for each file system, so that it is known before hours of work and not after them."""
    mounted = native_descriptors.mounted_at(directory)
    if mounted not in _nameable:
        temporary = temporary_name(base)
        unnamed = os.open(".", _UNNAMED, 0o600, dir_fd=directory)
        try:
            _link(unnamed, temporary, directory)
            os.unlink(temporary, dir_fd=directory)
            _nameable[mounted] = True
        except OSError:
            _nameable[mounted] = False
        finally:
            os.close(unnamed)
    return _nameable[mounted]


def temporary_name(target: str) -> str:
    """A new, unique name in the target's directory, for a file that will replace the target."""
    directory, base = os.path.split(target)
    # File systems allow names of at most 255 bytes.
    short = os.fsdecode(os.fsencode(base)[:200])
    return os.path.join(directory, f".{short}.{os.urandom(6).hex()}{TEMPORARY_SUFFIX}")


def _link(descriptor: int, base: str, directory: int) -> None:
    """Give an unnamed file a name. os.link follows the link in /proc only with a directory descriptor."""
    unnamed = f"/proc/self/fd/{descriptor}"
    os.link(unnamed, base, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=True)


def _rename_new(temporary: str, base: str, directory: int, name: str) -> None:
    """Give a file another name that is free: by an exclusive rename, or else by a hard link."""
    try:
        native_descriptors.rename_new(os.fsencode(temporary), os.fsencode(base), directory)
        return
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise
    try:
        os.link(temporary, base, src_dir_fd=directory, dst_dir_fd=directory)
    except FileExistsError:
        raise
    except OSError as error:
        raise OSError(
            errno.ENOTSUP,
            f"the file system has neither a rename that replaces nothing nor hard links ({error.strerror})",
            name,
        ) from None


def _sync_directory(directory: int) -> None:
    """Wait until the names in an open directory are on the disk."""
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | _CLOEXEC, dir_fd=directory)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _discard(descriptor: int, directory: int, temporary: str | None, owner: int) -> None:
    # A forked child inherits the object, but the file is its parent's.
    os.close(descriptor)
    try:
        if temporary is not None and owner == os.getpid():
            os.unlink(temporary, dir_fd=directory)
    except FileNotFoundError:
        pass
    finally:
        os.close(directory)
