"""The Writer: what it writes, and that nothing half-written ever looks whole."""

from __future__ import annotations

import errno
import functools
import gc
import io
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import ags1
from ags1.streams import stream as stream_module
from tests import checks, reference
from tests.checks import KEY, MIB, PREFIX, CountingFile, pattern

BLOCK = 1000
IGNORE_FORK_WARNING = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def writer_to(sink: Any, block_length: int = BLOCK, **options: Any) -> ags1.Writer:
    return ags1.Writer(sink, KEY, aad_prefix=PREFIX, block_length=block_length, **options)


def opened(stream: bytes) -> bytes:
    return reference.decrypt(bytes(stream), KEY, PREFIX)


def names_in(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


# -- what it writes ------------------------------------------------------------------------------------------


WINDOW = 4096


class WriterMachine(RuleBasedStateMachine):
    """Writes the same to a Writer, with small windows, and to a BytesIO; compares what decryption gives."""

    @initialize(
        block_length=st.sampled_from([1, 16, 1000, WINDOW, 10_000]),
        threads=st.sampled_from([None, 1, 3]),
        kind=st.sampled_from(["BytesIO", "path", "short writes"]),
    )
    def begin(self, block_length: int, threads: int | None, kind: str) -> None:
        self.windows = stream_module.WINDOW, stream_module.GATHERED
        stream_module.WINDOW = stream_module.SMALL_WINDOW = WINDOW
        self.block_length = block_length
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name, "out.ags1")
        self.sink: Any = {
            "BytesIO": io.BytesIO(),
            "path": self.path,
            "short writes": checks.ShortWrites(777),
        }[kind]
        self.writer = writer_to(self.sink, block_length, threads=threads)
        self.model = io.BytesIO()

    @rule(
        size=st.one_of(st.integers(0, 40), st.integers(0, 3 * WINDOW)),
        kind=st.sampled_from([bytes, bytearray]),
    )
    def write(self, size: int, kind: Callable[[bytes], Any]) -> None:
        data = pattern(size, seed=self.model.tell())
        assert self.writer.write(kind(data)) == self.model.write(data)

    @rule(sizes=st.lists(st.integers(0, 700), max_size=4))
    def writelines(self, sizes: list[int]) -> None:
        lines = [pattern(size) for size in sizes]
        self.writer.writelines(lines)
        self.model.writelines(lines)

    @rule()
    def flush(self) -> None:
        self.writer.flush()

    @invariant()
    def same_position(self) -> None:
        if hasattr(self, "writer"):
            assert self.writer.tell() == self.model.tell()

    def teardown(self) -> None:
        if not hasattr(self, "writer"):
            return
        stream_module.WINDOW, stream_module.GATHERED = self.windows
        self.writer.close()
        if self.sink is self.path:
            stored = self.path.read_bytes()
        else:
            stored = bytes(getattr(self.sink, "written", b"") or self.sink.getvalue())
        self.directory.cleanup()
        assert opened(stored) == self.model.getvalue()
        assert len(stored) == self.writer.encrypted_length
        assert len(stored) == ags1.encrypted_length(self.model.tell(), self.block_length)
        nonces = checks.nonces_of(stored, self.block_length)
        assert len(set(nonces)) == len(nonces)


WriterMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=12, deadline=None)
TestWriterIsABytesIO = WriterMachine.TestCase


@pytest.mark.parametrize("block_length", [1, 16, BLOCK])
def test_lengths_around_block_edges(block_length: int) -> None:
    for length in checks.edge_lengths(block_length):
        for piece in (1, length or 1):
            sink = io.BytesIO()
            with writer_to(sink, block_length) as writer:
                for start in range(0, length, piece):
                    writer.write(pattern(length)[start : start + piece])
            assert opened(sink.getvalue()) == pattern(length)
            assert len(sink.getvalue()) == ags1.encrypted_length(length, block_length)


