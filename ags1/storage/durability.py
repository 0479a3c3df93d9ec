"""Durability of many files at once: files are on the disk before anything refers to them."""

from __future__ import annotations

import os
import threading

from ags1.storage.directories import Directories
from ags1.storage.location import Location

# Up to this many files are synced one by one; for more, one sync of the file system is cheaper.
_FEW = 64


class Unsynced:
    """Files below a directory that were written and may not be on the disk yet. Thread-safe.

    For a URL there is nothing to do: an object store responds when an object is durable.
    """

    def __init__(self, root: Location) -> None:
        self._root = root
        self._names: list[str] = []
        self._count = 0
        self._lock = threading.Lock()

    def add(self, *names: str) -> None:
        """Record files, relative to the directory; a name that ends in ``/`` is that of a directory."""
        if not self._root.is_local:
            return
        with self._lock:
            self._count += len(names)
            if self._count <= _FEW:
                self._names += names

    def sync(self) -> None:
        """Wait until all files recorded so far, and their names, are on the disk."""
        with self._lock:
            names, count = self._names, self._count
            self._names, self._count = [], 0
        if not count:
            return
        if count > _FEW:
            _sync_file_system(self._root.path)
            return
        above = {""}
        with Directories(self._root.path) as directories:
            for name in names:
                # A directory that nobody may read cannot be synced: it is on the disk with its name.
                if not name.endswith("/"):
                    descriptor = directories.open_regular(name)
                    try:
                        os.fsync(descriptor)
                    finally:
                        os.close(descriptor)
                name = name.removesuffix("/")
                while name:
                    name = name.rpartition("/")[0]
                    above.add(name)
            for name in sorted(above, key=len, reverse=True):
                directories.sync(name)
        with Directories(os.path.dirname(os.path.abspath(self._root.path))) as outside:
            outside.sync("")


def _sync_file_system(path: str) -> None:
    """Write all pending data of the file system of a path, in one call."""
    import ctypes

    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        os.sync()
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)
