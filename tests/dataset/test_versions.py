"""Versions in a row: fences that end, numbers that were expired, and what stands where a version should be."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import ags1.dataset.transaction as module
from ags1 import dataset
from ags1.audit import audit
from ags1.dataset.expiry import expire
from ags1.dataset.names import new_object_name
from ags1.dataset.runs import Done
from ags1.dataset.transaction import Transaction
from ags1.dataset.versions import latest_number, numbers, read_committed, read_latest
from ags1.errors import ConflictError, FormatError, KeyAccessError
from ags1.storage import Location
from tests.dataset.commits import KEYS, client, commit, contents, put_all, write_object
from tests.dataset.conftest import OTHER, CountingKms, kinds, plain_of, write_tree


def begin(root: Path) -> Transaction:
    return Transaction.begin(Location(root), client(), "test", keys=KEYS, durable=False)


def expire_all(root: Path, **named: Any) -> dataset.ExpireReport:
    options = {"keep": 1, "older_than": None, "grace": 0.0, "dry_run": False, **named}
    return expire(Location(root), client(), **options)


def newest(root: Path) -> dict[str, bytes]:
    found = read_latest(Location(root))
    assert found is not None
    return contents(root, found)


def test_expire_behind_a_url_does_not_hold_the_listing(tmp_path: Path) -> None:
    """10,000 files, of which it holds none: the listing comes one after another, beside the manifests."""
    import fsspec

    where = Location(f"memory://{tmp_path.name}")
    writer = Transaction.begin(where, client(), "test", keys=KEYS, single_writer=True)
    key_class = writer.class_of("any").id
    writer.run.use([key_class])
    files = fsspec.filesystem("memory")
    files.pipe_file("/one", b"")
    for path in (f"day={number // 1000:02}/{number:05}" for number in range(10_000)):
        name = new_object_name(path, writer.run.id)
        files.store[f"/{tmp_path.name}/{name}"] = files.store["/one"]
        writer.put(writer.entry(Done(path, key_class, ((name, 0),), run=writer.run.id)))
    writer.commit()
    changing = Transaction.begin(where, client(), "test")
    changing.remove("day=00/00000")
    changing.commit()
    del writer, changing
    tracemalloc.start()
    try:
        report = expire(where, client(), keep=1, older_than=None, grace=0.0, dry_run=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The object of the file, the former root, and the former leaf.
    assert (report.versions, report.objects) == ([1], 3)
    assert peak < 4_000_000


# -- fences -----------------------------------------------------------------------------------------------------------


def test_the_list_of_fenced_runs_does_not_grow_with_the_past(tmp_path: Path) -> None:
    sizes = []
    for number in range(6):
        commit(tmp_path, {"a": b"%d" % number})
        expire_all(tmp_path)
        found = read_latest(Location(tmp_path))
        assert found is not None
        sizes.append(len(found.fenced))
    assert max(sizes[1:]) == sizes[1]
    commit(tmp_path, {"b": b"1"})
    found = read_latest(Location(tmp_path))
    assert found is not None
    assert not found.fenced


def test_a_run_that_was_fenced_long_ago_is_not_taken_over(tmp_path: Path) -> None:
    commit(tmp_path, {"a": b"1"})
    old = begin(tmp_path)
    done = write_object(old, "late", b"interrupted")
    old.run.record([done])
    expire_all(tmp_path)
    commit(tmp_path, {"b": b"2"})
    # Its record is still there: expire was killed before it removed that.
    new = begin(tmp_path)
    with pytest.raises(ConflictError, match="expire has given up this run"):
        new.take_over(old.run.id, 1)
    with pytest.raises(AssertionError):
        new.entry(done, old.run.keys)
    expire_all(tmp_path)
    with pytest.raises(ConflictError, match="were expired meanwhile"):
        begin(tmp_path).take_over(old.run.id, 1)


def test_an_interrupted_run_is_taken_over_although_others_have_committed(tmp_path: Path) -> None:
    commit(tmp_path, {"a": b"1"})
    old = begin(tmp_path)
    done = write_object(old, "late", b"interrupted")
    commit(tmp_path, {"b": b"2"})
    new = begin(tmp_path)
    new.take_over(old.run.id, 1)
    new.put(new.entry(done, old.run.keys))
    new.commit()
    assert newest(tmp_path)["late"] == b"interrupted"


def test_a_run_that_was_taken_over_and_is_fenced_before_the_commit_commits_nothing(tmp_path: Path) -> None:
    commit(tmp_path, {"a": b"1"})
    old = begin(tmp_path)
    done = write_object(old, "late", b"interrupted")
    new = begin(tmp_path)
    new.take_over(old.run.id, 1)
    new.put(new.entry(done, old.run.keys))
    expire_all(tmp_path)
    with pytest.raises(ConflictError, match="expire has given up this run"):
        new.commit()
    assert newest(tmp_path) == {"a": b"1"}


# -- numbers that were expired ---------------------------------------------------------------------------------------


@pytest.fixture
def stray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset in which a late writer was killed between its commit into a gap and the withdrawal."""
    root = tmp_path / "vault"
    commit(root, {"a": b"1"})
    late = begin(root)
    put_all(late, {"late": b"of a writer that slept"})
    commit(root, {"b": b"2"})
    commit(root, {"c": b"3"})
    expire_all(root, grace=3600)
    expire_all(root, grace=3600)

    class Killed(BaseException):
        pass

    def killed(*arguments: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module.Transaction, "_is_stale", killed)
        with pytest.raises(Killed):
            late.commit()
    assert numbers(Location(root))[0] == 2
    return root


