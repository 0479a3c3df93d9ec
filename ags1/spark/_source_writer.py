"""The writer of ``format("ags1")``: each task writes encrypted files, and the driver makes them the dataset's.

    planning   keys and the record of a write              ags1.dataset._writes.begin; no lock
    a task     rows -> bytes of a format -> AGS1 -> files   under names of its attempt alone, where no reader looks
    commit     the lock, a new version, metadata.json last; or abort, which removes what is there by the write's name

A task that fails has shown nothing to anybody. Of two attempts at one task Spark takes one; what the other wrote is
removed with the commit.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

import ags1.dataset._writes as _writes
from ags1._gcm import random_bytes
from ags1.dataset._control import check_path
from ags1.dataset._manifest import Entry, sort_key
from ags1.dataset._runs import RunKeys, RunReference
from ags1.dataset._update import Update
from ags1.errors import FormatError
from ags1.layout import encrypted_length
from ags1.spark._locations import Location, locate
from ags1.spark._sealing import kms_client, run_keys
from ags1.spark._source_reader import arrow_schema
from ags1.spark._storage import Storage
from ags1.spark._write_directories import Directories, partitioned_schema
from ags1.spark._write_options import WriteOptions
from ags1.spark.decoders.arrow import sliced
from ags1.spark.encoders import Encoding, encoding_for
from ags1.spark.encryption import store_of
from ags1.stream import Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pyspark.sql.types import StructType

__all__ = ["Ags1Writer", "Written", "writer_for"]

_PIECE = 16 << 20
_GATHERED = 64 << 20
_GATHERED_OF_MANY = 8 << 20
_OPEN_FILES = 16


@dataclass
class Written(WriterCommitMessage):
    """What a task says of its files: path, bytes of plaintext, bytes of the file."""

    files: list[tuple[str, int, int]] = field(default_factory=list)


def writer_for(options: Mapping[str, str], schema: StructType, overwrite: bool) -> Ags1Writer:
    """Check everything that can be checked before a task runs, and begin the write.

    Raises
    ------
    ValueError
        A wrong option; a column of a type that the format does not have; a dataset under another master key.
    FileNotFoundError
        There is no dataset, and no ``key_id`` to make one.
    KeyAccessError
        The KMS refused.
    """
    checked = WriteOptions.parse(options)
    columns = arrow_schema(schema)
    _refuse_twins(columns)
    encoding = encoding_for(checked, partitioned_schema(columns, checked.partition_by))
    location = locate(checked.path)
    client = kms_client(checked.kms)
    store = store_of(location)
    try:
        run = _writes.begin(store, client, checked.key_id or None, len(checked.partition_by))
    except FileNotFoundError:
        if checked.key_id:
            raise
        text = "there is no ags1 dataset yet: give the option key_id, the master key that it is to be under"
        raise FileNotFoundError(errno.ENOENT, text, location.name) from None
    return Ags1Writer(checked, location, run, encoding, overwrite)


def _refuse_twins(schema: pa.Schema) -> None:
    if not schema.names:
        raise ValueError("there is no column to be written")
    twins = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twins:
        raise ValueError(f"several columns have the name {', '.join(map(repr, twins))}: rename all but one")


class Ags1Writer(DataSourceArrowWriter):
    """Writes rows into a dataset. Can be pickled: it has wrapped keys only.

    Parameters
    ----------
    options : WriteOptions
    location : Location
        The dataset.
    run : RunReference
        The write, which has a record.
    encoding : Encoding
        The format.
    overwrite : bool
        Whether the files that the dataset has are dropped.
    """

    def __init__(
        self, options: WriteOptions, location: Location, run: RunReference, encoding: Encoding, overwrite: bool
    ) -> None:
        self._options = options
        self._location = location
        self._run = run
        self._encoding = encoding
        self._overwrite = overwrite

    # -- in a task -------------------------------------------------------------------------------------------------

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task; answer its files."""
        context = TaskContext.get()
        partition, attempt = (0, random_bytes(4).hex()) if context is None else (
            context.partitionId(), str(context.taskAttemptId())
        )  # fmt: skip
        if context is not None and context.attemptNumber() > 0:
            store = store_of(self._location)
            _writes.claim(store, self._run.run)
            _writes.note_retry(store, self._run.run)
        stem = f"part-{partition:05d}-{self._run.run}-{attempt}"
        files = _Files(self._location, self._run, self._options, self._encoding, stem)
        try:
            if self._options.partition_by:
                directories = Directories(self._options.partition_by, _GATHERED)
                for batch in iterator:
                    files.write_all(directories.add(batch))
                files.write_all(directories.rest())
            else:
                for batch in iterator:
                    files.write("", batch)
            return Written(files.close())
        except BaseException:
            files.abort()
            raise

    # -- on the driver ---------------------------------------------------------------------------------------------

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the files the dataset's, in one new version.

        Raises
        ------
        BlockingIOError
            Another process is changing the dataset.
        FileNotFoundError
            The write was thrown away meanwhile.
        """
        files = sorted(
            (file for each in messages if isinstance(each, Written) for file in each.files),
            key=lambda file: sort_key(file[0]),
        )
        store = store_of(self._location)
        # A dataset that was there must still be.
        key_id = None if self._run.base_version else self._run.table_key_id
        with Update.begin(store, kms_client(self._options.kms), key_id, run=self._run) as update:
            entries = [self._entry(update.keys, *file) for file in files]
            _writes.take(store, update.reference, [entry.path for entry in entries])
            self._merge(update, entries)
            update.commit()

    def _merge(self, update: Update, entries: list[Entry]) -> None:
        following = 0
        for base in update.lines():
            if self._overwrite:
                update.drop(base)
                continue
            while following < len(entries) and sort_key(entries[following].path) < base.key:
                update.put(entries[following], replaces=False)
                following += 1
            update.keep(base)
        for entry in entries[following:]:
            update.put(entry, replaces=False)

    def _entry(self, keys: RunKeys, path: str, plaintext_length: int, file_length: int) -> Entry:
        if f"-{self._run.run}-" not in check_path(path).rpartition("/")[2]:
            raise FormatError(f"{path}: a task says that it has written this, but it is no name of this write")
        if file_length != encrypted_length(plaintext_length):
            raise FormatError(
                f"{path}: a task says that {plaintext_length} bytes became {file_length}, which cannot be"
            )
        metadata = keys.stream_key(path).with_length(file_length)
        return Entry(path, plaintext_length, file_length, metadata.encode())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what the tasks wrote: those that failed say nothing of it, so it is found by the name of the write."""
        _writes.abort(store_of(self._location), self._run.run)


