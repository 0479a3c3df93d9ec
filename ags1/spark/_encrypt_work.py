"""Encryption in a worker: small files by the unit of one native call, large ones by themselves, huge ones by ranges.

    small    read many -> derive their keys -> encrypt_many -> publish each
    large    one file to one file, window by window
    a range  claimed, so that of two attempts one writes -> its blocks, at their place in a file that others fill too

The key of a file is derived from the run's, so any attempt at any part of it seals under the same one.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ags1 import _descriptors, layout
from ags1._blocks import seal_blocks
from ags1.codec import encrypt_many
from ags1.dataset._runs import RunKeys
from ags1.errors import Ags1Error
from ags1.files import encrypt_file
from ags1.keys import KeyMetadata
from ags1.layout import DEFAULT_BLOCK_LENGTH, encrypted_length
from ags1.spark._assembly import Range
from ags1.spark._engine import Outcome
from ags1.spark._locations import Location
from ags1.spark._planning import Unit
from ags1.spark._requests import Requests
from ags1.spark._sealing import Opener
from ags1.spark._storage import Listed, Storage
from ags1.stream import Reader

__all__ = ["FATAL", "EncryptWork", "is_whole", "ranges_of"]

SMALL = 1 << 20
_UNIT_FILES = 64
_UNIT_BYTES = 4 << 20
_CHECKED_WHOLE = 4 << 20
_WINDOW = 32 << 20
FATAL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""After these, nothing else can be written either."""


def ranges_of(first: int, end: int) -> tuple[int, int]:
    """Where the blocks of a range of plaintext, the header before the first of all, are in the encrypted file."""
    start = 0 if first == 0 else layout.block_to_ciphertext(layout.plaintext_to_block(first))
    return start, encrypted_length(end)


def is_whole(storage: Storage, path: str, metadata: KeyMetadata, plaintext_length: int) -> bool:
    """Whether a file is there that an interrupted run made: its length, its first block and its last are right."""
    length = metadata.file_length or 0
    try:
        if storage.stat(path).size != length:
            return False
        with Reader(
            storage.opened(path),
            metadata.encryption_key,
            aad_prefix=metadata.aad_prefix or b"",
            length=length,
            threads=1,
        ) as reader:
            if reader.size != plaintext_length:
                return False
            if length <= _CHECKED_WHOLE:
                return len(reader.read()) == plaintext_length
            reader.pread(0, 1)
            reader.pread(plaintext_length - 1, 1)
    except (Ags1Error, OSError):
        return False
    return True


@dataclass
class EncryptWork:
    """Encrypts files of a tree into a dataset.

    ``data`` of a unit: "mtime_ns"; "place", where the file goes below the dataset; "look", whether it may be there
    from an interrupted run; for a range "assembly" and "index".
    """

    source: Location
    target: Location
    opener: Opener
    verb: str = "encrypt"

    def run(self, units: list[Unit], tell: Callable[[int, int], None]) -> Iterator[Outcome]:
        """Encrypt some units."""
        worker = _Worker(self, tell)
        small: list[Unit] = []
        size = 0
        waiting = iter(units)
        try:
            for unit in waiting:
                if unit.is_range:
                    yield worker.seal_range(unit)
                elif unit.size > SMALL:
                    yield worker.seal_large(unit)
                else:
                    small.append(unit)
                    size += unit.size
                    if size >= _UNIT_BYTES or len(small) >= _UNIT_FILES:
                        batch, small, size = small, [], 0
                        yield from worker.seal_small(batch)
            batch, small = small, []
            yield from worker.seal_small(batch)
            return
        except OSError as error:
            fatal = error
        # The disk is full: what is left would only fail too, one by one.
        for unit in [*worker.given_up, *small, *waiting]:
            yield Outcome.failed(unit, fatal)


