"""Reading a file of a dataset: the plain Reader where it is one object, and one over several where it is big.

part 0            part 1            part 2              each an AGS1 stream, opened when it is first read
|-----------------|-----------------|--------|
        [=== pread ==============]                      from as many as it touches
"""

from __future__ import annotations

import errno
import io
import os
import stat
import threading
from bisect import bisect_right
from collections import OrderedDict
from itertools import accumulate

from ags1._blocks import fresh_bytes, writable_view
from ags1._reading import Plaintext, RawReader, refuse, window_of
from ags1._typing import Buffer
from ags1.dataset.classes import ClassKeys
from ags1.dataset.entries import Entry, Part
from ags1.dataset.sources import open_regular
from ags1.errors import Ags1Error, FormatError
from ags1.keys import KeyMetadata
from ags1.layout import DEFAULT_BLOCK_LENGTH
from ags1.storage import Location, PipeSource, octets, open_source
from ags1.stream import Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["JoinedReader", "open_part", "open_parts"]

# Parts that are open at once; each may hold a block, and what it has read ahead.
_OPEN = 4


def open_parts(
    dataset: Location, entry: Entry, keys: ClassKeys, *, threads: int | None = None, memory_budget: int | None = None
) -> Reader | JoinedReader:
    """Open the plaintext of a file.

    Parameters
    ----------
    dataset : Location
        What the names of objects are relative to.
    threads, memory_budget
        As :class:`ags1.Reader`.

    Raises
    ------
    FileNotFoundError, OSError
        An object is missing, or cannot be read.
    TruncatedError, FormatError
        It is shorter or longer than it was.
    KeyAccessError, AuthenticationError
        Its key cannot be had.
    """
    if len(entry.parts) != 1:
        return JoinedReader(dataset, entry, keys, threads=threads, memory_budget=memory_budget)
    (part,) = entry.parts
    metadata = keys.open(entry.key_class, part)
    place = dataset.join(part.name)
    if place.is_local and not stat.S_ISREG(os.stat(place.path).st_mode):
        # Opening a pipe that somebody put there would wait for its other end.
        raise OSError(errno.EINVAL, "is no regular file any more", place.text)
    reader = Reader(
        place, metadata.encryption_key, aad_prefix=metadata.aad_prefix or b"", length=metadata.file_length,
        threads=threads, memory_budget=memory_budget,
    )  # fmt: skip
    if reader.size != part.plaintext_length:
        reader.close()
        raise _wrong_size(place, reader.size, part)
    return reader


def open_part(
    dataset: Location, part: Part, metadata: KeyMetadata, *, threads: int | None = 1, memory_budget: int | None = None
) -> Plaintext:
    """The plaintext of one object, by position. The caller closes its ``source``.

    Raises
    ------
    FileNotFoundError, OSError, TruncatedError, FormatError
        As :func:`open_parts`.
    """
    place = dataset.join(part.name)
    source = open_regular(place) if place.is_local else open_source(place)
    assert not isinstance(source, PipeSource)
    try:
        plaintext = Plaintext(
            source, metadata.encryption_key, metadata.aad_prefix or b"", metadata.file_length, threads, memory_budget
        )
        if plaintext.size != part.plaintext_length:
            raise _wrong_size(place, plaintext.size, part)
        if plaintext.block_length != DEFAULT_BLOCK_LENGTH:
            raise FormatError(f"{place} has blocks of {plaintext.block_length} bytes, which no dataset has")
    except BaseException:
        source.close()
        raise
    return plaintext


def _wrong_size(place: Location, size: int | None, part: Part) -> FormatError:
    return FormatError(f"{place} has {size} bytes of plaintext, but its entry says {part.plaintext_length}")


