"""Datasets in an object store: made, changed and read there, by several writers at once, on a conditional put."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1 import dataset
from ags1.storage import Location, create, list_files, read_whole, remove
from tests.checks import HANG_SECONDS, pattern
from tests.dataset.commits import client, commit
from tests.dataset.conftest import CONTENTS, fresh, kinds, plain_of, read_tree, write_tree
from tests.servers.proxy import ShapingProxy

pytest.importorskip("obstore")


@pytest.fixture
def options(s3_server: Any) -> dict[str, Any]:
    found: dict[str, Any] = s3_server.storage_options()
    return found


@pytest.fixture
def lake(s3_bucket: str) -> str:
    return f"s3://{s3_bucket}/lake"


def test_a_dataset_in_an_object_store_does_what_a_local_one_does(
    tmp_path: Path, lake: str, options: dict[str, Any]
) -> None:
    raw = write_tree(tmp_path / "raw", {**CONTENTS, "large": pattern(9 << 20)})
    with dataset.encrypt(raw, f"{lake}/vault", fresh(), "lake", storage_options=options) as vault:
        assert plain_of(vault) == read_tree(raw)
        assert vault.verify().ok
        again = dataset.encrypt(raw, f"{lake}/vault", fresh(), "lake", storage_options=options)
        assert again.report is not None
        assert (again.report.done, again.report.unchanged) == (0, len(CONTENTS) + 1)
        vault.rm("sub")
        vault.rm("a.txt")
        vault.add(write_tree(tmp_path / "more", {"new": b"new"}))
        assert set(plain_of(vault)) == {*set(read_tree(raw)) - {"sub/a.txt", "sub/deep/b.bin", "a.txt"}, "new"}
        names = {entry.path: entry.parts[0].name for entry in vault.files}
        where = Location(f"{lake}/vault", options)
        remove([where.join(names["large"])])
        assert kinds(vault.verify()) == {"large": "missing"}
        assert vault.repair(raw).done == 1
        report = vault.expire(older_than=None, grace=0)
        assert len(report.versions) == 4
        assert vault.verify().ok
        assert len(vault.versions()) == 2
        # From a bucket to a bucket, and back to the disk.
        vault.decrypt(f"{lake}/plain", storage_options=options)
        held = plain_of(vault)
    assert {
        each.name: bytes(memoryview(read_whole(each.location, 1 << 30)))
        for each in list_files(Location(f"{lake}/plain", options))
    } == held
    with dataset.encrypt(
        f"{lake}/plain", f"{lake}/second", fresh(), "lake", source_options=options, storage_options=options
    ) as second:
        assert plain_of(second) == held
        second.decrypt(tmp_path / "back")
        create(Location(f"{lake}/plain/once more", options), b"x")
        assert second.add(f"{lake}/plain", storage_options=options).done == 1
    assert read_tree(tmp_path / "back") == held


def test_expire_deletes_many_objects_with_one_request(lake: str, s3_server: Any, shaping_proxy: ShapingProxy) -> None:
    direct = s3_server.storage_options()
    commit(Location(lake, direct), {f"day={number % 3}/{number:03}": b"%d" % number for number in range(150)})
    commit(Location(lake, direct), {"left": b"left"}, removed=tuple(f"day={each % 3}/{each:03}" for each in range(150)))
    options = s3_server.through(shaping_proxy.endpoint).storage_options()
    with dataset.open(lake, client(), storage_options=options) as found:
        shaping_proxy.forget()
        report = found.expire(older_than=None, grace=0)
        log = shaping_proxy.log()
    assert (report.versions, report.objects) == ([1], 151)
    # Objects together; the version by itself, and the records of runs.
    assert len(log.only("POST")) + len(log.only("DELETE")) < 10
    assert len(log) < 60
    with dataset.open(lake, client(), storage_options=direct) as found:
        assert found.verify().findings == []
        assert plain_of(found) == {"left": b"left"}


def _append(place: str, options: dict[str, Any], index: int, paths: list[str], results: Any) -> None:
    for path in paths:
        try:
            commit(Location(place, options), {path: b"%d" % index})
            results.put((index, path))
        except ags1.ConflictError:
            continue


def test_eight_writers_at_once_lose_nothing(lake: str, options: dict[str, Any]) -> None:
    """Each of paths that are its own, and of paths that all write, where one may be told of the other."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    commit(Location(lake, options), {"first": b"first"})
    workers = [
        context.Process(
            target=_append, args=(lake, options, index, [f"{index}/0", "both/0", f"{index}/1", "both/1"], results)
        )
        for index in range(8)
    ]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert [each.exitcode for each in workers] == [0] * 8
    committed = []
    while not results.empty():
        committed.append(results.get())
    with dataset.open(lake, client(), storage_options=options) as found:
        held = plain_of(found)
        assert found.version == 1 + len(committed)
    assert held.pop("first") == b"first"
    shared = {path: int(held.pop(path)) for path in ("both/0", "both/1")}
    assert all((index, path) in committed for path, index in shared.items())
    assert held == {f"{index}/{number}": b"%d" % index for index in range(8) for number in range(2)}


