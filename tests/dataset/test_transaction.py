"""The commit: one file created if absent. Writers that meet lose nothing, and see what they cannot both have."""

from __future__ import annotations

import json
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path

import pytest

import ags1.dataset.transaction as module
import ags1.dataset.versions as versions
from ags1.dataset.keys import DatasetKeys
from ags1.dataset.maintenance import expire
from ags1.dataset.names import version_name
from ags1.dataset.pins import Access
from ags1.dataset.transaction import Transaction
from ags1.dataset.versions import read_latest, read_version
from ags1.errors import AuthenticationError, ConflictError, FormatError, UnsupportedError
from ags1.storage import Location
from ags1.support.recently_used import RecentlyUsed
from tests.dataset.commits import KEY_ID, client, commit, contents, entries_of, put_all, write_object


def last(root: Path) -> versions.Version:
    found = read_latest(Location(root))
    assert found is not None
    return found


def begin(root: Path, key_id: str | None = KEY_ID) -> Transaction:
    return Transaction.begin(Access.of(Location(root), client()), "test", key_id=key_id, durable=False)


def test_each_commit_is_a_version_and_the_older_ones_stay(tmp_path: Path) -> None:
    commit(tmp_path, {"a": b"1", "b": b"2"})
    commit(tmp_path, {"a": b"3", "c/d": b"4"}, removed=("b",))
    first, second = read_version(Location(tmp_path), 1), last(tmp_path)
    assert second.version == 2
    assert second.parent == first.digest
    assert second.uuid == first.uuid
    assert contents(tmp_path, first) == {"a": b"1", "b": b"2"}
    assert contents(tmp_path, second) == {"a": b"3", "c/d": b"4"}
    assert (second.file_count, second.plaintext_bytes) == (2, 2)


def test_a_transaction_that_changes_nothing_makes_no_version(tmp_path: Path) -> None:
    commit(tmp_path, {"a": b"1"})
    assert commit(tmp_path, {}) is None
    assert commit(tmp_path, {}, removed=("missing",)) is None
    assert last(tmp_path).version == 1


def test_a_transaction_that_is_given_up_changes_nothing(tmp_path: Path) -> None:
    commit(tmp_path, {"a": b"1"})
    with begin(tmp_path) as transaction:
        put_all(transaction, {"a": b"2", "b": b"3"})
    assert contents(tmp_path, last(tmp_path)) == {"a": b"1"}


def test_writers_of_different_paths_both_commit(tmp_path: Path) -> None:
    commit(tmp_path, {"a": b"1", "b": b"2", "c": b"3"})
    one, other = begin(tmp_path), begin(tmp_path)
    put_all(one, {"a": b"one", "d": b"new"})
    other.remove("b")
    put_all(other, {"e": b"other"})
    first, second = one.commit(), other.commit()
    assert first is not None
    assert second is not None
    assert (first.version, second.version) == (2, 3)
    assert contents(tmp_path, second) == {"a": b"one", "c": b"3", "d": b"new", "e": b"other"}
    assert {entry.path: entry.version for entry in entries_of(tmp_path, second)[0]} == {"a": 2, "c": 1, "d": 2, "e": 3}


@pytest.mark.parametrize("how", ["changed by both", "removed and changed", "made by both"])
def test_writers_of_one_path_see_the_conflict(how: str, tmp_path: Path) -> None:
    commit(tmp_path, {"a": b"1", "b": b"2"})
    one, other = begin(tmp_path), begin(tmp_path)
    path = "new" if how == "made by both" else "a"
    if how == "removed and changed":
        one.remove(path)
    else:
        put_all(one, {path: b"one"})
    put_all(other, {path: b"other"})
    made = one.commit()
    with pytest.raises(ConflictError, match=f"another writer has changed {path} meanwhile"):
        other.commit()
    assert made is not None
    assert last(tmp_path).digest == made.digest


def test_a_file_that_both_removed_is_removed(tmp_path: Path) -> None:
    commit(tmp_path, {"a": b"1", "b": b"2"})
    one, other = begin(tmp_path), begin(tmp_path)
    one.remove("a")
    other.remove("a")
    put_all(other, {"c": b"3"})
    one.commit()
    other.commit()
    assert contents(tmp_path, last(tmp_path)) == {"b": b"2", "c": b"3"}


