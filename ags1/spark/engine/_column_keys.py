"""Keys of encrypted columns: the table of wrapped keys, and the key id that stands in front of each value.

::

    KEYS/0b14d501a594442a01c6859541bcb3e8/4f1c2a9be07d/run.json     a record of the key table
         column: SHA-256 of its name      run

    offset 0         6               18
           | run (6) | attempt (12)  | AGS1 stream or GCM message |           a value
    AAD    | length (4) | name of the column | length (4) | row's key |       the second half only with a row key

    master key --KMS--> key encryption key --> key of run and column --HKDF-Expand of SHA-512--> data key of an attempt

A call of ``encrypt_columns`` is a run. For each column it writes one record, created if absent and durable, before
there is a DataFrame: the key of the run and column, wrapped, and sealed under it what the values are (form, type, row
key). :mod:`ags1.work.records` says why a record is believed. Each attempt of a task, and each micro-batch, draws 96
random bits and derives its data key from them (RFC 5869, section 2.3; :class:`ags1.dataset.runs.RunKeys`). So a task
writes nothing and asks the KMS only to unwrap, no two attempts count on the same key, and the run and the attempt in
front of a value are all that its key needs. What is changed there gives another key, under which no tag verifies.

Lengths are little-endian. The row's key has the bytes that :mod:`ags1.arrow.values` gives a value of its type.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from ags1.core.gcm import Key
from ags1.dataset.runs import RunKeys, RunReference
from ags1.errors import Ags1Error, FormatError, KeyAccessError
from ags1.iceberg.keys.wrapped_key import WrappedKey, unwrapping_under
from ags1.spark.engine._sealing import kms_client
from ags1.storage import Location, Unsynced, iterate_files
from ags1.work.records import FoundRun, RunRecords, found_runs

RUN, ATTEMPT = 6, 12
# Bytes in front of a value.
LEAD = RUN + ATTEMPT
_KIND = "spark column"
_RECORD = "run.json"


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

    def about(self) -> dict[str, Any]:
        """What is sealed in the record."""
        return {"form": self.form, "field": self.field, "row-key": self.row_key}


def data_key(keys: RunKeys, attempt: bytes) -> Key:
    """The key of an attempt's values."""
    return Key(keys.derive(attempt.hex())[0])


def create_key(table: Location, kms: str, column: str, key_id: str, **what: Any) -> ColumnRecord:
    """Make the key of a new run for a column; its record is durable when this returns.

    Raises
    ------
    KeyAccessError
        The KMS refused.
    OSError
        The record could not be written: ENOTSUP if the storage cannot create a file only if it is absent.
    """
    client = kms_client(kms)
    made = replace(RunReference.create(WrappedKey(key_id), client), owner=column)
    found = ColumnRecord(made, **what)
    directory = _directory(table, column).join(made.run)
    RunRecords(directory, made.unwrap(client).seal(_KIND), durable=True).begin(
        made.key.to_json(), found.about(), once=True
    )
    unsynced = Unsynced(table)
    unsynced.add(f"{_tag(column)}/{made.run}/{_RECORD}")
    unsynced.sync()
    return found


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
        f"{table} has no key {run} of this column: `keys` is another table, its record was removed, the column has "
        "another name than when it was encrypted, or the value is damaged"
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