def test_the_conditional_put_of_the_server_is_atomic(lake: str, options: dict[str, Any]) -> None:
    """What the tests above rely on: of many that create one object, one does."""
    for number in range(10):
        won: list[int] = []

        def attempt(index: int, number: int = number, won: list[int] = won) -> None:
            try:
                create(Location(f"{lake}/{number}", options), b"%d" % index)
                won.append(index)
            except FileExistsError:
                pass

        threads = [threading.Thread(target=attempt, args=(index,)) for index in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(won) == 1
        assert bytes(memoryview(read_whole(Location(f"{lake}/{number}", options), 10))) == b"%d" % won[0]


@pytest.mark.timeout(HANG_SECONDS)
def test_a_dataset_in_hdfs_is_committed_by_a_rename_that_replaces_nothing(tmp_path: Path, hdfs_server: Any) -> None:
    options = hdfs_server.storage_options()
    place = f"webhdfs:///vault-{tmp_path.name}"
    raw = write_tree(tmp_path / "raw")
    with dataset.encrypt(raw, place, fresh(), "lake", storage_options=options) as vault:
        assert plain_of(vault) == CONTENTS
        with pytest.raises(FileExistsError):
            create(Location(f"{place}/_ags1/v-1.json", options), b"another version 1")
        vault.rm("a.txt")
        assert vault.verify().ok
        vault.expire(older_than=None, grace=0)
        assert plain_of(vault) == {path: data for path, data in CONTENTS.items() if path != "a.txt"}
    threads_won = []

    def attempt(index: int) -> None:
        try:
            create(Location(f"{place}/one", options), b"%d" % index)
            threads_won.append(index)
        except FileExistsError:
            pass

    threads = [threading.Thread(target=attempt, args=(index,)) for index in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(threads_won) == 1
    assert bytes(memoryview(read_whole(Location(f"{place}/one", options), 10))) == b"%d" % threads_won[0]


def test_a_clock_that_runs_backwards_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    now = [2_000_000_000.0]

    def backwards() -> float:
        now[0] -= 10_000.0
        return now[0]

    monkeypatch.setattr(time, "time", backwards)
    monkeypatch.setattr(time, "time_ns", lambda: int(backwards() * 1e9))
    raw = write_tree(tmp_path / "raw")
    with dataset.encrypt(raw, tmp_path / "vault", fresh(), "lake") as vault:
        for number in range(5):
            (raw / "a.txt").write_bytes(b"%d" % number)
            vault.add(raw)
            # By the store's own time, everything is new.
            assert vault.expire().versions == []
        vault.expire(older_than=None, grace=0)
        assert plain_of(vault) == {**CONTENTS, "a.txt": b"4"}
        assert vault.verify().ok
