"""What was found by attack on the finished datasets: each was a file lost, or a change that was not what it said."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from ags1 import dataset
from ags1.dataset import transaction
from ags1.dataset.names import run_of
from ags1.dataset.pins import Access
from ags1.dataset.transaction import Transaction
from ags1.dataset.versions import numbers, read_latest
from ags1.errors import Ags1Error, AuthenticationError, ConflictError, FormatError
from ags1.storage import Location
from tests.dataset.commits import KEY_ID, client, commit, contents, put_all
from tests.dataset.conftest import CountingKms, plain_of, read_tree, write_tree


def begin(root: Path, operation: str = "test") -> Transaction:
    return Transaction.begin(Access.of(Location(root), client()), operation, key_id=KEY_ID, durable=False)


def expire(root: Path, **named: Any) -> dataset.ExpireReport:
    with dataset.open(root, client()) as found:
        return found.expire(**{"keep": 1, "older_than": None, "grace": 3600, **named})


def newest(root: Path) -> dict[str, bytes]:
    found = read_latest(Location(root))
    assert found is not None
    return contents(root, found)


# -- a number that was expired --------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [0, 1])
def test_a_late_writer_does_not_commit_under_the_number_of_an_expired_version(tmp_path: Path, base: int) -> None:
    if base:
        commit(tmp_path, {"a": b"1"})
    late = begin(tmp_path)
    put_all(late, {"late": b"of a writer that slept"})
    commit(tmp_path, {"b": b"2"})
    commit(tmp_path, {"c": b"3"})
    expire(tmp_path)
    expire(tmp_path)
    assert base + 1 not in numbers(Location(tmp_path))
    with pytest.raises(ConflictError, match=r"meanwhile: nothing was committed; run it again"):
        late.commit()
    assert base + 1 not in numbers(Location(tmp_path))
    assert newest(tmp_path) == {"a": b"1", "b": b"2", "c": b"3"} if base else {"b": b"2", "c": b"3"}


def test_a_dataset_that_is_open_sees_the_last_version_although_the_next_one_was_expired(tmp_path: Path) -> None:
    commit(tmp_path, {"a": b"1"})
    with dataset.open(tmp_path, client()) as found:
        commit(tmp_path, {"b": b"2"})
        commit(tmp_path, {"c": b"3"})
        expire(tmp_path)
        expire(tmp_path)
        assert found.refresh()
        assert found.version == max(numbers(Location(tmp_path)))


# -- merges ---------------------------------------------------------------------------------------------------------


def test_two_that_remove_the_same_file_both_succeed(tmp_path: Path) -> None:
    commit(tmp_path, {"a": b"1", "b": b"2"})
    other = begin(tmp_path, "rm")
    other.remove("a")
    commit(tmp_path, {}, removed=("a",))
    other.commit()
    assert newest(tmp_path) == {"b": b"2"}


# -- paths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["..", "../..", "a/../../b", "/../x", "_ags1", "_ags1/manifests"])
def test_a_prefix_does_not_leave_the_dataset(vault: Path, tmp_path: Path, client: CountingKms, prefix: str) -> None:
    more = write_tree(tmp_path / "more", {"new.txt": b"new"})
    before = read_tree(tmp_path)
    with dataset.open(vault, client) as found, pytest.raises((ValueError, FormatError), match=r"no path|reserved"):
        found.add(more, prefix=prefix)
    assert read_tree(tmp_path) == before
    with dataset.open(vault, client) as found:
        assert found.verify().ok


def test_a_dataset_in_a_dataset_is_left_alone_by_expire(vault: Path, tmp_path: Path, client: CountingKms) -> None:
    more = write_tree(tmp_path / "more", {"new.txt": b"new", "d/x": b"more"})
    with dataset.encrypt(more, vault / "inner", client, "lake"):
        pass
    with dataset.open(vault, client) as found:
        found.expire(older_than=None, grace=0)
    with dataset.open(vault / "inner", client) as found:
        assert found.verify().ok
        assert plain_of(found) == read_tree(more)


def test_a_new_dataset_in_its_own_source_does_not_take_itself_in(tmp_path: Path, client: CountingKms) -> None:
    raw = write_tree(tmp_path / "raw", {"a": b"1", "z/x": b"2"})
    before = read_tree(raw)
    with dataset.encrypt(raw, raw / "z" / "zvault", client, "lake", threads=1) as found:
        assert plain_of(found) == before


# -- sources --------------------------------------------------------------------------------------------------------


def test_delete_keeps_what_an_excluded_directory_holds(tmp_path: Path, client: CountingKms) -> None:
    raw = write_tree(tmp_path / "raw", {"a/b/c": b"1", "a/d": b"2"})
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake"):
        pass
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake", exclude="a/b", delete=True) as found:
        assert plain_of(found) == {"a/b/c": b"1", "a/d": b"2"}
        target = tmp_path / "out"
        found.decrypt(target, exclude="a/b")
        assert read_tree(target) == {"a/d": b"2"}


def test_delete_keeps_what_is_below_a_directory_that_cannot_be_read(
    tmp_path: Path, client: CountingKms, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = write_tree(tmp_path / "raw", {"d/x": b"1", "d.y": b"2", "e": b"3"})
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake"):
        pass
    (raw / "e").unlink()
    scandir = os.scandir

    def refused(path: Any) -> Any:
        if str(path) == str(raw / "d"):
            raise OSError(5, "Input/output error", str(path))
        return scandir(path)

    monkeypatch.setattr("ags1.dataset.sources.os.scandir", refused)
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake", delete=True, on_error="collect") as found:
        assert found.report is not None
        assert len(found.report.errors) == 1
        assert plain_of(found) == {"d/x": b"1", "d.y": b"2"}


def test_a_directory_of_bytes_that_are_no_text_is_encrypted(tmp_path: Path, client: CountingKms) -> None:
    raw = tmp_path / "raw"
    deep = os.fsencode(raw) + b"/" + b"\xff" * 200
    os.makedirs(deep)
    with open(deep + b"/" + b"\xfe" * 255, "wb") as file:
        file.write(b"1")
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake") as found:
        assert list(plain_of(found).values()) == [b"1"]


# -- hostile directories --------------------------------------------------------------------------------------------


def test_rubbish_among_the_runs_stops_nobody(vault: Path, tmp_path: Path, client: CountingKms) -> None:
    runs = vault / "_ags1" / "runs"
    runs.mkdir(exist_ok=True)
    (runs / "file").write_bytes(b"x")
    (runs / "0123456789ab").mkdir()
    (runs / "0123456789ab" / "run.json").write_bytes(b"[")
    (runs / "link").symlink_to(tmp_path)
    (runs / "dir").mkdir()
    (runs / "dir" / "run.json").write_bytes(b"{}")
    more = write_tree(tmp_path / "more", {"new.txt": b"new"})
    with dataset.open(vault, client) as found:
        found.add(more)
        found.expire(older_than=None, grace=0)
        found.expire(older_than=None, grace=0)
    fields = json.loads(max((vault / "_ags1").glob("v-*.json")).read_text())
    assert all(len(each) == 12 for each in fields["fenced"])
    # Only what a run makes is removed.
    assert (runs / "file").exists()


def test_a_kept_version_that_was_forged_makes_expire_delete_nothing(tmp_path: Path) -> None:
    commit(tmp_path, {"a": b"1"})
    commit(tmp_path, {"b": b"2"}, removed=("a",))
    commit(tmp_path, {"c": b"2"})
    place = tmp_path / "_ags1" / "v-1.json"
    fields = json.loads(place.read_text())
    fields.update({"manifest": None, "file-count": 0, "plaintext-bytes": 0})
    place.write_text(json.dumps(fields))
    before = {name for name in read_tree(tmp_path) if run_of(name)}
    with pytest.raises(Ags1Error):
        expire(tmp_path, keep=10, grace=0)
    assert before <= set(read_tree(tmp_path))


def test_a_durable_run_does_not_believe_a_record_of_one_that_was_not(tmp_path: Path, client: CountingKms) -> None:
    raw = write_tree(tmp_path / "raw", {"a": b"1", "b": b"2"})

    def stop(done: int, total: int | None) -> None:
        if done >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dataset.encrypt(raw, tmp_path / "vault", client, "lake", durable=False, progress=stop, threads=1)
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake") as found:
        assert found.report is not None
        assert found.report.resumed == 0


def test_a_file_and_a_directory_of_one_name_are_told(tmp_path: Path, client: CountingKms) -> None:
    raw = write_tree(tmp_path / "raw", {"a": b"1", "b": b"2"})
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake"):
        pass
    shutil.rmtree(raw)
    write_tree(raw, {"a/x": b"1", "b": b"2"})
    with pytest.raises(FileExistsError, match=r"dataset still has a, .*delete=True.*: 'a/'"):
        dataset.encrypt(raw, tmp_path / "vault", client, "lake")
    with pytest.raises(FileExistsError, match="delete=True"):
        dataset.preview(raw, tmp_path / "vault", client, "lake")
    with dataset.open(tmp_path / "vault", client) as found:
        assert found.version == 1
        with pytest.raises(NotADirectoryError, match=r"a file of the dataset, so a/ cannot exist.*: 'a'"):
            found.add(raw)
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake", delete=True) as found:
        assert plain_of(found) == {"a/x": b"1", "b": b"2"}
    # And back again; what comes between the two in the order of paths is in nobody's way.
    shutil.rmtree(raw)
    write_tree(raw, {"a": b"1", "a-b": b"2", "a.b": b"3", "b": b"2"})
    with pytest.raises(FileExistsError, match=r"dataset still has a/, .*delete=True.*: 'a'"):
        dataset.encrypt(raw, tmp_path / "vault", client, "lake", on_error="collect")
    with dataset.open(tmp_path / "vault", client) as found:
        with pytest.raises(IsADirectoryError, match=r"a directory of the dataset: remove a/ first: 'a'"):
            found.add(raw)
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake", delete=True) as found:
        assert plain_of(found) == read_tree(raw)
        assert found.decrypt(tmp_path / "out").ok


def test_a_single_file_as_source_does_not_empty_the_dataset(vault: Path, raw: Path, client: CountingKms) -> None:
    with pytest.raises(ValueError, match="delete=True"):
        dataset.encrypt(raw / "a.txt", vault, client, "lake", delete=True)
    with dataset.open(vault, client) as found:
        assert plain_of(found) == read_tree(raw)


def test_paths_that_look_like_a_dataset_of_their_own_are_expired(tmp_path: Path) -> None:
    paths = ("x/_ags1/v-3.json", "x/_ags1/runs/0123456789ab/run.json", "x/_ags1/y", "a.0123456789ab-01234567.ags1")
    commit(tmp_path, dict.fromkeys(paths, b"1"))
    commit(tmp_path, {"b": b"2"}, removed=paths)
    expire(tmp_path, grace=0)
    assert not (tmp_path / "x").exists()
    assert newest(tmp_path) == {"b": b"2"}


def test_a_dataset_whose_last_version_was_deleted_changes_nothing_until_it_is_opened_again(
    vault: Path, client: CountingKms
) -> None:
    with dataset.open(vault, client) as first:
        first.rm("empty")
    with dataset.open(vault, client) as found:
        (vault / "_ags1" / "v-2.json").unlink()
        with pytest.raises(AuthenticationError, match="has version 1, but 2 was seen already"):
            found.rm("a.txt")
    with dataset.open(vault, client) as found:
        found.rm("a.txt")
        assert "a.txt" not in found.files
        assert "empty" in found.files


def test_a_key_of_a_manifest_is_not_pickled(vault: Path) -> None:
    with Transaction.begin(Access.of(Location(vault), CountingKms("lake")), "test") as transaction:
        with pytest.raises(TypeError, match="holds a key"):
            pickle.dumps(transaction.root)


def test_a_commit_whose_reply_was_lost_and_that_was_expired_is_not_said_to_be_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The threat: told that nothing was committed, a writer removes its objects, and later versions name them."""
    commit(tmp_path, {"a": b"1"})
    mine = begin(tmp_path)
    put_all(mine, {"mine": b"2"})

    def lost(*arguments: Any, **options: Any) -> None:
        monkeypatch.undo()
        publish(*arguments, **options)
        commit(tmp_path, {"b": b"3"})
        expire(tmp_path)
        raise FileExistsError("as a store says it to the second request")

    publish = transaction.publish
    monkeypatch.setattr(transaction, "publish", lost)
    with pytest.raises(OSError, match="whether it was this one is unknown") as caught:
        mine.commit()
    assert not isinstance(caught.value, FileExistsError)
    assert newest(tmp_path) == {"a": b"1", "b": b"3", "mine": b"2"}
