"""The work of tasks on encrypted columns: Arrow batches in, Arrow batches out, one native call a column and batch.

What is pickled has wrapped keys only. A call of it is an attempt of a task or a micro-batch: it draws a data key.
"""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ags1.arrow.values import as_values, from_values
from ags1.core import batch as native_batch
from ags1.core.gcm import Key, random_bytes
from ags1.errors import Ags1Error, AuthenticationError, FormatError, KeyAccessError, TruncatedError
from ags1.layout import DEFAULT_BLOCK_LENGTH, MAX_BLOCK_LENGTH
from ags1.spark.engine.column_keys import ATTEMPT, LEAD, RUN, ColumnRecord, data_key, opening_keys
from ags1.spark.engine.sealing import Opener, Sealer, run_keys
from ags1.storage import Location

_FAILED = "the tag does not verify: wrong row key, a value of another row or column, or damaged data"
_LABEL = "key table"
# Of a SQL function, which sees no names: the tags say whether it is the right one.
ANY_ROW_KEY = ("", "")


def error_column(name: str) -> str:
    """The column that says what is wrong with the values of another one."""
    return f"{name}_error"


@dataclass(frozen=True)
class KeyTable:
    """Where the key table is, for tasks. Settings of a storage may have secrets: they travel sealed."""

    location: Location | bytes
    opener: Opener | None = None

    @classmethod
    def of(cls, location: Location, kms: str, key_id: str) -> KeyTable:
        """The key table at a location; if that has settings, they are sealed with a key that the KMS wraps."""
        if not location.storage_options:
            return cls(location)
        sealer = Sealer.create(kms, key_id)
        return cls(sealer.seal(pickle.dumps(location), _LABEL), sealer.opener)

    def open(self) -> Location:
        """The key table, in a task: settings that travel sealed are opened."""
        if self.opener is None:
            assert isinstance(self.location, Location)
            return self.location
        assert isinstance(self.location, bytes)
        found: Location = pickle.loads(self.opener.open(self.location, _LABEL))
        return found


def _aads(column: str, row_keys: Any, place: Callable[[int], str]) -> Any:
    """The AAD of all values, or an array with that of each."""
    name = column.encode()
    fixed = struct.pack("<I", len(name)) + name
    if row_keys is None:
        return fixed
    if row_keys.null_count:
        raise ValueError(f"{place(_first(row_keys.is_null()))}: the row key is null, so nothing binds the value to it")
    keys = as_values(row_keys).cast(pa.large_binary())
    lengths = pc.binary_length(keys).cast(pa.uint32()).view(pa.binary(4)).cast(pa.large_binary())
    fixed_scalar, empty = (pa.scalar(each, pa.large_binary()) for each in (fixed, b""))
    return pc.binary_join_element_wise(fixed_scalar, lengths, keys, empty)


def _first(mask: Any) -> int:
    return int(np.argmax(mask.to_numpy(zero_copy_only=False)))


def _place(column: str, row: int) -> str:
    from pyspark import TaskContext

    context = TaskContext.get()
    where = "" if context is None else f" of partition {context.partitionId()}"
    return f"column {column!r}, row {row}{where}" if column else f"row {row}{where}"


class SealingColumn:
    """Encrypts the values of one column in one attempt, under a data key of its own."""

    def __init__(self, key: ColumnRecord, kms: str) -> None:
        attempt = random_bytes(ATTEMPT)
        self._key = data_key(run_keys(key.reference, kms), attempt)
        self._lead = bytes.fromhex(key.reference.run) + attempt
        self._form = key.form
        # A value of one block cannot be cut at a block's end.
        self._block_length = MAX_BLOCK_LENGTH if key.form == "ags1" else DEFAULT_BLOCK_LENGTH
        self._rows = 0

    def seal(self, array: Any, column: str, row_keys: Any = None) -> Any:
        """The encrypted values of the next batch; `column` is what their AADs say."""
        first = self._rows
        self._rows += len(array)
        aads = _aads(column, row_keys, lambda row: _place(column, first + row))
        batch = native_batch.encrypt_batch(
            as_values(array), self._key, aads, self._block_length, 1, None, self._form, self._lead
        )
        return batch.to_arrow()


@dataclass(frozen=True)
class Opening:
    """What values of a column must be. `type` is Spark's, as JSON; with `exact`, with what may be null in a value."""

    column: str
    key_id: str
    form: str
    row_key: tuple[str, str] | None = None
    type: Any = None
    exact: bool = True

    def check(self, key: ColumnRecord) -> None:
        """Raise FormatError or AuthenticationError if the values of a key are something else."""
        if key.form != self.form:
            raise FormatError(f"its values have the form {key.form!r}: give form={key.form!r}")
        given = None if self.row_key is None else self.row_key[0]
        expected = key.row_key if self.row_key != ANY_ROW_KEY or key.row_key is None else ANY_ROW_KEY
        if key.column and expected != self.row_key:
            was = "none" if key.row_key is None else f"{key.row_key[0]!r}, of type {key.row_key[1]}"
            raise AuthenticationError(
                f"its values were bound to rows by another column ({was}) than row_key={given!r} says: give that "
                "column, under its name and with its type"
            )
        if key.field is None or self.type is None:
            return
        if not _same(key.field["type"], self.type, exact=self.exact):
            was = _text(key.field["type"])
            raise FormatError(
                f"its values have the type {was}, and {_text(self.type)} is expected: decrypt them apart, with types="
            )


