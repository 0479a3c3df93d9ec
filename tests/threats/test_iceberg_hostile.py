"""Plaintext files of tables whose few bytes become gigabytes, or endless work: no key is needed to put them there."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow
import pyarrow.parquet
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyroaring import BitMap64

from ags1.avro import read_split
from ags1.avro.codecs import largest_plain
from ags1.errors import FormatError, UnsupportedError
from ags1.iceberg.deletes import DeletionVector
from ags1.iceberg.metadata.manifests import read_entries, read_list, readable
from ags1.iceberg.metadata.metadata_document import Document
from ags1.iceberg.scan.deletion_vectors import (
    deleted_positions,
    footer_contradictions,
    read_position_deletes,
)
from ags1.support.avro_encoding import container_start, encoded_block
from tests import peak_memory
from tests.checks import every, in_child
from tests.iceberg.avro_lake import Lake, avro_bytes, record

MARKER = bytes(range(16))
MIB = 1 << 20
# What is decompressed before a bomb is noticed is there twice for a moment, and so are the pieces of it.
ALLOWED = 256 * MIB
BOMB = 512 * MIB
IDS = record((1, "id", "long"))
WANTED = Schema(NestedField(1, "id", LongType(), required=False))


def zeros_deflated(length: int, wbits: int = -15) -> bytes:
    packer = zlib.compressobj(9, wbits=wbits)
    return b"".join(packer.compress(bytes(MIB)) for _ in range(length // MIB)) + packer.flush()


def zeros_zstandard(length: int) -> bytes:
    out = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(out, "zstd") as stream:
        for _ in range(length // MIB):
            stream.write(bytes(MIB))
    return out.getvalue().to_pybytes()


def zeros_by(packer: Any, length: int) -> bytes:
    return b"".join(packer.compress(bytes(MIB)) for _ in range(length // MIB)) + packer.flush()


BOMBS: dict[str, Callable[[], bytes]] = {
    "deflate": lambda: zeros_deflated(BOMB),
    "zstandard": lambda: zeros_zstandard(BOMB),
    "bzip2": lambda: zeros_by(bz2.BZ2Compressor(), BOMB // 4),
    "xz": lambda: zeros_by(lzma.LZMACompressor(preset=1), BOMB // 4),
}


def container(codec: str, *blocks: tuple[int, bytes], schema: Any = IDS) -> bytes:
    header = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}
    return container_start(header, MARKER) + b"".join(encoded_block(*each, MARKER) for each in blocks)


def peak_of(work: Callable[[], object]) -> int:
    """How far the memory of a child rises that does the work, in bytes."""

    def measured() -> bytes:
        before = peak_memory.begin()
        work()
        return str(peak_memory.grown(before)).encode()

    return int(in_child(measured))


@every("codec", BOMBS)
def test_blocks_that_become_gigabytes_are_refused_before_the_memory_is_taken(codec: str, tmp_path: Path) -> None:
    data = container(codec, (1000, BOMBS[codec]()))
    lake = Lake(tmp_path)
    lake.write_bytes(data)
    reads: list[Callable[[], object]] = [
        lambda: list(read_split(io.BytesIO(data), 0, len(data))),
        lambda: list(read_entries(data, {})),
        lambda: read_list(data),
        lambda: lake.read(WANTED),
    ]

    def work() -> None:
        for read in reads:
            with pytest.raises(UnsupportedError, match=r"which is the limit: .* write it again"):
                read()

    assert peak_of(work) < ALLOWED


def test_a_snappy_block_cannot_lie_about_its_length() -> None:
    packed = pyarrow.Codec("snappy").compress(bytes(64 * MIB), asbytes=True)
    data = container("snappy", (1000, packed + bytes(4)))
    assert largest_plain(len(packed)) > 64 * MIB
    with pytest.raises(FormatError, match="checksum"):
        list(read_entries(data, {}))
    data = container("snappy", (1000, b"\xff\xff\xff\xff\x07" + packed))
    with pytest.raises(FormatError):
        list(read_entries(data, {}))


def test_a_manifest_of_many_small_bombs_is_refused() -> None:
    block = zeros_deflated(8 * MIB)
    data = container("deflate", *[(1000, block)] * 64)

    def work() -> None:
        with pytest.raises(UnsupportedError, match="which no manifest does"):
            readable(data)

    assert peak_of(work) < ALLOWED


def test_a_row_of_many_megabytes_is_read() -> None:
    row = {"id": 1, "b": bytes(32 * MIB - 5)}
    data = avro_bytes(record((1, "id", "long"), (2, "b", "bytes")), [row], "deflate")
    assert list(read_split(io.BytesIO(data), 0, len(data))) == [row]


@every("schema", [record(), record((1, "id", "null")), record((1, "r", {**record((2, "n", "null")), "name": "r"}))])
@pytest.mark.parametrize("count", [1, 1 << 61])
def test_rows_without_bytes_are_refused(schema: Any, count: int, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    data = container("null", (count, b""), schema=schema)
    lake.write_bytes(data)
    with pytest.raises(FormatError, match=r"data\.avro: .*rows without bytes are not read|no field ids"):
        lake.read(WANTED)
    with pytest.raises(FormatError):
        list(read_entries(data, {}))
    with pytest.raises(FormatError, match="rows without bytes are not read"):
        list(read_split(io.BytesIO(data), 0, len(data)))


def test_a_byte_is_not_many_values_in_memory() -> None:
    wide = record(*((each, f"c{each}", "null") for each in range(200)), (999, "id", "int"))
    for schema in (wide, record((1, "a", {"type": "array", "items": {**wide, "name": "item"}}))):
        data = container("null", (1000, bytes(1000)), schema=schema)
        with pytest.raises(FormatError, match="values without bytes in"):
            list(read_split(io.BytesIO(data), 0, len(data)))


def test_wide_rows_with_values_of_their_own_are_read() -> None:
    optional = record(*((each, f"c{each}", ["null", "int"]) for each in range(500)))
    unknown = record(*((each, f"c{each}", "null") for each in range(90)), (999, "id", "int"))
    nested = record((1, "a", {"type": "array", "items": {**optional, "name": "item"}}))
    for schema, row in (
        (optional, {f"c{each}": each for each in range(500)}),
        (unknown, {"id": 5}),
        (nested, {"a": []}),
    ):
        data = avro_bytes(schema, [row] * 3)
        assert len(list(read_split(io.BytesIO(data), 0, len(data)))) == 3


def test_a_header_of_millions_of_entries_is_refused() -> None:
    for entries in (b"\xfe\xff\xff\x07" + bytes(8 * MIB), b"\x02\0\0" * (4 * MIB), b"\x01\0\0\0" * (2 * MIB)):
        data = b"Obj\x01" + entries + b"\0" + MARKER
        with pytest.raises(FormatError, match="more than 10,000 entries"):
            list(read_split(io.BytesIO(data), 0, len(data)))


LISTED = record((500, "manifest_path", "string"), (501, "manifest_length", "long"), (502, "partition_spec_id", "int"))


def test_a_manifest_that_is_listed_twice_is_refused() -> None:
    """The threat: a list of kilobytes, by which one manifest is read a million times."""
    row = {"manifest_path": "m.avro", "manifest_length": 5, "partition_spec_id": 0}
    assert len(read_list(avro_bytes(LISTED, [row, {**row, "manifest_path": "n.avro"}]))) == 2
    with pytest.raises(FormatError, match=r"has the manifest m\.avro twice"):
        read_list(avro_bytes(LISTED, [row] * 1000, "deflate"))


def test_entries_without_names_have_an_end() -> None:
    file = record((100, "file_path", "string"), (101, "file_format", "string"), (103, "record_count", "long"))
    schema = record((0, "status", "int"), (2, "data_file", {**file, "name": "f"}))
    packed = zeros_deflated(32 * MIB)
    data = container("deflate", (8 * MIB, packed), schema=schema)
    with pytest.raises(FormatError, match="entries, which its bytes cannot have the names for"):
        list(read_entries(data, {}))


def test_a_manifest_of_many_files_is_read() -> None:
    file = record((100, "file_path", "string"), (101, "file_format", "string"), (103, "record_count", "long"))
    schema = record((0, "status", "int"), (2, "data_file", {**file, "name": "f"}))
    rows = [
        {"status": 1, "data_file": {"file_path": f"s3://lake/db/t/data/{each:09d}.parquet", "file_format": "PARQUET",
                                    "record_count": 1000}}
        for each in range(80_000)
    ]  # fmt: skip
    for codec in ("deflate", "zstandard"):
        assert sum(1 for _ in read_entries(avro_bytes(schema, rows, codec), {})) == len(rows)


def test_compressed_metadata_that_becomes_gigabytes_is_refused() -> None:
    data = gzip.compress(b'{"a":"') + zeros_deflated(BOMB, 31) + gzip.compress(b'"}')

    def work() -> None:
        with pytest.raises(FormatError, match=r"when it is decompressed is refused: .* without gzip"):
            Document(data)

    assert peak_of(work) < ALLOWED
    assert Document(gzip.compress(json.dumps({"a": "b" * (20 * MIB)}).encode())).fields["a"][-1] == "b"


# -- position deletes --------------------------------------------------------------------------------------------------


def position_deletes(path: Path, groups: int, positions: list[int], names: list[Any], kind: Any = "string") -> None:
    table = pyarrow.table({"file_path": pyarrow.array(names, kind), "pos": pyarrow.array(positions, "int64")})
    with pyarrow.parquet.ParquetWriter(path, table.schema, write_statistics=False) as writer:
        for _ in range(groups):
            writer.write_table(table)


def test_millions_of_deletes_that_are_alike_are_refused_before_the_memory_is_taken(tmp_path: Path) -> None:
    rows = 1 << 20
    path = tmp_path / "deletes.parquet"
    position_deletes(path, 18, [7] * rows, ["s3://lake/" + "x" * 90] * rows)
    assert path.stat().st_size < 100_000

    def work() -> None:
        with path.open("rb") as file, pytest.raises(UnsupportedError, match="18,874,368 deleted positions"):
            read_position_deletes(file, "parquet")

    assert peak_of(work) < ALLOWED // 2


def test_paths_are_read_whatever_their_type(tmp_path: Path) -> None:
    path = tmp_path / "deletes.parquet"
    for kind in ("string", "large_string", "binary"):
        for groups, positions in ((0, []), (1, []), (3, [5, 7])):
            position_deletes(path, groups, positions, ["a", "b"][: len(positions)], kind)
            with path.open("rb") as file:
                found = read_position_deletes(file, "parquet")
            expected = {"a": [5] * 3, "b": [7] * 3} if positions else {}
            assert {name: each.to_pylist() for name, each in found.items()} == expected
    position_deletes(path, 1, [5, 7], ["a", None])
    with path.open("rb") as file, pytest.raises(FormatError, match="no path of a data file"):
        read_position_deletes(file, "parquet")


def test_paths_of_many_deletes_are_kept_once(tmp_path: Path) -> None:
    rows = 1 << 20
    names = [f"s3://lake/{'x' * 180}/{each}" for each in range(4)]
    path = tmp_path / "deletes.parquet"
    position_deletes(path, 2, list(range(rows)), [names[each % 4] for each in range(rows)])

    def work() -> None:
        with path.open("rb") as file:
            found = read_position_deletes(file, "parquet")
        for number, name in enumerate(names):
            assert found[name].to_pylist() == 2 * list(range(number, rows, 4))

    assert peak_of(work) < ALLOWED


# -- deletion vectors --------------------------------------------------------------------------------------------------


def full_bitmaps(number: int) -> bytes:
    """Bitmaps of 2^32 positions each, in runs."""
    count = 1 << 16
    bitmap = struct.pack("<I", 12347 | (count - 1) << 16) + b"\xff" * (count // 8)
    bitmap += b"".join(struct.pack("<HH", each, count - 1) for each in range(count)) + bytes(4 * count)
    bitmap += struct.pack("<HHH", 1, 0, count - 1) * count
    return struct.pack("<Q", number) + b"".join(struct.pack("<I", each) + bitmap for each in range(number))


def blob_of(bitmaps: bytes) -> bytes:
    content = b"\xd1\xd3\x39\x64" + bitmaps
    return struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))


def test_a_vector_of_all_positions_takes_the_memory_of_its_bytes(tmp_path: Path) -> None:
    """The threat: a megabyte of runs, and a manifest that says 2^32 deleted rows too."""
    blob = blob_of(full_bitmaps(1))
    vector = DeletionVector("p.puffin", "data.avro", 0, len(blob), 1 << 32)
    lake = Lake(tmp_path)
    lake.write(IDS, [{"id": each} for each in range(1000)])

    def work() -> None:
        positions = deleted_positions(io.BytesIO(blob), [vector])[vector]
        assert lake.read(WANTED, vector=positions).num_rows == 0

    assert peak_of(work) < ALLOWED


def test_rows_that_a_vector_leaves_are_those_of_a_list_of_positions(tmp_path: Path) -> None:
    chance, lake = random.Random(5), Lake(tmp_path)
    lake.write(IDS, [{"id": each} for each in range(100_000)])
    for share in (0, 1, 50_000, 99_999, 100_000):
        gone = chance.sample(range(100_000), share)
        left = lake.read(WANTED, vector=BitMap64([*gone, 1 << 40])).column("id").to_pylist()
        assert left == sorted(set(range(100_000)) - set(gone))


def test_bitmaps_that_contradict_themselves_are_refused() -> None:
    """The threat: fewer positions in the description than bits, which older readers wrote behind their memory."""
    bits = struct.pack("<IIII", 12346, 1, 4999 << 16, 16) + b"\xff" * 8192
    runs = struct.pack("<IBHHH", 12347, 1, 0, 99, 2) + struct.pack("<HHHH", 0, 65535, 0, 65535)
    for bitmap in (bits, runs):
        blob = blob_of(struct.pack("<QI", 1, 0) + bitmap)
        with pytest.raises(FormatError, match="has no Roaring bitmaps"):
            deleted_positions(io.BytesIO(blob), [DeletionVector("p", "d", 0, len(blob), 5000)])


def test_a_footer_of_a_puffin_file_has_a_bound(tmp_path: Path) -> None:
    path, length = tmp_path / "p.puffin", 200 * MIB
    with path.open("wb") as file:
        file.truncate(length)
        file.seek(0, io.SEEK_END)
        file.write(struct.pack("<II", length, 0) + b"PFA1")
    with path.open("rb") as opened, pytest.raises(FormatError, match="none has more than"):
        footer_contradictions(opened, [])


def test_fastavro_decodes_what_is_decompressed_here() -> None:
    """The reference: the same rows by fastavro's own codecs."""
    rows = [{"id": each} for each in range(10_000)]
    for codec in ("deflate", "bzip2", "xz"):
        out = io.BytesIO()
        fastavro.writer(out, IDS, rows, codec=codec, sync_interval=5000)
        assert list(read_split(io.BytesIO(out.getvalue()), 0, 1 << 40)) == rows
