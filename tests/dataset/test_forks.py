"""Processes that fork while their threads read a dataset or a table: children neither wait for them nor read wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from ags1 import dataset
from ags1.dataset.joined import open_parts
from ags1.iceberg import create_table
from ags1.iceberg.files import file_io
from ags1.support.forks import ForkSafeLock
from tests.checks import HANG_SECONDS, MIB, in_child
from tests.dataset.conftest import fresh
from tests.dataset.test_joined import joined
from tests.streams.test_stream_threads import IGNORE_FORK_WARNING


@contextmanager
def held_by_a_thread(lock: ForkSafeLock) -> Iterator[None]:
    """A lock that another thread of this process has, as it would in the middle of a read."""
    holds, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock.lock:
            holds.set()
            over.wait(HANG_SECONDS)

    thread = threading.Thread(target=hold)
    thread.start()
    assert holds.wait(HANG_SECONDS)
    try:
        yield
    finally:
        over.set()
        thread.join()


@IGNORE_FORK_WARNING
@pytest.mark.timeout(60)
def test_a_child_reads_what_threads_of_its_parent_were_reading(tmp_path: Path, vault: Path) -> None:
    work, entry, data = joined(tmp_path / "parts", (MIB, 5, MIB))
    with dataset.open(vault, fresh()) as opened, open_parts(work.vault, entry, work.keys) as reader:

        def child() -> bytes:
            assert not opened.refresh()
            text: bytes = opened.open("a.txt").read()
            return reader.pread(MIB - 1, 100) + text

        parts: Any = reader._plaintext
        locks: list[Any] = [parts._open._lock, opened._view().manifests._kept._lock, opened._lock]
        for lock in locks:
            with held_by_a_thread(lock):
                assert in_child(child) == data[MIB - 1 : MIB + 99] + b"first"
        assert reader.read() == data


@IGNORE_FORK_WARNING
@pytest.mark.timeout(60)
def test_a_child_opens_the_files_of_a_table_that_threads_of_its_parent_were_reading(tmp_path: Path) -> None:
    rows = pyarrow.table({"id": pyarrow.array(range(10), pyarrow.int64())})
    table = create_table(None, str(tmp_path / "t"), rows.schema, kms=fresh(), key_id="lake")
    table.append(rows)
    assert table.scan().count() == 10
    file = table.files().column("path")[0].as_py()
    table_file = table.io.keys.find(file)
    assert table_file is not None
    for lock in (table.io.keys._lock, file_io._tables._lock):
        with held_by_a_thread(lock):
            assert in_child(lambda: repr(table.io.keys.find(file)).encode()) == repr(table_file).encode()
