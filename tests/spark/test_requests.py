"""Small files behind an object store are asked for at once, and everything stays in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")

from ags1.errors import TruncatedError
from ags1.spark import _requests
from ags1.spark._locations import locate
from ags1.spark._requests import Requests
from ags1.spark._storage import Storage


@pytest.fixture
def here(tmp_path: Path) -> Storage:
    return Storage(locate(tmp_path))


@pytest.fixture
def there() -> Storage:
    return Storage(locate("memory://requests"))


def test_a_remote_storage_is_asked_for_many_at_once(here: Storage, there: Storage) -> None:
    # Each call waits until eight are under way: one after the other, the first would wait in vain.
    together = threading.Barrier(8)
    requests = Requests(here, there)

    def work(number: int) -> int:
        together.wait(600)
        return number

    assert list(requests.each(work, range(16))) == list(range(16))


@pytest.mark.parametrize("remote", [False, True])
def test_an_error_is_the_answer_of_its_item(remote: bool, here: Storage, there: Storage) -> None:
    def work(number: int) -> int:
        if number == 1:
            raise TruncatedError("too short")
        if number == 2:
            raise FileNotFoundError("gone")
        return number

    first, short, gone, last = Requests(here, there if remote else None).each(work, range(4))
    assert (first, last) == (0, 3)
    assert isinstance(short, TruncatedError)
    assert isinstance(gone, FileNotFoundError)


def test_another_error_is_no_answer(there: Storage) -> None:
    def work(number: int) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(Requests(there).each(work, [1, 2]))


def test_locally_nothing_is_begun_before_the_answer_to_what_was_before_it_is_taken(here: Storage) -> None:
    begun: list[int] = []
    answers = Requests(here).each(begun.append, [1, 2, 3])
    next(answers)
    assert begun == [1]


@pytest.mark.parametrize("remote", [False, True])
def test_what_is_begun_ahead_comes_in_its_place(remote: bool, here: Storage, there: Storage) -> None:
    gate = threading.Event()

    def slow() -> list[int]:
        # Remotely the function behind this one is called meanwhile.
        assert not remote or gate.wait(600)
        return [2, 3]

    def quick() -> list[int]:
        gate.set()
        return []

    items = [1, slow, 4, quick, 5]
    assert list(Requests(there if remote else here).ahead(items)) == [1, 2, 3, 4, 5]


def test_what_fails_ahead_fails_in_its_place(there: Storage) -> None:
    def fail() -> list[int]:
        raise OSError("no upload")

    found = Requests(there).ahead([1, fail, 2])
    assert next(found) == 1
    with pytest.raises(OSError, match="no upload"):
        next(found)


def test_what_is_given_up_waits_for_what_is_under_way_and_begins_no_more(
    there: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    ended: list[int] = []
    queued, given_up = threading.Event(), threading.Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            given_up.set()
            super().shutdown(wait)

    def first() -> list[int]:
        assert queued.wait(600)
        return [1]

    def other() -> list[int]:
        begun.append(1)
        assert given_up.wait(600)
        ended.append(1)
        return []

    def items() -> Iterator[Any]:
        yield first
        yield from [other] * 40
        queued.set()
        yield 2

    monkeypatch.setattr(_requests, "ThreadPoolExecutor", Pool)
    found = Requests(there).ahead(items())
    assert next(found) == 1
    found.close()
    assert len(ended) == len(begun) < 40
