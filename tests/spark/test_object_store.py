"""The pipeline on S3: no file is moved but what replaces one, big files are uploads of many tasks."""

from __future__ import annotations

import itertools
import json
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

pytest.importorskip("pyspark")

import ags1.spark
from ags1 import dataset
from ags1.dataset._store import RemoteStore
from ags1.spark import _engine, encryption
from ags1.spark._engine import Engine
from tests.checks import MIB, pattern
from tests.spark.trees import Tree, plain_of, read_tree, write_tree
from tests.spark.works import Interrupted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ags1.spark import Result
    from tests.spark.conftest import Storage

PART = 8 * MIB
HUGE = pattern(2 * PART + 12_345)
CONTENTS: Tree = {
    "a.txt": b"first",
    "b/empty": b"",
    "b/sp ace #%41": b"a name with spaces",
    "huge.bin": HUGE,
    "large.bin": pattern(MIB + 1),
    "year=2026/\u65e5\u672c": b"no ASCII",
    **{f"many/{index:03}": pattern(index) for index in range(30)},
}


class Lake:
    """A bucket, and jobs on it."""

    def __init__(self, spark: SparkSession, s3: Storage, kms_url: str) -> None:
        self.spark = spark
        self.s3 = s3
        self.kms = kms_url
        self.vault = f"{s3.url}/vault"

    def encrypt(self, source: Any, **options: Any) -> Result:
        options = {"kms": self.kms, "key_id": "lake", "progress": False, "part_bytes": PART, **options}
        return ags1.spark.encrypt_files(self.spark, source, self.vault, **options)

    def put(self, contents: Tree, prefix: str = "raw") -> str:
        for name, data in contents.items():
            self.s3.client.put_object(Bucket=self.s3.bucket, Key=f"{prefix}/{name}", Body=data)
        return f"{self.s3.url}/{prefix}"

    def objects(self, prefix: str = "vault") -> dict[str, int]:
        pages = self.s3.client.get_paginator("list_objects_v2").paginate(Bucket=self.s3.bucket, Prefix=f"{prefix}/")
        return {each["Key"][len(prefix) + 1 :]: each["Size"] for page in pages for each in page.get("Contents", ())}

    def uploads(self) -> list[str]:
        found = self.s3.client.list_multipart_uploads(Bucket=self.s3.bucket)
        return [each["Key"] for each in found.get("Uploads", ())]

    def check(self, contents: Tree, key_id: str = "lake") -> None:
        assert plain_of(self.vault, self.kms, key_id) == contents
        names = set(self.objects())
        assert {name for name in names if not name.startswith("_ags1/")} == set(contents)
        control = {name.partition("-")[0] for name in names if name.startswith("_ags1/")}
        assert control == {"_ags1/metadata.json", "_ags1/manifest"}
        assert len(names) == len(contents) + 2
        assert self.uploads() == []


@pytest.fixture
def lake(spark: SparkSession, s3: Storage, kms_url: str) -> Lake:
    return Lake(spark, s3, kms_url)


def test_from_here_to_s3_and_back(lake: Lake, tmp_path: Path) -> None:
    raw = write_tree(tmp_path / "raw", CONTENTS)
    result = lake.encrypt(raw)
    assert result.counts == {"ok": len(CONTENTS)}
    lake.check(CONTENTS)
    rows = {row.path: row for row in result.dataframe.collect()}
    assert rows["huge.bin"].target == f"{lake.vault}/huge.bin"
    assert rows["huge.bin"].file_length == lake.objects()["huge.bin"]
    options: dict[str, Any] = {"kms": lake.kms, "progress": False, "part_bytes": PART}
    assert ags1.spark.verify_files(lake.spark, lake.vault, **options).counts == {"ok": len(CONTENTS)}
    assert ags1.spark.decrypt_files(lake.spark, lake.vault, tmp_path / "plain", **options).ok
    assert read_tree(tmp_path / "plain") == CONTENTS
    # Nothing differs: nothing is written.
    before = lake.objects()
    assert lake.encrypt(raw).counts == {"unchanged": len(CONTENTS)}
    assert lake.objects() == before
    # What replaces a file waits until the commit.
    changed: Tree = {"a.txt": b"changed", "new": b"new", "huge.bin": pattern(PART + 99)}
    write_tree(raw, changed)
    assert lake.encrypt(raw).counts == {"ok": 3, "unchanged": len(CONTENTS) - 2}
    lake.check({**CONTENTS, **changed})
    # Tampering is found.
    lake.s3.client.copy_object(
        Bucket=lake.s3.bucket, Key="vault/many/010", CopySource={"Bucket": lake.s3.bucket, "Key": "vault/many/011"}
    )
    lake.s3.client.delete_object(Bucket=lake.s3.bucket, Key="vault/many/012")
    lake.put({"stranger": b"x"}, "vault")
    found = ags1.spark.verify_files(lake.spark, lake.vault, **options)
    assert {path: text.partition(":")[0] for path, text in found.errors} == {
        "many/010": "swapped", "many/012": "missing", "stranger": "foreign",
    }  # fmt: skip


