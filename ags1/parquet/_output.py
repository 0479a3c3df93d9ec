"""Where a Parquet file is written to: in order, and published when it is complete."""

from __future__ import annotations

import os

from ags1._atomic import AtomicFile
from ags1._sinks import open_sink
from ags1._sources import is_url
from ags1._typing import Buffer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self

__all__ = ["Output"]


class Output:
    """A file being written; leaving its ``with`` body with an error leaves nothing behind.

    Parameters
    ----------
    target : path, URL or binary file object
        A path is replaced atomically by :meth:`commit`. A file object is written from where it stands, and stays open.

    Attributes
    ----------
    position : int
        Bytes written so far.
    descriptor : int or None
        Of a regular file, which many threads may write at positions from `position` on; they then move it.
    path : str or None
        Path or URL, if the target has one.
    """

    def __init__(self, target: Any) -> None:
        self.position = 0
        self.descriptor: int | None = None
        self.path: str | None = None
        self._atomic: AtomicFile | None = None
        self._committed = False
        if isinstance(target, (str, bytes, os.PathLike)):
            self.path = os.fsdecode(target)
        local = self.path
        if local is not None and local.startswith("file://"):
            local = local[len("file://") :]
        if local is not None and not is_url(local):
            atomic = AtomicFile(local)
            if atomic.seekable:
                self._atomic = atomic
                self.descriptor = atomic.descriptor
                self.name: str | None = atomic.name
                return
            atomic.abort()
        self._sink = open_sink(target)
        self.name = self._sink.name

    def write(self, data: Buffer) -> None:
        """Write all of `data` behind what was written before."""
        view = memoryview(data)
        if self.descriptor is None:
            self._sink.write(view)
        else:
            done = 0
            while done < len(view):
                try:
                    done += os.pwrite(self.descriptor, view[done:], self.position + done)
                except OSError as error:
                    raise OSError(error.errno, error.strerror, self.name) from None
        self.position += len(view)

    def reserve(self, size: int) -> None:
        """Take the disk space now, if the target is a file."""
        if self._atomic is not None:
            self._atomic.reserve(size)

    def commit(self, *, fsync: bool = False) -> None:
        """Publish the file."""
        if self._atomic is None:
            self._sink.commit()
        else:
            # More may have been reserved than was needed.
            os.ftruncate(self._atomic.descriptor, self.position)
            self._atomic.commit(fsync=fsync)
        self._committed = True

    def abort(self) -> None:
        """Throw away what was written."""
        if self._committed:
            return
        if self._atomic is None:
            self._sink.abort(mark=False)
        else:
            self._atomic.abort()
        self._committed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.abort()
