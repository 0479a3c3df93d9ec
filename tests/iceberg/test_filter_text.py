"""Row filters as text: PyIceberg's parser reads them, and what it would change is refused before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo, NotEqualTo, StartsWith
from pyiceberg.expressions.parser import parse

from ags1.iceberg import EncryptedTable, create_table
from ags1.iceberg.scan.row_filter import parsed
from ags1.kms import MemoryKms
from tests.checks import every
from tests.iceberg.keys import MASTER_KEYS
from tests.iceberg.random_values import WORDS


@pytest.fixture
def table(tmp_path: Path) -> EncryptedTable:
    rows = pa.table({"s": [*WORDS, None], "n": pa.array(range(len(WORDS) + 1), pa.int64())})
    made = create_table(None, str(tmp_path / "t"), rows.schema, kms=MemoryKms(MASTER_KEYS), key_id="keyA")
    made.append(rows)
    return made


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@every("word", [*WORDS, *map(chr, range(0x20)), "\x7f", "\x85", "\u2028", "\u3000", " a  b ", "%", "a\\%", "é"])
def test_a_text_in_quotes_is_taken_as_it_is_or_refused(word: str) -> None:
    """The threat: a TAB was read as spaces, and the row that had to be kept was deleted."""
    for text, wanted in (
        (f"s = {quoted(word)}", EqualTo("s", word)),
        (f"s != {quoted(word)}", NotEqualTo("s", word)),
        (f"s in ({quoted(word)})", EqualTo("s", word)),
        (f"'a' < \"s\" and s = {quoted(word)}", None),
    ):
        if any(each in word.replace("\\%", "") for each in "\t\r\n\\"):
            with pytest.raises(ValueError, match="Give an expression object instead"):
                parsed(text)
        else:
            assert parsed(text) == (parse(text) if wanted is None else wanted)


def test_like_takes_one_wildcard_at_the_end() -> None:
    assert parsed("s like 'a_b%'") == StartsWith("s", "a_b")
    assert parsed(r"s like 'a\%'") == EqualTo("s", "a%")
    with pytest.raises(ValueError, match="only supports wildcard"):
        parsed("s like '%a'")


def test_a_delete_keeps_each_text_that_an_expression_names(table: EncryptedTable) -> None:
    for word in ("a\tb", "line\nline", "ends in \\"):
        assert table.scan(row_filter=EqualTo("s", word)).to_arrow()["s"].to_pylist() == [word]
        table.delete(NotEqualTo("s", word))
        assert table.scan().to_arrow()["s"].to_pylist() == [word, None]
        table.overwrite(pa.table({"s": [*WORDS, None], "n": pa.array(range(len(WORDS) + 1), pa.int64())}))


REFUSED: list[tuple[Any, str]] = [
    ("", "PyIceberg's parser does not understand it"),
    ("n >", "does not understand it from 'n >' on"),
    ("n > 1; n < 5", "from '; n < 5' on"),
    ("n = 1 -- and s is null", "from '-- and s is null' on"),
    ("n = s", "does not understand it"),
    ("n + 1 = 5", "does not understand it"),
    ("lower(s) = 'a'", "does not understand it"),
    ("n in ()", "does not understand it"),
    ("n in (1, 2.5)", "does not understand it"),
    ("n = 1e5", "from 'e5' on"),
    ("n = null", "does not understand it"),
    ("true and n = 1", "does not understand it"),
    ("s like '%a'", "LIKE expressions only supports wildcard"),
    ("s = 'a\tb'", "does not take a tab, a line end or a backslash in \"'a\\tb'\" as it is"),
    ('"a\tb" = 1', "a tab, a line end or a backslash"),
    (r"s = 'it\'s'", "a tab, a line end or a backslash"),
    ("s = '\ud83d'", "surrogates not allowed"),
    (EqualTo("s", "\ud83d"), "surrogates not allowed"),
    ("n = 2.5", "column n is long, and cannot be compared with Decimal('2.5'): PyIceberg would change the value"),
    ("n = 99999999999999999999", "PyIceberg would change the value"),
    ("s = 1", "column s is string, and cannot be compared with 1: Cannot convert LongLiteral into string"),
    ("n like '1%'", "column n is long"),
    ("nowhere = 1", "Could not find field with name nowhere"),
    (5, "row_filter must be text or an expression of PyIceberg, not int"),
    (f"{'(n = 1 and ' * 2000}n = 1{')' * 2000}", "nested too deeply"),
]


def test_a_refused_filter_reads_and_writes_nothing(table: EncryptedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table.scan().to_arrow()

    def nothing(*_: Any, **__: Any) -> Any:
        raise AssertionError("read or written before the filter was refused")

    from ags1.iceberg.files.file_io import EncryptedFileIO

    with monkeypatch.context() as patched:
        patched.setattr(EncryptedFileIO, "new_output", nothing)
        patched.setattr(EncryptedFileIO, "new_input", nothing)

        @every("case", REFUSED)
        def refused(case: tuple[Any, str]) -> None:
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


def test_thousands_of_conditions_are_no_deeper_than_one(table: EncryptedTable) -> None:
    many = " or ".join(f"n = {each}" for each in range(1000))
    assert table.scan(row_filter=many).count() == len(WORDS) + 1
