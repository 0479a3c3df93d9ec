"""What is opened ahead of a Reader: the right bytes whoever opens them; failures, changes, forks, lines."""

from __future__ import annotations

import contextlib
import io
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ags1
from ags1.core.ahead import Ahead, answers_closed_quickly, iterates_quickly
from tests.checks import KEY, MIB, PREFIX, damage, in_child, pattern

IGNORE_FORK_WARNING = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
# Two units of one block and more, one of many small blocks, and a last unit that is not whole.
LENGTHS = {MIB: 6 * MIB + 12345, 3 * MIB: 7 * MIB + 1, 4000: 3 * MIB + 17, 61: 2 * MIB + 5}
THREADS = pytest.mark.parametrize("threads", [1, 2, 3, 9])


@contextmanager
def opened(
    path: Path, stream: bytes, block_length: int, length: int, threads: int
) -> Iterator[tuple[Ahead, Callable[..., None]]]:
    path.write_bytes(stream)
    descriptor = os.open(path, os.O_RDONLY)
    ahead = Ahead(ags1.Key(KEY), PREFIX, block_length, length, threads)

    def begin(position: int, slots: int = ahead.most_slots) -> None:
        ahead.begin(position, slots, descriptor, os.fstat(descriptor))

    try:
        yield ahead, begin
    finally:
        ahead.drop()
        os.close(descriptor)


@THREADS
@pytest.mark.parametrize("block_length", LENGTHS)
def test_any_reads_are_the_plaintext(block_length: int, threads: int, tmp_path: Path) -> None:
    length = LENGTHS[block_length]
    data = pattern(length)
    stream = ags1.encrypt(data, KEY, aad_prefix=PREFIX, block_length=block_length)
    choose = random.Random(block_length * 10 + threads)
    with opened(tmp_path / "stream", stream, block_length, length, threads) as (ahead, begin):
        for slots in (1, ahead.most_slots, ahead.most_slots, choose.randint(1, 9)):
            ahead.drop()
            position = choose.choice([0, 1, choose.randrange(length)])
            assert ahead.read_into(position, bytearray(10)) == 0, "nothing was begun"
            begin(position, slots)
            while position < length:
                out = bytearray(choose.choice([1, 100, 65536, MIB, 4 * MIB, choose.randint(1, 9 * MIB)]))
                count = ahead.read_into(position, out)
                if threads == 9 and len(out) > 8 * MIB:
                    assert count == 0, "a crew of so many threads is faster"
                    out = out[: 8 * MIB]
                    count = ahead.read_into(position, out)
                assert count == min(len(out), length - position)
                assert out[:count] == data[position : position + count]
                assert not any(out[count:])
                position += count
                # A short step forwards drops nothing.
                position = min(position + choose.choice([0, 0, 0, 7, 1000]), length)
            assert ahead.read_into(length, bytearray(10)) == 0


@THREADS
def test_a_read_elsewhere_drops_what_is_ahead(threads: int, tmp_path: Path) -> None:
    data = pattern(9 * MIB)
    with opened(tmp_path / "stream", ags1.encrypt(data, KEY, aad_prefix=PREFIX), MIB, len(data), threads) as pair:
        ahead, begin = pair
        begin(5 * MIB)
        assert ahead.read_into(5 * MIB, bytearray(10)) == 10
        assert ahead.read_into(4 * MIB, bytearray(10)) == 0
        assert ahead.read_into(5 * MIB, bytearray(10)) == 0, "dropped"
        begin(0)
        assert ahead.read_into(0, bytearray(10)) == 10
        assert ahead.read_into(8 * MIB, bytearray(10)) == 0


@THREADS
def test_a_block_that_fails_is_reported_when_it_is_reached_and_releases_nothing(threads: int, tmp_path: Path) -> None:
    data = pattern(6 * MIB)
    stream = damage(ags1.encrypt(data, KEY, aad_prefix=PREFIX), MIB, 3)
    with opened(tmp_path / "stream", stream, MIB, len(data), threads) as (ahead, begin):
        begin(0)
        out = bytearray(6 * MIB)
        assert ahead.read_into(0, out) == 3 * MIB
        assert out[: 3 * MIB] == data[: 3 * MIB]
        assert not any(out[3 * MIB : 4 * MIB]), "plaintext of the block that failed"
        # No helper writes to the caller's memory any more.
        out[4 * MIB :] = bytes(2 * MIB)
        assert ahead.read_into(3 * MIB, bytearray(10)) == 0
        assert not any(out[4 * MIB :])
        begin(3 * MIB)
        assert ahead.read_into(3 * MIB, bytearray(10)) == 0
        begin(4 * MIB)
        assert ahead.read_into(4 * MIB, bytearray(10)) == 10


