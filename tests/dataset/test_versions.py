"""Versions in a row: fences that end, numbers that were expired, and what stands where a version should be."""

from __future__ import annotations

import json
import os
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ags1.dataset.maintenance as expiry
import ags1.dataset.transaction as module
from ags1 import dataset
from ags1.audit import audit
from ags1.dataset.keys import DatasetKeys
from ags1.dataset.maintenance import expire
from ags1.dataset.names import new_object_name
from ags1.dataset.pins import Access
from ags1.dataset.runs import Done
from ags1.dataset.transaction import Transaction
from ags1.dataset.versions import Version, latest_number, numbers, read_latest
from ags1.errors import AuthenticationError, ConflictError, FormatError
from ags1.storage import Location
from tests.dataset.commits import KEY_ID, client, commit, contents, put_all, write_object
from tests.dataset.conftest import kinds, plain_of, write_tree


def begin(root: Path) -> Transaction:
    return Transaction.begin(Access.of(Location(root), client()), "test", key_id=KEY_ID, durable=False)


def expire_all(root: Path, *, attempts: int = 100, **named: Any) -> dataset.ExpireReport:
    options = {"keep": 1, "older_than": None, "grace": 0.0, "dry_run": False, **named}
    return expire(Access.of(Location(root), client(), attempts=attempts), **options)


def newest(root: Path) -> dict[str, bytes]:
    found = read_latest(Location(root))
    assert found is not None
    return contents(root, found)


def test_expire_behind_a_url_does_not_hold_the_listing(tmp_path: Path) -> None:
    """10,000 files, of which it holds none: the listing comes one after another, beside the manifests."""
    import fsspec

    where = Location(f"memory://{tmp_path.name}")
    writer = Transaction.begin(Access.of(where, client()), "test", key_id="lake", single_writer=True)
    writer.run.begin()
    files = fsspec.filesystem("memory")
    files.pipe_file("/one", b"")
    for path in (f"day={number // 1000:02}/{number:05}" for number in range(10_000)):
        name = new_object_name(path, writer.run.id)
        files.store[f"/{tmp_path.name}/{name}"] = files.store["/one"]
        writer.put(writer.entry(Done(path, ((name, 0),), run=writer.run.id)))
    writer.commit()
    changing = Transaction.begin(Access.of(where, client()), "test")
    changing.remove("day=00/00000")
    changing.commit()
    del writer, changing
    tracemalloc.start()
    try:
        report = expire(Access.of(where, client()), keep=1, older_than=None, grace=0.0, dry_run=False)
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
            list(opened.changed_since(2))
    with pytest.raises(FileNotFoundError, match="no version 2"):
        dataset.open(stray, client(), version=2)
    # Right below the versions that are kept too, where no gap shows it.
    last = max(numbers(Location(stray)))
    (stray / "_ags1/v-2.json").rename(stray / f"_ags1/v-{last - 1}.json")
    place = stray / f"_ags1/v-{last - 1}.json"
    late = Version.parse(place.read_bytes(), 2, "late")
    _, data = replace(late, version=last - 1).authenticated(DatasetKeys(late.key, client(), "late"))
    place.write_bytes(data)
    with pytest.raises(FileNotFoundError, match=f"no version {last - 1}"):
        dataset.open(stray, client(), version=last - 1)


def test_what_a_killed_late_writer_left_is_named_by_verify_and_removed_by_expire(stray: Path) -> None:
    with dataset.open(stray, client()) as opened:
        report = opened.verify()
        assert report.ok
        assert kinds(report)["_ags1/v-2.json"] == "unreferenced"
        # An attacker could make a version look like this one, so it goes when it is old, or by its number.
        with pytest.raises(FormatError, match=r"version 2 stays.*version 3 does not follow version 2.*give_up=2"):
            opened.expire(keep=100, grace=0)
        assert opened.expire(keep=100, grace=0, give_up=2).versions == [2]
        assert 2 not in numbers(Location(stray))
        assert not opened.verify().findings
        assert plain_of(opened) == {"a": b"1", "b": b"2", "c": b"3"}