def test_from_s3_to_s3_under_another_key_and_back_to_s3(lake: Lake) -> None:
    source = lake.put(CONTENTS)
    assert lake.encrypt(source).counts == {"ok": len(CONTENTS)}
    lake.check(CONTENTS)
    before = lake.objects()
    ags1.spark.rewrap(lake.spark, lake.vault, "lake2", kms=lake.kms)
    lake.check(CONTENTS, "lake2")
    assert {name for name, size in lake.objects().items() if before.get(name) != size} <= {"_ags1/metadata.json"}
    options: dict[str, Any] = {"kms": lake.kms, "progress": False, "part_bytes": PART}
    assert ags1.spark.decrypt_files(lake.spark, lake.vault, f"{lake.s3.url}/plain", **options).ok
    assert lake.objects("plain") == {name: len(data) for name, data in CONTENTS.items()}
    body = lake.s3.client.get_object(Bucket=lake.s3.bucket, Key="plain/huge.bin")["Body"].read()
    assert body == HUGE
    assert lake.uploads() == []


def test_a_second_run_is_refused_until_the_lease_of_the_first_is_over(lake: Lake) -> None:
    source = lake.put({"a": b"1"})
    lease = {"token": "theirs", "host": "elsewhere", "pid": 4711, "expires-ms": int((time.time() + 60) * 1000)}
    lake.put({"_ags1/lease.json": json.dumps(lease).encode()}, "vault")
    with pytest.raises(BlockingIOError, match="process 4711 on host elsewhere is changing this dataset now"):
        lake.encrypt(source)
    lake.put({"_ags1/lease.json": json.dumps({**lease, "expires-ms": 1}).encode()}, "vault")
    assert lake.encrypt(source).ok
    lake.check({"a": b"1"})


def test_a_foreign_object_in_the_way_is_not_overwritten(lake: Lake) -> None:
    source = lake.put({"a": b"1", "b": b"2"})
    lake.put({"a": b"of somebody else"}, "vault")
    # The second run goes on with the first, which has put nothing there either.
    for _ in range(2):
        with pytest.raises(FileExistsError, match="a file that is not of this dataset is in the way: move it away"):
            lake.encrypt(source)
    assert lake.s3.client.get_object(Bucket=lake.s3.bucket, Key="vault/a")["Body"].read() == b"of somebody else"
    lake.s3.client.delete_object(Bucket=lake.s3.bucket, Key="vault/a")
    assert lake.encrypt(source).ok
    lake.check({"a": b"1", "b": b"2"})


def test_names_that_s3_cannot_have_are_reported(lake: Lake, tmp_path: Path) -> None:
    import os

    strange = os.fsdecode(b"no-utf-8-\xff")
    raw = write_tree(tmp_path / "raw", {"a": b"1", strange: b"2", f"{strange}-large": pattern(2 * MIB)})
    result = lake.encrypt(raw, on_error="collect")
    assert result.counts == {"ok": 1, "error": 2}
    lake.check({"a": b"1"})


class Killed(BaseException):
    """The driver is no more: nothing that it would do on its way out is done."""