@THREADS
@pytest.mark.parametrize("change", ["modified", "longer"])
def test_a_file_that_changes_gives_nothing_more(change: str, threads: int, tmp_path: Path) -> None:
    data, path = pattern(4 * MIB), tmp_path / "stream"
    with opened(path, ags1.encrypt(data, KEY, aad_prefix=PREFIX), MIB, len(data), threads) as (ahead, begin):
        begin(0)
        assert ahead.read_into(0, bytearray(2 * MIB)) == 2 * MIB
        before = path.stat()
        if change == "modified":
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
        else:
            os.truncate(path, before.st_size + 1)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert ahead.read_into(2 * MIB, bytearray(2 * MIB)) == 0
        begin(2 * MIB)
        assert ahead.read_into(2 * MIB, bytearray(10)) == 10, "as it is now"


# Before 1970; and after 2262, which nanoseconds in 64 bits do not reach.
@pytest.mark.parametrize("modified", [-1, -1_500_000_001, 10**19])
def test_a_file_is_read_whenever_it_was_modified(modified: int, tmp_path: Path) -> None:
    data, path = pattern(4 * MIB), tmp_path / "stream"
    path.write_bytes(ags1.encrypt(data, KEY, aad_prefix=PREFIX))
    os.utime(path, ns=(0, modified))
    if path.stat().st_mtime_ns != modified:
        pytest.skip("this file system does not know the time")
    with ags1.open(path, key=KEY, aad_prefix=PREFIX) as reader:
        assert reader.read(100) + reader.read(2 * MIB) == data[: 100 + 2 * MIB]
        os.utime(path, ns=(0, modified + 1))
        with pytest.raises(OSError, match="changed"):
            reader.read()


@THREADS
def test_a_signal_handler_ends_a_read_between_two_units(threads: int, tmp_path: Path) -> None:
    data = pattern(8 * MIB)
    stream = ags1.encrypt(data, KEY, aad_prefix=PREFIX)

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    def was_ended(after: float) -> bool:
        out = bytearray(8 * MIB)
        begin(0)
        with contextlib.suppress(KeyboardInterrupt):
            try:
                signal.setitimer(signal.ITIMER_REAL, after)
                ahead.read_into(0, out)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        return out[:MIB] == data[:MIB] and not any(out[-MIB:])

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with opened(tmp_path / "stream", stream, MIB, len(data), threads) as (ahead, begin):
            # The signal may come too early or too late: here it comes amid the read, sooner or later.
            assert any(was_ended(0.0001 * (attempt % 50 + 1)) for attempt in range(2000))
            ahead.drop()
            begin(0)
            assert ahead.read_into(0, bytearray(8 * MIB)) == 8 * MIB
    finally:
        signal.signal(signal.SIGALRM, before)


@THREADS
def test_a_file_that_ends_gives_what_is_there(threads: int, tmp_path: Path) -> None:
    data, path = pattern(4 * MIB), tmp_path / "stream"
    with opened(path, ags1.encrypt(data, KEY, aad_prefix=PREFIX), MIB, len(data), threads) as (ahead, begin):
        os.truncate(path, 3 * MIB)
        begin(0)
        assert ahead.read_into(0, bytearray(4 * MIB)) == 2 * MIB