class _Files:
    """The files that a task has open, and those that it has finished."""

    def __init__(
        self, location: Location, run: RunReference, options: WriteOptions, encoding: Encoding, stem: str
    ) -> None:
        self._storage = Storage(location)
        self._store = store_of(location)
        self._run = run
        self._options = options
        self._encoding = encoding
        self._stem = stem
        self._keys: RunKeys | None = None
        # In the order in which they were last used.
        self._open: dict[str, _File] = {}
        self._count = 0
        self._done: list[tuple[str, int, int]] = []

    def write_all(self, parts: Iterator[tuple[str, pa.RecordBatch]]) -> None:
        """Write the rows of several directories."""
        for directory, batch in parts:
            self.write(directory, batch)

    def write(self, directory: str, batch: pa.RecordBatch) -> None:
        """Write rows that belong to a directory, which is "" or ends with a slash."""
        if batch.num_rows == 0:
            return
        for piece in sliced(batch, min(_PIECE, self._options.max_file_bytes)):
            file = self._open.pop(directory, None)
            if file is None:
                while len(self._open) >= _OPEN_FILES:
                    self._finish(next(iter(self._open)))
                file = self._new(directory)
            self._open[directory] = file
            file.encoder.write(piece)
            if file.writer.tell() >= self._options.max_file_bytes:
                self._finish(directory)

    def _new(self, directory: str) -> _File:
        if self._keys is None:
            _writes.claim(self._store, self._run.run)
            # Only a task with rows asks the KMS.
            self._keys = run_keys(self._run, self._options.kms)
        path = f"{directory}{self._stem}-c{self._count:03d}{self._encoding.extension}"
        self._count += 1
        gathered = _GATHERED_OF_MANY if self._options.partition_by else _GATHERED
        return _File(self._storage, _writes.place(self._store, self._run.run, path), path, self._keys, self._encoding,
                     min(gathered, self._options.max_file_bytes))  # fmt: skip

    def _finish(self, directory: str) -> None:
        file = self._open[directory]
        _writes.claim(self._store, self._run.run)
        length = file.close()
        del self._open[directory]
        self._done.append((file.path, length, file.writer.encrypted_length))

    def close(self) -> list[tuple[str, int, int]]:
        """Finish what is open; answer all files."""
        while self._open:
            self._finish(next(iter(self._open)))
        return self._done

    def abort(self) -> None:
        """Throw away what is open and what is finished."""
        for file in self._open.values():
            file.abort()
        self._open = {}
        for path, _, _ in self._done:
            try:
                self._storage.remove(_writes.place(self._store, self._run.run, path))
            except OSError:
                # The storage itself is what failed. The driver looks for it again.
                continue


class _File:
    """One encrypted file that is being written."""

    def __init__(
        self, storage: Storage, place: str, path: str, keys: RunKeys, encoding: Encoding, gathered_bytes: int
    ) -> None:
        self.path = path
        metadata = keys.stream_key(path)
        self._target: AbstractContextManager[Any] = storage.target(place)
        opened = self._target.__enter__()
        self.writer = Writer(opened, metadata.encryption_key, aad_prefix=metadata.aad_prefix or b"", threads=1)
        self.encoder = encoding.open(self.writer, gathered_bytes)

    def close(self) -> int:
        """Finish the file; return its bytes of plaintext."""
        self.encoder.close()
        length = self.writer.tell()
        self.writer.close()
        self._target.__exit__(None, None, None)
        return length

    def abort(self) -> None:
        error = InterruptedError(errno.EINTR, "this task did not come to its end", self.path)
        self.encoder.abort()
        try:
            self.writer.abort()
        finally:
            try:
                self._target.__exit__(InterruptedError, error, None)
            except InterruptedError:
                # What a target that removes its file raises again.
                pass
