"""Windows of a Writer: the reference's blocks, whichever thread seals them; limits, forks, full disks."""

from __future__ import annotations

import os
import random
import signal
import tempfile
from pathlib import Path

import pytest

import ags1
from ags1.core.gathered import Gathered, Helper
from tests import reference
from tests.checks import (
    HANG_SECONDS,
    KEY,
    KEYS,
    MIB,
    OVERHEAD,
    PREFIX,
    count_of_messages,
    in_child,
    nonces_of,
    pattern,
    run_python,
)

MAX_BLOCKS = (1 << 31) - 1
HEADER = bytes(8)
BEHIND = pytest.mark.parametrize("behind", [False, True], ids=["at once", "behind"])
IGNORE_FORK_WARNING = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def gathered(data: bytes, block_length: int, blocks: int = 8) -> Gathered:
    made = Gathered(block_length, blocks)
    assert made.take(data) == len(data)
    return made


def helper_if(behind: bool) -> Helper | None:
    return Helper() if behind else None


def sealed_again(
    data: bytes, stored: bytes, block_length: int, first_block: int, key: bytes = KEY, prefix: bytes = PREFIX
) -> bytes:
    """What the reference makes of the data with the nonces of what was stored."""
    starts = range(0, len(data), block_length) or [0]
    return b"".join(
        reference.seal_block(data[start : start + block_length], key, prefix, first_block + number, nonce)
        for number, (start, nonce) in enumerate(zip(starts, nonces_of(HEADER + stored, block_length), strict=True))
    )


# -- what it makes -------------------------------------------------------------------------------------------


@BEHIND
@pytest.mark.parametrize("seed", range(40))
def test_any_pieces_become_the_blocks_of_the_reference(seed: int, behind: bool) -> None:
    choose = random.Random(seed)
    block_length, blocks = choose.randint(1, 400), choose.randint(1, 6)
    key, prefix = choose.choice(list(KEYS.values())), choose.randbytes(choose.choice([0, 1, 16, 5000]))
    made, helper = Gathered(block_length, blocks), helper_if(behind)
    assert made.capacity == block_length * blocks
    # Its memory is used again, by more and by less than was in it before.
    for _ in range(4):
        data, done = choose.randbytes(choose.randint(0, made.capacity)), 0
        while done < len(data):
            piece = data[done : done + choose.randint(0, 2 * block_length)]
            assert made.take(piece) == len(piece)
            done += len(piece)
        assert made.filled == len(data)
        first_block = choose.choice([0, 1, 255, 1 << 24, MAX_BLOCKS - blocks])
        made.start(-1, 0, key, prefix, first_block, helper)
        assert made.wait()
        stored = bytes(made.stored())
        assert stored == sealed_again(data, stored, block_length, first_block, key, prefix)
        made.clear()
        assert made.filled == 0


def test_no_more_is_taken_than_there_is_room_for() -> None:
    made = gathered(pattern(25), 10, 3)
    assert made.take(pattern(100)) == 5
    assert made.take(b"more") == 0
    assert made.filled == made.capacity == 30


