"""Trees encrypted over Spark: exactly a dataset, only what has changed, and what cannot be is refused or reported."""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import ags1.spark
from ags1 import dataset, kms
from ags1.dataset.runs import RunReference
from ags1.dataset.selection import Filter
from ags1.dataset.sources import scan
from ags1.dataset.targets import LocalTarget
from ags1.dataset.transaction import Transaction
from ags1.dataset.worker import EncryptUnit
from ags1.errors import AlreadyEncryptedError, ConflictError, KeyAccessError
from ags1.iceberg.keys.wrapped_key import WrappedKey
from ags1.spark import datasets
from ags1.spark.engine.dataset_work import EncryptWork
from ags1.spark.engine.locations import locate
from ags1.spark.engine.sealing import Opener
from ags1.storage import Location
from tests.checks import MIB, pattern
from tests.spark.trees import (
    CONTENTS,
    HUGE,
    PART,
    STRANGE,
    Tree,
    assert_dataset,
    objects,
    plain_of,
    read_tree,
    stored,
    unfinished,
    versions,
    write_tree,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ags1.spark import Result

COLUMNS = [
    "path", "target", "plaintext_length", "file_length", "status", "error", "attempt", "seconds", "bytes_per_second",
]  # fmt: skip


class Job:
    """Encrypts one directory into another, as often as it is told to."""

    def __init__(self, spark: SparkSession, directory: Path, kms_url: str) -> None:
        self.spark = spark
        self.kms = kms_url
        self.raw = directory / "raw"
        self.vault = directory / "vault"
        self.raw.mkdir()

    def run(self, contents: Tree | None = None, **options: Any) -> Result:
        write_tree(self.raw, contents or {})
        options = {"kms": self.kms, "key_id": "lake", "progress": False, "part_bytes": PART, **options}
        return ags1.spark.encrypt_files(self.spark, options.pop("source", self.raw), self.vault, **options)

    def check(self, contents: Tree) -> None:
        assert_dataset(self.vault, contents, self.kms)


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path, kms_url: str) -> Job:
    return Job(spark, tmp_path, kms_url)


# -- what is written -----------------------------------------------------------------------------------------


def test_a_tree_becomes_a_dataset_that_plain_python_opens(job: Job) -> None:
    contents = {**CONTENTS, STRANGE: b"a name that is no UTF-8"}
    told: list[tuple[int, int | None]] = []
    result = job.run(contents, progress=lambda done, total: told.append((done, total)), parallelism=4)
    job.check(contents)
    assert told[-1] == (sum(map(len, contents.values())), sum(map(len, contents.values())))
    assert result.ok
    assert result.version == 1
    assert result.counts == {"ok": len(contents)}
    assert result.plaintext_bytes == sum(map(len, contents.values()))
    before = stored(job.vault, job.kms)
    for path, data in contents.items():
        assert len(data) < 4 or data not in before[path]
    frame = result.dataframe
    assert frame.columns == COLUMNS
    rows = {row.path: row for row in frame.collect()}
    assert len(rows) == len(contents)
    huge = rows["huge.bin"]
    assert (huge.plaintext_length, huge.file_length) == (len(HUGE), len(before["huge.bin"]))
    assert (huge.status, huge.error, huge.attempt) == ("ok", None, 0)
    places = objects(job.vault, job.kms)
    assert huge.target == str(places["huge.bin"][0])
    assert len(places["huge.bin"]) == 4
    assert huge.bytes_per_second == pytest.approx(len(HUGE) / huge.seconds)
    with dataset.open(job.vault, job.kms) as opened:
        assert {entry.version for entry in opened.files} == {1}
        whole = [entry.path for entry in opened.files if len(entry.parts) == 1]
        assert len({bytes(opened.key_metadata(path).encryption_key) for path in whole}) == len(whole)
    # Looking at it again does nothing again.
    tree = read_tree(job.vault)
    assert result.dataframe.count() == len(contents)
    assert "files (" in str(result)
    assert read_tree(job.vault) == tree

    again = job.run()
    assert again.ok
    assert again.version == 1
    assert again.counts == {"unchanged": len(contents)}
    assert again.dataframe.count() == 0
    assert read_tree(job.vault) == tree


