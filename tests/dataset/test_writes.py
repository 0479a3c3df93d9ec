"""Writes that hold no lock until their commit: beside others, after others, thrown away, killed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1 import dataset
from ags1.dataset import _writes
from ags1.dataset._manifest import Entry, sort_key
from ags1.dataset._runs import RunReference
from ags1.dataset._store import LocalStore, RemoteStore
from ags1.dataset._update import Update, clean
from ags1.errors import AuthenticationError
from tests.dataset.conftest import (
    CONTENTS,
    assert_clean,
    control,
    fresh,
    killed_at,
    plain_of,
    write_tree,
)

Store = LocalStore | RemoteStore
Written = dict[str, tuple[int, bytes]]


def begin(store: Store, depth: int = 0) -> RunReference:
    return _writes.begin(store, fresh(), "lake", depth)


def write(store: Store, run: RunReference, *texts: bytes, attempt: int = 0, directory: str = "") -> Written:
    """What tasks do: a file for each text."""
    keys = run.unwrap(fresh())
    written = {}
    for number, text in enumerate(texts):
        path = f"{directory}part-{number:05d}-{run.run}-{attempt}-c000.txt"
        metadata = keys.stream_key(path)
        stream = ags1.encrypt(text, metadata.encryption_key, aad_prefix=metadata.aad_prefix or b"")
        place = store.join(_writes.place(store, run.run, path))
        if isinstance(store, RemoteStore):
            store.file_system.pipe_file(place, stream)
        else:
            Path(place).parent.mkdir(parents=True, exist_ok=True)
            Path(place).write_bytes(stream)
        written[path] = (len(text), metadata.with_length(len(stream)).encode())
    return written


def commit(store: Store, run: RunReference, written: Written, *, overwrite: bool = False, kms: Any = None) -> int:
    """What the driver does."""
    with Update.begin(store, kms or fresh(), None if run.base_version else run.table_key_id, run=run) as update:
        _writes.take(store, update.reference, list(written))
        bases = {base.path: base for base in update.lines()}
        for path in sorted({*bases, *written}, key=sort_key):
            if path in written:
                size, metadata = written[path]
                update.put(Entry(path, size, ags1.layout.encrypted_length(size), metadata), replaces=False)
            elif overwrite:
                update.drop(bases[path])
            else:
                update.keep(bases[path])
        return update.commit()


def texts_of(vault: str | Path | RemoteStore) -> list[bytes]:
    with dataset.open(vault, fresh()) as opened:
        assert opened.verify().problems == []
        return sorted(plain_of(opened).values())


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "vault")


@pytest.fixture
def remote() -> Iterator[RemoteStore]:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    yield RemoteStore(memory, "/lake/vault")
    memory.store.clear()


def test_keys_of_streams_are_not_those_of_files(local: LocalStore) -> None:
    keys = begin(local).unwrap(fresh())
    found = [keys.stream_key("a"), keys.stream_key("b"), keys.file_key("a", 0, 0), keys.file_key("stream", 0, 0)]
    assert len({bytes(each.encryption_key) for each in found}) == len(found)
    assert len({each.aad_prefix for each in found}) == len(found)
    assert keys.stream_key("a") == keys.stream_key("a")
    assert keys.stream_key("a").file_length is None


def test_a_write_makes_a_dataset_adds_to_it_and_replaces_it(local: LocalStore) -> None:
    first = begin(local)
    assert commit(local, first, write(local, first, b"1", b"2")) == 1
    assert texts_of(local.root) == [b"1", b"2"]
    second = begin(local)
    assert commit(local, second, write(local, second, b"3")) == 2
    assert texts_of(local.root) == [b"1", b"2", b"3"]
    third = begin(local)
    assert commit(local, third, write(local, third, b"4"), overwrite=True) == 3
    assert texts_of(local.root) == [b"4"]
    assert_clean(Path(local.root))


def test_a_run_beside_a_write_neither_adopts_nor_sweeps_it(local: LocalStore, tmp_path: Path) -> None:
    """Both of plain Python's runs and of those that hold the lock for workers."""
    run = begin(local)
    written = write(local, run, b"from the write")
    raw = write_tree(tmp_path / "raw", CONTENTS)
    with dataset.encrypt(raw, local.root, fresh(), "lake") as vault:
        assert plain_of(vault) == CONTENTS
    with Update.begin(local, fresh(), "lake") as update:
        assert not update.resumed
        for base in update.lines():
            update.keep(base)
        update.commit()
    assert commit(local, run, written) == 2
    assert texts_of(local.root) == sorted([b"from the write", *CONTENTS.values()])
    assert_clean(Path(local.root))


