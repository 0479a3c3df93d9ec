"""Reading ahead of an object: little for who reads little, much for who reads straight on, errors in their place."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ags1.storage import Budget
from ags1.storage.read_ahead import SEQUENTIAL_PIECE, ReadAhead

MIB = 1 << 20
SIZE = 200 * MIB
MOST = 16


class Store:
    """Counts what is asked for; bytes say in which mebibyte they lie; a range may fail."""

    def __init__(self, failing: int | None = None) -> None:
        self._failing, self._lock = failing, threading.Lock()
        self.asked: list[tuple[int, int]] = []

    def fetch(self, offset: int, length: int, memory: Callable[[int], bytearray]) -> bytearray:
        with self._lock:
            self.asked.append((offset, length))
        if self._failing is not None and offset <= self._failing < offset + length:
            raise ConnectionResetError("the store is gone")
        out = memory(length)
        for start in range(offset, offset + length, MIB):
            size = min(MIB, offset + length - start)
            out[start - offset : start - offset + size] = bytes([start // MIB]) * size
        return out

    def ahead(self) -> ReadAhead:
        return ReadAhead(self.fetch, SIZE, MIB, SEQUENTIAL_PIECE, MOST, Budget(64 * MIB))


def read(ahead: ReadAhead, offset: int, size: int) -> bytes:
    out = bytearray(size)
    done = 0
    with memoryview(out) as view:
        while done < size:
            with view[done:] as rest:
                count = ahead.read_into(offset + done, rest)
            assert count, "it is asked for what it has begun with"
            done += count
    return bytes(out)


def test_who_reads_the_beginning_alone_is_sent_a_few_pieces() -> None:
    store = Store()
    ahead = store.ahead()
    ahead.begin_at(0, 16)
    assert read(ahead, 0, 16) == bytes(16)
    ahead.drop()
    assert sum(size for _, size in store.asked) <= 5 * MIB


def test_who_wants_a_whole_piece_from_the_start_has_all_under_way_at_once() -> None:
    store = Store()
    ahead = store.ahead()
    ahead.begin_at(0, MIB)
    assert [length // MIB for _, length, _ in ahead._pending] == [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4]
    assert read(ahead, 0, SIZE) == b"".join(bytes([number]) * MIB for number in range(SIZE // MIB))


def test_who_reads_on_has_the_whole_budget_under_way() -> None:
    store = Store()
    ahead = store.ahead()
    ahead.begin_at(0, MIB // 2)
    for offset in range(0, SIZE, MIB // 2):
        assert read(ahead, offset, MIB // 2) == bytes([offset // MIB]) * (MIB // 2)
    assert max(size for _, size in store.asked) == SEQUENTIAL_PIECE
    assert sorted(store.asked) == sorted(set(store.asked)), "nothing is asked for twice"
    assert sum(size for _, size in store.asked) == SIZE


def test_an_error_of_the_store_is_raised_where_it_belongs_and_is_not_asked_for_again() -> None:
    """The client has tried it again already, for as long as is worth it."""
    store = Store(failing=9 * MIB + 5)
    ahead = store.ahead()
    ahead.begin_at(0, MIB // 2)
    good, error = 0, None
    while error is None:
        try:
            assert read(ahead, good, MIB) == bytes([good // MIB]) * MIB
            good += MIB
        except ConnectionResetError as failed:
            error = failed
    assert "the store is gone" in str(error)
    assert 5 * MIB <= good <= 9 * MIB, "all before the piece with the fault came"
    assert [offset for offset, size in store.asked if offset <= 9 * MIB + 5 < offset + size] == [good]