def kill(lake: Lake, source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run until tasks are done, and leave everything as SIGKILL would: uploads, objects, record and lease."""
    with monkeypatch.context() as patched:
        run = Engine.run

        def dying(engine: Engine, units: Any) -> Any:
            yield from itertools.islice(run(engine, units), 0)
            list(run(engine, units))
            raise Killed

        patched.setattr(Engine, "run", dying)
        patched.setattr(encryption.Assembly, "abort", lambda self: None)
        from ags1.spark._multipart import MultipartUpload

        patched.setattr(MultipartUpload, "abort", lambda self: None)
        with pytest.raises(Killed):
            lake.encrypt(source)


def test_a_killed_run_is_gone_on_with(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"a.txt": b"version 1", "old": b"stays"}
    assert lake.encrypt(lake.put(old, "old")).ok
    source = lake.put(CONTENTS)
    kill(lake, source, monkeypatch)
    names = set(lake.objects())
    assert any(name.startswith("_ags1/run-") for name in names)
    assert any(name.startswith("_ags1/staged-") for name in names)
    assert lake.uploads() == ["vault/huge.bin"]
    with dataset.open(lake.vault, lake.kms) as opened:
        assert sorted(entry.path for entry in opened.files) == ["a.txt", "old"]
    result = lake.encrypt(source)
    # All but the one that was no object yet.
    assert result.counts == {"skipped": len(CONTENTS) - 1, "ok": 1}
    ags1.spark.clean(lake.spark, lake.vault)
    lake.check({**old, **CONTENTS})


def test_a_killed_run_is_thrown_away(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"a.txt": b"version 1", "old": b"stays"}
    assert lake.encrypt(lake.put(old, "old")).ok
    kill(lake, lake.put(CONTENTS), monkeypatch)
    removed = ags1.spark.clean(lake.spark, lake.vault)
    assert any("upload of vault/huge.bin" in text for text in removed)
    lake.check(old)
    # Nothing is in the way of the next one.
    assert lake.encrypt(f"{lake.s3.url}/raw").counts == {"ok": len(CONTENTS)}
    lake.check({**old, **CONTENTS})


def test_a_killed_run_is_begun_anew(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    source = lake.put(CONTENTS)
    kill(lake, source, monkeypatch)
    assert lake.encrypt(source, resume=False).counts == {"ok": len(CONTENTS)}
    ags1.spark.clean(lake.spark, lake.vault)
    lake.check(CONTENTS)


def test_what_a_killed_run_made_of_sources_that_are_gone_does_not_stay(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = {"a.txt": b"version 1", "old": b"stays"}
    assert lake.encrypt(lake.put(old, "old")).ok
    kill(lake, lake.put(CONTENTS), monkeypatch)
    assert lake.encrypt(lake.put({"many/001": b"changed", "other": b"1"}, "less")).ok
    ags1.spark.clean(lake.spark, lake.vault)
    lake.check({**old, "many/001": b"changed", "other": b"1"})


def test_a_worker_that_is_killed_leaves_no_upload(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encryption, "EncryptWork", partial(Interrupted, path="huge.bin", fault="kill"))
    result = lake.encrypt(lake.put({"huge.bin": HUGE, "a": b"1"}), parallelism=4)
    assert result.ok
    assert {row.path: row.attempt for row in result.dataframe.collect()}["huge.bin"] == 1
    lake.check({"huge.bin": HUGE, "a": b"1"})


def test_a_run_that_fails_ends_its_uploads(lake: Lake) -> None:
    source = lake.put({"huge.bin": HUGE, "in-the-way": b"1", "z": b"2"})
    lake.put({"in-the-way": b"of somebody else"}, "vault")
    with pytest.raises(FileExistsError, match="is in the way"):
        lake.encrypt(source)
    assert lake.uploads() == []


class Upload:
    """One that is begun slowly, and cannot always be ended."""

    begun: ClassVar[set[str]] = set()

    def __init__(self, storage: Any, path: str, *arguments: Any, **options: Any) -> None:
        time.sleep(0.2)
        self.path = path
        self.begun.add(path)

    def abort(self) -> None:
        if self.path == "big-00":
            raise PermissionError("not to be ended")
        self.begun.remove(self.path)


def test_a_run_that_fails_while_uploads_are_begun_ends_them_and_says_why(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = write_tree(tmp_path / "raw", {"a": b"1", **{f"big-{index:02}": bytes(2 * MIB) for index in range(24)}})
    monkeypatch.setattr(Upload, "begun", set())
    monkeypatch.setattr(encryption.Assembly, "begin", Upload)
    monkeypatch.setattr(_engine, "_FIRST_WAVE_UNITS", 1)
    monkeypatch.setattr(_engine, "_WAVE_UNITS", 1)

    def broken(*arguments: Any) -> None:
        raise RuntimeError("Spark has died")

    monkeypatch.setattr(Engine, "_run_wave", broken)
    with pytest.raises(RuntimeError, match="Spark has died") as raised:
        lake.encrypt(raw, part_bytes=MIB)
    assert Upload.begun == {"big-00"}
    assert not any(each.name.startswith("ags1-requests") for each in threading.enumerate())
    # All the time it holds what it went through.
    del raised


def test_an_upload_that_cannot_be_begun_is_reported(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {"a": b"1", "big": bytes(2 * MIB), "z": b"2"}
    raw = write_tree(tmp_path / "raw", contents)

    def refused(*arguments: Any, **options: Any) -> None:
        raise PermissionError("no uploads here")

    monkeypatch.setattr(encryption.Assembly, "begin", refused)
    result = lake.encrypt(raw, part_bytes=MIB, on_error="collect")
    assert result.counts == {"ok": 2, "error": 1}
    assert [path for path, _ in result.errors] == ["big"]
    del contents["big"]
    lake.check(contents)


def test_a_commit_that_was_killed_is_read_and_finished(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.encrypt(lake.put({"a": b"1", "b": b"2"}, "old"))
    source = lake.put({"a": b"10", "b": b"20", "c": b"30"})
    with monkeypatch.context() as patched:
        patched.setattr(RemoteStore, "finish_moves", lambda self, staging: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            lake.encrypt(source)
    expected = {"a": b"10", "b": b"20", "c": b"30"}
    with dataset.open(lake.vault, lake.kms) as opened:
        assert {entry.path: opened.open(entry.path).read() for entry in opened.files} == expected
    options: dict[str, Any] = {"kms": lake.kms, "progress": False}
    assert ags1.spark.verify_files(lake.spark, lake.vault, **options).counts == {"ok": 3}
    assert lake.encrypt(source).counts == {"unchanged": 3}
    lake.check(expected)