def test_what_a_killed_late_writer_left_is_shown_to_nobody(stray: Path) -> None:
    assert newest(stray) == {"a": b"1", "b": b"2", "c": b"3"}
    with dataset.open(stray, client()) as opened:
        assert 2 not in [each.version for each in opened.versions()]
        with pytest.raises(FileNotFoundError, match="no version 2"):
            list(opened.diff(2))
    with pytest.raises(FileNotFoundError, match="no version 2"):
        dataset.open(stray, client(), version=2)
    # Right below the versions that are kept too, where no gap shows it.
    last = max(numbers(Location(stray)))
    (stray / "_ags1/v-2.json").rename(stray / f"_ags1/v-{last - 1}.json")
    fields = json.loads((stray / f"_ags1/v-{last - 1}.json").read_text())
    (stray / f"_ags1/v-{last - 1}.json").write_text(json.dumps({**fields, "version": last - 1}))
    with pytest.raises(FileNotFoundError, match=f"no version {last - 1}"):
        read_committed(Location(stray), last - 1)


def test_what_a_killed_late_writer_left_is_named_by_verify_and_removed_by_expire(stray: Path) -> None:
    with dataset.open(stray, client()) as opened:
        report = opened.verify()
        assert report.ok
        assert kinds(report)["_ags1/v-2.json"] == "unreferenced"
        # However many are to be kept: this was none.
        assert 2 in opened.expire(keep=100, grace=0).versions
        assert 2 not in numbers(Location(stray))
        assert not opened.verify().problems
        assert plain_of(opened) == {"a": b"1", "b": b"2", "c": b"3"}


def test_what_a_killed_late_writer_left_is_no_version_for_an_audit(stray: Path) -> None:
    with dataset.open(stray, client()) as opened:
        count = len(opened.versions())
    report = audit(stray, kms=client())
    (group,) = (each for each in report.groups if each.kind == "dataset")
    assert group.detail.startswith(f"{count} version")
    assert {found.code for found in report.findings} == {"dataset-unreferenced"}
    (said,) = (found.message for found in report.findings if "v-2.json" in found.subject)
    assert "never committed" in said


def test_a_dataset_that_was_open_does_not_show_it(stray: Path) -> None:
    last = max(numbers(Location(stray)))
    assert latest_number(Location(stray), after=1) == last
    assert latest_number(Location(stray), after=last) == last


# -- versions that cannot be read ------------------------------------------------------------------------------------


