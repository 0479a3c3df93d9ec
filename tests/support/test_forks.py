"""Children that are forked while threads of their parent hold locks read on."""

from __future__ import annotations

import io
import itertools
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1.parquet import ParquetView
from ags1.support import forks
from tests.checks import HANG_SECONDS, KEY, interrupted
from tests.parquet.view_files import NAME, decryption, encrypted

DATA = bytes(range(256)) * 1000


def test_an_interrupt_leaves_no_lock_taken() -> None:
    each = forks.ForkSafeLock()

    def use() -> None:
        with each.lock:
            assert each.lock.locked()

    for moment in itertools.count():
        was_interrupted = interrupted(use, moment, __file__, forks.__file__)
        assert not each.lock.locked()
        if not was_interrupted:
            break
    assert moment >= 3, "nothing was interrupted"


def _child_reads(locks: list[Any], read: Callable[[], bytes], expected: bytes) -> None:
    """Fork while the locks are held, as if by other threads, and read in the child."""
    with ExitStack() as held:
        for lock in locks:
            held.enter_context(lock)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(int(HANG_SECONDS))
                code = 0 if read() == expected else 2
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert read() == expected


@pytest.mark.parametrize("kind", ["file", "file object", "memory"])
def test_a_child_forked_inside_a_pread_reads_on(kind: str, tmp_path: Path) -> None:
    """The threat: a lock that a thread of the parent held is never released in the child."""
    path = tmp_path / "a.ags1"
    path.write_bytes(ags1.encrypt(DATA, KEY, block_length=4096))
    stream: Any = {"file": str(path), "file object": io.BytesIO(path.read_bytes()), "memory": path.read_bytes()}[kind]
    with ags1.open(stream, key=KEY) as reader:
        reader.pread(5, 10)
        plaintext = reader._plaintext
        assert plaintext is not None
        locks = [plaintext._lock] + ([plaintext.source._lock] if kind != "memory" else [])  # type: ignore[attr-defined]
        _child_reads(locks, lambda: reader.pread(5000, 10_000), DATA[5000:15_000])


def test_a_child_closes_the_file_that_another_thread_was_reading(tmp_path: Path) -> None:
    """The threat: the count of readers is never zero again, and each child keeps a descriptor."""
    path = tmp_path / "a.ags1"
    path.write_bytes(ags1.encrypt(DATA, KEY))
    reader = ags1.open(path, key=KEY)
    assert reader._plaintext is not None
    with reader._plaintext.source.descriptor() as descriptor:
        assert descriptor is not None
        child = os.fork()
        if child == 0:
            code = 1
            try:
                reader.close()
                os.fstat(descriptor)
            except OSError:
                code = 0
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    reader.close()


def test_a_child_forked_while_a_view_is_read_reads_on(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(encrypted(NAME, "java"))
    with ParquetView(path, decryption("java")) as view:
        expected = view.pread(0, view.size)
        assert view._layout is not None
        locks = [
            view._lock,
            view._cache.parts._lock.lock,
            *(each._lock for each in view._layout[1] if hasattr(each, "_lock")),
        ]
        _child_reads(locks, lambda: view.pread(0, view.size), expected)