def test_of_two_writers_who_make_one_dataset_the_second_is_refused(tmp_path: Path) -> None:
    one, other = begin(tmp_path), begin(tmp_path)
    put_all(one, {"a": b"1"})
    put_all(other, {"b": b"2"})
    one.commit()
    with pytest.raises(ConflictError, match="another writer has made this dataset meanwhile"):
        other.commit()
    commit(tmp_path, {"b": b"2"})
    assert contents(tmp_path, last(tmp_path)) == {"a": b"1", "b": b"2"}


def test_a_lost_answer_of_the_commit_is_settled_by_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(tmp_path, {"a": b"1"})
    original = versions.create
    lost = [True]

    def create(place: Location, data: bytes, **options: bool) -> None:
        original(place, data, **options)
        if lost:
            lost.pop()
            raise FileExistsError(17, "File exists", place.text)

    monkeypatch.setattr(versions, "create", create)
    made = commit(tmp_path, {"b": b"2"})
    assert made is not None
    assert made.version == 2
    assert last(tmp_path).version == 2


def _append(root: str, index: int, barrier: object) -> None:
    for number in range(3):
        commit(Path(root), {f"{index}/{number}": b"%d %d" % (index, number)})


def test_eight_processes_lose_nothing(tmp_path: Path) -> None:
    commit(tmp_path, {"first": b"0"})
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_append, args=(str(tmp_path), index, None)) for index in range(8)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert [each.exitcode for each in workers] == [0] * 8
    expected = {f"{index}/{number}": b"%d %d" % (index, number) for index in range(8) for number in range(3)}
    assert contents(tmp_path, last(tmp_path)) == {"first": b"0", **expected}
    assert last(tmp_path).version == 25


def test_a_fenced_run_commits_nothing(tmp_path: Path) -> None:
    commit(tmp_path, {"a": b"1"})
    zombie = begin(tmp_path)
    put_all(zombie, {"b": b"2"})
    fencing = begin(tmp_path)
    fencing.fence([zombie.run.id])
    fencing.commit(always=True)
    with pytest.raises(ConflictError, match="expire has given up this run"):
        zombie.commit()
    # However many versions later: the fence stays in the version that made it.
    commit(tmp_path, {"c": b"3"})
    assert zombie.run.id not in last(tmp_path).fenced
    with pytest.raises(ConflictError, match="expire has given up this run"):
        zombie.commit()
    assert contents(tmp_path, last(tmp_path)) == {"a": b"1", "c": b"3"}


def test_who_fences_looks_again_when_somebody_has_committed(tmp_path: Path) -> None:
    commit(tmp_path, {"a": b"1"})
    fencing = begin(tmp_path)
    fencing.fence(["0123456789ab"])
    commit(tmp_path, {"b": b"2"})
    with pytest.raises(ConflictError, match="nothing was committed; run it again"):
        fencing.commit(always=True)


def test_a_dataset_under_another_master_key_is_refused(tmp_path: Path) -> None:
    commit(tmp_path, {"a": b"1"})
    with pytest.raises(ValueError, match="under the master key 'lake', not 'new'"):
        begin(tmp_path, "new")


