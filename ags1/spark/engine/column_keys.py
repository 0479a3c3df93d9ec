"""Keys of encrypted columns: the table of wrapped keys, and the key id that stands in front of each value.

::

    KEYS/0b14d501a594442a01c6859541bcb3e8/4f1c2a9be07d/run.json     a record of the key table
         column: SHA-256 of its name      run

    offset 0         6               18
           | run (6) | attempt (12)  | AGS1 stream or GCM message |           a value
    AAD    | length (4) | name of the column | length (4) | row's key |       the second half only with a row key

    master key --KMS--> key encryption key --> key of run and column --HKDF-Expand of SHA-512--> data key of an attempt

A record of a run and column is created if absent, and durable before there is a DataFrame: the key of the run and
column, wrapped, and sealed under it what the values are (form, type, row key). :mod:`ags1.work.records` says why a
record is believed. A call of ``encrypt_columns`` takes the newest record of a column, if that is under the same master
key, says the same about the values, and its key encryption key is young enough for Iceberg (730 days); else the call
writes a new one. Two calls at once may both write one: both are right.

Each attempt of a task, and each micro-batch, draws 96 random bits and derives its data key from them (RFC 5869, section
2.3; :class:`ags1.dataset.runs.RunKeys`). So a task writes nothing and asks the KMS only to unwrap, and the run and the
attempt in front of a value are all that its key needs. What is changed there gives another key, under which no tag
verifies. A data key seals at most 2^32 values. The key of a run seals none: in 2^40 attempts two have the same data key
with a probability of 2^-17, and each value has a nonce of its own even then.

Lengths are little-endian. The row's key has the bytes that :mod:`ags1.arrow.values` gives a value of its type.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ags1.core.gcm import Key
from ags1.dataset.runs import RunKeys, RunReference
from ags1.errors import Ags1Error, FormatError, KeyAccessError
from ags1.iceberg.keys.wrapped_key import WrappedKey, unwrapping_under
from ags1.kms import KeyCache, key_cache_of
from ags1.spark.engine.sealing import kms_client, of_process
from ags1.storage import Location, Unsynced, in_order, iterate_files
from ags1.support.arguments import spelled
from ags1.work.records import FoundRun, RunRecords, found_runs

RUN, ATTEMPT = 6, 12
# Bytes in front of a value.
LEAD = RUN + ATTEMPT
_KIND = "spark column"
_RECORD = "run.json"
_AT_ONCE = 16


@dataclass(frozen=True)
class ColumnRecord:
    """The key of a run and column, wrapped, and what its values are. It has no secret and can be pickled.

    `field` is Spark's description of the column before encryption, None if a SQL function made the values; `row_key`
    the name and the type of the column whose values are in the AADs, None without one.
    """

    reference: RunReference
    form: str
    field: dict[str, Any] | None = None
    row_key: tuple[str, str] | None = None

    @property
    def column(self) -> str:
        """The column's name; "" if a SQL function made the values."""
        return self.reference.owner

    @property
    def kek(self) -> dict[str, Any]:
        """The key encryption key, wrapped, in Iceberg's form."""
        return self.reference.key.encryption_keys[0]

    def about(self) -> dict[str, Any]:
        """What is sealed in the record."""
        return {"form": self.form, "field": self.field, "row-key": self.row_key}


def data_key(keys: RunKeys, attempt: bytes) -> Key:
    """The key of an attempt's values."""
    return Key(keys.derive(attempt.hex())[0])


@dataclass(frozen=True)
class Wanted:
    """A column whose values are to be encrypted; `form`, `field` and `row_key` as in :class:`ColumnRecord`."""

    column: str
    key_id: str
    form: str
    field: dict[str, Any] | None = None
    row_key: tuple[str, str] | None = None


def keys_for(table: Location, kms: str, wanted: Iterable[Wanted]) -> list[ColumnRecord]:
    """The key of each column for new values; their records are durable when this returns.

    A new record is written after the KMS has wrapped the keys of all columns.

    Raises
    ------
    KeyAccessError
        The KMS refused.
    OSError
        A record could not be written: ENOTSUP if the storage cannot create a file only if it is absent.
    """

    def found_or_made(each: Wanted) -> tuple[ColumnRecord, bool]:
        try:
            found = newest_key(table, kms, each.column, each.key_id)
        except (Ags1Error, PermissionError):
            # What cannot be listed, read or opened is left alone: a new key does as well.
            found = None
        made = make_key(kms, each, found)
        if found is not None and found.about() == made.about() and found.kek == made.kek:
            # Nothing would be new but the key of the run: the key encryption key is young enough.
            return found, False
        return made, True

    keys = list(in_order(found_or_made, wanted, at_once=_AT_ONCE))
    for _ in in_order(lambda made: write_key(table, kms, made), [key for key, new in keys if new], at_once=_AT_ONCE):
        pass
    return [key for key, _ in keys]