def test_empty_directories_are_kept_and_are_no_files(job: Job) -> None:
    (job.raw / "b/none").mkdir(parents=True)
    (job.raw / "none").mkdir()
    result = job.run({"a": b"1", "b/x": b"2"})
    assert result.counts == {"ok": 2}
    with dataset.open(job.vault, job.kms) as opened:
        assert [each.path for each in opened.files.directories()] == ["b/none/", "none/"]
    job.check({"a": b"1", "b/x": b"2"})
    again = job.run()
    assert (again.version, again.counts) == (1, {"unchanged": 2})


def test_only_what_is_new_or_has_changed_is_encrypted(job: Job) -> None:
    job.run({"a": b"1", "b/c": b"2", "d": b"3", "huge": pattern(2 * MIB + 1)})
    before = objects(job.vault, job.kms)
    (job.raw / "d").unlink()
    result = job.run({"b/c": b"changed", "b/new": b"new", "huge": pattern(2 * MIB + 2)})
    job.check({"a": b"1", "b/c": b"changed", "b/new": b"new", "d": b"3", "huge": pattern(2 * MIB + 2)})
    assert result.version == 2
    assert result.counts == {"ok": 3, "unchanged": 1}
    assert [row.path for row in result.dataframe.collect()] == ["b/c", "b/new", "huge"]
    after = objects(job.vault, job.kms)
    assert (after["a"], after["d"]) == (before["a"], before["d"])
    with dataset.open(job.vault, job.kms) as opened:
        assert [entry.version for entry in opened.files] == [1, 2, 2, 1, 2]


def test_plain_python_adds_to_it_and_it_adds_to_what_plain_python_wrote(job: Job, tmp_path: Path) -> None:
    with dataset.encrypt(write_tree(tmp_path / "first", {"a": b"1", "b": b"2"}), job.vault, job.kms, "lake"):
        pass
    job.run({"b": b"of Spark", "c": b"3"})
    with dataset.open(job.vault, job.kms) as opened:
        opened.add(write_tree(tmp_path / "third", {"c": b"of Python", "d": b"4"}))
    job.check({"a": b"1", "b": b"of Spark", "c": b"of Python", "d": b"4"})


def test_a_source_may_be_one_file(job: Job, tmp_path: Path) -> None:
    (tmp_path / "one.bin").write_bytes(HUGE)
    assert job.run(source=tmp_path / "one.bin").counts == {"ok": 1}
    job.check({"one.bin": HUGE})


def test_only_what_is_meant_is_encrypted_and_what_is_left_out_is_named(job: Job) -> None:
    os.mkfifo(job.raw / "pipe.csv")
    (job.raw / "link").symlink_to(job.raw)
    result = job.run(
        {"a/x.csv": b"1", "a/x.txt": b"2", "b/y.csv": b"3", "skip/z.csv": b"4"}, include="*.csv", exclude=["skip"]
    )
    job.check({"a/x.csv": b"1", "b/y.csv": b"3"})
    assert [path for path, _ in result.notes] == ["pipe.csv"]
    assert [path for path, _ in job.run(include="link").notes] == ["link"]


def test_an_empty_source_becomes_an_empty_dataset(job: Job) -> None:
    assert job.run().version == 1
    job.check({})


# -- what is refused -----------------------------------------------------------------------------------------


def refused(job: Job, kind: type[Exception], text: str, **options: Any) -> None:
    """It fails, and has written nothing."""
    before = read_tree(job.vault) if job.vault.exists() else None
    with pytest.raises(kind, match=text):
        job.run(**options)
    assert (read_tree(job.vault) if job.vault.exists() else None) == before


def test_arguments_that_are_wrong_are_refused_before_anything_is_written(job: Job) -> None:
    with kms.load(job.kms) as client:
        text = (
            "kms must be a URL such as .*, not LocalKms: every worker makes its own client from it, so that no secret"
        )
        refused(job, TypeError, text, kms=client)
    refused(job, TypeError, "kms must be a URL such as .*, not bytes", kms=bytes(32))
    refused(job, ValueError, "on_error must be 'fail' or 'collect', not 'skip'", on_error="skip")
    for key_id in ("", None):
        refused(job, ValueError, "a new dataset needs a master key", key_id=key_id)
    refused(job, ValueError, "parallelism must be at least 1, got 0", parallelism=0)
    refused(job, ValueError, "part_bytes must be at least 1, got 0", part_bytes=0)
    refused(job, TypeError, "include must be a glob pattern", include=[7])
    refused(job, FileNotFoundError, "No such file or directory", source=job.raw / "missing")
    refused(job, ValueError, "lies in the target .*: choose a target beside it", source=job.vault / "sub")
    refused(job, ValueError, "lies in the target .*: choose a target beside it", source=job.vault)
    refused(job, ValueError, "the target .* lies in the source .*: choose a target beside it", source=job.raw.parent)
    with pytest.raises(TypeError, match="spark must be a SparkSession, not NoneType"):
        ags1.spark.encrypt_files(None, job.raw, job.vault, kms=job.kms, key_id="lake")
    assert not job.vault.exists()