def test_there_must_be_a_dataset_to_be_changed(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no ags1 dataset here"):
        begin(tmp_path, None)


def test_a_store_without_create_if_absent_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    where = Location(f"memory://{tmp_path.name}")
    with pytest.raises(UnsupportedError, match="single_writer=True"):
        Transaction.begin(Access.of(where, client()), "test", key_id="lake")
    with Transaction.begin(Access.of(where, client()), "test", key_id="lake", single_writer=True) as transaction:
        made = transaction.commit(always=True)
    assert made is not None
    assert made.single_writer
    with Transaction.begin(Access.of(where, client()), "test") as transaction:
        transaction.commit(always=True)
    found = read_latest(where)
    assert found is not None
    assert (found.version, found.single_writer) == (2, True)


def test_any_change_of_a_version_is_noticed(tmp_path: Path) -> None:
    commit(tmp_path, {"a": b"1"})
    path = tmp_path / "_ags1/v-1.json"
    fields = json.loads(path.read_text())
    changes = {
        "uuid": "other", "run": "ffffffffffff", "operation": "rm", "created-ms": 1, "file-count": 2,
        "plaintext-bytes": 9, "fenced": ["ffffffffffff"], "single-writer": True,
        "parent": "00", "manifest": None, "tag": "00" * 32,
    }  # fmt: skip
    for name, value in changes.items():
        path.write_text(json.dumps({**fields, name: value}, indent=2) + "\n")
        with pytest.raises(AuthenticationError, match="was changed"):
            begin(tmp_path)
    for name in fields:
        path.write_text(json.dumps({each: value for each, value in fields.items() if each != name}))
        with pytest.raises((FormatError, AuthenticationError)):
            begin(tmp_path)
    path.write_text(json.dumps({**fields, "version": 2}))
    with pytest.raises(FormatError, match="put in another's place"):
        begin(tmp_path)
    for text in ("", "[]", "{", "null", "[" * 100_000, json.dumps({**fields, "format-version": 1})):
        path.write_text(text)
        with pytest.raises(FormatError):
            begin(tmp_path)


def test_a_sealed_key_opens_only_its_own_object(tmp_path: Path) -> None:
    commit(tmp_path, {"a": b"1", "b": b"2"})
    (one, other), keys = entries_of(tmp_path, last(tmp_path))
    with pytest.raises(AuthenticationError):
        keys.open_part(replace(one.parts[0], name=other.parts[0].name))


def test_a_commit_rereads_a_version_that_appears_while_it_is_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(tmp_path, {"a": b"1"})
    transaction = begin(tmp_path)
    put_all(transaction, {"b": b"2"})
    commit(tmp_path, {"c": b"3"})
    for manifest in (tmp_path / "_ags1/manifests").iterdir():
        if transaction.root is not None and manifest.name == Path(transaction.root.name).name:
            manifest.unlink()
    (tmp_path / "_ags1/v-1.json").unlink()
    monkeypatch.setattr(transaction.manifests, "_kept", RecentlyUsed(64))
    with pytest.raises(ConflictError, match="was expired meanwhile"):
        transaction.commit()


def test_the_module_says_what_it_is(tmp_path: Path) -> None:
    assert "create v-(n+1).json if it is absent" in (module.__doc__ or "")


def test_keys_of_objects_are_derived_as_the_format_says(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.hashes import SHA512
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

    with begin(tmp_path) as transaction:
        done = write_object(transaction, "a/b", b"data")
        keys = transaction.run.keys
        name = done.parts[0][0]
        info = b"ags1 file of a run\0" + transaction.run.id.encode() + b"\0" + name.encode()
        expected = HKDFExpand(SHA512(), 48, info).derive(bytes(keys.key()))
        metadata = keys.object_key(name)
    assert (bytes(metadata.encryption_key), metadata.aad_prefix) == (expected[:32], expected[32:])


def test_a_version_that_others_wrote_with_the_run_id_of_a_writer_is_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing shows run ids. What goes on after the commit, such as the removal of `expire`, must not believe one."""
    commit(tmp_path, {"a": b"1"})
    commit(tmp_path, {"a": b"2"})
    for path in tmp_path.rglob("*"):
        os.utime(path, (0, 0))
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    write = module.publish

    def others_first(
        location: Location, version: versions.Version, keys: DatasetKeys, *, durable: bool
    ) -> versions.Version:
        forged = json.loads((tmp_path / version_name(version.version - 1)).read_text())
        forged |= {"version": version.version, "run": version.run, "parent": version.parent}
        (tmp_path / version_name(version.version)).write_text(json.dumps(forged, indent=2) + "\n")
        return write(location, version, keys, durable=durable)

    monkeypatch.setattr(module, "publish", others_first)
    with pytest.raises(AuthenticationError, match="was changed, or is of another dataset"):
        expire(Access.of(Location(tmp_path), client()), keep=1, older_than=None, grace=0, dry_run=False)
    assert before <= set(tmp_path.rglob("*"))
    (tmp_path / version_name(3)).unlink()
    changed = begin(tmp_path)
    put_all(changed, {"b": b"1"})
    with pytest.raises(AuthenticationError, match="was changed, or is of another dataset"):
        changed.commit()


def test_a_record_that_may_not_be_removed_does_not_fail_a_commit_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def denied(location: Location, run: str) -> None:
        raise PermissionError(13, "access refused", str(location))

    monkeypatch.setattr("ags1.dataset.runs.remove_record", denied)
    made = commit(tmp_path, {"a": b"x"})
    assert made is not None
    assert contents(tmp_path, made) == {"a": b"x"}
    assert "version 1 is complete, but the record of the run stays" in caplog.text
