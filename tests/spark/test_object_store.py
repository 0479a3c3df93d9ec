"""Trees and datasets in an object store: the same files, the same commit, and nothing half of anything."""

from __future__ import annotations

import itertools
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("obstore")

import ags1.spark
from ags1 import dataset
from ags1.errors import ConflictError
from ags1.spark import datasets
from ags1.spark.engine.runner import Engine
from tests.checks import MIB, pattern
from tests.spark.conftest import Storage
from tests.spark.trees import CONTENTS, HUGE, PART, Tree, give_up, plain_of, read_tree, write_tree
from tests.spark.works import Interrupted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ags1.spark import Result


class Lake:
    """A bucket in which there are sources, and a dataset."""

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

    def named(self) -> dict[str, list[str]]:
        """Names of the objects of each file."""
        with dataset.open(self.vault, self.kms) as opened:
            return {entry.path: [part.name for part in entry.parts] for entry in opened.files}

    def check(self, contents: Tree, key_id: str = "lake") -> None:
        """It holds these files, and nothing else is there but older versions."""
        assert plain_of(self.vault, self.kms, key_id) == contents
        assert not [name for name in self.objects() if name.startswith("_ags1/runs/")]


@pytest.fixture
def lake(spark: SparkSession, s3: Storage, kms_url: str) -> Lake:
    return Lake(spark, s3, kms_url)


def test_from_here_to_s3_and_back(lake: Lake, tmp_path: Path) -> None:
    raw = write_tree(tmp_path / "raw", CONTENTS)
    result = lake.encrypt(raw)
    assert result.counts == {"ok": len(CONTENTS)}
    lake.check(CONTENTS)
    rows = {row.path: row for row in result.dataframe.collect()}
    named, sizes = lake.named(), lake.objects()
    assert rows["huge.bin"].target == f"{lake.vault}/{named['huge.bin'][0]}"
    assert rows["huge.bin"].file_length == sum(sizes[name] for name in named["huge.bin"])
    assert len(named["huge.bin"]) == 4
    options: dict[str, Any] = {"kms": lake.kms, "progress": False, "part_bytes": PART}
    assert ags1.spark.verify_files(lake.spark, lake.vault, **options).counts == {"ok": len(CONTENTS)}
    assert ags1.spark.decrypt_files(lake.spark, lake.vault, tmp_path / "plain", **options).ok
    assert read_tree(tmp_path / "plain") == CONTENTS
    # Nothing differs: nothing is written.
    assert lake.encrypt(raw).counts == {"unchanged": len(CONTENTS)}
    assert lake.objects() == sizes
    changed: Tree = {"a.txt": b"changed", "new": b"new", "huge.bin": pattern(PART + 99)}
    write_tree(raw, changed)
    assert lake.encrypt(raw).counts == {"ok": 3, "unchanged": len(CONTENTS) - 2}
    lake.check({**CONTENTS, **changed})
    # Tampering is found.
    (ten,), (eleven,), (twelve,) = (named[f"many/{number:03}"] for number in (10, 11, 12))
    lake.s3.client.copy_object(
        Bucket=lake.s3.bucket, Key=f"vault/{ten}", CopySource={"Bucket": lake.s3.bucket, "Key": f"vault/{eleven}"}
    )
    lake.s3.client.delete_object(Bucket=lake.s3.bucket, Key=f"vault/{twelve}")
    lake.put({"stranger": b"x"}, "vault")
    found = ags1.spark.verify_files(lake.spark, lake.vault, **options)
    kinds = {path: text.partition(":")[0] for path, text in found.errors}
    assert kinds.pop("many/010") in ("damaged", "truncated", "extended")
    assert kinds == {"many/012": "missing", "stranger": "foreign"}


def test_from_s3_to_s3_under_another_key_and_back_to_s3(lake: Lake) -> None:
    source = lake.put(CONTENTS)
    assert lake.encrypt(source).counts == {"ok": len(CONTENTS)}
    lake.check(CONTENTS)
    before = lake.objects()
    with dataset.open(lake.vault, lake.kms) as opened:
        opened.rewrap("lake2")
    lake.check(CONTENTS, "lake2")
    after = lake.objects()
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {"_ags1/v-2.json"}
    options: dict[str, Any] = {"kms": lake.kms, "progress": False, "part_bytes": PART}
    assert ags1.spark.decrypt_files(lake.spark, lake.vault, f"{lake.s3.url}/plain", **options).ok
    assert lake.objects("plain") == {name: len(data) for name, data in CONTENTS.items()}
    body = lake.s3.client.get_object(Bucket=lake.s3.bucket, Key="plain/huge.bin")["Body"].read()
    assert body == HUGE


