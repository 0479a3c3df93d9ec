"""No byte of plaintext is seen before its tag has verified: not in buffers, files, pipes, results or tracebacks."""

from __future__ import annotations

import io
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1.core import blocks as native_blocks
from tests import checks, reference
from tests.checks import HEADER, KEY, OVERHEAD, PREFIX, damage, pattern
from tests.threats import memory

BLOCK = 4096
COUNT = 24
PLAIN = pattern(COUNT * BLOCK - 100)
STREAM = reference.encrypt(PLAIN, KEY, PREFIX, BLOCK)
OPTIONS: dict[str, Any] = {"aad_prefix": PREFIX}
SENTINEL = 0xA5
THREADS = pytest.mark.parametrize("threads", [1, 4])
DAMAGED = pytest.mark.parametrize("bad", [0, 1, COUNT // 2, COUNT - 1])


def filled(size: int) -> bytearray:
    return bytearray([SENTINEL]) * size


# -- memory of the caller's ----------------------------------------------------------------------------------


@THREADS
@DAMAGED
def test_decrypt_into_wipes_the_whole_range_and_nothing_else(threads: int, bad: int) -> None:
    out = filled(len(PLAIN) + 500)
    with pytest.raises(ags1.AuthenticationError, match=f"block {bad} failed"):
        ags1.decrypt_into(damage(STREAM, BLOCK, bad), out, KEY, threads=threads, **OPTIONS)
    assert out[: len(PLAIN)] == bytes(len(PLAIN))
    assert out[len(PLAIN) :] == filled(500)


@THREADS
@DAMAGED
def test_open_blocks_wipes_the_whole_range_and_nothing_else(threads: int, bad: int) -> None:
    out = filled(len(PLAIN) + 500)
    data = memoryview(damage(STREAM, BLOCK, bad))[HEADER:]
    with pytest.raises(ags1.AuthenticationError, match=f"block {bad} failed"):
        native_blocks.open_blocks(data, out, KEY, PREFIX, BLOCK, 0, threads)
    assert out == bytes(len(PLAIN)) + filled(500)


@THREADS
@DAMAGED
@pytest.mark.parametrize("source", ["memory", "file", "object"])
@pytest.mark.parametrize("shift", [0, 17])
def test_pread_into_wipes_what_it_was_to_fill(threads: int, bad: int, source: str, shift: int, tmp_path: Path) -> None:
    # Whole blocks go straight into the caller's memory, edges through a block of the Reader's.
    stream = damage(STREAM, BLOCK, bad)
    (tmp_path / "stream").write_bytes(stream)
    opened: Any = {"memory": stream, "file": tmp_path / "stream", "object": io.BytesIO(stream)}[source]
    with ags1.Reader(opened, KEY, threads=threads, **OPTIONS) as reader:
        out = filled(len(PLAIN) + 500)
        view = memoryview(out)
        with pytest.raises(ags1.AuthenticationError, match=f"block {bad} failed"):
            reader.pread_into(shift, view[: len(PLAIN) - shift])
        assert out[: len(PLAIN) - shift] == bytes(len(PLAIN) - shift)
        assert out[len(PLAIN) - shift :] == filled(500 + shift)


@THREADS
@DAMAGED
def test_readinto_never_shows_what_is_behind_the_damage(threads: int, bad: int) -> None:
    with ags1.Reader(damage(STREAM, BLOCK, bad), KEY, threads=threads, **OPTIONS) as reader:
        out = filled(len(PLAIN))
        with pytest.raises(ags1.AuthenticationError, match=f"block {bad} failed"):
            reader.readinto(out)
        # BufferedReader may have filled a part before: only of blocks in front of the damage.
        assert not find_plain(out, from_block=bad)


@DAMAGED
def test_sequential_reads_stop_at_a_block_boundary_before_the_damage(bad: int) -> None:
    with ags1.Reader(damage(STREAM, BLOCK, bad), KEY, threads=1, **OPTIONS) as reader:
        got = bytearray()
        pieces = iter(lambda: reader.read(1000), b"")
        with pytest.raises(ags1.AuthenticationError, match=f"block {bad} failed"):
            collect(pieces, got)
        assert PLAIN.startswith(bytes(got))
        assert len(got) <= bad * BLOCK
        with pytest.raises(ags1.AuthenticationError, match="refuses everything since"):
            reader.peek()


def collect(pieces: Iterator[bytes], into: bytearray) -> None:
    """Keep what comes, also if something fails in the end."""
    for piece in pieces:
        into += piece


def find_plain(data: Any, from_block: int = 0) -> list[int]:
    """Blocks of the plaintext of which 32 bytes somewhere in the middle are in the data."""
    octets = bytes(data)
    middles = {block: PLAIN[block * BLOCK + 1000 : block * BLOCK + 1032] for block in range(from_block, COUNT)}
    return [block for block, middle in middles.items() if middle in octets]


# -- results -------------------------------------------------------------------------------------------------


@THREADS
@DAMAGED
def test_decrypt_many_returns_nothing_of_a_batch_with_one_bad_stream(threads: int, bad: int) -> None:
    batch = [STREAM, damage(STREAM, BLOCK, bad), STREAM]
    with pytest.raises(ags1.AuthenticationError, match=rf"buffer 1: block {bad} failed") as caught:
        ags1.decrypt_many(batch, KEY, aad_prefixes=[PREFIX] * 3, threads=threads)
    assert not any(find_plain(each) for each in reachable(caught.value))


def test_decrypt_many_returns_nothing_when_a_late_chunk_fails() -> None:
    # More buffers than are held at once: the first ones were decrypted long before the last is looked at.
    small = reference.encrypt(b"the same small text", KEY, PREFIX, BLOCK)
    for last, error in (
        (damage(small, BLOCK, 0), ags1.AuthenticationError),
        (checks.flip(small, -1), ags1.AuthenticationError),
        (b"PAR1" + small, ags1.FormatError),
        (small[:20], ags1.TruncatedError),
    ):
        batch = [small] * 20_000 + [last]
        with pytest.raises(error, match="buffer 20000") as caught:
            ags1.decrypt_many(batch, KEY, aad_prefixes=[PREFIX] * len(batch), threads=2)
        assert not any(b"the same small" in bytes(each) for each in reachable(caught.value))


def reachable(error: BaseException) -> Iterator[Any]:
    """Buffers in an exception: its arguments, attributes, causes, and the local variables of its frames in ags1."""
    seen: set[int] = set()
    pending: list[Any] = [error]
    while pending:
        item = pending.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, memoryview):
            try:
                yield bytes(item)
            except ValueError:
                # Released: it shows nothing any more.
                continue
        elif isinstance(item, (bytes, bytearray)):
            yield item
        elif isinstance(item, BaseException):
            pending += [*item.args, *vars(item).values(), item.__cause__, item.__context__]
            trace = item.__traceback__
            while trace is not None:
                if f"{os.sep}ags1{os.sep}" in trace.tb_frame.f_code.co_filename:
                    # BufferedReader's memory comes uninitialised from the heap: what older tests left is not ours.
                    pending += [value for name, value in trace.tb_frame.f_locals.items() if name != "buffer"]
                trace = trace.tb_next
        elif isinstance(item, (list, tuple)):
            pending += item
        elif type(item).__module__.startswith("ags1"):
            pending += getattr(item, "__dict__", {}).values()


@DAMAGED
@pytest.mark.parametrize("source", ["memory", "file", "object", "pipe"])
def test_an_exception_carries_no_unverified_plaintext(bad: int, source: str, tmp_path: Path) -> None:
    stream = damage(STREAM, BLOCK, bad)
    (tmp_path / "stream").write_bytes(stream)
    sources: dict[str, Any] = {
        "memory": stream, "file": tmp_path / "stream", "object": io.BytesIO(stream), "pipe": checks.Pipe(stream),
    }  # fmt: skip
    with ags1.Reader(sources[source], KEY, **OPTIONS) as reader:
        with pytest.raises(ags1.AuthenticationError, match=f"block {bad} failed") as caught:
            reader.read()
        found = [block for each in reachable(caught.value) for block in find_plain(each, bad)]
        assert not found, "the block that failed, or one behind it, hangs on the exception"


def test_no_plaintext_of_a_failed_block_stays_anywhere_in_the_process(tmp_path: Path) -> None:
    # The whole memory of a process is searched after it failed in every way: also heap that was freed, and stacks.
    unverified, verified = os.urandom(40), os.urandom(40)
    plain = bytearray(PLAIN)
    plain[7 * BLOCK + 2000 : 7 * BLOCK + 2040] = unverified
    path, good = tmp_path / "stream.ags1", tmp_path / "good.ags1"
    path.write_bytes(damage(reference.encrypt(bytes(plain), KEY, PREFIX, BLOCK), BLOCK, 7))
    good.write_bytes(reference.encrypt(verified, KEY, PREFIX, BLOCK))
    hits = memory.count_after(
        """
        import ags1
        path, good, key, prefix = *sys.argv[1:3], *map(bytes.fromhex, sys.argv[3:])
        with open(path, "rb") as file:
            stream = file.read()
        options = {"aad_prefix": prefix}
        attempts = [
            lambda: ags1.decrypt(stream, key, **options),
            lambda: ags1.decrypt(stream, key, threads=3, **options),
            lambda: ags1.decrypt_many([stream, stream], key, aad_prefixes=[prefix] * 2),
            lambda: ags1.decrypt_file(path, path + ".plain", key, **options),
            lambda: ags1.decrypt_file(path, path + ".plain", key, threads=3, **options),
            lambda: ags1.Reader(path, key, **options).pread(7 * 4096 + 10, 100),
            lambda: ags1.Reader(path, key, **options).read(),
            lambda: ags1.Reader(stream, key, **options).readinto(bytearray(40_000)),
            lambda: ags1.Reader(open(path, "rb"), key, **options).read(),
        ]
        errors = []
        for attempt in attempts:
            try:
                attempt()
            except ags1.AuthenticationError as error:
                errors.append(error)
        assert [error.block_index for error in errors] == [7] * len(attempts)
        assert ags1.verify_file(path, key, **options).findings[0].details["blocks"] == [7]
        kept = ags1.decrypt_file(good, good + ".plain", key, **options), ags1.Reader(good, key, **options).read()
        """,
        b"", [unverified, verified], str(path), str(good), KEY.hex(), PREFIX.hex(),
    )  # fmt: skip
    assert hits[1] > 0, "the search finds nothing at all"
    assert hits[0] == 0


# -- files ---------------------------------------------------------------------------------------------------


@DAMAGED
@pytest.mark.parametrize("existed", [False, True])
def test_decrypt_file_shows_no_name_before_the_last_tag(bad: int, existed: bool, tmp_path: Path) -> None:
    source, directory = tmp_path / "stream.ags1", tmp_path / "out"
    source.write_bytes(damage(STREAM, BLOCK, bad))
    directory.mkdir()
    target = directory / "plain"
    if existed:
        target.write_bytes(b"what was there")
    seen: list[list[bytes]] = []

    def look(done: int, total: int | None) -> None:
        seen.append([each.read_bytes() for each in directory.iterdir()])

    with pytest.raises(ags1.AuthenticationError, match=f"block {bad} failed"):
        ags1.decrypt_file(source, target, KEY, progress=look, **OPTIONS)
    expected = [b"what was there"] if existed else []
    assert seen
    assert all(each == expected for each in seen)
    assert [each.read_bytes() for each in directory.iterdir()] == expected


def test_decrypt_file_keeps_the_output_nameless_while_it_works(tmp_path: Path) -> None:
    source, directory = tmp_path / "stream.ags1", tmp_path / "out"
    directory.mkdir()
    ags1.encrypt_file(io.BytesIO(checks.large()), source, KEY)
    seen: list[int] = []
    ags1.decrypt_file(
        source, directory / "plain", KEY, progress=lambda done, total: seen.append(len(os.listdir(directory)))
    )
    assert set(seen) == {0}
    assert (directory / "plain").read_bytes() == checks.large()


@DAMAGED
@pytest.mark.timeout(30)
def test_a_fifo_receives_only_blocks_that_verified(bad: int, tmp_path: Path) -> None:
    source, target = tmp_path / "stream.ags1", tmp_path / "fifo"
    source.write_bytes(damage(STREAM, BLOCK, bad))
    os.mkfifo(target)
    received: list[bytes] = []

    def drain() -> None:
        with open(target, "rb") as end:
            received.append(end.read())

    thread = threading.Thread(target=drain)
    thread.start()
    with pytest.raises(ags1.AuthenticationError, match=f"block {bad} failed"):
        ags1.decrypt_file(source, target, KEY, **OPTIONS)
    thread.join()
    assert PLAIN.startswith(received[0])
    assert len(received[0]) <= bad * BLOCK
    assert stat.S_ISFIFO(target.stat().st_mode)


@DAMAGED
@pytest.mark.timeout(30)
@pytest.mark.parametrize("most", [1, 4099, 1 << 20])
def test_from_a_pipe_into_a_file_object_only_blocks_that_verified(bad: int, most: int) -> None:
    sink = io.BytesIO()
    # Small blocks and slow sources: what arrived in pieces is no more trusted than what came at once.
    plain = PLAIN[:600]
    stream = damage(reference.encrypt(plain, KEY, PREFIX, 25), 25, bad % 24)
    with pytest.raises(ags1.AuthenticationError, match=f"block {bad % 24} failed"):
        ags1.decrypt_file(checks.Pipe(stream, most), sink, KEY, **OPTIONS)
    assert plain.startswith(sink.getvalue())
    assert len(sink.getvalue()) <= (bad % 24) * 25


def test_what_a_truncated_pipe_gave_is_authentic_and_the_end_is_refused() -> None:
    cut = STREAM[: HEADER + 3 * (BLOCK + OVERHEAD)]
    with ags1.Reader(checks.Pipe(cut), KEY, length=len(STREAM), **OPTIONS) as reader:
        got = bytearray()
        with pytest.raises(ags1.TruncatedError, match="missing at its end"):
            collect(iter(lambda: reader.read(100), b""), got)
        assert PLAIN.startswith(bytes(got))


def test_verify_file_never_writes(tmp_path: Path) -> None:
    path = tmp_path / "stream.ags1"
    path.write_bytes(damage(STREAM, BLOCK, 3))
    os.chmod(tmp_path, 0o500)
    before = os.stat(path).st_mtime_ns
    report = ags1.verify_file(path, KEY, **OPTIONS)
    os.chmod(tmp_path, 0o700)
    assert report.findings[0].details["blocks"] == [3]
    assert os.listdir(tmp_path) == ["stream.ags1"]
    assert os.stat(path).st_mtime_ns == before
    assert not find_plain(repr(report).encode())
