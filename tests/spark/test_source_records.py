"""JSON and CSV: types, records that cannot be read, and the same rows wherever a file is cut."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest

from ags1.errors import FormatError
from ags1.spark.source.decoders import Plain, decoder_for
from tests.spark.source_files import END, options, plain, rows, rows_cut_everywhere

UTC = datetime.timezone.utc
JSON = (
    b'{"a":1,"b":"x","t":"2026-01-01T00:00:00Z"}\n\n{"a":2}\r\n{"a":"bad","b":"y"}\nno json\n'
    b' {"b":7} \n{"a":3,"b":{"q":[1,2.50]}}\n[1]'
)
_BAD = b'{"a":"bad"'
TYPED = pa.schema(
    [("a", pa.int64()), ("b", pa.string()), ("t", pa.timestamp("us", "UTC")), ("_corrupt_record", pa.string())]
)


def inferred(data: bytes, **given: Any) -> dict[str, str]:
    schema = decoder_for(options(**given)).infer([plain(data)])
    return {field.name: str(field.type) for field in schema}


# -- JSON ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_bytes", [20, 4096])
def test_bad_json_becomes_null_and_keeps_its_text(batch_bytes: int) -> None:
    found = rows_cut_everywhere(JSON, options(decode="json", batch_bytes=batch_bytes), TYPED)
    assert [row["a"] for row in found] == [1, 2, None, None, None, 3, None]
    assert [row["b"] for row in found] == ["x", None, "y", None, "7", '{"q":[1,2.50]}', None]
    assert found[0]["t"] == datetime.datetime(2026, 1, 1, tzinfo=UTC)
    assert [row["_corrupt_record"] for row in found] == [
        *(None, None, '{"a":"bad","b":"y"}', "no json", None, None, "[1]")
    ]


def test_bad_json_is_dropped() -> None:
    found = rows_cut_everywhere(JSON, options(decode="json", mode="DROPMALFORMED"), TYPED)
    assert [row["a"] for row in found] == [1, 2, None, 3]


def test_bad_json_fails_and_is_not_shown() -> None:
    with pytest.raises(
        FormatError, match=rf"^file: a JSON record near byte {JSON.index(_BAD)} .*mode=FAILFAST"
    ) as caught:
        rows(plain(JSON), options(decode="json", mode="FAILFAST"), TYPED, [0, END])
    assert "bad" not in str(caught.value)


def test_two_records_in_a_line_are_the_first_and_an_array_is_several_rows() -> None:
    data = b'{"a":1}{"a":2}\n{"a":3}\n{"a":\n4}\n[{"a":5},{"a":6}]\n[]\n[{"a":7},8]\n'
    found = rows_cut_everywhere(data, options(decode="json"), TYPED)
    assert [row["a"] for row in found] == [1, 3, None, None, 5, 6, None]
    assert [row["_corrupt_record"] for row in found if row["_corrupt_record"]] == ['{"a":', "4}", '[{"a":7},8]']


def test_one_bad_line_among_many_does_not_change_the_others() -> None:
    lines = [b'{"a":%d,"b":"%d"}' % (number, number) for number in range(500)]
    lines[321] = b"{"
    found = rows(plain(b"\n".join(lines)), options(decode="json"), TYPED, [0, END])
    assert [row["a"] for row in found] == [*range(321), None, *range(322, 500)]
    assert [row["_corrupt_record"] for row in found if row["_corrupt_record"]] == ["{"]


def test_types_of_json() -> None:
    data = (
        b'{"date":"2026-02-03","amount":1.25,"flag":true,"bytes":"aGk=","map":{"k":1},"list":[{"x":1},{}],'
        b'"when":"2026-07-01T12:00:00","small":7}\n'
        b'{"date":"never","amount":1e9,"flag":1,"bytes":"?","map":[],"list":[{"x":"no"}],"when":1,"small":1000}\n'
    )
    schema = pa.schema(
        [
            ("date", pa.date32()),
            ("amount", pa.decimal128(5, 1)),
            ("flag", pa.bool_()),
            ("bytes", pa.binary()),
            ("map", pa.map_(pa.string(), pa.int64())),
            ("list", pa.list_(pa.field("element", pa.struct([("x", pa.int32())])))),
            ("when", pa.timestamp("us", "UTC")),
            ("small", pa.int8()),
        ]
    )
    first, second = rows(plain(data), options(decode="json", timeZone="Europe/Berlin"), schema, [0, END])
    assert first == {
        "date": datetime.date(2026, 2, 3),
        "amount": decimal.Decimal("1.3"),
        "flag": True,
        "bytes": b"hi",
        "map": [("k", 1)],
        "list": [{"x": 1}, {"x": None}],
        "when": datetime.datetime(2026, 7, 1, 10, tzinfo=UTC),
        "small": 7,
    }
    # Epoch seconds are a time; what is bad inside a list does not make the list bad.
    when = datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert second == {**dict.fromkeys(schema.names), "list": [{"x": None}], "when": when}


def test_the_schema_of_json_is_that_of_all_records() -> None:
    data = b'{"b":1,"a":null,"c":[1]}\n{"b":1.5,"d":{"x":true},"c":["s"]}\n'
    wanted = {"a": "string", "b": "double", "c": "list<element: string>", "d": "struct<x: bool>"}
    assert inferred(data, decode="json") == wanted


def test_a_schema_of_json_with_bad_records_has_a_column_for_them() -> None:
    assert inferred(b'{"a":1}\n{', decode="json") == {"a": "int64", "_corrupt_record": "string"}
    assert inferred(b'{"a":1}\n{', decode="json", mode="DROPMALFORMED") == {"a": "int64"}
    with pytest.raises(FormatError, match="multiLine=true"):
        inferred(b"{\n", decode="json")


def test_a_json_document_is_not_split() -> None:
    data = b'[\n{"a": 1},\n{"a": 2, "b": "x"}]'
    found = rows_cut_everywhere(data, options(decode="json", multiLine=True), TYPED)
    assert [row["a"] for row in found] == [1, 2]
    data = data.replace(b"]", b", 5]")
    (bad,) = rows_cut_everywhere(data, options(decode="json", multiLine=True), TYPED)
    assert (bad["a"], bad["_corrupt_record"]) == (None, data.decode())


def test_only_columns_of_the_path_are_wanted() -> None:
    batches = list(decoder_for(options(decode="json")).read(plain(JSON), 0, END, pa.schema([]), None))
    assert sum(batch.num_rows for batch in batches) == 7


def test_a_column_for_bad_records_is_a_string() -> None:
    schema = pa.schema([("_corrupt_record", pa.int64())])
    with pytest.raises(ValueError, match="must be a string that may be null"):
        rows(plain(JSON), options(decode="json"), schema, [0, END])


# -- CSV -------------------------------------------------------------------------------------------------------------

CSV = b'id,name,when\n1,"a,b",2026-01-01\n2,,\n3,"say ""hi""",x\n4\n\n5,a,2026-01-02,extra\n6,"open\n7,"",2026-01-03\n'
CSV_SCHEMA = pa.schema(
    [("when", pa.date32()), ("id", pa.int32()), ("name", pa.string()), ("_corrupt_record", pa.string())]
)


