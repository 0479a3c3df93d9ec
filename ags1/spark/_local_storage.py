"""A tree in a local directory, or in one that is mounted on every machine of a cluster."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import ags1.dataset._tree as _tree
from ags1.dataset._control import CONTROL, named, write_whole
from ags1.dataset._tree import Directories, Filter, Publisher
from ags1.errors import TruncatedError
from ags1.spark._storage import Listed, Storage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.spark._locations import Location
    from ags1.spark._storage import Skipped

__all__ = ["LocalStorage"]


class LocalStorage(Storage):
    """See :class:`Storage`."""

    def __init__(self, location: Location) -> None:
        super().__init__(location)
        self._publisher: Publisher | None = None
        self._directories: Directories | None = None

    # -- reading ---------------------------------------------------------------------------------------------------

    def walk(self, wanted: Filter, skipped: Skipped | None = None, below: str = "") -> Iterator[Listed]:
        source = self.location.join(below)
        # In the control directory nothing is reserved any more, so that scan() must not know where it is.
        within = below.partition("/")[0] == CONTROL
        above = f"{below}/" if within else ""

        def left_out(path: str, reason: str) -> None:
            if skipped is not None:
                skipped(above + path, reason)

        meant = _Below(wanted, f"{below}/") if below else wanted
        outside = None if below else os.path.join(source, CONTROL)
        for found in _tree.scan(source, "" if within else below, meant, outside, left_out):
            yield Listed(above + found.path, found.size, found.mtime_ns, found.error)

    def stat(self, path: str) -> Listed:
        name = self._where(path)
        status = os.stat(name)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        return Listed(path, status.st_size, status.st_mtime_ns)

    def exists(self, path: str) -> bool:
        try:
            os.stat(self._where(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def read(self, path: str, offset: int, size: int) -> bytes:
        name = self._where(path)
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(descriptor, size, offset)
            while len(data) < size:
                piece = os.pread(descriptor, size - len(data), offset + len(data))
                if not piece:
                    raise TruncatedError(f"{name}: only {len(data)} of {size} bytes are at offset {offset}")
                data += piece
        except OSError as error:
            raise named(error, name) from None
        finally:
            os.close(descriptor)
        return data

    def opened(self, path: str) -> str:
        return self._where(path)

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(self.location.join(directory)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read_whole(self, path: str) -> bytes:
        with open(self.location.join(path), "rb") as file:
            return file.read()

    def _is_file(self, path: str) -> bool:
        return os.path.isfile(path)

    # -- writing ---------------------------------------------------------------------------------------------------

    def publish(self, path: str, data: bytes | memoryview) -> None:
        self._ensure_parent(path)
        try:
            self._put(path, data)
        except FileNotFoundError:
            # The driver has moved the directory away as a whole since this process made it.
            self.ensure_parent(path)
            self._put(path, data)

    def _put(self, path: str, data: bytes | memoryview) -> None:
        if self._publisher is None:
            self._publisher = Publisher(self.location.root)
        replace = os.path.lexists(self.location.join(path))
        try:
            self._publisher.publish(path, data, replace=replace)
        except FileExistsError:
            # Another attempt was faster. Replacing is by a rename, so that a reader sees the one or the other.
            self._publisher.publish(path, data, replace=True)

    def target(self, path: str) -> AbstractContextManager[str]:
        self.ensure_parent(path)
        # A path is published by those who take one.
        return nullcontext(self.location.join(path))

    def ensure_parent(self, path: str) -> None:
        self._directories = None
        self._ensure_parent(path)

    def _ensure_parent(self, path: str) -> None:
        """Make directories, unless this process has made them once: for very many small files."""
        directories = self._directories
        if directories is None:
            os.makedirs(self.location.root, exist_ok=True)
            directories = self._directories = Directories(self.location.root)
        directories.ensure(path.rpartition("/")[0])

    def move(self, source: str, target: str) -> None:
        self.ensure_parent(target)
        os.replace(self.location.join(source), self.location.join(target))

    def move_tree(self, source: str, target: str) -> None:
        self.ensure_parent(target)
        _merge(self.location.join(source), self.location.join(target))

    def remove(self, path: str) -> None:
        try:
            os.unlink(self.location.join(path))
        except FileNotFoundError:
            pass

    def remove_tree(self, path: str) -> None:
        name = self.location.join(path)
        while os.path.lexists(name):
            try:
                shutil.rmtree(name)
            except FileNotFoundError:
                # Somebody else is removing it too: what is left, if anything, is looked at again.
                continue

    def write_control(self, name: str, data: bytes) -> None:
        self.ensure_parent(f"{CONTROL}/{name}")
        write_whole(self.location.join(CONTROL, name), data)


class _Below(Filter):
    """A filter for the paths of a tree, asked about the paths in one directory of it."""

    def __init__(self, wanted: Filter, above: str) -> None:
        super().__init__()
        self._wanted = wanted
        self._above = above

    def accepts(self, path: str) -> bool:
        return self._wanted.accepts(self._above + path)

    def prunes(self, path: str) -> bool:
        return self._wanted.prunes(self._above + path)


def _merge(source: str, target: str) -> None:
    """Move a directory by one rename if there is nothing in its way, else what is in it, one by one."""
    try:
        os.rename(source, target)
        return
    except FileNotFoundError:
        if not os.path.lexists(source):
            # An earlier run has moved it.
            return
        raise
    except OSError as error:
        # What POSIX says of a directory that has something in it.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    with os.scandir(source) as listing:
        entries = list(listing)
    for entry in entries:
        path = os.path.join(target, entry.name)
        if entry.is_dir(follow_symlinks=False):
            _merge(entry.path, path)
        else:
            os.replace(entry.path, path)
    os.rmdir(source)
