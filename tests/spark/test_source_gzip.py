"""gzip text in the data source: the same rows as of plain text, in bounded memory, and clear errors."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ags1
from ags1.errors import AuthenticationError, FormatError, LimitError, TruncatedError
from ags1.spark.source.decoders import Plain, decoder_for
from ags1.spark.source.decoders.text import Gunzip
from ags1.spark.source.inputs import END, ListedFiles, plan
from tests.checks import KEY, damage
from tests.spark.source_files import BLOCK, options, plain, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIB = 1 << 20
VALUE = pa.schema([("value", pa.string())])
LINES = b'\xef\xbb\xbf{"id":1,"name":"one"}\r\n\n{"id":2,\n{"id":"x","name":"three"}\r{"id":4,"name":"\xc3\xa9"}'


def packed(data: bytes, name: str = "a.gz", block_length: int = BLOCK) -> Plain:
    return plain(gzip.compress(data), block_length, name)


def members(data: bytes, length: int) -> bytes:
    return b"".join(gzip.compress(data[start : start + length]) for start in range(0, len(data), length))


def read_all(data: bytes, size: int = 1 << 16) -> bytes:
    stream = Gunzip(plain(data, 1 << 20).source, "a.gz")
    return b"".join(iter(lambda: stream.read(size), b""))


# -- the same rows ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_bytes", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize(
    ("data", "schema", "given"),
    [
        (LINES, VALUE, {"decode": "text"}),
        (LINES, VALUE, {"decode": "text", "wholetext": True}),
        (b"a||b|||c||", VALUE, {"decode": "text", "lineSep": "||"}),
        (b"", VALUE, {"decode": "text"}),
        (b"\n\r\n\r", VALUE, {"decode": "text"}),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_rows_are_those_of_the_plain_file(data: bytes, schema: pa.Schema, given: Any, batch_bytes: int) -> None:
    chosen = options(batch_bytes=batch_bytes, **given)
    wanted = rows(plain(data), chosen, schema, [0, END])
    assert rows(packed(data), chosen, schema, [0, END]) == wanted
    assert rows(packed(data, "B.GZ.ags1"), chosen, schema, [0, 10, END]) == wanted
    assert rows(plain(members(data, 5), name="a.gz"), chosen, schema, [0, END]) == wanted


def test_only_text_is_unpacked() -> None:
    schema = pa.schema([("content", pa.binary())])
    data = gzip.compress(b"text")
    assert b"".join(row["content"] for row in rows(packed(b"text"), options(), schema, [0, END])) == data


# -- splits ----------------------------------------------------------------------------------------------------------


def test_a_gzip_file_is_one_split() -> None:
    files = [ListedFiles(name, 0, 5 * MIB, 5 * MIB + 1000) for name in ("a.gz", "a.gz.ags1", "b.json")]
    splits = [each for task in plan(files, options(decode="text", split_bytes="1m")) for each in task]
    assert [(each.start, each.end) for each in splits if "gz" in each.file.name] == [(0, END)] * 2
    assert sum(each.file.name == "b.json" for each in splits) == 5


def test_bytes_of_a_gzip_file_are_cut_as_all_others() -> None:
    tasks = list(plan([ListedFiles("a.gz", 0, 5 * MIB, 5 * MIB + 1000)], options(split_bytes="1m")))
    assert len(tasks) == 5


# -- what gzip files can be --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 1 << 16])
def test_members_follow_each_other_and_zeros_the_last(size: int) -> None:
    data = bytes(range(256)) * 20
    assert read_all(members(data, 1000) + gzip.compress(b"") + bytes(70_000), size) == data
    assert read_all(b"", size) == b""


def test_many_empty_members_take_no_time_worth_speaking_of() -> None:
    assert read_all(gzip.compress(b"") * 100_000 + gzip.compress(b"x")) == b"x"


@pytest.mark.parametrize("size", [1, 1 << 16])
def test_a_file_that_was_cut_is_said_to_be(size: int) -> None:
    data = gzip.compress(bytes(range(256)) * 40)
    for length in [*range(1, 30), *range(len(data) - 20, len(data))]:
        with pytest.raises(TruncatedError, match=rf"a\.gz: the gzip file ends inside its data, after {length} bytes"):
            read_all(data[:length], size)
    with pytest.raises(TruncatedError):
        read_all(data + data[:-1], size)


def test_who_could_have_cut_a_file_is_said() -> None:
    stream = ags1.encrypt(gzip.compress(b"text")[:-4], KEY)
    for length, message in ((None, "or it was cut since"), (len(stream), "all that was encrypted is there")):
        with (
            ags1.open(stream, key=KEY, length=length) as reader,
            pytest.raises(TruncatedError, match=message),
        ):
            rows(Plain("a.gz", "a.gz", reader), options(decode="text"), VALUE, [0, END])


@pytest.mark.parametrize("position", [12, -6, -2])
def test_damaged_data_is_said_to_be(position: int) -> None:
    data = bytearray(gzip.compress(b"some text" * 9))
    data[position] ^= 0xFF
    with pytest.raises(FormatError, match=r"a\.gz: its gzip data is damaged near byte .*authentic"):
        read_all(bytes(data))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"id,name\n", r"a\.gz: this is no gzip file, though its name ends in \.gz: rename it"),
        (bytes(20), "this is no gzip file"),
        (gzip.compress(b"x", mtime=0) + b"\0rest", "what follows its gzip data is none"),
    ],
)
def test_what_is_no_gzip_is_said_to_be_none(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read_all(data)


def test_damage_of_the_encrypted_file_is_seen_before_that_of_gzip() -> None:
    stream = damage(ags1.encrypt(members(LINES * 20, 10), KEY, block_length=BLOCK), BLOCK, 2)
    file = Plain("a.gz", "a.gz", ags1.open(stream, key=KEY))
    with pytest.raises(AuthenticationError, match="block 2 failed authentication"):
        rows(file, options(decode="text"), VALUE, [0, END])


# -- bombs -----------------------------------------------------------------------------------------------------------


def bomb(unit: bytes, count: int) -> Plain:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    data = b"".join(packer.compress(unit) for _ in range(count)) + packer.flush()
    return plain(data, 1 << 20, "a.gz")


def peak(file: Plain, **given: Any) -> int:
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    most = 0
    try:
        for batch in decoder_for(options(**given)).read(file, 0, END, VALUE.names):
            del batch
            most = max(most, pa.total_allocated_bytes() - before)
        return most + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_text_that_unpacks_a_thousandfold_is_read_in_pieces() -> None:
    # 128 MiB of text.
    file = bomb((b"x" * 1023 + b"\n") * 1024, 128)
    assert file.source.size < MIB
    assert peak(file, decode="text", batch_bytes="1m") < 24 * MIB


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"decode": "text"}, r"a\.gz: from byte 0 of the unpacked text there is no line end .*max_unpacked_bytes"),
        ({"decode": "text"}, "max_unpacked_bytes is 8388608: raise it, or give the right lineSep"),
        ({"decode": "text", "wholetext": True}, r"a\.gz: it unpacks to more than 8388608 bytes.*raise it"),
    ],
)
def test_a_bomb_is_refused(given: dict[str, Any], message: str) -> None:
    file = bomb(b"x" * MIB, 128)
    tracemalloc.start()
    try:
        with pytest.raises(LimitError, match=message):
            rows(file, options(max_unpacked_bytes="8m", **given), VALUE, [0, END])
        assert tracemalloc.get_traced_memory()[1] < 80 * MIB
    finally:
        tracemalloc.stop()


def test_a_long_line_is_read_if_it_may_be() -> None:
    found = rows(
        bomb(b"x" * MIB, 3), options(decode="text", batch_bytes=1000, max_unpacked_bytes="3m"), VALUE, [0, END]
    )
    assert [len(row["value"]) for row in found] == [3 * MIB]


# -- with Spark ------------------------------------------------------------------------------------------------------


def test_what_the_writer_compresses_the_reader_reads(spark: SparkSession, kms_url: str, tmp_path: Path) -> None:
    ags1.spark.register(spark)  # type: ignore[attr-defined, unused-ignore]
    vault = str(tmp_path / "vault")
    frame = spark.range(0, 500, 1, 2).selectExpr("cast(id as string) as value")
    written = frame.write.format("ags1").mode("append").options(kms=kms_url, key_id="lake", decode="text")
    written.options(compression="gzip").save(vault)
    with ags1.dataset.open(vault, ags1.kms.load(kms_url)) as opened:
        assert all(each.path.endswith(".txt.gz") for each in opened.files)
    read = spark.read.format("ags1").options(kms=kms_url, decode="text").option("path_column", "path")
    # The smallest splits: a gzip file is not cut by them.
    found = sorted((int(row.value), row.path[-3:]) for row in read.option("split_bytes", "1m").load(vault).collect())
    assert found == [(number, ".gz") for number in range(500)]
