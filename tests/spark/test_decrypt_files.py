"""Datasets decrypted over Spark: byte by byte what went in, nothing of what was tampered with, and on after a kill."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import ags1.spark
from ags1 import dataset, kms
from ags1.errors import AuthenticationError, KeyAccessError
from tests import modes
from tests.checks import MIB
from tests.dataset.commits import commit
from tests.spark.trees import CONTENTS, PART, STRANGE, Tree, objects, read_tree, write_tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ags1.spark import Result

EXPECTED: Tree = {**CONTENTS, STRANGE: b"a name that is no UTF-8"}


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory, kms_url: str) -> Path:
    """A dataset that plain Python wrote."""
    directory = tmp_path_factory.mktemp("origin")
    raw = write_tree(directory / "raw", EXPECTED)
    dataset.encrypt(raw, directory / "vault", kms_url, "lake").close()
    return directory / "vault"


class Job:
    """Decrypts a copy of the dataset into a directory, as often as it is told to."""

    def __init__(self, spark: SparkSession, origin: Path, directory: Path, kms_url: str) -> None:
        self.spark = spark
        self.kms = kms_url
        self.vault = directory / "vault"
        self.target = directory / "plain"
        shutil.copytree(origin, self.vault)
        self.objects = {path: places[0] for path, places in objects(self.vault, kms_url).items()}

    def run(self, **options: Any) -> Result:
        options = {"kms": self.kms, "progress": False, "part_bytes": PART, **options}
        target = options.pop("target", self.target)
        return ags1.spark.decrypt_files(self.spark, self.vault, target, **options)


@pytest.fixture
def job(spark: SparkSession, origin: Path, tmp_path: Path, kms_url: str) -> Job:
    return Job(spark, origin, tmp_path, kms_url)


def damage(path: Path, offset: int) -> None:
    """Change one byte."""
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))


def test_what_comes_out_is_what_plain_python_put_in(job: Job) -> None:
    result = job.run(parallelism=3, key_id="lake", expected_version=1)
    assert read_tree(job.target) == EXPECTED
    assert result.ok
    assert result.version == 1
    assert result.counts == {"ok": len(EXPECTED)}
    rows = {row.path: row for row in result.dataframe.collect()}
    assert rows["huge.bin"].plaintext_length == len(EXPECTED["huge.bin"])
    assert rows["huge.bin"].file_length == job.objects["huge.bin"].stat().st_size
    assert rows["a.txt"].target == str(job.target / "a.txt")
    # What is there is replaced.
    (job.target / "a.txt").write_bytes(b"older")
    assert job.run(include=["a.txt", "many/*"], exclude="0*").counts["ok"] == 1 + 50
    assert read_tree(job.target) == EXPECTED


def test_empty_directories_are_made_again_and_never_through_a_link(job: Job, tmp_path: Path) -> None:
    raw, outside = write_tree(tmp_path / "raw", {"a": b"1", "b/x": b"2"}), tmp_path / "outside"
    for place in (raw / "b/none", raw / "none", raw / "deep/none", outside):
        place.mkdir(parents=True)
    dataset.encrypt(raw, tmp_path / "made", job.kms, "lake").close()

    def decrypt(**options: Any) -> Result:
        return ags1.spark.decrypt_files(
            job.spark, tmp_path / "made", job.target, kms=job.kms, progress=False, **options
        )  # fmt: skip

    assert decrypt(exclude="deep").counts == {"ok": 2}
    assert [(job.target / each).is_dir() for each in ("b/none", "none", "deep")] == [True, True, False]
    (job.target / "none").rmdir()
    (job.target / "none").symlink_to(outside)
    result = decrypt(on_error="collect")
    assert [path for path, _ in result.errors] == ["none/"]
    with pytest.raises(NotADirectoryError, match="in the way of a directory"):
        decrypt()
    assert (job.target / "deep/none").is_dir()
    assert os.listdir(outside) == []
    (job.target / "none").unlink()
    assert decrypt().counts == {"skipped": 2}
    assert (job.target / "none").is_dir()
    assert read_tree(job.target) == {"a": b"1", "b/x": b"2"}


def test_files_of_several_objects_are_one_file_again(job: Job) -> None:
    vault = job.target.parent / "cut"
    source = write_tree(job.target.parent / "raw", {"huge.bin": EXPECTED["huge.bin"], "a.txt": b"first"})
    ags1.spark.encrypt_files(job.spark, source, vault, kms=job.kms, key_id="lake", part_bytes=MIB, progress=False)
    assert len(objects(vault, job.kms)["huge.bin"]) == 4
    ags1.spark.decrypt_files(job.spark, vault, job.target, kms=job.kms, progress=False)
    assert read_tree(job.target) == {"huge.bin": EXPECTED["huge.bin"], "a.txt": b"first"}


def test_a_big_file_is_shared_out_and_leaves_nothing_beside_itself(job: Job) -> None:
    result = job.run(part_bytes=MIB, parallelism=3, include=["huge.bin", "a.txt"])
    assert result.counts == {"ok": 2}
    assert read_tree(job.target) == {path: EXPECTED[path] for path in ("a.txt", "huge.bin")}
    assert sorted(os.listdir(job.target)) == ["a.txt", "huge.bin"]
    # One range of it fails: nothing of the file appears, and nothing of it stays.
    damage(job.objects["huge.bin"], 3 * MIB + 1000)
    (job.target / "huge.bin").write_bytes(b"before")
    result = job.run(part_bytes=MIB, parallelism=3, include=["huge.bin", "a.txt"], on_error="collect")
    assert [path for path, _ in result.errors] == ["huge.bin"]
    assert read_tree(job.target) == {"a.txt": EXPECTED["a.txt"], "huge.bin": b"before"}


def test_modes_are_kept_and_nothing_is_written_through_a_link(job: Job, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "raw", {"secret": b"1", "d/x": b"2", "e": b"3"})
    (source / "secret").chmod(0o600)
    vault = tmp_path / "vault-of-modes"
    ags1.spark.encrypt_files(job.spark, source, vault, kms=job.kms, key_id="lake", progress=False)
    job.target.mkdir()
    elsewhere = write_tree(tmp_path / "elsewhere", {"e": b"somebody's"})
    (job.target / "d").symlink_to(elsewhere)
    (job.target / "e").symlink_to(elsewhere / "e")
    result = ags1.spark.decrypt_files(job.spark, vault, job.target, kms=job.kms, progress=False, on_error="collect")
    assert [path for path, _ in result.errors] == ["d/x"]
    assert (job.target / "secret").stat().st_mode & 0o777 == 0o600
    assert (job.target / "e").read_bytes() == b"3"
    assert read_tree(elsewhere) == {"e": b"somebody's"}


@pytest.mark.parametrize("mask", modes.UMASKS[::3])
def test_a_tree_comes_back_with_the_modes_of_its_directories_and_files(mask: int, job: Job, tmp_path: Path) -> None:
    rng = random.Random(mask)
    source = modes.make_tree(tmp_path / "raw", rng, lambda: bytes(rng.choice([0, 100, 3 * MIB])))
    vault, options = tmp_path / "vault-of-modes", {"kms": job.kms, "part_bytes": MIB, "progress": False}
    made = ags1.spark.encrypt_files(job.spark, source, vault, key_id="lake", **options)  # type: ignore[arg-type]
    links = [path for path, text in made.notes if "it is a link, which is not followed" in text]
    assert sorted(links) == modes.links_in(source)
    assert made.links == len(links)
    for _ in range(2):
        with modes.umask(mask):
            ags1.spark.decrypt_files(job.spark, vault, job.target, **options)  # type: ignore[arg-type]
        found = modes.different(source, job.target, mask)
        # Files are made by the workers, whose umask is another.
        assert {name: text for name, text in found.items() if not (job.target / name).is_file()} == {}


def test_nothing_of_a_damaged_file_appears(job: Job) -> None:
    # In the last block of the one, in the second of the other.
    damage(job.objects["huge.bin"], 3 * MIB + 1000)
    damage(job.objects["large.bin"], MIB + 50)
    damage(job.objects["many/100"], 50)
    with pytest.raises(AuthenticationError, match=r"^decrypt: .*What was done is kept") as caught:
        job.run()
    assert not {"huge.bin", "large.bin", "many/100"} & set(read_tree(job.target))
    assert caught.value.result.counts["error"] >= 1
    result = job.run(on_error="collect")
    assert {path for path, _ in result.errors} == {"huge.bin", "large.bin", "many/100"}
    assert all(str(job.vault) in text for _, text in result.errors)
    expected = {path: data for path, data in EXPECTED.items() if path not in dict(result.errors)}
    assert read_tree(job.target) == expected
    assert result.counts["skipped"] == len(expected)


def test_a_file_that_is_missing_swapped_or_truncated_is_refused(job: Job) -> None:
    job.objects["a.txt"].unlink()
    os.rename(job.objects["many/010"], job.objects["many/011"])
    os.truncate(job.objects["huge.bin"], 2 * MIB)
    result = job.run(on_error="collect")
    errors = dict(result.errors)
    assert set(errors) == {"a.txt", "many/010", "many/011", "huge.bin"}
    assert "is in the manifest, but its object is missing" in errors["a.txt"]
    assert not set(errors) & set(read_tree(job.target))


def test_an_interrupted_run_is_taken_over_by_its_record_and_leaves_nothing(job: Job) -> None:
    strange = "year=2026/\u65e5\u672c/\u00e9 \U0001f600"
    damage(job.objects[strange], 30)
    with pytest.raises(AuthenticationError):
        job.run()
    found = read_tree(job.target)
    records = {path for path in found if path.startswith(".ags1-decrypt-")}
    assert records
    done = found.keys() - records
    assert len(done) > 100
    # What a record names, and has another length by now, is done again; so is what no record names.
    (job.target / "a.txt").write_bytes(b"cut")
    (job.target / "large.bin").unlink()
    # And what somebody wrote to since, whatever its length.
    (job.target / "b.d/x").write_bytes(bytes(len(EXPECTED["b.d/x"])))
    result = job.run(on_error="collect")
    assert result.counts == {"skipped": len(done) - 3, "ok": 3, "error": 1}
    assert read_tree(job.target) == {path: data for path, data in EXPECTED.items() if path != strange}


def test_what_no_record_names_is_not_believed(job: Job) -> None:
    damage(job.objects["many/149"], 20)
    with pytest.raises(AuthenticationError):
        job.run()
    records = [job.target / path for path in read_tree(job.target) if path.startswith(".ags1-decrypt-")]
    record, data = records[0], records[0].read_bytes()
    for each in records:
        each.unlink()
    # As after a power cut: the name is there, and the data is not.
    (job.target / "a.txt").write_bytes(bytes(len(EXPECTED["a.txt"])))
    # The last one is a record, under the name of another.
    for forged in (b"\0" * 100, json.dumps([["a.txt", len(EXPECTED["a.txt"])]]).encode(), data[:-1], data):
        record.with_name(f"{record.name.rpartition('-')[0]}-{len(forged):012d}.sealed").write_bytes(forged)
    result = job.run(on_error="collect")
    assert "skipped" not in result.counts
    assert (job.target / "a.txt").read_bytes() == EXPECTED["a.txt"]


def test_a_run_can_be_begun_anew(job: Job) -> None:
    damage(job.objects["many/149"], 20)
    with pytest.raises(AuthenticationError):
        job.run()
    result = job.run(on_error="collect", resume=False)
    assert "skipped" not in result.counts
    assert len(read_tree(job.target)) == len(EXPECTED) - 1


def test_what_was_there_before_an_interrupted_run_is_not_taken_for_its_work(job: Job) -> None:
    write_tree(job.target, {"a.txt": b"XXXXX", "many/149": b"?"})
    for path in ("a.txt", "many/149"):
        os.utime(job.target / path, ns=(10**18, 10**18))
    damage(job.objects["b.d/x"], 20)
    with pytest.raises(AuthenticationError):
        job.run(include=["b.d/x"])
    job.run(on_error="collect", exclude="b.d/x")
    assert read_tree(job.target) == {path: data for path, data in EXPECTED.items() if path != "b.d/x"}


def test_without_overwrite_a_file_that_differs_is_refused_and_nothing_is_written(job: Job) -> None:
    write_tree(job.target, {"a.txt": b"my edited work"})
    with pytest.raises(FileExistsError, match=r"1 file in it differs .* such as a\.txt"):
        job.run(overwrite=False)
    assert read_tree(job.target) == {"a.txt": b"my edited work"}
    (job.target / "a.txt").unlink()
    # Again: what stands there is what it would write.
    for _ in range(2):
        job.run(overwrite=False)
        assert read_tree(job.target) == EXPECTED


def test_arguments_that_are_wrong_are_refused_before_anything_is_written(job: Job, tmp_path: Path) -> None:
    def refused(kind: type[Exception], text: str, **options: Any) -> None:
        with pytest.raises(kind, match=text):
            job.run(**options)
        assert not job.target.exists()

    with kms.load(job.kms) as client:
        refused(TypeError, "kms must be a URL such as .*, not LocalKms", kms=client)
    refused(ValueError, "on_error must be", on_error="skip")
    refused(ValueError, "lies in the dataset: plaintext would be among", target=job.vault / "sub")
    refused(ValueError, "lies in the dataset: plaintext would be among", target=job.vault)
    refused(ValueError, "parallelism must be at least 1", parallelism=0)
    refused(KeyAccessError, "lake2", key_id="lake2")
    refused(AuthenticationError, "version", expected_version=2)
    shutil.rmtree(job.vault)
    refused(FileNotFoundError, "no ags1 dataset here")
    assert not job.target.exists()


def test_a_big_file_may_have_any_name(spark: SparkSession, tmp_path: Path, kms_url: str) -> None:
    contents: Tree = {name: bytes([index]) * (2 * MIB) for index, name in enumerate(("started", "parts/parts"))}
    dataset.encrypt(write_tree(tmp_path / "raw", contents), tmp_path / "vault", kms_url, "lake").close()
    options: dict[str, Any] = {"kms": kms_url, "progress": False, "part_bytes": MIB}
    assert ags1.spark.decrypt_files(spark, tmp_path / "vault", tmp_path / "plain", **options).ok
    assert read_tree(tmp_path / "plain") == contents


def test_no_plaintext_comes_into_the_dataset(spark: SparkSession, tmp_path: Path, kms_url: str) -> None:
    # In the place of the encrypted "a" there would be the plaintext of "vault/a".
    contents: Tree = {"a": b"1", "vault/a": b"2"}
    vault = tmp_path / "above" / "vault"
    dataset.encrypt(write_tree(tmp_path / "raw", contents), vault, kms_url, "lake").close()
    before = read_tree(vault)
    options: dict[str, Any] = {"kms": kms_url, "progress": False}
    with pytest.raises(ValueError, match="files below vault/ would be put into the dataset, which lies in the target"):
        ags1.spark.decrypt_files(spark, vault, tmp_path / "above", **options)
    assert read_tree(vault) == before


def test_files_that_no_directory_can_hold_together_are_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, kms_url: str
) -> None:
    commit(tmp_path / "vault", {"0": b"0", "a": b"1", "a/b": b"2"}, service=kms.load(kms_url))
    options: dict[str, Any] = {"kms": kms_url, "progress": False}
    with pytest.raises(NotADirectoryError, match="a and a/b cannot both be written"):
        ags1.spark.decrypt_files(spark, tmp_path / "vault", tmp_path / "plain", **options)
    assert not (tmp_path / "plain").exists()


def test_nothing_is_gone_on_with_that_a_run_on_another_copy_of_the_dataset_has_left(
    spark: SparkSession, tmp_path: Path, kms_url: str
) -> None:
    def contents(data: bytes) -> Tree:
        return {"a": data, "big": data * (2 * MIB), "z": data}

    one, other = tmp_path / "one", tmp_path / "other"
    dataset.encrypt(write_tree(tmp_path / "raw", {"first": b"1"}), one, kms_url, "lake").close()
    shutil.copytree(one, other)
    for vault, data in ((one, b"1"), (other, b"2")):
        raw = write_tree(tmp_path / f"raw-{vault.name}", contents(data))
        with dataset.open(vault, kms_url) as opened:
            opened.add(raw)
    damage(objects(one, kms_url)["z"][0], 30)
    options: dict[str, Any] = {"kms": kms_url, "progress": False, "part_bytes": MIB, "exclude": "first"}
    with pytest.raises(AuthenticationError):
        ags1.spark.decrypt_files(spark, one, tmp_path / "plain", **options)
    assert ags1.spark.decrypt_files(spark, other, tmp_path / "plain", **options).counts == {"ok": 3}
    assert read_tree(tmp_path / "plain") == contents(b"2")
