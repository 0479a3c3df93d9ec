"""Empty directories: kept by a dataset, made again by decryption, and no file to anybody who reads files."""

from __future__ import annotations

import json
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ags1.dataset.manifests as module
from ags1 import audit, dataset
from ags1.dataset.entries import DatasetEntry, SourceIdentity
from ags1.dataset.manifests import Editor, ManifestNode, Manifests, changes
from ags1.errors import ConflictError, FormatError
from ags1.storage import Location
from tests.checks import pattern
from tests.dataset.commits import commit, write_object
from tests.dataset.conftest import CountingKms, fresh, plain_of, read_tree, write_tree
from tests.dataset.test_manifests import RUN, Files, entry
from tests.dataset.test_transaction import begin

Shape = dict[str, "bytes | None"]


def shape_of(root: Path) -> Shape:
    """All files below a directory with their content, and all directories."""
    return {
        str(path.relative_to(root)): None if path.is_dir() and not path.is_symlink() else path.read_bytes()
        for path in root.rglob("*")
    }


def empty(vault: dataset.Dataset) -> list[str]:
    """The empty directories of a dataset."""
    return [entry.path for entry in vault.files.directories()]


def directory(path: str, mtime_ns: int = 5) -> DatasetEntry:
    return DatasetEntry.of_directory(path, mtime_ns, 1, 0o755)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with two empty directories."""
    raw = write_tree(tmp_path / "raw", {"file": b"data", "sub/x": b"x", "sub.d/y": b"y"})
    (raw / "none").mkdir()
    (raw / "sub/deep/none").mkdir(parents=True)
    return raw


EMPTY = ["none/", "sub/deep/none/"]


@pytest.fixture
def vault(tree: Path, tmp_path: Path, client: CountingKms) -> dataset.Dataset:
    return dataset.encrypt(tree, tmp_path / "vault", client, "lake")


def test_a_tree_comes_back_with_its_empty_directories_their_modes_and_times(
    tree: Path, vault: dataset.Dataset, tmp_path: Path
) -> None:
    (tree / "none").chmod(0o750)
    os.utime(tree / "none", ns=(1, 1_234_567_890_123_456_789))
    made = dataset.encrypt(tree, tmp_path / "vault", fresh(), "lake")
    assert made.report is not None
    assert (made.report.done, made.report.unchanged, made.report.changed, made.version) == (0, 3, True, 2)
    assert made.decrypt(tmp_path / "plain").done == 3
    assert shape_of(tmp_path / "plain") == shape_of(tree)
    found = (tmp_path / "plain/none").stat()
    assert (found.st_mode & 0o777, found.st_mtime_ns) == (0o750, 1_234_567_890_123_456_789)


@pytest.mark.parametrize("seed", range(3))
def test_random_trees_come_back_in_their_shape(seed: int, tmp_path: Path, client: CountingKms) -> None:
    rng = random.Random(seed)
    raw = tmp_path / "raw"
    raw.mkdir()
    for step in range(5):
        for _ in range(8):
            place = raw.joinpath(*(rng.choice("abc") + rng.choice(["", "-", "0"]) for _ in range(rng.randrange(1, 5))))
            if place.is_dir() and rng.random() < 0.5:
                shutil.rmtree(place)
            elif place.is_file():
                place.unlink()
            elif not place.exists() and not any(each.is_file() for each in place.parents):
                place.parent.mkdir(parents=True, exist_ok=True)
                place.mkdir() if rng.random() < 0.5 else place.write_bytes(pattern(rng.randrange(50)))
        with dataset.encrypt(raw, tmp_path / "vault", client, "lake", delete=True, durable=False) as vault:
            assert plain_of(vault) == read_tree(raw)
            assert len(vault.files) == len(read_tree(raw))
            vault.decrypt(tmp_path / f"plain-{step}")
            version = vault.version
        assert shape_of(tmp_path / f"plain-{step}") == shape_of(raw)
        with dataset.encrypt(raw, tmp_path / "vault", client, "lake", delete=True) as again:
            assert again.report is not None
            assert (again.report.changed, again.version) == (False, version)


def test_a_tree_of_empty_directories_only_is_a_dataset_without_files(tmp_path: Path, client: CountingKms) -> None:
    (tmp_path / "raw/a/b").mkdir(parents=True)
    with dataset.encrypt(tmp_path / "raw", tmp_path / "vault", client, "lake") as vault:
        assert (len(vault.files), list(vault.files), empty(vault)) == (0, [], ["a/b/"])
        report = vault.verify()
        assert (report.ok, report.checked["files"], report.findings) == (True, 0, [])
        assert vault.rewrap("lake").version == 2
        assert vault.expire(older_than=None).versions == [1]
    with dataset.open(tmp_path / "vault", fresh()) as vault:
        vault.decrypt(tmp_path / "plain")
    assert shape_of(tmp_path / "plain") == {"a": None, "a/b": None}


def test_who_reads_files_sees_no_empty_directory(tree: Path, vault: dataset.Dataset, tmp_path: Path) -> None:
    assert [each.path for each in vault.files] == ["file", "sub.d/y", "sub/x"]
    assert (len(vault.files), "none" in vault.files, "none/" in vault.files) == (3, False, False)
    assert list(vault.files.below("none")) == []
    assert [name for name, found in vault.files.children() if found is None] == ["none", "sub.d", "sub"]
    assert list(vault.files.children("none")) == []
    assert [name for name, _ in vault.files.children("sub")] == ["deep", "x"]
    assert (vault.files.is_directory("none"), vault.files.is_directory("sub/deep")) == (True, True)
    assert not vault.files.is_directory("non")
    with pytest.raises(IsADirectoryError):
        vault.open("none")
    assert vault.verify().checked["files"] == 3
    assert vault.repair(tree).ok
    (tree / "more").mkdir()
    vault.add(tree)
    assert empty(vault) == ["more/", *EMPTY]
    assert list(vault.changed_since(1)) == []
    report = vault.decrypt(tmp_path / "plain", dry_run=True)
    assert (report.done, report.paths) == (3, ["file", "sub.d/y", "sub/x"])
    found = audit.audit(tmp_path / "vault", kms=fresh())
    assert not found.findings
    assert not any("none" in each.name for each in found.files)


def test_patterns_choose_empty_directories_too(tree: Path, tmp_path: Path, client: CountingKms) -> None:
    with dataset.encrypt(tree, tmp_path / "one", client, "lake", include="sub") as one:
        assert empty(one) == ["sub/deep/none/"]
    with dataset.encrypt(tree, tmp_path / "exact", client, "lake", include=["sub/*/none", "file"]) as exact:
        assert empty(exact) == ["sub/deep/none/"]
    with dataset.encrypt(tree, tmp_path / "two", client, "lake", exclude="sub/deep") as two:
        assert empty(two) == ["none/"]
    with dataset.encrypt(tree, tmp_path / "three", client, "lake", exclude=["none", "x"]) as three:
        # A directory all of whose files are left out comes back without them.
        assert empty(three) == ["sub/deep/"]
    with dataset.encrypt(tree, tmp_path / "four", client, "lake") as four:
        four.decrypt(tmp_path / "plain", exclude="deep")
    assert shape_of(tmp_path / "plain") == {
        "file": b"data", "none": None, "sub": None, "sub/x": b"x", "sub.d": None, "sub.d/y": b"y",
    }  # fmt: skip


def test_an_empty_source_is_the_directory_that_it_is_added_to(
    vault: dataset.Dataset, tmp_path: Path, client: CountingKms
) -> None:
    (tmp_path / "nothing").mkdir()
    vault.add(tmp_path / "nothing", prefix="day=1/new")
    assert empty(vault) == ["day=1/new/", *EMPTY]
    assert vault.add(tmp_path / "nothing").changed is False
    with dataset.encrypt(tmp_path / "nothing", tmp_path / "other", client, "lake") as other:
        assert empty(other) == []


def test_files_of_a_run_that_was_interrupted_come_with_the_empty_directories(tree: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int | None) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dataset.encrypt(tree, tmp_path / "vault", fresh(), "lake", progress=stop, threads=1)
    with dataset.encrypt(tree, tmp_path / "vault", fresh(), "lake") as vault:
        assert empty(vault) == EMPTY
        assert plain_of(vault) == read_tree(tree)


# -- changes -------------------------------------------------------------------------------------------------------


def test_a_prefix_is_removed_with_its_empty_directories(vault: dataset.Dataset) -> None:
    assert (vault.rm("sub/deep", dry_run=True).removed, empty(vault)) == (0, EMPTY)
    assert vault.rm("sub/deep").removed == 0
    assert (empty(vault), vault.files.is_directory("sub/deep")) == (["none/"], False)
    with pytest.raises(FileNotFoundError):
        vault.rm("sub/deep")
    assert (vault.rm("sub").removed, empty(vault)) == (1, ["none/"])
    assert vault.verify().ok


def test_delete_leaves_out_empty_directories_that_the_source_has_no_more(
    tree: Path, vault: dataset.Dataset, tmp_path: Path
) -> None:
    (tree / "none").rmdir()
    kept = dataset.encrypt(tree, tmp_path / "vault", fresh(), "lake")
    assert kept.report is not None
    assert (kept.version, kept.report.others, empty(kept)) == (1, 0, EMPTY)
    left = dataset.encrypt(tree, tmp_path / "vault", fresh(), "lake", delete=True)
    assert left.report is not None
    assert (left.version, left.report.removed, empty(left)) == (2, 0, EMPTY[1:])


def test_a_directory_with_a_file_in_it_is_no_longer_empty_and_comes_back(
    tree: Path, vault: dataset.Dataset, tmp_path: Path
) -> None:
    (tree / "none").chmod(0o500)
    vault.add(tree)
    write_tree(tmp_path / "more", {"x": b"new"})
    vault.add(tmp_path / "more", prefix="none")
    assert empty(vault) == EMPTY[1:]
    vault.decrypt(tmp_path / "plain")
    assert (tmp_path / "plain/none/x").read_bytes() == b"new"
    assert (tmp_path / "plain/none").stat().st_mode & 0o200
    vault.rm("none/x")
    assert empty(vault) == EMPTY


def test_a_file_and_an_empty_directory_of_one_name_are_told(tree: Path, vault: dataset.Dataset, tmp_path: Path) -> None:
    (tree / "none").rmdir()
    (tree / "none").write_bytes(b"a file")
    with pytest.raises(FileExistsError, match=r"the dataset still has none/, .*delete=True.*: 'none'"):
        dataset.encrypt(tree, tmp_path / "vault", fresh(), "lake")
    with pytest.raises(IsADirectoryError, match="a directory of the dataset: remove none/ first: 'none'"):
        vault.add(tree)
    with dataset.encrypt(tree, tmp_path / "vault", fresh(), "lake", delete=True) as changed:
        assert plain_of(changed) == read_tree(tree)
        assert empty(changed) == EMPTY[1:]
    # And back again.
    (tree / "none").unlink()
    (tree / "none").mkdir()
    with pytest.raises(FileExistsError, match=r"the dataset still has none, .*delete=True.*: 'none/'"):
        dataset.encrypt(tree, tmp_path / "vault", fresh(), "lake")
    vault.refresh()
    with pytest.raises(NotADirectoryError, match="a file of the dataset, so none/ cannot exist"):
        vault.add(tree)
    with dataset.encrypt(tree, tmp_path / "vault", fresh(), "lake", delete=True) as changed:
        assert plain_of(changed) == read_tree(tree)
        assert empty(changed) == EMPTY


# -- several writers -----------------------------------------------------------------------------------------------


def both(tmp_path: Path, one: DatasetEntry, other: DatasetEntry) -> list[str]:
    """What is in a dataset after two writers who began on the same version."""
    writers = begin(tmp_path), begin(tmp_path)
    for writer, each in zip(writers, (one, other), strict=True):
        writer.put(each)
    for writer in writers:
        writer.commit()
    with begin(tmp_path) as last:
        return [each.path for each in last.manifests.entries(last.root)]


def test_two_writers_of_one_empty_directory_both_commit(tmp_path: Path) -> None:
    commit(tmp_path, {"a": b"1"})
    assert both(tmp_path, directory("d/", 1), directory("d/", 2)) == ["a", "d/"]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_file_of_one_writer_in_the_place_of_the_empty_directory_of_another_is_a_conflict(
    is_first: bool, tmp_path: Path
) -> None:
    commit(tmp_path, {"a": b"1"})
    writers = [begin(tmp_path), begin(tmp_path)]
    writers[not is_first].put(directory("d/"))
    with writers[is_first] as writer:
        writer.put(writer.entry(write_object(writer, "d", b"a file")))
    writers[0].commit()
    with pytest.raises(ConflictError, match="would be a file where the other needs a directory"):
        writers[1].commit()


# -- manifests -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_any_changes_give_the_entries_of_a_sorted_dictionary(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FAN_OUT", 8)
    monkeypatch.setattr(module, "_SMALL", 2)
    rng = random.Random(seed)
    manifests = Manifests(Location(tmp_path), "uuid")
    root: ManifestNode | None = None
    model: Files = {}
    for step in range(15):
        before, old = root, dict(model)
        editor = Editor(manifests, root, RUN)
        share = rng.random()
        for path in sorted({f"{rng.randrange(9)}{rng.choice(['', '/', '/x/', '/x/y'])}" for _ in range(step + 9)}):
            if rng.random() < share * 0.6:
                assert editor.remove(path) == model.pop(path, None)
            else:
                new = directory(path, rng.randrange(9)) if path.endswith("/") else entry(path, rng)
                assert editor.put(new) == model.get(path)
                model[path] = new
        root = editor.finish()
        paths = sorted(model)
        files = [path for path in paths if not path.endswith("/")]
        assert list(manifests.entries(root)) == [model[path] for path in paths]
        assert [each.path for each in manifests.files(root)] == files
        assert [each.path for each in manifests.directories(root)] == [
            path
            for path in paths
            if path.endswith("/") and not any(each != path and each.startswith(path) for each in paths)
        ]
        assert (0 if root is None else root.file_count) == len(files)
        for above in ("", "3", "3/x"):
            prefix = f"{above}/" if above else ""
            inside = [path[len(prefix) :] for path in paths if path.startswith(prefix) and path != prefix]
            names = sorted({(name.partition("/")[0] + "/" * ("/" in name)) for name in inside})
            found = list(manifests.names_below(root, above))
            assert [f"{name}/" * (each is None) or name for name, each in found] == names
            assert manifests.has_below(root, above) == any(path.startswith(prefix) for path in paths)
        differ = [path for path in sorted({*old, *model}) if old.get(path) != model.get(path)]
        assert list(changes(manifests, before, root)) == [(old.get(path), model.get(path)) for path in differ]
        if root is not None:
            again = Manifests(Location(tmp_path), "uuid")
            assert list(again.entries(root)) == [model[path] for path in paths]


GOOD = directory("none/")
FILE = entry("none/", random.Random(1))


@pytest.mark.parametrize(
    "hostile",
    [
        replace(GOOD, path="/"),
        replace(GOOD, path="//"),
        replace(GOOD, path="a//"),
        replace(GOOD, path="/a/"),
        replace(GOOD, path="../"),
        replace(GOOD, path="./"),
        replace(GOOD, path="a/../"),
        replace(GOOD, path="a/../../b/"),
        replace(GOOD, path="a\0/"),
        replace(GOOD, path="_ags1/"),
        replace(GOOD, path="_ags1/runs/"),
        replace(GOOD, path="none"),
        replace(GOOD, source=SourceIdentity(1, 5)),
        replace(GOOD, source=SourceIdentity(0, 5, inode=7)),
        replace(GOOD, source=SourceIdentity(0, 1 << 93)),
        replace(GOOD, source=SourceIdentity(0, 5, etag="x")),
        FILE,
        replace(FILE, source=SourceIdentity(0, 5)),
    ],
    ids=lambda each: f"{each.path!r}, {len(each.parts)} parts, {each.source}",
)
def test_an_entry_of_a_directory_that_is_none_is_refused(hostile: DatasetEntry, tmp_path: Path) -> None:
    assert DatasetEntry.from_json(json.loads(json.dumps(GOOD.to_json())), "a manifest") == GOOD
    writer = Manifests(Location(tmp_path), "uuid")
    leaf = writer.write(0, [hostile], RUN)
    reader = Manifests(Location(tmp_path), "uuid")
    for read in (reader.entries, reader.files, reader.directories):
        with pytest.raises(FormatError):
            list(read(leaf))


def test_a_count_that_includes_empty_directories_is_refused(tmp_path: Path) -> None:
    leaf = Manifests(Location(tmp_path), "uuid").write(0, [entry("a", random.Random(1)), directory("b/")], RUN)
    assert leaf.file_count == 1
    with pytest.raises(FormatError, match="is not the manifest that its parent describes"):
        Manifests(Location(tmp_path), "uuid").children(replace(leaf, file_count=2))


def test_no_program_puts_an_empty_directory_out_of_the_dataset(tmp_path: Path) -> None:
    with begin(tmp_path) as transaction:
        for path in ("../", "/", "a//", "_ags1/x/"):
            with pytest.raises(FormatError, match="is no path"):
                transaction.put(directory(path))


# -- targets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["link", "broken link", "file", "fifo", "link above"])
def test_no_directory_is_made_through_a_link_or_in_place_of_what_is_there(
    what: str, vault: dataset.Dataset, tmp_path: Path
) -> None:
    outside, target = tmp_path / "outside", tmp_path / "plain"
    outside.mkdir()
    os.utime(outside, ns=(1, 1))
    target.mkdir()
    if what == "link":
        (target / "none").symlink_to(outside)
    elif what == "broken link":
        (target / "none").symlink_to(outside / "gone")
    elif what == "file":
        (target / "none").write_bytes(b"precious")
    elif what == "fifo":
        os.mkfifo(target / "none")
    else:
        (target / "sub").mkdir()
        (target / "sub/deep").symlink_to(outside)
    failed = "sub/deep/none/" if what == "link above" else "none/"
    report = vault.decrypt(target, on_error="collect")
    assert [path for path, _ in report.errors] == [failed]
    assert report.done == 3
    with pytest.raises(NotADirectoryError, match="in the way of a directory"):
        vault.decrypt(target)
    assert os.listdir(outside) == []
    assert outside.stat().st_mtime_ns == 1
    if what == "file":
        assert (target / "none").read_bytes() == b"precious"
    # The other one is made all the same.
    assert [(target / each).is_dir() for each in EMPTY if each != failed] == [True]


def test_a_directory_that_exists_stays_as_it_is(vault: dataset.Dataset, tmp_path: Path) -> None:
    (tmp_path / "plain/none").mkdir(parents=True)
    (tmp_path / "plain/none/mine").write_bytes(b"mine")
    (tmp_path / "plain/none").chmod(0o700)
    os.utime(tmp_path / "plain/none", ns=(7, 7))
    vault.decrypt(tmp_path / "plain", overwrite=False)
    found = (tmp_path / "plain/none").stat()
    assert (found.st_mode & 0o777, found.st_mtime_ns) == (0o700, 7)
    assert (tmp_path / "plain/none/mine").read_bytes() == b"mine"


def test_a_target_above_the_dataset_gets_no_directory_in_it(tmp_path: Path, client: CountingKms) -> None:
    (tmp_path / "raw/lake/vault/none").mkdir(parents=True)
    with (
        dataset.encrypt(tmp_path / "raw", tmp_path / "lake/vault", client, "lake") as vault,
        pytest.raises(ValueError, match="is above the dataset"),
    ):
        vault.decrypt(tmp_path)


def test_a_durable_decryption_waits_for_the_names_of_empty_directories(
    vault: dataset.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    vault.rm("sub/x")
    synced.clear()
    vault.decrypt(tmp_path / "plain", durable=True)
    assert {str(tmp_path / "plain" / each) for each in ("", "sub", "sub/deep")} <= set(synced)


def test_an_object_store_keeps_empty_directories_in_a_dataset_and_makes_none(
    tree: Path, tmp_path: Path, s3_server: Any, s3_bucket: str
) -> None:
    pytest.importorskip("obstore")
    options, lake = s3_server.storage_options(), f"s3://{s3_bucket}/lake"
    with dataset.encrypt(tree, f"{lake}/vault", fresh(), "lake", storage_options=options) as vault:
        assert empty(vault) == EMPTY
        vault.decrypt(tmp_path / "plain")
        assert shape_of(tmp_path / "plain") == shape_of(tree)
        assert vault.decrypt(f"{lake}/plain", storage_options=options).ok
        again = dataset.encrypt(tree, f"{lake}/vault", fresh(), "lake", storage_options=options)
        assert again.version == 1
    client = s3_server.client()
    names = [each["Key"] for each in client.list_objects_v2(Bucket=s3_bucket, Prefix="lake/plain")["Contents"]]
    assert sorted(names) == ["lake/plain/file", "lake/plain/sub.d/y", "lake/plain/sub/x"]
    with dataset.encrypt(f"{lake}/plain", tmp_path / "back", fresh(), "lake", source_options=options) as back:
        assert (len(back.files), empty(back)) == (3, [])
