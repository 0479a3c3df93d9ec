"""What a Reader costs: 4 KiB at random offsets beside one block opened in C; reading straight on beside a file."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ags1
from ags1.bench import Run, Subject
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


def _copy(file: Any, _: memoryview) -> None:
    file.seek(0)
    shutil.copyfileobj(file, _Nobody())


class _Nobody:
    def write(self, data: bytes) -> int:
        return len(data)


PIECES = {"64 KiB": 64 << 10, "8 MiB": 8 << 20}
WAYS: dict[str, Callable[[Any, memoryview], None]] = {
    "read": lambda file, memory: _read_pieces(file, len(memory)),
    "readinto": _readinto_pieces,
}


@pytest.mark.parametrize("threads", settings.load().threads)
@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("way", WAYS)
def test_reading_straight_on(
    way: str,
    piece: str,
    threads: int,
    encrypted_file: Path,
    source_file: Path,
    sizes: settings.Settings,
    floors: Floors,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    """Beside a C program that hands over the same pieces, on as many threads; the plain file is for information."""
    memory = memoryview(bytearray(PIECES[piece]))
    into = memory if way == "readinto" else None
    read, length = WAYS[way], sizes.file_bytes
    with (
        open(source_file, "rb", buffering=0) as file,
        ags1.open(encrypted_file, key=KEY, threads=threads) as reader,
    ):
        run = interleave(
            {
                "ags1": lambda: read(reader, memory),
                "C loop": lambda: floors.read_stream(encrypted_file, length, KEY, BLOCK, threads, len(memory), into),
                "plain file": lambda: read(file, memory),
            }
        )
    question = f"Reader.{way} in pieces of {piece}, {threads} thread{'s' * (threads > 1)}"
    record(
        run,
        figure(run, question, "C loop", target=TARGET, nbytes=length),
        figure(run, question, "plain file", kind="reference", nbytes=length),
    )


def test_copyfileobj(
    encrypted_file: Path,
    sizes: settings.Settings,
    floors: Floors,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    length, memory = sizes.file_bytes, memoryview(b"")
    threads, piece = settings.cpus(), shutil.COPY_BUFSIZE
    with ags1.open(encrypted_file, key=KEY) as reader, ags1.open(encrypted_file, key=KEY, threads=1) as alone:
        run = interleave(
            {
                "ags1": lambda: _copy(reader, memory),
                "threads=1": lambda: _copy(alone, memory),
                "C loop": lambda: floors.read_stream(encrypted_file, length, KEY, BLOCK, threads, piece),
            }
        )
    question = "shutil.copyfileobj from a Reader"
    record(
        run,
        figure(run, question, "C loop", target=TARGET, nbytes=length),
        figure(run, question, "threads=1", kind="reference", target=0.97, nbytes=length),
    )


def test_lines(directory: Path, sizes: settings.Settings, interleave: Callable[..., Run], record: Record) -> None:
    path, sealed = directory / "lines", directory / "lines.ags1"
    _records("JSON lines", path, 200_000 if sizes.quick else 500_000)
    ags1.encrypt_file(path, sealed, KEY)

    def read(file: Any) -> None:
        file.seek(0)
        for _ in file:
            pass

    with ags1.open(sealed, key=KEY) as reader, open(path, "rb") as file:
        run = interleave({"ags1": lambda: read(reader), "plain file": lambda: read(file)})
    record(run, figure(run, "lines of a Reader", "plain file", measure="time", target=1.1))


@pytest.mark.parametrize("threads", settings.load().threads)
def test_a_pipe(
    threads: int,
    encrypted_file: Path,
    source_file: Path,
    sizes: settings.Settings,
    floors: Floors,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    """Another process writes to the pipe, and takes a processor for it."""
    length = sizes.file_bytes

    def piped(path: Path, read: Callable[[Any], None]) -> None:
        with subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            read(process.stdout)

    def ours(pipe: Any) -> None:
        with ags1.open(pipe, key=KEY, threads=threads) as reader:
            while reader.read(64 << 10):
                pass

    def plain(pipe: Any) -> None:
        while pipe.read(64 << 10):
            pass

    def loop(pipe: Any) -> None:
        floors.read_pipe(pipe.fileno(), length, KEY, BLOCK, 64 << 10)

    run = interleave(
        {
            "ags1": lambda: piped(encrypted_file, ours),
            "C loop": lambda: piped(encrypted_file, loop),
            "plain pipe": lambda: piped(source_file, plain),
        }
    )
    question = f"Reader of a pipe in pieces of 64 KiB, {threads} thread{'s' * (threads > 1)}"
    record(
        run,
        figure(run, question, "C loop", target=TARGET, nbytes=length),
        figure(run, question, "plain pipe", kind="reference", nbytes=length),
    )


@pytest.mark.parametrize("threads", settings.load().threads)
def test_writing_to_a_pipe(
    threads: int,
    plaintext: Any,
    sizes: settings.Settings,
    floors: Floors,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    """Another process reads from the pipe, and takes a processor for it."""
    data = memoryview(plaintext)[: sizes.file_bytes]

    def piped(write: Callable[[Any], None]) -> None:
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
            assert process.stdin is not None
            write(process.stdin)

    def ours(pipe: Any) -> None:
        with ags1.open(pipe, "wb", key=KEY, threads=threads) as writer:
            for start in range(0, len(data), 64 << 10):
                writer.write(data[start : start + (64 << 10)])

    run = interleave(
        {
            "ags1": lambda: piped(ours),
            "C loop": lambda: piped(lambda pipe: floors.write_pipe(pipe.fileno(), data, KEY, BLOCK, 64 << 10)),
        }
    )
    question = f"Writer to a pipe in pieces of 64 KiB, {threads} thread{'s' * (threads > 1)}"
    record(run, figure(run, question, "C loop", target=TARGET, nbytes=len(data)))


@pytest.mark.parametrize("threads", settings.load().threads)
def test_write_in_64k_pieces(
    threads: int,
    directory: Path,
    plaintext: Any,
    sizes: settings.Settings,
    floors: Floors,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
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
            "ags1": Subject(lambda: write(ags1.open(target, "wb", key=KEY, threads=threads)), after=away),
            "C loop": Subject(lambda: floors.write_stream(target, data, KEY, BLOCK, threads, 64 << 10), after=away),
            "plain file": Subject(lambda: write(target.open("wb")), after=away),
        }
    )
    question = f"Writer.write in pieces of 64 KiB, {threads} thread{'s' * (threads > 1)}"
    record(
        run,
        figure(run, question, "C loop", target=TARGET, nbytes=len(data)),
        figure(run, question, "plain file", kind="reference", nbytes=len(data)),
    )


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
    _records(kind, path, 200_000 if sizes.quick else 500_000)
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
