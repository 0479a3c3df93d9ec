"""What a Writer writes to: paths, file objects of every sort, pipes; what becomes of an existing target."""

from __future__ import annotations

import gc
import io
import os
import socket
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import checks
from tests.checks import MIB, CountingFile, pattern
from tests.streams.test_stream_writer import names_in, opened, writer_to

PATHS: dict[str, Callable[[Path], Any]] = {
    "str": str,
    "pathlib": Path,
    "file URL": lambda path: f"file://{path}",
}


@pytest.mark.parametrize("kind", sorted(PATHS))
def test_every_kind_of_path(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "out é.ags1"
    with writer_to(PATHS[kind](path)) as writer:
        writer.write(pattern(3007))
        assert not path.exists()
    assert opened(path.read_bytes()) == pattern(3007)
    assert names_in(tmp_path) == [path.name]


def test_a_relative_path_means_the_directory_of_that_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with writer_to("out.ags1"):
        monkeypatch.chdir("/")
    assert names_in(tmp_path) == ["out.ags1"]


SINKS: dict[str, Callable[[], Any]] = {
    "BytesIO": CountingFile,
    "short writes": lambda: checks.ShortWrites(3),
    "one byte a write": lambda: checks.ShortWrites(1),
}


@pytest.mark.parametrize("kind", sorted(SINKS))
def test_a_borrowed_sink_is_flushed_and_not_closed(kind: str) -> None:
    sink = SINKS[kind]()
    with writer_to(sink) as writer:
        writer.write(pattern(3007))
    del writer
    gc.collect()
    assert not sink.closed
    assert opened(sink.getvalue() if kind == "BytesIO" else sink.written) == pattern(3007)


def test_a_borrowed_file_is_written_from_where_it_stands(tmp_path: Path) -> None:
    with open(tmp_path / "out.bin", "wb") as file:
        file.write(b"before")
        with writer_to(file) as writer:
            writer.write(pattern(3007))
        assert (tmp_path / "out.bin").read_bytes()[:6] == b"before", "flushed"
        file.write(b"behind")
    assert opened((tmp_path / "out.bin").read_bytes()[6:-6]) == pattern(3007)


class SaysNone(io.BytesIO):
    """Takes all and says nothing, as sloppy wrappers do."""

    readinto = property()  # type: ignore[assignment]

    def write(self, data: Any, /) -> None:  # type: ignore[override]
        super().write(data)


def test_a_sink_that_answers_nothing_took_all() -> None:
    sink = SaysNone()
    with writer_to(sink) as writer:
        writer.write(pattern(3007))
    assert opened(sink.getvalue()) == pattern(3007)


class Says:
    """Returns what it is told to, whatever it is given."""

    def __init__(self, answer: int) -> None:
        self.answer = answer

    def write(self, data: Any) -> int:
        return self.answer


@pytest.mark.parametrize("answer", [0, -1, 9])
def test_a_sink_that_answers_nonsense_is_refused(answer: int) -> None:
    writer = writer_to(Says(answer))
    writer.write(b"data")
    with pytest.raises(OSError, match=f"returned {answer} from a write of 8 bytes"):
        writer.close()


def test_a_non_blocking_sink_that_takes_nothing_now_is_an_error() -> None:
    receive, send = os.pipe()
    os.set_blocking(send, False)
    with open(receive, "rb"), open(send, "wb", buffering=0) as sink:
        writer = writer_to(sink)
        with pytest.raises(BlockingIOError, match="non-blocking and is not ready"):
            writer.write(bytes(16 * MIB))
        writer.abort()


@pytest.mark.timeout(60)
def test_writing_to_a_pipe() -> None:
    receive, send = os.pipe()
    with open(receive, "rb") as source, open(send, "wb") as sink:
        assert opened(checks.in_threads([source.read, lambda: _write_and_close(sink)])[0]) == LONG


@pytest.mark.timeout(60)
def test_writing_to_a_socket() -> None:
    ours, theirs = socket.socketpair()
    sink = theirs.makefile("wb")
    theirs.close()
    with ours, ours.makefile("rb") as source:
        assert opened(checks.in_threads([source.read, lambda: _write_and_close(sink)])[0]) == LONG


LONG = pattern(200_007)


def _write_and_close(sink: Any) -> None:
    with sink, writer_to(sink) as writer:
        writer.write(LONG)


@pytest.mark.parametrize(
    "text", [io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()], ids=["file", "StringIO"]
)
def test_a_text_file_is_refused(text: Any) -> None:
    with pytest.raises(TypeError, match="this one is text: open it with mode 'wb'"):
        writer_to(text)


def test_what_cannot_be_written_to_is_refused() -> None:
    for wrong in (None, 5, bytearray(8)):
        with pytest.raises(TypeError, match="a path, a URL or a binary file object is needed"):
            writer_to(wrong)


@pytest.mark.timeout(60)
def test_a_fifo_target_is_written_directly(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)

    def write() -> None:
        with writer_to(path) as writer:
            writer.write(pattern(20_007))

    assert opened(checks.in_threads([path.read_bytes, write])[0]) == pattern(20_007)
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert names_in(tmp_path) == ["fifo"]


# -- targets -------------------------------------------------------------------------------------------------


def test_a_symbolic_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere" / "real.ags1"
    target.parent.mkdir()
    target.write_bytes(b"old")
    link = tmp_path / "link.ags1"
    link.symlink_to(target)
    with writer_to(link) as writer:
        writer.write(b"new")
        assert target.read_bytes() == b"old"
    assert link.is_symlink()
    assert opened(target.read_bytes()) == b"new"
    target.unlink()
    with writer_to(link) as writer:
        writer.write(b"again")
    assert link.is_symlink()
    assert opened(target.read_bytes()) == b"again"


def test_the_mode_of_an_existing_target_is_kept_and_a_new_one_obeys_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "out.ags1"
    before = os.umask(0o027)
    try:
        with writer_to(path):
            pass
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        for mode in (0o600, 0o444, 0o664):
            path.chmod(mode)
            with writer_to(path):
                pass
            assert stat.S_IMODE(path.stat().st_mode) == mode
    finally:
        os.umask(before)


def test_a_directory_as_target_is_named(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=tmp_path.name):
        writer_to(tmp_path)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no-such.out\.ags1'"):
        writer_to(tmp_path / "no-such" / "out.ags1")


def test_an_unwritable_directory_is_named() -> None:
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o555)
        checks.run_python(
            """
            import os, sys
            # Before others' files cannot be read any more.
            from ags1 import Writer
            if os.getuid() == 0:
                os.setuid(65534)
            try:
                Writer(sys.argv[1] + "/out.ags1", bytes(16))
            except PermissionError as error:
                assert error.filename == sys.argv[1] + "/out.ags1", error
            else:
                raise AssertionError("written")
            assert os.listdir(sys.argv[1]) == []
            """,
            name,
        )


def test_a_target_that_becomes_a_directory_meanwhile_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out.ags1"
    writer = writer_to(path)
    writer.write(b"data")
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        writer.close()
    assert names_in(tmp_path) == ["out.ags1"]
    assert path.is_dir()


def test_two_writers_of_one_path_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "out.ags1"
    with writer_to(path) as first, writer_to(path) as second:
        first.write(pattern(5000))
        second.write(b"second")
    assert opened(path.read_bytes()) == pattern(5000), "the last to close"
    assert names_in(tmp_path) == [path.name]
