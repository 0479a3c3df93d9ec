"""Restore: a version with the files of an older one, whoever expires or writes meanwhile."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from ags1 import dataset
from ags1.dataset.maintenance import expire, restore
from ags1.dataset.pins import Access
from ags1.dataset.versions import numbers, read_latest
from ags1.errors import ConflictError, KeyAccessError
from ags1.storage import Location
from tests.dataset.commits import client, commit, contents
from tests.dataset.conftest import CountingKms, plain_of, write_tree
from tests.dataset.interleavings import explore
from tests.dataset.test_interleavings import check


def objects(vault: Path) -> set[str]:
    return {str(each) for each in vault.rglob("*.ags1") if "_ags1" not in each.parts}


@pytest.mark.parametrize("seed", range(3))
def test_any_version_of_a_random_past_comes_back_without_a_new_object(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    paths = [f"{directory}/{name}" for directory in ("a", "b", "a/c") for name in range(6)]
    was: dict[int, dict[str, bytes]] = {}
    now = {path: draw.randbytes(20) for path in draw.sample(paths, 9)}
    write_tree(tmp_path / "raw", now)
    vault = dataset.encrypt(tmp_path / "raw", tmp_path / "vault", client(), "lake")
    was[vault.version] = dict(now)
    for round_ in range(12):
        kind = draw.choice(["add", "rm"]) if now else "add"
        if kind == "add":
            more = {path: draw.randbytes(20) for path in draw.sample(paths, 3)}
            vault.add(write_tree(tmp_path / f"more-{round_}", more))
            now |= more
        else:
            path = draw.choice(sorted(now))
            vault.rm(path)
            del now[path]
        was[vault.version] = dict(now)
    before = objects(tmp_path / "vault")
    for number in draw.sample(sorted(was), 6):
        tried = vault.restore(number, dry_run=True)
        report = vault.restore(number)
        assert (report.done, report.removed) == (tried.done, tried.removed)
        assert report.done + report.unchanged == len(was[number])
        assert plain_of(vault) == was[number]
        assert list(vault.changed_since(number)) == []
        was[vault.version] = was[number]
    assert objects(tmp_path / "vault") == before
    assert vault.verify().ok
    last = was[vault.version]
    vault.expire(older_than=None, grace=0)
    assert plain_of(vault) == last
    assert vault.verify().findings == []


def test_modes_times_and_empty_directories_come_back(tmp_path: Path) -> None:
    raw = write_tree(tmp_path / "raw", {"a": b"1", "b": b"2"})
    (raw / "hollow").mkdir()
    (raw / "a").chmod(0o600)
    with dataset.encrypt(raw, tmp_path / "vault", client(), "lake") as vault:
        first = list(vault.files), [each.path for each in vault.files.directories()]
        vault.rm("a", "hollow")
        report = vault.restore(1)
        assert (report.done, report.removed, report.unchanged, report.version) == (1, 0, 1, 3)
        again = list(vault.files), [each.path for each in vault.files.directories()]
        assert [(each.path, each.mode, each.source) for each in again[0]] == [
            (each.path, each.mode, each.source) for each in first[0]
        ]
        assert again[1] == first[1]
        assert vault.versions()[-1].operation == "restore"
        # What is the same already makes no version.
        same = vault.restore(1)
        assert (same.changed, same.version, same.done, same.unchanged) == (False, 3, 0, 2)


def test_a_version_that_never_was_or_was_expired_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    with dataset.encrypt(write_tree(tmp_path / "raw"), tmp_path / "vault", client(), "lake") as vault:
        vault.rm("a.txt")
        vault.expire(older_than=None, grace=0)
        for number in (-1, 0, 1, 4):
            with pytest.raises(FileNotFoundError, match="the dataset has no version"):
                vault.restore(number)
        assert vault.version == 3


def test_a_version_before_a_rewrap_is_restored_expired_and_verified_without_the_old_master_key(tmp_path: Path) -> None:
    old, new = bytes(32), bytes(range(1, 33))
    with dataset.encrypt(
        write_tree(tmp_path / "raw", {"a": b"1"}), tmp_path / "vault", CountingKms("lake", lake=old, new=new), "lake"
    ) as vault:
        vault.rm("a")
        vault.rewrap("new")
    with dataset.open(tmp_path / "vault", CountingKms("new", new=new)) as vault:
        assert vault.verify().findings == []
        vault.restore(1)
        assert (plain_of(vault), vault.key_id) == ({"a": b"1"}, "new")
        assert vault.expire(keep=2, older_than=None, grace=0).versions == [1, 2]
        assert vault.verify().findings == []
    with pytest.raises(KeyAccessError, match="lake"):
        dataset.open(tmp_path / "vault", CountingKms("lake", lake=old))


def restoring(root: Path, number: int) -> Any:
    return lambda: restore(Access.of(Location(root), client()), number, dry_run=False)


def expiring(root: Path) -> Any:
    return lambda: expire(Access.of(Location(root), client()), keep=1, older_than=None, grace=0.0, dry_run=False)


@pytest.mark.parametrize(("with_writer", "interruptions"), [(False, 2), (True, 1)])
def test_a_restore_and_an_expire_lose_no_file_in_any_order(
    with_writer: bool, interruptions: int, tmp_path: Path
) -> None:
    root, outcomes = tmp_path / "vault", set()

    def scenario() -> Any:
        shutil.rmtree(root, ignore_errors=True)
        commit(root, {"a": b"old", "gone": b"gone", "b": b"b"})
        commit(root, {"a": b"new"}, removed=("gone",))
        works = [restoring(root, 1), expiring(root), lambda: with_writer and commit(root, {"c": b"third"})]

        def end(actors: list[Any]) -> None:
            restored, expired, wrote = (each.error for each in actors)
            assert restored is None or isinstance(restored, (ConflictError, FileNotFoundError)), repr(restored)
            for each in (expired, wrote):
                assert each is None or isinstance(each, ConflictError), repr(each)
            files = {"a": b"new", "b": b"b"} if restored else {"a": b"old", "b": b"b", "gone": b"gone"}
            last = read_latest(Location(root))
            assert last is not None
            # A file that another writer only adds stays, unless the restore began behind it.
            files |= {"c": b"third"} if "c" in contents(root, last) else {}
            check(root, {path: {data} for path, data in files.items()})
            outcomes.add(type(restored))

        return works, end

    assert explore(scenario, interruptions) > 20
    assert outcomes >= {type(None), FileNotFoundError}


def test_what_an_expire_is_removing_is_encrypted_again_and_survives_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The expire has committed, and removes the objects of version 2 only after the restore of version 2."""
    import ags1.dataset.maintenance as expiry

    root = tmp_path / "vault"
    commit(root, {"a": b"1", "b": b"1"})
    commit(root, {"a": b"2"})
    commit(root, {"a": b"3"})
    late: list[Any] = []
    remove = expiry.remove
    with monkeypatch.context() as patch:
        patch.setattr(expiry, "remove", lambda places: late.append(list(places)))
        expire(Access.of(Location(root), client()), keep=1, older_than=None, grace=0.0, dry_run=False)
    assert numbers(Location(root)) == [1, 2, 3, 4]
    report = restore(Access.of(Location(root), client()), 2, dry_run=False)
    assert (report.done, report.done_bytes) == (1, 1)
    for places in late:
        remove(places)
    last = read_latest(Location(root))
    assert last is not None
    assert contents(root, last) == {"a": b"2", "b": b"1"}
