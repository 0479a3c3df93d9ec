"""Decryption and verification in a worker: the same reading, with and without something that is written.

    small    read many -> decrypt_many -> publish each
    large    one file to one file, window by window
    a range  its blocks, from their place in the encrypted file to theirs in the plaintext

The key metadata of each file is in the sealed payload of the task.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ags1 import _descriptors, layout
from ags1.codec import decrypt_many
from ags1.errors import Ags1Error, FormatError, TruncatedError
from ags1.files import decrypt_file
from ags1.keys import KeyMetadata
from ags1.spark._assembly import Range
from ags1.spark._encrypt_work import FATAL
from ags1.spark._engine import Outcome
from ags1.spark._locations import Location
from ags1.spark._planning import Unit
from ags1.spark._requests import Requests
from ags1.spark._storage import Storage
from ags1.stream import Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["DecryptWork"]

SMALL = (1 << 20) + 1024
_UNIT_FILES = 64
_UNIT_BYTES = 4 << 20
_WINDOW = 32 << 20


@dataclass
class DecryptWork:
    """Decrypts files of a dataset into a tree, or, without a target, only authenticates them.

    ``data`` of a unit: "key", the bytes of the key metadata; "length", bytes of the encrypted file by the manifest;
    "stored", where the file is below the dataset;
    "finished", nanoseconds since the epoch after which a target of the right size is one that an interrupted run
    made, or None; for a range "assembly" and "index".
    """

    source: Location
    target: Location | None
    verb: str = "decrypt"

    def run(self, units: list[Unit], tell: Callable[[int, int], None]) -> Iterator[Outcome]:
        """Decrypt or verify some units."""
        worker = _Worker(self, tell)
        small: list[Unit] = []
        size = 0
        waiting = iter(units)
        try:
            for unit in waiting:
                if unit.is_range:
                    yield worker.open_range(unit)
                elif unit.size > SMALL:
                    yield worker.open_large(unit)
                else:
                    small.append(unit)
                    size += unit.size
                    if size >= _UNIT_BYTES or len(small) >= _UNIT_FILES:
                        batch, small, size = small, [], 0
                        yield from worker.open_small(batch)
            batch, small = small, []
            yield from worker.open_small(batch)
            return
        except OSError as error:
            fatal = error
        # The disk is full: what is left would only fail too, one by one.
        for unit in [*worker.given_up, *small, *waiting]:
            yield Outcome.failed(unit, fatal)


class _Worker:
    def __init__(self, work: DecryptWork, tell: Callable[[int, int], None]) -> None:
        self._source = Storage(work.source)
        self._target = None if work.target is None else Storage(work.target)
        self._requests = Requests(self._source, self._target)
        self._tell = tell
        self.given_up: list[Unit] = []

    def _outcome(self, unit: Unit, metadata: KeyMetadata, started: float, status: str = "ok") -> Outcome:
        self._tell(1 if unit.start == 0 else 0, unit.size)
        where = self._source if self._target is None else self._target
        return Outcome(
            unit.path,
            where.location.url(unit.path),
            unit.size,
            metadata.file_length or 0,
            status,
            seconds=time.monotonic() - started,
            start=unit.start,
        )

    def _failed(self, unit: Unit, error: Exception) -> Outcome:
        if isinstance(error, OSError) and error.errno in FATAL:
            self.given_up.append(unit)
            raise error
        self._tell(1 if unit.start == 0 else 0, unit.size)
        name = self._source.location.url(unit.path)
        text = str(error).removeprefix("buffer 0: ").removeprefix("buffer 0").strip(" :")
        if isinstance(error, FileNotFoundError):
            text = f"{name} is in the manifest, but missing from the dataset"
        elif name not in text:
            text = f"{name}: {text}"
        where = self._source if self._target is None else self._target
        outcome = Outcome.failed(unit, error, target=where.location.url(unit.path))
        outcome.error = text
        return outcome

    def _is_there(self, unit: Unit) -> bool:
        if self._target is None or unit.data.get("finished") is None:
            return False
        try:
            found = self._target.stat(unit.path)
        except OSError:
            return False
        return found.size == unit.size and found.mtime_ns >= unit.data["finished"]

    # -- small files -----------------------------------------------------------------------------------------------

    def open_small(self, units: list[Unit]) -> Iterator[Outcome]:
        """Decrypt files of up to a block, in one native call."""
        ready: list[tuple[Unit, bytes, KeyMetadata, float]] = []
        for unit, taken in zip(units, self._requests.each(self._take, units), strict=True):
            if isinstance(taken, Exception):
                yield self._failed(unit, taken)
                continue
            data, metadata, seconds = taken
            if data is None:
                yield self._outcome(unit, metadata, time.monotonic() - seconds, "skipped")
            else:
                ready.append((unit, data, metadata, seconds))
        if not ready:
            return
        started = time.monotonic()
        try:
            opened: list[Any] = list(_open_many(ready))
        except Ags1Error:
            # One of them is not as it should be: which, only each by itself can say.
            opened = [_open_one(each) for each in ready]
        share = (time.monotonic() - started) / len(ready)
        made = list(zip((each[0] for each in ready), opened, strict=True))
        answers = self._requests.each(self._publish, made)
        for index, ((unit, _, metadata, seconds), answer) in enumerate(zip(ready, answers, strict=True)):
            if isinstance(answer, Exception):
                self.given_up = [each[0] for each in ready[index + 1 :]]
                yield self._failed(unit, answer)
                self.given_up = []
            else:
                yield self._outcome(unit, metadata, time.monotonic() - seconds - share - answer)

    def _take(self, unit: Unit) -> tuple[bytes | None, KeyMetadata, float]:
        """The contents of an encrypted file, or None if its plaintext is there already."""
        started = time.monotonic()
        metadata = _metadata_of(unit)
        data = None if self._is_there(unit) else self._source.read_whole(unit.data["stored"])
        return data, metadata, time.monotonic() - started

    def _publish(self, made: tuple[Unit, memoryview | Ags1Error]) -> float:
        started = time.monotonic()
        unit, plain = made
        if isinstance(plain, Ags1Error):
            raise plain
        if self._target is not None:
            self._target.publish(unit.path, plain)
        return time.monotonic() - started

    # -- large files -----------------------------------------------------------------------------------------------

    def open_large(self, unit: Unit) -> Outcome:
        """Decrypt a file of many blocks."""
        started = time.monotonic()
        told = 0

        def progress(done: int, total: int | None) -> None:
            nonlocal told
            self._tell(0, done - told)
            told = done

        try:
            metadata = _metadata_of(unit)
            if self._is_there(unit):
                return self._outcome(unit, metadata, started, "skipped")
            if self._target is None:
                with self._reader(unit, metadata) as reader:
                    self._authenticate(reader, 0, unit.size)
            else:
                self._target.ensure_parent(unit.path)
                with self._target.target(unit.path) as target:
                    decrypt_file(
                        self._source.opened(unit.data["stored"]),
                        target,
                        key_metadata=metadata,
                        threads=1,
                        progress=progress,
                    )
        except (OSError, Ags1Error) as error:
            return self._failed(unit, error)
        outcome = self._outcome(unit, metadata, started)
        self._tell(0, -told)
        return outcome

    def open_range(self, unit: Unit) -> Outcome:
        """Decrypt some blocks of a file to their place in the plaintext."""
        started = time.monotonic()
        try:
            metadata = _metadata_of(unit)
            with self._reader(unit, metadata) as reader:
                if self._target is None:
                    self._authenticate(reader, unit.start, unit.size)
                    return self._outcome(unit, metadata, started)
                with unit.data["assembly"].claim(unit.data["index"], unit.start, unit.size) as claimed:
                    if claimed is None:
                        return self._outcome(unit, metadata, started, "skipped")
                    self._open_into(unit, metadata, reader, claimed)
        except (OSError, Ags1Error) as error:
            return self._failed(unit, error)
        return self._outcome(unit, metadata, started)

    def _reader(self, unit: Unit, metadata: KeyMetadata) -> Reader:
        return Reader(
            self._source.opened(unit.data["stored"]),
            metadata.encryption_key,
            aad_prefix=metadata.aad_prefix or b"",
            length=metadata.file_length,
            threads=1,
        )

    def _authenticate(self, reader: Reader, start: int, size: int) -> None:
        memory = memoryview(bytearray(min(_WINDOW, size)))
        for done in range(start, start + size, _WINDOW):
            count = min(_WINDOW, start + size - done)
            if reader.pread_into(done, memory[:count]) != count:
                raise TruncatedError(f"only a part of {count} bytes could be read at offset {done}")
            if size > _WINDOW:
                self._tell(0, 0)

    def _open_into(self, unit: Unit, metadata: KeyMetadata, reader: Reader, claimed: Range) -> None:
        opened = self._source.opened(unit.data["stored"])
        block_length = reader.block_length
        if isinstance(opened, str) and claimed.descriptor is not None:
            source = os.open(opened, os.O_RDONLY | os.O_CLOEXEC)
            try:
                for done in range(unit.start, unit.start + unit.size, _WINDOW):
                    first = layout.plaintext_to_block(done, block_length)
                    _descriptors.open_file(
                        source, layout.block_to_ciphertext(first, block_length), claimed.descriptor, done,
                        min(_WINDOW, unit.start + unit.size - done), metadata.encryption_key,
                        metadata.aad_prefix or b"", block_length, first, 1, opened, unit.path,
                    )  # fmt: skip
            finally:
                os.close(source)
            return
        memory = memoryview(bytearray(min(_WINDOW, unit.size)))
        for done in range(unit.start, unit.start + unit.size, _WINDOW):
            piece = memory[: min(_WINDOW, unit.start + unit.size - done)]
            reader.pread_into(done, piece)
            claimed.write(done, piece)


def _metadata_of(unit: Unit) -> KeyMetadata:
    """The key metadata of a file, if its lengths agree with each other and with the manifest."""
    try:
        metadata = KeyMetadata.decode(unit.data["key"])
        size = layout.plaintext_length(unit.data["length"])
    except Ags1Error as error:
        raise FormatError(f"the entry of {unit.path} is damaged: {error}") from None
    whole = unit.whole if unit.is_range else unit.size
    if metadata.file_length != unit.data["length"] or size != whole:
        raise FormatError(f"the entry of {unit.path} has lengths that contradict each other")
    return metadata


def _open_many(files: list[tuple[Unit, bytes, KeyMetadata, float]]) -> list[memoryview]:
    plain = decrypt_many(
        [data for _, data, _, _ in files],
        [metadata.encryption_key for _, _, metadata, _ in files],
        aad_prefixes=[metadata.aad_prefix or b"" for _, _, metadata, _ in files],
        lengths=[metadata.file_length for _, _, metadata, _ in files],
        threads=1,
    )
    for (unit, *_), each in zip(files, plain, strict=True):
        if len(each) != unit.size:
            raise FormatError(f"{unit.path} has {len(each)} bytes of plaintext, but the manifest says {unit.size}")
    return plain


def _open_one(file: tuple[Unit, bytes, KeyMetadata, float]) -> memoryview | Ags1Error:
    try:
        return _open_many([file])[0]
    except Ags1Error as error:
        return error