def test_what_a_killed_late_writer_left_is_no_version_for_an_audit(stray: Path) -> None:
    with dataset.open(stray, client()) as opened:
        count = len(opened.versions())
    report = audit(stray, kms=client())
    (group,) = (each for each in report.groups if each.kind == "dataset")
    assert group.detail.startswith(f"{count} version")
    assert {found.code for found in report.findings} == {"dataset-unreferenced"}
    (said,) = (found.message for found in report.findings if "v-2.json" in found.subject)
    assert "a late writer made it" in said


def test_a_dataset_that_was_open_does_not_show_it(stray: Path) -> None:
    last = max(numbers(Location(stray)))
    assert latest_number(Location(stray), after=1) == last
    assert latest_number(Location(stray), after=last) == last


# -- versions that were changed -------------------------------------------------------------------------------------


def _forms(text: str) -> dict[str, str]:
    """Other texts of the same fields, so of the same tag."""
    fields = json.loads(text)
    return {
        "white space at the end": f"{text} ",
        "no line feed at the end": text[:-1],
        "another indent": json.dumps(fields, indent=1) + "\n",
        "one line": json.dumps(fields) + "\n",
        "one more field": json.dumps({**fields, "more": 1}, indent=2) + "\n",
        "one more field of the manifest": json.dumps(
            {**fields, "manifest": {**fields["manifest"], "more": 1}}, indent=2
        )
        + "\n",
        "one more field of the key": json.dumps({**fields, "key": {**fields["key"], "more": 1}}, indent=2) + "\n",
        "another order": json.dumps(dict(reversed(fields.items())), indent=2) + "\n",
        "a field twice": text.replace('"version"', '"run": "0",\n  "version"'),
        "an escape": text.replace('"test"', '"\\u0074est"'),
        "capitals": text.replace(fields["tag"], fields["tag"].upper()),
    }


def test_a_version_has_one_form_only(tmp_path: Path) -> None:
    """Else whoever has no key could change its digest, and expire would take it for one that was never committed."""
    for number in range(4):
        commit(tmp_path, {"a": b"%d" % number})
    objects = {each for each in tmp_path.iterdir() if each.is_file()}
    for number in (2, 4):
        place = tmp_path / f"_ags1/v-{number}.json"
        text = place.read_text()
        for name, changed in _forms(text).items():
            assert changed != text, name
            place.write_text(changed)
            with dataset.open(tmp_path, client(), version=1) as opened:
                with pytest.raises((FormatError, AuthenticationError)):
                    opened.expire(keep=10, older_than=30 * 24 * 3600, grace=0)
                assert not opened.verify().ok, name
            with pytest.raises((FormatError, AuthenticationError, FileNotFoundError)):
                dataset.open(tmp_path, client(), version=number)
            assert numbers(Location(tmp_path)) == [1, 2, 3, 4], name
            assert {each for each in tmp_path.iterdir() if each.is_file()} == objects
        place.write_text(text)
    assert newest(tmp_path) == {"a": b"3"}


@pytest.mark.parametrize("lost", [2, 3, 4, 5])
def test_a_lost_version_is_an_error_of_verify_and_audit(tmp_path: Path, lost: int) -> None:
    """Whoever removes what somebody may go back to must not do so in silence."""
    for number in range(6):
        commit(tmp_path, {"a": b"%d" % number})
    (tmp_path / f"_ags1/v-{lost}.json").unlink()
    with dataset.open(tmp_path, client()) as opened:
        report = opened.verify()
    (finding,) = (each for each in report.findings if each.outcome)
    assert not report.ok
    assert (finding.subject, finding.code) == (f"_ags1/v-{lost - 1}.json", "missing")
    assert f"version {lost}, which was made from it, is missing" in finding.message
    audited = audit(tmp_path, kms=client())
    (finding,) = (each for each in audited.findings if each.code == "dataset-file-missing")
    assert f"version {lost}, which was made from it, is missing" in finding.message
    with dataset.open(tmp_path, client()) as opened:
        opened.expire(keep=100, grace=0, give_up=lost - 1)
        assert opened.verify().ok