def test_sparks_configuration_says_how_the_store_is_reached(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    source = lake.put({"a": b"1", "huge.bin": HUGE})
    environment = dict(os.environ)
    settings = {
        "fs.s3a.endpoint": lake.s3.endpoint,
        "fs.s3a.access.key": environment["AWS_ACCESS_KEY_ID"],
        "fs.s3a.secret.key": environment["AWS_SECRET_ACCESS_KEY"],
        "fs.s3a.endpoint.region": environment["AWS_REGION"],
        "fs.s3a.path.style.access": "true",
    }
    for name in environment:
        if name.startswith(("AWS_", "S3_")):
            monkeypatch.delenv(name)
    for name, value in settings.items():
        lake.spark.conf.set(name, value)
    try:
        a = {name.replace("s3://", "s3a://") for name in (source, lake.vault)}
        (raw,), (lake.vault,) = ([each for each in a if each.endswith(end)] for end in ("raw", "vault"))
        assert lake.encrypt(raw).counts == {"ok": 2}
        options: dict[str, Any] = {"kms": lake.kms, "progress": False}
        assert ags1.spark.verify_files(lake.spark, lake.vault, **options).counts == {"ok": 2}
    finally:
        for name in settings:
            lake.spark.conf.unset(name)


def test_two_writers_of_one_dataset_both_count(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ags1.dataset.transaction import Transaction

    lake.encrypt(lake.put({"a": b"1"}))
    commit = Transaction.commit
    other: Tree = {"b": b"2"}

    def late(self: Transaction, **options: Any) -> Any:
        monkeypatch.setattr(Transaction, "commit", commit)
        with dataset.open(lake.vault, lake.kms) as opened:
            opened.add(write_tree(tmp_path / "other", other))
        return commit(self, **options)

    monkeypatch.setattr(Transaction, "commit", late)
    assert lake.encrypt(lake.put({"c": b"3"})).version == 3
    assert plain_of(lake.vault, lake.kms, whole=False) == {"a": b"1", "b": b"2", "c": b"3"}
    monkeypatch.setattr(Transaction, "commit", late)
    other["d"] = b"of the other"
    with pytest.raises(ConflictError, match="another writer has changed d meanwhile"):
        lake.encrypt(lake.put({"d": b"4"}))


def test_what_is_there_already_is_not_overwritten(lake: Lake) -> None:
    source = lake.put({"a": b"1", "b": b"2"})
    lake.put({"a": b"of somebody else"}, "vault")
    assert lake.encrypt(source).ok
    assert lake.s3.client.get_object(Bucket=lake.s3.bucket, Key="vault/a")["Body"].read() == b"of somebody else"
    assert plain_of(lake.vault, lake.kms, whole=False) == {"a": b"1", "b": b"2"}


def test_names_that_s3_cannot_have_are_no_obstacle(lake: Lake, tmp_path: Path) -> None:
    strange = os.fsdecode(b"no-utf-8-\xff")
    contents = {"a": b"1", strange: b"2", f"{strange}-large": pattern(2 * MIB)}
    raw = write_tree(tmp_path / "raw", contents)
    assert lake.encrypt(raw).counts == {"ok": 3}
    lake.check(contents)


class Killed(BaseException):
    """The driver is no more."""


def kill(lake: Lake, source: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run until the first wave of tasks was recorded and the others are done; return how many files that were."""
    with monkeypatch.context() as patched:
        run, count = Engine.run, 0
        patched.setattr("ags1.spark.engine.planning._FIRST_WAVE_UNITS", 40)

        def dying(engine: Engine, units: Any) -> Any:
            nonlocal count
            waves = run(engine, units)
            for wave in itertools.islice(waves, 1):
                count += len({each.path for each in wave})
                yield wave
            list(waves)
            raise Killed

        patched.setattr(Engine, "run", dying)
        with pytest.raises(Killed):
            lake.encrypt(source)
    return count


def test_a_killed_run_is_taken_over_thrown_away_or_begun_anew(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"a.txt": b"version 1", "old": b"stays"}
    assert lake.encrypt(lake.put(old, "old")).ok
    source = lake.put(CONTENTS)
    recorded = kill(lake, source, monkeypatch)
    assert 0 < recorded < len(CONTENTS)
    assert any(name.startswith("_ags1/runs/") for name in lake.objects())
    assert plain_of(lake.vault, lake.kms, whole=False) == old
    result = lake.encrypt(source)
    # And what finished tasks have recorded themselves, before the driver heard of it.
    assert result.counts["skipped"] >= recorded
    assert sum(result.counts.values()) == len(CONTENTS)
    assert set(result.counts) <= {"skipped", "ok"}
    give_up(lake.vault, lake.kms)
    lake.check({**old, **CONTENTS})

    changed = lake.put({path: data + b"." for path, data in CONTENTS.items()})
    kill(lake, changed, monkeypatch)
    assert give_up(lake.vault, lake.kms).objects > 0
    lake.check({**old, **CONTENTS})

    kill(lake, changed, monkeypatch)
    assert lake.encrypt(changed, resume=False).counts == {"ok": len(CONTENTS)}
    give_up(lake.vault, lake.kms)
    lake.check({**old, **{path: data + b"." for path, data in CONTENTS.items()}})


def test_a_worker_that_is_killed_is_replaced(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "EncryptWork", partial(Interrupted, path="huge.bin", fault="kill"))
    result = lake.encrypt(lake.put({"huge.bin": HUGE, "a": b"1"}), parallelism=4)
    assert result.ok
    assert {row.path: row.attempt for row in result.dataframe.collect()}["huge.bin"] == 1
    assert plain_of(lake.vault, lake.kms, whole=False) == {"huge.bin": HUGE, "a": b"1"}
    give_up(lake.vault, lake.kms)
    lake.check({"huge.bin": HUGE, "a": b"1"})


def test_a_source_that_is_replaced_while_it_is_encrypted_is_an_error(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ags1.dataset import writing

    source = lake.put({"a": b"1", "huge.bin": HUGE})
    scan = writing.scan

    def changed(*arguments: Any, **named: Any) -> Any:
        found = list(scan(*arguments, **named))
        lake.put({"a": b"2", "huge.bin": HUGE[::-1]})
        return iter(found)

    monkeypatch.setattr(writing, "scan", changed)
    result = lake.encrypt(source, on_error="collect")
    assert {path for path, _ in result.errors} == {"a", "huge.bin"}
    assert plain_of(lake.vault, lake.kms, whole=False) == {}
