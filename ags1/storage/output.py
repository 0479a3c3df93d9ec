"""What every target for bytes has: bytes in their order, then one commit that makes them appear, or an abort."""

from __future__ import annotations

import os

from ags1.core.buffer import BufferView
from ags1.storage.location import Location
from ags1.support.typing import Buffer, Self


class Output:
    """A target for bytes, which are written in order. Leaving its ``with`` body before :meth:`commit` discards them.

    Attributes
    ----------
    name : str or None
        Path or URL, or the name of a file object.
    location : Location or None
        None for a file object.
    position : int
        Bytes written so far.
    descriptor : int or None
        Of a regular file. Several threads may write at offsets from `position` on; then set `position`.
    identity : str
        After :meth:`commit`, what :func:`ags1.storage.identity_of` says of the file, if the storage has told; else "".
    """

    name: str | None = None
    location: Location | None = None
    position: int = 0
    descriptor: int | None = None
    identity: str = ""
    _ended: bool = False

    def write(self, data: Buffer) -> None:
        """Append all of `data`; the caller may change its memory afterwards."""
        view = memoryview(BufferView(data, False))
        self._write(view)
        self.position += len(view)

    def write_owned(self, data: Buffer) -> None:
        """As :meth:`write`, but the memory of `data` must not change afterwards."""
        self.write(data)

    def reserve(self, size: int) -> None:
        """Allocate the space for `size` bytes now, if possible: a full disk is then an error before the work."""

    def flush(self) -> None:
        """Pass buffered data on."""

    def commit(self, *, durable: bool = False) -> None:
        """Publish the output; with `durable`, return when it survives a power cut. Objects in stores always do."""
        self._commit(durable)
        self._ended = True

    def abort(self, mark: bytes = b"") -> None:
        """Discard the output. Does nothing after :meth:`commit` or a first abort.

        `mark` is appended to bytes that cannot be removed, so that they are not mistaken for a complete file.
        """
        if not self._ended:
            self._ended = True
            self._abort(mark)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.abort()

    def _write(self, data: memoryview) -> None:
        # A subclass without a descriptor overrides this.
        assert self.descriptor is not None
        done = 0
        while done < len(data):
            try:
                done += os.pwrite(self.descriptor, data[done:], self.position + done)
            except OSError as error:
                raise OSError(error.errno, error.strerror, self.name) from None

    def _commit(self, durable: bool) -> None:
        raise NotImplementedError

    def _abort(self, mark: bytes) -> None:
        raise NotImplementedError