def test_a_break_in_the_chain_of_versions_stops_expire(tmp_path: Path) -> None:
    for number in range(5):
        commit(tmp_path, {"a": b"%d" % number})
    objects = {each for each in tmp_path.iterdir() if each.is_file()}
    taken = tmp_path / "taken"
    (tmp_path / "_ags1/v-3.json").rename(taken)
    with pytest.raises(FormatError, match="version 3 does not follow version 2"):
        expire_all(tmp_path, keep=10)
    assert {each for each in tmp_path.iterdir() if each.is_file()} == {*objects, taken}
    taken.rename(tmp_path / "_ags1/v-3.json")
    assert expire_all(tmp_path, keep=10).versions == []
    assert newest(tmp_path) == {"a": b"4"}


def test_a_hostile_version_costs_little(tmp_path: Path) -> None:
    """Its fields are read before anybody can vouch for them."""
    commit(tmp_path, {"a": b"1"})
    place = tmp_path / "_ags1/v-1.json"
    true = json.loads(place.read_text())
    one = true["key"]
    hostile = {
        "length": b" " * (5 << 20),
        "keys": json.dumps({**true, "key": {**one, "encryption-keys": [{}] * 1_000_000}}).encode(),
        "fenced": json.dumps({**true, "fenced": ["0"] * 800_000}).encode(),
        "depth": b"[" * (3 << 20),
        "digits": b'{"format-version": 1, "version": ' + b"9" * (3 << 20) + b"}",
    }
    for name, data in hostile.items():
        place.write_bytes(data)
        tracemalloc.start()
        try:
            with pytest.raises(FormatError):
                dataset.open(tmp_path, client())
            assert tracemalloc.get_traced_memory()[1] < 150 << 20, name
        finally:
            tracemalloc.stop()


# -- versions that cannot be read ------------------------------------------------------------------------------------


def test_a_damaged_version_is_given_up_by_name_only(tmp_path: Path) -> None:
    for number in range(3):
        commit(tmp_path, {"a": b"%d" % number})
    (tmp_path / "_ags1/v-2.json").write_bytes(b"damaged")
    with pytest.raises(FormatError, match=r"version 2 stays, and cannot be used.*give_up=2"):
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


# -- expire beside writers -------------------------------------------------------------------------------------------


def test_expire_goes_on_top_of_writers_that_never_stop_and_looks_at_what_is_new_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        commit(tmp_path, {"a": b"%d" % number})
    walks, published, busy = 0, module.publish, False
    walk = expiry.walk

    def walked(location: Location) -> Any:
        nonlocal walks
        walks += 1
        return walk(location)

    def beside(location: Location, version: Any, keys: Any, *, durable: bool = True) -> Any:
        nonlocal busy
        if version.operation == "expire" and not busy and version.version < 20:
            busy = True
            commit(tmp_path, {f"new {version.version}": b"1"})
            busy = False
        return published(location, version, keys, durable=durable)

    monkeypatch.setattr(expiry, "walk", walked)
    monkeypatch.setattr(module, "publish", beside)
    report = expire_all(tmp_path)
    assert walks == 1
    assert (report.versions, report.kept) == ([1, 2], list(range(3, report.version + 1)))
    assert report.version == 20
    assert newest(tmp_path) == {"a": b"2", **{f"new {number}": b"1" for number in range(4, 20)}}
    with dataset.open(tmp_path, client()) as opened:
        assert opened.verify().findings == []
    monkeypatch.setattr(module, "publish", lambda *arguments, **named: (_ for _ in ()).throw(FileExistsError()))
    monkeypatch.setattr(module.Transaction, "_on_top", lambda self, told: (self.base, self.root))
    with pytest.raises(ConflictError, match="other writers committed during each of 3 attempts"):
        expire_all(tmp_path, attempts=3)


def test_expire_spares_what_a_writer_commits_while_it_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects that were in no version when they were listed, of a run that commits before the fence."""
    commit(tmp_path, {"a": b"1"})
    commit(tmp_path, {"a": b"2"})
    slow = begin(tmp_path)
    put_all(slow, {"late": b"committed at the last moment"})
    published = module.publish

    def beside(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(module, "publish", published)
        assert slow.commit() is not None
        return published(*arguments, **named)

    monkeypatch.setattr(module, "publish", beside)
    report = expire_all(tmp_path)
    assert report.versions == [1]
    assert newest(tmp_path) == {"a": b"2", "late": b"committed at the last moment"}
