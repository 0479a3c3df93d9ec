"""SIGKILL of workers and drivers, and tasks that are late: no file is lost, doubled or torn."""

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
from ags1.dataset.names import new_object_name, run_of
from ags1.dataset.pins import Access
from ags1.dataset.runs import Done, interrupted
from ags1.dataset.selection import Filter
from ags1.dataset.sources import scan
from ags1.dataset.transaction import Transaction
from ags1.dataset.worker import SMALL, EncryptUnit
from ags1.errors import ConflictError
from ags1.spark import datasets
from ags1.spark.engine.dataset_work import EncryptWork
from ags1.spark.engine.locations import locate
from ags1.spark.engine.sealing import Opener, kms_client
from ags1.storage import Location
from tests.checks import MIB, pattern
from tests.spark.trees import CONTENTS, PART, Tree, assert_dataset, give_up, plain_of, read_tree, unfinished, write_tree
from tests.spark.works import Interrupted, Twins

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ags1.spark import Result
    from tests.spark.conftest import Run

# A file of each kind: done with others, alone, in ranges.
PATHS = ("many/075", "large.bin", "huge.bin")
OLD: Tree = {"a.txt": b"version 1", "huge.bin": pattern(2 * MIB + 5), "old": b"stays", "many/010": b"version 1"}


def unreferenced(vault: Path, kms_url: str) -> list[str]:
    """Objects that no version names; nothing else is wrong."""
    with dataset.open(vault, kms_url) as opened:
        problems = opened.verify().findings
    assert {each.code for each in problems} <= {"unreferenced"}
    return [each.subject for each in problems]


def cleaned(spark: SparkSession, vault: Path, contents: Tree, kms_url: str, key_id: str = "lake") -> None:
    """What nobody names goes, and nothing else."""
    give_up(vault, kms_url)
    assert_dataset(vault, contents, kms_url, key_id)
    assert unfinished(vault) == []


def encrypt(spark: SparkSession, raw: Path, vault: Path, kms_url: str, **options: Any) -> Result:
    options = {"key_id": "lake", "progress": False, "part_bytes": PART, **options}
    return ags1.spark.encrypt_files(spark, raw, vault, kms=kms_url, **options)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "raw", CONTENTS)


# -- workers -------------------------------------------------------------------------------------------------


