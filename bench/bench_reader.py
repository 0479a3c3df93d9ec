"""What a Reader costs: 4 KiB at random offsets beside one block opened in C; reading straight on beside a file."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ags1
from ags1.bench import Run
from bench import settings
from bench.conftest import KEY, Record
from bench.floors import Floors
from bench.measure import figure

TARGET = 0.9
SIZE = 4096
COUNT = 200
BLOCK = 1 << 20


def offsets_in(length: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Random offsets, none in the block of the one before: a Reader keeps the last block, and here it must not help."""
    generator = np.random.default_rng(3)
    blocks = length // BLOCK
    if blocks < 2:
        pytest.skip("less than two blocks: every read would find its block kept")
    steps = generator.integers(1, blocks, COUNT)
    first = np.cumsum(steps) % blocks
    offsets: np.ndarray[Any, np.dtype[np.int64]] = first * BLOCK + generator.integers(0, BLOCK - SIZE, COUNT)
    return offsets.astype(np.int64)


def _preads(reader: ags1.Reader, offsets: list[int]) -> None:
    pread = reader.pread
    for offset in offsets:
        pread(offset, SIZE)


def test_pread_file(
    encrypted_file: Path,
    sizes: settings.Settings,
    floors: Floors,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    offsets = offsets_in(sizes.file_bytes)
    as_list, out = offsets.tolist(), np.ones(SIZE, np.uint8)
    with open(encrypted_file, "rb") as file, ags1.open(encrypted_file, key=KEY) as reader:
        descriptor = file.fileno()
        run = interleave(
            {
                "ags1": lambda: _preads(reader, as_list),
                "C pread + open": lambda: floors.read_blocks(descriptor, offsets, out, sizes.file_bytes, KEY, BLOCK),
            }
        )
    question = "Reader.pread of 4 KiB at random offsets of a file"
    record(run, figure(run, question, "C pread + open", target=TARGET, calls=COUNT))


def test_pread_memory(
    plaintext: Any,
    room: Any,
    floors: Floors,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    stream = room[: ags1.encrypt_into(plaintext, room, KEY)]
    size = plaintext.nbytes
    offsets = offsets_in(size)
    as_list, out = offsets.tolist(), np.ones(SIZE, np.uint8)
    with ags1.open(stream, key=KEY) as reader:
        run = interleave(
            {
                "ags1": lambda: _preads(reader, as_list),
                "C open": lambda: floors.read_blocks(stream, offsets, out, size, KEY, BLOCK),
            }
        )
    record(run, figure(run, "Reader.pread of 4 KiB at random offsets of memory", "C open", target=TARGET, calls=COUNT))


def _read_pieces(file: Any, size: int) -> None:
    file.seek(0)
    read = file.read
    while read(size):
        pass


def _readinto_pieces(file: Any, memory: memoryview) -> None:
    file.seek(0)
    readinto = file.readinto
    while readinto(memory):
        pass


@pytest.mark.parametrize("question", ["Reader.read in pieces of 64 KiB", "Reader.readinto in pieces of 8 MiB"])
def test_reading_straight_on(
    question: str,
    encrypted_file: Path,
    source_file: Path,
    sizes: settings.Settings,
    floors: Floors,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    """Beside the plain file, and beside a C loop that decrypts it on all cores and drops the result: the floor."""
    memory = memoryview(bytearray(8 << 20))
    small = "64 KiB" in question

    def read(file: Any) -> None:
        if small:
            _read_pieces(file, 64 << 10)
        else:
            _readinto_pieces(file, memory)

    floor = f"C loop, {settings.cpus()} threads, result dropped"
    nobody = Path(os.devnull)
    with (
        open(source_file, "rb", buffering=-1 if small else 0) as file,
        ags1.open(encrypted_file, key=KEY) as reader,
    ):
        run = interleave(
            {
                "ags1": lambda: read(reader),
                "plain file": lambda: read(file),
                floor: lambda: floors.file(
                    encrypted_file, nobody, sizes.file_bytes, KEY, BLOCK, settings.cpus(), encrypt=False
                ),
            }
        )
    record(
        run,
        figure(run, question, "plain file", kind="reference", nbytes=sizes.file_bytes),
        figure(run, question, floor, nbytes=sizes.file_bytes),
        figure(run, question, "plain file", subject=floor, kind="reference", nbytes=sizes.file_bytes),
    )


def test_write_in_64k_pieces(
    directory: Path,
    plaintext: Any,
    sizes: settings.Settings,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    from ags1.bench import Subject

    target = directory / "written"
    data = memoryview(plaintext)[: sizes.file_bytes]

    def write(file: Any) -> None:
        with file:
            for start in range(0, len(data), 64 << 10):
                file.write(data[start : start + (64 << 10)])

    def away() -> None:
        target.unlink(missing_ok=True)
        os.sync()

    run = interleave(
        {
            "ags1": Subject(lambda: write(ags1.open(target, "wb", key=KEY)), after=away),
            "plain file": Subject(lambda: write(target.open("wb")), after=away),
        }
    )
    record(run, figure(run, "Writer.write in pieces of 64 KiB", "plain file", kind="reference", nbytes=len(data)))


def _csv(file: Any) -> None:
    from pyarrow import csv

    csv.read_csv(file, csv.ReadOptions(use_threads=False))


def _json_lines(file: Any) -> None:
    for line in file:
        json.loads(line)


def _gzip(file: Any) -> None:
    with gzip.open(file) as unpacked:
        while unpacked.read(1 << 20):
            pass


def _arrow(file: Any) -> None:
    import pyarrow as pa

    pa.ipc.open_stream(file, options=pa.ipc.IpcReadOptions(use_threads=False)).read_all()


def _records(kind: str, path: Path, rows: int) -> None:
    """Write a file for a consumer: what it parses to is of the same kind, whatever its size."""
    import pyarrow as pa

    numbers = np.random.default_rng(5).integers(0, 1 << 40, rows)
    if kind == "Arrow IPC with zstd":
        table = pa.table({"a": numbers, "b": numbers % 1000, "c": [f"word {each % 5000}" for each in numbers.tolist()]})
        with pa.ipc.new_stream(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table, 1 << 16)
        return
    line = {"CSV": "{0},{1},word {2}\n", "gzip": "{0},{1},word {2}\n"}.get(
        kind, '{{"a": {0}, "b": {1}, "c": "word {2}"}}\n'
    )
    text = "".join(line.format(each, each % 1000, each % 5000) for each in numbers.tolist()).encode()
    path.write_bytes(gzip.compress(text, 6) if kind == "gzip" else text)


CONSUMERS = {"CSV": _csv, "JSON lines": _json_lines, "gzip": _gzip, "Arrow IPC with zstd": _arrow}


@pytest.mark.parametrize("kind", CONSUMERS)
def test_consumer_that_computes(
    kind: str, directory: Path, sizes: settings.Settings, interleave: Callable[..., Run], record: Record
) -> None:
    """While it works on one piece, another core decrypts the next: so the consumers have one thread."""
    pytest.importorskip("pyarrow")
    path, sealed = directory / "records", directory / "records.ags1"
    _records(kind, path, 200_000 if sizes.quick else 2_000_000)
    ags1.encrypt_file(path, sealed, KEY)
    consume = CONSUMERS[kind]

    def ours() -> None:
        with ags1.open(sealed, key=KEY) as reader:
            consume(reader)

    def plain() -> None:
        with open(path, "rb") as file:
            consume(file)

    run = interleave({"ags1": ours, "plain file": plain})
    question = f"{kind} of {path.stat().st_size >> 20} MiB through a Reader"
    note = "" if kind != "JSON lines" else "a line of any file object but open()'s takes CPython 0.1 us more"
    record(run, figure(run, question, "plain file", measure="time", target=1.05, note=note))
