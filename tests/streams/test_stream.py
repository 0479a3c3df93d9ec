"""The Reader: the io contract to the letter, lengths, errors, and how much it reads."""

from __future__ import annotations

import configparser
import errno
import io
import itertools
import os
import pickle
import re
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import ags1
from tests import checks, reference
from tests.checks import KEY, MIB, PREFIX, CountingFile, pattern

BLOCK = 1000
LENGTH = 3 * MIB + 4321
BIG_BLOCK = 64 << 10


@cache
def sealed(length: int, block_length: int = BLOCK, seed: int = 0) -> bytes:
    """A stream of `pattern(length, seed)`; the small ones by the reference."""
    data = pattern(length, seed)
    if length // block_length < 5000 and length < MIB:
        return reference.encrypt(data, KEY, PREFIX, block_length)
    return ags1.encrypt(data, KEY, aad_prefix=PREFIX, block_length=block_length)


def reader_of(source: Any, **options: Any) -> ags1.Reader:
    return ags1.Reader(source, KEY, aad_prefix=PREFIX, **options)


# -- the io contract -----------------------------------------------------------------------------------------


SOURCES: dict[str, Callable[[bytes], Any]] = {
    "memory": bytes,
    "file object": io.BytesIO,
    "short reads": lambda data: checks.ShortReads(data, most=7000),
}
SIZES = {1: 300, 16: 5000, BLOCK: 20_007, MIB: 2 * MIB + 4321}


class ReaderMachine(RuleBasedStateMachine):
    """Does the same things to a Reader and to a BytesIO of the plaintext."""

    @initialize(
        block_length=st.sampled_from(sorted(SIZES)),
        source=st.sampled_from(sorted(SOURCES)),
        threads=st.sampled_from([None, 1, 3]),
        trusted=st.booleans(),
    )
    def begin(self, block_length: int, source: str, threads: int | None, trusted: bool) -> None:
        self.data = pattern(SIZES[block_length])
        stream = sealed(SIZES[block_length], block_length)
        length = len(stream) if trusted else None
        self.reader = reader_of(SOURCES[source](stream), threads=threads, length=length)
        self.model = io.BytesIO(self.data)

    def size(self, fraction: int) -> int:
        """Small sizes as they are, large ones as a part of the data."""
        return fraction if fraction < 40 else len(self.data) * fraction // 800

    sizes = st.integers(0, 1000)

    @rule(size=sizes)
    def read(self, size: int) -> None:
        assert self.reader.read(self.size(size)) == self.model.read(self.size(size))

    @rule(size=st.sampled_from([-1, None]))
    def read_rest(self, size: int | None) -> None:
        assert self.reader.read(size) == self.model.read(size)

    @rule()
    def readall(self) -> None:
        assert self.reader.readall() == self.model.read()

    @rule(size=st.integers(-1, 1000))
    def read1(self, size: int) -> None:
        wanted = self.size(size)
        left = len(self.data) - self.model.tell()
        got = self.reader.read1(wanted)
        assert got == self.model.read(len(got))
        assert got or wanted == 0 or left <= 0
        assert wanted < 0 or len(got) <= wanted

    @rule(size=sizes)
    def readinto(self, size: int) -> None:
        ours, theirs = bytearray(self.size(size)), bytearray(self.size(size))
        assert self.reader.readinto(ours) == self.model.readinto(theirs)
        assert ours == theirs

    @rule(size=sizes)
    def readinto1(self, size: int) -> None:
        memory = bytearray(self.size(size))
        left = len(self.data) - self.model.tell()
        count = self.reader.readinto1(memory)
        assert memory[:count] == self.model.read(count)
        assert count or not memory or left <= 0

    @rule(limit=st.sampled_from([-1, 0, 1, 10, 5000]))
    def readline(self, limit: int) -> None:
        assert self.reader.readline(limit) == self.model.readline(limit)

    @rule(hint=st.sampled_from([1, 300, 9000]))
    def readlines(self, hint: int) -> None:
        lines = self.reader.readlines(hint)
        assert lines == [self.model.readline() for _ in lines]
        assert sum(map(len, lines)) >= hint or self.model.tell() >= len(self.data)

    @rule(count=st.integers(1, 5))
    def iterate(self, count: int) -> None:
        assert list(itertools.islice(self.reader, count)) == list(itertools.islice(self.model, count))

    @rule(size=st.integers(0, 100))
    def peek(self, size: int) -> None:
        left = self.model.getvalue()[self.model.tell() :]
        seen = self.reader.peek(size)
        assert left.startswith(seen)
        assert bool(seen) == bool(left)

    @rule(offset=sizes)
    def seek_from_start(self, offset: int) -> None:
        assert self.reader.seek(self.size(offset)) == self.model.seek(self.size(offset))

    @rule(offset=st.integers(-1000, 1000))
    def seek_from_here(self, offset: int) -> None:
        offset = max(offset, -self.model.tell())
        assert self.reader.seek(offset, os.SEEK_CUR) == self.model.seek(offset, os.SEEK_CUR)

    @rule(offset=sizes, beyond=st.booleans())
    def seek_from_end(self, offset: int, beyond: bool) -> None:
        offset = offset if beyond else -min(self.size(offset), len(self.data))
        assert self.reader.seek(offset, os.SEEK_END) == self.model.seek(offset, os.SEEK_END)

    @rule(offset=sizes, size=sizes)
    def pread(self, offset: int, size: int) -> None:
        offset, size = self.size(offset), self.size(size)
        assert self.reader.pread(offset, size) == self.data[offset : offset + size]

    @rule(offset=sizes, size=sizes)
    def pread_into(self, offset: int, size: int) -> None:
        offset, size = self.size(offset), self.size(size)
        memory = bytearray(b"\xaa") * size
        expected = self.data[offset : offset + size]
        assert self.reader.pread_into(offset, memory) == len(expected)
        assert memory == expected + b"\xaa" * (size - len(expected))

    @invariant()
    def same_position(self) -> None:
        assert self.reader.tell() == self.model.tell()

    def teardown(self) -> None:
        if hasattr(self, "reader"):
            self.reader.close()


ReaderMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestReaderIsABytesIO = ReaderMachine.TestCase


def test_what_a_reader_says_about_itself() -> None:
    stream = sealed(3007)
    with reader_of(io.BytesIO(stream)) as reader:
        assert isinstance(reader, io.BufferedIOBase)
        assert (reader.readable(), reader.seekable(), reader.writable()) == (True, True, False)
        assert (reader.size, reader.encrypted_length, reader.block_length) == (3007, len(stream), BLOCK)
        assert (reader.length_trusted, reader.mode) == (False, "rb")
        assert not reader.isatty()
    assert reader.closed


def test_what_a_reader_cannot_do_is_unsupported() -> None:
    with reader_of(sealed(3007)) as reader:
        for attempt in (
            reader.fileno,
            lambda: reader.write(b"x"),  # type: ignore[arg-type]
            reader.truncate,
        ):
            with pytest.raises(io.UnsupportedOperation):
                attempt()
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(reader)


def test_bad_arguments_of_the_methods() -> None:
    with reader_of(sealed(3007)) as reader:
        for attempt, message in (
            (lambda: reader.seek(0, 7), "whence"),
            (lambda: reader.pread(-1, 5), "offset must not be negative"),
            (lambda: reader.pread(0, -1), "size must not be negative"),
            (lambda: reader.pread_into(-1, bytearray(3)), "offset must not be negative"),
            (lambda: reader.pread_into(0, memoryview(bytearray(8))[::2]), "C-contiguous"),
        ):
            with pytest.raises(ValueError, match=message):
                attempt()
        with pytest.raises(TypeError, match="writable"):
            reader.pread_into(0, b"read-only")
        # None of these is a failure of the stream.
        assert reader.read() == pattern(3007)


def test_reading_at_and_behind_the_end_is_empty() -> None:
    with reader_of(sealed(3007)) as reader:
        assert reader.seek(0, os.SEEK_END) == 3007
        assert reader.read() == reader.read(5) == reader.read1() == reader.readline() == reader.peek() == b""
        assert reader.seek(10**15) == 10**15
        assert reader.read(5) == b""
        assert reader.readinto(bytearray(5)) == 0
        assert reader.pread(3007, 5) == reader.pread(2**62, 5) == b""
        assert reader.pread(3000, 2**62) == pattern(3007)[3000:]
        memory = bytearray(b"keep")
        assert reader.pread_into(3007, memory) == 0
        assert memory == b"keep"