def test_two_threads_at_once_are_refused(tmp_path: Path) -> None:
    data, refused = pattern(4 * MIB), list[str]()
    with opened(tmp_path / "stream", ags1.encrypt(data, KEY, aad_prefix=PREFIX), MIB, len(data), 1) as (ahead, begin):

        def read() -> None:
            while not refused:
                try:
                    begin(0)
                    ahead.read_into(0, bytearray(4 * MIB))
                except ValueError as error:
                    refused.append(str(error))

        threads = [threading.Thread(target=read) for _ in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert "another thread reads" in refused[0]


@IGNORE_FORK_WARNING
@THREADS
def test_a_forked_child_starts_anew_and_never_waits_for_its_parents_helpers(threads: int, tmp_path: Path) -> None:
    data = pattern(8 * MIB)
    with opened(tmp_path / "stream", ags1.encrypt(data, KEY, aad_prefix=PREFIX), MIB, len(data), threads) as pair:
        ahead, begin = pair

        def child() -> bytes:
            first = ahead.read_into(10, bytearray(10))
            begin(10)
            out = bytearray(5 * MIB)
            count = ahead.read_into(10, out)
            return b"%d %d %d" % (first, count, out == data[10 : 10 + 5 * MIB])

        for _ in range(5):
            begin(0)
            assert ahead.read_into(0, bytearray(10)) == 10
            assert in_child(child) == b"0 5242880 1"
            out = bytearray(8 * MIB - 10)
            assert ahead.read_into(10, out) == len(out)
            assert out == data[10:]
            ahead.drop()


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    key = ags1.Key(KEY)
    for block_length, size in ((0, 1), (1, -1)):
        with pytest.raises(ValueError, match="in blocks of"):
            Ahead(key, b"", block_length, size, 1)
    with opened(tmp_path / "stream", ags1.encrypt(b"data", KEY, aad_prefix=PREFIX), MIB, 4, 2) as (ahead, begin):
        for position, slots in ((0, 0), (-1, 1)):
            with pytest.raises(ValueError, match="slots at"):
                begin(position, slots)
        begin(0)
        with pytest.raises(TypeError, match="writable"):
            ahead.read_into(0, b"read-only")


def test_lines_are_those_of_a_buffered_reader_also_below_a_class_that_iterates_quickly() -> None:
    text = b"one\n\ntwo\r\nthree" * 1000 + b"\nlast"

    @iterates_quickly
    class Quick(io.BufferedReader):
        pass

    class Below(Quick):
        def readline(self, size: int | None = -1) -> bytes:
            return super().readline(-1 if size is None else size).upper()

    lines = list(io.BytesIO(text))
    quick = Quick(io.BytesIO(text))  # type: ignore[arg-type]
    assert iter(quick) is quick
    assert next(quick) == lines[0]
    assert quick.tell() == len(lines[0])
    assert list(quick) == lines[1:]
    assert list(quick) == []
    quick.close()
    with pytest.raises(ValueError, match="closed"):
        next(quick)
    assert list(Below(io.BytesIO(text))) == [line.upper() for line in lines]  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="does not have the lines"):
        iterates_quickly(Below)


def first_line() -> bytes:
    """From then on, what was decorated answers quickly."""
    with ags1.open(ags1.encrypt(b"one\ntwo\n", KEY), key=KEY) as reader:
        return next(reader)


def test_a_raw_stream_that_answers_quickly_says_the_same_also_below_its_class() -> None:
    class Raw(io.RawIOBase):
        __slots__ = ("closed",)
        closed: bool
        other = "as ever"

    @answers_closed_quickly
    class Quick(Raw):
        def __init__(self) -> None:
            self.closed = False

    class Below(Quick):
        @property
        def closed(self) -> bool:
            return True

        def __init__(self) -> None:
            pass

    @answers_closed_quickly
    class WithoutSlot(io.RawIOBase):
        pass

    raw = Quick()
    for _ in range(2):
        assert (raw.closed, raw.other, hasattr(raw, "none")) == (False, "as ever", False)
        raw.closed = True
        assert raw.closed is True
        # Neither interned, nor exactly a str.
        for name in ("".join(["clo", "sed"]), type("Text", (str,), {})("closed")):
            assert getattr(raw, name) is True
        del raw.closed
        with pytest.raises(AttributeError, match="closed"):
            _ = raw.closed
        raw.closed = False
        assert Below().closed is True
        assert WithoutSlot().closed is False
        assert first_line() == b"one\n"
    # CPython would look at the class.
    Quick.closed = True
    assert raw.closed is False
    with pytest.raises(TypeError, match="no raw stream"):
        answers_closed_quickly(io.BytesIO)
