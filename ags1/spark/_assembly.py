"""One big file that many tasks write, each a range of it; retries, twins and zombies of a task do no harm.

    driver:  assembly = Assembly.begin(...)  --pickled-->  tasks: with assembly.claim(...) as part: write it
    driver:  assembly.complete()             the file appears, whole; or assembly.abort()

It rests on what every attempt at a range writes being interchangeable: the same plaintext sealed under the same keys,
if perhaps with other nonces. So it is enough that no block is made of pieces of two attempts:

- locally (:mod:`ags1.spark._local_assembly`) a range is locked while it is written, and never written again after it;
- in S3 (:mod:`ags1.spark._multipart`) the parts of a multipart upload are whole blocks, and each is replaced whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from ags1.spark._storage import Storage

__all__ = ["Assembly", "Layout", "Range"]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a file is cut into ranges. Small however many there are: nearly all have the same length.

    Parameters
    ----------
    runs : tuple of pairs
        Length in bytes and how many successive ranges have it.
    unit : int
        Bytes of what must come from one attempt: a sealed block; 1 if every attempt writes the same bytes.
    origin : int
        Offset of the first unit: the length of the header.
    """

    runs: tuple[tuple[int, int], ...]
    unit: int = 1
    origin: int = 0

    @classmethod
    def of(cls, length: int, ranges: Iterable[Sequence[int]], unit: int, origin: int) -> Layout:
        """Check ranges, and remember them.

        Raises
        ------
        ValueError
            They do not follow one another from 0 to `length`, or cut a unit in two.
        """
        if unit < 1 or origin < 0:
            raise ValueError(f"a unit has 1 byte or more, and an offset of 0 or more, not {unit} and {origin}")
        runs: list[list[int]] = []
        end = 0
        for offset, count in ranges:
            if offset != end or count <= 0:
                raise ValueError(f"the ranges of a file follow one another: not {count} bytes at {offset} after {end}")
            if offset and (offset < origin or (offset - origin) % unit):
                raise ValueError(f"the range at {offset} begins inside a unit: units of {unit} begin at {origin}")
            end += count
            if runs and runs[-1][0] == count:
                runs[-1][1] += 1
            else:
                runs.append([count, 1])
        if end != length or not runs:
            raise ValueError(f"the ranges have {end} bytes, but the file {length}")
        return cls(tuple((count, times) for count, times in runs), unit, origin)

    @property
    def count(self) -> int:
        """How many ranges there are."""
        return sum(times for _, times in self.runs)

    @property
    def length(self) -> int:
        """Bytes of the file."""
        return sum(length * times for length, times in self.runs)

    def ranges(self) -> Iterator[tuple[int, int, int]]:
        """Index, offset and length of each range."""
        index = offset = 0
        for length, times in self.runs:
            for _ in range(times):
                yield index, offset, length
                index += 1
                offset += length

    def check(self, index: int, offset: int, length: int) -> None:
        """Raise ValueError if there is no such range."""
        first = start = 0
        for size, times in self.runs:
            if 0 <= index - first < times:
                if (offset, length) == (start + (index - first) * size, size):
                    return
                break
            first += times
            start += size * times
        raise ValueError(f"range {index} of this file is not {length} bytes at {offset}")


class Range(ABC):
    """A range that this attempt is to write, and nobody else does.

    Attributes
    ----------
    descriptor : int or None
        Locally: write at offsets of the whole file, from `offset` to `offset` + `length`. Not owned. None elsewhere.
    offset, length : int
        Where it is in the file.
    """

    descriptor: int | None = None

    def __init__(self, offset: int, length: int) -> None:
        self.offset = offset
        self.length = length

    @abstractmethod
    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write the next bytes; `offset` is that in the file, and says that they are the next.

        Raises
        ------
        ValueError
            They are not the next, or too many.
        OSError
            They cannot be written.
        """


class Assembly(ABC):
    """A file being assembled. Can be pickled, for tasks on other machines; it holds no keys.

    Attributes
    ----------
    storage : Storage
        The tree.
    path : str
        Where the file is to be.
    layout : Layout
        Its ranges.
    """

    def __init__(self, storage: Storage, path: str, layout: Layout) -> None:
        self.storage = storage
        self.path = path
        self.layout = layout

    @classmethod
    def begin(
        cls,
        storage: Storage,
        path: str,
        scratch: str,
        length: int,
        ranges: Iterable[Sequence[int]],
        *,
        unit: int,
        origin: int = 0,
        identity: str = "",
    ) -> Assembly | None:
        """Prepare to write a file in ranges.

        Parameters
        ----------
        storage : Storage
            The tree that the file will be in.
        path : str
            Where in it.
        scratch : str
            A directory in it for this file alone, where nobody looks for files of the tree. Object stores need none.
        length : int
            Bytes of the file.
        ranges : iterable of pairs
            Offset and length of each, one after the other.
        unit : int
            Bytes of a sealed block, with what belongs to it: nothing smaller may be mixed from two attempts. 1 if every
            attempt writes the same bytes, as decryption does.
        origin : int
            Bytes in front of the first unit.
        identity : str
            What besides length and ranges must have been the same for an interrupted assembly to be continued: run,
            size and time of the source.

        Returns
        -------
        Assembly or None
            None if this storage cannot: one task must write the whole file then.

        Raises
        ------
        ValueError
            Ranges that do not make up the file.
        OSError
            The storage failed.
        """
        layout = Layout.of(length, ranges, unit, origin)
        if storage.location.is_local:
            from ags1.spark._local_assembly import LocalAssembly

            return LocalAssembly.prepare(storage, path, scratch, layout, identity)
        if storage.location.protocol == "s3":
            from ags1.spark._multipart import MultipartUpload

            return MultipartUpload.prepare(storage, path, layout)
        return None

    @abstractmethod
    def claim(self, index: int, offset: int, length: int) -> AbstractContextManager[Range | None]:
        """Take a range to write, in a ``with`` statement; it counts as written if the statement ends well.

        Waits while another attempt writes it. Answers None if there is nothing left to do: that one has finished it,
        or the whole file is complete or given up.

        Raises
        ------
        ValueError
            There is no such range.
        OSError
            The storage failed.
        """

    @abstractmethod
    def complete(self) -> None:
        """Put the file in place. Doing it again does no harm.

        Raises
        ------
        Ags1Error
            A range has not been written; names the first.
        OSError
            The storage failed.
        """

    @abstractmethod
    def abort(self) -> None:
        """Give the file up, with all that has been written of it; what is in its place stays. May be repeated."""