# A task that raises is tests/spark/test_engine.py's.
@pytest.mark.parametrize("path", PATHS)
def test_a_task_that_dies_is_done_again(
    path: str, spark: SparkSession, raw: Path, kms_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = raw.parent / "vault"
    monkeypatch.setattr(datasets, "EncryptWork", partial(Interrupted, path=path, fault="kill"))
    result = encrypt(spark, raw, vault, kms_url, parallelism=3)
    assert result.ok
    attempts = {row.path: row.attempt for row in result.dataframe.collect()}
    assert attempts[path] == 1
    assert set(attempts.values()) <= {0, 1}
    assert len(attempts) == len(CONTENTS)
    assert plain_of(vault, kms_url, whole=False) == CONTENTS
    # What the first attempt wrote.
    assert any(path in name for name in unreferenced(vault, kms_url))
    cleaned(spark, vault, CONTENTS, kms_url)


def test_a_task_may_have_a_twin(spark: SparkSession, raw: Path, kms_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # As speculation makes them, which Spark does not do where all executors are on one host.
    vault = raw.parent / "vault"
    monkeypatch.setattr(datasets, "EncryptWork", Twins)
    for contents in (CONTENTS, {path: data + b"." for path, data in CONTENTS.items()}):
        write_tree(raw, contents)
        assert encrypt(spark, raw, vault, kms_url, parallelism=2).counts.keys() == {"ok"}
        assert plain_of(vault, kms_url, whole=False) == contents
        assert len(unreferenced(vault, kms_url)) >= len(contents)
        cleaned(spark, vault, contents, kms_url)


# -- drivers -------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys, threading
from functools import partial
from pyspark.sql import SparkSession
import ags1.kms, ags1.spark
from ags1.dataset.runs import interrupted
from ags1.spark import datasets
from ags1.spark.engine import planning
from ags1.storage import Location
from tests.spark.works import Interrupted, await_file

raw, vault, kms, signals = sys.argv[1:]

def die():
    await_file(os.path.join(signals, "waiting"))
    client = ags1.kms.load(kms)
    # More than the first wave has: the other task of the second one has recorded its files.
    while len({done.path for run in interrupted(Location(vault), client, "lake", None, []) for done in run.done}) <= 50:
        threading.Event().wait(0.2)
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=die, daemon=True).start()
planning._FIRST_WAVE_UNITS = 40
datasets.EncryptWork = partial(Interrupted, path="many/100", fault="wait", signals=signals)
ags1.spark.encrypt_files(
    SparkSession.builder.getOrCreate(), raw, vault, kms=kms, key_id="lake", part_bytes=1 << 20, parallelism=2
)
"""


@pytest.mark.timeout(300)
def test_what_a_killed_driver_leaves(
    spark: SparkSession, raw: Path, kms_url: str, run_spark: Run, tmp_path: Path
) -> None:
    vault, signals = tmp_path / "vault", tmp_path / "signals"
    signals.mkdir()
    encrypt(spark, write_tree(tmp_path / "old", OLD), vault, kms_url)
    done = run_spark(KILLED, raw, vault, kms_url, signals, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    expected = {**OLD, **CONTENTS}
    # The dataset is as it was, and whole.
    assert plain_of(vault, kms_url, whole=False) == OLD
    left = unreferenced(vault, kms_url)
    (run,) = unfinished(vault)
    assert all(run_of(name) == run for name in left)
    (found,) = interrupted(Location(vault), kms_client(kms_url), "lake", None, [])
    recorded = {each.path for each in found.done}
    # More was done than what was recorded: by the task that did many/100.
    assert any("many/100." in name for name in left)
    assert "many/100" not in recorded
    # Of the wave that was under way, what the other task has done.
    assert 50 < len(recorded) < len(CONTENTS)

    def copied(name: str) -> Path:
        return Path(shutil.copytree(vault, tmp_path / name, symlinks=True))

    # It is taken over: what was recorded, and nothing else.
    again = copied("again")
    result = encrypt(spark, raw, again, kms_url, parallelism=3)
    rows = {row.path: row.status for row in result.dataframe.collect()}
    assert {path for path, status in rows.items() if status == "skipped"} == recorded
    assert rows.keys() == CONTENTS.keys()
    assert plain_of(again, kms_url, whole=False) == expected
    cleaned(spark, again, expected, kms_url)

    # It is thrown away.
    thrown = copied("thrown")
    before = sorted(thrown.rglob("*"))
    assert unfinished(thrown) == [run]
    assert give_up(thrown, kms_url, dry_run=True).objects > 0
    assert sorted(thrown.rglob("*")) == before
    cleaned(spark, thrown, OLD, kms_url)
    assert give_up(thrown, kms_url).is_empty


HALTED = """
import os, signal, sys, threading
from functools import partial
from pyspark.sql import SparkSession
import ags1.spark
from ags1.spark import datasets
from ags1.spark.engine import planning
from tests.spark.works import HaltedDecryption, HaltedEncryption

verb, source, target, kms, signals = sys.argv[1:]

def die():
    while len(os.listdir(signals)) < 2:
        threading.Event().wait(0.02)
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=die, daemon=True).start()
planning._FIRST_WAVE_UNITS = 1 << 30
datasets.EncryptWork = partial(HaltedEncryption, signals=signals)
datasets.DecryptWork = partial(HaltedDecryption, signals=signals)
options = {"kms": kms, "key_id": "lake", "parallelism": 2}
run = ags1.spark.encrypt_files if verb == "encrypt" else ags1.spark.decrypt_files
run(SparkSession.builder.getOrCreate(), source, target, **options)
"""
MANY: Tree = {f"{index % 20:02}/{index:05}": b"%d" % index for index in range(20_000)}


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_driver_that_is_killed_at_seven_tenths_loses_one_tenth_at_most(
    spark: SparkSession, kms_url: str, run_spark: Run, tmp_path: Path
) -> None:
    raw, vault, plain = write_tree(tmp_path / "raw", MANY), tmp_path / "vault", tmp_path / "plain"

    def killed(verb: str, source: Path, target: Path) -> int:
        signals = tmp_path / verb
        signals.mkdir()
        done = run_spark(HALTED, verb, source, target, kms_url, signals, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
        return sum(len(names) for place, _, names in os.walk(target) if Path(place).name.isdecimal())

    def assert_gone_on(result: Result, before: int) -> None:
        assert 0.69 * len(MANY) < before < 0.71 * len(MANY)
        counts = result.counts
        assert counts["ok"] + counts["skipped"] == len(MANY)
        assert before - counts["skipped"] <= len(MANY) // 10

    before = killed("encrypt", raw, vault)
    assert_gone_on(encrypt(spark, raw, vault, kms_url), before)
    before = killed("decrypt", vault, plain)
    assert_gone_on(ags1.spark.decrypt_files(spark, vault, plain, kms=kms_url, progress=False), before)
    assert read_tree(plain) == MANY


# -- tasks that are late -----------------------------------------------------------------------------------------


class Zombie:
    """A task of a run whose driver is gone: it has the run's keys, and goes on."""

    def __init__(self, raw: Path, vault: Path, kms_url: str) -> None:
        self.transaction = Transaction.begin(Access.of(Location(vault), kms_client(kms_url)), "encrypt")
        self.run = self.transaction.run
        self.run.begin()
        self.work = EncryptWork(locate(raw), locate(vault), Opener(self.run.keys.reference, kms_url))
        self.units = [
            EncryptUnit(each.path, each.size, each.source, each.identity,
                        new_object_name(each.path, self.run.id), each.mode, small=each.size <= SMALL)
            for each in scan(Location(raw), "", Filter(), None, lambda path, why: None)
        ]  # fmt: skip

    def write(self) -> list[Done]:
        """Do everything, once more."""
        outcomes = list(self.work.run(self.units))
        assert {each.status for each in outcomes} == {"ok"}
        by_path = {each.path: each for each in self.units}
        return [Done(each.path, each.detail, by_path[each.path].identity, run=self.run.id) for each in outcomes]