@pytest.mark.parametrize("threads", [None, 1])
def test_writes_larger_than_all_windows(threads: int | None, tmp_path: Path) -> None:
    data = checks.large()
    with writer_to(tmp_path / "out.ags1", MIB, threads=threads) as writer:
        assert writer.write(data[:5]) == 5
        assert writer.write(data[5:]) == len(data) - 5
    assert ags1.decrypt((tmp_path / "out.ags1").read_bytes(), KEY, aad_prefix=PREFIX) == data


@pytest.mark.parametrize("kind", checks.BUFFER_KINDS, ids=str)
def test_every_kind_of_buffer_can_be_written(kind: checks.BufferKind) -> None:
    size = kind.rounded(2100)
    sink = io.BytesIO()
    with writer_to(sink) as writer:
        assert writer.write(kind.make(pattern(size))) == size
    assert opened(sink.getvalue()) == pattern(size)


def test_what_is_no_memory_is_refused_and_does_no_harm() -> None:
    sink = io.BytesIO()
    with writer_to(sink) as writer:
        for wrong in (*checks.NOT_BUFFERS, "text"):
            with pytest.raises(TypeError, match="bytes-like object"):
                writer.write(wrong)
        for make in checks.NON_CONTIGUOUS.values():
            with pytest.raises(ValueError, match="C-contiguous"):
                writer.write(make())
        writer.write(b"good")
    assert opened(sink.getvalue()) == b"good"


def test_what_a_writer_says_about_itself(tmp_path: Path) -> None:
    path = tmp_path / "out.ags1"
    with writer_to(path) as writer:
        assert isinstance(writer, io.BufferedIOBase)
        assert (writer.readable(), writer.seekable(), writer.writable()) == (False, False, True)
        assert (writer.name, writer.mode, writer.block_length) == (str(path), "wb", BLOCK)
        writer.write(pattern(3007))
        assert writer.tell() == 3007
        for attempt in (lambda: writer.encrypted_length, lambda: writer.key_metadata):
            with pytest.raises(ValueError, match=r"known only after close\(\) has succeeded"):
                attempt()
        for attempt in (writer.read, lambda: writer.seek(0), writer.truncate, writer.fileno, writer.detach):
            with pytest.raises(io.UnsupportedOperation):
                attempt()
        with pytest.raises(TypeError, match="cannot be pickled"):
            writer.__getstate__()
    assert writer.encrypted_length == path.stat().st_size == ags1.encrypted_length(3007, BLOCK)
    assert writer.key_metadata == ags1.KeyMetadata(KEY, PREFIX, path.stat().st_size)
    with ags1.open(path, key_metadata=writer.key_metadata.encode()) as reader:
        assert reader.read() == pattern(3007)


def test_flush_hands_on_full_blocks_only() -> None:
    sink = CountingFile()
    with writer_to(sink) as writer:
        writer.write(pattern(2500))
        assert sink.getvalue() == b""
        writer.flush()
        assert len(sink.getvalue()) == checks.block_start(2, BLOCK)
        writer.flush()
        assert len(sink.getvalue()) == checks.block_start(2, BLOCK)
    assert opened(sink.getvalue()) == pattern(2500)


@pytest.mark.parametrize("bad", [0, -1, 1 << 31])
def test_a_bad_block_length_creates_nothing(bad: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="block_length must be 1 to 2147483647"):
        writer_to(tmp_path / "out.ags1", bad)
    assert names_in(tmp_path) == []


# -- nothing half-written looks whole ------------------------------------------------------------------------


class Broken(Exception):
    """Raised by a body."""


@pytest.fixture(params=["unnamed", "named"])
def target(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path whose file has no name, or a temporary one, until it is complete."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE")
    return tmp_path / "out.ags1"


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("length", [0, 500, 5000, 9 * MIB])
def test_a_body_that_raises_leaves_nothing(target: Path, length: int, error: type[BaseException]) -> None:
    def body() -> None:
        with writer_to(target, MIB if length > MIB else BLOCK) as writer:
            writer.write(bytes(length))
            raise error

    with pytest.raises(error):
        body()
    assert names_in(target.parent) == []
    target.write_bytes(b"old")
    with pytest.raises(error):
        body()
    assert target.read_bytes() == b"old"
    assert names_in(target.parent) == [target.name]


