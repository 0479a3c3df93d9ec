"""Row filters as text: they mean what Spark means, and what is not certain is refused before anything is read."""

from __future__ import annotations

import json
import random
import struct
import sys
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import And, EqualTo, Not, Or

from ags1.iceberg import EncryptedTable, create_table
from ags1.iceberg.scan._filter_text import TextFilter
from ags1.iceberg.scan._row_filter import RowFilter
from ags1.kms import MemoryKms
from tests.checks import every
from tests.iceberg_tables.keys import MASTER_KEYS
from tests.iceberg_tables.random_filters import WORDS, PlainRows, RandomText, sql_text

RECORDED = Path(__file__).with_name("filters_of_spark.json")
ROWS = PlainRows()
TABLE = ROWS.table()
NAMES = {each.field_id: each.name for each in ROWS.schema.fields}
COLUMN = {kind: name for name, kind in ROWS.columns}


def marks(text: str) -> str:
    """Whether a filter is true, false or null, row by row."""
    return ROWS.truths(text)


@pytest.fixture
def table(tmp_path: Path) -> EncryptedTable:
    rows = pa.table({"s": [*WORDS, None], "n": pa.array(range(len(WORDS) + 1), pa.int64())})
    made = create_table(None, str(tmp_path / "t"), rows.schema, kms=MemoryKms(MASTER_KEYS), key_id="keyA")
    made.append(rows)
    return made


def test_filters_mean_what_spark_said_they_mean() -> None:
    """Recorded by tests/iceberg_tables/soak_filters.py, which asks Spark for more of them."""
    recorded = json.loads(RECORDED.read_text())
    assert len(recorded) > 350
    found = [(text, marks(text), wanted) for text, wanted in recorded]
    assert [each for each in found if each[1] != each[2]] == []


def test_a_delete_keeps_each_text_that_its_filter_names(table: EncryptedTable) -> None:
    """The threat: a TAB was read as spaces, and the row that had to be kept was deleted."""
    chance = random.Random(1)
    for word in WORDS:
        for text in (sql_text(word), sql_text(word, chance)):
            assert table.scan(row_filter=f"s = {text}").to_arrow()["s"].to_pylist() == [word], text
    for word in ("a\tb", "line\nline", "ends in \\"):
        left = [each for each in table.scan().to_arrow()["s"].to_pylist() if each in (word, None)]
        table.delete(f"s != {sql_text(word)}")
        assert table.scan().to_arrow()["s"].to_pylist() == left
        table.append(pa.table({"s": WORDS, "n": pa.array(range(len(WORDS)), pa.int64())}))


REFUSED = [
    ("", "must be one condition"),
    ("n >", "no condition of Spark's SQL"),
    ("n > 1; n < 5", "without a semicolon"),
    ("n = 1 -- and s is null", "leave out its comment"),
    ("n = /* 2 */ 1", "leave out its comment"),
    ('s = "a"', 'write "a" in single quotes if it is a text, in backticks if it is a name'),
    ('"s" is not null', "in backticks if it is a name"),
    ("s = 'a' 'b'", "not supported as a value"),
    ("s = '\ud83d'", "half a character"),
    ("!n = 1", "write not instead of !"),
    ("n", "compare it with a value"),
    ("5", "not supported"),
    ("n = s", "compares two columns"),
    ("n + 1 = 5", ": n + 1 stands where a column must be"),
    ("n = 1 + 1", "not supported as a value"),
    ("lower(s) = 'a'", "(s) stands where a column must be"),
    ("startswith(s, 'a')", "not supported"),
    ("n in (select 1)", "not supported"),
    ("n in ()", "has no values"),
    ("n between symmetric 5 and 1", "not supported"),
    ("(n, s) = (1, 'a')", "stands where a column must be"),
    ("n = 1 = true", "stands where a column must be"),
    ("n = 0x1F", "no number of Spark's SQL"),
    ("n = 1e400", "not supported as a value"),
    ("n = 1.5::int", "not supported as a value"),
    ("n = cast(1.57 as decimal(2, 1))", "not supported as a value"),
    ("n < 99999999999999999999", "beyond every value of column n"),
    ("n = 1234567890123456789012345678901234567.25", "more than 38 digits"),
    ("n = 0.1234567890123456789012345678901", "write the number with fewer digits"),
    ("n = '1'", "column n is long, and cannot be compared with '1': write a number"),
    ("s = 1", "column s is string, and cannot be compared with 1: write a text in single quotes"),
    (r"s like 'a\\b'", "must stand before"),
    (r"s like 'a\\'", "must stand before"),
    ("s like 'a' escape 'ab'", "escape must be one character"),
    ("s like any ('a', 'b')", "not supported as a value"),
    ("s ilike 'a'", "not supported"),
    ("s rlike 'a'", "not supported"),
    ("n like '1'", "column n is long and no text"),
    ("isnan(s)", "column s is string and no number"),
    ("s is 5", "write is null"),
    ("n = :x", "not supported as a value"),
    # What sqlglot would read without a word of these.
    ("n between 3 7", "something is missing or too much near 'between 3 7'"),
    ("n in (, 1)", "something is missing or too much"),
    ("n in (1,)", "something is missing or too much"),
    ("n = in15.25BD", "something is missing or too much near 'n = in15'"),
    ("n = -_2.25BD", "something is missing or too much"),
    ("n = . 5", "something is missing or too much"),
    ("n > cast('1' as double", "something is missing or too much"),
    ("isnan(n,)", "something is missing or too much"),
    ("n isnull", "something is missing or too much"),
    ("n = +s", "compares two columns"),
    ("s = +'5'", "something is missing or too much"),
    ("s like + 'a'", "something is missing or too much"),
    ("+n = 5", "something is missing or too much"),
    ("not n between 0.1 and. 0.1BD", "no condition of Spark's SQL"),
    ("lower(s) = X''", "stands where a column must be"),
    ("n is null;", "without a semicolon"),
    ("n[0] = 1", "stands where a column must be"),
    ("nowhere = 1", "Could not find field with name nowhere"),
    (f"{'(' * 5000}n = 1{')' * 5000}", "nested too deeply"),
]


