"""Columns of DataFrames, encrypted value by value on the cluster: for batches and streams, and as SQL functions."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from ags1.errors import AlreadyEncryptedError
from ags1.spark.engine.captured import settings_of
from ags1.spark.engine.column_keys import ColumnRecord, Wanted, is_empty, keys_for, newest_key
from ags1.spark.engine.column_work import (
    ANY_ROW_KEY,
    ArrowTask,
    DecryptColumns,
    EncryptColumns,
    KeyTable,
    Opening,
    OpeningColumn,
    SealingColumn,
    error_column,
)
from ags1.spark.engine.locations import locate
from ags1.spark.engine.sealing import kms_reference
from ags1.storage import Location, in_order
from ags1.support.arguments import one_of, spelled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FORMS = ("ags1", "gcm")
_AT_ONCE = 16
# Metadata of an encrypted field, which Spark and Parquet files keep: by it a second encryption is noticed.
_ENCRYPTED = "ags1.encrypted"


def encrypt_columns(
    df: DataFrame,
    columns: Mapping[str, str],
    *,
    kms: str,
    keys: str | os.PathLike[str],
    form: Literal["ags1", "gcm"] = "ags1",
    row_key: str | None = None,
) -> DataFrame:
    """Encrypt columns of a DataFrame, also of a streaming one, value by value; nulls stay null.

    For each column, the driver makes a key that the KMS wraps, and writes it to the key table; or it takes the column's
    newest key, if that has the same master key, form, type and row key, and is younger than 730 days. Every attempt of
    a task, and every micro-batch, derives a data key of its own from it, so a DataFrame that is evaluated twice has
    other ciphertext each time, and both can be decrypted.

    Parameters
    ----------
    df : DataFrame
        Classic or Connect.
    columns : mapping of str to str
        Names of columns, each with its master key. They have any type that :func:`ags1.arrow.encrypt_columns` takes:
        text, binary, numbers, dates and times, booleans, structs, arrays, maps. The names of all columns are found as
        Spark finds them, so ``spark.sql.caseSensitive`` counts. A dot in a name is part of the name.
    kms : str
        URL as :func:`ags1.kms.load` takes it; each worker makes its own client from it.
    keys : path or URL
        The key table: a directory that stays as long as the values do. Many runs and columns may share it. Whoever
        loses it loses the values; whoever reads it needs the KMS too.
    form : {"ags1", "gcm"}
        What follows the 18 bytes of key id in front of each value: an AGS1 stream (36 bytes more than the plaintext),
        or one GCM message (28), as Spark's ``aes_encrypt`` makes it.
    row_key : str, optional
        Column whose value in the same row is authenticated with each value, such as a primary key. Then a value that is
        moved to another row is detected, as one that is moved to another column always is. It has no nulls, and must
        have the same value, name and type for decryption.

    Returns
    -------
    DataFrame
        The columns are binary, and equal values never have equal ciphertext. Metadata of the fields has the key
        ``ags1.encrypted``.

    Raises
    ------
    AlreadyEncryptedError
        A column's field has that metadata: Spark keeps it, and so do Parquet files, but not Iceberg tables, CSV and
        JSON.
    ValueError, TypeError
        A wrong argument: a column that does not exist, whose name two columns have, or that has another type, a column
        that Spark does not give to Arrow. No key has been written.
    KeyAccessError
        The KMS refused a master key.
    OSError
        The key table could not be written, or cannot be: it needs a store that creates a file only if it is absent.

    Notes
    -----
    When the DataFrame is evaluated, a task raises LimitError at 2^32 values of a column, and ValueError for a null in
    `row_key`. ``help(ags1.spark.engine.column_keys)`` has the format byte by byte.

    Examples
    --------
    >>> sealed = ags1.spark.encrypt_columns(  # doctest: +SKIP
    ...     people, {"ssn": "pii", "notes": "pii"}, kms="aws:", keys="s3a://vault/_column_keys", row_key="id"
    ... )
    """
    kms = kms_reference(kms)
    one_of(form, _FORMS, "form")
    chosen = _Chosen.of(df, columns, row_key)
    schema = chosen.schema
    for position in chosen.key_ids:
        name = schema[position].name
        if _ENCRYPTED in schema[position].metadata:
            raise AlreadyEncryptedError(
                f"column {name!r} is encrypted already; to encrypt it twice, remove its metadata first: "
                f"df.withMetadata({name!r}, {{}})"
            )
        _encryptable(schema[position])
    table = locate(keys, df.sparkSession)
    bound = chosen.bound()
    wanted = [
        Wanted(schema[position].name, key_id, form, schema[position].jsonValue(), bound)
        for position, key_id in chosen.key_ids.items()
    ]
    made = dict(zip(chosen.key_ids, keys_for(table, kms, wanted), strict=True))
    fields = list(schema)
    for position in made:
        before = fields[position]
        fields[position] = StructField(before.name, BinaryType(), before.nullable, {_ENCRYPTED: form})
    return _mapped(df, EncryptColumns(made, chosen.row_key, kms), fields)


def decrypt_columns(
    df: DataFrame,
    columns: Mapping[str, str],
    *,
    kms: str,
    keys: str | os.PathLike[str],
    form: Literal["ags1", "gcm"] = "ags1",
    row_key: str | None = None,
    types: Mapping[str, str | DataType] | None = None,
    on_error: Literal["raise", "null"] = "raise",
) -> DataFrame:
    """Decrypt columns that :func:`encrypt_columns` made, of one or many runs; every value is authenticated.

    Filter and select before this call: Spark moves no filter below it, so a ``where`` behind it decrypts every row.

    Parameters
    ----------
    df : DataFrame
        It may have lost rows and columns, and come from files of any format that keeps binary columns.
    columns : mapping of str to str
        Names of columns, each with the master key that its keys must be under.
    kms, keys, form, row_key
        As for :func:`encrypt_columns`.
    types : mapping of str to str or DataType, optional
        Types of the columns. By default, each is what the newest key of the column in `keys` says.
    on_error : {"raise", "null"}
        What is done about a value whose own tag does not verify. "null" makes it null, and adds a column
        ``NAME_error`` behind the others for each of `columns`, which says what is wrong, or is null. A wrong or missing
        key, a value that ends early and a wrong form always raise.

    Returns
    -------
    DataFrame
        With the types, and the metadata, that the columns had.

    Raises
    ------
    ValueError, TypeError
        A wrong argument. ValueError also without a key of a column in `keys` and without its type.
    FileNotFoundError
        There is no key table at `keys`, and a type is to be found in it.
    AuthenticationError, FormatError, KeyAccessError
        The newest key of a column is damaged, of another form or row key, or under another master key.

    Notes
    -----
    When the DataFrame is evaluated, a wrong key or a damaged value raises AuthenticationError, FormatError or
    KeyAccessError in a task; the message names the column, and the row by its number in its partition, from 0 on.

    Examples
    --------
    >>> plain = ags1.spark.decrypt_columns(  # doctest: +SKIP
    ...     sealed.where("day = 1"), {"ssn": "pii"}, kms="aws:", keys="s3a://vault/_column_keys", row_key="id"
    ... )
    """
    kms = kms_reference(kms)
    one_of(form, _FORMS, "form")
    one_of(on_error, ("raise", "null"), "on_error")
    chosen = _Chosen.of(df, columns, row_key)
    schema = chosen.schema
    table = locate(keys, df.sparkSession)
    given = chosen.positions(types or {}, "types")
    if others := given.keys() - chosen.key_ids.keys():
        raise ValueError(f"types has columns that are not decrypted: {', '.join(map(chosen.name, others))}")
    fields = list(schema)
    if on_error == "null":
        fields += [StructField(name, StringType()) for name in chosen.error_columns()]
    for position in chosen.key_ids:
        if not isinstance(schema[position].dataType, BinaryType):
            kind = schema[position].dataType.simpleString()
            raise TypeError(f"column {chosen.name(position)!r} is not binary but {kind}: not encrypted")
    bound = chosen.bound()
    expected = {at: Opening(chosen.name(at), key_id, form, bound) for at, key_id in chosen.key_ids.items()}
    known = {at: _field(chosen.name(at), kind) for at, kind in given.items()}
    unknown = [position for position in expected if position not in known]
    recorded = in_order(lambda at: _recorded(table, kms, expected[at], keys), unknown, at_once=_AT_ONCE)
    known |= zip(unknown, recorded, strict=True)
    openings = {}
    for position, opening in expected.items():
        field = known[position]
        opening = replace(opening, type=field.jsonValue()["type"], exact=position not in given)
        openings[position] = opening, _encryptable(field)
        # An outer join may have added nulls since.
        nullable = schema[position].nullable or on_error == "null"
        fields[position] = StructField(opening.column, field.dataType, nullable, field.metadata)
    hidden = KeyTable.of(table, kms, next(iter(columns.values())))
    return _mapped(df, DecryptColumns(openings, hidden, chosen.row_key, on_error, kms), fields)


def _field(name: str, kind: str | DataType) -> StructField:
    return StructField(name, DataType.fromDDL(kind) if isinstance(kind, str) else kind)


def _mapped(df: DataFrame, task: ArrowTask, fields: list[StructField]) -> DataFrame:
    """The rows of a task on columns that have numbers for names: a name may be there twice, or be a path for Spark."""
    numbered = [StructField(str(at), each.dataType, each.nullable, each.metadata) for at, each in enumerate(fields)]
    frame = df.toDF(*map(str, range(len(df.columns))))
    return frame.mapInArrow(task, StructType(numbered)).toDF(*(each.name for each in fields))


def register_columns(
    spark: SparkSession,
    *,
    kms: str,
    keys: str | os.PathLike[str],
    key_ids: Sequence[str],
    decrypt: bool = False,
    form: Literal["ags1", "gcm"] = "ags1",
) -> None:
    """Register SQL functions that encrypt and decrypt values, for views and queries of a session.

    ``ags1_encrypt(value, 'pii')`` encrypts text or binary under the master key ``pii``; cast other types first. It is
    marked as not deterministic. ``ags1_decrypt(value, 'pii')`` gives binary: cast that to string where it was. Both
    take two more arguments: the name of a column, and a row's key, which are authenticated with the value. Without a
    name, values of two columns can be swapped unnoticed; with one, :func:`decrypt_columns` decrypts them too::

        SELECT id, ags1_encrypt(ssn, 'pii', 'ssn', id) AS ssn FROM people

    Parameters
    ----------
    spark : SparkSession
    kms, keys, form
        As for :func:`encrypt_columns`.
    key_ids : sequence of str
        The master keys that a query may name. For each, there is a key in the key table when this returns, as for
        :func:`encrypt_columns`.
    decrypt : bool
        Also register ``ags1_decrypt``: every query of the session may then decrypt. It raises where a value is damaged.

    Raises
    ------
    ValueError, TypeError
        A wrong argument.
    KeyAccessError, OSError
        As :func:`encrypt_columns`.
    """
    from pyspark.sql.functions import arrow_udf

    kms = kms_reference(kms)
    one_of(form, _FORMS, "form")
    if isinstance(key_ids, str) or not key_ids or not all(isinstance(each, str) for each in key_ids):
        raise TypeError("key_ids must be the names of master keys, such as ['pii']")
    table = locate(keys, spark)
    wanted = [Wanted("", key_id, form) for key_id in dict.fromkeys(key_ids)]
    made = {key.reference.key.key_id: key for key in keys_for(table, kms, wanted)}
    encrypt = _function("ags1_encrypt", key_ids, lambda key_id, column, _: _encrypting(made[key_id], column, kms))
    spark.udf.register("ags1_encrypt", arrow_udf(encrypt, "binary").asNondeterministic())
    if decrypt:
        hidden = KeyTable.of(table, kms, key_ids[0])

        def opening(key_id: str, column: str, is_bound: bool) -> Callable[[Any, Any], Any]:
            return _decrypting(Opening(column, key_id, form, ANY_ROW_KEY if is_bound else None), hidden, kms)

        spark.udf.register("ags1_decrypt", arrow_udf(_function("ags1_decrypt", key_ids, opening), "binary"))


def _function(name: str, key_ids: Sequence[str], make: Callable[[str, str, bool], Callable[[Any, Any], Any]]) -> Any:
    """A SQL function of a value, a master key and, if wanted, the name of a column and a row's key.

    `make` makes what works on values: of a master key, for a column, with or without a row's key. Spark takes the kind
    of the function from the types of its arguments.
    """

    def function(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        made: dict[tuple[str, str], Callable[[Any, Any], Any]] = {}
        batch: Any
        for batch in batches:
            values, *further = batch if isinstance(batch, (tuple, list)) else [batch]
            if not 1 <= len(further) <= 3:
                raise TypeError(f"{name} takes a value, a master key and, if wanted, a column's name and a row's key")
            key_id, column = [*(_literal(each, name) for each in further[:2]), ""][:2]
            if not len(values):
                yield pa.array([], pa.binary())
                continue
            if key_id not in key_ids:
                raise ValueError(f"{name}: the master key {key_id!r} is not one of key_ids at registration")
            if (key_id, column) not in made:
                made[key_id, column] = make(key_id, column, len(further) == 3)
            yield made[key_id, column](values, further[2] if len(further) == 3 else None).cast(pa.binary())

    return function


def _literal(array: Any, name: str) -> str:
    found = array.unique().to_pylist()
    if not found:
        return ""
    if len(found) != 1 or not isinstance(found[0], str):
        raise ValueError(f"{name}: the master key and the name of a column are text, the same for all rows")
    return found[0]


def _encrypting(key: ColumnRecord, column: str, kms: str) -> Callable[[Any, Any], Any]:
    sealing = SealingColumn(key, kms)

    def work(array: Any, row_keys: Any) -> Any:
        if str(array.type) not in ("string", "large_string", "binary", "large_binary"):
            raise TypeError(f"ags1_encrypt takes text or binary, not {array.type}: cast it to string first")
        return sealing.seal(array, column, row_keys)

    return work


def _decrypting(opening: Opening, table: KeyTable, kms: str) -> Callable[[Any, Any], Any]:
    values = OpeningColumn(opening, table, kms)
    return lambda array, row_keys: values.open(array, opening.column, row_keys)[0]


@dataclass(frozen=True)
class _Chosen:
    """Columns of a DataFrame that a caller has named, by their positions; names are found as Spark finds them."""

    schema: StructType
    case_sensitive: bool
    key_ids: dict[int, str]
    row_key: int | None

    @classmethod
    def of(cls, df: Any, columns: Any, row_key: str | None) -> _Chosen:
        """Find the columns to work on, each with its master key, and the one that is authenticated with them."""
        if not hasattr(df, "mapInArrow") or not hasattr(df, "sparkSession"):
            raise TypeError(f"df must be a DataFrame of Spark, not {type(df).__name__}")
        if not isinstance(columns, Mapping) or not columns:
            raise TypeError("columns must be a mapping of names to master keys, such as {'ssn': 'pii'}")
        for name, key_id in columns.items():
            if not isinstance(key_id, str):
                raise TypeError(f"the master key of column {name!r} must be a str, not {type(key_id).__name__}")
        case_sensitive = settings_of(df.sparkSession).get("spark.sql.caseSensitive", "false")
        made = cls(df.schema, case_sensitive.lower() == "true", {}, None)
        for each in made.schema:
            _arrow_type(each)
        key_ids = made.positions(columns, "columns")
        bound = None if row_key is None else made.position(row_key)
        if bound in key_ids:
            raise ValueError(f"row_key {row_key!r} is encrypted itself: choose a column that stays readable")
        return replace(made, key_ids=key_ids, row_key=bound)

    def name(self, position: int) -> str:
        """The name of a column in the DataFrame."""
        found: str = self.schema.names[position]
        return found

    def named(self, name: str, names: Sequence[str]) -> list[int]:
        """The positions of a name."""
        if self.case_sensitive:
            return [position for position, each in enumerate(names) if each == name]
        # Two names of other lengths are other names for Spark, though they may be the same in lower case ("İ").
        same = name.lower(), len(name)
        return [position for position, each in enumerate(names) if (each.lower(), len(each)) == same]

    def position(self, name: Any) -> int:
        """The position of the one column that has a name."""
        names = self.schema.names
        if not isinstance(name, str):
            raise TypeError(f"the name of a column must be a str, not {type(name).__name__}")
        found = self.named(name, names)
        if not found:
            raise ValueError(f"there is no column {name!r}, but {', '.join(names)}")
        if len(found) > 1:
            which = ", ".join(names[each] for each in found)
            raise ValueError(f"there are {len(found)} columns {name!r} for this session ({which}): rename all but one")
        return found[0]

    def positions(self, given: Mapping[str, Any], argument: str) -> dict[int, Any]:
        """What an argument says of columns."""
        found: dict[int, Any] = {}
        for name, value in given.items():
            position = self.position(name)
            if position in found:
                raise ValueError(f"{argument} has the column {self.name(position)!r} twice: as {name!r} too")
            found[position] = value
        return found

    def bound(self) -> tuple[str, str] | None:
        """Name and type of the column that is authenticated with values."""
        if self.row_key is None:
            return None
        found = self.schema[self.row_key]
        _encryptable(found)
        return found.name, found.dataType.simpleString()

    def error_columns(self) -> list[str]:
        """The columns that say what is wrong with the values of those that are decrypted."""
        names: list[str] = self.schema.names
        for position in self.key_ids:
            name = error_column(names[position])
            if taken := self.named(name, names):
                raise ValueError(
                    f"on_error='null' adds a column {name!r}, and there is {names[taken[0]]!r} already: rename it"
                )
            names = [*names, name]
        return names[len(self.schema) :]


def _arrow_type(field: StructField) -> Any:
    """The type of a column in Arrow. TypeError: Spark cannot give the column to tasks."""
    from pyspark.sql.pandas.types import to_arrow_type

    # Newer releases have no default for it.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {}
    try:
        return to_arrow_type(field.dataType, **zone)
    except Exception as error:
        raise TypeError(
            f"column {field.name!r} has the type {field.dataType.simpleString()}, which Spark does not give to Arrow: "
            f"cast it, or leave it out ({error})"
        ) from None


def _encryptable(field: StructField) -> Any:
    """The type of a column in Arrow. TypeError: its values have no bytes."""
    from ags1.arrow.nested import check_type

    found = _arrow_type(field)
    try:
        check_type(found)
    except Exception as error:
        text = f"column {field.name!r} has the type {field.dataType.simpleString()}, which cannot be encrypted: {error}"
        raise TypeError(text) from None
    return found


def _recorded(table: Location, kms: str, opening: Opening, keys: str | os.PathLike[str]) -> StructField:
    """The field that the record of a column's newest key has."""
    name = opening.column
    key = newest_key(table, kms, name, opening.key_id)
    if key is None or key.field is None:
        where = os.fspath(keys)
        if key is None and is_empty(table):
            raise FileNotFoundError(
                errno.ENOENT, f"there is no key table: {spelled('keys')} is where encrypt_columns wrote one", where
            )
        raise ValueError(f"{where} has no key of the column {name!r}, to say its type: give types=")
    opening.check(key)
    return StructField.fromJson(key.field)
