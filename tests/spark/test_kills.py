"""SIGKILL of workers and drivers: no file is lost, doubled or torn, and the next run leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import ags1.spark
from ags1 import dataset
from ags1.dataset._store import LocalStore
from ags1.spark import encryption
from tests.checks import MIB, pattern
from tests.spark.trees import CONTENTS, PART, Tree, assert_dataset, control, plain_of, read_tree, write_tree
from tests.spark.works import Interrupted, Twins

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ags1.spark import Result
    from tests.spark.conftest import Run

# A file of each kind: done with others, alone, in ranges.
PATHS = ("many/075", "large.bin", "huge.bin")
OLD: Tree = {"a.txt": b"version 1", "huge.bin": pattern(2 * MIB + 5), "old": b"stays", "many/010": b"version 1"}


def encrypt(spark: SparkSession, raw: Path, vault: Path, kms_url: str, **options: Any) -> Result:
    options = {"key_id": "lake", "progress": False, "part_bytes": PART, **options}
    return ags1.spark.encrypt_files(spark, raw, vault, kms=kms_url, **options)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "raw", CONTENTS)


# -- workers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("fault", ["kill", "raise"])
def test_a_task_that_dies_is_done_again(
    fault: str, path: str, spark: SparkSession, raw: Path, kms_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = raw.parent / "vault"
    monkeypatch.setattr(encryption, "EncryptWork", partial(Interrupted, path=path, fault=fault))
    result = encrypt(spark, raw, vault, kms_url, parallelism=3)
    assert result.ok
    attempts = {row.path: row.attempt for row in result.dataframe.collect()}
    assert attempts[path] == 1
    assert set(attempts.values()) <= {0, 1}
    assert len(attempts) == len(CONTENTS)
    assert_dataset(vault, CONTENTS, kms_url)


def test_a_task_may_have_a_twin(spark: SparkSession, raw: Path, kms_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # As speculation makes them, which Spark does not do where all executors are on one host.
    vault = raw.parent / "vault"
    monkeypatch.setattr(encryption, "EncryptWork", Twins)
    for contents in (CONTENTS, {path: data + b"." for path, data in CONTENTS.items()}):
        write_tree(raw, contents)
        assert encrypt(spark, raw, vault, kms_url, parallelism=2).counts.keys() <= {"ok", "skipped"}
        assert_dataset(vault, contents, kms_url)


# -- drivers -------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys, threading
from functools import partial
from pathlib import Path
from pyspark.sql import SparkSession
import ags1.spark
from ags1.spark import encryption
from tests.spark.works import Interrupted, await_file

raw, vault, kms, signals = sys.argv[1:]

def die():
    await_file(os.path.join(signals, "waiting"))
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=die, daemon=True).start()
encryption.EncryptWork = partial(Interrupted, path="many/100", fault="wait", signals=signals)
ags1.spark.encrypt_files(
    SparkSession.builder.getOrCreate(), raw, vault, kms=kms, key_id="lake", part_bytes=1 << 20, parallelism=2
)
"""


@pytest.mark.timeout(180)
def test_what_a_killed_driver_leaves(
    spark: SparkSession, raw: Path, kms_url: str, run_spark: Run, tmp_path: Path
) -> None:
    vault, signals = tmp_path / "vault", tmp_path / "signals"
    signals.mkdir()
    encrypt(spark, write_tree(tmp_path / "old", OLD), vault, kms_url)
    done = run_spark(KILLED, raw, vault, kms_url, signals, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    expected = {**OLD, **CONTENTS}
    # The dataset is as it was, and readable; what the run has done waits.
    assert plain_of(vault, kms_url) == OLD
    assert {"run", "staged"} <= control(vault)
    (staging,) = (vault / "_ags1").glob("staged-*")
    staged = read_tree(staging)
    assert 20 < len(staged) < len(CONTENTS)
    assert "many/100" in staged

    def copied(name: str) -> Path:
        return Path(shutil.copytree(vault, tmp_path / name, symlinks=True))

    # It is gone on with: under the same keys, from where it was.
    again = copied("again")
    result = encrypt(spark, raw, again, kms_url, parallelism=3)
    # Those besides were in parts that were all there.
    assert len(staged) <= result.counts["skipped"] <= len(staged) + 2
    assert sum(result.counts.values()) == len(CONTENTS)
    assert {row.status for row in result.dataframe.filter("path = 'many/100'").collect()} == {"skipped"}
    assert_dataset(again, expected, kms_url)
    stored = read_tree(again)
    assert all(stored[path] == data for path, data in staged.items())

    # It is begun anew.
    anew = copied("anew")
    assert encrypt(spark, raw, anew, kms_url, resume=False).counts == {"ok": len(CONTENTS)}
    assert_dataset(anew, expected, kms_url)

    # It is thrown away.
    cleaned = copied("cleaned")
    assert {name.partition("-")[0] for name in ags1.spark.clean(spark, cleaned)} >= {"_ags1/run", "_ags1/staged"}
    assert_dataset(cleaned, OLD, kms_url)
    assert ags1.spark.clean(spark, cleaned) == []

    # Most of the sources have gone meanwhile, and one has changed: what is staged of them replaces nothing.
    less = copied("less")
    source = write_tree(tmp_path / "less-raw", {"many/100": b"changed", "new": b"1"})
    encrypt(spark, source, less, kms_url)
    assert_dataset(less, {**OLD, "many/100": b"changed", "new": b"1"}, kms_url)

    # What was staged is damaged: it is made again.
    damaged = copied("damaged")
    for path in ("many/100", min(staged)):
        name = damaged / "_ags1" / staging.name / path
        name.write_bytes(name.read_bytes()[:-1] + b"\0")
    assert encrypt(spark, raw, damaged, kms_url).ok
    assert_dataset(damaged, expected, kms_url)

    # The dataset is put under another master key, and then it is gone on with.
    rewrapped = copied("rewrapped")
    ags1.spark.rewrap(spark, rewrapped, "lake2", kms=kms_url)
    assert encrypt(spark, raw, rewrapped, kms_url, key_id="lake2").counts["skipped"] >= len(staged)
    assert_dataset(rewrapped, expected, kms_url, "lake2")


def test_a_commit_that_was_killed_is_read_decrypted_verified_and_finished(
    spark: SparkSession, raw: Path, kms_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = tmp_path / "vault"
    encrypt(spark, write_tree(tmp_path / "old", OLD), vault, kms_url)

    def dying(store: LocalStore, staging: str) -> None:
        # Some are where they belong, the others wait.
        os.replace(vault / "_ags1" / staging / "a.txt", vault / "a.txt")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "finish_moves", dying)
        with pytest.raises(KeyboardInterrupt):
            encrypt(spark, raw, vault, kms_url)
    expected = {**OLD, **CONTENTS}
    with dataset.open(vault, kms_url) as opened:
        assert opened.version == 2
        for entry in opened.files:
            with opened.open(entry.path) as reader:
                assert reader.read() == expected[entry.path]
    options: dict[str, Any] = {"kms": kms_url, "progress": False, "part_bytes": PART}
    assert ags1.spark.decrypt_files(spark, vault, tmp_path / "plain", **options).ok
    assert read_tree(tmp_path / "plain") == expected
    result = ags1.spark.verify_files(spark, vault, **options)
    assert result.counts == {"ok": len(expected)}
    result = encrypt(spark, raw, vault, kms_url)
    assert result.counts == {"unchanged": len(CONTENTS)}
    assert result.version == 2
    assert_dataset(vault, expected, kms_url)