def test_what_is_not_certain_is_refused_with_what_to_write_instead(
    table: EncryptedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = table.scan().to_arrow()

    def nothing(*_: Any, **__: Any) -> Any:
        raise AssertionError("read or written before the filter was refused")

    from ags1.iceberg.files.file_io import EncryptedFileIO

    with monkeypatch.context() as patched:
        patched.setattr(EncryptedFileIO, "new_output", nothing)
        patched.setattr(EncryptedFileIO, "new_input", nothing)

        @every("case", REFUSED)
        def refused(case: tuple[str, str]) -> None:
            for change in (
                lambda: table.scan(row_filter=case[0]),
                lambda: table.delete(case[0]),
                lambda: table.overwrite(rows, case[0]),
            ):
                with pytest.raises(ValueError) as caught:
                    change()
                assert case[1] in str(caught.value)

        refused()
    assert table.scan().to_arrow() == rows


def test_without_sqlglot_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(ImportError, match=r"pip install 'ags1\[iceberg\]'"):
        marks("true")


def test_sides_may_change_places_and_nothing_else_does() -> None:
    whole, text = COLUMN["long"], COLUMN["string"]
    for mirrored, plain in (
        (f"3 < {whole}", f"{whole} > 3"),
        (f"3 >= {whole}", f"not {whole} > 3"),
        (f"'ab' <> {text}", f"{text} != 'ab'"),
        (f"(nan) > ({COLUMN['double']})", f"{COLUMN['double']} < double('NaN')"),
        (f"{COLUMN['float']} is not nan", f"not isnan({COLUMN['float']})"),
        (f"{whole} <=> null", f"{whole} is null"),
        (f"not {whole} = 1 and {whole} = 2 or true", "true"),
    ):
        assert marks(mirrored) == marks(plain), mirrored


def test_thousands_of_conditions_are_no_deeper_than_one() -> None:
    whole = COLUMN["int"]
    many = " or ".join(f"{whole} = {each}" for each in range(3000))
    assert marks(many) == marks(f"{whole} in ({', '.join(map(str, range(3000)))})")


def test_a_text_stands_in_pyicebergs_expressions() -> None:
    name = COLUMN["int"]
    one, two = TextFilter(f"{name} >= 1"), EqualTo(name, 2)
    for expression, text in (
        (And(one, two), f"{name} >= 1 and {name} = 2"),
        (Or(Not(one), two), f"not {name} >= 1 or {name} = 2"),
        (~one, f"{name} < 1"),
    ):
        bound = RowFilter(expression, ROWS.schema)
        found = bound.passing(lambda field_id: TABLE.column(NAMES[field_id]).combine_chunks(), TABLE.num_rows)
        assert "".join("1" if each else "0" for each in found.to_pylist()) == marks(text).replace("n", "0")


def test_a_literal_of_32_bits_is_the_nearest_float() -> None:
    """The threat: rounded twice, to 64 bits and then to 32, it would be the neighbour."""
    low, high = (struct.unpack("<f", struct.pack("<I", bits))[0] for bits in (0x3F800000, 0x3F800001))
    middle = Decimal(low) + (Decimal(high) - Decimal(low)) / 2
    single = COLUMN["float"]
    schema, column = ROWS.schema, pa.array([low, high], pa.float32())
    for number, wanted in ((middle, [low]), (middle + Decimal("1e-25"), [high]), (middle - Decimal("1e-25"), [low])):
        assert Fraction(number) != Fraction(low)
        bound = RowFilter(TextFilter(f"{single} = {number:f}F"), schema)
        assert column.filter(bound.passing(lambda _: column, 2)).to_pylist() == wanted


def ranges_of(values: Sequence[Any]) -> Any:
    """What metadata would say of a column with these values."""
    from ags1.iceberg.scan._value_range import ValueRange

    known = [each for each in values if each is not None]
    return ValueRange(
        min(known, default=None), max(known, default=None), nulls=None in values, values=bool(known), nans=False
    )


def test_no_range_of_texts_excludes_a_row_that_passes() -> None:
    chance = random.Random(7)
    made = RandomText(chance, [("s", "string")])
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField, StringType

    schema = Schema(NestedField(1, "s", StringType()))
    skipped = 0
    for _ in range(600):
        text = made.filter()
        values = [chance.choice((*WORDS, None)) for _ in range(3)]
        bound = RowFilter(TextFilter(text), schema)
        column = pa.array(values, pa.large_string())
        truths = set(bound._root.evaluate(lambda _, of=column: of, 3).to_pylist())
        possible = bound.possible(lambda _, of=values: [ranges_of(of)])
        assert truths <= possible, (text, values)
        skipped += True not in possible
    assert skipped > 50
