"""One writer at a time where there is no lock: what is held is refused, and what is over is taken."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from ags1.dataset import _lease
from ags1.dataset._lease import LEASE, Lease
from ags1.dataset._store import RemoteStore
from ags1.dataset._update import Update, clean
from tests.dataset.conftest import fresh

fsspec = pytest.importorskip("fsspec")
from fsspec.implementations.memory import MemoryFileSystem  # noqa: E402

PATH = "/lake/vault/_ags1/lease.json"


class Exclusive(MemoryFileSystem):
    """One that creates a file only if it is not there, as S3 does if it is asked to."""

    cachable = False
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        if mode == "create" and self.exists(path):
            raise FileExistsError(path)
        super().pipe_file(path, value, **options)


class Plain(Exclusive):
    """One that knows no such mode."""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        if mode == "create":
            raise NotImplementedError
        super().pipe_file(path, value, **options)


@pytest.fixture(params=[Exclusive, Plain])
def files(request: pytest.FixtureRequest) -> Iterator[MemoryFileSystem]:
    Exclusive.store.clear()
    yield request.param()
    Exclusive.store.clear()


def written(files: MemoryFileSystem, **change: Any) -> None:
    fields = {"token": "theirs", "host": "elsewhere", "pid": 4711, "expires-ms": int((time.time() + 60) * 1000)}
    files.pipe_file(PATH, json.dumps({**fields, **change}).encode())


def test_a_lease_is_held_and_then_gone(files: MemoryFileSystem) -> None:
    with Lease(files, PATH, "/lake/vault") as lease:
        assert lease.is_held()
        fields = json.loads(files.cat_file(PATH))
        assert (fields["host"], fields["pid"]) == (os.uname().nodename, os.getpid())
        assert 60 < fields["expires-ms"] / 1000 - time.time() <= 90
    assert not files.exists(PATH)
    assert not [each for each in threading.enumerate() if each.name == "ags1-lease"]


def test_what_another_one_holds_is_refused_by_the_name_of_its_process(files: MemoryFileSystem) -> None:
    written(files)
    before = files.cat_file(PATH)
    text = r"process 4711 on host elsewhere is changing this dataset now: .*its lease expires in (59|60) s"
    with pytest.raises(BlockingIOError, match=text) as caught:
        Lease(files, PATH, "/lake/vault")
    assert caught.value.filename == "/lake/vault"
    assert files.cat_file(PATH) == before


def test_one_that_has_expired_is_taken(files: MemoryFileSystem) -> None:
    written(files, **{"expires-ms": int((time.time() - 1) * 1000)})
    with Lease(files, PATH, "/lake/vault") as lease:
        assert lease.is_held()
    assert not files.exists(PATH)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"{}", b'{"expires-ms": "x"}', b"\xff"])
def test_one_that_is_damaged_is_taken(data: bytes, files: MemoryFileSystem) -> None:
    files.pipe_file(PATH, data)
    with Lease(files, PATH, "/lake/vault") as lease:
        assert lease.is_held()


def test_one_that_somebody_else_has_taken_is_left_to_them(files: MemoryFileSystem) -> None:
    with Lease(files, PATH, "/lake/vault") as lease:
        written(files)
        assert not lease.is_held()
    assert json.loads(files.cat_file(PATH))["token"] == "theirs"


def test_who_loses_the_race_for_an_expired_one_is_refused(files: MemoryFileSystem) -> None:
    written(files, **{"expires-ms": 0})
    write = type(files).pipe_file

    def raced(path: str, value: bytes, mode: str = "overwrite") -> None:
        write(files, path, value, mode=mode)
        if mode != "create":
            written_by_the_other()

    def written_by_the_other() -> None:
        write(files, PATH, json.dumps({"token": "theirs", "host": "h", "pid": 1, "expires-ms": 1 << 50}).encode())

    files.pipe_file = raced
    with pytest.raises(BlockingIOError, match="process 1 on host h is changing this dataset now"):
        Lease(files, PATH, "/lake/vault")
    assert json.loads(files.cat_file(PATH))["token"] == "theirs"


def eventually(condition: Callable[[], bool]) -> None:
    event, until = threading.Event(), time.monotonic() + 600
    while not condition():
        assert time.monotonic() < until
        event.wait(0.005)


def test_it_is_renewed_while_it_is_held_also_after_the_store_did_not_answer(
    files: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_lease, "_RENEWED_AFTER", 0.01)
    with Lease(files, PATH, "/lake/vault"):
        first = json.loads(files.cat_file(PATH))["expires-ms"]
        eventually(lambda: json.loads(files.cat_file(PATH))["expires-ms"] > first)
        failures: list[int] = []
        write = files.pipe_file

        def failing(*arguments: Any, **options: Any) -> None:
            failures.append(1)
            raise OSError("no answer")

        files.pipe_file = failing
        eventually(lambda: len(failures) > 2)
        files.pipe_file = write
        second = json.loads(files.cat_file(PATH))["expires-ms"]
        eventually(lambda: json.loads(files.cat_file(PATH))["expires-ms"] > second)


def test_one_that_was_taken_is_not_renewed_over_its_new_holder(
    files: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_lease, "_RENEWED_AFTER", 0.01)
    read: list[str] = []
    with Lease(files, PATH, "/lake/vault"):
        written(files)
        cat = files.cat_file
        files.cat_file = lambda path, **options: (read.append(path), cat(path, **options))[1]  # type: ignore[func-returns-value]
        eventually(lambda: len(read) > 3)
    assert json.loads(files.cat_file(PATH))["token"] == "theirs"


def test_an_update_and_a_clean_hold_the_lease_and_leave_none(files: MemoryFileSystem) -> None:
    store = RemoteStore(files, "/lake/vault")
    with Update.begin(store, fresh(), "lake") as update:
        for attempt in (lambda: Update.begin(store, fresh(), "lake"), lambda: clean(store)):
            with pytest.raises(BlockingIOError, match=re.escape(f"process {os.getpid()} on host")):
                attempt()
        update.commit()
    assert LEASE not in store.control_names()
    with pytest.raises(ValueError, match="is under the master key"):
        Update.begin(store, fresh(), "new")
    clean(store)
    assert LEASE not in store.control_names()


def test_an_update_goes_on_with_what_one_left_whose_lease_has_expired(files: MemoryFileSystem) -> None:
    store = RemoteStore(files, "/lake/vault")
    killed = Update.begin(store, fresh(), "lake")
    written(files, **{"expires-ms": 0})
    with Update.begin(store, fresh(), "lake") as update:
        assert update.resumed
        assert update.reference.run == killed.reference.run
        update.commit()
        # The one that was taken for dead and is not: it removes nothing, and commits nothing.
        with pytest.raises(Exception, match="was changed by somebody else while this ran"):
            killed.commit()
        killed.__exit__()
        assert json.loads(files.cat_file(PATH))["pid"] == os.getpid()
    with Update.begin(store, fresh(), "lake") as update:
        assert update.version == 1