def _same(one: Any, other: Any, *, exact: bool) -> bool:
    """Whether two types of Spark, as JSON, are one, and if it is to be exact, may be null in the same places."""
    left_out = {"metadata"} if exact else {"metadata", "nullable", "containsNull", "valueContainsNull"}

    def stripped(each: Any) -> Any:
        if isinstance(each, dict):
            return {name: stripped(value) for name, value in each.items() if name not in left_out}
        return [stripped(value) for value in each] if isinstance(each, list) else each

    return bool(stripped(one) == stripped(other))


def _text(kind: Any) -> str:
    return json.dumps(kind) if isinstance(kind, dict) else str(kind)


@dataclass(eq=False)
class OpeningColumn:
    """Decrypts the values of one column in one task."""

    opening: Opening
    table: KeyTable
    kms: str

    def __post_init__(self) -> None:
        self._location: Location | None = None
        self._runs: dict[str, Any] = {}
        self._keys: dict[bytes, Key] = {}
        self._rows = 0

    def _data_keys(self, leads: list[bytes], place: Callable[[int], str]) -> list[Key]:
        """The data key of each of these leads; `place` says where the first value of one is."""
        each = self.opening
        runs = [run for run in dict.fromkeys(lead[:RUN].hex() for lead in leads) if run not in self._runs]
        if runs:
            if self._location is None:
                self._location = self.table.open()
            read = opening_keys(self._location, self.kms, each.column, each.key_id, runs)
            self._runs |= zip(runs, read, strict=True)
        for number, lead in enumerate(leads):
            if lead in self._keys:
                continue
            try:
                found = self._runs[lead[:RUN].hex()]
                if isinstance(found, Exception):
                    raise found
                record, keys = found
                each.check(record)
            except (Ags1Error, OSError) as error:
                kind = type(error) if isinstance(error, Ags1Error) else KeyAccessError
                raise kind(f"{place(number)}: the key of this value cannot be used: {error}") from error
            self._keys[lead] = data_key(keys, lead[RUN:])
        return [self._keys[lead] for lead in leads]

    def open(
        self, array: Any, column: str, row_keys: Any, on_error: Literal["raise", "null"] = "raise"
    ) -> tuple[Any, tuple[int, ...]]:
        """The plaintexts of the next batch, as large_binary, and the positions of those whose tags failed."""
        first, size = self._rows, len(array)
        self._rows += size

        def place(row: int) -> str:
            return _place(column, first + row)

        leads = pc.binary_slice(array, 0, LEAD)
        short = pc.less(pc.binary_length(leads), LEAD)
        if pc.any(short).as_py():
            raise TruncatedError(f"{place(_first(short.fill_null(False)))}: a value begins with {LEAD} bytes of key id")
        coded = leads.dictionary_encode()
        indices = coded.indices
        keys = self._data_keys(
            coded.dictionary.to_pylist(), lambda number: place(_first(pc.equal(indices, number).fill_null(False)))
        )
        if not keys:
            return pa.nulls(size, pa.large_binary()), ()
        rows = None
        if len(keys) > 1:
            # A row with the key of each value: it is wiped below.
            rows = np.array([np.frombuffer(memoryview(key), np.uint8) for key in keys])
            each = rows[indices.fill_null(0).to_numpy(zero_copy_only=False)]
            rows.fill(0)
            rows = each
        try:
            batch = native_batch.decrypt_batch(
                array, keys[0] if rows is None else rows, _aads(column, row_keys, place), None, 1, None, on_error,
                self.opening.form, LEAD, True,
            )  # fmt: skip
        except AuthenticationError as error:
            raise AuthenticationError(f"{place(error.item_index or 0)}: {_FAILED}") from None
        except FormatError as error:
            raise type(error)(f"in the batch that begins with {place(0)}: {error}") from None
        finally:
            if rows is not None:
                rows.fill(0)
        return batch.to_arrow(), batch.failed


ArrowTask = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(eq=False)
class EncryptColumns:
    """A task of ``encrypt_columns``, for mapInArrow. Columns go by their positions: several may have one name."""

    columns: dict[int, ColumnRecord]
    row_key: int | None
    kms: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Encrypt the batches of an attempt."""
        sealing = {position: SealingColumn(key, self.kms) for position, key in self.columns.items()}
        for batch in batches:
            arrays = batch.columns
            row_keys = None if self.row_key is None else arrays[self.row_key]
            for position, each in sealing.items():
                name = self.columns[position].column
                arrays[position] = each.seal(arrays[position], name, row_keys).cast(pa.binary())
            yield pa.RecordBatch.from_arrays(arrays, batch.schema.names)


@dataclass(eq=False)
class DecryptColumns:
    """A task of ``decrypt_columns``, for mapInArrow. The types are those that the columns had."""

    columns: dict[int, tuple[Opening, Any]]
    table: KeyTable
    row_key: int | None
    on_error: Literal["raise", "null"]
    kms: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decrypt the batches of an attempt."""
        openings = {at: OpeningColumn(each, self.table, self.kms) for at, (each, _) in self.columns.items()}
        for batch in batches:
            arrays = batch.columns
            row_keys = None if self.row_key is None else arrays[self.row_key]
            for position, (opening, kind) in self.columns.items():
                name = opening.column
                plain, failed = openings[position].open(arrays[position], name, row_keys, self.on_error)
                try:
                    arrays[position] = from_values(plain, kind)
                except FormatError as error:
                    raise FormatError(f"column {name!r}: {error}") from None
                if self.on_error == "null":
                    mask = np.zeros(batch.num_rows, bool)
                    mask[list(failed)] = True
                    arrays.append(pc.if_else(pa.array(mask), pa.scalar(_FAILED), pa.scalar(None, pa.string())))
            # Spark looks at these names; those of errors come last, and are numbers too.
            names = batch.schema.names + [str(index) for index in range(batch.num_columns, len(arrays))]
            yield pa.RecordBatch.from_arrays(arrays, names)
