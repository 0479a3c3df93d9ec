"""A big file written by many processes of one machine, or of several that share a file system.

    SCRATCH/layout         what is being assembled, and under which token: written last, so that it vouches for the rest
    SCRATCH/TOKEN/data     the file, as long as it will be, with holes
    SCRATCH/TOKEN/7.done   range 7 is finished (empty)

Whoever writes a range holds an exclusive lock on it, and makes its marker before letting go. The kernel drops the lock
of a killed process. So under the lock, a missing marker means that nobody has finished the range and nobody writes it,
unless the whole has been moved away meanwhile, which shows in `data` not being there any more. The token keeps a zombie
of a given-up assembly from marking ranges of the next one.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple

from ags1 import _descriptors
from ags1.dataset._control import named, write_whole
from ags1.errors import Ags1Error
from ags1.spark._assembly import Assembly, Layout, Range
from ags1.spark._storage import Storage

__all__ = ["LocalAssembly"]

# Locks of an open file description: unlike those of a process, neither lost by closing another descriptor of the file
# nor shared by the threads of a process. Python before 3.13 may have been built without the names; Linux's numbers.
_SET_WAIT = getattr(fcntl, "F_OFD_SETLKW", 38)
_SET = getattr(fcntl, "F_OFD_SETLK", 37)
# struct flock: type, whence, start, length, pid (0, as these locks demand), on 64-bit Linux.
_FLOCK = struct.Struct("@hhqqi4x")
_HAS_RANGE_LOCKS = sys.platform == "linux" and struct.calcsize("P") == 8
# What file systems say that have no locks, and some that cannot be written at any offset.
_UNSUPPORTED = frozenset(
    {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.ESPIPE}
)
_LAYOUT = "layout"


class LocalAssembly(Assembly):
    """See :class:`Assembly`.

    Parameters
    ----------
    scratch : str
        Directory in the tree.
    token : str
        Name of this assembly's directory in it.
    by_range : bool
        Whether ranges of the data are locked, or a file for each.
    inode : int
        Number of the data file, which it keeps in its place: an old file there may have the same length.
    """

    def __init__(
        self, storage: Storage, path: str, layout: Layout, scratch: str, token: str, by_range: bool, inode: int
    ) -> None:
        super().__init__(storage, path, layout)
        self.scratch = scratch
        self.token = token
        self.by_range = by_range
        self.inode = inode

    # -- driver ----------------------------------------------------------------------------------------------------

    @classmethod
    def prepare(cls, storage: Storage, path: str, scratch: str, layout: Layout, identity: str) -> LocalAssembly | None:
        """Continue what is in the scratch directory if it is the same file, else begin anew."""
        top = storage.location.join(scratch)
        wanted = {"layout": json.loads(json.dumps(astuple(layout))), "identity": identity, "path": path}
        known = _read_layout(os.path.join(top, _LAYOUT))
        if known is not None and {name: known.get(name) for name in wanted} == wanted:
            token = str(known.get("token"))
            status = _status(os.path.join(top, token, "data"))
            if status is not None and status.st_size == layout.length:
                return cls(storage, path, layout, scratch, token, bool(known.get("by_range")), status.st_ino)
        storage.remove_tree(scratch)
        token = os.urandom(8).hex()
        storage.ensure_parent(f"{scratch}/{token}/data")
        name = os.path.join(top, token, "data")
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            by_range = _try_locks(descriptor)
            if by_range is None or not _lengthen(descriptor, layout.length, name):
                storage.remove_tree(scratch)
                return None
            inode = os.fstat(descriptor).st_ino
        finally:
            os.close(descriptor)
        made = cls(storage, path, layout, scratch, token, by_range, inode)
        write_whole(os.path.join(top, _LAYOUT), json.dumps({**wanted, "token": token, "by_range": by_range}).encode())
        return made

    def complete(self) -> None:
        target = self.storage.location.join(self.path)
        try:
            markers = set(os.listdir(self._name()))
            size = os.stat(self._name("data")).st_size
        except FileNotFoundError:
            # Moved by an earlier call, if it is in its place.
            status = _status(target)
            if status is None or (status.st_ino, status.st_size) != (self.inode, self.layout.length):
                raise Ags1Error(
                    f"{target} is not the file that was assembled, and what was written of that is gone: "
                    "something else has removed it"
                ) from None
        else:
            missing = [index for index in range(self.layout.count) if f"{index}.done" not in markers]
            if missing:
                raise Ags1Error(
                    f"{target}: {len(missing)} of {self.layout.count} ranges were not written, the first of them "
                    f"range {missing[0]}"
                )
            if size != self.layout.length:
                raise Ags1Error(f"{target}: {size} bytes were written instead of {self.layout.length}")
            self.storage.ensure_parent(self.path)
            os.replace(self._name("data"), target)
        self._clear()

    def abort(self) -> None:
        self._clear()

    def _clear(self) -> None:
        # Zombies may still be making files there: what they leave is taken for nothing, and goes with the directory
        # above.
        shutil.rmtree(self.storage.location.join(self.scratch), ignore_errors=True)

    # -- tasks -----------------------------------------------------------------------------------------------------

    @contextmanager
    def claim(self, index: int, offset: int, length: int) -> Iterator[Range | None]:
        self.layout.check(index, offset, length)
        try:
            descriptor = os.open(self._name("data"), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            yield None
            return
        lock = -1
        try:
            try:
                lock = descriptor if self.by_range else self._open_lock(index)
                self._lock(lock, offset, length)
            except FileNotFoundError:
                yield None
                return
            except OSError as error:
                raise named(error, self._name("data")) from None
            # In this order: complete() moves the data before it removes the markers, so that whoever misses a marker
            # because it was removed misses the data too.
            if os.path.lexists(self._name(f"{index}.done")) or not self._is_here(descriptor):
                yield None
                return
            yield _LocalRange(descriptor, offset, length, self._name("data"))
            self._mark(index)
        finally:
            try:
                # Not by closing alone: a process forked meanwhile has the same open file.
                if lock == descriptor:
                    fcntl.fcntl(lock, _SET, _flock(fcntl.F_UNLCK, offset, length))
                elif lock != -1:
                    fcntl.flock(lock, fcntl.LOCK_UN)
                    os.close(lock)
            finally:
                os.close(descriptor)

    def _open_lock(self, index: int) -> int:
        return os.open(self._name(f"{index}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def _lock(self, lock: int, offset: int, length: int) -> None:
        if self.by_range:
            fcntl.fcntl(lock, _SET_WAIT, _flock(fcntl.F_WRLCK, offset, length))
        else:
            fcntl.flock(lock, fcntl.LOCK_EX)

    def _is_here(self, descriptor: int) -> bool:
        status = _status(self._name("data"))
        return status is not None and os.path.samestat(status, os.fstat(descriptor))

    def _mark(self, index: int) -> None:
        try:
            os.close(os.open(self._name(f"{index}.done"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
        except FileNotFoundError:
            # Given up meanwhile: what was written is gone, and nobody waits for it.
            pass

    def _name(self, name: str = "") -> str:
        return self.storage.location.join(self.scratch, self.token, name)


class _LocalRange(Range):
    """A range of the data file."""

    def __init__(self, descriptor: int, offset: int, length: int, name: str) -> None:
        super().__init__(offset, length)
        self.descriptor: int = descriptor
        self._next = offset
        self._name = name

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        with memoryview(data) as view, view.cast("B") as octets:
            if offset != self._next or offset + len(octets) > self.offset + self.length:
                raise ValueError(f"{len(octets)} bytes at {offset} are not the next of this range")
            try:
                while self._next < offset + len(octets):
                    self._next += os.pwrite(self.descriptor, octets[self._next - offset :], self._next)
            except OSError as error:
                raise named(error, self._name) from None


def _flock(kind: int, offset: int, length: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, offset, length, 0)


def _try_locks(descriptor: int) -> bool | None:
    """Whether ranges can be locked here (True), or whole files (False), or nothing (None)."""
    if _HAS_RANGE_LOCKS:
        try:
            fcntl.fcntl(descriptor, _SET, _flock(fcntl.F_WRLCK, 0, 1))
            fcntl.fcntl(descriptor, _SET, _flock(fcntl.F_UNLCK, 0, 1))
            return True
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return False
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    return None


def _lengthen(descriptor: int, length: int, name: str) -> bool:
    """Give a file its length, and the room for it where that costs nothing; answer whether the file system can."""
    try:
        _descriptors.reserve(descriptor, length, name)
        os.ftruncate(descriptor, length)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return False
        raise named(error, name) from None
    return True


def _status(name: str) -> os.stat_result | None:
    try:
        return os.stat(name)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _read_layout(name: str) -> dict[str, object] | None:
    try:
        with open(name, "rb") as file:
            known = json.loads(file.read())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return known if isinstance(known, dict) else None
