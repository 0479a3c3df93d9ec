"""Datasets verified over Spark: every kind of damage by its name, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import ags1.spark
from ags1 import dataset
from ags1.dataset.keys import DatasetKeys
from ags1.dataset.manifests import DatasetView
from ags1.dataset.names import new_object_name, new_run, sort_key
from ags1.dataset.pins import Access
from ags1.dataset.transaction import Transaction
from ags1.dataset.versions import read_version
from ags1.errors import AuthenticationError, FormatError, KeyAccessError
from ags1.spark.engine.sealing import kms_client
from ags1.storage import Location
from tests.checks import MIB, pattern
from tests.spark.trees import (
    CONTENTS,
    PART,
    STRANGE,
    Tree,
    give_up,
    objects,
    plain_of,
    read_tree,
    unfinished,
    write_tree,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXPECTED: Tree = {**CONTENTS, STRANGE: b"a name that is no UTF-8", "other.bin": pattern(2 * MIB + 5, seed=1)}


@pytest.fixture
def vault(tmp_path: Path, kms_url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Many leaves: tasks read those of small files, the driver those of large ones.
    monkeypatch.setattr("ags1.dataset.manifests.FAN_OUT", 8)
    monkeypatch.setattr("ags1.dataset.manifests._SMALL", 2)
    raw = write_tree(tmp_path / "raw", EXPECTED)
    dataset.encrypt(raw, tmp_path / "vault", kms_url, "lake").close()
    return tmp_path / "vault"


def verified(spark: SparkSession, vault: Path, kms_url: str) -> dict[str, str]:
    """The first word of what is wrong with each file, and of what is left out of the judgement."""
    result = ags1.spark.verify_files(spark, vault, kms=kms_url, part_bytes=PART, progress=False)
    rows = [row for row in result.dataframe.collect() if row.status in ("error", "left out")]
    assert len(rows) == result.counts.get("error", 0) + result.counts.get("left out", 0)
    assert result.ok is not any(row.status == "error" for row in rows)
    assert {row.path for row in rows if row.status == "left out"} == {
        row.path for row in rows if row.error.startswith("unreferenced")
    }
    return {row.path: row.error.partition(":")[0] for row in rows}


def test_a_whole_dataset_is_found_whole(spark: SparkSession, vault: Path, kms_url: str) -> None:
    before = read_tree(vault)
    result = ags1.spark.verify_files(
        spark, vault, kms=kms_url, key_id="lake", expected_version=1, part_bytes=PART, progress=False
    )
    assert result.ok
    assert result.counts == {"ok": len(EXPECTED)}
    assert result.plaintext_bytes == sum(map(len, EXPECTED.values()))
    assert result.version == 1
    assert read_tree(vault) == before


def test_empty_directories_are_no_files(spark: SparkSession, vault: Path, kms_url: str, tmp_path: Path) -> None:
    # Leaves of directories only, and leaves that a task and the driver read with files among them.
    for name in (*(f"none/{index:03}" for index in range(40)), "many/0", "huge.bin.d", "large.bin.d"):
        (tmp_path / "raw" / name).mkdir(parents=True)
    with dataset.encrypt(tmp_path / "raw", vault, kms_url, "lake") as made:
        assert len(list(made.files.directories())) == 43
    result = ags1.spark.verify_files(spark, vault, kms=kms_url, part_bytes=PART, progress=False)
    assert (result.ok, result.counts) == (True, {"ok": len(EXPECTED)})


def test_what_is_wrong_is_named_and_nothing_else(spark: SparkSession, vault: Path, kms_url: str) -> None:
    places = {path: found[0] for path, found in objects(vault, kms_url).items()}

    def changed(name: str, offset: int) -> None:
        with open(places[name], "r+b") as file:
            file.seek(offset)
            file.write(b"damaged")

    changed("huge.bin", 2 * MIB + 100)
    changed("many/140", 40)
    os.truncate(places["many/141"], 100)
    with open(places["large.bin"], "ab") as file:
        file.write(b"more")
    places["many/143"].unlink()
    places["many/144"].write_bytes(b"AGS1" + os.urandom(168))
    a, b = places["many/145"], places["many/146"]
    a.rename(vault / "x")
    b.rename(a)
    (vault / "x").rename(b)
    shutil.copy(places["many/147"], vault / "copy")
    late = new_object_name("late", new_run())
    write_tree(vault, {"stranger": b"of somebody else", "new/stranger": b"x", late: b"of a zombie"})
    os.truncate(places["other.bin"], MIB)
    with dataset.open(vault, kms_url) as opened:
        expected = {each.subject: each.code for each in opened.verify().findings}
    many = {f"many/{index}" for index in (140, 141, 143, 144, 145, 146)}
    assert set(expected) == many | {
        "huge.bin", "large.bin", "other.bin", "copy", "stranger", "new/stranger", late,
    }  # fmt: skip
    assert set(expected.values()) == {
        "damaged", "truncated", "extended", "missing", "foreign", "unreferenced",
    }  # fmt: skip
    assert verified(spark, vault, kms_url) == expected


def test_spark_and_plain_python_say_the_same(spark: SparkSession, vault: Path, kms_url: str) -> None:
    places = {path: found[0] for path, found in objects(vault, kms_url).items()}
    places[STRANGE].write_bytes(b"")
    os.truncate(places["huge.bin"], 0)
    shutil.copy(places["large.bin"], places["one block"])
    places["a.txt"].unlink()
    places["a.txt"].mkdir()
    with dataset.open(vault, kms_url) as opened:
        expected = {each.subject.encode("utf-8", "backslashreplace"): each.code for each in opened.verify().findings}
    found = verified(spark, vault, kms_url)
    assert len(found) == len(expected)
    assert sorted(found.values()) == sorted(expected.values())


def test_a_dataset_under_another_key_or_of_another_version_is_refused(
    spark: SparkSession, vault: Path, kms_url: str
) -> None:
    with pytest.raises(KeyAccessError, match="lake2"):
        ags1.spark.verify_files(spark, vault, kms=kms_url, key_id="lake2", progress=False)
    with pytest.raises(AuthenticationError, match="version"):
        ags1.spark.verify_files(spark, vault, kms=kms_url, expected_version=7, progress=False)
    with pytest.raises(FileNotFoundError, match="no ags1 dataset here"):
        ags1.spark.verify_files(spark, vault.parent / "nothing", kms=kms_url, progress=False)
    with pytest.raises(TypeError, match="kms must be a URL"):
        ags1.spark.verify_files(spark, vault, kms=7, progress=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["many/050", "huge.bin"])
@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_damaged_manifest_ends_the_verification_and_is_a_finding_of_the_local_one(
    path: str, damage: str, spark: SparkSession, vault: Path, kms_url: str
) -> None:
    version = read_version(Location(vault), 1)
    view = DatasetView.of(Location(vault), version, DatasetKeys(version.key, kms_client(kms_url), ""))
    leaf = next(view.manifests.leaves(view.root, sort_key(path)))
    place = vault / leaf.name
    if damage == "changed":
        data = bytearray(place.read_bytes())
        data[40] ^= 1
        place.write_bytes(data)
    else:
        place.unlink()
    kind = AuthenticationError if damage == "changed" else FormatError
    with dataset.open(vault, kms_url) as opened:
        found = opened.verify()
    assert not found.ok
    assert any(leaf.name in str(each.message) for each in found.findings)
    with pytest.raises(kind, match=re.escape(leaf.name)):
        ags1.spark.verify_files(spark, vault, kms=kms_url, part_bytes=PART, progress=False)


def test_every_file_has_its_row_whoever_read_its_manifest(spark: SparkSession, vault: Path, kms_url: str) -> None:
    places = objects(vault, kms_url)
    for part_bytes in (PART, 1 << 30):
        result = ags1.spark.verify_files(spark, vault, kms=kms_url, part_bytes=part_bytes, progress=False)
        rows = {row["target"]: row for row in result.table().to_pylist()}
        for path, data in EXPECTED.items():
            row = rows.pop(str(places[path][0]))
            assert row["plaintext_length"] == len(data)
            assert row["file_length"] == sum(place.stat().st_size for place in places[path])
            assert (row["status"], row["error"], row["attempt"]) == ("ok", None, 0)
        assert rows == {}


# -- maintenance ---------------------------------------------------------------------------------------------


def test_expire_removes_what_interrupted_runs_left_and_no_file(spark: SparkSession, vault: Path, kms_url: str) -> None:
    transaction = Transaction.begin(Access.of(Location(vault), kms_client(kms_url)), "encrypt")
    transaction.run.begin()
    left = new_object_name("left", transaction.run.id)
    write_tree(vault, {left: b"by a run that was killed"})
    assert unfinished(vault) == [transaction.run.id]
    assert verified(spark, vault, kms_url) == {left: "unreferenced"}
    # Younger than the time of grace, it may be about to be committed.
    with dataset.open(vault, kms_url) as opened:
        assert opened.expire().objects == 0
    assert unfinished(vault) == [transaction.run.id]
    give_up(vault, kms_url)
    assert unfinished(vault) == []
    assert verified(spark, vault, kms_url) == {}
    assert plain_of(vault, kms_url) == EXPECTED