@pytest.mark.parametrize("kind", checks.WRITABLE_KINDS, ids=str)
def test_reading_into_any_writable_memory(kind: checks.BufferKind) -> None:
    size = kind.rounded(2100)
    data = pattern(3007)
    with reader_of(sealed(3007)) as reader:
        positional, sequential = kind.make(bytes(size)), kind.make(bytes(size))
        assert reader.pread_into(100, positional) == size
        assert checks.octets(positional) == data[100 : 100 + size]
        if memoryview(sequential).format not in ("Zd", ">H", ">u2"):
            assert reader.readinto(sequential) == size
            assert checks.octets(sequential) == data[:size]


@pytest.mark.parametrize("block_length", [1, 16, BLOCK])
def test_lengths_around_block_edges(block_length: int) -> None:
    for length in checks.edge_lengths(block_length):
        with reader_of(sealed(length, block_length)) as reader:
            assert reader.size == length
            assert reader.read() == pattern(length)
            assert reader.pread(0, length + 1) == pattern(length)
            if length:
                assert reader.pread(length - 1, 2) == pattern(length)[-1:]


def test_a_closed_reader_refuses_everything_and_closes_again() -> None:
    reader = reader_of(sealed(3007))
    reader.read(10)
    reader.close()
    reader.close()
    assert reader.closed
    for attempt in READS.values():
        with pytest.raises(ValueError, match=r"closed|released"):
            attempt(reader)
    for other in (reader.tell, lambda: reader.seek(0), reader.__enter__):
        with pytest.raises(ValueError, match="closed"):
            other()


def test_open_checks_its_arguments() -> None:
    stream = sealed(3007)
    metadata = ags1.KeyMetadata(KEY, PREFIX)
    for mode in ("", "a", "ab", "r+b", "wb+", "x", "rw", "rbt", "U", "rbb", "R"):
        with pytest.raises(ValueError, match=f"mode must be 'rb', 'wb', 'r' or 'w'.*, got '{re.escape(mode)}'"):
            ags1.open(stream, mode, key=KEY)
    with pytest.raises(TypeError, match="a key is needed"):
        ags1.open(stream)
    with pytest.raises(TypeError, match="not both"):
        ags1.open(stream, key=KEY, key_metadata=metadata)
    with pytest.raises(TypeError, match="not both"):
        ags1.open(stream, aad_prefix=PREFIX, key_metadata=metadata)
    with pytest.raises(ValueError, match="16, 24 or 32"):
        ags1.open(stream, key=b"short")
    with pytest.raises(TypeError, match="bytes-like"):
        ags1.open(None, key=KEY)


@pytest.mark.parametrize("bad", [-1, True, 1.5, "36"])
def test_a_length_that_is_no_length_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="length must be a number of bytes"):
        reader_of(sealed(3007), length=bad)


@pytest.mark.parametrize(("bad", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError), (1.5, TypeError)])
def test_a_number_of_threads_that_is_none_is_refused(bad: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="threads must be"):
        reader_of(sealed(3007), threads=bad)


# -- trusted lengths -----------------------------------------------------------------------------------------


def test_a_trusted_length_refuses_a_stream_that_lost_or_gained_blocks() -> None:
    stream = sealed(3000)
    length = len(stream)
    with ags1.open(stream, key=KEY, aad_prefix=PREFIX, length=length) as reader:
        assert reader.length_trusted
    shorter = stream[: checks.block_start(2, BLOCK)]
    for source in (shorter, io.BytesIO(shorter)):
        with pytest.raises(ags1.TruncatedError, match="1028 bytes are missing"):
            reader_of(source, length=length)
    with pytest.raises(ags1.FormatError, match="1028 bytes were added"):
        reader_of(stream, length=len(shorter))


def test_without_a_trusted_length_lost_blocks_go_unnoticed_and_the_reader_says_so() -> None:
    shorter = sealed(3000)[: checks.block_start(2, BLOCK)]
    with reader_of(shorter) as reader:
        assert not reader.length_trusted
        assert reader.read() == pattern(3000)[:2000]


def test_key_metadata_brings_key_prefix_and_trusted_length() -> None:
    stream = sealed(3000)
    metadata = ags1.KeyMetadata(KEY, PREFIX, len(stream))
    for given in (metadata, metadata.encode()):
        with ags1.open(stream, key_metadata=given) as reader:
            assert reader.length_trusted
            assert reader.read() == pattern(3000)
        with pytest.raises(ags1.TruncatedError, match="trusted length"):
            ags1.open(stream[:-1], key_metadata=given)


# -- errors --------------------------------------------------------------------------------------------------


