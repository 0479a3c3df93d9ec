"""The writer of ``format("ags1")``: tasks write encrypted objects, and the driver commits them to a dataset.

    planning   the key of the write                         ags1.dataset.runs
    a task     rows -> bytes of a format -> AGS1 -> objects under names of its own, synced
    commit     a new version that names them; or abort, which removes what tasks have reported, if one of them failed

An object is not visible before a version names it. Spark takes one of two attempts of a task; the objects of the other
stay unreferenced until the dataset is expired. So do all of them if the storage did not reply to the commit: a version
may name them.
"""

from __future__ import annotations

import errno
import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StringType, StructType

from ags1.core.gcm import random_bytes
from ags1.dataset.access import Access
from ags1.dataset.keys import DatasetKeys
from ags1.dataset.names import check_path, new_object_name, run_of, sort_key
from ags1.dataset.pins import Pins
from ags1.dataset.runs import Done, RunKeys, RunReference
from ags1.dataset.transaction import Transaction
from ags1.dataset.versions import read_latest
from ags1.errors import ConflictError, FormatError
from ags1.iceberg.keys.wrapped_key import WrappedKey
from ags1.spark.engine.captured import CapturedSession
from ags1.spark.engine.locations import locate
from ags1.spark.engine.sealing import kms_client, kms_reference, run_keys
from ags1.spark.source._reader import arrow_schema
from ags1.spark.source._schemas import refuse_other_columns
from ags1.spark.source.decoders.arrow import sliced
from ags1.spark.source.encoders import Encoding, encoding_for
from ags1.spark.source.options import WriteOptions
from ags1.storage import Location, Unsynced, make_parent, remove
from ags1.streams.stream import Writer

_PIECE = 16 << 20
_GATHERED = 64 << 20
_LOST = {"variant": "to_json(column)", "time": "a string or a number", "geometry": "WKB", "geography": "WKB"}


@dataclass
class Written(WriterCommitMessage):
    """The message of a task about its files; it has no key."""

    files: list[Done] = field(default_factory=list)


def writer_for(
    options: Mapping[str, str], schema: StructType, overwrite: bool, session: CapturedSession | None = None
) -> Ags1Writer:
    """Check all that can be checked before a task runs, and begin the write."""
    checked = WriteOptions.parse(options, session)
    columns = arrow_schema(schema)
    _refuse_twins(columns)
    _refuse_lost(schema, checked.decode)
    encoding = encoding_for(checked, columns)
    location = locate(checked.path, session).as_root()
    client = kms_client(kms_reference(checked.kms))
    base = read_latest(location)
    if base is None:
        if not checked.key_id:
            text = "there is no ags1 dataset yet: give the option key_id, the master key that it is to be under"
            raise FileNotFoundError(errno.ENOENT, text, location.shown)
        key = WrappedKey(checked.key_id)
    else:
        key = base.key
        base.authenticate(DatasetKeys(key, client, location.shown), location.shown)
        if checked.key_id and checked.key_id != base.key_id:
            raise ValueError(
                f"the dataset {location} is under the master key {base.key_id!r}, not {checked.key_id!r}: name that, "
                "or rewrap the dataset"
            )
    if base is not None and base.file_count > 0 and not overwrite:
        refuse_other_columns(checked, columns, encoding.extension)
    run = RunReference.create(key, client)
    uuid, version = (None, 0) if base is None else (base.uuid, base.version)
    return Ags1Writer(checked, location.text, run, uuid, version, columns, encoding, overwrite)


def _refuse_twins(schema: pa.Schema) -> None:
    if not schema.names:
        raise ValueError("there is no column to write")
    # Names in Spark are case-insensitive.
    lower = [name.lower() for name in schema.names]
    twins = sorted({name for name in schema.names if lower.count(name.lower()) > 1})
    if twins:
        raise ValueError(f"several columns have the name {', '.join(map(repr, twins))}: rename all but one")


