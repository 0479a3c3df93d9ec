"""encrypt_file and decrypt_file: every input and output, progress, and that a target is whole or absent."""

from __future__ import annotations

import errno
import functools
import io
import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1.core import descriptors
from ags1.streams import files
from tests import checks, reference
from tests.checks import KEY, MIB, PREFIX, open_descriptors, pattern

BLOCK = 16
# With blocks of 16 bytes a window is 2 MiB: a file of this length takes two.
WINDOW = 2 * MIB
LENGTH = 2 * WINDOW - 5

encrypt = functools.partial(ags1.encrypt_file, key=KEY, aad_prefix=PREFIX)
decrypt = functools.partial(ags1.decrypt_file, key=KEY, aad_prefix=PREFIX)


class Stopped(Exception):
    """Raised by a progress callback."""


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "plain.bin"
    path.parent.mkdir()
    path.write_bytes(pattern(LENGTH))
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "out" / "target.bin"
    path.parent.mkdir()
    return path


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    path = tmp_path / "in.ags1"
    path.write_bytes(ags1.encrypt(pattern(LENGTH), KEY, aad_prefix=PREFIX, block_length=BLOCK))
    return path


def only_target(target: Path) -> bool:
    return os.listdir(target.parent) == [target.name]


def nothing(target: Path) -> bool:
    return os.listdir(target.parent) == []


# -- round trips ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [None, 1, 3])
@pytest.mark.parametrize("block_length", [1, BLOCK, 1000, MIB])
def test_round_trip_and_the_reference_agrees(block_length: int, threads: int | None, tmp_path: Path) -> None:
    source, target, back = tmp_path / "plain", tmp_path / "sealed", tmp_path / "back"
    for length in checks.edge_lengths(block_length):
        data = pattern(min(length, 2 * MIB + 1))
        source.write_bytes(data)
        metadata = encrypt(source, target, block_length=block_length, threads=threads)
        assert metadata == ags1.KeyMetadata(KEY, PREFIX, target.stat().st_size)
        assert reference.decrypt(target.read_bytes(), KEY, PREFIX, metadata.file_length) == data
        assert decrypt(target, back, threads=threads, length=metadata.file_length) == len(data)
        assert back.read_bytes() == data


def test_no_key_means_a_fresh_key_and_prefix_each_time(plain: Path, target: Path, tmp_path: Path) -> None:
    first, second = (ags1.encrypt_file(plain, target) for _ in range(2))
    assert first.encryption_key.bits == 256
    assert first.encryption_key != second.encryption_key
    assert len(first.aad_prefix or b"") == len(second.aad_prefix or b"") == 16
    assert first.aad_prefix != second.aad_prefix
    assert second.file_length == target.stat().st_size
    assert ags1.decrypt_file(target, tmp_path / "back", key_metadata=second.encode()) == LENGTH
    assert (tmp_path / "back").read_bytes() == pattern(LENGTH)
    with pytest.raises(ags1.AuthenticationError, match="block 0"):
        ags1.decrypt_file(target, tmp_path / "back", key_metadata=first)
    assert (tmp_path / "back").read_bytes() == pattern(LENGTH), "what was there stays"