class _Parts(io.RawIOBase):
    """The parts of a file as one: by position from any thread, and in order for the BufferedReader on top."""

    def __init__(
        self, dataset: Location, entry: Entry, keys: ClassKeys, threads: int | None, memory_budget: int | None
    ) -> None:
        super().__init__()
        self.entry = entry
        self.error: BaseException | None = None
        self.starts = [0, *accumulate(part.plaintext_length for part in entry.parts)]
        self.size = self.starts[-1]
        self._dataset = dataset
        self._metadata = [keys.open(entry.key_class, part) for part in entry.parts]
        self._threads = threads
        self._memory_budget = memory_budget
        self._open: OrderedDict[int, RawReader] = OrderedDict()
        self._lock = threading.Lock()
        self._position = 0

    def raw(self, index: int) -> RawReader:
        """A part. One that is let go is closed when nobody reads from it any more."""
        with self._lock:
            found = self._open.get(index)
            if found is None:
                plaintext = open_part(
                    self._dataset, self.entry.parts[index], self._metadata[index],
                    threads=self._threads, memory_budget=self._memory_budget,
                )  # fmt: skip
                found = self._open[index] = RawReader(plaintext, window_of(plaintext, self._threads))
                if len(self._open) > _OPEN:
                    self._open.popitem(last=False)
            self._open.move_to_end(index)
            return found

    def read_into(self, offset: int, out: memoryview) -> int:
        """Fill `out` from `offset`; return how many bytes there were before the end."""
        if self.error is not None:
            refuse(self.error, "Reader")
        size = min(len(out), max(0, self.size - offset))
        done = 0
        try:
            while done < size:
                index, within, count = self._at(offset + done, size - done)
                # Held by a name: it is closed when nobody has it.
                raw = self.raw(index)
                done += raw.plaintext.read_into(within, out[done : done + count])
        except BaseException as error:
            out[:size] = bytes(size)
            self._remember(error)
            raise
        return size

    def _remember(self, error: BaseException) -> None:
        if isinstance(error, (OSError, Ags1Error)):
            self.error = error

    def _at(self, offset: int, wanted: int) -> tuple[int, int, int]:
        """The part at an offset, the offset in it, and how many of the wanted bytes it has."""
        # Behind parts that are empty.
        index = bisect_right(self.starts, offset) - 1
        return index, offset - self.starts[index], min(wanted, self.starts[index + 1] - offset)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.error is not None:
            refuse(self.error, "Reader")
        with memoryview(buffer).cast("B") as view:
            if self._position >= self.size or not view:
                return 0
            index, within, count = self._at(self._position, len(view))
            try:
                raw = self.raw(index)
                raw.seek(within)
                count = raw.readinto(view[:count])
            except BaseException as error:
                self._remember(error)
                raise
        self._position += count
        return count

    def readall(self) -> bytes:
        out: bytes = fresh_bytes(max(0, self.size - self._position))
        with writable_view(out) as view:
            self._position += self.read_into(self._position, view)
        return out

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence not in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END):
            raise ValueError(f"whence must be 0, 1 or 2, got {whence}")
        position = offset + (0, self._position, self.size)[whence]
        if position < 0:
            raise OSError(errno.EINVAL, f"negative seek position {position}")
        self._position = position
        return position

    def tell(self) -> int:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        return self._position

    def close(self) -> None:
        if not self.closed:
            super().close()
            with self._lock:
                opened = list(self._open.values())
                self._open.clear()
            for raw in opened:
                raw.close()


class JoinedReader(io.BufferedReader):
    """Plaintext of a file of several objects, as :class:`ags1.Reader` is that of one.

    :meth:`pread` and :meth:`pread_into` may be called from any number of threads at once, also beside the other
    methods, which share one position under a lock. After its first failure it refuses everything.

    Raises
    ------
    FileNotFoundError, OSError, TruncatedError, FormatError, KeyAccessError, AuthenticationError
        As :func:`open_parts` of the first object; of the others, when they are read.
    """

    def __init__(
        self,
        dataset: Location,
        entry: Entry,
        keys: ClassKeys,
        *,
        threads: int | None = None,
        memory_budget: int | None = None,
    ) -> None:
        self._parts = _Parts(dataset, entry, keys, threads, memory_budget)
        super().__init__(self._parts, buffer_size=window_of(self._parts.raw(0).plaintext, threads))

    @property
    def name(self) -> str:
        """Path of the file in its dataset."""
        return self._parts.entry.path

    @property
    def mode(self) -> str:
        """Always "rb"."""
        return "rb"

    @property
    def size(self) -> int:
        """Bytes of plaintext."""
        return self._parts.size

    @property
    def encrypted_length(self) -> int:
        """Bytes of all objects."""
        return self._parts.entry.file_length

    @property
    def block_length(self) -> int:
        """Bytes of plaintext in each block but the last of each object."""
        return DEFAULT_BLOCK_LENGTH

    @property
    def length_trusted(self) -> bool:
        """Always True: the lengths come from the manifest."""
        return True

    def readall(self) -> bytes:
        """Everything from the position to the end."""
        return self.read()

    def pread(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes at a plaintext offset, without touching the position. Thread-safe.

        Raises
        ------
        AuthenticationError, TruncatedError, OSError
            As reading; the Reader refuses everything afterwards.
        ValueError
            A negative offset or size, or a closed Reader.
        """
        self._check(offset)
        if size < 0:
            raise ValueError(f"size must not be negative, got {size}")
        out: bytes = fresh_bytes(max(0, min(size, self.size - offset)))
        with writable_view(out) as view:
            self._read_at(offset, view)
        return out

    def pread_into(self, offset: int, out: Buffer) -> int:
        """Fill `out` with plaintext from an offset, without touching the position. Thread-safe.

        Returns
        -------
        int
            Bytes written: fewer than `out` has only at the end.
        """
        self._check(offset)
        with octets(out, writable=True) as view:
            return self._read_at(offset, view)

    def _check(self, offset: int) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if offset < 0:
            raise ValueError(f"offset must not be negative, got {offset}")

    def _read_at(self, offset: int, out: memoryview) -> int:
        try:
            return self._parts.read_into(offset, out)
        except BaseException:
            if self._parts.error is not None:
                # Drop what is buffered, so that the next sequential read meets the error too.
                super().seek(0, os.SEEK_END)
            raise
