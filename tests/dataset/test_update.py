"""New versions whose files others make: whoever is killed or replaced, no file is lost, doubled or left behind."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1 import dataset
from ags1.dataset import _update
from ags1.dataset._manifest import Entry, sort_key
from ags1.dataset._store import LocalStore, RemoteStore
from ags1.dataset._update import Update, clean
from ags1.errors import AuthenticationError, FormatError
from tests.checks import pattern
from tests.dataset.conftest import (
    CONTENTS,
    Tree,
    assert_clean,
    control,
    fresh,
    killed_at,
    plain_of,
    read_tree,
    write_tree,
)

CHANGED: Tree = {"a.txt": b"changed", "new/file": b"new", "sub/deep/b.bin": pattern(60_000), "z": b"last"}
NEVER = 1 << 30


def some_steps(total: int, count: int) -> list[int]:
    """Moments to be killed at: the last ones, of the commit, and some before."""
    return [*sorted(random.Random(total).sample(range(1, total - 30), count)), *range(total - 30, total + 1)]


def run(
    store: LocalStore | RemoteStore,
    source: Tree,
    *,
    mtime: int = 1,
    failing: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    resume: bool = True,
) -> Update:
    """What a run of Spark does with a source, in one process; `failing` is written, and then not taken."""
    with Update.begin(store, fresh(), "lake", resume=resume) as update:
        bases = {base.path: base for base in update.lines()}
        for path in sorted({*bases, *source}, key=sort_key):
            base, data = bases.get(path), source.get(path)
            if base is not None and path in drop:
                update.drop(base)
            elif data is None or (base is not None and base.source == (len(data), mtime)):
                assert base is not None
                update.keep(base)
            else:
                metadata = update.keys.file_key(path, len(data), mtime)
                stream = ags1.encrypt(data, metadata.encryption_key, aad_prefix=metadata.aad_prefix or b"")
                if base is None:
                    update.announce([path])
                put(store, update.place(path, replaces=base is not None), stream)
                if path in failing:
                    update.doubtful = True
                    if base is not None:
                        update.keep(base)
                    continue
                entry = Entry(path, len(data), len(stream), metadata.encode(), len(data), mtime)
                update.put(entry, replaces=base is not None)
        update.commit()
    return update


def put(store: LocalStore | RemoteStore, path: str, data: bytes) -> None:
    """Put a file in place as workers do: all of it, or nothing."""
    name = store.join(path)
    if isinstance(store, RemoteStore):
        store.file_system.pipe_file(name, data)
        return
    os.makedirs(os.path.dirname(name), exist_ok=True)
    temporary = f"{name}.made"
    with open(temporary, "wb") as file:
        file.write(data)
    os.replace(temporary, name)


def running(vault: Path, source: Tree, **options: Any) -> Callable[[], Any]:
    return lambda: run(LocalStore(vault), source, **options)


def assert_whole(vault: Path, contents: Tree) -> None:
    with dataset.open(vault, fresh()) as opened:
        assert plain_of(opened) == contents
        assert opened.verify().problems == []
    assert_clean(vault)


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """Version 1, with a run that was killed when it had staged all of its files."""
    vault = tmp_path / "vault"
    run(LocalStore(vault), CONTENTS)
    total = killed_at(NEVER, _copied(vault, running(tmp_path / "trial", CHANGED, mtime=2)))
    assert total is not None
    for step in itertools.count(total - 30):
        trial = tmp_path / f"interrupted-{step}"
        shutil.copytree(vault, trial)
        assert killed_at(step, running(trial, CHANGED, mtime=2)) is None
        if sum(len(files) for _, _, files in os.walk(next((trial / "_ags1").glob("staged-*")))) == len(CHANGED):
            with dataset.open(trial, fresh()) as opened:
                assert opened.version == 1
            return trial
    raise AssertionError


def _copied(origin: Path, work: Callable[[], Any]) -> Callable[[], Any]:
    shutil.copytree(origin, origin.parent / "trial")
    return work


# -- what is written -----------------------------------------------------------------------------------------


def test_what_an_update_writes_is_a_dataset_as_any_other(tmp_path: Path) -> None:
    update = run(LocalStore(tmp_path / "vault"), CONTENTS)
    assert update.version == 1
    assert_whole(tmp_path / "vault", CONTENTS)
    stored = read_tree(tmp_path / "vault")
    for path, data in CONTENTS.items():
        assert data == b"" or data not in stored[path]
    with dataset.open(tmp_path / "vault", fresh()) as opened:
        assert len({bytes(entry.key_metadata.encryption_key) for entry in opened.files}) == len(CONTENTS)
        assert {entry.version for entry in opened.files} == {1}


def test_a_change_keeps_replaces_adds_and_drops(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "vault")
    run(store, CONTENTS)
    before = read_tree(tmp_path / "vault")
    run(store, CHANGED, mtime=2, drop=("empty", "sub.d/c"))
    expected = {**CONTENTS, **CHANGED}
    del expected["empty"], expected["sub.d/c"]
    assert_whole(tmp_path / "vault", expected)
    assert not (tmp_path / "vault" / "sub.d").exists()
    after = read_tree(tmp_path / "vault")
    for path in set(CONTENTS) - set(CHANGED) - {"empty", "sub.d/c"}:
        assert after[path] == before[path]
    with dataset.open(tmp_path / "vault", fresh()) as opened:
        assert {entry.path: entry.version for entry in opened.files} == {
            path: 2 if path in CHANGED else 1 for path in expected
        }


def test_nothing_is_written_if_nothing_differs(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "vault")
    run(store, CONTENTS)
    before = read_tree(tmp_path / "vault")
    assert run(store, CONTENTS).version == 1
    assert read_tree(tmp_path / "vault") == before


def test_an_empty_source_makes_an_empty_dataset(tmp_path: Path) -> None:
    assert run(LocalStore(tmp_path / "vault"), {}).version == 1
    assert_whole(tmp_path / "vault", {})


def test_a_manifest_of_before_versions_were_recorded_is_read_and_kept(tmp_path: Path, raw: Path) -> None:
    def without(entry: Entry) -> bytes:
        entry.version = None
        return line(entry)

    line = _update.entry_line
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_update, "entry_line", without)
        run(LocalStore(tmp_path / "vault"), CONTENTS)
    with dataset.open(tmp_path / "vault", fresh()) as opened:
        assert {entry.version for entry in opened.files} == {None}
        assert plain_of(opened) == CONTENTS
    run(LocalStore(tmp_path / "vault"), CHANGED, mtime=2)
    assert_whole(tmp_path / "vault", {**CONTENTS, **CHANGED})
    with dataset.open(tmp_path / "vault", fresh()) as opened:
        assert {entry.version for entry in opened.files} == {None, 2}


def test_the_other_writer_of_datasets_goes_on_with_it_and_the_other_way_round(tmp_path: Path, raw: Path) -> None:
    more = write_tree(tmp_path / "more", {"more": b"1"})
    run(LocalStore(tmp_path / "vault"), CONTENTS)
    with dataset.open(tmp_path / "vault", fresh()) as opened:
        opened.add(more)
    run(LocalStore(tmp_path / "vault"), CHANGED, mtime=2)
    assert_whole(tmp_path / "vault", {**CONTENTS, "more": b"1", **CHANGED})


# -- kills ---------------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_a_first_run_that_is_killed_anywhere_is_no_dataset_yet_and_the_next_completes_it(tmp_path: Path) -> None:
    total = killed_at(NEVER, running(tmp_path / "counted", CONTENTS))
    assert total is not None
    for step in some_steps(total, 8):
        vault = tmp_path / f"vault-{step}"
        killed_at(step, running(vault, CONTENTS))
        if (vault / "_ags1" / "metadata.json").exists():
            with dataset.open(vault, fresh()) as opened:
                assert plain_of(opened) == CONTENTS
        else:
            with pytest.raises(FileNotFoundError, match="its first run was not completed"):
                dataset.open(vault, fresh())
        run(LocalStore(vault), CONTENTS)
        assert_whole(vault, CONTENTS)
        shutil.rmtree(vault)


@pytest.mark.timeout(300)
def test_a_killed_change_leaves_the_old_version_or_the_new_one_and_each_is_whole(tmp_path: Path) -> None:
    origin, new = tmp_path / "origin", {**CONTENTS, **CHANGED}
    del new["empty"]
    run(LocalStore(origin), CONTENTS)
    shutil.copytree(origin, tmp_path / "counted")
    total = killed_at(NEVER, running(tmp_path / "counted", CHANGED, mtime=2, drop=("empty",)))
    assert total is not None
    versions = 0
    for step in some_steps(total, 8):
        vault = tmp_path / f"vault-{step}"
        shutil.copytree(origin, vault)
        killed_at(step, running(vault, CHANGED, mtime=2, drop=("empty",)))
        with dataset.open(vault, fresh()) as opened:
            assert plain_of(opened) == (CONTENTS if opened.version == 1 else new)
            versions |= opened.version
        cleaned = tmp_path / "cleaned"
        shutil.copytree(vault, cleaned)
        clean(LocalStore(cleaned))
        with dataset.open(cleaned, fresh()) as opened:
            version = opened.version
        assert_whole(cleaned, CONTENTS if version == 1 else new)
        run(LocalStore(vault), CHANGED, mtime=2, drop=("empty",))
        assert_whole(vault, new)
        shutil.rmtree(vault)
        shutil.rmtree(cleaned)
    assert versions == 3


def test_what_a_killed_run_staged_is_known_by_the_next_under_the_same_keys(interrupted: Path) -> None:
    (staging,) = (interrupted / "_ags1").glob("staged-*")
    with Update.begin(LocalStore(interrupted), fresh(), "lake") as update:
        assert update.resumed
        assert update.reference.staging == staging.name
        for path, data in CHANGED.items():
            metadata = update.keys.file_key(path, len(data), 2)
            stream = (staging / path).read_bytes()
            plain = ags1.decrypt(stream, metadata.encryption_key, aad_prefix=metadata.aad_prefix or b"")
            assert bytes(plain) == data
            assert len(stream) == metadata.file_length


def test_what_a_killed_run_staged_and_the_next_does_not_take_replaces_nothing(interrupted: Path) -> None:
    # The sources of the killed run are gone or as they were, all but one.
    run(LocalStore(interrupted), {"z": CHANGED["z"]}, mtime=2)
    assert_whole(interrupted, {**CONTENTS, "z": CHANGED["z"]})


def test_what_a_killed_run_staged_for_a_file_that_is_as_it_was_replaces_nothing(interrupted: Path) -> None:
    run(LocalStore(interrupted), {**CONTENTS, "other": b"x"}, mtime=1)
    with dataset.open(interrupted, fresh()) as opened:
        assert opened.files["a.txt"].version == 1
    assert_whole(interrupted, {**CONTENTS, "other": b"x"})


@pytest.mark.parametrize("kind", ["a new file", "a new version of a file"])
def test_what_a_worker_left_that_failed_does_not_come_into_the_tree(kind: str, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "vault")
    run(store, CONTENTS)
    path = "a.txt" if kind == "a new version of a file" else "new/file"
    run(store, CHANGED, mtime=2, failing=(path,))
    expected = {**CONTENTS, **CHANGED}
    if path in CONTENTS:
        expected[path] = CONTENTS[path]
    else:
        del expected[path]
    assert_whole(tmp_path / "vault", expected)


def test_a_run_can_be_begun_anew(interrupted: Path) -> None:
    (before,) = (interrupted / "_ags1").glob("run-*.json")
    with Update.begin(LocalStore(interrupted), fresh(), "lake", resume=False) as update:
        assert not update.resumed
        assert not before.exists()
        assert not list((interrupted / "_ags1").glob("staged-*"))
    run(LocalStore(interrupted), CHANGED, mtime=2, resume=False)
    assert_whole(interrupted, {**CONTENTS, **CHANGED})


def test_a_run_of_another_version_or_master_key_is_not_taken_over(interrupted: Path, tmp_path: Path) -> None:
    (record,) = (interrupted / "_ags1").glob("run-*.json")
    fields = json.loads(record.read_bytes())
    for change in ({"base-version": 0}, {"table-key-id": "other"}, {"uuid": "another"}):
        trial = tmp_path / "trial-of-record"
        shutil.copytree(interrupted, trial)
        (trial / "_ags1" / record.name).write_text(json.dumps({**fields, **change}))
        with Update.begin(LocalStore(trial), fresh(), "lake") as update:
            assert not update.resumed
            assert record.name not in control(trial)
        shutil.rmtree(trial)


def test_a_run_of_a_later_version_shows_that_an_older_metadata_was_put_back(interrupted: Path) -> None:
    (record,) = (interrupted / "_ags1").glob("run-*.json")
    fields = json.loads(record.read_bytes())
    record.write_text(json.dumps({**fields, "base-version": 2}))
    with pytest.raises(FormatError, match=r"run-.*json is of version 2, but .* says 1: an older metadata.json was put"):
        Update.begin(LocalStore(interrupted), fresh(), "lake")
    # And the lock is free again.
    record.unlink()
    run(LocalStore(interrupted), {})


def test_the_other_writer_of_datasets_throws_an_interrupted_run_away(interrupted: Path, tmp_path: Path) -> None:
    more = write_tree(tmp_path / "more", {"more": b"1"})
    (record,) = (interrupted / "_ags1").glob("run-*.json")
    write_tree(interrupted / "_ags1" / record.stem.replace("run", "parts"), {"0123/data": b"parts of a big file"})
    with dataset.open(interrupted, fresh()) as opened:
        opened.add(more)
    assert_whole(interrupted, {**CONTENTS, "more": b"1"})


def test_the_other_writer_of_datasets_finishes_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(LocalStore(tmp_path / "vault"), CONTENTS)
    with monkeypatch.context() as patched:
        patched.setattr(_update, "settle", lambda store, metadata: 1 / 0 if metadata.version == 2 else metadata)
        with pytest.raises(ZeroDivisionError):
            run(LocalStore(tmp_path / "vault"), CHANGED, mtime=2, drop=("empty",))
    assert (tmp_path / "vault" / "empty").exists()
    expected = {**CONTENTS, **CHANGED}
    del expected["empty"]
    with dataset.open(tmp_path / "vault", fresh()) as opened:
        assert plain_of(opened) == expected
        opened.add(write_tree(tmp_path / "more", {"more": b"1"}))
    assert_whole(tmp_path / "vault", {**expected, "more": b"1"})


def test_an_interrupted_run_of_the_other_writer_is_refused_not_lost(tmp_path: Path, raw: Path) -> None:
    run(LocalStore(tmp_path / "vault"), CONTENTS)
    more = write_tree(tmp_path / "more", CHANGED)

    def adding() -> None:
        with dataset.open(tmp_path / "vault", fresh(), threads=1) as opened:
            opened.add(more)

    assert killed_at(12, adding) is None
    assert any(name.startswith("journal-") for name in control(tmp_path / "vault"))
    before = control(tmp_path / "vault")
    for attempt in (lambda: Update.begin(LocalStore(tmp_path / "vault"), fresh(), "lake"),
                    lambda: clean(LocalStore(tmp_path / "vault"))):  # fmt: skip
        with pytest.raises(FormatError, match=r"has an unfinished run of ags1.dataset.encrypt or add: run that again"):
            attempt()
    assert control(tmp_path / "vault") == before
    adding()
    assert_whole(tmp_path / "vault", {**CONTENTS, **CHANGED})


def test_a_rewrap_leaves_an_interrupted_run_that_can_be_gone_on_with(interrupted: Path) -> None:
    with dataset.open(interrupted, fresh()) as opened:
        opened.rewrap("new")
    with Update.begin(LocalStore(interrupted), fresh(), "new") as update:
        assert update.resumed
        for path, data in CHANGED.items():
            metadata = update.keys.file_key(path, len(data), 2)
            stream = Path(LocalStore(interrupted).join(update.place(path, replaces=True))).read_bytes()
            plain = ags1.decrypt(stream, metadata.encryption_key, aad_prefix=metadata.aad_prefix or b"")
            assert bytes(plain) == data
    with pytest.raises(ValueError, match="is under the master key 'new', not 'lake': name that, or rewrap"):
        Update.begin(LocalStore(interrupted), fresh(), "lake")


def test_a_killed_rewrap_leaves_the_run_usable_under_one_of_the_two_keys(interrupted: Path, tmp_path: Path) -> None:
    def rewrapping(vault: Path) -> Callable[[], Any]:
        def work() -> None:
            with dataset.open(vault, fresh()) as opened:
                opened.rewrap("new")

        return work

    shutil.copytree(interrupted, tmp_path / "counted")
    total = killed_at(NEVER, rewrapping(tmp_path / "counted"))
    assert total is not None
    for step in random.Random(1).sample(range(1, total + 1), min(total, 12)):
        vault = tmp_path / f"vault-{step}"
        shutil.copytree(interrupted, vault)
        killed_at(step, rewrapping(vault))
        rewrapping(vault)()
        with Update.begin(LocalStore(vault), fresh(), "new") as update:
            assert update.resumed


# -- others --------------------------------------------------------------------------------------------------


def test_a_second_update_of_a_dataset_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "vault")
    with Update.begin(store, fresh(), "lake") as update:
        text = rf"process {os.getpid()} on host .* is changing this dataset now: wait until it has ended"
        with pytest.raises(BlockingIOError, match=text):
            Update.begin(LocalStore(tmp_path / "vault"), fresh(), "lake")
        with pytest.raises(BlockingIOError, match=text):
            clean(LocalStore(tmp_path / "vault"))
        update.commit()
    assert_whole(tmp_path / "vault", {})


def test_what_was_committed_by_somebody_else_in_spite_of_the_lock_is_not_overwritten(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "vault")
    run(store, CONTENTS)
    shutil.copytree(tmp_path / "vault", tmp_path / "other")
    run(LocalStore(tmp_path / "other"), {"theirs": b"x"})
    with Update.begin(store, fresh(), "lake") as update:
        for base in update.lines():
            update.drop(base)
        for name in (tmp_path / "other" / "_ags1").iterdir():
            shutil.copy(name, tmp_path / "vault" / "_ags1" / name.name)
        with pytest.raises(AuthenticationError, match="was changed by somebody else while this ran: nothing was"):
            update.commit()
    shutil.copy(tmp_path / "other" / "theirs", tmp_path / "vault" / "theirs")
    run(store, {})
    assert_whole(tmp_path / "vault", {**CONTENTS, "theirs": b"x"})


def test_there_has_to_be_a_dataset_if_no_master_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no ags1 dataset here, or its first run was not completed"):
        Update.begin(LocalStore(tmp_path / "vault"), fresh(), None)
    run(LocalStore(tmp_path / "vault"), CONTENTS)
    with Update.begin(LocalStore(tmp_path / "vault"), fresh(), None) as update:
        assert update.reference.table_key_id == "lake"


def test_clean_says_what_it_removed(interrupted: Path, tmp_path: Path) -> None:
    removed = clean(LocalStore(interrupted))
    assert {name.partition("-")[0] for name in removed} >= {"run", "staged"}
    assert_whole(interrupted, CONTENTS)
    assert clean(LocalStore(interrupted)) == []
    with pytest.raises(FileNotFoundError, match="no ags1 dataset here, and nothing of an interrupted run"):
        clean(LocalStore(tmp_path / "nothing"))
    assert not (tmp_path / "nothing").exists()


# -- hostile control directories -----------------------------------------------------------------------------

OUTSIDE = ["../kept", "../../kept", "{tmp}/kept", "sub/../../kept", "link/kept", "_ags1/metadata.json", "", ".", 7]


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_list_of_files_to_be_removed_reaches_nothing_outside_of_the_dataset(path: Any, tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    run(LocalStore(vault), CONTENTS)
    (tmp_path / "kept").write_bytes(b"of somebody else")
    (vault / "link").symlink_to(tmp_path)
    named = path.format(tmp=tmp_path) if isinstance(path, str) else path
    (manifest,) = (vault / "_ags1").glob("manifest-1-*")
    removed = manifest.name.replace("manifest", "removed").replace(".ags1", "")
    (vault / "_ags1" / removed).write_text(json.dumps(named) + "\n")
    if path == "link/kept":
        Update.begin(LocalStore(vault), fresh(), "lake").__exit__()
    else:
        with pytest.raises(FormatError, match=rf"{removed}: a list of files "):
            Update.begin(LocalStore(vault), fresh(), "lake")
    assert (tmp_path / "kept").read_bytes() == b"of somebody else"
    assert (vault / "_ags1" / "metadata.json").exists()


@pytest.mark.parametrize("writer", ["update", "add"])
def test_a_link_in_place_of_the_staging_directory_is_not_followed(writer: str, tmp_path: Path) -> None:
    vault, others = tmp_path / "vault", write_tree(tmp_path / "others")
    run(LocalStore(vault), CONTENTS)
    name = vault / "_ags1" / "metadata.json"
    name.write_text(json.dumps({**json.loads(name.read_bytes()), "staged": "staged-0123456789abcdef"}))
    (vault / "_ags1" / "staged-0123456789abcdef").symlink_to(others)
    attempts: dict[str, Callable[[], Any]] = {
        "update": lambda: Update.begin(LocalStore(vault), fresh(), "lake"),
        "add": lambda: dataset.encrypt(others, vault, fresh(), "lake"),
    }
    with pytest.raises(FormatError, match="is a link: what is behind it is not of this dataset"):
        attempts[writer]()
    assert read_tree(others) == CONTENTS


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "is damaged, or of an unknown version"),
        (b"[]", "is damaged, or of an unknown version"),
        (b'{"format-version": 2}', "is damaged, or of an unknown version"),
        (b"[" * 100_000, "is damaged, or of an unknown version"),
        (b'{"format-version": 1}', "has no uuid, or a damaged one"),
        (b'{"format-version": 1, "uuid": "x", "base-version": "1"}', "has no base-version, or a damaged one"),
    ],
)
def test_a_damaged_record_of_a_run_is_refused_by_name(data: bytes, text: str, tmp_path: Path) -> None:
    run(LocalStore(tmp_path / "vault"), CONTENTS)
    (tmp_path / "vault" / "_ags1" / "run-0123456789abcdef.json").write_bytes(data)
    with pytest.raises(FormatError, match=rf"run-0123456789abcdef.json: the record of an unfinished run {text}"):
        Update.begin(LocalStore(tmp_path / "vault"), fresh(), "lake")


# -- behind fsspec -------------------------------------------------------------------------------------------


@pytest.fixture
def remote() -> Iterator[RemoteStore]:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    yield RemoteStore(memory, "/lake/vault")
    memory.store.clear()


def objects(store: RemoteStore) -> set[str]:
    return {name[len(store.root) + 1 :] for name in store.file_system.find(store.root)}


def assert_remote(store: RemoteStore, contents: Tree) -> None:
    with dataset.open(store, fresh()) as opened:
        assert plain_of(opened) == contents
        assert opened.verify().problems == []
    names = {name for name in objects(store) if name.startswith("_ags1/")}
    assert {name.partition("-")[0] for name in names} == {"_ags1/metadata.json", "_ags1/manifest"}
    assert len(names) == 2


def test_behind_an_object_store_only_what_replaces_a_file_waits(remote: RemoteStore) -> None:
    run(remote, CONTENTS)
    with Update.begin(remote, fresh(), "lake") as update:
        assert update.place("new", replaces=False) == "new"
        assert update.place("a.txt", replaces=True) == f"_ags1/staged-{update.reference.run}/a.txt"
    run(remote, CHANGED, mtime=2, drop=("empty",))
    expected = {**CONTENTS, **CHANGED}
    del expected["empty"]
    assert_remote(remote, expected)
    assert "empty" not in objects(remote)


def test_a_commit_that_ends_before_its_copies_is_read_and_finished(
    remote: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(remote, CONTENTS)
    with monkeypatch.context() as patched:
        plain = type(remote.file_system.unguarded)
        copy = plain.cp_file
        copied: list[str] = []

        def once(file_system: Any, source: str, target: str, **options: Any) -> None:
            if copied:
                raise OSError("killed")
            copied.append(source)
            copy(file_system, source, target, **options)

        patched.setattr(plain, "cp_file", once)
        with pytest.raises(OSError, match="killed"):
            run(remote, CHANGED, mtime=2)
    assert copied
    with dataset.open(remote, fresh()) as opened:
        assert opened.version == 2
        assert plain_of(opened) == {**CONTENTS, **CHANGED}
    assert run(remote, CHANGED, mtime=2).version == 2
    assert_remote(remote, {**CONTENTS, **CHANGED})


def test_behind_an_object_store_too_nothing_is_replaced_by_what_is_not_taken(remote: RemoteStore) -> None:
    run(remote, CONTENTS)
    run(remote, CHANGED, mtime=2, failing=("a.txt",))
    assert_remote(remote, {**CONTENTS, **CHANGED, "a.txt": CONTENTS["a.txt"]})


def abandoned(store: RemoteStore, source: Tree) -> None:
    """A run that makes all of its files, and is killed."""

    class Killed(Exception):
        pass

    def killed(update: Update) -> int:
        raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Update, "commit", killed)
        with pytest.raises(Killed):
            run(store, source, mtime=2)


@pytest.mark.parametrize("old", [{}, CONTENTS], ids=["a new dataset", "a dataset"])
@pytest.mark.parametrize("way", ["clean", "begun anew", "gone on with", "overtaken"])
def test_new_files_of_a_run_that_came_to_nothing_do_not_stay(remote: RemoteStore, way: str, old: Tree) -> None:
    if old:
        run(remote, old)
    abandoned(remote, CHANGED)
    put(remote, "foreign", b"of somebody else")
    assert {"new/file", "z"} <= objects(remote)
    expected = old
    if way == "clean":
        clean(remote)
    elif way == "begun anew":
        expected = {**old, "z": b"2"}
        run(remote, {"z": b"2"}, mtime=3, resume=False)
    elif way == "gone on with":
        expected = {**old, "z": b"2"}
        run(remote, {"z": b"2"}, mtime=3)
    else:
        # Another one commits that knows nothing of it, as the writer of data frames does.
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(_update, "unfinished_runs", lambda store: [])
            run(remote, {"z": b"2"}, mtime=3)
        run(remote, {"y": b"1"}, mtime=3)
        expected = {**old, "z": b"2", "y": b"1"}
    assert {name for name in objects(remote) if not name.startswith("_ags1/")} == {*expected, "foreign"}
    assert {name.partition("-")[0] for name in objects(remote) if name.startswith("_ags1/")} <= {
        "_ags1/metadata.json",
        "_ags1/manifest",
    }
    remote.remove("foreign")
    if expected:
        assert_remote(remote, expected)


def test_a_list_of_new_files_reaches_nothing_outside_of_the_dataset(remote: RemoteStore) -> None:
    abandoned(remote, CHANGED)
    remote.file_system.pipe_file("/lake/kept", b"x")
    name = next(name for name in remote.control_names() if name.startswith("placed-"))
    remote.write_control(name, b'"../kept"\n')
    with pytest.raises(FormatError, match=r"placed-.*: a list of files has '../kept', which no dataset can have"):
        clean(remote)
    assert remote.file_system.exists("/lake/kept")


def test_the_name_of_a_file_that_is_not_taken_is_no_pattern(remote: RemoteStore) -> None:
    old = {"a*": b"1", "a?": b"2", "ab": b"3", "a[b]": b"4"}
    run(remote, old)
    new = dict.fromkeys(old, b"changed")
    run(remote, new, mtime=2, failing=("a*", "a[b]"))
    assert_remote(remote, {**new, "a*": b"1", "a[b]": b"4"})


def test_new_files_of_an_interrupted_run_do_not_stay_if_nothing_else_differs(remote: RemoteStore) -> None:
    run(remote, CONTENTS)
    abandoned(remote, {"new": b"1"})
    assert "new" in objects(remote)
    assert run(remote, {}).version == 1
    assert_remote(remote, CONTENTS)
    assert "new" not in objects(remote)


def before_the_commit(overtake: Callable[[Update], object]) -> Any:
    """Let somebody do something just before the next commit, whose lease has expired."""
    commit = Update.commit
    patched = pytest.MonkeyPatch()

    def overtaken(update: Update) -> int:
        patched.undo()
        lease = json.loads(update.store.read_control("lease.json"))
        update.store.write_control("lease.json", json.dumps({**lease, "expires-ms": 1}).encode())
        overtake(update)
        return commit(update)

    patched.setattr(Update, "commit", overtaken)


def test_what_was_thrown_away_by_who_took_the_lease_is_not_committed(remote: RemoteStore) -> None:
    before_the_commit(lambda update: clean(remote))
    with pytest.raises(AuthenticationError, match="somebody else took it: nothing was committed; run it again"):
        run(remote, CONTENTS)
    with pytest.raises(FileNotFoundError):
        dataset.open(remote, fresh())
    run(remote, CONTENTS)
    assert_remote(remote, CONTENTS)


def test_an_update_that_was_overtaken_removes_nothing_of_the_others(remote: RemoteStore) -> None:
    def overtake(update: Update) -> None:
        run(remote, CHANGED)
        update.announce(["z"])

    before_the_commit(overtake)
    with pytest.raises(AuthenticationError, match="was changed by somebody else"):
        run(remote, CHANGED, failing=("z",))
    with dataset.open(remote, fresh()) as opened:
        assert plain_of(opened) == CHANGED