READS: dict[str, Callable[[ags1.Reader], Any]] = {
    "read": lambda reader: reader.read(),
    "read some": lambda reader: reader.read(5),
    "read1": lambda reader: reader.read1(5),
    "readinto": lambda reader: reader.readinto(bytearray(5)),
    "readinto1": lambda reader: reader.readinto1(bytearray(5)),
    "readline": lambda reader: reader.readline(),
    "readlines": lambda reader: reader.readlines(),
    "next": next,
    "peek": lambda reader: reader.peek(1),
    "pread": lambda reader: reader.pread(0, 5),
    "pread_into": lambda reader: reader.pread_into(0, bytearray(5)),
}


@pytest.mark.parametrize("first", ["read", "readinto", "pread", "pread_into", "readlines"])
def test_after_an_error_a_reader_refuses_everything(first: str) -> None:
    damaged = checks.damage(sealed(9000), BLOCK, 5)
    failing: dict[str, Callable[[ags1.Reader], Any]] = {
        **READS,
        "readinto": lambda reader: reader.readinto(bytearray(9000)),
        "pread": lambda reader: reader.pread(5500, 1),
        "pread_into": lambda reader: reader.pread_into(5500, bytearray(1)),
    }
    with reader_of(damaged) as reader:
        reader.read(10)
        with pytest.raises(ags1.AuthenticationError, match=r"^block 5 failed authentication") as caught:
            failing[first](reader)
        assert caught.value.block_index == 5
        for attempt in READS.values():
            for position in (0, 10):
                reader.seek(position)
                with pytest.raises(ags1.AuthenticationError, match="refuses everything since: block 5") as again:
                    attempt(reader)
                assert again.value.block_index == 5


def test_nothing_of_a_damaged_block_is_released() -> None:
    data = pattern(9000)
    with reader_of(checks.damage(sealed(9000), BLOCK, 5)) as reader:
        memory = bytearray(b"\xaa" * 9000)
        with pytest.raises(ags1.AuthenticationError, match="block 5"):
            reader.pread_into(4000, memory)
        assert memory[:5000] == bytes(5000)
        assert data[5000:5010] not in memory
    with reader_of(checks.damage(sealed(9000), BLOCK, 5)) as reader:
        assert reader.pread(0, 5000) == data[:5000], "what does not touch the block is good"


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (lambda data: checks.FailingReads(data, 6000), OSError, "Input/output error"),
        (lambda data: checks.LyingSize(data[:6000], len(data)), ags1.TruncatedError, "shorter than it was"),
        (lambda data: checks.NoneReads(data, after=4), BlockingIOError, "non-blocking and has no data now"),
    ],
    ids=["breaks", "shrinks", "non-blocking"],
)
def test_a_source_that_fails_half_way(source: Callable[[bytes], Any], error: type[Exception], message: str) -> None:
    with reader_of(source(sealed(9000))) as reader:
        assert reader.pread(0, 900) == pattern(9000)[:900]
        with pytest.raises(error, match=message):
            [reader.pread(offset, BLOCK) for offset in range(0, 9000, BLOCK)]
        for attempt in READS.values():
            with pytest.raises(error, match="refuses everything since"):
                attempt(reader)


def test_an_empty_stream_has_a_tag_and_a_wrong_key_is_noticed() -> None:
    for attempt in READS.values():
        with ags1.Reader(sealed(0), checks.OTHER_KEY, aad_prefix=PREFIX) as reader:
            with pytest.raises(ags1.AuthenticationError, match="block 0"):
                attempt(reader)
    with ags1.Reader(checks.Pipe(sealed(0)), checks.OTHER_KEY, aad_prefix=PREFIX) as reader:
        with pytest.raises(ags1.AuthenticationError, match="block 0"):
            reader.read()


def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "stream.ags1"
    path.write_bytes(sealed(9000))
    with reader_of(path) as reader:
        assert reader.read(10) == pattern(9000)[:10]
        os.truncate(path, 4000)
        with pytest.raises(ags1.TruncatedError, match=r"stream\.ags1 ends inside block .*became shorter"):
            reader.pread(8000, 10)
        with pytest.raises(ags1.TruncatedError, match="refuses everything since"):
            reader.read(1)


# -- how much is read ----------------------------------------------------------------------------------------