def test_what_a_zombie_writes_after_its_run_was_given_up_and_expired_changes_nothing(
    spark: SparkSession, raw: Path, kms_url: str
) -> None:
    vault = raw.parent / "vault"
    encrypt(spark, raw, vault, kms_url)
    changed = write_tree(raw.parent / "changed", dict.fromkeys(CONTENTS, b"not committed"))
    zombie = Zombie(changed, vault, kms_url)
    first = zombie.write()
    # Its driver is dead, and what it has written is thrown away.
    cleaned(spark, vault, CONTENTS, kms_url)
    before = read_tree(vault)
    second = zombie.write()
    assert {name for each in second for name, _ in each.parts}.isdisjoint(before)
    after = read_tree(vault)
    assert {path: after[path] for path in before} == before
    assert plain_of(vault, kms_url, whole=False) == CONTENTS
    assert len(unreferenced(vault, kms_url)) == len(second)
    # Not even its driver, if it was only asleep, can make anything of it, nor can a run that takes it over.
    for each in sorted(first, key=lambda each: each.path.encode("utf-8", "surrogateescape"))[:3]:
        zombie.transaction.put(zombie.transaction.entry(each))
    with pytest.raises(ConflictError, match="expire has given up this run"):
        zombie.transaction.commit()
    assert zombie.transaction.base is not None
    with Transaction.begin(Access.of(Location(vault), kms_client(kms_url)), "encrypt") as transaction:
        with pytest.raises(ConflictError, match="expire has given up this run"):
            transaction.take_over(zombie.run.id, zombie.transaction.base.version)
        with pytest.raises(AssertionError, match="take over the run first"):
            transaction.entry(second[0], zombie.run.keys)
    assert encrypt(spark, raw, vault, kms_url).counts == {"unchanged": len(CONTENTS)}
    cleaned(spark, vault, CONTENTS, kms_url)


def test_an_object_that_a_task_writes_after_the_commit_is_unreferenced(
    spark: SparkSession, raw: Path, kms_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = raw.parent / "vault"
    kept: list[tuple[Any, list[EncryptUnit]]] = []
    cut = datasets.cut

    def keeping(unit: EncryptUnit, part_bytes: int) -> Any:
        parts = cut(unit, part_bytes)
        kept[-1][1].extend(parts)
        return parts

    class Kept(EncryptWork):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            kept.append((EncryptWork(*arguments), []))

        def __reduce__(self) -> Any:
            return EncryptWork, (self.source, self.target, self.opener)

    monkeypatch.setattr(datasets, "EncryptWork", Kept)
    monkeypatch.setattr(datasets, "cut", keeping)
    encrypt(spark, raw, vault, kms_url)
    before = read_tree(vault)
    # The same task once more, as a twin does that is slower than the run.
    ((work, units),) = kept
    assert {each.status for each in work.run(units)} == {"ok"}
    after = read_tree(vault)
    assert {path: after[path] for path in before} == before
    new = [path for path in after if path not in before and not path.startswith("_ags1/runs/")]
    assert len(unreferenced(vault, kms_url)) == len(units) == len(new)
    assert plain_of(vault, kms_url, whole=False) == CONTENTS
    assert encrypt(spark, raw, vault, kms_url).counts == {"unchanged": len(CONTENTS)}
    cleaned(spark, vault, CONTENTS, kms_url)
