"""Workers encrypt, decrypt and verify files. Threads and Spark tasks run the same code.

    up to 1 MiB     read many --> one native call --> write each
    more            block after block, by positions of files where both sides are local, else by requests at once

An encrypted file is one object, or several for a big one: each is a whole stream under a unique name. So it is written
directly under that name, and a part that a failure leaves behind does no harm.
"""

from __future__ import annotations

import errno
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from typing import NamedTuple

from ags1 import layout
from ags1.codec import decrypt_many, encrypt_many
from ags1.core.blocks import usable_cpus
from ags1.core.gcm import Key
from ags1.dataset.entries import DatasetEntry, Part, SourceIdentity
from ags1.dataset.joined import open_part
from ags1.dataset.keys import DatasetKeys
from ags1.dataset.names import part_name
from ags1.dataset.runs import RunKeys
from ags1.dataset.sources import open_same, place_of, read_same, read_same_file, refuse_stream
from ags1.dataset.targets import LocalTarget, open_target
from ags1.errors import Ags1Error, AuthenticationError, FormatError
from ags1.keys import KeyMetadata
from ags1.layout import DEFAULT_BLOCK_LENGTH, encrypted_length
from ags1.storage import Directories, Location, read_whole
from ags1.streams.cipher import BlockCipher
from ags1.streams.files import open_plaintext, seal_source
from ags1.streams.reading import Plaintext
from ags1.support.typing import Any, Buffer
from ags1.work.units import Advance, Threads, Work, attempts

SMALL = 1 << 20
"""Files of up to so many bytes of plaintext are processed together."""
# A larger file gets all threads, after earlier units end: otherwise one thread would work alone on the last file.
_LARGE = 32 << 20
# Files of this machine of so many bytes are mostly calls of Python and of the system.
_BRIEF = 64 << 10
_AHEAD = 4
_CHECKED = 8 << 20
_MOST_PARTS = 99_999


class EncryptUnit(NamedTuple):
    """A file, or a range of a big one, to encrypt into an object. It holds no key, so it can be sent to a process.

    `path` is the path in the dataset, `source` the path relative to the source ("" if that is the file itself);
    `identity` is that of the whole source in the listing; `name` is the name of the object. A range begins at `start`
    of a file of `whole` bytes; `whole` is -1 if the unit is a whole file. A `small` one, which is a whole file, is done
    together with others.
    """

    path: str
    size: int
    source: str
    identity: SourceIdentity
    name: str
    mode: int | None = None
    start: int = 0
    whole: int = -1
    small: bool = False


class ReadUnit(NamedTuple):
    """A range of a big file, to be decrypted or verified. It holds no open key.

    `entry` has only the objects that contain some of the range. The range begins at the offset `first` of those, at a
    block, and at `start` of the file; `into` is the name, relative to the target, of the file that
    :meth:`LocalTarget.begin` has made for its plaintext.
    """

    entry: DatasetEntry
    first: int
    size: int
    start: int
    into: str = ""

    @property
    def stored(self) -> int:
        """Bytes of its objects that belong to no earlier range."""
        lengths = [part.file_length for part in self.entry.parts]
        return sum(lengths[1:] if self.first else lengths)