def test_a_pread_reads_the_one_block_that_it_needs() -> None:
    file = CountingFile(sealed(LENGTH, BIG_BLOCK))
    with reader_of(file) as reader:
        file.reads.clear()
        data = pattern(LENGTH)
        assert reader.pread(5 * BIG_BLOCK + 100, 4096) == data[5 * BIG_BLOCK + 100 :][:4096]
        assert file.reads == [(checks.block_start(5, BIG_BLOCK), BIG_BLOCK + checks.OVERHEAD)]
        for offset in range(5 * BIG_BLOCK, 6 * BIG_BLOCK, 4096):
            assert reader.pread(offset, 4096) == data[offset : offset + 4096]
        assert len(file.reads) == 1, "the block was kept"


def test_small_sequential_reads_read_each_byte_once() -> None:
    stream = sealed(LENGTH, BIG_BLOCK)
    file = CountingFile(stream)
    with reader_of(file) as reader:
        assert b"".join(iter(lambda: reader.read(1000), b"")) == pattern(LENGTH)
    assert file.bytes_read == len(stream)
    assert len(file.reads) < LENGTH // BIG_BLOCK, "reading ahead asks for several blocks at once"


def test_reading_ahead_starts_small_and_again_after_a_seek() -> None:
    file = CountingFile(sealed(LENGTH, BIG_BLOCK))
    stride = BIG_BLOCK + checks.OVERHEAD
    with reader_of(file) as reader:
        for offset in (0, 30 * BIG_BLOCK + 5, 10 * BIG_BLOCK):
            file.reads.clear()
            reader.seek(offset)
            reader.read(10)
            assert file.bytes_read == stride


