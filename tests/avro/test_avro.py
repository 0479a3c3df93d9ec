"""ags1.avro: splits that tile a file give every row exactly once, and damaged containers are refused."""

from __future__ import annotations

import importlib
import io
import itertools
import os
import random
import sys
import tracemalloc
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
import pytest

import ags1
from ags1 import avro
from ags1.avro import check_schema
from ags1.avro.codecs import decompressor
from ags1.errors import FormatError
from tests import checks
from tests.checks import KEY, MIB, PREFIX, CountingFile
from tests.iceberg.avro_lake import avro_bytes

SCHEMA = {
    "type": "record",
    "name": "row",
    "fields": [{"name": "number", "type": "long"}, {"name": "text", "type": "string"}],
}
CODECS = ("null", "deflate", "bzip2", "xz", "snappy", "zstandard")
FOREVER = 1 << 60


def rows_of(count: int) -> list[dict[str, Any]]:
    return [{"number": number, "text": "x" * (number * 7 % 23)} for number in range(count)]


@cache
def container(count: int, codec: str = "null", interval: int = 50) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, SCHEMA, rows_of(count), codec=codec, sync_interval=interval)
    return file.getvalue()


def markers_of(data: bytes) -> list[int]:
    """Where the markers start."""
    marker = avro.read_header(io.BytesIO(data)).marker
    found = [data.find(marker)]
    while (following := data.find(marker, found[-1] + 1)) >= 0:
        found.append(following)
    return found


def read_in_splits(data: bytes, cuts: Iterable[int]) -> list[dict[str, Any]]:
    """The rows of all ranges between the cuts, from 0 to beyond the end."""
    edges = [0, *cuts, len(data) + 1000]
    file = io.BytesIO(data)
    return [row for start, end in itertools.pairwise(edges) for row in avro.read_split(file, start, end)]


# -- every row exactly once ----------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["null", "deflate"])
@pytest.mark.parametrize("count", [0, 1, 40, 60])
def test_every_single_cut_gives_each_row_once(count: int, codec: str) -> None:
    data = container(count, codec)
    assert len(markers_of(data)) > count // 5, "a file of several blocks"
    for cut in range(len(data) + 20):
        assert read_in_splits(data, [cut]) == rows_of(count), cut


@pytest.mark.parametrize("codec", ["null", "deflate"])
@pytest.mark.parametrize("count", [0, 1, 40, 60])
def test_every_step_gives_each_row_once(count: int, codec: str) -> None:
    data = container(count, codec)
    for step in range(1, 32):
        assert read_in_splits(data, range(step, len(data), step)) == rows_of(count), step


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_random_cuts_give_each_row_once(codec: str) -> None:
    data = container(60, codec)
    choose = random.Random(7)
    for _ in range(300):
        cuts = sorted(choose.choices(range(len(data) + 50), k=choose.randint(1, 7)))
        assert read_in_splits(data, cuts) == rows_of(60), cuts


@pytest.mark.parametrize("count", [0, 1, 40, 60])
def test_cuts_at_and_around_each_marker(count: int) -> None:
    data = container(count)
    for marker in markers_of(data):
        for first, second in itertools.combinations(range(max(0, marker - 2), marker + 19), 2):
            assert read_in_splits(data, [first, second]) == rows_of(count), (marker, first, second)


def test_a_block_belongs_to_the_split_in_which_the_marker_in_front_of_it_starts() -> None:
    data = container(40)
    blocks = list(avro.iter_blocks(io.BytesIO(data), 0, len(data)))
    markers = markers_of(data)
    assert [block.offset for block in blocks] == [marker + 16 for marker in markers[:-1]]
    assert sum(block.count for block in blocks) == 40
    for marker, block in zip(markers[:-1], blocks, strict=True):
        for start, end, belongs in (
            (marker, marker + 1, True),
            (marker - 1, marker, False),
            (marker + 1, marker + 16, False),
            (marker + 15, marker + 17, False),
        ):
            found = list(avro.iter_blocks(io.BytesIO(data), start, end))
            assert found == ([block] if belongs else []), (start, end)


def test_the_first_block_belongs_to_the_headers_marker_and_not_to_the_headers_end() -> None:
    data = container(40)
    header = avro.read_header(io.BytesIO(data))
    # A cut inside the header's marker: whoever compares with the header's end reads the first block twice.
    for cut in range(header.length - 16, header.length + 1):
        assert read_in_splits(data, [cut]) == rows_of(40), cut