def test_two_writes_that_both_would_make_the_dataset(local: LocalStore) -> None:
    one, two = begin(local), begin(local)
    first, second = write(local, one, b"1"), write(local, two, b"2")
    assert commit(local, one, first) == 1
    assert commit(local, two, second) == 2
    assert texts_of(local.root) == [b"1", b"2"]


def test_only_files_that_are_committed_appear(local: LocalStore, remote: RemoteStore) -> None:
    """Of two attempts at a task, one counts; the other may have finished its files too."""
    for store in (local, remote):
        run = begin(store)
        write(store, run, b"lost", attempt=1)
        _writes.note_retry(store, run.run)
        commit(store, run, write(store, run, b"kept", attempt=2))
        assert [path for path, _ in store.walk() if not path.startswith("_ags1")] == [
            f"part-00000-{run.run}-2-c000.txt"
        ]
    assert texts_of(local.root) == [b"kept"]
    assert_clean(Path(local.root))


def test_a_write_survives_a_rewrap(local: LocalStore) -> None:
    first = begin(local)
    commit(local, first, write(local, first, b"1"))
    run = begin(local)
    written = write(local, run, b"2")
    with dataset.open(local.root, fresh()) as vault:
        vault.rewrap("new")
    commit(local, run, written)
    with dataset.open(local.root, fresh(), key_id="new") as vault:
        assert sorted(plain_of(vault).values()) == [b"1", b"2"]


def test_a_dataset_that_was_exchanged_gets_no_files(local: LocalStore) -> None:
    first = begin(local)
    commit(local, first, write(local, first, b"1"))
    run = begin(local)
    written = write(local, run, b"2")
    Path(local.join("_ags1/metadata.json")).unlink()
    with pytest.raises(FileNotFoundError, match="there is no ags1 dataset here"):
        commit(local, run, written)
    other = begin(local)
    commit(local, other, write(local, other, b"other"))
    with pytest.raises(AuthenticationError, match="another dataset than the one that this write began on"):
        commit(local, run, written)
    with dataset.open(local.root, fresh()) as vault:
        assert list(plain_of(vault).values()) == [b"other"]


def test_an_aborted_write_leaves_nothing(local: LocalStore, remote: RemoteStore) -> None:
    for store in (local, remote):
        first = begin(store, 1)
        commit(store, first, write(store, first, b"1", directory="a=1/"))
        run = begin(store, 1)
        write(store, run, b"2", b"3", directory="a=1/")
        _writes.abort(store, run.run)
        # Twice, as by Spark and then by a person, does no harm.
        _writes.abort(store, run.run)
        assert [path for path, _ in store.walk() if not path.startswith("_ags1")] == [
            f"a=1/part-00000-{first.run}-0-c000.txt"
        ]
    assert_clean(Path(local.root))


def test_what_a_task_finishes_after_the_write_was_aborted_is_found_later(
    remote: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begin(remote)
    _writes.abort(remote, run.run)
    write(remote, run, b"zombie")
    with pytest.raises(FileNotFoundError, match="this write is over, or was thrown away"):
        _writes.claim(remote, run.run)
    following = begin(remote)
    commit(remote, following, write(remote, following, b"1"))
    assert f"write-{run.run}.json" in remote.control_names()
    monkeypatch.setattr(_writes, "ZOMBIES_LAST", 0.0)
    following = begin(remote)
    commit(remote, following, write(remote, following, b"2"))
    assert f"write-{run.run}.json" not in remote.control_names()
    assert texts_of(remote) == [b"1", b"2"]


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_what_clean_throws_away_cannot_be_committed(kind: str, request: pytest.FixtureRequest) -> None:
    store: Store = request.getfixturevalue(kind)
    run = begin(store)
    written = write(store, run, b"1")
    assert f"write-{run.run}.json" in clean(store)
    with pytest.raises(FileNotFoundError, match="this write is over, or was thrown away"):
        commit(store, run, written)
    assert [path for path, _ in store.walk() if not path.startswith("_ags1")] == []
    assert [name for name in store.control_names() if name != "lock"] == []


def test_a_sweep_that_was_interrupted_is_final(local: LocalStore) -> None:
    """Else some files would be gone when the rest is committed."""
    run = begin(local)
    written = write(local, run, b"1", b"2")
    path = Path(local.join(f"_ags1/write-{run.run}.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "state": "abandoned"}))
    with pytest.raises(FileNotFoundError, match="thrown away"):
        commit(local, run, written)


def test_updates_throw_away_old_writes_and_no_others(local: LocalStore) -> None:
    old, young = begin(local), begin(local)
    write(local, old, b"old")
    write(local, young, b"young")
    path = Path(local.join(f"_ags1/write-{old.run}.json"))
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, "created-ms": fields["created-ms"] - int(_writes.WRITE_LASTS * 1000)}))
    run = begin(local)
    commit(local, run, write(local, run, b"1"))
    left = {name for name in control(Path(local.root)) if name.startswith("write-")}
    assert left == {f"write-{young.run}.json", f"write-{young.run}"}


