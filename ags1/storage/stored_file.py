"""A source as a file object, for libraries that read files."""

from __future__ import annotations

import io
import os

from ags1.storage.sources import Source
from ags1.support.typing import Any, Buffer


class StoredFile(io.RawIOBase):
    """The bytes of a source, with a position. It owns the source. Each read of a remote one is a request.

    :meth:`pread` is safe to call from several threads; the position is for one at a time.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._position = 0
        self.size = source.size

    @property
    def name(self) -> str | None:
        """Path or URL."""
        return self._source.name

    @property
    def is_remote(self) -> bool:
        """Whether each read is a request."""
        return self._source.is_remote

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def pread(self, offset: int, size: int) -> Buffer:
        """Return the bytes from an offset on, without a change of the position: fewer than `size` at the end."""
        count = min(size, self.size - offset)
        return self._source.read(offset, count) if count > 0 else b""

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes, by default all that are left."""
        data = self.pread(self._position, self.size if size is None or size < 0 else size)
        self._position += len(memoryview(data))
        return data if isinstance(data, bytes) else bytes(data)

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; return the number of bytes, 0 at the end."""
        with memoryview(buffer).cast("B") as view:
            count = min(len(view), max(0, self.size - self._position))
            if count:
                self._source.read_into(self._position, view[:count])
        self._position += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position; a ValueError refuses one before the beginning."""
        position = offset + (0, self._position, self.size)[whence]
        if position < 0:
            raise ValueError(f"the position must not be negative, got {position}")
        self._position = position
        return position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def close(self) -> None:
        """Close the source."""
        if not self.closed:
            super().close()
            self._source.close()
