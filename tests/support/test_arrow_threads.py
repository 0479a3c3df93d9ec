"""Processes that lent Python files to threads of Arrow end when those are done with them."""

from __future__ import annotations

import io
import threading

import pyarrow as pa
import pyarrow.csv
import pytest

from ags1.support.arrow_threads import lend, tasks_counter, wait_for_arrow
from tests.checks import HANG_SECONDS, KEY, run_python


class _Slow(io.BytesIO):
    """A file whose second read takes its time."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.reads = 0
        self.reading = threading.Event()
        self.go_on = threading.Event()

    def read(self, size: int | None = -1) -> bytes:
        self.reads += 1
        if self.reads == 2:
            self.reading.set()
            assert self.go_on.wait(HANG_SECONDS)
        return super().read(size)


def test_tasks_of_arrows_threads_are_counted() -> None:
    """If this fails, PyArrow has renamed what is looked for: see how it counts now."""
    tasks = tasks_counter()
    assert tasks is not None
    wait_for_arrow()
    assert tasks() == 0
    file = _Slow(b"a,b\n" + b"12,34\n" * 10_000)
    # Where nothing is lent it does not wait for long.
    lend(file)
    options = pa.csv.ReadOptions(block_size=8000)
    reading = threading.Thread(target=pa.csv.read_csv, args=[file], kwargs={"read_options": options})
    reading.start()
    assert file.reading.wait(HANG_SECONDS)
    assert tasks() > 0
    file.go_on.set()
    reading.join()
    wait_for_arrow()
    assert tasks() == 0


@pytest.mark.parametrize("how", ["all", "one batch", "damaged"])
def test_a_process_may_end_at_once_after_arrow_has_read_a_reader(how: str) -> None:
    """The threat: it aborts, as with any file object of Python's that threads of Arrow let go of too late."""
    program = f"""
        import sys, ags1, pyarrow.csv
        data = bytearray(ags1.encrypt(b"a,b\\n" + b"123,456\\n" * 1_000_000, {KEY!r}, block_length=4096))
        if sys.argv[1] == "damaged":
            data[6_000_000] ^= 1
        try:
            # Which reads ahead, and may meet the damage by itself.
            for batch in pyarrow.csv.open_csv(ags1.open(data, key={KEY!r})):
                if sys.argv[1] == "one batch":
                    break
        except Exception as error:
            print(type(error).__name__)
    """
    for _ in range(3):
        assert run_python(program, how).strip() == ("AuthenticationError" if how == "damaged" else "")