def make_key(kms: str, wanted: Wanted, beside: ColumnRecord | None = None) -> ColumnRecord:
    """Make the key of a run for a column, beside another one: of one key encryption key, while that is young enough."""
    key = WrappedKey(wanted.key_id) if beside is None else beside.reference.key
    made = replace(RunReference.create(key, kms_client(kms)), owner=wanted.column)
    return ColumnRecord(made, wanted.form, wanted.field, wanted.row_key)


def write_key(table: Location, kms: str, made: ColumnRecord) -> None:
    """Write the record of a key, if there is none of its run; it is durable when this returns."""
    run, column = made.reference.run, made.column
    seal = made.reference.unwrap(kms_client(kms)).seal(_KIND)
    directory = _directory(table, column).join(run)
    RunRecords(directory, seal, durable=True).begin(made.reference.key.to_json(), made.about(), once=True)
    unsynced = Unsynced(table)
    unsynced.add(f"{_tag(column)}/{run}/{_RECORD}")
    unsynced.sync()


def kept_keys(kms: str) -> KeyCache:
    """The keys of columns that this process has read: as many, and for as long, as the client of the KMS keeps keys."""
    return of_process(("column keys", kms), lambda: key_cache_of(kms_client(kms)).part())


def opening_keys(
    table: Location, kms: str, column: str, key_id: str, runs: Iterable[str]
) -> list[tuple[ColumnRecord, RunKeys] | Ags1Error | OSError]:
    """The record and the keys of each run for a column, or why they cannot be used. Records are read side by side."""
    kept = kept_keys(kms)

    def read(run: str) -> tuple[ColumnRecord, RunKeys]:
        record = read_key(table, kms, column, run, key_id)
        return record, record.reference.unwrap(kms_client(kms))

    def found(run: str) -> tuple[ColumnRecord, RunKeys] | Ags1Error | OSError:
        try:
            return kept.get((table, column, key_id, run), lambda: read(run))
        except (Ags1Error, OSError) as error:
            return error

    return list(in_order(found, runs, at_once=_AT_ONCE))


def read_key(table: Location, kms: str, column: str, run: str, key_id: str) -> ColumnRecord:
    """The key of a run for a column, or of a SQL function's values.

    Raises
    ------
    KeyAccessError
        The table has no such key, or the KMS refused.
    AuthenticationError, FormatError
        The record is damaged, of another column, or under another master key than `key_id`.
    OSError
        The record could not be read.
    """
    for name in dict.fromkeys((column, "")):
        try:
            return _opened(FoundRun(_directory(table, name).join(run), run, (), 0, 0), kms, name, key_id)
        except FileNotFoundError:
            continue
    raise KeyAccessError(
        f"{table} has no key {run} of this column: {spelled('keys')} is another table, its record was removed, the "
        "column has another name than when it was encrypted, or the value is damaged"
    )


def newest_key(table: Location, kms: str, column: str, key_id: str) -> ColumnRecord | None:
    """The newest key of a column under a master key; None if the table has none. Raises as :func:`read_key`."""
    failure: Ags1Error | None = None
    for found in sorted(found_runs(_directory(table, column)), key=lambda each: (-each.modified, each.run)):
        try:
            return _opened(found, kms, column, key_id)
        except KeyAccessError:
            raise
        except Ags1Error as error:
            # Whoever can write there can put what is no record of ours: it hides none.
            failure = failure or error
    if failure is not None:
        raise failure
    return None


def is_empty(table: Location) -> bool:
    """Whether a key table has no keys, or does not exist."""
    try:
        return next(iter(iterate_files(table.as_root())), None) is None
    except FileNotFoundError:
        return True


def _opened(found: FoundRun, kms: str, column: str, key_id: str) -> ColumnRecord:
    opened = found.open(_KIND, column, unwrapping_under(key_id, kms_client(kms)))
    key, about = WrappedKey.from_json(opened.wrapped, found.directory.text), opened.about
    row_key = about.get("row-key")
    try:
        return ColumnRecord(
            RunReference(found.run, key, column),
            about["form"],
            about["field"],
            None if row_key is None else (str(row_key[0]), str(row_key[1])),
        )
    except (KeyError, IndexError, TypeError):
        raise FormatError(f"{found.directory}: this record of a key is of another version of ags1") from None


def _tag(column: str) -> str:
    return hashlib.sha256(column.encode()).hexdigest()[:32]


def _directory(table: Location, column: str) -> Location:
    return table.as_root().join(_tag(column))