def cut_entry(entry: DatasetEntry, part_bytes: int, into: str = "") -> list[ReadUnit]:
    """Ranges of a file of about `part_bytes` each, which begin where a block of one of its objects does."""
    blocks = max(1, part_bytes // DEFAULT_BLOCK_LENGTH)
    units: list[ReadUnit] = []
    parts: list[Part] = []
    first = size = start = 0
    for part in entry.parts:
        done = 0
        while not parts or parts[-1] is not part or done < part.plaintext_length:
            room = (blocks - -(-size // DEFAULT_BLOCK_LENGTH)) * DEFAULT_BLOCK_LENGTH
            if not room:
                units.append(ReadUnit(replace(entry, parts=tuple(parts)), first, size, start, into))
                parts, first, size, start = [], done, 0, start + size
                continue
            count = min(part.plaintext_length - done, room)
            parts, size, done = [*parts, part], size + count, done + count
    return [*units, ReadUnit(replace(entry, parts=tuple(parts)), first, size, start, into)]


def on_threads(count: int | None) -> Threads:
    """How the files of a dataset are worked on, by default on a thread for each usable CPU."""
    return Threads(usable_cpus() if count is None else count, alone=_LARGE, ahead=_AHEAD)


def cut(unit: EncryptUnit, part_bytes: int) -> list[EncryptUnit]:
    """Ranges of a file, of `part_bytes` each, in whole blocks; the unit itself if it is no longer than one.

    Each becomes an object of its own: a :class:`~ags1.dataset.entries.Part` of the file's entry.
    """
    blocks = max(1, part_bytes // DEFAULT_BLOCK_LENGTH, -(-unit.size // (_MOST_PARTS * DEFAULT_BLOCK_LENGTH)))
    step = blocks * DEFAULT_BLOCK_LENGTH
    if unit.size <= step:
        return [unit]
    return [
        unit._replace(
            size=min(step, unit.size - start),
            name=part_name(unit.name, index),
            start=start,
            whole=unit.size,
            small=False,
        )
        for index, start in enumerate(range(0, unit.size, step))
    ]


# -- encrypting ----------------------------------------------------------------------------------------------------


class EncryptWorker(Work):
    """Encrypts files of a source into objects of a dataset.

    The sources of units are relative to `source`, the names of objects to `target`. A source that is an AGS1 stream is
    refused, unless it is to be encrypted `again`. The result of a unit has the name of each object, and its bytes of
    plaintext.
    """

    def __init__(self, source: Location, target: Location, keys: RunKeys, *, again: bool = False) -> None:
        self._source = source
        self._target = target
        self._keys = keys
        self._again = again
        self.brief = _BRIEF if source.is_local and target.is_local else 0

    def together(self, units: list[EncryptUnit]) -> list[tuple[tuple[str, int], ...] | Exception]:
        """Encrypt small files by one call."""
        found = list(attempts(self._read, units, remote=not self._source.is_local))
        read = [(unit, data) for unit, data in zip(units, found, strict=True) if not isinstance(data, Exception)]
        keys = [self._keys.derive(unit.name) for unit, _ in read]
        streams = encrypt_many(
            [data for _, data in read],
            [key for key, _ in keys],
            aad_prefixes=[prefix for _, prefix in keys],
            threads=1,
        )

        def write(pair: tuple[EncryptUnit, memoryview]) -> tuple[tuple[str, int], ...]:
            unit, stream = pair
            target.write_new(unit.name, stream)
            return ((unit.name, unit.size),)

        with open_target(self._target) as target:
            pairs = [(unit, stream) for (unit, _), stream in zip(read, streams, strict=True)]
            written = iter(list(attempts(write, pairs, remote=not target.is_local)))
        return [each if isinstance(each, Exception) else next(written) for each in found]

    def _read(self, unit: EncryptUnit) -> Buffer:
        if self._source.is_local:
            path = self._source.path
            data: Buffer = read_same_file(f"{path}/{unit.source}" if unit.source else path, unit.identity)
        else:
            data = read_same(place_of(self._source, unit.source), unit.identity)
        if not self._again:
            refuse_stream(self._source, unit.source, data)
        return data

    def one(self, unit: EncryptUnit, threads: int | None, advance: Advance) -> tuple[tuple[str, int], ...]:
        """Encrypt a large file, or a range."""
        key, prefix = self._keys.derive(unit.name)
        cipher = BlockCipher(Key(key), prefix, DEFAULT_BLOCK_LENGTH, threads)
        with ExitStack() as opened:
            with open_same(place_of(self._source, unit.source), unit.identity) as source:
                if unit.start == 0 and not self._again:
                    refuse_stream(self._source, unit.source, source.read(0, min(source.size, layout.HEADER_LENGTH)))
                target = opened.enter_context(open_target(self._target))
                output = opened.enter_context(target.open_new(unit.name, encrypted_length(unit.size)))
                output.write(layout.write_header())
                seal_source(source, unit.start, unit.size, output, cipher, advance.bytes)
            # By now it is known that the source did not change.
            output.commit()
        return ((unit.name, unit.size),)


# -- decrypting and verifying --------------------------------------------------------------------------------------


class ReadingWorker(Work):
    """Base class of decrypting and verifying. Units are entries, or ranges of a big one.

    Every block of them is authenticated. The result of a unit has the name of its file, and its bytes of plaintext.
    """

    def __init__(self, dataset: Location, keys: DatasetKeys) -> None:
        self._dataset = dataset
        self._keys = keys
        self.brief = _BRIEF if dataset.is_local else 0

    def size_of(self, unit: DatasetEntry | ReadUnit) -> int:
        """Bytes of plaintext."""
        return unit.size if isinstance(unit, ReadUnit) else unit.plaintext_length

    def is_small(self, unit: DatasetEntry | ReadUnit) -> bool:
        """Whether it is a small file of one object; a range is none."""
        return isinstance(unit, DatasetEntry) and len(unit.parts) == 1 and unit.plaintext_length <= SMALL

    def together(self, entries: list[DatasetEntry]) -> list[tuple[tuple[str, int], ...] | Exception]:
        """Read small files by one call."""
        failures = self._keep(entries, self._plaintexts(entries))
        return [
            failure or ((entry.path, entry.plaintext_length),) for entry, failure in zip(entries, failures, strict=True)
        ]

    def _plaintexts(self, entries: list[DatasetEntry]) -> list[memoryview | Exception]:
        """The plaintexts of small files, or the error for each."""
        # On this thread, so that many requests do not ask the KMS for the same key.
        keys: list[Any] = list(attempts(lambda entry: self._keys.open_part(entry.parts[0]), entries, remote=False))
        pairs = list(zip(entries, keys, strict=True))
        is_local = self._dataset.is_local
        with Directories(self._dataset.path) if is_local else nullcontext() as opened:
            found: list[Any] = list(attempts(lambda pair: self._read(pair, opened), pairs, remote=not is_local))
        good = [index for index, data in enumerate(found) if not isinstance(data, Exception)]
        try:
            plain: Sequence[Any] = _open_many([found[index] for index in good], [keys[index] for index in good])
        except Ags1Error:
            # One of them is faulty: decrypt each alone, to find which.
            plain = [self._open_one(entries[index], found[index], keys[index]) for index in good]
        for index, each in zip(good, plain, strict=True):
            found[index] = each
        return found

    def _read(self, pair: tuple[DatasetEntry, KeyMetadata | Exception], directories: Directories | None) -> Buffer:
        entry, key = pair
        if isinstance(key, Exception):
            raise key
        part = entry.parts[0]
        try:
            if directories is not None:
                # One byte more than there should be shows that there are more.
                data = directories.read(part.name, part.file_length + 1)
                if len(data) > part.file_length:
                    size, name = directories.status(part.name).st_size, self._dataset.join(part.name).text
                    raise FormatError(f"{name} has {size:,} bytes, not {part.file_length:,}: bytes were added to it")
                return data
            return read_whole(self._dataset.join(part.name), part.file_length)
        except FileNotFoundError:
            raise self._missing(part) from None

    def _missing(self, part: Part) -> FileNotFoundError:
        text = "is in the manifest, but missing from the dataset"
        return FileNotFoundError(errno.ENOENT, text, self._dataset.join(part.name).shown)

    def _open_one(self, entry: DatasetEntry, data: Buffer, key: Any) -> memoryview | Exception:
        try:
            return _open_many([data], [key])[0]
        except Ags1Error as error:
            name = self._dataset.join(entry.parts[0].name).text
            again = type(error)(f"{name}: {str(error).removeprefix('buffer 0').strip(' :')}")
            if isinstance(error, AuthenticationError) and isinstance(again, AuthenticationError):
                again.block_index = error.block_index
            return again

    def _keep(self, entries: list[DatasetEntry], found: list[memoryview | Exception]) -> list[Exception | None]:
        """Use the plaintexts of small files; return those that failed."""
        raise NotImplementedError

    def _parts(self, unit: ReadUnit, threads: int | None) -> Generator[tuple[Plaintext, int, int], None, None]:
        """The plaintext of each object of a range, with the start and end offsets of the range in it."""
        entry, first, left = unit.entry, unit.first, unit.size
        # All keys first: a missing key is an error before any work.
        keys = [self._keys.open_part(part) for part in entry.parts]
        for part, key in zip(entry.parts, keys, strict=True):
            try:
                plaintext = open_part(self._dataset, part, key, threads=threads)
            except FileNotFoundError:
                raise self._missing(part) from None
            end = min(plaintext.size, first + left)
            with closing(plaintext.source):
                yield plaintext, first, end
                plaintext.source.check()
            first, left = 0, left - (end - first)


def _as_range(unit: DatasetEntry | ReadUnit) -> ReadUnit:
    return unit if isinstance(unit, ReadUnit) else ReadUnit(unit, 0, unit.plaintext_length, 0)


def _open_many(data: list[Buffer], keys: list[KeyMetadata]) -> Sequence[memoryview]:
    return decrypt_many(
        data,
        [key.encryption_key for key in keys],
        aad_prefixes=[key.aad_prefix or b"" for key in keys],
        lengths=[key.file_length for key in keys],
        threads=1,
    )


class DecryptWorker(ReadingWorker):
    """Decrypts files of a dataset into a directory or below a URL, under their paths, with their modes and times.

    Each file appears whole, and replaces what had its path. Links are not followed, and
    special files are not written to. A range of a big file is written to its offset in a file that has a temporary
    name.
    """

    def __init__(self, dataset: Location, target: Location, keys: DatasetKeys) -> None:
        super().__init__(dataset, keys)
        self._target = target
        self.brief = _BRIEF if dataset.is_local and target.is_local else 0

    def _keep(self, entries: list[DatasetEntry], found: list[memoryview | Exception]) -> list[Exception | None]:
        with open_target(self._target) as target:

            def write(pair: tuple[DatasetEntry, memoryview | Exception]) -> None:
                entry, plain = pair
                if isinstance(plain, Exception):
                    raise plain
                target.write(entry.path, plain, entry.mode, entry.modified_ns)

            return list(attempts(write, list(zip(entries, found, strict=True)), remote=not target.is_local))

    def one(self, unit: DatasetEntry | ReadUnit, threads: int | None, advance: Advance) -> tuple[tuple[str, int], ...]:
        """Decrypt a large file, or a range."""
        unit = _as_range(unit)
        start = unit.start
        with open_target(self._target) as target, closing(self._parts(unit, threads)) as parts:
            if unit.into:
                assert isinstance(target, LocalTarget)
                output = target.fill(unit.into, start)
            else:
                output = target.open(unit.entry.path, unit.size, unit.entry.mode, unit.entry.modified_ns)
            with output:
                for plaintext, first, end in parts:
                    open_plaintext(plaintext, first, end, output, lambda _: advance.bytes(output.position - start))
                output.commit()
        return ((unit.into or unit.entry.path, unit.size),)


class VerifyWorker(ReadingWorker):
    """Authenticates every block of files of a dataset; the plaintext is discarded."""

    def _keep(self, entries: list[DatasetEntry], found: list[memoryview | Exception]) -> list[Exception | None]:
        return [each if isinstance(each, Exception) else None for each in found]

    def one(self, unit: DatasetEntry | ReadUnit, threads: int | None, advance: Advance) -> tuple[tuple[str, int], ...]:
        """Verify a large file, or a range."""
        unit, done = _as_range(unit), 0
        with closing(self._parts(unit, threads)) as parts:
            for plaintext, first, end in parts:
                for count in self._checked(plaintext, first, end):
                    done += count
                    advance.bytes(done)
        return ((unit.entry.path, unit.size),)

    def _checked(self, plaintext: Plaintext, first: int, end: int) -> Iterator[int]:
        """Authenticate an object between two offsets; yield the lengths of the pieces."""
        if plaintext.source.is_remote:
            yield from map(len, plaintext.opened(first, end))
            return
        with memoryview(bytearray(min(_CHECKED, end - first))) as memory:
            for done in range(first, end, _CHECKED):
                count = min(_CHECKED, end - done)
                plaintext.open_whole(done // plaintext.block_length, memory[:count])
                yield count
