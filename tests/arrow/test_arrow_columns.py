"""Columns of Arrow tables, encrypted value by value: every type comes back, and nothing can change places unnoticed."""

from __future__ import annotations

import datetime
import decimal
import io
from typing import Any

import pytest

import ags1
from tests.checks import KEY, OTHER_KEY, flip

pa = pytest.importorskip("pyarrow")

from ags1 import arrow  # noqa: E402  needs pyarrow

WORDS = ["a", None, "", "a longer text than a view holds inline", "ß"]
VALUES: dict[str, Any] = {
    "string": pa.array(WORDS),
    "large_string": pa.array(WORDS, pa.large_string()),
    "string_view": pa.array(WORDS, pa.string_view()),
    "binary": pa.array([b"\x00", None, b""], pa.binary()),
    "large_binary": pa.array([b"\x00", None, b""], pa.large_binary()),
    "binary_view": pa.array([b"\x00" * 40, None, b""], pa.binary_view()),
    "fixed_size_binary": pa.array([b"abcd", None, b"efgh"], pa.binary(4)),
    "int8": pa.array([1, None, -3], pa.int8()),
    "uint64": pa.array([2**64 - 1, 0, None], pa.uint64()),
    "float16": pa.array([1.5, None, -2.0], pa.float16()),
    "float64": pa.array([1.5, None, float("inf")]),
    "decimal128": pa.array([decimal.Decimal("1.23"), None], pa.decimal128(10, 2)),
    "decimal256": pa.array([decimal.Decimal("-9.99"), None], pa.decimal256(50, 2)),
    "date32": pa.array([datetime.date(2024, 2, 29), None], pa.date32()),
    "timestamp": pa.array([0, None, 10**15], pa.timestamp("us", "Europe/Berlin")),
    "time64": pa.array([0, None, 10**9], pa.time64("ns")),
    "duration": pa.array([1, None], pa.duration("ns")),
    "empty": pa.array([], pa.int32()),
    "sliced": pa.array(range(100)).slice(13, 40),
    "sliced text": pa.array(["x" * index for index in range(50)]).slice(7, 20),
    "chunked": pa.chunked_array([[1, None], [], [3]], pa.int64()),
    "chunked text": pa.chunked_array([["a", None], [], ["b"]], pa.string()),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_of_every_type_come_back(name: str) -> None:
    array = VALUES[name]
    sealed = arrow.encrypt_array(array, KEY, aad_prefixes=ags1.NumberedPrefixes(b"c"))
    assert sealed.type == pa.large_binary()
    assert sealed.is_valid().to_pylist() == array.is_valid().to_pylist()
    again = arrow.decrypt_array(sealed, KEY, value_type=array.type, aad_prefixes=ags1.NumberedPrefixes(b"c"))
    again.validate(full=True)
    assert again.type == array.type
    assert again.to_pylist() == array.to_pylist()


@pytest.mark.parametrize("name", VALUES)
def test_columns_come_back_with_their_fields_through_a_file(name: str) -> None:
    array = VALUES[name]
    schema = pa.schema([pa.field("number", pa.int64()), pa.field("a", array.type, metadata={"of": "mine"})])
    table = pa.table([range(len(array)), array], schema=schema)
    for rows in (table, *table.combine_chunks().to_batches()[:1]):
        sealed = arrow.encrypt_columns(rows, ["a"], KEY, aad_prefix=b"table")
        assert isinstance(sealed, type(rows))
        assert sealed.schema.field("a").type == pa.large_binary()
        sink = io.BytesIO()
        with pa.ipc.new_file(sink, sealed.schema) as file:
            file.write(sealed)
        read = pa.ipc.open_file(sink.getvalue()).read_all()
        again = arrow.decrypt_columns(read, KEY, aad_prefix=b"table")
        assert again.schema.equals(rows.schema, check_metadata=True)
        assert again.to_pydict() == rows.to_pydict()


def test_columns_come_back_through_parquet_after_rows_were_filtered(tmp_path: Any) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pa.table({"id": range(100), "name": [f"name {index}" for index in range(100)], "ssn": range(100, 200)})
    parquet.write_table(arrow.encrypt_columns(table, ["name", "ssn"], KEY, aad_prefix=b"people"), tmp_path / "people")
    read = parquet.read_table(tmp_path / "people", filters=[("id", ">", 90)])
    assert read.schema.field("ssn").type == pa.large_binary()
    assert arrow.decrypt_columns(read, KEY, aad_prefix=b"people").equals(table.slice(91))
    some = arrow.decrypt_columns(read, KEY, columns=["name"], aad_prefix=b"people")
    assert (some["name"], some.schema.field("ssn").type) == (table["name"].slice(91), pa.large_binary())


def test_values_that_were_put_into_another_column_or_table_are_refused() -> None:
    table = pa.table({"a": ["1", "2"], "b": ["3", "4"]})
    sealed = arrow.encrypt_columns(table, ["a", "b"], KEY, aad_prefix=b"t")
    swapped = sealed.set_column(0, sealed.schema.field(0), sealed.column(1))
    with pytest.raises(ags1.AuthenticationError):
        arrow.decrypt_columns(swapped, KEY, aad_prefix=b"t")
    with pytest.raises(ags1.AuthenticationError):
        arrow.decrypt_columns(sealed, KEY, aad_prefix=b"other")
    with pytest.raises(ags1.AuthenticationError):
        arrow.decrypt_columns(sealed, OTHER_KEY, aad_prefix=b"t")
    with pytest.raises(ValueError, match="column 'c' was 'a' when it was encrypted"):
        arrow.decrypt_columns(sealed.rename_columns(["c", "b"]), KEY, aad_prefix=b"t")


def test_numbered_values_that_changed_rows_are_refused() -> None:
    prefixes = ags1.NumberedPrefixes(b"t/a")
    sealed = arrow.encrypt_array(pa.array([1, 2, 3]), KEY, aad_prefixes=prefixes)
    with pytest.raises(ags1.AuthenticationError, match=r"^buffer 0: block 0"):
        arrow.decrypt_array(sealed.take([1, 0, 2]), KEY, value_type=pa.int64(), aad_prefixes=prefixes)
    damaged = pa.array([*sealed.to_pylist()[:2], flip(sealed[2].as_py(), -1)])
    with pytest.raises(ags1.AuthenticationError, match=r"^buffer 2: block 0"):
        arrow.decrypt_array(damaged, KEY, value_type=pa.int64(), aad_prefixes=prefixes)


def damaged_at(array: Any, *rows: int) -> Any:
    """An encrypted column with a damaged value in these rows."""
    values = array.to_pylist()
    for row in rows:
        values[row] = flip(values[row], -1)
    return pa.array(values, array.type)


def test_a_damaged_value_is_named_by_its_column_and_row_or_becomes_null_beside_the_good_ones() -> None:
    table = pa.table(
        {"id": [0, 1, 2, 3], "name": ["a", None, "c", "d"], "number": [1.5, 2.5, None, 4.5]},
        schema=pa.schema(
            [("id", pa.int64()), ("name", pa.string()), pa.field("number", pa.float64(), metadata={"of": "mine"})]
        ),
    )
    sealed = arrow.encrypt_columns(table, ["name", "number"], KEY, aad_prefix=b"t")
    good, failed = arrow.decrypt_columns(sealed, KEY, aad_prefix=b"t", on_error="null")
    assert good.equals(table)
    assert failed == {}
    damaged = sealed.set_column(2, sealed.schema.field(2), damaged_at(sealed["number"], 1, 3))
    with pytest.raises(ags1.AuthenticationError, match=r"^column 'number': buffer 1: block 0 failed") as caught:
        arrow.decrypt_columns(damaged, KEY, aad_prefix=b"t")
    assert caught.value.item_index == 1
    plain, failed = arrow.decrypt_columns(damaged, KEY, aad_prefix=b"t", on_error="null")
    assert plain["name"].equals(table["name"])
    assert plain["number"].to_pylist() == [1.5, None, None, None]
    assert plain.schema.equals(table.schema, check_metadata=True)
    assert {name: mask.to_pylist() for name, mask in failed.items()} == {"number": [False, True, False, True]}
    # A column of which nothing verifies has another key or prefix.
    for wrong in ({"key": OTHER_KEY, "aad_prefix": b"t"}, {"key": KEY, "aad_prefix": b"other"}):
        with pytest.raises(ags1.AuthenticationError, match=r"^column 'name': buffer 0"):
            arrow.decrypt_columns(sealed, **wrong, on_error="null")
    broken = sealed.set_column(1, sealed.schema.field(1), pa.array([b"AGS1"] * 4, pa.large_binary()))
    with pytest.raises(ags1.TruncatedError, match=r"^column 'name': buffer 0"):
        arrow.decrypt_columns(broken, KEY, aad_prefix=b"t", on_error="null")
    column = arrow.encrypt_array(table["number"], KEY)
    values, mask = arrow.decrypt_array(damaged_at(column, 3), KEY, value_type=pa.float64(), on_error="null")
    assert (values.to_pylist(), mask.to_pylist()) == ([1.5, 2.5, None, None], [False, False, False, True])


def test_a_column_that_must_not_be_null_may_be_where_a_tag_failed() -> None:
    table = pa.table({"a": [1, 2]}, schema=pa.schema([pa.field("a", pa.int64(), nullable=False)]))
    sealed = arrow.encrypt_columns(table, ["a"], KEY)
    damaged = sealed.set_column(0, sealed.schema.field(0), damaged_at(sealed["a"], 0))
    plain, _ = arrow.decrypt_columns(damaged, KEY, on_error="null")
    plain.validate(full=True)
    assert plain.schema.field("a").nullable
    assert plain.to_pydict() == {"a": [None, 2]}


def test_types_that_do_not_fit_are_refused() -> None:
    words = pa.array(["a"]).dictionary_encode()
    for array in (
        words,
        pa.nulls(2),
        pa.StructArray.from_arrays([words], ["a"]),
        pa.array([[1]], pa.list_(pa.int8(), 1)),
    ):
        with pytest.raises(TypeError, match="are not bytes: encrypt the table's buffers"):
            arrow.encrypt_array(array, KEY)
    for wrong in ([1, 2], b"1", pa.table({"a": [1]})):
        with pytest.raises(TypeError, match="a pyarrow Array or ChunkedArray is needed"):
            arrow.encrypt_array(wrong, KEY)
    sealed = arrow.encrypt_array(pa.array([b"\xff\xfe\xfd"]), KEY)
    with pytest.raises(TypeError, match=r"value_type must be a pyarrow\.DataType, not str"):
        arrow.decrypt_array(sealed, KEY, value_type="string")
    with pytest.raises(ags1.FormatError, match="not of type string"):
        arrow.decrypt_array(sealed, KEY, value_type=pa.string())
    with pytest.raises(ags1.FormatError, match="not of type int64"):
        arrow.decrypt_array(sealed, KEY, value_type=pa.int64())


def test_columns_that_are_not_there_or_not_encrypted_are_refused() -> None:
    table = pa.table({"a": ["1"]})
    for call in (arrow.encrypt_columns, lambda table, names, key: arrow.decrypt_columns(table, key, columns=names)):
        with pytest.raises(KeyError, match="there is no column 'b'"):
            call(table, ["b"], KEY)
        with pytest.raises(TypeError, match="a pyarrow Table or RecordBatch is needed"):
            call(table["a"], ["a"], KEY)
    with pytest.raises(ValueError, match="column 'a' has no metadata of ags1"):
        arrow.decrypt_columns(table, KEY, columns=["a"])
    assert arrow.decrypt_columns(table, KEY).equals(table)
    sealed = arrow.encrypt_columns(table, ["a"], KEY)
    with pytest.raises(ValueError, match="column 'a' is encrypted already"):
        arrow.encrypt_columns(sealed, ["a"], KEY)
    field = sealed.schema.field("a")
    for stored in (b"", b"!!", b"AAAA", field.metadata[b"ags1.field"][:40]):
        broken = sealed.set_column(0, field.with_metadata({"ags1.field": stored}), sealed["a"])
        with pytest.raises(ags1.FormatError, match="column 'a' has damaged metadata"):
            arrow.decrypt_columns(broken, KEY)


def test_one_name_in_the_place_of_a_list_is_refused_with_the_way_out() -> None:
    table = pa.table({"name": ["a"]})
    for call in (arrow.encrypt_columns, lambda table, columns, key: arrow.decrypt_columns(table, key, columns=columns)):
        with pytest.raises(TypeError, match=r"a list of names, such as \['name'\], not one name"):
            call(table, "name", KEY)