@pytest.mark.parametrize("batch_bytes", [16, 4096])
def test_csv_by_the_names_in_its_header(batch_bytes: int) -> None:
    chosen = options(decode="csv", header=True, escape='"', batch_bytes=batch_bytes)
    found = rows_cut_everywhere(CSV, chosen, CSV_SCHEMA)
    assert [row["id"] for row in found] == [1, 2, 3, 4, 5, 6, 7]
    assert [row["name"] for row in found] == ["a,b", None, 'say "hi"', None, "a", "open", None]
    assert found[0]["when"] == datetime.date(2026, 1, 1)
    bad = [row["_corrupt_record"] for row in found if row["_corrupt_record"] is not None]
    assert bad == ['3,"say ""hi""",x', "4", "5,a,2026-01-02,extra", '6,"open']


def test_bad_csv_is_dropped_or_fails() -> None:
    found = rows_cut_everywhere(CSV, options(decode="csv", header=True, mode="DROPMALFORMED"), CSV_SCHEMA)
    assert [row["id"] for row in found] == [1, 2, 7]
    with pytest.raises(FormatError, match=rf"a line of CSV near byte {CSV.index(b'3,')} ") as caught:
        rows(plain(CSV), options(decode="csv", header=True, mode="FAILFAST"), CSV_SCHEMA, [0, END])
    assert "say" not in str(caught.value)