@BEHIND
@pytest.mark.parametrize("seed", range(20))
def test_windows_that_take_turns_write_a_stream_that_the_reference_reads(
    seed: int, behind: bool, tmp_path: Path
) -> None:
    choose = random.Random(seed)
    block_length, blocks = choose.randint(1, 3000), choose.randint(1, 5)
    data = choose.randbytes(choose.randint(1, 40 * block_length))
    with open(tmp_path / "stream", "w+b", buffering=0) as file:
        file.write(reference.encrypt(b"", KEY, PREFIX, block_length)[: len(HEADER)])
        offset, first_block, done = len(HEADER), 0, 0
        windows, helper = [Gathered(block_length, blocks) for _ in range(3)], helper_if(behind)
        while True:
            window = windows[0]
            wanted = choose.randint(1, window.capacity)
            done += window.take(data[done : done + wanted])
            # The Writer flushes whole blocks only; what is behind them goes on with the next window.
            windows = [*windows[1:], window]
            windows[0].wait()
            windows[0].clear()
            if done < len(data):
                windows[0].take_rest(window)
            assert (window.filled % block_length == 0) or done == len(data)
            if window.filled:
                window.start(file.fileno(), offset, KEY, PREFIX, first_block, helper, "stream")
                count = -(-window.filled // block_length)
                offset, first_block = offset + window.filled + count * OVERHEAD, first_block + count
            if done == len(data):
                break
        for window in windows:
            window.wait()
    stored = (tmp_path / "stream").read_bytes()
    assert len(stored) == offset
    assert reference.decrypt(stored, KEY, PREFIX, offset) == data


# -- what it refuses -----------------------------------------------------------------------------------------


@BEHIND
def test_what_is_being_sealed_is_neither_begun_again_nor_changed(behind: bool) -> None:
    data = pattern(5000)
    made, helper = gathered(data, 1000), helper_if(behind)
    assert made.wait() is made.stop() is False
    made.start(-1, 0, KEY, PREFIX, 0, helper)
    for _ in range(2):
        for call in (
            lambda: made.start(-1, 0, KEY, PREFIX, 5, helper),
            lambda: made.take(b"more"),
            made.stored,
        ):
            with pytest.raises(ValueError, match="this memory is being sealed"):
                call()
    assert made.wait()
    assert made.wait() is False
    assert made.stored().readonly
    stored = bytes(made.stored())
    assert stored == sealed_again(data, stored, 1000, 0)


@BEHIND
def test_no_block_has_an_index_that_an_int32_cannot_hold(behind: bool) -> None:
    data = pattern(2001)
    made, helper = gathered(data, 1000), helper_if(behind)
    for first_block in (MAX_BLOCKS - 2, MAX_BLOCKS, 1 << 32, 1 << 62):
        with pytest.raises(ags1.LimitError, match=f"above the {MAX_BLOCKS} blocks"):
            made.start(-1, 0, KEY, PREFIX, first_block, helper)
        assert made.wait() is False
    with pytest.raises(ValueError, match="at block -1"):
        made.start(-1, 0, KEY, PREFIX, -1, helper)
    # Nothing was begun: the last three blocks of all are still to be had.
    made.start(-1, 0, KEY, PREFIX, MAX_BLOCKS - 3, helper)
    assert made.wait()
    stored = bytes(made.stored())
    assert stored == sealed_again(data, stored, 1000, MAX_BLOCKS - 3)


def test_a_key_that_has_sealed_all_that_it_may_seals_no_window() -> None:
    key = ags1.Key(KEY)
    made = gathered(pattern(2000), 1000)
    count_of_messages(key).value = (1 << 32) - 2
    made.start(-1, 0, key, PREFIX, 0, Helper())
    assert made.wait()
    with pytest.raises(ags1.LimitError):
        made.start(-1, 0, key, PREFIX, 2, Helper())
    assert made.wait() is False


@pytest.mark.parametrize("threads", [1, 3])
def test_a_writer_refuses_the_block_behind_the_last_and_leaves_nothing(threads: int, tmp_path: Path) -> None:
    def write() -> None:
        with ags1.Writer(tmp_path / "out", KEY, block_length=10, threads=threads) as writer:
            writer.write(bytes(100))
            writer.flush()
            writer._next_block = MAX_BLOCKS - 1
            writer.write(bytes(20))
            writer.flush()

    with pytest.raises(ags1.LimitError):
        write()
    assert os.listdir(tmp_path) == []


# -- forks ---------------------------------------------------------------------------------------------------


@IGNORE_FORK_WARNING
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["wait", "stop", "start", "take", "drop"])
def test_a_forked_child_never_waits_for_its_parents_windows(how: str) -> None:
    data = pattern(8 * MIB)
    with tempfile.TemporaryFile() as file:
        windows, helper = [gathered(data, MIB) for _ in range(3)], Helper()
        for number, window in enumerate(windows):
            window.start(file.fileno(), number * (len(data) + 8 * OVERHEAD), KEY, PREFIX, 8 * number, helper)

        def child() -> bytes:
            # In native code no handler of Python's would run.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(HANG_SECONDS)
            while windows:
                window = windows.pop()
                if how in ("wait", "stop"):
                    with pytest.raises(OSError, match="begun by the process that this one was forked from"):
                        getattr(window, how)()
                elif how in ("start", "take"):
                    with pytest.raises(ValueError, match="this memory is being sealed"):
                        window.take(b"more") if how == "take" else window.start(-1, 0, KEY, PREFIX, 0, None)
                del window
            own = gathered(b"own", MIB)
            with pytest.raises(OSError, match="this helper belongs to the process that this one was forked from"):
                own.start(-1, 0, KEY, PREFIX, 0, helper)
            own.start(-1, 0, KEY, PREFIX, 0, Helper())
            own.wait()
            return bytes(own.stored())

        stored = in_child(child)
        assert stored == sealed_again(b"own", stored, MIB, 0)
        assert [window.wait() for window in windows] == [True] * 3
        file.seek(0)
        stored = file.read()
    assert reference.decrypt(b"AGS1" + MIB.to_bytes(4, "little") + stored, KEY, PREFIX) == 3 * data


# -- a target that takes no more -----------------------------------------------------------------------------

FILLS = """
    import errno, os, resource, signal, sys
    import ags1
    from tests import checks
    directory, SIZE = sys.argv[1], 16 << 20

    def check(number):
        # Several windows of a mebibyte are under way. There is no flush, which would wait for them.
        for ending in ("close", "abort"):
            for piece in (1000, 300_000):
                target, written = directory + "/target", 0
                writer = ags1.Writer(target, checks.KEY, block_length=64 << 10, threads=4)
                try:
                    while written < SIZE:
                        written += writer.write(bytes(piece))
                except OSError as error:
                    assert error.errno == number and error.filename == target, error
                else:
                    raise SystemExit("nothing was refused")
                assert written > 3 << 20, "the first windows were to fit"
                for call in (lambda: writer.write(b"more"), writer.flush):
                    try:
                        call()
                    except (OSError, ValueError):
                        continue
                    raise SystemExit("taken after a failure")
                getattr(writer, ending)()
                assert os.listdir(directory) == []
        print("refused")
"""


def test_a_limit_on_the_size_of_files_met_by_a_window_behind_leaves_nothing(tmp_path: Path) -> None:
    said = run_python(
        FILLS
        + """
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))
    check(errno.EFBIG)
        """,
        str(tmp_path),
    )
    assert said == "refused\n"


def test_a_full_disk_met_by_a_window_behind_leaves_nothing(tmp_path: Path) -> None:
    said = run_python(
        FILLS
        + """
    if checks.mount_small_disk(directory, 4 << 20):
        check(errno.ENOSPC)
        left = os.statvfs(directory)
        assert left.f_bfree == left.f_blocks, "space is still taken"
        """,
        str(tmp_path),
    )
    if not said:
        pytest.skip("only root can mount a small disk here")
    assert said == "refused\n"