def test_an_aborted_writer_leaves_nothing_and_is_closed(target: Path) -> None:
    writer = writer_to(target)
    writer.write(pattern(5000))
    writer.flush()
    for _ in range(2):
        writer.abort()
        writer.close()
    assert writer.closed
    assert names_in(target.parent) == []
    with pytest.raises(ValueError, match="known only after close"):
        _ = writer.encrypted_length


def test_closing_twice_is_closing_once(target: Path) -> None:
    writer = writer_to(target)
    writer.write(pattern(2500))
    writer.close()
    first = target.read_bytes()
    writer.close()
    writer.abort()
    assert target.read_bytes() == first
    for attempt in (lambda: writer.write(b"more"), writer.flush, writer.__enter__):
        with pytest.raises(ValueError, match="closed file"):
            attempt()


def test_a_dropped_writer_leaves_nothing_and_warns(target: Path) -> None:
    writer = writer_to(target)
    writer.write(pattern(5000))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del writer
        gc.collect()
    (warning,) = caught
    assert warning.category is ResourceWarning
    assert str(warning.message) == f"unclosed Writer {target} was dropped: its output is discarded"
    assert names_in(target.parent) == []


def test_a_dropped_writer_is_aborted_also_where_warnings_are_errors() -> None:
    printed = checks.run_python(
        """
        import io, sys, warnings, ags1
        sys.unraisablehook = lambda seen: print(type(seen.exc_value).__name__)
        warnings.simplefilter("error")
        sink = io.BytesIO()
        writer = ags1.Writer(sink, bytes(16), block_length=10)
        writer.write(bytes(10))
        writer.flush()
        del writer
        assert len(sink.getvalue()) > 8 + 38, "more than the whole block"
        try:
            ags1.decrypt(sink.getvalue(), bytes(16))
        except ags1.TruncatedError:
            print("refused")
        """
    )
    assert printed == "ResourceWarning\nrefused\n"