def test_csv_without_a_header_is_in_the_order_of_the_schema() -> None:
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    found = rows_cut_everywhere(b"1;x\n2;'y;z'\n", options(decode="csv", sep=";", quote="'"), schema)
    assert found == [{"n": 1, "s": "x"}, {"n": 2, "s": "y;z"}]
    numbered = pa.schema([("_c1", pa.string())])
    assert rows_cut_everywhere(b"1,x\n2,y\n", options(decode="csv"), numbered) == [{"_c1": "x"}, {"_c1": "y"}]


def test_csv_with_line_ends_in_quotes_is_not_split() -> None:
    data = b'id,name\r\n1,"two\r\nlines ""q"" "\r\n2,x"y\r\n3,a""b\r\n'
    schema = pa.schema([("id", pa.int32()), ("name", pa.string())])
    found = rows_cut_everywhere(data, options(decode="csv", header=True, multiLine=True, escape='"'), schema)
    # The line end of the file is LF, as Spark has it.
    assert [row["name"] for row in found] == ['two\nlines "q" ', 'x"y', 'a""b']


def test_a_header_behind_empty_lines_is_no_row() -> None:
    schema = pa.schema([("a", pa.int64())])
    found = rows_cut_everywhere(b"\n\n\na\n1\na\n", options(decode="csv", header=True), schema)
    # A line like the header is data.
    assert [row["a"] for row in found] == [1, None]


def test_an_escape_and_a_null_value() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.int32())])
    chosen = options(decode="csv", escape="\\", nullValue="NA")
    found = rows_cut_everywhere(b'"x\\"y",NA\nNA,5\n"NA",6\n', chosen, schema)
    assert found == [{"a": 'x"y', "b": None}, {"a": None, "b": 5}, {"a": None, "b": 6}]


def test_the_schema_of_csv() -> None:
    data = (
        b"i,l,d,b,day,t,s,e\n1,5000000000,1.5,true,2026-01-01,2026-01-01 10:00:00,x,\n"
        b"2,1,2,FALSE,2026-01-02,2026-01-01T10:00:00,2,\n"
    )
    assert inferred(data, decode="csv") == {f"_c{index}": "string" for index in range(8)}
    assert set(inferred(data, decode="csv", header=True).values()) == {"string"}
    assert inferred(data, decode="csv", header=True, inferSchema=True) == {
        "i": "int32",
        "l": "int64",
        "d": "double",
        "b": "bool",
        "day": "date32[day]",
        "t": "timestamp[us, tz=UTC]",
        "s": "string",
        "e": "string",
    }


def test_names_that_come_twice_are_told_apart() -> None:
    assert list(inferred(b"a,a,\n1,2,3\n", decode="csv", header=True)) == ["a0", "a1", "_c2"]


def test_a_header_with_none_of_the_columns_is_an_error() -> None:
    with pytest.raises(FormatError, match="names none of the columns x: does it have a header"):
        rows(plain(b"a,b\n1,2\n"), options(decode="csv", header=True), pa.schema([("x", pa.int64())]), [0, END])


def test_a_hexadecimal_number_is_no_number() -> None:
    found = rows(plain(b"0x1F\n 7 \n+7\n"), options(decode="csv"), pa.schema([("n", pa.int64())]), [0, END])
    assert found == [{"n": None}, {"n": None}, {"n": 7}]


def test_a_column_that_csv_cannot_hold_is_named() -> None:
    schema = pa.schema([("l", pa.list_(pa.int64()))])
    with pytest.raises(FormatError, match="file: the column 'l': text cannot be read as a column of the type list"):
        rows(plain(b"1\n"), options(decode="csv"), schema, [0, END])


# -- columns that the schema does not have -----------------------------------------------------------------------------


