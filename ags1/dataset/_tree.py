"""Directory trees: which files a source has, in the order of a manifest, and how files get into a target.

Links to files stand for what they point to; links to directories are not followed. What is neither a file nor a
directory is left out and named. Empty directories are not kept: a dataset has files.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence

from ags1.dataset._control import CONTROL, MAX_PATH, named
from ags1.dataset._manifest import sort_key
from ags1.storage import TEMPORARY_SUFFIX, sync_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Patterns: TypeAlias = str | Sequence[str] | None

__all__ = ["Directories", "Filter", "Found", "Publisher", "move", "read_source", "scan", "walk"]


class Filter:
    """Which files are meant, by glob patterns on their relative paths.

    Parameters
    ----------
    include, exclude : str or sequence of str, optional
        A pattern without ``/`` is compared with each component of a path, one with ``/`` with the whole path, where
        ``*`` stands for any characters, ``/`` too. Without `include`, every file is; `exclude` wins.
    """

    def __init__(self, include: Patterns = None, exclude: Patterns = None) -> None:
        self._include = _patterns(include, "include")
        self._exclude = _patterns(exclude, "exclude")

    def accepts(self, path: str) -> bool:
        """Whether a file is meant."""
        if self._include and not any(_matches(path, pattern) for pattern in self._include):
            return False
        return not self.prunes(path)

    def prunes(self, path: str) -> bool:
        """Whether nothing of a directory, or not this file, is meant."""
        return any(_matches(path, pattern) for pattern in self._exclude)


def _patterns(patterns: Patterns, name: str) -> list[str]:
    if patterns is None:
        return []
    found = [patterns] if isinstance(patterns, str) else list(patterns)
    if not all(isinstance(pattern, str) for pattern in found):
        raise TypeError(f"{name} must be a glob pattern or a sequence of them")
    return [pattern.rstrip("/") for pattern in found]


def _matches(path: str, pattern: str) -> bool:
    if "/" in pattern:
        return fnmatch.fnmatchcase(path, pattern)
    return any(fnmatch.fnmatchcase(part, pattern) for part in path.split("/"))


class Found:
    """A file of a source, or what is wrong with it."""

    __slots__ = ("error", "key", "mtime_ns", "path", "size", "source")

    def __init__(self, path: str, source: str, size: int = 0, mtime_ns: int = 0, error: OSError | None = None) -> None:
        self.path = path
        self.key = sort_key(path)
        self.source = source
        self.size = size
        self.mtime_ns = mtime_ns
        self.error = error


def scan(
    source: str, prefix: str, wanted: Filter, outside: str | None, skipped: Callable[[str, str], object]
) -> Iterator[Found]:
    """Files of a source, sorted by their paths in the dataset.

    Parameters
    ----------
    source : str
        A directory, or a file.
    prefix : str
        Directory of the dataset that they go to, "" for its top.
    outside : str, optional
        A directory that is no part of the source, though it may lie in it.
    skipped : callable
        Called with the path and the reason of what is left out.
    """
    above = f"{prefix}/" if prefix else ""
    mode = os.stat(source).st_mode
    if stat.S_ISREG(mode):
        name = os.path.basename(os.path.abspath(source))
        yield _found(above + name, source)
    elif stat.S_ISDIR(mode):
        seen = os.stat(outside) if outside is not None and os.path.isdir(outside) else None
        yield from _scan(source, "", above, wanted, seen, skipped)
    else:
        raise OSError(errno.EINVAL, "is neither a file nor a directory", source)


def _scan(
    directory: str,
    relative: str,
    above: str,
    wanted: Filter,
    outside: os.stat_result | None,
    skipped: Callable[[str, str], object],
) -> Iterator[Found]:
    try:
        with os.scandir(directory) as listing:
            entries = sorted(listing, key=_in_order)
    except OSError as error:
        # The whole of it is missing then: that is an error, not something to be left out.
        yield Found(above + relative.rstrip("/"), directory, error=named(error, directory))
        return
    for entry in entries:
        path = relative + entry.name
        if entry.is_dir(follow_symlinks=False):
            if not wanted.prunes(path) and not (outside is not None and _is_same(entry, outside)):
                _refuse_reserved(above + path, entry.path)
                yield from _scan(entry.path, f"{path}/", above, wanted, outside, skipped)
        elif wanted.accepts(path):
            if _is_leftover(entry.name):
                skipped(above + path, "is a temporary file of an interrupted ags1")
                continue
            if entry.is_symlink() and os.path.isdir(entry.path):
                skipped(above + path, "is a link to a directory")
                continue
            found = _found(above + path, entry.path)
            if found.error is not None and found.error.errno == errno.EINVAL:
                skipped(above + path, found.error.strerror or "")
            else:
                _refuse_reserved(above + path, entry.path)
                yield found


def _in_order(entry: os.DirEntry[str]) -> bytes:
    # With the slash, depth first is the order of the whole paths.
    return sort_key(entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name)


def _is_leftover(name: str) -> bool:
    return name.startswith(".") and name.endswith(TEMPORARY_SUFFIX)


def _is_same(entry: os.DirEntry[str], other: os.stat_result) -> bool:
    return entry.inode() == other.st_ino and entry.stat(follow_symlinks=False).st_dev == other.st_dev


def _refuse_reserved(path: str, source: str) -> None:
    if path.partition("/")[0] == CONTROL:
        raise ValueError(
            f"{source} would become {path}, but {CONTROL} is reserved for what a dataset knows of itself: exclude it"
        )


def _found(path: str, source: str) -> Found:
    try:
        status = os.stat(source)
    except OSError as error:
        return Found(path, source, error=error)
    if not stat.S_ISREG(status.st_mode):
        return Found(path, source, error=OSError(errno.EINVAL, "is a pipe, a socket or a device", source))
    if len(sort_key(path)) > MAX_PATH:
        text = f"has a path of more than {MAX_PATH} bytes"
        return Found(path, source, error=OSError(errno.ENAMETOOLONG, text, source))
    return Found(path, source, status.st_size, status.st_mtime_ns)


def walk(root: str) -> Iterator[tuple[str, str]]:
    """Relative path and kind ("file", "leftover", "other") of all that is in a dataset's tree, in order.

    Leftovers are temporary files of ours that a kill left where the file system has no unnamed ones.
    """
    yield from _walk(root, "")


def _walk(directory: str, relative: str) -> Iterator[tuple[str, str]]:
    with os.scandir(directory) as listing:
        entries = sorted(listing, key=_in_order)
    for entry in entries:
        path = relative + entry.name
        if path == CONTROL:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, f"{path}/")
        elif _is_leftover(entry.name):
            yield path, "leftover"
        else:
            yield path, "file" if entry.is_file(follow_symlinks=False) else "other"


def read_source(path: str) -> tuple[bytes, os.stat_result]:
    """A small file, and what it was like while it was read.

    Raises
    ------
    OSError
        It cannot be read, or was changed meanwhile.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        before = os.fstat(descriptor)
        data = _read_all(descriptor, before.st_size)
        after = os.fstat(descriptor)
    except OSError as error:
        raise named(error, path) from None
    finally:
        os.close(descriptor)
    if len(data) != before.st_size or (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise OSError(errno.EBUSY, "was changed while it was being encrypted: encrypt what nobody writes to", path)
    return data, before


def _read_all(descriptor: int, size: int) -> bytes:
    # One byte more shows whether the file grew; for an unchanged one, one call is enough.
    data = os.read(descriptor, size + 1)
    while len(data) < size:
        piece = os.read(descriptor, size + 1 - len(data))
        if not piece:
            break
        data += piece
    return data


def move(source: str, target: str) -> None:
    """Move all of a tree into another, over what is there; whole directories at once where the target has none.

    Repeated after an interruption, it moves what is left.

    Raises
    ------
    NotADirectoryError
        A file or a link is in the way of a directory.
    """
    try:
        with os.scandir(source) as listing:
            entries = list(listing)
    except FileNotFoundError:
        return
    for entry in entries:
        destination = os.path.join(target, entry.name)
        if not entry.is_dir(follow_symlinks=False):
            os.replace(entry.path, destination)
            continue
        if not os.path.lexists(destination):
            try:
                os.rename(entry.path, destination)
            except FileExistsError:
                # Somebody made it just now.
                pass
            else:
                continue
        if not stat.S_ISDIR(os.lstat(destination).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "is in the way of a directory of that name", destination)
        move(entry.path, destination)
        os.rmdir(entry.path)


class Directories:
    """Makes the directories of a tree, each once. Safe to use from several threads.

    A link in place of a directory is refused: what was written through it would not be in the tree.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._made = {""}
        self._lock = threading.Lock()

    def ensure(self, directory: str) -> None:
        """Make a directory, relative to the root, and those above it.

        Raises
        ------
        OSError
            Something else is in the way, or it cannot be made.
        """
        if directory in self._made:
            return
        above, _, _ = directory.rpartition("/")
        self.ensure(above)
        path = os.path.join(self._root, directory)
        try:
            os.mkdir(path)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, "is in the way of a directory of that name", path) from None
        with self._lock:
            self._made.add(directory)


class Publisher:
    """Puts small files into a tree, whole or not at all, at the cost of a few system calls.

    Parameters
    ----------
    root : str
        Where the tree is.
    durable : bool
        Wait until each file is on the disk.
    """

    def __init__(self, root: str, *, durable: bool = False) -> None:
        self._root = root
        self._durable = durable
        self._unnamed = hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd")
        # os.link() follows the link in /proc only if it is given a directory.
        self._directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        """Give back the descriptor."""
        os.close(self._directory)

    def publish(self, path: str, data: memoryview | bytes, *, replace: bool) -> None:
        """Write a file under a path relative to the root, whose directory exists.

        Raises
        ------
        FileExistsError
            There is something, and it is not to be replaced.
        OSError
            It cannot be written.
        """
        target = os.path.join(self._root, path)
        directory, _, name = target.rpartition("/")
        descriptor, temporary = self._create(directory, name, target)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                if self._durable:
                    os.fsync(descriptor)
                if not replace:
                    self._link(descriptor, temporary, target)
                    if temporary is not None:
                        _unlink(temporary)
                else:
                    if temporary is None:
                        temporary = _temporary(directory, name)
                        self._link(descriptor, None, temporary)
                    os.replace(temporary, target)
                if self._durable:
                    sync_directory(directory)
            except BaseException as error:
                if temporary is not None:
                    _unlink(temporary)
                if isinstance(error, FileExistsError):
                    raise FileExistsError(error.errno, error.strerror, target) from None
                if isinstance(error, OSError) and error.errno is not None:
                    raise OSError(error.errno, error.strerror, target) from None
                raise
        finally:
            os.close(descriptor)

    def _create(self, directory: str, name: str, target: str) -> tuple[int, str | None]:
        if self._unnamed:
            try:
                return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666), None
            except OSError as error:
                if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                    self._unnamed = False
        temporary = _temporary(directory, name)
        try:
            return os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), temporary
        except OSError as error:
            raise OSError(error.errno, error.strerror, target) from None

    def _link(self, descriptor: int, temporary: str | None, target: str) -> None:
        if temporary is None:
            os.link(f"/proc/self/fd/{descriptor}", target, src_dir_fd=self._directory, follow_symlinks=True)
            return
        try:
            os.link(temporary, target, follow_symlinks=False)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            # A file system without links. Nobody else may write to the tree, so this is as good.
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from None
            os.rename(temporary, target)


def _temporary(directory: str, name: str) -> str:
    short = os.fsdecode(os.fsencode(name)[:200])
    return os.path.join(directory, f".{short}.{os.urandom(6).hex()}{TEMPORARY_SUFFIX}")


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
