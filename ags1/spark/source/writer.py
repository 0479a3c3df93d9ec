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
import io
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructType

from ags1.codec import encrypt
from ags1.core.gcm import Key, random_bytes
from ags1.dataset.damage import authenticated
from ags1.dataset.names import check_path, new_object_name, run_of, sort_key
from ags1.dataset.pins import Access, Pins
from ags1.dataset.runs import Done, RunReference
from ags1.dataset.transaction import Transaction
from ags1.dataset.versions import read_latest
from ags1.errors import ConflictError, FormatError
from ags1.iceberg.keys.wrapped_key import WrappedKey
from ags1.spark.engine.captured import CapturedSession
from ags1.spark.engine.locations import locate
from ags1.spark.engine.sealing import kms_client, run_keys
from ags1.spark.source.decoders import Decoder, Plain, decoder_for
from ags1.spark.source.decoders.arrow import sliced
from ags1.spark.source.encoders import Encoding, encoding_for
from ags1.spark.source.inputs import open_input
from ags1.spark.source.options import SourceOptions, WriteOptions
from ags1.spark.source.reader import arrow_schema, values_of
from ags1.storage import Location, Unsynced, make_parent, remove
from ags1.streams.stream import Reader, Writer

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
    client = kms_client(checked.kms)
    base = read_latest(location)
    if base is None:
        if not checked.key_id:
            text = "there is no ags1 dataset yet: give the option key_id, the master key that it is to be under"
            raise FileNotFoundError(errno.ENOENT, text, location.shown)
        key = WrappedKey(checked.key_id)
    else:
        key = base.key
        authenticated(location, base, client)
        base.refuse_other_key(checked.key_id, location)
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
        """Write the rows of one task, and return what it wrote. Spark calls it in a task."""
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
        self._max_bytes = options.max_file_bytes
        self._encoding = encoding
        self._stem = stem
        self._keys = run_keys(run, options.kms)
        self._writer: Writer | None = None
        self._done: list[Done] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of one task, and return what it wrote. Spark calls it in a task."""
        for piece in sliced(batch, min(_PIECE, self._max_bytes)) if batch.num_rows else ():
            writer = self._writer or self._begin()
            self._encoder.write(piece)
            if writer.tell() >= self._max_bytes:
                self._finish(writer)

    def close_without_rows(self, columns: pa.Schema) -> list[Done]:
        """Write one file that has the columns and no row."""
        self._begin()
        self._encoder.write(pa.RecordBatch.from_pylist([], columns))
        return self.close()

    def _begin(self) -> Writer:
        """Begin an encrypted file, under the name of its object."""
        run = self._keys.reference.run
        self._path = f"{self._stem}-c{len(self._done):03d}{self._encoding.extension}"
        self._name = new_object_name(self._path, run)
        metadata, place = self._keys.object_key(self._name), self._location.join(self._name)
        make_parent(place)
        writer = Writer(place, metadata.encryption_key, aad_prefix=metadata.aad_prefix or b"", threads=1)
        self._encoder = self._encoding.open(writer, min(_GATHERED, self._max_bytes))
        self._writer = writer
        return writer

    def _finish(self, writer: Writer) -> None:
        self._encoder.close()
        length = writer.tell()
        writer.close()
        self._writer = None
        self._unsynced.add(self._name)
        self._done.append(Done(self._path, ((self._name, length),), run=self._keys.reference.run))

    def close(self) -> list[Done]:
        """Finish the open file; return all files, which are then on the disk."""
        if self._writer is not None:
            self._finish(self._writer)
        self._unsynced.sync()
        return self._done

    def abort(self) -> None:
        if self._writer is not None:
            self._encoder.abort()
            self._writer.abort()
        # If the storage itself failed, objects that are left there are unreferenced.
        with suppress(OSError):
            remove(self._location.join(name) for done in self._done for name, _ in done.parts)


def refuse_other_columns(options: WriteOptions, columns: pa.Schema, extension: str) -> None:
    """Compare the columns of a write with those of the first file of its format, if the dataset has one.

    Lines are read from files of any name.

    ValueError: the columns are others, and the message has both; or the files are in directories that are columns.
    """
    plain_name = f"*{extension.removesuffix('.gz')}"
    read = SourceOptions(
        path=(options.path,),
        kms=options.kms,
        decode=options.decode,
        include=() if options.decode == "text" else (plain_name, f"{plain_name}.gz"),
        session=options.session,
    )
    source = open_input(read)
    try:
        first = next((each for each in source.files() if each.length), None)
        if first is None:
            return
        if values_of(first.name):
            raise ValueError(
                f"{first.name} is in directories that are columns, and a write makes none, so they would be null in "
                f"the new rows: overwrite all of {options.path}, or write into another dataset"
            )
        if options.decode == "text":
            return
        decoder, plain = decoder_for(read), source.open(first)
        try:
            have = _types(decoder.schema_of(plain))
        finally:
            plain.source.close()
    finally:
        source.close()
    come = _types(_written(options, columns, decoder))
    if {name.lower(): kind for name, kind in have.items()} == {name.lower(): kind for name, kind in come.items()}:
        return
    raise ValueError(
        f"{options.path} has the columns {_described(have)}, and the DataFrame {_described(come)}: select and cast "
        "what the dataset has, overwrite all of it, or write into another dataset"
    )


def _written(options: WriteOptions, columns: pa.Schema, decoder: Decoder) -> pa.Schema:
    """The columns as they are read from a file of the write: not every format has every type."""
    file = io.BytesIO()
    encoder = encoding_for(options, columns).open(file, 1)
    nothing: list[pa.Array] = [pa.array([], field.type) for field in columns]
    encoder.write(pa.RecordBatch.from_arrays(nothing, schema=columns))
    encoder.close()
    key = Key.generate()
    return decoder.schema_of(Plain("a new file", "a new file", Reader(encrypt(file.getvalue(), key), key)))


def _types(schema: pa.Schema) -> dict[str, str]:
    found = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return {field.name: field.dataType.simpleString() for field in found}


def _described(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