def test_a_closed_or_failed_construction_does_not_warn(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer_to(tmp_path / "out.ags1").close()
        with pytest.raises(FileNotFoundError):
            writer_to(tmp_path / "none" / "out.ags1")
        gc.collect()


@pytest.mark.parametrize("ending", ["", "sys.exit(0)", "raise KeyboardInterrupt", "os.kill(os.getpid(), 15)"])
@pytest.mark.parametrize("named", [False, True])
def test_an_interpreter_that_exits_leaves_nothing(ending: str, named: bool, tmp_path: Path) -> None:
    if named and "kill" in ending:
        ending = "raise SystemExit"  # a named file survives a signal that nobody handles, under its own name
    code = f"""
import os, sys, ags1
if {named}:
    del os.O_TMPFILE
writer = ags1.Writer(sys.argv[1], bytes(16), block_length=1000)
writer.write(bytes(5000))
writer.flush()
print("written", flush=True)
{ending}
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out.ags1")], capture_output=True, check=False, timeout=600
    )
    assert done.stdout == b"written\n", done.stderr
    assert names_in(tmp_path) == []


class FailsLater(io.RawIOBase):
    """Takes whole writes up to a number of bytes, then fails; can take bytes again if it is transient."""

    def __init__(self, most: int, *, transient: bool = False) -> None:
        super().__init__()
        self.written = bytearray()
        self.most = most
        self.transient = transient
        self.calls = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self.calls += 1
        room = self.most - len(self.written)
        if room <= 0:
            if self.transient:
                self.most += 1 << 30
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = bytes(data)[:room]
        self.written += taken
        return len(taken)


def test_after_an_error_a_writer_refuses_everything_and_does_not_finalise() -> None:
    sink = FailsLater(2500)
    writer = writer_to(sink)
    writer.write(pattern(4000))
    with pytest.raises(OSError, match="No space left") as caught:
        writer.flush()
    assert caught.value.errno == errno.ENOSPC
    for attempt in (lambda: writer.write(b"x"), writer.flush):
        with pytest.raises(OSError, match="this Writer failed before and refuses everything since") as again:
            attempt()
        assert again.value.errno == errno.ENOSPC
    calls = sink.calls
    writer.close()
    assert (sink.calls, writer.closed) == (calls, True)
    with pytest.raises(ValueError, match="known only after close"):
        _ = writer.key_metadata


@pytest.mark.parametrize("whole", [1, 2, 3, 4])
@pytest.mark.parametrize("then", ["flush", "close", "write"])
def test_a_sink_that_failed_behind_a_whole_block_holds_no_whole_stream(whole: int, then: str) -> None:
    sink = FailsLater(checks.block_start(whole, BLOCK), transient=True)
    writer = writer_to(sink, threads=1)
    writer.write(pattern(5500))
    attempt = writer.close if then == "close" else writer.flush
    if then == "write":
        attempt = lambda: writer.write(bytes(2 * MIB))  # noqa: E731
    with pytest.raises(OSError, match="No space left"):
        attempt()
    writer.close()
    for data in (sink.written, sink.written[: checks.block_start(whole, BLOCK) + 1]):
        with pytest.raises((reference.Truncated, reference.Authentication)):
            opened(data)
        with pytest.raises(ags1.Ags1Error):
            ags1.decrypt(data, KEY, aad_prefix=PREFIX)


@pytest.mark.parametrize("stop", ["abort", "drop", "raise"])
@pytest.mark.parametrize("length", [1000, 2000, 2500])
@pytest.mark.filterwarnings("ignore:unclosed Writer:ResourceWarning")
def test_what_a_borrowed_sink_holds_of_an_unfinished_stream_is_no_stream(length: int, stop: str) -> None:
    sink = io.BytesIO()
    writer = writer_to(sink)
    writer.write(pattern(length))
    writer.flush()
    whole_so_far = sink.getvalue()
    assert opened(whole_so_far) == pattern(length)[: length - length % BLOCK], "the danger"
    if stop == "abort":
        writer.abort()
    elif stop == "drop":
        del writer
        gc.collect()
    else:
        with pytest.raises(Broken), writer:
            raise Broken
    with pytest.raises(ags1.TruncatedError):
        ags1.decrypt(sink.getvalue(), KEY, aad_prefix=PREFIX)


def test_an_unfinished_stream_of_which_nothing_was_written_leaves_a_sink_alone() -> None:
    sink = io.BytesIO()
    writer = writer_to(sink)
    writer.write(b"gathered only")
    writer.abort()
    assert sink.getvalue() == b""


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    checks.run_python(
        """
        import errno, os, resource, sys, ags1
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        for named in (False, True):
            if named:
                del os.O_TMPFILE
            for size in (500_000, 1 << 20, 40 << 20):
                try:
                    with ags1.Writer(sys.argv[1], bytes(16)) as writer:
                        for _ in range(3):
                            writer.write(bytes(size))
                            writer.flush()
                except OSError as error:
                    assert error.errno == errno.EFBIG, error
                    assert error.filename == sys.argv[1], error
                else:
                    raise AssertionError("written")
                assert os.listdir(os.path.dirname(sys.argv[1])) == []
        """,
        str(tmp_path / "out.ags1"),
    )


@pytest.mark.timeout(60)
def test_an_interrupt_between_writes_leaves_nothing(target: Path) -> None:
    def body() -> None:
        with writer_to(target) as writer:
            for number in itertools.count():
                writer.write(pattern(700))
                if number == 50:
                    signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        body()
    assert names_in(target.parent) == []


@IGNORE_FORK_WARNING
@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", ["exits", "closes", "aborts", "drops", "writes"])
def test_a_forked_child_does_not_touch_its_parents_file(target: Path, how: str) -> None:
    writer = writer_to(target)
    writer.write(pattern(5000))
    writer.flush()
    before = names_in(target.parent)

    def child() -> bytes:
        nonlocal writer
        if how == "closes":
            writer.close()
        elif how == "aborts":
            writer.abort()
        elif how == "drops":
            del writer
            gc.collect()
        elif how == "writes":
            with pytest.raises(ValueError, match="belongs to the process that opened it"):
                writer.write(b"child")
        return ",".join(names_in(target.parent)).encode()

    assert checks.in_child(child).decode() == ",".join(before)
    writer.write(b"parent")
    writer.close()
    assert opened(target.read_bytes()) == pattern(5000) + b"parent"
    assert names_in(target.parent) == [target.name]


@IGNORE_FORK_WARNING
@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", ["close", "abort"])
def test_a_forked_child_writes_nothing_into_its_parents_borrowed_file(tmp_path: Path, how: str) -> None:
    path = tmp_path / "out.ags1"
    with open(path, "wb", buffering=0) as file, writer_to(file) as writer:
        writer.write(pattern(5500))
        writer.flush()

        def child() -> bytes:
            getattr(writer, how)()
            return b"ended"

        assert checks.in_child(child) == b"ended"
        writer.write(b"parent")
    assert opened(path.read_bytes()) == pattern(5500) + b"parent"


@IGNORE_FORK_WARNING
@pytest.mark.timeout(60)
def test_nonces_of_parent_and_child_differ() -> None:
    def nonces() -> bytes:
        sink = io.BytesIO()
        with writer_to(sink, 16) as writer:
            writer.write(bytes(1600))
        return b"".join(checks.nonces_of(sink.getvalue(), 16))

    nonces()
    found = [checks.in_child(nonces), checks.in_child(nonces), nonces()]
    separate = {piece[at : at + 12] for piece in found for at in range(0, len(piece), 12)}
    assert len(separate) == 300


@pytest.mark.timeout(60)
def test_writers_of_many_threads_do_not_meet(tmp_path: Path) -> None:
    def write(number: int) -> None:
        with writer_to(tmp_path / f"{number}.ags1", 64) as writer:
            for _ in range(20):
                writer.write(pattern(1007, number))

    checks.in_threads([functools.partial(write, number) for number in range(8)])
    for number in range(8):
        assert opened((tmp_path / f"{number}.ags1").read_bytes()) == 20 * pattern(1007, number)


# -- as the builtin, and small blocks ------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_closed_writer_refuses_what_a_closed_file_of_the_builtin_refuses(end: str, tmp_path: Path) -> None:
    writer = ags1.Writer(tmp_path / "out", KEY)
    writer.write(b"data")
    getattr(writer, end)()
    file = open(tmp_path / "plain", "wb")  # noqa: SIM115
    file.close()
    for call in ("tell", "writable", "seekable", "flush", "__enter__"):
        for each in (file, writer):
            with pytest.raises(ValueError, match="closed"):
                getattr(each, call)()
    for each in (file, writer):
        with pytest.raises(ValueError, match="closed"):
            each.write(b"more")
        each.close()


@pytest.mark.parametrize("threads", [1, None])
@pytest.mark.parametrize("block_length", [1, 2, 7, 63, 64])
@pytest.mark.parametrize("kind", ["path", "object"])
def test_more_blocks_than_nonces_are_drawn_for_at_once(
    kind: str, block_length: int, threads: int | None, tmp_path: Path
) -> None:
    # A window is at most 131,072 blocks; what a Writer gathers may be more of them than that.
    data = pattern(min(9 << 20, 140_000 * block_length) + 1)
    sink: Any = tmp_path / "out" if kind == "path" else io.BytesIO()
    with ags1.Writer(sink, KEY, block_length=block_length, threads=threads) as writer:
        writer.write(data[:100])
        writer.write(data[100:])
    stream = sink.read_bytes() if kind == "path" else sink.getvalue()
    assert ags1.decrypt(stream, KEY) == data
