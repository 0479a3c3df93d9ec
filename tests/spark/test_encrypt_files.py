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
from ags1.dataset._store import LocalStore
from ags1.dataset._update import Update
from ags1.errors import KeyAccessError
from ags1.spark import _encrypt_work, encryption
from ags1.spark._encrypt_work import EncryptWork
from ags1.spark._locations import locate
from ags1.spark._planning import Unit
from ags1.spark._sealing import Sealer
from tests.checks import MIB, pattern
from tests.spark.trees import (
    CONTENTS,
    HUGE,
    PART,
    STRANGE,
    Tree,
    assert_dataset,
    control,
    plain_of,
    read_tree,
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
    stored = read_tree(job.vault)
    for path, data in contents.items():
        assert len(data) < 4 or data not in stored[path]
    frame = result.dataframe
    assert frame.columns == COLUMNS
    rows = {row.path: row for row in frame.collect()}
    assert len(rows) == len(contents)
    huge = rows["huge.bin"]
    assert (huge.plaintext_length, huge.file_length) == (len(HUGE), len(stored["huge.bin"]))
    assert (huge.status, huge.error, huge.attempt) == ("ok", None, 0)
    assert huge.target == str(job.vault / "huge.bin")
    assert huge.bytes_per_second == pytest.approx(len(HUGE) / huge.seconds)
    with dataset.open(job.vault, job.kms) as opened:
        assert {entry.version for entry in opened.files} == {1}
        assert len({bytes(entry.key_metadata.encryption_key) for entry in opened.files}) == len(contents)
    # Looking at it again does nothing again.
    before = {path: os.stat(job.vault / path).st_ino for path in contents}
    assert result.dataframe.count() == len(contents)
    assert "files (" in result.summary()
    assert {path: os.stat(job.vault / path).st_ino for path in contents} == before
    assert read_tree(job.vault) == stored

    again = job.run()
    assert again.ok
    assert again.version == 1
    assert again.counts == {"unchanged": len(contents)}
    assert again.dataframe.count() == 0
    assert read_tree(job.vault) == stored


def test_only_what_is_new_or_has_changed_is_encrypted(job: Job) -> None:
    job.run({"a": b"1", "b/c": b"2", "d": b"3", "huge": pattern(2 * MIB + 1)})
    before = read_tree(job.vault)
    (job.raw / "d").unlink()
    result = job.run({"b/c": b"changed", "b/new": b"new", "huge": pattern(2 * MIB + 2)})
    job.check({"a": b"1", "b/c": b"changed", "b/new": b"new", "d": b"3", "huge": pattern(2 * MIB + 2)})
    assert result.version == 2
    assert result.counts == {"ok": 3, "unchanged": 1}
    assert [row.path for row in result.dataframe.collect()] == ["b/c", "b/new", "huge"]
    after = read_tree(job.vault)
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
    refused(job, ValueError, "on_error must be 'fail' or 'collect', got 'skip'", on_error="skip")
    refused(job, ValueError, "key_id must be the name of a master key", key_id="")
    refused(job, ValueError, "parallelism must be at least 1, got 0", parallelism=0)
    refused(job, ValueError, "part_bytes must be at least 1, got 0", part_bytes=0)
    refused(job, TypeError, "include must be a glob pattern", include=[7])
    refused(job, FileNotFoundError, "there is no such source", source=job.raw / "missing")
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


def test_a_second_run_on_the_same_target_is_refused(job: Job) -> None:
    job.run({"a": b"1"})
    with Update.begin(LocalStore(job.vault), kms.load(job.kms), "lake"):
        with pytest.raises(BlockingIOError, match=rf"process {os.getpid()} on host .* is changing this dataset now"):
            job.run({"b": b"2"})
        with pytest.raises(BlockingIOError, match="is changing this dataset now"):
            ags1.spark.clean(job.spark, job.vault)
    job.run()
    job.check({"a": b"1", "b": b"2"})


# -- what fails ----------------------------------------------------------------------------------------------


def test_a_file_that_fails_ends_the_run_which_keeps_the_rest_for_the_next(job: Job) -> None:
    (job.raw / "b").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError, match=r"^encrypt: .*nowhere|^encrypt: .*b'") as caught:
        job.run({"a": b"1", "c": b"3"})
    assert "What was done is kept: run it again to go on, or with on_error='collect'" in str(caught.value)
    with pytest.raises(FileNotFoundError, match="its first run was not completed"):
        dataset.open(job.vault, job.kms)
    (job.raw / "b").unlink()
    job.run({"b": b"2"})
    job.check({"a": b"1", "b": b"2", "c": b"3"})


def test_files_that_fail_are_reported_while_the_others_go_on(job: Job) -> None:
    (job.raw / "broken").symlink_to("nowhere")
    result = job.run({"a": b"1", "z": b"2"}, on_error="collect")
    assert not result.ok
    assert result.counts == {"ok": 2, "error": 1}
    assert [path for path, _ in result.errors] == ["broken"]
    (row,) = result.dataframe.filter("status = 'error'").collect()
    assert "No such file" in row.error
    assert "1 failed" in result.summary()
    job.check({"a": b"1", "z": b"2"})


def test_a_file_in_the_way_that_is_not_of_the_dataset_is_not_overwritten(job: Job) -> None:
    job.run({"a": b"1"})
    write_tree(job.vault, {"new/file": b"of somebody else", "dir": b"a file"})
    contents = {"new/file": b"x", "new/other": b"x", "dir/sub/file": b"x", "dir/file": b"x"}
    with pytest.raises(NotADirectoryError, match="is in the way of a directory of that name"):
        job.run(contents)
    result = job.run(on_error="collect")
    assert {path for path, _ in result.errors} == {"new/file", "dir/sub/file", "dir/file"}
    assert any("a file that is not of this dataset is in the way: move it away" in text for _, text in result.errors)
    assert (job.vault / "new/file").read_bytes() == b"of somebody else"
    with dataset.open(job.vault, job.kms) as opened:
        assert [entry.path for entry in opened.files] == ["a", "new/other"]
    for name in ("new/file", "dir"):
        (job.vault / name).unlink()
    job.run()
    job.check({"a": b"1", **contents})