def test_reading_the_tail_reads_nothing_else() -> None:
    file = CountingFile(sealed(LENGTH, BIG_BLOCK))
    with reader_of(file) as reader:
        file.reads.clear()
        reader.seek(-10, os.SEEK_END)
        assert reader.read() == pattern(LENGTH)[-10:]
        assert [start for start, _ in file.reads] == [checks.block_start(LENGTH // BIG_BLOCK, BIG_BLOCK)]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["path", "file object", "pipe", "writer"])
def test_streaming_takes_little_memory(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "long.ags1"
    length = 192 * MIB
    if kind != "writer":
        with ags1.open(path, "wb", key=KEY) as writer:
            for _ in range(length // MIB):
                writer.write(pattern(MIB))
    # VmHWM: the largest memory of this program; ru_maxrss would be inherited from the parent.
    grown = checks.run_python(
        """
        import ags1, re, sys

        def highest():
            return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])

        path, kind, length = sys.argv[1], sys.argv[2], int(sys.argv[3])
        key = bytes(range(1, 33))
        before = highest()
        if kind == "writer":
            piece = bytes(100_000)
            with ags1.open(path, "wb", key=key) as writer:
                while writer.tell() < length:
                    writer.write(piece)
        else:
            source = path
            if kind == "file object":
                class File:
                    def __init__(self):
                        self.file = open(path, "rb")
                        self.read, self.seek = self.file.read, self.file.seek
                source = File()
            elif kind == "pipe":
                class Pipe:
                    def __init__(self):
                        self.read = open(path, "rb").read
                source = Pipe()
            done = 0
            with ags1.open(source, key=key) as reader:
                while piece := reader.read(100_000):
                    done += len(piece)
            assert done == length
        print(highest() - before)
        """,
        str(path),
        kind,
        str(length),
    )
    assert int(grown) < 64 << 10


# -- as the builtin ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 1000])
@pytest.mark.parametrize(("offset", "whence"), [(-1, 0), (-1 << 40, 0), (-1001, 1), (-3008, 2), (-1 << 62, 2)])
def test_a_seek_before_the_start_fails_as_in_a_file_of_the_builtin(
    offset: int, whence: int, position: int, tmp_path: Path
) -> None:
    (tmp_path / "plain").write_bytes(pattern(3007))
    with open(tmp_path / "plain", "rb") as file, reader_of(sealed(3007)) as reader:
        for each in (file, reader):
            each.seek(position)
            with pytest.raises(OSError, match=r"Invalid argument|negative seek") as caught:
                each.seek(offset, whence)
            assert caught.value.errno == errno.EINVAL
            assert each.tell() == position
            assert each.read(7) == pattern(3007)[position : position + 7]


@pytest.mark.parametrize("length", [0, 1, 21, 3007])
def test_what_is_no_zip_file_is_no_zip_file_when_encrypted(length: int) -> None:
    # zipfile looks 22 bytes before the end, wherever that is.
    with ags1.Reader(ags1.encrypt(pattern(length), KEY), KEY) as reader:
        assert not zipfile.is_zipfile(reader)


def test_a_stream_without_a_name_has_no_attribute_name(tmp_path: Path) -> None:
    stream = ags1.encrypt(b"[part]\nname = value\n", KEY)
    for nameless in (ags1.Reader(stream, KEY), ags1.Reader(io.BytesIO(stream), KEY), ags1.Writer(io.BytesIO(), KEY)):
        with nameless:
            assert not hasattr(nameless, "name")
            assert "Reader" in repr(nameless) or "Writer" in repr(nameless)
    parser = configparser.ConfigParser()
    with ags1.open(stream, "r", key=KEY, encoding="utf-8") as text:
        parser.read_file(text)
    assert parser["part"]["name"] == "value"
    (tmp_path / "stream").write_bytes(stream)
    with ags1.Reader(tmp_path / "stream", KEY) as named, ags1.Writer(tmp_path / "out", KEY) as written:
        assert (named.name, written.name) == (str(tmp_path / "stream"), str(tmp_path / "out"))


def test_bytes_are_the_stream_and_an_error_says_that_they_name_a_file(tmp_path: Path) -> None:
    path = tmp_path / "stream"
    path.write_bytes(ags1.encrypt(b"text", KEY))
    for mode in ("rb", "r"):
        with pytest.raises(ags1.FormatError, match="these bytes name a file: to read that, give str or pathlib"):
            ags1.open(os.fsencode(path), mode, key=KEY)
    for other in (os.fsencode(path) + b".not", b"PAR1\0" + bytes(50), bytes(5000)):
        with pytest.raises(ags1.FormatError) as caught:
            ags1.open(other, key=KEY)
        assert "name a file" not in str(caught.value)
    target = tmp_path / "new"
    for call in (lambda: ags1.open(os.fsencode(target), "wb", key=KEY), lambda: ags1.Writer(os.fsencode(target), KEY)):
        with pytest.raises(TypeError, match="bytes cannot be written to"):
            call()
    assert not target.exists()


# -- a source that is exchanged ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["path", "file", "wrapped"])
def test_content_that_is_exchanged_under_a_reader_is_noticed(kind: str, tmp_path: Path) -> None:
    # Two streams of one key and prefix: every block of either authenticates in the place of the other's.
    path = tmp_path / "stream"
    first, second = (ags1.encrypt(pattern(3000, seed), KEY, block_length=1000) for seed in (1, 2))
    path.write_bytes(first)
    os.utime(path, ns=(1, 1))
    with open(path, "rb") as file:
        source: Any = {"path": path, "file": file, "wrapped": Wrapped(file)}[kind]
        with ags1.Reader(source, KEY) as reader:
            assert reader.pread(0, 1000) == pattern(3000, 1)[:1000]
            path.write_bytes(second)
            with pytest.raises(OSError, match=r"changed after it was opened.*an older content.*open it again"):
                reader.pread(1000, 1000)
            with pytest.raises(OSError, match="failed before"):
                reader.pread(0, 10)


def test_a_file_that_is_renamed_or_replaced_by_a_name_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "stream"
    path.write_bytes(ags1.encrypt(pattern(3000), KEY, block_length=1000))
    with ags1.Reader(path, KEY) as reader:
        assert reader.pread(0, 1000) == pattern(3000)[:1000]
        path.rename(tmp_path / "other")
        (tmp_path / "new").write_bytes(b"something else")
        (tmp_path / "new").rename(tmp_path / "other")
        assert reader.pread(1000, 2000) == pattern(3000)[1000:]


class Wrapped:
    """A file object that is none of the builtin's own types."""

    def __init__(self, file: Any) -> None:
        self.read, self.seek, self.tell, self.fileno = file.read, file.seek, file.tell, file.fileno


def test_a_number_that_is_no_integer_is_refused_and_the_reader_goes_on() -> None:
    reader: Any
    with ags1.open(ags1.encrypt(b"0123456789", KEY), key=KEY) as reader:
        for call in (
            lambda: reader.pread(1.9, 2),
            lambda: reader.pread(1, 2.9),
            lambda: reader.pread("1", 2),
            lambda: reader.pread_into(1.9, bytearray(2)),
            lambda: reader.read(2.9),
            lambda: reader.seek(1.9),
        ):
            with pytest.raises(TypeError):
                call()
        assert reader.pread(1, 2) == b"12"