def test_another_master_key_is_refused(job: Job) -> None:
    with pytest.raises(KeyAccessError, match="unknown"):
        job.run({"a": b"1"}, key_id="unknown")
    job.run()
    refused(job, ValueError, "is under the master key 'lake', not 'lake2': name that, or rewrap", key_id="lake2")
    job.check({"a": b"1"})


def test_two_runs_at_once_both_count_unless_they_change_the_same_file(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.run({"a": b"1"})
    commit = Transaction.commit
    other: Tree = {}

    def late(self: Transaction, **options: Any) -> Any:
        monkeypatch.setattr(Transaction, "commit", commit)
        raw = write_tree(job.raw.parent / "other", other)
        with dataset.open(job.vault, job.kms) as opened:
            opened.add(raw)
        return commit(self, **options)

    monkeypatch.setattr(Transaction, "commit", late)
    other["b"] = b"2"
    assert job.run({"c": b"3"}).version == 3
    assert plain_of(job.vault, job.kms, whole=False) == {"a": b"1", "b": b"2", "c": b"3"}
    monkeypatch.setattr(Transaction, "commit", late)
    other.update({"b": b"2", "d": b"of the other"})
    with pytest.raises(ConflictError, match="another writer has changed d meanwhile"):
        job.run({"d": b"4"})
    assert plain_of(job.vault, job.kms, whole=False)["d"] == b"of the other"


# -- what fails ----------------------------------------------------------------------------------------------


def test_a_file_that_fails_ends_the_run_which_keeps_the_rest_for_the_next(job: Job) -> None:
    write_tree(job.raw, {"b": ags1.encrypt(b"2", bytes(16))})
    with pytest.raises(AlreadyEncryptedError, match=r"^encrypt: .*b is encrypted already") as caught:
        job.run({"a": b"1", "c": b"3"})
    assert "What was done is kept: run it again to continue, or with `on_error='collect'`" in str(caught.value)
    with pytest.raises(FileNotFoundError, match="its first run was not completed"):
        dataset.open(job.vault, job.kms)
    (job.raw / "b").unlink()
    job.run({"b": b"2"})
    job.check({"a": b"1", "b": b"2", "c": b"3"})


def test_files_that_fail_are_reported_while_the_others_go_on(job: Job) -> None:
    again = ags1.encrypt(b"2", bytes(16))
    result = job.run({"a": b"1", "again": again, "z": b"2"}, on_error="collect")
    assert not result.ok
    assert result.counts == {"ok": 2, "error": 1}
    assert [path for path, _ in result.errors] == ["again"]
    (row,) = result.dataframe.filter("status = 'error'").collect()
    assert "is encrypted already" in row.error
    assert "1 failed" in str(result)
    job.check({"a": b"1", "z": b"2"})


def test_what_is_in_the_way_in_the_dataset_is_not_written_through(job: Job, tmp_path: Path) -> None:
    job.run({"a": b"1"})
    (tmp_path / "elsewhere").mkdir()
    (job.vault / "linked").symlink_to(tmp_path / "elsewhere")
    (job.vault / "dir").write_bytes(b"a file")
    result = job.run({"linked/file": b"x", "dir/file": b"x", "new/file": b"x"}, on_error="collect")
    assert {path for path, _ in result.errors} == {"linked/file", "dir/file"}
    assert all("in the way of a directory of that name" in text for _, text in result.errors)
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert plain_of(job.vault, job.kms, whole=False) == {"a": b"1", "new/file": b"x"}


def test_a_directory_where_the_dataset_has_a_file_does_not_block_it_for_ever(job: Job) -> None:
    job.run({"a": b"1", "b": b"2", "d/e": b"5"})
    (job.raw / "a").unlink()
    (job.raw / "d/e").unlink()
    (job.raw / "d").rmdir()
    with pytest.raises(FileExistsError, match=r"dataset still has a, .*: 'a/'"):
        job.run({"a/x": b"3", "a/y/z": b"4", "d": b"6"})
    with dataset.open(job.vault, job.kms) as opened:
        opened.rm("a", "d")
    assert job.run().ok
    job.check({"b": b"2", "a/x": b"3", "a/y/z": b"4", "d": b"6"})


def test_what_is_unchanged_but_missing_or_cut_is_encrypted_again(job: Job) -> None:
    contents = {"a": b"1", "b": pattern(1000), "c": b"3"}
    job.run(contents)
    places = objects(job.vault, job.kms)
    places["a"][0].unlink()
    places["b"][0].write_bytes(places["b"][0].read_bytes()[:-1])
    assert job.run().counts == {"ok": 2, "unchanged": 1}
    assert plain_of(job.vault, job.kms) == contents


class Changing:
    """A listing whose files change right after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path, contents: Tree) -> None:
        def changed(*arguments: Any, **named: Any) -> Any:
            found = list(scan(*arguments, **named))
            write_tree(root, contents)
            return iter(found)

        monkeypatch.setattr("ags1.dataset.writing.scan", changed)


def test_a_source_that_changes_after_it_was_listed_is_an_error(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {"a": b"1", "huge": pattern(2 * MIB + 1), "large": pattern(PART - 1), "z": b"2"}
    job.run(contents)
    write_tree(job.raw, {name: data + b"." for name, data in contents.items()})
    with monkeypatch.context() as patched:
        Changing(patched, job.raw, {"a": b"!", "huge": pattern(2 * MIB), "large": b"smaller", "new": b"too late"})
        result = job.run(on_error="collect")
        assert {path for path, _ in result.errors} == {"a", "huge", "large"}
        assert all("was changed while it was being encrypted" in text for _, text in result.errors)
    # The old ones are what the dataset has.
    job.check({**contents, "z": b"2."})
    job.run()
    job.check(read_tree(job.raw))


# -- a full disk ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 5, 64, 70])
def test_a_full_disk_fails_every_file_that_is_left_once(
    count: int, tmp_path: Path, kms_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {f"{index:03}": b"x" for index in range(count)}
    raw = write_tree(tmp_path / "raw", contents)
    reference = RunReference.create(WrappedKey("lake"), kms.load(kms_url))
    work = EncryptWork(locate(raw), locate(tmp_path / "vault"), Opener(reference, kms_url))
    found = scan(Location(raw), "", Filter(), None, lambda path, why: None)
    units = [EncryptUnit(each.path, 1, each.source, each.identity, "all", small=True) for each in found]
    write = LocalTarget.write_new
    done: list[str] = []

    def full(self: LocalTarget, name: str, data: Any) -> None:
        if len(done) >= count // 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        done.append(name)
        write(self, name, data)

    monkeypatch.setattr(LocalTarget, "write_new", full)
    outcomes = list(work.run(units))
    assert sorted(each.path for each in outcomes) == sorted(contents)
    failed = [each for each in outcomes if each.status == "error"]
    assert len(failed) == count - count // 2
    assert all("No space left on device" in (each.error or "") for each in failed)


def test_a_run_that_fills_the_disk_is_gone_on_with(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    # A file system that is full and one that allows no larger file end a write alike, in the middle of a file.
    from tests.spark.works import Limited

    with monkeypatch.context() as patched:
        patched.setattr(datasets, "EncryptWork", partial(Limited, most=100_000))
        with pytest.raises(OSError, match=r"^encrypt: .*(File too large|large).*What was done is kept") as caught:
            job.run({"a": b"1", "large": pattern(300_000), "z": b"2"}, parallelism=1)
    assert isinstance(caught.value, OSError)
    assert caught.value.result.counts["error"] >= 1
    assert versions(job.vault) == []
    assert len(unfinished(job.vault)) == 1
    result = job.run()
    assert result.counts.get("skipped", 0) + result.counts.get("ok", 0) == 3
    job.check(read_tree(job.raw))


def test_plain_of_checks_what_it_reads(job: Job) -> None:
    job.run({"a": b"1"})
    objects(job.vault, job.kms)["a"][0].write_bytes(b"damaged")
    with pytest.raises(ValueError):
        plain_of(job.vault, job.kms)