def test_a_directory_where_the_dataset_has_a_file_does_not_block_it_for_ever(job: Job) -> None:
    job.run({"a": b"1", "b": b"2", "d/e": b"5"})
    (job.raw / "a").unlink()
    (job.raw / "d/e").unlink()
    (job.raw / "d").rmdir()
    result = job.run({"a/x": b"3", "a/y/z": b"4", "d": b"6"}, on_error="collect")
    assert {path for path, _ in result.errors} == {"a/x", "a/y/z", "d"}
    job.check({"a": b"1", "b": b"2", "d/e": b"5"})


class Changing:
    """A listing whose files change right after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path, contents: Tree) -> None:
        walk = encryption.Storage(locate(root)).__class__.walk

        def changed(storage: Any, *arguments: Any, **options: Any) -> Any:
            found = list(walk(storage, *arguments, **options))
            if storage.location.root == str(root):
                write_tree(root, contents)
            return iter(found)

        monkeypatch.setattr(encryption.Storage(locate(root)).__class__, "walk", changed)


def test_a_source_that_changes_after_it_was_listed_is_an_error(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {"a": b"1", "huge": pattern(2 * MIB + 1), "large": pattern(PART - 1), "z": b"2"}
    job.run(contents)
    write_tree(job.raw, {name: data + b"." for name, data in contents.items()})
    with monkeypatch.context() as patched:
        Changing(patched, job.raw, {"a": b"!", "huge": pattern(2 * MIB), "large": b"smaller", "new": b"too late"})
        result = job.run(on_error="collect")
        assert {path for path, _ in result.errors} == {"a", "huge", "large"}
        assert all(
            "was changed since it was listed: encrypt what nobody writes to" in text for _, text in result.errors
        )
    # The old ones are what the dataset has.
    job.check({**contents, "z": b"2."})
    job.run()
    job.check(read_tree(job.raw))


def test_a_large_file_that_changes_while_it_is_encrypted_does_not_replace_the_old_one(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In this process: of a change between two reads no test on Spark can be sure.
    old = {"large": pattern(2 * MIB), "small": b"1"}
    job.run(old)
    write_tree(job.raw, {"large": pattern(2 * MIB + 7), "small": b"2"})
    real = _encrypt_work.encrypt_file

    def touched(*arguments: Any, **options: Any) -> Any:
        made = real(*arguments, **options)
        os.utime(job.raw / "large", ns=(1, 1))
        return made

    class Local(encryption.Engine):
        def run(self, units: Any) -> Any:
            yield sorted(self._work.run(list(units), lambda *done: None), key=lambda each: each.path)

    monkeypatch.setattr(_encrypt_work, "encrypt_file", touched)
    monkeypatch.setattr(encryption, "Engine", Local)
    result = job.run(part_bytes=1 << 30, on_error="collect")
    assert [path for path, _ in result.errors] == ["large"]
    monkeypatch.undo()
    job.check({"large": old["large"], "small": b"2"})


# -- a full disk ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 5, 64, 70])
def test_a_full_disk_fails_every_file_that_is_left_once(
    count: int, tmp_path: Path, kms_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {f"{index:03}": b"x" for index in range(count)}
    raw = write_tree(tmp_path / "raw", contents)
    there = locate(tmp_path / "vault")
    work = EncryptWork(locate(raw), there, Sealer.create(kms_url, "lake").opener)
    times = {path: os.stat(raw / path).st_mtime_ns for path in contents}
    units = [Unit(path, 1, {"mtime_ns": times[path], "place": f"_ags1/s/{path}", "look": False}) for path in contents]
    storage = type(encryption.Storage(there))
    publish = storage.publish
    done: list[str] = []

    def full(self: Any, path: str, data: bytes) -> None:
        if len(done) >= count // 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        done.append(path)
        publish(self, path, data)

    monkeypatch.setattr(storage, "publish", full)
    outcomes = list(work.run(units, lambda *told: None))
    assert sorted(each.path for each in outcomes) == sorted(contents)
    failed = [each for each in outcomes if each.status == "error"]
    assert len(failed) == count - count // 2
    assert all("No space left on device" in (each.error or "") for each in failed)


def test_a_run_that_fills_the_disk_is_gone_on_with(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    # A file system that is full and one that allows no larger file end a write alike, in the middle of a file.
    from tests.spark.works import Limited

    with monkeypatch.context() as patched:
        patched.setattr(encryption, "EncryptWork", partial(Limited, most=100_000))
        with pytest.raises(OSError, match=r"^encrypt: .*(File too large|large).*What was done is kept") as caught:
            job.run({"a": b"1", "large": pattern(300_000), "z": b"2"}, parallelism=1)
    assert isinstance(caught.value, OSError)
    assert caught.value.result.counts["error"] >= 1
    assert "metadata.json" not in control(job.vault)
    result = job.run()
    assert result.counts.get("skipped", 0) + result.counts.get("ok", 0) == 3
    job.check(read_tree(job.raw))


def test_plain_of_checks_what_it_reads(job: Job) -> None:
    job.run({"a": b"1"})
    (job.vault / "a").write_bytes(b"damaged")
    with pytest.raises(ValueError):
        plain_of(job.vault, job.kms)