def _refuse_lost(schema: StructType, decode: str) -> None:
    """Refuse types that would be others when the rows are read again."""
    waiting = [(field.name, field.dataType) for field in schema]
    while waiting:
        name, kind = waiting.pop()
        instead = _LOST.get(kind.typeName())
        if isinstance(kind, StringType) and not kind.isUTF8BinaryCollation():
            instead = "collate(column, 'UTF8_BINARY')"
        # Lines of text have no type.
        if instead and decode != "text":
            raise ValueError(
                f"the column {name!r} has the type {kind.simpleString()}, which would not be there when it is read "
                f"again: write {instead} in its place"
            )
        inside = (getattr(kind, each, None) for each in ("elementType", "keyType", "valueType"))
        waiting += [
            (name, each) for each in (*inside, *(field.dataType for field in getattr(kind, "fields", ()))) if each
        ]


@dataclass(eq=False, repr=False)
class Ags1Writer(DataSourceArrowWriter):
    """Writes rows into a dataset. Can be pickled: it has wrapped keys only, and no credentials of the storage.

    `version` is the one when the write began. For a new dataset, `uuid` is None and `version` 0.
    """

    _options: WriteOptions
    _place: str
    _run: RunReference
    _uuid: str | None
    _version: int
    _columns: pa.Schema
    _encoding: Encoding
    _overwrite: bool

    @property
    def _location(self) -> Location:
        return locate(self._place, self._options.session).as_root()

    # -- in a task -------------------------------------------------------------------------------------------------

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        partition, attempt = (0, random_bytes(4).hex()) if context is None else (
            context.partitionId(), str(context.taskAttemptId())
        )  # fmt: skip
        stem = f"part-{partition:05d}-{self._run.run}-{attempt}"
        files = _Files(self._location, self._run, self._options, self._encoding, stem)
        try:
            for batch in iterator:
                files.write(batch)
            return Written(files.close())
        except BaseException:
            files.abort()
            raise

    # -- on the driver ---------------------------------------------------------------------------------------------

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Add the files to the dataset, in one new version.

        It raises ConflictError if the dataset was removed or replaced since the write began, if an overwrite would
        replace files that another writer has removed or replaced since, or if `expire` has given up this write, which
        took too long.
        """
        if self._is_without_schema(messages):
            files = _Files(self._location, self._run, self._options, self._encoding, f"part-00000-{self._run.run}")
            messages = [*messages, Written(files.close_without_rows(self._columns))]
        try:
            self._commit(messages)
        except ConflictError:
            # Nothing was committed. After other errors that may be unknown.
            self._remove(messages)
            raise

    def _is_without_schema(self, messages: list[WriterCommitMessage | None]) -> bool:
        """Whether no file would be left that has the columns, as Spark's Parquet has one also without rows."""
        if self._options.decode == "text":
            return False
        if any(each.files for each in messages if isinstance(each, Written)):
            return False
        base = read_latest(self._location)
        return self._overwrite or base is None or base.file_count == 0

    def _commit(self, messages: list[WriterCommitMessage | None]) -> None:
        files = sorted(
            (file for each in messages if isinstance(each, Written) for file in each.files),
            key=lambda file: sort_key(file.path),
        )
        location, client = self._location, kms_client(self._options.kms)
        # An overwrite replaces what was there when it began. The rows may be made of that, and of nothing newer.
        operation, on = ("overwrite", self._version) if self._overwrite else ("append", None)
        # A dataset that another writer made in the meantime keeps its classes.
        key_id = self._options.key_id if on == 0 or read_latest(location) is None else None
        # Whoever names a master key encrypts under no other one.
        access = Access.of(location, client, Pins(key_id=self._run.key.key_id, version=self._version))
        with Transaction.begin(access, operation, key_id=key_id, on=on) as transaction:
            if self._uuid is not None and (transaction.base is None or transaction.base.uuid != self._uuid):
                raise ConflictError(f"{location} is another dataset than when this write began: write again")
            run = run_keys(self._run, self._options.kms)
            transaction.take_over(self._run.run, self._version)
            entries = [transaction.entry(self._checked(file), run) for file in files]
            if self._overwrite:
                transaction.replace_all()
            dropped = transaction.manifests.entries(transaction.root, "") if self._overwrite else ()
            new = {entry.path for entry in entries}
            for entry in heapq.merge(entries, dropped, key=lambda entry: entry.key):
                if entry.path in new:
                    transaction.put(entry)
                else:
                    transaction.remove(entry.path)
            transaction.commit()

    def _checked(self, file: Done) -> Done:
        check_path(file.path)
        if any(run_of(name) != self._run.run for name, _ in file.parts):
            raise FormatError(f"{file.path}: a task reported this file, but its object is of another run")
        return file

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the objects that tasks reported, if a task failed. Others are unreferenced; `expire` removes them.

        Spark also calls it when a commit has failed. Then no message is missing, and nothing is removed here: if the
        storage did not reply, the commit may have succeeded, or may still do.
        """
        if any(each is None for each in messages):
            self._remove(messages)

    def _remove(self, messages: list[WriterCommitMessage | None]) -> None:
        location = self._location
        remove(
            location.join(name)
            for each in messages
            if isinstance(each, Written)
            for file in each.files
            for name, _ in file.parts
            if run_of(name) == self._run.run
        )


class _Files:
    """The file that a task has open, and those that it has finished."""

    def __init__(
        self, location: Location, run: RunReference, options: WriteOptions, encoding: Encoding, stem: str
    ) -> None:
        self._location = location
        self._unsynced = Unsynced(location)
        self._run = run
        self._options = options
        self._encoding = encoding
        self._stem = stem
        self._keys = run_keys(run, options.kms)
        self._open: _File | None = None
        self._done: list[Done] = []

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        for piece in sliced(batch, min(_PIECE, self._options.max_file_bytes)):
            if self._open is None:
                self._open = self._new()
            self._open.encoder.write(piece)
            if self._open.writer.tell() >= self._options.max_file_bytes:
                self._finish(self._open)

    def close_without_rows(self, columns: pa.Schema) -> list[Done]:
        """Write one file that has the columns and no row."""
        self._open = self._new()
        self._open.encoder.write(pa.RecordBatch.from_pylist([], columns))
        return self.close()

    def _new(self) -> _File:
        path = f"{self._stem}-c{len(self._done):03d}{self._encoding.extension}"
        gathered = min(_GATHERED, self._options.max_file_bytes)
        return _File(self._location, path, self._keys, self._encoding, gathered)

    def _finish(self, file: _File) -> None:
        length = file.close()
        self._open = None
        self._unsynced.add(file.name)
        self._done.append(Done(file.path, ((file.name, length),), run=self._run.run))

    def close(self) -> list[Done]:
        """Finish the open file; return all files, which are then on the disk."""
        if self._open is not None:
            self._finish(self._open)
        self._unsynced.sync()
        return self._done

    def abort(self) -> None:
        if self._open is not None:
            self._open.abort()
            self._open = None
        try:
            remove(self._location.join(name) for done in self._done for name, _ in done.parts)
        except OSError:
            # The storage itself failed. Objects that are left there are unreferenced.
            pass


class _File:
    """One encrypted file that is being written, under the name of its object."""

    def __init__(
        self,
        location: Location,
        path: str,
        keys: RunKeys,
        encoding: Encoding,
        gathered_bytes: int,
    ) -> None:
        self.path = path
        self.name = new_object_name(path, keys.reference.run)
        metadata = keys.object_key(self.name)
        place = location.join(self.name)
        make_parent(place)
        self.writer = Writer(place, metadata.encryption_key, aad_prefix=metadata.aad_prefix or b"", threads=1)
        self.encoder = encoding.open(self.writer, gathered_bytes)

    def close(self) -> int:
        """Finish the file; return its bytes of plaintext."""
        self.encoder.close()
        length = self.writer.tell()
        self.writer.close()
        return length

    def abort(self) -> None:
        self.encoder.abort()
        self.writer.abort()