def test_a_task_that_was_killed_late_leaves_a_directory_that_the_next_update_removes(local: LocalStore) -> None:
    run = begin(local)
    commit(local, run, write(local, run, b"1"))
    write(local, run, b"zombie", attempt=7)
    following = begin(local)
    commit(local, following, write(local, following, b"2"))
    assert texts_of(local.root) == [b"1", b"2"]
    assert_clean(Path(local.root))


def test_a_write_that_is_killed_in_its_commit_is_there_or_not(local: LocalStore, tmp_path: Path) -> None:
    first = begin(local)
    commit(local, first, write(local, first, b"1"))
    run = begin(local)
    written = write(local, run, b"2", b"3", directory="a=1/")

    def committed(root: Path) -> Any:
        shutil.copytree(local.root, root)
        return lambda: commit(LocalStore(root), run, written, overwrite=True)

    total = killed_at(1 << 30, committed(tmp_path / "whole"))
    assert total is not None
    outcomes = set()
    for step in range(1, total + 1):
        root = tmp_path / f"killed-{step}"
        # A change that fails, as of a directory that is not empty, is no moment to be killed after.
        killed_at(step, committed(root))
        with dataset.open(root, fresh()) as opened:
            outcomes.add(tuple(sorted(plain_of(opened).values())))
        clean(LocalStore(root))
        outcomes.add(tuple(texts_of(root)))
        assert_clean(root)
    assert outcomes == {(b"1",), (b"2", b"3")}


def test_files_of_a_commit_that_came_to_be_are_not_taken_for_rubbish(
    remote: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed, or failing, between metadata.json and the end of the commit, behind an object store."""
    run = begin(remote)
    written = write(remote, run, b"1")
    monkeypatch.setattr(_writes, "finish", lambda *arguments: (_ for _ in ()).throw(OSError(5, "gone")))
    with pytest.raises(OSError, match="gone"):
        commit(remote, run, written)
    monkeypatch.undo()
    assert f"write-{run.run}.json" in remote.control_names()
    for remove in (lambda: _writes.abort(remote, run.run), lambda: clean(remote)):
        remove()
        assert f"write-{run.run}.json" not in remote.control_names()
        assert texts_of(remote) == [b"1"]


def test_files_of_a_commit_that_did_not_come_to_be_are_removed(
    remote: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = begin(remote)
    commit(remote, first, write(remote, first, b"1"))
    run = begin(remote)
    written = write(remote, run, b"2")
    announce = _writes.announce

    def failing(*arguments: Any) -> None:
        announce(*arguments)
        raise OSError(5, "gone")

    monkeypatch.setattr(_writes, "announce", failing)
    with pytest.raises(OSError, match="gone"):
        commit(remote, run, written)
    with remote.lock():
        # Somebody is at it: then they see to it.
        _writes.abort(remote, run.run)
        assert f"write-{run.run}.json" in remote.control_names()
    _writes.abort(remote, run.run)
    assert texts_of(remote) == [b"1"]
    clean(remote)
    assert f"write-{run.run}.json" not in remote.control_names()


def test_a_write_needs_a_master_key(local: LocalStore) -> None:
    with pytest.raises(FileNotFoundError, match="there is no ags1 dataset here"):
        _writes.begin(local, fresh(), None)
    run = begin(local)
    commit(local, run, write(local, run, b"1"))
    with pytest.raises(ValueError, match="is under the master key 'lake', not 'new'"):
        _writes.begin(local, fresh(), "new")
    assert _writes.begin(local, fresh(), None).table_key_id == "lake"