class _Worker:
    def __init__(self, work: EncryptWork, tell: Callable[[int, int], None]) -> None:
        self._source = Storage(work.source)
        self._target = Storage(work.target)
        self._where = work.target
        self._requests = Requests(self._source, self._target)
        self._keys: RunKeys = work.opener.keys()
        self._tell = tell
        self.given_up: list[Unit] = []

    def _outcome(self, unit: Unit, metadata: KeyMetadata, started: float, status: str = "ok") -> Outcome:
        self._tell(1 if unit.start == 0 else 0, unit.size)
        return Outcome(
            unit.path,
            self._where.url(unit.path),
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
        return Outcome.failed(unit, error, target=self._where.url(unit.path))

    def _metadata(self, unit: Unit) -> KeyMetadata:
        size = unit.whole if unit.is_range else unit.size
        return self._keys.file_key(unit.path, size, unit.data["mtime_ns"])

    def _is_there(self, unit: Unit, metadata: KeyMetadata) -> bool:
        return bool(unit.data.get("look")) and is_whole(self._target, unit.data["place"], metadata, unit.size)

    # -- small files -----------------------------------------------------------------------------------------------

    def seal_small(self, units: list[Unit]) -> Iterator[Outcome]:
        """Encrypt files of up to a block, in one native call."""
        ready: list[tuple[Unit, bytes, KeyMetadata, float]] = []
        for index, (unit, taken) in enumerate(zip(units, self._requests.each(self._take, units), strict=True)):
            if isinstance(taken, Exception):
                self.given_up = [*(each[0] for each in ready), *units[index + 1 :]]
                yield self._failed(unit, taken)
                self.given_up = []
                continue
            data, metadata, seconds = taken
            if data is None:
                yield self._outcome(unit, metadata, time.monotonic() - seconds, "skipped")
            else:
                ready.append((unit, data, metadata, seconds))
        if not ready:
            return
        started = time.monotonic()
        streams = encrypt_many(
            [data for _, data, _, _ in ready],
            [metadata.encryption_key for _, _, metadata, _ in ready],
            aad_prefixes=[metadata.aad_prefix or b"" for _, _, metadata, _ in ready],
            threads=1,
        )
        share = (time.monotonic() - started) / len(ready)
        made = list(zip((each[0] for each in ready), streams, strict=True))
        answers = self._requests.each(self._publish, made)
        for index, ((unit, _, metadata, seconds), answer) in enumerate(zip(ready, answers, strict=True)):
            if isinstance(answer, Exception):
                self.given_up = [each[0] for each in ready[index + 1 :]]
                yield self._failed(unit, answer)
                self.given_up = []
            else:
                yield self._outcome(unit, metadata, time.monotonic() - seconds - share - answer)

    def _take(self, unit: Unit) -> tuple[bytes | None, KeyMetadata, float]:
        """The contents of a source, or None if its file is there already."""
        started = time.monotonic()
        metadata = self._metadata(unit)
        data = None if self._is_there(unit, metadata) else self._read(unit)
        return data, metadata, time.monotonic() - started

    def _publish(self, made: tuple[Unit, memoryview]) -> float:
        started = time.monotonic()
        unit, stream = made
        self._target.publish(unit.data["place"], stream)
        return time.monotonic() - started

    def _read(self, unit: Unit) -> bytes:
        if self._source.location.is_local:
            name = self._source.opened(unit.path)
            data, status = _read_local(name, unit.size)
            if (status.st_size, status.st_mtime_ns) != (unit.size, unit.data["mtime_ns"]):
                raise _changed(name)
            return data
        # An object is replaced whole, never half. If that was just now, by one as long, the time in the manifest is not
        # the new one's, and the next run encrypts it again: that needs no request to be sure of it now.
        data = self._source.read_whole(unit.path)
        if len(data) != unit.size:
            raise _changed(self._source.location.url(unit.path))
        return data

    def _refuse_if_changed(self, unit: Unit) -> None:
        """Compare a source with what was listed; behind an object store that costs a request."""
        size = unit.whole if unit.is_range else unit.size
        now: Listed = self._source.stat(unit.path)
        if (now.size, now.mtime_ns) != (size, unit.data["mtime_ns"]):
            raise _changed(self._source.location.url(unit.path))

    # -- large files -----------------------------------------------------------------------------------------------

    def seal_large(self, unit: Unit) -> Outcome:
        """Encrypt a file of many blocks."""
        started = time.monotonic()
        metadata = self._metadata(unit)
        if self._is_there(unit, metadata):
            return self._outcome(unit, metadata, started, "skipped")
        told = 0

        def progress(done: int, total: int | None) -> None:
            nonlocal told
            self._tell(0, done - told)
            told = done

        try:
            self._refuse_if_changed(unit)
            place = unit.data["place"]
            self._target.ensure_parent(place)
            with self._target.target(place) as target:
                made = encrypt_file(
                    self._source.opened(unit.path),
                    target,
                    metadata.encryption_key,
                    aad_prefix=metadata.aad_prefix or b"",
                    threads=1,
                    progress=progress,
                )
                self._refuse_if_changed(unit)
                if made.file_length != metadata.file_length:
                    raise _changed(self._source.location.url(unit.path))
        except (OSError, Ags1Error) as error:
            return self._failed(unit, error)
        outcome = self._outcome(unit, metadata, started)
        self._tell(0, -told)
        return outcome

    def seal_range(self, unit: Unit) -> Outcome:
        """Encrypt some blocks of a file to their place in it."""
        started = time.monotonic()
        metadata = self._metadata(unit)
        begin, end = ranges_of(unit.start, unit.start + unit.size)
        try:
            with unit.data["assembly"].claim(unit.data["index"], begin, end - begin) as claimed:
                if claimed is None:
                    return self._outcome(unit, metadata, started, "skipped")
                if unit.start == 0:
                    claimed.write(0, layout.write_header())
                opened = self._source.opened(unit.path)
                if isinstance(opened, str) and claimed.descriptor is not None:
                    self._seal_between_files(unit, metadata, opened, claimed.descriptor)
                else:
                    self._seal_pieces(unit, metadata, claimed)
                self._refuse_if_changed(unit)
        except (OSError, Ags1Error) as error:
            return self._failed(unit, error)
        return self._outcome(unit, metadata, started)

    def _seal_between_files(self, unit: Unit, metadata: KeyMetadata, name: str, target: int) -> None:
        source = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for done in range(unit.start, unit.start + unit.size, _WINDOW):
                size = min(_WINDOW, unit.start + unit.size - done)
                first = layout.plaintext_to_block(done)
                _descriptors.seal_file(
                    source, done, target, layout.block_to_ciphertext(first), size, metadata.encryption_key,
                    metadata.aad_prefix or b"", DEFAULT_BLOCK_LENGTH, first, 1, name, self._where.url(unit.path),
                )  # fmt: skip
        finally:
            os.close(source)

    def _seal_pieces(self, unit: Unit, metadata: KeyMetadata, claimed: Range) -> None:
        out = bytearray(layout.stored_length(min(_WINDOW, unit.size)))
        for done in range(unit.start, unit.start + unit.size, _WINDOW):
            data = self._source.read(unit.path, done, min(_WINDOW, unit.start + unit.size - done))
            first = layout.plaintext_to_block(done)
            with memoryview(out)[: layout.stored_length(len(data))] as blocks:
                seal_blocks(
                    data, blocks, metadata.encryption_key, metadata.aad_prefix or b"", DEFAULT_BLOCK_LENGTH, first, 1
                )
                claimed.write(layout.block_to_ciphertext(first), blocks)


def _read_local(path: str, size: int) -> tuple[bytes, os.stat_result]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, size + 1)
        while len(data) < size:
            piece = os.read(descriptor, size + 1 - len(data))
            if not piece:
                break
            data += piece
        status = os.fstat(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(descriptor)
    if len(data) != status.st_size:
        raise _changed(path)
    return data, status


def _changed(name: str) -> OSError:
    return OSError(errno.EBUSY, "was changed since it was listed: encrypt what nobody writes to", name)
