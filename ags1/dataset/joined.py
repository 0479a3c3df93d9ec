"""Reading a file of a dataset: the plain Reader where it is one object, and one over several where it is big.

part 0            part 1            part 2              each an AGS1 stream, opened when it is first read
|-----------------|-----------------|--------|
        [=== pread ==============]                      from as many as it touches
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate

from ags1.dataset.entries import DatasetEntry, Part
from ags1.dataset.keys import DatasetKeys
from ags1.errors import Ags1Error, FormatError
from ags1.keys import KeyMetadata
from ags1.layout import DEFAULT_BLOCK_LENGTH
from ags1.storage import Location, PipeSource, open_source
from ags1.streams.reading import Plaintext, RawReader, refuse, window_of
from ags1.streams.stream import Reader
from ags1.support.arrow_threads import lend
from ags1.support.recently_used import RecentlyUsed
from ags1.support.typing import Any

# Parts that are open at once; each may hold a block, and data that it has read ahead.
_OPEN = 4


def open_parts(dataset: Location, entry: DatasetEntry, keys: DatasetKeys, *, threads: int | None = None) -> Reader:
    """Open the plaintext of a file.

    TruncatedError, FormatError: an object is shorter or longer than its entry says. KeyAccessError,
    AuthenticationError: its key is not available.
    """
    if len(entry.parts) != 1:
        return JoinedReader(dataset, entry, keys, threads=threads)
    (part,) = entry.parts
    metadata = keys.open_part(part)
    place = dataset.as_root().join(part.name)
    reader = Reader(
        place, metadata.encryption_key, aad_prefix=metadata.aad_prefix or b"", length=metadata.file_length,
        threads=threads,
    )  # fmt: skip
    if reader.size != part.plaintext_length:
        reader.close()
        raise _wrong_size(place, reader.size, part)
    return reader


def open_part(dataset: Location, part: Part, metadata: KeyMetadata, *, threads: int | None = 1) -> Plaintext:
    """The plaintext of one object, by position; faults as :func:`open_parts`. The caller closes its ``source``."""
    place = dataset.as_root().join(part.name)
    source = open_source(place)
    assert not isinstance(source, PipeSource)
    try:
        plaintext = Plaintext(
            source, metadata.encryption_key, metadata.aad_prefix or b"", metadata.file_length, threads
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


class _Parts:
    """The parts of a file as one plaintext, by position from any thread; like :class:`Plaintext` for one object."""

    block_length = DEFAULT_BLOCK_LENGTH
    length_trusted = True

    def __init__(self, dataset: Location, entry: DatasetEntry, keys: DatasetKeys, threads: int | None) -> None:
        self.error: BaseException | None = None
        self.starts = [0, *accumulate(part.plaintext_length for part in entry.parts)]
        self.size = self.starts[-1]
        self.encrypted_length = entry.file_length
        self._dataset = dataset
        self._parts = entry.parts
        self._metadata = [keys.open_part(part) for part in entry.parts]
        self._threads = threads
        self._open = RecentlyUsed(_OPEN)

    def raw(self, index: int) -> RawReader:
        """A part. A part that is dropped from the cache is closed after its last reader."""

        def make() -> RawReader:
            plaintext = open_part(self._dataset, self._parts[index], self._metadata[index], threads=self._threads)
            return RawReader(plaintext, window_of(plaintext, self._threads))

        found: RawReader = self._open.get(index, make)
        return found

    def read_into(self, offset: int, out: memoryview) -> int:
        """Fill `out` from `offset`; return how many bytes there were before the end."""
        size = min(len(out), max(0, self.size - offset))
        done = 0
        with self.remembering():
            try:
                while done < size:
                    index, within, count = self.at(offset + done, size - done)
                    # The local name keeps the part open.
                    raw = self.raw(index)
                    done += raw.plaintext.read_into(within, out[done : done + count])
            except BaseException:
                out[:size] = bytes(size)
                raise
        return size

    def at(self, offset: int, wanted: int) -> tuple[int, int, int]:
        """The part at an offset, the offset in it, and how many of the wanted bytes it has."""
        # Skip empty parts.
        index = bisect_right(self.starts, offset) - 1
        return index, offset - self.starts[index], min(wanted, self.starts[index + 1] - offset)

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """After the first failure, refuse everything."""
        if self.error is not None:
            refuse(self.error, "Reader")
        try:
            yield
        except (OSError, Ags1Error) as error:
            self.error = error
            raise

    def close(self) -> None:
        opened = self._open.newest_first()
        self._open.clear()
        for raw in opened:
            raw.close()


class _RawParts(RawReader):
    """A position in the parts; each part reads ahead by itself."""

    plaintext: _Parts  # type: ignore[assignment]

    def __init__(self, parts: _Parts) -> None:
        io.RawIOBase.__init__(self)
        self.closed = False
        self.plaintext = parts
        self._position = 0
        self._ahead = self._straight = self._budget = None

    def readinto(self, buffer: Any) -> int:
        parts = self.plaintext
        with parts.remembering(), memoryview(buffer).cast("B") as view:
            if self._position >= parts.size or not view:
                return 0
            index, within, count = parts.at(self._position, len(view))
            raw = parts.raw(index)
            raw.seek(within)
            count = raw.readinto(view[:count])
        self._position += count
        return count

    def close(self) -> None:
        if not self.closed:
            io.RawIOBase.close(self)
            self.closed = True
            self.plaintext.close()


class JoinedReader(Reader):
    """Plaintext of a file of several objects: a Reader with the lengths of the manifest."""

    def __init__(
        self, dataset: Location, entry: DatasetEntry, keys: DatasetKeys, *, threads: int | None = None
    ) -> None:
        parts = _Parts(dataset, entry, keys, threads)
        self._path = entry.path
        self._plaintext = parts  # type: ignore[assignment]
        io.BufferedReader.__init__(self, _RawParts(parts), buffer_size=window_of(parts.raw(0).plaintext, threads))
        lend(self)

    @property
    def name(self) -> str:
        """Path of the file in its dataset."""
        return self._path
