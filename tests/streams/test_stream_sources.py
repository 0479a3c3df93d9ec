"""What a Reader reads from: files, buffers, file objects of every sort, and pipes."""

from __future__ import annotations

import gc
import io
import mmap
import os
import socket
import subprocess
import tempfile
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1.streams.reading import PipeReader
from tests import checks, reference
from tests.checks import KEY, MIB, PREFIX, CountingFile, open_descriptors, pattern
from tests.streams.test_stream import BLOCK, reader_of, sealed


class OnlyReads:
    """The least that a seekable file object is."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> None:
        self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def _named(path: Path) -> Any:
    file = tempfile.NamedTemporaryFile(dir=path.parent)  # noqa: SIM115
    file.write(path.read_bytes())
    return file


def _entry(path: Path) -> os.DirEntry[bytes]:
    with os.scandir(os.fsencode(path.parent)) as entries:
        return next(entries)


def _mapped(path: Path) -> mmap.mmap:
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _doubly(path: Path) -> ags1.Reader:
    twice = ags1.encrypt(path.read_bytes(), KEY, block_length=333)
    return ags1.Reader(twice, KEY)


FILES: dict[str, Callable[[Path], Any]] = {
    "str path": str,
    "pathlib": Path,
    "bytes DirEntry": _entry,
    "file URL": lambda path: f"file://{path}",
    "FileIO": lambda path: open(path, "rb", buffering=0),  # noqa: SIM115
    "BufferedReader": lambda path: open(path, "rb"),  # noqa: SIM115
    "BufferedRandom": lambda path: open(path, "r+b"),  # noqa: SIM115
    "named temporary file": _named,
    "BytesIO": lambda path: io.BytesIO(path.read_bytes()),
    "mmap": _mapped,
    "one byte a read": lambda path: checks.ShortReads(path.read_bytes(), most=1),
    "no readinto, no seekable": lambda path: OnlyReads(path.read_bytes()),
    "another Reader": _doubly,
}


@pytest.mark.parametrize("kind", sorted(FILES))
def test_every_kind_of_seekable_source(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "stream.ags1"
    path.write_bytes(sealed(20_007))
    data = pattern(20_007)
    source = FILES[kind](path)
    before = open_descriptors()
    with reader_of(source) as reader:
        assert reader.pread(7999, 1002) == data[7999:9001]
        assert reader.read() == data
        assert reader.seek(-7, os.SEEK_END) == 20_000
        assert reader.read() == data[-7:]
    assert open_descriptors() == before
    if hasattr(source, "closed"):
        assert not source.closed, "borrowed, so not closed"
        source.close()


@pytest.mark.parametrize("kind", checks.BUFFER_KINDS, ids=str)
def test_every_kind_of_buffer_is_a_source(kind: checks.BufferKind) -> None:
    length = next(n for n in range(3000, 3100) if (ags1.encrypted_length(n, BLOCK)) % kind.itemsize == 0)
    with reader_of(kind.make(sealed(length))) as reader:
        assert reader.read() == pattern(length)
        assert reader.pread(999, 2) == pattern(length)[999:1001]


@pytest.mark.parametrize("make", checks.NON_CONTIGUOUS.values(), ids=checks.NON_CONTIGUOUS.keys())
def test_memory_with_gaps_is_no_source(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="C-contiguous"):
        reader_of(make())


def test_bytes_are_a_stream_and_not_a_path(tmp_path: Path) -> None:
    path = tmp_path / "stream.ags1"
    path.write_bytes(sealed(3007))
    with pytest.raises(ags1.FormatError, match="not an AGS1 stream"):
        reader_of(os.fsencode(path))


def test_a_mapped_file_is_memory_whose_position_nobody_moves() -> None:
    mapped = mmap.mmap(-1, len(sealed(3007)))
    mapped[:] = sealed(3007)
    mapped.seek(5)
    with reader_of(mapped) as reader:
        assert reader.read() == pattern(3007)
        assert mapped.tell() == 5
        with pytest.raises(BufferError):
            mapped.close()
    mapped.close()


def test_memory_stays_locked_while_the_reader_lives() -> None:
    memory = bytearray(sealed(3007))
    reader = reader_of(memory)
    with pytest.raises(BufferError):
        memory.extend(b"more")
    reader.close()
    memory.extend(b"more")


def test_a_borrowed_file_object_is_never_closed_and_an_owned_one_is(tmp_path: Path) -> None:
    file = CountingFile(sealed(3007))
    with reader_of(file) as reader:
        reader.read(1)
    reader_of(file).read()
    gc.collect()
    assert file.closes == 0
    path = tmp_path / "stream.ags1"
    path.write_bytes(sealed(3007))
    before = open_descriptors()
    reader = reader_of(path)
    assert open_descriptors() == before + 1
    reader.close()
    assert open_descriptors() == before


def test_a_plain_file_keeps_its_position_and_may_be_closed(tmp_path: Path) -> None:
    path = tmp_path / "stream.ags1"
    path.write_bytes(sealed(3007))
    with open(path, "rb") as file:
        file.seek(5)
        reader = reader_of(file)
        reader.pread(100, 10)
        assert file.tell() == 5
    with reader:
        assert reader.read() == pattern(3007)


def test_what_is_in_a_writable_files_buffer_is_seen(tmp_path: Path) -> None:
    with open(tmp_path / "stream.ags1", "w+b") as file:
        file.write(sealed(3007))
        with reader_of(file) as reader:
            assert reader.read() == pattern(3007)


@pytest.mark.parametrize("text", [io.StringIO("text"), io.TextIOWrapper(io.BytesIO(b"text"))], ids=type)
def test_a_text_file_is_refused(text: Any) -> None:
    with pytest.raises(TypeError, match="this one is text: open it with mode 'rb'"):
        reader_of(text)


def test_a_directory_or_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=tmp_path.name):
        reader_of(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no-such\.ags1"):
        reader_of(tmp_path / "no-such.ags1")


def test_a_file_that_is_not_ags1_is_named_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    path.write_bytes(b"PAR1" + bytes(60))
    before = open_descriptors()
    with pytest.raises(ags1.FormatError, match=r"table\.parquet: not an AGS1 stream: it starts like a Parquet"):
        reader_of(path)
    assert open_descriptors() == before


def test_a_huge_block_length_in_a_header_takes_no_memory() -> None:
    stream = reference.encrypt(b"short", KEY, PREFIX, block_length=(1 << 31) - 1)
    tracemalloc.start()
    try:
        for source in (stream, io.BytesIO(stream), checks.Pipe(stream)):
            with reader_of(source) as reader:
                assert reader.read() == b"short"
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


# -- pipes ---------------------------------------------------------------------------------------------------


@pytest.fixture
def feeder() -> Iterator[Callable[[Callable[[bytes], Any], Callable[[], Any], bytes], None]]:
    """Sends a stream from a thread and then closes the sending end."""
    threads: list[threading.Thread] = []

    def feed(send: Callable[[bytes], Any], close: Callable[[], Any], data: bytes) -> None:
        def run() -> None:
            try:
                for start in range(0, len(data), 777):
                    send(data[start : start + 777])
            except BrokenPipeError:
                pass
            finally:
                close()

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()

    yield feed
    for thread in threads:
        thread.join(600)
        assert not thread.is_alive()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("buffering", [0, -1])
@pytest.mark.parametrize("length", [0, 1, BLOCK, 20_007, 3 * MIB])
def test_reading_an_os_pipe(feeder: Any, length: int, buffering: int) -> None:
    receive, send = os.pipe()
    feeder(lambda data: os.write(send, data), lambda: os.close(send), sealed(length))
    with open(receive, "rb", buffering) as pipe, reader_of(pipe, length=len(sealed(length))) as reader:
        assert reader.read(10) == pattern(length)[:10]
        assert reader.readline() + reader.read() == pattern(length)[10:]
        assert reader.encrypted_length == len(sealed(length))


@pytest.mark.timeout(60)
def test_reading_a_socket(feeder: Any) -> None:
    ours, theirs = socket.socketpair()
    feeder(theirs.sendall, theirs.close, sealed(20_007))
    with ours, ours.makefile("rb") as file, reader_of(file) as reader:
        assert reader.read() == pattern(20_007)


@pytest.mark.timeout(60)
def test_reading_a_programs_output(tmp_path: Path) -> None:
    path = tmp_path / "stream.ags1"
    path.write_bytes(sealed(3 * MIB))
    with subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE) as program:
        with reader_of(program.stdout) as reader:
            assert reader.read() == pattern(3 * MIB)


@pytest.mark.timeout(60)
def test_reading_a_fifo_by_its_path(feeder: Any, tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    # Each opening waits for the other.
    feeder(path.write_bytes, lambda: None, sealed(700))
    before = open_descriptors()
    with reader_of(path) as reader:
        assert reader.name == str(path)
        assert reader.read(500) == pattern(700)[:500]
        assert reader.read() == pattern(700)[500:]
    assert open_descriptors() == before


def test_small_pieces_of_a_pipe_run_python_once_a_mebibyte(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    readinto = PipeReader.readinto

    def counted(raw: PipeReader, buffer: Any) -> int:
        calls.append(readinto(raw, buffer))
        return calls[-1]

    monkeypatch.setattr(PipeReader, "readinto", counted)
    with reader_of(checks.Pipe(sealed(3 * MIB))) as reader:
        assert b"".join(iter(lambda: reader.read(10_007), b"")) == pattern(3 * MIB)
    assert sum(calls) == 3 * MIB
    assert len(calls) <= 6


def test_a_pipe_says_what_it_cannot_do() -> None:
    with reader_of(checks.Pipe(sealed(3007))) as reader:
        assert (reader.seekable(), reader.size, reader.encrypted_length) == (False, None, None)
        for attempt in (lambda: reader.pread(0, 1), lambda: reader.pread_into(0, bytearray(1))):
            with pytest.raises(io.UnsupportedOperation, match="only be read forwards"):
                attempt()
        with pytest.raises(io.UnsupportedOperation):
            reader.seek(0)
        assert reader.read(2001) == pattern(3007)[:2001]
        assert reader.tell() == 2001


@pytest.mark.parametrize("most", [1, 7, 10**6])
def test_a_pipe_that_ends_early_or_late_is_refused(most: int) -> None:
    stream = sealed(3000)
    length = len(stream)
    cases = (
        (stream[: checks.block_start(2, BLOCK)], length, ags1.TruncatedError, "1028 bytes are missing"),
        (stream[:-1001], None, ags1.TruncatedError, "ends 27 bytes into a block"),
        (stream, length - 1028, ags1.FormatError, "1028 bytes were added"),
        (stream + bytes(28), None, ags1.FormatError, "empty block after full ones"),
        (stream[:8], None, ags1.TruncatedError, "shorter than the shortest"),
        (stream[:5], None, ags1.TruncatedError, "only 5 bytes"),
        (b"", None, ags1.TruncatedError, "only 0 bytes"),
    )
    for data, trusted, error, message in cases:
        with pytest.raises(error, match=message):
            with reader_of(checks.Pipe(data, most), length=trusted) as reader:
                reader.read()


@pytest.mark.parametrize("pipe", [False, True])
def test_a_source_that_answers_too_much_is_refused(pipe: bool) -> None:
    class TooMuch(OnlyReads):
        def seekable(self) -> bool:
            return not pipe

        def read(self, size: int) -> bytes:
            return super().read(size) + b"!"

    with pytest.raises(OSError, match="returned 9 bytes to a read of 8"):
        reader_of(TooMuch(sealed(3007)))


@pytest.mark.parametrize("after", [0, 1])
def test_a_pipe_that_fails_half_way(after: int) -> None:
    with pytest.raises(BlockingIOError, match="non-blocking and has no data now"):
        with reader_of(PipeOf(checks.NoneReads(sealed(9000), after))) as reader:
            reader.read()


class PipeOf(io.RawIOBase):
    """Hides that a file can seek."""

    def __init__(self, file: io.RawIOBase) -> None:
        super().__init__()
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        return self._file.readinto(buffer)


def test_a_damaged_pipe_refuses_everything_after_the_damage() -> None:
    with reader_of(checks.Pipe(checks.damage(sealed(9000), BLOCK, 5))) as reader:
        for _ in range(2):
            with pytest.raises(ags1.AuthenticationError, match="block 5"):
                reader.read()