def test_a_late_field_of_json_is_inferred_or_an_error() -> None:
    data = b'{"a":1}\n' * 1000 + b'{"a":2,"s":{"late":1}}\n'
    assert inferred(data, decode="json") == {"a": "int64", "s": "struct<late: int64>"}
    sampled = options(decode="json", sampling_bytes=100)
    schema = decoder_for(sampled).infer([plain(data)])
    assert schema.names == ["a"]
    with pytest.raises(FormatError, match="file: there is a field s, which the schema does not have"):
        rows(plain(data), sampled, schema, [0, END])
    assert len(rows(plain(data), options(decode="json"), schema, [0, END])) == 1001
    deep = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.int64())]))])
    with pytest.raises(FormatError, match="there is a field late"):
        rows(plain(data), sampled, deep, [0, END])


def test_fields_of_json_that_differ_in_case_are_refused() -> None:
    with pytest.raises(FormatError, match="differ only in case, which Spark cannot tell apart: A, a"):
        inferred(b'{"a":1}\n{"A":2}\n', decode="json")


def test_a_header_and_a_schema_with_other_columns_are_an_error() -> None:
    a_and_b = pa.schema([("a", pa.int64()), ("b", pa.string())])
    chosen = {"decode": "csv", "header": True}
    for data, said in ((b"a,b,late\n1,x,2\n", "late, which the schema does not have"), (b"a\n1\n", "no b")):
        with pytest.raises(FormatError, match=f"file: its header has {said}: give a schema"):
            rows(plain(data), options(**chosen), a_and_b, [0, END])
        assert rows(plain(data), options(**chosen, enforceSchema=False), a_and_b, [0, END])[0]["a"] == 1
        assert decoder_for(options(**chosen, columns="a")).infer([plain(data)]).names[0] == "a"
    found = rows(plain(b"x,y\n1,2\n"), options(**chosen, enforceSchema=True), a_and_b, [0, END])
    assert found == [{"a": 1, "b": "2"}]
    files = [plain(b"a,b\n1,x\n"), plain(b"b,a\ny,2\n"), plain(b"a,c\n1,x\n")]
    decoder = decoder_for(options(**chosen, inferSchema=True))
    assert decoder.infer(files[:2]).equals(a_and_b.set(0, pa.field("a", pa.int32())))
    with pytest.raises(FormatError, match="no b, c, which the schema does not have"):
        decoder.infer(files)


def test_columns_of_the_directories_may_be_in_a_header_too() -> None:
    file = Plain("day=1/f.csv", "day=1/f.csv", plain(b"a,day\n5,2\n").source)
    assert rows(file, options(decode="csv", header=True), pa.schema([("a", pa.int64())]), [0, END]) == [{"a": 5}]


def test_a_record_with_many_stray_quotes_is_an_error_and_no_crash() -> None:
    line = b'"a' + b'"\\b' * 5000
    with pytest.raises(FormatError, match="too many quotes"):
        rows(plain(line), options(decode="csv"), pa.schema([("a", pa.string())]), [0, END])
    deep = b'{"a":' + b"[" * 100000
    assert rows(plain(deep), options(decode="json"), pa.schema([("a", pa.string())]), [0, END]) == [{"a": None}]


@pytest.mark.parametrize(
    "number", ["1234567890123456789012345678900", "3.4e39", "-1e30", "99999999999999999999999999999"]
)
def test_a_number_too_large_for_a_decimal_is_no_other_number(number: str) -> None:
    # Arrow's own conversions lose its upper digits without a word.
    schema = pa.schema([("a", pa.decimal128(38, 10)), ("b", pa.list_(pa.field("element", pa.decimal128(38, 10))))])
    data = f'{{"a":{number},"b":[1.5]}}\n{{"a":1,"b":[{number}]}}\n'.encode()
    first, second = rows(plain(data), options(decode="json"), schema, [0, END])
    assert (first["a"], first["b"]) == (None, [decimal.Decimal("1.5")])
    assert (second["a"], second["b"]) == (1, None)
    found = rows(plain(f"2.5\n{number}\n".encode()), options(decode="csv"), pa.schema([schema.field("a")]), [0, END])
    assert [row["a"] for row in found] == [decimal.Decimal("2.5"), None]