def test_versions_under_a_destroyed_master_key_are_given_up_by_name_only(tmp_path: Path) -> None:
    raw = write_tree(tmp_path / "raw", {"a": b"1", "b": b"2"})
    both = CountingKms("lake", new=OTHER)
    with dataset.encrypt(raw, tmp_path / "vault", both, "lake") as opened:
        opened.rm("b")
        opened.rewrap("new")
    destroyed = CountingKms(new=OTHER)
    with dataset.open(tmp_path / "vault", destroyed) as opened:
        with pytest.raises(KeyAccessError, match=r"version 1 stays, and cannot be read, so nothing was.*give_up=1"):
            opened.expire(keep=10, grace=0)
        with pytest.raises(ValueError, match="cannot be given up"):
            opened.expire(give_up=3)
        assert numbers(Location(tmp_path / "vault")) == [1, 2, 3]
        assert opened.expire(keep=10, grace=0, give_up=2, dry_run=True).versions == [1, 2]
        report = opened.expire(keep=10, grace=0, give_up=2)
        assert (report.versions, report.kept) == ([1, 2], [3])
        assert plain_of(opened) == {"a": b"1"}
        assert opened.verify().ok
        # Nobody needs to read what goes in any case.
        opened.expire(older_than=None, grace=0)


def test_a_damaged_version_is_given_up_by_name_only(tmp_path: Path) -> None:
    for number in range(3):
        commit(tmp_path, {"a": b"%d" % number})
    (tmp_path / "_ags1/v-2.json").write_bytes(b"damaged")
    with pytest.raises(FormatError, match=r"version 2 stays, and cannot be read.*give_up=2"):
        expire_all(tmp_path, keep=10)
    assert expire_all(tmp_path, keep=10, give_up=2).versions == [1, 2]
    assert newest(tmp_path) == {"a": b"2"}


# -- what stands where a version should be ---------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["link", "dangling link", "file"])
def test_a_link_in_place_of_the_control_directory_is_refused_by_name(what: str, tmp_path: Path) -> None:
    raw = write_tree(tmp_path / "raw", {"a": b"1"})
    commit(tmp_path / "vault", {"a": b"1"})
    control, outside = tmp_path / "vault/_ags1", tmp_path / "outside"
    control.rename(outside)
    if what == "file":
        control.write_bytes(b"")
    else:
        control.symlink_to(outside if what == "link" else tmp_path / "nowhere")
    before = sorted(os.listdir(outside))
    for use in (
        lambda: dataset.open(tmp_path / "vault", client()),
        lambda: dataset.encrypt(raw, tmp_path / "vault", client(), "lake"),
    ):
        with pytest.raises(FormatError, match=r"_ags1 is a link or a file, but has to be a directory"):
            use()
    assert sorted(os.listdir(outside)) == before
    assert not (tmp_path / "nowhere").exists()


def test_a_directory_under_the_name_of_a_version_is_refused_by_name(tmp_path: Path) -> None:
    commit(tmp_path, {"a": b"1"})
    (tmp_path / "_ags1/v-2.json").mkdir()
    assert newest(tmp_path) == {"a": b"1"}
    with pytest.raises(FormatError, match=r"v-2\.json is not a regular file.*remove it"):
        commit(tmp_path, {"b": b"2"})
    (tmp_path / "_ags1/v-2.json").rmdir()
    commit(tmp_path, {"b": b"2"})
    assert newest(tmp_path) == {"a": b"1", "b": b"2"}


# -- patterns -------------------------------------------------------------------------------------------------------


def test_patterns_that_are_given_replace_those_of_the_dataset_and_none_keep_them(tmp_path: Path) -> None:
    kms = CountingKms("lake", a=OTHER)
    raw = write_tree(tmp_path / "raw", {"tenant=a/x": b"1", "y": b"2"})
    with dataset.encrypt(raw, tmp_path / "vault", kms, keys={"tenant=a/**": "a", "**": "lake"}):
        pass
    with dataset.encrypt(raw, tmp_path / "vault", kms, "lake") as opened:
        assert opened.version == 1
        assert [each.pattern for each in opened.classes] == ["tenant=a/**", "**"]
    with dataset.encrypt(raw, tmp_path / "vault", kms, keys={"**": "lake"}) as opened:
        assert opened.report is not None
        assert (opened.report.done, opened.report.unchanged) == (1, 1)
        assert [each.pattern for each in opened.classes if each.pattern] == ["**"]
    with dataset.open(tmp_path / "vault", CountingKms("lake")) as opened:
        assert plain_of(opened) == {"tenant=a/x": b"1", "y": b"2"}