def test_the_only_key_of_a_file_is_saved_before_the_file_appears(
    plain: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = tmp_path / "saved"
    made = ags1.encrypt_file(plain, target, key_metadata_out=saved)
    assert ags1.KeyMetadata.load(saved).encode() == made.encode()
    before, kept = target.read_bytes(), saved.read_bytes()
    # Once more: what is there stays, with its key.
    with pytest.raises(FileExistsError, match="what its key encrypted would be lost"):
        ags1.encrypt_file(plain, target, key_metadata_out=saved)
    assert (target.read_bytes(), saved.read_bytes()) == (before, kept)
    # Others make the file while this one encrypts.
    monkeypatch.setattr(files, "refuse_existing_secret", lambda path: None)
    with pytest.raises(FileExistsError):
        ags1.encrypt_file(plain, target, key_metadata_out=saved)
    assert (target.read_bytes(), saved.read_bytes()) == (before, kept)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {plain, target, saved}


@pytest.mark.parametrize("alias", ["saved", "./saved", "link/saved"])
def test_a_file_does_not_replace_its_only_key(
    alias: str, plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.symlink(".", "link")
    for target in ("saved", b"saved", Path("saved"), (tmp_path / "saved").as_uri()):
        with pytest.raises(ValueError, match="would replace its only key"):
            ags1.encrypt_file(plain, target, key_metadata_out=alias)
    assert not Path("saved").exists()


def test_a_key_that_cannot_be_saved_lets_no_pipe_replace_a_file(target: Path, tmp_path: Path) -> None:
    target.write_bytes(b"before")
    reading, writing = os.pipe()
    os.write(writing, b"nobody has this again")
    os.close(writing)
    with open(reading, "rb") as source, pytest.raises(FileNotFoundError):
        ags1.encrypt_file(source, target, key_metadata_out=tmp_path / "missing/saved")
    assert target.read_bytes() == b"before"


def test_the_key_of_what_came_through_a_pipe_is_saved_with_its_length(target: Path, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"some text")
    os.close(writing)
    with open(reading, "rb") as source:
        ags1.encrypt_file(source, target, key_metadata_out=tmp_path / "saved")
    metadata = ags1.KeyMetadata.load(tmp_path / "saved")
    assert metadata.file_length == target.stat().st_size
    assert (tmp_path / "saved").stat().st_mode & 0o777 == 0o600
    with ags1.open(target, key_metadata=metadata) as reader:
        assert reader.read() == b"some text"


def test_a_given_prefix_stays_with_a_fresh_key(plain: Path, target: Path) -> None:
    assert ags1.encrypt_file(plain, target, aad_prefix=b"name").aad_prefix == b"name"


def test_the_default_is_what_iceberg_reads(plain: Path, target: Path) -> None:
    encrypt(plain, target)
    with ags1.open(target, key=KEY, aad_prefix=PREFIX) as reader:
        assert reader.block_length == MIB


def test_the_same_file_encrypted_twice_differs_everywhere(plain: Path, target: Path) -> None:
    encrypt(plain, target)
    first = target.read_bytes()
    encrypt(plain, target)
    second = target.read_bytes()
    assert first[:8] == second[:8]
    assert not {*checks.nonces_of(first, MIB)} & {*checks.nonces_of(second, MIB)}


# -- kinds of input and output -------------------------------------------------------------------------------


class OnlyRead:
    """A source that has read and nothing else."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def read(self, size: int) -> bytes:
        return self._file.read(size)


INPUTS: dict[str, Callable[[Path], Any]] = {
    "str": str,
    "pathlib": Path,
    "file URL": lambda path: f"file://{path}",
    "file": lambda path: open(path, "rb"),  # noqa: SIM115
    "raw file": lambda path: open(path, "rb", buffering=0),  # noqa: SIM115
    "BytesIO": lambda path: io.BytesIO(path.read_bytes()),
    "short reads": lambda path: checks.ShortReads(path.read_bytes(), most=70_001),
    "pipe": lambda path: checks.Pipe(path.read_bytes(), most=70_001),
    "only read": lambda path: OnlyRead(path.read_bytes()),
}
OUTPUTS: dict[str, Callable[[Path], Any]] = {
    "str": str,
    "bytes": os.fsencode,
    "pathlib": Path,
    "file URL": lambda path: f"file://{path}",
    "file": lambda path: open(path, "wb"),  # noqa: SIM115
    "raw file": lambda path: open(path, "wb", buffering=0),  # noqa: SIM115
}


@pytest.mark.parametrize("output", sorted(OUTPUTS))
@pytest.mark.parametrize("source", sorted(INPUTS))
def test_every_input_with_every_output(source: str, output: str, plain: Path, target: Path, tmp_path: Path) -> None:
    back = tmp_path / "back"
    for function, start, end in ((encrypt, plain, target), (decrypt, target, back)):
        given, taken = INPUTS[source](start), OUTPUTS[output](end)
        function(given, taken)
        for borrowed in (given, taken):
            if hasattr(borrowed, "close"):
                assert not borrowed.closed
                borrowed.close()
    assert ags1.decrypt(target.read_bytes(), KEY, aad_prefix=PREFIX) == pattern(LENGTH)
    assert back.read_bytes() == pattern(LENGTH)
    assert only_target(target)


@pytest.mark.parametrize("kind", checks.BUFFER_KINDS, ids=str)
def test_a_buffer_can_be_decrypted(kind: checks.BufferKind, target: Path) -> None:
    length = next(n for n in range(3000, 3200) if ags1.encrypted_length(n, BLOCK) % kind.itemsize == 0)
    stream = ags1.encrypt(pattern(length), KEY, aad_prefix=PREFIX, block_length=BLOCK)
    assert decrypt(kind.make(stream), target) == length
    assert target.read_bytes() == pattern(length)
    taken = io.BytesIO()
    assert decrypt(kind.make(stream), taken) == length
    assert taken.getvalue() == pattern(length)


@pytest.mark.timeout(60)
def test_fifos_are_opened_once(plain: Path, target: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    back = tmp_path / "back"
    # A FIFO that is opened, closed and opened again loses its other end in between.
    checks.in_threads([lambda: encrypt(fifo, target), lambda: fifo.write_bytes(pattern(LENGTH))])
    stream = checks.in_threads([fifo.read_bytes, lambda: encrypt(plain, fifo)])[0]
    assert ags1.decrypt(stream, KEY, aad_prefix=PREFIX) == pattern(LENGTH)
    checks.in_threads([lambda: decrypt(fifo, back), lambda: fifo.write_bytes(target.read_bytes())])
    assert back.read_bytes() == pattern(LENGTH)
    assert checks.in_threads([fifo.read_bytes, lambda: decrypt(target, fifo)])[0] == pattern(LENGTH)


def test_what_is_no_file_is_refused(plain: Path, target: Path) -> None:
    for wrong in (None, 5, [b"data"]):
        with pytest.raises(TypeError, match="source must be a path, a URL or a binary file object"):
            encrypt(wrong, target)
        with pytest.raises(TypeError, match="a path, a URL or a binary file object is needed to write to"):
            encrypt(plain, wrong)
        with pytest.raises(TypeError, match="a path, a URL or a binary file object is needed to write to"):
            decrypt(ags1.encrypt(b"", KEY, aad_prefix=PREFIX), wrong)
    with pytest.raises(TypeError, match="this one is text"):
        encrypt(io.StringIO("text"), target)
    with pytest.raises(TypeError, match="this one is text"):
        encrypt(plain, io.StringIO())
    with pytest.raises(TypeError, match="this one is text"):
        decrypt(io.StringIO("text"), target)
    assert nothing(target)


def test_missing_and_misplaced_files_are_named(plain: Path, sealed: Path, target: Path, tmp_path: Path) -> None:
    before = open_descriptors()
    for function, source in ((encrypt, plain), (decrypt, sealed)):
        with pytest.raises(FileNotFoundError, match=r"no-such\.bin"):
            function(tmp_path / "no-such.bin", target)
        with pytest.raises(IsADirectoryError, match=tmp_path.name):
            function(tmp_path, target)
        with pytest.raises(IsADirectoryError, match=tmp_path.name):
            function(source, tmp_path)
        with pytest.raises(FileNotFoundError, match=r"no-such.target\.bin"):
            function(source, tmp_path / "no-such" / "target.bin")
    assert nothing(target)
    assert open_descriptors() == before


def test_keys_that_contradict_or_miss_are_refused(sealed: Path, target: Path) -> None:
    with pytest.raises(TypeError, match="a key is needed"):
        ags1.decrypt_file(sealed, target)
    with pytest.raises(TypeError, match="not both"):
        ags1.decrypt_file(sealed, target, KEY, key_metadata=ags1.KeyMetadata(KEY, PREFIX))
    assert nothing(target)


# -- the same file -------------------------------------------------------------------------------------------


def test_source_and_target_must_not_be_one_file(plain: Path, sealed: Path, tmp_path: Path) -> None:
    for function, source in ((encrypt, plain), (decrypt, sealed)):
        before = source.read_bytes()
        hard, soft = tmp_path / "hard", tmp_path / "soft"
        hard.hardlink_to(source)
        soft.symlink_to(source)
        for target in (source, str(source), os.fsencode(source), f"file://{source}", hard, soft):
            with pytest.raises(ValueError, match="source and target are the same file"):
                function(source, target)
        assert source.read_bytes() == before
        hard.unlink()
        soft.unlink()


def test_a_hard_link_to_the_old_target_keeps_the_old_content(plain: Path, target: Path, tmp_path: Path) -> None:
    target.write_bytes(b"old")
    other = tmp_path / "other"
    other.hardlink_to(target)
    encrypt(plain, target)
    assert other.read_bytes() == b"old"


# -- progress ------------------------------------------------------------------------------------------------


def test_progress_starts_at_nothing_never_falls_and_ends_with_all(plain: Path, target: Path, tmp_path: Path) -> None:
    for function, source, end in ((encrypt, plain, target), (decrypt, target, tmp_path / "back")):
        options: dict[str, Any] = {"block_length": BLOCK} if function is encrypt else {}
        calls: list[tuple[int, int | None]] = []
        function(source, end, progress=lambda *call, calls=calls: calls.append(call), **options)
        # Windows after the first are as long as the machine's speed allows.
        assert calls[:2] == [(0, LENGTH), (WINDOW, LENGTH)]
        assert calls[-1] == (LENGTH, LENGTH)
        assert calls == sorted(set(calls))


def test_progress_of_an_empty_file_and_of_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    calls: list[tuple[int, int | None]] = []
    encrypt(tmp_path / "empty", tmp_path / "sealed", progress=lambda *call: calls.append(call))
    assert set(calls) == {(0, 0)}
    calls.clear()
    encrypt(checks.Pipe(pattern(1000)), tmp_path / "sealed", progress=lambda *call: calls.append(call))
    assert calls == [(0, None), (1000, None)]


@pytest.mark.parametrize("error", [Stopped, KeyboardInterrupt])
@pytest.mark.parametrize("when", [0, WINDOW, LENGTH])
@pytest.mark.parametrize("named", [False, True])
def test_an_exception_in_progress_stops_and_leaves_what_was_there(
    when: int, error: type[BaseException], named: bool, plain: Path, sealed: Path, target: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if named:
        monkeypatch.delattr(os, "O_TMPFILE")

    def stop(done: int, total: int | None) -> None:
        if done == when:
            raise error

    for function, source in (
        (functools.partial(encrypt, block_length=BLOCK), plain),
        (decrypt, sealed),
        (encrypt, io.BytesIO(plain.read_bytes())),
        (decrypt, io.BytesIO(sealed.read_bytes())),
    ):
        streamed = isinstance(source, io.BytesIO)
        if streamed and when == WINDOW:
            continue
        with pytest.raises(error):
            function(source, target, progress=stop)
        assert nothing(target)
        target.write_bytes(b"old")
        if streamed:
            source.seek(0)
        with pytest.raises(error):
            function(source, target, progress=stop)
        assert target.read_bytes() == b"old"
        assert only_target(target)
        target.unlink()


class Clock:
    """A second later, each time that it is looked at."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1
        return self.now


@pytest.mark.parametrize("threads", [1, 3])
def test_progress_comes_while_threads_work_and_an_exception_stops_them(
    threads: int, plain: Path, sealed: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "time", Clock())
    done: list[int] = []

    def stop(now: int, total: int | None) -> None:
        if now % WINDOW:
            raise Stopped

    for function, source in ((functools.partial(encrypt, block_length=BLOCK), plain), (decrypt, sealed)):
        done.clear()
        function(source, target, threads=threads, progress=lambda now, total: done.append(now))
        assert done == sorted(done)
        assert len(done) > 10
        target.unlink()
        with pytest.raises(Stopped):
            function(source, target, threads=threads, progress=stop)
        assert nothing(target)


# -- sources that change -------------------------------------------------------------------------------------


def at(when: int, action: Callable[[], Any]) -> Callable[[int, int | None], None]:
    def progress(done: int, total: int | None) -> None:
        if done == when:
            action()

    return progress


@pytest.mark.parametrize("when", [0, WINDOW])
@pytest.mark.parametrize("length", [0, WINDOW, LENGTH - 1])
def test_a_source_that_shrinks_while_it_is_encrypted(when: int, length: int, plain: Path, target: Path) -> None:
    shrink = at(when, lambda: os.truncate(plain, length))
    with pytest.raises(OSError, match=r"plain\.bin became shorter while it was being encrypted"):
        encrypt(plain, target, block_length=BLOCK, progress=shrink)
    assert nothing(target)


@pytest.mark.parametrize("when", [0, WINDOW, LENGTH])
@pytest.mark.parametrize("how", ["grows", "is written"])
def test_a_source_that_changes_while_it_is_encrypted(when: int, how: str, plain: Path, target: Path) -> None:
    os.utime(plain, ns=(10**18, 10**18))

    def change() -> None:
        with open(plain, "r+b") as file:
            file.seek(0, os.SEEK_END if how == "grows" else os.SEEK_SET)
            file.write(b"more")

    with pytest.raises(OSError, match=r"was changed after it was opened.*plain\.bin"):
        encrypt(plain, target, block_length=BLOCK, progress=at(when, change))
    assert nothing(target)


def test_a_file_that_shrinks_while_it_is_streamed_elsewhere(plain: Path) -> None:
    plain.write_bytes(bytes(20 * MIB))
    sink = io.BytesIO()
    with pytest.raises(
        (OSError, ags1.TruncatedError), match=r"shorter than it was when it was opened|was changed after it was opened"
    ):
        encrypt(plain, sink, progress=at(8 * MIB, lambda: os.truncate(plain, 8 * MIB)))
    with pytest.raises(ags1.Ags1Error):
        ags1.decrypt(sink.getvalue(), KEY, aad_prefix=PREFIX)


def test_an_encrypted_file_that_shrinks_while_it_is_decrypted(sealed: Path, target: Path) -> None:
    with pytest.raises(ags1.TruncatedError, match=r"in\.ags1 ends inside block \d+: it became shorter"):
        decrypt(sealed, target, progress=at(WINDOW, lambda: os.truncate(sealed, 3 * MIB)))
    assert nothing(target)


@pytest.mark.parametrize("kind", ["raw", "only read"])
def test_a_source_that_has_no_data_now_is_no_shorter_file(kind: str, target: Path) -> None:
    class Waits(checks.NoneReads):
        pass

    source: Any = Waits(pattern(1000), after=0)
    if kind == "only read":
        source = OnlyRead(b"")
        source.read = lambda size: None
    with pytest.raises(BlockingIOError, match="non-blocking and has no data now"):
        encrypt(source, target)
    assert nothing(target)


# -- damage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("index", [0, 5, WINDOW // BLOCK + 3])
def test_a_damaged_file_is_named_with_its_block_and_nothing_is_left(
    index: int, streamed: bool, sealed: Path, target: Path
) -> None:
    sealed.write_bytes(checks.damage(sealed.read_bytes(), BLOCK, index))
    source: Any = io.BytesIO(sealed.read_bytes()) if streamed else sealed
    with pytest.raises(ags1.AuthenticationError, match=f"block {index} failed") as caught:
        decrypt(source, target)
    assert caught.value.block_index == index
    assert streamed or sealed.name in str(caught.value)
    assert nothing(target)


def test_a_trusted_length_finds_lost_blocks_and_none_does_not(sealed: Path, target: Path) -> None:
    length = sealed.stat().st_size
    os.truncate(sealed, checks.block_start(7, BLOCK))
    with pytest.raises(ags1.TruncatedError, match="bytes are missing at its end"):
        decrypt(sealed, target, length=length)
    with pytest.raises(ags1.TruncatedError, match="bytes are missing at its end"):
        ags1.decrypt_file(sealed, target, key_metadata=ags1.KeyMetadata(KEY, PREFIX, length))
    assert nothing(target)
    assert decrypt(sealed, target) == 7 * BLOCK


# -- crashes and full disks ----------------------------------------------------------------------------------


KILLS = """
    import os, signal, sys, ags1
    source, target, how = sys.argv[1:]
    if "named" in how:
        del os.O_TMPFILE
    def kill(done, total):
        if done == 2 << 20:
            os.kill(os.getpid(), signal.SIGKILL)
    if "decrypt" in how:
        ags1.decrypt_file(source, target, bytes(range(1, 33)), aad_prefix=b"1234567890123456", progress=kill)
    else:
        ags1.encrypt_file(source, target, block_length=16, progress=kill)
"""


def has_unnamed_files(directory: Path) -> bool:
    try:
        os.close(os.open(directory, os.O_TMPFILE | os.O_RDWR))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("how", ["encrypt", "encrypt named", "decrypt", "decrypt named"])
@pytest.mark.parametrize("old", [None, b"old"])
def test_sigkill_in_mid_write_leaves_no_target(
    how: str, old: bytes | None, plain: Path, sealed: Path, target: Path
) -> None:
    if old is not None:
        target.write_bytes(old)
    source = sealed if "decrypt" in how else plain
    command = [sys.executable, "-c", textwrap.dedent(KILLS), str(source), str(target), how]
    done = subprocess.run(command, capture_output=True, check=False, timeout=600)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = set(os.listdir(target.parent)) - ({target.name} if old is not None else set())
    assert target.name not in left
    assert old is None or target.read_bytes() == old
    if "named" in how:
        assert all(name.startswith(".") and name.endswith(".ags1-tmp") for name in left)
    elif has_unnamed_files(target.parent):
        assert left == set()


FILLS = """
    import errno, os, sys, ags1
    source, sealed, directory, key = *sys.argv[1:4], bytes(range(1, 33))
    target = os.path.join(directory, "target")
    if "limit" in sys.argv[4]:
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    for named in (False, True):
        if named:
            del os.O_TMPFILE
        for stream in (False, True):
            for function, path in ((ags1.encrypt_file, source), (ags1.decrypt_file, sealed)):
                given = open(path, "rb") if stream else path
                try:
                    function(given, target, key, aad_prefix=b"1234567890123456")
                except OSError as error:
                    assert error.errno in (errno.ENOSPC, errno.EFBIG), error
                    assert stream or error.filename == target, error
                else:
                    raise AssertionError("written")
                assert os.listdir(directory) == []
    print("full")
"""


def test_a_full_disk_is_an_error_and_leaves_nothing(plain: Path, sealed: Path, target: Path) -> None:
    program = [sys.executable, "-c", textwrap.dedent(FILLS), str(plain), str(sealed), str(target.parent)]
    script = 'mount -t tmpfs -o size=1m ags1-tests "$1" || exit 77; shift; exec "$@"'
    mounted = None
    if os.getuid() == 0 and shutil.which("unshare"):
        # A mount of its own, gone with the process.
        command = ["unshare", "--mount", "sh", "-c", script, "sh", str(target.parent), *program, "mounted"]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        refused = mounted.returncode == 77 or "unshare" in mounted.stderr
        assert refused or mounted.stdout == "full\n", mounted.stderr
    limited = subprocess.run([*program, "limit"], capture_output=True, text=True, check=False, timeout=600)
    assert limited.stdout == "full\n", limited.stderr


def test_a_failed_run_leaves_an_existing_target_alone(plain: Path, sealed: Path, target: Path) -> None:
    target.write_bytes(b"old")
    before = target.stat()
    sealed.write_bytes(checks.damage(sealed.read_bytes(), BLOCK, 3))
    with pytest.raises(ags1.AuthenticationError, match="block 3"):
        decrypt(sealed, target)
    with pytest.raises(OSError, match="Input/output error"):
        encrypt(checks.FailingReads(pattern(LENGTH), MIB), target)
    after = target.stat()
    assert (after.st_ino, after.st_mtime_ns, target.read_bytes()) == (
        before.st_ino,
        before.st_mtime_ns,
        b"old",
    )
    assert only_target(target)


def test_a_failing_sink_is_an_error(plain: Path, sealed: Path) -> None:
    for function, source in ((encrypt, plain), (decrypt, sealed)):
        with pytest.raises(OSError, match="No space left") as caught:
            function(source, checks.FailingWrites(100_000))
        assert caught.value.errno == errno.ENOSPC


def test_fsync_reaches_the_file_and_its_directory(
    plain: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, int]] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        status = os.fstat(descriptor)
        synced.append((status.st_dev, status.st_ino))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    for function, source, end in ((encrypt, plain, target), (decrypt, target, tmp_path / "back")):
        synced.clear()
        function(source, end)
        assert synced == []
        function(source, end, durable=True)
        assert synced == [(path.stat().st_dev, path.stat().st_ino) for path in (end, end.parent)]
    synced.clear()
    for function, data, end in ((encrypt, b"x", target), (decrypt, None, tmp_path / "back")):
        read, write = os.pipe()
        with open(write, "wb") as pipe:
            pipe.write(target.read_bytes() if data is None else data)
        with open(read, "rb") as pipe:
            function(pipe, end, durable=True)
        assert synced[-2:] == [(path.stat().st_dev, path.stat().st_ino) for path in (end, end.parent)]


# -- permissions ---------------------------------------------------------------------------------------------

MODES = (0o600, 0o400, 0o640, 0o644, 0o666, 0o755, 0o777, 0o4755)


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("usual_umask")
@pytest.mark.parametrize("given", ["path", "object"])
@pytest.mark.parametrize("mode", MODES)
def test_a_file_keeps_its_permission_bits_through_encryption_and_decryption(
    mode: int, given: str, plain: Path, tmp_path: Path
) -> None:
    sealed, again = tmp_path / "sealed", tmp_path / "again"
    plain.chmod(mode)
    ags1.encrypt_file(plain, sealed, KEY)
    assert mode_of(sealed) == mode & 0o755
    sealed.chmod(mode)
    if given == "path":
        ags1.decrypt_file(sealed, again, KEY)
    else:
        with open(sealed, "rb") as file:
            ags1.decrypt_file(file, again, KEY)
    assert mode_of(again) == mode & 0o755
    assert again.read_bytes() == plain.read_bytes()


@pytest.mark.usefixtures("usual_umask")
@pytest.mark.parametrize(("mode", "old", "new"), [(0o600, 0o644, 0o600), (0o644, 0o600, 0o600), (0o666, 0o666, 0o666)])
def test_a_replaced_target_is_never_wider_than_the_source_or_than_it_was(
    mode: int, old: int, new: int, plain: Path, sealed: Path, target: Path
) -> None:
    for source, call in ((plain, ags1.encrypt_file), (sealed, ags1.decrypt_file)):
        source.chmod(mode)
        target.write_bytes(b"what was there")
        target.chmod(old)
        call(source, target, KEY, aad_prefix=PREFIX)
        assert mode_of(target) == new


@pytest.mark.usefixtures("usual_umask")
def test_what_has_no_permission_bits_gives_the_usual_ones(plain: Path, target: Path) -> None:
    ags1.encrypt_file(io.BytesIO(b"data"), target, KEY)
    assert mode_of(target) == 0o644
    stream = target.read_bytes()
    target.unlink()
    ags1.decrypt_file(stream, target, KEY)
    assert mode_of(target) == 0o644