@pytest.mark.parametrize("block_length", [1, 16, 64, 100])
def test_k_splits_over_ags1_give_each_row_once(block_length: int) -> None:
    data = container(200, "deflate")
    stream = ags1.encrypt(data, KEY, aad_prefix=PREFIX, block_length=block_length)
    with ags1.open(stream, key=KEY, aad_prefix=PREFIX) as reader:
        for k in range(1, 21):
            # As Iceberg plans: over the encrypted length, which is longer than the plaintext.
            size = -(-len(stream) // k)
            ranges = [(start, start + size) for start in range(0, len(stream), size)]
            assert [row for part in ranges for row in avro.read_split(reader, *part)] == rows_of(200), k
            ranges = avro.splits(reader.size, -(-reader.size // k), block_length)
            assert [row for part in ranges for row in avro.read_split(reader, *part)] == rows_of(200), k


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_of_the_specification(codec: str) -> None:
    # fastavro writes Zstandard only with a further package.
    data = avro_bytes(SCHEMA, rows_of(60), codec) if codec == "zstandard" else container(60, codec)
    assert read_in_splits(data, range(37, len(data), 37)) == rows_of(60)


def test_an_unknown_codec_is_named() -> None:
    data = container(60).replace(b"\x08null", b"\x08nope", 1)
    with pytest.raises(ags1.errors.UnsupportedError, match="codec 'nope' is not supported"):
        next(avro.read_split(io.BytesIO(data), 0, FOREVER))


def test_a_long_file_and_threads_of_ranges(tmp_path: Path) -> None:
    rows = [{"number": number, "text": str(number) * 3} for number in range(50_000)]
    path = tmp_path / "long.avro"
    with ags1.open(path, "wb", key=KEY, block_length=64 << 10) as writer:
        fastavro.writer(writer, SCHEMA, rows, codec="deflate")
    with ags1.open(path, key=KEY) as reader:
        for split_size in (64 << 10, 100_003, MIB - 1):
            parts = avro.splits(reader.size, split_size, reader.block_length)
            assert [row for part in parts for row in avro.read_split(reader, *part)] == rows


# -- ranges --------------------------------------------------------------------------------------------------


def test_a_range_behind_the_end_is_empty_and_reads_nothing() -> None:
    data = container(60)
    file = CountingFile(data)
    for start, end in ((len(data), len(data) + 1), (FOREVER, FOREVER), (len(data) + 5, FOREVER)):
        assert list(avro.read_split(file, start, end)) == []
        assert list(avro.iter_blocks(file, start, end)) == []
    assert file.reads == []


def test_an_empty_range_is_empty() -> None:
    data = container(60)
    for offset in (0, *markers_of(data), 500):
        assert list(avro.read_split(io.BytesIO(data), offset, offset)) == []


@pytest.mark.parametrize("function", [avro.read_split, avro.iter_blocks])
def test_ranges_that_are_none_are_refused_at_once(function: Any) -> None:
    with pytest.raises(ValueError, match="start must not be negative, got -1"):
        function(io.BytesIO(container(1)), -1, 5)
    with pytest.raises(ValueError, match="end must not be below start, got 7 and 5"):
        function(io.BytesIO(container(1)), 7, 5)


def test_splits_tile_the_plaintext_on_block_boundaries() -> None:
    assert avro.splits(1000, 256, 64) == [(0, 256), (256, 512), (512, 768), (768, 1000)]
    assert avro.splits(0, 256) == [(0, 0)]
    assert avro.splits(10, 1, 64) == [(0, 10)]
    with pytest.raises(ValueError, match="split_size must be at least 1"):
        avro.splits(10, 0)


def test_a_split_reads_little_more_than_its_range() -> None:
    data = container(5000, "null", interval=500)
    file = CountingFile(data)
    start, end = len(data) // 2, len(data) // 2 + 5000
    assert list(avro.read_split(file, start, end))
    header = avro.read_header(io.BytesIO(data)).length
    assert max(offset + size for offset, size in file.reads) < end + 1000
    assert all(offset + size <= header + 32 or offset >= start for offset, size in file.reads)


def test_the_caller_may_move_the_file_between_rows() -> None:
    file = io.BytesIO(container(60))
    rows = []
    for row in avro.read_split(file, 0, FOREVER):
        rows.append(row)
        file.seek(len(rows))
    assert rows == rows_of(60)


@pytest.mark.parametrize("most", [1, 7])
def test_files_with_short_reads(most: int) -> None:
    assert list(avro.read_split(checks.ShortReads(container(60), most), 0, FOREVER)) == rows_of(60)


def test_rows_are_read_as_another_schema() -> None:
    only = {"type": "record", "name": "row", "fields": [{"name": "number", "type": "long"}]}
    rows = avro.read_split(io.BytesIO(container(3)), 0, FOREVER, reader_schema=only)
    assert list(rows) == [{"number": 0}, {"number": 1}, {"number": 2}]


def test_without_fastavro_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ImportError, match=r"pip install 'ags1\[avro\]'"):
        next(avro.read_split(io.BytesIO(container(1)), 0, 1))


def test_fastavro_is_imported_when_it_is_used() -> None:
    checks.run_python("import sys, ags1.avro; assert 'fastavro' not in sys.modules")


# -- containers that are not what they should be -------------------------------------------------------------


def number(value: int) -> bytes:
    """Avro's long."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def text(value: bytes) -> bytes:
    return number(len(value)) + value


MARKER = bytes(range(100, 116))
ENTRIES = text(b"avro.schema") + text(b'"long"')


def built(header: bytes = number(1) + ENTRIES + number(0), blocks: bytes = b"") -> bytes:
    return b"Obj\x01" + header + MARKER + blocks


def block(*numbers: int) -> bytes:
    body = b"".join(map(number, numbers))
    return number(len(numbers)) + number(len(body)) + body + MARKER


def read(data: bytes, start: int = 0, end: int = FOREVER) -> list[Any]:
    return list(avro.read_split(io.BytesIO(data), start, end))


def test_a_metadata_map_in_several_blocks_and_with_byte_lengths() -> None:
    more = text(b"mine") + text(b"value")
    header = number(-1) + number(len(ENTRIES)) + ENTRIES + number(1) + more + number(0)
    data = built(header, block(1, 2) + block(3))
    found = avro.read_header(io.BytesIO(data))
    assert found.metadata == {"avro.schema": b'"long"', "mine": b"value"}
    assert (found.marker, found.length) == (MARKER, len(built(header)))
    for cut in range(len(data)):
        assert read(data, 0, cut) + read(data, cut) == [1, 2, 3]


def test_blocks_without_rows_are_no_end() -> None:
    data = built(blocks=block() + block(1) + block() + block(2))
    for cut in range(len(data)):
        assert read(data, 0, cut) + read(data, cut) == [1, 2]


def test_every_truncation_is_noticed_or_ends_behind_a_block() -> None:
    data = built(blocks=block(1, 2) + block(3) + block(4, 5, 6))
    ends = [marker + 16 for marker in markers_of(data)]
    rows = dict(zip(ends, ([], [1, 2], [1, 2, 3], [1, 2, 3, 4, 5, 6]), strict=True))
    for length in range(len(data)):
        if length in rows:
            assert read(data[:length]) == rows[length]
            continue
        with pytest.raises(ags1.TruncatedError, match=r"only|needs"):
            read(data[:length])


def test_every_truncation_of_the_stream_is_noticed_with_its_length() -> None:
    stream = ags1.encrypt(container(60), KEY, aad_prefix=PREFIX, block_length=16)
    for length in range(0, len(stream), 11):
        with pytest.raises(ags1.TruncatedError, match=r"missing|only"):
            ags1.open(stream[:length], key=KEY, aad_prefix=PREFIX, length=len(stream))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PAR1" + bytes(50), "not an Avro container: it starts with 50 41 52 31"),
        (b"Obj\x02" + bytes(50), "not an Avro container: it starts with 4f 62 6a 02"),
        (
            built(number(1) + number(-5) + bytes(9)),
            r"metadata key of the Avro header at offset 4 has a negative",
        ),
        (
            built(b"\xff" * 30),
            "count of metadata entries of the Avro header at offset 4 is a number of more than 64",
        ),
        (built(number(1) + text(b"mine") + text(b"") + number(0)), "the Avro header has no schema"),
        (built(blocks=number(-3) + number(1) + b"1" + MARKER), "negative count of rows"),
        (built(blocks=number(1) + number(-1) + b"1" + MARKER), "impossible length of -1 bytes"),
        (built(blocks=number(1) + number(1 << 31) + b"1" + MARKER), "impossible length of 2147483648 bytes"),
        (
            built(blocks=b"\xff" * 30),
            "count of rows of the Avro block at offset 41 is a number of more than 64 bits",
        ),
    ],
)
def test_damage_is_named(data: bytes, message: str) -> None:
    with pytest.raises(ags1.FormatError, match=message):
        read(data)


def test_a_wrong_marker_behind_a_block_is_named_with_its_offset() -> None:
    data = built(blocks=block(1, 2) + block(3) + block(4))
    second = markers_of(data)[1]
    for position in range(second, second + 16):
        rows = avro.read_split(io.BytesIO(checks.flip(data, position)), 0, FOREVER)
        with pytest.raises(
            ags1.FormatError, match=f"bytes at offset {second}, behind the Avro block at offset {second - 4}"
        ):
            next(rows)


def test_the_name_of_the_file_is_in_the_message(tmp_path: Path) -> None:
    path = tmp_path / "broken.avro"
    path.write_bytes(b"nothing of the sort")
    with (
        open(path, "rb") as file,
        pytest.raises(ags1.FormatError, match=r"broken\.avro: not an Avro container"),
    ):
        avro.read_header(file)


@pytest.mark.parametrize("where", ["key", "value", "block", "entries"])
@pytest.mark.parametrize("claimed", [100 * MIB, 1 << 30, (1 << 31) - 1, 1 << 62])
def test_hostile_lengths_take_no_memory(where: str, claimed: int) -> None:
    data = {
        "key": built(number(1) + number(claimed)),
        "value": built(number(1) + text(b"avro.schema") + number(claimed)),
        "entries": built(number(claimed) + ENTRIES),
        "block": built(blocks=number(1) + number(claimed)),
    }[where] + bytes(1000)
    tracemalloc.start()
    try:
        with pytest.raises(ags1.FormatError, match=r"bytes|bits|entries"):
            read(data)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


def test_a_header_of_absurd_size_is_refused_although_the_file_has_it(tmp_path: Path) -> None:
    path = tmp_path / "sparse.avro"
    path.write_bytes(b"Obj\x01" + number(1) + number(1 << 30))
    os.truncate(path, 2 << 30)
    with (
        open(path, "rb") as file,
        pytest.raises(ags1.FormatError, match="impossible length of 1073741824 bytes"),
    ):
        avro.read_header(file)


def test_a_marker_inside_the_data_is_not_taken_for_a_block_silently() -> None:
    # Whoever writes a file may put its marker into the rows. A split that starts there fails.
    inside = b"##" + MARKER + b"\x02\x02\x02 and so on"
    body = number(7) + text(inside)
    schema = text(b'{"type":"record","name":"r","fields":[{"name":"n","type":"long"},{"name":"b","type":"bytes"}]}')
    header = number(1) + text(b"avro.schema") + schema + number(0)
    stored = number(1) + number(len(body)) + body + MARKER
    data = built(header, stored + stored)
    assert read(data) == 2 * [{"n": 7, "b": inside}], "no trouble from a block's start"
    planted = [marker for marker in markers_of(data) if data[marker - 2 : marker] == b"##"]
    assert len(planted) == 2
    for marker in planted:
        with pytest.raises(ags1.FormatError, match=r"only look like its marker|truncated or damaged"):
            read(data, marker - 1)


@pytest.mark.parametrize("module", ["bz2", "lzma"])
def test_blocks_of_several_streams_are_read_whole(module: str) -> None:
    library = importlib.import_module(module)
    codec = {"bz2": "bzip2", "lzma": "xz"}[module]
    draw = random.Random(10)
    for _ in range(30):
        parts = [draw.randbytes(draw.randrange(200)) for _ in range(draw.randrange(1, 6))]
        padding = bytes(4 * draw.randrange(3)) if codec == "xz" else b""
        assert decompressor(codec)(padding.join(map(library.compress, parts))) == b"".join(parts)
    with pytest.raises((FormatError, OSError, library.LZMAError if codec == "xz" else OSError)):
        decompressor(codec)(library.compress(b"a") + library.compress(b"b" * 99)[:-9])


def _record(name: str, *types: Any, **named: str) -> dict[str, Any]:
    fields = [{"name": f"f{place}", "type": kind} for place, kind in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields, **named}


@checks.every(
    "schema",
    [
        _record("R", _record("R", "long", namespace="y"), namespace="x"),
        _record("x.R", _record("y.R", "long"), "y.R"),
        _record("R", _record("R", "long", namespace="y"), _record("S", "R", namespace="y"), namespace="x"),
    ],
)
def test_types_of_one_name_in_two_namespaces_are_two_types(schema: Any) -> None:
    check_schema(schema)
    fastavro.parse_schema(schema)


@checks.every(
    "schema",
    [
        _record("R", ["null", "R"]),
        _record("R", "R", namespace="x"),
        _record("x.R", "x.R"),
        _record("x.R", "R"),
        _record("R", _record("S", "R"), namespace="x"),
        _record("R", _record("y.S", "R")),
        _record("R", _record("S", "x.R", namespace="y"), namespace="x"),
        _record("R", {"type": "array", "items": _record("y.S", ["null", "y.S"])}),
    ],
)
def test_a_record_inside_itself_is_refused_in_any_namespace(schema: Any) -> None:
    with pytest.raises(FormatError, match="a record inside itself"):
        check_schema(schema)
