"""Lines by range: each exactly once, wherever a file is cut."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from ags1.errors import AuthenticationError
from ags1.spark.source.decoders import Plain, lines
from ags1.spark.source.decoders.lines import chunks
from tests.checks import KEY, damage
from tests.spark.source_files import BLOCK, END, options, plain, rows, rows_cut_everywhere

VALUE = pa.schema([("value", pa.string())])


def lines_of(data: bytes, separator: bytes) -> list[bytes]:
    """What lines are, said another way."""
    if not separator:
        return data.splitlines()
    found = data.split(separator)
    return found[:-1] if found[-1] == b"" else found


@pytest.mark.parametrize(
    ("alphabet", "separator"),
    [(b"a\n", b""), (b"ab\r\n", b""), (b"a\r\n", b"\n"), (b"a|;", b"|;"), (b"ax", b"x"), (b"abc", b"abc")],
)
def test_ranges_have_every_line_once_wherever_they_are_cut(
    alphabet: bytes, separator: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So small that every way to look further for the end of a line is gone.
    monkeypatch.setattr(lines, "_STEP", 7)
    numbers = random.Random(1)
    for _ in range(25):
        data = bytes(numbers.choices(alphabet, k=numbers.randrange(40)))
        reader = plain(data).source
        wanted = lines_of(data, separator)
        for cut in range(len(data) + 2):
            for step in (1, 5, 100):
                found: list[bytes] = []
                for start, end in ((0, cut), (cut, END)):
                    for chunk in chunks(reader, start, end, separator, step):
                        found += [line.encode() for line in chunk.to_pylist()]
                assert found == wanted, (data, separator, cut, step)


def test_many_cuts_have_every_line_once() -> None:
    data = b"".join(b"%d\r\n" % (number**5) for number in range(400))
    file = plain(data)
    numbers = random.Random(2)
    for _ in range(20):
        cuts = [0, *sorted(numbers.randrange(len(data)) for _ in range(6)), END]
        assert [row["value"] for row in rows(file, options(decode="text"), VALUE, cuts)] == data.decode().split()


def test_a_line_longer_than_a_batch_is_whole() -> None:
    data = b"a\n" + b"x" * 1000 + b"\nb"
    found = rows_cut_everywhere(data, options(decode="text", batch_bytes=16), VALUE, step=13)
    assert [row["value"] for row in found] == ["a", "x" * 1000, "b"]


def test_bytes_that_are_no_text_are_replaced_and_a_mark_at_the_start_is_left_out() -> None:
    found = rows_cut_everywhere("\ufeffä\n".encode() + b"\xff\n", options(decode="text"), VALUE)
    assert found == [{"value": "ä"}, {"value": "\ufffd"}]


def test_a_whole_file_is_one_row() -> None:
    chosen = options(decode="text", wholetext=True)
    assert rows_cut_everywhere(b"a\nb", chosen, VALUE) == [{"value": "a\nb"}]
    assert rows_cut_everywhere(b"", chosen, VALUE) == [{"value": ""}]


@pytest.mark.parametrize("decode", ["text", "binary"])
def test_an_empty_file_of_another_key_is_not_authentic(decode: str) -> None:
    import ags1

    reader = ags1.open(ags1.encrypt(b"", KEY), key=bytes(32))
    schema = pa.schema(
        [("content" if decode == "binary" else "value", pa.binary() if decode == "binary" else pa.string())]
    )
    with pytest.raises(AuthenticationError):
        rows(Plain("file", "file", reader), options(decode=decode), schema, [0, END])


def test_a_damaged_block_is_an_error() -> None:
    import ags1

    data = b'{"value": "' + b"x" * 200 + b'"}\n'
    stream = damage(ags1.encrypt(data, KEY, block_length=BLOCK), BLOCK, 2)
    file = Plain("file", "file", ags1.open(stream, key=KEY))
    with pytest.raises(AuthenticationError, match="block 2 failed authentication"):
        rows(file, options(decode="text"), VALUE, [0, END])


def test_compressed_text_is_not_taken_for_text() -> None:
    from ags1.errors import FormatError

    chosen = options(decode="text")
    with pytest.raises(FormatError, match=r"a\.json\.zst is compressed.*only gzip is read.*exclude=\*\.zst"):
        rows(plain(b"", name="a.json.zst"), chosen, VALUE, [0, END])
    with pytest.raises(FormatError, match=r"exclude=\*\.bz2\.ags1"):
        rows(plain(b"", name="a.csv.bz2.ags1"), chosen, VALUE, [0, END])
